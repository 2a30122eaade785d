//! The library `string`, with a budget for what loops.

use std::rc::Rc;

use mlua::{Lua, MultiValue, Result, Table, Value};

use crate::arguments::Arguments;
use crate::budget::Meter;
use crate::failure::Failure;
use crate::formats;
use crate::library::{RESULTS_MAX, function, text};
use crate::pattern::{Captured, Fault, Matcher, SPECIALS};

/// The library, and `gmatch_step` and `gsub_step`, which its functions with callbacks use.
pub(crate) fn library(lua: &Lua, meter: &Rc<Meter>) -> Result<Table> {
    let table = lua.create_table()?;
    table.raw_set("byte", function(lua, "byte", meter, byte)?)?;
    table.raw_set("char", function(lua, "char", meter, char)?)?;
    table.raw_set("find", function(lua, "find", meter, find)?)?;
    table.raw_set("format", function(lua, "format", meter, formats::format)?)?;
    table.raw_set("gmatch_step", function(lua, "gmatch", meter, gmatch_step)?)?;
    table.raw_set("gsub_step", function(lua, "gsub", meter, gsub_step)?)?;
    table.raw_set("gsub_text", function(lua, "gsub", meter, gsub_text)?)?;
    table.raw_set("len", function(lua, "len", meter, len)?)?;
    table.raw_set("lower", function(lua, "lower", meter, lower)?)?;
    table.raw_set("match", function(lua, "match", meter, match_)?)?;
    table.raw_set("rep", function(lua, "rep", meter, rep)?)?;
    table.raw_set("reverse", function(lua, "reverse", meter, reverse)?)?;
    table.raw_set("sub", function(lua, "sub", meter, sub)?)?;
    table.raw_set("upper", function(lua, "upper", meter, upper)?)?;
    Ok(table)
}

/// A position that may count from the end, as a number from 0; 0 if it is in front of the string.
fn position(position: i64, len: usize) -> usize {
    let len = i64::try_from(len).unwrap_or(i64::MAX);
    let position = match position < 0 {
        true => position.saturating_add(len).saturating_add(1),
        false => position,
    };
    usize::try_from(position).unwrap_or(0)
}

fn byte(args: &Arguments<'_>, meter: &Meter) -> Result<MultiValue> {
    let subject = args.string(0)?;
    let bytes = subject.as_bytes();
    let first = position(args.integer_or(1, 1)?, bytes.len());
    let last = match args.is_none_or_nil(2) {
        true => first,
        false => position(args.integer(2)?, bytes.len()),
    };
    let (first, last) = (first.max(1), last.min(bytes.len()));
    if first > last {
        return Ok(MultiValue::new());
    }
    let slice = &bytes[first - 1..last];
    if slice.len() > RESULTS_MAX {
        return Err(args.error("string slice too long"));
    }
    meter.charge(slice.len() as u64)?;
    Ok(slice
        .iter()
        .map(|byte| Value::Integer(i64::from(*byte)))
        .collect())
}

fn char(args: &Arguments<'_>, meter: &Meter) -> Result<Value> {
    meter.charge(args.len() as u64)?;
    let mut bytes = Vec::with_capacity(args.len());
    for index in 0..args.len() {
        let byte = u8::try_from(args.int(index)?);
        bytes.push(byte.map_err(|_| args.refuse(index, "invalid value"))?);
    }
    text(args.lua, meter, &bytes)
}

fn len(args: &Arguments<'_>, _: &Meter) -> Result<i64> {
    let len = args.string(0)?.as_bytes().len();
    Ok(i64::try_from(len).expect("memory is bounded"))
}

fn mapped(args: &Arguments<'_>, meter: &Meter, map: fn(&mut Vec<u8>)) -> Result<Value> {
    let subject = args.string(0)?;
    let mut bytes = subject.as_bytes().to_vec();
    meter.charge_bytes(bytes.len())?;
    map(&mut bytes);
    text(args.lua, meter, &bytes)
}

fn lower(args: &Arguments<'_>, meter: &Meter) -> Result<Value> {
    mapped(args, meter, |bytes| bytes.make_ascii_lowercase())
}

fn upper(args: &Arguments<'_>, meter: &Meter) -> Result<Value> {
    mapped(args, meter, |bytes| bytes.make_ascii_uppercase())
}

fn reverse(args: &Arguments<'_>, meter: &Meter) -> Result<Value> {
    mapped(args, meter, |bytes| bytes.reverse())
}

fn rep(args: &Arguments<'_>, meter: &Meter) -> Result<Value> {
    let subject = args.string(0)?;
    let bytes = subject.as_bytes();
    let count = usize::try_from(args.int(1)?).unwrap_or(0);
    let len = bytes.len().saturating_mul(count);
    meter.charge_bytes(len)?;
    // Once in the interpreter, once on the way there.
    meter.check_room(args.lua, len.saturating_mul(2))?;
    text(
        args.lua,
        meter,
        &bytes.repeat(if bytes.is_empty() { 0 } else { count }),
    )
}

