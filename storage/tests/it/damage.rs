//! Whatever is not as it was written is refused or told, never taken for the end of the log.

use std::collections::BTreeMap;

use penstock_storage::frame::FRAME_HEADER_BYTES;
use penstock_storage::inspect::inspect;
use penstock_storage::io::{BLOCK_BYTES, SegmentSource};
use penstock_storage::keyspace::{SETTINGS_BYTES, keyspace_key};
use penstock_storage::layout::Layout;
use penstock_storage::log::SyncMethod;
use penstock_storage::place::FileId;
use penstock_storage::place::Lsn;
use penstock_storage::record::part_bytes;
use penstock_storage::recovery::{
    Event, HEAD_BYTES, Proof, RecoveryError, RottenSpare, Row, Survey, prove_spare, survey,
    survey_heads,
};
use penstock_storage::segment::{FirstBlock, Owner, SegmentHeader};
use penstock_storage::spare::SpareHeader;

use crate::disk::Disk;
use crate::journal::{Journal, OWNER, Parts, SEGMENT_BYTES, read_back};
use crate::random::Random;
use crate::seed::{Seed, seeds};

const FIRST: FileId = FileId(1);

/// Three records in two frames, and a mark.
fn small_log() -> Journal {
    let mut journal = Journal::new(SyncMethod::DurableWrite, 1);
    journal.add_spares();
    journal.put(b"stock:1", &[1; 8]);
    journal.flush();
    journal.put(b"stock:2", &[2; 100]);
    journal.put(b"stock:3", b"");
    journal.flush();
    journal.idle();
    assert_eq!(journal.log.counters().marks, 1);
    journal
}

/// Enough records for three segments.
fn long_log() -> Journal {
    let mut journal = Journal::new(SyncMethod::DurableWrite, 1);
    while journal.log.counters().segments < 3 {
        journal.add_spares();
        journal.put(
            format!("{}", journal.appended.len()).as_bytes(),
            &[3; 3_000],
        );
        journal.flush();
    }
    journal.idle();
    journal
}

/// The end of the last block of a file that is not zero.
fn used_bytes(file: &[u8]) -> usize {
    let last = file.iter().rposition(|&byte| byte != 0).expect("used");
    (last + 1).next_multiple_of(BLOCK_BYTES)
}

fn records_of(files: &Disk) -> Result<Vec<Parts>, RecoveryError> {
    read_back(&mut Disk::from(files.files.clone())).map(|restart| restart.records)
}

#[test]
fn a_small_log_reads_back_and_so_does_a_long_one() {
    for journal in [small_log(), long_log()] {
        assert_eq!(records_of(&journal.disk).unwrap(), journal.appended);
    }
}

#[test]
fn every_flipped_bit_is_refused_unless_it_stands_in_the_last_mark() {
    let mut journal = small_log();
    let used = used_bytes(&journal.disk.files[&FIRST]);
    assert_eq!(used, 4 * BLOCK_BYTES, "header, two frames, mark");
    // The zeros behind would only make the test slow; a short file would be refused.
    let mark = used - BLOCK_BYTES;
    for bit in 0..used * 8 {
        let at = bit / 8;
        journal.disk.files.get_mut(&FIRST).unwrap()[at] ^= 1 << (bit % 8);
        match read_back(&mut journal.disk) {
            Err(_) => assert!(at < mark, "bit {bit}: a damaged mark costs nothing"),
            Ok(restart) => {
                assert!(at >= mark, "bit {bit} was not seen");
                assert_eq!(restart.records, journal.appended, "bit {bit}");
                let torn = restart.recovered.unwrap().torn.expect("told");
                assert_eq!((torn.offset, torn.lsn), (mark as u64, Lsn(4)));
            }
        }
        journal.disk.files.get_mut(&FIRST).unwrap()[at] ^= 1 << (bit % 8);
    }
}

