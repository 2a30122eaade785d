//! A change of keys of one slot: opened on keys that were looked up, edited, then committed as one
//! record. A change that is dropped before leaves every key as it was.
//!
//! A whole value, a deletion and an expiry take effect at the commit, when the record has its room.
//! They never have to be undone. An edit of a field and a start value take effect in the cell at
//! once, because the next instruction reads them. A change that is dropped undoes both.

use crate::format::record::{PARTS_MAX, PartKind, PartSpec, RecordSpec, part_bytes};
use crate::format::token::TokenAnswer;
use crate::if_planted;
use crate::log::room::{Purpose, Room};
use crate::memory::cache::cell::Cell;
use crate::memory::index::entry::{CellId, is_token_hash};
use crate::planted::{self, Bug, is_planted};
use crate::store::expiry::{expires, token_expires};
use crate::store::fields::{FieldEdit, Fields};
use crate::store::store::Store;
use crate::types::io::Blocks;
use crate::types::packed_place::PackedPlace;
use crate::types::place::{Lsn, Place};
use crate::types::version::Version;

/// A key that a change may concern, as it was found just before the change is opened.
#[derive(Clone, Copy, Debug)]
pub struct ChangeKey<'k> {
    /// Its bytes.
    pub key: &'k [u8],
    /// Their hash with the shard's seed.
    pub hash: u32,
    /// Its cell: of a value, of a deletion that is not durable, or of a value that has expired.
    pub cell: Option<CellId>,
    /// It has a value for readers: its cell is neither a deletion nor expired.
    pub exists: bool,
    /// What its cell tells, also of a value that has expired.
    pub expiry_ms: Option<u64>,
}

/// The part of a token in the record of a change.
#[derive(Clone, Copy, Debug)]
pub struct TokenPart<'k> {
    /// Its key, which was just looked up and has no value.
    pub at: ChangeKey<'k>,
    /// What is kept under it.
    pub answer: TokenAnswer<'k>,
    /// When it expires, in unix milliseconds.
    pub expiry_ms: u64,
    /// Its time, likewise.
    pub token_ms: u64,
}

impl TokenPart<'_> {
    /// Bytes of the part.
    #[must_use]
    pub fn bytes(&self) -> usize {
        part_bytes(self.at.key.len(), self.answer.bytes(), true, 0)
    }
}

/// Why a change cannot be committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRoom {
    /// Others leave, or the log is about to have room: try again later.
    Wait,
    /// There is no memory for another key or kept version.
    Memory,
    /// There is no memory for another armed key.
    Timers,
    /// No segment can be had for the record: [`Room::Full`].
    Log,
    /// With the token the record has more bytes than the largest one.
    Record {
        /// Its bytes.
        bytes: usize,
        /// The limit.
        max: usize,
    },
}

/// A change that is in the log.
#[derive(Clone, Copy, Debug)]
pub struct Committed {
    /// It is durable when the log is durable up to here.
    pub lsn: Lsn,
    /// The version of every key that it concerns.
    pub version: Version,
}

/// What a change does to a key, beside its expiry.
#[derive(Clone, Copy, Debug)]
enum Edit<'k> {
    /// Nothing that waits for the commit.
    None,
    /// It is to have this value and expiry.
    Put {
        value: &'k [u8],
        expiry_ms: Option<u64>,
        keeps_effects: bool,
    },
    /// It is to be deleted.
    Delete,
}

