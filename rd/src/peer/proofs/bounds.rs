//! Packets of a session with a key, within bounds: the form of each length, the secret of each counter, and what a reader
//! takes in all short sequences, by the text of protocol.md §11.3 to §11.5 and §11.9. A phase has 16 counters here.

use super::tests::{End, ONE, OTHER, end, keys, open, pair, renew, seal};
use super::*;
use crate::bounded::{each_sequence, is_large};
use crate::keys::toy::Toy;
use crate::wire::header::Header;
use alloc::collections::BTreeSet;
use alloc::sync::Arc;

/// Counters of a phase, and so many at most beyond the greatest one taken.
const PHASE: u64 = 16;
/// Kinds of packets of a session, and whether they may be hidden.
const KINDS: [(PacketKind, bool); 6] = [
    (PacketKind::Data, true),
    (PacketKind::Ack, true),
    (PacketKind::Probe, false),
    (PacketKind::Goodbye, false),
    (PacketKind::SizeProbe, true),
    (PacketKind::SizeAnswer, true),
];

/// The secret of a phase of what the first end sends, in a session that began with this key.
fn secret(base: u8, phase: u64) -> Secret {
    let (first, _) = Toy(base).session(ONE, OTHER);
    (0..phase).fold(first, |secret, _| Toy(base).next(&secret))
}

/// The cipher of a counter, where the session goes on with another key or with its own.
fn cipher_of(base: u8, goes_on: u8, counter: u64) -> Box<dyn Cipher> {
    let secret = secret(base, counter / PHASE);
    let key = Toy(goes_on);
    key.cipher(&if base == goes_on { secret } else { key.renewed(&secret) })
}

/// The whole packet by definition.
fn sealed(cipher: &dyn Cipher, counter: u64, plain: &[u8], hides: bool) -> Vec<u8> {
    let mut bytes = plain.to_vec();
    bytes[0] = bytes[0] & 0x8f | 3 << 4;
    let (head, rest) = bytes.split_at_mut(32);
    let proof =
        if hides { cipher.hide(counter, head, rest) } else { cipher.prove(counter, head, rest) };
    bytes.extend(counter.to_be_bytes());
    bytes.extend(proof);
    bytes
}

/// A packet of this kind with a body of so many bytes, and an S_Len that says anything.
fn plain(kind: PacketKind, body_bytes: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    Header { s_len: 0xabcd, psn: 7, flags: 1, ..Header::new(kind, 9) }.emit(&mut bytes);
    bytes.extend((0..body_bytes).map(|at| at as u8 ^ 0x5a));
    bytes
}

/// The datagram is dropped for one of these reasons, and the reader is as before.
fn refuses(rx: &mut End, bytes: &[u8], reasons: &[DropReason], what: (PacketKind, usize)) {
    let taken = open(rx, bytes);
    let reason = taken.expect_err("nobody has sealed it");
    assert!(reasons.contains(&reason), "{reason:?} for {what:?} of {} bytes", bytes.len());
    assert!(rx.window.end() == 0 && !rx.is_awake(), "{what:?} of {} bytes", bytes.len());
}

#[test]
fn every_length_has_one_form_and_every_change_and_part_is_dropped() {
    const COUNTED: [DropReason; 2] = [DropReason::Forged, DropReason::Replayed];
    let longest = if is_large() { 100 } else { 17 };
    let values: Vec<u8> =
        if is_large() { (1..=255).collect() } else { [1, 2, 3, 0x80, 0xff].to_vec() };
    for (hides, (kind, may_hide)) in [false, true].into_iter().flat_map(|h| KINDS.map(|k| (h, k))) {
        for body_bytes in 0..=longest {
            let (mut tx, mut rx) = pair(hides);
            let plain = plain(kind, body_bytes);
            // Other packets may stand before it.
            let mut bytes = [&b"other"[..], &plain].concat();
            tx.proofs.seal(&tx.keys, &mut bytes, 5);
            let whole = bytes.split_off(5);
            assert_eq!(bytes, b"other");
            let expected = sealed(&*cipher_of(1, 1, 0), 0, &plain, hides && may_hide);
            assert_eq!(whole, expected, "{kind:?} of {body_bytes} bytes");
            for len in 0..whole.len() {
                let is_short = len < HEADER_BYTES + TRAILER_BYTES;
                let short = [DropReason::Malformed];
                let reasons = if is_short { &short[..] } else { &COUNTED };
                refuses(&mut rx, &whole[..len], reasons, (kind, len));
            }
            refuses(&mut rx, &[&whole[..], &[0]].concat(), &COUNTED, (kind, whole.len()));
            let counter = whole.len() - TRAILER_BYTES..whole.len() - PROOF_BYTES;
            for (at, bits) in (0..whole.len()).flat_map(|at| values.iter().map(move |b| (at, *b))) {
                let mut changed = whole.clone();
                changed[at] ^= bits;
                let told =
                    changed[counter.clone()].iter().fold(0, |n, byte| n << 8 | u64::from(*byte));
                let reason = if told < PHASE { DropReason::Forged } else { DropReason::Replayed };
                refuses(&mut rx, &changed, &[reason], (kind, at));
            }
            let mut out = Vec::new();
            let opened = rx.proofs.open(&rx.keys, &whole, &mut out).map(<[u8]>::to_vec);
            let version = (plain[0] & 0x8f) | 3 << 4;
            assert_eq!(opened, Ok([&[version], &plain[1..]].concat()), "{kind:?}");
            assert_eq!(open(&mut rx, &whole), Err(DropReason::Replayed));
        }
    }
}

