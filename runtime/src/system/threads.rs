//! Whether the process may make threads: without them nothing starts, and each place that makes one
//! would blame what the thread was for.

use std::{fmt, io};

/// Why no thread can be made.
#[derive(Debug)]
pub(crate) struct NoThread(io::Error);

impl From<io::Error> for NoThread {
    fn from(error: io::Error) -> NoThread {
        NoThread(error)
    }
}

impl fmt::Display for NoThread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mend = match self.0.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => {
                "a seccomp filter forbids it, as that of Docker before 20.10.10 does for clone3: \
                 update the container's runtime, or run the container with --security-opt \
                 seccomp=deploy/seccomp.json"
            }
            _ => {
                "raise the limit of threads: ulimit -u, TasksMax in the systemd unit, or that of \
                 the container"
            }
        };
        write!(f, "cannot make a thread: {}; {mend}", self.0)
    }
}

/// Makes a thread, and waits for its end.
///
/// # Errors
/// [`NoThread`], with what mends it.
pub(crate) fn require_threads() -> Result<(), NoThread> {
    let made = std::thread::Builder::new().spawn(|| ()).map_err(NoThread)?;
    made.join().expect("it does nothing");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_cannot_be_made_is_reported_with_what_forbids_it() {
        require_threads().expect("tests have threads");
        for (errno, mend) in [
            (libc::EPERM, "a seccomp filter forbids it"),
            (libc::EAGAIN, "raise the limit of threads"),
        ] {
            let message = NoThread(io::Error::from_raw_os_error(errno)).to_string();
            assert!(message.starts_with("cannot make a thread: ") && message.contains(mend));
        }
    }
}
