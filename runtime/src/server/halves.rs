//! The two halves of a connection's socket, each used by one task, with TLS or without.
//!
//! What must hold: the writing half alone writes to the socket, so records leave in the order in
//! which they were sealed.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use monoio::buf::IoBuf;
use monoio::io::{AsyncWriteRent, OwnedReadHalf, OwnedWriteHalf};
use monoio::net::TcpStream;

use super::connection::Connection;
use super::core::Core;
use super::inlet::{Brought, Inlet};
use super::secured::Secured;
use super::signal::Signal;
use crate::system::outgoing::Outgoing;
use crate::tls::TlsConnection;

/// A buffer of sealed records that is larger than this is given back when they have left.
const SEALED_BYTES_KEPT: usize = 16 << 10;

/// How long the last words of TLS may take.
const FAREWELL: Duration = Duration::from_secs(1);

/// Makes both halves of a connection.
pub(super) fn halves(
    core: &Rc<Core>,
    connection: &Rc<Connection>,
    reader: OwnedReadHalf<TcpStream>,
    writer: OwnedWriteHalf<TcpStream>,
    secured: Option<Secured>,
) -> (ReadHalf, WriteHalf) {
    let (mut reading, mut writing) = (None, None);
    if let Some(Secured { tls, early, .. }) = secured {
        let tls = Rc::new(RefCell::new(tls));
        reading = Some(Reading {
            core: Rc::clone(core),
            connection: Rc::clone(connection),
            tls: Rc::clone(&tls),
            early,
            ciphertext: Vec::new(),
        });
        writing = Some(Writing {
            tls,
            ciphertext: Vec::new(),
            sent: 0,
            sealed: 0,
            reported: 0,
        });
    }
    let read_half = ReadHalf {
        inlet: Inlet::new(reader, core, connection),
        reading,
    };
    let write_half = WriteHalf {
        socket: writer,
        writing,
    };
    (read_half, write_half)
}

/// The half that reads.
pub(super) struct ReadHalf {
    inlet: Inlet,
    reading: Option<Reading>,
}

/// What reading through TLS needs.
struct Reading {
    core: Rc<Core>,
    connection: Rc<Connection>,
    tls: Rc<RefCell<TlsConnection>>,
    /// What came behind the handshake, until it is read.
    early: Vec<u8>,
    /// Empty between two reads.
    ciphertext: Vec<u8>,
}

impl ReadHalf {
    /// Waits for bytes and appends them to `buffer`. `None` at the end of the connection.
    #[inline]
    pub(super) async fn read(&mut self, buffer: &mut Vec<u8>) -> Option<Brought> {
        match &mut self.reading {
            None => self.inlet.read(buffer).await,
            Some(reading) => reading.read(&mut self.inlet, buffer).await,
        }
    }

    /// As [`ReadHalf::read`], and gives up when the signal is set or the time is over: no bytes are
    /// brought then.
    pub(super) async fn read_until(
        &mut self,
        buffer: &mut Vec<u8>,
        signal: &Signal,
        left: Option<Duration>,
    ) -> Option<Brought> {
        let connection = Rc::clone(self.inlet.connection());
        connection.reads_on();
        let mut timer = pin!(async {
            match left {
                Some(left) => monoio::time::sleep(left).await,
                None => std::future::pending().await,
            }
        });
        let mut reading = pin!(self.read(buffer));
        let brought = poll_fn(|context| {
            if let Poll::Ready(brought) = reading.as_mut().poll(context) {
                return Poll::Ready(brought);
            }
            let gives_up = !connection.has_given_up_reading()
                && (signal.poll(context).is_ready() || timer.as_mut().poll(context).is_ready());
            if !gives_up {
                return Poll::Pending;
            }
            connection.give_up_reading();
            reading.as_mut().poll(context)
        })
        .await;
        connection.reads_on();
        brought
    }

    /// Gives the empty room of `buffer` back before a wait for something else than the peer.
    pub(super) fn give_back(&mut self, buffer: &mut Vec<u8>) {
        self.inlet.give_back(buffer);
        if let Some(reading) = &mut self.reading {
            self.inlet.give_back(&mut reading.ciphertext);
        }
    }
}

impl Reading {
    async fn read(&mut self, inlet: &mut Inlet, buffer: &mut Vec<u8>) -> Option<Brought> {
        if !self.early.is_empty() {
            let early = std::mem::take(&mut self.early);
            let bytes = early.len();
            buffer.extend_from_slice(&early);
            return Some(Brought {
                bytes,
                was_full: false,
            });
        }
        while !self.tls.borrow().has_ended() {
            inlet.give_back_plaintext(buffer);
            let brought = inlet.read(&mut self.ciphertext).await?;
            if brought.bytes == 0 {
                return Some(brought);
            }
            let was_full = brought.was_full;
            let held = buffer.len();
            inlet.make_room_for_plaintext(buffer, self.ciphertext.len());
            let outcome = {
                let mut tls = self.tls.borrow_mut();
                let outcome = tls.receive(&self.ciphertext, buffer);
                if tls.has_output() {
                    self.connection.has_output.set();
                }
                outcome
            };
            if let Err(fault) = outcome {
                self.core.tls_failed(&fault);
            }
            self.ciphertext.clear();
            let bytes = buffer.len() - held;
            // A part of a record brings nothing, and what ends this read may have come with it.
            if bytes > 0 || self.connection.has_given_up_reading() {
                return Some(Brought { bytes, was_full });
            }
        }
        None
    }
}

