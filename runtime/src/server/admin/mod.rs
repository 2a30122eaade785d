//! The admin port: `/metrics`, `/livez` and `/readyz` over HTTP, on a thread of its own.
//!
//! One thread serves up to [`VISITS_MAX`] connections by readiness. Each has a deadline in every
//! state, and when there are more, the oldest gives way: nobody who is slow keeps the others from
//! their answers. Nothing here waits for a shard; what is told is what the shards published last.
//! Its picture stands in `DESIGN.md`, *The life of a request on the admin port*.

mod guard;
mod http;
mod token_file;
mod visit;
mod wire;

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token, Waker};
use tracing::error;

pub(crate) use self::guard::Guard;
use self::visit::Visit;
use self::wire::Wire;
use super::health::Health;

/// Connections at a time, at most.
const VISITS_MAX: usize = 64;
/// After a failed accept, for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

const LISTENER: Token = Token(VISITS_MAX);
const STOP: Token = Token(VISITS_MAX + 1);

/// The thread that serves the port. Dropping it ends the thread.
pub(crate) struct Admin {
    is_stopping: Arc<AtomicBool>,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
}

impl Admin {
    /// Serves a listening socket.
    pub(crate) fn start(
        listener: std::net::TcpListener,
        health: Arc<Health>,
        guard: Guard,
    ) -> io::Result<Admin> {
        listener.set_nonblocking(true)?;
        let mut listener = TcpListener::from_std(listener);
        let poll = Poll::new()?;
        poll.registry()
            .register(&mut listener, LISTENER, Interest::READABLE)?;
        let waker = Waker::new(poll.registry(), STOP)?;
        let is_stopping = Arc::new(AtomicBool::new(false));
        let desk = Desk {
            poll,
            listener,
            health,
            guard,
            is_stopping: Arc::clone(&is_stopping),
            visits: Vec::new(),
            accepts_again: None,
        };
        let thread = std::thread::Builder::new()
            .name("penstock-admin".into())
            .spawn(move || desk.run())?;
        Ok(Admin {
            is_stopping,
            waker,
            thread: Some(thread),
        })
    }
}

impl Drop for Admin {
    fn drop(&mut self) {
        self.is_stopping.store(true, Ordering::Release);
        if self.waker.wake().is_ok() {
            let _ = self.thread.take().map(JoinHandle::join);
        }
    }
}

/// What the thread works on.
struct Desk {
    poll: Poll,
    listener: TcpListener,
    health: Arc<Health>,
    guard: Guard,
    is_stopping: Arc<AtomicBool>,
    visits: Vec<Option<Visit>>,
    /// Connections may wait that could not be taken.
    accepts_again: Option<Instant>,
}

impl Desk {
    fn run(mut self) {
        let mut events = Events::with_capacity(VISITS_MAX + 2);
        while !self.is_stopping.load(Ordering::Acquire) {
            let now = Instant::now();
            let visits = self.visits.iter().flatten().map(Visit::until);
            let next = visits.chain(self.accepts_again).min();
            let timeout = next.map(|until| until.saturating_duration_since(now));
            // A millisecond more, because the timeout of the system ends early rather than late.
            let timeout = timeout.map(|timeout| timeout + Duration::from_millis(1));
            match self.poll.poll(&mut events, timeout) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                    error!(%error, "the admin port ends: {error}");
                    return;
                }
                _ => {}
            }
            for event in &events {
                match event.token() {
                    LISTENER => self.accept(),
                    STOP => {}
                    Token(index) => self.go_on(index),
                }
            }
            let now = Instant::now();
            if self.accepts_again.is_some_and(|again| now >= again) {
                self.accept();
            }
            for index in 0..self.visits.len() {
                self.end_late(index, now);
            }
        }
    }

    /// Takes connections that wait, and those that find no place now a little later.
    fn accept(&mut self) {
        self.accepts_again = None;
        for _ in 0..VISITS_MAX {
            match self.listener.accept() {
                Ok((stream, peer)) => self.greet(stream, peer.ip()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Out of descriptors, or a connection that is gone already.
                Err(_) => break,
            }
        }
        self.accepts_again = Some(Instant::now() + ACCEPT_PAUSE);
    }

    fn greet(&mut self, mut stream: TcpStream, peer: IpAddr) {
        let index = match self.visits.iter().position(Option::is_none) {
            Some(free) => free,
            None if self.visits.len() < VISITS_MAX => {
                self.visits.push(None);
                self.visits.len() - 1
            }
            None => {
                let ranks = self.visits.iter().enumerate();
                let first = ranks.min_by_key(|(_, visit)| visit.as_ref().map(Visit::rank));
                first.map_or(0, |(index, _)| index)
            }
        };
        let interest = Interest::READABLE | Interest::WRITABLE;
        let registry = self.poll.registry();
        if registry
            .register(&mut stream, Token(index), interest)
            .is_err()
        {
            return;
        }
        let wire = Wire::new(stream, self.guard.tls_config());
        self.visits[index] = Some(Visit::new(wire, peer, Instant::now()));
        self.go_on(index);
    }

    /// Does what a connection is ready for.
    fn go_on(&mut self, index: usize) {
        let Some(visit) = self.visits.get_mut(index).and_then(Option::as_mut) else {
            return;
        };
        if !visit.go_on(&self.health, &mut self.guard) {
            self.visits[index] = None;
        }
    }

    /// Ends a connection whose time is over; one that has asked for nothing yet is told why.
    fn end_late(&mut self, index: usize, now: Instant) {
        let late = |visit: &&mut Visit| now >= visit.until();
        let Some(visit) = self.visits[index].as_mut().filter(late) else {
            return;
        };
        if !visit.end_late(&self.health, &mut self.guard) {
            self.visits[index] = None;
        }
    }
}
