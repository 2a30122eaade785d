//! Backups of a server that serves, and of one that is stopped: what was acknowledged before one
//! began is in it, it can be started beside the original, and nothing damaged passes for whole.
#![expect(unsafe_code, reason = "limits of a child process")]

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use penstock::backup::manifest::Manifest;
use penstock::backup::{BackupError, TERMS_SKIPPED, restore, take, verify};
use penstock::directory::{Directory, DirectoryOptions};
use penstock::{Options, Penstock};
use penstock_client::{Client, Field, Verbs};
use penstock_net::request::{Condition, Expiry};
use penstock_storage::log::DurableEnd;
use penstock_storage::place::Lsn;

use crate::command::command;
use crate::process::Server;
use crate::scratch;

/// Runs a command that must end with this code; what it printed.
fn output_of(code: i32, words: &[&str]) -> String {
    let output = command(words).output().unwrap();
    let text = [&output.stdout, &output.stderr]
        .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
        .concat();
    assert_eq!(output.status.code(), Some(code), "{words:?}: {text}");
    text
}

fn serve(directory: &Path) -> Server {
    Server::start(
        command(&["serve", "--listen", "127.0.0.1:0", "--shard-ports", "0"])
            .args(["--shards", "2", "--cache-bytes", "16MiB", "--spin-us", "0"])
            .args([
                "--value-bytes-max",
                "64KiB",
                "--segment-bytes",
                "4MiB",
                "--data",
            ])
            .arg(directory),
    )
}

impl Server {
    fn backup(&self, data: &Path, to: &Path, more: &[&str]) -> String {
        let words = [
            "backup",
            "--data",
            text(data),
            "--to",
            text(to),
            "--addr",
            &self.address.to_string(),
        ];
        output_of(0, &[&words[..], more].concat())
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A folder of one test.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        let path = scratch::folder(format!("backup-{name}"));
        fs::create_dir_all(&path).unwrap();
        Place(path)
    }

    fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

fn newest(vault: &Path) -> Manifest {
    let path = files(vault)
        .into_iter()
        .rfind(|path| {
            path.extension()
                .is_some_and(|extension| extension == "manifest")
        })
        .unwrap();
    Manifest::decode(&fs::read(path).unwrap()).unwrap()
}

/// The files of a folder and those below it, sorted.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(files(&path)),
            false => found.push(path),
        }
    }
    found.sort();
    found
}

/// Damage that verifying a directory of backups tells.
fn damage(vault: &Path) -> Vec<String> {
    let mut damage = Vec::new();
    verify(vault, &mut |verdict| damage.extend(verdict.damage)).unwrap();
    damage
}

/// Copies a file or a folder.
fn copy(from: &Path, to: &Path) {
    let status = Command::new("cp")
        .arg("-a")
        .args([from, to])
        .status()
        .unwrap();
    assert!(status.success());
}

const WRITERS: usize = 4;
const AHEAD: usize = 16;
const STOCK: u64 = 1 << 40;

/// One writer's accounts: what it asked for and what was acknowledged.
#[derive(Default)]
struct Account {
    asked: AtomicU64,
    acked: AtomicU64,
}

fn keys(writer: usize) -> [Vec<u8>; 2] {
    ["left", "sold"].map(|name| format!("{name}:{{{writer}}}").into_bytes())
}

/// Moves one piece after the other from one key to another in one step, many of them under way, and
/// between them writes keys of a kilobyte that fill segments.
fn write(client: &Client, writer: usize, account: &Account, is_over: &AtomicBool) {
    let [left, sold] = keys(writer);
    client.set(&left, &STOCK.to_le_bytes()).wait().unwrap();
    client.set(&sold, &0u64.to_le_bytes()).wait().unwrap();
    let mut under_way = std::collections::VecDeque::new();
    loop {
        let is_over = is_over.load(Ordering::Relaxed);
        if under_way.len() == AHEAD || (is_over && !under_way.is_empty()) {
            let (number, sale, filler): (u64, _, _) = under_way.pop_front().unwrap();
            let sale: penstock_client::Pending<_> = sale;
            let filler: penstock_client::Pending<_> = filler;
            sale.wait().unwrap();
            filler.wait().unwrap();
            account.acked.store(number, Ordering::SeqCst);
            continue;
        }
        if is_over {
            return;
        }
        let number = account.asked.fetch_add(1, Ordering::SeqCst) + 1;
        let move_one = [
            Field::u64(0).at_least(1),
            Field::u64(0).decrease(1),
            Field::u64(0).of_second_key().increase(1),
        ];
        let sale = client.update_if_with(&left, Some(&sold), &move_one, None, Expiry::Keep);
        let key = format!("order:{writer}:{number}").into_bytes();
        let filler = client.set_if(&key, &[b'o'; 1000], Condition::Absent);
        under_way.push_back((number, sale, filler));
    }
}

