//! Nodes, their clocks, what travels between them, and a store for the plan. One seed decides a
//! run.

use std::collections::{BTreeMap, BTreeSet};

use penstock_net::link::frame::{read_link_frame, write_link_frame};
use penstock_net::link::{LinkHeader, LinkMessage, LinkReceived, Membership};
use penstock_shard::cluster::Assignment;
use penstock_shard::lease::{Failover, FailoverPlan, LeaseRules, Placing, Wish};

use super::clock::{Clock, Kind};
use super::log::{self, Epoch, Log, generation};
use super::node::{Data, Node};
use super::random::Random;

pub const NODES: usize = 3;
/// Of two primaries at the begin.
pub const PARTITIONS: [u16; 2] = [0, 200];
const TICK_US: u64 = 20_000;
const UNKNOWN_US: u64 = 2_000_000;
/// So long behind the last fault everything may take: hold-downs are at most five minutes.
pub const CALM_US: u64 = 1_500_000_000;

/// What is done wrong on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    Nothing,
    FromReceiving,
    WallClock,
    StandsStill,
    AssumedFailed,
    RemovedLate,
    JudgedBefore,
    ClocksApart,
}

#[derive(Clone, Debug)]
pub enum Message {
    Frame(Vec<u8>),
    Ship {
        partition: u16,
        epoch: Epoch,
        log: Log,
    },
    Got {
        partition: u16,
        epoch: Epoch,
        len: u64,
    },
    Reject {
        partition: u16,
        promised: Epoch,
    },
}

#[derive(Clone, Debug)]
pub enum Event {
    Tick {
        node: usize,
        start: u32,
    },
    Deliver {
        from: (usize, u32),
        to: (usize, u32),
        message: Message,
    },
    Apply {
        /// The node that crashes then, if one does.
        crashes: Option<usize>,
        expected: u64,
        plan: Box<FailoverPlan>,
    },
    Swapped {
        node: usize,
        start: u32,
        wish: Box<Wish>,
        is_known: bool,
    },
    Loaded {
        node: usize,
        start: u32,
        plan: Box<FailoverPlan>,
    },
    Start {
        node: usize,
    },
    Resume {
        node: usize,
    },
    Fault,
    Heal {
        from: usize,
        to: usize,
    },
    Reach {
        node: usize,
    },
    StoreUp,
    Fast,
}

pub struct World {
    pub random: Random,
    pub mistake: Mistake,
    pub rules: LeaseRules,
    pub now_us: u64,
    queue: BTreeMap<(u64, u64), Event>,
    count: u64,
    pub nodes: Vec<Node>,
    parked: Vec<Vec<Event>>,
    pub cuts: BTreeSet<(usize, usize)>,
    pub is_slow: bool,
    pub is_store_down: bool,
    store: FailoverPlan,
    /// For each partition and epoch the last sequence that was acknowledged at level `replica`.
    acked: BTreeMap<(u16, Epoch), u64>,
    pub faults_end_us: u64,
    pub has_long_stops: bool,
    pub met: BTreeMap<&'static str, u64>,
}

type Ran = Result<(), String>;

fn plan(rules: LeaseRules) -> FailoverPlan {
    let placing = |partition: u16| {
        let members: &[u8] = match partition {
            0 => &[2, 3],
            200 => &[1, 3],
            _ => &[],
        };
        Placing {
            assignment: Assignment {
                generation: 1,
                primary: if partition == 200 { 2 } else { 1 },
                members: members
                    .iter()
                    .map(|&node| (node, Membership::Sync))
                    .collect(),
                is_handed_over: false,
                is_loss_accepted: false,
                is_incomplete_accepted: false,
            },
            joining: Vec::new(),
        }
    };
    FailoverPlan {
        number: 1,
        rules,
        placings: (0..256).map(placing).collect(),
        min_sync: 0,
        is_paused: false,
        stay_learners: Vec::new(),
    }
}

