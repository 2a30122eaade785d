//! A shard as one of several nodes: who writes its partitions, and its links.
//!
//! The plan says of each partition which node writes it in which generation and who else holds it.
//! A shard begins the partitions that are its node's, ships what it writes to the others, takes in
//! what it is shipped, and says of each operation whether it is its to answer. A node alone has
//! none of this.
//!
//! In each turn what has come is taken in before the log is pumped, and what was sealed is shipped
//! behind it.

mod deferred;
mod durable_sequences;
mod leases;
mod member;
mod observer;
mod offers;
mod plan;
mod promotions;
mod proofs;
mod redirect;
mod served;
mod standings;
mod status;

use std::sync::Arc;

use crate::lease::LeaseTable;
use crate::replication::link_set::LinkSetConfig;
use crate::replication::{LinkId, PartitionId};

pub use leases::LeaseCounters;
pub(crate) use member::ClusterMember;
pub use offers::NodeOffers;
pub use plan::{Assignment, Plan};
pub(crate) use redirect::Redirect;
pub use status::{PartitionRole, PartitionStatus, ReplicationStatus};

/// How a shard takes part in a cluster.
#[derive(Clone, Debug)]
pub struct ClusterConfig {
    /// Its links.
    pub links: LinkSetConfig,
    /// Who holds what.
    pub plan: Arc<Plan>,
    /// What the leases of the node and its shards tell each other.
    pub leases: Arc<LeaseTable>,
    /// What the other nodes have offered to the shards of the node.
    pub offers: Arc<NodeOffers>,
    /// How long a reply at level `replica` waits for members, at most.
    pub replica_timeout_us: u64,
    /// The cluster is new: a partition that the plan names for this node may be begun although
    /// nothing of it is here. What a later plan names may not.
    pub is_new: bool,
}

/// What a shard wants done about its links.
#[derive(Debug, Default)]
pub struct LinkOutbox {
    /// Links with bytes to send: [`crate::Shard::take_link_output`].
    pub sendable: Vec<LinkId>,
    /// Links that are to be ended, with what is to be sent before.
    pub ended: Vec<(LinkId, Vec<u8>)>,
    /// Records that have diverged, each with all of its parts, to be kept.
    pub kept: Vec<(PartitionId, Vec<u8>)>,
    /// What was kept of a partition is to be made durable: [`crate::Event::DivergedKept`].
    pub to_sync: Vec<(PartitionId, Option<LinkId>)>,
    /// What people should know.
    pub notices: Vec<String>,
}
