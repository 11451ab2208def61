//! How a scenario's switches pause.

use super::common::{Source, time};
use super::links::Size;
use crate::fabric::blueprint::Blueprint;
use crate::fabric::pfc::{Pfc, SwitchMemory, Threshold};
use crate::read::ReadError;
use serde::Deserialize;
use toml::Spanned;

/// Share of the free memory that one link may fill (DCQCN, section 4: beta of 8 over 8 classes).
const ALPHA_DEFAULT: f64 = 1.0;
/// Memory, as time that the switch's links take to carry it (STrack, section 4: 256 MB for 51.2 Tb/s).
const MEMORY_US_DEFAULT: f64 = 40.0;
/// Largest alpha: a power of two beyond what switches offer.
const ALPHA_MAX: f64 = 64.0;

/// Switches pause the senders at the other ends of their links.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PfcFile {
    /// Memory of a switch, which its links share: 40 us, if nothing is said.
    pub memory: Option<MemoryFile>,
    /// What came by one link may fill so many times the memory that is free: 1, if nothing is said.
    pub alpha: Option<f64>,
    /// In place of `alpha`: a sender pauses when more than this waits of what it sent.
    pub xoff: Option<Size>,
    /// With `xoff`: it goes on when no more than this waits.
    pub xon: Option<Size>,
}

/// Memory of a switch.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum MemoryFile {
    /// So many bytes.
    Bytes(u64),
    /// What all links of the switch carry in so many microseconds.
    Us(f64),
}

impl PfcFile {
    /// The network with switches that pause.
    pub(super) fn apply(
        file: &Spanned<PfcFile>,
        source: &Source,
        plan: Blueprint,
        bdp_bytes: f64,
    ) -> Result<Blueprint, ReadError> {
        let pfc = file.get_ref().pfc(bdp_bytes).map_err(|what| source.error(file, what))?;
        plan.with_pfc(pfc).map_err(|error| source.error(file, error))
    }

    fn pfc(&self, bdp_bytes: f64) -> Result<Pfc, String> {
        let memory = match self.memory.unwrap_or(MemoryFile::Us(MEMORY_US_DEFAULT)) {
            MemoryFile::Bytes(bytes) => SwitchMemory::Bytes(bytes),
            MemoryFile::Us(us) => SwitchMemory::Time(
                time(us, 1e3).ok_or("expected memory with us from 0 to 1000000000000")?,
            ),
        };
        let bytes = |size: Size| size.bytes(bdp_bytes).ok_or("expected bdp from 0 to 1000000");
        let threshold = match (self.alpha, self.xoff, self.xon) {
            (alpha, None, None) => {
                let alpha = alpha.unwrap_or(ALPHA_DEFAULT);
                if !(alpha > 0.0 && alpha <= ALPHA_MAX) {
                    return Err(format!(
                        "expected alpha above 0 and up to {ALPHA_MAX}, found {alpha}"
                    ));
                }
                Threshold::Dynamic { alpha }
            }
            (None, Some(xoff), Some(xon)) => {
                let (xoff_bytes, xon_bytes) = (bytes(xoff)?, bytes(xon)?);
                if xon_bytes > xoff_bytes {
                    return Err(format!(
                        "expected xon up to xoff, found {xon_bytes} and {xoff_bytes} bytes"
                    ));
                }
                Threshold::Fixed { xoff_bytes, xon_bytes }
            }
            _ => return Err("expected alpha, or xoff and xon, or none of them".to_owned()),
        };
        Ok(Pfc { memory, threshold })
    }
}
