//! One run: a node of several shards, its disk, a network and clients, in one thread and in
//! virtual time.
//!
//! This is a second shell around the code that the server runs: it hands events to
//! [`Shard::step`] and carries out what the shard wants, as the server's cores do, and opens
//! shards with the server's own procedure. No decision of the server is made here.

mod applies;
mod blows;
mod client;
mod core;
mod holds;
mod node;
mod sales;
mod shell;
mod transactions;
mod visits;

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use penstock_net::receive::Receiver;
use penstock_shard::{Event as ShardEvent, Mail, Now, Outbox, SessionId, Shard, SnapshotWrite};
use penstock_storage::key_table::TableHome;
use penstock_storage::layout::Layout;
use penstock_storage::place::FileId;
use penstock_storage::place::Lsn;
use penstock_storage::version::{PARTITIONS, Sequences};

use crate::coverage::{Coverage, Fault};
use crate::disk::{Disk, Pool, PoolBlock, STALL_US_MAX};
use crate::holds::Holds;
use crate::oracle::{self, Oracle};
use crate::plan::{self, Blow, Budget, Plan, distinct_tags};
use crate::random::Random;
use crate::report::Report;
use crate::sales::Sales;
use crate::scan::Scan;
use crate::trace::Trace;
use crate::transactions::Transactions;

use visits::Visiting;

enum Event {
    Start,
    Turn {
        run: u64,
        shard: usize,
    },
    DiskDone {
        run: u64,
        shard: usize,
        ticket: u64,
    },
    Mail {
        run: u64,
        to: usize,
        mail: Mail,
    },
    Spare {
        run: u64,
        shard: usize,
    },
    Remove {
        run: u64,
        file: FileId,
    },
    Room {
        run: u64,
    },
    Snapshot {
        run: u64,
        shard: usize,
        write: SnapshotWrite,
    },
    KeyTable {
        run: u64,
        shard: usize,
        home: TableHome,
        /// An earlier run left it.
        is_left: bool,
    },
    /// IDENTITY is durable without the inherited logs.
    TakenOver {
        run: u64,
    },
    Exit {
        run: u64,
    },
    Connect {
        link: usize,
    },
    ToServer {
        link: usize,
        bytes: Vec<u8>,
    },
    Sent {
        link: usize,
    },
    ToClient {
        link: usize,
        bytes: Vec<u8>,
    },
    Closed {
        link: usize,
    },
    Client {
        client: usize,
    },
    SpaceIsBack,
    RunsAgain,
    EarlyCrash {
        run: u64,
    },
    ReadsAgain {
        link: usize,
    },
}

struct Core {
    shard: Shard<Pool>,
    outbox: Outbox<PoolBlock>,
    /// When its next turn is due.
    turn_us: Option<u64>,
    mail_us: Vec<u64>,
    /// Values that cleaning left out because they had expired, when a segment was released last.
    expired_dropped: u64,
    is_stopped: bool,
    /// The monotonic clock and the store's time when they were looked at last.
    seen: Option<(u64, u64)>,
}

impl Core {
    /// Whether the store's time went on as it should since it was looked at last.
    fn judge_time(&mut self, now: Now) -> Step {
        // One that has met its end looks at no clock any more.
        if self.outbox.fatal.is_some() {
            return Ok(());
        }
        let time_ms = self.shard.store().data().time_ms();
        if let Some((seen_us, seen_ms)) = self.seen {
            let passed_ms = (now.us - seen_us) / 1_000;
            let (least, most) = (passed_ms * 63 / 64, passed_ms * 65 / 64);
            // The store looks at its clocks once in a millisecond, and all is in whole ones.
            if time_ms < seen_ms || !(least..=most + 8).contains(&(time_ms + 4 - seen_ms)) {
                return Err(format!(
                    "its time went from {seen_ms} to {time_ms} within {passed_ms} ms"
                ));
            }
            if passed_ms < 1_000 {
                return Ok(());
            }
        }
        self.seen = Some((now.us, time_ms));
        Ok(())
    }
}

/// How far the last look has come.
#[derive(Clone, Copy, Debug, Default)]
struct LastReads {
    /// Tries of sales.
    sales: usize,
    /// Keys of transactions.
    banks: usize,
}

