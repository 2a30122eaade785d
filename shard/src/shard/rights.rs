//! Rights of users: what is denied, and by which rights an item is judged that waited.

use penstock_net::frame::Header;
use penstock_net::program::SCHEMA_ASKED;
use penstock_net::reply::write_error;
use penstock_net::rights::Denied;
use penstock_net::status::Status;
use penstock_storage::io::Blocks;
use penstock_storage::place::Lsn;

use crate::accounts::answers::Asked;
use crate::event::Outbox;
use crate::execution::operation::{Disposition, Operation};
use crate::mail::SessionId;
use crate::requests::parking::Origin;
use crate::shard::Shard;

impl<P: Blocks> Shard<P> {
    /// Answers an item that its user may not have executed.
    #[cold]
    pub(super) fn deny(
        &mut self,
        asked: Asked,
        operation: &Operation<'_>,
        denied: &Denied<'_>,
        out: &mut Vec<u8>,
    ) -> Disposition {
        if operation.origin == Origin::Here {
            self.audit_denied(operation.address.session, denied);
        }
        self.execution
            .refuse_item(asked, operation, Status::Denied, denied, out)
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
        let Some(rights) = self.front.sessions.at(id).access.rights.clone() else {
            return false;
        };
        let judged = match body == SCHEMA_ASKED {
            true => rights.judge_schema(),
            false => rights.judge_info(),
        };
        let Err(denied) = judged else { return false };
        let (status, shard) = (Status::Denied, self.execution.setup.shard());
        self.execution.stats.refuse_frame(status);
        self.audit_denied(id, &denied);
        let out = self.front.sessions.at_mut(id).output.pieces.written();
        write_error(out, Some(header), status, 0, shard, &denied);
        self.note(id, Lsn(0), 0, outbox);
        true
    }
}
