//! Keyspaces and the past of keys, seen by a client, against a model: every version that must be
//! kept is answered as it was, whatever cleaning and starts did in between, and what is not kept is
//! never taken for what was not there.

mod full_disk;
mod model;

use penstock_net::field::Field;
use penstock_net::keyspace::{Action, At, History, Settings, read_keyspaces};
use penstock_net::level::AckLevel;
use penstock_net::request::{BatchRequest, Condition, Expiry, Version};
use penstock_net::scan::{ScanPage, ScanRequest, ScanValue};
use penstock_net::slot::slot_of;
use penstock_net::status::Status;
use penstock_storage::budget::Budget;
use penstock_storage::io::Io;
use penstock_storage::key_home::KeyHome;
use penstock_storage::keyspace::{SETTINGS_BYTES, keyspace_key};
use penstock_storage::log::{Log, Purpose, Room, SyncMethod};
use penstock_storage::place::LogStart;
use penstock_storage::record::{KindedValue, PartSpec, PartView, RecordSpec, ValueKind};
use penstock_storage::recovery::Replayed;
use penstock_storage::store::Store;
use penstock_storage::version::PARTITIONS;

use crate::device::Device;
use crate::heap::Heap;
use crate::image::Image;
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

    /// The latest time of any run. Versions that were dropped by then need not come back when a
    /// start is in an earlier time.
    fn latest_ms(&self) -> u64 {
        self.latest_ms.max(self.server.time_ms())
    }

    fn pass(&mut self, ms: u64) {
        self.server.sleep(ms);
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
fn a_scan_shows_keys_as_they_are_and_nothing_of_the_past_or_of_the_server() {
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
        let mut shown = Vec::new();
        let mut cursor = 0;
        loop {
            let mut item = Vec::new();
            let request = ScanRequest {
                cursor,
                prefix: b"",
                entries_max: 1024,
                bytes_max: 4096,
                wants_values: true,
                wants_types: false,
            };
            request.write(&mut item);
            let reply = shop.ask(|b, o| b.raw(o, &item));
            let page = ScanPage::read(&reply.value).expect("a page");
            shown.extend(
                page.entries()
                    .map(|entry| (entry.key.to_vec(), entry.value))
                    .map(|(key, value)| (key, format!("{value:?}"))),
            );
            cursor = page.cursor;
            if cursor == 0 {
                break;
            }
        }
        shown.sort();
        let value = format!("{:?}", ScanValue::Bytes(b"3"));
        assert_eq!(
            shown,
            [
                (b"other".to_vec(), value.clone()),
                (b"price:1".to_vec(), value)
            ]
        );
        shop.restart();
    }
}

#[test]
fn a_start_behind_a_snapshot_knows_the_past_that_the_log_records() {
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
        let mut versions_of = |key: &[u8]| -> Vec<Version> {
            let versions = shop.history(key, 0, 30).versions;
            versions.iter().rev().map(|kept| kept.version).collect()
        };
        // The history of all but this began anew with the last change of settings.
        assert_eq!(versions_of(b"price:3"), early[2]);
        for key in [0, 1, 3] {
            let key_name = format!("price:{}", key + 1);
            let newest = early[key].last().copied();
            assert_eq!(versions_of(key_name.as_bytes()).last().copied(), newest);
            assert_eq!(versions_of(key_name.as_bytes()).len(), 1);
        }
        assert_eq!(versions_of(b"less:1").len(), 3);
        assert_eq!(versions_of(b"time:1").len(), 1, "its time had ended");
        let reply = shop.get_at(b"drop:1", At::TimeMs(START_MS));
        assert_eq!(reply.status, Status::NotKept, "{}", text(&reply));
        assert_eq!(shop.get(b"drop:1").value, [5]);
    }
}

