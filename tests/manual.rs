//! Holds the man page against the provider's table of parameters.

use erd::settings::{PARAMETERS, Parameter};

const PAGE: &str = include_str!("../docs/man/fi_erd.7");

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
fn the_man_page_has_the_version() {
    let version = concat!("\"erd ", env!("CARGO_PKG_VERSION"), "\"");
    assert!(PAGE.starts_with(".TH FI_ERD 7 ") && PAGE.contains(version), "{version}");
}
