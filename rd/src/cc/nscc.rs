//! NSCC and SMaRTT: a window steered by marks, delay and trims together (docs/cc/nscc.md and
//! docs/cc/smartt.md). One controller with two sets of parameters: `nscc` follows the Ultra
//! Ethernet Consortium's public simulator, `smartt` the paper (its sections are cited here).

use super::paths::{self, EcnBitmap, Reps};
use super::pipe::Pipe;
use super::settings::{self, Setting};
use super::{
    Ack, AckPolicy, Controller, FlowParams, Loss, LossDetection, LossKind, Scheme, Sent, Timeout,
    View,
};
use crate::units::{Ecn, MILLISECOND, Nanos};
use alloc::boxed::Box;
use alloc::sync::Arc;
use rand_pcg::Pcg32;

const TARGET: usize = 0;
const TARGET_TRIM: usize = 1;
const MAX_WINDOW: usize = 2;
const FAIR: usize = 3;
const PROPORTIONAL: usize = 4;
const STEADY: usize = 5;
const FAST: usize = 6;
const DECREASE: usize = 7;
const GAIN: usize = 8;
const QA_SHARE: usize = 9;
const QA_DELAY: usize = 10;
const PATHS_BY: usize = 11;
const COUNT: usize = 12;

/// The increases are given for this BDP: 100 Gb/s times 12 us, in bytes.
const REFERENCE_BDP_BYTES: f32 = 150_000.0;
/// Round trip of that BDP.
const REFERENCE_RTT_NS: f32 = 12_000.0;
/// Packet that the increases and the gain are given for. Larger datagrams count as several.
const REFERENCE_PACKET_BYTES: u32 = 4096;
/// Queueing delay that counts as none, unless the noise is more.
const EMPTY_NS: f32 = 1_000.0;
/// A multiplicative decrease keeps at least this share (equation 1).
const KEEP_LEAST: f32 = 0.5;
/// A fast increase adds at most so many bytes per byte acknowledged: 2 MTU per ACK.
const FAST_MOST: f32 = 2.0;
/// Increases are applied once so many datagrams were acknowledged, or once per round trip.
const ADJUST_DATAGRAMS: u32 = 8;
/// The greatest window takes at least so many datagrams, however small the BDP is.
const MAX_WINDOW_DATAGRAMS: f32 = 2.0;
/// Delay fed to the average by an ACK that is late but unmarked, in base round trips.
const STALE_RTTS: f32 = 0.25;
/// How long REPS stays with paths that work once one may be dead.
const FREEZE_NS: Nanos = 10 * MILLISECOND;
/// Unit of the stored times, as a power of two in ns. 32 bits of it wrap after 549 s.
const TICK_SHIFT: u32 = 7;

/// Where the two schemes differ by more than a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Form {
    Nscc,
    Smartt,
}

const fn setting(
    name: &'static str,
    (default, min, max): (f32, f32, f32),
    help: &'static str,
) -> Setting {
    Setting { name, default, min, max, help }
}

/// The parameters; the arguments are where the schemes differ.
const fn table(
    target: f32,
    target_trim: f32,
    fair: f32,
    proportional: f32,
    steady: f32,
    fast: f32,
) -> [Setting; COUNT] {
    [
        setting(
            "target",
            (target, 0.05, 10.0),
            "queueing delay aimed at, in typical round trips, noise apart",
        ),
        setting("target_trim", (target_trim, 0.05, 10.0), "the same where switches trim"),
        setting("max_window", (1.5, 1.0, 8.0), "greatest window, in BDP (paper III-J)"),
        setting("fair", (fair, 0.0, 100.0), "fair increase a round trip, in packets times a"),
        setting(
            "proportional",
            (proportional, 0.0, 100.0),
            "proportional increase a round trip without a queue, in packets times a",
        ),
        setting(
            "steady",
            (steady, 0.0, 10.0),
            "increase a round trip in any case, in packets times a",
        ),
        setting(
            "fast",
            (fast, 0.0, 2.0),
            "fast increase, bytes per byte acknowledged; nscc: times a",
        ),
        setting("decrease", (0.8, 0.05, 1.0), "factor of the multiplicative decrease (equation 1)"),
        setting("gain", (0.0125, 0.0001, 1.0), "weight of one packet in the average delay"),
        setting(
            "qa_share",
            (0.125, 0.0, 1.0),
            "QuickAdapt only below this share of the greatest window; smartt: without trimming",
        ),
        setting("qa_delay", (4.0, 1.0, 100.0), "QuickAdapt above this delay, in targets"),
        setting("paths_by", (0.0, 0.0, 3.0), "0 REPS, 1 oblivious, 2 ECN bitmap, 3 mixed"),
    ]
}

