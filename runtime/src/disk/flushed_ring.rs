//! A ring, and a few threads beside it that make writes durable while the ring is slow at that.
//!
//! [`DurableWay`] decides which of both carries out a durable write or a sync; a log uses one of
//! the two. An arrival of a thread wakes the loop through the ring: the ring polls the threads'
//! counter, so one descriptor wakes for both.

use std::io;
use std::time::{Duration, Instant};

use tracing::{info, warn};

use super::durable_way::{Change, DurableWay, Moment, Way};
use super::slots::Kind;
use super::threads::Threads;
use super::uring::Uring;
use super::{Arrival, Order};
use crate::config::DurableBy;
use crate::system;

/// Threads beside a ring: as many as a log has frames in flight by default.
const FLUSHERS: u32 = 2;

/// A ring with its flusher, if it has one.
pub(super) struct FlushedRing {
    pub(super) ring: Uring,
    flusher: Option<Flusher>,
}

/// The threads and what they are measured by.
struct Flusher {
    threads: Threads,
    way: DurableWay,
    /// Durable writes and syncs that have begun and not ended, of both ways.
    begun: Vec<Begun>,
    /// How many of them the threads have.
    with_threads: usize,
    clock: Instant,
}

/// A durable write or a sync that is under way.
#[derive(Clone, Copy)]
struct Begun {
    key: u64,
    way: Way,
    begun: Moment,
}

impl FlushedRing {
    /// A ring for `writes_max` writes at once, with threads beside it if `durable_by` allows them.
    ///
    /// # Errors
    /// The threads cannot be started, and nothing else is to make writes durable.
    pub(super) fn start(ring: Uring, durable_by: DurableBy, writes_max: u32) -> io::Result<Self> {
        let flusher = match durable_by {
            DurableBy::Ring => None,
            DurableBy::Auto => match Flusher::start(DurableWay::best(), writes_max) {
                Ok(flusher) => Some(flusher),
                Err(error) => {
                    warn!(
                        %error,
                        "no thread could be started that makes writes durable while the ring is \
                         slow: {error}; raise the limit of tasks (ulimit -u, TasksMax)"
                    );
                    None
                }
            },
            DurableBy::Thread => Some(Flusher::start(
                DurableWay::always(Way::Flusher),
                writes_max,
            )?),
        };
        Ok(FlushedRing { ring, flusher })
    }

    /// Whether the threads make the durable writes at present.
    pub(super) fn is_flusher_in_use(&self) -> bool {
        let flusher = self.flusher.as_ref();
        flusher.is_some_and(|flusher| flusher.way.home() == Way::Flusher)
    }

    /// Begins an order. Tells whether a thread has it: others wait in the ring for
    /// [`FlushedRing::flush`].
    pub(super) fn begin(&mut self, order: Order) -> bool {
        if matches!(order.kind, Kind::Write { durable: true } | Kind::Sync)
            && let Some(flusher) = &mut self.flusher
            && flusher.note_begin(order.key) == Way::Flusher
        {
            self.ring.watch(flusher.threads.counter());
            flusher.threads.hand_over(order);
            return true;
        }
        self.ring.queue(&order);
        false
    }

    /// Hands to the kernel what waits in the ring. `in_flight` counts what is begun, of both ways.
    pub(super) fn flush(&mut self, in_flight: usize) -> io::Result<()> {
        let flusher = self.flusher.as_ref();
        let with_threads = flusher.map_or(0, |flusher| flusher.with_threads);
        // The end of a thread's write frees nothing that the ring may lack.
        self.ring.flush(in_flight - with_threads)
    }

    /// The next completion of either way. No system call.
    #[inline]
    pub(super) fn next_arrival(&mut self) -> Option<Arrival> {
        let Some(flusher) = &mut self.flusher else {
            return self.ring.next_arrival();
        };
        let mut arrival = self.ring.next_arrival();
        if arrival.is_none() && flusher.with_threads > 0 {
            arrival = flusher.threads.next_arrival();
        }
        if let Some(arrival) = &arrival
            && !flusher.begun.is_empty()
        {
            flusher.note_end(arrival.key);
        }
        arrival
    }

    /// Blocks until something arrived or the time is over.
    pub(super) fn wait(&mut self, at_most: Duration) -> io::Result<()> {
        self.ring.wait(at_most)
    }

    /// Lets the threads go without waiting for them: one hangs in the device.
    pub(super) fn abandon(&mut self) {
        if let Some(flusher) = &mut self.flusher {
            flusher.threads.abandon();
        }
    }
}

impl Flusher {
    fn start(way: DurableWay, writes_max: u32) -> io::Result<Flusher> {
        Ok(Flusher {
            threads: Threads::start(FLUSHERS, writes_max)?,
            way,
            begun: Vec::with_capacity(writes_max as usize),
            with_threads: 0,
            clock: Instant::now(),
        })
    }

    fn note_begin(&mut self, key: u64) -> Way {
        let (way, begun) = (self.way.of_next(), self.now());
        self.begun.push(Begun { key, way, begun });
        self.with_threads += usize::from(way == Way::Flusher);
        way
    }

    fn note_end(&mut self, key: u64) {
        let Some(at) = self.begun.iter().position(|it| it.key == key) else {
            return;
        };
        let Begun { way, begun, .. } = self.begun.swap_remove(at);
        self.with_threads -= usize::from(way == Way::Flusher);
        // One that failed counts, too: a trial ends only with its last write.
        if let Some(change) = self.way.ended(self.now(), way, begun) {
            tell(change);
        }
    }

    fn now(&self) -> Moment {
        let at_us = self.clock.elapsed().as_micros();
        Moment {
            at_us: u64::try_from(at_us).expect("half a million years"),
            ran_us: match self.way.looks_closely() {
                true => system::thread_ran_us(),
                false => 0,
            },
        }
    }
}

fn tell(change: Change) {
    let Change {
        to,
        before_us,
        after_us,
    } = change;
    match to {
        Way::Flusher => info!(
            before_us,
            after_us,
            "a thread makes writes durable from now on, in {after_us} us: by the ring they take \
             {before_us} us, because the kernel's workers wait for a CPU"
        ),
        Way::Ring => info!(
            before_us,
            after_us,
            "the ring makes writes durable again, in {after_us} us; by a thread they take \
             {before_us} us"
        ),
    }
}
