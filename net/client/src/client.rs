//! [`Client`]: a store that is asked over the network.

use std::net::SocketAddr;
use std::time::Duration;

use penstock_net::frame::Opcode;
use penstock_net::hello::ServerHello;
use penstock_net::level::AckLevel;
use penstock_net::program::{BACKUP_ASKS, SCHEMA_ASKED};
use penstock_net::reply::text_of;
use penstock_net::request::{Ask, Condition, Expiry, MemberRead, Token};
use penstock_net::scan::ScanRequest;

use crate::answers::{Changed, MemberValue, Value};
use crate::driver::Driver;
use crate::named::NamedWrite;
use crate::operation::{Answer, ClientError, FromAnswer, Pending};
use crate::options::{ClientOptions, MemberGet};
use crate::programs::ServedPrograms;
use crate::queued::MemberTry;
use crate::scan::{Page, Scan, Scanned};
use crate::update::{Patience, Updated, update};
use crate::verbs::Verbs;

/// Connections to one server, or to the nodes of one cluster, that mend themselves. What can be
/// asked stands in [`Verbs`].
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
        let (driver, ask) = (&self.client.driver, Ask::get(self.key));
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

impl Verbs for &Client {
    type Answer<T> = Pending<T>;

    fn ask_for<T: FromAnswer>(self, ask: Ask<'_>) -> Pending<T> {
        self.driver.ask(ask, T::from_answer)
    }

    fn ask_named<T: FromAnswer>(self, ask: Ask<'_>, token: Token) -> Pending<T> {
        let write = NamedWrite::new(&ask, token);
        self.driver.ask_named(write, T::from_answer, false)
    }
}

impl Scanned for &Client {
    fn page(&mut self, request: &ScanRequest<'_>) -> Result<Page, ClientError> {
        self.scan_page(request).wait()
    }

    fn value(&mut self, key: &[u8]) -> Result<Option<Value>, ClientError> {
        self.get(key).wait()
    }
}

impl Client {
    /// Connects and says HELLO.
    ///
    /// # Errors
    /// [`ClientError::NotSent`] if no server is there. [`ClientError::Deadline`] or
    /// [`ClientError::Unknown`] if the server does not answer within the deadline.
    /// [`ClientError::Protocol`] if the server is not a Penstock server. Otherwise the error with
    /// which the server refuses a PING.
    pub fn connect(address: SocketAddr, options: ClientOptions) -> Result<Client, ClientError> {
        Client::connect_any(&[address.to_string()], options)
    }

    /// Connects to the first node of a cluster that answers. Every node of `addresses` is asked
    /// when the others do not answer. If there is more than one address, each node has a second to
    /// accept the connection and a second to answer.
    ///
    /// # Errors
    /// The error of the last node that was tried, as for [`Client::connect`].
    /// [`ClientError::NotSent`] if `addresses` is empty.
    pub fn connect_any(
        addresses: &[String],
        options: ClientOptions,
    ) -> Result<Client, ClientError> {
        Ok(Client {
            driver: Driver::start(addresses, options)?,
        })
    }

    /// The same connections, whose answers must have reached this level instead of
    /// [`ClientOptions::level`].
    #[must_use]
    pub fn with_level(&self, level: AckLevel) -> Client {
        Client {
            driver: self.driver.with_level(level),
        }
    }

