//! The fixed properties of a shard.

use penstock_net::hello::ServerHello;
use penstock_net::level::AckLevel;
use penstock_net::limits::Limits;
use penstock_net::placement::Placement;
use penstock_net::reply::REPLY_HEAD_BYTES_MAX;
use penstock_storage::cleaning::CleaningConfig;
use penstock_storage::version::{PARTITIONS, SLOTS};

use crate::cluster::ClusterConfig;
use crate::execution::verbs::KeyHash;
use crate::sessions::{ClientBounds, Patience};
use crate::snapshots::SnapshotPolicy;
use crate::topology::Topology;

/// The fixed properties of a shard.
#[derive(Clone, Debug)]
pub struct ShardConfig {
    /// Its number.
    pub shard: u16,
    /// Who owns which slot.
    pub topology: Topology,
    /// What HELLO tells; `shard` and `limits` are used from here too.
    pub hello: ServerHello,
    /// The least ack level; requests for less are raised to it.
    pub level_min: AckLevel,
    /// Bytes of replies that a connection may have waiting before no more is read from it.
    pub output_bytes_max: usize,
    /// A GET of a value of so many bytes or more holds the block that the value stands in, if it
    /// has one, instead of copying it. `usize::MAX` for those who take replies as one run of bytes.
    pub shared_bytes_min: usize,
    /// Of a frame that is not whole, all that is left or 32 KiB more must come within this.
    pub partial_frame_us_max: u64,
    /// A peer must take some of its replies within this.
    pub write_stall_us_max: u64,
    /// A connection that says nothing for so long is closed; 0 is never. Those whose bytes are
    /// translated have times of their own.
    pub idle_us_max: u64,
    /// Bytes of replies that all connections may have waiting, those included for which a read is
    /// under way, before no more is read from any. What is on its way to and from other shards is
    /// bounded by a share of it.
    pub replies_bytes_max: usize,
    /// Bytes that all connections have sent and that are not run, because their frames are not
    /// whole or have to wait, at most, but for a little of each. Twice the largest frame at least.
    pub input_bytes_max: usize,
    /// Bytes of the operations that wait for cold keys, at most, but for one alone.
    pub parked_bytes_max: usize,
    /// Items on their way to one other shard, at most.
    pub mailed_items_max: usize,
    /// The bound on the memory of the process in bytes, which what is refused for lack of memory
    /// names; 0 for none. What it leaves to this shard: [`crate::Event::MemoryBound`].
    pub memory_max: u64,
    /// How long tokens of writes are kept, in milliseconds.
    pub token_horizon_ms: u64,
    /// Secret of the key hash.
    pub hash_seed: u64,
    /// When and how fast to clean the log.
    pub cleaning: CleaningConfig,
    /// When to take snapshots of the index.
    pub snapshots: SnapshotPolicy,
    /// Scripts and transactions may use keys of several shards of a node alone.
    pub takes_several_shards: bool,
    /// Its part in a cluster; none of a node alone.
    pub cluster: Option<ClusterConfig>,
}

/// What the key hash of a seed makes of constants: a snapshot of the index tells it.
#[must_use]
pub fn hash_check(seed: u64) -> u64 {
    KeyHash::new(seed).check()
}

impl ShardConfig {
    /// What connections may hold.
    pub(crate) fn client_bounds(&self) -> ClientBounds {
        ClientBounds {
            replies: self.replies_bytes_max,
            replies_of_one: self.output_bytes_max,
            input: self.input_bytes_max,
            longest_answer: self.hello.limits.value_bytes_max as usize + REPLY_HEAD_BYTES_MAX,
        }
    }

    /// How long connections may take.
    pub(crate) fn patience(&self) -> Patience {
        Patience {
            partial_frame_us_max: self.partial_frame_us_max,
            idle_us_max: self.idle_us_max,
            write_stall_us_max: self.write_stall_us_max,
        }
    }

    /// Bytes of answers to one other shard, and of items on their way to it, at most.
    pub(crate) fn mailed_bytes_max(&self) -> usize {
        self.replies_bytes_max / 4 / usize::from(self.topology.shards().max(2) - 1)
    }

    /// The partitions of its slots.
    fn partitions(&self) -> Vec<usize> {
        let firsts = (0..SLOTS).step_by(usize::from(SLOTS) / PARTITIONS);
        let all = (0..PARTITIONS).zip(firsts);
        all.filter(|&(_, slot)| self.topology.owner(slot) == self.shard)
            .map(|(partition, _)| partition)
            .collect()
    }
}

/// The configuration of a shard and what follows from it. Only the placement of its HELLO changes.
#[derive(Debug)]
pub(crate) struct Setup {
    config: ShardConfig,
    hash: KeyHash,
    partitions: Vec<usize>,
    frame_full_bytes: usize,
    answers_repeats: bool,
}

impl Setup {
    /// For a log of records of at most `record_bytes_max`.
    pub(crate) fn new(config: ShardConfig, record_bytes_max: usize) -> Self {
        // A record has room for two values, so half of it for the longest item.
        let item_bytes_max = record_bytes_max / 2;
        let frame_bytes_max = config.hello.limits.frame_bytes_max as usize;
        Setup {
            hash: KeyHash::new(config.hash_seed),
            partitions: config.partitions(),
            frame_full_bytes: frame_bytes_max.saturating_sub(item_bytes_max),
            answers_repeats: true,
            config,
        }
    }

    /// Whether repeated items are answered in runs, and plain items without an operation.
    pub(crate) fn answers_repeats(&self) -> bool {
        self.answers_repeats
    }

    /// Has each item run by itself from now on.
    pub(crate) fn leave_repeats(&mut self) {
        self.answers_repeats = false;
    }

    #[inline]
    pub(crate) fn config(&self) -> &ShardConfig {
        &self.config
    }

    /// The number of the shard.
    #[inline]
    pub(crate) fn shard(&self) -> u16 {
        self.config.shard
    }

    /// What clients may send.
    #[inline]
    pub(crate) fn limits(&self) -> &Limits {
        &self.config.hello.limits
    }

    /// The hash of keys.
    #[inline]
    pub(crate) fn hash(&self) -> &KeyHash {
        &self.hash
    }

    /// The partitions of its slots.
    pub(crate) fn partitions(&self) -> &[usize] {
        &self.partitions
    }

    /// Bytes at which a reply frame is ended, so that no frame is too long.
    #[inline]
    pub(crate) fn frame_full_bytes(&self) -> usize {
        self.frame_full_bytes
    }

    /// The shard that answers for a slot.
    #[inline]
    pub(crate) fn owner(&self, slot: u16) -> u16 {
        self.config.topology.owner(slot)
    }

    /// Whether this shard answers for a slot.
    #[inline]
    pub(crate) fn owns(&self, slot: u16) -> bool {
        self.owner(slot) == self.config.shard
    }

    /// Who writes what in the cluster has changed: clients are told by HELLO.
    pub(crate) fn place(&mut self, placement: Placement) {
        self.config.hello.placement = Some(placement);
    }
}
