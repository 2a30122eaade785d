//! Who asks: the users of a shard, and how far the login of a connection has come.
//!
//! What must hold: a connection has a user only behind a proof for the users of now, and a message
//! of an address that is delayed is not looked at.

mod failures;

use std::net::IpAddr;
use std::sync::Arc;

use penstock_net::auth::{AuthFault, AuthMethod, AuthRequest, Exchange, Transport};
use penstock_net::auth::{Proven, Verifier};
use penstock_net::hello::{AUTH_CERTIFICATE, AUTH_SCRAM, AUTH_SCRAM_BOUND};
use penstock_net::users::{User, Users};

use crate::audit::Actor;

use failures::FailedLogins;

/// A connection that is not open after this long is ended.
pub(crate) const LOGIN_US_MAX: u64 = 10_000_000;
/// The same of the port of Redis, where people type.
pub(crate) const LOGIN_BY_HAND_US_MAX: u64 = 60_000_000;
/// Bytes of answers that a connection which is not open may have waiting.
pub(crate) const UNSENT_BYTES_BEFORE_LOGIN_MAX: usize = 2 << 10;

/// Failures of one turn that other shards are told of, at most: each costs the work of a login.
const FAILED_IN_A_TURN_MAX: usize = 64;

/// How far a connection has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Stage {
    /// It has not said HELLO.
    #[default]
    Hello,
    /// It has, and must log in.
    Authenticating,
    /// It may ask.
    Open,
}

/// What comes with a connection: the shard makes no random numbers and sees no socket.
#[derive(Clone, Debug)]
pub struct Greeting {
    /// Random bytes, new for each connection.
    pub nonce: [u8; 32],
    /// What the connection proves by itself.
    pub transport: Transport,
}

/// The login of one connection of a shard with users.
#[derive(Debug)]
pub(crate) struct SessionLogin {
    greeting: Greeting,
    /// Logins that were begun.
    attempts: u32,
    /// A login that is under way.
    exchange: Option<Exchange>,
    user: Option<LoggedIn>,
    /// It is ended if it is not open by then.
    pub(crate) opens_by_us: u64,
}

/// A user, and by what they were let in.
#[derive(Debug)]
struct LoggedIn {
    /// The name of the login, or of the certificate.
    login: Box<str>,
    /// The stored secret that was proven; `None` for a certificate.
    verifier: Option<Verifier>,
}

impl LoggedIn {
    /// The user, if that still lets them in.
    fn user<'a>(&self, users: &'a Users) -> Option<&'a User> {
        match &self.verifier {
            None => users.of_certificate(&self.login),
            Some(proven) => {
                let (user, verifier) = users.login(&self.login)?;
                (verifier == proven).then_some(user)
            }
        }
    }
}

impl SessionLogin {
    /// The login of a connection that was accepted now.
    pub(crate) fn new(greeting: Greeting, opens_by_us: u64) -> Self {
        SessionLogin {
            greeting,
            attempts: 0,
            exchange: None,
            user: None,
            opens_by_us,
        }
    }

    /// The bits of HELLO. A login that comes by memory is bound to no connection.
    pub(crate) fn methods(&self, is_by_wire: bool) -> u16 {
        let transport = &self.greeting.transport;
        let scram = match is_by_wire && transport.channel_binding.is_some() {
            true => AUTH_SCRAM_BOUND,
            false => AUTH_SCRAM,
        };
        match &transport.certificate_name {
            Some(_) => scram | AUTH_CERTIFICATE,
            None => scram,
        }
    }

    /// Whose login it is, and from where.
    pub(crate) fn actor(&self) -> Actor {
        Actor {
            login: self.user.as_ref().map(|user| user.login.clone()),
            peer: self.greeting.transport.peer,
        }
    }

    /// Whose login is under way.
    pub(crate) fn asked(&self) -> Option<Box<str>> {
        self.exchange.as_ref().map(|it| it.login().into())
    }

    /// The nonce of HELLO.
    pub(crate) fn nonce(&self) -> [u8; 32] {
        self.greeting.nonce
    }
}

/// What a message of a login leads to.
pub(crate) enum LoginOutcome {
    /// The client is to send its next message.
    GoOn(String),
    /// It is logged in.
    Done(String),
    /// It is nobody from now on.
    Left,
}

/// Why a message of a login was refused.
pub(crate) struct Refused {
    pub(crate) fault: AuthFault,
    /// The connection ends: too many of its address have failed.
    pub(crate) is_last: bool,
}

impl From<AuthFault> for Refused {
    fn from(fault: AuthFault) -> Self {
        Refused {
            fault,
            is_last: false,
        }
    }
}

/// What became of logins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoginCounters {
    /// Those that were made.
    pub made: u64,
    /// Those that were refused.
    pub failed: u64,
    /// Messages that were not looked at, because too many of their address had failed.
    pub delayed: u64,
    /// Connections that were ended because their user is gone or has another secret.
    pub ended: u64,
}

