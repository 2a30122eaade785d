//! Chooses the way of a shard's durable writes and syncs: its ring, or threads beside the ring.
//!
//! The kernel ends a durable write of a ring, and carries out a sync, by a worker of its own. The
//! ring needs no thread of ours, so it is the better way on a quiet machine. Where other programs
//! want all CPUs, the kernel's worker waits behind them for a tick of the scheduler: 4 ms measured,
//! where 80 us are due. A thread that sleeps in `pwritev2` runs at once when the device is done.
//!
//! The decision is made while serving. A way counts by the median of its times, from the begin of a
//! write to the moment at which the shard's loop sees the end. A mean would count stalls, which
//! meet both ways. While that says that the ring is slow, the time is left out in which the shard's
//! thread has run: a loop that has work all the time looks for ends once in a turn, so each of its
//! writes lasts for a turn, by either way.
//!
//! A slow ring is followed by a trial of the threads, and the threads by a trial of the ring from
//! time to time. The ring has to be as fast then as the threads were at their best since the last
//! trial: at another time they may have been held up themselves.

/// Writes of the way in use that make one median.
const WINDOW_WRITES: usize = 16;
/// Writes of the other way on trial that make one median.
const TRIAL_WRITES: usize = 8;
/// Medians after which a trial of the threads is in vain. The scheduler moves other programs away
/// from the CPU of the shard only after the threads have been there for a while: 9 to 109 writes
/// measured.
const FLUSHER_MEDIANS_MAX: usize = 16;
/// A ring that takes less than this stays: a worker that waits for a tick of the scheduler takes
/// longer.
const SLOW_US_MIN: u64 = 1_000;
/// From a trial of the threads to the next one.
const FLUSHER_PAUSE_US: u64 = 1_000_000;
/// From a trial of the ring to the next one. The pause doubles with each trial in vain.
const RING_PAUSE_US_MIN: u64 = 1_000_000;
const RING_PAUSE_US_MAX: u64 = 64_000_000;

/// How a durable write is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Ring,
    Flusher,
}

/// A moment, by the clock and by how long the shard's thread has run until then, in microseconds.
/// The latter is 0 unless [`DurableWay::looks_closely`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Moment {
    pub(super) at_us: u64,
    pub(super) ran_us: u64,
}

impl Moment {
    /// How long the thread did not run since then.
    fn rested_us_since(self, begin: Moment) -> u64 {
        // The two clocks are looked at one after the other, and the second one not always.
        let ran_us = self.ran_us.saturating_sub(begin.ran_us);
        (self.at_us - begin.at_us).saturating_sub(ran_us)
    }
}

/// The medians of both ways at a change from one to the other, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) to: Way,
    pub(super) before_us: u64,
    pub(super) after_us: u64,
}

/// The way in use, and what is known of both.
#[derive(Debug)]
pub(super) struct DurableWay {
    home: Way,
    /// The other way is never tried.
    is_fixed: bool,
    /// By the clock alone the ring was slow at last.
    is_suspect: bool,
    /// Writes of the way in use since its last median.
    window: Times,
    /// The lowest median of the threads since the last trial.
    flusher_us_min: u64,
    trial: Option<Trial>,
    next_trial_us: u64,
    ring_pause_us: u64,
}

/// A trial of the way that is not in use.
#[derive(Clone, Copy, Debug)]
struct Trial {
    /// The median of the way in use.
    home_us: u64,
    begun: usize,
    ended: Times,
    medians_left: usize,
}

/// So many times.
#[derive(Clone, Copy, Debug, Default)]
struct Times {
    count: usize,
    us: [u64; WINDOW_WRITES],
}

impl Times {
    /// Takes in a time. If these are `count_max` times now it tells their median, and begins anew.
    fn add(&mut self, us: u64, count_max: usize) -> Option<u64> {
        self.us[self.count] = us;
        self.count += 1;
        if self.count < count_max {
            return None;
        }
        self.count = 0;
        let all = &mut self.us[..count_max];
        all.sort_unstable();
        Some(all[(count_max - 1) / 2])
    }
}

impl DurableWay {
    /// The ring first, and then whichever is better.
    pub(super) fn best() -> Self {
        DurableWay {
            is_fixed: false,
            ..DurableWay::always(Way::Ring)
        }
    }

