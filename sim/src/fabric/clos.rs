//! Trees of switches with many roots: leaf and spine, and fat trees of more tiers.

use super::blueprint::{Blueprint, LinkPlan, NodeId, Routes, Spread, SwitchPlan, mixed};
use crate::link::LinkConfig;

/// One tier of switches, and the links to what is below.
#[derive(Clone, PartialEq, Debug)]
pub struct Tier {
    /// Hosts or groups of switches below each switch.
    pub children: u32,
    /// Parallel links to each child.
    pub links_per_child: u32,
    /// Links upwards of each switch; 0 at the top.
    pub links_up: u32,
    /// Links to what is below.
    pub down: LinkConfig,
    /// Links from there.
    pub up: LinkConfig,
}

/// A tree. A switch of tier 0 has hosts below; one of each further tier has groups of switches below, and one link or
/// bundle to one switch of each group.
#[derive(Clone, PartialEq, Debug)]
pub struct Clos {
    /// From the hosts upwards; one or more.
    pub tiers: Vec<Tier>,
    /// Hosts and switches choose between links by a hash with a salt, or by the path number alone.
    pub hashed: bool,
    /// What the salts follow from.
    pub seed: u64,
}

/// What joins groups of neighbouring hosts with the rest of a tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cut {
    /// Hosts of each group.
    pub hosts: u32,
    /// Rate of all links that leave a group.
    pub leaving_bytes_per_s: u64,
    /// Rate of all links into a group.
    pub arriving_bytes_per_s: u64,
}

/// Why a tree cannot be built.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ClosError {
    /// No tier.
    #[error("a tree has at least one tier")]
    NoTier,
    /// A number is 0.
    #[error("tier {tier}: {what} must be at least 1")]
    Zero {
        /// Which tier, from 0.
        tier: usize,
        /// Which number.
        what: &'static str,
    },
    /// The links upwards of a tier do not fill the bundles of the next one.
    #[error("tier {tier} has {links_up} links up, which is no multiple of the {bundle} links that tier {} has to each switch below", tier + 1)]
    Bundle {
        /// Which tier, from 0.
        tier: usize,
        /// Its links upwards.
        links_up: u32,
        /// Links between two switches.
        bundle: u32,
    },
    /// The top tier goes up.
    #[error("the top tier has {0} links up, but nothing is above it")]
    Top(u32),
    /// Too large.
    #[error("{0} hosts and switches are more than {max}", max = super::blueprint::NODES_MAX)]
    Nodes(u64),
    /// Too many links.
    #[error("{0} links are more than {max}", max = super::blueprint::LINKS_MAX)]
    Links(u64),
}

/// Where the switches of one tier are.
struct Floor {
    /// Groups with the same hosts below.
    groups: u32,
    /// Switches in each group.
    planes: u32,
    /// Hosts below each group.
    hosts: u32,
    first_node: u32,
}

impl Clos {
    /// A tree of single links that are all alike. Each tier, from the hosts upwards, is (children, links up).
    #[must_use]
    pub fn of(link: LinkConfig, tiers: &[(u32, u32)], seed: u64) -> Clos {
        let tier = |&(children, links_up): &(u32, u32)| Tier {
            children,
            links_per_child: 1,
            links_up,
            down: link,
            up: link,
        };
        Clos { tiers: tiers.iter().map(tier).collect(), hashed: true, seed }
    }

    /// Hosts of the tree.
    #[must_use]
    pub fn hosts(&self) -> u64 {
        let children = self.tiers.iter().map(|tier| u64::from(tier.children));
        children.fold(1, u64::saturating_mul)
    }

    /// The network.
    ///
    /// # Errors
    /// [`ClosError`] says what does not fit.
    pub fn build(&self) -> Result<Blueprint, ClosError> {
        self.check()?;
        let floors = self.floors()?;
        let hosts = self.hosts() as u32;
        let (mut switches, mut links) = (Vec::new(), Vec::new());
        for (tier, floor) in floors.iter().enumerate() {
            for group in 0..floor.groups {
                for plane in 0..floor.planes {
                    switches.push(self.switch(tier, floor, group, switches.len() as u32));
                    self.link(&floors, (tier, group, plane), &mut links);
                }
            }
        }
        // Links up of one switch come in the order of the planes above, which is the order in which they were made.
        Ok(Blueprint::new(hosts, switches, links))
    }

