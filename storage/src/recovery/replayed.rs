//! What a start fills while it reads the log: index, cache, and what else the store is made of.

use crate::format::contents::History;
use crate::format::extension::EffectsArea;
use crate::format::record::{PartKind, PartView, ValueKind};
use crate::format::system_key::{is_epochs, is_indexed, is_local, is_system};
use crate::memory::budget::Budget;
use crate::memory::index::entry::{Candidate, CellId, Home, Position, is_token_hash};
use crate::memory::keys::Keys;
use crate::memory::pinned::Pinned;
use crate::memory::timers::Timer;
use crate::planted::{self, Bug, is_planted};
use crate::recovery::snapshot::coverage::Coverage;
use crate::recovery::snapshot::format::{CoveredSegment, SnapshotFooter, SnapshotHeader};
use crate::store::cleaning::live::{FileTimes, Live};
use crate::store::flush_marks::{fall, flushes};
use crate::store::keyspace;
use crate::store::keyspace::keyspaces::Keyspaces;
use crate::store::keyspace::settings::SettingsEntry;
use crate::store::loaded::Loaded;
use crate::store::local::{LocalRecords, PartitionEntry};
use crate::store::versions::collect::Collected;
use crate::store::versions::entry::{KeyId, VersionEntry};
use crate::store::versions::table::Versions;
use crate::types::key_home::KeyHome;
use crate::types::packed_place::{NewestPart, PackedPlace};
use crate::types::place::{FileId, Lsn, Place};
use crate::types::version::{Version, partition_of};

use crate::store::expiry::part_expires;

/// Index and cache while a log is replayed into them.
#[derive(Debug)]
pub struct Replayed {
    keys: Keys,
    budget: Budget,
    live: Live,
    locals: LocalRecords,
    keyspaces: Keyspaces,
    collected: Collected,
    versions: Versions,
    time_ms: u64,
    /// The coverage of the snapshot that was loaded. Only parts behind it are replayed.
    snapshot: Option<Coverage>,
    /// What the snapshot tells of partitions of a node of a cluster.
    snapshot_history: History,
    /// Behind the snapshot there are settings that keep versions of before them, or the floor of a
    /// partition, which were not known.
    has_late_settings: bool,
    /// A key of the store's own with a record that is not understood.
    strange: Option<Box<[u8]>>,
}

impl Replayed {
    /// Nothing, with a cache of about `cache_bytes`.
    #[must_use]
    pub fn new(cache_bytes: usize) -> Self {
        Replayed::within(Budget::of_cache(cache_bytes))
    }

    /// Nothing, to be kept within a budget.
    #[must_use]
    pub fn within(budget: Budget) -> Self {
        Replayed {
            keys: Keys::new(budget.cache_bytes_max),
            budget,
            live: Live::default(),
            locals: LocalRecords::default(),
            keyspaces: Keyspaces::default(),
            collected: Collected::default(),
            versions: Versions::default(),
            time_ms: 0,
            snapshot: None,
            snapshot_history: History::default(),
            has_late_settings: false,
            strange: None,
        }
    }

