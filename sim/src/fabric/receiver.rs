//! What lies between a host's link and its engine: a ring of bounded size that the network card fills, the time until the
//! host looks, and the time that it takes for each packet.

use super::arrival_order::ArrivalOrder;
use crate::ids::HostId;
use crate::mutants::{Mutant, mutant};
use crate::time::{PS_PER_S, Picos};
use rand_pcg::Pcg32;
use rand_pcg::rand_core::{Rng, SeedableRng};

/// All hosts' ways from the link to the engine.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Receivers {
    /// Most packets that wait for the engine. Without a limit, the senders' windows are the only one.
    pub ring_packets: Option<u32>,
    /// Most bytes on the wire of packets that wait for the engine; the same holds.
    pub ring_bytes: Option<u64>,
    /// Time from the arrival at an empty ring until the host looks. It takes what arrives meanwhile, too.
    pub delay: Delay,
    /// Time that the host takes for each packet.
    pub packet_ps: Picos,
    /// Rate at which it takes a packet's bytes, besides.
    pub bytes_per_s: Option<u64>,
    /// Time that it takes besides for a data packet which a later one of the same sender has overtaken.
    pub reorder_ps: Picos,
}

impl Default for Receivers {
    fn default() -> Receivers {
        let delay = Delay::Constant { ps: 0 };
        Receivers {
            ring_packets: None,
            ring_bytes: None,
            delay,
            packet_ps: 0,
            bytes_per_s: None,
            reorder_ps: 0,
        }
    }
}

/// A distribution of times.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Delay {
    /// Always the same.
    Constant {
        /// The time.
        ps: Picos,
    },
    /// Anything between two, with equal chances.
    Uniform {
        /// Least.
        min_ps: Picos,
        /// Greatest.
        max_ps: Picos,
    },
    /// Without memory.
    Exponential {
        /// Mean.
        mean_ps: Picos,
    },
    /// With a heavy tail: a time above t has the chance (min / t)^shape.
    Pareto {
        /// Least.
        min_ps: Picos,
        /// The smaller, the heavier the tail.
        shape: f64,
        /// Greatest: longer ones are cut.
        max_ps: Picos,
    },
}

impl Delay {
    fn draw(self, rng: &mut Pcg32) -> Picos {
        // Never 0, so that the logarithm is finite.
        let mut uniform = || (f64::from(rng.next_u32()) + 0.5) / 4_294_967_296.0;
        match self {
            Delay::Constant { ps } => ps,
            Delay::Uniform { min_ps, max_ps } => {
                min_ps + (uniform() * (max_ps - min_ps) as f64) as Picos
            }
            Delay::Exponential { mean_ps } => (-libm::log(uniform()) * mean_ps as f64) as Picos,
            Delay::Pareto { min_ps, shape, max_ps } => {
                let times = libm::exp(-libm::log(uniform()) / shape);
                ((min_ps as f64 * times) as Picos).min(max_ps)
            }
        }
    }
}

/// A packet that arrives.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arriving {
    pub(super) from: HostId,
    /// Its place among the data packets of its sender; 0 if it has none.
    pub(super) number: u32,
    pub(super) wire_bytes: u32,
}

/// One host's.
#[derive(Debug)]
pub(super) struct Receiver {
    rng: Pcg32,
    /// Packets that the engine has not seen, and their bytes.
    packets: u32,
    bytes: u64,
    /// When the host is done with all of them.
    free_at: Picos,
    /// The order of data packets, kept if it costs anything.
    order: ArrivalOrder,
    /// Packets so far.
    pub(super) taken: u64,
    pub(super) drops: u64,
}

impl Receiver {
    pub(super) fn new(seed: u64) -> Receiver {
        let rng = Pcg32::seed_from_u64(seed);
        let order = ArrivalOrder::default();
        Receiver { rng, packets: 0, bytes: 0, free_at: 0, order, taken: 0, drops: 0 }
    }

    /// A packet arrives. Returns when the engine sees it; `None` if the ring is full.
    pub(super) fn arrive(
        &mut self,
        all: &Receivers,
        now: Picos,
        packet: Arriving,
    ) -> Option<Picos> {
        let Arriving { from, number, wire_bytes } = packet;
        let bytes = self.bytes + u64::from(wire_bytes);
        let is_full = all.ring_packets.is_some_and(|most| self.packets >= most)
            || all.ring_bytes.is_some_and(|most| bytes > most);
        if is_full {
            self.drops += 1;
            return None;
        }
        let looks_at = if self.packets == 0 { now + all.delay.draw(&mut self.rng) } else { now };
        let copying = |rate: u64| (u64::from(wire_bytes) * PS_PER_S).div_ceil(rate);
        let mut takes = all.packet_ps + all.bytes_per_s.map_or(0, copying);
        let is_late = number > 0 && self.order.arrives(from, number);
        if is_late || number > 0 && mutant(Mutant::ChargesPacketsInOrder) {
            takes += all.reorder_ps;
        }
        self.free_at = self.free_at.max(looks_at) + takes;
        (self.packets, self.bytes, self.taken) = (self.packets + 1, bytes, self.taken + 1);
        Some(self.free_at)
    }

