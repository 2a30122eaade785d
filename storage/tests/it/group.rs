//! Group commit: what goes to the disk when, and what is durable when.

use penstock_storage::frame::FRAME_HEADER_BYTES;
use penstock_storage::io::{BLOCK_BYTES, Io, IoFailure};
use penstock_storage::log::{Room, SyncMethod};
use penstock_storage::place::Lsn;

use crate::journal::{FRAME_BYTES, Journal, RECORD_BYTES_MAX, SEGMENT_BYTES, read_back};

/// A log whose first segment is in use.
fn ready(sync: SyncMethod) -> Journal {
    let mut journal = Journal::new(sync, 1);
    journal.add_spares();
    journal.put(b"first", b"1");
    journal.flush();
    assert_eq!(journal.log.durable(), Lsn(1));
    journal
}

#[test]
fn what_arrives_while_frames_are_under_way_joins_the_next_frame() {
    let mut journal = ready(SyncMethod::DurableWrite);
    for _ in 0..100 {
        journal.put(b"key", b"value");
        journal.pump();
    }
    assert_eq!(journal.disk.under_way().len(), 2);
    journal.flush();
    assert_eq!(journal.log.durable(), Lsn(101));
    assert_eq!(journal.log.counters().frames, 1 + 3);
}

#[test]
fn a_frame_that_ends_before_an_earlier_one_is_durable_only_after_it() {
    let mut journal = ready(SyncMethod::DurableWrite);
    journal.put(b"second", b"2");
    journal.pump();
    journal.put(b"third", b"3");
    journal.pump();
    assert_eq!(journal.disk.under_way().len(), 2);
    journal.complete(1);
    assert_eq!(journal.log.durable(), Lsn(1));
    let found = read_back(&mut crate::disk::Disk::from(journal.disk.files.clone())).unwrap();
    assert_eq!(
        found.records.len(),
        1,
        "the third record is cut with the second"
    );
    journal.complete(0);
    assert_eq!(journal.log.durable(), Lsn(3));
}

#[test]
fn with_write_then_sync_nothing_is_durable_before_its_sync() {
    let mut journal = ready(SyncMethod::WriteThenSync);
    journal.put(b"second", b"2");
    journal.pump();
    journal.put(b"third", b"3");
    journal.pump();
    journal.complete(0);
    journal.pump();
    // The sync was emitted before the third record's write ended, so it does not cover it.
    journal.complete(0);
    assert_eq!(journal.log.durable(), Lsn(1));
    assert!(matches!(journal.disk.under_way()[0], Io::Sync { .. }));
    journal.complete(0);
    assert_eq!(journal.log.durable(), Lsn(2));
    journal.flush();
    assert_eq!(journal.log.durable(), Lsn(3));
}

#[test]
fn a_segment_header_waits_for_all_before_it_and_all_behind_wait_for_it() {
    for sync in [SyncMethod::DurableWrite, SyncMethod::WriteThenSync] {
        let mut journal = Journal::new(sync, 1);
        let mut headers = 0;
        while headers < 3 {
            journal.add_spares();
            journal.put(b"key", &[1; 2_000]);
            journal.pump();
            for index in 0..journal.disk.under_way().len() {
                if matches!(journal.disk.under_way()[index], Io::Write { offset: 0, .. }) {
                    assert_eq!(journal.disk.under_way().len(), 1);
                    assert_eq!(journal.log.in_flight(), 1);
                    headers += 1;
                }
            }
            if journal.disk.under_way().len() == 2 || headers > 0 {
                journal.complete(0);
            }
        }
    }
}

#[test]
fn a_record_that_nobody_waits_for_leaves_within_the_interval() {
    let mut journal = ready(SyncMethod::DurableWrite);
    journal.append(&vec![(b"second".to_vec(), None)]).unwrap();
    journal.pump();
    assert_eq!(journal.disk.under_way().len(), 0);
    assert_eq!(journal.log.deadline_us(), Some(1_000));
    journal.now_us = 1_000;
    journal.flush();
    assert_eq!(journal.log.durable(), Lsn(2));
}

#[test]
fn one_mark_follows_idleness_and_then_the_log_rests() {
    let mut journal = ready(SyncMethod::DurableWrite);
    let deadline = journal.log.deadline_us().unwrap();
    journal.now_us = deadline - 1;
    journal.flush();
    assert_eq!(journal.log.counters().marks, 0);
    journal.now_us = deadline;
    journal.flush();
    assert_eq!(
        (journal.log.counters().marks, journal.log.deadline_us()),
        (1, None)
    );
    journal.idle();
    assert_eq!(journal.log.counters().marks, 1);
}

