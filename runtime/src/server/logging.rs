//! The log: one event a line, with time, level, message and named fields, as text or JSON.
//!
//! Events are those of `tracing`: a program that embeds the store gets them through its own
//! subscriber. Here is the server's. An event is on its way to the reader before the call that logs
//! it returns: a crash, an abort or a kill behind it takes no line along, which a writer on a
//! thread of its own could not promise. The price: a thread that logs stops while nobody reads a
//! full pipe. Paths of requests log nothing.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::borrow::Cow;
use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::panic::PanicHookInfo;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use tracing::level_filters::LevelFilter;
use tracing::{error, info};

use crate::config::{Config, LogFormat, LogLevel};

/// Where the events of this process go; clones are the same.
#[derive(Clone)]
pub struct Logging(Arc<Destination>);

/// The file of the log cannot be opened.
#[derive(Debug)]
pub struct LogFileError {
    path: PathBuf,
    error: io::Error,
}

impl LogFileError {
    pub(super) fn new(path: &Path, error: io::Error) -> LogFileError {
        LogFileError {
            path: path.to_path_buf(),
            error,
        }
    }
}

impl fmt::Display for LogFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "cannot append to the log file {}: {}; its directory must exist, and this user must \
             be allowed to write there",
            self.path.display(),
            self.error
        )
    }
}

impl std::error::Error for LogFileError {}

impl Logging {
    /// Logs the events of this process, panics included, as `config` says. A subscriber that the
    /// process has already stays, and gets them instead.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn install(config: &Config) -> Result<Logging, LogFileError> {
        let destination = Arc::new(Destination::open(config.log_file.as_deref())?);
        let lines = tracing_subscriber::fmt()
            .with_max_level(match config.log_level {
                LogLevel::Error => LevelFilter::ERROR,
                LogLevel::Warn => LevelFilter::WARN,
                LogLevel::Info => LevelFilter::INFO,
            })
            .with_ansi(false)
            .with_target(false)
            .with_writer(Arc::clone(&destination));
        let installed = match config.log_format {
            LogFormat::Text => tracing::subscriber::set_global_default(lines.finish()),
            LogFormat::Json => {
                let lines = lines.json().flatten_event(true);
                let lines = lines.with_current_span(false).with_span_list(false);
                tracing::subscriber::set_global_default(lines.finish())
            }
        };
        if installed.is_ok() {
            std::panic::set_hook(Box::new(log_panic));
        }
        Ok(Logging(destination))
    }

    /// Whether events go to standard error.
    #[must_use]
    pub fn is_on_stderr(&self) -> bool {
        self.0.file.is_none()
    }

    /// Opens the file of the log anew, if there is one, and returns its path: what was moved away
    /// gets no more lines.
    ///
    /// # Errors
    /// The file cannot be opened; the one of before stays.
    pub fn reopen(&self) -> Result<Option<&Path>, LogFileError> {
        self.0.reopen(|path| {
            info!(path = %path.display(), "the log goes on in a file that is opened anew");
        })
    }
}

/// Standard error, or a file.
pub(super) struct Destination {
    file: Option<(PathBuf, RwLock<Arc<File>>)>,
}

impl Destination {
    /// A file that is appended to; standard error without one.
    pub(super) fn open(path: Option<&Path>) -> Result<Destination, LogFileError> {
        let open = |path: &Path| Ok((path.to_path_buf(), RwLock::new(Arc::new(append_to(path)?))));
        let file = path.map(open).transpose()?;
        Ok(Destination { file })
    }

    /// Opens the file anew, if there is one, and returns its path. What `last` writes still goes to
    /// the file of before.
    pub(super) fn reopen(&self, last: impl FnOnce(&Path)) -> Result<Option<&Path>, LogFileError> {
        let Some((path, file)) = &self.file else {
            return Ok(None);
        };
        let anew = append_to(path)?;
        last(path);
        *file.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(anew);
        Ok(Some(path))
    }
}

fn append_to(path: &Path) -> Result<File, LogFileError> {
    let opened = File::options().create(true).append(true).open(path);
    opened.map_err(|error| LogFileError::new(path, error))
}

/// Takes whole events. An event that the file does not take goes to standard error. An event that
/// standard error does not take either is dropped: a server goes on without its log reader.
impl Write for &Destination {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let line = one_line(event);
        let file = self.file.as_ref().map(|(_, file)| {
            let file = file.read().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(&file)
        });
        let is_written = file.is_some_and(|file| (&*file).write_all(&line).is_ok());
        if !is_written {
            let _ = io::stderr().write_all(&line);
        }
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
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
