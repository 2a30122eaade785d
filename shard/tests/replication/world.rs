//! Nodes, their logs and the links between them.

mod checks;
mod log;
mod met;
mod node;
mod random;
mod wires;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use penstock_net::link::frame::{read_link_frame, write_link_frame};
use penstock_net::link::message::EpochEntry;
use penstock_net::link::{LinkMessage, LinkReceived, Membership, Position, Records};
use penstock_net::slot::slot_of;
use penstock_shard::replication::gate::Outcome;
use penstock_shard::replication::partition::CannotBegin;
use penstock_shard::replication::receiver::{KeptLimits, LinkRefusal, Partitions};
use penstock_shard::replication::sender::LogReach;
use penstock_shard::replication::{
    Applicable, Counting, Epoch, EpochHistory, Facts, Journal, LinkId, PENDING_BYTES_MAX,
    Partition, PartitionId, Receiver, ReplicaGates, Ring, Role, Sender, ShippedRecord, Waiting,
    Work, records,
};
use penstock_storage::place::Lsn;
use penstock_storage::record::{PartKind, PartSpec, PartView, RecordSpec};
use penstock_storage::version::partition_of;

pub use met::Met;

use log::{Entry, Log, decode_history, encode, encode_history, parts, value_of};
use node::Node;
use random::Random;
use wires::Link;

const NODES: usize = 3;
/// Directories go nowhere back here.
const START_ID: u32 = 1;
const PARTITIONS: [PartitionId; 2] = [7, 200];
const KEYS: usize = 6;
const FRAME_BYTES_MAX: u32 = 4 << 20;
const TIME_MS: u64 = 1_700_000_000_000;
const NEVER_US: u64 = u64::MAX;

/// What the index says of a key: version, value, and where its part stands.
type Index = BTreeMap<Vec<u8>, (Position, Option<u64>, Lsn)>;

#[derive(Clone, Copy, Debug)]
struct Operation {
    partition: PartitionId,
    at: Position,
}

/// What the control plane says of a partition.
#[derive(Clone, Copy, Debug)]
struct Assignment {
    generation: u32,
    primary: usize,
}

pub struct World {
    random: Random,
    nodes: Vec<Node>,
    links: BTreeMap<(usize, usize), Link>,
    /// Pairs that cannot connect.
    cut: BTreeSet<(usize, usize)>,
    plan: BTreeMap<PartitionId, Assignment>,
    keys: BTreeMap<PartitionId, Vec<Vec<u8>>>,
    next_link: u64,
    next_value: u64,
    next_life: u64,
    /// The node, and its life, that wrote in an epoch.
    writers: BTreeMap<(PartitionId, u32), (usize, u64)>,
    acked_replica: Vec<Operation>,
    acked_disk: Vec<Operation>,
    /// Released by cleaning before all nodes had it.
    forgiven: BTreeSet<(PartitionId, Position)>,
    met: Met,
}

fn keys_of(partition: PartitionId) -> Vec<Vec<u8>> {
    let tag = (0u32..)
        .find(|tag| {
            partition_of(slot_of(format!("{{{tag}}}").as_bytes())) == usize::from(partition)
        })
        .expect("some number routes there");
    let mut keys = vec![format!("{{{tag}}}epochs").into_bytes()];
    keys.extend((0..KEYS).map(|number| format!("{{{tag}}}{number}").into_bytes()));
    keys
}

