//! The store of one shard: log, index and value cache as one thing.
//!
//! A change is made in three steps: find the cells of its keys, change the cells, [`Store::commit`]
//! them as one record. Between the first and the last step nothing else runs, so a caller that
//! changes its mind undoes its edits in the cells and commits nothing.
//!
//! What must hold:
//! - every cached key has an index entry, and every index entry has a cell or a place in the log;
//! - the place in an index entry is that of the key's newest part;
//! - a cell whose last change is not durable stays in memory, so the place of a cold entry can be
//!   read from the disk at any time.

use std::collections::VecDeque;

use crate::cache::{Cache, Cell};
use crate::cleaning::{Cleaner, Live};
use crate::clock::Clock;
use crate::index::{CellId, Index, Position};
use crate::io::{BLOCK_BYTES, Block, Blocks, Io, IoToken};
use crate::log::{Log, Lsn, Place, Purpose, Room};
use crate::planted::{Bug, is_planted};
use crate::record::{PARTS_MAX, PartKind, PartSpec, PartView, RecordSpec, part_bytes};
use crate::scrub::Scrub;

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
    pub(crate) live: Live,
    pub(crate) cleaner: Cleaner<P::Block>,
    pub(crate) scrub: Scrub,
    epoch: u32,
    sequences: Box<Sequences>,
    clock: Clock,
    /// Deletions in log order that leave the index once they are durable.
    deletions: VecDeque<(Lsn, CellId)>,
    places: [Place; PARTS_MAX],
}

/// How far the cache hand moves in one turn, at most.
const EVICTION_STEPS_MAX: usize = 4096;

/// Hashes that [`Store::look_ahead`] takes at a time: about what a processor keeps in flight.
pub const LOOK_AHEAD: usize = 16;

