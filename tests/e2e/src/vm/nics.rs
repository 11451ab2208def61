//! What programs see on a node with many NICs, which `tests/vm/nics.sh` builds in the machine.

use super::Ran;
use crate::report::Done;
use anyhow::{Context, Result, bail, ensure};
use std::fs;

/// The eight NICs, the bond, and the VLAN, each on its hardware; all are alike fast.
const ROCE: [&str; 10] = [
    "roce0 10.20.0.0/24 10.20.0.5 0000:10:00.0",
    "roce1 10.20.1.0/24 10.20.1.5 0000:11:00.0",
    "roce2 10.20.2.0/24 10.20.2.5 0000:12:00.0",
    "roce3 10.20.3.0/24 10.20.3.5 0000:13:00.0",
    "roce4 10.20.4.0/24 10.20.4.5 0000:14:00.0",
    "roce5 10.20.5.0/24 10.20.5.5 0000:15:00.0",
    "roce6 10.20.6.0/24 10.20.6.5 0000:16:00.0",
    "roce7 10.20.7.0/24 10.20.7.5 0000:17:00.0",
    "roce_bond0 10.28.0.0/24 10.28.0.5 0000:20:00.0",
    "roce0 10.27.0.0/24 10.27.0.5 0000:10:00.0",
];
/// The interfaces below them, in the same order.
const INTERFACES: [&str; 10] =
    ["eth0", "eth1", "eth2", "eth3", "eth4", "eth5", "eth6", "eth7", "bond0", "eth0.7"];
/// The card without RDMA.
const MANAGEMENT: &str = "mgmt 192.0.2.0/24 192.0.2.5 0000:30:00.0";
/// What leads to no other host.
const WITHIN: [&str; 2] =
    ["docker0 172.17.0.0/16 172.17.0.1 no-card", "lo 127.0.0.0/8 127.0.0.1 no-card"];

fn lines(parts: &[&[&str]]) -> Vec<String> {
    parts.concat().iter().map(|line| (*line).to_owned()).collect()
}

/// Entries with another word in one place.
fn changed(entries: &[&str], word: usize, to: impl Fn(usize, &str) -> String) -> Vec<String> {
    let change = |(nth, entry): (usize, &&str)| {
        let mut words: Vec<String> = entry.split(' ').map(str::to_owned).collect();
        words[word] = to(nth, &words[word]);
        words.join(" ")
    };
    entries.iter().enumerate().map(change).collect()
}

/// Each list of the script, and what it must be.
fn expected() -> Vec<(&'static str, Vec<String>)> {
    let rest: &[&str] = &[&[MANAGEMENT], &WITHIN[..]].concat();
    let rail = |domain: &str| match domain {
        "roce0" => Some("rail0".to_owned()),
        "roce1" => Some("rail1".to_owned()),
        _ => None,
    };
    let railed = |nth: usize, network: &str| {
        let domain = ROCE[nth].split(' ').next().unwrap_or_default();
        rail(domain).unwrap_or_else(|| network.to_owned())
    };
    let rest_of = |first: Vec<String>| [first, lines(&[rest])].concat();
    vec![
        ("all", lines(&[&ROCE, rest])),
        ("nccl", lines(&[&ROCE[..1]])),
        ("openshmem", lines(&[&ROCE, &[MANAGEMENT]])),
        ("domain", vec!["eth3 10.20.3.0/24 10.20.3.5 0000:13:00.0".to_owned()]),
        ("cluster", changed(&ROCE, 1, |_, _| "cluster".to_owned())),
        ("rails", rest_of(changed(&ROCE, 1, railed))),
        ("udp", rest_of(changed(&ROCE, 0, |nth, _| INTERFACES[nth].to_owned()))),
    ]
}

/// Judges the lists, and that `erd info` shows the same as the first.
pub fn judge(ran: &Ran) -> Result<Done> {
    let read = |name: &str| {
        let path = ran.out.join(format!("nics.{name}"));
        fs::read_to_string(path).with_context(|| format!("the script left no list {name}"))
    };
    if let Err(error) = read("done") {
        bail!("{error}: {}", read("build")?);
    }
    let lists = expected();
    for (name, wanted) in &lists {
        let text = read(name)?;
        let found: Vec<&str> = text.lines().collect();
        ensure!(found == *wanted, "{name}: programs see\n{text}and not\n{}", wanted.join("\n"));
    }
    let shown = offered(&read("info")?)?;
    let all: Vec<String> = lines(&[&ROCE, &[MANAGEMENT], &WITHIN]);
    let without_bus = |line: &String| line.rsplit_once(' ').map(|(start, _)| start.to_owned());
    let all: Vec<String> = all.iter().filter_map(without_bus).collect();
    ensure!(shown == all, "erd info shows\n{}\nand not\n{}", shown.join("\n"), all.join("\n"));
    Done::many(lists.len() + 1, format!("{} lists, and erd info", lists.len()))
}

/// The IPv4 entries of `erd info --json`: domain, fabric, address.
fn offered(json: &str) -> Result<Vec<String>> {
    let info: serde_json::Value = serde_json::from_str(json).context("erd info")?;
    let entries = info["offered"].as_array().context("erd info has no list of entries")?;
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let line = |entry: &serde_json::Value| {
        let name =
            entry["device"].as_str().map_or_else(|| text(&entry["interface"]), str::to_owned);
        format!("{name} {} {}", text(&entry["network"]), text(&entry["address"]))
    };
    let v4 = entries.iter().filter(|entry| !text(&entry["address"]).contains(':'));
    Ok(v4.map(line).collect())
}
