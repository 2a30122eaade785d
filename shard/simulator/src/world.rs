//! One run: a node of several shards, its disk, a network and clients, in one thread and in
//! virtual time.
//!
//! This is a second shell around the code that the server runs: it hands events to
//! [`Shard::step`] and carries out what the shard wants, as the server's cores do, and opens
//! shards with the server's own procedure. No decision of the server is made here.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use penstock_net::frame::{FLAG_MORE, FLAG_REPLY, Header, Opcode, write_frame};
use penstock_net::hello::{AUTH_NONE, ClientHello, ServerHello};
use penstock_net::instruction::{self, FieldType, Instruction};
use penstock_net::keyspace::{Action, At, Settings};
use penstock_net::level::AckLevel;
use penstock_net::limits::Limits;
use penstock_net::receive::{Received, Receiver};
use penstock_net::reply::{ReplyItem, read_batch_reply, text_of};
use penstock_net::request::{BatchRequest, Condition, Expiry, Wanted};
use penstock_net::status::Status;
use penstock_shard::opening::{
    self, OpeningError, SegmentFiles, change_shards, open_shard, prove_spares, take_inventory,
};
use penstock_shard::{
    Event as ShardEvent, Mail, Now, Outbox, SessionId, Shard, ShardConfig, SnapshotPolicy,
    SnapshotWrite, Topology,
};
use penstock_storage::budget::Budget as MemoryBudget;
use penstock_storage::io::{FileId, Io};
use penstock_storage::layout::Layout;
use penstock_storage::log::{LogConfig, Lsn};
use penstock_storage::planted::{Bug, is_planted};
use penstock_storage::record::part_bytes;
use penstock_storage::recovery::{Corruption, Recovered, RecoveryError, Survey};
use penstock_storage::segment::Owner;
use penstock_storage::snapshot::SnapshotName;
use penstock_storage::store::{Memory, PARTITIONS, SLOTS, Sequences, partition_of};
use penstock_storage::summary::SUMMARY_BYTES_MAX;

use crate::coverage::{Coverage, Fault, Operation};
use crate::damage::{self, Expected};
use crate::disk::{Disk, DiskFaults, Files, Pool, PoolBlock, STALL_US_MAX};
use crate::linear;
use crate::oracle::{self, Oracle, State};
use crate::plan::{Blow, Budget, KEYSPACE, LONGER, Plan};
use crate::random::Random;
use crate::scan::Scan;
use crate::starts::compare_starts;
use crate::trace::Trace;

