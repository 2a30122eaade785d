//! Rights of users: what is denied, and by which rights an item is judged that waited.

use std::sync::Arc;

use penstock_net::frame::Header;
use penstock_net::item::Item;
use penstock_net::program::SCHEMA_ASKED;
use penstock_net::refusal::ShownName;
use penstock_net::reply::write_error;
use penstock_net::rights::{Denied, Rights};
use penstock_net::status::Status;
use penstock_storage::io::Blocks;
use penstock_storage::place::Lsn;

use crate::answers::Asked;
use crate::mail::SessionId;
use crate::requests::parking::{Origin, Parked};

use super::operation::{Operation, Step};
use super::{Outbox, Shard};

impl<P: Blocks> Shard<P> {
    /// A connection may do so much from now on; `None` is everything. What waits is judged anew
    /// when it runs.
    pub fn set_rights(&mut self, id: SessionId, rights: Option<Arc<Rights>>) {
        if let Some(session) = self.sessions.get_open(id) {
            session.rights = rights;
        }
    }

    /// Answers an item that its user may not have executed.
    #[cold]
    pub(super) fn deny(
        &mut self,
        asked: Asked,
        operation: &Operation<'_>,
        denied: &Denied<'_>,
        out: &mut Vec<u8>,
    ) -> Step {
        if operation.origin == Origin::Here {
            self.audit_denied(operation.address.session, denied);
        }
        self.refuse_item(asked, operation, Status::Denied, denied, out)
    }

    /// Whether an item is denied, before anything else is asked that looks at the store. One whose
    /// bytes are wrong is not: it is refused for that.
    #[cold]
    pub(super) fn is_denied(&self, operation: &Operation<'_>) -> bool {
        let (Some(rights), item) = (operation.rights, operation.item) else {
            return false;
        };
        let value_bytes_max = self.setup.limits().value_bytes_max;
        let judged = match Item::read(item, value_bytes_max) {
            Err(_) | Ok(Item::Ping(_)) => return false,
            Ok(Item::Verb(request)) => rights.judge(&request),
            Ok(Item::Program(request)) => match operation.program {
                None => rights.judge_apply(&request),
                program => rights.judge_run(program, request.keys().iter().copied()),
            },
            Ok(Item::Run(run)) => {
                let name = self.programs.name_of(&run);
                let name = name.as_ref().map(ShownName::as_str);
                return rights.judge_run(name, run.keys()).is_err();
            }
            Ok(Item::Scan(scan)) => rights.judge_scan(&scan),
        };
        judged.is_err()
    }

    /// Has an item that waited judged by the rights that its connection has now. If the connection
    /// is gone, those by which the item came in hold.
    pub(super) fn renew_rights(&mut self, parked: &mut Parked) {
        if parked.origin == Origin::Here
            && let Some(session) = self.sessions.get_open(parked.address.session)
        {
            parked.rights.clone_from(&session.rights);
        }
    }

    /// Answers an INFO that the user may not ask, of the schema or of the server. `false` if the
    /// user may.
    pub(super) fn denies_info(
        &mut self,
        id: SessionId,
        header: &Header,
        body: &[u8],
        outbox: &mut Outbox<P::Block>,
    ) -> bool {
        let Some(rights) = self.sessions.at(id).rights.clone() else {
            return false;
        };
        let judged = match body == SCHEMA_ASKED {
            true => rights.judge_schema(),
            false => rights.judge_info(),
        };
        let Err(denied) = judged else { return false };
        let (status, shard) = (Status::Denied, self.setup.shard());
        self.stats.refuse_frame(status);
        self.audit_denied(id, &denied);
        let out = self.sessions.at_mut(id).output.pieces.written();
        write_error(out, Some(header), status, 0, shard, &denied);
        self.note(id, Lsn(0), 0, outbox);
        true
    }
}
