//! `cjson.decode`.

use mlua::{MultiValue, Result, Value};

use super::{Choices, InvalidNumbers, values};
use crate::arguments::Arguments;
use crate::budget::Meter;
use crate::library::text;

/// Steps of one value.
const VALUE_STEPS: u64 = 8;

/// `cjson.decode(text)`.
pub(super) fn decode(
    args: &Arguments<'_>,
    meter: &Meter,
    choices: &mut Choices,
) -> Result<MultiValue> {
    if args.len() != 1 {
        return Err(args.refuse(0, "expected 1 argument"));
    }
    let json = args.string(0)?;
    let json = json.as_bytes();
    meter.charge_bytes(json.len())?;
    if json.len() >= 2 && (json[0] == 0 || json[1] == 0) {
        return Err(args.error("JSON parser does not support UTF-16 or UTF-32"));
    }
    let mut decoder = Decoder {
        args,
        meter,
        choices,
        json: &json,
        at: 0,
        number: None,
    };
    let token = decoder.token()?;
    let value = decoder.value(&token, 0)?;
    let token = decoder.token()?;
    match token.kind {
        Kind::End => Ok(values([value])),
        _ => Err(decoder.unexpected("the end", &token)),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    ObjectBegin,
    ObjectEnd,
    ArrayBegin,
    ArrayEnd,
    String,
    Number,
    Boolean,
    Null,
    Colon,
    Comma,
    End,
    Error,
}

/// One token, and where it stands.
struct Token {
    kind: Kind,
    at: usize,
    content: Content,
}

enum Content {
    None,
    Boolean(bool),
    Bytes(Vec<u8>),
    Error(&'static str),
}

struct Decoder<'a> {
    args: &'a Arguments<'a>,
    meter: &'a Meter,
    choices: &'a Choices,
    json: &'a [u8],
    at: usize,
    /// The number of the last token that was one.
    number: Option<f64>,
}

impl Decoder<'_> {
    fn unexpected(&self, expected: &str, token: &Token) -> mlua::Error {
        let found = match (&token.content, token.kind) {
            (Content::Error(text), _) => text,
            (_, Kind::ObjectBegin) => "T_OBJ_BEGIN",
            (_, Kind::ObjectEnd) => "T_OBJ_END",
            (_, Kind::ArrayBegin) => "T_ARR_BEGIN",
            (_, Kind::ArrayEnd) => "T_ARR_END",
            (_, Kind::String) => "T_STRING",
            (_, Kind::Number) => "T_NUMBER",
            (_, Kind::Boolean) => "T_BOOLEAN",
            (_, Kind::Null) => "T_NULL",
            (_, Kind::Colon) => "T_COLON",
            (_, Kind::Comma) => "T_COMMA",
            (_, Kind::End) => "T_END",
            (_, Kind::Error) => "T_ERROR",
        };
        let at = token.at + 1;
        self.args.error(&format!(
            "Expected {expected} but found {found} at character {at}"
        ))
    }

    fn value(&mut self, token: &Token, depth: usize) -> Result<Value> {
        self.meter.charge(VALUE_STEPS)?;
        match (token.kind, &token.content) {
            (Kind::String, Content::Bytes(bytes)) => text(self.args.lua, self.meter, bytes),
            (Kind::Number, _) => Ok(Value::Number(self.number.expect("the token is a number"))),
            (_, Content::Boolean(value)) => Ok(Value::Boolean(*value)),
            (Kind::Null, _) => Ok(Value::NULL),
            (Kind::ObjectBegin, _) => self.object(depth + 1),
            (Kind::ArrayBegin, _) => self.array(depth + 1),
            _ => Err(self.unexpected("value", token)),
        }
    }

    fn check_depth(&self, depth: usize) -> Result<()> {
        match depth > self.choices.decode_depth_max {
            true => Err(self.args.error(&format!(
                "Found too many nested data structures ({depth}) at character {}",
                self.at
            ))),
            false => Ok(()),
        }
    }

    fn object(&mut self, depth: usize) -> Result<Value> {
        self.check_depth(depth)?;
        let table = self.args.lua.create_table()?;
        let mut token = self.token()?;
        if token.kind == Kind::ObjectEnd {
            return Ok(Value::Table(table));
        }
        loop {
            let (Kind::String, Content::Bytes(bytes)) = (token.kind, &token.content) else {
                return Err(self.unexpected("object key string", &token));
            };
            let key = text(self.args.lua, self.meter, bytes)?;
            token = self.token()?;
            if token.kind != Kind::Colon {
                return Err(self.unexpected("colon", &token));
            }
            token = self.token()?;
            table.raw_set(key, self.value(&token, depth)?)?;
            token = self.token()?;
            match token.kind {
                Kind::ObjectEnd => return Ok(Value::Table(table)),
                Kind::Comma => token = self.token()?,
                _ => return Err(self.unexpected("comma or object end", &token)),
            }
        }
    }

    fn array(&mut self, depth: usize) -> Result<Value> {
        self.check_depth(depth)?;
        let table = self.args.lua.create_table()?;
        let mut token = self.token()?;
        if token.kind == Kind::ArrayEnd {
            return Ok(Value::Table(table));
        }
        let mut index = 0_i64;
        loop {
            index += 1;
            table.raw_set(index, self.value(&token, depth)?)?;
            token = self.token()?;
            match token.kind {
                Kind::ArrayEnd => return Ok(Value::Table(table)),
                Kind::Comma => token = self.token()?,
                _ => return Err(self.unexpected("comma or array end", &token)),
            }
        }
    }

    fn token(&mut self) -> Result<Token> {
        let blank = |byte: &&u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0c);
        self.at += self.json[self.at..].iter().take_while(blank).count();
        let at = self.at;
        let simple = |kind| Token {
            kind,
            at,
            content: Content::None,
        };
        let Some(byte) = self.json.get(at).copied().filter(|byte| *byte != 0) else {
            return Ok(simple(Kind::End));
        };
        let rest = &self.json[at..];
        let (kind, len) = match byte {
            b'{' => (Kind::ObjectBegin, 1),
            b'}' => (Kind::ObjectEnd, 1),
            b'[' => (Kind::ArrayBegin, 1),
            b']' => (Kind::ArrayEnd, 1),
            b':' => (Kind::Colon, 1),
            b',' => (Kind::Comma, 1),
            b'"' => return Ok(self.string()),
            b'-' | b'+' | b'0'..=b'9' => return self.number_token(),
            _ if rest.starts_with(b"null") => (Kind::Null, 4),
            _ if rest.starts_with(b"true") || rest.starts_with(b"false") => {
                let value = byte == b't';
                self.at += if value { 4 } else { 5 };
                return Ok(Token {
                    kind: Kind::Boolean,
                    at,
                    content: Content::Boolean(value),
                });
            }
            b'n' | b'N' | b'i' | b'I'
                if self.choices.invalid_decoded != InvalidNumbers::Refused =>
            {
                return self.number_token();
            }
            _ => return Ok(error(at, "invalid token")),
        };
        self.at += len;
        Ok(simple(kind))
    }

    fn number_token(&mut self) -> Result<Token> {
        let at = self.at;
        let rest = &self.json[at..];
        let (sign_len, sign) = match rest[0] {
            b'-' => (1, -1.0),
            b'+' => (1, 1.0),
            _ => (0, 1.0),
        };
        let body = &rest[sign_len..];
        let is_strict = self.choices.invalid_decoded == InvalidNumbers::Refused;
        let (magnitude, len) = match word(body).filter(|_| !is_strict) {
            Some(found) => found,
            None if is_strict && !is_strictly_a_number(rest) => {
                return Ok(error(at, "invalid number"));
            }
            None => match magnitude(body) {
                Some(found) => found,
                None if sign_len == 0 && !body[0].is_ascii_digit() => {
                    return Ok(error(at, "invalid token"));
                }
                None => return Ok(error(at, "invalid number")),
            },
        };
        self.meter.charge_bytes(len)?;
        self.number = Some(sign * magnitude);
        self.at += sign_len + len;
        Ok(Token {
            kind: Kind::Number,
            at,
            content: Content::None,
        })
    }

    fn string(&mut self) -> Token {
        let start = self.at;
        let mut bytes = Vec::new();
        let mut at = start + 1;
        loop {
            let plain = |byte: &&u8| !matches!(byte, b'"' | b'\\' | 0);
            let len = self.json[at..].iter().take_while(plain).count();
            bytes.extend_from_slice(&self.json[at..at + len]);
            at += len;
            match self.json.get(at) {
                Some(b'"') => break,
                Some(b'\\') => match escape(&self.json[at..], &mut bytes) {
                    Ok(len) => at += len,
                    Err(text) => return error(at, text),
                },
                _ => return error(at, "unexpected end of string"),
            }
        }
        self.at = at + 1;
        Token {
            kind: Kind::String,
            at: start,
            content: Content::Bytes(bytes),
        }
    }
}

