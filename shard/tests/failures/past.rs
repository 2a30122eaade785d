//! Keyspaces and the past of keys, seen by a client, against a model: every version that must be kept
//! is answered as it was, whatever cleaning and starts did in between, and what is not kept is never taken
//! for what was not there.

use penstock_net::field::Field;
use penstock_net::keyspace::{Action, At, History, Settings, read_keyspaces};
use penstock_net::level::AckLevel;
use penstock_net::request::{BatchRequest, Condition, Expiry, Version};
use penstock_net::scan::{ScanPage, ScanRequest, ScanValue};
use penstock_net::slot::slot_of;
use penstock_net::status::Status;
use penstock_storage::budget::Budget;
use penstock_storage::io::Io;
use penstock_storage::keyspace::{SETTINGS_BYTES, keyspace_key};
use penstock_storage::log::{Log, Purpose, Room, SyncMethod};
use penstock_storage::place::LogStart;
use penstock_storage::record::{PartSpec, PartView, RecordSpec};
use penstock_storage::recovery::Replayed;
use penstock_storage::store::Store;
use penstock_storage::version::PARTITIONS;

use crate::device::Device;
use crate::heap::Heap;
use crate::image::Image;
use crate::random::Random;
use crate::server::{Failure, Reply, SEGMENT_BYTES, Server, Snapshots, log_config};

const START_MS: u64 = 1_800_000_000_000;
const KEYS: usize = 6;
/// How often everything that was begun ends before an answer must be there.
const SETTLES_MAX: usize = 50;

struct Shop {
    server: Server,
    asked: usize,
    incarnation: u64,
    /// The latest time that a run before this one came to.
    latest_ms: u64,
    /// Bytes of log after which a snapshot is taken; 0 for none.
    snapshot_bytes: u64,
    /// Starts that used one.
    snapshots_used: usize,
}

impl Shop {
    fn new() -> Shop {
        Shop::with_snapshots(0)
    }

    fn with_snapshots(snapshot_bytes: u64) -> Shop {
        let snapshots = (Snapshots::new(), snapshot_bytes);
        Shop {
            server: open(snapshots, Image::default(), 1, START_MS),
            asked: 0,
            incarnation: 1,
            latest_ms: 0,
            snapshot_bytes,
            snapshots_used: 0,
        }
    }

    /// Writes until another snapshot is finished.
    fn take_snapshot(&mut self) {
        let newest = |shop: &Shop| shop.server.snapshots.keys().next_back().copied();
        let before = newest(self);
        for number in 0..2_000 {
            let name = format!("filler{}", number % 7).into_bytes();
            let reply = self.set(&name, &[7; 1_500], Expiry::Never);
            assert_eq!(reply.status, Status::Ok, "{}", text(&reply));
            if newest(self) > before {
                return;
            }
        }
        panic!("no snapshot is taken");
    }

    fn ask(&mut self, item: impl FnOnce(&mut BatchRequest, &mut Vec<u8>)) -> Reply {
        self.asked += 1;
        self.server.send(self.asked, item);
        let before = self.server.now.us;
        // On a full disk cleaning may have to make room first.
        for _ in 0..SETTLES_MAX {
            self.server.settle();
            if self.server.replies.contains_key(&self.asked) {
                break;
            }
        }
        self.server.now.unix_ms += (self.server.now.us - before) / 1_000;
        self.server.replies.remove(&self.asked).expect("a reply")
    }

    fn keyspace(&mut self, prefix: &[u8], action: Action) -> Reply {
        self.ask(|b, o| b.keyspace(o, prefix, action))
    }

    fn set(&mut self, key: &[u8], value: &[u8], expiry: Expiry) -> Reply {
        self.ask(|b, o| b.set_with(o, key, value, Condition::Always, expiry))
    }

    fn get(&mut self, key: &[u8]) -> Reply {
        self.ask(|b, o| b.get(o, key))
    }

    fn get_at(&mut self, key: &[u8], at: At) -> Reply {
        self.ask(|b, o| b.get_at(o, key, at))
    }

    fn history(&mut self, key: &[u8], before: u64, limit: u32) -> History {
        let reply = self.ask(|b, o| b.history(o, key, before, limit));
        assert_eq!(reply.status, Status::Ok, "{}", text(&reply));
        History::read(&reply.value).expect("a history")
    }

    /// What was let go by then need not come back when a start is in an earlier time.
    fn latest_ms(&self) -> u64 {
        self.latest_ms.max(self.server.time_ms())
    }

    fn pass(&mut self, ms: u64) {
        self.server.now.us += ms * 1_000;
        self.server.now.unix_ms += ms;
        self.server.settle();
    }

    fn restart(&mut self) {
        self.restart_earlier(0);
    }

    /// Meanwhile the wall clock was put back.
    fn restart_earlier(&mut self, back_ms: u64) {
        self.incarnation += 1;
        self.latest_ms = self.latest_ms();
        let unix_ms = self.server.now.unix_ms - back_ms;
        let image = self.server.device.image.clone();
        let snapshots = (self.server.snapshots.clone(), self.snapshot_bytes);
        self.server = open(snapshots, image, self.incarnation, unix_ms);
        assert_eq!(self.server.refused, [""; 0]);
        self.snapshots_used += usize::from(self.server.used.is_some());
    }
}

fn open(snapshots: (Snapshots, u64), image: Image, incarnation: u64, unix_ms: u64) -> Server {
    let budget = Budget::of_cache(2_500);
    let log = log_config(SyncMethod::DurableWrite, incarnation);
    Server::open_with(snapshots, budget, unix_ms, log, image, None).expect("it opens")
}

fn text(reply: &Reply) -> String {
    format!(
        "{}: {}",
        reply.status.name(),
        String::from_utf8_lossy(&reply.value)
    )
}

fn kept(versions: u8, retention_ms: u64) -> Settings {
    Settings {
        versions,
        retention_ms,
        ..Settings::default()
    }
}

