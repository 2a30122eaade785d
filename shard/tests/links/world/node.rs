//! One shard of a node, with its log and its links.

use super::*;
use penstock_storage::key_home::KeyHome;

/// One shard of a node, which starts and ends by itself here.
pub(super) struct Node {
    pub(super) number: u8,
    pub(super) shard: u16,
    pub(super) shards: u16,
    /// Its log, and one that it inherits.
    pub(super) logs: Logs,
    /// Number of the start.
    pub(super) life: u64,
    pub(super) disk: Disk,
    pub(super) store: Store<Heap>,
    pub(super) links: LinkSet<HeapBlock>,
    pub(super) requests: Vec<Io<HeapBlock>>,
    pub(super) now_us: u64,
    pub(super) salt: u64,
    pub(super) removable: Vec<FileId>,
    pub(super) gates: ReplicaGates<Operation>,
    /// Acknowledged at level disk when this is durable.
    pub(super) disk_waits: VecDeque<(Lsn, Operation)>,
    /// What this life wrote, and in which step.
    pub(super) written: Vec<(Lsn, Operation, u64)>,
    /// The first step in which its clock showed this.
    pub(super) clock: Vec<(u64, u64)>,
    /// What was kept, and what of it is synced.
    pub(super) kept: BTreeSet<(PartitionId, Position)>,
    pub(super) lostfound: BTreeSet<(PartitionId, Position)>,
    /// Epochs of this life whose first record was checked.
    pub(super) served: BTreeSet<(PartitionId, Epoch)>,
}

/// The log that is written, and the one before it that still counts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Logs {
    pub(super) own: u64,
    pub(super) inherited: Option<u64>,
}

/// Small frames, and marks soon, so that a run meets all of it.
pub(super) fn log_config(number: u8, incarnation: u64, log_id: u64) -> LogConfig {
    LogConfig {
        owner: owner(number),
        incarnation,
        log_id,
        frame_bytes: 8 << 10,
        record_bytes_max: RECORD_BYTES_MAX as usize,
        frames_in_flight_max: 2,
        frames_sealed_max: 4,
        sync: SyncMethod::DurableWrite,
        interval_us: 1_000,
        idle_mark_us: 5_000,
    }
}

pub(super) fn owner(number: u8) -> Owner {
    Owner {
        cluster_id: [9; 16],
        node_id: [number; 16],
    }
}

impl Node {
    pub(super) fn introduction(&self) -> Introduction {
        introduction((self.number, self.shard, self.shards), self.life)
    }

    pub(super) fn peer(&self) -> Peer {
        let me = self.introduction();
        Peer {
            node_id: me.node_id,
            node: me.node,
            start: me.start,
            shard: me.shard,
            shards: me.shards,
            frame_bytes_max: FRAME_BYTES_MAX,
            link_version: 3,
        }
    }

    pub(super) fn time(&self) -> LinkTime {
        LinkTime {
            now_us: self.now_us,
            time_ms: self.store.data().time_ms(),
        }
    }

    /// The cell of a key, if it has one; what is cold is read at once.
    pub(super) fn cell(&mut self, key: &[u8]) -> Option<CellId> {
        let home = home_of(self.salt)(key);
        loop {
            match self.store.keys().find(home.slot, home.hash, key) {
                Found::Cached(id) => return Some(id),
                Found::Absent => return None,
                Found::Cold(place) => self.read_cold(home, place),
            }
        }
    }

    pub(super) fn read_cold(&mut self, home: KeyHome, place: Place) {
        let salt = self.salt;
        let token = IoToken::new(Asker::Operation, 1);
        let request = self.store.read(token, place).expect("heap");
        self.disk.submit(&mut vec![request]);
        let completion = self.disk.complete(self.disk.under_way().len() - 1);
        let block = completion.block.expect("a read has a block");
        self.store
            .data_mut()
            .admit(home, place, block.bytes(), home_of(salt))
            .expect("what was written");
    }

    pub(super) fn settle(&mut self) {
        self.store.settle(&home_of(self.salt));
    }
}

pub(super) fn introduction((number, shard, shards): (u8, u16, u16), life: u64) -> Introduction {
    Introduction {
        log_format: 1,
        cluster_id: [9; 16],
        node_id: [number; 16],
        start: NodeStart {
            incarnation: u32::try_from(life).expect("few lives") + 1,
            start_id: u32::try_from(life).expect("few lives") + 1,
        },
        node: number,
        shard,
        shards,
        record_bytes_max: RECORD_BYTES_MAX,
        frame_bytes_max: FRAME_BYTES_MAX,
    }
}

/// The slot of a key, and its hash with this salt.
pub(super) fn home_of(salt: u64) -> impl Fn(&[u8]) -> KeyHome {
    move |key| KeyHome::new(slot_of(key), hash(salt, key))
}
