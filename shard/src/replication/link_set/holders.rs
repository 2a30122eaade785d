//! The other nodes that hold each partition, and how far each of them has it.

use std::collections::{BTreeMap, BTreeSet};

use penstock_net::link::message::LINK_PARTITIONS;
use penstock_net::link::{Membership, PartitionSet};
use penstock_storage::place::Lsn;

use crate::replication::PartitionId;
use crate::replication::partition::{Overview, Role};
use crate::replication::partition_map::PartitionMap;
use crate::replication::receiver::Partitions;
use crate::replication::sender::{Confirmed, Sender};

/// The other nodes that hold the partitions of this shard.
#[derive(Debug, Default)]
pub(super) struct Holders {
    /// Who gets each partition while this node writes it.
    members: PartitionMap<Vec<(u8, Membership)>>,
    /// The partitions of `members`, and those that each node holds.
    placed: PartitionSet,
    held: BTreeMap<u8, PartitionSet>,
    changes: u64,
    /// By partition: up to which record of this log each node is known to have all of it on its
    /// disk.
    durable_at: BTreeMap<u8, Box<[Lsn; LINK_PARTITIONS as usize]>>,
    /// What nodes had when the last link to them ended.
    departed: BTreeMap<u8, Departed>,
}

/// What a member had when the last link to it ended.
#[derive(Debug, Default)]
struct Departed {
    /// The last record of each partition that was shipped.
    shipped: BTreeMap<PartitionId, u64>,
    received: Unconfirmed,
    durable: Unconfirmed,
}

/// Records that were shipped to a member and not confirmed.
#[derive(Clone, Copy, Debug, Default)]
struct Unconfirmed {
    records: u64,
    /// These records and all later ones stand behind this record of the log.
    behind: Option<Lsn>,
}

impl Departed {
    fn unconfirmed(&self, confirmed: Confirmed) -> Unconfirmed {
        match confirmed {
            Confirmed::Received => self.received,
            Confirmed::Durable => self.durable,
        }
    }
}

/// Records that a member lacks.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lacking {
    pub(super) records: u64,
    /// The records stand behind this record of the log. `None` if the member lacks none.
    pub(super) behind: Option<Lsn>,
}

impl Lacking {
    fn add(&mut self, records: u64, behind: Option<Lsn>) {
        self.records += records;
        if records > 0 {
            let from = behind.unwrap_or_default();
            self.behind = Some(self.behind.map_or(from, |before| before.min(from)));
        }
    }
}

impl Holders {
    /// Sets the other nodes that hold a partition from now on.
    pub(super) fn place(&mut self, partition: PartitionId, members: Vec<(u8, Membership)>) {
        for held in self.held.values_mut() {
            held.set(partition, false);
        }
        for &(node, _) in &members {
            self.held.entry(node).or_default().insert(partition);
        }
        self.placed.insert(partition);
        self.members.insert(partition, members);
        self.changes += 1;
    }

    /// A number that rises when other nodes hold a partition.
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    fn of(&self, partition: PartitionId) -> &[(u8, Membership)] {
        self.members.get(&partition).map_or(&[], Vec::as_slice)
    }

    /// How a node holds a partition; `None` if it does not.
    pub(super) fn membership(&self, partition: PartitionId, node: u8) -> Option<Membership> {
        let mut members = self.of(partition).iter();
        let member = members.find(|(member, _)| *member == node)?;
        Some(member.1)
    }

    /// The nodes that level `replica` waits for.
    pub(super) fn sync_set(&self, partition: PartitionId) -> impl Iterator<Item = u8> + '_ {
        let members = self.of(partition).iter();
        let sync = members.filter(|(_, membership)| *membership == Membership::Sync);
        sync.map(|&(node, _)| node)
    }

    /// Notes up to where a node has told to have partitions on its disk.
    pub(super) fn note_durable(&mut self, node: u8, sender: &mut Sender) {
        if !sender.take_durable_news() {
            return;
        }
        let nothing = || Box::new([Lsn(0); _]);
        let known = self.durable_at.entry(node).or_insert_with(nothing);
        for (number, durable) in sender.member_durable() {
            let known = &mut known[usize::from(number)];
            *known = durable.max(*known);
        }
    }

    /// A new link to a node is there: the node tells anew what it has.
    pub(super) fn connected(&mut self, node: u8) {
        if let Some(departed) = self.departed.get_mut(&node) {
            (departed.received, departed.durable) = Default::default();
        }
    }

    /// Remembers what a node had when a link to it ended.
    pub(super) fn remember(&mut self, node: u8, sender: &Sender) {
        let departed = self.departed.entry(node).or_default();
        let mut next = None;
        for partition in sender.partitions() {
            if let Some((shipped, at)) = sender.shipped(partition) {
                departed.shipped.insert(partition, shipped);
                next = Some(next.map_or(at, |before: Lsn| before.min(at)));
            }
        }
        // Without a position the link adds nothing to what was known before.
        let Some(next) = next else { return };
        for (open, confirmed) in [
            (&mut departed.received, Confirmed::Received),
            (&mut departed.durable, Confirmed::Durable),
        ] {
            let (records, behind) = sender.unconfirmed(confirmed);
            let behind = behind.map_or(next, |behind| behind.min(next));
            open.records += records;
            open.behind = Some(open.behind.map_or(behind, |before| before.min(behind)));
        }
    }

    /// The records that a node lacks of what this node writes, given the senders to it. Unknown if
    /// the node has not told where it stands since this start.
    pub(super) fn lacking<'a>(
        &self,
        node: u8,
        confirmed: Confirmed,
        partitions: &Partitions,
        senders: impl Iterator<Item = &'a Sender> + Clone,
    ) -> Option<Lacking> {
        let mut lacking = Lacking::default();
        for sender in senders.clone() {
            let (records, behind) = sender.unconfirmed(confirmed);
            lacking.add(records, behind);
        }
        let departed = self.departed.get(&node);
        let open = departed.map_or_else(Unconfirmed::default, |it| it.unconfirmed(confirmed));
        if senders.clone().next().is_none() {
            lacking.add(open.records, open.behind);
        }
        for (&number, state) in partitions.iter() {
            let is_written = matches!(state.role(), Role::Primary { begun: Some(_), .. });
            if !is_written || self.membership(number, node).is_none() {
                continue;
            }
            let shipped = senders.clone().filter_map(|it| it.shipped(number)).max();
            let (has, behind) = match (shipped, departed) {
                (Some((has, behind)), _) => (has, Some(behind)),
                (None, Some(departed)) => (*departed.shipped.get(&number)?, open.behind),
                (None, None) => return None,
            };
            lacking.add(state.applied().sequence.saturating_sub(has), behind);
        }
        Some(lacking)
    }

    /// All nodes that hold something.
    pub(super) fn nodes(&self) -> BTreeSet<u8> {
        let members = self.members.values().flatten();
        members.map(|&(node, _)| node).collect()
    }

    /// Behind which record cleaning leaves the log to members: behind what the slowest one is known
    /// to have of what is written here; all of the log while this node does not know whether it has
    /// diverged.
    pub(super) fn backlog_behind(&self, overview: &Overview) -> Option<Lsn> {
        if !self.placed.and(overview.lagging()).is_empty() {
            return Some(Lsn(0));
        }
        let lacked = |(node, held): (&u8, &PartitionSet)| {
            let written = held.and(overview.primaries());
            match self.durable_at.get(node) {
                Some(known) => written.iter().map(|it| known[usize::from(it)]).min(),
                None => (!written.is_empty()).then_some(Lsn(0)),
            }
        };
        self.held.iter().filter_map(lacked).min()
    }
}
