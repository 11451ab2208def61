//! Who imports whom within a crate, read from the real `use` items.
//!
//! A file imports another if one of its `use` items, outside tests, leads to something that the other
//! declares. What a parent module re-exports leads to the file that declares it, and the re-exports
//! themselves are left out. Paths within code are not looked at.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use syn::{Attribute, Item, UseTree};

/// Crates whose files are looked at: the root file, and how many files are in circles of imports. Who
/// breaks a circle notes the smaller number here; nobody notes a larger one.
const CRATES: &[(&str, usize)] = &[
    ("types/src/lib.rs", 0),
    ("rd/src/lib.rs", 0),
    ("crypto/src/lib.rs", 0),
    ("sys/src/lib.rs", 0),
    ("ffi/src/lib.rs", 6),
    ("port/src/lib.rs", 6),
    ("core/src/lib.rs", 0),
    ("prov/lib.rs", 3),
    ("sim/src/lib.rs", 0),
    ("so/src/lib.rs", 0),
    ("tests/relay/src/main.rs", 0),
    ("tool/src/main.rs", 0),
    ("tests/e2e/src/lib.rs", 0),
    ("xtask/src/main.rs", 0),
];

/// Keywords before a name that a macro declares; `table` is our own.
const DECLARING: [&str; 8] = ["const", "enum", "fn", "static", "struct", "table", "type", "union"];

/// A module with a file of its own, by its path from the crate's root.
type Name = Vec<String>;

/// What a file says about modules and imports.
#[derive(Debug, Default)]
struct Module {
    /// Names that the file declares itself.
    declares: BTreeSet<String>,
    /// What it re-exports: the name here, and the whole path there.
    exports: BTreeMap<String, Name>,
    /// Modules of which it re-exports everything.
    globs: Vec<Name>,
    /// Paths that it imports.
    imports: Vec<Name>,
}

/// The modules of a crate.
#[derive(Debug, Default)]
struct Crate {
    modules: BTreeMap<Name, Module>,
}

impl Crate {
    fn read(root: &Path) -> Crate {
        let mut found = Crate::default();
        let dir = root.parent().expect("a root file has a directory");
        found.add(root, dir, Vec::new());
        found
    }

    /// Reads a module's file and its children's, which lie in `dir`.
    fn add(&mut self, file: &Path, dir: &Path, name: Name) {
        let text = fs::read_to_string(file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        let (module, children) = Module::read(&text, &name);
        self.modules.insert(name.clone(), module);
        for (child, path) in children {
            let (flat, nested) = (dir.join(format!("{child}.rs")), dir.join(&child).join("mod.rs"));
            let file = match path {
                Some(path) => file.parent().expect("a file's directory").join(path),
                None if flat.exists() => flat,
                None => nested,
            };
            self.add(&file, &dir.join(&child), joined(&name, &child));
        }
    }

    /// The module that declares what `path` leads to; `None` for another crate's.
    fn owner(&self, path: &[String], depth: usize) -> Option<&Name> {
        let long = (1..=path.len()).rev().find(|len| self.modules.contains_key(&path[..*len]));
        let len = long.unwrap_or(0);
        let (name, module) = self.modules.get_key_value(&path[..len])?;
        let Some(item) = path.get(len) else { return Some(name) };
        if module.declares.contains(item) || depth == 0 {
            return Some(name);
        }
        let export = module.exports.get(item).map(|to| [to, &path[len + 1..]].concat());
        let globs = module.globs.iter().map(|to| [to, &path[len..]].concat());
        let found = export.into_iter().chain(globs).find_map(|to| {
            self.owner(&to, depth - 1).filter(|owner| self.modules[*owner].knows(&to, owner))
        });
        found.or(Some(name))
    }

    /// Which module imports which.
    fn arrows(&self) -> BTreeMap<&Name, BTreeSet<&Name>> {
        let of = |(name, module): (&'_ Name, &'_ Module)| -> BTreeSet<&Name> {
            let owners = module.imports.iter().filter_map(|path| self.owner(path, 8));
            owners.filter(|owner| *owner != name).collect()
        };
        self.modules.iter().map(|entry| (entry.0, of(entry))).collect()
    }
}

impl Module {
    /// Whether the module, called `name`, has the item that `path` leads to.
    fn knows(&self, path: &[String], name: &[String]) -> bool {
        path.get(name.len()).is_none_or(|item| {
            self.declares.contains(item)
                || self.exports.contains_key(item)
                || !self.globs.is_empty()
        })
    }

