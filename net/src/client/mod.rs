//! The client: one handle for blocking and for async callers, pipelined, without a runtime.
//!
//! A [`Client`] is cheap to clone and may be used from any thread. Operations of all clones that
//! are waiting when the connection is free leave in one batch frame. Every operation is a
//! [`Pending`]: `wait()` blocks, `.await` works in any executor.
//!
//! What a caller can rely on: an operation that failed with [`ClientError::NotSent`] or a refusal was not
//! executed; one that failed with [`ClientError::Unknown`] may have been. Nothing is retried that could
//! take effect twice.
//!
//! Of a cluster one address is enough: the others are learned. What a node does not execute because another one
//! writes the key is sent to that one, again and again until the deadline, also over a switch or a promotion. So it may
//! run behind an operation on the same key that was asked later and not waited for.
//!
//! ```no_run
//! use penstock_net::client::{Client, ClientOptions, Field};
//!
//! let client = Client::connect("127.0.0.1:7411".parse()?, ClientOptions::default())?;
//! client.set(b"stock:42", &100u32.to_le_bytes()).wait()?;
//! let stock = Field::u32(0);
//! let sold = client.update_if(b"stock:42", &[stock.at_least(1), stock.decrease(1)]).wait()?;
//! println!("left: {}", sold.fields[0]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod connection;
mod driver;
mod fields;
mod operation;
mod scan;
mod seen;
mod update;

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;

use crate::instruction::{FieldType, Instruction, Operation};
use crate::keyspace::{Action, At, History, Keyspace};
use crate::level::AckLevel;
use crate::reply::ExpiryTold;
use crate::request::{Condition, Expiry, MemberRead, Version, Wanted, When};
use crate::scan::ScanRequest;
use connection::MemberTry;
use driver::Driver;
pub use fields::Fields;
pub use operation::{Answer, Ask, ClientError, Pending};
pub use scan::{Entry, Page, Scan, Scanned};
pub use seen::Seen;
pub use update::{Patience, Updated, update};

/// How a client behaves.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// For the server's logs, at most 64 bytes.
    pub name: String,
    /// The ack level of every operation.
    pub level: AckLevel,
    /// From the call to the answer, connecting included.
    pub deadline: Duration,
    /// Operations that may wait or be under way; beyond it the answer is [`ClientError::Busy`].
    pub pending_max: usize,
    /// Whether other nodes are asked for what this one does not write. Otherwise that is [`ClientError::Busy`].
    pub follows: bool,
}

impl Default for ClientOptions {
    fn default() -> Self {
        ClientOptions {
            name: "penstock-net".into(),
            level: AckLevel::Disk,
            deadline: Duration::from_secs(5),
            pending_max: 16 * 1024,
            follows: true,
        }
    }
}

/// A value and its version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    /// The bytes.
    pub bytes: Bytes,
    /// For only-if-version.
    pub version: Version,
}

/// Who is asked for what a member of the partition may answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ReadFrom {
    /// The other nodes that are known, in turn.
    #[default]
    AnyMember,
    /// The node at this address, HOST:PORT.
    Node(String),
}

/// A read that any node which holds the key may answer, if what it has is new enough.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberGet {
    /// How old it may be, at most; `None` is however old.
    pub staleness_max: Option<Duration>,
    /// A version of the key's partition that must be there, as [`Seen`] keeps them.
    pub version_min: Option<Version>,
    /// Who is asked.
    pub from: ReadFrom,
    /// Whether the node that writes is asked when the other one cannot answer. Otherwise that is
    /// [`ClientError::Stale`], or [`ClientError::Busy`] if it does not follow at all. Where no other node is
    /// known, or none answers, the one that writes is asked first, with this or without.
    pub or_writer: bool,
}

impl Default for MemberGet {
    /// At most 50 ms old, from any member, otherwise from the node that writes.
    fn default() -> Self {
        MemberGet {
            staleness_max: Some(Duration::from_millis(50)),
            version_min: None,
            from: ReadFrom::AnyMember,
            or_writer: true,
        }
    }
}

/// What a member has of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberValue {
    /// None if the key is missing.
    pub value: Option<Value>,
    /// It was so at the node that writes it at most so long ago; `None` if that is not known.
    pub age: Option<Duration>,
    /// The last record of the partition that is there: whoever asks for it next sees nothing older.
    pub through: Version,
}

