//! Operations outside their frame that found no room in the log, in order. No other write may pass
//! them.

use std::collections::VecDeque;

use super::parking::Parked;

/// Operations that wait for room in the log.
#[derive(Debug, Default)]
pub(crate) struct Postponed {
    queue: VecDeque<Parked>,
}

impl Postponed {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    /// One that is younger than all that wait.
    pub(crate) fn push(&mut self, parked: Parked) {
        self.queue.push_back(parked);
    }

    /// The oldest one, which tries again.
    pub(crate) fn pop(&mut self) -> Option<Parked> {
        self.queue.pop_front()
    }

    /// One that is younger than the first `older` only: it is the next to try again behind them.
    pub(crate) fn insert(&mut self, older: usize, parked: Parked) {
        self.queue.insert(older, parked);
    }

    /// Takes out all that `is_it` says, in order.
    pub(crate) fn take_out(&mut self, is_it: impl Fn(&Parked) -> bool) -> Vec<Parked> {
        take_out(&mut self.queue, is_it)
    }
}

/// Takes out all that `is_it` says, in order.
pub(super) fn take_out(
    queue: &mut VecDeque<Parked>,
    is_it: impl Fn(&Parked) -> bool,
) -> Vec<Parked> {
    if !queue.iter().any(&is_it) {
        return Vec::new();
    }
    let (taken, left): (Vec<_>, Vec<_>) = queue.drain(..).partition(is_it);
    queue.extend(left);
    taken
}
