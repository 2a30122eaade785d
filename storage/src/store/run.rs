//! A run: changes of fields of one key that follow each other at once, each as a record of its own.
//!
//! The key is looked up once. Each record is made from the bytes of the one before. What the newest
//! record alone decides is noted once, when the run ends: the head of the cell, the account of what
//! counts, how far the versions of the partition went. In between nothing else runs on the store.

use crate::format::record::{RecordSpec, value_at};
use crate::log::repeat::Repeats;
use crate::memory::cache::cells::ValuePlace;
use crate::memory::index::entry::CellId;
use crate::store::change::part_of;
use crate::store::expiry::expires;
use crate::store::fields::{FieldEdit, Fields};
use crate::store::store::Store;
use crate::types::io::Blocks;
use crate::types::place::Lsn;
use crate::types::version::{Version, partition_of};

/// Changes of one key that exists and is in memory.
pub struct Run<'s, P: Blocks> {
    store: &'s mut Store<P>,
    now_us: u64,
    slot: u16,
    hash: u32,
    id: CellId,
    /// Where its value stands, once the cell is marked as in use.
    place: Option<ValuePlace>,
    /// The version of the key now.
    version: Version,
    /// Up to where the log must be durable before what the key shows is.
    lsn: Lsn,
    /// What is appended; nothing if the key's last record is not the last one of the open frame.
    repeats: Option<Repeats>,
}

impl<P: Blocks> Store<P> {
    /// Opens a run on a cached key of this slot and hash. `None` if the key does not exist, or each
    /// change must be looked at by itself: where versions are kept, and while what is appended is
    /// bounded.
    pub fn run(&mut self, now_us: u64, (slot, hash): (u16, u32), id: CellId) -> Option<Run<'_, P>> {
        let (exists, _, version, lsn) = self.standing(id);
        if !exists || self.keyspaces.keeps_versions() || self.cleaner.pace.is_bounded() {
            return None;
        }
        let repeats = self.repeats_of(slot, hash, id, version);
        self.field_edits.clear();
        Some(Run {
            store: self,
            now_us,
            slot,
            hash,
            id,
            place: None,
            version,
            lsn,
            repeats,
        })
    }

    /// What may follow the record of a key, if that is the newest of its partition, the last one of
    /// the open frame, and what the present contents of the cell would be encoded as now.
    fn repeats_of(&self, slot: u16, hash: u32, id: CellId, version: Version) -> Option<Repeats> {
        let cell = self.keys.cell(id);
        let newest = self.numbering.last(partition_of(slot));
        let last = self.log.last_part(cell.place().place()?)?;
        let layout = self.keyspaces.layout(slot, cell.key());
        let is_crowded = self.keys.entries().is_crowded(slot, hash);
        let record = RecordSpec {
            slot,
            epoch: version.epoch,
            sequence: version.sequence,
            time_ms: self.time_ms(),
            parts: &[part_of(cell, layout, is_crowded)],
            extension: &[],
        };
        let is_last = version == newest && record.is_encoded_as(last);
        is_last.then(|| self.log.repeats(last.len(), value_at(cell.key().len())))
    }

    /// The records of a run are the last ones of the log: notes what they changed.
    fn end_run(
        &mut self,
        now_us: u64,
        (slot, hash, id): (u16, u32, CellId),
        (version, lsn): (Version, Lsn),
        repeats: &Repeats,
    ) {
        let place = self.log.end_repeats(now_us, repeats, slot, version);
        self.numbering.go_on_behind(partition_of(slot), version);
        self.cleaner.must_pick = true;
        self.places[0] = place;
        let cell = self.keys.cell(id);
        let expires = cell.expiry_ms().and_then(|expiry_ms| {
            let time_ms = self.log.time_ms();
            expires(&self.keyspaces, slot, cell.key(), Some(expiry_ms), time_ms)
        });
        self.live.passes(place, repeats.records() - 1, expires);
        self.note_change(lsn, version, (slot, hash), 0, id);
    }
}

/// What became of a change of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunStep<E> {
    /// It is logged: the key shows what is durable when the log is durable up to there.
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

    /// Edits fields of the value, which counts as used, and logs that as a record: all of it or
    /// nothing.
    #[inline(always)]
    pub fn change<E>(&mut self, edit: impl FnOnce(Fields<'_>) -> Result<(), E>) -> RunStep<E> {
        let Store {
            log,
            keys,
            field_edits,
            ..
        } = &mut *self.store;
        let value = match &self.place {
            Some(place) => keys.value_at(place),
            None => {
                self.place = keys.value_place(self.id);
                keys.value_mut(self.id)
            }
        };
        let mut is_edited = false;
        let edited = edit(Fields::new(0, value, field_edits, &mut is_edited));
        if !is_edited {
            return edited.map_or_else(RunStep::Stopped, |()| RunStep::Same);
        }
        let step = match (edited, &mut self.repeats) {
            (Err(stop), _) => RunStep::Stopped(stop),
            (Ok(()), None) => RunStep::Alone,
            (Ok(()), Some(repeats)) => {
                let sequence = self.version.sequence + 1;
                let fields = field_edits.iter().map(FieldEdit::range);
                match log.append_next(repeats, sequence, value, fields) {
                    Some(lsn) => {
                        self.version.sequence = sequence;
                        self.lsn = lsn;
                        RunStep::Committed(lsn)
                    }
                    None => RunStep::Alone,
                }
            }
        };
        if !matches!(step, RunStep::Committed(_)) {
            FieldEdit::undone(field_edits).for_each(|edit| edit.undo(value));
        }
        field_edits.clear();
        step
    }

    /// The value of the key now.
    #[must_use]
    pub fn value(&self) -> &[u8] {
        self.store.keys.cell(self.id).value()
    }

    /// Has the key show another value of the same length, and logs that as a record. Each such
    /// change counts as a use. `None` if a [`Change`] must do it: nothing has changed then.
    ///
    /// # Panics
    /// If the value has another length.
    ///
    /// [`Change`]: crate::store::Change
    #[inline]
    pub fn replace(&mut self, value: &[u8]) -> Option<Lsn> {
        let (log, keys) = (&mut self.store.log, &mut self.store.keys);
        let repeats = self.repeats.as_mut()?;
        let sequence = self.version.sequence + 1;
        let words = (0..value.len()).step_by(8);
        let fields = words.map(|from| from..value.len().min(from + 8));
        let lsn = log.append_next(repeats, sequence, value, fields)?;
        let stored = match &self.place {
            Some(place) => keys.value_at(place),
            None => {
                self.place = keys.value_place(self.id);
                keys.value_mut(self.id)
            }
        };
        stored.copy_from_slice(value);
        self.version.sequence = sequence;
        self.lsn = lsn;
        Some(lsn)
    }
}

impl<P: Blocks> Drop for Run<'_, P> {
    fn drop(&mut self) {
        if let Some(repeats) = self.repeats.take_if(|repeats| repeats.records() > 0) {
            let key = (self.slot, self.hash, self.id);
            let newest = (self.version, self.lsn);
            self.store.end_run(self.now_us, key, newest, &repeats);
        }
    }
}