#[test]
fn a_flipped_bit_anywhere_in_a_sealed_segment_is_refused() {
    let mut journal = long_log();
    let ends: Vec<usize> = (1..=3)
        .map(|file| used_bytes(&journal.disk.files[&FileId(file)]))
        .collect();
    for seed in seeds(3_000) {
        let _named = Seed(seed);
        let mut random = Random::new(seed);
        let file = random.below(3);
        // The last block of the last segment is the mark.
        let end = if file == 2 {
            ends[2] - BLOCK_BYTES
        } else {
            ends[file]
        };
        let bit = random.below(end * 8);
        let file = FileId(u32::try_from(file + 1).unwrap());
        journal.disk.files.get_mut(&file).unwrap()[bit / 8] ^= 1 << (bit % 8);
        assert!(survey(&mut journal.disk, OWNER).is_err() || records_of(&journal.disk).is_err());
        journal.disk.files.get_mut(&file).unwrap()[bit / 8] ^= 1 << (bit % 8);
    }
}

#[test]
fn the_last_segment_cut_at_any_byte_is_refused() {
    let journal = small_log();
    for cut in 0..SEGMENT_BYTES {
        // Behind the frames every cut is alike.
        if cut > used_bytes(&journal.disk.files[&FIRST]) && !cut.is_multiple_of(1009) {
            continue;
        }
        let mut disk = Disk::from(BTreeMap::from([(
            FIRST,
            journal.disk.files[&FIRST][..cut].to_vec(),
        )]));
        assert!(read_back(&mut disk).is_err(), "cut at {cut}");
    }
}

#[test]
fn an_earlier_segment_may_be_cut_to_its_end_and_not_a_byte_more() {
    let journal = long_log();
    let end = used_bytes(&journal.disk.files[&FIRST]);
    for cut in end - 20..end + 20 {
        let mut disk = Disk::from(journal.disk.files.clone());
        disk.files.get_mut(&FIRST).unwrap().truncate(cut);
        match records_of(&disk) {
            Ok(records) => assert!(cut >= end && records == journal.appended, "cut at {cut}"),
            Err(_) => assert!(cut < end, "cut at {cut}"),
        }
    }
}

#[test]
fn a_torn_last_frame_is_cut_and_earlier_records_survive() {
    for torn_sector in 0..BLOCK_BYTES / 512 {
        let mut journal = small_log();
        let durable = journal.appended.clone();
        // The largest record of one block, so that each sector of the block counts.
        let value = vec![0xAB; BLOCK_BYTES - FRAME_HEADER_BYTES - part_bytes(8, 0, false, 0)];
        journal.put(b"stock:99", &value);
        let at = used_bytes(&journal.disk.files[&FIRST]);
        journal.flush();
        let sector = at + torn_sector * 512;
        journal.disk.files.get_mut(&FIRST).unwrap()[sector..sector + 512].fill(0);
        let restart = journal.restart(SyncMethod::DurableWrite).unwrap();
        assert_eq!(restart.records, durable);
        let torn = restart.recovered.unwrap().torn.unwrap();
        assert_eq!(
            (torn.offset, torn.lsn, torn.file),
            (at as u64, Lsn(4), FIRST)
        );
        // The next run leaves the torn end behind and goes on.
        journal.add_spares();
        journal.put(b"stock:4", b"again");
        journal.flush();
        assert_eq!(records_of(&journal.disk).unwrap(), journal.appended);
        assert_eq!(journal.appended.len(), 4);
    }
}

#[test]
fn a_lost_frame_before_one_that_knows_it_durable_is_corruption_with_its_lsn_range() {
    let mut journal = small_log();
    let start = BLOCK_BYTES * 2;
    journal.disk.files.get_mut(&FIRST).unwrap()[start..start + BLOCK_BYTES].fill(0);
    let Err(RecoveryError::Corrupt(corruption)) = records_of(&journal.disk) else {
        panic!("not refused")
    };
    assert_eq!((corruption.file, corruption.offset), (FIRST, start as u64));
    assert_eq!(
        (corruption.log_id, corruption.lsn_from, corruption.lsn_to),
        (Some(3), Lsn(2), Some(Lsn(3)))
    );
    let text = corruption.to_string();
    assert!(
        text.contains("00000001.seg") && text.contains("8192") && text.contains("LSN 2 to 3"),
        "{text}"
    );
}

