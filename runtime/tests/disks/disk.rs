use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use penstock::disk::arena::{Arena, ArenaBlock, ArenaLayout};
use penstock::disk::{Disk, DiskOptions, DiskRefused, IoMode};
use penstock_storage::io::{Asker, BLOCK_BYTES, Block, Blocks, Completion, Io, IoFailure, IoToken};
use penstock_storage::place::FileId;

use crate::{Folder, Seeded};

/// Longer than any device takes; nothing waits for it when all is well.
const LONG: Duration = Duration::from_secs(60);
const FILE: FileId = FileId(7);

/// Runs a test once with each engine that can be had here.
fn with_each(options: DiskOptions, test: impl Fn(Disk, Arena)) {
    for mode in [IoMode::Uring, IoMode::Threads] {
        if let Some((disk, arena)) = open(DiskOptions { mode, ..options }) {
            println!("engine: {}", disk.describe());
            test(disk, arena);
        }
    }
}

fn with_ring(options: DiskOptions, test: impl FnOnce(Disk, Arena)) {
    if let Some((disk, arena)) = open(DiskOptions {
        mode: IoMode::Uring,
        ..options
    }) {
        test(disk, arena);
    }
}

fn open(options: DiskOptions) -> Option<(Disk, Arena)> {
    let arena = Arena::new(ArenaLayout::default()).expect("map an arena");
    match Disk::open(options, &arena) {
        Ok(disk) => Some((disk, arena)),
        Err(refused @ DiskRefused::Uring(_)) => {
            eprintln!("SKIPPED the io_uring half of a test: {refused}");
            None
        }
        Err(refused) => panic!("{refused}"),
    }
}

/// A file of `blocks` blocks, block `n` filled with `n`, open past the page cache if that works.
fn file(folder: &Folder, blocks: u8) -> (std::path::PathBuf, OwnedFd) {
    let path = folder.path().join("file");
    let contents: Vec<u8> = (0..blocks).flat_map(|block| [block; BLOCK_BYTES]).collect();
    fs::write(&path, contents).expect("write the file");
    let fd = open_file(&path);
    (path, fd)
}

fn open_file(path: &Path) -> OwnedFd {
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    let direct = options.clone().custom_flags(libc::O_DIRECT).open(path);
    direct
        .or_else(|_| options.open(path))
        .expect("open the file")
        .into()
}

fn block(arena: &mut Arena, bytes: usize, fill: u8) -> ArenaBlock {
    let mut block = arena.take(bytes).expect("the arena has room");
    block.bytes_mut().fill(fill);
    block
}

fn read(token: u64, offset: u64, block: ArenaBlock) -> Io<ArenaBlock> {
    let len = u32::try_from(block.bytes().len()).expect("short");
    Io::Read {
        token: IoToken::new(Asker::Operation, token),
        file: FILE,
        offset,
        block,
        len,
    }
}

fn write(token: u64, offset: u64, block: ArenaBlock, durable: bool) -> Io<ArenaBlock> {
    let len = u32::try_from(block.bytes().len()).expect("short");
    Io::Write {
        token: IoToken::new(Asker::Operation, token),
        file: FILE,
        offset,
        block,
        len,
        durable,
    }
}

fn drained(disk: &mut Disk) -> Vec<Completion<ArenaBlock>> {
    let mut ended = Vec::new();
    disk.drain(&mut ended, LONG).expect("the disk drains");
    assert_eq!(disk.in_flight(), 0);
    ended
}

