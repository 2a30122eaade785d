//! From the files of a data directory to shards that can serve.
//!
//! The order is the promise: first everything is read and judged, and nothing is changed; only a
//! whole verdict is acted on, file by file, in an order in which every step may be the last before
//! a crash; then the shard goes on in a new segment, with a new term.

mod error;

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::io;

use penstock_net::slot::tag_of;
use penstock_storage::budget::Budget;
use penstock_storage::contents::{History, SegmentEnd};
use penstock_storage::inheritance::InheritedLog;
use penstock_storage::io::{Blocks, SegmentSource};
use penstock_storage::key_home::KeyHome;
use penstock_storage::keyspace::is_understood;
use penstock_storage::layout::{INHERITED_MAX, InheritedEnd, Layout};
use penstock_storage::log::{Log, LogConfig, SPARES_READY};
use penstock_storage::place::FileId;
use penstock_storage::place::Place;
use penstock_storage::planted::{self, Bug, is_planted};
use penstock_storage::record::PartView;
use penstock_storage::recovery::Replayed;
use penstock_storage::recovery::{
    Event, Proof, Recovered, RecoveryError, RottenSpare, Segment, Survey, prove_spare, recover,
    recover_behind, replay, replay_ended, survey_heads,
};
use penstock_storage::segment::Owner;
use penstock_storage::snapshot::{
    Coverage, ProvenEnd, SnapshotError, SnapshotFooter, SnapshotHeader, SnapshotName,
    SnapshotReader, load,
};
use penstock_storage::store::{PREFETCH_KEYS_MAX, Store};
use penstock_storage::system_key::{is_system, redo_keys};
use penstock_storage::version::{PARTITIONS, SLOTS};

use crate::accounts::counted::CountedBytes;
use crate::execution::flush::flush_key;
use crate::execution::verbs::KeyHash;
use crate::setup::{ShardConfig, hash_check};
use crate::shard::Shard;
use crate::snapshots::{Behind, SnapshotStart};

pub use error::OpeningError;

/// The segment files of a data directory. Each change is durable when it returns.
pub trait SegmentFiles {
    /// Reads them.
    type Reader: SegmentSource;
    /// A reader with a position of its own.
    fn reader(&self) -> Self::Reader;
    /// Cuts a file to `bytes`.
    fn truncate(&mut self, file: FileId, bytes: u64) -> io::Result<()>;
    /// Removes a file.
    fn remove(&mut self, file: FileId) -> io::Result<()>;
    /// Takes a file out of the directory that proves nothing and should not be as it is.
    fn set_aside(&mut self, file: FileId) -> io::Result<()>;
    /// Makes durable what can be read of a file.
    fn sync(&mut self, file: FileId) -> io::Result<()>;
    /// The finished snapshots of all logs, in no particular order, with their lengths in bytes.
    fn snapshots(&mut self) -> io::Result<Vec<(SnapshotName, u64)>>;
    /// Fills `into` from `offset` of a snapshot; returns how many bytes it had.
    fn read_snapshot(
        &mut self,
        name: SnapshotName,
        offset: u64,
        into: &mut [u8],
    ) -> io::Result<usize>;
    /// About so many more bytes are going to be read, to tell people how far a start has come.
    fn expect_bytes(&mut self, bytes: u64);
}

fn system(action: &'static str) -> impl Fn(io::Error) -> OpeningError {
    move |error| OpeningError::System { action, error }
}

/// What the files of a node are, after what held nothing was cleared away.
#[derive(Debug)]
pub struct Inventory {
    /// The logs.
    pub survey: Survey,
    /// What stays of spares.
    pub left: Leftovers,
    /// Spares that had rotted, and were set aside.
    pub rotten: Vec<RottenSpare>,
    /// The logs that count.
    pub layout: Layout,
}

/// Files that an earlier run left as spares, with their lengths, by ascending number. Only the
/// begin of each was read, so [`prove_spare`] must come before a file is written or removed.
#[derive(Clone, Debug, Default)]
pub struct Leftovers {
    /// Files of the right length that were never used. The shards get them.
    pub spares: VecDeque<(FileId, u64)>,
    /// Files to remove, or to use again under another salt.
    pub superfluous: VecDeque<(FileId, u64)>,
}

