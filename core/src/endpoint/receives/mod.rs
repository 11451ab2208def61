//! Where messages find their receives.
//!
//! - `many`: buffers that take many messages.

pub(crate) mod many;
