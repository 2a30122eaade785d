//! Places of the log that requests were answered CORRUPT or IO for. Each is told once, so that one
//! rotten value that is asked for all day is one line in the server's log and not a million.

use std::collections::HashSet;

use penstock_net::status::Status;
use penstock_storage::key_home::KeyHome;
use penstock_storage::place::FileId;
use penstock_storage::place::Place;

/// Places that are remembered, at most. Those beyond are neither told nor counted until files of
/// remembered ones leave the log.
const PLACES_MAX: usize = 1024;

/// A place that does not hold what was written, or cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadPlace {
    /// The file.
    pub file: FileId,
    /// Where its part begins, in bytes.
    pub offset: u64,
    /// The slot of the key that was asked for.
    pub slot: u16,
    /// The hash of that key as the index keeps it. It depends on a secret, so it does not tell the
    /// key.
    pub hash: u32,
    /// What the request was answered: CORRUPT or IO.
    pub status: Status,
    /// No more places are told for now.
    pub is_last: bool,
}

/// The places that a shard has told.
#[derive(Debug, Default)]
pub(crate) struct BadPlaces {
    reported: HashSet<(FileId, u64)>,
    /// Not handed out yet.
    found: Vec<BadPlace>,
    count: u64,
}

impl BadPlaces {
    /// A request for a key of `home`, slot and hash, was answered `status` because of `place`.
    pub(crate) fn note(&mut self, KeyHome { slot, hash }: KeyHome, place: Place, status: Status) {
        if self.reported.len() >= PLACES_MAX || !self.reported.insert((place.file, place.offset)) {
            return;
        }
        self.count += 1;
        self.found.push(BadPlace {
            file: place.file,
            offset: place.offset,
            slot,
            hash,
            status,
            is_last: self.reported.len() == PLACES_MAX,
        });
    }

    /// The places that were found since the last call.
    pub(crate) fn take(&mut self) -> impl Iterator<Item = BadPlace> {
        self.found.drain(..)
    }

    /// A file leaves the log.
    pub(crate) fn forget(&mut self, file: FileId) {
        self.reported.retain(|&(reported, _)| reported != file);
    }

    /// How many were told.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(file: u32, offset: u64) -> Place {
        Place::new(FileId(file), offset, 56)
    }

    const HOME: KeyHome = KeyHome::new(7, 42);

    #[test]
    fn a_place_is_reported_once_until_its_file_leaves_and_no_more_than_can_be_remembered() {
        let mut places = BadPlaces::default();
        places.note(HOME, place(1, 4160), Status::Corrupt);
        places.note(HOME, place(1, 4160), Status::Corrupt);
        let taken: Vec<_> = places.take().collect();
        let expected = BadPlace {
            file: FileId(1),
            offset: 4160,
            slot: 7,
            hash: 42,
            status: Status::Corrupt,
            is_last: false,
        };
        assert_eq!(taken, [expected]);
        places.forget(FileId(1));
        places.note(HOME, place(1, 4160), Status::Io);
        assert_eq!((places.take().count(), places.count()), (1, 2));
        for number in 0..2 * PLACES_MAX as u64 {
            places.note(KeyHome::default(), place(2, number * 8), Status::Corrupt);
        }
        let taken: Vec<_> = places.take().collect();
        assert_eq!(taken.len(), PLACES_MAX - 1);
        let last = taken.iter().filter(|place| place.is_last);
        assert_eq!(last.count(), 1);
        assert!(taken[PLACES_MAX - 2].is_last);
    }
}
