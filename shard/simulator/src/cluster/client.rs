//! A client: one connection at a time to one of the nodes, one operation on its way.

use std::collections::BTreeMap;

use penstock_net::batch::Batch;
use penstock_net::frame::{FLAG_REPLY, Header, Opcode};
use penstock_net::hello::{ClientHello, FEATURE_ALL};
use penstock_net::instruction::{FieldType, Instruction, Operation as Act};
use penstock_net::level::AckLevel;
use penstock_net::receive::{Received, Receiver};
use penstock_net::reply::{ReplyHead, ReplyItem, read_batch_reply, text_of};
use penstock_net::request::{BatchRequest, Condition, Expiry, MemberRead, Version, Wanted};
use penstock_net::status::{Executed, Status};
use penstock_shard::{Event as ShardEvent, SessionId};

use super::applies::{self, Use};
use super::node::LIST_MAX;
use super::oracle::{Asked, Kind, Outcome, POTS, list_of, value_of};
use super::rushes::{RushBatch, RushItem, Rushes};
use super::{Event, GROUPS, NODES, Phase, Step, World, number_of};

/// How long a client waits for an answer, at most.
const PATIENCE_US: u64 = 2_000_000;

/// How often an answer has one of these is told.
const STATUSES_MET: &[Status] = &[
    Status::Moved,
    Status::NotPrimary,
    Status::NoReplicas,
    Status::NotFound,
    Status::VersionMismatch,
    Status::GuardFailed,
    Status::Stale,
    Status::Full,
];

pub(super) struct Client {
    /// The node that it asks.
    pub(super) node: usize,
    shard: usize,
    run: u64,
    pub(super) connection: Option<u64>,
    session: Option<SessionId>,
    is_ready: bool,
    pub(super) request: u64,
    pub(super) operation: Option<Operation>,
    /// What it knows of lists: version and entries.
    known: BTreeMap<Vec<u8>, (Option<Version>, Vec<u64>)>,
    inbound: Vec<u8>,
    buffer: Vec<u8>,
    server_us: u64,
    client_us: u64,
    /// When the last bytes of it came to the shard, and when the last ones of an answer left.
    came_us: u64,
    left_us: u64,
    /// It reads what members have, and nothing else.
    is_reader: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Operation {
    pub(super) key: Vec<u8>,
    pub(super) partition: u16,
    level: AckLevel,
    pub(super) what: What,
    /// Nodes that are joining and, if it is answered, have all that was acknowledged before.
    proves: Vec<u64>,
}

#[derive(Clone, Debug)]
pub(super) enum What {
    Get,
    Append {
        number: u64,
        list: Vec<u64>,
    },
    Raise,
    Change,
    Apply(Use),
    /// A try of a sale, by its number.
    Try(usize),
    /// A try of a hold, by its number.
    Hold(usize),
    /// A change of a keyspace.
    Settings,
    /// A list as it was.
    Past(Asked),
    /// Rushes of one partition, until all of them are answered.
    Rush(RushBatch),
    /// A read of a list that a member may answer. The append has the version that is wanted.
    ReadMember {
        read: MemberRead,
        number: Option<u64>,
    },
}

impl Client {
    pub(super) fn new(node: usize) -> Self {
        Client {
            node,
            shard: 0,
            run: 0,
            connection: None,
            session: None,
            is_ready: false,
            request: 0,
            operation: None,
            known: BTreeMap::new(),
            inbound: Vec::new(),
            buffer: Vec::new(),
            server_us: 0,
            client_us: 0,
            came_us: 0,
            left_us: 0,
            is_reader: false,
        }
    }

    pub(super) fn reader(node: usize) -> Self {
        Client {
            is_reader: true,
            ..Client::new(node)
        }
    }
}

impl World {
    pub(super) fn client_of(&self, node: usize, shard: usize, session: SessionId) -> Option<usize> {
        let run = self.nodes[node].run;
        self.clients.iter().position(|client| {
            (client.node, client.shard, client.run) == (node, shard, run)
                && client.session == Some(session)
        })
    }

