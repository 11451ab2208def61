//! Holds the tree to its own rules: short functions and files, no path of a machine, crates that
//! depend one way, unsafe code where it belongs.

mod imports;
mod names;

use std::fs;
use std::path::{Path, PathBuf};

/// Most lines of a function, from its signature to its closing brace.
const FUNCTION_LINES_MAX: usize = 70;
/// Most lines of a source file.
const FILE_LINES_MAX: usize = 800;
/// What source files are called.
const SOURCES: &[&str] = &["rs", "c", "h", "py", "sh", "lua"];
/// Other files that are read for words.
const TEXTS: &[&str] = &["md", "toml", "txt", "yml", "yaml"];
/// Where unsafe code may be.
const UNSAFE_CODE: &[&str] = &[
    "sys/",
    "ffi/",
    "port/",
    "core/",
    "prov/",
    "so/",
    "sim/src/port.rs",
    "tests/world/src/lanes.rs",
    "tests/world/src/port.rs",
    "tests/world/src/shipped/lend.rs",
];
/// Directories that are not the project's own text.
const OUTSIDE: &[&str] = &["target", ".git", "corpus", "artifacts", "node_modules"];
/// The crates of the workspace, and which of them each may depend on.
const ARROWS: &[(&str, &[&str])] = &[
    ("erd-types", &[]),
    ("erd-rd", &["erd-types"]),
    ("erd-sim", &["erd-rd", "erd-core", "erd-port"]),
    ("erd-sys", &[]),
    ("erd-ffi", &["erd-sys"]),
    ("erd-port", &["erd-types", "erd-sys", "erd-ffi"]),
    ("erd-crypto", &["erd-rd", "erd-sys"]),
    ("erd-core", &["erd-types", "erd-rd", "erd-crypto", "erd-sys", "erd-port"]),
    ("erd", &["erd-core", "erd-rd", "erd-sys", "erd-ffi", "erd-port"]),
    ("erd-fi", &["erd", "erd-ffi"]),
    ("erd-tool", &["erd", "erd-core", "erd-sys", "erd-ffi", "erd-port"]),
    ("erd-fuzz", &["erd-rd", "erd-port", "erd", "erd-world"]),
    ("erd-relay", &["erd-rd", "erd-sim"]),
    ("erd-crowd", &["erd-rd"]),
    ("erd-world", &["erd-core", "erd-rd", "erd-crypto", "erd-port"]),
    ("erd-model", &["erd-rd", "erd-world"]),
    ("erd-e2e", &[]),
    ("xtask", &["erd-e2e"]),
];

/// Words that no file has, each with the reason. They are written in two parts so that this file
/// does not have them either.
const FORBIDDEN: &[(&str, &str)] = &[
    (concat!("/wo", "rk/"), "path of a machine"),
    (concat!("/op", "t/"), "path of a machine"),
    (concat!("/ro", "ot/"), "path of a machine"),
    (concat!("/ho", "me/"), "path of a machine"),
    (concat!("/Us", "ers/"), "path of a machine"),
    (concat!("crates", ".io"), "host of a registry"),
    (concat!("pypi", ".org"), "host of a registry"),
    (concat!("python", "hosted.org"), "host of a registry"),
    (concat!("debian", ".org"), "host of a registry"),
    (concat!("TO", "DO"), "unfinished work"),
    (concat!("FIX", "ME"), "unfinished work"),
    (concat!("to", "do!("), "unfinished work"),
    (concat!("unimple", "mented!("), "unfinished work"),
    (concat!("db", "g!("), "left from debugging"),
    (concat!("allow(clippy::undocumented", "_unsafe_blocks"), "unsafe code is explained"),
];

/// A file of the tree: its path from the root, with `/`, and its text.
struct Source {
    path: String,
    text: String,
}

impl Source {
    fn new(path: &str, text: &str) -> Source {
        Source { path: path.to_owned(), text: text.to_owned() }
    }

    fn extension(&self) -> &str {
        self.path.rsplit_once('.').map_or("", |(_, extension)| extension)
    }
}

fn tree() -> Vec<Source> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    collect(&root, &root, &mut found);
    assert!(found.len() > 20, "found {} files only", found.len());
    found
}

