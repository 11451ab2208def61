//! Estimates of the network for one flow: base and typical round trip, noise, bandwidth, and so the bandwidth-delay
//! product (BDP). All controllers share them.
//!
//! On real sockets a round trip has jitter that no queue makes. A controller that compares it with the least one seen
//! takes jitter for congestion. So a filter takes the median of three samples. The noise that is left is estimated from
//! the differences between neighbours, which a queue moves less. Targets are never below that noise.
//!
//! Controllers read the derived values (the typical round trip, the noise) for every packet. So they are cached, and
//! computed again only when an estimate moves: while a flow learns, when the least round trip changes, and about once a
//! round trip where the link's speed is unknown.

use super::options::TypicalRtts;
use super::{AckSample, FlowParams};
use crate::units::{Nanos, SECOND};

/// Samples of one filtered delay.
const BLOCK: usize = 3;
/// Samples after which a flow knows its noise; a multiple of [`BLOCK`]. Until then the engine lets
/// little be in flight: a flow's own queue is no noise.
const LEARNED: u8 = super::LEARNING_SAMPLES;
const LEARNED_1: u8 = LEARNED + 1;
/// Length of a window of the least round trip, in s; this one and the one before count.
const WINDOW_S: u8 = 5;
/// Binary logarithm of the packet size in bytes up to which all round trips count as alike: the
/// packets of networks. Those of a loopback can be larger.
const LARGE: u8 = 13;
/// Factor for the part of a difference beyond that of queues: this is noise, up to all of it.
const REST: f32 = 2.0;
/// Differences that queues may make, in base round trips.
const QUEUES: f32 = 0.5;
/// p97 of an exponential distribution in units of its mean.
const TAIL: f32 = 3.5;
/// Round trip assumed before any measurement, in ns.
const RTT_UNKNOWN_NS: f32 = 20_000.0;
/// Greatest bandwidth-delay product, in bytes: 16 GiB, which is 400 Gb/s over 340 ms. It bounds wrong guesses at
/// bandwidth or round trip.
const BDP_MAX_BYTES: f32 = 17_179_869_184.0;
/// Least number of the port's bursts in a round trip, whatever the measurements: with fewer, a host that sends and
/// receives in bursts is idle between them.
const BURSTS: f32 = 2.0;
/// Bandwidth assumed before any measurement: 100 Gb/s, in bytes per ns.
const LINK_UNKNOWN: f32 = 12.5;

/// Bytes in a round trip that any link is good for: the initial window of RFC 6928.
const FIRST_BYTES: f32 = 14_600.0;
/// Shortest time of a measurement of the delivered rate, in ns.
const SPAN_LEAST_NS: f32 = 100_000.0;
/// [`Pipe::count_bytes`] of a flow that had nothing to send: the next measurement begins with the packet that is acknowledged next.
const RESTS: u32 = u32::MAX;

/// [`Pipe::samples`] of an estimate that takes each sample as it is; see [`Pipe::raw`].
const RAW: u8 = u8::MAX;

/// A mark was seen: the network marks.
const MARKS: u8 = 1;
/// The base round trip was given.
const GIVEN: u8 = 2;
/// No round trip was seen so far.
const UNSEEN: u8 = 4;
/// [`Pipe::speed`] is a guess: nothing was delivered so far.
const GUESS: u8 = 8;
/// The link's speed is unknown, and [`Pipe::speed`] is the delivered rate.
const NO_LINK: u8 = 16;
/// The noise is not known yet.
const LEARNING: u8 = 32;
/// Some packets were larger than [`LARGE`].
const SIZES: u8 = 64;
/// The window of the least round trip is over.
const OVER: u8 = 128;
/// With any of these a sample is not [`Pipe::is_plain`].
const ODD: u8 = NO_LINK | LEARNING | SIZES | OVER;

