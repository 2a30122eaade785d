//! The library `cjson`: JSON to values and back, in the dialect and the words of lua-cjson.

mod decode;
mod encode;

use std::cell::RefCell;
use std::rc::Rc;

use mlua::{Function, Lua, MultiValue, Result, Table, Value};

use crate::arguments::Arguments;
use crate::budget::Meter;
use crate::failure::placed;

/// Levels of tables in tables, at most, whatever a script asks for: each level takes some 300 bytes
/// of the stack.
const DEPTH_MAX: usize = 1_000;
/// Digits of numbers, at most.
const PRECISION_MAX: i64 = 14;

/// A function of the library.
type Body = fn(&Arguments<'_>, &Meter, &mut Choices) -> Result<MultiValue>;

/// What becomes of numbers that JSON does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InvalidNumbers {
    Refused,
    Written,
    Null,
}

/// What a script has chosen. Each run begins with the defaults.
#[derive(Debug)]
struct Choices {
    sparse: Sparse,
    encode_depth_max: usize,
    decode_depth_max: usize,
    precision: usize,
    invalid_encoded: InvalidNumbers,
    invalid_decoded: InvalidNumbers,
    keep_buffer: bool,
}

/// Which arrays are too sparse, and what becomes of them.
#[derive(Clone, Copy, Debug)]
struct Sparse {
    convert: bool,
    ratio: i64,
    safe: i64,
}

impl Default for Choices {
    fn default() -> Self {
        Choices {
            sparse: Sparse {
                convert: false,
                ratio: 2,
                safe: 10,
            },
            encode_depth_max: DEPTH_MAX,
            decode_depth_max: DEPTH_MAX,
            precision: crate::numbers::DIGITS,
            invalid_encoded: InvalidNumbers::Refused,
            invalid_decoded: InvalidNumbers::Written,
            keep_buffer: true,
        }
    }
}

/// The library of one interpreter.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cjson {
    choices: Rc<RefCell<Choices>>,
}

impl Cjson {
    /// Begins a run.
    pub(crate) fn reset(&self) {
        self.choices.replace(Choices::default());
    }

