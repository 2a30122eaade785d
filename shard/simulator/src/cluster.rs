//! One run of a cluster: three nodes of one or more shards with disks of their own, links between them, an
//! operator who promotes, and clients, in one thread and in virtual time.
//!
//! A second shell around [`Shard::step`] as [`crate::world`] is, for what that one leaves out: plans that reach
//! the nodes at different times, links that are cut, one-way, slow or gone, nodes that are killed, paused,
//! without power or come back with nothing; [`harms`] has the rest. What it does not have is in `world`: damage
//! at rest, lost writes, pipelining, keyspaces.
//!
//! What is judged is in [`oracle`].

mod client;
mod harms;
mod node;
mod operator;
mod oracle;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use penstock_net::link::Membership;
use penstock_net::link::message::LINK_PARTITIONS;
use penstock_net::slot::slot_of;
use penstock_shard::linked::{Assignment, PartitionRole, Plan};
use penstock_shard::replication::PENDING_BYTES_MAX;
use penstock_shard::replication::{Duty, Lag, LinkId, LinkState, PeerStatus};

use penstock_shard::{
    Event as ShardEvent, Fatal, KeyTableOrder, Mail, Now, SnapshotWrite, Topology,
};
use penstock_storage::io::Io;
use penstock_storage::key_table::TableHome;
use penstock_storage::log::SyncMethod;
use penstock_storage::place::FileId;
use penstock_storage::version::partition_of;

use crate::coverage::Coverage;
use crate::random::Random;
use crate::report::Report;
use crate::trace::Trace;

use client::Client;
use harms::{Harms, Stage, Strike};
use node::{Core, Node};
use oracle::{Kept, Oracle};

/// Seeds below are from before nodes took snapshots and members answered reads, and do neither.
const SNAPSHOTS_FROM: u64 = 1 << 20;
/// Seeds below are from before there were harms.
const HARMS_FROM: u64 = 60_000_000;
/// And full disks that stay full until writers are refused from here on.
const REFUSALS_FROM: u64 = 62_002_000;

/// Nodes have the numbers from 1 on.
const NODES: usize = 3;
/// Who writes the partitions that no key of a run is in: nobody.
const NOBODY: u8 = 200;
/// Groups of keys, each in one slot.
const GROUPS: usize = 4;
/// Events of one run, at most.
const EVENTS_MAX: u64 = 4_000_000;
/// Within this, without any fault, all nodes are the same.
const SETTLE_US_MAX: u64 = 120_000_000;
/// How often the operator looks.
const LOOK_US: u64 = 300_000;

type Step = Result<(), String>;

/// What a seed decides.
#[derive(Clone, Debug)]
struct Setting {
    operations: u64,
    clients: usize,
    value_bytes: usize,
    cache_bytes: usize,
    frame_bytes: usize,
    /// Memory for reads, beside what the log needs.
    read_bytes: usize,
    segment_bytes_more: u64,
    ring_bytes_max: usize,
    backlog_bytes_max: u64,
    catch_up_bytes_per_s: u64,
    pending_bytes_max: usize,
    network_us: u64,
    think_us: u64,
    /// Between two blows, about.
    blows_us: u64,
    /// Node 3 is a learner.
    has_learner: bool,
    /// A node may lose its disk, once in a run.
    may_wipe: bool,
    /// A node may start with an older copy of its directory, once in a run.
    may_go_back: bool,
    /// Parts of a million of the operations that ask for level replica.
    replica_level: u32,
    /// Of new log between two snapshots of an index; none if 0.
    snapshot_bytes: u64,
    sync: SyncMethod,
    /// What segments may take of what counts in them.
    space_percent_max: u32,
    /// How long a stop waits for a snapshot.
    stop_us_max: u64,
    /// How fast it is rewritten, at most.
    cleaning_bytes_per_s: u64,
}

impl Setting {
    fn new(random: &mut Random) -> Self {
        Setting {
            operations: random.within(60, 400),
            clients: 2 + random.index(6),
            value_bytes: random.pick(&[16, 600, 3_000]),
            cache_bytes: random.pick(&[6_000, 40_000, 1 << 20]),
            frame_bytes: random.pick(&[8 << 10, 16 << 10]),
            segment_bytes_more: random.pick(&[0, 32 << 10, 256 << 10]),
            ring_bytes_max: random.pick(&[2_000, 20_000, 1 << 20]),
            backlog_bytes_max: random.pick(&[u64::MAX, u64::MAX, 200_000, 0]),
            catch_up_bytes_per_s: 0,
            pending_bytes_max: PENDING_BYTES_MAX,
            network_us: random.pick(&[50, 200, 5_000]),
            think_us: random.pick(&[200, 3_000, 20_000]),
            blows_us: random.pick(&[30_000, 200_000, 1_000_000]),
            has_learner: random.chance(250_000),
            may_wipe: random.chance(250_000),
            may_go_back: false,
            replica_level: random.pick(&[0, 300_000, 700_000]),
            read_bytes: random.pick(&[64 << 10, 300 << 10, 1 << 20]),
            snapshot_bytes: 0,
            sync: SyncMethod::DurableWrite,
            space_percent_max: 120,
            cleaning_bytes_per_s: 1 << 30,
            stop_us_max: 0,
        }
    }
}

enum Event {
    Start {
        node: usize,
    },
    Turn {
        node: usize,
        run: u64,
        shard: usize,
    },
    DiskDone {
        node: usize,
        run: u64,
        shard: usize,
        ticket: u64,
    },
    Mail {
        node: usize,
        run: u64,
        to: usize,
        mail: Mail,
    },
    Spare {
        node: usize,
        run: u64,
        shard: usize,
    },
    Remove {
        node: usize,
        run: u64,
        file: FileId,
    },
    Snapshot {
        node: usize,
        run: u64,
        shard: usize,
        write: SnapshotWrite,
    },
    KeyTable {
        node: usize,
        run: u64,
        shard: usize,
        home: TableHome,
    },
    /// Lostfound is durable.
    Found {
        node: usize,
        run: u64,
        shard: usize,
        partition: u16,
        link: Option<LinkId>,
    },
    /// The operator empties the directory of a node that says that it must be.
    Empty {
        node: usize,
        run: u64,
    },
    /// The cluster's file has changed and is read.
    Plan {
        node: usize,
        run: u64,
    },
    /// Looks which links are wanted.
    Dial {
        node: usize,
        run: u64,
    },
    LinkBytes {
        link: u64,
        is_there: bool,
        bytes: Vec<u8>,
    },
    /// One end hears that the other is gone.
    LinkGone {
        link: u64,
        is_there: bool,
    },
    RunsAgain {
        node: usize,
    },
    Heal {
        from: usize,
        to: usize,
    },
    ToServer {
        client: usize,
        connection: u64,
        bytes: Vec<u8>,
    },
    ToClient {
        client: usize,
        connection: u64,
        bytes: Vec<u8>,
    },
    /// A client hears that its connection is gone.
    Closed {
        client: usize,
        connection: u64,
    },
    Client {
        client: usize,
    },
    Timeout {
        client: usize,
        connection: u64,
        request: u64,
    },
    Blow,
    Harm,
    Strike {
        strike: Strike,
    },
    /// A disk that was full is not any more.
    Roomy {
        node: usize,
    },
    /// The operator looks after a damaged disk.
    Repair {
        node: usize,
        run: u64,
    },
    /// It is durable that what all shards have taken over is void.
    TakenOver {
        node: usize,
        run: u64,
    },
    /// The operator looks.
    Look,
}

