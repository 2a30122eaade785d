//! Purchases of two or three keys, nearly all of them denied: of stock that is sold out, of a limit
//! that is reached, of a hold that is there.

use std::sync::Arc;

use penstock_net::apply::{Apply, ApplyKey};
use penstock_net::batch::Batch;
use penstock_net::frame::HEADER_BYTES;
use penstock_net::level::AckLevel;
use penstock_net::program::{
    Argument, ArgumentKind, Blank, Program, ProgramParts, Programs, Run, ServedSchema,
};
use penstock_net::reply::ReplyItem;
use penstock_net::request::{Ask, BatchRequest, Condition, Token};
use penstock_net::status::Status;
use penstock_shard::{Event, Now};

use super::{Side, compare_sides, seeds};
use crate::random::Random;
use crate::seed::Seed;
use crate::server::{log_config, shard_config};
use penstock_storage::budget::Budget;
use penstock_storage::log::SyncMethod;

/// What all purchases of a run have in common.
struct Kind {
    stock: Vec<u8>,
    units: u64,
    /// Which guards and effects stand in front of the one that denies.
    form: usize,
    has_buyer: bool,
    has_token: bool,
    arms: bool,
    is_run: bool,
}

/// The program of a purchase: units of stock, and a hold for a moment.
fn buy() -> Program {
    let mut apply = Apply::new();
    let (stock, hold) = (apply.key(b"{a}0"), apply.key(b"{a}1"));
    apply
        .then(stock.u64(0).at_least(0u64).or_else(9))
        .then(stock.u64(0).decrease(0u64))
        .put(hold, &[5; 16])
        .then(hold.expire_in(5));
    let operand = |instruction| Blank::Operand {
        instruction,
        argument: 0,
    };
    let units = ArgumentKind::Number {
        min: 1,
        max: 1 << 61,
    };
    Program::new(ProgramParts {
        name: "buy".into(),
        keys: vec!["stock".into(), "hold".into()],
        arguments: vec![Argument {
            name: "units".into(),
            kind: units,
        }],
        instructions: apply.instructions().to_vec(),
        data: vec![5; 16],
        blanks: vec![operand(0), operand(1)],
    })
    .expect("sound")
}

impl Kind {
    fn some(random: &mut Random) -> Kind {
        let stock = [&b"{shop}1"[..], b"{shop}2", b"{shop}0", b"plain"][random.below(4)];
        Kind {
            stock: stock.to_vec(),
            // More than any stock has, most times.
            units: [1, 1 << 60][usize::from(!random.once_in(8))],
            form: random.below(9),
            has_buyer: random.once_in(3),
            has_token: random.once_in(3),
            arms: random.once_in(4),
            is_run: random.once_in(4),
        }
    }

    fn purchase(&self, random: &mut Random) -> Apply {
        let mut apply = Apply::new();
        let stock = apply.key(&self.stock);
        let hold = apply.key(&name_of_hold(random));
        let buyer = self.has_buyer.then(|| {
            let buyer = format!("{{shop}}buyer{}", random.below(6));
            apply.key(buyer.as_bytes())
        });
        self.guard(&mut apply, stock, hold, buyer, random);
        apply.then(stock.u64(0).decrease(self.units));
        let buyer_id = [random.below(3).to_le_bytes()[0]; 16];
        apply.put(hold, &buyer_id);
        if self.arms {
            apply.then(hold.expire_in(5));
            apply.on_expire(hold, |then| {
                then.then(stock.u64(0).increase(1u64));
            });
        } else {
            apply.then(hold.expire_in([4, 9_000][usize::from(self.has_token)]));
        }
        if let Some(buyer) = buyer {
            apply.start(buyer, &[0; 8]);
            apply.then(buyer.u64(0).increase(1u64));
        }
        apply
    }

    fn guard(
        &self,
        apply: &mut Apply,
        stock: ApplyKey,
        hold: ApplyKey,
        buyer: Option<ApplyKey>,
        random: &mut Random,
    ) {
        let is_left = stock.u64(0).at_least(self.units).or_else(7);
        match (self.form, buyer) {
            // The hold or the buyer is used, so another one may be answered otherwise.
            (0, _) => apply.then(hold.is_absent().or_else(1)).then(is_left),
            (1, Some(buyer)) => apply.then(buyer.is_absent()).then(is_left),
            (2, Some(buyer)) => apply.then(stock.u64(0).at_most(buyer.u64(0))),
            // Bytes of the data are used in front of the guard.
            (3, _) => apply
                .put(hold, &[random.below(2).to_le_bytes()[0]; 8])
                .then(is_left),
            (4, _) => apply.then(stock.exists()).then(is_left),
            (5, _) => apply.then(stock.has_version(Default::default())),
            (6, _) => apply.then(stock.u64(500).at_least(1u64)),
            _ => apply.then(is_left),
        };
    }
}