/// See the module. All times are in ns; [`f32`] keeps them to 7 digits.
#[derive(Clone, Copy, Debug)]
pub struct Pipe {
    /// Bytes per ns: the link's or, if that is unknown, the most delivered lately.
    speed: f32,
    /// Mean difference of neighbouring raw samples; while the flow learns, the part of those so far.
    jitter_ns: f32,
    /// The same of neighbouring filtered delays.
    swing_ns: f32,
    /// Least of this window and of the one before; infinite without one.
    least_ns: f32,
    least_before_ns: f32,
    /// Derived: see [`Pipe::typical_rtt_ns`] and [`Pipe::noise_ns`].
    typical_ns: f32,
    noise_ns: f32,
    /// Median of the latest whole block.
    filtered_ns: f32,
    /// The first two samples of this block; until the second comes, that is the last one before.
    recent_ns: [f32; BLOCK - 1],
    /// Bytes delivered since, below [`RESTS`].
    count_bytes: u32,
    count_at_us: u32,
    /// Start of the present window of the least round trip, in s, wrapping.
    window_at_s: u8,
    /// Binary logarithms: in the lower four bits of the largest mean packet of an acknowledgement, in
    /// bytes; in the others of twice the most that the port sends at once, in KiB, 0 for less than one.
    sizes: u8,
    /// Samples taken, as far as it matters: [`LEARNED`] and those of the present block.
    samples: u8,
    /// [`MARKS`], [`GIVEN`] and so on.
    flags: u8,
}

impl Pipe {
    /// A flow's first estimates.
    #[must_use]
    pub fn new(params: &FlowParams) -> Pipe {
        let first = params.first_rtt_ns as f32;
        let (least_ns, least_before_ns, rtt_flag) = match (params.base_rtt_ns, params.first_rtt_ns)
        {
            (0, 0) => (f32::INFINITY, RTT_UNKNOWN_NS, UNSEEN),
            (0, _) => (first, f32::INFINITY, 0),
            (base, _) => (base as f32, base as f32, GIVEN),
        };
        let link = params.link_bytes_per_s as f32 / SECOND as f32;
        let (speed, link_flags) =
            if link > 0.0 { (link, 0) } else { (LINK_UNKNOWN, NO_LINK | GUESS) };
        let mut pipe = Pipe {
            speed,
            jitter_ns: 0.0,
            swing_ns: 0.0,
            least_ns,
            least_before_ns,
            typical_ns: 0.0,
            noise_ns: 0.0,
            filtered_ns: first,
            recent_ns: [first; BLOCK - 1],
            count_bytes: RESTS,
            count_at_us: 0,
            window_at_s: (params.now / SECOND) as u8,
            sizes: LARGE | burst_exponent(params.burst_bytes) << 4,
            samples: 0,
            flags: rtt_flag | link_flags | LEARNING,
        };
        pipe.derive();
        pipe
    }

    /// Estimates of a flow that reads the network as the papers do. Every sample counts as it is: there is no filter, no
    /// jitter and no noise, and nothing to learn. The base is the given round trip or a lesser sample, for the whole
    /// life of the flow. The network counts as one that marks, so an unmarked packet is never late by its delay. No
    /// sample is [`Pipe::is_plain`].
    #[must_use]
    pub fn raw(params: &FlowParams) -> Pipe {
        let mut pipe = Pipe::new(params);
        pipe.samples = RAW;
        pipe.flags = pipe.flags & !GIVEN | MARKS;
        pipe
    }

    /// Takes an acknowledgement's sample. Call it first, for each one. True if the base, the typical round trip, the
    /// noise or the bandwidth moved, so that derived values must move, too.
    #[inline]
    pub fn on_ack(&mut self, ack: &AckSample) -> bool {
        if let Some(rtt) = ack.rtt_ns.map(short_f32)
            && self.is_plain(ack, rtt)
        {
            self.apply_mark(ack);
            self.take(ack.now, rtt);
            return false;
        }
        self.on_odd_sample(ack, ack.rtt_ns.map(short_f32))
    }

