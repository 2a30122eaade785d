//! Flushing partitions on one shard: whatever comes before, between and behind, no key of before is
//! found any more, by no way to look, and all keys of behind are.

use std::collections::BTreeMap;

use penstock_net::apply::Apply;
use penstock_net::hello::{ClientHello, FEATURE_BEGAN};
use penstock_net::request::{BatchRequest, Condition, Token};
use penstock_net::slot::slot_of;
use penstock_net::status::Status;
use penstock_storage::budget::Budget;
use penstock_storage::log::SyncMethod;
use penstock_storage::version::partition_of;

use crate::image::Image;
use crate::random::Random;
use crate::seed::{Seed, seeds};
use crate::server::{Reply, Server, Snapshots, log_config};

const START_MS: u64 = 1_800_000_000_000;
const HOLD_MS: u64 = 60_000;

impl Server {
    /// The client is the process itself from now on, as the port for clients of Redis is.
    pub fn be_of_process(&mut self) {
        self.session = self.shard.front_mut().open_session_in_memory(self.now);
        let hello = ClientHello {
            protocol_min: 1,
            protocol_max: 1,
            features: FEATURE_BEGAN,
            name: "worlds",
        };
        hello.write(&mut self.inbox, u64::MAX);
        self.hand_over();
    }
}

struct Shop {
    server: Server,
    asked: usize,
    incarnation: u64,
    cache_bytes: usize,
    /// Bytes of log after which a snapshot is taken; 0 for none.
    snapshot_bytes: u64,
}

impl Shop {
    fn new(cache_bytes: usize, snapshot_bytes: u64) -> Shop {
        Shop::open(
            Image::default(),
            Snapshots::new(),
            START_MS,
            1,
            cache_bytes,
            snapshot_bytes,
        )
    }

    fn open(
        image: Image,
        snapshots: Snapshots,
        unix_ms: u64,
        incarnation: u64,
        cache_bytes: usize,
        snapshot_bytes: u64,
    ) -> Shop {
        let budget = Budget::of_cache(cache_bytes);
        let log = log_config(SyncMethod::DurableWrite, incarnation);
        let snapshots = (snapshots, snapshot_bytes);
        let server = Server::open_with(snapshots, budget, unix_ms, log, image, None);
        let mut server = server.expect("it opens");
        server.be_of_process();
        server.settle();
        Shop {
            server,
            asked: 0,
            incarnation,
            cache_bytes,
            snapshot_bytes,
        }
    }

    /// A crash, and a start that finds the snapshots or not.
    fn restart(&mut self, has_snapshots: bool) {
        let snapshots = match has_snapshots {
            true => self.server.snapshots.clone(),
            false => Snapshots::new(),
        };
        *self = Shop::open(
            self.server.device.image.clone(),
            snapshots,
            self.server.now.unix_ms,
            self.incarnation + 1,
            self.cache_bytes,
            self.snapshot_bytes,
        );
    }

    fn ask(&mut self, item: impl FnOnce(&mut BatchRequest, &mut Vec<u8>)) -> Reply {
        self.asked += 1;
        self.server.answer(self.asked, item)
    }

    fn set(&mut self, key: &[u8], value: &[u8]) {
        let reply = self.ask(|batch, out| batch.set(out, key, value, Condition::Always));
        assert_eq!(reply.status, Status::Ok);
    }

    fn get(&mut self, key: &[u8]) -> Option<Vec<u8>> {
        let reply = self.ask(|batch, out| batch.get(out, key));
        (reply.status == Status::Ok).then_some(reply.value)
    }

    /// Flushes the partition of a key.
    fn flush(&mut self, key: &[u8]) {
        let reply = self.ask(|batch, out| batch.flush(out, key));
        assert_eq!(reply.status, Status::Ok);
    }

    fn visible_keys(&self) -> usize {
        self.server.shard.store().data().visible_keys()
    }
}

fn key(number: usize) -> Vec<u8> {
    // Tags of which several are of one partition.
    format!("{{{}}}{number}", number % 7).into_bytes()
}

fn value(number: usize, round: usize) -> Vec<u8> {
    let mut value = vec![0x5A; 40 + (number * 131 + round * 17) % 900];
    value[..8].copy_from_slice(&(round as u64).to_le_bytes());
    value
}

