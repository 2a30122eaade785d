//! Nodes, their disks and the links between them.

mod checks;
mod met;
mod node;
pub mod scenes;
mod wires;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use penstock_net::link::{Membership, NodeStart, Position};
use penstock_net::slot::slot_of;
use penstock_shard::replication::gate::Outcome;
use penstock_shard::replication::handshake::{Introduction, Peer};
use penstock_shard::replication::link_set::{LinkAction, LinkSet, LinkSetConfig, LinkTime};
use penstock_shard::replication::{
    CannotBegin, Epoch, LinkId, Needed, PENDING_BYTES_MAX, Partition, PartitionId, ReplicaGates,
    Role, SyncSet, Waiting, records,
};
use penstock_storage::cleaning::CleaningConfig;
use penstock_storage::index::CellId;
use penstock_storage::inheritance::InheritedLog;
use penstock_storage::io::{Asker, Block, Io, IoFailure, IoToken, SegmentSource};
use penstock_storage::log::{Log, LogConfig, Purpose, Room, SyncMethod};
use penstock_storage::place::{FileId, LogStart, Lsn, Place};
use penstock_storage::record::{KindedValue, PartView, number_bytes, part_bytes};
use penstock_storage::recovery::Replayed;
use penstock_storage::recovery::{recover, survey};
use penstock_storage::segment::Owner;
use penstock_storage::store::{Found, Store};
use penstock_storage::version::{Version, partition_of};

use crate::disk::Disk;
use crate::heap::{Heap, HeapBlock};
use crate::random::Random;

pub use met::Met;

use node::{Logs, Node, introduction, log_config, owner};
use wires::Link;

const NODES: usize = 3;
const PARTITIONS: [PartitionId; 2] = [7, 200];
const KEYS: usize = 12;
const CACHE_BYTES: usize = 6_000;
const SEGMENT_BYTES: usize = 128 << 10;
const RECORD_BYTES_MAX: u32 = 16 << 10;
/// Of all values of a record together.
const LONG_VALUE_BYTES: usize = 15_000;
const FRAME_BYTES_MAX: u32 = 4 << 20;
const LOG_ID: u64 = 3;
const TIME_MS: u64 = 1_700_000_000_000;
const NEVER_US: u64 = u64::MAX;
const EIO: i32 = 5;
/// What readers of members want.
const STALENESS_US_MAX: u64 = 4_000;

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
    /// By this node.
    handed_over_by: Option<usize>,
}

pub struct World {
    random: Random,
    nodes: Vec<Node>,
    links: BTreeMap<(usize, usize), Link>,
    /// Pairs that cannot connect.
    cut: BTreeSet<(usize, usize)>,
    /// Nodes whose disks have no room for another segment.
    full: BTreeSet<usize>,
    plan: BTreeMap<PartitionId, Assignment>,
    keys: BTreeMap<PartitionId, Vec<Vec<u8>>>,
    ring_bytes: usize,
    backlog_bytes: u64,
    value_bytes: usize,
    /// Keys of a write, at most.
    keys_max: usize,
    pending_bytes_max: usize,
    next_link: u64,
    next_value: u64,
    next_life: u64,
    next_salt: u64,
    /// The node, and its life, that wrote in an epoch.
    writers: BTreeMap<(PartitionId, u32), (usize, u64)>,
    acked_replica: Vec<Operation>,
    acked_disk: Vec<Operation>,
    /// Ends of links that the other end has left: closed when what it said was read.
    dying: Vec<(usize, LinkId)>,
    is_settling: bool,
    /// What is inherited counts as released.
    has_changed_shards: bool,
    /// Turns of any node so far.
    steps: u64,
    met: Met,
}

fn keys_of(partition: PartitionId) -> Vec<Vec<u8>> {
    let tag = (0u32..)
        .find(|tag| {
            partition_of(slot_of(format!("{{{tag}}}").as_bytes())) == usize::from(partition)
        })
        .expect("some number routes there");
    (0..KEYS)
        .map(|number| format!("{{{tag}}}{number}").into_bytes())
        .collect()
}

/// Keys with versions and values.
type Contents = BTreeMap<Vec<u8>, (Version, Vec<u8>)>;

/// Few values, other ones at each node.
fn hash(salt: u64, key: &[u8]) -> u32 {
    let mixed = key.iter().fold(salt, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x9E37_79B9_7F4A_7C15)
    });
    u32::try_from(mixed >> 40).expect("24 bits") % 61
}

