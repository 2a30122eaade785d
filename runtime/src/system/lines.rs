//! The banner: lines on standard output for the person who starts a server. Events go to the log.
//!
//! A server whose banner nobody reads any more goes on, where the standard library's own macro
//! would end the thread.

use std::collections::VecDeque;
use std::fmt::Arguments;
use std::io::{self, Write};
use std::time::{Duration, Instant};

/// A line of what a server has to tell.
macro_rules! tell {
    ($($line:tt)*) => { $crate::system::lines::out(format_args!($($line)*)) };
}

pub(crate) use tell;

pub(crate) fn out(line: Arguments<'_>) {
    let _ = writeln!(io::stdout(), "{line}");
}

/// Between two lines that say the same.
const SAME_EVERY: Duration = Duration::from_secs(30);
/// Lines within that time. Whoever sends what is wrong in another way each time gets no more.
const LINES_MAX: usize = 64;

/// Keeps what happens again and again from filling a log.
#[derive(Debug, Default)]
pub(crate) struct Lately {
    told: VecDeque<(String, Instant)>,
    /// Lines of news since the last one that was told.
    left_out: u64,
}

impl Lately {
    /// The line to be told, unless what it is about was told lately, or too much was.
    pub(crate) fn line(&mut self, about: &str, text: &str, now: Instant) -> Option<String> {
        self.told
            .retain(|(_, at)| now.saturating_duration_since(*at) < SAME_EVERY);
        if self.told.iter().any(|(told, _)| told == about) {
            return None;
        }
        if self.told.len() == LINES_MAX {
            self.left_out += 1;
            return None;
        }
        self.told.push_back((about.into(), now));
        Some(match std::mem::take(&mut self.left_out) {
            0 => text.into(),
            lines => format!("{text} ({lines} lines before this one were left out)"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_is_told_once_in_a_while_and_not_all_of_a_flood() {
        let mut lately = Lately::default();
        let now = Instant::now();
        let mut told = |about: &str, at| lately.line(about, "text", at);
        assert_eq!(told("one", now).as_deref(), Some("text"));
        assert_eq!(told("one", now), None);
        assert!(told("two", now).is_some() && told("one", now).is_none());
        let later = now + SAME_EVERY;
        assert!(told("one", later).is_some());
        let flood = (0..1000).filter_map(|number: u32| told(&number.to_string(), later));
        assert_eq!(flood.count(), LINES_MAX - 1);
        assert_eq!(
            told("one", later + SAME_EVERY).as_deref(),
            Some("text (937 lines before this one were left out)")
        );
    }
}
