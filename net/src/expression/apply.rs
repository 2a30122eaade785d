//! The little language of `penstock apply`: one guard or effect per word of the shell.
//!
//! ```text
//! instruction = ( key-guard | time-guard | number-guard | effect | "return" number ) [ else ]
//!             | NAME ( "put" | "start" | "replace" ) VALUE    up to the end of the argument
//!             | "when" NAME "expires" [ ":" effect | ":" NAME ( "put" | "start" ) VALUE ]
//! key-guard   = NAME ( "exists" | "absent" [ "since" VERSION ] | "version" VERSION )
//! VERSION     = EPOCH ":" SEQUENCE
//! time-guard  = ( "before" | "since" ) ( UNIX_MS | number )
//! number-guard = number ( "==" | "!=" | "<" | "<=" | ">" | ">=" ) operand
//!             | number "has" ( "all" | "any" | "no" ) "bits" operand
//! effect      = number ( "=" | "min=" | "max=" | "&=" | "|=" | "^=" ) operand
//!             | number ( "+=" | "-=" ) operand [ "saturating" ]
//!             | number "rate" UNITS "/" TIME "burst" UNITS [ "take" UNITS ]
//!             | NAME "del"
//!             | NAME "expires" ( "never" | "in" LIFETIME | "at" operand )
//! number      = NAME "." ( type "@" OFFSET | "decimal" )
//! operand     = 100 | -5 | 1_000 | 0xff | number | "now" [ ( "+" | "-" ) LIFETIME ]
//! else        = "else" REASON                             1..255
//! ```
//!
//! `penstock update-if KEY` has one key without a name, and perhaps one that is called `second`.
//! There an instruction begins behind the NAME and its dot or space, as in `u32@0 >= 1`, `exists`
//! or `second.u8@0 == 1`; `second.exists` is `second exists`.
//!
//! A NAME is one of those that `--key NAME=KEY` gives. What ends in `=` alone is an effect. What
//! stands behind `when NAME expires:` runs then; several such arguments of one NAME, one behind the
//! other, run together. Without anything behind it the end of the key is logged, and nothing runs.
//!
//! In the files of a schema a NAME is a key of the program. There a number may be a field of the
//! layout of its key, an operand an argument of the program, and a value a list of fields:
//!
//! ```text
//! number      = NAME "." FIELD                            as the layout names it
//! operand, LIFETIME, UNITS behind "take", TIME = ARGUMENT
//! VALUE       = "{" FIELD "=" ( 100 | "true" | ARGUMENT ) { "," ... } "}"   others are zero
//!             | "{" ARGUMENT "}"                          bytes that are the whole value
//! ```

use crate::apply::{
    Action, ApplyInstruction, Arithmetic, BitTest, Comparison, NumberAt, NumberKind, Operand, Rate,
};
use crate::instruction::FieldType;
use crate::limits::EXPIRY_MS_MAX;
use crate::program::ArgumentKind;
use crate::version::Version;

use super::cursor::{Cursor, ExpressionError, parse_number, to_bits};
use super::layout::{FieldKind, LayoutField, ValueLayout};
use super::scope::{Filled, Scope, fields_text, kind_text};
use super::step::{NamedKey, PutWay, Step};
use super::times::{parse_lifetime, parse_version};
use super::{Literal, TYPES_TEXT, is_of_name};

/// Times in milliseconds since 1970, and lifetimes in milliseconds.
const TIMES: (i128, i128) = (1, EXPIRY_MS_MAX as i128);

/// What stands behind the colon of `when NAME expires:`.
const EFFECT_EXPECTED: &str = "an effect: nothing else runs when a key expires";

/// What an operator makes of a number and its operand.
#[derive(Clone, Copy)]
enum Operator {
    Guard(Comparison),
    Effect(Arithmetic),
}

