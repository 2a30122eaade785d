//! The worked example of `FORMAT.md` is what the code writes, and the code reads it back.

use std::collections::BTreeMap;

use penstock_storage::io::BLOCK_BYTES;
use penstock_storage::keyspace::is_understood;
use penstock_storage::log::{Log, LogConfig, Room, SyncMethod};
use penstock_storage::place::FileId;
use penstock_storage::place::{LogStart, Place};
use penstock_storage::record::{
    FEW_PARTS_MAX, PartKind, PartSpec, PartView, RecordSpec, ValueKind,
};
use penstock_storage::recovery::{recover, survey};
use penstock_storage::segment::Owner;
use penstock_storage::spare::SpareHeader;
use penstock_storage::system_key::{FLUSH_KEY, FLUSH_VALUE, flush_tag};
use penstock_storage::version::Version;

use crate::disk::Disk;
use crate::heap::Heap;

const FORMAT: &str = include_str!("../../FORMAT.md");
const SNAPSHOTS: &str = include_str!("../../SNAPSHOTS.md");
const SEGMENT_BYTES: usize = 1 << 20;
pub const SALT: u64 = 0x1122_3344_5566_7788;
pub const OWNER: Owner = Owner {
    cluster_id: [0xC1; 16],
    node_id: [0xD2; 16],
};

/// The bytes that the document shows of a segment: lines `offset: hex  # meaning` in its `hex`
/// block, all other bytes are zero.
fn documented() -> BTreeMap<usize, u8> {
    hex_block("## Example\n")
}

/// The first `hex` block behind a heading, in the one document that has it.
pub fn hex_block(heading: &str) -> BTreeMap<usize, u8> {
    let of = |document: &'static str| document.split_once(heading);
    let (_, section) = of(FORMAT).or(of(SNAPSHOTS)).expect("there is a section");
    let (_, block) = section.split_once("```hex\n").expect("there is a block");
    let (block, _) = block.split_once("```").expect("the example ends");
    let mut bytes = BTreeMap::new();
    for line in block.lines().filter(|line| !line.is_empty()) {
        let line = line.split('#').next().expect("a line has a first part");
        let (offset, hex) = line.split_once(':').expect("an offset");
        let offset = usize::from_str_radix(offset.trim(), 16).expect("an offset in hexadecimal");
        for (at, byte) in (offset..).zip(hex.split_whitespace()) {
            let byte = u8::from_str_radix(byte, 16).expect("a byte in hexadecimal");
            assert!(bytes.insert(at, byte).is_none(), "{at:#x} is shown twice");
        }
    }
    bytes
}

/// `stock:42` gets the value 7, as the first record of log 3.
pub fn written() -> Vec<u8> {
    let config = LogConfig {
        owner: OWNER,
        incarnation: 5,
        log_id: 3,
        frame_bytes: 64 << 10,
        record_bytes_max: 64 << 10,
        frames_in_flight_max: 2,
        frames_sealed_max: 4,
        sync: SyncMethod::DurableWrite,
        interval_us: 1_000,
        idle_mark_us: 5_000,
    };
    let mut disk = Disk::default();
    let file = disk.create(SEGMENT_BYTES);
    let mut log = Log::new(config, LogStart::default(), Heap);
    log.add_spare(file, SALT, SEGMENT_BYTES as u64);
    let part = PartSpec {
        kind: PartKind::Put,
        key: b"stock:42",
        value: &7u64.to_le_bytes(),
        expiry_ms: None,
        value_kind: ValueKind::Plain,
        layout: 0,
        is_crowded: false,
    };
    let record = RecordSpec {
        slot: 0x0ABC,
        epoch: 0x0000_0201,
        sequence: 1,
        time_ms: 1_700_000_000_000,
        parts: &[part],
        extension: &[],
    };
    assert_eq!(
        log.room(penstock_storage::log::Purpose::Grow, record.bytes()),
        Room::Yes
    );
    let lsn = log.append(0, &record, &mut [Place::default(); FEW_PARTS_MAX]);
    log.want_durable(lsn);
    let mut requests = Vec::new();
    // The header, the frame, and after some idleness the mark.
    for now_us in [0, 0, 5_000] {
        log.pump(now_us, &mut requests);
        disk.submit(&mut requests);
        while !disk.under_way().is_empty() {
            let completion = disk.complete(0);
            log.completed(now_us, completion)
                .expect("the disk does not fail");
        }
    }
    disk.files.remove(&file).expect("just created")
}

