//! What `erd info` and `erd top` write, as a script reads it.

#![forbid(unsafe_code)]

use serde_json::Value;
use std::process::{Command, Output};

fn erd(args: &[&str], settings: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_erd"));
    command.args(args).envs(settings.iter().copied());
    command.output().expect("erd runs")
}

fn json(args: &[&str], settings: &[(&str, &str)]) -> Value {
    let run = erd(args, settings);
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    serde_json::from_slice(&run.stdout).expect("JSON")
}

#[test]
fn info_tells_what_would_be_chosen_and_why() {
    let settings = [("FI_ERD_IFACE", "lo"), ("FI_ERD_PORT", "udp"), ("FI_ERD_CC", "swift")];
    let info = json(&["info", "--json"], &settings);
    let place = &info["choice"]["place"];
    assert_eq!((&place["interface"], &place["controller"]), (&"lo".into(), &"swift".into()));
    let reasons = info["choice"]["reasons"].to_string();
    assert!(
        reasons.contains("FI_ERD_IFACE is lo") && reasons.contains("FI_ERD_CC is swift"),
        "{reasons}"
    );
    let changed = |row: &&Value| row["changed"] == true;
    assert_eq!(info["settings"].as_array().expect("settings").iter().filter(changed).count(), 3);
    assert!(info["granted"]["recv_buffer_bytes"].as_u64().expect("a size") > 0);
}

#[test]
fn info_names_a_setting_that_is_not_valid() {
    let run = erd(&["info"], &[("FI_ERD_PATHS", "many")]);
    let text = String::from_utf8_lossy(&run.stdout).into_owned();
    assert!(
        run.status.success() && text.contains("FI_ERD_PATHS is \"many\"; valid: auto, or 1 to 256"),
        "{text}"
    );
}

#[test]
fn top_writes_one_object_a_look() {
    assert!(json(&["top", "--once", "--json"], &[])["processes"].is_array());
    let run = erd(&["top", "--prometheus"], &[]);
    assert!(run.status.success());
    assert!(String::from_utf8_lossy(&run.stdout).contains("# TYPE erd_flow_rtt_seconds gauge"));
}

#[test]
fn a_wrong_argument_says_what_is_valid() {
    let run = erd(&["top", "--interval", "0"], &[]);
    assert_eq!(run.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&run.stderr).contains("a number from 0.1 to 3600"));
}