/// The same log number, segment number, offsets and LSNs: only the salt tells the two uses apart.
#[test]
fn frames_of_an_earlier_use_of_the_file_are_not_replayed() {
    let mut old = small_log();
    let mut bytes = old.disk.files.remove(&FIRST).unwrap();
    bytes[..BLOCK_BYTES].fill(0);
    let mut journal = Journal::new(SyncMethod::DurableWrite, 2);
    assert_eq!(journal.disk.create(SEGMENT_BYTES), FIRST);
    journal.disk.files.insert(FIRST, bytes);
    journal.log.add_spare(FIRST, 0xBEEF, SEGMENT_BYTES as u64);
    journal.put(b"new", b"1");
    journal.flush();
    let restart = journal.restart(SyncMethod::DurableWrite).unwrap();
    assert_eq!(
        restart.records,
        vec![vec![(b"new".to_vec(), Some(b"1".to_vec()))]]
    );
}

/// A client stores the bytes of the log in the log, block for block, and then the power fails.
#[test]
fn the_image_of_a_frame_inside_a_value_is_neither_replayed_nor_evidence() {
    let mut journal = small_log();
    let image = journal.disk.files[&FIRST][..4 * BLOCK_BYTES].to_vec();
    let at = used_bytes(&journal.disk.files[&FIRST]);
    // So long that the image begins where a block begins.
    let before = FRAME_HEADER_BYTES + part_bytes(8, 0, false, 0);
    let mut value = vec![0xAB; BLOCK_BYTES - before];
    value.extend_from_slice(&image[..2 * BLOCK_BYTES]);
    journal.put(b"stock:99", &value);
    journal.flush();
    let file = journal.disk.files.get_mut(&FIRST).unwrap();
    assert_eq!(
        file[at + BLOCK_BYTES..at + 3 * BLOCK_BYTES],
        image[..2 * BLOCK_BYTES]
    );
    file[at..at + BLOCK_BYTES].fill(0);
    let restart = journal.restart(SyncMethod::DurableWrite).unwrap();
    assert_eq!(restart.records.len(), 3);
    assert_eq!(restart.recovered.unwrap().torn.unwrap().offset, at as u64);
}

#[test]
fn a_missing_segment_is_refused_and_not_stepped_over() {
    for missing in 1..=2 {
        let mut journal = long_log();
        journal.disk.files.remove(&FileId(missing));
        let Err(error) = survey(&mut journal.disk, OWNER) else {
            panic!("not refused")
        };
        let RecoveryError::SegmentMissing { sequence, next, .. } = error else {
            panic!("{error}")
        };
        assert_eq!((sequence, next), (u64::from(missing), FileId(missing + 1)));
        let text = error.within("/data").to_string();
        assert!(
            text.starts_with(&format!(
                "segment {missing} of log 3 is missing: no file holds it"
            )) && text.ends_with(&format!(
                "the segment behind it, /data/segments/{:08}.seg, is in place",
                missing + 1
            )),
            "{text}"
        );
    }
}

#[test]
fn a_segment_of_another_node_is_refused_by_name() {
    let mut journal = small_log();
    let other = Owner {
        node_id: [1; 16],
        ..OWNER
    };
    let error = survey(&mut journal.disk, other).unwrap_err();
    assert!(matches!(
        error,
        RecoveryError::Foreign {
            file: FIRST,
            found: OWNER
        }
    ));
    assert!(error.to_string().contains("00000001.seg"), "{error}");
}

#[test]
fn a_header_that_is_gone_is_refused_when_frames_stand_behind_it() {
    let mut journal = small_log();
    journal.disk.files.get_mut(&FIRST).unwrap()[..BLOCK_BYTES].fill(0);
    assert!(matches!(
        survey(&mut journal.disk, OWNER),
        Err(RecoveryError::Corrupt(_))
    ));
}

