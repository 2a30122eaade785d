//! The connections of a shard, and the memory that they share.
//!
//! A connection's share of [`ClientMemory`] and the total change by one function here, so the total
//! is always the sum over the open connections.

mod access;
mod account;
mod arriving;
mod memory;
mod output;
mod pause;
mod peer;
mod sending;
mod session;
mod taking;

use penstock_net::frame::Medium;
use penstock_net::limits::FRAME_BYTES_BEFORE_HELLO_MAX;
use penstock_net::pieces::Pieces;
use penstock_net::refusal::Refusal;
use penstock_storage::place::Lsn;
use penstock_storage::planted::{self, Bug};

use crate::event::Outside;
use crate::mail::SessionId;

use memory::ClientMemory;

pub(crate) use arriving::Arriving;
pub(crate) use memory::{AWAITED_BYTES, ClientBounds, SMALL_ANSWER_BYTES};
pub(crate) use session::Session;

/// What became of connections.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SessionCounts {
    pub(crate) opened: u64,
    pub(crate) open: u64,
    pub(crate) pauses: u64,
    /// Ended because their answers were void.
    pub(crate) voided: u64,
}

/// The end of a send: the network has taken all bytes that it was given.
pub(crate) struct Sent {
    /// When it took the last of it, since when that was ready, and how many operations it answers.
    pub(crate) left: Option<(u64, u64, u64)>,
}

/// How long connections may take, in microseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// A frame that is not whole must have brought all of it, or
    /// [`arriving::ARRIVING_BYTES_MIN`] more, within this.
    pub(crate) partial_frame_us_max: u64,
    /// A connection that says nothing for so long is closed; 0 is never.
    pub(crate) idle_us_max: u64,
    /// A peer must take some of its replies within this.
    pub(crate) write_stall_us_max: u64,
}

/// All connections of a shard.
#[derive(Debug)]
pub(crate) struct Sessions {
    all: Vec<Session>,
    free: Vec<u32>,
    /// Connections with replies that wait for the disk.
    gated: Vec<SessionId>,
    /// Connections whose bytes are not read until there is room again.
    paused: Vec<SessionId>,
    /// Connections whose answers are void, to be ended.
    voided: Vec<SessionId>,
    memory: ClientMemory,
    patience: Patience,
    counts: SessionCounts,
}

impl Sessions {
    pub(crate) fn new(bounds: ClientBounds, patience: Patience) -> Self {
        Sessions {
            all: Vec::new(),
            free: Vec::new(),
            gated: Vec::new(),
            paused: Vec::new(),
            voided: Vec::new(),
            memory: ClientMemory::new(bounds),
            patience,
            counts: SessionCounts::default(),
        }
    }

    pub(crate) fn counts(&self) -> SessionCounts {
        self.counts
    }

    /// Whether a connection is open.
    pub(crate) fn is_any_open(&self) -> bool {
        self.counts.open > 0
    }

    // ---- one connection ----

    /// A connection was accepted, which may say nothing for the usual time.
    pub(crate) fn open(&mut self, now_us: u64, medium: Medium, is_remote: bool) -> SessionId {
        self.open_idle(now_us, medium, is_remote, self.patience.idle_us_max)
    }

    /// A connection was accepted, which may say nothing for `idle_us_max`; 0 is for ever.
    pub(crate) fn open_idle(
        &mut self,
        now_us: u64,
        medium: Medium,
        is_remote: bool,
        idle_us_max: u64,
    ) -> SessionId {
        let index = self.free.pop().unwrap_or_else(|| {
            self.all.push(Session::new(FRAME_BYTES_BEFORE_HELLO_MAX));
            u32::try_from(self.all.len() - 1).expect("connections are bounded")
        });
        let session = &mut self.all[index as usize];
        session.begin(now_us, medium, is_remote);
        session.idle_us_max = idle_us_max;
        self.counts.opened += 1;
        self.counts.open += 1;
        SessionId {
            index,
            generation: session.generation,
        }
    }