#[test]
fn each_counter_is_sealed_under_the_secret_of_its_phase_and_the_key_of_its_time() {
    let packets = if is_large() { 5 * PHASE } else { 3 * PHASE + 2 };
    // When the sender rests, and when it goes over to another key, if it does.
    let rests = 0..packets;
    let renewals = || (0..packets).step_by(if is_large() { 1 } else { 3 }).chain([packets]);
    for (rest, renewal) in rests.flat_map(|rest| renewals().map(move |renewal| (rest, renewal))) {
        let (mut tx, _) = pair(true);
        for counter in 0..packets {
            if counter == rest {
                tx.proofs.rest();
            }
            if counter == renewal {
                renew(&mut tx, 2);
                tx.proofs.peer_has(&tx.keys, [2; 8]);
            }
            let goes_on = if counter >= renewal { 2 } else { 1 };
            let mut bytes = plain(PacketKind::Data, 3);
            let expected = sealed(&*cipher_of(1, goes_on, counter), counter, &bytes, true);
            tx.proofs.seal(&tx.keys, &mut bytes, 0);
            assert_eq!(bytes, expected, "{counter}, rest before {rest}, renewal before {renewal}");
        }
    }
}

/// What may happen to a reader.
#[derive(Clone, Copy, Debug)]
enum Call {
    /// The packet with this counter comes.
    Comes(u64),
    /// Somebody forges one.
    Forged(u64),
    /// The process gets the next key.
    Renew,
    /// The keys before the newest end.
    Retire,
    Rest,
}

/// Packets with the counters from 0 on: what was sealed, and the number of its key.
type Packets = Vec<(Vec<u8>, u8)>;

/// The packets of a session that begins with the first key, and goes over to others at these counters.
fn packets(count: u64, changes: &[u64]) -> Packets {
    let (mut tx, mut all, mut key) = (end(keys(1, None), 1, (ONE, OTHER), true), Vec::new(), 1);
    for counter in 0..count {
        if changes.contains(&counter) {
            key += 1;
            tx.keys.retire();
            renew(&mut tx, key);
            tx.proofs.peer_has(&tx.keys, [key; 8]);
        }
        all.push((seal(&mut tx, &[counter as u8]), key));
    }
    all
}

/// A reader by definition. Its keys have the numbers from 1 on.
#[derive(Clone, Debug)]
struct Reader {
    taken: BTreeSet<u64>,
    floor: u64,
    newest: u8,
    /// The key before the newest is valid.
    before: bool,
    /// The session goes on with this key, or begins with it.
    usual: u8,
    /// The peer may have begun with another valid key: its first packet tells.
    crossing: bool,
    /// Phases and keys of which a packet was taken since the last rest.
    seen: BTreeSet<(u64, u8)>,
}

impl Reader {
    fn end(&self) -> u64 {
        self.taken.last().map_or(0, |last| last + 1)
    }

    fn present(&self) -> u64 {
        self.end().saturating_sub(1) / PHASE
    }

    fn has(&self, key: u8) -> bool {
        key == self.usual || key == self.newest || self.before && key == self.newest - 1
    }

    /// The packet with this counter comes, and the reader takes it or not.
    fn comes(&mut self, counter: u64, key: u8, is: Result<(), DropReason>) -> bool {
        let is_old = counter < self.floor || self.taken.contains(&counter);
        let phase = counter / PHASE;
        if is_old || counter >= self.end() + PHASE || phase + 1 < self.present() {
            return is == Err(DropReason::Replayed);
        }
        let is_late = phase < self.present();
        if !self.has(key) {
            // Of the phase before the reader may have no cipher any more.
            return is == Err(DropReason::Forged) || is_late && is == Err(DropReason::Replayed);
        }
        if is.is_ok() {
            self.taken.insert(counter);
            self.seen.insert((phase, key));
            let changes = core::mem::take(&mut self.crossing) || key == self.newest;
            self.usual = if changes { key } else { self.usual };
            return true;
        }
        is_late && !self.seen.contains(&(phase, key))
    }

