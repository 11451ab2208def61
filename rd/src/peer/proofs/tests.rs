//! Packets of a session with a key: phases, quiet sessions, forgeries, and a key that changes.

use super::*;
use crate::keys::toy::Toy;
use crate::wire::header::Header;
use alloc::sync::Arc;

/// One end of a session, and the keys of its process.
pub(super) struct End {
    pub proofs: Proofs,
    pub keys: KeySet,
}

impl core::ops::Deref for End {
    type Target = Proofs;

    fn deref(&self) -> &Proofs {
        &self.proofs
    }
}

impl core::ops::DerefMut for End {
    fn deref_mut(&mut self) -> &mut Proofs {
        &mut self.proofs
    }
}

pub(super) const ONE: &[u8] = b"one";
pub(super) const OTHER: &[u8] = b"other";

/// Keys of a process that has this one, and has had the one before.
pub(super) fn keys(newest: u8, before: Option<u8>) -> KeySet {
    let mut keys = KeySet::one(Arc::new(Toy(before.unwrap_or(newest))));
    if before.is_some() {
        assert!(keys.renew(KeyIndex(0), Arc::new(Toy(newest))));
    }
    keys
}

pub(super) fn end(keys: KeySet, id: u8, parts: (&[u8], &[u8]), hides: bool) -> End {
    let used = keys.find_ref([id; 8]).expect("one of them");
    let proofs = Proofs::of_parts(&keys, used, parts, hides).expect("it is valid");
    End { proofs, keys }
}

/// The ends of a session.
pub(super) fn pair(hides: bool) -> (End, End) {
    let end = |parts| end(keys(1, None), 1, parts, hides);
    (end((ONE, OTHER)), end((OTHER, ONE)))
}

fn packet(body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    Header::new(PacketKind::Data, 7).emit(&mut bytes);
    bytes.extend_from_slice(body);
    bytes
}

pub(super) fn seal(tx: &mut End, body: &[u8]) -> Vec<u8> {
    // Other packets may stand before it.
    let mut bytes = [&b"other"[..], &packet(body)].concat();
    tx.proofs.seal(&tx.keys, &mut bytes, 5);
    bytes.split_off(5)
}

pub(super) fn open(rx: &mut End, bytes: &[u8]) -> Result<Vec<u8>, DropReason> {
    let mut out = Vec::new();
    rx.proofs.open(&rx.keys, bytes, &mut out).map(|packet| packet[HEADER_BYTES..].to_vec())
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
    assert_eq!(phase(&Toy(1), rx.window.end().saturating_sub(1)), 0);
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

/// Renews the key of one end.
pub(super) fn renew(end: &mut End, id: u8) {
    assert!(end.keys.renew(KeyIndex(0), Arc::new(Toy(id))));
}

#[test]
fn a_session_goes_on_under_the_newest_key_once_both_have_it() {
    let (mut one, mut other) = pair(true);
    let mut late = Vec::new();
    for round in 0..60u8 {
        match round {
            10 => renew(&mut one, 2),
            20 => {
                renew(&mut other, 2);
                assert!(!other.is_renewed(&other.keys));
                // A probe of the first tells.
                other.proofs.peer_has(&other.keys, [2; 8]);
            }
            _ => {}
        }
        let kept = seal(&mut one, &[round]);
        assert_eq!(open(&mut other, &seal(&mut one, &[round])), Ok([round].to_vec()));
        assert_eq!(open(&mut one, &seal(&mut other, &[round])), Ok([round].to_vec()));
        late.push(kept);
        if late.len() > 8 {
            let old = late.remove(0);
            assert_eq!(open(&mut other, &old), Ok([round - 8].to_vec()), "before and after");
        }
        let renewed = one.is_renewed(&one.keys) && other.is_renewed(&other.keys);
        assert_eq!(renewed, !(10..=20).contains(&round), "{round}");
    }
    let last = seal(&mut one, b"x");
    other.keys.retire();
    assert!(open(&mut other, &last).is_ok(), "nothing is under the old key");
    for end in [&mut one, &mut other] {
        end.keys.retire();
        renew(end, 3);
        end.proofs.peer_has(&end.keys, [3; 8]);
    }
    for _ in 0..40 {
        assert!(open(&mut other, &seal(&mut one, b"a third")).is_ok());
        assert!(open(&mut one, &seal(&mut other, b"a third")).is_ok());
    }
    let readings = one.ciphers.as_ref().map(|ciphers| ciphers.rx.len());
    assert!(readings.is_some_and(|len| len <= READINGS_MAX), "{readings:?}");
}

#[test]
fn nobody_goes_on_with_a_key_that_the_other_has_not_proven() {
    let (mut one, mut other) = pair(false);
    renew(&mut one, 2);
    one.proofs.peer_has(&one.keys, [1; 8]);
    assert!(open(&mut other, &seal(&mut one, b"old")).is_ok(), "the other has the old one");
    one.proofs.peer_has(&one.keys, [2; 8]);
    assert_eq!(open(&mut other, &seal(&mut one, b"new")), Err(DropReason::Forged));
    renew(&mut other, 2);
    assert!(open(&mut other, &seal(&mut one, b"new")).is_ok());
    other.keys.retire();
    let old = end(keys(1, None), 1, (ONE, OTHER), false);
    let (mut old, mut new) = (old, seal(&mut one, b"new"));
    old.proofs.sent = one.sent;
    assert_eq!(open(&mut other, &seal(&mut old, b"old")), Err(DropReason::Forged));
    assert!(open(&mut other, &new).is_ok());
    new.clear();
}

#[test]
fn sides_that_began_with_different_valid_keys_understand_each_other() {
    for phases in [0, 15] {
        let mut one = end(keys(2, Some(1)), 2, (ONE, OTHER), true);
        let mut other = end(keys(2, Some(1)), 1, (OTHER, ONE), true);
        (0..phases).for_each(|at| drop((seal(&mut one, &[at]), seal(&mut other, &[at]))));
        one.proofs.rest();
        assert!(!one.is_awake());
        for round in 0..40u8 {
            assert_eq!(open(&mut one, &seal(&mut other, &[round])), Ok([round].to_vec()));
            assert_eq!(open(&mut other, &seal(&mut one, &[round])), Ok([round].to_vec()));
        }
        assert!(one.is_renewed(&one.keys) && other.is_renewed(&other.keys));
    }
}
