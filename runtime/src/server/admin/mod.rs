//! The admin port: `/metrics`, `/livez` and `/readyz` over HTTP, on a thread of its own.
//!
//! One thread serves up to [`VISITS_MAX`] connections by readiness. Each has a deadline in every
//! state, and when there are more, the oldest gives way: nobody who is slow keeps the others from
//! their answers. Nothing here waits for a shard; what is told is what the shards published last.

mod http;

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token, Waker};
use tracing::error;

use self::http::{Code, HEAD_BYTES_MAX, Page, Refusal, Request};
use super::health::Health;
use super::metrics::exposition;

/// Connections at a time, at most.
const VISITS_MAX: usize = 64;
/// A request must be whole within this.
const REQUEST_TIME: Duration = Duration::from_secs(5);
/// Its reply must be taken within this.
const REPLY_TIME: Duration = Duration::from_secs(10);
/// How long a client may take to close its side; without that, what it still sends would make the
/// kernel throw the reply away.
const FAREWELL_TIME: Duration = Duration::from_secs(1);
/// What it may still send meanwhile.
const FAREWELL_BYTES_MAX: usize = 256 << 10;
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
    pub(crate) fn start(listener: std::net::TcpListener, health: Arc<Health>) -> io::Result<Admin> {
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

/// What a connection is at.
enum State {
    /// The head of its request comes in.
    Asking(Vec<u8>),
    /// Its reply goes out; so much of it has.
    Answering { reply: Vec<u8>, sent: usize },
    /// The connection may close now. At most `bytes_left` more bytes of the client are read and
    /// dropped.
    Leaving { bytes_left: usize },
}

/// One connection.
struct Visit {
    stream: TcpStream,
    state: State,
    until: Instant,
    came: Instant,
}

/// What the thread works on.
struct Desk {
    poll: Poll,
    listener: TcpListener,
    health: Arc<Health>,
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
            let visits = self.visits.iter().flatten().map(|visit| visit.until);
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
                Ok((stream, _)) => self.greet(stream),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Out of descriptors, or a connection that is gone already.
                Err(_) => break,
            }
        }
        self.accepts_again = Some(Instant::now() + ACCEPT_PAUSE);
    }

    fn greet(&mut self, mut stream: TcpStream) {
        let index = match self.visits.iter().position(Option::is_none) {
            Some(free) => free,
            None if self.visits.len() < VISITS_MAX => {
                self.visits.push(None);
                self.visits.len() - 1
            }
            None => {
                let ages = self.visits.iter().enumerate();
                let oldest = ages.min_by_key(|(_, visit)| visit.as_ref().map(|visit| visit.came));
                oldest.map_or(0, |(index, _)| index)
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
        let came = Instant::now();
        self.visits[index] = Some(Visit {
            stream,
            state: State::Asking(Vec::new()),
            until: came + REQUEST_TIME,
            came,
        });
        self.go_on(index);
    }

    /// Does what a connection is ready for.
    fn go_on(&mut self, index: usize) {
        let Some(visit) = self.visits.get_mut(index).and_then(Option::as_mut) else {
            return;
        };
        if !visit.go_on(&self.health) {
            self.visits[index] = None;
        }
    }

    /// Ends a connection whose time is over; one that has asked for nothing yet is told why.
    fn end_late(&mut self, index: usize, now: Instant) {
        let late = |visit: &&mut Visit| now >= visit.until;
        let Some(visit) = self.visits[index].as_mut().filter(late) else {
            return;
        };
        let stays = match visit.state {
            State::Asking(_) => {
                visit.refuse(&Refusal {
                    code: Code::Timeout,
                    text: format!(
                        "the request was not whole within {} s",
                        REQUEST_TIME.as_secs()
                    ),
                });
                visit.go_on(&self.health)
            }
            State::Answering { .. } | State::Leaving { .. } => false,
        };
        if !stays {
            self.visits[index] = None;
        }
    }
}

impl Visit {
    /// Goes as far as the socket lets it; `false` when the connection is over.
    fn go_on(&mut self, health: &Health) -> bool {
        loop {
            let done = match &mut self.state {
                State::Asking(_) => self.listen(health),
                State::Answering { reply, sent } => match self.stream.write(&reply[*sent..]) {
                    Ok(0) => return false,
                    Ok(taken) => {
                        *sent += taken;
                        if *sent == reply.len() {
                            let _ = self.stream.shutdown(Shutdown::Write);
                            self.state = State::Leaving {
                                bytes_left: FAREWELL_BYTES_MAX,
                            };
                            self.until = Instant::now() + FAREWELL_TIME;
                        }
                        Ok(())
                    }
                    Err(error) => Err(error),
                },
                State::Leaving { bytes_left } => match self.stream.read(&mut [0; 4096]) {
                    Ok(len) if len == 0 || len > *bytes_left => return false,
                    Ok(len) => {
                        *bytes_left -= len;
                        Ok(())
                    }
                    Err(error) => Err(error),
                },
            };
            match done {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
    }

    /// Takes in more of the request, and answers it when it is whole.
    fn listen(&mut self, health: &Health) -> io::Result<()> {
        let State::Asking(head) = &mut self.state else {
            return Ok(());
        };
        let mut more = [0; 1024];
        let room = more.len().min(HEAD_BYTES_MAX - head.len());
        let len = self.stream.read(&mut more[..room])?;
        if len == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        head.extend_from_slice(&more[..len]);
        match http::read(head) {
            Ok(None) => {}
            Ok(Some(request)) => self.answer(page(request, health)),
            Err(refusal) => self.refuse(&refusal),
        }
        Ok(())
    }

    fn refuse(&mut self, refusal: &Refusal) {
        let body = format!("{}\n", refusal.text);
        self.answer(http::reply(refusal.code, PLAIN, &body, true));
    }

    fn answer(&mut self, reply: Vec<u8>) {
        self.state = State::Answering { reply, sent: 0 };
        self.until = Instant::now() + REPLY_TIME;
    }
}

const PLAIN: &str = "text/plain; charset=utf-8";

/// The reply to a request.
fn page(request: Request, health: &Health) -> Vec<u8> {
    let probe = |verdict: Result<String, String>| match verdict {
        Ok(good) => http::reply(Code::Ok, PLAIN, &format!("{good}\n"), request.wants_body),
        Err(text) => {
            let body = format!("{text}\n");
            http::reply(Code::Unavailable, PLAIN, &body, request.wants_body)
        }
    };
    match request.page {
        Page::Metrics(format) => http::reply(
            Code::Ok,
            format.content_type(),
            &format.write(exposition(health)),
            request.wants_body,
        ),
        Page::Livez => probe(
            health
                .live()
                .map(|()| "live".into())
                .map_err(|it| it.to_string()),
        ),
        Page::Readyz(wanted) => {
            let verdict = health.ready(wanted);
            probe(
                verdict
                    .map(|it| it.to_string())
                    .map_err(|it| it.to_string()),
            )
        }
    }
}
