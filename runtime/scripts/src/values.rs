//! The value of a script as a reply of RESP.

use mlua::{Lua, LuaString, Table, Value};
use penstock_net::resp::{Protocol, Replies};

use crate::arguments::number_of;
use crate::budget::{Meter, Stop};
use crate::cmsgpack::is_ordered;
use crate::numbers;

/// Levels of a reply, at most.
const DEPTH_MAX: usize = 128;
/// Letters of the format of a verbatim string.
const FORMAT_BYTES: usize = 3;

/// Why a value has no reply.
pub(crate) enum Unwritten {
    /// An error that the client gets.
    Error(String),
    /// The run ends.
    Stopped,
}

impl From<mlua::Error> for Unwritten {
    fn from(error: mlua::Error) -> Self {
        match crate::failure::plain(error) {
            crate::failure::Plain::Text(text) => {
                Unwritten::Error(format!("ERR {}", String::from_utf8_lossy(&text)))
            }
            _ => Unwritten::Stopped,
        }
    }
}

type Written = Result<(), Unwritten>;

/// The fields of tables that mean something in a reply.
pub(crate) struct Fields {
    err: LuaString,
    ok: LuaString,
    double: LuaString,
    map: LuaString,
    set: LuaString,
    big_number: LuaString,
    verbatim_string: LuaString,
    string: LuaString,
    format: LuaString,
}

impl Fields {
    pub(crate) fn new(lua: &Lua) -> mlua::Result<Self> {
        Ok(Fields {
            err: lua.create_string("err")?,
            ok: lua.create_string("ok")?,
            double: lua.create_string("double")?,
            map: lua.create_string("map")?,
            set: lua.create_string("set")?,
            big_number: lua.create_string("big_number")?,
            verbatim_string: lua.create_string("verbatim_string")?,
            string: lua.create_string("string")?,
            format: lua.create_string("format")?,
        })
    }

    /// The field `err` of a table that a script raised.
    pub(crate) fn error_of(&self, table: &Table) -> Option<Vec<u8>> {
        match table.raw_get(&self.err) {
            Ok(Value::String(text)) => Some(text.as_bytes().to_vec()),
            _ => None,
        }
    }
}

/// Writes one reply.
pub(crate) struct ReplyWriter<'a> {
    pub(crate) fields: &'a Fields,
    pub(crate) meter: &'a Meter,
    /// The protocol of the client.
    pub(crate) protocol: Protocol,
    /// The protocol that the script has chosen: whether booleans are some.
    pub(crate) script_protocol: Protocol,
    pub(crate) out: &'a mut Vec<u8>,
    /// Length of `out`, at most.
    pub(crate) out_max: usize,
    pub(crate) reply_bytes_max: usize,
}

