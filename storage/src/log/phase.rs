//! Whether a log takes records, is being closed, or is poisoned.

use crate::log::reports::Poisoned;

/// What a log still does. It only moves downwards.
pub(super) enum Phase {
    /// It takes records.
    Appending,
    /// A clean stop has begun: what was appended is written, and nothing more is appended.
    Closing,
    /// A write or sync has failed: nothing more is written.
    Poisoned(Poisoned),
}

impl Phase {
    /// Whether records may be appended.
    pub(super) fn takes_records(&self) -> bool {
        matches!(self, Phase::Appending)
    }

    /// Whether a clean stop has begun and nothing has failed.
    pub(super) fn is_closing(&self) -> bool {
        matches!(self, Phase::Closing)
    }

    /// Whether a write or sync has failed.
    pub(super) fn is_poisoned(&self) -> bool {
        matches!(self, Phase::Poisoned(_))
    }

    /// # Errors
    /// The failure that has poisoned the log.
    pub(super) fn check(&self) -> Result<(), Poisoned> {
        match self {
            Phase::Poisoned(poisoned) => Err(*poisoned),
            Phase::Appending | Phase::Closing => Ok(()),
        }
    }

    /// Begins a clean stop. A poisoned log stays poisoned.
    pub(super) fn close(&mut self) {
        if !self.is_poisoned() {
            *self = Phase::Closing;
        }
    }

    /// Ends the log after a failed write or sync.
    pub(super) fn poison(&mut self, poisoned: Poisoned) {
        *self = Phase::Poisoned(poisoned);
    }
}
