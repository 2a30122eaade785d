//! A node of a few shards without threads: every event is given by hand, in an order that the
//! target decides.

use std::collections::{BTreeMap, VecDeque};

use penstock_net::hello::{AUTH_NONE, ServerHello};
use penstock_net::level::AckLevel;
use penstock_net::limits::Limits;
use penstock_shard::{Event, Mail, Now, Outbox, SessionId, Shard, ShardConfig, Topology};
use penstock_storage::io::{Asker, BLOCK_BYTES, IoFailure, SegmentSource};
use penstock_storage::log::{Log, LogConfig, SyncMethod};
use penstock_storage::place::LogStart;
use penstock_storage::record::PartView;
use penstock_storage::recovery::Replayed;
use penstock_storage::recovery::{recover, survey};
use penstock_storage::segment::Owner;
use penstock_storage::store::Store;
use penstock_storage::version::{PARTITIONS, Sequences};

use crate::disk::Disk;
use crate::heap::{Heap, HeapBlock};
use crate::target::Choices;

pub const VALUE_BYTES_MAX: u32 = 3 << 10;
pub const FRAME_BYTES_MAX: u32 = 16 << 10;
const OUTPUT_BYTES_MAX: usize = 8 << 10;
const SEGMENT_BYTES: usize = 80 << 10;
const HASH_SEED: u64 = 7;
const OWNER: Owner = Owner {
    cluster_id: [1; 16],
    node_id: [2; 16],
};
/// Turns in which everything that was begun must end.
const TURNS_MAX: usize = 2_000;
/// Turns without anything to do after which a node is at rest.
const QUIET_TURNS: usize = 4;

/// One connection from outside.
pub struct Connection {
    pub shard: usize,
    pub id: SessionId,
    /// Sent and not consumed.
    inbox: Vec<u8>,
    /// Received and not looked at.
    pub received: Vec<u8>,
    pub is_closed: bool,
}

struct Member {
    shard: Shard<Heap>,
    outbox: Outbox<HeapBlock>,
    device: Disk,
    mail: VecDeque<Mail>,
    /// The last sequence of each partition when it started.
    sequences: Box<Sequences>,
    /// Its log has met an error of the disk.
    is_poisoned: bool,
}

pub struct Node {
    members: Vec<Member>,
    pub connections: Vec<Connection>,
    pub now: Now,
    incarnation: u64,
    cache_bytes: usize,
    salt: u64,
}

/// The epoch of everything that a start writes.
pub fn epoch(incarnation: u64) -> u32 {
    u32::try_from(incarnation).expect("few starts") << 8 | 1
}

impl Node {
    pub fn new(shards: u16, cache_bytes: usize) -> Node {
        let mut node = Node {
            members: Vec::new(),
            connections: Vec::new(),
            now: Now { us: 1, unix_ms: 1 },
            incarnation: 1,
            cache_bytes,
            salt: 0,
        };
        let devices = (0..shards).map(|_| Disk::default()).collect();
        node.start(devices);
        node
    }

    pub fn shards(&self) -> usize {
        self.members.len()
    }

    pub fn epoch(&self) -> u32 {
        epoch(self.incarnation)
    }

