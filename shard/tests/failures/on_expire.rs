//! Keys with effects that run when they expire, seen by a client: once, whoever comes first,
//! whatever is cold, over starts with and without a snapshot, and never after they were disarmed.

use penstock_net::apply::{Apply, ApplyKey};
use penstock_net::instruction::{FieldType, Instruction, Operation};
use penstock_net::request::{BatchRequest, Condition, Expiry, Token};
use penstock_net::status::Status;
use penstock_shard::FiringCounters;
use penstock_storage::budget::Budget;
use penstock_storage::log::SyncMethod;

use crate::image::Image;
use crate::random::Random;
use crate::seed::{Seed, seeds};
use crate::server::{Reply, Server, Snapshots, log_config};

const START_MS: u64 = 1_800_000_000_000;
const SECOND: u64 = 1_000;
const HOLD_MS: u64 = 600 * SECOND;
const STOCK: &[u8] = b"{7}stock";
/// Room for all that the tests write, and for next to nothing.
const WARM: usize = 1 << 24;
const COLD: usize = 2_500;

struct Shop {
    server: Server,
    asked: usize,
    incarnation: u64,
    cache_bytes: usize,
    /// Bytes of log after which a snapshot is taken; 0 for none.
    snapshot_bytes: u64,
}

fn open(
    snapshots: (Snapshots, u64),
    cache_bytes: usize,
    image: Image,
    incarnation: u64,
    unix_ms: u64,
) -> Server {
    let budget = Budget::of_cache(cache_bytes);
    let log = log_config(SyncMethod::DurableWrite, incarnation);
    Server::open_with(snapshots, budget, unix_ms, log, image, None).expect("it opens")
}

impl Shop {
    fn new(cache_bytes: usize, snapshot_bytes: u64) -> Self {
        let snapshots = (Snapshots::new(), snapshot_bytes);
        Shop {
            server: open(snapshots, cache_bytes, Image::default(), 1, START_MS),
            asked: 0,
            incarnation: 1,
            cache_bytes,
            snapshot_bytes,
        }
    }

    /// With so many units on stock.
    fn with_stock(units: u32) -> Self {
        let mut shop = Shop::new(WARM, 0);
        shop.set(STOCK, &units.to_le_bytes(), Expiry::Never);
        shop
    }

    fn ask(&mut self, item: impl FnOnce(&mut BatchRequest, &mut Vec<u8>)) -> Reply {
        self.asked += 1;
        self.server.send(self.asked, item);
        self.server.settle();
        self.server.replies.remove(&self.asked).expect("a reply")
    }

    fn set(&mut self, key: &[u8], value: &[u8], expiry: Expiry) {
        let reply = self.ask(|b, o| b.set_with(o, key, value, Condition::Always, expiry));
        assert_eq!(reply.status, Status::Ok);
    }

    fn get(&mut self, key: &[u8]) -> Option<Vec<u8>> {
        let reply = self.ask(|b, o| b.get(o, key));
        match reply.status {
            Status::Ok => Some(reply.value),
            status => {
                assert_eq!(status, Status::NotFound);
                None
            }
        }
    }

    fn apply(&mut self, apply: &Apply) -> Reply {
        self.ask(|b, o| b.apply(o, apply))
    }

    fn stock(&mut self) -> u32 {
        let value = self.get(STOCK).expect("there is stock");
        u32::from_le_bytes(*value.first_chunk().expect("four bytes"))
    }

    /// Two units leave the stock for a hold, and return when it expires.
    fn hold(&mut self, buyer: u32) -> Vec<u8> {
        let key = hold_key(buyer);
        let mut apply = Apply::new();
        let (stock, hold) = (apply.key(STOCK), apply.key(&key));
        apply
            .then(hold.is_absent())
            .then(stock.u32(0).decrease(2u64))
            .put(hold, &2u64.to_le_bytes())
            .then(hold.expire_in(HOLD_MS))
            .on_expire(hold, |effects| {
                effects.then(stock.u32(0).increase(hold.u64(0)));
            });
        assert_eq!(self.apply(&apply).status, Status::Ok);
        key
    }

