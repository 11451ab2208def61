//! Strangers who see nothing: they know names and formats, and guess the rest. What needs an id that they cannot know
//! changes nothing, gets no answer that tells anything, and makes no peer.

use super::stranger::{greeting_from, greeting_of, hello, nothing_received, packet};
use super::{Sent, Victim, announcement, at, enter, only, raise};
use erd_rd::DropReason;
use erd_rd::keys::Keys;
use erd_rd::units::{MILLISECOND, SECOND};
use erd_rd::wire::Reader;
use erd_rd::wire::ack::emit_sections;
use erd_rd::wire::header::{Header, PacketKind};
use erd_rd::wire::setup::{Asker, Greeting};
use erd_rd::{Ecn, RxMeta};
use std::net::SocketAddr;
use std::sync::Arc;

/// A session id in the table's place of the first peer, which a stranger can guess, with 40 wrong bits.
fn guess(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15) << 24
}

/// The greeting in a hello or welcome.
fn greeting(sent: &Sent) -> Greeting {
    Greeting::parse(&mut Reader::new(&sent.body), false).expect("a greeting")
}

fn challenge(session: u64, cookie: u64, epoch: u64) -> Vec<u8> {
    packet(Header::new(PacketKind::Challenge, session), |out| {
        out.extend(cookie.to_be_bytes());
        out.extend(epoch.to_be_bytes());
    })
}

fn welcome(session: u64, greeting: &Greeting) -> Vec<u8> {
    packet(Header::new(PacketKind::Welcome, session), |out| greeting.emit(out))
}

fn of_id(kind: PacketKind, session: u64, word: u64) -> Vec<u8> {
    packet(Header::new(kind, session), |out| out.extend(word.to_be_bytes()))
}

/// A set-up under way goes on, whatever they claim to answer.
pub fn answers_hellos_it_did_not_see() {
    let mut victim = Victim::new("10.0.0.1:1", |_| {});
    let name = at(1, 9);
    let sent = victim.posts(name, 100);
    let ours = greeting(only(&sent, PacketKind::Hello).expect("it says hello"));
    for number in 1..=1000 {
        let session = guess(number);
        assert_ne!(session, ours.session);
        let theirs = greeting_of(2 + number, name);
        for lie in [challenge(session, 7, 2 + number), welcome(session, &theirs)] {
            assert!(victim.takes(name, &lie).is_empty(), "nobody answers");
        }
    }
    assert_eq!(victim.dropped(DropReason::UnknownSession), 2000);
    // Even who knows the id cannot begin without having been asked with a cookie of its own.
    assert!(victim.takes(name, &welcome(ours.session, &greeting_of(99, name))).is_empty());
    assert_eq!(victim.dropped(DropReason::Cookie), 1);
    let sent = victim.takes(name, &challenge(ours.session, 7, 5));
    let again = greeting(only(&sent, PacketKind::Hello).expect("the peer's challenge"));
    assert_eq!(again.cookie, 7);
    let sent = victim.takes(name, &welcome(again.session, &greeting_of(5, name)));
    assert!(only(&sent, PacketKind::Data).is_some(), "the message goes out");
}

/// A session stands, whatever they say of its end.
pub fn ends_sessions_it_does_not_know() {
    let mut victim = Victim::new("10.0.0.1:1", |_| {});
    let honest = greeting_from(at(1, 9));
    let theirs = enter(&mut victim, &mut honest.clone()).expect("an honest peer");
    // What a probe tells to whoever has the peer's port by now.
    victim.posts(honest.name, 8);
    let probes = victim.waits(200 * MILLISECOND);
    let probe = only(&probes, PacketKind::Probe).expect("the peer is silent");
    let asker = Asker::parse(&mut Reader::new(&probe.body), false).expect("an asker").id;
    for number in 1..=1000 {
        for kind in [PacketKind::Reset, PacketKind::GoodbyeAck] {
            for session in [guess(number), asker, theirs.session] {
                let lie = of_id(kind, session, honest.session ^ number << 30);
                assert!(victim.takes(at(2, 1), &lie).is_empty(), "nobody answers");
            }
        }
    }
    let dropped = [DropReason::UnknownSession, DropReason::WrongState].map(|r| victim.dropped(r));
    assert_eq!(dropped, [2000, 4000]);
    // A confirmation of a goodbye that nobody said, and a repeated id where nobody begins.
    victim.takes(at(2, 1), &of_id(PacketKind::GoodbyeAck, asker, honest.session));
    victim.takes(at(2, 1), &of_id(PacketKind::Reset, theirs.session, theirs.session));
    assert_eq!(victim.dropped(DropReason::WrongState), 4002);
    assert_eq!((victim.engine.stats().sessions_failed, victim.host.ended), (0, 0));
    victim.takes(at(2, 1), &of_id(PacketKind::Reset, asker, honest.session));
    assert_eq!(victim.engine.stats().sessions_failed, 1, "the true one ends it");
}

