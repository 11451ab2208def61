//! The proofs of a session's packets: counters, phases, and the window against replays (protocol.md §11.3 to §11.5).

use super::replay::ReplayWindow;
use crate::keys::{Cipher, KeyId, KeyRef, KeySet, Keys, PROOF_BYTES, Secret, TRAILER_BYTES, Turn};
use crate::mutants::{Mutant, mutant};
use crate::stats::DropReason;
use crate::units::KeyIndex;
use crate::wire::header::{HEADER_BYTES, KEYED_VERSION, PacketKind, set_version};
use crate::wire::put_name;
use crate::wire::setup::{FEATURE_HIDE, Greeting};
use alloc::boxed::Box;
use alloc::vec::Vec;

/// Counters for which the window is exact: twice the packets that all paths can hold.
const REPLAY_SPAN: u64 = 2 * crate::bitmap::BITS_MAX as u64;

/// One direction of a session.
struct Way {
    /// The secret of a phase: of the last packet sent, or of the greatest counter taken.
    secret: Secret,
    under: Under,
}

/// The keys of the job that a cipher follows from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Under {
    /// The one that the session began with, or [`Turn::PAST`] if that is long ago.
    base: Turn,
    /// The one that it goes on with (protocol.md §11.9).
    turn: Turn,
}

impl Under {
    const fn one(turn: Turn) -> Under {
        Under { base: turn, turn }
    }
}

/// See the module. A quiet session has nothing else of its keys.
pub(crate) struct Proofs {
    /// The place of the job's key.
    at: KeyIndex,
    hides: bool,
    /// The peer has the newest key, so what is sent from now on is under that.
    renews: bool,
    tx: Way,
    rx: Way,
    /// The counter of the next packet.
    sent: u64,
    window: ReplayWindow,
    /// While packets come and go.
    ciphers: Option<Box<Ciphers>>,
}

/// The ciphers in use.
#[derive(Default)]
struct Ciphers {
    /// Of the last packet sent.
    tx: Option<Box<dyn Cipher>>,
    /// Of packets to come: the usual one first. At most [`READINGS_MAX`].
    rx: Vec<Reading>,
    /// The secret of the phase after, once a packet claims to be of it.
    next: Option<Secret>,
    /// Until the first packet came: the secret of the peer's direction if it began with the other valid key.
    other: Option<(Secret, Turn)>,
}

/// What opens the packets of a phase.
struct Reading {
    phase: u64,
    under: Under,
    cipher: Box<dyn Cipher>,
}

/// The phase before, the present and the next, under as many keys as a packet may be.
const READINGS_MAX: usize = 3 * CANDIDATES_MAX;
/// Two keys that the peer may have begun with, and two that it may go on with.
const CANDIDATES_MAX: usize = 4;

// No counter that the window admits is of an earlier phase than the one before the present.
const _: () = assert!(REPLAY_SPAN <= 1 << crate::keys::PHASE_BITS);
const _: () = assert!(size_of::<Proofs>() + size_of::<Option<Box<Proofs>>>() <= 128);

/// What one side says of a session, which both derive the keys from.
fn part(g: &Greeting) -> Vec<u8> {
    let mut out = Vec::with_capacity(64);
    out.extend_from_slice(&g.session.to_be_bytes());
    out.extend_from_slice(&g.random.unwrap_or_default());
    out.extend_from_slice(&g.features.to_be_bytes());
    out.extend_from_slice(&g.epoch.to_be_bytes());
    for word in [g.incarnation, g.first_psn, g.first_order] {
        out.extend_from_slice(&word.to_be_bytes());
    }
    put_name(&mut out, g.name);
    out
}

/// The cipher of a phase with this secret; `None` if the key that it goes on with is not valid any more.
fn cipher(keys: &KeySet, at: KeyIndex, under: Under, secret: &Secret) -> Option<Box<dyn Cipher>> {
    if under.turn == under.base {
        return Some(keys.get(at)?.cipher(secret));
    }
    let key = keys.of(KeyRef { at, turn: under.turn })?;
    Some(key.cipher(&key.renewed(secret)))
}

impl Proofs {
    /// The keys of a session between the writers of these greetings, which begins with this key; `None` if it is not valid
    /// any more.
    pub(super) fn new(
        keys: &KeySet,
        used: KeyRef,
        ours: &Greeting,
        theirs: &Greeting,
    ) -> Option<Proofs> {
        let hides = (ours.features | theirs.features) & FEATURE_HIDE != 0;
        Proofs::of_parts(keys, used, (&part(ours), &part(theirs)), hides)
    }

