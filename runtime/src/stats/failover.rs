//! What a node knows of its leases and of what it decided by itself. The threads of failover write
//! it, anybody reads it.

use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use serde::Serialize;

/// Why a swap that a node asked for did not make the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailedSwap {
    /// Somebody else had changed the plan.
    Conflict,
    /// Nobody has said whether it was made.
    Unknown,
    /// The home did not answer, or refused.
    Unavailable,
}

impl FailedSwap {
    pub(crate) const ALL: [FailedSwap; 3] = [
        FailedSwap::Conflict,
        FailedSwap::Unknown,
        FailedSwap::Unavailable,
    ];

    /// As metrics call it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            FailedSwap::Conflict => "conflict",
            FailedSwap::Unknown => "unknown",
            FailedSwap::Unavailable => "unavailable",
        }
    }

    fn index(self) -> usize {
        let at = FailedSwap::ALL.iter().position(|it| *it == self);
        at.expect("every outcome")
    }
}

/// What a node changed in the plan by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decided {
    /// It took partitions over.
    Takeover,
    /// It made silent members learners.
    Removal,
    /// A learner joins, or a joining member was admitted.
    Entry,
}

/// The last change that was decided here, for people and INFO.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct DecidedLast {
    /// The number of the plan that it made.
    pub(crate) revision: u64,
    /// When, as the plan says it.
    pub(crate) at: String,
    /// What: `takeover of node 1`.
    pub(crate) what: String,
}

/// Nobody has lent or answered yet, or it is not of this node.
const NONE: u64 = u64::MAX;

/// The words of another node.
struct NodeWords {
    lease_left_us: AtomicU64,
    round_trip_us: AtomicU64,
    enters_in_us: AtomicU64,
    is_connected: AtomicBool,
}

/// The numbers. While the plan has no failover they stay as they begin.
pub(crate) struct FailoverFacts {
    is_on: AtomicBool,
    held_us: AtomicU64,
    nodes: Box<[NodeWords]>,
    takeovers: AtomicU64,
    removals: AtomicU64,
    entries: AtomicU64,
    failed: [AtomicU64; FailedSwap::ALL.len()],
    decided_last: RwLock<Option<DecidedLast>>,
}

/// What is told of another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct LeasePeer {
    pub(crate) node: u8,
    /// A connection for heartbeats stands.
    pub(crate) is_connected: bool,
    /// The least that is left of what the node lends, over the partitions that are written here
    /// and wait for it; `None` if there is none.
    pub(crate) lease_left_us: Option<u64>,
    /// From the sending of the last heartbeat that it answered to the reading of the answer.
    pub(crate) round_trip_us: Option<u64>,
    /// How long this node does not let it join, if it is a learner of what is written here.
    pub(crate) enters_in_us: Option<u64>,
}

/// The numbers at a moment. Shards count lapses of leases by themselves: `figures.rs`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct FailoverReading {
    /// How long this node takes nothing over, because a writer has just changed.
    pub(crate) held_us: u64,
    /// Nodes that were met or waited for, ascending.
    pub(crate) peers: Vec<LeasePeer>,
    /// Swaps by which this node took over.
    pub(crate) takeovers: u64,
    /// Swaps by which it removed members.
    pub(crate) removals: u64,
    /// Swaps by which a learner joined or a joining member was admitted.
    pub(crate) entries: u64,
    /// In the order of [`FailedSwap::ALL`].
    #[serde(skip)]
    pub(crate) failed: [u64; FailedSwap::ALL.len()],
}

impl FailoverReading {
    /// The least that is left of the leases of all partitions that are written here; `None` if no
    /// partition waits for anybody.
    pub(crate) fn lease_left_us(&self) -> Option<u64> {
        self.peers
            .iter()
            .filter_map(|peer| peer.lease_left_us)
            .min()
    }
}

impl Default for FailoverFacts {
    fn default() -> Self {
        let words = |_| NodeWords {
            lease_left_us: AtomicU64::new(NONE),
            round_trip_us: AtomicU64::new(NONE),
            enters_in_us: AtomicU64::new(NONE),
            is_connected: AtomicBool::new(false),
        };
        FailoverFacts {
            is_on: AtomicBool::default(),
            held_us: AtomicU64::default(),
            nodes: (0..=u8::MAX).map(words).collect(),
            takeovers: AtomicU64::default(),
            removals: AtomicU64::default(),
            entries: AtomicU64::default(),
            failed: Default::default(),
            decided_last: RwLock::default(),
        }
    }
}

impl FailoverFacts {
    /// The plan has failover, or not any more: then nobody lends anything.
    pub(crate) fn turn(&self, is_on: bool) {
        if self.is_on.swap(is_on, Ordering::Relaxed) && !is_on {
            self.note_hold(0);
            for node in 0..=u8::MAX {
                self.note_lease(node, None);
                self.note_entry(node, None);
                self.note_connection(node, false);
            }
        }
    }

