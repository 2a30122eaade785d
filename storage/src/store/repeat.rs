//! A run: changes of one key that follow each other at once. One record stands for all of them.
//!
//! The key is looked up once, and its value is changed in place. When the run ends, the newest
//! value is logged with the version of the last change and the number of changes. In between
//! nothing else runs on the store, so nothing else takes a version or a place in the log.
//!
//! What must hold: a run that has changed something ends in the frame that was open when it began.
//! So all of its changes become durable together, and none of them is there without the others.

use crate::format::extension::{CHANGES_AREA_BYTES, ChangesArea};
use crate::format::record::{RecordSpec, ValueKind, part_bytes};
use crate::memory::cache::cells::ValuePlace;
use crate::memory::index::entry::CellId;
use crate::memory::keys::Keys;
use crate::planted::{self, Bug, is_planted};
use crate::store::commit::part_of;
use crate::store::data::Data;
use crate::store::fields::{FieldEdit, Fields};
use crate::store::store::Store;
use crate::types::io::Blocks;
use crate::types::key_home::KeyHome;
use crate::types::place::Lsn;
use crate::types::version::{Version, partition_of};

/// Changes of one key that exists and is in memory.
pub struct Run<'s, P: Blocks> {
    store: &'s mut Store<P>,
    now_us: u64,
    home: KeyHome,
    id: CellId,
    /// Where its value stands, once the cell is marked as in use.
    place: Option<ValuePlace>,
    /// The version of the key now.
    version: Version,
    /// Up to where the log must be durable before what the key shows is.
    lsn: Lsn,
    /// What the changes get.
    changes: Changes,
}

/// The numbers of the changes of a run.
#[derive(Clone, Copy, Debug)]
struct Changes {
    /// How many there are.
    count: u64,
    /// The version before that of the next change.
    newest: Version,
    /// The position of their record. `None` if there may be no change.
    lsn: Option<Lsn>,
}

impl Changes {
    /// Counts another change: its version and the position of its record.
    #[inline]
    fn add(&mut self) -> Option<(Version, Lsn)> {
        let lsn = self.lsn?;
        self.count += 1;
        self.newest.sequence += 1;
        Some((self.newest, lsn))
    }
}

impl<P: Blocks> Store<P> {
    /// Opens a run on a cached key of this slot and hash. `None` if the key does not exist, or each
    /// change must be looked at by itself: where its versions may be kept, of an armed key or of
    /// a head, and while what is appended is bounded.
    pub fn run(&mut self, now_us: u64, home: KeyHome, id: CellId) -> Option<Run<'_, P>> {
        let (exists, _, kind, version, lsn) = self.data.standing(id);
        let keeps_versions = self.data.keyspaces.keeps_versions()
            && self.data.keyspaces.may_rule(self.data.keys.cell(id).key());
        let is_alone = keeps_versions
            || self.cleaning.bounds_writes()
            || self.data.keys.cells().effects(id).is_some()
            || kind != ValueKind::Plain;
        if !exists || is_alone {
            return None;
        }
        let newest = self.data.numbering.last(partition_of(home.slot));
        // Answers of a run are made alike, so all of its versions have one epoch.
        let may_change = newest.epoch == version.epoch && self.takes_run(id);
        self.field_edits.clear();
        Some(Run {
            changes: Changes {
                count: 0,
                newest,
                lsn: may_change.then(|| self.log.next_lsn()),
            },
            store: self,
            now_us,
            home,
            id,
            place: None,
            version,
            lsn,
        })
    }

    /// Whether the open frame takes the record of a run on a key.
    fn takes_run(&self, id: CellId) -> bool {
        let cell = self.data.keys.cell(id);
        let expires = cell.expiry_ms().is_some();
        let bytes = part_bytes(
            cell.key().len(),
            cell.value().len(),
            expires,
            CHANGES_AREA_BYTES,
        );
        let is_short = bytes <= self.log.record_bytes_max();
        is_short && self.log.takes_all() && self.log.has_open_room(bytes)
    }

    /// Logs the value that a run of this many changes has left, under the version of the last one.
    fn end_run(
        &mut self,
        now_us: u64,
        KeyHome { slot, hash }: KeyHome,
        id: CellId,
        changes: Changes,
    ) {
        let version = Version {
            sequence: changes.newest.sequence
                - planted::or(Bug::RunOneVersion, changes.count - 1, 0),
            ..changes.newest
        };
        let area = ChangesArea::new(changes.count);
        let is_one = changes.count == 1 || is_planted(Bug::RunOneChange);
        let extension = [area.bytes()];
        let cell = self.data.keys.cell(id);
        let layout = self.data.keyspaces.layout(slot, cell.key());
        let is_crowded = self.data.keys.entries().is_crowded(slot, hash);
        let parts = [part_of(cell, layout, is_crowded)];
        let record = RecordSpec {
            extension: if is_one { &[] } else { &extension },
            ..RecordSpec::new(slot, version, self.data.time_ms(), &parts)
        };
        let lsn = self.log.append(now_us, &record, &mut self.places);
        assert_eq!(Some(lsn), changes.lsn, "nothing was appended in between");
        self.data
            .numbering
            .go_on_behind(partition_of(slot), changes.newest);
        self.cleaning.note_record();
        self.note_change(lsn, version, KeyHome { slot, hash }, 0, id);
    }
}