struct Node {
    run: u64,
    cores: Vec<Core>,
    is_stopping: bool,
}

/// What an item of a batch is about.
#[derive(Clone, Copy, Debug)]
enum Asked {
    Operation(usize),
    /// A try of a sale, by its number.
    Try(usize),
    /// A try of a hold, by its number.
    Hold(usize),
    /// A question of a transaction, by its number.
    Question(usize),
    /// What a visitor has asked for, by its number.
    Visit(usize),
    /// An act of the hall, by its number.
    Act(usize),
    /// A key of the last look at visits, by its place.
    LastRead(usize),
}

/// One connection, both ends.
struct Link {
    /// `None` for one that speaks no protocol.
    client: Option<usize>,
    run: u64,
    shard: usize,
    session: Option<SessionId>,
    /// Bytes that the server has and did not take yet.
    inbound: Vec<u8>,
    server_us: u64,
    client_us: u64,
    /// The client has given it up.
    is_abandoned: bool,
    is_closed: bool,
    is_reading: bool,
    unread: VecDeque<Vec<u8>>,
    receiver: Receiver,
    buffer: Vec<u8>,
    is_ready: bool,
    next_request: u64,
    outstanding: BTreeMap<u64, Vec<Option<Asked>>>,
    /// The request for a page that is on its way.
    page: Option<u64>,
    /// The request that was sent while no other was on its way, and its deadline.
    alone: Option<u64>,
    deadline_ms: u64,
    /// When the server got the last bytes, and when it first gave some after that.
    delivered_us: u64,
    output_us: Option<u64>,
}

