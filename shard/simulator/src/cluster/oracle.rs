//! What clients did and were told, and whether the cluster kept its word.
//! A key holds the list of all appends to it. So its last value shows which appends are there, in
//! which order, and which are lost: no loss hides behind a later write.
//!
//! - What was acknowledged at level `replica` is there, unless somebody promoted by force.
//! - What was acknowledged at level `disk` is there, or a lostfound has it, or its disk is gone.
//! - What was refused is nowhere; nothing is there twice, and nothing that nobody sent.
//! - No two nodes, and no two starts of one, acknowledge in the same epoch of a partition, and no
//!   version is given out twice.

use std::collections::{BTreeMap, BTreeSet};

use penstock_net::level::AckLevel;
use penstock_net::request::Version;
use penstock_shard::replication::records;
use penstock_storage::record::{PartKind, PartView};

use super::node::LIST_MAX;

/// What a key is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A list of appends.
    List,
    /// One of two counters that are always raised together.
    Pair,
    /// Set and deleted at will.
    Churn,
}

/// Pots of a group, between which units are poured, and what each has at first.
pub(super) const POTS: usize = 8;
pub(super) const POT_UNITS: u64 = 1_000;

/// Lists of a group that are in use, and keys of the other kinds.
const LISTS: usize = 3;
const CHURN: usize = 5;

/// A group of keys in one slot.
#[derive(Clone, Debug)]
pub(super) struct Group {
    tag: u64,
    partition: u16,
    /// Lists that are full are followed by new ones.
    lists: [usize; LISTS],
    made: usize,
}

/// How an append has ended for its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Unknown,
    Refused,
    Acked(AckLevel, Version),
}

/// An append whose version is asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) number: u64,
    pub(super) version: Version,
}

/// An append that was acknowledged.
#[derive(Clone, Debug)]
pub(super) struct Acked {
    pub(super) number: u64,
    pub(super) key: Vec<u8>,
    pub(super) partition: u16,
    pub(super) version: Version,
    pub(super) ended_us: u64,
}

struct Append {
    key: Vec<u8>,
    partition: u16,
    node: u8,
    outcome: Outcome,
    /// When it was sent.
    issued_us: u64,
    /// When the answer left the node.
    ended_us: u64,
    /// The disk of the node that acknowledged it is gone since.
    was_wiped: bool,
}

pub(super) struct Oracle {
    groups: Vec<Group>,
    appends: Vec<Append>,
    churned: BTreeSet<(Vec<u8>, u16)>,
    /// The node, and its start, that acknowledged in an epoch of a partition.
    writers: BTreeMap<(u16, u32), Writer>,
    versions: BTreeMap<(u16, u32, u64), Writer>,
    promotions: BTreeMap<u16, u64>,
    forced: BTreeSet<u16>,
    /// Partitions in which a node was promoted without a handover, so that there may be two pasts.
    parted: BTreeSet<u16>,
    wiped: Option<u8>,
    /// The node that started with an older copy of its directory.
    gone_back: Option<u8>,
}

/// What of a diverged tail is in lostfound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kept {
    /// All of its records.
    All,
    /// The newest diverged record of each key: cleaning rewrites inherited logs first, and keeps no
    /// more.
    Newest,
    /// The diverged records that cleaning had not released.
    Some,
}

/// Who acknowledged, and the highest level at which.
#[derive(Clone, Copy, Debug)]
struct Writer {
    /// The node, and its start.
    start: (u8, u64),
    level: AckLevel,
}

impl Oracle {
    pub(super) fn new(tags: Vec<(u64, u16)>) -> Self {
        let groups = tags.into_iter().map(|(tag, partition)| Group {
            tag,
            partition,
            lists: [0, 1, 2],
            made: LISTS,
        });
        Oracle {
            groups: groups.collect(),
            appends: Vec::new(),
            churned: BTreeSet::new(),
            writers: BTreeMap::new(),
            versions: BTreeMap::new(),
            promotions: BTreeMap::new(),
            forced: BTreeSet::new(),
            parted: BTreeSet::new(),
            wiped: None,
            gone_back: None,
        }
    }