    /// Time goes by, and nobody is there.
    fn sleep(&mut self, ms: u64) {
        self.server.sleep(ms);
    }

    /// Time goes by while the server turns.
    fn pass(&mut self, ms: u64) {
        self.sleep(ms);
        self.server.settle();
    }

    fn counters(&self) -> FiringCounters {
        self.server.counters().firing
    }

    /// A crash, and a start after so many milliseconds.
    fn restart(&mut self, later_ms: u64) {
        self.incarnation += 1;
        let unix_ms = self.server.now.unix_ms + later_ms;
        let image = self.server.device.image.clone();
        let snapshots = (self.server.snapshots.clone(), self.snapshot_bytes);
        let (cache_bytes, incarnation) = (self.cache_bytes, self.incarnation);
        self.server = open(snapshots, cache_bytes, image, incarnation, unix_ms);
        self.server.settle();
    }

    /// Writes so much that nothing else stays in a small cache.
    fn fill(&mut self) {
        for number in 0..40 {
            self.set(
                format!("filler{number}").as_bytes(),
                &[7; 900],
                Expiry::Never,
            );
        }
    }

    /// Writes until a snapshot is finished.
    fn take_snapshot(&mut self) {
        let before = self.server.snapshots.keys().next_back().copied();
        for number in 0..2_000 {
            let key = format!("filler{}", number % 7);
            self.set(key.as_bytes(), &[7; 1_500], Expiry::Never);
            if self.server.snapshots.keys().next_back().copied() > before {
                return;
            }
        }
        panic!("no snapshot is taken");
    }
}

fn hold_key(buyer: u32) -> Vec<u8> {
    format!("{{7}}hold:{buyer}").into_bytes()
}

#[test]
fn a_hold_that_expires_returns_its_stock_though_nobody_asks() {
    let mut shop = Shop::with_stock(10);
    let hold = shop.hold(1);
    assert_eq!(shop.stock(), 8);
    shop.pass(HOLD_MS - SECOND);
    assert_eq!((shop.stock(), shop.counters().fired), (8, 0));
    shop.pass(2 * SECOND);
    assert_eq!(shop.counters().fired, 1);
    assert_eq!((shop.stock(), shop.get(&hold)), (10, None));
    assert_eq!(shop.server.usage().timers, 0);
    shop.pass(2 * HOLD_MS);
    assert_eq!((shop.stock(), shop.counters().fired), (10, 1), "once");
}

#[test]
fn whoever_asks_for_an_expired_key_first_fires_it() {
    type Ask = fn(&mut Shop, &[u8]) -> Reply;
    let asks: [(Ask, Status); 5] = [
        (|shop, key| shop.ask(|b, o| b.get(o, key)), Status::NotFound),
        (
            |shop, key| {
                shop.ask(|b, o| b.set_with(o, key, b"anew", Condition::Always, Expiry::Never))
            },
            Status::Ok,
        ),
        (
            |shop, key| shop.ask(|b, o| b.del(o, key, Condition::Always)),
            Status::NotFound,
        ),
        (
            |shop, key| {
                shop.ask(|b, o| b.update_if_with(o, key, None, &[], Some(b"start"), Expiry::Keep))
            },
            Status::Ok,
        ),
        (
            |shop, key| {
                let mut apply = Apply::new();
                let (stock, hold) = (apply.key(STOCK), apply.key(key));
                apply
                    .then(hold.is_absent())
                    .then(stock.u32(0).equals(10u64))
                    .put(hold, b"anew");
                shop.apply(&apply)
            },
            Status::Ok,
        ),
    ];
    for (number, (ask, status)) in asks.into_iter().enumerate() {
        let mut shop = Shop::with_stock(10);
        let hold = shop.hold(1);
        shop.sleep(HOLD_MS + SECOND);
        assert_eq!(ask(&mut shop, &hold).status, status, "ask {number}");
        assert_eq!(
            (shop.stock(), shop.counters().fired),
            (10, 1),
            "ask {number}"
        );
    }
}

/// Does something to a hold.
type Do = fn(&mut Shop, &[u8]) -> Reply;

