//! The keys of a shard in memory: the index of all of them, cells with the values of some, and what
//! both may take. The layer uses small types and formats, and does not know how a log is written.

pub mod budget;
pub mod cache;
pub(crate) mod cell_room;
pub(crate) mod generation;
pub mod index;
pub(crate) mod keys;
pub(crate) mod pinned;
pub mod timers;
