//! Text that is taken for a number: `set stock:9 1000` stores four digits, and `u32@0` reads them
//! as 808464433.

use std::collections::BTreeMap;

use penstock_net::expression::Field;
use penstock_net::instruction::{FieldType, Instruction, Operation};
use penstock_net::level::AckLevel;
use penstock_net::request::{Ask, Expiry};
use penstock_net::status::Status;

use super::Failure;
use super::server::Connection;

/// A field that reads as digits is refused from so many bytes on. Shorter ones often hold such a
/// number rightly.
const REFUSED_BYTES_MIN: usize = 4;

/// A field of one of the keys whose bytes are all ASCII digits.
#[derive(Clone, Debug, PartialEq, Eq)]
struct TextField {
    key: u8,
    field: Field,
    text: String,
    number: i128,
}

impl TextField {
    /// What a field with this number reads as, if that is digits alone.
    fn of(key: u8, field: Field, number: i128) -> Option<TextField> {
        let mut bytes = [0; 8];
        let bytes = &mut bytes[..field.field_type.width()];
        field.field_type.store(number, bytes);
        let is_text = bytes.iter().all(u8::is_ascii_digit);
        is_text.then(|| TextField {
            key,
            field,
            text: String::from_utf8_lossy(bytes).into_owned(),
            number,
        })
    }

    fn is_refused(&self) -> bool {
        self.field.field_type.width() >= REFUSED_BYTES_MIN
    }

    fn name(&self) -> String {
        let second = if self.key == 0 { "" } else { "second." };
        format!("{second}{}", field_name(self.field))
    }
}

fn field_name(Field { field_type, offset }: Field) -> String {
    format!("{}@{offset}", field_type.name())
}

/// A field of a key that an operation is to look at or to change.
pub struct Place<'a> {
    pub key: &'a str,
    /// The field as the operation names it.
    pub name: String,
    pub field: Field,
}

/// What is there before an operation.
enum Found {
    Number(i128),
    /// The value ends before the field does.
    Short,
    /// No key, or no answer that tells: the operation tells the same.
    Nothing,
}

impl Place<'_> {
    /// Asks for the field, and refuses the operation or warns if the field is text. `start` is what
    /// a missing key starts from.
    ///
    /// # Errors
    /// [`Failure`] if a field of four bytes or more is text, or the server cannot be asked.
    pub fn check_text(&self, connection: &Connection, start: Option<&[u8]>) -> Result<(), Failure> {
        let Place { key, name, field } = self;
        let (found, holds) = match self.found(connection)? {
            Found::Number(number) => (Some(number), "holds"),
            Found::Short => return self.refuse_short_text(connection),
            Found::Nothing => (
                start.and_then(|value| field.read(value)),
                "would start with",
            ),
        };
        let Some(text) = found.and_then(|number| TextField::of(0, *field, number)) else {
            return Ok(());
        };
        let (digits, number) = (&text.text, text.number);
        if text.is_refused() {
            return Err(Failure::usage(format_args!(
                "{key:?} {holds} the text \"{digits}\" at {name}, which is the number \
                 {number}; nothing was changed. \
                 A number is written as {}:{digits}. If it is one, repeat this with \
                 --digits-are-numbers",
                field.field_type.name(),
            )));
        }
        eprintln!("penstock: {name} of {key:?} is {number}, which is also the text \"{digits}\"");
        Ok(())
    }

    /// Refuses the operation if the value is too short for the field because it is a number that
    /// was set as text. If it is too short otherwise, the operation tells that.
    fn refuse_short_text(&self, connection: &Connection) -> Result<(), Failure> {
        let Place { key, name, field } = self;
        let answer = connection.call(AckLevel::None, Ask::get(key.as_bytes()))?;
        let text = match std::str::from_utf8(&answer.value) {
            Ok(text) if answer.status == Status::Ok => text,
            _ => return Ok(()),
        };
        let digits = text.strip_prefix('-').unwrap_or(text);
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Ok(());
        }
        let (bytes, width) = (text.len(), field.field_type.width());
        Err(Failure::usage(format_args!(
            "{key:?} holds the text \"{text}\" of {bytes} bytes, and {name} is a number of {width} \
             bytes; nothing was changed. A number is written as {}:{text}",
            field.field_type.name(),
        )))
    }

    /// What is in the field.
    fn found(&self, connection: &Connection) -> Result<Found, Failure> {
        let Field { field_type, offset } = self.field;
        // A guard that never holds: the answer to it shows the field, however long the value is.
        let never = Instruction {
            operation: Operation::Gt,
            field_type,
            key: 0,
            reason: 0,
            offset,
            immediate: largest(field_type),
        };
        let ask = Ask::UpdateIf {
            key: self.key.as_bytes(),
            second_key: None,
            instructions: &[never],
            start: None,
            expiry: Expiry::Keep,
        };
        let answer = connection.call(AckLevel::None, ask)?;
        let bits = answer.value.first_chunk().copied().map(u64::from_le_bytes);
        Ok(match (answer.status, bits) {
            (Status::GuardFailed, Some(bits)) => Found::Number(number_of(field_type, bits)),
            (Status::BadField, _) => Found::Short,
            _ => Found::Nothing,
        })
    }
}

