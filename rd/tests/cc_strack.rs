//! STrack in a closed loop: flows over one bottleneck, a queue that marks or does not.

use erd_rd::cc::strack::StrackScheme;
use erd_rd::cc::{Ack, Controller, FlowParams, Scheme, Sent};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

const PACKET: u64 = 4096;
const RTT_NS: u64 = 12_000;
/// 100 Gb/s.
const PACKET_NS: u64 = 328;
/// Packets of a BDP.
const BDP: usize = 37;
/// The buffer, in packets (section 4.1).
const BUFFER: usize = 5 * BDP;

struct Flow {
    cc: Box<dyn Controller>,
    in_flight: u64,
    delivered: u64,
    /// Packets that no acknowledgement has told yet, and how many of them were marked.
    untold: (u32, u32),
}

struct Outcome {
    /// Per flow, after the start.
    delivered: Vec<u64>,
    mean_queue: f64,
    drops: u64,
}

enum Event {
    Arrive { flow: usize, sent_at: u64, path: u16 },
    Told { flow: usize, sent_at: u64, path: u16, packets: u32, marked: u32 },
    Lost { flow: usize },
}

struct World {
    flows: Vec<Flow>,
    events: Vec<Event>,
    heap: BinaryHeap<Reverse<(u64, usize)>>,
    queue: VecDeque<(usize, u64, u16)>,
    ecn: bool,
    /// Marks are drawn by a counter, so that a run repeats.
    draw: u64,
}

impl World {
    fn at(&mut self, when: u64, event: Event) {
        self.events.push(event);
        self.heap.push(Reverse((when, self.events.len() - 1)));
    }

    fn send(&mut self, now: u64, flow: usize) {
        loop {
            let f = &mut self.flows[flow];
            if f.in_flight > 0 && (f.in_flight + 1) * PACKET > f.cc.window_bytes() {
                return;
            }
            let path = f.cc.next_path(now);
            f.in_flight += 1;
            let (bytes, packets, in_flight_bytes) = (PACKET as u32, 1, f.in_flight * PACKET);
            let retransmission = false;
            f.cc.on_sent(&Sent { now, bytes, packets, path, in_flight_bytes, retransmission });
            self.at(now + RTT_NS / 2, Event::Arrive { flow, sent_at: now, path });
        }
    }

    /// Marks between 25 and 75 % of a BDP (section 4.1), by the queue behind the packet.
    fn marks(&mut self) -> bool {
        let share = (self.queue.len() as f64 / BDP as f64 - 0.25) / 0.5;
        self.draw = self.draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        self.ecn && ((self.draw >> 40) as f64) < share * f64::from(1 << 24)
    }

    /// The packet at the head leaves; every fourth of a flow is acknowledged, and the last.
    fn leave(&mut self, now: u64) {
        let Some((flow, sent_at, path)) = self.queue.pop_front() else { return };
        let marked = u32::from(self.marks());
        let f = &mut self.flows[flow];
        f.untold = (f.untold.0 + 1, f.untold.1 + marked);
        if f.untold.0 >= 4 || u64::from(f.untold.0) >= f.in_flight.div_ceil(4) {
            let (packets, marked) = std::mem::take(&mut f.untold);
            let when = now + RTT_NS / 2;
            self.at(when, Event::Told { flow, sent_at, path, packets, marked });
        }
    }

    fn told(&mut self, now: u64, ack: &Event) {
        let Event::Told { flow, sent_at, path, packets, marked } = *ack else { return };
        let f = &mut self.flows[flow];
        f.in_flight -= u64::from(packets);
        f.delivered += u64::from(packets);
        f.cc.on_ack(&Ack {
            now,
            sent_at,
            acked_bytes: u64::from(packets) * PACKET,
            acked_packets: packets,
            rtt_ns: Some(now - sent_at),
            path,
            ce_bytes: marked * PACKET as u32,
            lag_packets: 0,
            in_flight_bytes: f.in_flight * PACKET,
            app_limited: false,
        });
        self.send(now, flow);
    }
}

fn run(flows: usize, ecn: bool) -> Outcome {
    let scheme = StrackScheme::default();
    let params = FlowParams {
        now: 0,
        datagram_bytes: PACKET as u32,
        paths: 64,
        first_rtt_ns: RTT_NS,
        link_bytes_per_s: 12_500_000_000,
        trimming: false,
    };
    let build =
        |seed| Flow { cc: scheme.build(&params, seed), in_flight: 0, delivered: 0, untold: (0, 0) };
    let mut world = World {
        flows: (0..flows as u64).map(build).collect(),
        events: Vec::new(),
        heap: BinaryHeap::new(),
        queue: VecDeque::new(),
        ecn,
        draw: 1,
    };
    for flow in 0..flows {
        world.send(0, flow);
    }
    // 10 ms, of which the last half counts.
    let (slots, half) = (10_000_000 / PACKET_NS, 5_000_000 / PACKET_NS);
    let (mut drops, mut sum_queue) = (0, 0);
    for slot in 0..slots {
        let now = slot * PACKET_NS;
        while let Some(&Reverse((when, at))) = world.heap.peek()
            && when <= now
        {
            world.heap.pop();
            let event = std::mem::replace(&mut world.events[at], Event::Lost { flow: 0 });
            match event {
                Event::Arrive { flow, sent_at, path } if world.queue.len() < BUFFER => {
                    world.queue.push_back((flow, sent_at, path));
                }
                // Found out after a round trip, which is when it would be sent again.
                Event::Arrive { flow, .. } => {
                    drops += u64::from(slot >= half);
                    world.at(now + 2 * RTT_NS, Event::Lost { flow });
                }
                Event::Lost { flow } => {
                    world.flows[flow].in_flight -= 1;
                    world.send(now, flow);
                }
                told => world.told(now, &told),
            }
        }
        if slot == half {
            world.flows.iter_mut().for_each(|f| f.delivered = 0);
        }
        world.leave(now);
        sum_queue += if slot >= half { world.queue.len() } else { 0 };
    }
    let delivered = world.flows.iter().map(|f| f.delivered).collect();
    Outcome { delivered, mean_queue: sum_queue as f64 / (slots - half) as f64, drops }
}

/// Jain's index: 1 when all get the same.
fn fairness(shares: &[u64]) -> f64 {
    let sum: f64 = shares.iter().map(|s| *s as f64).sum();
    let squares: f64 = shares.iter().map(|s| (*s as f64).powi(2)).sum();
    sum * sum / (shares.len() as f64 * squares)
}

#[test]
fn flows_share_a_bottleneck_at_the_target_queue() {
    let capacity = 5_000_000.0 / PACKET_NS as f64;
    for ecn in [true, false] {
        for flows in [1, 2, 8, 32] {
            let outcome = run(flows, ecn);
            let use_ = outcome.delivered.iter().sum::<u64>() as f64 / capacity;
            let jain = fairness(&outcome.delivered);
            let queue = outcome.mean_queue / BDP as f64;
            println!(
                "ecn {ecn} flows {flows}: use {use_:.3} jain {jain:.3} queue {queue:.2} BDP, {} drops",
                outcome.drops
            );
        }
    }
}
