//! What the cores did, for INFO: each core writes its own block of numbers, anybody reads them.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};

use penstock_shard::{Counters, SnapshotCounters};
use penstock_storage::cleaning::CleaningCounters;
use penstock_storage::log::LogCounters;
use penstock_storage::scrub::ScrubCounters;
use penstock_storage::store::Usage;

use crate::disk::DiskCounters;

/// The names of the numbers, in the order of [`Sample::values`].
const NAMES: [&str; 51] = [
    "ops",
    "gets",
    "sets",
    "dels",
    "updates",
    "scans",
    "guards_failed",
    "pings",
    "refused",
    "forwarded",
    "executed_for_others",
    "parked",
    "reads",
    "read_bytes",
    "reads_retried",
    "reads_coalesced",
    "connections_opened",
    "connections",
    "pauses",
    "records",
    "record_bytes",
    "frames",
    "flushes",
    "device_bytes",
    "marks",
    "segments",
    "commit_bytes",
    "moved_records",
    "moved_bytes",
    "segments_released",
    "cleaning_reads",
    "cleaning_read_bytes",
    "segments_damaged",
    "storage_enters",
    "storage_punted",
    "storage_failures",
    "turns",
    "received_bytes",
    "sent_bytes",
    "keys",
    "cached_keys",
    "cache_bytes",
    "index_bytes",
    "memory_bytes",
    "memory_bytes_max",
    "scrubbed_bytes",
    "scrub_passes",
    "scrub_damaged",
    "snapshots",
    "snapshots_void",
    "snapshot_bytes",
];

/// One core's numbers at a moment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sample {
    pub(crate) shard: Counters,
    pub(crate) log: LogCounters,
    pub(crate) cleaning: CleaningCounters,
    pub(crate) disk: DiskCounters,
    pub(crate) usage: Usage,
    pub(crate) scrub: ScrubCounters,
    pub(crate) snapshots: SnapshotCounters,
    pub(crate) turns: u64,
    pub(crate) received_bytes: u64,
    pub(crate) sent_bytes: u64,
}

impl Sample {
    fn values(&self) -> [u64; NAMES.len()] {
        let Sample {
            shard,
            log,
            cleaning,
            disk,
            usage,
            scrub,
            snapshots,
            ..
        } = self;
        [
            shard.gets + shard.sets + shard.dels + shard.updates,
            shard.gets,
            shard.sets,
            shard.dels,
            shard.updates,
            shard.scans,
            shard.guards_failed,
            shard.pings,
            shard.refused,
            shard.forwarded,
            shard.executed_for_others,
            shard.parked,
            shard.reads,
            shard.read_bytes,
            shard.reads_retried,
            shard.reads_coalesced,
            shard.sessions_opened,
            shard.sessions,
            shard.pauses,
            log.records,
            log.record_bytes,
            log.frames,
            log.flushes,
            log.device_bytes,
            log.marks,
            log.segments,
            log.commit_bytes,
            log.moved_records,
            log.moved_bytes,
            log.released,
            cleaning.reads,
            cleaning.read_bytes,
            cleaning.damaged,
            disk.enters,
            disk.punted,
            disk.failures,
            self.turns,
            self.received_bytes,
            self.sent_bytes,
            usage.keys as u64,
            usage.cells as u64,
            usage.cache_bytes as u64,
            usage.index_bytes as u64,
            usage.memory_bytes as u64,
            usage.memory_bytes_max as u64,
            scrub.bytes,
            scrub.passes,
            scrub.damaged,
            snapshots.snapshots,
            snapshots.snapshots_void,
            snapshots.snapshot_bytes,
        ]
    }
}

/// One block per core, on cache lines of its own.
#[repr(align(128))]
struct Block([AtomicU64; NAMES.len()]);

/// The numbers of all cores.
pub(crate) struct Stats {
    blocks: Vec<Block>,
}

impl Stats {
    pub(crate) fn new(shards: u16) -> Self {
        Stats {
            blocks: (0..shards)
                .map(|_| Block([const { AtomicU64::new(0) }; NAMES.len()]))
                .collect(),
        }
    }

    /// Replaces a core's numbers; only that core calls it.
    pub(crate) fn publish(&self, shard: u16, sample: &Sample) {
        for (slot, value) in self.blocks[usize::from(shard)]
            .0
            .iter()
            .zip(sample.values())
        {
            slot.store(value, Ordering::Relaxed);
        }
    }

    /// A JSON object: `head` fields as they are, the sums as `counters`, and each core's numbers.
    pub(crate) fn json(&self, head: &str) -> String {
        let read = |block: &Block| -> Vec<u64> {
            block
                .0
                .iter()
                .map(|value| value.load(Ordering::Relaxed))
                .collect()
        };
        let shards: Vec<Vec<u64>> = self.blocks.iter().map(read).collect();
        let object = |values: &dyn Fn(usize) -> u64| {
            let mut text = String::from("{");
            for (index, name) in NAMES.iter().enumerate() {
                let comma = if index == 0 { "" } else { "," };
                write!(text, "{comma}\"{name}\":{}", values(index))
                    .expect("writing to memory does not fail");
            }
            text + "}"
        };
        let sums = object(&|index| shards.iter().map(|values| values[index]).sum());
        let each: Vec<String> = shards
            .iter()
            .map(|values| object(&|index| values[index]))
            .collect();
        format!(
            "{{{head},\"counters\":{sums},\"shards\":[{}]}}",
            each.join(",")
        )
    }
}