static NSCC: [Setting; COUNT] = table(0.7, 0.75, 2.0, 4.0, 0.15, 0.25);
static SMARTT: [Setting; COUNT] = table(0.5, 0.5, 5.0, 1.0, 0.0, 2.0);

/// What all flows of a scheme share.
#[derive(Clone, Debug)]
struct Shared {
    form: Form,
    values: [f32; COUNT],
}

/// Builds NSCC or SMaRTT controllers.
#[derive(Clone, Debug)]
pub struct NsccScheme {
    shared: Arc<Shared>,
}

impl NsccScheme {
    /// As in the consortium's simulator: `nscc`.
    #[must_use]
    pub fn nscc() -> NsccScheme {
        NsccScheme::new(Form::Nscc, settings::defaults(&NSCC))
    }

    /// As in the paper: `smartt`.
    #[must_use]
    pub fn smartt() -> NsccScheme {
        NsccScheme::new(Form::Smartt, settings::defaults(&SMARTT))
    }

    fn new(form: Form, values: [f32; COUNT]) -> NsccScheme {
        NsccScheme { shared: Arc::new(Shared { form, values }) }
    }
}

impl Scheme for NsccScheme {
    fn name(&self) -> &'static str {
        match self.shared.form {
            Form::Nscc => "nscc",
            Form::Smartt => "smartt",
        }
    }

    fn ack_policy(&self) -> AckPolicy {
        AckPolicy::PerPacket
    }

    fn loss_detection(&self) -> LossDetection {
        LossDetection::Receiver
    }

    fn learns(&self) -> bool {
        true
    }

    fn settings(&self) -> &'static [Setting] {
        match self.shared.form {
            Form::Nscc => &NSCC,
            Form::Smartt => &SMARTT,
        }
    }

    fn values(&mut self) -> &mut [f32] {
        &mut Arc::make_mut(&mut self.shared).values
    }

    fn build(&self, params: &FlowParams, seed: u64) -> Box<dyn Controller> {
        Box::new(Nscc::new(&self.shared, params, seed))
    }
}

/// How bursts are spread, one variant for each value of `paths_by`. This is the path state; a flow
/// has it from its first burst over several paths on.
#[derive(Clone, Debug)]
enum Spread {
    Oblivious(Pcg32),
    Reps(Reps, Pcg32),
    Bitmap(EcnBitmap),
    /// Recycled paths first; without one, the next that was not marked.
    Mixed(Box<(Reps, EcnBitmap)>),
}

impl Spread {
    fn new(paths_by: f32, seed: u64) -> Spread {
        match paths_by as u8 {
            0 => Spread::Reps(Reps::default(), paths::rng(seed)),
            1 => Spread::Oblivious(paths::rng(seed)),
            2 => Spread::Bitmap(EcnBitmap::default()),
            _ => Spread::Mixed(Box::default()),
        }
    }

    fn told(&mut self, path: u16, bad: bool) {
        match self {
            Spread::Oblivious(_) => {}
            Spread::Reps(reps, _) => reps.on_ack(path, bad),
            Spread::Bitmap(bitmap) => bitmap.on_ack(path, bad),
            Spread::Mixed(both) => {
                both.0.on_ack(path, bad);
                both.1.on_ack(path, bad);
            }
        }
    }

    fn freeze(&mut self, now: Nanos) {
        if let Spread::Reps(reps, _) = self {
            reps.freeze(now.saturating_add(FREEZE_NS));
        }
    }

