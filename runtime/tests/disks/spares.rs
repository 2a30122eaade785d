use std::collections::HashSet;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use penstock_runtime::directory::Segments;
use penstock_runtime::spare::{Spare, SpareHandle, SpareOutcome, Spares};
use penstock_storage::io::FileId;

use crate::Folder;

/// Longer than any device takes; nothing waits for it when all is well.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// Asks for one file and waits for every outcome in turn.
pub(crate) fn ask(spares: &SpareHandle, bytes: u64) -> flume::Receiver<SpareOutcome> {
    let (outcome, inbox) = flume::unbounded();
    spares.request(
        bytes,
        Box::new(move |came| outcome.send(came).expect("the test waits")),
    );
    inbox
}

fn ready(inbox: &flume::Receiver<SpareOutcome>) -> Spare {
    match inbox.recv_timeout(LONG).expect("an outcome comes") {
        SpareOutcome::Ready(spare) => spare,
        other => panic!("{other:?}"),
    }
}

fn unfinished(segments: &Segments) -> usize {
    let entries = fs::read_dir(segments.folder()).expect("list");
    entries
        .filter(|entry| {
            entry
                .as_ref()
                .expect("an entry")
                .path()
                .extension()
                .is_some_and(|name| name == "tmp")
        })
        .count()
}

#[test]
fn a_spare_is_whole_zero_and_under_its_name_before_it_is_handed_out() {
    let folder = Folder::new("spare");
    let directory = folder.data();
    let segments = directory.segments();
    fs::write(segments.path(FileId(41)), "an earlier segment").expect("write");
    let spares = Spares::start(segments).expect("start");
    // Not a multiple of the size of one write.
    let bytes = (3 << 20) + 4096;
    let spare = ready(&ask(&spares.handle(), bytes));
    assert_eq!((spare.file, spare.bytes), (FileId(42), bytes));
    let contents = fs::read(segments.path(spare.file)).expect("read");
    assert_eq!(contents.len() as u64, bytes);
    assert!(contents.iter().all(|&byte| byte == 0));
    assert_eq!(unfinished(segments), 0);
}

#[test]
fn two_shards_that_ask_together_get_files_and_salts_of_their_own() {
    let folder = Folder::new("two_shards");
    let directory = folder.data();
    let spares = Spares::start(directory.segments()).expect("start");
    let handles = [spares.handle(), spares.handle()];
    let asked: Vec<_> = (0..6)
        .map(|turn| ask(&handles[turn % 2], 1 << 20))
        .collect();
    let got: Vec<Spare> = asked.iter().map(ready).collect();
    assert_eq!(
        got.iter()
            .map(|spare| spare.file)
            .collect::<HashSet<_>>()
            .len(),
        6
    );
    assert_eq!(
        got.iter()
            .map(|spare| spare.salt)
            .collect::<HashSet<_>>()
            .len(),
        6
    );
    assert_eq!(directory.segments().list().expect("list").len(), 6);
}

#[test]
fn a_released_file_loses_its_header_and_is_used_again_with_another_salt() {
    let folder = Folder::new("recycled");
    let directory = folder.data();
    let segments = directory.segments();
    let spares = Spares::start(segments).expect("start");
    let shard = spares.handle();
    let first = ready(&ask(&shard, 1 << 20));
    let path = segments.path(first.file);
    File::options()
        .write(true)
        .open(&path)
        .expect("open")
        .write_all(&[7; 8192])
        .expect("write");

    shard.release(first.file);
    let other_size = ready(&ask(&shard, 2 << 20));
    assert_ne!(
        other_size.file, first.file,
        "its length is not the one asked for"
    );
    let mut header = [0xee; 4096];
    File::open(&path)
        .expect("open")
        .read_exact_at(&mut header, 0)
        .expect("read");
    assert_eq!(header, [0; 4096], "no restart takes it for a part of a log");

    let again = ready(&ask(&shard, 1 << 20));
    assert_eq!(again.file, first.file);
    assert_ne!(again.salt, first.salt);
    let fresh = ready(&ask(&shard, 1 << 20));
    assert_ne!(fresh.file, first.file, "it is given out once");
}

#[test]
fn more_released_files_than_are_kept_are_removed() {
    let folder = Folder::new("removed");
    let directory = folder.data();
    let spares = Spares::start(directory.segments()).expect("start");
    let shard = spares.handle();
    let files: Vec<Spare> = (0..7).map(|_| ready(&ask(&shard, 1 << 20))).collect();
    for spare in &files {
        shard.release(spare.file);
    }
    // Served after the releases, and of a size that none of them has.
    ready(&ask(&shard, 2 << 20));
    assert_eq!(directory.segments().list().expect("list").len(), 4 + 1);
}

#[test]
fn stopping_leaves_nothing_half_made_behind() {
    let folder = Folder::new("stopped");
    let directory = folder.data();
    let spares = Spares::start(directory.segments()).expect("start");
    let shard = spares.handle();
    let asked: Vec<_> = (0..20).map(|_| ask(&shard, 1 << 20)).collect();
    drop(spares);
    assert_eq!(unfinished(directory.segments()), 0);
    let made = asked.iter().flat_map(flume::Receiver::try_iter).count();
    assert_eq!(directory.segments().list().expect("list").len(), made);
    shard.request(
        1 << 20,
        Box::new(|_| panic!("nobody is there to serve this")),
    );
}