/// A disk that counts what is read of each file.
struct Counted<'a> {
    disk: &'a mut Disk,
    read: BTreeMap<FileId, usize>,
}

impl SegmentSource for Counted<'_> {
    fn files(&mut self) -> std::io::Result<Vec<(FileId, u64)>> {
        self.disk.files()
    }

    fn read_at(&mut self, file: FileId, offset: u64, into: &mut [u8]) -> std::io::Result<usize> {
        let read = self.disk.read_at(file, offset, into)?;
        *self.read.entry(file).or_default() += read;
        Ok(read)
    }
}

/// What a start finds, and what it has read of each file.
fn counted(disk: &mut Disk) -> (Result<Survey, RecoveryError>, BTreeMap<FileId, usize>) {
    let read = BTreeMap::new();
    let mut source = Counted { disk, read };
    let found = survey_heads(&mut source, OWNER, &Layout::new(1));
    (found, source.read)
}

/// A log in one segment, and a file that was a segment or is a spare, of this length.
fn beside(bytes: Vec<u8>) -> (Disk, FileId) {
    let mut disk = Disk::from(small_log().disk.files.clone());
    let file = FileId(40);
    disk.files.insert(file, bytes);
    (disk, file)
}

#[test]
fn of_a_spare_a_start_reads_the_begin_and_only_what_uses_it_reads_the_rest() {
    let bytes = 4 * HEAD_BYTES;
    let (mut disk, spare) = beside(vec![0; bytes]);
    let (found, read) = counted(&mut disk);
    assert!(found.unwrap().spares.contains(&(spare, bytes as u64)));
    assert_eq!(read[&spare], HEAD_BYTES);
    let proof = prove_spare(&mut disk, spare, bytes as u64);
    assert_eq!(proof.unwrap(), Proof::Spare);
}

#[test]
fn a_flipped_bit_anywhere_in_an_unused_spare_stops_no_start_and_is_reported() {
    let bytes = 4 * HEAD_BYTES;
    let first_blocks = (0..2 * BLOCK_BYTES).step_by(13);
    let others = (2 * BLOCK_BYTES..bytes).step_by(1_021);
    for at in first_blocks.chain(others).chain([bytes - 1]) {
        let bit = 1 << (at % 8);
        let mut image = vec![0; bytes];
        image[at] = bit;
        let (mut disk, file) = beside(image);
        let found = survey(&mut disk, OWNER).unwrap_or_else(|error| panic!("at {at}: {error}"));
        let rotten = RottenSpare {
            file,
            file_bytes: bytes as u64,
            offset: at as u64,
            found: bit,
            wrong_bytes: 1,
        };
        assert_eq!(found.rotten, [rotten]);
        let (found, _) = counted(&mut disk);
        let found = found.expect("a start is served");
        assert_eq!(found.rotten.len(), usize::from(at < HEAD_BYTES), "at {at}");
        let proof = prove_spare(&mut disk, file, bytes as u64).unwrap();
        assert_eq!(proof, Proof::Rotten(rotten));
    }
}

#[test]
fn a_header_that_a_crash_tore_is_not_taken_for_rot() {
    let whole: [u8; BLOCK_BYTES] = {
        let files = small_log().disk.files;
        files[&FIRST][..BLOCK_BYTES].try_into().expect("a block")
    };
    // A prefix of the block, or some of its sectors.
    let prefixes = [1, 7, 8, 100, 512, BLOCK_BYTES - 1].map(|len| (0, len));
    let sectors = [(0, 512), (BLOCK_BYTES - 512, BLOCK_BYTES)];
    for (from, to) in prefixes.into_iter().chain(sectors) {
        let mut image = vec![0; 2 * HEAD_BYTES];
        image[from..to].copy_from_slice(&whole[from..to]);
        let (mut disk, file) = beside(image);
        let found = survey(&mut disk, OWNER).expect("it holds nothing");
        assert!(found.rotten.is_empty(), "{from}..{to}");
        assert!(found.torn_activations.contains(&file), "{from}..{to}");
    }
}