#[test]
fn settings_are_in_force_at_once_and_after_a_start() {
    let mut shop = Shop::new();
    let settings = Settings {
        level_min: AckLevel::Disk,
        value_bytes_max: 10,
        ttl_ms: 500,
        ..Settings::default()
    };
    assert_eq!(
        shop.keyspace(b"hold:", Action::Create(settings)).status,
        Status::Ok
    );
    let again = shop.keyspace(b"hold:", Action::Create(settings));
    assert_eq!(text(&again), "EXISTS: keyspace \"hold:\" exists");
    for _ in 0..2 {
        let reply = shop.set(b"hold:1", &[1; 11], Expiry::Never);
        assert_eq!(
            text(&reply),
            "TOO_LARGE: value of 11 bytes; keyspace \"hold:\" accepts at most 10"
        );
        assert_eq!(
            shop.set(b"hold:1", &[1; 10], Expiry::Never).status,
            Status::Ok
        );
        assert_eq!(
            shop.set(b"held:1", &[1; 11], Expiry::Never).status,
            Status::Ok
        );
        assert_eq!(shop.get(b"hold:1").status, Status::Ok);
        shop.pass(600);
        assert_eq!(shop.get(b"hold:1").status, Status::NotFound, "it expired");
        assert_eq!(shop.get(b"held:1").status, Status::Ok);
        let list = read_keyspaces(&shop.keyspace(b"", Action::List).value).expect("a list");
        assert_eq!((list.len(), list[0].settings), (1, settings));
        shop.restart();
    }
    assert_eq!(shop.keyspace(b"hold:", Action::Drop).status, Status::Ok);
    assert_eq!(
        shop.keyspace(b"hold:", Action::Drop).status,
        Status::NotFound
    );
    shop.restart();
    assert_eq!(
        shop.set(b"hold:1", &[1; 11], Expiry::Never).status,
        Status::Ok
    );
    let list = read_keyspaces(&shop.keyspace(b"", Action::List).value).expect("a list");
    assert!(list.is_empty());
}

#[test]
fn keys_of_the_server_are_refused() {
    let mut shop = Shop::new();
    let reply = shop.get(b"\0\0penstock/keyspace/{0}");
    assert_eq!(
        text(&reply),
        "BAD_KEY: key 0 begins with \\0\\0penstock/, which is reserved for the server's own keys"
    );
}

#[test]
fn a_scan_tells_keys_as_they_are_and_nothing_of_the_past_or_of_the_server() {
    let mut shop = Shop::new();
    for prefix in [&b""[..], b"price:"] {
        assert_eq!(
            shop.keyspace(prefix, Action::Create(kept(9, 0))).status,
            Status::Ok
        );
    }
    for value in [b"1", b"2", b"3"] {
        for key in [&b"price:1"[..], b"price:2", b"other"] {
            assert_eq!(shop.set(key, value, Expiry::Never).status, Status::Ok);
        }
    }
    shop.ask(|b, o| b.del(o, b"price:2", Condition::Always));
    for _ in 0..3 {
        assert_eq!(shop.history(b"price:1", 0, 9).versions.len(), 3);
        let mut told = Vec::new();
        let mut cursor = 0;
        loop {
            let mut item = Vec::new();
            let request = ScanRequest {
                cursor,
                prefix: b"",
                entries_max: 1024,
                bytes_max: 4096,
                wants_values: true,
            };
            request.write(&mut item);
            let reply = shop.ask(|b, o| b.raw(o, &item));
            let page = ScanPage::read(&reply.value).expect("a page");
            told.extend(
                page.entries()
                    .map(|entry| (entry.key.to_vec(), entry.value))
                    .map(|(key, value)| (key, format!("{value:?}"))),
            );
            cursor = page.cursor;
            if cursor == 0 {
                break;
            }
        }
        told.sort();
        let value = format!("{:?}", ScanValue::Bytes(b"3"));
        assert_eq!(
            told,
            [
                (b"other".to_vec(), value.clone()),
                (b"price:1".to_vec(), value)
            ]
        );
        shop.restart();
    }
}

#[test]
fn a_start_behind_a_snapshot_knows_the_past_that_the_log_tells() {
    let mut shop = Shop::with_snapshots(1);
    let set = |shop: &mut Shop, key: &[u8], value: &[u8]| {
        let reply = shop.set(key, value, Expiry::Never);
        assert_eq!(reply.status, Status::Ok, "{}", text(&reply));
        reply.version
    };
    let settings = |shop: &mut Shop, prefix: &[u8], action| {
        assert_eq!(shop.keyspace(prefix, action).status, Status::Ok);
    };
    // Written before versions are kept, and superseded before and behind the snapshot.
    let mut early: Vec<Vec<Version>> = [b"price:1", b"price:2", b"price:3", b"price:4"]
        .map(|key| vec![set(&mut shop, key, b"0")])
        .into();
    settings(&mut shop, b"price:", Action::Create(kept(3, 0)));
    settings(&mut shop, b"drop:", Action::Create(kept(3, 0)));
    settings(&mut shop, b"less:", Action::Create(kept(9, 0)));
    settings(&mut shop, b"time:", Action::Create(kept(0, 3_000)));
    for value in 0..6 {
        for key in [&b"drop:1"[..], b"less:1", b"time:1"] {
            set(&mut shop, key, &[value]);
        }
    }
    early[0].push(set(&mut shop, b"price:1", b"1"));
    let deleted = shop.ask(|b, o| b.del(o, b"price:4", Condition::Always));
    early[3].push(deleted.version);
    // Its time ends, nothing is written since, and the wall clock is put back.
    shop.pass(3_000);
    for _ in 0..20 {
        shop.pass(1);
    }
    shop.take_snapshot();
    early[1].push(set(&mut shop, b"price:2", b"1"));
    early[3].push(set(&mut shop, b"price:4", b"1"));
    settings(&mut shop, b"drop:", Action::Drop);
    settings(&mut shop, b"less:", Action::Set(kept(2, 0)));
    settings(&mut shop, b"price:3", Action::Create(kept(5, 0)));
    early[2].push(set(&mut shop, b"price:3", b"1"));
    settings(&mut shop, b"price:", Action::Drop);
    settings(&mut shop, b"price:", Action::Create(kept(9, 0)));
    for start in 1..4 {
        shop.restart_earlier(2_500);
        assert_eq!(shop.snapshots_used, start);
        for _ in 0..10 {
            shop.pass(1);
        }
        let mut told = |key: &[u8]| -> Vec<Version> {
            let versions = shop.history(key, 0, 30).versions;
            versions.iter().rev().map(|kept| kept.version).collect()
        };
        // The history of all but this began anew with the last change of settings.
        assert_eq!(told(b"price:3"), early[2]);
        for key in [0, 1, 3] {
            let key_name = format!("price:{}", key + 1);
            let newest = early[key].last().copied();
            assert_eq!(told(key_name.as_bytes()).last().copied(), newest);
            assert_eq!(told(key_name.as_bytes()).len(), 1);
        }
        assert_eq!(told(b"less:1").len(), 3);
        assert_eq!(told(b"time:1").len(), 1, "its time had ended");
        let reply = shop.get_at(b"drop:1", At::TimeMs(START_MS));
        assert_eq!(reply.status, Status::NotKept, "{}", text(&reply));
        assert_eq!(shop.get(b"drop:1").value, [5]);
    }
}

