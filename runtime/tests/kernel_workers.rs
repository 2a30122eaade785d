//! Alone in its process, since it counts the process's threads.

use std::fs;
use std::path::Path;
use std::time::Duration;

use penstock::directory::room::DiskRoom;
use penstock::directory::spares::{SpareOutcome, Spares};
use penstock::directory::{Directory, DirectoryOptions};
use penstock::disk::arena::{Arena, ArenaLayout};
use penstock::disk::{Disk, DiskOptions, IoMode, kernel_workers};
use penstock_shard::opening::Leftovers;
use penstock_storage::io::{Asker, Block, Blocks, Io, IoToken};
use penstock_storage::place::FileId;
use penstock_storage::segment::Owner;

const LONG: Duration = Duration::from_secs(60);

#[test]
fn durable_writes_into_a_spare_segment_need_no_helper_thread_of_the_kernel() {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("kernel_workers");
    let _ = fs::remove_dir_all(&path);
    let options = DirectoryOptions {
        shards_of_new: 1,
        segment_bytes: 4 << 20,
    };
    let directory = Directory::open(&path, options).expect("open");
    let mut arena = Arena::new(ArenaLayout::default()).expect("map an arena");
    let ring = DiskOptions {
        mode: IoMode::Uring,
        ..DiskOptions::default()
    };
    let mut disk = match Disk::open(ring, &arena) {
        Ok(disk) => disk,
        Err(refused) => {
            eprintln!("SKIPPED: {refused}");
            return;
        }
    };
    let (outcome, inbox) = flume::unbounded();
    let owner = Owner {
        cluster_id: [1; 16],
        node_id: [2; 16],
    };
    let room = DiskRoom::new(
        directory.segments().clone(),
        directory.key_tables().clone(),
        1 << 20,
        0,
    );
    let spares = Spares::start(room, owner, 0, Leftovers::default()).expect("start");
    let deliver = move |came| outcome.send(came).expect("the test waits");
    spares.handle().request(4 << 20, 4 << 20, Box::new(deliver));
    let SpareOutcome::Ready(spare) = inbox.recv_timeout(LONG).expect("a spare comes") else {
        panic!("there is room for one segment");
    };
    disk.attach(FileId(1), spare.fd);

    let mut ended = Vec::new();
    let mut seen = 0;
    for round in 0..256u64 {
        for lane in 0..2 {
            let mut block = arena.take(4096).expect("room");
            block.bytes_mut().fill(0xaa);
            disk.submit(Io::Write {
                token: IoToken::new(Asker::LogWrite, round),
                file: FileId(1),
                offset: (round * 2 + lane) * 4096,
                block,
                len: 4096,
                durable: true,
            });
        }
        disk.drain(&mut ended, LONG).expect("the disk drains");
        assert!(ended.drain(..).all(|end| end.result == Ok(())));
        seen = seen.max(kernel_workers().expect("count threads"));
    }
    assert_eq!(seen, 0, "a write had to wait inside the kernel");
    drop((disk, spares, directory));
    fs::remove_dir_all(&path).expect("remove");
}
