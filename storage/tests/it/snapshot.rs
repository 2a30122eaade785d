//! The file of a snapshot: what is written is read back, the document tells every byte, and whatever
//! is not whole or does not belong to the log is not used.

use std::io;

use penstock_storage::index::{Cursor, FILES_MAX, PackedPlace};
use penstock_storage::io::FileId;
use penstock_storage::log::{Lsn, Place};
use penstock_storage::recovery::Segment;
use penstock_storage::segment::{Owner, SegmentHeader};
use penstock_storage::snapshot::{
    CHUNK_ENTRIES_MAX, Coverage, CoveredSegment, SnapshotEntry, SnapshotError, SnapshotFooter,
    SnapshotHeader, SnapshotName, SnapshotReader, SnapshotWriter,
};

use crate::golden::hex_block;
use crate::random::Random;

const OWNER: Owner = Owner {
    cluster_id: [0xC1; 16],
    node_id: [0xD2; 16],
};
const NAME: SnapshotName = SnapshotName {
    log_id: 3,
    number: 1,
};
const HASH_CHECK: u64 = 0x0807_0605_0403_0201;

fn header(segments: Vec<CoveredSegment>) -> SnapshotHeader {
    let mut sequences = Box::new([0; 256]);
    sequences[42] = 1;
    SnapshotHeader {
        owner: OWNER,
        name: NAME,
        incarnation: 5,
        hash_check: HASH_CHECK,
        from: Lsn(1),
        epoch_max: 0x201,
        is_unproven: true,
        has_released: false,
        sequences,
        segments,
    }
}

fn covered(sequence: u64, file: u32, end_offset: u64) -> CoveredSegment {
    CoveredSegment {
        sequence,
        salt: 0x1122_3344_5566_7788,
        end_offset,
        file: FileId(file),
        tombstone_bytes: 0,
    }
}

fn entry(hash: u32, file: u32, offset: u64) -> SnapshotEntry {
    SnapshotEntry {
        key: Cursor { slot: 0xABC, hash },
        part: PackedPlace::new(Place::new(FileId(file), offset, 56), 1),
    }
}

/// The file of a snapshot with these entries, all of them covered.
fn file(header: &SnapshotHeader, entries: &[SnapshotEntry]) -> Vec<u8> {
    let (mut writer, mut bytes) = SnapshotWriter::new(header);
    for entry in entries {
        if writer.is_chunk_full() {
            bytes.extend(writer.next_chunk().expect("it is full"));
        }
        writer.take(entry);
    }
    assert_eq!(writer.entries(), entries.len() as u64);
    bytes.extend(writer.next_chunk().into_iter().flatten());
    bytes.extend(writer.finish(Lsn(1), 1_700_000_000_000));
    bytes
}

fn read(bytes: &[u8]) -> Result<(Vec<SnapshotEntry>, SnapshotFooter), SnapshotError> {
    let mut entries = Vec::new();
    let footer = open(bytes)?.entries(|entry| {
        entries.push(*entry);
        Ok(())
    })?;
    Ok((entries, footer))
}

pub type ReadAt<'a> = Box<dyn FnMut(u64, &mut [u8]) -> io::Result<usize> + 'a>;

/// A snapshot in memory.
pub fn open(bytes: &[u8]) -> Result<SnapshotReader<ReadAt<'_>>, SnapshotError> {
    let read_at = |offset: u64, into: &mut [u8]| {
        let rest = &bytes[usize::try_from(offset).expect("small").min(bytes.len())..];
        let moved = rest.len().min(into.len());
        into[..moved].copy_from_slice(&rest[..moved]);
        Ok(moved)
    };
    SnapshotReader::open(Box::new(read_at), bytes.len() as u64)
}

#[test]
fn the_document_shows_every_byte() {
    let written = file(&header(vec![covered(1, 1, 8192)]), &[entry(0x2A, 1, 4160)]);
    let documented = hex_block("## Snapshot of the index\n");
    for (at, byte) in written.iter().enumerate() {
        let shown = documented.get(&at).copied().unwrap_or(0);
        assert_eq!(*byte, shown, "at {at:#06x}: {:02x?}", &written[at..at + 4]);
    }
    assert_eq!(
        documented.last_key_value().map(|(at, _)| at + 1),
        Some(written.len())
    );
}

