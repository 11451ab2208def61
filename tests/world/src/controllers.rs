//! A driver that feeds a congestion controller arbitrary legal feedback, and judges every result.
//!
//! The model keeps the unacknowledged packets, as the engine does, so that bytes in flight, send times and paths fit
//! together. Everything else is up to the input: round trips from 1 us to 1 s, marks, losses of each kind, timeouts,
//! idle hours. Invariants:
//!
//! - the window is at least 1 byte, and at most `BOUND_BDPS` times the largest
//!   bandwidth-delay product so far, or the first window, or `BOUND_PACKETS` packets;
//! - a pace lets one packet go within `GAP_MAX_NS`;
//! - a path is below the flow's path count;
//! - after a time without losses, marks and queues the window has at least two packets.

use super::fuzz::Input;
use erd_rd::Nanos;
use erd_rd::cc::pipe::Pipe;
use erd_rd::cc::schemes;
use erd_rd::cc::{
    AckPolicy, AckSample, Controller, FlowParams, Loss, LossKind, Scheme, SentBurst, Timeout,
};
use erd_rd::units::{MICROSECOND, SECOND};
use std::collections::VecDeque;

/// Largest BDP that a controller may report.
const BDP_MAX_BYTES: f64 = (16_u64 << 30) as f64;
/// Bound of a window, in BDP as [`Pipe`] estimates it. That estimate is at most 16 GiB.
const BOUND_BDPS: f64 = 4.0;
/// A window of so many packets is always fine.
const BOUND_PACKETS: u64 = 4;
/// Longest that a pace may hold back one packet.
const GAP_MAX_NS: u64 = 10 * SECOND;
/// Most steps of one run; it ignores the rest of its input.
const STEPS_MAX: u32 = 20_000;
/// Most bursts in flight: the driver holds back more, like a small receiver.
const BURSTS_MAX: usize = 512;
/// Packets of a burst at most, as of a GSO send.
const BURST_PACKETS_MAX: u64 = 64;
/// Round trips in which a window recovers.
const RECOVERY_ROUNDS: u32 = 5_000;

/// Account of a run, which shows that runs differ.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    /// Steps.
    pub steps: u64,
    /// Bursts sent.
    pub bursts: u64,
    /// Acknowledgements, losses, timeouts.
    pub acks: u64,
    /// Packets lost.
    pub losses: u64,
    /// Timeouts.
    pub timeouts: u64,
    /// Longest rest, in ns.
    pub rest_ns: u64,
    /// Largest window, in bytes.
    pub window_bytes: u64,
    /// Round trips that the recovery took at most.
    pub recovery_rounds: u64,
}

impl Seen {
    /// Adds another run's account.
    pub fn add(&mut self, other: &Seen) {
        self.steps += other.steps;
        self.bursts += other.bursts;
        self.acks += other.acks;
        self.losses += other.losses;
        self.timeouts += other.timeouts;
        self.rest_ns = self.rest_ns.max(other.rest_ns);
        self.window_bytes = self.window_bytes.max(other.window_bytes);
        self.recovery_rounds = self.recovery_rounds.max(other.recovery_rounds);
    }
}

/// The body of the fuzz target: the first byte chooses the scheme.
pub fn fuzz(data: &[u8]) {
    if let Some((first, rest)) = data.split_first() {
        let name = schemes::NAMES[usize::from(*first) % schemes::NAMES.len()];
        drive(&*schemes::by_name(name).expect("a known name"), rest);
    }
}

/// Runs one flow of `scheme`, with decisions from `data`.
pub fn drive(scheme: &dyn Scheme, data: &[u8]) -> Seen {
    let mut model = Model::new(scheme, Input(data));
    while !model.input.0.is_empty() && model.seen.steps < u64::from(STEPS_MAX) {
        model.step();
        model.check();
    }
    model.recover();
    model.seen
}

/// A burst on its way.
#[derive(Clone, Copy, Debug)]
struct Flight {
    sent_at: Nanos,
    packets: u32,
    packet_bytes: u32,
    path: u16,
    /// Number of its last packet.
    psn: u64,
}

impl Flight {
    fn bytes(&self) -> u64 {
        u64::from(self.packets) * u64::from(self.packet_bytes)
    }
}

struct Model<'a> {
    input: Input<'a>,
    params: FlowParams,
    policy: AckPolicy,
    flow: Box<dyn Controller>,
    /// The same estimates that controllers have, for the bound.
    pipe: Pipe,
    bdp_most_bytes: f64,
    first_window_bytes: u64,
    now: Nanos,
    pace_at: Nanos,
    flights: VecDeque<Flight>,
    in_flight_bytes: u64,
    next_psn: u64,
    foremost_psn: u64,
    lost_packets: u32,
    timeouts_in_a_row: u32,
    /// The present state of the network.
    rtt_ns: Nanos,
    marks: u8,
    loses: bool,
    app_limited: bool,
    seen: Seen,
}

