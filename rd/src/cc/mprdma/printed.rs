//! MP-RDMA as its paper has it (`law` = 1): a window that marks and late packets move, and acknowledgements that alone
//! let packets go, on their own path. It is a baseline that other papers compare with (docs/cc/mprdma.md, "Profiles").
//!
//! The controller allows the bytes in flight and one packet for each permit. A permit is a packet of the first window, or
//! comes with an acknowledgement and bears its path.

use super::rows::MpRdmaOptions;
use crate::cc::paths::{self, PATHS_MAX};
use crate::cc::pipe::{Pipe, short_f32};
use crate::cc::profiles::{MPRDMA_CLOCK_MOST, MPRDMA_MARK_PACKETS};
use crate::cc::{AckSample, Controller, FlowParams, Loss, SentBurst, Timeout, View};
use crate::units::{Ecn, Nanos};
use alloc::collections::VecDeque;
use rand_pcg::Pcg32;
use rand_pcg::rand_core::Rng;

/// Most permits that bear a path: as many as a window has packets. Beyond it, an acknowledgement gives none.
const PERMITS_MAX: usize = 8_192;

/// One flow. The window is in packets.
#[derive(Clone, Debug)]
pub(super) struct PrintedMpRdma {
    options: MpRdmaOptions,
    pipe: Pipe,
    rng: Pcg32,
    paths: u16,
    packet_bytes: f32,
    /// The window at the beginning and after each rest.
    first: f32,
    cwnd: f32,
    in_flight_bytes: u64,
    /// Permits for packets on random paths.
    sprayed: u32,
    /// Paths of the other permits, the oldest first.
    clocked: VecDeque<u8>,
    /// The path of the latest acknowledgement in time.
    latest_path: u8,
    rtt_ns: Nanos,
    /// When the next packet may probe.
    probe_at: Nanos,
}

impl PrintedMpRdma {
    pub(super) fn new(options: &MpRdmaOptions, params: &FlowParams, seed: u64) -> PrintedMpRdma {
        let pipe = Pipe::raw(params);
        let packet_bytes = params.datagram_bytes.max(1) as f32;
        let first = (pipe.bdp_bytes() / packet_bytes).max(1.0);
        PrintedMpRdma {
            options: *options,
            pipe,
            rng: paths::rng(seed),
            paths: params.paths.clamp(1, PATHS_MAX),
            packet_bytes,
            first,
            cwnd: first,
            in_flight_bytes: 0,
            sprayed: first as u32,
            clocked: VecDeque::new(),
            latest_path: 0,
            rtt_ns: pipe.base_rtt_ns() as Nanos,
            probe_at: params.now,
        }
    }

    /// Takes packets off the window, down to one.
    fn lose(&mut self, packets: f32) {
        self.cwnd = (self.cwnd - packets).max(1.0);
    }

    /// No acknowledgement is awaited that would let packets go: the flow begins again, with the room that the window has.
    fn begin(&mut self, cwnd: f32) {
        self.cwnd = cwnd;
        self.sprayed = 0;
        self.clocked.clear();
        self.sprayed = self.room();
    }

    fn permits(&self) -> u32 {
        self.sprayed + self.clocked.len() as u32
    }

    /// Packets that the window has room for, beside those in flight and the permits.
    fn room(&self) -> u32 {
        let in_flight = short_f32(self.in_flight_bytes) / self.packet_bytes;
        (self.cwnd - in_flight - self.permits() as f32).max(0.0) as u32
    }

    fn permit(&mut self, path: u8, packets: u32) {
        for _ in 0..packets.min((PERMITS_MAX - self.clocked.len()) as u32) {
            self.clocked.push_back(path);
        }
    }

    /// Uses up the oldest permit. `None`: it bears no path.
    fn take_permit(&mut self) -> Option<u8> {
        if self.sprayed > 0 {
            self.sprayed -= 1;
            return None;
        }
        self.clocked.pop_front()
    }

    /// Once in a round trip, a packet takes a random path with the probability `probe`.
    fn probes(&mut self, now: Nanos) -> bool {
        if now < self.probe_at {
            return false;
        }
        self.probe_at = now + self.rtt_ns;
        (self.rng.next_u32() as f32) < self.options.probe.0 * u32::MAX as f32
    }

