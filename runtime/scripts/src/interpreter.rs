//! One interpreter: its compiled scripts, and a run from its beginning to its reply.

use std::cell::Cell;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::rc::Rc;

use mlua::{Either, Function, LuaOptions, LuaString, MultiValue, StdLib, Table, Value};
use penstock_net::resp::{Protocol, Replies};
use penstock_shard::scripts::{Calls, Script, ScriptEnd, ScriptRun};

use crate::budget::{Meter, ScriptLimits, Stop};
use crate::cjson::Cjson;
use crate::commands::Dispatcher;
use crate::failure::{Plain, plain};
use crate::numbers;
use crate::sandbox::{self, Sandbox, Shared};
use crate::texts::{self, LoadError, SCRIPT_NAME, ScriptTexts};
use crate::values::{Fields, ReplyWriter, Unwritten};

/// Bytes of an error reply, at most: a script may raise a text of any length.
const ERROR_BYTES_MAX: usize = 4 << 10;
/// Compiled scripts of a core, at most.
const COMPILED_MAX: usize = 500;
/// Part of the memory of a core that compiled scripts may take.
const COMPILED_SHARE: usize = 4;
/// Garbage that stays until the interpreter is between two runs, at most.
const GARBAGE_BYTES_MAX: usize = 512 << 10;
/// Bytes of the buffer for replies that stay between two runs, at most.
const SCRATCH_BYTES_MAX: usize = 64 << 10;
/// Bytes that a key or an argument takes beside its own.
const STRING_BYTES: usize = 64;

/// A script that is ready to run.
struct Compiled {
    function: Function,
    is_read_only: bool,
    /// Bytes of the interpreter.
    bytes: usize,
    /// When it was used last, in runs.
    used: u64,
}

/// A digest is a hash already. Who finds texts whose digests begin alike makes 500 look-ups longer.
#[derive(Default)]
struct DigestHasher(u64);

impl Hasher for DigestHasher {
    fn write(&mut self, bytes: &[u8]) {
        if let Some(first) = bytes.first_chunk() {
            self.0 = u64::from_le_bytes(*first);
        }
    }

    /// The length of a digest is always the same.
    fn write_usize(&mut self, _: usize) {}

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Why a script cannot run.
enum Unready {
    Unknown,
    Refused(LoadError),
    Memory,
}

/// One interpreter with all that it holds.
pub(crate) struct Interpreter {
    lua: mlua::Lua,
    sandbox: Sandbox,
    shared: Shared,
    fields: Fields,
    compiled: HashMap<[u8; 20], Compiled, BuildHasherDefault<DigestHasher>>,
    compiled_bytes: usize,
    /// Which scripts are compiled: those that came after so many flushes.
    generation: u64,
    runs: u64,
    /// Bytes after the last collection.
    base_bytes: usize,
    /// Replies of commands are written here.
    scratch: Vec<u8>,
}

impl Interpreter {
    pub(crate) fn new(limits: ScriptLimits) -> Self {
        Interpreter::build(limits).expect("the prelude is ours and fits into memory")
    }

    fn build(limits: ScriptLimits) -> mlua::Result<Self> {
        let libraries = StdLib::TABLE | StdLib::STRING | StdLib::MATH;
        let options = LuaOptions::new().catch_rust_panics(false);
        let lua = mlua::Lua::new_with(libraries, options)?;
        // What is garbage is decided between runs, and by the meter within a run.
        lua.gc_stop();
        let shared = Shared {
            meter: Meter::new(limits),
            random: Rc::default(),
            cjson: Cjson::default(),
            protocol: Rc::new(Cell::new(Protocol::Resp2)),
        };
        let sandbox = sandbox::build(&lua, &shared)?;
        let fields = Fields::new(&lua)?;
        lua.gc_collect()?;
        lua.gc_stop();
        let base_bytes = lua.used_memory();
        Ok(Interpreter {
            lua,
            sandbox,
            shared,
            fields,
            compiled: HashMap::default(),
            compiled_bytes: 0,
            generation: 0,
            runs: 0,
            base_bytes,
            scratch: Vec::new(),
        })
    }

    pub(crate) fn bytes(&self) -> usize {
        self.lua.used_memory() + self.scratch.capacity()
    }

    /// Runs a script and appends its reply.
    pub(crate) fn run(
        &mut self,
        texts: &ScriptTexts,
        run: &ScriptRun<'_>,
        calls: &mut dyn Calls,
        reply: &mut Vec<u8>,
    ) -> ScriptEnd {
        let (function, is_read_only) = match self.function(texts, run.script) {
            Ok(found) => found,
            Err(Unready::Unknown) => return ScriptEnd::Unknown,
            Err(Unready::Refused(error)) => {
                return fail(run.protocol, reply, &error.to_string());
            }
            Err(Unready::Memory) => {
                let text = Stop::Memory.text(&self.shared.meter);
                self.rebuild();
                return fail(run.protocol, reply, &text);
            }
        };
        if is_read_only {
            calls.declare_read_only();
        }
        let outcome = self.execute(&function, run, calls);
        drop(function);
        let end = self.finish(run, outcome, reply);
        run.spent.set(self.shared.meter.spent());
        self.tidy();
        end
    }