    /// What a file says, and its child modules with the paths that they are given.
    fn read(text: &str, name: &[String]) -> (Module, Vec<(String, Option<String>)>) {
        let file = syn::parse_file(text).expect("Rust source");
        let (mut module, mut children) = (Module::default(), Vec::new());
        let children_of = file.items.iter().filter_map(|item| match item {
            Item::Mod(child) => Some(child.ident.to_string()),
            _ => None,
        });
        let known: BTreeSet<String> = children_of.collect();
        for item in file.items.iter().filter(|item| !is_test(item)) {
            match item {
                Item::Mod(child) if child.content.is_none() => {
                    children.push((child.ident.to_string(), given_path(&child.attrs)));
                }
                Item::Use(item) => {
                    let exported = !matches!(item.vis, syn::Visibility::Inherited);
                    let mut paths = Vec::new();
                    leaves(&item.tree, &mut Vec::new(), &mut paths);
                    for (path, alias) in paths {
                        let Some(path) = absolute(path, name, &known) else { continue };
                        module.note(path, alias, exported);
                    }
                }
                Item::Macro(item) => module.declares.extend(named_in(&item.mac.tokens.to_string())),
                item => module.declares.extend(declared(item)),
            }
        }
        (module, children)
    }

    fn note(&mut self, mut path: Name, alias: Option<String>, exported: bool) {
        let is_glob = path.last().is_some_and(|last| last == "*");
        if is_glob {
            path.pop();
        }
        if !exported {
            self.imports.push(path);
        } else if is_glob {
            self.globs.push(path);
        } else if let Some(here) = alias.or_else(|| path.last().cloned()) {
            self.exports.insert(here, path);
        }
    }
}

fn joined(name: &[String], child: &str) -> Name {
    name.iter().cloned().chain([child.to_owned()]).collect()
}

/// The file that `#[path = "..."]` names.
fn given_path(attributes: &[Attribute]) -> Option<String> {
    let path = attributes.iter().find(|attribute| attribute.path().is_ident("path"))?;
    let syn::Meta::NameValue(given) = &path.meta else { return None };
    let syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) = &given.value else {
        return None;
    };
    Some(text.value())
}

