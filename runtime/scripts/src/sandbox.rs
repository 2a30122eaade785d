//! What the prelude gets that is written in Rust.

use std::cell::Cell;
use std::fmt::Write;
use std::rc::Rc;

use mlua::chunk::ChunkMode;
use mlua::{Function, Lua, MultiValue, Result, Table, Value};
use penstock_net::resp::Protocol;
use sha1::{Digest, Sha1};

use crate::arguments::{Arguments, number_of, type_name};
use crate::budget::{Meter, TICK_STEPS};
use crate::cjson::Cjson;
use crate::commands::Mark;
use crate::failure::{self, Failure, PRELUDE_NAME};
use crate::library::{RESULTS_MAX, function, text};
use crate::numbers;
use crate::random::{self, Random};
use crate::{bits, catching, cmsgpack, jumps, strings, structs};

const PRELUDE: &str = include_str!("prelude.lua");
/// The release of Redis whose commands scripts may expect: what INFO tells, too.
const REDIS_VERSION: &str = "7.4.0";
const REDIS_VERSION_NUMBER: i64 = 0x0007_0400;

/// What one interpreter shares with its library functions.
#[derive(Clone, Debug)]
pub(crate) struct Shared {
    pub(crate) meter: Rc<Meter>,
    pub(crate) random: Rc<Random>,
    pub(crate) cjson: Cjson,
    /// What the script has chosen by `redis.setresp`.
    pub(crate) protocol: Rc<Cell<Protocol>>,
}

/// The globals of scripts, and the function that runs one.
pub(crate) struct Sandbox {
    pub(crate) environment: Table,
    pub(crate) run: Function,
}

/// Builds the sandbox in a fresh interpreter.
pub(crate) fn build(lua: &Lua, shared: &Shared) -> Result<Sandbox> {
    let native = lua.create_table()?;
    let environment: Rc<Cell<Option<Table>>> = Rc::default();
    libraries(lua, shared, &native)?;
    errors(lua, shared, &native)?;
    native.raw_set("compile", compiler(lua, shared, &environment)?)?;
    native.raw_set("sha1hex", function(lua, "sha1hex", &shared.meter, sha1hex)?)?;
    native.raw_set("setresp", setresp(lua, shared)?)?;
    native.raw_set("tick_steps", TICK_STEPS)?;
    native.raw_set("results_max", RESULTS_MAX)?;
    native.raw_set("unordered", cmsgpack::UNORDERED)?;
    native.raw_set("version", REDIS_VERSION)?;
    native.raw_set("version_number", REDIS_VERSION_NUMBER)?;
    let marks = lua.create_table()?;
    marks.raw_set("pcall", Mark::Protected.value())?;
    marks.raw_set("log", Mark::Log.value())?;
    native.raw_set("marks", marks)?;
    let prelude = lua
        .load(PRELUDE)
        .set_name(PRELUDE_NAME)
        .set_mode(ChunkMode::Text);
    let (globals, run): (Table, Function) = prelude.call(native)?;
    environment.set(Some(globals.clone()));
    Ok(Sandbox {
        environment: globals,
        run,
    })
}

fn libraries(lua: &Lua, shared: &Shared, native: &Table) -> Result<()> {
    let meter = &shared.meter;
    native.raw_set("string", strings::library(lua, meter)?)?;
    native.raw_set("concat", function(lua, "concat", meter, concat)?)?;
    native.raw_set("cjson", shared.cjson.library(lua, meter)?)?;
    native.raw_set("cmsgpack", cmsgpack::library(lua, meter)?)?;
    native.raw_set("bit", bits::library(lua, meter)?)?;
    native.raw_set("struct", structs::library(lua, meter)?)?;
    let math: Table = lua.globals().raw_get("math")?;
    random::install(lua, &math, meter, &shared.random)?;
    // Those that read any number of arguments.
    math.raw_set("max", function(lua, "max", meter, greatest)?)?;
    math.raw_set("min", function(lua, "min", meter, least)?)?;
    native.raw_set("math", math)
}

fn errors(lua: &Lua, shared: &Shared, native: &Table) -> Result<()> {
    let body = |lua: &Lua, text: mlua::LuaString| -> Result<()> {
        Err(failure::raise(lua, &text.to_string_lossy()))
    };
    native.raw_set("raise", lua.create_function(body)?)?;
    let meter = Rc::clone(&shared.meter);
    let body = move |lua: &Lua, error: Value| catching::caught(lua, &meter, error);
    native.raw_set("caught", lua.create_function(body)?)?;
    let meter = Rc::clone(&shared.meter);
    let body = move |lua: &Lua, error: Value| {
        meter.blame.replace(failure::blame(lua));
        Ok(error)
    };
    native.raw_set("blame", lua.create_function(body)?)?;
    let meter = Rc::clone(&shared.meter);
    let body = move |lua: &Lua, (): ()| meter.account_next(lua);
    native.raw_set("look_next", lua.create_function(body)?)?;
    let meter = Rc::clone(&shared.meter);
    let body = move |_: &Lua, bytes: usize| meter.charge_number(bytes);
    native.raw_set("charge_number", lua.create_function(body)?)?;
    let meter = Rc::clone(&shared.meter);
    let body =
        move |_: &Lua, steps: f64| meter.charge(numbers::integer_of(steps.max(0.0)).unsigned_abs());
    native.raw_set("charge", lua.create_function(body)?)
}