impl World {
    pub fn new(seed: u64, mistake: Mistake) -> World {
        let mut random = Random::new(seed);
        let rules = match random.once_in(2) {
            true => LeaseRules::QUIET,
            false => LeaseRules::STARVED,
        };
        let mut world = World {
            mistake,
            rules,
            now_us: 0,
            queue: BTreeMap::new(),
            count: 0,
            nodes: Vec::new(),
            parked: vec![Vec::new(); NODES],
            cuts: BTreeSet::new(),
            is_slow: false,
            is_store_down: false,
            store: plan(rules),
            acked: BTreeMap::new(),
            faults_end_us: 15_000_000 + random.next() % 30_000_000,
            has_long_stops: random.once_in(20),
            met: BTreeMap::new(),
            random,
        };
        for index in 0..NODES {
            let node = world.node(index);
            world.nodes.push(node);
            world.at(0, Event::Start { node: index });
        }
        world.at(4_000_000, Event::Fault);
        world
    }

    fn node(&mut self, index: usize) -> Node {
        // The slowest clock has more than 80 percent of the rate of the fastest one.
        let slowest = if self.mistake == Mistake::ClocksApart {
            60
        } else {
            81
        };
        let rates = [slowest, slowest, 100, 100, 90, 95];
        let number = u8::try_from(index + 1).expect("few");
        let data = PARTITIONS.map(|partition| {
            let mut log = Log::default();
            let primary = if partition == 200 { 2 } else { 1 };
            log.begin(log::epoch(0, 1, primary));
            let data = Data {
                durable: log.len,
                log,
                has_followed: true,
                ..Data::default()
            };
            (partition, data)
        });
        Node {
            number,
            clock: Clock {
                rate: rates[self.random.below(rates.len())] * 10_000,
                offset_us: 1_000_000_000 + self.random.next() % 1_000_000_000,
                wall_us: 0,
                suspended_us: 0,
            },
            start: 0,
            run: None,
            stopped_until_us: None,
            data: data.into_iter().collect(),
            got: BTreeMap::new(),
            marks: BTreeMap::new(),
            ignored: Vec::new(),
            beat_us: 0,
            ticks: 0,
            is_cut_off: false,
            judged: false,
        }
    }

    pub fn meet(&mut self, what: &'static str) {
        *self.met.entry(what).or_default() += 1;
    }

    pub fn at(&mut self, delay_us: u64, event: Event) {
        self.count += 1;
        self.queue
            .insert((self.now_us + delay_us, self.count), event);
    }

    pub fn within(&mut self, least_us: u64, most_us: u64) -> u64 {
        least_us + self.random.next() % (most_us - least_us + 1)
    }

    pub fn clock(&self, node: usize) -> u64 {
        let kind = match self.mistake {
            Mistake::WallClock => Kind::Wall,
            Mistake::StandsStill => Kind::Monotonic,
            _ => Kind::Boot,
        };
        self.nodes[node].clock.read(self.now_us, kind)
    }

    /// Runs until everything is as it was, or a rule is broken.
    pub fn run(&mut self) -> Ran {
        loop {
            let (&key, _) = self.queue.first_key_value().expect("ticks go on");
            let event = self.queue.remove(&key).expect("just seen");
            self.now_us = key.0;
            self.take(event)?;
            self.check()?;
            let is_calm = self.now_us > self.faults_end_us + 1_000_000;
            if is_calm && (self.is_whole() || self.is_dead_end()) {
                return Ok(());
            }
            if self.now_us > self.faults_end_us + CALM_US {
                return Err(format!("it does not come to rest: {}", self.picture()));
            }
        }
    }

    /// At most one node answers for a partition.
    fn check(&mut self) -> Ran {
        for partition in PARTITIONS {
            let serving = self.serving(partition);
            if serving.len() > 1 {
                let now_us = self.now_us;
                return Err(format!(
                    "{now_us}: partition {partition} has writers {serving:?}"
                ));
            }
        }
        Ok(())
    }

    fn serving(&self, partition: u16) -> Vec<u8> {
        let all = self.nodes.iter().enumerate();
        let serving = all.filter(|(at, node)| node.serves(self.clock(*at), partition));
        serving.map(|(_, node)| node.number).collect()
    }

    /// Each partition has a writer and two members that may be promoted.
    fn is_whole(&self) -> bool {
        PARTITIONS.iter().all(|&partition| {
            let placing = &self.store.placings[usize::from(partition)];
            let promotable = (1..=3).filter(|&node| placing.is_promotable(node)).count();
            promotable == 2 && self.serving(partition) == [placing.assignment.primary]
        })
    }

