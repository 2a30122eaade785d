//! What is wrong with the files of a schema, and where.

use std::fmt;
use std::sync::Arc;

/// Defects that are told at once, at most.
const SHOWN_MAX: usize = 20;

/// A place in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) file: Arc<str>,
    /// From 1.
    pub(super) line: usize,
    /// From 1.
    pub(super) column: usize,
}

/// One defect: file, line, column and what is wrong there, with the value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Defect {
    place: Place,
    what: String,
}

impl Defect {
    pub(super) fn new(place: &Place, what: impl Into<String>) -> Defect {
        Defect {
            place: place.clone(),
            what: what.into(),
        }
    }
}

impl fmt::Display for Defect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Place { file, line, column } = &self.place;
        write!(f, "{file}:{line}:{column}: {}", self.what)
    }
}

/// Why files are no schema: a line for each defect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaError {
    defects: Vec<Defect>,
    /// What is wrong besides, about no place in a file.
    text: Option<String>,
}

impl SchemaError {
    /// In the order of their places.
    pub(super) fn of_defects(mut defects: Vec<Defect>) -> SchemaError {
        let place = |it: &Defect| (it.place.file.to_string(), it.place.line, it.place.column);
        defects.sort_by_key(place);
        SchemaError {
            defects,
            text: None,
        }
    }

    /// About no place in a file.
    pub(crate) fn of_text(text: impl Into<String>) -> SchemaError {
        SchemaError {
            defects: Vec::new(),
            text: Some(text.into()),
        }
    }
}

impl fmt::Display for SchemaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.defects.iter().take(SHOWN_MAX).map(Defect::to_string);
        let more = self.defects.len().saturating_sub(SHOWN_MAX);
        let more = (more > 0).then(|| format!("and {more} more"));
        let lines: Vec<String> = self.text.iter().cloned().chain(shown).chain(more).collect();
        f.write_str(&lines.join("\n"))
    }
}

impl std::error::Error for SchemaError {}