/// `compile(text, name)`: a function, or nil and an error. Compiled code is no text.
fn compiler(lua: &Lua, shared: &Shared, environment: &Rc<Cell<Option<Table>>>) -> Result<Function> {
    let (meter, environment) = (Rc::clone(&shared.meter), Rc::clone(environment));
    lua.create_function(
        move |lua, (text, name): (mlua::LuaString, mlua::LuaString)| {
            let bytes = text.as_bytes();
            // A byte of text takes some eight of code, and as long to read.
            meter.charge_bytes(bytes.len().saturating_mul(8))?;
            let globals = environment.take();
            environment.set(globals.clone());
            let globals = globals.ok_or(Failure::Stop)?;
            let bytes_before = lua.used_memory();
            let compiled = compile(lua, &bytes, &name.to_string_lossy(), &globals);
            meter.allocated_since(lua, bytes_before);
            match compiled {
                Ok(function) => Ok((Some(function), None)),
                Err(mlua::Error::SyntaxError { message, .. }) => {
                    Ok((None, Some(lua.create_string(message)?)))
                }
                Err(error) => Err(error),
            }
        },
    )
}

/// Compiles text, whose globals are those of `environment`. Each text of a client goes this way.
pub(crate) fn compile(lua: &Lua, text: &[u8], name: &str, environment: &Table) -> Result<Function> {
    if let Some(message) = jumps::refused(text) {
        return Err(mlua::Error::SyntaxError {
            message,
            incomplete_input: false,
        });
    }
    // A name of C ends at its first zero.
    let name = name.split('\0').next().unwrap_or_default();
    let chunk = lua.load(text).set_name(name).set_mode(ChunkMode::Text);
    chunk.set_environment(environment.clone()).into_function()
}

/// SHA-1 as 40 hexadecimal digits.
pub(crate) fn hex(digest: &[u8]) -> String {
    digest.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string takes all");
        text
    })
}

fn sha1hex(args: &Arguments<'_>, meter: &Meter) -> Result<Value> {
    if args.len() != 1 {
        return Err(Failure::Reply(Vec::from(b"ERR wrong number of arguments")).into());
    }
    let bytes = match args.value(0) {
        Value::String(_) | Value::Integer(_) | Value::Number(_) => args.string(0)?,
        _ => args.lua.create_string("")?,
    };
    let bytes = bytes.as_bytes();
    meter.charge_bytes(bytes.len().saturating_mul(8))?;
    text(args.lua, meter, hex(&Sha1::digest(&*bytes)).as_bytes())
}

fn setresp(lua: &Lua, shared: &Shared) -> Result<Function> {
    let protocol = Rc::clone(&shared.protocol);
    lua.create_function(move |_, values: MultiValue| {
        if values.len() != 1 {
            let text = b"ERR server.setresp() requires one argument.";
            return Err(Failure::Reply(Vec::from(text)).into());
        }
        protocol.set(match values.front().and_then(number_of) {
            Some(2.0) => Protocol::Resp2,
            Some(3.0) => Protocol::Resp3,
            _ => {
                let text = b"ERR RESP version must be 2 or 3.";
                return Err(Failure::Reply(Vec::from(text)).into());
            }
        });
        Ok(())
    })
}

/// The argument that comes before all others.
fn first(args: &Arguments<'_>, is_before: fn(f64, f64) -> bool) -> Result<f64> {
    let mut found = args.number(0)?;
    for index in 1..args.len() {
        let number = args.number(index)?;
        if is_before(number, found) {
            found = number;
        }
    }
    Ok(found)
}

fn greatest(args: &Arguments<'_>, _: &Meter) -> Result<f64> {
    first(args, |a, b| a > b)
}

fn least(args: &Arguments<'_>, _: &Meter) -> Result<f64> {
    first(args, |a, b| a < b)
}

/// `table.concat(table, separator, first, last)`.
fn concat(args: &Arguments<'_>, meter: &Meter) -> Result<Value> {
    let separator = match args.is_none_or_nil(1) {
        true => args.lua.create_string("")?,
        false => args.string(1)?,
    };
    let table = args.table(0)?;
    let separator = separator.as_bytes();
    let first = args.integer_or(2, 1)?;
    let last = match args.is_none_or_nil(3) {
        true => i64::try_from(table.raw_len()).expect("memory is bounded"),
        false => args.integer(3)?,
    };
    let mut out = Vec::new();
    for index in first..=last {
        meter.charge(2)?;
        let value: Value = table.raw_get(index)?;
        match (&value, number_of(&value)) {
            (Value::String(text), _) => out.extend_from_slice(&text.as_bytes()),
            (_, Some(number)) => out.extend_from_slice(numbers::text_of(number).as_bytes()),
            (value, None) => {
                return Err(args.error(&format!(
                    "invalid value ({}) at index {index} in table for 'concat'",
                    type_name(value)
                )));
            }
        }
        if index != last {
            out.extend_from_slice(&separator);
        }
        meter.check_room(args.lua, 2 * out.len())?;
    }
    text(args.lua, meter, &out)
}
