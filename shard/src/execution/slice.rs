//! How much work of scripts and transactions one event may bring before others have their turn. A
//! pipeline of some kilobytes asks for as much as it likes: each of its scripts may take the whole
//! budget of one.

use penstock_net::script::Spent;

/// Steps of a slice, at most, and one script more: some half a millisecond.
const SLICE_STEPS: u64 = 50_000;
/// Steps of a script beside those that it takes itself.
const RUN_STEPS: u64 = 500;
/// Steps that are worth a microsecond of a script whose steps are dearer.
const STEPS_PER_US: u64 = 100;

/// What the scripts of one event have taken.
#[derive(Debug, Default)]
pub(crate) struct Slice {
    steps: u64,
}

impl Slice {
    /// Another event comes.
    #[inline]
    pub(crate) fn begin(&mut self) {
        self.steps = 0;
    }

    /// A script, or the commands of a transaction, whose item has so many bytes, has run.
    pub(crate) fn ran(&mut self, item_bytes: usize, spent: Spent) {
        let own = spent.steps.max(spent.us.saturating_mul(STEPS_PER_US));
        self.steps = self.steps.saturating_add(RUN_STEPS + item_bytes as u64);
        self.steps = self.steps.saturating_add(own);
    }

    /// Whether no other script is to run before others have had their turn.
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        self.steps >= SLICE_STEPS
    }
}
