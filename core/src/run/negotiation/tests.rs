use super::*;
use erd_crypto::{JobKey, Keyring};
use erd_port::verbs::gid::Gid;
use erd_port::verbs::negotiation::address::{Address, DATAGRAM_BYTES};
use erd_rd::keys::Keys;
use std::sync::Arc;

const UDP: Via = Via::Udp;
const VERBS: Via = Via::Verbs(None);
/// Where a port datagram's checksum begins.
const CRC_AT: usize = DATAGRAM_BYTES - 4;
const KEY: KeyIndex = KeyIndex(0);

fn name(last: u8) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, last], 7471))
}

fn peer(last: u8) -> PeerAddress {
    name(last).into()
}

fn address(last: u8, qpn: u32) -> Address {
    let gid = Gid(std::net::Ipv4Addr::new(192, 0, 2, last).to_ipv6_mapped().octets());
    Address { gid, qpn, mtu_bytes: 4096, ..Address::NONE }
}

fn key(job: u8) -> Arc<dyn Keys> {
    Arc::new(Keyring::new(JobKey::new(&[job; 32]), true))
}

/// The endpoint of this name, with the keys of these jobs, at a queue pair.
fn at(last: u8, qpn: u32, jobs: &[u8]) -> Negotiation {
    let peers = Peers::new(address(last, qpn), name(last), [u64::from(qpn), 7]);
    let keys = KeySet::new(jobs.iter().map(|job| Some(key(*job))));
    Negotiation::new(peers, name(last), keys)
}

fn side(last: u8, jobs: &[u8]) -> Negotiation {
    at(last, u32::from(last), jobs)
}

/// The next question or check.
fn asked(side: &mut Negotiation) -> Vec<u8> {
    side.next(1, 0).expect("something is due").bytes().to_vec()
}

/// The answer that waits.
fn answer(side: &mut Negotiation) -> Vec<u8> {
    side.next(0, 0).expect("an answer waits").bytes().to_vec()
}

fn take(side: &mut Negotiation, bytes: &[u8], via: Via) -> Result<bool, Unheard> {
    side.take(bytes, via, 0, |_| true)
}

/// What `to` answers.
fn answered(to: &mut Negotiation, bytes: &[u8], via: Via) -> Vec<u8> {
    assert_eq!(take(to, bytes, via), Ok(true));
    answer(to)
}

/// One of each kind, between 1, who asks, and 2, with the endpoint that takes it just then.
fn each_kind(jobs: &[u8], mut f: impl FnMut(&mut Negotiation, &[u8], Via)) {
    let (mut a, mut b) = (side(1, jobs), side(2, jobs));
    assert_eq!(a.peers.route(peer(2), 0, || 11), None);
    let question = asked(&mut a);
    f(&mut b, &question, UDP);
    let told = answered(&mut b, &question, UDP);
    f(&mut a, &told, UDP);
    assert_eq!(take(&mut a, &told, UDP), Ok(false));
    let check = asked(&mut a);
    f(&mut b, &check, VERBS);
    let confirmed = answered(&mut b, &check, VERBS);
    f(&mut a, &confirmed, VERBS);
    assert_eq!(take(&mut a, &confirmed, VERBS), Ok(false));
    assert!(a.peers.is_up(peer(2)), "nothing of it did any harm");
}

/// The same datagram with a checksum that fits, which anybody can make.
fn with_sum(mut bytes: Vec<u8>) -> Vec<u8> {
    let sum = crc32c::crc32c(&bytes[..CRC_AT]);
    bytes[CRC_AT..DATAGRAM_BYTES].copy_from_slice(&sum.to_be_bytes());
    bytes
}

#[test]
fn a_question_in_anothers_name_gets_no_answer() {
    let addr = |text: &str| text.parse::<SocketAddr>().unwrap();
    let name = addr("10.0.0.1:7");
    assert!(asks_for_itself(addr("10.0.0.1:9"), name), "a port for each path");
    assert!(asks_for_itself(addr("[::ffff:10.0.0.1]:9"), name));
    for other in ["10.0.0.2:7", "[::10.0.0.1]:7", "[fd00::1]:7"] {
        assert!(!asks_for_itself(addr(other), name), "{other}");
    }
}

