//! Changing keyspaces: one shard decides, all log.
//!
//! ```text
//!            this node                                            another node
//! request -> shard of slot 0 -> other shards
//!                  |                |
//!                  v                v
//!            records in the partitions that this node writes --> applied there: found
//!                                                                       |
//!                                                                       v
//!            applied here <-- records in the partitions that the other node writes
//!                  |
//! answer <- when each partition has the record
//! ```
//!
//! The owner of slot 0 takes one change at a time, gives it a revision that no earlier one had, and
//! tells it to all shards. Each logs it in all of its partitions that this node writes, a few
//! records in each turn as there is room. It says so when they are durable and, in a cluster, when
//! the records of the other partitions have come from the nodes that write them. When all shards
//! have, the change is answered.
//!
//! A crash in between leaves some partitions behind. So each shard looks, in its first turn and
//! whenever newer settings come from a record or the node writes other partitions: it tells the
//! other shards what stands in records, and the highest revision of a prefix is logged wherever
//! this node writes and the revision is missing. A shard that writes nothing forgets what stands in
//! no record, and takes a change from records alone. A shard whose disk is full says so, which ends
//! the change for its caller, and goes on when there is room.

use std::collections::VecDeque;

use penstock_net::keyspace as wire;
use penstock_net::level::AckLevel;
use penstock_net::limits::{EXPIRY_MS_MAX, KEYSPACE_BYTES_MAX, RESERVED_KEY};
use penstock_net::slot::slot_of;
use penstock_storage::io::Blocks;
use penstock_storage::keyspace::{PREFIX_BYTES_MAX, SETTINGS_BYTES, Settings, keyspace_key};
use penstock_storage::log::{Purpose, Room};
use penstock_storage::place::Lsn;
use penstock_storage::record;
use penstock_storage::store::Store;
use penstock_storage::system_key::SYSTEM_KEY;
use penstock_storage::version::{PARTITIONS, partition_of};

use crate::mail::{KeyspaceMail, Mail, ReplyAddress};
use crate::requests::parking::Origin;

// The wire and the store have the same reserved keys and the same limits.
const _: () = {
    assert!(matches!(RESERVED_KEY, SYSTEM_KEY));
    assert!(KEYSPACE_BYTES_MAX == PREFIX_BYTES_MAX);
    assert!(EXPIRY_MS_MAX == record::EXPIRY_MS_MAX);
};

/// What a shard still has to do about keyspaces.
#[derive(Debug, Default)]
pub(crate) struct Keyspaces {
    /// For each partition what routes a key there, once it was needed.
    tags: Vec<u32>,
    work: VecDeque<Work>,
    /// What was logged for another shard's change, until it is durable.
    answers: VecDeque<(Lsn, Answer)>,
    /// The change that this shard has told to all.
    change: Option<Change>,
    mail: Vec<(u16, Mail)>,
    /// What was there when this shard looked last for partitions that are behind.
    checked: Option<SettingsRead>,
    /// When it looked last, this node wrote none of the partitions.
    writes_nothing: bool,
    /// The log had no room for the next record.
    is_blocked: bool,
}

#[derive(Debug)]
enum Work {
    /// Log the newest settings of this prefix in the partitions that are behind. There is at most
    /// one for each prefix.
    Log(Box<[u8]>),
    /// Answer when all earlier work is durable, or that the disk is full.
    Answer(Answer),
}

#[derive(Clone, Debug)]
struct Answer {
    to: u16,
    revision: u64,
    prefix: Box<[u8]>,
}

/// What decides whether partitions may be behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SettingsRead {
    /// See [`penstock_storage::keyspace::Keyspaces::found`].
    found: u64,
    /// A number that changes when this node writes other partitions.
    served: u64,
}

/// The partitions of a shard, as a change of a keyspace sees them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Owned<'a, W> {
    pub(crate) shard: u16,
    pub(crate) shards: u16,
    pub(crate) partitions: &'a [usize],
    pub(crate) writer: W,
    /// A number that changes when this node writes other partitions.
    pub(crate) served: u64,
}

/// Who logs settings in a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writer {
    Here,
    /// Another node, or this one later.
    NotHere,
    /// The plan names no node.
    Nobody,
}

impl<W: Fn(usize) -> Writer> Owned<'_, W> {
    fn with(&self, wanted: impl Fn(Writer) -> bool) -> impl Iterator<Item = usize> {
        let all = self.partitions.iter().copied();
        all.filter(move |&partition| wanted((self.writer)(partition)))
    }

    /// Partitions that this node writes now.
    fn here(&self) -> impl Iterator<Item = usize> {
        self.with(|writer| writer == Writer::Here)
    }

    /// Partitions that some node writes.
    fn written(&self) -> impl Iterator<Item = usize> {
        self.with(|writer| writer != Writer::Nobody)
    }
}