    /// The same, from what both sides said.
    fn of_parts(
        keys: &KeySet,
        used: KeyRef,
        (ours, theirs): (&[u8], &[u8]),
        hides: bool,
    ) -> Option<Proofs> {
        let at = used.at;
        let secrets = |key: KeyRef| Some(keys.of(key)?.session(ours, theirs));
        let (tx, rx) = secrets(used)?;
        // Where hellos cross while the key changes, the peer may have begun with the other one.
        let valid = [keys.newest(at), keys.before(at)];
        let other = valid.into_iter().flatten().find(|key| *key != used);
        let other = other.and_then(|key| Some((secrets(key)?.1, key.turn)));
        let way = |secret| Way { secret, under: Under::one(used.turn) };
        Some(Proofs {
            at,
            hides,
            renews: false,
            tx: way(tx),
            rx: way(rx),
            sent: 0,
            window: ReplayWindow::default(),
            ciphers: other
                .map(|other| Box::new(Ciphers { other: Some(other), ..Ciphers::default() })),
        })
    }

    /// Forgets what can be derived again. All counters taken so far, and those between, count as taken.
    pub(super) fn rest(&mut self) {
        self.window.close();
        self.forget_ciphers();
    }

    fn forget_ciphers(&mut self) {
        let other = self.ciphers.take().and_then(|ciphers| ciphers.other);
        self.ciphers =
            other.map(|other| Box::new(Ciphers { other: Some(other), ..Ciphers::default() }));
    }

    /// True if it has more than a quiet session keeps.
    pub(super) fn is_awake(&self) -> bool {
        self.ciphers.as_ref().is_some_and(|own| own.tx.is_some() || !own.rx.is_empty())
    }

    /// The key that the session began with on this side.
    pub(super) fn base(&self) -> KeyRef {
        KeyRef { at: self.at, turn: self.tx.under.base }
    }

    /// The key that what is sent is under.
    pub(super) fn in_use(&self) -> KeyRef {
        KeyRef { at: self.at, turn: self.tx.under.turn }
    }

    /// True if both directions go on with the newest key.
    pub(crate) fn is_renewed(&self, keys: &KeySet) -> bool {
        let newest = keys.newest(self.at).map(|key| key.turn);
        [&self.tx, &self.rx].iter().all(|way| newest == Some(way.under.turn))
    }

    /// Notes that the peer has the key of this id, which it has proven.
    pub(crate) fn peer_has(&mut self, keys: &KeySet, id: KeyId) {
        let newest = keys.newest(self.at);
        self.renews |= newest.is_some_and(|newest| newest != self.in_use())
            && keys.get(self.at).is_some_and(|key| key.id() == id);
    }

    /// Seals the packet from `start` on, and appends its trailer.
    pub(super) fn seal(&mut self, keys: &KeySet, bytes: &mut Vec<u8>, start: usize) {
        let counter = self.sent;
        self.sent += u64::from(!mutant(Mutant::RepeatsACounter) || counter % 64 != 63);
        let key = keys.get(self.at).expect("a session's key is one of the endpoint's");
        let ciphers = self.ciphers.get_or_insert_default();
        if counter > 0 && phase(key, counter) != phase(key, counter - 1) {
            self.tx.secret = key.next(&self.tx.secret);
            ciphers.tx = None;
        }
        if (core::mem::take(&mut self.renews) || mutant(Mutant::RenewsUntold))
            && let Some(newest) = keys.newest(self.at)
            && newest.turn != self.tx.under.turn
        {
            self.tx.under = Under { base: Turn::PAST, turn: newest.turn };
            ciphers.tx = None;
        }
        let cipher = ciphers.tx.get_or_insert_with(|| {
            cipher(keys, self.at, self.tx.under, &self.tx.secret)
                .expect("a session whose key is not valid any more has ended")
        });
        set_version(&mut bytes[start], KEYED_VERSION);
        let hides = self.hides && may_hide(bytes[start]);
        let (head, rest) = bytes[start..].split_at_mut(HEADER_BYTES);
        let proof = match hides {
            true => cipher.hide(counter, head, rest),
            false => cipher.prove(counter, head, rest),
        };
        bytes.extend_from_slice(&counter.to_be_bytes());
        bytes.extend_from_slice(&proof);
    }

