//! Holds the man page, and the settings that the README shows, against the provider's table of
//! parameters.

use erd_core::settings::{PARAMETERS, Parameter};

const PAGE: &str = include_str!("../docs/man/fi_erd.7");
const README: &str = include_str!("../README.md");

/// Words with single spaces between them: the page breaks its lines where it likes.
fn flowed(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn entry(parameter: &Parameter) -> String {
    let Parameter { default, kind, help, .. } = parameter;
    let default = if default.is_empty() { "empty" } else { default };
    format!(".TP .B {} {help}. Valid: {kind}; default: {default}.", parameter.variable())
}

#[test]
fn the_man_page_has_the_parameters() {
    let entries: Vec<String> = PARAMETERS.iter().map(entry).collect();
    let expected = flowed(&entries.join(" "));
    assert!(flowed(PAGE).contains(&expected), "docs/man/fi_erd.7 must contain:\n{expected}");
    assert_eq!(PAGE.matches(".TP\n.B FI_ERD_").count(), PARAMETERS.len());
}

#[test]
fn the_readme_shows_settings_as_they_are() {
    let row = |p: &Parameter| {
        let default = if p.default.is_empty() { "empty" } else { p.default };
        format!("| `{}` | {default} | {} | {} |", p.variable(), p.kind, p.help)
    };
    let rows: Vec<String> = PARAMETERS.iter().map(row).collect();
    let shown: Vec<&str> = README.lines().filter(|line| line.starts_with("| `FI_ERD_")).collect();
    for line in &shown {
        assert!(rows.iter().any(|row| row == line), "the README has no row of the table:\n{line}");
    }
    assert_eq!(shown.len(), 6, "the README says that it shows six");
}

#[test]
fn the_man_page_has_the_version() {
    let version = concat!("\"erd ", env!("CARGO_PKG_VERSION"), "\"");
    assert!(PAGE.starts_with(".TH FI_ERD 7 ") && PAGE.contains(version), "{version}");
}
