//! The way of one item: run here, parked, sent to another shard, or refused.

use penstock_net::apply::ApplyRequest;
use penstock_net::item::ItemForm;
use penstock_net::limits::FEW_KEYS_MAX;
use penstock_net::pieces::Pieces;
use penstock_net::refusal::Refusal;
use penstock_net::request::{Extra, Request, Verb};
use penstock_net::slot::slot_of;
use penstock_net::status::Status;
use penstock_storage::if_planted;
use penstock_storage::io::Blocks;
use penstock_storage::key_home::KeyHome;
use penstock_storage::place::Lsn;
use penstock_storage::planted::{Bug, is_planted};
use penstock_storage::store::Found;
use penstock_storage::version::{PARTITIONS, SLOTS, partition_of};

use crate::accounts::answers::Asked;
use crate::execution::answer_bytes::{Outgrown, answer_bytes};
use crate::execution::operation::{Asks, Disposition, Leave, Operation, Own, obey};
use crate::execution::verbs::{Cold, Context, Ran, Spread, refused};
use crate::joint::Joint;
use crate::now::Now;
use crate::requests::parking::Order;
use crate::shard::Shard;
use crate::shard::joint::JointStep;

impl<P: Blocks> Shard<P> {
    /// Runs, parks or mails one item; a reply item is written at the end of `pieces`.
    #[inline]
    pub(super) fn operation(
        &mut self,
        now: Now,
        operation: &Operation<'_>,
        pieces: &mut Pieces,
    ) -> Disposition {
        self.note_writer(operation.origin, operation.address.session);
        match ItemForm::of(operation.item) {
            ItemForm::Common => {}
            ItemForm::Apply => return self.apply_item(now, operation, pieces),
            ItemForm::Run => return self.run_item(now, operation, pieces),
            ItemForm::Scan => return self.begin_scan(now, operation, pieces.written()),
            ItemForm::Ping => return self.execution.ping_item(now, operation, pieces.written()),
            ItemForm::Script => return self.script_item(now, operation, pieces),
        }
        match Request::read(
            operation.item,
            self.execution.setup.limits().value_bytes_max,
        ) {
            Ok(request) if request.verb == Verb::UpdateIf => {
                let program = ApplyRequest::of_update_if(&request);
                self.program_item(now, operation, &program, pieces)
            }
            Ok(request) if request.verb == Verb::Flush && !self.is_of_process(operation) => {
                let refusal = Refusal::Operation(Verb::Flush as u8);
                let out = pieces.written();
                self.execution.refuse_unreadable(operation, refusal, out)
            }
            Ok(request) => self.item_of_key(now, operation, Asks::Item(&request), pieces),
            Err(refusal) => self
                .execution
                .refuse_unreadable(operation, refusal, pieces.written()),
        }
    }

    /// Takes an APPLY in.
    pub(super) fn apply_item(
        &mut self,
        now: Now,
        operation: &Operation<'_>,
        pieces: &mut Pieces,
    ) -> Disposition {
        let value_bytes_max = self.execution.setup.limits().value_bytes_max;
        // What has the answer of a script was written by this shard.
        let request = match operation.answer {
            Some(_) => ApplyRequest::read_own(operation.item, value_bytes_max),
            None => ApplyRequest::read(operation.item, value_bytes_max),
        };
        match request {
            Ok(request)
                if request.key_count() > FEW_KEYS_MAX
                    || operation.answer.is_some() && request.gives_members() =>
            {
                self.program_of_cluster(now, operation, &request, pieces)
            }
            Ok(request) => self.program_item(now, operation, &request, pieces),
            Err(refusal) => self
                .execution
                .refuse_unreadable(operation, refusal, pieces.written()),
        }
    }

    /// The same of a program that not every node of a cluster may understand: its record may have
    /// many parts, or values with members.
    fn program_of_cluster(
        &mut self,
        now: Now,
        operation: &Operation<'_>,
        request: &ApplyRequest<'_>,
        pieces: &mut Pieces,
    ) -> Disposition {
        let slot = slot_of(request.key());
        let refusal = match &self.execution.linked {
            Some(linked) if self.execution.setup.owns(slot) => {
                let partition = partition_of(slot);
                let many = request.key_count() > FEW_KEYS_MAX;
                let many = many.then(|| linked.refuses_many_keys(partition)).flatten();
                let gives = operation.answer.is_some() && request.gives_members();
                many.or_else(|| gives.then(|| linked.refuses_members(partition)).flatten())
            }
            _ => None,
        };
        match refusal {
            Some(text) => {
                let (asked, status) = (Asked::Verb(Verb::Apply), Status::Unsupported);
                self.execution
                    .refuse_item(asked, operation, status, &text, pieces.written())
            }
            None => self.program_item(now, operation, request, pieces),
        }
    }