    /// A client that waits for nothing does its next thing.
    pub(super) fn client(&mut self, client: usize) {
        let state = &self.clients[client];
        if state.operation.is_some() {
            return;
        }
        if self.phase != Phase::Traffic || self.issued >= self.setting.operations {
            return;
        }
        if state.connection.is_none() {
            self.connect_client(client);
            return;
        }
        if state.is_ready {
            self.ask(client);
        }
    }

    fn connect_client(&mut self, client: usize) {
        let node = self.clients[client].node;
        let is_there = self.nodes[node].cores.is_some();
        if !is_there || self.now_us < self.nodes[node].paused_until_us {
            self.clients[client].node = self.workload.index(NODES);
            let delay_us = self.workload.within(5_000, 50_000);
            self.after(delay_us, Event::Client { client });
            return;
        }
        let shard = self.workload.index(usize::from(self.nodes[node].shards));
        let now = self.now_of(node);
        let core = self.core(node, shard).expect("it runs");
        let session = core.shard.front_mut().open_session(now);
        let connection = self.next_connection;
        self.next_connection += 1;
        let run = self.nodes[node].run;
        let now_us = self.now_us;
        let state = &mut self.clients[client];
        state.connection = Some(connection);
        state.session = Some(session);
        (state.shard, state.run) = (shard, run);
        state.is_ready = false;
        state.inbound.clear();
        state.buffer.clear();
        (state.server_us, state.client_us) = (now_us, now_us);
        let mut bytes = Vec::new();
        ClientHello {
            protocol_min: 1,
            protocol_max: 1,
            features: FEATURE_ALL,
            name: "simulated",
        }
        .write(&mut bytes, 0);
        self.send_to_server(client, bytes);
    }

    fn send_to_server(&mut self, client: usize, bytes: Vec<u8>) {
        let delay_us = self.network.latency(self.setting.network_us);
        let now_us = self.now_us;
        let state = &mut self.clients[client];
        let connection = state.connection.expect("it is connected");
        state.server_us = state.server_us.max(now_us + delay_us);
        let when_us = state.server_us;
        let bytes = Event::ToServer {
            client,
            connection,
            bytes,
        };
        self.at(when_us, bytes);
    }

    pub(super) fn reach_server(&mut self, client: usize, connection: u64, bytes: Vec<u8>) {
        let state = &mut self.clients[client];
        if state.connection != Some(connection) {
            return;
        }
        let paused_until_us = self.nodes[state.node].paused_until_us;
        if self.now_us < paused_until_us {
            let again = Event::ToServer {
                client,
                connection,
                bytes,
            };
            self.at(paused_until_us, again);
            return;
        }
        state.inbound.extend_from_slice(&bytes);
        self.deliver(client);
    }

    pub(super) fn deliver(&mut self, client: usize) {
        let state = &mut self.clients[client];
        let (node, run, shard) = (state.node, state.run, state.shard);
        let bytes = std::mem::take(&mut state.inbound);
        let Some(session) = state.session else { return };
        if bytes.is_empty() || !self.is_run(node, run) {
            return;
        }
        self.clients[client].came_us = self.now_us;
        let received = ShardEvent::Received {
            session,
            bytes: &bytes,
        };
        let consumed = self.step(node, shard, received);
        self.clients[client].inbound = bytes[consumed..].to_vec();
        self.stop_behind_request(node);
    }

    pub(super) fn send_output(&mut self, node: usize, shard: usize, session: SessionId) {
        let now = self.now_of(node);
        let mut bytes = Vec::new();
        let core = self.core(node, shard).expect("it runs");
        core.shard.take_output(now, session, &mut bytes);
        let sent = ShardEvent::Sent { session };
        core.shard.step(now, sent, &mut core.outbox);
        let Some(client) = self.client_of(node, shard, session) else {
            return;
        };
        self.trace.fold_bytes(&bytes);
        let delay_us = self.network.latency(self.setting.network_us);
        let now_us = self.now_us;
        let state = &mut self.clients[client];
        let connection = state.connection.expect("it was found by it");
        state.left_us = now_us;
        state.client_us = state.client_us.max(now_us + delay_us);
        let when_us = state.client_us;
        let bytes = Event::ToClient {
            client,
            connection,
            bytes,
        };
        self.at(when_us, bytes);
    }

