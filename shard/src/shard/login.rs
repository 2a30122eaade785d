//! Logins of connections, and what a change of users does to them.

use std::sync::Arc;

use penstock_net::auth::{AuthFault, AuthReply};
use penstock_net::frame::{Header, Medium};
use penstock_net::refusal::Refusal;
use penstock_net::rights::Rights;
use penstock_net::users::Users;
use penstock_storage::io::Blocks;
use penstock_storage::place::Lsn;

use crate::logins::{
    Greeting, Heard, LOGIN_BY_HAND_US_MAX, LOGIN_US_MAX, SessionLogin, Stage,
    UNSENT_BYTES_BEFORE_LOGIN_MAX,
};
use crate::mail::SessionId;

use super::{Now, Outbox, Shard};

/// Why a connection is ended whose user is another one now.
const USER_GONE: &str = "its user is gone or has another secret";
/// Why a connection is ended that asks and does not listen before it is logged in.
const UNSENT: &str = "it reads no answers and is not logged in";

impl<P: Blocks> Shard<P> {
    /// Whether connections must log in. If so, each one that is accepted is followed by
    /// [`Shard::greet`].
    #[inline]
    pub fn needs_logins(&self) -> bool {
        self.logins.are_needed()
    }

    /// What came with a connection that was opened just now.
    pub fn greet(&mut self, now: Now, id: SessionId, greeting: Greeting) {
        let Some(session) = self.sessions.get_open(id) else {
            return;
        };
        let patience_us = match session.medium {
            Medium::Wire => LOGIN_US_MAX,
            Medium::Memory => LOGIN_BY_HAND_US_MAX,
        };
        let login = SessionLogin::new(greeting, now.us + patience_us);
        session.login = Some(Box::new(login));
    }

    /// Whether a connection may ask.
    #[must_use]
    pub fn is_open(&self, id: SessionId) -> bool {
        self.sessions.at(id).stage == Stage::Open
    }

    /// What the user of a connection may do; `None` is everything.
    #[must_use]
    pub fn rights_of(&self, id: SessionId) -> Option<Arc<Rights>> {
        self.sessions.at(id).rights.clone()
    }

    /// Takes a message of a login.
    #[cold]
    pub(super) fn log_in(
        &mut self,
        now: Now,
        id: SessionId,
        header: &Header,
        body: &[u8],
        outbox: &mut Outbox<P::Block>,
    ) {
        let session = self.sessions.at_mut(id);
        let asked = session.login.as_ref().and_then(|login| login.asked());
        let is_by_wire = session.medium == Medium::Wire;
        let is_repeated = is_by_wire && session.stage == Stage::Open;
        let (fault, is_last) = match &mut session.login {
            _ if !self.logins.are_needed() => (AuthFault::NoUsers, false),
            _ if is_repeated => (AuthFault::Repeated, false),
            // Nobody knows from where it came.
            None => (AuthFault::Required, false),
            Some(login) => match self.logins.hear(now.us, login, body, is_by_wire) {
                Ok(heard) => return self.answer_login(id, header, &heard, outbox),
                Err(refused) => (refused.fault, refused.is_last),
            },
        };
        self.audit_refused(id, asked, fault);
        self.refuse(id, Some(header), Refusal::Auth(fault), is_last, outbox);
    }

    fn answer_login(
        &mut self,
        id: SessionId,
        header: &Header,
        heard: &Heard,
        outbox: &mut Outbox<P::Block>,
    ) {
        let hello;
        let reply = match heard {
            Heard::GoOn(message) => AuthReply::GoOn {
                message: message.as_bytes(),
            },
            Heard::Left => {
                // Its rights stay: what waits is judged by them, and nothing else is taken.
                self.sessions.at_mut(id).stage = Stage::Authenticating;
                AuthReply::GoOn { message: b"-" }
            }
            Heard::Done(message) => {
                self.take_rights(id);
                self.open(id);
                self.audit_login(id);
                let told = self.setup.config().hello.at(self.store.time_ms());
                hello = told.body();
                AuthReply::Done {
                    message: message.as_bytes(),
                    hello: &hello,
                }
            }
        };
        let shard = self.setup.shard();
        let out = self.sessions.at_mut(id).output.pieces.written();
        reply.write(out, header.request_id, shard);
        self.note(id, Lsn(0), 0, outbox);
        self.bound_unsent(id, outbox);
    }

    /// Gives a connection what its user may do now.
    fn take_rights(&mut self, id: SessionId) {
        let session = self.sessions.at_mut(id);
        let login = session.login.as_ref();
        let user = login.and_then(|login| self.logins.user(login));
        session.rights = user.map(|user| Arc::clone(user.rights()));
    }

    /// Lets these users in from now on: ends the connections of those who are gone, and of those
    /// who have never logged in.
    pub(super) fn let_in(&mut self, users: Arc<Users>, outbox: &mut Outbox<P::Block>) {
        self.logins.replace(users);
        for id in self.sessions.ids_of_peers() {
            let session = self.sessions.at_mut(id);
            let is_in = match &mut session.login {
                _ if session.is_ending => continue,
                // It may be greeted yet.
                None => session.stage != Stage::Open,
                Some(login) => self.logins.renew(login),
            };
            match is_in {
                true => self.take_rights(id),
                false => {
                    // What it has sent and what has not run runs no more.
                    session.is_ending = true;
                    outbox.close.push((id, USER_GONE));
                    self.audit_gone(id);
                }
            }
        }
    }

    /// Ends a connection that is not logged in and takes no answers: it may hold little.
    #[inline]
    pub(super) fn bound_unsent(&mut self, id: SessionId, outbox: &mut Outbox<P::Block>) {
        let session = self.sessions.at_mut(id);
        if session.stage != Stage::Authenticating
            || session.unsent_bytes() <= UNSENT_BYTES_BEFORE_LOGIN_MAX
        {
            return;
        }
        session.is_ending = true;
        outbox.close.push((id, UNSENT));
    }
}
