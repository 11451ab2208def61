//! MP-RDMA (Lu et al., NSDI 2018): one window for all paths, which each packet's mark moves. An acknowledgement sends
//! the next packet on its own path, unless that path lags behind (docs/cc/mprdma.md).

mod printed;
mod rows;

use super::options::TypicalRtts;
use super::paths::{self, Uniform};
use super::pipe::{Pipe, short_f32};
use super::scheme::SchemeTable;
use super::window::{Window, marked_share};
use super::{
    AckPolicy, AckSample, Controller, FlowParams, Loss, LossDetection, SentBurst, Timeout, View,
};
use crate::units::{Ecn, Nanos};
use alloc::boxed::Box;
use alloc::vec;
use printed::PrintedMpRdma;
pub use rows::MpRdmaOptions;
use rows::OPTIONS;

/// MP-RDMA.
pub static MPRDMA: SchemeTable<MpRdmaOptions> = SchemeTable {
    name: "mprdma",
    options: &OPTIONS,
    start: MpRdmaOptions::default,
    ack_policy: |_| AckPolicy::PerPacket,
    loss_detection: |_| LossDetection::Receiver,
    learns: |options| !options.law.is_printed(),
    build: |options, params, seed| match options.law.is_printed() {
        false => Box::new(MpRdma::new(options, params, seed)),
        true => Box::new(PrintedMpRdma::new(options, params, seed)),
    },
};

/// Least window in packets.
const PACKETS_MIN: f32 = 1.0;
/// Entries of the clock per path, a byte each, and at most. When it is full, the oldest goes.
const CLOCK_PER_PATH: usize = 16;
const CLOCK_MAX: usize = 128;

/// Paths that acknowledgements named, oldest first: a ring, allocated with the first one.
#[derive(Clone, Debug, Default)]
struct PathClock {
    ring: Box<[u8]>,
    head: u8,
    len: u8,
}

impl PathClock {
    #[inline(always)]
    fn push(&mut self, path: u16, paths: u16) {
        if self.ring.is_empty() {
            self.push_first(path, paths);
            return;
        }
        if usize::from(self.len) == self.ring.len() {
            self.pop();
        }
        let at = self.wrapped(self.head + self.len);
        self.ring[at] = path as u8;
        self.len += 1;
    }

    #[inline(never)]
    fn push_first(&mut self, path: u16, paths: u16) {
        self.ring = vec![0; (usize::from(paths) * CLOCK_PER_PATH).min(CLOCK_MAX)].into();
        self.ring[0] = path as u8;
        (self.head, self.len) = (0, 1);
    }

    /// A place in the ring; head and length are at most [`CLOCK_MAX`] each.
    fn wrapped(&self, at: u8) -> usize {
        let (at, size) = (usize::from(at), self.ring.len());
        if at < size { at } else { at - size }
    }

    fn pop(&mut self) -> Option<u16> {
        self.len = self.len.checked_sub(1)?;
        let path = self.ring[usize::from(self.head)];
        self.head = self.wrapped(self.head + 1) as u8;
        Some(u16::from(path))
    }

    fn clear(&mut self) {
        self.len = 0;
    }
}

/// One flow.
#[derive(Clone, Debug)]
struct MpRdma {
    pipe: Pipe,
    window: Window,
    spray: Box<Uniform>,
    clock: PathClock,
    delta_packets: u32,
    /// Draws below it are probes: a share of 2^32.
    probe_below: u32,
    late: TypicalRtts,
    /// The same in ns.
    late_ns: f32,
    paths: u16,
}

impl MpRdma {
    fn new(options: &MpRdmaOptions, params: &FlowParams, seed: u64) -> MpRdma {
        let pipe = Pipe::new(params);
        MpRdma {
            pipe,
            window: Window::new(params, &pipe),
            spray: Box::new(Uniform::new(paths::rng(seed), params.paths)),
            clock: PathClock::default(),
            delta_packets: options.delta.0 as u32,
            // A share of 1 misses one draw in 2^32.
            probe_below: (f64::from(options.probe.0) * f64::from(u32::MAX)) as u32,
            late: options.late,
            late_ns: pipe.target_ns(options.late),
            paths: params.paths.max(1),
        }
    }

