//! Payload contents: every byte of every send follows from its key and its offset, so that
//! nothing needs to be stored on the sending side and any stray byte shows.

use std::sync::OnceLock;

/// A prime, so that equal bytes of two sends never line up with packet or page sizes.
const TABLE_BYTES: usize = 131_071;

fn table() -> &'static [u8] {
    static TABLE: OnceLock<Vec<u8>> = OnceLock::new();
    TABLE.get_or_init(|| {
        let mut rng = super::rng::Rng::new(0xe4d, 0);
        (0..TABLE_BYTES).map(|_| rng.bits() as u8).collect()
    })
}

/// Calls `f` with the contents of `len_bytes` from `offset_bytes` of send `key`, in pieces.
fn pieces(key: u64, offset_bytes: u64, len_bytes: usize, mut f: impl FnMut(&'static [u8])) {
    let start = u128::from(key) * 7919 + u128::from(offset_bytes);
    let mut at = (start % TABLE_BYTES as u128) as usize;
    let mut left = len_bytes;
    while left > 0 {
        let n = left.min(TABLE_BYTES - at);
        f(&table()[at..at + n]);
        left -= n;
        at = 0;
    }
}

/// Writes the contents of send `key` from `offset_bytes`.
pub fn fill(key: u64, offset_bytes: u64, out: &mut [u8]) {
    let mut done = 0;
    pieces(key, offset_bytes, out.len(), |piece| {
        out[done..done + piece.len()].copy_from_slice(piece);
        done += piece.len();
    });
}

/// Whether `bytes` are the contents of send `key` from `offset_bytes`.
pub fn equal(key: u64, offset_bytes: u64, bytes: &[u8]) -> bool {
    let (mut done, mut same) = (0, true);
    pieces(key, offset_bytes, bytes.len(), |piece| {
        same &= &bytes[done..done + piece.len()] == piece;
        done += piece.len();
    });
    same
}

/// CRC32C over contents of send `key`, continuing from `seed`.
pub fn checksum(key: u64, offset_bytes: u64, len_bytes: u32, seed: u32) -> u32 {
    let mut sum = seed;
    pieces(key, offset_bytes, len_bytes as usize, |piece| sum = crc32c::crc32c_append(sum, piece));
    sum
}