    /// One acknowledgement of a path sends as many packets on it as the window has room for, and at most two for each
    /// packet that came back. Room that the application has no use for is lost.
    fn clock(&mut self, ack: &AckSample) {
        self.latest_path = ack.path.min(self.paths - 1) as u8;
        let most = self.room().min(MPRDMA_CLOCK_MOST * ack.acked_packets);
        match ack.app_limited {
            false => self.permit(self.latest_path, most),
            true => self.lose(most.min(ack.acked_packets) as f32),
        }
    }
}

impl Controller for PrintedMpRdma {
    fn on_sent(&mut self, sent: &SentBurst) {
        self.in_flight_bytes = sent.in_flight_bytes;
        // `next_path` has used the permit of one packet.
        for _ in 1..sent.packets {
            self.take_permit();
        }
    }

    fn on_ack(&mut self, ack: &AckSample) {
        self.pipe.on_ack(ack);
        self.in_flight_bytes = ack.in_flight_bytes;
        let marked = ack.ce_bytes as f32 / self.packet_bytes;
        let clear = (short_f32(ack.acked_bytes) / self.packet_bytes - marked).max(0.0);
        self.cwnd += clear / self.cwnd;
        self.lose(MPRDMA_MARK_PACKETS * marked);
        if let Some(rtt_ns) = ack.rtt_ns {
            self.rtt_ns = rtt_ns;
            if ack.lag_packets as f32 > self.options.delta.0 {
                self.lose(1.0);
            } else {
                self.clock(ack);
            }
        }
        if ack.in_flight_bytes == 0 {
            self.begin(self.first);
        }
    }

    /// A repeat of a lost packet goes on the path of the latest acknowledgement, if the window has room for it. The window
    /// stays.
    fn on_loss(&mut self, loss: &Loss) {
        self.in_flight_bytes = loss.in_flight_bytes;
        self.permit(self.latest_path, self.room().min(1));
    }

    fn on_timeout(&mut self, _: &Timeout) {
        self.begin(self.cwnd.min(self.first));
    }

    fn window_bytes(&self) -> u64 {
        self.in_flight_bytes + (f64::from(self.permits()) * f64::from(self.packet_bytes)) as u64
    }

    fn pace_bytes_per_s(&self) -> Option<u64> {
        None
    }

    fn next_path(&mut self, now: Nanos) -> u16 {
        match self.take_permit() {
            Some(path) if !self.probes(now) => path.into(),
            _ => paths::uniform(&mut self.rng, self.paths),
        }
    }

    fn may_move(&self) -> bool {
        false
    }

    fn ecn(&self) -> Ecn {
        Ecn::Ect0
    }

    fn view(&self) -> View {
        let (base_rtt_ns, typical_rtt_ns) = self.pipe.rtts_ns();
        View {
            base_rtt_ns,
            typical_rtt_ns,
            target_ns: 0,
            bdp_bytes: self.pipe.bdp_bytes() as u64,
            paths: self.paths,
        }
    }
}

#[cfg(test)]
mod tests {
    //! Known answers, computed by hand. Network: 100 Gb/s, 12 us; packets of 1500 bytes, so that a BDP has 100.

    use super::*;
    use crate::cc::mprdma::MPRDMA;
    use crate::cc::schemes::by_profile;
    use crate::cc::{LossKind, Scheme};
    use alloc::vec::Vec;

    const RTT: Nanos = 12_000;

    fn flow_with(probe: f32) -> PrintedMpRdma {
        let mut scheme = MPRDMA.scheme();
        for option in by_profile("mprdma", "paper").unwrap().options() {
            scheme.set(option.name, option.value).unwrap();
        }
        scheme.set("probe", probe).unwrap();
        let params = FlowParams {
            now: 0,
            datagram_bytes: 1500,
            paths: 256,
            first_rtt_ns: RTT,
            base_rtt_ns: RTT,
            link_bytes_per_s: 12_500_000_000,
            burst_bytes: 0,
            trimming: false,
        };
        PrintedMpRdma::new(scheme.shared(), &params, 1)
    }

    /// A flow whose first window is in flight.
    fn flow() -> PrintedMpRdma {
        let mut flow = flow_with(0.0);
        send(&mut flow, 0, 100);
        flow
    }

