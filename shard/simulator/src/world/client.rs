//! Clients and the network between: what is asked, and how answers are judged.

use std::collections::{BTreeMap, VecDeque};

use penstock_net::batch::Batch;
use penstock_net::frame::{FLAG_MORE, FLAG_REPLY, Header, Opcode, write_frame};
use penstock_net::hello::ClientHello;
use penstock_net::instruction;
use penstock_net::instruction::{FieldType, Instruction};
use penstock_net::keyspace::{Action, At, Settings};
use penstock_net::level::AckLevel;
use penstock_net::receive::{Received, Receiver};
use penstock_net::reply::{ReplyItem, read_batch_reply, text_of};
use penstock_net::request::{BatchRequest, Condition, Expiry, Wanted, When};
use penstock_net::status::Status;
use penstock_shard::Topology;

use crate::coverage::Fault;
use crate::operation::Operation;
use crate::oracle;
use crate::oracle::REPEATS_MAX;
use crate::plan::{KEYSPACE, LONGER, Plan};
use crate::scan::Scan;

use super::{Asked, Event, Link, Phase, Step, World};

impl World {
    pub(super) fn delay(&mut self) -> u64 {
        let delay_us = self.network.latency(self.plan.network_us);
        if self.network.chance(self.plan.slow_network) {
            self.hit(Fault::SlowNetwork);
            return (delay_us * 1000).min(10_000_000);
        }
        delay_us
    }

    pub(super) fn pieces(&mut self, bytes: Vec<u8>) -> Vec<Vec<u8>> {
        if bytes.len() < 2 || !self.network.chance(60_000) {
            return vec![bytes];
        }
        self.hit(Fault::SplitBytes);
        let mut pieces = Vec::new();
        let mut rest = &bytes[..];
        while !rest.is_empty() && pieces.len() < 5 {
            let (piece, left) = rest.split_at(1 + self.network.index(rest.len()));
            pieces.push(piece.to_vec());
            rest = left;
        }
        if !rest.is_empty() {
            pieces.push(rest.to_vec());
        }
        pieces
    }

    pub(super) fn send_to_server(&mut self, link: usize, bytes: Vec<u8>) {
        let pieces = self.pieces(bytes);
        for piece in pieces {
            let delay_us = self.delay();
            let state = &mut self.links[link];
            state.server_us = state.server_us.max(self.now_us + delay_us);
            let when_us = state.server_us;
            self.at(when_us, Event::ToServer { link, bytes: piece });
        }
    }

    pub(super) fn wake(&mut self, client: usize, typical_us: u64) {
        if !self.clients[client].is_awake {
            self.clients[client].is_awake = true;
            let delay_us = self.workload.latency(typical_us.max(1));
            self.at(self.now_us + delay_us, Event::Client { client });
        }
    }

    pub(super) fn open_link(&mut self, client: Option<usize>) -> usize {
        let shard = self.workload.index(usize::from(self.layout.shards));
        let link = self.links.len();
        self.links.push(Link {
            client,
            run: self.run,
            shard,
            session: None,
            inbound: Vec::new(),
            server_us: self.now_us,
            client_us: self.now_us,
            is_abandoned: false,
            is_closed: false,
            is_reading: true,
            unread: VecDeque::new(),
            receiver: Receiver::new(8 << 20),
            buffer: Vec::new(),
            is_ready: false,
            next_request: 1,
            outstanding: BTreeMap::new(),
            page: None,
            alone: None,
            deadline_ms: 0,
            delivered_us: 0,
            output_us: None,
        });
        let delay_us = self.delay();
        self.links[link].server_us += delay_us;
        let when_us = self.links[link].server_us;
        self.at(when_us, Event::Connect { link });
        link
    }

