//! Limits of the process, and the user that it runs as.
#![expect(
    unsafe_code,
    reason = "system calls without a wrapper in the standard library"
)]

use std::io;

use super::check;

/// A pair of limits: what holds now, and up to where the process may raise it itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limit {
    pub(crate) soft: u64,
    pub(crate) hard: u64,
}

/// A resource whose limit matters here.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Resource {
    OpenFiles,
    LockedMemory,
    FileSize,
}

impl Resource {
    fn number(self) -> libc::__rlimit_resource_t {
        match self {
            Self::OpenFiles => libc::RLIMIT_NOFILE,
            Self::LockedMemory => libc::RLIMIT_MEMLOCK,
            Self::FileSize => libc::RLIMIT_FSIZE,
        }
    }
}

/// The limit of a resource; `u64::MAX` is none.
pub(crate) fn limit(resource: Resource) -> io::Result<Limit> {
    let mut found = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the pointer is to a live `rlimit`, which the kernel fills.
    check(unsafe { libc::getrlimit(resource.number(), &raw mut found) })?;
    Ok(Limit {
        soft: found.rlim_cur,
        hard: found.rlim_max,
    })
}

/// Raises the soft limit to the hard one and returns what holds then.
pub(crate) fn raise_limit(resource: Resource) -> io::Result<Limit> {
    let found = limit(resource)?;
    if found.soft < found.hard {
        let wanted = libc::rlimit {
            rlim_cur: found.hard,
            rlim_max: found.hard,
        };
        // SAFETY: the pointer is to a live `rlimit`, which the kernel only reads.
        check(unsafe { libc::setrlimit(resource.number(), &raw const wanted) })?;
    }
    limit(resource)
}

/// A write beyond the limit of the size of files is an error from now on, as one on a full disk is.
/// The signal that would end the process instead says nothing.
pub fn ignore_file_size_signal() {
    // SAFETY: the call takes two numbers, and no code runs by the signal.
    let _ = unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// The user whose permissions the process has, by number.
pub(crate) fn user() -> u32 {
    // SAFETY: the call takes nothing, gives a number and never fails.
    unsafe { libc::geteuid() }
}

/// Bytes of a page of memory.
pub(crate) fn page_bytes() -> u64 {
    // SAFETY: the call takes and gives a number only.
    u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}
