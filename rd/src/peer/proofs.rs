//! The proofs of a session's packets: counters, phases, and the window against replays (protocol.md §11.3 to §11.5).

use super::Core;
use super::replay::ReplayWindow;
use crate::keys::{Cipher, Keys, PROOF_BYTES, Secret, TRAILER_BYTES};
use crate::mutants::{Mutant, mutant};
use crate::stats::DropReason;
use crate::wire::header::{HEADER_BYTES, KEYED_VERSION, PacketKind, set_version};
use crate::wire::put_name;
use crate::wire::setup::{FEATURE_HIDE, Greeting};
use alloc::boxed::Box;
use alloc::vec::Vec;

/// Counters for which the window is exact: twice the packets that all paths can hold.
const REPLAY_SPAN: u64 = 2 * crate::bitmap::BITS_MAX as u64;

/// See the module. A quiet session has nothing else of its keys.
pub(crate) struct Proofs {
    hides: bool,
    /// Of the phase of the last packet sent.
    tx: Secret,
    /// Of the phase of the greatest counter taken.
    rx: Secret,
    /// The counter of the next packet.
    sent: u64,
    window: ReplayWindow,
    /// While packets come and go.
    ciphers: Option<Box<Ciphers>>,
}

/// The ciphers in use.
#[derive(Default)]
struct Ciphers {
    /// Of the phase of the last packet sent.
    tx: Option<Box<dyn Cipher>>,
    /// Of the phase of the greatest counter taken.
    rx: Option<Box<dyn Cipher>>,
    /// Of the phase before; what is on its way may be of it.
    last: Option<Box<dyn Cipher>>,
    /// Of the phase after, once a packet claims to be of it.
    next: Option<(Secret, Box<dyn Cipher>)>,
}

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

impl Proofs {
    /// The keys of a session between the writers of these greetings.
    pub(super) fn new(key: &dyn Keys, ours: &Greeting, theirs: &Greeting) -> Proofs {
        let (tx, rx) = key.session(&part(ours), &part(theirs));
        let hides = (ours.features | theirs.features) & FEATURE_HIDE != 0;
        Proofs { hides, tx, rx, sent: 0, window: ReplayWindow::default(), ciphers: None }
    }

    /// Forgets what can be derived again. All counters taken so far, and those between, count as taken.
    pub(super) fn rest(&mut self) {
        self.window.close();
        self.ciphers = None;
    }

    /// True if it has more than a quiet session keeps.
    pub(super) fn is_awake(&self) -> bool {
        self.ciphers.is_some()
    }

    /// Seals the packet from `start` on, and appends its trailer.
    pub(super) fn seal(&mut self, key: &dyn Keys, bytes: &mut Vec<u8>, start: usize) {
        let counter = self.sent;
        self.sent += u64::from(!mutant(Mutant::RepeatsACounter) || counter % 64 != 63);
        let ciphers = self.ciphers.get_or_insert_default();
        if counter > 0 && phase(key, counter) != phase(key, counter - 1) {
            self.tx = key.next(&self.tx);
            ciphers.tx = None;
        }
        let cipher = ciphers.tx.get_or_insert_with(|| key.cipher(&self.tx));
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
        key: &dyn Keys,
        bytes: &'a [u8],
        out: &'a mut Vec<u8>,
    ) -> Result<&'a [u8], DropReason> {
        let (packet, counter, proof) = split(bytes).ok_or(DropReason::Malformed)?;
        let admits = self.window.admits(counter, 1 << key.phase_bits());
        if !admits && !mutant(Mutant::TakesReplays) {
            return Err(DropReason::Replayed);
        }
        let turns = phase(key, counter) > self.rx_phase(key);
        let was_awake = self.is_awake();
        let hides = self.hides && may_hide(packet[0]);
        let sealed = Sealed { counter, packet, proof, hides };
        let cipher = self.cipher_of(key, counter)?;
        if !sealed.open(cipher, out) && !mutant(Mutant::TakesForgeries) {
            if !was_awake {
                // Whoever forges makes a quiet session keep nothing.
                self.ciphers = None;
            }
            return Err(DropReason::Forged);
        }
        if turns {
            self.turn();
        }
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

