//! The chore of tokens: which of them may be dropped is logged before it is done.

use penstock_storage::io::Blocks;
use penstock_storage::version::partition_of;

use crate::event::TokenHorizon;
use crate::execution::Execution;
use crate::execution::verbs::Cold;
use crate::execution::verbs::token::{Unlogged, horizon_of, log_horizon};
use crate::now::Now;
use crate::step::Step;

/// Horizons that are logged, or read, in one look, at most.
const STEPS_A_CHECK_MAX: usize = 16;

impl<P: Blocks> Execution<P> {
    /// Looks up horizons that are not known, and logs those that let tokens be dropped. Only the
    /// node that writes a partition does the latter.
    pub(crate) fn check_tokens(&mut self, step: &mut Step<'_, P::Block>) {
        if self.store.keys().tokens() == 0
            || self.phase.is_stopping()
            || !self.chores.tokens.begins_check(step.now.us)
        {
            return;
        }
        if self.store.data_mut().fit_token_horizon() {
            let usage = self.store.data().usage();
            step.outbox.token_horizon = Some(TokenHorizon {
                horizon_ms: self.store.token_horizon_ms(),
                configured_ms: self.setup.config().token_horizon_ms,
                bytes: usage.token_bytes,
                bytes_max: usage.token_bytes_max,
            });
        }
        let count = self.setup.partitions().len();
        let mut steps = 0;
        for _ in 0..count {
            let at = self.chores.tokens.next_of(count);
            steps += usize::from(self.check_horizon(step.now, self.setup.partitions()[at]));
            if steps == STEPS_A_CHECK_MAX {
                return;
            }
        }
    }

    /// Looks at the horizon of a partition. Whether that was more than a look.
    fn check_horizon(&mut self, now: Now, partition: usize) -> bool {
        let hash = self.setup.hash();
        if let Err(cold) = horizon_of(&mut self.store, hash, partition) {
            self.fetch_horizon(now, cold);
            return true;
        }
        let is_written_here = self
            .linked
            .as_ref()
            .is_none_or(|linked| linked.elsewhere(partition).is_none());
        let raised = self.store.data().raised_horizon(partition);
        let Some(raised) = raised.filter(|_| is_written_here) else {
            return false;
        };
        match log_horizon(&mut self.store, hash, now.us, partition, raised) {
            // Without room the next look tries again.
            Ok(()) | Err(Unlogged::NoRoom(_)) => {}
            Err(Unlogged::Cold(cold)) => self.fetch_horizon(now, cold),
        }
        true
    }

    /// A key of this slot was read. If it is the horizon of its partition, that is learned before
    /// it may leave the cache again: nobody has used it, so it leaves first.
    pub(crate) fn learn_horizon(&mut self, slot: u16) {
        let partition = partition_of(slot);
        if self.store.horizon(partition).is_none() && self.store.data().usage().tokens > 0 {
            // What is still on the disk alone is read when the chore looks.
            horizon_of(&mut self.store, self.setup.hash(), partition).ok();
        }
    }

    fn fetch_horizon(&mut self, now: Now, cold: Cold) {
        if !self.requests.parking.is_full() {
            self.requests.parking.fetch(cold);
            self.chores.tokens.check_soon(now.us);
        }
    }
}