#[test]
fn what_stood_there_before_versions_were_kept_is_found_behind_a_snapshot() {
    let mut shop = Shop::with_snapshots(1);
    let mut told = Vec::new();
    for key in [b"k1", b"k2", b"k3"] {
        let reply = shop.set(key, b"0", Expiry::Never);
        told.push(vec![reply.version]);
    }
    let made = shop.keyspace(b"k", Action::Create(kept(5, 0)));
    assert_eq!(made.status, Status::Ok);
    shop.take_snapshot();
    let second = shop.set(b"k1", b"1", Expiry::Never);
    told[0].push(second.version);
    let second = shop.ask(|b, o| b.del(o, b"k2", Condition::Always));
    told[1].push(second.version);
    for start in 1..4 {
        shop.restart();
        assert_eq!(shop.snapshots_used, start);
        for (key, expected) in [b"k1", b"k2", b"k3"].into_iter().zip(&told) {
            let history = shop.history(key, 0, 9).versions;
            let versions = history.iter().rev().map(|kept| kept.version);
            assert!(versions.eq(expected.iter().copied()), "{history:?}");
            let was = shop.get_at(key, At::Version(expected[0]));
            assert_eq!((was.status, &was.value[..]), (Status::Ok, &b"0"[..]));
        }
    }
}

#[test]
fn kept_versions_that_cleaning_moved_since_a_snapshot_are_found() {
    let mut shop = Shop::with_snapshots(1 << 20);
    let made = shop.keyspace(b"k", Action::Create(kept(100, 0)));
    assert_eq!(made.status, Status::Ok);
    let mut versions = Vec::new();
    for number in 0..60_u8 {
        // Each stands in a segment of which little counts.
        for filler in 0..3 {
            let name = format!("filler{filler}").into_bytes();
            shop.set(&name, &[7; 1_900], Expiry::Never);
        }
        versions.push(shop.set(b"k", &[number], Expiry::Never).version);
        if number == 40 {
            shop.snapshot_bytes = 1;
            shop.restart();
            shop.take_snapshot();
        }
    }
    let released = shop.server.cleaned();
    for _ in 0..600 {
        shop.set(b"filler", &[7; 1_900], Expiry::Never);
    }
    assert!(shop.server.cleaned() > released, "segments were cleaned");
    for start in 1..3 {
        shop.restart();
        assert_eq!(shop.snapshots_used, start);
        for (number, &version) in (0..).zip(&versions) {
            let was = shop.get_at(b"k", At::Version(version));
            assert_eq!((was.status, &was.value[..]), (Status::Ok, &[number][..]));
        }
    }
}

#[test]
fn what_was_before_a_deletion_that_nobody_noted_is_not_shown() {
    let mut shop = Shop::new();
    let made = shop.keyspace(b"k", Action::Create(kept(0, 3_600_000)));
    assert_eq!(made.status, Status::Ok);
    let mut before = Version::default();
    for _ in 0..2_500 {
        before = shop.set(b"k1", b"1", Expiry::Never).version;
    }
    assert_eq!(shop.keyspace(b"k", Action::Drop).status, Status::Ok);
    shop.ask(|b, o| b.del(o, b"k1", Condition::Always));
    let made = shop.keyspace(b"k", Action::Set(kept(9, 0)));
    assert_eq!(made.status, Status::Ok);
    let reply = shop.set(b"k1", b"2", Expiry::Never);
    let versions = shop.history(b"k1", 0, 9).versions;
    assert_eq!((versions.len(), versions[0].version), (1, reply.version));
    let was = shop.get_at(b"k1", At::Version(before));
    assert_eq!(was.status, Status::NotKept, "{}", text(&was));
}

#[test]
fn what_a_longer_prefix_keeps_stays_when_the_shorter_one_is_dropped() {
    let mut shop = Shop::new();
    for create in [&b"price:"[..], b"price:4"] {
        let reply = shop.set(b"price:42", create, Expiry::Never);
        assert_eq!(reply.status, Status::Ok);
        let made = shop.keyspace(create, Action::Create(kept(3, 0)));
        assert_eq!(made.status, Status::Ok);
    }
    let first = shop.get(b"price:42").version;
    let second = shop.set(b"price:42", b"2", Expiry::Never).version;
    assert_eq!(shop.keyspace(b"price:", Action::Drop).status, Status::Ok);
    for start in [false, true] {
        for _ in 0..10 {
            shop.pass(10);
        }
        let versions = shop.history(b"price:42", 0, 9).versions;
        let told: Vec<_> = versions.iter().map(|kept| kept.version).collect();
        assert_eq!(told, [second, first], "after a start: {start}");
        let was = shop.get_at(b"price:42", At::Version(first));
        assert_eq!((was.status, &was.value[..]), (Status::Ok, &b"price:4"[..]));
        shop.restart();
    }
}

