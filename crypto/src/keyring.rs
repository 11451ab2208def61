//! The key of a job, as the engine uses it.
//!
//! Proofs of packets outside a session are HMAC-SHA-256 under a key of the job, cut to [`PROOF_BYTES`]: without a
//! nonce, two sides that know nothing of each other can use the same key.

use crate::derive::{derive, expand};
use crate::job::JobKey;
use crate::traffic::Aes128Gcm;
use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::hmac;
use erd_rd::keys::{Cipher, Keys, Loose, PROOF_BYTES, Secret};
use erd_sys::secret::SecretBytes;
use zeroize::Zeroizing;

/// See the module.
pub struct Keyring {
    job: JobKey,
    id: [u8; 8],
    /// The key of proofs outside a session.
    loose: SecretBytes<32>,
    hides: bool,
}

impl std::fmt::Debug for Keyring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keyring").field("hides", &self.hides).finish_non_exhaustive()
    }
}

impl Keyring {
    /// The keys of a job; with `hides`, this side wants payload hidden.
    #[must_use]
    pub fn new(job: JobKey, hides: bool) -> Keyring {
        let bytes = Zeroizing::new(expand::<32>(&job.secret(), "erd loose", &[]));
        let loose = SecretBytes::new(&bytes);
        Keyring { id: job.id(), job, loose, hides }
    }
}

impl Keys for Keyring {
    fn id(&self) -> [u8; 8] {
        self.id
    }

    fn hides(&self) -> bool {
        self.hides
    }

    fn prove(&self, loose: &Loose<'_>) -> [u8; PROOF_BYTES] {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &*self.loose);
        let mut mac = hmac::Context::with_key(&key);
        // Each with its length, so that no bytes can be read as two different lists.
        for part in [loose.packet, &loose.context()] {
            mac.update(&(part.len() as u64).to_be_bytes());
            mac.update(part);
        }
        let whole = mac.sign();
        std::array::from_fn(|at| whole.as_ref()[at])
    }

    fn verify(&self, loose: &Loose<'_>, proof: &[u8]) -> bool {
        verify_slices_are_equal(&self.prove(loose), proof).is_ok()
    }

    fn session(&self, ours: &[u8], theirs: &[u8]) -> (Secret, Secret) {
        let (first, second) = if ours <= theirs { (ours, theirs) } else { (theirs, ours) };
        let session = derive(&self.job.secret(), "erd session", &[first, second]);
        let way = |from: &[u8], to: &[u8]| Secret(expand(&session, "erd direction", &[from, to]));
        (way(ours, theirs), way(theirs, ours))
    }

    fn next(&self, secret: &Secret) -> Secret {
        Secret(expand(secret, "erd next phase", &[]))
    }

    fn cipher(&self, secret: &Secret) -> Box<dyn Cipher> {
        Box::new(Aes128Gcm::new(secret))
    }

    fn renewed(&self, secret: &Secret) -> Secret {
        let own = Zeroizing::new(expand::<32>(&self.job.secret(), "erd renewed", &[]));
        derive(secret, "erd renewed phase", &[&*own])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;

    fn keyring(byte: u8) -> Keyring {
        Keyring::new(JobKey::new(&[byte; 32]), false)
    }

    fn name(last: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, last], 7100))
    }

    #[test]
    fn a_proof_is_of_its_packet_its_names_its_question_and_its_key() {
        let keys = keyring(1);
        let loose = Loose { packet: b"packet", writer: name(1), reader: name(2), question: b"q" };
        let proof = keys.prove(&loose);
        assert!(keys.verify(&loose, &proof));
        let others = [
            Loose { packet: b"packeu", ..loose },
            Loose { packet: b"packet2", ..loose },
            Loose { writer: name(2), reader: name(1), ..loose },
            Loose { writer: name(3), ..loose },
            Loose { reader: name(3), ..loose },
            Loose { question: b"r", ..loose },
            Loose { question: b"", ..loose },
            Loose { packet: b"packetq", question: b"", ..loose },
        ];
        for other in others {
            assert!(!keys.verify(&other, &proof), "{other:?}");
        }
        assert!(!keyring(2).verify(&loose, &proof));
        for bit in 0..8 * PROOF_BYTES {
            let mut changed = proof;
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(!keys.verify(&loose, &changed), "bit {bit}");
        }
        assert!(!keys.verify(&loose, &proof[..15]) && !keys.verify(&loose, &[]));
    }

    #[test]
    fn a_hosts_number_of_a_link_is_no_part_of_a_name() {
        let keys = keyring(1);
        let [one, other] = [3, 4].map(|scope| {
            let ip = std::net::Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
            std::net::SocketAddrV6::new(ip, 7100, 0, scope).into()
        });
        let loose = Loose { packet: b"p", writer: one, reader: name(2), question: b"" };
        assert!(keys.verify(&Loose { writer: other, ..loose }, &keys.prove(&loose)));
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The values of protocol.md §11 by another implementation: Python's hmac and hashlib, and pyca/cryptography.
    #[test]
    fn every_value_is_that_of_the_protocol() {
        let keys = keyring(5);
        assert_eq!(hex(&keys.id()), "9976e26af0f02f8d");
        let loose = Loose { packet: b"packet", writer: name(1), reader: name(2), question: b"q" };
        assert_eq!(hex(&keys.prove(&loose)), "713a5d0de59d1f41d7180bea2c191cd5");
        let (tx, rx) = keys.session(b"one", b"other");
        let [tx_hex, rx_hex, next] = [&tx, &rx, &keys.next(&tx)].map(|secret| hex(&secret.0));
        assert_eq!(tx_hex, "6265689bed6d42956950337fd5f7c30dc6e13a458a6e22710e21a520705e9a58");
        assert_eq!(rx_hex, "8755f78d33bad928f51c816c019d00cbe3a855b18ab49753b9647a5b52d28de6");
        assert_eq!(next, "14baec350e98c421d0f405c0bdb46b00958206bd209d1828a525e2a145d7cb63");
        let cipher = keys.cipher(&tx);
        let head: [u8; 32] = std::array::from_fn(|at| at as u8);
        let proof = cipher.prove(3, &head, b"payload");
        assert_eq!(hex(&proof), "6ffc68fc00f2d2fe9f3a0cddae3dde38");
        let mut hidden = *b"payload";
        let proof = cipher.hide(3, &head, &mut hidden);
        assert_eq!(
            hex(&[&hidden[..], &proof].concat()),
            "8a9424ebbff7a651969838dc079b85f8317f95c13d986c"
        );
    }

    #[test]
    fn both_sides_come_to_the_same_secrets_and_each_direction_has_its_own() {
        let keys = keyring(5);
        let (tx, rx) = keys.session(b"one", b"other");
        assert_eq!(keys.session(b"other", b"one"), (rx.clone(), tx.clone()));
        assert_ne!(tx, rx);
        assert_ne!(keys.session(b"one", b"othes").0, tx, "everything that was said counts");
        assert_ne!(keyring(6).session(b"one", b"other").0, tx);
        assert_ne!(keys.next(&tx), tx);
        assert_ne!(keys.next(&keys.next(&tx)), keys.next(&tx));
    }
}
