use super::*;
use std::net::IpAddr;

const MS: u64 = 1_000_000;
const KEY: KeyIndex = KeyIndex(0);
const VERBS: Via = Via::Verbs(None);
const UNASKED: Result<Handled, Refusal> = Err(Refusal::Unasked);
const UNFIT: Result<Handled, Refusal> = Err(Refusal::Unfit);

fn name(last: u8) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, last], 7471))
}

fn peer(last: u8) -> PeerAddress {
    name(last).into()
}

/// The same name, with another key.
fn namesake(last: u8) -> PeerAddress {
    PeerAddress { name: name(last), key: KeyIndex(1) }
}

fn address(last: u8) -> Address {
    let qpn = u32::from(last) * 16;
    Address {
        gid: Gid(std::net::Ipv4Addr::new(192, 0, 2, last).to_ipv6_mapped().octets()),
        lid: 0,
        qpn,
        qkey: 5,
        tag: 1,
        mtu_bytes: 4096,
        senders: [qpn + 1, qpn + 2, 0, 0, 0, 0, 0],
    }
}

fn peers(last: u8) -> Peers {
    Peers::new(address(last), name(last), [u64::from(last), 7])
}

fn is_answered(handled: Result<Handled, Refusal>) -> bool {
    matches!(handled, Ok((Some(_), _)))
}

/// Carries due datagrams between the two until there are none; returns the changes for the first.
fn exchange(a: &mut Peers, b: &mut Peers, now: u64, verbs_works: bool) -> Vec<Change> {
    let mut changes = Vec::new();
    let mut nonce = now;
    while let Some(sent) = a.poll(now) {
        let mut to_b = Some(sent);
        while let Some(sent) = to_b.take() {
            let via = match sent.to {
                Target::Udp(_) => Via::Udp,
                Target::Verbs(..) if verbs_works => Via::Verbs(None),
                Target::Verbs(..) => break,
            };
            let key = sent.peer().key;
            let answer = b.handle(&sent.datagram, key, via, now, || 0);
            let Some(answer) = answer.unwrap_or_default().0 else { break };
            nonce += 1;
            let (again, change) =
                a.handle(&answer.datagram, key, via, now, || nonce).unwrap_or_default();
            changes.extend(change);
            to_b = again;
        }
    }
    changes
}

#[test]
fn verbs_is_used_once_a_round_trip_over_it_worked() {
    let (mut a, mut b) = (peers(1), peers(2));
    assert_eq!(a.route(peer(2), 0, || 11), None);
    assert_eq!(exchange(&mut a, &mut b, 0, true), [Change::Up(address(2))]);
    assert_eq!(a.route(peer(2), 1, || 12), Some(address(2)));
    assert_eq!(a.next_ns(), None, "nothing is pending");
    assert!(b.states.is_empty(), "who is asked remembers nothing");
}

#[test]
fn where_verbs_packets_are_dropped_udp_stays_in_use() {
    let (mut a, mut b) = (peers(1), peers(2));
    let mut now = 0;
    a.route(peer(2), now, || 11);
    while let Some(next) = a.next_ns() {
        now = next;
        assert_eq!(exchange(&mut a, &mut b, now, false), []);
        assert_eq!(a.route(peer(2), now, || 12), None);
    }
    assert!((1000 * MS..3000 * MS).contains(&now), "gives up after {now} ns");
    a.route(peer(2), now + REST_NS, || 13);
    assert!(a.next_ns().is_some(), "and tries again later");
}

#[test]
fn a_peer_without_verbs_says_nothing_and_is_left_alone() {
    let mut a = peers(1);
    let mut b = Peers::new(Address::NONE, name(2), [1, 2]);
    let mut now = 0;
    a.route(peer(2), now, || 11);
    while let Some(next) = a.next_ns() {
        now = next;
        assert_eq!(exchange(&mut a, &mut b, now, true), []);
    }
    assert_eq!(a.route(peer(2), now + WITHOUT_NS - 1, || 12), None);
    assert_eq!(a.next_ns(), None, "it is not asked again so soon");
    assert_eq!(b.route(peer(1), 0, || 1), None);
    assert_eq!(b.next_ns(), None, "who has none asks nobody");
}

