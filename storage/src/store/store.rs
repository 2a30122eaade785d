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

use crate::memory::keys::Found;
use crate::memory::keys::Keys;
use crate::store::loaded::Loaded;
use crate::types::version::Epochs;
use crate::types::version::PARTITIONS;
use crate::types::version::Sequences;
use crate::types::version::Version;
use crate::types::version::partition_of;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use crate::format::record::{PARTS_MAX, PartKind, PartSpec, PartView, RecordSpec, part_bytes};
use crate::log::log::{Log, Purpose, Room};
use crate::memory::budget::{Bounds, Budget};
use crate::memory::cache::Cell;
use crate::memory::index::{CellId, Home};
use crate::planted::{Bug, is_planted};
use crate::store::cleaning::cleaning::Cleaner;
use crate::store::cleaning::expiring::Expires;
use crate::store::cleaning::live::Live;
use crate::store::clock::Clock;
use crate::store::inheritance::Inheritance;
use crate::store::keyspace::{self, Keyspaces, Record, Rule, SETTINGS_BYTES};
use crate::store::local::LocalRecords;
use crate::store::scrub::Scrub;
use crate::store::versions::{KeptVersion, KeyId, VersionEntry, Versions};
use crate::types::io::{BLOCK_BYTES, Blocks, Io, IoToken};
use crate::types::packed_place::NewestPart;
use crate::types::packed_place::{Cursor, PackedPlace};
use crate::types::place::{Lsn, Place};

/// A point in the history of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// Unix milliseconds.
    TimeMs(u64),
    /// The newest version that is not newer than this.
    Version(Version),
}

/// What is known of a key as it was, without a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WasAt {
    /// It had this version. If that is superseded, its part is to be read.
    Version(KeptVersion),
    /// It was not there.
    Missing,
    /// That is not kept; the oldest version that is, if there is one.
    NotKept(Option<KeptVersion>),
}

/// What is kept of a key.
enum Past {
    /// The newest version, which was there when versions began to be kept, and nothing before it.
    Newest(KeptVersion),
    /// The entries of the key from this one on.
    Entries(KeyId, Option<KeptVersion>),
}

/// Why a part that was read is not the one that the index asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdmitError {
    /// The bytes are not a valid part, or the part of another key or version.
    Corrupt,
}

/// The data of one shard.
pub struct Store<P: Blocks> {
    log: Log<P>,
    blocks: P,
    pub(crate) keys: Keys,
    budget: Budget,
    /// What the budget says in this turn.
    bounds: Bounds,
    pub(crate) live: Live,
    pub(crate) cleaner: Cleaner<P::Block>,
    pub(crate) scrub: Scrub,
    pub(crate) inheritance: Inheritance,
    pub(crate) locals: LocalRecords,
    pub(crate) keyspaces: Keyspaces,
    pub(crate) versions: Versions,
    /// With which it was opened.
    epoch: u32,
    /// With which each partition is written.
    epochs: Box<Epochs>,
    sequences: Box<Sequences>,
    clock: Clock,
    /// The newest time that the log carried when it was opened.
    found_ms: u64,
    /// Deletions in log order, by slot, hash and version, that leave the index once they are durable.
    deletions: VecDeque<(Lsn, u16, u32, Version)>,
    places: [Place; PARTS_MAX],
    /// The slot and hash of a key that does not leave the cache.
    kept: Option<(u16, u32)>,
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
            budget: loaded.budget,
            bounds: Bounds::default(),
            live: loaded.live,
            cleaner: Cleaner::new(),
            scrub: Scrub::default(),
            inheritance: Inheritance::default(),
            locals: loaded.locals,
            keyspaces: loaded.keyspaces,
            versions: loaded.versions,
            epoch,
            epochs: Box::new([epoch; PARTITIONS]),
            sequences: Box::new(sequences),
            clock: Clock::new(loaded.time_ms),
            found_ms: loaded.time_ms,
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

