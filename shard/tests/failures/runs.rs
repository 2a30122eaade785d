//! Two shards that are told the same: one answers items that repeat the item before them together
//! with it, and plain GETs and SETs without an operation, the other runs each item by itself.
//!
//! Where a run changes nothing, nobody can tell them apart: not by a byte of a reply or the moment
//! at which it may leave, not by a byte for the disk, and not by what they count. A run that
//! changes something is one record, so the bytes of the log differ. The answers are the same.

mod mailed;
mod purchases;
mod resp;
mod ruled;

use std::collections::BTreeMap;
use std::io::Write as _;

use penstock_net::apply::{Apply, Arithmetic};
use penstock_net::batch::Batch;
use penstock_net::frame::{HEADER_BYTES, Header, Opcode};
use penstock_net::hello::ClientHello;
use penstock_net::instruction::{FieldType, Instruction, Operation};
use penstock_net::keyspace::{Action, Settings};
use penstock_net::level::AckLevel;
use penstock_net::reply::ReplyItem;
use penstock_net::request::{BatchRequest, Condition, Expiry, Token, Wanted};
use penstock_net::status::Status;
use penstock_shard::{Counters, Event, Mail, Now, Outbox, SessionId, Shard, ShardConfig};
use penstock_storage::budget::Budget;
use penstock_storage::cleaning::CleaningConfig;
use penstock_storage::io::Io;
use penstock_storage::io::{BLOCK_BYTES, Block};
use penstock_storage::log::{Log, LogConfig, SyncMethod};
use penstock_storage::place::LogStart;
use penstock_storage::recovery::Replayed;
use penstock_storage::store::Store;
use penstock_storage::version::PARTITIONS;

use crate::device::Device;
use crate::heap::{Heap, HeapBlock};
use crate::random::Random;
use crate::seed::{Seed, seeds};
use crate::server::{log_config, shard_config};

const KEYS: usize = 7;
const STEPS: usize = 1_200;
/// Segment files that the disk has room for, where it has little.
const FILES_MAX: usize = 9;
/// Records of the first partition's keys begin here, so that their sequences carry soon.
const SEQUENCE: u64 = 250;

/// One of the two shards, its disk and two connections.
struct Side {
    shard: Shard<Heap>,
    outbox: Outbox<HeapBlock>,
    device: Device,
    sessions: [SessionId; 2],
    /// What was sent on each and is not consumed.
    inbox: [Vec<u8>; 2],
    salt: u64,
    segment_bytes: usize,
    /// What it has said and asked for since it was last compared.
    said: Vec<u8>,
    /// What it has sent on each and was not read.
    sent: [Vec<u8>; 2],
    answers: Answers,
    /// What it has for the other shards of its node.
    mail: Vec<Mail>,
}

/// The answers of each connection by request and item, in the order in which they came.
type Answers = BTreeMap<(usize, u64, Option<u16>), Vec<Vec<u8>>>;

impl Side {
    fn new(config: ShardConfig, log: LogConfig, budget: Budget) -> Side {
        Side::from(config, log, budget, SEQUENCE)
    }

    /// The same with records of each partition that begin behind this sequence.
    fn from(config: ShardConfig, log: LogConfig, budget: Budget, sequence: u64) -> Side {
        let segment_bytes = usize::try_from(log.segment_bytes_min()).expect("short segments");
        let log = Log::with_history(log, LogStart::default(), Default::default(), Heap);
        let sequences = [sequence; PARTITIONS];
        let replayed = Replayed::new(budget.cache_bytes_max);
        let mut store = Store::new(log, Heap, 257, sequences, replayed);
        store.data_mut().set_budget(budget);
        let mut shard = Shard::new(config, store);
        let now = Now { us: 1, unix_ms: 1 };
        let sessions = [
            shard.front_mut().open_session(now),
            shard.front_mut().open_session(now),
        ];
        let mut hello = Vec::new();
        let client = ClientHello {
            protocol_min: 1,
            protocol_max: 1,
            features: 0,
            name: "twins",
        };
        client.write(&mut hello, u64::MAX);
        Side {
            shard,
            outbox: Outbox::default(),
            device: Device::default(),
            sessions,
            inbox: [hello.clone(), hello],
            salt: 0,
            segment_bytes: segment_bytes.next_multiple_of(BLOCK_BYTES),
            said: Vec::new(),
            sent: [Vec::new(), Vec::new()],
            answers: Answers::new(),
            mail: Vec::new(),
        }
    }