    /// Whether a round trip (the acknowledgement's own, or one without its path's extra delay) is plain, as nearly all
    /// are. Then the flow knows the speed of its link and its noise, packets have the usual size, and it is not a new
    /// least one. A plain one goes to [`Pipe::take`], which moves nothing, others to [`Pipe::on_odd_sample`]. They are
    /// apart, and inlined, so that a controller's fast path is short and calls nothing. A controller that uses marks
    /// calls [`Pipe::apply_mark`] as well.
    #[inline(always)]
    pub fn is_plain(&self, ack: &AckSample, rtt_ns: f32) -> bool {
        // Sizes of 2^(LARGE + 1) bytes and above are unusual. So are more packets than 16 bits count: a plain
        // acknowledgement has less than 2^30 bytes.
        let is_usual = ack.acked_bytes >> (LARGE + 1) < u64::from(ack.acked_packets as u16);
        is_usual && self.flags & ODD == 0 && rtt_ns >= self.least_ns
    }

    /// Notes whether an acknowledgement has a mark.
    #[inline(always)]
    pub fn apply_mark(&mut self, ack: &AckSample) {
        if ack.ce_bytes > 0 {
            self.flags |= MARKS;
        }
    }

    /// See [`Pipe::is_plain`].
    #[inline(always)]
    pub fn take(&mut self, now: Nanos, rtt: f32) {
        match self.samples {
            LEARNED => self.recent_ns[0] = rtt,
            LEARNED_1 => self.recent_ns[1] = rtt,
            _ => {
                self.samples = LEARNED;
                self.filtered_ns = median(self.recent_ns, rtt);
                if self.flags & GIVEN == 0 && self.is_window_over(now) {
                    self.flags |= OVER;
                }
                return;
            }
        }
        self.samples += 1;
    }

    /// See [`Pipe::is_plain`]. Returns the same as [`Pipe::on_ack`].
    pub fn on_odd_sample(&mut self, ack: &AckSample, rtt_ns: Option<f32>) -> bool {
        self.apply_mark(ack);
        let mut moved = self.flags & NO_LINK != 0 && self.count(ack);
        let Some(rtt_ns) = rtt_ns else { return moved };
        let (rtt, sizes) = (greater(rtt_ns, 1.0), self.sizes);
        if self.samples == RAW {
            self.filtered_ns = rtt;
            if rtt < self.least_ns {
                self.lower(rtt);
                moved = true;
            }
            return moved;
        }
        if self.is_small(ack, rtt) {
            return moved;
        }
        moved |= self.sizes != sizes;
        if self.flags & OVER != 0 {
            self.turn(ack.now, rtt);
            moved = true;
        }
        if rtt < self.least_ns && self.flags & GIVEN == 0 {
            self.lower(rtt);
            moved = true;
        }
        if self.flags & LEARNING != 0 {
            self.learn(ack, rtt);
            return true;
        }
        self.take(ack.now, rtt);
        moved
    }

    /// Takes a round trip that is no sample of delay. It only counts if it is a new least one.
    pub fn lower_base(&mut self, rtt_ns: f32) {
        if rtt_ns < self.least_ns {
            self.lower(rtt_ns);
        }
    }

    /// Takes a new least round trip.
    fn lower(&mut self, rtt: f32) {
        if self.flags & UNSEEN != 0 {
            self.flags &= !UNSEEN;
            self.least_before_ns = f32::INFINITY;
        }
        self.least_ns = rtt;
        self.derive();
    }

    fn is_window_over(&self, now: Nanos) -> bool {
        ((now / SECOND) as u8).wrapping_sub(self.window_at_s) >= WINDOW_S
    }

    /// Begins the next window of the least round trip.
    fn turn(&mut self, now: Nanos, rtt: f32) {
        self.flags &= !OVER;
        self.window_at_s = (now / SECOND) as u8;
        self.least_before_ns = self.least_ns;
        self.least_ns = rtt;
        self.derive();
    }

