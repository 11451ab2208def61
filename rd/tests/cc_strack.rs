//! STrack in a closed loop: flows over one bottleneck, a queue that marks or does not.

use erd_rd::cc::strack::STRACK;
use erd_rd::cc::{
    AckPolicy, AckSample, Controller, FlowParams, LEARNING_SAMPLES, Scheme, SentBurst,
};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

const PACKET: u64 = 4096;
const RTT_NS: u64 = 12_000;
const ACK_DELAY_NS: u64 = 10_000;
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
    untold: Untold,
    /// Samples until the controller has its way, as in the engine.
    learning: u8,
}

impl Flow {
    fn window_bytes(&self) -> u64 {
        let most = if self.learning > 0 { 4 * PACKET } else { u64::MAX };
        self.cc.window_bytes().min(most)
    }
}

/// What no acknowledgement has told yet: packets, how many of them were marked, and the newest.
#[derive(Default)]
struct Untold {
    packets: u32,
    marked: u32,
    rtt_ns: u64,
    path: u16,
}

struct Outcome {
    /// Per flow, after the start.
    delivered: Vec<u64>,
    mean_queue: f64,
    drops: u64,
}

enum Event {
    Arrive { flow: usize, sent_at: u64, path: u16 },
    Told { flow: usize, untold: Untold },
    AckDelay { flow: usize },
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
    drops: u64,
    sack_packets: u32,
}

impl World {
    fn at(&mut self, when: u64, event: Event) {
        self.events.push(event);
        self.heap.push(Reverse((when, self.events.len() - 1)));
    }

    fn send(&mut self, now: u64, flow: usize) {
        loop {
            let f = &mut self.flows[flow];
            if f.in_flight > 0 && (f.in_flight + 1) * PACKET > f.window_bytes() {
                return;
            }
            let path = f.cc.next_path(now);
            f.in_flight += 1;
            let (bytes, packets, in_flight_bytes) = (PACKET as u32, 1, f.in_flight * PACKET);
            let retransmission = false;
            f.cc.on_sent(&SentBurst { now, bytes, packets, path, in_flight_bytes, retransmission });
            self.at(now + RTT_NS / 2, Event::Arrive { flow, sent_at: now, path });
        }
    }

    /// Marks between 25 and 75 % of a BDP (section 4.1), by the queue behind the packet.
    fn marks(&mut self) -> bool {
        let share = (self.queue.len() as f64 / BDP as f64 - 0.25) / 0.5;
        self.draw = self.draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        self.ecn && ((self.draw >> 40) as f64) < share * f64::from(1 << 24)
    }

    /// The packet at the head leaves the queue.
    fn leave(&mut self, now: u64) {
        let Some((flow, sent_at, path)) = self.queue.pop_front() else { return };
        let marked = u32::from(self.marks());
        let untold = &mut self.flows[flow].untold;
        (untold.packets, untold.marked) = (untold.packets + 1, untold.marked + marked);
        (untold.rtt_ns, untold.path) = (now + RTT_NS / 2 - sent_at, path);
        let told = untold.packets;
        // A packet asks for an acknowledgement in each quarter of a window.
        let quarter = (self.flows[flow].cc.window_bytes() / PACKET / 4) as u32;
        match told {
            packets if packets >= self.sack_packets.min(quarter) => self.acknowledge(now, flow),
            1 => self.at(now + ACK_DELAY_NS, Event::AckDelay { flow }),
            _ => {}
        }
    }

    fn acknowledge(&mut self, now: u64, flow: usize) {
        let untold = std::mem::take(&mut self.flows[flow].untold);
        if untold.packets > 0 {
            self.at(now + RTT_NS / 2, Event::Told { flow, untold });
        }
    }

