//! What a shard does beside requests: snapshots of its index, sweeps over deadlines, horizons of
//! tokens, and the places that it tells people about.

use penstock_net::status::Status;
use penstock_storage::key_home::KeyHome;
use penstock_storage::place::{FileId, Place};

use crate::bad_places::{BadPlace, BadPlaces};
use crate::snapshots::Snapshots;
use crate::tokens::TokenChore;

/// Between two looks at the deadlines of connections and operations, in microseconds.
const SWEEP_US: u64 = 100_000;

/// The state of these chores.
pub(crate) struct Chores {
    /// When and how the index is written to a file.
    pub(crate) snapshots: Snapshots,
    /// When horizons of tokens are looked at.
    pub(crate) tokens: TokenChore,
    bad_places: BadPlaces,
    /// Items that had run at the end of the last turn.
    items_before: u64,
    next_sweep_us: u64,
}

impl Chores {
    pub(crate) fn new(snapshots: Snapshots) -> Self {
        Chores {
            snapshots,
            tokens: TokenChore::default(),
            bad_places: BadPlaces::default(),
            items_before: 0,
            next_sweep_us: 0,
        }
    }

    /// A request for a key of `home`, slot and hash, is answered `status` because of `place`.
    pub(crate) fn note_bad_place(&mut self, home: KeyHome, place: Place, status: Status) {
        self.bad_places.note(home, place, status);
    }

    /// A file leaves the log.
    pub(crate) fn forget_file(&mut self, file: FileId) {
        self.bad_places.forget(file);
    }

    /// Bad places that were not told yet.
    pub(crate) fn take_bad_places(&mut self) -> impl Iterator<Item = BadPlace> {
        self.bad_places.take()
    }

    /// How many were told.
    pub(crate) fn bad_places(&self) -> u64 {
        self.bad_places.count()
    }

    /// How many items ran in this turn, if so many have run in all.
    pub(crate) fn ran(&mut self, items: u64) -> u64 {
        items - std::mem::replace(&mut self.items_before, items)
    }

    /// Whether the deadlines are to be looked at now. Then the next look is due one period later.
    pub(crate) fn begins_sweep(&mut self, now_us: u64) -> bool {
        let is_due = now_us >= self.next_sweep_us;
        if is_due {
            self.next_sweep_us = now_us + SWEEP_US;
        }
        is_due
    }

    /// When the deadlines are to be looked at next.
    pub(crate) fn next_sweep_us(&self) -> u64 {
        self.next_sweep_us
    }
}
