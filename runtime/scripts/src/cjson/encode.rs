//! `cjson.encode`.

use mlua::{MultiValue, Result, Table, Value};

use super::{Choices, InvalidNumbers, values};
use crate::arguments::{Arguments, number_of, type_name};
use crate::budget::Meter;
use crate::library::text;
use crate::numbers::{self, Zeros};

/// Steps of one value.
const VALUE_STEPS: u64 = 4;
const HEX: &[u8; 16] = b"0123456789abcdef";

/// `cjson.encode(value)`.
pub(super) fn encode(
    args: &Arguments<'_>,
    meter: &Meter,
    choices: &mut Choices,
) -> Result<MultiValue> {
    if args.len() != 1 {
        return Err(args.refuse(0, "expected 1 argument"));
    }
    let mut encoder = Encoder {
        args,
        meter,
        choices,
        out: Vec::new(),
    };
    encoder.value(args.value(0), 0)?;
    Ok(values([text(args.lua, meter, &encoder.out)?]))
}

/// How a table is written.
enum Shape {
    /// As an array with this many elements.
    Array(i64),
    Object,
}

struct Encoder<'a> {
    args: &'a Arguments<'a>,
    meter: &'a Meter,
    choices: &'a Choices,
    out: Vec<u8>,
}

impl Encoder<'_> {
    fn value(&mut self, value: &Value, depth: usize) -> Result<()> {
        self.meter.charge(VALUE_STEPS)?;
        match value {
            Value::Nil | Value::LightUserData(_) => self.out.extend_from_slice(b"null"),
            Value::Boolean(true) => self.out.extend_from_slice(b"true"),
            Value::Boolean(false) => self.out.extend_from_slice(b"false"),
            Value::String(text) => self.string(&text.as_bytes())?,
            Value::Table(table) => self.table(table, depth + 1)?,
            value => match number_of(value) {
                Some(number) => self.number(number)?,
                None => return Err(self.refuse(value, "type not supported")),
            },
        }
        Ok(())
    }

    fn refuse(&self, value: &Value, why: &str) -> mlua::Error {
        self.args
            .error(&format!("Cannot serialise {}: {why}", type_name(value)))
    }

    fn table(&mut self, table: &Table, depth: usize) -> Result<()> {
        if depth > self.choices.encode_depth_max {
            return Err(self
                .args
                .error(&format!("Cannot serialise, excessive nesting ({depth})")));
        }
        match self.shape(table)? {
            Shape::Array(len) => {
                self.out.push(b'[');
                for index in 1..=len {
                    if index > 1 {
                        self.out.push(b',');
                    }
                    self.value(&table.raw_get(index)?, depth)?;
                }
                self.out.push(b']');
            }
            Shape::Object => {
                self.out.push(b'{');
                // A walk with a callback would take a level of the C stack for each level of JSON.
                for (number, pair) in table.pairs::<Value, Value>().enumerate() {
                    let (key, value) = pair?;
                    if number > 0 {
                        self.out.push(b',');
                    }
                    self.key(&key)?;
                    self.out.push(b':');
                    self.value(&value, depth)?;
                }
                self.out.push(b'}');
            }
        }
        Ok(())
    }

    /// A table whose keys are whole numbers from 1 on is an array, unless most of it is missing.
    fn shape(&self, table: &Table) -> Result<Shape> {
        let (mut last, mut count) = (0, 0);
        let mut is_array = true;
        let walked = table.for_each(|key: Value, _: Value| {
            self.meter.charge(1)?;
            match number_of(&key) {
                Some(number) if number >= 1.0 && number.floor() == number => {
                    last = last.max(numbers::integer_of(number));
                    count += 1;
                    Ok(())
                }
                _ => {
                    is_array = false;
                    // The walk need not go on.
                    Err(mlua::Error::StackError)
                }
            }
        });
        match walked {
            Err(mlua::Error::StackError) if !is_array => return Ok(Shape::Object),
            walked => walked?,
        }
        if count == 0 {
            return Ok(Shape::Object);
        }
        let sparse = self.choices.sparse;
        let is_sparse = sparse.ratio > 0 && last > count * sparse.ratio && last > sparse.safe;
        match (is_sparse, sparse.convert) {
            (false, _) => Ok(Shape::Array(last)),
            (true, true) => Ok(Shape::Object),
            (true, false) => Err(self
                .args
                .error("Cannot serialise table: excessively sparse array")),
        }
    }

    fn key(&mut self, key: &Value) -> Result<()> {
        if let Value::String(text) = key {
            return self.string(&text.as_bytes());
        }
        let Some(number) = number_of(key) else {
            return Err(self.refuse(key, "table key must be a number or string"));
        };
        self.out.push(b'"');
        self.number(number)?;
        self.out.push(b'"');
        Ok(())
    }

    fn number(&mut self, number: f64) -> Result<()> {
        if !number.is_finite() {
            match self.choices.invalid_encoded {
                InvalidNumbers::Refused => {
                    let why = "must not be NaN or Inf";
                    return Err(self.refuse(&Value::Number(number), why));
                }
                InvalidNumbers::Null => self.out.extend_from_slice(b"null"),
                InvalidNumbers::Written if number.is_nan() => self.out.extend_from_slice(b"nan"),
                InvalidNumbers::Written => {
                    self.out
                        .extend_from_slice(numbers::text_of(number).as_bytes());
                }
            }
            return Ok(());
        }
        let written = match self.choices.precision == numbers::DIGITS {
            true => numbers::text_of(number),
            false => numbers::general(number, self.choices.precision, Zeros::Dropped),
        };
        self.out.extend_from_slice(written.as_bytes());
        Ok(())
    }

    fn string(&mut self, bytes: &[u8]) -> Result<()> {
        self.meter.charge_bytes(bytes.len())?;
        self.meter
            .check_room(self.args.lua, 2 * (self.out.len() + bytes.len()))?;
        self.out.push(b'"');
        for byte in bytes {
            match byte {
                b'"' | b'\\' | b'/' => self.out.extend_from_slice(&[b'\\', *byte]),
                0x08 => self.out.extend_from_slice(b"\\b"),
                0x0c => self.out.extend_from_slice(b"\\f"),
                b'\n' => self.out.extend_from_slice(b"\\n"),
                b'\r' => self.out.extend_from_slice(b"\\r"),
                b'\t' => self.out.extend_from_slice(b"\\t"),
                0..=0x1f | 0x7f => {
                    self.out.extend_from_slice(b"\\u00");
                    self.out.push(HEX[usize::from(byte >> 4)]);
                    self.out.push(HEX[usize::from(byte & 15)]);
                }
                byte => self.out.push(*byte),
            }
        }
        self.out.push(b'"');
        Ok(())
    }
}