fn apply(shop: &mut Shop, key: &[u8], add: impl FnOnce(&mut Apply, ApplyKey)) -> Reply {
    let mut apply = Apply::new();
    let key = apply.key(key);
    add(&mut apply, key);
    shop.apply(&apply)
}

fn set(shop: &mut Shop, key: &[u8], expiry: Expiry) -> Reply {
    let value = 2u64.to_le_bytes();
    shop.ask(|b, o| b.set_with(o, key, &value, Condition::Always, expiry))
}

fn update(shop: &mut Shop, key: &[u8], by: u64, expiry: Expiry) -> Reply {
    let add = Instruction {
        operation: Operation::Add,
        field_type: FieldType::U64,
        key: 0,
        reason: 0,
        offset: 0,
        immediate: by,
    };
    shop.ask(|b, o| b.update_if_with(o, key, None, &[add], None, expiry))
}

#[test]
fn what_disarms_a_key_is_the_end_of_its_effects_and_what_keeps_its_expiry_keeps_them() {
    let cases: [(Do, u32); 13] = [
        (
            |shop, key| shop.ask(|b, o| b.del(o, key, Condition::Always)),
            8,
        ),
        (|shop, key| set(shop, key, Expiry::Never), 8),
        (|shop, key| set(shop, key, Expiry::In(SECOND)), 8),
        (|shop, key| set(shop, key, Expiry::Keep), 10),
        (|shop, key| update(shop, key, 0, Expiry::Never), 8),
        (
            |shop, key| update(shop, key, 0, Expiry::In(2 * HOLD_MS)),
            10,
        ),
        (|shop, key| update(shop, key, 1, Expiry::Keep), 11),
        (
            |shop, key| {
                apply(shop, key, |it, key| {
                    it.then(key.delete());
                })
            },
            8,
        ),
        (
            |shop, key| {
                apply(shop, key, |it, key| {
                    it.then(key.expire_at(0u64));
                })
            },
            8,
        ),
        (
            |shop, key| {
                apply(shop, key, |it, key| {
                    it.put(key, &2u64.to_le_bytes()).then(key.expire_in(9));
                })
            },
            8,
        ),
        (
            |shop, key| {
                apply(shop, key, |it, key| {
                    it.then(key.u64(0).increase(1u64)).then(key.expire_in(9));
                })
            },
            11,
        ),
        (
            |shop, key| {
                apply(shop, key, |it, key| {
                    it.then(key.expire_at(0u64)).then(key.expire_in(9));
                })
            },
            8,
        ),
        (
            |shop, key| {
                apply(shop, key, |it, key| {
                    it.on_expire(key, |_| {});
                })
            },
            8,
        ),
    ];
    for (number, (act, stock)) in cases.into_iter().enumerate() {
        for is_restarted in [false, true] {
            let mut shop = Shop::with_stock(10);
            let hold = shop.hold(1);
            assert_eq!(act(&mut shop, &hold).status, Status::Ok, "case {number}");
            if is_restarted {
                shop.restart(SECOND);
            }
            shop.pass(2 * HOLD_MS + SECOND);
            assert_eq!(
                shop.stock(),
                stock,
                "case {number}, restarted {is_restarted}"
            );
            assert_eq!(shop.server.usage().timers, 0, "case {number}");
        }
    }
}

#[test]
fn effects_run_once_over_starts_with_and_without_a_snapshot() {
    for snapshot_bytes in [0, 20_000] {
        let mut shop = Shop::new(COLD, snapshot_bytes);
        shop.set(STOCK, &100u32.to_le_bytes(), Expiry::Never);
        for buyer in 0..10 {
            shop.hold(buyer);
        }
        if snapshot_bytes > 0 {
            shop.take_snapshot();
        }
        shop.fill();
        // One more is armed behind the snapshot.
        shop.hold(10);
        shop.restart(SECOND);
        assert_eq!(shop.server.used.is_some(), snapshot_bytes > 0);
        assert_eq!((shop.stock(), shop.server.usage().timers), (78, 11));
        // The time comes while nobody is there.
        shop.restart(2 * HOLD_MS);
        shop.pass(SECOND);
        assert_eq!(shop.counters().fired, 11);
        assert_eq!(shop.stock(), 100);
        shop.restart(SECOND);
        shop.pass(SECOND);
        assert_eq!((shop.stock(), shop.counters().fired), (100, 0), "once");
    }
}

