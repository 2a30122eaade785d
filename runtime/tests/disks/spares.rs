use std::collections::{HashSet, VecDeque};
use std::fs;
use std::time::Duration;

use penstock::directory::room::DiskRoom;
use penstock::directory::spares::{Spare, SpareHandle, SpareOutcome, Spares};
use penstock::directory::{Directory, Segments};
use penstock_shard::opening::Leftovers;
use penstock_storage::packed_place::FILES_MAX;
use penstock_storage::place::FileId;
use penstock_storage::segment::Owner;
use penstock_storage::spare::SpareHeader;

use crate::Folder;

pub(crate) const OWNER: Owner = Owner {
    cluster_id: [0xC1; 16],
    node_id: [0xD2; 16],
};

/// Longer than any device takes; nothing waits for it when all is well.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// The room of a directory with segments of 1 MiB.
pub(crate) fn room(directory: &Directory, bytes_max: u64) -> DiskRoom {
    let segments = directory.segments().clone();
    DiskRoom::new(segments, directory.key_tables().clone(), 1 << 20, bytes_max)
}

/// The thread that prepares segments of 1 MiB, to which no earlier run left any, with no limit.
pub(crate) fn start(directory: &Directory) -> Spares {
    start_behind(directory, Leftovers::default())
}

fn start_behind(directory: &Directory, left: Leftovers) -> Spares {
    Spares::start(room(directory, 0), OWNER, 0, left).expect("start")
}

/// Asks for one file and waits for every outcome in turn.
pub(crate) fn ask(spares: &SpareHandle, bytes: u64) -> flume::Receiver<SpareOutcome> {
    let (outcome, inbox) = flume::unbounded();
    spares.request(
        bytes,
        bytes,
        Box::new(move |came| outcome.send(came).expect("the test waits")),
    );
    inbox
}

pub(crate) fn ready(inbox: &flume::Receiver<SpareOutcome>) -> Spare {
    match inbox.recv_timeout(LONG).expect("an outcome comes") {
        SpareOutcome::Ready(spare) => spare,
        other => panic!("{other:?}"),
    }
}

