//! The time of the server, by which tokens are too old or ahead, as HELLO told it.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use crate::named::unix_ms;

/// A difference of clocks that is no more than this is left alone, in milliseconds: tokens have a
/// horizon of minutes at least, and then their times are those of this machine.
const APART_MS_MAX: u64 = 60_000;
/// A server's time follows its clock by this part of the time that passes.
const SLEW: u64 = 64;

/// How far the time of the server is from the clock of this machine.
#[derive(Debug, Default)]
pub(crate) struct ServerTime(Mutex<Option<Apart>>);

#[derive(Clone, Copy, Debug)]
struct Apart {
    /// The server is ahead, otherwise behind.
    is_ahead: bool,
    ms: u64,
    seen: Instant,
}

impl ServerTime {
    /// A server told its time; 0 if it does not.
    pub(crate) fn note(&self, server_ms: u64, now: Instant) {
        *self.lock() = Apart::of(server_ms, unix_ms(), now);
    }

    /// The time that a new token is to have, in unix milliseconds.
    pub(crate) fn now_ms(&self, now: Instant) -> u64 {
        let apart = *self.lock();
        apart.map_or_else(unix_ms, |apart| apart.corrected(unix_ms(), now))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Apart>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Apart {
    fn of(server_ms: u64, here_ms: u64, now: Instant) -> Option<Apart> {
        let ms = server_ms.abs_diff(here_ms);
        (server_ms > 0 && ms > APART_MS_MAX).then_some(Apart {
            is_ahead: server_ms > here_ms,
            ms,
            seen: now,
        })
    }

    /// The server drifts towards its clock, which most likely is right as the one here is: so the
    /// difference falls. If its clock is as wrong, tokens become that little too old or new.
    fn corrected(self, here_ms: u64, now: Instant) -> u64 {
        let passed_ms = now.saturating_duration_since(self.seen).as_millis();
        let passed_ms = u64::try_from(passed_ms).unwrap_or(u64::MAX);
        let ms = self.ms.saturating_sub(passed_ms / SLEW);
        match self.is_ahead {
            true => here_ms.saturating_add(ms),
            false => here_ms.saturating_sub(ms),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const HOUR_MS: u64 = 3_600_000;
    const HERE_MS: u64 = 1_800_000_000_000;

    #[test]
    fn a_token_has_the_time_of_a_server_that_is_ahead_or_behind_and_drifts_with_it() {
        let begin = Instant::now();
        for (server_ms, is_ahead) in [(HERE_MS + 8 * HOUR_MS, true), (HERE_MS - HOUR_MS, false)] {
            let apart = Apart::of(server_ms, HERE_MS, begin).expect("they are far apart");
            assert_eq!(apart.is_ahead, is_ahead);
            assert_eq!(apart.corrected(HERE_MS, begin), server_ms);
            let later = begin + Duration::from_millis(64_000);
            let drifted = if is_ahead {
                server_ms - 1_000
            } else {
                server_ms + 1_000
            };
            assert_eq!(apart.corrected(HERE_MS, later), drifted);
            let never_over = begin + Duration::from_secs(3_600 * 24 * 365);
            assert_eq!(apart.corrected(HERE_MS, never_over), HERE_MS);
        }
    }

    #[test]
    fn clocks_that_are_near_and_servers_that_do_not_say_leave_tokens_as_they_are() {
        let now = Instant::now();
        for server_ms in [0, HERE_MS, HERE_MS + APART_MS_MAX, HERE_MS - APART_MS_MAX] {
            assert!(Apart::of(server_ms, HERE_MS, now).is_none(), "{server_ms}");
        }
        let time = ServerTime::default();
        time.note(0, now);
        assert!(time.now_ms(now).abs_diff(unix_ms()) < 60_000);
    }
}
