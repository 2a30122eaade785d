//! The little language of `penstock update-if`: one guard or effect per word of the shell.
//!
//! ```text
//! instruction = [ "second." ] ( "exists" | "absent" | field operator number ) [ "else" reason ]
//! field       = type "@" offset                      u32@0, i64be@8
//! type        = u8 | u16 | u32 | u64 | i8 | i16 | i32 | i64, then "be" for big-endian (little-endian otherwise)
//! operator    = "==" | "!=" | "<" | "<=" | ">" | ">="     guards
//!             | "=" | "+=" | "-="                         effects
//! number      = 100 | -5 | 1_000 | 0xff
//! reason      = 1..255, given back if this instruction is the one that fails
//! ```
//!
//! Offsets count bytes from the start of the value. `second.` means the second key of the request. A number outside its
//! type is refused here, so that no request carries one. Values are written as plain text, `0x...`, typed numbers
//! (`u32:100` or `u32:100,u64be:7`), `@file`, or `text:...` for a text that would be read as one of these.

use std::fmt;
use std::path::PathBuf;

/// Which of the two keys of a request an instruction works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The key of the request.
    First,
    /// Its second key, written `second.`.
    Second,
}

/// What an instruction does with its field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Guard: the key has a value before this request.
    Exists,
    /// Guard: the key has no value before this request.
    Absent,
    /// Guard: field equals number.
    Equal,
    /// Guard: field differs from number.
    NotEqual,
    /// Guard: field is less than number.
    Less,
    /// Guard: field is at most number.
    LessOrEqual,
    /// Guard: field is greater than number.
    Greater,
    /// Guard: field is at least number.
    GreaterOrEqual,
    /// Effect: field becomes number.
    Set,
    /// Effect: number is added; beyond the type's range it fails as a guard does.
    Add,
    /// Effect: number is taken away; beyond the type's range it fails as a guard does.
    Subtract,
}

/// Width, sign and byte order of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldType {
    /// 1, 2, 4 or 8.
    pub width_bytes: u8,
    /// Two's complement.
    pub signed: bool,
    /// Most significant byte first.
    pub big_endian: bool,
}

/// Where a field lies in a value and how it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// How the bytes are read.
    pub kind: FieldType,
    /// Bytes from the start of the value.
    pub offset: u32,
}

/// One guard or effect as it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expression {
    /// On which key.
    pub target: Target,
    /// What is done.
    pub operation: Operation,
    /// On which field; `None` exactly for `exists` and `absent`.
    pub field: Option<Field>,
    /// The number, zero- or sign-extended to 64 bits.
    pub immediate: u64,
    /// The author's code, given back on failure; 0 if none was written.
    pub reason: u8,
}

/// Why a text is no instruction or value. It shows as one line: the text, the column, what is allowed there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpressionError {
    text: String,
    column: usize,
    allowed: String,
}

/// A value as it was written on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Literal {
    /// These bytes.
    Bytes(Vec<u8>),
    /// The content of that file.
    File(PathBuf),
}

const TYPES: [(&str, u8, bool); 8] = [
    ("u8", 1, false),
    ("u16", 2, false),
    ("u32", 4, false),
    ("u64", 8, false),
    ("i8", 1, true),
    ("i16", 2, true),
    ("i32", 4, true),
    ("i64", 8, true),
];

/// Longer ones first, so that `<=` is not read as `<`.
const OPERATORS: [(&str, Operation); 9] = [
    ("==", Operation::Equal),
    ("!=", Operation::NotEqual),
    ("<=", Operation::LessOrEqual),
    (">=", Operation::GreaterOrEqual),
    ("+=", Operation::Add),
    ("-=", Operation::Subtract),
    ("<", Operation::Less),
    (">", Operation::Greater),
    ("=", Operation::Set),
];

const TYPES_TEXT: &str = "u8, u16, u32, u64, i8, i16, i32 or i64, with be for big-endian";
const OPERATORS_TEXT: &str = "==, !=, <, <=, >, >=, =, += or -=";