#[test]
fn a_backup_under_load_holds_what_was_acknowledged_and_nothing_that_was_not_asked() {
    let place = Place::new("load");
    let [data, vault, other] = ["data", "vault", "other"].map(|name| place.join(name));
    let server = serve(&data);
    let accounts: [Account; WRITERS] = Default::default();
    let is_over = AtomicBool::new(false);
    let (mut least, mut most) = ([0; WRITERS], [0; WRITERS]);
    std::thread::scope(|scope| {
        for (writer, account) in accounts.iter().enumerate() {
            let (client, is_over) = (server.client(), &is_over);
            scope.spawn(move || write(&client, writer, account, is_over));
        }
        for round in 0u64..4 {
            // Some of the load between one backup and the next, so that segments change.
            while accounts
                .iter()
                .any(|account| account.acked.load(Ordering::SeqCst) < (round + 1) * 2_000)
            {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            least = accounts
                .each_ref()
                .map(|account| account.acked.load(Ordering::SeqCst));
            server.backup(&data, &vault, &[]);
            most = accounts
                .each_ref()
                .map(|account| account.asked.load(Ordering::SeqCst));
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert!(!data.join("segments/staging").exists());
    server.stop();
    assert_eq!(damage(&vault), Vec::<String>::new());
    output_of(0, &["verify", text(&vault)]);

    output_of(
        0,
        &["restore", "--from", text(&vault), "--to", text(&other)],
    );
    output_of(0, &["verify", text(&other)]);
    let restored = serve(&other);
    let client = restored.client();
    for writer in 0..WRITERS {
        let [left, sold] = keys(writer).map(|key| {
            let value = client.get(&key).wait().unwrap().unwrap();
            u64::from_le_bytes(value.bytes[..].try_into().unwrap())
        });
        assert_eq!(left + sold, STOCK, "a step was torn apart");
        assert!(
            (least[writer]..=most[writer]).contains(&sold),
            "{sold} sold, {} acknowledged before the backup, {} asked when it was over",
            least[writer],
            most[writer]
        );
        for number in 1..=most[writer] {
            let key = format!("order:{writer}:{number}");
            let found = client.get(key.as_bytes()).wait().unwrap();
            if number <= least[writer] {
                assert_eq!(
                    &found.expect("acknowledged before the backup").bytes[..],
                    [b'o'; 1000]
                );
            }
        }
        let beyond = format!("order:{writer}:{}", most[writer] + 1);
        assert_eq!(
            client.get(beyond.as_bytes()).wait().unwrap().map(|_| ()),
            None
        );
    }
    drop(client);
    restored.stop();
}

#[test]
fn a_second_backup_copies_only_new_segments_and_old_ones_can_be_dropped() {
    let place = Place::new("incremental");
    let [data, vault] = ["data", "vault"].map(|name| place.join(name));
    let server = serve(&data);
    let client = server.client();
    let fill = |from: u64| {
        for number in from..from + 200 {
            let key = format!("key:{number}");
            client.set(key.as_bytes(), &[b'x'; 60_000]).wait().unwrap();
        }
    };
    fill(0);
    let first = server.backup(&data, &vault, &[]);
    let segments = |manifest: &Manifest| -> BTreeSet<(u64, u64, u64)> {
        manifest
            .logs
            .iter()
            .flat_map(|log| {
                log.segments
                    .iter()
                    .map(|it| (log.log_id, it.sequence, it.bytes))
            })
            .collect()
    };
    let old = segments(&newest(&vault));
    let bytes: u64 = old.iter().map(|(_, _, bytes)| bytes).sum();
    assert!(
        first.contains(&format!("copied {} segments of {bytes} bytes", old.len())),
        "{first}"
    );

    fill(200);
    let second = server.backup(&data, &vault, &[]);
    let new = segments(&newest(&vault));
    let added: Vec<_> = new.difference(&old).collect();
    let bytes: u64 = added.iter().map(|(_, _, bytes)| bytes).sum();
    assert!(
        added.len() < new.len(),
        "some segment was sealed before the first backup"
    );
    assert!(
        second.contains(&format!("copied {} segments of {bytes} bytes", added.len())),
        "{second}"
    );
    let on_disk = || -> u64 {
        files(&vault.join("segments"))
            .iter()
            .map(|path| path.metadata().unwrap().len())
            .sum()
    };
    let both: u64 = old.union(&new).map(|(_, _, bytes)| bytes).sum();
    assert_eq!(on_disk(), both);

    // Nothing has changed but a mark, so a third one copies next to nothing; then only it is kept.
    let third = server.backup(&data, &vault, &["--keep", "1"]);
    assert!(third.contains("removed 2 older backups"), "{third}");
    assert_eq!(on_disk(), newest(&vault).bytes());
    output_of(0, &["verify", text(&vault)]);
    server.stop();
}

/// What stands in every eighth byte of a value.
fn number_of(value: &[u8]) -> u64 {
    let (words, rest) = value.as_chunks::<8>();
    assert!(
        rest.is_empty() && words.iter().all(|word| *word == words[0]),
        "a torn value"
    );
    u64::from_le_bytes(words[0])
}

/// Ends the writer, also when a backup fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_backup_beside_cleaning_is_whole_although_segments_leave() {
    const KEYS: u64 = 48;
    const VALUE_WORDS: usize = 7_000;
    let place = Place::new("cleaning");
    let [data, vault, other] = ["data", "vault", "other"].map(|name| place.join(name));
    let server = serve(&data);
    let client = server.client();
    let released = || -> u64 {
        let info = client.info().wait().unwrap();
        let info: serde_json::Value = serde_json::from_str(&info).unwrap();
        info["counters"]["segments_released"].as_u64().unwrap()
    };
    let (asked, acked) = (AtomicU64::new(0), AtomicU64::new(0));
    let is_over = AtomicBool::new(false);
    let (mut least, mut most) = (0, 0);
    let mut backups = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Numbers ascend with the keys, so what a key holds tells which writes were there.
            let client = server.client();
            let mut under_way = std::collections::VecDeque::new();
            while !is_over.load(Ordering::Relaxed) || !under_way.is_empty() {
                if under_way.len() == 8 || is_over.load(Ordering::Relaxed) {
                    let (number, pending): (u64, penstock_client::Pending<_>) =
                        under_way.pop_front().unwrap();
                    pending.wait().unwrap();
                    acked.store(number, Ordering::SeqCst);
                    continue;
                }
                let number = asked.fetch_add(1, Ordering::SeqCst) + 1;
                let key = format!("key:{}", number % KEYS).into_bytes();
                let value = number.to_le_bytes().repeat(VALUE_WORDS);
                under_way.push_back((number, client.set(&key, &value)));
            }
        });
        let over = Over(&is_over);
        while released() < 40 || backups < 4 {
            least = acked.load(Ordering::SeqCst);
            server.backup(&data, &vault, &["--keep", "2"]);
            most = asked.load(Ordering::SeqCst);
            backups += 1;
        }
        drop(over);
    });
    drop(client);
    server.stop();
    assert_eq!(damage(&vault), Vec::<String>::new());
    let holes = newest(&vault)
        .logs
        .iter()
        .any(|log| log.segments.first().is_some_and(|first| first.sequence > 1));
    assert!(holes, "nothing was cleaned before the backup");
    output_of(
        0,
        &["restore", "--from", text(&vault), "--to", text(&other)],
    );
    output_of(0, &["verify", text(&other)]);
    let restored = serve(&other);
    let client = restored.client();
    for key in 0..KEYS {
        let value = client
            .get(format!("key:{key}").as_bytes())
            .wait()
            .unwrap()
            .unwrap();
        let number = number_of(&value.bytes);
        assert_eq!(number % KEYS, key);
        assert!(
            number + KEYS > least && number <= most,
            "key {key}: {number}, {least} to {most}"
        );
    }
    drop(client);
    restored.stop();
}