/// A change of `KEYS` keys of one slot, at most as many as a record has parts. Compiled for each
/// number, because nearly all have one.
///
/// A key may be named twice. Then its fields are edited by either number, and it is put, deleted or
/// given an expiry by the first of them.
pub struct Change<'s, 'k, P: Blocks, const KEYS: usize> {
    store: &'s mut Store<P>,
    slot: u16,
    keys: [ChangeKey<'k>; KEYS],
    /// The cells as the edits left them.
    cells: [Option<CellId>; KEYS],
    edits: [Edit<'k>; KEYS],
    /// Fields of these were edited.
    are_edited: [bool; KEYS],
    /// These got a value to start with.
    are_started: [bool; KEYS],
    /// The expiry that these are to have.
    expiries: [Option<Option<u64>>; KEYS],
}

impl<'k, P: Blocks, const KEYS: usize> Change<'_, 'k, P, KEYS> {
    /// Gives a key this value and expiry, whatever it has. If it is armed, it is no more.
    #[inline(always)]
    pub fn put(&mut self, which: usize, value: &'k [u8], expiry_ms: Option<u64>) {
        self.edits[which] = Edit::Put {
            value,
            expiry_ms,
            keeps_effects: false,
        };
    }

    /// The same, and if the key is armed and has this expiry, it stays armed.
    #[inline(always)]
    pub fn put_keeping_effects(&mut self, which: usize, value: &'k [u8], expiry_ms: Option<u64>) {
        self.edits[which] = Edit::Put {
            value,
            expiry_ms,
            keeps_effects: expiry_ms.is_some(),
        };
    }

    /// Deletes a key that exists.
    #[inline(always)]
    pub fn delete(&mut self, which: usize) {
        assert!(self.keys[which].exists, "only a key that exists is deleted");
        self.edits[which] = Edit::Delete;
    }

    /// Gives a key that has a value, or has started with one, this expiry.
    #[inline(always)]
    pub fn expire(&mut self, which: usize, expiry_ms: Option<u64>) {
        self.expiries[which] = Some(expiry_ms);
    }

    /// Gives a key without a value this one, whose fields may be edited then. It is the value of
    /// every key of the change with the same name.
    ///
    /// # Errors
    /// [`NoRoom`]: there is no memory for it. The key has no value then.
    pub fn start(&mut self, which: usize, value: &[u8]) -> Result<(), NoRoom> {
        let key = self.keys[which];
        self.store
            .memory_for_value((self.slot, key.hash), key.cell, false)?;
        let home = (self.slot, key.hash);
        let id = match key.cell {
            Some(id) => self.store.keys.set_value(home, id, value, None),
            None => self.store.keys.insert(home, key.key, value, None),
        };
        self.are_started[which] = true;
        self.has_cell(which, id);
        Ok(())
    }

    /// The value of a key, to edit its fields; `None` if it has none.
    #[inline]
    pub fn fields(&mut self, which: usize) -> Option<Fields<'_>> {
        let is_there = self.keys[which].exists || self.has_started(which);
        let id = self.cells[which].filter(|_| is_there)?;
        let value = self.store.keys.value_mut(id);
        let edits = &mut self.store.field_edits;
        Some(Fields::new(
            which,
            value,
            edits,
            &mut self.are_edited[which],
        ))
    }

    /// Whether anything is to be logged.
    #[inline]
    #[must_use]
    pub fn is_any(&self) -> bool {
        (0..KEYS).any(|which| self.is_changed(which))
    }

    /// Logs the change as one record: all of it or nothing survives a crash.
    ///
    /// # Errors
    /// [`NoRoom`]. Every key is as it was before the change.
    ///
    /// # Panics
    /// If nothing has changed.
    #[inline(always)]
    pub fn commit(mut self, now_us: u64) -> Result<Committed, NoRoom> {
        self.make_room()?;
        let mut logged = [(0, CellId(0)); KEYS];
        let mut count = 0;
        for which in 0..KEYS {
            if self.is_counted(which) {
                logged[count] = (self.keys[which].hash, self.apply(which));
                count += 1;
            }
        }
        let logged = &logged[..count];
        let (lsn, version) = self.store.commit(now_us, self.slot, logged);
        // Nothing is left to be undone.
        std::mem::forget(self);
        Ok(Committed { lsn, version })
    }