    /// The connection is of no use any more; what was on its way has an unknown outcome.
    pub(super) fn give_up(&mut self, client: usize) {
        let state = &mut self.clients[client];
        let (node, run, shard) = (state.node, state.run, state.shard);
        state.connection = None;
        let session = state.session.take();
        let operation = state.operation.take();
        state.node = self.workload.index(NODES);
        if let Some(session) = session
            && self.is_run(node, run)
        {
            self.step(node, shard, ShardEvent::Closed { session });
        }
        if let Some(operation) = &operation {
            self.meet("unknown at a client");
            match operation.what {
                What::Try(number) => self.lose_sale(number),
                What::Hold(number) => self.lose_hold(number),
                _ => {}
            }
        }
        if let Some(Operation { key, .. }) = operation {
            self.clients[client].known.remove(&key);
        }
        let delay_us = self.workload.latency(self.setting.think_us);
        self.after(delay_us, Event::Client { client });
    }

    /// Sends a read that a member may answer.
    fn read(&mut self, client: usize) {
        let group = self.reads.index(GROUPS);
        let number = self.reads.index(16);
        let (key, partition) = self.oracle.key(Kind::List, group, number);
        // Who wants much has nodes ask each other each millisecond, and that is known by now.
        let bounds: &[u64] = match self.deciders {
            Some(_) => &[0, 200_000, 200_000, u64::MAX],
            None => &[0, 2_000, 20_000, 200_000, 200_000, u64::MAX],
        };
        let staleness_us_max = self.reads.pick(bounds);
        let acked = self.oracle.last_acked(&key);
        let acked = acked.filter(|_| self.reads.chance(500_000));
        let read = MemberRead {
            staleness_us_max,
            version_min: acked.map_or(Version::default(), |(_, version)| version),
        };
        let request = self.clients[client].request + 1;
        let mut out = Vec::new();
        let mut batch = BatchRequest::begin(&mut out, request, AckLevel::Disk, 0, 1);
        batch.get_of_member(&mut out, &key, Wanted::Value, read);
        batch.finish(&mut out);
        let what = What::ReadMember {
            read,
            number: acked.map(|(number, _)| number),
        };
        self.send(client, out, (key, partition), AckLevel::Disk, what);
    }