    fn told(&mut self, now: u64, flow: usize, untold: &Untold) {
        let f = &mut self.flows[flow];
        f.in_flight -= u64::from(untold.packets);
        f.delivered += u64::from(untold.packets);
        f.learning = f.learning.saturating_sub(1);
        f.cc.on_ack(&AckSample {
            now,
            sent_at: now - untold.rtt_ns,
            acked_bytes: u64::from(untold.packets) * PACKET,
            acked_packets: untold.packets,
            rtt_ns: Some(untold.rtt_ns),
            path: untold.path,
            ce_bytes: untold.marked * PACKET as u32,
            lag_packets: 0,
            in_flight_bytes: f.in_flight * PACKET,
            app_limited: false,
        });
        self.send(now, flow);
    }

    fn happen(&mut self, now: u64, event: Event) {
        match event {
            Event::Arrive { flow, sent_at, path } if self.queue.len() < BUFFER => {
                self.queue.push_back((flow, sent_at, path));
            }
            // Found out two round trips later.
            Event::Arrive { flow, .. } => {
                self.drops += 1;
                self.at(now + 2 * RTT_NS, Event::Lost { flow });
            }
            Event::Lost { flow } => {
                self.flows[flow].in_flight -= 1;
                self.send(now, flow);
            }
            Event::AckDelay { flow } => self.acknowledge(now, flow),
            Event::Told { flow, untold } => self.told(now, flow, &untold),
        }
    }
}

fn run(flows: usize, ecn: bool) -> Outcome {
    let scheme = STRACK.scheme();
    let params = FlowParams {
        now: 0,
        datagram_bytes: PACKET as u32,
        paths: 64,
        first_rtt_ns: RTT_NS,
        base_rtt_ns: 0,
        link_bytes_per_s: 12_500_000_000,
        burst_bytes: 0,
        trimming: false,
    };
    let AckPolicy::Coalesced { packets } = scheme.ack_policy() else { panic!("not coalesced") };
    let build = |seed| Flow {
        cc: scheme.build(&params, seed),
        in_flight: 0,
        delivered: 0,
        untold: Untold::default(),
        learning: LEARNING_SAMPLES,
    };
    let mut world = World {
        flows: (0..flows as u64).map(build).collect(),
        events: Vec::new(),
        heap: BinaryHeap::new(),
        queue: VecDeque::new(),
        ecn,
        draw: 1,
        drops: 0,
        sack_packets: u32::from(packets),
    };
    for flow in 0..flows {
        world.send(0, flow);
    }
    // 10 ms, of which the last half counts.
    let (slots, half) = (10_000_000 / PACKET_NS, 5_000_000 / PACKET_NS);
    let mut sum_queue = 0;
    for slot in 0..slots {
        let now = slot * PACKET_NS;
        while let Some(&Reverse((when, at))) = world.heap.peek()
            && when <= now
        {
            world.heap.pop();
            let event = std::mem::replace(&mut world.events[at], Event::AckDelay { flow: 0 });
            world.happen(now, event);
        }
        if slot == half {
            world.flows.iter_mut().for_each(|f| f.delivered = 0);
            world.drops = 0;
        }
        world.leave(now);
        sum_queue += if slot >= half { world.queue.len() } else { 0 };
    }
    let delivered = world.flows.iter().map(|f| f.delivered).collect();
    Outcome { delivered, mean_queue: sum_queue as f64 / (slots - half) as f64, drops: world.drops }
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
            let share = outcome.delivered.iter().sum::<u64>() as f64 / capacity;
            let jain = fairness(&outcome.delivered);
            let queue = outcome.mean_queue / BDP as f64;
            let case = format!("ECN {ecn}, {flows} flows: {share:.3}, {jain:.3}, {queue:.2}");
            assert!(share >= 0.97 && jain >= 0.9, "{case}");
            // Without marks, growth goes on up to the target and overshoots it more.
            assert!(queue <= if ecn { 1.5 } else { 2.5 }, "{case}");
            assert_eq!(outcome.drops, 0, "{case}");
        }
    }
}
