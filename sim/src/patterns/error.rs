//! What is wrong with the parameters of a pattern.

use crate::time::{Picos, from_ns};

/// Latest start of a message: eleven days, so that sums of times stay within [`Picos`].
pub const START_MAX_NS: u64 = 1_000_000_000_000_000;

/// Why a pattern cannot be made.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{parameter}` {valid}")]
pub struct PatternError {
    /// The parameter that does not fit.
    pub parameter: &'static str,
    /// What would be valid.
    pub valid: String,
}

impl PatternError {
    pub(super) fn new(parameter: &'static str, valid: impl Into<String>) -> PatternError {
        PatternError { parameter, valid: valid.into() }
    }
}

/// A length of messages that can be simulated.
pub(super) fn check_bytes(parameter: &'static str, bytes: u64) -> Result<(), PatternError> {
    if bytes == 0 || bytes > 1 << 48 {
        return Err(PatternError::new(parameter, "must be from 1 to 2^48"));
    }
    Ok(())
}

/// A time that can be simulated, in ps.
pub(super) fn check_time(parameter: &'static str, ns: u64) -> Result<Picos, PatternError> {
    if ns > START_MAX_NS {
        return Err(PatternError::new(parameter, format!("must be at most {START_MAX_NS}")));
    }
    Ok(from_ns(ns))
}

/// A number from 1 to `most`.
pub(super) fn check_count(
    parameter: &'static str,
    count: u32,
    most: u32,
    why: &str,
) -> Result<(), PatternError> {
    if count == 0 || count > most {
        return Err(PatternError::new(parameter, format!("must be from 1 to {most}, {why}")));
    }
    Ok(())
}

pub(super) fn one() -> u32 {
    1
}
