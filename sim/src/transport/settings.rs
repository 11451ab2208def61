//! Settings of a transport by name.

use std::fmt;

/// What a setting counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Unit {
    /// Things.
    Count,
    /// Microseconds.
    Micros,
    /// A part of a whole.
    Share,
    /// Bandwidth-delay products.
    Bdps,
}

/// A setting of `S`.
pub(super) struct TransportSetting<S> {
    pub(super) name: &'static str,
    pub(super) unit: Unit,
    /// Least and greatest value.
    pub(super) range: (f64, f64),
    pub(super) set: fn(&mut S, f64),
}

/// Why a setting was refused.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[error("{name} = {value} of {transport}: expected one of {valid}")]
pub struct SettingError {
    name: String,
    value: f64,
    transport: &'static str,
    valid: String,
}

/// Changes one of a transport's settings.
pub(super) fn set<S>(
    transport: &'static str,
    list: &[TransportSetting<S>],
    settings: &mut S,
    (name, value): (&str, f64),
) -> Result<(), SettingError> {
    let found = list.iter().find(|setting| setting.name == name);
    match found.filter(|setting| (setting.range.0..=setting.range.1).contains(&value)) {
        Some(setting) => {
            (setting.set)(settings, value);
            Ok(())
        }
        None => {
            let valid = list.iter().map(TransportSetting::to_string).collect::<Vec<_>>().join(", ");
            Err(SettingError { name: name.to_owned(), value, transport, valid })
        }
    }
}

impl<S> TransportSetting<S> {
    pub(super) const fn new(
        name: &'static str,
        unit: Unit,
        range: (f64, f64),
        set: fn(&mut S, f64),
    ) -> TransportSetting<S> {
        TransportSetting { name, unit, range, set }
    }
}

impl<S> fmt::Display for TransportSetting<S> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = match self.unit {
            Unit::Count => "",
            Unit::Micros => " us",
            Unit::Share => " as a share",
            Unit::Bdps => " BDP",
        };
        let (least, most) = self.range;
        write!(out, "{} ({least} to {most}{unit})", self.name)
    }
}
