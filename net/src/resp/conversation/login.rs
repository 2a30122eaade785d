//! AUTH, HELLO AUTH and RESET at a server with users.

use crate::auth::{AuthMethod, AuthReply, Challenge, Identity, Login, Secret};
use crate::frame::Header;
use crate::reply::text_of;
use crate::status::Status;

use super::super::host::Host;
use super::super::local::{self, Hello};
use super::super::login::{RespLogin, Step, Wanted};
use super::super::parser::Arguments;
use super::super::reply::Protocol;
use super::super::sink::Sink;
use super::super::words::{NO_AUTH_HELLO, WRONG_PASS};
use super::{Conversation, Passed, Talk};

const NOT_HERE: &[u8] = b"ERR AUTH carries the secret as it is, and others may read this \
    connection: use TLS, or connect from the machine of the server";
const TOO_MANY: &[u8] = b"ERR too many logins with passwords are under way: try again";

impl Conversation {
    /// Its peer must log in first. A secret is taken only if nobody else hears it; the name in the
    /// certificate of the connection logs in by itself if it is that of a user.
    pub fn require_login(&mut self, may_carry_secrets: bool, certificate: Option<String>) {
        let login = RespLogin::new(may_carry_secrets, certificate);
        self.talk.login = Some(Box::new(login));
    }

    /// Whether a secret stands in the bytes that were taken last: their owner wipes them.
    pub fn has_taken_secret(&mut self) -> bool {
        let login = self.talk.login.as_mut();
        login.is_some_and(|login| std::mem::take(&mut login.has_secret))
    }

    /// The slow hash that a login waits for, once: [`Conversation::hashed`] is the answer.
    pub fn take_challenge(&mut self) -> Option<Challenge> {
        match &mut self.talk.login.as_mut()?.step {
            Step::Hashed(_, _, challenge) => challenge.take(),
            _ => None,
        }
    }

    /// The hash of a login is there; `None` if nobody can compute it now.
    pub fn hashed(&mut self, salted: Option<&[u8; 32]>) {
        let Some(state) = &mut self.talk.login else {
            return;
        };
        let Step::Hashed(login, wanted, _) = std::mem::take(&mut state.step) else {
            return;
        };
        match salted {
            Some(salted) => state.prove(login, wanted, salted),
            None => {
                self.talk.begins_replies();
                self.talk.error(TOO_MANY);
                self.talk.drops_replies();
            }
        }
    }
}

impl Talk {
    /// Gives the session what a login has for it. `false` while one is under way.
    #[cold]
    pub(super) fn login_goes_on(&mut self, sink: &mut Sink<'_>) -> bool {
        let Some(login) = &mut self.login else {
            return true;
        };
        if sink.is_empty() {
            sink.frame(&login.take_outgoing());
        }
        !login.is_under_way()
    }

    /// AUTH.
    pub(super) fn auth(&mut self, args: Arguments<'_>, sink: &Sink<'_>) -> Passed {
        match args.len() {
            2 => self.begin_login(b"default", args.get(1), Wanted::Auth, sink),
            3 => self.begin_login(args.get(1), args.get(2), Wanted::Auth, sink),
            _ => {
                self.note_secret();
                self.refuse_only(b"ERR syntax error")
            }
        }
    }

    /// A secret may stand in the command, whatever becomes of it.
    pub(super) fn note_secret(&mut self) {
        if let Some(login) = &mut self.login {
            login.has_secret = true;
        }
    }

    /// Begins a login behind the answers to all commands before it.
    fn begin_login(
        &mut self,
        name: &[u8],
        secret: &[u8],
        wanted: Wanted,
        sink: &Sink<'_>,
    ) -> Passed {
        let Some(login) = &mut self.login else {
            return Passed::Whole;
        };
        if !self.ring.is_empty() || !sink.is_empty() {
            return Passed::Waits;
        }
        login.has_secret = true;
        if !login.may_carry_secrets {
            return self.refuse_only(NOT_HERE);
        }
        let secret = Secret::new(secret.to_vec()).ok();
        let name = std::str::from_utf8(name).ok();
        let identity = name.zip(secret);
        let identity = identity.and_then(|(name, secret)| Identity::new(name, secret).ok());
        let Some(identity) = identity else {
            return self.refuse_only(WRONG_PASS);
        };
        let begun = Login::new(&identity, None, &login.next_nonce());
        login.send(AuthMethod::Scram, begun.first().as_bytes());
        login.step = Step::Begun(begun, wanted);
        Passed::Whole
    }

