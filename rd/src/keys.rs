//! What the engine asks of a job's key (protocol.md §11). The cryptography stands behind these traits: the engine says
//! what is proven, under which counter, and who may read it.

use crate::wire::put_name;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::SocketAddr;
use zeroize::{Zeroize, ZeroizeOnDrop};

/// Bytes of a proof.
pub const PROOF_BYTES: usize = 16;
/// Bytes that a key adds to a packet: a counter or the key's id, and the proof.
pub const TRAILER_BYTES: usize = 8 + PROOF_BYTES;
/// Packets of one direction under one secret, as a power of two. AES-GCM allows more (2^24.5 of the largest size, by
/// RFC 8446, §5.5).
pub const PHASE_BITS: u32 = 22;

/// A secret of 256 bits. It is wiped when it goes.
#[derive(Clone, PartialEq, Eq, Zeroize, ZeroizeOnDrop)]
pub struct Secret(pub [u8; 32]);

impl core::fmt::Debug for Secret {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Secret")
    }
}

/// The proofs of a packet outside a session: what is covered, in this order, each with its length.
#[derive(Clone, Copy, Debug)]
pub struct Loose<'a> {
    /// Header and body, without the proof, with a zero checksum.
    pub packet: &'a [u8],
    /// The name of the process that wrote it.
    pub writer: SocketAddr,
    /// The name of the process that it is for.
    pub reader: SocketAddr,
    /// The random bytes of the greeting that it answers; empty for a question.
    pub question: &'a [u8],
}

impl Loose<'_> {
    /// The bytes that the proof covers, after the packet: both names, and the question.
    #[must_use]
    pub fn context(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(2 * crate::wire::NAME_BYTES + self.question.len());
        for name in [self.writer, self.reader] {
            // A host's own number of a link, which another host does not know, is no part of a name.
            put_name(&mut bytes, SocketAddr::new(name.ip().to_canonical(), name.port()));
        }
        bytes.extend_from_slice(self.question);
        bytes
    }
}

/// The key of a job, as the engine sees it.
pub trait Keys: core::fmt::Debug + Send + Sync {
    /// A name of the key, which tells nothing else about it.
    fn id(&self) -> [u8; 8];
    /// True if this side wants payload hidden.
    fn hides(&self) -> bool;
    /// See [`PHASE_BITS`].
    fn phase_bits(&self) -> u32 {
        PHASE_BITS
    }
    /// The proof of a packet outside a session.
    fn prove(&self, loose: &Loose<'_>) -> [u8; PROOF_BYTES];
    /// Whether `proof` is the one that [`Keys::prove`] gives. Takes the same time for all of a length.
    fn verify(&self, loose: &Loose<'_>, proof: &[u8]) -> bool;
    /// The secrets of a session's directions, out of what both sides said: of what `ours` sends, and of what `theirs`
    /// sends. With both swapped, the result is swapped.
    fn session(&self, ours: &[u8], theirs: &[u8]) -> (Secret, Secret);
    /// The secret of the next phase, from which this one's does not follow.
    fn next(&self, secret: &Secret) -> Secret;
    /// The cipher of a phase.
    fn cipher(&self, secret: &Secret) -> Box<dyn Cipher>;
}

/// The cipher of one direction and phase. No counter serves for two packets of one secret.
pub trait Cipher: Send {
    /// The proof of a packet with a readable `rest`.
    fn prove(&self, counter: u64, head: &[u8], rest: &[u8]) -> [u8; PROOF_BYTES];
    /// Whether `proof` is the one that [`Cipher::prove`] gives. Takes the same time for all of a length.
    fn verify(&self, counter: u64, head: &[u8], rest: &[u8], proof: &[u8]) -> bool;
    /// Encrypts `rest` in its place; `head` stays readable. Returns the proof of both.
    fn hide(&self, counter: u64, head: &[u8], rest: &mut [u8]) -> [u8; PROOF_BYTES];
    /// Decrypts `hidden` into `out`, of the same length. False if the packet is not the one that was hidden under this
    /// counter; then `out` must not be used.
    fn open(&self, counter: u64, head: &[u8], hidden: &[u8], proof: &[u8], out: &mut [u8]) -> bool;
}
