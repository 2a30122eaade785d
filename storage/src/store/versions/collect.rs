//! Collects the versions of keys while a log is replayed.

use crate::format::record::{PartKind, PartView, SEQUENCE_MAX};
use crate::planted::{Bug, is_planted};
use crate::store::keyspace::keyspaces::Keyspaces;
use crate::store::keyspace::rule::Rule;
use crate::store::versions::entry::KeptVersion;
use crate::store::versions::entry::KeyId;
use crate::store::versions::entry::VersionEntry;
use crate::store::versions::entry::keyspace_of;
use crate::store::versions::table::Versions;
use crate::types::place::Place;
use crate::types::version::Version;
use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

/// The versions that are collected while a log is replayed. A version of a key whose keyspace keeps
/// versions stays here until it is clear that the limits drop it.
#[derive(Debug, Default)]
pub(crate) struct Collected {
    pub(super) versions: Versions,
    /// What copies tell of the versions that they are of.
    pub(super) copies: HashMap<u128, Copied>,
    entries_max: usize,
    /// Some came from a snapshot, perhaps under the keyspace of a shorter prefix.
    has_restored: bool,
    /// The last that came from a snapshot, and what took its place.
    restored: Option<(u128, Option<Version>)>,
    /// Keys of the snapshot that are known to have changed behind it.
    begun: HashSet<u128>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Copied {
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

    /// What a snapshot tells of a key is interrupted or ends here. What took the place of the
    /// version is found behind the position, or the version is not kept.
    fn end_key(&mut self, number: u128, successor: Option<Version>) {
        if let Some(successor) = successor {
            self.copies.insert(number, Copied::SupersededBy(successor));
            self.begun.insert(KeyId::of(number).0);
        }
    }

    /// Takes out what is known so far of the keys of a partition, which a flush took away. What is
    /// taken in behind its mark belongs to keys that came later.
    pub(crate) fn fall(&mut self, partition: usize) {
        // Nothing of a snapshot follows: the mark stands behind it.
        if let Some((number, successor)) = self.restored.take() {
            self.end_key(number, successor);
        }
        let all = KeyId::all_of(partition);
        let copies = &mut self.copies;
        while let Some((&number, _)) = self.versions.entries.range(all.clone()).next() {
            self.versions.take(number);
            copies.remove(&number);
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
        let is_known = self.versions.newest(id).is_some();
        is_known && self.begun.insert(id.0)
    }

    /// Whether the newest version of a key that is known so far stands there.
    pub(crate) fn is_newest_at(&self, id: KeyId, place: Place) -> bool {
        self.versions
            .newest(id)
            .is_some_and(|newest| newest.place == place)
    }

    /// Whether this version of a key is known so far.
    pub(crate) fn has(&self, id: KeyId, version: Version) -> bool {
        let known = self.versions.get(id, version.sequence);
        known.is_some_and(|(_, known)| known.version == version)
    }

    /// Takes in the version of a key that stood there when versions began to be kept.
    pub(crate) fn take_first(&mut self, id: KeyId, rule: Rule, part: &PartView<'_>, place: Place) {
        let number = id.number(part.sequence()) | u128::from(rule.number);
        self.begun.insert(id.0);
        self.versions.put(number, &version_of(part, place));
    }

    /// Takes in a part of a key of the keyspace with this number. Of copies the last counts: what
    /// it was made from is about to be released.
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
        if keyspaces.floor(part.slot()).is_some() && !self.makes_place(id, part.version()) {
            return;
        }
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

    /// Whether this version is to be taken in. A version of another epoch may have the same
    /// sequence. Then the version of the lower epoch has diverged, and leaves the table.
    fn makes_place(&mut self, id: KeyId, version: Version) -> bool {
        let Some((number, known)) = self.versions.get(id, version.sequence) else {
            return true;
        };
        if known.version < version {
            self.versions.take(number);
            self.copies.remove(&number);
        }
        known.version <= version
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

    /// Takes out what is not kept, as far as it is clear: all of it, if it is known what is
    /// current.
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
            let known = match keyspaces.floor(id.slot()) {
                Some(floor) => known_of(&mut group, floor, is_current.is_some()),
                None => group.len(),
            };
            // The keyspace of the newest version counts: a longer prefix may have taken the key
            // over since the older ones.
            let keyspace = group.first().map_or(0, |&(newest, _)| keyspace_of(newest));
            let rule = keyspaces.rule_of(keyspace, id.slot());
            let mut kept = match rule {
                Some(rule) => {
                    let is_all = is_current.is_some();
                    kept_of(&self.copies, &group[..known], rule, now_ms, is_all)
                }
                None => 0,
            };
            if let Some(is_current) = is_current {
                let older = group.iter().take(kept).skip(1);
                let of_two = older.clone().position(|(_, it)| is_current(id, it.place));
                kept = of_two.map_or(kept, |at| at + 1);
                // One of before the history of its keyspace needs no entry, and nothing before it
                // is kept.
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

/// Versions that are collected beyond twice those that stay, at most.
const COLLECTED_MAX: usize = 65_536;

/// Puts the versions of a key into their order, the newest first. How many of them are known on a
/// node that got the partition without its past up to the floor: those behind the floor, and the
/// newest one up to it. Older ones may have diverged, or have been gone in between. A deletion up
/// to the floor is none that happened then: it may stand for a key that a scan did not bring.
fn known_of(group: &mut [(u128, KeptVersion)], floor: Version, is_all: bool) -> usize {
    group.sort_unstable_by_key(|(_, it)| Reverse(it.version));
    let behind = group.partition_point(|(_, it)| it.version > floor);
    match group.get(behind) {
        // One that is younger may come as long as not all are there.
        Some((_, newest)) if !is_all || !newest.is_deletion => behind + 1,
        _ => behind,
    }
}

/// How many of the versions of a key, the newest first, are kept. What a copy tells of its
/// successor says nothing before all versions are there.
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
