//! Flushing a partition: one mark in the log, and all of its keys are gone.
//!
//! ```text
//!  Store::flush --> mark in the log, tables of the index taken away --> keys are gone
//!                                        |
//!                   durable: each turn a bounded step of clearing gives back cells and bytes
//! ```
//!
//! The rule is about places: *what stands before the mark in its log is gone*. The index has
//! nothing of the partition when the mark is appended, so whatever is appended behind it, copies of
//! cleaning included, belongs to a key that came later. A replay that meets the mark takes away
//! what it has met before.
//!
//! What must hold:
//! - the mark is never copied, so it stands where it was written: its segment is not cleaned while
//!   a segment stands before it. Of an inherited log, nothing stands before what is judged;
//! - while entries are not cleared they count in segments that they point to. So cleaning,
//!   snapshots and the removal of files rest until all are, which waits for the mark alone;
//! - tokens, the horizon and the redo records of the partition stay.

use crate::format::record::KindedValue;
use crate::format::system_key::FLUSH_VALUE;
use crate::if_planted;
use crate::log::room::{Purpose, Room};
use crate::planted::{Bug, is_planted};
use crate::store::commit::{Committed, NoRoom};
use crate::store::data::Data;
use crate::store::flush_marks::{Flushes, fall, keys_that_stay};
use crate::store::store::Store;
use crate::types::io::Blocks;
use crate::types::key_home::KeyHome;
use crate::types::place::{FileId, Lsn};
use crate::types::version::partition_of;

/// Entries that one step of clearing takes out, about: half a millisecond.
const CLEARED_A_TURN_MAX: usize = 2_048;

impl Data {
    /// Finds the marks in the index, once a start has filled it. Each key of `mark_keys` is that
    /// of the mark of a partition.
    pub fn find_marks<K: AsRef<[u8]>>(
        &mut self,
        mark_keys: impl Iterator<Item = K>,
        home_of: &impl Fn(&[u8]) -> KeyHome,
    ) {
        for key in mark_keys {
            let home = home_of(key.as_ref());
            let mark = self.keys.own_key(home, key.as_ref());
            self.flushes.marks[partition_of(home.slot)] = mark.map(|_| home);
        }
    }

    /// The flush marks.
    #[inline]
    #[must_use]
    pub fn flushes(&self) -> &Flushes {
        &self.flushes
    }

    /// Whether keys that a flush took away are to be cleared.
    #[inline]
    #[must_use]
    pub fn is_clearing(&self) -> bool {
        self.keys.is_clearing()
    }

    /// The files that have the newest mark of a partition: as long as something older than such a
    /// file is in the log, the mark must stay where it is.
    #[must_use]
    pub(crate) fn files_of_marks(&self) -> Vec<FileId> {
        if_planted!(Bug::FlushMarkMoved, return Vec::new());
        let marks = self.flushes.marks.iter().flatten();
        let parts = marks.flat_map(|home| self.keys.entries().candidates(home.slot, home.hash));
        let places = parts.filter_map(|part| self.keys.place_of(part.home));
        let mut files: Vec<FileId> = places.map(|place| place.file).collect();
        files.sort_unstable_by_key(|file| file.0);
        files.dedup();
        files
    }

    /// Whether the next turn has something to clear, with the log durable up to `durable`.
    #[inline]
    #[must_use]
    pub fn may_clear(&self, durable: Lsn) -> bool {
        self.is_clearing() && self.flushes.lsn <= durable
    }

    /// One step of clearing, if there is something to clear and the marks are durable. Whether
    /// a partition is cleared by now that was not before.
    pub(super) fn clear_flushed(&mut self, durable: Lsn) -> bool {
        if !self.may_clear(durable) {
            return false;
        }
        let before = self.keys.entries().partitions_to_clear();
        let live = &mut self.live;
        self.keys
            .clear(CLEARED_A_TURN_MAX, |place| live.loses(place));
        self.keys.entries().partitions_to_clear() < before
    }
}

impl<P: Blocks> Store<P> {
    /// Takes all keys of the partition away whose mark has this key, and logs the mark. `None`: the
    /// partition has no keys, and nothing is logged.
    ///
    /// # Errors
    /// [`NoRoom`]: nothing has changed. So it is while keys of an earlier flush of the partition
    /// are cleared and new ones are there; those of this partition are cleared next then.
    ///
    /// # Panics
    /// If a keyspace keeps versions: they are not found by this way.
    pub fn flush(
        &mut self,
        now_us: u64,
        mark: &[u8],
        home_of: &impl Fn(&[u8]) -> KeyHome,
    ) -> Result<Option<Committed>, NoRoom> {
        assert!(
            !self.data.keyspaces.keeps_versions(),
            "a past ends with its keyspace"
        );
        let home = home_of(mark);
        let partition = partition_of(home.slot);
        let keys = &mut self.data.keys;
        let stay = keys_that_stay(mark);
        let own_keys = stay.iter().map(Vec::as_slice).chain([mark]);
        let own = own_keys.filter(|key| keys.own_key(home_of(key), key).is_some());
        if keys.entries().keys_of(partition) == own.count() {
            self.data.flushes.count += 1;
            return Ok(None);
        }
        if keys.entries().has_fallen(partition) {
            keys.hasten(partition);
            return Err(NoRoom::Wait);
        }
        match self.room(Purpose::Keep, mark.len(), FLUSH_VALUE.len(), false) {
            Room::Yes => {}
            Room::Wait => return Err(NoRoom::Wait),
            Room::Full => return Err(NoRoom::Log),
        }
        fall(&mut self.data.keys, mark, home_of);
        let id = self
            .data
            .keys
            .insert(home, mark, KindedValue::plain(&FLUSH_VALUE), None);
        let (lsn, version) = self.commit(now_us, home.slot, &[(home.hash, id)]);
        self.data.flushes.marks[partition] = Some(home);
        self.data.flushes.lsn = lsn;
        self.data.flushes.count += 1;
        if let Some(removals) = &mut self.data.removals {
            removals.fall(partition, version.sequence);
        }
        Ok(Some(Committed { lsn, version }))
    }
}
