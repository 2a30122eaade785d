//! On which CPUs a thread may run.
#![expect(
    unsafe_code,
    reason = "system calls without a wrapper in the standard library"
)]

use std::fmt;
use std::mem::MaybeUninit;

use super::check;
use super::schedstat::ThreadId;

/// A set of CPUs. The kernel's first 1,024 can be in it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct CpuSet(libc::cpu_set_t);

impl CpuSet {
    /// The CPUs on which the calling thread may run; none on a machine with more than 1,024 CPUs.
    pub(crate) fn of_this_thread() -> Option<CpuSet> {
        // Which is the calling one.
        Self::of(ThreadId(0))
    }

    /// The same of a thread of this process; none if the thread has ended.
    pub(crate) fn of(thread: ThreadId) -> Option<CpuSet> {
        let mut found = MaybeUninit::<libc::cpu_set_t>::zeroed();
        let bytes = size_of::<libc::cpu_set_t>();
        // SAFETY: the pointer is to room for one set, of the length that is passed, which the
        // kernel fills.
        let result = unsafe { libc::sched_getaffinity(thread.0, bytes, found.as_mut_ptr()) };
        check(result).ok()?;
        // SAFETY: the structure was zeroed, which is an empty set, before the kernel wrote to it.
        Some(CpuSet(unsafe { found.assume_init() }))
    }

    /// Lets a thread of this process run on these CPUs alone; whether the system permits that.
    pub(crate) fn confine(&self, thread: ThreadId) -> bool {
        let bytes = size_of::<libc::cpu_set_t>();
        // SAFETY: the pointer is to a live set of the length that is passed. A thread that has
        // ended is an error.
        let result = unsafe { libc::sched_setaffinity(thread.0, bytes, &raw const self.0) };
        check(result).is_ok()
    }

    /// How many CPUs are in the set.
    pub(crate) fn len(&self) -> usize {
        // SAFETY: the reference is to a live set.
        let count = unsafe { libc::CPU_COUNT(&self.0) };
        usize::try_from(count).expect("a count is not negative")
    }
}

impl fmt::Debug for CpuSet {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "CpuSet({} CPUs)", self.len())
    }
}

/// The calling thread.
pub(crate) fn this_thread() -> ThreadId {
    // SAFETY: the call takes nothing and cannot fail.
    ThreadId(unsafe { libc::gettid() })
}

/// How many CPUs of the machine are in use, whatever the calling thread is allowed.
pub(crate) fn online_cpus() -> u64 {
    // SAFETY: the call takes a number alone.
    let count = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    u64::try_from(count).unwrap_or(1).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_was_confined_to_one_core_runs_on_all_again() {
        std::thread::spawn(|| {
            let all = CpuSet::of_this_thread().expect("fewer than 1,024 CPUs");
            let core = core_affinity::get_core_ids().expect("cores")[0];
            assert!(core_affinity::set_for_current(core));
            assert_eq!(CpuSet::of_this_thread().expect("a set").len(), 1);
            assert!(all.confine(this_thread()));
            assert_eq!(CpuSet::of_this_thread(), Some(all));
            assert_eq!(CpuSet::of(this_thread()), Some(all));
            assert!(online_cpus() >= 1);
            assert!(this_thread().is_runnable());
        })
        .join()
        .expect("the thread ends well");
    }
}
