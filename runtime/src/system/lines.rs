//! The banner: lines on standard output for the person who starts a server, and lines on standard
//! error beside the log. Events go to the log.
//!
//! A server whose banner nobody reads goes on: its lines wait in a queue, where the standard
//! library's own macro would end the thread, or stop it when a pipe is full.

use std::collections::VecDeque;
use std::fmt::Arguments;
use std::io::{self, Write};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use super::line_queue::{LineQueue, LineSink};

/// A line of what a server has to tell.
macro_rules! print_line {
    ($($line:tt)*) => { $crate::system::lines::out(format_args!($($line)*)) };
}

pub(crate) use print_line;

/// A standard stream of the process.
#[derive(Clone, Copy, Debug)]
enum Stream {
    Out,
    Error,
}

impl LineSink for Stream {
    fn take(&self, line: &[u8]) {
        let _ = match self {
            Stream::Out => io::stdout().write_all(line),
            Stream::Error => io::stderr().write_all(line),
        };
    }
}

impl Stream {
    /// The queue of the stream, which has begun; none if nothing was told yet.
    fn queue(self) -> &'static OnceLock<Option<LineQueue>> {
        static OUT: OnceLock<Option<LineQueue>> = OnceLock::new();
        static ERROR: OnceLock<Option<LineQueue>> = OnceLock::new();
        match self {
            Stream::Out => &OUT,
            Stream::Error => &ERROR,
        }
    }

    fn write_line(self, line: Arguments<'_>) {
        let line = format!("{line}\n").into_bytes();
        let queue = self.queue().get_or_init(|| {
            let (queue, writer) = LineQueue::start("penstock-lines", Arc::new(self)).ok()?;
            // It writes for as long as the process lives; `flush` waits for it.
            std::mem::forget(writer);
            Some(queue)
        });
        match queue {
            Some(queue) => queue.push(|_| line),
            None => self.take(&line),
        }
    }
}

/// A line on standard output. Never waits.
pub(crate) fn out(line: Arguments<'_>) {
    Stream::Out.write_line(line);
}

/// A line on standard error, for who does not read the log. Never waits.
pub(crate) fn error(line: Arguments<'_>) {
    Stream::Error.write_line(line);
}

/// Waits until those lines are written, for a while: the process is about to end.
pub(crate) fn flush() {
    let begun = [Stream::Out, Stream::Error].map(|stream| stream.queue().get());
    LineQueue::flush_all(begun.into_iter().flatten().flatten());
}

/// Between two lines that say the same.
const SAME_EVERY: Duration = Duration::from_secs(30);
/// Lines within that time. Whoever sends what is wrong in another way each time gets no more.
const LINES_MAX: usize = 64;

/// Keeps what happens again and again from filling a log.
#[derive(Debug, Default)]
pub(crate) struct Lately {
    reported: VecDeque<(String, Instant)>,
    /// Lines of news since the last one that was told.
    left_out: u64,
}

impl Lately {
    /// The line to be told, unless what it is about was told lately, or too much was.
    pub(crate) fn line(&mut self, about: &str, text: &str, now: Instant) -> Option<String> {
        self.reported
            .retain(|(_, at)| now.saturating_duration_since(*at) < SAME_EVERY);
        if self.reported.iter().any(|(reported, _)| reported == about) {
            return None;
        }
        if self.reported.len() == LINES_MAX {
            self.left_out += 1;
            return None;
        }
        self.reported.push_back((about.into(), now));
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
    fn the_same_is_reported_once_in_a_while_and_not_all_of_a_flood() {
        let mut lately = Lately::default();
        let now = Instant::now();
        let mut line = |about: &str, at| lately.line(about, "text", at);
        assert_eq!(line("one", now).as_deref(), Some("text"));
        assert_eq!(line("one", now), None);
        assert!(line("two", now).is_some() && line("one", now).is_none());
        let later = now + SAME_EVERY;
        assert!(line("one", later).is_some());
        let flood = (0..1000).filter_map(|number: u32| line(&number.to_string(), later));
        assert_eq!(flood.count(), LINES_MAX - 1);
        assert_eq!(
            line("one", later + SAME_EVERY).as_deref(),
            Some("text (937 lines before this one were left out)")
        );
    }
}
