//! One link to another node on a core: a task that reads and one that writes.
//!
//! What is sent was shipped by the shard, which bounds it; what comes is read only while the shard
//! has room for it. Nothing waits for a link but its own tasks.

use std::cell::{Cell, RefCell};
use std::os::fd::{AsRawFd, RawFd};
use std::rc::Rc;

use monoio::io::{
    AsyncReadRent, AsyncWriteRent, AsyncWriteRentExt, OwnedReadHalf, OwnedWriteHalf, Splitable,
};
use monoio::net::TcpStream;
use penstock_shard::Event;
use penstock_shard::replication::LinkId;

use crate::cluster::ProvenLink;

use super::core::{Core, Signal};

const RECEIVE_BYTES: usize = 64 << 10;

/// What others need of a link.
pub(crate) struct Link {
    pub(crate) link: LinkId,
    /// There are bytes to send.
    pub(crate) has_output: Signal,
    /// The shard may have room for more.
    pub(crate) may_read: Signal,
    /// The last that is sent.
    last_words: RefCell<Option<Vec<u8>>>,
    /// Open as long as either half is.
    descriptor: RawFd,
    has_half_ended: Cell<bool>,
    is_shut: Cell<bool>,
    /// Whoever made the link hears that it is gone.
    _lifeline: Option<flume::Sender<()>>,
}

impl Link {
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

    fn half_ended(&self, core: &Core) {
        match self.has_half_ended.replace(true) {
            true => core.remove_link(self.link),
            false => self.shut_down(),
        }
    }
}

/// Serves a link that has proven itself.
pub(crate) fn serve_link(core: &Rc<Core>, proven: ProvenLink) -> std::io::Result<Rc<Link>> {
    let ProvenLink {
        link,
        peer,
        is_outgoing,
        stream,
        received,
        lifeline,
    } = proven;
    stream.set_nonblocking(true)?;
    let stream = TcpStream::from_std(stream)?;
    let descriptor = stream.as_raw_fd();
    let (reader, writer) = stream.into_split();
    let served = Rc::new(Link {
        link,
        has_output: Signal::default(),
        may_read: Signal::default(),
        last_words: RefCell::new(None),
        descriptor,
        has_half_ended: Cell::new(false),
        is_shut: Cell::new(false),
        _lifeline: lifeline,
    });
    core.step(Event::LinkUp {
        link,
        peer,
        is_outgoing,
    });
    core.step(Event::LinkReceived {
        link,
        bytes: &received,
    });
    monoio::spawn(read(Rc::clone(core), Rc::clone(&served), reader));
    monoio::spawn(write(Rc::clone(core), Rc::clone(&served), writer));
    Ok(served)
}

async fn read(core: Rc<Core>, link: Rc<Link>, mut reader: OwnedReadHalf<TcpStream>) {
    let mut buffer = Vec::with_capacity(RECEIVE_BYTES);
    loop {
        while !core.may_read_link(link.link) && !link.is_shut.get() {
            link.may_read.wait().await;
        }
        let (result, filled) = reader.read(buffer).await;
        buffer = filled;
        let Ok(1..) = result else { break };
        core.step(Event::LinkReceived {
            link: link.link,
            bytes: &buffer,
        });
        buffer.clear();
        if link.is_shut.get() {
            break;
        }
    }
    link.half_ended(&core);
}

async fn write(core: Rc<Core>, link: Rc<Link>, mut writer: OwnedWriteHalf<TcpStream>) {
    let mut buffer = Vec::new();
    loop {
        link.has_output.wait().await;
        let last_words = link.last_words.borrow_mut().take();
        let is_last = last_words.is_some();
        match last_words {
            Some(last_words) => buffer = last_words,
            None => core.take_link_output(link.link, &mut buffer),
        }
        if !buffer.is_empty() {
            let (result, sent) = writer.write_all(buffer).await;
            buffer = sent;
            buffer.clear();
            if result.is_err() {
                break;
            }
            // More may have come meanwhile.
            core.take_turn();
        }
        if is_last || link.is_shut.get() {
            break;
        }
    }
    let _ = writer.shutdown().await;
    link.half_ended(&core);
}