    /// Removes a connection with all that it held. `false` if the connection was already gone.
    pub(crate) fn close(&mut self, id: SessionId) -> bool {
        let Some(session) = self.get_open(id) else {
            return false;
        };
        let next = session.generation.wrapping_add(1);
        let generation = planted::or(Bug::SameGeneration, session.generation, next);
        let awaited_bytes = session.account.awaited_bytes;
        let (held, kept_bytes) = (session.held_bytes(), session.account.kept_bytes);
        let input_bytes = session.account.input_bytes;
        *session = Session::new(FRAME_BYTES_BEFORE_HELLO_MAX);
        session.generation = generation;
        self.memory.gives_awaited(awaited_bytes);
        self.memory.gives_kept(kept_bytes);
        self.memory.gives_reply(held - awaited_bytes);
        self.memory.changes_input(input_bytes, 0);
        self.free.push(id.index);
        self.counts.open -= 1;
        assert!(
            self.counts.open > 0 || self.memory.is_empty(),
            "nobody is left who holds replies"
        );
        true
    }

    /// All open connections from outside.
    pub(crate) fn ids_of_peers(&self) -> Vec<SessionId> {
        let all = (0u32..).zip(&self.all);
        all.filter(|(_, session)| session.is_open && session.peer.is_remote)
            .map(|(index, session)| SessionId {
                index,
                generation: session.generation,
            })
            .collect()
    }

    /// The place of a connection, which may have gone since.
    #[inline]
    pub(crate) fn at(&self, id: SessionId) -> &Session {
        &self.all[id.index()]
    }

    /// The same, to be changed.
    #[inline]
    pub(crate) fn at_mut(&mut self, id: SessionId) -> &mut Session {
        &mut self.all[id.index()]
    }

    /// A connection, if it is open.
    #[inline]
    pub(crate) fn get_open(&mut self, id: SessionId) -> Option<&mut Session> {
        let session = self.all.get_mut(id.index());
        session.filter(|session| session.is_open && session.generation == id.generation)
    }

    /// Whether the frames of a connection that is open pass through more than memory.
    pub(crate) fn is_of_wire(&self, id: SessionId) -> bool {
        let session = self.at(id);
        session.generation == id.generation && session.peer.medium == Medium::Wire
    }

    /// Whether a connection has said its last word and may be closed.
    pub(crate) fn is_finished(&self, id: SessionId) -> bool {
        let session = self.at(id);
        session.generation != id.generation
            || !session.is_open
            || (session.is_ending && session.is_settled())
    }

    /// Whether the bytes of a connection that were not consumed are to be kept.
    pub(crate) fn is_paused(&self, id: SessionId) -> bool {
        let session = self.at(id);
        session.generation == id.generation && session.pause.is_on()
    }

    // ---- its replies ----

    /// The answers of so many operations, or something else, were appended to a connection's
    /// output; they depend on `gate`. A connection with something to send is announced in
    /// `sendable`.
    #[inline]
    pub(crate) fn note_output(
        &mut self,
        id: SessionId,
        (gate, durable): (Lsn, Lsn),
        operations: usize,
        sendable: &mut Vec<SessionId>,
    ) {
        let session = &mut self.all[id.index()];
        let bytes = session.output.note(gate, durable, operations as u64);
        self.memory.takes_reply(bytes);
        if session.output.is_gated() && !session.is_in_gated {
            session.is_in_gated = true;
            self.gated.push(id);
        }
        if session.output.has_sendable() && session.sending.announce() {
            sendable.push(id);
        }
    }

    /// Lets every reply leave that waited for no more than what is durable now.
    pub(crate) fn release(&mut self, durable: Lsn, sendable: &mut Vec<SessionId>) {
        let all = &mut self.all;
        self.gated.retain(|&id| {
            let session = &mut all[id.index()];
            if session.generation != id.generation {
                return false;
            }
            session.output.release(durable);
            if session.output.has_sendable() && session.sending.announce() {
                sendable.push(id);
            }
            session.is_in_gated = session.output.is_gated();
            session.is_in_gated
        });
    }

