//! A layout as text, as `Product::LAYOUT` of a program prints it.
//!
//! ```text
//! layout = { name ":" kind "@" offset ";" } "=" bytes
//! kind   = ( type | "bool" | "f32" | "f64" | "text" | "{" layout "}" ) { "[" count "]" }
//! ```
//!
//! Types are those of `update-if`, and f32 and f64 with or without `be`. The fields of a layout in
//! a layout, and the elements of an array, get names of their own: `buyer.bought`, `sizes[2]`. An
//! array of u8 stays one field, of bytes.

use crate::instruction::FieldType;
use crate::limits::VALUE_BYTES_HARD_MAX;

use super::cursor::{Cursor, ExpressionError};

/// Layouts in layouts, and arrays of arrays, at most.
const DEPTH_MAX: u32 = 8;
/// Fields with names of their own, at most.
const FIELDS_MAX: usize = 4096;
/// Bytes of a `text` among the fixed fields: offset and length.
pub const TEXT_BYTES: usize = 8;

const KINDS_TEXT: &str = "a type: u8 to u64, i8 to i64, f32 or f64, with be for big-endian, or \
                          bool, text, or { and a layout }";

/// What the bytes of values mean.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueLayout {
    text: String,
    fields: Vec<LayoutField>,
    bytes: usize,
}

/// One field with its full name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayoutField {
    /// Such as `buyer.bought` or `sizes[2]`.
    pub name: String,
    /// What stands there.
    pub kind: FieldKind,
    /// Where it begins in the value.
    pub offset: usize,
}

/// What a field holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldKind {
    /// A whole number.
    Number(FieldType),
    /// One byte, 0 or 1.
    Bool,
    /// A number of IEEE 754 of 4 or 8 bytes.
    Float {
        /// 4 or 8.
        bytes: usize,
        /// Its most significant byte stands first.
        is_big_endian: bool,
    },
    /// Offset and length of a text behind the fixed fields.
    Text,
    /// So many bytes.
    Bytes(usize),
}

/// What a field of a value holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FieldValue<'a> {
    /// A whole number.
    Number(i128),
    /// True or false.
    Bool(bool),
    /// A number of four bytes.
    F32(f32),
    /// A number of eight bytes.
    F64(f64),
    /// Bytes, without the zeros at their end.
    Bytes(&'a [u8]),
    /// A text.
    Text(&'a str),
}

impl LayoutField {
    /// How many bytes of a value a text says that it has, if it is one. They are not read, and
    /// texts of a value may share bytes.
    #[must_use]
    pub fn text_len(&self, value: &[u8]) -> usize {
        let place = value.get(self.offset..).and_then(|it| it.get(4..8));
        match (self.kind, place.and_then(|place| place.first_chunk())) {
            (FieldKind::Text, Some(len)) => u32::from_le_bytes(*len) as usize,
            _ => 0,
        }
    }

    /// What a value holds there; `None` if the value has no such bytes. `fixed_bytes` are those of
    /// the layout's fields.
    #[must_use]
    pub fn read<'a>(&self, fixed_bytes: usize, value: &'a [u8]) -> Option<FieldValue<'a>> {
        let place = value.get(self.offset..)?.get(..self.kind.bytes())?;
        Some(match self.kind {
            FieldKind::Number(field_type) => FieldValue::Number(field_type.load(place)),
            FieldKind::Bool => match place[0] {
                0 => FieldValue::Bool(false),
                1 => FieldValue::Bool(true),
                _ => return None,
            },
            FieldKind::Float {
                bytes,
                is_big_endian,
            } => {
                let mut little = place.to_vec();
                if is_big_endian {
                    little.reverse();
                }
                match bytes {
                    4 => FieldValue::F32(f32::from_le_bytes(*little.first_chunk()?)),
                    _ => FieldValue::F64(f64::from_le_bytes(*little.first_chunk()?)),
                }
            }
            FieldKind::Bytes(_) => {
                let last = place.iter().rposition(|&byte| byte != 0);
                FieldValue::Bytes(&place[..last.map_or(0, |at| at + 1)])
            }
            FieldKind::Text => FieldValue::Text(text_at(place, fixed_bytes, value)?),
        })
    }
}