/// The operators, longer ones first, so that `<=` is not read as `<`.
const OPERATORS: [(&str, Operator); 14] = [
    ("min=", Operator::Effect(Arithmetic::Min)),
    ("max=", Operator::Effect(Arithmetic::Max)),
    ("==", Operator::Guard(Comparison::Eq)),
    ("!=", Operator::Guard(Comparison::Ne)),
    ("<=", Operator::Guard(Comparison::Le)),
    (">=", Operator::Guard(Comparison::Ge)),
    ("+=", Operator::Effect(Arithmetic::Add)),
    ("-=", Operator::Effect(Arithmetic::Sub)),
    ("&=", Operator::Effect(Arithmetic::And)),
    ("|=", Operator::Effect(Arithmetic::Or)),
    ("^=", Operator::Effect(Arithmetic::Xor)),
    ("<", Operator::Guard(Comparison::Lt)),
    (">", Operator::Guard(Comparison::Gt)),
    ("=", Operator::Effect(Arithmetic::Set)),
];

const OPERATORS_TEXT: &str = "==, !=, <, <=, >, >=, has all|any|no bits, =, +=, -=, min=, max=, \
                              &=, |=, ^= or rate";
const KEY_TEXT: &str =
    "exists, absent, version, put, start, replace, del, expires, or . and a number";

/// The words that are about a key itself, and end no name of a number.
const KEY_WORDS: [&str; 5] = ["exists", "absent", "version", "del", "expires"];
/// What may be said of the only key, up to the types.
const ONLY_KEY_TEXT: &str = "exists, absent, version, put, start, replace, del, expires, before, \
                             since, return, when, decimal or TYPE@OFFSET with TYPE one of ";

/// Reads one guard or effect on the keys with these names.
///
/// # Errors
/// The first column that cannot be read, with what is allowed there.
pub fn parse_step(text: &str, keys: &[NamedKey]) -> Result<Step, ExpressionError> {
    let scope = Scope::of_command(keys.iter().map(|key| key.name.as_str()));
    parse_step_in(text, &scope).map(|(step, _)| step)
}

/// Reads one guard or effect with these names, and tells which places of it arguments fill.
///
/// # Errors
/// The first column that cannot be read, with what is allowed there.
pub fn parse_step_in(
    text: &str,
    scope: &Scope<'_>,
) -> Result<(Step, Vec<Filled>), ExpressionError> {
    let mut reader = Reader {
        cursor: Cursor::begin(text),
        scope,
        filled: Vec::new(),
    };
    let step = reader.step()?;
    Ok((step, reader.filled))
}

/// Reads one guard or effect of `penstock update-if`, which names no key, or the second one.
///
/// # Errors
/// The first column that cannot be read, with what is allowed there.
pub fn parse_step_of_only_key(text: &str) -> Result<Step, ExpressionError> {
    parse_step_in(text, &Scope::of_only_key()).map(|(step, _)| step)
}

/// A number as instructions write it, without the name of its key.
pub fn number_name(at: NumberAt) -> String {
    match at.kind() {
        NumberKind::Decimal => "decimal".into(),
        NumberKind::Field(field_type) => format!("{}@{}", field_type.name(), at.offset()),
    }
}

/// The numbers that an effect may be written with. A number that the kind cannot hold may be added:
/// the result decides.
fn operand_range(change: Arithmetic, kind: NumberKind) -> (i128, i128) {
    match (change, kind.is_signed()) {
        (Arithmetic::Set | Arithmetic::And | Arithmetic::Or | Arithmetic::Xor, _) => kind.range(),
        (_, true) => (i64::MIN.into(), i64::MAX.into()),
        (_, false) => (0, u64::MAX.into()),
    }
}

struct Reader<'a> {
    cursor: Cursor<'a>,
    scope: &'a Scope<'a>,
    /// The places that arguments fill.
    filled: Vec<Filled>,
}

/// A number that instructions may be about.
#[derive(Clone, Copy)]
struct Numbered {
    at: NumberAt,
    /// It is 0 or 1.
    is_bool: bool,
}

impl<'a> Reader<'a> {
    fn step(&mut self) -> Result<Step, ExpressionError> {
        self.cursor.skip_spaces();
        let start = self.cursor.at;
        let (key, action) = match self.name() {
            "when" => return self.on_expiry(),
            "before" => (0, Action::Before(self.bound()?)),
            "since" => (0, Action::Since(self.bound()?)),
            "return" => {
                let (key, number) = self.number_at()?;
                (key, Action::Return(number.at))
            }
            name => {
                let key = self.scope.key(name);
                if key.is_none() && self.scope.has_only_key() {
                    self.cursor.at = start;
                    return self.on_named(0);
                }
                let key = key.ok_or_else(|| {
                    let names = self.scope.keys_text();
                    self.error_at(start, &format!("before, since, return, when, or {names}"))
                })?;
                if self.cursor.take(".") {
                    return self.on_named(key);
                }
                self.cursor.skip_spaces();
                return self.on_whole_key(key);
            }
        };
        self.end(key, action)
    }

