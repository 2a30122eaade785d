//! Keyspaces: prefixes of keys with settings of their own, and the log records that keep them.
//!
//! The settings of a keyspace stand in the log once for each partition that the shard owns, as a
//! put under a key that no client can use, so that they move and are copied with their partition.
//! What is in force for a key is what the newest such record of its partition says; of several
//! prefixes the longest counts. These records are in no index: their places are kept here.
//!
//! What must hold: a record that says that more versions are kept than the one before it begins
//! their history anew, with its own version ([`Since`]): of older versions nobody knows which are
//! gone. On a node of a cluster no history begins below the floor of its partition ([`Floor`]). A
//! keyspace that was dropped stays as a record, because it tells since when the shorter prefix is
//! in force for its keys.

use crate::format::record::PartView;
use crate::format::system_key::is_system;
use crate::store::keyspace::first_bytes::FirstBytes;
use crate::store::keyspace::floor::{Floor, Floors};
use crate::store::keyspace::rule::Rule;
use crate::store::keyspace::settings::{
    KEYSPACES_MAX, Record, SETTINGS_BYTES, Settings, SettingsEntry, Since, prefix_of,
};
use crate::types::place::Place;
use crate::types::version::{PARTITIONS, Version, partition_of};

/// The settings of a keyspace in one partition, and the record that says so.
#[derive(Clone, Copy, Debug)]
struct InForce {
    pub(super) settings: Settings,
    pub(super) since: Since,
    pub(super) version: Version,
    place: Place,
}

#[derive(Debug)]
struct Keyspace {
    /// Never another one's while the store is open.
    number: u16,
    prefix: Box<[u8]>,
    /// The longest other prefix that this one begins with.
    parent: Option<usize>,
    /// The settings with the highest revision that was heard of.
    newest: Settings,
    /// The same of those that stand in a record, here or at another shard.
    recorded: Settings,
    /// What is in force in each partition; nothing where another shard's keys are, or where the
    /// first record was not written yet.
    partitions: Box<[Option<Box<InForce>>]>,
    /// In how many partitions the settings in force are not those of a dropped keyspace.
    ruling: usize,
}

/// All keyspaces of one shard.
#[derive(Debug, Default)]
pub struct Keyspaces {
    /// By prefix, ascending.
    keyspaces: Vec<Keyspace>,
    /// Records in force.
    written: usize,
    /// Records in force that say that versions are kept.
    keeping: usize,
    /// Records in force that mark values with a layout.
    marking: usize,
    /// How the prefixes of settings in force begin.
    first_bytes: FirstBytes,
    prefix_bytes: usize,
    /// How often a record had newer settings of its prefix than any before.
    found: u64,
    /// From when on this node knows the past of each partition.
    floors: Floors,
}

impl Keyspace {
    /// Some record has these settings; whether none had newer ones.
    fn note_record(&mut self, settings: Settings) -> bool {
        if settings.outranks(&self.newest) {
            self.newest = settings;
        }
        let is_news = settings.outranks(&self.recorded);
        if is_news {
            self.recorded = settings;
        }
        is_news
    }

    fn first_behind(&self, mut partitions: impl Iterator<Item = usize>) -> Option<usize> {
        partitions.find(|&partition| match &self.partitions[partition] {
            None => self.newest.revision > 0,
            Some(in_force) => self.newest.outranks(&in_force.settings),
        })
    }
}

/// A record of settings took or left a place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Replaced {
    pub(crate) gained: Option<Place>,
    pub(crate) lost: Option<Place>,
    /// Other settings are in force now, and some keep versions: what has expired may be kept for
    /// longer than it was to be.
    pub(crate) keeps_others: bool,
}

/// Why a keyspace cannot be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyspaceError {
    /// There are [`KEYSPACES_MAX`] of them.
    TooMany,
}

