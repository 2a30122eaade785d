//! The numbers of a core, from the one table below: INFO and `/metrics` tell the same ones.

use penstock_net::request::Verb;
use penstock_shard::accounts::answers::Asked;
use penstock_shard::{Counters, KeyTableCounters, ReplicationCounters, SnapshotCounters};
use penstock_storage::cleaning::{CleaningCounters, Fill};
use penstock_storage::log::LogCounters;
use penstock_storage::pace::PaceCounters;
use penstock_storage::scrub::ScrubCounters;
use penstock_storage::store::Usage;

use crate::disk::DiskCounters;
use crate::event_loop::shard_thread::ThreadFigures;

/// One core's numbers at a moment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sample {
    pub(crate) shard: Counters,
    pub(crate) log: LogCounters,
    pub(crate) cleaning: CleaningCounters,
    pub(crate) pace: PaceCounters,
    pub(crate) disk: DiskCounters,
    pub(crate) thread: ThreadFigures,
    pub(crate) usage: Usage,
    pub(crate) inherited_bytes: u64,
    pub(crate) scrub: ScrubCounters,
    pub(crate) snapshots: SnapshotCounters,
    pub(crate) key_tables: KeyTableCounters,
    pub(crate) replication: ReplicationCounters,
    pub(crate) turns: u64,
    pub(crate) received_bytes: u64,
    pub(crate) sent_bytes: u64,
    pub(crate) watches: u64,
    pub(crate) connections_refused: u64,
    pub(crate) tls_handshakes: u64,
    pub(crate) tls_handshakes_failed: u64,
    pub(crate) tls_handshakes_refused: u64,
    pub(crate) segments_held: u64,
    pub(crate) fill: Fill,
    pub(crate) is_disk_full: bool,
    pub(crate) has_no_descriptor: bool,
    pub(crate) has_no_segment_file: bool,
    pub(crate) is_log_full: bool,
    pub(crate) is_memory_full: bool,
    pub(crate) token_halvings: u64,
    /// By how much the wall clock is behind the time of the store, in microseconds.
    pub(crate) clock_behind_us: u64,
    /// [`Data::visible_keys`](penstock_storage::store::Data::visible_keys).
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
    /// The family in `/metrics` and its meaning. The name of a counter is without `_total`. `None`:
    /// INFO alone has the figure, because it is a sum of others that `/metrics` has.
    pub(crate) metric: Option<(&'static str, &'static str)>,
    pub(crate) growth: Growth,
    /// What one of it is in `/metrics`: of microseconds, a part of a second.
    pub(crate) unit: f64,
    pub(super) read: fn(&Sample) -> u64,
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
        answers.total()
            - answers.of(Verb::Scan).all()
            - answers.of(Verb::Ping).all()
            - answers.of(Asked::Unreadable).all()
    }),
    sum("gets", |it| it.shard.answers.of(Verb::Get).all()),
    sum("sets", |it| it.shard.answers.of(Verb::Set).all()),
    sum("dels", |it| it.shard.answers.of(Verb::Del).all()),
    sum("updates", |it| it.shard.answers.of(Verb::UpdateIf).all()),
    sum("scans", |it| it.shard.answers.of(Verb::Scan).all()),
    sum("gets_past", |it| {
        let answers = &it.shard.answers;
        answers.of(Verb::GetAt).all() + answers.of(Verb::History).all()
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
        "expiries_fired",
        "penstock_expiries_fired",
        "Armed keys that expired and whose effects ran.",
        |it| it.shard.firing.fired,
    ),
    counter(
        "expiries_failed",
        "penstock_expiries_failed",
        "Armed keys that expired and whose effects could not run.",
        |it| it.shard.firing.failed,
    ),
    gauge(
        "expiries_full",
        "penstock_expiries_full",
        "Armed keys that expired and wait for room, on the disk or in memory.",
        |it| it.shard.firing.full,
    ),
    counter(
        "timers_stale",
        "penstock_timers_stale",
        "Timers that came to a key that was gone, changed or not armed any more.",
        |it| it.shard.firing.stale,
    ),
    gauge("timers", "penstock_timers", "Timers of armed keys.", |it| {
        it.usage.timers as u64
    }),
    gauge(
        "timer_bytes",
        "penstock_timer_bytes",
        "Bytes of the timers of armed keys, at most.",
        |it| it.usage.timer_bytes as u64,
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
        "Connections refused: connections_max were open, or no file descriptor was left.",
        |it| it.connections_refused,
    ),
    counter(
        "tls_handshakes",
        "penstock_tls_handshakes",
        "Handshakes of TLS that were finished.",
        |it| it.tls_handshakes,
    ),
    counter(
        "tls_handshakes_failed",
        "penstock_tls_handshakes_failed",
        "Handshakes of TLS that came to nothing: no TLS, an older one, no certificate, too late.",
        |it| it.tls_handshakes_failed,
    ),
    counter(
        "tls_handshakes_refused",
        "penstock_tls_handshakes_refused",
        "Connections closed before their handshake: too many were under way.",
        |it| it.tls_handshakes_refused,
    ),
    gauge(
        "connections",
        "penstock_connections",
        "Connections open now.",
        |it| it.shard.sessions,
    ),
    counter(
        "logins",
        "penstock_logins",
        "Logins that were made.",
        |it| it.shard.logins.made,
    ),
    counter(
        "logins_failed",
        "penstock_logins_failed",
        "Logins that were refused: a wrong name, secret, proof or certificate.",
        |it| it.shard.logins.failed,
    ),
    counter(
        "logins_delayed",
        "penstock_logins_delayed",
        "Messages of logins that were refused unread, because too many of their address had \
         failed.",
        |it| it.shard.logins.delayed,
    ),
    counter(
        "logins_ended",
        "penstock_logins_ended",
        "Connections that were ended because their user was gone or had another secret.",
        |it| it.shard.logins.ended,
    ),
    counter(
        "pauses",
        "penstock_connection_pauses",
        "Times that reading from a connection was paused.",
        |it| it.shard.pauses,
    ),
    counter(
        "shed_for_core",
        "penstock_operations_shed_for_core",
        "Operations of frames that were answered BUSY before they ran: the core had more than it \
         could run.",
        |it| it.shard.shed_for_core,
    ),
    counter(
        "shed_for_disk",
        "penstock_operations_shed_for_disk",
        "Operations of frames that were answered BUSY before they ran: the disk had more than it \
         could write.",
        |it| it.shard.shed_for_disk,
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
        "Times that writes began to wait for cleaning, because no more segments can be made: they \
         are held back before any is refused.",
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
        "Requests to the disk that a thread of the server carries out.",
        |it| it.disk.punted,
    ),
    counter(
        "storage_failures",
        "penstock_disk_failures",
        "Requests to the disk that failed.",
        |it| it.disk.failures,
    ),
    counter(
        "storage_inline",
        "penstock_disk_inline",
        "Durable writes and syncs that the thread of the shard made itself.",
        |it| it.disk.inline,
    ),
    gauge(
        "cpu_contended",
        "penstock_cpu_contended",
        "Shards whose thread waits for a CPU because other programs want it.",
        |it| it.thread.contended,
    ),
    gauge(
        "off_core",
        "penstock_off_core",
        "Shards whose thread runs on other CPUs than its core, because other programs want that.",
        |it| it.thread.off_core,
    ),
    counter(
        "watches",
        "penstock_watches",
        "Times that a loop watched for work before it slept.",
        |it| it.watches,
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
        "Keys that readers find, fresh deletions included; some of those that have expired lately \
         may be counted.",
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
        "tokens",
        "penstock_tokens",
        "Tokens of writes that are kept, those included that have expired lately.",
        |it| it.usage.tokens as u64,
    ),
    gauge(
        "token_bytes",
        "penstock_token_bytes",
        "Bytes of the index that tokens take, about.",
        |it| it.usage.token_bytes as u64,
    ),
    time(
        "store_ahead_us",
        "penstock_store_ahead_seconds",
        "By how much the time of the store, by which keys expire and tokens are too old, is ahead \
         of the clock of this machine; 0 if it is not.",
        |it| it.clock_behind_us,
    ),
    gauge(
        "token_halvings",
        "penstock_token_halvings",
        "How often token_horizon_s is halved because memory for tokens runs out; 0 if tokens are \
         kept for as long as it says.",
        |it| it.token_halvings,
    ),
    counter(
        "tokens_replayed",
        "penstock_tokens_replayed",
        "Writes that were answered as the first time, because their token was known.",
        |it| it.shard.tokens_replayed,
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
        "Sealed segments that have a key table; one that is inherited counts for each shard that \
         reads it.",
        |it| it.key_tables.standing,
    ),
    gauge(
        "key_table_bytes",
        "penstock_key_table_bytes",
        "Bytes of the files of key tables, which count against disk_bytes_max; of inherited \
         segments as key_tables.",
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
        "Bytes in logs of an earlier number of shards that are not rewritten yet; each shard goes \
         through all of them.",
        |it| it.inherited_bytes,
    ),
    gauge(
        "disk_full",
        "penstock_disk_full",
        "1 while what grows is answered FULL: more counts in the log than it can carry on the \
         disk that it has.",
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
        "1 while what grows is answered BUSY: the system refuses a segment file for another \
         reason, which the log tells.",
        |it| it.has_no_segment_file.into(),
    ),
    gauge(
        "counting_bytes",
        "penstock_log_counting_bytes",
        "Bytes of records in the log that count; what was overwritten or deleted does not.",
        |it| it.fill.counting_bytes,
    ),
    gauge(
        "counting_bytes_max",
        "penstock_log_counting_bytes_max",
        "Bytes of records from which on what grows may be answered FULL, as the disk has room now; \
         0 while that is not known.",
        |it| it.fill.counting_bytes_max,
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
        "Replies at levels all and replica, and by min_sync at level disk, that were kept until \
         other nodes had told to have what they show.",
        |it| it.replication.waits,
    ),
    counter(
        "replica_waits_below",
        "penstock_replication_waits_below_replica",
        "Replies at any lower level that were kept for other nodes without min_sync: none, or it \
         is a bug.",
        |it| it.replication.waits_below,
    ),
    counter(
        "noreplicas",
        "penstock_replication_noreplicas",
        "Operations, reads among them, answered NOREPLICAS because not every node of the sync set \
         has told in time to have what they tell. Those that were refused for an empty sync set \
         are in penstock_operations_total.",
        |it| it.replication.missed,
    ),
    counter(
        "all_is_disk",
        "penstock_replication_all_is_disk",
        "Replies at level all that reached disk alone, because the sync set is empty and no other \
         node may write next.",
        |it| it.replication.all_is_disk,
    ),
    counter(
        "lease_lapses",
        "penstock_lease_lapses",
        "Times that the lease of a partition ran out although the plan still named this node.",
        |it| it.replication.leases.lapses,
    ),
    gauge(
        "partitions_without_lease",
        "penstock_partitions_without_lease",
        "Partitions that this node is to write, and does not serve for want of a lease.",
        |it| it.replication.leases.without,
    ),
    counter(
        "lease_connections_ended",
        "penstock_lease_connections_ended",
        "Connections that were ended without their answers, because what they asked for may have \
         run behind a lease.",
        |it| it.replication.leases.ended,
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
        "Records that this node had and its primary had not, written to lostfound; a tail that is \
         looked for twice counts twice.",
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
        "Partitions of which cleaning had released some of such records, so that all was asked \
         for anew.",
        |it| it.replication.links.diverged_lost,
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