    fn send(&mut self, now: Now, which: usize, bytes: &[u8]) {
        self.inbox[which].extend_from_slice(bytes);
        if !self.shard.front().is_paused(self.sessions[which]) {
            self.hand_over(now, which);
        }
    }

    fn hand_over(&mut self, now: Now, which: usize) {
        let received = Event::Received {
            session: self.sessions[which],
            bytes: &self.inbox[which],
        };
        let consumed = self.shard.step(now, received, &mut self.outbox);
        self.inbox[which].drain(..consumed);
        writeln!(self.said, "took {consumed}").expect("memory");
    }

    /// The end of a turn. The disk has room for so many segment files.
    fn turn(&mut self, now: Now, files_max: usize) {
        self.shard.step(now, Event::TurnEnds, &mut self.outbox);
        let mut outbox = std::mem::take(&mut self.outbox);
        assert!(outbox.fatal.is_none() && outbox.close.is_empty());
        for request in &outbox.io {
            if let Io::Write { block, len, .. } = request {
                self.said.extend_from_slice(&block.bytes()[..*len as usize]);
            }
            let (Io::Write { token, file, .. }
            | Io::Sync { token, file, .. }
            | Io::Read { token, file, .. }) = request;
            writeln!(self.said, "{token:?} {file:?}").expect("memory");
        }
        self.device.submit(&mut outbox.io);
        self.mail
            .extend(outbox.mail.into_iter().map(|(_, mail)| mail));
        for file in outbox.removals {
            writeln!(self.said, "remove {file:?}").expect("memory");
            self.device.image.files.remove(&file);
        }
        for _ in 0..outbox.spares {
            if self.device.image.files.len() >= files_max {
                self.shard.step(now, Event::SpareRefused, &mut self.outbox);
                continue;
            }
            self.salt += 1;
            let spare = Event::Spare {
                file: self.device.image.create(self.segment_bytes),
                salt: self.salt,
                bytes: self.segment_bytes as u64,
                is_reused: false,
            };
            self.shard.step(now, spare, &mut self.outbox);
        }
        for session in outbox.sendable {
            let mut bytes = Vec::new();
            self.shard.take_output(now, session, &mut bytes);
            let sent = Event::Sent { session };
            self.shard.step(now, sent, &mut self.outbox);
            writeln!(self.said, "reply on {session:?}").expect("memory");
            let which = usize::from(session == self.sessions[1]);
            self.sent[which].extend_from_slice(&bytes);
            self.said.append(&mut bytes);
        }
        for session in outbox.resume {
            let which = usize::from(session == self.sessions[1]);
            self.hand_over(now, which);
        }
    }

    /// A request to the disk ends.
    fn end(&mut self, now: Now, index: usize) {
        if index < self.device.under_way().len() {
            let completed = Event::Completed(self.device.complete(index));
            self.shard.step(now, completed, &mut self.outbox);
        }
    }

    /// Turns until nothing is under way any more.
    fn settle(&mut self, now: Now) {
        let mut idle_turns = 0;
        for _ in 0..10_000 {
            let said = self.said.len();
            self.turn(now, usize::MAX);
            let is_idle = self.device.under_way().is_empty() && self.said.len() == said;
            idle_turns = if is_idle { idle_turns + 1 } else { 0 };
            if idle_turns == 3 {
                return;
            }
            self.end(now, 0);
        }
        panic!("it never comes to rest");
    }

