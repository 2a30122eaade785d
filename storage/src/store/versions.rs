//! The versions of keys in keyspaces that keep them: where each stands in the log, and since when.
//!
//! Every version that was written under such a keyspace has an entry here, the newest as well, and so
//! has the one that stood there when the keyspace began to keep versions, once it is superseded. Of the
//! newest the index owns the part; the parts of superseded ones are owned here and counted as
//! live. What is beyond the limits of its keyspace ([`Rule`]) is never shown, whether or not its entry is
//! still there; entries leave from the oldest on, a few with each change, a few in each turn, and when
//! cleaning meets their parts.
//!
//! What must hold: if a version is not kept, no older one of its key is, so the entries of a key are the
//! newest ones without a gap. Keys whose slot and 56 bits of hash are the same share their entries: then some are
//! dropped early, and a read that meets the part of the other key says that nothing is kept there.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::ops::RangeInclusive;

use crate::format::checksum::crc32;
use crate::format::record::{PartKind, PartView, SEQUENCE_MAX};
use crate::planted::{Bug, is_planted};
use crate::store::keyspace::{Keyspaces, Rule};
use crate::types::packed_place::PackedPlace;
use crate::types::place::FileId;
use crate::types::place::{Lsn, Place};
use crate::types::version::Version;

/// The entries of one key: an entry's number without its sequence and keyspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyId(u128);

const SLOT_SHIFT: u32 = 114;
const HASH_SHIFT: u32 = 82;
const CHECK_SHIFT: u32 = 58;
const SEQUENCE_SHIFT: u32 = 10;
const _: () = assert!(SEQUENCE_MAX >> (CHECK_SHIFT - SEQUENCE_SHIFT) == 0);
/// Bits of another hash of a key.
pub(crate) const CHECK_MAX: u32 = (1 << (HASH_SHIFT - CHECK_SHIFT)) - 1;
const KEYSPACE_MASK: u128 = (1 << SEQUENCE_SHIFT) - 1;

impl KeyId {
    pub(crate) fn new(slot: u16, hash: u32, key: &[u8]) -> Self {
        let check = crc32(key) & CHECK_MAX;
        KeyId(
            u128::from(slot) << SLOT_SHIFT
                | u128::from(hash) << HASH_SHIFT
                | u128::from(check) << CHECK_SHIFT,
        )
    }

    fn all(self) -> RangeInclusive<u128> {
        self.up_to(SEQUENCE_MAX)
    }

    fn up_to(self, sequence: u64) -> RangeInclusive<u128> {
        self.0..=self.number(sequence) | KEYSPACE_MASK
    }

    fn at(self, sequence: u64) -> RangeInclusive<u128> {
        self.number(sequence)..=self.number(sequence) | KEYSPACE_MASK
    }

    fn number(self, sequence: u64) -> u128 {
        assert!(sequence <= SEQUENCE_MAX, "sequence {sequence}");
        self.0 | u128::from(sequence) << SEQUENCE_SHIFT
    }

    fn of(number: u128) -> Self {
        KeyId(number >> CHECK_SHIFT << CHECK_SHIFT)
    }

    pub(crate) fn slot(self) -> u16 {
        u16::try_from(self.0 >> SLOT_SHIFT).expect("14 bits")
    }

    pub(crate) fn hash(self) -> u32 {
        u32::try_from(self.0 >> HASH_SHIFT & u128::from(u32::MAX)).expect("32 bits")
    }

    fn check(self) -> u32 {
        u32::try_from(self.0 >> CHECK_SHIFT & u128::from(CHECK_MAX)).expect("24 bits")
    }
}

/// A version of a key as a snapshot tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VersionEntry {
    /// The slot of the key.
    pub slot: u16,
    /// Its hash, as the index keeps it.
    pub hash: u32,
    /// The low 24 bits of its CRC-32.
    pub check: u32,
    /// The number of its keyspace.
    pub keyspace: u16,
    /// The version; its sequence has 48 bits.
    pub version: Version,
    /// It is a deletion.
    pub is_deletion: bool,
    /// Its part is a copy that names its successor.
    pub is_marked: bool,
    /// The version that took its place.
    pub successor: Option<Version>,
    /// When it was written, in unix milliseconds; 0 if that was before versions were kept.
    pub time_ms: u64,
    /// From when on it was gone by itself; 0 is never, or not known.
    pub expiry_ms: u64,
    /// Where its part stands.
    pub place: Place,
}

