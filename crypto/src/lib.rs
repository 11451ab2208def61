//! The keys of a job (protocol.md §11): every packet is proven with one of them, and payload can be hidden.
//!
//! - [`job`]: the secret that the processes of a job share, and where it comes from;
//! - [`keyring`]: what the engine asks of it: proofs of packets outside a session, and the secrets of sessions;
//! - [`traffic`]: the cipher of a session's packets.
//!
//! A library does the cryptography; this crate says what is derived from what, and what each proof covers.

#![forbid(unsafe_code)]

mod derive;
pub mod job;
pub mod keyring;
pub mod traffic;

pub use job::{BadKeyFile, JobKey};
pub use keyring::Keyring;
