//! Who asks: the connections that this core accepted, their logins, what they may take, and what an
//! audit log is told of them. Knows no store.

mod audited;
mod frames;
mod login;
mod peers;
mod rights;

use crate::admission::Admission;
use crate::audit::AuditTrail;
use crate::logins::Logins;
use crate::sessions::Sessions;
use crate::setup::ShardConfig;

/// The side of the shard that faces its connections.
pub struct Front {
    pub(crate) sessions: Sessions,
    pub(crate) logins: Logins,
    pub(crate) audit: AuditTrail,
    pub(crate) admission: Admission,
}

impl Front {
    pub(crate) fn new(config: &ShardConfig) -> Self {
        Front {
            sessions: Sessions::new(config.client_bounds(), config.patience()),
            logins: Logins::default(),
            audit: AuditTrail::default(),
            admission: Admission::new(),
        }
    }
}
