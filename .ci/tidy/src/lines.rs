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
        let places: Vec<String> = text
            .lines()
            .enumerate()
            .filter(|(_, line)| is_long(line, path))
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
fn is_long(line: &str, path: &str) -> bool {
    line.chars().count() > LINE_CHARS_MAX
        && !is_row(line.trim_start(), path)
        && line
            .split_whitespace()
            .all(|word| word.chars().count() <= WORD_CHARS_MAX)
}

/// Whether a line is a row of a Markdown table: in a document, or in a documentation comment.
fn is_row(line: &str, path: &str) -> bool {
    let text = match path.ends_with(".md") {
        true => Some(line),
        false => ["//! ", "/// "].iter().find_map(|it| line.strip_prefix(it)),
    };
    text.is_some_and(|text| text.starts_with('|'))
}
