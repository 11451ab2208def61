//! What lies between the hosts' links and their engines, in a scenario.

use super::common::{Source, delay};
use super::links::{BYTES_PER_S_OF_GBPS, GBPS_MIN};
use crate::fabric::receiver::{Delay, Receivers};
use crate::read::{GBPS_MAX, ReadError};
use crate::topology::SEGMENT_WIRE_BYTES;
use serde::Deserialize;
use toml::Spanned;

/// Least shape of a heavy tail: below it, almost all draws are cut.
const SHAPE_MIN: f64 = 0.1;
/// Greatest: above it, all draws are about the least one.
const SHAPE_MAX: f64 = 100.0;

/// The hosts.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostsFile {
    /// Most packets that wait for the engine; no limit without it.
    pub ring_packets: Option<u32>,
    /// Most bytes on the wire of packets that wait for the engine; no limit without it.
    pub ring_bytes: Option<u64>,
    /// Time from the arrival at an empty ring until the host looks: none, if nothing is said.
    pub delay: Option<DelayFile>,
    /// Time for each packet.
    #[serde(default)]
    pub packet_ns: f64,
    /// Rate at which bytes are taken besides.
    pub rate_gbps: Option<f64>,
    /// Time that a data packet takes besides if a later one of its sender has overtaken it.
    #[serde(default)]
    pub reorder_ns: f64,
}

/// A distribution of times, in nanoseconds.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum DelayFile {
    /// Always this.
    ConstantNs(f64),
    /// Between these two.
    UniformNs([f64; 2]),
    /// With this mean.
    ExponentialNs(f64),
    /// With a heavy tail.
    ParetoNs(ParetoFile),
}

/// A heavy tail.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ParetoFile {
    /// Least time.
    pub min: f64,
    /// A time above t has the chance (min / t)^shape.
    pub shape: f64,
    /// Greatest time.
    pub max: f64,
}

impl HostsFile {
    pub(super) fn receivers(
        entry: &Spanned<HostsFile>,
        source: &Source,
    ) -> Result<Receivers, ReadError> {
        entry.get_ref().checked().map_err(|what| source.error(entry, what))
    }

    fn checked(&self) -> Result<Receivers, String> {
        let HostsFile { ring_packets, ring_bytes, packet_ns, rate_gbps, reorder_ns, .. } = *self;
        if ring_packets == Some(0) {
            return Err("expected ring_packets of at least 1".to_owned());
        }
        let least = u64::from(SEGMENT_WIRE_BYTES);
        if ring_bytes.is_some_and(|bytes| bytes < least) {
            return Err(format!("expected ring_bytes of at least {least}, a full packet"));
        }
        let most = GBPS_MAX as f64;
        if rate_gbps.is_some_and(|rate| !(GBPS_MIN..=most).contains(&rate)) {
            return Err(format!("expected rate_gbps from {GBPS_MIN} to {most}"));
        }
        Ok(Receivers {
            ring_packets,
            ring_bytes,
            delay: self.delay.map_or(Ok(Receivers::default().delay), DelayFile::delay)?,
            packet_ps: delay(packet_ns).ok_or("expected packet_ns from 0 to 1000000000")?,
            bytes_per_s: rate_gbps.map(|rate| (rate * BYTES_PER_S_OF_GBPS) as u64),
            reorder_ps: delay(reorder_ns).ok_or("expected reorder_ns from 0 to 1000000000")?,
        })
    }
}

impl DelayFile {
    fn delay(self) -> Result<Delay, String> {
        let ps = |ns: f64| delay(ns).ok_or("expected delay from 0 to 1000000000 ns".to_owned());
        match self {
            DelayFile::ConstantNs(ns) => Ok(Delay::Constant { ps: ps(ns)? }),
            DelayFile::ExponentialNs(ns) => Ok(Delay::Exponential { mean_ps: ps(ns)? }),
            DelayFile::UniformNs([min, max]) => {
                let (min_ps, max_ps) = (ps(min)?, ps(max)?);
                if min_ps > max_ps {
                    return Err(format!(
                        "expected uniform_ns from less to more, found [{min}, {max}]"
                    ));
                }
                Ok(Delay::Uniform { min_ps, max_ps })
            }
            DelayFile::ParetoNs(ParetoFile { min, shape, max }) => {
                let (min_ps, max_ps) = (ps(min)?, ps(max)?);
                if min_ps == 0 || min_ps > max_ps || !(SHAPE_MIN..=SHAPE_MAX).contains(&shape) {
                    return Err(format!(
                        "expected pareto_ns with min above 0 and up to max, and shape from {SHAPE_MIN} to {SHAPE_MAX}"
                    ));
                }
                Ok(Delay::Pareto { min_ps, shape, max_ps })
            }
        }
    }
}
