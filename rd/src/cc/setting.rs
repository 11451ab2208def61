//! A parameter of a controller, with its name and range.

/// One parameter of a scheme.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Setting {
    /// Its name, in lower case.
    pub name: &'static str,
    /// Value unless set.
    pub default: f32,
    /// Least valid value.
    pub min: f32,
    /// Greatest valid value.
    pub max: f32,
    /// What it is, with its unit and source.
    pub help: &'static str,
}

/// Why a parameter was not set.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum SettingError {
    /// The scheme has no such parameter.
    #[error("the scheme has no such parameter")]
    Unknown,
    /// Out of range.
    #[error("{0} must lie between {1} and {2}")]
    Range(&'static str, f32, f32),
}

/// The default values of some settings.
#[must_use]
pub const fn defaults<const N: usize>(settings: &[Setting; N]) -> [f32; N] {
    let mut values = [0.0; N];
    let mut at = 0;
    while at < N {
        values[at] = settings[at].default;
        at += 1;
    }
    values
}
