//! A data directory made ready to be served, whoever serves it: first for all shards together, then
//! each shard on the thread that will run it.

use std::collections::HashMap;
use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;
use std::{fmt, io};

use core_affinity::CoreId;
use penstock_net::hello::{
    AUTH_NONE, FEATURE_EXPIRY, FEATURE_KEYSPACES, FEATURE_MEMBER_READS, FEATURE_SCAN,
    FEATURE_SHOWN, ServerHello,
};
use penstock_net::limits::Limits;
use penstock_net::link::NodeStart;
use penstock_shard::linked::ClusterConfig;
use penstock_shard::opening::{
    self, Inventory, OpeningError, SegmentFiles, change_shards, take_inventory,
};
use penstock_shard::replication::PENDING_BYTES_MAX;
use penstock_shard::replication::handshake::Introduction;
use penstock_shard::replication::links::LinksConfig;
use penstock_shard::replication::sender::frame_bytes_needed;
use penstock_shard::{ShardConfig, SnapshotPolicy, Topology};
use penstock_storage::budget::Budget;
use penstock_storage::cleaning::CleaningConfig;
use penstock_storage::io::BLOCK_BYTES;
use penstock_storage::log::{LogConfig, SPARES_READY, SyncMethod};
use penstock_storage::place::FileId;
use penstock_storage::recovery::RecoveryError;
use penstock_storage::segment::Owner;
use penstock_storage::sizing::{DiskShare, SEGMENTS_BESIDE, segment_bytes_within};
use penstock_storage::snapshot::SnapshotName;
use tracing::warn;

use crate::cluster::file::{ClusterFile, numbers_of};
use crate::cluster::seen::{NAME as PEERS, Whose, check, claim, hex};
use crate::config::{
    Config, FRAME_BYTES, HugePageMode, IoMode, record_bytes_for, segment_bytes_for, size_text,
};
use crate::directory::ReadAhead;
use crate::directory::identity::Identity;
use crate::directory::key_table_makers::{KeyTableHandle, KeyTableMakers};
use crate::directory::room::DiskRoom;
use crate::directory::set_aside;
use crate::directory::snapshots::{SnapshotFolder, SnapshotHandle, SnapshotWriters};
use crate::directory::spares::{SpareHandle, Spares, TakingOver};
use crate::directory::{
    Directory, DirectoryError, DirectoryOptions, SegmentReader, Segments, read_at, write_identity,
};
use crate::disk::arena::{Arena, ArenaLayout};
use crate::disk::{self, Disk, DiskOptions, RingPlan};
use crate::event_loop::engine::{Engine, Helpers};
use crate::event_loop::publisher::Publisher;
use crate::event_loop::supply::{DeliverSpare, SegmentSupply};
use crate::startup::calibration::{self, calibrate};
use crate::startup::checks::{self, Demand};
use crate::startup::retiming::{Retiming, RetimingThread};
use crate::stats::{ServerFacts, Stats};
use crate::system as process;
use crate::system::advice;
use crate::system::advice::Problem;
use crate::system::huge_pages::{self, Support};
use crate::system::memory::{self, Fixed, MemoryBound, Watch};
use crate::system::open_files::TooFewOpenFiles;
use crate::system::wall::unix_ms;

/// Why a data directory cannot be served.
#[derive(Debug)]
pub enum OpenError {
    /// The data directory cannot be used.
    Directory(DirectoryError),
    /// What stands in the data directory is damaged or not ours. No record was touched.
    Refused {
        /// The data directory.
        data: PathBuf,
        /// Why.
        refusal: RecoveryError,
    },
    /// What stands in the data directory cannot be served, for another reason.
    Opening(OpeningError),
    /// More shards than the CPUs that the process may use.
    Cores {
        /// Shards asked for.
        shards: u32,
        /// CPUs allowed.
        allowed: usize,
    },
    /// An option has a value that this machine or another option forbids.
    Option(String),
    /// The limit of open files is too low.
    OpenFiles(TooFewOpenFiles),
    /// The system refused something else.
    System {
        /// What was tried.
        action: &'static str,
        /// What the system said.
        error: io::Error,
    },
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::Directory(error) => error.fmt(f),
            OpenError::Refused { data, refusal } => {
                let told = refusal.within(&data.to_string_lossy()).to_string();
                write!(
                    f,
                    "{told}; no record was touched; to see all: {}",
                    advice::inspect(data)
                )?;
                match refusal.is_damage() {
                    true => write!(
                        f,
                        "; to see what a mend would give up: {}",
                        advice::repair(data)
                    ),
                    false => Ok(()),
                }
            }
            OpenError::Opening(error) => error.fmt(f),
            OpenError::Cores { shards, allowed } => write!(
                f,
                "--shards {shards} needs as many CPUs, and this process may use {allowed}: ask for at most {allowed}"
            ),
            OpenError::Option(text) => f.write_str(text),
            OpenError::OpenFiles(error) => error.fmt(f),
            OpenError::System { action, error } => write!(f, "cannot {action}: {error}"),
        }
    }
}

impl std::error::Error for OpenError {}

/// Why the shards of the data directory `data` could not be opened.
fn opening(data: &Path) -> impl Fn(OpeningError) -> OpenError {
    move |error| match error {
        OpeningError::Recovery(refusal) => OpenError::Refused {
            data: data.into(),
            refusal,
        },
        error => OpenError::Opening(error),
    }
}