#[test]
fn what_was_written_is_read_back_whatever_its_length_and_place() {
    const BLOCKS: u64 = 512;
    let folder = Folder::new("read_back");
    with_each(DiskOptions::default(), |mut disk, mut arena| {
        let path = folder.path().join("file");
        fs::write(&path, vec![0; 512 * BLOCK_BYTES]).expect("write the file");
        disk.attach(FILE, open_file(&path));
        let mut model = vec![0u8; 512 * BLOCK_BYTES];
        let mut seeded = Seeded::new(11);
        for round in 0..40u64 {
            // A read block, a frame block, or memory beside the mapping, each at its own place,
            // since writes in flight together must not overlap.
            for lane in 0..3u64 {
                let blocks = [
                    1 + seeded.below(4),
                    5 + seeded.below(60),
                    67 + seeded.below(60),
                ];
                let blocks = blocks[usize::try_from(lane).expect("small")];
                let at = lane * 170 + seeded.below(170 - blocks);
                let fill = u8::try_from(1 + seeded.below(255)).expect("a byte");
                let bytes = usize::try_from(blocks).expect("small") * BLOCK_BYTES;
                let begin = usize::try_from(at).expect("small") * BLOCK_BYTES;
                model[begin..begin + bytes].fill(fill);
                let durable = seeded.below(2) == 0;
                let block = block(&mut arena, bytes, fill);
                disk.submit(write(
                    round * 3 + lane,
                    at * BLOCK_BYTES as u64,
                    block,
                    durable,
                ));
            }
            let ended = drained(&mut disk);
            assert_eq!(ended.len(), 3);
            assert!(ended.iter().all(|end| end.result == Ok(())), "{ended:?}");
        }
        disk.submit(Io::Sync {
            token: IoToken::new(Asker::Operation, 9999),
            file: FILE,
        });
        let ended = drained(&mut disk);
        assert_eq!(
            (ended[0].token, ended[0].result),
            (IoToken::new(Asker::Operation, 9999), Ok(()))
        );
        assert!(ended[0].block.is_none());

        for at in (0..BLOCKS).step_by(64) {
            disk.submit(read(
                at,
                at * BLOCK_BYTES as u64,
                block(&mut arena, 64 * BLOCK_BYTES, 0xee),
            ));
        }
        for end in drained(&mut disk) {
            let begin = usize::try_from(end.token.number).expect("small") * BLOCK_BYTES;
            let block = end.block.expect("a read brings its block back");
            assert_eq!(end.result, Ok(()));
            assert!(
                block.bytes() == &model[begin..begin + 64 * BLOCK_BYTES],
                "block {begin}"
            );
        }
        assert!(
            fs::read(&path).expect("read the file") == model,
            "the file itself"
        );
    });
}

#[test]
fn every_request_comes_back_once_however_many_wait_for_room() {
    let folder = Folder::new("all_come_back");
    let options = DiskOptions {
        reads_in_flight_max: 3,
        writes_in_flight_max: 2,
        ..DiskOptions::default()
    };
    with_each(options, |mut disk, mut arena| {
        let (_, fd) = file(&folder, 64);
        disk.attach(FILE, fd);
        let free = arena.free_blocks();
        for token in 0..300u64 {
            let offset = token % 64 * BLOCK_BYTES as u64;
            let fill = u8::try_from(token % 64).expect("a byte");
            let block = block(&mut arena, BLOCK_BYTES, fill);
            if token % 3 == 0 {
                disk.submit(write(token, offset, block, token % 2 == 0));
            } else {
                disk.submit(read(token, offset, block));
            }
        }
        assert_eq!(disk.in_flight(), 300);
        let mut seen = HashMap::new();
        for end in drained(&mut disk) {
            assert_eq!(end.result, Ok(()));
            let block = end.block.expect("its block");
            let expected = u8::try_from(end.token.number % 64).expect("a byte");
            assert!(
                block.bytes().iter().all(|&byte| byte == expected),
                "{:?}",
                end.token
            );
            *seen.entry(end.token.number).or_insert(0) += 1;
        }
        assert_eq!(seen.len(), 300);
        assert!(seen.values().all(|&count| count == 1));
        assert_eq!(arena.free_blocks(), free, "every block is back");
        let counters = disk.counters();
        assert_eq!(
            (counters.reads, counters.writes, counters.failures),
            (200, 100, 0)
        );
        assert_eq!(counters.written_bytes, 100 * BLOCK_BYTES as u64);
    });
}