    /// What is said of a key after its name and a dot, or of the only one: a guard or an effect on
    /// one of its numbers. The only key itself is meant where no number stands.
    fn on_named(&mut self, key: u8) -> Result<Step, ExpressionError> {
        if self.scope.has_only_key() {
            let start = self.cursor.at;
            let word = self.cursor.word();
            self.cursor.at = start;
            if KEY_WORDS.contains(&word) || PutWay::of_word(word).is_some() {
                return self.on_whole_key(key);
            }
            if NumberKind::from_name(word).is_none() {
                return Err(self.error_at(start, &format!("{ONLY_KEY_TEXT}{TYPES_TEXT}")));
            }
        }
        let number = self.number_of(key)?;
        let action = self.on_number(number)?;
        self.end(key, action)
    }

    /// A guard or an effect on a key itself, which begins with its word.
    fn on_whole_key(&mut self, key: u8) -> Result<Step, ExpressionError> {
        let start = self.cursor.at;
        let word = self.cursor.word();
        if let Some(way) = PutWay::of_word(word) {
            let value = self.value(key)?;
            return Ok(Step::Put { key, way, value });
        }
        let action = self.on_key(word, start)?;
        self.end(key, action)
    }

    /// The instruction, with its reason, at the end of the text.
    fn end(&mut self, key: u8, action: Action) -> Result<Step, ExpressionError> {
        let reason = self.cursor.reason_and_end()?;
        Ok(Step::Instruction(ApplyInstruction {
            key,
            reason,
            action,
        }))
    }

    /// `NAME expires`, and perhaps `:` and an effect.
    fn on_expiry(&mut self) -> Result<Step, ExpressionError> {
        self.cursor.skip_spaces();
        let start = self.cursor.at;
        let name = self.name();
        let key = match self.scope.key(name) {
            None if self.scope.has_only_key() => {
                self.cursor.at = start;
                Some(0)
            }
            key => key,
        };
        let key = key.ok_or_else(|| self.error_at(start, "the name of the key that expires"))?;
        self.keyword("expires")?;
        self.cursor.skip_spaces();
        if self.cursor.rest().is_empty() {
            return Ok(Step::OnExpiry { key, effect: None });
        }
        if !self.cursor.take(":") {
            return Err(self.error_at(self.cursor.at, ": and an effect, or the end"));
        }
        self.cursor.skip_spaces();
        let start = self.cursor.at;
        // Before it is read: one within the other would go as deep as the text is long.
        let is_nested = self.cursor.word() == "when";
        self.cursor.at = start;
        if is_nested {
            return Err(self.error_at(start, EFFECT_EXPECTED));
        }
        let effect = self.step()?;
        let may_run_later = match &effect {
            Step::Instruction(instruction) => instruction.may_run_later(),
            Step::Put { way, .. } => *way != PutWay::Replace,
            Step::OnExpiry { .. } => false,
        };
        match may_run_later {
            true => Ok(Step::OnExpiry {
                key,
                effect: Some(Box::new(effect)),
            }),
            false => Err(self.error_at(start, EFFECT_EXPECTED)),
        }
    }

    /// What a word behind the name of a key means. The word begins at `start`.
    fn on_key(&mut self, word: &str, start: usize) -> Result<Action, ExpressionError> {
        Ok(match word {
            "exists" => Action::Exists,
            "absent" => {
                self.cursor.skip_spaces();
                match self.cursor.take("since ") {
                    true => Action::AbsentSince(self.version()?),
                    false => Action::Absent,
                }
            }
            "del" => Action::Delete,
            "version" => Action::Version(self.version()?),
            "expires" => Action::Expire(self.expiry()?),
            _ => return Err(self.error_at(start, KEY_TEXT)),
        })
    }

