//! Sockets, by the numbers of their descriptors.
#![expect(
    unsafe_code,
    reason = "system calls without a wrapper in the standard library"
)]

use std::io;
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd, RawFd};

use super::owned;

/// Takes a connection that waits in the queue of a listener, as one that does not block; nothing if
/// none waits.
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
    // SAFETY: `into_raw_fd` gives up the ownership of the descriptor, so nobody else closes it.
    unsafe { OwnedFd::from_raw_fd(of.into_raw_fd()) }
}

/// Bytes that were written to a connection and that its peer's kernel has not acknowledged; 0 of
/// what has none.
pub(crate) fn unacknowledged_bytes(descriptor: std::os::fd::RawFd) -> u64 {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the kernel writes one `int` to the pointer, which is to a live one, and nothing if
    // the descriptor is none of a socket. `TIOCOUTQ` is the number of `SIOCOUTQ`.
    let result = unsafe { libc::ioctl(descriptor, libc::TIOCOUTQ, &raw mut bytes) };
    match result {
        0 => u64::try_from(bytes).unwrap_or(0),
        _ => 0,
    }
}

/// Bytes that a connection's peer has sent and that nobody has read; 0 of what has none.
pub(crate) fn unread_bytes(descriptor: std::os::fd::RawFd) -> u64 {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the kernel writes one `int` to the pointer, which is to a live one, and nothing if
    // the descriptor is none of a socket.
    let result = unsafe { libc::ioctl(descriptor, libc::FIONREAD, &raw mut bytes) };
    match result {
        0 => u64::try_from(bytes).unwrap_or(0),
        _ => 0,
    }
}

/// Whether the peer of a connection has sent its last.
pub(crate) fn peer_has_gone(descriptor: RawFd) -> bool {
    let mut asked = libc::pollfd {
        fd: descriptor,
        events: libc::POLLRDHUP,
        revents: 0,
    };
    // SAFETY: the pointer is to one live structure; a number that is no descriptor is an error.
    let found = unsafe { libc::poll(&raw mut asked, 1, 0) };
    found > 0 && asked.revents & (libc::POLLRDHUP | libc::POLLHUP | libc::POLLERR) != 0
}

/// Appends what stands in a connection's socket to `buffer`, as much as it has room for, without
/// waiting. Returns how many bytes that were; 0 if the peer has sent its last.
///
/// # Errors
/// [`io::ErrorKind::WouldBlock`] if nothing stands there.
pub(crate) fn receive_at_once(descriptor: RawFd, buffer: &mut Vec<u8>) -> io::Result<usize> {
    let room = buffer.spare_capacity_mut();
    // SAFETY: the kernel writes at most `room.len()` bytes to memory that `buffer` owns, and reads
    // none of it; a number that is no descriptor is an error.
    let received = unsafe {
        libc::recv(
            descriptor,
            room.as_mut_ptr().cast(),
            room.len(),
            libc::MSG_DONTWAIT,
        )
    };
    let bytes = usize::try_from(received).map_err(|_| io::Error::last_os_error())?;
    // SAFETY: the kernel has written so many bytes behind those that stand in `buffer`, which had
    // room for them.
    unsafe { buffer.set_len(buffer.len() + bytes) };
    Ok(bytes)
}

/// Sends the first of `bytes` to a connection, as many as its socket takes without waiting. Returns
/// how many bytes that were.
///
/// # Errors
/// [`io::ErrorKind::WouldBlock`] if the socket takes nothing now.
pub(crate) fn send_at_once(descriptor: RawFd, bytes: &[u8]) -> io::Result<usize> {
    // SAFETY: the kernel reads at most `bytes.len()` bytes from memory that is borrowed meanwhile;
    // a number that is no descriptor is an error.
    let sent = unsafe {
        libc::send(
            descriptor,
            bytes.as_ptr().cast(),
            bytes.len(),
            libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
        )
    };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// Ends a connection in both directions, which wakes a task that waits for it. An error means that
/// the connection has ended already.
pub(crate) fn shut_down_socket(descriptor: std::os::fd::RawFd) {
    // SAFETY: the call takes numbers only; it touches no memory of this process.
    unsafe { libc::shutdown(descriptor, libc::SHUT_RDWR) };
}
