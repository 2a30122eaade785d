//! What an operation costs a shard without sockets and without a disk: batches of one kind go in, the files
//! are memory. Its time is for orientation; its instructions are exact, whatever else the machine does:
//!
//! ```text
//! cargo build --profile profiling -p penstock-shard --example operation_cost
//! valgrind --tool=callgrind --toggle-collect='*measured*' target/profiling/examples/operation_cost decr
//! ```
//!
//! Arguments: `get`, `set` or `decr`; batches of 64 (10,000); keys (100,000).

#[path = "../../storage/tests/it/heap.rs"]
mod heap;

use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use penstock_net::hello::{AUTH_NONE, ClientHello, ServerHello};
use penstock_net::instruction::{FieldType, Instruction, Operation};
use penstock_net::level::AckLevel;
use penstock_net::limits::Limits;
use penstock_net::request::{BatchRequest, Condition};
use penstock_shard::{Event, Now, Outbox, SessionId, Shard, ShardConfig, SnapshotPolicy, Topology};
use penstock_storage::cleaning::CleaningConfig;
use penstock_storage::io::{Block, Completion, Io};
use penstock_storage::log::{Log, LogConfig, SyncMethod};
use penstock_storage::place::FileId;
use penstock_storage::place::LogStart;
use penstock_storage::recovery::Replayed;
use penstock_storage::segment::Owner;
use penstock_storage::store::Store;
use penstock_storage::version::PARTITIONS;

use heap::{Heap, HeapBlock};

const OWNER: Owner = Owner {
    cluster_id: [1; 16],
    node_id: [2; 16],
};
const SEGMENT_BYTES: usize = 4 << 20;
const DEPTH: usize = 64;
/// Batches between two turns of the loop.
const CONNECTIONS: usize = 50;
/// How long a batch seems to take, in microseconds.
const BATCH_US: u64 = 16;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let kind = arguments.next().unwrap_or_else(|| "decr".into());
    let mut number = |otherwise: usize| {
        arguments.next().map_or(otherwise, |text| {
            text.parse()
                .unwrap_or_else(|_| panic!("{text} is no number"))
        })
    };
    let (batches, keys) = (number(10_000), number(100_000));
    assert!(
        matches!(kind.as_str(), "get" | "set" | "decr"),
        "{kind} is not get, set or decr"
    );
    let mut server = Server::new();
    // What is read and counted down is there.
    for first in (0..keys).step_by(DEPTH) {
        let names = (first..keys.min(first + DEPTH)).map(name);
        let frame = batch(names, |batch, out, key| {
            batch.set(out, key, &[9; 16], Condition::Always);
        });
        server.hand_over(&frame);
        server.turn_ends();
    }
    let mut random = 1_u64;
    let mut draw = || {
        random = random.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
        let drawn = ((random >> 33) * keys as u64) >> 31;
        name(usize::try_from(drawn).expect("below the keys"))
    };
    let frames: Vec<Vec<u8>> = (0..500)
        .map(|_| {
            let names = (0..DEPTH).map(|_| match kind.as_str() {
                "decr" => name(0),
                _ => draw(),
            });
            batch(names, |batch, out, key| match kind.as_str() {
                "get" => batch.get(out, key),
                "set" => batch.set(out, key, &[7; 16], Condition::Always),
                _ => batch.update_if(out, key, None, &DECR, None),
            })
        })
        .collect();
    let began = Instant::now();
    measured(&mut server, &frames, batches);
    let operations = (batches * DEPTH) as u128;
    println!(
        "{kind}: {operations} operations, {} ns each; {} bytes sent, {} segments released",
        began.elapsed().as_nanos() / operations,
        server.sent_bytes,
        server.released
    );
}

#[inline(never)]
fn measured(server: &mut Server, frames: &[Vec<u8>], batches: usize) {
    for number in 0..batches {
        server.hand_over(&frames[number % frames.len()]);
        if number % CONNECTIONS == CONNECTIONS - 1 {
            server.turn_ends();
        }
    }
}

/// One is taken if one is left.
const DECR: [Instruction; 2] = [step(Operation::Ge), step(Operation::Sub)];

const fn step(operation: Operation) -> Instruction {
    Instruction {
        operation,
        field_type: FieldType::U64,
        key: 0,
        reason: 1,
        offset: 0,
        immediate: 1,
    }
}

fn name(number: usize) -> String {
    format!("key:{number:012}")
}

fn batch(
    names: impl Iterator<Item = String>,
    add: impl Fn(&mut BatchRequest, &mut Vec<u8>, &[u8]),
) -> Vec<u8> {
    let mut frame = Vec::new();
    let mut batch = BatchRequest::begin(&mut frame, 1, AckLevel::None, 0, DEPTH);
    for name in names {
        add(&mut batch, &mut frame, name.as_bytes());
    }
    batch.finish(&mut frame);
    frame
}

struct Server {
    shard: Shard<Heap>,
    outbox: Outbox<HeapBlock>,
    session: SessionId,
    now: Now,
    files: BTreeMap<FileId, Vec<u8>>,
    done: VecDeque<Completion<HeapBlock>>,
    files_made: u32,
    output: Vec<u8>,
    sent_bytes: usize,
    released: usize,
}

