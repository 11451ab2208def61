//! Dragonflies: groups of switches, all of a group joined, and all groups joined. A packet's path number says which way it
//! takes, as its sender's source route would: switches choose nothing.

use super::blueprint::{Blueprint, LinkPlan, NodeId, Routes, Spread, SwitchPlan};
use super::dragonfly_switch::DragonflySwitch;
use super::shape::{ShapeError, check_size};
use crate::link::LinkConfig;

/// A dragonfly. Hosts follow each other switch by switch, switches group by group.
#[derive(Clone, PartialEq, Debug)]
pub struct Dragonfly {
    /// Groups.
    pub groups: u32,
    /// Switches of each group.
    pub switches: u32,
    /// Hosts of each switch.
    pub hosts: u32,
    /// Links of each switch to other groups. Those of a group reach every other group equally often.
    pub global_links: u32,
    /// How path numbers choose between ways.
    pub spread: Spread,
    /// Links of hosts.
    pub host: LinkConfig,
    /// Links within a group.
    pub local: LinkConfig,
    /// Links between groups.
    pub global: LinkConfig,
}

impl Dragonfly {
    /// The network.
    ///
    /// # Errors
    /// [`ShapeError`] says what does not fit.
    pub fn build(&self) -> Result<Blueprint, ShapeError> {
        let Dragonfly { groups, switches, hosts, global_links, .. } = *self;
        self.check()?;
        let count = groups * switches;
        let (all_hosts, first_switch) = (count * hosts, count * hosts);
        let mut links = Vec::new();
        let mut both = |one: u32, other: u32, config: LinkConfig| {
            links.push(LinkPlan { from: NodeId(one), to: NodeId(other), config });
        };
        let at = |number| DragonflySwitch::new([groups, switches, hosts, global_links], number);
        for number in 0..count {
            let (this, switch) = (first_switch + number, at(number));
            for host in number * hosts..(number + 1) * hosts {
                both(host, this, self.host);
                both(this, host, self.host);
            }
            let group = first_switch + number / switches * switches;
            for place in (0..switches).filter(|place| *place != number % switches) {
                both(this, group + place, self.local);
            }
            for global in 0..global_links {
                both(this, first_switch + switch.across(global), self.global);
            }
        }
        let plan = |number| {
            let routes = Routes::Dragonfly(at(number));
            SwitchPlan { spread: self.spread, routes }
        };
        Ok(Blueprint::new(all_hosts, (0..count).map(plan).collect(), links))
    }