fn error(at: usize, text: &'static str) -> Token {
    Token {
        kind: Kind::Error,
        at,
        content: Content::Error(text),
    }
}

/// `inf`, `infinity` or `nan` in any case, and its length.
fn word(body: &[u8]) -> Option<(f64, usize)> {
    let starts_with = |word: &[u8]| {
        let start = body.get(..word.len());
        start.is_some_and(|start| start.eq_ignore_ascii_case(word))
    };
    match () {
        () if starts_with(b"infinity") => Some((f64::INFINITY, 8)),
        () if starts_with(b"inf") => Some((f64::INFINITY, 3)),
        () if starts_with(b"nan") => Some((f64::NAN, 3)),
        () => None,
    }
}

/// What JSON allows: no sign `+`, no zero in front, nothing but decimal digits.
fn is_strictly_a_number(text: &[u8]) -> bool {
    let body = text.strip_prefix(b"-").unwrap_or(text);
    match body {
        [b'0', next, ..] => !next.is_ascii_digit() && !next.eq_ignore_ascii_case(&b'x'),
        [first, ..] => first.is_ascii_digit(),
        [] => false,
    }
}

/// A number without its sign, in base 10 or 16, and its length.
fn magnitude(body: &[u8]) -> Option<(f64, usize)> {
    let digits = |from: usize| {
        let is_digit = |byte: &&u8| byte.is_ascii_digit();
        body.get(from..)
            .unwrap_or(&[])
            .iter()
            .take_while(is_digit)
            .count()
    };
    if let [b'0', b'x' | b'X', rest @ ..] = body {
        let len = rest
            .iter()
            .take_while(|byte| byte.is_ascii_hexdigit())
            .count();
        if len > 0 {
            let shift = |number: f64, digit: &u8| {
                let digit = char::from(*digit).to_digit(16).expect("checked above");
                number * 16.0 + f64::from(digit)
            };
            return Some((rest[..len].iter().fold(0.0, shift), 2 + len));
        }
    }
    let whole = digits(0);
    if whole == 0 {
        return None;
    }
    let mut len = whole;
    if body.get(len) == Some(&b'.') {
        len += 1 + digits(len + 1);
    }
    if matches!(body.get(len), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(body.get(len + 1), Some(b'+' | b'-')));
        let exponent = digits(len + 1 + sign);
        if exponent > 0 {
            len += 1 + sign + exponent;
        }
    }
    let text = std::str::from_utf8(&body[..len]).ok()?;
    Some((text.parse().ok()?, len))
}

