//! Reports of mistakes in `FI_ERD_*` that would stay silent otherwise: libfabric answers "no data available" and hides
//! its log unless `FI_LOG_LEVEL` asks for it, and nobody reads a name that is no setting.
//!
//! Each is one line on standard error, once per process; `FI_ERD_QUIET=1` silences them.

use crate::settings::{BadSetting, Found, PARAMETERS, Parameter, Settings};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::io::Write;

/// Prefix of every setting's name.
pub const PREFIX: &str = "FI_ERD_";
/// Least similarity of words, from 0 to 1, that counts as a typing error.
const LIKENESS: f64 = 0.7;
/// Most mistakes reported; a user with more has been warned.
const TOLD_MAX: usize = 32;

/// The word most similar to `text`, if any is similar enough.
fn closest<'a>(text: &str, words: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let tail = |text: &str| text.strip_prefix(PREFIX).unwrap_or(text).to_owned();
    let alike = |word: &&str| strsim::jaro(&tail(text), &tail(word));
    let rated = words.map(|word| (alike(&word), word)).filter(|(alike, _)| *alike >= LIKENESS);
    rated.max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, word)| word)
}

/// The valid word that a bad value resembles, if any.
#[must_use]
pub fn meant_value(bad: &BadSetting) -> Option<&str> {
    let words = bad.valid.split([',', ' ']).filter(|word| word.len() > 1 && *word != "or");
    closest(&bad.value.to_lowercase(), words)
}

/// Whether an environment variable looks like a setting but is none.
#[must_use]
pub fn is_unknown(variable: &str) -> bool {
    variable.starts_with(PREFIX) && PARAMETERS.iter().all(|known| known.variable() != variable)
}

/// The setting that an unknown one resembles, if any.
#[must_use]
pub fn meant_name(variable: &str) -> Option<String> {
    let known: Vec<String> = PARAMETERS.iter().map(Parameter::variable).collect();
    closest(&variable.to_uppercase(), known.iter().map(String::as_str)).map(str::to_owned)
}

/// Reports names in the environment that are no settings. Call it after reading the settings.
pub fn tell_unknown(settings: &Settings) {
    if settings.quiet {
        return;
    }
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    for name in names.filter(|name| is_unknown(name)) {
        tell(&unknown_line(&name));
    }
}

/// Reports a setting that keeps the provider from being offered. `read` reads settings, as for [`Settings::read`].
pub fn tell_bad(bad: &BadSetting, read: impl FnOnce(&'static Parameter) -> Found) {
    let quiet = PARAMETERS.iter().find(|parameter| parameter.name == "quiet");
    let said = quiet.and_then(|quiet| read(quiet).ok().flatten());
    if said.is_none_or(|said| matches!(said.as_str(), "0" | "no" | "off" | "false")) {
        tell(&bad_line(bad));
    }
}

fn unknown_line(name: &str) -> String {
    let meant = meant_name(name);
    let meant = meant.map_or_else(
        || "\"erd info --all\" lists the settings".to_owned(),
        |meant| format!("did you mean {meant}?"),
    );
    format!("erd: {name} is set, but there is no such setting; {meant}")
}

fn bad_line(bad: &BadSetting) -> String {
    let meant = meant_value(bad).map(|word| format!("; did you mean \"{word}\"?"));
    format!("erd: {bad}{} Nothing of erd is offered.", meant.as_deref().unwrap_or("."))
}

fn tell(line: &str) {
    static TOLD: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let mut told = TOLD.lock();
    if told.len() < TOLD_MAX && told.insert(line.to_owned()) {
        // A program may have closed it.
        let _ = writeln!(std::io::stderr(), "{line} (FI_ERD_QUIET=1 silences this)");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_of_the_pen_are_recognised() {
        assert!(is_unknown("FI_ERD_IFAC") && !is_unknown("FI_ERD_IFACE") && !is_unknown("HOME"));
        assert!(unknown_line("FI_ERD_IFAC").ends_with("did you mean FI_ERD_IFACE?"));
        assert!(unknown_line("FI_ERD_iface").ends_with("did you mean FI_ERD_IFACE?"));
        assert!(unknown_line("FI_ERD_QQQQ").contains("erd info --all"));
    }

    #[test]
    fn a_valid_word_is_suggested() {
        let line = |name: &'static str, value: &'static str| {
            let read = Settings::read(|asked| Ok((asked.name == name).then(|| value.to_owned())));
            bad_line(&read.expect_err("it is not valid"))
        };
        let scheme = line("cc", "nsc");
        assert!(scheme.starts_with("erd: FI_ERD_CC is \"nsc\"; valid: auto, erd,"), "{scheme}");
        assert!(scheme.contains("did you mean \"nscc\"?"), "{scheme}");
        assert!(!line("paths", "0").contains("did you mean"));
    }
}
