//! The keys of a shard in memory: the index of all of them, the cells of some, and the timers of
//! those that are armed, as one thing.
//!
//! What must hold:
//! - every cell has an index entry, and every index entry has a cell or a place in the log;
//! - the place in a cell or a cold index entry is that of the key's newest part;
//! - an armed key has a timer, in memory or not.

use crate::format::extension::EffectsArea;
use crate::format::record::{KindedValue, OfParts, PartKind, PartView, ValueKind, part_bytes};
use crate::if_planted;
use crate::memory::cache::cell::{Cell, Changed, SMALL_BYTES_MAX, is_same_key};
use crate::memory::cache::cells::{Cache, ValuePlace};
use crate::memory::index::entry::{Candidate, CellId, Home, Position, is_token_hash};
use crate::memory::index::table::Index;
use crate::memory::pinned::Pinned;
use crate::memory::timers::{Timer, Timers};
use crate::planted::{self, Bug, is_planted};
use crate::types::key_home::KeyHome;
use crate::types::packed_place::{NewestPart, PackedPlace};
use crate::types::place::{Lsn, Place};
use crate::types::version::Version;
use std::ops::Range;
use std::sync::Arc;

/// What is known of a key without a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// In memory (perhaps as a deletion that is not durable yet).
    Cached(CellId),
    /// Not in the store.
    Absent,
    /// An entry with the same hash is on disk only: the caller reads this place, admits what stands
    /// there and looks the key up again.
    Cold(Place),
}

/// What stands where a timer points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimedKey {
    /// The armed key with this expiry.
    Armed(CellId),
    /// This must be read first to know.
    Cold(Place),
    /// No such key: the timer is out of date.
    Gone,
}

/// Keys whose cells are prefetched at a time: about as many loads as a processor has in flight.
pub const PREFETCH_KEYS_MAX: usize = 16;

/// How far the hands of the cache move in one turn, at most.
const EVICTION_STEPS_MAX: usize = 8192;

/// Index, value cache and timers of a shard.
///
/// What is open to other crates finds keys and reads cells. A cell that is inserted, marked as
/// deleted or given a value is to be committed by the store before anything else runs.
#[derive(Debug)]
pub struct Keys {
    index: Index,
    cache: Cache,
    timers: Timers,
    /// The log has had a head since it was begun, as far as this is known.
    has_heads: bool,
}

impl Keys {
    /// No key, and room for about `cache_bytes` of cells.
    pub(crate) fn new(cache_bytes: usize) -> Self {
        Keys {
            index: Index::new(),
            cache: Cache::new(cache_bytes),
            timers: Timers::default(),
            has_heads: false,
        }
    }

    /// Whether a head of members was ever met: no build that knows none may pass over it.
    #[inline]
    #[must_use]
    pub fn has_heads(&self) -> bool {
        self.has_heads
    }

    /// A value of this kind is in the log.
    #[inline]
    pub(crate) fn note_kind(&mut self, kind: ValueKind) {
        self.has_heads |= kind == ValueKind::Head;
    }

    /// The entries of all keys.
    #[inline]
    pub(crate) fn entries(&self) -> &Index {
        &self.index
    }

    /// The cells of cached keys.
    #[inline]
    pub(crate) fn cells(&self) -> &Cache {
        &self.cache
    }

    /// When armed keys expire.
    #[inline]
    #[must_use]
    pub fn timers(&self) -> &Timers {
        &self.timers
    }

    /// A cached key.
    #[inline]
    #[must_use]
    pub fn cell(&self, id: CellId) -> Cell<'_> {
        self.cache.cell(id)
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

    /// The value as a part of a block that replies may hold, as [`Cache::shared_value`].
    #[must_use]
    pub fn shared_value(&self, id: CellId) -> Option<(&Arc<[u8]>, Range<usize>)> {
        self.cache.shared_value(id)
    }

    /// Tokens in the index, expired ones included.
    #[inline]
    #[must_use]
    pub fn tokens(&self) -> usize {
        self.index.tokens()
    }