#[test]
fn many_chunks_are_read_back_in_order() {
    let mut random = Random::new(1);
    for count in [0, 1, CHUNK_ENTRIES_MAX, 3 * CHUNK_ENTRIES_MAX + 17] {
        let mut entries: Vec<SnapshotEntry> = (0..count)
            .map(|_| SnapshotEntry {
                key: Cursor {
                    slot: u16::try_from(random.below(16_384)).expect("a slot"),
                    hash: u32::try_from(random.below(1 << 32)).expect("32 bits"),
                },
                ..entry(
                    0,
                    u32::try_from(random.below(9) + 1).expect("small"),
                    4096 + 8 * random.below(1000) as u64,
                )
            })
            .collect();
        entries.sort_unstable_by_key(|entry| entry.key);
        let segments = (1..=10)
            .map(|n| covered(u64::from(n), n, 1 << 20))
            .collect();
        let header = header(segments);
        let bytes = file(&header, &entries);
        assert_eq!(*open(&bytes).expect("whole").header(), header);
        let (found, footer) = read(&bytes).expect("whole");
        assert!(found == entries);
        assert_eq!((footer.entries, footer.to), (count as u64, Lsn(1)));
        assert_eq!(footer.time_ms, 1_700_000_000_000);
    }
}

#[test]
fn entries_behind_the_position_are_left_out() {
    let header = header(vec![covered(1, 7, 1 << 20), covered(2, 5, 8192)]);
    let (mut writer, _) = SnapshotWriter::new(&header);
    for (file, offset, is_covered) in [
        (7, 4160, true),
        (7, 8192, true),
        (5, 8184, true),
        (5, 8192, false),
        (6, 4160, false),
        (9, 4160, false),
    ] {
        let before = writer.entries();
        writer.take(&entry(1, file, offset));
        assert_eq!(
            writer.entries() - before,
            u64::from(is_covered),
            "{file} {offset}"
        );
    }
}

/// A small snapshot of two chunks.
fn small() -> Vec<u8> {
    let header = header(vec![covered(1, 1, 8192)]);
    let (mut writer, mut bytes) = SnapshotWriter::new(&header);
    for hash in 0..5 {
        writer.take(&entry(hash, 1, 4160));
        if hash % 3 == 2 {
            bytes.extend(writer.next_chunk().expect("entries"));
        }
    }
    bytes.extend(writer.next_chunk().expect("entries"));
    bytes.extend(writer.finish(Lsn(1), 1_700_000_000_000));
    bytes
}

#[test]
fn every_cut_is_told() {
    let bytes = small();
    read(&bytes).expect("whole");
    for len in 0..bytes.len() {
        assert!(
            matches!(read(&bytes[..len]), Err(SnapshotError::Damaged { .. })),
            "cut to {len}"
        );
    }
    let mut longer = bytes;
    longer.push(0);
    assert!(matches!(read(&longer), Err(SnapshotError::Damaged { .. })));
}

#[test]
fn every_flipped_bit_is_told() {
    let bytes = small();
    for bit in 0..bytes.len() * 8 {
        let mut damaged = bytes.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        let found = read(&damaged);
        assert!(
            matches!(
                found,
                Err(SnapshotError::Damaged { .. }
                    | SnapshotError::Version(_)
                    | SnapshotError::Sections(_))
            ),
            "bit {bit}: {found:?}"
        );
    }
}

#[test]
fn a_snapshot_with_a_section_that_is_not_known_is_told() {
    let mut bytes = small();
    bytes[108] = 2;
    assert!(matches!(read(&bytes), Err(SnapshotError::Sections(2))));
}

#[test]
fn a_segment_with_a_file_number_that_cannot_be_is_told() {
    for number in [0, FILES_MAX] {
        let written = file(
            &header(vec![covered(1, number, 8192), covered(2, 1, 8192)]),
            &[],
        );
        match open(&written) {
            Err(SnapshotError::Damaged { .. }) => {}
            other => panic!(
                "file {number}: {:?}",
                other.map(|reader| reader.header().clone())
            ),
        }
    }
}

