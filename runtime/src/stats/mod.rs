//! What the cores did: each core writes its own block of numbers, anybody reads them. INFO and `/metrics`
//! tell the same numbers, from the one table below.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use penstock_net::link::{Membership, RefusalCode};
use penstock_net::status::Status;
use penstock_shard::answers::Asked;
use penstock_shard::linked::{PartitionRole, PartitionStatus, ReplicationStatus};
use penstock_shard::replication::{Duty, LinkState, PeerStatus};
use penstock_shard::stages::Stages;
use penstock_shard::{Counters, KeyTableCounters, ReplicationCounters, SnapshotCounters};
use penstock_storage::cleaning::CleaningCounters;
use penstock_storage::histogram::{BUCKETS, Histogram, quantile};
use penstock_storage::log::LogCounters;
use penstock_storage::pace::PaceCounters;
use penstock_storage::scrub::ScrubCounters;
use penstock_storage::store::Usage;

use crate::disk::DiskCounters;

/// One core's numbers at a moment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sample {
    pub(crate) shard: Counters,
    pub(crate) log: LogCounters,
    pub(crate) cleaning: CleaningCounters,
    pub(crate) pace: PaceCounters,
    pub(crate) disk: DiskCounters,
    pub(crate) usage: Usage,
    pub(crate) inherited_bytes: u64,
    pub(crate) scrub: ScrubCounters,
    pub(crate) snapshots: SnapshotCounters,
    pub(crate) key_tables: KeyTableCounters,
    pub(crate) replication: ReplicationCounters,
    pub(crate) turns: u64,
    pub(crate) received_bytes: u64,
    pub(crate) sent_bytes: u64,
    pub(crate) connections_refused: u64,
    pub(crate) segments_held: u64,
    pub(crate) is_disk_full: bool,
    pub(crate) has_no_descriptor: bool,
    pub(crate) has_no_segment_file: bool,
    pub(crate) is_log_full: bool,
    pub(crate) is_memory_full: bool,
    /// [`Store::visible_keys`](penstock_storage::store::Store::visible_keys).
    pub(crate) visible_keys: u64,
}

/// Whether a number only grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Growth {
    Counter,
    Gauge,
}

/// One number of a core.
pub(crate) struct Figure {
    /// What INFO calls it.
    pub(crate) name: &'static str,
    /// Its family in `/metrics` and what it means; counters without the `_total`. INFO alone tells what
    /// has none: sums of what `/metrics` tells apart.
    pub(crate) metric: Option<(&'static str, &'static str)>,
    pub(crate) growth: Growth,
    /// What one of it is in `/metrics`: of microseconds, a part of a second.
    pub(crate) unit: f64,
    read: fn(&Sample) -> u64,
}

/// What a microsecond is of the seconds in which `/metrics` tells times.
pub(crate) const SECOND_IN_US: f64 = 1e-6;

const fn counter(
    name: &'static str,
    metric: &'static str,
    help: &'static str,
    read: fn(&Sample) -> u64,
) -> Figure {
    Figure {
        name,
        metric: Some((metric, help)),
        growth: Growth::Counter,
        unit: 1.0,
        read,
    }
}

const fn gauge(
    name: &'static str,
    metric: &'static str,
    help: &'static str,
    read: fn(&Sample) -> u64,
) -> Figure {
    Figure {
        name,
        metric: Some((metric, help)),
        growth: Growth::Gauge,
        unit: 1.0,
        read,
    }
}

/// A time in microseconds.
const fn time(
    name: &'static str,
    metric: &'static str,
    help: &'static str,
    read: fn(&Sample) -> u64,
) -> Figure {
    Figure {
        unit: SECOND_IN_US,
        ..gauge(name, metric, help, read)
    }
}

const fn sum(name: &'static str, read: fn(&Sample) -> u64) -> Figure {
    Figure {
        name,
        metric: None,
        growth: Growth::Counter,
        unit: 1.0,
        read,
    }
}

