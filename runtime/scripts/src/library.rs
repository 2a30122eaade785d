//! What all libraries are made of: functions with a budget, and strings for the script.

use std::rc::Rc;

use mlua::{Function, IntoLuaMulti, Lua, MultiValue, Result, Value};

use crate::arguments::Arguments;
use crate::budget::Meter;
use crate::failure::{Failure, placed};

/// Values that a function returns, at most: what the stack of a C function has room for.
pub(crate) const RESULTS_MAX: usize = 7_000;

/// Arguments of a function, at most: of more, the interpreter gives others than the script has.
const ARGUMENTS_MAX: usize = 8_000;

/// A function of a library.
pub(crate) fn function<R: IntoLuaMulti + 'static>(
    lua: &Lua,
    name: &'static str,
    meter: &Rc<Meter>,
    body: fn(&Arguments<'_>, &Meter) -> Result<R>,
) -> Result<Function> {
    let meter = Rc::clone(meter);
    lua.create_function(move |lua, values: MultiValue| {
        if values.len() > ARGUMENTS_MAX {
            let text = format!("{} arguments, {ARGUMENTS_MAX} is the limit", values.len());
            return Err(placed(lua, name, Failure::Unplaced(text).into()));
        }
        body(&Arguments::new(lua, values), &meter).map_err(|error| placed(lua, name, error))
    })
}

/// A string for the script.
pub(crate) fn text(lua: &Lua, meter: &Meter, bytes: &[u8]) -> Result<Value> {
    meter.charge_bytes(bytes.len())?;
    meter.check_room(lua, bytes.len())?;
    meter.note(bytes);
    lua.create_string(bytes).map(Value::String)
}
