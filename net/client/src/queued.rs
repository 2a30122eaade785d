//! One operation on its way, from the call to its outcome.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use crate::named::NamedWrite;
use crate::operation::{Answer, ClientError, Promise, Unknown};
use crate::options::ReadFrom;
use penstock_net::frame::Opcode;
use penstock_net::level::AckLevel;
use penstock_net::request::{Ask, Effect, Token};
use penstock_net::status::{Executed, Status};

/// An operation on its way.
pub(crate) struct Queued {
    /// What its answer must have reached.
    pub(crate) level: AckLevel,
    pub(crate) until: Instant,
    /// The partition of its key; none if the operation is about more than one key.
    pub(crate) partition: Option<u16>,
    /// Members are asked first.
    pub(crate) member: Option<MemberTry>,
    /// How often a node has answered that another node must be asked.
    pub(crate) tries: u32,
    /// How often it was sent again because a node had answered BUSY or a connection had ended.
    pub(crate) retries: u32,
    /// An earlier try may have been executed. Of all writes only one with a token is sent again
    /// then.
    pub(crate) is_in_doubt: bool,
    pub(crate) what: What,
    pub(crate) _counted: Counted,
}

/// Counts one operation among those that wait or are under way, until it is dropped.
pub(crate) struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn one_more(count: &Arc<AtomicUsize>) -> Counted {
        count.fetch_add(1, Ordering::Relaxed);
        Counted(Arc::clone(count))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// An operation that a node has answered BUSY: it was not executed.
pub(crate) struct Refused {
    pub(crate) queued: Queued,
    /// What the caller is told if it is not sent again.
    pub(crate) outcome: Result<Answer, ClientError>,
    /// When the node is likely to have room, as it tells: 0 if it does not.
    pub(crate) retry_after_ms: u16,
}

/// A read that a member may answer.
pub(crate) struct MemberTry {
    pub(crate) from: ReadFrom,
    /// Whether the primary is asked if the member cannot answer.
    pub(crate) or_writer: bool,
}

pub(crate) enum What {
    /// A request item and who waits for its answer.
    Item { item: Item, done: Box<dyn Waiter> },
    /// A whole frame and who waits for its reply.
    Frame {
        opcode: Opcode,
        body: &'static [u8],
        done: Box<dyn FrameWaiter>,
    },
}

/// A request item.
pub(crate) enum Item {
    /// It has no token.
    Plain {
        bytes: Vec<u8>,
        /// It changes nothing, so it may be executed twice.
        is_read: bool,
    },
    /// A write with a token.
    Named {
        write: NamedWrite,
        /// The caller gave the token, so a server that knows none is not asked.
        by_caller: bool,
    },
}

impl Item {
    /// What is asked without a token.
    pub(crate) fn of(ask: &Ask<'_>) -> Item {
        Item::Plain {
            bytes: ask.encode(),
            is_read: ask.effect() == Effect::Reads,
        }
    }

    /// The item without a token.
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Item::Plain { bytes, .. } => bytes,
            Item::Named { write, .. } => write.item(),
        }
    }

    pub(crate) fn write(&self) -> Option<&NamedWrite> {
        match self {
            Item::Plain { .. } => None,
            Item::Named { write, .. } => Some(write),
        }
    }
}

pub(crate) trait Waiter: Send {
    /// It was sent, with its token or without one.
    fn sent(&self, is_named: bool);
    /// It was not executed, and will be sent again.
    fn put_back(&self);
    fn done(&self, outcome: Result<Answer, ClientError>);
}

pub(crate) trait FrameWaiter: Send {
    fn sent(&self);
    fn done(&self, outcome: Result<&[u8], ClientError>);
}

impl What {
    pub(crate) fn opcode(&self) -> Opcode {
        match self {
            What::Item { .. } => Opcode::Batch,
            What::Frame { opcode, .. } => *opcode,
        }
    }

    /// Notes that it is sent, over a connection whose server knows tokens or does not.
    pub(crate) fn sent(&self, knows_tokens: bool) {
        match self {
            What::Item { item, done } => done.sent(knows_tokens && item.write().is_some()),
            What::Frame { done, .. } => done.sent(),
        }
    }

    pub(crate) fn put_back(&self) {
        if let What::Item { done, .. } = self {
            done.put_back();
        }
    }

    fn write(&self) -> Option<&NamedWrite> {
        match self {
            What::Item { item, .. } => item.write(),
            What::Frame { .. } => None,
        }
    }

    fn fail(&self, error: ClientError) {
        match self {
            What::Item { done, .. } => done.done(Err(error)),
            What::Frame { done, .. } => done.done(Err(error)),
        }
    }
}

