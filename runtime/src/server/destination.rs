//! Where the lines of a log go: to a file that is appended to, or to standard error.

use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use crate::system::NoThread;
use crate::system::line_queue::LineSink;

/// Why lines for people have nowhere to go.
#[derive(Debug)]
pub enum LogFileError {
    /// The file cannot be appended to.
    File {
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// The thread that writes the lines cannot be made: a text that says what mends this.
    Thread(String),
}

impl LogFileError {
    pub(super) fn new(path: &Path, error: io::Error) -> LogFileError {
        LogFileError::File {
            path: path.to_path_buf(),
            error,
        }
    }

    pub(super) fn no_thread(error: io::Error) -> LogFileError {
        LogFileError::Thread(NoThread::from(error).to_string())
    }
}

impl fmt::Display for LogFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LogFileError::File { path, error } => write!(
                f,
                "cannot append to the log file {}: {error}; its directory must exist, and this \
                 user must be allowed to write there",
                path.display()
            ),
            LogFileError::Thread(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for LogFileError {}

/// Standard error, or a file. A line that the file does not take goes to standard error. A line
/// that standard error does not take either is gone: a server goes on without its log reader.
pub(super) struct Destination {
    file: Option<(PathBuf, RwLock<Arc<LineFile>>)>,
}

impl Destination {
    /// A file that is appended to; standard error without one.
    pub(super) fn open(path: Option<&Path>) -> Result<Destination, LogFileError> {
        let open = |path: &Path| {
            let file = LineFile::open(path)?;
            Ok((path.to_path_buf(), RwLock::new(Arc::new(file))))
        };
        let file = path.map(open).transpose()?;
        Ok(Destination { file })
    }

    /// Whether lines go to standard error alone.
    pub(super) fn is_on_stderr(&self) -> bool {
        self.file.is_none()
    }

    /// Opens the file anew, if there is one, and returns its path. What `last` writes still goes to
    /// the file of before.
    pub(super) fn reopen(&self, last: impl FnOnce(&Path)) -> Result<Option<&Path>, LogFileError> {
        let Some((path, file)) = &self.file else {
            return Ok(None);
        };
        let anew = LineFile::open(path)?;
        last(path);
        *file.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(anew);
        Ok(Some(path))
    }
}

impl LineSink for Destination {
    fn take(&self, line: &[u8]) {
        let file = self.file.as_ref().map(|(_, file)| {
            let file = file.read().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(&file)
        });
        let is_written = file.is_some_and(|file| file.append(line).is_ok());
        if !is_written {
            let _ = io::stderr().write_all(line);
        }
    }
}

/// A file of whole lines: what a full disk has torn is made whole before the next line.
struct LineFile {
    file: File,
    /// What the file lacks of its last line.
    rest: Mutex<Vec<u8>>,
}

impl LineFile {
    fn open(path: &Path) -> Result<LineFile, LogFileError> {
        let opened = File::options().create(true).append(true).open(path);
        let file = opened.map_err(|error| LogFileError::new(path, error))?;
        // An earlier process may have ended within a line.
        let rest = match is_torn(path) {
            true => vec![b'\n'],
            false => Vec::new(),
        };
        let rest = Mutex::new(rest);
        Ok(LineFile { file, rest })
    }

    /// Appends a line, behind what the file lacks of the one before.
    ///
    /// # Errors
    /// The line is not in the file, or not as a whole; the rest of it comes with the next line.
    fn append(&self, line: &[u8]) -> io::Result<()> {
        let mut rest = self.rest.lock().unwrap_or_else(PoisonError::into_inner);
        while !rest.is_empty() {
            let written = write_some(&self.file, &rest)?;
            rest.drain(..written);
        }
        let mut at = 0;
        while at < line.len() {
            match write_some(&self.file, &line[at..]) {
                Ok(written) => at += written,
                Err(error) => {
                    if at > 0 {
                        rest.extend_from_slice(&line[at..]);
                    }
                    return Err(error);
                }
            }
        }
        Ok(())
    }
}

/// One write; at least a byte is written.
fn write_some(mut file: &File, bytes: &[u8]) -> io::Result<usize> {
    loop {
        match file.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            written => return written,
        }
    }
}

/// Whether a file ends within a line, as far as this process may read it.
fn is_torn(path: &Path) -> bool {
    let last = || -> io::Result<Option<u8>> {
        // Nothing of a pipe may be taken away.
        let found = path.metadata()?;
        let Some(at) = found.len().checked_sub(1).filter(|_| found.is_file()) else {
            return Ok(None);
        };
        let mut last = [0];
        File::open(path)?.read_exact_at(&mut last, at)?;
        Ok(Some(last[0]))
    };
    last().is_ok_and(|last| last.is_some_and(|last| last != b'\n'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_ends_within_a_line_gets_a_line_break_before_the_next_line() {
        let path = std::env::temp_dir().join(format!("penstock-torn-{}", std::process::id()));
        for (before, after) in [
            ("{\"peer\":\"127", "{\"peer\":\"127\nnext\nlast\n"),
            ("whole\n", "whole\nnext\nlast\n"),
            ("", "next\nlast\n"),
        ] {
            std::fs::write(&path, before).unwrap();
            let destination = Destination::open(Some(&path)).unwrap();
            destination.take(b"next\n");
            destination.take(b"last\n");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), after);
        }
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_line_that_a_full_disk_has_torn_is_made_whole_before_the_next_line() {
        let path = std::env::temp_dir().join(format!("penstock-rest-{}", std::process::id()));
        let file = LineFile::open(&path).unwrap();
        // Such a disk takes the begin of a line.
        (&file.file).write_all(b"{\"to").unwrap();
        file.rest.lock().unwrap().extend_from_slice(b"rn\":1}\n");
        file.append(b"{\"next\":2}\n").unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text, "{\"torn\":1}\n{\"next\":2}\n");
        std::fs::remove_file(&path).unwrap();
    }
}
