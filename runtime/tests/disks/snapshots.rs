use std::fs;
use std::io;
use std::thread::sleep;
use std::time::{Duration, Instant};

use penstock::directory::snapshots::{SnapshotFolder, SnapshotHandle, SnapshotWriters};
use penstock_shard::{SnapshotWrite, WriteStep};
use penstock_storage::key_home::KeyHome;
use penstock_storage::packed_place::NewestPart;
use penstock_storage::packed_place::PackedPlace;
use penstock_storage::place::FileId;
use penstock_storage::place::{Lsn, Place};
use penstock_storage::segment::Owner;
use penstock_storage::snapshot::{
    CoveredSegment, SnapshotError, SnapshotHeader, SnapshotName, SnapshotReader, SnapshotWriter,
};

use crate::Folder;
use crate::spares::OWNER;

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

/// A finished snapshot of log 3 that proves `to`.
fn snapshot(number: u64, to: u64) -> Vec<u8> {
    let header = SnapshotHeader {
        owner: OWNER,
        name: SnapshotName { log_id: 3, number },
        incarnation: 1,
        hash_check: 7,
        from: Lsn(1),
        epoch_max: 1,
        is_unproven: false,
        has_released: false,
        is_linked: false,
        has_marks: false,
        has_heads: false,
        has_redo: false,
        sequences: Box::new([1; 256]),
        segments: vec![CoveredSegment {
            sequence: 1,
            salt: 5,
            end_offset: 8192,
            file: FileId(1),
            tombstone_bytes: 0,
        }],
    };
    let (mut writer, mut bytes) = SnapshotWriter::new(&header);
    for hash in 0..5_000 {
        writer.take(&NewestPart {
            key: KeyHome { slot: 1, hash },
            part: PackedPlace::new(Place::new(FileId(1), 4160, 56), 1),
        });
    }
    bytes.extend(writer.next_chunk().expect("entries wait"));
    bytes.extend(writer.finish(Lsn(to), 0));
    bytes
}

#[test]
fn a_retired_snapshot_proves_the_end_of_its_log_and_no_start_can_use_it() {
    let root = Folder::new("retired");
    let folder = SnapshotFolder::at(root.path().join("snapshots"));
    assert!(folder.proven_ends(OWNER).expect("no folder").is_empty());
    folder.retire_all().expect("no folder has none");
    folder.prepare().expect("made");
    let path = |name: &str| folder.path().join(name);
    fs::write(path("3-00000001.idx"), snapshot(1, 40)).expect("write");
    fs::write(path("3-00000002.idx"), snapshot(2, 50)).expect("write");
    // One that was never finished, and one under another name than its own.
    let unfinished = snapshot(3, 60);
    fs::write(path("3-00000003.idx"), &unfinished[..unfinished.len() - 1]).expect("write");
    fs::write(path("3-00000004.idx"), snapshot(9, 70)).expect("write");
    let lsn = || {
        folder
            .proven_ends(OWNER)
            .expect("read")
            .get(&3)
            .map(|end| end.lsn)
    };
    assert_eq!(lsn(), Some(Lsn(50)));
    let other = Owner {
        node_id: [9; 16],
        ..OWNER
    };
    assert!(folder.proven_ends(other).expect("read").is_empty());

    folder.retire_all().expect("retired");
    assert_eq!(lsn(), Some(Lsn(50)));
    assert!(!path("3-00000003.idx").exists(), "it proved nothing");
    let name = SnapshotName {
        log_id: 3,
        number: 2,
    };
    let bytes = fs::read(path("3-00000002.idx")).expect("there");
    assert!(bytes.len() < 3_000 && bytes.len() < unfinished.len());
    let read = |offset: u64, into: &mut [u8]| {
        let from = usize::try_from(offset).expect("small").min(bytes.len());
        let moved = into.len().min(bytes.len() - from);
        into[..moved].copy_from_slice(&bytes[from..from + moved]);
        Ok(moved)
    };
    let reader = SnapshotReader::open(read, bytes.len() as u64).expect("it still proves");
    assert_eq!(reader.header().name, name);
    let used = reader.entries(|_| Ok(()));
    assert!(
        matches!(used, Err(SnapshotError::Damaged { .. })),
        "{used:?}"
    );
    // A second repair finds it as the first one left it.
    folder.retire_all().expect("again");
    assert_eq!(lsn(), Some(Lsn(50)));
    folder.remove_all().expect("removed");
    assert_eq!(lsn(), None);
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