    /// The engine sees the next packet.
    pub(super) fn seen(&mut self, wire_bytes: u32) {
        if mutant(Mutant::FillsRings) {
            return;
        }
        self.packets -= 1;
        self.bytes -= u64::from(wire_bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WIRE_BYTES: u32 = 1_000;

    /// A packet of host 7.
    fn packet(number: u32) -> Arriving {
        Arriving { from: HostId(7), number, wire_bytes: WIRE_BYTES }
    }

    #[test]
    fn a_full_ring_drops_by_packets_or_bytes() {
        for all in [
            Receivers { ring_packets: Some(4), ..Receivers::default() },
            Receivers { ring_bytes: Some(4_999), ..Receivers::default() },
        ] {
            let mut receiver = Receiver::new(1);
            let taken = (0..6).filter(|at| receiver.arrive(&all, *at, packet(0)).is_some());
            assert_eq!(taken.count(), 4);
            receiver.seen(WIRE_BYTES);
            assert!(receiver.arrive(&all, 9, packet(0)).is_some(), "one place is free");
            assert!(receiver.arrive(&all, 9, packet(0)).is_none());
            assert_eq!((receiver.drops, receiver.taken), (3, 5));
        }
    }

    #[test]
    fn a_look_takes_all_that_wait_and_each_takes_its_time() {
        let all = Receivers {
            delay: Delay::Constant { ps: 5_000 },
            packet_ps: 100,
            bytes_per_s: Some(1_000_000_000_000),
            ..Receivers::default()
        };
        let mut receiver = Receiver::new(1);
        let mut arrive = |at| receiver.arrive(&all, at, packet(0));
        assert_eq!(
            [arrive(10), arrive(4_000), arrive(6_150)],
            [Some(6_110), Some(7_210), Some(8_310)]
        );
        (0..3).for_each(|_| receiver.seen(WIRE_BYTES));
        assert_eq!(receiver.arrive(&all, 8_311, packet(0)), Some(8_311 + 5_000 + 1_100));
    }

    /// Others in between, and packets without a number, cost nothing.
    #[test]
    fn a_packet_that_was_overtaken_takes_longer() {
        let all = Receivers { packet_ps: 100, reorder_ps: 40, ..Receivers::default() };
        let mut receiver = Receiver::new(1);
        let other = Arriving { from: HostId(8), ..packet(1) };
        let packets = [packet(1), packet(4), packet(2), other, packet(3), packet(0), packet(5)];
        let mut free_at = 0;
        let took = packets.map(|packet| {
            let before = std::mem::replace(&mut free_at, receiver.arrive(&all, 0, packet).unwrap());
            free_at - before
        });
        assert_eq!(took, [100, 100, 140, 100, 140, 100, 100]);
    }

    /// The card has dropped it before anybody could see its number.
    #[test]
    fn a_dropped_packet_overtakes_nobody() {
        let all = Receivers { ring_packets: Some(1), reorder_ps: 40, ..Receivers::default() };
        let mut receiver = Receiver::new(1);
        assert_eq!(receiver.arrive(&all, 0, packet(1)), Some(0));
        assert_eq!(receiver.arrive(&all, 0, packet(3)), None);
        receiver.seen(WIRE_BYTES);
        assert_eq!(receiver.arrive(&all, 0, packet(2)), Some(0));
    }

    /// Shares of a hundred thousand draws that are above some times.
    #[test]
    fn delays_follow_their_distributions() {
        let share = |delay: Delay, above: Picos| {
            let mut rng = Pcg32::seed_from_u64(7);
            let draws = (0..100_000).filter(|_| delay.draw(&mut rng) > above).count();
            draws as f64 / 1e5
        };
        let uniform = Delay::Uniform { min_ps: 1_000, max_ps: 3_000 };
        let exponential = Delay::Exponential { mean_ps: 1_000 };
        let pareto = Delay::Pareto { min_ps: 1_000, shape: 1.5, max_ps: 50_000 };
        for (delay, above, expected) in [
            (Delay::Constant { ps: 700 }, 699, 1.0),
            (Delay::Constant { ps: 700 }, 700, 0.0),
            (uniform, 999, 1.0),
            (uniform, 1_500, 0.75),
            (uniform, 3_000, 0.0),
            (exponential, 1_000, 0.3679),
            (exponential, 3_000, 0.0498),
            (pareto, 999, 1.0),
            (pareto, 4_000, 0.125),
            (pareto, 50_000, 0.0),
        ] {
            let found = share(delay, above);
            assert!((found - expected).abs() < 0.005, "{delay:?} above {above}: {found}");
        }
    }
}
