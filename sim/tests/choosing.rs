//! Holds the table of `docs/choosing.md` against `sim/tables`.

const PAGE: &str = include_str!("../../docs/choosing.md");
const ECN: &str = include_str!("../tables/ecn.txt");
const NO_ECN: &str = include_str!("../tables/noecn.txt");
const FAULTS: &str = include_str!("../tables/faults.txt");
const SHOWN: [&str; 11] = [
    "nscc", "strack", "udmp", "smartt", "mprdma", "swift", "dctcp", "laps", "erd", "spray",
    "single",
];

/// The line of a table whose first words are these.
fn line<'a>(table: &'a str, first: &[&str]) -> Vec<&'a str> {
    let mut lines = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    lines.find(|words| words.starts_with(first)).unwrap_or_else(|| panic!("no line {first:?}"))
}

/// Use, fairness and queue of eight flows that start at once.
fn reached(table: &str, scheme: &str) -> String {
    let words = line(table, &[scheme, "8", "simul"]);
    let [used, jain, queue] = [3, 4, 6].map(|at| words[at].parse::<f64>().expect("a number"));
    format!("{used:.0} %, {jain:.2}, {queue:.2}")
}

#[test]
fn the_page_says_what_the_tables_say() {
    for scheme in SHOWN {
        let left = ["yes", "no"].map(|ecn| line(FAULTS, &[scheme, ecn, "lossy"])[3]);
        let (ecn, none) = (reached(ECN, scheme), reached(NO_ECN, scheme));
        let row =
            format!("| `{scheme}` | {ecn} | {none} | {} with ECN, {} without |", left[0], left[1]);
        assert!(PAGE.contains(&row), "docs/choosing.md must contain\n{row}");
    }
}
