//! The same directory under another number of shards, in the real server: everything that was
//! written is there after every change, the old logs are rewritten beside the traffic, a kill -9 at
//! any time in between loses nothing, and in the end no file of an old log is left.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::Path;
use std::process::Output;
use std::time::{Duration, Instant};

use penstock_client::{Client, Verbs};
use penstock_net::keyspace::{Action, At, Settings};
use penstock_net::request::{Condition, Expiry, Version};
use penstock_storage::io::BLOCK_BYTES;
use penstock_storage::segment::{FirstBlock, SegmentHeader};

use crate::command::command;
use crate::process::{Server, the_machine};
use crate::scratch::folder;

/// `cleaning` is the rate of rewriting in bytes a second.
fn serve(data: &Path, shards: u16, cleaning: &str, cache: &str) -> Server {
    Server::start(
        command(&["serve", "--listen", "127.0.0.1:0", "--shard-ports", "0"])
            .args(["--shards", &shards.to_string(), "--cache-bytes", cache])
            .args(["--value-bytes-max", "16KiB", "--segment-bytes", "2MiB"])
            .args(["--cleaning-bytes-per-s", cleaning, "--data"])
            .arg(data),
    )
}

fn counter(client: &Client, name: &str) -> u64 {
    let info: serde_json::Value = serde_json::from_str(&client.info().wait().unwrap()).unwrap();
    info["counters"][name].as_u64().unwrap()
}

fn inherited_bytes(client: &Client) -> u64 {
    counter(client, "inherited_bytes")
}

/// The logs that segments are there of.
fn logs(data: &Path) -> BTreeSet<u64> {
    let mut logs = BTreeSet::new();
    for entry in fs::read_dir(data.join("segments")).unwrap() {
        let path = entry.unwrap().path();
        let Ok(image) = fs::read(&path) else { continue };
        let first: Option<&[u8; BLOCK_BYTES]> = image.first_chunk();
        if let Some(FirstBlock::Segment(header)) = first.map(SegmentHeader::read) {
            logs.insert(header.log_id);
        }
    }
    logs
}

fn run(data: &Path, arguments: &[&str]) -> Output {
    command(arguments).arg(data).output().unwrap()
}

/// What must be there.
#[derive(Default)]
struct Model(HashMap<u64, Vec<u8>>);

const KEYS: u64 = 6_000;

impl Model {
    /// Sets a third of the keys and deletes a few.
    fn change(&mut self, client: &Client, round: u64) {
        let keys: Vec<u64> = (0..KEYS).collect();
        for some in keys.chunks(200) {
            let mut sets = Vec::new();
            let mut deletions = Vec::new();
            for &key in some {
                match (key * 7 + round * 5) % 12 {
                    0..4 => {
                        let value: Vec<u8> = [key, round]
                            .iter()
                            .flat_map(|number| number.to_le_bytes())
                            .cycle()
                            .take(usize::try_from(100 + key % 900).unwrap())
                            .collect();
                        sets.push(client.set(&key.to_le_bytes(), &value));
                        self.0.insert(key, value);
                    }
                    4 => {
                        deletions.push(client.del(&key.to_le_bytes()));
                        self.0.remove(&key);
                    }
                    _ => {}
                }
            }
            for pending in sets {
                pending.wait().expect("set");
            }
            for pending in deletions {
                pending.wait().expect("deleted or not there");
            }
        }
    }

    fn check(&self, client: &Client, when: &str) {
        let keys: Vec<u64> = (0..KEYS).collect();
        for some in keys.chunks(200) {
            let pending: Vec<_> = some
                .iter()
                .map(|key| (key, client.get(&key.to_le_bytes())))
                .collect();
            for (key, pending) in pending {
                let found = pending.wait().unwrap().map(|found| found.bytes.to_vec());
                assert_eq!(found, self.0.get(key).cloned(), "key {key} {when}");
            }
        }
    }
}

