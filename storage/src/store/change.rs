//! A change of keys: opened on keys that were looked up, edited, then committed as one record, or
//! as one group of records if the keys are of several slots. A change that is dropped before the
//! commit leaves every key as it was.
//!
//! | edit | before the commit | at the commit |
//! |---|---|---|
//! | a field of a value that a cell holds | in the cell, with the bytes before in `field_edits` | stays |
//! | a field of a value that the change puts or replaces | in a copy | the copy becomes the value |
//! | a whole value, a deletion, an expiry, effects | kept beside the store | takes effect |
//!
//! What must hold: the cell of a key stays where it is until the commit, so an undo finds it. The
//! commit asks for room before it changes anything besides fields. A change that finds no room is
//! dropped, and the drop gives edited fields their bytes back, the last edit first.

use crate::format::extension::{EffectsArea, GROUP_AREA_BYTES};
use crate::format::record::{
    FEW_PARTS_MAX, KindedValue, OfParts, PARTS_MAX, ValueKind, number_bytes, part_bytes,
};
use crate::log::room::{Purpose, Room};
use crate::memory::index::entry::CellId;
use crate::planted::{self, Bug, is_planted};
use crate::store::commit::{ChangeKey, Committed, NoRoom, TokenPart};
use crate::store::data::Data;
use crate::store::fields::FieldEdit;
use crate::store::key_numbers::{FewKeys, KeyNumbers, KeySlots, ManyKeys, OneSlot};
use crate::store::store::Store;
use crate::types::io::Blocks;
use crate::types::key_home::KeyHome;
use crate::types::version::Version;

/// The value that a key has in a change.
#[derive(Clone, Copy, Debug)]
enum Value<'k> {
    /// None.
    None,
    /// That of its cell, whose fields may have been edited.
    Stored,
    /// Its copy.
    Copied,
    /// These bytes.
    Put(&'k [u8]),
}

/// A key of a change.
#[derive(Clone, Copy, Debug)]
struct ChangedKey<'k> {
    found: ChangeKey<'k>,
    value: Value<'k>,
    /// What its value is.
    kind: ValueKind,
    expiry_ms: Option<u64>,
    /// The effects that its expiry runs stay as they were.
    keeps_effects: bool,
    /// Fields of its value were edited in the cell.
    is_edited: bool,
    /// It is logged even if it stays as it was.
    is_logged: bool,
}

impl ChangedKey<'_> {
    #[inline]
    fn is_changed(&self) -> bool {
        match self.value {
            Value::None => self.found.exists,
            Value::Stored => {
                self.is_edited || self.is_logged || self.expiry_ms != self.found.expiry_ms
            }
            Value::Copied | Value::Put(_) => true,
        }
    }
}

/// An open change of 1 to [`KeyNumbers::MAX`] keys, no two of them alike. A change that is dropped
/// leaves every key as it was. Compiled for several numbers, because most changes have few keys of
/// one slot.
pub struct Change<'s, 'k, P: Blocks, K: KeyNumbers> {
    store: &'s mut Store<P>,
    slots: K::Slots,
    keys: K::Of<ChangedKey<'k>>,
    count: usize,
    /// New effects of an expiry, each with the number of its key, which rises. Most changes have
    /// none.
    armed: Vec<(usize, EffectsArea)>,
    /// Bytes of the part of each key, 0 of those that have not changed; nothing if another
    /// edit came since they were counted.
    parts: Option<K::Of<usize>>,
}

/// Bytes of a record of these parts, 0 being none, and the number of each of `others` more.
#[inline]
fn bytes_of<K: KeyNumbers>(parts: &[usize], others: usize) -> usize {
    let bytes = parts.iter().sum();
    if K::MAX < FEW_PARTS_MAX {
        return bytes;
    }
    let count = parts.iter().filter(|bytes| **bytes > 0).count() + others;
    bytes + count * number_bytes(count)
}

