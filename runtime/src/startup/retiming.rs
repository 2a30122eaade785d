//! Timing the disk again: a calibration that was made while others wanted the CPU tells of them,
//! not of the disk.
//!
//! It is repeated on a thread of its own, when nothing has waited for a CPU for a moment, and kept
//! for the next start. Logs that run keep their method: which completion makes a record durable
//! must not change under records that are on their way, and a start costs less than a rule for
//! that.

use std::io;
use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::Duration;

use penstock_storage::log::SyncMethod;
use tracing::{info, warn};

use crate::directory::Segments;
use crate::disk::arena::{Arena, ArenaLayout};
use crate::disk::{Disk, DiskOptions};
use crate::startup::calibration::{self, Calibration, calibrate};
use crate::system::cpu_wait::CpuWait;

/// Between two looks whether the machine is quiet.
const PAUSE: Duration = Duration::from_secs(10);
/// How long nothing must have waited for a CPU.
const QUIET: Duration = Duration::from_millis(500);
/// Looks before it is left to the next start: an hour of them.
const CHECKS_MAX: u32 = 360;

/// What is timed, and where that is kept.
pub(crate) struct Retiming {
    pub(crate) data: PathBuf,
    pub(crate) segments: Segments,
    /// The device, as the file names it.
    pub(crate) device: String,
    pub(crate) options: DiskOptions,
    /// What the logs do until the next start.
    pub(crate) method: SyncMethod,
}

/// The thread; it ends when this is dropped.
pub(crate) struct RetimingThread {
    stop: Option<flume::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for RetimingThread {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Retiming {
    /// Waits for a quiet moment on a thread of its own.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(crate) fn start(self) -> io::Result<RetimingThread> {
        let (stop, stopped) = flume::bounded::<()>(0);
        let thread = std::thread::Builder::new()
            .name("penstock-timing".into())
            .spawn(move || self.run(&stopped))?;
        Ok(RetimingThread {
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    fn run(&self, stopped: &flume::Receiver<()>) {
        let sleep = |time| stopped.recv_timeout(time) == Err(flume::RecvTimeoutError::Timeout);
        let is_quiet = || {
            let wait = CpuWait::begin();
            sleep(QUIET).then(|| !wait.is_long())
        };
        // Without one the next start times the disk.
        if let Some(found) = when_quiet(|| sleep(PAUSE), is_quiet, || self.time()) {
            self.keep(&found);
        }
    }

    fn time(&self) -> io::Result<Calibration> {
        let arena = Arena::new(ArenaLayout::default())?;
        let mut disk = Disk::open(self.options, &arena).map_err(io::Error::other)?;
        if !self.device.ends_with(&disk.describe()) {
            return Err(io::Error::other("another set-up than that of the shards"));
        }
        calibrate(&mut disk, &arena, &self.segments)
    }

    fn keep(&self, found: &Calibration) {
        let (durable, synced) = (found.durable_write_us, found.write_then_sync_us);
        if let Err(error) = calibration::keep(&self.data, &self.device, found) {
            warn!(%error, "CALIBRATION cannot be written, the next start times the disk again: \
                {error}");
        }
        let method = found.method_name();
        match found.method == self.method {
            true => info!(
                durable_write_us = durable,
                write_then_sync_us = synced,
                "the disk is timed again on a quiet machine: {method} stay the faster way"
            ),
            false => warn!(
                durable_write_us = durable,
                write_then_sync_us = synced,
                "the disk is timed again on a quiet machine: {method} are the faster way; the \
                 next start takes it"
            ),
        }
    }
}

/// The first timing that met a quiet machine from its begin to its end. `pause` and `is_quiet` end
/// it by false and none.
fn when_quiet(
    mut pause: impl FnMut() -> bool,
    mut is_quiet: impl FnMut() -> Option<bool>,
    mut time: impl FnMut() -> io::Result<Calibration>,
) -> Option<Calibration> {
    for _ in 0..CHECKS_MAX {
        if !pause() {
            return None;
        }
        if !is_quiet()? {
            continue;
        }
        // A full disk is one of the reasons for a failure, and may have room later.
        if let Some(found) = time().ok().filter(|found| !found.is_loaded) {
            return Some(found);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(is_loaded: bool) -> Calibration {
        Calibration {
            durable_write_us: 80,
            write_then_sync_us: 150,
            read_us: 70,
            method: SyncMethod::DurableWrite,
            is_loaded,
        }
    }

    #[test]
    fn only_a_timing_that_was_quiet_from_begin_to_end_counts() {
        let mut checks = [false, false, true, true, true].into_iter();
        let full = io::ErrorKind::StorageFull;
        let mut timings = [Err(full.into()), Ok(found(true)), Ok(found(false))].into_iter();
        let counts = when_quiet(
            || true,
            || checks.next(),
            || timings.next().expect("no more than three times"),
        );
        assert_eq!(counts, Some(found(false)));
        assert_eq!((checks.next(), timings.next().is_none()), (None, true));
    }

    #[test]
    fn a_machine_that_is_never_quiet_is_given_up_and_a_stop_is_noticed() {
        let mut pauses = 0;
        let mut pause = || {
            pauses += 1;
            true
        };
        let time = || -> io::Result<Calibration> { panic!("it is not quiet") };
        assert_eq!(when_quiet(&mut pause, || Some(false), time), None);
        assert_eq!(pauses, CHECKS_MAX);
        assert_eq!(when_quiet(|| false, || Some(true), time), None);
        assert_eq!(when_quiet(|| true, || None, time), None);
    }
}
