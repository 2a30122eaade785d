//! Commands that pop, and wait until they can. What comes behind one waits in the socket.

use crate::rights::Need;

use super::super::blocked_pop::{BlockedPop, PopForm};
use super::super::host::Host;
use super::super::parser::Arguments;
use super::super::request::Request;
use super::super::rights::NO_KEY;
use super::super::sink::Sink;
use super::super::under_way::UnderWay;
use super::super::waiting::WAITED_KEYS_MAX;
use super::{Conversation, Passed, Talk};

/// What a connection waits for that takes no more commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitsFor {
    /// Answers, or that replies leave.
    Replies,
    /// The end of a pause, at this time by the clock of the host.
    PauseEnd(u64),
    /// Keys, until this time if one is named. Its peer may go meanwhile.
    Keys(Option<u64>),
}

impl Conversation {
    /// What the connection waits for, if it [is blocked](Conversation::is_blocked).
    #[must_use]
    pub fn waits_for(&self) -> WaitsFor {
        let pop = self.talk.pop().filter(|pop| pop.waits().is_some());
        let until_us = pop.and_then(BlockedPop::until_us);
        match (self.held_until_us(), pop) {
            (Some(held_us), _) => WaitsFor::PauseEnd(held_us.min(until_us.unwrap_or(u64::MAX))),
            (None, Some(_)) => WaitsFor::Keys(until_us),
            (None, None) => WaitsFor::Replies,
        }
    }

    /// The connection may try a key that it waits for.
    pub fn may_try(&mut self) {
        if let Some(pop) = pop_of(&mut self.talk.under_way) {
            pop.notify();
        }
    }

    /// CLIENT UNBLOCK has named the connection while it waited with this ticket.
    pub fn unblock(&mut self, ticket: u64, is_error: bool) {
        if let Some(pop) = pop_of(&mut self.talk.under_way) {
            pop.unblock(ticket, is_error);
        }
    }

    /// The peer is gone: nothing is tried for it any more.
    pub fn leaves(&mut self, host: &dyn Host) {
        if let Some(pop) = pop_of(&mut self.talk.under_way)
            && let Some(waiters) = host.waiters()
        {
            pop.end(waiters);
            self.talk.under_way = None;
        }
    }
}

impl Talk {
    pub(super) fn pop(&self) -> Option<&BlockedPop> {
        self.under_way.as_ref().and_then(UnderWay::pop)
    }

    /// A command that pops and may wait, of this form.
    pub(super) fn block(
        &mut self,
        form: PopForm,
        (request, args): (&Request<'_>, Arguments<'_>),
        sink: &mut Sink<'_>,
        host: &dyn Host,
    ) -> Passed {
        let Some(waiters) = host.waiters() else {
            return self.command_by_itself(request, args, sink, host);
        };
        if form.keys() > WAITED_KEYS_MAX {
            let text = format!(
                "ERR {} keys; a command waits for at most {WAITED_KEYS_MAX}",
                form.keys()
            );
            return self.refuse_only(text.as_bytes());
        }
        if let Some(rights) = &self.rights {
            let mut is_allowed = true;
            request.for_each_key(|key| is_allowed &= rights.allows(Need::READ_WRITE, key));
            if !is_allowed {
                return self.refuse_only(NO_KEY);
            }
        }
        if !self.is_idle(sink) {
            return Passed::Waits;
        }
        let joins_cores = host.joined_cores() > 1;
        let asks = (self.client.id, host.elapsed_us(), joins_cores);
        match BlockedPop::begin(form, args, asks, waiters) {
            Ok(pop) => self.begin_under_way(UnderWay::of_pop(pop, self.protocol)),
            Err(text) => return self.refuse_only(text.as_bytes()),
        }
        Passed::Whole
    }

    /// Has a command that waits go on if it may try a key or its time is over. A pause holds its
    /// tries back, and not its end.
    pub(super) fn pop_goes_on(&mut self, host: &dyn Host) {
        let pause = self.pauses.of_node;
        let Some(pop) = pop_of(&mut self.under_way) else {
            return;
        };
        let Some(waiters) = host.waiters() else {
            return;
        };
        let now_us = host.elapsed_us();
        let is_late = pop.until_us().is_some_and(|until_us| now_us >= until_us);
        if pause.is_some() && pop.is_notified() && !is_late && !pop.is_unblocked() {
            self.pauses.is_held = true;
            return;
        }
        pop.go_on(now_us, waiters);
        self.end_under_way();
    }

    /// Behind which replies a message leaves that comes now: one that waits for keys holds none
    /// back.
    pub(super) fn pushes_behind(&self) -> u64 {
        match self.pop().is_some() {
            true => self.ring.first_entry(),
            false => self.ring.next_entry(),
        }
    }
}

fn pop_of(under_way: &mut Option<UnderWay>) -> Option<&mut BlockedPop> {
    under_way.as_mut().and_then(UnderWay::pop_mut)
}
