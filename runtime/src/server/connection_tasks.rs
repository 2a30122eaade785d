//! The two tasks of a connection: one that reads and one that writes.

use std::rc::Rc;

use penstock_shard::Event;

use super::connection::Connection;
use super::core::Core;
use super::halves::{ReadHalf, WriteHalf};
use super::inlet::Brought;
use super::kept::Kept;
use crate::system::outgoing::Outgoing;

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
    let mut buffer = Vec::new();
    while let Some(Brought { bytes, was_full }) = reader.read(&mut buffer).await {
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
            reader.give_back(&mut buffer);
            connection.may_resume.wait().await;
        }
        if connection.is_shut.get() {
            break;
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
    let mut kept = Kept::new(&core.kept);
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
            core.sent(session, bytes);
        }
        // The shard has a second buffer that changes places with this one.
        if connection.is_resting() || !kept.keeps(2 * outgoing.capacity()) {
            kept.keeps_nothing();
            outgoing = Outgoing::default();
            core.give_back(session);
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
