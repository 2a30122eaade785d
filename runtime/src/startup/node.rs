//! A data directory made ready for a server or an embedding process: first for all shards together,
//! then each shard on the thread that will run it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use core_affinity::CoreId;
use penstock_net::hello::{
    AUTH_NONE, FEATURE_ABSENT_SINCE, FEATURE_ALL, FEATURE_APPLY, FEATURE_BEGAN, FEATURE_EXPIRY,
    FEATURE_KEYSPACES, FEATURE_MANY_KEYS, FEATURE_MEMBER_READS, FEATURE_ON_EXPIRE,
    FEATURE_PING_ITEMS, FEATURE_PLAN_CORE_PORTS, FEATURE_REPLACE, FEATURE_RUN, FEATURE_SCAN,
    FEATURE_SHOWN, FEATURE_TEXT_TOKENS, FEATURE_TOKENS, FEATURE_WRONG_TYPE, ServerHello,
};
use penstock_net::limits::Limits;
use penstock_net::link::NodeStart;
use penstock_shard::cluster::{ClusterConfig, NodeOffers};
use penstock_shard::lease::LeaseTable;
use penstock_shard::replication::PENDING_BYTES_MAX;
use penstock_shard::replication::handshake::Introduction;
use penstock_shard::replication::link_set::LinkSetConfig;
use penstock_shard::replication::sender::frame_bytes_needed;
use penstock_shard::{ShardConfig, SnapshotPolicy, Topology};
use penstock_storage::checksum::use_for_short;
use penstock_storage::cleaning::CleaningConfig;
use penstock_storage::io::BLOCK_BYTES;
use penstock_storage::log::SyncMethod;

pub(crate) use super::banner::Say;
use super::banner::{banner, report_rings};
use super::checks;
use super::clock_check::ClockCheck;
pub use super::error::OpenError;
pub(crate) use super::error::system;
use super::helpers::NodeHelpers;
use super::limits::{RoomFound, check_disk_bytes, check_file_bytes, hold_values, segment_bytes_of};
use super::membership::{check_directory, read_cluster, whose};
use super::redo_found::Found;
use super::retiming::RetimingThread;
use super::room::{ConnectionBound, Room};
pub(crate) use super::shard::{Opened, ShardStart};
use super::survey::survey;
use super::timing::time_disk;
use crate::cluster::plan::file::ClusterFile;
use crate::cluster::plan::seen::claim;
use crate::cluster::{LeaseParts, offered_features};
use crate::config::{Config, IoMode, segment_bytes_for};
use crate::directory::room::DiskRoom;
use crate::directory::{Directory, DirectoryOptions};
use crate::disk::{self, DiskOptions, RingPlan};
use crate::schema::RunningSchema;
use crate::stats::Stats;
use crate::system::boot_clock::BootClock;
use crate::system::checksum;
use crate::system::huge_pages::{self, Support};
use crate::system::memory::{self, MemoryBound, Watch};
use crate::system::wall::unix_ms;
use crate::system::{Resource, limit, raise_limit, random_u64, require_threads};

/// New log of a shard, if its records are short, after which it takes a snapshot of its index, in
/// bytes: a start need not read more of it. Of long records, and with a large index, it is more.
const SNAPSHOT_LOG_BYTES: u64 = 32 << 20;

/// How long a clean stop may wait for a snapshot of an index, in microseconds.
const SNAPSHOT_STOP_US_MAX: u64 = 3_000_000;

/// Version of the format of records, as links tell it.
const LOG_FORMAT: u32 = 1;
/// Bytes of records of each shard that are kept in memory for links.
const RING_BYTES: usize = 16 << 20;

/// Whose memory `memory_max` bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bound {
    /// The process's, which does nothing else. There always is one.
    Process,
    /// What index and values of all shards take, in a process that does other work besides.
    Data,
}

impl Bound {
    /// Bytes that a file of this process may have. A server raises its soft limit to the hard one;
    /// the limit of a process that embeds a store is the owner's.
    fn file_bytes_max(self) -> u64 {
        let limit = match self {
            Bound::Process => raise_limit(Resource::FileSize),
            Bound::Data => limit(Resource::FileSize),
        };
        // Where the limit is unknown, the first segment that cannot be made shows it.
        limit.map_or(u64::MAX, |limit| limit.soft)
    }
}

