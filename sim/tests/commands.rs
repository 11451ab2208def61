//! The commands, as a person gives them: those of the README, and what each writes.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

const README: &str = include_str!("../../README.md");
/// How the README's commands begin.
const CARGO: &str = "cargo run --release -p erd-sim -- ";

const SCENARIO: &str = r#"
[links]
rate_gbps = 100
delay_ns = 1000
queue = { bdp = 1 }
[topology.tree]
tiers = [{ children = 8 }]
[[work]]
pattern = { pattern = "incast", message_bytes = 100000, senders = 4 }
[engines]
scheme = "nscc"
"#;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").to_owned()
}

/// Runs the program in a directory, and gives what it prints.
fn run(dir: &Path, args: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_erd-sim"))
        .args(args)
        .current_dir(dir)
        .output()
        .expect("the program runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {errors}");
    assert_eq!(errors, "", "no progress is shown where nobody looks");
    String::from_utf8(output.stdout).expect("text")
}

/// An empty directory of a test.
fn directory(test: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("commands").join(test);
    // The last run of the test may have left it.
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).expect("a directory");
    dir
}

/// A directory of a test with a small scenario in it.
fn scenario(test: &str) -> PathBuf {
    let dir = directory(test);
    std::fs::write(dir.join("small.toml"), SCENARIO).expect("it takes files");
    dir
}

fn text(dir: &Path, file: &str) -> String {
    std::fs::read_to_string(dir.join(file)).expect(file)
}

#[test]
fn the_readme_runs_128_hosts() {
    let line = README.lines().find(|line| line.starts_with(CARGO) && line.contains("scenario "));
    let line = line.expect("the README has an example");
    let words = line[CARGO.len()..].split_whitespace().take_while(|word| !word.starts_with('#'));
    let dir = directory("readme");
    let from_root = |word: &str| root().join(word).display().to_string();
    let args: Vec<String> = words
        .map(|word| if word.starts_with("sim/") { from_root(word) } else { word.to_owned() })
        .collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let printed = run(&dir, &args);
    assert!(printed.starts_with("128 messages, 256000000 bytes"), "{printed}");
    assert!(printed.contains("queues: ") && printed.contains("order: "), "{printed}");
    let html = text(&dir, "report.html");
    assert!(html.contains("128 hosts") && html.matches("<svg").count() >= 9);
}

#[test]
fn a_directory_gets_page_figures_and_rows() {
    let dir = scenario("page");
    let args = ["scenario", "small.toml", "--report", "out", "--csv", "rows.csv", "--json"];
    let json: Value = serde_json::from_str(&run(&dir, &args)).expect("JSON");
    assert_eq!((&json["messages"], &json["payload_bytes"]), (&4.into(), &400_000.into()));
    assert!(json["queues"]["max_bytes"].as_u64() > Some(0) && json["order"].is_object());
    let figures: Value = serde_json::from_str(&text(&dir, "out/figures.json")).expect("JSON");
    assert_eq!(figures, json);
    let rows = text(&dir, "rows.csv");
    assert_eq!(rows, text(&dir, "out/messages.csv"));
    assert_eq!(rows.lines().count(), 1 + 4);
    assert!(text(&dir, "out/report.html").contains("<h2>Path shares"));
}

#[test]
fn threads_change_nothing() {
    let dir = scenario("threads");
    let args = |threads| ["scenario", "small.toml", "--report", "a.html", "--threads", threads];
    let [one, three] = ["1", "3"].map(|threads| (run(&dir, &args(threads)), text(&dir, "a.html")));
    assert_eq!(one, three);
}

#[test]
fn compare_prints_a_line_for_each_scheme_whatever_the_jobs() {
    let dir = scenario("compare");
    let outputs = ["1", "2"].map(|jobs| {
        let args = ["compare", "small.toml", "--schemes", "nscc,dctcp:product", "--seeds", "3,4"];
        let more = ["--jobs", jobs, "--report", "c.html", "--csv", "c.csv"];
        let all: Vec<&str> = args.iter().chain(&more).copied().collect();
        let table = run(&dir, &all);
        let json = run(&dir, &[&all[..], &["--json"]].concat());
        (table, json, text(&dir, "c.html"), text(&dir, "c.csv"))
    });
    assert_eq!(outputs[0], outputs[1]);
    let (table, json, _, csv) = &outputs[0];
    for scheme in ["nscc", "dctcp:product"] {
        assert_eq!(table.lines().filter(|line| line.contains(scheme)).count(), 1, "{table}");
        for seed in [3, 4] {
            let rows = csv.lines().filter(|line| line.starts_with(&format!("{scheme},{seed},")));
            assert_eq!(rows.count(), 4);
        }
    }
    let json: Value = serde_json::from_str(json).expect("JSON");
    assert!(json["schemes"][1]["medians"]["p99 completion, us"].as_f64() > Some(0.0));
}

#[test]
fn advise_names_settings_and_the_figures_that_decided() {
    let dir = scenario("advise");
    let args = ["advise", "small.toml", "--schemes", "nscc,spray", "--seeds", "1"];
    let printed = run(&dir, &args);
    assert!(printed.contains("Choose ") && printed.contains("FI_ERD_CC="), "{printed}");
    assert!(printed.contains("- p99 completion, us: "), "{printed}");
    let json: Value =
        serde_json::from_str(&run(&dir, &[&args[..], &["--json"]].concat())).expect("JSON");
    assert_eq!(json["candidates"].as_array().map(Vec::len), Some(10));
    assert!(json["candidates"][0]["candidate"]["paths"].is_number());
}

#[test]
fn a_wrong_number_of_jobs_is_refused() {
    let dir = scenario("jobs");
    let output = Command::new(env!("CARGO_BIN_EXE_erd-sim"))
        .args(["compare", "small.toml", "--schemes", "nscc", "--jobs", "0"])
        .current_dir(&dir)
        .output()
        .expect("the program runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && errors.contains("--jobs is at least 1"), "{errors}");
}