    /// `never`, `in LIFETIME` or `at TIME`
    fn expiry(&mut self) -> Result<Operand, ExpressionError> {
        self.cursor.skip_spaces();
        let start = self.cursor.at;
        match self.cursor.word() {
            "never" => Ok(Operand::Immediate(0)),
            "in" => {
                self.cursor.skip_spaces();
                let plus_ms = self.lifetime()?;
                Ok(Operand::Now { plus_ms })
            }
            "at" => match self.time_or_number(TIMES)? {
                Some(operand) => Ok(operand),
                None => self.unix_ms(),
            },
            _ => Err(self.error_at(start, "never, in LIFETIME or at TIME")),
        }
    }

    /// What a guard on the time compares with.
    fn bound(&mut self) -> Result<Operand, ExpressionError> {
        self.cursor.skip_spaces();
        let start = self.cursor.at;
        match self.time_or_number(TIMES)? {
            None => self.unix_ms(),
            Some(Operand::Now { .. }) => {
                let number = self.scope.number_text();
                let allowed = format!("a time in milliseconds since 1970, {number}");
                Err(self.error_at(start, &allowed))
            }
            Some(operand) => Ok(operand),
        }
    }

    fn unix_ms(&mut self) -> Result<Operand, ExpressionError> {
        let start = self.cursor.at;
        let number = parse_number((1, EXPIRY_MS_MAX.into()), self.cursor.number());
        let ms = number.map_err(|_| {
            self.error_at(
                start,
                &format!("1 to {EXPIRY_MS_MAX}, in milliseconds since 1970"),
            )
        })?;
        Ok(Operand::Immediate(to_bits(ms)))
    }

    /// What stands behind a number: a guard on it or an effect.
    fn on_number(&mut self, number: Numbered) -> Result<Action, ExpressionError> {
        self.cursor.skip_spaces();
        let (start, at) = (self.cursor.at, number.at);
        if number.is_bool {
            return self.on_bool(at);
        }
        let rest = self.cursor.rest();
        let word = rest.split(|it: char| !it.is_ascii_alphabetic()).next();
        match word {
            Some("has") => {
                self.cursor.at += "has".len();
                return self.bits(at);
            }
            Some("rate") => {
                self.cursor.at += "rate".len();
                return self.rate(at, start);
            }
            _ => {}
        }
        let operator = OPERATORS.iter().find(|(sign, _)| self.cursor.take(sign));
        let (_, operator) = operator.ok_or_else(|| self.error_at(start, OPERATORS_TEXT))?;
        Ok(match *operator {
            Operator::Guard(comparison) => {
                Action::Compare(comparison, at, self.operand(at.kind().range())?)
            }
            Operator::Effect(change) => {
                let operand = self.operand(operand_range(change, at.kind()))?;
                self.cursor.skip_spaces();
                let change = match change {
                    Arithmetic::Add if self.cursor.take("saturating") => Arithmetic::AddSaturating,
                    Arithmetic::Sub if self.cursor.take("saturating") => Arithmetic::SubSaturating,
                    change => change,
                };
                Action::Change(change, at, operand)
            }
        })
    }

    /// What stands behind a field that is 0 or 1.
    fn on_bool(&mut self, at: NumberAt) -> Result<Action, ExpressionError> {
        let start = self.cursor.at;
        let found = ["==", "!=", "="]
            .into_iter()
            .find(|it| self.cursor.take(it));
        let Some(sign) = found else {
            return Err(self.error_at(start, "==, != or =: the field is true or false"));
        };
        self.cursor.skip_spaces();
        let start = self.cursor.at;
        let operand = if self.cursor.take("true") {
            Operand::Immediate(1)
        } else if self.cursor.take("false") {
            Operand::Immediate(0)
        } else {
            self.operand((0, 1))?
        };
        match (sign, operand) {
            ("==", operand) => Ok(Action::Compare(Comparison::Eq, at, operand)),
            ("!=", operand) => Ok(Action::Compare(Comparison::Ne, at, operand)),
            (_, Operand::Immediate(_)) => Ok(Action::Change(Arithmetic::Set, at, operand)),
            _ => Err(self.error_at(
                start,
                "true, false or an argument: the field is one of both",
            )),
        }
    }

