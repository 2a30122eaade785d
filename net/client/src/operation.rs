//! One operation from the caller's side: what is asked, how it ends, and the wait in between.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::answers::{Changed, MemberValue, Past, Value};
use crate::fields::Fields;
use crate::named::NamedWrite;
#[cfg(doc)]
use penstock_net::apply::ApplyField;
use penstock_net::keyspace::{History, Keyspace, read_keyspaces};
use penstock_net::level::AckLevel;
use penstock_net::reply::{
    ITEM_FLAG_BEGAN, ITEM_FLAG_OVERFLOW, ITEM_FLAG_REPLAYED, ITEM_FLAG_SHOWN, KeyExpiry,
    NO_INSTRUCTION, ReplyItem, Standing,
};
#[cfg(doc)]
use penstock_net::request::{Ask, Wanted};
use penstock_net::request::{Token, Version};
use penstock_net::status::{Executed, Status};

/// The answer to one operation: a reply item with bytes of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The outcome.
    pub status: Status,
    /// The author's code of the failed instruction.
    pub reason: u8,
    /// The failed instruction, 0xFF none.
    pub instruction: u8,
    /// The failed instruction was an effect that would have left its type's range.
    pub is_overflow: bool,
    /// The value is the one that kept a condition from holding.
    pub is_shown: bool,
    /// Which request with its token was executed.
    pub execution: Execution,
    /// The level that everything in the answer has reached.
    pub level: AckLevel,
    /// The version of the change. If nothing has changed: that of the key, or of the first one.
    pub version: Version,
    /// The expiry, if it was asked for.
    pub expiry: Option<KeyExpiry>,
    /// How new the answer is, if a member might have given it.
    pub standing: Option<Standing>,
    /// Value, field values, actual value, actual version or message.
    pub value: Bytes,
}

/// Which request with the token of a write was executed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Execution {
    /// This one, or it had no token.
    #[default]
    Now,
    /// An earlier one, and this is its answer again.
    Before,
    /// This one, and its node has begun to write after the time of the token.
    ByLaterWriter,
}

impl Execution {
    fn of_flags(flags: u8) -> Execution {
        if flags & ITEM_FLAG_REPLAYED != 0 {
            Execution::Before
        } else if flags & ITEM_FLAG_BEGAN != 0 {
            Execution::ByLaterWriter
        } else {
            Execution::Now
        }
    }
}

impl Answer {
    /// Copies an item.
    #[must_use]
    pub fn of_item(item: &ReplyItem<'_>) -> Answer {
        Answer {
            status: item.head.status,
            reason: item.head.reason,
            instruction: item.head.instruction,
            is_overflow: item.head.flags & ITEM_FLAG_OVERFLOW != 0,
            is_shown: item.head.flags & ITEM_FLAG_SHOWN != 0,
            execution: Execution::of_flags(item.head.flags),
            level: item.head.level,
            version: item.head.version,
            expiry: item.expiry,
            standing: item.standing,
            value: Bytes::copy_from_slice(item.value),
        }
    }

    /// The answer to a GET: `None` if the key is missing.
    ///
    /// # Errors
    /// The [`ClientError`] of its status if it is not OK.
    pub fn found(self) -> Result<Option<Value>, ClientError> {
        match self.status {
            Status::NotFound => Ok(None),
            _ => self.ok().map(|answer| {
                Some(Value {
                    bytes: answer.value,
                    version: answer.version,
                })
            }),
        }
    }

    /// The answer to a GET that members might have answered.
    ///
    /// # Errors
    /// The [`ClientError`] of its status if it is not OK.
    pub fn found_of_member(self) -> Result<MemberValue, ClientError> {
        let standing = self.standing;
        let value = self.found()?;
        let Some(Standing { age_us, through }) = standing else {
            let text = "the answer does not tell how new it is";
            return Err(ClientError::Protocol(text.into()));
        };
        Ok(MemberValue {
            value,
            age: (age_us < u64::MAX).then(|| Duration::from_micros(age_us)),
            through,
        })
    }

    /// The answer to a GET of [`Wanted::Expiry`]: `None` if the key is missing.
    ///
    /// # Errors
    /// The [`ClientError`] of its status if it is not OK.
    pub fn expiry(self) -> Result<Option<KeyExpiry>, ClientError> {
        match self.status {
            Status::NotFound => Ok(None),
            _ => match self.ok()?.expiry {
                None => Err(ClientError::Protocol(
                    "the answer does not tell the expiry".into(),
                )),
                expiry => Ok(expiry),
            },
        }
    }