impl Expression {
    /// Reads one guard or effect.
    pub fn parse(text: &str) -> Result<Expression, ExpressionError> {
        let mut cursor = Cursor { text, at: 0 };
        cursor.skip_spaces();
        let target = if cursor.take("second.") {
            Target::Second
        } else {
            Target::First
        };
        let start = cursor.at;
        let (operation, field, immediate) = match cursor.word() {
            "exists" => (Operation::Exists, None, 0),
            "absent" => (Operation::Absent, None, 0),
            word => {
                let kind = FieldType::parse(word).ok_or_else(|| {
                    cursor.error_at(
                        start,
                        format!("exists, absent or TYPE@OFFSET with TYPE one of {TYPES_TEXT}"),
                    )
                })?;
                cursor.comparison(kind)?
            }
        };
        cursor.skip_spaces();
        let reason = if cursor.take("else") {
            cursor.reason()?
        } else {
            0
        };
        cursor.skip_spaces();
        if cursor.at != text.len() {
            return Err(cursor.error_at(
                cursor.at,
                "the end, or else REASON; give each guard or effect as an argument of its own"
                    .into(),
            ));
        }
        Ok(Expression {
            target,
            operation,
            field,
            immediate,
            reason,
        })
    }
}

impl Field {
    /// Reads `u32@0`.
    pub fn parse(text: &str) -> Result<Field, ExpressionError> {
        let mut cursor = Cursor { text, at: 0 };
        let kind = FieldType::parse(cursor.word()).ok_or_else(|| {
            cursor.error_at(0, format!("TYPE@OFFSET with TYPE one of {TYPES_TEXT}"))
        })?;
        let offset = cursor.offset()?;
        if cursor.at != text.len() {
            return Err(cursor.error_at(cursor.at, "the end".into()));
        }
        Ok(Field { kind, offset })
    }

    /// The field's number in a value; `None` if the value ends before the field does.
    pub fn read(&self, value: &[u8]) -> Option<i128> {
        let start = usize::try_from(self.offset).ok()?;
        let bytes = value
            .get(start..)?
            .get(..usize::from(self.kind.width_bytes))?;
        let bits = |bits: u64, byte: &u8| bits << 8 | u64::from(*byte);
        let raw = if self.kind.big_endian {
            bytes.iter().fold(0, bits)
        } else {
            bytes.iter().rev().fold(0, bits)
        };
        let unused = 64 - 8 * u32::from(self.kind.width_bytes);
        Some(if self.kind.signed {
            i128::from((raw << unused).cast_signed() >> unused)
        } else {
            i128::from(raw)
        })
    }
}

impl FieldType {
    /// Reads `u32` or `u32be`.
    pub fn parse(text: &str) -> Option<FieldType> {
        let (name, big_endian) = match text.strip_suffix("be") {
            Some(name) => (name, true),
            None => (text, false),
        };
        TYPES
            .iter()
            .find(|(known, ..)| *known == name)
            .map(|(_, width_bytes, signed)| FieldType {
                width_bytes: *width_bytes,
                signed: *signed,
                big_endian,
            })
    }

    /// Least and greatest number of the type.
    pub fn range(self) -> (i128, i128) {
        let bits = 8 * u32::from(self.width_bytes);
        if self.signed {
            (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
        } else {
            (0, (1 << bits) - 1)
        }
    }

    /// Reads a number of this type; the error is what is allowed.
    fn parse_number(self, text: &str) -> Result<i128, String> {
        let (min, max) = self.range();
        let (negative, digits) = match text.strip_prefix('-') {
            Some(digits) => (true, digits),
            None => (false, text),
        };
        let (radix, digits) = match digits.strip_prefix("0x") {
            Some(hex) => (16, hex),
            None => (10, digits),
        };
        let plain = digits.starts_with(|c: char| c.is_digit(radix)) && !digits.ends_with('_');
        let number = plain
            .then(|| i128::from_str_radix(&digits.replace('_', ""), radix).ok())
            .flatten()
            .map(|number| if negative { -number } else { number });
        match number {
            Some(number) if (min..=max).contains(&number) => Ok(number),
            _ => Err(format!("a number, {min}..{max}")),
        }
    }

    /// The number's bytes as the field holds them. The number must be in range.
    fn bytes_of(self, number: i128, out: &mut Vec<u8>) {
        let width = usize::from(self.width_bytes);
        let little = number.to_le_bytes();
        if self.big_endian {
            out.extend(little[..width].iter().rev());
        } else {
            out.extend_from_slice(&little[..width]);
        }
    }
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
            .is_some_and(|(name, _)| FieldType::parse(name).is_some());
        if !typed {
            return Ok(Literal::Bytes(text.into()));
        }
        let mut bytes = Vec::new();
        let mut at = 0;
        for item in text.split(',') {
            let (name, number) = item.split_once(':').unwrap_or((item, ""));
            let kind = FieldType::parse(name).ok_or_else(|| {
                let allowed =
                    format!("TYPE:NUMBER with TYPE one of {TYPES_TEXT}; text:... for a plain text");
                error(text, at, &allowed)
            })?;
            let number_at = (at + name.len() + 1).min(text.len());
            let number = kind
                .parse_number(number)
                .map_err(|allowed| error(text, number_at, &allowed))?;
            kind.bytes_of(number, &mut bytes);
            at += item.len() + 1;
        }
        Ok(Literal::Bytes(bytes))
    }
}