    /// Whether a cell is that of `key`.
    #[inline(always)]
    pub(crate) fn is_at(&self, id: CellId, key: &[u8]) -> bool {
        is_same_key(self.cache.cell(id).key(), key)
    }

    /// Looks `key` of `slot` up; `hash` is its hash with the shard's seed.
    #[inline(always)]
    #[must_use]
    pub fn find(&self, slot: u16, hash: u32, key: &[u8]) -> Found {
        let mut cold = None;
        for candidate in self.index.candidates(slot, hash) {
            match candidate.home {
                Home::Memory(id) if is_same_key(self.cache.cell(id).key(), key) => {
                    return Found::Cached(id);
                }
                Home::Memory(_) => {}
                Home::Disk(packed) => cold = cold.or_else(|| packed.place()),
            }
        }
        cold.map_or(Found::Absent, Found::Cold)
    }

    /// Loads what look-ups of these slots and hashes will need, all of them at the same time: each
    /// stage's loads do not depend on one another, so the processor overlaps their cache misses.
    /// Changes nothing.
    #[inline]
    pub fn prefetch(&self, keys: &[KeyHome]) {
        let mut cells = [None; PREFETCH_KEYS_MAX];
        for (cell, &KeyHome { slot, hash }) in cells.iter_mut().zip(keys) {
            *cell = self.index.likely_cell(slot, hash);
        }
        self.load_cells(&cells);
    }

    /// As [`Keys::prefetch`], for keys that are seldom in the processor's cache: so it pays to look
    /// for the entries that are not at their home. Returns the cell that each key is in, or that it
    /// is in none if no other key has its slot and hash.
    #[inline]
    #[must_use]
    pub fn only_cells(&self, keys: &[KeyHome]) -> [Option<CellId>; PREFETCH_KEYS_MAX] {
        let homes = keys
            .iter()
            .map(|&KeyHome { slot, hash }| self.index.load(slot, hash));
        std::hint::black_box(homes.fold(0, u32::wrapping_add));
        let mut cells = [None; PREFETCH_KEYS_MAX];
        for (cell, &KeyHome { slot, hash }) in cells.iter_mut().zip(keys) {
            *cell = self.index.only_cell(slot, hash);
        }
        self.load_cells(&cells);
        cells
    }

    #[inline]
    fn load_cells(&self, cells: &[Option<CellId>; PREFETCH_KEYS_MAX]) {
        let (mut loaded, mut large) = (0usize, false);
        for id in cells.iter().copied().flatten() {
            loaded ^= self.cache.load(id);
            large |= Cache::is_large(id);
        }
        std::hint::black_box(loaded);
        if large {
            let cells = cells.iter().copied().flatten();
            std::hint::black_box(cells.map(|id| self.cache.load_bytes(id)).sum::<usize>());
        }
    }

    /// Visits where the newest parts of keys stand, from `from` on in the order of slots and
    /// hashes, at least `entries` of them unless they end before. Returns where to go on, or `None`
    /// at the end. A deletion is no entry: it is durable and about to leave, or a replay finds it.
    pub fn newest_parts(
        &self,
        from: KeyHome,
        entries: usize,
        visit: &mut impl FnMut(NewestPart),
    ) -> Option<KeyHome> {
        assert!(!self.is_clearing(), "tokens stand where no walk comes");
        self.index.walk(from, entries, &mut |key, found| {
            if_planted!(
                Bug::TokenForgottenBySnapshot,
                is_token_hash(key.hash),
                return
            );
            let part = match found.home {
                Home::Disk(part) => part,
                Home::Memory(id) => {
                    let cell = self.cache.cell(id);
                    if cell.is_deleted() || cell.place() == PackedPlace::default() {
                        return;
                    }
                    cell.place()
                }
            };
            visit(NewestPart { key, part });
        })
    }