    fn check(&self) -> Result<(), ShapeError> {
        let Dragonfly { groups, switches, hosts, global_links, .. } = *self;
        for (key, value) in [("groups", groups), ("switches", switches), ("hosts", hosts)] {
            if value == 0 {
                return Err(ShapeError::new(key, "must be at least 1"));
            }
        }
        let [groups, switches, hosts, of_switch] =
            [groups, switches, hosts, global_links].map(u64::from);
        let all = groups.saturating_mul(switches);
        let of_each = hosts.saturating_mul(2).saturating_add(switches).saturating_add(of_switch);
        check_size("groups", all.saturating_mul(hosts.saturating_add(1)), all, of_each)?;
        let (of_group, others) = (switches * of_switch, groups - 1);
        if others == 0 && of_group > 0 {
            return Err(ShapeError::new("global_links", "must be 0 in a dragonfly of one group"));
        }
        if others > 0 && (of_group == 0 || of_group % others > 0) {
            let valid = format!(
                "times {switches} switches must be a multiple of {others}, the number of other groups"
            );
            return Err(ShapeError::new("global_links", valid));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hop::Hop;
    use crate::ids::{HostId, LinkId};
    use std::collections::HashSet;

    fn dragonfly(groups: u32, switches: u32, hosts: u32, global_links: u32) -> Dragonfly {
        let link = LinkConfig { bytes_per_s: Some(12_500_000_000), ..LinkConfig::delay(1_000_000) };
        let (spread, host, local, global) = (Spread::Modulo, link, link, link);
        Dragonfly { groups, switches, hosts, global_links, spread, host, local, global }
    }

    /// Switches of a way.
    fn switches(plan: &Blueprint, way: &[LinkId]) -> Vec<u32> {
        let ends = way.iter().map(|link| plan.links()[link.0 as usize].to.0);
        ends.filter_map(|node| node.checked_sub(plan.hosts())).collect()
    }

    fn ways(plan: &Blueprint, from: u32, to: u32) -> Vec<Vec<LinkId>> {
        let (from, to) = (HostId(from), HostId(to));
        let way = |path| plan.way(&Hop { path, ..Hop::probe(from, to, 100) });
        (0..plan.choices(from, to) as u16).map(way).collect()
    }

    #[test]
    fn every_choice_is_a_way_of_its_own_and_the_straight_ones_come_first() {
        for (groups, of_group, hosts, global_links) in
            [(9, 4, 4, 2), (5, 4, 1, 2), (3, 2, 2, 3), (1, 5, 2, 0), (2, 1, 3, 1), (6, 3, 1, 5)]
        {
            let plan = dragonfly(groups, of_group, hosts, global_links).build().expect("fits");
            let lanes = if groups > 1 { of_group * global_links / (groups - 1) } else { 0 };
            for from in 0..plan.hosts() {
                for to in (0..plan.hosts()).filter(|to| *to != from) {
                    let ways = ways(&plan, from, to);
                    assert_eq!(ways.iter().collect::<HashSet<_>>().len(), ways.len());
                    let group = |switch: u32| switch / of_group;
                    let (one, other) = (group(from / hosts), group(to / hosts));
                    for (choice, way) in ways.iter().enumerate() {
                        let passed = switches(&plan, way);
                        let seen: HashSet<_> = passed.iter().collect();
                        assert_eq!(seen.len(), passed.len(), "no switch twice: {passed:?}");
                        let groups: HashSet<_> = passed.iter().map(|at| group(*at)).collect();
                        let straight =
                            if one == other { choice == 0 } else { (choice as u32) < lanes };
                        let ends = if one == other { 1 } else { 2 };
                        assert_eq!(groups.len() == ends, straight || one == other, "{passed:?}");
                        if one == other {
                            assert_eq!(passed.len() <= 2, straight, "{passed:?}");
                        }
                    }
                }
            }
        }
    }

    /// LAPS, table I: 143 receivers and 1,063 ways of each host.
    #[test]
    fn the_network_of_laps_has_its_ways() {
        let plan = dragonfly(9, 4, 4, 2).build().expect("fits");
        assert_eq!((plan.hosts(), plan.switches().len()), (144, 36));
        for from in 0..144 {
            let others = (0..144).filter(|to| *to != from);
            let ways = others.map(|to| plan.choices(HostId(from), HostId(to))).sum::<u32>();
            assert_eq!(ways, 3 + 3 * 4 * 3 + 8 * 4 * 4 * 8);
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let refused = |groups, switches, hosts, global_links| {
            let dragonfly = dragonfly(groups, switches, hosts, global_links);
            dragonfly.build().expect_err("refused").to_string()
        };
        assert_eq!(refused(0, 1, 1, 1), "groups must be at least 1");
        assert_eq!(refused(3, 0, 1, 1), "switches must be at least 1");
        assert_eq!(refused(3, 1, 0, 1), "hosts must be at least 1");
        let multiple =
            "global_links times 4 switches must be a multiple of 9, the number of other groups";
        assert_eq!(refused(10, 4, 4, 2), multiple);
        assert_eq!(refused(10, 4, 4, 0), multiple);
        assert!(refused(1, 4, 4, 2).starts_with("global_links must be 0"));
        assert!(refused(1 << 20, 1 << 20, 4, 2).starts_with("groups must be smaller"));
        assert!(
            refused(u32::MAX, u32::MAX, u32::MAX, u32::MAX).starts_with("groups must be smaller")
        );
    }
}