    /// Opens every shard over what its device holds.
    fn start(&mut self, devices: Vec<Disk>) {
        let shards = u16::try_from(devices.len()).expect("few shards");
        let topology = Topology::new(shards);
        for (number, mut device) in (0..shards).zip(devices) {
            let log_id = u64::from(number) + 1;
            let config = LogConfig {
                owner: OWNER,
                incarnation: self.incarnation,
                log_id,
                frame_bytes: 2 * BLOCK_BYTES,
                record_bytes_max: 2 * BLOCK_BYTES - 64,
                frames_in_flight_max: 2,
                frames_sealed_max: 3,
                sync: [SyncMethod::DurableWrite, SyncMethod::WriteThenSync]
                    [usize::from(number % 2)],
                interval_us: 1_000,
                idle_mark_us: 5_000,
            };
            let home_of = Shard::<Heap>::home_of(HASH_SEED);
            let survey = survey(&mut device, OWNER).expect("a power cut is no damage");
            for file in &survey.torn_activations {
                device.files.remove(file);
            }
            let mut memory = Replayed::new(self.cache_bytes);
            let (mut start, mut sequences) = (LogStart::default(), [0; PARTITIONS]);
            if let Some(segments) = survey.logs.get(&log_id) {
                let mut cold = Disk::default();
                cold.files = device.files.clone();
                let found = recover(&mut device, segments, &mut |part, place| {
                    memory.replay(&home_of, part, place, |place, visit_part| {
                        let mut bytes = vec![0; place.bytes as usize];
                        cold.read_at(place.file, place.offset, &mut bytes)?;
                        visit_part(&PartView::read(&bytes).expect("what was replayed"));
                        Ok::<(), std::io::Error>(())
                    })
                })
                .expect("a power cut is no damage");
                if let Some(file) = found.release {
                    device.files.remove(&file);
                }
                for &(file, bytes) in &found.truncate {
                    let bytes = usize::try_from(bytes).expect("small files");
                    let file = device.files.get_mut(&file).expect("it was read");
                    file.truncate(bytes);
                }
                (start, sequences) = (found.start, *found.history.sequences);
            }
            let mut log = Log::new(config, start, Heap);
            for &(file, bytes) in &survey.spares {
                self.salt += 1;
                log.add_spare(file, self.salt, bytes);
            }
            let store = Store::new(log, Heap, self.epoch(), sequences, memory);
            self.members.push(Member {
                shard: Shard::new(shard_config(number, topology), store),
                outbox: Outbox::default(),
                device,
                mail: VecDeque::new(),
                sequences: Box::new(sequences),
                is_poisoned: false,
            });
        }
    }

    /// The last sequence of a partition that the last start found.
    pub fn sequence(&self, partition: usize) -> u64 {
        let of = |member: &Member| member.sequences[partition];
        self.members.iter().map(of).max().unwrap_or_default()
    }

    /// The power fails, and the node starts again.
    pub fn crash(&mut self, choices: &mut Choices<'_>) {
        let members = std::mem::take(&mut self.members);
        self.connections.clear();
        self.incarnation += 1;
        let devices = members.into_iter().map(|mut member| {
            member
                .device
                .crash(|| u64::from_le_bytes([choices.byte(); 8]));
            member.device
        });
        let devices = devices.collect();
        self.start(devices);
    }

    pub fn connect(&mut self, shard: usize) -> usize {
        let id = self.members[shard].shard.front_mut().open_session(self.now);
        self.connections.push(Connection {
            shard,
            id,
            inbox: Vec::new(),
            received: Vec::new(),
            is_closed: false,
        });
        self.connections.len() - 1
    }

    /// The client hangs up.
    pub fn close(&mut self, connection: usize) {
        let Connection { shard, id, .. } = self.connections[connection];
        if !std::mem::replace(&mut self.connections[connection].is_closed, true) {
            let member = &mut self.members[shard];
            let closed = Event::Closed { session: id };
            member.shard.step(self.now, closed, &mut member.outbox);
        }
    }

    /// Bytes arrive at a shard.
    pub fn send(&mut self, connection: usize, bytes: &[u8]) {
        self.connections[connection].inbox.extend_from_slice(bytes);
        self.hand_over(connection);
    }

    fn hand_over(&mut self, connection: usize) {
        let Connection {
            shard,
            id,
            inbox,
            is_closed,
            ..
        } = &mut self.connections[connection];
        let member = &mut self.members[*shard];
        if *is_closed || member.shard.front().is_paused(*id) {
            return;
        }
        let received = Event::Received {
            session: *id,
            bytes: inbox,
        };
        let mut consumed = 0;
        let used = allocation_counter::measure(|| {
            consumed = member.shard.step(self.now, received, &mut member.outbox);
        });
        // Replies while the buffer grows, one frame more than may wait, and what a store keeps: a
        // first page of cells of each length among it.
        let bound = 64 * inbox.len() + 4 * OUTPUT_BYTES_MAX + (2 << 20);
        assert!(
            used.bytes_max <= bound as u64,
            "{used:?} for {}",
            inbox.len()
        );
        assert!(consumed <= inbox.len());
        inbox.drain(..consumed);
    }

