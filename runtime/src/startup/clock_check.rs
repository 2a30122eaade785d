//! Whether a start may take the time that the wall clock shows.
//!
//! The time of a store never runs back, so one start with a clock that is ahead makes tokens too
//! old and expiries past for a long time. No start can tell a clock ahead from a long downtime. So
//! a clock that is far ahead of the log is taken only if somebody vouches for it: the time service,
//! as the kernel tells, or the operator.

use std::fmt;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use penstock_storage::store::clock::REPORTED_BEHIND_MS;
use tracing::{info, warn};

use crate::system::kernel_clock::{ClockKeeping, clock_keeping};

/// How far a clock that nobody vouches for may be ahead of the log.
const AHEAD_MS_MAX: u64 = 24 * 3_600_000;
/// Years are written with four digits, which humantime wants.
const SHOWN_S_MAX: u64 = 253_402_300_799;

/// A clock that is too far ahead of the log to be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockAhead {
    /// The newest time in the logs, in unix milliseconds.
    pub log_ms: u64,
    /// What the clock shows.
    pub clock_ms: u64,
}

/// What a start makes of a clock that it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Taken {
    /// Nothing is to be said.
    Quietly,
    /// The clock is far ahead, and the time service, the operator, or nobody is against it.
    FarAhead(ClockAhead),
    /// The clock is behind the log: the time of the store is ahead of the clock from the start on.
    Behind(ClockAhead),
}

/// What a start does about the time of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Time {
    /// The start goes on.
    Taken,
    /// The start waits for the time service.
    Awaited,
}

/// The check of the wall clock at a start. A time service takes some seconds of a boot until the
/// kernel counts the clock as kept, so a clock that is to be refused is checked again for a while.
#[derive(Debug)]
pub(crate) struct ClockCheck {
    is_accepted: bool,
    wait: Duration,
    /// When the clock was to be refused first.
    since: Option<Instant>,
}

impl ClockCheck {
    /// A check that waits so long for the time service, unless the operator `is_accepted` any
    /// clock.
    pub(crate) fn new(is_accepted: bool, wait: Duration) -> ClockCheck {
        ClockCheck {
            is_accepted,
            wait,
            since: None,
        }
    }

    /// Takes the time of the machine's clock, or refuses it by the newest time of all logs. To be
    /// called when all shards are open and none has written, and again while the time is awaited.
    ///
    /// # Errors
    /// [`ClockAhead`] once the wait is over.
    pub(crate) fn take(&mut self, log_ms: u64) -> Result<Time, ClockAhead> {
        let times = ClockAhead::now(log_ms);
        match self.check(times, clock_keeping(), Instant::now())? {
            None => return Ok(Time::Awaited),
            Some(Taken::Quietly) => {}
            Some(taken @ Taken::FarAhead(_)) => info!("{taken}"),
            Some(taken @ Taken::Behind(_)) => warn!("{taken}"),
        }
        Ok(Time::Taken)
    }

    /// Checks the clock by its times of `now`. `None`: the check is to be repeated soon.
    ///
    /// # Errors
    /// [`ClockAhead`] once the wait is over.
    fn check(
        &mut self,
        times: ClockAhead,
        keeping: ClockKeeping,
        now: Instant,
    ) -> Result<Option<Taken>, ClockAhead> {
        let ahead = match judge(times, keeping, self.is_accepted) {
            Ok(taken) => return Ok(Some(taken)),
            Err(ahead) => ahead,
        };
        if self.since.is_none() && !self.wait.is_zero() {
            let (log, clock, wait_s) = (
                shown(times.log_ms),
                shown(times.clock_ms),
                self.wait.as_secs(),
            );
            warn!(
                wait_s,
                "the log ends at {log} and the clock shows {clock}, which no time service keeps: \
                 waiting up to {wait_s} s for the time service"
            );
        }
        let since = *self.since.get_or_insert(now);
        match now.saturating_duration_since(since) < self.wait {
            true => Ok(None),
            false => Err(ahead),
        }
    }
}

/// Judges the wall clock by the newest time of the logs; 0 is that of a directory without records.
///
/// # Errors
/// [`ClockAhead`] if nobody vouches for the clock: the kernel says that no time service keeps it,
/// and the operator has not said `is_accepted`.
fn judge(times: ClockAhead, keeping: ClockKeeping, is_accepted: bool) -> Result<Taken, ClockAhead> {
    let ClockAhead { log_ms, clock_ms } = times;
    let is_far = log_ms > 0 && clock_ms > log_ms.saturating_add(AHEAD_MS_MAX);
    match is_far {
        true if keeping == ClockKeeping::Unsynchronised && !is_accepted => Err(times),
        true => Ok(Taken::FarAhead(times)),
        false if log_ms > clock_ms.saturating_add(REPORTED_BEHIND_MS) => Ok(Taken::Behind(times)),
        false => Ok(Taken::Quietly),
    }
}

/// A time for people.
pub(crate) fn shown(unix_ms: u64) -> impl fmt::Display {
    let seconds = (unix_ms / 1_000).min(SHOWN_S_MAX);
    humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(seconds))
}

/// A span of time for people, in its largest unit that is more than one.
pub(crate) fn span(ms: u64) -> String {
    let seconds = ms / 1_000;
    let units = [(86_400, "days"), (3_600, "hours"), (60, "minutes")];
    let unit = units.iter().find(|(unit_s, _)| seconds >= 2 * unit_s);
    unit.map_or_else(
        || format!("{seconds} s"),
        |(unit_s, name)| format!("{} {name}", seconds / unit_s),
    )
}

impl ClockAhead {
    /// The same as the clock of this machine shows it now.
    pub(crate) fn now(log_ms: u64) -> ClockAhead {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let clock_ms = since.unwrap_or_default().as_millis();
        ClockAhead {
            log_ms,
            clock_ms: u64::try_from(clock_ms).unwrap_or(u64::MAX),
        }
    }
}

