use std::fs;

use penstock::disk::arena::{Arena, ArenaLayout};
use penstock::disk::{Disk, DiskOptions, IoMode};
use penstock::startup::calibration::calibrate;
use penstock_storage::log::SyncMethod;

use crate::Folder;

#[test]
fn calibration_chooses_the_faster_method_and_leaves_no_file() {
    let folder = Folder::new("calibration");
    let directory = folder.data();
    for mode in [IoMode::Auto, IoMode::Threads] {
        let arena = Arena::new(ArenaLayout::default()).expect("map an arena");
        let free = arena.free_blocks();
        let options = DiskOptions {
            mode,
            ..DiskOptions::default()
        };
        let mut disk = Disk::open(options, &arena).expect("open");
        let found = calibrate(&mut disk, &arena, directory.segments()).expect("calibrate");
        println!("{}: {found:?}", disk.describe());
        if found.durable_write_us <= found.write_then_sync_us {
            assert_eq!(found.method, SyncMethod::DurableWrite);
        }
        assert!(found.durable_write_us > 0 && found.write_then_sync_us > 0);
        let counters = disk.counters();
        assert_eq!((counters.writes, counters.durable_writes), (64, 32));
        assert_eq!(
            (counters.syncs, counters.reads, counters.failures),
            (32, 32, 0)
        );
        assert_eq!((disk.in_flight(), arena.free_blocks()), (0, free));
        let left = fs::read_dir(directory.segments().folder())
            .expect("list")
            .count();
        assert_eq!(left, 0);
    }
}
