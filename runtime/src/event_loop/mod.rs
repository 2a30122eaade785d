//! What a thread that runs a shard does in each turn: a core of the server, or an embedded thread.

mod contention;
pub(crate) mod engine;
mod fill_notice;
mod news;
pub(crate) mod publisher;
pub(crate) mod shard_thread;
mod shell;
pub(crate) mod spin;
pub(crate) mod supply;
