//! htsim's topologies (`.topo`): fat trees of two and three tiers.
//!
//! A header gives `Nodes`, `Tiers` and `Podsize` (hosts of a pod). A section for each tier follows: `Tier 0` are the
//! switches with hosts. Keys may be written in any case. Every tier needs `Downlink_speed_Gbps`, `Downlink_Latency_ns` and
//! `Radix_Down`, and all but the top one `Radix_Up`. `Bundle` is the number of parallel links to each switch below (1),
//! `Oversubscribed` how many times more a switch can receive from below than send up (1), `Switch_Latency_ns` what each
//! packet waits in a switch before its queue (0), `Queue_Up` and `Queue_Down` the bytes of its queues.
//!
//! htsim itself takes its queues from its command line alone. Here a file's queues go before those of the caller.

use super::{GBPS_MAX, HOSTS_MAX, Line, ReadError, lines, shown};
use crate::fabric::clos::{Clos, Tier};
use crate::link::{LinkConfig, Red};
use crate::time::from_ns;

/// Bytes a second of one Gb/s.
const BYTES_PER_S_OF_GBPS: u64 = 125_000_000;
/// Most tiers.
const TIERS_MAX: usize = 3;
/// Longest latency: a second.
const LATENCY_NS_MAX: u64 = 1_000_000_000;
/// Most ports of a switch in one direction.
const RADIX_MAX: u64 = 1 << 20;

/// What switches do with packets; a `.topo` file leaves it to the caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueSettings {
    /// Most bytes that wait at a link, where the file doesn't say.
    pub buffer_bytes: u64,
    /// Marking, if any.
    pub red: Option<Red>,
    /// Links to hosts mark too.
    pub red_to_hosts: bool,
    /// A full queue cuts payloads off.
    pub trimming: bool,
    /// Packets without payload go first.
    pub control_first: bool,
}

/// A tier as the file has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TopoTier {
    /// Rate of the links to what is below.
    pub down_gbps: u64,
    /// Links down of a switch.
    pub radix_down: u64,
    /// Links up of a switch; 0 at the top.
    pub radix_up: u64,
    /// Parallel links to each switch below.
    pub bundle: u64,
    /// Queue of a link down.
    pub queue_down_bytes: Option<u64>,
    /// Queue of a link up.
    pub queue_up_bytes: Option<u64>,
    /// Time on a link to what is below.
    pub link_ns: u64,
    /// Time in a switch.
    pub switch_ns: u64,
}

/// A topology, which fits together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Topo {
    /// Hosts.
    pub nodes: u32,
    /// From the hosts upwards.
    pub tiers: Vec<TopoTier>,
}

/// A key of a tier's section: its name, its least and its largest value.
struct Key(&'static str, u64, u64);

const SPEED: usize = 0;
const RADIX_UP: usize = 1;
const RADIX_DOWN: usize = 2;
const QUEUE_UP: usize = 3;
const QUEUE_DOWN: usize = 4;
const OVERSUBSCRIBED: usize = 5;
const BUNDLE: usize = 6;
const SWITCH_LATENCY: usize = 7;
const LINK_LATENCY: usize = 8;

const KEYS: [Key; 9] = [
    Key("Downlink_speed_Gbps", 1, GBPS_MAX),
    Key("Radix_Up", 1, RADIX_MAX),
    Key("Radix_Down", 1, RADIX_MAX),
    Key("Queue_Up", 1, u32::MAX as u64),
    Key("Queue_Down", 1, u32::MAX as u64),
    Key("Oversubscribed", 1, RADIX_MAX),
    Key("Bundle", 1, RADIX_MAX),
    Key("Switch_Latency_ns", 0, LATENCY_NS_MAX),
    Key("Downlink_Latency_ns", 1, LATENCY_NS_MAX),
];

/// A value and its line.
type Given = Option<(u64, usize)>;

/// A tier's section while it is read.
#[derive(Clone, Copy, Default)]
struct Section {
    /// Where it begins; 0 while it has not.
    line: usize,
    values: [Given; KEYS.len()],
}

impl Section {
    fn get(&self, key: usize) -> Option<u64> {
        self.values[key].map(|value| value.0)
    }

    /// Line of a key; that of the section if it is not there.
    fn line_of(&self, key: usize) -> usize {
        self.values[key].map_or(self.line, |value| value.1)
    }
}

/// A file while it is read.
struct Draft<'a> {
    file: &'a str,
    nodes: Given,
    tiers: Given,
    pod: Given,
    sections: [Section; TIERS_MAX],
    /// The section at hand.
    current: Option<usize>,
}

impl Topo {
    /// Reads a file's text.
    ///
    /// # Errors
    /// Names the line and what it should say.
    pub fn read(file: &str, text: &str) -> Result<Topo, ReadError> {
        let sections = [Section::default(); TIERS_MAX];
        let mut draft =
            Draft { file, nodes: None, tiers: None, pod: None, sections, current: None };
        for line in lines(file, text) {
            draft.take(line)?;
        }
        draft.finish()
    }

