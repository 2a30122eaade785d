//! [`Client`]: the verbs, each as a question to the driver.

use std::net::SocketAddr;
use std::time::Duration;

use penstock_net::frame::Opcode;
use penstock_net::instruction::Instruction;
use penstock_net::keyspace::{Action, At, History, Keyspace};
use penstock_net::reply::{ExpiryTold, text_of};
use penstock_net::request::{Ask, Condition, Expiry, MemberRead, Wanted, When};
use penstock_net::scan::ScanRequest;

use crate::connection::MemberTry;
use crate::driver::Driver;
use crate::operation::{Answer, ClientError, Pending};
use crate::options::{ClientOptions, MemberGet};
use crate::scan::{Page, Scan, Scanned};
use crate::told::{Changed, MemberValue, Past, Value};
use crate::update::{Patience, Updated, update};

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
    /// [`ClientError::NotSent`] if no server is there, [`ClientError::Deadline`] or
    /// [`ClientError::Unknown`] if it does not answer within the deadline,
    /// [`ClientError::Protocol`] if what answers is another kind of server, and what a server of
    /// this kind refuses a PING with.
    pub fn connect(address: SocketAddr, options: ClientOptions) -> Result<Client, ClientError> {
        Client::connect_any(&[address.to_string()], options)
    }

    /// Connects to the first of some servers that answers. They are nodes of one cluster: each is
    /// asked when the others do not answer. Of several, each has a second to be connected to and a
    /// second to answer.
    ///
    /// # Errors
    /// As for [`Client::connect`], of the last one that was tried; [`ClientError::NotSent`] if
    /// there is none.
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

    /// Reads a value, perhaps at a node that does not write it. [`ClientOptions::follows`] must be
    /// set for [`MemberGet::or_writer`].
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
    /// [`Status::NotKept`](penstock_net::status::Status::NotKept) and the oldest version that is.
    pub fn get_at(&self, key: &[u8], at: At) -> Pending<Option<Past>> {
        self.driver.ask(Ask::GetAt { key, at }, Answer::found_at)
    }

    /// Tells the versions of a key that are kept, the newest first: at most `limit` (1 to 1024),
    /// those with a sequence below `before`, or all of them if that is 0.
    pub fn history(&self, key: &[u8], before: u64, limit: u32) -> Pending<History> {
        self.driver
            .ask(Ask::History { key, before, limit }, Answer::history)
    }

    /// Sets, makes, drops or tells keyspaces: all keys that begin with `prefix` and with no longer
    /// one that is a keyspace. A change is durable in every shard when it is answered. What is
    /// there already, or missing, is [`ClientError::No`].
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

    /// Writes a value under a condition. A condition that does not hold is [`ClientError::No`].
    /// With [`Condition::showing`] its answer shows the value that is there ([`Answer::shown`]), so
    /// the next try needs no read.
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

    /// Says when a key is gone by itself and leaves its value. A missing key is
    /// [`ClientError::No`].
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

    /// Deletes a key under a condition. If the condition does not hold, or if the key is missing,
    /// the result is [`ClientError::No`]. With [`Condition::showing`], the [`Answer`] in that error
    /// shows the value that is there ([`Answer::shown`]).
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

    /// The same with a second key of the same slot, a value that a missing first key starts from,
    /// and the first key's expiry.
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
    /// otherwise again with what was written meanwhile, so `edit` may run several times. A missing
    /// key is an empty value; an expiry stays. `edit` returns whether to write. Blocks. `Ok(None)`
    /// is a declined edit.
    ///
    /// Tries are apart by pauses of random length, up to 16 ms, and end with
    /// [`ClientOptions::deadline`] from the call.
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
        self.driver.ask_frame(Opcode::Ping, |_| Ok(()))
    }

    /// The server's state as JSON.
    pub fn info(&self) -> Pending<String> {
        self.driver.ask_frame(Opcode::Info, |body| {
            text_of(body)
                .map(str::to_string)
                .ok_or_else(|| ClientError::Protocol("INFO is not a text".into()))
        })
    }
}
