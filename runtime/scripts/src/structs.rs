//! The library `struct`: values as the fields of a structure of C, and back.

use std::rc::Rc;

use mlua::{Lua, MultiValue, Result, Table, Value};

use crate::arguments::{Arguments, number_of};
use crate::budget::Meter;
use crate::library::{RESULTS_MAX, function, text};
use crate::numbers;

/// Bytes of an integer, at most.
const INTEGER_BYTES_MAX: usize = 32;
/// The alignment that `!` without a number means.
const ALIGNMENT: usize = 8;

/// The library.
pub(crate) fn library(lua: &Lua, meter: &Rc<Meter>) -> Result<Table> {
    let table = lua.create_table()?;
    table.raw_set("pack", function(lua, "pack", meter, pack)?)?;
    table.raw_set("unpack", function(lua, "unpack", meter, unpack)?)?;
    table.raw_set("size", function(lua, "size", meter, size)?)?;
    Ok(table)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Little,
    Big,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Signed,
    Unsigned,
    Float,
    Double,
    /// Bytes; a length of 0 means the whole string, or the number before it.
    Bytes,
    /// A string with a zero at its end.
    Terminated,
    /// A byte that means nothing.
    Filler,
}

/// Reads a format field by field.
struct Format<'a> {
    args: &'a Arguments<'a>,
    bytes: &'a [u8],
    at: usize,
    order: Order,
    alignment: usize,
}

impl<'a> Format<'a> {
    fn new(args: &'a Arguments<'a>, bytes: &'a [u8]) -> Self {
        Format {
            args,
            bytes,
            at: 0,
            order: Order::Little,
            alignment: 1,
        }
    }

    /// The next field and its size, after what changes order or alignment.
    fn next(&mut self) -> Result<Option<(Field, usize)>> {
        while let Some(option) = self.bytes.get(self.at).copied() {
            self.at += 1;
            let field = match option {
                b'b' => (Field::Signed, 1),
                b'B' => (Field::Unsigned, 1),
                b'h' => (Field::Signed, 2),
                b'H' => (Field::Unsigned, 2),
                b'l' => (Field::Signed, 8),
                b'L' | b'T' => (Field::Unsigned, 8),
                b'i' => (Field::Signed, self.integer_size()?),
                b'I' => (Field::Unsigned, self.integer_size()?),
                b'f' => (Field::Float, 4),
                b'd' => (Field::Double, 8),
                b'c' => (Field::Bytes, self.number()?.unwrap_or(1)),
                b's' => (Field::Terminated, 0),
                b'x' => (Field::Filler, 1),
                option => {
                    self.control(option)?;
                    continue;
                }
            };
            return Ok(Some(field));
        }
        Ok(None)
    }

    fn control(&mut self, option: u8) -> Result<()> {
        match option {
            b' ' => (),
            b'<' => self.order = Order::Little,
            b'>' => self.order = Order::Big,
            b'!' => {
                let alignment = self.number()?.unwrap_or(ALIGNMENT);
                if !alignment.is_power_of_two() {
                    let text = format!("alignment {alignment} is not a power of 2");
                    return Err(self.args.error(&text));
                }
                self.alignment = alignment;
            }
            option => {
                let text = format!("invalid format option '{}'", char::from(option));
                return Err(self.args.refuse(0, &text));
            }
        }
        Ok(())
    }

    fn number(&mut self) -> Result<Option<usize>> {
        let rest = &self.bytes[self.at..];
        let len = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        self.at += len;
        if len == 0 {
            return Ok(None);
        }
        let text = std::str::from_utf8(&rest[..len]).expect("digits are text");
        let number: Option<u32> = text.parse().ok();
        let number = number.filter(|number| *number <= i32::MAX.unsigned_abs());
        let number = number.ok_or_else(|| self.args.error("integral size overflow"))?;
        Ok(Some(number as usize))
    }

    fn integer_size(&mut self) -> Result<usize> {
        let size = self.number()?.unwrap_or(4);
        match size > INTEGER_BYTES_MAX {
            true => Err(self.args.error(&format!(
                "integral size {size} is larger than limit of {INTEGER_BYTES_MAX}"
            ))),
            false => Ok(size),
        }
    }

    /// Bytes between `len` and a field that is aligned.
    fn padding(&self, len: usize, (field, size): (Field, usize)) -> usize {
        let size = size.min(self.alignment);
        if size <= 1 || field == Field::Bytes || !size.is_power_of_two() {
            return 0;
        }
        (size - (len & (size - 1))) & (size - 1)
    }
}

fn pack(args: &Arguments<'_>, meter: &Meter) -> Result<Value> {
    let bytes = args.string(0)?;
    let bytes = bytes.as_bytes();
    let mut format = Format::new(args, &bytes);
    let mut out = Vec::new();
    let mut index = 0;
    while let Some(next) = format.next()? {
        meter.charge(4)?;
        let (field, size) = next;
        out.extend(std::iter::repeat_n(0, format.padding(out.len(), next)));
        if field == Field::Filler {
            out.push(0);
            continue;
        }
        index += 1;
        match field {
            Field::Signed | Field::Unsigned => {
                write_integer(number(args, index)?, size, format.order, &mut out);
            }
            Field::Float => {
                #[expect(clippy::cast_possible_truncation, reason = "the field is as short")]
                let short = number(args, index)? as f32;
                write_ordered(short.to_le_bytes(), format.order, &mut out);
            }
            Field::Double => {
                write_ordered(number(args, index)?.to_le_bytes(), format.order, &mut out);
            }
            _ => {
                let value = match index < args.len() {
                    true => args.string(index)?,
                    false => return Err(args.refuse(index, "string expected, got nil")),
                };
                let value = value.as_bytes();
                let is_terminated = field == Field::Terminated;
                let size = if size == 0 { value.len() } else { size };
                let Some(value) = value.get(..size) else {
                    return Err(args.refuse(index + 1, "string too short"));
                };
                meter.charge_bytes(size)?;
                out.extend_from_slice(value);
                out.extend(is_terminated.then_some(0));
            }
        }
        meter.check_room(args.lua, 2 * out.len())?;
    }
    text(args.lua, meter, &out)
}