#[test]
fn the_past_ends_before_the_memory_does() {
    const HOUR_MS: u64 = 3_600_000;
    let mut shop = Shop::new();
    for (prefix, settings) in [(&b"all:"[..], kept(0, HOUR_MS)), (b"two:", kept(2, 0))] {
        let made = shop.keyspace(prefix, Action::Create(settings));
        assert_eq!(made.status, Status::Ok);
    }
    for key in [&b"all:1"[..], b"two:1", b"none:1"] {
        for _ in 0..4 {
            assert_eq!(shop.set(key, &[7; 8], Expiry::Never).status, Status::Ok);
        }
    }
    let usage = shop.server.usage();
    // What is left when the reserve for values is taken: a hundred versions, about.
    let bytes_max = usage.index_bytes + usage.version_bytes + 6_000;
    shop.server
        .set_memory_bytes_max((bytes_max + (2 << 20)) * 8 / 7);
    let mut written = 0;
    let refused = loop {
        let reply = shop.set(b"all:1", &[7; 8], Expiry::Never);
        if reply.status != Status::Ok {
            break reply;
        }
        written += 1;
        assert!(written < 1_000, "nothing bounds what is kept");
    };
    assert!(written > 10);
    let message = text(&refused);
    assert!(
        message.starts_with("FULL: no memory for another key or kept version: memory_max = "),
        "{message}"
    );
    let add = [Field::u64(0).increase(1)];
    let version = shop.get(b"all:1").version;
    let edit = |shop: &mut Shop, key: &[u8]| {
        let reply = shop.ask(|b, o| b.update_if(o, key, None, &add, None));
        reply.status
    };
    assert_eq!(edit(&mut shop, b"all:1"), Status::Full);
    let deleted = shop.ask(|b, o| b.del(o, b"all:1", Condition::Always));
    assert_eq!(text(&deleted), message, "a deletion is a version too");
    let now = shop.get(b"all:1");
    assert_eq!((now.version, &now.value[..]), (version, &[7; 8][..]));
    // What adds nothing to the past goes on.
    for key in [&b"two:1"[..], b"none:1"] {
        assert_eq!(shop.set(key, &[7; 8], Expiry::Never).status, Status::Ok);
        assert_eq!(edit(&mut shop, key), Status::Ok);
    }
    let usage = shop.server.usage();
    assert!(usage.index_bytes + usage.version_bytes <= bytes_max + 4_000);
    for key in [&b"two:1"[..], b"none:1"] {
        let deleted = shop.ask(|b, o| b.del(o, key, Condition::Always));
        assert_eq!(deleted.status, Status::Ok, "{}", text(&deleted));
    }
    shop.pass(HOUR_MS);
    for _ in 0..100 {
        shop.pass(1);
    }
    assert_eq!(edit(&mut shop, b"all:1"), Status::Ok);
    assert_eq!(
        shop.set(b"all:1", &[7; 8], Expiry::Never).status,
        Status::Ok
    );
}

#[test]
fn a_start_with_a_long_past_stays_within_its_memory() {
    let mut shop = Shop::new();
    let made = shop.keyspace(b"past:", Action::Create(kept(255, 0)));
    assert_eq!(made.status, Status::Ok);
    for number in 0..4_000_u32 {
        let reply = shop.set(
            &[b"past:", &[number.to_le_bytes()[0] % 32][..]].concat(),
            b"1",
            Expiry::Never,
        );
        assert_eq!(reply.status, Status::Ok);
    }
    for number in 0..300 {
        let key = format!("value:{number}").into_bytes();
        assert_eq!(
            shop.set(&key, &[7; 1_000], Expiry::Never).status,
            Status::Ok
        );
    }
    let usage = shop.server.usage();
    assert!(usage.version_bytes > 200_000);
    let budget = Budget {
        cache_bytes_max: usize::MAX,
        memory_bytes_max: usage.index_bytes + 400_000,
        cells_bytes_min: 0,
    };
    let image = shop.server.device.image.clone();
    let sync = SyncMethod::DurableWrite;
    let server = Server::open_within(budget, START_MS, sync, image, 2, None).expect("it opens");
    let usage = server.usage();
    assert!(usage.version_bytes > 200_000);
    assert!(usage.memory_bytes <= budget.memory_bytes_max, "{usage:?}");
}

#[test]
fn keys_of_before_versions_were_kept_take_no_entries_after_a_start() {
    let mut shop = Shop::new();
    let name = |number: usize| format!("key-{number}").into_bytes();
    for number in 0..100 {
        let reply = shop.set(&name(number), b"old", Expiry::Never);
        assert_eq!(reply.status, Status::Ok);
    }
    let made = shop.keyspace(b"", Action::Create(kept(3, 0)));
    assert_eq!(made.status, Status::Ok);
    assert_eq!(shop.set(&name(7), b"new", Expiry::Never).status, Status::Ok);
    for _ in 0..3 {
        assert_eq!(shop.server.usage().versions, 2, "of the key that changed");
        assert_eq!(shop.history(&name(7), 0, 9).versions.len(), 2);
        let newest = shop.history(&name(8), 0, 9).versions;
        assert_eq!(newest.len(), 1);
        let was = shop.get_at(&name(8), At::Version(newest[0].version));
        assert_eq!((was.status, &was.value[..]), (Status::Ok, &b"old"[..]));
        shop.restart();
    }
}

#[test]
fn a_deletion_that_was_let_go_before_it_was_durable_tells_nothing_of_what_was_before_it() {
    let mut shop = Shop::new();
    let made = shop.keyspace(b"k", Action::Create(kept(0, 50)));
    assert_eq!(made.status, Status::Ok);
    assert_eq!(shop.set(b"k", b"1", Expiry::Never).status, Status::Ok);
    shop.pass(100);
    let then_ms = shop.server.time_ms();
    shop.pass(10);
    let server = &mut shop.server;
    server.delete(1_001, b"k");
    server.now.us += 51_000;
    server.now.unix_ms += 51;
    for _ in 0..8 {
        server.turn();
    }
    assert!(!server.replies.contains_key(&1_001), "it is not durable");
    assert_eq!(server.usage().versions, 0, "its time is over");
    server.now.us += 2_000;
    server.now.unix_ms += 2;
    server.set(1_002, b"k", b"2");
    server.settle();
    let was = shop.get_at(b"k", At::TimeMs(then_ms));
    assert_eq!(was.status, Status::NotKept, "{}", text(&was));
}

/// The newest version tells which ones are kept, so both must be in memory at the same time, which holds
/// nothing between two turns.
#[test]
fn an_old_version_of_a_cold_key_is_read_where_memory_holds_nothing() {
    let mut shop = Shop::new();
    let sync = SyncMethod::DurableWrite;
    let budget = Budget::of_cache(0);
    let image = Image::default();
    shop.server = Server::open_within(budget, START_MS, sync, image, 1, None).expect("it opens");
    let made = shop.keyspace(b"k", Action::Create(kept(3, 0)));
    assert_eq!(made.status, Status::Ok);
    let first = shop.set(b"k", b"1", Expiry::Never).version;
    for value in [0, 1] {
        for key in [&b"between"[..], b"k"] {
            let reply = shop.set(key, &[value; 2_000], Expiry::Never);
            assert_eq!(reply.status, Status::Ok);
        }
    }
    shop.pass(10);
    let server = &mut shop.server;
    assert_eq!(server.usage().cells, 0, "all are cold");
    server.send(1_001, |batch, out| {
        batch.get_at(out, b"k", At::Version(first))
    });
    for _ in 0..10 {
        // A read takes longer than the hand needs for all that is held.
        for _ in 0..4 {
            server.turn();
            server.now.us += 100;
        }
        server.end(0);
    }
    server.turn();
    let reply = server.replies.remove(&1_001).expect("a reply");
    assert_eq!((reply.status, &reply.value[..]), (Status::Ok, &b"1"[..]));
}