    /// A partition for which only a person can do something: its primary has lost what it had
    /// received, and so has who could take over.
    fn is_dead_end(&mut self) -> bool {
        let is_lost = |partition: &u16| {
            let placing = &self.store.placings[usize::from(*partition)];
            let primary = placing.assignment.primary;
            let can = |node: &Node| match node.number == primary {
                true => {
                    let data = &node.data[partition];
                    data.has_followed || data.log.last_writer() == Some(primary)
                }
                false => placing.is_promotable(node.number) && node.data[partition].has_followed,
            };
            !self.nodes.iter().any(can)
        };
        let is_lost = PARTITIONS.iter().any(is_lost);
        if is_lost {
            self.meet("dead end");
        }
        is_lost
    }

    fn picture(&self) -> String {
        let mut text = String::new();
        for partition in PARTITIONS {
            let placing = &self.store.placings[usize::from(partition)];
            text += &format!(
                "\n{partition}: {placing:?} served by {:?}",
                self.serving(partition)
            );
            for node in &self.nodes {
                text += &format!("\n  {}: {:?}", node.number, node.data[&partition]);
            }
        }
        text
    }

    fn take(&mut self, event: Event) -> Ran {
        let whom = match &event {
            Event::Tick { node, .. }
            | Event::Swapped { node, .. }
            | Event::Loaded { node, .. }
            | Event::Deliver { to: (node, _), .. } => Some(*node),
            _ => None,
        };
        if let Some(node) = whom.filter(|&node| self.nodes[node].stopped_until_us.is_some()) {
            self.parked[node].push(event);
            return Ok(());
        }
        let is_of = |world: &World, node: usize, start: u32| {
            world.nodes[node].run.is_some() && world.nodes[node].start == start
        };
        match event {
            Event::Tick { node, start } if is_of(self, node, start) => self.tick(node)?,
            Event::Deliver { from, to, message }
                if is_of(self, to.0, to.1) && self.nodes[from.0].start == from.1 =>
            {
                self.deliver(from.0, to.0, message);
            }
            Event::Apply {
                crashes,
                expected,
                plan,
            } if self.store.number == expected => {
                self.store = *plan;
                if let Some(node) = crashes.filter(|&node| self.nodes[node].run.is_some()) {
                    self.meet("crash behind a late swap");
                    self.crash(node);
                    let down_us = self.within(10_000, 60_000);
                    self.at(down_us, Event::Start { node });
                }
            }
            Event::Swapped {
                node,
                start,
                wish,
                is_known,
            } if is_of(self, node, start) => {
                self.swapped(node, &wish, is_known);
            }
            Event::Loaded { node, start, plan } if is_of(self, node, start) => {
                self.take_plan(node, *plan);
            }
            Event::Start { node } => self.start(node),
            Event::Resume { node } => self.resume(node),
            Event::Fault => self.fault(),
            Event::Heal { from, to } => drop(self.cuts.remove(&(from, to))),
            Event::Reach { node } => self.nodes[node].is_cut_off = false,
            Event::StoreUp => self.is_store_down = false,
            Event::Fast => self.is_slow = false,
            _ => {}
        }
        Ok(())
    }

    fn start(&mut self, node: usize) {
        if self.nodes[node].run.is_some() {
            return;
        }
        if !self.reaches_store(node) {
            return self.at(200_000, Event::Start { node });
        }
        let now_us = self.clock(node);
        let number = self.nodes[node].number;
        let run = Failover::new(now_us, number, self.store.clone());
        let it = &mut self.nodes[node];
        it.run = Some(run);
        it.start += 1;
        let start = it.start;
        self.at(1, Event::Tick { node, start });
        for other in (0..NODES).filter(|&other| other != node) {
            let now_us = self.clock(other);
            if let Some(run) = &mut self.nodes[other].run {
                run.meet(now_us, number);
            }
        }
    }

    pub fn crash(&mut self, node: usize) {
        self.nodes[node].crash();
        self.parked[node].clear();
        // Nothing of it is heard any more once its connections are gone.
        self.nodes[node].start += 1;
    }

    fn resume(&mut self, node: usize) {
        let until_us = self.nodes[node].stopped_until_us;
        if until_us.is_none_or(|until_us| until_us > self.now_us) {
            return;
        }
        self.nodes[node].stopped_until_us = None;
        for event in std::mem::take(&mut self.parked[node]) {
            self.at(0, event);
        }
    }

