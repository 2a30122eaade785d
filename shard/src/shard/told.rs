//! What a shard tells of itself.

use penstock_storage::histogram::Histogram;
use penstock_storage::io::Blocks;
use penstock_storage::store::{Store, Usage};

use crate::cluster::{LeaseCounters, PartitionStatus, ReplicationStatus};
use crate::replication::{PartitionId, PeerStatus};
use crate::snapshots::SnapshotCounters;
use crate::stages::Stages;

use crate::counters::{Counters, ReplicationCounters};

use super::{Now, Shard};

impl<P: Blocks> Shard<P> {
    /// What was done so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let sessions = self.sessions.counts();
        Counters {
            reads_coalesced: self.requests.parking.coalesced(),
            sessions_opened: sessions.opened,
            sessions: sessions.open,
            pauses: sessions.pauses,
            bad_places: self.chores.bad_places(),
            firing: self.firing.counters(),
            logins: self.logins.counters(),
            ..self.stats.counters()
        }
    }

    /// Where the time of its operations went.
    #[must_use]
    pub fn stages(&self) -> &Stages {
        self.stats.stages()
    }

    /// What is held.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.store.usage()
    }

    /// What its snapshots did.
    #[must_use]
    pub fn snapshot_counters(&self) -> SnapshotCounters {
        self.chores.snapshots.counters()
    }

    /// Whether a piece of a snapshot was given out and not answered.
    #[must_use]
    pub fn is_writing_snapshot(&self) -> bool {
        self.chores.snapshots.is_writing()
    }

    /// The store, for what the owner reports of it.
    #[must_use]
    pub fn store(&self) -> &Store<P> {
        &self.store
    }

    /// Whether it is one of a cluster's.
    #[must_use]
    pub fn is_linked(&self) -> bool {
        self.linked.is_some()
    }

    /// What it is to the partitions of its cluster, if it has one.
    pub fn partitions(&self) -> impl Iterator<Item = PartitionStatus> + '_ {
        self.linked.iter().flat_map(|linked| linked.partitions())
    }

    /// What it is to one of them; none if it is another shard's.
    #[must_use]
    pub fn partition(&self, partition: PartitionId) -> Option<PartitionStatus> {
        self.linked.as_ref()?.partition(partition)
    }

    /// The state of the other nodes of the cluster, as this shard knows it. Empty for a node alone.
    pub fn peers(&self, now: Now) -> impl Iterator<Item = PeerStatus> + '_ {
        self.linked
            .iter()
            .flat_map(move |linked| linked.peers(now.us))
    }

    /// Writes the state of the shard's partitions and of the other nodes into `status`.
    pub fn look_around(&mut self, now: Now, status: &mut ReplicationStatus) {
        if let Some(linked) = &mut self.linked {
            linked.write_status(now.us, &self.store, status);
        }
    }

    /// The number of its node in its cluster, and where clients find each.
    #[must_use]
    pub fn nodes(&self) -> Option<(u8, &[(u8, String)])> {
        self.linked.as_ref().map(|linked| linked.nodes())
    }

    /// The shard's counters of replication, and the memory of its links.
    #[must_use]
    pub fn replication_counters(&self, now: Now) -> ReplicationCounters {
        let Some(linked) = &self.linked else {
            return ReplicationCounters::default();
        };
        let links = linked.link_set();
        ReplicationCounters {
            links: links.counters(),
            memory: links.memory(),
            leases: LeaseCounters {
                ended: self.sessions.counts().voided,
                ..linked.lease_counters()
            },
            ..self.replica_waits.counters(now.us)
        }
    }

    /// How long it took, in microseconds, until members told to have received, and to have on their
    /// disks, what was shipped to them live; nothing of a node alone.
    #[must_use]
    pub fn replication_delays(&self) -> Option<(&Histogram, &Histogram)> {
        let linked = self.linked.as_ref()?;
        Some(linked.link_set().delays())
    }
}