fn text_at<'a>(place: &[u8], fixed_bytes: usize, value: &'a [u8]) -> Option<&'a str> {
    assert_eq!(place.len(), TEXT_BYTES, "the place of a text");
    let start = u32::from_le_bytes(*place.first_chunk()?) as usize;
    let len = u32::from_le_bytes(*place[4..].first_chunk()?) as usize;
    if len == 0 {
        return Some("");
    }
    let bytes = value.get(start..)?.get(..len)?;
    let text = std::str::from_utf8(bytes).ok();
    text.filter(|_| start >= fixed_bytes)
}

/// A kind before its arrays and layouts are taken apart.
enum Tree {
    Leaf(FieldKind),
    Array(Box<Tree>, usize),
    Layout(Vec<(String, Tree, usize)>, usize),
}

impl ValueLayout {
    /// Reads a layout.
    ///
    /// # Errors
    /// The first column that cannot be, with what is allowed there.
    pub fn parse(text: &str) -> Result<ValueLayout, ExpressionError> {
        let mut cursor = Cursor::begin(text);
        let tree = layout(&mut cursor, 0)?;
        if cursor.at != text.len() {
            return Err(cursor.error_at(cursor.at, "the end".into()));
        }
        let bytes = tree.bytes();
        let mut fields = Vec::new();
        tree.flatten(String::new(), 0, &mut fields);
        if fields.len() > FIELDS_MAX {
            let allowed = format!("at most {FIELDS_MAX} fields, arrays element by element");
            return Err(cursor.error_at(0, allowed));
        }
        Ok(ValueLayout {
            text: text.into(),
            fields,
            bytes,
        })
    }

    /// The fields in their order.
    pub fn fields(&self) -> &[LayoutField] {
        &self.fields
    }

    /// Bytes of the fixed fields.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The mark of keyspaces whose values have this layout, as the client computes it.
    pub fn mark(&self) -> u16 {
        let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        let hash = self.text.bytes().fold(0xcbf2_9ce4_8422_2325, step);
        let bytes = hash.to_le_bytes();
        let (parts, _) = bytes.as_chunks::<2>();
        let mark = parts
            .iter()
            .fold(0, |mark, part| mark ^ u16::from_le_bytes(*part));
        mark.max(1)
    }
}

impl FieldKind {
    /// Bytes among the fixed fields.
    pub fn bytes(self) -> usize {
        match self {
            FieldKind::Number(field_type) => field_type.width(),
            FieldKind::Bool => 1,
            FieldKind::Float { bytes, .. } | FieldKind::Bytes(bytes) => bytes,
            FieldKind::Text => TEXT_BYTES,
        }
    }

    fn from_name(name: &str) -> Option<FieldKind> {
        let float = |bytes, is_big_endian| FieldKind::Float {
            bytes,
            is_big_endian,
        };
        Some(match name {
            "bool" => FieldKind::Bool,
            "text" => FieldKind::Text,
            "f32" => float(4, false),
            "f32be" => float(4, true),
            "f64" => float(8, false),
            "f64be" => float(8, true),
            name => FieldKind::Number(FieldType::from_name(name)?),
        })
    }
}

impl Tree {
    fn bytes(&self) -> usize {
        match self {
            Tree::Leaf(kind) => kind.bytes(),
            Tree::Array(element, count) => element.bytes().saturating_mul(*count),
            Tree::Layout(_, bytes) => *bytes,
        }
    }

    /// The fields with their full names, one more than is allowed at most.
    fn flatten(&self, name: String, offset: usize, into: &mut Vec<LayoutField>) {
        match self {
            Tree::Leaf(kind) => into.push(LayoutField {
                name,
                kind: *kind,
                offset,
            }),
            Tree::Array(element, count) => {
                for index in 0..*count {
                    if into.len() > FIELDS_MAX {
                        return;
                    }
                    let start = offset + index * element.bytes();
                    element.flatten(format!("{name}[{index}]"), start, into);
                }
            }
            Tree::Layout(fields, _) => {
                let dot = if name.is_empty() { "" } else { "." };
                for (inner, tree, start) in fields {
                    tree.flatten(format!("{name}{dot}{inner}"), offset + start, into);
                }
            }
        }
    }
}