/// Sizes, acknowledgements and data in sessions that they do not know.
pub fn speaks_in_sessions_it_does_not_know() {
    let mut victim = Victim::new("10.0.0.1:1", |_| {});
    let theirs = enter(&mut victim, &mut greeting_from(at(1, 9))).expect("an honest peer");
    let before = *victim.engine.stats();
    for number in 1..=1000 {
        let session = guess(number);
        assert_ne!(session, theirs.session);
        let size = |kind| {
            packet(Header::new(kind, session), |out| {
                out.extend(1u16.to_be_bytes());
                out.extend(1400u16.to_be_bytes());
            })
        };
        let ack = packet(Header::new(PacketKind::Ack, session), |out| {
            raise(7, 7).emit(out);
            emit_sections(out, 7, [], &[], &[]);
        });
        let data = announcement(session, 0);
        for lie in [size(PacketKind::SizeProbe), size(PacketKind::SizeAnswer), ack, data] {
            assert!(victim.takes(at(2, 1), &lie).is_empty(), "nobody answers");
        }
    }
    assert_eq!(victim.dropped(DropReason::UnknownSession), 4000);
    let after = victim.engine.stats();
    assert_eq!((after.rx_data, after.rx_control), (before.rx_data, before.rx_control));
}

/// Cookies of others, of before, and guessed ones open nothing.
pub fn shows_cookies_that_are_not_its_own() {
    let mut victim = Victim::new("10.0.0.1:1", |_| {});
    let ask = |victim: &mut Victim, greeting: &Greeting| -> u64 {
        let sent = victim.takes(greeting.name, &hello(greeting));
        let challenge = only(&sent, PacketKind::Challenge).expect("a question for a proof");
        assert!(only(&sent, PacketKind::Welcome).is_none(), "it got in");
        u64::from_be_bytes(challenge.body[..8].try_into().expect("a cookie"))
    };
    let mine = greeting_from(at(1, 9));
    let cookie = ask(&mut victim, &mine);
    let other_session = Greeting { session: mine.session + 1, ..mine };
    let other_epoch = Greeting { epoch: 2, ..mine };
    let other_port = greeting_from(at(1, 10));
    let other_address = greeting_from(at(2, 9));
    for other in [other_session, other_epoch, other_port, other_address] {
        ask(&mut victim, &Greeting { cookie, ..other });
    }
    for number in 1..=500 {
        ask(&mut victim, &Greeting { cookie: guess(number) | number, ..mine });
    }
    victim.waits(17 * SECOND);
    ask(&mut victim, &Greeting { cookie, ..mine });
    assert_eq!(victim.dropped(DropReason::Cookie), 505);
    assert_eq!((victim.engine.peer_places(), victim.engine.stats().sessions_opened), (0, 0));
    assert!(enter(&mut victim, &mut mine.clone()).is_some(), "its own, in time, is good");
}

/// Reports by ICMP, which anybody can make up, while the peer answers.
pub fn says_by_icmp_that_nobody_listens() {
    let mut victim = Victim::new("10.0.0.1:1", |_| {});
    let honest = greeting_from(at(1, 9));
    let theirs = enter(&mut victim, &mut honest.clone()).expect("an honest peer");
    let mut answered = 0;
    for round in 0..400 {
        if round % 40 == 0 {
            victim.posts(honest.name, 8);
        }
        for _ in 0..100 {
            victim.engine.handle_unreachable(honest.name);
            victim.engine.handle_unreachable(at(2, 1));
        }
        for probe in victim.waits(10 * MILLISECOND) {
            if probe.h.kind == PacketKind::Probe {
                answered += 1;
                let ack = packet(Header::new(PacketKind::Ack, theirs.session), |out| {
                    raise(probe.h.psn, probe.h.psn).emit(out);
                    emit_sections(out, probe.h.psn, [], &[], &[]);
                });
                victim.takes(honest.name, &ack);
            }
        }
    }
    assert!(answered >= 10, "{answered} probes");
    assert_eq!((victim.host.ended, victim.engine.stats().sessions_failed), (10, 0));
    // Nor do they end a set-up: the peer may start later.
    let late = at(3, 1);
    victim.posts(late, 8);
    for _ in 0..100 {
        (0..100).for_each(|_| victim.engine.handle_unreachable(late));
        victim.waits(10 * MILLISECOND);
    }
    assert_eq!(victim.engine.stats().sessions_failed, 0);
}

