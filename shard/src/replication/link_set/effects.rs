//! What links ask of their owner, and what they have counted.

use std::collections::VecDeque;

use penstock_net::link::RefusalCode;

use crate::replication::reads::Unread;
use crate::replication::receiver::LinkRefusal;
use crate::replication::{Epoch, LinkId, PartitionId};

/// What links have done since they were made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounters {
    /// Records of others that were applied.
    pub applied: u64,
    /// Turns in which a record that was received found the log full.
    pub found_full: u64,
    /// Keys that were written anew for members which had diverged.
    pub rewritten: u64,
    /// Keys that were here and did not come by a scan.
    pub swept: u64,
    /// Partitions that were asked for whole, because cleaning had released diverged records.
    pub diverged_lost: u64,
    /// Records that have diverged and were handed out to be kept.
    pub kept: u64,
    /// Bytes of those.
    pub kept_bytes: u64,
    /// Links that this side has ended, by [`RefusalCode::ALL`].
    pub refused: [u64; RefusalCode::ALL.len()],
    /// Links that the other side has ended.
    pub refused_there: [u64; RefusalCode::ALL.len()],
}

/// What the owner is to do.
#[derive(Debug, PartialEq, Eq)]
pub enum LinkAction {
    /// Send this, then end the link; it is closed here.
    End {
        /// The link.
        link: LinkId,
        /// Why, for people; the output tells it to the peer.
        refusal: LinkRefusal,
        /// What is left to be sent.
        output: Vec<u8>,
    },
    /// The peer has ended the link; it is closed here.
    Ended {
        /// The link.
        link: LinkId,
        /// Why.
        refusal: LinkRefusal,
    },
    /// This node is not primary of the partition any more.
    Deposed {
        /// The partition.
        partition: PartitionId,
        /// By which epoch.
        epoch: Epoch,
    },
    /// Keep a diverged record in lostfound.
    Keep {
        /// The partition.
        partition: PartitionId,
        /// All of its parts that there are.
        record: Vec<u8>,
    },
    /// Make durable what was to be kept of a partition, then call
    /// [`LinkSet::diverged_kept`](super::LinkSet::diverged_kept).
    Sync {
        /// The partition.
        partition: PartitionId,
        /// The link by which its keys are told; none if this node writes them anew itself.
        link: Option<LinkId>,
    },
    /// The primary hands the partition over: [`LinkSet::begin`](super::LinkSet::begin) in the
    /// generation of the epoch.
    Begin {
        /// The partition.
        partition: PartitionId,
        /// The epoch.
        epoch: Epoch,
    },
    /// A partition is handed over here, and a part of it is lost here: nobody writes the partition
    /// until people choose.
    Lacks {
        /// The partition.
        partition: PartitionId,
        /// The node that hands it over, and has all of it.
        node: u8,
    },
    /// What was received finds no room in the log, or finds room again after that was reported.
    Room {
        /// Something of it was applied.
        is_there: bool,
    },
    /// Something of the log cannot be read, again and again.
    Unread {
        /// A partition that hangs on it; none if that is what is shipped to another node.
        partition: Option<PartitionId>,
        /// The place.
        unread: Unread,
    },
}

/// Actions for the owner, counters, and whether another turn may do more.
#[derive(Debug, Default)]
pub(super) struct Effects {
    actions: VecDeque<LinkAction>,
    counters: LinkCounters,
    is_due: bool,
}

impl Effects {
    /// Asks the owner for this, behind what was asked before.
    pub(super) fn ask(&mut self, action: LinkAction) {
        self.actions.push_back(action);
    }

    /// Asks the owner to keep a diverged record, and counts it.
    pub(super) fn keep(&mut self, partition: PartitionId, record: Vec<u8>) {
        self.counters.kept += 1;
        self.counters.kept_bytes += record.len() as u64;
        self.ask(LinkAction::Keep { partition, record });
    }

    /// The peer has ended a link.
    pub(super) fn ended_there(&mut self, link: LinkId, refusal: LinkRefusal) {
        self.counters.refused_there[refusal.code as usize - 1] += 1;
        self.ask(LinkAction::Ended { link, refusal });
    }

    /// This side ends a link with this output.
    pub(super) fn ended_here(&mut self, link: LinkId, refusal: LinkRefusal, output: Vec<u8>) {
        self.counters.refused[refusal.code as usize - 1] += 1;
        self.ask(LinkAction::End {
            link,
            refusal,
            output,
        });
    }

    /// What the owner is to do next.
    pub(super) fn take_action(&mut self) -> Option<LinkAction> {
        self.actions.pop_front()
    }

    /// Something was done: another turn may do more.
    pub(super) fn progressed(&mut self) {
        self.is_due = true;
    }

    /// Whether something was done since the last call.
    pub(super) fn take_due(&mut self) -> bool {
        std::mem::take(&mut self.is_due)
    }

    pub(super) fn counters(&self) -> LinkCounters {
        self.counters
    }

    pub(super) fn counters_mut(&mut self) -> &mut LinkCounters {
        &mut self.counters
    }
}
