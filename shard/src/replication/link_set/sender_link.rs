//! A link by which this node ships: the sender, how far it has read the log, bytes from and to the
//! peer.

use penstock_net::link::frame::read_link_frame;
use penstock_net::link::{LinkMessage, LinkReceived, Position, RefusalCode};
use penstock_net::slot::slot_of;
use penstock_storage::io::{Block, Blocks};
use penstock_storage::key_home::KeyHome;
use penstock_storage::place::{FileId, Lsn, Place};
use penstock_storage::store::Store;

use crate::replication::PartitionId;
use crate::replication::cursor::{CursorFrame, CursorStep, LogCursor};
use crate::replication::handshake::Peer;
use crate::replication::pace::Pace;
use crate::replication::planted::{self, Bug, is_planted};
use crate::replication::reads::LinkReads;
use crate::replication::receiver::{LinkRefusal, Partitions};
use crate::replication::record::{parts_of, records};
use crate::replication::ring::Ring;
use crate::replication::sender::{LogReach, Sender};
use crate::topology::Topology;

use super::confirmations::Confirmations;
use super::effects::{Effects, LinkAction};
use super::holders::Holders;
use super::store_turn::StoreTurn;
use super::taken_frames::{LinkEnd, TakenFrames, fault_refusal};

/// Frames of the log that one cursor goes through in one turn.
pub(super) const CURSOR_FRAMES: usize = 16;

/// A link by which this node ships.
#[derive(Debug)]
pub(super) struct SenderLink<B> {
    pub(super) peer: Peer,
    pub(super) sender: Sender,
    pub(super) cursor: LogCursor<B>,
    pub(super) input: Vec<u8>,
    pub(super) output: Vec<u8>,
    /// All was offered that is to be, with this [`Shipped::offers_stamp`].
    offered_stamp: Option<(u64, u64)>,
}

/// What senders read to know what is shipped.
#[derive(Clone, Copy)]
pub(super) struct Shipped<'a> {
    pub(super) partitions: &'a Partitions,
    pub(super) holders: &'a Holders,
    pub(super) ring: &'a Ring,
    /// A stamp that changes with what members are to be offered. `None` while each turn may change
    /// what they are to be offered.
    pub(super) offers_stamp: Option<(u64, u64)>,
}

/// How far a store's log reaches back.
struct StoreReach<'a, P: Blocks>(&'a Store<P>);

impl<P: Blocks> LogReach for StoreReach<'_, P> {
    fn reach(&self, partition: PartitionId, from: Position) -> Option<Lsn> {
        let forgotten = self.0.forgotten(usize::from(partition));
        let is_there = forgotten <= from.sequence || is_planted(Bug::ForgottenIgnored);
        let further = planted::or(Bug::ReachTooFar, 40, 0);
        let log = self.0.log();
        let reached = &log.history().reached;
        is_there.then(|| {
            let behind = reached.none_above(usize::from(partition), from.sequence + further);
            behind.min(log.durable())
        })
    }

    fn oldest(&self) -> Lsn {
        Lsn(0)
    }

    fn may_scan(&self) -> bool {
        !self.0.cleaning().is_dropping_deletions()
    }
}

impl<B: Block> SenderLink<B> {
    /// A link to a peer that has proven itself.
    pub(super) fn new(peer: Peer, window_bytes: usize) -> Self {
        SenderLink {
            peer,
            sender: Sender::new(peer.node, (2, 1), window_bytes),
            cursor: LogCursor::default(),
            input: Vec::new(),
            output: Vec::new(),
            offered_stamp: None,
        }
    }

    /// Whether the shard at the other end has the partition of this slot.
    pub(super) fn carries(&self, slot: u16) -> bool {
        Topology::new(self.peer.shards).owner(slot) == self.peer.shard
    }