/// Whether a generation of logs for `shards` has the room that it takes: what is there stays as a whole until the
/// `counted_bytes` of it that count are written again. Without that neither would ever end, and in the end deletions
/// would be refused.
fn check_change(
    config: &Config,
    room: &DiskRoom,
    inventory: &Inventory,
    shards: u16,
    counted_bytes: u64,
) -> Result<(), OpenError> {
    const ACTION: &str = "look how much room the disk has";
    // What is rewritten takes no spare, and frames are not filled to the last byte.
    let segments = u64::from(shards) * (1 + SPARES_READY as u64);
    let needed = counted_bytes + counted_bytes / 16 + segments * config.segment_bytes;
    let left = &inventory.left;
    let spares = left.spares.iter().chain(&left.superfluous);
    let spare_bytes: u64 = spares.map(|(_, bytes)| bytes).sum();
    let missing = needed.saturating_sub(spare_bytes);
    if room.has_for_segment(missing).map_err(system(ACTION))? {
        return Ok(());
    }
    let taken = room.segments().bytes().map_err(system(ACTION))? - spare_bytes;
    let limit = match config.disk_bytes_max {
        0 => "the disk has less".to_string(),
        max => format!("disk_bytes_max {max} or the disk leaves less"),
    };
    Err(OpenError::Option(format!(
        "--shards {shards}: the segments of --shards {} take {} MiB and stay until what counts in them, about {} MiB, is written again. That needs {} MiB beside them, and {limit}: start with --shards {} as before, or with room for {} MiB",
        inventory.layout.shards,
        taken.div_ceil(1 << 20),
        counted_bytes.div_ceil(1 << 20),
        needed.div_ceil(1 << 20),
        inventory.layout.shards,
        // A start as before takes a segment of each shard.
        (taken + needed + u64::from(inventory.layout.shards) * config.segment_bytes)
            .div_ceil(1 << 20),
    )))
}

/// Reads the cluster's file, if there is one.
fn read_cluster(config: &Config) -> Result<Option<ClusterFile>, OpenError> {
    let Some(path) = &config.cluster else {
        return match config.cluster_node {
            0 if config.cluster_new => Err(OpenError::Option(
                "--cluster-new is given, and no --cluster".into(),
            )),
            0 => Ok(None),
            number => Err(OpenError::Option(format!(
                "--cluster-node {number} is given, and no --cluster"
            ))),
        };
    };
    let file = ClusterFile::read(path).map_err(|error| OpenError::Option(error.to_string()))?;
    match file.node(config.cluster_node) {
        Some(_) => Ok(Some(file)),
        None if config.cluster_node == 0 => Err(OpenError::Option(format!(
            "--cluster {} is given, and no --cluster-node: it has {}",
            path.display(),
            numbers_of(&file.nodes)
        ))),
        None => Err(OpenError::Option(format!(
            "--cluster-node {}: {} has no such node, it has {}",
            config.cluster_node,
            path.display(),
            numbers_of(&file.nodes)
        ))),
    }
}

/// Who the directory is to be in its cluster.
fn whose(config: &Config, cluster: &ClusterFile) -> Whose {
    Whose {
        cluster_id: cluster.cluster_id,
        node: config.cluster_node,
    }
}

/// Refuses a directory of another node or of another cluster, and that of a node of a cluster to a node alone.
fn check_directory(config: &Config, cluster: Option<&ClusterFile>) -> Result<(), OpenError> {
    if !config.data.is_dir() {
        // New, or none: the opening tells.
        return Ok(());
    }
    let checked = check(&config.data, cluster.map(|cluster| whose(config, cluster)));
    let peers = config.data.join(PEERS);
    let Err(other) = checked.map_err(|error| {
        OpenError::Directory(DirectoryError::io(&peers, "read", error).of(&config.data))
    })?
    else {
        return Ok(());
    };
    let (data, node) = (config.data.display(), config.cluster_node);
    Err(match cluster {
        None => OpenError::Opening(OpeningError::OfCluster),
        Some(cluster) if other.cluster_id == cluster.cluster_id => OpenError::Option(format!(
            "--cluster-node {node}: {data} holds the data of node {}; a node starts with its own directory or with an empty one",
            other.node
        )),
        Some(cluster) => OpenError::Option(format!(
            "{data} holds the data of node {} of cluster {}, and the cluster's file is that of {}",
            other.node,
            hex(other.cluster_id),
            hex(cluster.cluster_id)
        )),
    })
}

/// What `action` was refused with.
pub(crate) fn system(action: &'static str) -> impl Fn(io::Error) -> OpenError {
    move |error| OpenError::System { action, error }
}

/// How long a clean stop may wait for a snapshot of an index, in microseconds.
const SNAPSHOT_STOP_US_MAX: u64 = 3_000_000;

/// Version of the format of records, as links tell it.
const LOG_FORMAT: u32 = 1;
/// Bytes of records of each shard that are kept in memory for links.
const RING_BYTES: usize = 16 << 20;

/// Takes a line for people.
pub(crate) type Say = fn(fmt::Arguments<'_>);

/// The least that index and values of a shard need: an index without keys, and values on their way to
/// the disk.
const SHARE_BYTES_MIN: usize = 8 << 20;
const CANNOT_LOOK: &str = "read how much memory the process takes";
/// Segments of the smallest length that a shard needs to write, clean and tell a release.
const SEGMENTS_MIN: u64 = 3;
/// Beside the mapping of a shard's disk at least so much can be had, and the largest record.
const OVERFLOW_BYTES_MIN: usize = 2 << 20;
/// Most that the operations of a shard that wait for cold keys hold.
const PARKED_BYTES_MAX: usize = 64 << 20;
/// Names of files that are not ours that a start tells.
const STRANGERS_SHOWN_MAX: usize = 3;
/// Most that the connections of a shard have sent that is not run.
const INPUT_BYTES_MAX: usize = 256 << 20;
/// Most that the replies of a shard's connections hold.
const REPLIES_BYTES_MAX: usize = 256 << 20;
/// Blocks of this size go back to the system when they are freed: pages of cells are larger.
const MAPPED_BLOCK_BYTES: u32 = 192 << 10;

/// Whose memory `memory_max` bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bound {
    /// The process's, which does nothing else. There always is one.
    Process,
    /// What index and values of all shards take, in a process that does other work besides.
    Data,
}