    pub(super) fn client(&mut self, client: usize) -> Step {
        if self.is_visitor(client) {
            return self.visit(client);
        }
        match self.clients[client].link {
            None => {
                let is_served = self.node.as_ref().is_some_and(|node| !node.is_stopping);
                if !is_served {
                    self.wake(client, 20_000);
                    return Ok(());
                }
                let link = self.open_link(Some(client));
                self.clients[client].link = Some(link);
                let mut bytes = Vec::new();
                ClientHello {
                    protocol_min: 1,
                    protocol_max: 1,
                    features: 0,
                    name: "simulated",
                }
                .write(&mut bytes, 0);
                self.send_to_server(link, bytes);
                Ok(())
            }
            Some(link) if self.links[link].is_ready => {
                self.send_some(client, link);
                Ok(())
            }
            Some(_) => Ok(()),
        }
    }

    /// Sends a batch, if the client may have one more on its way.
    fn send_some(&mut self, client: usize, link: usize) {
        let may_send = match self.phase {
            Phase::Traffic => self.issued < self.plan.operations,
            _ => false,
        };
        if !may_send || self.links[link].outstanding.len() >= self.plan.depth_max {
            return;
        }
        if self.workload.chance(10_000) {
            self.coverage.borrow_mut().operation(Operation::Ping);
            let request = self.next_request(link);
            let mut bytes = Vec::new();
            let body = [7; 16];
            write_frame(
                &mut bytes,
                Header::request(Opcode::Ping, request, AckLevel::None, 0),
                &body,
            );
            self.links[link].alone = None;
            self.links[link].outstanding.insert(request, vec![None]);
            self.send_to_server(link, bytes);
            self.wake(client, self.plan.think_us);
            return;
        }
        if self.workload.chance(100_000) {
            self.send_page(client, link);
            self.wake(client, self.plan.think_us);
            return;
        }
        if self.sales.is_some() && self.tokens.chance(250_000) {
            self.send_sales(link);
            self.wake(client, self.plan.think_us);
            return;
        }
        if self.holds.is_some() && self.expiries.chance(250_000) {
            self.send_holds(link);
            self.wake(client, self.plan.think_us);
            return;
        }
        if self.transactions.is_some()
            && self.commits.chance(250_000)
            && self.send_transactions(link)
        {
            self.wake(client, self.plan.think_us);
            return;
        }
        let level = self.workload.pick(self.plan.levels);
        let count = 1 + self.workload.index(self.plan.batch_max);
        let mut plans = Vec::new();
        if self.plan.is_wide && self.filled < self.plan.keys.len() {
            for key in (self.filled..self.plan.keys.len()).take(count) {
                plans.push(oracle::Plan {
                    units: 1,
                    stock: 100_000 * u64::from(self.plan.keys[key].2),
                    value_bytes: 64,
                    expected: self.oracle.seen_version(key),
                    expiry: Expiry::Never,
                    ..oracle::Plan::new(Operation::Set, key, AckLevel::Disk)
                });
            }
            self.filled += plans.len();
            self.send_batch(link, AckLevel::Disk, plans);
            self.wake(client, self.plan.think_us);
            return;
        }
        for _ in 0..count {
            if let Some(plan) = self.plan_past(level).or_else(|| self.plan_apply(level)) {
                plans.push(plan);
                continue;
            }
            let retried = match self.clients[client].retries.pop_front() {
                Some(plan) if plan.level == level => {
                    self.coverage.borrow_mut().operation(Operation::Retry);
                    Some(oracle::Plan { repeats: 0, ..plan })
                }
                _ => None,
            };
            let plan = retried.or_else(|| self.plan_operation(level));
            plans.extend(plan);
        }
        self.repeat_last(&mut plans);
        self.send_batch(link, level, plans);
        self.wake(client, self.plan.think_us);
    }