fn collect(root: &Path, dir: &Path, found: &mut Vec<Source>) {
    for entry in fs::read_dir(dir).expect("a readable directory") {
        let entry = entry.expect("a directory entry");
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        let kind = entry.file_type().expect("a file type");
        if kind.is_dir() && !OUTSIDE.contains(&name.as_str()) {
            collect(root, &path, found);
        }
        let relative =
            path.strip_prefix(root).expect("below the root").to_string_lossy().into_owned();
        let source = Source { path: relative, text: String::new() };
        let wanted = SOURCES.contains(&source.extension()) || TEXTS.contains(&source.extension());
        if kind.is_file() && wanted {
            let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
            found.push(Source { text, ..source });
        }
    }
}

/// Rust source with comments and the insides of literals blanked out, line for line.
fn code_only(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while at < chars.len() {
        let end = literal_end(&chars, at);
        if end == at {
            out.push(chars[at]);
            at += 1;
            continue;
        }
        out.extend(chars[at..end].iter().map(|&c| if c == '\n' { '\n' } else { ' ' }));
        at = end;
    }
    out
}

/// Where the comment or literal that begins at `at` ends; `at` itself if none does.
fn literal_end(chars: &[char], at: usize) -> usize {
    let starts = |what: &str| chars[at..].iter().copied().take(what.len()).eq(what.chars());
    if starts("//") {
        return (at..chars.len()).find(|&i| chars[i] == '\n').unwrap_or(chars.len());
    }
    if starts("/*") {
        return block_comment_end(chars, at);
    }
    if chars[at] == '"' {
        return quoted_end(chars, at + 1, '"');
    }
    let in_word = at > 0 && (chars[at - 1].is_alphanumeric() || chars[at - 1] == '_');
    if chars[at] == 'r' && !in_word {
        return raw_string_end(chars, at);
    }
    // A lifetime has no closing quote after its first character.
    let is_char = chars.get(at + 1) == Some(&'\\') || chars.get(at + 2) == Some(&'\'');
    if chars[at] == '\'' && is_char { quoted_end(chars, at + 1, '\'') } else { at }
}

fn block_comment_end(chars: &[char], at: usize) -> usize {
    let (mut depth, mut i) = (0, at);
    while i + 1 < chars.len() {
        match (chars[i], chars[i + 1]) {
            ('/', '*') => depth += 1,
            ('*', '/') => depth -= 1,
            _ => {
                i += 1;
                continue;
            }
        }
        i += 2;
        if depth == 0 {
            return i;
        }
    }
    chars.len()
}

fn quoted_end(chars: &[char], mut i: usize, quote: char) -> usize {
    while i < chars.len() {
        match chars[i] {
            '\\' => i += 2,
            c if c == quote => return i + 1,
            _ => i += 1,
        }
    }
    chars.len()
}

fn raw_string_end(chars: &[char], at: usize) -> usize {
    let hashes = chars[at + 1..].iter().take_while(|&&c| c == '#').count();
    if chars.get(at + 1 + hashes) != Some(&'"') {
        return at;
    }
    let closing: Vec<char> = std::iter::once('"').chain(std::iter::repeat_n('#', hashes)).collect();
    let start = at + 2 + hashes;
    let found = (start..chars.len()).find(|&i| chars[i..].starts_with(&closing));
    found.map_or(chars.len(), |i| i + closing.len())
}

/// Functions of Rust source: line of the signature, name, number of lines.
fn rust_functions(text: &str) -> Vec<(usize, String, usize)> {
    let code = code_only(text);
    let lines: Vec<&str> = code.lines().collect();
    let mut found = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let Some(place) = words.iter().position(|word| *word == "fn") else { continue };
        let name = words.get(place + 1).copied().unwrap_or_default();
        let name = name.split(['(', '<']).next().unwrap_or_default().to_owned();
        let column = line.find("fn ").unwrap_or(0);
        if let Some(length) = body_lines(&lines[start..], column) {
            found.push((start + 1, name, length));
        }
    }
    found
}

/// Lines up to the end of the first braces; `None` for a declaration without a body.
fn body_lines(lines: &[&str], column: usize) -> Option<usize> {
    let (mut depth, mut round) = (0, 0);
    for (count, line) in lines.iter().enumerate() {
        let line = if count == 0 { &line[column..] } else { line };
        for c in line.chars() {
            match c {
                '(' | '[' => round += 1,
                ')' | ']' => round -= 1,
                '{' => depth += 1,
                '}' => {
                    depth -= 1;
                    if depth == 0 {
                        return Some(count + 1);
                    }
                }
                ';' if depth == 0 && round == 0 => return None,
                _ => {}
            }
        }
    }
    None
}

