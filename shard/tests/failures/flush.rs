//! Flushing partitions on one shard: whatever comes before, between and behind, no key of before is
//! found any more, by no way to look, and all keys of behind are.

use std::collections::BTreeMap;

use penstock_net::apply::Apply;
use penstock_net::hello::{ClientHello, FEATURE_BEGAN};
use penstock_net::limits::Limits;
use penstock_net::request::{BatchRequest, Condition, Token};
use penstock_net::resp::{Client, Conversation};
use penstock_net::slot::slot_of;
use penstock_net::status::Status;
use penstock_storage::budget::Budget;
use penstock_storage::log::SyncMethod;
use penstock_storage::snapshot::{SNAPSHOT_VERSION, SNAPSHOT_VERSION_OF_MARKS};
use penstock_storage::version::partition_of;

use crate::image::Image;
use crate::random::Random;
use crate::scripts::{Peer, command};
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
    // Some of the seven tags share a partition.
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

/// The replies to commands that a connection sends at once.
fn pipelined(peer: &mut Peer, lines: &[String]) -> String {
    let mut bytes: Vec<u8> = lines.iter().flat_map(|line| command(line)).collect();
    let mut replies = Vec::new();
    peer.server.session = peer.session;
    for _ in 0..400 {
        let mut frame = Vec::new();
        let taken = peer.talk.take(&bytes, &mut frame, &peer.host);
        bytes.drain(..taken);
        peer.server.inbox.extend(frame);
        peer.server.hand_over();
        peer.server.turn();
        peer.server.end(0);
        peer.server.now.us += 1_000;
        let raw = peer.server.raw.replace(Vec::new()).expect("kept");
        peer.talk.answered(&raw, &peer.host);
        replies.append(peer.talk.out());
    }
    peer.server.settle();
    assert!(bytes.is_empty(), "all are taken");
    String::from_utf8(replies).expect("text")
}

/// Sets a key and has it leave the cache.
fn set_cold(peer: &mut Peer, key: &str, value: &str) {
    peer.ask(&format!("SET {key} {value}"));
    for pad in 0..8 {
        peer.ask(&format!("SET {{pad}}{pad} {}", "x".repeat(400)));
    }
}

#[test]
fn no_command_of_a_connection_passes_flushall_nor_is_passed_whatever_their_slots() {
    let server = Server::open(SyncMethod::DurableWrite, Image::default(), 1, None);
    let mut peer = Peer::connect(server.expect("it opens"), None);
    // The frames of this server are short: the items of a flush are in several.
    let limits = Limits {
        frame_bytes_max: 4 << 10,
        value_bytes_max: 3 << 10,
    };
    peer.talk = Conversation::new(Client::default(), limits, false);
    let before = peer.server.counters().parked;
    for round in 0..12 {
        // A change of before that waits for its key.
        let old = format!("old{round}");
        set_cold(&mut peer, &old, "v");
        let lines = [
            format!("APPEND {old} x"),
            "FLUSHALL".into(),
            format!("GET {old}"),
        ];
        assert_eq!(pipelined(&mut peer, &lines), ":2\r\n+OK\r\n$-1\r\n");
        // A read of before in a slot by which items of a flush go, and a change of behind in
        // another slot of its partition.
        let number = round.to_string();
        let slot = slot_of(number.as_bytes());
        let mut names = (0..).map(|at| format!("new{at}"));
        let new = names.find(|name| {
            let it = slot_of(name.as_bytes());
            it != slot && partition_of(it) == partition_of(slot)
        });
        let new = new.expect("endless");
        set_cold(&mut peer, &number, "v");
        let lines = [
            format!("GET {number}"),
            "FLUSHALL".into(),
            format!("SET {new} 1"),
            format!("GET {new}"),
        ];
        let expected = "$1\r\nv\r\n+OK\r\n+OK\r\n$1\r\n1\r\n";
        assert_eq!(pipelined(&mut peer, &lines), expected);
        assert_eq!(peer.ask(&format!("GET {new}")), "$1\\r\\n1\\r\\n");
    }
    let parked = peer.server.counters().parked - before;
    assert!(parked >= 5, "{parked} waited for a key");
}

