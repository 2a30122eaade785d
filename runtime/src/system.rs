//! The system calls that the standard library does not offer, each behind a safe function.
#![expect(
    unsafe_code,
    reason = "system calls without a wrapper in the standard library"
)]

use std::ffi::CString;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

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
}

impl Resource {
    fn number(self) -> libc::__rlimit_resource_t {
        match self {
            Self::OpenFiles => libc::RLIMIT_NOFILE,
            Self::LockedMemory => libc::RLIMIT_MEMLOCK,
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

/// Bytes that an unprivileged process can still write on the file system of `path`.
pub(crate) fn free_bytes(path: &Path) -> io::Result<u64> {
    let path = c_path(path)?;
    let mut found = MaybeUninit::<libc::statvfs>::zeroed();
    // SAFETY: the path ends in a zero byte, and the pointer is to room for one `statvfs`.
    check(unsafe { libc::statvfs(path.as_ptr(), found.as_mut_ptr()) })?;
    // SAFETY: the call succeeded, so the kernel filled the structure; it was zeroed before.
    let found = unsafe { found.assume_init() };
    Ok(found.f_bavail.saturating_mul(found.f_frsize))
}

/// Gives each of two files the name of the other, at once.
pub(crate) fn exchange(one: &Path, other: &Path) -> io::Result<()> {
    let (one, other) = (c_path(one)?, c_path(other)?);
    // SAFETY: both paths end in a zero byte.
    check(unsafe {
        libc::renameat2(
            libc::AT_FDCWD,
            one.as_ptr(),
            libc::AT_FDCWD,
            other.as_ptr(),
            libc::RENAME_EXCHANGE,
        )
    })
}

/// The magic number of the file system of `path`.
pub(crate) fn file_system_magic(path: &Path) -> io::Result<i64> {
    let path = c_path(path)?;
    let mut found = MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: the path ends in a zero byte, and the pointer is to room for one `statfs`.
    check(unsafe { libc::statfs(path.as_ptr(), found.as_mut_ptr()) })?;
    // SAFETY: the call succeeded, so the kernel filled the structure; it was zeroed before.
    Ok(unsafe { found.assume_init() }.f_type)
}

/// What direct I/O on a file asks of memory addresses and of file offsets, in bytes. Both are 0
/// where the file system refuses it; `None` where the kernel (before 6.1) does not say.
pub(crate) fn direct_alignment(file: BorrowedFd<'_>) -> io::Result<Option<(u32, u32)>> {
    let mut found = MaybeUninit::<libc::statx>::zeroed();
    // SAFETY: the descriptor is open, the empty path is a constant that ends in a zero byte, and
    // the pointer is to room for one `statx`.
    check(unsafe {
        libc::statx(
            file.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            libc::STATX_DIOALIGN,
            found.as_mut_ptr(),
        )
    })?;
    // SAFETY: the call succeeded, so the kernel filled the structure; it was zeroed before.
    let found = unsafe { found.assume_init() };
    let known = found.stx_mask & libc::STATX_DIOALIGN != 0;
    Ok(known.then_some((found.stx_dio_mem_align, found.stx_dio_offset_align)))
}

/// Reserves the first `bytes` bytes of `file` on the device and makes it that long.
pub(crate) fn allocate(file: BorrowedFd<'_>, bytes: u64) -> io::Result<()> {
    let bytes = i64::try_from(bytes).map_err(|_| io::Error::from_raw_os_error(libc::EFBIG))?;
    // SAFETY: the descriptor is open; no memory is involved.
    check(unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, bytes) })
}

/// Has the kernel begin to read `bytes` bytes of a file from `offset` on, or as many as it takes at once.
pub(crate) fn read_ahead(file: BorrowedFd<'_>, offset: u64, bytes: u64) -> io::Result<()> {
    advise(file, (offset, bytes), libc::POSIX_FADV_WILLNEED)
}

/// Has the kernel read no more of a file than what is asked for.
pub(crate) fn read_as_asked(file: BorrowedFd<'_>) -> io::Result<()> {
    advise(file, (0, 0), libc::POSIX_FADV_RANDOM)
}

/// Tells the kernel how `bytes` bytes of a file are going to be read from `offset` on; 0 for all.
fn advise(
    file: BorrowedFd<'_>,
    (offset, bytes): (u64, u64),
    advice: libc::c_int,
) -> io::Result<()> {
    let number = |of| i64::try_from(of).map_err(|_| io::Error::from_raw_os_error(libc::EFBIG));
    let (offset, bytes) = (number(offset)?, number(bytes)?);
    // SAFETY: the descriptor is open; no memory is involved.
    match unsafe { libc::posix_fadvise(file.as_raw_fd(), offset, bytes, advice) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Eight bytes that nobody can foresee.
pub(crate) fn random_u64() -> io::Result<u64> {
    let mut bytes = [0; 8];
    fill_random(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

/// Fills `into`, which may be at most 256 bytes long: up to there the kernel never gives less.
pub(crate) fn fill_random(into: &mut [u8]) -> io::Result<()> {
    assert!(into.len() <= 256, "more might be interrupted half-way");
    loop {
        // SAFETY: the pointer and the length are those of a live mutable slice.
        let got = unsafe { libc::getrandom(into.as_mut_ptr().cast(), into.len(), 0) };
        if usize::try_from(got) == Ok(into.len()) {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// A counter that a poll sees as readable once it is not zero; never blocks.
pub(crate) fn event_counter() -> io::Result<OwnedFd> {
    // SAFETY: no memory is involved.
    let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    owned(fd)
}

/// Adds one to an event counter. Fails only when 2^64 - 2 were never read: it is readable then.
pub(crate) fn signal(counter: BorrowedFd<'_>) {
    let one = 1u64.to_ne_bytes();
    // SAFETY: the descriptor is open, and the pointer and the length are those of a live array.
    unsafe { libc::write(counter.as_raw_fd(), one.as_ptr().cast(), one.len()) };
}

/// Sets an event counter back to zero.
pub(crate) fn clear_signal(counter: BorrowedFd<'_>) {
    let mut count = [0u8; 8];
    // SAFETY: the descriptor is open, and the pointer and the length are those of a live array.
    unsafe { libc::read(counter.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
}

/// Waits until one of the descriptors is readable or the time is over; none waits without end. A
/// signal may end it early.
pub(crate) fn wait_readable<const N: usize>(
    descriptors: [BorrowedFd<'_>; N],
    at_most: Option<Duration>,
) {
    let mut asked = descriptors.map(|descriptor| libc::pollfd {
        fd: descriptor.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    });
    let time = at_most.map(|time| libc::timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: time.subsec_nanos().into(),
    });
    let time = time
        .as_ref()
        .map_or(std::ptr::null(), std::ptr::from_ref::<libc::timespec>);
    // SAFETY: the descriptors are open, the pointer and the count are those of a live array, and the
    // time is null or a live structure that the kernel only reads.
    unsafe {
        libc::ppoll(
            asked.as_mut_ptr(),
            N as libc::nfds_t,
            time,
            std::ptr::null(),
        )
    };
}

/// Sets how long the calling thread runs before the scheduler looks for another one, which may run
/// at once if its own time is shorter (Linux 6.12 and newer; older ones take no notice). Threads
/// that it starts do not inherit it.
pub(crate) fn set_time_slice(microseconds: u32) -> io::Result<()> {
    let mut attributes = scheduling()?;
    attributes.runtime_ns = u64::from(microseconds) * 1000;
    attributes.flags |= SCHED_FLAG_RESET_ON_FORK;
    // SAFETY: thread 0 is the calling one, and the pointer is to a live structure whose first field
    // tells the kernel its size.
    let result = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0u32) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// How the calling thread is scheduled.
fn scheduling() -> io::Result<Scheduling> {
    let mut found = Scheduling::default();
    // SAFETY: thread 0 is the calling one, and the pointer is to a live structure of the size that
    // is passed, which the kernel fills.
    let result = unsafe {
        libc::syscall(
            libc::SYS_sched_getattr,
            0,
            &raw mut found,
            SCHEDULING_BYTES,
            0u32,
        )
    };
    if result == 0 {
        Ok(found)
    } else {
        Err(io::Error::last_os_error())
    }
}

const SCHED_FLAG_RESET_ON_FORK: u64 = 1;

/// `struct sched_attr` in its first version.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Scheduling {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime_ns: u64,
    deadline_ns: u64,
    period_ns: u64,
}

/// The size of that version.
const SCHEDULING_BYTES: u32 = 48;
const _: () = assert!(size_of::<Scheduling>() == SCHEDULING_BYTES as usize);

/// Takes over a descriptor that a system call returned, or its error.
pub(crate) fn owned(fd: RawFd) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the caller just got `fd` from the kernel as a new descriptor and keeps no copy.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

fn c_path(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes())
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "a path holds a zero byte"))
}

/// How often another thread ran in place of the calling one, though that wanted to go on or gave way.
pub(crate) fn involuntary_switches() -> Option<u64> {
    let mut found = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the pointer is to room for one `rusage`, which the kernel fills.
    check(unsafe { libc::getrusage(libc::RUSAGE_THREAD, found.as_mut_ptr()) }).ok()?;
    // SAFETY: the call succeeded, so the kernel filled the structure; it was zeroed before.
    let found = unsafe { found.assume_init() };
    u64::try_from(found.ru_nivcsw).ok()
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

/// Lets the allocator serve blocks of `bytes` and more by mappings of their own, so that they go back to
/// the system when they are freed.
pub(crate) fn map_blocks_from(bytes: u32) {
    #[cfg(target_env = "gnu")]
    {
        let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
        // SAFETY: the call takes numbers only and changes how later blocks are made, not any that is there.
        unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, bytes) };
    }
    #[cfg(not(target_env = "gnu"))]
    let _ = bytes;
}

/// Lets the allocator give the free pages that it keeps back to the system.
pub(crate) fn give_back_free_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the call touches free memory of the allocator only, under its own locks.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Takes a connection that waits in the queue of a listener, as one that does not block; nothing if none waits.
pub(crate) fn accept_waiting(listener: RawFd) -> io::Result<Option<OwnedFd>> {
    let mut asked = libc::pollfd {
        fd: listener,
        events: libc::POLLIN,
        revents: 0,
    };
    // The listener may be one that blocks. What waits in its queue stays there until it is taken.
    // SAFETY: the pointer is to one live structure; a number that is no descriptor is an error.
    if unsafe { libc::poll(&raw mut asked, 1, 0) } < 1 || asked.revents & libc::POLLIN == 0 {
        return Ok(None);
    }
    // SAFETY: null pointers ask for no address; a number that is no descriptor is an error.
    let descriptor = unsafe {
        libc::accept4(
            listener,
            std::ptr::null_mut(),
            std::ptr::null_mut(),
            libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC,
        )
    };
    owned(descriptor).map(Some)
}

/// The descriptor of what gives it up.
pub(crate) fn taken_over(of: impl IntoRawFd) -> OwnedFd {
    // SAFETY: `into_raw_fd` gives up what it owns, so nobody else closes the descriptor.
    unsafe { OwnedFd::from_raw_fd(of.into_raw_fd()) }
}

/// Bytes that were written to a connection and that its peer's kernel has not acknowledged; 0 of what has none.
pub(crate) fn unacknowledged_bytes(descriptor: std::os::fd::RawFd) -> u64 {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the kernel writes one `int` to the pointer, which is to a live one, and nothing if the descriptor is none
    // of a socket. `TIOCOUTQ` is the number of `SIOCOUTQ`.
    let result = unsafe { libc::ioctl(descriptor, libc::TIOCOUTQ, &raw mut bytes) };
    match result {
        0 => u64::try_from(bytes).unwrap_or(0),
        _ => 0,
    }
}

/// Ends a connection in both directions, so that whoever waits for it is woken. An error means that
/// it has ended already.
pub(crate) fn shut_down_socket(descriptor: std::os::fd::RawFd) {
    // SAFETY: the call takes numbers only; it touches no memory of this process.
    unsafe { libc::shutdown(descriptor, libc::SHUT_RDWR) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_slice_changes_and_nothing_else_about_the_schedule() {
        // A thread of its own, since the slice stays with the thread.
        std::thread::spawn(|| {
            let before = scheduling().expect("ask");
            set_time_slice(20_000).expect("set");
            let after = scheduling().expect("ask");
            assert_eq!((after.policy, after.nice), (before.policy, before.nice));
            if before.runtime_ns == 0 {
                eprintln!("SKIPPED: this kernel has no slices of one's own (before 6.12)");
                return;
            }
            assert_eq!(after.runtime_ns, 20_000_000);
            let child = std::thread::spawn(scheduling)
                .join()
                .expect("the thread ends well");
            assert_eq!(
                child.expect("ask").runtime_ns,
                before.runtime_ns,
                "it is not inherited"
            );
        })
        .join()
        .expect("the thread ends well");
    }

    #[test]
    fn random_numbers_differ() {
        assert_ne!(random_u64().expect("random"), random_u64().expect("random"));
    }
}