    /// `all bits`, `any bits` or `no bits`, and which.
    fn bits(&mut self, at: NumberAt) -> Result<Action, ExpressionError> {
        self.cursor.skip_spaces();
        let start = self.cursor.at;
        let test = match self.cursor.word() {
            "all" => BitTest::All,
            "any" => BitTest::Any,
            "no" => BitTest::None,
            _ => return Err(self.error_at(start, "all bits, any bits or no bits")),
        };
        self.keyword("bits")?;
        Ok(Action::Bits(test, at, self.operand(at.kind().range())?))
    }

    /// `10/s burst 20 take 1`. The instruction's word begins at `start`.
    fn rate(&mut self, at: NumberAt, start: usize) -> Result<Action, ExpressionError> {
        let is_u64 = matches!(at.kind().name(), "u64" | "u64be");
        if !is_u64 {
            return Err(self.error_at(start, "another word: a rate is kept in a u64 or u64be"));
        }
        self.cursor.skip_spaces();
        let start = self.cursor.at;
        let units = self.units(1_000_000_000)?;
        if !self.cursor.take("/") {
            return Err(self.error_at(self.cursor.at, "/ and a time, as in 10/s or 5/10m"));
        }
        let time_ms = self.period()?;
        let time_us = u128::from(time_ms) * 1_000;
        let units = u128::from(units);
        // Rounded up: the rate is never exceeded.
        let interval_us = time_us.div_ceil(units);
        let is_rate = (1..=u128::from(Rate::INTERVAL_US_MAX)).contains(&interval_us);
        if !is_rate || time_us < units {
            return Err(self.error_at(start, "a rate from 1 in 12 days to 1000000 in a second"));
        }
        // More than a hundredth less than what is written.
        if interval_us * units * 100 > time_us * 101 {
            let near = 1_000_000 / interval_us;
            return Err(self.error_at(
                start,
                &format!("a rate whose unit takes whole microseconds; near is {near}/s"),
            ));
        }
        let interval_us = u64::try_from(interval_us).expect("within its borders");
        self.keyword("burst")?;
        let burst = self.units(u16::MAX.into())?;
        self.cursor.skip_spaces();
        let quantity_max = burst.min(u8::MAX.into());
        let quantity = match self.cursor.take("take") {
            true => match self.argument((1, quantity_max.into()))? {
                Some(argument) => {
                    self.filled.push(Filled::Quantity(argument));
                    1
                }
                None => self.units(quantity_max)?,
            },
            false => 1,
        };
        let rate = Rate {
            interval_us,
            burst: u16::try_from(burst).expect("within its borders"),
            quantity: u8::try_from(quantity).expect("within its borders"),
        };
        Ok(Action::Rate(at, rate))
    }

    /// A count of units, 1 to `max`.
    fn units(&mut self, max: u64) -> Result<u64, ExpressionError> {
        self.cursor.skip_spaces();
        let start = self.cursor.at;
        match parse_number((1, max.into()), self.cursor.number()) {
            Ok(units) => Ok(to_bits(units)),
            Err(_) => Err(self.error_at(start, &format!("a number of units, 1..{max}"))),
        }
    }

    /// `s`, `10m`: a lifetime whose number may be left out. In milliseconds.
    fn period(&mut self) -> Result<u64, ExpressionError> {
        let start = self.cursor.at;
        let text = self.cursor.word();
        let has_number = text.starts_with(|first: char| first.is_ascii_digit());
        let time = match has_number {
            true => parse_lifetime(text),
            false => parse_lifetime(&format!("1{text}")),
        };
        time.map_err(|_| self.error_at(start, "ms, s, m, h or d, perhaps with a number before it"))
    }

    /// `30s`, in milliseconds, or an argument that fills them.
    fn lifetime(&mut self) -> Result<i64, ExpressionError> {
        match self.argument(TIMES)? {
            Some(argument) => {
                self.filled.push(Filled::Operand(argument));
                Ok(0)
            }
            None => self.fixed_lifetime(),
        }
    }