#[test]
fn one_host_has_its_share_of_the_answers_that_wait() {
    let said = |kind| {
        let address = address(9, 9);
        PortDatagram { kind, nonce: 1, address, cookie: 1, name: name(9) }
    };
    let answer_to = |ip: IpAddr, port| Outgoing {
        to: Target::Udp(SocketAddr::new(ip, port).into()),
        datagram: said(PortKind::Answer),
    };
    let v4 = |ip: [u8; 4], port| answer_to(ip.into(), port);
    let mut answers = Answers::default();
    let kept = (1..1000).filter(|port| answers.push(v4([10, 0, 0, 1], *port))).count();
    assert_eq!(kept, ANSWERS_PER_HOST);
    assert!(answers.push(v4([10, 0, 0, 2], 1)), "others are answered");
    let of_one_net = |last: u16| answer_to([0xfd00, 0, 0, 1, 0, 0, 0, last].into(), 1);
    let kept = (0..1000).filter(|last| answers.push(of_one_net(*last))).count();
    assert_eq!(kept, ANSWERS_PER_HOST);
    let kept = (0..=255).filter(|last| answers.push(v4([10, 0, 1, *last], 1))).count();
    assert_eq!(kept, ANSWERS_MAX - 2 * ANSWERS_PER_HOST - 1);
}

#[test]
fn verbs_comes_into_use_with_a_key_as_without_and_no_answer_is_longer_than_its_question() {
    for (jobs, bytes) in [(&[][..], DATAGRAM_BYTES), (&[5][..], PROVEN_BYTES)] {
        let mut kinds = Vec::new();
        each_kind(jobs, |_, datagram, _| {
            assert_eq!(datagram.len(), bytes);
            kinds.push(datagram[1]);
        });
        assert_eq!(kinds, [1, 2, 3, 4]);
    }
}

#[test]
fn a_host_admits_who_may_ask_and_a_question_comes_from_its_own_address() {
    let (mut a, mut b) = (side(1, &[5]), side(2, &[4, 5]));
    a.peers.route(peer(2), 0, || 11);
    let question = asked(&mut a);
    let whom = PeerAddress { name: name(1), key: KeyIndex(1) };
    let mut asks = |from, admits: bool| {
        b.take_over_udp(&question, from, 0, |peer| {
            assert_eq!(peer, whom, "the name and the key that it proved");
            admits
        })
    };
    assert_eq!(asks(name(1), true), Ok(true));
    assert_eq!(asks(name(1), false), Err(Unheard::Unfit));
    assert_eq!(asks(name(3), true), Err(Unheard::Unfit));
    assert_eq!(take(&mut b, &question, VERBS), Err(Unheard::Unfit), "nobody asks over verbs");
}

#[test]
fn another_jobs_key_or_none_or_one_too_many_gets_nothing() {
    each_kind(&[5], |to, datagram, via| {
        let mut other = datagram.to_vec();
        other[DATAGRAM_BYTES..][..KEY_ID_BYTES].copy_from_slice(&key(6).id());
        assert_eq!(take(to, &other, via), Err(Unheard::OtherKey));
        let plain = PortDatagram::decode_proven(datagram).expect("as it was sent").datagram;
        assert_eq!(take(to, &plain.encode(), via), Err(Unheard::Malformed));
        for len in 0..datagram.len() {
            assert_eq!(take(to, &datagram[..len], via), Err(Unheard::Malformed), "{len} bytes");
        }
        let longer = [datagram, &[0]].concat();
        assert_eq!(take(to, &longer, via), Err(Unheard::Malformed));
    });
    let mut keyed = None;
    each_kind(&[5], |_, datagram, _| keyed = keyed.take().or(Some(datagram.to_vec())));
    let question = keyed.expect("a question");
    assert_eq!(take(&mut side(2, &[]), &question, UDP), Err(Unheard::Malformed));
    assert_eq!(take(&mut side(2, &[6]), &question, UDP), Err(Unheard::OtherKey));
}

