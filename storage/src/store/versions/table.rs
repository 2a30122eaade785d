//! The versions of keys in keyspaces that keep them: where each stands in the log, and since when.
//!
//! Every version that was written under such a keyspace has an entry here, the newest as well, and
//! so has the one that stood there when the keyspace began to keep versions, once it is superseded.
//! The index owns the part of the newest version. The table owns the parts of superseded versions
//! and counts them as live. A version beyond the limits of its keyspace ([`Rule`]) is never shown,
//! even while its entry is still there. Entries leave from the oldest on: a few with each change, a
//! few in each turn, and when cleaning meets their parts.
//!
//! What must hold: if a version is not kept, no older one of its key is, so the entries of a key
//! are the newest ones without a gap. Keys whose slot and 56 bits of hash are the same share their
//! entries: then some are dropped early, and a read that meets the part of the other key says that
//! nothing is kept there.

use crate::format::record::SEQUENCE_MAX;
use crate::store::keyspace::keyspaces::Keyspaces;
use crate::store::keyspace::rule::Rule;
use crate::store::versions::copies::Copies;
use crate::store::versions::entry::Entry;
use crate::store::versions::entry::KEYSPACE_MASK;
use crate::store::versions::entry::KeptVersion;
use crate::store::versions::entry::KeyId;
use crate::store::versions::entry::VersionEntry;
use crate::store::versions::entry::keyspace_of;
use crate::types::place::FileId;
use crate::types::place::{Lsn, Place};
use crate::types::version::Version;
use std::collections::{BTreeMap, VecDeque};

/// The kept versions of one shard.
#[derive(Debug, Default)]
pub(crate) struct Versions {
    /// By slot, hash, more bits of another hash, sequence, and the number of a keyspace.
    pub(super) entries: BTreeMap<u128, Entry>,
    /// Entries whose part is not durable yet, in log order.
    young: VecDeque<(Lsn, u128)>,
    /// Where the next look for what is not kept any more begins.
    pub(super) next: u128,
    /// By file, what copies of the parts of these entries take beside the bytes of those parts that
    /// are counted as live.
    pub(super) copies: Vec<Copies>,
}

/// About what an entry takes in a tree that is filled in no order.
const ENTRY_BYTES: usize = 60;