/// A stopped data directory with a few records, and a backup of it.
fn small(name: &str) -> (Place, PathBuf, PathBuf) {
    let place = Place::new(name);
    let [data, vault] = ["data", "vault"].map(|name| place.join(name));
    let server = serve(&data);
    let client = server.client();
    for (key, value) in [("one", "1"), ("two", "2"), ("three", "3")] {
        client.set(key.as_bytes(), value.as_bytes()).wait().unwrap();
    }
    drop(client);
    server.stop();
    output_of(0, &["backup", "--data", text(&data), "--to", text(&vault)]);
    (place, data, vault)
}

#[test]
fn every_flipped_byte_of_a_backup_is_reported() {
    let (_place, _, vault) = small("flips");
    assert_eq!(damage(&vault), Vec::<String>::new());
    let mut flipped = 0;
    for path in files(&vault) {
        let bytes = fs::read(&path).unwrap();
        let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
        for (at, byte) in (0u64..).zip(&bytes) {
            file.write_all_at(&[byte ^ (1 << (at % 8))], at).unwrap();
            assert_ne!(
                damage(&vault),
                Vec::<String>::new(),
                "byte {at} of {}",
                path.display()
            );
            file.write_all_at(&[*byte], at).unwrap();
            flipped += 1;
        }
    }
    assert!(flipped > 20_000, "{flipped} bytes");
    assert_eq!(damage(&vault), Vec::<String>::new());
}

