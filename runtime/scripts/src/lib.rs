//! Runs the Lua 5.1 scripts of Redis clients for a shard.
//!
//! [`Lua`] implements [`penstock_shard::scripts::Scripts`]: one interpreter per core, with its
//! compiled scripts. [`ScriptTexts`] holds the texts of a node, which the cores share. `DESIGN.md`
//! describes the life of a script and lists the bounds.
//!
//! It promises: the same run with the same answers of its calls has the same calls and the same
//! reply in every process; a run ends within [`ScriptLimits`], whatever the script does; one run
//! leaves nothing that another one could see; no function that is written in Rust calls a script.
//!
//! It does not know: clocks, files, sockets, keys, values, rights, what a command does.
#![forbid(unsafe_code)]

mod answers;
mod arguments;
mod bits;
mod budget;
mod catching;
mod cjson;
mod cmsgpack;
mod commands;
mod failure;
mod formats;
mod interpreter;
mod jumps;
mod known;
mod library;
mod lua;
mod numbers;
mod pattern;
mod random;
mod sandbox;
mod shebang;
mod strings;
mod structs;
mod texts;
mod values;

pub use budget::{Patience, ScriptLimits};
pub use lua::Lua;
pub use texts::{
    ENTRY_BYTES, EVALUATED_MAX, LoadError, SCRIPT_BYTES_MAX, SCRIPTS_BYTES_MAX, ScriptTexts, digest,
};