    /// The tree. The time in a switch is part of the links that lead to it, so a lone packet takes as long as in htsim.
    #[must_use]
    pub fn clos(&self, queues: &QueueSettings, seed: u64) -> Clos {
        let tiers = self.tiers.iter().enumerate();
        let tiers = tiers.map(|(at, tier)| self.tier(at, tier, queues)).collect();
        Clos { tiers, hashed: true, seed }
    }

    fn tier(&self, at: usize, tier: &TopoTier, queues: &QueueSettings) -> Tier {
        let below = at.checked_sub(1).map(|at| &self.tiers[at]);
        let link = |buffer: Option<u64>, propagation_ns: u64| LinkConfig {
            bytes_per_s: Some(tier.down_gbps * BYTES_PER_S_OF_GBPS),
            buffer_bytes: buffer.unwrap_or(queues.buffer_bytes),
            red: queues.red,
            trimming: queues.trimming,
            control_first: queues.control_first,
            ..LinkConfig::delay(from_ns(propagation_ns))
        };
        let mut down =
            link(tier.queue_down_bytes, tier.link_ns + below.map_or(0, |below| below.switch_ns));
        let mut up =
            link(below.and_then(|below| below.queue_up_bytes), tier.link_ns + tier.switch_ns);
        if at == 0 {
            down.red = queues.red.filter(|_| queues.red_to_hosts);
            // A host's own queue neither marks nor loses anything.
            (up.red, up.trimming, up.buffer_bytes) = (None, false, u64::MAX);
        }
        Tier {
            children: (tier.radix_down / tier.bundle) as u32,
            links_per_child: tier.bundle as u32,
            links_up: tier.radix_up as u32,
            down,
            up,
        }
    }
}