fn position(version: Version) -> Position {
    Position {
        epoch: version.epoch,
        sequence: version.sequence,
    }
}

impl World {
    /// Who has a partition.
    fn holders(&self, partition: PartitionId) -> Vec<usize> {
        let has = |at: &usize| self.nodes[*at].links.partition(partition).is_some();
        (0..self.nodes.len()).filter(has).collect()
    }

    fn state(&self, at: usize, partition: PartitionId) -> &Partition {
        let state = self.nodes[at].links.partition(partition);
        state.expect("it is one of the holders")
    }

    /// One run; what went wrong panics.
    pub fn run(seed: u64) -> Met {
        let mut world = World::new(seed, None);
        let steps = 600 + world.random.below(1_500);
        for _ in 0..steps {
            world.step();
        }
        world.settle(seed % 4 == 1);
        world.check_end();
        world.met
    }

    /// The nodes of a new cluster, of so many shards or of any number.
    fn new(seed: u64, shards: Option<u16>) -> World {
        let mut random = Random::new(seed);
        let ring_bytes = [2_000, 20_000, 1 << 20][random.below(3)];
        let backlog_bytes = [u64::MAX, u64::MAX, 0, 0][random.below(4)];
        let value_bytes = [16, 600, 3_000][random.below(3)];
        // The longer a value, the further its place may reach behind the end of a cut segment.
        let is_long = usize::from(matches!(seed % 7, 3 | 5));
        let value_bytes = [value_bytes, LONG_VALUE_BYTES][is_long];
        let mut world = World {
            random,
            nodes: Vec::new(),
            links: BTreeMap::new(),
            cut: BTreeSet::new(),
            full: BTreeSet::new(),
            plan: BTreeMap::new(),
            keys: PARTITIONS
                .into_iter()
                .map(|partition| (partition, keys_of(partition)))
                .collect(),
            ring_bytes,
            backlog_bytes,
            value_bytes,
            keys_max: [3, KEYS][usize::from(seed % 4 == 1)],
            pending_bytes_max: [300, 4_000, PENDING_BYTES_MAX][(seed % 3) as usize],
            next_link: 1,
            next_value: 1,
            next_life: 0,
            next_salt: 1,
            writers: BTreeMap::new(),
            acked_replica: Vec::new(),
            acked_disk: Vec::new(),
            dying: Vec::new(),
            is_settling: false,
            has_changed_shards: false,
            steps: 0,
            met: Met::default(),
        };
        for number in 1..=NODES {
            let number = u8::try_from(number).expect("few");
            let shards = shards.unwrap_or_else(|| 1 + u16::from(world.random.once_in(3)));
            for shard in 0..shards {
                let who = (number, shard, shards);
                let logs = Logs {
                    own: LOG_ID,
                    inherited: None,
                };
                let node = world.start(who, logs, Disk::default(), BTreeSet::new());
                world.nodes.push(node);
            }
        }
        for partition in PARTITIONS {
            let holders = world.holders(partition);
            let primary = holders[world.random.below(NODES)];
            let assignment = Assignment {
                generation: 1,
                primary,
                handed_over_by: None,
            };
            world.plan.insert(partition, assignment);
            world.begin(primary, partition, true);
        }
        // A partition is made when its first epoch is durable.
        for _ in 0..20 {
            for at in 0..world.nodes.len() {
                world.turn(at);
                world.complete_all(at);
            }
        }
        world
    }