#[test]
fn answers_that_nobody_asked_for_change_nothing() {
    let mut a = peers(1);
    let forged = |kind, nonce| {
        let (address, name) = (address(2), name(2));
        PortDatagram { kind, nonce, address, cookie: 0, name }
    };
    a.route(peer(2), 0, || 11);
    for (kind, via) in [(Kind::Answer, Via::Udp), (Kind::Confirm, Via::Verbs(None))] {
        assert_eq!(a.handle(&forged(kind, 12), KEY, via, 0, || 1), UNASKED);
    }
    for kind in [Kind::Confirm, Kind::Answer] {
        assert_eq!(a.handle(&forged(kind, 11), KEY, Via::Verbs(None), 0, || 1), UNASKED);
    }
    assert_eq!(a.route(peer(2), 0, || 13), None);
    let other = Via::Verbs(Some(address(3).gid));
    assert_eq!(a.handle(&forged(Kind::Check, 1), KEY, other, 0, || 1), UNFIT);
    let own = Via::Verbs(Some(address(2).gid));
    assert_eq!(a.handle(&forged(Kind::Check, 1), KEY, own, 0, || 1), UNFIT, "no cookie");
    let elsewhere = PortDatagram { address: address(3), ..forged(Kind::Answer, 11) };
    let without = Ok((None, Some(Change::Without)));
    assert_eq!(a.handle(&elsewhere, KEY, Via::Udp, 0, || 1), without, "another host's address");
}

#[test]
fn an_address_of_another_kind_of_network_is_not_taken() {
    let check = |peers: &Peers, address| {
        let (kind, name, cookie) = (Kind::Check, name(2), peers.cookie(peer(2)));
        PortDatagram { kind, nonce: 1, address, cookie, name }
    };
    let on_infiniband = |last| Address { lid: 7, ..address(last) };
    // With a LID, the GID need not be the name's: the stranger would have us look for any host.
    let mut a = peers(1);
    for address in [on_infiniband(9), on_infiniband(2), address(9)] {
        let datagram = check(&a, address);
        assert_eq!(a.handle(&datagram, KEY, VERBS, 0, || 1), UNFIT, "{address:?}");
        a.route(peer(2), 0, || 11);
        let answer = PortDatagram { kind: Kind::Answer, nonce: 11, ..datagram };
        let without = Ok((None, Some(Change::Without)));
        assert_eq!(a.handle(&answer, KEY, Via::Udp, 0, || 1), without, "{address:?}");
        a = peers(1);
    }
    let datagram = check(&a, address(2));
    assert!(is_answered(a.handle(&datagram, KEY, VERBS, 0, || 1)));
    let mut a = Peers::new(on_infiniband(1), name(1), [1, 7]);
    let datagram = check(&a, on_infiniband(9));
    assert!(is_answered(a.handle(&datagram, KEY, VERBS, 0, || 1)), "any GID has a LID");
    let datagram = check(&a, address(2));
    assert_eq!(a.handle(&datagram, KEY, VERBS, 0, || 1), UNFIT);
}

#[test]
fn a_peer_whose_way_is_looked_up_takes_udp_for_a_moment() {
    let (mut a, mut b) = (peers(1), peers(2));
    a.resolving(peer(2), 0);
    a.route(peer(2), 0, || 1);
    exchange(&mut a, &mut b, 0, true);
    assert_eq!(a.route(peer(2), 0, || 1), Some(address(2)));
    a.resolving(peer(2), MS);
    assert_eq!(a.route(peer(2), 2 * MS - 1, || 1), None);
    assert!(a.is_up(peer(2)) && a.next_ns().is_none(), "nobody is asked");
    assert_eq!(a.route(peer(2), 2 * MS, || 1), Some(address(2)));
}

#[test]
fn an_unreachable_address_is_left_alone_whoever_names_it() {
    let (mut a, gid) = (peers(1), address(2).gid);
    let other = SocketAddr::new(name(2).ip(), 1);
    a.unreachable(peer(2), gid, 0);
    let check = |name, cookie| PortDatagram {
        kind: Kind::Check,
        nonce: 1,
        address: address(2),
        cookie,
        name,
    };
    for name in [name(2), other] {
        let datagram = check(name, a.cookie(name.into()));
        assert_eq!(a.handle(&datagram, KEY, VERBS, WITHOUT_NS - 1, || 1), UNFIT, "{name}");
        assert!(is_answered(a.handle(&datagram, KEY, VERBS, WITHOUT_NS, || 1)), "{name}");
    }
    a.route(other.into(), 1, || 11);
    let answer = PortDatagram { kind: Kind::Answer, nonce: 11, ..check(other, 0) };
    assert_eq!(a.handle(&answer, KEY, Via::Udp, 1, || 1), Ok((None, Some(Change::Without))));
    for last in 0..200 {
        a.unreachable(peer(last), address(last).gid, 1);
    }
    assert_eq!(a.dead.len(), DEAD_GIDS_MAX);
}

#[test]
fn who_cannot_use_verbs_now_says_so() {
    let (mut a, mut b) = (peers(1), peers(2));
    b.set_usable(false);
    a.route(peer(2), 0, || 11);
    assert_eq!(exchange(&mut a, &mut b, 0, true), [Change::Without]);
}

