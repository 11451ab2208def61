//! UDMP's flows over a small model of a network: four paths, one shared exit, jitter.

use erd_rd::cc::udmp::UDMP;
use erd_rd::cc::{
    AckSample, Controller, FlowParams, LEARNING_SAMPLES, Loss, LossKind, Scheme, SentBurst,
};
use erd_rd::units::Nanos;
use rand_pcg::Pcg32;
use rand_pcg::rand_core::{Rng, SeedableRng};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

const PACKET: u32 = 4096;
const LINE: f64 = 12.5;
const BASE_NS: f64 = 20_000.0;
const BDP: f64 = LINE * BASE_NS;
const PATHS: usize = 4;

struct Flow {
    cc: Box<dyn Controller>,
    in_flight: u64,
    psn: u64,
    foremost: u64,
    pace_at: Nanos,
    link_free: f64,
    acked: u64,
    on_path: [u64; PATHS],
    until: Nanos,
    /// Samples with few packets in flight, as the engine has it.
    learning: u8,
}

/// (when, order, flow, path, sent at, PSN, what).
type Event = Reverse<(Nanos, u64, usize, u16, Nanos, u64, What)>;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Acked,
    Lost,
    Wake,
}

struct Net {
    now: Nanos,
    flows: Vec<Flow>,
    events: BinaryHeap<Event>,
    order: u64,
    /// Bytes per ns of each path, and when its queue is empty.
    path_rate: [f64; PATHS],
    path_free: [f64; PATHS],
    exit_free: f64,
    buffer: f64,
    jitter_ns: f64,
    rng: Pcg32,
    lost: u64,
    /// Sum and number of the delays at the exit.
    queue: (f64, u64),
}

impl Net {
    fn new(scheme: &dyn Scheme, flows: usize, buffer_bdp: f64, jitter_ns: f64) -> Net {
        let mut net = Net {
            now: 0,
            flows: Vec::new(),
            events: BinaryHeap::new(),
            order: 0,
            path_rate: [LINE; PATHS],
            path_free: [0.0; PATHS],
            exit_free: 0.0,
            buffer: buffer_bdp * BDP,
            jitter_ns,
            rng: Pcg32::seed_from_u64(3),
            lost: 0,
            queue: (0.0, 0),
        };
        for _ in 0..flows {
            net.add_flow(scheme, (LINE * 1e9) as u64);
        }
        net
    }

    fn add_flow(&mut self, scheme: &dyn Scheme, link_bytes_per_s: u64) {
        let params = FlowParams {
            base_rtt_ns: 0,
            now: 0,
            datagram_bytes: PACKET,
            paths: PATHS as u16,
            first_rtt_ns: BASE_NS as Nanos,
            link_bytes_per_s,
            burst_bytes: 0,
            trimming: false,
        };
        self.flows.push(Flow {
            cc: scheme.build(&params, self.flows.len() as u64 + 1),
            in_flight: 0,
            psn: 0,
            foremost: 0,
            pace_at: 0,
            link_free: 0.0,
            acked: 0,
            on_path: [0; PATHS],
            until: Nanos::MAX,
            learning: LEARNING_SAMPLES,
        });
    }

    fn push(&mut self, at: f64, flow: usize, path: u16, psn: u64, what: What) {
        self.order += 1;
        self.events.push(Reverse((at as Nanos, self.order, flow, path, self.now, psn, what)));
    }

    /// Exponentially distributed.
    fn jitter(&mut self) -> f64 {
        let uniform = (f64::from(self.rng.next_u32()) + 1.0) / f64::from(u32::MAX);
        -uniform.min(1.0).ln() * self.jitter_ns
    }

    fn send(&mut self, n: usize) {
        loop {
            let now = self.now;
            let flow = &mut self.flows[n];
            let size = u64::from(PACKET);
            let open = |flow: &Flow, bytes| {
                let learning = if flow.learning > 0 { 4 * size } else { u64::MAX };
                flow.in_flight + bytes <= flow.cc.window_bytes().min(learning)
            };
            if now >= flow.until || flow.pace_at > now {
                return;
            }
            if flow.in_flight > 0 && !open(flow, size) {
                return;
            }
            let path = flow.cc.next_path(now);
            let mut packets = 1;
            while packets < 16 && open(flow, (packets + 1) * size) {
                packets += 1;
            }
            flow.in_flight += packets * size;
            let bytes = (packets * size) as u32;
            flow.cc.on_sent(&SentBurst {
                now,
                bytes,
                packets: packets as u32,
                path,
                in_flight_bytes: flow.in_flight,
                retransmission: false,
            });
            if let Some(rate) = flow.cc.pace_bytes_per_s() {
                flow.pace_at = now + u64::from(bytes) * 1_000_000_000 / rate;
                let at = flow.pace_at as f64;
                self.push(at, n, 0, 0, What::Wake);
            }
            for _ in 0..packets {
                self.carry(n, path);
            }
        }
    }

