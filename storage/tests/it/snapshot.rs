//! The file of a snapshot: what is written is read back, the document tells every byte, and
//! whatever is not whole or does not belong to the log is not used.

use std::io;

use penstock_storage::expiring::{Amount, BUCKETS, Bucket, Expiring, TICK_MS};
use penstock_storage::key_home::KeyHome;
use penstock_storage::keyspace::{Settings, SettingsEntry, Since};
use penstock_storage::live::FileTimes;
use penstock_storage::local::PartitionEntry;
use penstock_storage::packed_place::NewestPart;
use penstock_storage::packed_place::{FILES_MAX, PackedPlace};
use penstock_storage::place::FileId;
use penstock_storage::place::{Lsn, Place};
use penstock_storage::recovery::Segment;
use penstock_storage::segment::{Owner, SegmentHeader};
use penstock_storage::snapshot::{
    CHUNK_ENTRIES_MAX, Coverage, CoveredSegment, SnapshotError, SnapshotFooter, SnapshotHeader,
    SnapshotItem, SnapshotName, SnapshotReader, SnapshotWriter,
};
use penstock_storage::system_key::{EPOCHS_BYTES_MAX, LOCAL_BYTES_MAX};
use penstock_storage::timers::Timer;
use penstock_storage::version::Version;
use penstock_storage::versions::VersionEntry;

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
        is_linked: true,
        has_marks: false,
        has_heads: false,
        has_redo: false,
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

fn entry(hash: u32, file: u32, offset: u64) -> NewestPart {
    NewestPart {
        key: KeyHome { slot: 0xABC, hash },
        part: PackedPlace::new(Place::new(FileId(file), offset, 56), 1),
    }
}

fn kept(hash: u32, sequence: u64, offset: u64) -> VersionEntry {
    VersionEntry {
        slot: 0xABC,
        hash,
        check: 0x00CC_BF03,
        keyspace: 0,
        version: Version {
            epoch: 0x201,
            sequence,
        },
        is_deletion: false,
        is_marked: false,
        successor: None,
        time_ms: 1_700_000_000_000,
        expiry_ms: 0,
        place: Place::new(FileId(1), offset, 56),
    }
}

fn settings(number: u16, partition: u8) -> SettingsEntry<'static> {
    let version = Version {
        epoch: 0x201,
        sequence: 2,
    };
    let time_ms = 1_700_000_000_000;
    SettingsEntry {
        number,
        partition,
        prefix: b"stock:",
        settings: Settings {
            revision: 1 << 32,
            versions: 2,
            ..Settings::default()
        },
        since: Since { version, time_ms },
        version,
        place: Place::new(FileId(1), 4216, 136),
    }
}

fn times(file: u32) -> FileTimes {
    let amount = |parts, bytes, deletion_bytes| Amount {
        parts,
        bytes,
        deletion_bytes,
    };
    FileTimes {
        file: FileId(file),
        lasting: amount(2, 240, 0),
        expiring: Box::new(
            Expiring::restore(&[Bucket {
                from_ms: 1_700_000_000_000,
                by_ms: 1_700_000_001_024,
                amount: amount(3, 168, 144),
            }])
            .expect("a table"),
        ),
    }
}

fn timer(expiry_ms: u64, hash: u32) -> Timer {
    Timer {
        expiry_ms,
        slot: 0xABC,
        hash,
    }
}

fn notes(partition: u8) -> PartitionEntry<'static> {
    let at = |sequence| Version {
        epoch: 0x201,
        sequence,
    };
    PartitionEntry {
        partition,
        last: at(2),
        forgotten: 1,
        highest: 3,
        local: Some((7, Place::new(FileId(1), 4352, 104), b"local")),
        epochs: Some((at(1), b"epochs")),
    }
}

/// What stands in a snapshot.
#[derive(Debug, Default, PartialEq)]
struct Items {
    newest: Vec<NewestPart>,
    versions: Vec<VersionEntry>,
    settings: Vec<(u16, u8, Vec<u8>, [u8; 64])>,
    partitions: Vec<String>,
    times: Vec<FileTimes>,
    timers: Vec<Timer>,
}

