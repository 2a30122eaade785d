//! The recovery table, row by row. Each row has a state of the disk, the verdict of a start, and
//! the repair that the start makes.

use std::collections::BTreeMap;

use penstock_storage::frame::FRAME_HEADER_BYTES;
use penstock_storage::io::BLOCK_BYTES;
use penstock_storage::log::SyncMethod;
use penstock_storage::place::FileId;
use penstock_storage::place::{LogStart, Lsn};
use penstock_storage::recovery::{
    Event, Recovered, RecoveryError, RottenSpare, Row, Segment, Verdict, recover_behind, survey,
};
use penstock_storage::segment::{FirstBlock, SegmentHeader};
use penstock_storage::snapshot::{
    CoveredSegment, ProvenEnd, SnapshotFooter, SnapshotHeader, SnapshotName,
};
use penstock_storage::spare::SpareHeader;

use crate::damage::reseal;
use crate::disk::Disk;
use crate::journal::{Journal, OWNER, SEGMENT_BYTES, read_back};

type Files = BTreeMap<FileId, Vec<u8>>;

const FIRST: FileId = FileId(1);
const SECOND: FileId = FileId(2);

/// Makes each case a test, and the list of all of them.
macro_rules! table {
    ($($(#[$doc:meta])* $row:ident: fn $sentence:ident() $body:block)+) => {
        $($(#[$doc])* #[test] fn $sentence() $body)+

        const CASES: &[Row] = &[$(Row::$row,)+];
    };
}

#[test]
fn every_row_of_the_table_has_a_case() {
    for row in Row::ALL {
        assert!(CASES.contains(row), "{row} has none");
    }
}

#[test]
fn the_table_in_the_format_is_the_one_in_the_code() {
    let format = include_str!("../../FORMAT.md");
    let printed: Vec<&str> = format
        .lines()
        .skip_while(|line| !line.starts_with("| row | found | verdict |"))
        .skip(2)
        .take_while(|line| line.starts_with('|'))
        .collect();
    let table: Vec<String> = Row::ALL
        .iter()
        .map(|row| format!("| `{}` | {} | {} |", row.name(), row.found(), row.act()))
        .collect();
    assert_eq!(printed, table, "should be:\n{}", table.join("\n"));
}

/// A log after `puts` records, each durable in a frame of one block.
fn log_of(puts: u64) -> Journal {
    let mut journal = Journal::new(SyncMethod::DurableWrite, 1);
    for _ in 0..puts {
        put(&mut journal);
    }
    journal
}

fn put(journal: &mut Journal) {
    journal.add_spares();
    let number = journal.appended.len() as u64 + 1;
    journal.put(b"stock:42", &number.to_le_bytes());
    journal.flush();
}

/// Three records in a segment that was sealed by a clean stop, two in the next.
fn two_segments() -> Files {
    let mut journal = log_of(3);
    journal.close();
    journal.restart(SyncMethod::DurableWrite).unwrap();
    put(&mut journal);
    put(&mut journal);
    journal.idle();
    segments(&journal)
}

/// The files of a log without its spares.
fn segments(journal: &Journal) -> Files {
    let files = journal.disk.files.iter();
    files
        .filter(|(_, bytes)| bytes[..BLOCK_BYTES] != [0; BLOCK_BYTES])
        .map(|(&file, bytes)| (file, bytes.clone()))
        .collect()
}

fn log_start(last_sequence: u64, end_offset: u64, last_lsn: Lsn, is_unproven: bool) -> LogStart {
    LogStart {
        last_sequence,
        end_offset,
        last_lsn,
        is_unproven,
    }
}

/// The footer of a snapshot without entries.
fn footer_to(to: Lsn) -> SnapshotFooter {
    SnapshotFooter {
        chunks: 0,
        entries: 0,
        to,
        time_ms: 0,
        chunks_crc: 0,
    }
}

const SALT: u64 = 0xFEED_5A17;

/// Makes a spare that is to serve again of what served.
fn make_spare(file: &mut [u8]) {
    let header = SpareHeader {
        owner: OWNER,
        salt: SALT,
    };
    header.encode(file.last_chunk_mut().unwrap());
    header.encode(file.first_chunk_mut().unwrap());
}

/// A log of one segment, whose file held `stale` before, and the file.
fn log_on(stale: &[u8]) -> (Journal, FileId) {
    let mut journal = Journal::new(SyncMethod::DurableWrite, 1);
    let file = journal.disk.create(SEGMENT_BYTES);
    let bytes = journal.disk.files.get_mut(&file).unwrap();
    bytes.copy_from_slice(stale);
    make_spare(bytes);
    journal
        .log
        .add_reused_spare(file, SALT, SEGMENT_BYTES as u64);
    (journal, file)
}

fn lengths_of(files: &Files) -> Vec<(FileId, usize)> {
    let mut disk = Disk::from(files.clone());
    read_back(&mut disk).unwrap();
    let left = disk.files.iter().map(|(&file, bytes)| (file, bytes.len()));
    left.collect()
}

fn block(files: &mut Files, file: FileId, number: usize) -> &mut [u8] {
    let bytes = files.get_mut(&file).unwrap();
    &mut bytes[number * BLOCK_BYTES..][..BLOCK_BYTES]
}

/// Changes a segment's header and makes its CRC good again.
fn change_header(files: &mut Files, file: FileId, change: impl FnOnce(&mut SegmentHeader)) {
    let block = files.get_mut(&file).unwrap().first_chunk_mut().unwrap();
    let FirstBlock::Segment(mut header) = SegmentHeader::read(block) else {
        panic!("a header")
    };
    change(&mut header);
    header.encode(block);
}

/// The start refuses for that row, names that file, offset and LSN range, and changes nothing.
fn refuses(files: &Files, row: Row, at: (FileId, usize), lsns: (u64, Option<u64>)) {
    assert_eq!(row.verdict(), Verdict::Refuse);
    let mut disk = Disk::from(files.clone());
    let error = match read_back(&mut disk) {
        Ok(restart) => panic!("{row} is served: {:?}", restart.rows),
        Err(error) => error,
    };
    assert_eq!(error.row(), Some(row), "{error}");
    assert!(disk.files == *files, "changed before the verdict");
    let cause = match &error {
        RecoveryError::Corrupt(found) => (found.file, found.offset, found.lsn_from, found.lsn_to),
        RecoveryError::SegmentMissing {
            next,
            lsn_from,
            lsn_to,
            ..
        } => (*next, 0, *lsn_from, Some(*lsn_to)),
        error => panic!("{error} names no range"),
    };
    let expected = (at.0, at.1 as u64, Lsn(lsns.0), lsns.1.map(Lsn));
    assert_eq!(cause, expected, "{error}");
}

/// The start serves the records from LSN 1 to `last` and met exactly these rows; the lengths of the
/// files after it are these, and another start finds the same.
fn serves(files: &Files, rows: &[Row], last: u64, lengths: &[(FileId, usize)]) -> LogStart {
    let mut disk = Disk::from(files.clone());
    let restart = read_back(&mut disk).unwrap_or_else(|error| panic!("refused: {error}"));
    assert_eq!(restart.rows.iter().collect::<Vec<_>>(), rows);
    assert!(rows.iter().all(|row| row.verdict() == Verdict::Serve));
    assert_eq!(restart.records.len() as u64, last);
    let left = disk.files.iter().map(|(&file, bytes)| (file, bytes.len()));
    assert_eq!(left.collect::<Vec<_>>(), lengths);
    let again = read_back(&mut disk).unwrap();
    let start = restart
        .recovered
        .map_or(LogStart::default(), |found| found.start);
    assert_eq!(
        again
            .recovered
            .map_or(LogStart::default(), |found| found.start),
        start
    );
    assert_eq!(again.records, restart.records);
    start
}

table! {
    Spare: fn a_file_of_zeros_is_a_spare_and_stays() {
        let files = Files::from([(FIRST, vec![0; SEGMENT_BYTES])]);
        let start = serves(&files, &[Row::Spare], 0, &[(FIRST, SEGMENT_BYTES)]);
        assert_eq!(start, LogStart::default());
    }

    TornActivation: fn a_header_that_never_got_whole_is_deleted() {
        let mut files = log_of(0).disk.files;
        // Its CRC did not get to the disk.
        let header = two_segments()[&FIRST][..512].to_vec();
        files.insert(FIRST, vec![0; SEGMENT_BYTES]);
        files.get_mut(&FIRST).unwrap()[..512].copy_from_slice(&header);
        serves(&files, &[Row::TornActivation], 0, &[]);
    }

    RottenSpare: fn a_spare_with_a_byte_that_nobody_wrote_stops_no_start() {
        let mut files = two_segments();
        files.insert(FileId(9), vec![0; SEGMENT_BYTES]);
        block(&mut files, FileId(9), 3)[7] = 0x40;
        let found = survey(&mut Disk::from(files.clone()), OWNER).unwrap();
        let expected = RottenSpare {
            file: FileId(9),
            file_bytes: SEGMENT_BYTES as u64,
            offset: 3 * BLOCK_BYTES as u64 + 7,
            found: 0x40,
            wrong_bytes: 1,
        };
        assert_eq!(found.rotten, [expected]);
        let served = [Row::RottenSpare, Row::EarlierIntact, Row::LastMarked];
        serves(&files, &served, 5, &lengths_of(&two_segments()));
    }

    ReusedSpare: fn a_file_that_was_to_serve_again_is_deleted_whatever_it_held() {
        let mut files = two_segments();
        let mut stale = files[&FIRST].clone();
        make_spare(&mut stale);
        files.insert(FileId(9), stale);
        let served = [Row::ReusedSpare, Row::EarlierIntact, Row::LastMarked];
        serves(&files, &served, 5, &lengths_of(&two_segments()));
    }

    HeaderCutShort: fn a_file_shorter_than_a_header_is_damage() {
        let mut files = segments(&log_of(1));
        files.get_mut(&FIRST).unwrap().truncate(BLOCK_BYTES - 1);
        refuses(&files, Row::HeaderCutShort, (FIRST, 0), (0, None));
    }

    HeaderGone: fn frames_behind_a_header_of_zeros_are_damage() {
        let mut files = segments(&log_of(1));
        block(&mut files, FIRST, 0).fill(0);
        refuses(&files, Row::HeaderGone, (FIRST, 0), (0, None));
    }

    HeaderDamaged: fn frames_behind_a_header_that_does_not_check_are_damage() {
        let mut files = segments(&log_of(1));
        block(&mut files, FIRST, 0)[2_000] ^= 1;
        refuses(&files, Row::HeaderDamaged, (FIRST, 0), (0, None));
    }

    Foreign: fn a_segment_of_another_cluster_is_refused_by_name() {
        let mut files = segments(&log_of(1));
        change_header(&mut files, FIRST, |header| header.owner.cluster_id[0] ^= 1);
        let error = read_back(&mut Disk::from(files)).map(|_| ()).unwrap_err();
        assert_eq!(error.row(), Some(Row::Foreign));
        assert!(error.to_string().contains("00000001.seg belongs to node 0909"), "{error}");
    }

    OtherFormat: fn what_checks_and_is_not_of_this_format_is_refused_by_name() {
        let sound = segments(&log_of(1));
        let refused = |change: &dyn Fn(&mut Files), text: &str| {
            let mut files = sound.clone();
            change(&mut files);
            let error = read_back(&mut Disk::from(files)).map(|_| ()).unwrap_err();
            assert_eq!(error.row(), Some(Row::OtherFormat), "{error}");
            assert!(error.to_string().contains(text), "{error}");
        };
        refused(&|files| change_header(files, FIRST, |header| header.chain = 9), "chain 9");
        let unknown_kind = |files: &mut Files| {
            block(files, FIRST, 1)[6] = 9;
            reseal(files.get_mut(&FIRST).unwrap(), 1);
        };
        refused(&unknown_kind, "kind 9");
    }

    Released: fn a_segment_that_the_contents_do_not_list_is_deleted() {
        let mut journal = log_of(3);
        for _ in 0..2 {
            journal.close();
            journal.restart(SyncMethod::DurableWrite).unwrap();
            put(&mut journal);
        }
        journal.log.release(1, &[0; 256]);
        journal.idle();
        assert_eq!(journal.log.take_removable(), Some(FIRST));
        let files = segments(&journal);
        assert!(files.contains_key(&FIRST), "nobody removed it yet");
        let rows = [Row::Released, Row::EarlierIntact, Row::LastMarked];
        let mut disk = Disk::from(files);
        let restart = read_back(&mut disk).unwrap();
        assert!(restart.rows.iter().eq(rows));
        assert!(!disk.files.contains_key(&FIRST));
        assert_eq!(restart.records.len(), 2, "those of the other segments");
        assert_eq!(restart.recovered.unwrap().start.last_lsn, Lsn(5));
    }

    SegmentMissing: fn a_segment_that_is_gone_is_damage() {
        let mut files = two_segments();
        files.remove(&FIRST);
        refuses(&files, Row::SegmentMissing, (SECOND, 0), (1, Some(3)));
    }

    SegmentTwice: fn two_files_of_one_sequence_are_damage() {
        let mut files = two_segments();
        files.insert(FileId(9), files[&SECOND].clone());
        refuses(&files, Row::SegmentTwice, (FileId(9), 0), (4, None));
    }

    HeaderContradicts: fn a_header_that_does_not_follow_is_damage() {
        let mut files = two_segments();
        change_header(&mut files, SECOND, |header| header.first_lsn.0 += 1);
        refuses(&files, Row::HeaderContradicts, (SECOND, 0), (4, None));
    }

    EarlierIntact: fn an_earlier_segment_is_cut_to_the_end_that_its_successor_names() {
        let files = two_segments();
        // Header, three frames, a summary of one block.
        let lengths = [(FIRST, 5 * BLOCK_BYTES), (SECOND, SEGMENT_BYTES)];
        let start = serves(&files, &[Row::EarlierIntact, Row::LastMarked], 5, &lengths);
        let end_offset = 4 * BLOCK_BYTES as u64;
        let expected = log_start(2, end_offset, Lsn(5), false);
        assert_eq!(start, expected);
    }

    EarlierCovered: fn what_stands_before_the_position_of_a_snapshot_is_not_read() {
        let mut files = two_segments();
        block(&mut files, FIRST, 2)[100] ^= 1;
        let mut disk = Disk::from(files);
        let survey = survey(&mut disk, OWNER).expect("headers check");
        let segments = survey.logs.values().next().expect("a log");
        let [first, second] = [&segments[0], &segments[1]];
        let covered = |segment: &Segment, end_offset| CoveredSegment {
            sequence: segment.header.sequence,
            salt: segment.header.salt,
            end_offset,
            file: segment.file,
            tombstone_bytes: 0,
        };
        let snapshot = SnapshotHeader {
            owner: OWNER,
            name: SnapshotName { log_id: 3, number: 1 },
            incarnation: 2,
            hash_check: 0,
            from: Lsn(4),
            epoch_max: 257,
            is_unproven: true,
            has_released: false,
            is_linked: false,
            has_marks: false,
            has_heads: false,
        has_redo: false,
            sequences: Box::new([4; 256]),
            segments: vec![
                covered(first, second.header.previous_end_offset),
                covered(second, 2 * BLOCK_BYTES as u64),
            ],
        };
        let mut replayed = 0;
        let mut recovered_to = |to| {
            let footer = footer_to(Lsn(to));
            recover_behind(&mut disk, segments, (&snapshot, &footer), &mut |event| {
                replayed += u32::from(matches!(event, Event::Part(..)));
                Ok(())
            })
            .expect("nothing that is read is damaged")
        };
        assert!(recovered_to(6).is_none(), "the log ends before");
        let recovered = recovered_to(5).expect("the log reaches that far");
        assert!(recovered.rows.iter().eq([Row::EarlierCovered, Row::LastMarked]));
        assert_eq!((replayed, recovered.start.last_lsn), (2, Lsn(5)));
        assert_eq!(recovered.truncate, [(FIRST, second.header.previous_end_offset)]);

        // A later start began the second segment with an LSN that an earlier one had told durable:
        // the log lost its tail in between, and its LSNs are of other records now.
        let earlier = SnapshotHeader { incarnation: 1, ..snapshot };
        let footer = footer_to(Lsn(5));
        let recovered = recover_behind(&mut disk, segments, (&earlier, &footer), &mut |_| Ok(()));
        assert!(recovered.expect("nothing that is read is damaged").is_none());
    }

    EarlierCutShort: fn an_earlier_segment_that_lost_its_end_is_damage() {
        let mut files = two_segments();
        files.get_mut(&FIRST).unwrap().truncate(4 * BLOCK_BYTES);
        refuses(&files, Row::EarlierCutShort, (FIRST, 0), (1, Some(3)));
    }

    EarlierDamaged: fn a_bad_frame_in_an_earlier_segment_is_damage() {
        let mut files = two_segments();
        block(&mut files, FIRST, 2)[100] ^= 1;
        refuses(&files, Row::EarlierDamaged, (FIRST, 2 * BLOCK_BYTES), (2, Some(3)));
    }

    FrameContradicts: fn a_frame_that_checks_and_does_not_follow_is_damage() {
        let mut files = two_segments();
        block(&mut files, SECOND, 2)[24] = 9;
        reseal(files.get_mut(&SECOND).unwrap(), 2);
        refuses(&files, Row::FrameContradicts, (SECOND, 2 * BLOCK_BYTES), (5, None));
    }

    FrameBodyContradicts: fn a_part_that_does_not_check_in_a_frame_that_does_is_damage() {
        let mut files = two_segments();
        block(&mut files, SECOND, 2)[FRAME_HEADER_BYTES + 44] ^= 1;
        reseal(files.get_mut(&SECOND).unwrap(), 2);
        refuses(&files, Row::FrameBodyContradicts, (SECOND, 2 * BLOCK_BYTES), (5, Some(5)));
    }

    LastMarked: fn a_log_that_ends_with_a_mark_is_served_to_its_end() {
        let mut journal = log_of(2);
        journal.idle();
        let start = serves(&segments(&journal), &[Row::LastMarked], 2, &[(FIRST, SEGMENT_BYTES)]);
        assert!(!start.is_unproven);
    }

    LastUnmarked: fn a_log_whose_last_frame_is_whole_is_served_to_its_end_and_to_be_proven() {
        let files = segments(&log_of(2));
        let start = serves(&files, &[Row::LastUnmarked], 2, &[(FIRST, SEGMENT_BYTES)]);
        let end_offset = 3 * BLOCK_BYTES as u64;
        let expected = log_start(1, end_offset, Lsn(2), true);
        assert_eq!(start, expected);
    }

    LastTorn: fn a_torn_last_frame_is_left_out_and_reported() {
        let mut files = segments(&log_of(3));
        block(&mut files, FIRST, 3)[..512].fill(0);
        block(&mut files, FIRST, 3)[600] = 1;
        let start = serves(&files, &[Row::LastTorn], 2, &[(FIRST, SEGMENT_BYTES)]);
        assert!(start.is_unproven);
        assert_eq!(start.end_offset, 3 * BLOCK_BYTES as u64);
        let torn = read_back(&mut Disk::from(files)).unwrap().recovered.unwrap().torn.unwrap();
        assert_eq!((torn.file, torn.offset, torn.lsn), (FIRST, start.end_offset, Lsn(3)));
        assert_eq!(torn.bytes, BLOCK_BYTES as u64);
    }

    LastDamaged: fn a_bad_frame_that_a_later_one_calls_durable_is_damage() {
        let mut journal = log_of(3);
        journal.idle();
        let mut files = segments(&journal);
        block(&mut files, FIRST, 2)[100] ^= 1;
        refuses(&files, Row::LastDamaged, (FIRST, 2 * BLOCK_BYTES), (2, Some(3)));
    }

    LastCutShort: fn a_last_segment_that_lost_zeros_of_its_end_is_damage() {
        let mut files = segments(&log_of(1));
        files.get_mut(&FIRST).unwrap().truncate(SEGMENT_BYTES - BLOCK_BYTES);
        refuses(&files, Row::LastCutShort, (FIRST, 2 * BLOCK_BYTES), (2, None));
    }

    LastEmpty: fn a_last_segment_without_a_record_is_deleted_when_it_proves_nothing() {
        let mut files = two_segments();
        files.get_mut(&SECOND).unwrap()[BLOCK_BYTES..].fill(0);
        let rows = [Row::EarlierIntact, Row::LastEmpty];
        let start = serves(&files, &rows, 3, &[(FIRST, SEGMENT_BYTES)]);
        assert_eq!((start.last_sequence, start.last_lsn), (1, Lsn(3)));
        assert!(!start.is_unproven);
    }

    LastKept: fn a_last_segment_without_a_record_is_kept_when_it_alone_proves_the_one_before() {
        let mut journal = log_of(3);
        journal.restart(SyncMethod::DurableWrite).unwrap();
        journal.idle();
        let rows = [Row::EarlierIntact, Row::LastKept];
        let lengths = [(FIRST, 4 * BLOCK_BYTES), (SECOND, SEGMENT_BYTES)];
        let start = serves(&segments(&journal), &rows, 3, &lengths);
        let end_offset = BLOCK_BYTES as u64;
        let expected = log_start(2, end_offset, Lsn(3), false);
        assert_eq!(start, expected);

        // The first start has cut the first segment, so the second must stay whatever is left of
        // it.
        let mut disk = Disk::from(two_segments());
        read_back(&mut disk).unwrap();
        disk.files.get_mut(&SECOND).unwrap()[BLOCK_BYTES..].fill(0);
        let lengths = [(FIRST, 5 * BLOCK_BYTES), (SECOND, SEGMENT_BYTES)];
        serves(&disk.files, &rows, 3, &lengths);
    }

    TailLost: fn a_log_that_ends_before_what_a_snapshot_proves_is_damage() {
        let files = segments(&log_of(3));
        let found = read_back(&mut Disk::from(files)).unwrap().recovered.unwrap();
        let snapshot = SnapshotName { log_id: 3, number: 7 };
        let proven = |lsn| ProvenEnd { lsn: Lsn(lsn), snapshot, incarnation: 1, time_ms: 0 };
        for lsn in 0..=3 {
            proven(lsn).check(&found).expect("the log holds all that is proved");
        }
        let error = proven(5).check(&found).unwrap_err();
        assert_eq!((error.row(), error.is_damage()), (Some(Row::TailLost), true));
        assert_eq!(Row::TailLost.verdict(), Verdict::Refuse);
        assert_eq!(
            error.within("/data").to_string(),
            "log 3 ends at LSN 3, in /data/segments/00000001.seg at offset 16384, but the snapshot \
             /data/snapshots/3-00000007.idx proves that all records up to LSN 5 were durable: LSN \
             4 to 5 are lost"
        );
        let error = proven(5).check(&Recovered::default()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "log 3 has no segment, but the snapshot 3-00000007.idx proves that all records up to \
             LSN 5 were durable: LSN 1 to 5 are lost"
        );
    }
}

/// Files of a log of many full segments: much that an earlier use may leave.
fn stale() -> Vec<u8> {
    let journal = log_of(SEGMENT_BYTES as u64 / BLOCK_BYTES as u64 - 8);
    segments(&journal)[&FIRST].clone()
}

#[test]
fn what_an_earlier_use_left_behind_the_frames_is_no_torn_tail() {
    for puts in 0..4 {
        let (mut journal, file) = log_on(&stale());
        for _ in 0..puts {
            put(&mut journal);
        }
        journal.idle();
        let files = segments(&journal);
        let mut disk = Disk::from(files.clone());
        let restart = read_back(&mut disk).unwrap();
        assert_eq!(restart.records.len(), puts);
        assert_eq!(
            restart.rows.iter().next(),
            match puts {
                0 => Some(Row::ReusedSpare),
                _ => Some(Row::LastMarked),
            }
        );
        assert_eq!(disk.files.contains_key(&file), puts > 0);
    }
}

#[test]
fn a_torn_header_over_a_spare_that_served_before_holds_nothing_unless_a_frame_stands_behind() {
    for torn in [1, 512, 2_048, 4_095] {
        let (journal, file) = log_on(&stale());
        let mut files = journal.disk.files;
        block(&mut files, file, 0)[..torn].fill(7);
        serves(&files, &[Row::TornActivation], 0, &[]);

        let (mut journal, file) = log_on(&stale());
        put(&mut journal);
        let mut files = segments(&journal);
        block(&mut files, file, 0)[..torn].fill(7);
        refuses(&files, Row::HeaderDamaged, (file, 0), (0, None));
    }
}

#[test]
fn a_spare_header_in_front_of_frames_of_its_salt_is_damage() {
    let (mut journal, file) = log_on(&stale());
    put(&mut journal);
    let mut files = segments(&journal);
    make_spare(files.get_mut(&file).unwrap());
    refuses(&files, Row::HeaderGone, (file, 0), (0, None));
}

#[test]
fn a_torn_tail_in_a_file_that_served_before_is_cut_and_durable_damage_is_not() {
    let (mut journal, file) = log_on(&stale());
    (0..3).for_each(|_| put(&mut journal));
    let mut files = segments(&journal);
    // The third frame is the last: no later one tells it durable.
    block(&mut files, file, 3)[100] ^= 1;
    let mut disk = Disk::from(files.clone());
    assert_eq!(read_back(&mut disk).unwrap().records.len(), 2);
    block(&mut files, file, 2)[100] ^= 1;
    refuses(
        &files,
        Row::LastDamaged,
        (file, 2 * BLOCK_BYTES),
        (2, Some(2)),
    );
}