    pub fn reaches_store(&self, node: usize) -> bool {
        !self.is_store_down && !self.nodes[node].is_cut_off
    }

    fn send(&mut self, from: usize, to: usize, message: Message) {
        if self.cuts.contains(&(from, to)) || self.nodes[to].run.is_none() {
            return;
        }
        let is_late = self.now_us < self.faults_end_us && self.random.once_in(200);
        let delay_us = match self.is_slow || is_late {
            true => self.within(1000, 400_000),
            false => self.within(100, 3000),
        };
        let (from, to) = ((from, self.nodes[from].start), (to, self.nodes[to].start));
        self.at(delay_us, Event::Deliver { from, to, message });
    }

    fn tick(&mut self, node: usize) -> Ran {
        let start = self.nodes[node].start;
        let next_us = self.within(TICK_US / 2, TICK_US * 3 / 2);
        self.at(next_us, Event::Tick { node, start });
        self.nodes[node].ticks += 1;
        let now_us = self.clock(node);
        self.run_of(node).note_awake(now_us);
        for partition in PARTITIONS {
            self.begin(node, partition)?;
            let standing = self.nodes[node].standing(partition);
            self.run_of(node).note(now_us, partition, standing);
            self.write(node, partition);
        }
        let last_us = self.nodes[node].beat_us;
        if now_us >= last_us + self.rules.beat_us() || now_us < last_us {
            self.nodes[node].beat_us = now_us;
            self.beat(node);
        }
        self.decide(node);
        if self.nodes[node].ticks.is_multiple_of(5) && self.reaches_store(node) {
            self.load(node);
        }
        Ok(())
    }

    pub fn run_of(&mut self, node: usize) -> &mut Failover {
        self.nodes[node].run.as_mut().expect("it runs")
    }

    fn load(&mut self, node: usize) {
        // What it has already would change nothing.
        if self.run_of(node).plan().number == self.store.number {
            return;
        }
        let (start, plan) = (self.nodes[node].start, Box::new(self.store.clone()));
        let delay_us = self.within(1000, 20_000);
        self.at(delay_us, Event::Loaded { node, start, plan });
    }

    fn beat(&mut self, node: usize) {
        let now_us = self.clock(node);
        for to in (0..NODES).filter(|&to| to != node) {
            let number = self.nodes[to].number;
            let mut claims = Vec::new();
            let heartbeat = self.run_of(node).send(now_us, number, &mut claims);
            let frame = frame(&LinkMessage::Heartbeat(heartbeat));
            self.send(node, to, Message::Frame(frame));
        }
    }

    /// What this node is to write begins.
    fn begin(&mut self, node: usize, partition: u16) -> Ran {
        let (number, start) = (self.nodes[node].number, self.nodes[node].start);
        let plan = self.run_of(node).plan();
        let assignment = &plan.placings[usize::from(partition)].assignment;
        let (primary, wanted) = (assignment.primary, assignment.generation);
        let data = &self.nodes[node].data[&partition];
        let has_begun = data.begun.is_some_and(|it| generation(it) == wanted);
        if primary != number || has_begun || !self.nodes[node].can_begin(partition) {
            return Ok(());
        }
        let epoch = log::epoch(wanted, start, number);
        let data = self.nodes[node]
            .data
            .get_mut(&partition)
            .expect("all are there");
        if epoch <= data.promised {
            return Ok(());
        }
        data.promised = epoch;
        data.begun = Some(epoch);
        for (&(of, by), &sequence) in &self.acked {
            if of == partition && !data.log.holds(by, sequence) {
                let now_us = self.now_us;
                return Err(format!(
                    "{now_us}: node {number} begins partition {partition} and lacks {sequence} of \
                     epoch {by:x}, which was acknowledged: {data:?}"
                ));
            }
        }
        data.log.begin(epoch);
        data.durable = data.log.len;
        self.nodes[node].got.retain(|&(_, of), _| of != partition);
        self.nodes[node].marks.retain(|&(_, of), _| of != partition);
        self.meet("begun");
        Ok(())
    }

