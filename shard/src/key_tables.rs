//! The key tables of a shard's sealed segments: which there are, which are to be made, and the
//! blocks of them that scans have read lately.
//!
//! A table is made when scans have read so many parts of a segment one by one that reading it whole
//! would have cost as many reads: most stores are never scanned, and most segments of a hot log die
//! before. One that does not hold what it should is given up, and the parts are read as if it had
//! never been there. Those that an earlier run left are loaded when a scan first reads a part of
//! which one of them may tell, so that a start does not wait for them.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use penstock_storage::io::{BLOCK_BYTES, Blocks};
use penstock_storage::key_home::KeyHome;
use penstock_storage::key_table::{KeyTable, TableBlock, TableHome};
use penstock_storage::place::FileId;
use penstock_storage::store::Store;

use crate::now::Now;

/// What is to be done with the file of a key table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyTableOrder {
    /// Load that of this segment, which an earlier run left. Answered once.
    Load(TableHome),
    /// Make that of this segment, or load it: another shard may have asked for it. Answered once; a
    /// shard has one under way.
    Make(TableHome),
    /// This shard reads that of this segment no more: remove it. Who has it open may read on.
    Remove(FileId),
}

/// Counters of a shard's key tables since its start, and their present number and size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyTableCounters {
    /// Made.
    pub made: u64,
    /// Asked for and not made: there was no room, or the system refused something.
    pub refused: u64,
    /// Found damaged, or of another segment.
    pub void: u64,
    /// Parts that scans read one by one.
    pub part_reads: u64,
    /// Blocks of tables that scans read instead.
    pub block_reads: u64,
    /// Tables now, loaded or not. Of an inherited segment other shards have the same one.
    pub standing: u64,
    /// Bytes of their files.
    pub file_bytes: u64,
}

/// Bytes of a segment for each part of it that scans read before a table is made: what reading it
/// in order brings with one read.
const BYTES_A_READ: u64 = 64 << 10;
/// Reads for which no table is made in any case.
const READS_MIN: u64 = 4;
/// Blocks that are kept, at least and at most; between, two for each table, because a scan is in
/// one block of each at a time.
const BLOCKS_MIN: usize = 256;
const BLOCKS_MAX: usize = 4096;
/// Tables at a time, at most: each is an open file.
const TABLES_MAX: usize = 4096;
/// Tables and blocks may each take this part of the memory for index and values: the memory divided
/// by this number.
const MEMORY_SHARE: usize = 64;
/// How often to look whether a table has come, in microseconds.
const CHECK_US: u64 = 10_000;

/// Reads of parts of one segment.
#[derive(Debug)]
struct Reads {
    count: u64,
    /// Whether to make a table is asked when they are so many.
    asked_at: u64,
}

/// What was asked for and has not come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UnderWay {
    Loading,
    Making,
    /// There is no room for it any more.
    Unwanted,
}

/// The key tables of one shard.
#[derive(Debug, Default)]
pub(crate) struct KeyTables {
    hash_check: u64,
    /// Tables that an earlier run left and nobody has asked for, with the lengths of their files.
    left: HashMap<FileId, u64>,
    /// A scan has read a part that may stand in one of these tables.
    is_left_wanted: bool,
    standing: HashMap<FileId, KeyTable>,
    memory_bytes: usize,
    kept: HashMap<(FileId, u32), Arc<TableBlock>>,
    /// The keys of `kept`, in the order in which the blocks came.
    came: VecDeque<(FileId, u32)>,
    reads: HashMap<FileId, Reads>,
    /// Segments about which to ask.
    due: VecDeque<FileId>,
    under_way: HashMap<FileId, UnderWay>,
    counters: KeyTableCounters,
}

impl KeyTables {
    pub(crate) fn new(hash_check: u64) -> Self {
        KeyTables {
            hash_check,
            ..KeyTables::default()
        }
    }

    pub(crate) fn counters(&self) -> KeyTableCounters {
        KeyTableCounters {
            standing: (self.standing.len() + self.left.len()) as u64,
            ..self.counters
        }
    }