#[test]
fn the_example_in_the_document_is_what_the_log_writes() {
    let documented = documented();
    let written = written();
    for (at, &byte) in written.iter().enumerate() {
        let shown = documented.get(&at).copied().unwrap_or(0);
        assert_eq!(
            shown, byte,
            "at {at:#x}: the document says {shown:02x}, the log writes {byte:02x}"
        );
    }
    assert!(documented.keys().all(|&at| at < 3 * BLOCK_BYTES));
}

#[test]
fn the_spare_header_in_the_document_is_what_a_file_gets_that_serves_again() {
    let mut documented = [0; BLOCK_BYTES];
    for (at, byte) in hex_block("## Spare header\n") {
        documented[at] = byte;
    }
    let (owner, salt) = (OWNER, SALT);
    let header = SpareHeader { owner, salt };
    let mut written = [0; BLOCK_BYTES];
    header.encode(&mut written);
    assert_eq!(documented, written);
    assert_eq!(SpareHeader::read(&documented), Some(header));
}

#[test]
fn the_example_in_the_document_is_read_back() {
    let mut bytes = vec![0; SEGMENT_BYTES];
    for (at, byte) in documented() {
        bytes[at] = byte;
    }
    let mut disk = Disk::from(BTreeMap::from([(FileId(1), bytes)]));
    let survey = survey(&mut disk, OWNER).expect("the example is sound");
    let mut parts = Vec::new();
    let recovered = recover(&mut disk, &survey.logs[&3], &mut |part, place| {
        parts.push((
            part.key().to_vec(),
            part.value().to_vec(),
            place.offset,
            part.slot(),
            part.epoch(),
        ));
        Ok(())
    })
    .expect("the example is sound");
    assert_eq!(
        parts,
        [(
            b"stock:42".to_vec(),
            vec![7, 0, 0, 0, 0, 0, 0, 0],
            4160,
            0x0ABC,
            0x0201
        )]
    );
    assert!(recovered.is_clean() && recovered.torn.is_none());
}

#[test]
fn the_flush_mark_in_the_document_is_the_part_that_a_flush_writes() {
    let mut documented = vec![0; hex_block("## Flush marks\n").len()];
    for (at, byte) in hex_block("## Flush marks\n") {
        documented[at] = byte;
    }
    let key = [FLUSH_KEY, b"\0\0}"].concat();
    assert_eq!(flush_tag(&key), Some(&[0, 0][..]));
    let parts = [PartSpec::put(&key, &FLUSH_VALUE)];
    let version = Version {
        epoch: 0x201,
        sequence: 2,
    };
    let record = RecordSpec::new(0, version, 1_700_000_000_000, &parts);
    let mut written = vec![0; record.bytes()];
    record.encode_part(0, &mut written);
    assert_eq!(documented, written);
    let part = PartView::read(&written).expect("just written");
    assert!(is_understood(&part));
    // A copy stands behind what the mark hid: only a build that knows no marks makes one.
    let mut moved = vec![0; written.len()];
    let len = part.encode_moved(PartKind::Put, false, &mut moved);
    let copy = PartView::read(&moved[..len]).expect("just written");
    assert!(copy.is_copy() && !is_understood(&copy));
    // What is reserved is no mark of this version.
    let other = [PartSpec::put(&key, &[1; 8])];
    let record = RecordSpec::new(0, version, 1_700_000_000_000, &other);
    record.encode_part(0, &mut written);
    let part = PartView::read(&written).expect("just written");
    assert!(!is_understood(&part));
}
