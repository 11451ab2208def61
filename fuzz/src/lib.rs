//! What the fuzz targets share with the tests: the engine's world, which judges every call, the
//! sequences of calls of the C interface, and two sides that negotiate verbs.

pub mod verbs_c;

#[path = "../../port/tests/world/mod.rs"]
pub mod negotiation;

pub use erd_world as world;
