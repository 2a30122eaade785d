//! SCRIPT: a script runs on the keys of its slot, at a node alone on those of its shard. What it
//! changes becomes one item of APPLY, which runs at the same instant and carries the reply of the
//! script.

use std::cell::Cell;

use penstock_net::pieces::Pieces;
use penstock_net::refusal::Refusal;
use penstock_net::reply::{ReplyHead, ReplyItem};
use penstock_net::request::Version;
use penstock_net::resp::{NO_SCRIPT, Protocol, Replies, Staged, judge_script, protocol_of};
use penstock_net::script::{
    SCRIPT, SCRIPT_CLAIMS_MAX, SCRIPT_RUNS_MAX, ScriptName, ScriptReach, ScriptRequest,
    keep_to_declared_keys, note_claim, note_run, note_slot, note_spent,
};
use penstock_net::slot::slot_of;
use penstock_net::status::Status;
use penstock_storage::io::Blocks;
use penstock_storage::place::Lsn;
use penstock_storage::planted::{Bug, is_planted};
use penstock_storage::version::partition_of;

use crate::execution::answer_bytes::Outgrown;
use crate::execution::operation::{Disposition, Operation};
use crate::execution::verbs::Cold;
use crate::execution::verbs::fire::Fired;
use crate::execution::verbs::script::{
    self, ASKED, NO_MESSAGES, NewestRead, RanScript, Reach, Running, Wants, too_much_of,
};
use crate::now::Now;
use crate::publisher::{Messages, NoRoom, ScriptAnswer};
use crate::requests::parking::{Order, Origin};
use crate::scripts::{ScriptEnd, Scripts};
use crate::sessions::SMALL_ANSWER_BYTES;
use crate::shard::Shard;
use crate::shard::joint::JointStep;

/// Keys that a script meets whose effects run before it, at most; then it waits for the next turn.
const FIRED_MAX: usize = 4;
/// Bytes of a reply that are written in the time of a step.
const REPLY_BYTES_PER_STEP: usize = 64;
/// Steps in which a command reads and writes a byte of a value with members.
const STEPS_PER_MEMBERS_BYTE: usize = 3;

/// What became of a script.
enum Outcome {
    /// It is done with for now.
    Done(Disposition),
    /// It has named its first key, which is of this slot: it runs again where that is.
    IsOf(u16),
}

impl<P: Blocks> Shard<P> {
    /// Runs, parks or mails a script.
    pub(super) fn script_item(
        &mut self,
        now: Now,
        operation: &Operation<'_>,
        pieces: &mut Pieces,
    ) -> Disposition {
        let out = pieces.written();
        let request = match ScriptRequest::read(operation.item) {
            Ok(request) if self.is_of_process(operation) => request,
            Ok(_) => {
                let refusal = Refusal::Operation(SCRIPT);
                return self.execution.refuse_unreadable(operation, refusal, out);
            }
            Err(refusal) => return self.execution.refuse_unreadable(operation, refusal, out),
        };
        if let Some(rights) = operation.rights {
            if let Err(denied) = judge_script(rights, &request) {
                return self.deny(ASKED, operation, &denied, out);
            }
            if is_of_text(&request) && !request.uses_declared_keys_alone() {
                let mut item = operation.item.to_vec();
                keep_to_declared_keys(&mut item);
                return self.script_item(now, &with_item(operation, &item), pieces);
            }
        }
        if let Some((status, message)) = self.execution.comes_too_late(now, operation.deadline_us) {
            return self
                .execution
                .refuse_item(ASKED, operation, status, &message, out);
        }
        if let Some(slot) = request.slot() {
            let owner = self.execution.setup.owner(slot);
            if owner != self.execution.setup.shard() {
                return self.mail_request(owner, operation, slot, true, out);
            }
            let (uses, parking) = (slots_of(&request, slot), &self.execution.requests.parking);
            let Operation {
                origin, address, ..
            } = operation;
            if let Some(cold) = parking.behind(*origin, address, uses, operation.order) {
                return self.park_script(cold, uses, operation, slot, out);
            }
            let linked = self.execution.linked.as_deref();
            if let Some(elsewhere) = linked.and_then(|linked| linked.elsewhere(partition_of(slot)))
            {
                return self
                    .execution
                    .refuse_elsewhere(ASKED, operation, &elsewhere, out);
            }
            let (linked, setup) = (self.execution.linked.is_some(), &self.execution.setup);
            let reach = Reach::of(linked, setup);
            let may_join = reach.may_join(&request);
            let mut judged = request.keys().map(|key| reach.judge(slot, slot_of(key)));
            if let Some(refusal) = judged.find_map(Result::err) {
                if may_join {
                    return JointStep(self).begin_joint(now, operation, slot, out);
                }
                let status = refusal.status();
                return self
                    .execution
                    .refuse_item(ASKED, operation, status, &refusal, out);
            }
        }
        let mut scripts = self.execution.scripts.take();
        let outcome = self.run_script(now, operation, &request, &mut scripts, pieces);
        self.execution.scripts = scripts;
        match outcome {
            Outcome::Done(disposition) => disposition,
            Outcome::IsOf(slot) => {
                let mut item = operation.item.to_vec();
                note_slot(&mut item, slot);
                self.script_item(now, &with_item(operation, &item), pieces)
            }
        }
    }

