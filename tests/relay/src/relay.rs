//! The two directions with their paths, and what the relay says of itself.

use crate::ip;
use crate::path::{Path, Seen};
use erd_rd::Ecn;
use erd_sim::ids::HostId;
use erd_sim::link::LinkConfig;
use erd_sim::packet::{PacketId, PacketPool};
use erd_sim::time::{PS_PER_S, Picos};
use serde_json::{Value, json};

/// Source ports that are told apart; more share the paths of the first ones.
const PORTS_MAX: usize = 4096;
/// Lateness that a sleeping thread always has; only what exceeds it counts.
const LATE_PS: Picos = PS_PER_S / 1000;
/// Picoseconds of a microsecond.
const PS_PER_US: Picos = PS_PER_S / 1_000_000;

/// One direction.
#[derive(Debug)]
struct Direction {
    paths: Vec<Path>,
    /// Source ports in the order in which they came. The nth takes path n, modulo the paths, so
    /// that as many senders' ports as there are paths take a path each.
    ports: Vec<u16>,
}

/// How late things happened since the last look.
#[derive(Clone, Copy, Default, Debug)]
struct Lateness {
    worst_ps: Picos,
    /// Sum of what exceeds [`LATE_PS`].
    sum_ps: Picos,
    times: u64,
}

/// See the module.
#[derive(Debug)]
pub struct Relay {
    directions: [Direction; 2],
    pool: PacketPool,
    late: Lateness,
    other: u64,
    looked_at: Picos,
    bytes_per_s: u64,
}

impl Relay {
    /// Idle paths, `count` each way, all alike.
    pub fn new(config: LinkConfig, loss: f64, count: usize, seed: u64) -> Relay {
        let direction = |from: u64| Direction {
            paths: (0..count as u64)
                .map(|path| Path::new(config, loss, seed.wrapping_add(from * 1000 + path)))
                .collect(),
            ports: Vec::new(),
        };
        Relay {
            directions: [direction(1), direction(2)],
            pool: PacketPool::default(),
            late: Lateness::default(),
            other: 0,
            looked_at: 0,
            bytes_per_s: config.bytes_per_s.unwrap_or(0),
        }
    }

    /// A packet has come from host 0 or 1. What is not IPv4 is dropped: interfaces that come up
    /// ask for routers.
    pub fn take(&mut self, now: Picos, from: usize, packet: &[u8]) {
        if !ip::is_v4(packet) {
            self.other += 1;
            return;
        }
        let direction = &mut self.directions[from];
        let path = direction.path_of(packet);
        let id = self.pool.take(HostId(from as u32), HostId(1 - from as u32));
        let stored = self.pool.get_mut(id);
        stored.head.extend_from_slice(packet);
        stored.ecn = ip::ecn(packet);
        stored.path = path as u16;
        direction.paths[path].offer(now, id, &mut self.pool);
    }

    /// No packet is through before this.
    pub fn wake_at(&self) -> Option<Picos> {
        self.each_path().filter_map(|(_, _, path)| path.wake_at()).min()
    }

    /// Lets everything happen that is due, in order; hands packets that are through to `f` with
    /// the host that they are for.
    pub fn run(&mut self, now: Picos, mut f: impl FnMut(usize, &[u8])) {
        let mut first = true;
        while let Some((at, from, path)) = self.first_due(now) {
            let step = self.directions[from].paths[path].step(&mut self.pool);
            let Some(id) = step else { continue };
            if std::mem::take(&mut first) {
                self.late.note(now - at);
            }
            self.mark(id);
            f(1 - from, &self.pool.get(id).head);
            self.pool.give_back(id);
        }
    }

    fn mark(&mut self, id: PacketId) {
        let packet = self.pool.get_mut(id);
        if packet.ecn == Ecn::Ce {
            ip::mark(&mut packet.head);
        }
    }

    fn first_due(&self, now: Picos) -> Option<(Picos, usize, usize)> {
        let due = |(from, index, path): (usize, usize, &Path)| Some((path.next()?, from, index));
        self.each_path().filter_map(due).min().filter(|(at, _, _)| *at <= now)
    }

    fn each_path(&self) -> impl Iterator<Item = (usize, usize, &Path)> {
        self.directions.iter().enumerate().flat_map(|(from, direction)| {
            direction.paths.iter().enumerate().map(move |(index, path)| (from, index, path))
        })
    }

    /// Both directions of a path lose everything from now on, or are well again; false if there
    /// is no such path.
    pub fn set_dead(&mut self, now: Picos, path: usize, dead: bool) -> bool {
        let mut found = false;
        for direction in &mut self.directions {
            if let Some(path) = direction.paths.get_mut(path) {
                path.set_dead(now, dead, &mut self.pool);
                found = true;
            }
        }
        found
    }

    /// What happened since the last call. `cpu` is the time that this thread has computed since.
    pub fn report(&mut self, now: Picos, cpu: Picos) -> Value {
        let wall = (now - self.looked_at).max(1);
        let (late, other) = (std::mem::take(&mut self.late), std::mem::take(&mut self.other));
        let link_bytes = self.bytes_per_s as f64 * wall as f64 / PS_PER_S as f64;
        let [there, back] = [0, 1].map(|from: usize| -> Vec<Value> {
            let paths = self.directions[from].paths.iter_mut();
            paths.map(|path| told(&path.look(now), link_bytes)).collect()
        });
        self.looked_at = now;
        json!({
            "relay_ms": wall / PS_PER_US / 1000,
            "busy_share": cpu as f64 / wall as f64,
            "late_share": late.sum_ps as f64 / wall as f64,
            "late_times": late.times,
            "late_worst_us": late.worst_ps / PS_PER_US,
            "not_ipv4": other,
            "there": there,
            "back": back,
        })
    }
}

