//! Checks of settings: values that are not valid, and unknown names.

use super::{Finding, Host};
use crate::info::setting_problems;
use erd_core::mistakes::{is_unknown, meant_name, meant_value};
use erd_core::settings::PARAMETERS;
use std::env;

/// Checks `FI_ERD_*`.
pub fn check(_: &Host) -> Vec<Finding> {
    let mut found: Vec<Finding> = setting_problems().iter().map(bad).collect();
    let names = env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    found.extend(names.filter(|name| is_unknown(name)).map(|name| unknown(&name)));
    if found.is_empty() {
        let set = PARAMETERS.iter().filter(|it| env::var_os(it.variable()).is_some()).count();
        found.push(Finding::ok("settings", format!("{set} are set, all valid")));
    }
    found
}

fn bad(bad: &erd_core::settings::BadSetting) -> Finding {
    let fix = match meant_value(bad) {
        Some(word) => format!("export {}={word}", bad.variable),
        None => format!("unset {}", bad.variable),
    };
    let text = format!("{bad}; programs are offered nothing of erd");
    Finding::problem("settings", text).fix(fix)
}

/// A variable that looks like a setting but is none.
fn unknown(name: &str) -> Finding {
    let finding =
        Finding::warning("settings", format!("{name} is set, but there is no such setting"));
    match meant_name(name) {
        Some(meant) => finding.fix(format!("export {meant}=\"${name}\"; unset {name}")),
        None => finding.fix(format!("unset {name}; erd info --all lists the settings")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_of_the_pen_are_recognised() {
        let finding = unknown("FI_ERD_PATH");
        assert_eq!(finding.fix, ["export FI_ERD_PATHS=\"$FI_ERD_PATH\"; unset FI_ERD_PATH"]);
        assert!(unknown("FI_ERD_QQQQ").fix[0].starts_with("unset FI_ERD_QQQQ;"));
    }

    #[test]
    fn a_valid_word_is_suggested() {
        let value = |variable: &str, value: &str, valid: &str| {
            let [variable, value, valid] = [variable, value, valid].map(str::to_owned);
            bad(&erd_core::settings::BadSetting { variable, value, valid }).fix
        };
        assert_eq!(value("FI_ERD_CC", "nscx", "auto, erd, nscc"), ["export FI_ERD_CC=nscc"]);
        assert_eq!(value("FI_ERD_PATHS", "0", "auto, or 1 to 256"), ["unset FI_ERD_PATHS"]);
    }
}
