//! The store of one shard: log, index and value cache as one thing.
//!
//! A change is made in three steps: find the cells of its keys, change the cells, [`Store::commit`]
//! them as one record. Between the first and the last step nothing else runs, so a caller that
//! changes its mind undoes its edits in the cells and commits nothing.
//!
//! What must hold:
//! - every cached key has an index entry, and every index entry has a cell or a place in the log;
//! - the place in a cell or a cold index entry is that of the key's newest part;
//! - a cell whose last change is not durable stays in memory, so the place of a cold entry can be
//!   read from the disk at any time.

use std::collections::VecDeque;

use crate::budget::{Bounds, Budget};
use crate::cache::{Cache, Cell};
use crate::cleaning::{Cleaner, Live};
use crate::clock::Clock;
use crate::index::{Candidate, CellId, Cursor, Home, Index, PackedPlace, Position};
use crate::inheritance::Inheritance;
use crate::io::{BLOCK_BYTES, Blocks, Io, IoToken};
use crate::log::{Log, Lsn, Place, Purpose, Room};
use crate::planted::{Bug, is_planted};
use crate::record::{PARTS_MAX, PartKind, PartSpec, PartView, RecordSpec, part_bytes};
use crate::scrub::Scrub;
use crate::snapshot::{Coverage, CoveredSegment, SnapshotEntry, SnapshotFooter, SnapshotHeader};

/// Contiguous groups of slots; a sequence is dense within one of them.
pub const PARTITIONS: usize = 256;
/// Slots that keys are routed to.
pub const SLOTS: u16 = 16_384;

/// The partition of a slot.
#[inline]
#[must_use]
pub fn partition_of(slot: u16) -> usize {
    assert!(slot < SLOTS, "slots are computed modulo {SLOTS}");
    usize::from(slot) / (SLOTS as usize / PARTITIONS)
}

/// The version of a key: compared in this order, never reused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// 24-bit term and 8-bit node ordinal.
    pub epoch: u32,
    /// Dense per partition, from 1.
    pub sequence: u64,
}

/// What is known of a key without a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// In memory (perhaps as a deletion that is not durable yet).
    Cached(CellId),
    /// Not in the store.
    Absent,
    /// An entry with the same hash is on disk only: read this place, hand it to
    /// [`Store::admit`] and look again.
    Cold(Place),
}

/// Why a part that was read is not the one that the index asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdmitError {
    /// The bytes are not a valid part, or the part of another key or version.
    Corrupt,
}

/// The last sequence given out in each partition.
pub type Sequences = [u64; PARTITIONS];

/// The data of one shard.
pub struct Store<P: Blocks> {
    log: Log<P>,
    blocks: P,
    pub(crate) index: Index,
    pub(crate) cache: Cache,
    budget: Budget,
    /// What the budget says in this turn.
    bounds: Bounds,
    pub(crate) live: Live,
    pub(crate) cleaner: Cleaner<P::Block>,
    pub(crate) scrub: Scrub,
    pub(crate) inheritance: Inheritance,
    epoch: u32,
    sequences: Box<Sequences>,
    clock: Clock,
    /// The newest time that the log carried when it was opened.
    found_ms: u64,
    /// Deletions in log order, by slot, hash and sequence, that leave the index once they are durable.
    deletions: VecDeque<(Lsn, u16, u32, u64)>,
    places: [Place; PARTS_MAX],
    /// The slot and hash of a key that does not leave the cache.
    kept: Option<(u16, u32)>,
}

/// How far the hands of the cache move in one turn, at most.
const EVICTION_STEPS_MAX: usize = 8192;

/// Keys that [`Store::look_ahead`] takes at a time: about what a processor keeps in flight.
pub const LOOK_AHEAD: usize = 16;

impl<P: Blocks> Store<P> {
    /// A store over `log` that writes with `epoch`, filled from what recovery replayed.
    pub fn new(
        log: Log<P>,
        blocks: P,
        epoch: u32,
        sequences: Sequences,
        mut memory: Memory,
    ) -> Self {
        memory.cache.set_epoch(epoch);
        Store {
            log,
            blocks,
            index: memory.index,
            cache: memory.cache,
            budget: memory.budget,
            bounds: Bounds::default(),
            live: memory.live,
            cleaner: Cleaner::new(),
            scrub: Scrub::default(),
            inheritance: Inheritance::default(),
            epoch,
            sequences: Box::new(sequences),
            clock: Clock::new(memory.time_ms),
            found_ms: memory.time_ms,
            deletions: VecDeque::new(),
            places: [Place::default(); PARTS_MAX],
            kept: None,
        }
    }

    /// Looks at the clocks: `now_us` never steps back, `unix_ms` is the wall clock.
    #[inline]
    pub fn observe(&mut self, now_us: u64, unix_ms: u64) {
        self.clock.observe(now_us, unix_ms);
    }