    /// Takes in the frames that the member has sent.
    pub(super) fn take_frames<P: Blocks<Block = B>, H: Fn(&[u8]) -> u32>(
        &mut self,
        turn: &mut StoreTurn<'_, P, H>,
        frame_bytes_max: u32,
        partitions: &Partitions,
        confirmations: &mut Confirmations,
        effects: &mut Effects,
    ) -> TakenFrames {
        let mut start = 0;
        let mut taken = TakenFrames::default();
        loop {
            // A frame may depose this node, which is noted.
            if !turn.notes().has_room() || !taken.work.is_empty() {
                break;
            }
            let number = self.sender.next_number();
            let frame = match read_link_frame(&self.input[start..], number, frame_bytes_max) {
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
            let appended = turn.store.log().appended();
            let reach = StoreReach(turn.store);
            let work = &mut taken.work;
            let result = self
                .sender
                .frame(&frame, partitions, &reach, appended, work);
            if let Err(refusal) = result {
                taken.end = Some(LinkEnd::Here(refusal));
                break;
            }
            confirmations.add(turn.time.now_us, self.sender.confirmations());
            effects.progressed();
            // BEGIN goes when all of that is durable.
            turn.want_durable(appended);
            start += frame.bytes;
        }
        self.input.drain(..start);
        taken
    }

    /// Offers partitions, ships what was sealed, answers.
    ///
    /// # Errors
    /// [`LinkRefusal`]: the link is to be ended.
    pub(super) fn ship<P: Blocks<Block = B>, H: Fn(&[u8]) -> u32>(
        &mut self,
        turn: &mut StoreTurn<'_, P, H>,
        shipped: Shipped<'_>,
        reads: &mut LinkReads,
        pace: &mut Pace,
        sends_clock: impl Fn(&Sender) -> bool,
        effects: &mut Effects,
    ) -> Result<(), LinkRefusal> {
        self.offer(turn, shipped);
        self.read_log(turn, shipped, reads, pace, effects)?;
        let is_sent = sends_clock(&self.sender);
        self.sender.send_clock(is_sent);
        let durable = turn.store.log().durable();
        self.sender.pump(
            turn.time.time_ms,
            durable,
            shipped.ring,
            shipped.partitions,
            &StoreReach(turn.store),
            &mut self.output,
        )
    }

    /// Offers each partition that the peer is to hold and that was not offered in its epoch.
    fn offer<P: Blocks<Block = B>, H: Fn(&[u8]) -> u32>(
        &mut self,
        turn: &mut StoreTurn<'_, P, H>,
        shipped: Shipped<'_>,
    ) {
        // Inherited records stand in other logs, which the cursor does not read: they are rewritten
        // first.
        if turn.store.cleaning().inheritance().is_there() {
            return;
        }
        let stamp = shipped.offers_stamp;
        if stamp.is_some() && self.offered_stamp == stamp {
            return;
        }
        self.offered_stamp = stamp;
        let durable = turn.store.log().durable();
        for (&number, state) in shipped.partitions.iter() {
            let Some(epoch) = state.may_open(durable) else {
                continue;
            };
            if self.sender.opened(number) == Some(epoch) || !self.carries(turn.tags.slot(number)) {
                continue;
            }
            if let Some(membership) = shipped.holders.membership(number, self.peer.node) {
                let (time_ms, out) = (turn.time.time_ms, &mut self.output);
                self.sender.open(time_ms, number, epoch, membership, out);
            }
        }
    }

    /// Reads the log for partitions that lack what the ring does not hold any more.
    fn read_log<P: Blocks<Block = B>, H: Fn(&[u8]) -> u32>(
        &mut self,
        turn: &mut StoreTurn<'_, P, H>,
        shipped: Shipped<'_>,
        reads: &mut LinkReads,
        pace: &mut Pace,
        effects: &mut Effects,
    ) -> Result<(), LinkRefusal> {
        for _ in 0..CURSOR_FRAMES {
            let Some(behind) = self.sender.wants_log(shipped.ring) else {
                // Another cursor may wait for the memory of this one.
                if self.cursor.release() {
                    effects.progressed();
                }
                break;
            };
            if pace.must_wait(turn.time.now_us) {
                break;
            }
            turn.store.settle(&home_of(turn.hash_of));
            turn.store.settle_copies();
            match self.cursor.next(turn.store, behind, reads, turn.io) {
                CursorStep::Frame(frame) => {
                    pace.spend(turn.time.now_us, frame.bytes.len());
                    let sender = &mut self.sender;
                    feed_frame(sender, behind, &frame, turn, shipped, &mut self.output)?;
                    effects.progressed();
                }
                CursorStep::UnderWay => break,
                // What the ring does not hold any more is on its way to the disk, or was released.
                CursorStep::End => {
                    let before = shipped.ring.before();
                    turn.want_durable(before);
                    let log = turn.store.log();
                    let (read, appended) = (before.min(log.durable()), log.appended());
                    let time_ms = turn.time.time_ms;
                    self.sender.fed(time_ms, read, appended, &mut self.output);
                    if turn.store.log().durable() < before {
                        break;
                    }
                }
                CursorStep::Damaged {
                    file,
                    offset,
                    report,
                } => {
                    if let Some(unread) = report {
                        let partition = None;
                        effects.ask(LinkAction::Unread { partition, unread });
                    }
                    return Err(unreadable(file, offset));
                }
            }
        }
        Ok(())
    }
}

fn home_of(hash_of: &impl Fn(&[u8]) -> u32) -> impl Fn(&[u8]) -> KeyHome {
    move |key| KeyHome::new(slot_of(key), hash_of(key))
}

/// Hands the records of a frame of the log to the sender.
fn feed_frame<P: Blocks, H: Fn(&[u8]) -> u32>(
    sender: &mut Sender,
    behind: Lsn,
    frame: &CursorFrame<'_>,
    turn: &StoreTurn<'_, P, H>,
    shipped: Shipped<'_>,
    output: &mut Vec<u8>,
) -> Result<(), LinkRefusal> {
    let store = &*turn.store;
    let appended = store.log().appended();
    let time_ms = turn.time.time_ms;
    let mut at = 0;
    let mut lsn = frame.first;
    for record in records(frame.bytes).map_while(Result::ok) {
        if lsn > behind && !record.is_local {
            let mut offset = frame.offset + at as u64;
            let counts = parts_of(record.bytes).iter().any(|part| {
                let place = Place::new(frame.file, offset, part.bytes().len());
                offset += part.bytes().len() as u64;
                store.counts(part, place, turn.hash_of)
                    && !(part.is_copy() && is_planted(Bug::ScanSkipsCopies))
            });
            let counts = (counts, appended);
            sender.feed(time_ms, lsn, &record, counts, shipped.partitions, output)?;
        }
        at += record.bytes.len();
        lsn.0 += 1;
    }
    sender.fed(time_ms, frame.last, store.log().appended(), output);
    Ok(())
}

fn unreadable(file: FileId, offset: u64) -> LinkRefusal {
    LinkRefusal {
        code: RefusalCode::Records,
        text: format!(
            "the log of the source cannot be read: {:08}.seg at {offset}",
            file.0
        ),
    }
}
