//! Values as rows: each field of a layout as text, and back.

use std::fmt;

use penstock_net::expression::{FieldKind, FieldValue, LayoutField, ValueLayout, parse_number};

/// What a field of a value holds.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// A whole number.
    Number(i128),
    /// True or false.
    Bool(bool),
    /// A number of four bytes.
    F32(f32),
    /// A number of eight bytes.
    F64(f64),
    /// A text, or bytes as [`printed`] writes them.
    Text(String),
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cell::Number(number) => number.fmt(f),
            Cell::Bool(is_true) => is_true.fmt(f),
            Cell::F32(number) => number.fmt(f),
            Cell::F64(number) => number.fmt(f),
            Cell::Text(text) => text.fmt(f),
        }
    }
}

impl Cell {
    /// The cell in JSON. What JSON has no number for is a text.
    pub fn json(&self) -> serde_json::Value {
        match self {
            Cell::Number(number) => match (u64::try_from(*number), i64::try_from(*number)) {
                (Ok(number), _) => number.into(),
                (_, Ok(number)) => number.into(),
                _ => number.to_string().into(),
            },
            Cell::Bool(is_true) => (*is_true).into(),
            Cell::F32(number) if number.is_finite() => {
                serde_json::from_str(&format!("{number:?}")).unwrap_or_default()
            }
            Cell::F64(number) if number.is_finite() => (*number).into(),
            other => other.to_string().into(),
        }
    }
}

/// Bytes as a cell: the text itself, or `0x` and hexadecimal digits where the bytes are no text or
/// would be read as such digits.
pub fn printed(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.starts_with("0x") => text.into(),
        _ => format!("0x{}", super::output::hex(bytes)),
    }
}

/// The bytes of a cell that [`printed`] wrote.
///
/// # Errors
/// What is allowed.
pub fn bytes_of(cell: &str) -> Result<Vec<u8>, String> {
    let Some(digits) = cell.strip_prefix("0x") else {
        return Ok(cell.into());
    };
    let allowed = || "a text, or 0x and hexadecimal digits, two a byte".to_string();
    let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
    if !rest.is_empty() {
        return Err(allowed());
    }
    let nibble = |digit: u8| char::from(digit).to_digit(16);
    pairs
        .iter()
        .map(|[high, low]| Some(nibble(*high)? << 4 | nibble(*low)?))
        .map(|byte| byte.and_then(|byte| u8::try_from(byte).ok()))
        .collect::<Option<_>>()
        .ok_or_else(allowed)
}

/// Makes one value, field by field in the order of the layout.
pub struct ValueWriter {
    fixed: Vec<u8>,
    texts: Vec<u8>,
}

impl ValueWriter {
    /// All fields are zero.
    pub fn begin(layout: &ValueLayout) -> ValueWriter {
        ValueWriter {
            fixed: vec![0; layout.bytes()],
            texts: Vec::new(),
        }
    }

    /// Writes a field of that layout.
    ///
    /// # Errors
    /// What is allowed.
    pub fn put(&mut self, field: &LayoutField, cell: &str) -> Result<(), String> {
        let fixed_bytes = self.fixed.len();
        let place = &mut self.fixed[field.offset..field.offset + field.kind.bytes()];
        match field.kind {
            FieldKind::Number(field_type) => {
                field_type.store(parse_number(field_type.range(), cell)?, place);
            }
            FieldKind::Bool => {
                place[0] = match cell {
                    "true" | "1" => 1,
                    "false" | "0" => 0,
                    _ => return Err("true, false, 1 or 0".into()),
                }
            }
            FieldKind::Float {
                bytes,
                is_big_endian,
            } => {
                let allowed = || "a number, such as 1.5".to_string();
                // The text is read as the type that is stored, so that it is rounded once.
                let little = match bytes {
                    4 => {
                        let number: f32 = cell.parse().map_err(|_| allowed())?;
                        let finite = Some(number).filter(|it| it.is_finite());
                        finite.ok_or_else(allowed)?.to_le_bytes().to_vec()
                    }
                    _ => {
                        let number: f64 = cell.parse().map_err(|_| allowed())?;
                        let finite = Some(number).filter(|it| it.is_finite());
                        finite.ok_or_else(allowed)?.to_le_bytes().to_vec()
                    }
                };
                place.copy_from_slice(&little);
                if is_big_endian {
                    place.reverse();
                }
            }
            FieldKind::Bytes(count) => {
                let bytes = bytes_of(cell)?;
                if bytes.len() > count {
                    return Err(format!("at most {count} bytes; it has {}", bytes.len()));
                }
                place[..bytes.len()].copy_from_slice(&bytes);
            }
            FieldKind::Text => {
                let short = |number| u32::try_from(number).map_err(|_| "a shorter text");
                let start = match cell.len() {
                    0 => 0,
                    _ => short(fixed_bytes + self.texts.len())?,
                };
                place[..4].copy_from_slice(&start.to_le_bytes());
                place[4..].copy_from_slice(&short(cell.len())?.to_le_bytes());
                self.texts.extend_from_slice(cell.as_bytes());
            }
        }
        Ok(())
    }

    /// The value, with its texts behind the fixed fields.
    pub fn finish(mut self) -> Vec<u8> {
        self.fixed.append(&mut self.texts);
        self.fixed
    }
}

/// A field of a value; `None` if the value has no such bytes there.
pub fn read_field(field: &LayoutField, fixed_bytes: usize, value: &[u8]) -> Option<Cell> {
    Some(match field.read(fixed_bytes, value)? {
        FieldValue::Number(number) => Cell::Number(number),
        FieldValue::Bool(is_true) => Cell::Bool(is_true),
        FieldValue::F32(number) => Cell::F32(number),
        FieldValue::F64(number) => Cell::F64(number),
        FieldValue::Bytes(bytes) => Cell::Text(printed(bytes)),
        FieldValue::Text(text) => Cell::Text(text.into()),
    })
}

