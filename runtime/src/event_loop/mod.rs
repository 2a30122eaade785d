//! What a thread that runs a shard does in each turn, whoever owns the thread.

pub(crate) mod engine;
pub(crate) mod spin;
