//! Address vectors: peers' names by index.

pub mod entries;
pub mod shared;
pub mod symmetric;
pub mod table;
