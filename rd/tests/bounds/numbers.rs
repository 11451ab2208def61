//! Numbers that wrap, compared by wide ones.

use erd_rd::cc::stamp::Stamp;
use erd_rd::{Order, Psn};

const EDGES: [u32; 13] = [
    0,
    1,
    2,
    0x3fff,
    0x4000,
    0x7fff_fffe,
    0x7fff_ffff,
    0x8000_0000,
    0x8000_0001,
    0xffff_bfff,
    0xffff_c000,
    0xffff_fffe,
    0xffff_ffff,
];

/// `a - b` on the circle, from -2^31 to 2^31 - 1.
fn distance(a: u32, b: u32) -> i64 {
    let wide = (i64::from(a) - i64::from(b)).rem_euclid(1 << 32);
    if wide >= 1 << 31 { wide - (1 << 32) } else { wide }
}

/// All numbers with 16 bits at either end, each with each edge behind it.
fn each_pair(mut judge: impl FnMut(u32, u32)) {
    for half in 0..=u16::MAX {
        for a in [u32::from(half), u32::from(half) << 16, !u32::from(half)] {
            for edge in EDGES {
                judge(a, edge);
                judge(edge, a);
                judge(a, a.wrapping_add(edge));
            }
        }
    }
}

#[test]
fn distances_of_psns_and_orders_are_those_on_the_circle() {
    each_pair(|a, b| {
        let wide = distance(a, b);
        assert_eq!(i64::from(Psn(a).since(Psn(b))), wide, "{a} since {b}");
        assert_eq!(i64::from(Order(a).since(Order(b))), wide, "{a} since {b}");
        let after = (u64::from(a) + u64::from(b)) % (1 << 32);
        assert_eq!(u64::from(Psn(a).plus(b).0), after, "{a} plus {b}");
        assert_eq!(Psn(b).plus(Psn(a).since(Psn(b)) as u32), Psn(a));
        // Which of two comes first is the same from both sides, except where they are half of all numbers apart.
        if wide != -(1 << 31) {
            assert_eq!(i64::from(Psn(b).since(Psn(a))), -wide);
        }
    });
}

fn judge_stamps<const SHIFT: u32>(a: u32, b: u32) {
    let unit = 1u64 << SHIFT;
    // Times of different wraps, and within a unit.
    for (stamped, now) in [
        (u64::from(a) * unit, u64::from(b) * unit),
        (u64::from(a) * unit + unit - 1, u64::from(b) * unit + (unit << 32)),
    ] {
        let stamp = Stamp::<SHIFT>::of(stamped);
        let units = (i64::from(b) - i64::from(a)).rem_euclid(1 << 32);
        assert_eq!(i64::from(stamp.units_until(now)), units, "{stamped} to {now}");
        assert_eq!(stamp.is_since(now), distance(a, b) >= 0, "{stamped} since {now}");
    }
}

#[test]
fn stamps_tell_spans_and_what_came_first() {
    each_pair(|a, b| {
        judge_stamps::<0>(a, b);
        judge_stamps::<6>(a, b);
        judge_stamps::<10>(a, b);
    });
}