/// Every number once, in the order in which INFO shows them.
pub(crate) const FIGURES: &[Figure] = &[
    sum("ops", |it| {
        let answers = &it.shard.answers;
        answers.total() - answers.of(Asked::Scan).all() - answers.of(Asked::Unreadable).all()
    }),
    sum("gets", |it| it.shard.answers.of(Asked::Get).all()),
    sum("sets", |it| it.shard.answers.of(Asked::Set).all()),
    sum("dels", |it| it.shard.answers.of(Asked::Del).all()),
    sum("updates", |it| it.shard.answers.of(Asked::UpdateIf).all()),
    sum("scans", |it| it.shard.answers.of(Asked::Scan).all()),
    sum("gets_past", |it| {
        let answers = &it.shard.answers;
        answers.of(Asked::GetAt).all() + answers.of(Asked::History).all()
    }),
    counter(
        "keyspace_changes",
        "penstock_keyspace_changes",
        "Changes of keyspaces that were decided.",
        |it| it.shard.keyspace_changes,
    ),
    sum("guards_failed", |it| it.shard.answers.failed()),
    counter("pings", "penstock_pings", "PING frames.", |it| {
        it.shard.pings
    }),
    sum("refused", |it| it.shard.refused),
    counter(
        "forwarded",
        "penstock_forwarded_operations",
        "Operations sent on to the shard that owns their slot.",
        |it| it.shard.forwarded,
    ),
    counter(
        "executed_for_others",
        "penstock_executed_for_other_shards",
        "Operations executed for a connection of another shard.",
        |it| it.shard.executed_for_others,
    ),
    counter(
        "at_once",
        "penstock_cache_hits",
        "Operations answered from memory, those on absent keys and refused ones included.",
        |it| it.shard.at_once,
    ),
    counter(
        "parked",
        "penstock_cache_misses",
        "Times that an operation waited for a read of the disk.",
        |it| it.shard.parked,
    ),
    counter(
        "reads",
        "penstock_cold_reads",
        "Reads of values from the disk.",
        |it| it.shard.reads,
    ),
    counter(
        "read_bytes",
        "penstock_cold_read_bytes",
        "Bytes of those reads.",
        |it| it.shard.read_bytes,
    ),
    counter(
        "reads_retried",
        "penstock_cold_reads_retried",
        "Reads that failed or brought what was not written, and were done again.",
        |it| it.shard.reads_retried,
    ),
    counter(
        "reads_coalesced",
        "penstock_cold_reads_coalesced",
        "Keys that were found in a read that another key had begun.",
        |it| it.shard.reads_coalesced,
    ),
    counter(
        "bad_places",
        "penstock_bad_places",
        "Places of the log that requests were answered CORRUPT or IO for, each counted once.",
        |it| it.shard.bad_places,
    ),
    counter(
        "connections_opened",
        "penstock_connections_opened",
        "Connections accepted.",
        |it| it.shard.sessions_opened,
    ),
    counter(
        "connections_refused",
        "penstock_connections_refused",
        "Connections closed at once, because connections_max were open.",
        |it| it.connections_refused,
    ),
    gauge(
        "connections",
        "penstock_connections",
        "Connections open now.",
        |it| it.shard.sessions,
    ),
    counter(
        "pauses",
        "penstock_connection_pauses",
        "Times that reading from a connection was paused.",
        |it| it.shard.pauses,
    ),
    counter(
        "records",
        "penstock_log_records",
        "Records appended to the log, copies by cleaning included.",
        |it| it.log.records,
    ),
    counter(
        "record_bytes",
        "penstock_log_record_bytes",
        "Bytes of those records.",
        |it| it.log.record_bytes,
    ),
    counter(
        "frames",
        "penstock_log_frames",
        "Frames of records sealed.",
        |it| it.log.frames,
    ),
    counter(
        "flushes",
        "penstock_log_flushes",
        "Durable writes and syncs asked of the device.",
        |it| it.log.flushes,
    ),
    counter(
        "device_bytes",
        "penstock_log_written_bytes",
        "Bytes that the log gave to the device.",
        |it| it.log.device_bytes,
    ),
    counter(
        "padding_bytes",
        "penstock_log_padding_bytes",
        "Bytes of those that only fill frames up to the block size.",
        |it| it.log.padding_bytes,
    ),
    counter("marks", "penstock_log_marks", "Mark frames.", |it| {
        it.log.marks
    }),
    counter(
        "segments",
        "penstock_log_segments_begun",
        "Segments taken into use.",
        |it| it.log.segments,
    ),
    gauge(
        "segments_held",
        "penstock_log_segments",
        "Segments of the log now.",
        |it| it.segments_held,
    ),
    counter(
        "commit_bytes",
        "penstock_log_commit_bytes",
        "Bytes of the frames that hold a commit, as the device sees them.",
        |it| it.log.commit_bytes,
    ),
    counter(
        "moved_records",
        "penstock_cleaning_moved_records",
        "Records that cleaning copied.",
        |it| it.log.moved_records,
    ),
    counter(
        "moved_bytes",
        "penstock_cleaning_moved_bytes",
        "Bytes of those.",
        |it| it.log.moved_bytes,
    ),
    counter(
        "segments_released",
        "penstock_cleaning_segments_released",
        "Segments that cleaning gave back.",
        |it| it.log.released,
    ),
    counter(
        "writes_paced",
        "penstock_writes_paced",
        "Times that writes began to wait for cleaning, because no more segments can be made: they are held back before any is refused.",
        |it| it.pace.waits,
    ),
    counter(
        "writes_paced_us",
        "penstock_writes_paced_microseconds",
        "Microseconds in which writes waited for cleaning; reads and deletions never do.",
        |it| it.pace.waited_us,
    ),
    counter(
        "segments_released_unread",
        "penstock_cleaning_segments_released_unread",
        "Those of them in which nothing counted, so that they were not read.",
        |it| it.cleaning.unread,
    ),
    counter(
        "cleaning_reads",
        "penstock_cleaning_reads",
        "Reads by cleaning.",
        |it| it.cleaning.reads,
    ),
    counter(
        "cleaning_read_bytes",
        "penstock_cleaning_read_bytes",
        "Bytes of those.",
        |it| it.cleaning.read_bytes,
    ),
    counter(
        "segments_damaged",
        "penstock_cleaning_segments_damaged",
        "Segments that cannot be cleaned because something in them does not check.",
        |it| it.cleaning.damaged,
    ),
    counter(
        "storage_enters",
        "penstock_disk_submissions",
        "System calls that gave requests to the disk's ring; 0 with threads.",
        |it| it.disk.enters,
    ),
    counter(
        "storage_punted",
        "penstock_disk_punted",
        "Requests that the ring could not begin at once.",
        |it| it.disk.punted,
    ),
    counter(
        "storage_failures",
        "penstock_disk_failures",
        "Requests to the disk that failed.",
        |it| it.disk.failures,
    ),
    counter("turns", "penstock_turns", "Turns of the loop.", |it| {
        it.turns
    }),
    counter(
        "received_bytes",
        "penstock_received_bytes",
        "Bytes received from clients.",
        |it| it.received_bytes,
    ),
    counter(
        "sent_bytes",
        "penstock_sent_bytes",
        "Bytes sent to clients.",
        |it| it.sent_bytes,
    ),
    gauge(
        "keys",
        "penstock_keys",
        "Keys that readers find, fresh deletions included; some of those that have expired lately may be counted.",
        |it| it.visible_keys,
    ),
    gauge(
        "index_entries",
        "penstock_index_entries",
        "Keys in the index, those included that have expired and that cleaning takes out.",
        |it| it.usage.keys as u64,
    ),
    gauge(
        "cached_keys",
        "penstock_cached_keys",
        "Keys whose value is in memory.",
        |it| it.usage.cells as u64,
    ),
    gauge(
        "cache_bytes",
        "penstock_cache_bytes",
        "Bytes of the cached values and their keys.",
        |it| it.usage.cache_bytes as u64,
    ),
    gauge(
        "index_bytes",
        "penstock_index_bytes",
        "Bytes of the index.",
        |it| it.usage.index_bytes as u64,
    ),
    gauge(
        "memory_bytes",
        "penstock_memory_bytes",
        "Memory of index and values, unused room included.",
        |it| it.usage.memory_bytes as u64,
    ),
    gauge(
        "memory_bytes_max",
        "penstock_memory_limit_bytes",
        "Most that they may take now; 0 if nothing bounds them.",
        |it| it.usage.memory_bytes_max as u64,
    ),
    gauge(
        "keyspace_bytes",
        "penstock_keyspace_bytes",
        "Bytes of the settings of keyspaces.",
        |it| it.usage.keyspace_bytes as u64,
    ),
    gauge(
        "versions",
        "penstock_versions",
        "Versions known in keyspaces that keep them, the newest of each key included.",
        |it| it.usage.versions as u64,
    ),
    gauge(
        "version_bytes",
        "penstock_version_bytes",
        "Bytes of memory of the places of kept versions, about.",
        |it| it.usage.version_bytes as u64,
    ),
    counter(
        "scrubbed_bytes",
        "penstock_scrub_read_bytes",
        "Bytes of sealed segments looked through for damage.",
        |it| it.scrub.bytes,
    ),
    counter(
        "scrub_passes",
        "penstock_scrub_passes",
        "Times that all sealed segments were looked through.",
        |it| it.scrub.passes,
    ),
    counter(
        "scrub_damaged",
        "penstock_scrub_segments_damaged",
        "Segments found damaged by that, in each pass anew.",
        |it| it.scrub.damaged,
    ),
    counter(
        "snapshots",
        "penstock_snapshots",
        "Snapshots of the index finished.",
        |it| it.snapshots.snapshots,
    ),
    counter(
        "snapshots_void",
        "penstock_snapshots_void",
        "Snapshots of the index that could not be written.",
        |it| it.snapshots.snapshots_void,
    ),
    gauge(
        "snapshot_bytes",
        "penstock_snapshot_bytes",
        "Bytes of the last snapshot.",
        |it| it.snapshots.snapshot_bytes,
    ),
    counter(
        "scan_part_reads",
        "penstock_scan_part_reads",
        "Reads of cold keys for scans, each of one part.",
        |it| it.key_tables.part_reads,
    ),
    counter(
        "scan_table_reads",
        "penstock_scan_table_reads",
        "Reads of blocks of key tables for scans, each of many keys.",
        |it| it.key_tables.block_reads,
    ),
    gauge(
        "key_tables",
        "penstock_key_tables",
        "Sealed segments that have a key table; one that is inherited counts for each shard that reads it.",
        |it| it.key_tables.standing,
    ),
    gauge(
        "key_table_bytes",
        "penstock_key_table_bytes",
        "Bytes of the files of key tables, which count against disk_bytes_max; of inherited segments as key_tables.",
        |it| it.key_tables.file_bytes,
    ),
    counter(
        "key_tables_made",
        "penstock_key_tables_made",
        "Key tables made; of inherited segments as key_tables.",
        |it| it.key_tables.made,
    ),
    counter(
        "key_tables_refused",
        "penstock_key_tables_refused",
        "Key tables that were not made, for lack of room or because the system refused something.",
        |it| it.key_tables.refused,
    ),
    counter(
        "key_tables_void",
        "penstock_key_tables_void",
        "Key tables that turned out damaged or of another segment.",
        |it| it.key_tables.void,
    ),
    gauge(
        "inherited_bytes",
        "penstock_inherited_bytes",
        "Bytes in logs of an earlier number of shards that are not rewritten yet; each shard goes through all of them.",
        |it| it.inherited_bytes,
    ),
    gauge(
        "disk_full",
        "penstock_disk_full",
        "1 while what grows is answered FULL: more counts in the log than it can carry on the disk that it has.",
        |it| it.is_disk_full.into(),
    ),
    gauge(
        "no_file_descriptor",
        "penstock_no_file_descriptor",
        "1 while what grows is answered BUSY: no file descriptor is left for a segment file.",
        |it| it.has_no_descriptor.into(),
    ),
    gauge(
        "no_segment_file",
        "penstock_no_segment_file",
        "1 while what grows is answered BUSY: the system refuses a segment file for another reason, which the log tells.",
        |it| it.has_no_segment_file.into(),
    ),
    gauge(
        "log_full",
        "penstock_log_full",
        "1 while the log has as many segments as it may have.",
        |it| it.is_log_full.into(),
    ),
    gauge(
        "memory_full",
        "penstock_memory_full",
        "1 while the index has all memory that it may take: new keys are answered FULL.",
        |it| it.is_memory_full.into(),
    ),
    counter(
        "replica_waits",
        "penstock_replication_waits",
        "Replies at level replica that were kept until other nodes had told to have what they show.",
        |it| it.replication.waits,
    ),
    counter(
        "replica_waits_below",
        "penstock_replication_waits_below_replica",
        "Replies at any lower level that were kept for other nodes: none, or it is a bug.",
        |it| it.replication.waits_below,
    ),
    counter(
        "noreplicas",
        "penstock_replication_noreplicas",
        "Operations, reads among them, answered NOREPLICAS because not every node of the sync set has told in time to have what they tell. Those that were refused for an empty sync set are in penstock_operations_total.",
        |it| it.replication.missed,
    ),
    counter(
        "member_reads",
        "penstock_replication_member_reads",
        "Reads of partitions that other nodes write that were answered here.",
        |it| it.replication.member_reads,
    ),
    counter(
        "member_reads_stale",
        "penstock_replication_member_reads_stale",
        "Reads answered STALE: what is here was older than the read allows, or lacked the version.",
        |it| it.replication.member_stale,
    ),
    gauge(
        "replica_waiting",
        "penstock_replication_waiting_replies",
        "Replies at level replica that wait for other nodes now.",
        |it| it.replication.waiting,
    ),
    time(
        "replica_waiting_us",
        "penstock_replication_waiting_seconds",
        "How long the one of them waits that has waited longest; of several shards the sum.",
        |it| it.replication.waiting_us,
    ),
    counter(
        "applied",
        "penstock_replication_applied_records",
        "Records of other nodes that were applied here.",
        |it| it.replication.links.applied,
    ),
    counter(
        "rewritten",
        "penstock_replication_rewritten_keys",
        "Keys that were written anew for nodes which had diverged.",
        |it| it.replication.links.rewritten,
    ),
    counter(
        "found_full",
        "penstock_replication_found_full",
        "Turns in which what is shipped to this node found its log full, and was not applied.",
        |it| it.replication.links.found_full,
    ),
    counter(
        "swept",
        "penstock_replication_swept_keys",
        "Keys that were taken out because a scan of the primary did not bring them.",
        |it| it.replication.links.swept,
    ),
    counter(
        "tail_records",
        "penstock_replication_tail_records",
        "Records that this node had and its primary had not, written to lostfound; a tail that is looked for twice counts twice.",
        |it| it.replication.links.kept,
    ),
    counter(
        "tail_bytes",
        "penstock_replication_tail_bytes",
        "Bytes of those.",
        |it| it.replication.links.kept_bytes,
    ),
    counter(
        "tails_lost",
        "penstock_replication_tails_incomplete",
        "Partitions of which cleaning had released some of such records, so that all was asked for anew.",
        |it| it.replication.links.tails_lost,
    ),
    gauge(
        "ring_bytes",
        "penstock_replication_ring_bytes",
        "Memory of the newest records, kept for links.",
        |it| it.replication.memory.ring_bytes,
    ),
    gauge(
        "unapplied_bytes",
        "penstock_replication_unapplied_bytes",
        "Memory of records that were received and are not applied.",
        |it| it.replication.memory.received_bytes,
    ),
    gauge(
        "link_buffer_bytes",
        "penstock_replication_buffer_bytes",
        "Memory of what is to be sent by links, and of what has come and was not looked at.",
        |it| it.replication.memory.buffer_bytes,
    ),
];