/// How a shard's own part of a change ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Done {
    pub(crate) revision: u64,
    /// Not all is logged, because the disk is full.
    pub(crate) is_full: bool,
}

/// A change on its way.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) origin: Origin,
    pub(crate) address: ReplyAddress,
    pub(crate) level: AckLevel,
    pub(crate) prefix: Box<[u8]>,
    pub(crate) settings: Settings,
    /// When its caller is told that other nodes have not logged it yet. `None`: no other node is to
    /// log it.
    pub(crate) until_us: Option<u64>,
    /// Shards that have not answered yet.
    pub(crate) left: u16,
}

impl Keyspaces {
    /// Whether a change is on its way, so that another one must wait.
    pub(crate) fn is_changing(&self) -> bool {
        self.change.is_some()
    }

    /// Tells a change, which the store has heard of, to the other shards and logs it here.
    pub(crate) fn begin(&mut self, shard: u16, change: Change) {
        let revision = change.settings.revision;
        for to in (0..change.left).filter(|&to| to != shard) {
            let keyspaces = vec![(change.prefix.clone(), change.settings)];
            let mail = KeyspaceMail {
                from: shard,
                is_awaited: true,
                keyspaces,
            };
            self.mail.push((to, Mail::Keyspaces(mail)));
        }
        self.log(&change.prefix);
        self.answer(shard, revision, &change.prefix);
        self.change = Some(change);
    }

    /// Takes in what another shard tells.
    pub(crate) fn learn_mail<P: Blocks>(&mut self, store: &mut Store<P>, mail: &KeyspaceMail) {
        for (prefix, settings) in &mail.keyspaces {
            let learned = match mail.is_awaited {
                false => store.keyspaces_mut().learn_recorded(prefix, *settings),
                // It comes by a record or not at all, as at another node.
                true if self.writes_nothing => continue,
                true => store.keyspaces_mut().learn(prefix, *settings),
            };
            // Beyond the limit there is none on the shard that decides either.
            if learned == Ok(true) {
                self.log(prefix);
            }
        }
        if let Some((prefix, settings)) = mail.keyspaces.first().filter(|_| mail.is_awaited) {
            self.answer(mail.from, settings.revision, prefix);
        }
    }

    /// Has a change answered when this shard has it. One change is on its way at a time, so an
    /// answer to an earlier one is awaited no more.
    fn answer(&mut self, to: u16, revision: u64, prefix: &[u8]) {
        self.work.retain(|work| matches!(work, Work::Log(_)));
        self.answers.clear();
        let prefix = prefix.into();
        self.work.push_back(Work::Answer(Answer {
            to,
            revision,
            prefix,
        }));
    }

    /// Ends the change whose other nodes take too long, for its caller. They log it as soon as they
    /// hear of it.
    pub(crate) fn take_late(&mut self, now_us: u64) -> Option<Change> {
        let is_late = |change: &mut Change| change.until_us.is_some_and(|until| until <= now_us);
        self.change.take_if(is_late)
    }

    /// When [`Keyspaces::take_late`] is to be asked.
    pub(crate) fn deadline_us(&self) -> Option<u64> {
        self.change.as_ref()?.until_us
    }

    /// A shard has made a revision durable, or cannot yet. The change, if that ends it.
    pub(crate) fn done(&mut self, done: Done) -> Option<Change> {
        let change = self
            .change
            .as_mut()
            .filter(|change| change.settings.revision == done.revision)?;
        change.left -= 1;
        match done.is_full || change.left == 0 {
            true => self.change.take(),
            false => None,
        }
    }

