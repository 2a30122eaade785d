//! What a shard counts.

use crate::accounts::answers::{Answers, Statuses};
use crate::cluster::LeaseCounters;
use crate::firing::FiringCounters;
use crate::logins::LoginCounters;
use crate::replication::link_set::{LinkCounters, LinkMemory};

/// Counters of a shard's replication since its start, and the memory of its links.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplicationCounters {
    /// Counters of the links.
    pub links: LinkCounters,
    /// Memory of the links.
    pub memory: LinkMemory,
    /// What was counted of leases.
    pub leases: LeaseCounters,
    /// Replies at level `replica` that were kept until members have what they tell.
    pub waits: u64,
    /// The same of any lower level: none, or it is a bug.
    pub waits_below: u64,
    /// Replies that were answered NOREPLICAS instead.
    pub missed: u64,
    /// Replies at level `all` that reached `disk`, because no other node may write next.
    pub all_is_disk: u64,
    /// Reads of partitions that other nodes write that were answered here.
    pub member_reads: u64,
    /// The same that were refused, because what is here is too old or lacks the version.
    pub member_stale: u64,
    /// Replies that wait now.
    pub waiting: u64,
    /// How long one of them has waited, at most, in microseconds.
    pub waiting_us: u64,
}

/// What a shard did since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Items answered here, by kind and status.
    pub answers: Answers,
    /// Error frames, by status: what was no request, or none that this server takes.
    pub frames_refused: Statuses,
    /// Items of batches and mail that were answered at once: no read was needed.
    pub at_once: u64,
    /// Writes that were answered as the first time, because their token was known.
    pub tokens_replayed: u64,
    /// Items of batches that were answered together with the item before them, whose operation and
    /// key they have.
    pub in_runs: u64,
    /// GETs of batches that were answered from their cells alone.
    pub direct_gets: u64,
    /// SETs of batches that needed their cells and the open frame of the log alone.
    pub direct_sets: u64,
    /// Changes of keyspaces that this shard decided.
    pub keyspace_changes: u64,
    /// PING frames.
    pub pings: u64,
    /// Frames and items that were refused.
    pub refused: u64,
    /// Operations of frames that were answered BUSY before they ran, because the core had more to
    /// do than it could.
    pub shed_for_core: u64,
    /// The same because more waited for the disk than it could write soon.
    pub shed_for_disk: u64,
    /// Items sent to another shard.
    pub forwarded: u64,
    /// Items executed for another shard.
    pub executed_for_others: u64,
    /// Items that waited for a read.
    pub parked: u64,
    /// Reads emitted.
    pub reads: u64,
    /// Bytes of those reads.
    pub read_bytes: u64,
    /// Reads that failed, or brought what was not written, and were done again block by block.
    pub reads_retried: u64,
    /// Keys that were looked for in a read that another key had begun.
    pub reads_coalesced: u64,
    /// Places of the log that requests were answered CORRUPT or IO for, each once.
    pub bad_places: u64,
    /// What became of armed keys.
    pub firing: FiringCounters,
    /// What became of logins.
    pub logins: LoginCounters,
    /// Connections opened.
    pub sessions_opened: u64,
    /// Connections open now.
    pub sessions: u64,
    /// Times that reading from a connection was paused.
    pub pauses: u64,
}