    /// A key that is in use, chosen by `number`: its name and partition.
    pub(super) fn key(&mut self, kind: Kind, group: usize, number: usize) -> (Vec<u8>, u16) {
        let Group {
            tag,
            partition,
            lists,
            ..
        } = &self.groups[group];
        let name = match kind {
            Kind::List => format!("{{{tag}}}list {}", lists[number % LISTS]),
            Kind::Pair => format!("{{{tag}}}pair {}", number % 2),
            Kind::Churn => format!("{{{tag}}}key {}", number % CHURN),
        };
        let key = (name.into_bytes(), *partition);
        if kind != Kind::List {
            self.churned.insert(key.clone());
        }
        key
    }

    /// A pot of a group.
    pub(super) fn pot(&mut self, group: usize, number: usize) -> Vec<u8> {
        let Group { tag, partition, .. } = self.groups[group];
        let name = format!("{{{tag}}}pot {}", number % POTS).into_bytes();
        self.churned.insert((name.clone(), partition));
        name
    }

    /// The copy of a list that is appended to together with the list, if the list has one.
    pub(super) fn copy(&mut self, list: &[u8], partition: u16) -> Option<Vec<u8>> {
        let copy = copy_of(list)?;
        self.churned.insert((copy.clone(), partition));
        Some(copy)
    }

    /// A list is full: another one takes its place.
    pub(super) fn retire(&mut self, group: usize, number: usize, key: &[u8]) {
        let current = self.key(Kind::List, group, number).0;
        let group = &mut self.groups[group];
        if current == key {
            group.lists[number % LISTS] = group.made;
            group.made += 1;
        }
    }

    /// An append is about to be sent; its number is what it appends.
    pub(super) fn append(&mut self, key: Vec<u8>, partition: u16, now_us: u64) -> u64 {
        self.appends.push(Append {
            key,
            partition,
            node: 0,
            outcome: Outcome::Unknown,
            issued_us: now_us,
            ended_us: 0,
            was_wiped: false,
        });
        self.appends.len() as u64
    }

    pub(super) fn ended(&mut self, number: u64, node: u8, outcome: Outcome, now_us: u64) {
        let append = &mut self.appends[usize::try_from(number).expect("few") - 1];
        append.outcome = outcome;
        append.node = node;
        append.ended_us = now_us;
    }

    /// All appends that were acknowledged.
    pub(super) fn acked(&self) -> impl Iterator<Item = Acked> {
        let appends = (1..).zip(&self.appends);
        appends.filter_map(|(number, append)| match append.outcome {
            Outcome::Acked(_, version) => Some(Acked {
                number,
                key: append.key.clone(),
                partition: append.partition,
                version,
                ended_us: append.ended_us,
            }),
            _ => None,
        })
    }

    pub(super) fn has_acked(&self) -> bool {
        self.acked().next().is_some()
    }

    /// One of the newest of them, chosen by `number`.
    pub(super) fn some_acked(&self, number: u64) -> Acked {
        let acked: Vec<Acked> = self.acked().collect();
        let newest = acked.len().min(64);
        let at = usize::try_from(number % newest as u64).expect("few");
        acked[acked.len() - 1 - at].clone()
    }

    /// When an append was sent.
    pub(super) fn issued_us(&self, number: u64) -> u64 {
        self.append_of(number).map_or(0, |it| it.issued_us)
    }

    /// Whether no node was promoted without a handover, so that there is one past of a partition.
    pub(super) fn is_one_past(&self, partition: u16) -> bool {
        !self.parted.contains(&partition) && !self.forced.contains(&partition)
    }