    /// What the wall clock showed a moment ago, whatever the store makes of it.
    #[must_use]
    pub fn wall_ms(&self) -> u64 {
        self.clock.wall_ms()
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

    /// The epoch with which this store was opened: it writes with it wherever it does not
    /// [`Store::lead`] in another.
    #[must_use]
    pub fn epoch(&self) -> u32 {
        self.epoch
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
        let (cell, version, lsn) = self.keys.cells().look(id);
        let expiry_ms = cell.expiry_ms();
        let exists = !cell.is_deleted() && !self.is_expired(expiry_ms);
        (exists, expiry_ms, version, lsn)
    }

    /// The newest time that the log carries, in unix milliseconds.
    #[must_use]
    pub fn carried_ms(&self) -> u64 {
        self.found_ms.max(self.log.time_ms())
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

    /// Logs the newest settings of `prefix` for the partition of `slot`, under a key of that slot made
    /// by [`keyspace::keyspace_key`]. They are in force there at once. [`Store::room`] for the key and
    /// [`SETTINGS_BYTES`] must have said yes.
    pub fn commit_settings(&mut self, now_us: u64, slot: u16, key: &[u8], prefix: &[u8]) -> Lsn {
        let version = self.next_version(slot);
        let time_ms = self.time_ms();
        let value: [u8; SETTINGS_BYTES] = self.keyspaces.to_log(prefix, partition_of(slot));
        let part = PartSpec {
            kind: PartKind::Put,
            key,
            value: &value,
            expiry_ms: None,
            layout: 0,
            is_crowded: false,
        };
        let record = RecordSpec {
            slot,
            epoch: version.epoch,
            sequence: version.sequence,
            time_ms,
            parts: &[part],
            extension: &[],
        };
        let lsn = self.log.append(now_us, &record, &mut self.places);
        self.cleaner.must_look = true;
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

    fn next_version(&mut self, slot: u16) -> Version {
        let partition = partition_of(slot);
        let sequence = &mut self.sequences[partition];
        *sequence += 1;
        Version {
            epoch: self.epochs[partition],
            sequence: *sequence,
        }
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

    /// Loads what look-ups of these slots and hashes will need, all of them at the same time: each stage's
    /// loads do not depend on one another, so the processor overlaps their cache misses. Changes
    /// nothing.
    #[inline]
    pub fn look_ahead(&self, keys: &[(u16, u32)]) {
        self.keys.load_likely(keys);
    }

    /// A cached key.
    #[inline]
    #[must_use]
    pub fn cell(&self, id: CellId) -> Cell<'_> {
        self.keys.cell(id)
    }

    /// The value of a cached key, to be edited in place before a commit.
    #[inline]
    pub fn value_mut(&mut self, id: CellId) -> &mut [u8] {
        self.keys.value_mut(id)
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

    /// Takes back that the keys of this slot and hash were used, if they have come lately: the operation
    /// that a key is read for is no sign that there will be another.
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

    /// Bytes of memory that cells give way to: of the index, of kept versions, and of the times of segments.
    #[inline]
    fn fixed_bytes(&self) -> usize {
        self.keys.entries().memory_bytes() + self.versions.memory_bytes() + self.live.memory_bytes()
    }

    /// What stands beside the cells and gives way to nothing, what leads to them included.
    #[inline]
    fn rigid_bytes(&self) -> usize {
        self.fixed_bytes() + self.keys.cells().table_bytes()
    }

    /// Whether the index may grow for more keys. If not, nothing but deletions mends it.
    #[inline]
    #[must_use]
    pub fn has_room_for_keys(&self) -> bool {
        self.fixed_bytes() <= self.budget.index_bytes_max()
    }

    /// Whether the index may take a key of this slot and hash: it may grow, or need not.
    #[inline]
    #[must_use]
    pub fn has_room_for_key(&self, (slot, hash): (u16, u32)) -> bool {
        self.has_room_for_keys() || self.keys.entries().has_free_entry(slot, hash)
    }

    /// Whether a change of this key keeps one version more than it lets go: more memory, and more of the
    /// log that counts, whatever its length is.
    #[inline]
    #[must_use]
    pub fn adds_version(&self, slot: u16, hash: u32, key: &[u8]) -> bool {
        self.keyspaces.keeps_versions() && self.lengthens_history(slot, hash, key)
    }

    #[cold]
    fn lengthens_history(&self, slot: u16, hash: u32, key: &[u8]) -> bool {
        self.keyspaces.rule(slot, key).is_some_and(|rule| {
            let id = KeyId::new(slot, hash, key);
            rule.versions == 0 || !self.versions.has_more_than(id, usize::from(rule.versions))
        })
    }

    /// Whether so many cells are to leave that values must not grow before some have: in the next
    /// turns, or when more of the log is durable.
    #[inline]
    #[must_use]
    pub fn is_memory_short(&self) -> bool {
        self.keys.cells().used_bytes() > self.bounds.cells_in_a_turn
            || self.keys.cells().held_bytes() > self.bounds.held_in_a_turn
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
        self.keys.cells().is_over_budget() || self.keys.cells().held_bytes() > self.bounds.held
    }

    /// Whether more may leave in the next turns though nothing happens meanwhile.
    #[must_use]
    pub fn may_shrink(&self) -> bool {
        self.keys.cells().may_shrink()
    }

    /// Whether values of so many bytes may come from the disk, all those that are under way counted: what
    /// a turn brings stays within the budget. The first one may, whatever its length, once cells that
    /// are too many have left.
    #[inline]
    #[must_use]
    pub fn has_room_to_read(&self, bytes: usize) -> bool {
        // Room that is free in pages does not keep it back: it may be held by what waits for this read.
        self.keys.cells().used_bytes().saturating_add(bytes) <= self.bounds.cells_in_a_turn
    }

    /// Where deletions stand that have not left the index.
    pub(crate) fn deletions(&self) -> impl Iterator<Item = Lsn> {
        self.deletions.iter().map(|deletion| deletion.0)
    }

    pub(crate) fn epoch_of(&self, partition: usize) -> u32 {
        self.epochs[partition]
    }

    /// The next commit of a partition has this epoch and the sequence behind this one.
    pub(crate) fn set_position(&mut self, partition: usize, after: Version) {
        self.epochs[partition] = after.epoch;
        self.sequences[partition] = after.sequence;
    }

    /// The time is never before this one.
    pub(crate) fn carry_time(&mut self, time_ms: u64) {
        self.clock.carry(time_ms);
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
        self.keys.set_value(home, id, value, expiry_ms)
    }

    /// Gives a cached key that exists another expiry before a commit. It may have another cell then,
    /// which is the answer.
    pub fn set_expiry(&mut self, home: (u16, u32), id: CellId, expiry_ms: Option<u64>) -> CellId {
        self.keys.set_expiry(home, id, expiry_ms)
    }

    /// Marks a cached key as deleted before a commit.
    pub fn delete(&mut self, id: CellId) {
        self.keys.mark_deleted(id);
    }

    /// Logs the present contents of `cells`, keys of one `slot` with their hashes, as one record: all
    /// of them or none survive a crash. [`Store::room_for`] must have said yes.
    #[inline]
    pub fn commit(&mut self, now_us: u64, slot: u16, cells: &[(u32, CellId)]) -> (Lsn, Version) {
        let version = self.next_version(slot);
        let time_ms = self.time_ms();
        let record = |parts| RecordSpec {
            slot,
            epoch: version.epoch,
            sequence: version.sequence,
            time_ms,
            parts,
            extension: &[],
        };
        let (keys, keyspaces) = (&self.keys, &self.keyspaces);
        let part = |(hash, id)| {
            let cell = keys.cell(id);
            let layout = keyspaces.layout(slot, cell.key());
            part_of(cell, layout, keys.entries().is_crowded(slot, hash))
        };
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
        self.cleaner.must_look = true;
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
        let packed = match ordinal > 0 && is_planted(Bug::PlaceOfFirstKey) {
            true => self.keys.cell(id).place(),
            false => PackedPlace::new(place, version.sequence),
        };
        let changed = self.keys.set_change(id, version, packed, Some(lsn));
        if let Some(old) = changed.before.place() {
            self.live.loses(old);
        }
        // A deletion counts like a value until it is durable and its entry leaves.
        match changed.expires() {
            false => self.live.gains(place),
            true => self.gains_expiring(place, slot, id),
        }
        if changed.is_deleted() {
            self.deletions.push_back((lsn, slot, hash, version));
        }
    }

    #[cold]
    fn gains_expiring(&mut self, place: Place, slot: u16, id: CellId) {
        let cell = self.keys.cell(id);
        // The time of its record, or a later one.
        let time_ms = self.log.time_ms();
        let expires = expires(&self.keyspaces, slot, cell.key(), cell.expiry_ms(), time_ms);
        self.live.gains_until(place, expires);
    }

    /// Notes the versions that a commit wrote, before their cells tell of them. The parts that they
    /// supersede stay live.
    #[cold]
    pub(crate) fn keep_versions(
        &mut self,
        lsn: Lsn,
        version: Version,
        time_ms: u64,
        slot: u16,
        cells: impl Iterator<Item = (usize, (u32, CellId))>,
    ) {
        for (at, (hash, id)) in cells {
            let place = self.places[at];
            let cell = self.keys.cell(id);
            let Some(rule) = self.keyspaces.rule(slot, cell.key()) else {
                continue;
            };
            let key = KeyId::new(slot, hash, cell.key());
            let since = rule.since.version;
            if let Some(old) = cell.place().place() {
                let before = (self.keys.cells().version(id), old);
                let written = (slot, hash, before.0);
                let mut deletions = self.deletions.iter();
                let is_deletion = self.versions.supersede(key, rule.number, lsn, before, || {
                    deletions.any(|&(_, slot, hash, version)| (slot, hash, version) == written)
                });
                match is_deletion {
                    true => self.live.gains_tombstone(old),
                    // The commit is about to say that nothing needs it.
                    false => self.live.gains(old),
                }
            } else if self
                .versions
                .newest(key)
                .is_some_and(|newest| newest.version <= since)
                && !is_planted(Bug::BridgeGap)
            {
                // What was there when versions began to be kept has been deleted without a trace here: to older
                // ones, which may not be swept away yet, this one would seem to have followed. Each was
                // written once, so this is no more work than that was.
                let mut left = usize::MAX;
                let live = &mut self.live;
                self.versions
                    .remove_through(key, since.sequence, &mut left, |place| live.loses(place));
            }
            let kept = KeptVersion {
                version,
                is_deletion: cell.is_deleted(),
                time_ms,
                expiry_ms: cell.expiry_ms().unwrap_or(0),
                place,
                is_young: true,
                is_counted: false,
                is_marked: false,
            };
            self.versions.note(key, rule.number, lsn, &kept);
            let live = &mut self.live;
            self.versions
                .trim(key, rule, time_ms, |place| live.loses(place));
        }
    }

    /// What is known without a read of a key as it was then. `current` is its cell, if it has one.
    #[must_use]
    pub fn version_at(
        &self,
        (slot, hash): (u16, u32),
        key: &[u8],
        current: Option<CellId>,
        at: At,
    ) -> WasAt {
        let Some(rule) = self.keyspaces.rule(slot, key) else {
            return WasAt::NotKept(None);
        };
        let Some(past) = self.past_of((slot, hash), key, current, rule) else {
            return WasAt::NotKept(None);
        };
        let is_then = |version: &KeptVersion| match at {
            // What stood there when versions began to be kept has no time here.
            At::TimeMs(ms) => {
                let since_ms = match version.time_ms {
                    0 => rule.since.time_ms,
                    _ => 0,
                };
                version.time_ms.max(since_ms) <= ms
            }
            At::Version(at) => version.version <= at,
        };
        let (then, oldest, superseded) = match past {
            Past::Newest(newest) => (Some(newest).filter(is_then), Some(newest), 0),
            Past::Entries(_, None) => (None, None, 0),
            Past::Entries(id, Some(oldest)) => {
                let from = oldest.version.sequence;
                let mut then = self.versions.newest_where(id, from, is_then);
                if is_planted(Bug::VersionBefore) {
                    let before = then.map_or(0, |then| then.version.sequence);
                    then = self.versions.newer(id, from, before).next();
                    then = then.filter(|_| before > 0);
                }
                let entries = self.versions.newer(id, from, 0);
                let superseded = entries.skip(1).take(usize::from(rule.versions)).count();
                (then, Some(oldest), superseded)
            }
        };
        if let Some(then) = then {
            return WasAt::Version(then);
        }
        // Nothing older was let go if there are fewer than may be, and time let none go.
        let is_complete = (rule.versions == 0 || superseded < usize::from(rule.versions))
            && match at {
                At::TimeMs(ms) => ms >= rule.complete_from_ms(self.time_ms()),
                At::Version(at) => rule.retention_ms == 0 && at >= rule.since.version,
            };
        match is_complete {
            true => WasAt::Missing,
            false => WasAt::NotKept(oldest),
        }
    }

    /// The versions of a key that are kept and whose sequence is below `before` (0: all), the newest
    /// first. `None` if its keyspace keeps none.
    #[must_use]
    pub fn history(
        &self,
        (slot, hash): (u16, u32),
        key: &[u8],
        current: Option<CellId>,
        before: u64,
    ) -> Option<impl Iterator<Item = KeptVersion>> {
        let rule = self.keyspaces.rule(slot, key)?;
        let (newest, entries) = match self.past_of((slot, hash), key, current, rule)? {
            Past::Newest(newest) => (Some(newest), None),
            Past::Entries(id, oldest) => (None, oldest.map(|oldest| (id, oldest))),
        };
        let entries =
            entries.map(|(id, oldest)| self.versions.newer(id, oldest.version.sequence, before));
        let newest = newest.filter(|it| before == 0 || it.version.sequence < before);
        Some(newest.into_iter().chain(entries.into_iter().flatten()))
    }

    /// `None` if another key with the same hash has entries here, or took those of this one along.
    fn past_of(
        &self,
        (slot, hash): (u16, u32),
        key: &[u8],
        current: Option<CellId>,
        rule: Rule,
    ) -> Option<Past> {
        let id = KeyId::new(slot, hash, key);
        let newest = self.versions.newest(id);
        match (current, newest) {
            (Some(id), newest) => {
                let (cell, version) = (self.keys.cell(id), self.keys.cells().version(id));
                if newest.is_some_and(|newest| newest.version > version) {
                    return None;
                }
                let lacks_entry = newest.is_none_or(|newest| newest.version < version);
                let is_older = version <= rule.since.version;
                if lacks_entry && !is_older && !cell.is_deleted() {
                    // It had an entry, which left with those of a key of the same hash.
                    return None;
                }
                // Nothing before it is kept then. A deletion leaves with the last that it ended.
                if lacks_entry
                    && is_older
                    && let Some(place) = cell.place().place()
                {
                    return Some(Past::Newest(KeptVersion {
                        version,
                        is_deletion: cell.is_deleted(),
                        time_ms: 0,
                        expiry_ms: cell.expiry_ms().unwrap_or(0),
                        place,
                        is_young: self.keys.cells().lsn(id) > self.log.durable(),
                        is_counted: false,
                        is_marked: false,
                    }));
                }
            }
            // It was deleted while no versions were kept.
            (None, Some(newest)) if !newest.is_deletion => return None,
            (None, _) => {}
        }
        let oldest = self.versions.oldest_kept(id, rule, self.time_ms());
        Some(Past::Entries(id, oldest))
    }

    /// Takes note that more of the log is durable, for those who wait for a version to be in a file.
    pub fn settle_young(&mut self) {
        self.versions.settle(self.log.durable());
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
        while let Some(&(lsn, slot, hash, version)) = self.deletions.front()
            && is_over(lsn)
        {
            // A key that was set again since lives on; a later deletion has its own entry here. None
            // that is durable may stay: cleaning would take it for something newer than itself.
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
                if let Some(place) = self.keys.cell(id).place().place() {
                    self.live.loses(place);
                    self.live.gains_tombstone(place);
                }
                self.keys.remove(position, Home::Memory(id));
            }
            self.deletions.pop_front();
        }
        let may_leave = match is_planted(Bug::EvictUnflushed) {
            true => self.log.appended(),
            false => durable,
        };
        let rigid = self.rigid_bytes();
        self.bounds = self.budget.bounds(rigid);
        self.keys.set_budget(self.budget.cells(rigid));
        let kept = self.kept;
        let time_ms = self.time_ms();
        self.keys.evict((may_leave, time_ms), kept, home_of);
        self.keys.tidy(durable, self.bounds.held, kept, home_of);
        if !self.versions.is_empty() {
            self.settle_versions(durable);
        }
    }

    #[cold]
    fn settle_versions(&mut self, durable: Lsn) {
        self.versions.settle(durable);
        let now_ms = self.time_ms();
        let (keys, live) = (&self.keys, &mut self.live);
        self.versions.sweep(
            &self.keyspaces,
            now_ms,
            |id, place| keys.stands_at((id.slot(), id.hash()), place),
            |place| live.loses(place),
        );
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
        let current = self
            .keys
            .entries()
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
        let version = Version {
            epoch: match is_planted(Bug::AdmitWithOwnEpoch) {
                true => self.epochs[partition_of(slot)],
                false => part.epoch(),
            },
            sequence: part.sequence(),
        };
        // Parts on disk are durable: the cell would still be in memory otherwise.
        self.keys.admit(position, packed, &part, expiry_ms, version);
        Ok(())
    }

    /// Visits where the newest parts of keys stand, from `from` on in the order of slots and hashes, at
    /// least `entries` of them unless they end before. Returns where to go on, or `None` at the end. A
    /// deletion is no entry: it is durable and about to leave, or a replay finds it.
    pub fn newest_parts(
        &self,
        from: Cursor,
        entries: usize,
        visit: &mut impl FnMut(NewestPart),
    ) -> Option<Cursor> {
        self.keys.newest_parts(from, entries, visit)
    }

    /// Visits the versions that are known in keyspaces that keep them, also some that are not kept any
    /// more: by slot and hash, those of a key from the oldest to the newest.
    pub fn versions(&self, visit: &mut impl FnMut(VersionEntry)) {
        self.versions.walk(0, usize::MAX, visit);
    }

    /// Visits the keys that have the first slot and hash from `from` on, in the order of both, without
    /// touching them. Returns where the next ones stand, or `None` at the end. A key that is there from
    /// the first step to the last is visited.
    pub fn keys_from(&self, from: Cursor, visit: &mut impl FnMut(Cursor, Home)) -> Option<Cursor> {
        self.keys
            .entries()
            .walk(from, 1, &mut |at, candidate| visit(at, candidate.home))
    }

    /// Keys, cells in memory, their bytes, bytes of the index.
    #[must_use]
    pub fn usage(&self) -> Usage {
        Usage {
            keys: self.keys.entries().len(),
            cells: self.keys.cells().len(),
            cache_bytes: self.keys.cells().used_bytes(),
            index_bytes: self.keys.entries().memory_bytes(),
            memory_bytes: self.fixed_bytes() + self.keys.cells().memory_bytes(),
            memory_bytes_max: match self.budget.memory_bytes_max {
                usize::MAX => 0,
                max => max + self.budget.cells_bytes_min,
            },
            keyspace_bytes: self.keyspaces.memory_bytes(),
            versions: self.versions.len(),
            version_bytes: self.versions.memory_bytes(),
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
    /// Keys in the index; expired ones and deletions that are not durable yet included. [`Store::visible_keys`]
    /// leaves out the former.
    pub keys: usize,
    /// Keys whose value is in loaded.
    pub cells: usize,
    /// Bytes of the cells.
    pub cache_bytes: usize,
    /// Bytes of the index.
    pub index_bytes: usize,
    /// Bytes of memory of index and cells, unused room included.
    pub memory_bytes: usize,
    /// Most that they may take; 0 if nothing bounds them together.
    pub memory_bytes_max: usize,
    /// Bytes of the settings of keyspaces.
    pub keyspace_bytes: usize,
    /// Versions that are known in keyspaces that keep them, the newest of each key included.
    pub versions: usize,
    /// Bytes of those entries, about.
    pub version_bytes: usize,
}

/// When a part with this expiry, which was written at `time_ms`, stops to count by itself. `None` if that may be
/// never: versions of its key are kept, and the newest of them has no end.
pub(crate) fn expires(
    keyspaces: &Keyspaces,
    slot: u16,
    key: &[u8],
    expiry_ms: Option<u64>,
    time_ms: u64,
) -> Option<Expires> {
    let by_ms = match (expiry_ms?, keyspaces.rule(slot, key)) {
        (expiry_ms, None) => expiry_ms,
        (expiry_ms, Some(rule)) => rule.let_go_ms(expiry_ms.max(time_ms))?,
    };
    let deletion_bytes = part_bytes(key.len(), 0, false, 0);
    Some(Expires {
        by_ms,
        deletion_bytes: u32::try_from(deletion_bytes).expect("a key is short"),
    })
}

/// The same of a part of the log.
pub(crate) fn part_expires(keyspaces: &Keyspaces, part: &PartView<'_>) -> Option<Expires> {
    expires(
        keyspaces,
        part.slot(),
        part.key(),
        part.expiry_ms(),
        part.time_ms(),
    )
}

/// The present contents of a cell as the log keeps them.
#[inline]
fn part_of(cell: Cell<'_>, layout: u16, is_crowded: bool) -> PartSpec<'_> {
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