/// A number of links, by node, as a shard knows it.
pub(crate) struct PeerFigure {
    /// What INFO calls it.
    pub(crate) name: &'static str,
    /// Its family in `/metrics` and what it means; counters without the `_total`.
    pub(crate) metric: (&'static str, &'static str),
    pub(crate) growth: Growth,
    pub(crate) unit: f64,
    /// Several shards together.
    fold: fn(u64, u64) -> u64,
    pub(crate) read: fn(&PeerStatus) -> Option<u64>,
}

const fn of_peer(
    name: &'static str,
    metric: (&'static str, &'static str),
    read: fn(&PeerStatus) -> Option<u64>,
) -> PeerFigure {
    PeerFigure {
        name,
        metric,
        growth: Growth::Gauge,
        unit: 1.0,
        fold: |one, other| one + other,
        read,
    }
}

const fn counted(
    name: &'static str,
    metric: (&'static str, &'static str),
    read: fn(&PeerStatus) -> Option<u64>,
) -> PeerFigure {
    PeerFigure {
        growth: Growth::Counter,
        ..of_peer(name, metric, read)
    }
}

/// A time in microseconds; of several shards the longest.
const fn longest(
    name: &'static str,
    metric: (&'static str, &'static str),
    read: fn(&PeerStatus) -> Option<u64>,
) -> PeerFigure {
    PeerFigure {
        unit: SECOND_IN_US,
        fold: |one, other| if one < other { other } else { one },
        ..of_peer(name, metric, read)
    }
}

