//! The reply of a command as a value of the script.

use mlua::{Lua, Table, Value};

use crate::budget::Meter;
use crate::failure::{Failure, error_table};

/// Levels of a reply, at most.
const DEPTH_MAX: usize = 128;

/// Reads the reply of one command.
pub(crate) struct AnswerReader<'a> {
    pub(crate) lua: &'a Lua,
    pub(crate) meter: &'a Meter,
    pub(crate) bytes: &'a [u8],
}

impl<'a> AnswerReader<'a> {
    /// The text of the reply if it is an error.
    pub(crate) fn error(bytes: &'a [u8]) -> Option<&'a [u8]> {
        let line = bytes.strip_prefix(b"-")?;
        Some(line.strip_suffix(b"\r\n").unwrap_or(line))
    }

    /// The number that the whole reply is, which takes no memory of the interpreter.
    pub(crate) fn integer(bytes: &[u8]) -> Option<i64> {
        let line = bytes.strip_prefix(b":")?.strip_suffix(b"\r\n")?;
        std::str::from_utf8(line).ok()?.parse().ok()
    }

    /// The value of the next reply.
    pub(crate) fn value(&mut self, depth: usize) -> mlua::Result<Value> {
        let kind = self.take(1)?[0];
        let line = self.line()?;
        match kind {
            b':' => number(line).map(Value::Integer),
            b'$' => self.bulk(line),
            b'+' => self.field("ok", line),
            b'-' => error_table(self.lua, line).map(Value::Table),
            b'*' | b'>' => self.array(line, depth),
            b'%' => self.pairs("map", line, depth),
            b'~' => self.pairs("set", line, depth),
            b'_' => Ok(Value::Nil),
            b'#' => Ok(Value::Boolean(line == b"t")),
            b',' => {
                let text = std::str::from_utf8(line)
                    .ok()
                    .and_then(|text| text.parse().ok());
                let number: f64 = text.ok_or_else(malformed)?;
                let table = self.lua.create_table()?;
                table.raw_set("double", number)?;
                Ok(Value::Table(table))
            }
            b'(' => self.field("big_number", line),
            b'=' => self.verbatim(line),
            _ => Err(malformed()),
        }
    }

    fn take(&mut self, len: usize) -> mlua::Result<&'a [u8]> {
        let (bytes, rest) = self.bytes.split_at_checked(len).ok_or_else(malformed)?;
        self.bytes = rest;
        Ok(bytes)
    }

    fn line(&mut self) -> mlua::Result<&'a [u8]> {
        let end = self.bytes.iter().position(|byte| *byte == b'\n');
        let line = self.take(end.ok_or_else(malformed)? + 1)?;
        line.strip_suffix(b"\r\n").ok_or_else(malformed)
    }

    fn text(&self, bytes: &[u8]) -> mlua::Result<Value> {
        self.meter.note(self.lua, bytes)?;
        self.lua.create_string(bytes).map(Value::String)
    }

    fn bulk(&mut self, line: &[u8]) -> mlua::Result<Value> {
        let Ok(len) = usize::try_from(number(line)?) else {
            return Ok(Value::Boolean(false));
        };
        let bytes = self.take(len)?;
        self.take(2)?;
        self.text(bytes)
    }

    fn field(&self, name: &str, line: &[u8]) -> mlua::Result<Value> {
        let table = self.lua.create_table()?;
        table.raw_set(name, self.text(line)?)?;
        Ok(Value::Table(table))
    }

    fn count(&self, line: &[u8], depth: usize) -> mlua::Result<Option<usize>> {
        if depth >= DEPTH_MAX {
            return Err(malformed());
        }
        let Ok(count) = usize::try_from(number(line)?) else {
            return Ok(None);
        };
        // Each element has a line of its own.
        match count > self.bytes.len() {
            true => Err(malformed()),
            false => Ok(Some(count)),
        }
    }

    fn array(&mut self, line: &[u8], depth: usize) -> mlua::Result<Value> {
        let Some(count) = self.count(line, depth)? else {
            return Ok(Value::Boolean(false));
        };
        let table = self.lua.create_table_with_capacity(count, 0)?;
        for index in 1..=count {
            let value = self.value(depth + 1)?;
            table.raw_set(index, value)?;
        }
        Ok(Value::Table(table))
    }

    /// A map, or a set whose elements are keys with the value `true`.
    fn pairs(&mut self, name: &str, line: &[u8], depth: usize) -> mlua::Result<Value> {
        let count = self.count(line, depth)?.ok_or_else(malformed)?;
        let pairs: Table = self.lua.create_table_with_capacity(0, count)?;
        for _ in 0..count {
            let key = self.value(depth + 1)?;
            let value = match name == "map" {
                true => self.value(depth + 1)?,
                false => Value::Boolean(true),
            };
            if !matches!(key, Value::Nil) {
                pairs.raw_set(key, value)?;
            }
        }
        let table = self.lua.create_table()?;
        table.raw_set(name, pairs)?;
        Ok(Value::Table(table))
    }

    fn verbatim(&mut self, line: &[u8]) -> mlua::Result<Value> {
        let len = usize::try_from(number(line)?).map_err(|_| malformed())?;
        let bytes = self.take(len)?;
        self.take(2)?;
        let (format, text) = bytes.split_at_checked(3).ok_or_else(malformed)?;
        let text = text.strip_prefix(b":").ok_or_else(malformed)?;
        let parts = self.lua.create_table()?;
        parts.raw_set("format", self.text(format)?)?;
        parts.raw_set("string", self.text(text)?)?;
        let table = self.lua.create_table()?;
        table.raw_set("verbatim_string", parts)?;
        Ok(Value::Table(table))
    }
}

fn number(line: &[u8]) -> mlua::Result<i64> {
    let text = std::str::from_utf8(line).ok();
    text.and_then(|text| text.parse().ok())
        .ok_or_else(malformed)
}

fn malformed() -> mlua::Error {
    Failure::Text(Vec::from(b"the reply of a command is malformed")).into()
}