    /// As [`Change::commit`], with the token of the change in the same record.
    ///
    /// # Errors
    /// [`NoRoom`]. Every key is as it was before the change.
    ///
    /// # Panics
    /// If nothing has changed: [`Store::commit_token`] then.
    pub fn commit_with(mut self, now_us: u64, token: &TokenPart<'_>) -> Result<Committed, NoRoom> {
        const { assert!(KEYS < PARTS_MAX) };
        let (bytes, _) = self.needs()?;
        let mut new = [token.at.hash; PARTS_MAX];
        let mut new_count = 1;
        for which in 0..KEYS {
            if self.is_counted(which) && self.cells[which].is_none() {
                new[new_count] = self.keys[which].hash;
                new_count += 1;
            }
        }
        self.store
            .room_with_token(self.slot, bytes, &new[..new_count], token)?;
        let mut logged = [(0, CellId(0)); PARTS_MAX];
        let mut count = 0;
        for which in 0..KEYS {
            if self.is_counted(which) {
                logged[count] = (self.keys[which].hash, self.apply(which));
                count += 1;
            }
        }
        logged[count] = (token.at.hash, self.store.put_token(self.slot, token));
        let committed = self
            .store
            .commit_with_token(now_us, self.slot, &logged[..=count], token);
        // Nothing is left to be undone.
        std::mem::forget(self);
        Ok(committed)
    }

    /// Whether the value of a key was started with in this change.
    #[inline]
    fn has_started(&self, which: usize) -> bool {
        let is_it =
            |other: usize| self.are_started[other] && self.keys[other].key == self.keys[which].key;
        (0..KEYS).any(is_it)
    }

    #[inline(always)]
    fn is_changed(&self, which: usize) -> bool {
        self.are_edited[which]
            || !matches!(self.edits[which], Edit::None)
            || self.expiries[which].is_some()
            || (self.are_started[which] && !is_planted(Bug::StartNotLogged))
    }

    /// Whether a key is a part of the record: it is changed, and none before it has its name.
    #[inline(always)]
    fn is_counted(&self, which: usize) -> bool {
        let key = self.keys[which].key;
        let is_same = |other: usize| self.is_changed(other) && self.keys[other].key == key;
        self.is_changed(which) && !(0..which).any(is_same)
    }

    /// The bytes of the record, and whether the store holds more after it.
    #[inline(always)]
    fn needs(&self) -> Result<(usize, bool), NoRoom> {
        let (mut bytes, mut grows) = (0, false);
        for which in 0..KEYS {
            if self.is_counted(which) {
                let (part_bytes, part_grows) = self.room_of(which)?;
                if bytes == 0 || !is_planted(Bug::RoomForOnePart) {
                    bytes += part_bytes;
                }
                grows |= part_grows;
            }
        }
        Ok((bytes, grows))
    }

    /// Finds room for the record and for what the change adds to memory.
    #[inline(always)]
    fn make_room(&mut self) -> Result<(), NoRoom> {
        let (bytes, grows) = self.needs()?;
        let purpose = match grows {
            true => Purpose::Grow,
            false => Purpose::Keep,
        };
        match self.store.room_for(purpose, bytes) {
            Room::Yes => Ok(()),
            Room::Wait => Err(NoRoom::Wait),
            Room::Full => Err(NoRoom::Log),
        }
    }