    /// Asks for the next page of the client's scan, or for the first of another one.
    pub(super) fn send_page(&mut self, client: usize, link: usize) {
        let is_asked = |(scan, _): &(Scan, u64)| scan.is_asked();
        if self.clients[client].scan.as_ref().is_some_and(is_asked) {
            return;
        }
        let times_ms: Vec<u64> = (0..self.plan.keys.len())
            .map(|key| self.time_ms(key))
            .collect();
        let now = self.oracle.glimpse(|key| times_ms[key]);
        let (mut scan, run) = match self.clients[client].scan.take() {
            Some(scan) => scan,
            None if self.phase == Phase::Traffic => {
                // Some keys are only ever used at level disk.
                let level = match self.plan.levels.contains(&AckLevel::Disk) {
                    true => AckLevel::Disk,
                    false => self.workload.pick(self.plan.levels),
                };
                let scan = Scan::begin(&mut self.workload, level, now.clone());
                (scan, self.run)
            }
            None => (Scan::last(now.clone()), self.run),
        };
        self.coverage.borrow_mut().operation(Operation::Scan);
        let item = scan.ask(&mut self.workload, now);
        let request = self.next_request(link);
        let mut out = Vec::new();
        let mut batch = BatchRequest::begin(&mut out, request, scan.level(), 0, 1);
        batch.raw(&mut out, &item);
        batch.finish(&mut out);
        self.clients[client].scan = Some((scan, run));
        let state = &mut self.links[link];
        state.alone = None;
        state.page = Some(request);
        state.outstanding.insert(request, vec![None]);
        self.send_to_server(link, out);
    }

    /// A page came.
    fn page(&mut self, link: usize, item: &ReplyItem<'_>) -> Step {
        let client = self.links[link].client.expect("a client asked for it");
        let times_ms: Vec<u64> = (0..self.plan.keys.len())
            .map(|key| self.time_ms(key))
            .collect();
        let (mut scan, run) = self.clients[client].scan.take().expect("it is in a scan");
        let expired = self.oracle.expired;
        let is_over = scan.answer(self.now_us, &mut self.oracle, item, |key| times_ms[key])?;
        if self.oracle.expired > expired {
            self.coverage.borrow_mut().operation(Operation::Expired);
        }
        if !is_over {
            self.clients[client].scan = Some((scan, run));
        } else if item.head.status == Status::Ok {
            self.has_scanned |= scan.is_last;
            if run < self.run {
                let mut coverage = self.coverage.borrow_mut();
                coverage.operation(Operation::ScanOverStart);
            }
        }
        Ok(())
    }

    pub(super) fn next_request(&mut self, link: usize) -> u64 {
        let state = &mut self.links[link];
        state.next_request += 1;
        state.next_request
    }

    /// An operation at this level, or nothing if the key that chance picked is not for it.
    fn plan_operation(&mut self, level: AckLevel) -> Option<oracle::Plan> {
        let key = self.plan.key(&mut self.workload);
        let time_ms = self.time_ms(key);
        let random = &mut self.workload;
        let (_, slot, is_counter, is_strict) = self.plan.keys[key];
        let is_memory_only = !self.plan.levels.contains(&AckLevel::Disk);
        if is_strict && level != AckLevel::Disk && !is_memory_only {
            return None;
        }
        let operation = self.plan.operation(random, is_counter);
        let expiry = Plan::expiry(random, operation, self.plan.expiring[key], time_ms)?;
        let mut other = None;
        if matches!(operation, Operation::Move | Operation::GiveOther) {
            let twins: Vec<usize> = (0..self.plan.keys.len())
                .filter(|&twin| {
                    let (_, twin_slot, twin_counts, twin_strict) = self.plan.keys[twin];
                    twin != key && twin_slot == slot && twin_counts && !twin_strict
                })
                .collect();
            if is_strict || twins.is_empty() {
                return None;
            }
            other = Some(random.pick(&twins));
        }
        let value_bytes = match operation {
            // Of no start.
            Operation::SetTooLarge => self.plan.value_bytes_max + 1 + random.index(100),
            _ => 8 + random.index(self.value_bytes_max - 7),
        };
        Some(oracle::Plan {
            other,
            units: random.pick(&[1, 1, 1, 2, 5]),
            stock: if is_counter {
                random.pick(&[0, 3, 40, 100_000])
            } else {
                0
            },
            value_bytes,
            expected: self.oracle.seen_version(key),
            expiry,
            ..oracle::Plan::new(operation, key, level)
        })
    }