impl Versions {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.entries.len() * ENTRY_BYTES
            + self.young.capacity() * size_of::<(Lsn, u128)>()
            + self.copies.capacity() * size_of::<Copies>()
    }

    /// Visits so many entries from `from` on. Where to go on, or `None` at the end.
    pub(crate) fn walk(
        &self,
        from: u128,
        entries: usize,
        visit: &mut impl FnMut(VersionEntry),
    ) -> Option<u128> {
        let mut left = self.entries.range(from..).peekable();
        for _ in 0..entries {
            let (&number, entry) = left.next()?;
            let next = left
                .peek()
                .filter(|&&(&next, _)| KeyId::of(next) == KeyId::of(number));
            let successor = next.map(|&(&next, entry)| entry.version(next).version);
            visit(VersionEntry::new(number, entry, successor));
        }
        left.next().map(|(&number, _)| number)
    }

    /// Bytes that copies of a file's kept parts will take, apart from live parts.
    pub(crate) fn copies(&self, file: FileId) -> Copies {
        let copies = self.copies.get(file.0 as usize);
        copies.copied().unwrap_or_default()
    }

    fn copies_mut(&mut self, file: FileId) -> &mut Copies {
        let at = file.0 as usize;
        if at >= self.copies.len() {
            self.copies.resize(at + 1, Copies::default());
        }
        &mut self.copies[at]
    }

    pub(super) fn put(&mut self, number: u128, version: &KeptVersion) {
        let entry = Entry::new(version);
        let before = self.entries.insert(number, entry);
        self.leaves(number, before);
        // As it will leave: an entry rounds lengths.
        let version = &entry.version(number);
        let Copies {
            unmarked,
            deletion_bytes,
        } = Copies::of(version);
        let copies = self.copies_mut(version.place.file);
        copies.unmarked += unmarked;
        copies.deletion_bytes += deletion_bytes;
    }

    pub(super) fn take(&mut self, number: u128) -> Option<KeptVersion> {
        let entry = self.entries.remove(&number);
        self.leaves(number, entry)
    }

    fn leaves(&mut self, number: u128, entry: Option<Entry>) -> Option<KeptVersion> {
        let version = entry?.version(number);
        let Copies {
            unmarked,
            deletion_bytes,
        } = Copies::of(&version);
        let copies = self.copies_mut(version.place.file);
        copies.unmarked -= unmarked;
        copies.deletion_bytes -= deletion_bytes;
        Some(version)
    }

    /// The entries of a key whose sequences are within these bounds.
    fn between(
        &self,
        id: KeyId,
        oldest: u64,
        newest: u64,
    ) -> impl DoubleEndedIterator<Item = KeptVersion> {
        let numbers = id.number(oldest)..=id.number(newest) | KEYSPACE_MASK;
        let entries = self.entries.range(numbers);
        entries.map(|(&number, entry)| entry.version(number))
    }

    /// A version was appended as the newest of its key.
    pub(crate) fn note(&mut self, id: KeyId, keyspace: u16, lsn: Lsn, version: &KeptVersion) {
        let number = id.number(version.version.sequence) | u128::from(keyspace);
        self.put(number, version);
        self.young.push_back((lsn, number));
    }

    /// Notes that the newest version of a key, at `place`, is superseded. The table owns its part
    /// from now on, unless it is a deletion. Returns whether it is a deletion. `was_deletion`
    /// answers that for a version without an entry, which was written before versions were kept, or
    /// dropped with all before it. `lsn` is that of the superseding version.
    pub(crate) fn supersede(
        &mut self,
        id: KeyId,
        keyspace: u16,
        lsn: Lsn,
        (version, place): (Version, Place),
        was_deletion: impl FnOnce() -> bool,
    ) -> bool {
        let number = id.number(version.sequence) | u128::from(keyspace);
        let mut superseded = match self.get(id, version.sequence) {
            Some((known, superseded)) => {
                if known != number {
                    // A keyspace with a longer prefix has taken the key over. From now on its
                    // settings decide which versions are kept.
                    self.take(known);
                    self.young.push_back((lsn, number));
                }
                superseded
            }
            // No version before this deletion is kept, so the deletion is not kept, either. Its
            // time is not known here, and it must not answer for times at which the key had a value
            // that was dropped.
            None if was_deletion() => return true,
            None => {
                // Written before versions were kept, but perhaps only just.
                self.young.push_back((lsn, number));
                KeptVersion {
                    version,
                    is_deletion: false,
                    time_ms: 0,
                    expiry_ms: 0,
                    place,
                    is_young: true,
                    is_counted: false,
                    is_marked: false,
                }
            }
        };
        superseded.is_counted = !superseded.is_deletion;
        superseded.place = place;
        self.put(number, &superseded);
        superseded.is_deletion
    }

    /// What was not durable and is now.
    pub(crate) fn settle(&mut self, durable: Lsn) {
        while let Some(&(lsn, number)) = self.young.front() {
            if lsn > durable {
                break;
            }
            self.young.pop_front();
            if let Some(entry) = self.entries.get_mut(&number) {
                let version = KeptVersion {
                    is_young: false,
                    ..entry.version(number)
                };
                *entry = Entry::new(&version);
            }
        }
    }

    pub(crate) fn get(&self, id: KeyId, sequence: u64) -> Option<(u128, KeptVersion)> {
        let (&number, entry) = self.entries.range(id.at(sequence)).next()?;
        Some((number, entry.version(number)))
    }

    /// Whether a key has more entries than this.
    pub(crate) fn has_more_than(&self, id: KeyId, count: usize) -> bool {
        self.entries.range(id.all()).nth(count).is_some()
    }

    /// The newest entry of a key.
    pub(crate) fn newest(&self, id: KeyId) -> Option<KeptVersion> {
        self.between(id, 0, SEQUENCE_MAX).next_back()
    }

    /// The oldest entry of a key that is kept; the newest one always is.
    pub(crate) fn oldest_kept(&self, id: KeyId, rule: Rule, now_ms: u64) -> Option<KeptVersion> {
        let ends = |rank: u32, newer: &KeptVersion| {
            !rule.keeps(rank, newer.version, newer.time_ms, now_ms)
        };
        if rule.versions == 0 {
            // Time and versions rise together.
            let ended_by = self.newest_where(id, 0, |newer| ends(1, newer));
            return ended_by.or_else(|| self.between(id, 0, SEQUENCE_MAX).next());
        }
        let mut oldest = None;
        for (rank, version) in (0..).zip(self.between(id, 0, SEQUENCE_MAX).rev()) {
            if oldest.is_some_and(|newer| ends(rank, &newer)) {
                break;
            }
            oldest = Some(version);
        }
        oldest
    }

    /// The newest entry of a key for which `is_then` holds, which holds for all older ones from
    /// `oldest` on as well.
    pub(crate) fn newest_where(
        &self,
        id: KeyId,
        oldest: u64,
        is_then: impl Fn(&KeptVersion) -> bool,
    ) -> Option<KeptVersion> {
        let (mut low, mut high) = (oldest, self.newest(id)?.version.sequence + 1);
        let mut found = None;
        while low < high {
            let middle = low + (high - low) / 2;
            match self.between(id, low, middle).next_back() {
                Some(version) if is_then(&version) => {
                    found = Some(version);
                    low = middle + 1;
                }
                Some(version) => high = version.version.sequence,
                None => low = middle + 1,
            }
        }
        found
    }

    /// The entries of a key from `oldest` on whose sequences are below `before` (0: all), the
    /// newest first.
    pub(crate) fn newer(
        &self,
        id: KeyId,
        oldest: u64,
        before: u64,
    ) -> impl Iterator<Item = KeptVersion> {
        let newest = match before {
            0 => SEQUENCE_MAX,
            _ => SEQUENCE_MAX.min(before - 1),
        };
        let entries = (newest >= oldest).then(|| self.between(id, oldest, newest));
        entries.into_iter().flatten().rev()
    }

    /// The version that took the place of a kept one; `None` if it is not kept, or the newest.
    pub(crate) fn successor(
        &self,
        id: KeyId,
        rule: Rule,
        now_ms: u64,
        sequence: u64,
    ) -> Option<KeptVersion> {
        let newer = self
            .entries
            .range(id.number(sequence) | KEYSPACE_MASK..=*id.all().end())
            .map(|(&number, entry)| entry.version(number))
            .find(|version| version.version.sequence > sequence)?;
        let (number, _) = self.get(id, sequence)?;
        let rank = self.rank(number, rule);
        rule.keeps(rank, newer.version, newer.time_ms, now_ms)
            .then_some(newer)
    }

    /// Whether the newest entry of a key is a deletion from which something older is kept.
    pub(crate) fn needs_deletion(&self, id: KeyId, rule: Rule, now_ms: u64, sequence: u64) -> bool {
        let mut entries = self
            .entries
            .range(id.up_to(sequence))
            .rev()
            .map(|(&number, entry)| entry.version(number));
        let (Some(deletion), Some(_)) = (entries.next(), entries.next()) else {
            return false;
        };
        deletion.is_deletion && rule.keeps(1, deletion.version, deletion.time_ms, now_ms)
    }

    /// How many entries of its key are newer; counting ends behind the limit.
    fn rank(&self, number: u128, rule: Rule) -> u32 {
        if rule.versions == 0 {
            return 1;
        }
        let newer = number + 1..=*KeyId::of(number).all().end();
        let count = self
            .entries
            .range(newer)
            .take(usize::from(rule.versions) + 1)
            .count();
        u32::try_from(count).expect("at most 256")
    }

    /// Takes the entries of a key out up to a sequence, the oldest first, so that there is never a
    /// gap, and tells those whose bytes were counted. At most `left`, which falls with each;
    /// whether all are out.
    pub(crate) fn remove_through(
        &mut self,
        id: KeyId,
        sequence: u64,
        left: &mut usize,
        mut uncounted: impl FnMut(Place),
    ) -> bool {
        while let Some((&number, _)) = self.entries.range(id.up_to(sequence)).next() {
            if *left == 0 {
                return false;
            }
            *left -= 1;
            if let Some(version) = self.take(number).filter(|version| version.is_counted) {
                uncounted(version.place);
            }
        }
        true
    }

    /// Takes entries of a partition out, at most so many, and tells those whose bytes were counted.
    /// Whether all are out.
    pub(crate) fn forget(
        &mut self,
        partition: usize,
        most: usize,
        mut uncounted: impl FnMut(Place),
    ) -> bool {
        let all = KeyId::all_of(partition);
        for _ in 0..most {
            let Some((&number, _)) = self.entries.range(all.clone()).next() else {
                // An entry of another past may get the number of one of these.
                self.young.retain(|(_, number)| !all.contains(number));
                return true;
            };
            if let Some(version) = self.take(number).filter(|version| version.is_counted) {
                uncounted(version.place);
            }
        }
        false
    }

    /// Takes the oldest entries of a key out that are not kept any more, a few at a time.
    pub(crate) fn trim(
        &mut self,
        id: KeyId,
        rule: Rule,
        now_ms: u64,
        mut uncounted: impl FnMut(Place),
    ) {
        for _ in 0..TRIMMED_MAX {
            let mut oldest = self.entries.range(id.all());
            let (Some((&number, entry)), Some((&newer, newer_entry))) =
                (oldest.next(), oldest.next())
            else {
                return;
            };
            let (version, newer) = (entry.version(number), newer_entry.version(newer));
            let rank = self.rank(number, rule);
            if rule.keeps(rank, newer.version, newer.time_ms, now_ms) {
                return;
            }
            self.take(number);
            if version.is_counted {
                uncounted(version.place);
            }
        }
    }

    /// Looks at the next few entries; `is_current` says whether the newest part of a key stands
    /// there. A key is not known here, only the keyspace under which it was entered: what a longer
    /// prefix took over stays as long as the shorter one says, though nothing of it is shown, until
    /// its key changes, cleaning meets it, or a start.
    pub(crate) fn sweep(
        &mut self,
        keyspaces: &Keyspaces,
        now_ms: u64,
        is_current: impl Fn(KeyId, Place) -> bool,
        mut uncounted: impl FnMut(Place),
    ) {
        let mut left = REMOVED_MAX;
        for _ in 0..SWEPT_MAX {
            let Some((&number, entry)) = self.entries.range(self.next..).next() else {
                self.next = 0;
                return;
            };
            self.next = number + 1;
            let version = entry.version(number);
            let id = KeyId::of(number);
            let keyspace = keyspace_of(number);
            let rule = keyspaces.rule_of(keyspace, id.slot());
            let is_newest = self
                .entries
                .range(number + 1..=*id.all().end())
                .next()
                .is_none();
            let sequence = version.version.sequence;
            let is_kept = match (rule, is_newest) {
                (None, _) => false,
                (Some(rule), true) if version.is_deletion => {
                    self.needs_deletion(id, rule, now_ms, sequence)
                }
                (Some(_), true) => is_current(id, version.place),
                (Some(rule), false) => self.successor(id, rule, now_ms, sequence).is_some(),
            };
            if !is_kept && !self.remove_through(id, sequence, &mut left, &mut uncounted) {
                self.next = number;
                return;
            }
        }
    }

    /// The part of a version stands at `to` now; `Some` if it stood at `from`, with whether its
    /// bytes are counted on behalf of its entry. `is_marked` if the copy names its successor.
    pub(crate) fn moved(
        &mut self,
        id: KeyId,
        sequence: u64,
        (from, to): (Place, Place),
        is_marked: bool,
    ) -> Option<bool> {
        let (number, mut version) = self.get(id, sequence)?;
        if version.place != from {
            return None;
        }
        version.place = to;
        version.is_marked |= is_marked;
        self.put(number, &version);
        Some(version.is_counted)
    }
}