/// One end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct End {
    node: usize,
    run: u64,
    shard: usize,
}

/// A link between two shards; the source is the end that ships.
struct Link {
    source: End,
    destination: End,
    /// When the last bytes of each direction arrive.
    there_us: u64,
    back_us: u64,
    /// What came for an end that reads no more now, or while the way is cut.
    waiting: [VecDeque<Vec<u8>>; 2],
    /// The ends that are gone: source, destination.
    is_gone: [bool; 2],
}

impl Link {
    /// The end that gets the bytes of a direction.
    fn end(&self, is_there: bool) -> End {
        match is_there {
            true => self.destination,
            false => self.source,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Traffic,
    /// No more faults: until all nodes are the same.
    Settle,
    Done,
}

struct World {
    setting: Setting,
    now_us: u64,
    queue: BTreeMap<(u64, u64), Event>,
    next_event: u64,
    trace: Trace,
    met: BTreeMap<&'static str, u64>,
    nodes: Vec<Node>,
    plan: Arc<Plan>,
    /// The partitions with keys.
    partitions: Vec<u16>,
    links: BTreeMap<u64, Link>,
    next_link: u64,
    /// Who is linked: source and destination, each with its shard.
    linked: BTreeMap<(usize, usize, usize, usize), u64>,
    /// No bytes come from the one to the other.
    cuts: BTreeSet<(usize, usize)>,
    clients: Vec<Client>,
    next_connection: u64,
    oracle: Oracle,
    issued: u64,
    answered: u64,
    phase: Phase,
    phase_us: u64,
    /// For how many looks nobody has served each partition.
    idle_looks: BTreeMap<u16, u64>,
    has_wiped: bool,
    has_gone_back: bool,
    /// The operator lets a node write what it has of a scan or a rewind.
    is_incomplete_accepted: bool,
    may_accept_incomplete: bool,
    /// The cluster is made: each partition was begun once.
    is_made: bool,
    chance: Random,
    network: Random,
    workload: Random,
    snapshots: Random,
    reads: Random,
    harms: Harms,
    harm: Random,
    /// Nodes that enter a sync set and may not be promoted yet, each time by another number.
    joining: BTreeMap<(u16, u8), u64>,
    next_joining: u64,
    /// Handovers that are not over: from which node to which, and where both were.
    handed: BTreeMap<u16, (usize, usize, Stage)>,
    /// A disk was full once, and one of the nodes had another number of shards: a log may have let go of some of a tail.
    was_full: bool,
    has_changed_shards: bool,
    failure: Option<String>,
}

/// Runs a seed to its end.
#[must_use]
pub fn run(seed: u64) -> Report {
    let mut world = World::new(seed);
    let outcome = world.run();
    let failure = match (outcome, world.failure.take()) {
        (_, Some(failure)) | (Err(failure), None) => Some(failure),
        (Ok(()), None) => None,
    };
    Report {
        hash: world.trace.hash(),
        simulated_us: world.now_us,
        operations: world.issued,
        answered: world.answered,
        recoveries: world.nodes.iter().map(|node| node.run - 1).sum(),
        judged_keys: world.oracle.keys().len() as u64,
        coverage: Coverage::of_cluster(world.met),
        failure,
    }
}

/// The number of a node, by its place.
fn number_of(node: usize) -> u8 {
    u8::try_from(node + 1).expect("few nodes")
}

impl World {
    fn new(seed: u64) -> Self {
        let mut chance = Random::new(seed, 101);
        let mut snapshots = Random::new(seed, 104);
        let mut setting = Setting::new(&mut chance);
        if seed >= SNAPSHOTS_FROM {
            setting.snapshot_bytes = snapshots.pick(&[0, 20_000, 200_000]);
            setting.catch_up_bytes_per_s = snapshots.pick(&[0, 0, 300_000]);
            setting.may_go_back = snapshots.chance(250_000);
            setting.may_wipe &= !setting.may_go_back;
        }
        // Every other thousand, none of which has a seed that is stored from before.
        if seed / 1_000 % 2 == 1 && seed >= SNAPSHOTS_FROM {
            setting.pending_bytes_max = snapshots.pick(&[20_000, 500]);
        }
        let mut harm = Random::new(seed, 106);
        let mut harms = Harms::default();
        let mut met = BTreeMap::new();
        if seed >= HARMS_FROM {
            met.extend(harms::MUST_MEET.iter().map(|&what| (what, 0)));
            harms = Harms::new(&mut harm);
            setting.sync = harm.pick(&[SyncMethod::DurableWrite, SyncMethod::WriteThenSync]);
            setting.space_percent_max = harm.pick(&[120, 120, 300]);
            setting.cleaning_bytes_per_s = harm.pick(&[1 << 30, 300_000, 30_000]);
            setting.stop_us_max = harm.pick(&[0, 3_000_000]);
            if harms.full_disks {
                setting.value_bytes = 3_000;
            }
            // Without this, pacing and the last segments carry nearly all clusters over a full disk.
            if harms.full_disks && seed >= REFUSALS_FROM && harm.chance(500_000) {
                setting.segment_bytes_more = 0;
                setting.operations *= 4;
                harms.full_us_max = 60_000_000;
            }
        }
        let mut partitions: Vec<u16> = Vec::new();
        let mut tags = Vec::new();
        let mut tag = chance.below(1 << 20);
        while partitions.len() < GROUPS {
            tag += 1;
            let slot = slot_of(format!("{{{tag}}}").as_bytes());
            let partition = u16::try_from(partition_of(slot)).expect("256");
            if !partitions.contains(&partition) {
                partitions.push(partition);
                tags.push((tag, partition));
            }
        }
        let members = |primary: u8| {
            let all = (0..NODES).map(number_of);
            let kept = all.filter(|&number| number != primary);
            kept.map(|number| match setting.has_learner && number == 3 {
                true => (number, Membership::Learner),
                false => (number, Membership::Sync),
            })
            .collect()
        };
        let nobody = Assignment {
            generation: 1,
            primary: NOBODY,
            members: Vec::new(),
            is_handed_over: false,
            is_loss_accepted: false,
            is_incomplete_accepted: false,
        };
        let mut assignments = vec![nobody; usize::from(LINK_PARTITIONS)];
        for &partition in &partitions {
            let primary = number_of(chance.index(2));
            assignments[usize::from(partition)] = Assignment {
                generation: 1,
                primary,
                members: members(primary),
                is_handed_over: false,
                is_loss_accepted: false,
                is_incomplete_accepted: false,
            };
        }
        let plan = Arc::new(Plan {
            partitions: assignments,
            clients: (0..NODES)
                .map(|node| (number_of(node), format!("node {}", number_of(node))))
                .collect(),
        });
        let nodes: Vec<Node> = (0..NODES)
            .map(|node| {
                let shards = chance.pick(&[1, 1, 2, 3]);
                Node::new(node, shards, seed, chance.bits(), Arc::clone(&plan))
            })
            .collect();
        let mut reads = Random::new(seed, 105);
        let readers = match seed >= SNAPSHOTS_FROM {
            true => reads.pick(&[0, 1, 3]),
            false => 0,
        };
        let writing = (0..setting.clients).map(|number| Client::new(number % NODES));
        let reading = (0..readers).map(|number| Client::reader(number % NODES));
        let clients = writing.chain(reading).collect();
        World {
            now_us: 1_000_000,
            queue: BTreeMap::new(),
            next_event: 0,
            trace: Trace::new(),
            met,
            nodes,
            plan,
            oracle: Oracle::new(tags),
            partitions,
            links: BTreeMap::new(),
            next_link: 1,
            linked: BTreeMap::new(),
            cuts: BTreeSet::new(),
            clients,
            next_connection: 1,
            issued: 0,
            answered: 0,
            phase: Phase::Traffic,
            phase_us: 0,
            idle_looks: BTreeMap::new(),
            has_wiped: false,
            has_gone_back: false,
            is_incomplete_accepted: false,
            may_accept_incomplete: seed % 4 == 1,
            is_made: false,
            chance,
            network: Random::new(seed, 102),
            workload: Random::new(seed, 103),
            snapshots,
            reads,
            harms,
            harm,
            joining: BTreeMap::new(),
            next_joining: 0,
            handed: BTreeMap::new(),
            was_full: false,
            has_changed_shards: false,
            failure: None,
            setting,
        }
    }

    fn meet(&mut self, what: &'static str) {
        *self.met.entry(what).or_default() += 1;
    }

    fn at(&mut self, when_us: u64, event: Event) {
        self.queue
            .insert((when_us.max(self.now_us), self.next_event), event);
        self.next_event += 1;
    }

    fn after(&mut self, delay_us: u64, event: Event) {
        self.at(self.now_us + delay_us, event);
    }

    fn now(&self) -> Now {
        Now {
            us: self.now_us,
            unix_ms: 1_800_000_000_000 + self.now_us / 1000,
        }
    }

    fn run(&mut self) -> Step {
        let shards = |world: &World, node: usize| world.nodes[node].shards;
        if (1..NODES).any(|node| shards(self, node) != shards(self, 0)) {
            self.meet("other numbers of shards");
        }
        if self.setting.has_learner {
            self.meet("learner");
        }
        for node in 0..NODES {
            self.at(self.now_us, Event::Start { node });
        }
        for client in 0..self.clients.len() {
            let delay_us = self.workload.latency(5_000);
            self.after(delay_us, Event::Client { client });
        }
        self.after(LOOK_US, Event::Look);
        let mut events = 0;
        while self.phase != Phase::Done {
            let Some(((when_us, _), event)) = self.queue.pop_first() else {
                return Err("nothing moves any more".into());
            };
            self.now_us = self.now_us.max(when_us);
            events += 1;
            if events > EVENTS_MAX {
                return Err(format!("no end after {EVENTS_MAX} events"));
            }
            if let Some(node) = node_of(&event)
                && self.now_us < self.nodes[node].paused_until_us
            {
                self.nodes[node].frozen.push_back(event);
                continue;
            }
            self.trace.fold(&[self.now_us, code_of(&event)]);
            self.take(event)?;
            if let Some(failure) = self.failure.take() {
                return Err(failure);
            }
        }
        Ok(())
    }

    fn take(&mut self, event: Event) -> Step {
        match event {
            Event::Start { node } => self.start(node),
            Event::Turn { node, run, shard } => self.turn(node, run, shard),
            Event::DiskDone {
                node,
                run,
                shard,
                ticket,
            } => {
                if self.is_run(node, run) {
                    let completion = self.nodes[node].disk.borrow_mut().complete(ticket);
                    self.step(node, shard, ShardEvent::Completed(completion));
                }
                Ok(())
            }
            Event::Mail {
                node,
                run,
                to,
                mail,
            } => {
                if self.is_run(node, run) {
                    self.step(node, to, ShardEvent::Mail(mail));
                }
                Ok(())
            }
            Event::Snapshot {
                node,
                run,
                shard,
                write,
            } => {
                if self.is_run(node, run) {
                    self.write_snapshot(node, shard, write);
                }
                Ok(())
            }
            Event::KeyTable {
                node,
                run,
                shard,
                home,
            } => {
                if self.is_run(node, run) {
                    let table = self.nodes[node].make_key_table(&home);
                    let file = home.file;
                    self.step(node, shard, ShardEvent::KeyTable { file, table });
                }
                Ok(())
            }
            Event::Spare { node, run, shard } => {
                if self.is_run(node, run) {
                    self.spare(node, shard);
                }
                Ok(())
            }
            Event::Remove { node, run, file } => {
                if self.is_run(node, run) {
                    self.nodes[node].disk.borrow_mut().unlink(file);
                }
                Ok(())
            }
            Event::Found {
                node,
                run,
                shard,
                partition,
                link,
            } => {
                let is_full = self.nodes[node].disk.borrow().bytes_max > 0;
                if self.is_run(node, run) && is_full {
                    let found = Event::Found {
                        node,
                        run,
                        shard,
                        partition,
                        link,
                    };
                    self.after(20_000, found);
                } else if self.is_run(node, run) {
                    self.nodes[node].sync_found(shard);
                    self.step(node, shard, ShardEvent::TailKept { partition, link });
                }
                Ok(())
            }
            Event::Plan { node, run } => {
                if self.is_run(node, run) {
                    let plan = Arc::clone(&self.plan);
                    self.nodes[node].plan = Arc::clone(&plan);
                    for shard in 0..usize::from(self.nodes[node].shards) {
                        self.step(node, shard, ShardEvent::Plan(Arc::clone(&plan)));
                    }
                }
                Ok(())
            }
            Event::Empty { node, run } => {
                if self.is_run(node, run) {
                    self.empty(node);
                }
                Ok(())
            }
            Event::Dial { node, run } => {
                if self.is_run(node, run) {
                    self.dial(node);
                    let delay_us = self.network.within(2_000, 40_000);
                    self.after(delay_us, Event::Dial { node, run });
                }
                Ok(())
            }
            Event::LinkBytes {
                link,
                is_there,
                bytes,
            } => {
                if let Some(state) = self.links.get_mut(&link) {
                    state.waiting[usize::from(is_there)].push_back(bytes);
                    self.read_link(link, is_there);
                }
                Ok(())
            }
            Event::LinkGone { link, is_there } => {
                self.end_is_gone(link, is_there);
                Ok(())
            }
            Event::RunsAgain { node } => {
                while self.now_us >= self.nodes[node].paused_until_us
                    && let Some(event) = self.nodes[node].frozen.pop_front()
                {
                    self.trace.fold(&[self.now_us, code_of(&event)]);
                    self.take(event)?;
                }
                self.read_all(|_, to| to == node);
                Ok(())
            }
            Event::Heal { from, to } => {
                self.heal(from, to);
                Ok(())
            }
            Event::ToServer {
                client,
                connection,
                bytes,
            } => {
                self.reach_server(client, connection, bytes);
                Ok(())
            }
            Event::ToClient {
                client,
                connection,
                bytes,
            } => self.reach_client(client, connection, &bytes),
            Event::Closed { client, connection } => {
                if self.clients[client].connection == Some(connection) {
                    self.give_up(client);
                }
                Ok(())
            }
            Event::Client { client } => {
                self.client(client);
                Ok(())
            }
            Event::Timeout {
                client,
                connection,
                request,
            } => {
                let state = &self.clients[client];
                let is_waiting = state.request == request && state.operation.is_some();
                if state.connection == Some(connection) && is_waiting {
                    self.give_up(client);
                }
                Ok(())
            }
            Event::Blow => {
                self.blow();
                Ok(())
            }
            Event::Harm => {
                self.befall();
                Ok(())
            }
            Event::Strike { strike } => {
                self.strike(strike);
                Ok(())
            }
            Event::Roomy { node } => {
                self.make_roomy(node);
                Ok(())
            }
            Event::Repair { node, run } => {
                if self.is_run(node, run) {
                    self.repair(node);
                }
                Ok(())
            }
            Event::TakenOver { node, run } => {
                if self.is_run(node, run) {
                    self.inherited_gone(node);
                }
                Ok(())
            }
            Event::Look => self.look(),
        }
    }

    fn is_run(&self, node: usize, run: u64) -> bool {
        self.nodes[node].cores.is_some() && self.nodes[node].run == run
    }

    fn write_snapshot(&mut self, node: usize, shard: usize, write: SnapshotWrite) {
        let name = write.name;
        let mut disk = self.nodes[node].disk.borrow_mut();
        let is_full = disk.bytes_max > 0;
        let is_good = !self.snapshots.chance(10_000) && !is_full && disk.write_snapshot(write);
        if !is_good {
            disk.give_up_snapshot(name.log_id);
        }
        drop(disk);
        self.step(node, shard, ShardEvent::SnapshotWritten { name, is_good });
    }

    // ---- a node ----

    fn start(&mut self, node: usize) -> Step {
        if self.nodes[node].cores.is_some() {
            return Ok(());
        }
        let is_new = !self.nodes[node].was_started && !self.nodes[node].was_wiped;
        self.prepare_start(node);
        if self.may_go_back() && self.nodes[node].was_started {
            self.nodes[node].copy();
        }
        let (now, plan) = (self.now(), Arc::clone(&self.plan));
        let started = self.nodes[node].start(now, &self.setting, plan, is_new);
        let started = started.map_err(|refusal| format!("node {}: {refusal}", number_of(node)))?;
        if started.has_snapshot {
            self.meet("start with a snapshot");
        }
        if started.has_changed {
            self.has_changed_shards = true;
            self.meet(match started.inherited_already {
                true => "shards changed again",
                false => "shards changed",
            });
        }
        let run = self.nodes[node].run;
        for shard in 0..usize::from(self.nodes[node].shards) {
            self.turn_at(node, shard, self.now_us);
        }
        self.after(1_000, Event::Dial { node, run });
        Ok(())
    }

    /// The process ends without a word.
    fn die(&mut self, node: usize, is_power_cut: bool) {
        if self.nodes[node].cores.take().is_none() {
            return;
        }
        let run = self.nodes[node].run;
        self.nodes[node].kept.clear();
        self.nodes[node].frozen.clear();
        self.nodes[node].paused_until_us = 0;
        self.nodes[node].stops_since_us = None;
        let mut disk = self.nodes[node].disk.borrow_mut();
        match is_power_cut {
            true => disk.power_cut(),
            false => disk.process_ends(),
        }
        drop(disk);
        let ids: Vec<u64> = self.links.keys().copied().collect();
        for link in ids {
            for is_there in [false, true] {
                let end = self.links[&link].end(is_there);
                if end.node == node && end.run == run {
                    let silence_us = self.silence(is_power_cut);
                    self.end_here(link, is_there, silence_us);
                }
            }
        }
        for client in 0..self.clients.len() {
            let state = &self.clients[client];
            if let Some(connection) = state.connection
                && state.node == node
            {
                let silence_us = self.silence(is_power_cut);
                self.after(silence_us, Event::Closed { client, connection });
            }
        }
    }

    /// How long it takes until somebody hears that the other is gone.
    fn silence(&mut self, is_power_cut: bool) -> u64 {
        match is_power_cut {
            true => self.network.within(1_000, 800_000),
            false => self.network.latency(self.setting.network_us),
        }
    }

    fn core(&mut self, node: usize, shard: usize) -> Option<&mut Core> {
        let cores = self.nodes[node].cores.as_mut()?;
        cores.get_mut(shard)
    }

    fn step(
        &mut self,
        node: usize,
        shard: usize,
        event: ShardEvent<'_, crate::disk::PoolBlock>,
    ) -> usize {
        let now = self.now();
        let Some(core) = self.core(node, shard) else {
            return 0;
        };
        let consumed = core.shard.step(now, event, &mut core.outbox);
        let soon_us = self.now_us + self.chance.below(8);
        self.turn_at(node, shard, soon_us);
        consumed
    }

    fn turn_at(&mut self, node: usize, shard: usize, when_us: u64) {
        let run = self.nodes[node].run;
        let Some(core) = self.core(node, shard) else {
            return;
        };
        if core.turn_us.is_none_or(|due_us| when_us < due_us) {
            core.turn_us = Some(when_us);
            self.at(when_us, Event::Turn { node, run, shard });
        }
    }

    fn turn(&mut self, node: usize, run: u64, shard: usize) -> Step {
        let now = self.now();
        if !self.is_run(node, run) {
            return Ok(());
        }
        let core = self.core(node, shard).expect("it runs");
        if core.turn_us.is_none_or(|due_us| due_us > now.us) {
            return Ok(());
        }
        core.turn_us = None;
        core.shard.step(now, ShardEvent::TurnEnds, &mut core.outbox);
        let mut outbox = std::mem::take(&mut core.outbox);
        core.is_stopped |= outbox.is_stopped;
        let deadline_us = core.shard.deadline_us(now);
        if outbox.fatal == Some(Fatal::GoneBack) && self.has_gone_back {
            self.meet("told to have gone back");
            self.empty(node);
            return Ok(());
        }
        if let Some(fatal) = outbox.fatal {
            return Err(format!(
                "node {} ends, and its disk is sound: {fatal}",
                number_of(node)
            ));
        }
        if let Some(damaged) = outbox.damaged.pop().filter(|_| !self.may_find_damage(node)) {
            return Err(format!(
                "node {}: {:08}.seg is called damaged at {}",
                number_of(node),
                damaged.file.0,
                damaged.offset
            ));
        }
        for io in outbox.io.drain(..) {
            let (Io::Write { file, .. } | Io::Sync { file, .. } | Io::Read { file, .. }) = &io;
            let mut disk = self.nodes[node].disk.borrow_mut();
            if disk.forgotten.contains(file) {
                return Err(format!("{file:?} is used although it was let go of"));
            }
            let (ticket, ends_us) = disk.submit(now.us, io);
            drop(disk);
            let done = Event::DiskDone {
                node,
                run,
                shard,
                ticket,
            };
            self.at(ends_us, done);
        }
        for session in outbox.sendable.drain(..) {
            self.send_output(node, shard, session);
        }
        for session in outbox.resume.drain(..) {
            if let Some(client) = self.client_of(node, shard, session) {
                self.deliver(client);
            }
        }
        for session in std::mem::take(&mut outbox.looks) {
            let now = self.now();
            let told = ShardEvent::Unacknowledged { session, bytes: 0 };
            let core = self.core(node, shard).expect("it runs");
            core.shard.step(now, told, &mut outbox);
        }
        for (session, _) in outbox.close.drain(..) {
            if let Some(client) = self.client_of(node, shard, session) {
                let connection = self.clients[client].connection.expect("it was found by it");
                self.step(node, shard, ShardEvent::Closed { session });
                self.after(
                    self.setting.network_us,
                    Event::Closed { client, connection },
                );
            }
        }
        for (to, mail) in outbox.mail.drain(..) {
            let to = usize::from(to);
            let delay_us = self.chance.latency(3);
            let core = self.core(node, shard).expect("it runs");
            core.mail_us[to] = core.mail_us[to].max(now.us + delay_us);
            let when_us = core.mail_us[to];
            let mail = Event::Mail {
                node,
                run,
                to,
                mail,
            };
            self.at(when_us, mail);
        }
        for write in outbox.snapshots.drain(..) {
            let event = Event::Snapshot {
                node,
                run,
                shard,
                write,
            };
            let delay_us = self.snapshots.within(20, 600);
            self.after(delay_us, event);
        }
        for order in outbox.key_tables.drain(..) {
            match order {
                KeyTableOrder::Make(home) => {
                    let event = Event::KeyTable {
                        node,
                        run,
                        shard,
                        home,
                    };
                    let delay_us = self.snapshots.within(200, 20_000);
                    self.after(delay_us, event);
                }
                KeyTableOrder::Load(_) => unreachable!("no start tells of any"),
                KeyTableOrder::Remove(file) => {
                    let mut disk = self.nodes[node].disk.borrow_mut();
                    disk.key_tables.remove(&file);
                }
            }
        }
        for file in outbox.removals.drain(..) {
            self.meet("segments released");
            self.nodes[node].disk.borrow_mut().forgotten.insert(file);
            let delay_us = self.chance.latency(5_000);
            self.after(delay_us, Event::Remove { node, run, file });
        }
        let forgotten = outbox.forgotten.drain(..);
        self.nodes[node]
            .disk
            .borrow_mut()
            .forgotten
            .extend(forgotten);
        for _ in 0..outbox.spares {
            let delay_us = self.chance.latency(3_000);
            self.after(delay_us, Event::Spare { node, run, shard });
        }
        if std::mem::take(&mut outbox.has_taken_over) && self.nodes[node].takes_over() {
            let typical_us = self.harm.pick(&[20, 5_000]);
            let delay_us = self.harm.latency(typical_us);
            self.after(delay_us, Event::TakenOver { node, run });
        }
        self.links_of_turn(node, shard, &mut outbox.links)?;
        if let Some(deadline_us) = deadline_us {
            self.turn_at(node, shard, deadline_us.max(now.us + 1));
        }
        self.end_stopped(node);
        self.watch_handovers();
        Ok(())
    }

    /// What all shards of a node have taken over is void from now on.
    fn inherited_gone(&mut self, node: usize) {
        self.meet("inherited logs gone");
        let files = self.nodes[node].void_inherited();
        for shard in 0..usize::from(self.nodes[node].shards) {
            self.step(node, shard, ShardEvent::InheritedGone);
        }
        let run = self.nodes[node].run;
        for file in files {
            let delay_us = self.harm.latency(5_000);
            self.after(delay_us, Event::Remove { node, run, file });
        }
    }

    // ---- links ----

    /// Makes the links by which this node ships, as the file that it has read last asks for them.
    fn dial(&mut self, node: usize) {
        let plan = Arc::clone(&self.nodes[node].plan);
        let ours = Topology::new(self.nodes[node].shards);
        for other in (0..NODES).filter(|&other| other != node) {
            let is_cut = self.cuts.contains(&(node, other)) || self.cuts.contains(&(other, node));
            let is_paused = self.now_us < self.nodes[other].paused_until_us;
            if self.nodes[other].cores.is_none() || is_cut || is_paused {
                continue;
            }
            let theirs = Topology::new(self.nodes[other].shards);
            let pairs: BTreeSet<(usize, usize)> = self
                .partitions
                .iter()
                .filter(|&&partition| {
                    let assignment = &plan.partitions[usize::from(partition)];
                    let (me, peer) = (number_of(node), number_of(other));
                    let holds = |number| assignment.members.iter().any(|&(it, _)| it == number);
                    assignment.primary == me && holds(peer)
                        || assignment.is_handed_over && assignment.primary == peer && holds(me)
                })
                .map(|&partition| {
                    let slot = partition * 64;
                    let owners = (ours.owner(slot), theirs.owner(slot));
                    (usize::from(owners.0), usize::from(owners.1))
                })
                .collect();
            for (shard, to_shard) in pairs {
                if self.linked.contains_key(&(node, shard, other, to_shard)) {
                    continue;
                }
                self.connect((node, shard), (other, to_shard));
            }
        }
    }

    fn connect(&mut self, source: (usize, usize), destination: (usize, usize)) {
        let link = self.next_link;
        self.next_link += 1;
        let end = |world: &World, (node, shard): (usize, usize)| End {
            node,
            run: world.nodes[node].run,
            shard,
        };
        let (from, to) = (end(self, source), end(self, destination));
        self.linked
            .insert((from.node, from.shard, to.node, to.shard), link);
        self.links.insert(
            link,
            Link {
                source: from,
                destination: to,
                there_us: self.now_us,
                back_us: self.now_us,
                waiting: Default::default(),
                is_gone: [false; 2],
            },
        );
        for (me, peer, is_outgoing) in [(from, to, true), (to, from, false)] {
            let up = ShardEvent::LinkUp {
                link: LinkId(link),
                peer: self.nodes[peer.node].peer(&self.setting, peer.shard),
                is_outgoing,
            };
            self.step(me.node, me.shard, up);
        }
    }

    fn links_of_turn(
        &mut self,
        node: usize,
        shard: usize,
        outbox: &mut penstock_shard::linked::LinkOutbox,
    ) -> Step {
        let run = self.nodes[node].run;
        for told in outbox.told.drain(..) {
            self.trace.fold_bytes(told.as_bytes());
            if told.contains("cannot be read at") {
                self.meet("read damaged");
            }
            if self.has_gone_back && told.contains("must be started on an empty directory") {
                // It is told at both ends; the one that ends the link says so of itself.
                if told.starts_with("a link is ended: ") {
                    self.meet("an epoch was written twice");
                    self.after(1_000, Event::Empty { node, run });
                }
            }
            if told.contains("and not by this one") {
                self.meet("deposed");
            }
        }
        for (partition, record) in outbox.kept.drain(..) {
            self.meet("diverged records kept");
            self.nodes[node].kept.push((shard, partition, record));
        }
        for (partition, link) in outbox.to_sync.drain(..) {
            let delay_us = self.chance.latency(500);
            let found = Event::Found {
                node,
                run,
                shard,
                partition,
                link,
            };
            self.after(delay_us, found);
        }
        for LinkId(link) in outbox.sendable.drain(..) {
            let mut bytes = Vec::new();
            let core = self.core(node, shard).expect("it runs");
            core.shard.take_link_output(LinkId(link), &mut bytes);
            if !bytes.is_empty() {
                self.send_link(node, shard, link, bytes);
                // More may have come meanwhile.
                self.turn_at(node, shard, self.now_us + self.setting.network_us / 4);
            }
        }
        for (LinkId(link), last_words) in outbox.ended.drain(..) {
            self.meet("link ended by a node");
            if self.links.contains_key(&link) {
                self.send_link(node, shard, link, last_words);
                let is_destination = self.links[&link].destination.node == node;
                let delay_us = self.network.latency(self.setting.network_us);
                self.end_here(link, is_destination, delay_us);
            }
            self.step(node, shard, ShardEvent::LinkDown { link: LinkId(link) });
        }
        // There may be room for more of what has come.
        let reads = |link: &Link, is_there: bool| {
            let end = link.end(is_there);
            (end.node, end.run, end.shard) == (node, run, shard)
                && !link.waiting[usize::from(is_there)].is_empty()
        };
        let waiting: Vec<(u64, bool)> = self
            .links
            .iter()
            .flat_map(|(&id, link)| [false, true].map(|there| (id, reads(link, there), there)))
            .filter(|&(_, reads, _)| reads)
            .map(|(id, _, is_there)| (id, is_there))
            .collect();
        for (link, is_there) in waiting {
            self.read_link(link, is_there);
        }
        Ok(())
    }

    fn send_link(&mut self, node: usize, shard: usize, link: u64, bytes: Vec<u8>) {
        let Some(state) = self.links.get(&link) else {
            return;
        };
        let is_there = (state.source.node, state.source.shard) == (node, shard);
        if bytes.is_empty() || state.is_gone[usize::from(!is_there)] {
            return;
        }
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            // Bytes come in pieces, in their order.
            let len = match self.network.chance(200_000) {
                true => 1 + self.network.index(rest.len()),
                false => rest.len(),
            };
            let (piece, left) = rest.split_at(len);
            rest = left;
            let delay_us = self.network.latency(self.setting.network_us);
            let now_us = self.now_us;
            let state = self.links.get_mut(&link).expect("looked up above");
            let last_us = match is_there {
                true => &mut state.there_us,
                false => &mut state.back_us,
            };
            *last_us = (*last_us).max(now_us + delay_us);
            let when_us = *last_us;
            let bytes = Event::LinkBytes {
                link,
                is_there,
                bytes: piece.to_vec(),
            };
            self.at(when_us, bytes);
        }
    }

    /// Hands over what has come by a link, as far as its end takes it.
    fn read_link(&mut self, link: u64, is_there: bool) {
        loop {
            let Some(state) = self.links.get(&link) else {
                return;
            };
            let (end, from) = (state.end(is_there), state.end(!is_there));
            let is_paused = self.now_us < self.nodes[end.node].paused_until_us;
            let is_cut = self.cuts.contains(&(from.node, end.node));
            if is_cut || is_paused || !self.is_run(end.node, end.run) {
                return;
            }
            let core = self.core(end.node, end.shard).expect("it runs");
            if !core.shard.may_read_link(LinkId(link)) {
                return;
            }
            let state = self.links.get_mut(&link).expect("looked up above");
            if state.is_gone[usize::from(is_there)] {
                return;
            }
            let Some(bytes) = state.waiting[usize::from(is_there)].pop_front() else {
                return;
            };
            let received = ShardEvent::LinkReceived {
                link: LinkId(link),
                bytes: &bytes,
            };
            self.step(end.node, end.shard, received);
        }
    }

    /// One end of a link goes; the other hears of it behind all that was sent.
    fn end_here(&mut self, link: u64, is_destination: bool, silence_us: u64) {
        let state = self.links.get_mut(&link).expect("a link");
        if std::mem::replace(&mut state.is_gone[usize::from(is_destination)], true) {
            return;
        }
        let last_us = match is_destination {
            true => state.back_us,
            false => state.there_us,
        };
        let gone = Event::LinkGone {
            link,
            is_there: !is_destination,
        };
        self.at((self.now_us + silence_us).max(last_us), gone);
    }

    /// The end to which a direction leads hears that the other one is gone.
    fn end_is_gone(&mut self, link: u64, is_there: bool) {
        let Some(state) = self.links.get(&link) else {
            return;
        };
        let (end, from) = (state.end(is_there), state.end(!is_there));
        let is_unread = !state.waiting[usize::from(is_there)].is_empty()
            && self.is_run(end.node, end.run)
            && !state.is_gone[usize::from(is_there)];
        if self.cuts.contains(&(from.node, end.node)) || is_unread {
            // Later, behind what it did not read yet.
            self.after(20_000, Event::LinkGone { link, is_there });
            return;
        }
        let state = self.links.remove(&link).expect("looked up above");
        let (source, destination) = (state.source, state.destination);
        let pair = (
            source.node,
            source.shard,
            destination.node,
            destination.shard,
        );
        if self.linked.get(&pair) == Some(&link) {
            self.linked.remove(&pair);
        }
        if self.is_run(end.node, end.run) && !state.is_gone[usize::from(is_there)] {
            let down = ShardEvent::LinkDown { link: LinkId(link) };
            self.step(end.node, end.shard, down);
        }
    }

    fn heal(&mut self, from: usize, to: usize) {
        self.cuts.remove(&(from, to));
        // As what is sent again comes: at once, in order.
        self.read_all(|source, destination| (source, destination) == (from, to));
    }

    /// What waits on its way between such nodes comes.
    fn read_all(&mut self, between: impl Fn(usize, usize) -> bool) {
        let ways = |(&id, link): (&u64, &Link)| {
            let is_meant = |is_there: bool| {
                let ends = (link.end(!is_there).node, link.end(is_there).node);
                between(ends.0, ends.1) && !link.waiting[usize::from(is_there)].is_empty()
            };
            [false, true].map(|is_there| (id, is_there, is_meant(is_there)))
        };
        let waiting: Vec<_> = self.links.iter().flat_map(ways).collect();
        for (link, is_there, is_meant) in waiting {
            if is_meant {
                self.read_link(link, is_there);
            }
        }
    }

    // ---- faults ----

    fn blow(&mut self) {
        if self.phase != Phase::Traffic {
            return;
        }
        let node = self.chance.index(NODES);
        match self.chance.below(100) {
            0..14 => self.end_node(node, false),
            14..24 => self.end_node(node, true),
            24..34 => {
                if self.nodes[node].cores.is_some()
                    && self.now_us >= self.nodes[node].paused_until_us
                {
                    let pause_us = self.chance.within(10_000, 3_000_000);
                    self.pause(node, pause_us);
                }
            }
            34..56 => {
                let other = (node + 1 + self.chance.index(NODES - 1)) % NODES;
                let is_one_way = self.chance.chance(300_000);
                self.meet(match is_one_way {
                    true => "cut one way",
                    false => "cut",
                });
                let cut_us = self.chance.within(5_000, 4_000_000);
                self.cut(node, other, cut_us);
                if !is_one_way {
                    self.cut(other, node, cut_us);
                }
            }
            56..72 => {
                let links: Vec<u64> = self.linked.values().copied().collect();
                if !links.is_empty() {
                    let link = self.chance.pick(&links);
                    self.lose_link(link);
                }
            }
            72..76 => {
                if self.setting.may_wipe && !self.has_wiped {
                    self.wipe(node);
                }
            }
            _ => self.promote_some(),
        }
        let delay_us = self.chance.latency(self.setting.blows_us);
        self.after(delay_us, Event::Blow);
    }

    fn pause(&mut self, node: usize, pause_us: u64) {
        let is_paused = self.now_us < self.nodes[node].paused_until_us;
        if self.nodes[node].cores.is_some() && !is_paused {
            self.meet("pause");
            self.nodes[node].paused_until_us = self.now_us + pause_us;
            self.after(pause_us, Event::RunsAgain { node });
        }
    }

    /// No bytes come from the one to the other for a while.
    fn cut(&mut self, from: usize, to: usize, cut_us: u64) {
        self.cuts.insert((from, to));
        self.after(cut_us, Event::Heal { from, to });
    }

    /// A link ends, and what is on its way with it.
    fn lose_link(&mut self, link: u64) {
        self.meet("link lost");
        for is_destination in [false, true] {
            let state = &self.links[&link];
            let end = state.end(is_destination);
            let silence_us = self.network.latency(self.setting.network_us);
            self.end_here(link, is_destination, silence_us);
            if self.is_run(end.node, end.run) {
                let down = ShardEvent::LinkDown { link: LinkId(link) };
                self.step(end.node, end.shard, down);
            }
        }
    }

    /// Whether a node may still start with an older copy of its directory.
    fn may_go_back(&self) -> bool {
        self.setting.may_go_back && !self.has_gone_back && self.phase == Phase::Traffic
    }

    fn end_node(&mut self, node: usize, is_power_cut: bool) {
        if self.nodes[node].cores.is_none() {
            return;
        }
        self.meet(match is_power_cut {
            true => "power cut",
            false => "kill",
        });
        self.die(node, is_power_cut);
        if self.may_go_back() && self.chance.chance(600_000) && self.nodes[node].go_back() {
            self.meet("gone back");
            self.has_gone_back = true;
            self.oracle.gone_back(number_of(node));
        }
        let again_us = self.chance.within(1_000, 2_000_000);
        self.after(again_us, Event::Start { node });
    }

    /// A node loses its disk and comes back empty, as another one with the same number.
    fn wipe(&mut self, node: usize) {
        if self.nodes[node].cores.is_none() {
            return;
        }
        self.meet("wiped");
        self.empty(node);
    }

    /// As the operator does with a node that is told to have gone back.
    fn empty(&mut self, node: usize) {
        self.has_wiped = true;
        self.die(node, true);
        let salt = self.chance.bits();
        self.nodes[node].wipe(salt);
        let number = number_of(node);
        self.oracle.wiped(number);
        let again_us = self.chance.within(100_000, 2_000_000);
        self.after(again_us, Event::Start { node });
    }

    // ---- the end ----

    /// Where the nodes are not yet the same.
    fn difference(&self) -> Option<String> {
        for &partition in &self.partitions {
            let assignment = &self.plan.partitions[usize::from(partition)];
            let state = |node: usize| self.nodes[node].partition(partition);
            let primary = state(usize::from(assignment.primary) - 1);
            for node in 0..NODES {
                let here = state(node);
                let wanted = match number_of(node) == assignment.primary {
                    true => PartitionRole::Primary,
                    false => PartitionRole::Following,
                };
                let is_there = here.as_ref().is_some_and(|it| it.role == wanted)
                    && here.as_ref().map(|it| (it.epoch, it.applied))
                        == primary.as_ref().map(|it| (it.epoch, it.applied));
                if !is_there {
                    return Some(format!(
                        "partition {partition}: node {} is {here:?}, the primary {primary:?}",
                        number_of(node)
                    ));
                }
            }
        }
        self.lagging()
    }

    /// Which node says of another one that it lacks something, or that it is not linked.
    fn lagging(&self) -> Option<String> {
        let now = self.now();
        for node in 0..NODES {
            for core in self.nodes[node].cores.iter().flatten() {
                let is_wrong = |it: &PeerStatus| {
                    let lags = [it.lag, it.durable_lag];
                    let is_level = |lag: Option<Lag>| lag == Some(Lag::default());
                    it.state != LinkState::Live
                        || it.duty != Duty::Primary && !lags.into_iter().all(is_level)
                        || it.duty == Duty::Primary && it.staleness_us.is_none()
                };
                if let Some(peer) = core.shard.peers(now).find(is_wrong) {
                    return Some(format!("node {} says {peer:?}", number_of(node)));
                }
            }
        }
        None
    }

    /// Whether the disk that is gone had the only whole copy of a partition: nobody may be promoted then but with
    /// what there is.
    fn is_dead_end(&self) -> bool {
        let is_whole = |node: &Node, partition: u16| {
            let state = node.partition(partition);
            state.is_some_and(|it| it.received > 0 && !it.role.is_incomplete())
        };
        let mut all = self.partitions.iter();
        self.has_wiped && all.any(|&it| self.nodes.iter().all(|node| !is_whole(node, it)))
    }

    /// Holds what is there against what clients were told.
    fn judge(&mut self) -> Step {
        let keys = self.oracle.keys();
        let now_ms = self.now().unix_ms;
        let mut last = BTreeMap::new();
        for (key, partition) in keys {
            let primary = usize::from(self.plan.partitions[usize::from(partition)].primary) - 1;
            let expected = self.nodes[primary].read(&key, now_ms)?;
            for node in (0..NODES).filter(|&node| node != primary) {
                let found = self.nodes[node].read(&key, now_ms)?;
                self.meet("replicas compared");
                if found != expected {
                    return Err(format!(
                        "{} is {} at node {} and {} at node {}, which writes it",
                        String::from_utf8_lossy(&key),
                        told(&found),
                        number_of(node),
                        told(&expected),
                        number_of(primary),
                    ));
                }
            }
            last.insert(key, expected.map(|(_, value)| value));
        }
        if self.is_incomplete_accepted {
            // What there is was never promised to anybody; that it is the same everywhere is all there is to ask.
            return Ok(());
        }
        let found: Vec<(u8, Vec<u8>)> = self
            .nodes
            .iter()
            .enumerate()
            .flat_map(|(node, it)| it.found().map(move |record| (number_of(node), record)))
            .collect();
        let kept = match self.setting.backlog_bytes_max == u64::MAX && !self.was_full {
            true if self.has_changed_shards => Kept::Newest,
            true => Kept::All,
            false => Kept::Some,
        };
        let met = self.oracle.judge(&last, &found, kept)?;
        for (what, count) in met {
            *self.met.entry(what).or_default() += count;
        }
        Ok(())
    }
}

fn told(found: &Option<(penstock_storage::version::Version, Vec<u8>)>) -> String {
    match found {
        None => "absent".into(),
        Some((version, value)) => format!(
            "of version {}:{} with {} bytes",
            version.epoch,
            version.sequence,
            value.len()
        ),
    }
}

/// The node whose process must run for an event to be seen.
fn node_of(event: &Event) -> Option<usize> {
    match event {
        Event::Turn { node, .. }
        | Event::DiskDone { node, .. }
        | Event::Mail { node, .. }
        | Event::Spare { node, .. }
        | Event::Snapshot { node, .. }
        | Event::KeyTable { node, .. }
        | Event::Found { node, .. }
        | Event::Plan { node, .. }
        | Event::Empty { node, .. }
        | Event::TakenOver { node, .. }
        | Event::Dial { node, .. } => Some(*node),
        _ => None,
    }
}

fn code_of(event: &Event) -> u64 {
    match event {
        Event::Start { node } => 0x100 + *node as u64,
        Event::Turn { node, shard, .. } => 0x200 + (*node * 16 + *shard) as u64,
        Event::DiskDone { ticket, .. } => 0x1_0000 + ticket,
        Event::Mail { to, .. } => 0x300 + *to as u64,
        Event::Spare { .. } => 0x400,
        Event::Snapshot { .. } => 0x403,
        Event::KeyTable { .. } => 0x404,
        Event::Remove { .. } => 0x401,
        Event::Found { .. } => 0x402,
        Event::Plan { node, .. } => 0x410 + *node as u64,
        Event::Dial { node, .. } => 0x420 + *node as u64,
        Event::Empty { node, .. } => 0x430 + *node as u64,
        Event::LinkBytes { link, .. } => 0x1000 + link,
        Event::LinkGone { link, .. } => 0x2000 + link,
        Event::RunsAgain { .. } => 0x403,
        Event::Heal { .. } => 0x404,
        Event::ToServer { .. } => 0x405,
        Event::ToClient { .. } => 0x406,
        Event::Closed { .. } => 0x407,
        Event::Client { client } => 0x500 + *client as u64,
        Event::Timeout { .. } => 0x408,
        Event::Blow => 0x409,
        Event::Look => 0x40A,
        Event::Harm => 0x40B,
        Event::Strike { .. } => 0x40C,
        Event::Roomy { node } => 0x440 + *node as u64,
        Event::Repair { node, .. } => 0x450 + *node as u64,
        Event::TakenOver { node, .. } => 0x460 + *node as u64,
    }
}