/// What HELLO says that each server can do. A node of a cluster adds its placement.
const FEATURES: u64 = FEATURE_EXPIRY
    | FEATURE_SCAN
    | FEATURE_KEYSPACES
    | FEATURE_MEMBER_READS
    | FEATURE_SHOWN
    | FEATURE_PING_ITEMS
    | FEATURE_APPLY
    | FEATURE_TOKENS
    | FEATURE_ON_EXPIRE
    | FEATURE_RUN
    | FEATURE_REPLACE
    | FEATURE_ABSENT_SINCE
    | FEATURE_BEGAN
    | FEATURE_ALL
    | FEATURE_PLAN_CORE_PORTS
    | FEATURE_MANY_KEYS
    | FEATURE_TEXT_TOKENS
    | FEATURE_WRONG_TYPE;

/// What all shards of a data directory start from. Holds the directory's lock and the thread that
/// makes segment files, so it is to outlive the shards.
pub(crate) struct Node {
    pub(crate) config: Arc<Config>,
    pub(crate) topology: Topology,
    pub(crate) stats: Arc<Stats>,
    allowed: Vec<CoreId>,
    inventory: Arc<Found>,
    helpers: NodeHelpers,
    disk_options: DiskOptions,
    /// What rings the shards get.
    pub(crate) rings: RingPlan,
    sync: SyncMethod,
    /// Times the disk again, if it was timed under load.
    _retiming: Option<RetimingThread>,
    /// Begins before anything else: what an earlier start has lent goes on, and is not known here.
    clock: BootClock,
    unix_ms_at_start: u64,
    /// Tells this start from one of a copy of the directory.
    start_id: u32,
    /// Segments begin short and grow with the log: a process that embeds a store may have many
    /// small ones. A server has its length from the first segment on, because the first thing that
    /// it sees may be a sale.
    starts_small: bool,
    room: Room,
    memory: Option<(Arc<MemoryBound>, Watch)>,
    cluster: Option<ClusterFile>,
    /// What leases and shards tell each other.
    leases: Arc<LeaseTable>,
    /// What the other nodes have offered to the shards.
    offers: Arc<NodeOffers>,
    /// Layouts and programs, if there are any.
    schema: Option<Arc<RunningSchema>>,
    /// Unlocked when it is dropped, so the last one: the threads above write in it to their end.
    pub(crate) directory: Directory,
}

