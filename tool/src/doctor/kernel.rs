//! Checks of the kernel: socket features, clock and scheduling.

use super::{Finding, Host};
use crate::info::port_options;
use crate::system::System;
use erd_port::udp::{Capabilities, PortOptions};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Clocks readable without a system call.
const FAST_CLOCKS: &[&str] =
    &["tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter", "timebase"];
/// The sysfs folder that selects the clock.
const CLOCKS: &str = "/sys/devices/system/clocksource/clocksource0";

/// Checks all of it.
pub fn check(host: &Host) -> Vec<Finding> {
    let mut found = features(host);
    found.extend([clock(&host.system), governor(&host.system), quota(&host.system)]);
    found
}

fn features(host: &Host) -> Vec<Finding> {
    let Some(site) = host.sites.first() else { return Vec::new() };
    // A feature switched off is not the kernel's fault.
    let all = PortOptions {
        gso: true,
        gro: true,
        ecn: true,
        timestamps: true,
        ..port_options(&host.settings)
    };
    let Ok(got) = Capabilities::of(site.address, &all) else { return Vec::new() };
    let mut found = Vec::new();
    let mut lacks = |has: bool, option: &str, without: &str| {
        if !has {
            let text = format!("the kernel has no {option}: {without}");
            found.push(Finding::warning("kernel", text).fix("install a kernel of 5.0 or newer"));
        }
    };
    lacks(got.gso_segments > 1, "UDP_SEGMENT", "each datagram is a system call of its own");
    lacks(got.gro, "UDP_GRO", "datagrams are received one by one");
    lacks(got.ecn_read, "IP_RECVTOS", "congestion marks are not seen");
    lacks(got.ecn_write, "IP_TOS", "switches drop instead of marking");
    lacks(got.timestamps, "SO_TIMESTAMPNS", "round trips include the time until the program looks");
    lacks(got.drop_counts, "SO_RXQ_OVFL", "drops of a full buffer are not counted");
    lacks(got.dont_fragment, "IP_MTU_DISCOVER", "routers may fragment packets");
    if found.is_empty() {
        found.push(Finding::ok(
            "kernel",
            format!("GSO of {} datagrams, GRO, ECN, time stamps, drop counts", got.gso_segments),
        ));
    }
    found
}

fn clock(system: &System) -> Finding {
    let Some(current) = system.read(format!("{CLOCKS}/current_clocksource")) else {
        return Finding::skipped("clock", "the clock source cannot be read");
    };
    if FAST_CLOCKS.contains(&current.as_str()) {
        return Finding::ok("clock", current);
    }
    let available = system.read(format!("{CLOCKS}/available_clocksource")).unwrap_or_default();
    let better =
        FAST_CLOCKS.iter().find(|fast| available.split_whitespace().any(|it| it == **fast));
    let text = format!("{current} takes a system call or longer for each look at the time");
    let finding = Finding::warning("clock", text);
    match better {
        Some(better) => {
            finding.fix(format!("echo {better} | sudo tee {CLOCKS}/current_clocksource"))
        }
        None => finding.fix("boot with tsc=reliable clocksource=tsc, if the processor's TSC is"),
    }
}

fn governor(system: &System) -> Finding {
    let dir = "/sys/devices/system/cpu";
    let of = |cpu: &String| system.read(format!("{dir}/{cpu}/cpufreq/scaling_governor"));
    let governors: BTreeSet<String> = system.names(dir).iter().filter_map(of).collect();
    let slow: Vec<&str> =
        governors.iter().map(String::as_str).filter(|name| *name != "performance").collect();
    if governors.is_empty() {
        return Finding::ok("governor", "the processors' clock is not the system's to change");
    }
    if slow.is_empty() {
        return Finding::ok("governor", "performance");
    }
    let text = format!(
        "processors run under {}: a message that wakes one waits for its clock",
        slow.join(", ")
    );
    Finding::warning("governor", text).fix("sudo cpupower frequency-set -g performance")
}