/// Most holds are not there. Some are keys that other items change, of the server, of another slot,
/// or the stock itself.
fn name_of_hold(random: &mut Random) -> Vec<u8> {
    match random.below(24) {
        0 => b"{shop}2".to_vec(),
        1 => b"{shop}3".to_vec(),
        2 => b"\0\0penstock/".to_vec(),
        3 => b"elsewhere 1".to_vec(),
        4..7 => format!("shop{}{{shop}}", 10 + random.below(80)).into_bytes(),
        _ => format!("{{shop}}hold{}", 10 + random.below(80)).into_bytes(),
    }
}

/// Purchases that mostly differ in the hold, the buyer and the token alone.
pub(super) fn purchases(
    random: &mut Random,
    batch: &mut BatchRequest,
    out: &mut Vec<u8>,
    items_max: usize,
) {
    let kind = Kind::some(random);
    let count = (1 + random.below(30)).min(items_max - batch.len());
    for _ in 0..count {
        if kind.has_token {
            let time_ms = [1, 1, 1, 0, 1 << 40][random.below(40).min(4) % 5];
            batch.token(Token::new(time_ms, [random.below(60).to_le_bytes()[0]; 10]));
        }
        if kind.is_run {
            let units = kind.units + u64::from(random.once_in(20));
            let run = Run::new(buy().id()).key(&kind.stock);
            let run = run.key(&name_of_hold(random)).argument(units);
            Ask::Run(&run).write(batch, out);
            continue;
        }
        let purchase = kind.purchase(random);
        match random.once_in(30) && !kind.has_token {
            true => {
                let mut frame = Vec::new();
                let mut one = BatchRequest::begin(&mut frame, 1, AckLevel::None, 0, 1);
                one.apply(&mut frame, &purchase);
                one.finish(&mut frame);
                let one = Batch::read(&frame[HEADER_BYTES..]).expect("well formed");
                let mut item = one.item(0).to_vec();
                let at = random.below(item.len());
                item[at] ^= 1 << random.below(8);
                batch.raw(out, &item);
            }
            false => batch.apply(out, &purchase),
        }
    }
}

/// Runs both with what follows from `seed`. How many items the first has answered in runs.
fn compare(seed: u64) -> u64 {
    let mut random = Random::new(seed);
    let log = log_config(SyncMethod::DurableWrite, 1);
    let config = shard_config(0, 1, 1);
    let budget = Budget::of_cache([0, 2_500, 1 << 20][random.below(3)]);
    let schema = Arc::new(ServedSchema {
        programs: Programs::new(vec![buy()]),
        layouts: Vec::new(),
        text: String::new(),
    });
    let sides = [(); 2].map(|()| {
        let mut side = Side::new(config.clone(), log.clone(), budget);
        let schema = Event::Schema(Arc::clone(&schema));
        let now = Now { us: 1, unix_ms: 1 };
        side.shard.step(now, schema, &mut side.outbox);
        side
    });
    let [in_runs, ..] = compare_sides(
        seed,
        &mut random,
        sides,
        usize::MAX,
        |random, request_id, _| {
            let level = [AckLevel::None, AckLevel::Disk][random.below(2)];
            let mut out = Vec::new();
            let items_max = 1 + random.below(60);
            let mut batch = BatchRequest::begin(&mut out, request_id, level, 0, items_max);
            while batch.len() < items_max {
                match random.below(6) {
                    0 => super::sets(random, &mut batch, &mut out, items_max),
                    _ => purchases(random, &mut batch, &mut out, items_max),
                }
            }
            batch.finish(&mut out);
            Some(out)
        },
    );
    in_runs
}

#[test]
fn purchases_that_are_denied_are_answered_logged_and_counted_as_one_by_one() {
    let (mut in_runs, mut count) = (0, 0);
    for number in seeds(12) {
        let seed = Seed(number);
        in_runs += compare(seed.0);
        count += 1;
    }
    assert!(in_runs > 100 * count, "{in_runs} items in runs");
}

