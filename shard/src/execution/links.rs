//! Links to other nodes, and what this node is to the partitions of its cluster.

use penstock_storage::histogram::Histogram;
use penstock_storage::io::Blocks;

use crate::cluster::{PartitionStatus, ReplicationStatus};
use crate::event::Outbox;
use crate::execution::Execution;
use crate::mail::Mail;
use crate::now::Now;
use crate::replication::LinkId;
use crate::replication::link_set::LinkSet;
use crate::replication::{PartitionId, PeerStatus};

impl<P: Blocks> Execution<P> {
    pub(crate) fn links(&mut self) -> Option<&mut LinkSet<P::Block>> {
        self.linked.as_mut().map(|linked| linked.links())
    }

    /// Moves the output of a link to `into`, which is empty. A link that is gone has none.
    pub fn take_link_output(&mut self, link: LinkId, into: &mut Vec<u8>) {
        if let Some(output) = self.links().and_then(|links| links.output(link)) {
            std::mem::swap(output, into);
        }
        if let Some(links) = self.links() {
            links.went(link, into.len());
        }
    }

    /// How many bytes are to be sent by a link; 0 by one that is gone.
    #[must_use]
    pub fn link_output_bytes(&self, link: LinkId) -> usize {
        let linked = self.linked.as_ref();
        linked.map_or(0, |linked| linked.link_set().output_bytes(link))
    }

    /// Whether more bytes of a link are to be handed over now.
    #[must_use]
    pub fn may_read_link(&self, link: LinkId) -> bool {
        let linked = self.linked.as_ref();
        linked.is_none_or(|linked| linked.link_set().may_read(link))
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
    pub fn write_replication(&mut self, now: Now, status: &mut ReplicationStatus) {
        if let Some(linked) = &mut self.linked {
            linked.write_status(now.us, &self.store, status);
        }
    }

    /// The number of its node in its cluster, and where clients find each.
    #[must_use]
    pub fn nodes(&self) -> Option<(u8, &[(u8, String)])> {
        self.linked.as_ref().map(|linked| linked.nodes())
    }

    /// How long it took, in microseconds, until members told to have received, and to have on their
    /// disks, what was shipped to them live; nothing of a node alone.
    #[must_use]
    pub fn replication_delays(&self) -> Option<(&Histogram, &Histogram)> {
        let linked = self.linked.as_ref()?;
        Some(linked.link_set().delays())
    }

    /// Whether something may have run under a lease since the last look at the leases behind it.
    /// Always `false` of a node without leases.
    #[inline]
    #[must_use]
    pub fn is_unchecked(&self) -> bool {
        self.linked.as_ref().is_some_and(|it| it.is_unchecked())
    }

    /// Notes that answers for other shards are not to leave before the check.
    pub(crate) fn owe_check(&mut self, outbox: &Outbox<P::Block>) {
        if let Some(linked) = &mut self.linked
            && outbox
                .mail
                .iter()
                .any(|(_, mail)| matches!(mail, Mail::Replies(_)))
        {
            linked.owe_check();
        }
    }
}
