//! The information path of a scenario's engines.

use super::common::{Source, time};
use crate::info_path::{Carries, InfoPathSettings, RTO_MIN_PS};
use crate::read::ReadError;
use serde::Deserialize;
use toml::Spanned;

/// Timeouts that it may have, in microseconds.
const RTO_US: std::ops::RangeInclusive<f64> = 1.0..=60e6;

/// The information path.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InfoPathFile {
    /// What goes there.
    pub carries: Carries,
    /// Its shortest timeout, in microseconds: Linux's, if nothing is said.
    pub rto_min_us: Option<f64>,
}

impl InfoPathFile {
    pub(super) fn settings(
        entry: &Spanned<InfoPathFile>,
        source: &Source,
    ) -> Result<InfoPathSettings, ReadError> {
        let InfoPathFile { carries, rto_min_us } = *entry.get_ref();
        let given = |us: f64| RTO_US.contains(&us).then(|| time(us, 1e3)).flatten();
        match rto_min_us.map_or(Some(RTO_MIN_PS), given) {
            Some(rto_min_ps) => Ok(InfoPathSettings { carries, rto_min_ps }),
            None => Err(source.error(entry, "expected rto_min_us from 1 to 60000000")),
        }
    }
}
