//! How the thread of a shard shares the machine with other programs.
//!
//! A thread that has its core for itself stays there with a long time slice. While other programs
//! want the core, the thread may run on every CPU that the process may use, and takes a short slice
//! when it sleeps most of the time. [`Contention`] decides; this type reads the counts and carries
//! the decision out.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use core_affinity::CoreId;
use tracing::info;

use super::contention::{Contention, Cpu, Reading, Regime, TimeSlice};
use crate::disk::TIME_SLICE_US;
use crate::system::schedstat::{SchedStat, ThreadId, is_machine_full};
use crate::system::{self, CpuSet, involuntary_switches, set_time_slice};

/// Between two samples, in microseconds.
const SAMPLE_US: u64 = 5_000;
/// Longer than a command runs, so that none is interrupted, and shorter than the slices of ordinary
/// programs, which are 0.7 ms on one CPU and up to 2.8 ms on many.
const SHORT_SLICE_US: u32 = 400;
/// Between two log lines about the core.
const REPORT_US: u64 = 60_000_000;

/// What the numbers say of a thread at present.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ThreadFigures {
    /// 1 while other programs want its CPU, else 0.
    pub(crate) contended: u64,
    /// 1 while it may run on other CPUs than its core, else 0.
    pub(crate) off_core: u64,
}

/// The thread that runs a shard.
pub(crate) struct ShardThread {
    /// None: the thread belongs to the user of an embedded store, or the kernel counts nothing.
    stat: Option<SchedStat>,
    contention: Contention,
    regime: Regime,
    home: Option<Home>,
    is_off_core: bool,
    waited_us: u64,
    next_us: u64,
    report_due_us: u64,
}

/// The core of a thread, and where else it may run. Clones are of the same thread.
#[derive(Clone, Debug)]
pub(crate) struct Home {
    pub(crate) core: CoreId,
    anywhere: CpuSet,
    pub(crate) thread: ThreadId,
    /// Another thread has let this one leave its core since the last sample.
    freed: Arc<AtomicBool>,
}

impl Home {
    /// Lets the thread run on every CPU of the process; for another thread, because this one waits
    /// for its core. `false` if it may already, or the system refuses.
    pub(crate) fn free(&self) -> bool {
        let is_held = CpuSet::of(self.thread).is_some_and(|it| it.len() == 1);
        let is_freed = is_held && self.anywhere.confine(self.thread);
        if is_freed {
            self.freed.store(true, Ordering::Release);
        }
        is_freed
    }
}

impl ShardThread {
    /// The calling thread, which stays as it is.
    pub(crate) fn of_caller() -> ShardThread {
        ShardThread {
            stat: None,
            contention: Contention::default(),
            regime: Regime::default(),
            home: None,
            is_off_core: false,
            waited_us: 0,
            next_us: 0,
            report_due_us: 0,
        }
    }

    /// The calling thread, which runs a shard alone, on `core` if there is one.
    pub(crate) fn on_core(core: Option<CoreId>) -> ShardThread {
        // Before it is pinned: the process's own set.
        let anywhere = CpuSet::of_this_thread();
        if let Some(core) = core {
            core_affinity::set_for_current(core);
        }
        let stat = SchedStat::of_this_thread();
        let home = core.zip(anywhere.filter(|it| it.len() > 1));
        // Without counts nothing would lead the thread back.
        let home = home.filter(|_| stat.is_some());
        ShardThread {
            stat,
            home: home.map(|(core, anywhere)| Home {
                core,
                anywhere,
                thread: system::this_thread(),
                freed: Arc::default(),
            }),
            ..ShardThread::of_caller()
        }
    }

    /// Its core, if it has one and may run elsewhere.
    pub(crate) fn home(&self) -> Option<Home> {
        self.home.clone()
    }

    /// Whether other programs want the CPU.
    #[inline]
    pub(crate) fn is_contended(&self) -> bool {
        self.regime.cpu == Cpu::Contended
    }

    /// While other programs want the CPU: how long the thread had waited until the last sample.
    #[inline]
    pub(super) fn waited_us(&self) -> Option<u64> {
        self.is_contended().then_some(self.waited_us)
    }

    pub(crate) fn figures(&self) -> ThreadFigures {
        ThreadFigures {
            contended: self.is_contended().into(),
            off_core: self.is_off_core.into(),
        }
    }

    /// Samples the counts of the scheduler if that is due at `now_us`, and follows from them, on
    /// the thread of `shard` itself.
    #[inline]
    pub(super) fn sample(&mut self, shard: u16, now_us: u64) {
        if now_us >= self.next_us {
            self.next_us = now_us + SAMPLE_US;
            self.sample_now(shard, now_us);
        }
    }

    #[cold]
    fn sample_now(&mut self, shard: u16, now_us: u64) {
        let Some(times) = self.stat.as_ref().and_then(SchedStat::read) else {
            return;
        };
        let now = Reading {
            at_us: now_us,
            times,
            preempted: involuntary_switches().unwrap_or(0),
        };
        self.waited_us = times.waited_us;
        let freed = self.home.as_ref().map(|it| &it.freed);
        if freed.is_some_and(|it| it.swap(false, Ordering::Acquire)) {
            self.is_off_core = true;
            self.contention.freed(now_us);
        }
        let before = self.regime;
        self.regime = self
            .contention
            .sample(now, || is_machine_full(system::online_cpus()));
        if self.regime.slice != before.slice {
            // Where it is refused, wakes are later, and all else is as it should be.
            let _ = set_time_slice(match self.regime.slice {
                TimeSlice::Long => TIME_SLICE_US,
                TimeSlice::Short => SHORT_SLICE_US,
            });
        }
        if self.regime.cpu != before.cpu {
            self.place(shard, now_us);
        }
    }

    /// Leaves the core while others want it, and comes back.
    fn place(&mut self, shard: u16, now_us: u64) {
        let Some(home) = &self.home else {
            return;
        };
        let (core, anywhere) = (home.core, home.anywhere);
        match self.regime.cpu {
            Cpu::Contended => self.is_off_core = anywhere.confine(home.thread),
            Cpu::Free => self.is_off_core = !core_affinity::set_for_current(core),
        }
        if self.is_off_core && now_us >= self.report_due_us {
            self.report_due_us = now_us + REPORT_US;
            let (core, cpus) = (core.id, anywhere.len());
            info!(
                shard,
                core,
                cpus,
                "shard {shard}: other programs want core {core}; its thread runs on any of {cpus} \
                 CPUs until they do not"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_another_one_freed_counts_as_off_its_core_from_the_next_sample_on() {
        std::thread::spawn(|| {
            let core = core_affinity::get_core_ids().and_then(|all| all.first().copied());
            let mut thread = ShardThread::on_core(core);
            let Some(home) = thread.home() else {
                eprintln!("SKIPPED: there is one CPU, or this kernel counts no run delay");
                return;
            };
            let freed = std::thread::spawn(move || (home.free(), home.free()));
            let freed = freed.join().expect("it ends well");
            assert_eq!(freed, (true, false), "the second time it may already");
            assert_eq!(thread.figures(), ThreadFigures::default());
            thread.sample(0, SAMPLE_US);
            let off = ThreadFigures {
                contended: 1,
                off_core: 1,
            };
            assert_eq!(thread.figures(), off);
        })
        .join()
        .expect("the thread ends well");
    }
}
