//! One connection to the admin port: one request, one reply.

use std::io;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use zeroize::Zeroizing;

use super::guard::Guard;
use super::http::{self, Code, HEAD_BYTES_MAX, Page, Refusal, Request};
use super::wire::{BROUGHT_BYTES_MAX, Wire, WireError};
use crate::server::health::{Health, clock_behind_text};
use crate::server::metrics::exposition;
use crate::server::secured::HANDSHAKE_TIME;

/// A request must be whole within this, from the accept on.
const REQUEST_TIME: Duration = Duration::from_secs(5);
/// Its reply must be taken within this.
const REPLY_TIME: Duration = Duration::from_secs(10);
/// How long a client may take to close its side; without that, what it still sends would make the
/// kernel throw the reply away.
const FAREWELL_TIME: Duration = Duration::from_secs(1);
/// What it may still send meanwhile.
const FAREWELL_BYTES_MAX: usize = 256 << 10;

const PLAIN: &str = "text/plain; charset=utf-8";

/// One connection.
pub(super) struct Visit {
    wire: Wire,
    peer: IpAddr,
    state: State,
    until: Instant,
    came: Instant,
    has_proof: bool,
}

/// What a connection is at.
enum State {
    /// The handshake, then the head of its request come in. The head may hold a token.
    Asking(Zeroizing<Vec<u8>>),
    /// Its reply goes out; so much of it has.
    Answering { reply: Vec<u8>, sent: usize },
    /// The connection may close now. At most `bytes_left` more bytes of the client are read and
    /// dropped.
    Leaving { bytes_left: usize },
}

impl Visit {
    /// One that was just accepted.
    pub(super) fn new(wire: Wire, peer: IpAddr, came: Instant) -> Visit {
        let time = match wire.is_handshaking() {
            true => HANDSHAKE_TIME,
            false => REQUEST_TIME,
        };
        // With room for all that is read: what grows leaves copies behind.
        let head = Vec::with_capacity(HEAD_BYTES_MAX + BROUGHT_BYTES_MAX);
        Visit {
            wire,
            peer,
            state: State::Asking(Zeroizing::new(head)),
            until: came + time,
            came,
            has_proof: false,
        }
    }

    /// When its time is over.
    pub(super) fn until(&self) -> Instant {
        self.until
    }

    /// Who gives way first has the least: the oldest, those before that have proven nothing.
    pub(super) fn rank(&self) -> (bool, Instant) {
        (self.has_proof, self.came)
    }

    /// Goes as far as the socket lets it; `false` when the connection is over.
    pub(super) fn go_on(&mut self, health: &Health, guard: &mut Guard) -> bool {
        loop {
            let done = match &mut self.state {
                State::Asking(_) => self.listen(health, guard),
                State::Answering { reply, sent } if *sent < reply.len() => {
                    match self.wire.write(&reply[*sent..]) {
                        Ok(0) => return false,
                        Ok(taken) => {
                            *sent += taken;
                            Ok(())
                        }
                        Err(error) => Err(error),
                    }
                }
                State::Answering { .. } => self.wire.end().map(|()| {
                    self.state = State::Leaving {
                        bytes_left: FAREWELL_BYTES_MAX,
                    };
                    self.until = Instant::now() + FAREWELL_TIME;
                }),
                State::Leaving { bytes_left } => match self.wire.drain() {
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

    /// Ends what takes too long; `false` when the connection is over.
    pub(super) fn end_late(&mut self, health: &Health, guard: &mut Guard) -> bool {
        match self.state {
            State::Asking(_) if self.wire.is_handshaking() => {
                let seconds = HANDSHAKE_TIME.as_secs();
                let cause = format!("its handshake was not whole within {seconds} s");
                guard.handshake_failed(health, self.peer, &cause);
                false
            }
            State::Asking(_) => {
                self.refuse(&Refusal {
                    code: Code::Timeout,
                    text: format!(
                        "the request was not whole within {} s",
                        REQUEST_TIME.as_secs()
                    ),
                });
                self.go_on(health, guard)
            }
            State::Answering { .. } | State::Leaving { .. } => false,
        }
    }

    /// Takes in more of the request, and answers it when it is whole.
    fn listen(&mut self, health: &Health, guard: &mut Guard) -> io::Result<()> {
        let State::Asking(head) = &mut self.state else {
            return Ok(());
        };
        let was_handshaking = self.wire.is_handshaking();
        let read = self.wire.read(head);
        if was_handshaking && !self.wire.is_handshaking() {
            self.has_proof = self.wire.has_certificate();
            self.until = self.came + REQUEST_TIME;
        }
        match read {
            Ok(1..) => {}
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Err(WireError::Socket(error)) => return Err(error),
            Err(WireError::Tls(fault)) => {
                guard.handshake_failed(health, self.peer, &fault.to_string());
                return Err(io::ErrorKind::InvalidData.into());
            }
        }
        let Some(asked) = http::read(head).transpose() else {
            return Ok(());
        };
        let proven = guard.judge(self.wire.has_certificate(), http::bearer(head));
        self.has_proof |= proven.is_ok();
        match (asked, proven) {
            (Ok(request), Ok(())) => self.answer(page(request, health)),
            (Err(refusal), Ok(())) => self.refuse(&refusal),
            (Ok(request), Err(unproven)) => match status(request.page, health) {
                Some(code) => self.answer(http::reply(code, PLAIN, "", true)),
                None => {
                    guard.refused(health, self.peer, unproven);
                    self.refuse(&needs_proof());
                }
            },
            // What there is besides is told to nobody without a proof.
            (Err(refusal), Err(unproven)) if refusal.code == Code::NotFound => {
                guard.refused(health, self.peer, unproven);
                self.refuse(&needs_proof());
            }
            (Err(refusal), Err(_)) => self.refuse(&refusal),
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

/// What is told to a client without a proof: the same, whatever the client shows.
fn needs_proof() -> Refusal {
    Refusal {
        code: Code::Unauthorized,
        text: "a token that is in force is needed (Authorization: Bearer TOKEN), or a certificate"
            .into(),
    }
}

/// What anybody may know of a page.
fn status(page: Page, health: &Health) -> Option<Code> {
    let is_good = match page {
        Page::Metrics(_) => return None,
        Page::Livez => health.live().is_ok(),
        Page::Readyz(wanted) => health.ready(wanted).is_ok(),
    };
    Some(match is_good {
        true => Code::Ok,
        false => Code::Unavailable,
    })
}

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
            let note = health.clock_behind_ms().map(clock_behind_text);
            let note = note.map_or(String::new(), |note| format!("\nnote: {note}"));
            let verdict = health.ready(wanted);
            probe(
                verdict
                    .map(|it| format!("{it}{note}"))
                    .map_err(|it| format!("{it}{note}")),
            )
        }
    }
}
