//! The way of one item: run here, parked, sent to another shard, or refused.

use std::fmt;
use std::sync::Arc;

use penstock_net::apply::ApplyRequest;
use penstock_net::item::{Item, ItemForm};
use penstock_net::keyspace::read_default;
use penstock_net::level::AckLevel;
use penstock_net::pieces::Pieces;
use penstock_net::ping::PingItem;
use penstock_net::refusal::{KeyspaceName, Refusal};
use penstock_net::reply::{ReplyHead, Standing};
use penstock_net::request::{Effect, Extra, Request, Token, Verb, Version};
use penstock_net::rights::{Denied, Rights};
use penstock_net::slot::{begin_with_one_tag, slot_of};
use penstock_net::status::Status;
use penstock_storage::if_planted;
use penstock_storage::index::CellId;
use penstock_storage::io::Blocks;
use penstock_storage::keyspace::{Keyspaces, Settings};
use penstock_storage::place::{Lsn, Place};
use penstock_storage::planted::{Bug, is_planted};
use penstock_storage::store::{Found, Store};
use penstock_storage::version::partition_of;

use crate::answers::Asked;
use crate::cluster::Redirect;
use crate::execute::fire::Fired;
use crate::execute::token::{self, Looked};
use crate::execute::{Cold, Context, Ran, program, refused, run};
use crate::mail::ReplyAddress;
use crate::member_read::{Stale, look_at_member};
use crate::requests::parking::{Origin, Parked};
use crate::stats::Stats;

use super::answer_bytes::{Outgrown, answer_bytes, may_show_value};
use super::{Now, Shard};

/// An item, whom it answers, how durable, and until when.
#[derive(Clone, Copy)]
pub(super) struct Operation<'a> {
    pub(super) origin: Origin,
    pub(super) address: ReplyAddress,
    pub(super) level: AckLevel,
    pub(super) deadline_us: u64,
    /// When its request arrived, in microseconds of the node's clock.
    pub(super) came_us: u64,
    /// The encoded item.
    pub(super) item: &'a [u8],
    /// The read that it waited for.
    pub(super) brought: Option<(Place, &'a [u8])>,
    /// What is known of its first key, if that is this one.
    pub(super) known: Option<Known<'a>>,
    /// The rights by which it is judged. `None`: it may do everything, or was judged where it came
    /// in.
    pub(super) rights: Option<&'a Arc<Rights>>,
    /// It was a RUN of this program. Told only where there are rights.
    pub(super) program: Option<&'a str>,
}

impl<'a> Operation<'a> {
    /// An operation that waited.
    pub(super) fn of(parked: &'a Parked) -> Self {
        Operation {
            origin: parked.origin,
            address: parked.address,
            level: parked.level,
            deadline_us: parked.deadline_us,
            came_us: parked.came_us,
            item: &parked.item,
            brought: None,
            known: None,
            rights: parked.rights.as_ref(),
            program: parked.program.as_deref(),
        }
    }

    /// The same to be kept, with so many bytes free for its answer.
    pub(super) fn parked(&self, slot: u16, reserved: usize) -> Parked {
        Parked {
            origin: self.origin,
            address: self.address,
            level: self.level,
            deadline_us: self.deadline_us,
            came_us: self.came_us,
            slot,
            reserved,
            item: self.item.into(),
            rights: self.rights.cloned(),
            program: self.program.map(Box::from),
        }
    }
}

/// Where a key is looked up.
#[derive(Clone, Copy)]
pub(super) struct Known<'a> {
    pub(super) key: &'a [u8],
    pub(super) slot: u16,
    pub(super) hash: u32,
}

/// What became of an item.
pub(super) enum Step {
    /// A reply item was written; it depends on this.
    Answered(Lsn),
    /// A reply item was written that is BUSY; it depends on nothing.
    Busy,
    /// It will be answered by itself.
    Later,
    /// There is no room in the log or for mail: try again after something completed.
    Postponed,
}