    /// Tells the other shards what stands in records, and logs what is missing where this node
    /// writes, if that may be more than at the last look. A shard that writes nothing any more
    /// forgets changes that it has not logged: another node writes, and has not heard of them.
    pub(crate) fn check_records<P: Blocks>(
        &mut self,
        store: &mut Store<P>,
        owned: &Owned<'_, impl Fn(usize) -> Writer>,
    ) {
        let checked = SettingsRead {
            found: store.keyspaces().found(),
            served: owned.served,
        };
        let before = self.checked.replace(checked);
        if before == Some(checked) {
            return;
        }
        self.writes_nothing = owned.here().next().is_none();
        if store.keyspaces().is_empty() {
            return;
        }
        if self.writes_nothing {
            store.keyspaces_mut().forget_unrecorded();
        }
        let all = store.keyspaces();
        for (prefix, _) in all.iter() {
            if all.first_behind(prefix, owned.here()).is_some() {
                self.log(prefix);
            }
        }
        let recorded = all.recorded();
        let keyspaces: Vec<(Box<[u8]>, Settings)> = recorded
            .map(|(prefix, settings)| (prefix.into(), *settings))
            .collect();
        if before.is_some_and(|before| before.found == checked.found) {
            return;
        }
        for to in (0..owned.shards).filter(|&to| to != owned.shard) {
            let mail = KeyspaceMail {
                from: owned.shard,
                is_awaited: false,
                keyspaces: keyspaces.clone(),
            };
            self.mail.push((to, Mail::Keyspaces(mail)));
        }
    }

    fn log(&mut self, prefix: &[u8]) {
        // The newest settings are logged, so once is enough however often they changed. A prefix
        // keeps its place in the queue: an answer behind it must find all its records in the log.
        let is_it = |work: &Work| matches!(work, Work::Log(other) if **other == *prefix);
        if !self.work.iter().any(is_it) {
            self.work.push_back(Work::Log(prefix.into()));
        }
    }

    /// A revision of no earlier run or primary of slot 0, and behind all that was heard of in this
    /// one, of whatever prefix: by it alone a shard says what it has done.
    pub(crate) fn next_revision<P: Blocks>(store: &Store<P>) -> u64 {
        let known = store.keyspaces().iter();
        let newest = known.map(|(_, settings)| settings.revision).max();
        let first = u64::from(
            store
                .data()
                .numbering()
                .opened()
                .max(store.data().numbering().epoch(0)),
        ) << 32;
        newest.map_or(0, |newest| newest + 1).max(first)
    }

    /// Logs as much as there is room for, and answers what is durable. Also how this shard's own
    /// part of a change ends, if it does.
    pub(crate) fn turn<P: Blocks>(
        &mut self,
        now_us: u64,
        store: &mut Store<P>,
        owned: &Owned<'_, impl Fn(usize) -> Writer>,
    ) -> Option<Done> {
        self.is_blocked = false;
        let mut own = None;
        for _ in 0..RECORDS_PER_TURN_MAX {
            let Some(work) = self.work.front() else {
                break;
            };
            match work {
                Work::Log(prefix) => {
                    let behind = store.keyspaces().first_behind(prefix, owned.here());
                    if let Some(partition) = behind {
                        if self.tags.is_empty() {
                            self.tags = tags();
                        }
                        let key = keyspace_key(self.tags[partition], prefix);
                        let gives_back = store.keyspaces().gives_back(prefix, partition);
                        let purpose = purpose_of(gives_back);
                        let room = store.room(purpose, key.len(), SETTINGS_BYTES, false);
                        if room != Room::Yes {
                            self.is_blocked = true;
                            if room == Room::Full {
                                own = later(own, self.report_full(owned.shard));
                            }
                            break;
                        }
                        store.commit_settings(now_us, slot_of(&key), &key, prefix);
                        continue;
                    }
                }
                Work::Answer(answer) => {
                    let log = store.log_mut();
                    let lsn = log.appended();
                    log.want_durable(lsn);
                    self.answers.push_back((lsn, answer.clone()));
                }
            }
            self.work.pop_front();
        }
        let durable = store.log().durable();
        while let Some((lsn, answer)) = self.answers.front() {
            // A record that another node wrote is applied here when it is durable there.
            let all = store.keyspaces();
            let newest = all.newest(&answer.prefix).map_or(0, |it| it.revision);
            let behind = all.first_behind(&answer.prefix, owned.written());
            if *lsn > durable || behind.is_some() || newest < answer.revision {
                break;
            }
            let Answer { to, revision, .. } = *answer;
            self.answers.pop_front();
            match to == owned.shard {
                true => {
                    let done = Done {
                        revision,
                        is_full: false,
                    };
                    own = later(own, Some(done));
                }
                false => self.mail.push((
                    to,
                    Mail::KeyspaceDone {
                        revision,
                        is_full: false,
                    },
                )),
            }
        }
        own
    }

