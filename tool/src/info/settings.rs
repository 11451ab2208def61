//! The settings `FI_ERD_*` in this environment.

use erd::parameters::read as lookup;
use erd_core::settings::{BadSetting, PARAMETERS, Settings};
use serde::Serialize;

/// One setting.
#[derive(Debug, Serialize)]
pub struct Row {
    pub variable: String,
    /// Empty for an empty one.
    pub value: String,
    pub changed: bool,
    /// The valid values, if the value is not valid.
    pub problem: Option<String>,
    pub help: &'static str,
}

/// The settings as the provider reads them.
///
/// # Errors
/// The first setting that is not valid.
pub fn read() -> Result<Settings, BadSetting> {
    Settings::read(lookup)
}

/// All of them.
#[must_use]
pub fn rows() -> Vec<Row> {
    let row = |parameter: &'static erd_core::settings::Parameter| {
        let variable = parameter.variable();
        let found = std::env::var_os(&variable).map(|text| text.to_string_lossy().into_owned());
        let bad = problems().into_iter().find(|bad| bad.variable == variable);
        Row {
            changed: found.is_some(),
            value: found.unwrap_or_else(|| parameter.default.to_owned()),
            problem: bad.map(|bad| format!("valid: {}", bad.valid)),
            help: parameter.help,
            variable,
        }
    };
    PARAMETERS.iter().map(row).collect()
}

/// Every setting that is not valid, not only the first.
#[must_use]
pub fn problems() -> Vec<BadSetting> {
    let mut found: Vec<BadSetting> = Vec::new();
    for parameter in PARAMETERS {
        // One at a time; the options of a scheme are checked with its name.
        let read = Settings::read(|asked| match asked.name {
            name if name == parameter.name => lookup(asked),
            "cc" if parameter.name == "cc_options" => lookup(asked),
            _ => Ok(None),
        });
        if let Err(bad) = read
            && !found.contains(&bad)
        {
            found.push(bad);
        }
    }
    found
}
