//! A file system that is frozen for a while, so that writes hang; needs root.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use penstock::disk::arena::{Arena, ArenaLayout};
use penstock::disk::{Disk, DiskOptions, IoMode};
use penstock_storage::io::{Asker, BLOCK_BYTES, Block, Blocks, Io, IoToken};
use penstock_storage::place::FileId;

use crate::Folder;
use crate::full_disk::{Mounted, run};
use crate::spares::LONG;

const FILE: FileId = FileId(7);
const BLOCKS: usize = 16;

/// Writes to the file system hang as long as this lives.
struct Frozen(PathBuf);

impl Frozen {
    fn new(mounted: &Mounted) -> Option<Frozen> {
        match run("fsfreeze", &["-f".as_ref(), &mounted.0]) {
            Ok(()) => Some(Frozen(mounted.0.clone())),
            Err(error) => {
                eprintln!("SKIPPED: cannot freeze a file system: {error}");
                None
            }
        }
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        let _ = run("fsfreeze", &["-u".as_ref(), &self.0]);
    }
}

/// A disk whose durable writes threads make.
fn disk(mounted: &Mounted) -> (Disk, Arena) {
    let path = mounted.0.join("file");
    fs::write(&path, vec![0; BLOCKS * BLOCK_BYTES]).expect("write the file");
    let file = File::options().read(true).write(true).open(path);
    let file = file.expect("open the file");
    file.sync_all().expect("sync the file");
    let arena = Arena::new(ArenaLayout::default()).expect("map an arena");
    let options = DiskOptions {
        mode: IoMode::Threads,
        ..DiskOptions::default()
    };
    let mut disk = Disk::open(options, &arena).expect("threads start");
    disk.attach(FILE, OwnedFd::from(file));
    (disk, arena)
}

fn submit_durable_writes(disk: &mut Disk, arena: &mut Arena) {
    for number in 0..BLOCKS as u64 {
        let mut block = arena.take(BLOCK_BYTES).expect("the arena has room");
        block.bytes_mut().fill(9);
        disk.submit(Io::Write {
            token: IoToken::new(Asker::Operation, number),
            file: FILE,
            offset: number * BLOCK_BYTES as u64,
            block,
            len: 4096,
            durable: true,
        });
    }
    disk.flush().expect("flush");
}

#[test]
fn writes_that_hang_in_threads_keep_their_blocks_and_end_once_the_device_answers() {
    let folder = Folder::new("hanging_disk");
    let Some(mounted) = Mounted::new(&folder) else {
        return;
    };
    let (mut disk, mut arena) = disk(&mounted);
    let free = arena.free_blocks();
    let Some(frozen) = Frozen::new(&mounted) else {
        return;
    };
    submit_durable_writes(&mut disk, &mut arena);
    let mut ended = Vec::new();
    let refused = disk
        .drain(&mut ended, Duration::from_millis(50))
        .expect_err("they hang");
    assert_eq!(refused.kind(), ErrorKind::TimedOut);
    assert_eq!((ended.len(), disk.in_flight()), (0, BLOCKS));
    assert_ne!(arena.free_blocks(), free, "nobody may have the blocks now");
    drop(frozen);
    disk.drain(&mut ended, LONG).expect("the disk drains");
    assert_eq!(ended.len(), BLOCKS);
    assert!(ended.iter().all(|end| end.result == Ok(())), "{ended:?}");
    ended.clear();
    assert_eq!(arena.free_blocks(), free, "every block is back");
    let contents = fs::read(mounted.0.join("file")).expect("read the file");
    assert!(contents.iter().all(|&byte| byte == 9));
}

#[test]
fn dropping_a_disk_waits_for_what_hangs_in_its_threads() {
    let folder = Folder::new("hanging_drop");
    let Some(mounted) = Mounted::new(&folder) else {
        return;
    };
    let (mut disk, mut arena) = disk(&mounted);
    let free = arena.free_blocks();
    let Some(frozen) = Frozen::new(&mounted) else {
        return;
    };
    submit_durable_writes(&mut disk, &mut arena);
    let is_thawed = Arc::new(AtomicBool::new(false));
    let thaw = {
        let is_thawed = Arc::clone(&is_thawed);
        thread::spawn(move || {
            // Long enough that a drop that does not wait is over by then.
            thread::sleep(Duration::from_millis(100));
            is_thawed.store(true, Ordering::Release);
            drop(frozen);
        })
    };
    drop(disk);
    assert!(
        is_thawed.load(Ordering::Acquire),
        "the blocks were given up before their end"
    );
    thaw.join().expect("the thread ends well");
    assert_eq!(arena.free_blocks(), free);
    let contents = fs::read(mounted.0.join("file")).expect("read the file");
    assert!(contents.iter().all(|&byte| byte == 9));
}