impl<P: Blocks> Store<P> {
    /// A store over `log` that writes with `epoch`, filled from what recovery replayed.
    pub fn new(log: Log<P>, blocks: P, epoch: u32, sequences: Sequences, memory: Memory) -> Self {
        Store {
            log,
            blocks,
            index: memory.index,
            cache: memory.cache,
            live: memory.live,
            cleaner: Cleaner::new(),
            scrub: Scrub::default(),
            epoch,
            sequences: Box::new(sequences),
            clock: Clock::new(memory.time_ms),
            deletions: VecDeque::new(),
            places: [Place::default(); PARTS_MAX],
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

    /// The log, to be driven: completions, spares, pumping.
    pub fn log(&self) -> &Log<P> {
        &self.log
    }

    /// The log, to be driven: completions, spares, pumping.
    pub fn log_mut(&mut self) -> &mut Log<P> {
        &mut self.log
    }

    /// Looks `key` up; `hash` is its hash with the shard's seed.
    #[inline(always)]
    pub fn find(&self, hash: u32, key: &[u8]) -> Found {
        find(&self.index, &self.cache, hash, key)
    }

    /// Loads what look-ups of these hashes will need, all of them at the same time: each stage's
    /// loads do not depend on one another, so the processor overlaps their cache misses. Changes
    /// nothing.
    #[inline]
    pub fn look_ahead(&self, hashes: &[u32]) {
        let mut cells = [None; LOOK_AHEAD];
        for (cell, &hash) in cells.iter_mut().zip(hashes) {
            *cell = self.index.likely_cell(hash);
        }
        let cells = || cells.into_iter().flatten();
        std::hint::black_box(cells().map(|id| self.cache.load(id)).sum::<usize>());
        std::hint::black_box(cells().map(|id| self.cache.load_bytes(id)).sum::<usize>());
    }

    /// A cached key.
    #[inline]
    #[must_use]
    pub fn cell(&self, id: CellId) -> &Cell {
        self.cache.cell(id)
    }

    /// The value of a cached key, to be edited in place before a commit.
    #[inline]
    pub fn value_mut(&mut self, id: CellId) -> &mut [u8] {
        self.cache.cell_mut(id).value_mut()
    }

    /// Notes that a cached key was read.
    #[inline]
    pub fn touch(&mut self, id: CellId) {
        self.cache.touch(id);
    }

    /// The version of a cached key.
    #[inline]
    #[must_use]
    pub fn version(&self, id: CellId) -> Version {
        let cell = self.cache.cell(id);
        Version {
            epoch: cell.epoch,
            sequence: cell.sequence,
        }
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

    pub(crate) fn take_block(&mut self, bytes: usize) -> Option<P::Block> {
        self.blocks.take(bytes)
    }

    /// Adds a cell for a key that was found absent. It must be committed or discarded before
    /// anything else runs.
    pub fn insert(
        &mut self,
        hash: u32,
        key: &[u8],
        value: &[u8],
        expiry_ms: Option<u64>,
    ) -> CellId {
        let cell = self.cache.insert(hash, key, value, expiry_ms);
        self.index.insert(hash, cell);
        cell
    }

    /// Takes back an [`Store::insert`] that is not to be committed.
    pub fn discard(&mut self, id: CellId) {
        assert!(
            self.cache.cell(id).sequence == 0,
            "only a key that was never logged is discarded"
        );
        self.index
            .remove(self.index.position_of(self.cache.cell(id).hash, id));
        self.cache.remove(id);
    }

    /// Gives a cached key another value and expiry before a commit.
    #[inline]
    pub fn set_value(&mut self, id: CellId, value: &[u8], expiry_ms: Option<u64>) {
        self.cache.set_value(id, value, expiry_ms);
    }

    /// Gives a cached key that exists another expiry before a commit.
    pub fn set_expiry(&mut self, id: CellId, expiry_ms: Option<u64>) {
        self.cache.set_expiry(id, expiry_ms);
    }

    /// Marks a cached key as deleted before a commit.
    pub fn delete(&mut self, id: CellId) {
        self.cache.mark_deleted(id);
    }

    /// Logs the present contents of `cells`, keys of one `slot`, as one record: all of them or
    /// none survive a crash. [`Store::room_for`] must have said yes.
    #[inline]
    pub fn commit(&mut self, now_us: u64, slot: u16, cells: &[CellId]) -> (Lsn, Version) {
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
        let cache = &self.cache;
        let lsn = match *cells {
            // Nearly every commit; eight parts would cost it more to lay out than to encode.
            [id] => self.log.append(
                now_us,
                &record(&[part_of(cache.cell(id))]),
                &mut self.places,
            ),
            _ => {
                let mut parts = [part_of(cache.cell(cells[0])); PARTS_MAX];
                for (part, &id) in parts.iter_mut().zip(cells) {
                    *part = part_of(cache.cell(id));
                }
                self.log
                    .append(now_us, &record(&parts[..cells.len()]), &mut self.places)
            }
        };
        self.cleaner.must_look = true;
        for (&place, &id) in self.places.iter().zip(cells) {
            let cell = self.cache.cell_mut(id);
            (cell.epoch, cell.sequence, cell.lsn) = (version.epoch, version.sequence, lsn);
            let position = self.index.position_of(cell.hash, id);
            if let Some(old) = self.index.place(position) {
                self.live.loses(old);
            }
            // A deletion counts like a value until it is durable and its entry leaves.
            self.live.gains(place);
            if id == cells[0] || !is_planted(Bug::PlaceOfFirstKey) {
                self.index.set_place(position, place, version.sequence);
            }
            if cell.is_deleted() {
                self.deletions.push_back((lsn, id));
            }
        }
        (lsn, version)
    }

    /// Once in each turn, between two changes: forgets the deletions that are durable by now, and
    /// lets cells leave while the cache is over its budget. At no other time does a cell leave, so
    /// the cells that a change has found stay until it is committed, and of several cold keys the
    /// first does not leave because the second comes.
    pub fn settle(&mut self) {
        let durable = self.log.durable();
        while let Some(&(lsn, id)) = self.deletions.front() {
            if lsn > durable && !is_planted(Bug::ForgetDeletionEarly) {
                break;
            }
            self.deletions.pop_front();
            let cell = self.cache.cell(id);
            // A key that was set again since lives on; a later deletion has its own entry here.
            if cell.is_deleted() && cell.lsn == lsn {
                let position = self.index.position_of(cell.hash, id);
                if let Some(place) = self.index.place(position) {
                    self.live.loses(place);
                    self.live.gains_tombstone(place);
                }
                self.index.remove(position);
                self.cache.remove(id);
            }
        }
        let may_leave = match is_planted(Bug::EvictUnflushed) {
            true => self.log.appended(),
            false => durable,
        };
        evict(&mut self.index, &mut self.cache, may_leave);
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

    /// Takes the block that was read for `place` into the cache, if an entry for `hash` still points
    /// there: the index may have moved on while the read was under way.
    ///
    /// # Errors
    /// [`AdmitError::Corrupt`] if the entry points there and what stands there is not its part.
    /// Nothing is cached then.
    pub fn admit(
        &mut self,
        hash: u32,
        place: Place,
        block: &P::Block,
        hash_of: impl Fn(&[u8]) -> u32,
    ) -> Result<(), AdmitError> {
        let current = self
            .index
            .candidates(hash)
            .find(|candidate| self.index.place(candidate.position) == Some(place));
        let Some(current) = current.filter(|candidate| candidate.cell.is_none()) else {
            return Ok(());
        };
        let start = usize::try_from(place.offset % BLOCK_BYTES as u64).expect("less than a block");
        let part = block
            .bytes()
            .get(start..start + place.bytes as usize)
            .and_then(|bytes| PartView::read(bytes).ok())
            .filter(|part| {
                part.kind() == PartKind::Put
                    && hash_of(part.key()) == hash
                    && (self.index.is_sequence(current.position, part.sequence())
                        || is_planted(Bug::BelieveAnyRead))
            })
            .ok_or(AdmitError::Corrupt)?;
        let expiry_ms = match is_planted(Bug::AdmitWithoutExpiry) {
            true => None,
            false => part.expiry_ms(),
        };
        let id = self.cache.insert(hash, part.key(), part.value(), expiry_ms);
        let cell = self.cache.cell_mut(id);
        (cell.epoch, cell.sequence) = (part.epoch(), part.sequence());
        if is_planted(Bug::AdmitWithOwnEpoch) {
            cell.epoch = self.epoch;
        }
        // Parts on disk are durable: the cell would still be in memory otherwise.
        self.index.set_cell(current.position, Some(id));
        Ok(())
    }

    /// Keys, cells in memory, their bytes, bytes of the index.
    #[must_use]
    pub fn usage(&self) -> Usage {
        Usage {
            keys: self.index.len(),
            cells: self.cache.len(),
            cache_bytes: self.cache.used_bytes(),
            index_bytes: self.index.memory_bytes(),
        }
    }
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
}

/// Index and cache while a log is replayed into them.
#[derive(Debug)]
pub struct Memory {
    index: Index,
    cache: Cache,
    live: Live,
    time_ms: u64,
}

impl Memory {
    /// Nothing, with a cache of about `cache_bytes`.
    #[must_use]
    pub fn new(cache_bytes: usize) -> Self {
        Memory {
            index: Index::new(),
            cache: Cache::new(cache_bytes),
            live: Live::default(),
            time_ms: 0,
        }
    }

    /// Takes in the newest time that the log carries: what was left out of it because of the time is
    /// not to be missed in a time before.
    pub fn carry_time(&mut self, time_ms: u64) {
        self.time_ms = self.time_ms.max(time_ms);
    }

    /// Takes in one replayed part. The newest version of a key wins, wherever it stands.
    ///
    /// `key_at` reads the key and version of a part that left the cache already; it is called
    /// only when an entry with the same hash is cold.
    ///
    /// # Errors
    /// Whatever `key_at` fails with.
    pub fn replay<E>(
        &mut self,
        hash: u32,
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
        let mut same: Option<(Position, Option<CellId>, Version)> = None;
        for candidate in self.index.candidates(hash) {
            match candidate.cell {
                Some(id) => {
                    let cell = self.cache.cell(id);
                    if cell.key() == part.key() {
                        let version = Version {
                            epoch: cell.epoch,
                            sequence: cell.sequence,
                        };
                        same = Some((candidate.position, Some(id), version));
                        break;
                    }
                }
                None => {
                    let cold = self
                        .index
                        .place(candidate.position)
                        .expect("a cold entry has a place");
                    let mut version = None;
                    key_at(cold, &mut |old| {
                        if old.key() == part.key() {
                            version = Some(Version {
                                epoch: old.epoch(),
                                sequence: old.sequence(),
                            });
                        }
                    })?;
                    if let Some(version) = version {
                        same = Some((candidate.position, None, version));
                        break;
                    }
                }
            }
        }
        match same {
            Some((_, _, old)) if old > new => {}
            // A copy that cleaning made. The segment that it was made from is about to be released.
            Some((position, _, old)) if old == new && part.kind() == PartKind::Put => {
                if let Some(old) = self.index.place(position) {
                    self.live.loses(old);
                }
                self.live.gains(place);
                self.index.set_place(position, place, new.sequence);
            }
            Some((position, cell, _))
                if part.kind() == PartKind::Tombstone
                    && (cell.is_some() || !is_planted(Bug::KeepColdTombstone)) =>
            {
                if let Some(old) = self.index.place(position) {
                    self.live.loses(old);
                }
                self.live.gains_tombstone(place);
                self.index.remove(position);
                if let Some(id) = cell {
                    self.cache.remove(id);
                }
            }
            Some((position, cell, _)) => {
                if let Some(old) = self.index.place(position) {
                    self.live.loses(old);
                }
                self.live.gains(place);
                self.index.set_place(position, place, new.sequence);
                if let Some(id) = cell {
                    self.cache.set_value(id, part.value(), expiry_ms);
                    let cell = self.cache.cell_mut(id);
                    (cell.epoch, cell.sequence) = (new.epoch, new.sequence);
                }
            }
            None if part.kind() == PartKind::Tombstone => self.live.gains_tombstone(place),
            None => {
                self.live.gains(place);
                evict(&mut self.index, &mut self.cache, Lsn::default());
                let id = self.cache.insert(hash, part.key(), part.value(), expiry_ms);
                let cell = self.cache.cell_mut(id);
                (cell.epoch, cell.sequence) = (new.epoch, new.sequence);
                self.index.insert(hash, id);
                let position = self.index.position_of(hash, id);
                self.index.set_place(position, place, new.sequence);
            }
        }
        Ok(())
    }
}

/// The present contents of a cell as the log keeps them.
#[inline]
fn part_of(cell: &Cell) -> PartSpec<'_> {
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
    }
}

#[inline(always)]
fn find(index: &Index, cache: &Cache, hash: u32, key: &[u8]) -> Found {
    let mut cold = None;
    for candidate in index.candidates(hash) {
        match candidate.cell {
            Some(id) if is_same(cache.cell(id).key(), key) => return Found::Cached(id),
            Some(_) => {}
            None => cold = cold.or_else(|| index.place(candidate.position)),
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

/// Lets cells leave until the cache is within its budget, within one round of its hand.
fn evict(index: &mut Index, cache: &mut Cache, durable: Lsn) {
    let mut steps = EVICTION_STEPS_MAX.min(cache.slots());
    while cache.is_over_budget()
        && let Some(id) = cache.victim(durable, &mut steps)
    {
        let position = index.position_of(cache.cell(id).hash, id);
        index.set_cell(position, None);
        cache.remove(id);
    }
}

/// The aligned span of a file that covers a part: offset and length.
fn aligned_span(place: Place) -> (u64, u32) {
    let unit = BLOCK_BYTES as u64;
    let start = place.offset / unit * unit;
    let end = (place.offset + u64::from(place.bytes)).next_multiple_of(unit);
    (
        start,
        u32::try_from(end - start).expect("a part is bounded by the record limit"),
    )
}
