//! One operation from the caller's side: what is asked, how it ends, and the wait in between.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::fields::Fields;
use crate::told::{Changed, MemberValue, Past, Value};
use penstock_net::instruction::Instruction;
use penstock_net::keyspace::{Action, At, History, Keyspace, read_keyspaces};
use penstock_net::level::AckLevel;
use penstock_net::placement::partition_of;
use penstock_net::reply::{
    ExpiryTold, ITEM_FLAG_OVERFLOW, ITEM_FLAG_SHOWN, NO_INSTRUCTION, ReplyItem, Standing,
};
use penstock_net::request::{BatchRequest, Expiry, MemberRead, Version, Wanted, When};
use penstock_net::scan::ScanRequest;
use penstock_net::slot::slot_of;
use penstock_net::status::{Executed, Status};

/// What is asked of a store.
#[derive(Clone, Copy, Debug)]
pub enum Ask<'a> {
    /// Read a value.
    Get {
        /// Its key.
        key: &'a [u8],
        /// The value, the expiry, or both.
        wanted: Wanted,
    },
    /// Read a value, perhaps from a member of the key's partition.
    GetOfMember {
        /// Its key.
        key: &'a [u8],
        /// How old it may be, and what must be there.
        read: MemberRead,
    },
    /// Write a value.
    Set {
        /// Its key.
        key: &'a [u8],
        /// The value.
        value: &'a [u8],
        /// When it applies.
        when: When,
        /// When the key is gone by itself.
        expiry: Expiry,
    },
    /// Delete a key.
    Del {
        /// The key.
        key: &'a [u8],
        /// When it applies.
        when: When,
    },
    /// Run instructions on fields.
    UpdateIf {
        /// The first key.
        key: &'a [u8],
        /// The second key, of the same slot.
        second_key: Option<&'a [u8]>,
        /// Guards and effects.
        instructions: &'a [Instruction],
        /// What a missing first key starts from.
        start: Option<&'a [u8]>,
        /// When the first key is gone by itself.
        expiry: Expiry,
    },
    /// Read a value as it was.
    GetAt {
        /// Its key.
        key: &'a [u8],
        /// When.
        at: At,
    },
    /// Tell the versions that are kept of a key, newest first.
    History {
        /// The key.
        key: &'a [u8],
        /// Only those with a sequence below this, 0 for all.
        before: u64,
        /// At most so many, 1 to 1024.
        limit: u32,
    },
    /// Set, drop or tell keyspaces.
    Keyspace {
        /// What its keys begin with; empty for [`Action::List`].
        prefix: &'a [u8],
        /// What is done.
        action: Action,
    },
    /// Tell the next keys in the order of slots and hashes.
    Scan(ScanRequest<'a>),
}

impl<'a> Ask<'a> {
    /// The key that decides the slot, but for a scan, whose slot is in its cursor: the prefix.
    #[must_use]
    pub fn key(&self) -> &'a [u8] {
        match *self {
            Ask::Get { key, .. }
            | Ask::GetOfMember { key, .. }
            | Ask::Set { key, .. }
            | Ask::Del { key, .. }
            | Ask::UpdateIf { key, .. }
            | Ask::GetAt { key, .. }
            | Ask::History { key, .. }
            | Ask::Keyspace { prefix: key, .. }
            | Ask::Scan(ScanRequest { prefix: key, .. }) => key,
        }
    }

    /// The partition of the key; none of what is about no one key.
    pub(crate) fn partition(&self) -> Option<u16> {
        match self {
            Ask::Scan(_) | Ask::Keyspace { .. } => None,
            _ => Some(partition_of(slot_of(self.key()))),
        }
    }

    /// Adds it to a batch that is written to `out`.
    pub fn write(&self, batch: &mut BatchRequest, out: &mut Vec<u8>) {
        match *self {
            Ask::Get { key, wanted } => batch.get_with(out, key, wanted),
            Ask::GetOfMember { key, read } => batch.get_of_member(out, key, Wanted::Value, read),
            Ask::Set {
                key,
                value,
                when,
                expiry,
            } => batch.set_with(out, key, value, when, expiry),
            Ask::Del { key, when } => batch.del(out, key, when),
            Ask::UpdateIf {
                key,
                second_key,
                instructions,
                start,
                expiry,
            } => batch.update_if_with(out, key, second_key, instructions, start, expiry),
            Ask::GetAt { key, at } => batch.get_at(out, key, at),
            Ask::History { key, before, limit } => batch.history(out, key, before, limit),
            Ask::Keyspace { prefix, action } => batch.keyspace(out, prefix, action),
            Ask::Scan(ref request) => batch.scan(out, request),
        }
    }

    /// The encoded request item.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut frame = Vec::new();
        let mut batch = BatchRequest::begin(&mut frame, 0, AckLevel::Disk, 0, 1);
        self.write(&mut batch, &mut frame);
        batch.finish(&mut frame);
        // Behind the header, the count and the one index entry.
        frame.split_off(penstock_net::frame::HEADER_BYTES + 16)
    }
}

