//! What the tasks of a core know of one link to another node.

use std::cell::{Cell, RefCell};
use std::os::fd::{AsRawFd, RawFd};

use monoio::io::{OwnedReadHalf, OwnedWriteHalf, Splitable};
use monoio::net::TcpStream;
use penstock_shard::replication::LinkId;

use super::signal::Signal;
use crate::stats::PlainLink;
use crate::system::send_at_once;
use crate::tls::TlsConnection;

/// What others need of a link.
pub(crate) struct Link {
    pub(crate) link: LinkId,
    /// There are bytes to send.
    pub(crate) has_output: Signal,
    /// The shard may have room for more.
    pub(crate) may_read: Signal,
    /// The writing task has bytes on their way.
    pub(super) is_writing: Cell<bool>,
    /// What goes into the socket next: the rest of what [`Link::send_at_once`] has begun.
    pub(super) begun: RefCell<Vec<u8>>,
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
            is_writing: Cell::new(false),
            begun: RefCell::default(),
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

    /// Whether nothing goes into the socket before what is sent now.
    pub(super) fn may_send_at_once(&self) -> bool {
        let is_free = !self.is_writing.get() && self.begun.borrow().is_empty();
        is_free && self.last_words.borrow().is_none() && !self.is_shut.get()
    }

    /// Sends bytes now, as many as the socket takes; the writing task sends the rest, and meets
    /// what is wrong. Leaves `bytes` empty.
    pub(super) fn send_at_once(&self, bytes: &mut Vec<u8>) {
        let mut begun = self.begun.borrow_mut();
        match &self.tls {
            None => std::mem::swap(&mut *begun, bytes),
            Some(tls) => {
                let mut tls = tls.borrow_mut();
                let mut rest = &bytes[..];
                while !rest.is_empty() {
                    match tls.seal(std::iter::once(rest), &mut begun) {
                        // A fault has ended it.
                        0 => break,
                        sealed => rest = &rest[sealed..],
                    }
                }
                bytes.clear();
            }
        }
        let sent = send_at_once(self.descriptor, &begun).unwrap_or(0);
        match sent == begun.len() {
            // Its memory is for the next link.
            true => {
                begun.clear();
                if self.tls.is_none() {
                    std::mem::swap(&mut *begun, bytes);
                }
            }
            false => {
                begun.drain(..sent);
                self.has_output.set();
            }
        }
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

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn what_a_socket_takes_leaves_at_once_and_the_writing_task_has_the_rest() {
        let runtime = monoio::RuntimeBuilder::<monoio::LegacyDriver>::new().build();
        runtime.expect("a loop").block_on(async {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
            let address = listener.local_addr().expect("known");
            let stream = std::net::TcpStream::connect(address).expect("connected");
            let (mut peer, _) = listener.accept().expect("accepted");
            stream.set_nonblocking(true).expect("set");
            let stream = TcpStream::from_std(stream).expect("taken over");
            let (link, _reader, _writer) = Link::new(LinkId(1), stream, (None, None), None);

            let mut bytes = b"a frame".to_vec();
            link.send_at_once(&mut bytes);
            let mut received = [0; 7];
            peer.read_exact(&mut received).expect("it has left");
            assert_eq!(&received, b"a frame");
            assert!(bytes.is_empty() && link.may_send_at_once());

            // More than two sockets hold.
            let long: Vec<u8> = (0..32 << 20).map(|at: u32| at.to_le_bytes()[1]).collect();
            link.send_at_once(&mut long.clone());
            assert!(!link.may_send_at_once(), "the rest goes first");
            let rest = link.begun.take();
            assert!((1..long.len()).contains(&rest.len()));
            let mut received = vec![0; long.len() - rest.len()];
            peer.read_exact(&mut received).expect("it has left");
            received.extend_from_slice(&rest);
            assert!(received == long);
            assert!(link.may_send_at_once());

            link.is_writing.set(true);
            assert!(!link.may_send_at_once(), "the task has bytes on their way");
            link.is_writing.set(false);
            link.end(b"the last".to_vec());
            assert!(!link.may_send_at_once(), "nothing comes behind");
        });
    }
}
