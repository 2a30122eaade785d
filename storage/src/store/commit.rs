//! The commit of a change: the present contents of cells of one slot become one record, those of
//! several slots a group of records, and the index and the live bytes follow.

use crate::format::extension::{Group, with_group};
use crate::format::record::{OfParts, PartKind, PartSpec, RecordSpec, ValueKind, part_bytes};
use crate::format::token::TokenAnswer;
use crate::if_planted;
use crate::memory::cache::cell::Cell;
use crate::memory::index::entry::{CellId, is_token_hash};
use crate::memory::keys::Keys;
use crate::planted::{Bug, is_planted};
use crate::store::data::Data;
use crate::store::expiry::{expires, token_expires};
use crate::store::keyspace::keyspaces::Keyspaces;
use crate::store::store::Store;
use crate::types::io::Blocks;
use crate::types::key_home::KeyHome;
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
    /// What its value is; plain if it has none.
    pub kind: ValueKind,
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
    /// No segment can be had for the record: [`Room::Full`](crate::log::room::Room::Full).
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

impl Data {
    /// The part of a cell that expires counts from now on. The time of its record is `time_ms`, or
    /// before that.
    #[cold]
    fn gains_expiring(
        &mut self,
        place: Place,
        KeyHome { slot, hash }: KeyHome,
        id: CellId,
        time_ms: u64,
    ) {
        let cell = self.keys.cell(id);
        if self.keys.cells().effects(id).is_some() {
            // It counts until its effects have run.
            return self.live.gains(place);
        }
        let expiry_ms = cell.expiry_ms();
        let expires = match is_token_hash(hash) {
            true => token_expires(cell.key(), expiry_ms, time_ms),
            false => expires(&self.keyspaces, slot, cell.key(), expiry_ms, time_ms),
        };
        self.live.gains_until(place, expires);
    }
}

impl<P: Blocks> Store<P> {
    /// Why there is no room for another key or kept version: cleaning is about to make some, or
    /// nothing does.
    pub(super) fn waits_or_lacks_memory(&self) -> NoRoom {
        match self.waits_for_keys() {
            true => NoRoom::Wait,
            false => NoRoom::Memory,
        }
    }