impl<'a> Model<'a> {
    fn new(scheme: &dyn Scheme, mut input: Input<'a>) -> Model<'a> {
        let first_rtts = [0, 1, 12, 50, 1_000, 1_000_000];
        let params = FlowParams {
            now: [0, SECOND, 100 * 86_400 * SECOND][input.below(3)],
            datagram_bytes: [1_232, 1_472, 4_096, 8_972, 65_507][input.below(5)],
            paths: [1, 2, 3, 4, 8, 16, 64, 255, 256][input.below(9)],
            first_rtt_ns: first_rtts[input.below(6)] * MICROSECOND,
            base_rtt_ns: 0,
            link_bytes_per_s: [0, 125_000_000, 12_500_000_000, 50_000_000_000][input.below(4)],
            burst_bytes: 0,
            trimming: input.below(2) == 1,
        };
        let flow = scheme.build(&params, u64::from(input.byte()));
        let pipe = Pipe::new(&params);
        Model {
            input,
            params,
            policy: scheme.ack_policy(),
            pipe,
            bdp_most_bytes: f64::from(pipe.bdp_bytes()),
            first_window_bytes: flow.window_bytes(),
            flow,
            now: params.now,
            pace_at: 0,
            flights: VecDeque::new(),
            in_flight_bytes: 0,
            next_psn: 0,
            foremost_psn: 0,
            lost_packets: 0,
            timeouts_in_a_row: 0,
            rtt_ns: 10 * MICROSECOND,
            marks: 0,
            loses: true,
            app_limited: false,
            seen: Seen::default(),
        }
    }

    fn step(&mut self) {
        self.seen.steps += 1;
        match self.input.below(16) {
            0..=3 => self.send_some(),
            4..=6 => self.ack_one(),
            7 => self.ack_many(),
            8 | 9 => self.round(),
            10 | 11 if self.loses => self.lose(),
            12 if self.loses => self.time_out(),
            10..=12 => self.round(),
            13 => self.ack_nothing(),
            14 => self.rest(),
            _ => self.change(),
        }
    }

    /// A span between `low` and about `low << doublings`, each order of magnitude alike.
    fn span_ns(&mut self, low: Nanos, doublings: usize) -> Nanos {
        let least = low << self.input.below(doublings);
        least + least * u64::from(self.input.byte()) / 256
    }

    /// Another network: round trips up to 1 s.
    fn change(&mut self) {
        self.rtt_ns = self.span_ns(MICROSECOND, 20).min(SECOND);
        self.marks = [0, 0, 10, 128, 255][self.input.below(5)];
        self.loses = self.input.below(2) == 0;
        self.app_limited = self.input.below(4) == 0;
    }

    /// Nothing happens, for up to five hours.
    fn rest(&mut self) {
        let rest_ns = self.span_ns(MICROSECOND, 34);
        self.now += rest_ns;
        self.seen.rest_ns = self.seen.rest_ns.max(rest_ns);
    }

    fn send_some(&mut self) {
        let bursts = 1 + self.input.below(4);
        let size = self.input.byte();
        for _ in 0..bursts {
            // Mostly whole packets; a message's end is shorter.
            let whole = self.params.datagram_bytes;
            let bytes = if size < 32 { whole.min(64 + u32::from(size)) } else { whole };
            if !self.send(1 + u64::from(size) % BURST_PACKETS_MAX, bytes) {
                return;
            }
        }
    }

    /// Sends a burst of at most `packets` if pace and window allow, by the engine's rules.
    fn send(&mut self, packets: u64, packet_bytes: u32) -> bool {
        let window_bytes = self.flow.window_bytes();
        let room = window_bytes.saturating_sub(self.in_flight_bytes) / u64::from(packet_bytes);
        let least = u64::from(self.flights.is_empty());
        let quarter = (window_bytes / 4 / u64::from(packet_bytes)).max(1);
        let packets = packets.min(room).min(quarter).max(least) as u32;
        if packets == 0 || self.flights.len() >= BURSTS_MAX || self.pace_at > self.now {
            return false;
        }
        let path = self.flow.next_path(self.now);
        assert!(path < self.params.paths, "path {path} of {}", self.params.paths);
        let retransmission = self.lost_packets > 0;
        self.lost_packets = self.lost_packets.saturating_sub(packets);
        self.next_psn += u64::from(packets);
        let psn = self.next_psn;
        let flight = Flight { sent_at: self.now, packets, packet_bytes, path, psn };
        self.flights.push_back(flight);
        self.in_flight_bytes += flight.bytes();
        self.flow.on_sent(&SentBurst {
            now: self.now,
            bytes: flight.bytes() as u32,
            packets,
            path,
            in_flight_bytes: self.in_flight_bytes,
            retransmission,
        });
        self.seen.bursts += 1;
        if let Some(pace) = self.flow.pace_bytes_per_s() {
            let gap_ns = u128::from(flight.bytes()) * u128::from(SECOND) / u128::from(pace.max(1));
            self.pace_at = self.pace_at.max(self.now) + gap_ns as u64;
        }
        self.check();
        true
    }

    /// Takes one burst, or some packets of it, out of flight.
    fn take(&mut self, at: usize, packets: u32) -> Option<Flight> {
        let flight = self.flights.get_mut(at)?;
        let taken = Flight { packets: packets.min(flight.packets), ..*flight };
        flight.packets -= taken.packets;
        if flight.packets == 0 {
            self.flights.remove(at);
        }
        self.in_flight_bytes -= taken.bytes();
        Some(taken)
    }

    /// The oldest burst in half of the cases, else any.
    fn which(&mut self) -> usize {
        let byte = usize::from(self.input.byte());
        if byte < 128 { 0 } else { byte % self.flights.len().max(1) }
    }

    fn ce_bytes(&mut self, acked_bytes: u64) -> u32 {
        let is_marked = self.marks > 0 && self.input.byte() < self.marks;
        match self.input.byte() {
            _ if !is_marked => 0,
            part @ 0..64 => (acked_bytes * u64::from(part) / 64) as u32,
            _ => acked_bytes as u32,
        }
    }

    /// Some packets of one burst come back, out of order or not.
    fn ack_one(&mut self) {
        let at = self.which();
        let part = self.input.byte();
        let packets = if part < 192 { u32::MAX } else { 1 + u32::from(part) % 8 };
        let jitter_ns = self.rtt_ns * u64::from(self.input.byte()) / 1_024;
        let Some(flight) = self.take(at, packets) else { return };
        self.now = self.now.max(flight.sent_at + self.rtt_ns + jitter_ns);
        let age_ns = self.now - flight.sent_at;
        // Hold times and late processing: a sample may be anything down to 1 us.
        let rtt_ns = match self.input.below(8) {
            0 => None,
            1 => Some(self.span_ns(MICROSECOND, 20).min(age_ns)),
            _ => Some(age_ns.min(self.rtt_ns + jitter_ns)),
        };
        let ce_bytes = self.ce_bytes(flight.bytes());
        self.ack(flight, flight.bytes(), flight.packets, rtt_ns, ce_bytes);
    }

    /// One acknowledgement for several bursts.
    fn ack_many(&mut self) {
        let count = 1 + self.input.below(32);
        let (mut bytes, mut packets, mut last) = (0, 0, None);
        for _ in 0..count {
            let Some(flight) = self.take(0, u32::MAX) else { break };
            (bytes, packets) = (bytes + flight.bytes(), packets + flight.packets);
            last = Some(flight);
        }
        let Some(last) = last else { return };
        self.now = self.now.max(last.sent_at + self.rtt_ns);
        let rtt_ns = (self.input.below(3) > 0).then_some((self.now - last.sent_at).min(SECOND));
        let ce_bytes = self.ce_bytes(bytes);
        self.ack(last, bytes, packets, rtt_ns, ce_bytes);
    }

    /// An acknowledgement without progress: a duplicate, or news of limits only.
    fn ack_nothing(&mut self) {
        let path = u16::from(self.input.byte()) % self.params.paths;
        let flight =
            Flight { sent_at: self.now, packets: 0, packet_bytes: 0, path, psn: self.next_psn };
        let ce_bytes = if self.input.below(4) == 0 { self.params.datagram_bytes } else { 0 };
        self.ack(flight, 0, 0, None, ce_bytes);
    }

    fn ack(
        &mut self,
        flight: Flight,
        acked_bytes: u64,
        acked_packets: u32,
        rtt_ns: Option<Nanos>,
        ce_bytes: u32,
    ) {
        self.foremost_psn = self.foremost_psn.max(flight.psn);
        let per_packet = self.policy == AckPolicy::PerPacket;
        let lag = if per_packet { self.foremost_psn - flight.psn } else { 0 };
        let ack = AckSample {
            now: self.now,
            sent_at: if rtt_ns.is_some() { flight.sent_at } else { self.now },
            acked_bytes,
            acked_packets,
            rtt_ns,
            path: flight.path,
            ce_bytes,
            lag_packets: lag as u32,
            in_flight_bytes: self.in_flight_bytes,
            app_limited: self.app_limited,
        };
        if acked_packets > 0 {
            self.timeouts_in_a_row = 0;
        }
        self.pipe.on_ack(&ack);
        self.bdp_most_bytes = self.bdp_most_bytes.max(f64::from(self.pipe.bdp_bytes()));
        self.flow.on_ack(&ack);
        // A controller that subtracts the differences of path lengths from its round trips has a BDP of its own.
        let own_bytes = self.flow.view().bdp_bytes as f64;
        assert!(own_bytes <= BDP_MAX_BYTES, "a BDP of {own_bytes} B");
        self.bdp_most_bytes = self.bdp_most_bytes.max(own_bytes);
        self.seen.acks += 1;
        self.check();
    }

    /// A window's worth goes out and comes back.
    fn round(&mut self) {
        while self.send(BURST_PACKETS_MAX, self.params.datagram_bytes) {}
        let jitter_ns = self.rtt_ns * u64::from(self.input.byte()) / 1_024;
        let is_marked = self.marks > 0 && self.input.byte() < self.marks;
        self.bring_back(self.rtt_ns + jitter_ns, is_marked);
    }

    fn bring_back(&mut self, rtt_ns: Nanos, is_marked: bool) {
        while let Some(flight) = self.take(0, u32::MAX) {
            self.now = self.now.max(flight.sent_at + rtt_ns);
            let ce_bytes = if is_marked { flight.bytes() as u32 } else { 0 };
            self.ack(flight, flight.bytes(), flight.packets, Some(rtt_ns), ce_bytes);
        }
    }

    fn lose(&mut self) {
        let kinds = [LossKind::Nack, LossKind::Probe, LossKind::Order, LossKind::Trim];
        let kind = kinds[self.input.below(if self.params.trimming { 4 } else { 3 })];
        let count = 1 + self.input.below(8);
        let at = self.which();
        for _ in 0..count {
            let Some(flight) = self.take(at.min(self.flights.len().saturating_sub(1)), 1) else {
                return;
            };
            self.now += self.rtt_ns / 8;
            self.lost_packets += 1;
            self.seen.losses += 1;
            self.flow.on_loss(&Loss {
                now: self.now,
                sent_at: flight.sent_at,
                bytes: flight.packet_bytes,
                path: flight.path,
                kind,
                in_flight_bytes: self.in_flight_bytes,
            });
            self.check();
        }
    }

    fn time_out(&mut self) {
        let count = 1 + self.input.below(8);
        for _ in 0..count {
            if self.flights.is_empty() {
                return;
            }
            self.now += self.rtt_ns * 2 + 1_000 * MICROSECOND;
            self.timeouts_in_a_row += 1;
            self.seen.timeouts += 1;
            self.flow.on_timeout(&Timeout {
                now: self.now,
                in_flight_bytes: self.in_flight_bytes,
                in_a_row: self.timeouts_in_a_row,
            });
            self.check();
        }
    }

    fn check(&mut self) {
        let window_bytes = self.flow.window_bytes();
        let bound = ((BOUND_BDPS * self.bdp_most_bytes) as u64)
            .max(self.first_window_bytes)
            .max(BOUND_PACKETS * u64::from(self.params.datagram_bytes));
        assert!(window_bytes > 0, "the window is 0");
        assert!(window_bytes <= bound, "a window of {window_bytes} B, above {bound} B");
        if let Some(pace) = self.flow.pace_bytes_per_s() {
            let gap_ns = u64::from(self.params.datagram_bytes) * SECOND / pace.max(1);
            assert!(pace > 0 && gap_ns <= GAP_MAX_NS, "a pace of {pace} B/s");
        }
        let view = self.flow.view();
        assert!(view.paths <= self.params.paths, "{view:?}");
        self.seen.window_bytes = self.seen.window_bytes.max(window_bytes);
    }

    /// The network is empty and loses nothing: the flow must get going again.
    fn recover(&mut self) {
        self.app_limited = false;
        self.rtt_ns = (self.pipe.base_rtt_ns() as Nanos).clamp(MICROSECOND, SECOND);
        self.bring_back(self.rtt_ns, false);
        let enough_bytes = 2 * u64::from(self.params.datagram_bytes);
        for round in 0..RECOVERY_ROUNDS {
            if self.flow.window_bytes() >= enough_bytes {
                self.seen.recovery_rounds = u64::from(round);
                return;
            }
            self.now = self.now.max(self.pace_at);
            let sent = self.send(1, self.params.datagram_bytes);
            assert!(sent, "nothing is in flight, and yet nothing may be sent");
            while self.send(1, self.params.datagram_bytes) {}
            self.bring_back(self.rtt_ns, false);
        }
        let (window, params) = (self.flow.window_bytes(), &self.params);
        panic!("still {window} B after {RECOVERY_ROUNDS} quiet round trips, {params:?}");
    }
}
