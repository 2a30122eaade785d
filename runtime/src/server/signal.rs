//! How tasks of one core wake each other.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::task::{Poll, Waker};

/// Something that one task waits for and others announce.
#[derive(Default)]
pub(crate) struct Signal {
    is_set: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl Signal {
    #[inline]
    pub(crate) fn set(&self) {
        if !self.is_set.replace(true)
            && let Some(waker) = self.waker.borrow().as_ref()
        {
            waker.wake_by_ref();
        }
    }

    /// Takes the announcement, or arranges to be woken by the next.
    #[inline]
    pub(crate) fn poll(&self, context: &mut std::task::Context<'_>) -> Poll<()> {
        if self.is_set.take() {
            return Poll::Ready(());
        }
        let mut waker = self.waker.borrow_mut();
        if !waker
            .as_ref()
            .is_some_and(|waker| waker.will_wake(context.waker()))
        {
            *waker = Some(context.waker().clone());
        }
        Poll::Pending
    }

    pub(crate) async fn wait(&self) {
        poll_fn(|context| self.poll(context)).await;
    }
}
