//! The connection of a command to a server: HELLO, then one request at a time, each with a
//! deadline. A request about a key that another node writes is sent to that node.

use std::fmt;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use clap::Args;
use penstock_benches::{Stream, TlsArgs};
use penstock_client::{Client, ClientOptions, Identity, LoginFault};
use penstock_net::auth::{AuthMethod, AuthReply, AuthRequest, BINDING_BYTES, Login};
use penstock_net::frame::{Header, Opcode, write_frame};
use penstock_net::hello::{ClientHello, FEATURE_ALL, FEATURE_BEGAN, ServerHello};
use penstock_net::level::AckLevel;
use penstock_net::placement::Writer;
use penstock_net::program::SCHEMA_ASKED;
use penstock_net::receive::{Received, Receiver, is_tls};
use penstock_net::reply::{ExpiryTold, ReplyHead, ReplyItem, Standing, read_batch_reply, text_of};
use penstock_net::request::{Ask, BatchRequest, Effect, Token};
use penstock_net::status::{Executed, Status};

use super::Failure;
use super::login::{LoginArgs, Way, begin_login};

/// Largest frame that is taken from a server before HELLO has told its limit.
const HELLO_BYTES_MAX: u32 = 64 << 10;

/// Bytes of one read from the socket, at most.
const READ_BYTES: usize = 64 << 10;

/// The first wait before a node is asked once more which node writes. Each next wait is twice as
/// long.
const ASK_AGAIN: Duration = Duration::from_millis(10);

/// The longest of these waits.
const ASK_AGAIN_MAX: Duration = Duration::from_millis(160);

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
            timeout_ms: self.timeout_ms,
            login: self.login.clone(),
            tls: self.tls.clone(),
        }
    }

    /// The same host at another port.
    pub fn on_port(&self, port: u16) -> ServerAddress {
        let first = self.addr.first().map_or("", |addr| addr);
        let host = first.rsplit_once(':').map_or(first, |(host, _)| host);
        ServerAddress {
            addr: vec![format!("{host}:{port}")],
            timeout_ms: self.timeout_ms,
            login: self.login.clone(),
            tls: self.tls.clone(),
        }
    }

    /// Connects to the first server that answers HELLO.
    pub fn connect(&self) -> Result<Connection, Failure> {
        let mut last = Failure::usage("--addr names no server; allowed is HOST:PORT");
        for addr in &self.addr {
            match self.connect_to(addr) {
                Ok(connection) => return Ok(connection),
                Err(failure) => last = failure,
            }
        }
        Err(last)
    }

    /// A client with many operations under way, whose answers have this level.
    pub fn client(&self, level: AckLevel) -> Result<Client, Failure> {
        let options = ClientOptions {
            name: "penstock".into(),
            level,
            deadline: Duration::from_millis(self.timeout_ms.into()),
            identity: self.login.identity()?,
            tls: self.tls.client_tls().map_err(Failure::usage)?,
            ..ClientOptions::default()
        };
        Client::connect_any(&self.addr, options)
            .map_err(|error| Failure::server(format_args!("no server at {self}: {error}")))
    }

    fn connect_to(&self, addr: &str) -> Result<Connection, Failure> {
        let timeout = Duration::from_millis(self.timeout_ms.into());
        let address = addr
            .to_socket_addrs()
            .map_err(|error| {
                Failure::usage(format_args!(
                    "--addr = {addr:?}: {error}; allowed is HOST:PORT"
                ))
            })?
            .next()
            .ok_or_else(|| Failure::usage(format_args!("--addr = {addr:?}: no such host")))?;
        let stream = TcpStream::connect_timeout(&address, timeout)
            .and_then(|stream| stream.set_nodelay(true).map(|()| stream))
            .map_err(|error| Failure::server(format_args!("no server at {addr}: {error}")))?;
        let tls = self.tls.client_tls().map_err(Failure::usage)?;
        let stream = Stream::open(tls.as_ref(), addr, stream, timeout)
            .map_err(|error| Failure::server(format_args!("{addr}: {error}")))?;
        let binding = stream.channel_binding();
        let mut wire = Wire {
            stream,
            receiver: Receiver::new(HELLO_BYTES_MAX),
            buffer: Vec::new(),
            address: addr.into(),
            timeout,
            last_id: 0,
        };
        let mut frame = Vec::new();
        let id = wire.next_id();
        let hello = ClientHello {
            protocol_min: 1,
            protocol_max: 1,
            features: FEATURE_BEGAN | FEATURE_ALL,
            name: "penstock",
        };
        hello.write(&mut frame, id);
        let (_, body) = wire.exchange(&frame, id, Effect::Reads)?;
        let hello =
            ServerHello::read(&body).map_err(|refusal| wire.broken(&refusal, Effect::Reads))?;
        let hello = wire.log_in(hello, self.login.identity()?.as_ref(), binding)?;
        wire.receiver
            .set_frame_bytes_max(hello.limits.frame_bytes_max);
        Ok(Connection {
            wire,
            hello,
            server: self.clone(),
        })
    }
}