    /// Sends the next operation.
    fn ask(&mut self, client: usize) {
        if self.clients[client].is_reader {
            return self.read(client);
        }
        let group = self.workload.index(GROUPS);
        let number = self.workload.index(16);
        let level = match (
            self.workload.chance(self.setting.replica_level),
            &mut self.levels,
        ) {
            (false, _) => AckLevel::Disk,
            (true, None) => AckLevel::Replica,
            (true, Some(levels)) => levels.pick(&[AckLevel::All, AckLevel::All, AckLevel::Replica]),
        };
        if self.ask_other(client, group, level) {
            return;
        }
        let request = self.clients[client].request + 1;
        let mut out = Vec::new();
        let mut batch = BatchRequest::begin(&mut out, request, level, 0, 1);
        let (kind, is_change) = match self.workload.below(10) {
            0 => (Kind::Pair, true),
            1..4 => (Kind::Churn, self.workload.chance(800_000)),
            _ => (Kind::List, true),
        };
        let (key, partition) = self.oracle.key(kind, group, number);
        let known = self.clients[client].known.get(&key).cloned();
        let what = match (kind, is_change, known) {
            (Kind::List, _, Some((version, mut list))) if list.len() < LIST_MAX => {
                let number = self.oracle.append(key.clone(), partition, self.now_us);
                list.push(number);
                let value = value_of(&list, self.workload.index(self.setting.value_bytes));
                let copy = match self.has_applies {
                    true => self.oracle.copy(&key, partition),
                    false => None,
                };
                match copy {
                    Some(copy) => {
                        self.meet("append by APPLY");
                        batch.apply(&mut out, &applies::append(&key, &copy, &value, version));
                    }
                    None => {
                        let condition = version.map_or(Condition::Absent, Condition::Version);
                        batch.set(&mut out, &key, &value, condition);
                    }
                }
                What::Append { number, list }
            }
            (Kind::List, _, known) => {
                if known.is_some() {
                    self.oracle.retire(group, number, &key);
                }
                batch.get(&mut out, &key);
                What::Get
            }
            (Kind::Pair, ..) => {
                let other = self.oracle.key(kind, group, number + 1).0;
                let add = |key: u8| Instruction {
                    operation: Act::Add,
                    field_type: FieldType::U64,
                    key,
                    reason: 1,
                    offset: 0,
                    immediate: 1,
                };
                batch.update_if(
                    &mut out,
                    &key,
                    Some(&other),
                    &[add(0), add(1)],
                    Some(&[0; 8]),
                );
                What::Raise
            }
            (Kind::Churn, true, _) if self.workload.chance(350_000) => {
                batch.del(&mut out, &key, Condition::Always);
                What::Change
            }
            (Kind::Churn, true, _) => {
                let len = 1 + self.workload.index(self.setting.value_bytes);
                let expiry = match self.harm.chance(self.harms.expiring) {
                    true => {
                        self.meet("expiring");
                        Expiry::In(self.harm.pick(&[1, 100, 3_000]))
                    }
                    false => Expiry::Never,
                };
                batch.set_with(&mut out, &key, &vec![7; len], Condition::Always, expiry);
                What::Change
            }
            (Kind::Churn, false, _) => {
                batch.get(&mut out, &key);
                What::Get
            }
        };
        batch.finish(&mut out);
        self.issued += 1;
        self.send(client, out, (key, partition), level, what);
    }

    /// Sends something that has a judge of its own, or nothing.
    fn ask_other(&mut self, client: usize, group: usize, level: AckLevel) -> bool {
        if self.sales.is_some() && self.tokens.chance(300_000) {
            self.send_sale(client, group, level);
        } else if self.holds.is_some() && self.expiries.chance(400_000) {
            self.send_hold(client, group, level);
        } else if self.rushes.as_mut().is_some_and(Rushes::is_due) {
            self.send_rushes(client, group, level);
        } else if self.settings.as_mut().is_some_and(|it| it.is_due()) {
            self.send_settings(client);
        } else if self.ask_past(client) {
            return true;
        } else if self.has_applies && self.applies.chance(200_000) {
            self.send_apply(client, group, level);
        } else {
            return false;
        }
        true
    }

    /// Sends an APPLY on keys that are there for that.
    fn send_apply(&mut self, client: usize, group: usize, level: AckLevel) {
        let (key, partition) = self.oracle.key(Kind::Pair, group, 0);
        let (what, apply) = match self.applies.below(4) {
            0 => {
                let other = self.oracle.key(Kind::Pair, group, 1).0;
                (Use::Raise, applies::raise(&key, &other))
            }
            1 => {
                let pots: Vec<_> = (0..POTS).map(|it| self.oracle.pot(group, it)).collect();
                (Use::Count, applies::count(&pots))
            }
            _ => {
                let pots = self.some_pots(group);
                let apply = applies::pour(&mut self.applies, &pots);
                (Use::Pour(pots.len()), apply)
            }
        };
        let request = self.clients[client].request + 1;
        let mut out = Vec::new();
        let mut batch = BatchRequest::begin(&mut out, request, level, 0, 1);
        batch.apply(&mut out, &apply);
        batch.finish(&mut out);
        self.issued += 1;
        self.send(client, out, (key, partition), level, What::Apply(what));
    }

    /// Sends the next batch to a group.
    fn send_rushes(&mut self, client: usize, group: usize, level: AckLevel) {
        let request = self.clients[client].request + 1;
        let rushes = self.rushes.as_mut().expect("the caller looked");
        let items = rushes.next(group, level);
        let partition = rushes.partition(group);
        let mut out = Vec::new();
        let mut batch = BatchRequest::begin(&mut out, request, level, 0, items.len());
        rushes.write(&items, &mut batch, &mut out);
        batch.finish(&mut out);
        self.issued += 1;
        let home = (Vec::new(), partition);
        self.send(client, out, home, level, What::Rush(items));
    }