/// What an item whose key is of this shard asks for.
#[derive(Clone, Copy)]
pub(super) enum Asks<'a> {
    /// One verb on one key.
    Item(&'a Request<'a>),
    /// The program of an APPLY, an UPDATE_IF or a RUN.
    Program(&'a ApplyRequest<'a>),
}

impl<'a> Asks<'a> {
    /// Its first key, which decides the slot.
    #[inline]
    pub(super) fn key(self) -> &'a [u8] {
        match self {
            Asks::Item(request) => request.key,
            Asks::Program(request) => request.key(),
        }
    }

    #[inline]
    fn verb(self) -> Verb {
        match self {
            Asks::Item(request) => request.verb,
            Asks::Program(request) => request.verb(),
        }
    }

    /// The slot whose shard answers.
    #[inline]
    fn slot(self) -> u16 {
        match self {
            Asks::Item(request) => request.slot(),
            Asks::Program(request) => slot_of(request.key()),
        }
    }

    /// Refuses keys of two slots; the first one is of this slot.
    #[inline]
    fn crosses_slots(self, first: u16) -> Option<Refusal> {
        let others = match self {
            Asks::Item(_) => &[],
            Asks::Program(request) => &request.keys()[1..],
        };
        for other in others {
            if begin_with_one_tag(self.key(), other) {
                continue;
            }
            let second = slot_of(other);
            if first != second {
                return Some(Refusal::CrossSlot { first, second });
            }
        }
        None
    }

    /// Whether the settings of a keyspace may be in force for one of its keys.
    #[inline]
    fn may_be_ruled(self, keyspaces: &Keyspaces) -> bool {
        match self {
            Asks::Item(request) => keyspaces.may_rule(request.key),
            Asks::Program(request) => request.keys().iter().any(|key| keyspaces.may_rule(key)),
        }
    }

    /// The name of the write, if it has one.
    #[inline]
    pub(super) fn token(self) -> Option<Token> {
        match self {
            Asks::Item(request) => request.token(),
            Asks::Program(request) => request.token(),
        }
    }

    /// Whether the answer may show the value that the key has now.
    fn may_show_value(self) -> bool {
        match self {
            Asks::Item(request) => may_show_value(request),
            Asks::Program(_) => false,
        }
    }

    /// Whether these rights let it run; it may have been a RUN of this program.
    #[inline]
    fn judge(self, rights: &'a Rights, program: Option<&'a str>) -> Result<(), Denied<'a>> {
        match (self, program) {
            (Asks::Item(request), _) => rights.judge(request),
            (Asks::Program(request), None) => rights.judge_apply(request),
            (Asks::Program(request), program) => {
                rights.judge_run(program, request.keys().iter().copied())
            }
        }
    }

    /// What it asks besides.
    #[inline]
    fn extra(self) -> Extra {
        match self {
            Asks::Item(request) => request.extra,
            Asks::Program(_) => Extra::None,
        }
    }
}

/// An item whose key is of this shard.
pub(super) struct Own<'a> {
    pub(super) operation: &'a Operation<'a>,
    pub(super) asks: Asks<'a>,
    pub(super) asked: Asked,
    pub(super) slot: u16,
    pub(super) hash: u32,
}

impl Own<'_> {
    /// Runs the item on the store.
    #[inline]
    fn execute<P: Blocks>(
        &self,
        store: &mut Store<P>,
        context: &Context<'_>,
        pieces: &mut Pieces,
    ) -> Ran {
        match self.asks {
            Asks::Item(request) => run(store, context, request, pieces),
            Asks::Program(request) => program::run(store, context, request, pieces.written()),
        }
    }

    /// Runs the item, unless its token is known.
    #[cold]
    fn execute_named<P: Blocks>(
        &self,
        store: &mut Store<P>,
        stats: &mut Stats,
        context: &Context<'_>,
        token: Token,
        pieces: &mut Pieces,
    ) -> Ran {
        let (item, out) = (self.operation.item, pieces.written());
        match token::look(store, context, token, item, out) {
            Looked::New(new) => {
                let context = Context {
                    token: Some(&new),
                    ..*context
                };
                self.execute(store, &context, pieces)
            }
            Looked::Ran(ran) => {
                let is_told_again =
                    matches!(ran, Ran::Answered { status, .. } if status == Status::Ok);
                if is_told_again {
                    stats.replay_token();
                }
                ran
            }
        }
    }

    /// Whether it changes nothing, whatever it finds.
    fn only_reads(&self) -> bool {
        match self.asks {
            Asks::Item(request) => request.verb.effect() == Effect::Reads,
            Asks::Program(_) => false,
        }
    }
}

