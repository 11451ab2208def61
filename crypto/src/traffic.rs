//! The cipher of a session's packets: AES-128-GCM, one key for each direction and phase.
//!
//! A packet is proven under a counter that its sender never uses again with that key, in one of two forms: readable, or
//! with everything after its header hidden.

use crate::derive::expand;
use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::constant_time::verify_slices_are_equal;
use erd_rd::keys::{Cipher, PROOF_BYTES, Secret};
use erd_rd::wire::header::HEADER_BYTES;
use zeroize::Zeroizing;

/// Bytes of an AES-128 key.
const KEY_BYTES: usize = 16;

/// The cipher of one direction and phase.
pub struct Aes128Gcm {
    key: LessSafeKey,
    iv: [u8; NONCE_LEN],
}

impl Aes128Gcm {
    /// The cipher that this secret gives.
    #[must_use]
    pub fn new(secret: &Secret) -> Aes128Gcm {
        let bytes = Zeroizing::new(expand::<{ KEY_BYTES + NONCE_LEN }>(secret, "erd key", &[]));
        let (key, iv) = bytes.split_at(KEY_BYTES);
        let key = UnboundKey::new(&AES_128_GCM, key).expect("the key has the cipher's length");
        Aes128Gcm { key: LessSafeKey::new(key), iv: std::array::from_fn(|at| iv[at]) }
    }

    /// The counter, in the last 8 bytes of the direction's own initial value (as in TLS 1.3).
    fn nonce(&self, counter: u64) -> Nonce {
        let mut nonce = self.iv;
        for (byte, more) in nonce[NONCE_LEN - 8..].iter_mut().zip(counter.to_be_bytes()) {
            *byte ^= more;
        }
        Nonce::assume_unique_for_key(nonce)
    }

    fn seal(&self, counter: u64, clear: &[u8], hidden: &mut [u8]) -> [u8; PROOF_BYTES] {
        let nonce = self.nonce(counter);
        let sealed = self.key.seal_in_place_separate_tag(nonce, Aad::from(clear), hidden);
        let tag = sealed.expect("a datagram is shorter than the cipher's limit");
        std::array::from_fn(|at| tag.as_ref()[at])
    }
}

impl Cipher for Aes128Gcm {
    // The cipher runs over a copy of the header, whose ciphertext nobody sees, and takes the rest as associated data:
    // both are proven, neither is changed, and the rest need not lie behind the header.
    fn prove(&self, counter: u64, head: &[u8], rest: &[u8]) -> [u8; PROOF_BYTES] {
        let mut copy = [0; HEADER_BYTES];
        copy.copy_from_slice(head);
        self.seal(counter, rest, &mut copy)
    }

    fn verify(&self, counter: u64, head: &[u8], rest: &[u8], proof: &[u8]) -> bool {
        verify_slices_are_equal(&self.prove(counter, head, rest), proof).is_ok()
    }

    fn hide(&self, counter: u64, head: &[u8], rest: &mut [u8]) -> [u8; PROOF_BYTES] {
        self.seal(counter, head, rest)
    }

    fn open(&self, counter: u64, head: &[u8], hidden: &[u8], proof: &[u8], out: &mut [u8]) -> bool {
        let (nonce, head) = (self.nonce(counter), Aad::from(head));
        self.key.open_separate_gather(nonce, head, hidden, proof, out).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cipher(byte: u8) -> Aes128Gcm {
        Aes128Gcm::new(&Secret([byte; 32]))
    }

    const HEAD: [u8; HEADER_BYTES] = [7; HEADER_BYTES];

    #[test]
    fn a_proven_packet_cannot_be_changed() {
        let (tx, rx) = (cipher(1), cipher(1));
        let rest = [9; 100];
        let proof = tx.prove(3, &HEAD, &rest);
        assert!(rx.verify(3, &HEAD, &rest, &proof));
        assert!(!rx.verify(4, &HEAD, &rest, &proof), "another counter");
        assert!(!cipher(2).verify(3, &HEAD, &rest, &proof), "another secret");
        for bit in 0..8 * (HEADER_BYTES + 100 + PROOF_BYTES) {
            let (mut head, mut rest, mut proof) = (HEAD, rest, proof);
            let (at, mask) = (bit / 8, 1 << (bit % 8));
            match at {
                0..HEADER_BYTES => head[at] ^= mask,
                HEADER_BYTES..132 => rest[at - HEADER_BYTES] ^= mask,
                _ => proof[at - 132] ^= mask,
            }
            assert!(!rx.verify(3, &head, &rest, &proof), "bit {bit}");
        }
        assert!(!rx.verify(3, &HEAD, &rest[..99], &proof));
        assert!(rx.verify(1, &HEAD, &[], &tx.prove(1, &HEAD, &[])), "without a body");
    }

    #[test]
    fn a_hidden_packet_is_opened_by_the_peer_alone() {
        let (tx, rx) = (cipher(1), cipher(1));
        let rest = [9; 100];
        let mut hidden = rest;
        let proof = tx.hide(3, &HEAD, &mut hidden);
        assert_ne!(hidden, rest);
        let mut out = [0; 100];
        assert!(rx.open(3, &HEAD, &hidden, &proof, &mut out));
        assert_eq!(out, rest);
        assert!(!rx.open(2, &HEAD, &hidden, &proof, &mut out));
        assert!(!cipher(2).open(3, &HEAD, &hidden, &proof, &mut out));
        for bit in 0..8 * HEADER_BYTES {
            let mut changed = HEAD;
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(!rx.open(3, &changed, &hidden, &proof, &mut out), "bit {bit}");
        }
        for bit in 0..8 * 100 {
            let mut changed = hidden;
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(!rx.open(3, &HEAD, &changed, &proof, &mut out), "bit {bit}");
        }
    }

    /// The two forms use one key: a packet of one is none of the other.
    #[test]
    fn a_readable_packet_is_no_hidden_one() {
        let cipher = cipher(1);
        let rest = [9; HEADER_BYTES];
        let proof = cipher.prove(3, &HEAD, &rest);
        assert!(!cipher.open(3, &HEAD, &rest, &proof, &mut [0; HEADER_BYTES]));
        let mut hidden = rest;
        let proof = cipher.hide(3, &HEAD, &mut hidden);
        assert!(!cipher.verify(3, &HEAD, &hidden, &proof));
    }
}
