//! The bytes that have arrived, in all short sequences of segments, against a map of bytes.

use super::coverage::{Coverage, Gaps, SpareGaps};
use crate::bounded::is_large;
use alloc::vec::Vec;

/// All segments of `len` bytes' positions, each with its mask.
fn segments(len: u32) -> Vec<(u32, u32, u64)> {
    let to_end = |from: u32| (from + 1..=len).map(move |end| (from, end));
    let mask = |(from, end): (u32, u32)| (from, end, ((1u64 << (end - from)) - 1) << from);
    (0..len).flat_map(to_end).map(mask).collect()
}

/// Adds all sequences of `count` segments, and ends each. `base` is the place of the first byte.
fn each_order(len: u32, count: u32, base: u32) {
    let all = segments(len);
    for number in 0..all.len().pow(count) {
        let (mut gaps, mut spare) = (Gaps::default(), SpareGaps::default());
        let (mut coverage, mut map, mut rest) = (Coverage::default(), 0u64, number);
        for _ in 0..count {
            let (from, end, mask) = all[rest % all.len()];
            rest /= all.len();
            coverage.add(&mut gaps, &mut spare, base + from, base + end).unwrap();
            map |= mask;
            assert_eq!(coverage.got_bytes, map.count_ones(), "{number} of {len} at {base}");
            assert_eq!(coverage.fresh_bytes, base + map.ilog2() + 1, "{number} of {len} at {base}");
        }
        // What is missing, and nothing else, is new once.
        let whole = base + len;
        coverage.add(&mut gaps, &mut spare, base, whole).unwrap();
        assert_eq!(coverage.got_bytes, len, "{number} of {len} at {base}");
        coverage.end(&mut gaps, &mut spare);
        let mut next = Coverage::default();
        next.add(&mut gaps, &mut spare, 1, 2).unwrap();
        assert_eq!((next.got_bytes, next.fresh_bytes), (1, 2));
    }
}

#[test]
fn bytes_count_once_in_every_order_of_segments() {
    for base in [0, 1, u32::MAX - 8] {
        each_order(5, if is_large() { 5 } else { 4 }, base);
        each_order(8, if is_large() { 4 } else { 3 }, base);
    }
}