    /// The answer to a write: the new version, the edited fields and the level that was reached.
    ///
    /// # Errors
    /// The [`ClientError`] of its status if it is not OK.
    pub fn changed(self) -> Result<Changed, ClientError> {
        let answer = self.ok()?;
        Ok(Changed {
            version: answer.version,
            fields: Fields::of_bytes(&answer.value),
            level: answer.level,
            is_replayed: answer.execution == Execution::Before,
            has_writer_begun_since: answer.execution == Execution::ByLaterWriter,
        })
    }

    /// The answer to an unconditional DEL: `false` if the key was missing.
    ///
    /// # Errors
    /// The [`ClientError`] of its status if it is not OK.
    pub fn deleted(self) -> Result<bool, ClientError> {
        match self.status {
            Status::NotFound => Ok(false),
            _ => self.ok().map(|_| true),
        }
    }

    /// The answer to a GET_AT: `None` if the key was missing then.
    ///
    /// # Errors
    /// The [`ClientError`] of its status if it is not OK.
    pub fn found_at(self) -> Result<Option<Past>, ClientError> {
        match self.status {
            Status::NotFound => Ok(None),
            _ => {
                let answer = self.ok()?;
                let expiry = answer.expiry.ok_or_else(|| {
                    ClientError::Protocol("the answer does not tell when it was written".into())
                })?;
                Ok(Some(Past {
                    bytes: answer.value,
                    version: answer.version,
                    time_ms: expiry.time_ms,
                    expiry_ms: expiry.expiry_ms,
                }))
            }
        }
    }

    /// The answer to a HISTORY.
    ///
    /// # Errors
    /// The [`ClientError`] of its status if it is not OK.
    pub fn history(self) -> Result<History, ClientError> {
        History::read(&self.ok()?.value)
            .ok_or_else(|| ClientError::Protocol("the answer is no history".into()))
    }

    /// The answer to a KEYSPACE.
    ///
    /// # Errors
    /// The [`ClientError`] of its status if it is not OK.
    pub fn keyspaces(self) -> Result<Vec<Keyspace>, ClientError> {
        read_keyspaces(&self.ok()?.value)
            .ok_or_else(|| ClientError::Protocol("the answer is no list of keyspaces".into()))
    }

    /// The answer if it is OK.
    ///
    /// # Errors
    /// The [`ClientError`] of its status if it is not OK.
    pub fn ok(self) -> Result<Answer, ClientError> {
        match self.status {
            Status::Ok => Ok(self),
            Status::GuardFailed
            | Status::NotFound
            | Status::Exists
            | Status::VersionMismatch
            | Status::NotKept => Err(ClientError::No(self)),
            Status::Busy | Status::Draining | Status::Full | Status::Moved | Status::NotPrimary => {
                Err(ClientError::Busy(self.text()))
            }
            Status::Stale => Err(ClientError::Stale(self)),
            Status::Deadline => Err(ClientError::Deadline),
            status if status.executed() == Executed::Unknown => {
                Err(ClientError::Unknown(self.text().into()))
            }
            _ => Err(ClientError::Refused(self)),
        }
    }

    /// The value that kept the condition of [`Ask::Set`] or [`Ask::Del`] from holding. `None` if
    /// the value was not asked for, if the key is missing ([`Status::NotFound`]), or if the server
    /// does not show values: then a GET does.
    #[must_use]
    pub fn shown(&self) -> Option<Value> {
        self.is_shown.then(|| Value {
            bytes: self.value.clone(),
            version: self.version,
        })
    }

    /// The number of the instruction that failed, from 0. `None` if none did.
    #[must_use]
    pub fn failed(&self) -> Option<usize> {
        (self.instruction != NO_INSTRUCTION).then(|| self.instruction.into())
    }

    /// The actual value of the field whose guard failed.
    #[must_use]
    pub fn actual(&self) -> Option<u64> {
        self.value
            .first_chunk()
            .map(|bytes| u64::from_le_bytes(*bytes))
    }

