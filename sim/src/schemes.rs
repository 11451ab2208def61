//! Congestion control schemes by name: those of the engine.

pub use erd_rd::cc::schemes::{NAMES, by_name};
