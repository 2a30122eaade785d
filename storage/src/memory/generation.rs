//! When the last change of a cell is durable, told by one byte of the cell.
//!
//! Changes of one turn share a generation, and of each generation that is not durable yet the last
//! log position is kept. A cell holds the number of its generation. Numbers come round again, so a
//! cell that nobody touched for long may be taken for one of a recent generation: then somebody
//! waits a little for what is durable already, and nothing is believed durable that is not.

use std::collections::VecDeque;

use crate::types::place::Lsn;

/// The generation of what is durable.
pub(crate) const DURABLE: u8 = 0;

/// Generations that are not durable, at most. When more are wanted, the newest takes in more turns.
const WINDOW_MAX: usize = 16;

/// The generations of the changes that may not be durable.
#[derive(Debug)]
pub(crate) struct Generations {
    /// The last log position of each, oldest first, but for the open one, ...
    ends: VecDeque<Lsn>,
    oldest: u8,
    /// ... which is the newest: zero if it has no change yet.
    open_end: Lsn,
    open: u8,
}

impl Generations {
    pub(crate) fn new() -> Self {
        Generations {
            ends: VecDeque::with_capacity(WINDOW_MAX),
            oldest: 1,
            open_end: Lsn::default(),
            open: 1,
        }
    }

    /// The generation of a change at `lsn`, the newest of the log.
    #[inline]
    pub(crate) fn of_change(&mut self, lsn: Lsn) -> u8 {
        self.open_end = lsn;
        self.open
    }

    /// Up to where the log must be durable before the changes of a generation are.
    #[inline]
    pub(crate) fn end(&self, generation: u8) -> Lsn {
        if generation == DURABLE {
            return Lsn::default();
        }
        if generation == self.open {
            return self.open_end;
        }
        let age = match generation.checked_sub(self.oldest) {
            Some(age) => age,
            None => generation.wrapping_sub(self.oldest).wrapping_sub(1),
        };
        self.ends.get(usize::from(age)).copied().unwrap_or_default()
    }

    /// Once in each turn: forgets what is durable, and begins a generation for the next turn.
    pub(crate) fn settle(&mut self, durable: Lsn) {
        while self.ends.front().is_some_and(|&end| end <= durable) {
            self.ends.pop_front();
            self.oldest = next(self.oldest);
        }
        if self.open_end > durable && self.ends.len() < WINDOW_MAX - 1 {
            self.ends.push_back(self.open_end);
            (self.open_end, self.open) = (Lsn::default(), next(self.open));
        }
    }
}

/// Numbers go from 1 to 255 and begin again.
fn next(generation: u8) -> u8 {
    generation.checked_add(1).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_change_is_believed_durable_before_it_is() {
        let mut generations = Generations::new();
        let mut changes = VecDeque::new();
        let (mut lsn, mut durable) = (0, 0);
        for turn in 0u64..5_000 {
            for _ in 0..turn % 3 {
                lsn += 1;
                changes.push_back((lsn, generations.of_change(Lsn(lsn))));
            }
            // At times the disk is slow, and the window fills.
            if turn % 100 > 60 || turn % 7 == 0 {
                durable = (durable + turn % 5).min(lsn);
            }
            generations.settle(Lsn(durable));
            assert!(generations.ends.len() < WINDOW_MAX);
            changes.retain(|&(lsn, _)| lsn > durable);
            for &(lsn, generation) in &changes {
                let end = generations.end(generation);
                assert!(end >= Lsn(lsn), "change {lsn} of turn {turn}");
                assert!(end <= Lsn(changes.back().unwrap().0));
            }
        }
        durable = lsn;
        generations.settle(Lsn(durable));
        for generation in 0..=u8::MAX {
            assert!(
                generations.end(generation) <= Lsn(durable),
                "all is durable"
            );
        }
    }
}
