//! Whether layouts have grown at their ends at most. Values that were written before are read by
//! the layouts of now.

use super::Schema;
use super::defect::Defect;
use penstock_net::expression::{FieldKind, LayoutField};
use penstock_net::program::NamedLayout;

/// The layouts that shrink or move, each with the field that shows it.
pub(super) fn defects(now: &Schema, before: &Schema) -> Vec<Defect> {
    let mut defects = Vec::new();
    for old in &before.layouts {
        let new = now.layouts.iter().find(|it| it.name == old.name);
        let declared = now.declarations.layout(&old.name);
        if let Some((new, declared)) = new.zip(declared)
            && let Some(what) = shrinks(old, new)
        {
            defects.push(declared.name.defect(what));
        }
    }
    defects
}

/// How a layout is less than it was; `None` if it is not.
fn shrinks(old: &NamedLayout, new: &NamedLayout) -> Option<String> {
    let name = &old.name;
    let text = |field: &LayoutField| format!("{} at {}", field.name, field.offset);
    for field in old.layout.fields() {
        match new.layout.fields().iter().find(|it| it.name == field.name) {
            None => {
                return Some(format!(
                    "layout {name} shrinks: field {} is gone",
                    field.name
                ));
            }
            Some(it) if it.offset != field.offset => {
                return Some(format!(
                    "layout {name} moves: field {} stands at {} and stood at {}",
                    field.name, it.offset, field.offset
                ));
            }
            Some(it) if it.kind != field.kind => {
                return Some(format!(
                    "layout {name} changes: field {} has another type than before",
                    text(field)
                ));
            }
            Some(_) => {}
        }
    }
    let (was, is) = (old.layout.bytes(), new.layout.bytes());
    if is < was {
        return Some(format!(
            "layout {name} shrinks: it has {is} bytes and had {was}"
        ));
    }
    let has_text = |it: &NamedLayout| {
        it.layout
            .fields()
            .iter()
            .any(|it| it.kind == FieldKind::Text)
    };
    if is > was && has_text(old) {
        return Some(format!(
            "layout {name} grows: texts stand behind its {was} bytes, so it cannot; take another \
             name"
        ));
    }
    let is_new = |field: &&LayoutField| !old.layout.fields().iter().any(|it| it.name == field.name);
    let mut added = new.layout.fields().iter().filter(is_new);
    added.find(|field| field.offset < was).map(|field| {
        format!(
            "layout {name} changes: the new field {} stands within the {was} bytes that it had",
            text(field)
        )
    })
}
