use std::fs;
use std::io;
use std::thread::sleep;
use std::time::{Duration, Instant};

use penstock_runtime::snapshot::{SnapshotFolder, SnapshotHandle, SnapshotWriters};
use penstock_shard::{SnapshotWrite, WriteStep};
use penstock_storage::snapshot::SnapshotName;

use crate::Folder;

fn piece(number: u64, step: WriteStep, bytes: &[u8]) -> SnapshotWrite {
    SnapshotWrite {
        name: SnapshotName { log_id: 3, number },
        step,
        bytes: bytes.to_vec(),
    }
}

/// What becomes of a piece.
fn written(handle: &SnapshotHandle, write: SnapshotWrite) -> io::Result<()> {
    handle.write(write);
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(outcome) = handle.outcome() {
            return outcome.result;
        }
        assert!(Instant::now() < until, "each piece is answered");
        sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_snapshot_gets_its_name_when_whole_and_the_newest_two_stay() {
    let root = Folder::new("snapshots");
    let folder = SnapshotFolder::at(root.path().join("snapshots"));
    assert!(folder.list().expect("no folder is none").is_empty());
    folder.prepare().expect("made");
    let writers = SnapshotWriters::start(folder.clone()).expect("a thread");
    let handle = writers.handle();
    for number in 1..=4 {
        written(&handle, piece(number, WriteStep::First, b"head")).expect("written");
        written(&handle, piece(number, WriteStep::Next, b"more")).expect("written");
        if number == 3 {
            // Given up: the fourth takes its place.
            continue;
        }
        written(&handle, piece(number, WriteStep::Last, b"end")).expect("written");
        assert!(written(&handle, piece(number, WriteStep::Next, b"late")).is_err());
    }
    let mut found = folder.list().expect("there");
    found.sort_unstable();
    let numbers: Vec<(u64, u64)> = found.iter().map(|(name, b)| (name.number, *b)).collect();
    assert_eq!(numbers, [(2, 11), (4, 11)]);
    let files = || fs::read_dir(folder.path()).expect("there").count();
    assert_eq!(files(), 2);
    let newest = io::read_to_string(folder.open(found[1].0).expect("there"));
    assert_eq!(newest.expect("read"), "headmoreend");

    written(&handle, piece(5, WriteStep::First, b"head")).expect("written");
    folder.prepare().expect("again");
    assert_eq!(files(), 2, "what was not finished is removed");
    folder.remove_all().expect("removed");
    assert_eq!(files(), 0);
}

#[test]
fn only_the_printed_spelling_is_a_name() {
    let name = SnapshotName {
        log_id: 3,
        number: 9,
    };
    assert_eq!(name.to_string(), "3-00000009.idx");
    assert_eq!(SnapshotName::parse("3-00000009.idx"), Some(name));
    for other in [
        "3-9.idx",
        "03-00000009.idx",
        "3-00000009.idx.tmp",
        "-.idx",
        "3.idx",
    ] {
        assert_eq!(SnapshotName::parse(other), None, "{other}");
    }
}