    /// What a start makes of a disk.
    fn start(
        &mut self,
        who: (u8, u16, u16),
        logs: Logs,
        mut disk: Disk,
        lostfound: BTreeSet<(PartitionId, Position)>,
    ) -> Node {
        let (number, shard, shards) = who;
        let life = self.next_life;
        self.next_life += 1;
        let salt = self.random.next();
        let survey = survey(&mut disk, owner(number)).expect("a power cut is no damage");
        for file in survey
            .torn_activations
            .iter()
            .chain(survey.released.values().flatten())
        {
            disk.files.remove(file);
        }
        let mut cold = Disk::from(disk.files.clone());
        let mut memory = Replayed::new(CACHE_BYTES);
        let home_of = node::home_of(salt);
        let mut replay = |log_id: u64| {
            let segments = survey.logs.get(&log_id).map_or(&[][..], Vec::as_slice);
            let recovered = recover(&mut disk, segments, &mut |part, place| {
                memory.replay(&home_of, part, place, |place, visit_part| {
                    let mut bytes = vec![0; place.bytes as usize];
                    cold.read_at(place.file, place.offset, &mut bytes)?;
                    visit_part(&PartView::read(&bytes).expect("it was replayed"));
                    Ok(())
                })
            });
            recovered.expect("a power cut is no damage")
        };
        let inherited = logs.inherited.map(|log_id| (log_id, replay(log_id)));
        let recovered = replay(logs.own);
        if let Some(file) = recovered.release {
            disk.files.remove(&file);
        }
        for &(file, bytes) in &recovered.truncate {
            let bytes = usize::try_from(bytes).expect("small files");
            let cut = disk.files.get_mut(&file).expect("it was found");
            cut.truncate(bytes);
        }
        let config = log_config(number, life + 1, logs.own);
        let start: LogStart = recovered.start;
        let log = Log::with_history(config, start, recovered.history.clone(), Heap);
        let sequences = *recovered.history.sequences.clone();
        let mut store = Store::new(log, Heap, 1, sequences, memory);
        let inherited = inherited.map(|(log_id, recovered)| InheritedLog {
            log_id,
            time_ms: recovered.time_ms,
            history: recovered.history,
        });
        store.inherit(inherited.as_slice());
        for (file, bytes) in survey.spares {
            self.next_salt += 1;
            store.log_mut().add_spare(file, self.next_salt, bytes);
        }
        store.cleaning_mut().configure(CleaningConfig {
            space_percent_max: 120,
            bytes_per_s: 1 << 30,
            log_bytes_max: 0,
        });
        let links = self.link_set(who, life, &mut store);
        Node {
            number,
            shard,
            shards,
            logs,
            life,
            disk,
            store,
            links,
            requests: Vec::new(),
            now_us: 0,
            salt,
            removable: Vec::new(),
            gates: ReplicaGates::new(usize::MAX),
            disk_waits: VecDeque::new(),
            written: Vec::new(),
            clock: Vec::new(),
            kept: BTreeSet::new(),
            lostfound,
            served: BTreeSet::new(),
        }
    }

    /// The links of a new node, which may hold each partition with all others.
    fn link_set(
        &self,
        who: (u8, u16, u16),
        life: u64,
        store: &mut Store<Heap>,
    ) -> LinkSet<HeapBlock> {
        let config = LinkSetConfig {
            me: introduction(who, life),
            ring_bytes_max: self.ring_bytes,
            backlog_bytes_max: self.backlog_bytes,
            catch_up_bytes_per_s: 0,
            pending_bytes_max: self.pending_bytes_max,
        };
        let mut links = LinkSet::new(config, store).expect("its own notes");
        for partition in PARTITIONS {
            let others = (1..=NODES).map(|other| u8::try_from(other).expect("few"));
            let members = others
                .filter(|&other| other != who.0)
                .map(|other| (other, Membership::Sync));
            links.place(partition, members.collect());
        }
        links
    }

    fn step(&mut self) {
        let node = self.random.below(self.nodes.len());
        match self.random.below(200) {
            0..50 => self.write(node),
            50..120 => {
                for _ in 0..=self.random.below(4) {
                    self.complete_one(node);
                }
            }
            120..178 => {
                for _ in 0..=self.random.below(4) {
                    self.deliver();
                }
            }
            178..182 => self.drop_a_link(),
            182..185 => {
                let count = self.nodes.len();
                let pair = (self.random.below(count), self.random.below(count));
                if !self.cut.remove(&pair) && self.random.once_in(2) {
                    self.cut.insert(pair);
                    self.close(pair);
                }
            }
            185..188 => self.restart(node),
            188..191 => self.promote(),
            191..194 => self.nodes[node].now_us += 10_000,
            _ => self.spoil(),
        }
        self.connect();
        let node = self.random.below(self.nodes.len());
        self.nodes[node].now_us += 100;
        self.turn(node);
    }

    // ---- what clients and people do ----

