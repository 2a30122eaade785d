//! Event counters, by which threads wake each other.
#![expect(
    unsafe_code,
    reason = "system calls without a wrapper in the standard library"
)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use super::owned;

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
    // SAFETY: the descriptors are open, the pointer and the count are those of a live array, and
    // the time is null or a live structure that the kernel only reads.
    unsafe {
        libc::ppoll(
            asked.as_mut_ptr(),
            N as libc::nfds_t,
            time,
            std::ptr::null(),
        )
    };
}
