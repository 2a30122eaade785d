//! The bytes of one connection to the admin port, through TLS or not.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::sync::Arc;

use mio::net::TcpStream;
use rustls::ServerConfig;

use crate::tls::{TlsConnection, TlsFault};

/// Bytes that one read of the socket takes, at most.
const READ_BYTES_MAX: usize = 4 << 10;
/// Bytes that one [`Wire::read`] appends, at most: a record of TLS, and what came before it.
pub(super) const BROUGHT_BYTES_MAX: usize = (16 << 10) + READ_BYTES_MAX;

/// A socket that never makes its thread wait, and what TLS keeps of it.
pub(super) struct Wire {
    stream: TcpStream,
    secured: Option<Secured>,
}

struct Secured {
    tls: TlsConnection,
    /// What is to be sent; `sent` bytes of it have left.
    ciphertext: Vec<u8>,
    sent: usize,
}

/// Why nothing more is read.
#[derive(Debug)]
pub(super) enum WireError {
    /// Also that nothing has come yet.
    Socket(io::Error),
    /// The peer was told by an alert.
    Tls(TlsFault),
}

impl From<io::Error> for WireError {
    fn from(error: io::Error) -> Self {
        WireError::Socket(error)
    }
}

impl Wire {
    /// A connection that was just accepted.
    pub(super) fn new(stream: TcpStream, config: Option<Arc<ServerConfig>>) -> Wire {
        let secured = config.map(|config| {
            let mut tls = TlsConnection::new(config);
            tls.carry_secrets();
            Secured {
                tls,
                ciphertext: Vec::new(),
                sent: 0,
            }
        });
        Wire { stream, secured }
    }

    pub(super) fn is_handshaking(&self) -> bool {
        let secured = self.secured.as_ref();
        secured.is_some_and(|it| it.tls.is_handshaking())
    }

    /// Whether the peer has shown a certificate that is taken.
    pub(super) fn has_certificate(&self) -> bool {
        let secured = self.secured.as_ref();
        secured.is_some_and(|it| it.tls.has_certificate())
    }

    /// Appends what the peer has said; 0 bytes when it says nothing more.
    ///
    /// # Errors
    /// [`WireError`], of which [`io::ErrorKind::WouldBlock`] is none of the peer's.
    pub(super) fn read(&mut self, plaintext: &mut Vec<u8>) -> Result<usize, WireError> {
        let held = plaintext.len();
        let Some(secured) = &mut self.secured else {
            // Not by way of the stack: no copy of a token stays there.
            plaintext.resize(held + READ_BYTES_MAX, 0);
            let read = self.stream.read(&mut plaintext[held..]);
            plaintext.truncate(held + *read.as_ref().unwrap_or(&0));
            return Ok(read?);
        };
        while plaintext.len() == held {
            secured.flush(&mut self.stream)?;
            if secured.tls.has_ended() {
                return Ok(0);
            }
            let mut piece = [0; READ_BYTES_MAX];
            let len = self.stream.read(&mut piece)?;
            if len == 0 {
                return Ok(0);
            }
            let received = secured.tls.receive(&piece[..len], plaintext);
            secured.tls.take_output(&mut secured.ciphertext);
            if let Err(fault) = received {
                // The alert, if the socket takes it.
                let _ = secured.flush(&mut self.stream);
                return Err(WireError::Tls(fault));
            }
        }
        Ok(plaintext.len() - held)
    }

    /// Takes some of `bytes`; how many.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(secured) = &mut self.secured else {
            return self.stream.write(bytes);
        };
        secured.flush(&mut self.stream)?;
        let runs = std::iter::once(bytes);
        Ok(secured.tls.seal(runs, &mut secured.ciphertext))
    }

    /// Sends what is left and the last words, and shuts the socket for writing.
    pub(super) fn end(&mut self) -> io::Result<()> {
        if let Some(secured) = &mut self.secured {
            secured.flush(&mut self.stream)?;
            secured.tls.close();
            secured.tls.take_output(&mut secured.ciphertext);
            secured.flush(&mut self.stream)?;
        }
        let _ = self.stream.shutdown(Shutdown::Write);
        Ok(())
    }

    /// Reads and drops what the peer still sends; how many bytes.
    pub(super) fn drain(&mut self) -> io::Result<usize> {
        self.stream.read(&mut [0; READ_BYTES_MAX])
    }
}

impl Secured {
    /// Sends all that is to be sent.
    fn flush(&mut self, stream: &mut TcpStream) -> io::Result<()> {
        while self.sent < self.ciphertext.len() {
            match stream.write(&self.ciphertext[self.sent..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(taken) => self.sent += taken,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.ciphertext.clear();
        self.sent = 0;
        Ok(())
    }
}
