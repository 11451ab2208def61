//! Checks of interfaces, their MTUs, and whether datagrams pass the firewall of this host.

use super::{Finding, Host, Site};
use crate::text;
use erd_port::udp::{Ecn, Trial, max_payload_bytes};
use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

/// Longest wait for a datagram that goes from one socket of this host to another.
const PATIENCE: Duration = Duration::from_millis(600);
/// Most addresses to try datagrams on; each failure takes time.
const SITES_MAX: usize = 16;
/// Most lines of a firewall's rules shown.
const RULES_SHOWN: usize = 3;

/// Checks interfaces, and tries datagrams on each.
pub fn check(host: &Host) -> Vec<Finding> {
    if host.sites.is_empty() {
        let finding = Finding::problem("interfaces", format!("none can be used: {}", host.nothing));
        return vec![fix_interfaces(host, finding)];
    }
    let names: Vec<String> =
        host.sites.iter().map(|site| format!("{} {}", site.interface, site.address)).collect();
    let mut found = vec![Finding::ok("interfaces", names.join(", "))];
    if host.sites.iter().all(|site| site.loopback) {
        found.push(
            Finding::warning(
                "interfaces",
                "only loopback can be used: no other host can be reached",
            )
            .fix("ip addr; sudo ip link set <interface> up"),
        );
    }
    found.push(mtus(&host.sites));
    found.extend(host.sites.iter().take(SITES_MAX).flat_map(tried));
    found
}

fn fix_interfaces(host: &Host, finding: Finding) -> Finding {
    if !host.settings.ifaces.is_empty() {
        return finding.fix("unset FI_ERD_IFACE");
    }
    if !host.found.iter().any(|entry| entry.up) {
        return finding.fix("sudo ip link set lo up; sudo ip link set <interface> up");
    }
    finding.fix("sudo ip addr add <address>/<prefix> dev <interface>")
}

/// Checks for unequal MTUs: datagrams between such interfaces have the smaller size, or turn out too big on the path.
fn mtus(sites: &[Site]) -> Finding {
    let mut by_mtu: BTreeMap<u32, Vec<&str>> = BTreeMap::new();
    for site in sites.iter().filter(|site| !site.loopback) {
        let names = by_mtu.entry(site.mtu_bytes).or_default();
        if !names.contains(&site.interface.as_str()) {
            names.push(&site.interface);
        }
    }
    let listed: Vec<String> =
        by_mtu.iter().map(|(mtu, names)| format!("{} {mtu}", names.join(" "))).collect();
    match (by_mtu.len(), by_mtu.last_key_value()) {
        (0, _) | (_, None) => Finding::ok("mtu", "loopback alone"),
        (1, _) => Finding::ok("mtu", listed.join(", ")),
        (_, Some((largest, names))) => {
            let text = format!(
                "interfaces differ: {}; peers on different ones lose their first large datagrams",
                listed.join(", ")
            );
            Finding::warning("mtu", text)
                .fix(format!("export FI_ERD_IFACE={}", names.join(",")))
                .fix(format!(
                    "sudo ip link set <interface> mtu {largest}   # if its network carries that"
                ))
        }
    }
}

