//! What connections do that an audit log is told of.

use std::fmt;

use penstock_storage::io::Blocks;

use crate::audit::AuditedWhat;
use crate::mail::SessionId;
use crate::shard::Shard;

impl<P: Blocks> Shard<P> {
    /// Something that a connection has asked for was denied.
    #[cold]
    pub(super) fn audit_denied(&mut self, id: SessionId, denied: &impl fmt::Display) {
        let now_us = self.execution.store.data().time_ms().saturating_mul(1000);
        if !self.front.audit.is_read() {
            return;
        }
        let Some(session) = self.front.sessions.get_open(id) else {
            return;
        };
        if let Some(times) = session.access.denials.count(now_us) {
            let text = denied.to_string();
            let actor = self.front.actor(id);
            self.front
                .audit
                .report(actor, AuditedWhat::Denied { text, times });
        }
    }
}