/// What all shards of a data directory start from. Holds the directory's lock and the thread that
/// makes segment files, so it is to outlive the shards.
pub(crate) struct Node {
    pub(crate) config: Arc<Config>,
    pub(crate) topology: Topology,
    pub(crate) stats: Arc<Stats>,
    allowed: Vec<CoreId>,
    owner: Owner,
    inventory: Arc<Inventory>,
    spares: Spares,
    snapshot_writers: SnapshotWriters,
    key_table_makers: KeyTableMakers,
    /// Of which segments an earlier run left key tables, and the bytes of these.
    key_tables_left: Arc<HashMap<FileId, u64>>,
    disk_options: DiskOptions,
    /// What rings the shards get.
    pub(crate) rings: RingPlan,
    sync: SyncMethod,
    /// Times the disk again, if it was timed under load.
    _retiming: Option<RetimingThread>,
    clock: Instant,
    unix_ms_at_start: u64,
    /// Tells this start from one of a copy of the directory.
    start_id: u32,
    /// Segments begin short and grow with the log: a process that embeds a store may have many small ones. A server
    /// has its length from the first segment on, because the first thing that it sees may be a sale.
    starts_small: bool,
    room: Room,
    memory: Option<(Arc<MemoryBound>, Watch)>,
    cluster: Option<ClusterFile>,
    /// Unlocked when it is dropped, so the last one: the threads above write in it to their end.
    pub(crate) directory: Directory,
}

impl Node {
    /// Locks the directory, begins its next incarnation, times the disk, bounds the memory and surveys the
    /// logs. A new directory gets `shards_of_new` shards if the configuration names no number.
    ///
    /// What this start changes for good, larger values and another number of shards, it changes when it is
    /// known to have room for them: no later start could take that back.
    ///
    /// # Errors
    /// [`OpenError`], whose text is one line that names the cause and what to do.
    pub(crate) fn open(
        mut config: Config,
        shards_of_new: u32,
        bound: Bound,
        say: Say,
    ) -> Result<Node, OpenError> {
        let allowed = checks::allowed_cores();
        let too_many = |shards: u32| match usize::try_from(shards) {
            Ok(wanted) if wanted <= allowed.len() => Ok(()),
            _ => Err(OpenError::Cores {
                shards,
                allowed: allowed.len(),
            }),
        };
        too_many(u32::from(config.shards))?;
        let cluster = read_cluster(&config)?;
        check_directory(&config, cluster.as_ref())?;
        let options = DirectoryOptions {
            shards_of_new: match config.shards {
                0 => shards_of_new,
                asked => u32::from(asked),
            },
            // What values of earlier starts need is known behind this.
            segment_bytes: segment_bytes_of(&config, config.shards.max(1), 0),
        };
        let mut directory = Directory::open(&config.data, options).map_err(OpenError::Directory)?;
        let identity = directory.identity().clone();
        let layout = identity
            .layout()
            .ok_or_else(|| OpenError::Option(format!("{} shards", identity.log_count)))?;
        let shards = match config.shards {
            0 => layout.shards,
            asked => asked,
        };
        too_many(u32::from(shards))?;
        config.segment_bytes = segment_bytes_of(&config, shards, identity.value_bytes_max);

        let disk_mode = match config.io {
            IoMode::Auto => disk::IoMode::Auto,
            IoMode::Uring => disk::IoMode::Uring,
            IoMode::Threads => disk::IoMode::Threads,
        };
        banner(&config, &directory, shards, say);
        let rings = RingPlan::find(disk_mode, shards, bound == Bound::Process)
            .map_err(OpenError::Option)?;
        tell_rings(&rings, say);
        let disk_options = rings.disk_options(disk_mode);
        hold_values(&mut config, identity.value_bytes_max, say)?;
        let value_bytes = identity.value_bytes_max.max(config.value_bytes_max);
        let short_bytes = segment_bytes_for(value_bytes).next_multiple_of(BLOCK_BYTES as u64);
        check_disk_bytes(&config, shards, short_bytes, value_bytes, say)?;
        let room = Room {
            shards,
            memory_max: match (bound, config.memory_max) {
                (Bound::Process, 0) => Some(memory::default_bytes()),
                (Bound::Data, 0) => None,
                (_, max) => Some(max),
            },
            value_bytes,
            frame_bytes_max: config.frame_bytes_max,
        };
        let memory = match bound {
            Bound::Process => Some(room.bound_memory(config.memory_max == 0, say)?),
            Bound::Data => room
                .check("memory_max", |room| Ok(room.data_share()))
                .map(|()| None)?,
        };
        if config.huge_pages == HugePageMode::Auto && huge_pages::support().0 == Support::OnRequest
        {
            huge_pages::allow(memory::available_bytes());
        }
        directory
            .accept_values(value_bytes, config.segment_bytes)
            .map_err(OpenError::Directory)?;
        // On a thread of its own: the kernel keeps the workers that a sync needed for as long as the
        // thread lives, and the shards are to show none.
        let is_anew = config.calibrate;
        let (sync, retiming) = std::thread::scope(|scope| {
            let timed = scope.spawn(|| calibrate_disk(&directory, disk_options, is_anew, say));
            timed.join().expect("calibration does not panic")
        })?;
        let retiming = retiming.map(Retiming::start).transpose();
        let retiming = retiming.map_err(system("start the thread that times the disk"))?;
        let owner = Owner {
            cluster_id: identity.cluster_id,
            node_id: identity.node_id,
        };
        let (segments, snapshots) = (directory.segments().clone(), directory.snapshots().clone());
        let mut files = NodeFiles::new(&segments, &snapshots);
        let mut inventory = take_inventory(&mut files, owner, &layout, config.segment_bytes)
            .map_err(opening(&config.data))?;
        for rotten in &inventory.rotten {
            set_aside::tell(&segments, rotten);
        }
        let room_on_disk = DiskRoom::new(
            directory.segments().clone(),
            directory.key_tables().clone(),
            config.segment_bytes,
            config.disk_bytes_max,
        );
        if shards != layout.shards {
            let changed = change_shards(
                &mut files,
                &inventory,
                owner,
                shards,
                identity.incarnation,
                cluster.is_some(),
            )
            .map_err(opening(&config.data))?;
            check_change(
                &config,
                &room_on_disk,
                &inventory,
                shards,
                changed.counted_bytes,
            )?;
            let layout = changed.layout;
            // They tell of logs that are inherited from now on.
            snapshots.remove_all().map_err(system("remove snapshots"))?;
            directory
                .change_layout(&layout)
                .map_err(OpenError::Directory)?;
            inventory = take_inventory(&mut files, owner, &layout, config.segment_bytes)
                .map_err(opening(&config.data))?;
        }
        directory.segments().progress().begin();
        let kept_bytes = u64::from(shards) * short_bytes;
        // The limit may be a lower one than before. No start needs a table: one that cannot be removed, or listed, is
        // with a later one.
        let _ = room_on_disk.clear_for_segment(0);
        let key_table_makers = KeyTableMakers::start(room_on_disk.clone(), identity.hash_seed)
            .map_err(system("start the thread that makes key tables"))?;
        let key_tables_left = directory.key_tables().list().unwrap_or_default();
        let spares = Spares::start(
            room_on_disk,
            owner,
            kept_bytes,
            std::mem::take(&mut inventory.left),
        )
        .map_err(system("start the thread that prepares segments"))?;
        if !inventory.layout.inherited.is_empty() {
            spares.expect(taking_over(&directory, &inventory, say));
        }
        let random = process::random_u64().map_err(system("draw random numbers"))?;
        // 0 is unknown.
        let start_id = u32::try_from(random >> 32).expect("a half").max(1);
        let snapshot_writers = SnapshotWriters::start(directory.snapshots().clone())
            .map_err(system("start the thread that writes snapshots"))?;
        Ok(Node {
            topology: Topology::new(shards),
            stats: Arc::new(Stats::new(shards)),
            config: Arc::new(config),
            allowed,
            owner,
            inventory: Arc::new(inventory),
            spares,
            snapshot_writers,
            key_table_makers,
            key_tables_left: Arc::new(key_tables_left.into_iter().collect()),
            disk_options,
            rings,
            sync,
            _retiming: retiming,
            clock: Instant::now(),
            unix_ms_at_start: unix_ms(),
            start_id,
            starts_small: bound == Bound::Data,
            room,
            memory,
            cluster,
            directory,
        })
    }