/// The field of an instruction that looks at one.
fn field_of(instruction: &Instruction) -> Option<Field> {
    let has_field = !matches!(instruction.operation, Operation::Exists | Operation::Absent);
    has_field.then_some(Field {
        field_type: instruction.field_type,
        offset: instruction.offset,
    })
}

/// What an update is about.
pub struct Update<'a> {
    pub key: &'a str,
    pub second: Option<&'a str>,
    pub instructions: &'a [Instruction],
    pub start: Option<&'a [u8]>,
}

impl Update<'_> {
    /// The key of a field.
    fn key_of(&self, which: u8) -> &str {
        match which {
            0 => self.key,
            _ => self.second.unwrap_or_default(),
        }
    }

    /// The fields that are looked at or changed, each once.
    fn fields(&self) -> BTreeMap<(u8, &'static str, u32), Field> {
        let fields = self.instructions.iter().filter_map(|instruction| {
            let field = field_of(instruction)?;
            let place = (instruction.key, field.field_type.name(), field.offset);
            Some((place, field))
        });
        fields.collect()
    }

    /// Asks for the fields before the update, and refuses it or warns where one is text.
    ///
    /// # Errors
    /// [`Failure`] if a field of four bytes or more is text, or the server cannot be asked.
    pub fn check_text(&self, connection: &Connection) -> Result<(), Failure> {
        for ((key, ..), field) in self.fields() {
            let prefix = if key == 0 { "" } else { "second." };
            let place = Place {
                key: self.key_of(key),
                name: format!("{prefix}{}", field_name(field)),
                field,
            };
            place.check_text(connection, self.start.filter(|_| key == 0))?;
        }
        Ok(())
    }

    /// Warns about changed fields that seem to have held text, judged by their values after the
    /// change.
    pub fn warn(&self, after: &[u8]) {
        let effects = self
            .instructions
            .iter()
            .filter(|it| it.operation.is_effect());
        let mut seen = BTreeMap::new();
        for (instruction, bits) in effects.zip(after.as_chunks::<8>().0) {
            let Some(field) = field_of(instruction) else {
                continue;
            };
            let place = (instruction.key, field.field_type.name(), field.offset);
            if seen.insert(place, ()).is_some() {
                continue;
            }
            let Some(text) = before(instruction, field, u64::from_le_bytes(*bits)) else {
                continue;
            };
            if text.is_refused() {
                let (key, name) = (self.key_of(instruction.key), text.name());
                let TextField { text, number, .. } = text;
                eprintln!(
                    "penstock: {name} of {key:?} held the text \"{text}\" and was taken for the \
                     number {number}"
                );
            }
        }
    }
}

/// The text that a field was before an addition or subtraction made `after` of it.
fn before(instruction: &Instruction, field: Field, after: u64) -> Option<TextField> {
    let field_type = instruction.field_type;
    let (after, change) = (
        number_of(field_type, after),
        number_of(field_type, instruction.immediate),
    );
    let before = match instruction.operation {
        Operation::Add => after - change,
        Operation::Sub => after + change,
        _ => return None,
    };
    let (low, high) = field_type.range();
    let is_in_range = (low..=high).contains(&before);
    is_in_range.then(|| TextField::of(instruction.key, field, before))?
}

