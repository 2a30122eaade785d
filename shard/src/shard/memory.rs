//! What connections and replies may hold, and who waits for it.

use penstock_net::frame::{Medium, Opcode};
use penstock_net::keyspace::KEPT_BYTES;
use penstock_net::limits::HISTORY_VERSIONS_MAX;
use penstock_net::refusal::Refusal;
use penstock_net::reply::REPLY_HEAD_BYTES_MAX;
use penstock_net::request::{Extra, Request, Verb};
use penstock_net::scan::ScanRequest;
use penstock_storage::io::Blocks;
use penstock_storage::planted::{Bug, is_planted};
use penstock_storage::store::Found;

use crate::answers::Asked;
use crate::mail::{ReplyAddress, SessionId};
use crate::parking::{Origin, Parked};
use crate::session::AWAITED_BYTES;

use super::requests::{deadline_us_of, slot_of_request};
use super::{INPUT_BYTES_FREE, Now, Outbox, Outgrown, SMALL_ANSWER_BYTES, Shard};

/// Which part of the room that is left one connection may hold.
const SHARE_DIVISOR: usize = 16;

impl<P: Blocks> Shard<P> {
    /// Notes how many bytes of a connection are left that are not run.
    #[inline]
    pub(super) fn note_input(&mut self, id: SessionId, bytes: usize) {
        if let Some(session) = self.open(id) {
            let now = if bytes > INPUT_BYTES_FREE { bytes } else { 0 };
            let before = std::mem::replace(&mut session.input_bytes, now);
            self.input_bytes = self.input_bytes - before + now;
        }
    }

    /// Why no more of a frame is taken in, if so. As of replies one may hold no more than is left for all, so that a few that
    /// never end their frames leave room for others.
    #[inline]
    pub(super) fn refusal_of_input(&self, id: SessionId, bytes: usize) -> Option<Refusal> {
        if bytes <= INPUT_BYTES_FREE {
            return None;
        }
        let held = self.input_bytes - self.sessions[id.index()].input_bytes + bytes;
        let max = self.config.input_bytes_max;
        (bytes > max.saturating_sub(held)).then_some(Refusal::InputBytes { held, max })
    }

    /// Whether a connection may ask for more. What one may hold is a share of what is left for all,
    /// so that many that do not read leave room for others. A connection that holds nothing may
    /// always ask for little.
    #[inline]
    pub(super) fn has_room_for_replies(&self, id: SessionId) -> bool {
        let room = self.room_for_replies();
        let little = room.min(SMALL_ANSWER_BYTES);
        let share = (room / SHARE_DIVISOR).max(little);
        self.sessions[id.index()].held_bytes() <= share.min(self.config.output_bytes_max)
    }

    /// Bytes to keep free for an answer of another shard. Without room only a short one comes at once.
    pub(super) fn kept_for_answer(&self, id: SessionId, is_read: bool) -> usize {
        if !is_read || self.room_for_replies() == 0 {
            return AWAITED_BYTES;
        }
        let longest = self.limits.value_bytes_max as usize + REPLY_HEAD_BYTES_MAX;
        let expected = self.sessions[id.index()].read_answer_bytes;
        let first = || longest.min(self.config.replies_bytes_max / SHARE_DIVISOR);
        expected.unwrap_or_else(first).max(AWAITED_BYTES)
    }

    /// Bytes that are left for replies. Without any, only answers of [`SMALL_ANSWER_BYTES`] are given.
    #[inline]
    pub(super) fn room_for_replies(&self) -> usize {
        let max = self.config.replies_bytes_max;
        max.saturating_sub(self.replies_bytes)
    }

