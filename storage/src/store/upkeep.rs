//! What a store has its cleaning do: each step is given the log and what is known of the keys.

use crate::if_planted;
use crate::planted::{Bug, is_planted};
use crate::store::cleaning::cleaner::RoomOnDisk;
use crate::store::cleaning::cleaning::{Cleaned, Cleaning};
use crate::store::cleaning::pace::Fill;
use crate::store::inheritance::{Inheritance, InheritedLog};
use crate::store::store::Store;
use crate::types::io::{Blocks, Io};
use crate::types::place::{FileId, Lsn};

impl<P: Blocks> Store<P> {
    /// The cleaning, and what it works on.
    fn parts(&mut self) -> (&mut Cleaning<P>, Cleaned<'_, P>) {
        let Store {
            cleaning,
            data,
            log,
            blocks,
            ..
        } = self;
        (cleaning, Cleaned { data, log, blocks })
    }

    /// One bounded step, once in each turn between two changes. `hash_of` is the shard's key hash.
    /// Whether it gave back memory that the log or a read may wait for.
    pub fn clean(
        &mut self,
        now_us: u64,
        hash_of: &impl Fn(&[u8]) -> u32,
        io: &mut Vec<Io<P::Block>>,
    ) -> bool {
        // Entries that are not cleared count where they point to.
        if self.data.is_clearing() {
            return false;
        }
        let (cleaning, mut store) = self.parts();
        cleaning.clean(&mut store, now_us, hash_of, io)
    }

    /// Cleans no more: the segment under way stays as it is. Whether that gave memory back.
    pub fn stop_cleaning(&mut self) -> bool {
        self.cleaning.stop(&mut self.log)
    }

    /// Tells what the log may have of the disk as it is now. To be told again as it changes: what
    /// grows is refused before the room is used up. Without it, that begins when a segment is
    /// refused.
    pub fn set_room(&mut self, room: RoomOnDisk) {
        self.cleaning.set_room(&mut self.log, room);
    }

    /// How near the log is to FULL if its segments may have `log_bytes` in all. What counts is
    /// summed over all segments, so this is for once in a while.
    #[must_use]
    pub fn fill(&self, log_bytes: u64) -> Fill {
        self.cleaning.fill(&self.data, &self.log, log_bytes)
    }

    /// Whether a new key for which the index has no room now is to wait, because cleaning takes out
    /// keys that have expired.
    #[must_use]
    pub fn waits_for_keys(&self) -> bool {
        self.cleaning.waits_for_keys(&self.data)
    }

    /// Lets the index point to the copies that are durable by now.
    pub fn settle_copies(&mut self) {
        let durable = self.log.durable();
        self.cleaning.apply_moves(&mut self.data, durable);
    }

    /// Up to which record copies were appended that may not be durable yet.
    pub fn moving_until(&mut self) -> Option<Lsn> {
        self.settle_copies();
        self.cleaning.last_move()
    }

    /// The next file that may be removed, because the log tells durably that it is released.
    pub fn take_removable(&mut self) -> Option<FileId> {
        if self.data.is_clearing() {
            return None;
        }
        let (cleaning, mut store) = self.parts();
        cleaning.take_removable(&mut store)
    }

    /// Takes `logs` over, oldest first, whose parts were replayed before those of the own log.
    pub fn inherit(&mut self, logs: &[InheritedLog]) {
        for InheritedLog {
            history, time_ms, ..
        } in logs
        {
            if_planted!(Bug::SequencesNotTakenOver, continue);
            self.data.numbering.raise(&history.sequences);
            self.log_mut().inherit(history, *time_ms);
        }
        self.cleaning.inheritance = Inheritance::of(logs);
    }

    /// Whether the inherited logs could vanish for all that this store needs of them. Between two
    /// changes.
    ///
    /// # Panics
    /// If the index points into one of them although all was judged.
    pub fn has_taken_over(&mut self) -> bool {
        if self.data.is_clearing() {
            return false;
        }
        let (cleaning, mut store) = self.parts();
        cleaning.has_taken_over(&mut store)
    }

    /// The inherited logs have vanished. Returns their files, to which nothing refers any more.
    pub fn forget_inherited(&mut self) -> Vec<FileId> {
        self.cleaning.forget_inherited(&mut self.data)
    }
}
