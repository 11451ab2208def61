//! Switches that move flows between bursts (LetFlow, Vanini et al., NSDI 2017; docs/baselines.md).
//!
//! A flowlet is a run of packets of one flow with no pause above the gap. A switch sends each flowlet to a random link
//! among those that lead to the receiver. A flow is what ECMP takes for one: sender, receiver and path number.

use super::blueprint::{Spread, SwitchPlan, flow_of, mixed};
use crate::hop::Hop;
use crate::mutants::{Mutant, mutant};
use crate::time::Picos;
use rand_pcg::Pcg32;
use rand_pcg::rand_core::{Rng, SeedableRng};
use std::collections::HashMap;

/// Bytes that a link could have sent during a gap: 500 us at 10 Gb/s, 50 us at 100 Gb/s (LAPS, IV-A).
pub const GAP_BYTES: u64 = 625_000;
/// Entries of a switch's table. Flows with the same hash share an entry, as in a switch's memory.
const ENTRIES: u64 = 1 << 16;
/// What makes a switch's random numbers differ from all others of its seed.
const STREAM: u64 = 0x4c65_7446_6c6f_7731;

/// The gap for links of a rate: the time in which a link sends [`GAP_BYTES`].
#[must_use]
pub fn gap_ps(bytes_per_s: u64) -> Picos {
    let ps = u128::from(GAP_BYTES) * u128::from(crate::time::PS_PER_S);
    (ps / u128::from(bytes_per_s.max(1))) as Picos
}

/// The latest flowlet of an entry.
#[derive(Clone, Copy, Debug)]
struct Flowlet {
    latest_at: Picos,
    /// Random bits. They pick one of any number of links, because flows of one entry may have different links.
    choice: u32,
}

/// What one switch remembers: at most [`ENTRIES`] flowlets.
#[derive(Debug)]
struct Table {
    rng: Pcg32,
    flowlets: HashMap<u16, Flowlet>,
}

/// The tables of some switches.
#[derive(Debug)]
pub(super) struct Flowlets {
    gap_ps: Picos,
    seed: u64,
    tables: HashMap<u32, Table>,
}

impl Flowlets {
    pub(super) fn new(gap_ps: Picos, seed: u64) -> Flowlets {
        Flowlets { gap_ps, seed, tables: HashMap::new() }
    }

    /// The link for a packet at a switch of this number. Where senders choose the way, the first switch chooses in place of
    /// the sender, and writes it into the packet for the others.
    pub(super) fn route(
        &mut self,
        (number, switch): (u32, &SwitchPlan),
        now: Picos,
        hop: &mut Hop,
    ) -> u32 {
        if !switch.is_told() {
            return switch.route_by(hop, |links| self.pick(number, now, hop, links));
        }
        if let Some(ways) = switch.choices(hop) {
            hop.path = self.pick(number, now, hop, ways) as u16;
        }
        switch.route_by(hop, |ways| Spread::Modulo.pick(ways, hop))
    }

    /// Which of `links` links a packet takes at a switch.
    pub(super) fn pick(&mut self, switch: u32, now: Picos, hop: &Hop, links: u32) -> u32 {
        if links == 1 {
            return 0;
        }
        let seed = mixed(self.seed ^ STREAM ^ u64::from(switch) << 32);
        let table = self
            .tables
            .entry(if mutant(Mutant::SharesFlowlets) { 0 } else { switch })
            .or_insert_with(|| Table { rng: Pcg32::seed_from_u64(seed), flowlets: HashMap::new() });
        let entry = (mixed(flow_of(hop) ^ seed) % ENTRIES) as u16;
        let Table { rng, flowlets } = table;
        let flowlet = flowlets
            .entry(entry)
            .and_modify(|flowlet| {
                if now - flowlet.latest_at > self.gap_ps {
                    flowlet.choice = rng.next_u32();
                }
                flowlet.latest_at = now;
            })
            .or_insert_with(|| Flowlet { latest_at: now, choice: rng.next_u32() });
        ((u64::from(flowlet.choice) * u64::from(links)) >> 32) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::HostId;

    const GAP: Picos = 50_000_000;

    fn hop(from: u32, path: u16) -> Hop {
        Hop { path, ..Hop::probe(HostId(from), HostId(99), 1_500) }
    }

    /// Links of a flow whose packets come so far apart.
    fn links(flowlets: &mut Flowlets, apart: Picos, packets: u64) -> Vec<u32> {
        (1..=packets).map(|n| flowlets.pick(7, n * apart, &hop(1, 0), 8)).collect()
    }

    #[test]
    fn a_flow_keeps_its_link_until_it_pauses() {
        let dense = links(&mut Flowlets::new(GAP, 1), GAP, 1_000);
        assert!(
            dense.iter().all(|link| *link == dense[0]),
            "a pause of just the gap moves nothing"
        );
        let sparse = links(&mut Flowlets::new(GAP, 1), GAP + 1, 8_000);
        for link in 0..8 {
            let times = sparse.iter().filter(|taken| **taken == link).count();
            assert!((900..1_100).contains(&times), "link {link}: {times}");
        }
    }

    #[test]
    fn flows_and_switches_choose_apart() {
        let mut flowlets = Flowlets::new(GAP, 1);
        let flows: Vec<u32> = (0..64).map(|from| flowlets.pick(7, 1, &hop(from, 0), 8)).collect();
        let paths: Vec<u32> = (0..64).map(|path| flowlets.pick(7, 1, &hop(1, path), 8)).collect();
        let other: Vec<u32> = (0..64).map(|from| flowlets.pick(8, 1, &hop(from, 0), 8)).collect();
        assert!(flows != other && flows != paths);
        for chosen in [&flows, &paths, &other] {
            assert!((0..8).all(|link| chosen.contains(&link)), "{chosen:?}");
        }
        // What other switches do moves no choice of this one.
        let mut alone = Flowlets::new(GAP, 1);
        let again: Vec<u32> = (0..64).map(|from| alone.pick(8, 1, &hop(from, 0), 8)).collect();
        assert_eq!(again, other);
    }

    #[test]
    fn the_table_is_bounded() {
        let mut flowlets = Flowlets::new(GAP, 1);
        for from in 0..200_000 {
            flowlets.pick(7, 1, &hop(from, 0), 8);
        }
        let entries = flowlets.tables[&7].flowlets.len();
        assert!(entries > 60_000 && entries as u64 <= ENTRIES, "{entries}");
    }

    #[test]
    fn the_gap_follows_the_rate() {
        assert_eq!(gap_ps(1_250_000_000), 500_000_000);
        assert_eq!(gap_ps(12_500_000_000), 50_000_000);
    }
}