    /// The time of the store in unix milliseconds, with which commits are stamped. It never runs
    /// backwards, neither now nor behind the newest record of the log.
    #[inline]
    #[must_use]
    pub fn time_ms(&self) -> u64 {
        self.clock.time_ms()
    }

    /// Whether a key with this expiry is gone. It stays in index and log until something removes it:
    /// an older part of the key without an expiry may stand in the log and must not come back.
    #[inline]
    #[must_use]
    pub fn is_expired(&self, expiry_ms: Option<u64>) -> bool {
        expiry_ms.is_some_and(|expiry_ms| match is_planted(Bug::ExpireBackwards) {
            true => expiry_ms > self.time_ms(),
            false => expiry_ms <= self.time_ms(),
        })
    }

    /// Whether a cached key has a value for readers: neither deleted nor expired.
    #[inline]
    #[must_use]
    pub fn exists(&self, id: CellId) -> bool {
        let cell = self.cache.cell(id);
        !cell.is_deleted() && !self.is_expired(cell.expiry_ms())
    }

    /// The newest time that the log carries, in unix milliseconds.
    #[must_use]
    pub fn carried_ms(&self) -> u64 {
        self.found_ms.max(self.log.time_ms())
    }

    /// The log, to be driven: completions, spares, pumping.
    pub fn log(&self) -> &Log<P> {
        &self.log
    }

    /// The log, to be driven: completions, spares, pumping.
    pub fn log_mut(&mut self) -> &mut Log<P> {
        &mut self.log
    }

    /// Looks `key` of `slot` up; `hash` is its hash with the shard's seed.
    #[inline(always)]
    pub fn find(&self, slot: u16, hash: u32, key: &[u8]) -> Found {
        find(&self.index, &self.cache, slot, hash, key)
    }

    /// Loads what look-ups of these slots and hashes will need, all of them at the same time: each stage's
    /// loads do not depend on one another, so the processor overlaps their cache misses. Changes
    /// nothing.
    #[inline]
    pub fn look_ahead(&self, keys: &[(u16, u32)]) {
        let mut cells = [None; LOOK_AHEAD];
        for (cell, &(slot, hash)) in cells.iter_mut().zip(keys) {
            *cell = self.index.likely_cell(slot, hash);
        }
        load_cells(&self.cache, &cells);
    }

