//! Replies that wait for members of the sync set.

use penstock_net::level::AckLevel;
use penstock_net::pieces::Pieces;
use penstock_net::reply::{ITEM_FLAG_BEGAN, ITEM_FLAG_REPLAYED, ITEM_FLAGS_AT, ReplyHead};
use penstock_net::request::Version;
use penstock_net::status::Status;
use penstock_storage::io::Blocks;
use penstock_storage::place::Lsn;
use penstock_storage::planted::{Bug, is_planted};
use penstock_storage::version::partition_of;

use crate::busy::Told;
use crate::replication::gate::Outcome;
use crate::replication::{Needed, PartitionId, Waiting};

use crate::replica_waits::ReplicaReply;

use super::operation::{Leave, Own};
use super::{Now, Outbox, Shard};

impl<P: Blocks> Shard<P> {
    /// What the reply must wait for at this level, after asking the log for it.
    #[inline]
    pub(super) fn gate(&mut self, level: AckLevel, lsn: Lsn) -> Lsn {
        self.gate_of(level, lsn, 1)
    }

    /// The same of the replies of so many operations, which wait for nothing behind this record.
    #[inline]
    pub(super) fn gate_of(&mut self, level: AckLevel, lsn: Lsn, operations: u64) -> Lsn {
        let log = self.store.log_mut();
        if level >= AckLevel::Disk && !is_planted(Bug::AckEarly) {
            if lsn <= log.durable() {
                return Lsn(0);
            }
            log.want_durable(lsn);
            self.stats.wait(lsn, operations);
            return lsn;
        }
        // The log makes what nobody waits for durable within its interval by itself.
        Lsn(0)
    }

    /// Whether each change at this level waits by itself until other nodes have it.
    #[inline]
    pub(super) fn changes_wait_for_members(&self, level: AckLevel) -> bool {
        let linked = self.linked.as_ref();
        linked.is_some_and(|linked| linked.needed(level, false).is_some())
    }

    /// Whom the answer to an item waits for. One that has changed nothing waits at level `replica`
    /// alone.
    #[inline]
    pub(super) fn needed(&self, leave: &Leave, own: &Own<'_>, is_done: bool) -> Option<Needed> {
        let linked = self.linked.as_ref().filter(|_| !leave.is_of_member)?;
        let needed = linked.needed(leave.level, own.asked.is_read());
        needed.filter(|needed| is_done || *needed == Needed::All)
    }

    /// Says in the answer to a write with a token, which begins at `from`, that this node has begun
    /// to write its partition behind the time of the token: what became of an earlier try is not
    /// known here.
    #[cold]
    pub(super) fn tell_began(&self, own: &Own<'_>, from: usize, pieces: &mut Pieces) {
        let Some((token, linked)) = own.asks.token().zip(self.linked.as_ref()) else {
            return;
        };
        if token.time_ms() >= linked.began_ms(partition_of(own.slot)) {
            return;
        }
        // What a write answers is not shared, so it is the end of what was written.
        let answer_bytes = pieces.len() - from;
        let out = pieces.written();
        let at = out.len() - answer_bytes + ITEM_FLAGS_AT;
        if out[at] & ITEM_FLAG_REPLAYED == 0 {
            out[at] |= ITEM_FLAG_BEGAN;
        }
    }

    /// Keeps the answer of an item until the members of its partition have what it tells.
    #[cold]
    pub(super) fn answer_at_members(
        &mut self,
        now: Now,
        own: &Own<'_>,
        (needed, is_done): (Needed, bool),
        item: Pieces,
    ) {
        let whom = ReplicaReply {
            origin: own.operation.origin,
            address: own.operation.address,
            came_us: own.operation.came_us,
            needed,
            is_change: !own.asked.is_read() && is_done,
            item,
        };
        let until_us = match own.operation.deadline_us {
            // A read leaves nothing behind, so the client need not hear how it ends.
            deadline_us @ 1.. if own.asked.is_read() => deadline_us,
            _ => u64::MAX,
        };
        self.wait_for_members(now, own.slot, until_us, whom);
    }

    /// Keeps a reply until the needed members of the sync set have all that was appended by now, no
    /// longer than until `until_us`.
    #[cold]
    pub(super) fn wait_for_members(
        &mut self,
        now: Now,
        slot: u16,
        until_us: u64,
        whom: ReplicaReply,
    ) {
        self.reserve(whom.origin, &whom.address, whom.item.len());
        let log = self.store.log_mut();
        let lsn = log.appended();
        log.want_durable(lsn);
        let linked = self.linked.as_ref().expect("the level was refused without");
        let waiting = Waiting {
            partition: PartitionId::try_from(partition_of(slot)).expect("256"),
            lsn,
            needed: whom.needed,
            deadline_us: until_us.min(now.us + linked.replica_timeout_us()),
            whom,
        };
        self.replica_waits.wait(waiting);
    }

    /// Answers what need not wait for members any longer.
    pub(super) fn release_replicas(&mut self, now: Now, outbox: &mut Outbox<P::Block>) {
        let Some(linked) = &self.linked else { return };
        if self.replica_waits.is_empty() {
            return;
        }
        // Behind the stop nobody may come to have it.
        let now_us = match self.phase.is_stopping() {
            true => u64::MAX,
            false => now.us,
        };
        let durable = self.store.log().durable();
        let received = |partition| linked.received(partition);
        let ended = self
            .replica_waits
            .take_ended(now_us, durable, linked.deposed(), received);
        for (whom, outcome) in ended {
            let ReplicaReply {
                origin,
                address,
                came_us,
                needed,
                is_change,
                item,
            } = whom;
            self.unreserve_bytes(origin, &address, item.len());
            self.stats.answer_behind_members(now.us, came_us);
            let told = Told::behind(Lsn(0));
            match outcome {
                Outcome::Reached => {
                    self.answer_detached(origin, address, told, &item, outbox);
                }
                Outcome::Unknown { members } => {
                    let mut out = Vec::new();
                    let version = Version::default();
                    let text = match (is_change, needed) {
                        (true, Needed::All) => {
                            "it was executed here and is in the log, and not every node of the \
                             sync set has told in time that it has it"
                        }
                        (true, Needed::Some(_)) => {
                            "it was executed here and is in the log, and fewer nodes of the sync \
                             set than min_sync have told in time that they have it"
                        }
                        (false, _) => {
                            "nothing was changed; not every node of the sync set has told in time \
                             that it has what was found here"
                        }
                    };
                    let none = AckLevel::None;
                    let head = ReplyHead::new(Status::NoReplicas, address.item, none, version);
                    ReplyHead {
                        reason: members,
                        ..head
                    }
                    .write_message(&mut out, &text);
                    self.answer_detached(origin, address, told, &out.into(), outbox);
                }
            }
        }
    }
}
