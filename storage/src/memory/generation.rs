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
    /// The last log position of each, oldest first; the last one is still open, and zero if it has
    /// no change yet.
    ends: VecDeque<Lsn>,
    oldest: u8,
}

impl Generations {
    pub(crate) fn new() -> Self {
        let mut ends = VecDeque::with_capacity(WINDOW_MAX);
        ends.push_back(Lsn::default());
        Generations { ends, oldest: 1 }
    }

    /// The generation of a change at `lsn`, the newest of the log.
    #[inline]
    pub(crate) fn of_change(&mut self, lsn: Lsn) -> u8 {
        *self.ends.back_mut().expect("one is open") = lsn;
        // Numbers go from 1 to 255 and begin again.
        let age = u8::try_from(self.ends.len() - 1).expect("few");
        match self.oldest.checked_add(age) {
            Some(newest) => newest,
            None => self.oldest.wrapping_add(age).wrapping_add(1),
        }
    }

    /// Up to where the log must be durable before the changes of a generation are.
    #[inline]
    pub(crate) fn end(&self, generation: u8) -> Lsn {
        if generation == DURABLE {
            return Lsn::default();
        }
        let age = match generation.checked_sub(self.oldest) {
            Some(age) => age,
            None => generation.wrapping_sub(self.oldest).wrapping_sub(1),
        };
        self.ends.get(usize::from(age)).copied().unwrap_or_default()
    }

    /// Once in each turn: forgets what is durable, and begins a generation for the next turn.
    pub(crate) fn settle(&mut self, durable: Lsn) {
        while self.ends.len() > 1 && self.ends[0] <= durable {
            self.ends.pop_front();
            self.oldest = self.oldest.checked_add(1).unwrap_or(1);
        }
        let is_used = self.ends.back().is_some_and(|&end| end > durable);
        if is_used && self.ends.len() < WINDOW_MAX {
            self.ends.push_back(Lsn::default());
        }
    }
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
            assert!(generations.ends.len() <= WINDOW_MAX);
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