impl Leftovers {
    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.spares.is_empty() && self.superfluous.is_empty()
    }
}

/// Looks at every file of a node whose logs are those of `layout`. Removes files of logs that are
/// void and files that a crash left half taken into use, and sets spares aside that have rotted.
/// Superfluous are spares that served before, of another size than `segment_bytes`, or beyond
/// [`SPARES_READY`] for each shard.
///
/// # Errors
/// [`OpeningError`].
pub fn take_inventory(
    files: &mut impl SegmentFiles,
    owner: Owner,
    layout: &Layout,
    segment_bytes: u64,
) -> Result<Inventory, OpeningError> {
    let survey =
        survey_heads(&mut files.reader(), owner, layout).map_err(OpeningError::Recovery)?;
    let is_known = |log_id: u64| layout.own().contains(&log_id) || layout.end_of(log_id).is_some();
    if let Some(&log_id) = survey.logs.keys().find(|&&log_id| !is_known(log_id)) {
        return Err(OpeningError::LogNumber {
            log_id,
            first: layout.first_log,
            last: layout.own().end - 1,
        });
    }
    for &file in &survey.void {
        files
            .remove(file)
            .map_err(system("remove a segment of a log that was rewritten"))?;
    }
    let mut left = Leftovers {
        spares: VecDeque::new(),
        superfluous: survey.reused.iter().copied().collect(),
    };
    let spares_max = SPARES_READY * usize::from(layout.shards);
    for &(file, bytes) in &survey.spares {
        match bytes == segment_bytes && left.spares.len() < spares_max {
            true => left.spares.push_back((file, bytes)),
            false => left.superfluous.push_back((file, bytes)),
        }
    }
    for &file in &survey.torn_activations {
        files.remove(file).map_err(system(
            "remove a segment that a crash left half taken into use",
        ))?;
    }
    for rotten in &survey.rotten {
        files
            .set_aside(rotten.file)
            .map_err(system("set a spare aside that has rotted"))?;
    }
    Ok(Inventory {
        rotten: survey.rotten.clone(),
        survey,
        left,
        layout: layout.clone(),
    })
}

/// Reads the rest of all spares that [`take_inventory`] left. Those that have rotted are returned:
/// they prove nothing and are to be set aside, not used.
///
/// # Errors
/// [`RecoveryError`] for one that cannot be read or is none.
pub fn prove_spares(
    source: &mut impl SegmentSource,
    left: &Leftovers,
) -> Result<Vec<RottenSpare>, RecoveryError> {
    let mut rotten = Vec::new();
    for &(file, bytes) in left.spares.iter().chain(&left.superfluous) {
        match prove_spare(source, file, bytes)? {
            Proof::Spare => {}
            Proof::Rotten(spare) => rotten.push(spare),
        }
    }
    Ok(rotten)
}

/// A generation of logs for another number of shards.
#[derive(Clone, Debug)]
pub struct ChangedShards {
    /// Must be durable before any shard is opened, with an inventory taken anew.
    pub layout: Layout,
    /// About so many bytes of what is inherited count, and are written again before any of it
    /// leaves.
    pub counted_bytes: u64,
}

