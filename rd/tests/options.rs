//! The tables of options and profiles in docs/cc are those of the code: names, defaults, ranges, units, sources.

use erd_rd::cc::options::OptionInfo;
use erd_rd::cc::profiles::{PROFILES, Profiles, Setting};
use erd_rd::cc::schemes;
use std::fs;
use std::path::Path;

/// What stands above every table.
const HEAD: &str =
    "| option | default | range | unit | source |\n| --- | --- | --- | --- | --- |\n";

/// The text of docs/cc/`page`.md.
fn read(page: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/cc").join(page);
    let path = path.with_extension("md");
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The page that lists a scheme's options.
fn page_of(name: &str) -> &str {
    if ["spray", "single"].contains(&name) { "fixed" } else { name }
}

fn options_of(name: &str) -> Vec<OptionInfo> {
    schemes::by_name(name).expect("a known name").options()
}

/// The table as the page has it.
fn table(options: &[OptionInfo]) -> String {
    let row = |option: &OptionInfo| {
        let OptionInfo { name, unit, default, range: [min, max], source, .. } = option;
        let source = source.replace("docs: ", "here: ");
        format!("| `{name}` | {default} | {min} to {max} | {unit} | {source} |\n")
    };
    HEAD.to_owned() + &options.iter().map(row).collect::<String>()
}

#[test]
fn every_page_lists_the_options_of_its_scheme() {
    let mut missing = String::new();
    for name in schemes::NAMES {
        let (page, table) = (read(page_of(name)), table(&options_of(name)));
        // Blank lines around it: no row more, and none less.
        if page.matches(HEAD).count() != 1 || !page.contains(&format!("\n\n{table}\n")) {
            missing += &format!("docs/cc/{}.md must have:\n\n{table}\n", page_of(name));
        }
    }
    assert!(missing.is_empty(), "{missing}");
}

#[test]
fn every_passage_that_a_source_names_is_on_its_page() {
    let mut passages = 0;
    for name in schemes::NAMES {
        let options = options_of(name);
        // SMaRTT's page leaves to NSCC's what both share.
        let pages = [page_of(name), if *name == "smartt" { "nscc" } else { name }];
        let texts = pages.map(|page| read(page_of(page)).replace(&table(&options), ""));
        for option in &options {
            for passage in option.source.split("; ").filter_map(|part| part.strip_prefix("docs: "))
            {
                let is_there = texts.iter().any(|text| text.contains(passage));
                assert!(is_there, "{name}: {} has its source in \"{passage}\"", option.name);
                passages += 1;
            }
        }
    }
    assert!(passages > 20, "{passages}");
}

/// The table of a scheme's profiles as its page has it: the values, then the sources.
fn profile_table(row: &Profiles) -> String {
    let others = &row.names[1..];
    let heads = row.names.join(" | ");
    let sources: String = others.iter().map(|name| format!(" | {name}: source")).collect();
    let mut table = format!("| option | {heads}{sources} |\n|");
    table += &" --- |".repeat(1 + row.names.len() + others.len());
    table += "\n";
    for OptionInfo { name, default, .. } in options_of(row.scheme) {
        let of = |all: &'static [Setting]| all.iter().find(|set| set.option == name);
        let settings: Vec<_> = row.settings[1..].iter().filter_map(|all| of(all)).collect();
        let values: String = settings.iter().map(|set| format!(" | {}", set.value)).collect();
        let sources: String = settings.iter().map(|set| format!(" | {}", set.source)).collect();
        table += &format!("| `{name}` | {default}{values}{sources} |\n");
    }
    table
}

#[test]
fn every_page_lists_the_profiles_of_its_scheme() {
    let mut missing = String::new();
    for row in PROFILES {
        let (page, table) = (read(page_of(row.scheme)), profile_table(row));
        let section = page.split_once("\n## Profiles\n").map_or("", |(_, section)| section);
        if !section.contains(&format!("\n\n{table}\n")) {
            missing +=
                &format!("docs/cc/{}.md must have, under Profiles:\n\n{table}\n", row.scheme);
        }
    }
    assert!(missing.is_empty(), "{missing}");
}
