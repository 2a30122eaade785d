//! What is held against a run.

use super::*;

fn assert_same(found: &Contents, expected: &Contents, whose: &str) {
    let text_of = |it: Option<&(Version, Vec<u8>)>| match it {
        None => "absent".into(),
        Some((version, value)) => format!("{:?} of {} bytes", position(*version), value.len()),
    };
    for key in found.keys().chain(expected.keys()) {
        let (there, wanted) = (found.get(key), expected.get(key));
        let name = String::from_utf8_lossy(key);
        assert!(
            there == wanted,
            "{whose}: {name} is {} and not {}",
            text_of(there),
            text_of(wanted)
        );
    }
}

impl World {
    /// What a member applies, its source cannot lose.
    pub(super) fn check_applied(&self, at: usize) {
        for partition in PARTITIONS {
            let Some(state) = self.nodes[at].links.partition(partition) else {
                continue;
            };
            if state.facts().rewind_from.is_some() && state.is_readable() {
                panic!("node {at} serves {partition} and has not rewound it");
            }
            let Role::Member(member) = state.role() else {
                continue;
            };
            let source = self
                .links
                .iter()
                .find(|(_, link)| link.id == member.link)
                .map(|(&(from, _), _)| &self.nodes[from]);
            let Some(source) = source else { continue };
            let applied = state.applied();
            let durable = source.store.log().durable();
            let is_lossy = source.written.iter().any(|(lsn, operation, _)| {
                operation.partition == partition && operation.at == applied && *lsn > durable
            });
            assert!(
                !is_lossy,
                "{applied:?} of {partition} is applied at node {at} and its source may lose it"
            );
        }
    }

    /// A member's records are no older than it says, by its own clock. Clocks of other nodes show
    /// other times.
    pub(super) fn check_age(&mut self, at: usize) {
        for partition in PARTITIONS {
            let node = &self.nodes[at];
            let Some(Some(age_us)) = node.links.age_us(node.now_us, partition) else {
                continue;
            };
            let state = node.links.partition(partition).expect("it has an age");
            assert!(state.is_whole(), "node {at} shows {partition}: {state:?}");
            let Role::Member(member) = state.role() else {
                panic!("node {at} has an age of {partition}: {state:?}");
            };
            let source = self.links.iter().find(|(_, it)| it.id == member.link);
            let Some((&(from, _), _)) = source else {
                continue;
            };
            let us = node.now_us - age_us;
            let then = node.clock[node.clock.partition_point(|&(shown, _)| shown < us)].1;
            let written = self.nodes[from].written.iter().rev();
            let mut written = written.filter(|(_, it, _)| it.partition == partition);
            let newest = written.find(|(.., step)| *step < then);
            let applied = state.applied();
            assert!(
                newest.is_none_or(|(_, it, _)| it.at <= applied),
                "node {at} says that its {partition} is {age_us} us old, is at {applied:?}, \
                 and node {from} had {newest:?} by then"
            );
            self.met.one(match age_us <= STALENESS_US_MAX {
                true => "new enough",
                false => "stale",
            });
        }
    }

    /// Whoever serves has what was acknowledged by all.
    pub(super) fn check_served(&mut self, at: usize) {
        for partition in PARTITIONS {
            let node = &mut self.nodes[at];
            let Some(state) = node.links.partition(partition) else {
                continue;
            };
            let Some(epoch) = state.may_open(node.store.log().durable()) else {
                continue;
            };
            if !node.served.insert((partition, epoch)) {
                continue;
            }
            for acked in &self.acked_replica {
                assert!(
                    acked.partition != partition
                        || state.history().contains(acked.at, state.applied()),
                    "node {at} serves {partition} without {:?}, which was acknowledged at level \
                     replica; it is at {:?} of {:?}",
                    acked.at,
                    state.applied(),
                    state.history()
                );
            }
        }
    }

    pub(super) fn check_end(&mut self) {
        (0..self.nodes.len()).for_each(|at| self.count(at));
        for node in &self.nodes {
            assert!(
                node.gates.is_empty(),
                "node {} lets {} wait for ever",
                node.number,
                node.gates.len()
            );
        }
        for partition in PARTITIONS {
            let primary = self.plan[&partition].primary;
            let expected = self.contents(primary, partition);
            let applied = self.state(primary, partition).applied();
            for at in self.holders(partition) {
                let found = self.contents(at, partition);
                assert_same(&found, &expected, &format!("node {at} beside {primary}"));
                let here = self.state(at, partition);
                assert!(here.is_readable(), "node {at}: {here:?}");
                assert_eq!(here.applied(), applied, "node {at}");
                let node = &self.nodes[at];
                let age_us = node.links.age_us(node.now_us, partition);
                let is_fresh = age_us
                    .flatten()
                    .is_some_and(|it| it <= 20 * STALENESS_US_MAX);
                assert!(is_fresh || at == primary, "node {at}: {age_us:?}");
                let store = &self.nodes[at].store;
                let highest = store.log().history().last(usize::from(partition));
                assert_eq!(position(highest), applied, "node {at}");
                let is_scanned = here.facts().dense_behind > 0;
                self.met.more("scanned", u64::from(is_scanned));
                let is_dealt = self.nodes[at].shards != self.nodes[primary].shards;
                self.met.more("other shards", u64::from(is_dealt));
            }
            let state = self.state(primary, partition);
            let of_partition = |acked: &&Operation| acked.partition == partition;
            for acked in self.acked_disk.iter().filter(of_partition) {
                let is_there = state.history().contains(acked.at, state.applied());
                let place = (partition, acked.at);
                let is_reported = self
                    .nodes
                    .iter()
                    .any(|node| node.lostfound.contains(&place) || node.kept.contains(&place));
                assert!(
                    is_there || is_reported || self.backlog_bytes < u64::MAX,
                    "{:?} of {partition} was acknowledged, is gone, and no lostfound has it",
                    acked.at
                );
            }
            for acked in self.acked_replica.iter().filter(of_partition) {
                assert!(state.history().contains(acked.at, state.applied()));
            }
        }
        for at in 0..self.nodes.len() {
            let before = PARTITIONS.map(|it| self.contents(at, it));
            self.restart(at);
            for (partition, before) in PARTITIONS.into_iter().zip(&before) {
                let found = self.contents(at, partition);
                assert_same(&found, before, &format!("node {at} behind a start"));
            }
        }
    }

    /// Keys of a partition with versions and values.
    pub(super) fn contents(&mut self, at: usize, partition: PartitionId) -> Contents {
        let keys = self.keys[&partition].clone();
        let mut contents = BTreeMap::new();
        for key in keys {
            let node = &mut self.nodes[at];
            node.settle();
            let Some(id) = node.cell(&key) else { continue };
            let cell = node.store.keys().cell(id);
            if !cell.is_deleted() {
                let value = cell.value().to_vec();
                contents.insert(key, (node.store.keys().version(id), value));
            }
        }
        contents
    }
}