    fn write(&mut self, at: usize) {
        let partition = PARTITIONS[self.random.below(PARTITIONS.len())];
        let count = 1 + self.random.below(self.keys_max);
        let first = self.random.below(KEYS - count + 1);
        let mut puts: Vec<(Vec<u8>, Option<Vec<u8>>)> = Vec::new();
        for key in &self.keys[&partition][first..first + count] {
            let mut value = self.next_value.to_le_bytes().to_vec();
            self.next_value += 1;
            let bytes_max = self.value_bytes.min(LONG_VALUE_BYTES / count);
            value.resize(8 + self.random.below(bytes_max), 7);
            puts.push((key.clone(), (!self.random.once_in(3)).then_some(value)));
        }
        let Some((lsn, operation)) = self.commit(at, partition, &puts) else {
            return;
        };
        if self.random.once_in(2) {
            self.nodes[at].gates.wait(Waiting {
                partition,
                lsn,
                needed: Needed::All,
                deadline_us: NEVER_US,
                whom: operation,
            });
        }
        self.nodes[at].disk_waits.push_back((lsn, operation));
    }

    fn commit(
        &mut self,
        at: usize,
        partition: PartitionId,
        puts: &[(Vec<u8>, Option<Vec<u8>>)],
    ) -> Option<(Lsn, Operation)> {
        let node = &mut self.nodes[at];
        if !node.links.may_write(partition, &node.store) {
            return None;
        }
        let slot = slot_of(&puts[0].0);
        for (key, _) in puts {
            node.cell(key);
        }
        let sizes = puts.iter().map(|(key, value)| {
            let value_len = value.as_ref().map_or(0, Vec::len);
            part_bytes(key.len(), value_len, false, 0) + number_bytes(puts.len())
        });
        if node.store.room_for(Purpose::Grow, sizes.sum()) != Room::Yes {
            return None;
        }
        let mut cells = Vec::new();
        for (key, value) in puts {
            let (home, known) = (node::home_of(node.salt)(key), node.cell(key));
            let keys = node.store.keys_mut();
            let mut id = known.unwrap_or_else(|| keys.insert(home, key, KindedValue::NONE, None));
            match value {
                Some(value) => id = keys.set_value(home, id, KindedValue::plain(value), None),
                None => keys.mark_deleted(home, id),
            }
            cells.push((home.hash, id));
        }
        let (lsn, version) = node.store.commit(node.now_us, slot, &cells);
        node.store.log_mut().want_durable(lsn);
        node.links.committed(partition, version);
        let writer = (at, node.life);
        let epochs = (partition, version.epoch);
        let known = *self.writers.entry(epochs).or_insert(writer);
        assert_eq!(
            known,
            writer,
            "two lives write partition {partition} in {:?}",
            Epoch(version.epoch)
        );
        let operation = Operation {
            partition,
            at: position(version),
        };
        node.written.push((lsn, operation, self.steps));
        Some((lsn, operation))
    }

    fn begin(&mut self, at: usize, partition: PartitionId, is_forced: bool) -> bool {
        let generation = self.plan[&partition].generation;
        self.begin_in(at, partition, generation, is_forced)
    }

    fn begin_in(
        &mut self,
        at: usize,
        partition: PartitionId,
        generation: u32,
        is_forced: bool,
    ) -> bool {
        for _ in 0..100 {
            let node = &mut self.nodes[at];
            let time = node.time();
            let begun = node
                .links
                .begin(time, partition, generation, is_forced, &mut node.store);
            match begun {
                Some(Ok(_)) => return true,
                Some(Err(CannotBegin::NotWhole)) => {
                    self.met.one("not whole");
                    return false;
                }
                Some(Err(CannotBegin::Behind)) => {
                    self.met.one("behind");
                    return false;
                }
                Some(Err(CannotBegin::Promised(_) | CannotBegin::StartsUsedUp(_))) => return false,
                // The log has no room now.
                None => {
                    self.turn(at);
                    self.complete_all(at);
                }
            }
        }
        panic!("the log of node {at} never has room");
    }

    /// Somebody else is to be primary; whether the old one is there is nobody's concern.
    fn promote(&mut self) {
        let partition = PARTITIONS[self.random.below(PARTITIONS.len())];
        let at = self.holders(partition)[self.random.below(NODES)];
        if self.plan[&partition].primary != at {
            self.promote_to(partition, at, false);
        }
    }

    fn promote_to(&mut self, partition: PartitionId, at: usize, is_forced: bool) -> bool {
        let before = self.plan[&partition];
        let after = Assignment {
            generation: before.generation + 1,
            primary: at,
            handed_over_by: None,
        };
        self.plan.insert(partition, after);
        if !self.begin(at, partition, is_forced) {
            self.plan.insert(partition, before);
            return false;
        }
        self.met.one("promoted");
        true
    }

