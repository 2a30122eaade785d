//! What stands around a shard of this process in a turn: its disk, the helper threads, people.

use std::sync::Arc;

use penstock_shard::{
    BadPlace, FailedEffects, Fatal, KeyTableOrder, Network, SessionId, Shard, Shell, SnapshotWrite,
    TokenHorizon,
};
use penstock_storage::cleaning::Damaged;
use penstock_storage::io::Io;
use penstock_storage::place::FileId;
use penstock_storage::recovery::Corruption;
use tracing::{error, warn};

use super::news::{report_bad_place, report_failed_effects};
use super::supply::SegmentSupply;
use crate::directory::key_table_makers::KeyTableHandle;
use crate::directory::lock_watch::LockLoss;
use crate::directory::snapshots::SnapshotHandle;
use crate::disk::Disk;
use crate::disk::arena::{Arena, ArenaBlock};
use crate::system::advice;
use crate::system::memory::MemoryBound;

/// The threads that work for all shards, as one shard reaches them.
pub(crate) struct Helpers {
    pub(crate) supply: SegmentSupply,
    pub(crate) snapshot_writer: SnapshotHandle,
    pub(crate) key_tables: KeyTableHandle,
    /// Whether the directory may be another process's by now.
    pub(crate) lock_loss: LockLoss,
    pub(crate) memory: Option<Arc<MemoryBound>>,
}

/// How a turn ended.
#[derive(Debug)]
pub(crate) enum Turn {
    /// Well.
    Ended {
        /// Something was done that only another turn tells.
        is_due_again: bool,
        /// The log was sealed in this turn, for the clean stop.
        has_stopped: bool,
    },
    /// A write failed, or nothing more may be written: nothing is acknowledged any more. Told once.
    Fatal(String),
    /// A file turned out to be damaged, and nothing more is written. Told once.
    Damaged(String),
    /// It was told.
    Dead,
}

/// Carries out a turn of the shard `number`.
pub(super) struct EngineShell<'a, N> {
    pub(super) number: u16,
    pub(super) shard: &'a Shard<Arena>,
    pub(super) disk: &'a mut Disk,
    pub(super) helpers: &'a mut Helpers,
    pub(super) network: &'a mut N,
    pub(super) is_stopped: &'a mut bool,
    pub(super) may_wait_for_device: bool,
}

impl<N: Network> Shell for EngineShell<'_, N> {
    type Block = ArenaBlock;
    type End = Turn;
    type Network = N;

    fn network(&mut self) -> &mut N {
        self.network
    }

    fn fail(&mut self, fatal: Fatal, notices: &mut Vec<String>) -> Result<(), Turn> {
        // What another node said of it comes first.
        let notices: String = notices.drain(..).map(|it| format!("{it}; ")).collect();
        let text = format!("{notices}{fatal}");
        // A new start would not help a node that has gone back. Its exit code keeps a supervisor
        // from starting it again.
        Err(match fatal {
            Fatal::GoneBack => Turn::Damaged(text),
            Fatal::Log { .. } => Turn::Fatal(text),
        })
    }

    fn stopped(&mut self) {
        *self.is_stopped = true;
    }

    /// All with one system call, but for a write that this thread makes itself: what links send
    /// goes before.
    fn submit(&mut self, requests: &mut Vec<Io<ArenaBlock>>) -> Result<(), Turn> {
        for io in requests.drain(..) {
            self.disk.submit(io);
        }
        let flushed = self.disk.flush_others(self.may_wait_for_device);
        flushed.map_err(|error| {
            Turn::Fatal(format!(
                "shard {}: the disk engine is lost: {error}",
                self.number
            ))
        })
    }

    /// The engine answers them behind the turn, with the numbers as they are then.
    fn inform(&mut self, _: &mut Vec<(SessionId, u64)>) {}

    fn remove(&mut self, files: &mut Vec<FileId>) {
        for file in files.drain(..) {
            self.disk.detach(file);
            self.helpers.supply.release(file);
        }
    }

    fn forget(&mut self, files: &mut Vec<FileId>) {
        for file in files.drain(..) {
            self.disk.detach(file);
        }
    }

    fn taken_over(&mut self) {
        self.helpers.supply.taken_over();
    }

    fn report_damage(
        &mut self,
        cleaning: &mut Vec<Damaged>,
        scrub: &mut Vec<Corruption>,
        requests: &mut Vec<BadPlace>,
    ) -> Result<(), Turn> {
        let shard = self.number;
        let segments = &self.helpers.supply.segments;
        for damaged in cleaning.drain(..) {
            let offset = damaged.offset;
            let path = segments.path(damaged.file);
            let file = path.display();
            error!(
                shard,
                file = %file,
                offset,
                "shard {shard}: {file} is damaged at offset {offset}: cleaning leaves it as it is; \
                 to see more, once the server is stopped: {}",
                advice::inspect(segments.data())
            );
        }
        for rotten in scrub.drain(..) {
            let data = segments.data();
            error!(
                shard,
                file = %segments.path(rotten.file).display(),
                offset = rotten.offset,
                "shard {shard}: {}; it is served as long as nobody needs that, and the next start \
                 that reads it refuses it: restore a backup elsewhere, or see what a mend would \
                 give up, once the server is stopped: {}",
                rotten.within(&data.to_string_lossy()),
                advice::repair(data)
            );
        }
        for place in requests.drain(..) {
            report_bad_place(shard, segments, &place);
        }
        Ok(())
    }

    fn report_token_horizon(&mut self, horizon: TokenHorizon) {
        let shard = self.number;
        let TokenHorizon {
            horizon_ms,
            configured_ms,
            bytes,
            bytes_max,
        } = horizon;
        warn!(
            shard,
            horizon_ms,
            configured_ms,
            bytes,
            bytes_max,
            "shard {shard}: tokens of writes take {bytes} of {bytes_max} bytes of memory, so new \
             ones are kept for {horizon_ms} ms from now on, of {configured_ms} ms; a retry that \
             comes later is TOKEN_TOO_OLD: raise memory_max or lower token_horizon_s"
        );
    }

    fn report_failed_effects(&mut self, failed: &mut Vec<FailedEffects>) {
        for failed in failed.drain(..) {
            report_failed_effects(self.number, &failed);
        }
    }

    fn write_snapshot(&mut self, writes: &mut Vec<SnapshotWrite>) {
        for write in writes.drain(..) {
            self.helpers.snapshot_writer.write(write);
        }
    }

    fn order_key_tables(&mut self, orders: &mut Vec<KeyTableOrder>) {
        for order in orders.drain(..) {
            // One that was not loaded is not open here.
            if let KeyTableOrder::Remove(file) = order
                && self.disk.is_attached(file.key_table())
            {
                self.disk.detach(file.key_table());
            }
            self.helpers.key_tables.order(order);
        }
    }

    fn make_spares(&mut self, spares: usize) {
        let log = self.shard.store().log();
        for _ in 0..spares {
            let bytes_wanted = |bytes| log.spare_bytes_wanted(bytes);
            self.helpers.supply.request(log.has_spares(), bytes_wanted);
        }
    }
}
