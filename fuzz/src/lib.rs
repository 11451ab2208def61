//! What the fuzz targets share with the tests: the engine's world, which judges every call, and the
//! sequences of calls of the C interface.

pub mod capi;

#[path = "../../rd/tests/world/mod.rs"]
pub mod world;
