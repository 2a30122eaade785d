//! The memory that all connections of a shard share: how much of it is held, and how much of what
//! is left one connection may have. Pure decisions over a few counts.

use penstock_net::refusal::Refusal;

/// A connection may have sent so many bytes that are not run without being counted: what it costs
/// for being there has as much in any case.
const INPUT_BYTES_FREE: usize = 1 << 10;

/// An answer of so many bytes is given although replies have taken all the room that they may take.
pub(crate) const SMALL_ANSWER_BYTES: usize = 4 << 10;

/// The part of the room that is left that one connection may hold.
const SHARE_DIVISOR: usize = 16;

/// Bytes that are kept free for the answer of another shard, at least. An answer that fits what is
/// kept needs no other leave.
pub(crate) const AWAITED_BYTES: usize = 512;

/// The bounds of what connections may hold, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClientBounds {
    /// Replies of all connections.
    pub(crate) replies: usize,
    /// Replies of one connection.
    pub(crate) replies_of_one: usize,
    /// Bytes that all connections have sent and that are not run.
    pub(crate) input: usize,
    /// The longest value and its reply's head.
    pub(crate) longest_answer: usize,
}

/// Bytes that are held for clients.
///
/// What must hold: each count is the sum over the open connections.
#[derive(Debug)]
pub(crate) struct ClientMemory {
    max: ClientBounds,
    /// Bytes of replies: waiting, being sent, expected from reads, or kept free for answers of
    /// other shards.
    replies_bytes: usize,
    /// Bytes of `replies_bytes` that are kept free for answers of other shards.
    awaited_bytes: usize,
    /// Bytes of `replies_bytes` that requests keep until they are answered. No peer can take them.
    kept_bytes: usize,
    /// Bytes that connections have sent and that are not run.
    input_bytes: usize,
}

impl ClientMemory {
    pub(super) fn new(max: ClientBounds) -> Self {
        ClientMemory {
            max,
            replies_bytes: 0,
            awaited_bytes: 0,
            kept_bytes: 0,
            input_bytes: 0,
        }
    }

    #[inline]
    pub(super) fn takes_reply(&mut self, bytes: usize) {
        self.replies_bytes += bytes;
    }

    #[inline]
    pub(super) fn gives_reply(&mut self, bytes: usize) {
        self.replies_bytes -= bytes;
    }

    pub(super) fn takes_awaited(&mut self, bytes: usize) {
        self.awaited_bytes += bytes;
        self.replies_bytes += bytes;
    }

    pub(super) fn gives_awaited(&mut self, bytes: usize) {
        self.awaited_bytes -= bytes;
        self.replies_bytes -= bytes;
    }

    pub(super) fn takes_kept(&mut self, bytes: usize) {
        self.kept_bytes += bytes;
        self.replies_bytes += bytes;
    }

    pub(super) fn gives_kept(&mut self, bytes: usize) {
        self.kept_bytes -= bytes;
        self.replies_bytes -= bytes;
    }

    /// The share of a connection in the input is `now` instead of `before`.
    #[inline]
    pub(super) fn changes_input(&mut self, before: usize, now: usize) {
        self.input_bytes = self.input_bytes - before + now;
    }

    /// What a connection counts of `bytes` that are not run.
    #[inline]
    pub(super) fn counted_input(bytes: usize) -> usize {
        match bytes > INPUT_BYTES_FREE {
            true => bytes,
            false => 0,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        (self.replies_bytes, self.awaited_bytes, self.kept_bytes) == (0, 0, 0)
    }

    /// Why no more of a frame is taken in, if so. The connection has sent `bytes` that are not run,
    /// and `counted` of them are counted. One connection may hold no more than is left for all, so
    /// that a few connections that never end their frames leave room for others.
    #[inline]
    pub(super) fn refusal_of_input(&self, counted: usize, bytes: usize) -> Option<Refusal> {
        if bytes <= INPUT_BYTES_FREE {
            return None;
        }
        let held = self.input_bytes - counted + bytes;
        let max = self.max.input;
        (bytes > max.saturating_sub(held)).then_some(Refusal::InputBytes { held, max })
    }

    /// Bytes that are left for replies. Without any, only answers of [`SMALL_ANSWER_BYTES`] are
    /// given.
    #[inline]
    pub(super) fn room_for_replies(&self) -> usize {
        self.max.replies.saturating_sub(self.replies_bytes)
    }

    /// Whether a long answer may be given. What requests keep leaves when they are answered, so a
    /// share of the room is always there for that: else requests that keep all the room wait for
    /// each other.
    #[inline]
    pub(super) fn has_room_for_long_answers(&self) -> bool {
        self.room_for_replies() > 0 || self.answers_have_their_share(self.kept_bytes)
    }

    /// Whether replies beside `others` bytes take less than the share that is always theirs.
    fn answers_have_their_share(&self, others: usize) -> bool {
        self.replies_bytes - others < self.max.replies / SHARE_DIVISOR
    }

    /// Whether a connection that holds so many bytes may ask for more. One may hold a share of what
    /// is left for all, so that many that do not read leave room for others. A connection that
    /// holds nothing may always ask for little.
    #[inline]
    pub(super) fn has_room_for_more(&self, held_bytes: usize) -> bool {
        let room = self.room_for_replies();
        let little = room.min(SMALL_ANSWER_BYTES);
        let share = (room / SHARE_DIVISOR).max(little);
        held_bytes <= share.min(self.max.replies_of_one)
    }

    /// Bytes to keep free for an answer of another shard, which is `expected` to be so long if such
    /// an answer has come before. Without room only a short one comes at once.
    pub(super) fn kept_for_answer(&self, expected: Option<usize>, is_read: bool) -> usize {
        if !is_read || self.room_for_replies() == 0 {
            return AWAITED_BYTES;
        }
        let longest = self.max.longest_answer;
        let first = || longest.min(self.max.replies / SHARE_DIVISOR);
        expected.unwrap_or_else(first).max(AWAITED_BYTES)
    }

    /// Whether connections have room for what other shards are told that they may answer. What is
    /// kept for answers does not count: it waits for just that.
    pub(super) fn may_report_taken(&self) -> bool {
        self.replies_bytes - self.awaited_bytes < self.max.replies
            || self.answers_have_their_share(self.awaited_bytes + self.kept_bytes)
    }
}