    /// Whether the item comes from this process: the port for clients of Redis, or another shard
    /// of it. A SCRIPT and a FLUSH do.
    pub(super) fn is_of_process(&self, operation: &Operation<'_>) -> bool {
        let session = operation.address.session;
        operation.origin != Origin::Here || !self.front.sessions.is_of_wire(session)
    }

    /// Bytes of the reply, at most. What a short EXEC can make long is bounded by what is left for
    /// replies; a script or one command replies as much as a GET at most.
    pub(super) fn reply_bytes_max(
        &self,
        request: &ScriptRequest<'_>,
        value_bytes_max: usize,
    ) -> usize {
        let bytes_max = request.reply_bytes_max(value_bytes_max);
        match request.script() {
            ScriptName::Text(_) | ScriptName::Digest(_) | ScriptName::Command => bytes_max,
            ScriptName::Commands => {
                let room = self.front.sessions.room_for_replies();
                bytes_max.min(room.max(SMALL_ANSWER_BYTES))
            }
        }
    }

    /// Runs a script whose keys are of this shard, with the effects before it that are due.
    fn run_script(
        &mut self,
        now: Now,
        operation: &Operation<'_>,
        request: &ScriptRequest<'_>,
        scripts: &mut Option<Box<dyn Scripts>>,
        pieces: &mut Pieces,
    ) -> Outcome {
        let mut reply = self.execution.script_reply.take();
        let mut fired = 0;
        let ran = loop {
            let value_bytes_max = self.execution.setup.limits().value_bytes_max as usize;
            let running = Running {
                request,
                reach: Reach::of(self.execution.linked.is_some(), &self.execution.setup),
                value_bytes_max,
                reply_bytes_max: self.reply_bytes_max(request, value_bytes_max),
                publisher: self.execution.publications.publisher(),
                joint: &self.execution.joint,
            };
            let (store, hash) = (&self.execution.store, self.execution.setup.hash());
            let scripts = scripts.as_mut().map(|it| &mut **it as &mut dyn Scripts);
            let ran = script::run(scripts, store, hash, running, &mut reply);
            let Some(Wants::Fired { home, id }) = ran.wants else {
                break Some(ran);
            };
            fired += 1;
            match self.execution.fire_first(now, home, id) {
                Fired::Ran | Fired::Failed(_) if fired <= FIRED_MAX => reply.clear(),
                Fired::Full(_) => {
                    let out = pieces.written();
                    let refused = self.execution.refuse_unfired(ASKED, operation, out);
                    return Outcome::Done(refused);
                }
                _ => break None,
            }
        };
        let outcome = match ran {
            None => Outcome::Done(Disposition::Postponed),
            Some(RanScript {
                wants: Some(Wants::Slot(slot)),
                ..
            }) => Outcome::IsOf(slot),
            Some(ran) => {
                let bytes = run_bytes(operation.item, &reply, &ran.staged);
                self.execution.slice.ran(bytes, ran.spent);
                ran.touch(&mut self.execution.store);
                self.note_script(operation, &ran);
                let ended = self.end_script(now, operation, request, &ran, &mut reply, pieces);
                Outcome::Done(ended)
            }
        };
        self.execution.script_reply.keep(reply);
        outcome
    }

