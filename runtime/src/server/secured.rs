//! The handshake of a connection that was accepted, and what it makes.
//!
//! A half handshake holds a socket and some memory, and no session. Its deadline counts from the
//! accept.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use monoio::io::{AsyncReadRent, AsyncWriteRentExt};
use monoio::net::TcpStream;
use rustls::ServerConfig;

use super::core::Core;
use crate::tls::{Peer, TlsConnection, TlsFault};

/// From the accept to the last byte of the handshake.
pub(super) const HANDSHAKE_TIME: Duration = Duration::from_secs(3);

/// Bytes of one read of a handshake, at most.
const READ_BYTES: usize = 4 << 10;

/// A connection whose handshake is finished.
pub(super) struct Secured {
    pub(super) tls: TlsConnection,
    /// What came behind the handshake.
    pub(super) early: Vec<u8>,
    pub(super) peer: Peer,
}

/// Why a handshake came to nothing.
#[derive(Debug)]
pub(super) enum HandshakeError {
    Fault(TlsFault),
    /// The peer closed the connection, or it broke.
    Gone,
    Late,
}

impl fmt::Display for HandshakeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HandshakeError::Fault(fault) => fault.fmt(f),
            HandshakeError::Gone => f.write_str("it ended before the handshake did"),
            HandshakeError::Late => write!(
                f,
                "its handshake was not whole within {} s",
                HANDSHAKE_TIME.as_secs()
            ),
        }
    }
}

/// Shakes hands with a peer that has a place ([`Handshakes::begin`]), which is given back.
pub(super) async fn shake_hands(
    core: &Core,
    mut stream: TcpStream,
    config: Arc<ServerConfig>,
) -> Result<(TcpStream, Secured), HandshakeError> {
    let _ = stream.set_nodelay(true);
    let shaken = monoio::time::timeout(HANDSHAKE_TIME, exchange(core, &mut stream, config)).await;
    core.handshakes.end();
    match shaken {
        Err(_) => Err(HandshakeError::Late),
        Ok(Err(error)) => Err(error),
        Ok(Ok((tls, early))) => {
            let peer = tls.peer();
            Ok((stream, Secured { tls, early, peer }))
        }
    }
}

async fn exchange(
    core: &Core,
    stream: &mut TcpStream,
    config: Arc<ServerConfig>,
) -> Result<(TlsConnection, Vec<u8>), HandshakeError> {
    let mut tls = TlsConnection::new(config);
    let (mut input, mut early) = (Vec::with_capacity(READ_BYTES), Vec::new());
    while tls.is_handshaking() {
        let read;
        (read, input) = stream.read(input).await;
        if !matches!(read, Ok(1..)) {
            return Err(HandshakeError::Gone);
        }
        core.handshakes.step(&core.turn).await;
        let received = tls.receive(&input, &mut early);
        input.clear();
        let mut output = Vec::new();
        tls.take_output(&mut output);
        if !output.is_empty() {
            // Also the alert of a fault.
            let (written, _) = stream.write_all(output).await;
            written.map_err(|_| HandshakeError::Gone)?;
        }
        received.map_err(HandshakeError::Fault)?;
        if tls.is_handshaking() && tls.has_ended() {
            return Err(HandshakeError::Gone);
        }
    }
    Ok((tls, early))
}