    /// Reads what it has sent.
    fn read_answers(&mut self) {
        for (which, sent) in self.sent.iter_mut().enumerate() {
            let mut at = 0;
            while let Some(header) = sent[at..].first_chunk().map(Header::decode) {
                let end = at + header.len as usize;
                let Some(body) = sent.get(at + HEADER_BYTES..end) else {
                    break;
                };
                let is_batch = header.opcode == Opcode::Batch as u8
                    && header.level_or_status == Status::Ok as u16;
                let mut add = |item, bytes: &[u8]| {
                    let answer = (which, header.request_id, item);
                    self.answers.entry(answer).or_default().push(bytes.to_vec());
                };
                match is_batch {
                    false => add(None, body),
                    true => {
                        let batch = Batch::read(body).expect("a batch");
                        for number in 0..batch.len() {
                            let bytes = batch.item(number);
                            let item = ReplyItem::read(bytes).expect("a reply item");
                            add(Some(item.head.item), bytes);
                        }
                    }
                }
                at = end;
            }
            sent.drain(..at);
        }
    }

    /// How many items it has answered in runs, and how many plain GETs and SETs.
    fn quick(&self) -> [u64; 3] {
        let counters = self.shard.counters();
        [counters.in_runs, counters.direct_gets, counters.direct_sets]
    }

    /// What it counts and holds.
    fn account(&self) -> String {
        let store = self.shard.store();
        let counters = Counters {
            in_runs: 0,
            direct_gets: 0,
            direct_sets: 0,
            ..self.shard.counters()
        };
        let (log, stages) = (store.log(), self.shard.execution().stages().all());
        let mut newest = Vec::new();
        let rest = store
            .keys()
            .newest_parts(Default::default(), usize::MAX, &mut |part| {
                newest.push(part);
            });
        assert!(rest.is_none(), "all keys were visited");
        let history = (log.history(), log.position(), log.open_segment_bytes_left());
        format!(
            "{counters:?} {:?} {stages:?} {history:?} {:?} {newest:?} {:?} {:?}",
            log.counters(),
            store.data().usage(),
            store.data().numbering().sequences(),
            store.cleaning().counting_bytes()
        )
    }
}

fn instruction(operation: Operation, offset: u32, immediate: u64) -> Instruction {
    Instruction {
        operation,
        field_type: FieldType::U64,
        key: 0,
        reason: 7,
        offset,
        immediate,
    }
}

fn name(number: usize) -> Vec<u8> {
    match number {
        0..4 => format!("{{shop}}{number}"),
        _ => format!("other {number} of a name that is longer than the others"),
    }
    .into_bytes()
}

/// Some program. Those of one `kind` have the same number of instructions.
fn program(random: &mut Random, kind: usize) -> Vec<Instruction> {
    let units = [1, 1, 2, 5, 300][random.below(5)];
    let token = random.next();
    let take = [
        instruction(Operation::Ge, 0, units),
        instruction(Operation::Sub, 0, units),
    ];
    match kind {
        0 | 1 => take.to_vec(),
        // The last instruction fails at times, behind edits.
        2 => [
            &take[..],
            &[
                instruction(Operation::Set, 8, token),
                instruction(Operation::Lt, 0, 60 + units),
            ],
        ]
        .concat(),
        3 => vec![instruction(Operation::Ge, 0, 20 * units)],
        4 => vec![instruction(Operation::Add, 0, [3, 700][random.below(2)])],
        5 => {
            let mut add = instruction(Operation::Add, 16, 1);
            (add.field_type, add.immediate) = (FieldType::U8.big_endian(), 100);
            vec![add, instruction(Operation::Exists, 0, 0).about_no_field()]
        }
        6 => vec![instruction(Operation::Absent, 0, 0).about_no_field()],
        // Behind the value, of most keys.
        7 => vec![instruction(Operation::Add, [8, 40][random.below(2)], 1)],
        // Sets what is there already.
        8 => vec![instruction(Operation::Set, 8, 5)],
        _ => (0..40)
            .map(|n| instruction(Operation::Add, 8 * (n % 3), units))
            .collect(),
    }
}

trait AboutNoField {
    fn about_no_field(self) -> Self;
}

impl AboutNoField for Instruction {
    fn about_no_field(mut self) -> Self {
        self.field_type = FieldType::U8;
        self
    }
}

