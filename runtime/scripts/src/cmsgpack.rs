//! The library `cmsgpack`: values as MessagePack and back.

use std::rc::Rc;

use mlua::{Lua, MultiValue, Result, Table, Value};

use crate::arguments::{Arguments, number_of};
use crate::budget::Meter;
use crate::library::{RESULTS_MAX, function, text};
use crate::numbers;

/// Levels of tables that are packed; deeper ones are nil, as in lua-cmsgpack.
const PACK_DEPTH_MAX: usize = 16;
/// Levels that are unpacked, at most: each takes some 300 bytes of the stack.
const UNPACK_DEPTH_MAX: usize = 256;
/// Steps of one value.
const VALUE_STEPS: u64 = 6;

/// The library.
pub(crate) fn library(lua: &Lua, meter: &Rc<Meter>) -> Result<Table> {
    let table = lua.create_table()?;
    table.raw_set("pack", function(lua, "pack", meter, pack)?)?;
    table.raw_set("unpack", function(lua, "unpack", meter, unpack)?)?;
    table.raw_set(
        "unpack_one",
        function(lua, "unpack_one", meter, unpack_one)?,
    )?;
    table.raw_set(
        "unpack_limit",
        function(lua, "unpack_limit", meter, unpack_limit)?,
    )?;
    table.raw_set("_NAME", "cmsgpack")?;
    table.raw_set("_VERSION", "lua-cmsgpack 0.4.0")?;
    table.raw_set("_DESCRIPTION", "MessagePack for scripts")?;
    Ok(table)
}

fn pack(args: &Arguments<'_>, meter: &Meter) -> Result<Value> {
    if args.len() == 0 {
        return Err(args.error("bad argument #0 to 'pack' (MessagePack pack needs input.)"));
    }
    let mut packer = Packer {
        args,
        meter,
        out: Vec::new(),
    };
    for value in args.values() {
        packer.value(value, 0)?;
    }
    text(args.lua, meter, &packer.out)
}

struct Packer<'a> {
    args: &'a Arguments<'a>,
    meter: &'a Meter,
    out: Vec<u8>,
}

/// The first bytes of a thing that has a length.
struct Heads {
    /// For lengths below the bound, which are added to the byte.
    short: (u8, usize),
    byte: Option<u8>,
    two_bytes: u8,
    four_bytes: u8,
}

const STRING: Heads = Heads {
    short: (0xa0, 32),
    byte: Some(0xd9),
    two_bytes: 0xda,
    four_bytes: 0xdb,
};
const ARRAY: Heads = Heads {
    short: (0x90, 16),
    byte: None,
    two_bytes: 0xdc,
    four_bytes: 0xdd,
};
const MAP: Heads = Heads {
    short: (0x80, 16),
    byte: None,
    two_bytes: 0xde,
    four_bytes: 0xdf,
};

