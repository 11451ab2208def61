//! What a person sees of runs: reports, rows, comparisons, advice.

use erd_sim::advise::{Question, STEPS};
use erd_sim::compare::{Case, CaseError, Origin, RUNS_MAX};
use erd_sim::report::page::Page;
use erd_sim::report::{Group, rows};
use std::path::Path;

/// Small queues that trim: there are repeats.
const SCENARIO: &str = r#"
limit_ms = 50
[links]
rate_gbps = 100
delay_ns = 1000
queue = { bytes = 60000 }
trimming = true
[topology.tree]
tiers = [{ children = 4, links_up = 2 }, { children = 2 }]
[[work]]
pattern = { pattern = "permutation", message_bytes = 200000, reach = "other-pod" }
[[work]]
pattern = { pattern = "incast", message_bytes = 30000, senders = 4 }
[engines]
scheme = "nscc"
paths = 8
warm = true
"#;

fn source() -> Origin<'static> {
    Origin { file: "small.toml", text: SCENARIO, dir: Path::new("") }
}

fn names(list: &[&str]) -> Vec<String> {
    list.iter().map(|name| (*name).to_owned()).collect()
}

fn matrix(schemes: &[&str], jobs: usize) -> Vec<Group> {
    source().matrix(&names(schemes), &[1, 2], jobs, &|| ()).expect("a scenario and schemes")
}

fn html(groups: &[Group]) -> String {
    let page = Page { title: "a <b>", about: "8 hosts", groups, scenario: SCENARIO };
    page.html().expect("plots")
}

fn csv(groups: &[Group]) -> String {
    let mut out = Vec::new();
    rows::write(&mut out, groups).expect("memory takes it");
    String::from_utf8(out).expect("text")
}

/// Nothing is fetched, nothing runs, and each plot has something in it.
fn assert_is_whole(html: &str, titles: &[&str]) {
    for title in titles {
        let (_, section) = html.split_once(&format!("<h2>{title}")).expect(title);
        let (_, svg) = section.split_once("<svg").expect(title);
        let (svg, _) = svg.split_once("</svg>").expect(title);
        let shapes = ["<polyline", "<rect", "<circle"].map(|shape| svg.matches(shape).count());
        assert!(shapes.iter().sum::<usize>() > 3, "{title} is empty: {shapes:?}");
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{title}");
    }
    let elsewhere = ["src=", "href=", "url(", "@import", "<script", "<link", "<img"];
    for word in elsewhere {
        assert!(!html.contains(word), "the page has {word}");
    }
    // The name of a format is no address that anybody follows.
    let addresses = html.matches("http").count();
    assert_eq!(addresses, html.matches("xmlns=\"http://www.w3.org/2000/svg\"").count());
    assert_eq!(html.matches("<svg").count(), html.matches("</svg>").count());
}

#[test]
fn a_report_of_one_run_has_every_plot_and_needs_no_network() {
    let mut groups = matrix(&["nscc"], 1);
    groups[0].runs.truncate(1);
    let html = html(&groups);
    let titles = [
        "Completion times",
        "Slowdown by size",
        "Rate of the whole network",
        "Throughput of some messages",
        "Congestion windows of some messages",
        "Queues: nscc",
        "Utilisation: nscc",
        "Path shares",
        "Reordering",
        "Repeats by cause",
    ];
    assert_is_whole(&html, &titles);
    assert!(html.contains("<title>a &lt;b&gt;</title>"), "names are no markup");
    for figure in ["fairness (Jain)", "p99 slowdown", "packets trimmed", "repeats found by scan"] {
        assert!(html.contains(&format!("<td>{figure}</td>")), "{figure}");
    }
}