    /// How long it takes until the units of a rate are there, if the instruction that failed takes
    /// units of a rate ([`ApplyField::take`]). The answer does not tell which kind of instruction
    /// it was: of another one the time means nothing.
    #[must_use]
    pub fn rate_wait(&self) -> Option<Duration> {
        let is_guard = self.status == Status::GuardFailed && !self.is_overflow;
        self.actual()
            .filter(|_| is_guard)
            .map(Duration::from_micros)
    }

    /// The version that a key has instead of the one that was asked for. `None` for any other
    /// outcome than [`Status::VersionMismatch`].
    #[must_use]
    pub fn actual_version(&self) -> Option<Version> {
        if self.status != Status::VersionMismatch {
            return None;
        }
        match self.failed() {
            // The key of the instruction need not be the first one, whose version the head has.
            Some(_) => self
                .value
                .first_chunk()
                .and_then(|bytes| Version::read(bytes).ok()),
            None => Some(self.version),
        }
    }

    fn text(&self) -> String {
        format!(
            "{}: {}",
            self.status.name(),
            String::from_utf8_lossy(&self.value)
        )
    }
}

/// What is known of an operation that was perhaps executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unknown {
    text: String,
    write: Option<NamedWrite>,
    answer: Option<Box<Answer>>,
}

impl Unknown {
    pub(crate) fn of_write(text: String, write: NamedWrite) -> Unknown {
        Unknown {
            write: Some(write),
            ..Unknown::from(text)
        }
    }

    /// The same, said by this answer.
    pub(crate) fn said_by(self, answer: Option<Box<Answer>>) -> Unknown {
        Unknown { answer, ..self }
    }

    /// The answer of the server that leaves the outcome open, as TOKEN_TOO_OLD does. None if no
    /// answer came, or if another try than the answered one may have been executed.
    #[must_use]
    pub fn answer(&self) -> Option<&Answer> {
        self.answer.as_deref()
    }

    /// Why the outcome is unknown, in words for people.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The write, if it was sent with a token: [`Client::resolve`](crate::Client::resolve) asks it
    /// again.
    #[must_use]
    pub fn write(&self) -> Option<&NamedWrite> {
        self.write.as_ref()
    }

    /// The token of the write, if it was sent with one.
    #[must_use]
    pub fn token(&self) -> Option<Token> {
        self.write.as_ref().map(NamedWrite::token)
    }
}

impl From<String> for Unknown {
    fn from(text: String) -> Unknown {
        Unknown {
            text,
            write: None,
            answer: None,
        }
    }
}

impl From<&str> for Unknown {
    fn from(text: &str) -> Unknown {
        Unknown::from(text.to_string())
    }
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)?;
        match self.token() {
            Some(token) => write!(f, " (token {token})"),
            None => Ok(()),
        }
    }
}

/// Why an operation did not do what was asked: one variant for each thing that the caller can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientError {
    /// Not executed: a guard or condition did not hold. The answer tells which and the actual
    /// value.
    No(Answer),
    /// Not executed: the request is wrong; the answer's value is a message.
    Refused(Answer),
    /// Not executed: a queue is full or the server is stopping. Try again later. Where a queue was
    /// full, the client has tried again by itself, as far as
    /// [`ClientOptions::retries_busy`](crate::ClientOptions::retries_busy) says.
    Busy(String),
    /// Not executed: the data of the node that was asked is older than allowed, or lacks the
    /// version. Ask the primary. The answer tells how old the data is.
    Stale(Answer),
    /// Not executed: no connection. Try again.
    NotSent(String),
    /// Not executed: the deadline passed before.
    Deadline,
    /// Perhaps executed: the connection was lost, or the deadline passed, before the answer came. A
    /// write that was sent with a token can be asked again without being executed twice:
    /// [`Client::resolve`](crate::Client::resolve).
    Unknown(Unknown),
    /// Not executed: the server was reached, and this client is not opened for such a server. An
    /// option of the client mends it, and no further try.
    Unfit(Unfit),
    /// The server does not speak this protocol.
    Protocol(String),
}

/// Why a server and the options of a client do not go together.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unfit {
    /// The server speaks TLS at this port, and the client does not.
    NeedsTls,
    /// The server has users, and the client has neither the name of one nor a certificate.
    NeedsIdentity,
    /// The client has an identity, and the server has no users: it does not prove that it is the
    /// one that it claims to be.
    HasNoUsers,
    /// Server and client do not agree on TLS, or do not trust each other's certificate. In words
    /// for people, with the address if that is known.
    Tls(String),
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Unfit::NeedsTls => "the server speaks TLS at this port, and this client does not",
            Unfit::NeedsIdentity => "the server has users: give the name of one and a secret",
            Unfit::HasNoUsers => {
                "the server has no users, so it does not prove that it is the one it claims to be"
            }
            Unfit::Tls(text) => text,
        })
    }
}