impl Packer<'_> {
    fn value(&mut self, value: &Value, depth: usize) -> Result<()> {
        self.meter.charge(VALUE_STEPS)?;
        match value {
            Value::String(text) => {
                let bytes = text.as_bytes();
                self.meter.charge_bytes(bytes.len())?;
                self.meter
                    .check_room(self.args.lua, 2 * (self.out.len() + bytes.len()))?;
                self.head(&STRING, bytes.len());
                self.out.extend_from_slice(&bytes);
            }
            Value::Boolean(value) => self.out.push(if *value { 0xc3 } else { 0xc2 }),
            Value::Table(table) if depth < PACK_DEPTH_MAX => self.table(table, depth)?,
            value => match number_of(value) {
                Some(number) => self.number(number),
                None => self.out.push(0xc0),
            },
        }
        Ok(())
    }

    fn table(&mut self, table: &Table, depth: usize) -> Result<()> {
        let (mut count, mut last, mut is_array) = (0_usize, 0_i64, true);
        table.for_each(|key: Value, _: Value| {
            self.meter.charge(1)?;
            count += 1;
            match number_of(&key).filter(|key| *key >= 1.0 && key.floor() == *key) {
                Some(key) => last = last.max(numbers::integer_of(key)),
                None => is_array = false,
            }
            match is_ordered(&key) {
                true => Ok(()),
                false => Err(self.args.error(UNORDERED)),
            }
        })?;
        if is_array && usize::try_from(last) == Ok(count) {
            self.head(&ARRAY, count);
            for index in 1..=last {
                self.value(&table.raw_get(index)?, depth + 1)?;
            }
            return Ok(());
        }
        self.head(&MAP, count);
        table.for_each(|key: Value, value: Value| {
            self.value(&key, depth + 1)?;
            self.value(&value, depth + 1)
        })
    }

    fn head(&mut self, heads: &Heads, len: usize) {
        let (first, bound) = heads.short;
        if len < bound {
            return self
                .out
                .push(first + u8::try_from(len).expect("below the bound"));
        }
        match (u8::try_from(len), u16::try_from(len), heads.byte) {
            (Ok(len), _, Some(head)) => self.out.extend_from_slice(&[head, len]),
            (_, Ok(len), _) => {
                self.out.push(heads.two_bytes);
                self.out.extend_from_slice(&len.to_be_bytes());
            }
            _ => {
                self.out.push(heads.four_bytes);
                let len = u32::try_from(len).expect("memory is bounded");
                self.out.extend_from_slice(&len.to_be_bytes());
            }
        }
    }

    fn number(&mut self, number: f64) {
        let integer = numbers::integer_of(number);
        #[expect(clippy::cast_precision_loss, reason = "compared with what it was")]
        let is_integer = integer as f64 == number && integer < i64::MAX;
        if is_integer {
            return self.integer(integer);
        }
        #[expect(clippy::cast_possible_truncation, reason = "compared with what it was")]
        let short = number as f32;
        if f64::from(short) == number {
            self.out.push(0xca);
            self.out.extend_from_slice(&short.to_be_bytes());
        } else {
            self.out.push(0xcb);
            self.out.extend_from_slice(&number.to_be_bytes());
        }
    }

    fn integer(&mut self, integer: i64) {
        let [low, ..] = integer.to_le_bytes();
        let bytes = integer.to_be_bytes();
        let (head, len) = match integer {
            -32..=127 => return self.out.push(low),
            128..=0xff => (0xcc, 1),
            0x100..=0xffff => (0xcd, 2),
            0x1_0000..=0xffff_ffff => (0xce, 4),
            0x1_0000_0000.. => (0xcf, 8),
            -0x80..=-33 => (0xd0, 1),
            -0x8000..=-0x81 => (0xd1, 2),
            -0x8000_0000..=-0x8001 => (0xd2, 4),
            _ => (0xd3, 8),
        };
        self.out.push(head);
        self.out.extend_from_slice(&bytes[8 - len..]);
    }
}

/// Why a table cannot be walked through.
pub(crate) const UNORDERED: &str = "a table whose keys are tables, functions or coroutines has no \
                                    fixed order: it cannot be walked through";

/// Whether keys of this type stand at the same place of a table in every process.
pub(crate) fn is_ordered(key: &Value) -> bool {
    matches!(
        key,
        Value::String(_)
            | Value::Integer(_)
            | Value::Number(_)
            | Value::Boolean(_)
            | Value::LightUserData(_)
    )
}

/// Reads values one behind the other.
struct Unpacker<'a> {
    args: &'a Arguments<'a>,
    meter: &'a Meter,
    bytes: &'a [u8],
    at: usize,
}

fn unpack(args: &Arguments<'_>, meter: &Meter) -> Result<MultiValue> {
    let bytes = args.string(0)?;
    let mut unpacker = Unpacker::new(args, meter, &bytes.as_bytes(), 0)?.at_once(usize::MAX)?;
    unpacker.remove(0);
    Ok(MultiValue::from_vec(unpacker))
}

fn offset_of(args: &Arguments<'_>, index: usize) -> Result<i64> {
    match args.is_none_or_nil(index) {
        true => Ok(0),
        false => args.int(index),
    }
}

fn unpack_one(args: &Arguments<'_>, meter: &Meter) -> Result<MultiValue> {
    let offset = offset_of(args, 1)?;
    let bytes = args.string(0)?;
    let values = Unpacker::new(args, meter, &bytes.as_bytes(), offset)?.at_once(1)?;
    Ok(MultiValue::from_vec(values))
}

fn unpack_limit(args: &Arguments<'_>, meter: &Meter) -> Result<MultiValue> {
    let limit = args.int(1)?;
    let offset = offset_of(args, 2)?;
    let bytes = args.string(0)?;
    let Ok(limit) = usize::try_from(limit) else {
        return Err(args.error(&format!(
            "Invalid request to unpack with offset of {offset} and limit of {}.",
            bytes.as_bytes().len()
        )));
    };
    let limit = if limit == 0 { usize::MAX } else { limit };
    let values = Unpacker::new(args, meter, &bytes.as_bytes(), offset)?.at_once(limit)?;
    Ok(MultiValue::from_vec(values))
}

impl<'a> Unpacker<'a> {
    fn new(
        args: &'a Arguments<'a>,
        meter: &'a Meter,
        bytes: &'a [u8],
        offset: i64,
    ) -> Result<Self> {
        let len = bytes.len();
        let at = usize::try_from(offset).map_err(|_| {
            args.error(&format!(
                "Invalid request to unpack with offset of {offset} and limit of {len}."
            ))
        })?;
        if at > len {
            return Err(args.error(&format!(
                "Start offset {offset} greater than input length {len}."
            )));
        }
        meter.charge_bytes(len)?;
        Ok(Unpacker {
            args,
            meter,
            bytes,
            at,
        })
    }