/// A server that has answered HELLO.
pub struct Connection {
    wire: Wire,
    /// What the server told of itself.
    pub hello: ServerHello,
    /// How it was reached.
    server: ServerAddress,
}

/// The answer to one operation.
pub struct Answer {
    /// Status, version, level.
    pub head: ReplyHead,
    /// The expiry, if it was asked for.
    pub expiry: Option<ExpiryTold>,
    /// How new the answer is, if a member might have given it.
    pub standing: Option<Standing>,
    /// Value, new fields or message.
    pub value: Vec<u8>,
}

impl Connection {
    /// Sends one operation and takes its answer apart. A node that names another node has not
    /// executed the operation: it is sent to that node, until the time is over. If the data of the
    /// node is too old, the same node is asked again.
    ///
    /// # Errors
    /// No answer, an answer that cannot be read, or one that refuses the whole request. What the
    /// server says of the operation itself is in [`Answer::head`].
    pub fn call(&mut self, level: AckLevel, ask: Ask<'_>) -> Result<Answer, Failure> {
        self.call_with(level, ask, None)
    }

    /// The same for a write with this token. A failure that leaves open whether the write was
    /// executed tells how to ask again.
    ///
    /// # Errors
    /// As for [`Connection::call`].
    pub fn call_named(
        &mut self,
        level: AckLevel,
        ask: Ask<'_>,
        token: Token,
    ) -> Result<Answer, Failure> {
        let answer = self.call_with(level, ask, Some(token));
        answer.map_err(|failure| match failure.line.ends_with(UNANSWERED) {
            true => {
                let line = format!("{}; ask the same with --token {token}", failure.line);
                Failure { line, ..failure }
            }
            false => failure,
        })
    }

    fn call_with(
        &mut self,
        level: AckLevel,
        ask: Ask<'_>,
        token: Option<Token>,
    ) -> Result<Answer, Failure> {
        let mut frame = Vec::new();
        let id = self.wire.next_id();
        let mut batch = BatchRequest::begin(&mut frame, id, level, self.server.timeout_ms, 1);
        if let Some(token) = token {
            batch.token(token);
        }
        ask.write(&mut batch, &mut frame);
        batch.finish(&mut frame);
        let frame_bytes_max = self.hello.limits.frame_bytes_max;
        if frame.len() > frame_bytes_max as usize {
            return Err(Failure::usage(format_args!(
                "the request has {} bytes; the server takes {frame_bytes_max}",
                frame.len()
            )));
        }
        let until = Instant::now() + self.wire.timeout;
        let mut pause = ASK_AGAIN;
        let mut newest = 0;
        loop {
            let answer = self.exchange(&frame, id, ask.effect())?;
            let is_again = matches!(
                answer.head.status,
                Status::Moved | Status::NotPrimary | Status::Stale
            );
            if !is_again || Instant::now() + pause > until {
                return Ok(answer);
            }
            let writer = Writer::read(answer.head.version, &answer.value);
            let is_news = writer
                .as_ref()
                .is_some_and(|writer| writer.generation > newest);
            if !is_news {
                std::thread::sleep(pause);
                pause = (pause * 2).min(ASK_AGAIN_MAX);
            }
            let Some(writer) = writer else { continue };
            newest = newest.max(writer.generation);
            let left = until.saturating_duration_since(Instant::now());
            let there = self.server.also_at(&writer.clients).within(left);
            // The named node may be lost. Then this node may come to know of another one.
            if let Ok(mut connection) = there.connect() {
                connection.server.timeout_ms = self.server.timeout_ms;
                connection.wire.timeout = self.wire.timeout;
                connection.wire.last_id = id;
                *self = connection;
            }
        }
    }