    /// The cipher for a counter that the window admits.
    fn cipher_of(&mut self, key: &dyn Keys, counter: u64) -> Result<&dyn Cipher, DropReason> {
        let (wanted, present) = (phase(key, counter), self.rx_phase(key));
        let (rx, ciphers) = (&self.rx, self.ciphers.get_or_insert_default());
        if wanted == present {
            return Ok(&**ciphers.rx.get_or_insert_with(|| key.cipher(rx)));
        }
        if wanted == present + 1 {
            let next = ciphers.next.get_or_insert_with(|| {
                let secret = key.next(rx);
                let cipher = key.cipher(&secret);
                (secret, cipher)
            });
            return Ok(&*next.1);
        }
        let last = ciphers.last.as_deref().filter(|_| wanted + 1 == present);
        last.ok_or(DropReason::Replayed)
    }

    /// Begins the receiver's next phase.
    fn turn(&mut self) {
        let ciphers = self.ciphers.as_deref_mut().expect("the cipher of the next phase was used");
        let (secret, cipher) = ciphers.next.take().expect("the cipher of the next phase was used");
        self.rx = secret;
        ciphers.last = ciphers.rx.replace(cipher);
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

impl Core {
    /// The key of the job, if it has one.
    pub(crate) fn keys(&self) -> Option<&dyn Keys> {
        self.cfg.keys.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::Loose;
    use crate::wire::header::Header;
    use core::hash::Hasher;
    use siphasher::sip::SipHasher13;

    /// A key without secrets, for tests of what the engine does with one.
    #[derive(Debug)]
    struct Toy;

    struct ToyCipher([u8; 32]);

    fn hash(parts: &[&[u8]]) -> u64 {
        let mut hash = SipHasher13::new();
        for part in parts {
            hash.write_usize(part.len());
            hash.write(part);
        }
        hash.finish()
    }

    fn wide(seed: u64) -> [u8; 32] {
        core::array::from_fn(|at| seed.rotate_left(at as u32 * 7) as u8)
    }

    impl Keys for Toy {
        fn id(&self) -> [u8; 8] {
            [1; 8]
        }
        fn hides(&self) -> bool {
            true
        }
        fn phase_bits(&self) -> u32 {
            4
        }
        fn prove(&self, _: &Loose<'_>) -> [u8; PROOF_BYTES] {
            unreachable!("sessions alone are tested")
        }
        fn verify(&self, _: &Loose<'_>, _: &[u8]) -> bool {
            unreachable!("sessions alone are tested")
        }
        fn session(&self, ours: &[u8], theirs: &[u8]) -> (Secret, Secret) {
            (Secret(wide(hash(&[ours, theirs]))), Secret(wide(hash(&[theirs, ours]))))
        }
        fn next(&self, secret: &Secret) -> Secret {
            Secret(wide(hash(&[&secret.0])))
        }
        fn cipher(&self, secret: &Secret) -> Box<dyn Cipher> {
            Box::new(ToyCipher(secret.0))
        }
    }

    impl Cipher for ToyCipher {
        fn prove(&self, counter: u64, head: &[u8], rest: &[u8]) -> [u8; PROOF_BYTES] {
            let tag = hash(&[&self.0, &counter.to_be_bytes(), head, rest]).to_be_bytes();
            core::array::from_fn(|at| tag[at % 8])
        }
        fn verify(&self, counter: u64, head: &[u8], rest: &[u8], proof: &[u8]) -> bool {
            self.prove(counter, head, rest) == proof
        }
        fn hide(&self, counter: u64, head: &[u8], rest: &mut [u8]) -> [u8; PROOF_BYTES] {
            let proof = self.prove(counter, head, rest);
            rest.iter_mut().for_each(|byte| *byte ^= self.0[0]);
            proof
        }
        fn open(
            &self,
            counter: u64,
            head: &[u8],
            hidden: &[u8],
            proof: &[u8],
            out: &mut [u8],
        ) -> bool {
            out.iter_mut().zip(hidden).for_each(|(byte, hidden)| *byte = hidden ^ self.0[0]);
            self.verify(counter, head, out, proof)
        }
    }

    /// The ends of a session.
    fn pair(hides: bool) -> (Proofs, Proofs) {
        let (ours, theirs) = (b"ours", b"theirs");
        let end = |(tx, rx)| Proofs {
            hides,
            tx,
            rx,
            sent: 0,
            window: ReplayWindow::default(),
            ciphers: None,
        };
        (end(Toy.session(ours, theirs)), end(Toy.session(theirs, ours)))
    }

    fn packet(body: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        Header::new(PacketKind::Data, 7).emit(&mut bytes);
        bytes.extend_from_slice(body);
        bytes
    }

    fn seal(tx: &mut Proofs, body: &[u8]) -> Vec<u8> {
        // Other packets may stand before it.
        let mut bytes = [&b"other"[..], &packet(body)].concat();
        tx.seal(&Toy, &mut bytes, 5);
        bytes.split_off(5)
    }

    fn open(rx: &mut Proofs, bytes: &[u8]) -> Result<Vec<u8>, DropReason> {
        let mut out = Vec::new();
        rx.open(&Toy, bytes, &mut out).map(|packet| packet[HEADER_BYTES..].to_vec())
    }

    #[test]
    fn packets_come_as_they_went_once_and_in_any_order_over_many_phases() {
        for hides in [false, true] {
            let (mut tx, mut rx) = pair(hides);
            for round in 0..100u8 {
                let sealed: Vec<_> = (0..8).map(|at| seal(&mut tx, &[round, at])).collect();
                assert!(hides || sealed[0][HEADER_BYTES..][..2] == [round, 0]);
                for at in [3, 0, 7, 1, 2, 6, 5, 4] {
                    let sealed = &sealed[usize::from(at)];
                    assert_eq!(open(&mut rx, sealed), Ok([round, at].to_vec()), "{round}");
                    assert_eq!(open(&mut rx, sealed), Err(DropReason::Replayed));
                }
            }
            assert_eq!(rx.window.end(), 800);
        }
    }

    #[test]
    fn a_packet_of_the_phase_before_is_taken_and_one_of_an_earlier_is_too_late() {
        let (mut tx, mut rx) = pair(true);
        let sealed: Vec<_> = (0..40).map(|at| seal(&mut tx, &[at])).collect();
        assert!(open(&mut rx, &sealed[1]).is_ok());
        assert!(open(&mut rx, &sealed[16]).is_ok(), "the second phase begins");
        assert!(open(&mut rx, &sealed[2]).is_ok());
        assert!(open(&mut rx, &sealed[32]).is_ok(), "the third");
        assert!(open(&mut rx, &sealed[17]).is_ok());
        assert_eq!(open(&mut rx, &sealed[3]), Err(DropReason::Replayed));
    }

    #[test]
    fn what_is_forged_changes_nothing_and_costs_no_memory_while_the_session_is_quiet() {
        let (mut tx, mut rx) = pair(true);
        let first = seal(&mut tx, b"first");
        for at in 0..first.len() {
            let mut forged = first.clone();
            forged[at] ^= 1;
            let error = open(&mut rx, &forged).unwrap_err();
            assert!(matches!(error, DropReason::Forged | DropReason::Replayed), "byte {at}");
            assert!(!rx.is_awake() && rx.window.end() == 0);
        }
        for len in 0..first.len() {
            assert!(open(&mut rx, &first[..len]).is_err());
        }
        assert!(open(&mut rx, &first).is_ok() && rx.is_awake());
        // The next phase's cipher is made once, whatever claims to be of it.
        let mut forged = first;
        let at = forged.len() - TRAILER_BYTES;
        forged[at..][..8].copy_from_slice(&16u64.to_be_bytes());
        assert_eq!(open(&mut rx, &forged), Err(DropReason::Forged));
        assert_eq!(phase(&Toy, rx.window.end().saturating_sub(1)), 0);
        assert!(open(&mut rx, &seal(&mut tx, b"second")).is_ok());
    }

    #[test]
    fn a_quiet_session_takes_what_is_new_and_nothing_of_before() {
        let (mut tx, mut rx) = pair(true);
        let [zero, one, two] = [0, 1, 2].map(|at| seal(&mut tx, &[at]));
        assert!(open(&mut rx, &one).is_ok());
        rx.rest();
        assert!(!rx.is_awake());
        for late in [zero, one] {
            assert_eq!(open(&mut rx, &late), Err(DropReason::Replayed));
        }
        assert!(open(&mut rx, &two).is_ok());
        // The sender may rest at the end of a phase.
        (3..16).for_each(|at| drop(seal(&mut tx, &[at])));
        tx.rest();
        assert_eq!(open(&mut rx, &seal(&mut tx, b"next")), Ok(b"next".to_vec()));
    }

    #[test]
    fn both_directions_and_both_sides_have_their_own() {
        let (mut one, mut other) = pair(true);
        let sealed = seal(&mut one, b"x");
        assert_eq!(open(&mut one, &sealed), Err(DropReason::Forged), "reflected");
        assert!(open(&mut other, &sealed).is_ok());
    }
}
