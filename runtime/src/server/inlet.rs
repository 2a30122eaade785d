//! How a connection waits for what its peer sends.
//!
//! A connection that was heard just now waits with empty room, so that what comes takes one
//! operation of the kernel. A quiet one, and one for which the core has no such room, waits with a
//! *stub* of some bytes. What stands in the socket behind the stub is fetched at once, without
//! waiting, into a buffer of the core.

use std::io;
use std::rc::Rc;

use monoio::buf::IoBufMut;
use monoio::io::{CancelableAsyncReadRent, OwnedReadHalf};
use monoio::net::TcpStream;

use super::connection::Connection;
use super::core::Core;
use super::kept::{BUFFER_BYTES, BUFFER_BYTES_BUSY, Kept};
use crate::system;

/// What a quiet connection has for the bytes of its peer.
const STUB_BYTES: usize = 64;

/// What one read has brought.
pub(super) struct Brought {
    /// Bytes for the shard.
    pub(super) bytes: usize,
    /// The buffer was filled: there may be more.
    pub(super) was_full: bool,
}

/// The receiving side of a socket.
pub(super) struct Inlet {
    socket: OwnedReadHalf<TcpStream>,
    core: Rc<Core>,
    connection: Rc<Connection>,
    stub: Vec<u8>,
    kept: Kept,
    /// Empty room that it wants: more behind each read that was full.
    wanted_bytes: usize,
}

impl Inlet {
    pub(super) fn new(
        socket: OwnedReadHalf<TcpStream>,
        core: &Rc<Core>,
        connection: &Rc<Connection>,
    ) -> Self {
        Inlet {
            socket,
            core: Rc::clone(core),
            connection: Rc::clone(connection),
            stub: Vec::with_capacity(STUB_BYTES),
            kept: Kept::new(&core.kept),
            wanted_bytes: BUFFER_BYTES,
        }
    }

    /// Waits for bytes and appends them to `buffer`. `None` at the end of the connection; no bytes
    /// if it [gives up](Connection::give_up_reading).
    pub(super) async fn read(&mut self, buffer: &mut Vec<u8>) -> Option<Brought> {
        let brought = loop {
            let read = if !self.connection.is_resting() && self.keeps_room(buffer) {
                self.read_with_room(buffer).await
            } else {
                self.give_back(buffer);
                self.read_with_stub(buffer).await
            };
            match read {
                Ok(brought) => break brought?,
                Err(_) if self.connection.has_given_up_reading() => {
                    return Some(Brought {
                        bytes: 0,
                        was_full: false,
                    });
                }
                // It was quiet for too long.
                Err(_) => {}
            }
        };
        if brought.was_full && self.core.is_open(self.connection.session) {
            self.wanted_bytes = (2 * self.wanted_bytes).min(BUFFER_BYTES_BUSY);
        }
        self.connection.note_received(self.core.now().us);
        Some(brought)
    }

    pub(super) fn connection(&self) -> &Rc<Connection> {
        &self.connection
    }

    /// Gives the empty room of `buffer` back, unless it is little beside what stands there.
    pub(super) fn give_back(&mut self, buffer: &mut Vec<u8>) {
        self.kept.keeps_nothing();
        self.give_back_plaintext(buffer);
        if self.connection.is_resting() {
            self.wanted_bytes = BUFFER_BYTES;
        }
    }

    /// Gives the empty room of a buffer back into which what this reads is decrypted.
    pub(super) fn give_back_plaintext(&self, buffer: &mut Vec<u8>) {
        let held = buffer.len();
        if held == 0 {
            self.kept.buffers().give_back(std::mem::take(buffer));
        } else if is_much(buffer.capacity() - held, held) {
            buffer.shrink_to_fit();
        }
    }

    /// Room for so many bytes more in such a buffer.
    pub(super) fn make_room_for_plaintext(&self, buffer: &mut Vec<u8>, bytes: usize) {
        if buffer.capacity() == 0 {
            *buffer = self.kept.buffers().lend(bytes.max(BUFFER_BYTES));
        }
        buffer.reserve_exact(bytes);
    }

    fn room_behind(&self, held: usize) -> usize {
        room_behind(held, self.wanted_bytes)
    }

