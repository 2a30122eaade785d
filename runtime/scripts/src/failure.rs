//! How functions in Rust raise errors, and what a script or a client gets of them.

use std::fmt;

use mlua::Lua;

/// The name of the chunk that is ours. Positions in it are never shown.
pub(crate) const PRELUDE_NAME: &str = "=(penstock)";
/// Frames that are searched for the one of the script.
const FRAMES_MAX: usize = 12;

/// An error of a function in Rust. A script sees it as a string or a table, never as such.
#[derive(Debug)]
pub(crate) enum Failure {
    /// A string, as functions of Lua raise it, with its position in front.
    Text(Vec<u8>),
    /// The same before its position is known: [`placed`] adds it.
    Unplaced(String),
    /// An argument that does not fit, numbered from 0.
    Argument { index: usize, text: String },
    /// The error reply of a command: a table with a field `err`.
    Reply(Vec<u8>),
    /// The run ends. No function of a script can catch it.
    Stop,
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Text(text) | Failure::Reply(text) => {
                write!(out, "{}", String::from_utf8_lossy(text))
            }
            Failure::Unplaced(text) | Failure::Argument { text, .. } => write!(out, "{text}"),
            Failure::Stop => write!(out, "the run ends"),
        }
    }
}

impl std::error::Error for Failure {}

impl From<Failure> for mlua::Error {
    fn from(failure: Failure) -> Self {
        mlua::Error::external(failure)
    }
}

/// An error with the position of the script in front, as functions of Lua raise it.
pub(crate) fn raise(lua: &Lua, text: &str) -> mlua::Error {
    let mut message = position(lua).unwrap_or_default().into_bytes();
    message.extend_from_slice(text.as_bytes());
    Failure::Text(message).into()
}

/// Adds what only the function that was called knows: the position of its caller, and the name that
/// it was called by. `name` is the one that it has in its library.
pub(crate) fn placed(lua: &Lua, name: &str, error: mlua::Error) -> mlua::Error {
    match error.downcast_ref::<Failure>() {
        Some(Failure::Unplaced(text)) => raise(lua, text),
        Some(Failure::Argument { index, text }) => {
            raise(lua, &argument_text(lua, name, *index, text))
        }
        _ => error,
    }
}

fn argument_text(lua: &Lua, own_name: &str, index: usize, text: &str) -> String {
    let is_ours = lua
        .inspect_stack(1, |debug| {
            debug.source().source.as_deref() == Some(PRELUDE_NAME)
        })
        .unwrap_or(false);
    // A function that ours calls at once is called as ours is.
    let called = lua.inspect_stack(usize::from(is_ours), |debug| {
        let names = debug.names();
        let name = names.name.map(|name| name.into_owned());
        (name, names.name_what == Some("method"))
    });
    let (name, is_method) = called.unwrap_or_default();
    let default = if is_ours { own_name } else { "?" };
    let name = name.as_deref().unwrap_or(default);
    match (is_method, index) {
        (true, 0) => format!("calling '{name}' on bad self ({text})"),
        (true, index) => format!("bad argument #{index} to '{name}' ({text})"),
        (false, index) => format!("bad argument #{} to '{name}' ({text})", index + 1),
    }
}

/// The position of the function that called the one that runs: `user_script:1: `. Nothing if a
/// function in C did.
fn position(lua: &Lua) -> Option<String> {
    for level in 1..FRAMES_MAX {
        let found = lua.inspect_stack(level, |debug| {
            let source = debug.source();
            let is_ours = source.source.as_deref() == Some(PRELUDE_NAME);
            let is_skipped = is_ours || source.what == "tail";
            let line = debug.current_line();
            let place = line.zip(source.short_src.as_deref());
            let text = place.map(|(line, name)| format!("{name}:{line}: "));
            (is_skipped, text)
        })?;
        match found {
            (true, _) => (),
            (false, text) => return text,
        }
    }
    None
}

/// The frame of the script that an error comes from: `@user_script:1`.
pub(crate) fn blame(lua: &Lua) -> Option<String> {
    for level in 1..FRAMES_MAX {
        let found = lua.inspect_stack(level, |debug| {
            let source = debug.source();
            let is_of_script = matches!(source.what, "Lua" | "main")
                && source.source.as_deref() != Some(PRELUDE_NAME);
            let place = debug.current_line().zip(source.source.as_deref());
            let text = place.map(|(line, name)| format!("{name}:{line}"));
            text.filter(|_| is_of_script)
        })?;
        if found.is_some() {
            return found;
        }
    }
    None
}

/// An error of the interpreter without its wrappings.
pub(crate) enum Plain {
    Memory,
    Stop,
    Text(Vec<u8>),
    Reply(Vec<u8>),
}

/// Takes the wrappings off.
pub(crate) fn plain(error: mlua::Error) -> Plain {
    if let Some(failure) = error.downcast_ref::<Failure>() {
        return match failure {
            Failure::Text(text) => Plain::Text(text.clone()),
            Failure::Unplaced(text) | Failure::Argument { text, .. } => {
                Plain::Text(text.clone().into_bytes())
            }
            Failure::Reply(text) => Plain::Reply(text.clone()),
            Failure::Stop => Plain::Stop,
        };
    }
    match error {
        mlua::Error::MemoryError(_) => Plain::Memory,
        mlua::Error::CallbackError { cause, .. } => plain((*cause).clone()),
        mlua::Error::RuntimeError(text) => match text.starts_with("not enough memory") {
            true => Plain::Memory,
            false => Plain::Text(text.into_bytes()),
        },
        error => Plain::Text(error.to_string().into_bytes()),
    }
}

/// `{err = text}`.
pub(crate) fn error_table(lua: &Lua, text: &[u8]) -> mlua::Result<mlua::Table> {
    let table = lua.create_table()?;
    table.raw_set("err", lua.create_string(text)?)?;
    table.raw_set("ignore_error_stats_update", true)?;
    Ok(table)
}
