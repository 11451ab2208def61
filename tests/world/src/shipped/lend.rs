//! The memory that applications lend to the library.

use erd_core::endpoint::Buffers;

/// Buffers of these pieces, which stay where they are until the operation ends.
pub fn lend(pieces: [&mut [u8]; 2]) -> Buffers {
    let mut buffers = Buffers::default();
    for piece in pieces {
        // SAFETY: the book keeps the memory until the run ends, and only looks at it meanwhile where the operation has
        // ended.
        let added = unsafe { buffers.add(piece.as_mut_ptr().cast(), piece.len()) };
        assert!(added, "two pieces fit");
    }
    buffers
}