    /// Sends packets, beside so many in flight, and tells their paths.
    fn send(flow: &mut PrintedMpRdma, in_flight: u64, packets: u64) -> Vec<u16> {
        let sent = |n| SentBurst {
            now: 0,
            bytes: 1500,
            packets: 1,
            path: 0,
            in_flight_bytes: (in_flight + n) * 1500,
            retransmission: false,
        };
        let one = |n| {
            let path = flow.next_path(n);
            flow.on_sent(&sent(n));
            path
        };
        (1..=packets).map(one).collect()
    }

    fn ack(path: u16, in_flight: u64) -> AckSample {
        AckSample {
            now: 1,
            sent_at: 0,
            acked_bytes: 1500,
            acked_packets: 1,
            rtt_ns: Some(RTT),
            path,
            ce_bytes: 0,
            lag_packets: 0,
            in_flight_bytes: in_flight * 1500,
            app_limited: false,
        }
    }

    fn marked(path: u16, in_flight: u64) -> AckSample {
        AckSample { ce_bytes: 1500, ..ack(path, in_flight) }
    }

    /// Packets that may go.
    fn open(flow: &PrintedMpRdma) -> u64 {
        (flow.window_bytes() - flow.in_flight_bytes) / 1500
    }

    fn assert_near(is: f32, expected: f32) {
        assert!((is - expected).abs() <= 1e-5 * expected, "{is}, not {expected}");
    }

    #[test]
    fn the_first_window_goes_over_random_paths() {
        let mut flow = flow_with(0.0);
        assert_eq!(open(&flow), 100);
        let mut seen = send(&mut flow, 0, 100);
        seen.sort_unstable();
        seen.dedup();
        assert!(seen.len() > 70, "{}", seen.len());
        assert_eq!(open(&flow), 0, "all others wait for acknowledgements");
    }

    #[test]
    fn marks_move_the_window() {
        let mut flow = flow();
        assert_near(flow.cwnd, 100.0);
        flow.on_ack(&ack(0, 99));
        assert_near(flow.cwnd, 100.01);
        flow.on_ack(&marked(0, 99));
        assert_near(flow.cwnd, 99.51);
        flow.cwnd = 1.2;
        flow.on_ack(&marked(0, 99));
        assert_near(flow.cwnd, 1.0);
    }

    #[test]
    fn an_acknowledgement_clocks_one_packet_and_two_when_the_window_has_grown() {
        let mut flow = flow();
        // 99 in flight, a window of 100.01: one.
        flow.on_ack(&ack(3, 99));
        assert_eq!((flow.clocked.len(), open(&flow)), (1, 1));
        assert_eq!(send(&mut flow, 99, 1), [3]);
        // A whole packet has been gained: two, on the same path.
        flow.cwnd = 100.995;
        flow.on_ack(&ack(5, 99));
        assert_eq!(open(&flow), 2);
        assert_eq!(send(&mut flow, 99, 2), [5, 5]);
        // The window is full: none. A second mark makes room for one.
        flow.on_ack(&marked(6, 100));
        assert_eq!(open(&flow), 0);
        // However much room there is: two for a packet.
        flow.cwnd = 200.0;
        flow.on_ack(&ack(7, 50));
        assert_eq!(send(&mut flow, 50, 2), [7, 7]);
        assert_eq!(open(&flow), 0);
        // Two packets came back.
        let two = AckSample { acked_packets: 2, acked_bytes: 3000, ..ack(8, 50) };
        flow.on_ack(&two);
        assert_eq!(open(&flow), 4);
    }

    /// Two acknowledgements before the host sends: the second one finds the first one's permit.
    #[test]
    fn permits_that_are_not_used_yet_take_room() {
        let mut flow = flow();
        flow.on_ack(&ack(3, 99));
        flow.on_ack(&ack(4, 98));
        assert_eq!(send(&mut flow, 98, 2), [3, 4]);
        assert_eq!(open(&flow), 0);
    }

    /// Room without an acknowledgement sends nothing.
    #[test]
    fn acknowledgements_alone_let_packets_go() {
        let mut flow = flow();
        flow.on_ack(&ack(3, 99));
        send(&mut flow, 99, 1);
        // Ten more came back without a record of their path.
        flow.on_ack(&AckSample { rtt_ns: None, acked_packets: 10, ..ack(0, 90) });
        assert_eq!(open(&flow), 0);
        flow.on_ack(&ack(4, 89));
        assert_eq!(open(&flow), 2);
        assert_eq!(send(&mut flow, 89, 2), [4, 4]);
    }