impl World {
    /// One run; what went wrong panics.
    pub fn run(seed: u64) -> Met {
        let mut random = Random(seed);
        let ring_bytes = [300, 1500, 1 << 20][random.below(3)];
        let nodes = (0..NODES)
            .map(|at| {
                let number = u8::try_from(at + 1).expect("few");
                Node::start(
                    number,
                    at as u64,
                    Log::default(),
                    ring_bytes,
                    BTreeSet::new(),
                )
            })
            .collect();
        let plan = PARTITIONS.into_iter().map(|partition| {
            let primary = random.below(NODES);
            (
                partition,
                Assignment {
                    generation: 1,
                    primary,
                },
            )
        });
        let mut world = World {
            plan: plan.collect(),
            random,
            nodes,
            links: BTreeMap::new(),
            cut: BTreeSet::new(),
            keys: PARTITIONS
                .into_iter()
                .map(|partition| (partition, keys_of(partition)))
                .collect(),
            next_link: 1,
            next_value: 1,
            next_life: NODES as u64,
            writers: BTreeMap::new(),
            acked_replica: Vec::new(),
            acked_disk: Vec::new(),
            forgiven: BTreeSet::new(),
            met: Met::default(),
        };
        for partition in PARTITIONS {
            world.begin(world.plan[&partition].primary, partition, true);
        }
        // A partition is made when its first epoch is durable.
        for node in &mut world.nodes {
            node.seal();
            node.log.durable = node.log.sealed;
        }
        let steps = 200 + world.random.below(400);
        for _ in 0..steps {
            world.step(ring_bytes);
        }
        world.settle(seed % 4 == 1);
        world.check_end();
        world.met
    }

    fn step(&mut self, ring_bytes: usize) {
        match self.random.below(100) {
            0..30 => self.write(),
            30..45 => {
                let node = self.random.below(NODES);
                self.nodes[node].seal();
            }
            45..60 => {
                let node = self.random.below(NODES);
                self.flush(node);
            }
            60..88 => {
                let count = 1 + self.random.below(4);
                for _ in 0..count {
                    self.deliver();
                }
            }
            88..91 => self.drop_a_link(),
            91..93 => {
                let pair = (self.random.below(NODES), self.random.below(NODES));
                if !self.cut.remove(&pair) && self.random.one_in(2) {
                    self.cut.insert(pair);
                    self.links
                        .remove(&pair)
                        .into_iter()
                        .for_each(|link| self.close(pair, link));
                }
            }
            93..95 => {
                let node = self.random.below(NODES);
                self.restart(node, ring_bytes);
            }
            95..97 => self.promote(),
            97..99 => {
                let node = self.random.below(NODES);
                self.clean(node);
            }
            _ => self.spoil(),
        }
        self.connect();
        let node = self.random.below(NODES);
        self.turn(node);
    }

    // ---- what clients and people do ----

    fn write(&mut self) {
        let node = self.random.below(NODES);
        let partition = PARTITIONS[self.random.below(PARTITIONS.len())];
        let durable = self.nodes[node].log.durable();
        if !self.nodes[node].partitions[&partition].may_write(durable) {
            return;
        }
        let count = 1 + self.random.below(3);
        let first = 1 + self.random.below(KEYS - count + 1);
        let keys: Vec<Vec<u8>> = self.keys[&partition][first..first + count].to_vec();
        let mut puts: Vec<(&[u8], Option<Vec<u8>>)> = Vec::new();
        for key in &keys {
            let value = self.next_value.to_le_bytes().to_vec();
            self.next_value += 1;
            puts.push((key, (!self.random.one_in(6)).then_some(value)));
        }
        let (lsn, operation) = self.commit(node, partition, &puts);
        if self.random.one_in(2) {
            self.nodes[node].gates.wait(Waiting {
                partition,
                lsn,
                deadline_us: NEVER_US,
                whom: operation,
            });
        }
        self.nodes[node].disk_waits.push_back((lsn, operation));
    }

    fn commit(
        &mut self,
        at: usize,
        partition: PartitionId,
        puts: &[(&[u8], Option<Vec<u8>>)],
    ) -> (Lsn, Operation) {
        let node = &mut self.nodes[at];
        let state = node.partitions.get_mut(&partition).expect("all are there");
        let position = state.next_position();
        let lsn = node.append(encode(position, puts));
        let writer = (at, node.life);
        let known = *self
            .writers
            .entry((partition, position.epoch))
            .or_insert(writer);
        assert_eq!(
            known,
            writer,
            "two lives write partition {partition} in {:?}",
            Epoch(position.epoch)
        );
        (
            lsn,
            Operation {
                partition,
                at: position,
            },
        )
    }