#[test]
fn every_cut_or_missing_file_of_a_backup_is_reported_and_not_restored() {
    let (_place, _, vault) = small("cuts");
    let other = vault.with_file_name("other");
    for path in files(&vault) {
        let bytes = fs::read(&path).unwrap();
        if bytes.is_empty() {
            continue;
        }
        let is_manifest = path
            .extension()
            .is_some_and(|extension| extension == "manifest");
        for len in (0..bytes.len())
            .rev()
            .filter(|len| is_manifest || len % 64 == 0)
        {
            fs::write(&path, &bytes[..len]).unwrap();
            assert_ne!(
                damage(&vault),
                Vec::<String>::new(),
                "{len} of {}",
                path.display()
            );
        }
        assert!(restore(&vault, &other, None, 0).is_err());
        assert!(!other.exists(), "something of it was left");
        let cause_is_named = |cause: &str| {
            let printed = output_of(
                1,
                &["restore", "--from", text(&vault), "--to", text(&other)],
            );
            assert!(
                printed.contains(text(&path)) && printed.contains(cause),
                "{printed}"
            );
            assert!(printed.contains("nothing was restored"), "{printed}");
        };
        if !is_manifest {
            cause_is_named(&format!("it has fewer than its {} bytes", bytes.len()));
        }
        fs::remove_file(&path).unwrap();
        if !is_manifest {
            cause_is_named("No such file or directory");
        }
        assert!(
            is_manifest || !damage(&vault).is_empty(),
            "{}",
            path.display()
        );
        fs::write(&path, &bytes).unwrap();
    }
    assert_eq!(damage(&vault), Vec::<String>::new());
}

#[test]
fn what_an_interrupted_backup_leaves_is_no_backup_and_the_next_one_uses_it() {
    let (_place, data, vault) = small("interrupted");
    let path = files(&vault)
        .into_iter()
        .find(|path| {
            path.extension()
                .is_some_and(|extension| extension == "manifest")
        })
        .unwrap();
    fs::remove_file(path).unwrap();
    fs::write(vault.join("segments/new.tmp"), "half").unwrap();
    fs::write(vault.join("new.tmp"), "half").unwrap();
    let refused = output_of(2, &["verify", text(&vault)]);
    assert!(refused.contains("no backup"), "{refused}");
    output_of(
        2,
        &[
            "restore",
            "--from",
            text(&vault),
            "--to",
            text(&vault.with_file_name("other")),
        ],
    );
    let again = output_of(0, &["backup", "--data", text(&data), "--to", text(&vault)]);
    assert!(again.contains("copied 0 segments"), "{again}");
    assert!(!vault.join("new.tmp").exists() && !vault.join("segments/new.tmp").exists());
    output_of(0, &["verify", text(&vault)]);
}