/// The item is there in tests alone.
fn is_test(item: &Item) -> bool {
    let attributes = match item {
        Item::Mod(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => return false,
    };
    attributes.iter().any(|attribute| match &attribute.meta {
        syn::Meta::List(list) if list.path.is_ident("cfg") => list.tokens.to_string() == "test",
        _ => false,
    })
}

/// The name that an item declares.
fn declared(item: &Item) -> Option<String> {
    let ident = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Mod(item) => &item.ident,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(ident.to_string())
}

/// The names that come after a keyword of declarations in what a macro is given.
fn named_in(tokens: &str) -> Vec<String> {
    let words: Vec<&str> = tokens.split_whitespace().collect();
    let declares = |word: &str| DECLARING.contains(&word);
    let pairs = words.windows(2).filter(|pair| declares(pair[0]));
    pairs.map(|pair| pair[1].trim_end_matches(|c| "(:;<{".contains(c)).to_owned()).collect()
}

/// The paths of a `use` item, and the names that they get.
fn leaves(tree: &UseTree, before: &mut Name, found: &mut Vec<(Name, Option<String>)>) {
    match tree {
        UseTree::Path(path) => {
            before.push(path.ident.to_string());
            leaves(&path.tree, before, found);
            before.pop();
        }
        UseTree::Group(group) => {
            group.items.iter().for_each(|tree| leaves(tree, before, found));
        }
        UseTree::Name(name) if name.ident == "self" => found.push((before.clone(), None)),
        UseTree::Name(name) => found.push((joined(before, &name.ident.to_string()), None)),
        UseTree::Rename(rename) => {
            let path = joined(before, &rename.ident.to_string());
            found.push((path, Some(rename.rename.to_string())));
        }
        UseTree::Glob(_) => found.push((joined(before, "*"), None)),
    }
}

/// The path from the crate's root; `None` if it leads to another crate.
fn absolute(path: Name, module: &[String], children: &BTreeSet<String>) -> Option<Name> {
    let ups = path.iter().take_while(|part| *part == "super").count();
    let (start, rest) = match path.first()?.as_str() {
        "crate" => (&module[..0], &path[1..]),
        "self" => (module, &path[1..]),
        "super" => (&module[..module.len().checked_sub(ups)?], &path[ups..]),
        first if children.contains(first) => (module, &path[..]),
        _ => return None,
    };
    Some([start, rest].concat())
}

/// The modules that lead back to themselves.
fn in_circles<'a>(arrows: &BTreeMap<&'a Name, BTreeSet<&'a Name>>) -> Vec<&'a Name> {
    arrows.keys().copied().filter(|from| reach(arrows, from).contains(*from)).collect()
}

/// The modules that `from` leads to, over any number of arrows.
fn reach<'a>(
    arrows: &BTreeMap<&'a Name, BTreeSet<&'a Name>>,
    from: &'a Name,
) -> BTreeSet<&'a Name> {
    let (mut found, mut open) = (BTreeSet::new(), vec![from]);
    while let Some(next) = open.pop() {
        open.extend(arrows[next].iter().filter(|to| found.insert(**to)));
    }
    found
}

#[test]
fn circles_of_imports_do_not_grow() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let mut wrong = Vec::new();
    for (file, allowed) in CRATES {
        let found = Crate::read(&root.join(file));
        let arrows = found.arrows();
        let circles = in_circles(&arrows);
        println!("{file}: {} files, {} in circles", found.modules.len(), circles.len());
        if circles.len() != *allowed {
            let names: Vec<String> = circles.iter().map(|name| name.join("::")).collect();
            let (len, names) = (circles.len(), names.join(", "));
            wrong.push(format!("{file}: {len} files in circles, {allowed} are noted: {names}"));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// A crate of these files: each module's path, and its text.
fn planted(files: &[(&str, &str)]) -> Crate {
    let modules = files.iter().map(|(name, text)| {
        let name: Name =
            name.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect();
        let module = Module::read(text, &name).0;
        (name, module)
    });
    Crate { modules: modules.collect() }
}

#[test]
fn planted_circles_are_found() {
    let lib = ("", "mod a; mod b; mod c; pub use c::C;");
    let circle = planted(&[
        lib,
        ("a", "use crate::b::{self, B}; pub struct A;"),
        ("b", "use super::C; pub struct B;"),
        ("c", "use crate::a::A as Other; pub struct C; #[cfg(test)] mod tests {}"),
    ]);
    assert_eq!(in_circles(&circle.arrows()).len(), 3, "over a re-export and another name");
    let line = planted(&[
        lib,
        ("a", "use crate::b::B; pub struct A;"),
        ("b", "use crate::C; use std::fmt; #[cfg(test)] use crate::a::A; pub struct B;"),
        ("c", "pub struct C;"),
    ]);
    assert_eq!(in_circles(&line.arrows()).len(), 0, "tests may import what they test");
    let macros = planted(&[
        ("", "mod a; mod b; pub use b::*;"),
        ("a", "use super::B; pub struct A;"),
        ("b", "use super::a::A; structs! { struct B { a: u8 } }"),
    ]);
    assert_eq!(in_circles(&macros.arrows()).len(), 2, "over what a macro declares");
    let glob = planted(&[
        ("", "mod a; mod b; pub use b::*;"),
        ("a", "use crate::B; pub struct A;"),
        ("b", "use super::a::*; pub struct B;"),
    ]);
    assert_eq!(in_circles(&glob.arrows()).len(), 2, "over everything that a module has");
}