    /// What a server has told of itself: its features, limits, shards and time. Of several nodes,
    /// the one whose HELLO came last.
    #[must_use]
    pub fn hello(&self) -> ServerHello {
        self.driver.hello()
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

    /// Reads a value, lets `edit` change it, and writes it back if nobody else wrote the key
    /// meanwhile. If somebody did, `edit` runs again with the newer value. A missing key is an
    /// empty value; an expiry stays. `edit` returns whether to write. `Ok(None)` says that `edit`
    /// declined. Blocks.
    ///
    /// Between two tries the call pauses for a random time, 16 ms at most. The tries end when
    /// [`ClientOptions::deadline`] has passed since the call.
    ///
    /// # Errors
    /// [`ClientError::Busy`] if other writers were faster until the deadline. Otherwise the errors
    /// of [`Verbs::get`] and [`Verbs::set_if`].
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

    /// Asks a write again whose outcome was unknown ([`Unknown::write`](crate::Unknown::write)),
    /// with the same token. `T` is what the write is answered with, such as [`Changed`].
    ///
    /// | outcome | what became of the write |
    /// |---|---|
    /// | OK, [`Changed::is_replayed`] | an earlier try was executed; this is its answer |
    /// | OK, not replayed | no earlier try was executed; this one was |
    /// | [`ClientError::No`], [`ClientError::Refused`] | no try was executed, as far as the server has received them |
    /// | [`ClientError::Unknown`] | unknown as before: ask again |
    ///
    /// The write is executed once at most, whatever is asked how often. A no is about the moment of
    /// this try: an earlier try may still stand in a buffer on its way. It may then be executed
    /// behind this one, if what it asks for holds by then, up to the deadline of its frame behind
    /// its arrival. So a caller that is told no and gives up must wait for
    /// [`ClientOptions::deadline`] before it may take the no as final.
    pub fn resolve<T: FromAnswer>(&self, write: &NamedWrite) -> Pending<T> {
        self.driver.ask_named(write.clone(), T::from_answer, true)
    }

    /// All keys that begin with `prefix`, with or without their values, page by page; blocks.
    pub fn scan(&self, prefix: &[u8], wants_values: bool) -> Scan<&Client> {
        Scan::new(self, prefix, wants_values)
    }

    /// A new token, by the random numbers of this machine and by the time of the server, if that is
    /// more than a minute from the clock of this machine: a token is too old by the time of the
    /// server. Tokens that the client makes by itself are such ones.
    ///
    /// # Errors
    /// The error of the system if it gives no random numbers.
    pub fn new_token(&self) -> std::io::Result<Token> {
        self.driver.new_token()
    }

    pub(crate) fn deadline(&self) -> Duration {
        self.driver.deadline()
    }

    pub(crate) fn value_bytes_max(&self) -> Option<u32> {
        self.driver.value_bytes_max()
    }

    /// Sends bytes there and back.
    pub fn ping(&self) -> Pending<()> {
        self.driver.ask_frame(Opcode::Ping, &[], |_| Ok(()))
    }

    /// The server's state as JSON.
    pub fn info(&self) -> Pending<String> {
        self.driver.ask_frame(Opcode::Info, &[], info_of)
    }

    /// The same for a backup: the server decides no change over several shards for a moment, and
    /// says how many are on their way. A server that is older is [`ClientError::Refused`].
    pub fn info_for_backup(&self) -> Pending<String> {
        self.driver.ask_frame(Opcode::Info, &BACKUP_ASKS, info_of)
    }

    /// The layouts and programs of the server as JSON. A server that is older than programs is
    /// [`ClientError::Refused`].
    pub fn schema(&self) -> Pending<String> {
        self.driver.ask_frame(Opcode::Info, &SCHEMA_ASKED, info_of)
    }

    /// The programs that the server has, by their names. A program whose files change has another
    /// id from then on: ask again when a run is [`Status::UnknownProgram`](crate::Status). A server
    /// that is older than programs is [`ClientError::Refused`].
    ///
    /// ```no_run
    /// # use penstock_client::{Client, ClientOptions, Verbs};
    /// # let client = Client::connect("127.0.0.1:7411".parse()?, ClientOptions::default())?;
    /// let programs = client.programs().wait()?;
    /// let restock = programs.find("restock").ok_or("the server has other files")?;
    /// let run = restock.run().key(b"stock:{42}").argument(100u32).argument(2u32);
    /// client.run(&run).wait()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn programs(&self) -> Pending<ServedPrograms> {
        self.driver.ask_frame(Opcode::Info, &SCHEMA_ASKED, |body| {
            let text = text_of(body).unwrap_or_default();
            ServedPrograms::read(text.as_bytes())
        })
    }
}

fn info_of(body: &[u8]) -> Result<String, ClientError> {
    text_of(body)
        .map(str::to_string)
        .ok_or_else(|| ClientError::Protocol("INFO is not a text".into()))
}