/// An embedded store begins with short segments and doubles them.
#[test]
fn an_embedded_store_with_segments_of_several_lengths_is_inspected_verified_and_restored() {
    let place = Place::new("lengths");
    let [data, vault, other] = ["data", "vault", "other"].map(|name| place.join(name));
    let value = |number: u32| vec![number.to_le_bytes()[0]; 40_000];
    let store = Penstock::open(&data, Options::default()).unwrap();
    for number in 0..600_u32 {
        let set = store.set(&number.to_le_bytes(), &value(number));
        set.wait().unwrap();
    }
    store.close().unwrap();
    let mut lengths: Vec<u64> = files(&data.join("segments"))
        .iter()
        .map(|path| fs::metadata(path).unwrap().len())
        .collect();
    lengths.sort_unstable();
    lengths.dedup();
    assert!(lengths.len() >= 3, "{lengths:?}");

    output_of(0, &["inspect", text(&data)]);
    output_of(0, &["verify", text(&data)]);
    output_of(0, &["backup", "--data", text(&data), "--to", text(&vault)]);
    output_of(0, &["verify", text(&vault)]);
    let copied: BTreeSet<u64> = newest(&vault)
        .logs
        .iter()
        .flat_map(|log| log.segments.iter().map(|segment| segment.bytes))
        .collect();
    assert!(copied.len() >= 3, "{copied:?}");
    output_of(
        0,
        &["restore", "--from", text(&vault), "--to", text(&other)],
    );
    output_of(0, &["inspect", text(&other)]);
    for data in [&data, &other] {
        let store = Penstock::open(data, Options::default()).unwrap();
        for number in 0..600_u32 {
            let found = store.get(&number.to_le_bytes()).wait().unwrap().unwrap();
            assert!(found.bytes[..] == value(number)[..], "key {number}");
        }
        store.set(b"new", b"value").wait().unwrap();
        store.close().unwrap();
    }
}

#[test]
fn a_restored_node_is_another_one_and_gives_out_no_version_of_the_original() {
    let (_place, data, vault) = small("identity");
    let other = vault.with_file_name("other");
    output_of(
        0,
        &["restore", "--from", text(&vault), "--to", text(&other)],
    );
    let before = Directory::inspect(&data).unwrap().identity().clone();
    let after = Directory::inspect(&other).unwrap().identity().clone();
    assert_eq!(before.cluster_id, after.cluster_id);
    assert_ne!(before.node_id, after.node_id);
    assert_eq!(after.incarnation, before.incarnation + TERMS_SKIPPED);

    // The original goes on as the restored one does, with the same keys.
    let (original, restored) = (serve(&data), serve(&other));
    let [a, b] = [&original, &restored].map(|server| {
        let client = server.client();
        let value = client.get(b"one").wait().unwrap().unwrap();
        assert_eq!(&value.bytes[..], b"1");
        client.set(b"one", b"another").wait().unwrap().version
    });
    assert!(b.epoch > a.epoch, "{a:?} {b:?}");
    // Neither is taken for the other.
    let mixed = output_of(
        2,
        &[
            "backup",
            "--data",
            text(&data),
            "--to",
            text(&vault),
            "--addr",
            &restored.address.to_string(),
        ],
    );
    assert!(
        mixed.contains("name the one that uses it with --addr"),
        "{mixed}"
    );
    let foreign = output_of(
        2,
        &[
            "backup",
            "--data",
            text(&other),
            "--to",
            text(&vault),
            "--addr",
            &restored.address.to_string(),
        ],
    );
    assert!(foreign.contains("a backup of another node"), "{foreign}");
    restored.stop();
    original.stop();
}

