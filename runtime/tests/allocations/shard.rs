//! No heap allocation per operation on the hot path: a shard over a log in memory, driven as the
//! server drives it, under an allocator that counts.

use std::sync::Arc;

use penstock::disk::arena::{Arena, ArenaBlock, ArenaLayout};
use penstock_net::apply::Apply;
use penstock_net::hello::{AUTH_NONE, ClientHello, ServerHello};
use penstock_net::instruction::{FieldType, Instruction, Operation};
use penstock_net::level::AckLevel;
use penstock_net::limits::Limits;
use penstock_net::program::{
    Argument, ArgumentKind, Blank, Program, ProgramId, ProgramParts, Programs, Run, ServedSchema,
};
use penstock_net::request::{BatchRequest, Condition, Token};
use penstock_net::rights::{Grants, Right, Rights};
use penstock_shard::{Event, Now, Outbox, SessionId, Shard, ShardConfig, Topology};
use penstock_storage::io::{Completion, Io};
use penstock_storage::log::{Log, LogConfig, SyncMethod};
use penstock_storage::place::FileId;
use penstock_storage::place::LogStart;
use penstock_storage::recovery::Replayed;
use penstock_storage::segment::Owner;
use penstock_storage::store::Store;

use crate::counting::own_allocations;
use crate::the_counters;

const DEPTH: usize = 64;
const SEGMENT_BYTES: u64 = 64 << 20;

/// A shard, and the disk and network that answer it at once.
struct World {
    shard: Shard<Arena>,
    outbox: Outbox<ArenaBlock>,
    completions: Vec<Completion<ArenaBlock>>,
    now: Now,
    session: SessionId,
    sent: Vec<u8>,
    next_file: u32,
}

impl World {
    fn new() -> World {
        let arena = Arena::new(ArenaLayout::default()).expect("memory");
        let config = LogConfig {
            owner: Owner {
                cluster_id: [1; 16],
                node_id: [2; 16],
            },
            incarnation: 1,
            log_id: 1,
            frame_bytes: 256 << 10,
            record_bytes_max: 2 << 20,
            frames_in_flight_max: 2,
            frames_sealed_max: 8,
            sync: SyncMethod::DurableWrite,
            interval_us: 100_000,
            idle_mark_us: 5_000,
        };
        let log = Log::new(config, LogStart::default(), arena.clone());
        let store = Store::new(log, arena, 256, [0; 256], Replayed::new(64 << 20));
        let topology = Topology::new(1);
        let hello = ServerHello {
            protocol: 1,
            shard: 0,
            shard_count: 1,
            auth_methods: AUTH_NONE,
            cluster_id: [1; 16],
            node_id: [2; 16],
            incarnation: 1,
            features: 0,
            nonce: [0; 32],
            limits: Limits::default(),
            time_ms: 0,
            interval_ms: 100,
            slots: topology.ranges(|_| 1),
            placement: None,
        };
        let config = ShardConfig {
            shard: 0,
            topology,
            hello,
            level_min: AckLevel::None,
            output_bytes_max: 4 << 20,
            shared_bytes_min: 8 << 10,
            partial_frame_us_max: u64::MAX >> 1,
            write_stall_us_max: u64::MAX >> 1,
            idle_us_max: 0,
            replies_bytes_max: 64 << 20,
            input_bytes_max: 64 << 20,
            parked_bytes_max: 64 << 20,
            mailed_items_max: 1024,
            memory_max: 0,
            token_horizon_ms: 3_600_000,
            hash_seed: 7,
            cleaning: penstock_storage::cleaning::CleaningConfig::default(),
            snapshots: penstock_shard::SnapshotPolicy::default(),
            takes_several_shards: false,
            cluster: None,
        };
        let mut shard = Shard::new(config, store);
        let now = Now { us: 1, unix_ms: 1 };
        let session = shard.front_mut().open_session(now);
        let mut world = World {
            shard,
            outbox: Outbox::default(),
            completions: Vec::new(),
            now,
            session,
            sent: Vec::new(),
            next_file: 1,
        };
        let mut hello = Vec::new();
        ClientHello {
            protocol_min: 1,
            protocol_max: 1,
            features: 0,
            name: "count",
        }
        .write(&mut hello, 0);
        world.turn(&hello);
        world
    }