    /// Learns the noise from one of the first samples.
    fn learn(&mut self, ack: &AckSample, rtt: f32) {
        if self.flags & GIVEN == 0 && self.is_window_over(ack.now) {
            self.turn(ack.now, rtt);
        }
        // A marked packet has met a queue, which is no noise.
        let learns = ack.ce_bytes == 0;
        let at = usize::from(self.samples) % BLOCK;
        let last = self.recent_ns[(at + 1) % 2];
        let base = self.base_rtt_ns();
        if last > 0.0 && learns {
            let taken = f32::from(self.samples);
            learn_mean(&mut self.jitter_ns, (rtt - last).abs(), base, taken, LEARNED.into());
        }
        if at + 1 == BLOCK {
            let median = median(self.recent_ns, rtt);
            if learns {
                let (difference, block) = ((median - self.filtered_ns).abs(), BLOCK as f32);
                let taken = f32::from(self.samples) / block;
                learn_mean(&mut self.swing_ns, difference, base, taken, f32::from(LEARNED) / block);
            }
            self.filtered_ns = median;
        }
        self.recent_ns[at.min(1)] = rtt;
        self.samples += 1;
        if self.samples >= LEARNED {
            self.flags &= !LEARNING;
        }
        self.derive();
    }

    /// Derives values from the estimates.
    fn derive(&mut self) {
        self.typical_ns = greater(self.lone_ns(), self.bursts_ns());
        self.noise_ns = TAIL * above(self.swing_ns, QUEUES * self.base_rtt_ns());
    }

    /// Round trip of a lone packet (ns): the least one plus the mean jitter.
    fn lone_ns(&self) -> f32 {
        self.base_rtt_ns() + above(self.jitter_ns, QUEUES * self.base_rtt_ns())
    }

    /// Time (ns) of [`BURSTS`] on the link.
    fn bursts_ns(&self) -> f32 {
        let burst_bytes = (1_u32 << (self.sizes >> 4) >> 1) << 10;
        BURSTS * burst_bytes as f32 / self.speed
    }

    /// True if the packets are small. They take less time than large ones where copies or time on the link count, and
    /// the window is made for the round trips of the largest. The first larger packet begins the least round trip
    /// again.
    fn is_small(&mut self, ack: &AckSample, rtt: f32) -> bool {
        if ack.acked_packets == 0 || ack.acked_bytes == 0 {
            return false;
        }
        let size = (ack.acked_bytes as u32 / ack.acked_packets).max(1).ilog2() as u8;
        let (size, largest) = (size.clamp(LARGE, 15), self.sizes & 15);
        if size > largest {
            self.sizes += size - largest;
            self.flags |= SIZES;
            if self.flags & GIVEN == 0 {
                self.flags |= UNSEEN;
                self.lower(rtt);
            }
        }
        size + 1 < largest
    }

    /// Measures the delivered rate, over a round trip and at least 100 us, or until the application has no more to send and all
    /// has arrived. The rest that follows belongs to no measurement. True if the bandwidth moved.
    fn count(&mut self, ack: &AckSample) -> bool {
        let now_us = (ack.now / 1_000) as u32;
        if self.count_bytes == RESTS {
            (self.count_bytes, self.count_at_us) = (0, (ack.sent_at / 1_000) as u32);
        }
        self.count_bytes = self.count_bytes.saturating_add(ack.acked_bytes as u32).min(RESTS - 1);
        let span_ns = now_us.wrapping_sub(self.count_at_us) as f32 * 1e3;
        let rests = ack.app_limited && ack.in_flight_bytes == 0;
        if !rests && span_ns < greater(self.lone_ns(), SPAN_LEAST_NS) {
            return false;
        }
        let rate = self.count_bytes as f32 / greater(span_ns, self.lone_ns());
        (self.count_bytes, self.count_at_us) = (if rests { RESTS } else { 0 }, now_us);
        let before = if self.flags & GUESS == 0 { self.speed } else { 0.0 };
        // An application that sends little says little about the link; a peak fades within seconds.
        let (rate, least) = match ack.app_limited {
            true => (greater(rate, FIRST_BYTES / self.base_rtt_ns()), before),
            false => (rate, before * (1.0 - 1.0 / 1024.0)),
        };
        let moved = greater(rate, least) != before;
        if moved {
            self.speed = greater(rate, least);
            self.flags &= !GUESS;
            self.derive();
        }
        moved
    }

    /// Least round trip within the last 5 to 10 s.
    #[must_use]
    #[inline]
    pub fn base_rtt_ns(&self) -> f32 {
        lesser(self.least_ns, self.least_before_ns)
    }