impl VersionEntry {
    /// What entries ascend by.
    #[must_use]
    pub fn order(&self) -> (u16, u32, u32, u64) {
        (self.slot, self.hash, self.check, self.version.sequence)
    }

    fn new(number: u128, entry: &Entry, successor: Option<Version>) -> Self {
        let id = KeyId::of(number);
        let kept = entry.version(number);
        VersionEntry {
            slot: id.slot(),
            hash: id.hash(),
            check: id.check(),
            keyspace: keyspace_of(number),
            version: kept.version,
            is_deletion: kept.is_deletion,
            is_marked: kept.is_marked,
            successor,
            time_ms: kept.time_ms,
            expiry_ms: kept.expiry_ms,
            place: kept.place,
        }
    }

    fn number(&self) -> u128 {
        let id = KeyId(
            u128::from(self.slot) << SLOT_SHIFT
                | u128::from(self.hash) << HASH_SHIFT
                | u128::from(self.check) << CHECK_SHIFT,
        );
        id.number(self.version.sequence) | u128::from(self.keyspace)
    }
}

fn keyspace_of(number: u128) -> u16 {
    u16::try_from(number & KEYSPACE_MASK).expect("10 bits")
}

/// One version of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptVersion {
    /// The version.
    pub version: Version,
    /// It is a deletion.
    pub is_deletion: bool,
    /// When it was written, in unix milliseconds; 0 if that is not known, for it was before versions were kept.
    pub time_ms: u64,
    /// From when on it was gone by itself; 0 is never, or not known.
    pub expiry_ms: u64,
    /// Where its part stands.
    pub place: Place,
    /// Its part may not be durable yet.
    pub is_young: bool,
    /// Its bytes are counted as live on behalf of this entry.
    pub(crate) is_counted: bool,
    /// Its part is a copy that names its successor already.
    pub(crate) is_marked: bool,
}

/// An entry as it is stored: 24 bytes, and 16 for its number.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// The place, with flags where an index entry has bits of the sequence.
    place: PackedPlace,
    /// 48 bits of time, the high 16 of the expiry.
    time: u64,
    /// The low 32 bits of the expiry, the epoch.
    rest: u64,
}

const FLAG_DELETION: u64 = 1;
const FLAG_COUNTED: u64 = 2;
const FLAG_YOUNG: u64 = 4;
const FLAG_MARKED: u64 = 8;

impl Entry {
    fn new(version: &KeptVersion) -> Self {
        let flag = |is_set, flag| if is_set { flag } else { 0 };
        let flags = flag(version.is_deletion, FLAG_DELETION)
            | flag(version.is_counted, FLAG_COUNTED)
            | flag(version.is_young, FLAG_YOUNG)
            | flag(version.is_marked, FLAG_MARKED);
        Entry {
            place: PackedPlace::new(version.place, flags),
            time: version.time_ms << 16 | version.expiry_ms >> 32,
            rest: version.expiry_ms << 32 | u64::from(version.version.epoch),
        }
    }

    fn version(&self, number: u128) -> KeptVersion {
        let flags = self.place.bits() & u64::from(u8::MAX);
        let sequence = number >> SEQUENCE_SHIFT & u128::from(SEQUENCE_MAX);
        KeptVersion {
            version: Version {
                epoch: u32::try_from(self.rest & u64::from(u32::MAX)).expect("32 bits"),
                sequence: u64::try_from(sequence).expect("48 bits"),
            },
            is_deletion: flags & FLAG_DELETION != 0,
            time_ms: self.time >> 16,
            expiry_ms: (self.time & 0xFFFF) << 32 | self.rest >> 32,
            place: self.place.place().expect("a version has a place"),
            is_young: flags & FLAG_YOUNG != 0,
            is_counted: flags & FLAG_COUNTED != 0,
            is_marked: flags & FLAG_MARKED != 0,
        }
    }
}

/// The kept versions of one shard.
#[derive(Debug, Default)]
pub(crate) struct Versions {
    /// By slot, hash, more bits of another hash, sequence, and the number of a keyspace.
    entries: BTreeMap<u128, Entry>,
    /// Entries whose part is not durable yet, in log order.
    young: VecDeque<(Lsn, u128)>,
    /// Where the next look for what is not kept any more begins.
    next: u128,
    /// By file, what copies of the parts of these entries take beside the bytes of those parts that are
    /// counted as live.
    copies: Vec<Copies>,
}

