//! What a store does as one of several that hold a partition: records that were written elsewhere,
//! local records, what cleaning leaves for others.
//!
//! Nothing of this happens to a store alone: there each commit is of the one epoch of its start.

use crate::format::extension::EffectsArea;
use crate::format::record::{KindedValue, OfParts, PartKind, PartSpec, PartView, RecordSpec};
use crate::format::system_key::{
    LOCAL_BYTES_MAX, is_epochs, is_horizon, is_indexed, is_local, is_system, is_token,
    token_time_ms,
};
use crate::memory::index::entry::CellId;
use crate::memory::keys::Found;
use crate::planted::{Bug, is_planted};
use crate::store::cleaning::liveness::Liveness;
use crate::store::data::Data;
use crate::store::keyspace::settings::is_understood;
use crate::store::store::Store;
use crate::types::io::Blocks;
use crate::types::key_home::KeyHome;
use crate::types::place::{Lsn, Place};
use crate::types::version::{Version, partition_of};

impl Data {
    /// The cell that takes in a part of a record that was written elsewhere, or `None` if the key
    /// has no older version.
    ///
    /// Without `is_dense` the same deletion may be in the index, logged and not durable. The record
    /// that it deletes may stand behind it in the log by now, logged again for another key. So the
    /// deletion is logged again, as if the first one had left the index.
    fn cell_for(&mut self, home: KeyHome, part: &PartView<'_>, is_dense: bool) -> Option<CellId> {
        let id = match self.keys.find(home.slot, home.hash, part.key()) {
            Found::Cached(id) => id,
            Found::Absent => {
                return Some(self.keys.insert(home, part.key(), KindedValue::NONE, None));
            }
            Found::Cold(_) => panic!("what is cold is read before"),
        };
        let known = self.keys.version(id);
        if known < part.version() {
            return Some(id);
        }
        let is_same = known == part.version()
            && part.kind() == PartKind::Tombstone
            && self.keys.cell(id).is_deleted();
        if is_dense || !is_same {
            return None;
        }
        // A key that was swept is not among these: cleaning takes it out.
        let of = (home.slot, home.hash, known);
        let mut deletions = self.deletions.iter();
        if !deletions.any(|&(_, slot, hash, version)| (slot, hash, version) == of) {
            return None;
        }
        let position = self.keys.entries().position_of(home.slot, home.hash, id);
        self.forget_deletion(position, id);
        self.note_removal(home.slot, home.hash, known.sequence);
        Some(self.keys.insert(home, part.key(), KindedValue::NONE, None))
    }

    /// Takes note of a record under a key of the store's own that the index has.
    fn see_own(&mut self, part: &PartView<'_>) {
        if is_epochs(part.key()) {
            self.locals.see(part);
        } else if is_horizon(part.key()) {
            self.horizons.forget(partition_of(part.slot()));
        }
    }

    /// Takes out what is known of the past of a partition, a part in each call; whether all is out.
    /// Its records that have diverged are not to stand among those that follow.
    pub fn forget_past(&mut self, partition: usize) -> bool {
        let live = &mut self.live;
        self.versions
            .forget(partition, FORGOTTEN_MAX, |place| live.loses(place))
    }
}

impl<P: Blocks> Store<P> {
    /// Commits of a partition have the epoch of `after` and go on behind its sequence.
    ///
    /// # Panics
    /// If the log holds a version of the partition above `after`.
    pub fn lead(&mut self, partition: usize, after: Version) {
        let last = self.log().history().last(partition);
        assert!(
            last <= after,
            "partition {partition} goes on behind {after:?}, and its log holds {last:?}"
        );
        self.data.set_position(partition, after);
        // What another node has logged since may be otherwise.
        self.data.horizons.forget(partition);
    }

    /// Whether a member that begins with nothing needs a part of a durable segment: the newest part
    /// of its key, or a deletion that may hide an older part. The answer is right only after
    /// [`Store::settle`] and [`Store::settle_copies`].
    #[must_use]
    pub fn counts(
        &self,
        part: &PartView<'_>,
        place: Place,
        hash_of: &impl Fn(&[u8]) -> u32,
    ) -> bool {
        let liveness = self
            .data
            .liveness(self.log.history(), part, place, false, hash_of);
        let is_forgotten = is_token(part.key()) && is_planted(Bug::TokenForgottenByScan);
        !matches!(liveness, Liveness::Dead | Liveness::Kept(_)) && !is_forgotten
    }

