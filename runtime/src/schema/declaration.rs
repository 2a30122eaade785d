//! What the files say, before anything of it is understood.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::defect::{Defect, Place};
use penstock_net::expression::ExpressionError;

/// A text of a file, and where it begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    pub(super) text: String,
    pub(super) place: Place,
    /// Each character of the text is one of the file, so that a column within it can be told.
    pub(super) is_verbatim: bool,
}

impl Written {
    /// The text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// A defect at this character of the text, from 1.
    pub(super) fn defect_at(&self, column: usize, what: impl Into<String>) -> Defect {
        let mut place = self.place.clone();
        if self.is_verbatim {
            place.column += column.saturating_sub(1);
        }
        Defect::new(&place, what)
    }

    /// A defect of the whole text.
    pub(super) fn defect(&self, what: impl Into<String>) -> Defect {
        Defect::new(&self.place, what)
    }

    /// The defect that an error about this text is, if so many characters stand before it in what
    /// was read.
    pub(super) fn misread(&self, error: &ExpressionError, before: usize) -> Defect {
        let column = error.column().saturating_sub(before).max(1);
        let rest: String = self.text.chars().skip(column - 1).collect();
        let (text, allowed) = (&self.text, error.allowed());
        let what = match rest.is_empty() {
            true => format!("{text:?}: it ends where {allowed} is expected"),
            false => format!("{text:?}: found {rest:?}, allowed is {allowed}"),
        };
        self.defect_at(column, what)
    }
}

/// A layout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LayoutDeclaration {
    pub(super) name: Written,
    pub(super) fields: Vec<Written>,
    /// Bytes of the fixed fields, if that is said.
    pub(super) bytes: Option<Written>,
}

/// A program as its file declares it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramDeclaration {
    pub(super) name: Written,
    /// Its keys, as `NAME:LAYOUT` or `NAME`.
    pub keys: Vec<Written>,
    /// Its arguments, as `NAME:TYPE` and perhaps a range.
    pub arguments: Vec<Written>,
    /// Its guards and effects.
    pub instructions: Vec<Written>,
    /// The numbers that its answer tells besides.
    pub returns: Vec<Written>,
}

/// All that the files declare.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Declarations {
    pub(super) layouts: Vec<LayoutDeclaration>,
    pub(super) programs: Vec<ProgramDeclaration>,
}

impl Declarations {
    /// Reads what a server tells.
    ///
    /// # Errors
    /// What is missing.
    pub(super) fn of_json(text: &str) -> Result<Declarations, String> {
        let value: Value = serde_json::from_str(text)
            .map_err(|error| format!("the server's schema is no JSON: {error}"))?;
        let place = Place {
            file: "the server's schema".into(),
            line: 1,
            column: 1,
        };
        let written = |text: &str| Written {
            text: text.into(),
            place: place.clone(),
            is_verbatim: false,
        };
        let texts = |owner: &Value, name: &str| -> Result<Vec<Written>, String> {
            let found = owner.get(name).and_then(Value::as_array);
            let all = found.ok_or_else(|| format!("the server's schema has no {name}"))?;
            let texts = all.iter().map(|it| it.as_str().map(written));
            texts
                .collect::<Option<_>>()
                .ok_or_else(|| format!("the server's schema has no texts in {name}"))
        };
        let mut declarations = Declarations::default();
        for (name, layout) in members(&value, "layouts")? {
            let bytes = layout.get("bytes").map(Value::to_string);
            declarations.layouts.push(LayoutDeclaration {
                name: written(name),
                fields: texts(layout, "fields")?,
                bytes: bytes.map(|bytes| written(&bytes)),
            });
        }
        for (name, program) in members(&value, "programs")? {
            declarations.programs.push(ProgramDeclaration {
                name: written(name),
                keys: texts(program, "keys")?,
                arguments: texts(program, "arguments")?,
                instructions: texts(program, "instructions")?,
                returns: texts(program, "returns")?,
            });
        }
        Ok(declarations)
    }

    /// The layout with this name that stands first.
    pub(super) fn layout(&self, name: &str) -> Option<&LayoutDeclaration> {
        self.layouts.iter().find(|it| it.name.text == name)
    }
}

fn members<'a>(value: &'a Value, name: &str) -> Result<&'a Map<String, Value>, String> {
    let found = value.get(name).and_then(Value::as_object);
    found.ok_or_else(|| format!("the server's schema has no {name}"))
}

/// The place of a byte in the text of a file.
pub(super) fn place_in(file: &Arc<str>, text: &str, at: usize) -> Place {
    let before = &text[..at.min(text.len())];
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    Place {
        file: Arc::clone(file),
        line: before.matches('\n').count() + 1,
        column: before[line_start..].chars().count() + 1,
    }
}