/// A missing number is called nil, as lua-struct calls it.
fn number(args: &Arguments<'_>, index: usize) -> Result<f64> {
    match index < args.len() {
        true => args.number(index),
        false => Err(args.refuse(index, "number expected, got nil")),
    }
}

fn write_ordered<const LEN: usize>(mut bytes: [u8; LEN], order: Order, out: &mut Vec<u8>) {
    if order == Order::Big {
        bytes.reverse();
    }
    out.extend_from_slice(&bytes);
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "numbers beyond 64 bits have no promised form"
)]
fn write_integer(number: f64, size: usize, order: Order, out: &mut Vec<u8>) {
    let bits = match number < 0.0 {
        true => numbers::integer_of(number).cast_unsigned(),
        false => number as u64,
    };
    let mut bytes = [0; INTEGER_BYTES_MAX];
    bytes[..8].copy_from_slice(&bits.to_le_bytes());
    if order == Order::Big {
        bytes[..size].reverse();
    }
    out.extend_from_slice(&bytes[..size]);
}

#[expect(clippy::cast_precision_loss, reason = "numbers of Lua 5.1 are doubles")]
fn read_integer(bytes: &[u8], field: Field, order: Order) -> f64 {
    let append = |bits: u64, byte: &u8| bits << 8 | u64::from(*byte);
    let bits = match order {
        Order::Big => bytes.iter().fold(0, append),
        Order::Little => bytes.iter().rev().fold(0, append),
    };
    if field == Field::Unsigned {
        return bits as f64;
    }
    let shift = 64_usize.saturating_sub(8 * bytes.len());
    match bytes.is_empty() {
        true => 0.0,
        false => ((bits << shift).cast_signed() >> shift) as f64,
    }
}

fn read_ordered<const LEN: usize>(bytes: &[u8], order: Order) -> [u8; LEN] {
    let mut bytes: [u8; LEN] = bytes.try_into().expect("as many were taken");
    if order == Order::Big {
        bytes.reverse();
    }
    bytes
}

fn unpack(args: &Arguments<'_>, meter: &Meter) -> Result<MultiValue> {
    let (bytes, data) = (args.string(0)?, args.string(1)?);
    let (bytes, data) = (bytes.as_bytes(), data.as_bytes());
    let start = args.integer_or(2, 1)?;
    let start = usize::try_from(start)
        .ok()
        .and_then(|start| start.checked_sub(1));
    let mut at = start.ok_or_else(|| args.refuse(2, "offset must be 1 or greater"))?;
    let mut format = Format::new(args, &bytes);
    let mut values: Vec<Value> = Vec::new();
    let too_short = || args.refuse(1, "data string too short");
    while let Some(next) = format.next()? {
        meter.charge(4)?;
        let (field, mut size) = next;
        at = at.saturating_add(format.padding(at, next));
        if field == Field::Bytes && size == 0 {
            let previous = values.pop().as_ref().and_then(number_of);
            let previous =
                previous.ok_or_else(|| args.error("format 'c0' needs a previous size"))?;
            size = usize::try_from(numbers::integer_of(previous)).map_err(|_| too_short())?;
        }
        let rest = data.get(at..).ok_or_else(too_short)?;
        let taken = rest.get(..size).ok_or_else(too_short)?;
        let value = match field {
            Field::Filler => None,
            Field::Signed | Field::Unsigned => {
                Some(Value::Number(read_integer(taken, field, format.order)))
            }
            Field::Float => {
                let number = f32::from_le_bytes(read_ordered(taken, format.order));
                Some(Value::Number(f64::from(number)))
            }
            Field::Double => Some(Value::Number(f64::from_le_bytes(read_ordered(
                taken,
                format.order,
            )))),
            Field::Bytes => Some(text(args.lua, meter, taken)?),
            Field::Terminated => {
                let end = rest.iter().position(|byte| *byte == 0);
                let end = end.ok_or_else(|| args.error("unfinished string in data"))?;
                size = end + 1;
                Some(text(args.lua, meter, &rest[..end])?)
            }
        };
        at += size;
        values.extend(value);
        if values.len() > RESULTS_MAX {
            return Err(args.error("too many results"));
        }
    }
    values.push(Value::Integer(
        i64::try_from(at + 1).expect("memory is bounded"),
    ));
    Ok(MultiValue::from_vec(values))
}

fn size(args: &Arguments<'_>, meter: &Meter) -> Result<i64> {
    let bytes = args.string(0)?;
    let bytes = bytes.as_bytes();
    let mut format = Format::new(args, &bytes);
    let mut len = 0_usize;
    while let Some(next) = format.next()? {
        meter.charge(2)?;
        len = len.saturating_add(format.padding(len, next));
        match next {
            (Field::Terminated, _) => {
                return Err(args.refuse(0, "option 's' has no fixed size"));
            }
            (Field::Bytes, 0) => return Err(args.refuse(0, "option 'c0' has no fixed size")),
            (_, size) => len = len.saturating_add(size),
        }
    }
    Ok(i64::try_from(len).unwrap_or(i64::MAX))
}
