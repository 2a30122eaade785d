//! Keyspaces and kept versions in the real server, by both interfaces to the kernel, and in the
//! embedded store on the same files: settings are enforced on every shard, and the past is told
//! as it was, over kill -9, a stop and a start.

use std::fs;
use std::path::Path;
use std::process::{Output, Stdio};

use penstock::config::IoMode;
use penstock::embedded::Local;
use penstock::{Options, Penstock};
use penstock_client::{Changed, Client, ClientError, ClientOptions, Field, Past, Verbs};
use penstock_net::instruction::Instruction;
use penstock_net::keyspace::{Action, At, History, Keyspace, Settings};
use penstock_net::level::AckLevel;
use penstock_net::reply::KeyExpiry;
use penstock_net::request::Version;
use penstock_net::status::Status;

use crate::command::command;
use crate::process::Server;
use crate::scratch::folder;

/// Enough keys for every shard to have some.
const KEYS: usize = 8;
const HOUR_MS: u64 = 3_600_000;

fn serve(data: &Path, io: &str) -> Server {
    Server::start(
        command(&["serve", "--listen", "127.0.0.1:0", "--shard-ports", "0"])
            .args(["--shards", "2", "--cache-bytes", "1MiB", "--io", io])
            .args(["--durability", "none"])
            .args(["--segment-bytes", "4MiB", "--value-bytes-max", "64KiB"])
            .arg("--data")
            .arg(data)
            .stderr(Stdio::null()),
    )
}

/// A client that asks for no level of its own.
fn connect(server: &Server) -> Client {
    let options = ClientOptions {
        level: AckLevel::None,
        deadline: std::time::Duration::from_secs(60),
        ..ClientOptions::default()
    };
    Client::connect(server.address, options).unwrap()
}

impl Server {
    /// Runs a command that must end with this code; what it printed on both streams.
    fn output_of(&self, code: i32, words: &[&str]) -> String {
        let Output {
            status,
            stdout,
            stderr,
        } = command(words)
            .args(["--addr", &self.address.to_string()])
            .output()
            .unwrap();
        let text = [stdout, stderr]
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .concat();
        assert_eq!(status.code(), Some(code), "{words:?}: {text}");
        text
    }
}

type Answer<T> = Result<T, ClientError>;

/// The three ways to a store.
trait Store {
    fn keyspace(&mut self, prefix: &[u8], action: Action) -> Answer<Vec<Keyspace>>;
    fn set(&mut self, key: &[u8], value: &[u8]) -> Answer<Changed>;
    fn del(&mut self, key: &[u8]) -> Answer<bool>;
    fn update_if(&mut self, key: &[u8], start: &[u8], add: &[Instruction]) -> Changed;
    fn expiry(&mut self, key: &[u8]) -> KeyExpiry;
    fn get_at(&mut self, key: &[u8], at: At) -> Answer<Option<Past>>;
    fn history(&mut self, key: &[u8], before: u64, limit: u32) -> Answer<History>;
}

macro_rules! store {
    ([$($borrow:tt)+] $store:ty $(, $wait:ident)?) => {
        impl Store for $store {
            fn keyspace(&mut self, prefix: &[u8], action: Action) -> Answer<Vec<Keyspace>> {
                Verbs::keyspace($($borrow)+ *self, prefix, action)$(.$wait())?
            }
            fn set(&mut self, key: &[u8], value: &[u8]) -> Answer<Changed> {
                Verbs::set($($borrow)+ *self, key, value)$(.$wait())?
            }
            fn del(&mut self, key: &[u8]) -> Answer<bool> {
                Verbs::del($($borrow)+ *self, key)$(.$wait())?
            }
            fn update_if(&mut self, key: &[u8], start: &[u8], add: &[Instruction]) -> Changed {
                let keep = penstock_net::request::Expiry::Keep;
                Verbs::update_if_with($($borrow)+ *self, key, None, add, Some(start), keep)
                    $(.$wait())?
                    .unwrap()
            }
            fn expiry(&mut self, key: &[u8]) -> KeyExpiry {
                Verbs::expiry($($borrow)+ *self, key)$(.$wait())?.unwrap().unwrap()
            }
            fn get_at(&mut self, key: &[u8], at: At) -> Answer<Option<Past>> {
                Verbs::get_at($($borrow)+ *self, key, at)$(.$wait())?
            }
            fn history(&mut self, key: &[u8], before: u64, limit: u32) -> Answer<History> {
                Verbs::history($($borrow)+ *self, key, before, limit)$(.$wait())?
            }
        }
    };
}