#[test]
fn a_rotten_sector_in_a_spare_and_its_first_block_stops_no_start() {
    let mut image = vec![0; 2 * HEAD_BYTES];
    image[100] = 9;
    image[HEAD_BYTES..HEAD_BYTES + 512].fill(0xA5);
    let (mut disk, file) = beside(image);
    let found = survey(&mut disk, OWNER).expect("nothing shows a segment");
    assert_eq!(
        (found.rotten[0].file, found.rotten[0].wrong_bytes),
        (file, 513)
    );
}

#[test]
fn a_file_with_more_than_a_few_blocks_that_nobody_wrote_is_no_spare() {
    for (bytes, wrong_blocks) in [(3 * HEAD_BYTES, 17), (8 * BLOCK_BYTES, 4)] {
        let mut image = vec![0; bytes];
        for block in image.chunks_mut(BLOCK_BYTES).skip(1).take(wrong_blocks) {
            block[9] = 1;
        }
        let (mut disk, file) = beside(image.clone());
        let error = survey(&mut disk, OWNER).expect_err("nobody knows what it was");
        assert_eq!(error.row(), Some(Row::HeaderGone), "{error}");
        image[wrong_blocks * BLOCK_BYTES + 9] = 0;
        disk.files.insert(file, image);
        assert_eq!(survey(&mut disk, OWNER).expect("served").rotten.len(), 1);
    }
}

#[test]
fn a_spare_that_served_before_is_known_by_its_last_block_when_the_first_one_is_zero() {
    let mut image = small_log().disk.files[&FIRST].clone();
    let header = SpareHeader {
        owner: OWNER,
        salt: 77,
    };
    header.encode(image.last_chunk_mut().expect("a block"));
    image[..BLOCK_BYTES].fill(0);
    let (mut disk, file) = beside(image);
    let found = survey(&mut disk, OWNER).expect("no frame is of its next use");
    assert!(found.reused.iter().any(|(reused, _)| *reused == file));
}

/// The header of the segment is zero and of its frames the first alone is left, with one bit
/// flipped.
#[test]
fn a_segment_without_a_header_is_no_spare_whichever_bit_of_its_last_frame_header_is_flipped() {
    let mut image = small_log().disk.files[&FIRST].clone();
    image[..BLOCK_BYTES].fill(0);
    image[2 * BLOCK_BYTES..].fill(0);
    for bit in 0..FRAME_HEADER_BYTES * 8 {
        image[BLOCK_BYTES + bit / 8] ^= 1 << (bit % 8);
        let (mut disk, file) = beside(image.clone());
        let error = survey(&mut disk, OWNER).expect_err("a frame stands there");
        assert_eq!(error.row(), Some(Row::HeaderGone), "bit {bit}: {error}");
        let proof = prove_spare(&mut disk, file, image.len() as u64);
        assert!(proof.is_err(), "bit {bit}");
        image[BLOCK_BYTES + bit / 8] ^= 1 << (bit % 8);
    }
}

#[test]
fn a_segment_without_header_and_first_frames_is_found_before_a_spare_is_used() {
    let bytes = 4 * HEAD_BYTES;
    let is_header_gone = |error: &RecoveryError| error.row() == Some(Row::HeaderGone);
    for at in (BLOCK_BYTES..bytes).step_by(BLOCK_BYTES) {
        let mut image = vec![0; bytes];
        image[at..at + 4].copy_from_slice(b"PKFR");
        let (mut disk, file) = beside(image);
        assert!(survey(&mut disk, OWNER).is_err_and(|error| is_header_gone(&error)));
        let (found, _) = counted(&mut disk);
        match found {
            Err(error) => assert!(at < HEAD_BYTES && is_header_gone(&error)),
            Ok(found) => {
                assert!(at >= HEAD_BYTES && found.spares.contains(&(file, bytes as u64)));
                let proved = prove_spare(&mut disk, file, bytes as u64);
                assert!(proved.is_err_and(|error| is_header_gone(&error)));
            }
        }
    }
}

