//! One connection as its shard sees it: its limits, and the answers that are still owed.

use std::collections::HashMap;

use penstock_net::frame::Medium;
use penstock_net::pieces::Pieces;
use penstock_net::receive::Receiver;

use crate::admission::Claim;

use super::access::Access;
use super::account::Account;
use super::output::Output;
use super::pause::Pause;
use super::peer::Peer;
use super::sending::Sending;
use super::{Arriving, Patience};

/// One connection.
#[derive(Debug)]
pub(crate) struct Session {
    pub(super) generation: u32,
    pub(super) is_open: bool,
    pub(crate) receiver: Receiver,
    pub(crate) peer: Peer,
    pub(crate) access: Access,
    /// No frame is read any more; the connection ends when its replies have left.
    pub(crate) is_ending: bool,
    /// Nothing of its output leaves any more.
    pub(super) is_void: bool,
    pub(crate) output: Output,
    /// Its replies wait for the disk: in `Sessions::gated`.
    pub(super) is_in_gated: bool,
    pub(super) sending: Sending,
    /// The request of the frame at the front of the receive buffer and how many of its items ran
    /// already, when the log had no room for the next.
    pub(crate) interrupted: Option<(u64, usize)>,
    pub(crate) pause: Pause,
    /// Its peer waits for something that others are to do.
    pub(super) awaits_others: bool,
    /// The frame that is not whole yet.
    pub(crate) arriving: Option<Arriving>,
    /// It may say nothing for so long, in microseconds; 0 is for ever.
    pub(super) idle_us_max: u64,
    pub(crate) last_received_us: u64,
    pub(super) account: Account,
    /// What admission knows of it.
    pub(crate) claim: Claim,
    /// By request, how many of its items were parked or sent to another shard and are not answered.
    owed: HashMap<u64, usize>,
}

impl Session {
    pub(crate) fn new(frame_bytes_max: u32) -> Self {
        Session {
            generation: 0,
            is_open: false,
            receiver: Receiver::new(frame_bytes_max),
            peer: Peer::new(Medium::Wire, true),
            access: Access::new(),
            is_ending: false,
            is_void: false,
            output: Output::default(),
            is_in_gated: false,
            sending: Sending::default(),
            interrupted: None,
            pause: Pause::default(),
            awaits_others: false,
            arriving: None,
            idle_us_max: 0,
            last_received_us: 0,
            account: Account::default(),
            claim: Claim::default(),
            owed: HashMap::new(),
        }
    }

    /// A connection comes to this place.
    pub(super) fn begin(&mut self, now_us: u64, medium: Medium, is_remote: bool) {
        self.is_open = true;
        self.peer = Peer::new(medium, is_remote);
        self.last_received_us = now_us;
        self.receiver.set_medium(medium);
    }

    /// Moves what may be sent to `into`, which is empty.
    pub(super) fn take_pieces(&mut self, now_us: u64, into: &mut Pieces) {
        self.sending.is_asked();
        if !self.is_void {
            self.sending.take(now_us, &mut self.output, into);
        }
    }

    /// A frame is not whole, of which `held_bytes` are there.
    pub(crate) fn partial_frame(&mut self, now_us: u64, held_bytes: usize) {
        match &mut self.arriving {
            Some(arriving) => arriving.holds(now_us, held_bytes),
            None => self.arriving = Some(Arriving::begin(now_us, held_bytes)),
        }
    }

    /// So many bytes of a frame that is not whole were passed over.
    pub(crate) fn passes_over(&mut self, now_us: u64, bytes: usize) {
        let arriving = self.arriving.get_or_insert(Arriving::begin(now_us, 0));
        arriving.passes(now_us, bytes);
    }

    /// The deadline that the session has broken, if any.
    pub(super) fn overdue(&self, now_us: u64, patience: &Patience) -> Option<&'static str> {
        let arriving = self.arriving.filter(|_| !self.pause.is_on());
        let is_partial =
            arriving.is_some_and(|it| it.slow_us(now_us) > patience.partial_frame_us_max);
        let waits_for_us = self.pause.is_on() || self.awaits_others || self.output.is_gated();
        let idle_us_max = self.idle_us_max;
        if is_partial {
            Some("too little of a frame came within partial_frame_timeout_ms")
        } else if self.access.is_late(now_us) {
            Some("it was not logged in in time")
        } else if idle_us_max > 0 && !waits_for_us && now_us > self.last_received_us + idle_us_max {
            Some("nothing was heard within idle_timeout_s")
        } else {
            None
        }
    }

    /// Gives back what it keeps empty.
    pub(super) fn give_back(&mut self) {
        self.output.give_back();
        self.owed.shrink_to_fit();
    }

    /// Notes that `items` more of a request are answered later.
    pub(crate) fn owe(&mut self, request_id: u64, items: usize) {
        if items > 0 {
            *self.owed.entry(request_id).or_default() += items;
        }
    }

    /// Notes that `items` of a request were answered now; returns whether more are to be.
    pub(crate) fn settle(&mut self, request_id: u64, items: usize) -> bool {
        if let Some(owed) = self.owed.get_mut(&request_id) {
            *owed -= items;
            if *owed > 0 {
                return true;
            }
            self.owed.remove(&request_id);
        }
        self.is_interrupted(request_id)
    }

    fn is_interrupted(&self, request_id: u64) -> bool {
        self.interrupted.is_some_and(|(id, _)| id == request_id)
    }

    /// Whether items of a request are still to be answered, or have not run yet.
    pub(crate) fn owes(&self, request_id: u64) -> bool {
        self.is_interrupted(request_id) || self.owed.contains_key(&request_id)
    }

    /// Whether a request that is not the one to be gone on with has this id and is not answered
    /// whole.
    pub(crate) fn is_under_way(&self, request_id: u64) -> bool {
        self.interrupted.is_none() && self.owes(request_id)
    }

    /// Bytes of answers that it makes the shard hold or keep free.
    pub(crate) fn held_bytes(&self) -> usize {
        self.unsent_bytes() + self.account.held_bytes()
    }

    /// Bytes of replies that are here.
    pub(crate) fn unsent_bytes(&self) -> usize {
        self.output.pieces.len() + self.sending.leaving_bytes()
    }

    /// Whether replies wait until the network takes them.
    pub(crate) fn waits_for_peer(&self) -> bool {
        self.sending.leaving_bytes() > 0
            || self.account.outside_bytes > 0
            || self.output.has_sendable()
    }

    /// Whether nothing waits to leave: what it holds is kept for answers that have not come.
    pub(crate) fn has_taken_all(&self) -> bool {
        self.unsent_bytes() == 0
    }

    /// Whether nothing is owed and nothing is left to send.
    pub(crate) fn is_settled(&self) -> bool {
        self.owed.is_empty() && self.output.pieces.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_settled_when_each_item_was_answered() {
        let mut session = Session::new(1024);
        session.owe(7, 2);
        session.owe(7, 1);
        session.owe(8, 1);
        assert!(session.settle(7, 2));
        assert!(!session.settle(8, 1));
        assert!(!session.settle(7, 1));
        assert!(session.is_settled());
    }
}
