//! What connections and replies may hold, and who waits for it.

use penstock_net::request::Request;
use penstock_storage::io::Blocks;

use crate::accounts::answers::Asked;
use crate::execution::answer_bytes::{Outgrown, may_show_value};
use crate::mail::{ReplyAddress, SessionId};
use crate::requests::parking::{Order, Origin, Parked};
use crate::sessions::AWAITED_BYTES;
use crate::shard::Shard;
use crate::step::Step;

impl<P: Blocks> Shard<P> {
    /// Keeps room for an answer that will come, unless the shard that asked does.
    pub(super) fn reserve(&mut self, origin: Origin, address: &ReplyAddress, bytes: usize) {
        match origin {
            // Operations of closed connections are still executed.
            Origin::Here => self.front.sessions.reserve(address.session, bytes),
            Origin::Shard(from) => {
                self.execution.requests.mail.reserve(from, address, bytes);
            }
        }
    }

    /// Gives back the room that was kept for a parked operation, before it is answered. A closed
    /// connection has no room kept.
    pub(super) fn unreserve(&mut self, parked: &mut Parked) {
        let bytes = std::mem::take(&mut parked.reserved);
        self.unreserve_bytes(parked.origin, &parked.address, bytes);
    }

    pub(super) fn unreserve_bytes(&mut self, origin: Origin, address: &ReplyAddress, bytes: usize) {
        match origin {
            Origin::Here => self.front.sessions.unreserve(address.session, bytes),
            Origin::Shard(from) => {
                self.execution.requests.mail.unreserve(from, address, bytes);
            }
        }
    }

    /// Ends a connection whose peer takes its replies too slowly; the network holds so many bytes
    /// of them.
    pub(super) fn check_peer(&mut self, step: &mut Step<'_, P::Block>, id: SessionId, bytes: u64) {
        let is_short = self.is_short_of_room();
        let reason = self
            .front
            .sessions
            .judge_peer(step.now.us, id, bytes, is_short);
        step.outbox.close.extend(reason.map(|reason| (id, reason)));
    }

    /// Whether replies have taken all room, and somebody waits for it.
    pub(super) fn is_short_of_room(&self) -> bool {
        let has_unreported = self.execution.requests.mail.has_unreported();
        self.front.sessions.is_short_of_room(has_unreported)
    }

    /// What is asked and how long a value is that the answer would show now, if its key has grown
    /// since it was parked and there is no room for that: thousands may wait for one read, and what
    /// they were taken to answer says nothing about what somebody wrote since.
    pub(super) fn outgrown(&self, parked: &Parked, reserved: usize) -> Option<(Asked, Outgrown)> {
        let Parked {
            origin,
            address,
            slot,
            order,
            ..
        } = parked;
        // An operation before this one in the slot may shorten the value. The parked operation
        // keeps room anew while it waits.
        if self.has_room_for_more(*origin, address.session)
            || self
                .execution
                .requests
                .parking
                .behind(*origin, address, Order::Of(*slot), *order)
                .is_some()
        {
            return None;
        }
        let request =
            Request::read(&parked.item, self.execution.setup.limits().value_bytes_max).ok()?;
        if !may_show_value(&request) {
            return None;
        }
        let hash = self.execution.setup.hash().of(request.key);
        let bytes =
            self.execution
                .value_bytes(self.execution.store.keys().find(*slot, hash, request.key));
        // In the log the same value takes a little more than in memory: key, header, and what is
        // told of a place is rounded up by a sixteenth.
        let in_log = reserved + reserved / 8 + request.key.len() + AWAITED_BYTES;
        (bytes > in_log).then_some((Asked::Verb(request.verb), Outgrown(bytes)))
    }

    /// Whether an answer may be longer than what was kept free for it.
    #[inline]
    pub(super) fn has_room_for_more(&self, origin: Origin, session: SessionId) -> bool {
        match origin {
            Origin::Here => self.front.sessions.has_room_for_replies(session),
            Origin::Shard(from) => self.execution.requests.mail.has_room_for_more(from),
        }
    }

    /// Whether another shard waits to be told that its answers were taken, and connections have
    /// room again.
    pub(super) fn owes_credit(&self) -> bool {
        self.front.sessions.may_report_taken() && self.execution.requests.mail.owes_credit()
    }
}