    /// Its cuts, above each tier except the top. Links without a rate limit nothing.
    #[must_use]
    pub fn cuts(&self) -> Vec<Cut> {
        let (mut hosts, mut planes) = (1_u64, 1_u64);
        let mut cuts = Vec::new();
        for (tier, above) in self.tiers.iter().zip(self.tiers.iter().skip(1)) {
            hosts = hosts.saturating_mul(tier.children.into());
            let links = planes.saturating_mul(tier.links_up.into());
            planes *= u64::from(tier.links_up / above.links_per_child.max(1));
            if let (Some(up), Some(down)) = (above.up.bytes_per_s, above.down.bytes_per_s) {
                cuts.push(Cut {
                    hosts: hosts as u32,
                    leaving_bytes_per_s: links.saturating_mul(up),
                    arriving_bytes_per_s: links.saturating_mul(down),
                });
            }
        }
        cuts
    }

    fn check(&self) -> Result<(), ClosError> {
        let top = self.tiers.last().ok_or(ClosError::NoTier)?;
        for (at, tier) in self.tiers.iter().enumerate() {
            let zero = |what| Err(ClosError::Zero { tier: at, what });
            if tier.children == 0 {
                return zero("the number of children");
            }
            if tier.links_per_child == 0 {
                return zero("the number of links to each child");
            }
            let Some(above) = self.tiers.get(at + 1) else { continue };
            if tier.links_up == 0 {
                return zero("the number of links up");
            }
            if tier.links_up % above.links_per_child != 0 {
                let (links_up, bundle) = (tier.links_up, above.links_per_child);
                return Err(ClosError::Bundle { tier: at, links_up, bundle });
            }
        }
        if top.links_up > 0 { Err(ClosError::Top(top.links_up)) } else { Ok(()) }
    }

    fn floors(&self) -> Result<Vec<Floor>, ClosError> {
        let mut floors: Vec<Floor> = Vec::new();
        let mut nodes = self.hosts();
        let mut links = 0_u64;
        let (mut hosts, mut planes) = (1_u64, 1_u64);
        for (at, tier) in self.tiers.iter().enumerate() {
            hosts = hosts.saturating_mul(tier.children.into());
            if let Some(below) = at.checked_sub(1) {
                planes *= u64::from(self.tiers[below].links_up / tier.links_per_child);
            }
            let groups = self.hosts() / hosts;
            let first_node = nodes;
            nodes = nodes.saturating_add(groups.saturating_mul(planes));
            if nodes > super::blueprint::NODES_MAX.into() {
                return Err(ClosError::Nodes(nodes));
            }
            // Groups and planes are fewer than nodes, so only the two factors of one switch can be large.
            let of_switch = u64::from(tier.children).saturating_mul(tier.links_per_child.into());
            links = links.saturating_add((2 * groups * planes).saturating_mul(of_switch));
            if links > super::blueprint::LINKS_MAX.into() {
                return Err(ClosError::Links(links));
            }
            floors.push(Floor {
                groups: groups as u32,
                planes: planes as u32,
                hosts: hosts as u32,
                first_node: first_node as u32,
            });
        }
        Ok(floors)
    }

    fn switch(&self, tier: usize, floor: &Floor, group: u32, number: u32) -> SwitchPlan {
        let Tier { children, links_per_child, links_up, .. } = self.tiers[tier];
        let salt = mixed(self.seed ^ u64::from(number) << 32) as u32;
        SwitchPlan {
            spread: if self.hashed { Spread::Hashed { salt } } else { Spread::Modulo },
            routes: Routes::Tree {
                first_host: group * floor.hosts,
                hosts: floor.hosts,
                hosts_per_child: floor.hosts / children,
                links_per_child,
                links_up,
            },
        }
    }

