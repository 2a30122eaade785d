//! What an operation costs a shard without sockets and without a disk: batches of one kind go in,
//! the files are memory. Its time is for orientation; its instructions are exact, whatever else the
//! machine does: `benches/instructions.sh` counts them by stage.
//!
//! Arguments: the kind, batches (10,000), keys (100,000), items of a batch (64), bytes of a value
//! (64).
//!
//! A kind with `+` and a number has a user with rights for so many prefixes. A kind with `@` and a
//! word (before that) has something beside the keys:
//!
//! | word | what is there |
//! |---|---|
//! | `alone` | nothing, and no fast path of the shard is taken |
//! | `keyspace` | a keyspace that keeps versions, of a prefix that no key begins with |
//! | `ruled` | a keyspace of all keys that says nothing |
//! | `cluster` | the shard is of a cluster of two nodes, and the other one is down |
//! | `member` | the same, and the other one takes all in: what it does is not counted |
//! | `left` | the same, and the other one has just gone down |
//!
//! | kind | items of a batch |
//! |---|---|
//! | `ping` | answered without the store |
//! | `get`, `set` | of keys by chance |
//! | `updates` | UPDATE_IF, one unit of keys by chance |
//! | `decr` | UPDATE_IF, one unit of one key, all the same |
//! | `operands` | the same with an amount that differs |
//! | `tokens` | the same with a token that differs in each |
//! | `decimals` | APPLY: one unit of a decimal, all the same, as DECR makes them |
//! | `sold_out` | as `decr`, of a key that has nothing left |
//! | `buy` | APPLY: one unit of one key, and a hold with an expiry under another key |
//! | `buy_token` | the same with a token |
//! | `buy_sold_out` | as `buy`, of a key that has nothing left |
//! | `buy_token_sold_out` | the same with a token |

#[path = "../../runtime/src/system/checksum.rs"]
mod checksum;
#[path = "operation_cost/cluster.rs"]
mod cluster;

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use penstock_net::apply::Apply;
use penstock_net::hello::{AUTH_NONE, ClientHello, ServerHello};
use penstock_net::instruction::{FieldType, Instruction, Operation};
use penstock_net::keyspace::{Action, Settings};
use penstock_net::level::AckLevel;
use penstock_net::limits::Limits;
use penstock_net::request::{BatchRequest, Condition, Token};
use penstock_net::rights::{Grants, Right, Rights};
use penstock_shard::replication::LinkId;
use penstock_shard::{Event, Now, Outbox, SessionId, Shard, ShardConfig, SnapshotPolicy, Topology};
use penstock_storage::checksum::use_for_short;
use penstock_storage::cleaning::CleaningConfig;
use penstock_storage::io::{BLOCK_BYTES, Block, Blocks, Completion, Io};
use penstock_storage::log::{Log, LogConfig, SyncMethod};
use penstock_storage::place::FileId;
use penstock_storage::place::LogStart;
use penstock_storage::recovery::Replayed;
use penstock_storage::segment::Owner;
use penstock_storage::store::Store;
use penstock_storage::version::PARTITIONS;