/// A packet of each kind but acknowledgements, to the writer of this greeting's peer, in the session `theirs`.
fn of_other_kinds(theirs: u64, honest: &Greeting) -> Vec<Vec<u8>> {
    let asker = Asker { id: honest.asker, name: honest.name, key: None };
    let size = |kind| {
        packet(Header::new(kind, theirs), |out| {
            out.extend(1u16.to_be_bytes());
            out.extend(0u16.to_be_bytes());
        })
    };
    vec![
        announcement(theirs, 0),
        packet(Header::new(PacketKind::Probe, theirs), |out| asker.emit(out)),
        packet(Header::new(PacketKind::Goodbye, theirs), |out| {
            asker.emit(out);
            nothing_received().emit(out);
        }),
        hello(&greeting_from(at(1, 10))),
        challenge(theirs, 7, 1),
        welcome(theirs, honest),
        of_id(PacketKind::Reset, honest.asker, honest.session),
        of_id(PacketKind::GoodbyeAck, honest.asker, honest.session),
        of_id(PacketKind::Version, theirs, 0),
        size(PacketKind::SizeProbe),
        size(PacketKind::SizeAnswer),
    ]
}

/// All kinds of packets without a proof, to an endpoint with a key.
pub fn has_no_key(keys: Arc<dyn Keys>) {
    let mut victim = Victim::new("10.0.0.1:1", |c| c.keys = keys.into());
    let me = greeting_from(at(1, 9));
    for number in 1..=100 {
        for bytes in of_other_kinds(guess(number), &me) {
            let sent = victim.takes(me.name, &bytes);
            let asks = Header::parse(&bytes).is_ok_and(|h| h.kind == PacketKind::Hello);
            assert_eq!(sent.len(), usize::from(asks), "a hello alone is answered");
            for answer in sent {
                assert!(answer.h.kind == PacketKind::Version && answer.len_bytes <= bytes.len());
            }
        }
    }
    // All but the notices of a version are of one without a key.
    assert_eq!(victim.dropped(DropReason::Version), 1000);
    assert_eq!(victim.dropped(DropReason::UnknownSession), 100);
    assert_eq!(victim.engine.stats().rx_control + victim.engine.stats().rx_data, 0);
    assert!(enter(&mut victim, &mut me.clone()).is_none(), "it gets no session");
    assert!(!super::announce(&mut victim, me.name));
    assert_eq!((victim.engine.peer_places(), victim.engine.stats().sessions_opened), (0, 0));
}

/// Other kinds than acknowledgements in frames of the information path.
pub fn sends_other_kinds_as_frames() {
    let mut victim = Victim::new("10.0.0.1:1", |c| c.info_path = true);
    let honest = greeting_from(at(1, 9));
    let theirs = enter(&mut victim, &mut honest.clone()).expect("an honest peer");
    let frame = |victim: &mut Victim, bytes: &[u8]| {
        let meta = RxMeta { ecn: Ecn::NotEct, trimmed: false, hold_ns: 0, from: honest.name };
        let (now, before) = (victim.now, victim.engine.stats().drops.iter().sum::<u64>());
        let taken = victim.engine.handle_frame(now, &meta, bytes, &mut victim.host);
        let dropped = victim.engine.stats().drops.iter().sum::<u64>() - before;
        assert!(victim.sends().is_empty(), "nothing is answered");
        assert_eq!(dropped, u64::from(!taken), "each is counted");
        taken
    };
    let mut others = of_other_kinds(theirs.session, &honest);
    // Of an unknown session, damaged, and nonsense.
    others.push(packet(Header::new(PacketKind::Ack, guess(1)), |out| {
        nothing_received().emit(out);
        emit_sections(out, 7, [], &[], &[]);
    }));
    others.extend([vec![], vec![0; 3], vec![0xff; 100]]);
    assert!(others.iter().all(|other| !frame(&mut victim, other)), "none is taken");
    let stats = victim.engine.stats();
    assert_eq!((stats.rx_data, stats.sessions_opened, stats.sessions_failed), (0, 1, 0));
    let ack = packet(Header::new(PacketKind::Ack, theirs.session), |out| {
        raise(7, 7).emit(out);
        emit_sections(out, 7, [], &[], &[]);
    });
    assert!(frame(&mut victim, &ack), "an acknowledgement is");
}

/// Names of many hosts in hellos, as a flood does.
pub fn floods_with_hellos() {
    let mut victim = Victim::new("10.0.0.1:1", |_| {});
    let (mut answers, mut asked) = (0, 0_u64);
    for host in 1..=200 {
        for port in 1..=50 {
            let name = SocketAddr::from(([10, 9, host, 1], port));
            answers += victim.takes(name, &hello(&greeting_from(name))).len();
            asked += 1;
        }
    }
    assert!(answers as u64 <= asked);
    let stats = victim.engine.stats();
    assert_eq!(stats.tx_challenges + stats.answers_withheld, asked, "each is counted");
    assert_eq!(victim.engine.peer_places(), 0, "and none makes a peer");
}
