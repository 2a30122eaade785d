//! Replies that wait for members of the sync set.

use penstock_net::level::AckLevel;
use penstock_net::pieces::Pieces;
use penstock_net::reply::{BatchReply, ITEM_LEVEL_AT, ReplyHead};
use penstock_net::request::Version;
use penstock_net::status::Status;
use penstock_storage::io::Blocks;
use penstock_storage::place::Lsn;
use penstock_storage::version::partition_of;

use crate::accounts::busy::AnswerTerms;
use crate::event::Outbox;
use crate::execution::operation::Own;
use crate::mail::ReplyAddress;
use crate::now::Now;
use crate::publisher;
use crate::replica_waits::ReplicaReply;
use crate::replication::gate::Outcome;
use crate::replication::{Needed, PartitionId, Waiting};
use crate::requests::parking::{Origin, Parked};
use crate::shard::Shard;
use crate::step::Step;

impl<P: Blocks> Shard<P> {
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
            messages: match own.operation.answer {
                Some(script) if is_done => script.messages.take(),
                _ => Vec::new(),
            },
            behind: Vec::new(),
        };
        let until_us = match own.operation.deadline_us {
            // A read leaves nothing behind, so the client need not hear how it ends.
            deadline_us @ 1.. if own.asked.is_read() => deadline_us,
            _ => u64::MAX,
        };
        self.wait_within(now, own.slot, until_us, whom);
    }

    /// Keeps the answer to a step of a scan until the members of the partition of its slot have
    /// what it tells.
    #[cold]
    pub(super) fn page_at_members(
        &mut self,
        now: Now,
        step: &Parked,
        needed: Needed,
        page: Pieces,
    ) {
        let whom = ReplicaReply {
            origin: step.origin,
            address: step.address,
            came_us: step.came_us,
            needed,
            is_change: false,
            item: page,
            messages: Vec::new(),
            behind: Vec::new(),
        };
        let until_us = match step.deadline_us {
            0 => u64::MAX,
            deadline_us => deadline_us,
        };
        self.wait_within(now, step.slot, until_us, whom);
    }

    /// Keeps a reply about a slot until the needed members have all that was appended by now, for
    /// the time of the plan and until `until_us` at most.
    fn wait_within(&mut self, now: Now, slot: u16, until_us: u64, whom: ReplicaReply) {
        let linked = self
            .execution
            .linked
            .as_ref()
            .expect("the level was refused without");
        let deadline_us = until_us.min(now.us + linked.replica_timeout_us());
        let partition = PartitionId::try_from(partition_of(slot)).expect("256");
        self.wait_for_members(partition, deadline_us, whom);
    }

    /// Keeps a reply until the needed members of the sync set have all that was appended by now.
    #[cold]
    pub(super) fn wait_for_members(
        &mut self,
        partition: PartitionId,
        deadline_us: u64,
        whom: ReplicaReply,
    ) {
        for (address, _, bytes) in whom.answers() {
            self.reserve(whom.origin, &address, bytes);
        }
        let log = self.execution.store.log_mut();
        let lsn = log.appended();
        log.want_durable(lsn);
        let waiting = Waiting {
            partition,
            lsn,
            needed: whom.needed,
            deadline_us,
            whom,
        };
        self.execution.replica_waits.wait(waiting);
    }

    /// Takes the reply out that has begun to wait in this operation, so that those behind it join
    /// it, and gives its room back.
    pub(super) fn take_newest_wait(&mut self) -> Option<Waiting<ReplicaReply>> {
        let waiting = self.execution.replica_waits.take_newest()?;
        let whom = &waiting.whom;
        for (address, _, bytes) in whom.answers() {
            self.unreserve_bytes(whom.origin, &address, bytes);
        }
        Some(waiting)
    }

    /// Answers what need not wait for members any longer.
    pub(super) fn release_replicas(&mut self, step: &mut Step<'_, P::Block>) {
        let Some(linked) = &self.execution.linked else {
            return;
        };
        if self.execution.replica_waits.is_empty() {
            return;
        }
        // Behind the stop nobody may come to have it.
        let now_us = match self.execution.phase.is_stopping() {
            true => u64::MAX,
            false => step.now.us,
        };
        let durable = self.execution.store.log().durable();
        let set = |partition| linked.sync_set(partition);
        let ended = self
            .execution
            .replica_waits
            .take_ended(now_us, durable, linked.deposed(), set);
        for (reply, outcome) in ended {
            for (address, _, bytes) in reply.answers() {
                self.unreserve_bytes(reply.origin, &address, bytes);
                self.execution
                    .stats
                    .answer_behind_members(step.now.us, reply.came_us);
            }
            self.end_wait(reply, outcome, step.outbox);
        }
    }

    /// Tells what became of a reply that has waited for members, and of those behind it.
    fn end_wait(
        &mut self,
        mut reply: ReplicaReply,
        outcome: Outcome,
        outbox: &mut Outbox<P::Block>,
    ) {
        match outcome {
            // A node that takes over may not have the change, so its messages do not leave.
            Outcome::Unknown { members } => {
                for (address, is_change, _) in reply.answers() {
                    let out = unknown(&address, (is_change, reply.needed), members).into();
                    let terms = AnswerTerms::behind(Lsn(0));
                    self.answer_detached(reply.origin, address, terms, &out, outbox);
                }
            }
            Outcome::Reached | Outcome::ReachedAlone => {
                publisher::send(std::mem::take(&mut reply.messages));
                let is_alone = outcome == Outcome::ReachedAlone;
                let places: Vec<_> = reply.places().collect();
                for (address, at) in places {
                    let level = &mut reply.item.written()[at + ITEM_LEVEL_AT];
                    let reached = AckLevel::from_code(*level).unwrap_or_default();
                    *level = reply_level(reached, is_alone, address.knows_all).code();
                }
                self.answer_waited(&reply, outbox);
            }
        }
    }

    /// Gives answers that have waited together to their connection, in one frame, or to the shard
    /// that asked.
    fn answer_waited(&mut self, reply: &ReplicaReply, outbox: &mut Outbox<P::Block>) {
        let (count, mut bytes_of) = (reply.count(), reply.item.reader());
        let ReplyAddress {
            session: id,
            request_id,
            ..
        } = reply.address;
        match reply.origin {
            Origin::Here => {
                let shard = self.execution.setup.shard();
                let Some(session) = self.front.sessions.get_open(id) else {
                    return;
                };
                let more = session.settle(request_id, count);
                let out = &mut session.output.pieces;
                let mut frame = BatchReply::begin(out, request_id, count).over(session.peer.medium);
                for (_, _, bytes) in reply.answers() {
                    frame.raw(out, &mut bytes_of, bytes);
                }
                frame.finish(out, shard, more, false);
                self.note(id, Lsn(0), count, outbox);
            }
            Origin::Shard(from) => {
                self.execution.stats.execute_for_other(count as u64);
                for (address, _, bytes) in reply.answers() {
                    let terms = AnswerTerms::behind(Lsn(0));
                    let mail = &mut self.execution.requests.mail;
                    mail.answer_part(from, address, terms, bytes, &mut bytes_of);
                }
            }
        }
    }
}