fn sub(args: &Arguments<'_>, meter: &Meter) -> Result<Value> {
    let subject = args.string(0)?;
    let bytes = subject.as_bytes();
    let first = position(args.integer(1)?, bytes.len()).max(1);
    let last = position(args.integer_or(2, -1)?, bytes.len()).min(bytes.len());
    match first <= last {
        true => text(args.lua, meter, &bytes[first - 1..last]),
        false => text(args.lua, meter, b""),
    }
}

/// The error of a match.
fn fault(fault: Fault) -> mlua::Error {
    match fault {
        Fault::Malformed(text) => Failure::Unplaced(String::from(text)).into(),
        Fault::Stopped(error) => error,
    }
}

fn find(args: &Arguments<'_>, meter: &Meter) -> Result<MultiValue> {
    let (subject, pattern) = (args.string(0)?, args.string(1)?);
    let (subject, pattern) = (subject.as_bytes(), pattern.as_bytes());
    let start = search_start(args, subject.len())?;
    meter.charge_bytes(pattern.len())?;
    let pattern_end = pattern.iter().position(|byte| *byte == 0);
    let visible = &pattern[..pattern_end.unwrap_or(pattern.len())];
    let is_plain = !matches!(args.value(3), Value::Nil | Value::Boolean(false))
        || !visible.iter().any(|byte| SPECIALS.contains(byte));
    if is_plain {
        // The search compares the pattern at each place, at most.
        let found = plain_find(&subject[start..], &pattern, meter)?;
        return Ok(match found {
            Some(at) => [start + at + 1, start + at + pattern.len()]
                .into_iter()
                .map(index_value)
                .collect(),
            None => MultiValue::from_vec(vec![Value::Nil]),
        });
    }
    let mut matcher = Matcher::new(&subject, &pattern, meter)?;
    let found = matcher.search(start).map_err(fault)?;
    matcher.settle().map_err(fault)?;
    let Some((first, last)) = found else {
        return Ok(MultiValue::from_vec(vec![Value::Nil]));
    };
    let mut values = vec![index_value(first + 1), index_value(last)];
    let captures = matcher.captures_len();
    push_captures(
        args.lua,
        meter,
        &matcher,
        (first, last),
        captures,
        &mut values,
    )?;
    Ok(MultiValue::from_vec(values))
}

fn index_value(index: usize) -> Value {
    Value::Integer(i64::try_from(index).expect("memory is bounded"))
}

fn search_start(args: &Arguments<'_>, len: usize) -> Result<usize> {
    let start = position(args.integer_or(2, 1)?, len);
    Ok(start.saturating_sub(1).min(len))
}

fn plain_find(subject: &[u8], pattern: &[u8], meter: &Meter) -> Result<Option<usize>> {
    let Some((first, rest)) = pattern.split_first() else {
        return Ok(Some(0));
    };
    let mut at = 0;
    while let Some(skipped) = subject[at..].iter().position(|byte| byte == first) {
        at += skipped;
        let equal = subject[at + 1..]
            .iter()
            .zip(rest)
            .take_while(|(a, b)| a == b)
            .count();
        if equal == rest.len() {
            return Ok(Some(at));
        }
        meter.charge(1 + (skipped / 16 + equal / 8) as u64)?;
        at += 1;
    }
    meter.charge_bytes(subject.len())?;
    Ok(None)
}

fn push_captures(
    lua: &Lua,
    meter: &Meter,
    matcher: &Matcher<'_>,
    found: (usize, usize),
    count: usize,
    values: &mut Vec<Value>,
) -> Result<()> {
    for index in 0..count {
        let captured = matcher.captured(index, found).map_err(fault)?;
        values.push(match captured {
            Captured::Text(bytes) => text(lua, meter, bytes)?,
            Captured::Position(position) => index_value(position),
        });
    }
    Ok(())
}

fn match_(args: &Arguments<'_>, meter: &Meter) -> Result<MultiValue> {
    let (subject, pattern) = (args.string(0)?, args.string(1)?);
    let (subject, pattern) = (subject.as_bytes(), pattern.as_bytes());
    let start = search_start(args, subject.len())?;
    let mut matcher = Matcher::new(&subject, &pattern, meter)?;
    let found = matcher.search(start).map_err(fault)?;
    matcher.settle().map_err(fault)?;
    let Some(found) = found else {
        return Ok(MultiValue::from_vec(vec![Value::Nil]));
    };
    let mut values = Vec::new();
    let captures = matcher.captures_len().max(1);
    push_captures(args.lua, meter, &matcher, found, captures, &mut values)?;
    Ok(MultiValue::from_vec(values))
}