/// Begins a generation of logs for another number of shards: reads the logs of the last one to
/// their ends and acts on the verdicts.
///
/// # Errors
/// [`OpeningError`]; the old layout still holds then.
pub fn change_shards(
    files: &mut impl SegmentFiles,
    inventory: &Inventory,
    owner: Owner,
    shards: u16,
    incarnation: u64,
    is_of_cluster: bool,
) -> Result<ChangedShards, OpeningError> {
    let (survey, layout) = (&inventory.survey, &inventory.layout);
    let epoch = epoch_of(incarnation)?;
    let mut written = Written::default();
    let mut counted = CountedBytes::default();
    // What is found later would stand behind the ends that the layout tells for good.
    prove_spares(&mut files.reader(), &inventory.left).map_err(OpeningError::Recovery)?;
    // A start must be able to read what is inherited already, or a change would hide the damage.
    for log in &layout.inherited {
        let recovered = replay_inherited(&mut files.reader(), survey, log, &mut |event| {
            if let Event::Part(part, _) = event {
                counted.note(&part);
            }
            Ok(())
        })?;
        written.add(&recovered.history);
    }
    let mut found = Vec::new();
    for log_id in layout.own() {
        let segments = survey.logs.get(&log_id).map_or(&[][..], Vec::as_slice);
        files.expect_bytes(segments.iter().map(|segment| segment.file_bytes).sum());
        let mut strange = None;
        let mut note_part = |part: &PartView<'_>, _| {
            counted.note(part);
            if is_system(part.key()) && !is_understood(part) {
                strange.get_or_insert_with(|| part.key().into());
            }
            Ok(())
        };
        let recovered = recover(&mut files.reader(), segments, &mut note_part)
            .map_err(OpeningError::Recovery)?;
        check_end(files, owner, log_id, &recovered)?;
        if let Some(key) = strange {
            return Err(OpeningError::StrangeKey { key });
        }
        written.add(&recovered.history);
        found.push((log_id, recovered));
    }
    written.check(is_of_cluster, epoch)?;
    let ends = found.iter().map(|(log_id, recovered)| InheritedEnd {
        log_id: *log_id,
        end: SegmentEnd {
            sequence: recovered.start.last_sequence,
            end_offset: recovered.start.end_offset,
            last_lsn: recovered.start.last_lsn,
        },
    });
    let changed = layout.changed_to(shards, ends);
    if changed.inherited.len() > INHERITED_MAX {
        return Err(OpeningError::TooManyInherited {
            logs: changed.inherited.len(),
        });
    }
    for (log_id, recovered) in &found {
        act_on(files, survey, *log_id, recovered)?;
    }
    Ok(ChangedShards {
        layout: changed,
        counted_bytes: counted.estimate(),
    })
}