    /// The offset of what follows, -1 at the end, and at most so many values.
    fn at_once(mut self, limit: usize) -> Result<Vec<Value>> {
        let bytes_before = self.args.lua.used_memory();
        let mut values = vec![Value::Nil];
        while self.at < self.bytes.len() && values.len() <= limit {
            if values.len() > RESULTS_MAX {
                return Err(self.args.error("too many values to unpack"));
            }
            values.push(self.value(0)?);
        }
        let next = match self.at < self.bytes.len() {
            true => i64::try_from(self.at).expect("memory is bounded"),
            false => -1,
        };
        values[0] = Value::Integer(next);
        self.meter.allocated_since(self.args.lua, bytes_before);
        Ok(values)
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8]> {
        let rest = &self.bytes[self.at..];
        let bytes = rest.get(..len);
        let bytes = bytes.ok_or_else(|| self.args.error("Missing bytes in input."))?;
        self.at += len;
        Ok(bytes)
    }

    fn array<const LEN: usize>(&mut self) -> Result<[u8; LEN]> {
        let bytes = self.take(LEN)?;
        Ok(bytes.try_into().expect("as many were taken"))
    }

    /// A number without a sign, of this many bytes.
    fn unsigned(&mut self, len: usize) -> Result<u64> {
        let bytes = self.take(len)?;
        Ok(bytes
            .iter()
            .fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    /// A number with a sign.
    fn signed(&mut self, len: usize) -> Result<Value> {
        let shift = 64 - 8 * len;
        let number = (self.unsigned(len)? << shift).cast_signed() >> shift;
        Ok(Value::Integer(number))
    }

    fn len(&mut self, len: usize) -> Result<usize> {
        let len = self.unsigned(len)?;
        Ok(usize::try_from(len).expect("at most 32 bits"))
    }

    fn value(&mut self, depth: usize) -> Result<Value> {
        self.meter.charge(VALUE_STEPS)?;
        let [head] = self.array()?;
        let short = usize::from(head & 0x0f);
        match head {
            0x00..=0x7f => Ok(Value::Integer(i64::from(head))),
            0xe0..=0xff => Ok(Value::Integer(i64::from(head.cast_signed()))),
            0x80..=0x8f => self.map(short, depth),
            0x90..=0x9f => self.list(short, depth),
            0xa0..=0xbf => self.string(usize::from(head & 0x1f)),
            0xc0 => Ok(Value::Nil),
            0xc2 | 0xc3 => Ok(Value::Boolean(head == 0xc3)),
            0xca => Ok(Value::Number(f64::from(f32::from_be_bytes(self.array()?)))),
            0xcb => Ok(Value::Number(f64::from_be_bytes(self.array()?))),
            0xcc..=0xcf => {
                let number = self.unsigned(1 << (head - 0xcc))?;
                Ok(Value::Integer(number.cast_signed()))
            }
            0xd0..=0xd3 => self.signed(1 << (head - 0xd0)),
            0xd9..=0xdb => {
                let len = self.len(1 << (head - 0xd9))?;
                self.string(len)
            }
            0xdc | 0xdd => {
                let len = self.len(2 << (head - 0xdc))?;
                self.list(len, depth)
            }
            0xde | 0xdf => {
                let len = self.len(2 << (head - 0xde))?;
                self.map(len, depth)
            }
            _ => Err(self.args.error("Bad data format in input.")),
        }
    }

    fn string(&mut self, len: usize) -> Result<Value> {
        let bytes = self.take(len)?;
        text(self.args.lua, self.meter, bytes)
    }

    fn check_depth(&self, depth: usize) -> Result<()> {
        match depth >= UNPACK_DEPTH_MAX {
            true => Err(self
                .args
                .error("MessagePack is nested deeper than 256 levels")),
            false => Ok(()),
        }
    }

    fn list(&mut self, len: usize, depth: usize) -> Result<Value> {
        self.check_depth(depth)?;
        let table = self.args.lua.create_table()?;
        for index in 1..=len {
            table.raw_set(index, self.value(depth + 1)?)?;
        }
        Ok(Value::Table(table))
    }

    fn map(&mut self, len: usize, depth: usize) -> Result<Value> {
        self.check_depth(depth)?;
        let table = self.args.lua.create_table()?;
        for _ in 0..len {
            let key = self.value(depth + 1)?;
            let value = self.value(depth + 1)?;
            let is_no_key = match &key {
                Value::Nil => true,
                Value::Number(number) => number.is_nan(),
                _ => false,
            };
            if is_no_key {
                return Err(self.args.error("Bad data format in input."));
            }
            table.raw_set(key, value)?;
        }
        Ok(Value::Table(table))
    }
}
