//! Connections come, go, and end when their answers are void.

use penstock_net::frame::Medium;

use crate::event::Outbox;
use crate::front::Front;
use crate::mail::SessionId;
use crate::now::Now;

/// Why such connections end.
const ENDED: &str = "what it asked for may have run when the lease of this node was over: whether \
                     it was executed is unknown";

impl Front {
    /// Opens a connection of which nothing is known. At a shard with users it cannot log in.
    pub fn open_session(&mut self, now: Now) -> SessionId {
        self.sessions.open(now.us, Medium::Wire, true)
    }

    /// A caller of this process has come, whose frames stay in its memory: nobody looks at their
    /// checksums, and its batches are answered without.
    pub fn open_session_in_memory(&mut self, now: Now) -> SessionId {
        self.sessions.open(now.us, Medium::Memory, false)
    }

    /// Opens a connection whose bytes its driver translates to frames in memory. Its peer is judged
    /// as that of every connection, but for silence: it may say nothing for `idle_us_max`
    /// microseconds, or for ever if that is 0. What the driver holds comes as
    /// [`crate::Event::Outside`]. [`Front::greet`] follows if there are users.
    pub fn open_session_translated(&mut self, now: Now, idle_us_max: u64) -> SessionId {
        self.sessions
            .open_idle(now.us, Medium::Memory, true, idle_us_max)
    }

    /// Gives back what is kept empty for a connection.
    pub fn give_back(&mut self, session: SessionId) {
        self.sessions.give_back(session);
    }

    /// Whether a connection has said its last word and may be closed.
    #[must_use]
    pub fn is_finished(&self, id: SessionId) -> bool {
        self.sessions.is_finished(id)
    }

    /// Bytes that are left for replies of all connections.
    #[must_use]
    pub fn room_for_replies(&self) -> usize {
        self.sessions.room_for_replies()
    }

    /// Whether the bytes of a connection that were not consumed are to be kept until it is named in
    /// [`Outbox::resume`].
    #[must_use]
    pub fn is_paused(&self, id: SessionId) -> bool {
        self.sessions.is_paused(id)
    }

    /// Has the connections ended whose answers are void.
    pub(crate) fn close_voided<B>(&mut self, outbox: &mut Outbox<B>) {
        let voided = self.sessions.take_voided();
        outbox.close.extend(voided.map(|id| (id, ENDED)));
    }
}
