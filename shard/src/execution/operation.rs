//! One item on its way: what it asks, and whether this node may execute it.

use std::sync::Arc;

use penstock_net::apply::ApplyRequest;
use penstock_net::item::Item;
use penstock_net::keyspace::read_default;
use penstock_net::level::AckLevel;
use penstock_net::pieces::Pieces;
use penstock_net::ping::PingItem;
use penstock_net::refusal::ShownName;
use penstock_net::refusal::{KeyspaceName, Refusal};
use penstock_net::reply::{ReplyHead, Standing};
use penstock_net::request::{Effect, Extra, Request, Token, Verb, Version};
use penstock_net::resp::judge_script;
use penstock_net::rights::{Denied, Rights};
use penstock_net::slot::{begin_with_one_tag, slot_of};
use penstock_net::status::Status;
use penstock_storage::index::CellId;
use penstock_storage::io::Blocks;
use penstock_storage::key_home::KeyHome;
use penstock_storage::keyspace::{Keyspaces, Settings};
use penstock_storage::place::{Lsn, Place};
use penstock_storage::store::Store;
use penstock_storage::version::partition_of;

use crate::accounts::answers::Asked;
use crate::accounts::stats::Stats;
use crate::execution::Execution;
use crate::execution::answer_bytes::may_show_value;
use crate::execution::verbs::fire::Fired;
use crate::execution::verbs::token::{self, TokenVerdict};
use crate::execution::verbs::{Context, KeyHash, Ran, Spread, program, run};
use crate::mail::ReplyAddress;
use crate::member_read::member_freshness;
use crate::now::Now;
use crate::publisher::ScriptAnswer;
use crate::requests::parking::{Order, Origin, Parked};

/// An item, whom it answers, how durable, and until when.
#[derive(Clone, Copy)]
pub(crate) struct Operation<'a> {
    pub(crate) origin: Origin,
    pub(crate) address: ReplyAddress,
    pub(crate) level: AckLevel,
    pub(crate) deadline_us: u64,
    /// When its request arrived, in microseconds of the node's clock.
    pub(crate) came_us: u64,
    /// The encoded item.
    pub(crate) item: &'a [u8],
    /// The read that it waited for.
    pub(crate) brought: Option<(Place, &'a [u8])>,
    /// What is known of its first key, if that is this one.
    pub(crate) known: Option<Known<'a>>,
    /// The rights by which it is judged. `None`: it may do everything, or was judged where it came
    /// in.
    pub(crate) rights: Option<&'a Arc<Rights>>,
    /// It was a RUN of this program. Told only where there are rights.
    pub(crate) program: Option<&'a str>,
    /// The item is the APPLY of a script, which answers this.
    pub(crate) answer: Option<ScriptAnswer<'a>>,
    /// Where it stands among those of its connection that are parked.
    pub(crate) order: Order,
}

impl<'a> Operation<'a> {
    /// An operation that waited.
    pub(crate) fn of(parked: &'a Parked) -> Self {
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
            answer: None,
            order: parked.order,
        }
    }

    /// The same to be kept, with so many bytes free for its answer.
    pub(crate) fn parked(&self, slot: u16, reserved: usize) -> Parked {
        Parked {
            origin: self.origin,
            address: self.address,
            level: self.level,
            deadline_us: self.deadline_us,
            came_us: self.came_us,
            slot,
            order: self.order,
            reserved,
            item: self.item.into(),
            rights: self.rights.cloned(),
            program: self.program.map(Box::from),
        }
    }
}

/// Where a key is looked up.
#[derive(Clone, Copy)]
pub(crate) struct Known<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) slot: u16,
    pub(crate) hash: u32,
}

impl Known<'_> {
    /// Where the index finds the key.
    #[inline]
    pub(crate) fn home(&self) -> KeyHome {
        KeyHome::new(self.slot, self.hash)
    }
}

/// What became of an item.
pub(crate) enum Disposition {
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
pub(crate) enum Asks<'a> {
    /// One verb on one key.
    Item(&'a Request<'a>),
    /// The program of an APPLY, an UPDATE_IF or a RUN.
    Program(&'a ApplyRequest<'a>),
}

