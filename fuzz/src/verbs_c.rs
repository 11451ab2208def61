//! The C interface, and what its tests share with the fuzz target.

pub use erd::verbs_c::*;

#[path = "../../prov/verbs_c/sequences.rs"]
pub mod sequences;