    /// `30s`, in milliseconds.
    fn fixed_lifetime(&mut self) -> Result<i64, ExpressionError> {
        let start = self.cursor.at;
        let ms = parse_lifetime(self.cursor.word()).ok();
        let ms = ms.and_then(|ms| i64::try_from(ms).ok());
        ms.ok_or_else(|| self.error_at(start, "a whole number and ms, s, m, h or d, as in 30s"))
    }

    /// A number within these borders, a number of a key, or the time.
    fn operand(&mut self, range: (i128, i128)) -> Result<Operand, ExpressionError> {
        if let Some(operand) = self.time_or_number(range)? {
            return Ok(operand);
        }
        let start = self.cursor.at;
        let number = parse_number(range, self.cursor.number()).map_err(|allowed| {
            let number = self.scope.number_text();
            self.error_at(start, &format!("{allowed}, now, {number}"))
        })?;
        Ok(Operand::Immediate(to_bits(number)))
    }

    /// The number of the argument that is named here; `None` if none is. It is within these
    /// borders, whatever its caller says.
    fn argument(&mut self, (min, max): (i128, i128)) -> Result<Option<u8>, ExpressionError> {
        self.cursor.skip_spaces();
        let start = self.cursor.at;
        let name = self.name();
        let is_key = self.cursor.rest().starts_with('.');
        let Some((number, argument)) = self.scope.argument(name).filter(|_| !is_key) else {
            self.cursor.at = start;
            return Ok(None);
        };
        match argument.kind {
            ArgumentKind::Number {
                min: least,
                max: greatest,
            } if min <= least && greatest <= max => Ok(Some(number)),
            kind => {
                let is = kind_text(kind);
                let allowed = format!("an argument within {min}..{max}; {name} is {is}");
                Err(self.error_at(start, &allowed))
            }
        }
    }

    /// An operand that begins with a letter; `None` if none stands here. An argument is within
    /// these borders.
    fn time_or_number(&mut self, range: (i128, i128)) -> Result<Option<Operand>, ExpressionError> {
        self.cursor.skip_spaces();
        let rest = self.cursor.rest();
        if !rest.starts_with(|first: char| first.is_ascii_alphabetic()) {
            return Ok(None);
        }
        let end = rest.find(|it| !is_of_name(it)).unwrap_or(rest.len());
        if &rest[..end] != "now" {
            if let Some(argument) = self.argument(range)? {
                self.filled.push(Filled::Operand(argument));
                return Ok(Some(Operand::Immediate(0)));
            }
            let (key, Numbered { at, .. }) = self.number_at()?;
            return Ok(Some(Operand::Field { key, at }));
        }
        self.cursor.at += end;
        let here = self.cursor.at;
        self.cursor.skip_spaces();
        let plus_ms = if self.cursor.take("+") {
            self.cursor.skip_spaces();
            self.lifetime()?
        } else if self.cursor.take("-") {
            self.cursor.skip_spaces();
            -self.fixed_lifetime()?
        } else {
            self.cursor.at = here;
            0
        };
        Ok(Some(Operand::Now { plus_ms }))
    }

    /// `NAME.u32@0`, `NAME.decimal` or `NAME.FIELD`
    fn number_at(&mut self) -> Result<(u8, Numbered), ExpressionError> {
        self.cursor.skip_spaces();
        let start = self.cursor.at;
        let name = self.name();
        let mut key = self.scope.key(name).filter(|_| self.cursor.take("."));
        if key.is_none() && self.scope.has_only_key() {
            self.cursor.at = start;
            key = Some(0);
        }
        let key = key.ok_or_else(|| self.error_at(start, &self.scope.number_text()))?;
        Ok((key, self.number_of(key)?))
    }

    /// What stands behind the name of a key and its dot.
    fn number_of(&mut self, key: u8) -> Result<Numbered, ExpressionError> {
        let Some((name, layout)) = self.scope.layout(key) else {
            let at = self.kind_and_offset()?;
            return Ok(Numbered { at, is_bool: false });
        };
        let start = self.cursor.at;
        let field = self.field(name, layout)?;
        let offset = u32::try_from(field.offset).expect("a value has at most 16 MiB");
        let (field_type, is_bool) = match field.kind {
            FieldKind::Number(field_type) => (field_type, false),
            FieldKind::Bool => (FieldType::U8, true),
            FieldKind::Float { .. } => {
                let allowed = "another field: f32 and f64 are stored, not compared or changed";
                return Err(self.error_at(start, allowed));
            }
            FieldKind::Text | FieldKind::Bytes(_) => {
                let allowed = "a field that is a number or a bool: texts and bytes are put whole";
                return Err(self.error_at(start, allowed));
            }
        };
        let at = NumberAt::field(field_type, offset);
        Ok(Numbered { at, is_bool })
    }

