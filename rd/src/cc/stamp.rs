//! Times that controllers keep, in 32 bits, since a flow's state must be small.

use crate::units::Nanos;

/// A time in units of 2^`SHIFT` ns. It wraps, after 4.3 s with a `SHIFT` of 0: a span that is a whole number of wraps
/// longer looks like the short one. Each use of a stamp states the cost of that.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stamp<const SHIFT: u32>(u32);

impl<const SHIFT: u32> Stamp<SHIFT> {
    /// The stamp of this time.
    #[must_use]
    #[inline(always)]
    pub const fn of(time: Nanos) -> Self {
        Stamp((time >> SHIFT) as u32)
    }

    /// Units from this stamp to `now`.
    #[must_use]
    #[inline(always)]
    pub const fn units_until(self, now: Nanos) -> u32 {
        Self::of(now).0.wrapping_sub(self.0)
    }

    /// Whether it is `time` or later; a stamp half a wrap apart is not.
    #[must_use]
    #[inline(always)]
    pub const fn is_since(self, time: Nanos) -> bool {
        self.0.wrapping_sub(Self::of(time).0) as i32 >= 0
    }

    /// The same as [`Stamp::units_until`] in ns.
    #[must_use]
    #[inline(always)]
    pub const fn ns_until(self, now: Nanos) -> f32 {
        self.units_until(now) as f32 * (1_u32 << SHIFT) as f32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_hold_over_a_wrap_and_are_rounded_to_units() {
        let wrap = 1_u64 << 32;
        assert_eq!(Stamp::<0>::of(wrap - 5).ns_until(wrap + 7), 12.0);
        assert_eq!(Stamp::<0>::of(7).units_until(wrap + 7), 0, "a whole wrap looks like nothing");
        let stamp = Stamp::<6>::of((wrap << 6) - 64);
        assert!(stamp.is_since((wrap << 6) - 65) && !stamp.is_since(wrap << 6));
        assert_eq!((stamp.units_until((wrap << 6) + 63), stamp.ns_until(wrap << 6)), (1, 64.0));
    }
}