    fn exchange(&mut self, frame: &[u8], id: u64, effect: Effect) -> Result<Answer, Failure> {
        let (_, body) = self.wire.exchange(frame, id, effect)?;
        let broken = |refusal| self.wire.broken(&refusal, effect);
        let batch = read_batch_reply(&body).map_err(broken)?;
        if batch.len() != 1 {
            return Err(self.wire.broken(
                &format_args!("{} answers to one request", batch.len()),
                effect,
            ));
        }
        let item = ReplyItem::read(batch.item(0)).map_err(broken)?;
        Ok(Answer {
            head: item.head,
            expiry: item.expiry,
            standing: item.standing,
            value: item.value.to_vec(),
        })
    }

    /// Sends a PING with `body` and waits until it comes back. Returns how long that took.
    pub fn ping(&mut self, body: &[u8; 8]) -> Result<Duration, Failure> {
        let begun = Instant::now();
        let (_, returned) = self.request(Opcode::Ping, body)?;
        if returned != body {
            return Err(self
                .wire
                .broken(&"another body than was sent", Effect::Reads));
        }
        Ok(begun.elapsed())
    }

    /// What the server is doing, as JSON.
    pub fn info(&mut self) -> Result<String, Failure> {
        let (_, body) = self.request(Opcode::Info, &[])?;
        match text_of(&body) {
            Some(text) => Ok(text.to_string()),
            None => Err(self.wire.broken(&"a text that is no UTF-8", Effect::Reads)),
        }
    }

    /// The layouts and programs of the server, as JSON.
    pub fn schema(&mut self) -> Result<String, Failure> {
        let (_, body) = self.request(Opcode::Info, &SCHEMA_ASKED)?;
        match text_of(&body) {
            Some(text) => Ok(text.to_string()),
            None => Err(self.wire.broken(&"a text that is no UTF-8", Effect::Reads)),
        }
    }

    fn request(&mut self, opcode: Opcode, body: &[u8]) -> Result<(Header, Vec<u8>), Failure> {
        let mut frame = Vec::new();
        let id = self.wire.next_id();
        let header = Header::request(opcode, id, AckLevel::None, self.server.timeout_ms);
        write_frame(&mut frame, header, body);
        self.wire.exchange(&frame, id, Effect::Reads)
    }
}

/// The socket and what was received from it.
struct Wire {
    stream: Stream,
    receiver: Receiver,
    /// Received and not yet read.
    buffer: Vec<u8>,
    address: String,
    timeout: Duration,
    last_id: u64,
}

impl Wire {
    fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    /// Logs in, if the server and the command say so. Returns HELLO as an open connection has it.
    fn log_in(
        &mut self,
        hello: ServerHello,
        identity: Option<&Identity>,
        binding: Option<[u8; BINDING_BYTES]>,
    ) -> Result<ServerHello, Failure> {
        let way = begin_login(&hello, identity, binding)
            .map_err(|text| Failure::server(format_args!("{}: {text}", self.address)))?;
        let (mut login, method) = match way {
            Way::None => return Ok(hello),
            Way::Certificate => (None, AuthMethod::Certificate),
            Way::Scram(login) => (Some(login), AuthMethod::Scram),
        };
        let mut message = login.as_ref().map_or("-".into(), Login::first);
        loop {
            let (mut frame, id) = (Vec::new(), self.next_id());
            let request = AuthRequest {
                method,
                message: message.as_bytes(),
            };
            request.write(&mut frame, id);
            let (_, body) = self.exchange(&frame, id, Effect::Reads)?;
            let reply = AuthReply::read(&body);
            let reply = reply.map_err(|fault| self.broken(&fault, Effect::Reads))?;
            let broken = |fault| self.broken(&fault, Effect::Reads);
            match (reply, &mut login) {
                (AuthReply::GoOn { message: challenge }, Some(login)) => {
                    message = login
                        .challenged(challenge)
                        .and_then(|challenge| login.prove(&challenge.salted()))
                        .map_err(broken)?;
                }
                (AuthReply::GoOn { .. }, None) => return Err(broken(LoginFault::Order)),
                (AuthReply::Done { message, hello }, login) => {
                    let welcomed = login.as_mut().map_or(Ok(()), |it| it.welcomed(message));
                    welcomed.map_err(broken)?;
                    return ServerHello::read(hello)
                        .map_err(|refusal| self.broken(&refusal, Effect::Reads));
                }
            }
        }
    }