/// Of milliseconds, if they are not negative.
fn microseconds(ms: i64) -> u64 {
    u64::try_from(ms).unwrap_or(0).saturating_mul(1_000)
}

/// Every number of the links with a node, in the order in which INFO shows them.
pub(crate) const PEER_FIGURES: &[PeerFigure] = &[
    of_peer(
        "partitions",
        (
            "penstock_replication_peer_partitions",
            "Partitions that are shipped to the node, or by it if its role is primary.",
        ),
        |it| Some(it.partitions),
    ),
    of_peer(
        "lag_records",
        (
            "penstock_replication_lag_records",
            "Records that the node has not told to have received: what its promotion would lose. Not told before it has said where it stands.",
        ),
        |it| Some(it.lag?.records),
    ),
    of_peer(
        "lag_bytes",
        (
            "penstock_replication_lag_bytes",
            "Bytes of the log behind the first of those, of what was appended since the start.",
        ),
        |it| Some(it.lag?.bytes),
    ),
    longest(
        "lag_us",
        (
            "penstock_replication_lag_seconds",
            "How long ago the first of those was appended; 0 without any.",
        ),
        |it| Some(it.lag?.us),
    ),
    of_peer(
        "durable_lag_records",
        (
            "penstock_replication_durable_lag_records",
            "Records that the node has not told to have on its disk.",
        ),
        |it| Some(it.durable_lag?.records),
    ),
    of_peer(
        "durable_lag_bytes",
        (
            "penstock_replication_durable_lag_bytes",
            "Bytes of the log behind the first of those.",
        ),
        |it| Some(it.durable_lag?.bytes),
    ),
    longest(
        "durable_lag_us",
        (
            "penstock_replication_durable_lag_seconds",
            "How long ago the first of those was appended; 0 without any.",
        ),
        |it| Some(it.durable_lag?.us),
    ),
    longest(
        "staleness_us",
        (
            "penstock_replication_staleness_seconds",
            "How old what is here of the partitions that the node writes is, at most, for those who read it here. Not told while one of them may not be read here.",
        ),
        |it| it.staleness_us,
    ),
    longest(
        "clock_ahead_us",
        (
            "penstock_replication_clock_ahead_seconds",
            "By how much the time of the node's store is ahead of the clock here, less what a frame takes. Told of nodes that ship to this one.",
        ),
        |it| it.clock_ahead_ms.map(microseconds),
    ),
    longest(
        "clock_behind_us",
        (
            "penstock_replication_clock_behind_seconds",
            "By how much it is behind the clock here, and what a frame takes.",
        ),
        |it| {
            it.clock_ahead_ms
                .map(|it| microseconds(it.saturating_neg()))
        },
    ),
    counted(
        "links",
        (
            "penstock_replication_links_made",
            "Links with the node that have proven themselves: the first one and each that took the place of one that ended.",
        ),
        |it| Some(it.traffic.links),
    ),
    counted(
        "sent_bytes",
        (
            "penstock_replication_sent_bytes",
            "Bytes sent to the node behind handshakes.",
        ),
        |it| Some(it.traffic.sent_bytes),
    ),
    counted(
        "received_bytes",
        (
            "penstock_replication_received_bytes",
            "Bytes received from the node behind handshakes.",
        ),
        |it| Some(it.traffic.received_bytes),
    ),
    counted(
        "sent_frames",
        (
            "penstock_replication_sent_frames",
            "Frames sent to the node.",
        ),
        |it| Some(it.traffic.sent_frames),
    ),
    counted(
        "received_frames",
        (
            "penstock_replication_received_frames",
            "Frames received from the node.",
        ),
        |it| Some(it.traffic.received_frames),
    ),
];

