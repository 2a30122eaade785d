//! Versions of keys that are kept, as commits note them and readers ask for them.

use crate::memory::index::entry::CellId;
use crate::planted::{Bug, is_planted};
use crate::store::data::Data;
use crate::store::keyspace::rule::Rule;
use crate::store::store::Store;
use crate::store::versions::entry::{KeptVersion, KeyId, VersionEntry};
use crate::types::io::Blocks;
use crate::types::key_home::KeyHome;
use crate::types::place::{Lsn, Place};
use crate::types::version::Version;

/// A point in the history of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// Unix milliseconds.
    TimeMs(u64),
    /// The newest version that is not newer than this.
    Version(Version),
}

/// What is known of a key as it was, without a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WasAt {
    /// The key had this version. If the version is superseded, its part has to be read.
    Version(KeptVersion),
    /// The key was missing.
    Missing,
    /// The version of that time is not kept.
    NotKept {
        /// The oldest version that is kept, if there is one.
        oldest: Option<KeptVersion>,
        /// From when on every version is known that is not beyond the count, in unix milliseconds.
        /// 0 if the keyspace keeps none.
        from_ms: u64,
    },
}

/// What is kept of a key.
enum Past {
    /// The newest version, which was there when versions began to be kept, and nothing before it.
    Newest(KeptVersion),
    /// The entries of the key from this one on.
    Entries(KeyId, Option<KeptVersion>),
}

impl Data {
    /// Notes the versions that a commit wrote, each with the place of its part, before the cells
    /// get them. The superseded parts stay live.
    #[cold]
    pub(crate) fn keep_versions(
        &mut self,
        lsn: Lsn,
        version: Version,
        time_ms: u64,
        slot: u16,
        cells: impl Iterator<Item = (Place, (u32, CellId))>,
    ) {
        for (place, (hash, id)) in cells {
            let cell = self.keys.cell(id);
            let Some(rule) = self.keyspaces.rule(slot, cell.key()) else {
                continue;
            };
            let key = KeyId::new(slot, hash, cell.key());
            let since = rule.since.version;
            if let Some(old) = cell.place().place() {
                let before = (self.keys.cells().version(id), old);
                let written = (slot, hash, before.0);
                let mut deletions = self.deletions.iter();
                let is_deletion = self.versions.supersede(key, rule.number, lsn, before, || {
                    deletions.any(|&(_, slot, hash, version)| (slot, hash, version) == written)
                });
                match is_deletion {
                    true => self.live.gains_tombstone(old),
                    // The commit is about to say that nothing needs it.
                    false => self.live.gains(old),
                }
            } else if self
                .versions
                .newest(key)
                .is_some_and(|newest| newest.version <= since)
                && !is_planted(Bug::BridgeGap)
            {
                // What was there when versions began to be kept has been deleted without a trace
                // here: to older ones, which may not be swept away yet, this one would seem to have
                // followed. Each was written once, so this is no more work than that was.
                let mut left = usize::MAX;
                let live = &mut self.live;
                self.versions
                    .remove_through(key, since.sequence, &mut left, |place| live.loses(place));
            }
            let kept = KeptVersion {
                version,
                is_deletion: cell.is_deleted(),
                time_ms,
                expiry_ms: cell.expiry_ms().unwrap_or(0),
                place,
                is_young: true,
                is_counted: false,
                is_marked: false,
            };
            self.versions.note(key, rule.number, lsn, &kept);
            let live = &mut self.live;
            self.versions
                .trim(key, rule, time_ms, |place| live.loses(place));
        }
    }

    #[cold]
    pub(super) fn settle_versions(&mut self, durable: Lsn) {
        self.versions.settle(durable);
        let now_ms = self.time_ms();
        let (keys, live) = (&self.keys, &mut self.live);
        self.versions.sweep(
            &self.keyspaces,
            now_ms,
            |id, place| keys.stands_at(id.home(), place),
            |place| live.loses(place),
        );
    }

    /// Visits the versions that are known in keyspaces that keep them, also some that are not kept
    /// any more: by slot and hash, those of a key from the oldest to the newest.
    pub fn versions(&self, visit: &mut impl FnMut(VersionEntry)) {
        self.versions.walk(0, usize::MAX, visit);
    }
}

