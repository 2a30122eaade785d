//! Frees threads of shards that wait for their core.
//!
//! A thread that waits for the one core on which it may run cannot leave the core, because leaving
//! is a system call. So a thread of its own, without a core, watches those of the shards, and lets
//! one that waits for long run on every CPU that the process may use. What follows is for the
//! thread of the shard to decide, as soon as it runs: the scheduler has counted the wait
//! ([`crate::event_loop::shard_thread`]).

use std::io;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tracing::warn;

use crate::event_loop::shard_thread::Home;
use crate::system::schedstat::{SchedStat, ThreadTimes};

/// Between two looks. A thread that could run all the time between them and did not is freed.
const CHECK_EVERY: Duration = Duration::from_millis(100);
/// Between two log lines about one thread.
const REPORT_EVERY: Duration = Duration::from_secs(60);

/// The thread that frees others. It ends when this and all its [`StalledThreads::homes`] are gone.
pub(super) struct StalledThreads {
    /// None while it is dropped.
    homes: Option<flume::Sender<(u16, Home)>>,
    thread: Option<JoinHandle<()>>,
}

impl StalledThreads {
    /// Starts the thread.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(super) fn start() -> io::Result<StalledThreads> {
        let (homes, inbox) = flume::unbounded();
        let thread = std::thread::Builder::new()
            .name("penstock-cores".into())
            .spawn(move || run(&inbox))?;
        Ok(StalledThreads {
            homes: Some(homes),
            thread: Some(thread),
        })
    }

    /// Where the thread of a shard says which one it is.
    pub(super) fn homes(&self) -> flume::Sender<(u16, Home)> {
        self.homes.clone().expect("it is not dropped")
    }
}

impl Drop for StalledThreads {
    fn drop(&mut self) {
        self.homes = None;
        // If a core still holds its end, the thread ends with the core.
        drop(self.thread.take());
    }
}

/// One thread of a shard.
struct Watched {
    shard: u16,
    home: Home,
    stat: SchedStat,
    before: Option<Sample>,
    reported_at: Option<Instant>,
}

/// A thread at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sample {
    is_runnable: bool,
    times: ThreadTimes,
}

fn run(inbox: &flume::Receiver<(u16, Home)>) {
    let mut all: Vec<Watched> = Vec::new();
    loop {
        match inbox.recv_timeout(CHECK_EVERY) {
            Ok((shard, home)) => {
                // A kernel that counts nothing cannot say who waits.
                if let Some(stat) = SchedStat::of(home.thread) {
                    let (before, reported_at) = (None, None);
                    all.push(Watched {
                        shard,
                        home,
                        stat,
                        before,
                        reported_at,
                    });
                }
            }
            Err(flume::RecvTimeoutError::Timeout) => all.iter_mut().for_each(Watched::sample),
            Err(flume::RecvTimeoutError::Disconnected) => return,
        }
    }
}

impl Watched {
    fn sample(&mut self) {
        let is_runnable = self.home.thread.is_runnable();
        let now = self.stat.read().map(|times| Sample { is_runnable, times });
        let before = std::mem::replace(&mut self.before, now);
        if !before
            .zip(now)
            .is_some_and(|(before, now)| is_stalled(before, now))
            || !self.home.free()
            || self
                .reported_at
                .is_some_and(|reported_at| reported_at.elapsed() < REPORT_EVERY)
        {
            return;
        }
        self.reported_at = Some(Instant::now());
        let (shard, core) = (self.shard, self.home.core.id);
        let ms = CHECK_EVERY.as_millis();
        warn!(
            shard,
            core,
            "shard {shard}: its thread waits for core {core} for {ms} ms and more, because other \
             programs have it; the thread may run on every CPU of the process now"
        );
    }
}

/// Whether a thread could run at both moments and had no CPU in between. The kernel counts the time
/// of one that runs at each tick.
fn is_stalled(before: Sample, now: Sample) -> bool {
    before.is_runnable && now == before
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_stalled_that_could_run_at_both_samples_and_had_no_cpu() {
        let sample = |is_runnable, ran_us, slices| Sample {
            is_runnable,
            times: ThreadTimes {
                ran_us,
                waited_us: 7,
                slices,
            },
        };
        for (before, now, expected) in [
            (sample(true, 5, 3), sample(true, 5, 3), true),
            (sample(false, 5, 3), sample(false, 5, 3), false),
            (sample(false, 5, 3), sample(true, 5, 3), false),
            (sample(true, 5, 3), sample(false, 5, 3), false),
            (sample(true, 5, 3), sample(true, 9, 3), false),
            (sample(true, 5, 3), sample(true, 5, 4), false),
        ] {
            assert_eq!(is_stalled(before, now), expected, "{before:?} {now:?}");
        }
    }
}
