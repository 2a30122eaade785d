//! What a store knows of its keys: what a start loads, and what follows each record of the log.
//!
//! A replay or a snapshot gives all of it, but for what only runs ask for. Nothing here writes to
//! the log: a store logs a record first, and gives what the record changed to its data.
//!
//! What must hold:
//! - every cached key has an index entry, and every index entry has a cell or a place in the log;
//! - the place in a cell or a cold index entry is that of the key's newest part;
//! - what counts in each file is what the index, the versions, the settings and the local records
//!   point to there.

use crate::format::record::ValueKind;
use crate::memory::cell_room::CellRoom;
use crate::memory::index::entry::{CellId, Home, Position, is_token_hash};
use crate::memory::keys::Keys;
use crate::planted::{Bug, is_planted};
use crate::store::changed_keys::{ChangedKeys, Noted};
use crate::store::cleaning::live::Live;
use crate::store::clock::Clock;
use crate::store::flush_marks::Flushes;
use crate::store::keyspace::keyspaces::Keyspaces;
use crate::store::loaded::Loaded;
use crate::store::local::LocalRecords;
use crate::store::numbering::Numbering;
use crate::store::owed::Owed;
use crate::store::removals::Removals;
use crate::store::tokens::horizons::Horizons;
use crate::store::versions::table::Versions;
use crate::types::key_home::KeyHome;
use crate::types::place::Lsn;
use crate::types::version::{Sequences, Version, partition_of};
use std::collections::VecDeque;

/// The keys of one shard and what is known of them.
#[derive(Debug)]
pub struct Data {
    /// Index, cells and timers.
    pub(crate) keys: Keys,
    /// The room that cells have.
    pub(super) room: CellRoom,
    /// What counts in each file.
    pub(crate) live: Live,
    pub(crate) locals: LocalRecords,
    pub(crate) keyspaces: Keyspaces,
    /// Versions that are kept, in keyspaces that keep them.
    pub(crate) versions: Versions,
    pub(super) numbering: Numbering,
    pub(super) horizons: Horizons,
    /// The keys that have left the index lately, once somebody has asked.
    pub(super) removals: Option<Box<Removals>>,
    /// The keys that have changed, while somebody wants to know.
    pub(super) changed: Option<Box<ChangedKeys>>,
    pub(super) clock: Clock,
    pub(super) flushes: Flushes,
    /// Redo records of the index, and memory for what is decided.
    pub(super) owed: Owed,
    /// Deletions in log order, by slot, hash and version, that leave the index once they are
    /// durable.
    pub(super) deletions: VecDeque<(Lsn, u16, u32, Version)>,
}

impl Data {
    /// What a start has loaded, written with `epoch` behind `sequences` from now on.
    pub(super) fn new(epoch: u32, sequences: Sequences, mut loaded: Loaded) -> Self {
        loaded.keys.set_epoch(epoch);
        Data {
            keys: loaded.keys,
            room: CellRoom::new(loaded.budget),
            live: loaded.live,
            locals: loaded.locals,
            keyspaces: loaded.keyspaces,
            versions: loaded.versions,
            numbering: Numbering::new(epoch, sequences),
            horizons: Horizons::default(),
            removals: None,
            changed: None,
            clock: Clock::new(loaded.time_ms),
            flushes: Flushes::default(),
            owed: Owed::default(),
            deletions: VecDeque::new(),
        }
    }

    /// The time of the store.
    #[inline]
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Epochs and sequences of what is written.
    #[must_use]
    pub fn numbering(&self) -> &Numbering {
        &self.numbering
    }

    /// How long tokens are kept.
    #[must_use]
    pub fn horizons(&self) -> &Horizons {
        &self.horizons
    }