/// Functions of C source, which open and close with a brace in the first column.
fn c_functions(text: &str) -> Vec<(usize, String, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let opening = |i: &usize| lines[*i] == "{" && *i > 0;
    (0..lines.len())
        .filter(opening)
        .filter_map(|start| {
            let length = lines[start..].iter().position(|line| *line == "}")?;
            Some((start, lines[start - 1].to_owned(), length + 2))
        })
        .collect()
}

fn lengths(source: &Source) -> Vec<String> {
    let mut found = Vec::new();
    let lines = source.text.lines().count();
    if SOURCES.contains(&source.extension()) && lines > FILE_LINES_MAX {
        found.push(format!("{}: {lines} lines, at most {FILE_LINES_MAX}", source.path));
    }
    let functions = match source.extension() {
        "rs" => rust_functions(&source.text),
        "c" | "h" => c_functions(&source.text),
        _ => Vec::new(),
    };
    for (line, name, length) in functions {
        if length > FUNCTION_LINES_MAX {
            let path = &source.path;
            found.push(format!(
                "{path}:{line}: {name} has {length} lines, at most {FUNCTION_LINES_MAX}"
            ));
        }
    }
    found
}

fn words(source: &Source) -> Vec<String> {
    let mut found = Vec::new();
    for (number, line) in source.text.lines().enumerate() {
        for (word, reason) in FORBIDDEN {
            if line.contains(word) {
                found.push(format!("{}:{}: \"{word}\": {reason}", source.path, number + 1));
            }
        }
    }
    found
}

fn misplaced_unsafe(source: &Source) -> Vec<String> {
    let allowed = UNSAFE_CODE.iter().any(|dir| source.path.starts_with(dir));
    if source.extension() != "rs" || allowed {
        return Vec::new();
    }
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    code_only(&source.text)
        .lines()
        .enumerate()
        .filter(|(_, line)| line.split(|c| !is_word(c)).any(|word| word == "unsafe"))
        .map(|(number, _)| {
            format!("{}:{}: unsafe code belongs in {UNSAFE_CODE:?}", source.path, number + 1)
        })
        .collect()
}

/// The package's name in a manifest, and what it depends on, in every kind of dependency.
fn manifest(text: &str) -> (String, Vec<String>) {
    let (mut name, mut needs, mut section) = (String::new(), Vec::new(), String::new());
    for line in text.lines().map(str::trim) {
        if let Some(header) = line.strip_prefix('[') {
            section = header.trim_end_matches(']').to_owned();
            // [dependencies.name] is a dependency of its own.
            if let Some((_, dependency)) = section.split_once("dependencies.") {
                needs.push(dependency.to_owned());
            }
            continue;
        }
        let Some((key, value)) = line.split_once('=') else { continue };
        let key = key.trim().trim_end_matches(".workspace").trim_matches('"');
        if section == "package" && key == "name" {
            name = value.trim().trim_matches('"').to_owned();
        }
        if section.ends_with("dependencies") && section != "workspace.dependencies" {
            let renamed = value.split_once("package").and_then(|(_, rest)| rest.split('"').nth(1));
            needs.push(renamed.unwrap_or(key).to_owned());
        }
    }
    (name, needs)
}

fn wrong_arrows(source: &Source) -> Vec<String> {
    if !source.path.ends_with("Cargo.toml") {
        return Vec::new();
    }
    let (name, needs) = manifest(&source.text);
    let Some((_, allowed)) = ARROWS.iter().find(|(known, _)| *known == name) else {
        return vec![format!("{}: no rule says what {name} may depend on", source.path)];
    };
    let ours = |need: &&String| ARROWS.iter().any(|(known, _)| known == need);
    let wrong = needs.iter().filter(ours).filter(|need| !allowed.contains(&need.as_str()));
    wrong.map(|need| format!("{}: {name} must not depend on {need}", source.path)).collect()
}