    fn next(&mut self, now: Nanos, paths: u16) -> u16 {
        match self {
            Spread::Oblivious(rng) => paths::uniform(rng, paths),
            Spread::Reps(reps, rng) => reps.next(now, rng, paths),
            Spread::Bitmap(bitmap) => bitmap.next(paths),
            Spread::Mixed(both) => match both.0.recycle(paths) {
                Some(path) => path,
                None => both.1.next(paths),
            },
        }
    }
}

/// One flow. Windows are in bytes, spans in ns, stored times in ticks of 2^[`TICK_SHIFT`] ns.
#[derive(Clone, Debug)]
struct Nscc {
    shared: Arc<Shared>,
    spread: Option<Box<Spread>>,
    seed: u64,
    pipe: Pipe,
    /// At least one datagram, at most `max_window` BDP.
    cwnd: f32,
    /// Increases not yet applied, times the window: in bytes squared.
    increase: f32,
    /// Average queueing delay in ns.
    average_ns: f32,
    /// Newly received bytes since QuickAdapt's window began.
    achieved_bytes: u32,
    /// Newly received bytes since increases were applied.
    received_bytes: u32,
    /// Bytes acknowledged in a row without congestion.
    empty_bytes: u32,
    datagram_bytes: u32,
    /// Start of QuickAdapt's window.
    window_at: u32,
    decreased_at: u32,
    adjusted_at: u32,
    /// Last burst or acknowledgement.
    active_at: u32,
    paths: u16,
    trimming: bool,
    /// QuickAdapt's window runs.
    measuring: bool,
    /// QuickAdapt fired at `window_at`: feedback on what was sent before is ignored.
    adapted: bool,
    /// Something was lost in QuickAdapt's window.
    lost: bool,
    /// Fast increase is on.
    fast: bool,
    /// Sends after idling, without an acknowledgement so far.
    restarted: bool,
}

fn ticks(at: Nanos) -> u32 {
    (at >> TICK_SHIFT) as u32
}

/// The span since a stored time, in ns. Wraps with the ticks: then a gate opens late, by less than
/// the span it guards.
fn since_ns(now: Nanos, at: u32) -> f32 {
    ticks(now).wrapping_sub(at) as f32 * (1u32 << TICK_SHIFT) as f32
}

fn clip(bytes: u64) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

impl Nscc {
    fn new(shared: &Arc<Shared>, params: &FlowParams, seed: u64) -> Nscc {
        let now = ticks(params.now);
        let mut flow = Nscc {
            shared: Arc::clone(shared),
            spread: None,
            seed,
            pipe: Pipe::new(params),
            cwnd: 0.0,
            increase: 0.0,
            average_ns: 0.0,
            achieved_bytes: 0,
            received_bytes: 0,
            empty_bytes: 0,
            datagram_bytes: params.datagram_bytes.max(1),
            window_at: now,
            // No decrease so far: as far back as the ticks reach.
            decreased_at: now.wrapping_sub(u32::MAX / 2),
            adjusted_at: now,
            active_at: now,
            paths: params.paths.max(1),
            trimming: params.trimming,
            measuring: false,
            adapted: false,
            lost: false,
            fast: false,
            restarted: false,
        };
        flow.cwnd = flow.max_window_bytes();
        flow.clamp();
        flow
    }

    fn value(&self, at: usize) -> f32 {
        self.shared.values[at]
    }

    fn is_smartt(&self) -> bool {
        self.shared.form == Form::Smartt
    }

    /// Queueing delay aimed at. A sample holds the queue's delay and noise on top of it.
    fn target_ns(&self) -> f32 {
        let at = if self.trimming { TARGET_TRIM } else { TARGET };
        self.value(at) * self.pipe.typical_rtt_ns() + self.pipe.noise_ns()
    }

    /// The paper's trtt: QuickAdapt's window, and the longest time it ignores feedback.
    fn target_rtt_ns(&self) -> f32 {
        self.pipe.typical_rtt_ns() + self.target_ns()
    }

    /// At least two datagrams: with a single one the link would rest while it is acknowledged.
    fn max_window_bytes(&self) -> f32 {
        let least = MAX_WINDOW_DATAGRAMS * self.datagram_bytes as f32;
        (self.value(MAX_WINDOW) * self.pipe.bdp_bytes()).max(least)
    }

