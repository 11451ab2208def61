//! A job with a key (protocol.md §11): what it keeps, whom it keeps out, and what it says to them.

#[path = "../../../rd/tests/intruder/mod.rs"]
mod intruder;

use erd_port::udp::{NetError, Unreachable};
use erd_rd::keys::{KeySet, Keys};
use erd_rd::units::{MILLISECOND, SECOND};
use erd_rd::wire::header::{HEADER_BYTES, Header, KEYED_VERSION, PacketKind, VERSION, seal};
use erd_rd::wire::setup::VersionNotice;
use erd_rd::{DropReason, Ecn, KeyMismatch, OpError, RxMeta};
use erd_world::keyed::{self, drops, talk};
use erd_world::ledger::{Life, Rules};
use erd_world::memory::{Plan, What, Wrong};
use erd_world::net::{Datagram, Fate};
use erd_world::nonces::WatchedKeys;
use erd_world::pattern;
use erd_world::script::{ANY_FAILURE, NO_FAILURE, PATIENCE_NS, world};
use erd_world::sim::{Action, World};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

fn request(to: usize, what: What, len_bytes: u64) -> Plan {
    let (at, stretches, wrong) = (0, 1, Wrong::No);
    Plan { to, what, len_bytes, at, stretches, wrong, fence: false, data: false }
}

#[test]
fn everything_arrives_and_nothing_is_repaired() {
    for hides in [false, true] {
        let (mut w, keys) = keyed::pair(hides, 22);
        talk(&mut w, &[0, 1, 100, 1400, 5_000, 60_000, 1 << 20]);
        for len_bytes in [8, 1_000, 300_000] {
            w.rma(0, &request(1, What::Write, len_bytes));
            w.rma(1, &request(0, What::Read, len_bytes));
        }
        w.settle(PATIENCE_NS);
        w.ledger.judge_end();
        assert!(keys.packets() > 1000 && keys.secrets() == 2, "{keys:?}");
        for stats in w.all_stats() {
            assert_eq!((stats.rtx_nack, stats.rtx_probe), (0, 0));
            assert_eq!(stats.drops.iter().sum::<u64>(), 0, "{stats:?}");
        }
    }
}

#[test]
fn a_process_of_two_jobs_talks_with_both() {
    let (mut w, _) = keyed::two_jobs();
    for (from, to) in [(0, 1), (1, 0), (0, 2), (2, 0)] {
        w.want(to, 100_000);
        w.post(from, to, 100_000);
    }
    w.settle(PATIENCE_NS);
    w.ledger.judge_end();
    assert!(w.all_stats().iter().all(|stats| stats.drops.iter().sum::<u64>() == 0));
    assert_eq!(w.all_stats()[0].sessions_opened, 2);
}

#[test]
fn a_member_of_one_job_is_nobody_in_another() {
    keyed::another_jobs_member();
}

/// Whether a datagram of a message of 1 MiB shows a part of it.
fn shows(hides: bool) -> bool {
    let (mut w, _) = keyed::pair(hides, 22);
    let shown = Rc::new(Cell::new(false));
    let seen = Rc::clone(&shown);
    w.net.filter = Some(Box::new(move |datagram, h| {
        let mut part = [0; 32];
        pattern::fill(0, u64::from(h.s_offset) + 64, &mut part);
        seen.set(seen.get() || datagram.bytes.windows(32).any(|window| window == part));
        Fate::Pass
    }));
    w.want(1, 1 << 20);
    w.post(0, 1, 1 << 20);
    w.settle(PATIENCE_NS);
    shown.get()
}

#[test]
fn payload_can_be_read_on_the_wire_only_where_that_was_chosen() {
    assert_eq!((shows(false), shows(true)), (true, false));
}

/// One side's wish binds both.
#[test]
fn payload_is_hidden_if_either_side_wants_that() {
    for hider in [0, 1] {
        let mut node = 0;
        let mut w = world(2, NO_FAILURE, |s| {
            s.config.keys = KeySet::one(Arc::new(WatchedKeys::new(1, node == hider, 22)));
            node += 1;
        });
        let shown = Rc::new(Cell::new(0));
        let seen = Rc::clone(&shown);
        w.net.filter = Some(Box::new(move |datagram, h| {
            let mut part = [0; 32];
            pattern::fill(0, u64::from(h.s_offset) + 64, &mut part);
            let shows = datagram.bytes.windows(32).any(|window| window == part);
            seen.set(seen.get() + u32::from(shows));
            Fate::Pass
        }));
        w.want(1, 1 << 18);
        w.post(0, 1, 1 << 18);
        w.settle(PATIENCE_NS);
        assert_eq!(shown.get(), 0);
    }
}