#[test]
fn records_beyond_the_queue_wait_and_find_room_after_a_completion() {
    let mut journal = ready(SyncMethod::DurableWrite);
    let value = vec![1; 3_000];
    let before = journal.appended.len();
    while journal
        .append(&vec![(b"key".to_vec(), Some(value.clone()))])
        .is_some()
    {
        journal.add_spares();
        journal.pump();
        assert!(
            journal.appended.len() < before + 1_000,
            "the queue has no end"
        );
    }
    assert_eq!(
        journal
            .log
            .room(penstock_storage::log::Purpose::Grow, 3_000),
        Room::Wait
    );
    journal.flush();
    assert_eq!(
        journal
            .log
            .room(penstock_storage::log::Purpose::Grow, 3_000),
        Room::Yes
    );
}

#[test]
fn without_a_spare_the_log_is_full_until_one_comes() {
    let mut journal = Journal::new(SyncMethod::DurableWrite, 1);
    assert_eq!(
        journal.log.room(penstock_storage::log::Purpose::Grow, 100),
        Room::Wait
    );
    journal.log.spare_refused();
    assert_eq!(
        journal.log.room(penstock_storage::log::Purpose::Grow, 100),
        Room::Full
    );
    journal.add_spares();
    assert_eq!(
        journal.log.room(penstock_storage::log::Purpose::Grow, 100),
        Room::Yes
    );
}

/// A log that begins with short segments wants one spare less at first.
#[test]
fn a_new_log_with_all_the_spares_that_it_wants_was_refused_none() {
    let mut journal = Journal::new(SyncMethod::DurableWrite, 1);
    journal.log.grow_segments(SEGMENT_BYTES as u64);
    journal.log.spare_refused();
    assert!(journal.log.is_low() && !journal.log.awaits_spare());
    journal.add_spares();
    assert!(!journal.log.is_low() && !journal.log.awaits_spare());
}

#[test]
fn a_record_larger_than_a_frame_gets_its_own() {
    let mut journal = ready(SyncMethod::DurableWrite);
    let value = vec![5; RECORD_BYTES_MAX - 48];
    assert!(value.len() > FRAME_BYTES);
    journal.put(b"large", &value);
    journal.put(b"small", b"1");
    journal.flush();
    let found = read_back(&mut journal.disk).unwrap();
    assert_eq!(found.records, journal.appended);
}

#[test]
fn the_last_frame_of_a_segment_takes_what_is_left_of_it() {
    let mut journal = Journal::new(SyncMethod::DurableWrite, 1);
    while journal.log.sealed_segments().is_empty() {
        journal.add_spares();
        let record = vec![(b"key".to_vec(), Some(vec![1; 900]))];
        if journal.append(&record).is_none() {
            journal.flush();
        }
    }
    // Thirteen frames of two blocks and one of one; behind the summary was room for a mark and a
    // longer one.
    let end_offset = journal.log.sealed_segments()[0].end.end_offset;
    assert_eq!(end_offset, (SEGMENT_BYTES - 3 * BLOCK_BYTES) as u64);
    assert_eq!(journal.log.counters().frames, 14);
    let appended = journal.log.appended();
    journal.log.want_durable(appended);
    journal.flush();
    let found = read_back(&mut journal.disk).unwrap();
    assert_eq!(found.records, journal.appended);
}

#[test]
fn a_failed_write_or_sync_is_final() {
    for (sync, fails_at) in [
        (SyncMethod::DurableWrite, 0),
        (SyncMethod::WriteThenSync, 0),
        (SyncMethod::WriteThenSync, 1),
    ] {
        for failure in [IoFailure::Device(5), IoFailure::Short { moved: 512 }] {
            let mut journal = ready(sync);
            journal.put(b"second", b"2");
            journal.pump();
            journal.put(b"third", b"3");
            journal.pump();
            for _ in 0..fails_at * 2 {
                journal.complete(0);
                journal.pump();
            }
            let durable = journal.log.durable();
            let completion = journal.disk.fail(0, failure);
            let poisoned = journal.log.completed(0, completion).unwrap_err();
            assert_eq!(poisoned.failure, failure);
            // What else was under way ends well, and helps nothing any more.
            while !journal.disk.under_way().is_empty() {
                let completion = journal.disk.complete(0);
                assert_eq!(journal.log.completed(0, completion), Err(poisoned));
            }
            journal.now_us += 1_000_000;
            journal.pump();
            assert_eq!(
                (journal.disk.under_way().len(), journal.log.durable()),
                (0, durable)
            );
            assert_eq!(
                journal
                    .log
                    .room(penstock_storage::log::Purpose::Grow, RECORD_BYTES_MAX),
                Room::Wait
            );
            assert_eq!(journal.log.deadline_us(), None);
        }
    }
}

