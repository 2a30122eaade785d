//! The library `bit`: operations on the low 32 bits of numbers.

use std::rc::Rc;

use mlua::{Lua, Result, Table, Value};

use crate::arguments::Arguments;
use crate::budget::Meter;
use crate::library::function;

/// Adding this number moves the integer part of a double into its low bits, rounded to even.
const SHIFTER: f64 = 6_755_399_441_055_744.0;
/// Digits of a number in base 16, at most.
const HEX_DIGITS: i64 = 8;

/// A function of the library.
type Body = fn(&Arguments<'_>, &Meter) -> Result<i64>;

/// The library.
pub(crate) fn library(lua: &Lua, meter: &Rc<Meter>) -> Result<Table> {
    let table = lua.create_table()?;
    let functions: [(&'static str, Body); 11] = [
        ("tobit", |args, _| bits(args, 0).map(signed)),
        ("bnot", |args, _| bits(args, 0).map(|bits| signed(!bits))),
        ("band", |args, _| folded(args, |a, b| a & b)),
        ("bor", |args, _| folded(args, |a, b| a | b)),
        ("bxor", |args, _| folded(args, |a, b| a ^ b)),
        ("lshift", |args, _| {
            shifted(args, |bits, count| bits << count)
        }),
        ("rshift", |args, _| {
            shifted(args, |bits, count| bits >> count)
        }),
        ("arshift", |args, _| {
            shifted(args, |bits, count| {
                (bits.cast_signed() >> count).cast_unsigned()
            })
        }),
        ("rol", |args, _| shifted(args, u32::rotate_left)),
        ("ror", |args, _| shifted(args, u32::rotate_right)),
        ("bswap", |args, _| {
            bits(args, 0).map(|bits| signed(bits.swap_bytes()))
        }),
    ];
    for (name, body) in functions {
        table.raw_set(name, function(lua, name, meter, body)?)?;
    }
    table.raw_set("tohex", function(lua, "tohex", meter, tohex)?)?;
    Ok(table)
}

fn signed(bits: u32) -> i64 {
    i64::from(bits.cast_signed())
}

fn bits(args: &Arguments<'_>, index: usize) -> Result<u32> {
    let [a, b, c, d, ..] = (args.number(index)? + SHIFTER).to_le_bytes();
    Ok(u32::from_le_bytes([a, b, c, d]))
}

fn folded(args: &Arguments<'_>, fold: fn(u32, u32) -> u32) -> Result<i64> {
    let mut all = bits(args, 0)?;
    for index in (1..args.len()).rev() {
        all = fold(all, bits(args, index)?);
    }
    Ok(signed(all))
}

fn shifted(args: &Arguments<'_>, shift: fn(u32, u32) -> u32) -> Result<i64> {
    let (value, count) = (bits(args, 0)?, bits(args, 1)? & 31);
    Ok(signed(shift(value, count)))
}

fn tohex(args: &Arguments<'_>, _: &Meter) -> Result<Value> {
    let value = bits(args, 0)?;
    let digits = match args.len() < 2 {
        true => HEX_DIGITS,
        false => signed(bits(args, 1)?),
    };
    let count = usize::try_from(digits.abs().min(HEX_DIGITS)).expect("at most eight");
    let all = match digits < 0 {
        true => format!("{value:08X}"),
        false => format!("{value:08x}"),
    };
    args.lua
        .create_string(&all[all.len() - count..])
        .map(Value::String)
}