/// The level that a client is told behind a wait.
fn reply_level(level: AckLevel, is_alone: bool, knows_all: bool) -> AckLevel {
    match level {
        AckLevel::All if is_alone => AckLevel::Disk,
        level if knows_all => level,
        level => level.without_all(),
    }
}

/// The answer to an item whose record the needed members are not known to have.
fn unknown(address: &ReplyAddress, (is_change, needed): (bool, Needed), members: u8) -> Vec<u8> {
    let mut out = Vec::new();
    let text = match (is_change, needed) {
        (true, Needed::All | Needed::Every) => {
            "it was executed here and is in the log, and not every node of the sync set has told \
             in time that it has it"
        }
        (true, Needed::Some(_)) => {
            "it was executed here and is in the log, and fewer nodes of the sync set than min_sync \
             have told in time that they have it"
        }
        (false, _) => {
            "nothing was changed; not every node of the sync set has told in time that it has what \
             was found here"
        }
    };
    let head = ReplyHead::new(
        Status::NoReplicas,
        address.item,
        AckLevel::None,
        Version::default(),
    );
    ReplyHead {
        reason: members,
        ..head
    }
    .write_message(&mut out, &text);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_answered_the_level_that_was_reached_in_words_that_it_knows() {
        use AckLevel::{All, Disk, Replica};
        assert_eq!(reply_level(All, false, true), All);
        assert_eq!(reply_level(All, false, false), Replica);
        for knows_all in [false, true] {
            assert_eq!(reply_level(All, true, knows_all), Disk);
            assert_eq!(reply_level(Replica, false, knows_all), Replica);
            assert_eq!(reply_level(Disk, false, knows_all), Disk);
        }
    }
}
