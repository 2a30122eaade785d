//! Types that cannot stand in a layout, and what to write instead.

use syn::{Type, TypePath};

/// Why a type cannot be a field; `None` leaves the decision to the trait.
pub fn reason(field_type: &Type) -> Option<String> {
    match field_type {
        Type::Array(array) => reason(&array.elem),
        Type::Reference(_) | Type::Ptr(_) => {
            Some("an address means nothing in a value: use Text, or an array of bytes".into())
        }
        Type::Slice(_) => Some("a slice has no fixed length: use an array, or Text".into()),
        Type::Tuple(_) => {
            Some("the fields of a tuple have no order: use a struct with #[derive(Layout)]".into())
        }
        Type::Path(path) => of_path(path),
        _ => None,
    }
}

fn of_path(path: &TypePath) -> Option<String> {
    let name = path.path.segments.last()?.ident.to_string();
    let reason = match name.as_str() {
        "u16" | "u32" | "u64" | "i16" | "i32" | "i64" | "f32" | "f64" => format!(
            "{name} has the byte order and the alignment of one machine, which would also put \
             padding into the value: use zerocopy::little_endian::{}",
            name.to_uppercase()
        ),
        "u128" | "i128" => format!(
            "{name} has the byte order and the alignment of one machine, and guards do not know \
             it: use two zerocopy::little_endian::U64, or [u8; 16]"
        ),
        "usize" | "isize" => format!(
            "{name} has another width on another machine: use zerocopy::little_endian::{}",
            if name == "usize" { "U64" } else { "I64" }
        ),
        "char" => "char has the byte order of one machine and forbids some numbers: use \
                   zerocopy::little_endian::U32, or Text"
            .into(),
        "String" | "str" | "Cow" => format!("{name} stands elsewhere in memory: use Text"),
        "Vec" | "Box" | "Rc" | "Arc" => {
            format!("{name} stands elsewhere in memory: use an array, such as [u8; 16]")
        }
        "Option" => "Option has no fixed bytes: use a bool beside the field".into(),
        _ => return None,
    };
    Some(reason)
}