/// The histograms of a core: what INFO calls them, whether their unit is a microsecond, and how they are
/// read. The first four are [`Stages`], the last two the delays of other nodes.
pub(crate) const HISTOGRAMS: [&str; 8] = [
    "queue",
    "apply",
    "flush",
    "reply",
    "device",
    "batch",
    "received_there",
    "durable_there",
];

const STATUSES: usize = Status::ALL.len();
const KINDS: usize = Asked::ALL.len();
const REFUSALS: usize = RefusalCode::ALL.len();

/// One block per core, on cache lines of its own.
#[repr(align(128))]
struct Block {
    figures: [AtomicU64; FIGURES.len()],
    answers: [[AtomicU64; STATUSES]; KINDS],
    frames_refused: [AtomicU64; STATUSES],
    links_refused: [[AtomicU64; REFUSALS]; 2],
    histograms: [[AtomicU64; BUCKETS]; HISTOGRAMS.len()],
    histogram_sums: [AtomicU64; HISTOGRAMS.len()],
    /// When its core last published, in microseconds of the node's clock; 0 before it serves.
    turned_us: AtomicU64,
}

/// What a block held at a moment, or the sum of several.
#[derive(Clone, Debug)]
pub(crate) struct Reading {
    pub(crate) figures: [u64; FIGURES.len()],
    pub(crate) answers: [[u64; STATUSES]; KINDS],
    pub(crate) frames_refused: [u64; STATUSES],
    /// By this side and by the other one.
    pub(crate) links_refused: [[u64; REFUSALS]; 2],
    pub(crate) histograms: [[u64; BUCKETS]; HISTOGRAMS.len()],
    pub(crate) histogram_sums: [u64; HISTOGRAMS.len()],
}