fn number_of(field_type: FieldType, bits: u64) -> i128 {
    match field_type.is_signed() {
        true => i128::from(bits.cast_signed()),
        false => i128::from(bits),
    }
}

/// The largest number of a type, as an immediate.
fn largest(field_type: FieldType) -> u64 {
    u64::try_from(field_type.range().1).expect("no type has more than 64 bits")
}

/// What `penstock set` has stored, by the word that it was given for the value.
pub fn stored(word: &str, value: &[u8]) -> String {
    let bytes = match value.len() {
        1 => "1 byte".to_string(),
        count => format!("{count} bytes"),
    };
    let is_typed = word
        .split_once(':')
        .is_some_and(|(name, _)| FieldType::from_name(name).is_some());
    if is_typed {
        return word.replace(':', " ").replace(',', ", ");
    }
    if let Some(path) = word.strip_prefix('@') {
        return format!("{bytes} of {path}");
    }
    if word.starts_with("0x") {
        return bytes;
    }
    let number = std::str::from_utf8(value).ok().filter(|text| {
        text.parse::<u64>().is_ok() && text.bytes().all(|byte| byte.is_ascii_digit())
    });
    match number {
        Some(number) => format!("text of {bytes}; a number is written as u32:{number}"),
        None => format!("text of {bytes}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_net::expression::parse_step_of_only_key;

    fn field(text: &str) -> Field {
        Field::parse(text).expect("a field")
    }

    #[test]
    fn digits_are_text_in_either_byte_order_and_numbers_are_not() {
        let text = |name: &str, value: &[u8]| {
            let field = field(name);
            let number = field.read(value).expect("long enough");
            TextField::of(0, field, number).map(|it| it.text)
        };
        assert_eq!(text("u32@0", b"1000").as_deref(), Some("1000"));
        assert_eq!(text("u32be@1", b"x1000").as_deref(), Some("1000"));
        assert_eq!(text("i64@0", b"10000000").as_deref(), Some("10000000"));
        assert_eq!(text("u32@0", &1000u32.to_le_bytes()), None);
        assert_eq!(text("u32@0", b"100 "), None);
        assert_eq!(text("i16@0", b"42").as_deref(), Some("42"));
    }

    #[test]
    fn what_a_field_was_follows_from_what_it_became() {
        let was = |text: &str, after: u32| {
            let step = parse_step_of_only_key(text).expect("an effect");
            let instruction = step.of_update_if().expect("of a field");
            let field = field_of(&instruction).expect("it has one");
            before(&instruction, field, after.into()).map(|it| (it.text, it.number))
        };
        let thousand = u32::from_le_bytes(*b"1000");
        let expected = Some(("1000".to_string(), i128::from(thousand)));
        assert_eq!(was("u32@0 -= 1", thousand - 1), expected);
        assert_eq!(was("u32@0 += 7", thousand + 7), expected);
        assert_eq!(was("u32@0 = 7", 7), None);
        assert_eq!(was("u32@0 -= 1", 99), None);
    }

    #[test]
    fn every_form_of_a_value_is_known_as_what_it_is() {
        let cases = [
            ("u32:100", &[100, 0, 0, 0][..], "u32 100"),
            ("u32:1,u8:2", &[1, 0, 0, 0, 2], "u32 1, u8 2"),
            (
                "1000",
                b"1000",
                "text of 4 bytes; a number is written as u32:1000",
            ),
            (
                "text:7",
                b"7",
                "text of 1 byte; a number is written as u32:7",
            ),
            ("hello", b"hello", "text of 5 bytes"),
            ("-5", b"-5", "text of 2 bytes"),
            ("0x00ff", &[0, 255], "2 bytes"),
            ("@a.png", b"png", "3 bytes of a.png"),
        ];
        for (word, value, expected) in cases {
            assert_eq!(stored(word, value), expected);
        }
    }
}