#[test]
fn a_closed_log_reads_back_as_clean_and_gives_no_room() {
    let mut journal = ready(SyncMethod::DurableWrite);
    journal.put(b"second", b"2");
    journal.close();
    assert_eq!(
        journal.log.room(penstock_storage::log::Purpose::Grow, 8),
        Room::Wait
    );
    let found = read_back(&mut journal.disk).unwrap();
    let recovered = found.recovered.unwrap();
    assert!(recovered.is_clean() && recovered.torn.is_none());
    assert_eq!(recovered.records, 2);
}

#[test]
fn places_say_where_the_parts_stand() {
    let mut journal = ready(SyncMethod::DurableWrite);
    let parts = vec![
        (b"one".to_vec(), Some(vec![1; 100])),
        (b"two".to_vec(), None),
    ];
    let (lsn, places) = journal.append(&parts).unwrap();
    journal.log.want_durable(lsn);
    journal.flush();
    assert_eq!(
        places[0].offset,
        (2 * BLOCK_BYTES + FRAME_HEADER_BYTES) as u64
    );
    for (place, (key, _)) in places.iter().zip(&parts) {
        let start = usize::try_from(place.offset).unwrap();
        let bytes = &journal.disk.files[&place.file][start..start + place.bytes as usize];
        assert_eq!(
            penstock_storage::record::PartView::read(bytes)
                .unwrap()
                .key(),
            key
        );
    }
}

#[test]
fn restarts_without_a_record_cost_no_disk() {
    let mut journal = ready(SyncMethod::DurableWrite);
    journal.restart(SyncMethod::DurableWrite).unwrap();
    let files = journal.disk.files.len();
    for turn in 0..200 {
        journal.add_spares();
        // A request that was refused: it asked for room and wrote nothing.
        assert_eq!(
            journal.log.room(penstock_storage::log::Purpose::Grow, 100),
            Room::Yes
        );
        journal.flush();
        if turn % 2 == 0 {
            journal.close();
        }
        let restart = journal.restart(SyncMethod::DurableWrite).unwrap();
        assert_eq!(restart.records, journal.appended);
        assert!(
            journal.disk.files.len() <= files + 1,
            "{} files",
            journal.disk.files.len()
        );
    }
}

#[test]
fn a_thousand_restarts_with_a_record_each_cost_three_blocks_each() {
    let mut journal = Journal::new(SyncMethod::DurableWrite, 1);
    for _ in 0..1_000 {
        journal.add_spares();
        journal.put(b"key", b"value");
        journal.close();
        journal.restart(SyncMethod::DurableWrite).unwrap();
    }
    assert_eq!(journal.appended.len(), 1_000);
    let bytes: usize = journal.disk.files.values().map(Vec::len).sum();
    let whole = 3 * crate::journal::SEGMENT_BYTES;
    assert!(bytes <= 1_000 * 3 * BLOCK_BYTES + whole, "{bytes} bytes");
}

/// A log that knows how long a write takes, with a write of `records` under way since now.
fn busy(records: usize) -> Journal {
    let mut journal = ready(SyncMethod::DurableWrite);
    for _ in 0..3 {
        journal.put(b"key", b"value");
        journal.pump();
        journal.now_us += WRITE_US;
        journal.complete(0);
    }
    for _ in 0..records {
        journal.put(b"key", b"value");
    }
    journal.pump();
    assert_eq!(journal.disk.under_way().len(), 1);
    journal
}

/// How long a write takes.
const WRITE_US: u64 = 80;

#[test]
fn a_small_frame_waits_for_a_crowded_write_and_takes_what_comes_meanwhile() {
    let mut journal = busy(8);
    let frames = journal.log.counters().frames;
    for _ in 0..20 {
        journal.put(b"key", b"value");
        journal.pump();
        journal.now_us += 1;
    }
    assert_eq!(journal.disk.under_way().len(), 1);
    journal.complete(0);
    journal.pump();
    assert_eq!(journal.disk.under_way().len(), 1);
    journal.complete(0);
    let appended = journal.log.appended();
    assert_eq!(journal.log.durable(), appended);
    assert_eq!(journal.log.counters().frames, frames + 1);
}

