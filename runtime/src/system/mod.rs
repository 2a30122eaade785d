//! The process and its machine: system calls that the standard library does not offer, each behind
//! a safe function, limits, memory, clocks, and how errors and problems of the system are told.
//!
//! All unsafe code of the server stands here and in `disk`.

pub mod advice;
mod affinity;
mod allocator;
pub(crate) mod boot_clock;
pub mod bound_child;
pub(crate) mod checksum;
pub(crate) mod cpu_wait;
mod events;
pub(crate) mod file_lock;
pub(crate) mod file_stamp;
mod files;
pub(crate) mod huge_pages;
pub mod kernel_clock;
mod limits;
pub(crate) mod line_queue;
pub(crate) mod lines;
pub(crate) mod memory;
pub(crate) mod named_error;
pub(crate) mod open_files;
pub(crate) mod outgoing;
pub mod private_file;
mod random;
pub(crate) mod schedstat;
mod schedule;
mod sockets;
pub(crate) mod thread_clock;
mod threads;
pub(crate) mod wall;
pub(crate) mod wiping;

use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

pub(crate) use affinity::{CpuSet, online_cpus, this_thread};
pub(crate) use allocator::{give_back_free_memory, map_blocks_from};
pub(crate) use events::{clear_signal, event_counter, signal, wait_readable};
pub(crate) use files::{
    allocate, direct_alignment, exchange, file_system_magic, free_bytes, read_ahead, read_as_asked,
};
pub use limits::ignore_file_size_signal;
pub(crate) use limits::{Limit, Resource, limit, page_bytes, raise_limit, user};
pub(crate) use random::{fill_random, random_u64};
pub(crate) use schedule::{involuntary_switches, process_use, raise_priority, set_time_slice};
pub(crate) use sockets::{
    accept_waiting, peer_has_gone, receive_at_once, send_at_once, shut_down_socket, taken_over,
    unacknowledged_bytes, unread_bytes,
};
pub(crate) use threads::{NoThread, require_threads};

/// Takes over a descriptor that a system call returned, or its error.
pub(crate) fn owned(fd: RawFd) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    #[expect(unsafe_code, reason = "a number becomes the descriptor that it is")]
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
