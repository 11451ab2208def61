//! Worlds of a job with a key, and attacks on them that need more than random runs (protocol.md §11).

use super::ledger::Rules;
use super::net::{Datagram, Fate};
use super::nonces::WatchedKeys;
use super::script::{PATIENCE_NS, world};
use super::sim::World;
use erd_rd::DropReason;
use erd_rd::keys::{KeySet, Keys, Loose, TRAILER_BYTES};
use erd_rd::units::MILLISECOND;
use erd_rd::wire::header::{HEADER_BYTES, Header, KEYED_VERSION, PacketKind, seal};
use erd_rd::wire::setup::Greeting;
use erd_rd::wire::{NAME_BYTES, Reader};
use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

/// Two nodes of a job with a key, whose operations must not fail.
pub fn pair(hides: bool, phase_bits: u32) -> (World, Arc<WatchedKeys>) {
    let keys = Arc::new(WatchedKeys::new(1, hides, phase_bits));
    let w = world(2, Rules::default(), |s| s.config.keys = KeySet::one(keys.clone()));
    (w, keys)
}

/// Packets that all nodes dropped for a reason.
pub fn drops(w: &World, reason: DropReason) -> u64 {
    w.all_stats().iter().map(|stats| stats.drops[reason as usize]).sum()
}

/// Sends messages of these lengths both ways between the first two nodes, and waits for them.
pub fn talk(w: &mut World, lengths: &[u64]) {
    for &len_bytes in lengths {
        for (from, to) in [(0, 1), (1, 0)] {
            w.want(to, len_bytes);
            w.post(from, to, len_bytes);
        }
    }
    w.settle(PATIENCE_NS);
}

/// Each datagram of a session comes again, later.
///
/// # Panics
/// If one is taken twice.
pub fn replays() {
    let (mut w, _) = pair(true, 22);
    talk(&mut w, &[100]);
    w.run_for(10 * MILLISECOND);
    let copies = Rc::new(Cell::new(0));
    let made = Rc::clone(&copies);
    w.net.filter = Some(Box::new(move |_, _| {
        made.set(made.get() + 1);
        Fate::Twice(3 * MILLISECOND)
    }));
    talk(&mut w, &[100, 1 << 20]);
    w.net.filter = None;
    w.run_for(30 * MILLISECOND);
    w.ledger.judge_end();
    assert!(copies.get() > 1000);
    assert_eq!(drops(&w, DropReason::Replayed), copies.get());
}

/// A process with keys of two jobs in its second and third place, and one of each job.
///
/// # Panics
/// If a scripted world cannot be made.
pub fn two_jobs() -> (World, [Arc<WatchedKeys>; 2]) {
    let keys = [1, 2].map(|byte| Arc::new(WatchedKeys::new(byte, true, 22)));
    let mut node = 0;
    let w = world(3, Rules::default(), |s| {
        let own = |at: usize| Some(Arc::clone(&keys[at]) as Arc<dyn Keys>);
        s.config.keys = match node {
            0 => KeySet::new([None, own(0), own(1)]),
            at => KeySet::new([own(at - 1)]),
        };
        node += 1;
    });
    (w, keys)
}

/// A packet outside a session, as the owner of a key writes it (protocol.md §11.2).
fn proven(key: &dyn Keys, kind: PacketKind, session: u64, body: &[u8], said: Said<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let head = |s_len: usize| Header { s_len: s_len as u16, ..Header::new(kind, session) };
    let write = |bytes: &mut Vec<u8>, s_len| {
        bytes.clear();
        head(s_len).emit(bytes);
        bytes[0] = bytes[0] & 0x8f | KEYED_VERSION << 4;
        bytes.extend_from_slice(body);
    };
    write(&mut bytes, body.len());
    let Said { writer, reader, question } = said;
    let proof = key.prove(&Loose { packet: &bytes, writer, reader, question });
    write(&mut bytes, body.len() + TRAILER_BYTES);
    bytes.extend(key.id().into_iter().chain(proof));
    seal(&mut bytes, 0, crc32c::crc32c_append);
    bytes
}

/// The parts of a proof that are not in its packet.
#[derive(Clone, Copy)]
struct Said<'a> {
    writer: SocketAddr,
    reader: SocketAddr,
    question: &'a [u8],
}

/// A member of one job, who sees all packets, answers in the name of a member of another job. Both jobs' keys are those of
/// the process that asks.
///
/// # Panics
/// If an answer is taken.
pub fn another_jobs_member() {
    let (mut w, [_, own]) = two_jobs();
    let (seen, to_peer) = (Rc::new(RefCell::new(None)), Rc::new(Cell::new(0)));
    let (hello, session) = (Rc::clone(&seen), Rc::clone(&to_peer));
    w.net.filter = Some(Box::new(move |datagram, h| {
        if h.kind == PacketKind::Hello && datagram.from == 0 {
            hello.borrow_mut().get_or_insert_with(|| datagram.clone());
        }
        if h.kind == PacketKind::Data && datagram.from == 0 {
            session.set(h.session);
        }
        Fate::Pass
    }));
    w.want(1, 100);
    w.post(0, 1, 100);
    w.run_for(MILLISECOND / 10);
    let asked = seen.borrow().clone().expect("a hello went out");
    let greeting =
        Greeting::parse(&mut Reader::new(&greeting_of(&asked.bytes)), true).expect("a greeting");
    let random = greeting.random.expect("it has a key");
    let names = [0, 1].map(|node| w.nodes[node].setup.config.name);
    let said = |question| Said { writer: names[1], reader: names[0], question };
    let cookie = [[7; 8], 9_u64.to_be_bytes()].concat();
    let challenge =
        proven(&*own, PacketKind::Challenge, greeting.session, &cookie, said(&random[..]));
    let answer = |bytes| Datagram { from: 1, to: 0, bytes, ..asked.clone() };
    w.inject(answer(challenge));
    w.settle(PATIENCE_NS);
    let word = to_peer.get().to_be_bytes();
    let said = Said { writer: names[1], reader: names[0], question: &[] };
    w.inject(answer(proven(&*own, PacketKind::Reset, greeting.asker, &word, said)));
    w.want(1, 100);
    w.post(0, 1, 100);
    w.settle(PATIENCE_NS);
    w.ledger.judge_end();
    assert_eq!(drops(&w, DropReason::OtherKey), 2);
    assert_eq!((w.stats(0).sessions_opened, w.stats(0).sessions_failed), (1, 0));
}

/// The body of a hello with a key, without the key's id and proof.
fn greeting_of(hello: &[u8]) -> Vec<u8> {
    let at = hello.len() - NAME_BYTES - TRAILER_BYTES;
    [&hello[HEADER_BYTES..at], &hello[hello.len() - NAME_BYTES..]].concat()
}