    pub(super) fn send(
        &mut self,
        client: usize,
        out: Vec<u8>,
        (key, partition): (Vec<u8>, u16),
        level: AckLevel,
        what: What,
    ) {
        let proves = match (level, &what) {
            (AckLevel::Replica, What::Get) => self.proves(self.clients[client].node, partition),
            _ => Vec::new(),
        };
        let state = &mut self.clients[client];
        state.request += 1;
        let request = state.request;
        state.operation = Some(Operation {
            key,
            partition,
            level,
            what,
            proves,
        });
        let connection = state.connection.expect("it is ready");
        self.send_to_server(client, out);
        let timeout = Event::Timeout {
            client,
            connection,
            request,
        };
        self.after(PATIENCE_US, timeout);
    }

    pub(super) fn reach_client(&mut self, client: usize, connection: u64, bytes: &[u8]) -> Step {
        let state = &mut self.clients[client];
        if state.connection != Some(connection) {
            return Ok(());
        }
        state.buffer.extend_from_slice(bytes);
        let buffer = std::mem::take(&mut state.buffer);
        let mut start = 0;
        let mut receiver = Receiver::new(8 << 20);
        while let Received::Frame {
            header,
            body,
            consumed,
        } = receiver.next(&buffer[start..])
        {
            self.frame(client, &header, body)?;
            start += consumed;
        }
        let state = &mut self.clients[client];
        if state.connection == Some(connection) {
            state.buffer = buffer[start..].to_vec();
        }
        Ok(())
    }

    fn frame(&mut self, client: usize, header: &Header, body: &[u8]) -> Step {
        let is_reply = header.flags & FLAG_REPLY != 0 && header.level_or_status == 0;
        let state = &mut self.clients[client];
        match Opcode::from_code(header.opcode) {
            Some(Opcode::Hello) if is_reply => {
                state.is_ready = true;
                self.client(client);
                return Ok(());
            }
            Some(Opcode::Batch) if is_reply && header.request_id == state.request => {}
            _ => {
                return Err(format!(
                    "frame {} was refused with {:#x}: {}",
                    header.request_id,
                    header.level_or_status,
                    text_of(body).unwrap_or("no text")
                ));
            }
        }
        let batch = read_batch_reply(body).map_err(|refusal| refusal.to_string())?;
        if let Some(Operation {
            what: What::Rush(_),
            ..
        }) = &state.operation
        {
            return self.answer_rushes(client, batch);
        }
        if batch.len() != 1 {
            return Err(format!("one item was asked, {} answered", batch.len()));
        }
        let item = ReplyItem::read(batch.item(0)).map_err(|refusal| refusal.to_string())?;
        let level = state.operation.as_ref().map(|it| it.level);
        let item = self.as_asked(level.unwrap_or(AckLevel::Disk), item);
        self.answer(client, &item)
    }

