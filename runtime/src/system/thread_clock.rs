//! The clock that goes on while a thread has a CPU: a busy machine takes nothing from its bounds.
#![expect(
    unsafe_code,
    reason = "a system call without a wrapper in the standard library"
)]

/// Microseconds that this thread has run.
pub(crate) fn thread_us() -> u64 {
    let mut found = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the pointer is to a live structure, which the kernel fills.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut found) };
    assert!(
        result == 0,
        "every thread has such a clock since Linux 2.6.12"
    );
    let part = |count: i64| u64::try_from(count).expect("a thread has run for a time");
    part(found.tv_sec) * 1_000_000 + part(found.tv_nsec) / 1_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_on_while_the_thread_works_and_is_another_one_in_another_thread() {
        let began_us = thread_us();
        while thread_us() < began_us + 2_000 {
            std::hint::spin_loop();
        }
        let of_other = std::thread::spawn(thread_us).join().expect("it ends");
        assert!(of_other < thread_us(), "{of_other}");
    }
}
