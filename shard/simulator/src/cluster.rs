//! One run of a cluster: three nodes of one or more shards with disks of their own, links between
//! them, an operator who promotes, and clients, in one thread and in virtual time.
//! A second shell around [`Shard::step`], as [`crate::world`] is the first. It has what one node
//! cannot have: plans that reach the nodes at different times; links that are cut, one-way, slow or
//! gone; nodes that are killed, paused, without power, or back with an empty disk. [`harms`] adds
//! more. Damage at rest, lost writes and pipelining are left to `world`. [`oracle`] judges.

mod applies;
mod client;
mod clocks;
mod deciders;
mod event;
mod faults;
mod harms;
mod heartbeats;
mod holds;
mod links;
mod node;
mod operator;
mod oracle;
mod outages;
mod partings;
mod past;
mod rushes;
mod sales;
mod settings;
mod shell;
mod store;
mod turns;
mod writers;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use penstock_net::link::Membership;
use penstock_net::link::message::LINK_PARTITIONS;
use penstock_net::slot::slot_of;
use penstock_shard::cluster::{Assignment, PartitionRole, Plan};
use penstock_shard::replication::{Duty, Lag, LinkId, LinkState, PENDING_BYTES_MAX, PeerStatus};

use penstock_shard::{Event as ShardEvent, Now, SnapshotWrite};
use penstock_storage::key_table::TableHome;
use penstock_storage::log::SyncMethod;
use penstock_storage::version::partition_of;

use crate::coverage::Coverage;
use crate::holds::Holds;
pub use crate::plan::ALL_SEEDS;
use crate::plan::{sends_applies, sends_tokens};
use crate::random::Random;
use crate::report::Report;
use crate::sales::Sales;
use crate::trace::Trace;

use client::Client;
use clocks::NodeClock;
use deciders::Deciders;
pub use deciders::{FAILOVER_SEEDS, MET_AT_ALL, MET_BY_DECIDERS};
use event::{Event, code_of, node_of};
use harms::{Harms, Stage};
use links::Link;
use node::Node;
use oracle::{Kept, Oracle};
use past::PastTraffic;
use rushes::Rushes;
use settings::SettingsTraffic;

/// Seeds below are from before nodes took snapshots and members answered reads, and do neither.
const SNAPSHOTS_FROM: u64 = 1 << 20;
/// Seeds below are from before there were harms.
const HARMS_FROM: u64 = 60_000_000;
/// And full disks that stay full until writers are refused from here on.
const REFUSALS_FROM: u64 = 62_002_000;
/// Clients send APPLYs in numbered seeds from here on.
const APPLIES_FROM: u64 = 360_000_000;
/// Seeds below let a sync set without a proven node go on in the generation of the one before.
const RENEWALS_FROM: u64 = 360_000_000;
/// And writes with tokens from here on.
const TOKENS_FROM: u64 = 560_000_000;

/// Nodes have the numbers from 1 on.
const NODES: usize = 3;
/// Who writes the partitions that no key of a run is in: nobody.
const NOBODY: u8 = 200;
/// Groups of keys, each in one slot.
const GROUPS: usize = 4;
/// Events of one run, at most, and of one with outages of minutes.
const EVENTS_MAX: u64 = 4_000_000;
const LONG_EVENTS_MAX: u64 = 60_000_000;
/// Within this, without any fault, all nodes are the same.
const SETTLE_US_MAX: u64 = 120_000_000;
/// Where wall clocks begin.
const UNIX_MS: u64 = 1_800_000_000_000;
/// How often the operator looks.
const OPERATE_US: u64 = 300_000;

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

    /// Draws the harms of a run, and what they need of its setting.
    fn add_harms(&mut self, seed: u64, harm: &mut Random) -> Harms {
        let mut harms = Harms::new(harm);
        harms.renews = seed >= RENEWALS_FROM;
        self.sync = harm.pick(&[SyncMethod::DurableWrite, SyncMethod::WriteThenSync]);
        self.space_percent_max = harm.pick(&[120, 120, 300]);
        self.cleaning_bytes_per_s = harm.pick(&[1 << 30, 300_000, 30_000]);
        self.stop_us_max = harm.pick(&[0, 3_000_000]);
        if harms.full_disks {
            self.value_bytes = 3_000;
        }
        // Without this, pacing and the last segments carry nearly all clusters over a full disk.
        if harms.full_disks && seed >= REFUSALS_FROM && harm.chance(500_000) {
            self.segment_bytes_more = 0;
            self.operations *= 4;
            harms.full_us_max = 60_000_000;
        }
        harms
    }
}

