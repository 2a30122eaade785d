//! What proves that a record was durable when its frame is found damaged: whatever went to the disk
//! after it was.

use penstock_storage::io::{BLOCK_BYTES, FileId};
use penstock_storage::log::{Lsn, SyncMethod};
use penstock_storage::recovery::{RecoveryError, Row};

use crate::disk::Disk;
use crate::journal::{FRAME_BYTES, Journal, read_back};

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
    assert_eq!(journal.disk.under_way(), 2);
    journal.put(b"stock:4", &value);
    journal.complete(0);
    journal.complete(0);
    assert_eq!(journal.log.durable(), Lsn(3));
    journal.pump();
    journal.complete(0);
    let at = BLOCK_BYTES + 2 * FRAME_BYTES;
    let mut files = journal.disk.files.clone();
    files.get_mut(&FIRST).unwrap()[at + 100] ^= 1;
    let Err(RecoveryError::Corrupt(corruption)) = read_back(&mut Disk::holding(files)) else {
        panic!("an acknowledged record was cut")
    };
    assert_eq!(corruption.row, Row::LastDamaged);
    assert_eq!(
        (corruption.lsn_from, corruption.lsn_to),
        (Lsn(3), Some(Lsn(3)))
    );
}