const OWNER: Owner = Owner {
    cluster_id: [1; 16],
    node_id: [2; 16],
};
const SEGMENT_BYTES: usize = 64 << 20;
/// Batches between two turns of the loop.
const CONNECTIONS: usize = 50;
/// Frames that the log writes at a time, and turns that what is behind them waits at most.
const FRAMES_IN_FLIGHT: usize = 2;
const FRAMES_BEHIND_MAX: usize = 16;
/// How long a batch seems to take, in microseconds.
const BATCH_US: u64 = 16;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let kind = arguments.next().unwrap_or_else(|| "decr".into());
    let (kind, prefixes) = match kind.split_once('+') {
        Some((kind, prefixes)) => (kind, Some(prefixes.parse().expect("a number of prefixes"))),
        None => (&kind[..], None),
    };
    let (kind, beside) = match kind.split_once('@') {
        Some((kind, beside)) => (kind, Beside::of(beside).expect("one of the words")),
        None => (kind, Beside::Nothing),
    };
    let kind = Kind::of(kind).unwrap_or_else(|| panic!("{kind} is no kind of operation"));
    let mut number = |otherwise: usize| {
        arguments.next().map_or(otherwise, |text| {
            text.parse()
                .unwrap_or_else(|_| panic!("{text} is no number"))
        })
    };
    let (batches, keys) = (number(10_000), number(100_000));
    let (depth, value_bytes) = (number(64), number(64).max(16));
    if let Some(crc32) = checksum::of_short() {
        use_for_short(crc32);
    }
    let mut server = Server::beside(beside);
    // What is read is there.
    let value = vec![9; value_bytes];
    for first in (0..keys).step_by(depth) {
        let mut frame = Batch::begin(depth);
        for key in first..keys.min(first + depth) {
            frame.set(&name(key), &value);
        }
        server.hand_over(&frame.finish());
        server.turn_ends();
    }
    let stock = match kind {
        Kind::SoldOut | Kind::BuySoldOut | Kind::BuyTokenSoldOut => [0; 16],
        _ => [9; 16],
    };
    let mut frame = Batch::begin(3);
    frame.set(DECIMAL_STOCK, b"9999999999");
    frame.set(STOCK, &stock);
    frame.set(DROP_STOCK, &stock);
    server.hand_over(&frame.finish());
    server.turn_ends();
    if let Some(prefixes) = prefixes {
        let session = server.session;
        server
            .shard
            .front_mut()
            .set_rights(session, Some(rights_of(prefixes)));
    }
    let mut draw = Draw(1);
    // A token that comes again is answered from memory.
    let distinct = match kind {
        Kind::BuyToken | Kind::BuyTokenSoldOut => batches,
        _ => 500,
    };
    let frames: Vec<Vec<u8>> = (0..distinct)
        .map(|_| {
            let mut frame = Batch::begin(depth);
            for number in 0..depth {
                let key = name(draw.below(keys));
                if matches!(kind, Kind::BuyToken | Kind::BuyTokenSoldOut) {
                    frame.batch.token(draw.token());
                }
                frame.add(kind, number as u64, &key, &value);
            }
            frame.finish()
        })
        .collect();
    if beside == Beside::Left {
        cluster::part(&mut server);
        server.member = None;
    }
    server.is_counted = true;
    let began = Instant::now();
    for number in 0..batches {
        server.hand_over(&frames[number % frames.len()]);
        if number % CONNECTIONS == CONNECTIONS - 1 {
            // What is behind the frames that the log writes at a time waits for the next turn, and
            // so do the answers that the last of them let go.
            for _ in 0..FRAMES_BEHIND_MAX {
                if server.turn_ends() == 0 {
                    break;
                }
            }
        }
    }
    let counters = server.shard.counters();
    let shed = counters.shed_for_core + counters.shed_for_disk;
    assert_eq!(shed, 0, "operations were not executed");
    let operations = (batches * depth) as u128;
    println!(
        "{kind:?}: {operations} operations, {} ns each; {} bytes sent, {} segments released",
        began.elapsed().as_nanos() / operations,
        server.sent_bytes,
        server.released
    );
}

/// Rights to read and write the keys of all kinds, among those for so many prefixes.
fn rights_of(prefixes: usize) -> Arc<Rights> {
    let mut grants = Grants::new();
    for prefix in [&b"bench:"[..], b"key:", b"{drop}"] {
        for right in [Right::Read, Right::Write] {
            grants.grant(right, prefix).expect("within the limits");
        }
    }
    for number in grants.len()..prefixes {
        let prefix = format!("tenant:{number:05}:");
        grants
            .grant(Right::Write, prefix.as_bytes())
            .expect("within the limits");
    }
    Arc::new(Rights::new("till", &grants))
}

/// What there is beside the keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Beside {
    Nothing,
    Alone,
    Keyspace,
    Ruled,
    Cluster,
    Member,
    Left,
}