    /// The segments that may have tables. All shards read the tables of inherited logs, each for
    /// its own slots.
    pub(crate) fn homes<P: Blocks>(&self, store: &Store<P>) -> impl Iterator<Item = TableHome> {
        let (log, hash_check) = (store.log(), self.hash_check);
        let known = log.durable_end();
        let known = (known.segment_sequence, known.end_offset);
        let own = log.sealed_segments().iter();
        own.filter(move |it| (it.end.sequence, it.end.end_offset) <= known)
            .map(move |it| (log.config().log_id, it))
            .chain(store.cleaning().inheritance().segments())
            .map(move |(log_id, it)| TableHome {
                owner: log.config().owner,
                file: it.file,
                log_id,
                sequence: it.end.sequence,
                salt: it.salt,
                end_offset: it.end.end_offset,
                hash_check,
            })
    }

    /// An earlier run left tables of these segments, with the bytes of their files. Some of the
    /// segments may have left the store.
    pub(crate) fn expect<P: Blocks>(&mut self, found: &HashMap<FileId, u64>, store: &Store<P>) {
        let homes = self.homes(store).map(|home| home.file);
        self.left = homes
            .filter_map(|file| Some((file, *found.get(&file)?)))
            .collect();
        self.counters.file_bytes = self.left.values().sum();
    }

    fn adopt(&mut self, table: KeyTable) {
        self.memory_bytes += table.memory_bytes();
        self.counters.file_bytes += table.file_bytes();
        let before = self.standing.insert(table.home().file, table);
        assert!(before.is_none(), "a segment has one table");
    }

    /// The block of a segment's table that tells of a key, if there is one.
    pub(crate) fn block_of(&self, file: FileId, at: KeyHome) -> Option<u32> {
        self.standing.get(&file)?.block_of(at)
    }

    /// A block that is kept.
    pub(crate) fn block(&self, file: FileId, block: u32) -> Option<&TableBlock> {
        self.kept.get(&(file, block)).map(Arc::as_ref)
    }

    /// A part of this segment is read for a scan.
    pub(crate) fn reads_part(&mut self, file: FileId) {
        self.counters.part_reads += 1;
        let reads = self.reads.entry(file).or_insert(Reads {
            count: 0,
            asked_at: READS_MIN,
        });
        reads.count += 1;
        if reads.count == reads.asked_at && !self.standing.contains_key(&file) {
            self.due.push_back(file);
        }
        self.is_left_wanted |= self.left.contains_key(&file);
    }

    /// A block of this segment's table is read for a scan.
    pub(crate) fn reads_block(&mut self) {
        self.counters.block_reads += 1;
    }

    /// A block that was read, if it is what was written; otherwise the table is to be given up.
    pub(crate) fn take_in(
        &mut self,
        file: FileId,
        block: u32,
        bytes: &[u8],
    ) -> Option<Arc<TableBlock>> {
        let table = self.standing.get(&file)?;
        let checked = Arc::new(table.check(block, bytes)?);
        if self
            .kept
            .insert((file, block), Arc::clone(&checked))
            .is_none()
        {
            self.came.push_back((file, block));
        }
        Some(checked)
    }

    /// Asks for the tables that an earlier run left, if a scan wants one, or for the next table to
    /// be made. Forgets blocks beyond the limit, the oldest first.
    pub(crate) fn step<P: Blocks>(&mut self, store: &Store<P>, into: &mut Vec<KeyTableOrder>) {
        let blocks_max = (2 * self.standing.len()).min(share(store) / BLOCK_BYTES);
        while self.came.len() > blocks_max.clamp(BLOCKS_MIN, BLOCKS_MAX) {
            let first = self.came.pop_front().expect("there are some");
            self.kept.remove(&first);
        }
        if std::mem::take(&mut self.is_left_wanted) {
            self.load(store, into);
        }
        if !self.under_way.is_empty() || store.log().is_low() {
            return;
        }
        let has_room = self.has_room(store);
        while let Some(file) = self.due.pop_front() {
            let home = self.home_of(file, store);
            let Some(reads) = self.reads.get_mut(&file) else {
                continue;
            };
            if self.standing.contains_key(&file) {
                continue;
            }
            let enough = home.map_or(u64::MAX, |home| home.end_offset / BYTES_A_READ);
            match home {
                Some(home) if reads.count >= enough && has_room => {
                    self.under_way.insert(file, UnderWay::Making);
                    into.push(KeyTableOrder::Make(home));
                    return;
                }
                Some(_) if reads.count < enough => reads.asked_at = enough,
                // It is written still, is none of this log, or there is no room.
                _ => reads.asked_at = 2 * reads.count,
            }
        }
    }