/// A token of the begin.
fn token(number: u64) -> Token {
    let mut random = [0; 10];
    random[2..].copy_from_slice(&number.to_le_bytes());
    // The upper bits of a byte are those of the variant.
    random.reverse();
    Token::new(START_MS, random)
}

fn is_of(partition: usize, key: &[u8]) -> bool {
    partition_of(slot_of(key)) == partition
}

#[test]
fn whatever_is_set_deleted_and_flushed_is_found_again_over_evictions_cleaning_and_starts() {
    let (mut flushes, mut starts, mut cleaned, mut cold) = (0, 0, 0, 0);
    for seed in seeds(12) {
        let _named = Seed(seed);
        let mut random = Random::new(seed);
        let cache_bytes = [4_000, 1 << 20][usize::try_from(seed % 2).unwrap()];
        let snapshot_bytes = [0, 24 << 10][usize::try_from(seed / 2 % 2).unwrap()];
        let mut shop = Shop::new(cache_bytes, snapshot_bytes);
        let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        for round in 0..700 {
            let key = key(random.below(40));
            match random.below(40) {
                0 => {
                    shop.flush(&key);
                    let partition = partition_of(slot_of(&key));
                    model.retain(|key, _| !is_of(partition, key));
                    flushes += 1;
                }
                1 => {
                    cleaned += shop.server.cleaned();
                    shop.restart(random.once_in(2));
                    starts += 1;
                }
                2..8 => {
                    let reply = shop.ask(|batch, out| batch.del(out, &key, Condition::Always));
                    let was_there = model.remove(&key).is_some();
                    assert_eq!(reply.status == Status::Ok, was_there, "seed {seed}");
                }
                8..28 => {
                    let value = value(random.below(40), round);
                    shop.set(&key, &value);
                    model.insert(key, value);
                }
                _ => assert_eq!(shop.get(&key), model.get(&key).cloned(), "seed {seed}"),
            }
            if round % 50 == 0 {
                assert_eq!(
                    shop.visible_keys(),
                    model.len(),
                    "seed {seed}, round {round}"
                );
            }
        }
        for number in 0..40 {
            let key = key(number);
            assert_eq!(shop.get(&key), model.get(&key).cloned(), "seed {seed}");
        }
        cold += shop.server.wide_reads;
    }
    assert!(
        flushes > 100 && starts > 100,
        "{flushes} flushes, {starts} starts"
    );
    println!("{flushes} flushes, {starts} starts, {cleaned} segments cleaned, {cold} wide reads");
}

/// A shop with one unit on stock that returns to it when a hold expires, and a key beside.
fn held() -> Shop {
    let mut shop = Shop::new(1 << 20, 0);
    shop.set(b"{h}stock", &1u32.to_le_bytes());
    let mut apply = Apply::new();
    let (stock, hold) = (apply.key(b"{h}stock"), apply.key(b"{h}hold"));
    apply
        .then(stock.u32(0).decrease(1u64))
        .put(hold, &1u64.to_le_bytes())
        .then(hold.expire_in(HOLD_MS))
        .on_expire(hold, |effects| {
            effects.then(stock.u32(0).increase(1u64));
        });
    assert_eq!(
        shop.ask(|batch, out| batch.apply(out, &apply)).status,
        Status::Ok
    );
    shop
}

#[test]
fn an_armed_key_that_is_flushed_ends_without_its_effects_and_one_that_is_armed_again_fires() {
    for is_restarted in [false, true] {
        let mut shop = held();
        shop.flush(b"{h}stock");
        assert_eq!(shop.get(b"{h}hold"), None);
        if is_restarted {
            shop.restart(true);
        }
        // The stock that the effects are about is there again.
        shop.set(b"{h}stock", &7u32.to_le_bytes());
        shop.server.sleep(2 * HOLD_MS);
        shop.server.settle();
        assert_eq!(shop.get(b"{h}stock"), Some(7u32.to_le_bytes().into()));
        assert_eq!(shop.server.counters().firing.fired, 0);
        // The same key is armed with the same expiry before the old one is cleared.
        let mut shop = held();
        let hold_ms = shop.server.time_ms() + HOLD_MS;
        shop.flush(b"{h}stock");
        shop.set(b"{h}stock", &7u32.to_le_bytes());
        let mut apply = Apply::new();
        let (stock, hold) = (apply.key(b"{h}stock"), apply.key(b"{h}hold"));
        apply
            .put(hold, &1u64.to_le_bytes())
            .then(hold.expire_at(hold_ms))
            .on_expire(hold, |effects| {
                effects.then(stock.u32(0).increase(1u64));
            });
        assert_eq!(
            shop.ask(|batch, out| batch.apply(out, &apply)).status,
            Status::Ok
        );
        if is_restarted {
            shop.restart(true);
        }
        shop.server.sleep(2 * HOLD_MS);
        shop.server.settle();
        assert_eq!(shop.get(b"{h}stock"), Some(8u32.to_le_bytes().into()));
    }
}

