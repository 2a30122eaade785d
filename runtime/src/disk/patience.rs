//! Waits for the locked memory of processes that have just ended.

use std::io;
use std::time::{Duration, Instant};

/// For how long locked memory is waited for that a process of before holds: the kernel takes rings
/// down behind its end.
pub(super) const RELEASE_MAX: Duration = Duration::from_secs(1);

pub(super) const RELEASE_PAUSE: Duration = Duration::from_millis(20);

/// Makes what locks memory, and waits a while for memory that a ring of before holds.
///
/// # Errors
/// What the last try was refused with.
pub(crate) fn patiently<T>(mut make: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let until = Instant::now() + RELEASE_MAX;
    loop {
        match make() {
            Err(error) if error.raw_os_error() == Some(libc::ENOMEM) && Instant::now() < until => {
                std::thread::sleep(RELEASE_PAUSE);
            }
            made => return made,
        }
    }
}
