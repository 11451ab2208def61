//! A meter of a queue's depth over time.

use crate::time::Picos;

/// Bins of the distribution; the last one holds everything deeper.
const BINS: usize = 512;
/// Bins of one unit (a BDP of the link).
const BINS_PER_UNIT: u64 = 64;

/// Time-weighted mean and distribution of a queue's depth, in units given at the start.
#[derive(Clone, Debug)]
pub struct DepthMeter {
    unit_bytes: u64,
    since: Picos,
    changed: Picos,
    depth_bytes: u64,
    area: u128,
    bins: Vec<Picos>,
    /// Area and greatest depth since [`DepthMeter::take_interval`].
    interval_area: u128,
    interval_max_bytes: u64,
    interval_since: Picos,
}

impl DepthMeter {
    /// An empty queue. `unit_bytes` is what depths are told in.
    #[must_use]
    pub fn new(unit_bytes: u64) -> DepthMeter {
        let unit_bytes = unit_bytes.max(1);
        DepthMeter {
            unit_bytes,
            since: 0,
            changed: 0,
            depth_bytes: 0,
            area: 0,
            bins: vec![0; BINS],
            interval_area: 0,
            interval_max_bytes: 0,
            interval_since: 0,
        }
    }

    /// A meter of intervals alone: it has no distribution.
    #[must_use]
    pub fn of_intervals() -> DepthMeter {
        DepthMeter { bins: Vec::new(), ..DepthMeter::new(1) }
    }

    /// The queue holds `depth_bytes` from now on.
    pub fn set(&mut self, now: Picos, depth_bytes: u64) {
        let span = now - self.changed;
        if span > 0 {
            let area = u128::from(span) * u128::from(self.depth_bytes);
            self.area += area;
            self.interval_area += area;
            let bin = (self.depth_bytes * BINS_PER_UNIT / self.unit_bytes) as usize;
            if let Some(bin) = self.bins.get_mut(bin.min(BINS - 1)) {
                *bin += span;
            }
            self.changed = now;
        }
        self.depth_bytes = depth_bytes;
        self.interval_max_bytes = self.interval_max_bytes.max(depth_bytes);
    }

    /// Mean and greatest depth since the last call, in bytes.
    pub fn take_interval(&mut self, now: Picos) -> (f64, u64) {
        self.set(now, self.depth_bytes);
        let span = now - self.interval_since;
        let mean = if span == 0 { 0.0 } else { self.interval_area as f64 / span as f64 };
        let max_bytes = self.interval_max_bytes;
        (self.interval_area, self.interval_since) = (0, now);
        self.interval_max_bytes = self.depth_bytes;
        (mean, max_bytes)
    }

    /// Begins to measure again.
    pub fn reset(&mut self, now: Picos) {
        self.set(now, self.depth_bytes);
        self.since = now;
        self.area = 0;
        self.bins.fill(0);
    }

    /// Mean depth since the last reset, in units.
    #[must_use]
    pub fn mean_units(&self) -> f64 {
        let span = self.changed - self.since;
        if span == 0 { 0.0 } else { self.area as f64 / span as f64 / self.unit_bytes as f64 }
    }

    /// Depth that several queues together exceed for a share of the time at most, in units. It is
    /// that of a queue looked at at random.
    #[must_use]
    pub fn quantile_units(meters: &[&DepthMeter], share: f64) -> f64 {
        let total: Picos = meters.iter().flat_map(|m| &m.bins).sum();
        let mut below = 0;
        for bin in 0..BINS {
            below += meters.iter().map(|m| m.bins[bin]).sum::<Picos>();
            if below as f64 >= (1.0 - share) * total as f64 {
                return (bin + 1) as f64 / BINS_PER_UNIT as f64;
            }
        }
        BINS as f64 / BINS_PER_UNIT as f64
    }
}
