//! One TLS connection without its socket: ciphertext in, plaintext out, and the reverse.

use std::fmt;
use std::io::{BufRead, ErrorKind, IoSlice, Write};
use std::sync::Arc;

use penstock_net::link::{Channel, NodeName};
use rustls::{
    CertificateError, ClientConfig, ClientConnection, Connection, ServerConfig, ServerConnection,
};

use super::links::server_name;
use super::names::{common_name, node_name};
use crate::system::wiping::{WipedAtEnd, Wiping};

/// Bytes of plaintext that are sealed at once, at most: four whole records.
const SEALED_BYTES_MAX: usize = 64 << 10;

/// Runs of bytes that are sealed at once, at most.
const RUNS_MAX: usize = 64;

/// The label of `tls-exporter` (RFC 9266).
const BINDING_LABEL: &[u8] = b"EXPORTER-Channel-Binding";

/// One side of one TLS connection. It owns all that is to be said, which
/// [`TlsConnection::seal`] and [`TlsConnection::take_output`] hand out in its order.
pub(crate) struct TlsConnection {
    /// Its memory is wiped at its end.
    state: WipedAtEnd<Connection>,
    /// What is freed while it reads is wiped, too: secrets may pass through it.
    carries_secrets: bool,
    /// The peer has said its last word, or its bytes could not be read.
    has_ended: bool,
}

/// What a finished handshake proves.
#[derive(Clone)]
pub(crate) struct Peer {
    /// `tls-exporter` of RFC 9266.
    pub(crate) channel_binding: [u8; 32],
    /// The common name in the certificate of the peer, if it has shown one.
    pub(crate) certificate_name: Option<Arc<str>>,
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peer")
            .field("certificate_name", &self.certificate_name)
            .finish_non_exhaustive()
    }
}

/// Why the bytes of a peer end its connection.
#[derive(Debug)]
pub(crate) struct TlsFault(rustls::Error);

impl fmt::Display for TlsFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use rustls::Error::{
            AlertReceived, InvalidCertificate, InvalidMessage, NoCertificatesPresented,
            PeerIncompatible,
        };
        match &self.0 {
            InvalidMessage(rustls::InvalidMessage::InvalidContentType) => f.write_str(
                "its bytes are no TLS: a client without TLS, or one that was not told to use it",
            ),
            PeerIncompatible(
                rustls::PeerIncompatible::SupportedVersionsExtensionRequired
                | rustls::PeerIncompatible::Tls12NotOfferedOrEnabled
                | rustls::PeerIncompatible::Tls13RequiredForQuic,
            ) => f.write_str("it offers TLS 1.2 or older, and TLS 1.3 is needed"),
            NoCertificatesPresented => f.write_str("it shows no certificate, and one is needed"),
            InvalidCertificate(CertificateError::ApplicationVerificationFailure) => {
                f.write_str("it shows the certificate of a node, which opens links alone")
            }
            AlertReceived(alert) => write!(f, "it gave up with the alert {alert:?}"),
            other => write!(f, "{other}"),
        }
    }
}

impl std::error::Error for TlsFault {}

impl TlsConnection {
    /// A connection that was just accepted.
    pub(crate) fn new(config: Arc<ServerConfig>) -> TlsConnection {
        let state = ServerConnection::new(config).expect("the configuration was checked");
        TlsConnection::of(Connection::Server(state))
    }

    /// A connection that was just made to another node.
    pub(crate) fn dial(config: Arc<ClientConfig>, node: NodeName) -> TlsConnection {
        let state = ClientConnection::new(config, server_name(node));
        let state = state.expect("the configuration was checked");
        TlsConnection::of(Connection::Client(state))
    }

    fn of(mut state: Connection) -> TlsConnection {
        // The caller bounds what it seals, and takes all of it at once.
        state.set_buffer_limit(None);
        TlsConnection {
            state: WipedAtEnd::new(state),
            carries_secrets: false,
            has_ended: false,
        }
    }

    /// Secrets pass through it: what it frees while it reads is wiped.
    pub(crate) fn carry_secrets(&mut self) {
        self.carries_secrets = true;
    }