    /// The newest append to a list that was acknowledged.
    pub(super) fn last_acked(&self, key: &[u8]) -> Option<(u64, Version)> {
        let appends = (1u64..).zip(&self.appends);
        let of_key = appends.filter(|(_, append)| append.key == key);
        let acked = of_key.filter_map(|(number, append)| match append.outcome {
            Outcome::Acked(_, version) => Some((number, version)),
            _ => None,
        });
        acked.max_by_key(|&(_, version)| version)
    }

    /// The appends that a list must hold if it is no older than this time, at a node with epoch
    /// `epoch` of the partition: those that were acknowledged by then. Where there may be two
    /// pasts, only those of this epoch.
    pub(super) fn acked_before(
        &self,
        key: &[u8],
        partition: u16,
        then_us: u64,
        epoch: u32,
    ) -> impl Iterator<Item = u64> {
        let is_one_past = !self.parted.contains(&partition);
        let appends = (1..).zip(&self.appends);
        appends.filter_map(move |(number, append)| {
            let Outcome::Acked(_, version) = append.outcome else {
                return None;
            };
            let is_of_past = is_one_past || version.epoch == epoch;
            (append.key == key && is_of_past && append.ended_us <= then_us).then_some(number)
        })
    }

    /// The first append that the writer of a list must show: it was acknowledged at level `all` or
    /// `replica` by then, and the list lacks it.
    pub(super) fn unread(&self, key: &[u8], list: &[u64], then_us: u64) -> Option<u64> {
        let mut appends = (1..).zip(&self.appends);
        let is_missing = |&(number, append): &(u64, &Append)| {
            let is_kept =
                matches!(append.outcome, Outcome::Acked(level, _) if level.waits_for_members());
            let is_due = is_kept && append.ended_us <= then_us && append.key == key;
            is_due && !self.forced.contains(&append.partition) && !list.contains(&number)
        };
        appends.find(is_missing).map(|(number, _)| number)
    }

    /// A change of this partition was acknowledged under this version by a start of a node.
    pub(super) fn acknowledged(
        &mut self,
        partition: u16,
        version: Version,
        level: AckLevel,
        writer: (u8, u64),
    ) -> Result<(), String> {
        // A node with an older copy of its directory may give out a version again that it had given
        // out alone.
        if self.gone_back == Some(writer.0) && level < AckLevel::Replica {
            return Ok(());
        }
        let Version { epoch, sequence } = version;
        let known = self.writers.entry((partition, epoch)).or_insert(Writer {
            start: writer,
            level,
        });
        known.level = known.level.max(level);
        if known.start != writer {
            return Err(format!(
                "start {} of node {} and start {} of node {} both acknowledge in epoch {epoch} of \
                 partition {partition}",
                known.start.1, known.start.0, writer.1, writer.0
            ));
        }
        let given = Writer {
            start: writer,
            level,
        };
        if self
            .versions
            .insert((partition, epoch, sequence), given)
            .is_some()
        {
            return Err(format!(
                "version {epoch}:{sequence} of partition {partition} was given out twice"
            ));
        }
        Ok(())
    }

    pub(super) fn promoted(&mut self, partition: u16) {
        *self.promotions.entry(partition).or_default() += 1;
    }

    pub(super) fn forced(&mut self, partition: u16) {
        self.forced.insert(partition);
    }

    pub(super) fn parted(&mut self, partition: u16) {
        self.parted.insert(partition);
    }

    /// All that this node had is gone.
    pub(super) fn wiped(&mut self, number: u8) {
        self.wiped = Some(number);
        for append in self.appends.iter_mut().filter(|it| it.node == number) {
            append.was_wiped = true;
        }
    }

    /// The disk of this node has lost what came last.
    pub(super) fn gone_back(&mut self, number: u8) {
        self.gone_back = Some(number);
        self.wiped(number);
        // What nobody else had of it, nobody misses.
        let others_have =
            |writer: &Writer| writer.start.0 != number || writer.level == AckLevel::Replica;
        self.writers.retain(|_, writer| others_have(writer));
        self.versions.retain(|_, writer| others_have(writer));
    }

