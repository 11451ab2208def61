//! The protocol as an executable specification (docs/model.md).
//!
//! The rules of set-up, epochs, repair, exactly-once and end (docs/protocol.md §3 to §7, §11) are pure functions over
//! small values. A search ([`search`]) tries every order of events within the bounds of a scene, over a network that loses, repeats,
//! reorders and delays, with an adversary in between where the job has a key. Recorded runs of the fault world are held
//! against the same rules ([`trace`]).

pub mod bugs;
pub mod flow;
pub mod packet;
pub mod peer;
pub mod process;
pub mod properties;
pub mod rules;
pub mod scenes;
pub mod search;
pub mod trace;
pub mod world;
