//! One shard, opened on the thread that will run it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use core_affinity::CoreId;
use penstock_net::program::ServedSchema;
use penstock_shard::opening;
use penstock_shard::{Shard, ShardConfig};
use penstock_storage::budget::Budget;
use penstock_storage::io::BLOCK_BYTES;
use penstock_storage::log::{LogConfig, SyncMethod};
use penstock_storage::place::FileId;
use penstock_storage::segment::Owner;
use tracing::warn;

use super::error::{OpenError, opening as refused, system};
use super::files::NodeFiles;
use super::redo_found::Found;
use crate::config::{Config, FRAME_BYTES};
use crate::directory::Segments;
use crate::directory::key_table_makers::KeyTableHandle;
use crate::directory::lock_watch::LockLoss;
use crate::directory::snapshots::{SnapshotFolder, SnapshotHandle};
use crate::directory::spares::SpareHandle;
use crate::disk::arena::{Arena, ArenaLayout};
use crate::disk::{self, Disk, DiskOptions};
use crate::event_loop::engine::{Engine, Helpers};
use crate::event_loop::publisher::Publisher;
use crate::event_loop::supply::{DeliverSpare, SegmentSupply};
use crate::stats::{ServerFacts, Stats};
use crate::system::boot_clock::BootClock;
use crate::system::memory::MemoryBound;

/// Group commits that may be on their way to the disk at once. While many clients wait and writes
/// are short, the log has one.
const FRAMES_IN_FLIGHT_MAX: usize = 2;

/// What one shard starts from.
pub(crate) struct ShardStart {
    pub(crate) shard: u16,
    pub(crate) core: Option<CoreId>,
    pub(crate) config: Arc<Config>,
    pub(crate) shard_config: ShardConfig,
    pub(crate) record_bytes_max: usize,
    pub(crate) owner: Owner,
    pub(crate) inventory: Arc<Found>,
    pub(crate) segments: Segments,
    pub(crate) spares: SpareHandle,
    pub(crate) starts_small: bool,
    pub(crate) schema: Option<Arc<ServedSchema>>,
    pub(crate) snapshots: SnapshotFolder,
    pub(crate) snapshot_writer: SnapshotHandle,
    pub(crate) key_tables_left: Arc<HashMap<FileId, u64>>,
    pub(crate) key_table_maker: KeyTableHandle,
    pub(crate) lock_loss: LockLoss,
    pub(crate) disk_options: DiskOptions,
    pub(crate) sync: SyncMethod,
    pub(crate) stats: Arc<Stats>,
    pub(crate) memory: Option<Arc<MemoryBound>>,
    /// What index and values may take if that does not tell.
    pub(crate) data_share: usize,
    pub(crate) arena: ArenaLayout,
    pub(crate) cells_bytes_min: usize,
    pub(crate) clock: BootClock,
    pub(crate) unix_ms_at_start: u64,
}

impl ShardStart {
    /// Opens the disk on the calling thread, which is to run the shard, and replays the log.
    /// Segment files that the shard asks for go to `deliver_spare`.
    pub(crate) fn open(&self, deliver_spare: DeliverSpare) -> Result<Opened, OpenError> {
        let reporter = self.inventory.redo.reporter();
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
            self.log_config(),
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
        .map_err(refused(self.segments.data()))?;
        shard
            .execution_mut()
            .scrub_within(u64::from(self.config.scrub_period_s) * 1_000_000);
        if let Some(schema) = &self.schema {
            shard.execution_mut().serve_schema(Arc::clone(schema));
        }
        if self.starts_small {
            shard
                .execution_mut()
                .grow_segments(self.config.segment_bytes);
        }
        let recovery_ms = began.elapsed().as_millis();
        if reporter.report(shard.execution().joint.may_have_redo()) {
            shard.execution_mut().joint.resume();
        }

        for &file in &files {
            let fd = self
                .segments
                .open_file(file)
                .map_err(system("open a segment"))?;
            disk.attach(file, fd);
        }
        shard
            .execution_mut()
            .expect_key_tables(&self.key_tables_left);
        let torn = recovered.torn.map_or(String::new(), |torn| {
            format!(
                "; {} was torn at offset {}: nothing acknowledged as durable was there, \
                 unless a repair gave it up",
                self.segments.path(torn.file).display(),
                torn.offset
            )
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
            shard.store().data().usage().keys,
            recovered.records
        );
        let log_ms = shard.store().carried_ms();
        let engine = self.engine(shard, disk, deliver_spare);
        Ok(Opened {
            engine,
            text,
            log_ms,
        })
    }

    /// How the log of the shard is written.
    fn log_config(&self) -> LogConfig {
        LogConfig {
            owner: self.owner,
            incarnation: self.shard_config.hello.incarnation,
            log_id: self.inventory.layout.log_of(self.shard),
            frame_bytes: FRAME_BYTES,
            record_bytes_max: self.record_bytes_max,
            frames_in_flight_max: FRAMES_IN_FLIGHT_MAX,
            frames_sealed_max: 8,
            sync: self.sync,
            interval_us: u64::from(self.config.interval_ms) * 1000,
            idle_mark_us: 5_000,
        }
    }

    /// Around a shard that is open.
    fn engine(&self, shard: Shard<Arena>, disk: Disk, deliver_spare: DeliverSpare) -> Engine {
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
            lock_loss: self.lock_loss.clone(),
            memory: self.memory.clone(),
        };
        let publisher = Publisher::new(self.shard, Arc::clone(&self.stats), facts);
        Engine::new(self.shard, shard, disk, helpers, publisher)
    }
}

/// A shard that is ready to serve, and what it found.
pub(crate) struct Opened {
    pub(crate) engine: Engine,
    pub(crate) text: String,
    /// The newest time in its log, in unix milliseconds; 0 without records.
    pub(crate) log_ms: u64,
}