    /// A cached key.
    #[inline]
    #[must_use]
    pub fn cell(&self, id: CellId) -> Cell<'_> {
        self.cache.cell(id)
    }

    /// The value of a cached key, to be edited in place before a commit.
    #[inline]
    pub fn value_mut(&mut self, id: CellId) -> &mut [u8] {
        self.cache.value_mut(id)
    }

    /// Notes that a cached key was read.
    #[inline]
    pub fn touch(&mut self, id: CellId) {
        self.cache.touch(id);
    }

    /// Takes back that the keys of this slot and hash were used, if they have come lately: the operation
    /// that a key is read for is no sign that there will be another.
    pub fn forget_use(&mut self, (slot, hash): (u16, u32)) {
        for candidate in self.index.candidates(slot, hash) {
            if let Home::Memory(id) = candidate.home {
                self.cache.forget_use(id);
            }
        }
    }

    /// The version of a cached key.
    #[inline]
    #[must_use]
    pub fn version(&self, id: CellId) -> Version {
        self.cache.version(id)
    }

    /// Up to where the log must be durable before what a cached key shows is.
    #[inline]
    #[must_use]
    pub fn lsn(&self, id: CellId) -> Lsn {
        self.cache.lsn(id)
    }

    /// Whether a record with one part for a key and value of these lengths can be logged now.
    #[inline]
    pub fn room(
        &mut self,
        purpose: Purpose,
        key_bytes: usize,
        value_bytes: usize,
        expires: bool,
    ) -> Room {
        let expires = expires && !is_planted(Bug::RoomWithoutExpiry);
        self.log
            .room(purpose, part_bytes(key_bytes, value_bytes, expires, 0))
    }

    /// Whether a record of `bytes` of parts can be logged now.
    #[inline]
    pub fn room_for(&mut self, purpose: Purpose, bytes: usize) -> Room {
        self.log.room(purpose, bytes)
    }

    /// Keeps index and values within this from now on, as cells leave.
    #[inline]
    pub fn set_budget(&mut self, budget: Budget) {
        self.budget = budget;
    }

    /// The bounds of index and values.
    #[must_use]
    pub fn budget(&self) -> Budget {
        self.budget
    }

    /// Whether the index may grow for more keys. If not, nothing but deletions mends it.
    #[inline]
    #[must_use]
    pub fn has_room_for_keys(&self) -> bool {
        self.index.memory_bytes() <= self.budget.index_bytes_max()
    }

    /// Whether the index may take a key of this slot and hash: it may grow, or need not.
    #[inline]
    #[must_use]
    pub fn has_room_for_key(&self, (slot, hash): (u16, u32)) -> bool {
        self.has_room_for_keys() || self.index.has_free_entry(slot, hash)
    }

    /// Whether so many cells are to leave that values must not grow before some have: in the next
    /// turns, or when more of the log is durable.
    #[inline]
    #[must_use]
    pub fn is_memory_short(&self) -> bool {
        self.cache.used_bytes() > self.bounds.cells_in_a_turn
            || self.cache.held_bytes() > self.bounds.held_in_a_turn
    }

    /// Keeps the value of one key in memory until told otherwise. Two cold keys of one operation could
    /// push each other out for ever; of all operations that wait for their second key, one that has its
    /// first one for certain is enough for all to come to an end.
    pub fn keep(&mut self, home: Option<(u16, u32)>) {
        self.kept = home;
    }

    /// Whether cells should leave before more come.
    #[must_use]
    pub fn is_over_budget(&self) -> bool {
        self.cache.is_over_budget() || self.cache.held_bytes() > self.bounds.held
    }

    /// Whether more may leave in the next turns though nothing happens meanwhile.
    #[must_use]
    pub fn may_shrink(&self) -> bool {
        self.cache.may_shrink()
    }

    /// Whether values of so many bytes may come from the disk, all those that are under way counted: what
    /// a turn brings stays within the budget. The first one may, whatever its length, once cells that
    /// are too many have left.
    #[inline]
    #[must_use]
    pub fn has_room_to_read(&self, bytes: usize) -> bool {
        // Room that is free in pages does not keep it back: it may be held by what waits for this read.
        self.cache.used_bytes().saturating_add(bytes) <= self.bounds.cells_in_a_turn
    }

    /// Versions go on behind these.
    pub(crate) fn raise_sequences(&mut self, found: &Sequences) {
        for (last, &found) in self.sequences.iter_mut().zip(found) {
            *last = (*last).max(found);
        }
    }

    /// The last sequence given out in each partition.
    #[must_use]
    pub fn sequences(&self) -> &Sequences {
        &self.sequences
    }

    pub(crate) fn take_block(&mut self, bytes: usize) -> Option<P::Block> {
        self.blocks.take(bytes)
    }

    /// Adds a cell for a key of this slot and hash that was found absent. It must be committed or
    /// discarded before anything else runs.
    pub fn insert(
        &mut self,
        (slot, hash): (u16, u32),
        key: &[u8],
        value: &[u8],
        expiry_ms: Option<u64>,
    ) -> CellId {
        let cell = self.cache.insert(key, value, expiry_ms);
        self.index.insert(slot, hash, cell);
        cell
    }

    /// Takes back an [`Store::insert`] that is not to be committed.
    pub fn discard(&mut self, (slot, hash): (u16, u32), id: CellId) {
        assert!(
            self.cache.cell(id).place() == PackedPlace::default(),
            "only a key that was never logged is discarded"
        );
        self.index.remove(self.index.position_of(slot, hash, id));
        self.cache.remove(id);
    }

    /// Gives a cached key of this slot and hash another value and expiry before a commit. It may have
    /// another cell then, which is the answer.
    #[inline]
    pub fn set_value(
        &mut self,
        home: (u16, u32),
        id: CellId,
        value: &[u8],
        expiry_ms: Option<u64>,
    ) -> CellId {
        let now = self.cache.set_value(id, value, expiry_ms);
        if now != id {
            moved(&mut self.index, home, id, now);
        }
        now
    }

    /// Gives a cached key that exists another expiry before a commit. It may have another cell then,
    /// which is the answer.
    pub fn set_expiry(&mut self, home: (u16, u32), id: CellId, expiry_ms: Option<u64>) -> CellId {
        let now = self.cache.set_expiry(id, expiry_ms);
        if now != id {
            moved(&mut self.index, home, id, now);
        }
        now
    }

    /// Marks a cached key as deleted before a commit.
    pub fn delete(&mut self, id: CellId) {
        self.cache.mark_deleted(id);
    }

    /// Logs the present contents of `cells`, keys of one `slot` with their hashes, as one record: all
    /// of them or none survive a crash. [`Store::room_for`] must have said yes.
    #[inline]
    pub fn commit(&mut self, now_us: u64, slot: u16, cells: &[(u32, CellId)]) -> (Lsn, Version) {
        let sequence = &mut self.sequences[partition_of(slot)];
        *sequence += 1;
        let version = Version {
            epoch: self.epoch,
            sequence: *sequence,
        };
        let time_ms = self.time_ms();
        let record = |parts| RecordSpec {
            slot,
            epoch: version.epoch,
            sequence: version.sequence,
            time_ms,
            parts,
            extension: &[],
        };
        let (cache, index) = (&self.cache, &self.index);
        let part = |(hash, id)| part_of(cache.cell(id), index.is_crowded(slot, hash));
        let lsn = match *cells {
            // Nearly every commit; eight parts would cost it more to lay out than to encode.
            [cell] => self
                .log
                .append(now_us, &record(&[part(cell)]), &mut self.places),
            _ => {
                let mut parts = [part(cells[0]); PARTS_MAX];
                for (into, &cell) in parts.iter_mut().zip(cells) {
                    *into = part(cell);
                }
                self.log
                    .append(now_us, &record(&parts[..cells.len()]), &mut self.places)
            }
        };
        self.cleaner.must_look = true;
        for (&place, &(hash, id)) in self.places.iter().zip(cells) {
            let cell = self.cache.cell(id);
            let mut packed = PackedPlace::new(place, version.sequence);
            if let Some(old) = cell.place().place() {
                self.live.loses(old);
            }
            // A deletion counts like a value until it is durable and its entry leaves.
            self.live.gains(place);
            if id != cells[0].1 && is_planted(Bug::PlaceOfFirstKey) {
                packed = cell.place();
            }
            if cell.is_deleted() {
                self.deletions
                    .push_back((lsn, slot, hash, version.sequence));
            }
            self.cache.set_change(id, version, packed, Some(lsn));
        }
        (lsn, version)
    }

    /// Once in each turn, between two changes: forgets the deletions that are durable by now, and
    /// lets cells leave while the cache is over its budget. At no other time does a cell leave, so
    /// the cells that a change has found stay until it is committed, and of several cold keys the
    /// first does not leave because the second comes.
    ///
    /// `home_of` tells slot and hash of a key.
    pub fn settle(&mut self, home_of: &impl Fn(&[u8]) -> (u16, u32)) {
        let durable = self.log.durable();
        let is_over = |lsn| lsn <= durable || is_planted(Bug::ForgetDeletionEarly);
        while let Some(&(lsn, slot, hash, sequence)) = self.deletions.front()
            && is_over(lsn)
        {
            // A key that was set again since lives on; a later deletion has its own entry here. None
            // that is durable may stay: cleaning would take it for something newer than itself.
            let deleted =
                self.index
                    .candidates(slot, hash)
                    .find_map(|candidate| match candidate.home {
                        Home::Memory(id)
                            if self.cache.cell(id).is_deleted()
                                && self.version(id).sequence == sequence =>
                        {
                            Some((candidate.position, id))
                        }
                        _ => None,
                    });
            if let Some((position, id)) = deleted {
                if let Some(place) = self.cache.cell(id).place().place() {
                    self.live.loses(place);
                    self.live.gains_tombstone(place);
                }
                self.index.remove(position);
                self.cache.remove(id);
            }
            self.deletions.pop_front();
        }
        let may_leave = match is_planted(Bug::EvictUnflushed) {
            true => self.log.appended(),
            false => durable,
        };
        let rigid = self.index.memory_bytes() + self.cache.table_bytes();
        self.bounds = self.budget.bounds(rigid);
        self.cache.set_budget(self.budget.cells(rigid));
        let kept = self.kept;
        evict(&mut self.index, &mut self.cache, may_leave, kept, home_of);
        let (index, cache) = (&mut self.index, &mut self.cache);
        tidy(index, cache, durable, self.bounds.held, kept, home_of);
    }

    /// The one aligned read that brings `place` into memory, or `None` if no block is free now.
    pub fn read(&mut self, token: IoToken, place: Place) -> Option<Io<P::Block>> {
        let (offset, len) = aligned_span(place);
        let block = self.blocks.take(len as usize)?;
        Some(Io::Read {
            token,
            file: place.file,
            offset,
            block,
            len,
        })
    }

    /// The read of one block of `place`'s aligned span, `start` bytes behind its beginning; `None` if
    /// no block is free now.
    ///
    /// # Panics
    /// If no block of the span begins there.
    pub fn read_piece(
        &mut self,
        token: IoToken,
        place: Place,
        start: usize,
    ) -> Option<Io<P::Block>> {
        let (offset, len) = aligned_span(place);
        assert!(
            start < len as usize && start.is_multiple_of(BLOCK_BYTES),
            "the span has no block at {start}"
        );
        let block = self.blocks.take(BLOCK_BYTES)?;
        Some(Io::Read {
            token,
            file: place.file,
            offset: offset + start as u64,
            block,
            len: u32::try_from(BLOCK_BYTES).expect("a block is small"),
        })
    }

    /// Takes the key that stands at `place` into the cache, if an entry for `slot` and `hash` still
    /// points there: the index may have moved on while the read was under way. `read` is what
    /// [`Store::read`] asked for, or less at the end of the file.
    ///
    /// # Errors
    /// [`AdmitError::Corrupt`] if the entry points there and what stands there is not its part.
    /// Nothing is cached then.
    pub fn admit(
        &mut self,
        (slot, hash): (u16, u32),
        place: Place,
        read: &[u8],
        home_of: impl Fn(&[u8]) -> (u16, u32),
    ) -> Result<(), AdmitError> {
        let current =
            self.index
                .candidates(slot, hash)
                .find_map(|candidate| match candidate.home {
                    Home::Disk(packed) if packed.place() == Some(place) => {
                        Some((candidate.position, packed))
                    }
                    _ => None,
                });
        let Some((position, packed)) = current else {
            return Ok(());
        };
        let part = part_read((slot, hash), packed, read, home_of)?;
        let expiry_ms = match is_planted(Bug::AdmitWithoutExpiry) {
            true => None,
            false => part.expiry_ms(),
        };
        let id = self.cache.insert(part.key(), part.value(), expiry_ms);
        let version = Version {
            epoch: match is_planted(Bug::AdmitWithOwnEpoch) {
                true => self.epoch,
                false => part.epoch(),
            },
            sequence: part.sequence(),
        };
        // Parts on disk are durable: the cell would still be in memory otherwise.
        self.cache.set_change(id, version, packed, None);
        self.index.set_cell(position, id);
        Ok(())
    }

    /// Visits where the newest parts of keys stand, from `from` on in the order of slots and hashes, at
    /// least `entries` of them unless they end before. Returns where to go on, or `None` at the end. A
    /// deletion is no entry: it is durable and about to leave, or a replay finds it.
    pub fn newest_parts(
        &self,
        from: Cursor,
        entries: usize,
        visit: &mut impl FnMut(SnapshotEntry),
    ) -> Option<Cursor> {
        newest_parts(&self.index, &self.cache, from, entries, visit)
    }

    /// Visits the keys that have the first slot and hash from `from` on, in the order of both, without
    /// touching them. Returns where the next ones stand, or `None` at the end. A key that is there from
    /// the first step to the last is visited.
    pub fn keys_from(&self, from: Cursor, visit: &mut impl FnMut(Cursor, Home)) -> Option<Cursor> {
        self.index
            .walk(from, 1, &mut |at, candidate| visit(at, candidate.home))
    }

    /// Keys, cells in memory, their bytes, bytes of the index.
    #[must_use]
    pub fn usage(&self) -> Usage {
        Usage {
            keys: self.index.len(),
            cells: self.cache.len(),
            cache_bytes: self.cache.used_bytes(),
            index_bytes: self.index.memory_bytes(),
            memory_bytes: self.index.memory_bytes() + self.cache.memory_bytes(),
            memory_bytes_max: match self.budget.memory_bytes_max {
                usize::MAX => 0,
                max => max + self.budget.cells_bytes_min,
            },
        }
    }
}