    /// Links between a switch and what is below it.
    fn link(
        &self,
        floors: &[Floor],
        (at, group, plane): (usize, u32, u32),
        links: &mut Vec<LinkPlan>,
    ) {
        let (tier, floor) = (&self.tiers[at], &floors[at]);
        let this = NodeId(floor.first_node + group * floor.planes + plane);
        for child in 0..tier.children {
            let place = group * tier.children + child;
            let below = match at.checked_sub(1) {
                None => NodeId(place),
                Some(lower) => {
                    // The planes above one switch follow each other.
                    let above_each = floor.planes / floors[lower].planes;
                    let lower = &floors[lower];
                    NodeId(lower.first_node + place * lower.planes + plane / above_each)
                }
            };
            for _ in 0..tier.links_per_child {
                links.push(LinkPlan { from: this, to: below, config: tier.down });
                links.push(LinkPlan { from: below, to: this, config: tier.up });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hop::Hop;
    use crate::ids::HostId;
    use std::collections::HashSet;

    fn tier(children: u32, links_per_child: u32, links_up: u32) -> Tier {
        let link = LinkConfig { bytes_per_s: Some(12_500_000_000), ..LinkConfig::delay(1_000_000) };
        Tier { children, links_per_child, links_up, down: link, up: link }
    }

    fn clos(tiers: &[(u32, u32, u32)]) -> Clos {
        let tiers = tiers.iter().map(|t| tier(t.0, t.1, t.2)).collect();
        Clos { tiers, hashed: true, seed: 1 }
    }

    /// Every pair is joined, upwards no further than need be, and path numbers reach all top switches.
    #[test]
    fn all_hosts_reach_each_other_over_all_planes() {
        for (tiers, hosts, switches, planes) in [
            (&[(4, 1, 0)][..], 4, 1, 1),
            (&[(4, 1, 2), (8, 1, 0)], 32, 8 + 2, 2),
            (&[(4, 1, 4), (8, 2, 0)], 32, 8 + 2, 2),
            (&[(4, 1, 2), (3, 1, 4), (5, 1, 0)], 60, 15 + 10 + 8, 8),
        ] {
            let tree = clos(tiers).build().expect("a tree");
            assert_eq!((tree.hosts(), tree.switches().len()), (hosts, switches));
            let per_leaf = tiers[0].0;
            for from in 0..hosts {
                for to in (0..hosts).filter(|to| *to != from) {
                    let way = tree.way(&Hop::probe(HostId(from), HostId(to), 100));
                    let same_leaf = from / per_leaf == to / per_leaf;
                    assert!(way.len() <= 2 * tiers.len() && (way.len() == 2) == same_leaf);
                }
            }
            let top = hosts + switches as u32 - planes;
            let used: HashSet<u32> = (0..256)
                .flat_map(|path| {
                    let hop = Hop { path, ..Hop::probe(HostId(0), HostId(hosts - 1), 100) };
                    tree.way(&hop).into_iter().map(|link| tree.links()[link.0 as usize].to.0)
                })
                .filter(|node| *node >= top)
                .collect();
            assert_eq!(used.len(), planes as usize, "top switches used in {tiers:?}");
        }
    }

    /// 16 hosts with 8 links up, and 32 of them below 8 planes with 2 links up each.
    #[test]
    fn cuts_have_the_rates_of_all_their_links() {
        let cut = |hosts, links: u64| Cut {
            hosts,
            leaving_bytes_per_s: links * 12_500_000_000,
            arriving_bytes_per_s: links * 12_500_000_000,
        };
        let cuts = clos(&[(16, 1, 8), (2, 1, 2), (4, 2, 0)]).cuts();
        assert_eq!(cuts, [cut(16, 8), cut(32, 16)]);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let refused =
            |tiers: &[(u32, u32, u32)]| clos(tiers).build().expect_err("refused").to_string();
        assert_eq!(refused(&[]), "a tree has at least one tier");
        assert_eq!(refused(&[(0, 1, 0)]), "tier 0: the number of children must be at least 1");
        assert_eq!(
            refused(&[(4, 1, 3), (4, 2, 0)]).split(',').next(),
            Some("tier 0 has 3 links up")
        );
        assert_eq!(refused(&[(4, 1, 3)]), "the top tier has 3 links up, but nothing is above it");
        assert!(refused(&[(1 << 20, 1, 1), (1 << 10, 1, 0)]).contains("are more than"));
        assert!(refused(&[(u32::MAX, 1, 1), (u32::MAX, 1, 1), (u32::MAX, 1, 0)]).contains("hosts"));
        assert_eq!(refused(&[(2, 1 << 24, 0)]), "67108864 links are more than 16777216");
    }
}