/// An APPLY of the keys that runs and plain items change too.
fn apply(random: &mut Random) -> Apply {
    let mut apply = Apply::new();
    for _ in 0..1 + random.below(3) {
        let key = apply.key(format!("{{shop}}{}", 1 + random.below(3)).as_bytes());
        let stock = key.u64(0);
        match random.below(6) {
            0 => apply.start(key, &[9; 24]),
            1 => apply.put(key, &[8; 16]),
            2 => apply.then(key.expire_in(5)),
            3 => apply.then(stock.changes(Arithmetic::SubSaturating, 7u64)),
            4 => apply.then(stock.at_least(2u64)),
            _ => apply.then(stock.decrease(1u64)),
        };
    }
    apply
}

/// Whether runs of a batch change something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Runs {
    Change,
    ChangeNothing,
}

/// Some batch: most of it are runs. With keyspaces they keep versions or not.
fn batch(random: &mut Random, request_id: u64, keyspaces: Option<bool>, runs: Runs) -> Vec<u8> {
    // A full frame ends an interval, and frames are full sooner without runs.
    let levels = match runs {
        Runs::Change => [AckLevel::None, AckLevel::Disk, AckLevel::Disk],
        Runs::ChangeNothing => [AckLevel::None, AckLevel::Interval, AckLevel::Disk],
    };
    let level = levels[random.below(3)];
    let deadline_ms = if random.once_in(10) { 1 } else { 0 };
    let items_max = 1 + random.below(60);
    let mut out = Vec::new();
    let mut batch = BatchRequest::begin(&mut out, request_id, level, deadline_ms, items_max);
    while batch.len() < items_max {
        let key = name(random.below(KEYS).min(random.below(KEYS)));
        let expiry = match random.below(8) {
            0 => Expiry::In(1 + random.next() % 5),
            1 => Expiry::In(10_000),
            _ => Expiry::Never,
        };
        match random.below(16) {
            0 => batch.get(&mut out, &key),
            1 => {
                let mut value = vec![0; [16, 24, 24, 41, 300, 2_000][random.below(6)]];
                value[0] = [0, 3, 50, 255][random.below(4)];
                batch.set_with(&mut out, &key, &value, Condition::Always, expiry);
            }
            2 if random.once_in(3) => batch.del(&mut out, &key, Condition::Always),
            2 => batch.apply(&mut out, &apply(random)),
            3 => {
                let program = program(random, 4);
                let other = Some(&b"{shop}2"[..]);
                batch.update_if(&mut out, b"{shop}1", other, &program, None);
            }
            4 if keyspaces.is_some() && random.once_in(4) => {
                let settings = Settings {
                    versions: if keyspaces == Some(true) {
                        [0, 1, 2][random.below(3)]
                    } else {
                        0
                    },
                    level_min: [AckLevel::None, AckLevel::Disk][random.below(2)],
                    ttl_ms: [0, 5_000][random.below(2)],
                    ..Settings::default()
                };
                batch.keyspace(&mut out, b"{shop", Action::Set(settings));
            }
            5 | 6 => {
                for _ in 0..(1 + random.below(30)).min(items_max - batch.len()) {
                    let key = match random.once_in(2) {
                        true => key.clone(),
                        false => name(random.below(KEYS + 1)),
                    };
                    match random.once_in(20) {
                        true => batch.get_with(&mut out, &key, Wanted::ValueAndExpiry),
                        false => batch.get(&mut out, &key),
                    }
                }
            }
            7 if random.once_in(2) => {
                purchases::purchases(random, &mut batch, &mut out, items_max);
            }
            7 if runs == Runs::Change => additions(random, &mut batch, &mut out, items_max),
            7..10 => sets(random, &mut batch, &mut out, items_max),
            _ => run(
                random,
                &mut batch,
                &mut out,
                (&key, expiry),
                items_max,
                runs,
            ),
        }
    }
    batch.finish(&mut out);
    out
}