    /// Unit of targets and patience (ns): the least round trip or, where that is less, the time of two bursts of
    /// the port.
    #[must_use]
    pub fn scale_ns(&self) -> f32 {
        greater(self.base_rtt_ns(), self.bursts_ns())
    }

    /// Base round trip with the mean of the jitter: the time of a lone packet, or of two bursts if they take longer.
    #[must_use]
    #[inline]
    pub fn typical_rtt_ns(&self) -> f32 {
        self.typical_ns
    }

    /// Filtered delay above the base: that of queues, apart from [`Pipe::noise_ns`]. Over several paths it is that of
    /// the path in the middle.
    #[must_use]
    #[inline]
    pub fn queue_delay_ns(&self) -> f32 {
        greater(self.filtered_ns - self.base_rtt_ns(), 0.0)
    }

    /// The filtered round trip itself.
    #[must_use]
    #[inline]
    pub fn middle_rtt_ns(&self) -> f32 {
        self.filtered_ns
    }

    /// p97 of the filtered delay without queues: no target should lie below.
    #[must_use]
    #[inline]
    pub fn noise_ns(&self) -> f32 {
        self.noise_ns
    }

    /// A paper's target of `round_trips`, in ns, raised to what the noise allows.
    #[must_use]
    #[inline]
    pub fn target_ns(&self, round_trips: TypicalRtts) -> f32 {
        greater(round_trips.0 * self.typical_ns, self.noise_ns)
    }

    /// Bytes per ns of the link; the highest delivered rate if its speed is unknown.
    #[must_use]
    #[inline]
    pub fn bytes_per_ns(&self) -> f32 {
        self.speed
    }

    /// Whether enough samples were taken to know the noise. Until then the engine lets little be
    /// in flight.
    #[must_use]
    pub fn has_learned(&self) -> bool {
        self.samples >= LEARNED
    }

    /// Whether [`Pipe::bytes_per_ns`] is only the delivered rate so far.
    #[must_use]
    #[inline]
    pub fn learns_rate(&self) -> bool {
        self.flags & (NO_LINK | GUESS) == NO_LINK
    }

    /// Bandwidth-delay product at the typical round trip, in bytes; at most 16 GiB.
    #[must_use]
    #[inline]
    pub fn bdp_bytes(&self) -> f32 {
        lesser(self.speed * self.typical_ns, BDP_MAX_BYTES)
    }

    /// Whether the network has marked a packet.
    #[must_use]
    #[inline]
    pub fn has_marks(&self) -> bool {
        self.flags & MARKS != 0
    }

    /// Whether a sample counts as marked. Until the network has marked anything, `late` decides: without ECN a
    /// controller that uses only marks would control nothing.
    #[must_use]
    #[inline(always)]
    pub fn is_marked(&self, ack: &AckSample, late: impl FnOnce() -> bool) -> bool {
        if ack.ce_bytes > 0 {
            return true;
        }
        if self.has_marks() {
            return false;
        }
        core::hint::cold_path();
        late()
    }

    /// The base round trip and the typical one, for a [`super::View`].
    #[must_use]
    pub fn rtts_ns(&self) -> (Nanos, Nanos) {
        (self.base_rtt_ns() as Nanos, self.typical_rtt_ns() as Nanos)
    }
}

/// The greater one. [`f32::max`] takes five instructions for this, as it looks for a NaN; none of the
/// estimates is one.
#[must_use]
#[inline]
pub fn greater(a: f32, b: f32) -> f32 {
    if a > b { a } else { b }
}

/// The lesser one; see [`greater`].
#[must_use]
#[inline]
pub fn lesser(a: f32, b: f32) -> f32 {
    if a < b { a } else { b }
}

/// A count of ns or bytes as a float. None has the highest bit, and without a check of it this is one instruction. A
/// round trip that had it would be negative, and so not [`Pipe::is_plain`].
#[must_use]
#[inline(always)]
pub fn short_f32(number: u64) -> f32 {
    number as i64 as f32
}

/// Binary logarithm of twice as many KiB, rounded up; at most 15, which is 16 MiB. 0 for less than one.
fn burst_exponent(burst_bytes: u32) -> u8 {
    let kib = burst_bytes >> 10;
    if kib == 0 { 0 } else { (kib.next_power_of_two().ilog2() + 1).min(15) as u8 }
}

