//! A change of keys: cells are edited in place, then logged as one record.

use crate::format::record::{PARTS_MAX, PartKind, PartSpec, RecordSpec};
use crate::memory::cache::cell::Cell;
use crate::memory::index::entry::CellId;
use crate::planted::{Bug, is_planted};
use crate::store::expiry::expires;
use crate::store::store::Store;
use crate::types::io::Blocks;
use crate::types::packed_place::PackedPlace;
use crate::types::place::{Lsn, Place};
use crate::types::version::Version;

impl<P: Blocks> Store<P> {
    /// The value of a cached key, to be edited in place before a commit.
    #[inline]
    pub fn value_mut(&mut self, id: CellId) -> &mut [u8] {
        self.keys.value_mut(id)
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

    /// Gives a cached key that exists another expiry before a commit. It may have another cell
    /// then, which is the answer.
    pub fn set_expiry(&mut self, home: (u16, u32), id: CellId, expiry_ms: Option<u64>) -> CellId {
        self.keys.set_expiry(home, id, expiry_ms)
    }

    /// Marks a cached key as deleted before a commit.
    pub fn delete(&mut self, id: CellId) {
        self.keys.mark_deleted(id);
    }

    /// Logs the present contents of `cells`, keys of one `slot` with their hashes, as one record:
    /// all of them or none survive a crash. [`Store::room_for`] must have said yes.
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
