//! Where the newest flush marks stand, and what a mark takes away.

use crate::format::record::PartView;
use crate::format::system_key::{FLUSH_VALUE, HORIZON_KEY, flush_tag, is_flush, redo_keys};
use crate::memory::keys::Keys;
use crate::types::key_home::KeyHome;
use crate::types::place::Lsn;
use crate::types::version::{PARTITIONS, partition_of};

/// The flush marks of a store.
#[derive(Debug)]
pub struct Flushes {
    /// By partition: where the index has the newest mark.
    pub(super) marks: Box<[Option<KeyHome>; PARTITIONS]>,
    /// The newest mark of this run.
    pub(super) lsn: Lsn,
    /// How many flushes this run has carried out, those that found no key among them.
    pub(super) count: u64,
}

impl Default for Flushes {
    fn default() -> Self {
        Flushes {
            marks: Box::new([None; PARTITIONS]),
            lsn: Lsn(0),
            count: 0,
        }
    }
}

impl Flushes {
    /// The newest mark of this run: who sees a key missing may see its work.
    #[inline]
    #[must_use]
    pub fn lsn(&self) -> Lsn {
        self.lsn
    }

    /// How many flushes this run has carried out, those that found no key among them.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Marks that are keys of the index.
    #[must_use]
    pub(crate) fn marks(&self) -> usize {
        self.marks.iter().flatten().count()
    }

    /// Whether a key of this slot and hash is a mark.
    pub(crate) fn is_mark(&self, home: KeyHome) -> bool {
        self.marks[partition_of(home.slot)] == Some(home)
    }

    /// A key of this slot and hash has left the index.
    pub(crate) fn forget(&mut self, home: KeyHome) {
        let mark = &mut self.marks[partition_of(home.slot)];
        mark.take_if(|mark| *mark == home);
    }
}

/// Takes the keys of the partition away whose mark has this key. Its horizon and its redo records
/// stay. A node alone has no other key of its own in the index but tokens, and a node of a cluster
/// flushes nothing.
///
/// # Panics
/// If it is no key of a mark.
pub(crate) fn fall(keys: &mut Keys, mark: &[u8], home_of: &impl Fn(&[u8]) -> KeyHome) {
    let stay = keys_that_stay(mark);
    let stay: Vec<(KeyHome, &[u8])> = stay.iter().map(|key| (home_of(key), &key[..])).collect();
    keys.fall(partition_of(home_of(mark).slot), &stay);
}

/// The keys of the horizon and of the redo records of the partition whose mark has this key.
///
/// # Panics
/// If it is no key of a mark.
pub(crate) fn keys_that_stay(mark: &[u8]) -> Vec<Vec<u8>> {
    let tag = flush_tag(mark).expect("the key of a mark");
    let redo = redo_keys([tag[0], tag[1]]).map(|key| key.to_vec());
    std::iter::once([HORIZON_KEY, tag, b"}"].concat())
        .chain(redo)
        .collect()
}

/// Whether a part takes away what stands before it: a mark where it was written.
#[inline]
#[must_use]
pub(crate) fn flushes(part: &PartView<'_>) -> bool {
    is_flush(part.key()) && !part.is_copy() && part.value() == FLUSH_VALUE
}