    /// Ends a connection, and every answer that it was not given yet is void.
    pub(crate) fn void(&mut self, id: SessionId) {
        let Some(session) = self.get_open(id).filter(|session| !session.is_void) else {
            return;
        };
        (session.is_void, session.is_ending) = (true, true);
        self.counts.voided += 1;
        self.voided.push(id);
    }

    /// The same of all connections with answers that have not left.
    pub(crate) fn void_unsent(&mut self) {
        let all = (0u32..).zip(&self.all);
        let unsent = all.filter(|(_, session)| session.is_open && !session.output.is_empty());
        let unsent = unsent.map(|(index, session)| SessionId {
            index,
            generation: session.generation,
        });
        let unsent: Vec<SessionId> = unsent.collect();
        unsent.into_iter().for_each(|id| self.void(id));
    }

    /// Whether connections are to be ended because their answers are void.
    pub(crate) fn has_voided(&self) -> bool {
        !self.voided.is_empty()
    }

    /// Takes those out.
    pub(crate) fn take_voided(&mut self) -> impl Iterator<Item = SessionId> + '_ {
        self.voided.drain(..)
    }

    /// The turn has ended in which these came to be sendable.
    pub(crate) fn mark_ready(&mut self, now_us: u64, sendable: &[SessionId]) {
        for id in sendable {
            self.all[id.index()].sending.mark_ready(now_us);
        }
    }

    /// Moves what may be sent to `into`, which is empty. More may be announced only after that.
    pub(crate) fn take_pieces(&mut self, now_us: u64, id: SessionId, into: &mut Pieces) {
        if let Some(session) = self.get_open(id) {
            session.take_pieces(now_us, into);
        }
    }

    /// The network took so many bytes more of what was taken.
    pub(crate) fn took(&mut self, now_us: u64, id: SessionId, bytes: usize) {
        if let Some(session) = self.get_open(id) {
            session.sending.took(now_us, bytes);
        }
    }

    /// The network took so many bytes that are no replies of the shard.
    pub(crate) fn gave(&mut self, id: SessionId, bytes: usize) {
        if let Some(session) = self.get_open(id) {
            session.sending.taking.gave(bytes);
        }
    }

    /// All that was taken has been handed to the network. `None` if the connection is gone.
    pub(crate) fn sent(&mut self, id: SessionId) -> Option<Sent> {
        let (sent_bytes, sent) = self.get_open(id)?.sending.sent();
        self.memory.gives_reply(sent_bytes);
        Some(sent)
    }

    // ---- memory ----

    /// Gives back what is kept empty for a connection.
    pub(crate) fn give_back(&mut self, id: SessionId) {
        if let Some(session) = self.get_open(id) {
            session.give_back();
        }
    }

    /// Bytes that are left for replies.
    #[inline]
    pub(crate) fn room_for_replies(&self) -> usize {
        self.memory.room_for_replies()
    }

    /// Whether a long answer may be given.
    #[inline]
    pub(crate) fn has_room_for_long_answers(&self) -> bool {
        self.memory.has_room_for_long_answers()
    }

    /// Whether a connection may ask for more.
    #[inline]
    pub(crate) fn has_room_for_replies(&self, id: SessionId) -> bool {
        self.memory.has_room_for_more(self.at(id).held_bytes())
    }

    /// Whether connections have room for what other shards are told that they may answer.
    pub(crate) fn may_report_taken(&self) -> bool {
        self.memory.may_report_taken()
    }

    /// Keeps room for an answer that will come. Closed connections have none.
    pub(crate) fn reserve(&mut self, id: SessionId, bytes: usize) {
        if let Some(session) = self.get_open(id) {
            session.account.reserved_bytes += bytes;
            self.memory.takes_reply(bytes);
        }
    }

    /// Ends that, before it is answered.
    pub(crate) fn unreserve(&mut self, id: SessionId, bytes: usize) {
        if let Some(session) = self.get_open(id) {
            session.account.reserved_bytes -= bytes;
            self.memory.gives_reply(bytes);
        }
    }

    /// Keeps room for an answer of another shard, and tells how much.
    pub(crate) fn reserve_awaited(&mut self, id: SessionId, is_read: bool) -> usize {
        let session = &mut self.all[id.index()];
        let kept = self
            .memory
            .kept_for_answer(session.account.read_answer_bytes, is_read);
        session.account.awaited_bytes += kept;
        self.memory.takes_awaited(kept);
        kept
    }

    /// Notes answers of another shard to an open connection. `answers` has for each one its length
    /// and the room that was kept for it.
    pub(crate) fn unreserve_awaited(
        &mut self,
        id: SessionId,
        answers: impl Iterator<Item = (usize, usize)>,
    ) {
        let session = &mut self.all[id.index()];
        for (bytes, kept) in answers {
            session.account.answered(bytes, kept);
            self.memory.gives_awaited(kept);
        }
    }

    /// Notes how many bytes of a connection are left that are not run. What stood in its socket is
    /// told anew with the next ones.
    #[inline]
    pub(crate) fn note_input(&mut self, id: SessionId, bytes: usize) {
        if let Some(session) = self.get_open(id) {
            session.claim.unread_bytes = 0;
            let now = ClientMemory::counted_input(bytes);
            let before = std::mem::replace(&mut session.account.input_bytes, now);
            self.memory.changes_input(before, now);
        }
    }

    /// So many bytes stand in the socket of a connection behind what was read.
    pub(crate) fn note_unread(&mut self, id: SessionId, bytes: u64) {
        if let Some(session) = self.get_open(id) {
            session.claim.unread_bytes = bytes;
        }
    }

    /// Notes what the driver of a connection holds for it outside.
    pub(crate) fn note_outside(&mut self, now_us: u64, id: SessionId, held: Outside) {
        let Some(session) = self.get_open(id) else {
            return;
        };
        session.last_received_us = now_us;
        session.awaits_others = held.awaits_others;
        match held.is_partial {
            true => session.partial_frame(now_us, held.input),
            false => session.arriving = None,
        }
        let outside = std::mem::replace(&mut session.account.outside_bytes, held.replies);
        let kept = std::mem::replace(&mut session.account.kept_bytes, held.kept);
        self.memory.gives_reply(outside);
        self.memory.gives_kept(kept);
        self.memory.takes_reply(held.replies);
        self.memory.takes_kept(held.kept);
        self.note_input(id, held.input);
    }

    /// Why no more of a connection's frame is taken in, if so: it has sent `bytes` that are not
    /// run.
    #[inline]
    pub(crate) fn refusal_of_input(&self, id: SessionId, bytes: usize) -> Option<Refusal> {
        self.memory
            .refusal_of_input(self.at(id).account.input_bytes, bytes)
    }

    // ---- pauses ----

    /// Whether a connection waits for room.
    pub(crate) fn has_paused(&self) -> bool {
        !self.paused.is_empty()
    }

    /// Reads no more from a connection for now; its bytes wait since `since_us`, and what stands
    /// first among them expires at `expires_us`, unless that is 0.
    pub(crate) fn pause(&mut self, id: SessionId, since_us: u64, expires_us: u64) {
        let session = &mut self.all[id.index()];
        if session.pause.begin(since_us, expires_us) {
            self.counts.pauses += 1;
            self.paused.push(id);
        }
    }

    /// Whether the first item of a connection gets DEADLINE although there is no room for answers.
    /// That needs a peer that has taken all earlier answers, so such answers never add up.
    pub(crate) fn may_expire(&self, now_us: u64, id: SessionId, expires_us: u64) -> bool {
        expires_us != 0 && now_us > expires_us && self.at(id).has_taken_all()
    }

    /// Lets connections go on for whose replies there is room, so that the others' frames are not
    /// looked at again and again.
    pub(crate) fn resume(&mut self, into: &mut Vec<SessionId>) {
        let has_room = self.has_room_for_long_answers();
        self.resume_those(into, |sessions, id| {
            let asks_for_much = sessions.at(id).pause.waits_for_much();
            sessions.has_room_for_replies(id) && (!asks_for_much || has_room)
        });
    }

    /// Lets connections go on whose next request has expired while it waited for room.
    pub(crate) fn resume_expired(&mut self, now_us: u64, into: &mut Vec<SessionId>) {
        self.resume_those(into, |sessions, id| {
            sessions.may_expire(now_us, id, sessions.at(id).pause.expires_us())
        });
    }

    fn resume_those(
        &mut self,
        into: &mut Vec<SessionId>,
        may_go_on: impl Fn(&Sessions, SessionId) -> bool,
    ) {
        let mut paused = std::mem::take(&mut self.paused);
        paused.retain(|&id| {
            if self.at(id).generation != id.generation {
                return false;
            }
            let goes_on = may_go_on(self, id);
            if goes_on {
                self.at_mut(id).pause.end();
                into.push(id);
            }
            !goes_on
        });
        self.paused = paused;
    }

    // ---- deadlines ----

    /// Whether replies have taken all room while a connection, or another shard, waits for it.
    pub(crate) fn is_short_of_room(&self, has_unreported: bool) -> bool {
        let waits = |id: &SessionId| self.at(*id).pause.waits_for_much();
        !self.has_room_for_long_answers() && (self.paused.iter().any(waits) || has_unreported)
    }

    /// Asks how the peers of connections take their replies for which replies or requests wait.
    pub(crate) fn check_peers(&mut self, now_us: u64, is_short: bool, probes: &mut Vec<SessionId>) {
        let stall_us_max = self.patience.write_stall_us_max;
        for (index, session) in (0u32..).zip(&mut self.all) {
            if !session.is_open || !session.peer.is_remote {
                continue;
            }
            if !session.waits_for_peer() && !session.pause.is_on() {
                session.sending.taking.rests();
            } else if is_short || session.sending.taking.is_check_due(now_us, stall_us_max) {
                probes.push(SessionId {
                    index,
                    generation: session.generation,
                });
            }
        }
    }

    /// Judges a peer by its progress: returns why the connection is to be ended if the peer takes
    /// its replies too slowly. The network holds `bytes` of them.
    pub(crate) fn judge_peer(
        &mut self,
        now_us: u64,
        id: SessionId,
        bytes: u64,
        is_short: bool,
    ) -> Option<&'static str> {
        let stall_us_max = self.patience.write_stall_us_max;
        let session = self.get_open(id)?;
        let is_taken = !session.waits_for_peer();
        let pace = session.sending.taking.measure(now_us, bytes, is_taken);
        if pace.is_too_slow(stall_us_max) {
            Some("the peer took too little of its replies within write_stall_timeout_ms")
        } else if is_short
            && session.unsent_bytes() > SMALL_ANSWER_BYTES
            && pace.is_too_slow_for_others(stall_us_max)
        {
            Some(
                "the peer took nothing of its replies for a twentieth of write_stall_timeout_ms \
                 while others waited for their room",
            )
        } else {
            None
        }
    }

    /// Connections that broke a deadline, and which.
    pub(crate) fn overdue(&self, now_us: u64) -> impl Iterator<Item = (SessionId, &'static str)> {
        let all = (0u32..).zip(&self.all);
        all.filter(|(_, session)| session.is_open)
            .filter_map(move |(index, session)| {
                let generation = session.generation;
                let reason = session.overdue(now_us, &self.patience)?;
                Some((SessionId { index, generation }, reason))
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: usize = 1 << 20;
    const PARTIAL_US: u64 = 1_000;

    fn sessions() -> Sessions {
        let bounds = ClientBounds {
            replies: ROOM,
            replies_of_one: ROOM,
            input: ROOM,
            longest_answer: 4 << 10,
        };
        let patience = Patience {
            partial_frame_us_max: PARTIAL_US,
            idle_us_max: 0,
            write_stall_us_max: 8_000,
        };
        Sessions::new(bounds, patience)
    }

    fn held(input: usize, replies: usize, is_partial: bool) -> Outside {
        Outside {
            input,
            replies,
            is_partial,
            ..Outside::default()
        }
    }

    #[test]
    fn what_a_driver_holds_for_a_connection_counts_has_deadlines_and_goes_with_it() {
        let mut sessions = sessions();
        let id = sessions.open(0, Medium::Memory, true);
        let other = sessions.open(0, Medium::Memory, true);
        sessions.note_outside(5, id, held(ROOM - 100, 3_000, true));
        assert_eq!(sessions.room_for_replies(), ROOM - 3_000);
        assert!(sessions.refusal_of_input(other, 8 << 10).is_some());
        // The deadline counts from the first part of a request, not from a last one that is small.
        sessions.note_outside(900, id, held(ROOM - 50, 3_000, true));
        assert_eq!(sessions.overdue(5 + PARTIAL_US).count(), 0);
        let overdue: Vec<_> = sessions.overdue(6 + PARTIAL_US).collect();
        assert_eq!(overdue.len(), 1);
        assert_eq!(overdue[0].0, id);
        sessions.note_outside(950, id, held(0, 0, false));
        assert_eq!(sessions.overdue(6 + PARTIAL_US).count(), 0);
        assert_eq!(sessions.room_for_replies(), ROOM);
        assert!(sessions.refusal_of_input(other, 8 << 10).is_none());
        sessions.note_outside(960, id, held(9_000, 700, false));
        sessions.close(id);
        assert_eq!(sessions.room_for_replies(), ROOM);
    }

    #[test]
    fn what_a_request_keeps_takes_room_of_all_and_holds_back_neither_itself_nor_its_peer() {
        let mut sessions = sessions();
        let id = sessions.open(0, Medium::Memory, true);
        let other = sessions.open(0, Medium::Memory, true);
        let kept = Outside {
            kept: ROOM,
            ..Outside::default()
        };
        sessions.note_outside(1, id, kept);
        assert_eq!(sessions.room_for_replies(), 0);
        assert!(sessions.has_room_for_long_answers(), "its reads must run");
        assert!(sessions.may_report_taken(), "also those at other shards");
        assert!(sessions.has_room_for_replies(id), "its change must run");
        assert!(!sessions.at(id).waits_for_peer());
        sessions.note_outside(2, other, held(0, 700, false));
        assert!(!sessions.has_room_for_replies(other));
        sessions.note_outside(3, other, held(0, ROOM / 16, false));
        assert!(!sessions.has_room_for_long_answers(), "a share is taken");
        assert!(!sessions.may_report_taken());
        sessions.note_outside(4, other, held(0, 700, false));
        sessions.close(id);
        assert_eq!(sessions.room_for_replies(), ROOM - 700);
        assert!(sessions.has_room_for_replies(other));
    }

    #[test]
    fn a_request_that_arrives_slowly_and_moves_is_not_ended_and_one_that_drips_is() {
        let mut sessions = sessions();
        let [moves, drips] = [0, 1].map(|_| sessions.open(0, Medium::Memory, true));
        for step in 1..=30 {
            let now_us = u64::try_from(step).expect("few") * PARTIAL_US;
            // Just enough within the time; the last bytes of a time are seen with the next.
            sessions.note_outside(now_us, moves, held(step * (32 << 10), 0, true));
            sessions.note_outside(now_us, drips, held(step, 0, true));
            let overdue: Vec<_> = sessions.overdue(now_us + PARTIAL_US).collect();
            match step {
                1 => assert_eq!(overdue.len(), 0),
                _ => assert_eq!(overdue.iter().map(|it| it.0).collect::<Vec<_>>(), [drips]),
            }
        }
    }

    #[test]
    fn a_peer_behind_a_driver_is_checked_and_an_embedded_caller_is_not() {
        let mut sessions = sessions();
        let embedded = sessions.open(0, Medium::Memory, false);
        let translated = sessions.open(0, Medium::Memory, true);
        for id in [embedded, translated] {
            sessions.note_outside(1, id, held(0, 700, false));
        }
        let mut probes = Vec::new();
        sessions.check_peers(2, true, &mut probes);
        assert_eq!(probes, [translated]);
    }
}