impl Draft<'_> {
    fn take(&mut self, mut line: Line<'_>) -> Result<(), ReadError> {
        let word = line.word().unwrap_or_default();
        match word.to_ascii_lowercase().as_str() {
            "tier" => self.begin_section(&mut line)?,
            lower => match self.current {
                None => self.take_header(lower, word, &mut line)?,
                Some(tier) => self.take_key(tier, lower, word, &mut line)?,
            },
        }
        line.end()
    }

    fn take_header(
        &mut self,
        lower: &str,
        word: &str,
        line: &mut Line<'_>,
    ) -> Result<(), ReadError> {
        let (entry, max) = match lower {
            "nodes" => (&mut self.nodes, HOSTS_MAX.into()),
            "tiers" => (&mut self.tiers, TIERS_MAX as u64),
            "podsize" => (&mut self.pod, HOSTS_MAX.into()),
            _ => {
                let found = shown(word);
                return Err(line.error(format_args!(
                    "expected Nodes, Tiers, Podsize or Tier in the header, found {found}"
                )));
            }
        };
        let min = if lower == "tiers" { 2 } else { 1 };
        let value = line.number(word, min, max)?;
        if let Some((_, first)) = entry.replace((value, line.number)) {
            return Err(line.error(format_args!("{word} is there twice, first in line {first}")));
        }
        Ok(())
    }

    fn begin_section(&mut self, line: &mut Line<'_>) -> Result<(), ReadError> {
        for (name, value) in [("Nodes", self.nodes), ("Tiers", self.tiers), ("Podsize", self.pod)] {
            if value.is_none() {
                let what = format_args!("expected {name} in the header, before the first Tier");
                return Err(line.error(what));
            }
        }
        let tiers = self.tiers.map_or(0, |tiers| tiers.0);
        let tier = line.number("a tier's number", 0, tiers - 1)? as usize;
        let section = &mut self.sections[tier];
        if section.line > 0 {
            let first = section.line;
            return Err(
                line.error(format_args!("Tier {tier} is there twice, first in line {first}"))
            );
        }
        section.line = line.number;
        self.current = Some(tier);
        Ok(())
    }

    fn take_key(
        &mut self,
        tier: usize,
        lower: &str,
        word: &str,
        line: &mut Line<'_>,
    ) -> Result<(), ReadError> {
        let Some(key) = KEYS.iter().position(|key| key.0.eq_ignore_ascii_case(lower)) else {
            let names = KEYS.map(|key| key.0).join(", ");
            return Err(line.error(format_args!("expected one of {names}, found {}", shown(word))));
        };
        let is_top = self.tiers.is_some_and(|tiers| tiers.0 == tier as u64 + 1);
        let Key(name, min, max) = KEYS[key];
        if is_top && matches!(key, RADIX_UP | QUEUE_UP) {
            return Err(line.error(format_args!("{name} in the top tier, which has no links up")));
        }
        let value = line.number(name, min, max)?;
        if let Some((_, first)) = self.sections[tier].values[key].replace((value, line.number)) {
            return Err(line.error(format_args!("{name} is there twice, first in line {first}")));
        }
        Ok(())
    }

    fn finish(self) -> Result<Topo, ReadError> {
        let missing = |name: &str| ReadError::whole(self.file, format_args!("{name} is missing"));
        let (nodes, nodes_line) = self.nodes.ok_or_else(|| missing("Nodes"))?;
        let tiers = self.tiers.ok_or_else(|| missing("Tiers"))?.0 as usize;
        let (pod, pod_line) = self.pod.ok_or_else(|| missing("Podsize"))?;
        let line = |line, what: String| Err(ReadError::line(self.file, line, what));
        if !nodes.is_multiple_of(pod) {
            return line(
                nodes_line,
                format!("{nodes} Nodes are no multiple of the Podsize of {pod}"),
            );
        }
        if tiers == 2 && nodes != pod {
            return line(
                pod_line,
                format!("a tree of 2 tiers is one pod: expected Podsize {nodes}, found {pod}"),
            );
        }
        for (at, section) in self.sections[..tiers].iter().enumerate() {
            if section.line == 0 {
                return Err(missing(&format!("Tier {at}")));
            }
        }
        let topo = Topo {
            nodes: nodes as u32,
            tiers: (0..tiers).map(|at| self.tier(at, tiers)).collect::<Result<_, _>>()?,
        };
        self.check_children(&topo, pod)?;
        self.check_rates(&topo)?;
        Ok(topo)
    }

    /// A tier, with what it needs.
    fn tier(&self, at: usize, tiers: usize) -> Result<TopoTier, ReadError> {
        let section = &self.sections[at];
        let needed = |key: usize| {
            section.get(key).ok_or_else(|| {
                let what = format!("Tier {at} has no {}", KEYS[key].0);
                ReadError::line(self.file, section.line, what)
            })
        };
        Ok(TopoTier {
            down_gbps: needed(SPEED)?,
            radix_down: needed(RADIX_DOWN)?,
            radix_up: if at + 1 < tiers { needed(RADIX_UP)? } else { 0 },
            bundle: section.get(BUNDLE).unwrap_or(1),
            queue_down_bytes: section.get(QUEUE_DOWN),
            queue_up_bytes: section.get(QUEUE_UP),
            link_ns: needed(LINK_LATENCY)?,
            switch_ns: section.get(SWITCH_LATENCY).unwrap_or(0),
        })
    }

    /// Each switch has as many links down as there is below it, and its links up fill bundles.
    fn check_children(&self, topo: &Topo, pod: u64) -> Result<(), ReadError> {
        let nodes = u64::from(topo.nodes);
        let error = |at: usize, key: usize, what: String| {
            Err(ReadError::line(self.file, self.sections[at].line_of(key), what))
        };
        let first = topo.tiers[0];
        if first.bundle != 1 {
            return error(0, BUNDLE, "hosts have one link: expected Bundle 1 in Tier 0".to_owned());
        }
        if !pod.is_multiple_of(first.radix_down) {
            let what = format!("Podsize {pod} is no multiple of Radix_Down {}", first.radix_down);
            return error(0, RADIX_DOWN, what);
        }
        let below = [pod / first.radix_down, nodes / pod];
        for (at, tier) in topo.tiers.iter().enumerate().skip(1) {
            let (children, what) = (below[at - 1], ["Tier 0 switches in each pod", "pods"][at - 1]);
            let (down, bundle) = (tier.radix_down, tier.bundle);
            if down != children * bundle {
                let what = format!(
                    "expected Radix_Down {}, the links to {children} {what} with Bundle {bundle}, found {down}",
                    children * bundle
                );
                return error(at, RADIX_DOWN, what);
            }
            let up = topo.tiers[at - 1].radix_up;
            if !up.is_multiple_of(bundle) {
                let what = format!(
                    "Radix_Up {up} of Tier {} is no multiple of Bundle {bundle} of Tier {at}",
                    at - 1
                );
                return error(at - 1, RADIX_UP, what);
            }
        }
        Ok(())
    }

    /// A switch can receive as many times more from below than it can send up as the file says.
    fn check_rates(&self, topo: &Topo) -> Result<(), ReadError> {
        for (at, pair) in topo.tiers.windows(2).enumerate() {
            let times = self.sections[at].get(OVERSUBSCRIBED).unwrap_or(1);
            let down = pair[0].radix_down * pair[0].down_gbps;
            let up = pair[0].radix_up * pair[1].down_gbps;
            if down != times * up {
                let what = format!(
                    "a switch of Tier {at} has {down} Gb/s down and {up} Gb/s up, which is not Oversubscribed {times}"
                );
                let line = self.sections[at].line_of(OVERSUBSCRIBED);
                return Err(ReadError::line(self.file, line, what));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