    /// Now and then the last operation of a batch comes again and again: with the same bytes, with
    /// those of one of its repeats, or with other operands.
    fn repeat_last(&mut self, plans: &mut Vec<oracle::Plan>) {
        let Some(last) = plans.last().cloned() else {
            return;
        };
        let is_one_of_those = matches!(
            last.operation,
            Operation::Take | Operation::TakeAndFail | Operation::Check
        );
        // Where versions are kept each item runs by itself.
        let may_be_run = is_one_of_those && !self.plan.keeps_versions;
        if !may_be_run || last.expiry != Expiry::Keep || !self.repeats.chance(400_000) {
            return;
        }
        let (_, _, _, is_strict) = self.plan.keys[last.key];
        // The search of the second judge doubles with each that runs beside another. What was
        // promised at level interval is judged by one operation of each name.
        let most = if is_strict { 3 } else { REPEATS_MAX };
        let may_be_same = last.level != AckLevel::Interval;
        let first = plans.len() - 1;
        for _ in 0..1 + self.repeats.index(most - 1) {
            let sent = plans.len();
            let (back, units) = match self.repeats.below(5) {
                0 => (0, self.repeats.pick(&[1, 1, 2, 5])),
                1 => (1 + self.repeats.index(sent - first), 0),
                _ => (1, 0),
            };
            let plan = match back {
                0 => {
                    self.coverage
                        .borrow_mut()
                        .operation(Operation::OtherOperands);
                    oracle::Plan {
                        units,
                        ..last.clone()
                    }
                }
                back => plans[sent - back].clone(),
            };
            let repeats = if may_be_same { back } else { 0 };
            plans.push(oracle::Plan { repeats, ..plan });
        }
    }

    /// Now and then something about the keyspace that keeps versions, if there is one.
    fn plan_past(&mut self, level: AckLevel) -> Option<oracle::Plan> {
        if !self.plan.keeps_versions {
            return None;
        }
        let is_first = !std::mem::replace(&mut self.has_keyspace, true);
        let key = self.plan.key(&mut self.past);
        let (_, _, _, is_strict) = self.plan.keys[key];
        let operation = match self.past.below(1_000) {
            _ if is_first => Operation::SetKeyspace,
            0..2 => Operation::SetKeyspace,
            2..4 => Operation::SetLonger,
            4 => Operation::DropLonger,
            5..60 => Operation::GetAtVersion,
            60..100 => Operation::GetAtTime,
            100..150 => Operation::History,
            _ => return None,
        };
        let is_memory_only = !self.plan.levels.contains(&AckLevel::Disk);
        if is_strict && level != AckLevel::Disk && !is_memory_only && !operation.is_setting() {
            return None;
        }
        let (versions, retention_ms) = Plan::keyspace(&mut self.past);
        let time_ms = self.time_ms(key);
        let (units, stock) = match operation {
            operation if operation.is_setting() => (u64::from(versions), retention_ms),
            _ => {
                let ago_ms = self.past.pick(&[0, 1, 10, 100, 1_000]);
                (
                    0,
                    time_ms.saturating_sub(self.past.below(ago_ms + 1)).max(1),
                )
            }
        };
        let expected = self.oracle.some_version(key, &mut self.past);
        Some(oracle::Plan {
            units,
            stock,
            expected,
            ..oracle::Plan::new(operation, key, level)
        })
    }

    /// The time of the shard that owns a key; 0 while there is none.
    pub(super) fn time_ms(&self, key: usize) -> u64 {
        let owner = Topology::new(self.layout.shards).owner(self.plan.keys[key].1);
        self.node.as_ref().map_or(0, |node| {
            node.cores[usize::from(owner)]
                .shard
                .store()
                .data()
                .time_ms()
        })
    }