struct Client {
    link: Option<usize>,
    is_awake: bool,
    retries: VecDeque<oracle::Plan>,
    /// The scan that it is in, and the run of the server in which that began.
    scan: Option<(Scan, u64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Traffic,
    /// No more faults; what is on its way must be answered.
    Drain,
    /// One more crash, and all clients come back.
    Quiet,
    /// Every key is read once more.
    Audit,
    /// A clean stop, and every key is read again.
    Last,
    /// Something in a sealed segment rots, and must be told while the node runs.
    Rot,
    Done,
}

/// The longest time from the seal of a frame until it is on the disk, while nothing stalls: ten of
/// the slowest writes one after the other, counted in writes of typical length, and the turns
/// between.
const FLUSH_WRITES_MAX: u64 = 1_500;
const FLUSH_TURNS_US_MAX: u64 = 20_000;
/// How long after a pause or a full disk nothing is said about it.
const SETTLE_US: u64 = 3_000_000;
/// Where the first frame of a segment stands.
const FIRST_FRAME: u64 = 4096;
/// Events of one run, at most.
const EVENTS_MAX: u64 = 6_000_000;
/// Within this every operation is answered once there are no more faults but a stall that began
/// before.
const QUIET_US_MAX: u64 = STALL_US_MAX + 30_000_000;
/// Beside two periods within which rot is told: waits for a block, a second try.
const ROT_US_MAX: u64 = 10_000_000;
/// A clean stop is complete after this, although the disk may stall in it.
const CLEAN_STOP_US_MAX: u64 = STALL_US_MAX + 30_000_000;

/// A world before its first event.
pub struct World {
    plan: Plan,
    now_us: u64,
    unix_offset_ms: i64,
    queue: BTreeMap<(u64, u64), Event>,
    next_event: u64,
    trace: Trace,
    coverage: Rc<RefCell<Coverage>>,
    disk: Rc<RefCell<Disk>>,
    node: Option<Node>,
    run: u64,
    incarnation: u64,
    paused_until_us: u64,
    /// What came for the node while it did not run.
    frozen: VecDeque<Event>,
    links: Vec<Link>,
    clients: Vec<Client>,
    oracle: Oracle,
    issued: usize,
    next_blow: usize,
    phase: Phase,
    phase_us: u64,
    recoveries: u64,
    answered: u64,
    was_clean: bool,
    /// Parts of a million of first frames of a segment that meet a power cut.
    first_frame_crash: u32,
    /// The process or its disk was held up until then.
    held_up_until_us: u64,
    /// Where each log ended when the server started.
    log_ends: Vec<Lsn>,
    /// Keys that were set first.
    filled: usize,
    /// Keys that the last look has reached.
    keys_read: usize,
    /// The last look is behind a scan of all keys.
    has_scanned: bool,
    /// The file of a sealed segment in which something rots under the running node.
    rotting: Option<FileId>,
    phase_run: u64,
    chance: Random,
    network: Random,
    workload: Random,
    /// Chance of everything about snapshots.
    snapshots: Random,
    /// Chance of everything about key tables.
    key_tables: Random,
    hash_seed: u64,
    /// The logs of the node, as IDENTITY tells durably.
    layout: Layout,
    /// The shards that the next start asks for.
    wanted_shards: u16,
    /// Chance of everything about the number of shards.
    reshards: Random,
    /// Of what rots while no process runs.
    rots: Random,
    /// The largest value that this start accepts, in bytes. The log may hold larger ones, up to the
    /// plan's limit.
    value_bytes_max: usize,
    /// Chance of everything about that.
    limits: Random,
    /// Shards of this run that have taken over what they inherited.
    taken_over: usize,
    /// The last sequences that starts found.
    sequences: Box<Sequences>,
    /// For what is asked of keyspaces and the past.
    past: Random,
    has_keyspace: bool,
    /// Chance of operations that repeat the one before them.
    repeats: Random,
    /// Chance of everything about APPLYs.
    applies: Random,
    /// Writes with tokens, if the run has some.
    sales: Option<Sales>,
    /// Chance of everything about them.
    tokens: Random,
    /// How long this start keeps tokens, in milliseconds.
    token_horizon_ms: u64,
    /// Holds that expire, if the run has some.
    holds: Option<Holds>,
    /// Chance of everything about them.
    expiries: Random,
    /// When this start was.
    started_us: u64,
    /// Transactions, if the run has some.
    transactions: Option<Transactions>,
    /// Chance of everything about them.
    commits: Random,
    /// What the last look has asked for.
    last_reads: LastReads,
    /// Clients of Redis, if the run has some.
    visiting: Option<Visiting>,
    failure: Option<String>,
}

type Step = Result<(), String>;

/// Runs a seed to its end.
#[must_use]
pub fn run(seed: u64) -> Report {
    let mut world = World::new(seed);
    let outcome = world.run();
    let judged = match (&outcome, world.failure.take()) {
        (Ok(()), None) => world.judge(),
        (Err(failure), _) => Err(failure.clone()),
        (_, Some(failure)) => Err(failure),
    };
    let (judged_keys, failure) = match judged {
        Ok(keys) => (keys, None),
        Err(failure) => (0, Some(failure)),
    };
    let mut coverage = world.coverage.borrow().clone();
    if let Some(sales) = &world.sales {
        coverage.meet(&sales.met);
    }
    if let Some(holds) = &world.holds {
        coverage.meet(&holds.met);
    }
    if let Some(transactions) = &world.transactions {
        coverage.meet(&transactions.met);
    }
    if let Some(visiting) = &world.visiting {
        coverage.meet(&visiting.visits.met);
    }
    Report {
        hash: world.trace.hash(),
        simulated_us: world.now_us,
        operations: world.oracle.records.len() as u64,
        answered: world.answered,
        recoveries: world.recoveries,
        judged_keys,
        coverage,
        failure,
    }
}

impl World {
    fn new(seed: u64) -> Self {
        let plan = Plan::new(seed);
        let coverage = Rc::new(RefCell::new(Coverage::default()));
        let mut disk = Disk::new(Random::new(seed, 2), Rc::clone(&coverage));
        disk.faults = plan.disk;
        (disk.write_us, disk.read_us) = plan.disk_us;
        let oracle = oracle_of(&plan);
        let sales = plan.has_tokens.then(|| {
            let mut random = Random::new(seed, 19);
            let tags = distinct_tags(&mut random, "till");
            let sales = Sales::new(random, &tags);
            match plan::has_visits(seed) {
                true => sales.with_texts(),
                false => sales,
            }
        });
        let visiting = visiting_of(seed, &plan, sales.as_ref());
        let visitors = visiting.as_ref().map_or(0, |it| it.visits.visitors());
        let clients = (0..plan.clients + visitors)
            .map(|_| Client {
                link: None,
                is_awake: false,
                retries: VecDeque::new(),
                scan: None,
            })
            .collect();
        let may_fail = oracle.may_fail_to_read;
        let holds = plan.has_holds.then(|| holds::holds_of(seed, may_fail));
        let transactions = plan
            .has_transactions
            .then(|| Transactions::new(Random::new(seed, 41)));
        let value_bytes_max = plan.value_bytes_max;
        let shards = plan.shards;
        let first_frame_crash = plan.first_frame_crashes;
        let world = World {
            plan,
            now_us: 1_000_000,
            unix_offset_ms: 1_800_000_000_000,
            queue: BTreeMap::new(),
            next_event: 0,
            trace: Trace::new(),
            coverage,
            disk: Rc::new(RefCell::new(disk)),
            node: None,
            run: 0,
            incarnation: 0,
            paused_until_us: 0,
            frozen: VecDeque::new(),
            links: Vec::new(),
            clients,
            oracle,
            issued: 0,
            next_blow: 0,
            phase: Phase::Traffic,
            phase_us: 0,
            recoveries: 0,
            answered: 0,
            was_clean: false,
            first_frame_crash,
            held_up_until_us: 0,
            log_ends: vec![Lsn(0); usize::from(shards)],
            filled: 0,
            keys_read: 0,
            has_scanned: false,
            rotting: None,
            phase_run: 0,
            chance: Random::new(seed, 3),
            network: Random::new(seed, 4),
            workload: Random::new(seed, 5),
            hash_seed: Random::new(seed, 7).bits(),
            snapshots: Random::new(seed, 8),
            key_tables: Random::new(seed, 14),
            layout: Layout::new(shards),
            wanted_shards: shards,
            reshards: Random::new(seed, 9),
            rots: Random::new(seed, 15),
            value_bytes_max,
            limits: Random::new(seed, 12),
            taken_over: 0,
            sequences: Box::new([0; PARTITIONS]),
            past: Random::new(seed, 11),
            repeats: Random::new(seed, 16),
            applies: Random::new(seed, 18),
            sales,
            tokens: Random::new(seed, 20),
            token_horizon_ms: 3_600_000,
            holds,
            expiries: Random::new(seed, 32),
            started_us: 0,
            transactions,
            commits: Random::new(seed, 42),
            last_reads: LastReads::default(),
            visiting,
            has_keyspace: false,
            failure: None,
        };
        let segment_bytes = usize::try_from(world.segment_bytes()).expect("small files");
        world.disk.borrow_mut().bytes_max = world.plan.segment_files.most * segment_bytes;
        world
    }