impl<'a> Asks<'a> {
    /// Its first key, which decides the slot.
    #[inline]
    pub(crate) fn key(self) -> &'a [u8] {
        match self {
            Asks::Item(request) => request.key,
            Asks::Program(request) => request.key(),
        }
    }

    #[inline]
    pub(crate) fn verb(self) -> Verb {
        match self {
            Asks::Item(request) => request.verb,
            Asks::Program(request) => request.verb(),
        }
    }

    /// The slot whose shard answers.
    #[inline]
    pub(crate) fn slot(self) -> u16 {
        match self {
            Asks::Item(request) => request.slot(),
            Asks::Program(request) => slot_of(request.key()),
        }
    }

    /// Refuses keys of two slots; the first one is of this slot.
    #[inline]
    pub(crate) fn crosses_slots(self, first: u16) -> Option<Refusal> {
        let Asks::Program(request) = self else {
            return None;
        };
        for other in request.keys().skip(1) {
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
    pub(crate) fn may_be_ruled(self, keyspaces: &Keyspaces) -> bool {
        match self {
            Asks::Item(request) => keyspaces.may_rule(request.key),
            Asks::Program(request) => request.keys().any(|key| keyspaces.may_rule(key)),
        }
    }

    /// The name of the write, if it has one.
    #[inline]
    pub(crate) fn token(self) -> Option<Token> {
        match self {
            Asks::Item(request) => request.token(),
            Asks::Program(request) => request.token(),
        }
    }

    /// Whether the answer may show the value that the key has now.
    pub(crate) fn may_show_value(self) -> bool {
        match self {
            Asks::Item(request) => may_show_value(request),
            Asks::Program(_) => false,
        }
    }

    /// Whether these rights let it run; it may have been a RUN of this program.
    #[inline]
    pub(crate) fn judge(
        self,
        rights: &'a Rights,
        program: Option<&'a str>,
    ) -> Result<(), Denied<'a>> {
        match (self, program) {
            (Asks::Item(request), _) => rights.judge(request),
            (Asks::Program(request), None) => rights.judge_apply(request),
            (Asks::Program(request), program) => rights.judge_run(program, request.keys()),
        }
    }

    /// What it asks besides.
    #[inline]
    pub(crate) fn extra(self) -> Extra {
        match self {
            Asks::Item(request) => request.extra,
            Asks::Program(_) => Extra::None,
        }
    }
}

/// An item whose key is of this shard.
pub(crate) struct Own<'a> {
    pub(crate) operation: &'a Operation<'a>,
    pub(crate) asks: Asks<'a>,
    pub(crate) asked: Asked,
    pub(crate) slot: u16,
    pub(crate) hash: u32,
}

impl Own<'_> {
    /// Runs the item on the store.
    #[inline]
    pub(crate) fn execute<P: Blocks>(
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
    pub(crate) fn execute_named<P: Blocks>(
        &self,
        store: &mut Store<P>,
        stats: &mut Stats,
        context: &Context<'_>,
        token: Token,
        pieces: &mut Pieces,
    ) -> Ran {
        let (item, out) = (self.operation.item, pieces.written());
        match token::judge(store, context, token, item, out) {
            TokenVerdict::New(new) => {
                let context = Context {
                    token: Some(&new),
                    ..*context
                };
                self.execute(store, &context, pieces)
            }
            TokenVerdict::Ran(ran) => {
                let is_replayed =
                    matches!(ran, Ran::Answered { status, .. } if status == Status::Ok);
                if is_replayed {
                    stats.replay_token();
                }
                ran
            }
        }
    }

    /// Whether its keys are of several slots, and why that is refused. The item of a script may
    /// have them: the shard has judged its keys. At a node of a cluster a token that is a text is
    /// refused, too: members of an earlier build do not know its record.
    #[inline]
    pub(crate) fn spread_at(&self, is_clustered: bool) -> Result<Spread, Refusal> {
        if is_clustered && self.asks.token().is_some_and(|token| token.is_text()) {
            return Err(Refusal::TokenTextInCluster);
        }
        match self.asks.crosses_slots(self.slot) {
            None => Ok(Spread::OneSlot),
            Some(_) if self.operation.answer.is_some() => Ok(Spread::Slots),
            Some(refusal) => Err(refusal),
        }
    }

    /// Whether it changes nothing, whatever it finds.
    pub(crate) fn only_reads(&self) -> bool {
        match self.asks {
            Asks::Item(request) => request.verb.effect() == Effect::Reads,
            Asks::Program(_) => false,
        }
    }
}

