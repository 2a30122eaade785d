//! The little language of the commands and of the files of a schema: guards, effects and values.
//!
//! One guard or effect stands in one word of the shell: [`parse_step`] for `penstock apply`,
//! [`parse_step_of_only_key`] for `penstock update-if`. A number is compared and set within the
//! range of its field. What is added may be more: the sum decides, at the server.
//!
//! A value is plain text, `0x...`, typed numbers (`u32:100` or `u32:100,u64be:7`), `@file`, or
//! `text:...` for a text that would be read as one of these.

mod apply;
mod cursor;
mod layout;
mod scope;
mod step;
pub mod times;

use std::path::PathBuf;

use crate::instruction::FieldType;

pub use apply::{number_name, parse_step, parse_step_in, parse_step_of_only_key};
use cursor::{Cursor, error};
pub use cursor::{ExpressionError, parse_number};
pub use layout::{FieldKind, FieldValue, LayoutField, TEXT_BYTES, ValueLayout};
pub use scope::{Filled, Scope, ScopeKey, kind_text};
pub use step::{NamedKey, PutWay, Step};

/// A field of a value: where it lies and how it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// How the bytes are read.
    pub field_type: FieldType,
    /// Bytes from the start of the value.
    pub offset: u32,
}

/// A value as it was written on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Literal {
    /// The bytes themselves.
    Bytes(Vec<u8>),
    /// The content of the file with this path.
    File(PathBuf),
}

/// Words that begin an instruction or an operand, so nothing is named so.
const RESERVED: [&str; 5] = ["before", "since", "return", "now", "when"];

/// Whether a key or an argument may have this name: letters, digits and underscores behind a
/// letter, and no word of the instructions.
pub fn is_name(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.chars().all(is_of_name)
        && !RESERVED.contains(&text)
}

fn is_of_name(character: char) -> bool {
    character.is_ascii_alphanumeric() || character == '_'
}

const TYPES_TEXT: &str = "u8, u16, u32, u64, i8, i16, i32 or i64, with be for big-endian";

impl Field {
    /// Reads `u32@0`.
    ///
    /// # Errors
    /// The first column that cannot be read, with what is allowed there.
    pub fn parse(text: &str) -> Result<Field, ExpressionError> {
        let mut cursor = Cursor::begin(text);
        let field_type = FieldType::from_name(cursor.word()).ok_or_else(|| {
            cursor.error_at(0, format!("TYPE@OFFSET with TYPE one of {TYPES_TEXT}"))
        })?;
        let offset = cursor.offset()?;
        if cursor.at != text.len() {
            return Err(cursor.error_at(cursor.at, "the end".into()));
        }
        Ok(Field { field_type, offset })
    }

    /// The field's number in a value; `None` if the value ends before the field does.
    pub fn read(&self, value: &[u8]) -> Option<i128> {
        let start = usize::try_from(self.offset).ok()?;
        let bytes = value.get(start..)?.get(..self.field_type.width())?;
        Some(self.field_type.load(bytes))
    }
}

/// Whether a text looks like a number of an unknown type. Nobody means such a text, and `u9:1` for
/// `u8:1` would store four letters instead of a byte.
fn is_nearly_typed(text: &str) -> bool {
    let Some((name, number)) = text.split_once(':') else {
        return false;
    };
    let width = name.strip_prefix(['u', 'i', 'U', 'I']).unwrap_or("");
    let digits = width.trim_end_matches(['b', 'l', 'e']);
    let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit());
    let first = number.split(',').next().unwrap_or("");
    is_digits(digits) && is_digits(first.trim_start_matches('-'))
}