/// The users of a shard.
#[derive(Debug, Default)]
pub(crate) struct Logins {
    users: Option<Arc<Users>>,
    failures: FailedLogins,
    /// Addresses of failures in this turn, for the other shards.
    failed: Vec<IpAddr>,
    counters: LoginCounters,
}

impl Logins {
    /// Whether a connection must log in.
    #[inline]
    pub(crate) fn are_needed(&self) -> bool {
        self.users.is_some()
    }

    pub(crate) fn counters(&self) -> LoginCounters {
        self.counters
    }

    /// Lets these users in from now on. Connections are judged anew by [`Logins::renew`].
    pub(crate) fn replace(&mut self, users: Arc<Users>) {
        self.users = Some(users);
    }

    /// The user of a connection.
    pub(crate) fn user(&self, login: &SessionLogin) -> Option<&User> {
        login.user.as_ref()?.user(self.users.as_deref()?)
    }

    /// Judges a connection by the users of now; `false` if it is to be ended.
    pub(crate) fn renew(&mut self, login: &SessionLogin) -> bool {
        let is_in = login.user.is_none() || self.user(login).is_some();
        self.counters.ended += u64::from(!is_in);
        is_in
    }

    /// Takes the body of an AUTH.
    pub(crate) fn take_message(
        &mut self,
        now_us: u64,
        login: &mut SessionLogin,
        body: &[u8],
        is_by_wire: bool,
    ) -> Result<LoginOutcome, Refused> {
        let users = self.users.clone().ok_or(AuthFault::NoUsers)?;
        let AuthRequest { method, message } = AuthRequest::read(body)?;
        match method {
            AuthMethod::Leave if is_by_wire => Err(AuthFault::Method(3).into()),
            AuthMethod::Leave => {
                (login.user, login.exchange) = (None, None);
                Ok(LoginOutcome::Left)
            }
            AuthMethod::Certificate => self.by_certificate(login, &users),
            AuthMethod::Scram => {
                let address = login.greeting.transport.peer;
                if let Some(ms) = self.failures.delay_ms(now_us, address) {
                    self.counters.delayed += 1;
                    login.exchange = None;
                    return Err(AuthFault::Delayed(ms).into());
                }
                let outcome = scram(login, message, is_by_wire, &users);
                match &outcome {
                    Ok(LoginOutcome::Done(_)) => self.counters.made += 1,
                    Ok(_) => {}
                    Err(_) => self.counters.failed += 1,
                }
                outcome.map_err(|fault| {
                    let room = self.failed.len() < FAILED_IN_A_TURN_MAX;
                    self.failed.extend(address.filter(|_| room));
                    Refused {
                        fault,
                        is_last: self.failures.failed(now_us, address),
                    }
                })
            }
        }
    }

    /// The failures since the last time, for the other shards of the node.
    pub(crate) fn take_failed(&mut self) -> Option<Arc<[IpAddr]>> {
        (!self.failed.is_empty()).then(|| std::mem::take(&mut self.failed).into())
    }

    /// Logins of these addresses have failed at another shard of the node.
    pub(crate) fn failed_elsewhere(&mut self, now_us: u64, addresses: &[IpAddr]) {
        for address in addresses {
            self.failures.failed(now_us, Some(*address));
        }
    }

    fn by_certificate(
        &mut self,
        login: &mut SessionLogin,
        users: &Users,
    ) -> Result<LoginOutcome, Refused> {
        let name = login.greeting.transport.certificate_name.as_deref();
        let name = name.filter(|name| users.of_certificate(name).is_some());
        // A certificate cannot be guessed: such a failure delays nobody.
        let Some(name) = name else {
            self.counters.failed += 1;
            return Err(AuthFault::Certificate.into());
        };
        login.user = Some(LoggedIn {
            login: name.into(),
            verifier: None,
        });
        self.counters.made += 1;
        Ok(LoginOutcome::Done("-".into()))
    }
}

fn scram(
    login: &mut SessionLogin,
    message: &[u8],
    is_by_wire: bool,
    users: &Users,
) -> Result<LoginOutcome, AuthFault> {
    let Some(exchange) = login.exchange.take() else {
        let Greeting { nonce, transport } = &login.greeting;
        let binding = transport.channel_binding.as_ref().filter(|_| is_by_wire);
        let attempt = login.attempts;
        login.attempts += 1;
        let (exchange, answer) = Exchange::begin(message, binding, (nonce, attempt), users)?;
        login.exchange = Some(exchange);
        return Ok(LoginOutcome::GoOn(answer));
    };
    let Proven {
        login: name,
        verifier,
        message,
    } = exchange.finish(message, users)?;
    login.user = Some(LoggedIn {
        login: name,
        verifier: Some(verifier),
    });
    Ok(LoginOutcome::Done(message))
}
