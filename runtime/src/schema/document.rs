//! A TOML file becomes declarations. Pure.

use std::ops::Range;
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::declaration::{Declarations, LayoutDeclaration, ProgramDeclaration, Written, place_in};
use super::defect::{Defect, Place};

/// Reads a file and adds what it declares.
pub(super) fn read(
    name: &str,
    text: &str,
    declarations: &mut Declarations,
    defects: &mut Vec<Defect>,
) {
    let file = Document {
        name: name.into(),
        text,
    };
    match DeTable::parse(text) {
        Ok(table) => file.tables(table.get_ref(), declarations, defects),
        Err(error) => {
            let at = error.span().map_or(0, |span| span.start);
            let what = error.message().replace('\n', ", ");
            let place = file.place(at);
            defects.push(Defect::new(&place, format!("it is not TOML: {what}")));
        }
    }
}

struct Document<'a> {
    name: Arc<str>,
    text: &'a str,
}

type Value<'a> = Spanned<DeValue<'a>>;

/// The entries of a table in the order of the file: name, place of the name, value.
fn entries<'t, 'a>(table: &'t DeTable<'a>) -> Vec<(&'t str, Range<usize>, &'t Value<'a>)> {
    let entries = table.iter();
    let mut entries: Vec<_> = entries
        .map(|(key, value)| (key.get_ref().as_ref(), key.span(), value))
        .collect();
    entries.sort_by_key(|(_, span, _)| span.start);
    entries
}

impl Document<'_> {
    fn place(&self, at: usize) -> Place {
        place_in(&self.name, self.text, at)
    }

    fn defect(&self, span: &Range<usize>, what: impl Into<String>) -> Defect {
        Defect::new(&self.place(span.start), what)
    }

    /// The first line of a value as it is written.
    fn shown(&self, span: &Range<usize>) -> &str {
        let raw = self.text.get(span.clone()).unwrap_or_default().trim();
        raw.lines().next().unwrap_or_default()
    }

    fn tables(
        &self,
        table: &DeTable<'_>,
        declarations: &mut Declarations,
        defects: &mut Vec<Defect>,
    ) {
        for (name, span, value) in entries(table) {
            let kind = match name {
                "layout" | "program" => name,
                _ => {
                    let what = format!("{name:?}: a file has tables [layout.NAME], [program.NAME]");
                    defects.push(self.defect(&span, what));
                    continue;
                }
            };
            let DeValue::Table(named) = value.get_ref() else {
                let what = format!("{kind} is a table, not {}", self.shown(&value.span()));
                defects.push(self.defect(&value.span(), what));
                continue;
            };
            for (name, span, value) in entries(named) {
                let DeValue::Table(body) = value.get_ref() else {
                    let shown = self.shown(&value.span());
                    let what = format!("{kind}.{name} is a table, not {shown}");
                    defects.push(self.defect(&value.span(), what));
                    continue;
                };
                let name = Written {
                    text: name.into(),
                    place: self.place(span.start),
                    is_verbatim: false,
                };
                match kind {
                    "layout" => {
                        let layout = self.layout(name, body, defects);
                        declarations.layouts.extend(layout);
                    }
                    _ => {
                        let program = self.program(name, body, defects);
                        declarations.programs.extend(program);
                    }
                }
            }
        }
    }

    fn layout(
        &self,
        name: Written,
        body: &DeTable<'_>,
        defects: &mut Vec<Defect>,
    ) -> Option<LayoutDeclaration> {
        let (mut fields, mut bytes, before) = (None, None, defects.len());
        for (key, span, value) in entries(body) {
            match (key, value.get_ref()) {
                ("fields", _) => fields = self.texts("fields", value, defects),
                ("bytes", DeValue::Integer(_)) => {
                    bytes = Some(Written {
                        text: self.shown(&value.span()).into(),
                        place: self.place(value.span().start),
                        is_verbatim: true,
                    });
                }
                ("bytes", _) => {
                    let shown = self.shown(&value.span());
                    let what = format!("bytes is a whole number, not {shown}");
                    defects.push(self.defect(&value.span(), what));
                }
                _ => {
                    let what = format!("{key:?}: a layout has fields and bytes");
                    defects.push(self.defect(&span, what));
                }
            }
        }
        if fields.is_none() && defects.len() == before {
            let what = format!("layout {} has no fields", name.text);
            defects.push(name.defect(what));
        }
        fields
            .filter(|_| defects.len() == before)
            .map(|fields| LayoutDeclaration {
                name,
                fields,
                bytes,
            })
    }

    fn program(
        &self,
        name: Written,
        body: &DeTable<'_>,
        defects: &mut Vec<Defect>,
    ) -> Option<ProgramDeclaration> {
        const KNOWN: [&str; 4] = ["keys", "arguments", "instructions", "returns"];
        let before = defects.len();
        let mut parts: [Option<Vec<Written>>; 4] = Default::default();
        for (key, span, value) in entries(body) {
            match KNOWN.iter().position(|known| *known == key) {
                Some(at) => parts[at] = self.texts(key, value, defects),
                None => {
                    let known = "a program has keys, arguments, instructions and returns";
                    defects.push(self.defect(&span, format!("{key:?}: {known}")));
                }
            }
        }
        for (at, missing) in [(0, "keys"), (2, "instructions")] {
            if parts[at].is_none() && defects.len() == before {
                let what = format!("program {} has no {missing}", name.text);
                defects.push(name.defect(what));
            }
        }
        let [keys, arguments, instructions, returns] = parts.map(Option::unwrap_or_default);
        (defects.len() == before).then_some(ProgramDeclaration {
            name,
            keys,
            arguments,
            instructions,
            returns,
        })
    }

    /// A list of texts.
    fn texts(
        &self,
        name: &str,
        value: &Value<'_>,
        defects: &mut Vec<Defect>,
    ) -> Option<Vec<Written>> {
        let DeValue::Array(all) = value.get_ref() else {
            let shown = self.shown(&value.span());
            let what = format!("{name} is a list of texts, not {shown}");
            defects.push(self.defect(&value.span(), what));
            return None;
        };
        let mut texts = Vec::new();
        for value in all.iter() {
            let span = value.span();
            let DeValue::String(text) = value.get_ref() else {
                let what = format!("{name} has texts, not {}", self.shown(&span));
                defects.push(self.defect(&span, what));
                return None;
            };
            texts.push(self.written(text, &span));
        }
        Some(texts)
    }

    /// A text with the place of its first character.
    fn written(&self, text: &str, span: &Range<usize>) -> Written {
        let raw = self.text.get(span.clone()).unwrap_or_default();
        let is_verbatim = raw.get(1..raw.len().saturating_sub(1)) == Some(text);
        Written {
            text: text.into(),
            place: self.place(span.start + usize::from(is_verbatim)),
            is_verbatim,
        }
    }
}