impl Server {
    fn new() -> Self {
        let config = LogConfig {
            owner: OWNER,
            incarnation: 1,
            log_id: 1,
            frame_bytes: 256 << 10,
            record_bytes_max: 128 << 10,
            frames_in_flight_max: 4,
            frames_sealed_max: 16,
            sync: SyncMethod::DurableWrite,
            interval_us: 100_000,
            idle_mark_us: 1_000_000,
        };
        let log = Log::with_history(config, LogStart::default(), Default::default(), Heap);
        let store = Store::new(
            log,
            Heap,
            1 << 8 | 1,
            [0; PARTITIONS],
            Replayed::new(1 << 30),
        );
        let now = Now { us: 1, unix_ms: 1 };
        let mut shard = Shard::new(shard_config(), store);
        let session = shard.open_session(now);
        let mut server = Server {
            shard,
            outbox: Outbox::default(),
            session,
            now,
            files: BTreeMap::new(),
            done: VecDeque::new(),
            files_made: 0,
            output: Vec::new(),
            sent_bytes: 0,
            released: 0,
        };
        server.turn_ends();
        let mut hello = Vec::new();
        let client = ClientHello {
            protocol_min: 1,
            protocol_max: 1,
            features: 0,
            name: "operation_cost",
        };
        client.write(&mut hello, 0);
        server.hand_over(&hello);
        server.turn_ends();
        server
    }

    fn hand_over(&mut self, bytes: &[u8]) {
        let received = Event::Received {
            session: self.session,
            bytes,
        };
        self.now.us += BATCH_US;
        self.now.unix_ms = self.now.us / 1000;
        let mut consumed = self.shard.step(self.now, received, &mut self.outbox);
        // The log may have had no room: what it asked for is done, and the rest comes again.
        for _ in 0..1000 {
            if consumed == bytes.len() {
                return;
            }
            self.turn_ends();
            let received = Event::Received {
                session: self.session,
                bytes: &bytes[consumed..],
            };
            consumed += self.shard.step(self.now, received, &mut self.outbox);
        }
        panic!("{consumed} of {} bytes are consumed", bytes.len());
    }

    /// The end of a turn, and of all that it asked for.
    fn turn_ends(&mut self) {
        self.now.us += BATCH_US;
        self.shard.step(self.now, Event::TurnEnds, &mut self.outbox);
        assert!(self.outbox.fatal.is_none() && self.outbox.close.is_empty());
        for io in std::mem::take(&mut self.outbox.io) {
            let completion = self.disk(io);
            self.done.push_back(completion);
        }
        for _ in 0..std::mem::take(&mut self.outbox.spares) {
            self.files_made += 1;
            let file = FileId(self.files_made);
            self.files.insert(file, vec![0; SEGMENT_BYTES]);
            let spare = Event::Spare {
                file,
                salt: u64::from(self.files_made),
                bytes: SEGMENT_BYTES as u64,
                is_reused: false,
            };
            self.shard.step(self.now, spare, &mut self.outbox);
        }
        for file in self.outbox.removals.drain(..) {
            self.released += 1;
            self.files.remove(&file).expect("it is there");
        }
        for session in std::mem::take(&mut self.outbox.sendable) {
            self.output.clear();
            self.shard.take_output(self.now, session, &mut self.output);
            self.sent_bytes += self.output.len();
            self.shard.sent(session);
        }
        self.outbox.resume.clear();
        while let Some(completion) = self.done.pop_front() {
            let completed = Event::Completed(completion);
            self.shard.step(self.now, completed, &mut self.outbox);
        }
    }

    fn disk(&mut self, io: Io<HeapBlock>) -> Completion<HeapBlock> {
        let place = |offset: u64, len: u32| {
            let start = usize::try_from(offset).expect("small files");
            start..start + len as usize
        };
        let (token, block) = match io {
            Io::Write {
                token,
                file,
                offset,
                block,
                len,
                ..
            } => {
                let file = self.files.get_mut(&file).expect("it is there");
                file[place(offset, len)].copy_from_slice(&block.bytes()[..len as usize]);
                (token, Some(block))
            }
            Io::Sync { token, .. } => (token, None),
            Io::Read {
                token,
                file,
                offset,
                mut block,
                len,
            } => {
                let file = &self.files[&file];
                block.bytes_mut()[..len as usize].copy_from_slice(&file[place(offset, len)]);
                (token, Some(block))
            }
        };
        Completion {
            token,
            block,
            result: Ok(()),
        }
    }
}

fn shard_config() -> ShardConfig {
    let topology = Topology::new(1);
    let hello = ServerHello {
        protocol: 1,
        shard: 0,
        shard_count: 1,
        auth_methods: AUTH_NONE,
        cluster_id: OWNER.cluster_id,
        node_id: OWNER.node_id,
        incarnation: 1,
        features: 0,
        nonce: [0; 32],
        limits: Limits {
            frame_bytes_max: 1 << 20,
            value_bytes_max: 64 << 10,
        },
        interval_ms: 100,
        slots: topology.ranges(|shard| 7420 + shard),
        placement: None,
    };
    ShardConfig {
        shard: 0,
        topology,
        hello,
        level_min: AckLevel::None,
        output_bytes_max: 64 << 20,
        shared_bytes_min: 8 << 10,
        partial_frame_us_max: 1_000_000,
        write_stall_us_max: 1_000_000,
        idle_us_max: 100_000_000_000,
        replies_bytes_max: 64 << 20,
        input_bytes_max: 64 << 20,
        parked_bytes_max: 64 << 20,
        mailed_items_max: 4096,
        memory_max: 0,
        hash_seed: 7,
        cleaning: CleaningConfig::default(),
        snapshots: SnapshotPolicy::default(),
        cluster: None,
    }
}