/// Takes one of `all` differences into their mean, after `taken` of them. All have the same weight: with more for the
/// latest, the result would vary more. Differences without information count as 0, so that a few others do not stand
/// for all. An outlier counts for at most four times the mean so far or one base round trip, so that spikes do not
/// carry the mean away.
fn learn_mean(mean_ns: &mut f32, difference_ns: f32, base_ns: f32, taken: f32, all: f32) {
    let so_far_ns = *mean_ns * all / taken.max(1.0);
    *mean_ns += difference_ns.min((4.0 * so_far_ns).max(base_ns)) / all;
}

/// The rest of a mean difference without the part of queues.
fn above(mean_ns: f32, queues_ns: f32) -> f32 {
    (REST * (mean_ns - queues_ns)).clamp(0.0, mean_ns)
}

fn median([a, b]: [f32; BLOCK - 1], c: f32) -> f32 {
    greater(lesser(a, b), lesser(greater(a, b), c))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT_NS: Nanos = 10_000;

    /// A flow that does not know its link, after `count` lone messages of 64 bytes, one each 50 ms. The time of the last one.
    fn after_lone_messages(count: u64) -> (Pipe, Nanos) {
        let params = FlowParams {
            now: 0,
            datagram_bytes: 1_472,
            paths: 1,
            first_rtt_ns: RTT_NS,
            base_rtt_ns: 0,
            link_bytes_per_s: 0,
            burst_bytes: 1_472,
            trimming: false,
        };
        let mut pipe = Pipe::new(&params);
        for nth in 1..=count {
            pipe.on_ack(&acked(nth * 50_000_000, 1, true));
        }
        (pipe, count * 50_000_000)
    }

    fn acked(now: Nanos, packets: u32, is_last: bool) -> AckSample {
        let bytes = if is_last { 96 } else { 1_472 * u64::from(packets) };
        AckSample {
            now,
            sent_at: now - RTT_NS,
            acked_bytes: bytes,
            acked_packets: packets,
            rtt_ns: Some(RTT_NS),
            path: 0,
            ce_bytes: 0,
            lag_packets: 0,
            in_flight_bytes: if is_last { 0 } else { bytes },
            app_limited: is_last,
        }
    }

    #[test]
    fn the_rate_of_an_application_that_rests_is_not_the_link_s() {
        let (pipe, _) = after_lone_messages(200);
        let bytes = pipe.bytes_per_ns() * RTT_NS as f32;
        assert!(bytes >= 10.0 * 1_460.0, "{bytes} bytes in a round trip");
        assert!(pipe.typical_rtt_ns() < 2.0 * RTT_NS as f32, "{}", pipe.typical_rtt_ns());
    }

    #[test]
    fn the_rate_delivered_after_a_rest_does_not_include_the_rest() {
        let (mut pipe, last) = after_lone_messages(200);
        // 100 packets a round trip.
        for nth in 0..40 {
            pipe.on_ack(&acked(last + 3 * SECOND + nth * RTT_NS, 100, false));
        }
        let bytes = pipe.bytes_per_ns() * RTT_NS as f32;
        assert!((130_000.0..150_000.0).contains(&bytes), "{bytes} bytes in a round trip");
    }

    #[test]
    fn a_round_trip_holds_two_bursts() {
        for (burst_bytes, least_kib) in
            [(0, 0), (1_000, 0), (1_024, 2), (65_507, 128), (u32::MAX, 32_768)]
        {
            let params = FlowParams {
                now: 0,
                datagram_bytes: 1_472,
                paths: 4,
                first_rtt_ns: 10,
                base_rtt_ns: 0,
                link_bytes_per_s: 1_250_000_000,
                burst_bytes,
                trimming: false,
            };
            let least_bytes = f32::max((least_kib << 10) as f32, 12.5);
            let bdp_bytes = Pipe::new(&params).bdp_bytes();
            assert!((bdp_bytes / least_bytes - 1.0).abs() < 0.01, "{burst_bytes}: {bdp_bytes}");
        }
    }
}
