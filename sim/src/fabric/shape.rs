//! What networks built by a few numbers have in common: why they cannot be built.

use super::blueprint::{LINKS_MAX, NODES_MAX};

/// A number that does not fit.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{key} {valid}")]
pub struct ShapeError {
    key: &'static str,
    valid: String,
}

impl ShapeError {
    /// Which number.
    #[must_use]
    pub fn key(&self) -> &'static str {
        self.key
    }

    pub(super) fn new(key: &'static str, valid: impl Into<String>) -> ShapeError {
        ShapeError { key, valid: valid.into() }
    }
}

/// Checks how large a network is: so many nodes, and so many switches with at most so many links each, where a host's link
/// counts twice. `key` is the number to blame.
pub(super) fn check_size(
    key: &'static str,
    nodes: u64,
    switches: u64,
    links_each: u64,
) -> Result<(), ShapeError> {
    let links = switches.saturating_mul(links_each);
    if nodes > NODES_MAX.into() || links > LINKS_MAX.into() {
        let valid = format!(
            "must be smaller: {nodes} hosts and switches with {links} links are more than {NODES_MAX} with {LINKS_MAX}"
        );
        return Err(ShapeError::new(key, valid));
    }
    Ok(())
}