    fn begin(&mut self, at: usize, partition: PartitionId, is_forced: bool) -> bool {
        let node = &mut self.nodes[at];
        let generation = self.plan[&partition].generation;
        let state = node.partitions.get_mut(&partition).expect("all are there");
        match state.begin(generation, node.number, is_forced, &mut node.log) {
            Ok(_) => {
                self.apply(at);
                true
            }
            Err(CannotBegin::NotWhole) => {
                self.met.one("not whole");
                false
            }
            Err(CannotBegin::Behind) => {
                self.met.one("behind");
                false
            }
            Err(CannotBegin::Promised(_)) => false,
        }
    }

    /// Somebody else is to be primary; whether the old one is there is nobody's concern.
    fn promote(&mut self) {
        let partition = PARTITIONS[self.random.below(PARTITIONS.len())];
        let at = self.random.below(NODES);
        if self.plan[&partition].primary != at {
            self.promote_to(partition, at, false);
        }
    }

    fn promote_to(&mut self, partition: PartitionId, at: usize, is_forced: bool) -> bool {
        let before = self.plan[&partition];
        let after = Assignment {
            generation: before.generation + 1,
            primary: at,
        };
        self.plan.insert(partition, after);
        if !self.begin(at, partition, is_forced) {
            self.plan.insert(partition, before);
            return false;
        }
        self.met.one("promoted");
        let node = &self.nodes[at];
        let state = &node.partitions[&partition];
        for acked in self
            .acked_replica
            .iter()
            .filter(|acked| acked.partition == partition)
        {
            assert!(
                state.history().contains(acked.at, state.applied()),
                "node {at} is promoted for {partition} without {:?}, which was acknowledged at \
                 level replica; it is at {:?} of {:?}",
                acked.at,
                state.applied(),
                state.history()
            );
        }
        true
    }

    fn restart(&mut self, at: usize, ring_bytes: usize) {
        let pairs: Vec<_> = self
            .links
            .keys()
            .copied()
            .filter(|&(a, b)| a == at || b == at)
            .collect();
        for pair in pairs {
            let link = self.links.remove(&pair).expect("just seen");
            self.close(pair, link);
        }
        let life = self.next_life;
        self.next_life += 1;
        let node = &mut self.nodes[at];
        let mut log = std::mem::take(&mut node.log);
        let kept = log.durable + self.random.below(log.entries.len() - log.durable + 1);
        log.entries.truncate(kept);
        let found = std::mem::take(&mut node.lostfound);
        self.nodes[at] = Node::start(self.nodes[at].number, life, log, ring_bytes, found);
        self.met.one("restarted");
        for partition in PARTITIONS {
            if self.plan[&partition].primary == at && self.begin(at, partition, false) {
                self.met.one("restarted as primary");
            }
        }
    }

    fn flush(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        let open = node.log.sealed - node.log.durable;
        node.log.durable += self.random.below(open + 1);
    }

