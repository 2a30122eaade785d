//! `redis.call`, `redis.pcall` and `redis.log`: the way from a script to its shard.

use std::cell::Cell;

use mlua::{BorrowedBytes, LightUserData, Lua, MultiValue, Result, Value};
use penstock_net::resp::Protocol;
use penstock_shard::scripts::{Called, Calls};

use crate::answers::AnswerReader;
use crate::arguments::number_of;
use crate::budget::{Meter, Stop};
use crate::failure::{Failure, error_table};
use crate::numbers;
use crate::values::shortest;

/// Arguments of a command that take nothing from the heap, as nearly all commands have them.
const FEW_ARGUMENTS: usize = 8;
/// Steps of one command, beside those of its bytes.
const CALL_STEPS: u64 = 100;
/// Bytes of a table for each byte of a reply that it is made of, at most.
const TABLE_BYTES_PER_BYTE: usize = 12;
/// Whole numbers up to this one are written to a command with all their digits.
const INTEGER_MAX: f64 = 4_611_686_018_427_387_904.0;

/// What a call is, told by its first argument. No script can make such a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    Protected = 1,
    Log = 2,
}

impl Mark {
    pub(crate) fn value(self) -> Value {
        Value::LightUserData(LightUserData(std::ptr::without_provenance_mut(
            self as usize,
        )))
    }

    fn of(value: Option<&Value>) -> Option<Self> {
        match value {
            Some(Value::LightUserData(data)) if data.0.addr() == Mark::Protected as usize => {
                Some(Mark::Protected)
            }
            Some(Value::LightUserData(data)) if data.0.addr() == Mark::Log as usize => {
                Some(Mark::Log)
            }
            _ => None,
        }
    }
}

/// The calls of one run.
pub(crate) struct Dispatcher<'a> {
    pub(crate) calls: &'a mut dyn Calls,
    pub(crate) meter: &'a Meter,
    /// What the script has chosen by `redis.setresp`.
    pub(crate) protocol: &'a Cell<Protocol>,
    pub(crate) reply: &'a mut Vec<u8>,
}

/// An argument of a command.
enum Argument {
    Text(BorrowedBytes),
    Number(String),
}

impl AsRef<[u8]> for Argument {
    fn as_ref(&self) -> &[u8] {
        match self {
            Argument::Text(text) => text,
            Argument::Number(text) => text.as_bytes(),
        }
    }
}

impl Argument {
    fn new(value: &Value) -> Option<Self> {
        if let Value::String(text) = value {
            return Some(Argument::Text(text.as_bytes()));
        }
        let number = number_of(value)?;
        let is_integer = number.trunc() == number && number.abs() <= INTEGER_MAX;
        Some(Argument::Number(match is_integer {
            true => numbers::integer_of(number).to_string(),
            false => shortest(number),
        }))
    }
}

impl Dispatcher<'_> {
    /// One call of the script.
    pub(crate) fn dispatch(&mut self, lua: &Lua, mut values: MultiValue) -> Result<Value> {
        let mark = Mark::of(values.front());
        if mark.is_some() {
            values.pop_front();
        }
        if mark == Some(Mark::Log) {
            return self.log(&values);
        }
        match self.command(&values)? {
            Ok(()) => (),
            Err(text) => return failed(lua, mark, text.as_bytes()),
        }
        if let Some(text) = AnswerReader::error(self.reply) {
            return failed(lua, mark, text);
        }
        if let Some(number) = AnswerReader::integer(self.reply) {
            self.meter.charge_bytes(self.reply.len())?;
            return Ok(Value::Integer(number));
        }
        self.meter.charge_bytes(self.reply.len())?;
        let bytes = self.reply.len().saturating_mul(TABLE_BYTES_PER_BYTE);
        self.meter.check_room(lua, bytes)?;
        let bytes_before = lua.used_memory();
        // The room is there, so no value needs a look at the limit.
        lua.set_memory_limit(0)?;
        let mut reader = AnswerReader {
            lua,
            meter: self.meter,
            bytes: self.reply,
        };
        let value = reader.value(0);
        lua.set_memory_limit(self.meter.limits.memory_bytes_max)?;
        self.meter.allocated_since(lua, bytes_before);
        value
    }

    /// Runs the command; its reply is in the buffer. An argument that is none is an error of the
    /// script.
    fn command(&mut self, values: &MultiValue) -> Result<std::result::Result<(), &'static str>> {
        self.meter.charge(CALL_STEPS)?;
        if values.is_empty() {
            return Ok(Err(
                "ERR Please specify at least one argument for this call",
            ));
        }
        const NONE: &str = "ERR Command arguments must be strings or integers";
        if let count @ ..=FEW_ARGUMENTS = values.len() {
            let few: [Option<Argument>; FEW_ARGUMENTS] =
                std::array::from_fn(|at| values.get(at).and_then(Argument::new));
            let mut arguments = [&[][..]; FEW_ARGUMENTS];
            for (into, argument) in arguments.iter_mut().zip(&few[..count]) {
                let Some(argument) = argument else {
                    return Ok(Err(NONE));
                };
                *into = argument.as_ref();
            }
            return self.call(&arguments[..count]).map(Ok);
        }
        let arguments: Option<Vec<_>> = values.iter().map(Argument::new).collect();
        let Some(arguments) = arguments else {
            return Ok(Err(NONE));
        };
        let arguments: Vec<&[u8]> = arguments.iter().map(AsRef::as_ref).collect();
        self.call(&arguments).map(Ok)
    }

    /// Runs the command with these arguments.
    fn call(&mut self, arguments: &[&[u8]]) -> Result<()> {
        self.meter
            .charge_bytes(arguments.iter().map(|bytes| bytes.len()).sum())?;
        self.reply.clear();
        match self.calls.call(arguments, self.protocol.get(), self.reply) {
            Called::Answered => Ok(()),
            Called::Missing => Err(self.meter.stop(Stop::Missing)),
        }
    }

    /// Level and texts, which the prelude has checked.
    fn log(&mut self, values: &MultiValue) -> Result<Value> {
        self.meter.charge(CALL_STEPS)?;
        let level = values
            .front()
            .and_then(number_of)
            .map_or(0, numbers::integer_of);
        let level = u8::try_from(level).unwrap_or(u8::MAX);
        let mut line = Vec::new();
        for text in values.iter().skip(1).filter_map(Argument::new) {
            if !line.is_empty() {
                line.push(b' ');
            }
            line.extend_from_slice(text.as_ref());
        }
        self.meter.charge_bytes(line.len())?;
        self.calls.log(level, &line);
        Ok(Value::Nil)
    }
}

/// A command that failed: an error, or its table for `pcall`.
fn failed(lua: &Lua, mark: Option<Mark>, text: &[u8]) -> Result<Value> {
    match mark {
        Some(_) => error_table(lua, text).map(Value::Table),
        None => Err(Failure::Reply(text.to_vec()).into()),
    }
}