    /// The packet in a datagram, without its trailer, if its proof is right. With payload hidden, it stands in `out`.
    ///
    /// # Errors
    /// The reason for dropping the datagram. Then nothing has changed.
    pub(crate) fn open<'a>(
        &mut self,
        keys: &KeySet,
        bytes: &'a [u8],
        out: &'a mut Vec<u8>,
    ) -> Result<&'a [u8], DropReason> {
        let (packet, counter, proof) = split(bytes).ok_or(DropReason::Malformed)?;
        let key = keys.get(self.at).expect("a session's key is one of the endpoint's");
        let admits = self.window.admits(counter, 1 << key.phase_bits());
        if !admits && !mutant(Mutant::TakesReplays) {
            return Err(DropReason::Replayed);
        }
        let was_awake = self.is_awake();
        let hides = self.hides && may_hide(packet[0]);
        let sealed = Sealed { counter, packet, proof, hides };
        let wanted = phase(key, counter);
        let opened = self.open_under(keys, wanted, &sealed, out);
        let forged = mutant(Mutant::TakesForgeries).then_some(self.rx.under);
        let under = match (opened, forged) {
            (Ok(under), _) | (Err(_), Some(under)) => under,
            (Err(reason), None) => {
                if !was_awake {
                    // Whoever forges makes a quiet session keep nothing.
                    self.forget_ciphers();
                }
                return Err(reason);
            }
        };
        self.took(keys, wanted, under);
        self.window.open(REPLAY_SPAN);
        if admits {
            self.window.take(counter);
        }
        Ok(if hides { &out[..] } else { packet })
    }

    /// The phase of the greatest counter taken.
    fn rx_phase(&self, key: &dyn Keys) -> u64 {
        phase(key, self.window.end().saturating_sub(1))
    }

    /// The keys under which the packet's proof is right, of those that it may be under.
    ///
    /// # Errors
    /// The reason for dropping the packet.
    fn open_under(
        &mut self,
        keys: &KeySet,
        wanted: u64,
        sealed: &Sealed<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Under, DropReason> {
        let usual = self.rx.under;
        let first = self.ciphers.as_ref().and_then(|ciphers| ciphers.rx.first());
        let first = first.filter(|first| (first.phase, first.under) == (wanted, usual));
        if first.is_some_and(|first| sealed.open(&*first.cipher, out)) {
            return Ok(usual);
        }
        let tried = first.is_some();
        // Of a phase that is over, no cipher may be left.
        let mut reason = if tried { DropReason::Forged } else { DropReason::Replayed };
        let candidates = self.candidates(keys).into_iter().flatten();
        for under in candidates.skip(usize::from(tried)) {
            let Some(cipher) = self.reading(keys, wanted, under) else { continue };
            if sealed.open(cipher, out) {
                return Ok(under);
            }
            reason = DropReason::Forged;
        }
        Err(reason)
    }

    /// The keys that a packet may be under, the likeliest first.
    fn candidates(&self, keys: &KeySet) -> [Option<Under>; CANDIDATES_MAX] {
        let usual = self.rx.under;
        let valid = [keys.newest(self.at), keys.before(self.at)].map(|key| key.map(|key| key.turn));
        let other = self.ciphers.as_ref().and_then(|ciphers| Some(ciphers.other.as_ref()?.1));
        let with = |base: Turn, turn: Option<Turn>| turn.map(|turn| Under { base, turn });
        let more = |base| {
            valid.map(|turn| with(base, turn.filter(|turn| usual != Under { base, turn: *turn })))
        };
        let [newest, before] = more(usual.base);
        match other {
            None => [Some(usual), newest, before, None],
            // It has begun with the newest, or with the one before: then it may have gone on already.
            Some(base) => {
                let [on, alone] = more(base);
                [Some(usual), newest.or(before), on, alone]
            }
        }
    }

    /// The cipher for packets of a phase that the window admits.
    fn reading(&mut self, keys: &KeySet, wanted: u64, under: Under) -> Option<&dyn Cipher> {
        let known = |reading: &Reading| (reading.phase, reading.under) == (wanted, under);
        let at = self.ciphers.as_ref().and_then(|ciphers| ciphers.rx.iter().position(known));
        let at = match at {
            Some(at) => at,
            None => {
                let secret = self.secret_of(keys, wanted, under.base)?;
                let cipher = cipher(keys, self.at, under, &secret)?;
                let ciphers = self.ciphers.get_or_insert_default();
                ciphers.rx.push(Reading { phase: wanted, under, cipher });
                debug_assert!(ciphers.rx.len() <= READINGS_MAX, "as many as there are candidates");
                ciphers.rx.len() - 1
            }
        };
        self.ciphers.as_ref().map(|ciphers| &*ciphers.rx[at].cipher)
    }

    /// The secret of a phase in which the peer sends, if it began with this key.
    fn secret_of(&mut self, keys: &KeySet, wanted: u64, base: Turn) -> Option<Secret> {
        let key = keys.get(self.at)?;
        let present = self.rx_phase(key);
        let ciphers = self.ciphers.get_or_insert_default();
        // Of the phase before, its ciphers alone are kept.
        let after = wanted.checked_sub(present)?;
        match &ciphers.other {
            Some((secret, turn)) if base == *turn => {
                Some(if after == 0 { secret.clone() } else { key.next(secret) })
            }
            _ if base != self.rx.under.base => None,
            _ if after == 0 => Some(self.rx.secret.clone()),
            _ => Some(ciphers.next.get_or_insert_with(|| key.next(&self.rx.secret)).clone()),
        }
    }

    /// Notes that a packet of this phase was genuine, and under these keys.
    fn took(&mut self, keys: &KeySet, wanted: u64, under: Under) {
        let Some(key) = keys.get(self.at) else { return };
        let present = self.rx_phase(key);
        let ciphers = self.ciphers.get_or_insert_default();
        if let Some((secret, turn)) = ciphers.other.take()
            && under.base == turn
        {
            self.rx = Way { secret, under };
            ciphers.next = None;
        }
        if wanted > present {
            let next = ciphers.next.take();
            self.rx.secret = next.unwrap_or_else(|| key.next(&self.rx.secret));
            ciphers.rx.retain(|reading| reading.phase + 1 >= wanted);
        }
        let newest = keys.newest(self.at).map(|newest| newest.turn);
        if newest == Some(under.turn) && self.rx.under != under {
            // What is late may be of the key that the session began with, but not after another change.
            let base = if self.rx.under.turn == under.base { under.base } else { Turn::PAST };
            self.rx.under = Under { base, ..under };
            let valid = |own: &Reading| keys.of(KeyRef { at: self.at, turn: own.under.turn });
            ciphers.rx.retain(|own| own.under.base == under.base && valid(own).is_some());
            ciphers.rx.iter_mut().for_each(|own| own.under.base = base);
        }
        self.renews |= newest == Some(under.turn) && newest != Some(self.tx.under.turn);
        let usual = self.rx.under;
        let present = wanted.max(present);
        let first = ciphers.rx.iter().position(|own| (own.phase, own.under) == (present, usual));
        if let Some(first) = first {
            ciphers.rx.swap(0, first);
        }
    }
}