impl Keyspaces {
    /// Whether no prefix has settings.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keyspaces.is_empty()
    }

    /// Whether settings may be in force for a key. `false` is certain: no prefix in force begins as
    /// the key does. `true` is not: [`Keyspaces::of`] tells more.
    #[inline(always)]
    #[must_use]
    pub fn may_rule(&self, key: &[u8]) -> bool {
        self.first_bytes.may_begin(key)
    }

    /// A number that rises when a record of the log has newer settings than any before: at a start,
    /// of another node, or of this one. Partitions that this node writes may be behind them.
    #[inline]
    #[must_use]
    pub fn found(&self) -> u64 {
        self.found
    }

    /// Whether any versions are kept.
    #[inline]
    #[must_use]
    pub fn keeps_versions(&self) -> bool {
        self.keeping > 0
    }

    /// Bytes of memory.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.keyspaces.capacity() * size_of::<Keyspace>()
            + self.keyspaces.len() * PARTITIONS * size_of::<Option<Box<InForce>>>()
            + self.written * size_of::<InForce>()
            + self.prefix_bytes
    }

    /// The keyspace of a key, and its settings.
    #[inline]
    #[must_use]
    pub fn of(&self, slot: u16, key: &[u8]) -> Option<(&[u8], &Settings)> {
        if !self.may_rule(key) {
            return None;
        }
        self.matching(self.longest(key), partition_of(slot), key)
            .find(|(_, in_force)| !in_force.settings.is_dropped)
            .map(|(keyspace, in_force)| (&*keyspace.prefix, &in_force.settings))
    }

    /// The settings that are in force for some key of a slot that begins with this prefix.
    pub fn within<'a>(&'a self, slot: u16, prefix: &'a [u8]) -> impl Iterator<Item = &'a Settings> {
        let partition = partition_of(slot);
        let is_before = |keyspace: &Keyspace| &*keyspace.prefix <= prefix;
        let longer = self.keyspaces.partition_point(is_before);
        let longer = self.keyspaces[longer..]
            .iter()
            .take_while(move |keyspace| keyspace.prefix.starts_with(prefix))
            .filter_map(move |keyspace| keyspace.partitions[partition].as_deref())
            .filter(|in_force| !in_force.settings.is_dropped);
        let own = self.matching(self.longest(prefix), partition, prefix);
        let mut own = own.map(|(_, in_force)| in_force);
        let own = own.find(|in_force| !in_force.settings.is_dropped);
        own.into_iter().chain(longer).map(|it| &it.settings)
    }

    /// The layout that values of a key are marked with.
    #[inline]
    pub(crate) fn layout(&self, slot: u16, key: &[u8]) -> u16 {
        if self.marking == 0 || is_system(key) {
            return 0;
        }
        self.of(slot, key)
            .map_or(0, |(_, settings)| settings.layout)
    }

    /// The rule by which versions of a key are kept. `None` if none are.
    #[inline]
    #[must_use]
    pub fn rule(&self, slot: u16, key: &[u8]) -> Option<Rule> {
        // What is the store's own has no past, whatever the prefix.
        if !self.keeps_versions() || !self.may_rule(key) || is_system(key) {
            return None;
        }
        self.rule_from(self.longest(key), partition_of(slot), key)
    }

    /// Takes in what the newest local record of a partition tells. Whether the past of the
    /// partition is known from elsewhere on than before.
    pub(crate) fn set_floor(&mut self, partition: usize, local: &[u8]) -> bool {
        self.floors.set(partition, Floor::read(local))
    }

    /// The version up to which a partition came without its past.
    pub(crate) fn floor(&self, slot: u16) -> Option<Version> {
        match self.floors.of(partition_of(slot)) {
            Floor::At(since) => Some(since.version),
            Floor::Begin | Floor::Unknown => None,
        }
    }

    /// The rule for the keys of the prefix with this number.
    pub(crate) fn rule_of(&self, number: u16, slot: u16) -> Option<Rule> {
        let at = self.keyspaces.iter().position(|k| k.number == number)?;
        let prefix = &self.keyspaces[at].prefix;
        self.rule_from(Some(at), partition_of(slot), prefix)
    }

    fn rule_from(&self, longest: Option<usize>, partition: usize, key: &[u8]) -> Option<Rule> {
        let mut since = match self.floors.of(partition) {
            Floor::Begin => Since::default(),
            Floor::At(since) => since,
            Floor::Unknown => return None,
        };
        let mut number = None;
        for (keyspace, in_force) in self.matching(longest, partition, key) {
            since = since.max(in_force.since);
            let number = *number.get_or_insert(keyspace.number);
            let settings = &in_force.settings;
            if !settings.is_dropped {
                return settings.keeps_versions().then_some(Rule {
                    versions: settings.versions,
                    retention_ms: settings.retention_ms,
                    since,
                    number,
                });
            }
        }
        None
    }

    /// Where the longest prefix of a key stands, or one that begins with it: what is no prefix of
    /// the key but stands between the longest one and the key in order begins with the longest one.
    #[inline]
    fn longest(&self, key: &[u8]) -> Option<usize> {
        self.keyspaces
            .partition_point(|keyspace| &*keyspace.prefix <= key)
            .checked_sub(1)
    }

    /// What is in force for the prefixes of a key, the longest first.
    fn matching(
        &self,
        longest: Option<usize>,
        partition: usize,
        key: &[u8],
    ) -> impl Iterator<Item = (&Keyspace, &InForce)> {
        let mut next = longest;
        std::iter::from_fn(move || {
            while let Some(at) = next {
                let keyspace = &self.keyspaces[at];
                next = keyspace.parent;
                if key.starts_with(&keyspace.prefix)
                    && let Some(in_force) = &keyspace.partitions[partition]
                {
                    return Some((keyspace, &**in_force));
                }
            }
            None
        })
    }

    /// Every prefix with the newest settings heard of, dropped ones included.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &Settings)> {
        self.keyspaces.iter().map(|k| (&*k.prefix, &k.newest))
    }

    /// The newest settings heard of for a prefix.
    #[must_use]
    pub fn newest(&self, prefix: &[u8]) -> Option<&Settings> {
        self.position(prefix)
            .ok()
            .map(|at| &self.keyspaces[at].newest)
    }

    /// Hears of settings, which are to be logged in every partition; whether they are newer than
    /// what was heard before.
    ///
    /// # Errors
    /// [`KeyspaceError`] if there is no room for another prefix.
    pub fn learn(&mut self, prefix: &[u8], settings: Settings) -> Result<bool, KeyspaceError> {
        let at = self.entry(prefix)?;
        let keyspace = &mut self.keyspaces[at];
        let is_newer = settings.outranks(&keyspace.newest);
        if is_newer {
            keyspace.newest = settings;
        }
        Ok(is_newer)
    }

    /// The same of settings that stand in a record of another shard.
    ///
    /// # Errors
    /// As [`Keyspaces::learn`].
    pub fn learn_recorded(
        &mut self,
        prefix: &[u8],
        settings: Settings,
    ) -> Result<bool, KeyspaceError> {
        let is_newer = self.learn(prefix, settings)?;
        let at = self.entry(prefix)?;
        self.keyspaces[at].note_record(settings);
        Ok(is_newer)
    }

    /// Forgets what was heard of and stands in no record. Nobody may log it any more: another node
    /// writes, and may have settled for something else.
    pub fn forget_unrecorded(&mut self) {
        for keyspace in &mut self.keyspaces {
            keyspace.newest = keyspace.recorded;
        }
        let is_known = |keyspace: &Keyspace| keyspace.newest.revision > 0;
        if !self.keyspaces.iter().all(is_known) {
            self.keyspaces.retain(is_known);
            self.prefix_bytes = self.keyspaces.iter().map(|k| k.prefix.len()).sum();
            self.find_parents();
            self.find_first_bytes();
        }
    }

    /// Every prefix with the newest settings that stand in a record, dropped ones included.
    pub fn recorded(&self) -> impl Iterator<Item = (&[u8], &Settings)> {
        let recorded = self.keyspaces.iter().map(|k| (&*k.prefix, &k.recorded));
        recorded.filter(|(_, settings)| settings.revision > 0)
    }

    /// The first of these partitions in which the record of a prefix says something else than the
    /// newest settings.
    #[must_use]
    pub fn first_behind(
        &self,
        prefix: &[u8],
        partitions: impl Iterator<Item = usize>,
    ) -> Option<usize> {
        let keyspace = &self.keyspaces[self.position(prefix).ok()?];
        keyspace.first_behind(partitions)
    }

    /// Whether the newest settings of a prefix give back what is kept by those in force in a
    /// partition.
    #[must_use]
    pub fn gives_back(&self, prefix: &[u8], partition: usize) -> bool {
        let Ok(at) = self.position(prefix) else {
            return false;
        };
        let keyspace = &self.keyspaces[at];
        let in_force = keyspace.partitions[partition].as_ref();
        in_force.is_some_and(|in_force| keyspace.newest.gives_back(&in_force.settings))
    }

    /// Every prefix with the settings that are in force in all of these partitions; while some of
    /// them are behind, those from before in one that is.
    pub fn logged(&self, partitions: &[usize]) -> impl Iterator<Item = (&[u8], &Settings)> {
        self.keyspaces.iter().filter_map(move |keyspace| {
            let settings = match keyspace.first_behind(partitions.iter().copied()) {
                None => &keyspace.newest,
                Some(partition) => &keyspace.partitions[partition].as_ref()?.settings,
            };
            Some((&*keyspace.prefix, settings))
        })
    }

    /// The value with which the newest settings of a prefix are logged in this partition.
    pub(crate) fn to_log(&self, prefix: &[u8], partition: usize) -> [u8; SETTINGS_BYTES] {
        let at = self.position(prefix).expect("it was heard of");
        let keyspace = &self.keyspaces[at];
        let settings = &keyspace.newest;
        let since = match &keyspace.partitions[partition] {
            Some(before)
                if settings.keeps_versions() && !settings.keeps_more_than(&before.settings) =>
            {
                before.since
            }
            _ => Since::default(),
        };
        settings.encode(since)
    }

    /// Takes in a record of settings that was appended or replayed; the newest version counts. A
    /// value that is not of this version's form is left aside.
    pub(crate) fn take(&mut self, part: &PartView<'_>, place: Place) -> Replaced {
        let record = Record {
            slot: part.slot(),
            key: part.key(),
            value: part.value(),
            version: Version {
                epoch: part.epoch(),
                sequence: part.sequence(),
            },
            time_ms: part.time_ms(),
        };
        self.take_record(&record, place)
    }

    pub(crate) fn take_record(&mut self, record: &Record<'_>, place: Place) -> Replaced {
        let (Some(prefix), Some((settings, since))) =
            (prefix_of(record.key), Settings::read(record.value))
        else {
            return Replaced::default();
        };
        let Ok(at) = self.entry(prefix) else {
            return Replaced::default();
        };
        let keyspace = &mut self.keyspaces[at];
        self.found += u64::from(keyspace.note_record(settings));
        let own = Since {
            version: record.version,
            time_ms: record.time_ms,
        };
        let in_force = InForce {
            settings,
            since: since.unwrap_or(own),
            version: record.version,
            place,
        };
        let slot = &mut keyspace.partitions[partition_of(record.slot)];
        let mut replaced = Replaced {
            gained: Some(place),
            lost: None,
            keeps_others: true,
        };
        let before = match slot {
            Some(before) if before.version > record.version => return Replaced::default(),
            Some(before) => {
                replaced.lost = Some(before.place);
                replaced.keeps_others = before.version < record.version;
                Some(std::mem::replace(&mut **before, in_force).settings)
            }
            None => {
                *slot = Some(Box::new(in_force));
                None
            }
        };
        self.count(at, before, &settings);
        replaced.keeps_others &= self.keeping > 0;
        replaced
    }

    /// Counts settings that are in force from now on in a partition of the keyspace there, and no
    /// more those that were before.
    fn count(&mut self, at: usize, before: Option<Settings>, now: &Settings) {
        let keyspace = &mut self.keyspaces[at];
        let was_ruling = keyspace.ruling > 0;
        if let Some(before) = before {
            self.written -= 1;
            self.keeping -= usize::from(before.keeps_versions());
            self.marking -= usize::from(before.layout > 0);
            keyspace.ruling -= usize::from(!before.is_dropped);
        }
        self.written += 1;
        self.keeping += usize::from(now.keeps_versions());
        self.marking += usize::from(now.layout > 0);
        keyspace.ruling += usize::from(!now.is_dropped);
        if was_ruling != (keyspace.ruling > 0) {
            self.find_first_bytes();
        }
    }

    /// Whether a record of settings is newer than the one in force in its partition.
    pub(crate) fn is_news(&self, part: &PartView<'_>) -> bool {
        let in_force = self.in_force(part);
        in_force.is_none_or(|it| it.version < part.version())
    }

    /// Whether a record of settings keeps versions that were written before it under settings that
    /// are not known here: the original of a copy is gone, or the settings are gone whose history
    /// the record goes on with.
    pub(crate) fn is_late(&self, part: &PartView<'_>) -> bool {
        let since = Settings::read(part.value()).and_then(|(_, since)| since);
        let in_force = self.in_force(part);
        let goes_on = since.is_some_and(|since| in_force.is_none_or(|it| it.since != since));
        self.is_news(part) && (part.is_copy() || goes_on)
    }

    /// The settings in force of the prefix and partition of a record of settings.
    fn in_force(&self, part: &PartView<'_>) -> Option<&InForce> {
        let at = self.position(prefix_of(part.key())?).ok()?;
        let partitions = &self.keyspaces[at].partitions;
        partitions[partition_of(part.slot())].as_deref()
    }

    /// Whether the record at `place` is the one in force.
    pub(crate) fn is_at(&self, part: &PartView<'_>, place: Place) -> bool {
        let Some(at) = prefix_of(part.key()).and_then(|prefix| self.position(prefix).ok()) else {
            return false;
        };
        let in_force = &self.keyspaces[at].partitions[partition_of(part.slot())];
        in_force.as_ref().is_some_and(|it| it.place == place)
    }

    /// Whether a record in force of this slot's partition stands there.
    pub(crate) fn stands_at(&self, slot: u16, place: Place) -> bool {
        let partition = partition_of(slot);
        let in_force = self.keyspaces.iter();
        in_force
            .filter_map(|keyspace| keyspace.partitions[partition].as_ref())
            .any(|in_force| in_force.place == place)
    }

    /// The record at `from` stands at `to` now; whether it was there.
    pub(crate) fn moved(&mut self, slot: u16, from: Place, to: Place) -> bool {
        let partition = partition_of(slot);
        let in_force = self
            .keyspaces
            .iter_mut()
            .filter_map(|keyspace| keyspace.partitions[partition].as_mut())
            .find(|in_force| in_force.place == from);
        if let Some(in_force) = in_force {
            in_force.place = to;
            return true;
        }
        false
    }

    pub(super) fn position(&self, prefix: &[u8]) -> Result<usize, usize> {
        self.keyspaces
            .binary_search_by(|keyspace| (*keyspace.prefix).cmp(prefix))
    }

    /// The place of a prefix, which is made if it is new.
    fn entry(&mut self, prefix: &[u8]) -> Result<usize, KeyspaceError> {
        let at = match self.position(prefix) {
            Ok(at) => return Ok(at),
            Err(at) => at,
        };
        if self.keyspaces.len() >= KEYSPACES_MAX {
            return Err(KeyspaceError::TooMany);
        }
        // The least that is free: those of a snapshot may have gaps.
        let is_taken = |number: &u16| self.keyspaces.iter().any(|k| k.number == *number);
        let next = u16::try_from(self.keyspaces.len()).expect("there is a limit");
        let mut numbers = std::iter::once(next).chain(0..);
        let number = numbers
            .find(|number| !is_taken(number))
            .expect("there is a limit");
        self.add(at, number, prefix);
        Ok(at)
    }

    /// Adds a prefix that is not there, where it belongs.
    fn add(&mut self, at: usize, number: u16, prefix: &[u8]) {
        let keyspace = Keyspace {
            number,
            prefix: prefix.into(),
            parent: None,
            newest: Settings::default(),
            recorded: Settings::default(),
            partitions: (0..PARTITIONS).map(|_| None).collect(),
            ruling: 0,
        };
        self.keyspaces.insert(at, keyspace);
        self.prefix_bytes += prefix.len();
        self.find_parents();
    }

    fn find_first_bytes(&mut self) {
        let ruling = self.keyspaces.iter().filter(|keyspace| keyspace.ruling > 0);
        self.first_bytes = ruling.map(|keyspace| &*keyspace.prefix).collect();
    }

    fn find_parents(&mut self) {
        // The prefixes that the one before begins with, itself included.
        let mut parents: Vec<usize> = Vec::new();
        for at in 0..self.keyspaces.len() {
            let prefix = &self.keyspaces[at].prefix;
            while let Some(&parent) = parents.last()
                && !prefix.starts_with(&self.keyspaces[parent].prefix)
            {
                parents.pop();
            }
            self.keyspaces[at].parent = parents.last().copied();
            parents.push(at);
        }
    }

    /// Visits the records in force of so many partitions: by the numbers of keyspaces, then by
    /// partition, from `from` on. Where to go on, or `None` at the end.
    pub fn walk(
        &self,
        from: usize,
        partitions: usize,
        visit: &mut impl FnMut(SettingsEntry<'_>),
    ) -> Option<usize> {
        let end = self.keyspaces.iter().map(|k| usize::from(k.number) + 1);
        let end = end.max().unwrap_or(0) * PARTITIONS;
        let to = end.min(from + partitions);
        let mut at = from;
        while at < to {
            let first = at % PARTITIONS;
            let keyspace = self
                .keyspaces
                .iter()
                .find(|keyspace| usize::from(keyspace.number) == at / PARTITIONS);
            let count = (to - at).min(PARTITIONS - first);
            for partition in first..first + count {
                if let Some(keyspace) = keyspace
                    && let Some(in_force) = &keyspace.partitions[partition]
                {
                    visit(SettingsEntry {
                        number: keyspace.number,
                        partition: u8::try_from(partition).expect("256 partitions"),
                        prefix: &keyspace.prefix,
                        settings: in_force.settings,
                        since: in_force.since,
                        version: in_force.version,
                        place: in_force.place,
                    });
                }
            }
            at += count;
        }
        (to < end).then_some(to)
    }

    /// Takes in what a snapshot tells.
    ///
    /// # Errors
    /// What cannot be.
    pub(crate) fn restore(&mut self, entry: &SettingsEntry<'_>) -> Result<(), &'static str> {
        let at = match self.position(entry.prefix) {
            Ok(at) => at,
            Err(at) => {
                let is_taken = |keyspace: &Keyspace| keyspace.number == entry.number;
                if self.keyspaces.iter().any(is_taken) {
                    return Err("two keyspaces have one number");
                }
                self.add(at, entry.number, entry.prefix);
                at
            }
        };
        let keyspace = &mut self.keyspaces[at];
        let slot = &mut keyspace.partitions[usize::from(entry.partition)];
        if keyspace.number != entry.number || slot.is_some() {
            return Err("a keyspace is told twice");
        }
        *slot = Some(Box::new(InForce {
            settings: entry.settings,
            since: entry.since,
            version: entry.version,
            place: entry.place,
        }));
        self.found += u64::from(keyspace.note_record(entry.settings));
        self.count(at, None, &entry.settings);
        Ok(())
    }

    /// Whether a keyspace has this number.
    pub(crate) fn has_number(&self, number: u16) -> bool {
        self.keyspaces.iter().any(|k| k.number == number)
    }

    /// Where the records in force stand.
    pub(crate) fn places(&self) -> impl Iterator<Item = Place> {
        let records = self.keyspaces.iter().flat_map(|k| k.partitions.iter());
        records.flatten().map(|in_force| in_force.place)
    }
}

#[cfg(test)]
mod tests;