/// The part that a cold entry for `slot` and `hash` points to, in what [`Store::read`] asked for, or
/// less at the end of the file.
///
/// # Errors
/// [`AdmitError::Corrupt`] if it is not there.
pub fn part_read(
    (slot, hash): (u16, u32),
    packed: PackedPlace,
    read: &[u8],
    home_of: impl Fn(&[u8]) -> (u16, u32),
) -> Result<PartView<'_>, AdmitError> {
    let offset = packed.place().unwrap_or_default().offset;
    let start = usize::try_from(offset % BLOCK_BYTES as u64).expect("less than a block");
    read.get(start..)
        .and_then(|bytes| PartView::read(bytes).ok())
        .filter(|part| {
            part.kind() == PartKind::Put
                && part.slot() == slot
                && home_of(part.key()) == (slot, hash)
                && (packed.is_sequence(part.sequence()) || is_planted(Bug::BelieveAnyRead))
        })
        .ok_or(AdmitError::Corrupt)
}

/// How much a store holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Keys in the index; expired ones and deletions that are not durable yet included.
    pub keys: usize,
    /// Keys whose value is in memory.
    pub cells: usize,
    /// Bytes of the cells.
    pub cache_bytes: usize,
    /// Bytes of the index.
    pub index_bytes: usize,
    /// Bytes of memory of index and cells, unused room included.
    pub memory_bytes: usize,
    /// Most that they may take; 0 if nothing bounds them together.
    pub memory_bytes_max: usize,
}

