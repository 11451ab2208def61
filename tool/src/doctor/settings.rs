//! Settings: values that are not valid, and names that are none.

use super::{Finding, Host};
use crate::info::setting_problems;
use erd::settings::PARAMETERS;
use std::env;

/// What every setting's name begins with.
const PREFIX: &str = "FI_ERD_";
/// Least likeness of names, from 0 to 1, to be taken for a slip of the pen.
const LIKENESS: f64 = 0.7;

/// Looks at `FI_ERD_*`.
pub fn check(_: &Host) -> Vec<Finding> {
    let mut found: Vec<Finding> = setting_problems().iter().map(bad).collect();
    let names = env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    found.extend(names.filter(|name| name.starts_with(PREFIX)).filter_map(|name| unknown(&name)));
    if found.is_empty() {
        let set = PARAMETERS.iter().filter(|it| env::var_os(it.variable()).is_some()).count();
        found.push(Finding::ok("settings", format!("{set} are set, all valid")));
    }
    found
}

fn bad(bad: &erd::settings::BadSetting) -> Finding {
    let words = bad.valid.split([',', ' ']).filter(|word| word.len() > 1 && *word != "or");
    let mend = match closest(&bad.value.to_lowercase(), words) {
        Some(word) => format!("export {}={word}", bad.variable),
        None => format!("unset {}", bad.variable),
    };
    let text = format!("{bad}; programs are offered nothing of erd");
    Finding::problem("settings", text).mend(mend)
}

/// A variable that looks like a setting and is none.
fn unknown(name: &str) -> Option<Finding> {
    let known: Vec<String> = PARAMETERS.iter().map(erd::settings::Parameter::variable).collect();
    if known.iter().any(|known| known == name) {
        return None;
    }
    let finding =
        Finding::warning("settings", format!("{name} is set, but there is no such setting"));
    Some(match closest(&name.to_uppercase(), known.iter().map(String::as_str)) {
        Some(meant) => finding.mend(format!("export {meant}=\"${name}\"; unset {name}")),
        None => finding.mend(format!("unset {name}; erd info --all lists the settings")),
    })
}

fn closest<'a>(text: &str, words: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let alike = |word: &&str| {
        let tail = |text: &str| text.strip_prefix(PREFIX).unwrap_or(text).to_owned();
        strsim::jaro(&tail(text), &tail(word))
    };
    let rated = words.map(|word| (alike(&word), word)).filter(|(alike, _)| *alike >= LIKENESS);
    rated.max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, word)| word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_of_the_pen_are_recognised() {
        let finding = unknown("FI_ERD_PATH").expect("no such setting");
        assert_eq!(finding.mend, ["export FI_ERD_PATHS=\"$FI_ERD_PATH\"; unset FI_ERD_PATH"]);
        assert_eq!(unknown("FI_ERD_PATHS"), None);
        assert!(unknown("FI_ERD_QQQQ").expect("none").mend[0].starts_with("unset FI_ERD_QQQQ;"));
    }

    #[test]
    fn a_valid_word_is_suggested() {
        let value = |variable: &str, value: &str, valid: &str| {
            let [variable, value, valid] = [variable, value, valid].map(str::to_owned);
            bad(&erd::settings::BadSetting { variable, value, valid }).mend
        };
        assert_eq!(value("FI_ERD_CC", "nscx", "auto, erd, nscc"), ["export FI_ERD_CC=nscc"]);
        assert_eq!(value("FI_ERD_PATHS", "0", "auto, or 1 to 256"), ["unset FI_ERD_PATHS"]);
    }
}