/// Tags of keys, each with its partition, which no other tag has.
fn tags(chance: &mut Random) -> Vec<(u64, u16)> {
    let mut tags: Vec<(u64, u16)> = Vec::new();
    let mut tag = chance.below(1 << 20);
    while tags.len() < GROUPS {
        tag += 1;
        let slot = slot_of(format!("{{{tag}}}").as_bytes());
        let partition = u16::try_from(partition_of(slot)).expect("256");
        if tags.iter().all(|&(_, other)| other != partition) {
            tags.push((tag, partition));
        }
    }
    tags
}

/// So many clients that write, and so many that read at members.
fn clients(writers: usize, readers: usize) -> Vec<Client> {
    let writing = (0..writers).map(|number| Client::new(number % NODES));
    let reading = (0..readers).map(|number| Client::reader(number % NODES));
    writing.chain(reading).collect()
}

/// The partitions of keys with these tags, and the one whose writer changes keyspaces.
fn partitions_of(tags: &[(u64, u16)], has_settings: bool) -> Vec<u16> {
    let mut partitions: Vec<u16> = tags.iter().map(|&(_, partition)| partition).collect();
    if has_settings && !partitions.contains(&0) {
        partitions.push(0);
    }
    partitions
}

/// What a seed decides of the run and of its harms, and what the run is to meet, each 0 times so
/// far.
fn settings_of(
    seed: u64,
    chance: &mut Random,
    snapshots: &mut Random,
    harm: &mut Random,
) -> (Setting, Harms, BTreeMap<&'static str, u64>) {
    let mut setting = Setting::new(chance);
    if seed >= SNAPSHOTS_FROM {
        setting.snapshot_bytes = snapshots.pick(&[0, 20_000, 200_000]);
        setting.catch_up_bytes_per_s = snapshots.pick(&[0, 0, 300_000]);
        setting.may_go_back = snapshots.chance(250_000);
        setting.may_wipe &= !setting.may_go_back;
    }
    // Every other thousand of seeds. No older stored seed is in one of these.
    if seed / 1_000 % 2 == 1 && seed >= SNAPSHOTS_FROM {
        setting.pending_bytes_max = snapshots.pick(&[20_000, 500]);
    }
    let mut harms = Harms::default();
    let mut met = BTreeMap::new();
    if seed >= HARMS_FROM {
        met.extend(harms::MUST_MEET.iter().map(|&what| (what, 0)));
        harms = setting.add_harms(seed, harm);
    }
    harms.lengthen_values(seed, &mut setting);
    if sends_applies(seed, APPLIES_FROM) {
        met.extend(applies::MUST_MEET.iter().map(|&what| (what, 0)));
    }
    if deciders::decide(seed) {
        met.extend(MET_BY_DECIDERS.iter().map(|&what| (what, 0)));
        setting.wait_for_deciders(harm);
        harms.leave_to_deciders();
    }
    met.extend(deciders::must_meet_at_all(seed));
    met.extend(settings::must_meet(seed));
    (setting, harms, met)
}