impl fmt::Display for ExpressionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rest = &self.text[self.column..];
        write!(
            f,
            "{:?}, column {}: ",
            self.text,
            self.text[..self.column].chars().count() + 1
        )?;
        match rest.is_empty() {
            true => write!(f, "it ends where {} is expected", self.allowed),
            false => write!(f, "found {rest:?}, allowed is {}", self.allowed),
        }
    }
}

impl std::error::Error for ExpressionError {}

/// How far a text has been read. `at` is always a boundary of a character.
struct Cursor<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Cursor<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn skip_spaces(&mut self) {
        self.at = self.text.len() - self.rest().trim_start().len();
    }

    fn take(&mut self, prefix: &str) -> bool {
        let found = self.rest().starts_with(prefix);
        if found {
            self.at += prefix.len();
        }
        found
    }

    /// Letters and digits from here on.
    fn word(&mut self) -> &'a str {
        let rest = self.rest();
        let end = rest
            .find(|c: char| !c.is_ascii_alphanumeric())
            .unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    /// `@OFFSET OPERATOR NUMBER`
    fn comparison(
        &mut self,
        kind: FieldType,
    ) -> Result<(Operation, Option<Field>, u64), ExpressionError> {
        let offset = self.offset()?;
        self.skip_spaces();
        let start = self.at;
        let operation = OPERATORS
            .iter()
            .find(|(sign, _)| self.take(sign))
            .map(|(_, operation)| *operation)
            .ok_or_else(|| self.error_at(start, OPERATORS_TEXT.into()))?;
        self.skip_spaces();
        let start = self.at;
        let number = kind
            .parse_number(self.number())
            .map_err(|allowed| self.error_at(start, allowed))?;
        Ok((operation, Some(Field { kind, offset }), to_bits(number)))
    }

    fn offset(&mut self) -> Result<u32, ExpressionError> {
        if !self.take("@") {
            return Err(self.error_at(self.at, "@OFFSET, the field's first byte".into()));
        }
        let start = self.at;
        self.number()
            .parse()
            .map_err(|_| self.error_at(start, "an offset in bytes, a whole number from 0".into()))
    }

    fn reason(&mut self) -> Result<u8, ExpressionError> {
        self.skip_spaces();
        let start = self.at;
        match self.number().parse() {
            Ok(reason) if reason > 0 => Ok(reason),
            _ => Err(self.error_at(start, "a reason, 1..255".into())),
        }
    }

    /// What looks like a number from here on, right or wrong.
    fn number(&mut self) -> &'a str {
        let rest = self.rest();
        let end = rest
            .char_indices()
            .find(|(at, c)| !(c.is_ascii_alphanumeric() || *c == '_' || *at == 0 && *c == '-'))
            .map_or(rest.len(), |(at, _)| at);
        self.at += end;
        &rest[..end]
    }

    fn error_at(&self, column: usize, allowed: String) -> ExpressionError {
        error(self.text, column, &allowed)
    }
}

fn error(text: &str, column: usize, allowed: &str) -> ExpressionError {
    ExpressionError {
        text: text.into(),
        column,
        allowed: allowed.into(),
    }
}

