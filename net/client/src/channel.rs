//! What the bytes of a connection go through on their way: nothing, or TLS.

use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

#[cfg(feature = "tls")]
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use penstock_net::auth::BINDING_BYTES;

use crate::operation::ClientError;
#[cfg(feature = "tls")]
use crate::operation::Unfit;
use crate::options::ClientOptions;
#[cfg(feature = "tls")]
use crate::tls::{TlsError, TlsSession};

/// The least time in which the system must take bytes for a server.
pub(crate) const WRITE_MIN: Duration = Duration::from_millis(20);

/// The way of the bytes of one connection. Its reader and its writer share it. The writer alone
/// sends, so records leave in the order in which they were sealed.
#[derive(Clone)]
pub(crate) enum Channel {
    Plain,
    #[cfg(feature = "tls")]
    Tls(Arc<Mutex<TlsSession>>),
}

impl Channel {
    /// Connects to `address`, HOST:PORT, within `time`, and makes the way there.
    pub(crate) fn open(
        options: &ClientOptions,
        address: &str,
        time: Duration,
    ) -> Result<(TcpStream, Channel), ClientError> {
        let not_sent = |error: io::Error| ClientError::NotSent(format!("{address}: {error}"));
        let until = Instant::now() + time;
        let mut found = address.to_socket_addrs().map_err(not_sent)?;
        let found = found
            .next()
            .ok_or_else(|| ClientError::NotSent(format!("{address}: no such host")))?;
        let stream = TcpStream::connect_timeout(&found, time).map_err(not_sent)?;
        stream.set_nodelay(true).map_err(not_sent)?;
        stream
            .set_write_timeout(Some(
                options.silence_max.min(options.deadline).max(WRITE_MIN),
            ))
            .map_err(not_sent)?;
        #[cfg(feature = "tls")]
        if let Some(tls) = &options.tls {
            let failed = |error: TlsError| {
                let text = format!("{address}: {error}");
                if error.is_lasting() {
                    ClientError::Unfit(Unfit::Tls(text))
                } else {
                    ClientError::NotSent(text)
                }
            };
            let mut session = TlsSession::begin(tls, address).map_err(failed)?;
            session.shake_hands(&stream, until).map_err(failed)?;
            return Ok((stream, Channel::Tls(Arc::new(Mutex::new(session)))));
        }
        let _ = until;
        Ok((stream, Channel::Plain))
    }

    /// What both ends of an encrypted connection know, and those of no other.
    pub(crate) fn binding(&self) -> Option<[u8; BINDING_BYTES]> {
        match self {
            Channel::Plain => None,
            #[cfg(feature = "tls")]
            Channel::Tls(session) => lock(session).channel_binding(),
        }
    }

    /// Turns bytes for the server into those that go over the stream.
    #[cfg_attr(
        not(feature = "tls"),
        expect(unused_variables, clippy::ptr_arg, reason = "bytes go as they are")
    )]
    pub(crate) fn seal(&self, bytes: &mut Vec<u8>) {
        match self {
            Channel::Plain => {}
            #[cfg(feature = "tls")]
            Channel::Tls(session) => {
                let mut ciphertext = Vec::with_capacity(bytes.len() + 64);
                lock(session).seal(bytes, &mut ciphertext);
                *bytes = ciphertext;
            }
        }
    }

    /// The bytes of the server in those that came over the stream. `buffer` is empty, and is used
    /// where they are others.
    #[cfg_attr(
        not(feature = "tls"),
        expect(unused_variables, clippy::ptr_arg, reason = "bytes go as they are")
    )]
    pub(crate) fn receive<'a>(
        &self,
        bytes: &'a [u8],
        buffer: &'a mut Vec<u8>,
    ) -> (&'a [u8], Result<(), ClientError>) {
        match self {
            Channel::Plain => (bytes, Ok(())),
            #[cfg(feature = "tls")]
            Channel::Tls(session) => {
                let outcome = lock(session).receive(bytes, buffer);
                let outcome =
                    outcome.map_err(|error| ClientError::Unfit(Unfit::Tls(error.to_string())));
                (buffer, outcome)
            }
        }
    }

    /// Whether something is to be sent that no caller has asked for.
    pub(crate) fn has_output(&self) -> bool {
        match self {
            Channel::Plain => false,
            #[cfg(feature = "tls")]
            Channel::Tls(session) => lock(session).has_output(),
        }
    }
}

#[cfg(feature = "tls")]
fn lock(session: &Mutex<TlsSession>) -> MutexGuard<'_, TlsSession> {
    // A session that panicked in the middle is over, and says so by its next error.
    session.lock().unwrap_or_else(PoisonError::into_inner)
}
