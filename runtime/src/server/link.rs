//! What the tasks of a core know of one link to another node.

use std::cell::{Cell, RefCell};
use std::os::fd::{AsRawFd, RawFd};

use monoio::io::{OwnedReadHalf, OwnedWriteHalf, Splitable};
use monoio::net::TcpStream;
use penstock_shard::replication::LinkId;

use super::signal::Signal;
use crate::stats::PlainLink;
use crate::tls::TlsConnection;

/// What others need of a link.
pub(crate) struct Link {
    pub(crate) link: LinkId,
    /// There are bytes to send.
    pub(crate) has_output: Signal,
    /// The shard may have room for more.
    pub(crate) may_read: Signal,
    /// The last that is sent.
    pub(super) last_words: RefCell<Option<Vec<u8>>>,
    /// Open as long as either half is.
    descriptor: RawFd,
    has_half_ended: Cell<bool>,
    pub(super) is_shut: Cell<bool>,
    /// What encrypts it.
    pub(super) tls: Option<RefCell<Box<TlsConnection>>>,
    /// Of a link without TLS: that it is there.
    _counted: Option<PlainLink>,
    /// Whoever made the link hears that it is gone.
    _lifeline: Option<flume::Sender<()>>,
}

impl Link {
    pub(super) fn new(
        link: LinkId,
        stream: TcpStream,
        (tls, counted): (Option<Box<TlsConnection>>, Option<PlainLink>),
        lifeline: Option<flume::Sender<()>>,
    ) -> (Self, OwnedReadHalf<TcpStream>, OwnedWriteHalf<TcpStream>) {
        let descriptor = stream.as_raw_fd();
        let (reader, writer) = stream.into_split();
        let link = Link {
            link,
            has_output: Signal::default(),
            may_read: Signal::default(),
            last_words: RefCell::new(None),
            descriptor,
            has_half_ended: Cell::new(false),
            is_shut: Cell::new(false),
            tls: tls.map(RefCell::new),
            _counted: counted,
            _lifeline: lifeline,
        };
        (link, reader, writer)
    }

    /// Sends this behind what is sent already, then ends the link.
    pub(crate) fn end(&self, last_words: Vec<u8>) {
        *self.last_words.borrow_mut() = Some(last_words);
        self.has_output.set();
    }

    /// Ends the link now, in both directions.
    pub(crate) fn shut_down(&self) {
        self.is_shut.set(true);
        crate::system::shut_down_socket(self.descriptor);
        self.has_output.set();
        self.may_read.set();
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