store!([&] Client, wait);
store!([&] Penstock, wait);
store!([&mut] Local);

fn hold() -> Settings {
    Settings {
        level_min: AckLevel::Disk,
        value_bytes_max: 16,
        ttl_ms: HOUR_MS,
        ..Settings::default()
    }
}

fn price() -> Settings {
    Settings {
        level_min: AckLevel::Disk,
        versions: 2,
        ..Settings::default()
    }
}

/// Level, value limit and lifetime are those of the keyspace, and of nothing beside it.
fn settings_are_enforced(store: &mut impl Store) {
    let shown: Vec<_> = store
        .keyspace(b"", Action::List)
        .unwrap()
        .into_iter()
        .map(|it| (it.prefix, it.settings))
        .collect();
    assert_eq!(
        shown,
        [(b"hold:".into(), hold()), (b"price:".into(), price())]
    );
    for number in 0..KEYS {
        let (held, made) = (format!("hold:{number}"), format!("hold:made{number}"));
        let other = format!("holt:{number}");
        assert_eq!(
            store.set(held.as_bytes(), &[7; 16]).unwrap().level,
            AckLevel::Disk
        );
        assert_eq!(
            store.set(other.as_bytes(), &[7; 17]).unwrap().level,
            AckLevel::None
        );
        let one = [Field::u64(0).increase(1)];
        assert_eq!(
            store.update_if(made.as_bytes(), &[0; 8], &one).level,
            AckLevel::Disk
        );
        for key in [held.as_bytes(), made.as_bytes()] {
            let KeyExpiry { expiry_ms, time_ms } = store.expiry(key);
            assert!(
                (time_ms + 1..=time_ms + HOUR_MS).contains(&expiry_ms),
                "{expiry_ms} at {time_ms}"
            );
        }
        assert_eq!(store.expiry(other.as_bytes()).expiry_ms, 0);
        let Err(ClientError::Refused(refused)) = store.set(held.as_bytes(), &[7; 17]) else {
            panic!("it is too long");
        };
        assert_eq!(refused.status, Status::TooLarge);
        assert_eq!(
            String::from_utf8_lossy(&refused.value),
            "value of 17 bytes; keyspace \"hold:\" accepts at most 16"
        );
        let not_kept = store.history(held.as_bytes(), 0, 9);
        assert!(
            matches!(not_kept, Err(ClientError::No(answer)) if answer.status == Status::NotKept)
        );
    }
    let refused = store.set(b"\0\0penstock/keyspace/{0}hold:", b"");
    assert!(
        matches!(refused, Err(ClientError::Refused(answer)) if answer.status == Status::BadKey)
    );
    let again = store.keyspace(b"hold:", Action::Create(hold()));
    assert!(matches!(again, Err(ClientError::No(answer)) if answer.status == Status::Exists));
}

/// Every version of a key: its version, and its value if it is no deletion.
type Versions = Vec<(Version, Option<Vec<u8>>)>;

fn key_of(number: usize) -> Vec<u8> {
    format!("price:{number}").into_bytes()
}

fn write(store: &mut impl Store, model: &mut [Versions; KEYS], round: usize) {
    for (number, versions) in model.iter_mut().enumerate() {
        let key = key_of(number);
        let value = vec![b'a' + u8::try_from(round).unwrap(); 5_000 + number];
        let version = store.set(&key, &value).unwrap().version;
        versions.push((version, Some(value)));
        if number % 3 == round % 3 {
            assert!(store.del(&key).unwrap());
            let newest = store.history(&key, 0, 1).unwrap().versions[0];
            assert!(newest.is_deletion);
            versions.push((newest.version, None));
        }
    }
}