    /// Notes who the directory is in its cluster. All shards are open, so it is not refused any more, and none of
    /// them has written anything as a node of that cluster.
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
            links: LinksConfig {
                me: Introduction { shard, ..me },
                ring_bytes_max: RING_BYTES,
                backlog_bytes_max: file.backlog_bytes_max,
                // At least one: zero is without a bound.
                catch_up_bytes_per_s: file.catch_up_bytes_per_s.div_ceil(u64::from(me.shards)),
                pending_bytes_max: PENDING_BYTES_MAX,
            },
            plan: Arc::new(file.plan()),
            replica_timeout_us: file.replica_timeout_us,
            is_new: self.config.cluster_new,
        })
    }

    /// The bound on the memory of the process, if it has one.
    pub(crate) fn memory(&self) -> Option<Arc<MemoryBound>> {
        self.memory.as_ref().map(|(bound, _)| Arc::clone(bound))
    }

    /// What the shards' time counts from.
    pub(crate) fn clock(&self) -> Instant {
        self.clock
    }

    /// The wall clock at that moment, in milliseconds since 1970.
    pub(crate) fn unix_ms_at_start(&self) -> u64 {
        self.unix_ms_at_start
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
            features: FEATURE_EXPIRY
                | FEATURE_SCAN
                | FEATURE_KEYSPACES
                | FEATURE_MEMBER_READS
                | FEATURE_SHOWN,
            nonce: [0; 32],
            limits: Limits {
                frame_bytes_max: config.frame_bytes_max,
                value_bytes_max: config.value_bytes_max,
            },
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
            memory_max: self.room.memory_max.unwrap_or(0),
            hash_seed: identity.hash_seed,
            cleaning: CleaningConfig {
                space_percent_max: config.space_percent_max,
                bytes_per_s: config.cleaning_bytes_per_s,
                log_bytes_max: config.disk_bytes_max / u64::from(self.shards()),
            },
            snapshots: SnapshotPolicy {
                log_bytes: config.snapshot_bytes,
                stop_us_max: SNAPSHOT_STOP_US_MAX,
            },
            cluster: self.cluster_of(shard),
        };
        Ok(ShardStart {
            shard,
            core: self.allowed.get(usize::from(shard)).copied(),
            config: Arc::clone(config),
            shard_config,
            record_bytes_max: self.room.record_bytes_max(),
            starts_small: self.starts_small,
            owner: self.owner,
            inventory: Arc::clone(&self.inventory),
            segments: self.directory.segments().clone(),
            spares: self.spares.handle(),
            snapshots: self.directory.snapshots().clone(),
            snapshot_writer: self.snapshot_writers.handle(),
            key_tables_left: Arc::clone(&self.key_tables_left),
            key_table_maker: self.key_table_makers.handle(),
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

/// The memory that the shards of a process may take, and what each of them gets of it.
#[derive(Clone, Copy, Debug)]
struct Room {
    shards: u16,
    memory_max: Option<u64>,
    /// The largest value that earlier starts accepted or this one accepts, in bytes.
    value_bytes: u32,
    /// The largest frame of a client.
    frame_bytes_max: u32,
}

impl Room {
    /// Bounds the memory of the process, before any shard is opened; the bound holds while the thread that
    /// watches it lives.
    ///
    /// # Errors
    /// [`OpenError::Option`] if so little is left that no shard can work.
    fn bound_memory(
        &self,
        is_default: bool,
        say: Say,
    ) -> Result<(Arc<MemoryBound>, Watch), OpenError> {
        process::map_blocks_from(MAPPED_BLOCK_BYTES);
        let bound = self.bound().map_err(system(CANNOT_LOOK))?;
        let max = bound.max();
        self.check("--memory-max", |room| room.bound().map(|it| it.share()))?;
        say(format_args!(
            "memory       at most {} MiB{}, of which {} MiB for index and values",
            max >> 20,
            match is_default {
                true => " (three quarters of what there is)",
                false => "",
            },
            (bound.share() as u64 * u64::from(self.shards)) >> 20
        ));
        if let Some(problem) = memory::beyond_problem(max, memory::available_bytes()) {
            tell_problem(&problem, say);
        }
        let bound = Arc::new(bound);
        let watch = bound
            .watch()
            .map_err(system("start the thread that watches the memory"))?;
        Ok((bound, watch))
    }

    /// The bound on the process, as if it were to begin now.
    fn bound(&self) -> io::Result<MemoryBound> {
        let layout = self.arena_layout();
        let fixed = Fixed {
            buffer_bytes: (layout.bytes()
                + layout.overflow_bytes_max
                + self.parked_bytes_max()
                + self.input_bytes_max()) as u64,
            cells_bytes_min: self.cells_bytes_min() as u64,
        };
        let max = self.memory_max.expect("a process has a bound");
        MemoryBound::new(max, self.shards, fixed)
    }

    /// Whether a shard can work with what is its `share` for index and values; `name` is the option's.
    fn check(
        &self,
        name: &str,
        share: impl Fn(&Room) -> io::Result<usize>,
    ) -> Result<(), OpenError> {
        let is_enough = |max: u64| {
            let room = Room {
                memory_max: Some(max),
                ..*self
            };
            share(&room).map(|share| share >= SHARE_BYTES_MIN)
        };
        let Some(max) = self.memory_max else {
            return Ok(());
        };
        if is_enough(max).map_err(system(CANNOT_LOOK))? {
            return Ok(());
        }
        // By halves between what is not enough and what is.
        let (mut little, mut enough) = (max, max.max(1 << 20));
        while enough < 1 << 60 && !is_enough(enough).map_err(system(CANNOT_LOOK))? {
            (little, enough) = (enough, 2 * enough);
        }
        while enough - little > 1 << 20 {
            let middle = little + (enough - little) / 2;
            match is_enough(middle).map_err(system(CANNOT_LOOK))? {
                true => enough = middle,
                false => little = middle,
            }
        }
        Err(OpenError::Option(format!(
            "{name} {max} leaves each of {} shards less than the {SHARE_BYTES_MIN} bytes that index and values need: raise it to {} MiB; values of up to {} bytes may be there",
            self.shards,
            // The next start may find a little more taken.
            enough.div_ceil(1 << 20) + 1,
            self.value_bytes
        )))
    }

    /// What a bound on all leaves a shard.
    fn share_of(&self, max: u64) -> usize {
        usize::try_from(max / u64::from(self.shards)).unwrap_or(usize::MAX)
    }

    /// What index and values of one shard may take beside what its cells may in any case, where nothing
    /// is measured.
    fn data_share(&self) -> usize {
        self.memory_max.map_or(usize::MAX, |max| {
            self.share_of(max).saturating_sub(self.cells_bytes_min())
        })
    }

    /// The memory of a shard's disk: within a bound on all, what comes beside the mapping is less.
    fn arena_layout(&self) -> ArenaLayout {
        let usual = ArenaLayout::default();
        let wanted = self.memory_max.map_or(usual.overflow_bytes_max, |max| {
            self.share_of(max / 32).clamp(
                OVERFLOW_BYTES_MIN,
                usual.overflow_bytes_max.max(OVERFLOW_BYTES_MIN),
            )
        });
        // The largest record needs a block, and cleaning a chunk as large beside it.
        let least = 2 * self.record_bytes_max() + OVERFLOW_BYTES_MIN;
        ArenaLayout {
            overflow_bytes_max: wanted.max(least),
            ..usual
        }
    }

    /// What the operations that wait for cold keys may hold, of one shard.
    fn parked_bytes_max(&self) -> usize {
        self.memory_max.map_or(PARKED_BYTES_MAX, |max| {
            self.share_of(max / 32).min(PARKED_BYTES_MAX)
        })
    }

    /// What the replies of a shard's connections may hold: all together no more than grows unseen between
    /// two looks at the memory, but for two of the largest.
    fn replies_bytes_max(&self) -> usize {
        self.memory_max
            .map_or(REPLIES_BYTES_MAX, |max| {
                self.share_of(max / 16).min(REPLIES_BYTES_MAX)
            })
            .max(self.record_bytes_max())
    }

    /// What the connections of a shard may have sent that is not run.
    fn input_bytes_max(&self) -> usize {
        let least = 2 * self.frame_bytes_max as usize;
        self.memory_max
            .map_or(INPUT_BYTES_MAX, |max| {
                self.share_of(max / 32).min(INPUT_BYTES_MAX)
            })
            .max(least)
    }

    /// What the cells of a shard may take in any case.
    fn cells_bytes_min(&self) -> usize {
        Budget::cells_bytes_min(usize::try_from(self.value_bytes).unwrap_or(usize::MAX / 8))
    }

    /// The largest record that the logs may hold or take, in bytes.
    fn record_bytes_max(&self) -> usize {
        record_bytes_for(self.value_bytes)
    }
}

/// What one shard starts from.
pub(crate) struct ShardStart {
    pub(crate) shard: u16,
    pub(crate) core: Option<CoreId>,
    pub(crate) config: Arc<Config>,
    pub(crate) shard_config: ShardConfig,
    pub(crate) record_bytes_max: usize,
    pub(crate) owner: Owner,
    pub(crate) inventory: Arc<Inventory>,
    pub(crate) segments: Segments,
    pub(crate) spares: SpareHandle,
    pub(crate) starts_small: bool,
    pub(crate) snapshots: SnapshotFolder,
    pub(crate) snapshot_writer: SnapshotHandle,
    pub(crate) key_tables_left: Arc<HashMap<FileId, u64>>,
    pub(crate) key_table_maker: KeyTableHandle,
    pub(crate) disk_options: DiskOptions,
    pub(crate) sync: SyncMethod,
    pub(crate) stats: Arc<Stats>,
    pub(crate) memory: Option<Arc<MemoryBound>>,
    /// What index and values may take if that does not tell.
    pub(crate) data_share: usize,
    pub(crate) arena: ArenaLayout,
    pub(crate) cells_bytes_min: usize,
    pub(crate) clock: Instant,
    pub(crate) unix_ms_at_start: u64,
}

impl ShardStart {
    /// Opens the disk on the calling thread, which is to run the shard, and replays the log.
    /// Segment files that the shard asks for go to `deliver_spare`.
    pub(crate) fn open(&self, deliver_spare: DeliverSpare) -> Result<Opened, OpenError> {
        let arena = Arena::new(self.arena).map_err(system("map the memory of a shard's disk"))?;
        let mut disk = Disk::open(self.disk_options, &arena)
            .map_err(|refused| OpenError::Option(refused.to_string()))?;
        if disk.engine() == "threads" && self.disk_options.mode != disk::IoMode::Threads {
            let shard = self.shard;
            let why = disk.problems().last().map_or("", |it| it.cause.as_str());
            warn!(
                shard,
                "shard {shard}: threads do the work of its disk's ring: {why}"
            );
        }

        let began = Instant::now();
        let log = LogConfig {
            owner: self.owner,
            incarnation: self.shard_config.hello.incarnation,
            log_id: self.inventory.layout.log_of(self.shard),
            frame_bytes: FRAME_BYTES,
            record_bytes_max: self.record_bytes_max,
            frames_in_flight_max: usize::try_from(self.config.frames_in_flight)
                .expect("a small number"),
            frames_sealed_max: 8,
            sync: self.sync,
            interval_us: u64::from(self.config.interval_ms) * 1000,
            idle_mark_us: 5_000,
        };
        let cache_bytes = self.config.cache_bytes / u64::from(self.shard_config.topology.shards());
        let opening::Opened {
            mut shard,
            recovered,
            files,
            snapshot,
            snapshots_refused,
            inherited_records,
        } = opening::open_shard(
            &mut NodeFiles::new(&self.segments, &self.snapshots),
            &self.inventory,
            self.shard_config.clone(),
            log,
            self.config.segment_bytes,
            Budget {
                cache_bytes_max: usize::try_from(cache_bytes).unwrap_or(usize::MAX),
                memory_bytes_max: self
                    .memory
                    .as_ref()
                    .map_or(self.data_share, |it| it.share()),
                cells_bytes_min: self.cells_bytes_min,
            },
            arena,
        )
        .map_err(opening(self.segments.data()))?;
        shard.scrub_within(u64::from(self.config.scrub_period_s) * 1_000_000);
        if self.starts_small {
            shard.grow_segments(self.config.segment_bytes);
        }
        let recovery_ms = began.elapsed().as_millis();

        for &file in &files {
            let fd = self
                .segments
                .open_file(file)
                .map_err(system("open a segment"))?;
            disk.attach(file, fd);
        }
        shard.expect_key_tables(&self.key_tables_left);
        let torn = recovered.torn.map_or(String::new(), |torn| {
            format!("; {} was torn at offset {}: nothing acknowledged as durable was there, unless a repair gave it up", self.segments.path(torn.file).display(), torn.offset)
        });
        let from = snapshot.map_or(String::new(), |(name, entries)| {
            format!("{entries} entries of {name} and ")
        });
        let refused: String = snapshots_refused
            .iter()
            .map(|(name, error)| format!("; {name} was not used: it {error}"))
            .collect();
        let inherited = match inherited_records {
            0 => String::new(),
            records => format!("{records} inherited records and "),
        };
        let text = format!(
            "core {}, {} keys from {from}{inherited}{} records in {recovery_ms} ms{torn}{refused}",
            self.core.map_or("any".into(), |core| core.id.to_string()),
            shard.usage().keys,
            recovered.records
        );
        let facts = ServerFacts {
            version: env!("CARGO_PKG_VERSION"),
            shard_count: self.shard_config.topology.shards(),
            incarnation: self.shard_config.hello.incarnation,
            io: disk.engine(),
            durability: self.config.durability.name(),
            interval_ms: self.config.interval_ms,
            segment_bytes: self.config.segment_bytes,
            pid: std::process::id(),
        };
        let short_bytes = shard.store().log().config().segment_bytes_min();
        let short_bytes = short_bytes.next_multiple_of(BLOCK_BYTES as u64);
        let helpers = Helpers {
            supply: SegmentSupply::new(
                self.segments.clone(),
                self.spares.clone(),
                deliver_spare,
                (self.config.segment_bytes, short_bytes),
            ),
            snapshot_writer: self.snapshot_writer.clone(),
            key_tables: self.key_table_maker.clone(),
            memory: self.memory.clone(),
        };
        let publisher = Publisher::new(self.shard, Arc::clone(&self.stats), facts);
        let engine = Engine::new(self.shard, shard, disk, helpers, publisher);
        Ok(Opened { engine, text })
    }
}

/// The files that a start reads and changes.
struct NodeFiles<'a> {
    segments: &'a Segments,
    snapshots: &'a SnapshotFolder,
    /// The snapshot that is read.
    open: Option<(SnapshotName, File)>,
    ahead: ReadAhead,
}

impl<'a> NodeFiles<'a> {
    fn new(segments: &'a Segments, snapshots: &'a SnapshotFolder) -> Self {
        NodeFiles {
            segments,
            snapshots,
            open: None,
            ahead: ReadAhead::default(),
        }
    }
}

impl SegmentFiles for NodeFiles<'_> {
    type Reader = SegmentReader;

    fn reader(&self) -> SegmentReader {
        self.segments.reader()
    }

    fn truncate(&mut self, file: FileId, bytes: u64) -> io::Result<()> {
        self.segments.truncate(file, bytes)
    }

    fn remove(&mut self, file: FileId) -> io::Result<()> {
        self.segments.remove(file)
    }

    fn set_aside(&mut self, file: FileId) -> io::Result<()> {
        set_aside::set_aside(self.segments, file)
    }

    fn sync(&mut self, file: FileId) -> io::Result<()> {
        File::from(self.segments.open_file(file)?).sync_all()
    }

    fn snapshots(&mut self) -> io::Result<Vec<(SnapshotName, u64)>> {
        self.snapshots.list()
    }

    fn read_snapshot(
        &mut self,
        name: SnapshotName,
        offset: u64,
        into: &mut [u8],
    ) -> io::Result<usize> {
        let file = match self.open.take() {
            Some((open, file)) if open == name => file,
            _ => {
                let file = self.snapshots.open(name)?;
                self.ahead.announce(&file, 0);
                file
            }
        };
        let read = read_at(&file, offset, into)?;
        self.segments.progress().read(read as u64);
        self.open = Some((name, file));
        Ok(read)
    }

    fn expect_bytes(&mut self, bytes: u64) {
        self.segments.progress().expect(bytes);
    }
}