#[test]
fn entries_out_of_order_are_told() {
    let header = header(vec![covered(1, 1, 8192)]);
    let bytes = file(&header, &[entry(2, 1, 4160), entry(1, 1, 4160)]);
    assert!(matches!(read(&bytes), Err(SnapshotError::Damaged { .. })));
    let bytes = file(&header, &[entry(2, 1, 4160), entry(2, 1, 4224)]);
    assert!(read(&bytes).is_ok());
}

#[test]
fn a_chunk_or_footer_of_another_snapshot_is_told() {
    let ours = small();
    let other = {
        let mut header = header(vec![covered(1, 1, 8192)]);
        header.name.number = 2;
        file(&header, &[entry(0, 1, 4160)])
    };
    let one = file(&header(vec![covered(1, 1, 8192)]), &[entry(0, 1, 4160)]);
    assert_eq!(one.len(), other.len());
    assert!(ours.len() > one.len());
    for at in [one.len() - 74, one.len() - 40] {
        let mixed = [&one[..at], &other[at..]].concat();
        assert!(read(&mixed).is_err());
    }
}

/// What a survey finds.
fn segment(sequence: u64, file: u32, salt: u64, file_bytes: u64) -> Segment {
    Segment {
        told_end: None,
        file: FileId(file),
        file_bytes,
        header: SegmentHeader {
            owner: OWNER,
            incarnation: 1,
            log_id: 3,
            stream: 0,
            is_reused: false,
            sequence,
            salt,
            first_lsn: Lsn(1),
            previous_sequence: sequence - 1,
            previous_end_offset: 0,
            previous_end_lsn: Lsn(0),
            segment_bytes: 1 << 20,
            created_ms: 0,
        },
    }
}

#[test]
fn a_snapshot_that_does_not_fit_the_log_is_a_stranger() {
    const SALT: u64 = 0x1122_3344_5566_7788;
    let told = header(vec![
        covered(1, 1, 9000),
        covered(2, 2, 9000),
        covered(4, 4, 8192),
    ]);
    let full = [
        segment(1, 1, SALT, 9000),
        segment(2, 2, SALT, 9000),
        segment(4, 4, SALT, 1 << 20),
        segment(5, 5, SALT, 1 << 20),
    ];
    let fits = |segments: &[Segment]| Coverage::of(&told, OWNER, NAME, HASH_CHECK, segments);
    let coverage = fits(&full).expect("it fits");
    assert_eq!(coverage.admits(&entry(1, 1, 8944)), Ok(true));
    assert_eq!(coverage.admits(&entry(1, 4, 8136)), Ok(true));
    for (file, offset) in [
        (1, 8952),
        (1, 0),
        (4, 8184),
        (5, 4160),
        (3, 4160),
        (70, 4160),
    ] {
        assert!(coverage.admits(&entry(1, file, offset)).is_err());
    }
    // A segment that was released: its entries are dropped, also if it is that of the position.
    let coverage = fits(&[full[0], full[2]]).expect("it fits");
    assert_eq!(coverage.admits(&entry(1, 2, 4160)), Ok(false));
    assert_eq!(coverage.admits(&entry(1, 1, 4160)), Ok(true));
    let coverage = fits(&[full[0], full[3]]).expect("it fits");
    assert_eq!(coverage.admits(&entry(1, 4, 4160)), Ok(false));

    let other_salt = [full[0], segment(2, 2, 1, 9000), full[2]];
    let other_file = [full[0], segment(2, 9, SALT, 9000), full[2]];
    let shorter = [full[0], segment(2, 2, SALT, 8999), full[2]];
    let untold = [full[0], full[1], segment(3, 3, SALT, 9000), full[2]];
    for segments in [
        &other_salt[..],
        &other_file,
        &shorter,
        &untold,
        &full[..2],
        &[],
    ] {
        assert!(matches!(fits(segments), Err(SnapshotError::Stranger(_))));
    }
    let stranger = Owner {
        node_id: [1; 16],
        ..OWNER
    };
    let renamed = SnapshotName { number: 9, ..NAME };
    for result in [
        Coverage::of(&told, stranger, NAME, HASH_CHECK, &full),
        Coverage::of(&told, OWNER, renamed, HASH_CHECK, &full),
        Coverage::of(&told, OWNER, NAME, HASH_CHECK + 1, &full),
    ] {
        assert!(matches!(result, Err(SnapshotError::Stranger(_))));
    }
}