    pub(super) fn send_batch(&mut self, link: usize, level: AckLevel, plans: Vec<oracle::Plan>) {
        if plans.is_empty() {
            return;
        }
        let request = self.next_request(link);
        let deadline_ms =
            if self.phase == Phase::Traffic && self.workload.chance(self.plan.deadlines) {
                u16::try_from(self.workload.within(1, 3)).expect("small")
            } else {
                0
            };
        let mut out = Vec::new();
        let mut batch = BatchRequest::begin(&mut out, request, level, deadline_ms, plans.len());
        let mut numbers = Vec::new();
        for plan in plans {
            self.issued += 1;
            self.coverage.borrow_mut().operation(plan.operation);
            if plan.repeats > 0 {
                self.coverage.borrow_mut().operation(Operation::Repeat);
            }
            self.count_cold(&plan);
            if plan.expiry == Expiry::Keep && plan.operation.is_set() {
                self.coverage.borrow_mut().operation(Operation::KeepExpiry);
            }
            self.oracle.time_ms = self.time_ms(plan.key);
            let number = self.oracle.issue(plan, link as u64);
            numbers.push(Some(Asked::Operation(number)));
            self.encode(&mut batch, &mut out, number);
        }
        batch.finish(&mut out);
        let state = &mut self.links[link];
        state.alone = (state.outstanding.is_empty() && numbers.len() == 1).then_some(request);
        state.deadline_ms = u64::from(deadline_ms);
        state.outstanding.insert(request, numbers);
        self.send_to_server(link, out);
    }

    fn encode(&mut self, batch: &mut BatchRequest, out: &mut Vec<u8>, number: usize) {
        if self.oracle.records[number].plan.operation == Operation::TakeOrMake {
            self.oracle.records[number].plan.stock = Plan::made_stock(number);
        }
        let plan = self.oracle.records[number].plan.clone();
        let key = &self.plan.keys[plan.key].0;
        let value = self.oracle.value(number);
        let shows = oracle::asks_for_what_won(number, plan.operation);
        let when = |condition| When { condition, shows };
        let version = when(Condition::Version(plan.expected));
        match plan.operation {
            Operation::Get => batch.get(out, key),
            Operation::GetExpiry => batch.get_with(out, key, Wanted::ValueAndExpiry),
            Operation::Set
            | Operation::SetTooLarge
            | Operation::Ping
            | Operation::Repeat
            | Operation::OtherOperands
            | Operation::AnsweredInRun
            | Operation::Retry
            | Operation::KeepExpiry
            | Operation::Expired
            | Operation::Scan
            | Operation::ScanOverStart
            | Operation::ApplyDone
            | Operation::ApplyDenied
            | Operation::ApplyMissed
            | Operation::ApplyOutrun
            | Operation::ApplyRefused
            | Operation::ApplyCold
            | Operation::ApplyWide => {
                let value = match plan.operation {
                    Operation::SetTooLarge => vec![1; plan.value_bytes],
                    _ => value,
                };
                batch.set_with(out, key, &value, Condition::Always, plan.expiry);
            }
            Operation::SetAbsent => {
                batch.set_with(out, key, &value, when(Condition::Absent), plan.expiry);
            }
            Operation::SetPresent => {
                batch.set_with(out, key, &value, Condition::Present, plan.expiry);
            }
            Operation::SetVersion => batch.set_with(out, key, &value, version, plan.expiry),
            Operation::GetAtVersion => batch.get_at(out, key, At::Version(plan.expected)),
            Operation::GetAtTime => batch.get_at(out, key, At::TimeMs(plan.stock)),
            Operation::History => batch.history(out, key, 0, 1024),
            Operation::DropLonger => batch.keyspace(out, LONGER, Action::Drop),
            Operation::SetKeyspace | Operation::SetLonger => {
                let settings = Settings {
                    versions: u8::try_from(plan.units).expect("a small number"),
                    retention_ms: plan.stock,
                    ..Settings::default()
                };
                let prefix = match plan.operation {
                    Operation::SetLonger => LONGER,
                    _ => KEYSPACE,
                };
                batch.keyspace(out, prefix, Action::Set(settings));
            }
            Operation::Buy
            | Operation::BuyAndFail
            | Operation::Pour
            | Operation::Drain
            | Operation::Renew
            | Operation::InTime
            | Operation::OnVersion
            | Operation::Rated
            | Operation::Sum
            | Operation::ApplyTooMuch => batch.apply(out, &self.oracle.apply_of(number)),
            Operation::Del => batch.del(out, key, Condition::Always),
            Operation::DelVersion => batch.del(out, key, version),
            Operation::Expire
            | Operation::Persist
            | Operation::Take
            | Operation::TakeOrMake
            | Operation::TakeAndFail
            | Operation::Check
            | Operation::CheckOrMake
            | Operation::GiveOther
            | Operation::Move => {
                let other = plan.other.map(|other| &self.plan.keys[other].0[..]);
                let name = self.oracle.records[number].name as u64;
                let (steps, start) = update_of(&plan, name, &value);
                let expiry = match plan.operation {
                    Operation::Check
                    | Operation::CheckOrMake
                    | Operation::GiveOther
                    | Operation::Move => Expiry::Keep,
                    _ => plan.expiry,
                };
                batch.update_if_with(out, key, other, &steps, start, expiry);
            }
        }
    }