#[test]
fn keys_that_are_cold_are_read_for_their_effects() {
    let mut shop = Shop::new(COLD, 0);
    shop.set(STOCK, &100u32.to_le_bytes(), Expiry::Never);
    for buyer in 0..10 {
        shop.hold(buyer);
    }
    shop.fill();
    shop.sleep(HOLD_MS + SECOND);
    // The first one is asked for, the others are due.
    assert_eq!(shop.get(&hold_key(3)), None);
    shop.pass(SECOND);
    assert_eq!((shop.stock(), shop.counters().fired), (100, 10));
}

#[test]
fn cleaning_carries_effects_along() {
    let mut shop = Shop::new(COLD, 0);
    shop.set(STOCK, &100u32.to_le_bytes(), Expiry::Never);
    for buyer in 0..5 {
        shop.hold(buyer);
    }
    let before = shop.server.copied();
    for _ in 0..60 {
        shop.fill();
    }
    assert!(shop.server.copied() > before, "segments were cleaned");
    // Not a byte of the first records is left to a start.
    shop.restart(SECOND);
    assert_eq!((shop.stock(), shop.server.usage().timers), (90, 5));
    shop.pass(2 * HOLD_MS);
    assert_eq!((shop.stock(), shop.counters().fired), (100, 5));
}

#[test]
fn a_key_whose_effects_cannot_run_ends_all_the_same_and_is_reported() {
    let mut shop = Shop::with_stock(10);
    let hold = shop.hold(1);
    shop.ask(|b, o| b.del(o, STOCK, Condition::Always));
    shop.pass(HOLD_MS + SECOND);
    let FiringCounters { fired, failed, .. } = shop.counters();
    assert_eq!((fired, failed), (0, 1));
    assert_eq!((shop.get(&hold), shop.server.usage().timers), (None, 0));
    assert_eq!(
        shop.server.failed_effects,
        ["{7}hold:1: effect 0: its key has no value"]
    );
}

#[test]
fn armed_keys_that_wait_for_each_other_end() {
    let mut shop = Shop::with_stock(10);
    for (key, other) in [(b"{7}a", b"{7}b"), (b"{7}b", b"{7}a")] {
        let mut apply = Apply::new();
        let (stock, key, other) = (apply.key(STOCK), apply.key(key), apply.key(other));
        apply
            .put(key, b"1")
            .then(key.expire_in(SECOND))
            .on_expire(key, |effects| {
                effects.put(other, b"2").then(stock.u32(0).increase(1u64));
            });
        assert_eq!(shop.apply(&apply).status, Status::Ok);
    }
    shop.pass(2 * SECOND);
    let FiringCounters { fired, failed, .. } = shop.counters();
    assert_eq!(
        (fired, failed),
        (1, 1),
        "one ends, so the other one can run"
    );
    assert_eq!(shop.stock(), 11);
}

#[test]
fn an_expiry_without_effects_leaves_a_deletion_in_the_log() {
    let mut logged = Vec::new();
    for arms in [false, true] {
        let mut shop = Shop::with_stock(10);
        let mut apply = Apply::new();
        let key = apply.key(b"{7}k");
        apply.put(key, b"1").then(key.expire_in(SECOND));
        if arms {
            apply.on_expire(key, |_| {});
        }
        shop.apply(&apply);
        let before = shop.server.log_bytes();
        shop.pass(2 * SECOND);
        assert_eq!(shop.get(b"{7}k"), None);
        logged.push(shop.server.log_bytes() > before);
    }
    assert_eq!(logged, [false, true]);
}

