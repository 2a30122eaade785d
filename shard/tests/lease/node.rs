//! One node of the world: its clock, its part in failover, its records.

use std::collections::BTreeMap;

use penstock_shard::lease::{Failover, Standing};

use super::clock::Clock;
use super::log::{Epoch, Log, generation};

/// A partition at one node.
#[derive(Clone, Debug, Default)]
pub struct Data {
    pub log: Log,
    /// Up to which sequence it is on the disk.
    pub durable: u64,
    pub promised: Epoch,
    pub has_followed: bool,
    /// The epoch in which this start of the node writes it.
    pub begun: Option<Epoch>,
}

pub struct Node {
    pub number: u8,
    pub clock: Clock,
    pub start: u32,
    /// `None` while it is down.
    pub run: Option<Failover>,
    /// Until when it stands still.
    pub stopped_until_us: Option<u64>,
    pub data: BTreeMap<u16, Data>,
    /// What members have received of what this start writes.
    pub got: BTreeMap<(u8, u16), u64>,
    /// How much had been written when a member was first waited for.
    pub marks: BTreeMap<(u8, u16), u64>,
    /// By mistake: members that are not waited for although the plan here names them.
    pub ignored: Vec<(u8, u16)>,
    pub beat_us: u64,
    pub ticks: u64,
    /// It cannot reach the store.
    pub is_cut_off: bool,
    /// By mistake: it took over, and asks no more whether it may begin.
    pub judged: bool,
}

impl Node {
    pub fn is_running(&self) -> bool {
        self.run.is_some() && self.stopped_until_us.is_none()
    }

    /// What its shard says of a partition.
    pub fn standing(&self, partition: u16) -> Standing {
        let run = self.run.as_ref().expect("it runs");
        let assignment = &run.plan().placings[usize::from(partition)].assignment;
        let Some(data) = self.data.get(&partition) else {
            return Standing::default();
        };
        let is_mine = assignment.primary == self.number;
        let writes = data
            .begun
            .is_some_and(|it| generation(it) == assignment.generation);
        Standing {
            is_turning: true,
            is_candidate: data.has_followed,
            is_able: is_mine && (writes || self.can_begin(partition)),
            is_awaiting: false,
            sequence: data.log.len,
        }
    }

    /// As `Partition::begin` judges it.
    pub fn can_begin(&self, partition: u16) -> bool {
        let run = self.run.as_ref().expect("it runs");
        let wanted = run.plan().placings[usize::from(partition)]
            .assignment
            .generation;
        let data = &self.data[&partition];
        let was_last = data.log.last_writer() == Some(self.number);
        (was_last || data.has_followed) && generation(data.promised) <= wanted
    }

    /// The nodes that it waits for.
    pub fn waits_for(&self, partition: u16) -> Vec<u8> {
        let run = self.run.as_ref().expect("it runs");
        let placing = &run.plan().placings[usize::from(partition)];
        let is_counted = |node: &u8| !self.ignored.contains(&(*node, partition));
        placing.sync().filter(is_counted).collect()
    }

    /// Whether it answers for a partition at `now_us` of its clock.
    pub fn serves(&self, now_us: u64, partition: u16) -> bool {
        let Some(run) = self.run.as_ref().filter(|_| self.is_running()) else {
            return false;
        };
        let assignment = &run.plan().placings[usize::from(partition)].assignment;
        let data = &self.data[&partition];
        let has_begun = data
            .begun
            .is_some_and(|it| generation(it) == assignment.generation && data.promised == it);
        if assignment.primary != self.number || !has_begun {
            return false;
        }
        let waits_for = self.waits_for(partition).into_iter();
        let ends_us = waits_for.map(|node| run.lease_end_by(node, partition));
        let end_us = ends_us.min().unwrap_or(u64::MAX);
        let may = now_us < end_us && (self.judged || run.may_begin(now_us, partition));
        let is_right = self.ignored.is_empty() && !self.judged;
        assert!(!is_right || may == run.may_serve(now_us, partition));
        may
    }

    /// What was only in memory is gone.
    pub fn crash(&mut self) {
        self.run = None;
        self.stopped_until_us = None;
        for data in self.data.values_mut() {
            data.log.cut(data.durable);
            data.has_followed = false;
            data.begun = None;
        }
        self.got.clear();
        self.marks.clear();
        self.ignored.clear();
        self.judged = false;
    }
}