    fn load<P: Blocks>(&mut self, store: &Store<P>, into: &mut Vec<KeyTableOrder>) {
        for home in self.homes(store).collect::<Vec<_>>() {
            // A table of a segment that was just released stays until the segment is forgotten.
            if let Some(bytes) = self.left.remove(&home.file) {
                self.counters.file_bytes -= bytes;
                self.under_way.insert(home.file, UnderWay::Loading);
                into.push(KeyTableOrder::Load(home));
            }
        }
    }

    /// What became of a table that was asked for. One that nobody wants any more is to be removed.
    pub(crate) fn arrived<P: Blocks>(
        &mut self,
        file: FileId,
        table: Option<KeyTable>,
        store: &Store<P>,
        into: &mut Vec<KeyTableOrder>,
    ) {
        let was = self.under_way.remove(&file).expect("it was asked for");
        let is_of_segment = |table: &KeyTable| self.home_of(file, store) == Some(*table.home());
        match table {
            // An earlier run may have left more tables than there is room for now.
            Some(table)
                if was != UnderWay::Unwanted && is_of_segment(&table) && self.has_room(store) =>
            {
                self.counters.made += u64::from(was == UnderWay::Making);
                self.adopt(table);
            }
            Some(_) => into.push(KeyTableOrder::Remove(file)),
            None if was == UnderWay::Loading => self.counters.void += 1,
            // What was in the way may still be: it is tried again when as much was read once more.
            None => {
                self.counters.refused += 1;
                if let Some(reads) = self.reads.get_mut(&file) {
                    reads.asked_at = 2 * reads.count;
                }
                return;
            }
        }
        self.reads.remove(&file);
    }

    /// A table does not hold what it should. Whether it was still there.
    pub(crate) fn give_up(&mut self, file: FileId, into: &mut Vec<KeyTableOrder>) -> bool {
        let is_there = self.forget(file, into);
        self.counters.void += u64::from(is_there);
        is_there
    }

    /// A segment is released. Whether it had a table that was loaded.
    pub(crate) fn forget(&mut self, file: FileId, into: &mut Vec<KeyTableOrder>) -> bool {
        self.reads.remove(&file);
        if let Some(bytes) = self.left.remove(&file) {
            self.counters.file_bytes -= bytes;
            into.push(KeyTableOrder::Remove(file));
        }
        let Some(table) = self.standing.remove(&file) else {
            return false;
        };
        self.memory_bytes -= table.memory_bytes();
        self.counters.file_bytes -= table.file_bytes();
        self.came.retain(|&(of, _)| of != file);
        self.kept.retain(|&(of, _), _| of != file);
        into.push(KeyTableOrder::Remove(file));
        true
    }

    /// There is no room for what comes.
    pub(crate) fn refuse_coming(&mut self) {
        let coming = self.under_way.values_mut();
        coming.for_each(|it| *it = UnderWay::Unwanted);
    }

    /// The segments that have tables.
    pub(crate) fn files(&self) -> Vec<FileId> {
        let files = self.standing.keys().chain(self.left.keys());
        let mut files: Vec<FileId> = files.copied().collect();
        files.sort_unstable();
        files
    }

    /// Whether something was asked for and has not come.
    pub(crate) fn awaits(&self) -> bool {
        !self.under_way.is_empty()
    }

    /// When to look whether it has.
    pub(crate) fn deadline_us(&self, now: Now) -> Option<u64> {
        self.awaits().then_some(now.us + CHECK_US)
    }

    /// Whether there may be one table more.
    fn has_room<P: Blocks>(&self, store: &Store<P>) -> bool {
        self.memory_bytes < share(store) && self.standing.len() < TABLES_MAX
    }

    fn home_of<P: Blocks>(&self, file: FileId, store: &Store<P>) -> Option<TableHome> {
        self.homes(store).find(|home| home.file == file)
    }
}

/// What tables may take of the memory, and as much again their blocks.
fn share<P: Blocks>(store: &Store<P>) -> usize {
    store.data().budget().memory_bytes_max / MEMORY_SHARE
}