    /// Writes, ships and acknowledges.
    fn write(&mut self, node: usize, partition: u16) {
        let now_us = self.clock(node);
        let serves = self.nodes[node].serves(now_us, partition);
        let (writes, syncs) = (self.random.once_in(2), self.random.once_in(2));
        let is_repeat = self.nodes[node].ticks.is_multiple_of(10);
        let data = self.nodes[node]
            .data
            .get_mut(&partition)
            .expect("all are there");
        if serves && writes {
            data.log.len += 1;
        }
        if syncs {
            data.durable = data.log.len;
        }
        let Some(epoch) = data.begun.filter(|&it| it == data.promised) else {
            return;
        };
        let len = data.log.len;
        let placing = &self.run_of(node).plan().placings[usize::from(partition)];
        let members: Vec<u8> = placing.assignment.members.iter().map(|it| it.0).collect();
        let joining = placing.joining.clone();
        for member in &members {
            if joining.contains(member) {
                let mark = (*member, partition);
                self.nodes[node].marks.entry(mark).or_insert(len);
            } else {
                self.nodes[node].marks.remove(&(*member, partition));
            }
        }
        if !(is_repeat || serves && writes) {
            return;
        }
        for member in members {
            let log = self.nodes[node].data[&partition].log.clone();
            let ship = Message::Ship {
                partition,
                epoch,
                log,
            };
            self.send(node, usize::from(member) - 1, ship);
        }
    }

    fn acknowledge(&mut self, node: usize, partition: u16) {
        let now_us = self.clock(node);
        if !self.nodes[node].serves(now_us, partition) {
            return;
        }
        let it = &self.nodes[node];
        let data = &it.data[&partition];
        let got = |member: &u8| it.got.get(&(*member, partition)).copied().unwrap_or(0);
        let waits_for = it.waits_for(partition);
        let Some(received) = waits_for.iter().map(got).min() else {
            return;
        };
        let epoch = data.begun.expect("it serves");
        let sequence = received.min(data.durable);
        if data.log.holds(epoch, sequence) {
            let acked = self.acked.entry((partition, epoch)).or_default();
            *acked = sequence.max(*acked);
        }
    }

    fn deliver(&mut self, from: usize, to: usize, message: Message) {
        let now_us = self.clock(to);
        match message {
            Message::Frame(bytes) => self.read(now_us, from, to, &bytes),
            Message::Ship {
                partition,
                epoch,
                log,
            } => {
                let data = self.nodes[to]
                    .data
                    .get_mut(&partition)
                    .expect("all are there");
                let answer = if epoch < data.promised {
                    let promised = data.promised;
                    Message::Reject {
                        partition,
                        promised,
                    }
                } else {
                    let is_old = data.promised == epoch && data.log.len > log.len;
                    if !is_old || !data.has_followed {
                        data.durable = data.durable.min(log.len);
                        data.log = log;
                        data.has_followed = true;
                    }
                    data.promised = epoch;
                    data.begun = None;
                    let len = data.log.len;
                    Message::Got {
                        partition,
                        epoch,
                        len,
                    }
                };
                self.send(to, from, answer);
            }
            Message::Got {
                partition,
                epoch,
                len,
            } => {
                let number = self.nodes[from].number;
                if self.nodes[to].data[&partition].begun == Some(epoch) {
                    let got = self.nodes[to].got.entry((number, partition)).or_default();
                    *got = len.max(*got);
                    self.acknowledge(to, partition);
                }
            }
            Message::Reject {
                partition,
                promised,
            } => {
                let data = self.nodes[to]
                    .data
                    .get_mut(&partition)
                    .expect("all are there");
                if data.begun.is_some_and(|it| it < promised) {
                    data.begun = None;
                    self.meet("deposed by a member");
                }
            }
        }
    }

    fn read(&mut self, now_us: u64, from: usize, to: usize, bytes: &[u8]) {
        let Ok(LinkReceived::Frame(read)) = read_link_frame(bytes, 1, 4096) else {
            panic!("frames travel whole");
        };
        let number = self.nodes[from].number;
        match read.message {
            LinkMessage::Heartbeat(heartbeat) => {
                let confirm = self.run_of(to).read(now_us, number, &heartbeat);
                if !confirm.granted.is_empty() {
                    self.meet("granted");
                }
                let frame = frame(&LinkMessage::Confirm(confirm));
                self.send(to, from, Message::Frame(frame));
            }
            LinkMessage::Confirm(mut confirm) => {
                if self.mistake == Mistake::FromReceiving {
                    let mut claims = Vec::new();
                    confirm.number = self.run_of(to).send(now_us, number, &mut claims).number;
                }
                self.run_of(to).confirm(now_us, number, &confirm);
            }
            other => panic!("{other:?}"),
        }
    }