/// Replays one inherited log, which must end where the layout tells.
fn replay_inherited(
    source: &mut impl SegmentSource,
    survey: &Survey,
    log: &InheritedEnd,
    visit: &mut dyn FnMut(Event<'_>) -> io::Result<()>,
) -> Result<Recovered, OpeningError> {
    let segments = survey.logs.get(&log.log_id).map_or(&[][..], Vec::as_slice);
    replay_ended(source, segments, log.log_id, log.end, visit).map_err(OpeningError::Recovery)
}

/// Holds the log, as it was recovered, against the newest snapshot of it that is finished. One that
/// cannot be read proves nothing.
fn check_end(
    files: &mut impl SegmentFiles,
    owner: Owner,
    log_id: u64,
    recovered: &Recovered,
) -> Result<(), OpeningError> {
    // A list that cannot be read is none.
    let mut names = files.snapshots().unwrap_or_default();
    names.retain(|(name, _)| name.log_id == log_id);
    names.sort_unstable_by(|a, b| b.cmp(a));
    let proven = names.into_iter().find_map(|(name, bytes)| {
        let read_at = |offset: u64, into: &mut [u8]| files.read_snapshot(name, offset, into);
        let reader = SnapshotReader::open(read_at, bytes).ok()?;
        ProvenEnd::of_snapshot(owner, name, &reader)
    });
    match proven {
        Some(end) => end.check(recovered).map_err(OpeningError::Recovery),
        None => Ok(()),
    }
}

/// Changes files as the verdict on a log says.
fn act_on(
    files: &mut impl SegmentFiles,
    survey: &Survey,
    log_id: u64,
    recovered: &Recovered,
) -> Result<(), OpeningError> {
    if let Some(file) = recovered.last_file
        && !is_planted(Bug::ServeUnsynced)
    {
        // What was read may so far be in the system's memory alone, and what follows relies on it.
        files.sync(file).map_err(system("sync the last segment"))?;
    }
    for &file in survey.released.get(&log_id).into_iter().flatten() {
        files
            .remove(file)
            .map_err(system("remove a segment that its log has released"))?;
    }
    for &(file, bytes) in &recovered.truncate {
        files
            .truncate(file, bytes)
            .map_err(system("cut the unused end of a sealed segment"))?;
    }
    if let Some(file) = recovered.release {
        files
            .remove(file)
            .map_err(system("remove a segment that holds nothing"))?;
    }
    Ok(())
}

/// A start is a new term: no version is ever given out twice, whatever the last run had in flight.
fn epoch_of(incarnation: u64) -> Result<u32, OpeningError> {
    let term = u32::try_from(incarnation)
        .ok()
        .filter(|term| *term < 1 << TERM_BITS)
        .ok_or(OpeningError::TermsOver { incarnation })?;
    Ok(term << (u32::BITS - TERM_BITS))
}

/// Who has written the logs of a directory, and up to which epoch.
#[derive(Default)]
struct Written {
    epoch_max: u32,
    is_linked: bool,
}

impl Written {
    fn add(&mut self, log: &History) {
        self.epoch_max = self.epoch_max.max(log.epoch_max);
        self.is_linked |= log.is_linked;
    }

    /// Whether a start may go on with them. Only epochs of a node alone tell of its starts: those
    /// of a cluster are given out by its file.
    fn check(&self, is_of_cluster: bool, epoch: u32) -> Result<(), OpeningError> {
        let (found, is_linked) = (self.epoch_max, self.is_linked);
        match is_of_cluster {
            true if !is_linked && found > 0 => Err(OpeningError::WrittenAlone),
            true => Ok(()),
            false if is_linked => Err(OpeningError::OfCluster),
            false if found >= epoch => Err(OpeningError::TermUsed { found, epoch }),
            false => Ok(()),
        }
    }
}

/// A shard that is ready to serve, without spare segments yet.
pub struct Opened<P: Blocks> {
    /// The shard.
    pub shard: Shard<P>,
    /// What recovery found.
    pub recovered: Recovered,
    /// The segment files of the shard's log and of inherited logs, to be registered with the disk.
    pub files: Vec<FileId>,
    /// Records replayed of logs that it inherits, those of other shards included.
    pub inherited_records: u64,
    /// The snapshot that was used, and how many entries it has.
    pub snapshot: Option<(SnapshotName, u64)>,
    /// Newer snapshots that were not used, and why.
    pub snapshots_refused: Vec<(SnapshotName, SnapshotError)>,
}

const TERM_BITS: u32 = 24;
/// Slots of a partition.
const PARTITION_SLOTS: u16 = 64;

/// Replays the log of one shard, acts on the verdict and makes the shard.
///
/// # Errors
/// [`OpeningError`].
pub fn open_shard<F: SegmentFiles, P: Blocks + Clone>(
    files: &mut F,
    inventory: &Inventory,
    shard: ShardConfig,
    log: LogConfig,
    segment_bytes: u64,
    budget: Budget,
    blocks: P,
) -> Result<Opened<P>, OpeningError> {
    let needed = log.segment_bytes_min();
    if needed > segment_bytes {
        return Err(OpeningError::SegmentBytes {
            bytes: segment_bytes,
            needed,
            record_bytes_max: log.record_bytes_max,
        });
    }
    let epoch = epoch_of(log.incarnation)?;
    let Inventory { survey, layout, .. } = inventory;
    let segments = survey.logs.get(&log.log_id).map_or(&[][..], Vec::as_slice);
    let AllReplayed {
        mut memory,
        recovered,
        snapshot,
        snapshots_refused,
        start,
        inherited,
    } = match layout.inherited.is_empty() {
        true => replay_log(files, segments, &shard, &log, budget)?,
        false => replay_inheritance(files, inventory, segments, &shard, budget)?,
    };
    memory.carry_time(recovered.time_ms);
    check_end(files, log.owner, log.log_id, &recovered)?;
    if let Some(key) = memory.strange_key() {
        return Err(OpeningError::StrangeKey { key: key.into() });
    }
    let mut written = Written::default();
    written.add(&recovered.history);
    inherited
        .iter()
        .for_each(|(log, _)| written.add(&log.history));
    written.check(shard.cluster.is_some(), epoch)?;

    // Nothing above changed a file. From here on the verdict is acted on.
    act_on(files, survey, log.log_id, &recovered)?;
    let own_files = segments
        .iter()
        .map(|segment| segment.file)
        .filter(|&file| Some(file) != recovered.release);
    let inherited_files = inherited
        .iter()
        .flat_map(|(log, _)| log.history.segments.iter())
        .map(|segment| segment.file);
    let names = own_files.chain(inherited_files).collect();
    let last_epoch = recovered.history.epoch_max.max(1);
    let epoch = planted::or(Bug::EpochOfLastRun, last_epoch, epoch);
    let mut log = Log::with_history(
        log,
        recovered.start,
        recovered.history.clone(),
        blocks.clone(),
    );
    // Also when all that told it is cleaned before the next record.
    log.carry_time(recovered.time_ms);
    let mut store = Store::new(
        log,
        blocks,
        epoch,
        *recovered.history.sequences.clone(),
        memory,
    );
    let inherited_records = inherited.iter().map(|(_, records)| records).sum();
    let inherited: Vec<InheritedLog> = inherited.into_iter().map(|(log, _)| log).collect();
    store.inherit(&inherited);
    let hash = KeyHash::new(shard.hash_seed);
    let marks = (0..PARTITIONS).map(flush_key);
    store
        .data_mut()
        .find_marks(marks, &|key: &[u8]| hash.home_of(key));
    let tags = (0..SLOTS / PARTITION_SLOTS).map(|partition| tag_of(partition * PARTITION_SLOTS));
    let redo = store
        .data_mut()
        .find_redo(tags.flat_map(redo_keys), &|key: &[u8]| hash.home_of(key));
    let mut shard = Shard::after(shard, store, start)
        .map_err(|partition| OpeningError::StrangeNote { partition })?;
    shard.execution_mut().joint.found(redo);
    Ok(Opened {
        shard,
        recovered,
        files: names,
        inherited_records,
        snapshot,
        snapshots_refused,
    })
}

/// What the logs and the snapshot of a shard gave.
struct AllReplayed {
    memory: Replayed,
    recovered: Recovered,
    snapshot: Option<(SnapshotName, u64)>,
    snapshots_refused: Vec<(SnapshotName, SnapshotError)>,
    start: SnapshotStart,
    /// What was replayed before the own log, and how many records of it.
    inherited: Vec<(InheritedLog, u64)>,
}

/// Replays all inherited logs and then all of the shard's log. Only slots of the shard are kept. If
/// versions are kept, the logs are replayed a second time in the same order. No snapshot holds
/// inherited records.
fn replay_inheritance(
    files: &mut impl SegmentFiles,
    inventory: &Inventory,
    segments: &[Segment],
    shard: &ShardConfig,
    budget: Budget,
) -> Result<AllReplayed, OpeningError> {
    let mut memory = Replayed::within(budget);
    let mut inherited = Vec::new();
    let all_segments = inventory.survey.logs.values().flatten();
    files.expect_bytes(all_segments.map(|segment| segment.file_bytes).sum());
    let is_own = |part: &PartView<'_>| shard.topology.owner(part.slot()) == shard.shard;
    for log in &inventory.layout.inherited {
        let mut take = replay_into(files, shard.hash_seed, &mut memory);
        let mut take_own = |event: Event<'_>| match &event {
            Event::Part(part, _) if !is_own(part) => Ok(()),
            _ => take(event),
        };
        let recovered =
            replay_inherited(&mut files.reader(), &inventory.survey, log, &mut take_own)?;
        drop(take);
        memory.carry_time(recovered.time_ms);
        let log = InheritedLog {
            log_id: log.log_id,
            history: recovered.history,
            time_ms: recovered.time_ms,
        };
        inherited.push((log, recovered.records));
    }
    let mut take = replay_into(files, shard.hash_seed, &mut memory);
    let recovered =
        replay(&mut files.reader(), segments, &mut take).map_err(OpeningError::Recovery)?;
    drop(take);
    memory.carry_time(recovered.time_ms);
    if memory.keeps_versions() {
        let mut collect = collect_into(shard.hash_seed, &mut memory, is_own);
        let all = &inventory.layout.inherited[..];
        let logs = planted::or(Bug::ForgetInheritedVersions, &all[..0], all);
        for log in logs {
            replay_inherited(&mut files.reader(), &inventory.survey, log, &mut collect)?;
        }
        replay(&mut files.reader(), segments, &mut collect).map_err(OpeningError::Recovery)?;
        drop(collect);
        memory.finish_versions();
    }
    Ok(AllReplayed {
        memory,
        recovered,
        snapshot: None,
        snapshots_refused: Vec::new(),
        start: SnapshotStart::default(),
        inherited,
    })
}

