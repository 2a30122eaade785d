//! The store of one shard: log, index and value cache as one thing.
//!
//! A [`crate::store::Change`] edits keys and logs them as one record. While it is open nothing else
//! runs; one that is not committed leaves nothing behind.
//!
//! What must hold:
//! - every cached key has an index entry, and every index entry has a cell or a place in the log;
//! - the place in a cell or a cold index entry is that of the key's newest part;
//! - a cell whose last change is not durable stays in memory, so the place of a cold entry can be
//!   read from the disk at any time.

use crate::format::record::{PARTS_MAX, PartSpec, RecordSpec};
use crate::log::log::Log;
use crate::memory::cache::cell::Cell;
use crate::memory::cell_room::CellRoom;
use crate::memory::index::entry::{CellId, Home, Position, is_token_hash};
use crate::memory::keys::Keys;
use crate::memory::keys::{Found, PREFETCH_KEYS_MAX};
use crate::planted::{self, Bug};
use crate::store::cleaning::cleaner::Cleaner;
use crate::store::cleaning::live::Live;
use crate::store::clock::Clock;
use crate::store::edited_values::EditedValues;
use crate::store::fields::FieldEdit;
use crate::store::inheritance::Inheritance;
use crate::store::keyspace;
use crate::store::keyspace::keyspaces::Keyspaces;
use crate::store::keyspace::settings::{Record, SETTINGS_BYTES};
use crate::store::loaded::Loaded;
use crate::store::local::LocalRecords;
use crate::store::numbering::Numbering;
use crate::store::removals::Removals;
use crate::store::scrub::Scrub;
use crate::store::tokens::horizons::Horizons;
use crate::store::versions::table::Versions;
use crate::types::io::Blocks;
use crate::types::packed_place::Cursor;
use crate::types::packed_place::NewestPart;
use crate::types::place::{Lsn, Place};
use crate::types::version::Sequences;
use crate::types::version::Version;
use crate::types::version::partition_of;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

/// The data of one shard.
pub struct Store<P: Blocks> {
    pub(super) log: Log<P>,
    pub(super) blocks: P,
    pub(crate) keys: Keys,
    pub(super) room: CellRoom,
    pub(crate) live: Live,
    pub(crate) cleaner: Cleaner<P::Block>,
    pub(crate) scrub: Scrub,
    pub(crate) inheritance: Inheritance,
    pub(crate) locals: LocalRecords,
    pub(crate) keyspaces: Keyspaces,
    pub(crate) versions: Versions,
    pub(super) numbering: Numbering,
    pub(super) horizons: Horizons,
    /// The keys that have left the index lately, once somebody has asked.
    pub(super) removals: Option<Box<Removals>>,
    clock: Clock,
    /// Deletions in log order, by slot, hash and version, that leave the index once they are
    /// durable.
    pub(super) deletions: VecDeque<(Lsn, u16, u32, Version)>,
    pub(super) places: [Place; PARTS_MAX],
    /// What the open change has edited.
    pub(super) field_edits: Vec<FieldEdit>,
    /// What the open staged change has edited.
    pub(super) edited: EditedValues,
    /// The value of the token that is being logged, whose memory is used again and again.
    pub(super) token_value: Vec<u8>,
}