fn leftovers(files: [(FileId, usize); 2]) -> Leftovers {
    let spares = files.map(|(file, bytes)| (file, bytes as u64));
    Leftovers {
        spares: spares.into(),
        superfluous: VecDeque::new(),
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
    let spares = start(&directory);
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
fn what_an_earlier_run_left_is_given_out_before_a_file_is_made() {
    let folder = Folder::new("left");
    let directory = folder.data();
    let segments = directory.segments();
    let left = [(FileId(7), 1 << 20), (FileId(3), 1 << 20)];
    for (file, bytes) in left {
        fs::write(segments.path(file), vec![0; bytes]).expect("write");
    }
    let left = leftovers(left);
    let spares = start_behind(&directory, left);
    let got: Vec<Spare> = (0..3)
        .map(|_| ready(&ask(&spares.handle(), 1 << 20)))
        .collect();
    let files: Vec<FileId> = got.iter().map(|spare| spare.file).collect();
    assert_eq!(files, [FileId(7), FileId(3), FileId(8)]);
    let salts: HashSet<u64> = got.iter().map(|spare| spare.salt).collect();
    assert_eq!(salts.len(), 3);
}

#[test]
fn the_first_file_that_was_left_is_given_at_once_and_damage_behind_it_is_reported_to_who_got_it() {
    let folder = Folder::new("no_spare");
    let directory = folder.data();
    let segments = directory.segments();
    let left = [(FileId(1), 1 << 20), (FileId(2), 1 << 20)];
    fs::write(segments.path(FileId(1)), vec![0; 1 << 20]).expect("write");
    let mut used = vec![0; 1 << 20];
    used[512 << 10..][..4].copy_from_slice(b"PKFR");
    fs::write(segments.path(FileId(2)), used).expect("write");
    let left = leftovers(left);
    let spares = start_behind(&directory, left);
    let is_damaged = |inbox: &flume::Receiver<SpareOutcome>| match inbox.recv_timeout(LONG) {
        Ok(SpareOutcome::Damaged(text)) => assert!(text.contains("00000002.seg"), "{text}"),
        other => panic!("{other:?}"),
    };
    let first = ask(&spares.handle(), 1 << 20);
    assert_eq!(ready(&first).file, FileId(1));
    is_damaged(&first);
    // Who asks later gets none, not even a new one.
    is_damaged(&ask(&spares.handle(), 1 << 20));
    drop(spares);
    assert_eq!(segments.list().expect("list").len(), 2);
}

#[test]
fn a_spare_in_which_a_bit_has_rotted_is_set_aside_and_the_next_one_serves() {
    let folder = Folder::new("rotten");
    let directory = folder.data();
    let segments = directory.segments();
    // Two are left for the shards, two are superfluous; one of each is whole.
    for (number, at) in [
        (1, None),
        (2, Some(900_000)),
        (3, Some(70_000)),
        (4, Some(65_536)),
    ] {
        let mut bytes = vec![0; 1 << 20];
        if let Some(at) = at {
            bytes[at] = 0x20;
        }
        fs::write(segments.path(FileId(number)), bytes).expect("write");
    }
    let left = |files: &[u32]| files.iter().map(|&file| (FileId(file), 1 << 20)).collect();
    let left = Leftovers {
        spares: left(&[2, 1]),
        superfluous: left(&[3, 4]),
    };
    let spares = start_behind(&directory, left);
    let first = ready(&ask(&spares.handle(), 1 << 20));
    assert_eq!(first.file, FileId(1));
    let second = ready(&ask(&spares.handle(), 1 << 20));
    assert_eq!(second.file, FileId(5), "a new one");
    drop(spares);
    let mut names: Vec<u32> = segments
        .list()
        .expect("list")
        .iter()
        .map(|it| it.0.0)
        .collect();
    names.sort_unstable();
    assert_eq!(names, [1, 5]);
    // Two are kept as they were; there is no room for a third.
    let kept = folder.path().join("data/lostfound/spares");
    let mut files: Vec<String> = fs::read_dir(&kept)
        .expect("made")
        .map(|entry| {
            entry
                .expect("an entry")
                .file_name()
                .into_string()
                .expect("text")
        })
        .collect();
    files.sort_unstable();
    assert_eq!(files, ["00000002.seg", "00000003.seg"]);
    assert_eq!(
        fs::read(kept.join("00000002.seg")).expect("kept")[900_000],
        0x20
    );
}

#[test]
fn what_is_superfluous_of_what_was_left_is_read_and_serves_again_or_is_removed() {
    let folder = Folder::new("superfluous");
    let directory = folder.data();
    let segments = directory.segments();
    let mut held = vec![7; 1 << 20];
    let (owner, salt) = (OWNER, 3);
    let header = SpareHeader { owner, salt };
    header.encode(held.first_chunk_mut().expect("a block"));
    header.encode(held.last_chunk_mut().expect("a block"));
    fs::write(segments.path(FileId(4)), &held).expect("write");
    fs::write(segments.path(FileId(5)), vec![0; 1 << 19]).expect("write");
    let left = Leftovers {
        spares: VecDeque::new(),
        superfluous: [(FileId(5), 1 << 19), (FileId(4), 1 << 20)].into(),
    };
    let spares = start_behind(&directory, left);
    let got = ready(&ask(&spares.handle(), 1 << 20));
    assert!(got.is_reused && got.salt != salt);
    assert_eq!(got.file, FileId(6));
    let bytes = fs::read(segments.path(got.file)).expect("read");
    let salts = [bytes.first_chunk(), bytes.last_chunk()]
        .map(|block| SpareHeader::read(block.expect("a block")).map(|header| header.salt));
    assert_eq!(salts, [Some(got.salt); 2]);
    assert_eq!(bytes[4096..(1 << 20) - 4096], held[4096..(1 << 20) - 4096]);
    drop(spares);
    let names: Vec<FileId> = segments
        .list()
        .expect("list")
        .iter()
        .map(|it| it.0)
        .collect();
    assert_eq!(names, [got.file]);
}

#[test]
fn two_shards_that_ask_together_get_files_and_salts_of_their_own() {
    let folder = Folder::new("two_shards");
    let directory = folder.data();
    let spares = start(&directory);
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
fn a_released_file_serves_again_under_another_number_and_salt_with_what_it_held() {
    let folder = Folder::new("reused");
    let directory = folder.data();
    let segments = directory.segments();
    let spares = start(&directory);
    let shard = spares.handle();
    let first = ready(&ask(&shard, 1 << 20));
    assert!(!first.is_reused);
    let held = vec![7; 1 << 20];
    fs::write(segments.path(first.file), &held).expect("write");
    shard.release(first.file);
    let next = ready(&ask(&shard, 1 << 20));
    assert!(next.is_reused && next.file != first.file && next.salt != first.salt);
    assert_eq!(segments.list().expect("list"), [(next.file, 1 << 20)]);
    let holds = fs::read(segments.path(next.file)).expect("read");
    let (begin, behind) = holds.split_first_chunk::<4096>().expect("a block");
    let (between, end) = behind.split_last_chunk::<4096>().expect("a block");
    let header = SpareHeader {
        owner: OWNER,
        salt: next.salt,
    };
    assert_eq!(SpareHeader::read(begin), Some(header));
    assert_eq!(SpareHeader::read(end), Some(header));
    assert!(between.iter().all(|&byte| byte == 7));
}

#[test]
fn a_released_file_that_a_backup_has_linked_or_of_another_length_is_removed() {
    let folder = Folder::new("removed");
    let directory = folder.data();
    let segments = directory.segments();
    let spares = start(&directory);
    let shard = spares.handle();
    let [short, linked] = [1 << 18, 1 << 20].map(|bytes| ready(&ask(&shard, bytes)));
    let link = segments.folder().with_file_name("linked");
    fs::hard_link(segments.path(linked.file), &link).expect("link");
    let held = fs::read(&link).expect("read");
    shard.release(linked.file);
    shard.release(short.file);
    let next = ready(&ask(&shard, 1 << 20));
    assert!(!next.is_reused);
    assert_eq!(segments.list().expect("list"), [(next.file, 1 << 20)]);
    assert_eq!(
        fs::read(&link).expect("read"),
        held,
        "a reader has it in peace"
    );
    assert_eq!(unfinished(segments), 0);
}

#[test]
fn as_many_files_as_there_can_be_may_be_released_while_the_helper_is_busy() {
    let folder = Folder::new("many_released");
    let directory = folder.data();
    let spares = start(&directory);
    let shard = spares.handle();
    let (go_on, waits) = flume::bounded::<()>(0);
    shard.request(
        1 << 20,
        1 << 20,
        Box::new(move |_| waits.recv().expect("the test goes on")),
    );
    for file in 1..FILES_MAX {
        shard.release(FileId(file));
    }
    go_on.send(()).expect("the helper waits");
}

#[test]
fn stopping_leaves_nothing_half_made_behind() {
    let folder = Folder::new("stopped");
    let directory = folder.data();
    let spares = start(&directory);
    let shard = spares.handle();
    let asked: Vec<_> = (0..20).map(|_| ask(&shard, 1 << 20)).collect();
    drop(spares);
    assert_eq!(unfinished(directory.segments()), 0);
    let made = asked.iter().flat_map(flume::Receiver::try_iter).count();
    assert_eq!(directory.segments().list().expect("list").len(), made);
    shard.request(
        1 << 20,
        1 << 20,
        Box::new(|_| panic!("nobody is there to serve this")),
    );
}

#[test]
fn a_full_directory_gives_a_starved_shard_one_short_file_and_others_none() {
    let folder = Folder::new("starved");
    let directory = folder.data();
    let room = room(&directory, (9 << 18) + (1 << 19));
    let spares = Spares::start(room, OWNER, 1 << 18, Leftovers::default()).expect("start");
    let (shard, other) = (spares.handle(), spares.handle());
    for _ in 0..2 {
        ready(&ask(&other, 1 << 20));
    }
    let request = |handle: &SpareHandle| {
        let (outcome, inbox) = flume::unbounded();
        let deliver = Box::new(move |came| outcome.send(came).expect("the test waits"));
        handle.request(1 << 20, 1 << 18, deliver);
        inbox
    };
    let is_refused = |inbox: &flume::Receiver<SpareOutcome>| {
        let outcome = inbox.recv_timeout(LONG).expect("an outcome comes");
        matches!(outcome, SpareOutcome::Refused { .. })
    };
    let behind = request(&other);
    assert!(is_refused(&behind));
    shard.set_starved(true);
    let short = request(&shard);
    assert_eq!(ready(&short).bytes, 1 << 18);
    let second = request(&shard);
    assert!(
        is_refused(&second),
        "it has not said that it is starved again"
    );
    assert!(is_refused(&behind));
}

/// A refusal that a shard gets behind a file that it gave back is overtaken if the file is not
/// among these: what becomes of its room is not said yet.
#[test]
fn a_refusal_says_how_many_files_its_shard_had_given_back() {
    let folder = Folder::new("released_count");
    let directory = folder.data();
    let room = room(&directory, 2 << 20);
    let spares = Spares::start(room, OWNER, 0, Leftovers::default()).expect("start");
    let (shard, other) = (spares.handle(), spares.handle());
    let refused = |inbox: &flume::Receiver<SpareOutcome>| match inbox
        .recv_timeout(LONG)
        .expect("an outcome comes")
    {
        SpareOutcome::Refused { released, .. } => released,
        outcome => panic!("{outcome:?}"),
    };
    let first = ready(&ask(&shard, 1 << 20)).file;
    ready(&ask(&other, 1 << 20));
    let third = ask(&other, 1 << 20);
    assert_eq!(refused(&third), 0);
    let fourth = ask(&shard, 1 << 20);
    assert_eq!(refused(&fourth), 0);
    shard.release(first);
    // Its room goes to the one that has waited longer.
    while !matches!(third.recv_timeout(LONG), Ok(SpareOutcome::Ready(_))) {}
    while refused(&fourth) == 0 {}
    assert_eq!(refused(&fourth), 1);
}

/// Run below, by a process whose files may not be as long.
#[test]
#[ignore = "the limit of the length of files is that of a process"]
fn asks_for_a_segment_beyond_the_limit_of_the_length_of_files() {
    penstock::system::ignore_file_size_signal();
    let folder = Folder::new("fsize");
    let directory = folder.data();
    let spares = start(&directory);
    let long = ask(&spares.handle(), 1 << 20);
    let outcome = long.recv_timeout(LONG).expect("an outcome comes");
    assert!(
        matches!(outcome, SpareOutcome::Refused { .. }),
        "{outcome:?}"
    );
    // As on a full disk a starved shard gets a short one.
    let starved = spares.handle();
    starved.set_starved(true);
    let (outcome, inbox) = flume::unbounded();
    let deliver = Box::new(move |came| outcome.send(came).expect("the test waits"));
    starved.request(1 << 20, 1 << 17, deliver);
    assert_eq!(ready(&inbox).bytes, 1 << 17);
}

#[test]
fn a_segment_beyond_the_limit_of_the_length_of_files_is_refused_as_on_a_full_disk() {
    let output = std::process::Command::new("sh")
        // Blocks have 512 or 1,024 bytes, as the shell counts.
        .args(["-c", "ulimit -f 600 && exec \"$0\" \"$@\""])
        .arg(std::env::current_exe().expect("the test"))
        .args(["--ignored", "--exact", "--nocapture"])
        .arg("spares::asks_for_a_segment_beyond_the_limit_of_the_length_of_files")
        .output()
        .expect("the child");
    let (said, error) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{said}{error}");
    assert!(said.contains("1 passed"), "{said}{error}");
}