/// SETs, most of them plain, of keys by chance and values that often fit where the one before is,
/// and some GETs between them.
fn sets(random: &mut Random, batch: &mut BatchRequest, out: &mut Vec<u8>, items_max: usize) {
    let usual_len = [8, 16, 24, 41, 300, 2_000][random.below(6)];
    for _ in 0..(1 + random.below(30)).min(items_max - batch.len()) {
        let key = name(random.below(KEYS + 1));
        let len = match random.below(12) {
            0 => [0, 1, 1_900, 2_100, 70_000][random.below(5)],
            1 => 2 * usual_len,
            2 => usual_len / 2,
            _ => usual_len - random.below(4),
        };
        let mut value = vec![0; len];
        value.iter_mut().take(1).for_each(|first| *first = 50);
        value
            .iter_mut()
            .skip(1)
            .for_each(|byte| *byte = (random.next() & 3).to_le_bytes()[0]);
        match random.below(30) {
            0 => batch.set(out, &key, &value, Condition::Present),
            1 => batch.set_with(out, &key, &value, Condition::Always, Expiry::In(4)),
            2 => batch.set_with(out, &key, &value, Condition::Always, Expiry::Keep),
            3 => batch.del(out, &key, Condition::Always),
            4..8 => batch.get(out, &key),
            _ => batch.set(out, &key, &value, Condition::Always),
        }
    }
}

/// APPLYs that add to the decimal of a key, and what gives the key another text now and then. Sums
/// change their length and their sign, and go beyond an i64.
fn additions(random: &mut Random, batch: &mut BatchRequest, out: &mut Vec<u8>, items_max: usize) {
    let key = match random.once_in(4) {
        true => name(random.below(KEYS)),
        false => b"{shop}decimal".to_vec(),
    };
    if random.once_in(2) && batch.len() < items_max {
        let texts = [
            "5",
            "0",
            "-1",
            "-12",
            "998",
            "100",
            "1234567",
            "-1000000",
            "007",
            "+1",
            "-0",
            " 1",
            "",
            "x1",
            "9223372036854775800",
            "-9223372036854775805",
            "99999999999999999999",
        ];
        let expiry = match random.below(6) {
            0 => Expiry::In(1 + random.next() % 5),
            1 => Expiry::In(10_000),
            _ => Expiry::Never,
        };
        let text = texts[random.below(texts.len())].as_bytes();
        batch.set_with(out, &key, text, Condition::Always, expiry);
    }
    let steps = [-1, 1, 1, -3, 10, 0, 999, i64::MAX, i64::MIN];
    let (starts, is_same) = (!random.once_in(4), random.once_in(2));
    let (start, mut step) = ([&b"0"[..], b"41", b"?"][random.below(12) / 5], 0);
    for number in 0..(1 + random.below(30)).min(items_max - batch.len()) {
        if number == 0 || !is_same && random.once_in(2) {
            step = steps[random.below(steps.len()).min(random.below(steps.len()))];
        }
        let mut apply = Apply::new();
        let counter = apply.key(&key);
        if starts {
            apply.start(counter, start);
        }
        match random.below(40) {
            0 => apply.then(counter.decimal().changes(Arithmetic::Sub, 1i64)),
            1 => apply.then(counter.decimal().at_least(3i64)),
            2 => apply.put(counter, b"17"),
            3 => {
                let other = apply.key(b"{shop}1");
                apply.put(counter, b"50").then(counter.expire_in(9_000));
                apply.on_expire(counter, |then| {
                    then.then(other.u64(0).increase(1u64));
                })
            }
            _ => apply.then(counter.decimal().increase(step)),
        };
        if random.once_in(30) {
            apply.then(counter.decimal().increase(step));
        }
        if random.once_in(60) {
            batch.token(Token::new(1, [random.below(4).to_le_bytes()[0]; 10]));
        }
        batch.apply(out, &apply);
    }
}