/// How an item may run.
pub(super) struct Leave {
    /// The level that its reply reaches.
    pub(super) level: AckLevel,
    /// How new it is what a GET shows that members may answer.
    standing: Option<Standing>,
    /// This node answers it as a member: another one writes the partition.
    pub(super) is_of_member: bool,
}

impl<P: Blocks> Shard<P> {
    /// The level that an operation for this one goes by: a node alone has nobody to wait for.
    #[inline]
    pub(super) fn reachable(&self, level: AckLevel) -> AckLevel {
        match level {
            AckLevel::All if self.linked.is_none() => AckLevel::Disk,
            level => level,
        }
    }

    /// Whether an item writes here and is to wait while cleaning makes room for what is written.
    /// Nothing else waits for that: neither reads nor deletions.
    #[inline]
    pub(super) fn is_held_back(&mut self, now: Now, deadline_us: u64, item: &[u8]) -> bool {
        self.store.holds_writes() && self.is_write_in_time(now, deadline_us, item)
    }

    #[cold]
    fn is_write_in_time(&mut self, now: Now, deadline_us: u64, item: &[u8]) -> bool {
        if self.comes_too_late(now, deadline_us).is_some() {
            return false;
        }
        let value_bytes_max = self.setup.limits().value_bytes_max;
        let is_held_back = Item::read(item, value_bytes_max).is_ok_and(|item| {
            let is_own = item.slot().is_some_and(|slot| self.setup.owns(slot));
            item.effect() == Effect::Writes && is_own
        });
        if is_held_back {
            self.store.write_waits();
        }
        is_held_back
    }

    /// Runs, parks or mails one item; a reply item is written at the end of `pieces`.
    #[inline]
    pub(super) fn operation(
        &mut self,
        now: Now,
        operation: &Operation<'_>,
        pieces: &mut Pieces,
    ) -> Step {
        match ItemForm::of(operation.item) {
            ItemForm::Common => {}
            ItemForm::Apply => return self.apply_item(now, operation, pieces),
            ItemForm::Run => return self.run_item(now, operation, pieces),
            ItemForm::Scan => return self.begin_scan(now, operation, pieces.written()),
            ItemForm::Ping => return self.ping_item(now, operation, pieces.written()),
        }
        match Request::read(operation.item, self.setup.limits().value_bytes_max) {
            Ok(request) if request.verb == Verb::UpdateIf => {
                let program = ApplyRequest::of_update_if(&request);
                self.program_item(now, operation, &program, pieces)
            }
            Ok(request) => self.item_of_key(now, operation, Asks::Item(&request), pieces),
            Err(refusal) => self.refuse_unreadable(operation, refusal, pieces.written()),
        }
    }

    /// Takes an APPLY in.
    pub(super) fn apply_item(
        &mut self,
        now: Now,
        operation: &Operation<'_>,
        pieces: &mut Pieces,
    ) -> Step {
        match ApplyRequest::read(operation.item, self.setup.limits().value_bytes_max) {
            Ok(request) => self.program_item(now, operation, &request, pieces),
            Err(refusal) => self.refuse_unreadable(operation, refusal, pieces.written()),
        }
    }

    /// Runs, parks or mails a program.
    fn program_item(
        &mut self,
        now: Now,
        operation: &Operation<'_>,
        request: &ApplyRequest<'_>,
        pieces: &mut Pieces,
    ) -> Step {
        self.item_of_key(now, operation, Asks::Program(request), pieces)
    }