/// What the answer to an operation can be read as.
pub trait FromAnswer: Send + Sized + 'static {
    /// Reads an answer.
    ///
    /// # Errors
    /// The [`ClientError`] of its status if it is not OK.
    fn from_answer(answer: Answer) -> Result<Self, ClientError>;

    /// Reads an answer where it stands in a reply.
    ///
    /// # Errors
    /// The [`ClientError`] of its status if it is not OK.
    fn from_item(item: &ReplyItem<'_>) -> Result<Self, ClientError> {
        Self::from_answer(Answer::of_item(item))
    }
}

impl FromAnswer for Answer {
    fn from_answer(answer: Answer) -> Result<Answer, ClientError> {
        answer.ok()
    }
}

impl FromAnswer for Option<Value> {
    fn from_answer(answer: Answer) -> Result<Option<Value>, ClientError> {
        answer.found()
    }
}

impl FromAnswer for MemberValue {
    fn from_answer(answer: Answer) -> Result<MemberValue, ClientError> {
        answer.found_of_member()
    }
}

impl FromAnswer for Option<KeyExpiry> {
    fn from_answer(answer: Answer) -> Result<Option<KeyExpiry>, ClientError> {
        answer.expiry()
    }
}

impl FromAnswer for Option<Past> {
    fn from_answer(answer: Answer) -> Result<Option<Past>, ClientError> {
        answer.found_at()
    }
}

impl FromAnswer for History {
    fn from_answer(answer: Answer) -> Result<History, ClientError> {
        answer.history()
    }
}

impl FromAnswer for Vec<Keyspace> {
    fn from_answer(answer: Answer) -> Result<Vec<Keyspace>, ClientError> {
        answer.keyspaces()
    }
}

impl FromAnswer for bool {
    fn from_answer(answer: Answer) -> Result<bool, ClientError> {
        answer.deleted()
    }
}

impl FromAnswer for Changed {
    fn from_answer(answer: Answer) -> Result<Changed, ClientError> {
        answer.changed()
    }

    /// Takes nothing from the heap: the fields are few.
    #[inline]
    fn from_item(item: &ReplyItem<'_>) -> Result<Changed, ClientError> {
        match item.head.status {
            Status::Ok => Ok(Changed {
                version: item.head.version,
                fields: Fields::of_bytes(item.value),
                level: item.head.level,
                is_replayed: item.head.flags & ITEM_FLAG_REPLAYED != 0,
                has_writer_begun_since: item.head.flags & ITEM_FLAG_BEGAN != 0,
            }),
            _ => Answer::of_item(item).changed(),
        }
    }
}

impl ClientError {
    /// The error of a whole frame that was answered with `status` and a text instead of items.
    #[must_use]
    pub fn of_frame(status: Option<Status>, text: &str) -> ClientError {
        match status {
            Some(status @ (Status::Draining | Status::Busy)) => {
                ClientError::Busy(format!("{}: {text}", status.name()))
            }
            _ => ClientError::Refused(Answer {
                status: status.unwrap_or(Status::Malformed),
                reason: 0,
                instruction: NO_INSTRUCTION,
                is_overflow: false,
                is_shown: false,
                execution: Execution::Now,
                level: AckLevel::None,
                version: Version::default(),
                expiry: None,
                standing: None,
                value: Bytes::copy_from_slice(text.as_bytes()),
            }),
        }
    }
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientError::No(answer) if answer.status == Status::NotKept => {
                f.write_str(&answer.text())
            }
            ClientError::No(answer) => {
                f.write_str(answer.status.name())?;
                if let Some(number) = answer.failed() {
                    write!(f, ": instruction {number}, reason {}", answer.reason)?;
                }
                match (answer.actual(), answer.actual_version()) {
                    (_, Some(Version { epoch, sequence })) => {
                        write!(f, ", actual version {epoch}:{sequence}")
                    }
                    (Some(actual), None) if answer.status == Status::GuardFailed => {
                        write!(f, ", actual value {actual}")
                    }
                    _ => Ok(()),
                }
            }
            ClientError::Refused(answer) | ClientError::Stale(answer) => {
                f.write_str(&answer.text())
            }
            ClientError::Busy(text) => write!(f, "not executed, try again: {text}"),
            ClientError::NotSent(text) => write!(f, "not executed, no connection: {text}"),
            ClientError::Deadline => f.write_str("not executed: the deadline passed before"),
            ClientError::Unknown(unknown) => write!(f, "perhaps executed: {unknown}"),
            ClientError::Unfit(unfit) => write!(f, "not executed: {unfit}"),
            ClientError::Protocol(text) => write!(f, "not a Penstock server: {text}"),
        }
    }
}

