//! Keys with members: what stands in their values, and the commands of each type.
//!
//! ```text
//! value of a key with members:  head of 8 bytes | entry | entry ...
//! ```
//!
//! A type has two files here, or more: its value as a codec that knows no commands, and its
//! commands, which read their arguments and edit such values. What the server keeps and ships of a value is the
//! head alone (`storage/FORMAT.md`, *Heads*).

pub(super) mod hash;
pub(super) mod hash_commands;
pub(super) mod head;
mod score;
mod strings;
mod zset;
mod zset_commands;
mod zset_range;
mod zset_several;

pub(super) use hash_commands::HashAsk;
pub(super) use head::MemberType;
pub(super) use zset_commands::ZsetAsk;
