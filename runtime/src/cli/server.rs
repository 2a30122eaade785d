//! The server that a command asks, through the client library.

use std::fmt;
use std::net::ToSocketAddrs;
use std::time::{Duration, Instant};

use clap::Args;
use penstock_benches::TlsArgs;
use penstock_client::{
    AckLevel, Answer, Ask, Client, ClientError, ClientOptions, FromAnswer, ServerHello, Status,
    Token, Unfit, Verbs,
};
use penstock_net::request::Effect;
use penstock_net::status::Executed;

use super::Failure;
use super::login::LoginArgs;

/// The wait before a member is asked once more whose data is too old.
const ASK_AGAIN: Duration = Duration::from_millis(20);

/// The server that is asked, and how long it may take.
#[derive(Args, Clone)]
pub struct ServerAddress {
    /// Address of the server, or of several nodes of a cluster, with commas: the first one that
    /// answers is asked
    #[arg(
        long,
        value_name = "HOST:PORT",
        env = "PENSTOCK_ADDR",
        default_value = "127.0.0.1:7411",
        value_delimiter = ','
    )]
    addr: Vec<String>,
    /// Longest wait for an answer, in milliseconds, 1 to 65535
    #[arg(
        long,
        value_name = "N",
        default_value_t = 5000,
        value_parser = clap::value_parser!(u16).range(1..)
    )]
    timeout_ms: u16,
    #[command(flatten)]
    login: LoginArgs,
    #[command(flatten)]
    tls: TlsArgs,
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.addr.join(","))
    }
}

impl ServerAddress {
    /// The server at an address that a file names. Who asks, and whether through TLS, the
    /// environment says.
    pub fn at(addr: &str) -> ServerAddress {
        ServerAddress {
            addr: vec![addr.into()],
            timeout_ms: 5000,
            login: LoginArgs::of_environment(),
            tls: TlsArgs::of_environment(),
        }
    }

    /// The same with another time to answer.
    pub fn within(self, time: Duration) -> ServerAddress {
        ServerAddress {
            timeout_ms: u16::try_from(time.as_millis()).unwrap_or(u16::MAX).max(1),
            ..self
        }
    }

    /// Another server, with the same time to answer.
    pub fn also_at(&self, addr: &str) -> ServerAddress {
        ServerAddress {
            addr: vec![addr.into()],
            ..self.clone()
        }
    }

    /// The same host at another port.
    pub fn on_port(&self, port: u16) -> ServerAddress {
        let first = self.addr.first().map_or("", |addr| addr);
        let host = first.rsplit_once(':').map_or(first, |(host, _)| host);
        self.also_at(&format!("{host}:{port}"))
    }

    /// The server, and the nodes that it names where they write what is asked.
    pub fn connect(&self) -> Result<Connection, Failure> {
        self.open(true)
    }

    /// The server and no other node.
    pub fn connect_node(&self) -> Result<Connection, Failure> {
        self.open(false)
    }

    /// A client with many operations under way, whose answers have this level.
    pub fn client(&self, level: AckLevel) -> Result<Client, Failure> {
        Ok(self.connect()?.client.with_level(level))
    }

    fn open(&self, follows: bool) -> Result<Connection, Failure> {
        self.check_addresses()?;
        let options = ClientOptions {
            name: "penstock".into(),
            deadline: self.time(),
            follows,
            identity: self.login.identity()?,
            tls: self.tls.client_tls().map_err(Failure::usage)?,
            ..ClientOptions::default()
        };
        match Client::connect_any(&self.addr, options) {
            Ok(client) => Ok(Connection {
                client,
                address: self.clone(),
            }),
            Err(error) => Err(self.unreached(&error)),
        }
    }

    /// The failure that a read of this server ends with: nothing was executed.
    pub fn failed_read(&self, error: &ClientError) -> Failure {
        match error {
            ClientError::Unknown(unknown) => {
                Failure::server(format_args!("{self}: {}", unknown.text()))
            }
            _ => failure_of(error),
        }
    }

    fn time(&self) -> Duration {
        Duration::from_millis(self.timeout_ms.into())
    }

    /// Refuses addresses of which none has a host.
    fn check_addresses(&self) -> Result<(), Failure> {
        let mut wrong = "--addr names no server; allowed is HOST:PORT".to_string();
        for addr in &self.addr {
            match addr.to_socket_addrs() {
                Ok(_) => return Ok(()),
                Err(error) => wrong = format!("--addr = {addr:?}: {error}; allowed is HOST:PORT"),
            }
        }
        Err(Failure::usage(wrong))
    }

    /// The failure of a server to which no connection was opened.
    fn unreached(&self, error: &ClientError) -> Failure {
        match error {
            ClientError::Unfit(unfit) => match unfit {
                Unfit::NeedsTls => Failure::server(format_args!(
                    "{self}: it speaks TLS at this port: give --tls-ca"
                )),
                Unfit::NeedsIdentity => Failure::server(format_args!(
                    "{self}: it has users: give --user and --secret-file"
                )),
                Unfit::HasNoUsers => Failure::server(format_args!(
                    "{self}: it has no users, so it does not prove that it is the server of \
                     --user; leave out --user and --secret-file to ask it all the same"
                )),
                other => Failure::server(other),
            },
            ClientError::NotSent(cause) => Failure::server(format_args!("no server at {cause}")),
            ClientError::Busy(cause) => Failure::server(format_args!("{self}: {cause}")),
            ClientError::Deadline | ClientError::Unknown(_) => Failure::server(format_args!(
                "{self}: no answer within {} ms",
                self.timeout_ms
            )),
            ClientError::Protocol(cause) => Failure::server(format_args!(
                "{self} does not answer as a Penstock server does: {cause}"
            )),
            _ => failure_of(error),
        }
    }
}