    /// Every change of the window ends here.
    fn clamp(&mut self) {
        let least = self.datagram_bytes as f32;
        self.cwnd = self.cwnd.min(self.max_window_bytes()).max(least);
    }

    /// The scale of the increases: so many times the reference network's BDP. Where that is next
    /// to nothing, the greatest window's share, or a small window would never grow again.
    fn scale(&self) -> f32 {
        self.max_window_bytes() / self.value(MAX_WINDOW) / REFERENCE_BDP_BYTES
    }

    /// Packet that increases are counted in.
    fn packet_bytes(&self) -> f32 {
        self.datagram_bytes.min(REFERENCE_PACKET_BYTES) as f32
    }

    /// Whether feedback tells of the time before QuickAdapt set the window right.
    fn is_stale(&self, now: Nanos, sent_at: Nanos) -> bool {
        self.adapted
            && self.window_at.wrapping_sub(ticks(sent_at)) as i32 >= 0
            && since_ns(now, self.window_at) < self.target_rtt_ns()
    }

    fn average(&mut self, delay_ns: f32, packets: f32) {
        let gain = self.value(GAIN);
        let weight = packets * gain / (1.0 - gain + packets * gain);
        if weight > 0.0 {
            self.average_ns += weight * (delay_ns - self.average_ns);
        }
    }

    /// Forgets the increases that are not applied yet.
    fn drop_increases(&mut self) {
        self.increase = 0.0;
        self.received_bytes = 0;
    }

    fn stop_fast(&mut self) {
        self.fast = false;
        self.empty_bytes = 0;
    }

    /// Algorithm 2: at the end of a window in which congestion was severe, what was received in it
    /// becomes the congestion window. Returns whether it did.
    fn quick_adapt(&mut self, now: Nanos, delay_ns: f32) -> bool {
        if self.measuring && since_ns(now, self.window_at) < self.target_rtt_ns() {
            return false;
        }
        // With trims the paper needs no further sign.
        let by_trims = self.is_smartt() && self.trimming;
        let late = !by_trims && delay_ns > self.value(QA_DELAY) * self.target_ns();
        let achieved = self.achieved_bytes as f32;
        let little = by_trims || achieved < self.value(QA_SHARE) * self.max_window_bytes();
        let fires = self.measuring && (self.lost || late) && little;
        if fires {
            self.cwnd = self.cwnd.min(achieved);
            self.drop_increases();
            self.stop_fast();
        }
        self.start_window(now);
        self.adapted = fires;
        fires
    }

    fn start_window(&mut self, now: Nanos) {
        self.measuring = true;
        self.adapted = false;
        self.lost = false;
        self.achieved_bytes = 0;
        self.window_at = ticks(now);
    }

    /// Algorithm 3. Returns whether fast increase is on.
    fn fast_increase(&mut self, bytes: u32, delay_ns: f32) -> bool {
        if delay_ns >= EMPTY_NS.max(self.pipe.noise_ns()) {
            self.stop_fast();
            return false;
        }
        self.empty_bytes = self.empty_bytes.saturating_add(bytes);
        if self.fast || self.empty_bytes as f32 > self.cwnd {
            self.fast = true;
            let scale = if self.is_smartt() { 1.0 } else { self.scale() };
            self.cwnd += bytes as f32 * (self.value(FAST) * scale).min(FAST_MOST);
        }
        self.fast
    }

    /// Equation 2.
    fn fair_increase(&mut self, bytes: u32) {
        self.increase += self.value(FAIR) * self.packet_bytes() * self.scale() * bytes as f32;
    }

    /// Equation 3 in the paper's form or the simulator's.
    fn proportional_increase(&mut self, bytes: u32, delay_ns: f32) {
        let bytes_f = bytes as f32;
        let target = self.target_ns();
        let most = self.value(PROPORTIONAL) * self.packet_bytes() * self.scale();
        if self.is_smartt() {
            let base = self.pipe.base_rtt_ns();
            let step = most * (target - delay_ns) / (base + delay_ns) * base / target;
            self.increase += bytes_f * step.min(self.cwnd);
            self.fair_increase(bytes);
        } else {
            let long = (target / REFERENCE_RTT_NS).min(1.0);
            self.increase += bytes_f * most * long * (target - delay_ns) / target;
        }
    }

