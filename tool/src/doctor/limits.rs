//! Checks of limits of the system and of the user: socket buffers, descriptors, ports.

use super::{Finding, Host};
use crate::info::port_options;
use crate::system::System;
use crate::text;
use erd_core::settings::InfoPath;
use erd_port::udp::Capabilities;
use rustix::process::{Resource, getrlimit};

/// Descriptors of a process beside those of erd.
const OTHER_FILES: u64 = 64;
/// Descriptors of an endpoint and its queues: sockets, wait sets, the helper thread's.
const ENDPOINT_FILES: u64 = 16;
/// Peers that a job of modest size has: one connection each, with `FI_ERD_INFO_PATH=tcp`.
const PEERS: u64 = 1024;
/// Processes that share a host's ports, in a job of modest size.
const PROCESSES: u64 = 64;

/// Checks all of them.
pub fn check(host: &Host) -> Vec<Finding> {
    let mut found = buffers(host);
    found.push(files(host, getrlimit(Resource::Nofile).current));
    found.push(ports(&host.system, paths(host)));
    found
}

/// Most paths of a domain here.
fn paths(host: &Host) -> u64 {
    let of = |loopback| u64::from(host.settings.paths_on(loopback));
    host.sites.iter().map(|site| of(site.loopback)).max().unwrap_or(of(false))
}

fn buffers(host: &Host) -> Vec<Finding> {
    let Some(site) = host.sites.first() else { return Vec::new() };
    let got = match Capabilities::of(site.address, &port_options(&host.settings)) {
        Ok(got) => got,
        Err(error) => return vec![Finding::problem("sockets", error.to_string())],
    };
    // The kernel counts twice what it grants.
    let recv = Buffer {
        check: "recv-buffer",
        setting: "FI_ERD_RECV_BUFFER",
        limit: "rmem_max",
        asked: host.settings.recv_buffer_bytes as u64,
        granted: got.recv_buffer_bytes as u64 / 2,
    };
    let send = Buffer {
        check: "send-buffer",
        setting: "FI_ERD_SEND_BUFFER",
        limit: "wmem_max",
        asked: host.settings.send_buffer_bytes as u64,
        granted: got.send_buffer_bytes as u64 / 2,
    };
    [recv, send].iter().map(|buffer| buffer.check(&host.system)).collect()
}

/// A kind of socket buffer.
struct Buffer {
    check: &'static str,
    setting: &'static str,
    limit: &'static str,
    asked: u64,
    granted: u64,
}

impl Buffer {
    fn check(&self, system: &System) -> Finding {
        let Buffer { check, setting, limit, asked, granted } = *self;
        let most = system.number(format!("/proc/sys/net/core/{limit}"));
        let sizes = format!(
            "{} of the {} that {setting} asks for",
            text::bytes(granted),
            text::bytes(asked)
        );
        let finding = match most {
            _ if granted < asked => Finding::warning(
                check,
                format!("the kernel grants {sizes}: bursts that do not fit are lost"),
            ),
            Some(most) if most < asked => {
                let text = format!(
                    "granted to this user, who may exceed net.core.{limit}; others get {}",
                    text::bytes(most)
                );
                Finding::warning(check, text)
            }
            _ => return Finding::ok(check, format!("{} granted", text::bytes(asked))),
        };
        finding.fix(format!("sudo sysctl -w net.core.{limit}={asked}")).fix(format!(
            "echo net.core.{limit}={asked} | sudo tee -a /etc/sysctl.d/90-erd.conf   # for good"
        ))
    }
}

fn files(host: &Host, limit: Option<u64>) -> Finding {
    let connections = if host.settings.info_path == InfoPath::Tcp { PEERS } else { 0 };
    let needed = ENDPOINT_FILES + OTHER_FILES + paths(host) + connections;
    match limit {
        Some(limit) if limit < needed => {
            let why = match connections {
                0 => "sockets, wait sets and the program's own".to_owned(),
                peers => format!("one for each of {peers} peers, as FI_ERD_INFO_PATH=tcp takes"),
            };
            Finding::problem(
                "open-files",
                format!("{limit} may be open, {needed} are needed: {why}"),
            )
            .fix(format!("ulimit -n {}", needed.max(1024).next_power_of_two()))
        }
        Some(limit) => Finding::ok("open-files", format!("{limit} may be open")),
        None => Finding::ok("open-files", "without limit"),
    }
}

/// Every endpoint and every path takes a port that the kernel picks.
fn ports(system: &System, paths: u64) -> Finding {
    let range = system.numbers("/proc/sys/net/ipv4/ip_local_port_range");
    let Some([first, last]) = range.as_deref() else {
        return Finding::skipped("ports", "the range of ephemeral ports cannot be read");
    };
    let (have, needed) = ((last + 1).saturating_sub(*first), PROCESSES * (paths + 1));
    let range = format!("{have} ephemeral ports, {first} to {last}");
    if have < needed {
        let text = format!("{range}: {PROCESSES} processes with {paths} paths each take {needed}");
        return Finding::warning("ports", text)
            .fix("sudo sysctl -w net.ipv4.ip_local_port_range=\"32768 60999\"");
    }
    Finding::ok("ports", format!("{range}; hosts must let UDP pass between theirs"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Verdict;

    #[test]
    fn buffers_are_compared_with_what_others_may_have() {
        let small = System::planted(&[("proc/sys/net/core/rmem_max", "212992\n")]);
        let buffer = |granted| Buffer {
            check: "recv-buffer",
            setting: "FI_ERD_RECV_BUFFER",
            limit: "rmem_max",
            asked: 4 << 20,
            granted,
        };
        let cut = buffer(212_992).check(&small);
        assert_eq!(cut.verdict, Verdict::Warning);
        assert!(cut.text.contains("208 KiB of the 4.00 MiB"), "{}", cut.text);
        assert_eq!(cut.fix[0], "sudo sysctl -w net.core.rmem_max=4194304");
        let forced = buffer(4 << 20).check(&small);
        assert!(forced.verdict == Verdict::Warning && forced.text.contains("others get 208 KiB"));
        let large = System::planted(&[("proc/sys/net/core/rmem_max", "16777216\n")]);
        assert_eq!(buffer(4 << 20).check(&large).verdict, Verdict::Ok);
    }

    #[test]
    fn few_ports_are_too_few() {
        let few = System::planted(&[("proc/sys/net/ipv4/ip_local_port_range", "40000\t40010\n")]);
        assert_eq!(ports(&few, 4).verdict, Verdict::Warning);
        let usual = System::planted(&[("proc/sys/net/ipv4/ip_local_port_range", "32768\t60999\n")]);
        assert_eq!(ports(&usual, 4).verdict, Verdict::Ok);
        assert_eq!(ports(&System::below("/nowhere".as_ref()), 4).verdict, Verdict::Skipped);
    }
}