impl std::error::Error for ClientError {}

/// The outcome of an operation: the connection puts it in, and the caller waits for it.
#[derive(Debug)]
pub(crate) struct Promise<T> {
    state: Mutex<State<T>>,
    is_kept: Condvar,
}

#[derive(Debug)]
struct State<T> {
    outcome: Option<Result<T, ClientError>>,
    waker: Option<Waker>,
    /// A thread waits for `is_kept`. A signal is a system call, also when nobody waits for it.
    is_awaited: bool,
    sent: Sent,
}

/// What may have reached the server.
#[derive(Clone, Copy, Debug)]
enum Sent {
    Nothing,
    /// The operation.
    Plain,
    /// The write, with its token.
    Named,
}

impl<T> Promise<T> {
    pub(crate) fn new() -> Arc<Self> {
        let state = State {
            outcome: None,
            waker: None,
            is_awaited: false,
            sent: Sent::Nothing,
        };
        Arc::new(Promise {
            state: Mutex::new(state),
            is_kept: Condvar::new(),
        })
    }

    pub(crate) fn keep(&self, outcome: Result<T, ClientError>) {
        let mut state = self.lock();
        if state.outcome.is_none() {
            state.outcome = Some(outcome);
        }
        let waker = state.waker.take();
        let is_awaited = state.is_awaited;
        drop(state);
        if is_awaited {
            self.is_kept.notify_all();
        }
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    pub(crate) fn mark_sent(&self, is_named: bool) {
        self.lock().sent = match is_named {
            true => Sent::Named,
            false => Sent::Plain,
        };
    }

    /// Notes that the server has not executed the operation.
    pub(crate) fn mark_put_back(&self) {
        self.lock().sent = Sent::Nothing;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An operation that was asked and may not be answered yet. Dropping it does not take it back.
#[must_use = "the outcome says whether the operation took effect"]
#[derive(Debug)]
pub struct Pending<T> {
    pub(crate) promise: Arc<Promise<T>>,
    pub(crate) until: Instant,
    /// The write, if it has a token.
    pub(crate) write: Option<NamedWrite>,
}

impl<T> Pending<T> {
    /// An operation that was not asked.
    pub(crate) fn of_error(error: ClientError) -> Pending<T> {
        let promise = Promise::new();
        promise.keep(Err(error));
        Pending {
            promise,
            until: Instant::now(),
            write: None,
        }
    }

    /// The token of the write, if it has one. A token that the client itself has made is not sent
    /// to a server that knows no tokens; then the outcome tells none.
    #[must_use]
    pub fn token(&self) -> Option<Token> {
        self.write.as_ref().map(NamedWrite::token)
    }

    /// Blocks until the answer or the deadline.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn wait(self) -> Result<T, ClientError> {
        let mut state = self.promise.lock();
        loop {
            if let Some(outcome) = state.outcome.take() {
                return outcome;
            }
            let left = self.until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let text = "no answer within the deadline".to_string();
                return Err(match (state.sent, &self.write) {
                    (Sent::Nothing, _) => ClientError::Deadline,
                    (Sent::Named, Some(write)) => {
                        ClientError::Unknown(Unknown::of_write(text, write.clone()))
                    }
                    (Sent::Plain | Sent::Named, _) => ClientError::Unknown(text.into()),
                });
            }
            state.is_awaited = true;
            let waited = self
                .promise
                .is_kept
                .wait_timeout(state, left.max(Duration::from_micros(1)));
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// Resolves when the connection has put the outcome in, which it also does at the deadline.
impl<T> Future for Pending<T> {
    type Output = Result<T, ClientError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.promise.lock();
        match state.outcome.take() {
            Some(outcome) => Poll::Ready(outcome),
            None => {
                state.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}
