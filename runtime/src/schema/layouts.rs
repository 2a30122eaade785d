//! Declarations become layouts.

use super::declaration::{Declarations, LayoutDeclaration};
use super::defect::Defect;
use penstock_net::expression::{ExpressionError, ValueLayout, is_name};
use penstock_net::program::NamedLayout;

/// The layouts that are sound.
pub(super) fn compile(declarations: &Declarations, defects: &mut Vec<Defect>) -> Vec<NamedLayout> {
    let mut layouts: Vec<NamedLayout> = Vec::new();
    for declared in &declarations.layouts {
        let name = &declared.name;
        if !is_name(&name.text) {
            let allowed = "a layout has a name of letters, digits and _ that begins with a letter";
            defects.push(name.defect(format!("{:?}: {allowed}", name.text)));
            continue;
        }
        if layouts.iter().any(|it| it.name == name.text) {
            defects.push(name.defect(format!("another layout has the name {}", name.text)));
            continue;
        }
        match layout(declared) {
            Ok(layout) => layouts.push(NamedLayout {
                name: name.text.clone(),
                layout,
            }),
            Err(defect) => defects.push(defect),
        }
    }
    layouts
}

/// Reads the fields as the text of one layout. A wrong column of that is one of a field.
fn layout(declared: &LayoutDeclaration) -> Result<ValueLayout, Defect> {
    if declared.fields.is_empty() {
        let what = format!("layout {} has no fields", declared.name.text);
        return Err(declared.name.defect(what));
    }
    let mut fields = String::new();
    for field in &declared.fields {
        let mut depth = 0i32;
        for (column, character) in (1..).zip(field.text.chars()) {
            match character {
                '{' => depth += 1,
                '}' => depth -= 1,
                // Only a layout in a layout has these.
                ';' | '=' if depth <= 0 => {
                    let what = format!("{:?}: a field is NAME:TYPE@OFFSET", field.text);
                    return Err(field.defect_at(column, what));
                }
                _ => {}
            }
        }
        fields.push_str(&field.text);
        fields.push(';');
    }
    let parse = |bytes: &str| {
        ValueLayout::parse(&format!("{fields}={bytes}"))
            .map_err(|error| misplaced(declared, &error))
    };
    if let Some(bytes) = &declared.bytes {
        return parse(&bytes.text);
    }
    // As long as its fields are.
    const LONGEST: &str = "16777216";
    let layout = parse(LONGEST)?;
    let ends = layout.fields().iter().map(|it| it.offset + it.kind.bytes());
    parse(&ends.max().unwrap_or(0).to_string())
}

/// The defect that an error about the whole text is.
fn misplaced(declared: &LayoutDeclaration, error: &ExpressionError) -> Defect {
    let mut before = 0;
    for field in &declared.fields {
        let len = field.text.chars().count() + 1;
        if error.column() <= before + len {
            return field.misread(error, before);
        }
        before += len;
    }
    let last = declared.bytes.as_ref().unwrap_or(&declared.name);
    last.defect(format!("{:?}: allowed is {}", last.text, error.allowed()))
}