    fn hit(&self, fault: Fault) {
        self.coverage.borrow_mut().fault(fault);
    }

    fn at(&mut self, when_us: u64, event: Event) {
        self.queue
            .insert((when_us.max(self.now_us), self.next_event), event);
        self.next_event += 1;
    }

    fn now(&self) -> Now {
        let elapsed = i64::try_from(self.now_us / 1000).expect("an age");
        Now {
            us: self.now_us,
            unix_ms: u64::try_from(self.unix_offset_ms + elapsed).unwrap_or(0),
        }
    }

    fn run(&mut self) -> Step {
        self.at(self.now_us, Event::Start);
        for client in 0..self.clients.len() {
            self.wake(client, 5_000);
        }
        let mut events = 0;
        while self.phase != Phase::Done {
            let Some(((when_us, _), event)) = self.queue.pop_first() else {
                return Err(format!("nothing moves any more in phase {:?}", self.phase));
            };
            self.now_us = self.now_us.max(when_us);
            events += 1;
            if events > EVENTS_MAX {
                return Err(format!("no end after {EVENTS_MAX} events"));
            }
            let is_paused = self.now_us < self.paused_until_us || !self.frozen.is_empty();
            if is_paused && is_of_node(&event) {
                self.frozen.push_back(event);
                continue;
            }
            self.trace.fold(&[self.now_us, code_of(&event)]);
            self.take(event)?;
            self.advance()?;
        }
        Ok(())
    }