    /// Logs a record that was written elsewhere under its own version and time, and takes in what
    /// it says of keys that have no newer version. `parts` are all of its parts, checked; nothing
    /// of it may be cold and the log must have had room for as many bytes as they have. Without
    /// `is_dense`, a record that brings nothing newer is left out: `None`. A deletion that is not
    /// durable counts as older than the same one. A key of it that is being swept has a newer
    /// version. [`Store::keys`] says what is cold or swept.
    ///
    /// # Panics
    /// If the parts are not one record, or a local one.
    pub fn apply(
        &mut self,
        now_us: u64,
        parts: &[PartView<'_>],
        is_dense: bool,
        hash_of: &impl Fn(&[u8]) -> u32,
    ) -> Option<Lsn> {
        let first = &parts[0];
        let (slot, time_ms) = (first.slot(), first.time_ms());
        let version = first.version();
        assert!(
            parts.iter().enumerate().all(|(ordinal, part)| {
                (part.ordinal(), part.slot()) == (ordinal, slot)
                    && part.count() == parts.len()
                    && part.version() == version
            }) && !is_local(first.key()),
            "the parts of a record that was written elsewhere"
        );

        if is_system(first.key()) && !is_indexed(first.key()) {
            return self.apply_settings(now_us, first, is_dense);
        }
        let mut cells: OfParts<Option<(u32, CellId)>> = OfParts::of(None, parts.len());
        for (cell, part) in cells.iter_mut().zip(parts) {
            let hash = hash_of(part.key());
            let home = KeyHome { slot, hash };
            if part.is_superseded() && part.kind() == PartKind::Put {
                continue;
            }
            let Some(known) = self.data.cell_for(home, part, is_dense) else {
                continue;
            };
            let id = match part.kind() {
                PartKind::Put => {
                    let id = self.data.keys.set_value(
                        home,
                        known,
                        part.kinded_value(),
                        part.expiry_ms(),
                    );
                    if let Some(effects) = part.effects() {
                        self.data.keys.arm(home, id, EffectsArea::new(effects));
                    }
                    id
                }
                PartKind::Tombstone => {
                    self.data.keys.mark_deleted(home, known);
                    known
                }
            };
            *cell = Some((home.hash, id));
        }
        if !is_dense && cells.iter().all(Option::is_none) {
            return None;
        }

        // What has a newer version already must be compared by a replay, whatever else it finds.
        let is_crowded = |cell: Option<(u32, CellId)>| {
            cell.is_none_or(|(hash, _)| self.data.keys.entries().is_crowded(slot, hash))
        };
        let (one, mut many);
        let specs = match parts {
            // Nearly every record.
            [part] => {
                one = [spec_of(part, is_crowded(cells[0]))];
                &one[..]
            }
            _ => {
                many = OfParts::of(spec_of(first, true), parts.len());
                for ((spec, part), cell) in many.iter_mut().zip(parts).zip(cells.iter()) {
                    *spec = spec_of(part, is_crowded(*cell));
                }
                &many[..]
            }
        };
        let mut made = OfParts::of(None, parts.len());
        let (extension, extended) = extension_of(parts, &mut made);
        let record = RecordSpec {
            extension: &extension[..extended],
            ..RecordSpec::new(slot, version, time_ms, specs)
        };
        let lsn = self.log_record(now_us, &record);
        self.data.see_own(first);
        if self.data.keyspaces.keeps_versions() {
            let changed = self.places.iter().zip(cells.iter());
            let changed = changed.filter_map(|(&place, cell)| Some((place, (*cell)?)));
            self.data
                .keep_versions(lsn, version, time_ms, slot, changed);
        }
        for (at, cell) in cells.iter().enumerate() {
            if let Some((hash, id)) = *cell {
                self.note_change(lsn, version, KeyHome { slot, hash }, at, id);
                if let Some(token_ms) = token_time_ms(parts[at].key(), time_ms) {
                    self.data.note_token(slot, id, token_ms);
                }
            }
        }
        self.data.carry_time(time_ms);
        Some(lsn)
    }

    /// As [`Store::apply`], of a record of settings: they are in force from here on.
    fn apply_settings(&mut self, now_us: u64, part: &PartView<'_>, is_dense: bool) -> Option<Lsn> {
        assert!(is_understood(part), "what is not understood is refused");
        if !is_dense && !self.data.keyspaces.is_news(part) {
            return None;
        }
        let parts = [spec_of(part, false)];
        let record = RecordSpec::new(part.slot(), part.version(), part.time_ms(), &parts);
        let lsn = self.log_record(now_us, &record);
        let replaced = self.data.keyspaces.take(part, self.place_of_part(0));
        self.data.live.replaces(replaced);
        self.data.carry_time(part.time_ms());
        Some(lsn)
    }

    /// Takes a cached key out that is deleted elsewhere, by a deletion that nobody has any more.
    /// The log says so with the version that the key has, as of a value that has expired, and it is
    /// no news for others. [`Store::room`] must have said yes for a value of no bytes. `None` while
    /// cleaning moves it.
    ///
    /// # Panics
    /// If the key was never logged.
    pub fn sweep(
        &mut self,
        now_us: u64,
        KeyHome { slot, hash }: KeyHome,
        id: CellId,
    ) -> Option<Lsn> {
        let version = self.data.keys.version(id);
        let cell = self.data.keys.cell(id);
        let packed = cell.place();
        let from = packed.place().expect("the key was logged");
        if self.cleaning.is_moving(from) {
            return None;
        }
        let parts = [PartSpec::tombstone(cell.key()).crowded()];
        let record = RecordSpec::new(slot, version, self.data.time_ms(), &parts);
        let mut bytes = vec![0; record.bytes()];
        record.encode_part(0, &mut bytes);
        let part = PartView::read(&bytes).expect("just written");
        let lsn = self
            .cleaning
            .move_as_deletion(&mut self.log, now_us, &part, hash, from);
        self.data.keys.mark_deleted(KeyHome { slot, hash }, id);
        // It stays in memory until that is durable.
        self.data.keys.set_change(id, version, packed, Some(lsn));
        self.data.note_changed(id);
        Some(lsn)
    }

    /// Logs the local record of the partition of `slot`, to which `key` leads; it takes the place
    /// of the one before. [`Store::room`] must have said yes.
    ///
    /// # Panics
    /// If the key is none of a local record, or the value longer than [`LOCAL_BYTES_MAX`].
    pub fn note_local(&mut self, now_us: u64, slot: u16, key: &[u8], value: &[u8]) -> Lsn {
        assert!(
            is_local(key) && value.len() <= LOCAL_BYTES_MAX,
            "a local record of {} bytes",
            value.len()
        );
        let count = self.data.locals.get(slot).map_or(0, |newest| newest.count) + 1;
        let parts = [PartSpec::put(key, value).crowded()];
        let version = Version {
            epoch: 0,
            sequence: count,
        };
        let record = RecordSpec::new(slot, version, self.data.time_ms(), &parts);
        let lsn = self.log_record(now_us, &record);
        let place = self.place_of_part(0);
        self.data.live.gains(place);
        if let Some(before) = self.data.locals.put(slot, count, place, value) {
            self.data.live.loses(before);
        }
        if self.data.keyspaces.set_floor(partition_of(slot), value)
            && self.data.keyspaces.keeps_versions()
        {
            // What has expired may be kept again.
            self.data.live.forget_times();
        }
        lsn
    }

    /// Up to which sequence records of a partition may be gone from the log.
    #[must_use]
    pub fn forgotten(&self, partition: usize) -> u64 {
        self.log().history().forgotten[partition]
    }
}

/// Kept versions that one call of [`Data::forget_past`] takes out, at most.
const FORGOTTEN_MAX: usize = 4_096;

/// The extension areas of parts as they are logged here, and how many there are up to the last one.
/// Those that are not in a part stand in `made`.
fn extension_of<'a>(
    parts: &[PartView<'a>],
    made: &'a mut [Option<EffectsArea>],
) -> (OfParts<&'a [u8]>, usize) {
    let (mut extension, mut extended) = (OfParts::of(&[][..], parts.len()), 0);
    for (ordinal, (made, part)) in made.iter_mut().zip(parts).enumerate() {
        if part.extension().is_empty() {
            continue;
        }
        extended = ordinal + 1;
        extension[ordinal] = match part.is_copy() {
            false => part.extension(),
            // A copy names who superseded it in a past that is not here.
            true => {
                *made = part.effects().map(EffectsArea::new);
                made.as_ref().map_or(&[], EffectsArea::bytes)
            }
        };
    }
    (extension, extended)
}

fn spec_of<'a>(part: &PartView<'a>, is_crowded: bool) -> PartSpec<'a> {
    PartSpec {
        kind: part.kind(),
        key: part.key(),
        value: part.value(),
        value_kind: part.value_kind(),
        expiry_ms: part.expiry_ms(),
        layout: part.layout(),
        is_crowded,
    }
}