/// The newest version and the two before it are told as they were, and nothing of what is older.
fn check_the_past(store: &mut impl Store, model: &[Versions; KEYS]) {
    for (number, versions) in model.iter().enumerate() {
        let key = key_of(number);
        let history = store.history(&key, 0, 9).unwrap();
        assert!(!history.has_more);
        let newest: Vec<_> = versions.iter().rev().take(3).collect();
        let shown = history
            .versions
            .iter()
            .map(|kept| (kept.version, kept.is_deletion));
        assert!(
            shown.eq(newest
                .iter()
                .map(|(version, value)| (*version, value.is_none())))
        );
        let page = store
            .history(&key, history.versions[0].version.sequence, 1)
            .unwrap();
        assert_eq!(page.versions, history.versions[1..2]);
        assert!(page.has_more);
        for (kept, (version, value)) in history.versions.iter().zip(newest) {
            let past = store.get_at(&key, At::Version(*version)).unwrap();
            assert_eq!(
                past.as_ref().map(|past| past.version),
                value.as_ref().map(|_| *version)
            );
            assert_eq!(past.as_ref().map(|past| &past.bytes[..]), value.as_deref());
            // Perhaps a newer one of the same millisecond.
            let of_that_time = history
                .versions
                .iter()
                .find(|it| it.time_ms == kept.time_ms);
            let expected = of_that_time
                .filter(|it| !it.is_deletion)
                .map(|it| it.version);
            let past = store.get_at(&key, At::TimeMs(kept.time_ms)).unwrap();
            assert_eq!(past.map(|past| past.version), expected);
        }
        let older = versions.iter().rev().nth(3).expect("four were written");
        for at in [At::Version(older.0), At::TimeMs(1)] {
            let Err(ClientError::No(answer)) = store.get_at(&key, at) else {
                panic!("it is not kept");
            };
            assert_eq!(answer.status, Status::NotKept);
            assert_eq!(answer.version, history.versions[2].version);
        }
    }
}

/// What is written in four rounds.
fn filled(store: &mut impl Store) -> [Versions; KEYS] {
    let mut model = [const { Vec::new() }; KEYS];
    for round in 0..4 {
        write(store, &mut model, round);
    }
    model
}

fn all_holds(store: &mut impl Store, model: &[Versions; KEYS]) {
    settings_are_enforced(store);
    check_the_past(store, model);
}

fn options(io: IoMode) -> Options {
    Options::default()
        .deadline(std::time::Duration::from_secs(60))
        .io(io)
        .level(AckLevel::None)
        .segment_bytes(4 << 20)
        .value_bytes_max(64 << 10)
        .cache_bytes(1 << 20)
}

fn inspect_shows_the_keyspaces(data: &Path) {
    let inspected = command(&["inspect"]).arg(data).output().unwrap();
    let text = String::from_utf8(inspected.stdout).unwrap();
    let keyspaces: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("keyspace "))
        .collect();
    assert_eq!(
        keyspaces,
        [
            "\"hold:\" level-min disk versions 0 retention 0ms ttl 3600000ms value-bytes-max 16 \
             layout 0",
            "\"price:\" level-min disk versions 2 retention 0ms ttl 0ms value-bytes-max 0 layout 0",
        ],
        "{text}"
    );
}