impl<P: Blocks> Store<P> {
    /// What is known without a read of a key as it was then. `current` is its cell, if it has one.
    #[must_use]
    pub fn version_at(
        &self,
        KeyHome { slot, hash }: KeyHome,
        key: &[u8],
        current: Option<CellId>,
        at: At,
    ) -> WasAt {
        let Some(rule) = self.data.keyspaces.rule(slot, key) else {
            return WasAt::NotKept {
                oldest: None,
                from_ms: 0,
            };
        };
        let not_kept = |oldest| WasAt::NotKept {
            oldest,
            from_ms: rule.complete_from_ms(self.data.time_ms()),
        };
        let Some(past) = self.past_of(KeyHome { slot, hash }, key, current, rule) else {
            return not_kept(None);
        };
        let is_then = |version: &KeptVersion| match at {
            // What stood there when versions began to be kept has no time here.
            At::TimeMs(ms) => {
                let since_ms = match version.time_ms {
                    0 => rule.since.time_ms,
                    _ => 0,
                };
                version.time_ms.max(since_ms) <= ms
            }
            At::Version(at) => version.version <= at,
        };
        let (then, oldest, superseded) = match past {
            Past::Newest(newest) => (Some(newest).filter(is_then), Some(newest), 0),
            Past::Entries(_, None) => (None, None, 0),
            Past::Entries(id, Some(oldest)) => {
                let from = oldest.version.sequence;
                let then = self.data.versions.newest_where(id, from, is_then);
                let entries = self.data.versions.newer(id, from, 0);
                let superseded = entries.skip(1).take(usize::from(rule.versions)).count();
                (then, Some(oldest), superseded)
            }
        };
        if let Some(then) = then {
            return WasAt::Version(then);
        }
        // No older version was dropped if fewer than the limit are there and none was too old.
        let is_complete = (rule.versions == 0 || superseded < usize::from(rule.versions))
            && match at {
                At::TimeMs(ms) => ms >= rule.complete_from_ms(self.data.time_ms()),
                At::Version(at) => rule.retention_ms == 0 && at >= rule.since.version,
            };
        match is_complete {
            true => WasAt::Missing,
            false => not_kept(oldest),
        }
    }

    /// The versions of a key that are kept and whose sequence is below `before` (0: all), the
    /// newest first. `None` if its keyspace keeps none.
    #[must_use]
    pub fn history(
        &self,
        KeyHome { slot, hash }: KeyHome,
        key: &[u8],
        current: Option<CellId>,
        before: u64,
    ) -> Option<impl Iterator<Item = KeptVersion>> {
        let rule = self.data.keyspaces.rule(slot, key)?;
        let (newest, entries) = match self.past_of(KeyHome { slot, hash }, key, current, rule)? {
            Past::Newest(newest) => (Some(newest), None),
            Past::Entries(id, oldest) => (None, oldest.map(|oldest| (id, oldest))),
        };
        let entries = entries.map(|(id, oldest)| {
            self.data
                .versions
                .newer(id, oldest.version.sequence, before)
        });
        let newest = newest.filter(|it| before == 0 || it.version.sequence < before);
        Some(newest.into_iter().chain(entries.into_iter().flatten()))
    }

    /// `None` if another key with the same hash has entries here, or took those of this one along.
    fn past_of(
        &self,
        KeyHome { slot, hash }: KeyHome,
        key: &[u8],
        current: Option<CellId>,
        rule: Rule,
    ) -> Option<Past> {
        let id = KeyId::new(slot, hash, key);
        let newest = self.data.versions.newest(id);
        match (current, newest) {
            (Some(id), newest) => {
                let (cell, version) = (self.data.keys.cell(id), self.data.keys.cells().version(id));
                if newest.is_some_and(|newest| newest.version > version) {
                    return None;
                }
                let lacks_entry = newest.is_none_or(|newest| newest.version < version);
                let is_older = version <= rule.since.version;
                if lacks_entry && !is_older && !cell.is_deleted() {
                    // It had an entry, which left with those of a key of the same hash.
                    return None;
                }
                // No earlier version is kept then. A deletion leaves with the last version that it
                // ended.
                if lacks_entry
                    && is_older
                    && let Some(place) = cell.place().place()
                {
                    return Some(Past::Newest(KeptVersion {
                        version,
                        is_deletion: cell.is_deleted(),
                        time_ms: 0,
                        expiry_ms: cell.expiry_ms().unwrap_or(0),
                        place,
                        is_young: self.data.keys.cells().lsn(id) > self.log.durable(),
                        is_counted: false,
                        is_marked: false,
                    }));
                }
            }
            // It was deleted while no versions were kept.
            (None, Some(newest)) if !newest.is_deletion => return None,
            (None, _) => {}
        }
        let oldest = self
            .data
            .versions
            .oldest_kept(id, rule, self.data.time_ms());
        Some(Past::Entries(id, oldest))
    }

    /// Takes note that more of the log is durable, for those who wait for a version to be in a
    /// file.
    pub fn settle_young(&mut self) {
        self.data.versions.settle(self.log.durable());
    }
}