#[inline]
fn load_cells(cache: &Cache, cells: &[Option<CellId>; LOOK_AHEAD]) {
    let cells = || cells.iter().copied().flatten();
    std::hint::black_box(cells().map(|id| cache.load(id)).sum::<usize>());
    std::hint::black_box(cells().map(|id| cache.load_bytes(id)).sum::<usize>());
}

/// Index and cache while a log is replayed into them.
#[derive(Debug)]
pub struct Memory {
    index: Index,
    cache: Cache,
    budget: Budget,
    live: Live,
    time_ms: u64,
    /// What is replayed stands behind the position of a snapshot that was taken in.
    is_behind_snapshot: bool,
}

impl Memory {
    /// Nothing, with a cache of about `cache_bytes`.
    #[must_use]
    pub fn new(cache_bytes: usize) -> Self {
        Memory::within(Budget::of_cache(cache_bytes))
    }

    /// Nothing, to be kept within a budget.
    #[must_use]
    pub fn within(budget: Budget) -> Self {
        Memory {
            index: Index::new(),
            cache: Cache::new(budget.cache_bytes_max),
            budget,
            live: Live::default(),
            time_ms: 0,
            is_behind_snapshot: false,
        }
    }

    /// Takes in the newest time that the log carries: what was left out of it because of the time is
    /// not to be missed in a time before.
    pub fn carry_time(&mut self, time_ms: u64) {
        self.time_ms = self.time_ms.max(time_ms);
    }

