//! One frame on its way from a caller to a shard and back. A call belongs to its caller and to the
//! shard's thread until both have given it back. Then the next caller uses the call and its buffers
//! again, so a call in steady state takes nothing from the heap.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::thread::Thread;

use penstock_client::ClientError;

/// A buffer larger than this is given back when its call ends.
const BYTES_KEPT: usize = 64 << 10;

/// A frame and its reply.
pub(super) struct Call {
    /// The request id, which is also the place of the call in the table of the shard's thread.
    pub(super) id: u32,
    is_done: AtomicBool,
    content: Mutex<Content>,
}

/// What caller and shard give each other.
pub(super) struct Content {
    /// One whole request frame.
    pub(super) request: Vec<u8>,
    /// The frames of the reply, in their order.
    pub(super) reply: Vec<u8>,
    /// Why there is no reply.
    pub(super) error: Option<ClientError>,
    waiter: Option<Waiter>,
    /// One of caller and shard has given the call back.
    has_one_left: bool,
}

/// The caller that waits for the reply.
pub(super) enum Waiter {
    Thread(Thread),
    Task(Waker),
}

impl Call {
    pub(super) fn new(id: u32) -> Call {
        Call {
            id,
            is_done: AtomicBool::new(false),
            content: Mutex::new(Content {
                request: Vec::new(),
                reply: Vec::new(),
                error: None,
                waiter: None,
                has_one_left: false,
            }),
        }
    }

    #[inline]
    pub(super) fn lock(&self) -> MutexGuard<'_, Content> {
        // Only a bug panics while the lock is held, and then any state will do.
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the reply or the error is complete.
    #[inline]
    pub(super) fn is_done(&self) -> bool {
        self.is_done.load(Ordering::Acquire)
    }

    /// Asks to be woken when the call is done; `false` if it is done already.
    pub(super) fn wake_when_done(&self, waiter: Waiter) -> bool {
        let mut content = self.lock();
        let is_pending = !self.is_done();
        content.waiter = is_pending.then_some(waiter);
        is_pending
    }

    /// Completes the call, with the reply in its content or with an error. The first time counts.
    pub(super) fn finish(&self, mut content: MutexGuard<'_, Content>, error: Option<ClientError>) {
        if self.is_done() {
            return;
        }
        content.error = error;
        let waiter = content.waiter.take();
        // Before the lock is released, so that nobody begins to wait for a call that is done.
        self.is_done.store(true, Ordering::Release);
        drop(content);
        match waiter {
            Some(Waiter::Thread(thread)) => thread.unpark(),
            Some(Waiter::Task(waker)) => waker.wake(),
            None => {}
        }
    }

    /// Gives the call back for the caller or for the shard. Returns `true` when both have done so:
    /// then the call can be used again.
    pub(super) fn let_go(&self) -> bool {
        let mut content = self.lock();
        if !std::mem::replace(&mut content.has_one_left, true) {
            return false;
        }
        content.has_one_left = false;
        content.error = None;
        content.waiter = None;
        let Content { request, reply, .. } = &mut *content;
        for buffer in [request, reply] {
            buffer.clear();
            if buffer.capacity() > BYTES_KEPT {
                *buffer = Vec::new();
            }
        }
        self.is_done.store(false, Ordering::Relaxed);
        true
    }
}