#[test]
fn a_comparison_is_the_same_on_any_number_of_threads_and_shows_every_scheme() {
    let schemes = ["nscc", "strack:paper", "spray"];
    let [one, two] = [1, 2].map(|jobs| matrix(&schemes, jobs));
    assert_eq!(one, two);
    assert_eq!((html(&one), csv(&one)), (html(&two), csv(&two)));
    let html = html(&one);
    let queues = schemes.map(|scheme| format!("Queues: {scheme}"));
    let titles = ["Completion times side by side", "Completion times", "Reordering"];
    let titles: Vec<&str> = titles.into_iter().chain(queues.iter().map(String::as_str)).collect();
    assert_is_whole(&html, &titles);
    assert!(schemes.iter().all(|scheme| html.contains(&format!("<th>{scheme}</th>"))));
}

#[test]
fn there_is_a_row_for_each_message() {
    let groups = matrix(&["nscc", "dctcp"], 2);
    let messages: usize =
        groups.iter().flat_map(|group| &group.runs).map(|run| run.summary.messages).sum();
    let csv = csv(&groups);
    let mut lines = csv.lines();
    let head = lines.next().expect("a line of names");
    assert!(
        head.starts_with("scheme,seed,message,from,to,bytes,began_us,completion_us,"),
        "{head}"
    );
    assert_eq!(lines.clone().count(), messages);
    assert!(lines.all(|line| line.split(',').count() == head.split(',').count()));
    assert!(csv.contains("\ndctcp,2,11,"), "the last message of the last run");
}

#[test]
fn what_cannot_be_compared_is_refused_by_name() {
    let run = |schemes: &[&str], seeds: &[u64]| source().matrix(&names(schemes), seeds, 1, &|| ());
    let error = run(&["nscc", "cubic"], &[1]).expect_err("no such scheme").to_string();
    assert!(error.contains("\"cubic\"") && error.contains("nscc"), "{error}");
    let seeds: Vec<u64> = (0..=RUNS_MAX as u64).collect();
    assert_eq!(run(&["nscc"], &seeds), Err(CaseError::Runs(RUNS_MAX + 1)));
    let paths = source().prepare(&Case { paths: Some(0), ..Case::default() });
    assert!(paths.is_err_and(|error| error.to_string().starts_with("expected 1 to 256 paths")));
    let late = SCENARIO.replace("limit_ms = 50", "limit_ms = 0.01");
    let late = Origin { text: &late, ..source() };
    let groups = late.matrix(&names(&["nscc"]), &[1], 1, &|| ()).expect("it is a scenario");
    assert!(groups[0].runs.is_empty() && groups[0].unfinished[0].contains("were not done"));
    assert!(html(&groups).contains("were not done"));
}

#[test]
fn advice_follows_its_rule_and_is_the_same_on_any_number_of_threads() {
    let schemes = names(&["spray", "nscc", "single"]);
    let answer = |jobs| {
        let question = Question { source: source(), schemes: &schemes, seeds: &[1, 2], jobs };
        question.answer(&|_| (), &|| ()).expect("they are done in time")
    };
    let [one, two] = [1, 2].map(answer);
    assert_eq!((&one.candidates, &one.reasons), (&two.candidates, &two.reasons));
    assert!((1..=STEPS.len()).contains(&one.reasons.len()), "{:?}", one.reasons);
    assert!(one.reasons[0].starts_with("p99 completion, us: "), "{:?}", one.reasons);
    let p99 = |at: usize| STEPS[0].figure.median(&one.candidates[at].1).expect("messages");
    let least = (0..one.candidates.len()).map(p99).fold(f64::MAX, f64::min);
    assert!(p99(0) <= least * (1.0 + STEPS[0].tolerance), "{}", one.candidates[0].0);
    for trimming in [true, false] {
        let tried = one.candidates.iter().filter(|(of, _)| of.trimming == Some(trimming));
        assert!(tried.count() >= 15 - schemes.len(), "trimming {trimming}");
    }
    let untrimmed = one.candidates.iter().filter(|(of, _)| of.trimming == Some(false));
    let trims = |run: &erd_sim::report::SchemeRun| run.summary.links.trims;
    assert_eq!(untrimmed.flat_map(|(_, group)| &group.runs).map(trims).sum::<u64>(), 0);
}
