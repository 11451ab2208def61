//! Rails: servers of several GPUs, which are the hosts. One switch joins the GPUs of each server (NVLink), and one rail
//! switch joins the GPUs that have the same place in their servers. A packet's path number says by which rail it goes, as its
//! sender's source route would: switches choose nothing.
//!
//! Each GPU passes packets on between its two networks, so it has a switch in front of it. A packet for another server goes
//! to the GPU of its rail in its own server first, then to that rail's GPU in the other server, and to its receiver.

use super::blueprint::{Blueprint, LinkPlan, NodeId, Routes, Spread, SwitchPlan};
use super::rail_switch::RailSwitch;
use super::shape::{ShapeError, check_size};
use crate::link::LinkConfig;

/// A rail network. Hosts follow each other server by server. Its switches are those in front of the hosts, in the same
/// order, then those of the servers, then those of the rails.
#[derive(Clone, PartialEq, Debug)]
pub struct Rail {
    /// Servers.
    pub servers: u32,
    /// GPUs of each server; there are as many rails.
    pub gpus: u32,
    /// How path numbers choose between rails.
    pub spread: Spread,
    /// Between a GPU's memory and what passes packets on.
    pub host: LinkConfig,
    /// Between a GPU and the switch of its server.
    pub nvlink: LinkConfig,
    /// Between a GPU and the switch of its rail.
    pub rail: LinkConfig,
}

impl Rail {
    /// The network.
    ///
    /// # Errors
    /// [`ShapeError`] says what does not fit.
    pub fn build(&self) -> Result<Blueprint, ShapeError> {
        let Rail { servers, gpus, .. } = *self;
        for (key, value) in [("servers", servers), ("gpus", gpus)] {
            if value == 0 {
                return Err(ShapeError::new(key, "must be at least 1"));
            }
        }
        let all = u64::from(servers).saturating_mul(gpus.into());
        let nodes =
            all.saturating_mul(2).saturating_add(servers.into()).saturating_add(gpus.into());
        check_size("servers", nodes, all, 6)?;
        let hosts = servers * gpus;
        let (of_hosts, of_servers) = (hosts, 2 * hosts);
        let of_rails = of_servers + servers;
        let mut links = Vec::new();
        let mut join = |one: u32, other: u32, config: LinkConfig| {
            links.push(LinkPlan { from: NodeId(one), to: NodeId(other), config });
            links.push(LinkPlan { from: NodeId(other), to: NodeId(one), config });
        };
        for host in 0..hosts {
            let gpu = of_hosts + host;
            // In the order that `RailSwitch` knows.
            join(gpu, host, self.host);
            join(gpu, of_rails + host % gpus, self.rail);
            join(gpu, of_servers + host / gpus, self.nvlink);
        }
        let of_hosts = (0..hosts).map(|host| RailSwitch::of_gpu(gpus, host));
        let of_servers = (0..servers).map(|server| RailSwitch::of_server(gpus, server));
        let of_rails = (0..gpus).map(|_| RailSwitch::of_rail(gpus));
        let all = of_hosts.chain(of_servers).chain(of_rails);
        let plan = |switch| SwitchPlan { spread: self.spread, routes: Routes::Rail(switch) };
        Ok(Blueprint::new(hosts, all.map(plan).collect(), links))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hop::Hop;
    use crate::ids::HostId;

    fn rail(servers: u32, gpus: u32) -> Rail {
        let link = LinkConfig { bytes_per_s: Some(12_500_000_000), ..LinkConfig::delay(1_000_000) };
        let (spread, host, nvlink, rail) = (Spread::Modulo, link, link, link);
        Rail { servers, gpus, spread, host, nvlink, rail }
    }

    #[test]
    fn packets_go_by_the_rail_that_their_path_number_says() {
        let (servers, gpus) = (3, 4);
        let plan = rail(servers, gpus).build().expect("fits");
        let hosts = servers * gpus;
        let (first_server, first_rail) = (2 * hosts, 2 * hosts + servers);
        for from in 0..hosts {
            for to in (0..hosts).filter(|to| *to != from) {
                let same_server = from / gpus == to / gpus;
                for choice in 0..gpus {
                    let hop =
                        Hop { path: choice as u16, ..Hop::probe(HostId(from), HostId(to), 9) };
                    let way = plan.way(&hop);
                    let passed: Vec<u32> =
                        way.iter().map(|link| plan.links()[link.0 as usize].to.0).collect();
                    let rails: Vec<u32> =
                        passed.iter().filter(|node| **node >= first_rail).copied().collect();
                    let servers: Vec<u32> = passed
                        .iter()
                        .filter(|node| (first_server..first_rail).contains(*node))
                        .map(|node| node - first_server)
                        .collect();
                    if same_server {
                        assert_eq!((rails, servers), (vec![], vec![from / gpus]));
                        continue;
                    }
                    let rail = (from + choice) % gpus;
                    assert_eq!(rails, [first_rail + rail]);
                    let leaves = (from % gpus != rail).then_some(from / gpus);
                    let enters = (to % gpus != rail).then_some(to / gpus);
                    assert_eq!(servers, leaves.into_iter().chain(enters).collect::<Vec<_>>());
                }
            }
        }
    }

    /// LAPS, table I: 63 receivers and 455 ways of each GPU.
    #[test]
    fn the_network_of_laps_has_its_ways() {
        let plan = rail(8, 8).build().expect("fits");
        assert_eq!((plan.hosts(), plan.switches().len()), (64, 64 + 8 + 8));
        for from in 0..64 {
            let others = (0..64).filter(|to| *to != from);
            let ways = others.map(|to| plan.choices(HostId(from), HostId(to))).sum::<u32>();
            assert_eq!(ways, 7 + 7 * 8 * 8);
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let refused = |servers, gpus| rail(servers, gpus).build().expect_err("refused").to_string();
        assert_eq!(refused(0, 8), "servers must be at least 1");
        assert_eq!(refused(8, 0), "gpus must be at least 1");
        assert!(refused(1 << 20, 1 << 10).starts_with("servers must be smaller"));
        assert!(refused(u32::MAX, u32::MAX).starts_with("servers must be smaller"));
    }
}
