//! What an embedded store takes of the disk: little while it holds little, and as much at a time as
//! ever when it is busy.

use std::path::Path;
use std::{fs, io};

use penstock::{Options, Penstock, Verbs};
use penstock_net::level::AckLevel;

use crate::scratch::Scratch;

const MIB: u64 = 1 << 20;

/// Bytes of each segment file, ascending. The store may be open: its helper renames spares, so a
/// listing that meets a name without its file is taken again.
fn segments(folder: &Path) -> Vec<u64> {
    let listing = || -> io::Result<Vec<u64>> {
        fs::read_dir(folder.join("segments"))?
            .map(|entry| Ok(entry?.metadata()?.len()))
            .collect()
    };
    let mut lengths = (0..100)
        .find_map(|_| match listing() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            listed => Some(listed.expect("list")),
        })
        .expect("a listing without a rename in it");
    lengths.sort_unstable();
    lengths
}

fn low_byte(number: u32) -> u8 {
    number.to_le_bytes()[0]
}

/// Bytes of all files below a folder.
fn taken(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).expect("list");
    entries
        .map(|entry| {
            let entry = entry.expect("an entry");
            match entry.file_type().expect("its type").is_dir() {
                true => taken(&entry.path()),
                false => entry.metadata().expect("its length").len(),
            }
        })
        .sum()
}

#[test]
fn a_store_with_one_key_takes_at_most_four_mebibytes_of_disk() {
    let scratch = Scratch::new("one_key");
    let mut local = Penstock::open_local(&scratch.0, Options::default()).unwrap();
    local.set(b"colour", b"green").unwrap();
    local.close().unwrap();
    assert!(taken(&scratch.0) <= 4 * MIB, "{}", taken(&scratch.0));
    for round in 0..3u8 {
        let store = Penstock::open(&scratch.0, Options::default()).unwrap();
        store.set(b"colour", &[round]).wait().unwrap();
        let found = store.get(b"colour").wait().unwrap().unwrap();
        assert_eq!(found.bytes[..], [round]);
        store.close().unwrap();
        // Three spares of 2,138,112 bytes at most are ready when the store is closed in good time,
        // and each start goes on in a new segment of 1,069,056 bytes.
        let most = (9 + u64::from(round)) * MIB;
        assert!(
            taken(&scratch.0) <= most,
            "round {round}: {}",
            taken(&scratch.0)
        );
    }
}

#[test]
fn the_longest_value_is_taken_by_a_store_that_began_with_short_segments_and_found_after_a_start() {
    let scratch = Scratch::new("longest");
    let longest = vec![7; 1 << 20];
    let mut local = Penstock::open_local(&scratch.0, Options::default()).unwrap();
    local.set(b"short", b"first").unwrap();
    assert!(segments(&scratch.0).iter().all(|&bytes| bytes < 2 * MIB));
    for number in 0..12u8 {
        local.set(&[number], &longest).unwrap();
    }
    local.set(b"short", b"last").unwrap();
    local.close().unwrap();
    assert!(segments(&scratch.0).iter().any(|&bytes| bytes >= 8 * MIB));
    let mut local = Penstock::open_local(&scratch.0, Options::default()).unwrap();
    for number in 0..12u8 {
        assert_eq!(
            &local.get(&[number]).unwrap().unwrap().bytes[..],
            &longest[..]
        );
    }
    assert_eq!(&local.get(b"short").unwrap().unwrap().bytes[..], b"last");
    local.close().unwrap();
}

#[test]
fn segments_grow_with_the_log_up_to_their_usual_length_and_all_is_found_after_a_start() {
    let scratch = Scratch::new("grows");
    let options = || {
        Options::default()
            .segment_bytes(16 * MIB)
            .value_bytes_max(64 << 10)
    };
    let store = Penstock::open(&scratch.0, options())
        .unwrap()
        .with_level(AckLevel::None);
    let keys = 2_000u32;
    for number in 0..keys {
        let value = vec![low_byte(number); 48 << 10];
        store.set(&number.to_le_bytes(), &value).wait().unwrap();
    }
    let lengths = segments(&scratch.0);
    store.close().unwrap();
    assert!(
        lengths[0] < 2 * MIB && lengths.last() == Some(&(16 * MIB)),
        "{lengths:?}"
    );
    // As many as of one length, and the few by which it grew.
    assert!(lengths.len() <= 96 / 16 + 4 + 8, "{lengths:?}");
    let store = Penstock::open(&scratch.0, options()).unwrap();
    for number in 0..keys {
        let found = store.get(&number.to_le_bytes()).wait().unwrap().unwrap();
        assert_eq!(
            (found.bytes.len(), found.bytes[0]),
            (48 << 10, low_byte(number))
        );
    }
    store.close().unwrap();
}