#[test]
fn what_queues_behind_a_version_that_cannot_be_read_is_executed() {
    let mut shop = Shop::new();
    let made = shop.keyspace(b"{k}", Action::Create(kept(3, 0)));
    assert_eq!(made.status, Status::Ok);
    let old = shop.set(b"{k}1", b"1", Expiry::Never).version;
    for key in [&b"{k}1"[..], b"{k}2"] {
        assert_eq!(shop.set(key, b"2", Expiry::Never).status, Status::Ok);
    }
    let server = &mut shop.server;
    server.fail(server.asked.len(), Failure::Unreadable);
    server.send(1_001, |batch, out| {
        batch.get_at(out, b"{k}1", At::Version(old))
    });
    server.set(1_002, b"{k}1", b"3");
    server.get(1_003, b"{k}2");
    server.get(1_004, b"{k}1");
    server.settle();
    let mut told = |id| {
        let reply = server.replies.remove(&id).expect("a reply");
        (reply.status, reply.value)
    };
    assert_eq!(told(1_001).0, Status::Io);
    assert_eq!(told(1_002).0, Status::Ok);
    assert_eq!(told(1_003), (Status::Ok, b"2".to_vec()));
    assert_eq!(told(1_004), (Status::Ok, b"3".to_vec()));
}

#[test]
fn a_part_of_another_epoch_in_place_of_an_old_version_is_answered_corrupt_and_told_once() {
    let mut shop = Shop::new();
    let made = shop.keyspace(b"k", Action::Create(kept(3, 0)));
    assert_eq!(made.status, Status::Ok);
    let old = shop.set(b"k", b"1", Expiry::Never).version;
    assert_eq!(shop.set(b"k", b"2", Expiry::Never).status, Status::Ok);
    // The part checks, and its sequence and key are those of the old version.
    let mut changed = 0;
    for bytes in shop.server.device.image.files.values_mut() {
        for at in (0..bytes.len()).step_by(8) {
            let Ok(part) = PartView::read(&bytes[at..]) else {
                continue;
            };
            if (part.key(), part.sequence()) != (b"k", old.sequence) {
                continue;
            }
            let (key, value) = (part.key().to_vec(), part.value().to_vec());
            let forged = RecordSpec {
                slot: part.slot(),
                epoch: part.epoch() + 1,
                sequence: part.sequence(),
                time_ms: part.time_ms(),
                extension: &[],
                parts: &[PartSpec {
                    kind: part.kind(),
                    key: &key,
                    value: &value,
                    layout: part.layout(),
                    expiry_ms: None,
                    is_crowded: false,
                }],
            };
            assert_eq!(forged.bytes(), part.bytes().len());
            forged.encode_part(0, &mut bytes[at..]);
            changed += 1;
        }
    }
    assert_eq!(changed, 1);
    for _ in 0..2 {
        let reply = shop.get_at(b"k", At::Version(old));
        assert_eq!(reply.status, Status::Corrupt, "{}", text(&reply));
    }
    assert_eq!(shop.server.counters().bad_places, 1);
}

#[test]
fn without_a_keyspace_nothing_is_kept_and_the_answer_says_so() {
    let mut shop = Shop::new();
    shop.set(b"k", b"1", Expiry::Never);
    for at in [At::TimeMs(START_MS), At::Version(Version::default())] {
        let reply = shop.get_at(b"k", at);
        assert_eq!(text(&reply), "NOT_KEPT: no versions of this key are kept");
    }
}

#[test]
fn a_change_of_a_keyspace_is_refused_on_a_full_disk_and_goes_on_when_there_is_room() {
    let mut shop = Shop::new();
    let made = shop.keyspace(b"made:", Action::Create(kept(2, 0)));
    assert_eq!(made.status, Status::Ok);
    let name = |number: usize| format!("key-{number}").into_bytes();
    // Segments in each of which one key in sixteen may change before it is worth cleaning.
    let (keys, in_segment) = (500, 17);
    for number in 0..keys {
        let reply = shop.set(&name(number), &[7; 2_000], Expiry::Never);
        assert_eq!(reply.status, Status::Ok);
    }
    shop.server.is_full = true;
    let mut numbers = (0..in_segment).flat_map(|first| (first..keys).step_by(in_segment));
    let is_full = numbers.any(|number| {
        let reply = shop.set(&name(number), &[8; 2_000], Expiry::Never);
        reply.status == Status::Full
    });
    assert!(is_full);
    for _ in 0..3 {
        let refused = shop.keyspace(b"late:", Action::Create(kept(1, 0)));
        assert_eq!(refused.status, Status::Full, "{}", text(&refused));
        let list = read_keyspaces(&shop.keyspace(b"", Action::List).value).expect("a list");
        assert!(list.iter().any(|keyspace| keyspace.prefix == b"made:"));
    }
    shop.server.make_room();
    let made = shop.keyspace(b"late:", Action::Set(kept(1, 0)));
    assert_eq!(made.status, Status::Ok, "{}", text(&made));
}

/// A shop with versions of eight keys on a disk that has no room for more of them.
fn full_of_the_past() -> Shop {
    let mut shop = Shop::new();
    shop.server.segment_bytes = 4 * SEGMENT_BYTES;
    let made = shop.keyspace(b"past:", Action::Create(kept(255, 0)));
    assert_eq!(made.status, Status::Ok);
    for number in 0..SMALL {
        let reply = shop.set(&small(number), b"small", Expiry::Never);
        assert_eq!(reply.status, Status::Ok);
    }
    for round in 0..40 {
        for key in 0..8 {
            let reply = shop.set(&past_key(key), &[round; 1_000], Expiry::Never);
            assert_eq!(reply.status, Status::Ok);
        }
    }
    shop.server.is_used_up = true;
    fill_with(&mut shop, |round| past_key(round % 8));
    shop
}

