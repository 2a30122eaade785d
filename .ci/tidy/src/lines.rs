//! The length of files and of lines.

use crate::{FILE_LINES_MAX, Finding, LINE_CHARS_MAX, Rule, Tree, WORD_CHARS_MAX};

/// Files and lines that are too long.
pub fn findings(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for (path, text) in tree.texts("") {
        let lines = text.lines().count();
        if lines > FILE_LINES_MAX {
            found.push(Finding {
                rule: Rule::File,
                subject: path.to_string(),
                figure: lines,
                places: vec![format!("{path}:{lines}: the last line")],
            });
        }
        let is_document = path.ends_with(".md");
        let places: Vec<String> = text
            .lines()
            .enumerate()
            .filter(|(_, line)| is_long(line, is_document))
            .map(|(at, line)| format!("{path}:{}: {} characters", at + 1, line.chars().count()))
            .collect();
        if !places.is_empty() {
            found.push(Finding {
                rule: Rule::Line,
                subject: path.to_string(),
                figure: places.len(),
                places,
            });
        }
    }
    found
}

/// A row of a table and a very long word cannot be broken.
fn is_long(line: &str, is_document: bool) -> bool {
    line.chars().count() > LINE_CHARS_MAX
        && !(is_document && line.trim_start().starts_with('|'))
        && line
            .split_whitespace()
            .all(|word| word.chars().count() <= WORD_CHARS_MAX)
}