/// Bytes of a segment: what was asked for, or what the limit of the disk and values of up to
/// `value_bytes` from earlier starts leave.
fn segment_bytes_of(config: &Config, shards: u16, value_bytes: u32) -> u64 {
    let least_bytes = segment_bytes_for(value_bytes.max(config.value_bytes_max));
    match config.segment_bytes {
        0 => segment_bytes_within(
            config.disk_bytes_max / u64::from(shards),
            least_bytes.next_multiple_of(BLOCK_BYTES as u64),
        ),
        asked => asked,
    }
}

/// Values that earlier starts accepted are still served, edited and cleaned: only new ones are held to
/// the limit of this start.
fn hold_values(config: &mut Config, value_bytes: u32, say: Say) -> Result<(), OpenError> {
    let needed = segment_bytes_for(value_bytes);
    if config.segment_bytes < needed {
        return Err(OpenError::Option(format!(
            "--segment-bytes {} is too small for this directory, which may hold values of up to {value_bytes} bytes from earlier starts: four of the largest records must fit, and these take {needed} bytes",
            config.segment_bytes
        )));
    }
    if value_bytes > config.value_bytes_max {
        say(format_args!(
            "values       up to {} may be there from earlier starts; new ones up to {}",
            size_text(value_bytes.into()),
            size_text(config.value_bytes_max.into())
        ));
    }
    config.make_room_for(value_bytes);
    Ok(())
}

