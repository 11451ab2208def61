//! What the fuzz targets share with the engine's tests: the world that judges every call.

#[path = "../../rd/tests/world/mod.rs"]
pub mod world;