/// A reply item, taken over.
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
    /// How durable what it shows is.
    pub level: AckLevel,
    /// The first key's version.
    pub version: Version,
    /// The expiry, if it was asked for.
    pub expiry: Option<ExpiryTold>,
    /// How new it is, if members might have answered.
    pub standing: Option<Standing>,
    /// Value, field values, actual value or message.
    pub value: Bytes,
}

impl Answer {
    /// Takes an item over.
    #[must_use]
    pub fn of_item(item: &ReplyItem<'_>) -> Answer {
        Answer {
            status: item.head.status,
            reason: item.head.reason,
            instruction: item.head.instruction,
            is_overflow: item.head.flags & ITEM_FLAG_OVERFLOW != 0,
            is_shown: item.head.flags & ITEM_FLAG_SHOWN != 0,
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
    /// What it means if it is not OK.
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
    /// What it means if it is not OK.
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
    /// What it means if it is not OK.
    pub fn expiry(self) -> Result<Option<ExpiryTold>, ClientError> {
        match self.status {
            Status::NotFound => Ok(None),
            _ => match self.ok()?.expiry {
                None => Err(ClientError::Protocol(
                    "the answer does not tell the expiry".into(),
                )),
                told => Ok(told),
            },
        }
    }

    /// The answer to a change.
    ///
    /// # Errors
    /// What it means if it is not OK.
    pub fn changed(self) -> Result<Changed, ClientError> {
        let answer = self.ok()?;
        Ok(Changed {
            version: answer.version,
            fields: Fields::of_bytes(&answer.value),
            level: answer.level,
        })
    }

    /// The answer to an unconditional DEL: `false` if the key was missing.
    ///
    /// # Errors
    /// What it means if it is not OK.
    pub fn deleted(self) -> Result<bool, ClientError> {
        match self.status {
            Status::NotFound => Ok(false),
            _ => self.ok().map(|_| true),
        }
    }

    /// The answer to a GET_AT: `None` if the key was missing then.
    ///
    /// # Errors
    /// What it means if it is not OK.
    pub fn found_at(self) -> Result<Option<Past>, ClientError> {
        match self.status {
            Status::NotFound => Ok(None),
            _ => {
                let answer = self.ok()?;
                let told = answer.expiry.ok_or_else(|| {
                    ClientError::Protocol("the answer does not tell when it was written".into())
                })?;
                Ok(Some(Past {
                    bytes: answer.value,
                    version: answer.version,
                    time_ms: told.time_ms,
                    expiry_ms: told.expiry_ms,
                }))
            }
        }
    }

    /// The answer to a HISTORY.
    ///
    /// # Errors
    /// What it means if it is not OK.
    pub fn history(self) -> Result<History, ClientError> {
        History::read(&self.ok()?.value)
            .ok_or_else(|| ClientError::Protocol("the answer is no history".into()))
    }

    /// The answer to a KEYSPACE.
    ///
    /// # Errors
    /// What it means if it is not OK.
    pub fn keyspaces(self) -> Result<Vec<Keyspace>, ClientError> {
        read_keyspaces(&self.ok()?.value)
            .ok_or_else(|| ClientError::Protocol("the answer is no list of keyspaces".into()))
    }

    /// The answer if it is OK.
    ///
    /// # Errors
    /// What it means if it is not OK.
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
                Err(ClientError::Unknown(self.text()))
            }
            _ => Err(ClientError::Refused(self)),
        }
    }

    /// The value that kept the condition of [`Ask::Set`] or [`Ask::Del`] from holding. `None` if it
    /// was not asked for, the key is missing ([`Status::NotFound`]), or the server does not show
    /// it: then a GET does.
    #[must_use]
    pub fn shown(&self) -> Option<Value> {
        self.is_shown.then(|| Value {
            bytes: self.value.clone(),
            version: self.version,
        })
    }

    /// The actual value of the field whose guard failed.
    #[must_use]
    pub fn actual(&self) -> Option<u64> {
        self.value
            .first_chunk()
            .map(|bytes| u64::from_le_bytes(*bytes))
    }

    fn text(&self) -> String {
        format!(
            "{}: {}",
            self.status.name(),
            String::from_utf8_lossy(&self.value)
        )
    }
}