    #[cold]
    pub(super) fn refuse_unreadable(
        &mut self,
        operation: &Operation<'_>,
        refusal: Refusal,
        out: &mut Vec<u8>,
    ) -> Step {
        let status = refusal.status();
        self.refuse_item(Asked::Unreadable, operation, status, &refusal, out)
    }

    /// Runs, parks or mails an item that was read.
    #[inline(always)]
    fn item_of_key<'a>(
        &mut self,
        now: Now,
        operation: &Operation<'a>,
        asks: Asks<'a>,
        pieces: &mut Pieces,
    ) -> Step {
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
        if let Some((status, message)) = self.comes_too_late(now, operation.deadline_us) {
            return self.refuse_item(asked, operation, status, &message, out);
        }
        if asks.verb() == Verb::Keyspace {
            self.audit_keyspace(operation, asks.extra(), asks.key());
        }
        let owner = self.setup.owner(slot);
        if owner != self.setup.shard() {
            let is_read = asked.is_read() || asks.may_show_value();
            return self.mail_request(owner, operation, slot, is_read, out);
        }
        let own = Own {
            operation,
            asks,
            asked,
            slot,
            hash: known.map_or_else(|| self.setup.hash().of(asks.key()), |known| known.hash),
        };
        if !self.requests.parking.is_empty()
            && let Some(cold) =
                self.requests
                    .parking
                    .behind(operation.origin, &operation.address, slot)
        {
            return self.queue_behind(&own, cold, out);
        }
        match asks.extra() {
            Extra::Keyspace(action) => self.keyspace_item(now, &own, action, out),
            _ => self.run_own(now, &own, pieces),
        }
    }

    /// Answers a PING with what it brought. It waits for nothing and depends on nothing.
    #[cold]
    fn ping_item(&mut self, now: Now, operation: &Operation<'_>, out: &mut Vec<u8>) -> Step {
        let ping = match PingItem::read(operation.item, self.setup.limits().value_bytes_max) {
            Ok(ping) => ping,
            Err(refusal) => {
                let status = refusal.status();
                return self.refuse_item(Asked::Verb(Verb::Ping), operation, status, &refusal, out);
            }
        };
        if let Some((status, message)) = self.comes_too_late(now, operation.deadline_us) {
            return self.refuse_item(Asked::Verb(Verb::Ping), operation, status, &message, out);
        }
        self.stats.answer(Asked::Verb(Verb::Ping), Status::Ok);
        let item = operation.address.item;
        ReplyHead::new(Status::Ok, item, operation.level, Version::default())
            .write(out, ping.value);
        Step::Answered(Lsn(0))
    }

    /// Begins the reads of all cold keys of a program, which then go on side by side.
    fn fetch_all(&mut self, slot: u16, request: &ApplyRequest<'_>) {
        let hash = self.setup.hash();
        for cold in program::cold_keys(&self.store, slot, request, |key| hash.of(key)) {
            if !self.requests.parking.is_full() {
                self.requests.parking.fetch(cold);
            }
        }
    }

    /// Has an item wait behind an earlier one of its connection and slot. Its keys are read
    /// meanwhile.
    fn queue_behind(&mut self, own: &Own<'_>, cold: Cold, out: &mut Vec<u8>) -> Step {
        let (slot, hash) = (own.slot, own.hash);
        let reserved = match own.asks {
            Asks::Item(request) => {
                let found = self.store.find(slot, hash, request.key);
                if let Found::Cold(place) = found
                    && !self.requests.parking.is_full()
                {
                    self.requests.parking.fetch(Cold {
                        slot,
                        hash,
                        place,
                        version: None,
                    });
                }
                answer_bytes(request, self.value_bytes(found))
            }
            Asks::Program(request) => {
                self.fetch_all(slot, request);
                0
            }
        };
        self.park(cold, own.operation, slot, reserved, out)
    }

    /// Runs an item that nothing stands before.
    #[inline]
    fn run_own(&mut self, now: Now, own: &Own<'_>, pieces: &mut Pieces) -> Step {
        let operation = own.operation;
        let (mut level, mut ttl_ms) = (operation.level, 0);
        if own.asks.may_be_ruled(self.store.keyspaces()) {
            match obey(&self.store, own, level) {
                Ok(rules) => (level, ttl_ms) = (self.reachable(rules.0), rules.1),
                Err(refusal) => {
                    let (status, out) = (refusal.status(), pieces.written());
                    return self.refuse_item(own.asked, operation, status, &refusal, out);
                }
            }
        }
        let is_plain = self.linked.is_none() && !matches!(own.asks.extra(), Extra::Member(_));
        let leave = match is_plain {
            true => Leave {
                level,
                standing: None,
                is_of_member: false,
            },
            false => match self.leave_of(now, own, level, pieces.written()) {
                Ok(leave) => leave,
                Err(step) => return step,
            },
        };
        let from = pieces.len();
        let mut hides_unfired = leave.is_of_member;
        // Each round but the last ends a key of the operation.
        let ran = loop {
            let context = Context {
                now_us: now.us,
                hash: self.setup.hash(),
                slot: own.slot,
                key_hash: own.hash,
                item: operation.address.item,
                level: leave.level,
                memory_max: self.setup.config().memory_max,
                spare_failure: self.files.failure(),
                ttl_ms,
                brought: operation.brought,
                standing: leave.standing,
                shared_bytes_min: self.setup.config().shared_bytes_min,
                answers_runs: self.setup.answers_runs(),
                hides_unfired,
                token: None,
            };
            let (store, stats) = (&mut self.store, &mut self.stats);
            let ran = match (own.asks.crosses_slots(own.slot), own.asks.token()) {
                (Some(refusal), _) => refused(&context, refusal, pieces.written()),
                (None, None) => own.execute(store, &context, pieces),
                (None, Some(token)) => own.execute_named(store, stats, &context, token, pieces),
            };
            match ran {
                Ran::Unfired { slot, hash, id } => {
                    let unfired = ((slot, hash), id);
                    if let Some(step) = self.fire_before(now, own, unfired, pieces.written()) {
                        return step;
                    }
                    hides_unfired = self.store.must_fire(id);
                }
                ran => break ran,
            }
        };
        match ran {
            Ran::Answered { gate, status } => {
                self.stats.answer(own.asked, status);
                let is_done = status == Status::Ok;
                if is_done && operation.address.tells_began {
                    self.tell_began(own, from, pieces);
                }
                if let Some(needed) = self.needed(&leave, own, is_done) {
                    let item = pieces.split_off(from);
                    self.answer_at_members(now, own, (needed, is_done), item);
                    Step::Later
                } else if leave.is_of_member {
                    self.replica_waits.answer_member_read();
                    Step::Answered(Lsn(0))
                } else {
                    Step::Answered(self.gate(leave.level, gate))
                }
            }
            Ran::Busy => {
                self.stats.answer(own.asked, Status::Busy);
                Step::Busy
            }
            Ran::Postponed => Step::Postponed,
            Ran::Unfired { .. } => unreachable!("it was fired, or is hidden"),
            ran => self.wait_for_read(own, ran, pieces.written()),
        }
    }

    /// Fires a key that an item has met before its effects have run. `None`: the item may run. If
    /// the key is still there, it only reads, and takes the key for missing.
    #[cold]
    fn fire_before(
        &mut self,
        now: Now,
        own: &Own<'_>,
        (home, id): ((u16, u32), CellId),
        out: &mut Vec<u8>,
    ) -> Option<Step> {
        match self.fire_first(now, home, id) {
            Fired::Ran | Fired::Failed(_) => None,
            Fired::Full(_) if own.only_reads() => None,
            Fired::Full(_) => {
                let message = "a key of this operation has expired, and there is no room yet, on \
                               the disk or in memory, for what is to happen then";
                let status = Status::Full;
                Some(self.refuse_item(own.asked, own.operation, status, &message, out))
            }
            Fired::Cold | Fired::Wait | Fired::Behind(..) => Some(Step::Postponed),
        }
    }

    /// Whether an item may run on this node of a cluster, and how; otherwise its refusal is
    /// written.
    fn leave_of(
        &mut self,
        now: Now,
        own: &Own<'_>,
        level: AckLevel,
        out: &mut Vec<u8>,
    ) -> Result<Leave, Step> {
        let (asked, operation) = (own.asked, own.operation);
        let partition = partition_of(own.slot);
        let mut standing = None;
        if let Extra::Member(read) = own.asks.extra() {
            let linked = self.linked.as_deref_mut();
            match look_at_member(linked, &self.store, now.us, partition, level, read) {
                None => {}
                Some(Ok((found, false))) => {
                    standing = Some(found);
                    if read.staleness_us_max == 0 {
                        // Whoever wants it as it is now may ask later whether it was so meanwhile.
                        self.store.remember_removals();
                    }
                }
                Some(Ok((found, true))) => {
                    return Ok(Leave {
                        // Before it is applied it is durable at the primary.
                        level: AckLevel::Disk,
                        standing: Some(found),
                        is_of_member: true,
                    });
                }
                Some(Err(stale)) => return Err(self.refuse_stale(asked, operation, &stale, out)),
            }
        }
        let leave = Leave {
            level,
            standing,
            is_of_member: false,
        };
        let Some(linked) = &self.linked else {
            return Ok(leave);
        };
        if let Some(elsewhere) = linked.elsewhere(partition) {
            return Err(self.refuse_elsewhere(asked, operation, &elsewhere, out));
        }
        match linked.needed(level, asked.is_read()) {
            Some(needed) => match self.may_wait_for(partition, needed) {
                Ok(()) => Ok(leave),
                Err((status, message)) => {
                    Err(self.refuse_item(asked, operation, status, &message, out))
                }
            },
            None => Ok(leave),
        }
    }

    /// Has an item wait for the read that it turned out to need.
    fn wait_for_read(&mut self, own: &Own<'_>, ran: Ran, out: &mut Vec<u8>) -> Step {
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
            return self.refuse_item(own.asked, operation, Status::Busy, &Outgrown(bytes), out);
        }
        let reserved = match own.asks {
            Asks::Item(request) => answer_bytes(request, bytes),
            Asks::Program(_) => 0,
        };
        let step = self.park(cold, operation, own.slot, reserved, out);
        if matches!(step, Step::Later) {
            match own.asks {
                Asks::Item(request) if is_other || request.token().is_some() => {
                    self.pin(own, &[request.key]);
                }
                Asks::Item(_) => {}
                Asks::Program(request)
                    if request.keys().len() == 1 && request.token().is_none() => {}
                Asks::Program(request) => {
                    self.fetch_all(own.slot, request);
                    if_planted!(Bug::ApplyUnpinned, return step);
                    self.pin(own, request.keys());
                }
            }
        }
        step
    }

    /// Pins keys of an item that was parked and its token, unless those of another one are pinned.
    fn pin(&mut self, own: &Own<'_>, keys: &[&[u8]]) {
        let Operation {
            origin, address, ..
        } = own.operation;
        let slot = own.slot;
        if self.requests.parking.pins(*origin, address, slot) {
            let hash = self.setup.hash();
            let token = own
                .asks
                .token()
                .map(|token| (slot, token::home_of(hash, slot, token.bytes()).1));
            let keys = keys.iter().map(|key| (slot, hash.of(key)));
            self.store.pin(keys.chain(token));
        }
    }

    /// Answers an item that is not executed, with the reason.
    #[cold]
    pub(super) fn refuse_item(
        &mut self,
        asked: Asked,
        operation: &Operation,
        status: Status,
        reason: &dyn fmt::Display,
        out: &mut Vec<u8>,
    ) -> Step {
        self.stats.refuse(asked, status);
        let item = operation.address.item;
        ReplyHead::new(status, item, operation.level, Version::default())
            .write_message(out, reason);
        match status {
            Status::Busy => Step::Busy,
            _ => Step::Answered(Lsn(0)),
        }
    }

    /// Tells who answers it.
    #[cold]
    pub(super) fn refuse_elsewhere(
        &mut self,
        asked: Asked,
        operation: &Operation,
        elsewhere: &Redirect,
        out: &mut Vec<u8>,
    ) -> Step {
        let status = elsewhere.status();
        self.stats.refuse(asked, status);
        let item = operation.address.item;
        ReplyHead::new(status, item, operation.level, elsewhere.version())
            .write_message(out, elsewhere);
        Step::Answered(Lsn(0))
    }

    /// Tells how far this node is.
    #[cold]
    fn refuse_stale(
        &mut self,
        asked: Asked,
        operation: &Operation,
        stale: &Stale,
        out: &mut Vec<u8>,
    ) -> Step {
        self.replica_waits.refuse_member_read();
        self.stats.refuse(asked, Status::Stale);
        let item = operation.address.item;
        ReplyHead::new(Status::Stale, item, operation.level, Version::default()).write_telling(
            out,
            None,
            Some(stale.standing),
            stale.to_string().as_bytes(),
        );
        Step::Answered(Lsn(0))
    }

    /// Why nothing is executed any more.
    #[inline]
    pub(super) fn comes_too_late(
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
}