    /// Notes what a script has read, and which of that expires. What it changes is noted behind it.
    fn note_script(&mut self, operation: &Operation<'_>, ran: &RanScript) {
        let execution = &mut self.execution;
        let data = execution.store.data_mut();
        if data.changed_keys().is_none() || is_planted(Bug::ScriptReadUntracked) {
            return;
        }
        // The port has noted what commands read. A script may stand behind MULTI.
        let session = operation.address.session;
        let writer = operation.origin.writer(execution.setup.shard(), session);
        let reads = ran.staged.script_reads();
        execution.tracking.read_by_script(writer, reads);
        for id in ran.used() {
            data.note_cell_shown(*id);
        }
    }

    /// Answers a script that has run to its end, or has it wait for what it wants.
    fn end_script(
        &mut self,
        now: Now,
        operation: &Operation<'_>,
        request: &ScriptRequest<'_>,
        ran: &RanScript,
        reply: &mut Vec<u8>,
        pieces: &mut Pieces,
    ) -> Disposition {
        let protocol = protocol_of(request);
        let changed = ran.staged.changed();
        let mut keeps = ran.end == ScriptEnd::Answered;
        match ran.wants {
            Some(Wants::Cold(cold)) => match too_many_runs(request, ran, Some(cold)) {
                Some(text) => fail_whole(reply, protocol, &text),
                None => return self.fetch_for_script(operation, ran, cold, pieces),
            },
            Some(Wants::Slot(_) | Wants::Fired { .. }) => unreachable!("the caller has done it"),
            Some(Wants::Shards) => match too_many_runs(request, ran, None) {
                Some(text) => fail_whole(reply, protocol, &text),
                None => return self.join_script(now, operation, ran, pieces),
            },
            Some(Wants::Elsewhere(refusal)) => {
                let (status, out) = (refusal.status(), pieces.written());
                return self
                    .execution
                    .refuse_item(ASKED, operation, status, &refusal, out);
            }
            None if keeps => {
                if let Some(text) = too_much_of(&ran.staged) {
                    keeps = false;
                    fail_whole(reply, protocol, &text);
                }
            }
            None if ran.end == ScriptEnd::Unknown => {
                Replies::new(reply, protocol).error(NO_SCRIPT);
            }
            None => {}
        }
        let bytes = reply.len();
        if bytes > SMALL_ANSWER_BYTES
            && !self.has_room_for_more(operation.origin, operation.address.session)
        {
            // It runs outside its frame, and what was kept free for it is less.
            let (outgrown, out) = (Outgrown(bytes), pieces.written());
            let execution = &mut self.execution;
            return execution.refuse_item(ASKED, operation, Status::Busy, &outgrown, out);
        }
        let Ok(messages) = self.messages_of(&ran.staged, keeps) else {
            let (status, out) = (Status::Busy, pieces.written());
            return self
                .execution
                .refuse_item(ASKED, operation, status, &NO_MESSAGES, out);
        };
        let newest = ran
            .newest
            .as_ref()
            .filter(|_| !is_planted(Bug::ScriptUngated));
        let waits = newest.filter(|it| it.lsn > Lsn(0) || self.execution.linked.is_some());
        if waits.is_none() && !(keeps && changed > 0) {
            // It has shown nothing that a record has made, but perhaps what a flush took away.
            self.execution.stats.answer(ASKED, Status::Ok);
            let item = operation.address.item;
            ReplyHead::new(Status::Ok, item, operation.level, Version::default())
                .write(pieces.written(), reply);
            let gate = self.execution.gate(operation.level, Lsn(0));
            self.publish(messages, gate);
            return Disposition::Answered(gate);
        }
        // The record of a change stands behind all that was read.
        let newest = waits.filter(|_| !keeps || changed == 0);
        let newest = newest.map(NewestRead::seen);
        let mut item = std::mem::take(&mut self.execution.script_item);
        item.clear();
        if keeps {
            ran.staged.write_apply(newest, &mut item);
        } else {
            let newest = newest.expect("an answer that waits for nothing has been given");
            newest.write_guard(&mut item);
        }
        let messages = Cell::new(messages);
        let apply = Operation {
            rights: None,
            program: None,
            answer: Some(ScriptAnswer::new(reply, &messages)),
            ..with_item(operation, &item)
        };
        let from = pieces.written().len();
        let disposition = self.apply_item(now, &apply, pieces);
        // An answer that waits for other nodes has taken them.
        if let Disposition::Answered(gate) = disposition
            && is_done(&pieces.written()[from..])
        {
            self.publish(messages.take(), gate);
        }
        self.execution.script_item = item;
        disposition
    }

