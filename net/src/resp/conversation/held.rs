//! What a connection holds, and what its replies may take.

use super::super::bound::ReplyBound;
use super::super::shapes::Shapes;
use super::super::under_way::UnderWay;
use super::super::watch::Watched;
use super::multi::Queue;
use super::{Conversation, Talk};

/// Bytes of lists of commands that are not answered, which need not be told.
const LIST_BYTES_FREE: usize = 8 << 10;

impl Conversation {
    /// What replies may take from now on. Without this call the longest command is the bound of
    /// one.
    pub fn bound_replies(&mut self, bound: ReplyBound) {
        self.talk.bound = bound;
        self.talk.ring.has_room_for_replies(bound.left > 0);
    }

    /// Bytes of commands that came and have not run: those behind MULTI, the pattern of KEYS, and
    /// keys that are watched.
    #[must_use]
    pub fn queued_bytes(&self) -> usize {
        let Talk {
            queue,
            watched,
            under_way,
            ..
        } = &self.talk;
        let queued = queue.as_ref().map_or(0, Queue::bytes);
        let under_way = under_way.as_ref().map_or(0, UnderWay::work_bytes);
        queued + under_way + watched.iter().map(Watched::bytes).sum::<usize>()
    }

    /// Whether commands behind MULTI are kept.
    #[must_use]
    pub fn is_queueing(&self) -> bool {
        self.talk.queue.is_some()
    }

    /// Bytes that commands keep until they are answered: keys that KEYS has collected, and what is
    /// known of many commands. Names that it subscribes to have a share of their own.
    #[must_use]
    pub fn kept_bytes(&self) -> usize {
        let under_way = self.talk.under_way.as_ref();
        let found = under_way.map_or(0, UnderWay::found_bytes);
        let listed = self.talk.ring.list_bytes();
        found + if listed > LIST_BYTES_FREE { listed } else { 0 }
    }

    /// Has a command that waits for more keys give back those that it keeps: there is no room for
    /// more, and the room that it waits for may be its own. Its reply is BUSY. `false` if it keeps
    /// none.
    pub fn refuse_more_values(&mut self) -> bool {
        let under_way = self.talk.under_way.as_mut();
        under_way.is_some_and(UnderWay::refuse_more_values)
    }

    /// Bytes of memory that it has for what comes next.
    #[must_use]
    pub fn capacity(&self) -> usize {
        let Talk {
            ring, out, frames, ..
        } = &self.talk;
        let frames = frames.capacity() * size_of::<(u64, usize)>();
        self.parser.capacity() + ring.capacity() + out.capacity() + frames
    }

    /// Gives back the memory that it has for what comes next.
    pub fn give_back(&mut self) {
        let Conversation { parser, talk } = self;
        if talk.current.is_none() {
            parser.give_back();
        }
        talk.ring.give_back();
        talk.frames.shrink_to_fit();
        talk.out.shrink_to_fit();
        talk.shapes = Shapes::default();
    }
}
