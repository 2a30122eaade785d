//! What proves that a record was durable when its frame is found damaged: whatever went to the disk
//! after it was.

use penstock_storage::io::BLOCK_BYTES;
use penstock_storage::log::SyncMethod;
use penstock_storage::place::FileId;
use penstock_storage::place::Lsn;
use penstock_storage::recovery::{RecoveryError, Row};

use crate::disk::Disk;
use crate::journal::{FRAME_BYTES, Journal, SEGMENT_BYTES, read_back};

const FIRST: FileId = FileId(1);

/// A burst seals frames before those that are under way are durable. They go to the disk after.
#[test]
fn frames_that_were_sealed_early_prove_what_was_durable_when_they_went_to_the_disk() {
    let mut journal = Journal::new(SyncMethod::DurableWrite, 1);
    journal.add_spares();
    let value = vec![1; FRAME_BYTES - 300];
    for number in 0..4 {
        journal.put(format!("stock:{number}").as_bytes(), &value);
        journal.pump();
        if number == 0 {
            journal.flush();
        }
    }
    // Frames 2 and 3 are under way, frame 4 is open; one more seals it.
    assert_eq!(journal.disk.under_way().len(), 2);
    journal.put(b"stock:4", &value);
    journal.complete(0);
    journal.complete(0);
    assert_eq!(journal.log.durable(), Lsn(3));
    journal.pump();
    journal.complete(0);
    let at = BLOCK_BYTES + 2 * FRAME_BYTES;
    let mut files = journal.disk.files.clone();
    files.get_mut(&FIRST).unwrap()[at + 100] ^= 1;
    let Err(RecoveryError::Corrupt(corruption)) = read_back(&mut Disk::from(files)) else {
        panic!("an acknowledged record was cut")
    };
    assert_eq!(corruption.row, Row::LastDamaged);
    assert_eq!(
        (corruption.lsn_from, corruption.lsn_to),
        (Lsn(3), Some(Lsn(3)))
    );
}

/// A crash right behind an acknowledgement leaves a last frame that no mark covers. A start serves
/// it; from then on it must not be taken for torn, whether or not anything is written.
#[test]
fn what_a_start_has_served_is_proven_even_if_nothing_more_is_written() {
    for lives in 1..4 {
        let mut journal = Journal::new(SyncMethod::DurableWrite, 1);
        journal.add_spares();
        journal.put(b"stock:1", b"1");
        journal.flush();
        for _ in 0..lives {
            let restart = journal.restart(SyncMethod::DurableWrite).unwrap();
            assert_eq!(restart.records.len(), 1);
            journal.add_spares();
            journal.idle();
            assert_eq!(journal.log.deadline_us(), None, "nothing more to do");
        }
        assert_eq!(
            journal
                .disk
                .files
                .keys()
                .filter(|&&file| is_used(&journal.disk, file))
                .count(),
            2,
            "one segment for the record, one that proves it, however many starts"
        );
        let mut files = journal.disk.files.clone();
        files.get_mut(&FIRST).unwrap()[BLOCK_BYTES + 100] ^= 1;
        let Err(RecoveryError::Corrupt(corruption)) = read_back(&mut Disk::from(files)) else {
            panic!("a record that was served is cut after {lives} starts")
        };
        assert_eq!(corruption.row, Row::EarlierDamaged);
        journal.put(b"stock:2", b"2");
        journal.flush();
        assert_eq!(
            read_back(&mut journal.disk).unwrap().records,
            journal.appended
        );
    }
}

fn is_used(disk: &Disk, file: FileId) -> bool {
    disk.files[&file].iter().any(|&byte| byte != 0)
}