    /// This one, whatever it takes.
    pub(super) fn always(home: Way) -> Self {
        DurableWay {
            home,
            is_fixed: true,
            is_suspect: false,
            window: Times::default(),
            flusher_us_min: u64::MAX,
            trial: None,
            next_trial_us: 0,
            ring_pause_us: RING_PAUSE_US_MIN,
        }
    }

    /// The way in use.
    pub(super) fn home(&self) -> Way {
        self.home
    }

    /// Whether the time of the shard's thread counts at present. To ask for it costs a system call.
    pub(super) fn looks_closely(&self) -> bool {
        self.is_suspect || self.trial.is_some()
    }

    /// The way of the write that begins now.
    pub(super) fn of_next(&mut self) -> Way {
        match &mut self.trial {
            Some(trial) if trial.begun < TRIAL_WRITES * self.home.other().medians_max() => {
                trial.begun += 1;
                self.home.other()
            }
            _ => self.home,
        }
    }

    /// A write of this way has ended. Tells whether the way in use changes.
    pub(super) fn ended(&mut self, now: Moment, way: Way, begun: Moment) -> Option<Change> {
        let (now_us, us) = (now.at_us, now.rested_us_since(begun));
        if way == self.home {
            if let Some(median_us) = self.window.add(us, WINDOW_WRITES) {
                self.look_at(now_us, median_us);
            }
            return None;
        }
        // A write that began before the last change may end behind it.
        let trial = self.trial.as_mut()?;
        let other_us = trial.ended.add(us, TRIAL_WRITES)?;
        trial.medians_left -= 1;
        let (home_us, is_last) = (trial.home_us, trial.medians_left == 0);
        if !is_last && !self.is_better(home_us, other_us) {
            return None;
        }
        self.trial = None;
        self.decide(now_us, home_us, other_us)
    }

    /// Begins a trial of the other way, if that is due by the median of the way in use.
    fn look_at(&mut self, now_us: u64, median_us: u64) {
        let home_us = match self.home {
            Way::Ring => median_us,
            Way::Flusher => {
                self.flusher_us_min = self.flusher_us_min.min(median_us);
                self.flusher_us_min
            }
        };
        let is_due = !self.is_fixed && self.trial.is_none() && now_us >= self.next_trial_us;
        let is_slow = self.home == Way::Ring && median_us >= SLOW_US_MIN;
        let is_certain = self.home == Way::Flusher || (is_slow && self.is_suspect);
        self.is_suspect = is_due && is_slow && !self.is_suspect;
        if is_due && is_certain {
            self.flusher_us_min = u64::MAX;
            self.trial = Some(Trial {
                home_us,
                begun: 0,
                ended: Times::default(),
                medians_left: self.home.other().medians_max(),
            });
        }
    }

    /// Whether the other way is to be taken. The ring has the advantage both times, so that equal
    /// ways do not alternate.
    fn is_better(&self, home_us: u64, other_us: u64) -> bool {
        match self.home {
            Way::Ring => other_us.saturating_mul(2) < home_us,
            Way::Flusher => other_us.saturating_mul(4) <= home_us.saturating_mul(5),
        }
    }

    fn decide(&mut self, now_us: u64, home_us: u64, other_us: u64) -> Option<Change> {
        let is_change = self.is_better(home_us, other_us);
        let pause_us = match (self.home, is_change) {
            (Way::Ring, false) => FLUSHER_PAUSE_US,
            (Way::Ring, true) => self.ring_pause_us,
            (Way::Flusher, true) => {
                self.ring_pause_us = RING_PAUSE_US_MIN;
                0
            }
            (Way::Flusher, false) => {
                self.ring_pause_us = (2 * self.ring_pause_us).min(RING_PAUSE_US_MAX);
                self.ring_pause_us
            }
        };
        self.next_trial_us = now_us.saturating_add(pause_us);
        if !is_change {
            return None;
        }
        self.home = self.home.other();
        self.window = Times::default();
        Some(Change {
            to: self.home,
            before_us: home_us,
            after_us: other_us,
        })
    }
}

impl Way {
    fn other(self) -> Way {
        match self {
            Way::Ring => Way::Flusher,
            Way::Flusher => Way::Ring,
        }
    }