    /// The loop of one shard comes round; what it wants done is begun.
    pub fn turn(&mut self, shard: usize) {
        let member = &mut self.members[shard];
        let now = self.now;
        member.shard.step(now, Event::TurnEnds, &mut member.outbox);
        let outbox = std::mem::take(&mut member.outbox);
        assert_eq!(outbox.fatal.is_some(), member.is_poisoned);
        if outbox.fatal.is_some() {
            return;
        }
        member.device.submit(&mut { outbox.io });
        for _ in 0..outbox.spares {
            self.salt += 1;
            let spare = Event::Spare {
                file: member.device.create(SEGMENT_BYTES),
                salt: self.salt,
                bytes: SEGMENT_BYTES as u64,
                is_reused: false,
            };
            member.shard.step(now, spare, &mut member.outbox);
        }
        for (session, request_id) in outbox.info {
            let info = Event::Info {
                session,
                request_id,
                text: "{}",
            };
            member.shard.step(now, info, &mut member.outbox);
        }
        for session in outbox.sendable {
            let mut bytes = Vec::new();
            member.shard.take_output(now, session, &mut bytes);
            let sent = Event::Sent { session };
            member.shard.step(now, sent, &mut member.outbox);
            if let Some(connection) = self
                .connections
                .iter_mut()
                .find(|connection| (connection.shard, connection.id) == (shard, session))
            {
                connection.received.extend(bytes);
            }
        }
        for (to, mail) in outbox.mail {
            self.members[usize::from(to)].mail.push_back(mail);
        }
        let place = |node: &Node, id| {
            let is_it = |connection: &Connection| (connection.shard, connection.id) == (shard, id);
            node.connections.iter().position(is_it)
        };
        for session in outbox.resume {
            if let Some(connection) = place(self, session) {
                self.hand_over(connection);
            }
        }
        let mut close = outbox.close;
        for session in outbox.probes {
            let member = &mut self.members[shard];
            let event = Event::Unacknowledged { session, bytes: 0 };
            member.shard.step(now, event, &mut member.outbox);
            close.append(&mut member.outbox.close);
        }
        for (session, reason) in close {
            assert!(!reason.is_empty());
            if let Some(connection) = place(self, session) {
                self.close(connection);
            }
        }
    }

    /// The mail that has waited longest for a shard arrives.
    pub fn deliver(&mut self, shard: usize) {
        let member = &mut self.members[shard];
        if let Some(mail) = member.mail.pop_front() {
            let mail = Event::Mail(mail);
            member.shard.step(self.now, mail, &mut member.outbox);
        }
    }

    /// One request of a shard's disk ends.
    pub fn complete(&mut self, shard: usize, choices: &mut Choices<'_>) {
        let member = &mut self.members[shard];
        let under_way = member.device.under_way().len();
        if under_way > 0 {
            let completion = member.device.complete(choices.below(under_way));
            let completed = Event::Completed(completion);
            member.shard.step(self.now, completed, &mut member.outbox);
        }
    }

    /// One request of a shard's disk fails.
    pub fn fail(&mut self, shard: usize, choices: &mut Choices<'_>) {
        let member = &mut self.members[shard];
        let under_way = member.device.under_way().len();
        if under_way > 0 {
            let completion = member
                .device
                .fail(choices.below(under_way), IoFailure::Device(5));
            let asker = completion.token.asker;
            member.is_poisoned |= matches!(asker, Asker::LogWrite | Asker::LogSync);
            let completed = Event::Completed(completion);
            member.shard.step(self.now, completed, &mut member.outbox);
        }
    }

    /// Whether some shard acknowledges nothing any more.
    pub fn is_poisoned(&self) -> bool {
        self.members.iter().any(|member| member.is_poisoned)
    }