/// A value as it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Past {
    /// The bytes.
    pub bytes: Bytes,
    /// The version that it was then.
    pub version: Version,
    /// When it was written, in unix milliseconds; 0 if that is not known, for it was before versions were kept.
    pub time_ms: u64,
    /// From when on it was gone by itself; 0 is never.
    pub expiry_ms: u64,
}

/// What a change did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    /// The key's version now.
    pub version: Version,
    /// The new value of each effect's field, in order, sign-extended.
    pub fields: Fields,
    /// How durable it is.
    pub level: AckLevel,
}

/// Connections to one server, or to the nodes of one cluster, that mend themselves.
#[derive(Clone, Debug)]
pub struct Client {
    driver: Driver,
}

/// One key of a client that an update changes.
struct UpdatedKey<'a> {
    client: &'a Client,
    key: &'a [u8],
    patience: Patience,
}

impl Updated for UpdatedKey<'_> {
    fn read(&mut self) -> Result<Option<Value>, ClientError> {
        let wanted = Wanted::Value;
        let ask = Ask::Get {
            key: self.key,
            wanted,
        };
        let driver = &self.client.driver;
        driver
            .ask_until(ask, None, Answer::found, self.patience.until())
            .wait()
    }

    fn write(&mut self, value: &[u8], condition: Condition) -> Result<Changed, ClientError> {
        let ask = Ask::Set {
            key: self.key,
            value,
            when: condition.showing(),
            expiry: Expiry::Keep,
        };
        let driver = &self.client.driver;
        driver
            .ask_until(ask, None, Answer::changed, self.patience.until())
            .wait()
    }

    fn random(&mut self) -> u64 {
        self.patience.random()
    }

    fn pause(&mut self, pause: Duration, losses: u32) -> Result<(), ClientError> {
        self.patience.pause(pause, losses)
    }
}

impl Scanned for &Client {
    fn page(&mut self, request: &ScanRequest<'_>) -> Result<Page, ClientError> {
        Client::scan_page(self, request).wait()
    }

    fn value(&mut self, key: &[u8]) -> Result<Option<Value>, ClientError> {
        Client::get(self, key).wait()
    }
}

impl Client {
    /// Connects and says HELLO.
    ///
    /// # Errors
    /// [`ClientError::NotSent`] if no server is there, [`ClientError::Deadline`] or [`ClientError::Unknown`] if it does not answer
    /// within the deadline, [`ClientError::Protocol`] if what answers is another kind of server, and what a server of this
    /// kind refuses a PING with.
    pub fn connect(address: SocketAddr, options: ClientOptions) -> Result<Client, ClientError> {
        Client::connect_any(&[address.to_string()], options)
    }

    /// Connects to the first of some servers that answers. They are nodes of one cluster: each is asked when the
    /// others do not answer. Of several, each has a second to be connected to and a second to answer.
    ///
    /// # Errors
    /// As for [`Client::connect`], of the last one that was tried; [`ClientError::NotSent`] if there is none.
    pub fn connect_any(
        addresses: &[String],
        options: ClientOptions,
    ) -> Result<Client, ClientError> {
        Ok(Client {
            driver: Driver::start(addresses, options)?,
        })
    }

    /// Reads a value; `None` if the key is missing.
    pub fn get(&self, key: &[u8]) -> Pending<Option<Value>> {
        let wanted = Wanted::Value;
        self.driver.ask(Ask::Get { key, wanted }, Answer::found)
    }

    /// Reads a value, perhaps at a node that does not write it. [`ClientOptions::follows`] must be set for
    /// [`MemberGet::or_writer`].
    pub fn get_of_member(&self, key: &[u8], get: &MemberGet) -> Pending<MemberValue> {
        let micros = |it: Duration| u64::try_from(it.as_micros()).unwrap_or(u64::MAX);
        let read = MemberRead {
            staleness_us_max: get.staleness_max.map_or(u64::MAX, micros),
            version_min: get.version_min.unwrap_or_default(),
        };
        let member = MemberTry {
            from: get.from.clone(),
            or_writer: get.or_writer,
        };
        let ask = Ask::GetOfMember { key, read };
        self.driver
            .ask_member(ask, Some(member), Answer::found_of_member)
    }