#[test]
fn a_restore_into_anything_but_an_empty_directory_is_refused() {
    let (_place, data, vault) = small("occupied");
    let refused = output_of(2, &["restore", "--from", text(&vault), "--to", text(&data)]);
    assert!(refused.contains("not empty"), "{refused}");
    let empty = vault.with_file_name("empty");
    fs::create_dir(&empty).unwrap();
    output_of(
        0,
        &["restore", "--from", text(&vault), "--to", text(&empty)],
    );
    let refused = output_of(
        2,
        &["restore", "--from", text(&vault), "--to", text(&empty)],
    );
    assert!(refused.contains("not empty"), "{refused}");
}

#[test]
fn wrong_places_are_refused_by_name() {
    let (_place, data, vault) = small("places");
    let inside = data.join("backups");
    let words = |to: &Path| output_of(2, &["backup", "--data", text(&data), "--to", text(to)]);
    assert!(words(&inside).contains("within the data directory"));
    assert!(words(&data).contains("within the data directory"));
    let foreign = vault.with_file_name("foreign");
    fs::create_dir(&foreign).unwrap();
    fs::write(foreign.join("letter.txt"), "").unwrap();
    assert!(words(&foreign).contains("it holds 'letter.txt'"));
    let absent = output_of(
        2,
        &[
            "restore",
            "--from",
            text(&vault),
            "--to",
            "/nowhere/x",
            "--backup",
            "none.manifest",
        ],
    );
    assert!(
        absent.contains("no backup is named none.manifest"),
        "{absent}"
    );
    assert!(output_of(2, &["verify", "/nowhere"]).contains("/nowhere"));
}

/// Runs a command whose files may have so many bytes: then its writes fail, as on a full disk.
fn output_within(file_bytes_max: u64, words: &[&str]) -> String {
    let limit = libc::rlimit {
        rlim_cur: file_bytes_max,
        rlim_max: file_bytes_max,
    };
    let mut command = command(words);
    // SAFETY: both are system calls on numbers and a live structure, and take nothing from the
    // heap: a child between fork and exec may make them.
    unsafe {
        command.pre_exec(move || {
            libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
            match libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        });
    }
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{words:?}: {text}");
    text
}

#[test]
fn a_target_that_takes_no_more_bytes_is_named_and_not_the_source() {
    let (place, data, vault) = small("full");
    for (to, words) in [
        (
            place.join("more"),
            ["backup", "--data", text(&data), "--to"],
        ),
        (
            place.join("restored"),
            ["restore", "--from", text(&vault), "--to"],
        ),
    ] {
        let refused = output_within(4096, &[&words[..], &[text(&to)]].concat());
        assert!(refused.contains(text(&to)), "{refused}");
        assert!(!refused.contains(words[2]), "{refused}");
        let left = fs::read_dir(to.join("segments")).map_or(0, Iterator::count);
        assert_eq!(left, 0, "what was written of it is removed");
    }
}

#[test]
fn damage_of_the_data_is_not_backed_up() {
    let (_place, data, vault) = small("damaged");
    let before = files(&vault);
    let path = files(&data.join("segments"))
        .into_iter()
        .find(|path| fs::read(path).unwrap()[0] != 0)
        .unwrap();
    let mut bytes = fs::read(&path).unwrap();
    bytes[4096 + 64 + 20] ^= 1;
    fs::write(&path, bytes).unwrap();
    let refused = output_of(1, &["backup", "--data", text(&data), "--to", text(&vault)]);
    assert!(refused.contains("is damaged at offset 4096"), "{refused}");
    assert_eq!(files(&vault), before);
}

/// How far each log of a stopped directory goes.
fn ends(data: &Path) -> Vec<DurableEnd> {
    let copy_of = data.with_file_name("scratch");
    take(data, &copy_of, None, 0, &mut |_| {
        unreachable!("nobody serves it")
    })
    .unwrap();
    let manifest = newest(&copy_of);
    fs::remove_dir_all(copy_of).unwrap();
    manifest
        .logs
        .iter()
        .filter_map(|log| {
            let last = log.segments.last()?;
            Some(DurableEnd {
                log_id: log.log_id,
                lsn: Lsn(log.lsn),
                segment_sequence: last.sequence,
                end_offset: last.bytes,
            })
        })
        .collect()
}

/// Holds a data directory as a server does.
fn held(data: &Path) -> Directory {
    let options = DirectoryOptions {
        shards_of_new: 2,
        segment_bytes: 4 << 20,
    };
    Directory::open(data, options).unwrap()
}