    /// Until nothing is begun and not ended.
    pub fn settle(&mut self) {
        let mut quiet_turns = 0;
        for _ in 0..TURNS_MAX {
            (0..self.members.len()).for_each(|shard| self.turn(shard));
            let is_quiet = self.members.iter().all(|member| {
                member.mail.is_empty()
                    && member.device.under_way().is_empty()
                    && member.outbox.sendable.is_empty()
            });
            for shard in 0..self.members.len() {
                while !self.members[shard].mail.is_empty() {
                    self.deliver(shard);
                }
                while !self.members[shard].device.under_way().is_empty() {
                    self.complete(shard, &mut Choices::new(&[]));
                }
            }
            let waits = |connection: &Connection| {
                let shard = &self.members[connection.shard].shard;
                !connection.is_closed && shard.front().is_paused(connection.id)
            };
            // What a turn makes possible, the next one does.
            let is_quiet = is_quiet && !self.connections.iter().any(waits);
            quiet_turns = if is_quiet { quiet_turns + 1 } else { 0 };
            if quiet_turns == QUIET_TURNS {
                return;
            }
            self.now.us += 500;
        }
        panic!("the node never comes to rest");
    }

    /// Whether the server has closed its side for good, or would as soon as all has left.
    pub fn is_finished(&self, connection: usize) -> bool {
        let Connection { shard, id, .. } = self.connections[connection];
        self.members[shard].shard.front().is_finished(id)
    }

    /// What every shard counted.
    pub fn sessions(&self) -> u64 {
        let counters = |member: &Member| member.shard.counters().sessions;
        self.members.iter().map(counters).sum()
    }
}

fn shard_config(shard: u16, topology: Topology) -> ShardConfig {
    let hello = ServerHello {
        protocol: 1,
        shard,
        shard_count: topology.shards(),
        auth_methods: AUTH_NONE,
        cluster_id: OWNER.cluster_id,
        node_id: OWNER.node_id,
        incarnation: 1,
        features: 0,
        nonce: [0; 32],
        limits: Limits {
            frame_bytes_max: FRAME_BYTES_MAX,
            value_bytes_max: VALUE_BYTES_MAX,
        },
        time_ms: 0,
        interval_ms: 1,
        slots: topology.ranges(|shard| 7420 + shard),
        placement: None,
    };
    ShardConfig {
        shard,
        topology,
        hello,
        level_min: AckLevel::None,
        output_bytes_max: OUTPUT_BYTES_MAX,
        shared_bytes_min: 1,
        partial_frame_us_max: 1_000_000,
        write_stall_us_max: 1_000_000,
        idle_us_max: 10_000_000,
        replies_bytes_max: 1 << 20,
        input_bytes_max: 64 << 20,
        parked_bytes_max: 64 << 20,
        mailed_items_max: 4096,
        memory_max: 0,
        token_horizon_ms: 3_600_000,
        hash_seed: HASH_SEED,
        cleaning: penstock_storage::cleaning::CleaningConfig::default(),
        snapshots: penstock_shard::SnapshotPolicy::default(),
        takes_several_shards: false,
        cluster: None,
    }
}

/// What each shard's sessions are told by the bytes of one connection, frame by frame.
pub fn frames(bytes: &[u8]) -> Vec<(penstock_net::frame::Header, &[u8])> {
    use penstock_net::receive::{Received, Receiver};
    use penstock_net::stranger::Stranger;
    let mut receiver = Receiver::new(u32::MAX);
    let mut frames = Vec::new();
    let mut at = 0;
    loop {
        // A peer that speaks another protocol gets a text, and nothing behind it.
        let is_last_word = |stranger: Stranger| stranger.answer().as_bytes() == &bytes[at..];
        if is_last_word(Stranger::Redis) || is_last_word(Stranger::Http) {
            return frames;
        }
        match receiver.next(&bytes[at..]) {
            Received::Frame {
                header,
                body,
                consumed,
            } => {
                frames.push((header, body));
                at += consumed;
            }
            Received::Incomplete { .. } if at == bytes.len() => return frames,
            other => panic!("the server sent {other:?}"),
        }
    }
}

/// By key: so many answers.
pub type Tally<K> = BTreeMap<K, usize>;