    /// Reads a value as it was at a time or version; `None` if the key was missing then. What is
    /// not kept any more is [`ClientError::No`] with
    /// [`Status::NotKept`](crate::status::Status::NotKept) and the oldest version that is.
    pub fn get_at(&self, key: &[u8], at: At) -> Pending<Option<Past>> {
        self.driver.ask(Ask::GetAt { key, at }, Answer::found_at)
    }

    /// Tells the versions of a key that are kept, the newest first: at most `limit` (1 to 1024), those
    /// with a sequence below `before`, or all of them if that is 0.
    pub fn history(&self, key: &[u8], before: u64, limit: u32) -> Pending<History> {
        self.driver
            .ask(Ask::History { key, before, limit }, Answer::history)
    }

    /// Sets, makes, drops or tells keyspaces: all keys that begin with `prefix` and with no longer one that
    /// is a keyspace. A change is durable in every shard when it is answered. What is there already, or
    /// missing, is [`ClientError::No`].
    pub fn keyspace(&self, prefix: &[u8], action: Action) -> Pending<Vec<Keyspace>> {
        self.driver
            .ask(Ask::Keyspace { prefix, action }, Answer::keyspaces)
    }

    /// Asks when a key is gone by itself, without its value; `None` if the key is missing.
    pub fn expiry(&self, key: &[u8]) -> Pending<Option<ExpiryTold>> {
        let wanted = Wanted::Expiry;
        self.driver.ask(Ask::Get { key, wanted }, Answer::expiry)
    }

    /// Writes a value.
    pub fn set(&self, key: &[u8], value: &[u8]) -> Pending<Changed> {
        self.set_if(key, value, Condition::Always)
    }

    /// Writes a value under a condition. A condition that does not hold is [`ClientError::No`]. With
    /// [`Condition::showing`] its answer shows the value that is there ([`Answer::shown`]), so the next try needs
    /// no read.
    pub fn set_if(&self, key: &[u8], value: &[u8], when: impl Into<When>) -> Pending<Changed> {
        self.set_with(key, value, when, Expiry::Never)
    }

    /// Writes a value under a condition, and when it is gone by itself.
    pub fn set_with(
        &self,
        key: &[u8],
        value: &[u8],
        when: impl Into<When>,
        expiry: Expiry,
    ) -> Pending<Changed> {
        self.driver.ask(
            Ask::Set {
                key,
                value,
                when: when.into(),
                expiry,
            },
            Answer::changed,
        )
    }

    /// Says when a key is gone by itself and leaves its value. A missing key is [`ClientError::No`].
    pub fn set_expiry(&self, key: &[u8], expiry: Expiry) -> Pending<Changed> {
        self.update_if_with(key, None, &[], None, expiry)
    }

    /// Deletes a key; `false` if it was missing.
    pub fn del(&self, key: &[u8]) -> Pending<bool> {
        self.driver.ask(
            Ask::Del {
                key,
                when: When::default(),
            },
            Answer::deleted,
        )
    }

    /// Deletes a key under a condition. A condition that does not hold is [`ClientError::No`]. With
    /// [`Condition::showing`] its answer shows the value that is there ([`Answer::shown`]).
    pub fn del_if(&self, key: &[u8], when: impl Into<When>) -> Pending<Changed> {
        self.driver.ask(
            Ask::Del {
                key,
                when: when.into(),
            },
            Answer::changed,
        )
    }

    /// Runs instructions on the fields of one key, all or nothing. A guard that does not hold is
    /// [`ClientError::No`] with the actual value.
    pub fn update_if(&self, key: &[u8], instructions: &[Instruction]) -> Pending<Changed> {
        self.update_if_with(key, None, instructions, None, Expiry::Keep)
    }

    /// The same with a second key of the same slot, a value that a missing first key starts from, and
    /// the first key's expiry.
    pub fn update_if_with(
        &self,
        key: &[u8],
        second_key: Option<&[u8]>,
        instructions: &[Instruction],
        start: Option<&[u8]>,
        expiry: Expiry,
    ) -> Pending<Changed> {
        self.driver.ask(
            Ask::UpdateIf {
                key,
                second_key,
                instructions,
                start,
                expiry,
            },
            Answer::changed,
        )
    }