impl Node {
    /// Locks the directory, begins its next incarnation, times the disk, bounds the memory and
    /// surveys the logs. A new directory gets `shards_of_new` shards if the configuration names no
    /// number.
    ///
    /// What this start changes for good, larger values and another number of shards, it changes
    /// when it is known to have room for them: no later start could take that back.
    ///
    /// # Errors
    /// [`OpenError`], whose text is one line that names the cause and what to do.
    pub(crate) fn open(
        mut config: Config,
        shards_of_new: u32,
        bound: Bound,
        say: Say,
    ) -> Result<Node, OpenError> {
        let (clock, unix_ms_at_start) = (BootClock::start(), unix_ms());
        require_threads().map_err(|error| OpenError::Option(error.to_string()))?;
        let allowed = checks::allowed_cores();
        check_cores(config.shards, &allowed)?;
        let (cluster, schema) = (read_cluster(&config)?, read_schema(&config)?);
        check_directory(&config, cluster.as_ref())?;
        let options = DirectoryOptions {
            shards_of_new: match config.shards {
                0 => shards_of_new,
                asked => u32::from(asked),
            },
            // What values of earlier starts need is known behind this.
            segment_bytes: segment_bytes_of(&config, config.shards.max(1), 0, None),
        };
        let file_bytes_max = bound.file_bytes_max();
        check_file_bytes(options.segment_bytes, file_bytes_max)?;
        let mut directory = Directory::open(&config.data, options).map_err(OpenError::Directory)?;
        let identity = directory.identity();
        let layout = identity
            .layout()
            .ok_or_else(|| OpenError::Option(format!("{} shards", identity.log_count)))?;
        let shards = match config.shards {
            0 => layout.shards,
            asked => asked,
        };
        check_cores(shards, &allowed)?;
        let value_bytes_of_before = identity.value_bytes_max;
        let room_found = RoomFound::of(&directory)?;
        config.segment_bytes =
            segment_bytes_of(&config, shards, value_bytes_of_before, Some(room_found));
        check_file_bytes(config.segment_bytes, file_bytes_max)?;
        let disk_mode = disk_mode(&config);
        banner(&config, &directory, shards, say);
        let rings = RingPlan::find(disk_mode, shards, bound == Bound::Process)
            .map_err(OpenError::Option)?;
        report_rings(&rings, say);
        let disk_options = rings.disk_options(disk_mode);
        hold_values(&mut config, value_bytes_of_before, say)?;
        let value_bytes = value_bytes_of_before.max(config.value_bytes_max);
        let short_bytes = segment_bytes_for(value_bytes).next_multiple_of(BLOCK_BYTES as u64);
        check_disk_bytes(&config, shards, short_bytes, value_bytes, (room_found, say))?;
        let room = Room::of(&config, bound == Bound::Process, shards, value_bytes);
        let memory = match bound {
            Bound::Process => Some(room.bound_memory(config.memory_max == 0, say)?),
            Bound::Data => room
                .check("memory_max", |room| Ok(room.data_share()))
                .map(|()| None)?,
        };
        use_machine(&config, room.memory_max());
        directory
            .accept_values(value_bytes, config.segment_bytes)
            .map_err(OpenError::Directory)?;
        let (sync, retiming) = time_disk(&directory, disk_options, say)?;
        let room_on_disk = DiskRoom::new(
            directory.segments().clone(),
            directory.key_tables().clone(),
            config.segment_bytes,
            config.disk_bytes_max,
        );
        let mut inventory = survey(
            &mut directory,
            &config,
            &room_on_disk,
            shards,
            cluster.is_some(),
        )?;
        directory.segments().progress().begin();
        let kept_bytes = u64::from(shards) * short_bytes;
        let helpers =
            NodeHelpers::start(&directory, &mut inventory, room_on_disk, kept_bytes, say)?;
        Ok(Node {
            topology: Topology::new(shards),
            stats: Arc::new(Stats::new(shards)),
            config: Arc::new(config),
            allowed,
            inventory: Arc::new(Found::new(inventory, shards)),
            helpers,
            disk_options,
            rings,
            sync,
            _retiming: retiming,
            clock,
            unix_ms_at_start,
            start_id: draw_start_id()?,
            starts_small: bound == Bound::Data,
            room,
            memory,
            cluster,
            leases: Arc::default(),
            offers: Arc::default(),
            schema,
            directory,
        })
    }

    /// Layouts and programs, if there are any.
    pub(crate) fn schema(&self) -> Option<Arc<RunningSchema>> {
        self.schema.clone()
    }

    /// Notes who the directory is in its cluster. All shards are open, so it is not refused any
    /// more, and none of them has written anything as a node of that cluster.
    pub(crate) fn claim_directory(&self) -> Result<(), OpenError> {
        match &self.cluster {
            Some(cluster) => claim(&self.config.data, whose(&self.config, cluster))
                .map_err(system("write PEERS in the data directory")),
            None => Ok(()),
        }
    }

    /// Where this node takes links, if it is one of a cluster.
    pub(crate) fn links_address(&self) -> Option<SocketAddr> {
        let cluster = self.cluster.as_ref()?;
        Some(cluster.node(self.config.cluster_node)?.links)
    }

    /// The cluster's file, if this node is one of a cluster.
    pub(crate) fn cluster_file(&self) -> Option<&ClusterFile> {
        self.cluster.as_ref()
    }

    /// The cluster, and what this node tells of itself in it.
    pub(crate) fn cluster(&self) -> Option<(ClusterFile, Introduction)> {
        let cluster = self.cluster.clone()?;
        let identity = self.directory.identity();
        let record_bytes_max =
            u32::try_from(self.room.record_bytes_max()).expect("values have at most 16 MiB");
        let me = Introduction {
            log_format: LOG_FORMAT,
            cluster_id: cluster.cluster_id,
            node_id: identity.node_id,
            start: NodeStart {
                incarnation: u32::try_from(identity.incarnation).expect("few starts"),
                start_id: self.start_id,
            },
            node: self.config.cluster_node,
            shard: 0,
            shards: self.shards(),
            record_bytes_max,
            frame_bytes_max: frame_bytes_needed(record_bytes_max),
        };
        Some((cluster, me))
    }

