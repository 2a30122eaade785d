//! The two times of a log: when it was last used, and the newest time that its records carry.

/// When a log was last used, and the newest time that it carries.
#[derive(Default)]
pub(super) struct LogClock {
    active_us: u64,
    time_ms: u64,
}

impl LogClock {
    /// When something was last appended, completed or tried.
    pub(super) fn active_us(&self) -> u64 {
        self.active_us
    }

    /// The newest time that this run has stamped on a record, or carried.
    pub(super) fn time_ms(&self) -> u64 {
        self.time_ms
    }

    /// The log is in use now. Idleness begins anew.
    #[inline]
    pub(super) fn use_at(&mut self, now_us: u64) {
        self.active_us = now_us;
    }

    /// Raises the newest time. It never falls.
    #[inline]
    pub(super) fn raise(&mut self, time_ms: u64) {
        self.time_ms = self.time_ms.max(time_ms);
    }
}