    /// The local records.
    #[must_use]
    pub fn locals(&self) -> &LocalRecords {
        &self.locals
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

    /// Whether a key with this expiry is gone. It stays in index and log until something removes
    /// it: an older part of the key without an expiry may stand in the log and must not come back.
    #[inline]
    #[must_use]
    pub fn is_expired(&self, expiry_ms: Option<u64>) -> bool {
        expiry_ms.is_some_and(|expiry_ms| expiry_ms <= self.time_ms())
    }

    /// Whether a cached key has a value for readers: neither deleted nor expired.
    #[inline]
    #[must_use]
    pub fn exists(&self, id: CellId) -> bool {
        let cell = self.keys.cell(id);
        !cell.is_deleted() && !self.is_expired(cell.expiry_ms())
    }

    /// Whether a cached key has a value for readers, as [`Data::exists`], its expiry, what its
    /// value is, and [`Keys::version`] and [`Keys::lsn`].
    #[inline(always)]
    #[must_use]
    pub fn standing(&self, id: CellId) -> (bool, Option<u64>, ValueKind, Version, Lsn) {
        let (cell, version, lsn) = self.keys.cells().with_version(id);
        let expiry_ms = cell.expiry_ms();
        let exists = !cell.is_deleted() && !self.is_expired(expiry_ms);
        (exists, expiry_ms, cell.value_kind(), version, lsn)
    }

    /// Whether an armed key may have expired.
    #[inline]
    #[must_use]
    pub fn has_due(&self) -> bool {
        let earliest_ms = self.keys.timers().earliest_ms();
        earliest_ms.is_some_and(|earliest_ms| earliest_ms <= self.time_ms())
    }

    /// Whether a cached key is armed and has expired. It is hidden as any expired key is, and stays
    /// until a change ends it: one record with its effects, made by the node that writes the
    /// partition, before anything else looks at the key.
    #[must_use]
    pub fn must_fire(&self, id: CellId) -> bool {
        self.is_expired(self.keys.cell(id).expiry_ms()) && self.keys.cells().effects(id).is_some()
    }

    pub(super) fn next_version(&mut self, slot: u16) -> Version {
        self.numbering.next(partition_of(slot))
    }

    /// Where deletions stand that have not left the index.
    pub(crate) fn deletions(&self) -> impl Iterator<Item = Lsn> {
        self.deletions.iter().map(|deletion| deletion.0)
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

    /// As [`Store::settle`](crate::store::Store::settle), with the log durable up to `durable`.
    /// Cells whose last change is behind `may_leave` stay. Whether the clearing has ended.
    pub(super) fn settle(
        &mut self,
        durable: Lsn,
        may_leave: Lsn,
        home_of: &impl Fn(&[u8]) -> KeyHome,
    ) -> bool {
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
                        if self.keys.cell(id).is_deleted() && self.keys.version(id) == version =>
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
        let is_cleared = self.clear_flushed(durable);
        let cells_bytes_max = self.room.begin_turn(self.rigid_bytes());
        self.keys.set_budget(cells_bytes_max);
        let time_ms = self.time_ms();
        let (pinned, held_bytes_max) = (self.room.pinned(), self.room.held_bytes_max());
        self.keys.evict((may_leave, time_ms), pinned, home_of);
        self.keys.tidy(durable, held_bytes_max, pinned, home_of);
        if !self.versions.is_empty() {
            self.settle_versions(durable);
        }
        is_cleared
    }

    /// Takes a deletion out of the index. From now on its part counts as a deletion.
    pub(super) fn forget_deletion(&mut self, position: Position, id: CellId) {
        if let Some(place) = self.keys.cell(id).place().place() {
            self.live.loses(place);
            self.live.gains_tombstone(place);
        }
        self.keys.remove(position, Home::Memory(id));
    }

    /// Remembers from now on which keys leave the index, for [`Data::may_have_changed`]. Costs
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
    /// [`Data::remember_removals`], and when very many keys have left the index since.
    #[must_use]
    pub fn may_have_changed(
        &self,
        KeyHome { slot, hash }: KeyHome,
        cell: Option<CellId>,
        since: Version,
    ) -> bool {
        if since.epoch != self.numbering.epoch(partition_of(slot)) {
            return true;
        }
        match (cell, &self.removals) {
            (Some(id), _) => self.keys.version(id) > since,
            (None, Some(_)) if is_planted(Bug::WatchForgetsRemoved) => false,
            (None, Some(removals)) => removals.may_have_changed(slot, hash, since.sequence),
            (None, None) => true,
        }
    }
}

impl Data {
    /// Notes the keys that change from now on, or no more.
    pub fn note_changed_keys(&mut self, is_wanted: bool) {
        if is_wanted != self.changed.is_some() {
            self.changed = is_wanted.then(Box::default);
        }
    }

    /// The keys that have changed, while they are noted.
    #[inline]
    pub fn changed_keys(&mut self) -> Option<&mut ChangedKeys> {
        self.changed.as_deref_mut()
    }

    /// A value of a key is shown that expires then, in unix milliseconds.
    #[inline]
    pub fn note_shown(&mut self, key: &[u8], expiry_ms: u64) {
        if let Some(changed) = &mut self.changed {
            changed.note(key, Noted::Shown { expiry_ms });
        }
    }

    /// The value of a cell is shown.
    pub fn note_cell_shown(&mut self, id: CellId) {
        let cell = self.keys.cell(id);
        if let (Some(changed), Some(expiry_ms)) = (&mut self.changed, cell.expiry_ms()) {
            changed.note(cell.key(), Noted::Shown { expiry_ms });
        }
    }

    /// A cell shows another value or none, and the log has the record of that.
    #[inline(always)]
    pub(super) fn note_changed(&mut self, id: CellId) {
        if let Some(changed) = &mut self.changed {
            let cell = self.keys.cell(id);
            let type_number = (!cell.is_deleted()).then(|| cell.kinded_value().type_number());
            changed.note_change(cell.key(), cell.expiry_ms(), type_number);
        }
    }
}