impl Reading {
    /// The number that INFO calls so.
    pub(crate) fn figure(&self, name: &str) -> u64 {
        let at = FIGURES.iter().position(|figure| figure.name == name);
        self.figures[at.expect("a name of the table")]
    }

    fn add(&mut self, other: &Reading) {
        let add = |sum: &mut [u64], more: &[u64]| {
            sum.iter_mut()
                .zip(more)
                .for_each(|(sum, more)| *sum += more);
        };
        add(&mut self.figures, &other.figures);
        add(
            self.answers.as_flattened_mut(),
            other.answers.as_flattened(),
        );
        add(&mut self.frames_refused, &other.frames_refused);
        let refused = other.links_refused.as_flattened();
        add(self.links_refused.as_flattened_mut(), refused);
        let histograms = other.histograms.as_flattened();
        add(self.histograms.as_flattened_mut(), histograms);
        add(&mut self.histogram_sums, &other.histogram_sums);
    }
}

/// Links that were not made, by the threads that make them.
#[derive(Default)]
pub(crate) struct Handshakes {
    /// By this side and by the other one.
    refused: [[AtomicU64; REFUSALS]; 2],
    /// Nobody there, no answer, or nothing that could be read.
    failed: AtomicU64,
}

impl Handshakes {
    pub(crate) fn refuse(&self, is_there: bool, code: RefusalCode) {
        let row = &self.refused[usize::from(is_there)];
        let at = RefusalCode::ALL.iter().position(|it| *it == code);
        row[at.expect("every code")].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn fail(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    pub(crate) fn refused(&self) -> [[u64; REFUSALS]; 2] {
        let get = |slot: &AtomicU64| slot.load(Ordering::Relaxed);
        self.refused.each_ref().map(|row| row.each_ref().map(get))
    }
}

/// The numbers of all cores.
pub(crate) struct Stats {
    pub(crate) handshakes: Handshakes,
    blocks: Vec<Block>,
    /// What each core knows of its partitions and of the other nodes. A core that finds it taken leaves it as it is, and
    /// never waits.
    replication: Vec<Mutex<ReplicationStatus>>,
}

impl Stats {
    pub(crate) fn new(shards: u16) -> Self {
        let block = |_| Block {
            figures: [const { AtomicU64::new(0) }; FIGURES.len()],
            answers: [const { [const { AtomicU64::new(0) }; STATUSES] }; KINDS],
            frames_refused: [const { AtomicU64::new(0) }; STATUSES],
            links_refused: [const { [const { AtomicU64::new(0) }; REFUSALS] }; 2],
            histograms: [const { [const { AtomicU64::new(0) }; BUCKETS] }; HISTOGRAMS.len()],
            histogram_sums: [const { AtomicU64::new(0) }; HISTOGRAMS.len()],
            turned_us: AtomicU64::new(0),
        };
        Stats {
            handshakes: Handshakes::default(),
            blocks: (0..shards).map(block).collect(),
            replication: (0..shards).map(|_| Mutex::default()).collect(),
        }
    }

    /// Exchanges what a core knows of its cluster, unless somebody reads it just now.
    pub(crate) fn publish_replication(&self, shard: u16, now: &mut ReplicationStatus) {
        if let Ok(mut published) = self.replication[usize::from(shard)].try_lock() {
            std::mem::swap(&mut *published, now);
        }
    }

    /// What each core knows of its cluster, in the order of the shards. Empty on a node alone.
    pub(crate) fn replication(&self) -> Vec<ReplicationStatus> {
        let read = |it: &Mutex<ReplicationStatus>| {
            it.lock().unwrap_or_else(PoisonError::into_inner).clone()
        };
        self.replication.iter().map(read).collect()
    }

    /// Replaces a core's numbers; only that core calls it. Takes less than a microsecond or two, and no
    /// lock: what is read meanwhile is partly older.
    pub(crate) fn publish(
        &self,
        shard: u16,
        now_us: u64,
        sample: &Sample,
        stages: &Stages,
        rest: [&Histogram; 4],
    ) {
        let block = &self.blocks[usize::from(shard)];
        let put = |slot: &AtomicU64, value: u64| slot.store(value, Ordering::Relaxed);
        for (slot, figure) in block.figures.iter().zip(FIGURES) {
            put(slot, (figure.read)(sample));
        }
        for (slots, asked) in block.answers.iter().zip(Asked::ALL) {
            let answers = sample.shard.answers.of(asked);
            for (slot, status) in slots.iter().zip(Status::ALL) {
                put(slot, answers.of(status));
            }
        }
        for (slot, status) in block.frames_refused.iter().zip(Status::ALL) {
            put(slot, sample.shard.frames_refused.of(status));
        }
        let links = &sample.replication.links;
        let refused = links.refused.iter().chain(&links.refused_there);
        for (slot, count) in block.links_refused.as_flattened().iter().zip(refused) {
            put(slot, *count);
        }
        let [queue, apply, flush, reply] = stages.all();
        let [device, batch, received, durable] = rest;
        let histograms = [queue, apply, flush, reply, device, batch, received, durable];
        let slots = block.histograms.iter().zip(&block.histogram_sums);
        for ((buckets, sum), histogram) in slots.zip(histograms) {
            for (slot, &count) in buckets.iter().zip(histogram.counts()) {
                put(slot, count);
            }
            put(sum, histogram.sum());
        }
        put(&block.turned_us, now_us.max(1));
    }

    /// What each core has published, in the order of the shards.
    pub(crate) fn read(&self) -> Vec<Reading> {
        let get = |slot: &AtomicU64| slot.load(Ordering::Relaxed);
        let read = |block: &Block| Reading {
            figures: block.figures.each_ref().map(get),
            answers: block.answers.each_ref().map(|row| row.each_ref().map(get)),
            frames_refused: block.frames_refused.each_ref().map(get),
            links_refused: block
                .links_refused
                .each_ref()
                .map(|row| row.each_ref().map(get)),
            histograms: block
                .histograms
                .each_ref()
                .map(|row| row.each_ref().map(get)),
            histogram_sums: block.histogram_sums.each_ref().map(get),
        };
        self.blocks.iter().map(read).collect()
    }

    /// When each core last published, in microseconds of the node's clock.
    pub(crate) fn turned_us(&self) -> impl Iterator<Item = u64> {
        let get = |block: &Block| block.turned_us.load(Ordering::Relaxed);
        self.blocks.iter().map(get)
    }

    /// A JSON object: `head` fields as they are, the sums as `counters`, what items were answered, how long
    /// the stages took, and each core's numbers.
    pub(crate) fn json(&self, head: &str) -> String {
        let shards = self.read();
        let sum = total(&shards);
        let object = |reading: &Reading| {
            let values = FIGURES.iter().zip(reading.figures);
            joined(values.map(|(figure, value)| (figure.name, value.to_string())))
        };
        let answers = Asked::ALL.iter().zip(&sum.answers).map(|(asked, row)| {
            let told = Status::ALL.iter().zip(row).filter(|(_, count)| **count > 0);
            let told = told.map(|(status, count)| (status.name(), count.to_string()));
            (asked.name(), joined(told))
        });
        let histograms = HISTOGRAMS.iter().zip(&sum.histograms);
        let histograms = histograms.map(|(name, counts)| {
            let share = |share| quantile(counts, share).unwrap_or(0).to_string();
            let quantiles = [
                ("count", counts.iter().sum::<u64>().to_string()),
                ("p50", share(0.5)),
                ("p99", share(0.99)),
                ("p999", share(0.999)),
            ];
            (*name, joined(quantiles.into_iter()))
        });
        let each: Vec<String> = shards.iter().map(object).collect();
        format!(
            "{{{head},\"counters\":{},\"answers\":{},\"histograms\":{},\"shards\":[{}]}}",
            object(&sum),
            joined(answers),
            joined(histograms),
            each.join(",")
        )
    }
}

/// The sum of several readings.
pub(crate) fn total(readings: &[Reading]) -> Reading {
    let mut sum = Reading {
        figures: [0; FIGURES.len()],
        answers: [[0; STATUSES]; KINDS],
        frames_refused: [0; STATUSES],
        links_refused: [[0; REFUSALS]; 2],
        histograms: [[0; BUCKETS]; HISTOGRAMS.len()],
        histogram_sums: [0; HISTOGRAMS.len()],
    };
    readings.iter().for_each(|reading| sum.add(reading));
    sum
}

/// The partitions of the node as a JSON list, neighbours with the same role, duty and epoch together with the sums of their
/// sequences.
pub(crate) fn partitions_json(cores: &[ReplicationStatus]) -> String {
    let all: Vec<&PartitionStatus> = cores.iter().flat_map(|it| &it.partitions).collect();
    let groups = all.chunk_by(|one, next| {
        let kind = |it: &PartitionStatus| (it.role, it.duty, it.epoch, it.was_last);
        kind(one) == kind(next)
            && one.waits_for == next.waits_for
            && one.partition + 1 == next.partition
    });
    let groups: Vec<String> = groups
        .map(|group| {
            let (first, last) = (group[0], group[group.len() - 1]);
            let sum = |of: fn(&PartitionStatus) -> u64| group.iter().map(|it| of(it)).sum::<u64>();
            format!(
                "{{\"first\":{},\"last\":{},\"role\":\"{}\",\"duty\":\"{}\",\"generation\":{},\"start\":{},\"node\":{},\"applied\":{},\"received\":{},\"durable\":{},\"was_last\":{},\"waits_for\":{:?}}}",
                first.partition,
                last.partition,
                first.role.name(),
                first.duty.name(),
                first.epoch.generation(),
                first.epoch.start(),
                first.epoch.node(),
                sum(|it| it.applied),
                sum(|it| it.received),
                sum(|it| it.durable),
                first.was_last,
                first.waits_for,
            )
        })
        .collect();
    format!("[{}]", groups.join(","))
}

/// How many partitions the node has in each role, as a JSON object.
pub(crate) fn roles_json(cores: &[ReplicationStatus]) -> String {
    let count = |role| {
        let all = cores.iter().flat_map(|it| &it.partitions);
        all.filter(|it| it.role == role).count()
    };
    let roles = PartitionRole::ALL.map(|role| (role.name(), count(role)));
    let told = roles.iter().filter(|(_, count)| *count > 0);
    joined(told.map(|(role, count)| (*role, count.to_string())))
}

/// The other nodes as a JSON list, of each what all shards know together. What one of them does not know is null.
pub(crate) fn peers_json(cores: &[ReplicationStatus]) -> String {
    let all = || cores.iter().flat_map(|it| &it.peers);
    let is_source = |it: &PeerStatus| it.duty == Duty::Primary;
    let nodes: BTreeSet<(u8, bool)> = all().map(|it| (it.node, is_source(it))).collect();
    let nodes: Vec<String> = nodes
        .into_iter()
        .map(|node| {
            let of_node = || all().filter(|it| (it.node, is_source(it)) == node);
            let duties = || of_node().map(|it| it.duty);
            let sync = duties().find(|&duty| duty == Duty::Member(Membership::Sync));
            let duty = sync.or(duties().next()).unwrap_or(Duty::None);
            let state = of_node().map(|it| it.state).min();
            let figures = PEER_FIGURES.iter().map(|figure| {
                let values = of_node().map(figure.read);
                let folded = values.reduce(|one, other| Some((figure.fold)(one?, other?)));
                let value = folded.flatten().map(|value| value.to_string());
                (figure.name, value.unwrap_or("null".into()))
            });
            let head = [
                ("node", node.0.to_string()),
                ("role", format!("\"{}\"", duty.name())),
                (
                    "link",
                    format!("\"{}\"", state.unwrap_or(LinkState::Absent).name()),
                ),
            ];
            joined(head.into_iter().chain(figures))
        })
        .collect();
    format!("[{}]", nodes.join(","))
}

/// A JSON object of names, which need no escapes, and values that are JSON.
fn joined<'a>(fields: impl Iterator<Item = (&'a str, String)>) -> String {
    let mut text = String::from("{");
    for (index, (name, value)) in fields.enumerate() {
        let comma = if index == 0 { "" } else { "," };
        write!(text, "{comma}\"{name}\":{value}").expect("writing to memory does not fail");
    }
    text + "}"
}