/// A packet apart from its trailer.
struct Sealed<'a> {
    counter: u64,
    packet: &'a [u8],
    proof: &'a [u8],
    hides: bool,
}

impl Sealed<'_> {
    /// Whether the proof is right. With payload hidden, the packet stands in `out` then.
    fn open(&self, cipher: &dyn Cipher, out: &mut Vec<u8>) -> bool {
        let (head, rest) = self.packet.split_at(HEADER_BYTES);
        if !self.hides {
            return cipher.verify(self.counter, head, rest, self.proof);
        }
        out.resize(self.packet.len(), 0);
        out[..HEADER_BYTES].copy_from_slice(head);
        cipher.open(self.counter, head, rest, self.proof, &mut out[HEADER_BYTES..])
    }
}

/// Whether a packet with this first byte may be hidden.
fn may_hide(first: u8) -> bool {
    PacketKind::of(first).is_none_or(|kind| !kind.is_answered_unproven())
}

fn phase(key: &dyn Keys, counter: u64) -> u64 {
    counter >> key.phase_bits()
}

/// Packet, counter and proof of a datagram.
fn split(bytes: &[u8]) -> Option<(&[u8], u64, &[u8])> {
    let (packet, trailer) = bytes.split_at_checked(bytes.len().checked_sub(TRAILER_BYTES)?)?;
    let (counter, proof) = trailer.split_first_chunk()?;
    debug_assert_eq!(proof.len(), PROOF_BYTES);
    (packet.len() >= HEADER_BYTES).then_some((packet, u64::from_be_bytes(*counter), proof))
}

#[cfg(test)]
mod bounds;
#[cfg(test)]
mod tests;
