//! Whether a shard serves, stops or has ended, and whether what waits may try again.

use crate::event::Fatal;

/// Where a shard is in its life and in its turn.
#[derive(Debug, Default)]
pub(crate) struct Phase {
    is_stopping: bool,
    fatal: Option<Fatal>,
    /// Something ended since the last turn, so that what waits for room may try again.
    has_progress: bool,
    /// After the last turn values were not to grow.
    waits_for_memory: bool,
}

impl Phase {
    /// Whether a clean stop was asked for: no more requests are taken.
    #[inline]
    pub(crate) fn is_stopping(&self) -> bool {
        self.is_stopping
    }

    /// A clean stop is asked for. What waits for room is told that there will be none.
    pub(crate) fn stop(&mut self) {
        self.is_stopping = true;
        self.has_progress = true;
    }

    /// Why nothing is executed any more, if so.
    #[inline]
    pub(crate) fn fatal(&self) -> Option<Fatal> {
        self.fatal
    }

    /// Nothing is executed any more.
    pub(crate) fn end(&mut self, fatal: Fatal) {
        self.fatal = Some(fatal);
    }

    /// Something ended if `is_it`, so that what waits may try again.
    #[inline]
    pub(crate) fn note_progress(&mut self, is_it: bool) {
        self.has_progress |= is_it;
    }

    /// Whether something ended and what waits has not tried again.
    pub(crate) fn has_progress(&self) -> bool {
        self.has_progress
    }

    /// Whether what waits is to try again, now.
    #[inline]
    pub(crate) fn take_progress(&mut self) -> bool {
        std::mem::take(&mut self.has_progress)
    }

    /// Whether values must not grow. What waited for memory tries again when they may.
    pub(crate) fn note_memory(&mut self, is_short: bool) {
        self.has_progress |= self.waits_for_memory && !is_short;
        self.waits_for_memory = is_short;
    }
}
