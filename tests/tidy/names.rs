//! One name, one type, where readers go from file to file: the controllers and the simulator.

use std::collections::BTreeMap;
use std::path::Path;

/// Folders whose public types have names of their own.
const FOLDERS: [&str; 2] = ["rd/src/cc/", "sim/src/"];
/// Keywords that declare a type.
const KINDS: [&str; 5] = ["struct", "enum", "trait", "type", "union"];

/// The types that a file shows to others, its parent module included.
fn shown(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| {
        let (visibility, rest) = line.split_once(' ')?;
        let (kind, rest) = rest.split_once(' ')?;
        let is_shown = visibility == "pub" || visibility.starts_with("pub(");
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        (is_shown && KINDS.contains(&kind)).then_some(&rest[..end])
    })
}

/// Names that more than one of these files shows, each with a path and the text.
fn shared(files: &[(&str, &str)]) -> Vec<String> {
    let mut owners: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (path, text) in files {
        shown(text).for_each(|name| owners.entry(name).or_default().push(path));
    }
    owners.retain(|_, paths| paths.len() > 1);
    owners.iter().map(|(name, paths)| format!("{name}: {}", paths.join(", "))).collect()
}

#[test]
fn no_two_types_have_one_name() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let sources = super::tree();
    assert!(FOLDERS.iter().all(|folder| root.join(folder).is_dir()));
    let is_looked_at = |path: &str| FOLDERS.iter().any(|folder| path.starts_with(folder));
    let files: Vec<(&str, &str)> = sources
        .iter()
        .filter(|source| is_looked_at(&source.path))
        .map(|source| (source.path.as_str(), source.text.as_str()))
        .collect();
    let types: usize = files.iter().map(|(_, text)| shown(text).count()).sum();
    assert!(types > 80, "{types} types in {} files", files.len());
    assert_eq!(shared(&files), Vec::<String>::new());
}

#[test]
fn planted_namesakes_are_found() {
    let found = shared(&[
        ("a.rs", "pub struct Table<T> {\n    pub type_of: u8,\n}\nstruct Own;"),
        ("b.rs", "pub(super) enum Table {}\npub trait Other {}\nstruct Own;"),
    ]);
    assert_eq!(found, ["Table: a.rs, b.rs"]);
}