    /// One turn of the loop: bytes arrive, the disk does what is asked, replies leave.
    fn turn(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let session = self.session;
            let consumed = self.shard.step(
                self.now,
                Event::Received { session, bytes },
                &mut self.outbox,
            );
            bytes = &bytes[consumed..];
            for _ in 0..4 {
                self.now.us += 20;
                self.shard.step(self.now, Event::TurnEnds, &mut self.outbox);
                for _ in 0..std::mem::take(&mut self.outbox.spares) {
                    let spare = Event::Spare {
                        file: FileId(self.next_file),
                        salt: u64::from(self.next_file),
                        bytes: SEGMENT_BYTES,
                        is_reused: false,
                    };
                    self.next_file += 1;
                    self.shard.step(self.now, spare, &mut self.outbox);
                }
                for io in self.outbox.io.drain(..) {
                    let (token, block) = match io {
                        Io::Write { token, block, .. } | Io::Read { token, block, .. } => {
                            (token, Some(block))
                        }
                        Io::Sync { token, .. } => (token, None),
                    };
                    self.completions.push(Completion {
                        token,
                        block,
                        result: Ok(()),
                    });
                }
                for completion in self.completions.drain(..) {
                    self.shard
                        .step(self.now, Event::Completed(completion), &mut self.outbox);
                }
                self.outbox.resume.clear();
                while let Some(session) = self.outbox.sendable.pop() {
                    self.sent.clear();
                    self.shard.take_output(self.now, session, &mut self.sent);
                    let sent = Event::Sent { session };
                    self.shard.step(self.now, sent, &mut self.outbox);
                }
            }
        }
    }
}

fn batch(build: impl Fn(&mut BatchRequest, &mut Vec<u8>, usize)) -> Vec<u8> {
    let mut frame = Vec::new();
    let mut batch = BatchRequest::begin(&mut frame, 1, AckLevel::Disk, 0, DEPTH);
    (0..DEPTH).for_each(|number| build(&mut batch, &mut frame, number));
    batch.finish(&mut frame);
    frame
}

#[test]
fn reads_writes_and_decrements_allocate_nothing_once_they_are_warm() {
    let _counters = the_counters();
    let mut world = World::new();
    let key = |number: usize| format!("key:{number:04}").into_bytes();
    let set = batch(|batch, out, number| batch.set(out, &key(number), &[7; 64], Condition::Always));
    let get = batch(|batch, out, number| batch.get(out, &key(number)));
    let stock = batch(|batch, out, _| {
        batch.set(
            out,
            b"stock:42",
            &(1u64 << 60).to_le_bytes(),
            Condition::Always,
        )
    });
    let step = |operation| Instruction {
        operation,
        field_type: FieldType::U64,
        key: 0,
        reason: 0,
        offset: 0,
        immediate: 1,
    };
    let decr = batch(|batch, out, _| {
        batch.update_if(
            out,
            b"stock:42",
            None,
            &[step(Operation::Ge), step(Operation::Sub)],
            None,
        )
    });
    let sold_out = batch(|batch, out, _| {
        let guard = Instruction {
            immediate: u64::MAX,
            ..step(Operation::Ge)
        };
        batch.update_if(out, b"stock:42", None, &[guard, step(Operation::Sub)], None);
    });
    let buy = batch(|batch, out, number| {
        let mut buy = Apply::new();
        let stock = buy.key(b"{drop}stock");
        let hold = buy.key(format!("{{drop}}hold:{number}").as_bytes());
        buy.start(stock, &(1u64 << 60).to_le_bytes())
            .then(stock.u64(0).decrease(1u64))
            .start(hold, &[0; 16])
            .then(hold.u64(8).set(stock.u64(0)))
            .then(hold.expire_in(1 << 40));
        batch.apply(out, &buy);
    });
    let program = hold_program();
    let run = batch(|batch, out, number| batch.run(out, &hold_run(program.id(), number)));
    let programs = Programs::new(vec![program.clone()]);
    let text = String::new();
    let schema = Arc::new(ServedSchema {
        programs,
        layouts: Vec::new(),
        text,
    });
    world.shard.execution_mut().serve_schema(schema);
    let unix_ms = world.now.unix_ms;
    // All but the first of these are answered again.
    let retry = batch(|batch, out, number| {
        let number = u8::try_from(number).expect("few");
        batch.token(Token::new(unix_ms, [number; 10]));
        batch.update_if(out, b"stock:42", None, &[step(Operation::Sub)], None);
    });
    world.turn(&stock);
    for (name, frame) in [
        ("set", &set),
        ("get", &get),
        ("decr", &decr),
        ("sold out", &sold_out),
        ("buy", &buy),
        ("run", &run),
        ("retry", &retry),
    ] {
        for rights in [None, Some(all_rights())] {
            world.shard.front_mut().set_rights(world.session, rights);
            count(&mut world, name, frame);
        }
    }
}

