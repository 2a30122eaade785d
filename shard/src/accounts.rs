//! What a shard counts and times: answers, waits, the stages of operations.

pub mod answers;
pub(crate) mod busy;
pub(crate) mod counted;
pub mod counters;
pub mod stages;
pub(crate) mod stats;