/// A bound under which no shard could write at all is a mistake, and told before anybody waits for FULL.
fn check_disk_bytes(
    config: &Config,
    shards: u16,
    short_bytes: u64,
    value_bytes: u32,
    say: Say,
) -> Result<(), OpenError> {
    let (max, least) = (
        config.disk_bytes_max,
        SEGMENTS_MIN * u64::from(shards) * short_bytes,
    );
    if max == 0 {
        return Ok(());
    }
    if max >= least {
        let share = DiskShare {
            log_bytes_max: max / u64::from(shards),
            segment_bytes: config.segment_bytes,
            space_percent_max: config.space_percent_max,
        };
        let carried = u64::from(shards) * share.live_bytes_max();
        say(format_args!(
            "disk limit   {} carries {} of records without FULL: (limit - {SEGMENTS_BESIDE} segments of {} a shard) / {} %",
            size_text(max),
            size_text(carried),
            size_text(config.segment_bytes),
            config.space_percent_max
        ));
        if carried == 0 {
            tell_problem(&tight(max, shards, short_bytes, config), say);
        }
        return Ok(());
    }
    Err(OpenError::Option(format!(
        "disk_bytes_max {max} is too small: {SEGMENTS_MIN} of the smallest segments for each of {shards} shards take {least} bytes, with values of up to {value_bytes} bytes"
    )))
}

