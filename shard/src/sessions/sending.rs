//! Replies of a connection that the network has, or may take.

use penstock_net::pieces::Pieces;

use super::Sent;
use super::output::Output;
use super::taking::Taking;

/// How far the replies of one connection are on their way out.
#[derive(Debug, Default)]
pub(crate) struct Sending {
    /// The connection is in `Outbox::sendable`, and its replies were not taken yet.
    is_announced: bool,
    /// When the network last took some of them.
    took_us: u64,
    /// Bytes that the network took of what is being sent.
    took_bytes: usize,
    /// How fast the peer acknowledges them.
    pub(super) taking: Taking,
    /// When the turn ended in which replies came to be sendable that were not taken yet.
    ready_us: Option<u64>,
    /// The same of what was taken and is being sent, and how many operations it answers.
    leaving: Option<(u64, u64)>,
    /// Bytes that were taken and are being sent.
    leaving_bytes: usize,
}

impl Sending {
    /// Notes that the connection is to be announced; `false` if it is.
    #[inline]
    pub(super) fn announce(&mut self) -> bool {
        !std::mem::replace(&mut self.is_announced, true)
    }

    /// The turn has ended in which replies came to be sendable.
    pub(super) fn mark_ready(&mut self, now_us: u64) {
        self.ready_us = self.ready_us.or(Some(now_us));
    }

    /// The announcement was followed: somebody takes what may leave.
    pub(super) fn is_asked(&mut self) {
        self.is_announced = false;
    }

    /// Moves what may be sent of `output` to `into`, which is empty.
    pub(super) fn take(&mut self, now_us: u64, output: &mut Output, into: &mut Pieces) {
        let operations = output.take(into);
        self.leaving_bytes += into.len();
        let ready_us = self.ready_us.take();
        if !into.is_empty() {
            self.took_us = now_us;
            self.took_bytes = 0;
            self.leaving = ready_us.map(|ready_us| (ready_us, operations));
        }
    }

    /// The network took so many bytes more of what was taken.
    pub(super) fn took(&mut self, now_us: u64, bytes: usize) {
        self.took_us = now_us;
        self.took_bytes += bytes;
        self.taking.gave(bytes);
    }

    /// All that was taken has been handed to the network: how many bytes, and what left.
    pub(super) fn sent(&mut self) -> (usize, Sent) {
        let sent_bytes = std::mem::take(&mut self.leaving_bytes);
        let took_bytes = std::mem::take(&mut self.took_bytes);
        self.taking.gave(sent_bytes - took_bytes);
        // The network took the last of it when it last took some.
        let left = self.leaving.take();
        let left = left.map(|(ready_us, operations)| (self.took_us, ready_us, operations));
        (sent_bytes, Sent { left })
    }

    pub(super) fn leaving_bytes(&self) -> usize {
        self.leaving_bytes
    }
}
