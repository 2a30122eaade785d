//! What an audit log is told of connections.

use penstock_net::auth::AuthFault;
use penstock_net::request::Extra;

use crate::audit::{Actor, AuditedWhat, name_of};
use crate::execution::operation::Operation;
use crate::front::Front;
use crate::mail::SessionId;
use crate::requests::parking::Origin;

impl Front {
    /// Somebody reads [`crate::Outbox::audited`] from now on. Nothing is put there before.
    pub fn begin_audit(&mut self) {
        self.audit.begin();
    }

    /// A connection has logged in.
    pub(crate) fn audit_login(&mut self, id: SessionId) {
        if self.audit.is_read() {
            let actor = self.actor(id);
            self.audit.report(actor, AuditedWhat::LoggedIn);
        }
    }

    /// A message of a login of a connection was refused. `login` is whose login it was.
    pub(crate) fn audit_refused(
        &mut self,
        id: SessionId,
        login: Option<Box<str>>,
        fault: AuthFault,
    ) {
        if self.audit.is_read() {
            let actor = Actor {
                login,
                ..self.actor(id)
            };
            self.audit.report(actor, AuditedWhat::LoginRefused(fault));
        }
    }

    /// A connection is ended, because its user is gone.
    pub(crate) fn audit_gone(&mut self, id: SessionId) {
        if self.audit.is_read() {
            let actor = self.actor(id);
            self.audit.report(actor, AuditedWhat::UserGone);
        }
    }

    /// A connection of this shard asks for a change of a keyspace, and may.
    #[cold]
    pub(crate) fn audit_keyspace(&mut self, operation: &Operation<'_>, extra: Extra, key: &[u8]) {
        if let Extra::Keyspace(action) = extra
            && let Some(action) = name_of(&action)
            && operation.origin == Origin::Here
            && self.audit.is_read()
        {
            let actor = self.actor(operation.address.session);
            let prefix = key.into();
            self.audit
                .report(actor, AuditedWhat::KeyspaceAsked { action, prefix });
        }
    }

    /// What is known of the one who asks by a connection.
    pub(crate) fn actor(&mut self, id: SessionId) -> Actor {
        let login = self
            .sessions
            .get_open(id)
            .and_then(|it| it.access.login.as_ref());
        login.map_or_else(Actor::default, |login| login.actor())
    }
}
