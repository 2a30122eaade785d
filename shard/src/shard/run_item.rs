//! RUN: an item becomes one of APPLY, which then runs, parks or is mailed as any other.

use std::sync::Arc;

use penstock_net::frame::Header;
use penstock_net::pieces::Pieces;
use penstock_net::program::{RunRequest, ServedSchema};
use penstock_net::refusal::{Refusal, ShownName};
use penstock_net::reply::write_info_reply;
use penstock_net::request::Verb;
use penstock_net::slot::slot_of;
use penstock_storage::io::Blocks;
use penstock_storage::place::Lsn;
use penstock_storage::version::partition_of;

use crate::answers::Asked;
use crate::mail::SessionId;
use crate::sessions::SMALL_ANSWER_BYTES;

use super::operation::{Operation, Step};
use super::{Now, Outbox, Shard};

impl<P: Blocks> Shard<P> {
    /// Runs the programs of this schema from now on.
    pub fn serve_schema(&mut self, schema: Arc<ServedSchema>) {
        self.programs.replace(schema);
    }

    /// Takes a RUN in. What waits or goes to another shard is the item of APPLY.
    pub(super) fn run_item(
        &mut self,
        now: Now,
        operation: &Operation<'_>,
        pieces: &mut Pieces,
    ) -> Step {
        let name = match operation.rights {
            Some(_) => RunRequest::read(operation.item)
                .ok()
                .and_then(|run| self.programs.name_of(&run)),
            None => None,
        };
        let item = match self.programs.take(operation.item) {
            Ok(item) => item,
            Err(refusal) => return self.refuse_run(now, operation, refusal, pieces.written()),
        };
        let apply = Operation {
            item: &item,
            known: None,
            program: name.as_ref().map(ShownName::as_str),
            ..*operation
        };
        let step = self.apply_item(now, &apply, pieces);
        self.programs.give(item);
        step
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
    ) -> Step {
        let asked = Asked::Verb(Verb::Apply);
        if let (Some(rights), Ok(run)) = (operation.rights, RunRequest::read(operation.item)) {
            let name = self.programs.name_of(&run);
            let name = name.as_ref().map(ShownName::as_str);
            if let Err(denied) = rights.judge_run(name, run.keys()) {
                return self.deny(asked, operation, &denied, out);
            }
        }
        let run = match (refusal, RunRequest::read(operation.item)) {
            (Refusal::ProgramUnknown { .. }, Ok(run)) => run,
            _ => return self.refuse_unreadable(operation, refusal, out),
        };
        if let Some((status, message)) = self.comes_too_late(now, operation.deadline_us) {
            return self.refuse_item(asked, operation, status, &message, out);
        }
        let slot = slot_of(run.key());
        let elsewhere = match &self.linked {
            Some(linked) if self.setup.owns(slot) => linked.elsewhere(partition_of(slot)),
            _ => None,
        };
        match elsewhere {
            Some(elsewhere) => self.refuse_elsewhere(asked, operation, &elsewhere, out),
            None => self.refuse_item(asked, operation, refusal.status(), &refusal, out),
        }
    }

    /// Answers an INFO that asks for the schema. `false` if there is no room for a long one.
    pub(super) fn tell_schema(
        &mut self,
        id: SessionId,
        header: &Header,
        outbox: &mut Outbox<P::Block>,
    ) -> bool {
        let is_long = self.programs.text().len() > SMALL_ANSWER_BYTES;
        if is_long && self.sessions.room_for_replies() == 0 {
            self.sessions.at_mut(id).asks_for_much = true;
            return false;
        }
        let (shard, text) = (self.setup.shard(), self.programs.text());
        let out = self.sessions.at_mut(id).output.pieces.written();
        write_info_reply(out, header.request_id, shard, text);
        self.note(id, Lsn(0), 0, outbox);
        true
    }
}