    fn restart(&mut self, at: usize) {
        self.restart_with(at, self.nodes[at].logs);
    }

    fn restart_with(&mut self, at: usize, logs: Logs) {
        let pairs: Vec<_> = self.links.keys().copied().collect();
        for pair in pairs {
            if pair.0 == at || pair.1 == at {
                self.close(pair);
            }
        }
        self.count(at);
        let node = &mut self.nodes[at];
        let mut disk = std::mem::take(&mut node.disk);
        let found = std::mem::take(&mut node.lostfound);
        let who = (node.number, node.shard, node.shards);
        disk.crash(|| self.random.next());
        self.dying.retain(|(other, _)| *other != at);
        self.nodes[at] = self.start(who, logs, disk, found);
        self.met.one("restarted");
        for partition in PARTITIONS {
            let assignment = self.plan[&partition];
            let promised = self.nodes[at].links.partition(partition);
            let promised = promised.map(|it| it.facts().promised).unwrap_or_default();
            let is_own = promised.node() == self.nodes[at].number;
            if assignment.handed_over_by == Some(at) {
                if is_own {
                    assert!(self.begin_in(at, partition, promised.generation(), false));
                }
                self.hand_over(partition);
                continue;
            }
            let is_announced = assignment.handed_over_by.is_none()
                || is_own && promised.generation() == assignment.generation;
            if assignment.primary == at && is_announced && self.begin(at, partition, false) {
                self.met.one("restarted as primary");
            }
        }
    }

    /// Who writes a partition hands it over to whom the plan names.
    fn hand_over(&mut self, partition: PartitionId) {
        let Assignment {
            generation,
            primary,
            handed_over_by,
        } = self.plan[&partition];
        let number = self.nodes[primary].number;
        let links = &mut self.nodes[handed_over_by.expect("it is planned")].links;
        links.hand_over(partition, number, Epoch::new(generation, 0, number));
    }

    /// Counts what the links of a life have done.
    fn count(&mut self, at: usize) {
        let counters = self.nodes[at].links.counters();
        self.met.more("applied", counters.applied);
        self.met.more("rewritten", counters.rewritten);
        self.met.more("swept", counters.swept);
    }

    // ---- a node ----

    fn turn(&mut self, at: usize) {
        self.steps += 1;
        let node = &mut self.nodes[at];
        if node.clock.last().is_none_or(|&(us, _)| us < node.now_us) {
            node.clock.push((node.now_us, self.steps));
        }
        for partition in PARTITIONS {
            node.links.want(node.now_us, partition, STALENESS_US_MAX);
        }
        let salt = node.salt;
        let hash_of = |key: &[u8]| hash(salt, key);
        let unix_ms = TIME_MS + node.now_us / 1_000;
        node.store.data_mut().observe(node.now_us, unix_ms);
        if self.full.contains(&at) {
            node.store.log_mut().spare_refused();
        }
        while node.store.log().spares_wanted() > 0 && !self.full.contains(&at) {
            let file = node.disk.create(SEGMENT_BYTES);
            self.next_salt += 1;
            let log = node.store.log_mut();
            log.add_spare(file, self.next_salt, SEGMENT_BYTES as u64);
        }
        let time = node.time();
        let io = &mut node.requests;
        node.links.take_in(time, &mut node.store, &hash_of, io);
        node.settle();
        let io = &mut node.requests;
        node.store.clean(node.now_us, &hash_of, io);
        if node.store.has_taken_over() {
            for file in node.store.forget_inherited() {
                node.disk.files.remove(&file);
            }
            node.logs.inherited = None;
        }
        node.store.log_mut().pump(node.now_us, io);
        let time = LinkTime {
            now_us: node.now_us,
            time_ms: node.store.data().time_ms(),
        };
        node.links.give_out(time, &mut node.store, &hash_of, io);
        let reads = |it: &&Io<HeapBlock>| match it {
            Io::Read { token, .. } => token.asker == Asker::Link,
            _ => false,
        };
        let count = node.requests.iter().filter(reads).count() as u64;
        self.met.more("read from the log", count);
        while let Some(file) = node.store.take_removable() {
            self.met.one("released");
            node.removable.push(file);
        }
        let is_read = |file: FileId, node: &Node| {
            let mut requests = node.disk.under_way().iter().chain(&node.requests);
            let reads = |request: &Io<HeapBlock>| match *request {
                // Reads for links are told by the links.
                Io::Read {
                    file: read, token, ..
                } => read == file && token.asker != Asker::Link,
                _ => false,
            };
            requests.any(reads) || node.links.is_reading(file)
        };
        for file in std::mem::take(&mut node.removable) {
            match is_read(file, node) {
                true => node.removable.push(file),
                false => {
                    node.disk.files.remove(&file);
                }
            }
        }
        node.disk.submit(&mut node.requests);
        self.act(at);
        for (other, link) in std::mem::take(&mut self.dying) {
            match other == at {
                true => self.nodes[at].links.closed(link),
                false => self.dying.push((other, link)),
            }
        }
        self.check_applied(at);
        self.check_age(at);
        self.check_served(at);
        self.send(at);
        self.release(at);
    }