/// The fields of a value whose bytes are exactly these fields and their texts.
///
/// # Errors
/// The name of a field that cannot be read, or what the fields would leave out.
pub fn read_value(layout: &ValueLayout, value: &[u8]) -> Result<Vec<Cell>, String> {
    let fixed_bytes = layout.bytes();
    let mut texts = 0;
    let mut cells = Vec::with_capacity(layout.fields().len());
    for field in layout.fields() {
        let cell = read_field(field, fixed_bytes, value)
            .ok_or_else(|| format!("{} cannot be read from its bytes", field.name))?;
        if let (FieldKind::Text, Cell::Text(text)) = (field.kind, &cell) {
            texts += text.len();
        }
        cells.push(cell);
    }
    let needed = fixed_bytes + texts;
    match value.len() == needed {
        true => Ok(cells),
        false => Err(format!(
            "the value has {} bytes, its fields and texts {needed}",
            value.len()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERY: &str = "a:u8@0;b:i64be@1;c:bool@9;d:f32@10;e:f64be@14;f:u8[4]@22;g:text@26;\
                         h:text@34;=42";

    fn every() -> ValueLayout {
        ValueLayout::parse(EVERY).unwrap()
    }

    fn value_of(cells: &[&str]) -> Result<Vec<u8>, String> {
        let layout = every();
        let mut writer = ValueWriter::begin(&layout);
        for (field, cell) in layout.fields().iter().zip(cells) {
            writer.put(field, cell)?;
        }
        Ok(writer.finish())
    }

    #[test]
    fn every_kind_comes_back_as_it_was_written() {
        for cells in [
            [
                "255",
                "-9223372036854775808",
                "true",
                "1.5",
                "-0.1",
                "abc",
                "Ünï",
                "two",
            ],
            ["0", "0", "false", "0", "1e-300", "", "", ""],
            ["7", "1", "true", "0.1", "0.1", "0x0001ff", "", "0x12"],
        ] {
            let value = value_of(&cells).unwrap();
            let read = read_value(&every(), &value).unwrap();
            let printed: Vec<String> = read.iter().map(Cell::to_string).collect();
            let again = value_of(&printed.iter().map(String::as_str).collect::<Vec<_>>());
            assert_eq!(again, Ok(value), "{cells:?}: {printed:?}");
        }
        let read = read_value(&every(), &value_of(&["1"]).unwrap()).unwrap();
        assert_eq!(
            (read[0].clone(), read[6].clone()),
            (Cell::Number(1), Cell::Text("".into()))
        );
    }

    #[test]
    fn a_cell_that_does_not_fit_says_what_is_allowed() {
        for (at, cell, allowed) in [
            (0, "256", "a number, 0..255"),
            (0, "", "a number, 0..255"),
            (0, "1.0", "a number, 0..255"),
            (2, "yes", "true, false, 1 or 0"),
            (3, "many", "a number, such as 1.5"),
            (3, "1e39", "a number, such as 1.5"),
            (4, "NaN", "a number, such as 1.5"),
            (5, "abcde", "at most 4 bytes; it has 5"),
            (5, "0x0", "two a byte"),
            (5, "0xgg", "two a byte"),
        ] {
            let mut cells = ["0", "0", "0", "0", "0", "", "", ""];
            cells[at] = cell;
            let message = value_of(&cells).unwrap_err();
            assert!(message.contains(allowed), "{cell}: {message}");
        }
    }

    #[test]
    fn a_value_that_its_fields_do_not_describe_whole_is_refused() {
        let value = value_of(&["1", "2", "1", "0", "0", "abc", "one", "two"]).unwrap();
        for cut in 0..value.len() {
            assert!(read_value(&every(), &value[..cut]).is_err(), "cut at {cut}");
        }
        let longer = [value.as_slice(), b"!"].concat();
        assert!(
            read_value(&every(), &longer)
                .unwrap_err()
                .contains("49 bytes")
        );
        let mut wrong = value.clone();
        wrong[9] = 2;
        assert!(
            read_value(&every(), &wrong)
                .unwrap_err()
                .contains("c cannot be read")
        );
        for bit in 0..value.len() * 8 {
            let mut flipped = value.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            // No panic, and what can be read can be written.
            if let Ok(cells) = read_value(&every(), &flipped) {
                assert_eq!(cells.len(), 8, "bit {bit}");
            }
        }
    }

    #[test]
    fn bytes_are_printed_so_that_they_come_back() {
        for bytes in [
            &b"text"[..],
            b"",
            b"0x12",
            b"\xff\x00",
            "Ünï".as_bytes(),
            b"0x",
        ] {
            assert_eq!(bytes_of(&printed(bytes)).as_deref(), Ok(bytes));
        }
        assert_eq!(printed(b"0x12"), "0x30783132");
    }

    #[test]
    fn json_has_numbers_where_it_can() {
        assert_eq!(
            Cell::Number(i128::from(u64::MAX)).json().to_string(),
            "18446744073709551615"
        );
        assert_eq!(Cell::Number(-3).json().to_string(), "-3");
        assert_eq!(Cell::F32(0.1).json().to_string(), "0.1");
        assert_eq!(Cell::F64(f64::NAN).json().to_string(), "\"NaN\"");
        assert_eq!(Cell::Bool(true).json().to_string(), "true");
    }
}