/// A limit on processor time, of this process's control group or of one above it.
fn quota(system: &System) -> Finding {
    let groups = system.read("/proc/self/cgroup").unwrap_or_default();
    let limits = groups.lines().filter_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        let old = controllers.split(',').any(|name| name == "cpu");
        (old || controllers.is_empty()).then(|| limit(system, path, old))?
    });
    match limits.min_by(|a, b| a.0.total_cmp(&b.0)) {
        None => Finding::ok("cpu-quota", "none"),
        Some((processors, file)) => {
            let text = format!(
                "processes here get the time of {processors:.2} processors, then stand still: peers wait, or take them for dead"
            );
            let cure = if file.ends_with("cpu.max") { "max" } else { "-1" };
            Finding::warning("cpu-quota", text).fix(format!(
                "echo {cure} | sudo tee {}   # or ask who started the container",
                file.display()
            ))
        }
    }
}

/// The tightest limit from `path` upwards: processors' worth of time, and the file that says so.
fn limit(system: &System, path: &str, old: bool) -> Option<(f64, PathBuf)> {
    let root = Path::new(if old { "/sys/fs/cgroup/cpu" } else { "/sys/fs/cgroup" });
    let inner = Path::new(path.trim_start_matches('/'));
    let found = inner.ancestors().filter_map(|group| {
        let dir = root.join(group);
        if old {
            let [quota, period] =
                ["cpu.cfs_quota_us", "cpu.cfs_period_us"].map(|name| system.number(dir.join(name)));
            return Some((quota? as f64 / period? as f64, dir.join("cpu.cfs_quota_us")));
        }
        let file = dir.join("cpu.max");
        let numbers = system.numbers(&file)?;
        let [quota, period] = numbers.as_slice() else { return None };
        Some((*quota as f64 / *period as f64, file))
    });
    found.min_by(|a, b| a.0.total_cmp(&b.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Verdict;

    #[test]
    fn a_slow_clock_is_told_with_a_better_one() {
        let clocks = |current, available| {
            clock(&System::planted(&[
                ("sys/devices/system/clocksource/clocksource0/current_clocksource", current),
                ("sys/devices/system/clocksource/clocksource0/available_clocksource", available),
            ]))
        };
        assert_eq!(clocks("tsc\n", "tsc hpet acpi_pm\n").verdict, Verdict::Ok);
        assert_eq!(clocks("kvm-clock\n", "kvm-clock\n").verdict, Verdict::Ok);
        let slow = clocks("hpet\n", "tsc hpet acpi_pm\n");
        assert_eq!(slow.verdict, Verdict::Warning);
        assert!(slow.fix[0].starts_with("echo tsc | sudo tee /sys/"), "{:?}", slow.fix);
        assert!(clocks("hpet", "hpet").fix[0].starts_with("boot with"));
    }

    #[test]
    fn a_saving_governor_is_told() {
        let file = "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor";
        assert_eq!(governor(&System::planted(&[(file, "powersave\n")])).verdict, Verdict::Warning);
        assert_eq!(governor(&System::planted(&[(file, "performance\n")])).verdict, Verdict::Ok);
        assert_eq!(governor(&System::planted(&[("other", "")])).verdict, Verdict::Ok);
    }

    #[test]
    fn the_tightest_quota_of_all_groups_above_counts() {
        let found = quota(&System::planted(&[
            ("proc/self/cgroup", "0::/jobs/one\n"),
            ("sys/fs/cgroup/jobs/one/cpu.max", "max 100000\n"),
            ("sys/fs/cgroup/jobs/cpu.max", "150000 100000\n"),
        ]));
        assert!(found.text.contains("1.50 processors"), "{}", found.text);
        assert_eq!(
            found.fix[0],
            "echo max | sudo tee /sys/fs/cgroup/jobs/cpu.max   # or ask who started the container"
        );
        let old = quota(&System::planted(&[
            ("proc/self/cgroup", "4:memory:/x\n3:cpu,cpuacct:/x\n0::/\n"),
            ("sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "50000\n"),
            ("sys/fs/cgroup/cpu/x/cpu.cfs_period_us", "100000\n"),
        ]));
        assert!(old.text.contains("0.50 processors"), "{}", old.text);
        let free = [
            ("proc/self/cgroup", "1:cpu:/\n0::/\n"),
            ("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n"),
            ("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"),
        ];
        assert_eq!(quota(&System::planted(&free)).verdict, Verdict::Ok);
    }
}
