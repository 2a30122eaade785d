//! Paths that a document names.

use crate::{Finding, Rule, Tree};

/// Ends of names that are files of a repository wherever they stand.
const ENDS: [&str; 3] = [".rs", ".md", ".sh"];

/// Documents that name what does not exist.
pub fn findings(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for (document, text) in tree.texts(".md") {
        let places: Vec<String> = named(text)
            .into_iter()
            .filter(|(_, name)| !stands(tree, document, name))
            .map(|(line, name)| format!("{document}:{line}: {name}"))
            .collect();
        if !places.is_empty() {
            found.push(Finding {
                rule: Rule::Path,
                subject: document.to_string(),
                figure: places.len(),
                places,
            });
        }
    }
    found
}

/// Names that may be paths, with their lines: targets of links, words of code spans and of code
/// blocks.
fn named(text: &str) -> Vec<(usize, Name)> {
    let mut names = Vec::new();
    let mut is_block = false;
    for (at, line) in text.lines().enumerate() {
        let mut add = |name| names.push((at + 1, name));
        if line.trim_start().starts_with("```") {
            is_block = !is_block;
            continue;
        }
        if is_block {
            words(line).for_each(|word| add(Name::Word(word)));
            continue;
        }
        for target in line.split("](").skip(1) {
            let target = target.split([')', '#', ' ']).next().unwrap_or("");
            if !target.is_empty() && !target.contains(':') {
                add(Name::Link(target.to_string()));
            }
        }
        // A span that goes on in the next line is not read.
        for span in line.split('`').skip(1).step_by(2) {
            words(span).for_each(|word| add(Name::Word(word)));
        }
    }
    names
}

/// Something that may be a path.
enum Name {
    /// The target of a link: it is one.
    Link(String),
    /// A word of code.
    Word(String),
}

impl std::fmt::Display for Name {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Name::Link(name) | Name::Word(name) => to.write_str(name),
        }
    }
}

/// The words that can be a relative path, without a line number behind them.
fn words(code: &str) -> impl Iterator<Item = String> {
    let is_end = |c: char| c.is_whitespace() || "\"'(),;=".contains(c);
    code.split(is_end).filter_map(|word| {
        let word = match word.split_once(':') {
            Some((path, line)) if line.bytes().all(|byte| byte.is_ascii_digit()) => path,
            _ => word,
        };
        let word = word.trim_end_matches('.');
        let can_be = |c: char| c.is_ascii_alphanumeric() || "_./-@".contains(c);
        let is_path = !word.is_empty() && word.chars().all(can_be) && !word.contains("..");
        is_path.then(|| word.to_string())
    })
}

/// Whether a name is no path, or one from the root, from the document's folder, or from a folder
/// above it up to that of its crate.
fn stands(tree: &Tree, document: &str, name: &Name) -> bool {
    let folder = document.rsplit_once('/').map_or("", |(folder, _)| folder);
    let name = match name {
        Name::Link(target) => return tree.exists(&within(folder, target)),
        Name::Word(name) => name,
    };
    if !name.contains('/') {
        let is_file = [".rs", ".md"].iter().any(|end| name.ends_with(end));
        let stem = name.rsplit_once('.').map_or("", |(stem, _)| stem);
        return !is_file || stem.is_empty() || tree.has_name(name);
    }
    let first = name.split('/').next().unwrap_or("");
    let is_ours = ENDS.iter().any(|end| name.ends_with(end)) || tree.exists(first);
    if first.is_empty() || first == "." || first == "target" || !is_ours {
        return true;
    }
    let mut folders = folder;
    loop {
        if tree.exists(&within(folders, name)) {
            return true;
        }
        let is_crate = tree.text(&within(folders, "Cargo.toml")).is_some();
        match folders.rsplit_once('/') {
            Some((up, _)) if !is_crate => folders = up,
            _ => return tree.exists(name),
        }
    }
}

fn within(folder: &str, path: &str) -> String {
    match folder {
        "" => path.to_string(),
        folder => format!("{folder}/{path}"),
    }
}
