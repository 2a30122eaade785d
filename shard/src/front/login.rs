//! Logins of connections, and what a change of users does to them.

use std::sync::Arc;

use penstock_net::frame::Medium;
use penstock_net::rights::Rights;
use penstock_net::users::Users;

use crate::event::Outbox;
use crate::front::Front;
use crate::logins::{
    Greeting, LOGIN_BY_HAND_US_MAX, LOGIN_US_MAX, SessionLogin, Stage,
    UNSENT_BYTES_BEFORE_LOGIN_MAX,
};
use crate::mail::SessionId;
use crate::now::Now;

/// Why a connection is ended whose user is another one now.
const USER_GONE: &str = "its user is gone or has another secret";
/// Why a connection is ended that asks and does not listen before it is logged in.
const UNSENT: &str = "it reads no answers and is not logged in";

impl Front {
    /// Whether connections must log in. If so, each one that is accepted is followed by
    /// [`Front::greet`].
    #[inline]
    pub fn needs_logins(&self) -> bool {
        self.logins.are_needed()
    }

    /// What came with a connection that was opened just now.
    pub fn greet(&mut self, now: Now, id: SessionId, greeting: Greeting) {
        let Some(session) = self.sessions.get_open(id) else {
            return;
        };
        let patience_us = match session.peer.medium {
            Medium::Wire => LOGIN_US_MAX,
            Medium::Memory => LOGIN_BY_HAND_US_MAX,
        };
        let login = SessionLogin::new(greeting, now.us + patience_us);
        session.access.login = Some(Box::new(login));
    }

    /// Whether a connection may ask.
    #[must_use]
    pub fn is_open(&self, id: SessionId) -> bool {
        self.sessions.at(id).access.stage == Stage::Open
    }

    /// What the user of a connection may do; `None` is everything.
    #[must_use]
    pub fn rights_of(&self, id: SessionId) -> Option<Arc<Rights>> {
        self.sessions.at(id).access.rights.clone()
    }

    /// Gives a connection what its user may do now.
    pub(crate) fn take_rights(&mut self, id: SessionId) {
        let session = self.sessions.at_mut(id);
        let login = session.access.login.as_ref();
        let user = login.and_then(|login| self.logins.user(login));
        session.access.rights = user.map(|user| Arc::clone(user.rights()));
    }

    /// Lets these users in from now on: ends the connections of those who are gone, and of those
    /// who have never logged in.
    pub(crate) fn let_in<B>(&mut self, users: Arc<Users>, outbox: &mut Outbox<B>) {
        self.logins.replace(users);
        for id in self.sessions.ids_of_peers() {
            let session = self.sessions.at_mut(id);
            let is_in = match &mut session.access.login {
                _ if session.is_ending => continue,
                // It may be greeted yet.
                None => session.access.stage != Stage::Open,
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
    pub(crate) fn bound_unsent<B>(&mut self, id: SessionId, outbox: &mut Outbox<B>) {
        let session = self.sessions.at_mut(id);
        if session.access.stage != Stage::Authenticating
            || session.unsent_bytes() <= UNSENT_BYTES_BEFORE_LOGIN_MAX
        {
            return;
        }
        session.is_ending = true;
        outbox.close.push((id, UNSENT));
    }
}
