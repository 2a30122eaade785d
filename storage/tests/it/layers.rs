//! The layers of `storage/src`: which file uses which, read from their `use` lines. That no files
//! import each other in a circle is checked for all crates by `cargo tidy`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// The folders of `storage/src`, each of which may use those before it. Files beside them
/// (`planted.rs`, `histogram.rs`) use no folder.
const LAYERS: [&str; 8] = [
    "types", "format", "memory", "log", "store", "recovery", "repair", "scan",
];
/// A module by its path below `crate`; the root is empty.
type Module = Vec<String>;

/// What the files of a crate import.
#[derive(Default)]
struct Imports {
    /// The text of each file, without what is compiled for tests alone.
    files: BTreeMap<Module, String>,
    /// The module that a module re-exports under a name: `pub use page::Name`.
    handed_on: BTreeMap<(Module, String), Module>,
}

impl Imports {
    fn of(folder: &Path) -> Imports {
        let mut imports = Imports::default();
        imports.read(folder, &[]);
        let mut handed_on = BTreeMap::new();
        for (module, text) in &imports.files {
            for (is_public, path) in uses(module, text) {
                if is_public && let Some((name, parent)) = path.split_last() {
                    handed_on.insert((module.clone(), name.clone()), parent.to_vec());
                }
            }
        }
        imports.handed_on = handed_on;
        imports
    }

    fn read(&mut self, folder: &Path, above: &[String]) {
        for entry in fs::read_dir(folder).expect("the sources are there") {
            let path = entry.expect("a folder can be listed").path();
            let name = path.file_stem().and_then(|name| name.to_str());
            let name = name.expect("names are plain").to_string();
            let mut module = above.to_vec();
            if path.is_dir() {
                module.push(name);
                self.read(&path, &module);
            } else {
                if name != "mod" && name != "lib" {
                    module.push(name);
                }
                let text = fs::read_to_string(&path).expect("sources are text");
                let text = text.split("\n#[cfg(test)]").next().unwrap_or_default();
                self.files.insert(module, text.to_string());
            }
        }
    }

    /// The file in which the item of a path stands.
    fn file_of(&self, path: &[String]) -> Option<Module> {
        let mut path = path.to_vec();
        for _ in 0..8 {
            let known = (0..=path.len())
                .rev()
                .find(|&len| self.files.contains_key(&path[..len]))?;
            let module = path[..known].to_vec();
            let Some(name) = path.get(known) else {
                return Some(module);
            };
            match self.handed_on.get(&(module.clone(), name.clone())) {
                Some(parent) => {
                    let rest = path.split_off(known);
                    path.clone_from(parent);
                    path.extend(rest);
                }
                None => return Some(module),
            }
        }
        panic!("{path:?} is handed on in a circle");
    }

    /// The files that each file uses.
    fn edges(&self) -> BTreeMap<Module, BTreeSet<Module>> {
        let edges_of = |module: &Module, text: &String| {
            uses(module, text)
                .filter(|(is_public, _)| !is_public)
                .filter_map(|(_, path)| self.file_of(&path))
                .filter(|used| used != module)
                .collect()
        };
        let files = self.files.iter();
        files
            .map(|(module, text)| (module.clone(), edges_of(module, text)))
            .collect()
    }
}

/// The paths of this crate that a file uses, one for each name, and whether it hands them on.
fn uses(module: &[String], text: &str) -> impl Iterator<Item = (bool, Vec<String>)> {
    let mut found = Vec::new();
    for statement in text.split('\n').scan(None::<String>, |open, line| {
        // One item for each line: the statement that ends there, if one does.
        let begins = line.trim_start();
        let begins = begins
            .strip_prefix("pub ")
            .or(begins.strip_prefix("pub(crate) "))
            .unwrap_or(begins);
        if open.is_none() && begins.starts_with("use ") {
            *open = Some(String::new());
        }
        let ended = open.as_mut().and_then(|statement| {
            statement.push_str(line.trim());
            statement.ends_with(';').then(|| statement.clone())
        });
        if ended.is_some() {
            *open = None;
        }
        Some(ended)
    }) {
        let Some(statement) = statement else { continue };
        let (visible, tree) = statement.split_once("use ").expect("it begins so");
        for path in leaves(tree.trim_end_matches(';')) {
            let path: Vec<String> = path.split("::").map(str::to_string).collect();
            let absolute = match path[0].as_str() {
                "crate" => path[1..].to_vec(),
                "self" => [module, &path[1..]].concat(),
                "super" => {
                    let ups = path.iter().take_while(|it| *it == "super").count();
                    let above = module.len().saturating_sub(ups);
                    [&module[..above], &path[ups..]].concat()
                }
                "std" | "crc32fast" => continue,
                _ => [module, &path[..]].concat(),
            };
            found.push((!visible.is_empty(), absolute));
        }
    }
    found.into_iter()
}

/// The paths of a tree of imports.
fn leaves(tree: &str) -> Vec<String> {
    let tree = tree.trim();
    let Some((prefix, inner)) = tree.split_once('{') else {
        return vec![tree.split(" as ").next().unwrap_or_default().to_string()];
    };
    let inner = inner.strip_suffix('}').expect("a group ends");
    let mut depth = 0;
    let names = inner.split(|letter| {
        depth += i32::from(letter == '{') - i32::from(letter == '}');
        letter == ',' && depth == 0
    });
    let names = names.filter(|name| !name.trim().is_empty());
    names
        .flat_map(leaves)
        .map(|name| format!("{prefix}{name}"))
        .collect()
}

fn imports_of_this_crate() -> Imports {
    Imports::of(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"))
}

#[test]
fn a_layer_uses_only_layers_before_it() {
    let place = |module: &Module| {
        LAYERS
            .iter()
            .position(|layer| module.first().is_some_and(|it| it == layer))
    };
    let edges = imports_of_this_crate().edges();
    let count: usize = edges.values().map(BTreeSet::len).sum();
    assert!(count > 100, "only {count} imports were read");
    for (module, used) in edges {
        for used in used {
            let (Some(at), Some(of)) = (place(&module), place(&used)) else {
                continue;
            };
            assert!(of <= at, "{} uses {}", module.join("/"), used.join("/"));
        }
    }
}

#[test]
fn imports_are_read_through_groups_and_modules_that_hand_names_on() {
    let module = ["store".to_string(), "page".to_string()];
    let text = "use crate::a::{B, c::{self, D}};\npub use super::E;\nuse std::fmt;\n";
    let read: Vec<(bool, String)> = uses(&module, text)
        .map(|(is_public, path)| (is_public, path.join("/")))
        .collect();
    let of = |path: &str, is_public| (is_public, path.to_string());
    assert_eq!(
        read,
        [
            of("a/B", false),
            of("a/c/self", false),
            of("a/c/D", false),
            of("store/E", true)
        ]
    );
}