impl Items {
    fn entries(&self) -> u64 {
        let others = self.settings.len() + self.partitions.len() + self.times.len();
        (self.newest.len() + self.versions.len() + others + self.timers.len()) as u64
    }

    fn take(&mut self, item: &SnapshotItem<'_>) {
        match item {
            SnapshotItem::Newest(entry) => self.newest.push(*entry),
            SnapshotItem::Version(entry) => self.versions.push(*entry),
            SnapshotItem::Settings(it) => {
                let setting = (it.number, it.partition, it.prefix.to_vec(), it.value());
                self.settings.push(setting);
            }
            SnapshotItem::Partition(entry) => self.partitions.push(format!("{entry:?}")),
            SnapshotItem::Times(entry) => self.times.push(entry.clone()),
            SnapshotItem::Timer(timer) => self.timers.push(*timer),
        }
    }
}

/// The file of a snapshot with these entries, all of them covered.
fn file(header: &SnapshotHeader, items: &[SnapshotItem<'_>]) -> Vec<u8> {
    let (mut writer, mut bytes) = SnapshotWriter::new(header);
    let mut before = None;
    for item in items {
        let section = std::mem::discriminant(item);
        if writer.is_chunk_full() || before.replace(section).is_some_and(|it| it != section) {
            while let Some(chunk) = writer.next_chunk() {
                bytes.extend(chunk);
            }
        }
        match item {
            SnapshotItem::Newest(entry) => writer.take(entry),
            SnapshotItem::Version(entry) => writer.take_version(entry),
            SnapshotItem::Settings(entry) => writer.take_settings(entry),
            SnapshotItem::Partition(entry) => writer.take_partition(entry),
            SnapshotItem::Times(entry) => writer.take_times(entry),
            SnapshotItem::Timer(timer) => writer.take_timer(*timer),
        }
    }
    assert_eq!(writer.entries(), items.len() as u64);
    bytes.extend(writer.next_chunk().into_iter().flatten());
    bytes.extend(writer.finish(Lsn(1), 1_700_000_000_000));
    bytes
}

fn newest(entries: &[NewestPart]) -> Vec<SnapshotItem<'static>> {
    entries.iter().copied().map(SnapshotItem::Newest).collect()
}