    /// The bytes that a key takes in the record, and whether the store holds more after it.
    #[inline(always)]
    fn room_of(&self, which: usize) -> Result<(usize, bool), NoRoom> {
        let store = &*self.store;
        let key = self.keys[which];
        let home = (self.slot, key.hash);
        let adds_version = store.adds_version(self.slot, key.hash, key.key);
        let effects_bytes = |id: Option<CellId>| id.map_or(0, |id| store.effects_bytes(id));
        let (value_bytes, expires, extension_bytes, grows) = match self.edits[which] {
            Edit::Put {
                value,
                expiry_ms,
                keeps_effects,
            } => {
                store.memory_for_value(home, key.cell, adds_version)?;
                let held = key.cell.filter(|_| key.exists && !adds_version);
                // A cell has its value in steps of eight bytes.
                let held = held.map(|id| store.cell(id).value().len().next_multiple_of(8));
                let expires = expiry_ms.is_some() && !is_planted(Bug::RoomWithoutExpiry);
                let grows = held.is_none_or(|held| value.len() > held);
                let kept = key.cell.filter(|_| keeps_effects);
                (value.len(), expires, effects_bytes(kept), grows)
            }
            // Where versions are kept, a deletion and an edit are one more.
            _ if adds_version && !store.has_room_for_keys() => return Err(NoRoom::Memory),
            Edit::Delete => (0, false, 0, false),
            Edit::None => {
                let id = self.cells[which].expect("what is edited has a cell");
                let cell = store.cell(id);
                let expiry_ms = self.expiries[which].unwrap_or_else(|| cell.expiry_ms());
                let grows = self.are_started[which] || adds_version;
                let kept = effects_bytes(expiry_ms.map(|_| id));
                (cell.value().len(), expiry_ms.is_some(), kept, grows)
            }
        };
        let bytes = part_bytes(key.key.len(), value_bytes, expires, extension_bytes);
        Ok((bytes, grows))
    }

    /// Does to a key what had to wait for the room, and tells its cell.
    #[inline(always)]
    fn apply(&mut self, which: usize) -> CellId {
        let key = self.keys[which];
        let home = (self.slot, key.hash);
        let keys = &mut self.store.keys;
        let id = match (self.edits[which], self.cells[which]) {
            (
                Edit::Put {
                    value,
                    expiry_ms,
                    keeps_effects,
                },
                Some(id),
            ) => match keeps_effects {
                true => keys.set_value_of_armed(home, id, value, expiry_ms),
                false => keys.set_value(home, id, value, expiry_ms),
            },
            (
                Edit::Put {
                    value, expiry_ms, ..
                },
                None,
            ) => keys.insert(home, key.key, value, expiry_ms),
            (Edit::Delete, Some(id)) => {
                keys.mark_deleted(home, id);
                id
            }
            (Edit::None, Some(id)) => id,
            (Edit::Delete | Edit::None, None) => unreachable!("it exists"),
        };
        let id = match self.expiries[which] {
            Some(expiry_ms) => keys.set_expiry(home, id, expiry_ms),
            None => id,
        };
        self.has_cell(which, id);
        id
    }

    /// A key has this cell now, by whatever number the change names it.
    #[inline(always)]
    fn has_cell(&mut self, which: usize, id: CellId) {
        let name = self.keys[which].key;
        for other in 0..KEYS {
            if other == which || self.keys[other].key == name {
                self.cells[other] = Some(id);
            }
        }
    }

    /// Leaves the cells as they were when the change was opened.
    #[cold]
    fn undo(&mut self) {
        let edits = std::mem::take(&mut self.store.field_edits);
        for edit in FieldEdit::undone(&edits) {
            let id = self.cells[edit.which()].expect("what was edited is there");
            edit.undo(self.store.keys.value_mut(id));
        }
        self.store.field_edits = edits;
        for which in 0..KEYS {
            if self.are_started[which] {
                self.undo_start(which);
            }
        }
    }

    /// Takes back the value that a key has started with.
    fn undo_start(&mut self, which: usize) {
        let key = self.keys[which];
        let id = self.cells[which].expect("made by the start");
        let home = (self.slot, key.hash);
        match (key.cell, key.expiry_ms) {
            (Some(_), _) if is_planted(Bug::ResurrectDeleted) => {}
            (Some(_), Some(held_ms)) => {
                let expiry_ms = planted::or(Bug::StartRevivesExpired, None, Some(held_ms));
                // Nobody reads the value of an expired key again.
                self.store.keys.set_value(home, id, &[], expiry_ms);
            }
            (Some(_), None) => self.store.keys.mark_deleted(home, id),
            (None, _) => self.store.discard(home, id),
        }
    }
}

