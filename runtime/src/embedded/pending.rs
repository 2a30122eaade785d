//! What a caller holds while a shard works for it.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use penstock_client::{Answer, ClientError};

use super::call::{Call, Waiter};
use super::mailbox::Mailbox;
use super::reply;

/// How long a caller waits beyond its deadline. The shard's thread watches the deadline too, and
/// its answer tells more.
const PATIENCE: Duration = Duration::from_millis(500);

/// The caller's share of a call.
pub(super) struct Ticket {
    call: Option<Arc<Call>>,
    mailbox: Arc<Mailbox>,
}

impl Ticket {
    pub(super) fn new(call: Arc<Call>, mailbox: &Arc<Mailbox>) -> Ticket {
        Ticket {
            call: Some(call),
            mailbox: Arc::clone(mailbox),
        }
    }

    /// Blocks until the call is done or its deadline is long over.
    #[inline]
    pub(super) fn wait(&self) {
        if !self.is_done() {
            self.wait_long();
        }
    }

    fn wait_long(&self) {
        let call = self.call();
        if self.mailbox.spin.watch(|| call.is_done()) {
            return;
        }
        let until = Instant::now() + self.mailbox.deadline + PATIENCE;
        let mut left = self.mailbox.deadline + PATIENCE;
        if !call.wake_when_done(Waiter::Thread(std::thread::current())) {
            return;
        }
        while !call.is_done() && !left.is_zero() {
            std::thread::park_timeout(left);
            left = until.saturating_duration_since(Instant::now());
        }
    }

    /// The reply of a call that was waited for.
    #[inline]
    pub(super) fn read<T>(
        &self,
        read: impl FnOnce(&[u8]) -> Result<T, ClientError>,
    ) -> Result<T, ClientError> {
        let mut content = self.call().lock();
        if !self.is_done() {
            return Err(ClientError::Unknown("no answer within the deadline".into()));
        }
        match content.error.take() {
            Some(error) => Err(error),
            None => read(&content.reply),
        }
    }

    pub(super) fn poll(&self, context: &Context<'_>) -> Poll<()> {
        let waker = context.waker();
        if self.is_done() || !self.call().wake_when_done(Waiter::Task(waker.clone())) {
            return Poll::Ready(());
        }
        Poll::Pending
    }

    #[inline]
    fn is_done(&self) -> bool {
        self.call().is_done()
    }

    #[inline]
    fn call(&self) -> &Call {
        self.call.as_ref().expect("taken only when it is dropped")
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if let Some(call) = self.call.take() {
            self.mailbox.let_go(call);
        }
    }
}

/// An operation that was asked and may not be answered yet. Dropping it does not take it back.
#[must_use = "the outcome says whether the operation took effect"]
pub struct Pending<T> {
    /// The call, or why nothing was sent.
    ticket: Result<Ticket, ClientError>,
    read: fn(&[u8]) -> Result<T, ClientError>,
}

impl<T> Pending<T> {
    pub(super) fn new(
        ticket: Result<Ticket, ClientError>,
        read: fn(&[u8]) -> Result<T, ClientError>,
    ) -> Pending<T> {
        Pending { ticket, read }
    }

    /// Blocks until the answer or the deadline. Watches for the answer for the time of
    /// [`Options::spin`](super::Options::spin), then sleeps.
    ///
    /// # Errors
    /// [`ClientError`].
    #[inline]
    pub fn wait(self) -> Result<T, ClientError> {
        let ticket = self.ticket?;
        ticket.wait();
        ticket.read(self.read)
    }
}

/// Resolves when the shard has answered, in any executor.
impl<T> Future for Pending<T> {
    type Output = Result<T, ClientError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &self.ticket {
            Err(error) => Poll::Ready(Err(error.clone())),
            Ok(ticket) => ticket.poll(context).map(|()| ticket.read(self.read)),
        }
    }
}

impl<T> fmt::Debug for Pending<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending").finish_non_exhaustive()
    }
}

/// The operations of a batch that were asked and may not be answered yet.
#[must_use = "the outcomes say which operations took effect"]
pub struct PendingBatch {
    /// Each frame, and the numbers of its items in the batch.
    frames: Vec<(Result<Ticket, ClientError>, Vec<usize>)>,
    operations: usize,
}

impl PendingBatch {
    pub(super) fn new(
        frames: Vec<(Result<Ticket, ClientError>, Vec<usize>)>,
        operations: usize,
    ) -> PendingBatch {
        PendingBatch { frames, operations }
    }

    /// Blocks until all are answered or their deadline is over: one outcome for each operation, in
    /// their order. An outcome is `Ok` if the operation was answered, whatever its status.
    #[must_use]
    pub fn wait(self) -> Vec<Result<Answer, ClientError>> {
        for (ticket, _) in &self.frames {
            if let Ok(ticket) = ticket {
                ticket.wait();
            }
        }
        self.read()
    }

    fn read(&self) -> Vec<Result<Answer, ClientError>> {
        let lost = ClientError::Unknown("no answer within the deadline".into());
        let mut outcomes = vec![Err(lost); self.operations];
        for (ticket, numbers) in &self.frames {
            let answered = match ticket {
                Err(error) => Err(error.clone()),
                Ok(ticket) => ticket.read(|frames| {
                    reply::items(frames, |item| {
                        if let Some(&number) = numbers.get(usize::from(item.head.item)) {
                            outcomes[number] = Ok(Answer::of_item(&item));
                        }
                    })
                }),
            };
            if let Err(error) = answered {
                for &number in numbers {
                    outcomes[number] = Err(error.clone());
                }
            }
        }
        outcomes
    }
}

/// Resolves when all are answered, in any executor.
impl Future for PendingBatch {
    type Output = Vec<Result<Answer, ClientError>>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        // Every ticket is polled, so that whichever is answered last wakes the task.
        let mut is_ready = true;
        for (ticket, _) in &self.frames {
            if let Ok(ticket) = ticket {
                is_ready &= ticket.poll(context).is_ready();
            }
        }
        match is_ready {
            true => Poll::Ready(self.read()),
            false => Poll::Pending,
        }
    }
}

impl fmt::Debug for PendingBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingBatch")
            .field("operations", &self.operations)
            .finish_non_exhaustive()
    }
}
