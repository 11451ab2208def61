//! libibverbs: its ABI as far as we use it, and the library itself, loaded at run time.

mod abi;
mod library;

pub use abi::*;
pub use library::{Library, LibraryError};
