//! Parameters of the controllers, by name.

use super::Scheme;

pub use super::setting::{Setting, SettingError, defaults};

/// Sets one parameter of a scheme; flows that exist already keep theirs.
///
/// # Errors
/// The name is unknown, or the value out of its range.
pub fn set(scheme: &mut dyn Scheme, name: &str, value: f32) -> Result<(), SettingError> {
    let settings = scheme.settings();
    let at = settings.iter().position(|s| s.name == name).ok_or(SettingError::Unknown)?;
    let setting = &settings[at];
    if !(setting.min..=setting.max).contains(&value) {
        return Err(SettingError::Range(setting.name, setting.min, setting.max));
    }
    scheme.values()[at] = value;
    Ok(())
}
