//! A shard's clock, and how its thread waits until there is something to do.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use penstock_shard::Now;

use super::doorbell::Doorbell;
use crate::event_loop::engine::Engine;
use crate::event_loop::spin::Spin;
use crate::system::boot_clock::BootClock;
use crate::system::wall::WallClock;

/// The clock of a shard and what wakes it.
pub(super) struct Watch {
    pub(super) clock: BootClock,
    pub(super) wall: WallClock,
    /// How long to watch before sleeping.
    pub(super) spin: Spin,
    /// Readable when the disk has finished something.
    pub(super) disk: OwnedFd,
}

impl Watch {
    #[inline]
    pub(super) fn now(&self) -> Now {
        let us = self.clock.now_us();
        Now {
            us,
            unix_ms: self.wall.at(us, || self.clock.now_us()),
        }
    }

    /// Waits until the bell rings, the disk has finished something (which the shard is given), or
    /// `deadline_us` of the shard's clock.
    pub(super) fn wait(&self, engine: &mut Engine, doorbell: &Doorbell, deadline_us: Option<u64>) {
        let mut now = self.now();
        let is_over = |now: Now| deadline_us.is_some_and(|deadline_us| now.us >= deadline_us);
        let is_contended = engine.is_contended();
        let mut has_work = || doorbell.is_rung() || self.check_disk(engine, now);
        // A deadline may be noticed late, by the time of one watch at most.
        if is_over(now)
            || match is_contended {
                true => has_work(),
                false => self.spin.watch(has_work),
            }
        {
            return;
        }
        now = self.now();
        if is_over(now) {
            return;
        }
        let at_most = deadline_us.map(|deadline_us| Duration::from_micros(deadline_us - now.us));
        doorbell.sleep(self.disk.as_fd(), at_most);
        engine.disk.clear_wake();
        engine.reap(self.now());
    }

    #[inline]
    fn check_disk(&self, engine: &mut Engine, now: Now) -> bool {
        // An error of the poll shows itself again when the turn gives the disk its requests.
        engine.disk.in_flight() > 0 && {
            let _ = engine.disk.poll();
            engine.reap(now)
        }
    }
}