/// The level and the lifetime in milliseconds that the settings of its keyspaces give an item. A
/// program looks up by itself the lifetimes of its keys.
#[cold]
fn obey<P: Blocks>(
    store: &Store<P>,
    own: &Own<'_>,
    level: AckLevel,
) -> Result<(AckLevel, u64), Refusal> {
    let slot = own.slot;
    let is_unleveled = own.operation.address.is_unleveled;
    let request = match own.asks {
        Asks::Item(request) => request,
        Asks::Program(request) => {
            for (key, value) in request.values() {
                check_value(store, slot, request.keys()[key], value)?;
            }
            let levels = request
                .keys()
                .iter()
                .map(|key| least_level(store, slot, key, is_unleveled));
            return Ok((levels.fold(level, AckLevel::max), 0));
        }
    };
    check_value(store, slot, request.key, request.value)?;
    Ok(match store.keyspaces().of(slot, request.key) {
        Some((_, settings)) => {
            let least = level_of(settings, is_unleveled);
            (level.max(least), settings.ttl_ms)
        }
        None => (level, 0),
    })
}

/// Whether the keyspace of a key takes a value.
fn check_value<P: Blocks>(
    store: &Store<P>,
    slot: u16,
    key: &[u8],
    value: &[u8],
) -> Result<(), Refusal> {
    match store.keyspaces().of(slot, key) {
        Some((prefix, settings))
            if settings.value_bytes_max > 0 && value.len() > settings.value_bytes_max as usize =>
        {
            Err(Refusal::KeyspaceValueLength {
                len: value.len(),
                max: settings.value_bytes_max,
                keyspace: KeyspaceName::new(prefix),
            })
        }
        _ => Ok(()),
    }
}

/// The level that the keyspace of a key gives a request at least, which may have named none.
#[inline]
pub(super) fn least_level<P: Blocks>(
    store: &Store<P>,
    slot: u16,
    key: &[u8],
    is_unleveled: bool,
) -> AckLevel {
    match store.keyspaces().of(slot, key) {
        Some((_, settings)) => level_of(settings, is_unleveled),
        None => AckLevel::None,
    }
}

/// The level that these settings give a request at least, which may have named none.
pub(super) fn level_of(settings: &Settings, is_unleveled: bool) -> AckLevel {
    let least = AckLevel::from_code(settings.level_min).unwrap_or_default();
    match read_default(settings.level_default) {
        Ok(Some(level)) if is_unleveled => least.max(level),
        _ => least,
    }
}
