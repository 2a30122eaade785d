//! The home of the plan in runs whose nodes decide by themselves: one document that is changed by
//! compare-and-swap of its number. It is slow, loses swaps and answers, lets swaps land seconds
//! late, and is out of reach for a while.

use std::sync::Arc;

use penstock_net::link::Membership;
use penstock_shard::cluster::Plan;
use penstock_shard::lease::{FailoverPlan, Placing};
use penstock_shard::replication::planted::{Bug, is_planted};

use crate::random::Random;

use super::NODES;

/// How long a call waits for its answer.
const CALL_US_MAX: u64 = 300_000;

/// The document, and who reaches it.
#[derive(Debug)]
pub(super) struct PlanStore {
    document: FailoverPlan,
    /// Until when nobody reaches it, and until when each node does not.
    down_until_us: u64,
    apart_until_us: [u64; NODES],
}

/// What becomes of a swap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fate {
    /// When it comes to the store, if it does.
    pub(super) lands_us: Option<u64>,
    /// When its author has an outcome, and whether it is told what became of the swap.
    pub(super) ends_us: u64,
    pub(super) is_answered: bool,
    /// For the table of what was met.
    pub(super) name: &'static str,
}

impl PlanStore {
    pub(super) fn new(document: FailoverPlan) -> Self {
        PlanStore {
            document,
            down_until_us: 0,
            apart_until_us: [0; NODES],
        }
    }

    pub(super) fn document(&self) -> &FailoverPlan {
        &self.document
    }

    pub(super) fn is_up(&self, now_us: u64) -> bool {
        now_us >= self.down_until_us
    }

    pub(super) fn is_reached(&self, now_us: u64, node: usize) -> bool {
        self.is_up(now_us) && now_us >= self.apart_until_us[node]
    }

    /// Nobody reaches it until then.
    pub(super) fn goes_down(&mut self, until_us: u64) {
        self.down_until_us = self.down_until_us.max(until_us);
    }

    /// A node does not reach it until then.
    pub(super) fn leaves(&mut self, node: usize, until_us: u64) {
        self.apart_until_us[node] = self.apart_until_us[node].max(until_us);
    }

    /// All reach it again.
    pub(super) fn comes_back(&mut self) {
        self.down_until_us = 0;
        self.apart_until_us = [0; NODES];
    }

    /// A swap arrives: the document that it replaces, if it had the expected number.
    pub(super) fn swap(&mut self, expected: u64, document: FailoverPlan) -> Option<FailoverPlan> {
        let is_expected = self.document.number == expected;
        is_expected.then(|| std::mem::replace(&mut self.document, document))
    }

    /// What becomes of a swap that a node makes now.
    pub(super) fn fate(&self, now_us: u64, node: usize, random: &mut Random) -> Fate {
        let there_us = now_us + random.within(500, 30_000);
        let unknown = |name, lands_us| Fate {
            lands_us,
            ends_us: now_us + CALL_US_MAX,
            is_answered: false,
            name,
        };
        if !self.is_reached(now_us, node) {
            return unknown("store out of reach of a swap", None);
        }
        match random.below(10) {
            0 => unknown("swap lost", None),
            1 => unknown("answer to a swap lost", Some(there_us)),
            2 => unknown(
                "swap late",
                Some(now_us + random.within(CALL_US_MAX, 6_000_000)),
            ),
            _ => Fate {
                lands_us: Some(there_us),
                ends_us: there_us + random.within(500, 30_000),
                is_answered: true,
                name: "swap told",
            },
        }
    }
}

/// The same for the shards of a node.
pub(super) fn plan_of(document: &FailoverPlan, clients: &[(u8, String)]) -> Arc<Plan> {
    let placings = document.placings.iter();
    let assignment = |placing: &Placing| {
        let mut assignment = placing.assignment.clone();
        if is_planted(Bug::JoiningNotWaited) {
            for (node, membership) in &mut assignment.members {
                if placing.joining.contains(node) {
                    *membership = Membership::Learner;
                }
            }
        }
        assignment
    };
    Arc::new(Plan {
        partitions: placings.map(assignment).collect(),
        clients: clients.to_vec(),
        number: document.number,
        is_leased: true,
        min_sync: document.min_sync,
    })
}

#[cfg(test)]
mod tests {
    use penstock_shard::lease::LeaseRules;

    use super::*;

    fn document(number: u64) -> FailoverPlan {
        FailoverPlan {
            number,
            placings: Vec::new(),
            rules: LeaseRules::QUIET,
            min_sync: 0,
            is_paused: false,
            stay_learners: Vec::new(),
        }
    }

    #[test]
    fn a_swap_replaces_the_document_that_it_expects_and_no_other() {
        let mut store = PlanStore::new(document(1));
        assert_eq!(store.swap(1, document(2)), Some(document(1)));
        assert_eq!(store.swap(1, document(2)), None);
        assert_eq!(store.document().number, 2);
    }

    #[test]
    fn a_store_out_of_reach_takes_no_swap_and_answers_nothing() {
        let mut store = PlanStore::new(document(1));
        store.leaves(1, 500);
        let random = &mut Random::new(1, 1);
        for _ in 0..50 {
            let fate = store.fate(499, 1, random);
            assert_eq!((fate.lands_us, fate.is_answered), (None, false));
        }
        assert!(store.is_reached(499, 0) && store.is_reached(500, 1));
        store.goes_down(900);
        assert!(!store.is_reached(899, 0));
        store.comes_back();
        assert!(store.is_reached(0, 0));
    }
}