#[test]
fn every_bit_of_a_port_datagram_is_proven() {
    each_kind(&[5], |to, datagram, via| {
        for bit in 0..8 * datagram.len() {
            let mut forged = datagram.to_vec();
            forged[bit / 8] ^= 1 << (bit % 8);
            let damaged = take(to, &forged, via);
            assert!(damaged.is_err(), "bit {bit}");
            if bit / 8 < CRC_AT {
                let taken = take(to, &with_sum(forged), via);
                let is_form = matches!(bit / 8, 0 | 1 | 76);
                let expected = matches!(taken, Err(Unheard::Forged))
                    || (is_form && matches!(taken, Err(Unheard::Malformed)));
                assert!(expected, "bit {bit}: {taken:?}");
            } else if bit / 8 >= DATAGRAM_BYTES + KEY_ID_BYTES {
                assert_eq!(damaged, Err(Unheard::Forged), "bit {bit}");
            }
        }
    });
}

#[test]
fn what_one_process_is_told_is_nothing_to_another_of_the_job() {
    // 3 has asked 2, too, under the same number: the names alone tell the answers apart.
    let mut c = side(3, &[5]);
    c.peers.route(peer(2), 0, || 11);
    let question = asked(&mut c);
    each_kind(&[5], |to, datagram, via| {
        assert_eq!(take(&mut c, datagram, via), Err(Unheard::Forged), "sent on to 3");
        let mut other = side(3, &[5]);
        assert_eq!(take(&mut other, datagram, via), Err(Unheard::Forged));
        if via == UDP && datagram[1] == PortKind::Answer as u8 {
            let told = answered(&mut side(2, &[5]), &question, UDP);
            assert_eq!(take(to, &told, via), Err(Unheard::Forged), "the answer to 3's question");
        }
    });
    // What is sent back to its writer is not from the peer.
    let mut a = side(1, &[5]);
    a.peers.route(peer(2), 0, || 11);
    let own = asked(&mut a);
    assert_eq!(take(&mut a, &own, UDP), Err(Unheard::Forged));
}

#[test]
fn an_old_question_an_old_answer_and_an_old_confirmation_change_nothing() {
    let mut seen = Vec::new();
    each_kind(&[5], |_, datagram, via| seen.push((datagram.to_vec(), via)));
    let [question, told, check, confirmed] = &seen[..] else { panic!("four kinds") };
    // A process of the same name asks again, and stands where the old one stood.
    let (mut a, mut b) = (side(1, &[5]), at(2, 77, &[5]));
    assert_eq!(take(&mut a, &told.0, UDP), Err(Unheard::Unasked), "nobody asked");
    a.peers.route(peer(2), 0, || 21);
    let again = asked(&mut a);
    for (old, via) in [told, confirmed] {
        assert_eq!(take(&mut a, old, *via), Err(Unheard::Unasked));
    }
    let told_again = answered(&mut b, &again, UDP);
    assert_eq!(take(&mut a, &told_again, UDP), Ok(false));
    for (old, via) in [told, confirmed] {
        assert_eq!(take(&mut a, old, *via), Err(Unheard::Unasked));
    }
    assert!(!a.peers.is_up(peer(2)));
    // An old question gets an answer for its writer, who drops it; an old check has another process's cookie.
    let stale = answered(&mut b, &question.0, UDP);
    assert_eq!(take(&mut a, &stale, UDP), Err(Unheard::Unasked));
    assert_eq!(take(&mut b, &check.0, VERBS), Err(Unheard::Unfit));
    let check = asked(&mut a);
    let confirmed = answered(&mut b, &check, VERBS);
    assert_eq!(take(&mut a, &confirmed, VERBS), Ok(false));
    assert_eq!(a.peers.route(peer(2), 1, || 1), Some(address(2, 77)));
}

