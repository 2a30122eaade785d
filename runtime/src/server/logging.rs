//! The log: one event a line, with time, level, message and named fields, as text or JSON.
//!
//! Events are those of `tracing`: a program that embeds the store gets them through its own
//! subscriber. Here is the server's. A thread of its own writes the lines (`line_queue.rs`): no
//! shard stops while nobody reads a full pipe. Lines that find no room are counted, and the next
//! one that does is preceded by their number. A panic and the end of the process wait until what is
//! queued is written, for a while. A kill takes along what is queued.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::borrow::Cow;
use std::fmt;
use std::io::{self, Write};
use std::panic::PanicHookInfo;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use tracing::level_filters::LevelFilter;
use tracing::{error, info};
use tracing_subscriber::fmt::MakeWriter;

pub use super::destination::LogFileError;

use super::destination::Destination;
use crate::config::{Config, LogFormat, LogLevel};
use crate::system::line_queue::{LineQueue, LineWriter};
use crate::system::lines;

/// Where the events of this process go; clones are the same. What is queued is written when the
/// last one is dropped.
#[derive(Clone)]
pub struct Logging {
    destination: Arc<Destination>,
    queue: LineQueue,
    _writer: Arc<LineWriter>,
}

impl Logging {
    /// Logs the events of this process, panics included, as `config` says. A subscriber that the
    /// process has already stays, and gets them instead.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn install(config: &Config) -> Result<Logging, LogFileError> {
        let path = config.log_file.as_deref();
        let destination = Arc::new(Destination::open(path)?);
        let (queue, writer) = LineQueue::start("penstock-log", Arc::clone(&destination))
            .map_err(LogFileError::no_thread)?;
        let events = Events {
            queue: queue.clone(),
            format: config.log_format,
        };
        let lines = tracing_subscriber::fmt()
            .with_max_level(match config.log_level {
                LogLevel::Error => LevelFilter::ERROR,
                LogLevel::Warn => LevelFilter::WARN,
                LogLevel::Info => LevelFilter::INFO,
            })
            .with_ansi(false)
            .with_target(false)
            .with_writer(events);
        let installed = match config.log_format {
            LogFormat::Text => tracing::subscriber::set_global_default(lines.finish()),
            LogFormat::Json => {
                let lines = lines.json().flatten_event(true);
                let lines = lines.with_current_span(false).with_span_list(false);
                tracing::subscriber::set_global_default(lines.finish())
            }
        };
        if installed.is_ok() {
            let queue = queue.clone();
            std::panic::set_hook(Box::new(move |panic| {
                log_panic(panic);
                // The process ends behind this.
                queue.flush();
            }));
        }
        Ok(Logging {
            destination,
            queue,
            _writer: Arc::new(writer),
        })
    }

    /// Whether events go to standard error.
    #[must_use]
    pub fn is_on_stderr(&self) -> bool {
        self.destination.is_on_stderr()
    }

    /// Tells why this process ends with the exit code `code`, in the log and on standard error.
    pub fn report_failure(&self, failure: &dyn fmt::Display, code: u8) {
        error!(exit_code = code, "{failure}");
        if !self.is_on_stderr() {
            lines::error(format_args!("penstock: {failure}"));
            lines::flush();
        }
    }

    /// Waits until what is queued is written, for a while.
    pub(super) fn flush(&self) {
        self.queue.flush();
        lines::flush();
    }

    /// The queue of the log.
    pub(super) fn queue(&self) -> &LineQueue {
        &self.queue
    }

    /// Opens the file of the log anew, if there is one, and returns its path: what was moved away
    /// gets no more lines.
    ///
    /// # Errors
    /// The file cannot be opened; the one of before stays.
    pub fn reopen(&self) -> Result<Option<&Path>, LogFileError> {
        self.destination.reopen(|path| {
            info!(path = %path.display(), "the log goes on in a file that is opened anew");
            self.queue.flush();
        })
    }
}

/// Takes events for the queue.
struct Events {
    queue: LineQueue,
    format: LogFormat,
}

impl<'a> MakeWriter<'a> for Events {
    type Writer = &'a Events;

    fn make_writer(&'a self) -> &'a Events {
        self
    }
}

/// Takes whole events.
impl Write for &Events {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        self.queue.push(|dropped| {
            let mut lines = match dropped {
                0 => Vec::new(),
                lines => dropped_line(self.format, SystemTime::now(), lines).into_bytes(),
            };
            lines.extend_from_slice(&one_line(event));
            lines
        });
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The event that so many lines were dropped before the next one.
fn dropped_line(format: LogFormat, time: SystemTime, lines: u64) -> String {
    let time = humantime::format_rfc3339_micros(time);
    let text = "lines before this one were dropped: nobody read the log, or too slowly";
    match format {
        LogFormat::Text => format!("{time}  WARN {lines} {text} dropped={lines}\n"),
        LogFormat::Json => format!(
            "{{\"timestamp\":\"{time}\",\"level\":\"WARN\",\"message\":\"{lines} {text}\",\
             \"dropped\":{lines}}}\n"
        ),
    }
}

/// The event with no line break but the last: what the system or a client has said must not look
/// like another event.
fn one_line(event: &[u8]) -> Cow<'_, [u8]> {
    let text = event.strip_suffix(b"\n").unwrap_or(event);
    if !text.iter().any(|byte| matches!(byte, b'\n' | b'\r')) {
        return Cow::Borrowed(event);
    }
    let mut line = Vec::with_capacity(event.len() + 16);
    for byte in text {
        match byte {
            b'\n' => line.extend_from_slice(b"\\n"),
            b'\r' => line.extend_from_slice(b"\\r"),
            other => line.push(*other),
        }
    }
    line.push(b'\n');
    Cow::Owned(line)
}

/// Logs a panic, before the process ends by it.
fn log_panic(panic: &PanicHookInfo<'_>) {
    let thread = std::thread::current();
    let thread = thread.name().unwrap_or("without a name");
    let at = panic.location().map(ToString::to_string);
    let at = at.as_deref().unwrap_or("an unknown place");
    let why = panic.payload_as_str().unwrap_or("no text");
    let backtrace = Backtrace::capture();
    match backtrace.status() {
        BacktraceStatus::Captured => {
            error!(thread, at, %backtrace, "thread {thread} panicked at {at}: {why}");
        }
        _ => error!(thread, at, "thread {thread} panicked at {at}: {why}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_stays_one_line_whatever_its_text() {
        assert_eq!(&*one_line(b"plain\n"), b"plain\n");
        assert_eq!(&*one_line(b"two\nlines\r\n"), b"two\\nlines\\r\n");
        assert_eq!(&*one_line(b"no end"), b"no end");
    }
}