#[test]
fn silence_leads_back_to_udp_and_a_sign_of_life_does_not() {
    let (mut a, mut b) = (peers(1), peers(2));
    a.route(peer(2), 0, || 11);
    exchange(&mut a, &mut b, 0, true);
    assert_eq!(a.probed(peer(2), MS, || 12), None);
    a.heard(address(2).gid, address(2).senders[1]);
    assert_eq!(a.probed(peer(2), 2 * MS, || 13), None, "heard since the first");
    a.heard(address(2).gid, 999);
    assert_eq!(a.probed(peer(2), 3 * MS, || 14), Some(Change::Silent));
    assert_eq!(a.route(peer(2), 3 * MS, || 15), None);
    assert_eq!(exchange(&mut a, &mut b, 3 * MS, true), [Change::Up(address(2))]);
    assert!(a.suspects.is_empty());
}

#[test]
fn a_new_session_asks_anew_unless_it_was_asked_just_now() {
    let (mut a, mut b) = (peers(1), peers(2));
    a.route(peer(2), 0, || 11);
    exchange(&mut a, &mut b, 0, true);
    a.renew(peer(2), MS, || 12);
    assert!(a.route(peer(2), MS, || 13).is_some());
    a.renew(peer(2), FRESH_NS, || 14);
    assert_eq!(a.route(peer(2), FRESH_NS, || 15), None);
    let restarted = Address { qpn: 77, ..address(2) };
    let mut other = Peers::new(restarted, name(2), [3, 4]);
    assert_eq!(exchange(&mut a, &mut other, FRESH_NS, true), [Change::Up(restarted)]);
}

#[test]
fn whatever_happens_the_counts_are_those_of_the_table() {
    let mut peers = peers(1);
    let mut state = 1_u64;
    let mut random = |below: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let (mut now, mut nonces) = (0, vec![0]);
    for _ in 0..if cfg!(miri) { 2_000 } else { 20_000 } {
        let key = KeyIndex(random(2) as u8);
        let (whose, nonce) =
            (PeerAddress { name: name(2 + random(4) as u8), key }, random(1 << 20));
        now += random(20 * MS);
        match random(8) {
            0 => drop(peers.route(whose, now, || nonce)),
            1 => peers.renew(whose, now, || nonce),
            2 => drop(peers.probed(whose, now, || nonce)),
            3 if random(50) == 0 => peers.refused(whose, now),
            4 => {
                let theirs = address(2 + random(4) as u8);
                match random(2) {
                    0 => peers.heard(theirs.gid, theirs.senders[0]),
                    _ => peers.heard_from(whose),
                }
            }
            5 => {
                let sent = peers.poll(now);
                nonces.extend(sent.map(|sent| sent.datagram.nonce));
            }
            _ => {
                let kind =
                    [Kind::Ask, Kind::Answer, Kind::Check, Kind::Confirm][random(4) as usize];
                let via = [Via::Udp, Via::Verbs(None)][random(2) as usize];
                let known = nonces[nonces.len() - 1 - random(nonces.len().min(4) as u64) as usize];
                let IpAddr::V4(ip) = whose.name.ip() else { unreachable!("see `name`") };
                let theirs = address(ip.octets()[3]);
                let address = [theirs, Address::NONE][usize::from(random(8) == 0)];
                let cookie = peers.cookie(whose);
                let told = PortDatagram { kind, nonce: known, address, cookie, name: whose.name };
                let _ = peers.handle(&told, whose.key, via, now, || nonce);
            }
        }
        let count = |is: fn(&State) -> bool| peers.states.values().filter(|s| is(s)).count();
        let pending = count(|s| matches!(s, State::Asking(_) | State::Checking(..)));
        assert_eq!(peers.pending.len(), pending);
        assert_eq!(peers.up, count(|s| matches!(s, State::Up { .. })));
        let suspect = |s: &State| matches!(s, State::Up { probes, .. } if *probes > 0);
        assert_eq!(peers.suspects.len(), count(suspect));
    }
    assert!(nonces.len() > 100, "questions were asked");
}

#[test]
#[cfg_attr(miri, ignore = "it takes Miri minutes")]
fn the_table_is_bounded_and_forgets_who_has_no_verbs() {
    let mut a = peers(1);
    let peer = |at: u32| PeerAddress::from(SocketAddr::from((at.to_be_bytes(), 1)));
    let more = PEERS_MAX as u32 + 10;
    (0..more).for_each(|at| assert_eq!(a.route(peer(at), 0, || 1), None));
    assert_eq!(a.states.len(), PEERS_MAX);
    (0..more).for_each(|at| a.refused(peer(at), 0));
    a.route(peer(more), REST_NS, || 1);
    assert_eq!(a.states.len(), 1);
    assert!(a.pending.iter().all(|(_, pending)| *pending == peer(more)));
}