impl Beside {
    fn of(name: &str) -> Option<Beside> {
        Some(match name {
            "alone" => Beside::Alone,
            "keyspace" => Beside::Keyspace,
            "ruled" => Beside::Ruled,
            "cluster" => Beside::Cluster,
            "member" => Beside::Member,
            "left" => Beside::Left,
            _ => return None,
        })
    }
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Ping,
    Get,
    Set,
    Updates,
    Decr,
    Operands,
    Tokens,
    Decimals,
    SoldOut,
    Buy,
    BuyToken,
    BuySoldOut,
    BuyTokenSoldOut,
}

impl Kind {
    fn of(name: &str) -> Option<Kind> {
        Some(match name {
            "ping" => Kind::Ping,
            "get" => Kind::Get,
            "set" => Kind::Set,
            "updates" => Kind::Updates,
            "decr" => Kind::Decr,
            "operands" => Kind::Operands,
            "tokens" => Kind::Tokens,
            "decimals" => Kind::Decimals,
            "sold_out" => Kind::SoldOut,
            "buy" => Kind::Buy,
            "buy_token" => Kind::BuyToken,
            "buy_sold_out" => Kind::BuySoldOut,
            "buy_token_sold_out" => Kind::BuyTokenSoldOut,
            _ => return None,
        })
    }
}

/// Draws numbers, the same ones in every run.
struct Draw(u64);

impl Draw {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
        let drawn = ((self.0 >> 33) * end as u64) >> 31;
        usize::try_from(drawn).expect("below the end")
    }

    /// A token of the first millisecond.
    fn token(&mut self) -> Token {
        let mut random = [0; 10];
        for byte in &mut random {
            *byte = u8::try_from(self.below(256)).expect("a byte");
        }
        Token::new(1, random)
    }
}

fn step(operation: Operation, offset: u32, immediate: u64) -> Instruction {
    Instruction {
        operation,
        field_type: FieldType::U64,
        key: 0,
        reason: 1,
        offset,
        immediate,
    }
}

/// The one key that is counted down.
const STOCK: &[u8] = b"bench:stock";
/// The same as text.
const DECIMAL_STOCK: &[u8] = b"bench:decimals";
/// The one key that purchases count down, in the slot of their holds.
const DROP_STOCK: &[u8] = b"{drop}stock";

fn name(number: usize) -> Vec<u8> {
    format!("key:{number:012}").into_bytes()
}

/// A frame that is being written.
struct Batch {
    frame: Vec<u8>,
    batch: BatchRequest,
}

impl Batch {
    fn begin(items: usize) -> Batch {
        let mut frame = Vec::new();
        let batch = BatchRequest::begin(&mut frame, 1, AckLevel::Disk, 0, items);
        Batch { frame, batch }
    }

    fn set(&mut self, key: &[u8], value: &[u8]) {
        self.batch
            .set(&mut self.frame, key, value, Condition::Always);
    }

    fn add(&mut self, kind: Kind, number: u64, key: &[u8], value: &[u8]) {
        let ge = |amount| step(Operation::Ge, 0, amount);
        let sub = |amount| step(Operation::Sub, 0, amount);
        match kind {
            Kind::Ping => self.batch.ping(&mut self.frame, value),
            Kind::Get => self.batch.get(&mut self.frame, key),
            Kind::Set => self.set(key, value),
            Kind::Updates => self.update(key, &[ge(1), sub(1)]),
            Kind::Decr | Kind::SoldOut => self.update(STOCK, &[ge(1), sub(1)]),
            Kind::Operands => {
                let amount = 1 + number % 4;
                self.update(STOCK, &[ge(amount), sub(amount)]);
            }
            Kind::Tokens => {
                let token = step(Operation::Set, 8, number);
                self.update(STOCK, &[ge(1), sub(1), token]);
            }
            Kind::Decimals => self.decrease(),
            Kind::Buy | Kind::BuyToken | Kind::BuySoldOut | Kind::BuyTokenSoldOut => self.buy(key),
        }
    }

    /// What DECR makes.
    fn decrease(&mut self) {
        let mut decrease = Apply::new();
        let stock = decrease.key(DECIMAL_STOCK);
        decrease
            .start(stock, b"0")
            .then(stock.decimal().increase(-1i64));
        self.batch.apply(&mut self.frame, &decrease);
    }