/// Equal items, items that differ in the amount that they subtract, or items with a bad one among
/// them.
fn run(
    random: &mut Random,
    batch: &mut BatchRequest,
    out: &mut Vec<u8>,
    (key, expiry): (&[u8], Expiry),
    items_max: usize,
    runs: Runs,
) {
    let kind = match runs {
        Runs::Change => random.below(10),
        Runs::ChangeNothing => 3,
    };
    let count = (1 + random.below(30)).min(items_max - batch.len());
    let start = (runs == Runs::Change && random.once_in(3)).then_some(&[9; 24][..]);
    let expiry = if runs == Runs::Change && random.once_in(12) {
        expiry
    } else {
        Expiry::Keep
    };
    let (is_same, bad) = (
        random.once_in(2),
        random.once_in(8).then(|| random.below(count)),
    );
    let mut last = program(random, kind);
    for number in 0..count {
        if !is_same && random.once_in(2) {
            last = program(random, kind);
        }
        if bad == Some(number) {
            let mut frame = Vec::new();
            let mut one = BatchRequest::begin(&mut frame, 1, AckLevel::None, 0, 1);
            one.update_if_with(&mut frame, key, None, &last, start, expiry);
            one.finish(&mut frame);
            let one = Batch::read(&frame[HEADER_BYTES..]).expect("well formed");
            let mut item = one.item(0).to_vec();
            item[16 + random.below(16)] ^= 1 << random.below(8);
            batch.raw(out, &item);
        } else {
            batch.update_if_with(out, key, None, &last, start, expiry);
        }
    }
}

/// Runs both with what follows from `seed`. How many items the first has answered in runs, and how
/// many plain GETs and SETs without an operation.
fn compare(seed: u64) -> [u64; 3] {
    let mut random = Random::new(seed);
    let log = LogConfig {
        frame_bytes: [1, 2, 8][random.below(3)] * BLOCK_BYTES,
        ..log_config(SyncMethod::DurableWrite, 1)
    };
    let mut config = shard_config(0, 1, 1);
    config.hello.limits.frame_bytes_max = [4 << 10, 64 << 10][random.below(2)];
    config.output_bytes_max = [2 << 10, 64 << 10][random.below(2)];
    config.shared_bytes_min = [1, 100, usize::MAX][random.below(3)];
    config.level_min = [AckLevel::None, AckLevel::None, AckLevel::Disk][random.below(3)];
    let files_max = [usize::MAX, FILES_MAX, FILES_MAX - 2][random.below(3)];
    if files_max != usize::MAX {
        config.cleaning = CleaningConfig {
            log_bytes_max: FILES_MAX as u64 * log.segment_bytes_min(),
            ..CleaningConfig::default()
        };
    }
    let keyspaces = [None, None, Some(false), Some(true)][random.below(4)];
    let mut budget = Budget::of_cache([0, 2_500, 1 << 20, 1 << 20][random.below(4)]);
    if random.once_in(3) {
        // Few cells more than these, and values wait for others to leave.
        (budget.memory_bytes_max, budget.cells_bytes_min) = (8 << 20, 6_000);
    }
    let sides = [(); 2].map(|()| Side::new(config.clone(), log.clone(), budget));
    let batch = |random: &mut Random, step| batch(random, step, keyspaces, Runs::ChangeNothing);
    compare_sides(seed, &mut random, sides, files_max, |random, step, _| {
        Some(batch(random, step))
    })
}

/// Runs two alike, the second one item by item. `batch` gives the next bytes that a client may
/// send, or does something else to both and gives none.
fn compare_sides(
    seed: u64,
    random: &mut Random,
    mut sides: [Side; 2],
    files_max: usize,
    mut batch: impl FnMut(&mut Random, u64, (Now, &mut [Side; 2])) -> Option<Vec<u8>>,
) -> [u64; 3] {
    sides[1].shard.leave_repeats();
    let mut now = Now { us: 1, unix_ms: 1 };
    for step in 0..STEPS {
        let action = random.below(10);
        let (which, index) = (random.below(2), random.below(2));
        let bytes = batch(random, step as u64, (now, &mut sides)).unwrap_or_default();
        for side in &mut sides {
            match action {
                // HELLO goes first.
                _ if step < 2 => side.send(now, step, &[]),
                0..5 => side.send(now, which, &bytes),
                5..7 => side.turn(now, files_max),
                7..9 => side.end(now, index),
                _ => {}
            }
        }
        now.us += [0, 1, 700, 3_000][random.below(4)];
        now.unix_ms = now.us / 1_000;
        let [runs, alone] = &mut sides;
        let context = format!("seed {seed}, step {step}, action {action}");
        assert_same(&runs.said, &alone.said, &context);
        runs.said.clear();
        alone.said.clear();
        if step % 8 == 0 {
            let accounts = [runs.account(), alone.account()];
            assert_same(accounts[0].as_bytes(), accounts[1].as_bytes(), &context);
        }
    }
    let [quick, alone] = sides.map(|side| side.quick());
    assert_eq!(alone, [0; 3]);
    quick
}