/// One step of `gmatch`: subject, pattern, place. Returns the next place and the captures. Here a
/// `^` is a byte as any other.
fn gmatch_step(args: &Arguments<'_>, meter: &Meter) -> Result<MultiValue> {
    let (subject, pattern) = (args.string(0)?, args.string(1)?);
    let (subject, pattern) = (subject.as_bytes(), pattern.as_bytes());
    let start = usize::try_from(args.integer(2)?).unwrap_or(0);
    let mut matcher = Matcher::new(&subject, &pattern, meter)?;
    for at in start..=subject.len() {
        let end = matcher.match_at(at, 0).map_err(fault)?;
        if let Some(end) = end {
            matcher.settle().map_err(fault)?;
            let next = if end == at { end + 1 } else { end };
            let mut values = vec![index_value(next)];
            let captures = matcher.captures_len().max(1);
            push_captures(args.lua, meter, &matcher, (at, end), captures, &mut values)?;
            return Ok(MultiValue::from_vec(values));
        }
    }
    matcher.settle().map_err(fault)?;
    Ok(MultiValue::from_vec(vec![
        index_value(subject.len() + 1),
        Value::Nil,
    ]))
}

/// One step of `gsub` with a function or a table: subject, pattern, place. Returns nothing, or
/// where the next match begins and ends, the match and the captures.
fn gsub_step(args: &Arguments<'_>, meter: &Meter) -> Result<MultiValue> {
    let (subject, pattern) = (args.string(0)?, args.string(1)?);
    let (subject, pattern) = (subject.as_bytes(), pattern.as_bytes());
    let start = usize::try_from(args.integer(2)?).unwrap_or(0);
    let is_bound = pattern.first() == Some(&b'^');
    if start > subject.len() || (is_bound && start > 0) {
        return Ok(MultiValue::new());
    }
    let mut matcher = Matcher::new(&subject, &pattern, meter)?;
    let found = matcher.search(start).map_err(fault)?;
    matcher.settle().map_err(fault)?;
    let Some((first, last)) = found else {
        return Ok(MultiValue::new());
    };
    let whole = text(args.lua, meter, &subject[first..last])?;
    let mut values = vec![index_value(first), index_value(last), whole];
    let captures = matcher.captures_len().max(1);
    push_captures(
        args.lua,
        meter,
        &matcher,
        (first, last),
        captures,
        &mut values,
    )?;
    Ok(MultiValue::from_vec(values))
}

fn gsub_text(args: &Arguments<'_>, meter: &Meter) -> Result<(Value, i64)> {
    let (subject, pattern) = (args.string(0)?, args.string(1)?);
    let (subject, pattern) = (subject.as_bytes(), pattern.as_bytes());
    let replacement = match args.value(2) {
        Value::String(_) | Value::Integer(_) | Value::Number(_) => args.string(2)?,
        _ => return Err(args.refuse(2, "string/function/table expected")),
    };
    let replacement = replacement.as_bytes();
    let default = i64::try_from(subject.len() + 1).expect("memory is bounded");
    let count_max = args.integer_or(3, default)?;
    let is_bound = pattern.first() == Some(&b'^');
    let mut matcher = Matcher::new(&subject, &pattern, meter)?;
    let (mut out, mut at, mut count) = (Vec::new(), 0, 0);
    while count < count_max {
        let end = matcher.match_at(at, usize::from(is_bound));
        match end.map_err(fault)? {
            Some(end) => {
                count += 1;
                replace(&matcher, (at, end), &replacement, &mut out)?;
                meter.charge_bytes(replacement.len())?;
                meter.check_room(args.lua, 2 * out.len())?;
                if end > at {
                    at = end;
                } else if at < subject.len() {
                    out.push(subject[at]);
                    at += 1;
                } else {
                    break;
                }
            }
            None if at < subject.len() => {
                out.push(subject[at]);
                at += 1;
            }
            None => break,
        }
        if is_bound {
            break;
        }
    }
    matcher.settle().map_err(fault)?;
    out.extend_from_slice(&subject[at..]);
    Ok((text(args.lua, meter, &out)?, count))
}

/// Appends the replacement: `%1` is a capture, `%0` the match.
fn replace(
    matcher: &Matcher<'_>,
    found: (usize, usize),
    replacement: &[u8],
    out: &mut Vec<u8>,
) -> Result<()> {
    let mut rest = replacement.iter();
    while let Some(byte) = rest.next() {
        if *byte != b'%' {
            out.push(*byte);
            continue;
        }
        // A string of C ends with a zero, which stands behind a `%` at the end.
        let escaped = rest.next().copied().unwrap_or(0);
        let captured = match escaped {
            b'0' => matcher.whole(found),
            b'1'..=b'9' => matcher
                .captured(usize::from(escaped - b'1'), found)
                .map_err(fault)?,
            escaped => {
                out.push(escaped);
                continue;
            }
        };
        match captured {
            Captured::Text(bytes) => out.extend_from_slice(bytes),
            Captured::Position(position) => out.extend_from_slice(position.to_string().as_bytes()),
        }
    }
    Ok(())
}