/// What two nodes with these keys hear that send to each other: the error, and why the other's hellos were refused.
fn errors(keys: [Option<u8>; 2]) -> [(OpError, KeyMismatch); 2] {
    let mut keys = keys.into_iter();
    let mut w = world(2, Rules { forged: true, ..NO_FAILURE }, |s| {
        let key = keys.next().expect("two nodes");
        let key = key.map(|byte| Arc::new(WatchedKeys::new(byte, true, 22)) as Arc<dyn Keys>);
        s.config.keys = KeySet::new([key]);
    });
    w.want(1, 100);
    w.want(0, 100);
    let sends = [w.post(0, 1, 100), w.post(1, 0, 100)];
    w.run_for(900 * MILLISECOND);
    let has_key = |w: &World, node: usize| !w.nodes[node].setup.config.keys.is_empty();
    for (node, send) in sends.into_iter().enumerate() {
        assert!(!has_key(&w, node) || w.outcome(send).is_none(), "nobody proves such an answer");
    }
    w.settle(PATIENCE_NS);
    assert!(w.all_stats().iter().all(|stats| stats.sessions_opened == 0));
    assert!(drops(&w, DropReason::OtherKey) + drops(&w, DropReason::Version) > 0);
    [0, 1].map(|node| {
        let told = w.ledger.refused.remove(&Life { node, incarnation: 0 }).expect("it was told");
        let (other, why) = (w.nodes[1 - node].name, told[0].1);
        assert!(told.iter().all(|told| *told == (other, why)), "{told:?}");
        let error = w.outcome(sends[node]).expect("it ended").expect_err("it failed");
        (error, why)
    })
}

#[test]
fn who_has_another_key_or_none_is_a_stranger_and_both_hear_why() {
    let differ = (OpError::KeysDiffer, KeyMismatch::PeerHasAnother);
    assert_eq!(errors([Some(1), Some(2)]), [differ; 2]);
    let [keyed, open] = errors([Some(1), None]);
    assert_eq!(keyed, (OpError::PeerHasNoKey, KeyMismatch::PeerHasNone));
    assert_eq!(open, (OpError::PeerVersion(KEYED_VERSION), KeyMismatch::PeerHasOne));
}

/// A version that this side does not know says nothing of keys.
#[test]
fn a_hello_of_another_version_is_not_refused_for_its_key() {
    let (mut w, _) = keyed::pair(true, 22);
    let hello = Rc::new(RefCell::new(None));
    let seen = Rc::clone(&hello);
    w.net.filter = Some(Box::new(move |datagram, h| {
        if h.kind == PacketKind::Hello {
            seen.borrow_mut().get_or_insert_with(|| datagram.clone());
        }
        Fate::Pass
    }));
    talk(&mut w, &[100]);
    let mut hello = hello.take().expect("a hello went out");
    hello.bytes[0] = hello.bytes[0] & 0x8f | 7 << 4;
    seal(&mut hello.bytes, 0, crc32c::crc32c_append);
    w.inject(hello);
    w.run_for(10 * MILLISECOND);
    assert_eq!(w.all_stats().iter().map(|stats| stats.tx_version_refusals).sum::<u64>(), 1);
    assert!(w.ledger.refused.is_empty(), "{:?}", w.ledger.refused);
}

/// A notice that nobody can prove, to whoever sent this hello.
fn notice(hello: &Datagram, spoken: u8) -> Datagram {
    let session = hello.bytes[HEADER_BYTES + 4..][..8].try_into().map(u64::from_be_bytes).unwrap();
    let mut bytes = Vec::new();
    Header { s_len: 8, ..Header::new(PacketKind::Version, session) }.emit(&mut bytes);
    VersionNotice { spoken, refused: KEYED_VERSION }.emit(&mut bytes);
    seal(&mut bytes, 0, crc32c::crc32c_append);
    Datagram { from: hello.to, to: hello.from, bytes, ..hello.clone() }
}

/// A lie ends no set-up, and delays none.
#[test]
fn a_notice_that_nobody_can_prove_does_not_end_a_set_up() {
    for spoken in [VERSION, KEYED_VERSION, 7] {
        let (mut w, _) = keyed::pair(true, 22);
        let hello = Rc::new(RefCell::new(None));
        let seen = Rc::clone(&hello);
        w.net.filter = Some(Box::new(move |datagram, h| {
            if h.kind == PacketKind::Hello && seen.borrow().is_none() {
                seen.replace(Some(datagram.clone()));
            }
            Fate::Pass
        }));
        w.want(1, 100);
        let send = w.post(0, 1, 100);
        w.run_until(MILLISECOND, |_| hello.borrow().is_some());
        let lie = notice(&hello.take().expect("a hello went out"), spoken);
        w.inject(lie);
        w.settle(PATIENCE_NS);
        assert_eq!(w.outcome(send), Some(Ok(())));
        assert_eq!(w.stats(0).drops.iter().sum::<u64>(), 0, "the notice was heard");
        assert!(w.all_stats().iter().all(|stats| stats.sessions_opened == 1));
    }
}

