//! Congestion control schemes by name.

use erd_rd::cc::Scheme;
use erd_rd::cc::erd::ErdScheme;

/// Names of the schemes, in the order of the tables.
pub const NAMES: &[&str] = &["erd"];

/// A scheme with its default parameters.
#[must_use]
pub fn by_name(name: &str) -> Option<Box<dyn Scheme>> {
    match name {
        "erd" => Some(Box::new(ErdScheme::default())),
        _ => None,
    }
}