/// Fills a memory: from the newest snapshot that can be used and the log behind it, or from all of
/// the log.
fn replay_log(
    files: &mut impl SegmentFiles,
    segments: &[Segment],
    shard: &ShardConfig,
    log: &LogConfig,
    budget: Budget,
) -> Result<AllReplayed, OpeningError> {
    // A list that cannot be read is none: the log alone gives the same.
    let mut names = files.snapshots().unwrap_or_default();
    names.retain(|(name, _)| name.log_id == log.log_id);
    names.sort_unstable_by(|a, b| b.cmp(a));
    let mut start = SnapshotStart {
        next_number: names.first().map_or(1, |(name, _)| name.number + 1),
        ..SnapshotStart::default()
    };
    let mut snapshots_refused = Vec::new();
    for (name, bytes) in names {
        match replay_behind(files, segments, shard, log, budget, (name, bytes)) {
            Ok((memory, recovered, entries, behind_bytes)) => {
                start.behind = Behind {
                    bytes: behind_bytes,
                    records: recovered.records,
                };
                start.snapshot_bytes = bytes;
                return Ok(AllReplayed {
                    memory,
                    recovered,
                    snapshot: Some((name, entries)),
                    snapshots_refused,
                    start,
                    inherited: Vec::new(),
                });
            }
            Err(error) => snapshots_refused.push((name, error)),
        }
    }
    files.expect_bytes(segments.iter().map(|segment| segment.file_bytes).sum());
    let (memory, recovered) =
        replay_all(files, segments, shard.hash_seed, budget).map_err(OpeningError::Recovery)?;
    let ends = recovered.history.segments.iter().map(|segment| segment.end);
    start.behind = Behind {
        bytes: ends.map(|end| end.end_offset).sum(),
        records: recovered.records,
    };
    Ok(AllReplayed {
        memory,
        recovered,
        snapshot: None,
        snapshots_refused,
        start,
        inherited: Vec::new(),
    })
}

