//! Answers of items that are not executed, and what an answer outside its frame depends on.

use std::fmt;

use penstock_net::item::ItemForm;
use penstock_net::refusal::Refusal;
use penstock_net::reply::ReplyHead;
use penstock_net::request::Request;
use penstock_net::request::Version;
use penstock_net::status::Status;
use penstock_storage::io::Blocks;
use penstock_storage::place::Lsn;

use crate::accounts::answers::Asked;
use crate::accounts::busy::AnswerTerms;
use crate::cluster::Redirect;
use crate::execution::Execution;
use crate::execution::operation::{Disposition, Operation};
use crate::member_read::Stale;
use crate::now::Now;

impl<P: Blocks> Execution<P> {
    #[cold]
    pub(crate) fn refuse_unreadable(
        &mut self,
        operation: &Operation<'_>,
        refusal: Refusal,
        out: &mut Vec<u8>,
    ) -> Disposition {
        let status = refusal.status();
        self.refuse_item(Asked::Unreadable, operation, status, &refusal, out)
    }

    /// Answers an item that is not executed, with the reason.
    #[cold]
    pub(crate) fn refuse_item(
        &mut self,
        asked: Asked,
        operation: &Operation,
        status: Status,
        reason: &dyn fmt::Display,
        out: &mut Vec<u8>,
    ) -> Disposition {
        self.stats.refuse(asked, status);
        let item = operation.address.item;
        ReplyHead::new(status, item, operation.level, Version::default())
            .write_message(out, reason);
        match status {
            Status::Busy => Disposition::Busy,
            _ => Disposition::Answered(Lsn(0)),
        }
    }

    /// Tells who answers it.
    #[cold]
    pub(crate) fn refuse_elsewhere(
        &mut self,
        asked: Asked,
        operation: &Operation,
        elsewhere: &Redirect,
        out: &mut Vec<u8>,
    ) -> Disposition {
        let status = elsewhere.status();
        self.stats.refuse(asked, status);
        let item = operation.address.item;
        ReplyHead::new(status, item, operation.level, elsewhere.version())
            .write_message(out, elsewhere);
        Disposition::Answered(Lsn(0))
    }

    /// Tells how far this node is.
    #[cold]
    pub(crate) fn refuse_stale(
        &mut self,
        asked: Asked,
        operation: &Operation,
        stale: &Stale,
        out: &mut Vec<u8>,
    ) -> Disposition {
        self.replica_waits.refuse_member_read();
        self.stats.refuse(asked, Status::Stale);
        let item = operation.address.item;
        ReplyHead::new(Status::Stale, item, operation.level, Version::default()).write_extended(
            out,
            None,
            Some(stale.standing),
            stale.to_string().as_bytes(),
        );
        Disposition::Answered(Lsn(0))
    }

    /// Why nothing is executed any more.
    #[inline]
    pub(crate) fn comes_too_late(
        &self,
        now: Now,
        deadline_us: u64,
    ) -> Option<(Status, &'static str)> {
        if self.phase.is_stopping() {
            Some((Status::Draining, "the server is stopping"))
        } else if deadline_us != 0 && now.us > deadline_us {
            Some((Status::Deadline, "the deadline passed before execution"))
        } else {
            None
        }
    }

    /// What an item asks for.
    #[cold]
    pub(crate) fn asked_by(&self, item: &[u8]) -> Asked {
        if let Some(verb) = ItemForm::of(item).verb() {
            return Asked::Verb(verb);
        }
        match Request::read(item, self.setup.limits().value_bytes_max) {
            Ok(request) => Asked::Verb(request.verb),
            Err(_) => Asked::Unreadable,
        }
    }

    /// What the frame of an answer depends on and tells, if a reply item was written.
    pub(crate) fn terms(&self, disposition: &Disposition) -> Option<AnswerTerms> {
        match *disposition {
            Disposition::Answered(gate) => Some(AnswerTerms::behind(gate)),
            Disposition::Busy => Some(AnswerTerms {
                gate: Lsn(0),
                retry_after_ms: self.stats.retry_after_ms(),
            }),
            Disposition::Later | Disposition::Postponed => None,
        }
    }
}