    /// All keys that were ever in use, with their partitions.
    pub(super) fn keys(&self) -> Vec<(Vec<u8>, u16)> {
        let lists = self.appends.iter().map(|it| (it.key.clone(), it.partition));
        let all: BTreeSet<_> = lists.chain(self.churned.iter().cloned()).collect();
        all.into_iter().collect()
    }

    /// Holds the last values against all answers. `found` are the diverged records that nodes keep.
    pub(super) fn judge(
        &self,
        last: &BTreeMap<Vec<u8>, Option<Vec<u8>>>,
        found: &[(u8, Vec<u8>)],
        keeps: Kept,
    ) -> Result<BTreeMap<&'static str, u64>, String> {
        let there = self.appends_in(last)?;
        self.applied_whole(last)?;
        let mut met = BTreeMap::new();
        let mut kept = BTreeSet::new();
        for (node, bytes) in found {
            for list in lists_in(bytes)? {
                let Some(&number) = list.last() else { continue };
                match keeps {
                    // A list has what was appended before.
                    Kept::Newest => kept.extend(list),
                    Kept::All | Kept::Some => kept.extend([number]),
                }
                let append = self.append_of(number);
                let append = append.ok_or_else(|| format!("lostfound has {number}"))?;
                let promotions = self.promotions.get(&append.partition).copied();
                let is_simple =
                    promotions.unwrap_or(0) <= 1 && !self.forced.contains(&append.partition);
                if there.contains(&number) && is_simple {
                    return Err(format!(
                        "node {node} keeps append {number} as lost, and it is there"
                    ));
                }
            }
        }
        for (number, append) in (1..).zip(&self.appends) {
            let Outcome::Acked(level, version) = append.outcome else {
                continue;
            };
            *met.entry(match level {
                AckLevel::Replica => "acked at replica",
                AckLevel::All => "acked at all",
                _ => "acked at disk",
            })
            .or_default() += 1;
            if there.contains(&number) {
                continue;
            }
            let what = format!(
                "append {number} to {}, acknowledged by node {} at level {level:?} as {}:{}, is \
                 gone",
                String::from_utf8_lossy(&append.key),
                append.node,
                version.epoch,
                version.sequence
            );
            let is_forced = self.forced.contains(&append.partition);
            // A node with an older copy of its directory got a new generation before it met a node
            // that knew better. Its lost records are kept, but for those that cleaning had
            // released.
            let is_kept = kept.contains(&number) || keeps == Kept::Some;
            let is_given_up = self.gone_back.is_some() && is_kept;
            if level.waits_for_members() && !is_forced && !is_given_up {
                return Err(what);
            }
            if kept.contains(&number) {
                *met.entry("lost at disk and kept").or_default() += 1;
            } else if append.was_wiped || self.wiped.is_some() && is_forced {
                *met.entry("lost with a disk").or_default() += 1;
            } else if keeps != Kept::Some && self.wiped.is_none() {
                return Err(format!("{what}, and no lostfound has it"));
            }
        }
        Ok(met)
    }

    /// Of what APPLYs change together the last values show all or nothing.
    fn applied_whole(&self, last: &BTreeMap<Vec<u8>, Option<Vec<u8>>>) -> Result<(), String> {
        for (key, value) in last {
            let copy = copy_of(key).and_then(|copy| last.get(&copy));
            if let Some(copy) = copy
                && copy != value
            {
                return Err(format!(
                    "{} is another than its copy: {value:?} and {copy:?}",
                    String::from_utf8_lossy(key)
                ));
            }
        }
        for group in &self.groups {
            let pots = (0..POTS).map(|number| format!("{{{}}}pot {number}", group.tag));
            let found = pots.filter_map(|pot| last.get(pot.as_bytes()).cloned().flatten());
            let units: Option<Vec<u64>> = found
                .map(|value| value.try_into().ok().map(u64::from_le_bytes))
                .collect();
            let units = units.ok_or("a pot is none")?;
            if units.iter().sum::<u64>() != units.len() as u64 * POT_UNITS {
                return Err(format!("the pots of {} hold {units:?}", group.tag));
            }
        }
        Ok(())
    }

    /// The appends that the last values show. Each was sent and not refused, and is there once;
    /// records of two keys are there as a whole.
    fn appends_in(
        &self,
        last: &BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    ) -> Result<BTreeSet<u64>, String> {
        let mut there: BTreeSet<u64> = BTreeSet::new();
        for (key, value) in last {
            let name = String::from_utf8_lossy(key);
            if name.contains("pair") {
                continue;
            }
            let Some(value) = value.as_ref().filter(|_| name.contains("list")) else {
                continue;
            };
            for number in list_of(value).ok_or_else(|| format!("{name} holds no list"))? {
                let append = self.append_of(number).filter(|it| it.key == *key);
                let append =
                    append.ok_or_else(|| format!("{name} has {number}, sent by nobody"))?;
                if append.outcome == Outcome::Refused {
                    return Err(format!("{name} has {number}, which was refused"));
                }
                if !there.insert(number) {
                    return Err(format!("{name} has {number} twice"));
                }
            }
        }
        for group in &self.groups {
            let pair = [0, 1].map(|number| {
                let key = format!("{{{}}}pair {number}", group.tag).into_bytes();
                last.get(&key).cloned().flatten()
            });
            if let [Some(first), Some(second)] = &pair
                && first != second
            {
                return Err(format!(
                    "half of a record is there: {pair:?} of {}",
                    group.tag
                ));
            }
        }
        Ok(there)
    }

    fn append_of(&self, number: u64) -> Option<&Append> {
        let place = usize::try_from(number).ok()?.checked_sub(1)?;
        self.appends.get(place)
    }
}