    /// Visits the keys that have the first slot and hash from `from` on, in the order of both,
    /// without touching them. Returns where the next ones stand, or `None` at the end. A key that
    /// is there from the first step to the last is visited.
    pub fn keys_from(
        &self,
        from: KeyHome,
        visit: &mut impl FnMut(KeyHome, Home),
    ) -> Option<KeyHome> {
        self.index
            .walk(from, 1, &mut |at, candidate| visit(at, candidate.home))
    }

    /// Visits the keys that have the next slots and hashes from `from` on up to slot `last`, about
    /// `entries` of them. Where to go on, or `None` behind the last slot.
    pub fn homes_from(
        &self,
        from: KeyHome,
        last: u16,
        entries: usize,
        visit: &mut impl FnMut(KeyHome, Home),
    ) -> Option<KeyHome> {
        let next = self.index.walk(from, entries, &mut |at, candidate| {
            if at.slot <= last {
                visit(at, candidate.home);
            }
        });
        next.filter(|next| next.slot <= last)
    }

    /// The places that must be read and admitted for these slots and hashes all at once, before a
    /// record with these keys of one slot can be applied.
    pub fn cold_of<'k>(
        &self,
        slot: u16,
        keys: impl IntoIterator<Item = &'k [u8]>,
        hash_of: &impl Fn(&[u8]) -> u32,
    ) -> Vec<(KeyHome, Place)> {
        let mut cold = Vec::new();
        for key in keys {
            let hash = hash_of(key);
            let home = KeyHome { slot, hash };
            if let Found::Cold(_) = self.find(home.slot, home.hash, key) {
                let places = self.index.candidates(home.slot, home.hash);
                let places = places.filter_map(|candidate| match candidate.home {
                    Home::Disk(packed) => packed.place(),
                    Home::Memory(_) => None,
                });
                for place in places {
                    if !cold.contains(&(home, place)) {
                        cold.push((home, place));
                    }
                }
            }
        }
        cold
    }

    /// Whether the key of this part is swept, with this version, and that is not durable yet. Until
    /// then the index has the key as deleted, so a store that applies the part would leave the
    /// value out. `hash` is that of the key.
    #[must_use]
    pub fn is_sweeping(&self, part: &PartView<'_>, hash: u32) -> bool {
        let brings_value = part.kind() == PartKind::Put && !part.is_superseded();
        brings_value
            && match self.find(part.slot(), hash, part.key()) {
                Found::Cached(id) => {
                    self.cell(id).is_deleted() && self.version(id) == part.version()
                }
                Found::Absent | Found::Cold(_) => false,
            }
    }

    /// What runs when a cached key expires, as an item of APPLY.
    #[must_use]
    pub fn effects(&self, id: CellId) -> Option<&[u8]> {
        let area = self.cache.effects(id)?;
        Some(area.effects())
    }

    /// What a timer points to.
    #[must_use]
    pub fn at_timer(&self, timer: Timer) -> TimedKey {
        let mut cold = None;
        for candidate in self.index.candidates(timer.slot, timer.hash) {
            match candidate.home {
                Home::Memory(id) => {
                    let is_it = self.cell(id).expiry_ms() == Some(timer.expiry_ms)
                        && self.cache.effects(id).is_some();
                    if is_it {
                        return TimedKey::Armed(id);
                    }
                }
                Home::Disk(packed) => cold = cold.or(packed.place()),
            }
        }
        cold.map_or(TimedKey::Gone, TimedKey::Cold)
    }

    /// Bytes that the part of a cached key takes in a record.
    #[must_use]
    pub fn part_bytes_of(&self, id: CellId) -> usize {
        let cell = self.cell(id);
        let expires = cell.expiry_ms().is_some();
        let effects_bytes = self.effects_bytes(id);
        part_bytes(cell.key().len(), cell.value().len(), expires, effects_bytes)
    }

    /// The same, but at least as many bytes, by the number of the cell alone.
    #[inline]
    #[must_use]
    pub fn part_bytes_max_of(&self, id: CellId) -> usize {
        match Cache::is_large(id) || self.cache.has_armed() {
            true => self.part_bytes_of(id),
            // Key and value are in the cell. Each is filled to a multiple of eight bytes.
            false => part_bytes(0, SMALL_BYTES_MAX, true, 0) + 2 * 8,
        }
    }

    /// Bytes that a part of a cached key has of what runs when it expires.
    #[inline]
    pub(crate) fn effects_bytes(&self, id: CellId) -> usize {
        let area = self.cache.effects(id);
        area.map_or(0, |area| area.bytes().len())
    }

    /// Where the newest part of a key stands, if it was logged.
    pub(crate) fn place_of(&self, home: Home) -> Option<Place> {
        match home {
            Home::Memory(id) => self.cache.cell(id).place().place(),
            Home::Disk(packed) => packed.place(),
        }
    }

    /// Whether the newest part of a key of this slot and hash stands there.
    pub(crate) fn stands_at(&self, KeyHome { slot, hash }: KeyHome, place: Place) -> bool {
        self.pointer_to(slot, hash, place).is_some()
    }

    /// The entry of this slot and hash whose newest part stands there.
    pub(crate) fn pointer_to(&self, slot: u16, hash: u32, place: Place) -> Option<Candidate> {
        let mut candidates = self.index.candidates(slot, hash);
        candidates.find(|candidate| self.place_of(candidate.home) == Some(place))
    }

    /// Adds a cell for a key of this slot and hash, which has no entry. It must be committed or
    /// discarded before anything else runs.
    pub fn insert(
        &mut self,
        KeyHome { slot, hash }: KeyHome,
        key: &[u8],
        value: KindedValue<'_>,
        expiry_ms: Option<u64>,
    ) -> CellId {
        self.note_kind(value.kind);
        let cell = self.cache.insert(key, value, expiry_ms);
        self.index.insert(slot, hash, cell);
        cell
    }

    /// The extension areas of the parts of cached keys: what runs when they expire.
    #[cold]
    pub(crate) fn areas_of(&self, cells: &[(u32, CellId)]) -> OfParts<&[u8]> {
        let mut areas = OfParts::of(&[][..], cells.len());
        for (area, &(_, id)) in areas.iter_mut().zip(cells) {
            *area = self.cache.effects(id).map_or(&[], EffectsArea::bytes);
        }
        areas
    }

    /// Adds an entry for a key that stands on disk only.
    pub(crate) fn insert_cold(&mut self, slot: u16, hash: u32, part: PackedPlace) {
        self.index.insert_cold(slot, hash, part);
    }

    /// Adds entries of a slot without any, in the order of their hashes.
    pub(crate) fn insert_sorted(&mut self, slot: u16, entries: &[(u32, PackedPlace)]) {
        self.index.insert_sorted(slot, entries.iter().copied());
    }

    /// Adds a cell for the key of a cold entry, whose part was read and is durable.
    pub(crate) fn admit(
        &mut self,
        (position, home): (Position, KeyHome),
        packed: PackedPlace,
        part: &PartView<'_>,
        version: Version,
    ) {
        let expiry_ms = part.expiry_ms();
        let plain = KindedValue::plain(part.value());
        let value = planted::or(Bug::MembersColdPlain, plain, part.kinded_value());
        self.note_kind(value.kind);
        let id = self.cache.insert(part.key(), value, expiry_ms);
        self.cache.set_change(id, version, packed, None);
        self.index.set_cell(position, id);
        if let Some(effects) = part.effects() {
            self.arm(home, id, EffectsArea::new(effects));
        }
    }

    /// Has this run when a cached key of this slot and hash expires, which has an expiry.
    pub(crate) fn arm(&mut self, home: KeyHome, id: CellId, area: EffectsArea) {
        self.forget_timer(home, id);
        self.cache.arm(id, area);
        let expiry_ms = self.cache.cell(id).expiry_ms().expect("it expires");
        self.expects(home, expiry_ms);
    }

    /// Takes out what runs when a cached key of this slot and hash expires, and its timer.
    #[inline]
    pub(crate) fn disarm(&mut self, home: KeyHome, id: CellId) -> Option<EffectsArea> {
        self.cache.effects(id)?;
        self.forget_timer(home, id);
        self.cache.disarm(id)
    }

    /// An armed key of this slot and hash may expire then.
    pub(crate) fn expects(&mut self, KeyHome { slot, hash }: KeyHome, expiry_ms: u64) {
        self.timers.insert(Timer {
            expiry_ms,
            slot,
            hash,
        });
    }

    /// Takes a timer out that points to no key, or whose time has come.
    pub fn drop_timer(&mut self, timer: Timer) {
        self.timers.remove(timer);
    }

    /// Takes the timer of a cached key out, if it is armed. Another key of its hash may have the
    /// same one: then it stays.
    #[inline]
    fn forget_timer(&mut self, KeyHome { slot, hash }: KeyHome, id: CellId) {
        if self.cache.effects(id).is_some()
            && let Some(expiry_ms) = self.cache.cell(id).expiry_ms()
            && !self.index.is_crowded(slot, hash)
        {
            self.timers.remove(Timer {
                expiry_ms,
                slot,
                hash,
            });
        }
    }

    /// Removes the key of an entry.
    pub(crate) fn remove(&mut self, position: Position, home: Home) {
        self.index.remove(position);
        if let Home::Memory(id) = home {
            self.cache.remove(id);
        }
    }

    /// Takes all keys of a partition away at once, but for tokens and the key that stays. No
    /// look-up finds them any more; [`Keys::clear`] gives back what they hold.
    ///
    /// # Panics
    /// If keys of the partition that were taken away before are not cleared.
    pub(crate) fn fall(&mut self, partition: usize, stay: &[(KeyHome, &[u8])]) {
        let mut found = Vec::new();
        for &(home, key) in stay {
            if let Some(candidate) = self.own_key(home, key) {
                self.index.remove(candidate.position);
                found.push((home, candidate.home));
            }
        }
        self.index.fall(partition);
        for (home, found) in found {
            match found {
                Home::Memory(id) => self.index.insert(home.slot, home.hash, id),
                Home::Disk(packed) => self.index.insert_cold(home.slot, home.hash, packed),
            }
        }
    }

    /// Where the index has a key of the store's own. What is cold is known by its hash alone: that
    /// another key of the slot has the same hash of 32 bits is taken for impossible.
    pub(crate) fn own_key(&self, home: KeyHome, key: &[u8]) -> Option<Candidate> {
        let mut found = self.index.candidates(home.slot, home.hash);
        found.find(|candidate| match candidate.home {
            Home::Memory(id) => self.is_at(id, key),
            Home::Disk(_) => true,
        })
    }

    /// Has the entries of a partition that were taken away cleared before those of others.
    pub(crate) fn hasten(&mut self, partition: usize) {
        self.index.hasten(partition);
    }

    /// Gives back what keys hold that were taken away, about so many of them, and tells where their
    /// newest parts stand. Whether more are left.
    pub(crate) fn clear(&mut self, keys_max: usize, mut lost: impl FnMut(Place)) -> bool {
        let Keys {
            index,
            cache,
            timers,
            ..
        } = self;
        let mut timed = Vec::new();
        let goes_on = index.clear(keys_max, &mut |KeyHome { slot, hash }, home| {
            let packed = match home {
                Home::Disk(packed) => packed,
                Home::Memory(id) => {
                    let cell = cache.cell(id);
                    if let (Some(expiry_ms), Some(_)) = (cell.expiry_ms(), cache.effects(id)) {
                        timed.push(Timer {
                            expiry_ms,
                            slot,
                            hash,
                        });
                    }
                    let packed = cell.place();
                    cache.remove(id);
                    packed
                }
            };
            if let Some(place) = packed.place() {
                lost(place);
            }
        });
        for timer in timed {
            // The key may be there again, with the same expiry: then it stays.
            if index.candidates(timer.slot, timer.hash).next().is_none() {
                timers.remove(timer);
            }
        }
        goes_on
    }

    /// Whether keys that were taken away are to be cleared.
    #[inline]
    #[must_use]
    pub fn is_clearing(&self) -> bool {
        self.index.is_clearing()
    }

    /// Takes back a [`Keys::insert`] of this slot and hash that is not to be committed.
    ///
    /// # Panics
    /// If the key was logged.
    pub fn discard(&mut self, KeyHome { slot, hash }: KeyHome, id: CellId) {
        assert!(
            self.cell(id).place() == PackedPlace::default(),
            "only a key that was never logged is discarded"
        );
        self.index.remove(self.index.position_of(slot, hash, id));
        self.cache.remove(id);
    }

    /// The value of a cached key, to be edited in place.
    #[inline]
    pub(crate) fn value_mut(&mut self, id: CellId) -> &mut [u8] {
        self.cache.value_mut(id)
    }

    /// Where the value of a cached key stands, as [`Cache::value_place`].
    pub(crate) fn value_place(&self, id: CellId) -> Option<ValuePlace> {
        self.cache.value_place(id)
    }

    /// The value that stands there, to be edited in place.
    #[inline]
    pub(crate) fn value_at(&mut self, place: &ValuePlace) -> &mut [u8] {
        self.cache.value_at(place)
    }

    /// Gives a cached key of this slot and hash another value and expiry, and disarms it. It may
    /// have another cell then, which is the answer.
    #[inline]
    pub fn set_value(
        &mut self,
        home: KeyHome,
        id: CellId,
        value: KindedValue<'_>,
        expiry_ms: Option<u64>,
    ) -> CellId {
        self.forget_timer(home, id);
        self.note_kind(value.kind);
        let now = self.cache.set_value(id, value, expiry_ms);
        if now != id {
            self.moved(home, id, now);
        }
        now
    }

    /// As [`Keys::set_value`], and the key stays armed if it is and has an expiry.
    pub(crate) fn set_value_of_armed(
        &mut self,
        home: KeyHome,
        id: CellId,
        value: KindedValue<'_>,
        expiry_ms: Option<u64>,
    ) -> CellId {
        let kept = self.disarm(home, id);
        let now = self.set_value(home, id, value, expiry_ms);
        if let Some(area) = kept.filter(|_| expiry_ms.is_some()) {
            self.arm(home, now, area);
        }
        now
    }

    /// As [`Cache::direct_set`].
    #[inline(always)]
    pub(crate) fn direct_set(
        &mut self,
        id: CellId,
        key_and_value: (&[u8], &[u8]),
        version: Version,
        append: impl FnOnce() -> Option<(Lsn, PackedPlace)>,
    ) -> Option<PackedPlace> {
        self.cache.direct_set(id, key_and_value, version, append)
    }

    /// As [`Keys::set_value`] of the key of an entry.
    pub(crate) fn set_value_at(
        &mut self,
        (position, home): (Position, KeyHome),
        id: CellId,
        value: KindedValue<'_>,
        expiry_ms: Option<u64>,
    ) -> CellId {
        self.forget_timer(home, id);
        self.note_kind(value.kind);
        let now = self.cache.set_value(id, value, expiry_ms);
        if now != id {
            self.index.set_cell(position, now);
        }
        now
    }

    /// Gives a cached key that exists another expiry. If it is armed it stays so, unless it expires
    /// no more. It may have another cell then, which is the answer.
    pub(crate) fn set_expiry(
        &mut self,
        home: KeyHome,
        id: CellId,
        expiry_ms: Option<u64>,
    ) -> CellId {
        if self.cache.effects(id).is_some() {
            self.forget_timer(home, id);
            if let Some(expiry_ms) = expiry_ms {
                self.expects(home, expiry_ms);
            }
        }
        let now = self.cache.set_expiry(id, expiry_ms);
        if now != id {
            self.moved(home, id, now);
        }
        now
    }

    /// Marks a cached key of this slot and hash as deleted.
    pub fn mark_deleted(&mut self, home: KeyHome, id: CellId) {
        self.forget_timer(home, id);
        self.cache.mark_deleted(id);
    }

    /// A cached key has this version now, whose part stands at `packed`, and is durable with `lsn`
    /// if one is given. Returns what it was before.
    #[inline]
    pub(crate) fn set_change(
        &mut self,
        id: CellId,
        version: Version,
        packed: PackedPlace,
        lsn: Option<Lsn>,
    ) -> Changed {
        self.cache.set_change(id, version, packed, lsn)
    }

    /// The newest part of a key stands at `packed` now.
    pub(crate) fn point_to(&mut self, position: Position, home: Home, packed: PackedPlace) {
        match home {
            Home::Memory(id) => self.cache.set_place(id, packed),
            Home::Disk(_) => self.index.set_cold(position, packed),
        }
    }

    /// Notes that a cached key was read.
    #[inline]
    pub fn touch(&mut self, id: CellId) {
        self.cache.touch(id);
    }

    /// Takes back that a cached key was used.
    pub(crate) fn forget_use_of(&mut self, id: CellId) {
        self.cache.forget_use(id);
    }

    /// Takes back that the keys of this slot and hash were used, if they have come lately: the
    /// operation that a key is read for is no sign that there will be another.
    pub fn forget_use(&mut self, KeyHome { slot, hash }: KeyHome) {
        for candidate in self.index.candidates(slot, hash) {
            if let Home::Memory(id) = candidate.home {
                self.cache.forget_use(id);
            }
        }
    }

    /// Cells that come have this epoch, most of them.
    pub(crate) fn set_epoch(&mut self, epoch: u32) {
        self.cache.set_epoch(epoch);
    }

    /// Cells take no more bytes than these from now on.
    pub(crate) fn set_budget(&mut self, budget_bytes: usize) {
        self.cache.set_budget(budget_bytes);
    }

    /// Lets cells leave, but for the cells of pinned keys, until the cache is within its budget.
    /// Takes at most one round of the hand.
    pub(crate) fn evict(
        &mut self,
        (durable, time_ms): (Lsn, u64),
        pinned: &Pinned,
        home_of: &impl Fn(&[u8]) -> KeyHome,
    ) {
        let Keys { index, cache, .. } = self;
        if !cache.is_over_budget() {
            return;
        }
        let mut steps = EVICTION_STEPS_MAX.min(cache.round());
        while cache.is_over_budget()
            && let Some(id) = cache.victim(durable, time_ms, &mut steps)
        {
            let cell = cache.cell(id);
            let KeyHome { slot, hash } = home_of(cell.key());
            if pinned.has(KeyHome { slot, hash }) {
                continue;
            }
            index.set_cold(index.position_of(slot, hash, id), cell.place());
            cache.remove(id);
        }
    }

    /// Lets the cache empty pages where it holds too many of a kind.
    pub(crate) fn tidy(
        &mut self,
        durable: Lsn,
        held_bytes_max: usize,
        pinned: &Pinned,
        home_of: &impl Fn(&[u8]) -> KeyHome,
    ) {
        let Keys { index, cache, .. } = self;
        cache.settle(durable, held_bytes_max, |cache, from, to| {
            let cell = cache.cell(to.unwrap_or(from));
            let home = home_of(cell.key());
            match to {
                Some(to) => index.set_cell(index.position_of(home.slot, home.hash, from), to),
                None if pinned.has(home) => return false,
                None => index.set_cold(index.position_of(home.slot, home.hash, from), cell.place()),
            }
            true
        });
    }

    /// A key has another cell now.
    fn moved(&mut self, KeyHome { slot, hash }: KeyHome, from: CellId, to: CellId) {
        self.index
            .set_cell(self.index.position_of(slot, hash, from), to);
    }
}
