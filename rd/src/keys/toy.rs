//! A key without secrets, for tests of what the engine does with one.

use super::{Cipher, Keys, Loose, PROOF_BYTES, Secret};
use alloc::boxed::Box;
use core::hash::Hasher;
use siphasher::sip::SipHasher13;

/// See the module: a key of this number.
#[derive(Debug)]
pub(crate) struct Toy(pub u8);

/// The cipher of a secret. It hides by the secret's first byte.
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
        [self.0; 8]
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
        let way = |from, to| Secret(wide(hash(&[&[self.0], from, to])));
        (way(ours, theirs), way(theirs, ours))
    }
    fn next(&self, secret: &Secret) -> Secret {
        Secret(wide(hash(&[&secret.0])))
    }
    fn cipher(&self, secret: &Secret) -> Box<dyn Cipher> {
        Box::new(ToyCipher(secret.0))
    }
    fn renewed(&self, secret: &Secret) -> Secret {
        Secret(wide(hash(&[&[self.0], &secret.0])))
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
    fn open(&self, counter: u64, head: &[u8], hidden: &[u8], proof: &[u8], out: &mut [u8]) -> bool {
        out.iter_mut().zip(hidden).for_each(|(byte, hidden)| *byte = hidden ^ self.0[0]);
        self.verify(counter, head, out, proof)
    }
}