fn wait_until_rewritten(data: &Path, client: &Client, own: std::ops::Range<u64>) {
    let deadline = Instant::now() + Duration::from_secs(120);
    while inherited_bytes(client) > 0 || !logs(data).iter().all(|log| own.contains(log)) {
        assert!(
            Instant::now() < deadline,
            "{} bytes are inherited, and segments of logs {:?} are there",
            inherited_bytes(client),
            logs(data)
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}

const FAST: &str = "1GiB";
const SLOW: &str = "64KiB";

fn one_directory_under_many_numbers_of_shards(name: &str, cache: &str) {
    let _one = the_machine();
    let data = folder(name);
    let mut model = Model::default();
    {
        let server = serve(&data, 1, FAST, cache);
        let client = server.client();
        for round in 0..5 {
            model.change(&client, round);
        }
        let passing = client.set_with(
            b"passing",
            b"soon gone",
            Condition::Always,
            Expiry::In(1_000),
        );
        passing.wait().unwrap();
        model.check(&client, "before any change");
    }
    {
        // So slow that it is killed amid the rewriting.
        let server = serve(&data, 2, SLOW, cache);
        let client = server.client();
        model.check(&client, "with two shards");
        assert!(inherited_bytes(&client) > 0);
        model.change(&client, 5);
        model.check(&client, "with two shards, after changes");
    }
    assert!(logs(&data).contains(&1));
    let inspected = run(&data, &["inspect"]);
    let text = String::from_utf8_lossy(&inspected.stdout).into_owned();
    assert!(inspected.status.success(), "{text}");
    assert!(text.contains("log 1 is inherited"), "{text}");
    // Without IDENTITY nothing tells whether the log of before still counts.
    let identity = fs::read(data.join("IDENTITY")).unwrap();
    fs::write(data.join("IDENTITY"), &identity[..100]).unwrap();
    let refused = run(&data, &["inspect", "--repair", "--accept-loss", "identity"]);
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(text.contains("different numbers of shards"), "{text}");
    fs::write(data.join("IDENTITY"), &identity).unwrap();
    let vault = folder(format!("{name}-backup"));
    let refused = command(&["backup", "--to"])
        .arg(&vault)
        .arg("--data")
        .arg(&data)
        .output()
        .unwrap();
    assert_eq!(refused.status.code(), Some(2));
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        text.contains("no server does it") && text.contains("inherited_bytes"),
        "{text}"
    );
    {
        // The next change while the first one is not done: two generations are inherited.
        let server = serve(&data, 1, SLOW, cache);
        let client = server.client();
        model.check(&client, "with one shard again");
        model.change(&client, 6);
    }
    assert!(logs(&data).len() >= 3, "{:?}", logs(&data));
    {
        let server = serve(&data, 1, FAST, cache);
        let client = server.client();
        model.check(&client, "after a kill");
        wait_until_rewritten(&data, &client, 4..5);
        model.check(&client, "rewritten");
        let deadline = Instant::now() + Duration::from_secs(60);
        while client.get(b"passing").wait().unwrap().is_some() {
            assert!(Instant::now() < deadline, "its expiry was lost");
            std::thread::sleep(Duration::from_millis(20));
        }
        model.change(&client, 7);
    }
    {
        let server = serve(&data, 2, FAST, cache);
        let client = server.client();
        wait_until_rewritten(&data, &client, 5..7);
        model.check(&client, "with two shards, rewritten");
    }
    let server = serve(&data, 2, FAST, cache);
    let client = server.client();
    model.check(&client, "in the end");
    let passing = client.get(b"passing").wait().unwrap();
    assert!(passing.is_none(), "it had expired");
    drop(server);
    let inspected = run(&data, &["inspect"]);
    assert!(inspected.status.success());
    fs::remove_dir_all(&data).unwrap();
    let _ = fs::remove_dir_all(&vault);
}

#[test]
fn a_directory_keeps_all_under_any_number_of_shards_with_values_in_memory() {
    one_directory_under_many_numbers_of_shards("shards-memory", "64MiB");
}

#[test]
fn a_directory_keeps_all_under_any_number_of_shards_with_values_on_disk() {
    one_directory_under_many_numbers_of_shards("shards-cold", "1MiB");
}

/// Of each key what was written, oldest first; the keyspace keeps all of it.
type Past = Vec<Vec<(Version, Vec<u8>)>>;

fn write_once_more(client: &Client, past: &mut Past) {
    let some: Vec<_> = (0..)
        .zip(past.iter_mut())
        .map(|(key, versions)| {
            let value = format!("{key} costs {}", versions.len()).into_bytes();
            let pending = client.set(&price(key), &value);
            (versions, value, pending)
        })
        .collect();
    for (versions, value, pending) in some {
        versions.push((pending.wait().expect("set").version, value));
    }
}

fn check_past(client: &Client, past: &Past, when: &str) {
    for (key, versions) in (0..).zip(past) {
        let history = client.history(&price(key), 0, 100).wait().unwrap();
        let shown: Vec<Version> = history.versions.iter().map(|it| it.version).collect();
        let written: Vec<Version> = versions.iter().rev().map(|(version, _)| *version).collect();
        assert_eq!(shown, written, "key {key} {when}");
        for (version, value) in versions {
            let was = client.get_at(&price(key), At::Version(*version)).wait();
            let was = was.unwrap().expect("it was there");
            assert_eq!((was.version, &was.bytes[..]), (*version, &value[..]));
        }
    }
}

fn price(key: usize) -> Vec<u8> {
    format!("price:{key}").into_bytes()
}

#[test]
fn what_is_kept_of_the_past_comes_along_to_another_number_of_shards() {
    let _one = the_machine();
    let data = folder("shards-past");
    let mut past: Past = vec![Vec::new(); 100];
    {
        let server = serve(&data, 1, FAST, "1MiB");
        let client = server.client();
        let settings = Settings {
            versions: 50,
            ..Settings::default()
        };
        let made = client.keyspace(b"price:", Action::Create(settings));
        made.wait().unwrap();
        for _ in 0..5 {
            write_once_more(&client, &mut past);
        }
        // Enough beside it that the rewriting does not end at once.
        let mut model = Model::default();
        for round in 0..3 {
            model.change(&client, round);
        }
    }
    {
        let server = serve(&data, 2, SLOW, "1MiB");
        let client = server.client();
        assert!(inherited_bytes(&client) > 0);
        check_past(&client, &past, "with two shards");
        write_once_more(&client, &mut past);
        check_past(&client, &past, "with two shards, written once more");
    }
    {
        let server = serve(&data, 2, FAST, "1MiB");
        let client = server.client();
        check_past(&client, &past, "after a kill");
        wait_until_rewritten(&data, &client, 2..4);
        check_past(&client, &past, "rewritten");
        write_once_more(&client, &mut past);
    }
    let server = serve(&data, 1, FAST, "1MiB");
    let client = server.client();
    check_past(&client, &past, "with one shard again");
    wait_until_rewritten(&data, &client, 4..5);
    check_past(&client, &past, "with one shard again, rewritten");
    drop(server);
    let inspected = run(&data, &["inspect"]);
    let text = String::from_utf8_lossy(&inspected.stdout).into_owned();
    assert!(inspected.status.success(), "{text}");
    assert!(
        text.contains(" superseded versions copied for a keyspace"),
        "{text}"
    );
    fs::remove_dir_all(&data).unwrap();
}

/// All keys, and how many parts and blocks of tables were read for them.
fn scan(client: &Client, model: &Model) -> (u64, u64) {
    let cost = || {
        let parts = counter(client, "scan_part_reads");
        (parts, counter(client, "scan_table_reads"))
    };
    let before = cost();
    let keys = client.scan(b"", false).map(|entry| entry.unwrap().key);
    let keys: Vec<_> = keys.collect();
    let distinct: BTreeSet<_> = keys.iter().collect();
    assert_eq!((keys.len(), distinct.len()), (model.0.len(), model.0.len()));
    let after = cost();
    (after.0 - before.0, after.1 - before.1)
}

#[test]
fn key_tables_of_inherited_segments_are_taken_over_made_and_leave_with_them() {
    let _one = the_machine();
    let data = folder("shards-tables");
    let mut model = Model::default();
    let deadline = Instant::now() + Duration::from_secs(120);
    let scan_until = |client: &Client, model: &Model, is_there: &dyn Fn(u64) -> bool| {
        while !is_there(scan(client, model).0) {
            assert!(Instant::now() < deadline, "no tables are made");
        }
    };
    let server = serve(&data, 1, SLOW, "1MiB");
    let client = server.client();
    for key in 0..KEYS {
        model.0.insert(key, vec![7; 1_000]);
    }
    for some in (0..KEYS).collect::<Vec<_>>().chunks(200) {
        let sets = some
            .iter()
            .map(|key| client.set(&key.to_le_bytes(), &[7; 1_000]));
        let sets: Vec<_> = sets.collect();
        sets.into_iter().for_each(|set| drop(set.wait().unwrap()));
    }
    scan_until(&client, &model, &|_| counter(&client, "key_tables") >= 2);
    drop(server);

    // Each shard reads those of before for its own keys.
    let server = serve(&data, 2, SLOW, "1MiB");
    let client = server.client();
    // A shard tells its numbers when it has turned.
    while counter(&client, "key_tables") < 4 {
        assert!(Instant::now() < deadline, "the tables of before are listed");
    }
    scan_until(&client, &model, &|parts| parts < KEYS / 2);
    assert!(counter(&client, "scan_table_reads") > 0);
    assert!(inherited_bytes(&client) > 0);
    drop(server);

    // What is not there is made, of inherited segments too.
    fs::remove_dir_all(data.join("tables")).unwrap();
    let server = serve(&data, 2, SLOW, "1MiB");
    let client = server.client();
    assert_eq!(counter(&client, "key_tables"), 0);
    scan_until(&client, &model, &|_| counter(&client, "key_tables") >= 4);
    assert!(inherited_bytes(&client) > 0);
    drop(server);

    let server = serve(&data, 2, FAST, "1MiB");
    let client = server.client();
    scan(&client, &model);
    wait_until_rewritten(&data, &client, 2..4);
    scan(&client, &model);
    drop(server);
    // Of some that are left the removal was under way.
    drop(serve(&data, 2, FAST, "1MiB"));
    for entry in fs::read_dir(data.join("tables")).unwrap() {
        let name = entry.unwrap().file_name();
        let segment = name.to_str().unwrap().replace(".keys", ".seg");
        assert!(data.join("segments").join(segment).exists(), "{name:?}");
    }
    fs::remove_dir_all(&data).unwrap();
}

/// What is inherited leaves as a whole when all of it is rewritten, so there must be room for both.
/// Without it the store would be full for good.
#[test]
fn a_change_without_room_for_it_is_refused_and_with_the_room_that_is_named_it_ends() {
    const BYTES_MAX: u64 = 48 << 20;
    let _one = the_machine();
    let data = folder("shards-without-room");
    let started = |shards: &str, bytes_max: u64| {
        let mut command = command(&["serve", "--listen", "127.0.0.1:0", "--shard-ports", "0"]);
        command
            .args(["--shards", shards, "--cache-bytes", "1MiB"])
            .args(["--value-bytes-max", "16KiB", "--segment-bytes", "2MiB"])
            .args(["--disk-bytes-max", &bytes_max.to_string(), "--data"])
            .arg(&data);
        command
    };
    let key = |number: u64| number.to_le_bytes();
    let all_are_there = |client: &Client, keys: u64| {
        for first in (0..keys).step_by(200) {
            let gets: Vec<_> = (first..keys.min(first + 200))
                .map(|number| client.get(&key(number)))
                .collect();
            assert!(gets.into_iter().all(|it| it.wait().unwrap().is_some()));
        }
    };
    const KEYS: u64 = 22_000;
    {
        let server = Server::start(&mut started("1", BYTES_MAX));
        let client = server.client();
        for first in (0..KEYS).step_by(200) {
            let sets: Vec<_> = (first..first + 200)
                .map(|number| client.set(&key(number), &[7; 1_000]))
                .collect();
            sets.into_iter().for_each(|it| drop(it.wait().unwrap()));
        }
    }
    let output = started("2", BYTES_MAX).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{text}");
    let room = text.split("with room for ").nth(1);
    let mib: u64 = room
        .and_then(|it| it.split(" MiB").next()?.parse().ok())
        .expect(&text);
    {
        let server = Server::start(&mut started("1", BYTES_MAX));
        let client = server.client();
        all_are_there(&client, KEYS);
    }
    let output = started("2", (mib - 8) << 20).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    {
        let server = Server::start(&mut started("2", mib << 20));
        let client = server.client();
        wait_until_rewritten(&data, &client, 2..4);
        all_are_there(&client, KEYS);
        let deletions: Vec<_> = (0..200).map(|number| client.del(&key(number))).collect();
        assert!(deletions.into_iter().all(|it| it.wait().is_ok()));
    }
    let server = Server::start(&mut started("2", BYTES_MAX));
    let found = server.client().get(&key(KEYS - 1)).wait().unwrap();
    assert!(found.is_some());
    drop(server);
    fs::remove_dir_all(&data).unwrap();
}