    fn take(&mut self, event: Event) -> Step {
        match event {
            Event::Start => return self.start(),
            Event::Turn { run, shard } => return self.turn(run, shard),
            Event::DiskDone { run, shard, ticket } => {
                self.of_run(run, |world| world.disk_done(shard, ticket));
            }
            Event::Mail { run, to, mail } => self.of_run(run, |world| {
                world.step(to, ShardEvent::Mail(mail));
            }),
            Event::Spare { run, shard } => self.spare(run, shard),
            Event::Room { run } => self.give_room(run),
            Event::Remove { run, file } => self.of_run(run, |world| {
                world.disk.borrow_mut().unlink(file);
            }),
            Event::Snapshot { run, shard, write } => {
                self.of_run(run, |world| world.write_snapshot(shard, write));
            }
            Event::KeyTable {
                run,
                shard,
                home,
                is_left,
            } => self.of_run(run, |world| match is_left {
                true => world.load_key_table(shard, &home),
                false => world.make_key_table(shard, &home),
            }),
            Event::TakenOver { run } => self.of_run(run, |world| world.inherited_gone(run)),
            Event::Exit { run } => return self.exit(run),
            Event::Connect { link } => self.connect(link),
            Event::ToServer { link, bytes } => self.reach_server(link, &bytes),
            Event::Sent { link } => self.sent(link),
            Event::ToClient { link, bytes } => return self.reach_client(link, bytes),
            Event::Closed { link } => self.client_sees_close(link),
            Event::Client { client } => {
                self.clients[client].is_awake = false;
                return self.client(client);
            }
            Event::EarlyCrash { run } => {
                if self.is_run(run) && self.phase == Phase::Traffic {
                    self.hit(Fault::PowerCut);
                    self.die(true);
                }
            }
            Event::RunsAgain => return self.run_again(),
            Event::SpaceIsBack => self.disk.borrow_mut().is_full = false,
            Event::ReadsAgain { link } => return self.read_again(link),
        }
        Ok(())
    }

    /// Does something, unless this run of the node is over.
    fn of_run(&mut self, run: u64, then: impl FnOnce(&mut Self)) {
        if self.is_run(run) {
            then(self);
        }
    }

    fn disk_done(&mut self, shard: usize, ticket: u64) {
        let completion = self.disk.borrow_mut().complete(ticket);
        self.trace
            .fold(&[ticket, u64::from(completion.result.is_ok())]);
        self.step(shard, ShardEvent::Completed(completion));
    }

    /// A clean stop should be over.
    fn exit(&mut self, run: u64) -> Step {
        if !self.is_run(run) {
            return Ok(());
        }
        let is_stopped = |node: &Node| node.cores.iter().all(|core| core.is_stopped);
        let until_us = self.paused_until_us + CLEAN_STOP_US_MAX;
        if self.node.as_ref().is_some_and(is_stopped) {
            self.exit_cleanly();
        } else if self.now_us < until_us {
            self.at(until_us, Event::Exit { run });
        } else {
            return Err("a clean stop does not come to its end".into());
        }
        Ok(())
    }

    fn connect(&mut self, link: usize) {
        let now = self.now();
        let Link { run, shard, .. } = self.links[link];
        if !self.is_run(run) || self.node.as_ref().is_some_and(|node| node.is_stopping) {
            self.close_soon(link);
            return;
        }
        if self.connect_visitor(link) {
            return;
        }
        let node = self.node.as_mut().expect("it runs");
        self.links[link].session = Some(node.cores[shard].shard.front_mut().open_session(now));
    }

    fn reach_server(&mut self, link: usize, bytes: &[u8]) {
        let state = &mut self.links[link];
        if !state.is_closed && state.session.is_some() {
            state.inbound.extend_from_slice(bytes);
            state.delivered_us = self.now_us;
            state.output_us = None;
            self.deliver(link);
        }
    }

    /// The network has taken what a session wrote.
    fn sent(&mut self, link: usize) {
        let Link {
            run,
            shard,
            session,
            is_closed,
            ..
        } = self.links[link];
        if self.is_run(run)
            && !is_closed
            && let Some(session) = session
        {
            let now = self.now();
            let core = &mut self.node.as_mut().expect("it runs").cores[shard];
            let sent = ShardEvent::Sent { session };
            core.shard.step(now, sent, &mut core.outbox);
            self.turn_soon(shard);
        }
    }