    /// Runs the function: whether it returned, and the value or the error.
    fn execute(
        &mut self,
        function: &Function,
        run: &ScriptRun<'_>,
        calls: &mut dyn Calls,
    ) -> mlua::Result<(bool, Value)> {
        let Shared {
            meter,
            random,
            cjson,
            protocol,
        } = &self.shared;
        meter.begin(&self.lua, run.spent.get())?;
        random.seed(run.seed);
        cjson.reset();
        protocol.set(Protocol::Resp2);
        let keys = list(&self.lua, meter, run.keys)?;
        let arguments = list(&self.lua, meter, run.arguments)?;
        let mut dispatcher = Dispatcher {
            calls,
            meter,
            protocol,
            reply: &mut self.scratch,
        };
        let outcome = self.lua.scope(|scope| {
            let body = |lua: &mlua::Lua, values: MultiValue| dispatcher.dispatch(lua, values);
            // With a limit each value would be made by a call that catches the lack of memory.
            let call = scope.create_function_mut(body)?;
            self.lua.set_memory_limit(meter.limits.memory_bytes_max)?;
            self.sandbox.run.call((function, call, keys, arguments))
        });
        self.lua.set_memory_limit(0)?;
        outcome
    }

    /// Writes the reply.
    fn finish(
        &self,
        run: &ScriptRun<'_>,
        outcome: mlua::Result<(bool, Value)>,
        reply: &mut Vec<u8>,
    ) -> ScriptEnd {
        let meter = &self.shared.meter;
        let start = reply.len();
        let text = match outcome {
            _ if meter.stopped().is_some() => None,
            Ok((true, value)) => {
                let mut writer = ReplyWriter {
                    fields: &self.fields,
                    meter,
                    protocol: run.protocol,
                    script_protocol: self.shared.protocol.get(),
                    out: reply,
                    out_max: start.saturating_add(run.reply_bytes_max),
                    reply_bytes_max: run.reply_bytes_max,
                };
                match writer.value(&value, 0) {
                    Ok(()) if reply.len() - start <= run.reply_bytes_max => {
                        return ScriptEnd::Answered;
                    }
                    Ok(()) => {
                        let bytes_max = run.reply_bytes_max;
                        let _ = meter.stop(Stop::Reply { bytes_max });
                        None
                    }
                    Err(Unwritten::Error(text)) => Some(text.into_bytes()),
                    Err(Unwritten::Stopped) => None,
                }
            }
            Ok((false, error)) => self.error_text(error),
            Err(error) => self.error_text(Value::Error(Box::new(error))),
        };
        reply.truncate(start);
        match (text, meter.stopped()) {
            (_, Some(Stop::Missing)) => ScriptEnd::Stopped,
            (_, Some(stop)) => fail(run.protocol, reply, &stop.text(meter)),
            (text, None) => {
                let mut text = text.unwrap_or_else(|| Vec::from(b"ERR unknown error"));
                text.truncate(ERROR_BYTES_MAX);
                Replies::new(reply, run.protocol).error(&text);
                ScriptEnd::Failed
            }
        }
    }

    /// The error reply for what a script raised; nothing if the run was stopped.
    fn error_text(&self, error: Value) -> Option<Vec<u8>> {
        let meter = &self.shared.meter;
        let with_code = |text: &[u8]| [b"ERR ", text].concat();
        let mut text = match error {
            Value::Error(error) => match plain(*error) {
                Plain::Memory => {
                    let _ = meter.stop(Stop::Memory);
                    return None;
                }
                Plain::Stop => return None,
                Plain::Reply(text) => text,
                Plain::Text(text) => with_code(&text),
            },
            Value::String(text) if &*text.as_bytes() == b"not enough memory" => {
                let _ = meter.stop(Stop::Memory);
                return None;
            }
            Value::String(text) => with_code(without_our_position(&text.as_bytes())),
            Value::Table(table) => match self.fields.error_of(&table) {
                Some(text) => text,
                None => with_code(b"unknown error"),
            },
            Value::Nil => with_code(b"nil"),
            Value::LightUserData(_) => with_code(b"userdata: (nil)"),
            Value::Boolean(value) => with_code(value.to_string().as_bytes()),
            Value::Integer(number) => with_code(number.to_string().as_bytes()),
            Value::Number(number) => with_code(numbers::text_of(number).as_bytes()),
            _ => with_code(b"unknown error"),
        };
        if let Some(place) = meter.blame.borrow().as_ref() {
            text.extend_from_slice(b" script: on ");
            text.extend_from_slice(place.as_bytes());
            text.push(b'.');
        }
        Some(text)
    }