    #[test]
    fn a_late_packet_costs_one_and_clocks_nothing() {
        let mut flow = flow();
        flow.on_ack(&AckSample { lag_packets: 33, ..ack(3, 10) });
        assert_near(flow.cwnd, 99.01);
        assert_eq!(open(&flow), 0);
        flow.on_ack(&AckSample { lag_packets: 32, ..ack(3, 10) });
        assert_eq!(open(&flow), 2);
    }

    #[test]
    fn a_lost_packet_is_repeated_on_the_latest_path_and_moves_no_window() {
        let mut flow = flow();
        flow.on_ack(&ack(9, 99));
        flow.clocked.clear();
        flow.on_ack(&AckSample { lag_packets: 33, ..ack(4, 98) });
        let loss = |in_flight: u64| Loss {
            now: 2,
            sent_at: 0,
            bytes: 1500,
            path: 4,
            kind: LossKind::Nack,
            in_flight_bytes: in_flight * 1500,
        };
        let cwnd = flow.cwnd;
        flow.on_loss(&loss(97));
        assert_eq!((open(&flow), flow.cwnd), (1, cwnd));
        assert_eq!(send(&mut flow, 97, 1), [9], "a late path repeats nothing");
        // A window that marks have made small has no room for repeats.
        flow.cwnd = 50.0;
        flow.on_loss(&loss(97));
        assert_eq!(open(&flow), 0);
    }

    #[test]
    fn room_that_nobody_uses_is_lost_until_the_flow_begins_again() {
        let mut flow = flow();
        for left in (90..100).rev() {
            flow.on_ack(&AckSample { app_limited: true, ..ack(3, left) });
        }
        assert!((90.0..91.2).contains(&flow.cwnd), "{}", flow.cwnd);
        assert_eq!(open(&flow), 0);
        flow.on_ack(&AckSample { app_limited: true, ..ack(3, 0) });
        assert_eq!((flow.cwnd, open(&flow)), (100.0, 100));
        assert!(flow.clocked.is_empty(), "over random paths");
    }

    #[test]
    fn after_a_timeout_paths_are_random_and_the_window_is_the_first_at_most() {
        let timeout = Timeout { now: 9, in_flight_bytes: 0, in_a_row: 1 };
        let mut flow = flow();
        flow.on_ack(&ack(3, 99));
        flow.cwnd = 150.0;
        flow.in_flight_bytes = 0;
        flow.on_timeout(&timeout);
        assert_eq!((flow.cwnd, open(&flow), flow.clocked.len()), (100.0, 100, 0));
        flow.cwnd = 7.5;
        flow.on_timeout(&timeout);
        assert_eq!((flow.cwnd, open(&flow)), (7.5, 7));
        // What is in flight still counts: the engine has not found it lost.
        flow.in_flight_bytes = 5 * 1500;
        flow.on_timeout(&timeout);
        assert_eq!((flow.cwnd, open(&flow)), (7.5, 2));
    }

    #[test]
    fn a_burst_uses_a_permit_for_each_packet() {
        let mut flow = flow_with(0.0);
        flow.next_path(0);
        flow.on_sent(&SentBurst {
            now: 0,
            bytes: 15_000,
            packets: 10,
            path: 0,
            in_flight_bytes: 15_000,
            retransmission: false,
        });
        assert_eq!(open(&flow), 90);
    }

    #[test]
    fn one_packet_in_a_round_trip_may_probe() {
        let mut flow = flow_with(1.0);
        send(&mut flow, 0, 100);
        let mut others = 0;
        for n in 0..1_000 {
            flow.permit(7, 1);
            // Ten packets in a round trip.
            others += u32::from(flow.next_path(n * RTT / 10) != 7);
        }
        assert!((95..=100).contains(&others), "{others}");
        let mut rare = flow_with(0.01);
        send(&mut rare, 0, 100);
        let count = |rare: &mut PrintedMpRdma, n: u64| {
            rare.permit(7, 1);
            u32::from(rare.next_path(n * RTT) != 7)
        };
        let others: u32 = (1..=20_000).map(|n| count(&mut rare, n)).sum();
        assert!((130..270).contains(&others), "{others}");
    }
}