    /// Runs, parks or mails a program.
    fn program_item(
        &mut self,
        now: Now,
        operation: &Operation<'_>,
        request: &ApplyRequest<'_>,
        pieces: &mut Pieces,
    ) -> Disposition {
        self.item_of_key(now, operation, Asks::Program(request), pieces)
    }

    /// Runs, parks or mails an item that was read.
    #[inline(always)]
    fn item_of_key<'a>(
        &mut self,
        now: Now,
        operation: &Operation<'a>,
        asks: Asks<'a>,
        pieces: &mut Pieces,
    ) -> Disposition {
        let out = pieces.written();
        let asked = Asked::Verb(asks.verb());
        if let Some(rights) = operation.rights
            && let Err(denied) = asks.judge(rights, operation.program)
        {
            return self.deny(asked, operation, &denied, out);
        }
        let known = operation
            .known
            .filter(|known| std::ptr::eq(known.key, asks.key()) && asks.verb() != Verb::Keyspace);
        let slot = known.map_or_else(|| asks.slot(), |known| known.slot);
        if let Some((status, message)) = self.execution.comes_too_late(now, operation.deadline_us) {
            return self
                .execution
                .refuse_item(asked, operation, status, &message, out);
        }
        if asks.verb() == Verb::Keyspace {
            self.front
                .audit_keyspace(operation, asks.extra(), asks.key());
        }
        let joins = self.joins_program(operation, asks, slot);
        if let Some(Err(refusal)) = joins {
            let status = refusal.status();
            return self
                .execution
                .refuse_item(asked, operation, status, &refusal, out);
        }
        let owner = self.execution.setup.owner(slot);
        if owner != self.execution.setup.shard() {
            let is_read = asked.is_read() || asks.may_show_value();
            return self.mail_request(owner, operation, slot, is_read, out);
        }
        if joins.is_some() {
            return JointStep(self).begin_joint(now, operation, slot, out);
        }
        let own = Own {
            operation,
            asks,
            asked,
            slot,
            hash: known.map_or_else(
                || self.execution.setup.hash().of(asks.key()),
                |known| known.hash,
            ),
        };
        if !self.execution.requests.parking.is_empty()
            && let Some(cold) = self.execution.requests.parking.behind(
                operation.origin,
                &operation.address,
                Order::Of(slot),
                operation.order,
            )
        {
            return self.queue_behind(&own, cold, out);
        }
        if self.execution.joint.holds_any()
            && let Some(claim) = claim_before(&mut self.execution.joint, &own)
        {
            return self.queue_behind(&own, claim, out);
        }
        match asks.extra() {
            Extra::Keyspace(action) => self.execution.keyspace_item(now, &own, action, out),
            Extra::Flush => self.execution.flush_item(now, &own, out),
            _ => self.run_own(now, &own, pieces),
        }
    }

    /// Has an item wait behind an earlier one of its connection and slot. Its keys are read
    /// meanwhile.
    fn queue_behind(&mut self, own: &Own<'_>, cold: Cold, out: &mut Vec<u8>) -> Disposition {
        let (slot, hash) = (own.slot, own.hash);
        let reserved = match own.asks {
            Asks::Item(request) => {
                let found = self.execution.store.keys().find(slot, hash, request.key);
                if let Found::Cold(place) = found
                    && !self.execution.requests.parking.is_full()
                {
                    self.execution.requests.parking.fetch(Cold {
                        slot,
                        hash,
                        place,
                        version: None,
                    });
                }
                answer_bytes(request, self.execution.value_bytes(found))
            }
            Asks::Program(request) => {
                self.execution.fetch_all(slot, request);
                0
            }
        };
        self.park(cold, own.operation, slot, reserved, out)
    }

    /// Runs an item that nothing stands before.
    #[inline]
    fn run_own(&mut self, now: Now, own: &Own<'_>, pieces: &mut Pieces) -> Disposition {
        let operation = own.operation;
        let (mut level, mut ttl_ms) = (operation.level, 0);
        if own.asks.may_be_ruled(self.execution.store.keyspaces()) {
            match obey(&self.execution.store, own, level) {
                Ok(rules) => (level, ttl_ms) = (self.execution.reachable(rules.0), rules.1),
                Err(refusal) => {
                    let (status, out) = (refusal.status(), pieces.written());
                    return self
                        .execution
                        .refuse_item(own.asked, operation, status, &refusal, out);
                }
            }
        }
        let is_plain =
            self.execution.linked.is_none() && !matches!(own.asks.extra(), Extra::Member(_));
        let leave = match is_plain {
            true => Leave {
                level,
                standing: None,
                is_of_member: false,
            },
            false => match self.execution.leave_of(now, own, level, pieces.written()) {
                Ok(leave) => leave,
                Err(disposition) => return disposition,
            },
        };
        let from = pieces.len();
        let spread = own.spread_at(self.execution.linked.is_some());
        let mut hides_unfired = leave.is_of_member;
        // Each round but the last ends a key of the operation.
        let ran = loop {
            let context = Context {
                now_us: now.us,
                hash: self.execution.setup.hash(),
                slot: own.slot,
                key_hash: own.hash,
                item: operation.address.item,
                level: leave.level,
                memory_max: self.execution.setup.config().memory_max,
                spare_failure: self.execution.files.failure(),
                ttl_ms,
                brought: operation.brought,
                standing: leave.standing,
                shared_bytes_min: self.execution.setup.config().shared_bytes_min,
                answers_repeats: self.execution.setup.answers_repeats(),
                hides_unfired,
                token: None,
                answer: operation.answer.map(|script| script.reply),
                spread: spread.unwrap_or(Spread::OneSlot),
            };
            let (store, stats) = (&mut self.execution.store, &mut self.execution.stats);
            let ran = match (spread, own.asks.token()) {
                (Err(refusal), _) => refused(&context, refusal, pieces.written()),
                (Ok(_), None) => own.execute(store, &context, pieces),
                (Ok(_), Some(token)) => own.execute_named(store, stats, &context, token, pieces),
            };
            match ran {
                Ran::Unfired { slot, hash, id } => {
                    let unfired = (KeyHome { slot, hash }, id);
                    if let Some(disposition) =
                        self.execution
                            .fire_before(now, own, unfired, pieces.written())
                    {
                        return disposition;
                    }
                    hides_unfired = self.execution.store.data().must_fire(id);
                }
                ran => break ran,
            }
        };
        match ran {
            Ran::Answered { gate, status } => {
                self.execution.stats.answer(own.asked, status);
                let is_done = status == Status::Ok;
                operation.report_wrong_type(status, from, pieces);
                if is_done && operation.address.wants_began {
                    self.execution.report_began(own, from, pieces);
                }
                if let Some(needed) = self.execution.needed(&leave, own, is_done) {
                    let item = pieces.split_off(from);
                    self.answer_at_members(now, own, (needed, is_done), item);
                    Disposition::Later
                } else if leave.is_of_member {
                    self.execution.replica_waits.answer_member_read();
                    Disposition::Answered(Lsn(0))
                } else {
                    Disposition::Answered(self.execution.gate(leave.level, gate))
                }
            }
            Ran::Busy => {
                self.execution.stats.answer(own.asked, Status::Busy);
                Disposition::Busy
            }
            Ran::Postponed => Disposition::Postponed,
            Ran::Unfired { .. } => unreachable!("it was fired, or is hidden"),
            ran => self.wait_for_read(own, ran, pieces.written()),
        }
    }

    /// Has an item wait for the read that it turned out to need.
    fn wait_for_read(&mut self, own: &Own<'_>, ran: Ran, out: &mut Vec<u8>) -> Disposition {
        let operation = own.operation;
        let (origin, address) = (operation.origin, &operation.address);
        let (cold, is_other) = match ran {
            Ran::Cold(cold) => (cold, false),
            Ran::OtherCold(cold) => (cold, true),
            Ran::Answered { .. } | Ran::Busy | Ran::Unfired { .. } | Ran::Postponed => {
                unreachable!("it waits for no read")
            }
        };
        let bytes = cold.place.bytes as usize;
        if operation.brought.is_some()
            && cold.version.is_some()
            && !self.has_room_for_more(origin, address.session)
        {
            // It was parked for its key, and only now shows how long the version is.
            return self.execution.refuse_item(
                own.asked,
                operation,
                Status::Busy,
                &Outgrown(bytes),
                out,
            );
        }
        let reserved = match own.asks {
            Asks::Item(request) => answer_bytes(request, bytes),
            Asks::Program(_) => 0,
        };
        let disposition = self.park(cold, operation, own.slot, reserved, out);
        if matches!(disposition, Disposition::Later) {
            match own.asks {
                Asks::Item(request) if is_other || request.token().is_some() => {
                    self.execution.pin(own, std::iter::once(request.key));
                }
                Asks::Item(_) => {}
                Asks::Program(request) if request.key_count() == 1 && request.token().is_none() => {
                }
                Asks::Program(request) => {
                    self.execution.fetch_all(own.slot, request);
                    if_planted!(Bug::ApplyUnpinned, return disposition);
                    self.execution.pin(own, request.keys());
                }
            }
        }
        disposition
    }
}

/// What an operation must wait for that a change over several shards has claimed.
fn claim_before(joint: &mut Joint, own: &Own<'_>) -> Option<Cold> {
    match (own.asks, own.asks.extra()) {
        (_, Extra::Keyspace(_)) => None,
        (_, Extra::Flush) => {
            let slots = SLOTS / u16::try_from(PARTITIONS).expect("256");
            let first = own.slot - own.slot % slots;
            joint.claim_before_flush(first..first + slots)
        }
        (Asks::Item(_), _) => joint.claim_of(own.slot),
        (Asks::Program(request), _) => request.keys().find_map(|key| joint.claim_of(slot_of(key))),
    }
}
