//! What connections and replies may hold, and who waits for it.

use penstock_net::frame::Opcode;
use penstock_net::item::ItemForm;
use penstock_net::reply::REPLY_HEAD_BYTES_MAX;
use penstock_net::request::{Request, Tells};
use penstock_storage::io::Blocks;
use penstock_storage::store::Found;

use crate::answers::Asked;
use crate::mail::{ReplyAddress, SessionId};
use crate::requests::parking::{Origin, Parked};
use crate::sessions::AWAITED_BYTES;

use super::answer_bytes::{Outgrown, may_show_value};
use super::batch::deadline_us_of;
use super::{Now, Outbox, Shard};

impl<P: Blocks> Shard<P> {
    /// Whether the answer to an item may be longer than `bytes_max`, as far as this shard can tell.
    #[cold]
    pub(super) fn asks_for_much(&self, item: &[u8], bytes_max: usize) -> bool {
        match ItemForm::of(item) {
            ItemForm::Common => {}
            // A program tells a few numbers.
            ItemForm::Apply | ItemForm::Run => return false,
            ItemForm::Scan => return true,
            ItemForm::Ping => return item.len() + REPLY_HEAD_BYTES_MAX > bytes_max,
        }
        let Ok(request) = Request::read(item, self.setup.limits().value_bytes_max) else {
            return false;
        };
        let slot = request.slot();
        if !self.setup.owns(slot) {
            return false;
        }
        match request.verb.tells() {
            // The index says nothing of their length.
            Tells::PastValue | Tells::Versions | Tells::Keyspaces => return true,
            Tells::Page | Tells::Echo => return true,
            Tells::Value | Tells::Fields if !may_show_value(&request) => return false,
            Tells::Value | Tells::Fields => {}
        }
        let hash = self.setup.hash().of(request.key);
        let bytes = self.value_bytes(self.store.find(slot, hash, request.key));
        bytes + REPLY_HEAD_BYTES_MAX > bytes_max
    }

    /// How long a value is; of a cold one what its part takes.
    pub(super) fn value_bytes(&self, found: Found) -> usize {
        match found {
            Found::Cold(place) => place.bytes as usize,
            Found::Cached(id) => self.store.cell(id).value().len(),
            Found::Absent => 0,
        }
    }

    /// Keeps room for an answer that will come, unless the shard that asked does.
    pub(super) fn reserve(&mut self, origin: Origin, address: &ReplyAddress, bytes: usize) {
        match origin {
            // Operations of closed connections are still executed.
            Origin::Here => self.sessions.reserve(address.session, bytes),
            Origin::Shard(from) => {
                self.requests.mail.reserve(from, address, bytes);
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
            Origin::Here => self.sessions.unreserve(address.session, bytes),
            Origin::Shard(from) => {
                self.requests.mail.unreserve(from, address, bytes);
            }
        }
    }

    /// When the batch at the front of the bytes of a connection expires; 0 for never.
    pub(super) fn front_deadline_us(&self, id: SessionId, bytes: &[u8], came_us: u64) -> u64 {
        let header = self.sessions.at(id).receiver.header(bytes);
        let batch = header.filter(|header| header.opcode == Opcode::Batch as u8);
        batch.map_or(0, |header| deadline_us_of(&header, came_us))
    }

    /// Ends a connection whose peer takes its replies too slowly; the network holds so many bytes
    /// of them.
    pub(super) fn look_at_peer(
        &mut self,
        now: Now,
        id: SessionId,
        bytes: u64,
        outbox: &mut Outbox<P::Block>,
    ) {
        let is_short = self.is_short_of_room();
        let reason = self.sessions.judge_peer(now.us, id, bytes, is_short);
        outbox.close.extend(reason.map(|reason| (id, reason)));
    }

    /// Whether replies have taken all room, and somebody waits for it.
    pub(super) fn is_short_of_room(&self) -> bool {
        let has_untold = self.requests.mail.has_untold();
        self.sessions.is_short_of_room(has_untold)
    }

    /// What is asked and how long a value is that the answer would show now, if its key has grown
    /// since it was parked and there is no room for that: thousands may wait for one read, and what
    /// they were taken to answer says nothing about what somebody wrote since.
    pub(super) fn outgrown(&self, parked: &Parked, reserved: usize) -> Option<(Asked, Outgrown)> {
        let Parked {
            origin,
            address,
            slot,
            ..
        } = parked;
        // An operation before this one in the slot may shorten the value. The parked operation
        // keeps room anew while it waits.
        if self.has_room_for_more(*origin, address.session)
            || self
                .requests
                .parking
                .behind(*origin, address, *slot)
                .is_some()
        {
            return None;
        }
        let request = Request::read(&parked.item, self.setup.limits().value_bytes_max).ok()?;
        if !may_show_value(&request) {
            return None;
        }
        let hash = self.setup.hash().of(request.key);
        let bytes = self.value_bytes(self.store.find(*slot, hash, request.key));
        // In the log the same value takes a little more than in memory: key, header, and what is
        // told of a place is rounded up by a sixteenth.
        let in_log = reserved + reserved / 8 + request.key.len() + AWAITED_BYTES;
        (bytes > in_log).then_some((Asked::Verb(request.verb), Outgrown(bytes)))
    }

    /// Whether an answer may be longer than what was kept free for it.
    #[inline]
    pub(super) fn has_room_for_more(&self, origin: Origin, session: SessionId) -> bool {
        match origin {
            Origin::Here => self.sessions.has_room_for_replies(session),
            Origin::Shard(from) => self.requests.mail.has_room_for_more(from),
        }
    }

    /// Whether another shard waits to be told that its answers were taken, and connections have
    /// room again.
    pub(super) fn owes_credit(&self) -> bool {
        self.sessions.may_tell_taken() && self.requests.mail.owes_credit()
    }

    /// Who waits for memory goes on when cells have left. Nothing else can be done for it than to
    /// let the hand go on and, when it finds nothing more that may leave, to have the log make that
    /// durable: then the loop rests until the disk has done it.
    pub(super) fn mind_memory(&mut self, waits: bool) {
        let is_short = self.store.is_memory_short();
        if (waits || is_short) && self.store.is_over_budget() {
            if self.store.may_shrink() {
                self.phase.note_progress(true);
            } else {
                let log = self.store.log_mut();
                log.want_durable(log.appended());
            }
        }
        // A key that found no room in the index waits while cleaning takes out what has expired.
        let is_short = is_short || self.store.waits_for_keys();
        self.phase.note_memory(is_short);
    }
}