    /// The messages of a script, if it keeps what it has staged.
    pub(super) fn messages_of(&self, staged: &Staged, keeps: bool) -> Result<Messages, NoRoom> {
        let staged = match keeps {
            true => staged.messages(),
            false => &[],
        };
        self.execution.publications.take(staged)
    }

    /// Messages leave when the log is durable up to `gate`.
    pub(super) fn publish(&mut self, messages: Messages, gate: Lsn) {
        let durable = self.execution.store.log().durable();
        self.execution.publications.add(messages, gate, durable);
    }

    /// Has a script that may use these slots wait for a key.
    fn park_script(
        &mut self,
        cold: Cold,
        uses: Order,
        operation: &Operation<'_>,
        slot: u16,
        out: &mut Vec<u8>,
    ) -> Disposition {
        let parked = operation.parked(slot, SMALL_ANSWER_BYTES);
        self.park_in_order(cold, uses, operation, parked, out)
    }

    /// Has a script run on keys of several shards, because it has met one of another shard.
    fn join_script(
        &mut self,
        now: Now,
        operation: &Operation<'_>,
        ran: &RanScript,
        pieces: &mut Pieces,
    ) -> Disposition {
        let mut item = operation.item.to_vec();
        note_spent(&mut item, ran.time_us, ran.spent);
        let request = ScriptRequest::read(&item).expect("it was read before");
        let slot = request.slot().expect("it has used a key");
        let operation = &with_item(operation, &item);
        JointStep(self).begin_joint(now, operation, slot, pieces.written())
    }