fn told(seen: &Seen, link_bytes: f64) -> Value {
    json!({
        "offered": seen.offered,
        "delivered": seen.delivered,
        "used": seen.delivered_bytes as f64 / link_bytes,
        "queue_bytes": seen.queue_bytes,
        "marks": seen.marks,
        "drops": seen.drops,
        "lost": seen.lost,
    })
}

impl Direction {
    fn path_of(&mut self, packet: &[u8]) -> usize {
        let Some(port) = ip::udp_source_port(packet) else { return 0 };
        let known = self.ports.iter().position(|known| *known == port);
        let nth = known.unwrap_or_else(|| {
            if self.ports.len() == PORTS_MAX {
                return port.into();
            }
            self.ports.push(port);
            self.ports.len() - 1
        });
        nth % self.paths.len()
    }
}

impl Lateness {
    fn note(&mut self, late_ps: Picos) {
        self.worst_ps = self.worst_ps.max(late_ps);
        let excess = late_ps.saturating_sub(LATE_PS);
        self.sum_ps += excess;
        self.times += u64::from(excess > 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use erd_sim::link::Red;
    use erd_sim::time::{from_ns, serialization_ps};

    const MS: Picos = from_ns(1_000_000);
    const PACKET_BYTES: usize = 4200;

    fn link() -> LinkConfig {
        let red = Some(Red::linear(10_000, 20_000));
        LinkConfig {
            bytes_per_s: Some(1_000_000),
            buffer_bytes: 100_000,
            red,
            ..LinkConfig::delay(10 * MS)
        }
    }

    /// A UDP packet from this port with this type of service.
    fn packet(port: u16, tos: u8) -> Vec<u8> {
        let mut packet = vec![0; PACKET_BYTES];
        (packet[0], packet[1], packet[9]) = (0x45, tos, 17);
        packet[20..22].copy_from_slice(&port.to_be_bytes());
        packet
    }

    fn through(relay: &mut Relay, now: Picos) -> Vec<(usize, Vec<u8>)> {
        let mut all = Vec::new();
        relay.run(now, |to, packet| all.push((to, packet.to_vec())));
        all
    }

    #[test]
    fn a_relay_that_looks_late_loses_no_capacity() {
        let mut relay = Relay::new(link(), 0.0, 1, 1);
        let each = serialization_ps(PACKET_BYTES as u32 + 66, 1_000_000);
        for _ in 0..10 {
            relay.take(0, 0, &packet(7, 2));
        }
        assert_eq!(relay.wake_at(), Some(each + 10 * MS));
        assert_eq!(through(&mut relay, 4 * each + 10 * MS - 1).len(), 3);
        // Not looked at since the fourth was due: the rest left on time all the same.
        assert_eq!(through(&mut relay, 10 * each + 10 * MS).len(), 7);
        assert_eq!(relay.wake_at(), None);
        let report = relay.report(10 * each + 10 * MS, 0);
        assert_eq!(report["there"][0]["delivered"], 10);
        assert!(report["late_share"].as_f64().unwrap() > 0.1);
    }

    #[test]
    fn each_port_has_its_path_and_a_dead_path_loses_both_ways() {
        let mut relay = Relay::new(link(), 0.0, 3, 1);
        assert!(relay.set_dead(0, 1, true));
        assert!(!relay.set_dead(0, 3, true));
        for port in [500, 900, 700, 100] {
            relay.take(0, 0, &packet(port, 0));
        }
        relay.take(0, 1, &packet(1, 0));
        relay.take(0, 1, &packet(2, 0));
        relay.take(0, 1, &[0x60; 60]);
        let got = through(&mut relay, 100 * MS);
        let ports: Vec<(usize, u16)> =
            got.iter().map(|(to, packet)| (*to, ip::udp_source_port(packet).unwrap())).collect();
        assert_eq!(ports, [(1, 500), (1, 700), (0, 1), (1, 100)]);
        relay.set_dead(100 * MS, 1, false);
        relay.take(100 * MS, 0, &packet(900, 0));
        assert_eq!(through(&mut relay, 200 * MS).len(), 1);
        let report = relay.report(200 * MS, 20 * MS);
        assert_eq!(report["there"][1]["lost"], 1);
        assert_eq!(report["back"][1]["lost"], 1);
        assert_eq!((&report["not_ipv4"], &report["busy_share"]), (&1.into(), &0.1.into()));
    }

    #[test]
    fn a_deep_queue_marks_what_may_be_marked() {
        // The first leaves at once; behind the next four are more than 20,000 bytes.
        for (tos, marked) in [(2, 4), (0, 0)] {
            let mut relay = Relay::new(link(), 0.0, 1, 1);
            for _ in 0..10 {
                relay.take(0, 0, &packet(7, tos));
            }
            let got = through(&mut relay, 1000 * MS);
            let is_marked = |packet: &[u8]| ip::ecn(packet) == Ecn::Ce;
            let early = got[..5].iter().filter(|(_, packet)| is_marked(packet)).count();
            let last = got[7..].iter().filter(|(_, packet)| is_marked(packet)).count();
            assert_eq!((got.len(), early, last), (10, marked, 0), "tos {tos}");
        }
    }
}