    /// Sends a frame and waits for the reply of that id. One request is under way at a time.
    fn exchange(
        &mut self,
        frame: &[u8],
        id: u64,
        effect: Effect,
    ) -> Result<(Header, Vec<u8>), Failure> {
        let deadline = Instant::now() + self.timeout;
        self.stream
            .socket()
            .set_write_timeout(Some(self.timeout))
            .and_then(|()| self.stream.write_all(frame))
            .map_err(|error| self.lost(&error, effect))?;
        loop {
            let consumed = match self.receiver.next(&self.buffer) {
                Received::Frame {
                    header,
                    body,
                    consumed,
                } => {
                    let answer = (header, body.to_vec());
                    self.buffer.drain(..consumed);
                    return self.judge(answer, id, effect);
                }
                Received::Refused { .. } | Received::Incomplete { .. } if is_tls(&self.buffer) => {
                    let told = "it speaks TLS at this port: give --tls-ca";
                    return Err(self.broken(&told, effect));
                }
                Received::Refused { refusal, .. } => return Err(self.broken(&refusal, effect)),
                Received::Skipped { consumed } => consumed,
                Received::Incomplete { .. } => {
                    self.fill(deadline, effect)?;
                    0
                }
            };
            self.buffer.drain(..consumed);
        }
    }

    /// Checks that a frame is the awaited reply, and no refusal.
    fn judge(
        &self,
        (header, body): (Header, Vec<u8>),
        id: u64,
        effect: Effect,
    ) -> Result<(Header, Vec<u8>), Failure> {
        let status = Status::from_code(header.level_or_status);
        if status == Some(Status::Ok) && header.request_id == id {
            return Ok((header, body));
        }
        let Some(status) = status.filter(|status| *status != Status::Ok) else {
            return Err(self.broken(
                &format_args!(
                    "request {} with status {:#06x} while {id} was asked",
                    header.request_id, header.level_or_status
                ),
                effect,
            ));
        };
        Err(refused(status, text_of(&body).unwrap_or_default()))
    }

    /// Reads once from the socket, not beyond the deadline.
    fn fill(&mut self, deadline: Instant, effect: Effect) -> Result<(), Failure> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(self.lost(&ErrorKind::TimedOut.into(), effect));
        }
        let start = self.buffer.len();
        self.buffer.resize(start + READ_BYTES, 0);
        let read = self
            .stream
            .socket()
            .set_read_timeout(Some(left))
            .and_then(|()| self.stream.read(&mut self.buffer[start..]));
        self.buffer.truncate(start + *read.as_ref().unwrap_or(&0));
        match read {
            Ok(0) => Err(self.lost(&ErrorKind::UnexpectedEof.into(), effect)),
            Ok(_) => Ok(()),
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(self.lost(&error, effect)),
        }
    }

    /// The connection failed while an answer was waited for.
    fn lost(&self, error: &std::io::Error, effect: Effect) -> Failure {
        let cause = match error.kind() {
            ErrorKind::TimedOut | ErrorKind::WouldBlock => {
                format!("no answer within {} ms", self.timeout.as_millis())
            }
            ErrorKind::UnexpectedEof => "it closed the connection".to_string(),
            _ => error.to_string(),
        };
        let address = &self.address;
        Failure::server(format_args!("{address}: {cause}{}", unanswered(effect)))
    }

    /// What came back is no answer of this protocol.
    fn broken(&self, found: &dyn fmt::Display, effect: Effect) -> Failure {
        let address = &self.address;
        Failure::server(format_args!(
            "{address} does not answer as a Penstock server does: {found}{}",
            unanswered(effect)
        ))
    }
}

/// The warning about a write that was not answered.
const UNANSWERED: &str = "; whether the write was executed is unknown";

/// The warning about a request that was not answered and may have been executed.
fn unanswered(effect: Effect) -> &'static str {
    match effect {
        Effect::Reads => "",
        Effect::Writes | Effect::Deletes | Effect::Settings => UNANSWERED,
    }
}

/// The failure that a status stands for, by its class.
pub fn refused(status: Status, message: &str) -> Failure {
    let executed = match (status, status.executed()) {
        // The message of the server says whether it was executed.
        (Status::NoReplicas, _) => "",
        (_, Executed::Yes) => " (executed)",
        (_, Executed::No) => " (not executed)",
        (_, Executed::Unknown) => " (whether it was executed is unknown)",
    };
    let message = match message {
        "" => String::new(),
        text => format!(": {text}"),
    };
    let line = format_args!("{}{message}{executed}", status.name());
    match status.code() >> 8 {
        0x01 => Failure::no(line),
        0x04 => Failure::usage(line),
        _ => Failure::server(line),
    }
}