/// ICMP cannot be proven: a peer that is cut off for a while is not gone.
#[test]
fn icmp_errors_end_no_session() {
    let (mut w, _) = keyed::pair(true, 22);
    talk(&mut w, &[100]);
    let name = w.nodes[1].name;
    w.want(1, 100_000);
    let send = w.post(0, 1, 100_000);
    w.net.cut = Some((1, w.now + 500 * MILLISECOND));
    for _ in 0..40 {
        w.run_for(10 * MILLISECOND);
        w.nodes[0].hear(name, NetError::Unreachable(Unreachable::Port));
    }
    w.settle(PATIENCE_NS);
    assert_eq!(w.outcome(send), Some(Ok(())));
}

/// Over verbs a datagram that was taken is a sign of life of its writer: nothing that anybody can send may be one.
#[test]
fn only_a_proven_packet_of_a_session_has_a_writer() {
    let (mut w, _) = keyed::pair(true, 22);
    let seen = Rc::new(RefCell::new(Vec::new()));
    let all = Rc::clone(&seen);
    w.net.filter = Some(Box::new(move |datagram, h| {
        let caught = datagram.to == 1 && h.kind == PacketKind::Data;
        if datagram.to == 1 {
            all.borrow_mut().push((h.kind, datagram.bytes.clone()));
        }
        if caught { Fate::Drop } else { Fate::Pass }
    }));
    w.want(1, 100);
    w.post(0, 1, 100);
    let caught =
        |kind| seen.borrow().iter().find(|(is, _)| *is == kind).map(|(_, bytes)| bytes.clone());
    w.run_until(MILLISECOND, |_| caught(PacketKind::Data).is_some());
    let (data, hello) = (caught(PacketKind::Data), caught(PacketKind::Hello));
    let (data, hello) = (data.expect("a message"), hello.expect("a set-up"));
    let (now, writer) = (w.now, w.nodes[0].name);
    let meta = RxMeta { ecn: Ecn::NotEct, trimmed: false, hold_ns: 0, from: writer };
    let (node, ledger) = (&mut w.nodes[1], &mut w.ledger);
    let mut hand = |bytes: &[u8]| {
        node.call(now, ledger, |engine, view| {
            (engine.handle_packet(now, &meta, bytes, view), engine.writer_of(bytes))
        })
    };
    for at in [HEADER_BYTES, data.len() - 1] {
        let mut forged = data.clone();
        forged[at] ^= 1;
        assert!(!hand(&forged).0, "byte {at}");
    }
    assert_eq!(hand(&data), (true, Some(writer.into())));
    assert!(!hand(&data).0, "it came before");
    assert_eq!(hand(&hello).1, None, "anybody can send it on again");
    w.net.filter = None;
    w.settle(PATIENCE_NS);
}

/// What a key seals is of its own version, so that nobody takes it for another's.
#[test]
fn every_datagram_is_of_the_version_with_a_key() {
    let (mut w, _) = keyed::pair(true, 22);
    let others = Rc::new(Cell::new(0));
    let seen = Rc::clone(&others);
    w.net.filter = Some(Box::new(move |datagram, _| {
        let version = datagram.bytes[0] >> 4 & 7;
        seen.set(seen.get() + u32::from(version != KEYED_VERSION));
        Fate::Pass
    }));
    w.net.faults.loss = 0.1;
    talk(&mut w, &[0, 100, 5_000, 300_000]);
    w.close(0);
    w.run_for(SECOND);
    assert_eq!(others.get(), 0);
}

#[test]
fn secrets_change_and_no_counter_serves_twice() {
    for hides in [false, true] {
        let (mut w, keys) = keyed::pair(hides, 10);
        w.net.faults.loss = 0.02;
        w.net.links.jitter_ns = 50_000;
        talk(&mut w, &[4 << 20, 1 << 20]);
        w.ledger.judge_end();
        let phases = keys.packets() / 1024;
        assert!(phases > 6 && keys.secrets() >= phases, "{keys:?}");
    }
}

#[test]
fn a_replay_is_known_by_its_counter() {
    keyed::replays();
}

/// The attacks of `rd/tests/attacks.rs` and `strangers.rs` begin with a session, or with an answer.
#[test]
fn who_has_no_key_gets_no_session_and_no_answer_but_that() {
    for hides in [false, true] {
        intruder::blind::has_no_key(Arc::new(WatchedKeys::new(1, hides, 22)));
    }
}