impl Data {
    /// Whether the index may take new keys of this slot, all of them: it may grow, or each finds a
    /// free entry of its own.
    pub(super) fn has_room_for_new(&self, slot: u16, hashes: &[u32]) -> bool {
        self.has_room_for_keys() || self.keys.entries().has_free_entries(slot, hashes)
    }

    /// The same of new keys of any slots.
    pub(super) fn has_room_for_spread(&self, mut new: Vec<KeyHome>) -> bool {
        new.sort_unstable_by_key(|home| home.slot);
        self.has_room_for_keys()
            || new
                .chunk_by(|one, other| one.slot == other.slot)
                .all(|of_slot| {
                    let hashes: Vec<u32> = of_slot.iter().map(|home| home.hash).collect();
                    self.keys
                        .entries()
                        .has_free_entries(of_slot[0].slot, &hashes)
                })
    }
}

impl<P: Blocks> Store<P> {
    /// Opens a change of keys of one slot that were just looked up and are not cold. Only the first
    /// `count` of `keys` are meant.
    ///
    /// # Panics
    /// If `count` is 0 or more than `KEYS`.
    #[inline(always)]
    pub fn change<'k, const KEYS: usize>(
        &mut self,
        slot: u16,
        keys: [ChangeKey<'k>; KEYS],
        count: usize,
    ) -> Change<'_, 'k, P, FewKeys<KEYS>> {
        self.change_of(OneSlot(slot), &keys, count)
    }

    /// As [`Store::change`], of more keys: of all of `keys`.
    ///
    /// # Panics
    /// If there is no key, or more than [`PARTS_MAX`].
    pub fn change_many<'k>(
        &mut self,
        slot: u16,
        keys: &[ChangeKey<'k>],
    ) -> Change<'_, 'k, P, ManyKeys> {
        self.change_of(OneSlot(slot), keys, keys.len())
    }

    /// As [`Store::change`], of as many keys as `K` has room for, which are of these slots.
    ///
    /// # Panics
    /// If `count` is 0, or more than there are keys, or more than `K` has room for.
    #[inline(always)]
    pub fn change_of<'k, K: KeyNumbers>(
        &mut self,
        slots: K::Slots,
        keys: &[ChangeKey<'k>],
        count: usize,
    ) -> Change<'_, 'k, P, K> {
        self.field_edits.clear();
        // Not by `map`, which moves all of the keys first.
        let keys = K::make(count, |which| {
            let found = keys[which];
            ChangedKey {
                found,
                value: match found.exists {
                    true => Value::Stored,
                    false => Value::None,
                },
                kind: match found.exists {
                    true => found.kind,
                    false => ValueKind::Plain,
                },
                expiry_ms: found.expiry_ms.filter(|_| found.exists),
                keeps_effects: found.exists,
                is_edited: false,
                is_logged: false,
            }
        });
        Change {
            store: self,
            slots,
            keys,
            count,
            armed: Vec::new(),
            parts: None,
        }
    }
}