#[test]
fn many_keys_that_are_due_at_once_take_a_bounded_share_of_each_turn() {
    let mut shop = Shop::with_stock(2_000);
    for buyer in 0..1_000 {
        shop.hold(buyer);
    }
    assert_eq!(shop.server.usage().timers, 1_000);
    shop.sleep(2 * HOLD_MS);
    let mut shares = Vec::new();
    for _ in 0..100 {
        let before = shop.counters().fired;
        shop.server.turn();
        shares.push(shop.counters().fired - before);
        shop.server.now.us += 1_000;
        while !shop.server.device.under_way().is_empty() {
            shop.server.end(0);
        }
    }
    // A turn whose records find no room in the log fires fewer.
    assert!(shares.iter().all(|&share| share <= 256), "{shares:?}");
    assert_eq!(shares.iter().sum::<u64>(), 1_000, "{shares:?}");
    assert_eq!(shop.stock(), 2_000);
}

const BUYERS: u32 = 8;
const SOLD: &[u8] = b"{7}sold";
const ALL: u32 = 40;

impl Shop {
    /// One step of a buyer: a purchase, or what follows it.
    fn trade(random: &mut Random) -> Apply {
        let key = hold_key(u32::try_from(random.below(BUYERS as usize)).expect("few"));
        let mut apply = Apply::new();
        let (stock, hold, sold) = (apply.key(STOCK), apply.key(&key), apply.key(SOLD));
        let lifetime_ms = [50, SECOND, HOLD_MS][random.below(3)];
        match random.below(5) {
            0 | 1 => {
                let units = 1 + random.below(5) as u64;
                apply
                    .then(hold.is_absent())
                    .then(stock.u32(0).decrease(units))
                    .put(hold, &units.to_le_bytes())
                    .then(hold.expire_in(lifetime_ms))
                    .on_expire(hold, |effects| {
                        effects.then(stock.u32(0).increase(hold.u64(0)));
                    });
            }
            2 => {
                apply
                    .then(sold.u32(0).increase(hold.u64(0)))
                    .then(hold.delete());
            }
            3 => {
                apply
                    .then(stock.u32(0).increase(hold.u64(0)))
                    .then(hold.delete());
            }
            _ => {
                apply
                    .then(hold.u64(0).at_least(1u64))
                    .then(hold.expire_in(lifetime_ms));
            }
        }
        apply
    }

    /// Nothing is lost and nothing comes twice, whenever somebody looks.
    fn judge(&mut self, about: &str) {
        let number = |value: Option<Vec<u8>>| {
            value.map_or(0, |it| {
                u32::from_le_bytes(*it.first_chunk().expect("a number"))
            })
        };
        for _ in 0..10 {
            let before = (number(self.get(STOCK)), number(self.get(SOLD)));
            let held: u32 = (0..BUYERS).map(|it| number(self.get(&hold_key(it)))).sum();
            let (stock, sold) = (number(self.get(STOCK)), number(self.get(SOLD)));
            // Otherwise a hold has expired between two looks.
            if before == (stock, sold) {
                assert_eq!(stock + held + sold, ALL, "{about}: {stock} {held} {sold}");
                return;
            }
        }
        panic!("{about}: holds expire for ever");
    }
}

#[test]
fn stock_holds_and_sales_add_up_over_crashes_cold_keys_and_snapshots() {
    let (mut fired, mut starts) = (0, 0);
    for seed in seeds(40) {
        let _seed = Seed(seed);
        let mut random = Random::new(seed);
        let cache_bytes = [WARM, COLD][random.below(2)];
        let snapshot_bytes = [0, 20_000][random.below(2)];
        let mut shop = Shop::new(cache_bytes, snapshot_bytes);
        shop.set(STOCK, &ALL.to_le_bytes(), Expiry::Never);
        shop.set(SOLD, &0u32.to_le_bytes(), Expiry::Never);
        for step in 0..40 {
            match random.below(12) {
                0 => shop.fill(),
                1 => shop.sleep([20, SECOND, HOLD_MS][random.below(3)]),
                2 => shop.pass([20, SECOND, HOLD_MS][random.below(3)]),
                3 => {
                    // A crash while something is under way.
                    let apply = Shop::trade(&mut random);
                    shop.asked += 1;
                    shop.server.send(shop.asked, |b, o| b.apply(o, &apply));
                    for _ in 0..random.below(6) {
                        shop.server.turn();
                        shop.server.end(random.below(3));
                    }
                    fired += shop.counters().fired;
                    starts += 1;
                    shop.restart([0, SECOND, HOLD_MS][random.below(3)]);
                }
                _ => {
                    let apply = Shop::trade(&mut random);
                    shop.apply(&apply);
                }
            }
            if random.below(3) == 0 {
                shop.judge(&format!("step {step}"));
            }
        }
        shop.judge("the end");
        shop.pass(2 * HOLD_MS);
        assert_eq!(shop.counters().failed, 0);
        assert_eq!(shop.server.usage().timers, 0);
        let (stock, sold) = (shop.stock(), shop.get(SOLD).expect("it is there"));
        let sold = u32::from_le_bytes(*sold.first_chunk().expect("a number"));
        assert_eq!(stock + sold, ALL);
        fired += shop.counters().fired;
    }
    assert!(fired > 100 && starts > 60, "{fired} fired, {starts} starts");
}

