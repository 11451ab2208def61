//! The papers' claims as files: all can be run, and the page shows what the results say.

use erd_sim::reproduce::claims::{Book, Scale};
use erd_sim::reproduce::runs::{Runs, prepare};
use erd_sim::reproduce::{page, read_outcomes};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn book() -> Book {
    Book::read(&root().join("sim/claims")).expect("the claims are valid")
}

/// Every claim has a form that the tests run, and each of its runs can be built.
#[test]
fn every_claim_can_be_run() {
    let book = book();
    for claim in book.claims().filter(|claim| claim.is_run()) {
        assert!(
            claim.cases.iter().any(|case| case.sizes.contains(&Scale::Short)),
            "{} has no short form",
            claim.id
        );
        let build = |about: &str, text: &str| {
            let prepared = prepare(text);
            assert!(prepared.is_ok(), "{about}: {:?}\n{text}", prepared.err());
        };
        book.each_run(claim, Scale::Short, build).expect("it has scenarios");
        // Those of the other sizes have texts; the command builds them.
        for size in [Scale::Full, Scale::Scaled] {
            book.fingerprint(claim, size).expect("it has scenarios");
        }
    }
}

/// A constant that was changed after the run, or a table that was changed by hand, is found.
#[test]
fn the_page_shows_the_results_of_these_claims() {
    let book = book();
    let outcomes =
        read_outcomes(&root().join("sim/tables/reproduction.json")).expect("the results");
    for (id, outcome) in &outcomes {
        let claim = book.claims().find(|claim| claim.id == *id).expect("results of a claim");
        let fingerprint = book.fingerprint(claim, outcome.size).expect("it has scenarios");
        assert_eq!(outcome.fingerprint, fingerprint, "{id} has to be run again");
    }
    let text = fs::read_to_string(root().join("docs/reproduction.md")).expect("the page");
    let again = page::rewritten(&text, &book, &outcomes).expect("it has markers");
    assert!(text == again, "run `cargo xtask reproduce --page-only`");
}

/// A run that a file has kept is not run again, and gives the same.
#[test]
fn a_command_that_was_interrupted_goes_on() {
    let book = book();
    let claim = book.claims().find(|claim| claim.is_run()).expect("a claim");
    let mut texts = Vec::new();
    book.each_run(claim, Scale::Short, |_, text| texts.push(text.to_owned())).expect("scenarios");
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("kept-runs.jsonl");
    let _ = fs::remove_file(&file);
    texts.sort();
    texts.dedup();
    let run = |texts: &[String]| {
        let (mut runs, mut count) = (Runs::kept_in(&file).expect("a file of kept runs"), 0);
        runs.add(texts, 1, |_, _| count += 1).expect("it can be kept");
        (runs.get(&texts[0]).clone().expect("it ends"), count)
    };
    let first = run(&texts[..1]);
    assert_eq!((first.1, run(&texts[..1])), (1, (first.0.clone(), 0)));
    assert_eq!(run(&texts), (first.0, texts.len() - 1));
    fs::write(&file, "{}\n").expect("it can be written");
    let error = Runs::kept_in(&file).err().expect("no kept run").to_string();
    assert!(error.contains("kept-runs.jsonl:1: expected a kept run"), "{error}");
}

/// At full size a network of thousands of hosts has one seed, and claims about a few flows have their own.
#[test]
fn claims_about_a_few_flows_have_more_seeds() {
    let book = book();
    let seeds = |id: &str, size| {
        let claim = book.claims().find(|claim| claim.id == id).expect("a claim");
        let mut seeds = std::collections::BTreeSet::new();
        book.each_run(claim, size, |_, text| {
            seeds.insert(prepare(text).expect("a scenario").seed);
        })
        .expect("it has scenarios");
        seeds.len()
    };
    assert_eq!(seeds("smartt-permutation-2MiB", Scale::Full), 1);
    assert_eq!(seeds("smartt-incast", Scale::Full), 3);
    assert_eq!(seeds("smartt-incast", Scale::Short), 1);
}

/// A copy of the claims in a directory of a test.
fn copied_claims(test: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
    fs::create_dir_all(&dir).expect("a directory");
    for file in fs::read_dir(root().join("sim/claims")).expect("the claims") {
        let file = file.expect("a file").path();
        fs::copy(&file, dir.join(file.file_name().expect("a name"))).expect("it can be copied");
    }
    dir
}

/// The share of the shortest ways goes by path numbers, which decide nothing where switches move flowlets.
#[test]
fn the_share_of_the_shortest_ways_is_that_of_senders_that_choose() {
    let dir = copied_claims("shares");
    let file = dir.join("laps.toml");
    let text = fs::read_to_string(&file).expect("a file");
    let (before, after) = text.split_once("measure = \"shortest_share\"").expect("the claim");
    let flowlets = "switches = { balancing = \"flowlet\" }, scheme";
    let after = after.replacen("scheme", flowlets, 1);
    fs::write(&file, format!("{before}measure = \"shortest_share\"{after}")).expect("a file");
    let error = format!("{:#}", Book::read(&dir).expect_err("no claim"));
    assert!(error.contains("laps-rail-paths: shortest_share does not go together"), "{error}");
}

/// A page without markers is named before anything runs.
#[test]
fn a_page_that_cannot_be_written_is_named_before_the_runs() {
    let dir = copied_claims("pages");
    let [page, keep] = ["page.md", "kept.jsonl"].map(|name| dir.join(name));
    let _ = fs::remove_file(&keep);
    fs::write(&page, "no markers\n").expect("a file");
    let output = Command::new(env!("CARGO_BIN_EXE_erd-sim"))
        .args(["reproduce", "--only", "smartt-setup", "--claims"])
        .arg(&dir)
        .arg("--results")
        .arg(dir.join("results.json"))
        .arg("--page")
        .arg(&page)
        .arg("--keep")
        .arg(&keep)
        .output()
        .expect("the program runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && errors.contains("the page has no line"), "{errors}");
    assert!(!keep.exists(), "nothing was run");
}