/// The half that writes.
pub(super) struct WriteHalf {
    socket: OwnedWriteHalf<TcpStream>,
    writing: Option<Writing>,
}

/// What writing through TLS needs.
struct Writing {
    tls: Rc<RefCell<TlsConnection>>,
    /// Records on their way; `sent` bytes of them have left.
    ciphertext: Vec<u8>,
    sent: usize,
    /// Bytes of plaintext in these records; `reported` of them were told as written.
    sealed: usize,
    reported: usize,
}

impl WriteHalf {
    /// Writes some of what is left; how many bytes of that are on their way. 0 if there is nobody
    /// to write to.
    pub(super) async fn write(&mut self, mut outgoing: Outgoing) -> (io::Result<usize>, Outgoing) {
        if let Some(writing) = &mut self.writing {
            let written = writing.write(&mut self.socket, || outgoing.runs()).await;
            return (written, outgoing);
        }
        if outgoing.is_whole() {
            self.socket.write(outgoing).await
        } else {
            outgoing.gather();
            // To a peer that is gone it is an error like `write`, as long as the process ignores
            // SIGPIPE: so Rust's start-up has it.
            self.socket.writev(outgoing).await
        }
    }

    /// Writes some of `bytes` from `from` on; as [`WriteHalf::write`].
    pub(super) async fn write_bytes(
        &mut self,
        bytes: Vec<u8>,
        from: usize,
    ) -> (io::Result<usize>, Vec<u8>) {
        if let Some(writing) = &mut self.writing {
            let runs = || std::iter::once(&bytes[from..]);
            let written = writing.write(&mut self.socket, runs).await;
            return (written, bytes);
        }
        let (result, given) = self.socket.write(bytes.slice(from..)).await;
        (result, given.into_inner())
    }

    /// Writes what TLS itself has to say, and gives large buffers back.
    pub(super) async fn flush(&mut self) -> io::Result<()> {
        match &mut self.writing {
            Some(writing) => writing.flush(&mut self.socket).await,
            None => Ok(()),
        }
    }

    /// Says the last words and shuts the socket for writing.
    pub(super) async fn end(mut self) {
        if let Some(writing) = &mut self.writing {
            writing.tls.borrow_mut().close();
            let last = writing.flush(&mut self.socket);
            let _ = monoio::time::timeout(FAREWELL, last).await;
        }
        let _ = self.socket.shutdown().await;
    }
}

impl Writing {
    async fn write<'a, R: Iterator<Item = &'a [u8]>>(
        &mut self,
        socket: &mut OwnedWriteHalf<TcpStream>,
        runs: impl FnOnce() -> R,
    ) -> io::Result<usize> {
        if self.sent == self.ciphertext.len() {
            self.ciphertext.clear();
            self.sealed = self.tls.borrow_mut().seal(runs(), &mut self.ciphertext);
            (self.sent, self.reported) = (0, 0);
        }
        while self.sent < self.ciphertext.len() {
            self.write_once(socket).await?;
            // A slow peer is not a stalled one: each part of a record counts.
            let through = match self.sent == self.ciphertext.len() {
                true => self.sealed,
                false => self.sealed * self.sent / self.ciphertext.len(),
            };
            let written = through - self.reported;
            self.reported = through;
            if written > 0 {
                return Ok(written);
            }
        }
        Ok(0)
    }

    async fn write_once(&mut self, socket: &mut OwnedWriteHalf<TcpStream>) -> io::Result<()> {
        let rest = std::mem::take(&mut self.ciphertext).slice(self.sent..);
        let (result, given) = socket.write(rest).await;
        self.ciphertext = given.into_inner();
        match result? {
            0 => Err(io::ErrorKind::WriteZero.into()),
            written => {
                self.sent += written;
                Ok(())
            }
        }
    }

    async fn flush(&mut self, socket: &mut OwnedWriteHalf<TcpStream>) -> io::Result<()> {
        if self.sent == self.ciphertext.len() {
            self.ciphertext.clear();
            self.sent = 0;
            if self.ciphertext.capacity() > SEALED_BYTES_KEPT {
                self.ciphertext = Vec::new();
            }
        }
        self.tls.borrow_mut().take_output(&mut self.ciphertext);
        while self.sent < self.ciphertext.len() {
            self.write_once(socket).await?;
        }
        Ok(())
    }
}