impl<P: Blocks> Store<P> {
    /// A store over `log` that writes with `epoch`, filled from what recovery replayed.
    pub fn new(
        log: Log<P>,
        blocks: P,
        epoch: u32,
        sequences: Sequences,
        loaded: impl Into<Loaded>,
    ) -> Self {
        let mut loaded = loaded.into();
        loaded.keys.set_epoch(epoch);
        Store {
            log,
            blocks,
            keys: loaded.keys,
            room: CellRoom::new(loaded.budget),
            live: loaded.live,
            cleaner: Cleaner::new(),
            scrub: Scrub::default(),
            inheritance: Inheritance::default(),
            locals: loaded.locals,
            keyspaces: loaded.keyspaces,
            versions: loaded.versions,
            numbering: Numbering::new(epoch, sequences),
            horizons: Horizons::default(),
            removals: None,
            clock: Clock::new(loaded.time_ms),
            deletions: VecDeque::new(),
            places: [Place::default(); PARTS_MAX],
            field_edits: Vec::new(),
            edited: EditedValues::default(),
            token_value: Vec::new(),
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

    /// The time from which lifetimes count: that of the store in whole milliseconds, rounded up. So
    /// none is shorter than was asked for, and what this leaves of one is never more.
    #[inline]
    #[must_use]
    pub fn lifetimes_from_ms(&self) -> u64 {
        self.clock.next_ms()
    }

    /// What the wall clock showed a moment ago, whatever the store makes of it.
    #[must_use]
    pub fn wall_ms(&self) -> u64 {
        self.clock.wall_ms()
    }

    /// By how much the wall clock was behind the time of the store a moment ago, in milliseconds;
    /// 0 if it was not, or was not looked at yet.
    #[must_use]
    pub fn clock_behind_ms(&self) -> u64 {
        self.clock.behind_ms()
    }

    /// Whether a key with this expiry is gone. It stays in index and log until something removes
    /// it: an older part of the key without an expiry may stand in the log and must not come back.
    #[inline]
    #[must_use]
    pub fn is_expired(&self, expiry_ms: Option<u64>) -> bool {
        expiry_ms.is_some_and(|expiry_ms| expiry_ms <= self.time_ms())
    }

    /// The epoch with which this store was opened: it writes with it wherever it does not
    /// [`Store::lead`] in another.
    #[must_use]
    pub fn epoch(&self) -> u32 {
        self.numbering.opened()
    }

    /// Whether a cached key has a value for readers: neither deleted nor expired.
    #[inline]
    #[must_use]
    pub fn exists(&self, id: CellId) -> bool {
        let cell = self.keys.cell(id);
        !cell.is_deleted() && !self.is_expired(cell.expiry_ms())
    }

    /// Whether a cached key has a value for readers, as [`Store::exists`] tells it, its expiry, and
    /// [`Store::version`] and [`Store::lsn`].
    #[inline(always)]
    #[must_use]
    pub fn standing(&self, id: CellId) -> (bool, Option<u64>, Version, Lsn) {
        let (cell, version, lsn) = self.keys.cells().with_version(id);
        let expiry_ms = cell.expiry_ms();
        let exists = !cell.is_deleted() && !self.is_expired(expiry_ms);
        (exists, expiry_ms, version, lsn)
    }

    /// The newest time that the log carries, in unix milliseconds.
    #[must_use]
    pub fn carried_ms(&self) -> u64 {
        self.clock.found_ms().max(self.log.time_ms())
    }

    /// The settings of keyspaces.
    #[inline]
    #[must_use]
    pub fn keyspaces(&self) -> &Keyspaces {
        &self.keyspaces
    }

    /// Hears of settings, which are to be logged in every partition: [`Store::commit_settings`].
    ///
    /// # Errors
    /// [`keyspace::KeyspaceError`].
    pub fn hear(
        &mut self,
        prefix: &[u8],
        settings: keyspace::Settings,
    ) -> Result<bool, keyspace::KeyspaceError> {
        self.keyspaces.hear(prefix, settings)
    }

    /// Hears of settings that stand in a record of another shard.
    ///
    /// # Errors
    /// [`keyspace::KeyspaceError`].
    pub fn hear_recorded(
        &mut self,
        prefix: &[u8],
        settings: keyspace::Settings,
    ) -> Result<bool, keyspace::KeyspaceError> {
        self.keyspaces.hear_recorded(prefix, settings)
    }

    /// Forgets settings that were heard of and stand in no record.
    pub fn forget_unrecorded_settings(&mut self) {
        self.keyspaces.forget_unrecorded();
    }

    /// Logs the newest settings of `prefix` for the partition of `slot`, under a key of that slot
    /// made by [`keyspace::keyspace_key`]. They are in force there at once. [`Store::room`] for the
    /// key and [`SETTINGS_BYTES`] must have said yes.
    pub fn commit_settings(&mut self, now_us: u64, slot: u16, key: &[u8], prefix: &[u8]) -> Lsn {
        let version = self.next_version(slot);
        let time_ms = self.time_ms();
        let value: [u8; SETTINGS_BYTES] = self.keyspaces.to_log(prefix, partition_of(slot));
        let parts = [PartSpec::put(key, &value)];
        let record = RecordSpec::new(slot, version, time_ms, &parts);
        let lsn = self.log.append(now_us, &record, &mut self.places);
        self.cleaner.must_pick = true;
        let record = Record {
            slot,
            key,
            value: &value,
            version,
            time_ms,
        };
        let replaced = self.keyspaces.take_record(&record, self.places[0]);
        self.live.replaces(replaced);
        lsn
    }

    pub(super) fn next_version(&mut self, slot: u16) -> Version {
        self.numbering.next(partition_of(slot))
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
        self.keys.find(slot, hash, key)
    }

    /// Loads what look-ups of these slots and hashes will need, all of them at the same time: each
    /// stage's loads do not depend on one another, so the processor overlaps their cache misses.
    /// Changes nothing.
    #[inline]
    pub fn prefetch(&self, keys: &[(u16, u32)]) {
        self.keys.load_likely(keys);
    }

    /// As [`Store::prefetch`], and tells the cell that each key is in, or that it is in none if no
    /// other key has its slot and hash.
    #[inline]
    #[must_use]
    pub fn only_cells(&self, keys: &[(u16, u32)]) -> [Option<CellId>; PREFETCH_KEYS_MAX] {
        self.keys.load_only(keys)
    }

    /// A cached key.
    #[inline]
    #[must_use]
    pub fn cell(&self, id: CellId) -> Cell<'_> {
        self.keys.cell(id)
    }

    /// The value as a part of a block that replies may hold, as [`Cache::shared_value`].
    #[must_use]
    pub fn shared_value(&self, id: CellId) -> Option<(&Arc<[u8]>, Range<usize>)> {
        self.keys.cells().shared_value(id)
    }

    /// Notes that a cached key was read.
    #[inline]
    pub fn touch(&mut self, id: CellId) {
        self.keys.touch(id);
    }

    /// Takes back that the keys of this slot and hash were used, if they have come lately: the
    /// operation that a key is read for is no sign that there will be another.
    pub fn forget_use(&mut self, (slot, hash): (u16, u32)) {
        self.keys.forget_use((slot, hash));
    }

    /// The version of a cached key.
    #[inline]
    #[must_use]
    pub fn version(&self, id: CellId) -> Version {
        self.keys.cells().version(id)
    }

    /// Up to where the log must be durable before what a cached key shows is.
    #[inline]
    #[must_use]
    pub fn lsn(&self, id: CellId) -> Lsn {
        self.keys.cells().lsn(id)
    }

    /// Where deletions stand that have not left the index.
    pub(crate) fn deletions(&self) -> impl Iterator<Item = Lsn> {
        self.deletions.iter().map(|deletion| deletion.0)
    }

    pub(crate) fn epoch_of(&self, partition: usize) -> u32 {
        self.numbering.epoch(partition)
    }

    /// The next commit of a partition has this epoch and the sequence behind this one.
    pub(crate) fn set_position(&mut self, partition: usize, after: Version) {
        self.numbering.go_on_behind(partition, after);
        if let Some(removals) = &mut self.removals {
            removals.restart(partition, after.sequence);
        }
    }

    /// The time is never before this one.
    pub fn carry_time(&mut self, time_ms: u64) {
        self.clock.carry(time_ms);
    }

    /// Versions go on behind these.
    pub(crate) fn raise_sequences(&mut self, found: &Sequences) {
        self.numbering.raise(found);
    }

    /// The last sequence given out in each partition.
    #[must_use]
    pub fn sequences(&self) -> &Sequences {
        self.numbering.sequences()
    }

    pub(crate) fn take_block(&mut self, bytes: usize) -> Option<P::Block> {
        self.blocks.take(bytes)
    }

    /// Once in each turn, between two changes: forgets the deletions that are durable by now, and
    /// lets cells leave while the cache is over its budget. At no other time does a cell leave, so
    /// the cells that a change has found stay until it is committed, and of several cold keys the
    /// first does not leave because the second comes.
    ///
    /// `home_of` tells slot and hash of a key.
    pub fn settle(&mut self, home_of: &impl Fn(&[u8]) -> (u16, u32)) {
        let durable = self.log.durable();
        while let Some(&(lsn, slot, hash, version)) = self.deletions.front()
            && lsn <= durable
        {
            // A key that was set again since lives on; a later deletion has its own entry here.
            // None that is durable may stay: cleaning would take it for something newer than
            // itself.
            let deleted = self
                .keys
                .entries()
                .candidates(slot, hash)
                .find_map(|candidate| match candidate.home {
                    Home::Memory(id)
                        if self.keys.cell(id).is_deleted() && self.version(id) == version =>
                    {
                        Some((candidate.position, id))
                    }
                    _ => None,
                });
            if let Some((position, id)) = deleted {
                self.forget_deletion(position, id);
                self.note_removal(slot, hash, version.sequence);
            }
            self.deletions.pop_front();
        }
        let may_leave = planted::or(Bug::EvictUnflushed, self.log.appended(), durable);
        let cells_bytes_max = self.room.begin_turn(self.rigid_bytes());
        self.keys.set_budget(cells_bytes_max);
        let time_ms = self.time_ms();
        let (pinned, held_bytes_max) = (self.room.pinned(), self.room.held_bytes_max());
        self.keys.evict((may_leave, time_ms), pinned, home_of);
        self.keys.tidy(durable, held_bytes_max, pinned, home_of);
        if !self.versions.is_empty() {
            self.settle_versions(durable);
        }
    }

    /// Takes a deletion out of the index. From now on its part counts as a deletion.
    pub(super) fn forget_deletion(&mut self, position: Position, id: CellId) {
        if let Some(place) = self.keys.cell(id).place().place() {
            self.live.loses(place);
            self.live.gains_tombstone(place);
        }
        self.keys.remove(position, Home::Memory(id));
    }

    /// Remembers from now on which keys leave the index, for [`Store::may_have_changed`]. Costs
    /// some memory, which counts.
    pub fn remember_removals(&mut self) {
        let sequences = self.numbering.sequences();
        self.removals
            .get_or_insert_with(|| Box::new(Removals::begin(sequences)));
    }

    /// A key of this slot and hash leaves the index, whose last change has this sequence.
    #[inline]
    pub(super) fn note_removal(&mut self, slot: u16, hash: u32, sequence: u64) {
        if let Some(removals) = &mut self.removals
            && !is_token_hash(hash)
        {
            removals.leaves(slot, hash, sequence);
        }
    }

    /// Whether a key may have changed since the newest version of its partition was `since`. Its
    /// cell is this one, or it is not in the index. A change is never missed; a change is made up
    /// where the partition is written in another epoch by now, before
    /// [`Store::remember_removals`], and when very many keys have left the index since.
    #[must_use]
    pub fn may_have_changed(
        &self,
        (slot, hash): (u16, u32),
        cell: Option<CellId>,
        since: Version,
    ) -> bool {
        if since.epoch != self.numbering.epoch(partition_of(slot)) {
            return true;
        }
        match (cell, &self.removals) {
            (Some(id), _) => self.version(id) > since,
            (None, Some(removals)) => removals.may_have_changed(slot, hash, since.sequence),
            (None, None) => true,
        }
    }

    /// Visits where the newest parts of keys stand, from `from` on in the order of slots and
    /// hashes, at least `entries` of them unless they end before. Returns where to go on, or `None`
    /// at the end. A deletion is no entry: it is durable and about to leave, or a replay finds it.
    pub fn newest_parts(
        &self,
        from: Cursor,
        entries: usize,
        visit: &mut impl FnMut(NewestPart),
    ) -> Option<Cursor> {
        self.keys.newest_parts(from, entries, visit)
    }

    /// Visits the keys that have the first slot and hash from `from` on, in the order of both,
    /// without touching them. Returns where the next ones stand, or `None` at the end. A key that
    /// is there from the first step to the last is visited.
    pub fn keys_from(&self, from: Cursor, visit: &mut impl FnMut(Cursor, Home)) -> Option<Cursor> {
        self.keys
            .entries()
            .walk(from, 1, &mut |at, candidate| visit(at, candidate.home))
    }
}
