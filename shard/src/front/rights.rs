//! What the user of a connection may do.

use std::sync::Arc;

use penstock_net::rights::Rights;

use crate::front::Front;
use crate::mail::SessionId;
use crate::requests::parking::{Origin, Parked};

impl Front {
    /// A connection may do so much from now on; `None` is everything. What waits is judged anew
    /// when it runs.
    pub fn set_rights(&mut self, id: SessionId, rights: Option<Arc<Rights>>) {
        if let Some(session) = self.sessions.get_open(id) {
            session.access.rights = rights;
        }
    }

    /// Has an item that waited judged by the rights that its connection has now. If the connection
    /// is gone, those by which the item came in hold.
    pub(crate) fn renew_rights(&mut self, parked: &mut Parked) {
        if parked.origin == Origin::Here
            && let Some(session) = self.sessions.get_open(parked.address.session)
        {
            parked.rights.clone_from(&session.access.rights);
        }
    }
}
