//! The key tables of a shard's sealed segments: which there are, which are to be made, and the blocks
//! of them that scans have read lately.
//!
//! A table is made when scans have read so many parts of a segment one by one that reading it whole
//! would have cost as many reads: most stores are never scanned, and most segments of a hot log die
//! before. One that does not hold what it should is given up, and the parts are read as if it had never
//! been there.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use penstock_storage::index::Cursor;
use penstock_storage::io::{BLOCK_BYTES, Blocks, FileId};
use penstock_storage::key_table::{KeyTable, TableBlock, TableHome};
use penstock_storage::store::Store;

use crate::shard::Now;

/// What is to be done with the file of a key table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyTableOrder {
    /// Make that of this segment. Answered once; a shard has one under way.
    Make(TableHome),
    /// Nobody reads that of this segment any more: remove it.
    Remove(FileId),
}

/// What a shard's key tables did since it started, and what they are now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyTableCounters {
    /// Made.
    pub made: u64,
    /// Begun and not made, or found damaged.
    pub void: u64,
    /// Parts that scans read one by one.
    pub part_reads: u64,
    /// Blocks of tables that scans read instead.
    pub block_reads: u64,
    /// Tables now.
    pub standing: u64,
    /// Bytes of their files.
    pub file_bytes: u64,
}

/// Bytes of a segment for each part of it that scans read before a table is made: what reading it in
/// order brings with one read.
const BYTES_A_READ: u64 = 64 << 10;
/// Reads for which no table is made in any case.
const READS_MIN: u64 = 4;
/// Blocks that are kept, at least and at most; between, two for each table, because a scan is in one block
/// of each at a time.
const BLOCKS_MIN: usize = 256;
const BLOCKS_MAX: usize = 4096;
/// Tables at a time, at most: each is an open file.
const TABLES_MAX: usize = 4096;
/// Of the memory for index and values, what tables and blocks may take each.
const MEMORY_SHARE: usize = 64;
/// How often to look whether a table was made, in microseconds.
const LOOK_US: u64 = 10_000;

/// Reads of parts of one segment.
#[derive(Debug)]
struct Reads {
    count: u64,
    /// Whether to make a table is asked when they are so many.
    asked_at: u64,
}

/// The key tables of one shard.
#[derive(Debug, Default)]
pub(crate) struct KeyTables {
    hash_check: u64,
    standing: HashMap<FileId, KeyTable>,
    memory_bytes: usize,
    kept: HashMap<(FileId, u32), Arc<TableBlock>>,
    /// Those that are kept, in the order in which they came.
    came: VecDeque<(FileId, u32)>,
    reads: HashMap<FileId, Reads>,
    /// Segments about which to ask.
    due: VecDeque<FileId>,
    making: Option<FileId>,
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
            standing: self.standing.len() as u64,
            file_bytes: self.standing.values().map(KeyTable::file_bytes).sum(),
            ..self.counters
        }
    }

    /// The segments of which there may be tables.
    pub(crate) fn homes<P: Blocks>(&self, store: &Store<P>) -> impl Iterator<Item = TableHome> {
        let (log, hash_check) = (store.log(), self.hash_check);
        let known = log.durable_end();
        let known = (known.segment_sequence, known.end_offset);
        log.sealed_segments()
            .iter()
            .filter(move |it| (it.end.sequence, it.end.end_offset) <= known)
            .map(move |it| TableHome {
                owner: log.config().owner,
                file: it.file,
                log_id: log.config().log_id,
                sequence: it.end.sequence,
                salt: it.salt,
                end_offset: it.end.end_offset,
                hash_check,
            })
    }

    /// One that an earlier run left, of one of [`KeyTables::homes`].
    pub(crate) fn adopt(&mut self, table: KeyTable) {
        self.memory_bytes += table.memory_bytes();
        self.standing.insert(table.home().file, table);
    }

    /// The block of a segment's table that tells of a key, if there is one.
    pub(crate) fn block_of(&self, file: FileId, at: Cursor) -> Option<u32> {
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

    /// Asks for the next table to be made, and lets go of blocks that are too many.
    pub(crate) fn step<P: Blocks>(&mut self, store: &Store<P>, into: &mut Vec<KeyTableOrder>) {
        let share = store.budget().memory_bytes_max / MEMORY_SHARE;
        let blocks_max = (2 * self.standing.len()).min(share / BLOCK_BYTES);
        while self.came.len() > blocks_max.clamp(BLOCKS_MIN, BLOCKS_MAX) {
            let first = self.came.pop_front().expect("there are some");
            self.kept.remove(&first);
        }
        if self.making.is_some() || store.log().is_low() {
            return;
        }
        while let Some(file) = self.due.pop_front() {
            let home = self.home_of(file, store);
            let Some(reads) = self.reads.get_mut(&file) else {
                continue;
            };
            let enough = home.map_or(u64::MAX, |home| home.end_offset / BYTES_A_READ);
            let has_room = self.memory_bytes < share && self.standing.len() < TABLES_MAX;
            match home {
                Some(home) if reads.count >= enough && has_room => {
                    self.making = Some(file);
                    into.push(KeyTableOrder::Make(home));
                    return;
                }
                Some(_) if reads.count < enough => reads.asked_at = enough,
                // It is written still, is none of this log, or there is no room.
                _ => reads.asked_at = 2 * reads.count,
            }
        }
    }

    /// What became of the table that was to be made. One that nobody wants any more is to be removed.
    pub(crate) fn made<P: Blocks>(
        &mut self,
        file: FileId,
        table: Option<KeyTable>,
        store: &Store<P>,
        into: &mut Vec<KeyTableOrder>,
    ) {
        assert_eq!(self.making.take(), Some(file), "one is made at a time");
        self.reads.remove(&file);
        let is_of_segment = |table: &KeyTable| self.home_of(file, store) == Some(*table.home());
        match table {
            Some(table) if is_of_segment(&table) => {
                self.counters.made += 1;
                self.adopt(table);
            }
            Some(_) => into.push(KeyTableOrder::Remove(file)),
            None => self.counters.void += 1,
        }
    }

    /// A table does not hold what it should. Whether it was still there.
    pub(crate) fn give_up(&mut self, file: FileId, into: &mut Vec<KeyTableOrder>) -> bool {
        let is_there = self.forget(file, into);
        self.counters.void += u64::from(is_there);
        is_there
    }

    /// A segment is released. Whether it had a table.
    pub(crate) fn forget(&mut self, file: FileId, into: &mut Vec<KeyTableOrder>) -> bool {
        self.reads.remove(&file);
        let Some(table) = self.standing.remove(&file) else {
            return false;
        };
        self.memory_bytes -= table.memory_bytes();
        self.came.retain(|&(of, _)| of != file);
        self.kept.retain(|&(of, _), _| of != file);
        into.push(KeyTableOrder::Remove(file));
        true
    }

    /// The segments that have tables.
    pub(crate) fn files(&self) -> Vec<FileId> {
        let mut files: Vec<FileId> = self.standing.keys().copied().collect();
        files.sort_unstable();
        files
    }

    /// Whether one is being made.
    pub(crate) fn is_making(&self) -> bool {
        self.making.is_some()
    }

    /// When to look whether it is.
    pub(crate) fn deadline_us(&self, now: Now) -> Option<u64> {
        self.making.map(|_| now.us + LOOK_US)
    }

    fn home_of<P: Blocks>(&self, file: FileId, store: &Store<P>) -> Option<TableHome> {
        self.homes(store).find(|home| home.file == file)
    }
}