    pub(super) fn reach_client(&mut self, link: usize, bytes: Vec<u8>) -> Step {
        let state = &mut self.links[link];
        if state.is_abandoned
            || (state.is_closed && self.node.as_ref().is_none_or(|node| node.run != state.run))
        {
            return Ok(());
        }
        if !state.is_reading {
            state.unread.push_back(bytes);
            return Ok(());
        }
        self.at(self.now_us, Event::Sent { link });
        let state = &mut self.links[link];
        let Some(client) = state.client else {
            return Ok(());
        };
        if let Some(reached) = self.reach_visitor(link, &bytes) {
            return reached;
        }
        let state = &mut self.links[link];
        state.buffer.extend_from_slice(&bytes);
        let buffer = std::mem::take(&mut state.buffer);
        let mut start = 0;
        let mut receiver = state.receiver.clone();
        loop {
            match receiver.next(&buffer[start..]) {
                Received::Incomplete { .. } => break,
                Received::Frame {
                    header,
                    body,
                    consumed,
                } => {
                    self.frame(link, &header, body)?;
                    start += consumed;
                }
                other => return Err(format!("the server sent no frame: {other:?}")),
            }
        }
        self.links[link].receiver = receiver;
        self.links[link].buffer = buffer[start..].to_vec();
        self.wake(client, self.plan.think_us);
        Ok(())
    }