/// The folder of a crate: its manifest's, but `prov` for the crate at the root.
fn folder(manifest: &Source) -> &str {
    manifest.path.strip_suffix("/Cargo.toml").unwrap_or("prov")
}

/// What each crate of ours uses of the others, as ARCHITECTURE.md has it: `folder -> folder, folder`.
fn arrows_of(manifests: &[&Source]) -> Vec<String> {
    let names: Vec<(String, &str)> =
        manifests.iter().map(|source| (manifest(&source.text).0, folder(source))).collect();
    let arrow = |source: &&Source| {
        let needs = manifest(&source.text).1;
        let used = ARROWS.iter().filter(|(known, _)| needs.iter().any(|need| need == known));
        let used = used.filter_map(|(known, _)| names.iter().find(|(name, _)| name == known));
        let mut used: Vec<&str> = used.map(|(_, folder)| *folder).collect();
        used.sort_unstable();
        format!("{} -> {}", folder(source), used.join(", "))
    };
    manifests.iter().map(arrow).collect()
}

/// The arrows of a document, in the same form.
fn arrows_told(text: &str) -> Vec<String> {
    let lines = text.lines().filter_map(|line| line.split_once("->"));
    let plain =
        lines.filter(|(from, _)| !from.trim().is_empty() && !from.contains(['`', '(', '"']));
    plain
        .map(|(from, to)| {
            let mut used: Vec<&str> =
                to.split(',').map(str::trim).filter(|to| !to.is_empty()).collect();
            used.sort_unstable();
            format!("{} -> {}", from.trim(), used.join(", "))
        })
        .collect()
}

fn assert_none(check: impl Fn(&Source) -> Vec<String>) {
    let found: Vec<String> = tree().iter().flat_map(check).collect();
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

#[test]
fn functions_and_files_are_short() {
    assert_none(lengths);
}

#[test]
fn no_word_is_out_of_place() {
    assert_none(words);
}

#[test]
fn unsafe_code_is_where_it_belongs() {
    assert_none(misplaced_unsafe);
}

#[test]
fn the_engine_forbids_unsafe_code() {
    let tree = tree();
    let path = "rd/src/lib.rs";
    let source = tree.iter().find(|source| source.path == path).expect(path);
    assert!(source.text.contains("forbid(unsafe_code)"), "{path}");
}

#[test]
fn crates_depend_one_way() {
    assert_none(wrong_arrows);
}

#[test]
fn the_architectures_arrows_are_those_of_the_manifests() {
    let tree = tree();
    let manifests: Vec<&Source> =
        tree.iter().filter(|source| source.path.ends_with("Cargo.toml")).collect();
    let path = "docs/ARCHITECTURE.md";
    let document = tree.iter().find(|source| source.path == path).expect(path);
    let block = document.text.split("```text").nth(1).expect("the list of arrows");
    let mut told = arrows_told(block.split("```").next().unwrap_or_default());
    let mut real = arrows_of(&manifests);
    told.sort_unstable();
    real.sort_unstable();
    assert_eq!(told, real, "{path}");
}

/// The files and functions in the rows of a table: both in backticks, in its first two columns.
fn steps_told(text: &str) -> Vec<(&str, Vec<&str>)> {
    fn ticked(cell: &str) -> Vec<&str> {
        cell.split('`').skip(1).step_by(2).collect()
    }
    let rows = text.lines().map(|line| line.split('|').collect::<Vec<_>>());
    let rows = rows.filter(|cells| cells.len() == 5 && cells[1].contains(".rs`"));
    rows.filter_map(|cells| Some((*ticked(cells[1]).first()?, ticked(cells[2])))).collect()
}

#[test]
fn the_ways_of_messages_name_real_functions() {
    let tree = tree();
    let document = tree.iter().find(|source| source.path == "docs/ARCHITECTURE.md").expect("it");
    let ways = document.text.split("file by file").skip(1);
    let ways = ways.map(|way| steps_told(way.split("\n\nRMA").next().unwrap_or(way)));
    let ways: Vec<_> = ways.collect();
    assert_eq!(ways.len(), 4, "a send, a receive, a write and a NACK");
    assert!(ways.iter().all(|steps| steps.len() > 8), "{ways:?}");
    for (file, functions) in ways.into_iter().flatten() {
        let source = tree.iter().find(|source| source.path == file).expect(file);
        let named: Vec<String> =
            rust_functions(&source.text).into_iter().map(|(_, name, _)| name).collect();
        for function in functions {
            assert!(named.iter().any(|name| name == function), "{file} has no fn {function}");
        }
    }
}

#[test]
fn planted_lengths_are_found() {
    let body = "    let _ = '{';\n".repeat(FUNCTION_LINES_MAX - 2);
    let just = format!("impl X {{\npub(crate) fn just<T>(\n) {{\n{}}}\n}}\n", &body[18..]);
    assert_eq!(lengths(&Source::new("a.rs", &just)), Vec::<String>::new());
    let long = format!("fn brief() {{ \"}}\"; }}\nconst fn long() {{\n{body}    // }}\n}}\n");
    let found = lengths(&Source::new("a.rs", &long));
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("a.rs:2: long has 71 lines"), "{found:?}");
    let c = format!("static int f(void)\n{{\n{}}}\n", "    g();\n".repeat(FUNCTION_LINES_MAX));
    assert!(lengths(&Source::new("a.c", &c))[0].contains("f(void) has 73 lines"));
    let file = "x\n".repeat(FILE_LINES_MAX + 1);
    for name in ["a.py", "a.lua"] {
        assert_eq!(lengths(&Source::new(name, &file)).len(), 1, "{name}");
    }
    assert_eq!(lengths(&Source::new("a.md", &file)).len(), 0);
}