    /// What stands around the entries of a snapshot; they are to be taken in, then the log behind
    /// its position is to be replayed.
    #[must_use]
    pub fn behind_snapshot(
        budget: Budget,
        header: &SnapshotHeader,
        footer: &SnapshotFooter,
        coverage: &Coverage,
    ) -> Self {
        let mut live = Live::default();
        let there = |segment: &&CoveredSegment| coverage.is_there(segment);
        for segment in header.segments.iter().filter(there) {
            live.gains_tombstones(segment.file, u64::from(segment.tombstone_bytes));
        }
        Memory {
            live,
            time_ms: footer.time_ms,
            is_behind_snapshot: true,
            ..Memory::within(budget)
        }
    }

    /// Takes entries of a snapshot in: of one slot, in its order.
    pub fn take_in(&mut self, entries: &[SnapshotEntry]) {
        let Some(first) = entries.first() else { return };
        assert!(
            entries.iter().all(|entry| entry.key.slot == first.key.slot),
            "the entries are of one slot"
        );
        let sorted = entries.iter().map(|entry| (entry.key.hash, entry.part));
        self.index.insert_sorted(first.key.slot, sorted);
        for entry in entries {
            self.live.gains(entry.place());
        }
    }

    /// The newest time that it was told.
    #[must_use]
    pub fn time_ms(&self) -> u64 {
        self.time_ms
    }

    /// As [`Store::newest_parts`].
    pub fn newest_parts(
        &self,
        from: Cursor,
        entries: usize,
        visit: &mut impl FnMut(SnapshotEntry),
    ) -> Option<Cursor> {
        newest_parts(&self.index, &self.cache, from, entries, visit)
    }

    /// As [`Store::look_ahead`], for keys that are seldom in the processor's cache: so it pays to look for
    /// the entries that are not at their home.
    #[inline]
    pub fn look_ahead(&self, keys: &[(u16, u32)]) {
        let homes = keys.iter().map(|&(slot, hash)| self.index.load(slot, hash));
        std::hint::black_box(homes.fold(0, u32::wrapping_add));
        let mut cells = [None; LOOK_AHEAD];
        for (cell, &(slot, hash)) in cells.iter_mut().zip(keys) {
            let first = self.index.candidates(slot, hash).next();
            *cell = first.and_then(|candidate| match candidate.home {
                Home::Memory(id) => Some(id),
                Home::Disk(_) => None,
            });
        }
        load_cells(&self.cache, &cells);
    }