/// A bound that carries no data for sure, because segments are as large.
fn tight(max: u64, shards: u16, short_bytes: u64, config: &Config) -> Problem {
    let segments = SEGMENTS_BESIDE * u64::from(shards);
    let usual = 2 * segments * config.segment_bytes;
    let fits = max / (2 * segments) / BLOCK_BYTES as u64 * BLOCK_BYTES as u64;
    let smaller = match fits >= short_bytes {
        true => format!(" or --segment-bytes {fits}"),
        false => String::new(),
    };
    Problem {
        cause: format!(
            "disk_bytes_max {max} is no more than {SEGMENTS_BESIDE} segments for each of {shards} shards: what grows is answered FULL early, perhaps at once"
        ),
        mend: format!("give --disk-bytes-max {usual}{smaller}"),
    }
}

/// What the helper does when all shards have taken over what they inherited.
fn taking_over(directory: &Directory, inventory: &Inventory, say: Say) -> TakingOver {
    let (logs, layout) = (&inventory.survey.logs, &inventory.layout);
    let inherited = layout.inherited.iter();
    let segments: Vec<_> = inherited
        .filter_map(|log| logs.get(&log.log_id))
        .flatten()
        .collect();
    let bytes: u64 = segments.iter().map(|segment| segment.file_bytes).sum();
    say(format_args!(
        "inherited    {bytes} bytes in {} logs of an earlier number of shards: rewritten beside the traffic",
        layout.inherited.len()
    ));
    let path = directory.path().to_path_buf();
    let identity = Identity {
        inherited: Vec::new(),
        ..directory.identity().clone()
    };
    TakingOver {
        shards: usize::from(layout.shards),
        finish: Box::new(move || write_identity(&path, &identity)),
        files: segments.iter().map(|segment| segment.file).collect(),
    }
}