#[test]
fn a_segment_that_is_removed_after_the_answer_is_in_the_backup() {
    let (_place, data, vault) = small("released");
    let vault = vault.with_file_name("beside");
    let ends = ends(&data);
    let _server = held(&data);
    let taken = take(&data, &vault, None, 1, &mut |_| {
        for path in files(&data.join("segments")) {
            if !path.starts_with(data.join("segments/staging")) {
                fs::remove_file(path).unwrap();
            }
        }
        Ok(ends.clone())
    })
    .unwrap();
    assert_eq!(
        taken.manifest.logs.iter().map(|log| log.lsn).sum::<u64>(),
        3
    );
    assert!(!data.join("segments/staging").exists());
    assert_eq!(damage(&vault), Vec::<String>::new());
}

#[test]
fn what_was_written_after_the_answer_is_not_in_the_backup() {
    let (_place, data, vault) = small("point");
    let vault = vault.with_file_name("beside");
    let _server = held(&data);
    // The end of the first frame of each log, behind which another record stands in one of them.
    let asked = Cell::new(0);
    let taken = take(&data, &vault, None, 1, &mut |_| {
        asked.set(asked.get() + 1);
        let end = |log_id| DurableEnd {
            log_id,
            lsn: Lsn(1),
            segment_sequence: 1,
            end_offset: 8192,
        };
        Ok(vec![end(1), end(2)])
    })
    .unwrap();
    assert_eq!(asked.get(), 1);
    for log in &taken.manifest.logs {
        assert_eq!(
            (log.lsn, log.segments.len(), log.segments[0].bytes),
            (1, 1, 8192)
        );
    }
    assert_eq!(damage(&vault), Vec::<String>::new());
}

#[test]
fn a_server_that_cannot_be_asked_is_exit_code_3_and_leaves_nothing() {
    let (_place, data, vault) = small("unasked");
    let vault = vault.with_file_name("beside");
    let _server = held(&data);
    let words = ["backup", "--data", text(&data), "--to", text(&vault)];
    let refused = output_of(3, &[&words[..], &["--addr", "127.0.0.1:1"]].concat());
    assert!(refused.contains("no server at 127.0.0.1:1"), "{refused}");
    assert!(!data.join("segments/staging").exists() && !vault.exists());
}

#[test]
fn a_durable_record_that_cannot_be_read_is_reported() {
    let (_place, data, vault) = small("short");
    let vault = vault.with_file_name("beside");
    let mut ends = ends(&data);
    ends[0].lsn.0 += 1;
    let _server = held(&data);
    let error = take(&data, &vault, None, 1, &mut |_| Ok(ends.clone())).unwrap_err();
    assert!(matches!(error, BackupError::Damaged(_)), "{error}");
    assert!(error.to_string().contains("the server says"), "{error}");
}

#[test]
fn what_a_killed_backup_left_beside_the_data_is_cleared_by_the_next_start() {
    let (_place, data, _) = small("killed");
    let staging = data.join("segments/staging");
    fs::create_dir(&staging).unwrap();
    fs::write(staging.join("LOCK"), "").unwrap();
    let path = files(&data.join("segments")).pop().unwrap();
    fs::hard_link(&path, staging.join("00000001.seg")).unwrap();
    // While that one still runs, nothing is cleared.
    let lock = fs::File::open(staging.join("LOCK")).unwrap();
    lock.lock().unwrap();
    drop(held(&data));
    assert!(staging.join("00000001.seg").exists());
    drop(lock);
    drop(held(&data));
    assert!(!staging.exists());
}

#[test]
fn a_backup_that_was_copied_elsewhere_is_whole() {
    let (_place, _, vault) = small("moved");
    let moved = vault.with_file_name("moved");
    copy(&vault, &moved);
    fs::remove_file(moved.join("LOCK")).unwrap();
    assert_eq!(damage(&moved), Vec::<String>::new());
    let other = moved.with_file_name("other");
    output_of(
        0,
        &["restore", "--from", text(&moved), "--to", text(&other)],
    );
    assert!(!moved.join("LOCK").exists(), "reading wrote something");
}