/// Keys with one version.
const SMALL: usize = 5_000;

fn small(number: usize) -> Vec<u8> {
    format!("past:small-{number}").into_bytes()
}

fn past_key(number: usize) -> Vec<u8> {
    format!("past:{number}").into_bytes()
}

/// Writes values of 1,000 bytes until there is no room, also not after cleaning. How many.
fn fill_with(shop: &mut Shop, name: impl Fn(usize) -> Vec<u8>) -> usize {
    for written in 0..1_000 {
        let mut reply = shop.set(&name(written), &[9; 1_000], Expiry::Never);
        for _ in 0..20 {
            if reply.status != Status::Full {
                break;
            }
            shop.pass(20);
            reply = shop.set(&name(written), &[9; 1_000], Expiry::Never);
        }
        if reply.status == Status::Full {
            return written;
        }
        assert_eq!(reply.status, Status::Ok, "{}", text(&reply));
    }
    panic!("it is never full");
}

#[test]
fn on_a_disk_full_of_the_past_settings_that_keep_less_are_taken_and_give_room_back() {
    let drop = Action::Drop;
    let fewer = Action::Set(kept(2, 0));
    let shorter = Action::Set(kept(255, 10));
    for action in [drop, fewer, shorter] {
        let mut shop = full_of_the_past();
        // Deletions are versions too, and use up what is left for changes that take no room.
        let mut deletions = 0..SMALL;
        let refused = deletions.find(|&number| {
            let deleted = shop.ask(|b, o| b.del(o, &small(number), Condition::Always));
            deleted.status == Status::Full
        });
        assert!(refused.is_some(), "there is always room");
        let changed = shop.keyspace(b"past:", action);
        assert_eq!(changed.status, Status::Ok, "{}", text(&changed));
        let room = fill_with(&mut shop, |number| format!("new-{number}").into_bytes());
        assert!(room >= 100, "only {room}");
        shop.restart();
        let list = read_keyspaces(&shop.keyspace(b"", Action::List).value).expect("a list");
        let found = list.iter().find(|keyspace| keyspace.prefix == b"past:");
        let told = found.map(|keyspace| keyspace.settings);
        match action {
            Action::Set(settings) => assert_eq!(told, Some(settings)),
            _ => assert_eq!(told, None),
        }
    }
}

#[test]
fn a_version_that_was_superseded_before_it_was_durable_is_read_when_it_is() {
    let mut shop = Shop::new();
    let made = shop.keyspace(b"k", Action::Create(kept(9, 0)));
    assert_eq!(made.status, Status::Ok);
    for key in [&b"{k}cold"[..], b"{k}1", b"{k}2", b"{k}3"] {
        let reply = shop.set(key, &[7; 1_500], Expiry::Never);
        assert_eq!(reply.status, Status::Ok);
    }
    let first = shop.set(b"k", b"1", Expiry::Never).version;
    let second = Version {
        sequence: first.sequence + 1,
        ..first
    };
    let server = &mut shop.server;
    server.set(1_001, b"k", b"2");
    server.set(1_002, b"k", b"3");
    // It waits behind a read, and then for the log.
    server.get(1_003, b"{k}cold");
    server.send(1_004, |batch, out| {
        batch.get_at(out, b"k", At::Version(second))
    });
    // No time passes, so the log writes nothing but what somebody waits for.
    server.turn();
    let under_way = server.device.under_way();
    let read = under_way
        .iter()
        .position(|io| matches!(io, Io::Read { .. }));
    server.end(read.expect("the key is cold"));
    server.turn();
    while !server.device.under_way().is_empty() {
        server.end(0);
        server.turn();
    }
    let reply = server.replies.remove(&1_004).expect("a reply");
    assert_eq!((reply.version, &reply.value[..]), (second, &b"2"[..]));
}

#[test]
fn a_log_with_keys_of_the_server_that_it_does_not_know_is_refused_by_name() {
    let known = keyspace_key(7, b"p");
    let image = |key: &[u8], value: &[u8]| {
        let mut device = Device::holding(Image::default());
        let config = log_config(SyncMethod::DurableWrite, 1);
        let log = Log::new(config, LogStart::default(), Heap);
        let mut store = Store::new(log, Heap, 1 << 8, [0; PARTITIONS], Replayed::new(1 << 16));
        for salt in 1..=2 {
            let file = device.image.create(SEGMENT_BYTES);
            let log = store.log_mut();
            log.add_spare(file, salt, SEGMENT_BYTES as u64);
        }
        let slot = slot_of(key);
        let room = store.room(Purpose::Grow, key.len(), value.len(), false);
        assert_eq!(room, Room::Yes);
        let id = store.insert((slot, 1), key, value, None);
        let (lsn, _) = store.commit(1, slot, &[(1, id)]);
        store.log_mut().want_durable(lsn);
        let mut requests = Vec::new();
        while store.log().durable() < lsn {
            store.log_mut().pump(1, &mut requests);
            device.submit(&mut requests);
            let completion = device.complete(0);
            store
                .log_mut()
                .completed(1, completion)
                .expect("a sound disk");
        }
        device.image
    };
    let opened = |key: &[u8], value: &[u8]| {
        let sync = SyncMethod::DurableWrite;
        Server::open_at(START_MS, sync, image(key, value), 2, None).map(|_| ())
    };
    assert_eq!(opened(b"\0\0penstack/", b"1"), Ok(()));
    let refused = opened(b"\0\0penstock/mine", b"1");
    assert_eq!(
        refused.unwrap_err(),
        "the log holds the key \"\\x00\\x00penstock/mine\", which begins with \"\\x00\\x00penstock/\" and is nothing that this version writes: an earlier version took it from a client, or a later one wrote it: start that version"
    );
    // A flag that a later version may give a meaning.
    let mut value = [0; SETTINGS_BYTES];
    assert_eq!(opened(&known, &value), Ok(()));
    value[8] = 0x80;
    assert!(opened(&known, &value).is_err());
}

#[derive(Clone, Debug)]
struct Written {
    version: Version,
    time_ms: u64,
    /// The number in the value and its length; `None` is a deletion.
    value: Option<(u64, usize)>,
    expiry_ms: u64,
}