    /// Logs the present contents of `cells`, keys of one `slot` with their hashes, as one record:
    /// all of them or none survive a crash. The log must have had room for them.
    #[inline]
    pub fn commit(&mut self, now_us: u64, slot: u16, cells: &[(u32, CellId)]) -> (Lsn, Version) {
        let version = self.data.next_version(slot);
        let time_ms = self.data.time_ms();
        let (keys, keyspaces) = (&self.data.keys, &self.data.keyspaces);
        let areas;
        let extension = match keys.cells().has_armed() {
            false => &[][..],
            true => {
                areas = keys.areas_of(cells);
                &areas[..]
            }
        };
        let record = |parts| RecordSpec {
            extension,
            ..RecordSpec::new(slot, version, time_ms, parts)
        };
        let part = |cell| spec_of(keys, keyspaces, slot, cell);
        let places = &mut self.places;
        if places.len() < cells.len() {
            places.resize(cells.len(), Place::default());
        }
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
                let mut parts = OfParts::of(part(cells[0]), cells.len());
                for (into, &cell) in parts.iter_mut().zip(cells) {
                    *into = part(cell);
                }
                self.log.append(now_us, &record(&parts), places)
            }
        };
        self.note_commit((lsn, version, time_ms), slot, cells);
        (lsn, version)
    }

    /// Logs the present contents of `cells` as a group: one record for each of their slots. All
    /// of them or none survive a crash, because the frame that is open takes them all. The log must
    /// have had room for them together. The version is that of the slot of the first cell.
    pub(super) fn commit_group(
        &mut self,
        now_us: u64,
        mut cells: Vec<(KeyHome, CellId)>,
    ) -> Committed {
        let first = cells[0].0.slot;
        // A stable order: the parts of a record stand in that of the keys.
        cells.sort_by_key(|(home, _)| home.slot);
        let records = cells.chunk_by(|(one, _), (other, _)| one.slot == other.slot);
        let count = u16::try_from(records.clone().count()).expect("no more than parts");
        let mut committed = None;
        for (ordinal, record) in (0..).zip(records) {
            let slot = record[0].0.slot;
            let cells: Vec<(u32, CellId)> = record
                .iter()
                .map(|&(KeyHome { hash, .. }, id)| (hash, id))
                .collect();
            let (lsn, version) = match count {
                1 => self.commit(now_us, slot, &cells),
                _ => self.commit_of_group(now_us, slot, &cells, Group { ordinal, count }),
            };
            let before = committed.map(|it: Committed| it.version);
            let version = before.filter(|_| slot != first).unwrap_or(version);
            committed = Some(Committed { lsn, version });
        }
        committed.expect("a change has a cell")
    }

    /// As [`Store::commit`], of a record of a group.
    fn commit_of_group(
        &mut self,
        now_us: u64,
        slot: u16,
        cells: &[(u32, CellId)],
        group: Group,
    ) -> (Lsn, Version) {
        let version = self.data.next_version(slot);
        let time_ms = self.data.time_ms();
        let (keys, keyspaces) = (&self.data.keys, &self.data.keyspaces);
        let mut areas = keys.areas_of(cells);
        let of_first = with_group(areas[0], group);
        areas[0] = &of_first;
        let mut parts = OfParts::of(spec_of(keys, keyspaces, slot, cells[0]), cells.len());
        for (into, &cell) in parts.iter_mut().zip(cells) {
            *into = spec_of(keys, keyspaces, slot, cell);
        }
        let record = RecordSpec {
            extension: &areas,
            ..RecordSpec::new(slot, version, time_ms, &parts)
        };
        if self.places.len() < cells.len() {
            self.places.resize(cells.len(), Place::default());
        }
        let lsn = self.log.append(now_us, &record, &mut self.places);
        self.note_commit((lsn, version, time_ms), slot, cells);
        (lsn, version)
    }

    /// The last record holds the present contents of these cells.
    #[inline(always)]
    fn note_commit(
        &mut self,
        (lsn, version, time_ms): (Lsn, Version, u64),
        slot: u16,
        cells: &[(u32, CellId)],
    ) {
        self.cleaning.note_record();
        if self.cleaning.bounds_writes() {
            let places = self.places[..cells.len()].iter();
            let bytes = places.map(|place| u64::from(place.bytes)).sum();
            self.cleaning.note_written(bytes);
        }
        if self.data.keyspaces.keeps_versions() {
            let cells = self.places.iter().copied().zip(cells.iter().copied());
            self.data.keep_versions(lsn, version, time_ms, slot, cells);
        }
        for (at, &(hash, id)) in cells.iter().enumerate() {
            self.note_change(lsn, version, KeyHome { slot, hash }, at, id);
        }
    }

    /// Logs a record. Where its parts stand is known until the next one.
    pub(crate) fn log_record(&mut self, now_us: u64, record: &RecordSpec<'_>) -> Lsn {
        self.cleaning.note_record();
        if self.places.len() < record.parts.len() {
            self.places.resize(record.parts.len(), Place::default());
        }
        // Also of a part that brings nothing newer, and so no cell: it is in the log.
        for part in record.parts {
            self.data.keys.note_kind(part.value_kind);
        }
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
        KeyHome { slot, hash }: KeyHome,
        ordinal: usize,
        id: CellId,
    ) {
        let place = self.places[ordinal];
        let mut packed = PackedPlace::new(place, version.sequence);
        if_planted! { Bug::PlaceOfFirstKey, ordinal > 0, packed = self.data.keys.cell(id).place() }
        let changed = self.data.keys.set_change(id, version, packed, Some(lsn));
        // A deletion counts like a value until it is durable and its entry leaves.
        match changed.expires() {
            false => self.data.live.moves(changed.before, place),
            true => {
                if let Some(old) = changed.before.place() {
                    self.data.live.loses(old);
                }
                self.data
                    .gains_expiring(place, KeyHome { slot, hash }, id, self.log.time_ms());
            }
        }
        if changed.is_deleted() {
            self.data.deletions.push_back((lsn, slot, hash, version));
        }
        self.data.note_changed(id);
    }
}

/// The part of a cell, which has this hash, in a record of its slot.
#[inline(always)]
fn spec_of<'a>(
    keys: &'a Keys,
    keyspaces: &Keyspaces,
    slot: u16,
    (hash, id): (u32, CellId),
) -> PartSpec<'a> {
    let cell = keys.cell(id);
    let layout = keyspaces.layout(slot, cell.key());
    part_of(cell, layout, keys.entries().is_crowded(slot, hash))
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
        value_kind: cell.value_kind(),
        expiry_ms: cell.expiry_ms(),
        // Members have no layout, whatever was said of the prefix since they came.
        layout: match cell.value_kind() {
            ValueKind::Plain => layout,
            ValueKind::Head => 0,
        },
        is_crowded,
    }
}