    /// An answer by the level that was asked for: what is told `disk` at level `all`, because no
    /// other node may write next, is kept as all that is answered at that level.
    fn as_asked<'a>(&mut self, level: AckLevel, item: ReplyItem<'a>) -> ReplyItem<'a> {
        let ReplyItem { mut head, .. } = item;
        let is_done = head.status.executed() == Executed::Yes;
        if (level, head.level) == (AckLevel::All, AckLevel::Disk) && is_done {
            self.meet("level all reached by the disk alone");
            head.level = level;
        }
        ReplyItem { head, ..item }
    }

    /// Some items of a batch are answered, or all.
    fn answer_rushes(&mut self, client: usize, batch: Batch<'_>) -> Step {
        let state = &mut self.clients[client];
        let writer = (number_of(state.node), state.run);
        let mut operation = state.operation.take().expect("the caller looked");
        let (partition, level) = (operation.partition, operation.level);
        let What::Rush(items) = &mut operation.what else {
            unreachable!("the caller looked");
        };
        let mut is_elsewhere = false;
        for place in 0..batch.len() {
            let item = ReplyItem::read(batch.item(place)).map_err(|refusal| refusal.to_string())?;
            let item = self.as_asked(level, item);
            let ReplyHead {
                status,
                item: number,
                ..
            } = item.head;
            let asked = items.take(number);
            let asked = asked.ok_or_else(|| format!("item {number} is answered twice"))?;
            if STATUSES_MET.contains(&status) {
                self.meet(status.name());
            }
            if status.executed() == Executed::Yes && item.head.level < level {
                return Err(format!("{level:?} was asked for: {:?}", item.head));
            }
            is_elsewhere |= matches!(status, Status::Moved | Status::NotPrimary);
            self.answer_rush(asked, (partition, level), writer, &item)?;
        }
        if !items.is_answered() {
            self.clients[client].operation = Some(operation);
            return Ok(());
        }
        self.answered += 1;
        if is_elsewhere {
            self.go_elsewhere(client, partition);
        }
        self.think(client)
    }

    /// Takes the answer to an item of a batch.
    fn answer_rush(
        &mut self,
        asked: RushItem,
        (partition, level): (u16, AckLevel),
        writer: (u8, u64),
        item: &ReplyItem<'_>,
    ) -> Step {
        // Half of a scan may lack a change that was told.
        let is_judged = !self.is_incomplete_accepted;
        let rushes = self.rushes.as_mut().expect("it was asked");
        rushes.answer(asked, item, is_judged)?;
        let is_done = item.head.status.executed() == Executed::Yes;
        match asked {
            RushItem::Change { .. } if is_done => {
                self.oracle
                    .acknowledged(partition, item.head.version, level, writer)
            }
            _ => Ok(()),
        }
    }

    /// The keys of rushes, with their partitions.
    pub(super) fn rush_keys(&self) -> Vec<(Vec<u8>, u16)> {
        self.rushes.iter().flat_map(Rushes::keys).collect()
    }

    fn answer(&mut self, client: usize, item: &ReplyItem<'_>) -> Step {
        let state = &mut self.clients[client];
        let Some(operation) = state.operation.take() else {
            return Err(format!("request {} is answered twice", state.request));
        };
        self.answered += u64::from(!state.is_reader);
        let (status, version) = (item.head.status, item.head.version);
        let writer = (number_of(state.node), state.run);
        let (came_us, left_us) = (state.came_us, state.left_us);
        self.judge_answer(usize::from(writer.0) - 1, &operation, item, came_us)?;
        if STATUSES_MET.contains(&status) {
            self.meet(status.name());
        }
        let is_done = status.executed() == Executed::Yes;
        let Operation {
            key,
            partition,
            level,
            what,
            proves,
        } = operation;
        if is_done && item.head.level < level {
            return Err(format!(
                "{level:?} was asked for and {:?} is told",
                item.head.level
            ));
        }
        if is_done {
            self.proved(&proves);
        }
        let is_read = match &what {
            What::Get | What::ReadMember { .. } | What::Settings | What::Past(_) => true,
            What::Apply(Use::Count) => true,
            What::Try(number) => !self.is_change(*number, item),
            What::Hold(number) => !self.changes_hold(*number, item),
            _ => false,
        };
        let state = &mut self.clients[client];
        match what {
            What::Get => match status {
                Status::Ok if String::from_utf8_lossy(&key).contains("list") => {
                    let list = list_of(item.value).ok_or("a list is no list")?;
                    state.known.insert(key, (Some(version), list));
                }
                Status::NotFound => {
                    state.known.insert(key, (None, Vec::new()));
                }
                _ => {}
            },
            What::Append { number, list } => {
                state.known.remove(&key);
                let outcome = match status.executed() {
                    Executed::Yes => {
                        state.known.insert(key, (Some(version), list));
                        Outcome::Acked(level, version)
                    }
                    Executed::No => Outcome::Refused,
                    Executed::Unknown => Outcome::Unknown,
                };
                self.oracle.ended(number, writer.0, outcome, left_us);
            }
            What::ReadMember { read, number } => {
                if matches!(status, Status::Ok | Status::NotFound) {
                    self.judge_member_read(
                        usize::from(writer.0) - 1,
                        (&key, partition),
                        item,
                        (read, number, came_us),
                    )?;
                }
            }
            What::Apply(what) => {
                let numbers: Vec<u64> = (0..item.value.len() / 8)
                    .filter_map(|at| item.field(at))
                    .collect();
                self.applied(what, level, status, &numbers)?;
            }
            What::Try(number) => self.answer_sale(number, item)?,
            What::Hold(number) => self.answer_hold(number, item)?,
            What::Raise | What::Change => {}
            What::Settings => {
                self.answer_settings(usize::from(writer.0) - 1, status, came_us)?;
            }
            What::Past(asked) => self.answer_past(asked, partition, item)?,
            What::Rush(_) => unreachable!("a batch is answered item by item"),
        }
        if is_done && !is_read {
            self.oracle
                .acknowledged(partition, version, level, writer)?;
        }
        if matches!(status, Status::Moved | Status::NotPrimary) {
            self.go_elsewhere(client, partition);
        }
        self.think(client)
    }

    /// Connects a client to the node that the newest file names as the writer of a partition, or to
    /// any node.
    fn go_elsewhere(&mut self, client: usize, partition: u16) {
        let primary = self.plan.partitions[usize::from(partition)].primary;
        let node = match self.clients[client].is_reader {
            true => self.reads.index(NODES),
            false => match self.workload.chance(700_000) {
                true => usize::from(primary) - 1,
                false => self.workload.index(NODES),
            },
        };
        self.leave(client, node);
    }

    fn think(&mut self, client: usize) -> Step {
        let delay_us = match self.clients[client].is_reader {
            true => self.reads.latency(self.setting.think_us),
            false => self.workload.latency(self.setting.think_us),
        };
        self.after(delay_us, Event::Client { client });
        Ok(())
    }

    /// What was shown is no older than it says, and has the version that was wanted.
    fn judge_member_read(
        &mut self,
        node: usize,
        (key, partition): (&[u8], u16),
        item: &ReplyItem<'_>,
        (read, number, came_us): (MemberRead, Option<u64>, u64),
    ) -> Step {
        let standing = item.standing.ok_or("it is not told how new it is")?;
        let list = match item.head.status {
            Status::Ok => list_of(item.value).ok_or("a list is no list")?,
            _ => Vec::new(),
        };
        if standing.age_us > 0 {
            self.meet("read at a member");
            if number.is_some() {
                self.meet("read at a member with a version");
            }
        }
        // A node that begins with half of a scan lacks a part of its past. A node with an older
        // copy of its directory serves an older past until another node tells it so.
        if self.is_incomplete_accepted || self.has_gone_back {
            return Ok(());
        }
        if standing.age_us > read.staleness_us_max {
            return Err(format!("{standing:?} answers {read:?}"));
        }
        if let Some(number) = number.filter(|number| !list.contains(number)) {
            return Err(format!(
                "{standing:?} answers {read:?} without append {number}: {list:?}"
            ));
        }
        // An age is told by the clock of the node.
        let age_us = self.clocks[node].in_true_us(standing.age_us);
        let then_us = came_us.saturating_sub(age_us);
        if standing.age_us == 0 {
            self.judge_read(key, &list, came_us)?;
        }
        let missing = self
            .oracle
            .acked_before(key, partition, then_us, standing.through.epoch)
            .find(|number| !list.contains(number));
        match missing {
            None => Ok(()),
            Some(number) => Err(format!(
                "{standing:?} answers at {came_us} what {} was without append {number}: {list:?}",
                String::from_utf8_lossy(key)
            )),
        }
    }

    /// Goes to another node.
    fn leave(&mut self, client: usize, to: usize) {
        let state = &mut self.clients[client];
        let (node, run, shard) = (state.node, state.run, state.shard);
        if node == to {
            return;
        }
        state.connection = None;
        state.node = to;
        if let Some(session) = state.session.take()
            && self.is_run(node, run)
        {
            self.step(node, shard, ShardEvent::Closed { session });
        }
    }
}
