//! The arguments of library functions, and what is said when one of them does not fit.

use mlua::{Lua, LuaString, MultiValue, Table, Value};

use crate::budget::Meter;
use crate::failure::Failure;
use crate::numbers;

/// The arguments of one call. They are numbered from 0; messages number them from 1.
pub(crate) struct Arguments<'a> {
    pub(crate) lua: &'a Lua,
    meter: &'a Meter,
    values: MultiValue,
}

impl<'a> Arguments<'a> {
    pub(crate) fn new(lua: &'a Lua, meter: &'a Meter, values: MultiValue) -> Self {
        Arguments { lua, meter, values }
    }

    pub(crate) fn len(&self) -> usize {
        self.values.len()
    }

    /// The argument; nil beyond the last one.
    pub(crate) fn value(&self, index: usize) -> &Value {
        self.values.get(index).unwrap_or(&Value::Nil)
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &Value> {
        self.values.iter()
    }

    pub(crate) fn is_none_or_nil(&self, index: usize) -> bool {
        matches!(self.value(index), Value::Nil)
    }

    /// An error, which gets the position of the script in front.
    pub(crate) fn error(&self, text: &str) -> mlua::Error {
        Failure::Unplaced(String::from(text)).into()
    }

    /// An error about one argument.
    pub(crate) fn refuse(&self, index: usize, text: &str) -> mlua::Error {
        let text = String::from(text);
        Failure::Argument { index, text }.into()
    }

    /// An error that says which type an argument must have.
    pub(crate) fn expected(&self, index: usize, what: &str) -> mlua::Error {
        let got = match index < self.values.len() {
            true => type_name(self.value(index)),
            false => "no value",
        };
        self.refuse(index, &format!("{what} expected, got {got}"))
    }

    /// A string; a number becomes one.
    pub(crate) fn string(&self, index: usize) -> mlua::Result<LuaString> {
        match self.value(index) {
            Value::String(text) => Ok(text.clone()),
            value => match number_of(value) {
                Some(number) => self.lua.create_string(numbers::text_of(number)),
                None => Err(self.expected(index, "string")),
            },
        }
    }

    /// A number; a string that is one becomes one.
    pub(crate) fn number(&self, index: usize) -> mlua::Result<f64> {
        let value = self.value(index);
        if let Some(number) = number_of(value) {
            return Ok(number);
        }
        let number = match value {
            Value::String(text) => {
                self.meter.charge_number(text.as_bytes().len())?;
                self.lua.coerce_number(value.clone())?
            }
            _ => None,
        };
        number.ok_or_else(|| self.expected(index, "number"))
    }

    /// A number without its fraction.
    pub(crate) fn integer(&self, index: usize) -> mlua::Result<i64> {
        self.number(index).map(numbers::integer_of)
    }

    /// The same cut to 32 bits, where the C library does so.
    pub(crate) fn int(&self, index: usize) -> mlua::Result<i64> {
        let [a, b, c, d, ..] = self.integer(index)?.to_le_bytes();
        Ok(i64::from(i32::from_le_bytes([a, b, c, d])))
    }

    /// The same as [`Arguments::integer`], or what counts if it is not given.
    pub(crate) fn integer_or(&self, index: usize, default: i64) -> mlua::Result<i64> {
        match self.is_none_or_nil(index) {
            true => Ok(default),
            false => self.integer(index),
        }
    }

    pub(crate) fn table(&self, index: usize) -> mlua::Result<Table> {
        match self.value(index) {
            Value::Table(table) => Ok(table.clone()),
            _ => Err(self.expected(index, "table")),
        }
    }
}

/// The number that a value is. Strings are none.
pub(crate) fn number_of(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => Some(*number),
        #[expect(clippy::cast_precision_loss, reason = "numbers of Lua 5.1 are doubles")]
        Value::Integer(integer) => Some(*integer as f64),
        _ => None,
    }
}

/// The name of a type, as Lua 5.1 names it.
pub(crate) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Nil => "nil",
        Value::Boolean(_) => "boolean",
        Value::Integer(_) | Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Table(_) => "table",
        Value::Function(_) => "function",
        Value::Thread(_) => "thread",
        _ => "userdata",
    }
}