    /// Says to all who wait that the disk is full, which ends the change for them: nobody is told
    /// when the rest is logged. What it means for this shard's own change.
    fn report_full(&mut self, shard: u16) -> Option<Done> {
        let mut own = None;
        let mail = &mut self.mail;
        self.work.retain(|work| {
            let Work::Answer(Answer { to, revision, .. }) = *work else {
                return true;
            };
            let is_full = true;
            match to == shard {
                true => own = Some(Done { revision, is_full }),
                false => mail.push((to, Mail::KeyspaceDone { revision, is_full })),
            }
            false
        });
        own
    }

    /// Whether there is more to log.
    pub(crate) fn has_work(&self) -> bool {
        !self.work.is_empty()
    }

    /// Whether the next turn can log more, whatever ends until then.
    pub(crate) fn may_go_on(&self) -> bool {
        self.has_work() && !self.is_blocked
    }

    /// What is to be sent to other shards.
    pub(crate) fn take_mail(&mut self) -> Vec<(u16, Mail)> {
        std::mem::take(&mut self.mail)
    }
}

/// Records of settings that one turn logs, at most: what a commit that comes behind them waits for.
const RECORDS_PER_TURN_MAX: usize = 256;

/// The end of the later change: who asked for an earlier one was answered when the later one began.
fn later(one: Option<Done>, other: Option<Done>) -> Option<Done> {
    one.into_iter()
        .chain(other)
        .max_by_key(|done| done.revision)
}

/// What a record of settings is logged for. One that gives back what was kept may take what belongs
/// to cleaning: on a disk full of the past nothing else gives cleaning anything to do.
pub(crate) fn purpose_of(gives_back: bool) -> Purpose {
    match gives_back {
        true => Purpose::Relieve,
        false => Purpose::Keep,
    }
}

/// The least number for each partition whose digits route there.
fn tags() -> Vec<u32> {
    let mut tags = vec![None; PARTITIONS];
    let mut missing = PARTITIONS;
    for number in 0.. {
        let tag = &mut tags[partition_of(slot_of(number.to_string().as_bytes()))];
        if tag.is_none() {
            *tag = Some(number);
            missing -= 1;
            if missing == 0 {
                break;
            }
        }
    }
    tags.into_iter().flatten().collect()
}

/// Settings as a client said them.
pub(crate) fn from_wire(settings: &wire::Settings, revision: u64) -> Settings {
    Settings {
        revision,
        is_dropped: false,
        level_min: settings.level_min.code(),
        level_default: wire::default_code(settings.level_default),
        versions: settings.versions,
        layout: settings.layout,
        value_bytes_max: settings.value_bytes_max,
        retention_ms: settings.retention_ms,
        ttl_ms: settings.ttl_ms,
    }
}

/// Settings as a client is told them.
pub fn to_wire(settings: &Settings) -> wire::Settings {
    wire::Settings {
        level_min: AckLevel::from_code(settings.level_min).unwrap_or_default(),
        level_default: wire::read_default(settings.level_default).unwrap_or_default(),
        versions: settings.versions,
        layout: settings.layout,
        value_bytes_max: settings.value_bytes_max,
        retention_ms: settings.retention_ms,
        ttl_ms: settings.ttl_ms,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_to_be_logged_and_sent_does_not_grow_with_changes_that_find_no_room() {
        let mut keyspaces = Keyspaces::default();
        for revision in 0..1_000 {
            for prefix in [&b"a"[..], b"b", b"c"] {
                keyspaces.log(prefix);
                keyspaces.answer(0, revision, prefix);
                let own = keyspaces.report_full(0);
                let done = Done {
                    revision,
                    is_full: true,
                };
                assert_eq!(own, Some(done));
                assert!(keyspaces.work.len() <= 3);
            }
        }
        assert!(keyspaces.mail.is_empty());
    }

    #[test]
    fn the_end_of_the_later_change_counts_in_whatever_order_two_of_them_come() {
        let full = Done {
            revision: 8,
            is_full: true,
        };
        let late = Done {
            revision: 7,
            is_full: false,
        };
        assert_eq!(later(Some(full), Some(late)), Some(full));
        assert_eq!(later(Some(late), Some(full)), Some(full));
        assert_eq!(later(None, Some(late)), Some(late));
        assert_eq!(later(Some(late), None), Some(late));
    }

    #[test]
    fn every_partition_has_a_tag_that_routes_there_whatever_the_prefix_is() {
        let tags = tags();
        assert_eq!(tags.len(), PARTITIONS);
        for (partition, &tag) in tags.iter().enumerate() {
            for prefix in [&b""[..], b"stock:", b"{other}", b"}{"] {
                let slot = slot_of(&keyspace_key(tag, prefix));
                assert_eq!(partition_of(slot), partition);
            }
        }
    }
}