/// What one seed showed.
#[derive(Clone, Debug)]
pub struct Report {
    /// The fingerprint of everything that happened.
    pub hash: u128,
    /// Virtual time, in microseconds.
    pub simulated_us: u64,
    /// Operations sent.
    pub operations: u64,
    /// Operations answered.
    pub answered: u64,
    /// Starts that found a log.
    pub recoveries: u64,
    /// Keys whose history the second judge accepted.
    pub judged_keys: u64,
    /// What was met.
    pub coverage: Coverage,
    /// What was wrong, if something was.
    pub failure: Option<String>,
}

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
    Snapshot {
        run: u64,
        shard: usize,
        write: SnapshotWrite,
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
        let time_ms = self.shard.store().time_ms();
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

struct Node {
    run: u64,
    cores: Vec<Core>,
    is_stopping: bool,
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
    outstanding: BTreeMap<u64, Vec<Option<usize>>>,
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

/// What a record takes to the disk, at most, after its frame was sealed and while nothing stalls: ten
/// of the slowest writes one after the other, in writes of typical length, and the turns between.
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
    looked_at: usize,
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
    hash_seed: u64,
    /// Which logs there are, as IDENTITY tells durably.
    layout: Layout,
    /// The shards that the next start asks for.
    wanted_shards: u16,
    /// Chance of everything about the number of shards.
    reshards: Random,
    /// The largest value that this start accepts, in bytes; the log may hold those of the plan's limit.
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
    failure: Option<String>,
}

type Step = Result<(), String>;

/// The node of every world.
pub(crate) const OWNER: Owner = Owner {
    cluster_id: [0xC1; 16],
    node_id: [0x0D; 16],
};

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
    let coverage = world.coverage.borrow().clone();
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
        let mut oracle = Oracle::new(plan.keys.clone());
        oracle.limit_values(plan.value_bytes_max);
        // What fails once is read again, and the client sees none of it.
        oracle.may_fail_to_read = plan.budget == Budget::Detectable
            || (plan.disk.read_error + plan.disk.bad_read > 0 && !plan.disk.is_passing);
        oracle.may_be_full = plan.files_max > 0
            || plan.memory_bytes_max < usize::MAX
            || plan
                .blows
                .iter()
                .any(|(_, blow)| matches!(blow, Blow::NoSpace(_)));
        let clients = (0..plan.clients)
            .map(|_| Client {
                link: None,
                is_awake: false,
                retries: VecDeque::new(),
                scan: None,
            })
            .collect();
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
            looked_at: 0,
            has_scanned: false,
            rotting: None,
            phase_run: 0,
            chance: Random::new(seed, 3),
            network: Random::new(seed, 4),
            workload: Random::new(seed, 5),
            hash_seed: Random::new(seed, 7).bits(),
            snapshots: Random::new(seed, 8),
            layout: Layout::new(shards),
            wanted_shards: shards,
            reshards: Random::new(seed, 9),
            value_bytes_max,
            limits: Random::new(seed, 12),
            taken_over: 0,
            sequences: Box::new([0; PARTITIONS]),
            past: Random::new(seed, 11),
            has_keyspace: false,
            failure: None,
        };
        let segment_bytes = usize::try_from(world.segment_bytes()).expect("small files");
        world.disk.borrow_mut().bytes_max = world.plan.files_max * segment_bytes;
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
        for client in 0..self.plan.clients {
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
            Event::Start => self.start(),
            Event::Turn { run, shard } => self.turn(run, shard),
            Event::DiskDone { run, shard, ticket } => {
                if self.is_run(run) {
                    let completion = self.disk.borrow_mut().complete(ticket);
                    self.trace
                        .fold(&[ticket, u64::from(completion.result.is_ok())]);
                    self.step(shard, ShardEvent::Completed(completion));
                }
                Ok(())
            }
            Event::Mail { run, to, mail } => {
                if self.is_run(run) {
                    self.step(to, ShardEvent::Mail(mail));
                }
                Ok(())
            }
            Event::Spare { run, shard } => {
                self.spare(run, shard);
                Ok(())
            }
            Event::Remove { run, file } => {
                if self.is_run(run) {
                    self.disk.borrow_mut().unlink(file);
                }
                Ok(())
            }
            Event::Snapshot { run, shard, write } => {
                if self.is_run(run) {
                    self.write_snapshot(shard, write);
                }
                Ok(())
            }
            Event::TakenOver { run } => {
                if self.is_run(run) {
                    self.inherited_gone(run);
                }
                Ok(())
            }
            Event::Exit { run } => {
                if self.is_run(run) {
                    if self
                        .node
                        .as_ref()
                        .is_some_and(|node| node.cores.iter().all(|core| core.is_stopped))
                    {
                        self.exit_cleanly();
                        return Ok(());
                    }
                    if self.now_us < self.paused_until_us + CLEAN_STOP_US_MAX {
                        self.at(
                            self.paused_until_us + CLEAN_STOP_US_MAX,
                            Event::Exit { run },
                        );
                        return Ok(());
                    }
                    return Err("a clean stop does not come to its end".into());
                }
                Ok(())
            }
            Event::Connect { link } => {
                let now = self.now();
                let Link { run, shard, .. } = self.links[link];
                if !self.is_run(run) || self.node.as_ref().is_some_and(|node| node.is_stopping) {
                    self.close_soon(link);
                    return Ok(());
                }
                let node = self.node.as_mut().expect("it runs");
                self.links[link].session = Some(node.cores[shard].shard.open_session(now));
                Ok(())
            }
            Event::ToServer { link, bytes } => {
                let state = &mut self.links[link];
                if !state.is_closed && state.session.is_some() {
                    state.inbound.extend_from_slice(&bytes);
                    state.delivered_us = self.now_us;
                    state.output_us = None;
                    self.deliver(link);
                }
                Ok(())
            }
            Event::Sent { link } => {
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
                    let node = self.node.as_mut().expect("it runs");
                    node.cores[shard].shard.sent(session);
                    self.turn_soon(shard);
                }
                Ok(())
            }
            Event::ToClient { link, bytes } => self.reach_client(link, bytes),
            Event::Closed { link } => {
                self.client_sees_close(link);
                Ok(())
            }
            Event::Client { client } => {
                self.clients[client].is_awake = false;
                self.client(client)
            }
            Event::EarlyCrash { run } => {
                if self.is_run(run) && self.phase == Phase::Traffic {
                    self.hit(Fault::PowerCut);
                    self.die(true);
                }
                Ok(())
            }
            Event::RunsAgain => {
                // In the order in which it came while nobody looked, before all that comes now.
                while self.now_us >= self.paused_until_us
                    && let Some(event) = self.frozen.pop_front()
                {
                    self.trace.fold(&[self.now_us, code_of(&event)]);
                    self.take(event)?;
                }
                Ok(())
            }
            Event::SpaceIsBack => {
                self.disk.borrow_mut().is_full = false;
                Ok(())
            }
            Event::ReadsAgain { link } => {
                self.links[link].is_reading = true;
                while let Some(bytes) = self.links[link].unread.pop_front() {
                    self.at(self.now_us, Event::Sent { link });
                    self.reach_client(link, bytes)?;
                }
                Ok(())
            }
        }
    }

    fn is_run(&self, run: u64) -> bool {
        self.node.as_ref().is_some_and(|node| node.run == run)
    }

    // ---- the life of the node ----

    fn start(&mut self) -> Step {
        if self.node.is_some() {
            return Ok(());
        }
        self.spoil_snapshots();
        if self.phase == Phase::Traffic && self.reshards.chance(self.plan.reshards) {
            self.wanted_shards = self.reshards.pick(&[1, 2, 3, 4]);
        }
        if self.limits.chance(self.plan.limits) {
            let limits = [self.plan.value_bytes_max, self.plan.value_bytes_max / 3, 64];
            let before = std::mem::replace(&mut self.value_bytes_max, self.limits.pick(&limits));
            self.oracle.limit_values(self.value_bytes_max);
            if self.value_bytes_max < before {
                self.hit(Fault::ValueLimitLowered);
            }
        }
        let expected = {
            let disk = self.disk.borrow();
            disk.is_damaged()
                .then(|| damage::expected(&disk, &self.layout))
        };
        // What stands before a snapshot's position is not read: this is about the log.
        let put_by = std::mem::take(&mut self.disk.borrow_mut().snapshots);
        match expected {
            Some(Expected::Hole) => {
                self.hit(Fault::Hole);
                self.disk.borrow_mut().heal();
            }
            Some(Expected::Refusal) => {
                match self.open() {
                    Err(OpeningError::Recovery(refusal)) => {
                        let row = refusal.row();
                        let is_read = matches!(refusal, RecoveryError::Read { .. });
                        let text = refusal.to_string();
                        if row.is_none() && !is_read {
                            return Err(format!("a refusal without a row: {text}"));
                        }
                        if let Some(row) = row {
                            self.coverage.borrow_mut().row(row);
                        }
                        self.trace.fold_bytes(text.as_bytes());
                    }
                    Err(other) => return Err(format!("damage was not named: {other}")),
                    Ok(_) => {
                        let damages: Vec<String> = self.describe_damage();
                        return Err(format!(
                            "a damaged directory was taken for a good one: {}",
                            damages.join(", ")
                        ));
                    }
                }
                self.disk.borrow_mut().heal();
            }
            Some(Expected::Harmless) | None => {}
        }
        self.disk.borrow_mut().snapshots = put_by;
        let mut is_cut_off = false;
        if self.phase == Phase::Traffic && self.chance.chance(self.plan.bad_starts) {
            let mut disk = self.disk.borrow_mut();
            if self.chance.chance(500_000) {
                disk.changes_left = Some(self.chance.below(6));
                is_cut_off = true;
            } else {
                disk.start_read_errors = 1;
            }
        }
        let opened = self.open();
        let mut disk = self.disk.borrow_mut();
        disk.changes_left = None;
        let had_read_error = disk.start_read_errors == 0;
        disk.start_read_errors = 0;
        drop(disk);
        match opened {
            Ok(cores) => {
                self.disk.borrow_mut().forget_damage();
                self.serve(cores);
                Ok(())
            }
            Err(OpeningError::System { .. }) if is_cut_off => {
                self.hit(Fault::PowerCutDuringStart);
                // Old frames may show behind the clean end now.
                self.was_clean = false;
                self.disk.borrow_mut().power_cut();
                let again_us = self.now_us + self.chance.within(1_000, 50_000);
                self.at(again_us, Event::Start);
                Ok(())
            }
            Err(OpeningError::Recovery(RecoveryError::Read { .. }))
                if had_read_error && !is_cut_off && expected != Some(Expected::Harmless) =>
            {
                let again_us = self.now_us + self.chance.within(1_000, 50_000);
                self.at(again_us, Event::Start);
                Ok(())
            }
            Err(refusal) => Err(format!(
                "a directory that only crashes touched is refused: {refusal}"
            )),
        }
    }

    fn describe_damage(&self) -> Vec<String> {
        let disk = self.disk.borrow();
        let damages = disk.damages.iter().map(|damage| {
            format!(
                "{:08}.seg at {} for {} bytes",
                damage.file.0,
                damage.offset,
                damage.good.len()
            )
        });
        let missing = disk
            .missing
            .iter()
            .map(|(file, _)| format!("{:08}.seg is gone", file.0));
        let strangers = disk
            .strangers
            .iter()
            .map(|file| format!("{:08}.seg is strange", file.0));
        let unreadable = disk
            .unreadable()
            .iter()
            .map(|(file, place)| format!("{:08}.seg cannot be read at {place}", file.0));
        damages
            .chain(missing)
            .chain(strangers)
            .chain(unreadable)
            .collect()
    }

    fn log_config(&self, shard: u16) -> LogConfig {
        LogConfig {
            owner: OWNER,
            incarnation: self.incarnation,
            log_id: self.layout.log_of(shard),
            frame_bytes: self.plan.frame_bytes,
            record_bytes_max: 2 * part_bytes(1024, self.plan.value_bytes_max, true, 0),
            frames_in_flight_max: self.plan.frames_in_flight_max,
            frames_sealed_max: self.plan.frames_sealed_max,
            sync: self.plan.sync,
            interval_us: self.plan.interval_us,
            idle_mark_us: self.plan.idle_mark_us,
        }
    }

    fn segment_bytes(&self) -> u64 {
        self.log_config(0)
            .segment_bytes_min()
            .next_multiple_of(4096)
            + self.plan.segment_bytes_more
    }

    /// Opens every shard as the server does.
    fn open(&mut self) -> Result<Vec<Core>, OpeningError> {
        // Made durable before anything is read, as the server does with its identity.
        self.incarnation += 1;
        let segment_bytes = self.segment_bytes();
        let mut files = Files(Rc::clone(&self.disk));
        let mut inventory = take_inventory(&mut files, OWNER, &self.layout, segment_bytes)?;
        if !inventory.survey.void.is_empty() {
            self.hit(Fault::VoidLog);
        }
        if self.wanted_shards != self.layout.shards {
            let shards = self.wanted_shards;
            let layout = change_shards(&mut files, &inventory, shards, self.incarnation, false)?;
            files.change().map_err(|error| OpeningError::System {
                action: "write IDENTITY",
                error,
            })?;
            self.hit(
                match layout.inherited.len() > usize::from(self.layout.shards) {
                    true => Fault::ShardsChangedAgain,
                    false => Fault::ShardsChanged,
                },
            );
            self.layout = layout;
            self.log_ends = vec![Lsn(0); usize::from(shards)];
            inventory = take_inventory(&mut files, OWNER, &self.layout, segment_bytes)?;
        }
        let shards = self.layout.shards;
        for row in inventory.survey.rows.iter() {
            self.coverage.borrow_mut().row(row);
        }
        let topology = Topology::new(shards);
        let limits = Limits {
            frame_bytes_max: 1 << 20,
            value_bytes_max: u32::try_from(self.value_bytes_max).expect("small values"),
        };
        let mut cores = Vec::new();
        let mut ends = Vec::new();
        for shard in 0..shards {
            let hello = ServerHello {
                protocol: 1,
                shard,
                shard_count: shards,
                auth_methods: AUTH_NONE,
                cluster_id: OWNER.cluster_id,
                node_id: OWNER.node_id,
                incarnation: self.incarnation,
                features: 0,
                nonce: [0; 32],
                limits,
                interval_ms: u32::try_from(self.plan.interval_us / 1000).expect("small"),
                slots: topology.ranges(|shard| 7000 + shard),
                placement: None,
            };
            let config = ShardConfig {
                shard,
                topology,
                hello,
                level_min: self.plan.level_min,
                output_bytes_max: 64 << 10,
                partial_frame_us_max: 5_000_000,
                write_stall_us_max: 5_000_000,
                idle_us_max: 60_000_000,
                replies_bytes_max: self.plan.replies_bytes_max,
                input_bytes_max: 64 << 20,
                parked_bytes_max: 1 << 20,
                mailed_items_max: self.plan.mailed_items_max,
                memory_max: 0,
                hash_seed: self.hash_seed,
                cluster: None,
                snapshots: SnapshotPolicy {
                    log_bytes: self.plan.snapshot_bytes,
                    stop_us_max: 3_000_000,
                },
                cleaning: self.plan.cleaning,
            };
            let log = self.log_config(shard);
            // What the log needs at the least; reads share it.
            let frame_bytes = log.frame_bytes.max(log.record_bytes_max + 4096);
            let pool = Pool::new(
                (log.frames_sealed_max + 1) * (frame_bytes + 4096)
                    + SUMMARY_BYTES_MAX
                    + self.plan.pool_bytes,
            );
            let alone = self.replay_alone(&inventory.survey, shard);
            let opening::Opened {
                shard: mut opened,
                recovered,
                files: _,
                snapshot,
                snapshots_refused,
                inherited_records,
            } = open_shard(
                &mut files,
                &inventory,
                config,
                log,
                segment_bytes,
                self.budget(),
                pool,
            )?;
            for slot in 0..SLOTS {
                let partition = partition_of(slot);
                let found = opened.store().sequences()[partition];
                let last = &mut self.sequences[partition];
                if topology.owner(slot) == shard && found < *last {
                    self.failure = Some(format!(
                        "partition {partition} had come to sequence {last}, and a start goes on at {found}"
                    ));
                } else if topology.owner(slot) == shard {
                    *last = found;
                }
            }
            if let Some((name, _)) = snapshot {
                self.hit(Fault::SnapshotUsed);
                let alone = alone.expect("there were snapshots");
                // The judge's own reads are no part of the start.
                let read_errors = std::mem::take(&mut self.disk.borrow_mut().start_read_errors);
                let compared = compare_starts(alone, &opened, &recovered, &mut files);
                self.disk.borrow_mut().start_read_errors = read_errors;
                if let Err(difference) = compared {
                    self.failure = Some(format!("with {name} a start differs: {difference}"));
                }
            }
            if !snapshots_refused.is_empty() {
                self.hit(Fault::SnapshotRefused);
            }
            for row in recovered.rows.iter() {
                self.coverage.borrow_mut().row(row);
            }
            let has_written = recovered.start.last_lsn > self.log_ends[usize::from(shard)];
            let is_clean = recovered.is_clean() && recovered.torn.is_none();
            if self.was_clean && has_written && !is_clean {
                self.failure = Some(format!(
                    "shard {shard} was stopped cleanly and its log is not clean: {:?} {:?}",
                    recovered.start, recovered.rows
                ));
            }
            self.trace.fold(&[
                recovered.records,
                recovered.frames,
                recovered.start.last_lsn.0,
                inherited_records,
            ]);
            ends.push(recovered.start.last_lsn);
            opened.scrub_within(self.plan.scrub_us);
            cores.push(Core {
                shard: opened,
                outbox: Outbox::default(),
                turn_us: None,
                mail_us: vec![0; usize::from(shards)],
                is_stopped: false,
                seen: None,
            });
        }
        self.log_ends = ends;
        let left = inventory.left;
        prove_spares(&mut files, &left).map_err(OpeningError::Recovery)?;
        for &(file, _) in &left.superfluous {
            let action = "remove a spare segment that is not needed";
            files
                .remove(file)
                .map_err(|error| OpeningError::System { action, error })?;
        }
        for (place, (file, bytes)) in left.spares.into_iter().enumerate() {
            let core = place % cores.len();
            let salt = self.chance.bits();
            let now = self.now();
            let Core { shard, outbox, .. } = &mut cores[core];
            let spare = ShardEvent::Spare {
                file,
                salt,
                bytes,
                is_reused: false,
            };
            shard.step(now, spare, outbox);
        }
        Ok(cores)
    }

    /// What a start would make of a log without its snapshots; nothing if it has none.
    fn replay_alone(
        &mut self,
        survey: &Survey,
        shard: u16,
    ) -> Option<Result<(Memory, Recovered), RecoveryError>> {
        let log_id = self.layout.log_of(shard);
        let mut disk = self.disk.borrow_mut();
        if disk.snapshots.keys().all(|name| name.log_id != log_id) {
            return None;
        }
        let read_errors = std::mem::take(&mut disk.start_read_errors);
        drop(disk);
        let segments = survey.logs.get(&log_id).map_or(&[][..], Vec::as_slice);
        let files = Files(Rc::clone(&self.disk));
        let replayed = opening::replay_all(&files, segments, self.hash_seed, self.budget());
        self.disk.borrow_mut().start_read_errors = read_errors;
        Some(replayed)
    }

    fn budget(&self) -> MemoryBudget {
        MemoryBudget {
            cache_bytes_max: self.plan.cache_bytes,
            memory_bytes_max: self.plan.memory_bytes_max,
            cells_bytes_min: MemoryBudget::cells_bytes_min(self.plan.value_bytes_max),
        }
    }

    fn serve(&mut self, cores: Vec<Core>) {
        self.was_clean = false;
        self.run += 1;
        self.taken_over = 0;
        self.disk.borrow_mut().forgotten.clear();
        let epoch = u32::try_from(self.incarnation).expect("few starts") << 8;
        self.oracle.started(epoch);
        if self.run > 1 {
            self.recoveries += 1;
        }
        self.node = Some(Node {
            run: self.run,
            cores,
            is_stopping: false,
        });
        for shard in 0..usize::from(self.layout.shards) {
            self.turn_soon(shard);
        }
        if self.first_frame_crash > 0 && self.chance.chance(500_000) {
            self.first_frame_crash = self.plan.first_frame_crashes;
        }
        if self.phase == Phase::Traffic && self.chance.chance(self.plan.early_crashes) {
            let when_us = self.now_us + self.chance.within(1, 8_000);
            self.at(when_us, Event::EarlyCrash { run: self.run });
        }
    }

    /// The process ends without a word.
    fn die(&mut self, is_power_cut: bool) {
        if self.node.take().is_none() {
            return;
        }
        let mut disk = self.disk.borrow_mut();
        if is_power_cut {
            disk.power_cut();
        } else {
            disk.process_ends();
        }
        if self.plan.budget == Budget::Detectable
            && self.chance.chance(400_000)
            && !disk.is_damaged()
        {
            let inflicted = damage::inflict(&mut disk, &mut self.chance, &self.layout);
            drop(disk);
            if let Some(fault) = inflicted {
                self.hit(fault);
            }
        } else {
            drop(disk);
        }
        // A record that nobody waits for is written within the interval, and takes no longer to the
        // disk than this, unless something held the process or the disk up.
        let is_held_up = self.plan.disk.stall > 0 || self.now_us < self.held_up_until_us;
        let interval_from_us = match is_held_up {
            true => 0,
            false => self.now_us.saturating_sub(
                self.plan.interval_us + FLUSH_TURNS_US_MAX + FLUSH_WRITES_MAX * self.plan.disk_us.0,
            ),
        };
        self.oracle.crashed(interval_from_us);
        for (scan, _) in self.clients.iter_mut().filter_map(|it| it.scan.as_mut()) {
            scan.crash(&self.oracle);
        }
        self.cut_all(is_power_cut);
        let again_us = self.now_us + self.chance.within(1_000, 300_000);
        self.at(again_us, Event::Start);
    }

    fn exit_cleanly(&mut self) {
        self.node = None;
        self.disk.borrow_mut().process_ends();
        self.was_clean = !self.disk.borrow().is_damaged();
        self.cut_all(false);
        let again_us = self.now_us + self.chance.within(1_000, 300_000);
        self.at(again_us, Event::Start);
    }

    fn cut_all(&mut self, is_silent: bool) {
        for link in 0..self.links.len() {
            if !self.links[link].is_closed {
                self.links[link].is_closed = true;
                let delay_us = if is_silent {
                    self.network.within(1_000, 500_000)
                } else {
                    self.network.latency(self.plan.network_us)
                };
                // What was on its way to the client is gone with the machine.
                self.at(self.now_us + delay_us, Event::Closed { link });
            }
        }
    }

    fn spare(&mut self, run: u64, shard: usize) {
        if !self.is_run(run) {
            return;
        }
        let salt = self.chance.bits();
        let made = |bytes: u64, kept_bytes: u64| {
            let file = self.disk.borrow_mut().create(bytes, kept_bytes, salt);
            file.map(|(file, is_reused)| (file, bytes, is_reused))
        };
        let is_starved = self.node.as_ref().is_some_and(|node| {
            let log = node.cores[shard].shard.store().log();
            log.is_starved()
        });
        let short_bytes = self.log_config(0).segment_bytes_min();
        let short_bytes = short_bytes.next_multiple_of(4096);
        let kept_bytes = u64::from(self.plan.shards) * short_bytes;
        let short = || is_starved.then(|| made(short_bytes, 0)).flatten();
        match made(self.segment_bytes(), kept_bytes).or_else(short) {
            Some((file, bytes, is_reused)) => {
                let spare = ShardEvent::Spare {
                    file,
                    salt,
                    bytes,
                    is_reused,
                };
                self.step(shard, spare);
            }
            None => {
                self.step(shard, ShardEvent::SpareRefused);
                // The helper tries again whenever a file was removed; this is as good.
                let again_us = match self.plan.files_max {
                    0 => 1_000_000,
                    _ => 20_000,
                };
                self.at(self.now_us + again_us, Event::Spare { run, shard });
            }
        }
    }

    /// The inherited logs are void from now on.
    fn inherited_gone(&mut self, run: u64) {
        let ids = std::mem::take(&mut self.layout.inherited);
        self.hit(Fault::InheritedGone);
        let files: Vec<FileId> = self
            .disk
            .borrow()
            .images()
            .filter(|(_, image)| {
                damage::header_of(image)
                    .is_some_and(|header| ids.iter().any(|log| log.log_id == header.log_id))
            })
            .map(|(file, _)| file)
            .collect();
        for shard in 0..usize::from(self.layout.shards) {
            self.step(shard, ShardEvent::InheritedGone);
        }
        for file in files {
            let when_us = self.now_us + self.reshards.latency(5_000);
            self.at(when_us, Event::Remove { run, file });
        }
    }

    fn write_snapshot(&mut self, shard: usize, write: SnapshotWrite) {
        let name = write.name;
        let mut disk = self.disk.borrow_mut();
        let is_good = !disk.is_full && !self.snapshots.chance(10_000) && disk.write_snapshot(write);
        if !is_good {
            disk.give_up_snapshot(name.log_id);
        }
        drop(disk);
        if !is_good {
            self.hit(Fault::SnapshotError);
        }
        self.step(shard, ShardEvent::SnapshotWritten { name, is_good });
    }

    /// Snapshots rot and get lost like everything else; the log gives the same without them.
    fn spoil_snapshots(&mut self) {
        let mut disk = self.disk.borrow_mut();
        let mut hits = Vec::new();
        let random = &mut self.snapshots;
        let names: Vec<SnapshotName> = disk.snapshots.keys().copied().collect();
        for name in names {
            let bytes = disk.snapshots.get_mut(&name).expect("it is there");
            if bytes.is_empty() {
                continue;
            }
            match random.below(16) {
                0 => {
                    let at = random.index(bytes.len());
                    bytes[at] ^= 1 << random.below(8);
                    hits.push(Fault::SnapshotRot);
                }
                1 => {
                    let len = random.index(bytes.len());
                    bytes.truncate(len);
                    hits.push(Fault::SnapshotRot);
                }
                2 | 3 => {
                    disk.snapshots.remove(&name);
                    hits.push(Fault::SnapshotLost);
                }
                _ => {}
            }
        }
        drop(disk);
        hits.into_iter().for_each(|fault| self.hit(fault));
        // With another secret no snapshot is of use.
        if self.snapshots.chance(30_000) {
            self.hash_seed = self.snapshots.bits();
        }
    }

    // ---- one core ----

    fn step(&mut self, shard: usize, event: ShardEvent<'_, PoolBlock>) -> usize {
        let now = self.now();
        let Some(node) = self.node.as_mut() else {
            return 0;
        };
        let core = &mut node.cores[shard];
        let consumed = core.shard.step(now, event, &mut core.outbox);
        if let Err(wrong) = core.judge_time(now) {
            self.failure = Some(format!("shard {shard}: {wrong}"));
        }
        self.turn_soon(shard);
        consumed
    }

    fn turn_soon(&mut self, shard: usize) {
        let when_us = self.now_us + self.chance.below(8);
        self.turn_at(shard, when_us);
    }

    fn turn_at(&mut self, shard: usize, when_us: u64) {
        let Some(node) = self.node.as_mut() else {
            return;
        };
        let run = node.run;
        let core = &mut node.cores[shard];
        if core.turn_us.is_none_or(|due_us| when_us < due_us) {
            core.turn_us = Some(when_us);
            self.at(when_us, Event::Turn { run, shard });
        }
    }

    fn turn(&mut self, run: u64, shard: usize) -> Step {
        let now = self.now();
        if !self.is_run(run) {
            return Ok(());
        }
        let node = self.node.as_mut().expect("it runs");
        let core = &mut node.cores[shard];
        if core.turn_us.is_none_or(|due_us| due_us > now.us) {
            return Ok(());
        }
        core.turn_us = None;
        core.shard.step(now, ShardEvent::TurnEnds, &mut core.outbox);
        if !core.shard.store().has_room_for_keys() {
            self.coverage.borrow_mut().fault(Fault::NoMemory);
        }
        let timely = core.judge_time(now);
        let mut outbox = std::mem::take(&mut core.outbox);
        core.is_stopped |= outbox.is_stopped;
        timely.map_err(|wrong| format!("shard {shard}: {wrong}"))?;
        let deadline_us = core.shard.deadline_us(now);
        if let Some(fatal) = outbox.fatal {
            self.trace.fold_bytes(fatal.to_string().as_bytes());
            // The server ends loudly; the machine goes on, or not.
            let is_power_cut = self.chance.chance(300_000);
            self.die(is_power_cut);
            return Ok(());
        }
        for io in outbox.io.drain(..) {
            if let Io::Write {
                offset: FIRST_FRAME,
                ..
            } = &io
                && self.phase == Phase::Traffic
                && self.chance.chance(self.first_frame_crash)
            {
                // The next segment takes the same place in the log, and meets the same more often.
                self.first_frame_crash = 400_000;
                let when_us = now.us + self.chance.within(1, 400);
                self.at(when_us, Event::EarlyCrash { run });
            }
            let (Io::Write { file, .. } | Io::Sync { file, .. } | Io::Read { file, .. }) = &io;
            if self.disk.borrow().forgotten.contains(file) {
                return Err(format!("{file:?} is used although it was let go of"));
            }
            let (ticket, ends_us) = self.disk.borrow_mut().submit(now.us, io);
            self.at(ends_us, Event::DiskDone { run, shard, ticket });
        }
        for session in outbox.sendable.drain(..) {
            if let Some(link) = self.link_of(run, shard, session) {
                self.send_output(link, session);
            }
        }
        for session in outbox.resume.drain(..) {
            if let Some(link) = self.link_of(run, shard, session) {
                self.deliver(link);
            }
        }
        for (session, _) in outbox.close.drain(..) {
            if let Some(link) = self.link_of(run, shard, session) {
                self.close_at_server(link);
            }
        }
        for (to, mail) in outbox.mail.drain(..) {
            let to = usize::from(to);
            let delay_us = self.chance.latency(3);
            let core = &mut self.node.as_mut().expect("it runs").cores[shard];
            core.mail_us[to] = core.mail_us[to].max(now.us + delay_us);
            let when_us = core.mail_us[to];
            self.at(when_us, Event::Mail { run, to, mail });
        }
        for file in outbox.removals.drain(..) {
            self.coverage.borrow_mut().fault(Fault::Released);
            self.disk.borrow_mut().forgotten.insert(file);
            let when_us = now.us + self.chance.latency(5_000);
            self.at(when_us, Event::Remove { run, file });
        }
        let forgotten = outbox.forgotten.drain(..);
        self.disk.borrow_mut().forgotten.extend(forgotten);
        if std::mem::take(&mut outbox.has_taken_over) {
            self.taken_over += 1;
            let shards = usize::from(self.layout.shards);
            if self.taken_over == shards || is_planted(Bug::GoneBeforeAll) {
                let typical_us = self.reshards.pick(&[20, 5_000]);
                let when_us = now.us + self.reshards.latency(typical_us);
                self.at(when_us, Event::TakenOver { run });
            }
        }
        for rotten in outbox.rotten.drain(..) {
            self.judge_rotten(&rotten)?;
        }
        let reads_fail = self.plan.disk.read_error + self.plan.disk.bad_read > 0;
        if self.plan.budget == Budget::Survivable
            && !reads_fail
            && self.phase != Phase::Rot
            && let Some(damaged) = outbox.damaged.pop()
        {
            return Err(format!(
                "cleaning finds {:08}.seg damaged at {}, which nothing has touched",
                damaged.file.0, damaged.offset
            ));
        }
        for write in outbox.snapshots.drain(..) {
            let when_us = now.us + self.snapshots.latency(300);
            self.at(when_us, Event::Snapshot { run, shard, write });
        }
        for _ in 0..outbox.spares {
            let when_us = now.us + self.chance.latency(5_000);
            self.at(when_us, Event::Spare { run, shard });
        }
        if let Some(deadline_us) = deadline_us {
            self.turn_at(shard, deadline_us.max(now.us + 1));
        }
        let node = self.node.as_ref().expect("it runs");
        if node.is_stopping && node.cores.iter().all(|core| core.is_stopped) {
            self.at(now.us + 2_000, Event::Exit { run });
        }
        Ok(())
    }

    fn link_of(&self, run: u64, shard: usize, session: SessionId) -> Option<usize> {
        self.links.iter().rposition(|link| {
            link.run == run
                && link.shard == shard
                && link.session == Some(session)
                && !link.is_closed
        })
    }

    /// Gives the server what it has of a connection and did not take yet.
    fn deliver(&mut self, link: usize) {
        let Link {
            run,
            shard,
            session,
            ..
        } = self.links[link];
        let (true, Some(session)) = (self.is_run(run), session) else {
            return;
        };
        let bytes = std::mem::take(&mut self.links[link].inbound);
        if bytes.is_empty() {
            return;
        }
        let consumed = self.step(
            shard,
            ShardEvent::Received {
                session,
                bytes: &bytes,
            },
        );
        self.links[link].inbound = bytes[consumed..].to_vec();
    }

    /// Moves what a connection may send onto the network.
    fn send_output(&mut self, link: usize, session: SessionId) {
        let now = self.now();
        let shard = self.links[link].shard;
        let mut bytes = Vec::new();
        let node = self.node.as_mut().expect("it runs");
        let state = &mut node.cores[shard].shard;
        state.take_output(now, session, &mut bytes);
        let is_finished = state.is_finished(session);
        if !bytes.is_empty() {
            self.trace.fold_bytes(&bytes);
            if self.links[link].is_abandoned {
                // Nobody takes it: the server notices by its own deadline.
                return;
            }
            self.links[link].output_us.get_or_insert(now.us);
            let pieces = self.pieces(bytes);
            for piece in pieces {
                let delay_us = self.delay();
                let state = &mut self.links[link];
                state.client_us = state.client_us.max(now.us + delay_us);
                let when_us = state.client_us;
                self.at(when_us, Event::ToClient { link, bytes: piece });
            }
        }
        if is_finished {
            self.close_at_server(link);
        }
    }

    fn close_at_server(&mut self, link: usize) {
        let Link {
            run,
            shard,
            session,
            ..
        } = self.links[link];
        self.links[link].is_closed = true;
        if let Some(session) = session
            && self.is_run(run)
        {
            self.step(shard, ShardEvent::Closed { session });
        }
        self.close_soon(link);
    }

    fn close_soon(&mut self, link: usize) {
        self.links[link].is_closed = true;
        let delay_us = self.delay();
        let state = &mut self.links[link];
        state.client_us = state.client_us.max(self.now_us + delay_us);
        let when_us = state.client_us;
        self.at(when_us, Event::Closed { link });
    }

    // ---- the network ----

    fn delay(&mut self) -> u64 {
        let delay_us = self.network.latency(self.plan.network_us);
        if self.network.chance(self.plan.slow_network) {
            self.hit(Fault::SlowNetwork);
            return (delay_us * 1000).min(10_000_000);
        }
        delay_us
    }

    fn pieces(&mut self, bytes: Vec<u8>) -> Vec<Vec<u8>> {
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

    fn send_to_server(&mut self, link: usize, bytes: Vec<u8>) {
        let pieces = self.pieces(bytes);
        for piece in pieces {
            let delay_us = self.delay();
            let state = &mut self.links[link];
            state.server_us = state.server_us.max(self.now_us + delay_us);
            let when_us = state.server_us;
            self.at(when_us, Event::ToServer { link, bytes: piece });
        }
    }

    // ---- clients ----

    fn wake(&mut self, client: usize, typical_us: u64) {
        if !self.clients[client].is_awake {
            self.clients[client].is_awake = true;
            let delay_us = self.workload.latency(typical_us.max(1));
            self.at(self.now_us + delay_us, Event::Client { client });
        }
    }

    fn open_link(&mut self, client: Option<usize>) -> usize {
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

    fn client(&mut self, client: usize) -> Step {
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
        let level = self.workload.pick(self.plan.levels);
        let count = 1 + self.workload.index(self.plan.batch_max);
        let mut plans = Vec::new();
        if self.plan.is_wide && self.filled < self.plan.keys.len() {
            for key in (self.filled..self.plan.keys.len()).take(count) {
                plans.push(oracle::Plan {
                    operation: Operation::Set,
                    key,
                    other: None,
                    units: 1,
                    stock: 100_000 * u64::from(self.plan.keys[key].2),
                    value_bytes: 64,
                    expected: self.oracle.seen_version(key),
                    level: AckLevel::Disk,
                    expiry: Expiry::Never,
                });
            }
            self.filled += plans.len();
            self.send_batch(link, AckLevel::Disk, plans);
            self.wake(client, self.plan.think_us);
            return;
        }
        for _ in 0..count {
            if let Some(plan) = self.plan_past(level) {
                plans.push(plan);
                continue;
            }
            let retried = match self.clients[client].retries.pop_front() {
                Some(plan) if plan.level == level => {
                    self.coverage.borrow_mut().operation(Operation::Retry);
                    Some(plan)
                }
                _ => None,
            };
            let plan = retried.or_else(|| self.plan_operation(level));
            plans.extend(plan);
        }
        self.send_batch(link, level, plans);
        self.wake(client, self.plan.think_us);
    }

    /// Asks for the next page of the client's scan, or for the first of another one.
    fn send_page(&mut self, client: usize, link: usize) {
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

    fn next_request(&mut self, link: usize) -> u64 {
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
            operation,
            key,
            other,
            units: random.pick(&[1, 1, 1, 2, 5]),
            stock: if is_counter {
                random.pick(&[0, 3, 40, 100_000])
            } else {
                0
            },
            value_bytes,
            expected: self.oracle.seen_version(key),
            level,
            expiry,
        })
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
            operation,
            key,
            other: None,
            units,
            stock,
            value_bytes: 0,
            expected,
            level,
            expiry: Expiry::Keep,
        })
    }

    /// The time of the shard that owns a key; 0 while there is none.
    fn time_ms(&self, key: usize) -> u64 {
        let owner = Topology::new(self.layout.shards).owner(self.plan.keys[key].1);
        self.node.as_ref().map_or(0, |node| {
            node.cores[usize::from(owner)].shard.store().time_ms()
        })
    }

    fn send_batch(&mut self, link: usize, level: AckLevel, plans: Vec<oracle::Plan>) {
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
            if plan.expiry == Expiry::Keep && plan.operation.is_set() {
                self.coverage.borrow_mut().operation(Operation::KeepExpiry);
            }
            self.oracle.time_ms = self.time_ms(plan.key);
            let number = self.oracle.issue(plan, link as u64);
            numbers.push(Some(number));
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
        let version = Condition::Version(plan.expected);
        let instruction = |operation, key, offset, immediate| Instruction {
            operation,
            field_type: FieldType::U64,
            key,
            reason: 1,
            offset,
            immediate,
        };
        use instruction::Operation as I;
        let units = plan.units;
        let name = number as u64;
        match plan.operation {
            Operation::Get => batch.get(out, key),
            Operation::Tell => batch.get_with(out, key, Wanted::ValueAndExpiry),
            Operation::Set
            | Operation::SetTooLarge
            | Operation::Ping
            | Operation::Retry
            | Operation::KeepExpiry
            | Operation::Expired
            | Operation::Scan
            | Operation::ScanOverStart => {
                let value = match plan.operation {
                    Operation::SetTooLarge => vec![1; plan.value_bytes],
                    _ => value,
                };
                batch.set_with(out, key, &value, Condition::Always, plan.expiry);
            }
            Operation::SetAbsent => {
                batch.set_with(out, key, &value, Condition::Absent, plan.expiry);
            }
            Operation::SetPresent => {
                batch.set_with(out, key, &value, Condition::Present, plan.expiry);
            }
            Operation::SetVersion => batch.set_with(out, key, &value, version, plan.expiry),
            Operation::Expire | Operation::Persist => batch.update_if_with(
                out,
                key,
                None,
                &[
                    instruction(I::Add, 0, 0, 0),
                    instruction(I::Set, 0, 8, name),
                ],
                None,
                plan.expiry,
            ),
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
            Operation::Del => batch.del(out, key, Condition::Always),
            Operation::DelVersion => batch.del(out, key, version),
            Operation::Take => batch.update_if_with(
                out,
                key,
                None,
                &[
                    instruction(I::Ge, 0, 0, units),
                    instruction(I::Sub, 0, 0, units),
                    instruction(I::Set, 0, 8, name),
                ],
                None,
                plan.expiry,
            ),
            Operation::TakeOrMake => batch.update_if_with(
                out,
                key,
                None,
                &[
                    instruction(I::Ge, 0, 0, units),
                    instruction(I::Sub, 0, 0, units),
                    instruction(I::Set, 0, 8, name),
                ],
                Some(&value),
                plan.expiry,
            ),
            Operation::TakeAndFail => batch.update_if_with(
                out,
                key,
                None,
                &[
                    instruction(I::Ge, 0, 0, units),
                    instruction(I::Sub, 0, 0, units),
                    instruction(I::Set, 0, 8, name),
                    instruction(I::Eq, 0, 16, u64::MAX),
                ],
                // With an expiry it also starts from a value, in vain.
                (plan.expiry != Expiry::Keep).then_some(&value[..]),
                plan.expiry,
            ),
            Operation::Look => {
                batch.update_if(out, key, None, &[instruction(I::Ge, 0, 0, units)], None);
            }
            Operation::LookOrMake => {
                batch.update_if(out, key, None, &[instruction(I::Ge, 0, 0, 0)], Some(&value))
            }
            Operation::GiveOther => {
                let other = plan.other.expect("it has two keys");
                let other = &self.plan.keys[other].0;
                batch.update_if(
                    out,
                    key,
                    Some(other),
                    &[
                        instruction(I::Ge, 0, 0, 0),
                        instruction(I::Add, 1, 0, units),
                        instruction(I::Set, 1, 8, name),
                    ],
                    None,
                );
            }
            Operation::Move => {
                let other = plan.other.expect("a move has two keys");
                let other = &self.plan.keys[other].0;
                batch.update_if(
                    out,
                    key,
                    Some(other),
                    &[
                        instruction(I::Ge, 0, 0, units),
                        instruction(I::Sub, 0, 0, units),
                        instruction(I::Add, 1, 0, units),
                        instruction(I::Set, 0, 8, name),
                        instruction(I::Set, 1, 8, name),
                    ],
                    None,
                );
            }
        }
    }

    fn reach_client(&mut self, link: usize, bytes: Vec<u8>) -> Step {
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
            let Some(number) = waiting else {
                return Err(format!(
                    "item {} of request {request} was answered and nobody asked, or twice",
                    item.head.item
                ));
            };
            self.answered += 1;
            self.coverage.borrow_mut().status(item.head.status.name());
            self.judge_deadline(link, header, batch.len(), number, item.head.status)?;
            self.oracle.time_ms = self.time_ms(self.oracle.records[number].plan.key);
            let expired = self.oracle.expired;
            self.oracle.answer(self.now_us, number, &item)?;
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
                "a frame that answers request {request} says more follow: {has_more}; it is answered whole: {is_whole}"
            ));
        }
        if is_whole {
            self.links[link].outstanding.remove(&request);
        }
        Ok(())
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
    fn client_sees_close(&mut self, link: usize) {
        if self.links[link].is_abandoned {
            return;
        }
        self.give_up(link);
    }

    /// What was not answered on a connection is unknown from now on.
    fn give_up(&mut self, link: usize) {
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
        for number in outstanding.into_values().flatten().flatten() {
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

    // ---- what happens to them ----

    fn advance(&mut self) -> Step {
        if self.phase == Phase::Traffic {
            while let Some(&(at, blow)) = self.plan.blows.get(self.next_blow)
                && self.issued >= at
            {
                // A node that is down or about to be waits for its next blow.
                let needs_node = matches!(blow, Blow::Kill | Blow::PowerCut | Blow::CleanStop);
                if needs_node && self.node.as_ref().is_none_or(|node| node.is_stopping) {
                    break;
                }
                self.next_blow += 1;
                self.strike(blow);
            }
            if self.issued >= self.plan.operations
                && self.next_blow >= self.plan.blows.len()
                && self.node.as_ref().is_some_and(|node| !node.is_stopping)
            {
                self.be_quiet();
            }
            return Ok(());
        }
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        if self.now_us > self.phase_us + QUIET_US_MAX {
            let waiting: Vec<String> = self
                .oracle
                .records
                .iter()
                .enumerate()
                .filter(|(_, record)| record.state == State::Pending)
                .take(3)
                .map(|(number, record)| {
                    format!(
                        "{number} {:?} on key {}",
                        record.plan.operation, record.plan.key
                    )
                })
                .collect();
            return Err(format!(
                "without faults {} s in phase {:?} are not enough; not answered: {}",
                QUIET_US_MAX / 1_000_000,
                self.phase,
                waiting.join(", ")
            ));
        }
        let is_served = self.node.as_ref().is_some_and(|node| !node.is_stopping);
        let is_idle = is_served
            && self
                .links
                .iter()
                .all(|link| link.is_abandoned || link.outstanding.is_empty());
        let all_ready = self.clients.iter().all(|client| {
            client
                .link
                .is_some_and(|link| self.links[link].is_ready && !self.links[link].is_closed)
        });
        match self.phase {
            Phase::Drain if is_idle => self.crash_once_more(),
            Phase::Quiet if is_idle && all_ready => {
                self.oracle.must_execute = true;
                self.looked_at = 0;
                self.enter(Phase::Audit);
            }
            Phase::Audit | Phase::Last
                if is_idle && all_ready && self.looked_at < self.plan.keys.len() =>
            {
                self.look();
            }
            Phase::Audit | Phase::Last if is_idle && all_ready && !self.has_scanned => {
                let link = self.clients[0].link.expect("all are connected");
                self.send_page(0, link);
            }
            Phase::Audit if is_idle && all_ready => {
                self.has_scanned = false;
                self.looked_at = 0;
                self.enter(Phase::Last);
                self.stop();
            }
            Phase::Last if is_idle && all_ready && self.run > self.phase_run => {
                self.rot();
            }
            Phase::Rot => return self.must_be_told(),
            _ => {}
        }
        Ok(())
    }

    /// Lets a bit of a sealed segment rot under the running node.
    fn rot(&mut self) {
        self.enter(Phase::Done);
        let Some(node) = self.node.as_ref().filter(|_| self.plan.scrub_us > 0) else {
            return;
        };
        let sealed: Vec<_> = node
            .cores
            .iter()
            .flat_map(|core| {
                let log = core.shard.store().log();
                let open = log.durable_end().segment_sequence;
                let sealed = log.sealed_segments().iter();
                sealed.filter(move |segment| segment.end.sequence < open)
            })
            .copied()
            .collect();
        if sealed.is_empty() {
            return;
        }
        let segment = sealed[self.chance.index(sealed.len())];
        let at = self
            .chance
            .index(usize::try_from(segment.end.end_offset).expect("small files"));
        let mut disk = self.disk.borrow_mut();
        let byte = disk.image(segment.file).expect("it is sealed")[at];
        disk.damage(segment.file, at, &[byte ^ 1 << self.chance.below(8)]);
        drop(disk);
        self.rotting = Some(segment.file);
        self.enter(Phase::Rot);
    }

    /// The rot must be told within two periods, unless cleaning has released the segment since.
    fn must_be_told(&mut self) -> Step {
        let is_there = self.rotting.is_some_and(|file| {
            let cores = self.node.iter().flat_map(|node| &node.cores);
            let mut sealed = cores.flat_map(|core| core.shard.store().log().sealed_segments());
            sealed.any(|segment| segment.file == file)
        });
        if !is_there {
            self.enter(Phase::Done);
        } else if self.now_us > self.phase_us + 2 * self.plan.scrub_us + ROT_US_MAX {
            return Err(format!(
                "what rotted in a sealed segment was not told: {}",
                self.describe_damage().join(", ")
            ));
        }
        Ok(())
    }

    /// Looking through sealed segments found damage.
    fn judge_rotten(&mut self, rotten: &Corruption) -> Step {
        self.trace.fold_bytes(rotten.to_string().as_bytes());
        let disk = self.disk.borrow();
        let may_misread = disk.faults.read_error > 0 || disk.faults.bad_read > 0;
        if !disk.is_damaged() && !may_misread {
            return Err(format!("nothing is damaged, and it was told: {rotten}"));
        }
        drop(disk);
        if self.rotting == Some(rotten.file) {
            self.rotting = None;
            self.hit(Fault::RotTold);
        }
        Ok(())
    }

    fn enter(&mut self, phase: Phase) {
        self.phase = phase;
        self.phase_us = self.now_us;
        self.phase_run = self.run;
    }

    /// No more faults from here on.
    fn be_quiet(&mut self) {
        {
            let mut disk = self.disk.borrow_mut();
            disk.faults = DiskFaults::default();
            disk.bytes_max = 0;
            disk.is_full = false;
        }
        self.plan.memory_bytes_max = usize::MAX;
        for core in self.node.iter_mut().flat_map(|node| &mut node.cores) {
            core.shard.set_memory_bytes_max(usize::MAX);
        }
        self.plan.slow_network = 0;
        if self.paused_until_us > self.now_us {
            self.paused_until_us = self.now_us;
            self.at(self.now_us, Event::RunsAgain);
        }
        // Either everything is answered first, or everything that is on its way meets the crash.
        self.enter(Phase::Drain);
        if self.chance.chance(500_000) {
            self.crash_once_more();
        }
    }

    /// What this crash leaves must be all.
    fn crash_once_more(&mut self) {
        self.enter(Phase::Quiet);
        let is_power_cut = self.chance.chance(700_000);
        self.hit(if is_power_cut {
            Fault::PowerCut
        } else {
            Fault::Kill
        });
        self.die(is_power_cut);
    }

    fn stop(&mut self) {
        self.hit(Fault::CleanStop);
        let Some(node) = self.node.as_mut() else {
            return;
        };
        node.is_stopping = true;
        let run = node.run;
        for shard in 0..usize::from(self.layout.shards) {
            self.step(shard, ShardEvent::Stop);
        }
        self.at(self.now_us + CLEAN_STOP_US_MAX, Event::Exit { run });
    }

    /// Reads the next few keys at level disk: so few that no queue may be full.
    fn look(&mut self) {
        let link = self.clients[0].link.expect("all are connected");
        let next = self.looked_at;
        let plans: Vec<oracle::Plan> = (next..self.plan.keys.len())
            .take(4)
            .map(|key| oracle::Plan {
                operation: Operation::Get,
                key,
                other: None,
                units: 1,
                stock: 0,
                value_bytes: 0,
                expected: self.oracle.seen_version(key),
                level: AckLevel::Disk,
                expiry: Expiry::Keep,
            })
            .collect();
        self.looked_at += plans.len();
        self.send_batch(link, AckLevel::Disk, plans);
    }

    fn strike(&mut self, blow: Blow) {
        self.trace.fold(&[self.issued as u64, 0xB10]);
        let live: Vec<usize> = self
            .links
            .iter()
            .enumerate()
            .filter(|(_, link)| {
                link.client.is_some() && link.is_ready && !link.is_closed && !link.is_abandoned
            })
            .map(|(number, _)| number)
            .collect();
        let victim = (!live.is_empty()).then(|| live[self.chance.index(live.len())]);
        match blow {
            Blow::Kill => {
                self.hit(Fault::Kill);
                self.die(false);
            }
            Blow::PowerCut => {
                self.hit(Fault::PowerCut);
                self.die(true);
            }
            Blow::CleanStop => self.stop(),
            Blow::Pause(us) => {
                self.hit(Fault::Pause);
                self.paused_until_us = self.paused_until_us.max(self.now_us + us);
                let until_us = self.paused_until_us;
                self.held_up_until_us = self.held_up_until_us.max(until_us + SETTLE_US);
                self.at(until_us, Event::RunsAgain);
            }
            Blow::ClockJump(ms) => {
                self.hit(Fault::ClockJump);
                self.unix_offset_ms += ms;
            }
            Blow::NoSpace(us) => {
                self.disk.borrow_mut().is_full = true;
                // Whoever waits for a segment waits until then, and for the maker's next try.
                self.held_up_until_us = self.held_up_until_us.max(self.now_us + us + SETTLE_US);
                self.at(self.now_us + us, Event::SpaceIsBack);
            }
            Blow::Cut => {
                if let Some(link) = victim {
                    self.hit(Fault::CutConnection);
                    self.close_at_server(link);
                }
            }
            Blow::HalfOpen => {
                if let Some(link) = victim {
                    self.hit(Fault::HalfOpen);
                    self.give_up(link);
                }
            }
            Blow::SlowReader(us) => {
                if let Some(link) = victim {
                    self.hit(Fault::SlowReader);
                    self.links[link].is_reading = false;
                    self.at(self.now_us + us, Event::ReadsAgain { link });
                }
            }
            Blow::Hostile => {
                self.hit(Fault::HostileBytes);
                let link = self.open_link(None);
                let mut bytes = Vec::new();
                if self.chance.chance(500_000) {
                    ClientHello {
                        protocol_min: 1,
                        protocol_max: 1,
                        features: 0,
                        name: "hostile",
                    }
                    .write(&mut bytes, 0);
                }
                let mut batch = BatchRequest::begin(&mut bytes, 9, AckLevel::Disk, 0, 1);
                // Reads alone: a flipped bit that makes another good request changes nothing.
                batch.get(&mut bytes, b"nobody's key");
                batch.finish(&mut bytes);
                for _ in 0..self.chance.within(1, 8) {
                    let at = self.chance.index(bytes.len());
                    bytes[at] ^= 1 << self.chance.below(8);
                }
                let noise = self.chance.index(200);
                for _ in 0..noise {
                    let [byte, ..] = self.chance.bits().to_le_bytes();
                    bytes.push(byte);
                }
                self.send_to_server(link, bytes);
            }
        }
    }

    fn judge(&mut self) -> Result<u64, String> {
        if self.plan.shards < 2
            || self.plan.clients < 8
            || self.oracle.records.len() < 5_000
            || self.recoveries < 1
        {
            return Err(format!(
                "the run does not count: {} shards, {} clients, {} operations, {} recoveries",
                self.plan.shards,
                self.plan.clients,
                self.oracle.records.len(),
                self.recoveries
            ));
        }
        self.oracle.finish()?;
        linear::check(&self.oracle)
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
            | Event::Remove { .. }
            | Event::Snapshot { .. }
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
        Event::TakenOver { .. } => 19,
        Event::Snapshot { shard, .. } => 18 + 64 * (*shard as u64),
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
