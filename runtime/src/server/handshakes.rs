//! Handshakes under way on one core: how many there are, and how much of a turn they take.
//!
//! A half handshake holds a socket and some memory, and no session. Its deadline counts from the
//! accept.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use monoio::io::{AsyncReadRent, AsyncWriteRentExt};
use monoio::net::TcpStream;
use rustls::ServerConfig;

use super::core::Core;
use super::halves::Secured;
use super::signal::Signal;
use crate::tls::{TlsConnection, TlsFault};

/// From the accept to the last byte of the handshake.
const HANDSHAKE_TIME: Duration = Duration::from_secs(3);

/// Handshakes under way on one core, at most.
const HANDSHAKES_MAX: u32 = 256;

/// Steps of handshakes in one turn, at most. A step may cost a signature.
const STEPS_PER_TURN: u32 = 1;

/// Bytes of one read of a handshake, at most.
const READ_BYTES: usize = 4 << 10;

/// The handshakes of one core.
#[derive(Default)]
pub(super) struct Handshakes {
    under_way: Cell<u32>,
    /// Steps that this turn has left.
    steps: Cell<u32>,
    /// Those that wait for a step, the first one first.
    waiting: RefCell<VecDeque<Rc<Signal>>>,
}

impl Handshakes {
    /// Takes a place. `None` if there are as many as there may be.
    pub(super) fn begin(&self) -> Option<()> {
        let under_way = self.under_way.get();
        (under_way < HANDSHAKES_MAX).then(|| self.under_way.set(under_way + 1))
    }

    fn end(&self) {
        self.under_way.set(self.under_way.get() - 1);
    }

    /// A turn has ended: the next one may do some steps.
    pub(super) fn turn_ended(&self) {
        self.steps.set(STEPS_PER_TURN);
        let mut waiting = self.waiting.borrow_mut();
        while self.steps.get() > 0
            && let Some(first) = waiting.pop_front()
        {
            self.steps.set(self.steps.get() - 1);
            first.set();
        }
    }

    /// Waits until a step may be done.
    async fn step(&self, core: &Core) {
        // The turn that is due permits the next step.
        core.take_turn();
        if self.steps.get() > 0 && self.waiting.borrow().is_empty() {
            self.steps.set(self.steps.get() - 1);
            return;
        }
        let place = Place {
            handshakes: self,
            core,
            signal: Rc::default(),
        };
        self.waiting
            .borrow_mut()
            .push_back(Rc::clone(&place.signal));
        place.signal.wait().await;
    }
}

/// A place in the queue, which is given up when the handshake is.
struct Place<'a> {
    handshakes: &'a Handshakes,
    core: &'a Core,
    signal: Rc<Signal>,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut waiting = self.handshakes.waiting.borrow_mut();
        waiting.retain(|it| !Rc::ptr_eq(it, &self.signal));
        // The step of this one may have been granted, and the next one waits for its turn.
        self.core.take_turn();
    }
}

/// Why a handshake came to nothing.
#[derive(Debug)]
pub(super) enum HandshakeError {
    Fault(TlsFault),
    /// The peer closed the connection, or it broke.
    Gone,
    Late,
}

impl fmt::Display for HandshakeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HandshakeError::Fault(fault) => fault.fmt(f),
            HandshakeError::Gone => f.write_str("it ended before the handshake did"),
            HandshakeError::Late => write!(
                f,
                "its handshake was not whole within {} s",
                HANDSHAKE_TIME.as_secs()
            ),
        }
    }
}

/// Shakes hands with a peer that has a place ([`Handshakes::begin`]), which is given back.
pub(super) async fn shake_hands(
    core: &Core,
    mut stream: TcpStream,
    config: Arc<ServerConfig>,
) -> Result<(TcpStream, Secured), HandshakeError> {
    let _ = stream.set_nodelay(true);
    let shaken = monoio::time::timeout(HANDSHAKE_TIME, exchange(core, &mut stream, config)).await;
    core.handshakes.end();
    match shaken {
        Err(_) => Err(HandshakeError::Late),
        Ok(Err(error)) => Err(error),
        Ok(Ok((tls, early))) => {
            let peer = tls.peer();
            Ok((stream, Secured { tls, early, peer }))
        }
    }
}

async fn exchange(
    core: &Core,
    stream: &mut TcpStream,
    config: Arc<ServerConfig>,
) -> Result<(TlsConnection, Vec<u8>), HandshakeError> {
    let mut tls = TlsConnection::new(config);
    let (mut input, mut early) = (Vec::with_capacity(READ_BYTES), Vec::new());
    while tls.is_handshaking() {
        let read;
        (read, input) = stream.read(input).await;
        if !matches!(read, Ok(1..)) {
            return Err(HandshakeError::Gone);
        }
        core.handshakes.step(core).await;
        let received = tls.receive(&input, &mut early);
        input.clear();
        let mut output = Vec::new();
        tls.take_output(&mut output);
        if !output.is_empty() {
            // Also the alert of a fault.
            let (written, _) = stream.write_all(output).await;
            written.map_err(|_| HandshakeError::Gone)?;
        }
        match received {
            Err(fault) if tls.is_handshaking() => return Err(HandshakeError::Fault(fault)),
            // Of what came behind the handshake: what came before it runs.
            Err(fault) => core.tls_failed(&fault),
            Ok(()) if tls.is_handshaking() && tls.has_ended() => return Err(HandshakeError::Gone),
            Ok(()) => {}
        }
    }
    Ok((tls, early))
}
