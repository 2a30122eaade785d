//! How the connections of a load come in: TLS, HELLO, and a login where the server has users.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use penstock_client::login::ConnectionLogin;
use penstock_client::tls::{ClientTls, TlsSession};
use penstock_client::{ClientOptions, Identity};
use penstock_net::frame::{Header, Opcode};
use penstock_net::hello::{ClientHello, FEATURE_ALL, ServerHello, SlotRange};
use penstock_net::level::AckLevel;
use penstock_net::receive::{Received, Receiver, is_tls};
use penstock_net::reply::text_of;
use penstock_net::status::Status;

use crate::{BenchError, Stream, TlsArgs};

/// How long a handshake may hold up other connections.
const HANDSHAKE: Duration = Duration::from_secs(1);

/// Bytes of an answer before a connection is open, at most.
const ANSWER_BYTES_MAX: u32 = 1 << 16;

/// By what a load reaches a server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Access {
    pub(crate) tls: Option<ClientTls>,
    pub(crate) identity: Option<Identity>,
    /// A sale asks at level all, and not at level disk.
    pub(crate) is_of_cluster: bool,
}

impl Access {
    /// As the arguments say.
    ///
    /// # Errors
    /// One line that names the flag and the file.
    pub(crate) fn new(tls: &TlsArgs, identity: Option<&Identity>) -> Result<Access, BenchError> {
        Ok(Access {
            tls: tls.client_tls().map_err(BenchError::Arguments)?,
            identity: identity.cloned(),
            is_of_cluster: false,
        })
    }

    /// The level at which a sale asks.
    pub(crate) fn level(&self) -> AckLevel {
        match self.is_of_cluster {
            true => AckLevel::All,
            false => AckLevel::Disk,
        }
    }

    /// The options of a client.
    pub(crate) fn client(&self, name: &str, deadline: Duration) -> ClientOptions {
        ClientOptions {
            name: name.into(),
            deadline,
            tls: self.tls.clone(),
            identity: self.identity.clone(),
            ..ClientOptions::default()
        }
    }

    /// Connects and shakes hands, each within `time`.
    pub(crate) fn connect(
        &self,
        address: SocketAddr,
        time: Duration,
    ) -> Result<Stream, BenchError> {
        let failed = |error: std::io::Error| unreachable_at(address, &error);
        let stream = TcpStream::connect_timeout(&address, time).map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        let address = address.to_string();
        Stream::open(self.tls.as_ref(), &address, stream, time)
            .map_err(|error| failed(error.into()))
    }

    /// Connects without a wait; but a handshake is waited for, a second at most.
    pub(crate) fn begin(
        &self,
        address: SocketAddr,
    ) -> Result<(mio::net::TcpStream, Option<TlsSession>), BenchError> {
        let failed = |error: std::io::Error| unreachable_at(address, &error);
        if self.tls.is_some() {
            let stream = self.connect(address, HANDSHAKE)?;
            return into_parts(stream).map_err(failed);
        }
        let stream = mio::net::TcpStream::connect(address).map_err(failed)?;
        let _ = stream.set_nodelay(true);
        Ok((stream, None))
    }

    /// As [`Access::connect`], and waits until the connection is open.
    pub(crate) fn enter(&self, address: SocketAddr, time: Duration) -> Result<Stream, BenchError> {
        Ok(self.enter_greeted(address, time)?.0)
    }

    /// The same, with the shards of the server, their slots and their ports.
    pub(crate) fn enter_greeted(
        &self,
        address: SocketAddr,
        time: Duration,
    ) -> Result<(Stream, Vec<SlotRange>), BenchError> {
        let failed = |error: std::io::Error| unreachable_at(address, &error);
        let mut stream = self.connect(address, time)?;
        let socket = stream.socket();
        socket.set_read_timeout(Some(time)).map_err(failed)?;
        let (mut out, mut received) = (Vec::new(), Vec::new());
        let mut receiver = Receiver::new(ANSWER_BYTES_MAX);
        let mut entry = Entry::begin(self, stream.channel_binding(), &mut out)?;
        loop {
            stream.write_all(&out).map_err(failed)?;
            out.clear();
            let mut chunk = [0; 4 << 10];
            let read = stream.read(&mut chunk).map_err(failed)?;
            if read == 0 {
                let text = "the server closed a connection".into();
                return Err(BenchError::Connection(text));
            }
            received.extend_from_slice(&chunk[..read]);
            while let Some(consumed) = entry.take(&mut receiver, &received, &mut out)? {
                received.drain(..consumed);
            }
            if entry.is_open() {
                stream.socket().set_read_timeout(None).map_err(failed)?;
                return Ok((stream, entry.slots));
            }
        }
    }
}

