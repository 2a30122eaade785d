//! What `pcall` and its like give a script.

use mlua::{Lua, Value};

use crate::budget::{Meter, Stop};
use crate::failure::{Failure, Plain, error_table, plain};

/// What a script gets of an error that it has caught: a string or a table for errors of ours, any
/// other value as it is. Fails if the run is to end.
pub(crate) fn caught(lua: &Lua, meter: &Meter, error: Value) -> mlua::Result<Value> {
    if meter.stopped().is_some() {
        return Err(Failure::Stop.into());
    }
    match error {
        Value::Error(error) => match plain(*error) {
            Plain::Memory => Err(meter.stop(Stop::Memory)),
            Plain::Stop => Err(meter.stop(Stop::Missing)),
            Plain::Text(text) => lua.create_string(text).map(Value::String),
            Plain::Reply(text) => error_table(lua, &text).map(Value::Table),
        },
        Value::String(text) if &*text.as_bytes() == b"not enough memory" => {
            Err(meter.stop(Stop::Memory))
        }
        error => Ok(error),
    }
}