    /// The compiled script, and whether it has the flag `no-writes`.
    fn function(
        &mut self,
        texts: &ScriptTexts,
        script: Script<'_>,
    ) -> Result<(Function, bool), Unready> {
        self.runs += 1;
        let generation = texts.generation();
        if generation != self.generation {
            self.generation = generation;
            self.compiled.clear();
            self.compiled_bytes = 0;
        }
        let digest = match script {
            Script::Text(text) => texts::digest(text),
            Script::Digest(digest) => digest,
        };
        if let Some(compiled) = self.compiled.get_mut(&digest) {
            compiled.used = self.runs;
            return Ok((compiled.function.clone(), compiled.is_read_only));
        }
        match script {
            Script::Text(text) => {
                let ready = self.compile(digest, text)?;
                texts.publish(digest, text);
                Ok(ready)
            }
            Script::Digest(digest) => {
                let text = texts.get(&digest).ok_or(Unready::Unknown)?;
                self.compile(digest, &text)
            }
        }
    }

    fn compile(&mut self, digest: [u8; 20], text: &[u8]) -> Result<(Function, bool), Unready> {
        let body = texts::check_form(text).map_err(Unready::Refused)?;
        let limit = self.shared.meter.limits.memory_bytes_max;
        let bytes_before = self.lua.used_memory();
        self.lua
            .set_memory_limit(limit)
            .map_err(|_| Unready::Memory)?;
        let environment: &Table = &self.sandbox.environment;
        let compiled = sandbox::compile(&self.lua, body.text, SCRIPT_NAME, environment);
        self.lua.set_memory_limit(0).map_err(|_| Unready::Memory)?;
        let function = compiled.map_err(|error| match plain(error.clone()) {
            Plain::Memory => Unready::Memory,
            _ => Unready::Refused(LoadError::Syntax(texts::reason(error))),
        })?;
        let bytes = self.lua.used_memory().saturating_sub(bytes_before);
        self.make_room(bytes);
        let ready = (function.clone(), body.is_read_only);
        self.compiled_bytes += bytes;
        let compiled = Compiled {
            function,
            is_read_only: body.is_read_only,
            bytes,
            used: self.runs,
        };
        self.compiled.insert(digest, compiled);
        Ok(ready)
    }

    /// Drops the scripts that were not used for the longest time.
    fn make_room(&mut self, bytes: usize) {
        let bytes_max = self.shared.meter.limits.memory_bytes_max / COMPILED_SHARE;
        while self.compiled.len() >= COMPILED_MAX
            || (!self.compiled.is_empty() && self.compiled_bytes + bytes > bytes_max)
        {
            let oldest = self
                .compiled
                .iter()
                .min_by_key(|(_, compiled)| compiled.used);
            let digest = *oldest.expect("it is not empty").0;
            let dropped = self.compiled.remove(&digest).expect("it is there");
            self.compiled_bytes -= dropped.bytes;
        }
    }

    /// After a run: an interpreter that met its limit is built anew, garbage goes.
    fn tidy(&mut self) {
        let limit = self.shared.meter.limits.memory_bytes_max;
        if self.shared.meter.stopped() == Some(Stop::Memory) {
            return self.rebuild();
        }
        if self.scratch.capacity() > SCRATCH_BYTES_MAX {
            self.scratch = Vec::new();
        }
        if self.lua.used_memory() <= self.base_bytes + GARBAGE_BYTES_MAX {
            return;
        }
        let collected = self.lua.gc_collect();
        self.lua.gc_stop();
        self.base_bytes = self.lua.used_memory();
        if collected.is_err() || self.base_bytes > limit / 2 {
            self.rebuild();
        }
    }

    /// Begins with a fresh interpreter. The texts of scripts are elsewhere.
    fn rebuild(&mut self) {
        *self = Interpreter::new(self.shared.meter.limits);
    }
}

/// Words that become a list in one go. The clock is read while more are made.
const FEW_WORDS_MAX: usize = 256;

/// KEYS or ARGV. Limits of memory are looked at here, because none is set.
fn list(lua: &mlua::Lua, meter: &Meter, items: &[&[u8]]) -> mlua::Result<Table> {
    let bytes: usize = items.iter().map(|item| item.len() + STRING_BYTES).sum();
    meter.charge_bytes(bytes)?;
    meter.check_room(lua, bytes)?;
    items.iter().try_for_each(|item| meter.note(lua, item))?;
    if items.len() <= FEW_WORDS_MAX {
        // Text goes into the table as it is, other bytes by a reference.
        let words = items.iter().map(|item| match std::str::from_utf8(item) {
            Ok(text) => Either::Left(text),
            Err(_) => Either::Right(LuaString::wrap(*item)),
        });
        return lua.create_sequence_from(words);
    }
    let table = lua.create_table_with_capacity(items.len(), 0)?;
    for item in items {
        meter.charge(1)?;
        table.raw_push(LuaString::wrap(*item))?;
    }
    Ok(table)
}

/// An error of the virtual machine within the prelude has its position.
fn without_our_position(text: &[u8]) -> &[u8] {
    let rest = text.strip_prefix(b"(penstock):").unwrap_or(text);
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    match rest[digits..].strip_prefix(b": ") {
        Some(message) if rest.len() < text.len() => message,
        _ => text,
    }
}

fn fail(protocol: Protocol, reply: &mut Vec<u8>, text: &str) -> ScriptEnd {
    Replies::new(reply, protocol).error(text.as_bytes());
    ScriptEnd::Failed
}
