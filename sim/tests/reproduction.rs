//! The papers' claims as files: all can be run, and the page shows what the results say.

use erd_sim::reproduce::claims::{Book, Scale};
use erd_sim::reproduce::runs::prepare;
use erd_sim::reproduce::{page, read_outcomes};
use std::fs;
use std::path::{Path, PathBuf};

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