/// A server that has answered.
pub struct Connection {
    client: Client,
    /// How it was reached.
    address: ServerAddress,
}

/// An answer of any status.
struct AnyAnswer(Answer);

impl FromAnswer for AnyAnswer {
    fn from_answer(answer: Answer) -> Result<AnyAnswer, ClientError> {
        Ok(AnyAnswer(answer))
    }
}

impl Connection {
    /// What it has told of itself.
    pub fn hello(&self) -> ServerHello {
        self.client.hello()
    }

    /// The client, at level `disk`.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Asks one operation.
    ///
    /// # Errors
    /// No answer, or one that refuses the whole request. What the server says of the operation
    /// itself is in [`Answer::status`].
    pub fn call(&self, level: AckLevel, ask: Ask<'_>) -> Result<Answer, Failure> {
        let answer: Result<AnyAnswer, _> = self.client.with_level(level).ask_for(ask).wait();
        match answer {
            Ok(AnyAnswer(answer)) => Ok(answer),
            Err(error) if ask.effect() == Effect::Reads => Err(self.failed_read(&error)),
            Err(error) => Err(failure_of(&error)),
        }
    }

    /// Asks a write with this token. A failure that leaves open whether the write was executed
    /// tells how to ask again.
    ///
    /// # Errors
    /// As for [`Connection::call`].
    pub fn call_named(
        &self,
        level: AckLevel,
        ask: Ask<'_>,
        token: Token,
    ) -> Result<Answer, Failure> {
        let client = self.client.with_level(level);
        let answer: Result<AnyAnswer, _> = client.named(token).ask_for(ask).wait();
        match answer {
            Ok(AnyAnswer(answer)) => Ok(answer),
            Err(ClientError::Unknown(unknown)) => {
                // The server has answered, and its answer says what is open.
                if let Some(answer) = unknown.answer() {
                    return Ok(answer.clone());
                }
                let cause = unknown.text();
                let line = format!("perhaps executed: {cause}; ask the same with --token {token}");
                Err(Failure::server(line))
            }
            Err(error) => Err(failure_of(&error)),
        }
    }

    /// Asks a read of a server that [`ServerAddress::connect_node`] has reached and that may not
    /// write the key. It is asked again until the time is over while its data is too old. A server
    /// that follows nobody names the node that writes, which answers then.
    ///
    /// # Errors
    /// As for [`Connection::call`].
    pub fn call_member(&self, ask: Ask<'_>) -> Result<Answer, Failure> {
        let until = Instant::now() + self.address.time();
        loop {
            let answer = self.call(AckLevel::Disk, ask)?;
            match answer.status {
                Status::Stale if Instant::now() + ASK_AGAIN < until => {
                    std::thread::sleep(ASK_AGAIN);
                }
                Status::Moved | Status::NotPrimary => {
                    return self.address.connect()?.call(AckLevel::Disk, ask);
                }
                _ => return Ok(answer),
            }
        }
    }

    /// What the server is doing, as JSON.
    pub fn info(&self) -> Result<String, Failure> {
        self.client
            .info()
            .wait()
            .map_err(|error| self.failed_read(&error))
    }

    /// The same for a backup. A server that is older than changes over several shards has none.
    pub fn info_for_backup(&self) -> Result<String, Failure> {
        match self.client.info_for_backup().wait() {
            Err(ClientError::Refused(_)) => self.info(),
            other => other.map_err(|error| self.failed_read(&error)),
        }
    }

    /// The failure that a read ends with: nothing was executed.
    pub fn failed_read(&self, error: &ClientError) -> Failure {
        self.address.failed_read(error)
    }
}

/// The failure that an operation of a client ends with.
pub fn failure_of(error: &ClientError) -> Failure {
    match error {
        ClientError::No(_) => Failure::no(error),
        ClientError::Refused(answer) => refused(answer),
        _ => Failure::server(error),
    }
}

/// The failure that the status of an answer stands for, by its class.
pub fn refused(answer: &Answer) -> Failure {
    let status = answer.status;
    let executed = match (status, status.executed()) {
        // The message of the server says whether it was executed.
        (Status::NoReplicas, _) => "",
        (_, Executed::Yes) => " (executed)",
        (_, Executed::No) => " (not executed)",
        (_, Executed::Unknown) => " (whether it was executed is unknown)",
    };
    let message = match String::from_utf8_lossy(&answer.value) {
        text if text.is_empty() => String::new(),
        text => format!(": {text}"),
    };
    let line = format_args!("{}{message}{executed}", status.name());
    match status.code() >> 8 {
        0x01 => Failure::no(line),
        0x04 => Failure::usage(line),
        _ => Failure::server(line),
    }
}
