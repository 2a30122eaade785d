//! Keys with members: what stands in their values, and the commands of each type.
//!
//! ```text
//! value of a key with members:  head of 8 bytes | entry | entry ...
//! ```
//!
//! A type has some files here: its value as a codec that knows no commands, its commands as they
//! are read from their arguments, and what they do to such values. What the server keeps and ships
//! of a value is the head alone (`storage/FORMAT.md`, *Heads*).

mod chance;
#[cfg(test)]
mod codec_tests;
pub(super) mod hash;
pub(super) mod hash_ask;
pub(super) mod hash_commands;
pub(super) mod head;
pub(super) mod key_type;
mod list;
pub(super) mod list_ask;
mod list_commands;
mod page;
mod score;
mod set;
pub(super) mod set_ask;
mod set_commands;
mod set_several;
mod strings;
mod zset;
pub(super) mod zset_ask;
mod zset_commands;
mod zset_range;
mod zset_several;
mod zsets_ask;