    /// The table of the library.
    pub(crate) fn library(&self, lua: &Lua, meter: &Rc<Meter>) -> Result<Table> {
        let table = lua.create_table()?;
        let functions: [(&'static str, Body); 9] = [
            ("encode", encode::encode),
            ("decode", decode::decode),
            ("encode_sparse_array", sparse_array),
            ("encode_max_depth", encode_max_depth),
            ("decode_max_depth", decode_max_depth),
            ("encode_number_precision", number_precision),
            ("encode_keep_buffer", keep_buffer),
            ("encode_invalid_numbers", encode_invalid_numbers),
            ("decode_invalid_numbers", decode_invalid_numbers),
        ];
        for (name, body) in functions {
            table.raw_set(name, self.function(lua, name, meter, body)?)?;
        }
        table.raw_set("null", Value::NULL)?;
        table.raw_set("_NAME", "cjson")?;
        table.raw_set("_VERSION", "2.1.0")?;
        Ok(table)
    }

    fn function(
        &self,
        lua: &Lua,
        name: &'static str,
        meter: &Rc<Meter>,
        body: Body,
    ) -> Result<Function> {
        let (meter, choices) = (Rc::clone(meter), Rc::clone(&self.choices));
        lua.create_function(move |lua, values: MultiValue| {
            let bytes_before = lua.used_memory();
            let args = Arguments::new(lua, &meter, values);
            let result = body(&args, &meter, &mut choices.borrow_mut());
            meter.allocated_since(lua, bytes_before);
            result.map_err(|error| placed(lua, name, error))
        })
    }
}

fn values(values: impl IntoIterator<Item = Value>) -> MultiValue {
    values.into_iter().collect()
}

fn sparse_array(args: &Arguments<'_>, _: &Meter, choices: &mut Choices) -> Result<MultiValue> {
    at_most(args, 3)?;
    let sparse = &mut choices.sparse;
    sparse.convert = boolean_or(args, 0, sparse.convert)?;
    sparse.ratio = integer_or(args, 1, sparse.ratio, (0, i64::from(i32::MAX)))?;
    sparse.safe = integer_or(args, 2, sparse.safe, (0, i64::from(i32::MAX)))?;
    Ok(values([
        Value::Boolean(sparse.convert),
        Value::Integer(sparse.ratio),
        Value::Integer(sparse.safe),
    ]))
}

fn depth(args: &Arguments<'_>, depth_max: &mut usize) -> Result<MultiValue> {
    at_most(args, 1)?;
    let now = i64::try_from(*depth_max).expect("depths are small");
    let asked = integer_or(args, 0, now, (1, i64::from(i32::MAX)))?;
    *depth_max = usize::try_from(asked)
        .expect("checked above")
        .min(DEPTH_MAX);
    let now = i64::try_from(*depth_max).expect("depths are small");
    Ok(values([Value::Integer(now)]))
}

fn encode_max_depth(args: &Arguments<'_>, _: &Meter, choices: &mut Choices) -> Result<MultiValue> {
    depth(args, &mut choices.encode_depth_max)
}

fn decode_max_depth(args: &Arguments<'_>, _: &Meter, choices: &mut Choices) -> Result<MultiValue> {
    depth(args, &mut choices.decode_depth_max)
}

fn number_precision(args: &Arguments<'_>, _: &Meter, choices: &mut Choices) -> Result<MultiValue> {
    at_most(args, 1)?;
    let now = i64::try_from(choices.precision).expect("digits are few");
    let asked = integer_or(args, 0, now, (1, PRECISION_MAX))?;
    choices.precision = usize::try_from(asked).expect("checked above");
    Ok(values([Value::Integer(asked)]))
}

fn keep_buffer(args: &Arguments<'_>, _: &Meter, choices: &mut Choices) -> Result<MultiValue> {
    at_most(args, 1)?;
    choices.keep_buffer = boolean_or(args, 0, choices.keep_buffer)?;
    Ok(values([Value::Boolean(choices.keep_buffer)]))
}

fn encode_invalid_numbers(
    args: &Arguments<'_>,
    _: &Meter,
    choices: &mut Choices,
) -> Result<MultiValue> {
    at_most(args, 1)?;
    choices.invalid_encoded = match args.value(0) {
        Value::String(text) if &*text.as_bytes() == b"null" => InvalidNumbers::Null,
        _ => invalid_numbers(args, choices.invalid_encoded)?,
    };
    answer(args, choices.invalid_encoded)
}

fn decode_invalid_numbers(
    args: &Arguments<'_>,
    _: &Meter,
    choices: &mut Choices,
) -> Result<MultiValue> {
    at_most(args, 1)?;
    choices.invalid_decoded = invalid_numbers(args, choices.invalid_decoded)?;
    answer(args, choices.invalid_decoded)
}

fn invalid_numbers(args: &Arguments<'_>, now: InvalidNumbers) -> Result<InvalidNumbers> {
    if args.is_none_or_nil(0) {
        return Ok(now);
    }
    Ok(match boolean_or(args, 0, false)? {
        true => InvalidNumbers::Written,
        false => InvalidNumbers::Refused,
    })
}

fn answer(args: &Arguments<'_>, now: InvalidNumbers) -> Result<MultiValue> {
    Ok(values([match now {
        InvalidNumbers::Null => args.lua.create_string("null").map(Value::String)?,
        now => Value::Boolean(now == InvalidNumbers::Written),
    }]))
}

fn at_most(args: &Arguments<'_>, count: usize) -> Result<()> {
    match args.len() > count {
        true => Err(args.refuse(count, "found too many arguments")),
        false => Ok(()),
    }
}

fn boolean_or(args: &Arguments<'_>, index: usize, now: bool) -> Result<bool> {
    match args.value(index) {
        Value::Nil => Ok(now),
        Value::Boolean(value) => Ok(*value),
        Value::String(text) if &*text.as_bytes() == b"on" => Ok(true),
        Value::String(text) if &*text.as_bytes() == b"off" => Ok(false),
        Value::String(text) => {
            let text = format!("invalid option '{}'", text.to_string_lossy());
            Err(args.refuse(index, &text))
        }
        _ => Err(args.expected(index, "string")),
    }
}

fn integer_or(args: &Arguments<'_>, index: usize, now: i64, (min, max): (i64, i64)) -> Result<i64> {
    let value = args.integer_or(index, now)?;
    match (min..=max).contains(&value) {
        true => Ok(value),
        false => {
            let text = format!("expected integer between {min} and {max}");
            Err(args.refuse(index, &text))
        }
    }
}