/// What must be kept, by the settings that were last said to keep more.
struct Model {
    keys: Vec<Vec<Written>>,
    settings: Settings,
    /// How many versions each key had when its history began.
    begun: Vec<usize>,
    begun_ms: u64,
}

impl Model {
    fn about(&self, key: usize, now_ms: u64) -> String {
        let versions = &self.keys[key];
        format!(
            "{} versions, {} when it began at {}; at {now_ms} with {:?}: {:?}",
            versions.len(),
            self.begun[key],
            self.begun_ms,
            self.settings,
            &versions[versions.len().saturating_sub(8)..]
        )
    }

    /// Whether the version at this place of a key's must be kept at `now_ms`.
    fn must_keep(&self, key: usize, place: usize, now_ms: u64) -> bool {
        let versions = &self.keys[key];
        let Some(newer) = versions.get(place + 1) else {
            let written = &versions[place];
            let ended = written.expiry_ms != 0 && written.expiry_ms <= self.begun_ms;
            let was_gone = written.value.is_none() || ended;
            return (self.settings.versions > 0 || self.settings.retention_ms > 0)
                && !(place + 1 == self.begun[key] && was_gone);
        };
        let rank = versions.len() - 1 - place;
        let end_ms = newer.time_ms;
        let settings = &self.settings;
        // What was gone already when versions began to be kept is not.
        let expiry_ms = versions[place].expiry_ms;
        let was_gone =
            versions[place].value.is_none() || (expiry_ms != 0 && expiry_ms <= self.begun_ms);
        // A deletion goes with the last of what was before it, and may have gone before `newer` came.
        let went_before = versions[place].value.is_none()
            && settings.retention_ms > 0
            && place.checked_sub(1).is_none_or(|older| {
                let older = &versions[older];
                let ended_ms = versions[place].time_ms;
                older.value.is_none() || ended_ms + settings.retention_ms <= newer.time_ms
            });
        (settings.versions > 0 || settings.retention_ms > 0)
            && place + 1 >= self.begun[key]
            && !went_before
            // As long after it expired as it would have been kept, it may have gone before `newer` came.
            && (expiry_ms == 0
                || settings.retention_ms == 0
                || expiry_ms + settings.retention_ms > newer.time_ms)
            && !(place + 1 == self.begun[key] && was_gone)
            && (settings.versions == 0 || rank <= usize::from(settings.versions))
            && (settings.retention_ms == 0 || end_ms + settings.retention_ms > now_ms)
    }
}

/// A value of the number and so many bytes.
fn number_of(value: &[u8]) -> Option<(u64, usize)> {
    let number = value
        .first_chunk()
        .map(|bytes| u64::from_le_bytes(*bytes))?;
    value[8..]
        .iter()
        .all(|&byte| byte == 7)
        .then_some((number, value.len()))
}

fn name(key: usize) -> Vec<u8> {
    format!("{{p}}{key}").into_bytes()
}

/// Whether that may be told as the time of a version; 0, if it need not be known.
fn is_time(written: &Written, is_known: bool, told_ms: u64) -> bool {
    let is_not_known = told_ms == 0 && !is_known;
    is_not_known || written.time_ms == 0 || told_ms == written.time_ms
}

fn judge(model: &Model, key: usize, at: At, reply: &Reply, now_ms: u64) -> Result<(), String> {
    let versions = &model.keys[key];
    let place = versions.iter().rposition(|written| match at {
        At::TimeMs(ms) => written.time_ms <= ms,
        At::Version(version) => written.version <= version,
    });
    let was = place.map(|place| &versions[place]);
    let is_gone = was.is_none_or(|was| {
        let is_over = match at {
            At::TimeMs(ms) => was.expiry_ms != 0 && was.expiry_ms <= ms,
            At::Version(_) => false,
        };
        was.value.is_none() || is_over
    });
    match (reply.status, was) {
        (Status::Ok, Some(was)) if !is_gone => {
            if was.value != number_of(&reply.value) || reply.version != was.version {
                return Err(format!("version {:?} instead of {was:?}", reply.version));
            }
            let told = reply.expiry.ok_or("no time was told")?;
            let is_known = place.is_some_and(|place| place >= model.begun[key]);
            let is_time = is_time(was, is_known, told.time_ms);
            if told.expiry_ms != was.expiry_ms || !is_time {
                return Err(format!("{told:?} instead of {was:?}"));
            }
            Ok(())
        }
        (Status::NotFound, _) if is_gone => Ok(()),
        (Status::NotKept, _) => match place {
            Some(place) if model.must_keep(key, place, now_ms) => {
                let in_time = match at {
                    At::TimeMs(ms) => ms >= model.begun_ms,
                    At::Version(_) => true,
                };
                // With a retention a deletion goes when nothing before it is kept.
                let is_gone_deletion = place + 1 == versions.len()
                    && versions[place].value.is_none()
                    && (place == 0 || !model.must_keep(key, place - 1, now_ms));
                // What expired longer ago than is kept may be gone as a whole.
                let settings = &model.settings;
                let expiry_ms = versions[place].expiry_ms;
                let is_gone_value = expiry_ms != 0
                    && settings.retention_ms != 0
                    && expiry_ms + settings.retention_ms <= now_ms;
                match in_time && !is_gone_deletion && !is_gone_value {
                    true => Err(format!("{:?} must be kept: {}", was, text(reply))),
                    false => Ok(()),
                }
            }
            _ => Ok(()),
        },
        _ => Err(format!("{} where {was:?} was", text(reply))),
    }
}