    /// What a shard needs of the cluster.
    fn cluster_of(&self, shard: u16) -> Option<ClusterConfig> {
        let (file, me) = self.cluster()?;
        Some(ClusterConfig {
            links: LinkSetConfig {
                me: Introduction { shard, ..me },
                ring_bytes_max: RING_BYTES,
                backlog_bytes_max: file.backlog_bytes_max,
                // At least one: zero is without a bound.
                catch_up_bytes_per_s: file.catch_up_bytes_per_s.div_ceil(u64::from(me.shards)),
                pending_bytes_max: PENDING_BYTES_MAX,
            },
            plan: Arc::new(file.plan()),
            leases: Arc::clone(&self.leases),
            offers: Arc::clone(&self.offers),
            replica_timeout_us: file.replica_timeout_us,
            is_new: self.config.cluster_new,
        })
    }

    /// The check of the clock of the machine that this start makes.
    pub(crate) fn clock_check(&self) -> ClockCheck {
        let wait = Duration::from_secs(self.config.clock_wait_s.into());
        ClockCheck::new(self.config.accept_time, wait)
    }

    /// The bound on the memory of the process, if it has one.
    pub(crate) fn memory(&self) -> Option<Arc<MemoryBound>> {
        self.memory.as_ref().map(|(bound, _)| Arc::clone(bound))
    }

    /// How many connections there may be at a time.
    pub(crate) fn connection_bound(&self) -> ConnectionBound {
        self.room.connection_bound()
    }

    /// What messages of channels may hold that subscribers have not taken, of all shards, and the
    /// same for names that are subscribed to.
    pub(crate) fn channel_bytes_max(&self) -> usize {
        self.room.channel_bytes_max()
    }

    /// Handshakes of TLS that may be under way on one core.
    pub(crate) fn handshakes_max(&self) -> u32 {
        self.room.handshakes_max()
    }

    /// The empty room that the connections of one core may keep, in bytes.
    pub(crate) fn kept_bytes_max(&self) -> usize {
        self.room.kept_bytes_max()
    }

    /// What leases of this node are made from.
    pub(crate) fn lease_parts(&self) -> LeaseParts {
        LeaseParts {
            clock: self.clock,
            table: Arc::clone(&self.leases),
            stats: Arc::clone(&self.stats),
        }
    }

    /// What the shards' time counts from.
    pub(crate) fn clock(&self) -> BootClock {
        self.clock
    }

    /// The wall clock at that moment, in milliseconds since 1970.
    pub(crate) fn unix_ms_at_start(&self) -> u64 {
        self.unix_ms_at_start
    }

    /// What HELLO offers of the features of this build. A cluster takes no texts as tokens.
    fn own_features(&self) -> u64 {
        match &self.cluster {
            Some(_) => FEATURES & !FEATURE_TEXT_TOKENS,
            None => FEATURES,
        }
    }

    /// How many shards there are.
    pub(crate) fn shards(&self) -> u16 {
        self.topology.shards()
    }