#[test]
fn writes_begin_before_reads_that_were_asked_for_earlier() {
    let folder = Folder::new("writes_first");
    // One thread runs its orders one after another, so the order of their ends is the order of
    // their begins.
    let options = DiskOptions {
        mode: IoMode::Threads,
        threads: 1,
        ..DiskOptions::default()
    };
    let (mut disk, mut arena) = open(options).expect("threads can always be had");
    let (_, fd) = file(&folder, 8);
    disk.attach(FILE, fd);
    for token in 0..4 {
        disk.submit(read(token, 0, block(&mut arena, BLOCK_BYTES, 0)));
    }
    for token in 4..6 {
        disk.submit(write(token, 4096, block(&mut arena, BLOCK_BYTES, 1), true));
    }
    let order: Vec<u64> = drained(&mut disk)
        .iter()
        .map(|end| end.token.number)
        .collect();
    assert_eq!(order, [4, 5, 0, 1, 2, 3]);
}

#[test]
fn one_flush_is_one_entry_for_all_and_none_when_nothing_is_asked() {
    let folder = Folder::new("one_entry");
    with_ring(DiskOptions::default(), |mut disk, mut arena| {
        let (_, fd) = file(&folder, 32);
        disk.attach(FILE, fd);
        for _ in 0..3 {
            disk.flush().expect("flush");
        }
        assert_eq!(disk.counters().enters, 0);
        for token in 0..32 {
            disk.submit(read(
                token,
                token * BLOCK_BYTES as u64,
                block(&mut arena, 4096, 0),
            ));
        }
        assert_eq!(disk.counters().enters, 0, "a request alone enters nothing");
        disk.flush().expect("flush");
        assert_eq!(disk.counters().enters, 1);
        disk.flush().expect("flush");
        assert_eq!(disk.counters().enters, 1);
        assert_eq!(drained(&mut disk).len(), 32);
        let enters = disk.counters().enters;
        let mut ended = Vec::new();
        assert_eq!(disk.reap(&mut ended), 0);
        disk.poll().expect("poll");
        assert_eq!(
            disk.counters().enters,
            enters,
            "reaping and polling an idle ring enter nothing"
        );
    });
}

/// Runs a test with each engine, on a CPU that others want.
fn with_each_contended(test: impl Fn(Disk, Arena)) {
    for mode in [IoMode::Uring, IoMode::Threads] {
        let options = DiskOptions {
            mode,
            ..DiskOptions::default()
        };
        if let Some((mut disk, arena)) = open(options) {
            disk.set_contended(Some(0));
            println!("engine: {}", disk.describe());
            test(disk, arena);
        }
    }
}

fn sync(token: u64) -> Io<ArenaBlock> {
    Io::Sync {
        token: IoToken::new(Asker::Operation, token),
        file: FILE,
    }
}

#[test]
fn a_lone_durable_write_on_a_contended_cpu_enters_no_ring_and_needs_no_thread() {
    let folder = Folder::new("inline");
    with_each_contended(|mut disk, mut arena| {
        let (path, fd) = file(&folder, 8);
        disk.attach(FILE, fd);
        let wake = disk.wake_fd().expect("a descriptor");
        let enters = disk.counters().enters;
        let mut ended = Vec::new();
        for token in 0..100 {
            let offset = token % 8 * BLOCK_BYTES as u64;
            let fill = u8::try_from(token).expect("few");
            let request = match token % 4 {
                3 => sync(token),
                _ => write(token, offset, block(&mut arena, BLOCK_BYTES, fill), true),
            };
            disk.submit(request);
            assert!(!disk.has_inline_arrival());
            disk.flush().expect("flush");
            assert!(disk.has_inline_arrival(), "{token}");
            assert!(!is_readable(&wake, 0), "{token}");
            assert_eq!((disk.reap(&mut ended), disk.in_flight()), (1, 0));
            let end = ended.pop().expect("one");
            assert_eq!((end.token.number, end.result), (token, Ok(())));
            assert_eq!(end.block.is_some(), token % 4 != 3);
            if token % 4 != 3 {
                let place = usize::try_from(offset).expect("short");
                let contents = fs::read(&path).expect("read the file");
                let written = &contents[place..place + BLOCK_BYTES];
                assert!(written.iter().all(|&byte| byte == fill));
            }
        }
        let counters = disk.counters();
        assert_eq!((counters.enters, counters.punted), (enters, 0));
        assert_eq!((counters.inline, counters.failures), (100, 0));
        assert_eq!((counters.durable_writes, counters.syncs), (75, 25));
    });
}

