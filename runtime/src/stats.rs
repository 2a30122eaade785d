//! What the cores did: each core writes its own block of numbers, anybody reads them. INFO and `/metrics`
//! tell the same numbers, from the one table below.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use penstock_net::status::Status;
use penstock_shard::answers::Asked;
use penstock_shard::linked::PartitionStatus;
use penstock_shard::stages::Stages;
use penstock_shard::{Counters, SnapshotCounters};
use penstock_storage::cleaning::CleaningCounters;
use penstock_storage::histogram::{BUCKETS, Histogram, quantile};
use penstock_storage::log::LogCounters;
use penstock_storage::scrub::ScrubCounters;
use penstock_storage::store::Usage;

use crate::disk::DiskCounters;

/// One core's numbers at a moment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sample {
    pub(crate) shard: Counters,
    pub(crate) log: LogCounters,
    pub(crate) cleaning: CleaningCounters,
    pub(crate) disk: DiskCounters,
    pub(crate) usage: Usage,
    pub(crate) inherited_bytes: u64,
    pub(crate) scrub: ScrubCounters,
    pub(crate) snapshots: SnapshotCounters,
    pub(crate) turns: u64,
    pub(crate) received_bytes: u64,
    pub(crate) sent_bytes: u64,
    pub(crate) connections_refused: u64,
    pub(crate) segments_held: u64,
    pub(crate) is_disk_full: bool,
    pub(crate) is_log_full: bool,
    pub(crate) is_memory_full: bool,
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
    read: fn(&Sample) -> u64,
}

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
        read,
    }
}

const fn sum(name: &'static str, read: fn(&Sample) -> u64) -> Figure {
    Figure {
        name,
        metric: None,
        growth: Growth::Counter,
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
        "Keys in the index; expired ones and fresh deletions included.",
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
    gauge(
        "inherited_bytes",
        "penstock_inherited_bytes",
        "Bytes in logs of an earlier number of shards that are not rewritten yet.",
        |it| it.inherited_bytes,
    ),
    gauge(
        "disk_full",
        "penstock_disk_full",
        "1 while no more segments can be made: what grows is answered FULL.",
        |it| it.is_disk_full.into(),
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
];

/// The histograms of a core: what INFO calls them, whether their unit is a microsecond, and how they are
/// read. The first four are [`Stages`].
pub(crate) const HISTOGRAMS: [&str; 6] = ["queue", "apply", "flush", "reply", "device", "batch"];

const STATUSES: usize = Status::ALL.len();
const KINDS: usize = Asked::ALL.len();

/// One block per core, on cache lines of its own.
#[repr(align(128))]
struct Block {
    figures: [AtomicU64; FIGURES.len()],
    answers: [[AtomicU64; STATUSES]; KINDS],
    frames_refused: [AtomicU64; STATUSES],
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
        let histograms = other.histograms.as_flattened();
        add(self.histograms.as_flattened_mut(), histograms);
        add(&mut self.histogram_sums, &other.histogram_sums);
    }
}

/// The numbers of all cores.
pub(crate) struct Stats {
    blocks: Vec<Block>,
    /// What each core is to the partitions of its cluster; taken by it now and then, never on the way of a
    /// request.
    partitions: Vec<Mutex<Vec<PartitionStatus>>>,
}

impl Stats {
    pub(crate) fn new(shards: u16) -> Self {
        let block = |_| Block {
            figures: [const { AtomicU64::new(0) }; FIGURES.len()],
            answers: [const { [const { AtomicU64::new(0) }; STATUSES] }; KINDS],
            frames_refused: [const { AtomicU64::new(0) }; STATUSES],
            histograms: [const { [const { AtomicU64::new(0) }; BUCKETS] }; HISTOGRAMS.len()],
            histogram_sums: [const { AtomicU64::new(0) }; HISTOGRAMS.len()],
            turned_us: AtomicU64::new(0),
        };
        Stats {
            blocks: (0..shards).map(block).collect(),
            partitions: (0..shards).map(|_| Mutex::default()).collect(),
        }
    }

    /// Replaces what a core is to the partitions of its cluster.
    pub(crate) fn publish_partitions(&self, shard: u16, now: Vec<PartitionStatus>) {
        let of_shard = &self.partitions[usize::from(shard)];
        *of_shard.lock().unwrap_or_else(PoisonError::into_inner) = now;
    }

    /// The partitions of the node as a JSON list, neighbours with the same role and epoch together with the
    /// sums of their sequences. Empty on a node alone.
    pub(crate) fn partitions_json(&self) -> String {
        let mut groups: Vec<(PartitionStatus, u16, u64, u64)> = Vec::new();
        for of_shard in &self.partitions {
            for it in &*of_shard.lock().unwrap_or_else(PoisonError::into_inner) {
                match groups.last_mut() {
                    Some((first, last, applied, received))
                        if (first.role, first.epoch, &first.waits_for)
                            == (it.role, it.epoch, &it.waits_for) =>
                    {
                        *last = it.partition;
                        *applied += it.applied;
                        *received += it.received;
                    }
                    _ => groups.push((it.clone(), it.partition, it.applied, it.received)),
                }
            }
        }
        let groups: Vec<String> = groups
            .iter()
            .map(|(first, last, applied, received)| {
                format!(
                    "{{\"first\":{},\"last\":{last},\"role\":\"{}\",\"generation\":{},\"start\":{},\"node\":{},\"applied\":{applied},\"received\":{received},\"waits_for\":{:?}}}",
                    first.partition,
                    first.role,
                    first.epoch.generation(),
                    first.epoch.start(),
                    first.epoch.node(),
                    first.waits_for
                )
            })
            .collect();
        format!("[{}]", groups.join(","))
    }

    /// Replaces a core's numbers; only that core calls it. Takes less than a microsecond or two, and no
    /// lock: what is read meanwhile is partly older.
    pub(crate) fn publish(
        &self,
        shard: u16,
        now_us: u64,
        sample: &Sample,
        stages: &Stages,
        (device, batch): (&Histogram, &Histogram),
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
        let [queue, apply, flush, reply] = stages.all();
        let histograms = [queue, apply, flush, reply, device, batch];
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
        histograms: [[0; BUCKETS]; HISTOGRAMS.len()],
        histogram_sums: [0; HISTOGRAMS.len()],
    };
    readings.iter().for_each(|reading| sum.add(reading));
    sum
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
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_two_numbers_have_one_name() {
        let names: BTreeSet<&str> = FIGURES.iter().map(|figure| figure.name).collect();
        assert_eq!(names.len(), FIGURES.len());
        let metrics = || FIGURES.iter().filter_map(|figure| figure.metric);
        let families: BTreeSet<&str> = metrics().map(|(family, _)| family).collect();
        assert_eq!(families.len(), metrics().count());
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
            let batch = Histogram::default();
            let stages = Stages::default();
            stats.publish(shard, 7 + turns, &sample, &stages, (&device, &batch));
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