    /// A forgery with this counter comes.
    fn judges(&self, counter: u64, is: Result<(), DropReason>) -> bool {
        let is_old = counter < self.floor || self.taken.contains(&counter);
        let phase = counter / PHASE;
        match is {
            Err(DropReason::Replayed) => {
                is_old || counter >= self.end() + PHASE || phase < self.present()
            }
            // A counter beyond the window is replayed, without a cipher (protocol.md §11.4).
            Err(DropReason::Forged) => {
                !is_old && counter < self.end() + PHASE && phase + 1 >= self.present()
            }
            _ => false,
        }
    }
}

/// Makes the call on both, and compares.
fn call(rx: &mut End, model: &mut Reader, packets: &Packets, call: Call) -> bool {
    match call {
        Call::Comes(counter) => {
            let (bytes, key) = &packets[counter as usize];
            let is = open(rx, bytes);
            let whole = is.as_ref().is_ok_and(|body| body[..] != [counter as u8]);
            !whole && model.comes(counter, *key, is.map(drop))
        }
        Call::Forged(counter) => {
            let mut forged = packets[counter as usize].0.clone();
            forged[HEADER_BYTES] ^= 1;
            model.judges(counter, open(rx, &forged).map(drop))
        }
        Call::Renew => {
            let may = !model.before;
            model.newest += u8::from(may);
            model.before = true;
            rx.keys.renew(KeyIndex(0), Arc::new(Toy(model.newest))) == may
        }
        Call::Retire => {
            model.before = false;
            rx.keys.retire();
            true
        }
        Call::Rest => {
            model.seen.clear();
            model.floor = model.end();
            rx.proofs.rest();
            true
        }
    }
}

/// Tries all sequences of these calls behind those that come `first`.
fn each(calls: &[Call], depth: u32, first: &[Call], packets: &Packets, begin: (KeySet, u8, u8)) {
    let (keys, base, newest) = begin;
    each_sequence(calls, depth, |calls| {
        let mut rx = end(keys.clone(), base, (OTHER, ONE), true);
        let (taken, seen) = (BTreeSet::new(), BTreeSet::new());
        let (before, usual) = (keys.before(KeyIndex(0)).is_some(), base);
        let crossing = before;
        let mut model = Reader { taken, floor: 0, newest, before, usual, crossing, seen };
        for (nth, one) in first.iter().chain(calls).enumerate() {
            // The session ends then.
            if matches!(one, Call::Retire) && model.usual != model.newest {
                return;
            }
            let fits = call(&mut rx, &mut model, packets, *one);
            assert!(fits, "{one:?}, call {nth} of {first:?} and {calls:?}: {model:?}");
            assert_eq!(rx.window.end(), model.end(), "{calls:?}");
            let readings = rx.proofs.ciphers.as_ref().map_or(0, |ciphers| ciphers.rx.len());
            assert!(readings <= READINGS_MAX, "{readings} after {calls:?}");
        }
    });
}

#[test]
fn a_reader_takes_each_packet_once_of_the_phases_whose_secret_it_has() {
    let mut calls = [0, 1, 14, 15, 16, 17, 30, 31, 32, 33, 48].map(Call::Comes).to_vec();
    calls.extend([15, 16, 31, 32].map(Call::Forged));
    calls.push(Call::Rest);
    let depth = if is_large() { 5 } else { 3 };
    let (packets, advance) = (packets(4 * PHASE, &[]), [10, 20].map(Call::Comes));
    for first in [&advance[..0], &advance[..1], &advance] {
        each(&calls, depth, first, &packets, (keys(1, None), 1, 1));
    }
}

#[test]
fn a_reader_takes_what_is_under_a_key_that_is_valid_or_in_use() {
    let mut calls = [0, 7, 8, 15, 16, 23, 24, 31, 32].map(Call::Comes).to_vec();
    calls.extend([Call::Forged(8), Call::Forged(16), Call::Renew, Call::Retire, Call::Rest]);
    let depth = if is_large() { 5 } else { 3 };
    let packets = packets(3 * PHASE, &[8, 24]);
    let first = [Call::Renew, Call::Comes(8), Call::Retire, Call::Renew, Call::Comes(20)];
    for count in 0..=first.len() {
        each(&calls, depth, &first[..count], &packets, (keys(1, None), 1, 1));
    }
}

/// Where hellos cross while the key changes, the peer may have begun with either key.
#[test]
fn a_reader_finds_the_key_that_the_other_side_began_with() {
    let mut calls = [0, 1, 8, 15, 16, 31].map(Call::Comes).to_vec();
    calls.extend([Call::Forged(0), Call::Forged(15), Call::Retire, Call::Rest]);
    let depth = if is_large() { 5 } else { 4 };
    // One that stays with the first key, and one that goes over to the second, at once or later.
    for changes in [&[][..], &[0], &[8]] {
        for base in [1, 2] {
            each(&calls, depth, &[], &packets(3 * PHASE, changes), (keys(2, Some(1)), base, 2));
        }
    }
}