#[test]
fn inspection_shows_keyspaces_by_their_newest_record_and_a_key_that_a_start_is_refused_for() {
    let mut journal = small_log();
    for (tag, prefix, revision, versions) in [
        (1, &b"price:"[..], 5, 3),
        (2, b"hold:", 6, 0),
        // A partition that was behind.
        (3, b"price:", 4, 9),
        (4, b"hold:", 7, 1),
    ] {
        let mut value = [0; SETTINGS_BYTES];
        value[0] = revision;
        value[10] = versions;
        journal.put(&keyspace_key(tag, prefix), &value);
    }
    journal.flush();
    let report = inspect(&mut journal.disk, Some(OWNER), &mut |_| ());
    let listed: Vec<_> = report
        .keyspaces
        .iter()
        .map(|(prefix, settings)| (&prefix[..], settings.revision, settings.versions))
        .collect();
    assert_eq!(listed, [(&b"hold:"[..], 7, 1), (b"price:", 5, 3)]);
    assert_eq!(report.strange_key, None);

    // What a node of a cluster notes is no damage.
    journal.put(b"\0\0penstock/local/{430}", &[1; 56]);
    journal.put(b"\0\0penstock/epochs/{430}", &[1; 16]);
    journal.flush();
    let report = inspect(&mut journal.disk, Some(OWNER), &mut |_| ());
    assert_eq!(report.strange_key, None);
    assert!(report.damage.is_empty());

    journal.put(b"\0\0penstock/mine", b"");
    journal.put(b"\0\0penstock/later", b"");
    journal.flush();
    let report = inspect(&mut journal.disk, Some(OWNER), &mut |_| ());
    assert_eq!(
        report.strange_key.as_deref(),
        Some(&b"\0\0penstock/mine"[..])
    );
    assert!(report.damage.is_empty());
}

#[test]
fn inspection_counts_what_is_good_and_lists_all_that_is_not() {
    let mut journal = small_log();
    let mut shown = 0;
    let report = inspect(&mut journal.disk, Some(OWNER), &mut |event| {
        shown += u32::from(!matches!(event, Event::Contents(_) | Event::Prefetch(_)));
    });
    assert!(report.damage.is_empty());
    let log = &report.logs[&3];
    assert_eq!(
        (
            log.segments,
            log.commit_frames,
            log.marks,
            log.records,
            log.parts
        ),
        (1, 2, 1, 3, 3)
    );
    assert_eq!(
        (log.last_lsn, log.proven_durable, log.torn),
        (Lsn(3), Lsn(3), None)
    );
    assert_eq!(shown, 1 + 3 + 3);
    assert_eq!(report.spares.len(), 2);

    assert!(report.keyspaces.is_empty() && report.strange_key.is_none());

    let mut journal = long_log();
    let records = journal.appended.len() as u64;
    for file in [2, 3] {
        journal.disk.files.get_mut(&FileId(file)).unwrap()[100] ^= 1;
    }
    let report = inspect(&mut journal.disk, None, &mut |_| ());
    assert_eq!(report.damage.len(), 2);
    assert!(report.logs[&3].records > 0 && report.logs[&3].records < records);
}

/// The header of the second segment checks and tells of another first segment.
#[test]
fn a_segment_that_does_not_follow_the_one_before_it_is_refused() {
    let journal = long_log();
    let changes: [fn(&mut SegmentHeader); 5] = [
        |header| header.first_lsn.0 += 1,
        |header| header.previous_end_lsn.0 -= 1,
        |header| header.previous_sequence = 0,
        |header| header.previous_end_offset -= 4 * BLOCK_BYTES as u64,
        |header| header.previous_end_offset += BLOCK_BYTES as u64,
    ];
    for (number, change) in changes.iter().enumerate() {
        let mut disk = Disk::from(journal.disk.files.clone());
        let block = disk
            .files
            .get_mut(&FileId(2))
            .unwrap()
            .first_chunk_mut()
            .unwrap();
        let FirstBlock::Segment(mut header) = SegmentHeader::read(block) else {
            panic!("a header")
        };
        change(&mut header);
        header.encode(block);
        assert!(
            matches!(records_of(&disk), Err(RecoveryError::Corrupt(_))),
            "change {number}"
        );
    }
}

