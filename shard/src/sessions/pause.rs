//! Whether the bytes of a connection are read, and for what the connection waits if they are not.

/// The pause of one connection. A connection that is paused stands in `Sessions::paused`.
#[derive(Debug, Default)]
pub(crate) struct Pause {
    /// The bytes are not read: they wait for room.
    is_on: bool,
    /// Since when the bytes of the connection wait to be read, in microseconds; the deadlines of
    /// their requests count from there. Outlives the pause until the bytes are read.
    since_us: Option<u64>,
    /// The time from which on the frame at the front of the bytes is answered DEADLINE; 0 for none.
    expires_us: u64,
    /// The answer to the next item is long: the connection waits until there is room for it.
    asks_for_much: bool,
}

impl Pause {
    /// Begins a pause, or goes on with the one that is; `true` if it has begun.
    pub(super) fn begin(&mut self, since_us: u64, expires_us: u64) -> bool {
        self.expires_us = expires_us;
        let begins = !self.is_on;
        if begins {
            (self.is_on, self.since_us) = (true, Some(since_us));
        }
        begins
    }

    /// The next item asks for a long answer, for which there is no room: a pause is to follow.
    pub(crate) fn wants_much(&mut self) {
        self.asks_for_much = true;
    }

    pub(super) fn end(&mut self) {
        (self.is_on, self.asks_for_much) = (false, false);
    }

    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.is_on
    }

    pub(super) fn waits_for_much(&self) -> bool {
        self.asks_for_much
    }

    pub(super) fn expires_us(&self) -> u64 {
        self.expires_us
    }

    /// When the bytes came that are read now, if they came before `now_us`.
    #[inline]
    pub(crate) fn take_since_us(&mut self, now_us: u64) -> u64 {
        self.since_us.take().unwrap_or(now_us)
    }
}
