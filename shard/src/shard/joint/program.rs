//! Programs of KV.APPLY and KV.RUN whose keys are of several slots: one change, as a script of
//! several shards is. Its token is a key of its own, which is left with the answer.

use penstock_net::apply::ApplyRequest;
use penstock_net::level::AckLevel;
use penstock_net::refusal::Refusal;
use penstock_net::reply::REPLY_ITEM_BYTES;
use penstock_net::slot::slot_of;
use penstock_net::status::Status;
use penstock_storage::io::Blocks;
use penstock_storage::place::Lsn;
use penstock_storage::store::{NoRoom, PartNeeds};
use penstock_storage::system_key::REDO_KEY_BYTES;

use crate::execution::operation::{Asks, Operation};
use crate::execution::verbs::copied_program::{self, ProgramRan, missing_since};
use crate::execution::verbs::token::{self, NewToken, TokenVerdict};
use crate::execution::verbs::{Context, Ran as Answered, Spread};
use crate::joint::led::Answer;
use crate::joint::message::LeftKey;
use crate::now::Now;
use crate::setup::Setup;
use crate::shard::Shard;

use super::JointStep;
use super::leading::{Ran, Refused, check_redo_bytes};

impl<P: Blocks> Shard<P> {
    /// Whether a program becomes a change of several slots, or why it does not. `None`: its keys
    /// are of one slot, or it is judged where it runs.
    pub(in crate::shard) fn joins_program(
        &self,
        operation: &Operation<'_>,
        asks: Asks<'_>,
        slot: u16,
    ) -> Option<Result<(), Refusal>> {
        let Asks::Program(request) = asks else {
            return None;
        };
        let takes = self.execution.setup.config().takes_several_shards;
        if !takes || request.key_count() == 1 || operation.answer.is_some() {
            return None;
        }
        let refusal = asks.crosses_slots(slot)?;
        // What a connection of the own protocol has under way keeps its order by slots.
        let may_join = request.terms().is_none()
            && request.effects().next().is_none()
            && self.is_of_process(operation);
        Some(if may_join { Ok(()) } else { Err(refusal) })
    }
}

impl<P: Blocks> JointStep<'_, P> {
    /// Claims the keys of a program.
    pub(super) fn begin_program(&mut self, at: usize, item: &[u8]) {
        let request = self.program_of(item);
        let since: Vec<_> = missing_since(&request).collect();
        let names = request.keys().map(|key| {
            let since = since.iter().find(|(known, _)| *known == key);
            (Box::from(key), since.map(|(_, since)| *since))
        });
        let names: Vec<_> = names.collect();
        self.claim_names(at, names);
    }

    fn program_of<'i>(&self, item: &'i [u8]) -> ApplyRequest<'i> {
        let value_bytes_max = self.0.execution.setup.limits().value_bytes_max;
        ApplyRequest::read(item, value_bytes_max).expect("it was read before")
    }

    /// Runs a program on its copies, unless its token is known.
    pub(super) fn run_program(&mut self, now: Now, at: usize) -> Ran {
        let parked = self.0.execution.joint.led[at].parked.as_ref();
        let parked = parked.expect("it is not answered");
        let level = self.0.execution.reachable(parked.level);
        let asker = (parked.address.item, level.max(AckLevel::Disk));
        let item = parked.item.clone();
        let request = self.program_of(&item);
        let mut out = Vec::new();
        let new = match request.token() {
            None => None,
            Some(token) => {
                let Shard { execution, .. } = &mut *self.0;
                let context = context_of(&execution.setup, asker, now, &request);
                match token::judge(&mut execution.store, &context, token, &item, &mut out) {
                    TokenVerdict::New(new) => Some(new),
                    TokenVerdict::Ran(ran) => return self.known(ran, out),
                }
            }
        };
        let bytes_max = self.redo_bytes_max();
        let execution = &self.0.execution;
        let context = context_of(&execution.setup, asker, now, &request);
        let copies = &execution.joint.led[at].copies;
        let bounds = (execution.store.data().clock(), bytes_max);
        let ran = copied_program::run(&context, &request, copies, bounds, &mut out);
        self.0.execution.slice.ran(item.len(), Default::default());
        match ran {
            ProgramRan::Due => Ran::Anew,
            ProgramRan::Denied(status) => Ran::Ended(Answer::of_program(out, status, Lsn(0))),
            ProgramRan::Left(mut left) => {
                if let Some(new) = new {
                    match self.token_left(&new, &out) {
                        Ok(token) => left.push(token),
                        Err(NoRoom::Wait) => return Ran::Rests,
                        Err(_) => return Ran::Refused(no_room_for_token()),
                    }
                }
                let parts: usize = left.iter().map(LeftKey::redo_bytes).sum();
                let bytes = PartNeeds::record_bytes(REDO_KEY_BYTES, 0) + parts;
                if let Err(refused) = check_redo_bytes(bytes, bytes_max) {
                    return Ran::Refused(refused);
                }
                let setup = &self.0.execution.setup;
                let led = &mut self.0.execution.joint.led[at];
                for key in left {
                    led.leaves(setup.owner(slot_of(&key.key)), key);
                }
                Ran::Ended(Answer::of_program(out, Status::Ok, Lsn(0)))
            }
        }
    }

    /// What is left of a new token, whose program is answered by this item.
    fn token_left(&self, new: &NewToken, item: &[u8]) -> Result<LeftKey, NoRoom> {
        new.left(&self.0.execution.store, &item[REPLY_ITEM_BYTES..])
    }

    /// What becomes of a program whose token is not new, or must be read.
    fn known(&mut self, ran: Answered, out: Vec<u8>) -> Ran {
        match ran {
            Answered::Answered { gate, status } => {
                if status == Status::Ok {
                    self.0.execution.stats.replay_token();
                }
                Ran::Ended(Answer::of_program(out, status, gate))
            }
            Answered::Cold(cold) if self.0.execution.joint.take_unread(cold.home()) => {
                let text = "the token of this change cannot be read";
                Ran::Refused((Status::Io, text.to_string()))
            }
            Answered::Cold(cold) => Ran::Reads(cold),
            Answered::Busy | Answered::Postponed => Ran::Rests,
            Answered::OtherCold(_) | Answered::Unfired { .. } => {
                unreachable!("a token is one key, and has no effects")
            }
        }
    }
}

fn no_room_for_token() -> Refused {
    let text = "no room for the token of this change: the disk or memory is full";
    (Status::Full, text.to_string())
}

/// What the answer of a program is made by: of an item of this number, at this level.
fn context_of<'a>(
    setup: &'a Setup,
    (item, level): (u16, AckLevel),
    now: Now,
    request: &ApplyRequest<'_>,
) -> Context<'a> {
    Context {
        now_us: now.us,
        hash: setup.hash(),
        slot: slot_of(request.key()),
        key_hash: setup.hash().of(request.key()),
        item,
        level,
        memory_max: setup.config().memory_max,
        spare_failure: None,
        ttl_ms: 0,
        brought: None,
        standing: None,
        shared_bytes_min: usize::MAX,
        answers_repeats: false,
        hides_unfired: false,
        token: None,
        answer: None,
        spread: Spread::Slots,
    }
}
