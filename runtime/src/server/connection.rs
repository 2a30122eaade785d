//! What the tasks of a core know of one connection.

use std::cell::{Cell, RefCell};
use std::os::fd::{AsRawFd, RawFd};

use monoio::io::{CancelHandle, Canceller, OwnedReadHalf, OwnedWriteHalf, Splitable};
use monoio::net::TcpStream;
use penstock_shard::SessionId;

use super::signal::Signal;
use crate::tls::Peer;

/// A connection that says nothing for so long rests: it keeps no empty room for what comes next.
pub(super) const RESTS_AFTER_US: u64 = 1_000_000;

/// What others need of a connection.
pub(crate) struct Connection {
    pub(crate) session: SessionId,
    /// There are bytes to send.
    pub(crate) has_output: Signal,
    /// Bytes that were not consumed are to be handed over again.
    pub(crate) may_resume: Signal,
    /// Open as long as either half is.
    descriptor: RawFd,
    pub(super) is_sending: Cell<bool>,
    /// The reader or the writer has ended; when both have, the session has.
    has_half_ended: Cell<bool>,
    pub(super) is_shut: Cell<bool>,
    /// When its peer was heard last.
    received_us: Cell<u64>,
    /// It keeps no empty room. A new connection rests.
    is_resting: Cell<bool>,
    /// Its reader waits with room in its buffer, which `gives_up_reading` ends.
    waits_with_room: Cell<bool>,
    gives_up_reading: RefCell<Canceller>,
    /// It gives up because something else is to be done.
    has_given_up: Cell<bool>,
    /// What the handshake of TLS has proved, of a connection with TLS.
    peer: Option<Peer>,
}

impl Connection {
    pub(crate) fn new(
        session: SessionId,
        stream: TcpStream,
        peer: Option<Peer>,
    ) -> (Self, OwnedReadHalf<TcpStream>, OwnedWriteHalf<TcpStream>) {
        let _ = stream.set_nodelay(true);
        let descriptor = stream.as_raw_fd();
        let (reader, writer) = stream.into_split();
        let connection = Connection {
            session,
            has_output: Signal::default(),
            may_resume: Signal::default(),
            descriptor,
            is_sending: Cell::new(false),
            has_half_ended: Cell::new(false),
            is_shut: Cell::new(false),
            received_us: Cell::new(0),
            is_resting: Cell::new(true),
            waits_with_room: Cell::new(false),
            gives_up_reading: RefCell::default(),
            has_given_up: Cell::new(false),
            peer,
        };
        (connection, reader, writer)
    }

    /// Ends the connection now, in both directions: what waits on it is woken with an error.
    pub(crate) fn shut_down(&self) {
        self.is_shut.set(true);
        crate::system::shut_down_socket(self.descriptor);
        self.has_output.set();
        self.may_resume.set();
    }

    /// Bytes that the kernel took and the peer's kernel has not acknowledged.
    pub(crate) fn unacknowledged_bytes(&self) -> u64 {
        crate::system::unacknowledged_bytes(self.descriptor)
    }

    /// Bytes that the peer has sent and that nobody has read.
    pub(crate) fn unread_bytes(&self) -> u64 {
        crate::system::unread_bytes(self.descriptor)
    }

    pub(super) fn descriptor(&self) -> RawFd {
        self.descriptor
    }

    /// Its peer has sent something.
    pub(super) fn note_received(&self, now_us: u64) {
        self.received_us.set(now_us);
        self.is_resting.set(false);
    }

    /// Whether it keeps no empty room.
    pub(super) fn is_resting(&self) -> bool {
        self.is_resting.get()
    }

    /// Rests from now on if nothing was heard for a while and nothing is being sent: its tasks give
    /// their buffers back.
    pub(super) fn rest_if_quiet(&self, now_us: u64) {
        let is_quiet = now_us >= self.received_us.get() + RESTS_AFTER_US;
        if self.is_resting.get() || !is_quiet || self.is_sending.get() {
            return;
        }
        self.is_resting.set(true);
        if self.waits_with_room.get() {
            self.cancel_read();
        }
        self.has_output.set();
    }

    /// Has the reader give up what it waits for: the read that is under way ends.
    pub(super) fn give_up_reading(&self) {
        self.has_given_up.set(true);
        self.cancel_read();
    }

    /// Whether the reader is to give up what it waits for.
    pub(super) fn has_given_up_reading(&self) -> bool {
        self.has_given_up.get()
    }

    /// A read that may be given up begins, or has ended.
    pub(super) fn reads_on(&self) {
        self.has_given_up.set(false);
    }

    fn cancel_read(&self) {
        let before = self.gives_up_reading.take();
        self.gives_up_reading.replace(before.cancel());
    }

    /// The reader waits without room until this is given up.
    pub(super) fn waits_with_stub(&self) -> CancelHandle {
        self.gives_up_reading.borrow().handle()
    }

    /// The reader waits with room until this is given up.
    pub(super) fn waits_with_room(&self) -> CancelHandle {
        self.waits_with_room.set(true);
        self.gives_up_reading.borrow().handle()
    }

    pub(super) fn waits_no_more(&self) {
        self.waits_with_room.set(false);
    }

    pub(crate) fn is_idle(&self) -> bool {
        !self.is_sending.get()
    }

    /// The reading half has ended; whether the other one had ended before. With TLS the writer says
    /// the last words before it ends, too.
    pub(super) fn reader_ended(&self) -> bool {
        if self.peer.is_none() || self.has_half_ended.get() {
            return self.half_ended();
        }
        self.has_half_ended.set(true);
        self.is_shut.set(true);
        self.has_output.set();
        false
    }

    /// One half has ended, which ends the other one; whether that had ended before.
    pub(super) fn half_ended(&self) -> bool {
        let has_ended = self.has_half_ended.replace(true);
        if !has_ended {
            self.shut_down();
        }
        has_ended
    }
}