#[test]
fn tokens_of_a_flushed_partition_are_known_before_and_behind_clearing_and_a_start() {
    let mut shop = Shop::new(1 << 20, 0);
    let decrease = |shop: &mut Shop, number: u64| {
        let mut apply = Apply::new();
        let stock = apply.key(b"{t}stock");
        apply.then(stock.u32(0).decrease(1u64));
        shop.ask(|batch, out| {
            batch.token(token(number));
            batch.apply(out, &apply);
        })
    };
    shop.set(b"{t}stock", &300u32.to_le_bytes());
    for number in 0..100 {
        assert_eq!(decrease(&mut shop, number).status, Status::Ok);
    }
    // The stock of before, if it came back, would tell other numbers.
    shop.flush(b"{t}stock");
    shop.set(b"{t}stock", &50u32.to_le_bytes());
    for is_restarted in [false, true] {
        if is_restarted {
            shop.restart(false);
        }
        for number in 0..100 {
            let reply = decrease(&mut shop, number);
            assert!(reply.is_replayed, "token {number} is known");
        }
        assert_eq!(shop.get(b"{t}stock"), Some(50u32.to_le_bytes().into()));
    }
    assert!(!decrease(&mut shop, 100).is_replayed);
    assert_eq!(shop.server.usage().tokens, 101);
}

#[test]
fn tokens_are_found_while_keys_beside_them_are_cleared_and_a_second_flush_waits() {
    let mut shop = Shop::new(1 << 24, 0);
    shop.asked = 100;
    for number in 0..9_000_u32 {
        shop.server.set(
            1_000 + number as usize,
            format!("{{c}}{number}").as_bytes(),
            b"v",
        );
        if number % 64 == 0 {
            shop.server.settle();
        }
    }
    shop.server.settle();
    shop.server.replies.clear();
    let put = |batch: &mut BatchRequest, out: &mut Vec<u8>| {
        batch.token(token(1));
        batch.set(out, b"{c}1", b"once", Condition::Absent);
    };
    shop.ask(|batch, out| batch.del(out, b"{c}1", Condition::Always));
    assert_eq!(shop.ask(put).status, Status::Ok);
    // Turn by turn: the mark, then its end on the disk, then steps of clearing.
    shop.server.send(1, |batch, out| batch.flush(out, b"{c}"));
    shop.server.send(2, |batch, out| {
        batch.set(out, b"{c}2", b"new", Condition::Absent)
    });
    shop.server.send(3, |batch, out| batch.flush(out, b"{c}"));
    shop.server.send(4, |batch, out| {
        batch.set(out, b"{c}3", b"newer", Condition::Absent)
    });
    let mut clearing = 0;
    for turn in 0..40 {
        shop.server.turn();
        shop.server.end(0);
        shop.server.now.us += 1_000;
        let id = 5 + turn;
        shop.server.send(id, put);
        clearing += usize::from(shop.server.shard.store().data().is_clearing());
    }
    shop.server.settle();
    assert!(clearing >= 4, "cleared in {clearing} turns");
    for id in 1..=4 {
        assert_eq!(
            shop.server.replies[&id].status,
            Status::Ok,
            "operation {id}"
        );
    }
    for id in 5..45 {
        assert!(shop.server.replies[&id].is_replayed, "operation {id}");
    }
    assert_eq!(shop.get(b"{c}1"), None);
    assert_eq!(shop.get(b"{c}2"), None);
    assert_eq!(shop.get(b"{c}3"), Some(b"newer".into()));
    assert_eq!(shop.visible_keys(), 1);
}