#[test]
fn a_member_of_another_job_redirects_no_session_of_this_one() {
    // 1 is in both jobs. 2 is of job 5. A member of job 6 bears its name, with a queue pair of its own, and sees all.
    let mut a = side(1, &[5, 6]);
    let (mut right, mut wrong) = (side(2, &[5]), at(2, 99, &[6]));
    let of_other_job = PeerAddress { name: name(2), key: KeyIndex(1) };
    a.peers.route(peer(2), 0, || 11);
    let question = asked(&mut a);
    assert_eq!(take(&mut wrong, &question, UDP), Err(Unheard::OtherKey));
    // It answers with the number of the question, by the key that it has.
    let lie = |kind: PortKind, cookie, key_id: [u8; 8]| {
        let datagram =
            PortDatagram { kind, nonce: 11, address: address(2, 99), cookie, name: name(2) };
        datagram.encode_proven(key_id, |covered| key(6).prove(&loose(covered, name(2), name(1))))
    };
    let ids = [key(6).id(), key(5).id()];
    let expected = [Err(Unheard::Unasked), Err(Unheard::Forged)];
    for (key_id, expected) in ids.into_iter().zip(expected) {
        assert_eq!(take(&mut a, &lie(PortKind::Answer, 0, key_id), UDP), expected);
        assert_eq!(take(&mut a, &lie(PortKind::Confirm, 0, key_id), VERBS), expected);
    }
    // With it as a peer of its own, each gets what it said of itself.
    a.peers.route(of_other_job, 0, || 12);
    let other_question = asked(&mut a);
    let told = answered(&mut wrong, &other_question, UDP);
    assert_eq!(take(&mut a, &told, UDP), Ok(false));
    let other_check = asked(&mut a);
    let confirmed = answered(&mut wrong, &other_check, VERBS);
    assert_eq!(take(&mut a, &confirmed, VERBS), Ok(false));
    assert_eq!(a.peers.route(of_other_job, 1, || 1), Some(address(2, 99)));
    assert_eq!(a.peers.route(peer(2), 1, || 1), None, "job 5 still asks");
    let told = answered(&mut right, &question, UDP);
    assert_eq!(take(&mut a, &told, UDP), Ok(false));
    let check = asked(&mut a);
    assert_eq!(take(&mut wrong, &check, VERBS), Err(Unheard::OtherKey));
    let confirmed = answered(&mut right, &check, VERBS);
    assert_eq!(take(&mut a, &confirmed, VERBS), Ok(false));
    assert_eq!(a.peers.route(peer(2), 2, || 1), Some(address(2, 2)));
    assert_eq!(a.peers.route(of_other_job, 2, || 1), Some(address(2, 99)));
}

#[test]
fn an_answer_is_proven_by_the_key_of_its_question() {
    let mut b = side(2, &[4, 5]);
    for (job, at) in [(4, 0), (5, 1)] {
        let mut a = side(1, &[job]);
        a.peers.route(peer(2), 0, || 11);
        let question = asked(&mut a);
        assert_eq!(b.read(&question).map(|(_, key)| key), Ok(KeyIndex(at)));
        let told = answered(&mut b, &question, UDP);
        assert_eq!(a.read(&told).map(|(_, key)| key), Ok(KEY));
        assert_eq!(take(&mut a, &told, UDP), Ok(false));
    }
}

#[test]
fn a_proof_of_a_port_datagram_is_none_of_a_packet_of_the_engine() {
    use erd_rd::wire::header::PacketKind;
    let firsts = (0..=u8::MAX).filter(|first| PortDatagram::claims(&[*first]));
    let kinds: Vec<u8> = firsts.map(|first| first & 15).collect();
    assert_eq!(kinds, [15, 15]);
    assert!((PacketKind::SizeAnswer as u8) < 15, "the engine has no such kind");
}
