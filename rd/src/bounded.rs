//! What the tests within bounds beside the code share. `rd/tests/bounds` says how to widen the bounds.

extern crate std;

use alloc::vec::Vec;

/// Whether to try the wide bounds.
pub(crate) fn is_large() -> bool {
    std::env::var_os("BOUNDS").is_some_and(|bounds| bounds == "large")
}

/// Calls `judge` with all sequences of `depth` of these.
pub(crate) fn each_sequence<T: Copy>(of: &[T], depth: u32, mut judge: impl FnMut(&[T])) {
    for number in 0..of.len().pow(depth) {
        let mut rest = number;
        let take = |_| {
            let one = of[rest % of.len()];
            rest /= of.len();
            one
        };
        judge(&(0..depth).map(take).collect::<Vec<T>>());
    }
}