    /// Takes in the newest time that the log carries: what was left out of it because of the time
    /// is not to be missed in a time before.
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
        let mut replayed = Replayed {
            live,
            time_ms: footer.time_ms,
            snapshot: Some(coverage.clone()),
            ..Replayed::within(budget)
        };
        if header.has_heads {
            replayed.keys.note_kind(ValueKind::Head);
        }
        replayed
    }

    /// Takes in a version of a key that a snapshot tells, or notes it if its segment `is_gone`.
    pub(crate) fn take_in_version(&mut self, version: &VersionEntry, is_gone: bool) {
        self.collected.restore(version, is_gone);
    }

    /// Takes in settings that a snapshot tells.
    ///
    /// # Errors
    /// What is wrong with them.
    pub(crate) fn take_in_settings(
        &mut self,
        settings: &SettingsEntry<'_>,
    ) -> Result<(), &'static str> {
        self.keyspaces.restore(settings)?;
        self.live.gains(settings.place);
        Ok(())
    }

    /// Takes in what a snapshot notes of a partition.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn take_in_notes(&mut self, notes: &PartitionEntry<'_>) -> Result<(), &'static str> {
        let covered = self.snapshot.as_ref();
        let is_covered = notes.local.is_some_and(|(_, place, _)| {
            let is_covered = covered.is_some_and(|covered| covered.is_covered(place));
            if is_covered {
                self.live.gains(place);
            }
            is_covered
        });
        self.locals.restore(notes, is_covered);
        let partition = usize::from(notes.partition);
        if let Some((_, _, local)) = notes.local.filter(|_| is_covered) {
            self.keyspaces.set_floor(partition, local);
        }
        self.snapshot_history.is_linked = true;
        self.snapshot_history.raise(partition, notes.last);
        self.snapshot_history.forgotten[partition] = notes.forgotten;
        self.snapshot_history.reached.note(partition, notes.highest);
        Ok(())
    }

    /// The local record and the record of epochs of the partition of a slot.
    #[must_use]
    pub fn notes(&self, slot: u16) -> (Option<&[u8]>, Option<&[u8]>) {
        let local = self.locals.get(slot).map(|newest| newest.value.as_slice());
        (local, self.locals.epochs_found(slot))
    }

    /// What the snapshot told of partitions of a node of a cluster.
    #[must_use]
    pub fn snapshot_history(&self) -> &History {
        &self.snapshot_history
    }

    pub(crate) fn has_keyspace(&self, number: u16) -> bool {
        self.keyspaces.has_number(number)
    }

    /// Whether all settings stand in the log; `has_file` tells its files.
    #[must_use]
    pub fn has_settings_in(&self, has_file: impl Fn(FileId) -> bool) -> bool {
        self.keyspaces.places().all(|place| has_file(place.file))
    }

    /// Whether the log behind the snapshot has settings that keep versions of before them: a copy
    /// of settings whose original is gone, or settings that go on with the history of settings that
    /// are gone. Or another floor of a partition is told. They were not known when the replay met
    /// these versions. The log is to be replayed anew, after a replay of settings and floors alone.
    #[must_use]
    pub fn has_late_settings(&self) -> bool {
        self.has_late_settings && self.keyspaces.keeps_versions()
    }

    /// Takes the newest parts of keys of a slot in that a snapshot tells, in its order, with their
    /// hashes.
    pub fn take_in(&mut self, slot: u16, entries: &[(u32, PackedPlace)]) {
        self.keys.insert_sorted(slot, entries);
        for (hash, part) in entries {
            let place = part.place().expect("every entry has a place");
            self.live.gains(place);
            if is_token_hash(*hash) {
                self.live.restores_token(place);
            }
        }
    }

    /// Takes in what a snapshot tells of the times of a file, when all else of it is taken in.
    pub(crate) fn take_in_times(&mut self, times: &FileTimes) {
        self.live.take_in(times);
    }

    /// The newest time that it was told.
    #[must_use]
    pub fn time_ms(&self) -> u64 {
        self.time_ms
    }

    /// As [`Keys::newest_parts`].
    pub fn newest_parts(
        &self,
        from: KeyHome,
        entries: usize,
        visit: &mut impl FnMut(NewestPart),
    ) -> Option<KeyHome> {
        self.keys.newest_parts(from, entries, visit)
    }

    /// As [`Data::versions`](crate::store::Data::versions).
    pub fn versions(&self, visit: &mut impl FnMut(VersionEntry)) {
        self.versions.walk(0, usize::MAX, visit);
    }

    /// The settings of keyspaces.
    #[must_use]
    pub fn keyspaces(&self) -> &Keyspaces {
        &self.keyspaces
    }

    /// As [`Keys::prefetch`], for keys that are seldom in the processor's cache: so it pays to
    /// look for the entries that are not at their home.
    #[inline]
    pub fn prefetch(&self, keys: &[KeyHome]) {
        let _ = self.keys.only_cells(keys);
    }

    /// Takes in one replayed part. The newest version of a key wins, wherever it stands.
    ///
    /// `key_at` reads the key and version of a part that left the cache already; it is called
    /// only when an entry with the same hash is cold.
    ///
    /// Behind a snapshot even such a read is rare. A part that is not crowded was appended when no
    /// other key of its slot and hash was in the index. So a cold entry of that hash, which came
    /// from the snapshot or from an earlier part, is of the same key and not newer, or of a key
    /// that had been deleted by then, and may go either way.
    ///
    /// # Errors
    /// Whatever `key_at` fails with.
    pub fn replay<E>(
        &mut self,
        home_of: &impl Fn(&[u8]) -> KeyHome,
        part: &PartView<'_>,
        place: Place,
        mut key_at: impl FnMut(Place, &mut dyn FnMut(&PartView<'_>)) -> Result<(), E>,
    ) -> Result<(), E> {
        self.time_ms = self.time_ms.max(part.time_ms());
        self.keys.note_kind(part.value_kind());
        if is_system(part.key()) && !self.replay_system(home_of, part, place) {
            return Ok(());
        }
        if part.is_superseded() && part.kind() == PartKind::Put && !is_planted(Bug::RevivePast) {
            // Something newer was there, and may be gone since.
            return Ok(());
        }
        let new = part.version();
        let expiry_ms = planted::or(Bug::ReplayWithoutExpiry, None, part.expiry_ms());
        // Before anything is looked up: what is held may leave here.
        self.make_room(home_of);
        let KeyHome { slot, hash } = home_of(part.key());
        let same = match self.guess_entry(slot, hash, part) {
            // A late copy of a deletion must not take away what a later one ends, which is kept.
            Some(guessed)
                if part.is_copy()
                    && part.kind() == PartKind::Tombstone
                    && self.keyspaces.rule(slot, part.key()).is_some() =>
            {
                let found = self.entry_of(slot, hash, part.key(), &mut key_at)?;
                Some(found.unwrap_or(guessed))
            }
            Some(guessed) => Some(guessed),
            None => self.entry_of(slot, hash, part.key(), &mut key_at)?,
        };
        if self.snapshot.is_some() && self.keyspaces.keeps_versions() {
            let home = same.as_ref().map(|entry| entry.home);
            self.join_past(hash, part, home, &mut key_at)?;
        }
        match same {
            // A late copy of a deletion, which is what a newer value superseded. Or the record came
            // again for another of its keys: the first part counts, and snapshots may point to it.
            Some(same) if same.version > new || same.version == new && comes_again(part) => {
                if part.kind() == PartKind::Tombstone {
                    self.live.gains_tombstone(place);
                }
            }
            // A copy that cleaning made. The segment that it was made from is about to be released.
            Some(Entry {
                position,
                home,
                version,
            }) if version == new && part.kind() == PartKind::Put => {
                let packed = PackedPlace::new(place, new.sequence);
                self.points_elsewhere(position, home, packed, part);
                self.expects(KeyHome { slot, hash }, part);
            }
            Some(Entry { position, home, .. })
                if part.kind() == PartKind::Tombstone
                    && (matches!(home, Home::Memory(_)) || !is_planted(Bug::KeepColdTombstone)) =>
            {
                if let Some(old) = self.keys.place_of(home) {
                    self.live.loses(old);
                }
                self.live.gains_tombstone(place);
                if let Home::Memory(id) = home {
                    self.keys.disarm(KeyHome { slot, hash }, id);
                }
                self.keys.remove(position, home);
            }
            Some(Entry { position, home, .. }) => {
                let packed = PackedPlace::new(place, new.sequence);
                self.points_elsewhere(position, home, packed, part);
                if let Home::Memory(id) = home {
                    let value = part.kinded_value();
                    let at = (position, KeyHome { slot, hash });
                    let now = self.keys.set_value_at(at, id, value, expiry_ms);
                    self.keys.set_change(now, new, packed, None);
                    self.arm(KeyHome { slot, hash }, now, part);
                } else {
                    self.expects(KeyHome { slot, hash }, part);
                }
            }
            None if part.kind() == PartKind::Tombstone => self.live.gains_tombstone(place),
            None => {
                let expires = part_expires(&self.keyspaces, part);
                self.live.gains_until(place, expires);
                let packed = PackedPlace::new(place, new.sequence);
                if self.snapshot.is_some() {
                    self.keys.insert_cold(slot, hash, packed);
                    self.expects(KeyHome { slot, hash }, part);
                } else {
                    let (home, value) = (KeyHome { slot, hash }, part.kinded_value());
                    let id = self.keys.insert(home, part.key(), value, expiry_ms);
                    self.keys.set_change(id, new, packed, None);
                    self.arm(home, id, part);
                }
            }
        }
        Ok(())
    }

    /// The cell of a key that a part is the newest of has the effects of the part.
    fn arm(&mut self, home: KeyHome, id: CellId, part: &PartView<'_>) {
        if let Some(effects) = part.effects()
            && !is_planted(Bug::ReplayWithoutExpiry)
        {
            self.keys.arm(home, id, EffectsArea::new(effects));
        }
    }

    /// The newest part of a key of this slot and hash that may be cold is this one: if it has
    /// effects, somebody will have to look at it.
    fn expects(&mut self, home: KeyHome, part: &PartView<'_>) {
        if let (Some(_), Some(expiry_ms)) = (part.effects(), part.expiry_ms()) {
            self.keys.expects(home, expiry_ms);
        }
    }

    /// Takes in a timer that a snapshot tells.
    pub(crate) fn take_in_timer(&mut self, timer: Timer) {
        self.keys.expects(timer.home(), timer.expiry_ms);
    }

    /// Takes in a part under a key of the store's own; whether the index has it too.
    #[cold]
    fn replay_system(
        &mut self,
        home_of: &impl Fn(&[u8]) -> KeyHome,
        part: &PartView<'_>,
        place: Place,
    ) -> bool {
        if !keyspace::is_understood(part) {
            self.strange.get_or_insert_with(|| part.key().into());
            return false;
        }
        if is_local(part.key()) {
            self.live.gains(place);
            if let Some(old) = self.locals.take(part, place) {
                self.live.loses(old);
            }
            self.take_floor(part.slot());
            return false;
        }
        if is_epochs(part.key()) {
            self.locals.see(part);
            return true;
        }
        if is_indexed(part.key()) {
            if flushes(part) && !is_planted(Bug::FlushForgottenByStart) {
                fall(&mut self.keys, part.key(), home_of);
                let live = &mut self.live;
                while self.keys.clear(usize::MAX, |place| live.loses(place)) {}
                self.collected.fall(partition_of(part.slot()));
            }
            return true;
        }
        if self.snapshot.is_some() {
            self.has_late_settings |= self.keyspaces.is_late(part);
        }
        self.live.replaces(self.keyspaces.take(part, place));
        false
    }

    /// Takes in from when on the past of the partition of a slot is known, by its newest local
    /// record.
    fn take_floor(&mut self, slot: u16) {
        let local = self.locals.get(slot).expect("it was just taken in");
        let is_other = self.keyspaces.set_floor(partition_of(slot), &local.value);
        // The record may be a copy, or tell anew what an earlier one told: versions behind the
        // floor may stand before it.
        self.has_late_settings |= is_other && self.snapshot.is_some();
        if is_other && self.keyspaces.keeps_versions() {
            self.live.forget_times();
        }
    }

    /// Joins a part behind a snapshot to the versions of its key that the snapshot tells of; `home`
    /// is where the key was found.
    fn join_past<E>(
        &mut self,
        hash: u32,
        part: &PartView<'_>,
        home: Option<Home>,
        key_at: &mut impl FnMut(Place, &mut dyn FnMut(&PartView<'_>)) -> Result<(), E>,
    ) -> Result<(), E> {
        let Some(rule) = self.keyspaces.rule(part.slot(), part.key()) else {
            return Ok(());
        };
        let new = Version {
            epoch: part.epoch(),
            sequence: part.sequence(),
        };
        let since = rule.since.version;
        if new <= since {
            return Ok(());
        }
        let id = KeyId::new(part.slot(), hash, part.key());
        let is_first = self.collected.begins(id);
        match home {
            None => {
                // If none of them is as young as the history of the keyspace, the key was deleted
                // meanwhile, which nobody noted, and this part follows none of them.
                if is_first && !part.is_copy() && !is_planted(Bug::BridgeGap) {
                    self.collected.forget_before(id, since);
                }
            }
            Some(Home::Memory(_)) => {}
            Some(Home::Disk(packed)) => {
                let cold = packed.place().expect("a cold entry has a place");
                let is_covered = self.snapshot.as_ref().is_some_and(|it| it.is_covered(cold));
                if is_covered && !self.collected.is_newest_at(id, cold) {
                    // It was written before versions were kept, so the snapshot does not tell more
                    // of it.
                    let collected = &mut self.collected;
                    key_at(cold, &mut |old| {
                        let was = Version {
                            epoch: old.epoch(),
                            sequence: old.sequence(),
                        };
                        if old.key() == part.key() && was < new {
                            collected.take_first(id, rule, old, cold);
                        }
                    })?;
                }
            }
        }
        Ok(())
    }

    /// The entry that a part behind a snapshot belongs to, if that is known without a read.
    fn guess_entry(&self, slot: u16, hash: u32, part: &PartView<'_>) -> Option<Entry> {
        if self.snapshot.is_none() || part.is_crowded() {
            return None;
        }
        let mut candidates = self.keys.entries().candidates(slot, hash);
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
        for Candidate { position, home } in self.keys.entries().candidates(slot, hash) {
            let mut found = None;
            match home {
                Home::Memory(id) => {
                    if self.keys.cell(id).key() == key {
                        found = Some(self.keys.cells().version(id));
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

    /// A key of the store's own whose record this version does not understand, if there is one:
    /// cleaning would drop it.
    #[must_use]
    pub fn strange_key(&self) -> Option<&[u8]> {
        self.strange.as_deref()
    }

    /// Whether the log is to be replayed once more, into [`Replayed::collect`]: what versions are
    /// kept is known only at its end.
    #[must_use]
    pub fn keeps_versions(&self) -> bool {
        self.keyspaces.keeps_versions() && !is_planted(Bug::ForgetVersions)
    }

    /// Takes in one part of the second replay.
    pub fn collect(
        &mut self,
        home_of: &impl Fn(&[u8]) -> KeyHome,
        part: &PartView<'_>,
        place: Place,
    ) {
        if is_system(part.key()) {
            if flushes(part) {
                self.collected.fall(partition_of(part.slot()));
            }
            return;
        }
        let Some(rule) = self.keyspaces.rule(part.slot(), part.key()) else {
            return;
        };
        let KeyHome { slot, hash } = home_of(part.key());
        // The newest version of a key that was there before versions were kept needs no entry, and
        // had none: nothing before it is kept. Keys that nobody changes since may be all that there
        // are.
        if part.version() <= rule.since.version
            && self.keys.stands_at(KeyHome { slot, hash }, place)
        {
            return;
        }
        let (keyspaces, now_ms) = (&self.keyspaces, self.time_ms);
        let collected = &mut self.collected;
        // Of a record that came again the index points to the part that was there first, unless the
        // key had been deleted meanwhile. Of equal deletions the last one hides all before it.
        let id = KeyId::new(slot, hash, part.key());
        if part.is_copy()
            || part.kind() == PartKind::Tombstone
            || !collected.has(id, part.version())
            || self.keys.stands_at(KeyHome { slot, hash }, place)
        {
            collected.take(keyspaces, rule.number, now_ms, hash, part, place);
        }
        self.make_room(home_of);
    }

    /// Lets cells leave that are too many beside what cannot.
    fn make_room(&mut self, home_of: &impl Fn(&[u8]) -> KeyHome) {
        let rigid = self.keys.entries().memory_bytes()
            + self.keys.timers().memory_bytes()
            + self.keys.cells().table_bytes()
            + self.collected.memory_bytes()
            + self.live.memory_bytes();
        self.keys.set_budget(self.budget.cells(rigid));
        let durable = Lsn::default();
        self.keys
            .evict((durable, self.time_ms), &Pinned::default(), home_of);
        let held_bytes_max = self.budget.bounds(rigid).held;
        if self.keys.cells().held_bytes() > held_bytes_max {
            self.keys
                .tidy(durable, held_bytes_max, &Pinned::default(), home_of);
        }
    }

    /// Ends the second replay.
    pub fn finish_versions(&mut self) {
        let (keys, live) = (&self.keys, &mut self.live);
        let is_current = |id: KeyId, place: Place| keys.stands_at(id.home(), place);
        let collected = std::mem::take(&mut self.collected);
        self.versions = collected.finish(&self.keyspaces, self.time_ms, &is_current, |place| {
            live.gains(place)
        });
    }

    /// The newest part of a key is this one, which stands at `packed`.
    fn points_elsewhere(
        &mut self,
        position: Position,
        home: Home,
        packed: PackedPlace,
        part: &PartView<'_>,
    ) {
        if let Some(old) = self.keys.place_of(home) {
            self.live.loses(old);
        }
        if let Some(new) = packed.place() {
            let expires = part_expires(&self.keyspaces, part);
            self.live.gains_until(new, expires);
        }
        self.keys.point_to(position, home, packed);
    }
}

impl From<Replayed> for Loaded {
    fn from(memory: Replayed) -> Self {
        Loaded {
            keys: memory.keys,
            budget: memory.budget,
            live: memory.live,
            locals: memory.locals,
            keyspaces: memory.keyspaces,
            versions: memory.versions,
            time_ms: memory.time_ms,
        }
    }
}

/// Whether a part whose version is there is one that a node has shipped twice.
fn comes_again(part: &PartView<'_>) -> bool {
    part.kind() == PartKind::Put && !part.is_copy()
}

/// What the index knows of the key of a replayed part.
struct Entry {
    position: Position,
    home: Home,
    /// The default is older than all others.
    version: Version,
}
