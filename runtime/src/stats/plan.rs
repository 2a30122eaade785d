//! What a node knows of the plan of its cluster and of the plan's home: the thread that watches the
//! home writes it, anybody reads it.

use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use serde::Serialize;

/// Why the plan in force stays, although its home has another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RefusalReason {
    /// The home has no plan any more.
    Gone,
    /// The document is longer than any plan.
    TooLong,
    /// It is no plan: it names nobody, or somebody twice, or it is no TOML.
    Malformed,
    /// It is that of another cluster.
    OtherCluster,
    /// It is older than the one in force.
    WentBack,
}

impl RefusalReason {
    pub(crate) const ALL: [RefusalReason; 5] = [
        RefusalReason::Gone,
        RefusalReason::TooLong,
        RefusalReason::Malformed,
        RefusalReason::OtherCluster,
        RefusalReason::WentBack,
    ];

    /// As metrics call it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            RefusalReason::Gone => "gone",
            RefusalReason::TooLong => "too_long",
            RefusalReason::Malformed => "malformed",
            RefusalReason::OtherCluster => "other_cluster",
            RefusalReason::WentBack => "went_back",
        }
    }

    fn index(self) -> usize {
        let at = RefusalReason::ALL.iter().position(|it| *it == self);
        at.expect("every reason")
    }
}

/// The plan in force, as INFO tells it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct PlanInForce {
    pub(crate) revision: u64,
    pub(crate) changed_at: String,
    pub(crate) changed_by: String,
    /// The highest generation of a partition.
    pub(crate) generation_max: u32,
    /// `None` if a person decides who takes the place of a lost node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) failover: Option<FailoverInForce>,
}

/// What the plan says of nodes that decide by themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct FailoverInForce {
    pub(crate) is_paused: bool,
    pub(crate) lease_ms: u64,
    pub(crate) grace_ms: u64,
    pub(crate) min_sync: usize,
}

/// The numbers of the plan. Of a node alone they stay as they begin.
#[derive(Default)]
pub(crate) struct PlanFacts {
    in_force: RwLock<PlanInForce>,
    is_home_silent: AtomicBool,
    /// Why what the home has now is refused: 0, or one more than the reason's index.
    refused: AtomicUsize,
    refusals: [AtomicU64; RefusalReason::ALL.len()],
    failures: AtomicU64,
}

/// The numbers at a moment.
#[derive(Clone, Debug)]
pub(crate) struct PlanReading {
    /// 0 if nobody counts changes.
    pub(crate) revision: u64,
    pub(crate) is_home_up: bool,
    pub(crate) refused: Option<RefusalReason>,
    /// In the order of [`RefusalReason::ALL`].
    pub(crate) refusals: [u64; RefusalReason::ALL.len()],
    /// Times that the home was asked and did not answer.
    pub(crate) failures: u64,
    /// The highest generation of a partition.
    pub(crate) generation_max: u32,
    pub(crate) failover: Option<FailoverInForce>,
}

impl PlanFacts {
    /// A plan is in force.
    pub(crate) fn take(&self, plan: PlanInForce) {
        if let Ok(mut in_force) = self.in_force.write() {
            *in_force = plan;
        }
        self.refused.store(0, Ordering::Relaxed);
    }

    /// What the home has is refused.
    pub(crate) fn refuse(&self, reason: RefusalReason) {
        let index = reason.index();
        self.refusals[index].fetch_add(1, Ordering::Relaxed);
        self.refused.store(index + 1, Ordering::Relaxed);
    }

    /// The home has the plan in force again.
    pub(crate) fn refuse_no_more(&self) {
        self.refused.store(0, Ordering::Relaxed);
    }

    /// The home did not answer.
    pub(crate) fn fail(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
    }

    /// The home answers, or has not for a while.
    pub(crate) fn note_home(&self, is_up: bool) {
        self.is_home_silent.store(!is_up, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> PlanReading {
        let refused = self.refused.load(Ordering::Relaxed);
        let in_force = self.in_force.try_read();
        let in_force = in_force.map_or(PlanInForce::default(), |it| it.clone());
        PlanReading {
            revision: in_force.revision,
            generation_max: in_force.generation_max,
            failover: in_force.failover,
            is_home_up: !self.is_home_silent.load(Ordering::Relaxed),
            refused: refused.checked_sub(1).map(|at| RefusalReason::ALL[at]),
            refusals: self
                .refusals
                .each_ref()
                .map(|it| it.load(Ordering::Relaxed)),
            failures: self.failures.load(Ordering::Relaxed),
        }
    }

    /// The plan in force, if its changes are counted. A reader that meets the writer does not wait.
    pub(crate) fn in_force(&self) -> Option<PlanInForce> {
        let in_force = self.in_force.try_read().ok()?;
        (in_force.revision > 0).then(|| in_force.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_shown_until_a_plan_is_taken_and_counted_for_ever() {
        let facts = PlanFacts::default();
        assert!(facts.in_force().is_none() && facts.read().is_home_up);
        facts.refuse(RefusalReason::WentBack);
        facts.note_home(false);
        let read = facts.read();
        assert_eq!(
            (read.refused, read.is_home_up),
            (Some(RefusalReason::WentBack), false)
        );
        facts.take(PlanInForce {
            revision: 7,
            ..PlanInForce::default()
        });
        let read = facts.read();
        assert_eq!(
            (read.refused, read.revision, read.refusals[4]),
            (None, 7, 1)
        );
    }
}