/// A shard that is ready to serve, and what it found.
pub(crate) struct Opened {
    pub(crate) engine: Engine,
    pub(crate) text: String,
}

/// Times the disk once, before the shards share it, unless an earlier start did and it is not to be
/// done anew, and says which way of syncing it is best at.
fn calibrate_disk(
    directory: &Directory,
    options: DiskOptions,
    is_anew: bool,
    say: Say,
) -> Result<(SyncMethod, Option<Retiming>), OpenError> {
    let arena = Arena::new(ArenaLayout::default()).map_err(system("map the memory of a disk"))?;
    let mut disk =
        Disk::open(options, &arena).map_err(|refused| OpenError::Option(refused.to_string()))?;
    say(format_args!("{:<12} {}", "disk engine", disk.describe()));
    disk.problems()
        .iter()
        .for_each(|problem| tell_problem(problem, say));
    let segments = directory.segments();
    let device = format!(
        "{}, direct {}, {}",
        checks::device_identity(segments.folder()),
        segments.is_direct(),
        disk.describe()
    );
    let kept = calibration::kept(directory.path(), &device);
    let kept = kept.filter(|kept| !is_anew && !kept.is_loaded);
    let calibration = match kept {
        Some(kept) => kept,
        None => match calibrate(&mut disk, &arena, segments) {
            // What is on a full disk can still be read.
            Err(error) if error.kind() == io::ErrorKind::StorageFull => {
                say(format_args!(
                    "sync method  durable writes: not timed, because the disk is full"
                ));
                return Ok((SyncMethod::DurableWrite, None));
            }
            timed => {
                let timed = timed.map_err(system("time the disk"))?;
                // If it cannot be kept, the next start times it again.
                let _ = calibration::keep(directory.path(), &device, &timed);
                timed
            }
        },
    };
    let method = calibration.method_name();
    say(format_args!(
        "sync method  {method}: 4 KiB durable in {} us by durable writes, {} us by write and fdatasync; read in {} us{}",
        calibration.durable_write_us,
        calibration.write_then_sync_us,
        calibration.read_us,
        match (kept, calibration.is_loaded) {
            (Some(_), _) => ", as an earlier start timed it (--calibrate times it anew)",
            (None, true) => ", while others wanted the CPU: it is timed again when they do not",
            (None, false) => "",
        }
    ));
    let retiming = Retiming {
        data: directory.path().to_path_buf(),
        segments: segments.clone(),
        device,
        options,
        method: calibration.method,
    };
    let retiming = calibration.is_loaded.then_some(retiming);
    Ok((calibration.method, retiming))
}

fn tell_problem(problem: &Problem, say: Say) {
    say(format_args!("  problem    {}", problem.cause));
    say(format_args!("  mend       {}", problem.mend));
}

/// What rings all shards get.
fn tell_rings(rings: &RingPlan, say: Say) {
    match rings.setup {
        Some(setup) => say(format_args!("rings        {setup}, for each shard")),
        None => say(format_args!("rings        none: threads and epoll")),
    }
    if let Some(problem) = &rings.problem {
        tell_problem(problem, say);
    }
}

/// What the machine is like, each problem with its cause and its mend.
fn banner(config: &Config, directory: &Directory, shards: u16, say: Say) {
    say(format_args!("penstock {}", env!("CARGO_PKG_VERSION")));
    let identity = directory.identity();
    say(format_args!(
        "data         {} ({}, start {}, {shards} shards)",
        directory.path().display(),
        if directory.is_new() {
            "new"
        } else {
            "existing"
        },
        identity.incarnation
    ));
    let strangers = directory.segments().strangers().unwrap_or_default();
    if !strangers.is_empty() {
        let more = match strangers.len().saturating_sub(STRANGERS_SHOWN_MAX) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let shown = &strangers[..strangers.len().min(STRANGERS_SHOWN_MAX)];
        say(format_args!(
            "segments     passed over, because no segment is named so: {}{more}",
            shown.join(", ")
        ));
    }
    let demand = Demand {
        segments: directory.segments(),
        shards: u32::from(shards),
        segment_bytes: config.segment_bytes,
        connections_max: u64::from(config.connections_max),
        wants_huge_pages: config.huge_pages == HugePageMode::Auto,
    };
    for check in checks::look(&demand) {
        say(format_args!("{:<12} {}", check.name, check.value));
        check
            .problem
            .iter()
            .for_each(|problem| tell_problem(problem, say));
    }
}