impl Literal {
    /// Reads plain text, `0x...`, `u32:100,u64be:7`, `@file` or `text:...`.
    pub fn parse(text: &str) -> Result<Literal, ExpressionError> {
        if let Some(plain) = text.strip_prefix("text:") {
            return Ok(Literal::Bytes(plain.into()));
        }
        if let Some(path) = text.strip_prefix('@') {
            if path.is_empty() {
                return Err(error(text, 1, "a file name, or text:@ for the text @"));
            }
            return Ok(Literal::File(path.into()));
        }
        if let Some(digits) = text.strip_prefix("0x") {
            return parse_hex(text, digits).map(Literal::Bytes);
        }
        let typed = text
            .split_once(':')
            .is_some_and(|(name, _)| FieldType::from_name(name).is_some());
        if !typed && !is_nearly_typed(text) {
            return Ok(Literal::Bytes(text.into()));
        }
        let mut bytes = Vec::new();
        let mut at = 0;
        for item in text.split(',') {
            let (name, number) = item.split_once(':').unwrap_or((item, ""));
            let field_type = FieldType::from_name(name).ok_or_else(|| {
                let allowed =
                    format!("TYPE:NUMBER with TYPE one of {TYPES_TEXT}; text:... for a plain text");
                error(text, at, &allowed)
            })?;
            let number_at = (at + name.len() + 1).min(text.len());
            let number = parse_number(field_type.range(), number)
                .map_err(|allowed| error(text, number_at, &allowed))?;
            let start = bytes.len();
            bytes.resize(start + field_type.width(), 0);
            field_type.store(number, &mut bytes[start..]);
            at += item.len() + 1;
        }
        Ok(Literal::Bytes(bytes))
    }
}

fn parse_hex(text: &str, digits: &str) -> Result<Vec<u8>, ExpressionError> {
    if let Some(at) = digits.find(|c: char| !c.is_ascii_hexdigit()) {
        return Err(error(text, 2 + at, "hexadecimal digits"));
    }
    if !digits.len().is_multiple_of(2) {
        return Err(error(
            text,
            text.len(),
            "one more hexadecimal digit, two a byte",
        ));
    }
    let nibble = |digit: u8| match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        _ => digit - b'A' + 10,
    };
    Ok(digits
        .as_bytes()
        .chunks_exact(2)
        .map(|pair| nibble(pair[0]) << 4 | nibble(pair[1]))
        .collect())
}

#[cfg(test)]
mod tests {
    use crate::instruction::{Instruction, Operation};

    use super::*;

    fn every_type() -> impl Iterator<Item = FieldType> {
        (0..=u8::MAX).filter_map(FieldType::from_code)
    }

    fn field_of(instruction: Instruction) -> Field {
        Field {
            field_type: instruction.field_type,
            offset: instruction.offset,
        }
    }

    /// The instruction of an UPDATE_IF that a text stands for.
    fn parse_instruction(text: &str) -> Result<Instruction, ExpressionError> {
        let step = parse_step_of_only_key(text)?;
        Ok(step.of_update_if().expect("an UPDATE_IF does it"))
    }

    fn refusal(text: &str) -> String {
        parse_step_of_only_key(text).unwrap_err().to_string()
    }

    #[test]
    fn guard_names_its_field_and_number() {
        let guard = parse_instruction("u32@0 >= 1").unwrap();
        assert_eq!(guard.operation, Operation::Ge);
        assert_eq!(field_of(guard), Field::parse("u32@0").unwrap());
        assert_eq!((guard.immediate, guard.reason, guard.key), (1, 0, 0));
        let big = parse_instruction("u64be@8 == 0xff").unwrap();
        assert_eq!(field_of(big), Field::parse("u64be@8").unwrap());
        assert_eq!(big.immediate, 255);
    }

    #[test]
    fn spaces_do_not_matter() {
        let plain = parse_instruction("u32@0 >= 1").unwrap();
        for text in ["u32@0>=1", " u32@0  >=  1 ", "u32@0 >=1"] {
            assert_eq!(parse_instruction(text).unwrap(), plain, "{text}");
        }
    }

