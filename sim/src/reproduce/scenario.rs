//! A claim's runs as scenarios: their texts are what `erd-sim scenario` reads.

use super::claims::{Arm, Book, Claim, ClaimCase, PaperNetwork, SEEDS, Scale, merge};
use crate::{schemes, transport};
use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

/// The keys of patterns that give lengths of messages or data.
const LENGTHS: [&str; 3] = ["message_bytes", "first_message_bytes", "data_bytes"];

/// Whose constants the subject has.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Column {
    /// The paper's.
    Paper,
    /// The product's.
    Product,
}

impl Column {
    /// Both.
    pub const BOTH: [Column; 2] = [Column::Paper, Column::Product];

    fn profile(self) -> &'static str {
        match self {
            Column::Paper => "paper",
            Column::Product => "product",
        }
    }
}

/// Links between a tier of switches and the one above that do worse than others.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BadLinks {
    /// Which tier, from 0.
    #[serde(default)]
    tier: usize,
    /// Of how many switches, evenly spread.
    switches: usize,
    /// How many of each.
    links_each: usize,
    /// How they do.
    health: Value,
}

/// The texts of an arm's runs, one for each seed.
///
/// # Errors
/// The claim names what is not there.
pub fn texts(
    book: &Book,
    claim: &Claim,
    case: &ClaimCase,
    arm: &Arm,
    (column, size): (Column, Scale),
) -> anyhow::Result<Vec<String>> {
    let name = arm.network.as_ref().or(case.network.as_ref()).or(claim.network.as_ref());
    let name = name.context("expected a network in the claim, its cases or its arms")?;
    let network = book.constants.networks.get(name);
    let network = network.with_context(|| format!("there is no network {name}"))?;
    let seeds = book.constants.seeds(claim, network, size)?;
    ensure!(seeds.len() % 2 == 1, "network {name}: expected an odd number of seeds");
    let text = |seed: &u64| text(book, network, case, arm, (column, size, *seed));
    seeds.iter().map(text).collect::<anyhow::Result<_>>().with_context(|| format!("network {name}"))
}

fn text(
    book: &Book,
    network: &PaperNetwork,
    case: &ClaimCase,
    arm: &Arm,
    (column, size, seed): (Column, Scale, u64),
) -> anyhow::Result<String> {
    let mut root = network.form(size).clone();
    root.remove(SEEDS);
    if let Some(bad) = root.remove("bad_links") {
        let bad: BadLinks = bad.try_into().context("bad_links")?;
        let failures = failures(&root, &bad).context("bad_links")?;
        root.insert("failures".to_owned(), failures);
    }
    let mut engines = network.engines.clone();
    merge(&mut engines, &arm.engines);
    if let Some(scheme) = &arm.scheme {
        engines.insert("scheme".to_owned(), Value::String(with_profile(scheme, column)));
    }
    let mut work = Value::Table(case.work.clone());
    if let Some(most) = book.constants.sizes[&size].bytes_max {
        cut(&mut work, most);
    }
    let work = Table::from_iter([("pattern".to_owned(), work)]);
    let (mut links, mut switches) = (network.links.clone(), network.switches.clone());
    if arm.lossless {
        let lossless = &network.lossless;
        ensure!(!lossless.switches.is_empty(), "it has no lossless form");
        merge(&mut links, &lossless.links);
        merge(&mut switches, &lossless.switches);
    }
    merge(&mut switches, &arm.switches);
    root.insert("seed".to_owned(), Value::Integer(seed as i64));
    root.insert("limit_ms".to_owned(), Value::Float(network.limit_ms.unwrap_or(1000) as f64));
    root.insert("links".to_owned(), Value::Table(links));
    if !switches.is_empty() {
        root.insert("switches".to_owned(), Value::Table(switches));
    }
    if !network.hosts.is_empty() {
        root.insert("hosts".to_owned(), Value::Table(network.hosts.clone()));
    }
    root.insert("engines".to_owned(), Value::Table(engines));
    root.insert("work".to_owned(), Value::Array(vec![Value::Table(work)]));
    Ok(root.to_string())
}

/// The scheme with the column's profile, unless it names one or is a baseline of the simulator.
fn with_profile(scheme: &str, column: Column) -> String {
    let baselines = [schemes::BASELINES, transport::BASELINES].concat();
    if scheme.contains(':') || baselines.contains(&scheme) {
        return scheme.to_owned();
    }
    let (name, rest) = scheme.split_at(scheme.find('+').unwrap_or(scheme.len()));
    format!("{name}:{}{rest}", column.profile())
}

/// No message is longer.
fn cut(value: &mut Value, most: i64) {
    match value {
        Value::Table(table) => {
            for (key, value) in table.iter_mut() {
                match value {
                    Value::Integer(bytes) if LENGTHS.contains(&key.as_str()) => {
                        *bytes = (*bytes).min(most);
                    }
                    value => cut(value, most),
                }
            }
        }
        Value::Array(values) => values.iter_mut().for_each(|value| cut(value, most)),
        _ => {}
    }
}

/// The scenario's failures: from the beginning on, in both directions.
fn failures(root: &Table, bad: &BadLinks) -> anyhow::Result<Value> {
    let tiers = root.get("topology").and_then(|topology| topology.get("tree"));
    let tiers = tiers.and_then(|tree| tree.get("tiers")).and_then(Value::as_array);
    let tiers = tiers.context("expected a tree")?;
    let number = |tier: usize, key: &str, default: i64| {
        let given = tiers.get(tier).and_then(|tier| tier.get(key)).and_then(Value::as_integer);
        given.unwrap_or(default) as usize
    };
    let hosts: usize = (0..tiers.len()).map(|tier| number(tier, "children", 1)).product();
    // Switches of each tier, and how many of them have the same hosts below.
    let (mut below, mut planes, mut first) = (1, 1, 0);
    let mut tier = 0;
    let (groups, next_planes) = loop {
        below *= number(tier, "children", 1);
        let per_child = number(tier + 1, "links_per_child", 1);
        let next_planes = planes * (number(tier, "links_up", 0) / per_child);
        let groups = hosts / below;
        if tier == bad.tier {
            break (groups, next_planes);
        }
        first += groups * planes;
        planes = next_planes;
        tier += 1;
    };
    let above = first + groups * planes;
    let children = number(tier + 1, "children", 1);
    let mut failures = Vec::new();
    for at in 0..bad.switches {
        let switch = at * groups * planes / bad.switches;
        let (group, plane) = (switch / planes, switch % planes);
        let each = next_planes / planes;
        for link in 0..bad.links_each {
            let upper = above + group / children * next_planes + plane * each + link;
            let ends = [first + switch, upper].map(|node| Value::String(format!("s{node}")));
            failures.push(Value::Table(Table::from_iter([
                ("link".to_owned(), Value::Array(ends.to_vec())),
                ("at_us".to_owned(), Value::Float(0.0)),
                ("health".to_owned(), bad.health.clone()),
            ])));
        }
    }
    Ok(Value::Array(failures))
}