    /// Equation 1, once a round trip.
    fn multiplicative_decrease(&mut self, now: Nanos) {
        let target = self.target_ns();
        let excess = self.average_ns - target;
        if excess <= 0.0 || since_ns(now, self.decreased_at) <= self.pipe.typical_rtt_ns() {
            return;
        }
        let base = if self.is_smartt() { self.pipe.base_rtt_ns() } else { 0.0 };
        let share = excess / (base + self.average_ns);
        self.cwnd *= (1.0 - self.value(DECREASE) * share).max(KEEP_LEAST);
        self.decreased_at = ticks(now);
    }

    /// Applies the increases.
    fn adjust(&mut self, now: Nanos, app_limited: bool) {
        let elapsed = since_ns(now, self.adjusted_at);
        let rtt = self.pipe.typical_rtt_ns();
        if self.received_bytes <= ADJUST_DATAGRAMS * self.datagram_bytes && elapsed <= rtt {
            return;
        }
        self.cwnd += self.increase / self.cwnd;
        self.drop_increases();
        if elapsed >= rtt {
            if !app_limited {
                self.cwnd += self.value(STEADY) * self.packet_bytes() * self.scale();
            }
            self.adjusted_at = ticks(now);
        }
    }

    /// Algorithm 1, for each part of the burst.
    fn core_cases(&mut self, ack: &Ack, delay_ns: f32, marked_bytes: u32) {
        let late = delay_ns >= self.target_ns();
        if marked_bytes > 0 {
            self.stop_fast();
            if late {
                self.multiplicative_decrease(ack.now);
            }
        }
        let clear_bytes = clip(ack.acked_bytes).saturating_sub(marked_bytes);
        if ack.app_limited || clear_bytes == 0 {
            return;
        }
        if late {
            self.stop_fast();
            self.fair_increase(clear_bytes);
        } else if marked_bytes > 0 || !self.fast_increase(clear_bytes, delay_ns) {
            self.proportional_increase(clear_bytes, delay_ns);
        }
    }

    /// Takes a sample's delay into the average and tells the path; returns the delay to act on.
    fn sample(&mut self, ack: &Ack) -> (f32, bool) {
        let Some(rtt_ns) = ack.rtt_ns else {
            return (self.average_ns, ack.ce_bytes > 0);
        };
        let target = self.target_ns();
        let own_late = rtt_ns as f32 - self.pipe.base_rtt_ns() >= target;
        let path_bad = self.pipe.is_marked(ack, own_late);
        if let Some(spread) = &mut self.spread {
            spread.told(ack.path, path_bad);
        }
        let delay = self.pipe.queue_delay_ns();
        let marked = self.pipe.is_marked(ack, delay >= target);
        let packets = ack.acked_bytes as f32 / REFERENCE_PACKET_BYTES as f32;
        let packets = packets.max(ack.acked_packets as f32);
        // An unmarked late sample is out of date: the queue has drained meanwhile.
        let out_of_date = !self.is_smartt() && !marked && delay > target;
        let fed = if out_of_date { STALE_RTTS * self.pipe.base_rtt_ns() } else { delay };
        self.average(fed, packets);
        (delay, marked)
    }
}

impl Controller for Nscc {
    fn on_sent(&mut self, sent: &Sent) {
        let alone = sent.in_flight_bytes <= u64::from(sent.bytes);
        let idle_ns = since_ns(sent.now, self.active_at);
        if self.measuring && alone && idle_ns > self.target_rtt_ns() {
            // What was measured before the pause says little: at most one BDP, paced.
            self.measuring = false;
            self.adapted = false;
            self.restarted = true;
            self.drop_increases();
            self.stop_fast();
            self.cwnd = self.cwnd.min(self.pipe.bdp_bytes());
            self.clamp();
        }
        self.active_at = ticks(sent.now);
    }

