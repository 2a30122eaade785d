//! Partitions that another node is to write.

use std::collections::{BTreeMap, BTreeSet};

use penstock_storage::io::{Block, Blocks};
use penstock_storage::place::Lsn;

use crate::replication::partition::{Partition, Role};
use crate::replication::planted::{Bug, is_planted};
use crate::replication::receiver::Partitions;
use crate::replication::sender::Sender;
use crate::replication::{Epoch, LinkId, PartitionId};

use super::effects::{Effects, LinkAction};
use super::sender_link::SenderLink;
use super::store_turn::StoreTurn;

type SenderLinks<B> = BTreeMap<LinkId, SenderLink<B>>;

/// Partitions that are handed over, and those that were given to another node without this one.
#[derive(Debug, Default)]
pub(super) struct Handovers {
    under_way: BTreeMap<PartitionId, Handover>,
    /// Partitions that another node is to write, and perhaps does.
    superseded: BTreeSet<PartitionId>,
}

/// A partition that is handed over.
#[derive(Debug)]
struct Handover {
    node: u8,
    epoch: Epoch,
    /// Replies at level `replica` wait that are answered before.
    is_waited_for: bool,
    step: Step,
}

#[derive(Debug)]
enum Step {
    /// The node lacks some of it.
    Drains,
    /// The node has all of it since the last turn, and who waited for that has been answered.
    HasAll,
    /// Its epoch is promised here, with this record. Behind that record each link to the node tells
    /// it, until it writes or somebody else is to: a link may end before it has brought the
    /// message, and nobody else can begin.
    Promised(Lsn),
}

impl Handovers {
    /// Hands a partition over to a node that is to write it in this epoch; `me` is this node.
    pub(super) fn begin(
        &mut self,
        partition: PartitionId,
        state: &Partition,
        me: u8,
        (node, epoch): (u8, Epoch),
    ) {
        // Promised before this start, or before a plan that was read again.
        let is_promised = state.facts().promised == epoch
            && matches!(state.role(), Role::Idle)
            && state.was_last(me)
            && state.is_whole()
            && !is_planted(Bug::HandoverForgotten);
        let handover = Handover {
            node,
            epoch,
            is_waited_for: false,
            step: match is_promised {
                true => Step::Promised(Lsn(0)),
                false => Step::Drains,
            },
        };
        // A promised one stays, whatever is planned by now: nobody else may begin that epoch.
        self.under_way.entry(partition).or_insert(handover);
    }

    /// Ends a handover: not one that was promised, unless `is_forced`.
    pub(super) fn cancel(&mut self, partition: PartitionId, is_forced: bool) {
        let is_promised = |it: &Handover| matches!(it.step, Step::Promised(_));
        self.under_way
            .retain(|&of, it| of != partition || is_promised(it) && !is_forced);
    }

    /// Whether another node is to write a partition that this one may be writing still.
    pub(super) fn supersede(&mut self, partition: PartitionId, is_superseded: bool) {
        match is_superseded {
            true => self.superseded.insert(partition),
            false => self.superseded.remove(&partition),
        };
    }

    /// Whether a sender ships a partition that another node may write by now.
    pub(super) fn supersede_any_of(&self, sender: &Sender) -> bool {
        self.superseded.iter().any(|&number| sender.ships(number))
    }

    /// In which partitions replies at level `replica` wait.
    pub(super) fn answer_first(&mut self, is_waited_for: impl Fn(PartitionId) -> bool) {
        for (&number, handover) in &mut self.under_way {
            handover.is_waited_for = is_waited_for(number);
        }
    }

    /// Brings forward all that is handed over.
    pub(super) fn advance<P: Blocks<Block = B>, B: Block, H: Fn(&[u8]) -> u32>(
        &mut self,
        turn: &mut StoreTurn<'_, P, H>,
        partitions: &mut Partitions,
        senders: &mut SenderLinks<B>,
        effects: &mut Effects,
    ) {
        for (number, mut handover) in std::mem::take(&mut self.under_way) {
            let state = partitions.get_mut(&number).expect("the shard's");
            let next = match handover.step {
                Step::Drains | Step::HasAll => {
                    handover.drain(number, turn, state, senders, effects)
                }
                Step::Promised(lsn) => handover.announce(number, lsn, turn, state, senders),
            };
            if let Some(step) = next {
                handover.step = step;
                self.under_way.insert(number, handover);
            }
        }
    }
}

impl Handover {
    /// Promises the epoch once the node has all; `None` if somebody else writes by now.
    fn drain<P: Blocks<Block = B>, B: Block, H: Fn(&[u8]) -> u32>(
        &self,
        number: PartitionId,
        turn: &mut StoreTurn<'_, P, H>,
        state: &mut Partition,
        senders: &SenderLinks<B>,
        effects: &mut Effects,
    ) -> Option<Step> {
        match (state.role(), &self.step) {
            (Role::Primary { begun: None, .. }, Step::Drains) => return Some(Step::Drains),
            (Role::Primary { begun: Some(_), .. }, _) => {}
            _ => return None,
        }
        let end = state.applied();
        let mut links = senders.values();
        let has_all = links.any(|it| it.peer.node == self.node && it.sender.has_all(number, end));
        let mut notes = turn.notes();
        Some(match (has_all, &self.step) {
            (false, _) => Step::Drains,
            (true, Step::HasAll) if !self.is_waited_for && notes.has_room() => {
                state.depose(self.epoch, &mut notes);
                effects.ask(LinkAction::Deposed {
                    partition: number,
                    epoch: self.epoch,
                });
                let lsn = turn.store.log().appended();
                turn.want_durable(lsn);
                Step::Promised(lsn)
            }
            (true, before) => {
                // Without room in the log the promise waits for a turn that brings some.
                if matches!(before, Step::Drains) && !self.is_waited_for {
                    effects.progressed();
                }
                Step::HasAll
            }
        })
    }

    /// Tells the node to begin, once the promise `lsn` is durable; `None` if it writes, or somebody
    /// else is to.
    fn announce<P: Blocks<Block = B>, B: Block, H: Fn(&[u8]) -> u32>(
        &self,
        number: PartitionId,
        lsn: Lsn,
        turn: &StoreTurn<'_, P, H>,
        state: &Partition,
        senders: &mut SenderLinks<B>,
    ) -> Option<Step> {
        if state.facts().promised > self.epoch || matches!(state.role(), Role::Member(_)) {
            return None;
        }
        if lsn > turn.store.log().durable() {
            return Some(Step::Promised(lsn));
        }
        let time_ms = turn.time.time_ms;
        let slot = turn.tags.slot(number);
        for link in senders.values_mut() {
            if link.peer.node == self.node && link.carries(slot) {
                let (at, out) = (state.applied(), &mut link.output);
                link.sender.hand_over(time_ms, number, self.epoch, at, out);
            }
            link.sender.close(time_ms, number, &mut link.output);
        }
        (!is_planted(Bug::HandoverForgotten)).then_some(Step::Promised(lsn))
    }
}
