//! CLIENT REPLY: commands whose replies are dropped. They are executed as any other.
//!
//! What is dropped is what a call adds to the replies behind a place. So the ring is empty when the
//! mode changes, and a command that is skipped is answered before the next one is taken.

use super::super::parser::Arguments;
use super::super::reply_mode::ReplyMode;
use super::{Passed, Talk};

impl Talk {
    /// Replies are about to be made.
    pub(super) fn begins_replies(&mut self) {
        let at = self.out.len();
        if let ReplyMode::None(from) | ReplyMode::Skips(from) = &mut self.options.replies {
            *from = at;
        }
    }

    /// Drops what nobody wants of the replies that were made. `false` while the reply of a command
    /// that is skipped is missing.
    pub(super) fn drops_replies(&mut self) -> bool {
        match self.options.replies {
            ReplyMode::All | ReplyMode::AllButNext => true,
            ReplyMode::None(from) => {
                self.out.truncate(from);
                true
            }
            ReplyMode::Skips(from) => {
                self.out.truncate(from);
                let is_whole = self.current.is_none();
                let is_answered = is_whole && self.ring.is_empty();
                if is_answered {
                    self.options.replies = ReplyMode::All;
                }
                is_answered || !is_whole
            }
        }
    }

    /// A command is about to run.
    pub(super) fn begins_command(&mut self) {
        if self.options.replies == ReplyMode::AllButNext {
            self.options.replies = ReplyMode::Skips(self.out.len());
        }
    }

    /// Whether replies are missing that are to be dropped.
    pub(super) fn awaits_silence(&self) -> bool {
        self.options.replies != ReplyMode::All && !self.ring.is_empty()
    }

    /// CLIENT REPLY with one argument.
    pub(super) fn client_reply(&mut self, args: Arguments<'_>) -> Passed {
        let is = |name: &[u8]| args.get(2).eq_ignore_ascii_case(name);
        let is_known = is(b"on") || is(b"off") || is(b"skip");
        if !is_known {
            return self.refuse_only(b"ERR syntax error");
        }
        if !self.ring.is_empty() {
            return Passed::Waits;
        }
        self.drops_replies();
        let is_none = matches!(self.options.replies, ReplyMode::None(_));
        match () {
            () if is(b"on") => {
                self.options.replies = ReplyMode::All;
                self.ok();
            }
            () if is(b"off") => self.options.replies = ReplyMode::None(self.out.len()),
            () if is_none => {}
            () => self.options.replies = ReplyMode::AllButNext,
        }
        Passed::Whole
    }
}