    /// What is left of what a node lends; `None` if nothing that is written here waits for it.
    pub(crate) fn note_lease(&self, node: u8, left_us: Option<u64>) {
        let word = &self.nodes[usize::from(node)].lease_left_us;
        word.store(left_us.unwrap_or(NONE), Ordering::Relaxed);
    }

    /// How long this node takes nothing over.
    pub(crate) fn note_hold(&self, us: u64) {
        self.held_us.store(us, Ordering::Relaxed);
    }

    /// How long a learner does not join; `None` if it is none, or a person says when.
    pub(crate) fn note_entry(&self, node: u8, in_us: Option<u64>) {
        let word = &self.nodes[usize::from(node)].enters_in_us;
        word.store(in_us.unwrap_or(NONE), Ordering::Relaxed);
    }

    /// A node has answered a heartbeat.
    pub(crate) fn note_round_trip(&self, node: u8, us: u64) {
        let word = &self.nodes[usize::from(node)].round_trip_us;
        word.store(us, Ordering::Relaxed);
    }

    /// There is a connection to a node, or not any more.
    pub(crate) fn note_connection(&self, node: u8, is_there: bool) {
        let words = &self.nodes[usize::from(node)];
        words.is_connected.store(is_there, Ordering::Relaxed);
        if !is_there {
            words.round_trip_us.store(NONE, Ordering::Relaxed);
        }
    }

    /// A swap of this node made the plan.
    pub(crate) fn decided(&self, decided: Decided, last: DecidedLast) {
        let count = match decided {
            Decided::Takeover => &self.takeovers,
            Decided::Removal => &self.removals,
            Decided::Entry => &self.entries,
        };
        count.fetch_add(1, Ordering::Relaxed);
        if let Ok(mut before) = self.decided_last.write() {
            *before = Some(last);
        }
    }

    /// One did not.
    pub(crate) fn fail(&self, outcome: FailedSwap) {
        self.failed[outcome.index()].fetch_add(1, Ordering::Relaxed);
    }

    /// Whether the plan in force has failover.
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// The numbers now.
    pub(crate) fn read(&self) -> FailoverReading {
        let known = |word: &AtomicU64| {
            let us = word.load(Ordering::Relaxed);
            (us != NONE).then_some(us)
        };
        let peers = (0..=u8::MAX)
            .zip(&self.nodes)
            .map(|(node, words)| LeasePeer {
                node,
                is_connected: words.is_connected.load(Ordering::Relaxed),
                lease_left_us: known(&words.lease_left_us),
                round_trip_us: known(&words.round_trip_us),
                enters_in_us: known(&words.enters_in_us),
            });
        let is_any = |it: &LeasePeer| it.is_connected || it.lease_left_us.is_some();
        FailoverReading {
            held_us: self.held_us.load(Ordering::Relaxed),
            peers: peers.filter(is_any).collect(),
            takeovers: self.takeovers.load(Ordering::Relaxed),
            removals: self.removals.load(Ordering::Relaxed),
            entries: self.entries.load(Ordering::Relaxed),
            failed: self.failed.each_ref().map(|it| it.load(Ordering::Relaxed)),
        }
    }

    /// The last change that was decided here. A reader that meets the writer does not wait.
    pub(crate) fn decided_last(&self) -> Option<DecidedLast> {
        self.decided_last.try_read().ok()?.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_of_the_leases_is_shown_and_none_of_who_is_not_waited_for() {
        let facts = FailoverFacts::default();
        facts.turn(true);
        assert!(facts.read().peers.is_empty() && facts.read().lease_left_us().is_none());
        facts.note_connection(2, true);
        facts.note_round_trip(2, 900);
        facts.note_lease(2, Some(700_000));
        facts.note_lease(3, Some(0));
        facts.note_entry(2, Some(4_000_000));
        facts.note_hold(5_000_000);
        let read = facts.read();
        let second = LeasePeer {
            node: 2,
            is_connected: true,
            lease_left_us: Some(700_000),
            round_trip_us: Some(900),
            enters_in_us: Some(4_000_000),
        };
        assert_eq!((read.peers.len(), read.peers[0]), (2, second));
        assert_eq!((read.lease_left_us(), read.held_us), (Some(0), 5_000_000));
        // What is not on tells nothing of a lease.
        facts.turn(false);
        let read = facts.read();
        assert!(!facts.is_on() && read.peers.is_empty() && read.held_us == 0);
    }

    #[test]
    fn what_was_decided_and_what_failed_is_counted() {
        let facts = FailoverFacts::default();
        assert_eq!(facts.decided_last(), None);
        let last = |revision| DecidedLast {
            revision,
            at: "2026-11-27T12:00:00Z".into(),
            what: "takeover of node 1".into(),
        };
        facts.decided(Decided::Removal, last(7));
        facts.decided(Decided::Takeover, last(8));
        facts.fail(FailedSwap::Unknown);
        let read = facts.read();
        assert_eq!((read.takeovers, read.removals, read.entries), (1, 1, 0));
        assert_eq!(read.failed, [0, 1, 0]);
        assert_eq!(facts.decided_last(), Some(last(8)));
    }
}
