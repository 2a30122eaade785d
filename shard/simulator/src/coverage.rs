//! What a run has met. A fault or an operation that never occurs proves nothing, so a run that
//! misses one fails and names it.

use std::collections::{BTreeMap, BTreeSet};

use penstock_storage::recovery::Row;

use crate::operation::Operation;

/// What a long run of clusters must meet. A run with harms must meet more.
const MET_BY_CLUSTERS: &[&str] = &[
    "acked at disk",
    "acked at replica",
    "cut",
    "cut one way",
    "deposed",
    "diverged records kept",
    "forced promotion",
    "gone back",
    "told to have gone back",
    "an epoch was written twice",
    "incomplete accepted",
    "kill",
    "learner",
    "link ended by a node",
    "link lost",
    "lost at disk and kept",
    "lost with a disk",
    "MOVED",
    "NOREPLICAS",
    "NOT_PRIMARY",
    "NOT_FOUND",
    "other numbers of shards",
    "pause",
    "plan came late",
    "power cut",
    "promotion",
    "start with a snapshot",
    "replicas compared",
    "read at a member",
    "read at a member with a version",
    "segments released",
    "STALE",
    "switch",
    "switched",
    "unknown at a client",
    "VERSION_MISMATCH",
    "wiped",
];

macro_rules! kinds {
    ($(#[doc = $text:literal])+ $name:ident: $($(#[doc = $kind_text:literal])+ $kind:ident,)+) => {
        $(#[doc = $text])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name {
            $($(#[doc = $kind_text])+ $kind,)+
        }

        impl $name {
            /// All of them.
            pub const ALL: &[$name] = &[$($name::$kind,)+];
        }
    };
}

kinds! {
    /// What goes wrong.
    Fault:
    /// The process is killed.
    Kill,
    /// The power goes.
    PowerCut,
    /// The power goes while a start acts on its verdict.
    PowerCutDuringStart,
    /// The server is asked to stop.
    CleanStop,
    /// All of a volatile write is gone after a power cut.
    DroppedWrite,
    /// Some sectors of a volatile write are gone.
    TornWrite,
    /// A sector of a volatile write holds neither old nor new bytes.
    GarbledSector,
    /// A write fails.
    WriteError,
    /// A write moves less than it should.
    ShortWrite,
    /// A sync fails and what it was to keep may be gone.
    SyncError,
    /// A read fails.
    ReadError,
    /// A read gives other bytes.
    BadRead,
    /// A read fails or gives other bytes, and no read of these blocks does so again.
    PassingReadError,
    /// A read of a start fails.
    StartReadError,
    /// No segment can be made.
    NoSpace,
    /// The index may take no more keys.
    NoMemory,
    /// A write takes very long.
    SlowDisk,
    /// Frames of an earlier segment show behind those of its successor.
    OldFrames,
    /// A byte rots.
    BitRot,
    /// A sector cannot be read any more.
    LatentError,
    /// A write is done in another place.
    MisdirectedWrite,
    /// A write is never done.
    LostWrite,
    /// A flush is not done.
    LyingFlush,
    /// A file is shorter than it was.
    ShortFile,
    /// A file is gone.
    LostFile,
    /// A file of another node lies in the directory.
    ForeignFile,
    /// A file of another version lies in the directory.
    OtherVersion,
    /// Bytes that check, and contradict what stands before them.
    Forgery,
    /// A file lies in the directory twice.
    FileTwice,
    /// The end of a log is gone after a stop, and a snapshot of the index proves it.
    LostTail,
    /// A bit of a spare rots.
    SpareRot,
    /// A spare that has rotted is set aside.
    SpareSetAside,
    /// Damage that nothing on the disk can prove: the documented hole.
    Hole,
    /// Bytes arrive late.
    SlowNetwork,
    /// Bytes arrive in pieces.
    SplitBytes,
    /// A connection is cut at both ends.
    CutConnection,
    /// A connection is cut at one end only, and what was sent on it arrives later.
    HalfOpen,
    /// A peer stops reading.
    SlowReader,
    /// A client sends bytes that are no frames.
    HostileBytes,
    /// The process does not run for a while.
    Pause,
    /// The wall clock jumps.
    ClockJump,
    /// A segment is cleaned and released.
    Released,
    /// Cleaning leaves values out that have expired, and a segment is released after that.
    ExpiredReleased,
    /// A file that served before serves again.
    Reused,
    /// A bit rots in a sealed segment under a running node, which finds and tells it.
    RotReported,
    /// A start uses a snapshot of the index.
    SnapshotUsed,
    /// A snapshot is not used, because it is damaged or does not fit.
    SnapshotRefused,
    /// A piece of a snapshot cannot be written.
    SnapshotError,
    /// A bit of a snapshot rots, or its end is gone.
    SnapshotRot,
    /// The newest snapshot is gone.
    SnapshotLost,
    /// The key table of a segment is made.
    KeyTableMade,
    /// A key table cannot be made.
    KeyTableError,
    /// A bit of a key table rots, or its end is gone.
    KeyTableRot,
    /// A key table has the name of another segment.
    KeyTableOfAnother,
    /// A start takes a key table over.
    KeyTableUsed,
    /// A start finds a key table that is damaged or of another segment.
    KeyTableRefused,
    /// A running node finds a key table damaged.
    KeyTableGivenUp,
    /// A page of a scan is told from key tables.
    KeyTableRead,
    /// A start has another number of shards.
    ShardsChanged,
    /// A start has another number of shards while logs of an earlier one are still inherited.
    ShardsChangedAgain,
    /// All shards have taken over what they inherited.
    InheritedGone,
    /// A start finds segments of a log that was rewritten.
    VoidLog,
    /// A start accepts only shorter values than the one before.
    ValueLimitLowered,
}

/// Counts by kind.
#[derive(Clone, Debug)]
pub struct Coverage {
    faults: Vec<u64>,
    operations: Vec<u64>,
    rows: Vec<u64>,
    statuses: BTreeSet<&'static str>,
    /// What a cluster has met, or what sales have.
    met: BTreeMap<&'static str, u64>,
}

impl Default for Coverage {
    fn default() -> Self {
        Coverage {
            faults: vec![0; Fault::ALL.len()],
            operations: vec![0; Operation::ALL.len()],
            rows: vec![0; Row::ALL.len()],
            statuses: BTreeSet::new(),
            met: BTreeMap::new(),
        }
    }
}

impl Coverage {
    /// What a cluster has met.
    #[must_use]
    pub fn of_cluster(met: BTreeMap<&'static str, u64>) -> Self {
        Coverage {
            met,
            ..Coverage::default()
        }
    }

    /// A fault happened.
    pub fn fault(&mut self, fault: Fault) {
        self.faults[fault as usize] += 1;
    }

    /// A client did this.
    pub fn operation(&mut self, operation: Operation) {
        self.operations[operation as usize] += 1;
    }

    /// Recovery decided by this row.
    pub fn row(&mut self, row: Row) {
        let index = Row::ALL.iter().position(|&known| known == row);
        self.rows[index.expect("ALL has every row")] += 1;
    }

    /// A reply had this status.
    pub fn status(&mut self, name: &'static str) {
        self.statuses.insert(name);
    }

    /// This was met besides.
    pub fn meet(&mut self, met: &BTreeMap<&'static str, u64>) {
        for (what, count) in met {
            *self.met.entry(what).or_default() += count;
        }
    }

    /// How often a fault happened.
    #[must_use]
    pub fn count(&self, fault: Fault) -> u64 {
        self.faults[fault as usize]
    }

    /// Adds another run's counts.
    pub fn add(&mut self, other: &Coverage) {
        let pairs = [
            (&mut self.faults, &other.faults),
            (&mut self.operations, &other.operations),
            (&mut self.rows, &other.rows),
        ];
        for (mine, theirs) in pairs {
            for (mine, theirs) in mine.iter_mut().zip(theirs) {
                *mine += theirs;
            }
        }
        self.statuses.extend(&other.statuses);
        self.meet(&other.met);
    }

    /// The events that clusters are to meet, and all others that they have met, each with its
    /// count.
    pub fn cluster_table(&self) -> impl Iterator<Item = (String, u64)> + '_ {
        let names: BTreeSet<&str> = MET_BY_CLUSTERS
            .iter()
            .chain(self.met.keys())
            .copied()
            .collect();
        let count = |name: &str| self.met.get(name).copied().unwrap_or_default();
        names
            .into_iter()
            .map(move |name| (name.to_owned(), count(name)))
    }

    /// Every kind with its count.
    pub fn table(&self) -> impl Iterator<Item = (String, u64)> + '_ {
        let faults = Fault::ALL.iter().zip(&self.faults);
        let operations = Operation::ALL.iter().zip(&self.operations);
        let rows = Row::ALL.iter().zip(&self.rows);
        let statuses = STATUSES_EXPECTED.iter().map(|name| {
            (
                format!("status {name}"),
                u64::from(self.statuses.contains(name)),
            )
        });
        faults
            .map(|(kind, &count)| (format!("fault {kind:?}"), count))
            .chain(operations.map(|(kind, &count)| (format!("operation {kind:?}"), count)))
            .chain(rows.map(|(row, &count)| (format!("recovery row {}", row.name()), count)))
            .chain(statuses)
            .chain(
                self.met
                    .iter()
                    .map(|(name, &count)| ((*name).to_owned(), count)),
            )
    }
}

/// Outcomes that every long run meets.
const STATUSES_EXPECTED: &[&str] = &[
    "OK",
    "GUARD_FAILED",
    "NOT_FOUND",
    "EXISTS",
    "VERSION_MISMATCH",
    "NOT_KEPT",
    "DEADLINE",
    "DRAINING",
    "FULL",
    "TOO_LARGE",
    "IO",
    "CORRUPT",
];
