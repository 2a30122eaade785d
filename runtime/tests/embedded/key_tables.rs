//! Key tables of a real store: scans make them, a start takes them over, `penstock inspect` shows
//! them, and one that is damaged, or beside another segment, costs reads and no key.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use penstock::{Options, Penstock, Verbs};
use penstock_net::level::AckLevel;

use crate::scratch::Scratch;

const KEYS: usize = 12_000;
/// How long the helper may take to make a few tables.
const PATIENCE: Duration = Duration::from_secs(120);

/// Of segments of 2 MiB a table is made after 32 reads.
fn options() -> Options {
    Options::default()
        .deadline(std::time::Duration::from_secs(60))
        .shards(1)
        .level(AckLevel::None)
        .segment_bytes(2 << 20)
        .value_bytes_max(128 << 10)
        .cache_bytes(1 << 20)
}

fn open(path: &Path) -> Penstock {
    Penstock::open(path, options()).unwrap()
}

fn number(store: &Penstock, name: &str) -> u64 {
    let info: serde_json::Value = serde_json::from_str(&store.info().wait().unwrap()).unwrap();
    info["counters"][name]
        .as_u64()
        .unwrap_or_else(|| panic!("no {name}"))
}

fn key(number: usize) -> Vec<u8> {
    format!("key:{number}").into_bytes()
}

/// All keys, each told once, and what it cost: parts and blocks.
fn scan(store: &Penstock) -> (u64, u64) {
    let cost = || {
        (
            number(store, "scan_part_reads"),
            number(store, "scan_table_reads"),
        )
    };
    let before = cost();
    let keys: Vec<Vec<u8>> = store
        .scan(b"", false)
        .map(|entry| entry.unwrap().key.to_vec())
        .collect();
    let distinct: BTreeSet<&Vec<u8>> = keys.iter().collect();
    assert_eq!((keys.len(), distinct.len()), (KEYS, KEYS));
    let after = cost();
    (after.0 - before.0, after.1 - before.1)
}

/// Scans until nothing but the last segments has no table.
fn scan_until_tables_stand(store: &Penstock) {
    let began = Instant::now();
    while scan(store).0 > KEYS as u64 / 4 {
        assert!(began.elapsed() < PATIENCE, "no tables are made");
    }
}

fn tables(path: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(path.join("tables")).unwrap();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

fn inspect(path: &Path) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_penstock"))
        .arg("inspect")
        .arg(path)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    text
}

#[test]
fn tables_outlive_a_start_and_what_is_wrong_with_them_costs_reads_and_no_key() {
    let scratch = Scratch::new("key-tables");
    let path = &scratch.0;
    let store = open(path);
    for number in 0..KEYS {
        store.set(&key(number), &[7; 1000]).wait().unwrap();
    }
    scan_until_tables_stand(&store);
    let standing = number(&store, "key_tables");
    assert!(standing >= 3, "{standing} tables");
    store.close().unwrap();

    let there = tables(path);
    assert!(there.len() as u64 >= standing);
    let shown = inspect(path);
    let usable = shown
        .lines()
        .filter(|line| line.starts_with("key table of "));
    assert_eq!(usable.clone().count(), there.len(), "{shown}");
    assert!(
        usable.clone().all(|line| line.ends_with(" bytes")),
        "{shown}"
    );

    let store = open(path);
    assert_eq!(number(&store, "key_tables"), there.len() as u64);
    assert_eq!(number(&store, "scan_table_reads"), 0);
    // The first steps of the first scan do not wait for them.
    scan_until_tables_stand(&store);
    let (parts, _) = scan(&store);
    let blocks = number(&store, "scan_table_reads");
    assert!(
        parts < KEYS as u64 / 4 && (1..KEYS as u64 / 20).contains(&blocks),
        "{parts} and {blocks}"
    );
    // A table of what the stop has sealed may come meanwhile, and is read once.
    let is_kept = (0..5).any(|_| scan(&store).1 == 0);
    assert!(is_kept, "the blocks are kept");
    store.close().unwrap();

    // Another one may have been made, of what the stop has sealed.
    let there = tables(path);
    // One rots in a block, one in its header, one comes to stand beside another segment.
    let mut bytes = fs::read(&there[0]).unwrap();
    bytes[5000] ^= 1;
    fs::write(&there[0], &bytes).unwrap();
    let mut bytes = fs::read(&there[1]).unwrap();
    bytes[50] ^= 1;
    fs::write(&there[1], &bytes).unwrap();
    fs::copy(&there[1], there[1].with_extension("keys.tmp")).unwrap();
    let other = tables(path).pop().unwrap();
    fs::copy(&other, &there[2]).unwrap();
    fs::write(path.join("tables/00900000.keys"), b"of no segment").unwrap();
    let shown = inspect(path);
    let unusable = shown
        .lines()
        .filter(|line| line.contains(": not usable: it "));
    assert_eq!(unusable.count(), 4, "{shown}");

    let store = open(path);
    assert_eq!(number(&store, "key_tables"), there.len() as u64);
    let began = Instant::now();
    while number(&store, "key_tables_void") < 3 {
        assert!(began.elapsed() < PATIENCE, "they are believed");
        scan(&store);
    }
    scan_until_tables_stand(&store);
    store.close().unwrap();
    assert!(
        tables(path)
            .iter()
            .all(|path| path.extension().unwrap() == "keys")
    );
    assert!(!path.join("tables/00900000.keys").exists());
}