/// `{ name ":" kind "@" offset ";" } "=" bytes`
fn layout(cursor: &mut Cursor<'_>, depth: u32) -> Result<Tree, ExpressionError> {
    let mut fields: Vec<(String, Tree, usize)> = Vec::new();
    let mut end = 0;
    while !cursor.take("=") {
        let start = cursor.at;
        let name = name(cursor);
        if name.is_empty() || !cursor.take(":") {
            let allowed = "NAME:TYPE@OFFSET; or, behind the last field, = and the length";
            return Err(cursor.error_at(start, allowed.into()));
        }
        if fields.iter().any(|(known, ..)| known == name) {
            return Err(cursor.error_at(start, "a name that no other field has".into()));
        }
        let tree = kind(cursor, depth)?;
        let place = cursor.at;
        let offset = cursor.offset()? as usize;
        if offset < end {
            let allowed = format!("@{end} or more: the field before ends there");
            return Err(cursor.error_at(place, allowed));
        }
        end = offset.saturating_add(tree.bytes());
        if !cursor.take(";") {
            return Err(cursor.error_at(cursor.at, "; behind each field".into()));
        }
        fields.push((name.into(), tree, offset));
    }
    let start = cursor.at;
    let bytes: Option<usize> = cursor.number().parse().ok();
    match bytes {
        Some(bytes) if (end..=VALUE_BYTES_HARD_MAX).contains(&bytes) && !fields.is_empty() => {
            Ok(Tree::Layout(fields, bytes))
        }
        _ => {
            let allowed = format!(
                "the length of the fixed fields, {end} to {VALUE_BYTES_HARD_MAX} bytes, behind at \
                 least one field"
            );
            Err(cursor.error_at(start, allowed))
        }
    }
}

fn kind(cursor: &mut Cursor<'_>, depth: u32) -> Result<Tree, ExpressionError> {
    let start = cursor.at;
    let mut tree = match cursor.take("{") {
        true if depth == DEPTH_MAX => {
            let allowed = format!("at most {DEPTH_MAX} layouts in layouts");
            return Err(cursor.error_at(start, allowed));
        }
        true => {
            let tree = layout(cursor, depth + 1)?;
            if !cursor.take("}") {
                return Err(cursor.error_at(cursor.at, "} behind the layout".into()));
            }
            tree
        }
        false => FieldKind::from_name(cursor.word())
            .map(Tree::Leaf)
            .ok_or_else(|| cursor.error_at(start, KINDS_TEXT.into()))?,
    };
    let mut dimensions = 0;
    while cursor.take("[") {
        let start = cursor.at;
        dimensions += 1;
        if dimensions > DEPTH_MAX {
            let allowed = format!("at most {DEPTH_MAX} arrays of arrays");
            return Err(cursor.error_at(start, allowed));
        }
        let count: Option<usize> = cursor.number().parse().ok();
        let count = count.filter(|count| (1..=VALUE_BYTES_HARD_MAX).contains(count));
        let Some(count) = count.filter(|_| cursor.take("]")) else {
            return Err(cursor.error_at(start, "the number of elements, and ]".into()));
        };
        tree = match tree {
            Tree::Leaf(FieldKind::Number(FieldType::U8)) => Tree::Leaf(FieldKind::Bytes(count)),
            tree => Tree::Array(Box::new(tree), count),
        };
    }
    Ok(tree)
}

