//! Finds the connections of a core that have come to rest.

use std::cell::Cell;
use std::rc::Rc;

use super::connection::{Connection, RESTS_AFTER_US};

/// Between two looks at some of the connections, at least.
const CHECK_EVERY_US: u64 = 20_000;

/// How far the connections of a core were looked at. All of them are within the time after which a
/// connection rests; each look takes the part that is due.
#[derive(Debug, Default)]
pub(super) struct Rests {
    checked_us: Cell<u64>,
    next: Cell<usize>,
}

impl Rests {
    /// A turn has ended. Some of the connections rest from now on, if they are quiet.
    pub(super) fn turn_ended(&self, now_us: u64, all: &[Option<Rc<Connection>>]) {
        let since_us = now_us.saturating_sub(self.checked_us.get());
        if since_us < CHECK_EVERY_US || all.is_empty() {
            return;
        }
        self.checked_us.set(now_us);
        let places = part_of(all.len(), since_us);
        let begin = self.next.get() % all.len();
        self.next.set(begin + places);
        for place in begin..begin + places {
            if let Some(connection) = &all[place % all.len()] {
                connection.rest_if_quiet(now_us);
            }
        }
    }
}

/// How many of `all` are due after `since_us`.
fn part_of(all: usize, since_us: u64) -> usize {
    let since_us = usize::try_from(since_us.min(RESTS_AFTER_US)).expect("a second at most");
    let period_us = usize::try_from(RESTS_AFTER_US).expect("a second");
    (all * since_us).div_ceil(period_us)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_connections_are_checked_within_the_time_after_which_one_rests() {
        for all in [1, 7, 10_000] {
            for since_us in [CHECK_EVERY_US, 333_333, RESTS_AFTER_US, 20 * RESTS_AFTER_US] {
                let checks = usize::try_from(RESTS_AFTER_US.div_ceil(since_us)).expect("few");
                assert!(
                    part_of(all, since_us) * checks >= all,
                    "{all} each {since_us}"
                );
                assert!(part_of(all, since_us) <= all);
            }
        }
    }
}