#[test]
fn a_frame_waits_for_twice_the_usual_time_at_most_and_asks_for_a_turn_then() {
    let mut journal = busy(8);
    let emitted_us = journal.now_us;
    journal.put(b"key", b"value");
    journal.pump();
    assert_eq!(
        journal.log.deadline_us(),
        Some(emitted_us + 2 * WRITE_US),
        "the loop sleeps until then"
    );
    journal.now_us = emitted_us + 2 * WRITE_US - 1;
    journal.pump();
    assert_eq!(journal.disk.under_way().len(), 1);
    journal.now_us += 1;
    journal.pump();
    assert_eq!(journal.disk.under_way().len(), 2);
}

#[test]
fn a_record_that_nobody_waits_for_leaves_a_crowded_write_and_its_interval_behind() {
    let mut journal = busy(8);
    let begun_us = journal.now_us;
    journal.append(&vec![(b"key".to_vec(), None)]).unwrap();
    journal.pump();
    assert_eq!(journal.log.deadline_us(), Some(begun_us + 1_000));
    journal.now_us += 1_000;
    journal.pump();
    assert_eq!(journal.disk.under_way().len(), 2);
}

#[test]
fn a_second_client_a_block_of_records_and_a_clean_stop_wait_for_no_write() {
    let mut journal = busy(7);
    journal.put(b"key", b"value");
    journal.pump();
    assert_eq!(journal.disk.under_way().len(), 2);

    let mut journal = busy(8);
    journal.put(b"key", &[1; BLOCK_BYTES]);
    journal.pump();
    assert_eq!(journal.disk.under_way().len(), 2);

    let mut journal = busy(8);
    journal.put(b"key", b"value");
    journal.log.close();
    journal.pump();
    assert_eq!(journal.disk.under_way().len(), 2);
    journal.flush();
    assert!(journal.log.is_closed());
}

/// Flushes and the microseconds from put to durable, over `rounds` puts of each client. Each client
/// waits for its answer and comes back 1 us after the one before.
fn in_turn(clients: usize, rounds: usize) -> (u64, u64) {
    let mut journal = ready(SyncMethod::DurableWrite);
    let mut ready: Vec<(u64, usize)> = (0..clients).map(|it| (it as u64, it)).collect();
    let mut waiting: Vec<(Lsn, u64)> = Vec::new();
    let mut ends: Vec<u64> = Vec::new();
    let before = journal.log.counters().flushes;
    let (mut left, mut waited_us) = (clients * rounds, 0);
    while left > 0 || !waiting.is_empty() {
        journal.add_spares();
        ready.sort_unstable();
        while left > 0 && ready.first().is_some_and(|it| it.0 <= journal.now_us) {
            ready.remove(0);
            waiting.push((journal.put(b"key", b"value"), journal.now_us));
            left -= 1;
        }
        journal.pump();
        ends.resize(journal.disk.under_way().len(), journal.now_us + WRITE_US);
        if ends.first().is_some_and(|&end| end <= journal.now_us) {
            ends.remove(0);
            journal.complete(0);
            let durable = journal.log.durable();
            let answered = waiting.iter().filter(|it| it.0 <= durable);
            let mut back_us = journal.now_us;
            for &(_, since_us) in answered {
                waited_us += journal.now_us - since_us;
                back_us += 1;
                ready.push((back_us, 0));
            }
            waiting.retain(|it| it.0 > durable);
            continue;
        }
        journal.now_us += 1;
    }
    let flushes = journal.log.counters().flushes - before;
    (flushes, waited_us / (clients * rounds) as u64)
}

/// Half of the clients wait while the write of the other half is under way.
#[test]
fn many_clients_share_writes_by_halves_and_two_clients_never_wait_for_each_other() {
    let (flushes, _) = in_turn(50, 40);
    let writes = 50 * 40 / 20;
    assert!(flushes <= writes, "{flushes} flushes, {writes} are due");
    let (flushes, waited_us) = in_turn(2, 40);
    assert!(flushes >= 40);
    // Segment headers included; whoever waits for the other one waits for two writes.
    assert!(waited_us < WRITE_US * 3 / 2, "{waited_us} us");
}
