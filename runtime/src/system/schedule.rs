//! How the scheduler treats the calling thread.
#![expect(
    unsafe_code,
    reason = "system calls without a wrapper in the standard library"
)]

use std::io;
use std::mem::MaybeUninit;

use super::check;

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

/// How much before others the calling thread goes, where the system permits that.
const NICE: libc::c_int = -5;

/// Lets the calling thread run before others that want the CPU. A system that does not permit it
/// leaves it as it is.
pub(crate) fn raise_priority() {
    // SAFETY: the call takes numbers alone. To Linux a thread is a process here, and 0 is the
    // calling one.
    let _ = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) };
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

/// How often another thread ran in place of the calling one, though that wanted to go on or gave
/// way.
pub(crate) fn involuntary_switches() -> Option<u64> {
    let mut found = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the pointer is to room for one `rusage`, which the kernel fills.
    check(unsafe { libc::getrusage(libc::RUSAGE_THREAD, found.as_mut_ptr()) }).ok()?;
    // SAFETY: the call succeeded, so the kernel filled the structure; it was zeroed before.
    let found = unsafe { found.assume_init() };
    u64::try_from(found.ru_nivcsw).ok()
}

/// What the process has used since it began.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ProcessUsed {
    /// Microseconds of a CPU outside the kernel.
    pub(crate) user_us: u64,
    /// Microseconds of a CPU in the kernel.
    pub(crate) system_us: u64,
    /// Resident bytes at the moment when they were most.
    pub(crate) resident_bytes_most: u64,
}

/// What the process has used; nothing if the kernel does not tell.
pub(crate) fn process_use() -> ProcessUsed {
    let mut found = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the pointer is to room for one `rusage`, which the kernel fills.
    if check(unsafe { libc::getrusage(libc::RUSAGE_SELF, found.as_mut_ptr()) }).is_err() {
        return ProcessUsed::default();
    }
    // SAFETY: the call succeeded, so the kernel filled the structure; it was zeroed before.
    let found = unsafe { found.assume_init() };
    let count = |number: i64| u64::try_from(number).unwrap_or(0);
    let us = |time: libc::timeval| count(time.tv_sec) * 1_000_000 + count(time.tv_usec);
    ProcessUsed {
        user_us: us(found.ru_utime),
        system_us: us(found.ru_stime),
        // Told in KiB.
        resident_bytes_most: count(found.ru_maxrss) * 1024,
    }
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
}
