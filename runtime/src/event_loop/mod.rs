//! What a thread that runs a shard does in each turn, whoever owns the thread.

pub(crate) mod engine;
mod news;
pub(crate) mod publisher;
pub(crate) mod spin;
pub(crate) mod supply;