#[test]
fn an_inline_write_is_put_aside_until_it_is_asked_for_and_not_taken_where_it_may_not_be_one() {
    let folder = Folder::new("put_aside");
    with_each_contended(|mut disk, mut arena| {
        let (path, fd) = file(&folder, 8);
        disk.attach(FILE, fd);
        let mut one = |fill| block(&mut arena, BLOCK_BYTES, fill);
        disk.submit(write(0, 0, one(1), true));
        disk.flush_others(true).expect("flush");
        assert!(disk.has_inline_write() && !disk.has_inline_arrival());
        assert_eq!((disk.counters().inline, disk.in_flight()), (0, 1));
        let contents = fs::read(&path).expect("read the file");
        assert!(contents[..BLOCK_BYTES].iter().all(|&byte| byte != 1));
        disk.write_inline();
        assert!(!disk.has_inline_write() && disk.has_inline_arrival());
        assert_eq!(drained(&mut disk).len(), 1);

        disk.submit(write(1, 0, one(2), true));
        disk.flush_others(false).expect("flush");
        assert!(!disk.has_inline_write());
        assert_eq!(drained(&mut disk).len(), 1);
        assert_eq!(disk.counters().inline, 1);
        let contents = fs::read(&path).expect("read the file");
        assert!(contents[..BLOCK_BYTES].iter().all(|&byte| byte == 2));
    });
}

#[test]
fn only_a_lone_durable_write_is_made_inline_and_only_while_the_cpu_is_contended() {
    let folder = Folder::new("not_inline");
    with_each_contended(|mut disk, mut arena| {
        let (_, fd) = file(&folder, 8);
        disk.attach(FILE, fd);
        let at = |block| block * BLOCK_BYTES as u64;
        let mut inline = 0;
        let mut pass = |disk: &mut Disk, requests: Vec<Io<ArenaBlock>>, is_inline: bool| {
            let count = requests.len();
            requests.into_iter().for_each(|it| disk.submit(it));
            assert_eq!(drained(disk).len(), count);
            inline += u64::from(is_inline);
            assert_eq!(disk.counters().inline, inline);
        };
        let mut one = || block(&mut arena, BLOCK_BYTES, 1);
        pass(&mut disk, vec![write(0, at(0), one(), true)], true);
        pass(&mut disk, vec![write(0, at(0), one(), false)], false);
        pass(&mut disk, vec![read(0, at(0), one())], false);
        let two = vec![write(0, at(0), one(), true), write(1, at(1), one(), true)];
        pass(&mut disk, two, false);
        let beside_a_read = vec![read(0, at(0), one()), write(1, at(1), one(), true)];
        pass(&mut disk, beside_a_read, true);
        // A sync has all to write that no other sync has written.
        pass(&mut disk, vec![sync(0)], true);
        for (blocks, is_inline) in [(64, true), (65, false), (0, true)] {
            for number in 0..blocks {
                pass(&mut disk, vec![write(0, at(number), one(), false)], false);
            }
            pass(&mut disk, vec![sync(0)], is_inline);
        }
        disk.set_contended(None);
        pass(&mut disk, vec![write(0, at(0), one(), true)], false);
    });
}