fn unreachable_at(address: SocketAddr, error: &std::io::Error) -> BenchError {
    BenchError::Connection(format!("no connection to {address}: {error}"))
}

/// The socket of a stream, for one that waits for no single one, and its state of TLS.
pub(crate) fn into_parts(
    stream: Stream,
) -> std::io::Result<(mio::net::TcpStream, Option<TlsSession>)> {
    stream.socket().set_nonblocking(true)?;
    Ok(match stream {
        Stream::Plain(stream) => (mio::net::TcpStream::from_std(stream), None),
        Stream::Tls(stream) => {
            let (session, stream) = stream.into_session();
            (mio::net::TcpStream::from_std(stream), Some(session))
        }
    })
}

/// What a connection says before it is open.
pub(crate) struct Entry {
    login: ConnectionLogin,
    is_open: bool,
    /// What the server has said of its shards.
    slots: Vec<SlotRange>,
}

impl Entry {
    /// Begins, and appends the first bytes to `out`. `binding` is that of an encrypted connection.
    pub(crate) fn begin(
        access: &Access,
        binding: Option<[u8; 32]>,
        out: &mut Vec<u8>,
    ) -> Result<Entry, BenchError> {
        ClientHello {
            protocol_min: 1,
            protocol_max: 1,
            features: FEATURE_ALL,
            name: "penstock bench",
        }
        .write(out, 0);
        let login = ConnectionLogin::begin(access.identity.as_ref(), binding, out);
        let login = login.map_err(|error| BenchError::Connection(error.to_string()))?;
        Ok(Entry {
            login,
            is_open: false,
            slots: Vec::new(),
        })
    }

    pub(crate) fn is_open(&self) -> bool {
        self.is_open
    }

    /// Takes the first frame of `received`, if it is whole; how many bytes that is.
    pub(crate) fn take(
        &mut self,
        receiver: &mut Receiver,
        received: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<usize>, BenchError> {
        match receiver.next(received) {
            Received::Frame {
                header,
                body,
                consumed,
            } => {
                self.received(&header, body, out)?;
                Ok(Some(consumed))
            }
            _ if is_tls(received) => {
                let cause = "the server speaks TLS at this port: give --tls-ca";
                Err(BenchError::Connection(cause.into()))
            }
            Received::Incomplete { .. } => Ok(None),
            other => Err(BenchError::WrongAnswer(format!(
                "the server sent {other:?}"
            ))),
        }
    }

    /// Takes an answer to HELLO or AUTH. The bytes to send next are appended to `out`.
    pub(crate) fn received(
        &mut self,
        header: &Header,
        body: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), BenchError> {
        let refused = |text: String| Err(BenchError::Connection(text));
        if header.opcode == Opcode::Auth as u8 {
            return match self.login.answered(header, body, out) {
                Ok(hello) => {
                    self.is_open |= hello.is_some();
                    Ok(())
                }
                Err(unwelcome) => refused(unwelcome.error().to_string()),
            };
        }
        if header.opcode != Opcode::Hello as u8 || header.level_or_status != Status::Ok.code() {
            let text = text_of(body).unwrap_or("an error without a text");
            return refused(text.to_string());
        }
        let hello = ServerHello::read(body);
        let hello = hello.map_err(|refusal| BenchError::WrongAnswer(refusal.to_string()))?;
        self.slots.clone_from(&hello.slots);
        match self.login.greeted(&hello, out) {
            Ok(is_open) => {
                self.is_open = is_open;
                Ok(())
            }
            Err(unwelcome) => refused(unwelcome.error().to_string()),
        }
    }
}