/// Entries of a key that one change takes out, at most.
const TRIMMED_MAX: usize = 4;

/// Entries that are looked at in a turn.
const SWEPT_MAX: usize = 8;

/// Entries that are taken out in a turn because of those, at most.
const REMOVED_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::keyspace::settings::Since;

    const NOW_MS: u64 = 10_000;

    fn noted(id: KeyId, times_ms: &[u64]) -> Versions {
        let mut versions = Versions::default();
        for (sequence, &time_ms) in (1..).zip(times_ms) {
            let version = Version {
                epoch: 1,
                sequence: 3 * sequence,
            };
            let place = Place::new(FileId(1), sequence * 8, 56);
            if sequence > 1 {
                let before = versions.newest(id).expect("there is one");
                versions.supersede(id, 0, Lsn(1), (before.version, before.place), || false);
            }
            let kept = KeptVersion {
                version,
                is_deletion: false,
                time_ms,
                expiry_ms: 0,
                place,
                is_young: false,
                is_counted: false,
                is_marked: false,
            };
            versions.note(id, 0, Lsn(1), &kept);
        }
        versions
    }

    fn rule(versions: u8, retention_ms: u64, since: u64) -> Rule {
        let version = Version {
            epoch: 1,
            sequence: since,
        };
        let since = Since {
            version,
            time_ms: 0,
        };
        Rule {
            versions,
            retention_ms,
            since,
            number: 0,
        }
    }

    #[test]
    fn what_is_found_by_halves_is_what_a_walk_over_all_versions_finds() {
        let id = KeyId::new(7, 8, b"key");
        for count in 0..40 {
            let times_ms: Vec<u64> = (0..count).map(|at| 9_000 + at / 3 * 20).collect();
            let versions = noted(id, &times_ms);
            let all: Vec<KeptVersion> = versions.newer(id, 0, 0).collect();
            assert_eq!(all.len() as u64, count);
            for (most, retention_ms, since) in [
                (0, 1, 0),
                (0, 800, 0),
                (0, 5_000, 0),
                (0, 5_000, 31),
                (3, 0, 0),
                (3, 900, 0),
                (255, 0, 60),
            ] {
                let rule = rule(most, retention_ms, since);
                let walked = all.windows(2).zip(1..).take_while(|(pair, rank)| {
                    rule.keeps(*rank, pair[0].version, pair[0].time_ms, NOW_MS)
                });
                let oldest = walked.map(|(pair, _)| pair[1]).last();
                let oldest = oldest.or_else(|| all.first().copied());
                assert_eq!(versions.oldest_kept(id, rule, NOW_MS), oldest, "{rule:?}");
                let from = oldest.map_or(0, |oldest| oldest.version.sequence);
                for ms in 8_990..9_300 {
                    let is_then = |it: &KeptVersion| it.time_ms <= ms;
                    let kept = all.iter().filter(|it| it.version.sequence >= from);
                    let then = kept.clone().find(|it| is_then(it)).copied();
                    assert_eq!(versions.newest_where(id, from, is_then), then);
                }
                for before in 0..130 {
                    let kept = all.iter().filter(|it| it.version.sequence >= from);
                    let below = kept.filter(|it| before == 0 || it.version.sequence < before);
                    assert!(versions.newer(id, from, before).eq(below.copied()));
                }
            }
        }
    }

    #[test]
    fn a_long_past_that_is_not_kept_leaves_bit_by_bit_from_its_oldest_end() {
        let id = KeyId::new(7, 8, b"key");
        let mut versions = noted(id, &[9_000; 2_000]);
        let keyspaces = Keyspaces::default();
        let mut uncounted = 0;
        let mut turns = 0;
        while !versions.is_empty() {
            let before = versions.len();
            versions.sweep(&keyspaces, NOW_MS, |_, _| true, |_| uncounted += 1);
            assert!(before - versions.len() <= REMOVED_MAX);
            let left: Vec<KeptVersion> = versions.newer(id, 0, 0).collect();
            let sequences = left.iter().map(|it| it.version.sequence);
            assert!(
                sequences
                    .rev()
                    .eq((1..=2_000).map(|at| 3 * at).skip(2_000 - left.len()))
            );
            turns += 1;
            assert!(turns < 2_000);
        }
        assert_eq!(uncounted, 1_999, "the index owns the newest");
        // In the middle of a key too, as when cleaning meets it.
        let mut versions = noted(id, &[9_000; 2_000]);
        let mut left = 100;
        assert!(!versions.remove_through(id, 3 * 1_000, &mut left, |_| {}));
        assert_eq!((left, versions.len()), (0, 1_900));
        left = 1_000;
        assert!(versions.remove_through(id, 3 * 1_000, &mut left, |_| {}));
        assert_eq!((left, versions.len()), (100, 1_000));
    }

    #[test]
    fn what_copies_take_follows_the_parts_of_which_they_are_made() {
        let id = KeyId::new(7, 8, b"key");
        let mut versions = noted(id, &[9_000; 4]);
        let copies = |unmarked| Copies {
            unmarked,
            deletion_bytes: 0,
        };
        assert_eq!(versions.copies(FileId(1)), copies(3));
        let from = versions.get(id, 3).expect("the oldest").1.place;
        let to = Place::new(FileId(9), 8, 88);
        assert_eq!(versions.moved(id, 3, (from, to), true), Some(true));
        assert_eq!(versions.copies(FileId(1)), copies(2));
        assert_eq!(versions.copies(FileId(9)), copies(0), "it is marked");
        versions.remove_through(id, 12, &mut 100, |_| {});
        assert_eq!(versions.copies(FileId(1)), copies(0));
    }
}
