//! How a thread learns that something waits for it: it watches a flag while it is awake, and is
//! woken by a descriptor when it sleeps. Ringing costs a system call only in the latter case.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::time::Duration;

use crate::system;

/// One thread's doorbell; anybody may ring it.
pub(super) struct Doorbell {
    is_rung: AtomicBool,
    is_asleep: AtomicBool,
    wake: OwnedFd,
}

impl Doorbell {
    pub(super) fn new() -> io::Result<Doorbell> {
        Ok(Doorbell {
            is_rung: AtomicBool::new(false),
            is_asleep: AtomicBool::new(false),
            wake: system::event_counter()?,
        })
    }

    /// Rings. Call it after the thing that is announced was put where the thread looks for it.
    #[inline]
    pub(super) fn ring(&self) {
        self.is_rung.store(true, Ordering::Release);
        // Either this load sees that the thread sleeps, or the thread sees the flag before it
        // sleeps. The other fence is in `sleep`.
        fence(Ordering::SeqCst);
        if self.is_asleep.load(Ordering::Relaxed) && self.is_asleep.swap(false, Ordering::Relaxed) {
            system::signal(self.wake.as_fd());
        }
    }

    #[inline]
    pub(super) fn is_rung(&self) -> bool {
        self.is_rung.load(Ordering::Relaxed)
    }

    /// Takes the ring back. Call it before you look for the things that were announced.
    #[inline]
    pub(super) fn answer(&self) {
        if self.is_rung() {
            self.is_rung.swap(false, Ordering::Acquire);
        }
    }

    /// Sleeps until the bell rings, `other` becomes readable or the time is over.
    pub(super) fn sleep(&self, other: BorrowedFd<'_>, at_most: Option<Duration>) {
        self.is_asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if !self.is_rung() {
            system::wait_readable([self.wake.as_fd(), other], at_most);
        }
        if !self.is_asleep.swap(false, Ordering::Relaxed) {
            system::clear_signal(self.wake.as_fd());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn no_ring_is_slept_through() {
        const RINGS: u64 = 2_000;
        let bell = Arc::new(Doorbell::new().expect("an eventfd"));
        let never = system::event_counter().expect("an eventfd");
        let (asked, seen) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let ringer = {
            let (bell, asked, seen) = (Arc::clone(&bell), Arc::clone(&asked), Arc::clone(&seen));
            std::thread::spawn(move || {
                for number in 1..=RINGS {
                    asked.store(number, Ordering::Relaxed);
                    bell.ring();
                    while seen.load(Ordering::Relaxed) < number {
                        std::thread::yield_now();
                    }
                }
            })
        };
        while seen.load(Ordering::Relaxed) < RINGS {
            // Without an end: a ring that was lost would hang the test.
            bell.sleep(never.as_fd(), None);
            bell.answer();
            seen.store(asked.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        ringer.join().expect("the ringer ends well");
    }
}
