//! UDMP's flows over a small model of a network: four paths, one shared exit, jitter.

use erd_rd::cc::settings;
use erd_rd::cc::udmp::UdmpScheme;
use erd_rd::cc::{Ack, Controller, FlowParams, Loss, LossKind, Scheme, Sent};
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
    fn new(scheme: &UdmpScheme, flows: usize, buffer_bdp: f64, jitter_ns: f64) -> Net {
        let flow = |n: usize| Flow {
            cc: scheme.build(
                &FlowParams {
                    now: 0,
                    datagram_bytes: PACKET,
                    paths: PATHS as u16,
                    first_rtt_ns: BASE_NS as Nanos,
                    link_bytes_per_s: (LINE * 1e9) as u64,
                    trimming: false,
                },
                n as u64 + 1,
            ),
            in_flight: 0,
            psn: 0,
            foremost: 0,
            pace_at: 0,
            link_free: 0.0,
            acked: 0,
            on_path: [0; PATHS],
            until: Nanos::MAX,
        };
        Net {
            now: 0,
            flows: (0..flows).map(flow).collect(),
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
        }
    }

    fn push(&mut self, at: f64, flow: usize, path: u16, psn: u64, what: What) {
        self.order += 1;
        self.events.push(Reverse((at as Nanos, self.order, flow, path, self.now, psn, what)));
    }

    /// Exponential jitter: the sum of bits of a geometric draw is close enough.
    fn jitter(&mut self) -> f64 {
        let uniform = (f64::from(self.rng.next_u32()) + 1.0) / f64::from(u32::MAX);
        -uniform.ln().min(0.0) * self.jitter_ns
    }

    fn send(&mut self, n: usize) {
        loop {
            let now = self.now;
            let flow = &mut self.flows[n];
            let size = u64::from(PACKET);
            let open = |flow: &Flow, bytes| flow.in_flight + bytes <= flow.cc.window_bytes();
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
            flow.cc.on_sent(&Sent {
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
                    flow.acked += bytes;
                    flow.foremost = flow.foremost.max(psn);
                    flow.cc.on_ack(&Ack {
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
        let acked = |net: &Net| net.flows.iter().map(|flow| flow.acked).sum::<u64>();
        let before = acked(self);
        self.queue = (0.0, 0);
        self.run(self.now + span_ns);
        (acked(self) - before) as f64 / (span_ns as f64 * LINE)
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
fn sensitivity() {
    for (name, values) in [
        ("t_low", vec![0.25, 0.1, 0.5]),
        ("alpha", vec![1.0 / 16.0, 1.0 / 64.0, 1.0 / 4.0]),
        ("t_high", vec![3.0, 2.0, 6.0, 12.0]),
        ("additive", vec![1.0 / 128.0, 1.0 / 512.0, 1.0 / 32.0]),
        ("beta", vec![0.8, 0.0, 0.4]),
        ("loss", vec![0.5, 0.25, 0.75, 1.0]),
        ("delta", vec![64.0, 16.0, 1000.0]),
        ("probe_us", vec![1000.0, 100.0, 10000.0]),
    ] {
        for value in values {
            let mut scheme = UdmpScheme::default();
            settings::set(&mut scheme, name, value).unwrap();
            let mut line = format!("{name} {value}:");
            for jitter in [0.0, 1_000.0, 5_000.0, 20_000.0] {
                let mut net = Net::new(&scheme, 1, 5.0, jitter);
                net.goodput(5 * MS);
                let g = net.goodput(20 * MS);
                line += &format!(" lone{:.0}us {:.2} q{:.2}", jitter / 1e3, g, net.queue_bdp());
            }
            for flows in [8, 32, 100] {
                let mut net = Net::new(&scheme, flows, 5.0, 1_000.0);
                net.goodput(10 * MS);
                let before: Vec<u64> = net.flows.iter().map(|f| f.acked).collect();
                let lost = net.lost;
                let g = net.goodput(40 * MS);
                line += &format!(
                    " | {flows}: {:.3} j{:.3} q{:.2} lost {lost}+{}",
                    g,
                    net.jain(&before),
                    net.queue_bdp(),
                    net.lost - lost
                );
            }
            println!("{line}");
        }
    }
}

#[test]
fn debug8() {
    let mut net = Net::new(&UdmpScheme::default(), 8, 5.0, 1_000.0);
    net.goodput(10 * MS);
}