    #[test]
    fn every_operator_is_read_as_itself() {
        let operators = [
            ("==", Operation::Eq),
            ("!=", Operation::Ne),
            ("<=", Operation::Le),
            (">=", Operation::Ge),
            ("+=", Operation::Add),
            ("-=", Operation::Sub),
            ("<", Operation::Lt),
            (">", Operation::Gt),
            ("=", Operation::Set),
        ];
        for (sign, operation) in operators {
            let text = format!("i16@4 {sign} 7");
            assert_eq!(
                parse_instruction(&text).unwrap().operation,
                operation,
                "{text}"
            );
        }
    }

    #[test]
    fn second_key_existence_and_reason_are_read() {
        let guard = parse_instruction("second.absent else 4").unwrap();
        assert_eq!(
            (guard.operation, guard.key, guard.reason),
            (Operation::Absent, 1, 4)
        );
        let limit = parse_instruction("second.u8@0 <= 2 else 255").unwrap();
        assert_eq!((limit.key, limit.reason), (1, 255));
        assert_eq!(
            parse_instruction("exists").unwrap().operation,
            Operation::Exists
        );
    }

    #[test]
    fn negative_numbers_are_sign_extended() {
        let effect = parse_instruction("i16@2 = -5").unwrap();
        assert_eq!(effect.immediate.cast_signed(), -5);
    }

    #[test]
    fn the_ends_of_every_type_are_taken_and_one_beyond_is_refused() {
        for field_type in every_type() {
            let (name, (min, max)) = (field_type.name(), field_type.range());
            for number in [min, max] {
                parse_instruction(&format!("{name}@0 = {number}")).unwrap();
            }
            for number in [min - 1, max + 1] {
                let text = format!("{name}@0 = {number}");
                let allowed = format!("allowed is a number, {min}..{max}, now");
                assert!(refusal(&text).contains(&allowed), "{}", refusal(&text));
            }
        }
    }

    #[test]
    fn refusal_points_at_the_column_and_says_what_is_allowed() {
        assert_eq!(
            refusal("u32@0 => 1"),
            "\"u32@0 => 1\", column 8: found \"> 1\", allowed is a number, 0..4294967295, now, \
             TYPE@OFFSET or decimal"
        );
        assert!(refusal("u32@0 ~ 1").contains("column 7: found \"~ 1\", allowed is ==, !=, <"));
        assert!(refusal("u33@0 = 1").contains("column 1: found \"u33@0 = 1\", allowed is exists"));
        assert!(refusal("").contains("column 1: it ends where exists"));
        assert!(refusal("u32 >= 1").contains("column 4: found \" >= 1\", allowed is @OFFSET"));
        assert!(refusal("u32@ >= 1").contains("column 5: "));
        assert!(refusal("u32@-1 >= 1").contains("column 5: found \"-1"));
        assert!(refusal("u32@4294967296 >= 1").contains("an offset"));
        assert!(refusal("u32@0 >= ").contains("column 10: it ends where a number, 0.."));
        assert!(refusal("u32@0 >= 1 u32@0 -= 1").contains("column 12: "));
        assert!(refusal("exists else 0").contains("a reason, 1..255"));
        assert!(refusal("exists else 256").contains("a reason, 1..255"));
        assert!(refusal("Stück@0 = 1").contains("column 1: "));
    }