    /// Whether the answer to an item may be longer than `bytes_max`, as far as this shard can tell.
    #[cold]
    pub(super) fn asks_for_much(&self, item: &[u8], bytes_max: usize) -> bool {
        if ScanRequest::is_scan(item) {
            return true;
        }
        let Ok(request) = Request::read(item, self.limits.value_bytes_max) else {
            return false;
        };
        let slot = slot_of_request(&request);
        if self.config.topology.owner(slot) != self.config.shard {
            return false;
        }
        match request.verb {
            // What they tell was written before what the index says.
            Verb::GetAt | Verb::History | Verb::Keyspace => return true,
            _ if !may_show_value(&request) => return false,
            _ => {}
        }
        let hash = self.hash.of(request.key);
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
            Origin::Here => {
                // Closed ones are still executed.
                if let Some(session) = self.open(address.session) {
                    session.reserved_bytes += bytes;
                    self.replies_bytes += bytes;
                }
            }
            Origin::Shard(from) => {
                self.peers[usize::from(from)].replying_bytes += bytes_beyond_kept(bytes, address);
            }
        }
    }

    /// Ends that, before it is answered; nothing is kept for a connection that is closed.
    pub(super) fn unreserve(&mut self, parked: &mut Parked) {
        let bytes = std::mem::take(&mut parked.reserved);
        self.unreserve_bytes(parked.origin, &parked.address, bytes);
    }

    pub(super) fn unreserve_bytes(&mut self, origin: Origin, address: &ReplyAddress, bytes: usize) {
        match origin {
            Origin::Here => {
                if let Some(session) = self.open(address.session) {
                    session.reserved_bytes -= bytes;
                    self.replies_bytes -= bytes;
                }
            }
            Origin::Shard(_) if is_planted(Bug::KeepReserved) => {}
            Origin::Shard(from) => {
                self.peers[usize::from(from)].replying_bytes -= bytes_beyond_kept(bytes, address);
            }
        }
    }

    /// Reads no more from a connection for now; its bytes wait since `since_us`, and what stands
    /// first among them expires at `expires_us`, unless that is 0.
    pub(super) fn pause(&mut self, id: SessionId, since_us: u64, expires_us: u64) {
        let session = &mut self.sessions[id.index()];
        session.expires_us = expires_us;
        if !session.is_paused {
            session.is_paused = true;
            session.waits_since_us = Some(since_us);
            self.counters.pauses += 1;
            self.paused.push(id);
        }
    }

    /// When the batch at the front of the bytes of a connection expires; 0 for never.
    pub(super) fn front_deadline_us(&self, id: SessionId, bytes: &[u8], came_us: u64) -> u64 {
        let header = self.sessions[id.index()].receiver.header(bytes);
        let batch = header.filter(|header| header.opcode == Opcode::Batch as u8);
        batch.map_or(0, |header| deadline_us_of(&header, came_us))
    }

    /// Whether what stands first in a connection is to be answered DEADLINE without room: its peer takes what it is
    /// answered, so that such answers never add up.
    pub(super) fn may_expire(&self, now: Now, id: SessionId, expires_us: u64) -> bool {
        let session = &self.sessions[id.index()];
        expires_us != 0 && now.us > expires_us && session.has_taken_all()
    }

    /// Lets connections go on whose next request has expired while it waited for room.
    pub(super) fn resume_expired(&mut self, now: Now, outbox: &mut Outbox<P::Block>) {
        let mut paused = std::mem::take(&mut self.paused);
        paused.retain(|&id| {
            let session = &self.sessions[id.index()];
            let is_it = session.generation == id.generation;
            let stays = is_it && !self.may_expire(now, id, session.expires_us);
            if is_it && !stays {
                let session = &mut self.sessions[id.index()];
                session.is_paused = false;
                session.asks_for_much = false;
                outbox.resume.push(id);
            }
            stays
        });
        self.paused = paused;
    }

    /// Asks how the peers of connections take their replies for which replies or requests wait.
    pub(super) fn look_at_peers(&mut self, now: Now, outbox: &mut Outbox<P::Block>) {
        let stall_us_max = self.config.write_stall_us_max;
        let is_short = self.is_short_of_room();
        for (index, session) in (0u32..).zip(&mut self.sessions) {
            if !session.is_open || session.medium == Medium::Memory {
                continue;
            }
            if !session.waits_for_peer() && !session.is_paused {
                session.taking.rests();
            } else if is_short || session.taking.wants_look(now.us, stall_us_max) {
                outbox.looks.push(SessionId {
                    index,
                    generation: session.generation,
                });
            }
        }
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
        let stall_us_max = self.config.write_stall_us_max;
        let is_short = self.is_short_of_room();
        let Some(session) = self.open(id) else {
            return;
        };
        let is_taken = !session.waits_for_peer();
        let pace = session.taking.look(now.us, bytes, is_taken);
        if pace.is_too_slow(stall_us_max) {
            let reason = "the peer took too little of its replies within write_stall_timeout_ms";
            outbox.close.push((id, reason));
        } else if is_short
            && session.unsent_bytes() > SMALL_ANSWER_BYTES
            && pace.is_too_slow_for_others(stall_us_max)
        {
            let reason = "the peer took nothing of its replies for a twentieth of write_stall_timeout_ms while others waited for their room";
            outbox.close.push((id, reason));
        }
    }

    /// Whether replies have taken all room, and somebody waits for it.
    fn is_short_of_room(&self) -> bool {
        let waits = |id: &SessionId| self.sessions[id.index()].asks_for_much;
        self.room_for_replies() == 0
            && (self.paused.iter().any(waits) || self.peers.iter().any(|it| it.taken_bytes > 0))
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
        // What is before it in its slot may shorten the value, and it keeps room anew while it waits for that.
        if self.has_room_for_more(*origin, address.session)
            || self.parking.behind(*origin, address, *slot).is_some()
        {
            return None;
        }
        let request = Request::read(&parked.item, self.limits.value_bytes_max).ok()?;
        if !may_show_value(&request) {
            return None;
        }
        let hash = self.hash.of(request.key);
        let bytes = self.value_bytes(self.store.find(*slot, hash, request.key));
        // In the log the same value takes a little more than in memory: key, header, and what is told of a
        // place is rounded up by a sixteenth.
        let in_log = reserved + reserved / 8 + request.key.len() + AWAITED_BYTES;
        (bytes > in_log).then_some((Asked::of(request.verb), Outgrown(bytes)))
    }

    /// Whether an answer may be longer than what was kept free for it.
    #[inline]
    pub(super) fn has_room_for_more(&self, origin: Origin, session: SessionId) -> bool {
        match origin {
            Origin::Here => self.has_room_for_replies(session),
            Origin::Shard(from) => {
                self.peers[usize::from(from)].replying_bytes <= self.mailed_bytes_max
            }
        }
    }

    /// Lets connections go on for whose replies there is room, so that the others' frames are not looked
    /// at again and again.
    pub(super) fn resume(&mut self, outbox: &mut Outbox<P::Block>) {
        let mut paused = std::mem::take(&mut self.paused);
        let has_room = self.room_for_replies() > 0;
        paused.retain(|&id| {
            let session = &self.sessions[id.index()];
            if session.generation != id.generation {
                return false;
            }
            let stays = !self.has_room_for_replies(id) || (session.asks_for_much && !has_room);
            if !stays {
                let session = &mut self.sessions[id.index()];
                session.is_paused = false;
                session.asks_for_much = false;
                outbox.resume.push(id);
            }
            stays
        });
        self.paused = paused;
    }

    /// Whether connections have room for what other shards are told that they may answer. What is kept
    /// for answers does not count: it waits for just that.
    pub(super) fn may_tell_taken(&self) -> bool {
        self.replies_bytes - self.awaited_bytes < self.config.replies_bytes_max
    }

    /// Whether another shard waits to be told that its answers were taken, and connections have room again.
    pub(super) fn owes_credit(&self) -> bool {
        self.may_tell_taken()
            && self
                .peers
                .iter()
                .any(|peer| peer.taken_bytes > self.mailed_bytes_max / 4)
    }

    /// Who waits for memory goes on when cells have left. Nothing else can be done for it than to let the
    /// hand go on and, when it finds nothing more that may leave, to have the log make that durable:
    /// then the loop rests until the disk has done it.
    pub(super) fn mind_memory(&mut self, waits: bool) {
        let is_short = self.store.is_memory_short();
        if (waits || is_short) && self.store.is_over_budget() {
            if self.store.may_shrink() {
                self.has_progress = true;
            } else {
                let log = self.store.log_mut();
                log.want_durable(log.appended());
            }
        }
        // A key that found no room in the index waits while cleaning takes out what has expired.
        let is_short = is_short || self.store.waits_for_keys();
        self.has_progress |= self.waits_for_memory && !is_short;
        self.waits_for_memory = is_short;
    }
}

/// What the answer of an operation on a value of so many bytes is taken to hold.
pub(super) fn answer_bytes(request: &Request<'_>, value_bytes: usize) -> usize {
    match request.verb {
        Verb::GetAt => value_bytes,
        Verb::History => HISTORY_VERSIONS_MAX as usize * KEPT_BYTES,
        _ if may_show_value(request) => value_bytes,
        _ => 0,
    }
}

/// Whether the answer may show the value that the key has now.
pub(super) fn may_show_value(request: &Request<'_>) -> bool {
    request.verb == Verb::Get || request.extra == Extra::Show
}

/// What an answer of so many bytes takes beyond the room that the asking shard keeps for it.
#[inline]
pub(super) fn bytes_beyond_kept(bytes: usize, address: &ReplyAddress) -> usize {
    match bytes <= address.answer_bytes as usize {
        true => 0,
        false => bytes,
    }
}
