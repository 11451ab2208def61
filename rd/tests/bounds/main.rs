//! Every input within bounds: nothing panics or overflows, what is written is read, and what is read is written again
//! in its only form. Sets, windows and numbers that wrap agree with plain models of them.
//!
//! The modules beside the code (`bounds.rs` below `rd/src`) do the same for what is private there. `BOUNDS=large` widens
//! the bounds: minutes instead of seconds.

mod bodies;
mod headers;
mod hostile;
#[path = "../keyed/mod.rs"]
mod keyed;
mod loose;
mod numbers;
mod sets;

/// Whether to try the wide bounds.
fn is_large() -> bool {
    std::env::var_os("BOUNDS").is_some_and(|bounds| bounds == "large")
}

/// Values of a byte at which something may change.
const EDGES: [u8; 5] = [0, 1, 0x7f, 0x80, 0xff];

/// Every change of one byte of `bytes` to any value, and of any two to each of [`EDGES`].
fn each_change(bytes: &[u8], mut judge: impl FnMut(&[u8])) {
    let mut changed = bytes.to_vec();
    for at in 0..bytes.len() {
        for value in 0..=u8::MAX {
            changed[at] = value;
            judge(&changed);
        }
        for value in EDGES {
            changed[at] = value;
            for other in at + 1..bytes.len() {
                for value in EDGES {
                    changed[other] = value;
                    judge(&changed);
                }
                changed[other] = bytes[other];
            }
        }
        changed[at] = bytes[at];
    }
}