#[test]
fn an_inline_write_that_fails_is_reported_as_any_other() {
    let folder = Folder::new("inline_fails");
    with_each_contended(|mut disk, mut arena| {
        let (path, _) = file(&folder, 8);
        disk.attach(FILE, File::open(&path).expect("open to read").into());
        disk.submit(write(3, 0, block(&mut arena, BLOCK_BYTES, 1), true));
        let ended = drained(&mut disk);
        assert_eq!(ended[0].token.number, 3);
        assert_eq!(ended[0].result, Err(IoFailure::Device(libc::EBADF)));
        assert!(ended[0].block.is_some(), "the block comes back");
        let counters = disk.counters();
        assert_eq!((counters.inline, counters.failures), (1, 1));
        disk.detach(FILE);
    });
}

#[test]
fn the_wake_descriptor_is_readable_when_and_only_when_something_arrived() {
    let folder = Folder::new("wake");
    with_each(DiskOptions::default(), |mut disk, mut arena| {
        let (_, fd) = file(&folder, 4);
        disk.attach(FILE, fd);
        let wake = disk.wake_fd().expect("a descriptor");
        assert!(!is_readable(&wake, 0), "nothing was asked for");
        let mut ended = Vec::new();
        for token in 0..20 {
            disk.submit(read(token, 0, block(&mut arena, BLOCK_BYTES, 0)));
            disk.flush().expect("flush");
            assert!(is_readable(&wake, 60_000), "an arrival wakes");
            disk.clear_wake();
            assert_eq!(disk.reap(&mut ended), 1);
            assert!(!is_readable(&wake, 0), "nothing is left");
        }
    });
}