    /// Copies what counts of the oldest entries to the end and releases them.
    fn clean(&mut self, at: usize) {
        let is_tail_needed = |node: &Node| {
            node.partitions
                .values()
                .any(|partition| partition.facts().rewind_from.is_some())
        };
        if is_tail_needed(&self.nodes[at]) {
            return;
        }
        let ignores_members = self.random.one_in(3);
        let node = &self.nodes[at];
        let until = node.log.released + self.random.below(node.log.durable - node.log.released + 1);
        let durable: Vec<BTreeSet<(PartitionId, Position)>> = self
            .nodes
            .iter()
            .map(|node| {
                let records = node.log.records();
                let is_durable = |(lsn, record): (Lsn, ShippedRecord<'_>)| {
                    (lsn <= node.log.durable()).then_some((record.partition, record.position))
                };
                records.filter_map(is_durable).collect()
            })
            .collect();
        let has_it = |at: usize, record: &ShippedRecord<'_>| {
            durable[at].contains(&(record.partition, record.position))
        };
        let mut forgotten: Vec<(PartitionId, Position)> = Vec::new();
        let mut lacking = Vec::new();
        for (_, record) in node
            .log
            .records()
            .take_while(|(lsn, _)| lsn.0 <= until as u64)
        {
            forgotten.push((record.partition, record.position));
            if !(0..NODES).all(|at| has_it(at, &record)) {
                lacking.push((record.partition, record.position));
            }
        }
        if !lacking.is_empty() && !ignores_members {
            return;
        }
        let mut copies = Vec::new();
        let mut latest: BTreeMap<PartitionId, usize> = BTreeMap::new();
        for (index, entry) in node.log.entries.iter().enumerate() {
            if let Some(Entry::Facts(partition, _)) = entry {
                latest.insert(*partition, index);
            }
        }
        for index in node.log.released..until {
            match &node.log.entries[index] {
                Some(Entry::Record(bytes)) => {
                    for part in parts(bytes) {
                        if node.index[part.key()].2 == Lsn(index as u64 + 1) {
                            let mut copy = vec![0; part.bytes().len()];
                            let len = part.encode_moved(part.kind(), false, &mut copy);
                            copy.truncate(len);
                            copies.push(Entry::Record(copy));
                        }
                    }
                }
                Some(Entry::Facts(partition, facts)) if latest[partition] == index => {
                    copies.push(Entry::Facts(*partition, facts.clone()));
                }
                _ => {}
            }
        }
        self.forgiven.extend(lacking);
        let node = &mut self.nodes[at];
        for copy in copies {
            match copy {
                Entry::Record(bytes) => {
                    node.append(bytes);
                }
                facts => {
                    node.log.append(facts);
                }
            }
        }
        node.seal();
        node.log.durable = node.log.sealed;
        for (partition, position) in forgotten {
            let highest = node.log.forgotten.entry(partition).or_default();
            *highest = (*highest).max(position.sequence);
        }
        for entry in &mut node.log.entries[..until] {
            *entry = None;
        }
        node.log.released = until;
        self.met.one("released");
    }

    // ---- links ----

    // ---- a node ----

    fn work(&mut self, at: usize, pair: (usize, usize), mut work: VecDeque<Work>) {
        while let Some(work) = work.pop_front() {
            match work {
                Work::Deposed { partition, epoch } => self.deposed(at, partition, epoch),
                Work::Save { partition, records } => {
                    self.met.one("received tail saved");
                    let node = &mut self.nodes[pair.1];
                    for bytes in &records {
                        let (record, _) = ShippedRecord::read(bytes).expect("it was checked");
                        node.lostfound.insert((partition, record.position));
                    }
                }
                Work::SaveDiverged {
                    partition,
                    link,
                    from,
                    history,
                } => {
                    self.save_tail(pair, partition, link, from, &history);
                }
                Work::Rewind { partition, keys } => self.rewind(pair, partition, &keys),
                Work::Begin { .. } | Work::Lacks { .. } => unreachable!("nobody hands over"),
            }
        }
    }

    fn deposed(&mut self, at: usize, partition: PartitionId, epoch: Epoch) {
        let node = &mut self.nodes[at];
        let state = node.partitions.get_mut(&partition).expect("all are there");
        state.depose(epoch, &mut node.log);
        let met = &mut self.met;
        node.gates.depose(partition, |_| met.one("unknown"));
        for (&(from, _), link) in &mut self.links {
            if from == at {
                link.sender.close(TIME_MS, partition, &mut link.there);
            }
        }
        self.met.one("deposed by a link");
    }

    fn save_tail(
        &mut self,
        pair: (usize, usize),
        partition: PartitionId,
        link: LinkId,
        from: Position,
        history: &EpochHistory,
    ) {
        let keys = self.tail_of(pair.1, partition, from, history);
        let link = self.links.get_mut(&pair).filter(|it| it.id == link.0);
        if let Some(link) = link {
            link.receiver.diverged_saved(partition, keys);
        }
    }

    /// Keeps what stands in the log of a node behind a position and is not of a past; its keys.
    fn tail_of(
        &mut self,
        at: usize,
        partition: PartitionId,
        from: Position,
        history: &EpochHistory,
    ) -> BTreeSet<Vec<u8>> {
        let node = &mut self.nodes[at];
        let endless = Position {
            epoch: history.last().map_or(0, |epoch| epoch.0),
            sequence: u64::MAX,
        };
        let mut keys = BTreeSet::new();
        let mut saved = Vec::new();
        for (_, record) in node.log.records() {
            if record.partition == partition
                && record.position > from
                && !history.contains(record.position, endless)
            {
                saved.push((partition, record.position));
                keys.extend(parts(record.bytes).iter().map(|part| part.key().to_vec()));
            }
        }
        keys.retain(|key| !key.ends_with(b"epochs"));
        if !saved.is_empty() {
            self.met.one("tail saved");
        }
        node.lostfound.extend(saved);
        keys
    }

    fn rewind(&mut self, pair: (usize, usize), partition: PartitionId, keys: &[Vec<u8>]) {
        let (from, _) = pair;
        let durable = self.nodes[from].log.durable();
        if !self.nodes[from].partitions[&partition].may_write(durable) {
            return;
        }
        let mut last = (self.nodes[from].partitions[&partition].applied(), Lsn(0));
        for key in keys {
            last = self.write_anew(from, partition, key);
            self.met.one("rewound");
        }
        let link = self.links.get_mut(&pair).expect("its frame was just read");
        link.sender
            .rewound(TIME_MS, partition, last.0, last.1, &mut link.there);
    }

    fn write_anew(&mut self, at: usize, partition: PartitionId, key: &[u8]) -> (Position, Lsn) {
        let value = self.nodes[at].index.get(key).and_then(|found| found.1);
        let value = value.map(|value| value.to_le_bytes().to_vec());
        let (lsn, operation) = self.commit(at, partition, &[(key, value)]);
        (operation.at, lsn)
    }

    /// Applies what may be applied.
    fn apply(&mut self, at: usize) {
        for number in PARTITIONS {
            let links: Vec<(usize, usize)> = self
                .links
                .keys()
                .copied()
                .filter(|&(_, to)| to == at)
                .collect();
            let link = links.iter().copied().find(|pair| {
                matches!(self.nodes[at].partitions[&number].role(), Role::Member(member)
                    if member.link == LinkId(self.links[pair].id))
            });
            let told = link.map_or(0, |pair| self.links[&pair].receiver.announced());
            loop {
                let partition = &self.nodes[at].partitions[&number];
                let Some(applicable) = partition.applicable(told) else {
                    break;
                };
                let (frame, lsn) = match applicable {
                    Applicable::Record {
                        position,
                        bytes,
                        is_dense,
                        is_news,
                    } => {
                        let bytes = bytes.to_vec();
                        if let Some((from, _)) = link {
                            self.check_durable(from, number, position);
                        }
                        let node = &mut self.nodes[at];
                        let is_newer = |part: &PartView<'_>| {
                            node.index
                                .get(part.key())
                                .is_none_or(|found| found.0 < position)
                        };
                        let parts = parts(&bytes);
                        let state = &node.partitions[&number];
                        assert!(
                            !is_news || parts.iter().all(is_newer),
                            "{position:?} is no news: {:?} {:?} {:?}",
                            state.facts(),
                            state.role(),
                            state.history()
                        );
                        let lsn = match is_dense || parts.iter().any(is_newer) {
                            true => node.append(bytes),
                            false => node.log.last(),
                        };
                        let state = node.partitions.get_mut(&number).expect("all are there");
                        (state.record_applied(), lsn)
                    }
                    Applicable::Join => {
                        let node = &mut self.nodes[at];
                        let state = node.partitions.get_mut(&number).expect("all are there");
                        if state.facts().scan_from.is_some() {
                            self.met.one("scanned");
                        }
                        (state.join(&mut node.log), node.log.last())
                    }
                };
                if let Some(pair) = link {
                    let link = self.links.get_mut(&pair).expect("just seen");
                    link.receiver.applied(number, frame, 1, lsn);
                }
            }
            let node = &mut self.nodes[at];
            if let Some((position, history)) = node.partitions[&number].first_record(START_ID) {
                let key = &self.keys[&number][0];
                let lsn = node.append(encode(position, &[(key, Some(encode_history(&history)))]));
                let state = node.partitions.get_mut(&number).expect("all are there");
                state.begun(START_ID, lsn, &mut node.log);
                self.write_own_diverged_anew(at, number);
            }
        }
    }

    /// Of a partition that was begun by force in the middle of a rewind.
    fn write_own_diverged_anew(&mut self, at: usize, number: PartitionId) {
        let state = &self.nodes[at].partitions[&number];
        let Some(from) = state.own_diverged() else {
            return;
        };
        let history = state.history().clone();
        for key in self.tail_of(at, number, from, &history) {
            self.write_anew(at, number, &key);
        }
        let node = &mut self.nodes[at];
        let state = node.partitions.get_mut(&number).expect("all are there");
        state.own_diverged_rewritten(&mut node.log);
        self.met.one("own tail written anew");
    }

    fn turn(&mut self, at: usize) {
        self.apply(at);
        let pairs: Vec<_> = self.links.keys().copied().collect();
        for pair in pairs {
            if pair.0 == at {
                self.pump_sender(pair);
            }
            if pair.1 == at {
                let node = &self.nodes[at];
                let link = self.links.get_mut(&pair).expect("just seen");
                let durable = node.log.durable();
                link.receiver
                    .pump(TIME_MS, durable, &node.partitions, &mut link.back);
            }
        }
        self.release(at);
    }

    fn pump_sender(&mut self, pair: (usize, usize)) {
        let mut link = self.links.remove(&pair).expect("the caller saw it");
        match self.ship(pair.0, &mut link) {
            Ok(()) => {
                self.links.insert(pair, link);
            }
            // Cleaning has released what was promised to be shipped: told, and scanned the next
            // time.
            Err(refusal) => {
                assert!(self.nodes[pair.0].log.released > 0, "{refusal:?}");
                self.met.one("released under a delta");
                self.close(pair, link);
            }
        }
    }

    fn ship(&mut self, from: usize, link: &mut Link) -> Result<(), LinkRefusal> {
        let node = &self.nodes[from];
        let durable = node.log.durable();
        let out = &mut link.there;
        for (&number, partition) in &node.partitions {
            if let Some(epoch) = partition.may_open(durable)
                && link.sender.opened(number) != Some(epoch)
            {
                let writer = (from, node.life);
                let known = *self.writers.entry((number, epoch.0)).or_insert(writer);
                assert_eq!(known, writer, "two lives offer {number} in {epoch}");
                link.sender
                    .open(TIME_MS, number, epoch, Membership::Sync, out);
            }
        }
        if link.sender.wants_log(&node.ring).is_some() {
            self.met.one("overrun");
        }
        while let Some(behind) = link.sender.wants_log(&node.ring) {
            let until = Lsn((behind.0 + 5).min(node.ring.before().0));
            let read = node.log.records();
            for (lsn, record) in read.filter(|(lsn, _)| *lsn > behind && *lsn <= until) {
                let counts = parts(record.bytes)
                    .iter()
                    .any(|part| node.index[part.key()].0 == record.position);
                link.sender.feed(
                    TIME_MS,
                    lsn,
                    &record,
                    (counts, node.log.last()),
                    &node.partitions,
                    out,
                )?;
            }
            link.sender.fed(TIME_MS, until, node.log.last(), out);
        }
        let (ring, partitions, log) = (&node.ring, &node.partitions, &node.log);
        link.sender
            .pump(TIME_MS, durable, ring, partitions, log, out)
    }

    /// Answers who need not wait any longer.
    fn release(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        let durable = node.log.durable();
        while let Some(&(lsn, operation)) = node.disk_waits.front()
            && lsn <= durable
        {
            self.acked_disk.push(operation);
            self.met.one("acked at disk");
            node.disk_waits.pop_front();
        }
        let links = &self.links;
        let received = |partition| {
            (0..NODES).filter(move |&to| to != at).map(move |to| {
                match links
                    .get(&(at, to))
                    .map(|link| link.sender.counting(partition))
                {
                    Some(Counting::UpTo(lsn)) => Some(lsn),
                    _ => None,
                }
            })
        };
        let (acked, met) = (&mut self.acked_replica, &mut self.met);
        node.gates
            .release(0, durable, received, |operation, outcome| match outcome {
                Outcome::Reached => {
                    acked.push(operation);
                    met.one("acked at replica");
                }
                Outcome::Unknown => met.one("unknown"),
            });
    }

    // ---- the end ----

    /// All faults stop, and everything comes to rest; perhaps under a node that is let write in the
    /// middle of a rewind.
    fn settle(&mut self, takes_half: bool) {
        self.cut.clear();
        // Who was primary and does not know of its successor has to be told by somebody: a write of
        // the present primary is enough to see that all is well.
        for partition in PARTITIONS {
            let is_primary = |at: usize| {
                let state = &self.nodes[at].partitions[&partition];
                matches!(state.role(), Role::Primary { .. })
            };
            let is_half = |at: &usize| {
                // What a scan has not brought is swept at the others: that is of the links.
                let facts = self.nodes[*at].partitions[&partition].facts();
                facts.rewind_from.is_some() && facts.scan_from.is_none()
            };
            if let Some(at) = (0..NODES).find(is_half).filter(|_| takes_half) {
                self.acked_replica
                    .retain(|acked| acked.partition != partition);
                self.acked_disk.retain(|acked| acked.partition != partition);
                assert!(self.promote_to(partition, at, true));
                self.met.one("forced in a rewind");
                continue;
            }
            // It may have been whole in what it lost.
            let is_served = is_primary(self.plan[&partition].primary);
            if !is_served && !(0..NODES).any(|at| self.promote_to(partition, at, false)) {
                // People choose who has most, and accept what is lost.
                let far = |at: &usize| {
                    let state = &self.nodes[*at].partitions[&partition];
                    (state.is_whole(), state.received())
                };
                let at = (0..NODES).max_by_key(far).expect("there are nodes");
                self.acked_replica
                    .retain(|acked| acked.partition != partition);
                assert!(self.promote_to(partition, at, true));
                self.met.one("forced");
            }
        }
        for round in 0..60 {
            self.connect();
            for at in 0..NODES {
                self.nodes[at].seal();
                self.nodes[at].log.durable = self.nodes[at].log.sealed;
                self.turn(at);
            }
            let pairs: Vec<_> = self.links.keys().copied().collect();
            for pair in pairs {
                let link = self.links.get_mut(&pair).expect("just seen");
                link.arrived = (link.there.len(), link.back.len());
                self.read_there(pair, false);
                self.read_back(pair);
            }
            if round == 30 {
                for partition in PARTITIONS {
                    let primary = self.plan[&partition].primary;
                    let durable = self.nodes[primary].log.durable();
                    assert!(self.nodes[primary].partitions[&partition].may_write(durable));
                    let key = self.keys[&partition][1].clone();
                    let (lsn, operation) =
                        self.commit(primary, partition, &[(&key, Some(vec![9; 8]))]);
                    self.nodes[primary].gates.wait(Waiting {
                        partition,
                        lsn,
                        deadline_us: NEVER_US,
                        whom: operation,
                    });
                }
            }
        }
    }
}