#[test]
fn literals_and_comments_are_not_code() {
    let text = "a /* { /* } */ { */ b // {\n\"\\\"{\" c r#\"\"{\"# d '{' e '\\'' &'x f";
    let code = code_only(text);
    assert!(!code.contains('{'), "{code}");
    let words: Vec<&str> = code.split_whitespace().collect();
    assert_eq!(words, ["a", "b", "c", "d", "e", "&'x", "f"]);
    assert_eq!(code.lines().count(), 2);
}

#[test]
fn planted_words_are_found() {
    for (word, _) in FORBIDDEN {
        let found = words(&Source::new("docs/a.md", &format!("one\ntwo {word}x\n")));
        assert_eq!(found.len(), 1, "{word}");
        assert!(found[0].starts_with("docs/a.md:2: "), "{found:?}");
    }
    assert_eq!(words(&Source::new("a.md", "target/release and ./tests")).len(), 0);
}

#[test]
fn planted_unsafe_is_found() {
    // In two parts, so that who looks for the word in this tree finds code alone.
    let text = ["fn f() { un", "safe { g() } }\n"].concat();
    let text = text.as_str();
    assert_eq!(misplaced_unsafe(&Source::new("rd/src/a.rs", text)).len(), 1);
    assert_eq!(misplaced_unsafe(&Source::new("xtask/src/a.rs", text)).len(), 1);
    assert_eq!(misplaced_unsafe(&Source::new("ffi/src/a.rs", text)).len(), 0);
    let harmless = "#![forbid(unsafe_code)]\n// unsafe\nconst X: &str = \"unsafe\";\n";
    assert_eq!(misplaced_unsafe(&Source::new("rd/src/a.rs", harmless)).len(), 0);
}

#[test]
fn planted_arrows_are_found() {
    let cases = [
        ("[package]\nname = \"erd-rd\"\n[dependencies]\nerd-ffi.workspace = true\n", 1),
        (
            "[package]\nname = \"erd-rd\"\n[dev-dependencies]\nx = { package = \"erd\", path = \"..\" }\n",
            1,
        ),
        (
            "[package]\nname = \"erd-ffi\"\n[target.'cfg(unix)'.dependencies]\nerd = { path = \"..\" }\n",
            1,
        ),
        ("[package]\nname = \"erd-ffi\"\n[dependencies.erd]\npath = \"..\"\n", 1),
        ("[package]\nname = \"newcomer\"\n", 1),
        (
            "[package]\nname = \"erd-port\"\n[dependencies]\nerd-sys.workspace = true\nlibc = \"1\"\n",
            0,
        ),
        ("[workspace.dependencies]\nerd-ffi = { path = \"ffi\" }\n[package]\nname = \"erd\"\n", 0),
    ];
    for (text, count) in cases {
        assert_eq!(wrong_arrows(&Source::new("x/Cargo.toml", text)).len(), count, "{text}");
    }
}
