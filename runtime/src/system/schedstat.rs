//! What the scheduler counts of a thread, and how many threads of the machine want a CPU.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

/// What the scheduler has counted of a thread since the thread began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ThreadTimes {
    /// Time with a CPU, in microseconds.
    pub(crate) ran_us: u64,
    /// Time in which the thread could run and had no CPU, in microseconds.
    pub(crate) waited_us: u64,
    /// How often the thread was given a CPU.
    pub(crate) slices: u64,
}

/// The counts of one thread.
pub(crate) struct SchedStat(File);

/// A thread of this process, by the number that the system gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ThreadId(pub(super) libc::pid_t);

impl ThreadId {
    /// Whether the thread runs or could run at this moment.
    pub(crate) fn is_runnable(self) -> bool {
        let text = fs::read_to_string(format!("/proc/self/task/{}/stat", self.0));
        text.is_ok_and(|text| state(&text) == Some('R'))
    }
}

impl SchedStat {
    /// Of a thread of this process; none where the kernel does not count.
    pub(crate) fn of(thread: ThreadId) -> Option<SchedStat> {
        Self::open(&format!("/proc/self/task/{}/schedstat", thread.0))
    }

    /// Of the calling thread; none where the kernel does not count.
    pub(crate) fn of_this_thread() -> Option<SchedStat> {
        Self::open("/proc/thread-self/schedstat")
    }

    /// A kernel that does not count writes zeros. A thread that can be named has had a slice.
    fn open(path: &str) -> Option<SchedStat> {
        let stat = SchedStat(File::open(path).ok()?);
        stat.read().filter(|it| it.slices > 0).map(|_| stat)
    }

    /// The counts of now, by one system call.
    pub(crate) fn read(&self) -> Option<ThreadTimes> {
        let mut text = [0; 96];
        let bytes = self.0.read_at(&mut text, 0).ok()?;
        thread_times(std::str::from_utf8(&text[..bytes]).ok()?)
    }
}

/// Reads `running waiting slices`, times in nanoseconds.
fn thread_times(schedstat: &str) -> Option<ThreadTimes> {
    let mut words = schedstat.split_whitespace();
    let mut next = || words.next()?.parse::<u64>().ok();
    Some(ThreadTimes {
        ran_us: next()? / 1000,
        waited_us: next()? / 1000,
        slices: next()?,
    })
}

/// Reads the state of `11206 (name) S 1 ...`; the name may have anything in it.
fn state(stat: &str) -> Option<char> {
    stat.rsplit_once(") ")?.1.chars().next()
}

/// Whether more threads of the machine want a CPU at this moment than this number of CPUs.
pub(crate) fn is_machine_full(cpus: u64) -> bool {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    runnable_threads(&text).is_some_and(|threads| threads > cpus)
}

/// Reads the first number of `0.20 0.18 0.12 1/80 11206`'s fourth word.
fn runnable_threads(loadavg: &str) -> Option<u64> {
    let (threads, _) = loadavg.split_whitespace().nth(3)?.split_once('/')?;
    threads.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_writes_is_read() {
        let times = ThreadTimes {
            ran_us: 251,
            waited_us: 132,
            slices: 2,
        };
        assert_eq!(thread_times("251505 132047 2\n"), Some(times));
        assert_eq!((thread_times(""), thread_times("1 2\n")), (None, None));
        assert_eq!(runnable_threads("2.69 1.85 0.85 4/119 20320\n"), Some(4));
        assert_eq!(runnable_threads("2.69"), None);
        assert_eq!(state("11206 (a ) R) S 1 11206 0"), Some('S'));
        assert_eq!(state("11206 (a"), None);
    }

    #[test]
    fn a_thread_that_runs_and_sleeps_has_both_counted() {
        let Some(stat) = SchedStat::of_this_thread() else {
            eprintln!("SKIPPED: this kernel counts no run delay");
            return;
        };
        let before = stat.read().expect("read");
        let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while stat.read().expect("read").ran_us < before.ran_us + 1_000
            && std::time::Instant::now() < until
        {
            std::hint::spin_loop();
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
        let after = stat.read().expect("read");
        assert!(
            after.ran_us >= before.ran_us + 1_000,
            "{before:?} {after:?}"
        );
        assert!(after.slices > before.slices, "{before:?} {after:?}");
    }
}