/// What one side's question or check gets from the other, over the carrier that brings it.
fn ask(to: &mut Peers, sent: &Outgoing, via: Via) -> PortDatagram {
    let handled = to.handle(&sent.datagram, sent.peer().key, via, 0, || 0);
    handled.expect("it is taken").0.expect("it has an answer").datagram
}

#[test]
fn what_another_key_proves_changes_nothing_for_a_peer() {
    let mut a = peers(1);
    let stranger = || Address { qpn: 99, ..address(2) };
    let mut b = peers(2);
    let mut other_job = Peers::new(stranger(), name(2), [9, 9]);
    a.route(peer(2), 0, || 11);
    a.route(namesake(2), 0, || 12);
    for asked in [a.poll(0), a.poll(0)].into_iter().flatten() {
        let keyed = asked.peer().key;
        let (right, wrong) = (ask(&mut b, &asked, Via::Udp), ask(&mut other_job, &asked, Via::Udp));
        let other = KeyIndex(1 - keyed.0);
        for answer in [right, wrong] {
            let taken = a.handle(&answer, other, Via::Udp, 0, || 1);
            assert_eq!(taken, UNASKED, "an answer by {other:?} to a question by {keyed:?}");
        }
        let answer = if keyed == KEY { right } else { wrong };
        let nonce = 13 + u64::from(keyed.0);
        assert_eq!(a.handle(&answer, keyed, Via::Udp, 0, || nonce), Ok((None, None)));
    }
    for checked in [a.poll(0), a.poll(0)].into_iter().flatten() {
        let keyed = checked.peer().key;
        let to = if keyed == KEY { &mut b } else { &mut other_job };
        let confirmed = ask(to, &checked, VERBS);
        assert_eq!(a.handle(&confirmed, KeyIndex(1 - keyed.0), VERBS, 0, || 1), UNASKED);
        assert!(a.handle(&confirmed, keyed, VERBS, 0, || 1).is_ok());
    }
    assert_eq!(a.route(peer(2), 1, || 1), Some(address(2)));
    assert_eq!(a.route(namesake(2), 1, || 1), Some(stranger()));
    // What the other says of itself is no news of this one.
    a.probed(peer(2), 1, || 1);
    a.heard_from(namesake(2));
    assert!(a.has_suspects());
    assert_eq!(a.probed(peer(2), 2, || 1), Some(Change::Silent));
    assert!(a.is_up(namesake(2)) && !a.has_suspects());
}

#[test]
fn old_questions_answers_and_confirmations_change_nothing() {
    let (mut a, mut b) = (peers(1), peers(2));
    a.route(peer(2), 0, || 11);
    let asked = a.poll(0).expect("a question");
    let old_answer = ask(&mut b, &asked, Via::Udp);
    assert_eq!(a.handle(&old_answer, KEY, Via::Udp, 0, || 12), Ok((None, None)));
    assert_eq!(a.handle(&old_answer, KEY, Via::Udp, 0, || 13), UNASKED, "it came twice");
    let checked = a.poll(0).expect("a check");
    let old_confirmation = ask(&mut b, &checked, VERBS);
    assert!(a.handle(&old_confirmation, KEY, VERBS, 0, || 14).is_ok());
    assert_eq!(a.handle(&old_confirmation, KEY, VERBS, 0, || 15), UNASKED);
    // A process of the same name comes after it: it asks, and is asked, under other numbers.
    a.renew(peer(2), FRESH_NS, || 16);
    for (old, via) in [(&old_answer, Via::Udp), (&old_confirmation, VERBS)] {
        assert_eq!(a.handle(old, KEY, via, FRESH_NS, || 17), UNASKED);
    }
    let restarted = Address { qpn: 77, ..address(2) };
    let mut c = Peers::new(restarted, name(2), [3, 4]);
    let asked_again = a.poll(FRESH_NS).expect("a question");
    let answer = ask(&mut c, &asked_again, Via::Udp);
    assert!(a.handle(&answer, KEY, Via::Udp, FRESH_NS, || 18).is_ok());
    for (old, via) in [(&old_answer, Via::Udp), (&old_confirmation, VERBS)] {
        assert_eq!(a.handle(old, KEY, via, FRESH_NS, || 19), UNASKED);
    }
    // Whoever is asked keeps nothing, whatever is repeated.
    for old in [&asked, &asked_again] {
        ask(&mut c, old, Via::Udp);
    }
    assert_eq!(c.handle(&checked.datagram, KEY, VERBS, FRESH_NS, || 0), UNFIT, "another's cookie");
    assert!(b.states.is_empty() && c.states.is_empty());
}