/// Whatever an adversary makes of what it sees, nothing of it is taken: it can make neither side begin a session, end
/// one, or complete anything.
#[test]
fn nothing_of_an_adversary_is_taken() {
    for hides in [false, true] {
        let (mut w, _) = keyed::pair(hides, 22);
        w.net.faults.hostile = 0.7;
        w.net.faults.duplicate_delay_ns = 20 * MILLISECOND;
        for _ in 0..5 {
            talk(&mut w, &[0, 10, 2_000, 100_000]);
            w.run_for(700 * MILLISECOND);
        }
        w.calm();
        w.run_for(700 * MILLISECOND);
        w.ledger.judge_end();
        let forged = w.net.counts.forged;
        assert!(forged > 1_000, "{forged}");
        for stats in w.all_stats() {
            assert_eq!((stats.sessions_opened, stats.sessions_failed), (1, 0));
        }
    }
}

/// A new process at a peer's address cannot read what was sent to the one before, and tells so.
#[test]
fn a_restarted_process_is_found_by_its_reset() {
    for hides in [false, true] {
        let keys = Arc::new(WatchedKeys::new(1, hides, 22));
        let mut w = world(2, ANY_FAILURE, |s| s.config.keys = KeySet::one(keys.clone()));
        talk(&mut w, &[100]);
        w.act(Action::Kill(1));
        w.act(Action::Restart(1));
        let lost = w.post(0, 1, 100_000);
        let found = w.run_until(500 * MILLISECOND, |w| w.outcome(lost).is_some());
        assert!(found, "before the deadline");
        assert_eq!(w.outcome(lost), Some(Err(OpError::PeerRestarted)));
        assert!(w.stats(1).tx_resets > 0);
        w.drain(1);
        let after = w.post(0, 1, 100);
        w.settle(PATIENCE_NS);
        assert_eq!(w.outcome(after), Some(Ok(())));
    }
}

/// A packet of the set-up that is sent on to another member of the job proves nothing there, and its answer nothing at
/// the asker's.
#[test]
fn a_question_to_one_process_is_none_to_another() {
    let keys = Arc::new(WatchedKeys::new(1, true, 22));
    let mut w = world(3, NO_FAILURE, |s| s.config.keys = KeySet::one(keys.clone()));
    let hellos = Rc::new(RefCell::new(Vec::new()));
    let seen = Rc::clone(&hellos);
    w.net.filter = Some(Box::new(move |datagram, h| {
        if h.kind == PacketKind::Hello {
            seen.borrow_mut().push(datagram.clone());
        }
        Fate::Pass
    }));
    talk(&mut w, &[100]);
    let hellos = hellos.take();
    assert!(hellos.len() >= 2);
    for mut hello in hellos {
        hello.to = 2;
        w.inject(hello);
    }
    w.run_for(10 * MILLISECOND);
    let stats = w.stats(2);
    assert_eq!(stats.drops[DropReason::Forged as usize], stats.drops.iter().sum::<u64>());
    assert_eq!((stats.tx_challenges, stats.sessions_opened), (0, 0));
    assert!(stats.drops[DropReason::Forged as usize] >= 2);
}

/// A process dies before it got our welcome. An attacker sends its last hello on, again and again.
#[test]
fn a_hello_that_comes_again_is_no_sign_of_life() {
    for hides in [false, true] {
        let keys = Arc::new(WatchedKeys::new(1, hides, 22));
        let mut w = world(2, ANY_FAILURE, |s| s.config.keys = KeySet::one(keys.clone()));
        let hello = Rc::new(RefCell::new(None));
        let welcomes = Rc::new(Cell::new(0));
        let (seen, sent) = (Rc::clone(&hello), Rc::clone(&welcomes));
        w.net.filter = Some(Box::new(move |datagram, h| {
            if h.kind == PacketKind::Hello && datagram.from == 0 {
                seen.replace(Some(datagram.clone()));
            }
            let is_ours = datagram.from == 1 && h.kind != PacketKind::Challenge;
            sent.set(sent.get() + u32::from(is_ours && h.kind == PacketKind::Welcome));
            if is_ours { Fate::Drop } else { Fate::Pass }
        }));
        w.post(0, 1, 100);
        let opened = w.run_until(SECOND / 2, |w| w.stats(1).sessions_opened == 1);
        assert!(opened, "the hello with the cookie came");
        w.act(Action::Kill(0));
        let hello = hello.take().expect("a hello went out");
        let send = w.post(1, 0, 100);
        // The deadline is a second, and the cookie is good for longer than this.
        let deadline_ns = w.nodes[1].setup.config.peer_timeout_ns;
        let (begun, before) = (w.now, welcomes.get());
        while w.outcome(send).is_none() && w.now < begun + 5 * deadline_ns {
            w.inject(hello.clone());
            w.run_for(deadline_ns / 10);
        }
        assert_eq!(w.outcome(send), Some(Err(OpError::PeerTimeout)), "{:?}", w.stats(1));
        assert!(w.now < begun + 2 * deadline_ns, "{}", w.now - begun);
        assert!(welcomes.get() > before + 5, "each hello gets its welcome");
    }
}