    fn carry(&mut self, n: usize, path: u16) {
        let jitter = self.jitter();
        let p = usize::from(path);
        let size = f64::from(PACKET);
        let flow = &mut self.flows[n];
        flow.psn += 1;
        flow.on_path[p] += 1;
        let psn = flow.psn;
        flow.link_free = flow.link_free.max(self.now as f64) + size / LINE;
        let at = flow.link_free;
        let path_queue = (self.path_free[p] - at).max(0.0) * self.path_rate[p];
        let exit_queue = (self.exit_free - at).max(0.0) * LINE;
        if path_queue.max(exit_queue) + size > self.buffer {
            self.lost += 1;
            return self.push(at + 2.0 * BASE_NS, n, path, psn, What::Lost);
        }
        self.path_free[p] = self.path_free[p].max(at) + size / self.path_rate[p];
        self.exit_free = self.exit_free.max(at) + size / LINE;
        let done = self.path_free[p].max(self.exit_free);
        self.queue = (self.queue.0 + done - at, self.queue.1 + 1);
        self.push(done + BASE_NS + jitter, n, path, psn, What::Acked);
    }

    fn run(&mut self, until: Nanos) {
        for n in 0..self.flows.len() {
            self.send(n);
        }
        while let Some(&Reverse((at, _, n, path, sent_at, psn, what))) = self.events.peek() {
            if at >= until {
                break;
            }
            self.events.pop();
            self.now = at;
            let flow = &mut self.flows[n];
            let bytes = u64::from(PACKET);
            match what {
                What::Acked => {
                    flow.in_flight -= bytes;
                    flow.learning = flow.learning.saturating_sub(1);
                    flow.acked += bytes;
                    flow.foremost = flow.foremost.max(psn);
                    flow.cc.on_ack(&AckSample {
                        now: at,
                        sent_at,
                        acked_bytes: bytes,
                        acked_packets: 1,
                        rtt_ns: Some(at - sent_at),
                        path,
                        ce_bytes: 0,
                        lag_packets: (flow.foremost - psn) as u32,
                        in_flight_bytes: flow.in_flight,
                        app_limited: at >= flow.until,
                    });
                }
                What::Lost => {
                    flow.in_flight -= bytes;
                    flow.cc.on_loss(&Loss {
                        now: at,
                        sent_at,
                        bytes: PACKET,
                        path,
                        kind: LossKind::Nack,
                        in_flight_bytes: flow.in_flight,
                    });
                }
                What::Wake => {}
            }
            self.send(n);
        }
        self.now = until;
    }

    /// Runs for so long; what was acknowledged meanwhile as a share of the line rate.
    fn goodput(&mut self, span_ns: Nanos) -> f64 {
        let before: u64 = self.acked().iter().sum();
        self.queue = (0.0, 0);
        self.run(self.now + span_ns);
        (self.acked().iter().sum::<u64>() - before) as f64 / (span_ns as f64 * LINE)
    }

    fn acked(&self) -> Vec<u64> {
        self.flows.iter().map(|flow| flow.acked).collect()
    }

    fn jain(&self, before: &[u64]) -> f64 {
        let got = self.flows.iter().zip(before).map(|(flow, b)| (flow.acked - b) as f64);
        let (sum, squares) = got.fold((0.0, 0.0), |(s, q), x| (s + x, q + x * x));
        sum * sum / (squares * self.flows.len() as f64)
    }

    fn queue_bdp(&self) -> f64 {
        self.queue.0 / self.queue.1.max(1) as f64 / BASE_NS
    }
}

const MS: Nanos = 1_000_000;

#[test]
fn a_lone_flow_fills_the_link_despite_jitter() {
    for (jitter_ns, least) in [(0.0, 0.98), (1_000.0, 0.98), (5_000.0, 0.95), (20_000.0, 0.9)] {
        let mut net = Net::new(&UDMP.scheme(), 1, 5.0, jitter_ns);
        net.goodput(5 * MS);
        let goodput = net.goodput(20 * MS);
        assert!(goodput > least, "{goodput} of the line at a jitter of {jitter_ns} ns");
    }
}