#[test]
fn tables_that_no_scan_has_wanted_since_the_start_leave_with_their_segments() {
    let scratch = Scratch::new("key-tables-unread");
    let path = &scratch.0;
    let store = open(path);
    for number in 0..KEYS {
        store.set(&key(number), &[7; 1000]).wait().unwrap();
    }
    scan_until_tables_stand(&store);
    store.close().unwrap();
    let there = tables(path);

    let store = open(path);
    assert_eq!(number(&store, "key_tables"), there.len() as u64);
    // Cleaning gives segments back.
    let began = Instant::now();
    let mut gone = 0..KEYS;
    while number(&store, "key_tables") == there.len() as u64 {
        assert!(began.elapsed() < PATIENCE, "their segments stay");
        for number in gone.by_ref().take(1_000) {
            store.del(&key(number)).wait().unwrap();
        }
    }
    assert_eq!(number(&store, "scan_table_reads"), 0);
    let standing = number(&store, "key_tables");
    // The shard forgets a table before the helper removes its file.
    let began = Instant::now();
    while tables(path).len() as u64 > standing {
        assert!(began.elapsed() < PATIENCE, "their files stay");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    store.close().unwrap();
    assert!(tables(path).len() as u64 <= standing);
    let store = open(path);
    let left: Vec<_> = store.scan(b"", false).collect();
    assert_eq!(left.len(), gone.len());
    store.close().unwrap();
}

#[test]
fn what_stands_in_the_way_of_tables_costs_reads_and_no_start() {
    let scratch = Scratch::new("key-tables-in-the-way");
    let path = &scratch.0;
    let store = open(path);
    for number in 0..KEYS {
        store.set(&key(number), &[7; 1000]).wait().unwrap();
    }
    store.close().unwrap();
    fs::remove_dir_all(path.join("tables")).unwrap();
    for is_link in [false, true] {
        match is_link {
            false => fs::write(path.join("tables"), "mine").unwrap(),
            true => std::os::unix::fs::symlink("nowhere", path.join("tables")).unwrap(),
        }
        let store = open(path);
        for _ in 0..3 {
            scan(&store);
        }
        let began = Instant::now();
        while number(&store, "key_tables_refused") == 0 {
            assert!(began.elapsed() < PATIENCE, "nobody has tried");
            scan(&store);
        }
        let found = ["key_tables", "key_tables_made", "key_tables_void"];
        assert_eq!(found.map(|name| number(&store, name)), [0; 3]);
        store.close().unwrap();
        // The file in the place of the folder does not stop an inspection, either.
        assert!(!inspect(path).contains("key table"));
        fs::remove_file(path.join("tables")).unwrap();
    }
}