/// What copies of kept parts of one file take more than values that the index points to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Copies {
    /// Parts that name their successor only when they are copied.
    pub(crate) unmarked: u64,
    /// Bytes of deletions, which are kept also where nothing older stands.
    pub(crate) deletion_bytes: u64,
}

impl Copies {
    fn of(version: &KeptVersion) -> Copies {
        let is_owned = version.is_counted || version.is_deletion;
        Copies {
            unmarked: u64::from(is_owned && !version.is_marked),
            deletion_bytes: match version.is_deletion {
                true => u64::from(version.place.bytes),
                false => 0,
            },
        }
    }
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

    /// What copies of the kept parts of a file take beside those that are live.
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

    fn put(&mut self, number: u128, version: &KeptVersion) {
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

    fn take(&mut self, number: u128) -> Option<KeptVersion> {
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

    /// The newest version of a key, at `place`, is superseded; its part is owned here from now on,
    /// unless it is a deletion. Whether it is a deletion; `was_deletion` says so of one that has no entry:
    /// it was written before versions were kept, or was let go with all before it. `lsn` is that of the
    /// version that supersedes.
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
                    // A longer prefix took the key over; what is kept of it is that one's to say.
                    self.take(known);
                    self.young.push_back((lsn, number));
                }
                superseded
            }
            // Nothing before it is kept, so neither is it: its time is not known here, and it must not be
            // told of times when something was there that was let go.
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

    /// The newest entry of a key for which `is_then` holds, which holds for all older ones from `oldest`
    /// on as well.
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

    /// The entries of a key from `oldest` on whose sequences are below `before` (0: all), the newest first.
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

    /// Takes the entries of a key out up to a sequence, the oldest first, so that there is never a gap, and
    /// tells those whose bytes were counted. At most `left`, which falls with each; whether all are out.
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

    /// Looks at the next few entries; `is_current` says whether the newest part of a key stands there.
    /// A key is not known here, only the keyspace under which it was entered: what a longer prefix took over
    /// stays as long as the shorter one says, though nothing of it is shown, until its key changes,
    /// cleaning meets it, or a start.
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

    /// The part of a version stands at `to` now; `Some` if it stood at `from`, with whether its bytes
    /// are counted on behalf of its entry. `is_marked` if the copy names its successor.
    pub(crate) fn moved(
        &mut self,
        id: KeyId,
        sequence: u64,
        (from, to): (Place, Place),
        is_marked: bool,
    ) -> Option<bool> {
        let (number, mut version) = self.get(id, sequence)?;
        if version.place != from || is_planted(Bug::MoveForgetsVersion) {
            return None;
        }
        version.place = to;
        version.is_marked |= is_marked;
        self.put(number, &version);
        Some(version.is_counted)
    }
}

/// The versions of a log while they are collected from it: every one of a key whose keyspace keeps
/// versions, until it is clear that it is not kept.
#[derive(Debug, Default)]
pub(crate) struct Collected {
    versions: Versions,
    /// What copies tell of the versions that they are of.
    copies: HashMap<u128, Copied>,
    entries_max: usize,
    /// Some came from a snapshot, perhaps under the keyspace of a shorter prefix.
    has_restored: bool,
    /// The last that came from a snapshot, and what took its place.
    restored: Option<(u128, Option<Version>)>,
    /// Keys that a snapshot tells of and that are known to have changed behind it.
    begun: HashSet<u128>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Copied {
    /// This version took its place.
    SupersededBy(Version),
    /// Nothing is kept of it, and nothing before it.
    Silent,
}

impl Collected {
    pub(crate) fn memory_bytes(&self) -> usize {
        let copy_bytes = size_of::<(u128, Copied)>() + 1;
        self.versions.memory_bytes()
            + self.copies.capacity() * copy_bytes
            + self.begun.capacity() * (size_of::<u128>() + 1)
    }