    /// Has a script wait for a key that it has met. The other keys that it names are read
    /// meanwhile.
    fn fetch_for_script(
        &mut self,
        operation: &Operation<'_>,
        ran: &RanScript,
        cold: Cold,
        pieces: &mut Pieces,
    ) -> Disposition {
        let mut item = operation.item.to_vec();
        match cold.is_claim() {
            true => note_claim(&mut item, ran.time_us, ran.spent),
            false => note_run(&mut item, ran.time_us, ran.spent),
        }
        let operation = &with_item(operation, &item);
        let request = ScriptRequest::read(&item).expect("it was read before");
        let execution = &mut self.execution;
        if cold.is_claim() {
            let uses = slots_of(&request, cold.slot);
            return self.park_script(cold, uses, operation, cold.slot, pieces.written());
        }
        let (homes, colds) = script::named_keys(&execution.store, execution.setup.hash(), &request);
        let parking = &mut execution.requests.parking;
        for cold in &colds {
            if parking.may_read_ahead() {
                parking.fetch(*cold);
            }
        }
        // All that it names comes by reads that go on side by side, so it waits for the last one.
        let is_named = colds.iter().any(|named| named.home() == cold.home());
        let awaited = colds.last().filter(|_| is_named).copied().unwrap_or(cold);
        let (slot, uses) = (cold.slot, slots_of(&request, cold.slot));
        let disposition = self.park_script(awaited, uses, operation, slot, pieces.written());
        if matches!(disposition, Disposition::Later) {
            self.execution.pin_homes(operation, uses, |hash| {
                let met = ran.staged.keys().map(|key| hash.home_of(key));
                met.chain(homes).collect()
            });
        }
        disposition
    }
}

/// Replies this error alone: an EXEC may have begun its reply.
fn fail_whole(reply: &mut Vec<u8>, protocol: Protocol, text: &str) {
    reply.clear();
    Replies::new(reply, protocol).error(text.as_bytes());
}

/// Bytes that a slice counts for a run beside the steps of its scripts.
pub(super) fn run_bytes(item: &[u8], reply: &[u8], staged: &Staged) -> usize {
    let of_members = staged.members_bytes() * STEPS_PER_MEMBERS_BYTE;
    item.len() + reply.len() / REPLY_BYTES_PER_STEP + of_members
}

/// The slots that a script with a key of this slot may use.
fn slots_of(request: &ScriptRequest<'_>, slot: u16) -> Order {
    match request.reach() {
        ScriptReach::Slot => Order::Of(slot),
        ScriptReach::Node | ScriptReach::Shards => Order::OfAll,
    }
}

/// Why a script does not run again that has met a key of another shard, or one that is cold or
/// claimed, if it does not.
fn too_many_runs(
    request: &ScriptRequest<'_>,
    ran: &RanScript,
    cold: Option<Cold>,
) -> Option<String> {
    let (runs, claims) = (request.runs(), request.claims());
    match cold.map(|cold| cold.is_claim()) {
        Some(false) if runs + 1 >= SCRIPT_RUNS_MAX => {
            return Some(format!(
                "TRYAGAIN nothing was executed: the script has met a key that is not in memory in \
                 each of {SCRIPT_RUNS_MAX} runs"
            ));
        }
        Some(true) if claims == SCRIPT_CLAIMS_MAX => {
            return Some(format!(
                "TRYAGAIN nothing was executed: in {claims} runs the script has met a key that a \
                 change over several shards had"
            ));
        }
        _ => {}
    }
    let (steps, us) = (ran.spent.steps, ran.spent.us);
    let others = match claims > 0 || cold.is_none_or(|cold| cold.is_claim()) {
        true => ", or that another shard or change had",
        false => "",
    };
    let runs = u16::from(runs) + u16::from(claims) + 1;
    (!ran.may_run_again).then(|| {
        format!(
            "TRYAGAIN nothing was executed: the script has taken {steps} steps and {us} \
             microseconds in {runs} runs, each of which has met a key that is not in \
             memory{others}"
        )
    })
}

/// Whether an answer says that what was asked for is done.
fn is_done(answer: &[u8]) -> bool {
    ReplyItem::read(answer).is_ok_and(|item| item.head.status == Status::Ok)
}

/// Whether it is a script, and no commands.
fn is_of_text(request: &ScriptRequest<'_>) -> bool {
    matches!(
        request.script(),
        ScriptName::Text(_) | ScriptName::Digest(_)
    )
}

/// The same operation with another form of its item.
fn with_item<'a>(operation: &Operation<'a>, item: &'a [u8]) -> Operation<'a> {
    Operation {
        item,
        known: None,
        ..*operation
    }
}