    /// A pause is over: what came meanwhile is taken in its order, before all that comes now.
    fn run_again(&mut self) -> Step {
        while self.now_us >= self.paused_until_us
            && let Some(event) = self.frozen.pop_front()
        {
            self.trace.fold(&[self.now_us, code_of(&event)]);
            self.take(event)?;
        }
        Ok(())
    }

    /// A client takes what it left unread.
    fn read_again(&mut self, link: usize) -> Step {
        self.links[link].is_reading = true;
        while let Some(bytes) = self.links[link].unread.pop_front() {
            self.at(self.now_us, Event::Sent { link });
            self.reach_client(link, bytes)?;
        }
        Ok(())
    }

    fn is_run(&self, run: u64) -> bool {
        self.node.as_ref().is_some_and(|node| node.run == run)
    }
}

/// Whether an event needs the node's process to run.
fn is_of_node(event: &Event) -> bool {
    matches!(
        event,
        Event::Turn { .. }
            | Event::DiskDone { .. }
            | Event::Mail { .. }
            | Event::Spare { .. }
            | Event::Room { .. }
            | Event::Remove { .. }
            | Event::Snapshot { .. }
            | Event::KeyTable { .. }
            | Event::TakenOver { .. }
            | Event::Connect { .. }
            | Event::ToServer { .. }
            | Event::Sent { .. }
            | Event::Exit { .. }
    )
}

fn code_of(event: &Event) -> u64 {
    match event {
        Event::Start => 1,
        Event::Turn { shard, .. } => 2 + 64 * (*shard as u64),
        Event::DiskDone { shard, .. } => 3 + 64 * (*shard as u64),
        Event::Mail { to, .. } => 4 + 64 * (*to as u64),
        Event::Spare { shard, .. } => 5 + 64 * (*shard as u64),
        Event::Exit { .. } => 6,
        Event::Room { .. } => 21,
        Event::TakenOver { .. } => 19,
        Event::Snapshot { shard, .. } => 18 + 64 * (*shard as u64),
        Event::KeyTable { shard, .. } => 20 + 64 * (*shard as u64),
        Event::Remove { file, .. } => 17 + 64 * u64::from(file.0),
        Event::Connect { link } => 7 + 64 * (*link as u64),
        Event::ToServer { link, .. } => 8 + 64 * (*link as u64),
        Event::Sent { link } => 9 + 64 * (*link as u64),
        Event::ToClient { link, .. } => 10 + 64 * (*link as u64),
        Event::Closed { link } => 11 + 64 * (*link as u64),
        Event::Client { client } => 12 + 64 * (*client as u64),
        Event::SpaceIsBack => 13,
        Event::RunsAgain => 15,
        Event::EarlyCrash { .. } => 16,
        Event::ReadsAgain { link } => 14 + 64 * (*link as u64),
    }
}

/// The visitors of a run, if it has some. Holds and transactions stand beside them in no seed:
/// their keys might be flushed.
fn visiting_of(seed: u64, plan: &Plan, sales: Option<&Sales>) -> Option<Visiting> {
    // Thousands of keys leave no partition free.
    if !plan::has_visits(seed) || plan.is_wide {
        return None;
    }
    let tills = sales
        .iter()
        .flat_map(|sales| (0..sales.tills()).map(|till| sales.slot(till)));
    let slots = plan.keys.iter().map(|(_, slot, _, _)| *slot);
    let slots: Vec<u16> = slots.chain(tills).collect();
    Some(Visiting::new(
        Random::new(seed, 51),
        &slots,
        plan.limits > 0,
        plan::has_shelves(seed),
    ))
}

/// The oracle of the answers, which knows what the plan lets fail.
fn oracle_of(plan: &Plan) -> Oracle {
    let mut oracle = Oracle::new(plan.keys.clone());
    oracle.limit_values(plan.value_bytes_max);
    // What fails once is read again, and the client sees none of it.
    oracle.may_fail_to_read = plan.budget == Budget::Detectable
        || (plan.disk.read_error + plan.disk.bad_read > 0 && !plan.disk.is_passing);
    oracle.may_be_full = plan.segment_files.most > 0
        || plan.memory_bytes_max < usize::MAX
        || plan
            .blows
            .iter()
            .any(|(_, blow)| matches!(blow, Blow::NoSpace(_)));
    oracle
}