impl Queued {
    /// An operation that was just asked. It counts in `pending` until it is over.
    pub(crate) fn new(what: What, until: Instant, pending: &Arc<AtomicUsize>) -> Queued {
        Queued {
            level: AckLevel::Disk,
            until,
            partition: None,
            member: None,
            tries: 0,
            retries: 0,
            is_in_doubt: false,
            what,
            _counted: Counted::one_more(pending),
        }
    }

    pub(crate) fn token(&self) -> Option<Token> {
        self.what.write().map(NamedWrite::token)
    }

    /// Whether it may be sent again though this try may have been executed: by a connection whose
    /// server knows tokens or does not.
    pub(crate) fn may_be_repeated(&self, knows_tokens: bool) -> bool {
        match &self.what {
            What::Item { item, .. } => match item {
                Item::Plain { is_read, .. } => *is_read,
                Item::Named { .. } => knows_tokens || self.is_in_doubt,
            },
            What::Frame { .. } => false,
        }
    }

    /// Notes that this try may have been executed. A try without a token is over then.
    pub(crate) fn doubt(&mut self) {
        self.is_in_doubt = self.what.write().is_some();
    }

    /// It was not executed by this try, and will be sent again.
    pub(crate) fn put_back(&self) {
        if !self.is_in_doubt {
            self.what.put_back();
        }
    }

    /// Tells the caller the outcome of the last try.
    pub(crate) fn settle(self, outcome: Result<Answer, ClientError>) {
        match outcome {
            Ok(answer) if self.is_in_doubt && !names_earlier_tries(answer.status) => {
                let says_so = answer.status.executed() == Executed::Unknown;
                let said_by = says_so.then(|| Box::new(answer.clone()));
                self.fail(match answer.ok() {
                    Ok(_) => unreachable!("OK tells of earlier tries"),
                    Err(ClientError::Unknown(unknown)) => {
                        ClientError::Unknown(unknown.said_by(said_by))
                    }
                    Err(error) => error,
                });
            }
            Ok(answer) => {
                if let What::Item { done, .. } = self.what {
                    done.done(Ok(answer));
                }
            }
            Err(error) => self.fail(error),
        }
    }

    /// Gives it up. What an error of the last try says is not true of a try before it.
    pub(crate) fn fail(self, error: ClientError) {
        let write = self.what.write().filter(|_| self.is_in_doubt);
        let error = match (write, error) {
            (None, error) => error,
            (Some(write), ClientError::Unknown(unknown)) => {
                let text = unknown.text().to_string();
                let said_by = unknown.answer().cloned().map(Box::new);
                let unknown = Unknown::of_write(text, write.clone()).said_by(said_by);
                ClientError::Unknown(unknown)
            }
            (Some(write), error) => {
                let text =
                    format!("an earlier try was sent and not answered; the last one: {error}");
                ClientError::Unknown(Unknown::of_write(text, write.clone()))
            }
        };
        self.what.fail(error);
    }
}

/// Whether the server gives such an answer to a write only after it has looked for its token. Then
/// the answer tells that no try before this one was executed when this one ran, or repeats the
/// answer of the one that was.
fn names_earlier_tries(status: Status) -> bool {
    matches!(
        status,
        Status::Ok
            | Status::GuardFailed
            | Status::NotFound
            | Status::Exists
            | Status::VersionMismatch
            | Status::BadField
            | Status::WrongType
            | Status::TokenReused
    )
}

/// Waits for an answer that is read as a `T`.
pub(crate) struct AnswerWaiter<T> {
    pub(crate) promise: Arc<Promise<T>>,
    pub(crate) read: fn(Answer) -> Result<T, ClientError>,
}

impl<T: Send> Waiter for AnswerWaiter<T> {
    fn sent(&self, is_named: bool) {
        self.promise.mark_sent(is_named);
    }

    fn put_back(&self) {
        self.promise.mark_put_back();
    }

    fn done(&self, outcome: Result<Answer, ClientError>) {
        self.promise.keep(outcome.and_then(self.read));
    }
}

/// Waits for the reply to a whole frame.
pub(crate) struct ReplyWaiter<T> {
    pub(crate) promise: Arc<Promise<T>>,
    pub(crate) read: fn(&[u8]) -> Result<T, ClientError>,
}

impl<T: Send> FrameWaiter for ReplyWaiter<T> {
    fn sent(&self) {
        self.promise.mark_sent(false);
    }

    fn done(&self, outcome: Result<&[u8], ClientError>) {
        self.promise.keep(outcome.and_then(self.read));
    }
}