/// Makes both CRCs of the frame in `block` good again.
pub fn reseal(file: &mut [u8], block: usize) {
    let crc = |salt: &[u8], bytes: &[u8]| {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(salt);
        hasher.update(bytes);
        hasher.finalize().to_le_bytes()
    };
    let (header, frames) = file.split_at_mut(BLOCK_BYTES);
    let salt = &header[80..88];
    let frame = &mut frames[(block - 1) * BLOCK_BYTES..][..BLOCK_BYTES];
    let body_crc = crc(salt, &frame[FRAME_HEADER_BYTES..]);
    frame[56..60].copy_from_slice(&body_crc);
    let header_crc = crc(salt, &frame[..60]);
    frame[60..64].copy_from_slice(&header_crc);
}

/// What no crash explains: everything checks, and it cannot be.
#[test]
fn a_frame_that_checks_and_contradicts_itself_is_refused() {
    // One record of two parts in block 1, one of one part in block 2, the summary in block 3.
    let mut journal = Journal::new(SyncMethod::DurableWrite, 1);
    journal.add_spares();
    let parts = vec![(b"one".to_vec(), Some(vec![1; 8])), (b"two".to_vec(), None)];
    let (lsn, places) = journal.append(&parts).unwrap();
    journal.log.want_durable(lsn);
    journal.flush();
    journal.put(b"three", b"3");
    journal.close();
    let sound = journal.disk.files[&FIRST].clone();
    let verdict = |change: &dyn Fn(&mut [u8]), block: usize| {
        let mut bytes = sound.clone();
        change(&mut bytes);
        reseal(&mut bytes, block);
        records_of(&Disk::from(BTreeMap::from([(FIRST, bytes)])))
    };
    for block in 1..4 {
        assert_eq!(
            verdict(&|_| (), block).unwrap(),
            journal.appended,
            "resealing is no change"
        );
        let at = block * BLOCK_BYTES;
        let corrupt = |offset: usize, value: u8| {
            let found = verdict(&|bytes| bytes[at + offset] = value, block);
            assert!(
                matches!(found, Err(RecoveryError::Corrupt(_))),
                "block {block}, byte {offset}: {found:?}"
            );
        };
        corrupt(24, 9); // first LSN
        corrupt(32, 5); // durable LSN
        corrupt(40, 7); // records
        corrupt(47, 1); // 16 MiB of body
        for (offset, value) in [(4, 2), (6, 9), (7, 1)] {
            let found = verdict(&|bytes| bytes[at + offset] = value, block);
            assert!(
                matches!(found, Err(RecoveryError::Version { file: FIRST, .. })),
                "block {block}, byte {offset}"
            );
        }
    }
    let summary = 3 * BLOCK_BYTES + FRAME_HEADER_BYTES;
    for offset in [0, 4, 8, 16, 18, 20, 28, 32, 40, 48] {
        assert!(
            verdict(&|bytes| bytes[summary + offset] ^= 1, 3).is_err(),
            "summary, byte {offset}"
        );
    }
    // The parts of the record change places, though each of them checks.
    let (first, second) = (
        usize::try_from(places[0].offset).unwrap(),
        usize::try_from(places[1].offset).unwrap(),
    );
    let end = second + places[1].bytes as usize;
    let swapped = verdict(&|bytes| bytes[first..end].rotate_left(second - first), 1);
    assert!(matches!(swapped, Err(RecoveryError::Corrupt(_))));
    // The second part is gone, and the frame says so.
    let short = verdict(
        &|bytes| {
            bytes[second..end].fill(0);
            bytes[BLOCK_BYTES + 44] = places[0].bytes.to_le_bytes()[0];
        },
        1,
    );
    assert!(matches!(short, Err(RecoveryError::Corrupt(_))));
}