    /// HELLO.
    pub(super) fn hello(
        &mut self,
        args: Arguments<'_>,
        sink: &Sink<'_>,
        host: &dyn Host,
    ) -> Passed {
        let Hello {
            protocol,
            name,
            login,
        } = match local::read_hello(args) {
            Ok(hello) => hello,
            Err(text) => {
                self.note_secret();
                return self.refuse_only(&text);
            }
        };
        let is_in = self.login.as_ref().is_none_or(|login| login.is_in());
        match login {
            Some((user, secret)) if self.login.is_some() => {
                let wanted = Wanted::Hello { protocol, name };
                return self.begin_login(user, secret, wanted, sink);
            }
            // Without users there is one, who needs no secret.
            Some((user, _)) if user != b"default" => return self.refuse_only(WRONG_PASS),
            None if !is_in => return self.refuse_only(NO_AUTH_HELLO),
            _ => {}
        }
        self.say_hello(protocol, name, host);
        Passed::Whole
    }

    fn say_hello(&mut self, protocol: Option<Protocol>, name: Option<String>, host: &dyn Host) {
        if let Some(protocol) = protocol {
            self.protocol = protocol;
            self.client.protocol = if protocol == Protocol::Resp3 { 3 } else { 2 };
        }
        if let Some(name) = name {
            self.client.name = name;
        }
        host.client_changed(&self.client);
        let (protocol, client) = (self.protocol, &self.client);
        self.ring.reply(protocol, &mut self.out, |replies| {
            local::write_hello(client, host, replies);
        });
    }

    /// RESET forgets the user. `false` if commands before it are not answered.
    pub(super) fn leave(&mut self, sink: &Sink<'_>) -> bool {
        let Some(login) = &mut self.login else {
            return true;
        };
        if !self.ring.is_empty() || !sink.is_empty() {
            return false;
        }
        if login.is_in {
            login.is_in = false;
            login.send(AuthMethod::Leave, b"-");
            login.step = Step::Left;
        }
        self.client.user.clear();
        true
    }

    /// The session has answered a frame of a login.
    #[cold]
    pub(super) fn answered_login(&mut self, header: &Header, body: &[u8], host: &dyn Host) {
        let Some(state) = &mut self.login else {
            return;
        };
        let is_good = header.level_or_status == Status::Ok.code();
        let reply = match is_good {
            true => AuthReply::read(body).ok(),
            false => None,
        };
        let (user, wanted) = match (std::mem::take(&mut state.step), reply) {
            (Step::Certificate, Some(AuthReply::Done { .. })) => {
                (state.certificate.clone().unwrap_or_default(), None)
            }
            // No user has it: another login may come.
            (Step::None | Step::Certificate | Step::Left, _) => return,
            (Step::Begun(mut login, wanted), Some(AuthReply::GoOn { message })) => {
                match login.challenged(message) {
                    Ok(challenge) => state.challenged(login, wanted, challenge),
                    Err(_) => self.error(WRONG_PASS),
                }
                return;
            }
            (Step::Proven(mut login, wanted), Some(AuthReply::Done { message, .. })) => {
                let welcomed = login.welcomed(message);
                assert!(
                    welcomed.is_ok(),
                    "the session of this process knows its users"
                );
                (login.name().to_string(), Some(wanted))
            }
            _ => return self.refused_login(header, body),
        };
        state.is_in = true;
        self.client.user = user;
        match wanted {
            None => host.client_changed(&self.client),
            Some(Wanted::Auth) => {
                host.client_changed(&self.client);
                self.ok();
            }
            Some(Wanted::Hello { protocol, name }) => self.say_hello(protocol, name, host),
        }
    }

    fn refused_login(&mut self, header: &Header, body: &[u8]) {
        match header.deadline_or_retry_ms {
            0 => self.error(WRONG_PASS),
            _ => {
                let text = text_of(body).unwrap_or_default();
                self.error(&[b"ERR ", text.as_bytes()].concat());
            }
        }
    }
}
