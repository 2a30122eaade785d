//! Keyspaces that keep versions in the traffic of a cluster, and the judge of what nodes tell of
//! the past of lists.
//!
//! A list only grows. So the value of each version shows which appends were there by then: a value
//! of another past is no begin of the last value, and a version that is missing shows as an append
//! that was acknowledged and is in the last value.
//!
//! - GET_AT of the version of an append tells the list that ends with this append, or NOT_KEPT.
//! - NOT_FOUND is told for no version and no time at which a list was there.
//! - NOT_KEPT names no oldest version that is older than what was asked for.
//! - In the end the same holds at each node, for each append, by its version and by its time.

use std::collections::BTreeMap;

use penstock_net::keyspace::{At as AskedAt, Settings};
use penstock_net::level::AckLevel;
use penstock_net::reply::ReplyItem;
use penstock_net::request::{BatchRequest, Version};
use penstock_net::status::Status;
use penstock_storage::key_home::KeyHome;
use penstock_storage::store::{At, WasAt};
use penstock_storage::version::Version as Stored;
use penstock_storage::versions::{KeptVersion, VersionEntry};

use crate::random::Random;

use super::client::What;
use super::clocks::NodeClock;
use super::oracle::{Acked, Asked, list_of};
use super::{NODES, Step, UNIX_MS, World, number_of};

/// Clusters of these seeds keep versions, and nodes of the first half decide by themselves.
const PAST_SEEDS: std::ops::Range<u64> = 1_110_000_000..1_210_000_000;
/// ... and of every other one that a clock has given since then.
const CLOCK_SEEDS_FROM: u64 = 1_883_135_000_000_000;

/// Whether the cluster of a seed keeps versions.
pub(super) fn is_kept(seed: u64) -> bool {
    PAST_SEEDS.contains(&seed) || seed >= CLOCK_SEEDS_FROM && seed % 2 == 1
}

/// What runs of these seeds meet.
pub(super) const MUST_MEET: &[&str] = &[
    "GET_AT told a version",
    "GET_AT told that a version is not kept",
    "version of the past at the writer",
    "version of the past at a member",
    "value of the past compared",
    "version of before its past began",
];

/// What is asked about the past in a run.
pub(super) struct PastTraffic {
    random: Random,
    has_settings: bool,
}

impl PastTraffic {
    /// That of a seed, if its cluster keeps versions.
    pub(super) fn of_seed(seed: u64) -> Option<PastTraffic> {
        is_kept(seed).then(|| PastTraffic {
            random: Random::new(seed, 113),
            has_settings: false,
        })
    }

    /// Whether the next operation of a client is about the past.
    fn is_due(&mut self) -> bool {
        self.random.chance(150_000)
    }

    /// Whether the next change of a keyspace is one of what is kept of all keys.
    pub(super) fn is_of_all(&mut self) -> bool {
        !std::mem::replace(&mut self.has_settings, true) || self.random.chance(300_000)
    }

    /// What is kept from then on.
    pub(super) fn settings(&mut self, layout: u16) -> Settings {
        let (versions, retention_ms) = self.random.pick(&[
            (200, 0),
            (200, 0),
            (0, 600_000),
            (3, 0),
            (0, 2_000),
            (40, 60_000),
            (0, 0),
        ]);
        Settings {
            layout,
            versions,
            retention_ms,
            ..Settings::default()
        }
    }
}

impl World {
    /// Sends a GET_AT, or nothing.
    pub(super) fn ask_past(&mut self, client: usize) -> bool {
        let Some(past) = self.past.as_mut().filter(|_| self.oracle.has_acked()) else {
            return false;
        };
        if !past.has_settings || !past.is_due() {
            return false;
        }
        let Acked {
            number,
            key,
            partition,
            version,
            ..
        } = self.oracle.some_acked(past.random.bits());
        let request = self.clients[client].request + 1;
        let mut out = Vec::new();
        let mut batch = BatchRequest::begin(&mut out, request, AckLevel::Disk, 0, 1);
        batch.get_at(&mut out, &key, AskedAt::Version(version));
        batch.finish(&mut out);
        self.issued += 1;
        let what = What::Past(Asked { number, version });
        self.send(client, out, (key, partition), AckLevel::Disk, what);
        true
    }