    /// Takes in one replayed part. The newest version of a key wins, wherever it stands.
    ///
    /// `key_at` reads the key and version of a part that left the cache already; it is called
    /// only when an entry with the same hash is cold.
    ///
    /// Behind a snapshot even such a read is rare. A part that is not crowded was appended when no
    /// other key of its slot and hash was in the index. So a cold entry of that hash, which came from
    /// the snapshot or from an earlier part, is of the same key and not newer, or of a key that had
    /// been deleted by then, and may go either way.
    ///
    /// # Errors
    /// Whatever `key_at` fails with.
    pub fn replay<E>(
        &mut self,
        home_of: &impl Fn(&[u8]) -> (u16, u32),
        part: &PartView<'_>,
        place: Place,
        mut key_at: impl FnMut(Place, &mut dyn FnMut(&PartView<'_>)) -> Result<(), E>,
    ) -> Result<(), E> {
        self.time_ms = self.time_ms.max(part.time_ms());
        let new = Version {
            epoch: part.epoch(),
            sequence: part.sequence(),
        };
        let expiry_ms = match is_planted(Bug::ReplayWithoutExpiry) {
            true => None,
            false => part.expiry_ms(),
        };
        // Before anything is looked up: what is held may leave here.
        let rigid = self.index.memory_bytes() + self.cache.table_bytes();
        self.cache.set_budget(self.budget.cells(rigid));
        let (index, cache, durable) = (&mut self.index, &mut self.cache, Lsn::default());
        evict(index, cache, durable, None, home_of);
        let held_bytes_max = self.budget.bounds(rigid).held;
        if cache.held_bytes() > held_bytes_max {
            tidy(index, cache, durable, held_bytes_max, None, home_of);
        }
        let (slot, hash) = home_of(part.key());
        let same = match self.guess_entry(slot, hash, part) {
            Some(guessed) => Some(guessed),
            None => self.entry_of(slot, hash, part.key(), &mut key_at)?,
        };
        match same {
            Some(same) if same.version > new => {}
            // A copy that cleaning made. The segment that it was made from is about to be released.
            Some(Entry {
                position,
                home,
                version,
            }) if version == new && part.kind() == PartKind::Put => {
                let packed = PackedPlace::new(place, new.sequence);
                self.points_elsewhere(position, home, packed);
            }
            Some(Entry { position, home, .. })
                if part.kind() == PartKind::Tombstone
                    && (matches!(home, Home::Memory(_)) || !is_planted(Bug::KeepColdTombstone)) =>
            {
                if let Some(old) = place_of(&self.cache, home) {
                    self.live.loses(old);
                }
                self.live.gains_tombstone(place);
                self.index.remove(position);
                if let Home::Memory(id) = home {
                    self.cache.remove(id);
                }
            }
            Some(Entry { position, home, .. }) => {
                let packed = PackedPlace::new(place, new.sequence);
                self.points_elsewhere(position, home, packed);
                if let Home::Memory(id) = home {
                    let now = self.cache.set_value(id, part.value(), expiry_ms);
                    if now != id {
                        self.index.set_cell(position, now);
                    }
                    self.cache.set_change(now, new, packed, None);
                }
            }
            None if part.kind() == PartKind::Tombstone => self.live.gains_tombstone(place),
            None => {
                self.live.gains(place);
                let id = self.cache.insert(part.key(), part.value(), expiry_ms);
                let packed = PackedPlace::new(place, new.sequence);
                self.cache.set_change(id, new, packed, None);
                self.index.insert(slot, hash, id);
            }
        }
        Ok(())
    }

    /// The entry that a part behind a snapshot belongs to, if that is known without a read.
    fn guess_entry(&self, slot: u16, hash: u32, part: &PartView<'_>) -> Option<Entry> {
        if !self.is_behind_snapshot || part.is_crowded() {
            return None;
        }
        let mut candidates = self.index.candidates(slot, hash);
        let candidate = candidates.next()?;
        if matches!(candidate.home, Home::Memory(_)) || candidates.next().is_some() {
            return None;
        }
        Some(Entry {
            position: candidate.position,
            home: candidate.home,
            version: Version::default(),
        })
    }

    /// The entry of a key.
    fn entry_of<E>(
        &self,
        slot: u16,
        hash: u32,
        key: &[u8],
        key_at: &mut impl FnMut(Place, &mut dyn FnMut(&PartView<'_>)) -> Result<(), E>,
    ) -> Result<Option<Entry>, E> {
        for Candidate { position, home } in self.index.candidates(slot, hash) {
            let mut found = None;
            match home {
                Home::Memory(id) => {
                    if self.cache.cell(id).key() == key {
                        found = Some(self.cache.version(id));
                    }
                }
                Home::Disk(packed) => {
                    let cold = packed.place().expect("a cold entry has a place");
                    key_at(cold, &mut |old| {
                        if old.key() == key {
                            found = Some(Version {
                                epoch: old.epoch(),
                                sequence: old.sequence(),
                            });
                        }
                    })?;
                }
            }
            if let Some(version) = found {
                return Ok(Some(Entry {
                    position,
                    home,
                    version,
                }));
            }
        }
        Ok(None)
    }

    fn points_elsewhere(&mut self, position: Position, home: Home, packed: PackedPlace) {
        if let Some(old) = place_of(&self.cache, home) {
            self.live.loses(old);
        }
        if let Some(new) = packed.place() {
            self.live.gains(new);
        }
        point_to(&mut self.index, &mut self.cache, position, home, packed);
    }
}

/// What the index knows of the key of a replayed part.
struct Entry {
    position: Position,
    home: Home,
    /// The default is older than all others.
    version: Version,
}

/// The present contents of a cell as the log keeps them.
#[inline]
fn part_of(cell: Cell<'_>, is_crowded: bool) -> PartSpec<'_> {
    PartSpec {
        kind: if cell.is_deleted() {
            PartKind::Tombstone
        } else {
            PartKind::Put
        },
        key: cell.key(),
        value: cell.value(),
        expiry_ms: cell.expiry_ms(),
        layout: 0,
        is_crowded,
    }
}

#[inline(always)]
fn find(index: &Index, cache: &Cache, slot: u16, hash: u32, key: &[u8]) -> Found {
    let mut cold = None;
    for candidate in index.candidates(slot, hash) {
        match candidate.home {
            Home::Memory(id) if is_same(cache.cell(id).key(), key) => return Found::Cached(id),
            Home::Memory(_) => {}
            Home::Disk(packed) => cold = cold.or_else(|| packed.place()),
        }
    }
    cold.map_or(Found::Absent, Found::Cold)
}

/// Compares keys eight bytes at a time: they are too short for a call to pay.
#[inline]
fn is_same(a: &[u8], b: &[u8]) -> bool {
    let ((a_eights, a_rest), (b_eights, b_rest)) = (a.as_chunks::<8>(), b.as_chunks::<8>());
    a.len() == b.len()
        && a_eights
            .iter()
            .zip(b_eights)
            .all(|(a, b)| u64::from_le_bytes(*a) == u64::from_le_bytes(*b))
        && a_rest.iter().zip(b_rest).all(|(a, b)| a == b)
}

fn newest_parts(
    index: &Index,
    cache: &Cache,
    from: Cursor,
    entries: usize,
    visit: &mut impl FnMut(SnapshotEntry),
) -> Option<Cursor> {
    index.walk(from, entries, &mut |key, found| {
        let part = match found.home {
            Home::Disk(part) => part,
            Home::Memory(id) => {
                let cell = cache.cell(id);
                if cell.is_deleted() || cell.place() == PackedPlace::default() {
                    return;
                }
                cell.place()
            }
        };
        visit(SnapshotEntry { key, part });
    })
}

/// Lets cells leave, but for the one of a key that is kept, until the cache is within its budget,
/// within one round of its hand.
fn evict(
    index: &mut Index,
    cache: &mut Cache,
    durable: Lsn,
    kept: Option<(u16, u32)>,
    home_of: &impl Fn(&[u8]) -> (u16, u32),
) {
    if !cache.is_over_budget() {
        return;
    }
    let mut steps = EVICTION_STEPS_MAX.min(cache.round());
    while cache.is_over_budget()
        && let Some(id) = cache.victim(durable, &mut steps)
    {
        let cell = cache.cell(id);
        let (slot, hash) = home_of(cell.key());
        if kept == Some((slot, hash)) {
            continue;
        }
        index.set_cold(index.position_of(slot, hash, id), cell.place());
        cache.remove(id);
    }
}

/// Lets the cache empty pages of which it holds too many.
fn tidy(
    index: &mut Index,
    cache: &mut Cache,
    durable: Lsn,
    held_bytes_max: usize,
    kept: Option<(u16, u32)>,
    home_of: &impl Fn(&[u8]) -> (u16, u32),
) {
    cache.settle(durable, held_bytes_max, |cache, from, to| {
        let cell = cache.cell(to.unwrap_or(from));
        let home = home_of(cell.key());
        match to {
            Some(to) => moved(index, home, from, to),
            None if kept == Some(home) => return false,
            None => index.set_cold(index.position_of(home.0, home.1, from), cell.place()),
        }
        true
    });
}

/// Where the newest part of a key stands, if it was logged.
pub(crate) fn place_of(cache: &Cache, home: Home) -> Option<Place> {
    match home {
        Home::Memory(id) => cache.cell(id).place().place(),
        Home::Disk(packed) => packed.place(),
    }
}

/// Records that the newest part of a key stands at `packed` now.
pub(crate) fn point_to(
    index: &mut Index,
    cache: &mut Cache,
    position: Position,
    home: Home,
    packed: PackedPlace,
) {
    match home {
        Home::Memory(id) => cache.set_place(id, packed),
        Home::Disk(_) => index.set_cold(position, packed),
    }
}

/// A key has another cell now.
fn moved(index: &mut Index, (slot, hash): (u16, u32), from: CellId, to: CellId) {
    index.set_cell(index.position_of(slot, hash, from), to);
}

/// The aligned span of a file that covers a part: offset and length.
#[must_use]
pub fn aligned_span(place: Place) -> (u64, u32) {
    let unit = BLOCK_BYTES as u64;
    let start = place.offset / unit * unit;
    let end = (place.offset + u64::from(place.bytes)).next_multiple_of(unit);
    (
        start,
        u32::try_from(end - start).expect("a part is bounded by the record limit"),
    )
}