fn served_and_embedded(name: &str, io: &str, embedded: IoMode) {
    let data = folder(name);
    let server = serve(&data, io);
    let hold = [
        "--ttl",
        "1h",
        "--level-min",
        "disk",
        "--value-bytes-max",
        "16",
    ];
    assert_eq!(
        server.output_of(0, &[&["keyspace", "create", "hold:"], &hold[..]].concat()),
        "\"hold:\" level-min disk versions 0 retention 0ms ttl 3600000ms value-bytes-max 16 \
         layout 0\n"
    );
    server.output_of(0, &["keyspace", "create", "price:", "--versions", "9"]);
    server.output_of(
        0,
        &[
            "keyspace",
            "set",
            "price:",
            "--versions",
            "2",
            "--level-min",
            "disk",
        ],
    );
    let mut client = connect(&server);
    let mut model = filled(&mut client);
    all_holds(&mut client, &model);
    // kill -9
    drop((client, server));

    let server = serve(&data, io);
    let mut client = connect(&server);
    all_holds(&mut client, &model);
    write(&mut client, &mut model, 4);
    let (key, versions) = ("price:1", &model[1]);
    let history = server.output_of(0, &["history", key]);
    assert_eq!(history.lines().count(), 3, "{history}");
    let deletion = format!(
        "{}:{} deleted at ",
        versions[6].0.epoch, versions[6].0.sequence
    );
    assert!(history.starts_with(&deletion), "{history}");
    let at = |version: Version| format!("{}:{}", version.epoch, version.sequence);
    let value = server.output_of(0, &["get", key, "--at-version", &at(versions[5].0)]);
    assert_eq!(Some(value.into_bytes()), versions[5].1);
    let too_old = server.output_of(1, &["get", key, "--at-version", &at(versions[3].0)]);
    let oldest = at(versions[4].0);
    assert!(
        too_old.contains(&format!("is kept is {oldest}")),
        "{too_old}"
    );
    server.output_of(1, &["get", key, "--at-ms", "1"]);
    server.output_of(2, &["set", "hold:1", &"x".repeat(17)]);
    check_the_past(&mut client, &model);
    drop(client);
    server.stop();

    let mut store = Penstock::open(&data, options(embedded).shards(2)).unwrap();
    all_holds(&mut store, &model);
    write(&mut store, &mut model, 5);
    let settings = Settings {
        ttl_ms: 2 * HOUR_MS,
        ..Settings::default()
    };
    let made = Store::keyspace(&mut store, b"hold:long:", Action::Create(settings));
    assert_eq!(made.unwrap()[0].settings, settings);
    store.close().unwrap();

    let server = serve(&data, io);
    let mut client = connect(&server);
    check_the_past(&mut client, &model);
    client.set(b"hold:long:1", &[7; 17]).wait().unwrap();
    let shown = client.expiry(b"hold:long:1").wait().unwrap().unwrap();
    assert!(shown.expiry_ms > shown.time_ms + HOUR_MS);
    server.output_of(0, &["keyspace", "drop", "hold:long:"]);
    all_holds(&mut client, &model);
    server.output_of(1, &["keyspace", "drop", "hold:long:"]);
    drop((client, server));

    inspect_shows_the_keyspaces(&data);
    fs::remove_dir_all(&data).unwrap();
}

#[test]
fn keyspaces_are_obeyed_and_the_past_is_shown_with_io_uring() {
    served_and_embedded("keyspaces-uring", "auto", IoMode::Auto);
}

#[test]
fn keyspaces_are_obeyed_and_the_past_is_shown_with_threads() {
    served_and_embedded("keyspaces-threads", "threads", IoMode::Threads);
}

#[test]
fn a_store_on_the_callers_thread_has_keyspaces_and_a_past() {
    for io in [IoMode::Auto, IoMode::Threads] {
        let data = folder("keyspaces-local");
        let mut store = Penstock::open_local(&data, options(io)).unwrap();
        for (prefix, settings) in [(&b"hold:"[..], hold()), (b"price:", price())] {
            let made = Verbs::keyspace(&mut store, prefix, Action::Create(settings)).unwrap();
            assert_eq!((&made[0].prefix[..], made[0].settings), (prefix, settings));
        }
        let mut model = filled(&mut store);
        all_holds(&mut store, &model);
        store.close().unwrap();
        let mut store = Penstock::open_local(&data, options(io)).unwrap();
        all_holds(&mut store, &model);
        write(&mut store, &mut model, 4);
        check_the_past(&mut store, &model);
        let dropped = Verbs::keyspace(&mut store, b"price:", Action::Drop);
        assert!(dropped.unwrap().is_empty());
        let dropped = Verbs::history(&mut store, b"price:1", 0, 9);
        assert!(
            matches!(dropped, Err(ClientError::No(answer)) if answer.status == Status::NotKept)
        );
        store.close().unwrap();
        fs::remove_dir_all(&data).unwrap();
    }
}
