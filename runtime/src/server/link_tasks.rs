//! The two tasks of a link to another node: one that reads and one that writes.
//!
//! What is sent was shipped by the shard, which bounds it; what comes is read only while the shard
//! has room for it. Nothing waits for a link but its own tasks.

use std::rc::Rc;

use monoio::io::{AsyncReadRent, AsyncWriteRent, AsyncWriteRentExt, OwnedReadHalf, OwnedWriteHalf};
use monoio::net::TcpStream;
use penstock_shard::Event;

use super::core::Core;
use super::link::Link;
use crate::cluster::ProvenLink;

const RECEIVE_BYTES: usize = 64 << 10;

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
    let (served, reader, writer) = Link::new(link, stream, lifeline);
    let served = Rc::new(served);
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
    if link.half_ended() {
        core.remove_link(link.link);
    }
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
    if link.half_ended() {
        core.remove_link(link.link);
    }
}