    fn act(&mut self, at: usize) {
        while let Some(action) = self.nodes[at].links.take_action() {
            match action {
                LinkAction::Deposed { partition, .. } => {
                    let met = &mut self.met;
                    self.nodes[at]
                        .gates
                        .depose(partition, |_| met.one("unknown"));
                    self.met.one("deposed by a link");
                }
                LinkAction::Keep { partition, record } => {
                    for record in records(&record) {
                        let record = record.expect("whole");
                        self.nodes[at].kept.insert((partition, record.position));
                    }
                }
                LinkAction::Sync { partition, link } => {
                    let node = &mut self.nodes[at];
                    let kept = std::mem::take(&mut node.kept);
                    self.met.more("tail saved", kept.len() as u64);
                    node.lostfound.extend(kept);
                    node.links.diverged_kept(partition, link);
                }
                LinkAction::End {
                    link,
                    refusal,
                    output,
                } => {
                    let pair = self.pair_of(link);
                    let is_spoilt = pair.is_some_and(|pair| {
                        let link = &self.links[&pair];
                        link.there.is_spoilt || link.back.is_spoilt
                    });
                    // The other end has left it, and what it had sent comes to an end somewhere.
                    if self.dying.iter().any(|&(_, of)| of == link) {
                        continue;
                    }
                    let is_gap = self.backlog_bytes < u64::MAX || self.has_changed_shards;
                    let is_unread = refusal.text.contains("cannot be read") && !self.is_settling;
                    assert!(
                        is_spoilt || is_gap || is_unread,
                        "{pair:?} is refused: {refusal:?}"
                    );
                    let is_tail = refusal.text.contains("all of it is wanted");
                    self.met.one(match (is_spoilt, is_unread, is_tail) {
                        (_, _, true) => "tail released",
                        (true, ..) => "refused on purpose",
                        (_, true, _) => "refused for failed reads",
                        _ => "released under delta",
                    });
                    if let Some(pair) = pair {
                        self.leave(at, pair, &output);
                    }
                }
                // The other end has left it before.
                LinkAction::Ended { .. } => self.met.one("told refused"),
                LinkAction::Begin { partition, epoch } => {
                    assert_eq!(epoch.node(), self.nodes[at].number);
                    assert!(self.begin_in(at, partition, epoch.generation(), false));
                    self.met.one("handed over");
                }
                LinkAction::Lacks { .. } => unreachable!("no disk is lost here"),
                // Nobody is told here.
                LinkAction::Room { .. } => {}
                LinkAction::Unread { .. } => self.met.one("told damaged"),
            }
        }
    }

    /// One end has refused the link. The other end reads the refusal, and then that the link is
    /// gone.
    fn leave(&mut self, at: usize, pair: (usize, usize), output: &[u8]) {
        let link = self.links.remove(&pair).expect("just seen");
        let (other, wire) = match at == pair.0 {
            true => (pair.1, link.there),
            false => (pair.0, link.back),
        };
        let mut bytes: Vec<u8> = wire.bytes.into();
        bytes.extend_from_slice(output);
        self.nodes[other].links.came(link.id, &bytes);
        self.dying.push((other, link.id));
    }

    fn pair_of(&self, link: LinkId) -> Option<(usize, usize)> {
        let mut links = self.links.iter();
        links.find(|(_, it)| it.id == link).map(|(&pair, _)| pair)
    }