/// The first file of the cluster: node 1 or 2 writes each partition that has keys, and all others
/// hold it.
fn first_plan(setting: &Setting, partitions: &[u16], chance: &mut Random) -> Plan {
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
    for &partition in partitions {
        let primary = number_of(chance.index(2));
        let assignment = &mut assignments[usize::from(partition)];
        assignment.primary = primary;
        assignment.members = members(primary);
    }
    let numbers = (0..NODES).map(number_of);
    Plan {
        partitions: assignments,
        clients: numbers
            .map(|number| (number, format!("node {number}")))
            .collect(),
        number: 0,
        is_leased: false,
        min_sync: 0,
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
    idle_rounds: BTreeMap<u16, u64>,
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
    levels: Option<Random>,
    /// Clients send APPLYs, by this chance.
    has_applies: bool,
    applies: Random,
    /// Writes with tokens, if the run has some.
    sales: Option<Sales>,
    /// Chance of everything about them.
    tokens: Random,
    /// Holds that expire, if the run has some.
    holds: Option<Holds>,
    /// Chance of everything about them.
    expiries: Random,
    /// Batches of equal changes, if the run has some.
    rushes: Option<Rushes>,
    /// Changes of keyspaces, if the run has some.
    settings: Option<SettingsTraffic>,
    /// What is asked about the past, if versions are kept.
    past: Option<PastTraffic>,
    /// How far the wall clock of each node is ahead, in milliseconds.
    walls_ms: [u64; NODES],
    clocks: [NodeClock; NODES],
    /// What nodes decide by themselves, if they do.
    deciders: Option<Deciders>,
    harms: Harms,
    harm: Random,
    /// Nodes that enter a sync set and may not be promoted yet, each time by another number.
    joining: BTreeMap<(u16, u8), u64>,
    next_joining: u64,
    /// Handovers that are not over: from which node to which, and where both were.
    handed: BTreeMap<u16, (usize, usize, Stage)>,
    /// Whether a disk was full once, and whether a node changed its number of shards. Either may
    /// let a log release some of its diverged records.
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
    let mut coverage = Coverage::of_cluster(world.met);
    if let Some(sales) = &world.sales {
        coverage.meet(&sales.met);
    }
    if let Some(holds) = &world.holds {
        coverage.meet(&holds.met);
    }
    if let Some(rushes) = &world.rushes {
        coverage.meet(&rushes.met);
    }
    Report {
        hash: world.trace.hash(),
        simulated_us: world.now_us,
        operations: world.issued,
        answered: world.answered,
        recoveries: world.nodes.iter().map(|node| node.run - 1).sum(),
        judged_keys: world.oracle.keys().len() as u64,
        coverage,
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
        let mut harm = Random::new(seed, 106);
        let (setting, harms, met) = settings_of(seed, &mut chance, &mut snapshots, &mut harm);
        let tags = tags(&mut chance);
        let (mut tokens, mut expiries) = (Random::new(seed, 108), Random::new(seed, 111));
        let sales = sends_tokens(seed, TOKENS_FROM).then(|| {
            let tags: Vec<String> = tags.iter().map(|(tag, _)| format!("{{{tag}}}")).collect();
            Sales::new(Random::new(seed, 109), &tags)
        });
        let holds = holds::holds_of(seed, &tags, harms.may_fail_to_read());
        let walls_ms = match &holds {
            Some(_) => holds::walls_ms(&mut expiries),
            None => sales::walls_ms(sales.as_ref(), &mut tokens),
        };
        let partitions = partitions_of(&tags, settings::are_changed(seed));
        let mut plan = first_plan(&setting, &partitions, &mut chance);
        let mut deciders = Deciders::of_seed(seed, &setting, &mut plan);
        let clocks = match &mut deciders {
            Some(deciders) => NodeClock::of_nodes(&mut deciders.random),
            None => [NodeClock::TRUE; NODES],
        };
        let plan = Arc::new(plan);
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
        World {
            now_us: 1_000_000,
            queue: BTreeMap::new(),
            next_event: 0,
            trace: Trace::new(),
            met,
            nodes,
            plan,
            rushes: Rushes::of_seed(seed, &tags),
            settings: SettingsTraffic::of_seed(seed),
            past: PastTraffic::of_seed(seed),
            oracle: Oracle::new(tags),
            partitions,
            links: BTreeMap::new(),
            next_link: 1,
            linked: BTreeMap::new(),
            cuts: BTreeSet::new(),
            clients: clients(setting.clients, readers),
            next_connection: 1,
            issued: 0,
            answered: 0,
            phase: Phase::Traffic,
            phase_us: 0,
            idle_rounds: BTreeMap::new(),
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
            levels: deciders::asks_for_all(seed).then(|| Random::new(seed, 121)),
            has_applies: sends_applies(seed, APPLIES_FROM),
            applies: Random::new(seed, 107),
            sales,
            tokens,
            holds,
            expiries,
            walls_ms,
            clocks,
            deciders,
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

    /// As a node sees it.
    fn now_of(&self, node: usize) -> Now {
        let clock = &self.clocks[node];
        Now {
            us: clock.read(self.now_us),
            unix_ms: UNIX_MS + clock.of_true_us(self.now_us) / 1000 + self.walls_ms[node],
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
        self.after(OPERATE_US, Event::Operate);
        let mut events = 0;
        while self.phase != Phase::Done {
            let Some(((when_us, _), event)) = self.queue.pop_first() else {
                return Err("nothing moves any more".into());
            };
            self.now_us = self.now_us.max(when_us);
            events += 1;
            if events > self.events_max() {
                return Err(format!("no end after {events} events"));
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
            Event::Start { node } => return self.start(node),
            Event::Turn { node, run, shard } => return self.turn(node, run, shard),
            Event::DiskDone {
                node,
                run,
                shard,
                ticket,
            } => self.of_run(node, run, |world| world.disk_done(node, shard, ticket)),
            Event::Mail {
                node,
                run,
                to,
                mail,
            } => self.of_run(node, run, |world| {
                world.step(node, to, ShardEvent::Mail(mail));
            }),
            Event::Snapshot {
                node,
                run,
                shard,
                write,
            } => self.of_run(node, run, |world| world.write_snapshot(node, shard, write)),
            Event::KeyTable {
                node,
                run,
                shard,
                home,
            } => self.of_run(node, run, |world| world.make_key_table(node, shard, &home)),
            Event::Spare { node, run, shard } => {
                self.of_run(node, run, |world| world.spare(node, shard));
            }
            Event::Remove { node, run, file } => self.of_run(node, run, |world| {
                world.nodes[node].disk.borrow_mut().unlink(file);
            }),
            Event::Found {
                node,
                run,
                shard,
                partition,
                link,
            } => self.of_run(node, run, |world| {
                world.keep_found(node, run, shard, partition, link);
            }),
            Event::Plan { node, run } => self.of_run(node, run, |world| world.read_plan(node)),
            Event::Empty { node, run } => self.of_run(node, run, |world| world.empty(node)),
            Event::Dial { node, run } => self.of_run(node, run, |world| {
                world.dial(node);
                let delay_us = world.network.within(2_000, 40_000);
                world.after(delay_us, Event::Dial { node, run });
            }),
            Event::Repair { node, run } => self.of_run(node, run, |world| world.repair(node)),
            Event::TakenOver { node, run } => {
                self.of_run(node, run, |world| world.inherited_gone(node));
            }
            Event::RunsAgain { node } => return self.run_again(node),
            Event::LinkBytes {
                link,
                is_there,
                bytes,
            } => self.link_bytes(link, is_there, bytes),
            Event::LinkGone { link, is_there } => self.end_is_gone(link, is_there),
            Event::Heal { from, to } => self.heal(from, to),
            Event::ToServer {
                client,
                connection,
                bytes,
            } => self.reach_server(client, connection, bytes),
            Event::ToClient {
                client,
                connection,
                bytes,
            } => return self.reach_client(client, connection, &bytes),
            Event::Closed { client, connection } => {
                if self.clients[client].connection == Some(connection) {
                    self.give_up(client);
                }
            }
            Event::Client { client } => self.client(client),
            Event::Timeout {
                client,
                connection,
                request,
            } => self.time_out(client, connection, request),
            Event::Blow => self.blow(),
            Event::Harm => self.befall(),
            Event::Strike { strike } => self.strike(strike),
            Event::Roomy { node } => self.make_roomy(node),
            Event::Operate => return self.operate(),
            decision => self.take_decision(decision),
        }
        Ok(())
    }

    /// Does something, unless the run of the node is over.
    fn of_run(&mut self, node: usize, run: u64, then: impl FnOnce(&mut Self)) {
        if self.is_run(node, run) {
            then(self);
        }
    }

    fn disk_done(&mut self, node: usize, shard: usize, ticket: u64) {
        let completion = self.nodes[node].disk.borrow_mut().complete(ticket);
        self.step(node, shard, ShardEvent::Completed(completion));
    }

    fn make_key_table(&mut self, node: usize, shard: usize, home: &TableHome) {
        let table = self.nodes[node].make_key_table(home);
        let file = home.file;
        self.step(node, shard, ShardEvent::KeyTable { file, table });
    }

    /// Makes diverged records durable, as soon as the disk has room.
    fn keep_found(
        &mut self,
        node: usize,
        run: u64,
        shard: usize,
        partition: u16,
        link: Option<LinkId>,
    ) {
        if self.nodes[node].disk.borrow().bytes_max > 0 {
            let found = Event::Found {
                node,
                run,
                shard,
                partition,
                link,
            };
            self.after(20_000, found);
        } else {
            self.nodes[node].sync_found(shard);
            self.step(node, shard, ShardEvent::DivergedKept { partition, link });
        }
    }

    /// The newest file of the cluster reaches a node.
    fn read_plan(&mut self, node: usize) {
        let plan = Arc::clone(&self.plan);
        self.nodes[node].read_plan(Arc::clone(&plan), self.now_us);
        for shard in 0..usize::from(self.nodes[node].shards) {
            self.step(node, shard, ShardEvent::Plan(Arc::clone(&plan)));
        }
    }

    /// A pause is over: all that came meanwhile is taken.
    fn run_again(&mut self, node: usize) -> Step {
        if self.now_us >= self.nodes[node].paused_until_us {
            self.clocks[node].wake(self.now_us);
        }
        while self.now_us >= self.nodes[node].paused_until_us
            && let Some(event) = self.nodes[node].frozen.pop_front()
        {
            self.trace.fold(&[self.now_us, code_of(&event)]);
            self.take(event)?;
        }
        self.read_all(|_, to| to == node);
        self.read_wires(|_, to| to == node);
        Ok(())
    }

    fn link_bytes(&mut self, link: u64, is_there: bool, bytes: Vec<u8>) {
        if let Some(state) = self.links.get_mut(&link) {
            state.waiting[usize::from(is_there)].push_back(bytes);
            self.read_link(link, is_there);
        }
    }

    fn time_out(&mut self, client: usize, connection: u64, request: u64) {
        let state = &self.clients[client];
        let is_waiting = state.request == request && state.operation.is_some();
        if state.connection == Some(connection) && is_waiting {
            self.give_up(client);
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
        let settings = || self.difference_of_settings();
        let members = || self.difference_of_members();
        self.lagging().or_else(settings).or_else(members)
    }

    /// Names a node that tells of another one that it lacks records or is not linked.
    fn lagging(&self) -> Option<String> {
        for node in 0..NODES {
            let now = self.now_of(node);
            for core in self.nodes[node].cores.iter().flatten() {
                let is_wrong = |it: &PeerStatus| {
                    let lags = [it.lag, it.durable_lag];
                    let is_level = |lag: Option<Lag>| lag == Some(Lag::default());
                    it.state != LinkState::Live
                        || it.duty != Duty::Primary && !lags.into_iter().all(is_level)
                        || it.duty == Duty::Primary && it.staleness_us.is_none()
                };
                if let Some(peer) = core.shard.execution().peers(now).find(is_wrong) {
                    return Some(format!("node {} says {peer:?}", number_of(node)));
                }
            }
        }
        None
    }

    /// Whether the lost disk had the only whole copy of a partition. Then a node can only be
    /// promoted with an incomplete copy.
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
        let mut keys = self.oracle.keys();
        keys.extend(self.sale_keys());
        keys.extend(self.hold_keys());
        keys.extend(self.rush_keys());
        // What has expired by one clock may be gone there, and be there by another clock.
        let times = (0..NODES).map(|node| self.time_ms_of(node));
        let now_ms = times.max().expect("there are nodes");
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
                        describe(&found),
                        number_of(node),
                        describe(&expected),
                        number_of(primary),
                    ));
                }
            }
            last.insert(key, expected.map(|(_, value)| value));
        }
        if self.is_incomplete_accepted {
            // An incomplete copy breaks every earlier promise. All that can be asked is that the
            // nodes are the same.
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
        if let Some(sales) = &self.sales {
            sales.judge(&last)?;
        }
        if let Some(rushes) = &mut self.rushes {
            let has_all_disks = !self.has_wiped && !self.has_gone_back;
            rushes.judge(&last, &found, kept, has_all_disks)?;
        }
        self.judge_past(&last)?;
        self.judge_tokens()?;
        match &mut self.holds {
            Some(holds) => holds.judge(&last),
            None => Ok(()),
        }
    }
}

fn describe(found: &Option<(penstock_storage::version::Version, Vec<u8>)>) -> String {
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