/// Why an operation did not do what was asked, by what the caller can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientError {
    /// Not executed: a guard or condition did not hold. The answer tells which and the actual
    /// value.
    No(Answer),
    /// Not executed: the request is wrong; the answer's value is a message.
    Refused(Answer),
    /// Not executed: a queue is full or the server is stopping. Try again later.
    Busy(String),
    /// Not executed: what the node that was asked has is older than allowed, or lacks the version.
    /// Ask the one that writes. The answer tells how old.
    Stale(Answer),
    /// Not executed: no connection. Try again.
    NotSent(String),
    /// Not executed: the deadline passed before.
    Deadline,
    /// Perhaps executed: the connection was lost, or the deadline passed, before the answer came.
    Unknown(String),
    /// The server does not speak this protocol.
    Protocol(String),
}

impl Changed {
    /// What an item tells that answers a change, without taking the item over.
    ///
    /// # Errors
    /// What it means if it is not OK.
    pub fn of_item(item: &ReplyItem<'_>) -> Result<Changed, ClientError> {
        match item.head.status {
            Status::Ok => Ok(Changed {
                version: item.head.version,
                fields: Fields::of_bytes(item.value),
                level: item.head.level,
            }),
            _ => Answer::of_item(item).changed(),
        }
    }
}

impl ClientError {
    /// What it means that a whole frame was answered with `status` and a text instead of its items.
    #[must_use]
    pub fn of_frame(status: Option<Status>, text: &str) -> ClientError {
        match status {
            Some(Status::Draining | Status::Busy) => ClientError::Busy(text.to_string()),
            _ => ClientError::Refused(Answer {
                status: status.unwrap_or(Status::Malformed),
                reason: 0,
                instruction: NO_INSTRUCTION,
                is_overflow: false,
                is_shown: false,
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
            ClientError::No(answer) => match answer
                .actual()
                .filter(|_| answer.status == Status::GuardFailed)
            {
                Some(actual) => write!(
                    f,
                    "{}: instruction {}, reason {}, actual value {actual}",
                    answer.status.name(),
                    answer.instruction,
                    answer.reason
                ),
                None if answer.status == Status::NotKept => f.write_str(&answer.text()),
                None => f.write_str(answer.status.name()),
            },
            ClientError::Refused(answer) | ClientError::Stale(answer) => {
                f.write_str(&answer.text())
            }
            ClientError::Busy(text) => write!(f, "not executed, try again: {text}"),
            ClientError::NotSent(text) => write!(f, "not executed, no connection: {text}"),
            ClientError::Deadline => f.write_str("not executed: the deadline passed before"),
            ClientError::Unknown(text) => write!(f, "perhaps executed: {text}"),
            ClientError::Protocol(text) => write!(f, "not a Penstock server: {text}"),
        }
    }
}

impl std::error::Error for ClientError {}

/// What the connection fills in and the caller waits for.
#[derive(Debug)]
pub(crate) struct Promise<T> {
    state: Mutex<State<T>>,
    is_kept: Condvar,
}

#[derive(Debug)]
struct State<T> {
    outcome: Option<Result<T, ClientError>>,
    waker: Option<Waker>,
    /// Bytes of it may have reached the server.
    is_sent: bool,
}

impl<T> Promise<T> {
    pub(crate) fn new() -> Arc<Self> {
        let state = State {
            outcome: None,
            waker: None,
            is_sent: false,
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
        drop(state);
        self.is_kept.notify_all();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    pub(crate) fn mark_sent(&self) {
        self.lock().is_sent = true;
    }

    /// The server has said that it was not executed.
    pub(crate) fn mark_put_back(&self) {
        self.lock().is_sent = false;
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
}

impl<T> Pending<T> {
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
                return Err(if state.is_sent {
                    ClientError::Unknown("no answer within the deadline".into())
                } else {
                    ClientError::Deadline
                });
            }
            let waited = self
                .promise
                .is_kept
                .wait_timeout(state, left.max(Duration::from_micros(1)));
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// Resolves when the connection keeps the promise; it also keeps those whose deadline has passed.
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