    /// Makes room in `buffer`. `false` if the core has none.
    fn keeps_room(&mut self, buffer: &mut Vec<u8>) -> bool {
        let held = buffer.len();
        if held == 0 && buffer.capacity() > BUFFER_BYTES_BUSY {
            // A large frame has left.
            self.give_back(buffer);
        }
        let wanted = self.room_behind(held);
        let there = buffer.capacity() - held;
        let is_enough = match held {
            0 => there >= wanted,
            _ => there >= BUFFER_BYTES.min(wanted) && buffer.capacity() >= self.wanted_bytes,
        };
        if !self.kept.keeps(if is_enough { there } else { wanted }) {
            return false;
        }
        if !is_enough {
            self.make_room(buffer, wanted);
        }
        // A buffer that is lent may be longer than what was asked for.
        self.kept.keeps(buffer.capacity() - held)
    }

    fn make_room(&mut self, buffer: &mut Vec<u8>, bytes: usize) {
        if buffer.is_empty() && buffer.capacity() < bytes {
            let before = std::mem::replace(buffer, self.kept.buffers().lend(bytes));
            self.kept.buffers().give_back(before);
        }
        buffer.reserve_exact(bytes);
    }

    /// Reads once into the room of `buffer`. An error if the read was given up.
    async fn read_with_room(&mut self, buffer: &mut Vec<u8>) -> io::Result<Option<Brought>> {
        let (held, capacity) = (buffer.len(), buffer.capacity());
        let handle = self.connection.waits_with_room();
        let room = std::mem::take(buffer).slice_mut(held..capacity);
        let (result, filled) = self.socket.cancelable_read(room, handle).await;
        self.connection.waits_no_more();
        *buffer = filled.into_inner();
        match result {
            Ok(bytes @ 1..) => Ok(Some(Brought {
                bytes,
                was_full: buffer.len() == capacity,
            })),
            Err(error) if self.was_given_up() => Err(error),
            _ => Ok(None),
        }
    }

    /// Whether a read that has failed was given up: the connection rests, or has something else to
    /// do.
    fn was_given_up(&self) -> bool {
        self.connection.is_resting() || self.connection.has_given_up_reading()
    }

    /// Reads once into the stub, and what stands behind that. An error if the read was given up.
    async fn read_with_stub(&mut self, buffer: &mut Vec<u8>) -> io::Result<Option<Brought>> {
        let handle = self.connection.waits_with_stub();
        let stub = std::mem::take(&mut self.stub);
        let (result, stub) = self.socket.cancelable_read(stub, handle).await;
        self.stub = stub;
        match result {
            Ok(1..) => {}
            Err(error) if self.connection.has_given_up_reading() => return Err(error),
            _ => return Ok(None),
        }
        let held = buffer.len();
        self.make_room(buffer, self.room_behind(held) + STUB_BYTES);
        buffer.extend_from_slice(&self.stub);
        let was_full = self.stub.len() == STUB_BYTES;
        // A secret may have stood there.
        self.stub.fill(0);
        self.stub.clear();
        if was_full {
            // Errors are met by the next read.
            let _ = system::receive_at_once(self.connection.descriptor(), buffer);
        }
        Ok(Some(Brought {
            bytes: buffer.len() - held,
            was_full: buffer.len() == buffer.capacity(),
        }))
    }
}

/// Empty room to have behind `held` bytes. What is much is copied rarely.
fn room_behind(held: usize, wanted_bytes: usize) -> usize {
    wanted_bytes.max(held / 4)
}

/// Whether so much empty room behind `held` bytes is worth a copy of them. That of a long frame
/// that comes in small pieces is not, or each piece would copy the frame twice.
fn is_much(empty: usize, held: usize) -> bool {
    empty > held / 4 + STUB_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_room_that_is_made_for_a_piece_of_a_long_frame_stays_when_the_piece_has_come() {
        for held in [4 * BUFFER_BYTES, 4 * BUFFER_BYTES + 3, 1 << 20] {
            let made = room_behind(held, BUFFER_BYTES) + STUB_BYTES;
            for piece in 1..=made {
                assert!(!is_much(made - piece, held + piece), "{held} {piece}");
            }
        }
        assert!(
            is_much(BUFFER_BYTES, 100),
            "a quiet connection keeps little"
        );
    }
}