/// All that the operations need, each for a prefix of its own.
fn all_rights() -> Arc<Rights> {
    let mut grants = Grants::new();
    for prefix in [&b"key:"[..], b"stock:", b"{drop}"] {
        grants
            .grant(Right::Read, prefix)
            .expect("within the limits");
        grants
            .grant(Right::Write, prefix)
            .expect("within the limits");
    }
    grants.grant_run("hold", b"{").expect("within the limits");
    Arc::new(Rights::new("till", &grants))
}

/// Counts what a frame takes from the heap when it comes again and again.
fn count(world: &mut World, name: &str, frame: &[u8]) {
    (0..200).for_each(|_| world.turn(frame));
    let (records, before) = (
        world.shard.store().log().counters().records,
        own_allocations(),
    );
    (0..500).for_each(|_| world.turn(frame));
    let allocations = own_allocations() - before;
    let logged = world.shard.store().log().counters().records - records;
    println!(
        "{name}: {allocations} allocations in {} operations, {logged} records",
        500 * DEPTH
    );
    assert_eq!(allocations, 0, "{name}");
    let expected = match name {
        "set" | "buy" | "run" => 500 * DEPTH as u64,
        // The first item of a batch, and the run behind it.
        "decr" => 2 * 500,
        _ => 0,
    };
    assert_eq!(logged, expected, "{name}");
    assert!(world.sent.len() > 24 * DEPTH, "{name}: replies left");
}

/// Takes so many of a stock, and notes in a hold what is left.
fn hold_program() -> Program {
    let mut apply = Apply::new();
    let (stock, hold) = (apply.key(b"{a}0"), apply.key(b"{a}1"));
    apply
        .then(stock.u64(0).decrease(0u64))
        .then(hold.u64(8).set(stock.u64(0)))
        .then(hold.expire_in(1 << 40));
    Program::new(ProgramParts {
        name: "hold".into(),
        keys: vec!["stock".into(), "hold".into()],
        arguments: vec![Argument {
            name: "quantity".into(),
            kind: ArgumentKind::Number { min: 1, max: 9 },
        }],
        instructions: apply.instructions().to_vec(),
        data: Vec::new(),
        blanks: vec![Blank::Operand {
            instruction: 0,
            argument: 0,
        }],
    })
    .expect("sound")
}

/// A run of it.
fn hold_run(program: ProgramId, number: usize) -> Run {
    let key = format!("{{drop}}hold:{number}");
    let run = Run::new(program).key(b"{drop}stock").key(key.as_bytes());
    run.argument(1u64)
}