    /// Lets the path of an acknowledgement send again if the window has room for the freed bytes.
    fn tick(&mut self, ack: &AckSample) {
        if self.paths > 1 && ack.acked_packets > 0 && self.window.has_room(ack.in_flight_bytes) {
            self.clock.push(ack.path, self.paths);
        }
    }

    /// Takes an acknowledgement that is not [`Pipe::is_plain`]. One function for both, by [`Pipe::on_ack`], would be
    /// simpler, but takes 16 instructions more for each packet: 141 in place of 125 (`cargo xtask cost`, 8 paths).
    #[inline(never)]
    fn on_odd_ack(&mut self, ack: &AckSample) {
        if self.pipe.on_odd_sample(ack, ack.rtt_ns.map(short_f32)) {
            self.late_ns = self.pipe.target_ns(self.late);
            self.window.bound(&self.pipe);
        }
        self.apply(ack);
    }

    #[inline(always)]
    fn apply(&mut self, ack: &AckSample) {
        let acked = ack.acked_packets as f32;
        let marked = acked * marked_share(&self.pipe, ack, self.late_ns);
        if marked > 0.0 {
            self.lose_packets(0.5 * marked);
        }
        if self.window.is_used(ack) {
            let growth = (acked - marked) / self.window.packets();
            self.window.grow(growth, &self.pipe);
        }
        if ack.rtt_ns.is_none() {
            return;
        }
        if ack.lag_packets > self.delta_packets {
            self.lose_packets(1.0);
        } else {
            self.tick(ack);
        }
    }

    fn lose_packets(&mut self, packets: f32) {
        self.window.shrink_to(self.window.packets() - packets, PACKETS_MIN);
    }
}

impl Controller for MpRdma {
    fn on_sent(&mut self, sent: &SentBurst) {
        if self.window.on_sent(sent, &self.pipe) {
            // The state of the paths before the pause no longer counts.
            self.clock.clear();
        }
    }

    fn on_ack(&mut self, ack: &AckSample) {
        if let Some(rtt_ns) = ack.rtt_ns.map(short_f32)
            && self.pipe.is_plain(ack, rtt_ns)
        {
            self.pipe.apply_mark(ack);
            self.pipe.take(ack.now, rtt_ns);
            self.apply(ack);
        } else {
            self.on_odd_ack(ack);
        }
    }

    fn on_loss(&mut self, loss: &Loss) {
        self.spray.on_loss(loss, self.pipe.typical_rtt_ns());
        self.lose_packets(1.0);
    }

    fn on_timeout(&mut self, _: &Timeout) {
        self.window.shrink_to(PACKETS_MIN, PACKETS_MIN);
        self.clock.clear();
        self.spray.on_timeout();
    }

    fn window_bytes(&self) -> u64 {
        self.window.bytes()
    }

    fn pace_bytes_per_s(&self) -> Option<u64> {
        None
    }

    fn next_path(&mut self, now: Nanos) -> u16 {
        if self.paths == 1 {
            return 0;
        }
        if let Some(path) = self.clock.pop()
            && self.spray.bits() >= self.probe_below
        {
            return self.spray.keep(now, path);
        }
        self.spray.next(now)
    }

    fn ecn(&self) -> Ecn {
        Ecn::Ect0
    }