#[test]
fn what_a_script_or_a_transaction_finds_missing_waits_for_the_mark_that_took_it() {
    for lines in [
        &["EVAL last 1 k GET~k"][..],
        &["EVAL_RO last 1 k EXISTS~k"],
        &["MULTI", "GET k", "EXEC"],
        &["MULTI", "GET k", "EXISTS other", "EXEC"],
    ] {
        let mut shop = Shop::new(1 << 20, 0);
        shop.set(b"k", b"v");
        let of_process = shop.server.session;
        let mut peer = Peer::connect(shop.server, None);
        peer.ask("KV.OPTS level=disk");
        peer.server.settle();
        peer.server.session = of_process;
        peer.server.send(9, |batch, out| batch.flush(out, b"k"));
        peer.server.turn();
        assert!(!peer.server.device.under_way().is_empty(), "the mark");
        peer.server.raw = Some(Vec::new());
        peer.server.session = peer.session;
        let mut bytes: Vec<u8> = lines.iter().flat_map(|line| command(line)).collect();
        let mut frame = Vec::new();
        let taken = peer.talk.take(&bytes, &mut frame, &peer.host);
        bytes.drain(..taken);
        assert!(bytes.is_empty());
        peer.server.inbox.extend(frame);
        peer.server.hand_over();
        for _ in 0..5 {
            peer.server.turn();
        }
        assert_eq!(peer.server.raw, Some(Vec::new()), "{lines:?}");
        peer.server.settle();
        let raw = peer.server.raw.replace(Vec::new()).expect("kept");
        assert!(!raw.is_empty(), "{lines:?} are answered");
    }
}

#[test]
fn a_snapshot_says_that_marks_are_in_the_index_and_a_start_takes_it() {
    let mut shop = Shop::new(1 << 20, 24 << 10);
    let mut number = 0;
    let mut version_of_next = |shop: &mut Shop| {
        let newest = |shop: &Shop| shop.server.snapshots.keys().next_back().copied();
        let before = newest(shop);
        while newest(shop) == before {
            number += 1;
            // No key is set twice, so nothing is cleaned.
            shop.set(&key(number), &value(number, number));
            assert!(number < 2_000, "snapshots are taken");
        }
        let (_, bytes) = shop
            .server
            .snapshots
            .iter()
            .next_back()
            .expect("there is one");
        u32::from_le_bytes(bytes[8..12].try_into().expect("four bytes"))
    };
    assert_eq!(version_of_next(&mut shop), SNAPSHOT_VERSION);
    // The first one may have begun before the mark, which is then replayed. The newest mark is
    // never in the oldest segment, with which it would be gone.
    let mut versions = [SNAPSHOT_VERSION; 3];
    for version in &mut versions {
        shop.set(b"{gone}", b"v");
        shop.flush(b"{gone}");
        *version = version_of_next(&mut shop);
    }
    assert_eq!(versions[2], SNAPSHOT_VERSION_OF_MARKS);
    shop.restart(true);
    assert!(shop.server.used.is_some(), "the snapshot is used");
    assert_eq!(shop.get(b"{gone}"), None);
}

#[test]
fn an_empty_partition_is_flushed_at_once_and_one_with_new_keys_is_cleared_before_others() {
    let mut shop = Shop::new(1 << 24, 0);
    shop.asked = 100;
    for number in 0..30_000_u32 {
        let id = 1_000 + number as usize;
        shop.server
            .set(id, format!("{{c}}{number}").as_bytes(), b"v");
        if number % 64 == 0 {
            shop.server.settle();
        }
    }
    shop.server.settle();
    shop.set(b"{d}", b"v");
    assert_ne!(partition_of(slot_of(b"{c}")), partition_of(slot_of(b"{d}")));
    // A token goes back to its slot before the others are cleared.
    let token = token(1);
    shop.ask(|batch, out| {
        batch.token(token);
        batch.set(out, b"{c}1", b"once", Condition::Always);
    });
    shop.server.send(1, |batch, out| batch.flush(out, b"{c}"));
    shop.server.send(2, |batch, out| batch.flush(out, b"{d}"));
    let step = |shop: &mut Shop, id: usize| {
        for turn in 0.. {
            assert!(turn < 4, "operation {id} is answered soon");
            shop.server.turn();
            shop.server.end(0);
            shop.server.now.us += 1_000;
            if shop.server.replies.contains_key(&id) {
                break;
            }
        }
        assert_eq!(shop.server.replies[&id].status, Status::Ok);
    };
    step(&mut shop, 2);
    shop.server.send(3, |batch, out| batch.flush(out, b"{c}"));
    step(&mut shop, 3);
    assert!(shop.server.shard.store().data().is_clearing());
    shop.server.send(4, |batch, out| {
        batch.set(out, b"{d}", b"new", Condition::Always)
    });
    shop.server.send(5, |batch, out| batch.flush(out, b"{d}"));
    step(&mut shop, 5);
    assert!(shop.server.shard.store().data().is_clearing());
    shop.server.settle();
    assert_eq!(shop.get(b"{d}"), None);
    assert_eq!(shop.visible_keys(), 0);
}