/// A number of a field, zero- or sign-extended.
fn to_bits(number: i128) -> u64 {
    u64::try_from(number).unwrap_or_else(|_| {
        i64::try_from(number)
            .expect("negative numbers are checked against a signed type")
            .cast_unsigned()
    })
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
    use super::*;

    fn field(text: &str) -> Field {
        Field::parse(text).unwrap()
    }

    fn refusal(text: &str) -> String {
        Expression::parse(text).unwrap_err().to_string()
    }

    #[test]
    fn guard_names_its_field_and_number() {
        let guard = Expression::parse("u32@0 >= 1").unwrap();
        assert_eq!(guard.operation, Operation::GreaterOrEqual);
        assert_eq!(guard.field, Some(field("u32@0")));
        assert_eq!((guard.immediate, guard.reason), (1, 0));
        assert_eq!(guard.target, Target::First);
        let big = Expression::parse("u64be@8 == 0xff").unwrap();
        assert_eq!(big.field, Some(field("u64be@8")));
        assert_eq!(big.immediate, 255);
    }

    #[test]
    fn spaces_do_not_matter() {
        let plain = Expression::parse("u32@0 >= 1").unwrap();
        for text in ["u32@0>=1", " u32@0  >=  1 ", "u32@0 >=1"] {
            assert_eq!(Expression::parse(text).unwrap(), plain, "{text}");
        }
    }

    #[test]
    fn every_operator_is_read_as_itself() {
        for (sign, operation) in OPERATORS {
            let text = format!("i16@4 {sign} 7");
            assert_eq!(
                Expression::parse(&text).unwrap().operation,
                operation,
                "{text}"
            );
        }
    }

    #[test]
    fn second_key_existence_and_reason_are_read() {
        let guard = Expression::parse("second.absent else 4").unwrap();
        assert_eq!(guard.target, Target::Second);
        assert_eq!(
            (guard.operation, guard.field, guard.reason),
            (Operation::Absent, None, 4)
        );
        let limit = Expression::parse("second.u8@0 <= 2 else 255").unwrap();
        assert_eq!((limit.target, limit.reason), (Target::Second, 255));
        assert_eq!(
            Expression::parse("exists").unwrap().operation,
            Operation::Exists
        );
    }

    #[test]
    fn negative_numbers_are_sign_extended() {
        let effect = Expression::parse("i16@2 = -5").unwrap();
        assert_eq!(effect.immediate.cast_signed(), -5);
    }

    #[test]
    fn the_ends_of_every_type_are_taken_and_one_beyond_is_refused() {
        for (name, ..) in TYPES {
            let (min, max) = FieldType::parse(name).unwrap().range();
            for number in [min, max] {
                Expression::parse(&format!("{name}@0 = {number}")).unwrap();
            }
            for number in [min - 1, max + 1] {
                let text = format!("{name}@0 = {number}");
                let allowed = format!("allowed is a number, {min}..{max}");
                assert!(refusal(&text).ends_with(&allowed), "{}", refusal(&text));
            }
        }
    }

    #[test]
    fn refusal_points_at_the_column_and_says_what_is_allowed() {
        assert_eq!(
            refusal("u32@0 => 1"),
            "\"u32@0 => 1\", column 8: found \"> 1\", allowed is a number, 0..4294967295"
        );
        assert_eq!(
            refusal("u32@0 ~ 1"),
            format!("\"u32@0 ~ 1\", column 7: found \"~ 1\", allowed is {OPERATORS_TEXT}")
        );
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
                Expression::parse(&text).err(),
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
        assert!(refusal("0x12zz").contains("column 5: found \"zz\""));
        assert!(refusal("0x123").contains("column 6: it ends where one more"));
        assert!(refusal("u8:256").contains("column 4: found \"256\", allowed is a number, 0..255"));
        assert!(refusal("u8:1,x").contains("column 6: found \"x\", allowed is TYPE:NUMBER"));
        assert!(refusal("u8:1,u8").contains("column 8: it ends where a number"));
        assert!(refusal("@").contains("a file name"));
    }

    #[test]
    fn a_field_reads_what_its_literal_wrote() {
        for (name, ..) in TYPES {
            for order in ["", "be"] {
                let kind = FieldType::parse(&format!("{name}{order}")).unwrap();
                let (min, max) = kind.range();
                for number in [min, max, 0, 1, max / 3] {
                    let mut value = vec![0xa5; 3];
                    kind.bytes_of(number, &mut value);
                    let field = Field { kind, offset: 3 };
                    assert_eq!(field.read(&value), Some(number), "{name}{order} {number}");
                    assert_eq!(field.read(&value[..value.len() - 1]), None);
                }
            }
        }
    }
}