    fn view(&self) -> View {
        let (base_rtt_ns, typical_rtt_ns) = self.pipe.rtts_ns();
        View {
            base_rtt_ns,
            typical_rtt_ns,
            target_ns: self.late_ns as Nanos,
            bdp_bytes: self.pipe.bdp_bytes() as u64,
            paths: self.paths,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    const RTT: Nanos = 10_000;

    /// 100 packets of BDP.
    fn flow(paths: u16) -> MpRdma {
        let params = FlowParams {
            now: 0,
            datagram_bytes: 1_250,
            paths,
            first_rtt_ns: RTT,
            base_rtt_ns: 0,
            link_bytes_per_s: 12_500_000_000,
            burst_bytes: 0,
            trimming: false,
        };
        MpRdma::new(MPRDMA.scheme().shared(), &params, 1)
    }

    /// One packet came back while the window was full.
    fn ack(flow: &MpRdma, path: u16, marked: bool) -> AckSample {
        AckSample {
            now: 100 * RTT,
            sent_at: 99 * RTT,
            acked_bytes: 1_250,
            acked_packets: 1,
            rtt_ns: Some(RTT),
            path,
            ce_bytes: if marked { 1_250 } else { 0 },
            lag_packets: 0,
            in_flight_bytes: flow.window_bytes() - 1_250,
            app_limited: false,
        }
    }

    #[test]
    fn a_mark_takes_half_a_packet_and_its_absence_gives_a_windowth() {
        let mut flow = flow(8);
        let before = flow.window.packets();
        flow.on_ack(&ack(&flow, 0, false));
        let grown = flow.window.packets();
        assert!((grown - before - 0.01).abs() < 1e-3, "{grown}");
        flow.on_ack(&ack(&flow, 0, true));
        assert!((grown - flow.window.packets() - 0.5).abs() < 1e-3);
    }

    #[test]
    fn a_burst_counts_for_its_packets() {
        let mut flow = flow(8);
        let burst = AckSample { acked_bytes: 12_500, acked_packets: 10, ..ack(&flow, 0, false) };
        flow.on_ack(&AckSample { ce_bytes: 5_000, ..burst });
        // Four of ten marked: 2 packets less, and 6/98 more.
        assert!((flow.window.packets() - 98.06).abs() < 0.01, "{}", flow.window.packets());
    }

    #[test]
    fn acknowledgements_choose_the_paths() {
        let mut flow = flow(256);
        for path in [7, 200, 7] {
            flow.on_ack(&ack(&flow, path, false));
        }
        // One in a hundred bursts is a probe; this seed draws none here.
        assert_eq!([0; 3].map(|_| flow.next_path(0)), [7, 200, 7]);
    }

    #[test]
    fn a_path_that_was_marked_away_is_not_clocked() {
        let mut flow = flow(256);
        let full = ack(&flow, 9, true);
        flow.on_ack(&full);
        assert_eq!(flow.clock.len, 0, "the window shrank below what is in flight");
    }

    #[test]
    fn a_lagging_path_shrinks_the_window_and_is_left() {
        let mut flow = flow(256);
        let before = flow.window.packets();
        flow.on_ack(&AckSample { lag_packets: 65, ..ack(&flow, 3, false) });
        assert!((before - flow.window.packets() - 1.0).abs() < 0.02);
        assert_eq!(flow.clock.len, 0);
        flow.on_ack(&AckSample { lag_packets: 64, in_flight_bytes: 0, ..ack(&flow, 3, false) });
        assert_eq!(flow.clock.len, 1);
    }

    #[test]
    fn about_one_burst_in_a_hundred_probes() {
        let mut flow = flow(256);
        let mut others = 0;
        for _ in 0..20_000 {
            flow.clock.push(5, 256);
            others += u32::from(flow.next_path(0) != 5);
        }
        assert!((130..270).contains(&others), "{others}");
    }

    #[test]
    fn the_clock_is_bounded_and_keeps_the_newest() {
        for paths in [2u16, 256] {
            let mut clock = PathClock::default();
            let size = (usize::from(paths) * CLOCK_PER_PATH).min(CLOCK_MAX);
            for n in 0..1_000u16 {
                clock.push(n % paths, paths);
            }
            let kept: Vec<u16> = core::iter::from_fn(|| clock.pop()).collect();
            let newest: Vec<u16> = (1_000 - size as u16..1_000).map(|n| n % paths).collect();
            assert_eq!(kept, newest);
        }
    }

    #[test]
    fn idleness_and_timeouts_forget_the_paths() {
        let mut flow = flow(8);
        flow.on_ack(&ack(&flow, 3, false));
        flow.on_timeout(&Timeout { now: 200 * RTT, in_flight_bytes: 1_250, in_a_row: 1 });
        assert_eq!((flow.clock.len, flow.window_bytes()), (0, 1_250));
        flow.on_ack(&AckSample { in_flight_bytes: 0, ..ack(&flow, 3, false) });
        assert_eq!(flow.clock.len, 1);
        flow.on_sent(&SentBurst {
            now: 1_000_000_000,
            bytes: 1_250,
            packets: 1,
            path: 0,
            in_flight_bytes: 1_250,
            retransmission: false,
        });
        assert_eq!(flow.clock.len, 0);
    }

    #[test]
    fn state_is_small() {
        let (flow, clock) = (size_of::<MpRdma>(), CLOCK_PER_PATH);
        assert!(flow <= 128 && clock <= 16, "{flow} {clock}");
    }
}
