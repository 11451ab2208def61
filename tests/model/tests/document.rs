//! docs/model.md lists what the model has: its properties, scenes, rules and planted bugs, with the same words and no more.

use erd_model::bugs::Bug;
use erd_model::properties::Property;
use erd_model::rules::Rule;
use erd_model::scenes;
use erd_model::world::Scene;
use std::collections::BTreeSet;

const DOCUMENT: &str = include_str!("../../../docs/model.md");

/// The entries of the table whose header begins with `first`. A row may have several entries of `width` cells; the last row may
/// have blank ones.
fn entries(document: &str, first: &str, width: usize) -> Vec<Vec<String>> {
    let lines = document.lines().skip_while(|line| !line.starts_with(&format!("| {first} |")));
    let rows = lines.take_while(|line| line.starts_with('|')).skip(2);
    let cells = rows.flat_map(|row| {
        let row = row.strip_prefix('|').and_then(|row| row.strip_suffix('|')).expect("a row");
        row.split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>()
    });
    let cells: Vec<String> = cells.collect();
    assert_eq!(cells.len() % width, 0, "the table of each {first} has a row of another width");
    let is_blank = |entry: &Vec<String>| entry.iter().all(String::is_empty);
    let all = cells.chunks(width).map(<[String]>::to_vec);
    all.filter(|entry| !is_blank(entry)).collect()
}

/// What is missing in a table, what is too much, and what is there twice, by the first `width` cells of its entries.
fn differences(told: &[Vec<String>], real: &[Vec<String>], width: usize) -> Vec<String> {
    let told: Vec<&[String]> = told.iter().map(|entry| &entry[..width]).collect();
    let has = |row: &[String]| told.contains(&row);
    let missing = real.iter().filter(|row| !has(row)).map(|row| ("missing", row.as_slice()));
    let surplus = |row: &&&[String]| !real.iter().any(|real| real == **row);
    let surplus = told.iter().filter(surplus).map(|row| ("not in the code", *row));
    let is_again = |(index, row): &(usize, &&[String])| told[..*index].contains(*row);
    let again = told.iter().enumerate().filter(is_again).map(|(_, row)| ("there twice", *row));
    let all = missing.chain(surplus).chain(again);
    all.map(|(how, row)| format!("{how}: | {} |", row.join(" | "))).collect()
}

fn ticked(name: impl std::fmt::Debug) -> String {
    format!("`{name:?}`")
}

#[track_caller]
fn compare(first: &str, width: usize, real: &[Vec<String>]) {
    let told = entries(DOCUMENT, first, width);
    let found = differences(&told, real, real[0].len());
    assert!(found.is_empty(), "docs/model.md, each {first}:\n{}", found.join("\n"));
}

#[test]
fn properties_are_listed() {
    let real = Property::ALL.iter().map(|(name, text)| vec![ticked(name), (*text).to_owned()]);
    compare("property", 2, &real.collect::<Vec<_>>());
}

#[test]
fn scenes_are_listed() {
    let titles = |scenes: Vec<Scene>| -> Vec<Vec<String>> {
        scenes.iter().map(|scene| vec![scene.title.to_owned()]).collect()
    };
    compare("small scene", 2, &titles(scenes::small()));
    compare("large scene", 2, &titles(scenes::large()));
}

#[test]
fn rules_are_listed() {
    let real = Rule::ALL
        .iter()
        .map(|(name, section, text)| vec![ticked(name), (*section).to_owned(), (*text).to_owned()]);
    compare("rule", 3, &real.collect::<Vec<_>>());
}

#[test]
fn planted_bugs_are_listed() {
    let real = Bug::ALL.iter().map(|(name, text)| vec![ticked(name), (*text).to_owned()]);
    compare("planted bug", 4, &real.collect::<Vec<_>>());
}

#[test]
fn what_finds_a_bug_is_a_scene_and_a_property() {
    let scenes = scenes::small().into_iter().chain(scenes::large());
    let titles: BTreeSet<String> = scenes.map(|scene| scene.title.to_owned()).collect();
    let properties: BTreeSet<String> = Property::ALL.iter().map(|(name, _)| ticked(name)).collect();
    for entry in entries(DOCUMENT, "planted bug", 4) {
        assert!(titles.contains(&entry[2]), "no scene is called {:?}: {entry:?}", entry[2]);
        assert!(properties.contains(&entry[3]), "no property is {}: {entry:?}", entry[3]);
    }
}

#[test]
fn planted_differences_are_found() {
    let table = "text\n\n| rule | § | rule | § |\n| --- | --- | --- | --- |\n| a | 1 | b | 2 |\n| c | 3 | | |\n\n| d | 4 |\n";
    let told = entries(table, "rule", 2);
    let row = |name: &str, section: &str| vec![name.to_owned(), section.to_owned()];
    let real = [row("a", "1"), row("b", "2"), row("c", "3")];
    assert_eq!(told, real);
    assert!(differences(&told, &real, 2).is_empty());
    let more = [&real[..], &[row("e", "5")]].concat();
    assert_eq!(differences(&told, &more, 2), ["missing: | e | 5 |"]);
    assert_eq!(differences(&told, &real[..2], 2), ["not in the code: | c | 3 |"]);
    assert_eq!(differences(&more, &real, 2), ["not in the code: | e | 5 |"]);
    let twice = [&real[..], &real[..1]].concat();
    assert_eq!(differences(&twice, &real, 2), ["there twice: | a | 1 |"]);
    let other = [row("a", "9"), row("b", "2"), row("c", "3")];
    assert_eq!(differences(&told, &other, 2), ["missing: | a | 9 |", "not in the code: | a | 1 |"]);
}