    /// Takes in what a snapshot tells, in its order; not if its segment `is_gone`.
    pub(crate) fn restore(&mut self, entry: &VersionEntry, is_gone: bool) {
        self.has_restored = true;
        let number = entry.number();
        if let Some((before, successor)) = self.restored.take()
            && (is_gone || KeyId::of(before) != KeyId::of(number))
        {
            self.end_key(before, successor);
        }
        if is_gone {
            // If it still counted it is found behind the position.
            self.begun.insert(KeyId::of(number).0);
            return;
        }
        self.restored = Some((number, entry.successor));
        let version = KeptVersion {
            version: entry.version,
            is_deletion: entry.is_deletion,
            time_ms: entry.time_ms,
            expiry_ms: entry.expiry_ms,
            place: entry.place,
            is_young: false,
            is_counted: false,
            is_marked: entry.is_marked,
        };
        self.versions.put(number, &version);
    }

    /// What a snapshot tells of a key is interrupted or ends here. What took the place of the version is found
    /// behind the position, or the version is not kept.
    fn end_key(&mut self, number: u128, successor: Option<Version>) {
        if let Some(successor) = successor {
            self.copies.insert(number, Copied::SupersededBy(successor));
            self.begun.insert(KeyId::of(number).0);
        }
    }

    /// Takes out the versions of a key if all that are known so far were written by `since`.
    pub(crate) fn forget_before(&mut self, id: KeyId, since: Version) {
        let newest = self.versions.newest(id).map(|newest| newest.version);
        if newest.is_some_and(|version| version <= since) {
            let mut left = usize::MAX;
            self.versions
                .remove_through(id, SEQUENCE_MAX, &mut left, |_| {});
        }
    }

    /// Whether this is the first version of a key behind a snapshot that tells of the key.
    pub(crate) fn begins(&mut self, id: KeyId) -> bool {
        if let Some((number, successor)) = self.restored.take() {
            self.end_key(number, successor);
        }
        let is_told = self.versions.newest(id).is_some();
        is_told && self.begun.insert(id.0)
    }

    /// Whether the newest version of a key that is known so far stands there.
    pub(crate) fn is_newest_at(&self, id: KeyId, place: Place) -> bool {
        self.versions
            .newest(id)
            .is_some_and(|newest| newest.place == place)
    }

    /// Takes in the version of a key that stood there when versions began to be kept.
    pub(crate) fn take_first(&mut self, id: KeyId, rule: Rule, part: &PartView<'_>, place: Place) {
        let number = id.number(part.sequence()) | u128::from(rule.number);
        self.begun.insert(id.0);
        self.versions.put(number, &version_of(part, place));
    }

    /// Takes in a part of a key of the keyspace with this number. Of copies the last counts: what it was
    /// made from is about to be released.
    pub(crate) fn take(
        &mut self,
        keyspaces: &Keyspaces,
        keyspace: u16,
        now_ms: u64,
        hash: u32,
        part: &PartView<'_>,
        place: Place,
    ) {
        let id = KeyId::new(part.slot(), hash, part.key());
        let number = id.number(part.sequence()) | u128::from(keyspace);
        if self.has_restored
            && let Some((known, _)) = self.versions.get(id, part.sequence())
            && known != number
        {
            self.versions.take(known);
            if let Some(copied) = self.copies.remove(&known) {
                self.copies.insert(number, copied);
            }
        }
        let version = version_of(part, place);
        self.versions.put(number, &version);
        let copied = match part.successor() {
            _ if part.is_superseded() && version.is_deletion => Some(Copied::Silent),
            successor => successor.map(Copied::SupersededBy),
        };
        if let Some(copied) = copied {
            self.copies.insert(number, copied);
        }
        if self.versions.len() > self.entries_max {
            self.judge(keyspaces, now_ms, None::<&fn(KeyId, Place) -> bool>, |_| {});
            self.entries_max = 2 * self.versions.len() + COLLECTED_MAX;
        }
    }

    /// The versions that are kept. `is_current` says whether the newest part of a key stands there;
    /// the places of the others are handed to `counted`.
    pub(crate) fn finish(
        mut self,
        keyspaces: &Keyspaces,
        now_ms: u64,
        is_current: &impl Fn(KeyId, Place) -> bool,
        counted: impl FnMut(Place),
    ) -> Versions {
        if let Some((number, successor)) = self.restored.take() {
            self.end_key(number, successor);
        }
        self.judge(keyspaces, now_ms, Some(is_current), counted);
        self.versions
    }