    /// How many medians a trial of it has.
    fn medians_max(self) -> usize {
        match self {
            // Where it is the slow one each write of the trial is.
            Way::Ring => 1,
            Way::Flusher => FLUSHER_MEDIANS_MAX,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes one after the other, each as long as its way takes at that time; nothing runs
    /// meanwhile. Tells how many went each way, and the changes.
    fn serve(
        way: &mut DurableWay,
        now_us: &mut u64,
        until_us: u64,
        took_us: impl FnMut(Way) -> u64,
    ) -> ([usize; 2], Vec<Change>) {
        serve_beside(way, now_us, until_us, 0, took_us)
    }

    /// The same while the loop runs for so long in each write, or all the time.
    fn serve_beside(
        way: &mut DurableWay,
        now_us: &mut u64,
        until_us: u64,
        runs_us: u64,
        mut took_us: impl FnMut(Way) -> u64,
    ) -> ([usize; 2], Vec<Change>) {
        let (mut counts, mut changes) = ([0; 2], Vec::new());
        while *now_us < until_us {
            let of_this = way.of_next();
            counts[usize::from(of_this == Way::Flusher)] += 1;
            let us = took_us(of_this);
            let begun = at(*now_us);
            *now_us += us;
            let now = Moment {
                ran_us: if way.looks_closely() {
                    us.min(runs_us)
                } else {
                    0
                },
                ..at(*now_us)
            };
            changes.extend(way.ended(now, of_this, begun));
        }
        (counts, changes)
    }

    fn at(at_us: u64) -> Moment {
        Moment { at_us, ran_us: 0 }
    }

    #[test]
    fn a_ring_that_is_fast_enough_is_never_compared() {
        let (mut way, mut now_us) = (DurableWay::best(), 0);
        let took = |of| if of == Way::Ring { 999 } else { 1 };
        let (counts, changes) = serve(&mut way, &mut now_us, 10_000_000, took);
        assert_eq!((counts[1], changes.len()), (0, 0));
        assert!(!way.looks_closely());
    }

    #[test]
    fn a_loop_that_runs_while_its_writes_are_under_way_tries_no_threads() {
        // A turn of a loop that has work all the time, as long as a frame of that work takes.
        let turn_us = 1_400;
        let took = |of| if of == Way::Ring { turn_us } else { 1 };
        for (runs_us, is_tried) in [(turn_us, false), (401, false), (400, true), (0, true)] {
            let (mut way, mut now_us) = (DurableWay::best(), 0);
            let (counts, _) = serve_beside(&mut way, &mut now_us, 10_000_000, runs_us, took);
            assert_eq!(counts[1] > 0, is_tried, "{runs_us}");
        }
    }

    #[test]
    fn a_ring_that_a_busy_loop_does_not_wait_for_is_taken_back() {
        let (mut way, mut now_us) = (DurableWay::best(), 0);
        let beside_others = |of| if of == Way::Ring { 4_000 } else { 200 };
        serve(&mut way, &mut now_us, 900_000, beside_others);
        assert_eq!(way.home(), Way::Flusher);
        let saturated = |of| if of == Way::Ring { 1_000 } else { 400 };
        // The first trial still compares with what the threads took beside others.
        let until_us = now_us + 4_000_000;
        let (_, changes) = serve_beside(&mut way, &mut now_us, until_us, 600, saturated);
        assert_eq!((changes.len(), way.home()), (1, Way::Ring));
    }

    #[test]
    fn a_slow_ring_gives_way_to_a_flusher_that_is_twice_as_fast_and_to_no_other() {
        for (flusher_us, to) in [
            (1_999, Way::Flusher),
            (2_000, Way::Ring),
            (4_000, Way::Ring),
        ] {
            let (mut way, mut now_us) = (DurableWay::best(), 0);
            let took = |of| if of == Way::Ring { 4_000 } else { flusher_us };
            let (counts, changes) = serve(&mut way, &mut now_us, 1_000_000, took);
            assert_eq!(way.home(), to);
            match to {
                Way::Flusher => assert_eq!(counts[0], 2 * WINDOW_WRITES),
                Way::Ring => {
                    assert_eq!(
                        (counts[1], changes.len()),
                        (TRIAL_WRITES * FLUSHER_MEDIANS_MAX, 0),
                        "{flusher_us}"
                    );
                }
            }
        }
    }

    #[test]
    fn the_ring_is_tried_again_ever_more_rarely_and_taken_back_when_it_is_as_fast() {
        let (mut way, mut now_us) = (DurableWay::best(), 0);
        let busy = |of| if of == Way::Ring { 4_000 } else { 200 };
        let (counts, changes) = serve(&mut way, &mut now_us, 300_000_000, busy);
        assert_eq!(changes.len(), 1);
        // Trials 1, 2, 4, 8, 16, 32, 64, 64, 64 seconds after each other, within 300.
        assert_eq!(counts[0], 2 * WINDOW_WRITES + 9 * TRIAL_WRITES);
        let quiet = |of| if of == Way::Ring { 100 } else { 80 };
        let until_us = now_us + RING_PAUSE_US_MAX + 100_000;
        let (_, changes) = serve(&mut way, &mut now_us, until_us, quiet);
        let back = Change {
            to: Way::Ring,
            before_us: 80,
            after_us: 100,
        };
        assert_eq!(changes, [back]);
        // The next busy time finds the flusher at once, and the ring soon behind it.
        let until_us = now_us + 200_000;
        let (_, changes) = serve(&mut way, &mut now_us, until_us, busy);
        assert_eq!((changes.len(), way.home()), (1, Way::Flusher));
        let until_us = now_us + 1_100_000;
        let (_, changes) = serve(&mut way, &mut now_us, until_us, quiet);
        assert_eq!((changes.len(), way.home()), (1, Way::Ring));
    }

    #[test]
    fn threads_on_trial_get_time_to_warm_up() {
        let (mut way, mut now_us, mut number) = (DurableWay::best(), 0, 0);
        let (counts, changes) = serve(&mut way, &mut now_us, 1_500_000, |of| {
            number += usize::from(of == Way::Flusher);
            match number {
                1..110 => 6_000,
                _ if of == Way::Flusher => 150,
                _ => 8_000,
            }
        });
        assert_eq!((changes.len(), way.home()), (1, Way::Flusher));
        assert_eq!(counts[0], 2 * WINDOW_WRITES, "in the first trial");
    }

    #[test]
    fn a_stall_now_and_then_decides_nothing() {
        let stalling = |ring_us: u64, flusher_us: u64| {
            let mut number = 0;
            move |of| {
                number += 1;
                match (number % 10, of) {
                    (0, _) => 50_000,
                    (_, Way::Ring) => ring_us,
                    (_, Way::Flusher) => flusher_us,
                }
            }
        };
        let (mut way, mut now_us) = (DurableWay::best(), 0);
        let (counts, _) = serve(&mut way, &mut now_us, 100_000_000, stalling(100, 50));
        assert_eq!(
            counts[1], 0,
            "a ring that is fast but for stalls is not compared"
        );
        let until_us = now_us + 600_000_000;
        let (_, changes) = serve(&mut way, &mut now_us, until_us, stalling(4_000, 200));
        assert_eq!((changes.len(), way.home()), (1, Way::Flusher));
    }

    #[test]
    fn threads_that_are_held_up_for_a_while_are_not_left_for_a_ring_that_is_slow() {
        let (mut way, mut now_us, mut number) = (DurableWay::best(), 0, 0);
        // Forty of a hundred writes of the threads, in a row, are as slow as those of the ring.
        let (_, changes) = serve(&mut way, &mut now_us, 600_000_000, |of| {
            number += 1;
            match (number % 100, of) {
                (60.., _) | (_, Way::Ring) => 8_000,
                (_, Way::Flusher) => 200,
            }
        });
        assert_eq!((changes.len(), way.home()), (1, Way::Flusher));
    }

    #[test]
    fn a_way_that_was_demanded_stays_however_slow_it_is() {
        for home in [Way::Ring, Way::Flusher] {
            let (mut way, mut now_us) = (DurableWay::always(home), 0);
            let took = |of| if of == home { 20_000 } else { 1 };
            let (counts, changes) = serve(&mut way, &mut now_us, 100_000_000, took);
            assert_eq!((way.home(), changes.len()), (home, 0));
            assert_eq!(counts.iter().filter(|&&count| count > 0).count(), 1);
        }
    }

    #[test]
    fn what_ends_behind_a_change_or_a_trial_changes_nothing() {
        let (mut way, mut now_us) = (DurableWay::best(), 0);
        let busy = |of| if of == Way::Ring { 4_000 } else { 200 };
        serve(&mut way, &mut now_us, 900_000, busy);
        assert_eq!(way.home(), Way::Flusher);
        for _ in 0..100 {
            assert_eq!(way.ended(at(now_us + 1), Way::Ring, at(now_us)), None);
        }
        assert_eq!(way.home(), Way::Flusher);
    }
}
