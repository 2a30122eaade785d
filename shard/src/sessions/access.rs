//! What the user of a connection may do, and how far the login is.

use std::sync::Arc;

use penstock_net::rights::Rights;

use crate::audit::Denials;
use crate::logins::{SessionLogin, Stage};

/// The user of one connection.
#[derive(Debug)]
pub(crate) struct Access {
    pub(crate) stage: Stage,
    /// The login, if the connection came with one to a shard with users.
    pub(crate) login: Option<Box<SessionLogin>>,
    /// What the user may do. `None`: everything, because the server has no users.
    pub(crate) rights: Option<Arc<Rights>>,
    /// How often the user was denied, for the audit log.
    pub(crate) denials: Denials,
}

impl Access {
    pub(super) fn new() -> Self {
        Access {
            stage: Stage::Hello,
            login: None,
            rights: None,
            denials: Denials::default(),
        }
    }

    /// Whether the connection has said HELLO.
    #[inline]
    pub(crate) fn has_said_hello(&self) -> bool {
        self.stage != Stage::Hello
    }

    /// Whether the time of a login has passed that is not complete.
    pub(super) fn is_late(&self, now_us: u64) -> bool {
        let login = self.login.as_ref().filter(|_| self.stage != Stage::Open);
        login.is_some_and(|login| now_us > login.opens_by_us)
    }
}