    /// Takes out what is not kept, as far as it is clear: all of it, if it is known what is current.
    fn judge(
        &mut self,
        keyspaces: &Keyspaces,
        now_ms: u64,
        is_current: Option<&impl Fn(KeyId, Place) -> bool>,
        mut counted: impl FnMut(Place),
    ) {
        let mut group: Vec<(u128, KeptVersion)> = Vec::new();
        let mut next = Some(0);
        while let Some(from) = next
            && let Some((&first, _)) = self.versions.entries.range(from..).next()
        {
            let id = KeyId::of(first);
            next = id.all().end().checked_add(1);
            let versions = self.versions.entries.range(id.all()).rev();
            group.clear();
            group.extend(versions.map(|(&number, entry)| (number, entry.version(number))));
            // That of the newest: a longer prefix may have taken the key over since the older ones.
            let keyspace = group.first().map_or(0, |&(newest, _)| keyspace_of(newest));
            let rule = keyspaces.rule_of(keyspace, id.slot());
            let mut kept = match rule {
                Some(rule) => {
                    let is_all = is_current.is_some();
                    kept_of(&self.copies, &group, rule, now_ms, is_all)
                }
                None => 0,
            };
            if let Some(is_current) = is_current {
                let older = group.iter().take(kept).skip(1);
                let of_two = older.clone().position(|(_, it)| is_current(id, it.place));
                kept = of_two.map_or(kept, |at| at + 1);
                // One of before the history of its keyspace needs no entry, and nothing before it is kept.
                let since = rule.map_or(Version::default(), |rule| rule.since.version);
                let is_there = |(_, newest): &(u128, KeptVersion)| match newest.is_deletion {
                    true => kept > 1,
                    false => newest.version > since && is_current(id, newest.place),
                };
                if !group.first().is_some_and(is_there) {
                    kept = 0;
                }
                for (number, version) in group.iter_mut().take(kept).skip(1) {
                    let is_taken_over =
                        keyspace_of(*number) != keyspace && !is_planted(Bug::KeepOldKeyspace);
                    if is_taken_over {
                        self.versions.take(*number);
                        *number = id.number(version.version.sequence) | u128::from(keyspace);
                    }
                    if !version.is_deletion {
                        version.is_counted = true;
                        counted(version.place);
                    }
                    if is_taken_over || version.is_counted {
                        self.versions.put(*number, version);
                    }
                }
            }
            for (number, _) in &group[kept..] {
                self.versions.take(*number);
                self.copies.remove(number);
            }
        }
    }
}

fn version_of(part: &PartView<'_>, place: Place) -> KeptVersion {
    KeptVersion {
        version: Version {
            epoch: part.epoch(),
            sequence: part.sequence(),
        },
        is_deletion: part.kind() == PartKind::Tombstone,
        time_ms: part.time_ms(),
        expiry_ms: part.expiry_ms().unwrap_or(0),
        place,
        is_young: false,
        is_counted: false,
        is_marked: part.successor().is_some(),
    }
}

/// How many of the versions of a key, the newest first, are kept. What a copy tells of its successor
/// says nothing before all versions are there.
fn kept_of(
    copies: &HashMap<u128, Copied>,
    group: &[(u128, KeptVersion)],
    rule: Rule,
    now_ms: u64,
    is_all: bool,
) -> usize {
    let mut newer: Option<&KeptVersion> = None;
    let mut rank = 0;
    for (at, (number, version)) in group.iter().enumerate() {
        let successor = match copies.get(number) {
            Some(Copied::Silent) => return at,
            Some(Copied::SupersededBy(successor)) if is_all => Some(*successor),
            _ => None,
        };
        if successor.is_some_and(|it| newer.is_none_or(|newer| newer.version != it)) {
            return at;
        }
        if let Some(newer) = newer {
            rank += 1;
            if !rule.keeps(rank, newer.version, newer.time_ms, now_ms) {
                return at;
            }
        }
        newer = Some(version);
    }
    group.len()
}

/// Versions that are collected beyond twice those that stay, at most.
const COLLECTED_MAX: usize = 65_536;
/// Entries of a key that one change takes out, at most.
const TRIMMED_MAX: usize = 4;
/// Entries that are looked at in a turn.
const SWEPT_MAX: usize = 8;
/// Entries that are taken out in a turn because of those, at most.
const REMOVED_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::keyspace::Since;

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