    fn frame(&mut self, link: usize, header: &Header, body: &[u8]) -> Step {
        if header.flags & FLAG_REPLY == 0 {
            return Err("the server sent a frame that is no reply".into());
        }
        let request = header.request_id;
        match Opcode::from_code(header.opcode) {
            Some(Opcode::Hello) if request == 0 && header.level_or_status == 0 => {
                self.links[link].is_ready = true;
                return Ok(());
            }
            Some(Opcode::Ping) if body == [7; 16] => {
                return match self.links[link].outstanding.remove(&request) {
                    Some(_) => Ok(()),
                    None => Err(format!("PING {request} was answered twice")),
                };
            }
            Some(Opcode::Batch) if header.level_or_status == 0 => {}
            _ => {
                return Err(format!(
                    "frame {request} was refused with {:#x}: {}",
                    header.level_or_status,
                    text_of(body).unwrap_or("no text")
                ));
            }
        }
        let batch = read_batch_reply(body).map_err(|refusal| refusal.to_string())?;
        judge_retry_after(header, &batch)?;
        for place in 0..batch.len() {
            let item = ReplyItem::read(batch.item(place)).map_err(|refusal| refusal.to_string())?;
            if self.links[link]
                .page
                .take_if(|page| *page == request)
                .is_some()
            {
                self.page(link, &item)?;
                continue;
            }
            let waiting = self.links[link]
                .outstanding
                .get_mut(&request)
                .and_then(|items| items.get_mut(usize::from(item.head.item)))
                .and_then(Option::take);
            let Some(asked) = waiting else {
                return Err(format!(
                    "item {} of request {request} was answered and nobody asked, or twice",
                    item.head.item
                ));
            };
            self.answered += 1;
            self.coverage.borrow_mut().status(item.head.status.name());
            let number = match asked {
                Asked::Operation(number) => number,
                Asked::Try(number) => {
                    self.answer_sale(number, &item)?;
                    continue;
                }
                Asked::Hold(number) => {
                    self.answer_hold(number, &item)?;
                    continue;
                }
                other => {
                    self.answer_other(other, &item)?;
                    continue;
                }
            };
            self.judge_deadline(link, header, batch.len(), number, item.head.status)?;
            self.oracle.time_ms = self.time_ms(self.oracle.records[number].plan.key);
            let expired = self.oracle.expired;
            self.oracle.answer(self.now_us, number, &item)?;
            self.count_apply(number, item.head.status);
            if self.oracle.expired > expired {
                self.coverage.borrow_mut().operation(Operation::Expired);
            }
        }
        let is_whole = self.links[link]
            .outstanding
            .get(&request)
            .is_none_or(|items| items.iter().all(Option::is_none));
        let has_more = header.flags & FLAG_MORE != 0;
        if has_more == is_whole {
            return Err(format!(
                "a frame that answers request {request} says more follow: {has_more}; it is \
                 answered whole: {is_whole}"
            ));
        }
        if is_whole {
            self.links[link].outstanding.remove(&request);
        }
        Ok(())
    }

    fn answer_other(&mut self, asked: Asked, item: &ReplyItem<'_>) -> Step {
        match asked {
            Asked::Question(number) => self.answer_question(number, item),
            Asked::Act(number) => self.answer_act(number, item),
            Asked::LastRead(at) => self.answer_last_read(at, item),
            other => Err(format!("{other:?} is answered by no item")),
        }
    }

    fn lose_other(&mut self, asked: Asked) {
        match asked {
            Asked::Question(number) => self.lose_question(number),
            Asked::Visit(visitor) => self.lose_visit(visitor),
            _ => {}
        }
    }

    /// An answer that waited for nothing and nobody tells how long the server took.
    fn judge_deadline(
        &self,
        link: usize,
        header: &Header,
        items: usize,
        number: usize,
        status: Status,
    ) -> Step {
        let state = &self.links[link];
        let record = &self.oracle.records[number];
        let is_alone = state.alone == Some(header.request_id) && items == 1;
        let took_us = state
            .output_us
            .map_or(0, |output_us| output_us - state.delivered_us);
        let allowed_us = state.deadline_ms * 1000;
        if is_alone
            && allowed_us > 0
            && record.plan.level == AckLevel::None
            && self.plan.level_min == AckLevel::None
            && record.plan.operation == Operation::Get
            // What another shard answers waits behind that shard's earlier answers.
            && usize::from(Topology::new(self.layout.shards).owner(self.plan.keys[record.plan.key].1))
                == state.shard
            && matches!(status, Status::Ok | Status::NotFound)
            // It may have run before the whole process stood still, and left after that.
            && self.paused_until_us < state.delivered_us
            && took_us > allowed_us + 1_000
        {
            return Err(format!(
                "operation {number} was to run within {} ms and ran after {took_us} us",
                state.deadline_ms
            ));
        }
        Ok(())
    }

    /// The client learns that its connection is gone.
    pub(super) fn client_sees_close(&mut self, link: usize) {
        if self.links[link].is_abandoned {
            return;
        }
        self.give_up(link);
    }