    /// Takes one unit and puts a hold for fifteen minutes.
    fn buy(&mut self, key: &[u8]) {
        let mut buy = Apply::new();
        let stock = buy.key(DROP_STOCK);
        let hold = buy.key(&[b"{drop}", key].concat());
        buy.then(stock.u64(0).at_least(1u64))
            .then(stock.u64(0).decrease(1u64))
            .put(hold, &[1; 16])
            .then(hold.expire_in(900_000));
        self.batch.apply(&mut self.frame, &buy);
    }

    fn update(&mut self, key: &[u8], steps: &[Instruction]) {
        self.batch
            .update_if(&mut self.frame, key, None, steps, None);
    }

    fn finish(mut self) -> Vec<u8> {
        self.batch.finish(&mut self.frame);
        self.frame
    }
}

/// Blocks that are used again, so that no instruction counts that a pool of blocks does not take.
#[derive(Clone, Default)]
struct Pool(Rc<RefCell<Vec<Vec<u8>>>>);

struct PooledBlock {
    bytes: Vec<u8>,
    home: Pool,
}

impl Block for PooledBlock {
    fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl Drop for PooledBlock {
    fn drop(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        self.home.0.borrow_mut().push(bytes);
    }
}

impl Blocks for Pool {
    type Block = PooledBlock;

    fn take(&mut self, len: usize) -> Option<PooledBlock> {
        let len = len.next_multiple_of(BLOCK_BYTES);
        let mut free = self.0.borrow_mut();
        let bytes = match free.iter().position(|block| block.len() == len) {
            Some(at) => free.swap_remove(at),
            None => vec![0xEE; len],
        };
        Some(PooledBlock {
            bytes,
            home: self.clone(),
        })
    }
}

/// What is counted: the shard, and nothing of what stands around it here.
#[inline(never)]
fn counted_step(
    shard: &mut Shard<Pool>,
    now: Now,
    event: Event<'_, PooledBlock>,
    outbox: &mut Outbox<PooledBlock>,
) -> usize {
    shard.step(now, event, outbox)
}

#[inline(never)]
fn counted_output(shard: &mut Shard<Pool>, now: Now, session: SessionId, output: &mut Vec<u8>) {
    shard.take_output(now, session, output);
}

#[inline(never)]
fn counted_link_output(shard: &mut Shard<Pool>, link: LinkId, output: &mut Vec<u8>) {
    shard.execution_mut().take_link_output(link, output);
}

struct Server {
    shard: Shard<Pool>,
    outbox: Outbox<PooledBlock>,
    session: SessionId,
    now: Now,
    files: BTreeMap<FileId, Vec<u8>>,
    done: VecDeque<Completion<PooledBlock>>,
    files_made: u32,
    output: Vec<u8>,
    link_output: Vec<u8>,
    sent_bytes: usize,
    released: usize,
    /// From here on the shard's own instructions count.
    is_counted: bool,
    /// The other node of its cluster.
    member: Option<Box<Server>>,
}

impl Server {
    /// With what there is beside the keys.
    fn beside(beside: Beside) -> Self {
        let mut server = match beside {
            Beside::Nothing | Beside::Keyspace | Beside::Ruled => Server::new(None),
            Beside::Alone => {
                let mut server = Server::new(None);
                server.shard.leave_repeats();
                server
            }
            Beside::Cluster => Server::new(Some(cluster::WRITER)),
            Beside::Member | Beside::Left => {
                let mut server = Server::new(Some(cluster::WRITER));
                let mut member = Server::new(Some(cluster::MEMBER));
                cluster::link(&mut server, &mut member);
                server.member = Some(Box::new(member));
                server
            }
        };
        let (prefix, versions): (&[u8], u8) = match beside {
            Beside::Keyspace => (b"a foreign prefix", 3),
            Beside::Ruled => (b"", 0),
            Beside::Nothing | Beside::Alone | Beside::Cluster | Beside::Member | Beside::Left => {
                return server;
            }
        };
        let settings = Settings {
            versions,
            ..Settings::default()
        };
        let mut frame = Batch::begin(1);
        let change = Action::Set(settings);
        frame.batch.keyspace(&mut frame.frame, prefix, change);
        server.hand_over(&frame.finish());
        for _ in 0..100 {
            server.turn_ends();
        }
        assert!(server.shard.store().keyspaces().may_rule(b"a"));
        server
    }