/// Fills a memory from all of a log, without a snapshot. Changes no file.
///
/// # Errors
/// As for [`recover`].
pub fn replay_all(
    files: &impl SegmentFiles,
    segments: &[Segment],
    hash_seed: u64,
    budget: Budget,
) -> Result<(Replayed, Recovered), RecoveryError> {
    let mut memory = Replayed::within(budget);
    let mut take = replay_into(files, hash_seed, &mut memory);
    let recovered = replay(&mut files.reader(), segments, &mut take)?;
    drop(take);
    memory.carry_time(recovered.time_ms);
    if memory.keeps_versions() {
        let mut collect = collect_into(hash_seed, &mut memory, |_| true);
        replay(&mut files.reader(), segments, &mut collect)?;
        drop(collect);
        memory.finish_versions();
    }
    Ok((memory, recovered))
}

/// Fills a memory from one snapshot and the log behind it. Also: its entries, and the bytes of log
/// behind it. What is damaged in the log is not judged here: the replay of all of it does that.
fn replay_behind(
    files: &mut impl SegmentFiles,
    segments: &[Segment],
    shard: &ShardConfig,
    log: &LogConfig,
    budget: Budget,
    snapshot: (SnapshotName, u64),
) -> Result<(Replayed, Recovered, u64, u64), SnapshotError> {
    let mut is_again = false;
    loop {
        let mut reader = files.reader();
        let (mut memory, header, footer) =
            load_snapshot(files, &mut reader, segments, shard, log, budget, snapshot)?;
        let position = header.position();
        let unread_bytes = |sequence: u64, end_offset: u64| match sequence.cmp(&position.sequence) {
            Ordering::Less => 0,
            Ordering::Equal => end_offset.saturating_sub(position.offset),
            Ordering::Greater => end_offset,
        };
        let unread = segments
            .iter()
            .map(|segment| unread_bytes(segment.header.sequence, segment.file_bytes));
        files.expect_bytes(unread.sum());
        let mut behind = |visit: &mut dyn FnMut(Event<'_>) -> io::Result<()>| {
            recover_behind(&mut reader, segments, (&header, &footer), visit)
                .map_err(|_| SnapshotError::Stranger("does not lead to the end of the log"))?
                .ok_or(SnapshotError::Stranger(
                    "tells of records that the log does not hold",
                ))
        };
        if is_again {
            let mut take = replay_into(files, shard.hash_seed, &mut memory);
            behind(&mut |event| match &event {
                Event::Part(part, _) if is_system(part.key()) => take(event),
                _ => Ok(()),
            })?;
        }
        let mut take = replay_into(files, shard.hash_seed, &mut memory);
        let mut recovered = behind(&mut take)?;
        drop(take);
        if header.is_linked {
            recovered
                .history
                .came_after(header.from, memory.snapshot_history());
        }
        if memory.has_late_settings() && !is_again {
            is_again = true;
            continue;
        }
        if !memory.has_settings_in(|file| segments.iter().any(|segment| segment.file == file)) {
            return Err(SnapshotError::Stranger(
                "has settings that are not in the log",
            ));
        }
        memory.carry_time(recovered.time_ms);
        if memory.keeps_versions() {
            let mut collect = collect_into(shard.hash_seed, &mut memory, |_| true);
            behind(&mut collect)?;
            drop(collect);
            memory.finish_versions();
        }
        let ends = recovered.history.segments.iter().map(|segment| segment.end);
        let behind_bytes = ends
            .map(|end| unread_bytes(end.sequence, end.end_offset))
            .sum();
        return Ok((memory, recovered, footer.entries, behind_bytes));
    }
}

