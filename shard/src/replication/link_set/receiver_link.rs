//! A link by which this node is shipped to: the receiver, the clock of the peer, bytes from and to
//! it.

use penstock_net::link::frame::read_link_frame;
use penstock_net::link::{LinkMessage, LinkReceived, RefusalCode};
use penstock_storage::io::Blocks;

use crate::replication::clock_offset::ClockOffset;
use crate::replication::handshake::{Introduction, Peer};
use crate::replication::planted::{Bug, is_planted};
use crate::replication::receiver::{KeptLimits, LinkRefusal, Partitions, Receiver};
use crate::replication::{Epoch, LinkId};

use super::effects::Effects;
use super::store_turn::StoreTurn;
use super::sweep::Sweeps;
use super::taken_frames::{LinkEnd, TakenFrames, fault_refusal};

/// A link by which this node is shipped to.
#[derive(Debug)]
pub(super) struct ReceiverLink {
    pub(super) node: u8,
    pub(super) receiver: Receiver,
    pub(super) clock_offset: ClockOffset,
    pub(super) input: Vec<u8>,
    pub(super) output: Vec<u8>,
}

impl ReceiverLink {
    /// A link from a peer that has proven itself.
    pub(super) fn new(link: LinkId, peer: Peer, limits: KeptLimits) -> Self {
        ReceiverLink {
            node: peer.node,
            receiver: Receiver::new(link, peer.node, (1, 2), limits),
            clock_offset: ClockOffset::default(),
            input: Vec::new(),
            output: Vec::new(),
        }
    }

    /// Takes in the frames that the source has sent.
    pub(super) fn take_frames<P: Blocks, H: Fn(&[u8]) -> u32>(
        &mut self,
        turn: &mut StoreTurn<'_, P, H>,
        (link, me): (LinkId, &Introduction),
        partitions: &mut Partitions,
        sweeps: &mut Sweeps,
        effects: &mut Effects,
    ) -> TakenFrames {
        let mut start = 0;
        let mut taken = TakenFrames::default();
        loop {
            let is_full = self.receiver.is_full(partitions);
            if is_full || !turn.notes().has_room() {
                break;
            }
            let number = self.receiver.next_number();
            let frame = match read_link_frame(&self.input[start..], number, me.frame_bytes_max) {
                Ok(LinkReceived::Frame(frame)) => frame,
                Ok(LinkReceived::Incomplete { .. }) => break,
                Err(fault) => {
                    taken.end = Some(LinkEnd::Here(fault_refusal(&fault)));
                    break;
                }
            };
            if let LinkMessage::Refused(refused) = &frame.message {
                taken.end = Some(LinkEnd::there(refused));
                break;
            }
            let mut notes = turn.notes();
            let work = &mut taken.work;
            let result = handed_to_other(&frame.message, me.node)
                .map_or(Ok(()), Err)
                .and_then(|()| self.receiver.frame(&frame, partitions, &mut notes, work));
            if let Err(refusal) = result {
                taken.end = Some(LinkEnd::Here(refusal));
                break;
            }
            effects.progressed();
            let (here_ms, there_ms) = (turn.store.data().clock().wall_ms(), frame.header.time);
            self.clock_offset.note(turn.time.now_us, here_ms, there_ms);
            sweeps.note(
                &frame.message,
                |number| {
                    let partition = partitions.get(&number);
                    partition.is_some_and(|it| it.is_opened_by(link))
                        || is_planted(Bug::SweepOfOthers)
                },
                |number| {
                    turn.store
                        .log()
                        .history()
                        .last(usize::from(number))
                        .sequence
                        > 0
                },
            );
            start += frame.bytes;
        }
        self.input.drain(..start);
        taken
    }
}

/// Why a partition cannot be handed over to this node, if the epoch belongs to another node.
fn handed_to_other(message: &LinkMessage<'_>, me: u8) -> Option<LinkRefusal> {
    let LinkMessage::Handover(handover) = message else {
        return None;
    };
    let (number, epoch) = (handover.partition, Epoch(handover.epoch));
    (epoch.node() != me).then(|| LinkRefusal {
        code: RefusalCode::Order,
        text: format!("partition {number}: epoch {epoch} is not of this node"),
    })
}