/// How an item may run.
pub(crate) struct Leave {
    /// The level that its reply reaches.
    pub(crate) level: AckLevel,
    /// How new it is what a GET shows that members may answer.
    pub(crate) standing: Option<Standing>,
    /// This node answers it as a member: another one writes the partition.
    pub(crate) is_of_member: bool,
}

impl<P: Blocks> Execution<P> {
    /// The level that an operation for this one goes by: a node alone has nobody to wait for.
    #[inline]
    pub(crate) fn reachable(&self, level: AckLevel) -> AckLevel {
        match level {
            AckLevel::All if self.linked.is_none() => AckLevel::Disk,
            level => level,
        }
    }

    /// Whether an item writes here and is to wait while cleaning makes room for what is written.
    /// Nothing else waits for that: neither reads nor deletions.
    #[inline]
    pub(crate) fn is_held_back(&mut self, now: Now, deadline_us: u64, item: &[u8]) -> bool {
        self.store.cleaning().holds_writes() && self.is_write_in_time(now, deadline_us, item)
    }

    #[cold]
    pub(crate) fn is_write_in_time(&mut self, now: Now, deadline_us: u64, item: &[u8]) -> bool {
        if self.comes_too_late(now, deadline_us).is_some() {
            return false;
        }
        let value_bytes_max = self.setup.limits().value_bytes_max;
        let is_held_back = Item::read(item, value_bytes_max).is_ok_and(|item| {
            let is_own = item.slot().is_some_and(|slot| self.setup.owns(slot));
            item.effect() == Effect::Writes && is_own
        });
        if is_held_back {
            self.store.cleaning_mut().write_waits();
        }
        is_held_back
    }

    /// Answers a PING with what it brought. It waits for nothing and depends on nothing.
    #[cold]
    pub(crate) fn ping_item(
        &mut self,
        now: Now,
        operation: &Operation<'_>,
        out: &mut Vec<u8>,
    ) -> Disposition {
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
        Disposition::Answered(Lsn(0))
    }

    /// Begins the reads of all cold keys of a program, which then go on side by side.
    pub(crate) fn fetch_all(&mut self, slot: u16, request: &ApplyRequest<'_>) {
        let hash = self.setup.hash();
        for cold in program::cold_keys(&self.store, slot, request, |key| hash.of(key)) {
            if self.requests.parking.may_read_ahead() {
                self.requests.parking.fetch(cold);
            }
        }
    }

    /// Fires a key that an item has met before its effects have run. `None`: the item may run. If
    /// the key is still there, it only reads, and takes the key for missing.
    #[cold]
    pub(crate) fn fire_before(
        &mut self,
        now: Now,
        own: &Own<'_>,
        (home, id): (KeyHome, CellId),
        out: &mut Vec<u8>,
    ) -> Option<Disposition> {
        match self.fire_first(now, home, id) {
            Fired::Ran | Fired::Failed(_) => None,
            Fired::Full(_) if own.only_reads() => None,
            Fired::Full(_) => Some(self.refuse_unfired(own.asked, own.operation, out)),
            Fired::Cold | Fired::Wait | Fired::Behind(..) => Some(Disposition::Postponed),
        }
    }

    /// Refuses an item that has met a key whose effects find no room.
    #[cold]
    pub(crate) fn refuse_unfired(
        &mut self,
        asked: Asked,
        operation: &Operation<'_>,
        out: &mut Vec<u8>,
    ) -> Disposition {
        let message = "a key of this operation has expired, and there is no room yet, on the \
                       disk or in memory, for what is to happen then";
        self.refuse_item(asked, operation, Status::Full, &message, out)
    }

