//! Counters and figures that a shard reports of itself.

use penstock_storage::io::Blocks;

use crate::accounts::counters::{Counters, ReplicationCounters};
use crate::cluster::LeaseCounters;
use crate::now::Now;
use crate::shard::Shard;

impl<P: Blocks> Shard<P> {
    /// What was done so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let sessions = self.front.sessions.counts();
        Counters {
            reads_coalesced: self.execution.requests.parking.coalesced(),
            sessions_opened: sessions.opened,
            sessions: sessions.open,
            pauses: sessions.pauses,
            bad_places: self.execution.chores.bad_places(),
            firing: self.execution.firing.counters(),
            logins: self.front.logins.counters(),
            ..self.execution.stats.counters()
        }
    }

    /// The shard's counters of replication, and the memory of its links.
    #[must_use]
    pub fn replication_counters(&self, now: Now) -> ReplicationCounters {
        let Some(linked) = &self.execution.linked else {
            return ReplicationCounters::default();
        };
        let links = linked.link_set();
        ReplicationCounters {
            links: links.counters(),
            memory: links.memory(),
            leases: LeaseCounters {
                ended: self.front.sessions.counts().voided,
                ..linked.lease_counters()
            },
            ..self.execution.replica_waits.counters(now.us)
        }
    }
}