#[test]
fn what_stood_there_before_versions_were_kept_is_found_behind_a_snapshot() {
    let mut shop = Shop::with_snapshots(1);
    let mut shown = Vec::new();
    for key in [b"k1", b"k2", b"k3"] {
        let reply = shop.set(key, b"0", Expiry::Never);
        shown.push(vec![reply.version]);
    }
    let made = shop.keyspace(b"k", Action::Create(kept(5, 0)));
    assert_eq!(made.status, Status::Ok);
    shop.take_snapshot();
    let second = shop.set(b"k1", b"1", Expiry::Never);
    shown[0].push(second.version);
    let second = shop.ask(|b, o| b.del(o, b"k2", Condition::Always));
    shown[1].push(second.version);
    for start in 1..4 {
        shop.restart();
        assert_eq!(shop.snapshots_used, start);
        for (key, expected) in [b"k1", b"k2", b"k3"].into_iter().zip(&shown) {
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
        // Each stands in a segment with few bytes that count.
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
fn what_a_flush_took_away_is_in_no_history_after_a_start() {
    for has_snapshot in [false, true] {
        let mut shop = match has_snapshot {
            false => Shop::new(),
            true => Shop::with_snapshots(24 << 10),
        };
        if has_snapshot {
            // They are known from a snapshot, as versions.
            shop.keyspace(b"a:", Action::Set(kept(5, 0)));
            shop.set(b"a:1", b"v0", Expiry::Never);
        }
        shop.set(b"a:1", b"v1", Expiry::Never);
        if has_snapshot {
            shop.take_snapshot();
            shop.keyspace(b"a:", Action::Drop);
        }
        let of_wire = shop.server.session;
        shop.server.be_of_process();
        shop.server.settle();
        let flushed = shop.ask(|b, o| b.flush(o, b"a:1"));
        assert_eq!(flushed.status, Status::Ok, "{}", text(&flushed));
        shop.server.session = of_wire;
        let flushed_ms = shop.server.time_ms();
        shop.pass(5);
        shop.keyspace(b"a:", Action::Set(kept(5, 0)));
        shop.pass(5);
        shop.set(b"a:1", b"v5", Expiry::Never);
        let before = shop.history(b"a:1", 0, 9);
        assert_eq!(before.versions.len(), 1, "{before:?}");
        shop.restart();
        assert_eq!(shop.history(b"a:1", 0, 9), before, "{has_snapshot}");
        let then = shop.get_at(b"a:1", At::TimeMs(flushed_ms + 6));
        assert_ne!(then.status, Status::Ok, "{}", text(&then));
    }
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
        let shown: Vec<_> = versions.iter().map(|kept| kept.version).collect();
        assert_eq!(shown, [second, first], "after a start: {start}");
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
fn a_deletion_that_was_let_go_before_it_was_durable_shows_nothing_of_what_was_before_it() {
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

/// The newest version tells which ones are kept, so both must be in memory at the same time, which
/// holds nothing between two turns.
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
    let mut status_of = |id| {
        let reply = server.replies.remove(&id).expect("a reply");
        (reply.status, reply.value)
    };
    assert_eq!(status_of(1_001).0, Status::Io);
    assert_eq!(status_of(1_002).0, Status::Ok);
    assert_eq!(status_of(1_003), (Status::Ok, b"2".to_vec()));
    assert_eq!(status_of(1_004), (Status::Ok, b"3".to_vec()));
}

#[test]
fn a_part_of_another_epoch_in_place_of_an_old_version_is_answered_corrupt_and_reported_once() {
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
                    value_kind: ValueKind::Plain,
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
        let id =
            store
                .keys_mut()
                .insert(KeyHome::new(slot, 1), key, KindedValue::plain(value), None);
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
        "the log holds the key \"\\x00\\x00penstock/mine\", which begins with \
         \"\\x00\\x00penstock/\" and is nothing that this version writes: an earlier version took \
         it from a client, or a later one wrote it: start that version"
    );
    // A flag that a later version may give a meaning.
    let mut value = [0; SETTINGS_BYTES];
    assert_eq!(opened(&known, &value), Ok(()));
    value[8] = 0x80;
    assert!(opened(&known, &value).is_err());
}