/// The copy of a list: every other one has one, if clients send APPLYs.
fn copy_of(list: &[u8]) -> Option<Vec<u8>> {
    let name = str::from_utf8(list).ok()?;
    let (tag, number) = name.split_once("}list ")?;
    let is_copied = number.parse::<usize>().is_ok_and(|number| number % 2 == 0);
    is_copied.then(|| format!("{tag}}}copy {number}").into_bytes())
}

/// A value of a list: how many, the numbers, something to make it long.
pub(super) fn value_of(list: &[u64], more: usize) -> Vec<u8> {
    let mut value = (list.len() as u64).to_le_bytes().to_vec();
    for number in list {
        value.extend_from_slice(&number.to_le_bytes());
    }
    value.resize(value.len() + more, 7);
    value
}

/// The numbers in a value of a list.
pub(super) fn list_of(value: &[u8]) -> Option<Vec<u64>> {
    let (count, rest) = value.split_first_chunk::<8>()?;
    let count = usize::try_from(u64::from_le_bytes(*count)).ok()?;
    if count > LIST_MAX || rest.len() < 8 * count {
        return None;
    }
    let numbers = rest.chunks_exact(8).take(count);
    Some(
        numbers
            .map(|it| u64::from_le_bytes(it.try_into().expect("eight")))
            .collect(),
    )
}

/// The lists that are in records kept by a node.
fn lists_in(bytes: &[u8]) -> Result<Vec<Vec<u64>>, String> {
    let mut lists = Vec::new();
    for record in records(bytes) {
        let record = record.map_err(|fault| format!("lostfound holds no record: {fault:?}"))?;
        let mut rest = record.bytes;
        while let Ok(part) = PartView::read(rest) {
            rest = &rest[part.bytes().len()..];
            let is_list = String::from_utf8_lossy(part.key()).contains("}list ");
            if is_list && part.kind() != PartKind::Tombstone {
                lists.push(list_of(part.value()).ok_or("lostfound holds no list")?);
            }
            if rest.is_empty() {
                break;
            }
        }
    }
    Ok(lists)
}
