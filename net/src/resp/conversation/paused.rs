//! CLIENT PAUSE: a command that is held waits in the socket, and so does all behind it.

use super::super::blocked_pop::BlockedPop;
use super::super::host::Host;
use super::super::parser::Arguments;
use super::super::pause::Pause;
use super::super::paused_commands::{holds, is_queued_write, read_pause};
use super::super::rights;
use super::super::table::{Command, Name};
use super::super::words::wrong_arity;
use super::{Conversation, Passed, Talk};

const NO_PAUSE: &[u8] = b"ERR CLIENT PAUSE is not supported here";

impl Conversation {
    /// When a command that is held may be taken, by the clock of the host; `None`: none is held.
    #[must_use]
    pub fn held_until_us(&self) -> Option<u64> {
        let pauses = &self.talk.pauses;
        let pause = pauses.of_node.filter(|_| pauses.is_held)?;
        Some(pause.until_us)
    }
}

impl Talk {
    /// Commands are about to be taken.
    #[inline]
    pub(super) fn asks_for_pause(&mut self, host: &dyn Host) {
        self.pauses.of_node = host.pauses().and_then(|it| it.pause());
    }

    /// Tells the server whether a command is held or waits for keys, if that is new.
    #[inline]
    pub(super) fn reports_held(&mut self, host: &dyn Host) {
        let ticket = self.pop().and_then(BlockedPop::waits);
        let now = (self.pauses.is_held, ticket);
        if (self.client.is_held, self.client.ticket) != now {
            (self.client.is_held, self.client.ticket) = now;
            host.client_changed(&self.client);
        }
    }

    /// Whether a command that may run is held back. What has begun goes on.
    #[inline]
    pub(super) fn is_held_back(&mut self, command: &Command, args: Arguments<'_>) -> bool {
        let Some(pause) = self.pauses.of_node else {
            return false;
        };
        let has_begun = self.current_entry.is_some() || self.current.is_some_and(|it| it.1 > 1);
        self.pauses.is_held = !has_begun && self.holds(pause, command, args);
        self.pauses.is_held
    }

    #[cold]
    fn holds(&self, pause: Pause, command: &Command, args: Arguments<'_>) -> bool {
        let mut queued = self.queue.iter().flat_map(|queue| queue.kept());
        let is_write = command.id == Name::Exec && queued.any(|it| is_queued_write(it.view()));
        is_write || holds(pause, command, args)
    }

    /// CLIENT PAUSE and CLIENT UNPAUSE.
    #[cold]
    pub(super) fn client_pause(&mut self, args: Arguments<'_>, host: &dyn Host) -> Passed {
        let is_end = args.get(1).eq_ignore_ascii_case(b"unpause");
        if args.len() < 3 && !is_end || args.len() > 2 && is_end {
            let name = if is_end { "unpause" } else { "pause" };
            return self.refuse_only_with(|out| wrong_arity(&format!("client|{name}"), out));
        }
        if let Some(rights) = &self.rights
            && let Some(text) = rights::refusal(Name::Client, args, rights)
        {
            return self.refuse_only(&text);
        }
        let Some(pauses) = host.pauses() else {
            return self.refuse_only(NO_PAUSE);
        };
        if is_end {
            pauses.end();
        } else {
            match read_pause(args, host.elapsed_us()) {
                Ok(pause) => pauses.begin(pause),
                Err(text) => return self.refuse_only(text),
            }
        }
        self.asks_for_pause(host);
        self.ok();
        Passed::Whole
    }
}

/// Whether a CLIENT is about pauses.
pub(super) fn is_of_pauses(args: Arguments<'_>) -> bool {
    args.len() > 1 && {
        let is = |name: &[u8]| args.get(1).eq_ignore_ascii_case(name);
        is(b"pause") || is(b"unpause")
    }
}
