//! The two tasks of a connection: one that reads and one that writes.

use std::rc::Rc;

use penstock_shard::Event;

use super::connection::Connection;
use super::core::Core;
use super::halves::{Brought, ReadHalf, WriteHalf};
use crate::system::outgoing::Outgoing;

/// Bytes of a new receive buffer: what an idle connection costs.
const RECEIVE_BYTES_MIN: usize = 4 << 10;

/// Bytes to which it grows by itself for a busy connection; larger frames make it grow further.
const RECEIVE_BYTES_BUSY: usize = 64 << 10;

/// A send buffer larger than this is given back when it has been sent.
const SEND_BYTES_KEPT: usize = 256 << 10;

pub(super) fn serve_connection(
    core: &Rc<Core>,
    connection: Rc<Connection>,
    (reader, writer): (ReadHalf, WriteHalf),
) {
    monoio::spawn(read(Rc::clone(core), Rc::clone(&connection), reader));
    monoio::spawn(write(Rc::clone(core), connection, writer));
}

async fn read(core: Rc<Core>, connection: Rc<Connection>, mut reader: ReadHalf) {
    let session = connection.session;
    let mut buffer: Vec<u8> = Vec::with_capacity(RECEIVE_BYTES_MIN);
    loop {
        let held = buffer.len();
        if held == buffer.capacity() {
            // A frame that does not fit; the shard has accepted its length.
            buffer.reserve(held.max(RECEIVE_BYTES_MIN));
        }
        let capacity = buffer.capacity();
        let brought;
        (brought, buffer) = reader.read(buffer).await;
        let Some(Brought { bytes, was_full }) = brought else {
            break;
        };
        core.received(bytes);
        if was_full {
            core.left_unread(session, connection.unread_bytes());
        }
        loop {
            let consumed = core.step(Event::Received {
                session,
                bytes: &buffer,
            });
            if consumed == buffer.len() {
                buffer.clear();
            } else {
                buffer.drain(..consumed);
            }
            if !core.is_paused(session) || connection.is_shut.get() {
                break;
            }
            connection.may_resume.wait().await;
        }
        if connection.is_shut.get() {
            break;
        }
        if was_full && capacity < RECEIVE_BYTES_BUSY && core.is_open(session) {
            // Also around a part of a frame, or a peer that sends without a break would be read in
            // small pieces for ever.
            buffer.reserve_exact((capacity * 2).saturating_sub(buffer.len()));
        } else if buffer.is_empty() && capacity > RECEIVE_BYTES_BUSY {
            buffer = Vec::with_capacity(RECEIVE_BYTES_BUSY);
        }
    }
    // A peer that closed its side has ended the connection. Its requests run, although nobody may
    // read the answers.
    if connection.reader_ended() {
        core.remove(session);
    }
}

async fn write(core: Rc<Core>, connection: Rc<Connection>, mut writer: WriteHalf) {
    let session = connection.session;
    let mut outgoing = Outgoing::default();
    loop {
        connection.has_output.wait().await;
        core.take_pieces(session, outgoing.refill());
        let bytes = outgoing.left();
        if bytes > 0 {
            connection.is_sending.set(true);
            while outgoing.left() > 0 {
                let result;
                (result, outgoing) = writer.write(outgoing).await;
                let Ok(taken @ 1..) = result else { break };
                outgoing.sent(taken);
                // A slow peer is not a stalled one.
                core.took(session, taken);
            }
            connection.is_sending.set(false);
            if outgoing.left() > 0 {
                break;
            }
            // Drops shared values at once: a change of such a cell need not copy it then.
            outgoing.refill();
            if outgoing.capacity() > SEND_BYTES_KEPT {
                outgoing = Outgoing::default();
            }
            core.sent(session, bytes);
        }
        if writer.flush().await.is_err() {
            break;
        }
        if connection.is_shut.get() || core.is_finished(session) {
            break;
        }
    }
    writer.end().await;
    if connection.half_ended() {
        core.remove(session);
    }
}