/// Fills a memory from one snapshot, if it fits the log. What is to be read `behind` it is
/// announced before.
fn load_snapshot<F: SegmentFiles>(
    files: &mut F,
    behind: &mut F::Reader,
    segments: &[Segment],
    shard: &ShardConfig,
    log: &LogConfig,
    budget: Budget,
    (name, bytes): (SnapshotName, u64),
) -> Result<(Replayed, SnapshotHeader, SnapshotFooter), SnapshotError> {
    let hash_check = hash_check(shard.hash_seed);
    let read_at = |offset: u64, into: &mut [u8]| files.read_snapshot(name, offset, into);
    let reader = SnapshotReader::open(read_at, bytes)?;
    let coverage = Coverage::of(reader.header(), log.owner, name, hash_check, segments)?;
    let (header, footer) = (reader.header().clone(), *reader.footer());
    let position = header.position();
    for segment in segments {
        match segment.header.sequence.cmp(&position.sequence) {
            Ordering::Less => {}
            Ordering::Equal => behind.will_read(segment.file, position.offset),
            Ordering::Greater => behind.will_read(segment.file, 0),
        }
    }
    Ok((load(reader, &coverage, budget)?, header, footer))
}

/// Takes the parts of a second replay into `memory`, but for those of other shards.
fn collect_into(
    hash_seed: u64,
    memory: &mut Replayed,
    is_own: impl Fn(&PartView<'_>) -> bool,
) -> impl FnMut(Event<'_>) -> io::Result<()> {
    let hash = KeyHash::new(hash_seed);
    move |event| {
        if let Event::Part(part, place) = event
            && is_own(&part)
        {
            memory.collect(&|key: &[u8]| hash.home_of(key), &part, place);
        }
        Ok(())
    }
}

/// Takes replayed parts into `memory`.
fn replay_into(
    files: &impl SegmentFiles,
    hash_seed: u64,
    memory: &mut Replayed,
) -> impl FnMut(Event<'_>) -> io::Result<()> {
    let hash = KeyHash::new(hash_seed);
    let mut random_access = files.reader();
    let mut key_at = move |place: Place, see: &mut dyn FnMut(&PartView<'_>)| -> io::Result<()> {
        let mut bytes = vec![0; place.bytes as usize];
        let read = random_access.read_at(place.file, place.offset, &mut bytes)?;
        let part = PartView::read(&bytes[..read]).map_err(|error| {
            io::Error::other(format!(
                "{:08}.seg at offset {}: {error:?}",
                place.file.0, place.offset
            ))
        })?;
        see(&part);
        Ok(())
    };
    move |event| {
        match event {
            Event::Part(part, place) => {
                let home_of = |key: &[u8]| hash.home_of(key);
                memory.replay(&home_of, &part, place, &mut key_at)?;
            }
            Event::Prefetch(parts) => {
                let mut homes = [KeyHome::default(); PREFETCH_KEYS_MAX];
                for (home, part) in homes.iter_mut().zip(parts) {
                    *home = KeyHome::new(part.slot(), hash.of(part.key()));
                }
                memory.prefetch(&homes[..parts.len()]);
            }
            Event::Segment(_) | Event::Contents(_) | Event::Frame(..) => {}
        }
        Ok(())
    }
}
