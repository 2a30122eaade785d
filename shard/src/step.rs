//! One step of a shard.

use crate::event::Outbox;
use crate::now::Now;

/// The time of a step and its outbox: they travel together through all that the step calls.
pub(crate) struct Step<'a, B> {
    /// When the step is. It does not change before the step ends.
    pub(crate) now: Now,
    /// What the shard wants done after the step.
    pub(crate) outbox: &'a mut Outbox<B>,
}
