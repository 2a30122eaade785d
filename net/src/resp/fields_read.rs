//! KV.GET: the fields of a value, by a layout of the schema or in the notation of fields.
//!
//! ```text
//! KV.GET key AS layout
//! layout = the name of one of the schema | type "@" offset { "," type "@" offset }
//! ```

use std::sync::Arc;

use crate::expression::{Field, FieldValue, LayoutField};
use crate::program::ServedSchema;

use super::reply::Replies;
use super::words::shown;

/// Fields in the notation of fields, in bytes.
const NOTATION_BYTES_MAX: usize = 256;
/// Names of layouts that the error of an unknown one tells.
const LAYOUTS_SHOWN_MAX: usize = 16;
/// What an error shows of an argument, in bytes.
const SHOWN_BYTES_MAX: usize = 64;

/// Which fields of a value are told.
#[derive(Clone, Debug)]
pub(super) enum FieldsRead {
    /// Those of this layout of a schema.
    Layout(Arc<ServedSchema>, usize),
    /// Those of a notation that was read before.
    Notation(Box<str>),
}

impl FieldsRead {
    /// Reads the layout of KV.GET.
    ///
    /// # Errors
    /// The error of RESP.
    pub(super) fn read(layout: &[u8], schema: Arc<ServedSchema>) -> Result<Self, Vec<u8>> {
        let text = std::str::from_utf8(layout).unwrap_or_default();
        let layouts = &schema.layouts;
        if let Some(number) = layouts.iter().position(|it| it.name == text) {
            return Ok(FieldsRead::Layout(schema, number));
        }
        if !text.contains('@') {
            return Err(unknown_layout(layout, &schema));
        }
        if text.len() > NOTATION_BYTES_MAX {
            let len = text.len();
            let text = format!("ERR KV.GET: {len} bytes of fields; at most {NOTATION_BYTES_MAX}");
            return Err(text.into_bytes());
        }
        match fields_of(text) {
            Ok(_) => Ok(FieldsRead::Notation(text.into())),
            Err(why) => Err(format!("ERR KV.GET: {why}").into_bytes()),
        }
    }

    /// Writes the reply: a map of names and values.
    pub(super) fn write(&self, value: Option<&[u8]>, replies: &mut Replies<'_>) {
        let Some(value) = value else {
            return replies.null();
        };
        match self {
            FieldsRead::Layout(schema, number) => {
                let named = &schema.layouts[*number];
                // A value of before the last fields were added ends before them.
                let all = named.layout.fields().iter();
                let there = all.filter(|field| field.offset < value.len());
                let read = |field: &LayoutField| field.read(named.layout.bytes(), value);
                if let Some(field) = there.clone().find(|field| read(field).is_none()) {
                    return no_field(&named.name, &field.name, value.len(), replies);
                }
                replies.map(there.clone().count());
                for field in there {
                    replies.bulk(field.name.as_bytes());
                    write_value(read(field).expect("it was read above"), replies);
                }
            }
            FieldsRead::Notation(text) => {
                let fields = fields_of(text).expect("it was read before");
                if let Some((name, _)) = fields.iter().find(|(_, it)| it.read(value).is_none()) {
                    return no_field(text, name, value.len(), replies);
                }
                replies.map(fields.len());
                for (name, field) in fields {
                    replies.bulk(name.as_bytes());
                    let number = field.read(value).expect("it was read above");
                    write_value(FieldValue::Number(number), replies);
                }
            }
        }
    }
}

/// The fields of a notation, each with its own text.
fn fields_of(notation: &str) -> Result<Vec<(&str, Field)>, String> {
    let fields = notation.split(',').map(str::trim);
    let read = |text| match Field::parse(text) {
        Ok(field) => Ok((text, field)),
        Err(error) => Err(error.to_string()),
    };
    fields.map(read).collect()
}

fn write_value(value: FieldValue<'_>, replies: &mut Replies<'_>) {
    match value {
        FieldValue::Number(number) => match i64::try_from(number) {
            Ok(number) => replies.integer(number),
            Err(_) => replies.bulk(number.to_string().as_bytes()),
        },
        FieldValue::Bool(is_true) => replies.integer(is_true.into()),
        FieldValue::F32(number) => replies.bulk(number.to_string().as_bytes()),
        FieldValue::F64(number) => replies.bulk(number.to_string().as_bytes()),
        FieldValue::Bytes(bytes) => replies.bulk(bytes),
        FieldValue::Text(text) => replies.bulk(text.as_bytes()),
    }
}

#[cold]
fn no_field(layout: &str, field: &str, value_bytes: usize, replies: &mut Replies<'_>) {
    let text = format!("ERR {layout}: {field} cannot be read from a value of {value_bytes} bytes");
    replies.error(text.as_bytes());
}

#[cold]
fn unknown_layout(layout: &[u8], schema: &ServedSchema) -> Vec<u8> {
    let names: Vec<&str> = schema.layouts.iter().map(|it| it.name.as_str()).collect();
    let known = match names.len() {
        0 => "this node has none".to_string(),
        1..=LAYOUTS_SHOWN_MAX => format!("there are {}", names.join(", ")),
        count => format!("there are {count}, such as {}", names[0]),
    };
    let head = b"ERR no layout '";
    let tail = format!("': {known}; or fields such as u32@0,u64be@8");
    [head, shown(layout, SHOWN_BYTES_MAX), tail.as_bytes()].concat()
}