/// Appends what an escape stands for and returns its length.
fn escape(text: &[u8], bytes: &mut Vec<u8>) -> std::result::Result<usize, &'static str> {
    let byte = match text.get(1) {
        Some(byte @ (b'"' | b'\\' | b'/')) => *byte,
        Some(b'b') => 0x08,
        Some(b'f') => 0x0c,
        Some(b'n') => b'\n',
        Some(b'r') => b'\r',
        Some(b't') => b'\t',
        Some(b'u') => return unicode(text, bytes).ok_or("invalid unicode escape code"),
        _ => return Err("invalid escape code"),
    };
    bytes.push(byte);
    Ok(2)
}

/// `\uXXXX`, or two of them for one character.
fn unicode(text: &[u8], bytes: &mut Vec<u8>) -> Option<usize> {
    let unit = |at: usize| {
        let digits = text
            .get(at + 2..at + 6)
            .filter(|_| text[at..].starts_with(b"\\u"))?;
        let digits = std::str::from_utf8(digits).ok()?;
        let is_hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        u32::from_str_radix(digits, 16).ok().filter(|_| is_hex)
    };
    let first = unit(0)?;
    let (code, len) = match first {
        0xd800..=0xdbff => {
            let second = unit(6).filter(|unit| (0xdc00..=0xdfff).contains(unit))?;
            (0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00), 12)
        }
        code => (code, 6),
    };
    let character = char::from_u32(code)?;
    bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
    Some(len)
}
