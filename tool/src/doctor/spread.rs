//! Checks that a card spreads the paths of one peer over its receive queues. Many cards choose the queue of a UDP datagram
//! by the two addresses alone: then all paths from a host share one queue, and one processor.

use super::{Finding, Host};
use crate::system::System;
use std::collections::BTreeSet;
use std::process::Command;

/// Most interfaces to ask about.
const INTERFACES_MAX: usize = 16;

/// Asks about each interface that can be used.
pub fn check(host: &Host) -> Vec<Finding> {
    // A device spreads its own arrivals.
    let outside = host.sites.iter().filter(|site| !site.loopback && !site.rdma);
    let names: BTreeSet<_> = outside
        .map(|site| (site.interface.as_str(), if site.address.is_ipv6() { "udp6" } else { "udp4" }))
        .collect();
    let asked = names.into_iter().take(INTERFACES_MAX);
    asked.filter_map(|(name, flow)| judged(name, flow, queues(&host.system, name))).collect()
}

fn queues(system: &System, interface: &str) -> usize {
    let all = system.names(format!("/sys/class/net/{interface}/queues"));
    all.iter().filter(|name| name.starts_with("rx-")).count()
}

/// `None` where there is nothing to spread over, or nobody can tell.
fn judged(interface: &str, flow: &str, queues: usize) -> Option<Finding> {
    if queues < 2 {
        return None;
    }
    let output = Command::new("ethtool").args(["-n", interface, "rx-flow-hash", flow]).output();
    let told = output.ok().filter(|output| output.status.success())?;
    let ports = by_ports(&String::from_utf8_lossy(&told.stdout))?;
    Some(finding(interface, flow, queues, ports))
}

fn finding(interface: &str, flow: &str, queues: usize, ports: bool) -> Finding {
    let how = if ports { "addresses and ports" } else { "addresses alone" };
    let text = format!("{interface}: {queues} queues, {flow} is spread over them by {how}");
    if ports {
        return Finding::ok("receive queues", text);
    }
    Finding::warning("receive queues", format!("{text}: all paths from one host share a queue"))
        .fix(format!("sudo ethtool -N {interface} rx-flow-hash {flow} sdfn"))
}

/// Whether the ports of a datagram count, by what ethtool says. `None` if it says neither.
fn by_ports(text: &str) -> Option<bool> {
    let has = |field: &str| text.contains(field);
    let addresses = has("IP SA") && has("IP DA");
    let ports = has("L4 bytes 0 & 1") && has("L4 bytes 2 & 3");
    (addresses || ports).then_some(ports)
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    #[test]
    fn what_ethtool_says_is_read() {
        let start = "UDP over IPV4 flows use these fields for computing Hash flow key:\n";
        let addresses = format!("{start}IP SA\nIP DA\n\n");
        let ports = format!(
            "{addresses}L4 bytes 0 & 1 [TCP/UDP src port]\nL4 bytes 2 & 3 [TCP/UDP dst port]\n"
        );
        assert_eq!(by_ports(&addresses), Some(false));
        assert_eq!(by_ports(&ports), Some(true));
        assert_eq!(by_ports("Cannot get RX network flow hashing options"), None);
    }

    #[test]
    fn a_card_that_spreads_by_addresses_is_told_with_the_command() {
        let told = finding("eth0", "udp4", 16, false);
        assert_eq!(told.verdict, Verdict::Warning);
        assert_eq!(told.fix, ["sudo ethtool -N eth0 rx-flow-hash udp4 sdfn"]);
        assert_eq!(finding("eth0", "udp4", 16, true).verdict, Verdict::Ok);
    }

    #[test]
    fn receive_queues_are_counted() {
        let dir = "sys/class/net/eth0/queues";
        let files = [
            format!("{dir}/rx-0/rps_cpus"),
            format!("{dir}/rx-1/rps_cpus"),
            format!("{dir}/tx-0/xps_cpus"),
        ];
        let files: Vec<_> = files.iter().map(|file| (file.as_str(), "")).collect();
        let system = System::planted(&files);
        assert_eq!((queues(&system, "eth0"), queues(&system, "eth1")), (2, 0));
        assert!(judged("eth1", "udp4", 1).is_none());
    }
}