    /// Takes bytes of the peer and appends what they say to `plaintext`.
    ///
    /// # Errors
    /// [`TlsFault`] if they cannot be read. What came before them was appended, and an alert is
    /// ready to be sent.
    pub(crate) fn receive(
        &mut self,
        mut ciphertext: &[u8],
        plaintext: &mut Vec<u8>,
    ) -> Result<(), TlsFault> {
        let _wiping = self.carries_secrets.then(Wiping::begin);
        while !ciphertext.is_empty() && !self.has_ended {
            let taken = self.state.read_tls(&mut ciphertext);
            if !matches!(taken, Ok(1..)) {
                // A message of the handshake that is longer than rustls takes.
                self.has_ended = true;
                let refused = rustls::InvalidMessage::HandshakePayloadTooLarge;
                return Err(TlsFault(rustls::Error::InvalidMessage(refused)));
            }
            let outcome = self.state.process_new_packets();
            let mut reader = self.state.reader();
            let has_closed = loop {
                match reader.fill_buf() {
                    Ok([]) => break true,
                    Ok(chunk) => {
                        plaintext.extend_from_slice(chunk);
                        let bytes = chunk.len();
                        reader.consume(bytes);
                    }
                    Err(error) => break error.kind() != ErrorKind::WouldBlock,
                }
            };
            self.has_ended = has_closed || outcome.is_err();
            outcome.map_err(TlsFault)?;
        }
        Ok(())
    }

    /// Encrypts the first bytes of `runs`, at most [`SEALED_BYTES_MAX`], from where they stand, and
    /// appends the records to `ciphertext` behind all else that is to be said. Returns how many
    /// bytes of `runs` these are.
    pub(crate) fn seal<'a>(
        &mut self,
        runs: impl Iterator<Item = &'a [u8]>,
        ciphertext: &mut Vec<u8>,
    ) -> usize {
        let mut slices = [IoSlice::new(&[]); RUNS_MAX];
        let (mut count, mut bytes) = (0, 0);
        for (slice, run) in slices.iter_mut().zip(runs) {
            let room = SEALED_BYTES_MAX - bytes;
            let run = &run[..run.len().min(room)];
            *slice = IoSlice::new(run);
            bytes += run.len();
            count += 1;
            if bytes == SEALED_BYTES_MAX {
                break;
            }
        }
        let written = self.state.writer().write_vectored(&slices[..count]);
        // It fails when a fault has ended the connection: then nothing more is said than that.
        let sealed = written.unwrap_or(0);
        self.take_output(ciphertext);
        sealed
    }

    /// Appends all that is to be said to `ciphertext`.
    pub(crate) fn take_output(&mut self, ciphertext: &mut Vec<u8>) {
        while self.state.wants_write() {
            let written = self.state.write_tls(ciphertext);
            written.expect("writing to memory does not fail");
        }
    }

    /// Whether something is to be said that is not of the caller.
    pub(crate) fn has_output(&self) -> bool {
        self.state.wants_write()
    }

    /// Says that nothing more is sent.
    pub(crate) fn close(&mut self) {
        self.state.send_close_notify();
    }

    pub(crate) fn is_handshaking(&self) -> bool {
        self.state.is_handshaking()
    }

    /// Whether the peer has shown a certificate, which was checked.
    pub(crate) fn has_certificate(&self) -> bool {
        !self.state.is_handshaking() && self.state.peer_certificates().is_some()
    }

    /// Whether nothing more is read from the peer.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// What the handshake, which is finished, has proved of a client.
    pub(crate) fn peer(&self) -> Peer {
        let certificates = self.state.peer_certificates();
        Peer {
            channel_binding: self.binding(),
            certificate_name: certificates.and_then(|them| common_name(them.first()?)),
        }
    }

    /// What the handshake, which is finished, has proved of another node.
    pub(crate) fn channel(&self) -> Channel {
        let certificates = self.state.peer_certificates();
        Channel::Tls {
            binding: self.binding(),
            certified: certificates.and_then(|them| node_name(them.first()?)),
        }
    }

    fn binding(&self) -> [u8; 32] {
        let exported = self
            .state
            .export_keying_material([0; 32], BINDING_LABEL, Some(&[]));
        exported.expect("the handshake is finished")
    }
}

#[cfg(test)]
#[path = "../../tests/fuzz/tls.rs"]
mod fuzz;
#[cfg(test)]
mod tests;