    /// What one shard starts from; moves to its thread. `port_of` is for clients that know the map.
    pub(crate) fn shard(
        &self,
        shard: u16,
        port_of: impl Fn(u16) -> u16,
    ) -> Result<ShardStart, OpenError> {
        let (config, identity) = (&self.config, self.directory.identity());
        assert!(
            identity.value_bytes_max >= config.value_bytes_max,
            "a value would be accepted that a later start has no room for"
        );
        let hello = ServerHello {
            protocol: 1,
            shard,
            shard_count: self.shards(),
            auth_methods: AUTH_NONE,
            cluster_id: match &self.cluster {
                Some(cluster) => cluster.cluster_id,
                None => identity.cluster_id,
            },
            node_id: identity.node_id,
            incarnation: identity.incarnation,
            features: offered_features(self.own_features()),
            nonce: [0; 32],
            limits: Limits {
                frame_bytes_max: config.frame_bytes_max,
                value_bytes_max: config.value_bytes_max,
            },
            time_ms: 0,
            interval_ms: config.interval_ms,
            slots: self.topology.ranges(port_of),
            placement: None,
        };
        let shard_config = ShardConfig {
            shard,
            topology: self.topology,
            hello,
            level_min: config.durability,
            output_bytes_max: usize::try_from(config.output_bytes_max).unwrap_or(usize::MAX),
            shared_bytes_min: usize::MAX,
            partial_frame_us_max: u64::from(config.partial_frame_timeout_ms) * 1000,
            write_stall_us_max: u64::from(config.write_stall_timeout_ms) * 1000,
            idle_us_max: u64::from(config.idle_timeout_s) * 1_000_000,
            replies_bytes_max: self.room.replies_bytes_max(),
            input_bytes_max: self.room.input_bytes_max(),
            parked_bytes_max: self.room.parked_bytes_max(),
            mailed_items_max: 64 * 1024,
            memory_max: self.room.memory_max().unwrap_or(0),
            token_horizon_ms: u64::from(config.token_horizon_s) * 1000,
            hash_seed: identity.hash_seed,
            cleaning: CleaningConfig {
                space_percent_max: config.space_percent_max,
                bytes_per_s: config.cleaning_bytes_per_s,
                log_bytes_max: config.disk_bytes_max / u64::from(self.shards()),
            },
            snapshots: SnapshotPolicy {
                log_bytes: SNAPSHOT_LOG_BYTES,
                stop_us_max: SNAPSHOT_STOP_US_MAX,
            },
            takes_several_shards: config.resp_several_shards && self.cluster.is_none(),
            cluster: self.cluster_of(shard),
        };
        Ok(ShardStart {
            shard,
            core: self.allowed.get(usize::from(shard)).copied(),
            config: Arc::clone(config),
            shard_config,
            record_bytes_max: self.room.record_bytes_max(),
            starts_small: self.starts_small,
            owner: self.directory.owner(),
            inventory: Arc::clone(&self.inventory),
            segments: self.directory.segments().clone(),
            spares: self.helpers.spares.handle(),
            schema: self
                .schema
                .as_ref()
                .map(|it| Arc::new(it.in_force().served())),
            snapshots: self.directory.snapshots().clone(),
            snapshot_writer: self.helpers.snapshot_writers.handle(),
            key_tables_left: Arc::clone(&self.helpers.key_tables_left),
            key_table_maker: self.helpers.key_table_makers.handle(),
            lock_loss: self.helpers.lock_watch.loss(),
            disk_options: self.disk_options,
            sync: self.sync,
            stats: Arc::clone(&self.stats),
            memory: self.memory(),
            data_share: self.room.data_share(),
            arena: self.room.arena_layout(),
            cells_bytes_min: self.room.cells_bytes_min(),
            clock: self.clock,
            unix_ms_at_start: self.unix_ms_at_start,
        })
    }
}

/// A number for this start, other than 0. Another start has another one.
fn draw_start_id() -> Result<u32, OpenError> {
    let random = random_u64().map_err(system("draw random numbers"))?;
    Ok(u32::try_from(random >> 32).expect("a half").max(1))
}

/// The schema that the configuration names.
fn read_schema(config: &Config) -> Result<Option<Arc<RunningSchema>>, OpenError> {
    let Some(directory) = &config.schema else {
        return Ok(None);
    };
    match RunningSchema::begin(directory, config.frame_bytes_max) {
        Ok(schema) => Ok(Some(Arc::new(schema))),
        Err(error) => Err(OpenError::Option(format!("the schema: {error}"))),
    }
}

/// The engine of the disk, as the option names it.
fn disk_mode(config: &Config) -> disk::IoMode {
    match config.io {
        IoMode::Auto => disk::IoMode::Auto,
        IoMode::Uring => disk::IoMode::Uring,
        IoMode::Threads => disk::IoMode::Threads,
    }
}

/// Refuses more shards than CPUs.
fn check_cores(shards: u16, allowed: &[CoreId]) -> Result<(), OpenError> {
    match usize::from(shards) <= allowed.len() {
        true => Ok(()),
        false => Err(OpenError::Cores {
            shards: u32::from(shards),
            allowed: allowed.len(),
        }),
    }
}

/// Takes what the machine offers: instructions for checksums, and huge pages where the kernel gives
/// them on request. Values get `cache_bytes` at most, and no more than the process may take.
fn use_machine(config: &Config, memory_max: Option<u64>) {
    if let Some(crc32) = checksum::of_short() {
        use_for_short(crc32);
    }
    if huge_pages::support().0 == Support::OnRequest {
        huge_pages::allow(memory::available_bytes());
        let values_bytes = config.cache_bytes.min(memory_max.unwrap_or(u64::MAX));
        let ahead_bytes = values_bytes / 100 * u64::from(config.prefault_percent);
        huge_pages::prefault_ahead(ahead_bytes, values_bytes);
    }
}
