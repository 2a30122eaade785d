//! The partitions of a shard, with what each step of work on them needs.

use crate::replication::receiver::Partitions;

use super::effects::Effects;
use super::prefetch::Prefetch;

/// Partitions, cold keys that are read for them, and what the owner is to do.
#[derive(Debug)]
pub(super) struct Replicas<B> {
    pub(super) partitions: Partitions,
    pub(super) prefetch: Prefetch<B>,
    pub(super) effects: Effects,
}
