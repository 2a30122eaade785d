//! A few threads that call pread and pwrite: what stands in for the ring where the kernel gives
//! none, and what makes writes durable beside a ring that is slow at that.
//!
//! Orders go out through a channel as long as the disk may have in flight, so handing one over
//! never blocks; arrivals come back through another, and each raises an event counter that the
//! network's loop polls.
#![expect(unsafe_code, reason = "the memory of an order is a raw address")]

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use super::slots::Kind;
use super::{Arrival, Order};
use crate::system;

pub(super) struct Threads {
    /// None once the threads are told to end.
    orders: Option<flume::Sender<Order>>,
    arrivals: flume::Receiver<Arrival>,
    /// Taken from the channel by [`Threads::wait`], to be the next arrival.
    early: Option<Arrival>,
    counter: Arc<OwnedFd>,
    workers: Vec<JoinHandle<()>>,
}

// SAFETY: an order crosses to a worker as bare numbers. The block behind the address stays in the
// slot table, untouched by its owner, until the worker's arrival has been reaped, and the channel
// orders the memory accesses of both sides.
unsafe impl Send for Order {}

impl Threads {
    pub(super) fn start(count: u32, in_flight_max: u32) -> io::Result<Self> {
        assert!(count > 0, "a disk needs a thread");
        let (orders, inbox) = flume::bounded::<Order>(in_flight_max as usize);
        let (outbox, arrivals) = flume::bounded(in_flight_max as usize);
        let counter = Arc::new(system::event_counter()?);
        let workers = (0..count)
            .map(|_| {
                let (inbox, outbox, counter) =
                    (inbox.clone(), outbox.clone(), Arc::clone(&counter));
                std::thread::Builder::new()
                    .name("penstock-disk".into())
                    .spawn(move || {
                        while let Ok(order) = inbox.recv() {
                            let arrival = Arrival {
                                key: order.key,
                                result: perform(&order),
                            };
                            if outbox.send(arrival).is_err() {
                                return;
                            }
                            system::signal(counter.as_fd());
                        }
                    })
            })
            .collect::<io::Result<_>>()?;
        Ok(Self {
            orders: Some(orders),
            arrivals,
            early: None,
            counter,
            workers,
        })
    }

    pub(super) fn describe(&self) -> String {
        format!("{} threads with pread and pwrite", self.workers.len())
    }

    pub(super) fn wake_fd(&self) -> io::Result<OwnedFd> {
        self.counter.try_clone()
    }

    pub(super) fn clear_wake(&self) {
        system::clear_signal(self.counter.as_fd());
    }

    pub(super) fn hand_over(&mut self, order: Order) {
        let orders = self.orders.as_ref().expect("the threads end with the disk");
        let handed = orders.try_send(order);
        assert!(
            handed.is_ok(),
            "the channel holds all that may be in flight, and a thread lives"
        );
    }

    #[inline]
    pub(super) fn next_arrival(&mut self) -> Option<Arrival> {
        self.early.take().or_else(|| self.arrivals.try_recv().ok())
    }

    /// Blocks until something arrived or the time is over.
    pub(super) fn wait(&mut self, at_most: Duration) {
        if self.early.is_none() {
            self.early = self.arrivals.recv_timeout(at_most).ok();
        }
    }

    /// Lets the threads go without waiting for them: one hangs in the device.
    pub(super) fn abandon(&mut self) {
        self.workers.clear();
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.orders = None;
        for worker in self.workers.drain(..) {
            // A worker that panicked left its order unanswered, which the disk has noticed.
            let _ = worker.join();
        }
    }
}

/// Does what the order says, on the calling thread: bytes moved, or a negative errno.
pub(super) fn perform(order: &Order) -> i32 {
    loop {
        let result = match (order.kind, order.span) {
            (Kind::Read, Some(_)) => read(order),
            (Kind::Write { durable: false }, Some(_)) => write(order, 0),
            (Kind::Write { durable: true }, Some(_)) => write_durably(order),
            (Kind::Sync, _) | (_, None) => sync(order),
        };
        match result {
            Ok(moved) => return moved,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return -error.raw_os_error().unwrap_or(libc::EIO),
        }
    }
}

fn write_durably(order: &Order) -> io::Result<i32> {
    match write(order, libc::RWF_DSYNC) {
        Err(error) if matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOSYS)) => {
            let moved = write(order, 0)?;
            sync(order)?;
            Ok(moved)
        }
        result => result,
    }
}

fn write(order: &Order, flags: libc::c_int) -> io::Result<i32> {
    let part = part(order);
    // SAFETY: the disk keeps the descriptor open and the block of this span in its slot until the
    // arrival is reaped, and the length was checked to fit the block.
    moved(unsafe { libc::pwritev2(order.fd, &raw const part, 1, offset(order), flags) })
}

fn read(order: &Order) -> io::Result<i32> {
    let part = part(order);
    // SAFETY: as in `write`; nobody else touches the block meanwhile.
    moved(unsafe { libc::preadv2(order.fd, &raw const part, 1, offset(order), 0) })
}

fn sync(order: &Order) -> io::Result<i32> {
    // SAFETY: no memory is involved; the disk keeps the descriptor open.
    moved(unsafe { libc::fdatasync(order.fd) } as isize)
}

fn part(order: &Order) -> libc::iovec {
    let address = order.span.map_or(std::ptr::null_mut(), |span| span.address);
    libc::iovec {
        iov_base: address.cast(),
        iov_len: order.len as usize,
    }
}

fn offset(order: &Order) -> i64 {
    i64::try_from(order.offset).expect("a segment is far shorter than that")
}

fn moved(result: isize) -> io::Result<i32> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(i32::try_from(result).expect("no more moves than the length, which fits"))
}