    /// One request of the disk ends.
    fn complete_one(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        if node.disk.under_way().is_empty() {
            return;
        }
        let index = self.random.below(node.disk.under_way().len());
        let is_ours = matches!(&node.disk.under_way()[index],
            Io::Read { token, .. } if token.asker == Asker::Link);
        let fails = is_ours && !self.is_settling && self.random.once_in(20);
        let completion = match fails {
            true => {
                self.met.one("failed reads");
                node.disk.fail(index, IoFailure::Device(EIO))
            }
            false => node.disk.complete(index),
        };
        match completion.token.asker {
            Asker::LogWrite | Asker::LogSync => {
                let log = node.store.log_mut();
                log.completed(node.now_us, completion).expect("sound");
            }
            Asker::Cleaning => node.store.cleaning_mut().read(completion),
            Asker::Link => node.links.read(completion),
            _ => panic!("a read of nobody"),
        }
        self.release(at);
    }

    fn complete_all(&mut self, at: usize) {
        while !self.nodes[at].disk.under_way().is_empty() {
            self.complete_one(at);
        }
    }

    /// Answers who need not wait any longer.
    fn release(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        let durable = node.store.log().durable();
        while let Some(&(lsn, operation)) = node.disk_waits.front()
            && lsn <= durable
        {
            self.acked_disk.push(operation);
            self.met.one("acked at disk");
            node.disk_waits.pop_front();
        }
        let (acked, met) = (&mut self.acked_replica, &mut self.met);
        let set = |partition| SyncSet {
            received: node.links.received(partition),
            is_alone: false,
            min_sync: 0,
        };
        node.gates
            .release(0, durable, set, |operation, outcome| match outcome {
                Outcome::Reached => {
                    acked.push(operation);
                    met.one("acked at replica");
                }
                Outcome::ReachedAlone | Outcome::Unknown { .. } => met.one("unknown"),
            });
    }

    // ---- the end ----

    /// So often all nodes turn, and what they say arrives.
    fn exchange(&mut self, rounds: usize) {
        for _ in 0..rounds {
            self.connect();
            for at in 0..self.nodes.len() {
                self.nodes[at].now_us += 1_000;
                self.turn(at);
                self.complete_all(at);
            }
            for _ in 0..20 * self.nodes.len() {
                self.deliver();
            }
        }
    }

    /// All faults stop, and everything comes to rest; perhaps under a node that is let write in the
    /// middle of a scan or a rewind.
    fn settle(&mut self, takes_half: bool) {
        self.is_settling = true;
        self.cut.clear();
        let pairs: Vec<_> = self.links.keys().copied().collect();
        pairs.into_iter().for_each(|pair| self.close(pair));
        for partition in PARTITIONS {
            let is_primary = |at: usize| {
                let state = self.state(at, partition);
                matches!(state.role(), Role::Primary { .. })
            };
            let is_served = is_primary(self.plan[&partition].primary);
            let holders = self.holders(partition);
            let is_half = |at: &&usize| {
                let state = self.state(**at, partition);
                // Without a past it would begin another one, which the others refuse.
                let has_past = state.history().last().is_some();
                state.received().sequence > 0 && has_past && !state.is_whole()
            };
            if let Some(&at) = holders.iter().find(is_half).filter(|_| takes_half) {
                self.acked_replica
                    .retain(|acked| acked.partition != partition);
                self.acked_disk.retain(|acked| acked.partition != partition);
                assert!(self.promote_to(partition, at, true));
                self.met.one("forced in a scan or a rewind");
                continue;
            }
            let mut others = holders.iter();
            if !is_served && !others.any(|&at| self.promote_to(partition, at, false)) {
                // People choose who has most, and accept what is lost.
                let far = |at: &usize| {
                    let state = self.state(*at, partition);
                    (state.is_whole(), state.received())
                };
                let at = holders.into_iter().max_by_key(far);
                let at = at.expect("there are nodes");
                self.acked_replica
                    .retain(|acked| acked.partition != partition);
                assert!(self.promote_to(partition, at, true));
                self.met.one("forced");
            }
        }
        for round in 0..400 {
            self.exchange(1);
            if round == 200 {
                for partition in PARTITIONS {
                    let primary = self.plan[&partition].primary;
                    let key = self.keys[&partition][1].clone();
                    let written = self.commit(primary, partition, &[(key, Some(vec![9; 8]))]);
                    let (lsn, operation) = written.expect("it is served");
                    self.nodes[primary].gates.wait(Waiting {
                        partition,
                        lsn,
                        needed: Needed::All,
                        deadline_us: NEVER_US,
                        whom: operation,
                    });
                }
            }
        }
    }
}