fn read(bytes: &[u8]) -> Result<(Items, SnapshotFooter), SnapshotError> {
    let mut items = Items::default();
    let footer = open(bytes)?.entries(|item| {
        items.take(item);
        Ok(())
    })?;
    Ok((items, footer))
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
    let items = [
        SnapshotItem::Newest(entry(0x2A, 1, 4160)),
        SnapshotItem::Version(kept(0x2A, 1, 4160)),
        SnapshotItem::Settings(settings(0, 42)),
        SnapshotItem::Partition(notes(42)),
        SnapshotItem::Times(times(1)),
        SnapshotItem::Timer(timer(1_700_000_000_000, 0x2A)),
    ];
    let written = file(&header(vec![covered(1, 1, 8192)]), &items);
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
        let mut entries: Vec<NewestPart> = (0..count)
            .map(|_| NewestPart {
                key: KeyHome::new(
                    u16::try_from(random.below(16_384)).expect("a slot"),
                    u32::try_from(random.below(1 << 32)).expect("32 bits"),
                ),
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
        let mut items = newest(&entries);
        for sequence in 1..=count as u64 {
            items.push(SnapshotItem::Version(VersionEntry {
                is_deletion: sequence % 3 == 0,
                is_marked: sequence % 2 == 0,
                successor: (sequence % 5 == 0).then_some(Version {
                    epoch: 7,
                    sequence: (1 << 48) - sequence,
                }),
                check: 0,
                keyspace: 1_023,
                time_ms: (1 << 48) - sequence,
                expiry_ms: (1 << 48) - 1 - sequence,
                ..kept(u32::MAX, (1 << 47) + sequence, 4096 + 8 * sequence)
            }));
        }
        for at in 0..count.min(5_000) {
            let number = u16::try_from(at / 256).expect("small");
            let partition = u8::try_from(at % 256).expect("a partition");
            items.push(SnapshotItem::Settings(settings(number, partition)));
        }
        let (local, epochs) = ([7; LOCAL_BYTES_MAX], [8; EPOCHS_BYTES_MAX]);
        for partition in 0..u8::try_from(count.min(255)).expect("bounded") {
            let place = Place::new(FileId(1), 4096 + 8 * u64::from(partition), 104);
            let at = usize::from(partition);
            items.push(SnapshotItem::Partition(PartitionEntry {
                local: (partition % 2 == 0).then_some((1, place, &local[at..])),
                epochs: (partition % 3 == 0).then_some((notes(0).last, &epochs[at..])),
                ..notes(partition)
            }));
        }
        for number in 1..=u32::try_from(count.min(10)).expect("small") {
            let mut full = times(number);
            let buckets: Vec<Bucket> = (1..=BUCKETS as u64)
                .map(|at| Bucket {
                    from_ms: at * TICK_MS,
                    by_ms: at * TICK_MS,
                    ..full.expiring.buckets()[0]
                })
                .collect();
            full.expiring = Box::new(Expiring::restore(&buckets).expect("a table"));
            items.push(SnapshotItem::Times(full));
        }
        items.extend((0..count as u64).map(|at| {
            let hash = u32::try_from(at % 7).expect("small");
            SnapshotItem::Timer(timer((1 << 48) - 1 - count as u64 + at / 7, hash))
        }));
        let mut expected = Items::default();
        items.iter().for_each(|item| expected.take(item));
        let bytes = file(&header, &items);
        assert_eq!(*open(&bytes).expect("whole").header(), header);
        let (found, footer) = read(&bytes).expect("whole");
        assert!(found == expected);
        assert_eq!((footer.entries, footer.to), (found.entries(), Lsn(1)));
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
    for sequence in 1..=2 {
        writer.take_version(&kept(3, sequence, 4160));
    }
    bytes.extend(writer.next_chunk().expect("versions"));
    writer.take_settings(&settings(0, 42));
    bytes.extend(writer.next_chunk().expect("settings"));
    writer.take_partition(&notes(42));
    bytes.extend(writer.next_chunk().expect("notes"));
    bytes.extend(writer.finish(Lsn(1), 1_700_000_000_000));
    bytes
}

#[test]
fn every_cut_is_refused() {
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
fn every_flipped_bit_is_refused() {
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
fn a_snapshot_with_marks_has_a_version_of_its_own() {
    let mut marked = header(vec![covered(1, 1, 8192)]);
    marked.has_marks = true;
    let bytes = file(&marked, &[]);
    assert_eq!(bytes[8], 7);
    assert_eq!(*open(&bytes).expect("whole").header(), marked);
    marked.has_marks = false;
    assert_eq!(file(&marked, &[])[8], 6);
}

#[test]
fn a_snapshot_of_a_log_that_has_had_heads_says_so_beside_any_version() {
    for (has_marks, version) in [(false, 6), (true, 7)] {
        let mut header = header(vec![covered(1, 1, 8192)]);
        (header.has_marks, header.has_heads) = (has_marks, true);
        let bytes = file(&header, &[]);
        // A build that knows no heads finds a flag that it does not know, and reads the log.
        assert_eq!((bytes[8], bytes[100] & 8), (version, 8));
        assert_eq!(*open(&bytes).expect("whole").header(), header);
    }
}

#[test]
fn a_snapshot_with_a_section_that_is_not_known_is_refused() {
    for sections in [1, 2, 3, 4, 5, 7] {
        let mut bytes = small();
        bytes[108] = sections;
        let number = u32::from(sections);
        assert!(matches!(read(&bytes), Err(SnapshotError::Sections(it)) if it == number));
    }
    for version in [2, 4, 5, 8] {
        let mut older = small();
        older[8] = version;
        let number = u32::from(version);
        assert!(matches!(read(&older), Err(SnapshotError::Version(it)) if it == number));
    }
}

#[test]
fn a_segment_with_a_file_number_that_cannot_be_is_refused() {
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
fn entries_out_of_order_are_refused() {
    let header = header(vec![covered(1, 1, 8192), covered(2, 2, 8192)]);
    let version = |hash, sequence| SnapshotItem::Version(kept(hash, sequence, 4160));
    let set = |number, partition| SnapshotItem::Settings(settings(number, partition));
    let part = |partition| SnapshotItem::Partition(notes(partition));
    let time = |file| SnapshotItem::Times(times(file));
    for (items, is_in_order) in [
        (newest(&[entry(2, 1, 4160), entry(2, 1, 4224)]), true),
        (vec![version(2, 7), version(1, 8)], false),
        (vec![version(2, 7), version(2, 7)], false),
        (vec![version(2, 7), version(2, 8), version(3, 1)], true),
        (vec![set(1, 0), set(0, 1)], false),
        (vec![set(1, 0), set(1, 0)], false),
        (vec![set(1, 0), set(1, 1), set(2, 0)], true),
        (vec![part(7), part(7)], false),
        (vec![part(8), part(7)], false),
        (vec![set(1, 0), part(7), part(8)], true),
        (vec![time(1), time(1)], false),
        (vec![part(7), time(1), time(2)], true),
    ] {
        let bytes = file(&header, &items);
        match (read(&bytes), is_in_order) {
            (Ok(_), true) | (Err(SnapshotError::Damaged { .. }), false) => {}
            (outcome, _) => panic!("{items:?}: {outcome:?}"),
        }
    }
}

/// Within a chunk nothing but a step up can be written.
#[test]
fn chunks_out_of_order_are_refused() {
    let header = header(vec![covered(1, 1, 8192)]);
    for (hashes, is_in_order) in [([2, 1], false), ([2, 2], true), ([1, 2], true)] {
        let (mut writer, mut bytes) = SnapshotWriter::new(&header);
        for hash in hashes {
            writer.take(&entry(hash, 1, 4160));
            bytes.extend(writer.next_chunk().expect("an entry"));
        }
        bytes.extend(writer.finish(Lsn(1), 0));
        match (read(&bytes), is_in_order) {
            (Ok(_), true) | (Err(SnapshotError::Damaged { .. }), false) => {}
            (outcome, _) => panic!("{hashes:?}: {outcome:?}"),
        }
    }
}

#[test]
fn entries_that_cannot_be_are_refused() {
    let header = header(vec![covered(1, 1, 8192)]);
    let written = [
        SnapshotItem::Version(kept(3, 5, 4160)),
        SnapshotItem::Settings(settings(0, 42)),
        SnapshotItem::Partition(notes(42)),
        SnapshotItem::Newest(entry(0x2A, 1, 4160)),
        SnapshotItem::Times(times(1)),
    ];
    for (item, at, value) in [
        // A slot, a flag and a keyspace that cannot be, another sequence than the place's, one too
        // high.
        (0, 1, 0x40),
        (0, 9, 4),
        (0, 11, 4),
        (0, 16, 6),
        (0, 24, 6),
        (0, 22, 1),
        // A successor that is older.
        (0, 48, 4),
        // A number, a prefix and settings that cannot be, a prefix that is not filled with zeros.
        (1, 1, 4),
        (1, 3, 65),
        (1, 8, 9),
        (1, 24 + 8, 2),
        (1, 151, 1),
        // A partition and values that cannot be, or that are not filled with zeros.
        (2, 1, 1),
        (2, 3, 2),
        (2, 5, 8),
        (2, 6, 1),
        (2, 72 + 5, 1),
        (2, 1351, 1),
        // A place that cannot be, one that nothing stands at, and no version.
        (2, 14, 0x10),
        (2, 49, 0),
        (2, 56, 0),
        (2, 40, 0),
        (2, 71, 1),
        // A slot, a file, an offset and lengths that cannot be, and a head that is not understood.
        (3, 5, 0x40),
        (3, 10, 0x10),
        (3, 15, 0x08),
        (3, 16, 0),
        (3, 17, 2),
        (3, 18, 47),
        (3, 22, 1),
        // A file, a number of buckets, of parts, a time and a bucket that cannot be, and what is
        // behind the last one.
        (4, 3, 0x40),
        (4, 4, 13),
        (4, 4, 2),
        (4, 15, 1),
        (4, 24, 1),
        (4, 40, 0),
        (4, 503, 1),
    ] {
        let bytes = file(&header, &written[item..=item]);
        let entry_bytes = [56, 152, 1352, 25, 504][item];
        let head_at = bytes.len() - 40 - entry_bytes - 20;
        let mut wrong = bytes.clone();
        wrong[head_at + 20 + at] = value;
        // With CRCs as they would be.
        let footer_at = bytes.len() - 40;
        let header_crc = wrong[head_at - 4..head_at].to_vec();
        let chunk = [
            &header_crc[..],
            &wrong[head_at..head_at + 16],
            &wrong[head_at + 20..footer_at],
        ];
        let crc = crc32fast::hash(&chunk.concat()).to_le_bytes();
        wrong[head_at + 16..head_at + 20].copy_from_slice(&crc);
        let crcs = crc32fast::hash(&crc).to_le_bytes();
        wrong[footer_at + 32..footer_at + 36].copy_from_slice(&crcs);
        let footer = [&header_crc[..], &wrong[footer_at..footer_at + 36]].concat();
        let crc = crc32fast::hash(&footer).to_le_bytes();
        wrong[footer_at + 36..].copy_from_slice(&crc);
        match read(&wrong) {
            Err(SnapshotError::Damaged { cause, .. }) if cause.contains("cannot be") => {}
            outcome => panic!("byte {at} of {:?}: {outcome:?}", written[item]),
        }
    }
}

#[test]
fn a_chunk_or_footer_of_another_snapshot_is_refused() {
    let ours = small();
    let other = {
        let mut header = header(vec![covered(1, 1, 8192)]);
        header.name.number = 2;
        file(&header, &newest(&[entry(0, 1, 4160)]))
    };
    let one = file(
        &header(vec![covered(1, 1, 8192)]),
        &newest(&[entry(0, 1, 4160)]),
    );
    assert_eq!(one.len(), other.len());
    assert!(ours.len() > one.len());
    for at in [one.len() - 85, one.len() - 40] {
        let mixed = [&one[..at], &other[at..]].concat();
        assert!(read(&mixed).is_err());
    }
}

/// What a survey finds.
fn segment(sequence: u64, file: u32, salt: u64, file_bytes: u64) -> Segment {
    Segment {
        stored_end: None,
        file: FileId(file),
        file_bytes,
        header: SegmentHeader {
            owner: OWNER,
            incarnation: 1,
            log_id: 3,
            chain: 0,
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
    let foreign = header(vec![
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
    let fits = |segments: &[Segment]| Coverage::of(&foreign, OWNER, NAME, HASH_CHECK, segments);
    let coverage = fits(&full).expect("it fits");
    assert_eq!(coverage.admits(entry(1, 1, 8944).place()), Ok(true));
    assert_eq!(coverage.admits(entry(1, 4, 8136).place()), Ok(true));
    for (file, offset) in [
        (1, 8952),
        (1, 0),
        (4, 8184),
        (5, 4160),
        (3, 4160),
        (70, 4160),
    ] {
        assert!(coverage.admits(entry(1, file, offset).place()).is_err());
    }
    // Entries of a released segment are dropped, also if the snapshot's position is in that
    // segment.
    let coverage = fits(&[full[0], full[2]]).expect("it fits");
    assert_eq!(coverage.admits(entry(1, 2, 4160).place()), Ok(false));
    assert_eq!(coverage.admits(entry(1, 1, 4160).place()), Ok(true));
    let coverage = fits(&[full[0], full[3]]).expect("it fits");
    assert_eq!(coverage.admits(entry(1, 4, 4160).place()), Ok(false));

    let other_salt = [full[0], segment(2, 2, 1, 9000), full[2]];
    let other_file = [full[0], segment(2, 9, SALT, 9000), full[2]];
    let shorter = [full[0], segment(2, 2, SALT, 8999), full[2]];
    let unannounced = [full[0], full[1], segment(3, 3, SALT, 9000), full[2]];
    for segments in [
        &other_salt[..],
        &other_file,
        &shorter,
        &unannounced,
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
        Coverage::of(&foreign, stranger, NAME, HASH_CHECK, &full),
        Coverage::of(&foreign, OWNER, renamed, HASH_CHECK, &full),
        Coverage::of(&foreign, OWNER, NAME, HASH_CHECK + 1, &full),
    ] {
        assert!(matches!(result, Err(SnapshotError::Stranger(_))));
    }
}