impl ReplyWriter<'_> {
    fn replies(&mut self) -> Replies<'_> {
        Replies::new(self.out, self.protocol)
    }

    fn check(&self, more: usize) -> Written {
        if self.out.len().saturating_add(more) > self.out_max {
            let bytes_max = self.reply_bytes_max;
            let _ = self.meter.stop(Stop::Reply { bytes_max });
            return Err(Unwritten::Stopped);
        }
        Ok(())
    }

    /// Writes a value and what it holds.
    pub(crate) fn value(&mut self, value: &Value, depth: usize) -> Written {
        self.meter.charge(2)?;
        self.check(0)?;
        match value {
            Value::String(text) => {
                let bytes = text.as_bytes();
                self.check(bytes.len())?;
                self.replies().bulk(&bytes);
            }
            Value::Boolean(value) => self.boolean(*value),
            Value::Table(table) => return self.table(table, depth),
            value => match number_of(value) {
                Some(number) => self.replies().integer(numbers::integer_of(number)),
                None => self.replies().null(),
            },
        }
        Ok(())
    }

    fn boolean(&mut self, value: bool) {
        match (self.script_protocol, self.protocol, value) {
            (Protocol::Resp3, Protocol::Resp3, true) => self.replies().raw(b"#t\r\n"),
            (Protocol::Resp3, Protocol::Resp3, false) => self.replies().raw(b"#f\r\n"),
            (Protocol::Resp2, _, false) => self.replies().null(),
            (_, _, value) => self.replies().integer(i64::from(value)),
        }
    }

    fn table(&mut self, table: &Table, depth: usize) -> Written {
        if depth >= DEPTH_MAX {
            return Err(Unwritten::Error(format!(
                "ERR the reply of the script is nested deeper than {DEPTH_MAX} levels"
            )));
        }
        let fields = self.fields;
        if let Value::String(text) = table.raw_get(&fields.err)? {
            let bytes = text.as_bytes();
            self.check(bytes.len())?;
            self.replies().error(as_line(&bytes));
        } else if let Value::String(text) = table.raw_get(&fields.ok)? {
            let bytes = text.as_bytes();
            self.check(bytes.len())?;
            self.line(b'+', as_line(&bytes));
        } else if let Some(number) = number_of(&table.raw_get(&fields.double)?) {
            self.double(number);
        } else if let Value::Table(map) = table.raw_get(&fields.map)? {
            self.pairs(&map, Form::Map, depth)?;
        } else if let Value::Table(set) = table.raw_get(&fields.set)? {
            self.pairs(&set, Form::Set, depth)?;
        } else if let Value::String(text) = table.raw_get(&fields.big_number)? {
            let bytes = text.as_bytes();
            self.check(bytes.len())?;
            match self.protocol {
                Protocol::Resp3 => self.line(b'(', &bytes),
                Protocol::Resp2 => self.replies().bulk(&bytes),
            }
        } else if let Some((format, text)) = self.verbatim(table)? {
            let bytes = text.as_bytes();
            self.check(bytes.len())?;
            self.verbatim_text(&format.as_bytes(), &bytes);
        } else {
            self.array(table, depth)?;
        }
        Ok(())
    }

    fn verbatim(&self, table: &Table) -> mlua::Result<Option<(LuaString, LuaString)>> {
        let Value::Table(parts) = table.raw_get(&self.fields.verbatim_string)? else {
            return Ok(None);
        };
        let text = parts.raw_get(&self.fields.string)?;
        let format = parts.raw_get(&self.fields.format)?;
        Ok(match (format, text) {
            (Value::String(format), Value::String(text)) => Some((format, text)),
            _ => None,
        })
    }

    /// A line of a kind. Ends of lines in it become blanks.
    fn line(&mut self, kind: u8, text: &[u8]) {
        self.out.push(kind);
        let clean = text.iter().map(|byte| match byte {
            b'\r' | b'\n' => b' ',
            byte => *byte,
        });
        self.out.extend(clean);
        self.out.extend_from_slice(b"\r\n");
    }

    fn double(&mut self, number: f64) {
        let text = match number.is_nan() {
            true => String::from("nan"),
            false => shortest(number),
        };
        match self.protocol {
            Protocol::Resp3 => self.line(b',', text.as_bytes()),
            Protocol::Resp2 => self.replies().bulk(text.as_bytes()),
        }
    }

    fn verbatim_text(&mut self, format: &[u8], text: &[u8]) {
        if self.protocol == Protocol::Resp2 {
            return self.replies().bulk(text);
        }
        let head = format!("={}\r\n", text.len() + FORMAT_BYTES + 1);
        self.out.extend_from_slice(head.as_bytes());
        let letters = format.iter().copied().chain(std::iter::repeat(b' '));
        self.out.extend(letters.take(FORMAT_BYTES));
        self.out.push(b':');
        self.out.extend_from_slice(text);
        self.out.extend_from_slice(b"\r\n");
    }

    fn pairs(&mut self, table: &Table, form: Form, depth: usize) -> Written {
        let mut count = 0;
        let mut unordered = false;
        table.for_each(|key: Value, _: Value| {
            self.meter.charge(1)?;
            count += 1;
            unordered |= !is_ordered(&key);
            Ok(())
        })?;
        if unordered {
            return Err(Unwritten::Error(format!(
                "ERR {}",
                crate::cmsgpack::UNORDERED
            )));
        }
        match form {
            Form::Map => self.replies().map(count),
            Form::Set => self.replies().set(count),
        }
        let mut written = Ok(());
        table.for_each(|key: Value, value: Value| {
            if written.is_ok() {
                written = self.value(&key, depth + 1);
            }
            if written.is_ok() && form == Form::Map {
                written = self.value(&value, depth + 1);
            }
            Ok(())
        })?;
        written
    }

    /// The elements from 1 on until one is nil.
    fn array(&mut self, table: &Table, depth: usize) -> Written {
        let mut len = 0;
        while !matches!(table.raw_get(len + 1)?, Value::Nil) {
            self.meter.charge(1)?;
            len += 1;
        }
        self.replies().array(len);
        for index in 1..=len {
            self.value(&table.raw_get(index)?, depth + 1)?;
        }
        Ok(())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Map,
    Set,
}

/// A line of a status or an error ends at its first zero, as strings of C do.
fn as_line(text: &[u8]) -> &[u8] {
    let end = text.iter().position(|byte| *byte == 0);
    &text[..end.unwrap_or(text.len())]
}

/// The shortest text that reads as the same number.
pub(crate) fn shortest(number: f64) -> String {
    if let Some(text) = numbers::special(number) {
        return String::from(text);
    }
    let scientific = format!("{number:e}");
    let (mantissa, exponent) = scientific
        .split_once('e')
        .expect("the form has an exponent");
    let exponent: i32 = exponent.parse().expect("the exponent is a number");
    let digits = mantissa.bytes().filter(u8::is_ascii_digit).count();
    let digits = i32::try_from(digits).expect("at most 17");
    // The place of the last digit, counted from the point.
    let last = exponent - (digits - 1);
    let is_plain = match last >= 0 {
        true => exponent.abs() < digits + 7,
        false => last > -7 || exponent.abs() < 4,
    };
    match is_plain {
        true => format!("{number}"),
        false => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{mantissa}e{sign}{}", exponent.abs())
        }
    }
}
