//! The forms in which a document can be kept, and what one of them costs.

use std::borrow::Cow;
use std::hint::black_box;

use jsonb::keypath::KeyPath;
use jsonb::{OwnedJsonb, RawJsonb};
use serde::de::DeserializeSeed;
use serde_json::Value;

use crate::Outcome;
use crate::documents::probe::{Figures, Pick, Probe, Step, found, pick_json};
use crate::documents::shapes::Shape;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// JSON text, from a tree and to a tree.
    Text,
    /// JSON text, from a struct and to a struct.
    TextOfStruct,
    /// The crate jsonb by its own serializer.
    Jsonb,
    /// The same by way of JSON text, as OxiDB has it.
    JsonbByText,
    MessagePack,
    Layout,
}

pub const FORMS: [Form; 6] = [
    Form::Text,
    Form::MessagePack,
    Form::JsonbByText,
    Form::Jsonb,
    Form::TextOfStruct,
    Form::Layout,
];

impl Form {
    pub fn name(self) -> &'static str {
        match self {
            Form::Text => "JSON text, tree",
            Form::TextOfStruct => "JSON text, struct",
            Form::Jsonb => "jsonb, its serializer",
            Form::JsonbByText => "jsonb, by JSON text",
            Form::MessagePack => "MessagePack, tree",
            Form::Layout => "Penstock layout",
        }
    }

    /// What a document costs; `None` if the shape is free and the form is not.
    pub fn measure(self, shape: &Shape, probe: &Probe) -> Option<Outcome<Figures>> {
        let tree = &shape.document;
        Some(match self {
            Form::Text => probe.figures(
                shape.wanted(),
                &|take| {
                    take(&serde_json::to_vec(tree)?);
                    Ok(())
                },
                &|bytes| {
                    black_box(serde_json::from_slice::<Value>(bytes)?);
                    Ok(())
                },
                &|bytes| pick_json(bytes, shape.path),
            ),
            Form::MessagePack => probe.figures(
                shape.wanted(),
                &|take| {
                    take(&rmp_serde::to_vec(tree)?);
                    Ok(())
                },
                &|bytes| {
                    black_box(rmp_serde::from_slice::<Value>(bytes)?);
                    Ok(())
                },
                &|bytes| {
                    let mut from = rmp_serde::Deserializer::from_read_ref(bytes);
                    found(Pick(shape.path).deserialize(&mut from)?)
                },
            ),
            Form::Jsonb => measure_jsonb(shape, probe, || Ok(jsonb::to_owned_jsonb(tree)?)),
            Form::JsonbByText => measure_jsonb(shape, probe, || {
                let text = serde_json::to_vec(tree)?;
                Ok(jsonb::parse_owned_jsonb_standard_mode(&text)?)
            }),
            Form::TextOfStruct => (shape.fixed?.json)(shape, probe),
            Form::Layout => (shape.fixed?.layout)(shape, probe),
        })
    }
}

fn measure_jsonb(
    shape: &Shape,
    probe: &Probe,
    encode: impl Fn() -> Outcome<OwnedJsonb>,
) -> Outcome<Figures> {
    let steps: Vec<KeyPath<'_>> = shape
        .path
        .iter()
        .map(|step| match step {
            Step::Name(name) => KeyPath::Name(Cow::Borrowed(*name)),
            Step::At(index) => KeyPath::Index(i32::try_from(*index).unwrap_or(i32::MAX)),
        })
        .collect();
    probe.figures(
        shape.wanted(),
        &|take| {
            take(encode()?.as_ref());
            Ok(())
        },
        &|bytes| {
            // Its own tree borrows texts, so it is faster than that of serde_json.
            black_box(RawJsonb::new(bytes).to_value()?);
            Ok(())
        },
        &|bytes| {
            let field = RawJsonb::new(bytes).get_by_keypath(steps.iter())?;
            Ok(field.ok_or("no such field")?.as_raw().to_f64()?)
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documents::shapes;

    const PROBE: Probe = Probe { seconds: 0.0 };

    fn encoded(form: Form, shape: &Shape) -> Vec<u8> {
        form.measure(shape, &PROBE).unwrap().unwrap().encoded
    }

    #[test]
    fn every_free_form_gives_back_the_document_that_it_was_given() {
        for shape in shapes::all() {
            let text = encoded(Form::Text, &shape);
            assert_eq!(
                serde_json::from_slice::<Value>(&text).unwrap(),
                shape.document
            );
            let packed = encoded(Form::MessagePack, &shape);
            assert_eq!(
                rmp_serde::from_slice::<Value>(&packed).unwrap(),
                shape.document
            );
            for form in [Form::Jsonb, Form::JsonbByText] {
                let bytes = encoded(form, &shape);
                let text = RawJsonb::new(&bytes).to_string();
                let tree: Value = serde_json::from_str(&text).unwrap();
                assert_eq!(tree, shape.document, "{form:?} {}", shape.name);
            }
        }
    }

    #[test]
    fn every_form_reads_the_field_and_only_a_free_form_has_the_free_shape() {
        for shape in shapes::all() {
            for form in FORMS {
                match form.measure(&shape, &PROBE) {
                    // `Probe::figures` fails if the field is another than that of the tree.
                    Some(figures) => drop(figures.unwrap()),
                    None => {
                        assert!(matches!(form, Form::TextOfStruct | Form::Layout));
                        assert!(shape.fixed.is_none(), "{}", shape.name);
                    }
                }
            }
        }
    }

    #[test]
    fn one_field_of_a_layout_is_read_without_a_block_of_the_heap() {
        for shape in shapes::all() {
            if let Some(figures) = Form::Layout.measure(&shape, &PROBE) {
                let [encode, decode, field] = figures.unwrap().allocations;
                assert!(encode > 0, "{}", shape.name);
                assert_eq!((decode, field), (0, 0), "{}", shape.name);
            }
        }
    }
}