/// The same for a write with a token: the token is in the record beside the effects.
#[test]
fn a_write_with_a_token_arms_and_disarms_as_one_without() {
    let mut shop = Shop::with_stock(10);
    let with_token = |shop: &mut Shop, number: u8, apply: &Apply| {
        let token = Token::new(START_MS, [number; 10]);
        let reply = shop.ask(|batch, out| {
            batch.token(token);
            batch.apply(out, apply);
        });
        assert_eq!(reply.status, Status::Ok);
    };
    let back = |apply: &mut Apply, hold: ApplyKey, stock: ApplyKey| {
        apply.on_expire(hold, |effects| {
            effects.then(stock.u32(0).increase(2u64));
        });
    };
    // A new key is armed; its effects outlive a crash.
    let mut apply = Apply::new();
    let (stock, hold) = (apply.key(STOCK), apply.key(b"{7}new"));
    apply
        .then(stock.u32(0).decrease(2u64))
        .put(hold, b"2")
        .then(hold.expire_in(HOLD_MS));
    back(&mut apply, hold, stock);
    with_token(&mut shop, 1, &apply);
    // A key that is there is armed and nothing else.
    let expiry = Expiry::In(HOLD_MS);
    shop.set(b"{7}plain", b"2", expiry);
    let mut apply = Apply::new();
    let (hold, stock) = (apply.key(b"{7}plain"), apply.key(STOCK));
    back(&mut apply, hold, stock);
    with_token(&mut shop, 2, &apply);
    // An armed key is disarmed: its effects never run.
    let held = shop.hold(9);
    let mut apply = Apply::new();
    let hold = apply.key(&held);
    apply.put(hold, b"2").then(hold.expire_in(HOLD_MS));
    with_token(&mut shop, 3, &apply);
    assert_eq!(shop.stock(), 6);
    shop.restart(SECOND);
    assert_eq!(shop.stock(), 6);
    shop.pass(HOLD_MS);
    assert_eq!(shop.stock(), 10);
    assert_eq!(shop.counters().fired, 2);
}

/// What a disk that is full costs beside keys that wait for it.
#[test]
fn keys_that_wait_for_room_are_counted_once_each_and_tried_ever_more_seldom() {
    const HOLDS: u32 = 500;
    let mut shop = Shop::with_stock(1);
    for buyer in 0..HOLDS {
        let (key, left) = (hold_key(buyer), format!("{{7}}left:{buyer}"));
        let mut apply = Apply::new();
        let (hold, left) = (apply.key(&key), apply.key(left.as_bytes()));
        apply
            .put(hold, b"2")
            .then(hold.expire_in(HOLD_MS))
            .on_expire(hold, |effects| {
                effects.put(left, &[7; 500]);
            });
        assert_eq!(shop.apply(&apply).status, Status::Ok);
    }
    shop.server.is_full = true;
    let is_full = |number: u32| {
        let key = format!("fill:{number}");
        let set = shop.ask(|b, o| b.set(o, key.as_bytes(), &[7; 2_000], Condition::Always));
        set.status == Status::Full
    };
    assert!((0..5_000).any(is_full), "the disk is never full");
    shop.sleep(2 * HOLD_MS);
    // Five seconds in which the loop turns each millisecond, as beside much other traffic.
    for _ in 0..5_000 {
        shop.server.turn();
        shop.sleep(1);
        while !shop.server.device.under_way().is_empty() {
            shop.server.end(0);
        }
    }
    let waiting = shop.counters();
    assert_eq!((waiting.fired, waiting.failed), (0, 0));
    assert_eq!(waiting.full, u64::from(HOLDS), "keys, and not tries");
    // 64 in a turn; pauses of 10, 20, 40 and up to 320 ms.
    assert!(
        waiting.full_tries <= 64 * (6 + 5_000 / 320 + 1),
        "{waiting:?}"
    );
    shop.server.make_room();
    for _ in 0..100 {
        shop.pass(10);
    }
    let FiringCounters { fired, full, .. } = shop.counters();
    assert_eq!((fired, full), (HOLDS.into(), 0));
}