    /// Judges the answer to a GET_AT of the version of an append.
    pub(super) fn answer_past(
        &mut self,
        asked: Asked,
        partition: u16,
        item: &ReplyItem<'_>,
    ) -> Step {
        let Asked { number, version } = asked;
        let seen = item.head.version;
        // Where there may be two pasts, the append may be in none that is left.
        let is_judged = self.oracle.is_one_past(partition)
            && !self.is_incomplete_accepted
            && !self.has_gone_back;
        match item.head.status {
            Status::Ok => {
                self.meet("GET_AT told a version");
                let list = list_of(item.value).ok_or("a list is no list")?;
                let is_it = seen == version && list.last() == Some(&number);
                if seen > version || is_judged && !is_it {
                    return Err(format!(
                        "append {number} is version {version:?}, and {seen:?} with {list:?} is told"
                    ));
                }
                Ok(())
            }
            Status::NotFound if is_judged => Err(format!(
                "append {number} is version {version:?}, and no value is told"
            )),
            Status::NotKept => {
                self.meet("GET_AT told that a version is not kept");
                let is_there = seen != Version::default() && seen <= version;
                match is_judged && is_there {
                    true => Err(format!(
                        "append {number} is version {version:?}, and not kept, but {seen:?} is"
                    )),
                    false => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    /// Holds what each node knows of the past of lists against the last values.
    pub(super) fn judge_past(&mut self, last: &BTreeMap<Vec<u8>, Option<Vec<u8>>>) -> Step {
        if self.past.is_none() {
            return Ok(());
        }
        let acked: Vec<Acked> = self.oracle.acked().collect();
        for node in 0..NODES {
            for append in &acked {
                let value = last.get(&append.key).cloned().flatten();
                let list = value.map(|it| list_of(&it)).unwrap_or_default();
                let list = list.unwrap_or_default();
                self.judge_append(node, append, &list).map_err(|wrong| {
                    format!(
                        "node {} tells of {} at append {}, version {:?}, ended at {}: {wrong}",
                        number_of(node),
                        String::from_utf8_lossy(&append.key),
                        append.number,
                        append.version,
                        append.ended_us
                    )
                })?;
            }
            self.judge_entries(node, last)?;
        }
        Ok(())
    }

    /// What a node would answer of an acknowledged append, by its version and by its time.
    fn judge_append(&mut self, node: usize, append: &Acked, last: &[u64]) -> Step {
        let Version { epoch, sequence } = append.version;
        let version = Stored { epoch, sequence };
        let is_there = last.contains(&append.number);
        let Some(was) = self.nodes[node].was_at(&append.key, At::Version(version)) else {
            return Ok(());
        };
        match was {
            WasAt::Version(kept) => {
                let is_writer = {
                    let assignment = &self.plan.partitions[usize::from(append.partition)];
                    assignment.primary == number_of(node)
                };
                self.meet(match is_writer {
                    true => "version of the past at the writer",
                    false => "version of the past at a member",
                });
                if kept.time_ms == 0 {
                    self.meet("version of before its past began");
                }
                let list = self.list_at(node, &append.key, &kept, last)?;
                let is_it = kept.version == version && !kept.is_deletion;
                let ends = |list: &Vec<u64>| list.last() == Some(&append.number);
                if is_there && !(is_it && list.as_ref().is_none_or(ends)) {
                    return Err(format!("{kept:?} with {list:?}"));
                }
                if !is_there && list.as_ref().is_some_and(ends) {
                    return Err(format!("{kept:?}, which is lost"));
                }
            }
            WasAt::Missing if is_there => return Err("nothing was there".into()),
            WasAt::NotKept {
                oldest: Some(oldest),
                ..
            } if is_there && oldest.version <= version => {
                return Err(format!("not kept, but {oldest:?} is"));
            }
            WasAt::Missing | WasAt::NotKept { .. } => {}
        }
        let is_timed = self.walls_ms == [0; NODES] && self.clocks.iter().all(NodeClock::is_true);
        match is_there && is_timed {
            true => self.judge_time(node, append, last),
            false => Ok(()),
        }
    }

    /// What a node would answer of the time right behind an append.
    fn judge_time(&mut self, node: usize, append: &Acked, last: &[u64]) -> Step {
        let then_ms = UNIX_MS + append.ended_us / 1_000 + 1;
        let was = self.nodes[node].was_at(&append.key, At::TimeMs(then_ms));
        match was {
            Some(WasAt::Missing) => Err(format!("nothing was there at {then_ms} ms")),
            Some(WasAt::Version(kept)) => {
                let list = self.list_at(node, &append.key, &kept, last)?;
                let Some(list) = list else { return Ok(()) };
                let is_late = |number: &u64| {
                    let issued_us = self.oracle.issued_us(*number);
                    // The time of a shard may be a little behind.
                    UNIX_MS + issued_us / 1_000 > then_ms + 5
                };
                if !list.contains(&append.number) || list.iter().any(is_late) {
                    return Err(format!("{kept:?} with {list:?} at {then_ms} ms"));
                }
                self.meet("time of the past compared");
                Ok(())
            }
            Some(WasAt::NotKept { .. }) | None => Ok(()),
        }
    }

    /// The value of a version of a list, if it is in a file: a begin of the last value.
    fn list_at(
        &mut self,
        node: usize,
        key: &[u8],
        kept: &KeptVersion,
        last: &[u64],
    ) -> Result<Option<Vec<u64>>, String> {
        if kept.is_young || kept.is_deletion {
            return Ok(None);
        }
        let value = self.nodes[node].value_at(key, kept.version, kept.place)?;
        let list = value.and_then(|value| list_of(&value));
        let list = list.ok_or_else(|| format!("{kept:?} is no list"))?;
        self.meet("value of the past compared");
        match last.starts_with(&list) {
            true => Ok(Some(list)),
            false => Err(format!(
                "{kept:?} is {list:?}, and the last value is {last:?}"
            )),
        }
    }

    /// Of each list the versions in the table of a node are the newest ones without a gap, whether
    /// its newest value is in memory or not.
    fn judge_entries(&self, node: usize, last: &BTreeMap<Vec<u8>, Option<Vec<u8>>>) -> Step {
        let mut known: BTreeMap<KeyHome, Vec<VersionEntry>> = BTreeMap::new();
        for core in self.nodes[node].cores.iter().flatten() {
            core.shard.store().data().versions(&mut |entry| {
                let VersionEntry { slot, hash, .. } = entry;
                let of_key = known.entry(KeyHome { slot, hash }).or_default();
                of_key.push(entry);
            });
        }
        for append in self.oracle.acked() {
            let value = last.get(&append.key).cloned().flatten();
            let list = value.and_then(|value| list_of(&value)).unwrap_or_default();
            let home = self.nodes[node].home_of(&append.key);
            let Some(since) = self.nodes[node].keeps_since(&append.key) else {
                continue;
            };
            let Some(of_key) = known.get(&home).filter(|_| list.contains(&append.number)) else {
                continue;
            };
            // What is older is never shown, and may have gaps.
            let of_key = of_key.iter().filter(|it| it.version > since);
            let of_key: Vec<&VersionEntry> = of_key.collect();
            if !of_key.is_sorted_by_key(|it| (it.version.epoch, it.version.sequence)) {
                return Err(format!("node {} has no order: {of_key:?}", number_of(node)));
            }
            let Version { epoch, sequence } = append.version;
            let version = Stored { epoch, sequence };
            let is_between = of_key.first().is_some_and(|it| it.version < version);
            let is_between = is_between && version > since;
            if is_between && of_key.iter().all(|it| it.version != version) {
                return Err(format!(
                    "node {} has a gap where append {} to {} was version {version:?}: {of_key:?}",
                    number_of(node),
                    append.number,
                    String::from_utf8_lossy(&append.key),
                ));
            }
        }
        Ok(())
    }
}