/// The characters from here on that may be a name.
fn name<'a>(cursor: &mut Cursor<'a>) -> &'a str {
    let rest = cursor.rest();
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let end = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
    cursor.at += end;
    &rest[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRODUCT: &str = "stock:u32@0;price_cents:u32@4;is_open:bool@8;name:text@9;=17";

    fn refusal(text: &str) -> String {
        ValueLayout::parse(text).unwrap_err().to_string()
    }

    #[test]
    fn what_a_program_prints_is_read_and_has_the_same_mark() {
        let layout = ValueLayout::parse(PRODUCT).unwrap();
        assert_eq!((layout.bytes(), layout.mark()), (17, 7755));
        let names: Vec<&str> = layout.fields().iter().map(|it| it.name.as_str()).collect();
        assert_eq!(names, ["stock", "price_cents", "is_open", "name"]);
        assert_eq!(layout.fields()[3].offset, 9);
    }

    #[test]
    fn nested_layouts_and_arrays_get_full_names_and_offsets() {
        let text = "a:{b:u16be@0;c:bool@2;=3}[2]@1;d:u8[5]@7;e:f64[2]@12;=28";
        let layout = ValueLayout::parse(text).unwrap();
        let places: Vec<(&str, usize)> = layout
            .fields()
            .iter()
            .map(|it| (it.name.as_str(), it.offset))
            .collect();
        let expected = [
            ("a[0].b", 1),
            ("a[0].c", 3),
            ("a[1].b", 4),
            ("a[1].c", 6),
            ("d", 7),
            ("e[0]", 12),
            ("e[1]", 20),
        ];
        assert_eq!(places, expected);
        assert_eq!(layout.fields()[4].kind, FieldKind::Bytes(5));
    }

    #[test]
    fn a_layout_that_contradicts_itself_is_refused_with_its_column() {
        for (text, part) in [
            ("", "column 1: it ends where NAME:TYPE@OFFSET;"),
            ("=0", "column 2: found \"0\""),
            ("a:u32@0;=3", "4 to 16777216 bytes"),
            (
                "a:u32@0;b:u32@2;=8",
                "column 14: found \"@2;=8\", allowed is @4 or more",
            ),
            ("a:u32@0;a:u32@4;=8", "a name that no other field has"),
            ("a:u33@0;=4", "column 3: "),
            ("a:u32;=4", "@OFFSET"),
            ("a:u32@0=4", "; behind each field"),
            ("a:u32@0;", "it ends where NAME"),
            ("a:u32@0;=4 ", "the end"),
            ("a:u32[0]@0;=4", "the number of elements"),
            ("a:u32[2@0;=8", "the number of elements"),
            ("a:{b:u32@0;=4@0;=4", "} behind the layout"),
            ("a:u64[4097]@0;=32776", "at most 4096 fields"),
            ("a:u8[16777217]@0;=16777217", "the number of elements"),
            ("a:u16[9000000]@0;=18000000", "at most 4096"),
        ] {
            let message = match ValueLayout::parse(text) {
                Ok(found) => panic!("{text}: {found:?}"),
                Err(error) => error.to_string(),
            };
            let is_either = part == "at most 4096" && message.contains("to 16777216 bytes");
            assert!(message.contains(part) || is_either, "{text}: {message}");
        }
        let deep = "a:{".repeat(9) + "b:u8@0;=1" + &"}@0;=1".repeat(9);
        assert!(refusal(&deep).contains("at most 8 layouts in layouts"));
        let arrays = format!("a:u16{}@0;=2", "[1]".repeat(9));
        assert!(refusal(&arrays).contains("at most 8 arrays of arrays"));
    }

    #[test]
    fn no_text_makes_the_reader_fail_worse_than_by_an_error() {
        let pieces = [
            "a",
            "b",
            ":",
            "u32",
            "u8",
            "text",
            "{",
            "}",
            "[",
            "]",
            "3",
            "0",
            "@",
            ";",
            "=",
            "é",
            "99999999999999999999",
            "",
        ];
        let mut seed = 11_u64;
        for _ in 0..40_000 {
            let mut text = String::new();
            for _ in 0..12 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let index = usize::try_from(seed >> 33).unwrap() % pieces.len();
                text.push_str(pieces[index]);
            }
            if let Err(error) = ValueLayout::parse(&text) {
                assert!(error.to_string().contains("column"), "{text}");
            }
        }
    }
}