impl<'k, P: Blocks, K: KeyNumbers> Change<'_, 'k, P, K> {
    /// The time of the store in unix milliseconds.
    #[must_use]
    pub fn time_ms(&self) -> u64 {
        self.store.data.time_ms()
    }

    /// The time from which lifetimes count, as
    /// [`Clock::next_ms`](crate::store::clock::Clock::next_ms).
    #[must_use]
    pub fn lifetimes_from_ms(&self) -> u64 {
        self.store.data.clock.next_ms()
    }

    /// [`Clock::behind_ms`](crate::store::clock::Clock::behind_ms).
    #[must_use]
    pub fn clock_behind_ms(&self) -> u64 {
        self.store.data.clock.behind_ms()
    }

    /// Bytes that its record may have, at most.
    #[must_use]
    pub fn record_bytes_max(&self) -> usize {
        self.store.log.record_bytes_max()
    }

    #[inline]
    fn home_of(&self, which: usize) -> KeyHome {
        KeyHome::new(self.slots.of(which), self.key(which).found.hash)
    }

    /// As [`Data::may_have_changed`], of a key before this change.
    #[must_use]
    pub fn may_have_changed(&self, which: usize, since: Version) -> bool {
        let cell = self.key(which).found.cell;
        self.store
            .data
            .may_have_changed(self.home_of(which), cell, since)
    }

    /// The value of a key now; `None` if it has none.
    #[inline]
    #[must_use]
    pub fn value(&self, which: usize) -> Option<&[u8]> {
        match self.key(which).value {
            Value::None => None,
            Value::Stored => {
                let id = self.key(which).found.cell.expect("it exists");
                Some(self.store.data.keys.cell(id).value())
            }
            Value::Copied => Some(self.store.edited.of(which)),
            Value::Put(value) => Some(value),
        }
    }

    /// What the value of a key is now; plain if it has none.
    #[inline]
    #[must_use]
    pub fn value_kind(&self, which: usize) -> ValueKind {
        self.key(which).kind
    }

    /// `width` bytes from `start` on of the value of a key, to be changed in place.
    ///
    /// # Panics
    /// If the key has no value, or a head, or the field lies outside of the value.
    #[inline(always)]
    pub fn field_mut(&mut self, which: usize, start: usize, width: usize) -> &mut [u8] {
        self.parts = None;
        let Store {
            data: Data { keys, .. },
            edited,
            field_edits,
            ..
        } = &mut *self.store;
        let key = &mut self.keys.as_mut()[which];
        assert!(key.kind == ValueKind::Plain, "a head has no fields");
        match key.value {
            Value::Stored => {
                let id = key.found.cell.expect("it exists");
                let field = &mut keys.value_mut(id)[start..][..width];
                field_edits.push(FieldEdit::new(which, start, field));
                key.is_edited = true;
                field
            }
            Value::Copied => &mut edited.of_mut(which)[start..][..width],
            Value::Put(value) => {
                key.value = Value::Copied;
                &mut edited.begin(which, value)[start..][..width]
            }
            Value::None => panic!("only a value that is there is edited"),
        }
    }

    /// Gives a key that has a value another plain one; its expiry stays.
    pub fn replace(&mut self, which: usize, value: &[u8]) {
        self.parts = None;
        self.store.edited.begin(which, value);
        let key = self.key_mut(which);
        (key.value, key.kind) = (Value::Copied, ValueKind::Plain);
    }

    /// Gives a key this value and expiry, whatever it has.
    #[inline]
    pub fn put(&mut self, which: usize, value: KindedValue<'k>, expiry_ms: Option<u64>) {
        self.parts = None;
        let key = self.key_mut(which);
        let expiry_ms = planted::or(Bug::ApplyPutKeepsExpiry, key.expiry_ms, expiry_ms);
        (key.value, key.kind) = (Value::Put(value.bytes), value.kind);
        key.expiry_ms = expiry_ms;
        key.keeps_effects = false;
    }

    /// Gives a key that has a value this one. Its expiry stays, and so does what runs then.
    #[inline]
    pub fn put_keeping(&mut self, which: usize, value: KindedValue<'k>) {
        self.parts = None;
        let key = self.key_mut(which);
        (key.value, key.kind) = (Value::Put(value.bytes), value.kind);
    }

    /// Takes the value of a key away.
    #[inline]
    pub fn delete(&mut self, which: usize) {
        self.parts = None;
        let key = self.key_mut(which);
        (key.value, key.expiry_ms) = (Value::None, None);
        key.kind = ValueKind::Plain;
        key.keeps_effects = false;
    }

    /// Gives a key that has a value this expiry.
    #[inline]
    pub fn expire(&mut self, which: usize, expiry_ms: Option<u64>) {
        self.parts = None;
        self.key_mut(which).expiry_ms = expiry_ms;
        self.key_mut(which).keeps_effects &= expiry_ms.is_some();
    }

    /// Has a key that has a value in the record even if it stays as it was: its version is new.
    #[inline(always)]
    pub fn log_unchanged(&mut self, which: usize) {
        self.parts = None;
        self.key_mut(which).is_logged = true;
    }

    /// The expiry of a key that has a value.
    #[must_use]
    pub fn expiry_ms(&self, which: usize) -> Option<u64> {
        self.key(which).expiry_ms
    }

    /// Has this run when a key expires, whatever was to run before. At the commit it has a value
    /// and an expiry.
    pub fn arm(&mut self, which: usize, area: EffectsArea) {
        self.parts = None;
        match self.armed_at(which) {
            Ok(at) => self.armed[at].1 = area,
            Err(at) => self.armed.insert(at, (which, area)),
        }
    }

    /// Whether this change or any key of the store has effects: nearly never.
    #[inline]
    fn are_effects(&self) -> bool {
        !self.armed.is_empty() || self.store.data.keys.cells().has_armed()
    }

    #[inline]
    fn is_changed(&self, which: usize) -> bool {
        self.key(which).is_changed() || self.are_effects() && self.has_other_effects(which)
    }

    /// Whether something else runs when a key expires than before.
    #[cold]
    fn has_other_effects(&self, which: usize) -> bool {
        let key = self.key(which);
        let drops = !key.keeps_effects && key.found.exists;
        self.is_armed(which)
            || drops
                && key
                    .found
                    .cell
                    .is_some_and(|id| self.store.data.keys.effects_bytes(id) > 0)
    }

    /// Whether this change arms a key.
    fn is_armed(&self, which: usize) -> bool {
        self.armed_at(which).is_ok()
    }

    /// Where the effects stand that a key has newly, or where they would.
    fn armed_at(&self, which: usize) -> Result<usize, usize> {
        self.armed.binary_search_by_key(&which, |(armed, _)| *armed)
    }

    /// Bytes of the record that [`Change::commit`] would log, or of the records together; 0 if
    /// nothing has changed.
    #[inline]
    #[must_use]
    pub fn record_bytes(&mut self) -> usize {
        let parts = self.parts();
        self.bytes_of(parts.as_ref(), 0)
    }

    /// The same with these bytes of parts, and `others` more parts: none beside keys of any slots.
    #[inline]
    fn bytes_of(&self, parts: &[usize], others: usize) -> usize {
        match K::Slots::ARE_ONE {
            true => bytes_of::<K>(parts, others),
            false => self.spread_bytes(parts),
        }
    }

    /// The same of keys of any slots.
    fn spread_bytes(&self, parts: &[usize]) -> usize {
        let changed = parts.iter().enumerate().filter(|(_, bytes)| **bytes > 0);
        let mut slots: Vec<u16> = changed.map(|(which, _)| self.slots.of(which)).collect();
        slots.sort_unstable();
        let records = slots.chunk_by(|one, other| one == other);
        let numbers = records.clone().map(|of| of.len() * number_bytes(of.len()));
        let areas = match records.count() {
            ..=1 => 0,
            records => records * GROUP_AREA_BYTES,
        };
        parts.iter().sum::<usize>() + numbers.sum::<usize>() + areas
    }

    /// Bytes of the part of each key; 0 of those that have not changed.
    #[inline]
    fn parts(&mut self) -> K::Of<usize> {
        if let Some(parts) = &self.parts {
            return parts.clone();
        }
        let parts = K::make(self.count, |which| {
            match which < self.count && self.is_changed(which) {
                true => self.part_bytes(which),
                false => 0,
            }
        });
        self.parts = Some(parts.clone());
        parts
    }

    #[inline(always)]
    fn key(&self, which: usize) -> &ChangedKey<'k> {
        &self.keys.as_ref()[which]
    }

    #[inline(always)]
    fn key_mut(&mut self, which: usize) -> &mut ChangedKey<'k> {
        &mut self.keys.as_mut()[which]
    }

    /// Logs the change as one record, or as one group of records, one for each slot of its keys:
    /// all of it or nothing survives a crash. Together they are within
    /// [`Log::record_bytes_max`](crate::log::log::Log::record_bytes_max).
    ///
    /// # Errors
    /// [`NoRoom`]. Every key is as it was before the change.
    ///
    /// # Panics
    /// If nothing has changed.
    #[inline(always)]
    pub fn commit(mut self, now_us: u64) -> Result<Committed, NoRoom> {
        let parts = self.parts();
        self.make_room(parts.as_ref(), None)?;
        Ok(self.log_all(now_us, &parts))
    }

    /// The same of what is decided: its room in the log and in memory is reserved, or it is to be
    /// had whatever the bounds say.
    ///
    /// # Errors
    /// [`NoRoom::Wait`]. Every key is as it was before the change.
    ///
    /// # Panics
    /// If nothing has changed.
    pub fn commit_owed(mut self, now_us: u64) -> Result<Committed, NoRoom> {
        let parts = self.parts();
        let bytes = self.bytes_of(parts.as_ref(), 0);
        match self.store.room_for(Purpose::Owed, bytes) {
            Room::Yes => Ok(self.log_all(now_us, &parts)),
            Room::Wait | Room::Full => Err(NoRoom::Wait),
        }
    }

    /// Logs the change, for which there is room.
    #[inline(always)]
    fn log_all(mut self, now_us: u64, parts: &K::Of<usize>) -> Committed {
        let mut logged = K::make(self.count, |_| (0, CellId(0)));
        let count = self.take_all(parts.as_ref(), logged.as_mut());
        let logged = &logged.as_ref()[..count];
        let committed = match K::Slots::ARE_ONE {
            true => {
                let (lsn, version) = self.store.commit(now_us, self.slots.of(0), logged);
                Committed { lsn, version }
            }
            false => {
                let cells = self.with_slots(parts.as_ref(), logged);
                self.store.commit_group(now_us, cells)
            }
        };
        self.end();
        committed
    }

    /// The slot of each cell that is logged, beside its hash.
    fn with_slots(&self, parts: &[usize], logged: &[(u32, CellId)]) -> Vec<(KeyHome, CellId)> {
        let changed = parts.iter().enumerate().filter(|(_, bytes)| **bytes > 0);
        let slots = changed.map(|(which, _)| self.slots.of(which));
        let cells = slots.zip(logged);
        cells
            .map(|(slot, &(hash, id))| (KeyHome { slot, hash }, id))
            .collect()
    }

    /// As [`Change::commit`], with the token of the change in the same record.
    ///
    /// # Errors
    /// [`NoRoom`]. Every key is as it was before the change.
    ///
    /// # Panics
    /// If nothing has changed: [`Store::commit_token`] then. If [`PARTS_MAX`] keys have changed. If
    /// its keys are of several slots.
    pub fn commit_with(mut self, now_us: u64, token: &TokenPart<'_>) -> Result<Committed, NoRoom> {
        const { assert!(K::MAX < FEW_PARTS_MAX || K::MAX == PARTS_MAX) };
        assert!(K::Slots::ARE_ONE, "a token names a change of one slot");
        let parts = self.parts();
        self.make_room(parts.as_ref(), Some(token))?;
        let mut logged = OfParts::of((0, CellId(0)), self.count + 1);
        let count = self.take_all(parts.as_ref(), &mut logged);
        let slot = self.slots.of(0);
        logged[count] = (token.at.hash, self.store.put_token(slot, token));
        let committed = self
            .store
            .commit_with_token(now_us, slot, &logged[..=count], token);
        self.end();
        Ok(committed)
    }

    /// The record is in the log: nothing is left to be undone.
    #[inline(always)]
    fn end(&mut self) {
        self.store.field_edits.clear();
    }

    /// Bytes of the part of a key.
    #[inline]
    fn part_bytes(&self, which: usize) -> usize {
        let key = self.key(which);
        let value_len = self.value(which).map_or(0, <[u8]>::len);
        let expires = key.expiry_ms.is_some();
        let effects_len = match expires && self.are_effects() {
            true => self.effects_bytes(which),
            false => 0,
        };
        let expires = expires && !is_planted(Bug::RoomWithoutExpiry);
        part_bytes(key.found.key.len(), value_len, expires, effects_len)
    }

    /// Bytes of what will run when a key expires that has an expiry.
    #[cold]
    fn effects_bytes(&self, which: usize) -> usize {
        if let Ok(at) = self.armed_at(which) {
            return self.armed[at].1.bytes().len();
        }
        let key = self.key(which);
        let kept = key.found.cell.filter(|_| key.keeps_effects);
        kept.map_or(0, |id| self.store.data.keys.effects_bytes(id))
    }

    /// Finds room for the record with these bytes of parts, and for what the change adds to memory.
    fn make_room(&mut self, parts: &[usize], token: Option<&TokenPart<'_>>) -> Result<(), NoRoom> {
        let (mut grows, mut needs_memory) = (false, false);
        // The homes of new keys, if they are of several slots.
        let mut spread = Vec::new();
        let (mut new, mut new_count) = (OfParts::of(0, self.count + 1), 0);
        for (which, &bytes) in parts.iter().enumerate() {
            if bytes == 0 {
                continue;
            }
            let (key, store) = (self.key(which), &*self.store);
            if !self.armed.is_empty() && self.is_armed(which) {
                let is_new = key
                    .found
                    .cell
                    .is_none_or(|id| store.data.keys.effects_bytes(id) == 0);
                if is_new && !store.data.has_room_for_keys() {
                    return Err(match store.waits_or_lacks_memory() {
                        NoRoom::Memory => NoRoom::Timers,
                        other => other,
                    });
                }
                (grows, needs_memory) = (true, true);
            }
            let adds_version =
                store
                    .data
                    .adds_version(self.slots.of(which), key.found.hash, key.found.key);
            if adds_version && !store.data.has_room_for_keys() {
                return Err(store.waits_or_lacks_memory());
            }
            let Some(value) = self.value(which) else {
                continue;
            };
            if key.found.cell.is_none() {
                new[new_count] = key.found.hash;
                new_count += 1;
                if !K::Slots::ARE_ONE {
                    spread.push(self.home_of(which));
                }
            }
            // A cell has its value in steps of eight bytes.
            let cell = key.found.cell.filter(|_| key.found.exists);
            let held = cell.map(|id| store.data.keys.cell(id).value().len());
            let is_longer = held.is_none_or(|held| value.len() > held.next_multiple_of(8));
            grows |= is_longer || adds_version;
            needs_memory |= held != Some(value.len());
        }
        let bytes = match is_planted(Bug::RoomForOnePart) {
            false => self.bytes_of(parts, token.is_some().into()),
            true => *parts.iter().find(|bytes| **bytes > 0).expect("a change"),
        };
        let slot = self.slots.of(0);
        let store = &mut *self.store;
        if let Some(token) = token {
            new[new_count] = token.at.hash;
            return store.room_with_token(slot, bytes, &new[..=new_count], token);
        }
        let has_entries = |data: &Data, new: &[u32]| match K::Slots::ARE_ONE {
            true => data.has_room_for_new(slot, new),
            false => data.has_room_for_spread(spread),
        };
        if new_count > 0 && !has_entries(&store.data, &new[..new_count]) {
            return Err(store.waits_or_lacks_memory());
        }
        if needs_memory && store.data.is_memory_short() {
            return Err(NoRoom::Wait);
        }
        let purpose = match grows {
            true => Purpose::Grow,
            false => Purpose::Keep,
        };
        match store.room_for(purpose, bytes) {
            Room::Yes => Ok(()),
            Room::Wait => Err(NoRoom::Wait),
            Room::Full => Err(NoRoom::Log),
        }
    }

    /// Gives every key whose part has bytes its value, expiry and effects; tells hashes and cells,
    /// and how many they are.
    fn take_all(&mut self, parts: &[usize], logged: &mut [(u32, CellId)]) -> usize {
        let mut count = 0;
        let mut armed = std::mem::take(&mut self.armed).into_iter().peekable();
        for (which, &bytes) in parts.iter().enumerate() {
            if bytes > 0 && !(count > 0 && is_planted(Bug::ApplyOnePart)) {
                let (hash, id) = (self.key(which).found.hash, self.take_effect(which));
                logged[count] = (hash, id);
                if let Some((_, area)) = armed.next_if(|(armed, _)| *armed == which) {
                    let home = self.home_of(which);
                    self.store.data.keys.arm(home, id, area);
                }
                count += 1;
            }
        }
        count
    }

    /// Gives the cell of a key what is staged, and tells the cell.
    fn take_effect(&mut self, which: usize) -> CellId {
        let ChangedKey {
            found,
            value,
            kind,
            mut expiry_ms,
            keeps_effects,
            is_edited,
            ..
        } = *self.key(which);
        let is_edited = is_edited || matches!(value, Value::Copied);
        if is_planted(Bug::EditForgetsExpiry) && found.exists && is_edited {
            expiry_ms = None;
        }
        let home = self.home_of(which);
        let value = match value {
            Value::Copied => {
                if let Some(id) = self.cell_as_long(which, expiry_ms) {
                    let Store {
                        data: Data { keys, .. },
                        edited,
                        ..
                    } = &mut *self.store;
                    keys.value_mut(id).copy_from_slice(edited.of(which));
                    return id;
                }
                let Store {
                    data: Data { keys, .. },
                    edited,
                    ..
                } = &mut *self.store;
                let bytes = edited.of(which);
                let value = KindedValue { kind, bytes };
                if let Some(id) = found.cell.filter(|_| keeps_effects) {
                    return keys.set_value_of_armed(home, id, value, expiry_ms);
                }
                return match found.cell {
                    Some(id) => keys.set_value(home, id, value, expiry_ms),
                    None => keys.insert(home, found.key, value, expiry_ms),
                };
            }
            Value::Put(bytes) => KindedValue { kind, bytes },
            Value::Stored => {
                let (id, keys) = (found.cell.expect("it exists"), &mut self.store.data.keys);
                if !keeps_effects {
                    keys.disarm(home, id);
                }
                return match expiry_ms == found.expiry_ms {
                    true => id,
                    false => keys.set_expiry(home, id, expiry_ms),
                };
            }
            Value::None => {
                let id = found.cell.expect("it exists");
                self.store.data.keys.mark_deleted(home, id);
                return id;
            }
        };
        let keys = &mut self.store.data.keys;
        match found.cell {
            Some(id) if keeps_effects => keys.set_value_of_armed(home, id, value, expiry_ms),
            Some(id) => keys.set_value(home, id, value, expiry_ms),
            None => keys.insert(home, found.key, value, expiry_ms),
        }
    }

    /// The cell of a key whose copy is as long as the value that is there, if all else stays.
    #[inline]
    fn cell_as_long(&self, which: usize, expiry_ms: Option<u64>) -> Option<CellId> {
        let ChangedKey {
            found,
            keeps_effects,
            ..
        } = self.key(which);
        let id = found.cell.filter(|_| found.exists && *keeps_effects)?;
        let held = self.store.data.keys.cell(id).value().len();
        // The cell of a head is to become a plain one.
        let is_as_long =
            held == self.store.edited.of(which).len() && found.kind == ValueKind::Plain;
        (is_as_long && expiry_ms == found.expiry_ms).then_some(id)
    }
}

impl<P: Blocks, K: KeyNumbers> Change<'_, '_, P, K> {
    /// Gives the fields that were edited in cells their bytes back.
    #[cold]
    fn undo(&mut self) {
        let Store {
            data: Data { keys, .. },
            field_edits,
            ..
        } = &mut *self.store;
        for edit in FieldEdit::undone(field_edits) {
            let id = self.keys.as_ref()[edit.which()]
                .found
                .cell
                .expect("it exists");
            edit.undo(keys.value_mut(id));
        }
    }
}

impl<P: Blocks, K: KeyNumbers> Drop for Change<'_, '_, P, K> {
    #[inline(always)]
    fn drop(&mut self) {
        if !self.store.field_edits.is_empty() {
            self.undo();
        }
        self.store.edited.rest();
    }
}