/// Arms keys that expire together. `names` tells which other key the effect of each is about, and
/// `effect` is the effect.
fn end_together(
    shop: &mut Shop,
    names: impl IntoIterator<Item = (u32, u32)>,
    effect: impl Fn(&mut Apply, ApplyKey),
) -> (u64, u64) {
    for (key, other) in names {
        let (key, other) = (hold_key(key), hold_key(other));
        let mut apply = Apply::new();
        let (key, other) = (apply.key(&key), apply.key(&other));
        apply
            .put(key, &1u32.to_le_bytes())
            .then(key.expire_at(START_MS + HOLD_MS))
            .on_expire(key, |effects| effect(effects, other));
        assert_eq!(shop.apply(&apply).status, Status::Ok);
    }
    shop.pass(HOLD_MS + SECOND);
    let FiringCounters { fired, failed, .. } = shop.counters();
    assert_eq!(shop.server.usage().timers, 0);
    (fired, failed)
}

fn increase(effects: &mut Apply, other: ApplyKey) {
    effects.then(other.u32(0).increase(1u64));
}

fn begin_anew(effects: &mut Apply, other: ApplyKey) {
    effects.start(other, b"anew");
}

#[test]
fn two_keys_that_end_together_and_add_to_each_other_lose_both_additions() {
    let mut shop = Shop::with_stock(1);
    let names = [(1, 2), (2, 1)];
    assert_eq!(end_together(&mut shop, names, increase), (0, 2));
    assert_eq!(
        (shop.get(&hold_key(1)), shop.get(&hold_key(2))),
        (None, None)
    );
    let failed = &shop.server.failed_effects;
    let has = |why: &str| failed.iter().filter(|it| it.ends_with(why)).count();
    assert_eq!(
        has("armed keys that expired wait for each other"),
        1,
        "{failed:?}"
    );
    assert_eq!(has("effect 0: its key has no value"), 1, "{failed:?}");
}

#[test]
fn of_two_keys_that_end_together_and_begin_each_other_anew_one_is_there_in_the_end() {
    let mut shop = Shop::with_stock(1);
    let names = [(1, 2), (2, 1)];
    assert_eq!(end_together(&mut shop, names, begin_anew), (1, 1));
    let left = [1, 2].map(|key| shop.get(&hold_key(key)));
    assert_eq!(left.iter().flatten().count(), 1, "{left:?}");
}

#[test]
fn a_chain_of_keys_that_end_together_runs_from_its_end_so_additions_find_no_key() {
    let mut shop = Shop::with_stock(1);
    let names = (0..50).map(|key| (key, key + 1));
    shop.set(&hold_key(50), &1u32.to_le_bytes(), Expiry::Never);
    assert_eq!(end_together(&mut shop, names, increase), (1, 49));
    let last = shop.get(&hold_key(50));
    assert_eq!(last.as_deref(), Some(&2u32.to_le_bytes()[..]));
    assert!((0..50).all(|key| shop.get(&hold_key(key)).is_none()));
}

#[test]
fn a_chain_of_keys_that_end_together_and_begin_each_other_anew_loses_no_effect() {
    let mut shop = Shop::with_stock(1);
    let names = (0..50).map(|key| (key, key + 1));
    assert_eq!(end_together(&mut shop, names, begin_anew), (50, 0));
    let left = (0..=50).map(|key| shop.get(&hold_key(key)));
    assert_eq!(left.flatten().count(), 50, "all but the first one");
}
