//! The thread that checks the lock of a served directory once a second.
//!
//! A lock that cannot be lost needs no check. Two things can be lost: the name LOCK, which is all
//! that an older build knows, and the place of the directory, by which new files are made.

use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tracing::{error, warn};

use crate::directory::Directory;
use crate::directory::identity::Identity;
use crate::directory::lock::{DirectoryLock, LockFault, Standing};
use crate::system::lines::Lately;

/// How often the lock is checked.
const CHECK_EVERY: Duration = Duration::from_secs(1);

/// Whether the lock was lost, for those who may act for the directory only while it is theirs.
/// Clones tell the same. [`LockLoss::default`] is never lost.
#[derive(Clone, Debug, Default)]
pub(crate) struct LockLoss(Arc<OnceLock<String>>);

impl LockLoss {
    /// Why the holder must stop at once, if it must.
    #[inline]
    pub(crate) fn text(&self) -> Option<&str> {
        self.0.get().map(String::as_str)
    }
}

/// The thread that checks; it ends when this is dropped.
pub(crate) struct LockWatch {
    loss: LockLoss,
    stop: Option<flume::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl LockWatch {
    /// Begins to check the lock of `directory`, which is open to be served.
    ///
    /// # Errors
    /// There is no thread.
    pub(crate) fn start(directory: &Directory) -> std::io::Result<LockWatch> {
        let loss = LockLoss::default();
        let (stop, stopped) = flume::bounded::<()>(0);
        let lock = Arc::clone(directory.lock());
        let (identity, noted) = (directory.identity().clone(), loss.clone());
        let thread = std::thread::Builder::new()
            .name("penstock-lock".into())
            .spawn(move || {
                let mut lately = Lately::default();
                while stopped.recv_timeout(CHECK_EVERY) == Err(flume::RecvTimeoutError::Timeout) {
                    if let Err(text) = check(&lock, &identity, &mut lately) {
                        error!("{text}");
                        let _ = noted.0.set(text);
                        return;
                    }
                }
            })?;
        Ok(LockWatch {
            loss,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// Whether the lock was lost.
    pub(crate) fn loss(&self) -> LockLoss {
        self.loss.clone()
    }
}

impl Drop for LockWatch {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// One check. An error is why the holder must stop.
fn check(lock: &DirectoryLock, identity: &Identity, lately: &mut Lately) -> Result<(), String> {
    match lock.check(identity) {
        Ok(Standing::Held) => {}
        Ok(Standing::Restored) => {
            let text = format!(
                "{}: the file was removed or replaced while the directory is served; it is there \
                 and locked again. Leave it alone: an older build that starts meanwhile writes \
                 into the same directory",
                lock.name().display()
            );
            if let Some(text) = lately.line("restored", &text, Instant::now()) {
                warn!("{text}");
            }
        }
        Err(LockFault::Lost(loss)) => return Err(loss.to_string()),
        Err(LockFault::Unknown(fault)) => {
            let text = format!("the lock of the data directory cannot be checked: {fault}");
            if let Some(text) = lately.line("unknown", &text, Instant::now()) {
                warn!("{text}");
            }
        }
    }
    Ok(())
}