    #[test]
    fn no_text_makes_the_reader_fail_worse_than_by_an_error() {
        let pieces = [
            "u32", "i8be", "@", "0", "-1", " ", ">=", "=", "+", "second.", "exists", "else", "_",
            "é", "0x", "",
        ];
        let mut seed = 7_u64;
        for _ in 0..20_000 {
            let mut text = String::new();
            for _ in 0..6 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let index = usize::try_from(seed >> 33).unwrap() % pieces.len();
                text.push_str(pieces[index]);
            }
            for error in [
                parse_step_of_only_key(&text).err(),
                Literal::parse(&text).err(),
                Field::parse(&text).err(),
            ] {
                assert!(error.is_none_or(|error| error.to_string().contains("column")));
            }
        }
    }

    #[test]
    fn literals_are_text_hex_numbers_or_files() {
        let bytes = |text: &str| match Literal::parse(text) {
            Ok(Literal::Bytes(bytes)) => bytes,
            other => panic!("{text}: {other:?}"),
        };
        assert_eq!(bytes("hello"), b"hello");
        assert_eq!(bytes(""), b"");
        assert_eq!(bytes("user:42"), b"user:42");
        assert_eq!(bytes("0xDEadbe"), [0xde, 0xad, 0xbe]);
        assert_eq!(bytes("0x"), b"");
        assert_eq!(bytes("u32:100"), 100_u32.to_le_bytes());
        assert_eq!(bytes("u32be:100"), 100_u32.to_be_bytes());
        assert_eq!(bytes("i64:-5"), (-5_i64).to_le_bytes());
        assert_eq!(bytes("u16:1,u8:2,u16be:3"), [1, 0, 2, 0, 3]);
        assert_eq!(bytes("text:@home"), b"@home");
        assert_eq!(bytes("text:0x1"), b"0x1");
        assert_eq!(Literal::parse("@a/b"), Ok(Literal::File("a/b".into())));
    }

    #[test]
    fn wrong_literals_point_at_the_column() {
        let refusal = |text: &str| Literal::parse(text).unwrap_err().to_string();
        for text in ["u9:1", "u33be:7", "i8le:-1", "U32:100,u8:1"] {
            let message = refusal(text);
            assert!(
                message.contains("TYPE one of") && message.contains("text:"),
                "{message}"
            );
        }
        for text in [
            "u9",
            "u9:",
            "unit:1",
            "u:1",
            "u32x:1",
            "item9:1",
            "u9:word",
            "text:u9:1",
        ] {
            assert!(Literal::parse(text).is_ok(), "{text}");
        }
        assert!(refusal("0x12zz").contains("column 5: found \"zz\""));
        assert!(refusal("0x123").contains("column 6: it ends where one more"));
        assert!(refusal("u8:256").contains("column 4: found \"256\", allowed is a number, 0..255"));
        assert!(refusal("u8:1,x").contains("column 6: found \"x\", allowed is TYPE:NUMBER"));
        assert!(refusal("u8:1,u8").contains("column 8: it ends where a number"));
        assert!(refusal("@").contains("a file name"));
    }

    #[test]
    fn a_field_reads_what_its_literal_wrote() {
        for field_type in every_type() {
            let (min, max) = field_type.range();
            for number in [min, max, 0, 1, max / 3] {
                let text = format!("u8:7,{}:{number}", field_type.name());
                let Ok(Literal::Bytes(value)) = Literal::parse(&text) else {
                    panic!("{text}")
                };
                let field = Field {
                    field_type,
                    offset: 1,
                };
                assert_eq!(field.read(&value), Some(number), "{text}");
                assert_eq!(field.read(&value[..value.len() - 1]), None, "{text}");
            }
        }
    }

    #[test]
    fn what_is_parsed_is_what_the_wire_accepts() {
        for text in [
            "exists",
            "second.absent",
            "i64be@8 -= -5",
            "u8@0 = 255 else 3",
        ] {
            let instruction = parse_instruction(text).unwrap();
            assert_eq!(
                Instruction::read(&instruction.encode(), 0, 2).ok(),
                Some(instruction),
                "{text}"
            );
        }
    }

    #[test]
    fn a_brief_error_shows_no_more_of_a_long_text_than_it_may() {
        let long = format!("exists else {}", "\u{e9}".repeat(1000));
        let error = parse_step_of_only_key(&long).unwrap_err();
        assert!(error.to_string().contains(&long));
        let brief = error.brief(128);
        let shown = brief.matches('\u{e9}').count() * 2;
        assert!((80..=128).contains(&shown), "{brief}");
        assert!(
            brief.contains("a reason, 1..255") && brief.contains("column 13"),
            "{brief}"
        );
        let short = parse_step_of_only_key("exists else 0").unwrap_err();
        assert_eq!(short.brief(128), short.to_string());
    }
}
