//! The C interface, and what its tests share with the fuzz target.

pub use erd::capi::*;

#[path = "../../prov/capi/sequences.rs"]
pub mod sequences;
