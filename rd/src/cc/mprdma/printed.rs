//! MP-RDMA as its paper has it (`law` = 1): a window that only marks move, and acknowledgements that send one or two
//! packets on their own path. It is a baseline that other papers compare with (docs/cc/mprdma.md, "Profiles").

use super::rows::MpRdmaOptions;
use crate::cc::paths::{self, PATHS_MAX};
use crate::cc::pipe::{Pipe, short_f32};
use crate::cc::profiles::{MPRDMA_CLOCK_MOST, MPRDMA_MARK_PACKETS};
use crate::cc::{AckSample, Controller, FlowParams, Loss, SentBurst, Timeout, View};
use crate::units::{Ecn, Nanos};
use alloc::collections::VecDeque;
use rand_pcg::Pcg32;
use rand_pcg::rand_core::Rng;

/// Most paths that wait for a packet: as many as a window has packets. Packets beyond it take a random path.
const CLOCKED_MAX: usize = 8_192;

/// One flow. The window is in packets.
#[derive(Clone, Debug)]
pub(super) struct PrintedMpRdma {
    options: MpRdmaOptions,
    pipe: Pipe,
    rng: Pcg32,
    paths: u16,
    packet_bytes: f32,
    cwnd: f32,
    /// Paths of acknowledgements whose packets were not sent yet, the oldest first.
    clocked: VecDeque<u8>,
}

impl PrintedMpRdma {
    pub(super) fn new(options: &MpRdmaOptions, params: &FlowParams, seed: u64) -> PrintedMpRdma {
        let pipe = Pipe::raw(params);
        let packet_bytes = params.datagram_bytes.max(1) as f32;
        PrintedMpRdma {
            options: *options,
            pipe,
            rng: paths::rng(seed),
            paths: params.paths.clamp(1, PATHS_MAX),
            packet_bytes,
            cwnd: (pipe.bdp_bytes() / packet_bytes).max(1.0),
            clocked: VecDeque::new(),
        }
    }

    /// Takes packets off the window, down to one.
    fn lose(&mut self, packets: f32) {
        self.cwnd = (self.cwnd - packets).max(1.0);
    }

    /// Sends one packet on the acknowledgement's path if the window has room for it, and two if it has grown.
    fn clock(&mut self, ack: &AckSample) {
        let in_flight = short_f32(ack.in_flight_bytes) / self.packet_bytes;
        let room = self.cwnd - in_flight - self.clocked.len() as f32;
        let packets = (room.max(0.0) as u32).min(MPRDMA_CLOCK_MOST);
        for _ in 0..packets {
            if self.clocked.len() < CLOCKED_MAX {
                self.clocked.push_back(ack.path.min(self.paths - 1) as u8);
            }
        }
    }
}

impl Controller for PrintedMpRdma {
    fn on_sent(&mut self, _: &SentBurst) {}

    fn on_ack(&mut self, ack: &AckSample) {
        self.pipe.on_ack(ack);
        let marked = ack.ce_bytes as f32 / self.packet_bytes;
        let clear = (short_f32(ack.acked_bytes) / self.packet_bytes - marked).max(0.0);
        self.cwnd += clear / self.cwnd;
        self.lose(MPRDMA_MARK_PACKETS * marked);
        if ack.rtt_ns.is_none() {
            return;
        }
        if ack.lag_packets as f32 > self.options.delta.0 {
            self.lose(1.0);
        } else {
            self.clock(ack);
        }
    }

    fn on_loss(&mut self, _: &Loss) {}

    fn on_timeout(&mut self, _: &Timeout) {}

    fn window_bytes(&self) -> u64 {
        (self.cwnd * self.packet_bytes) as u64
    }

    fn pace_bytes_per_s(&self) -> Option<u64> {
        None
    }

    fn next_path(&mut self, _: Nanos) -> u16 {
        let clocked = self.clocked.pop_front().map(u16::from);
        let probes = (self.rng.next_u32() as f32) < self.options.probe.0 * u32::MAX as f32;
        match clocked.filter(|_| !probes) {
            Some(path) => path,
            None => paths::uniform(&mut self.rng, self.paths),
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
    use crate::cc::Scheme;
    use crate::cc::mprdma::MPRDMA;
    use crate::cc::schemes::by_profile;

    fn flow() -> PrintedMpRdma {
        let mut scheme = MPRDMA.scheme();
        for option in by_profile("mprdma", "paper").unwrap().options() {
            scheme.set(option.name, option.value).unwrap();
        }
        scheme.set("probe", 0.0).unwrap();
        let params = FlowParams {
            now: 0,
            datagram_bytes: 1500,
            paths: 8,
            first_rtt_ns: 12_000,
            base_rtt_ns: 12_000,
            link_bytes_per_s: 12_500_000_000,
            burst_bytes: 0,
            trimming: false,
        };
        PrintedMpRdma::new(scheme.shared(), &params, 1)
    }

    fn feed(flow: &mut PrintedMpRdma, path: u16, marked: bool, lag_packets: u32, in_flight: u64) {
        flow.on_ack(&AckSample {
            now: 1,
            sent_at: 0,
            acked_bytes: 1500,
            acked_packets: 1,
            rtt_ns: Some(12_000),
            path,
            ce_bytes: if marked { 1500 } else { 0 },
            lag_packets,
            in_flight_bytes: in_flight * 1500,
            app_limited: true,
        });
    }

    fn assert_near(is: f32, expected: f32) {
        assert!((is - expected).abs() <= 1e-5 * expected, "{is}, not {expected}");
    }

    #[test]
    fn the_window_moves_by_marks_alone() {
        let mut flow = flow();
        assert_near(flow.cwnd, 100.0);
        feed(&mut flow, 0, false, 0, 99);
        assert_near(flow.cwnd, 100.01);
        feed(&mut flow, 0, true, 0, 99);
        assert_near(flow.cwnd, 99.51);
        flow.on_timeout(&Timeout { now: 9, in_flight_bytes: 0, in_a_row: 4 });
        assert_near(flow.cwnd, 99.51);
        flow.cwnd = 1.2;
        feed(&mut flow, 0, true, 0, 99);
        assert_near(flow.cwnd, 1.0);
    }

    #[test]
    fn an_acknowledgement_clocks_one_packet_and_two_when_the_window_has_grown() {
        let mut flow = flow();
        // 99 in flight, a window of 100.01: one.
        feed(&mut flow, 3, false, 0, 99);
        assert_eq!(flow.clocked, [3]);
        // A whole packet has been gained: two.
        flow.cwnd = 101.0;
        feed(&mut flow, 5, false, 0, 98);
        assert_eq!(flow.clocked, [3, 5, 5]);
        // The window is full: none, and never more than two.
        feed(&mut flow, 6, true, 0, 98);
        assert_eq!(flow.clocked, [3, 5, 5]);
        feed(&mut flow, 7, false, 0, 50);
        assert_eq!(flow.clocked, [3, 5, 5, 7, 7]);
        assert_eq!([flow.next_path(0), flow.next_path(0)], [3, 5]);
    }

    #[test]
    fn a_late_packet_costs_one_and_clocks_nothing() {
        let mut flow = flow();
        feed(&mut flow, 3, false, 65, 10);
        assert_near(flow.cwnd, 99.01);
        assert!(flow.clocked.is_empty());
        feed(&mut flow, 3, false, 64, 10);
        assert_eq!(flow.clocked, [3, 3]);
    }
}