    fn on_ack(&mut self, ack: &Ack) {
        self.pipe.on_ack(ack);
        self.active_at = ticks(ack.now);
        self.restarted = false;
        let acked = clip(ack.acked_bytes);
        self.achieved_bytes = self.achieved_bytes.saturating_add(acked);
        self.received_bytes = self.received_bytes.saturating_add(acked);
        let (delay, marked) = self.sample(ack);
        if marked && self.is_stale(ack.now, ack.sent_at) {
            self.drop_increases();
        } else if !self.quick_adapt(ack.now, delay) {
            let marked_bytes = match (marked, ack.ce_bytes) {
                (false, _) => 0,
                (true, 0) => acked.max(1),
                (true, bytes) => bytes,
            };
            self.core_cases(ack, delay, marked_bytes);
            self.clamp();
            self.adjust(ack.now, ack.app_limited);
        }
        self.clamp();
    }

    fn on_loss(&mut self, loss: &Loss) {
        let trim = loss.kind == LossKind::Trim;
        if let Some(spread) = &mut self.spread {
            spread.told(loss.path, true);
            if self.trimming && !trim {
                // Congestion trims; what vanishes met a failure.
                spread.freeze(loss.now);
            }
        }
        if trim && !self.is_smartt() {
            // A full queue holds about one round trip.
            self.average(self.pipe.typical_rtt_ns(), 1.0);
        }
        if self.is_stale(loss.now, loss.sent_at) {
            return;
        }
        self.lost = true;
        if !self.quick_adapt(loss.now, 0.0) {
            self.cwnd -= loss.bytes as f32;
        }
        self.clamp();
    }

    fn on_timeout(&mut self, timeout: &Timeout) {
        self.lost = true;
        if let Some(spread) = &mut self.spread {
            spread.freeze(timeout.now);
        }
        if timeout.in_a_row > 1 {
            self.stop_fast();
            self.cwnd *= KEEP_LEAST;
            self.clamp();
        }
    }

    fn window_bytes(&self) -> u64 {
        self.cwnd as u64
    }

    fn pace_bytes_per_s(&self) -> Option<u64> {
        let per_ns = self.cwnd / self.pipe.typical_rtt_ns();
        self.restarted.then_some((per_ns * 1e9) as u64)
    }

    fn next_path(&mut self, now: Nanos) -> u16 {
        if self.paths == 1 {
            return 0;
        }
        let (by, seed) = (self.value(PATHS_BY), self.seed);
        let spread = self.spread.get_or_insert_with(|| Box::new(Spread::new(by, seed)));
        spread.next(now, self.paths)
    }

    fn ecn(&self) -> Ecn {
        Ecn::Ect0
    }

    fn view(&self) -> View {
        let (base_rtt_ns, typical_rtt_ns) = self.pipe.rtts_ns();
        View {
            base_rtt_ns,
            typical_rtt_ns,
            target_ns: self.target_ns() as Nanos,
            bdp_bytes: self.pipe.bdp_bytes() as u64,
            paths: self.paths,
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use std::println;

    #[test]
    fn a_flow_takes_at_most_128_bytes_and_its_paths_16_each() {
        let flow = size_of::<Nscc>();
        let fixed = size_of::<Spread>();
        let (reps, both) = (fixed + 8, fixed + size_of::<(Reps, EcnBitmap)>() + 8);
        println!("flow {flow}, with REPS {reps}, with the bitmap {fixed}, with both {both}");
        assert!(flow <= 128);
        assert!(reps.max(fixed) <= 16 * 4, "over the usual 4 paths");
        assert!(both <= 16 * 8, "over 8 paths, the most that one domain opens");
    }

    #[test]
    fn path_state_comes_with_the_first_burst_over_several_paths() {
        let params = FlowParams {
            now: 0,
            datagram_bytes: 4096,
            paths: 1,
            first_rtt_ns: 12_000,
            base_rtt_ns: 0,
            link_bytes_per_s: 12_500_000_000,
            trimming: false,
        };
        let shared = NsccScheme::nscc().shared;
        let mut lone = Nscc::new(&shared, &params, 1);
        assert_eq!(lone.next_path(0), 0);
        assert!(lone.spread.is_none());
        let mut flow = Nscc::new(&shared, &FlowParams { paths: 4, ..params }, 1);
        assert!(flow.spread.is_none());
        assert!(flow.next_path(0) < 4);
        assert!(flow.spread.is_some());
    }
}