/// Sends a small datagram and the largest that the interface carries, from the host to itself.
fn tried(site: &Site) -> Vec<Finding> {
    let place = format!("{} {}", site.interface, site.address);
    let v6 = site.address.is_ipv6();
    let largest = max_payload_bytes(site.mtu_bytes, v6) as u16;
    let small = match Trial::of(site.address, 64, PATIENCE) {
        Ok(trial) => trial,
        Err(error) => return vec![Finding::problem("firewall", format!("{place}: {error}"))],
    };
    let Trial::Arrived(mark) = small else {
        let text = format!("{place}: UDP from this host to itself {}", became(small));
        return vec![with_rules(Finding::problem("firewall", text))];
    };
    let mut found = Vec::new();
    match Trial::of(site.address, largest, PATIENCE) {
        Ok(Trial::Arrived(_)) => found.push(Finding::ok(
            "firewall",
            format!(
                "{place}: UDP passes within this host, {} unfragmented",
                text::bytes(largest.into())
            ),
        )),
        Ok(trial) => {
            let text = format!(
                "{place}: small datagrams pass, those of {largest} bytes {}",
                became(trial)
            );
            let fix = format!("export FI_ERD_MTU={}   # or fix the filter", 1232.max(largest / 2));
            found.push(with_rules(Finding::problem("firewall", text)).fix(fix));
        }
        Err(error) => found.push(Finding::problem("firewall", format!("{place}: {error}"))),
    }
    if mark != Ecn::Ect0 {
        let text = format!(
            "{place}: packets lose their ECN marks within this host; controllers see no congestion marks"
        );
        found.push(with_rules(Finding::warning("ecn", text)));
    }
    found
}

fn became(trial: Trial) -> String {
    match trial {
        Trial::Arrived(_) => "passes".to_owned(),
        Trial::Lost => "does not arrive".to_owned(),
        Trial::Refused { errno } => {
            format!("is refused: {}", std::io::Error::from_raw_os_error(errno))
        }
        Trial::TooBig { mtu_bytes } => format!("is too big: the path's MTU is {mtu_bytes}"),
    }
}

/// Points at the firewall's rules, and shows the suspicious ones where it may read them.
fn with_rules(finding: Finding) -> Finding {
    let listed = Command::new("nft").args(["list", "ruleset"]).output();
    let Some(listed) = listed.ok().filter(|listed| listed.status.success()) else {
        return finding.fix("sudo nft list ruleset; sudo iptables-save   # look for drop, reject");
    };
    let rules = suspects(&String::from_utf8_lossy(&listed.stdout));
    if rules.is_empty() {
        return finding.fix("sudo iptables-save; no rule of nftables drops or rejects anything");
    }
    let finding =
        finding.fix("sudo nft -a list ruleset   # and delete, or accept UDP before, these:");
    rules.into_iter().take(RULES_SHOWN).fold(finding, |finding, rule| finding.fix(rule))
}

/// Lines of a ruleset that drop, reject, or change ECN marks, with their chains.
fn suspects(ruleset: &str) -> Vec<String> {
    let (mut chain, mut found) = (String::new(), Vec::new());
    for line in ruleset.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix("table ").or(line.strip_prefix("chain ")) {
            chain = name.trim_end_matches('{').trim().to_owned();
        }
        let acts = |word: &str| matches!(word.trim_end_matches(';'), "drop" | "reject");
        if line.split_whitespace().any(acts) || line.contains("ecn set") {
            found.push(format!("{chain}: {line}"));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(interface: &str, mtu_bytes: u32) -> Site {
        let address = "192.0.2.1".parse().expect("address");
        Site {
            interface: interface.to_owned(),
            address,
            mtu_bytes,
            loopback: interface == "lo",
            rdma: false,
        }
    }

    #[test]
    fn unequal_mtus_are_told_and_loopback_does_not_count() {
        assert_eq!(
            mtus(&[site("lo", 65_536), site("a", 1500), site("b", 1500)]).verdict,
            super::super::Verdict::Ok
        );
        let mixed = mtus(&[site("a", 1500), site("b", 9000)]);
        assert!(mixed.text.contains("a 1500, b 9000"), "{}", mixed.text);
        assert_eq!(mixed.fix[0], "export FI_ERD_IFACE=b");
    }

    #[test]
    fn rules_that_drop_are_shown_with_their_chain() {
        let ruleset = "table inet filter {\n\tchain input {\n\t\ttype filter hook input priority filter; policy drop;\n\
            \t\ttcp dport 22 accept\n\t\tmeta l4proto udp counter drop\n\t}\n}\n";
        assert_eq!(
            suspects(ruleset),
            [
                "input: type filter hook input priority filter; policy drop;",
                "input: meta l4proto udp counter drop"
            ]
        );
    }
}
