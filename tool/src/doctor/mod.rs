//! `erd doctor`: finds what keeps erd from working, or from working well, and how to fix it.
//!
//! A check is a function that returns one or more findings. Where it can, it tries things (sends datagrams, opens
//! sockets, asks `fi_info`); elsewhere it reads the system's own reports.

mod devices;
mod kernel;
mod limits;
mod local;
mod network;
mod provider;
mod settings;
mod spread;

use crate::info::{choose, read_settings};
use crate::system::System;
use crate::{DoctorArgs, text};
use anyhow::Result;
use erd_core::settings::Settings;
use erd_port::udp::{Interface, interfaces};
use serde::Serialize;
use std::fmt::Write as _;
use std::net::IpAddr;

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// As it should be.
    Ok,
    /// It could not be checked here.
    Skipped,
    /// It works, but could be better.
    Warning,
    /// It does not work.
    Problem,
}

/// A finding of a check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Name of the check.
    pub check: &'static str,
    pub verdict: Verdict,
    pub text: String,
    /// What to do, one command or sentence each.
    pub fix: Vec<String>,
}

impl Finding {
    /// A finding without a problem.
    pub fn ok(check: &'static str, text: impl Into<String>) -> Finding {
        Finding { check, verdict: Verdict::Ok, text: text.into(), fix: Vec::new() }
    }

    /// A finding that could not be checked.
    pub fn skipped(check: &'static str, text: impl Into<String>) -> Finding {
        Finding { verdict: Verdict::Skipped, ..Finding::ok(check, text) }
    }

    /// A finding that could be better.
    pub fn warning(check: &'static str, text: impl Into<String>) -> Finding {
        Finding { verdict: Verdict::Warning, ..Finding::ok(check, text) }
    }

    /// It does not work.
    pub fn problem(check: &'static str, text: impl Into<String>) -> Finding {
        Finding { verdict: Verdict::Problem, ..Finding::ok(check, text) }
    }

    /// The same finding with one more action.
    #[must_use]
    pub fn fix(mut self, how: impl Into<String>) -> Finding {
        self.fix.push(how.into());
        self
    }
}

/// An address that erd would offer to programs.
#[derive(Clone, Debug)]
pub struct Site {
    pub interface: String,
    pub address: IpAddr,
    pub mtu_bytes: u32,
    pub loopback: bool,
    /// An RDMA device carries data there.
    pub rdma: bool,
}

/// Inputs of the checks.
#[derive(Debug)]
pub struct Host {
    pub system: System,
    /// Settings of the environment, or the defaults if these are not valid.
    pub settings: Settings,
    pub found: Vec<Interface>,
    /// The addresses on offer; empty, with the reason, if none.
    pub sites: Vec<Site>,
    pub nothing: String,
}

impl Host {
    fn look() -> Host {
        let settings = read_settings()
            .or_else(|_| Settings::read(|_| Ok(None)))
            .expect("the table's own defaults are valid");
        let found = interfaces(&settings.sysfs);
        let (choice, offered) = choose(&settings, found.clone(), None);
        let mut sites: Vec<Site> = Vec::new();
        for place in offered {
            // Once over verbs and once without.
            if !sites.iter().any(|site| site.address == place.address) {
                sites.push(Site {
                    interface: place.interface,
                    address: place.address,
                    mtu_bytes: place.mtu_bytes,
                    loopback: place.loopback,
                    rdma: place.device.is_some(),
                });
            }
        }
        let nothing = choice.reasons.into_iter().map(|(_, why)| why).collect::<Vec<_>>().join("; ");
        Host { system: System::new(), settings, found, sites, nothing }
    }
}

/// Checks everything; returns whether there is no problem.
///
/// # Errors
/// Standard output cannot be written.
pub fn run(args: &DoctorArgs) -> Result<bool> {
    let host = Host::look();
    let checks: [fn(&Host) -> Vec<Finding>; 8] = [
        settings::check,
        network::check,
        spread::check,
        limits::check,
        local::check,
        kernel::check,
        devices::check,
        provider::check,
    ];
    let found: Vec<Finding> = checks.iter().flat_map(|check| check(&host)).collect();
    let shown = found.iter().filter(|finding| !args.quiet || finding.verdict >= Verdict::Warning);
    let shown: Vec<&Finding> = shown.collect();
    if args.json {
        text::print(&format!("{}\n", serde_json::to_string_pretty(&shown)?))?;
    } else {
        text::print(&report(&shown, &found))?;
    }
    Ok(found.iter().all(|finding| finding.verdict < Verdict::Problem))
}

fn report(shown: &[&Finding], all: &[Finding]) -> String {
    let mut out = String::new();
    for finding in shown {
        let verdict = match finding.verdict {
            Verdict::Ok => "ok",
            Verdict::Skipped => "-",
            Verdict::Warning => "WARNING",
            Verdict::Problem => "PROBLEM",
        };
        let text = text::harmless(&finding.text);
        // Writing to a string does not fail.
        let _ = writeln!(out, "{verdict:<8} {:<15} {text}", finding.check);
        for how in &finding.fix {
            let _ = writeln!(out, "{:<24} > {}", "", text::harmless(how));
        }
    }
    let count = |verdict| all.iter().filter(|finding| finding.verdict == verdict).count();
    let (problems, warnings) = (count(Verdict::Problem), count(Verdict::Warning));
    let s = |count| if count == 1 { "" } else { "s" };
    let _ = match (problems, warnings) {
        (0, 0) => writeln!(out, "\nAll is well."),
        _ => {
            writeln!(out, "\n{problems} problem{}, {warnings} warning{}", s(problems), s(warnings))
        }
    };
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_shows_what_to_do_and_counts() {
        let found = [
            Finding::ok("clock", "tsc"),
            Finding::problem("firewall", "dropped").fix("nft list ruleset"),
        ];
        let text = report(&found.iter().collect::<Vec<_>>(), &found);
        assert_eq!(
            text,
            "ok       clock           tsc\n\
             PROBLEM  firewall        dropped\n\
             \x20                        > nft list ruleset\n\n\
             1 problem, 0 warnings\n"
        );
    }
}