impl<P: Blocks, const KEYS: usize> Drop for Change<'_, '_, P, KEYS> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.are_edited.contains(&true) || self.are_started.contains(&true) {
            self.undo();
        }
    }
}

impl<P: Blocks> Store<P> {
    /// Opens a change of keys of one slot that were just looked up and are not cold.
    #[inline(always)]
    pub fn change<'s, 'k, const KEYS: usize>(
        &'s mut self,
        slot: u16,
        keys: [ChangeKey<'k>; KEYS],
    ) -> Change<'s, 'k, P, KEYS> {
        const { assert!(0 < KEYS && KEYS <= PARTS_MAX) };
        self.field_edits.clear();
        Change {
            store: self,
            slot,
            cells: keys.map(|key| key.cell),
            keys,
            edits: [Edit::None; KEYS],
            are_edited: [false; KEYS],
            are_started: [false; KEYS],
            expiries: [None; KEYS],
        }
    }

    /// Whether the value of a key of this slot and hash may grow, the key come to be if it has no
    /// cell, or one more version of it be kept.
    #[inline]
    fn memory_for_value(
        &self,
        home: (u16, u32),
        cell: Option<CellId>,
        adds_version: bool,
    ) -> Result<(), NoRoom> {
        let is_new = cell.is_none() && !self.has_room_for_key(home);
        if is_new || (adds_version && !self.has_room_for_keys()) {
            return Err(self.waits_or_lacks_memory());
        }
        match self.is_memory_short() {
            true => Err(NoRoom::Wait),
            false => Ok(()),
        }
    }

    /// Why there is no room for another key or kept version: cleaning is about to make some, or
    /// nothing does.
    pub(super) fn waits_or_lacks_memory(&self) -> NoRoom {
        match self.waits_for_keys() {
            true => NoRoom::Wait,
            false => NoRoom::Memory,
        }
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
        self.keys.insert((slot, hash), key, value, expiry_ms)
    }

    /// Takes back an [`Store::insert`] that is not to be committed.
    pub fn discard(&mut self, (slot, hash): (u16, u32), id: CellId) {
        assert!(
            self.keys.cell(id).place() == PackedPlace::default(),
            "only a key that was never logged is discarded"
        );
        self.keys.remove_cached((slot, hash), id);
    }

    /// Gives a cached key of this slot and hash another value and expiry before a commit. It may
    /// have another cell then, which is the answer.
    #[inline]
    pub fn set_value(
        &mut self,
        home: (u16, u32),
        id: CellId,
        value: &[u8],
        expiry_ms: Option<u64>,
    ) -> CellId {
        self.keys.set_value(home, id, value, expiry_ms)
    }

    /// Marks a cached key of this slot and hash as deleted before a commit.
    pub fn delete(&mut self, home: (u16, u32), id: CellId) {
        self.keys.mark_deleted(home, id);
    }

    /// Logs the present contents of `cells`, keys of one `slot` with their hashes, as one record:
    /// all of them or none survive a crash. [`Store::room_for`] must have said yes.
    #[inline]
    pub fn commit(&mut self, now_us: u64, slot: u16, cells: &[(u32, CellId)]) -> (Lsn, Version) {
        let version = self.next_version(slot);
        let time_ms = self.time_ms();
        let (keys, keyspaces) = (&self.keys, &self.keyspaces);
        let areas;
        let extension = match keys.cells().has_armed() {
            false => &[][..],
            true => {
                areas = keys.areas_of(cells);
                &areas[..]
            }
        };
        let record = |parts| RecordSpec {
            slot,
            epoch: version.epoch,
            sequence: version.sequence,
            time_ms,
            parts,
            extension,
        };
        let part = |(hash, id)| {
            let cell = keys.cell(id);
            let layout = keyspaces.layout(slot, cell.key());
            part_of(cell, layout, keys.entries().is_crowded(slot, hash))
        };
        let places = &mut self.places;
        let lsn = match *cells {
            // Nearly every commit; nine parts would cost it more to lay out than to encode.
            [cell] => self.log.append(now_us, &record(&[part(cell)]), places),
            [one, two] => {
                let parts = [part(one), part(two)];
                self.log.append(now_us, &record(&parts), places)
            }
            [one, two, three] => {
                let parts = [part(one), part(two), part(three)];
                self.log.append(now_us, &record(&parts), places)
            }
            _ => {
                let mut parts = [part(cells[0]); PARTS_MAX];
                for (into, &cell) in parts.iter_mut().zip(cells) {
                    *into = part(cell);
                }
                self.log
                    .append(now_us, &record(&parts[..cells.len()]), places)
            }
        };
        self.cleaner.must_pick = true;
        if self.cleaner.pace.is_bounded() {
            let places = self.places[..cells.len()].iter();
            let bytes = places.map(|place| u64::from(place.bytes)).sum();
            self.cleaner.pace.takes(bytes);
        }
        if self.keyspaces.keeps_versions() {
            let cells = cells.iter().copied().enumerate();
            self.keep_versions(lsn, version, time_ms, slot, cells);
        }
        for (at, &(hash, id)) in cells.iter().enumerate() {
            self.note_change(lsn, version, (slot, hash), at, id);
        }
        (lsn, version)
    }

    /// Logs a record. Where its parts stand is known until the next one.
    pub(crate) fn log_record(&mut self, now_us: u64, record: &RecordSpec<'_>) -> Lsn {
        self.cleaner.must_pick = true;
        self.log.append(now_us, record, &mut self.places)
    }

    /// Where a part of the last record stands.
    pub(crate) fn place_of_part(&self, ordinal: usize) -> Place {
        self.places[ordinal]
    }

    /// The last record holds the present contents of a cell as its part `ordinal`.
    #[inline]
    pub(crate) fn note_change(
        &mut self,
        lsn: Lsn,
        version: Version,
        (slot, hash): (u16, u32),
        ordinal: usize,
        id: CellId,
    ) {
        let place = self.places[ordinal];
        let mut packed = PackedPlace::new(place, version.sequence);
        if_planted! { Bug::PlaceOfFirstKey, ordinal > 0, packed = self.keys.cell(id).place() }
        let changed = self.keys.set_change(id, version, packed, Some(lsn));
        // A deletion counts like a value until it is durable and its entry leaves.
        match changed.expires() {
            false => self.live.moves(changed.before, place),
            true => {
                if let Some(old) = changed.before.place() {
                    self.live.loses(old);
                }
                self.gains_expiring(place, (slot, hash), id);
            }
        }
        if changed.is_deleted() {
            self.deletions.push_back((lsn, slot, hash, version));
        }
    }

    #[cold]
    fn gains_expiring(&mut self, place: Place, (slot, hash): (u16, u32), id: CellId) {
        let cell = self.keys.cell(id);
        if self.keys.cells().effects(id).is_some() {
            // It counts until its effects have run.
            return self.live.gains(place);
        }
        // The time of its record, or a later one.
        let time_ms = self.log.time_ms();
        let expiry_ms = cell.expiry_ms();
        let expires = match is_token_hash(hash) {
            true => token_expires(cell.key(), expiry_ms),
            false => expires(&self.keyspaces, slot, cell.key(), expiry_ms, time_ms),
        };
        self.live.gains_until(place, expires);
    }
}

/// The present contents of a cell as the log keeps them.
#[inline]
pub(super) fn part_of(cell: Cell<'_>, layout: u16, is_crowded: bool) -> PartSpec<'_> {
    PartSpec {
        kind: if cell.is_deleted() {
            PartKind::Tombstone
        } else {
            PartKind::Put
        },
        key: cell.key(),
        value: cell.value(),
        expiry_ms: cell.expiry_ms(),
        layout,
        is_crowded,
    }
}