#[cfg(test)]
mod tests {
    use penstock_shard::replication::{Lag, Traffic};

    use super::*;

    #[test]
    fn no_two_numbers_have_one_name() {
        let names: BTreeSet<&str> = FIGURES.iter().map(|figure| figure.name).collect();
        assert_eq!(names.len(), FIGURES.len());
        let of_peers = PEER_FIGURES.iter().map(|figure| figure.metric);
        let metrics = || {
            let figures = FIGURES.iter().filter_map(|figure| figure.metric);
            figures.chain(of_peers.clone())
        };
        let families: BTreeSet<&str> = metrics().map(|(family, _)| family).collect();
        assert_eq!(families.len(), metrics().count());
    }

    #[test]
    fn what_two_shards_know_of_a_node_is_told_together() {
        let status = |state, lag| ReplicationStatus {
            partitions: Vec::new(),
            peers: vec![PeerStatus {
                node: 2,
                duty: Duty::Member(Membership::Sync),
                partitions: 128,
                state,
                lag,
                durable_lag: None,
                staleness_us: None,
                clock_ahead_ms: Some(-3),
                traffic: Traffic {
                    links: 1,
                    ..Traffic::default()
                },
            }],
        };
        let lag = |records, us| {
            Some(Lag {
                records,
                bytes: 8 * records,
                us,
            })
        };
        let told = |cores: [ReplicationStatus; 2]| -> serde_json::Value {
            serde_json::from_str(&peers_json(&cores)).unwrap()
        };
        let live = LinkState::Live;
        let both = told([status(live, lag(3, 90)), status(live, lag(4, 50))]);
        let expected = serde_json::json!([{"node": 2, "role": "sync", "link": "live", "partitions": 256, "lag_records": 7, "lag_bytes": 56,
            "lag_us": 90, "durable_lag_records": null, "durable_lag_bytes": null, "durable_lag_us": null, "staleness_us": null, "clock_ahead_us": 0,
            "clock_behind_us": 3_000, "links": 2, "sent_bytes": 0,
            "received_bytes": 0, "sent_frames": 0, "received_frames": 0}]);
        assert_eq!(both, expected);
        let one = told([
            status(live, lag(3, 90)),
            status(LinkState::CatchingUp, None),
        ]);
        assert_eq!(one[0]["link"], "catching up");
        assert_eq!(one[0]["lag_records"], serde_json::Value::Null);
    }

    #[test]
    fn what_is_published_is_read_and_adds_up() {
        let stats = Stats::new(2);
        for (shard, turns) in [(0, 3), (1, 4)] {
            let sample = Sample {
                turns,
                ..Sample::default()
            };
            let mut device = Histogram::default();
            device.add(100, turns);
            let none = Histogram::default();
            let stages = Stages::default();
            let rest = [&device, &none, &none, &none];
            stats.publish(shard, 7 + turns, &sample, &stages, rest);
        }
        let sum = total(&stats.read());
        assert_eq!(sum.figure("turns"), 7);
        assert_eq!(sum.histograms[4].iter().sum::<u64>(), 7);
        assert_eq!(sum.histogram_sums[4], 700);
        assert_eq!(stats.turned_us().collect::<Vec<_>>(), [10, 11]);
        let told: serde_json::Value = serde_json::from_str(&stats.json("\"a\":1")).unwrap();
        assert_eq!(told["counters"]["turns"], 7);
        assert_eq!(told["shards"][1]["turns"], 4);
        assert_eq!(told["histograms"]["device"]["p99"], 111);
        assert_eq!(told["answers"]["get"], serde_json::json!({}));
    }
}