    /// What the node wishes to change goes to the store.
    fn decide(&mut self, node: usize) {
        let now_us = self.clock(node);
        let it = &mut self.nodes[node];
        let (number, start) = (it.number, it.start);
        let (got, marks, data) = (&it.got, &it.marks, &it.data);
        let is_complete = |member: u8, partition: u16| {
            let has = got.get(&(member, partition)).copied().unwrap_or(0);
            match marks.get(&(member, partition)) {
                Some(&mark) => has >= mark,
                None => has > 0 && has + 5 >= data[&partition].log.len,
            }
        };
        let Some(wish) = it
            .run
            .as_mut()
            .and_then(|run| run.wish(now_us, is_complete))
        else {
            return;
        };
        let mut plan = it.run.as_ref().expect("it runs").plan().clone();
        let expected = plan.number;
        plan.number += 1;
        wish.apply(number, &mut plan.placings);
        if let Wish::Remove { silent } = &wish
            && self.mistake == Mistake::RemovedLate
        {
            for (member, partitions) in silent {
                it.ignored
                    .extend(partitions.iter().map(|partition| (*member, partition)));
            }
        }
        if matches!(wish, Wish::TakeOver { .. }) && self.mistake == Mistake::JudgedBefore {
            it.judged = true;
        }
        self.meet(match wish {
            Wish::TakeOver { .. } => "takeover asked",
            Wish::Remove { .. } => "removal asked",
            Wish::Join { .. } => "joining asked",
            Wish::Admit { .. } => "entry asked",
        });
        self.swap(node, start, expected, plan, wish);
    }

    fn swap(&mut self, node: usize, start: u32, expected: u64, plan: FailoverPlan, wish: Wish) {
        let (plan, wish) = (Box::new(plan), Box::new(wish));
        let fate = self.random.below(10);
        let there_us = self.within(1000, 30_000);
        let is_taken_over = matches!(*wish, Wish::TakeOver { .. });
        let crashes = fate == 2 && is_taken_over && self.random.once_in(3);
        let apply = Event::Apply {
            crashes: crashes.then_some(node),
            expected,
            plan,
        };
        let outcome = |world: &mut World, delay_us: u64, is_known| {
            let wish = wish.clone();
            world.at(
                delay_us,
                Event::Swapped {
                    node,
                    start,
                    wish,
                    is_known,
                },
            );
        };
        match fate {
            _ if !self.reaches_store(node) => {
                self.meet("store out of reach");
                outcome(self, 300_000, false);
            }
            0 => {
                self.meet("swap lost");
                outcome(self, UNKNOWN_US, false);
            }
            1 => {
                self.meet("answer lost");
                self.at(there_us, apply);
                outcome(self, UNKNOWN_US, false);
            }
            2 => {
                self.meet("swap late");
                let late_us = self.within(500_000, 6_000_000);
                self.at(late_us, apply);
                outcome(self, UNKNOWN_US, false);
            }
            _ => {
                self.at(there_us, apply);
                let back_us = there_us + self.within(1000, 30_000);
                outcome(self, back_us, true);
            }
        }
    }

    fn swapped(&mut self, node: usize, wish: &Wish, is_known: bool) {
        self.run_of(node).swapped();
        if let Wish::Admit {
            node: member,
            partitions,
        } = wish
            && !is_known
            && self.mistake == Mistake::AssumedFailed
        {
            let ignored = partitions.iter().map(|partition| (*member, partition));
            self.nodes[node].ignored.extend(ignored);
        }
        if self.reaches_store(node) {
            self.load(node);
        }
    }

    fn take_plan(&mut self, node: usize, plan: FailoverPlan) {
        let now_us = self.clock(node);
        let it = &mut self.nodes[node];
        let run = it.run.as_mut().expect("it runs");
        if plan.number > run.plan().number {
            it.ignored.clear();
            run.take_plan(now_us, plan);
        }
    }
}

fn frame(message: &LinkMessage<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let header = LinkHeader {
        number: 1,
        ..LinkHeader::default()
    };
    write_link_frame(&mut bytes, header, message);
    bytes
}