/// What became of a change of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RepeatStep<E> {
    /// The key shows it, and that is durable when the log is durable up to there.
    Committed(Lsn),
    /// It edits nothing.
    Same,
    /// The edits came to an end, and were taken back.
    Stopped(E),
    /// A [`Change`] must do it: what was edited was taken back.
    ///
    /// [`Change`]: crate::store::Change
    Alone,
}

impl<P: Blocks> Run<'_, P> {
    /// The version of the key now.
    #[inline]
    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }

    /// Up to where the log must be durable before what the key shows is.
    #[inline]
    #[must_use]
    pub fn lsn(&self) -> Lsn {
        self.lsn
    }

    /// The value of the key now.
    #[must_use]
    pub fn value(&self) -> &[u8] {
        self.store.data.keys.cell(self.id).value()
    }

    /// Edits fields of the value, which counts as used, as one change: all of it or nothing.
    #[inline(always)]
    pub fn change<E>(&mut self, edit: impl FnOnce(Fields<'_>) -> Result<(), E>) -> RepeatStep<E> {
        let Store {
            data: Data { keys, .. },
            field_edits,
            ..
        } = &mut *self.store;
        let value = used_value(keys, &mut self.place, self.id);
        let mut is_edited = false;
        let edited = edit(Fields::new(0, value, field_edits, &mut is_edited));
        if !is_edited {
            return edited.map_or_else(RepeatStep::Stopped, |()| RepeatStep::Same);
        }
        let step = match edited {
            Err(stop) => RepeatStep::Stopped(stop),
            Ok(()) => match self.changes.add() {
                Some((version, lsn)) => {
                    (self.version, self.lsn) = (version, lsn);
                    RepeatStep::Committed(lsn)
                }
                None => RepeatStep::Alone,
            },
        };
        if !matches!(step, RepeatStep::Committed(_)) && !is_planted(Bug::RunKeepsUnlogged) {
            FieldEdit::undone(field_edits).for_each(|edit| edit.undo(value));
        }
        field_edits.clear();
        step
    }

    /// Has the key show another value of the same length, as one change. Each counts as a use.
    /// `None` if a [`Change`] must do it: nothing has changed then.
    ///
    /// # Panics
    /// If the value has another length.
    ///
    /// [`Change`]: crate::store::Change
    #[inline]
    pub fn replace(&mut self, value: &[u8]) -> Option<Lsn> {
        let (version, lsn) = self.changes.add()?;
        let keys = &mut self.store.data.keys;
        let stored = used_value(keys, &mut self.place, self.id);
        stored.copy_from_slice(value);
        (self.version, self.lsn) = (version, lsn);
        Some(lsn)
    }
}

/// The value of a cell, which counts as used. `place` remembers where the value stands.
#[inline(always)]
fn used_value<'k>(keys: &'k mut Keys, place: &mut Option<ValuePlace>, id: CellId) -> &'k mut [u8] {
    match place {
        Some(place) => keys.value_at(place),
        None => {
            *place = keys.value_place(id);
            keys.value_mut(id)
        }
    }
}

impl<P: Blocks> Drop for Run<'_, P> {
    fn drop(&mut self) {
        if self.changes.count > 0 {
            self.store
                .end_run(self.now_us, self.home, self.id, self.changes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::record::{PartError, PartKind, PartSpec, PartView};

    #[test]
    fn a_part_stands_for_as_many_changes_as_it_says_and_a_wrong_number_is_damage() {
        let encoded = |kind, sequence, changes, parts: usize| {
            let part = PartSpec {
                kind,
                ..PartSpec::put(b"stock:42", &[])
            };
            let (area, parts) = (ChangesArea::new(changes), vec![part; parts]);
            let record = RecordSpec {
                extension: &[area.bytes()],
                ..RecordSpec::new(77, Version { epoch: 1, sequence }, 5, &parts)
            };
            let mut bytes = vec![0; record.bytes()];
            record.encode_part(0, &mut bytes);
            PartView::read(&bytes).map(|part| part.changes())
        };
        for changes in [2, 98, 99] {
            assert_eq!(encoded(PartKind::Put, 99, changes, 1), Ok(changes));
        }
        for changes in [0, 1, 100, u64::MAX] {
            let read = encoded(PartKind::Put, 99, changes, 1);
            assert_eq!(read, Err(PartError::Damaged), "{changes} changes");
        }
        let deletion = encoded(PartKind::Tombstone, 99, 2, 1);
        assert_eq!(deletion, Err(PartError::Damaged));
        assert_eq!(encoded(PartKind::Put, 99, 2, 2), Err(PartError::Damaged));
    }
}
