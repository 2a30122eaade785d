//! Partitions that a node is to begin to write.

use crate::cluster::plan::Assignment;
use crate::replication::{CannotBegin, Epoch, Partition, PartitionId};

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Promotion {
    pub(super) partition: PartitionId,
    pub(super) generation: u32,
    /// People have told this run of the node that the partition may begin with nothing.
    pub(super) from_nothing: bool,
}

impl Promotion {
    /// One that goes on from what is here.
    pub(super) fn of(partition: PartitionId, generation: u32) -> Self {
        Promotion {
            partition,
            generation,
            from_nothing: false,
        }
    }

    /// Whether node `me` may begin with what it has, although that is not whole, or may not be all
    /// that was acknowledged.
    pub(super) fn is_forced(&self, me: u8, state: &Partition, assignment: &Assignment) -> bool {
        let is_incomplete_accepted = assignment.is_incomplete_accepted;
        if state.received().sequence > 0 {
            let is_loss_accepted = assignment.is_loss_accepted && state.is_whole();
            return is_loss_accepted || is_incomplete_accepted;
        }
        // The flag stays in the file. A directory that is emptied later must not take it for its
        // own: it would serve an empty partition while other nodes have what was acknowledged.
        let promised = state.facts().promised;
        let was_accepted = (promised.generation(), promised.node()) == (self.generation, me);
        self.from_nothing && (is_empty(state) || is_incomplete_accepted)
            || is_incomplete_accepted && was_accepted
    }
}

/// Whether nothing of a partition was ever here.
pub(super) fn is_empty(state: &Partition) -> bool {
    state.received().sequence == 0 && state.facts().promised == Epoch::default() && state.is_whole()
}

/// Why a partition is not begun, for people.
pub(super) fn cause_text(cause: CannotBegin, is_empty: bool, is_accepted: bool) -> String {
    match cause {
        CannotBegin::Promised(epoch) => {
            format!("epoch {epoch} was promised to node {}", epoch.node())
        }
        CannotBegin::StartsUsedUp(epoch) => format!(
            "this node has started {} times in generation {}, and more cannot be told apart: it \
             asks for the next generation where the plan is in etcd; where it is a file, give \
             `penstock cluster renew`",
            epoch.start(),
            epoch.generation()
        ),
        CannotBegin::NotWhole if is_empty && is_accepted => {
            "nothing of it is here, and accept_incomplete was in the file before this start: an \
             empty directory begins by a change of the file that it reads while it runs. Let a \
             node that has its data write it; if there is none any more, promote this one once \
             more with --accept-incomplete"
                .into()
        }
        CannotBegin::NotWhole if is_empty => {
            "nothing of it is here: start once with --cluster-new if the cluster is new, \
             otherwise let the node that has its data write it"
                .into()
        }
        CannotBegin::NotWhole => {
            "not all of it is here: a scan or a rewind is not finished. Let a node that has all \
             of it write it; if there is none any more, promote the one that has most with \
             --accept-incomplete"
                .into()
        }
        CannotBegin::Behind => {
            "this node was not the last to write it, and has started since it last followed: \
             what it had only received by then is gone. If no node has more of it, promote this \
             one with --accept-loss"
                .into()
        }
    }
}

/// All of them, each once in a generation.
#[derive(Debug, Default)]
pub(super) struct Promotions {
    all: Vec<Promotion>,
}

impl Promotions {
    /// One more; it may begin with nothing if anybody said so.
    pub(super) fn add(&mut self, it: Promotion) {
        let known = self.all.iter_mut();
        let mut known = known
            .filter(|known| (known.partition, known.generation) == (it.partition, it.generation));
        match known.next() {
            Some(known) => known.from_nothing |= it.from_nothing,
            None => self.all.push(it),
        }
    }

    /// The one that came last.
    pub(super) fn next(&self) -> Option<Promotion> {
        self.all.last().copied()
    }

    /// Whether a partition is to begin a generation.
    pub(super) fn has(&self, partition: PartitionId, generation: u32) -> bool {
        let mut all = self.all.iter();
        all.any(|it| (it.partition, it.generation) == (partition, generation))
    }

    /// One has begun, or cannot.
    pub(super) fn remove(&mut self, it: Promotion) {
        self.all.retain(|other| *other != it);
    }

    pub(super) fn retain(&mut self, is_kept: impl Fn(&Promotion) -> bool) {
        self.all.retain(is_kept);
    }
}