    /// One that writes or holds all partitions of a cluster, or a node alone.
    fn new(node: Option<u8>) -> Self {
        let config = LogConfig {
            owner: OWNER,
            incarnation: 1,
            log_id: 1,
            frame_bytes: 256 << 10,
            record_bytes_max: 128 << 10,
            frames_in_flight_max: FRAMES_IN_FLIGHT,
            frames_sealed_max: 16,
            sync: SyncMethod::DurableWrite,
            interval_us: 100_000,
            idle_mark_us: 1_000_000,
        };
        let pool = Pool::default();
        let log = Log::with_history(
            config,
            LogStart::default(),
            Default::default(),
            pool.clone(),
        );
        let store = Store::new(
            log,
            pool,
            1 << 8 | 1,
            [0; PARTITIONS],
            Replayed::new(1 << 30),
        );
        let now = Now { us: 1, unix_ms: 1 };
        let config = ShardConfig {
            cluster: node.map(cluster::config),
            ..shard_config()
        };
        let mut shard = Shard::new(config, store);
        let session = shard.front_mut().open_session(now);
        let mut server = Server {
            shard,
            outbox: Outbox::default(),
            session,
            now,
            files: BTreeMap::new(),
            done: VecDeque::new(),
            files_made: 0,
            output: Vec::new(),
            link_output: Vec::new(),
            sent_bytes: 0,
            released: 0,
            is_counted: false,
            member: None,
        };
        // A node begins what it writes.
        for _ in 0..4 {
            server.turn_ends();
        }
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

    fn step(&mut self, event: Event<'_, PooledBlock>) -> usize {
        match self.is_counted {
            true => counted_step(&mut self.shard, self.now, event, &mut self.outbox),
            false => self.shard.step(self.now, event, &mut self.outbox),
        }
    }

    fn hand_over(&mut self, bytes: &[u8]) {
        let received = Event::Received {
            session: self.session,
            bytes,
        };
        self.now.us += BATCH_US;
        self.now.unix_ms = self.now.us / 1000;
        let mut consumed = self.step(received);
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
            consumed += self.step(received);
        }
        panic!("{consumed} of {} bytes are consumed", bytes.len());
    }

    /// The end of a turn, and of all that it asked for. Returns how many writes and reads it did.
    fn turn_ends(&mut self) -> usize {
        self.now.us += BATCH_US;
        self.step(Event::TurnEnds);
        assert!(self.outbox.fatal.is_none() && self.outbox.close.is_empty());
        let all = std::mem::take(&mut self.outbox.io);
        let count = all.len();
        for io in all {
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
            self.step(spare);
        }
        for file in self.outbox.removals.drain(..) {
            self.released += 1;
            self.files.remove(&file).expect("it is there");
        }
        for session in std::mem::take(&mut self.outbox.sendable) {
            self.output.clear();
            match self.is_counted {
                true => {
                    counted_output(&mut self.shard, self.now, session, &mut self.output);
                }
                false => {
                    self.shard.take_output(self.now, session, &mut self.output);
                }
            }
            self.sent_bytes += self.output.len();
            let sent = Event::Sent { session };
            self.shard.step(self.now, sent, &mut self.outbox);
        }
        self.outbox.resume.clear();
        while let Some(completion) = self.done.pop_front() {
            let completed = Event::Completed(completion);
            self.step(completed);
        }
        if let Some(mut member) = self.member.take() {
            member.now = self.now;
            cluster::exchange(self, &mut member);
            member.turn_ends();
            cluster::exchange(self, &mut member);
            self.member = Some(member);
        }
        count
    }

    fn disk(&mut self, io: Io<PooledBlock>) -> Completion<PooledBlock> {
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
        time_ms: 0,
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
        token_horizon_ms: 3_600_000,
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
        takes_several_shards: false,
        cluster: None,
    }
}
