//! The blocks: each core writes its own, anybody reads them. No core waits or locks for a reader.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use penstock_net::link::RefusalCode;
use penstock_net::status::Status;
use penstock_shard::accounts::answers::Asked;
use penstock_shard::accounts::stages::Stages;
use penstock_shard::cluster::ReplicationStatus;
use penstock_storage::histogram::{BUCKETS, Histogram};

use super::channels::ChannelFigures;
use super::failover::FailoverFacts;
use super::figures::{FIGURES, Sample};
use super::plan::PlanFacts;

/// The histograms of a core: what INFO calls them, whether their unit is a microsecond, and how
/// they are read. The first four are [`Stages`], the last two the delays of other nodes.
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

/// A link without TLS, which counts as long as this is held.
pub(crate) struct PlainLink(Arc<Stats>);

impl PlainLink {
    pub(crate) fn new(stats: &Arc<Stats>) -> PlainLink {
        stats.links_plain.fetch_add(1, Ordering::Relaxed);
        PlainLink(Arc::clone(stats))
    }
}

impl Drop for PlainLink {
    fn drop(&mut self) {
        self.0.links_plain.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The numbers of all cores.
pub(crate) struct Stats {
    pub(crate) handshakes: Handshakes,
    pub(crate) plan: PlanFacts,
    pub(crate) failover: FailoverFacts,
    pub(crate) channels: Arc<ChannelFigures>,
    /// Links that are there without TLS.
    links_plain: AtomicU64,
    blocks: Vec<Block>,
    /// What each core knows of its partitions and of the other nodes. A core that finds it taken
    /// leaves it as it is, and never waits.
    replication: Vec<Mutex<ReplicationStatus>>,
}

impl Stats {
    /// Links that are there without TLS.
    pub(crate) fn links_plain(&self) -> u64 {
        self.links_plain.load(Ordering::Relaxed)
    }

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
            plan: PlanFacts::default(),
            failover: FailoverFacts::default(),
            channels: Arc::default(),
            links_plain: AtomicU64::new(0),
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

    /// By how much the time of a store is ahead of the clock of this machine, in microseconds: the
    /// most of all cores. Cheap.
    pub(crate) fn store_ahead_us(&self) -> u64 {
        static AT: OnceLock<usize> = OnceLock::new();
        let at = *AT.get_or_init(|| {
            let at = FIGURES.iter().position(|it| it.name == "store_ahead_us");
            at.expect("a name of the table")
        });
        let each = self.blocks.iter();
        let each = each.map(|block| block.figures[at].load(Ordering::Relaxed));
        each.max().unwrap_or(0)
    }

    /// Replaces a core's numbers; only that core calls it. Takes less than a microsecond or two,
    /// and no lock: what is read meanwhile is partly older.
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

#[cfg(test)]
mod tests {
    use super::*;

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
    }
}