fn run(seed: u64) -> [usize; 5] {
    let mut random = Random::new(seed + 1);
    let mut shop = Shop::with_snapshots([0, 1, 60_000][random.below(3)]);
    let mut model = Model {
        keys: vec![Vec::new(); KEYS],
        settings: Settings::default(),
        begun: vec![0; KEYS],
        begun_ms: u64::MAX,
    };
    let mut met = [0; 5];
    let mut value = 0u64;
    let steps = if shop.snapshot_bytes > 0 { 1_000 } else { 700 };
    for step in 0..steps {
        let key = random.below(KEYS);
        let fail = |wrong: String| -> ! { panic!("seed {seed}, step {step}, key {key}: {wrong}") };
        match random.below(100) {
            _ if step == 20 => set_keyspace(&mut shop, &mut model, &mut random),
            0..2 => set_keyspace(&mut shop, &mut model, &mut random),
            2..4 => {
                let by_count = model.settings.versions > 0 && model.settings.retention_ms == 0;
                let all = |shop: &mut Shop| -> Vec<Vec<Version>> {
                    let keys = (0..KEYS).filter(|_| by_count);
                    keys.map(|key| {
                        let mut history = shop.history(&name(key), 0, 300);
                        history.versions.pop_if(|first| first.is_deletion);
                        history.versions.iter().map(|kept| kept.version).collect()
                    })
                    .collect()
                };
                let before = all(&mut shop);
                let back_ms = [0, 0, 300, 3_000][random.below(4)];
                shop.restart_earlier(back_ms);
                let after = all(&mut shop);
                // A log may also tell of the deletion that was there when versions began to be kept.
                let mut keys = before.iter().zip(&after);
                if !keys.all(|(before, after)| after.starts_with(before)) {
                    fail(format!("{before:?} before a start and {after:?} behind it"));
                }
            }
            4..10 => shop.pass(random.next() % 400),
            10..60 => {
                value += 1;
                let mut bytes = vec![7; 8 + random.below(900)];
                bytes[..8].copy_from_slice(&value.to_le_bytes());
                let is_set = random.below(6) > 0;
                let reply = match is_set {
                    true => {
                        let expiry = match random.below(5) {
                            // Before, nobody would tell the model of it.
                            0 if model.settings != Settings::default() => {
                                Expiry::In(1 + random.next() % 300)
                            }
                            _ => Expiry::Never,
                        };
                        shop.set(&name(key), &bytes, expiry)
                    }
                    false => shop.ask(|b, o| b.del(o, &name(key), Condition::Always)),
                };
                if reply.status == Status::NotFound && !is_set {
                    continue;
                }
                if reply.status != Status::Ok {
                    fail(text(&reply));
                }
                let mut written = Written {
                    version: reply.version,
                    time_ms: 0,
                    value: number_of(&bytes).filter(|_| is_set),
                    expiry_ms: 0,
                };
                let keeps = model.settings != Settings::default();
                if keeps {
                    let newest = shop.history(&name(key), 0, 1).versions;
                    if newest
                        .first()
                        .is_none_or(|it| it.version != written.version)
                    {
                        fail(format!("{written:?} is not the newest of {newest:?}"));
                    }
                    (written.time_ms, written.expiry_ms) = (newest[0].time_ms, newest[0].expiry_ms);
                }
                model.keys[key].push(written);
            }
            60..90 => {
                let versions = &model.keys[key];
                if versions.is_empty() {
                    continue;
                }
                let back = random.below(14).min(versions.len() - 1);
                let written = &versions[versions.len() - 1 - back];
                let at = match random.below(2) {
                    0 if written.time_ms > 0 => {
                        At::TimeMs((written.time_ms + random.next() % 8).saturating_sub(4))
                    }
                    _ => At::Version(written.version),
                };
                // A time before versions were kept is not known to the model.
                if matches!(at, At::TimeMs(ms) if ms < model.begun_ms) {
                    continue;
                }
                let reply = shop.get_at(&name(key), at);
                let now_ms = shop.latest_ms();
                if let Err(wrong) = judge(&model, key, at, &reply, now_ms) {
                    let told = shop.history(&name(key), 0, 9).versions;
                    fail(format!(
                        "{at:?}: {wrong}; {}; {told:?}",
                        model.about(key, now_ms)
                    ));
                }
                match reply.status {
                    Status::Ok => met[0] += 1,
                    Status::NotFound => met[1] += 1,
                    _ => met[2] += 1,
                }
            }
            _ => {
                if model.settings == Settings::default() {
                    continue;
                }
                let mut told = Vec::new();
                let mut before = 0;
                loop {
                    let history = shop.history(&name(key), before, 3);
                    told.extend(history.versions);
                    let Some(last) = told.last().filter(|_| history.has_more) else {
                        break;
                    };
                    before = last.version.sequence;
                }
                let now_ms = shop.latest_ms();
                let versions = &model.keys[key];
                let places = versions.iter().enumerate().rev();
                for (told, (place, written)) in told.iter().zip(places) {
                    let is_known = place >= model.begun[key];
                    if told.version != written.version
                        || told.is_deletion != written.value.is_none()
                        || !is_time(written, is_known, told.time_ms)
                    {
                        fail(format!(
                            "{told:?} instead of {written:?} in {}",
                            model.about(key, now_ms)
                        ));
                    }
                }
                let must = (0..versions.len())
                    .rev()
                    .skip(told.len())
                    .any(|place| place + 1 < versions.len() && model.must_keep(key, place, now_ms));
                if told.len() > versions.len() || must {
                    fail(format!("{told:?} of {}", model.about(key, now_ms)));
                }
                met[3] += usize::from(told.len() > 2);
            }
        }
    }
    assert_eq!(shop.server.damaged(), 0, "seed {seed}: nothing is damaged");
    met[4] = shop.snapshots_used;
    met
}

fn set_keyspace(shop: &mut Shop, model: &mut Model, random: &mut Random) {
    let (versions, retention_ms) = match random.below(5) {
        0 => (1, 0),
        1 => (4, 0),
        2 => (3, 700),
        3 => (0, 900),
        _ => (200, 0),
    };
    let settings = kept(versions, retention_ms);
    let limits = |settings: &Settings| {
        let count = match settings.versions {
            0 => 256,
            count => u64::from(count),
        };
        let time_ms = match settings.retention_ms {
            0 => u64::MAX,
            ms => ms,
        };
        (count, time_ms)
    };
    assert_eq!(
        shop.keyspace(b"{p}", Action::Set(settings)).status,
        Status::Ok
    );
    let (before, now) = (limits(&model.settings), limits(&settings));
    if model.settings == Settings::default() || now.0 > before.0 || now.1 > before.1 {
        model.begun = model.keys.iter().map(Vec::len).collect();
        model.begun_ms = shop.server.time_ms();
    }
    model.settings = settings;
}

#[test]
fn the_past_is_as_the_model_has_it_after_cleaning_and_starts() {
    let mut met = [0; 5];
    let seeds = std::env::var("PENSTOCK_PAST_SEEDS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(24);
    for seed in 0..seeds {
        for (sum, count) in met.iter_mut().zip(run(seed)) {
            *sum += count;
        }
    }
    assert!(met.iter().all(|&count| count > 50), "{met:?}");
}