/// A purchase of the last unit, which comes back when the hold expires.
fn purchase_for_a_moment(hold: &[u8]) -> Apply {
    let mut apply = Apply::new();
    let stock = apply.key(b"{shop}1");
    let hold = apply.key(hold);
    apply
        .then(stock.u64(0).at_least(1u64))
        .then(stock.u64(0).decrease(1u64))
        .put(hold, &[1; 8])
        .then(hold.expire_in(5));
    apply.on_expire(hold, |then| {
        then.then(stock.u64(0).increase(1u64));
    });
    apply
}

#[test]
fn a_purchase_whose_hold_has_expired_gets_the_unit_that_the_purchase_before_did_not_find() {
    let config = shard_config(0, 1, 1);
    let log = log_config(SyncMethod::DurableWrite, 1);
    let mut side = Side::new(config, log, Budget::of_cache(1 << 20));
    let mut now = Now { us: 1, unix_ms: 1 };
    let mut request_id = 0;
    let mut frame = |add: &dyn Fn(&mut BatchRequest, &mut Vec<u8>), items| {
        request_id += 1;
        let mut out = Vec::new();
        let mut batch = BatchRequest::begin(&mut out, request_id, AckLevel::Disk, 0, items);
        add(&mut batch, &mut out);
        batch.finish(&mut out);
        out
    };
    // HELLO, and segments.
    side.send(now, 0, &[]);
    side.settle(now);
    let stock = 1u64.to_le_bytes();
    let first = frame(
        &|batch, out| {
            batch.set(out, b"{shop}1", &stock, Condition::Always);
            batch.apply(out, &purchase_for_a_moment(b"{shop}hold1"));
        },
        2,
    );
    side.send(now, 0, &first);
    side.settle(now);
    side.read_answers();
    side.answers.clear();
    // No turn ends between the expiry of the hold and the next purchases, so its effects are due.
    now = Now {
        us: 20_000,
        unix_ms: 20,
    };
    let second = frame(
        &|batch, out| {
            for hold in [b"{shop}hold2", b"{shop}hold3", b"{shop}hold1"] {
                batch.apply(out, &purchase_for_a_moment(hold));
            }
        },
        3,
    );
    side.send(now, 0, &second);
    side.settle(now);
    side.read_answers();
    let answers = std::mem::take(&mut side.answers);
    let status = |bytes: &Vec<u8>| ReplyItem::read(bytes).expect("a reply item").head.status;
    let statuses: Vec<_> = answers.values().map(|all| status(&all[0])).collect();
    assert_eq!(
        statuses,
        [Status::GuardFailed, Status::GuardFailed, Status::Ok]
    );
    assert_eq!(side.quick()[0], 1, "the second one was answered in a run");
}

#[test]
fn runs_of_a_program_that_is_denied_are_answered_together() {
    let config = shard_config(0, 1, 1);
    let log = log_config(SyncMethod::DurableWrite, 1);
    let mut side = Side::new(config, log, Budget::of_cache(1 << 20));
    let now = Now { us: 1, unix_ms: 1 };
    let schema = Event::Schema(Arc::new(ServedSchema {
        programs: Programs::new(vec![buy()]),
        layouts: Vec::new(),
        text: String::new(),
    }));
    side.shard.step(now, schema, &mut side.outbox);
    side.send(now, 0, &[]);
    side.settle(now);
    let mut out = Vec::new();
    let mut batch = BatchRequest::begin(&mut out, 1, AckLevel::Disk, 0, 41);
    batch.set(&mut out, b"{shop}1", &[0; 8], Condition::Always);
    for number in 10..50 {
        let run = Run::new(buy().id()).key(b"{shop}1");
        let run = run.key(format!("{{shop}}hold{number}").as_bytes());
        Ask::Run(&run.argument(1u64)).write(&mut batch, &mut out);
    }
    batch.finish(&mut out);
    side.send(now, 0, &out);
    side.settle(now);
    side.read_answers();
    let denied = side.answers.values().filter(|all| {
        let head = ReplyItem::read(&all[0]).map(|item| item.head);
        head.is_ok_and(|it| it.status == Status::GuardFailed && it.reason == 9)
    });
    assert_eq!((denied.count(), side.quick()[0]), (40, 39));
}
