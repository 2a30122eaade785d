//! Whether and how nodes decide by themselves.

use penstock_shard::lease::LeaseRules;

use crate::cluster::plan::file::{ClusterFileError, UNORDERED};
use crate::cluster::plan::placement::Draft;

/// What a plan says of that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailoverSettings {
    /// Nodes replace a lost one by themselves.
    pub is_on: bool,
    /// Nobody takes over and nobody enters a sync set.
    pub is_paused: bool,
    /// How long a primary may serve by a heartbeat.
    pub lease_ms: u64,
    /// How long a member does not take over behind a heartbeat.
    pub grace_ms: u64,
    /// A removal leaves so many members at least.
    pub min_sync: usize,
}

/// How far a change of the settings goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailoverStep {
    /// The plan says so already.
    Nothing,
    /// The draft is what was wanted. `is_read_first`: each node must have read the present plan.
    Whole {
        /// Lease or grace change, and nodes may go by them.
        is_read_first: bool,
    },
    /// The draft has the shorter lease and the longer grace of the present plan and the wanted one.
    /// Each node must have read the present plan before it, and it before the next step.
    Half,
}

impl Draft {
    /// The number of the plan that was read.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.before.revision
    }

    /// What the plan says of nodes that decide by themselves.
    #[must_use]
    pub fn failover(&self) -> FailoverSettings {
        let keys = self.file.failover;
        FailoverSettings {
            is_on: keys.is_on(),
            is_paused: keys.is_paused,
            lease_ms: keys.rules.lease_us() / 1000,
            grace_ms: keys.rules.grace_us() / 1000,
            min_sync: keys.min_sync,
        }
    }

    /// Changes that to `wanted`, or half of the way. A primary that has not read the new plan goes
    /// by the old lease, and a member that has goes by the new grace, and the other way round. So
    /// two plans that nodes go by at the same time must have leases that both graces outlast.
    ///
    /// # Errors
    /// The plan cannot say so. Nothing is changed.
    pub fn set_failover(
        &mut self,
        wanted: FailoverSettings,
    ) -> Result<FailoverStep, ClusterFileError> {
        if wanted.is_on && !self.place.is_ordered() {
            return Err(self.fail(UNORDERED));
        }
        if self.failover() == wanted {
            return Ok(FailoverStep::Nothing);
        }
        let us = |ms: u64| ms.saturating_mul(1000);
        let wanted_rules = LeaseRules::new(us(wanted.lease_ms), us(wanted.grace_ms));
        let wanted_rules = wanted_rules.map_err(|error| self.fail(&error.to_string()))?;
        let keys = &mut self.file.failover;
        let is_known = keys.switched.is_some();
        let (rules, is_whole) = match is_known {
            true => towards(keys.rules, wanted_rules),
            // Nobody ever went by the ones that are there.
            false => (wanted_rules, true),
        };
        let is_read_first = is_known && rules != keys.rules;
        keys.rules = rules;
        if !is_whole {
            return Ok(FailoverStep::Half);
        }
        keys.switched = Some(wanted.is_on);
        keys.is_paused = wanted.is_paused;
        keys.min_sync = wanted.min_sync;
        Ok(FailoverStep::Whole { is_read_first })
    }

    /// Whether a node is to enter no sync set by itself. Returns whether that is a change.
    ///
    /// # Errors
    /// There is no such node.
    pub fn stay_learner(&mut self, node: u8, stays: bool) -> Result<bool, ClusterFileError> {
        self.known(node)?;
        let mut nodes = self.file.nodes.iter_mut();
        let node = nodes.find(|it| it.number == node).expect("it is known");
        Ok(std::mem::replace(&mut node.stays_learner, stays) != stays)
    }
}

/// The next rules on the way from some to others, and whether they are the others.
fn towards(from: LeaseRules, to: LeaseRules) -> (LeaseRules, bool) {
    let lease_us = from.lease_us().max(to.lease_us());
    let grace_us = from.grace_us().min(to.grace_us());
    match LeaseRules::new(lease_us, grace_us) {
        Ok(_) => (to, true),
        Err(_) => {
            let lease_us = from.lease_us().min(to.lease_us());
            let grace_us = from.grace_us().max(to.grace_us());
            let between = LeaseRules::new(lease_us, grace_us);
            (between.expect("both have a longer grace"), false)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn on_the_way_from_one_pair_to_another_each_grace_outlasts_both_leases() {
        let lengths = [200_000, 400_000, 1_600_000, 2_000_000, 10_000_000];
        let rules = |lease_us: u64| {
            let graces = [5 * lease_us / 4, 2 * lease_us, 60_000_000];
            graces.map(|grace_us| LeaseRules::new(lease_us, grace_us).expect("good"))
        };
        let all: Vec<LeaseRules> = lengths.into_iter().flat_map(rules).collect();
        for (&from, &to) in all
            .iter()
            .flat_map(|one| all.iter().map(move |it| (one, it)))
        {
            let mut now = from;
            for steps in 1.. {
                assert!(steps <= 2, "{from:?} to {to:?}");
                let (next, is_whole) = towards(now, to);
                for (lease, grace) in [(now, next), (next, now)] {
                    let both = LeaseRules::new(lease.lease_us(), grace.grace_us());
                    assert!(both.is_ok(), "{from:?} to {to:?}: {now:?}, {next:?}");
                }
                now = next;
                if is_whole {
                    break;
                }
            }
            assert_eq!(now, to);
        }
    }
}
