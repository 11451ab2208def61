//! Baselines that papers compare with and that the provider has no use for (docs/baselines.md). Each is a scheme of the
//! engine's interface, so that the simulator runs it as it runs the engine's own.

mod dctcp;
pub mod plb;