impl fmt::Display for ClockAhead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ClockAhead { log_ms, clock_ms } = *self;
        write!(
            f,
            "the log ends at {} and the clock of this machine shows {}, {} later; the kernel says \
             that no time service keeps the clock, and a time that is taken once is not given \
             back: set the clock or start the time service (timedatectl), or, if the clock is \
             right, start with --accept-time",
            shown(log_ms),
            shown(clock_ms),
            span(clock_ms.saturating_sub(log_ms))
        )
    }
}

impl fmt::Display for Taken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Taken::Quietly => Ok(()),
            Taken::FarAhead(ClockAhead { log_ms, clock_ms }) => write!(
                f,
                "the log ends at {} and the clock shows {}: {} have passed, by the clock",
                shown(*log_ms),
                shown(*clock_ms),
                span(clock_ms.saturating_sub(*log_ms))
            ),
            Taken::Behind(ClockAhead { log_ms, clock_ms }) => write!(
                f,
                "the log ends at {}, {} ahead of the clock of this machine, which shows {}: the \
                 time of the store does not run back, so expiries and tokens go by the time of \
                 the log until the clock has caught up",
                shown(*log_ms),
                span(log_ms.saturating_sub(*clock_ms)),
                shown(*clock_ms)
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY_MS: u64 = 24 * 3_600_000;
    const NOW_MS: u64 = 1_790_000_000_000;

    fn judged(ago_ms: i64, keeping: ClockKeeping, is_accepted: bool) -> Result<Taken, ClockAhead> {
        let times = ClockAhead {
            log_ms: NOW_MS.checked_add_signed(-ago_ms).unwrap(),
            clock_ms: NOW_MS,
        };
        judge(times, keeping, is_accepted)
    }

    #[test]
    fn a_clock_more_than_a_day_ahead_of_the_log_is_taken_only_if_somebody_vouches_for_it() {
        use ClockKeeping::{Synchronised, Unknown, Unsynchronised};
        let (day, more) = (DAY_MS as i64, DAY_MS as i64 + 1);
        for keeping in [Synchronised, Unsynchronised, Unknown] {
            for is_accepted in [false, true] {
                let is_refused = keeping == Unsynchronised && !is_accepted;
                assert_eq!(judged(day, keeping, is_accepted), Ok(Taken::Quietly));
                let taken = judged(more, keeping, is_accepted);
                assert_eq!(taken.is_err(), is_refused, "{keeping:?} {is_accepted}");
                assert!(taken.map_or(true, |it| matches!(it, Taken::FarAhead(_))));
                let years = judged(20 * 365 * day, keeping, is_accepted);
                assert_eq!(years.is_err(), is_refused);
            }
        }
    }

    #[test]
    fn a_clock_that_nobody_vouches_for_is_checked_again_until_the_wait_is_over() {
        use ClockKeeping::{Synchronised, Unsynchronised};
        let begun = Instant::now();
        let (wait, almost) = (Duration::from_secs(60), Duration::from_millis(59_999));
        let of = |log_ms| ClockAhead {
            log_ms,
            clock_ms: NOW_MS,
        };
        let ahead = of(NOW_MS - 2 * DAY_MS);
        let far = Ok(Some(Taken::FarAhead(ahead)));
        let waiting = || {
            let mut check = ClockCheck::new(false, wait);
            for passed in [Duration::ZERO, almost] {
                let checked = check.check(ahead, Unsynchronised, begun + passed);
                assert_eq!(checked, Ok(None), "{passed:?}");
            }
            check
        };
        let over = begun + wait;
        assert_eq!(waiting().check(ahead, Unsynchronised, over), Err(ahead));
        // The time service has come: the clock is right, or was set.
        assert_eq!(waiting().check(ahead, Synchronised, over), far);
        let set = waiting().check(of(NOW_MS - DAY_MS), Unsynchronised, over);
        assert_eq!(set, Ok(Some(Taken::Quietly)));
        let at_once = ClockCheck::new(false, Duration::ZERO).check(ahead, Unsynchronised, begun);
        assert_eq!(at_once, Err(ahead));
        let mut accepted = ClockCheck::new(true, wait);
        assert_eq!(accepted.check(ahead, Unsynchronised, begun), far);
    }

    #[test]
    fn a_directory_without_records_takes_any_clock_and_a_log_ahead_of_the_clock_is_reported() {
        let of_new = ClockAhead {
            log_ms: 0,
            clock_ms: NOW_MS,
        };
        let unvouched = ClockKeeping::Unsynchronised;
        assert_eq!(judge(of_new, unvouched, false), Ok(Taken::Quietly));
        let minute = REPORTED_BEHIND_MS as i64;
        assert_eq!(judged(-minute, unvouched, false), Ok(Taken::Quietly));
        let behind = judged(-minute - 1, unvouched, false);
        assert!(matches!(behind, Ok(Taken::Behind(_))), "{behind:?}");
    }

    #[test]
    fn what_is_reported_names_both_times_how_far_they_are_apart_and_the_flag() {
        let text = judged(3 * DAY_MS as i64, ClockKeeping::Unsynchronised, false);
        let text = text.expect_err("nobody vouches").to_string();
        let times = [
            "2026-09-18T14:13:20Z",
            "2026-09-21T14:13:20Z",
            "3 days later",
        ];
        for part in times.into_iter().chain(["--accept-time"]) {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert_eq!(span(90_000), "90 s");
        assert_eq!(span(8 * 3_600_000), "8 hours");
        assert_eq!(shown(u64::MAX).to_string(), "9999-12-31T23:59:59Z");
    }
}
