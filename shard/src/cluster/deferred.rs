//! A plan that hands partitions over, before this shard takes it.
//!
//! The new primaries read the same plan, each in its own time, and then ask for their leases. Until
//! they have asked, the shard goes on by the plan before. So writers wait for the handover alone.
//! Nothing of safety rests on that: a new primary begins by HANDOVER, and a shard that reads a plan
//! late does the same.

use std::sync::Arc;

use penstock_net::link::message::LINK_PARTITIONS;

use crate::lease::LeaseTable;
use crate::replication::PartitionId;

use super::plan::Plan;

/// A new primary that has not asked by then may be gone. The plan is taken, and it is waited for.
const WAIT_US: u64 = 100_000;
/// Between two looks.
const CHECK_US: u64 = 1_000;

/// At most one plan.
#[derive(Debug, Default)]
pub(super) struct DeferredPlan(Option<Deferred>);

#[derive(Debug)]
struct Deferred {
    plan: Arc<Plan>,
    /// The partitions that are handed over, and the generation of each.
    awaited: Vec<(PartitionId, u32)>,
    until_us: u64,
}

impl DeferredPlan {
    /// Defers a plan, if it hands over what this node serves and is not asked for yet. A plan that
    /// was deferred before is forgotten: this one is newer.
    pub(super) fn defer(
        &mut self,
        now_us: u64,
        (before, plan): (&Plan, &Arc<Plan>),
        table: &LeaseTable,
        is_served: impl Fn(PartitionId) -> bool,
    ) -> bool {
        self.0 = None;
        if !before.is_leased || !plan.is_leased {
            return false;
        }
        let is_handed_over = |&partition: &PartitionId| {
            let (old, new) = (before.of(partition), plan.of(partition));
            is_served(partition) && new.primary != old.primary && new.is_handed_over
        };
        let handed_over = (0..LINK_PARTITIONS).filter(is_handed_over);
        let deferred = Deferred {
            plan: Arc::clone(plan),
            awaited: handed_over.map(|it| (it, plan.of(it).generation)).collect(),
            until_us: now_us + WAIT_US,
        };
        let is_deferred = !deferred.is_due(now_us, table);
        self.0 = is_deferred.then_some(deferred);
        is_deferred
    }

    /// The plan, once it is to be taken.
    pub(super) fn take(&mut self, now_us: u64, table: &LeaseTable) -> Option<Arc<Plan>> {
        self.0
            .take_if(|it| it.is_due(now_us, table))
            .map(|it| it.plan)
    }

    /// When to look again.
    pub(super) fn deadline_us(&self, now_us: u64) -> Option<u64> {
        self.0.as_ref().map(|_| now_us + CHECK_US)
    }
}

impl Deferred {
    fn is_due(&self, now_us: u64, table: &LeaseTable) -> bool {
        let is_asked_for =
            |&(partition, generation): &(PartitionId, u32)| table.asked(partition) >= generation;
        now_us >= self.until_us || self.awaited.iter().all(is_asked_for)
    }
}