#[test]
fn flows_share_an_exit_without_losses_or_long_queues() {
    for flows in [2, 8, 32] {
        let mut net = Net::new(&UDMP.scheme(), flows, 5.0, 1_000.0);
        net.goodput(10 * MS);
        let (before, lost) = (net.acked(), net.lost);
        let goodput = net.goodput(40 * MS);
        let sent = 40e6 * LINE / f64::from(PACKET);
        let lost = (net.lost - lost) as f64 / sent;
        let (jain, queue) = (net.jain(&before), net.queue_bdp());
        println!("{flows} flows: {goodput:.3} Jain {jain:.3} queue {queue:.2} BDP lost {lost:.3}");
        assert!(goodput > 0.98 && jain > 0.95 && lost < 0.001 && queue < 1.0);
    }
}

#[test]
fn a_flow_grows_back_when_the_others_are_gone() {
    let mut net = Net::new(&UDMP.scheme(), 16, 5.0, 1_000.0);
    net.goodput(10 * MS);
    let now = net.now;
    for flow in &mut net.flows[1..] {
        flow.until = now;
    }
    net.goodput(5 * MS);
    assert!(net.goodput(10 * MS) > 0.95, "stuck at the share of sixteen");
}

#[test]
fn a_slow_path_gets_little_and_costs_little() {
    let mut net = Net::new(&UDMP.scheme(), 1, 5.0, 1_000.0);
    net.path_rate = [LINE / 2.0, LINE / 2.0, LINE / 2.0, LINE / 20.0];
    net.goodput(5 * MS);
    net.flows[0].on_path = [0; PATHS];
    let goodput = net.goodput(20 * MS);
    let on_path = net.flows[0].on_path;
    println!("slow path: {goodput:.3} of the line, packets {on_path:?}");
    assert!(goodput > 0.95, "{goodput}");
    let total: u64 = on_path.iter().sum();
    assert!(on_path[3] * 10 < total && on_path[3] > 0, "{on_path:?}");
}

#[test]
fn idle_flows_restart_with_a_bdp_at_most_and_paced() {
    let mut net = Net::new(&UDMP.scheme(), 1, 5.0, 0.0);
    net.goodput(5 * MS);
    let flow = &mut net.flows[0];
    flow.until = 5 * MS;
    net.goodput(5 * MS);
    let flow = &mut net.flows[0];
    assert_eq!(flow.in_flight, 0);
    assert!(flow.cc.window_bytes() >= u64::from(PACKET));
    let now = 60 * MS;
    let mut sent = 0;
    while sent == 0 || flow.in_flight + u64::from(PACKET) <= flow.cc.window_bytes() {
        let path = flow.cc.next_path(now);
        flow.in_flight += u64::from(PACKET);
        flow.cc.on_sent(&SentBurst {
            now,
            bytes: PACKET,
            packets: 1,
            path,
            in_flight_bytes: flow.in_flight,
            retransmission: false,
        });
        sent += u64::from(PACKET);
        let paced = flow.cc.pace_bytes_per_s().is_some();
        assert!(paced || sent as f64 > 0.9 * BDP, "what no acknowledgement clocks is paced");
    }
    let bdp = flow.cc.view().bdp_bytes;
    assert!(sent <= bdp && sent * 10 > bdp * 9, "{sent} of {bdp}");
}

#[test]
fn flows_go_on_when_no_acknowledgement_clocks() {
    // Every acknowledgement lies further back than the tolerance.
    let mut net = Net::new(&UDMP.scheme(), 1, 5.0, 1_000.0);
    net.flows[0].foremost = 1 << 40;
    net.goodput(5 * MS);
    assert!(net.goodput(10 * MS) > 0.5, "the pool must find its way out");
}

#[test]
fn an_unknown_link_is_learned() {
    let mut net = Net::new(&UDMP.scheme(), 0, 5.0, 1_000.0);
    net.add_flow(&UDMP.scheme(), 0);
    net.path_rate = [LINE / 20.0; PATHS];
    net.goodput(10 * MS);
    net.path_rate = [LINE; PATHS];
    net.goodput(20 * MS);
    assert!(net.goodput(10 * MS) > 0.9);
}
