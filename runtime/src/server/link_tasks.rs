//! The two tasks of a link to another node: one that reads and one that writes.
//!
//! With TLS the writing task alone writes to the socket, so records leave in the order in which
//! they were sealed; what reading makes TLS say, the writing task says.
//!
//! What is sent was shipped by the shard, which bounds it; what comes is read only while the shard
//! has room for it. Nothing waits for a link but its own tasks.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use monoio::io::{AsyncReadRent, AsyncWriteRent, AsyncWriteRentExt, OwnedReadHalf, OwnedWriteHalf};
use monoio::net::TcpStream;
use penstock_shard::Event;

use super::core::Core;
use super::link::Link;
use crate::cluster::ProvenLink;
use crate::tls::TlsConnection;

const RECEIVE_BYTES: usize = 64 << 10;

/// How long the last words of TLS may take.
const FAREWELL: Duration = Duration::from_secs(1);

/// Serves a link that has proven itself.
pub(crate) fn serve_link(core: &Rc<Core>, proven: ProvenLink) -> std::io::Result<Rc<Link>> {
    let ProvenLink {
        link,
        peer,
        is_outgoing,
        stream,
        received,
        tls,
        counted,
        lifeline,
    } = proven;
    stream.set_nonblocking(true)?;
    let stream = TcpStream::from_std(stream)?;
    let (served, reader, writer) = Link::new(link, stream, (tls, counted), lifeline);
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
    let mut plaintext = Vec::new();
    loop {
        while !core.may_read_link(link.link) && !link.is_shut.get() {
            link.may_read.wait().await;
        }
        let (result, filled) = reader.read(buffer).await;
        buffer = filled;
        let Ok(1..) = result else { break };
        let goes_on = match &link.tls {
            None => true,
            Some(tls) => decrypt(&core, &link, tls, &buffer, &mut plaintext),
        };
        let bytes = match &link.tls {
            None => &buffer,
            Some(_) => &plaintext,
        };
        if !bytes.is_empty() {
            core.step(Event::LinkReceived {
                link: link.link,
                bytes,
            });
        }
        buffer.clear();
        plaintext.clear();
        if !goes_on {
            say_farewell(&link).await;
            break;
        }
        if link.is_shut.get() {
            break;
        }
    }
    if link.half_ended() {
        core.remove_link(link.link);
    }
}

/// Takes ciphertext and appends what it says to `plaintext`. Whether there may be more.
fn decrypt(
    core: &Core,
    link: &Link,
    tls: &RefCell<Box<TlsConnection>>,
    ciphertext: &[u8],
    plaintext: &mut Vec<u8>,
) -> bool {
    let mut tls = tls.borrow_mut();
    let received = tls.receive(ciphertext, plaintext);
    if tls.has_output() {
        link.has_output.set();
    }
    if let Err(fault) = &received {
        core.link_failed(fault);
    }
    received.is_ok() && !tls.has_ended()
}

/// Has the writing task say what TLS has to say at the end: why, if there is a fault.
async fn say_farewell(link: &Link) {
    link.end(Vec::new());
    let ended = async {
        while !link.is_shut.get() {
            link.may_read.wait().await;
        }
    };
    let _ = monoio::time::timeout(FAREWELL, ended).await;
}

async fn write(core: Rc<Core>, link: Rc<Link>, mut writer: OwnedWriteHalf<TcpStream>) {
    let (mut buffer, mut ciphertext) = (Vec::new(), Vec::new());
    loop {
        link.is_writing.set(false);
        link.has_output.wait().await;
        link.is_writing.set(true);
        let begun = link.begun.take();
        if !begun.is_empty() && writer.write_all(begun).await.0.is_err() {
            break;
        }
        let last_words = link.last_words.borrow_mut().take();
        let is_last = last_words.is_some();
        match last_words {
            Some(last_words) => buffer = last_words,
            None => core.take_link_output(link.link, &mut buffer),
        }
        let is_sent = match &link.tls {
            None if !buffer.is_empty() => {
                let result;
                (result, buffer) = writer.write_all(buffer).await;
                result.is_ok()
            }
            None => true,
            Some(tls) => encrypt(&mut writer, tls, &buffer, &mut ciphertext).await,
        };
        buffer.clear();
        if !is_sent {
            break;
        }
        // Each turn that leaves more to send says so.
        if is_last || link.is_shut.get() {
            break;
        }
    }
    if let Some(tls) = &link.tls {
        tls.borrow_mut().close();
        let last = encrypt(&mut writer, tls, &[], &mut ciphertext);
        let _ = monoio::time::timeout(FAREWELL, last).await;
    }
    let _ = writer.shutdown().await;
    if link.half_ended() {
        core.remove_link(link.link);
    }
}

/// Sends bytes through TLS, and what TLS itself has to say. Whether all of it has left.
async fn encrypt(
    writer: &mut OwnedWriteHalf<TcpStream>,
    tls: &RefCell<Box<TlsConnection>>,
    mut bytes: &[u8],
    ciphertext: &mut Vec<u8>,
) -> bool {
    loop {
        let sealed = tls.borrow_mut().seal(std::iter::once(bytes), ciphertext);
        if !ciphertext.is_empty() {
            let result;
            (result, *ciphertext) = writer.write_all(std::mem::take(ciphertext)).await;
            ciphertext.clear();
            if result.is_err() {
                return false;
            }
        }
        bytes = &bytes[sealed..];
        if bytes.is_empty() {
            return true;
        }
        if sealed == 0 {
            // A fault has ended it.
            return false;
        }
    }
}