    /// A field of a layout, by the longest name that stands here.
    fn field(
        &mut self,
        name: &str,
        layout: &'a ValueLayout,
    ) -> Result<&'a LayoutField, ExpressionError> {
        let (start, rest) = (self.cursor.at, self.cursor.rest());
        let is_path = |it: char| it.is_alphanumeric() || matches!(it, '_' | '.' | '[' | ']');
        let end = rest.find(|it| !is_path(it)).unwrap_or(rest.len());
        let found = layout.fields().iter().find(|it| it.name == rest[..end]);
        self.cursor.at += end;
        found.ok_or_else(|| self.error_at(start, &fields_text(name, layout)))
    }

    /// `u32@0` or `decimal`
    fn kind_and_offset(&mut self) -> Result<NumberAt, ExpressionError> {
        let start = self.cursor.at;
        match NumberKind::from_name(self.cursor.word()) {
            Some(NumberKind::Decimal) => Ok(NumberAt::decimal()),
            Some(NumberKind::Field(field_type)) => {
                Ok(NumberAt::field(field_type, self.cursor.offset()?))
            }
            None => Err(self.error_at(
                start,
                &format!("decimal or TYPE@OFFSET with TYPE one of {TYPES_TEXT}"),
            )),
        }
    }

    /// The value behind `put` or `start`: all that is left.
    fn value(&mut self, key: u8) -> Result<Literal, ExpressionError> {
        self.cursor.skip_spaces();
        if self.scope.is_program() && self.cursor.take("{") {
            return self.value_of_fields(key);
        }
        let text = self.cursor.rest();
        if text.is_empty() {
            return Err(self.error_at(self.cursor.at, "a value, or text: for an empty one"));
        }
        let begins_reason = |at: usize| {
            let end = text[at..].trim_start_matches("else").trim();
            !end.is_empty() && end.bytes().all(|byte| byte.is_ascii_digit())
        };
        if !text.starts_with("text:")
            && let Some(at) = text.rfind(" else ").filter(|at| begins_reason(at + 1))
        {
            return Err(self.error_at(
                self.cursor.at + at + 1,
                "the end: put, start and replace take no reason; a text that ends so begins with \
                 text:",
            ));
        }
        self.cursor.at = self.cursor.text.len();
        Literal::parse(text).map_err(|error| error.at_the_end_of(self.cursor.text))
    }

    /// `{ FIELD = NUMBER, ... }` or `{ ARGUMENT }`, behind the brace.
    fn value_of_fields(&mut self, key: u8) -> Result<Literal, ExpressionError> {
        self.cursor.skip_spaces();
        let start = self.cursor.at;
        let named = self.name();
        if let Some((number, argument)) = self.scope.argument(named)
            && let ArgumentKind::Bytes { .. } = argument.kind
        {
            self.close_value()?;
            self.filled.push(Filled::Value(number));
            return Ok(Literal::Bytes(Vec::new()));
        }
        self.cursor.at = start;
        let Some((name, layout)) = self.scope.layout(key) else {
            let allowed = "an argument of bytes: the key has no layout, so its value no fields";
            return Err(self.error_at(start, allowed));
        };
        let mut value = vec![0; layout.bytes()];
        let mut given: Vec<&str> = Vec::new();
        loop {
            self.cursor.skip_spaces();
            if self.cursor.rest().starts_with('}') {
                break;
            }
            let start = self.cursor.at;
            let field = self.field(name, layout)?;
            if given.contains(&field.name.as_str()) {
                return Err(self.error_at(start, "a field that is not given yet"));
            }
            given.push(&field.name);
            self.cursor.skip_spaces();
            if !self.cursor.take("=") {
                return Err(self.error_at(self.cursor.at, "= and a number or an argument"));
            }
            self.field_value(field, &mut value)?;
            self.cursor.skip_spaces();
            if !self.cursor.take(",") && !self.cursor.rest().starts_with('}') {
                return Err(self.error_at(self.cursor.at, ", and a field, or }"));
            }
        }
        self.close_value()?;
        Ok(Literal::Bytes(value))
    }

    /// What a field of a value begins with.
    fn field_value(
        &mut self,
        field: &LayoutField,
        value: &mut [u8],
    ) -> Result<(), ExpressionError> {
        let at = u32::try_from(field.offset).expect("a value has at most 16 MiB");
        self.cursor.skip_spaces();
        let start = self.cursor.at;
        let (field_type, range) = match field.kind {
            FieldKind::Number(field_type) => (field_type, field_type.range()),
            FieldKind::Bool => (FieldType::U8, (0, 1)),
            FieldKind::Bytes(bytes) => {
                let named = self.name();
                let allowed = || format!("an argument of at most u8[{bytes}]");
                let (number, argument) = self
                    .scope
                    .argument(named)
                    .ok_or_else(|| self.error_at(start, &allowed()))?;
                return match argument.kind {
                    ArgumentKind::Bytes { max } if max as usize <= bytes => {
                        let argument = number;
                        self.filled.push(Filled::Bytes { at, argument });
                        Ok(())
                    }
                    kind => {
                        let is = kind_text(kind);
                        let allowed = format!("{}; {named} is {is}", allowed());
                        Err(self.error_at(start, &allowed))
                    }
                };
            }
            FieldKind::Float { .. } | FieldKind::Text => {
                let allowed = "no value here: a program puts numbers, bools and u8[N]; a field of \
                               another type begins with zeros";
                return Err(self.error_at(start, allowed));
            }
        };
        if let Some(argument) = self.argument(range)? {
            self.filled.push(Filled::Number {
                at,
                field_type,
                argument,
            });
            return Ok(());
        }
        let number = match field.kind {
            FieldKind::Bool if self.cursor.take("true") => 1,
            FieldKind::Bool if self.cursor.take("false") => 0,
            _ => parse_number(range, self.cursor.number())
                .map_err(|allowed| self.error_at(start, &format!("{allowed}, or an argument")))?,
        };
        let place = &mut value[field.offset..field.offset + field_type.width()];
        field_type.store(number, place);
        Ok(())
    }

    /// The brace behind a value, and the end.
    fn close_value(&mut self) -> Result<(), ExpressionError> {
        self.cursor.skip_spaces();
        if !self.cursor.take("}") {
            return Err(self.error_at(self.cursor.at, "}"));
        }
        self.cursor.skip_spaces();
        match self.cursor.rest().is_empty() {
            true => Ok(()),
            false => Err(self.error_at(
                self.cursor.at,
                "the end: put, start and replace take no reason",
            )),
        }
    }

    /// Letters, digits and underscores from here on.
    fn name(&mut self) -> &'a str {
        let rest = self.cursor.rest();
        let end = rest.find(|it| !is_of_name(it)).unwrap_or(rest.len());
        self.cursor.at += end;
        &rest[..end]
    }

    /// All up to the next space, and where it begins.
    fn version(&mut self) -> Result<Version, ExpressionError> {
        let text = self.next_text();
        parse_version(text.0)
            .map_err(|_| self.error_at(text.1, "EPOCH:SEQUENCE, as set and get --version print it"))
    }

    fn next_text(&mut self) -> (&'a str, usize) {
        self.cursor.skip_spaces();
        let (rest, start) = (self.cursor.rest(), self.cursor.at);
        let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
        self.cursor.at += end;
        (&rest[..end], start)
    }

    fn keyword(&mut self, word: &str) -> Result<(), ExpressionError> {
        self.cursor.skip_spaces();
        let start = self.cursor.at;
        match self.cursor.word() == word {
            true => Ok(()),
            false => Err(self.error_at(start, word)),
        }
    }

    fn error_at(&self, column: usize, allowed: &str) -> ExpressionError {
        self.cursor.error_at(column, allowed.into())
    }
}

#[cfg(test)]
mod tests;