    /// What was not answered on a connection is unknown from now on.
    pub(super) fn give_up(&mut self, link: usize) {
        let state = &mut self.links[link];
        state.is_abandoned = true;
        let outstanding = std::mem::take(&mut state.outstanding);
        let client = state.client;
        if state.page.take().is_some()
            && let Some(client) = client
            && let Some((scan, _)) = &mut self.clients[client].scan
        {
            scan.lose();
        }
        for asked in outstanding.into_values().flatten().flatten() {
            let number = match asked {
                Asked::Operation(number) => number,
                Asked::Try(number) => {
                    self.lose_sale(number);
                    continue;
                }
                Asked::Hold(number) => {
                    self.lose_hold(number);
                    continue;
                }
                other => {
                    self.lose_other(other);
                    continue;
                }
            };
            self.oracle.lost(number);
            if let Some(client) = client
                && self.clients[client].retries.len() < 64
            {
                let plan = self.oracle.records[number].plan.clone();
                self.clients[client].retries.push_back(plan);
            }
        }
        if let Some(client) = client
            && self.clients[client].link == Some(link)
        {
            self.clients[client].link = None;
            self.wake(client, 3_000);
        }
    }
}

/// The instructions of an UPDATE_IF, and its start value. Each effect notes the operation's name.
fn update_of<'a>(
    plan: &oracle::Plan,
    name: u64,
    value: &'a [u8],
) -> (Vec<Instruction>, Option<&'a [u8]>) {
    use instruction::Operation as I;
    let instruction = |operation, key, offset, immediate| Instruction {
        operation,
        field_type: FieldType::U64,
        key,
        reason: 1,
        offset,
        immediate,
    };
    let units = plan.units;
    let takes = || {
        vec![
            instruction(I::Ge, 0, 0, units),
            instruction(I::Sub, 0, 0, units),
            instruction(I::Set, 0, 8, name),
        ]
    };
    match plan.operation {
        Operation::Expire | Operation::Persist => {
            let steps = [
                instruction(I::Add, 0, 0, 0),
                instruction(I::Set, 0, 8, name),
            ];
            (steps.into(), None)
        }
        Operation::Take => (takes(), None),
        Operation::TakeOrMake => (takes(), Some(value)),
        Operation::TakeAndFail => {
            let mut steps = takes();
            steps.push(instruction(I::Eq, 0, 16, u64::MAX));
            // With an expiry it also starts from a value, in vain.
            (steps, (plan.expiry != Expiry::Keep).then_some(value))
        }
        Operation::Check => (vec![instruction(I::Ge, 0, 0, units)], None),
        Operation::CheckOrMake => (vec![instruction(I::Ge, 0, 0, 0)], Some(value)),
        Operation::GiveOther => {
            let steps = [
                instruction(I::Ge, 0, 0, 0),
                instruction(I::Add, 1, 0, units),
                instruction(I::Set, 1, 8, name),
            ];
            (steps.into(), None)
        }
        Operation::Move => {
            let steps = [
                instruction(I::Ge, 0, 0, units),
                instruction(I::Sub, 0, 0, units),
                instruction(I::Add, 1, 0, units),
                instruction(I::Set, 0, 8, name),
                instruction(I::Set, 1, 8, name),
            ];
            (steps.into(), None)
        }
        other => panic!("{other:?} is no UPDATE_IF"),
    }
}

/// A frame with an item that is BUSY tells when to try again, and no other frame does.
fn judge_retry_after(header: &Header, batch: &Batch<'_>) -> Step {
    let retry_after_ms = header.deadline_or_retry_ms;
    let is_busy = |place| {
        let item = ReplyItem::read(batch.item(place));
        item.is_ok_and(|item| item.head.status == Status::Busy)
    };
    let expected = match (0..batch.len()).any(is_busy) {
        true => 1..=1000,
        false => 0..=0,
    };
    match expected.contains(&retry_after_ms) {
        true => Ok(()),
        false => Err(format!(
            "the frame tells to try again after {retry_after_ms} ms instead of {expected:?}"
        )),
    }
}
