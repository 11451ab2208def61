//! Links of a scenario: what is said of all of them, and what is said of some.

use super::common::delay;
use crate::link::{LinkConfig, Red};
use crate::wire::Wire;
use serde::Deserialize;

/// Bytes a second of one Gb/s.
pub(super) const BYTES_PER_S_OF_GBPS: f64 = 125e6;
/// Slowest link.
pub(super) const GBPS_MIN: f64 = 0.001;
/// Largest queue in units of the BDP.
const BDPS_MAX: f64 = 1e6;

/// Some of what a link is like. Values of a tier or of one link go before those of all links.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkFile {
    /// Rate.
    pub rate_gbps: Option<f64>,
    /// Time on the wire.
    pub delay_ns: Option<f64>,
    /// Most that waits: a BDP, if nothing is said.
    pub queue: Option<Size>,
    /// Marking.
    pub red: Option<RedFile>,
    /// Marks at all: no link does without `red`.
    pub marks: Option<bool>,
    /// A full queue cuts payloads off: none does, if nothing is said.
    pub trimming: Option<bool>,
    /// Packets without payload go first: they do not, if nothing is said.
    pub control_first: Option<bool>,
}

/// Where marking begins and where it reaches certainty.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RedFile {
    /// Depth up to which nothing is marked.
    pub min: Size,
    /// Depth from which everything is marked.
    pub max: Size,
    /// Share of packets that is marked just below that depth.
    #[serde(default = "all")]
    pub most: f64,
}

fn all() -> f64 {
    1.0
}

/// A number of bytes.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Size {
    /// So many.
    Bytes(u64),
    /// So many times the bandwidth-delay product.
    Bdp(f64),
}

impl Wire {
    /// What is said of links by nothing but the form of packets: uet-htsim's main_uec.cpp gives all of them a queue of a
    /// BDP, marks between 20 and 80 % of it, all in whole packets, and lets full ones trim. There a queue holds the packet
    /// being sent, too, and marks it when it has been sent, by what has come until then: at full load one packet more.
    pub(super) fn links(self, bdp_bytes: f64) -> LinkFile {
        if self == Wire::Ethernet {
            return LinkFile::default();
        }
        let full_bytes = f64::from(self.full_bytes());
        let packets = (bdp_bytes / full_bytes).ceil();
        let part = |share: f64| {
            Size::Bytes((((packets * share).ceil() - 1.0) * full_bytes).max(0.0) as u64)
        };
        LinkFile {
            queue: Some(part(1.0)),
            red: Some(RedFile { min: part(0.2), max: part(0.8), most: all() }),
            trimming: Some(true),
            control_first: Some(true),
            ..LinkFile::default()
        }
    }
}

impl Size {
    pub(super) fn bytes(self, bdp_bytes: f64) -> Option<u64> {
        match self {
            Size::Bytes(bytes) => Some(bytes),
            Size::Bdp(times) => {
                (0.0..=BDPS_MAX).contains(&times).then_some((times * bdp_bytes) as u64)
            }
        }
    }
}

impl LinkFile {
    /// This, and where it says nothing what `other` says.
    pub(super) fn or(&self, other: &LinkFile) -> LinkFile {
        LinkFile {
            rate_gbps: self.rate_gbps.or(other.rate_gbps),
            delay_ns: self.delay_ns.or(other.delay_ns),
            queue: self.queue.or(other.queue),
            red: self.red.or(other.red),
            marks: self.marks.or(other.marks),
            trimming: self.trimming.or(other.trimming),
            control_first: self.control_first.or(other.control_first),
        }
    }

    /// What the link is like, or what is wrong. Its queue is empty while the BDP isn't known.
    pub(super) fn config(&self, bdp_bytes: Option<f64>) -> Result<LinkConfig, String> {
        let max = super::super::GBPS_MAX as f64;
        let Some(rate) = self.rate_gbps.filter(|rate| (GBPS_MIN..=max).contains(rate)) else {
            return Err(format!("expected rate_gbps from {GBPS_MIN} to {max}, here or in [links]"));
        };
        let Some(propagation_ps) = self.delay_ns.and_then(delay) else {
            return Err("expected delay_ns from 0 to 1000000000, here or in [links]".to_owned());
        };
        self.queues(bdp_bytes).map(|queues| LinkConfig {
            bytes_per_s: Some((rate * BYTES_PER_S_OF_GBPS) as u64),
            propagation_ps,
            ..queues
        })
    }

    /// A link with these queues that takes no time.
    pub(super) fn queues(&self, bdp_bytes: Option<f64>) -> Result<LinkConfig, String> {
        let Some(bdp_bytes) = bdp_bytes else { return Ok(LinkConfig::delay(0)) };
        let bytes = |size: Size| {
            let what = || format!("expected bdp from 0 to {BDPS_MAX}");
            size.bytes(bdp_bytes).ok_or_else(what)
        };
        let mut red = None;
        if let Some(given) = self.red {
            let (min_bytes, max_bytes) = (bytes(given.min)?, bytes(given.max)?);
            if min_bytes > max_bytes {
                let what = format!(
                    "expected red with min up to max, found {min_bytes} and {max_bytes} bytes"
                );
                return Err(what);
            }
            if !(0.0..=1.0).contains(&given.most) {
                return Err(format!("expected red with most from 0 to 1, found {}", given.most));
            }
            red = Some(Red { min_bytes, max_bytes, most_ppm: (given.most * 1e6) as u32 });
        }
        Ok(LinkConfig {
            buffer_bytes: bytes(self.queue.unwrap_or(Size::Bdp(1.0)))?,
            red: red.filter(|_| self.marks.unwrap_or(true)),
            trimming: self.trimming.unwrap_or(false),
            control_first: self.control_first.unwrap_or(false),
            ..LinkConfig::delay(0)
        })
    }
}
