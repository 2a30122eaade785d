//! Segments and key tables under one limit.

use std::fs;

use penstock::directory::Directory;
use penstock::directory::spares::{SpareOutcome, Spares};
use penstock_shard::opening::Leftovers;

use crate::Folder;
use crate::spares::{LONG, OWNER, ask, ready, room};

const MIB: u64 = 1 << 20;

/// Files with the names of tables, of so many bytes each.
fn make_tables(directory: &Directory, count: u64, bytes: u64) {
    for number in 1..=count {
        let path = directory.key_tables().path();
        let bytes = vec![1; usize::try_from(bytes).expect("small")];
        fs::write(path.join(format!("{number:08}.keys")), bytes).expect("write");
    }
}

fn table_bytes(directory: &Directory) -> u64 {
    let tables = directory.key_tables().list().expect("list");
    tables.iter().map(|(_, bytes)| bytes).sum()
}

#[test]
fn tables_count_against_the_limit_and_leave_before_a_segment_is_refused() {
    let folder = Folder::new("room");
    let directory = folder.data();
    make_tables(&directory, 3, MIB / 2);
    let room = room(&directory, 8 * MIB);
    let spares = Spares::start(room.clone(), OWNER, 0, Leftovers::default()).expect("start");
    let shard = spares.handle();
    for made in 1..=8 {
        ready(&ask(&shard, MIB));
        let all = directory.segments().bytes().expect("list") + table_bytes(&directory);
        assert!(all <= 8 * MIB, "{all}");
        // With room for two segments beside the one that is made they stay.
        assert_eq!(table_bytes(&directory) > 0, made <= 4, "{made} segments");
        assert_eq!(room.clearances() > 0, made > 4);
    }
    let outcome = ask(&shard, MIB).recv_timeout(LONG).expect("an outcome");
    assert!(matches!(outcome, SpareOutcome::Refused { .. }));
}

#[test]
fn a_table_is_begun_where_it_leaves_room_for_segments_and_stays_while_it_leaves_some() {
    let folder = Folder::new("room_of_tables");
    let directory = folder.data();
    let limits = [
        (5 * MIB, true, false),
        (4 * MIB, false, false),
        (3 * MIB, false, true),
    ];
    make_tables(&directory, 2, MIB / 2);
    for (bytes_max, is_begun, is_low) in limits {
        let room = room(&directory, bytes_max);
        assert_eq!(room.has_for_table().expect("look"), is_begun, "{bytes_max}");
        assert_eq!(room.is_low(1).expect("look"), is_low, "{bytes_max}");
    }
    // Without a limit there is what the file system has.
    let room = room(&directory, 0);
    assert!(room.has_for_table().expect("look") && !room.is_low(1).expect("look"));
}

#[test]
fn a_limit_that_was_lowered_clears_the_tables() {
    let folder = Folder::new("lower_limit");
    let directory = folder.data();
    make_tables(&directory, 2, MIB / 2);
    let room = room(&directory, 2 * MIB);
    room.clear_for_segment(0).expect("clear");
    assert_eq!((table_bytes(&directory), room.clearances()), (0, 1));
    assert!(room.has_for_segment(2 * MIB).expect("look"));
}

#[test]
fn a_table_that_cannot_be_removed_keeps_no_other_and_where_none_is_nothing_is_reported() {
    let folder = Folder::new("stubborn_table");
    let directory = folder.data();
    let room = room(&directory, 2 * MIB);
    room.clear_for_segment(2 * MIB).expect("clear");
    assert_eq!(room.clearances(), 0);
    make_tables(&directory, 5, MIB / 2);
    let tables = directory.key_tables();
    let stubborn = tables.path().join("00000003.keys");
    fs::remove_file(&stubborn).expect("remove");
    fs::create_dir(&stubborn).expect("make");
    room.clear_for_segment(0).expect_err("a folder is no table");
    let left = tables.list().expect("list");
    assert_eq!((left.len(), room.clearances()), (1, 1), "{left:?}");
}
