//! RUN: an item becomes one of APPLY, which then runs, parks or is mailed as any other.

use penstock_net::frame::Header;
use penstock_net::pieces::Pieces;
use penstock_net::program::RunRequest;
use penstock_net::refusal::{Refusal, ShownName};
use penstock_net::reply::write_info_reply;
use penstock_net::request::Verb;
use penstock_net::slot::slot_of;
use penstock_storage::io::Blocks;
use penstock_storage::place::Lsn;
use penstock_storage::version::partition_of;

use crate::accounts::answers::Asked;
use crate::event::Outbox;
use crate::execution::operation::{Disposition, Operation};
use crate::mail::SessionId;
use crate::now::Now;
use crate::sessions::SMALL_ANSWER_BYTES;
use crate::shard::Shard;

impl<P: Blocks> Shard<P> {
    /// Takes a RUN in. What waits or goes to another shard is the item of APPLY.
    pub(super) fn run_item(
        &mut self,
        now: Now,
        operation: &Operation<'_>,
        pieces: &mut Pieces,
    ) -> Disposition {
        let name = match operation.rights {
            Some(_) => RunRequest::read(operation.item)
                .ok()
                .and_then(|run| self.execution.programs.name_of(&run)),
            None => None,
        };
        let item = match self.execution.programs.take(operation.item) {
            Ok(item) => item,
            Err(refusal) => return self.refuse_run(now, operation, refusal, pieces.written()),
        };
        let apply = Operation {
            item: &item,
            known: None,
            program: name.as_ref().map(ShownName::as_str),
            ..*operation
        };
        let disposition = self.apply_item(now, &apply, pieces);
        self.execution.programs.give(item);
        disposition
    }

    /// Answers a RUN that is no APPLY. A program that is not known here may be known by the node
    /// that writes the key.
    #[cold]
    fn refuse_run(
        &mut self,
        now: Now,
        operation: &Operation<'_>,
        refusal: Refusal,
        out: &mut Vec<u8>,
    ) -> Disposition {
        let asked = Asked::Verb(Verb::Apply);
        if let (Some(rights), Ok(run)) = (operation.rights, RunRequest::read(operation.item)) {
            let name = self.execution.programs.name_of(&run);
            let name = name.as_ref().map(ShownName::as_str);
            if let Err(denied) = rights.judge_run(name, run.keys()) {
                return self.deny(asked, operation, &denied, out);
            }
        }
        let run = match (refusal, RunRequest::read(operation.item)) {
            (Refusal::ProgramUnknown { .. }, Ok(run)) => run,
            _ => return self.execution.refuse_unreadable(operation, refusal, out),
        };
        if let Some((status, message)) = self.execution.comes_too_late(now, operation.deadline_us) {
            return self
                .execution
                .refuse_item(asked, operation, status, &message, out);
        }
        let slot = slot_of(run.key());
        let elsewhere = match &self.execution.linked {
            Some(linked) if self.execution.setup.owns(slot) => linked.elsewhere(partition_of(slot)),
            _ => None,
        };
        match elsewhere {
            Some(elsewhere) => self
                .execution
                .refuse_elsewhere(asked, operation, &elsewhere, out),
            None => self
                .execution
                .refuse_item(asked, operation, refusal.status(), &refusal, out),
        }
    }

    /// Answers an INFO that asks for the schema. `false` if there is no room for a long one.
    pub(super) fn answer_schema(
        &mut self,
        id: SessionId,
        header: &Header,
        outbox: &mut Outbox<P::Block>,
    ) -> bool {
        let is_long = self.execution.programs.text().len() > SMALL_ANSWER_BYTES;
        if is_long && !self.front.sessions.has_room_for_long_answers() {
            self.front.sessions.at_mut(id).pause.wants_much();
            return false;
        }
        let (shard, text) = (self.execution.setup.shard(), self.execution.programs.text());
        let out = self.front.sessions.at_mut(id).output.pieces.written();
        write_info_reply(out, header.request_id, shard, text);
        self.note(id, Lsn(0), 0, outbox);
        true
    }
}