    /// Reads a value, lets `edit` change it, and writes it back if nobody else did meanwhile;
    /// otherwise again with what was written meanwhile, so `edit` may run several times. A missing key is an empty
    /// value; an expiry stays. `edit` returns whether to write. Blocks. `Ok(None)` is a declined edit.
    ///
    /// Tries are apart by pauses of random length, up to 16 ms, and end with [`ClientOptions::deadline`] from the call.
    ///
    /// # Errors
    /// [`ClientError::Busy`] if other writers were faster until the deadline; otherwise as for
    /// [`Client::get`] and [`Client::set_if`].
    pub fn update(
        &self,
        key: &[u8],
        edit: impl FnMut(&mut Vec<u8>) -> bool,
    ) -> Result<Option<Changed>, ClientError> {
        let mut updated = UpdatedKey {
            client: self,
            key,
            patience: Patience::begin(self.driver.deadline()),
        };
        update(&mut updated, edit)
    }

    /// Some keys in the order of slots and hashes, from a cursor on: 0, or [`Page::next`].
    ///
    /// A key that is there from the first page to the last is told at least once, whatever else
    /// happens meanwhile, a restart of the server included. Pages see what was answered before they
    /// were asked for; a pipelined change may come before or behind them.
    pub fn scan_page(&self, request: &ScanRequest<'_>) -> Pending<Page> {
        self.driver.ask(Ask::Scan(*request), Answer::page)
    }

    /// All keys that begin with `prefix`, with or without their values, page by page; blocks.
    pub fn scan(&self, prefix: &[u8], wants_values: bool) -> Scan<&Client> {
        Scan::new(self, prefix, wants_values)
    }

    /// Sends bytes there and back.
    pub fn ping(&self) -> Pending<()> {
        self.driver
            .ask_frame(crate::frame::Opcode::Ping, |_| Ok(()))
    }

    /// The server's state as JSON.
    pub fn info(&self) -> Pending<String> {
        self.driver.ask_frame(crate::frame::Opcode::Info, |body| {
            crate::reply::text_of(body)
                .map(str::to_string)
                .ok_or_else(|| ClientError::Protocol("INFO is not a text".into()))
        })
    }
}

/// A field of a value, from which instructions are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    field_type: FieldType,
    offset: u32,
    key: u8,
    reason: u8,
}

impl Field {
    /// Any type at an offset of the first key's value.
    #[must_use]
    pub fn new(field_type: FieldType, offset: u32) -> Field {
        Field {
            field_type,
            offset,
            key: 0,
            reason: 0,
        }
    }

    /// A little-endian u32 at an offset of the first key's value.
    #[must_use]
    pub fn u32(offset: u32) -> Field {
        Field::new(FieldType::U32, offset)
    }

    /// A little-endian u64 at an offset of the first key's value.
    #[must_use]
    pub fn u64(offset: u32) -> Field {
        Field::new(FieldType::U64, offset)
    }

    /// The same field of the second key.
    #[must_use]
    pub fn of_second_key(self) -> Field {
        Field { key: 1, ..self }
    }

    /// The code that a failure of its instructions tells.
    #[must_use]
    pub fn or_else(self, reason: u8) -> Field {
        Field { reason, ..self }
    }

    /// Guard: the field is at least this.
    #[must_use]
    pub fn at_least(self, number: u64) -> Instruction {
        self.instruction(Operation::Ge, number)
    }

    /// Guard: the field is at most this.
    #[must_use]
    pub fn at_most(self, number: u64) -> Instruction {
        self.instruction(Operation::Le, number)
    }

    /// Guard: the field is this.
    #[must_use]
    pub fn equals(self, number: u64) -> Instruction {
        self.instruction(Operation::Eq, number)
    }

    /// Effect: the field becomes this.
    #[must_use]
    pub fn set(self, number: u64) -> Instruction {
        self.instruction(Operation::Set, number)
    }

    /// Effect: this is added.
    #[must_use]
    pub fn increase(self, number: u64) -> Instruction {
        self.instruction(Operation::Add, number)
    }

    /// Effect: this is subtracted.
    #[must_use]
    pub fn decrease(self, number: u64) -> Instruction {
        self.instruction(Operation::Sub, number)
    }

    /// Any operation. Numbers of signed types are two's complement.
    #[must_use]
    pub fn instruction(self, operation: Operation, immediate: u64) -> Instruction {
        Instruction {
            operation,
            field_type: self.field_type,
            key: self.key,
            reason: self.reason,
            offset: self.offset,
            immediate,
        }
    }
}