/// Runs both with what follows from `seed`, each up to where nothing is under way any more. How
/// many items the first has answered in runs.
fn compare_answers(seed: u64) -> u64 {
    let mut random = Random::new(seed);
    // Every batch has room in one frame: an item that waits for room runs behind those of others.
    let log = LogConfig {
        frame_bytes: 4 << 20,
        ..log_config(SyncMethod::DurableWrite, 1)
    };
    let mut config = shard_config(0, 1, 1);
    config.output_bytes_max = [2 << 10, 64 << 10][random.below(2)];
    config.level_min = [AckLevel::None, AckLevel::Disk][random.below(2)];
    let keyspaces = [None, None, Some(false), Some(true)][random.below(4)];
    // All keys stay in memory: an item whose key is cold runs behind those of other keys.
    let budget = Budget::of_cache(1 << 20);
    let mut sides = [(); 2].map(|()| Side::new(config.clone(), log.clone(), budget));
    sides[1].shard.leave_repeats();
    let mut now = Now { us: 1, unix_ms: 1 };
    for step in 0..STEPS / 3 {
        let which = random.below(2);
        let bytes = batch(&mut random, step as u64, keyspaces, Runs::Change);
        for side in &mut sides {
            match step {
                0 | 1 => side.send(now, step, &[]),
                _ => side.send(now, which, &bytes),
            }
            side.settle(now);
            side.read_answers();
            assert!(side.sent.iter().all(Vec::is_empty), "whole replies");
            side.said.clear();
        }
        let context = format!("seed {seed}, step {step}");
        for (key, answers) in &sides[0].answers {
            let others = sides[1].answers.get(key);
            assert_eq!(Some(answers), others, "{context}: {key:?}");
        }
        let counts = sides.each_ref().map(|side| side.answers.len());
        assert_eq!(counts[0], counts[1], "{context}");
        sides.iter_mut().for_each(|side| side.answers.clear());
        let [runs, alone] = sides
            .each_ref()
            .map(|side| side.shard.store().data().numbering().sequences());
        assert!(runs == alone, "{context}: the numbers of changes differ");
        now.us += [0, 1, 700, 3_000][random.below(4)];
        now.unix_ms = now.us / 1_000;
    }
    let [quick, alone] = sides.map(|side| side.shard.counters().in_runs);
    assert_eq!(alone, 0);
    quick
}

/// Shows no more than where the two begin to differ.
fn assert_same(runs: &[u8], alone: &[u8], context: &str) {
    if runs != alone {
        let at = runs.iter().zip(alone).take_while(|(a, b)| a == b).count();
        let shown = |said: &[u8]| {
            let shown = &said[at.saturating_sub(300)..said.len().min(at + 100)];
            String::from_utf8_lossy(shown).into_owned()
        };
        let (runs, alone) = (shown(runs), shown(alone));
        panic!("{context}: in runs\n{runs:?}, one by one\n{alone:?}");
    }
}

#[test]
fn runs_that_change_nothing_and_plain_items_are_answered_logged_and_counted_as_one_by_one() {
    let (mut quick, mut count) = ([0; 3], 0);
    for number in seeds(8) {
        let seed = Seed(number);
        let of_seed = compare(seed.0);
        quick
            .iter_mut()
            .zip(of_seed)
            .for_each(|(all, it)| *all += it);
        count += 1;
    }
    let [in_runs, direct_gets, direct_sets] = quick;
    assert!(
        in_runs > 100 * count && direct_gets > 50 * count && direct_sets > 50 * count,
        "{in_runs} items in runs, {direct_gets} plain GETs, {direct_sets} plain SETs"
    );
}

#[test]
fn runs_are_answered_as_their_items_are_one_by_one() {
    let (mut in_runs, mut count) = (0, 0);
    for number in seeds(16) {
        let seed = Seed(number);
        in_runs += compare_answers(seed.0);
        count += 1;
    }
    assert!(in_runs > 500 * count, "{in_runs} items in runs");
}