    /// Whether an item may run on this node of a cluster, and how; otherwise its refusal is
    /// written.
    pub(crate) fn leave_of(
        &mut self,
        now: Now,
        own: &Own<'_>,
        level: AckLevel,
        out: &mut Vec<u8>,
    ) -> Result<Leave, Disposition> {
        let (asked, operation) = (own.asked, own.operation);
        let partition = partition_of(own.slot);
        let mut standing = None;
        if let Extra::Member(read) = own.asks.extra() {
            let linked = self.linked.as_deref_mut();
            match member_freshness(linked, &self.store, now.us, partition, level, read) {
                None => {}
                Some(Ok((found, false))) => {
                    standing = Some(found);
                    if read.staleness_us_max == 0 {
                        // Whoever wants it as it is now may ask later whether it was so meanwhile.
                        self.store.data_mut().remember_removals();
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

    /// Pins keys of an item that was parked and its token, unless those of another one are pinned.
    pub(crate) fn pin<'k>(&mut self, own: &Own<'_>, keys: impl Iterator<Item = &'k [u8]>) {
        let (slot, token) = (own.slot, own.asks.token());
        self.pin_homes(own.operation, Order::Of(slot), |hash| {
            let token = token.map(|token| token::home_of(hash, slot, token.name()).1);
            let hashes = keys.map(|key| hash.of(key)).chain(token);
            hashes.map(|hash| KeyHome { slot, hash }).collect()
        });
    }

    /// The same of keys with these homes, for an item that was parked in this order.
    pub(crate) fn pin_homes(
        &mut self,
        operation: &Operation<'_>,
        order: Order,
        homes: impl FnOnce(&KeyHash) -> Vec<KeyHome>,
    ) {
        let Operation {
            origin, address, ..
        } = operation;
        if self.requests.parking.pins(*origin, address, order) {
            self.store.data_mut().pin(homes(self.setup.hash()));
        }
    }

    /// Whether an item is denied, before anything else is asked that looks at the store. One whose
    /// bytes are wrong is not: it is refused for that.
    #[cold]
    pub(crate) fn is_denied(&self, operation: &Operation<'_>) -> bool {
        let (Some(rights), item) = (operation.rights, operation.item) else {
            return false;
        };
        let value_bytes_max = self.setup.limits().value_bytes_max;
        let judged = match Item::read(item, value_bytes_max) {
            Err(_) | Ok(Item::Ping(_)) => return false,
            Ok(Item::Verb(request)) => rights.judge(&request),
            Ok(Item::Program(request)) => match operation.program {
                None => rights.judge_apply(&request),
                program => rights.judge_run(program, request.keys()),
            },
            Ok(Item::Run(run)) => {
                let name = self.programs.name_of(&run);
                let name = name.as_ref().map(ShownName::as_str);
                return rights.judge_run(name, run.keys()).is_err();
            }
            Ok(Item::Scan(scan)) => rights.judge_scan(&scan),
            Ok(Item::Script(script)) => return judge_script(rights, &script).is_err(),
        };
        judged.is_err()
    }
}

/// The level and the lifetime in milliseconds that the settings of its keyspaces give an item. A
/// program looks up by itself the lifetimes of its keys.
#[cold]
pub(crate) fn obey<P: Blocks>(
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
                let key = request.key_at(key);
                check_value(store, slot_of(key), key, value)?;
            }
            for key in request.keys_with_members() {
                let key = request.key_at(key);
                check_members(store, slot_of(key), key)?;
            }
            let levels = request
                .keys()
                .map(|key| least_level(store, slot_of(key), key, is_unleveled));
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
pub(crate) fn check_value<P: Blocks>(
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

/// Whether the keyspace of a key takes values with members.
pub(crate) fn check_members<P: Blocks>(
    store: &Store<P>,
    slot: u16,
    key: &[u8],
) -> Result<(), Refusal> {
    let Some((prefix, settings)) = store.keyspaces().of(slot, key) else {
        return Ok(());
    };
    let rule = match settings {
        settings if settings.keeps_versions() => "keeps versions",
        settings if settings.layout != 0 => "has a layout",
        _ => return Ok(()),
    };
    let keyspace = KeyspaceName::new(prefix);
    Err(Refusal::KeyspaceMembers { keyspace, rule })
}

/// The level that the keyspace of a key gives a request at least, which may have named none.
#[inline]
pub(crate) fn least_level<P: Blocks>(
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
pub(crate) fn level_of(settings: &Settings, is_unleveled: bool) -> AckLevel {
    let least = AckLevel::from_code(settings.level_min).unwrap_or_default();
    match read_default(settings.level_default) {
        Ok(Some(level)) if is_unleveled => least.max(level),
        _ => least,
    }
}
