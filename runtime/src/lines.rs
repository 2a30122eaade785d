//! Lines for people, on standard output and standard error.
//!
//! That nobody reads them any more is no reason to stop: a server whose log reader is gone goes on, where
//! the standard library's own macros would end the thread.

use std::collections::VecDeque;
use std::fmt::Arguments;
use std::io::{self, Write};
use std::time::{Duration, Instant};

/// A line of what a server has to tell.
macro_rules! tell {
    ($($line:tt)*) => { $crate::lines::out(format_args!($($line)*)) };
}

/// A line for who looks after the server.
macro_rules! caution {
    ($($line:tt)*) => { $crate::lines::err(format_args!($($line)*)) };
}

pub(crate) use {caution, tell};

pub(crate) fn out(line: Arguments<'_>) {
    let _ = writeln!(io::stdout(), "{line}");
}

pub(crate) fn err(line: Arguments<'_>) {
    let _ = writeln!(io::stderr(), "penstock: {line}");
}

/// Between two lines that say the same.
const SAME_EVERY: Duration = Duration::from_secs(30);
/// Lines that are remembered.
const REMEMBERED_MAX: usize = 64;

/// Keeps what happens again and again from filling a log.
#[derive(Debug, Default)]
pub(crate) struct Lately {
    told: VecDeque<(String, Instant)>,
}

impl Lately {
    /// Whether this was not told lately; then it is told now.
    pub(crate) fn is_news(&mut self, text: &str, now: Instant) -> bool {
        self.told
            .retain(|(_, at)| now.saturating_duration_since(*at) < SAME_EVERY);
        if self.told.iter().any(|(told, _)| told == text) {
            return false;
        }
        if self.told.len() >= REMEMBERED_MAX {
            self.told.pop_front();
        }
        self.told.push_back((text.into(), now));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_is_told_once_in_a_while_and_no_memory_grows_by_it() {
        let mut lately = Lately::default();
        let now = Instant::now();
        assert!(lately.is_news("one", now) && !lately.is_news("one", now));
        assert!(lately.is_news("two", now) && !lately.is_news("one", now));
        assert!(lately.is_news("one", now + SAME_EVERY));
        for number in 0..1000 {
            assert!(lately.is_news(&number.to_string(), now));
        }
        assert_eq!(lately.told.len(), REMEMBERED_MAX);
    }
}
