//! The clock of each node. Nodes that decide by themselves have clocks of different rates; all
//! others have one that is right.

use penstock_shard::replication::planted::{Bug, is_planted};

use crate::random::Random;

use super::NODES;

/// The fastest clock gains at most a quarter on the slowest one, as `shard/FAILOVER.md` asks for:
/// rates of both, in percent.
const RATES: &[(u64, u64)] = &[(80, 100), (84, 105), (90, 112), (96, 120), (100, 100)];

/// CLOCK_BOOTTIME of a machine: it goes on while the machine is suspended, and never steps.
#[derive(Clone, Debug)]
pub(super) struct NodeClock {
    /// Of it in a hundred true microseconds.
    rate: u64,
    offset_us: u64,
    /// How far the wall clock has stepped. Only a planted bug goes by it.
    stepped_us: i64,
    /// For how long the machine was suspended, and since when it is. Only a planted bug goes by it.
    suspended_us: u64,
    suspended_since_us: Option<u64>,
}

impl NodeClock {
    /// One that shows the time of the world.
    pub(super) const TRUE: NodeClock = NodeClock {
        rate: 100,
        offset_us: 0,
        stepped_us: 0,
        suspended_us: 0,
        suspended_since_us: None,
    };

    /// One for each node.
    pub(super) fn of_nodes(random: &mut Random) -> [NodeClock; NODES] {
        let (slowest, fastest) = random.pick(RATES);
        [(); NODES].map(|()| NodeClock {
            rate: match random.below(3) {
                0 => slowest,
                1 => fastest,
                _ => random.within(slowest, fastest),
            },
            offset_us: random.within(1_000_000_000, 2_000_000_000),
            ..NodeClock::TRUE
        })
    }

    /// Whether it shows the time of the world.
    pub(super) fn is_true(&self) -> bool {
        (self.rate, self.offset_us, self.stepped_us) == (100, 0, 0)
    }

    /// So much of this clock passes in true time.
    pub(super) fn of_true_us(&self, true_us: u64) -> u64 {
        true_us * self.rate / 100
    }

    /// In so much true time, or a little more, so much of this clock passes. An age that nobody
    /// knows is `u64::MAX`: its true time is centuries, so it lies before all that happened.
    pub(super) fn in_true_us(&self, us: u64) -> u64 {
        us.saturating_mul(100).div_ceil(self.rate)
    }

    /// What it shows at a true time.
    pub(super) fn read(&self, true_us: u64) -> u64 {
        let awake_us = match is_planted(Bug::LeaseOutlivesSuspension) {
            true => true_us - self.suspended_us,
            false => true_us,
        };
        let shown_us = self.offset_us + self.of_true_us(awake_us);
        match is_planted(Bug::LeaseOnWallClock) {
            true => shown_us.saturating_add_signed(self.stepped_us),
            false => shown_us,
        }
    }

    /// The wall clock steps.
    pub(super) fn step(&mut self, us: i64) {
        self.stepped_us += us;
    }

    /// The machine is suspended from now on.
    pub(super) fn suspend(&mut self, true_us: u64) {
        self.suspended_since_us = Some(true_us);
    }

    /// The machine wakes up, if it was suspended.
    pub(super) fn wake(&mut self, true_us: u64) {
        if let Some(since_us) = self.suspended_since_us.take() {
            self.suspended_us += true_us - since_us;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_clock_gains_more_than_a_quarter_on_another_and_times_come_back() {
        for seed in 0..200 {
            let clocks = NodeClock::of_nodes(&mut Random::new(seed, 1));
            let hour_us = 3_600_000_000;
            let passed = clocks.clone().map(|it| it.read(hour_us) - it.read(0));
            let (least, most) = (passed.iter().min(), passed.iter().max());
            assert!(4 * most.unwrap() <= 5 * least.unwrap(), "{passed:?}");
            for clock in clocks {
                let century_us = 100 * 365 * 24 * hour_us;
                assert!(clock.in_true_us(u64::MAX) > century_us);
                for us in [0, 1, 7, 1_600_000] {
                    let true_us = clock.in_true_us(us);
                    assert!(clock.of_true_us(true_us) >= us, "{clock:?}");
                    assert!(true_us == 0 || clock.of_true_us(true_us - 1) < us.max(1) + 1);
                }
            }
        }
    }

    #[test]
    fn a_clock_goes_on_while_its_machine_is_suspended_and_never_steps() {
        let mut clock = NodeClock::TRUE;
        clock.suspend(1_000);
        clock.step(-500);
        clock.wake(5_000);
        assert_eq!(clock.read(6_000), 6_000);
    }
}
