//! Changes of keyspaces in the traffic of a cluster. Their prefixes are those of no other key, so
//! nothing else notices them. In the end all nodes know the same settings, in each partition.

use std::collections::BTreeSet;

use penstock_net::keyspace::{Action, Settings};
use penstock_net::level::AckLevel;
use penstock_net::request::BatchRequest;
use penstock_net::status::Status;
use penstock_shard::Topology;
use penstock_storage::version::{PARTITIONS, SLOTS};

use crate::random::Random;

use super::client::What;
use super::past::{self, PastTraffic};
use super::{NODES, Step, World, number_of};

/// Seeds below are from before nodes with several writers changed keyspaces, and change none.
const SETTINGS_FROM: u64 = 960_000_000;

/// Whether a run changes keyspaces.
pub(super) fn are_changed(seed: u64) -> bool {
    seed >= SETTINGS_FROM
}

/// What a run is to meet because it changes keyspaces, each 0 times so far.
pub(super) fn must_meet(seed: u64) -> impl Iterator<Item = (&'static str, u64)> {
    let all = if are_changed(seed) { MUST_MEET } else { &[] };
    let of_past = if past::is_kept(seed) {
        past::MUST_MEET
    } else {
        &[]
    };
    all.iter().chain(of_past).map(|&what| (what, 0))
}

/// What runs of these seeds meet.
const MUST_MEET: &[&str] = &[
    "keyspace changed",
    "keyspace changed beside another writer",
    "change of a keyspace left open",
];

const PREFIXES: &[&[u8]] = &[b"settings:", b"settings:a", b"settings:b", ALL_KEYS];

/// The prefix of all keys, in runs that keep versions.
const ALL_KEYS: &[u8] = b"";

/// Changes of keyspaces of a run.
pub(super) struct SettingsTraffic {
    random: Random,
    /// The layouts that were asked for, of each prefix. A layout stands for one change.
    asked: Vec<BTreeSet<u16>>,
    next_layout: u16,
}

impl SettingsTraffic {
    /// Those of a seed, if it has some.
    pub(super) fn of_seed(seed: u64) -> Option<SettingsTraffic> {
        are_changed(seed).then(|| SettingsTraffic {
            random: Random::new(seed, 112),
            asked: vec![BTreeSet::new(); PREFIXES.len()],
            next_layout: 1,
        })
    }

    /// Whether the next operation of a client is a change.
    pub(super) fn is_due(&mut self) -> bool {
        self.random.chance(60_000)
    }

    fn next(&mut self, past: Option<&mut PastTraffic>) -> (&'static [u8], Action) {
        let past = past.and_then(|past| past.is_of_all().then_some(past));
        let prefix = match past {
            None => self.random.index(PREFIXES.len() - 1),
            Some(_) => PREFIXES.len() - 1,
        };
        if self.random.chance(150_000) {
            return (PREFIXES[prefix], Action::Drop);
        }
        let layout = self.next_layout;
        self.next_layout += 1;
        self.asked[prefix].insert(layout);
        let settings = match past {
            None => Settings {
                layout,
                ..Settings::default()
            },
            Some(past) => past.settings(layout),
        };
        (PREFIXES[prefix], Action::Set(settings))
    }
}

impl World {
    /// Sends the next change of a keyspace.
    pub(super) fn send_settings(&mut self, client: usize) {
        let request = self.clients[client].request + 1;
        let traffic = self.settings.as_mut().expect("the caller looked");
        let (prefix, action) = traffic.next(self.past.as_mut());
        let mut out = Vec::new();
        let mut batch = BatchRequest::begin(&mut out, request, AckLevel::Disk, 0, 1);
        batch.keyspace(&mut out, prefix, action);
        batch.finish(&mut out);
        self.issued += 1;
        // The node that writes partition 0 takes it.
        let home = (Vec::new(), 0);
        self.send(client, out, home, AckLevel::Disk, What::Settings);
    }

    /// A node has answered a change that came to it at `came_us`.
    pub(super) fn answer_settings(&mut self, node: usize, status: Status, came_us: u64) -> Step {
        match status {
            Status::Ok => {
                self.meet("keyspace changed");
                let me = number_of(node);
                let mut all = self.partitions.iter();
                let primary = |it: u16| self.plan.partitions[usize::from(it)].primary;
                if all.any(|&partition| primary(partition) != me) {
                    self.meet("keyspace changed beside another writer");
                }
                Ok(())
            }
            Status::Indeterminate => {
                self.meet("change of a keyspace left open");
                Ok(())
            }
            Status::NotFound
            | Status::Moved
            | Status::NotPrimary
            | Status::Busy
            | Status::Draining
            | Status::Full => Ok(()),
            // The operator had this node hold nothing of a partition, at least until its answer
            // left.
            Status::Unsupported if self.nodes[node].has_lacked(came_us) => {
                self.meet("keyspaces at a node that lacks a partition");
                Ok(())
            }
            other => Err(format!("a change of a keyspace is answered {other:?}")),
        }
    }

    /// Where the nodes do not know the same settings yet.
    pub(super) fn difference_of_settings(&self) -> Option<String> {
        let traffic = self.settings.as_ref()?;
        for (prefix, asked) in PREFIXES.iter().zip(&traffic.asked) {
            let mut first = None;
            for node in 0..NODES {
                let topology = Topology::new(self.nodes[node].shards);
                let cores = self.nodes[node].cores.as_ref()?;
                for (shard, core) in cores.iter().enumerate() {
                    let known = core.shard.store().keyspaces();
                    let newest = known.newest(prefix).copied();
                    let own = self.partitions.iter().map(|&it| usize::from(it));
                    let slot = |partition: usize| partition * usize::from(SLOTS) / PARTITIONS;
                    let own = own.filter(|&it| {
                        let slot = u16::try_from(slot(it)).expect("a slot");
                        usize::from(topology.owner(slot)) == shard
                    });
                    let behind = newest.and_then(|_| known.first_behind(prefix, own.clone()));
                    // A shard without any of the partitions hears of changes from the others.
                    let is_same = *first.get_or_insert(newest) == newest || own.count() == 0;
                    let was_asked =
                        newest.is_none_or(|it| it.layout == 0 || asked.contains(&it.layout));
                    if behind.is_some() || !is_same || !was_asked {
                        return Some(format!(
                            "settings of {} at shard {shard} of node {}: {newest:?}, behind in \
                             {behind:?}; elsewhere {first:?}",
                            String::from_utf8_lossy(prefix),
                            number_of(node),
                        ));
                    }
                }
            }
        }
        None
    }
}