/// The proof of one crash is torn by the next, and its own proof goes again with the start after.
#[test]
fn crash_after_crash_without_a_record_stays_served_and_leaves_two_segments() {
    let mut journal = Journal::new(SyncMethod::DurableWrite, 1);
    journal.add_spares();
    journal.put(b"stock:1", b"1");
    journal.flush();
    journal.restart(SyncMethod::DurableWrite).unwrap();
    journal.add_spares();
    journal.put(b"stock:2", b"2");
    journal.flush();
    let second = journal
        .disk
        .files
        .iter()
        .rev()
        .find(|(file, _)| is_used(&journal.disk, **file));
    let (&second, _) = second.unwrap();
    assert_eq!(second, FileId(2));
    journal.disk.files.get_mut(&second).unwrap()[BLOCK_BYTES + 100] ^= 1;
    for life in 0..5 {
        let restart = journal
            .restart(SyncMethod::DurableWrite)
            .unwrap_or_else(|error| panic!("life {life}: {error}"));
        assert_eq!(restart.records.len(), 1);
        let found = restart.recovered.unwrap();
        assert!(found.rows.contains(Row::LastKept) != found.rows.contains(Row::LastEmpty));
        let sealed_lengths = [FIRST, second].map(|file| journal.disk.files[&file].len());
        assert_eq!(sealed_lengths, [2 * BLOCK_BYTES, SEGMENT_BYTES]);
        journal.add_spares();
        journal.idle();
    }
}

/// A start deletes a torn activation and overwrites a spare, so both must hold nothing.
#[test]
fn a_file_is_not_taken_for_empty_by_its_first_blocks_alone() {
    let mut journal = Journal::new(SyncMethod::DurableWrite, 1);
    journal.add_spares();
    while journal.disk.files[&FIRST][20 * BLOCK_BYTES] == 0 {
        journal.put(b"stock:1", &[1; 3_000]);
        journal.flush();
    }
    for (damage, row) in [(0, Row::HeaderGone), (1, Row::HeaderDamaged)] {
        let mut files = journal.disk.files.clone();
        let file = files.get_mut(&FIRST).unwrap();
        file[..2 * BLOCK_BYTES].fill(0);
        file[100] = damage;
        let Err(error) = read_back(&mut Disk::from(files.clone())) else {
            panic!("a segment with records is taken for an empty file")
        };
        assert_eq!(error.row(), Some(row));
        // Nearly all of it is gone.
        let file = files.get_mut(&FIRST).unwrap();
        file[..20 * BLOCK_BYTES].fill(0);
        file[100] = damage;
        let Err(error) = read_back(&mut Disk::from(files)) else {
            panic!("the end of a segment is taken for nothing")
        };
        assert_eq!(error.row(), Some(row));
    }
}

/// The mark of an idle moment rots; much later the server is killed right behind an
/// acknowledgement.
#[test]
fn a_damaged_mark_does_not_take_the_record_behind_it_away() {
    let mut journal = Journal::new(SyncMethod::DurableWrite, 1);
    journal.add_spares();
    journal.put(b"stock:1", b"1");
    journal.flush();
    journal.idle();
    journal.put(b"stock:2", b"2");
    journal.flush();
    assert_eq!(journal.log.durable(), Lsn(2));
    let mut files = journal.disk.files.clone();
    files.get_mut(&FIRST).unwrap()[2 * BLOCK_BYTES + 70] ^= 1;
    let Err(RecoveryError::Corrupt(corruption)) = read_back(&mut Disk::from(files)) else {
        panic!("an acknowledged record was cut")
    };
    assert_eq!(corruption.row, Row::LastDamaged);
    assert_eq!(corruption.offset, 2 * BLOCK_BYTES as u64);
}

/// A mark is written while no other write is under way. So a bad mark in front of good frames is
/// damage, not a torn write.
#[test]
fn nothing_is_under_way_beside_a_mark() {
    for sync in [SyncMethod::DurableWrite, SyncMethod::WriteThenSync] {
        let mut journal = Journal::new(sync, 1);
        journal.add_spares();
        journal.put(b"stock:1", b"1");
        journal.flush();
        journal.now_us += 10_000;
        journal.pump();
        assert_eq!(journal.log.counters().marks, 1);
        journal.put(b"stock:2", b"2");
        journal.pump();
        assert_eq!(journal.disk.under_way().len(), 1, "the mark alone");
        journal.flush();
        assert_eq!(journal.log.durable(), Lsn(2));
    }
}