#[expect(unsafe_code, reason = "the standard library has no poll")]
fn is_readable(fd: &OwnedFd, wait_ms: i32) -> bool {
    let mut asked = libc::pollfd {
        fd: fd.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: the pointer is to one live `pollfd`, as the count says.
    let ready = unsafe { libc::poll(&raw mut asked, 1, wait_ms) };
    ready == 1 && asked.revents & libc::POLLIN != 0
}

#[test]
fn dropping_a_disk_waits_for_what_is_under_way_and_returns_every_block() {
    let folder = Folder::new("drop_in_flight");
    let options = DiskOptions {
        writes_in_flight_max: 40,
        ..DiskOptions::default()
    };
    with_each(options, |mut disk, mut arena| {
        let (path, fd) = file(&folder, 60);
        disk.attach(FILE, fd);
        let free = arena.free_blocks();
        for token in 0..60 {
            let block = block(&mut arena, BLOCK_BYTES, 0xab);
            disk.submit(write(token, token * BLOCK_BYTES as u64, block, true));
        }
        disk.flush().expect("flush");
        drop(disk);
        assert_eq!(arena.free_blocks(), free);
        assert_eq!(arena.overflow_bytes(), 0);
        let contents = fs::read(&path).expect("read the file");
        let begun = &contents[..40 * BLOCK_BYTES];
        assert!(
            begun.iter().all(|&byte| byte == 0xab),
            "what was begun was waited for"
        );
    });
}

#[test]
fn a_read_past_the_end_says_how_much_there_was() {
    let folder = Folder::new("short");
    with_each(DiskOptions::default(), |mut disk, mut arena| {
        let (_, fd) = file(&folder, 3);
        disk.attach(FILE, fd);
        disk.submit(read(1, 4096, block(&mut arena, 4 * BLOCK_BYTES, 0xee)));
        disk.submit(read(2, 1 << 20, block(&mut arena, BLOCK_BYTES, 0xee)));
        let mut ended = drained(&mut disk);
        ended.sort_by_key(|end| end.token.number);
        assert_eq!(ended[0].result, Err(IoFailure::Short { moved: 8192 }));
        assert_eq!(ended[1].result, Err(IoFailure::Short { moved: 0 }));
        assert!(ended.iter().all(|end| end.block.is_some()));
        assert_eq!(disk.counters().failures, 2);
    });
}

#[test]
fn a_refused_write_brings_back_its_errno_and_its_block() {
    let folder = Folder::new("refused");
    with_each(DiskOptions::default(), |mut disk, mut arena| {
        let (path, _) = file(&folder, 1);
        disk.attach(FILE, File::open(path).expect("open to read").into());
        disk.submit(write(5, 0, block(&mut arena, BLOCK_BYTES, 1), false));
        let ended = drained(&mut disk);
        assert_eq!(ended[0].token, IoToken::new(Asker::Operation, 5));
        assert_eq!(ended[0].result, Err(IoFailure::Device(libc::EBADF)));
        assert!(ended[0].block.is_some());
    });
}

#[test]
fn a_detached_file_is_closed_when_its_last_operation_ended() {
    let folder = Folder::new("detached");
    with_each(DiskOptions::default(), |mut disk, mut arena| {
        let (path, fd) = file(&folder, 4);
        disk.attach(FILE, fd);
        assert_eq!(descriptors_of(&path), 1);
        // Waiting and under way both count.
        disk.submit(read(1, 0, block(&mut arena, BLOCK_BYTES, 0)));
        disk.flush().expect("flush");
        disk.submit(read(2, 4096, block(&mut arena, BLOCK_BYTES, 0)));
        disk.detach(FILE);
        assert!(!disk.is_attached(FILE));
        assert_eq!(descriptors_of(&path), 1, "still needed");
        // The number may be taken again at once; the two do not mix.
        let other = folder.path().join("other");
        fs::write(&other, [9; BLOCK_BYTES]).expect("write the file");
        disk.attach(FILE, open_file(&other));
        disk.submit(read(3, 0, block(&mut arena, BLOCK_BYTES, 0)));
        let mut ended = drained(&mut disk);
        ended.sort_by_key(|end| end.token.number);
        let firsts: Vec<u8> = ended
            .iter()
            .map(|end| end.block.as_ref().expect("its block").bytes()[0])
            .collect();
        assert_eq!(firsts, [0, 1, 9]);
        assert_eq!(descriptors_of(&path), 0);
        disk.detach(FILE);
        assert_eq!(descriptors_of(&other), 0);
    });
}

fn descriptors_of(path: &Path) -> usize {
    let path = fs::canonicalize(path).expect("the file is there");
    let all = fs::read_dir("/proc/self/fd").expect("list descriptors");
    all.filter(|entry| {
        let entry = entry.as_ref().expect("an entry");
        fs::read_link(entry.path()).is_ok_and(|target| target == path)
    })
    .count()
}

#[test]
fn more_files_than_the_ring_has_places_for_work_all_the_same() {
    let folder = Folder::new("many_files");
    let options = DiskOptions {
        registered_files_max: 1,
        ..DiskOptions::default()
    };
    with_each(options, |mut disk, mut arena| {
        for number in 0..5u8 {
            let path = folder.path().join(format!("{number}"));
            fs::write(&path, [number; BLOCK_BYTES]).expect("write the file");
            disk.attach(FileId(u32::from(number)), open_file(&path));
        }
        for number in 0..5u32 {
            let block = block(&mut arena, BLOCK_BYTES, 0xee);
            let (token, file, offset) = (
                IoToken::new(Asker::Operation, u64::from(number)),
                FileId(number),
                0,
            );
            disk.submit(Io::Read {
                token,
                file,
                offset,
                block,
                len: 4096,
            });
        }
        let ended = drained(&mut disk);
        assert_eq!(ended.len(), 5);
        for end in ended {
            let first = end.block.expect("its block").bytes()[0];
            assert_eq!(u64::from(first), end.token.number);
        }
    });
}

#[test]
fn a_hanging_operation_keeps_its_block_and_is_reported_by_the_drain() {
    with_ring(DiskOptions::default(), |mut disk, mut arena| {
        let (source, mut sink) = std::io::pipe().expect("a pipe");
        disk.attach(FILE, OwnedFd::from(source));
        let free = arena.free_blocks().1;
        disk.submit(read(1, 0, block(&mut arena, BLOCK_BYTES, 0)));
        let mut ended = Vec::new();
        let refused = disk
            .drain(&mut ended, Duration::from_millis(20))
            .expect_err("it hangs");
        assert_eq!(refused.kind(), ErrorKind::TimedOut);
        assert_eq!((ended.len(), disk.in_flight()), (0, 1));
        assert_eq!(
            arena.free_blocks().1,
            free - 1,
            "nobody else may have the block now"
        );
        sink.write_all(&[3; BLOCK_BYTES]).expect("fill the pipe");
        let ended = drained(&mut disk);
        assert!(
            ended[0]
                .block
                .as_ref()
                .expect("its block")
                .bytes()
                .iter()
                .all(|&byte| byte == 3)
        );
    });
}

#[test]
fn dropping_a_disk_waits_for_an_operation_however_long_it_takes() {
    with_ring(DiskOptions::default(), |mut disk, mut arena| {
        let (source, mut sink) = std::io::pipe().expect("a pipe");
        disk.attach(FILE, OwnedFd::from(source));
        disk.submit(read(1, 0, block(&mut arena, BLOCK_BYTES, 0)));
        disk.flush().expect("flush");
        let filled = Arc::new(AtomicBool::new(false));
        let filler = {
            let filled = Arc::clone(&filled);
            thread::spawn(move || {
                // Long enough that a drop that does not wait is over by then.
                thread::sleep(Duration::from_millis(100));
                filled.store(true, Ordering::Release);
                sink.write_all(&[3; BLOCK_BYTES]).expect("fill the pipe");
            })
        };
        drop(disk);
        assert!(
            filled.load(Ordering::Acquire),
            "the block was given up before its end"
        );
        assert_eq!(arena.free_blocks(), (12, 58));
        filler.join().expect("the thread ends well");
    });
}

#[test]
#[should_panic(expected = "an operation on file 7, which is not attached")]
fn an_operation_on_an_unknown_file_stops_the_process() {
    let (mut disk, mut arena) = open(DiskOptions {
        mode: IoMode::Threads,
        ..DiskOptions::default()
    })
    .expect("threads");
    disk.submit(read(1, 0, block(&mut arena, BLOCK_BYTES, 0)));
}

#[test]
#[should_panic(expected = "are not whole blocks")]
fn a_length_beyond_the_block_stops_the_process() {
    let folder = Folder::new("beyond");
    let (mut disk, mut arena) = open(DiskOptions {
        mode: IoMode::Threads,
        ..DiskOptions::default()
    })
    .expect("threads");
    let (_, fd) = file(&folder, 4);
    disk.attach(FILE, fd);
    let block = block(&mut arena, BLOCK_BYTES, 0);
    disk.submit(Io::Read {
        token: IoToken::new(Asker::Operation, 1),
        file: FILE,
        offset: 0,
        block,
        len: 8192,
    });
}

#[test]
fn the_automatic_choice_is_a_ring_or_names_why_not() {
    let arena = Arena::new(ArenaLayout::default()).expect("map an arena");
    let disk = Disk::open(DiskOptions::default(), &arena).expect("one of the two works");
    match disk.engine() {
        "uring" => assert!(disk.describe().starts_with("io_uring, 256 entries")),
        _ => assert!(!disk.problems().is_empty()),
    }
    for problem in disk.problems() {
        assert!(!problem.cause.is_empty() && !problem.mend.is_empty());
    }
}
