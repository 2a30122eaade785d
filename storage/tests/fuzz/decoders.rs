//! The decoders of what stands in a segment, each alone: what is accepted has one form, and the
//! reader touches no heap.
//!
//! An input is one byte (which decoder, and whether checksums are put right) and the bytes.

use penstock_storage::frame::{FRAME_HEADER_BYTES, FrameError, FrameHeader, FrameHome};
use penstock_storage::io::BLOCK_BYTES;
use penstock_storage::record::{
    PART_HEADER_BYTES, PartError, PartKind, PartSpec, PartView, RecordSpec, ValueKind,
    number_bytes, part_bytes,
};
use penstock_storage::segment::{FirstBlock, SegmentHeader};
use penstock_storage::summary::{SUMMARY_BYTES_MAX, Summary};

use crate::FOLDER;
use crate::directory::all;
use crate::target::{Choices, keep};

/// The checksums are put right before the bytes are read.
const SEALED: u8 = 0x80;
const HOME: FrameHome = FrameHome {
    log_id: 3,
    segment_sequence: 1,
    salt: 0x1122_3344_5566_7788,
};

pub fn judge(input: &[u8]) {
    let mut choices = Choices::new(input);
    let manner = choices.byte();
    let is_sealed = manner & SEALED != 0;
    let mut bytes = choices.rest().to_vec();
    match (manner & !SEALED) % 4 {
        0 => {
            if is_sealed {
                seal_part(&mut bytes);
            }
            part(&bytes);
        }
        1 => {
            bytes.resize(BLOCK_BYTES, 0);
            if is_sealed {
                let crc = crc32fast::hash(&bytes[..BLOCK_BYTES - 4]);
                bytes[BLOCK_BYTES - 4..].copy_from_slice(&crc.to_le_bytes());
            }
            segment(&bytes);
        }
        2 => {
            if is_sealed && bytes.len() >= FRAME_HEADER_BYTES {
                let mut hasher = crc32fast::Hasher::new();
                hasher.update(&HOME.salt.to_le_bytes());
                hasher.update(&bytes[..60]);
                bytes[60..64].copy_from_slice(&hasher.finalize().to_le_bytes());
            }
            frame(&bytes);
        }
        _ => summary(&bytes),
    }
}

fn seal_part(bytes: &mut [u8]) {
    if bytes.len() < PART_HEADER_BYTES {
        return;
    }
    let len = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize;
    let end = len.clamp(8, bytes.len());
    let crc = crc32fast::hash(&bytes[8..end]);
    bytes[4..8].copy_from_slice(&crc.to_le_bytes());
}

/// Runs what must not touch the heap.
fn without_memory<T>(run: impl FnOnce() -> T) -> T {
    let mut result = None;
    let used = allocation_counter::measure(|| result = Some(run()));
    assert_eq!(used.count_total, 0, "the heap was touched");
    result.expect("it ran")
}

fn part(bytes: &[u8]) {
    let part = match without_memory(|| PartView::read(bytes)) {
        Ok(part) => part,
        Err(PartError::Damaged | PartError::Unsupported { .. }) => return,
    };
    assert!(bytes.starts_with(part.bytes()));
    // Copied by cleaning, and superseded.
    let copied = part.bytes()[9] & (4 | 16);
    let fixed = part_bytes(
        part.key().len(),
        part.value().len(),
        part.expiry_ms().is_some(),
        0,
    ) + number_bytes(part.count());
    let spec = PartSpec {
        kind: part.kind(),
        key: part.key(),
        value: part.value(),
        expiry_ms: part.expiry_ms(),
        value_kind: ValueKind::Plain,
        layout: part.layout(),
        is_crowded: part.is_crowded(),
    };
    let record = RecordSpec {
        slot: part.slot(),
        epoch: part.epoch(),
        sequence: part.sequence(),
        time_ms: part.time_ms(),
        parts: &vec![spec; part.count()],
        extension: &vec![&part.bytes()[fixed..]; part.count()],
    };
    let mut again = vec![0xEE; part.bytes().len()];
    assert_eq!(record.encode_part(part.ordinal(), &mut again), again.len());
    if copied != 0 {
        again[9] |= copied;
        seal_part(&mut again);
    }
    assert_eq!(again, part.bytes(), "a part has one form");
}

fn segment(bytes: &[u8]) {
    let block = bytes.first_chunk::<BLOCK_BYTES>().expect("a block");
    match without_memory(|| SegmentHeader::read(block)) {
        FirstBlock::Segment(header) => {
            let mut again = [0xEE; BLOCK_BYTES];
            header.encode(&mut again);
            assert!(again == *block, "a header has one form");
        }
        FirstBlock::Spare => assert!(block.iter().all(|&byte| byte == 0)),
        FirstBlock::OtherVersion(_) | FirstBlock::Damaged => {}
    }
}

fn frame(bytes: &[u8]) {
    let offset = BLOCK_BYTES as u64;
    let header = match without_memory(|| FrameHeader::read(HOME, offset, bytes)) {
        Ok(header) => header,
        Err(FrameError::Absent | FrameError::Unsupported { .. }) => return,
    };
    assert!(header.padded_bytes().is_multiple_of(BLOCK_BYTES));
    if header.padded_bytes() > 1 << 20 {
        return;
    }
    let mut again = vec![0xEE; header.padded_bytes()];
    header.seal(HOME, &mut again);
    assert!(FrameHeader::body_is_intact(HOME, &again));
    assert_eq!(again[..56], bytes[..56], "a header has one form");
    assert_eq!(FrameHeader::read(HOME, offset, &again), Ok(header));
}

fn summary(bytes: &[u8]) {
    if let Some(summary) = Summary::read(bytes) {
        let mut again = vec![0xEE; SUMMARY_BYTES_MAX];
        let len = summary.encode(&mut again);
        assert_eq!(again[..len], *bytes, "a summary has one form");
        assert_eq!(Summary::read(&again[..len]), Some(summary));
    }
}

#[test]
fn what_the_log_writes_is_kept() {
    let mut inputs = Vec::new();
    let mut name = |name: &str, manner: u8, bytes: &[u8]| {
        let input = [&[manner], bytes].concat();
        inputs.push((name.to_string(), input));
    };
    let directory = &all()[3];
    let first = directory.files.values().next().expect("a segment");
    name("segment", 1, &first[..160]);
    name("segment-sealed", 1 | SEALED, &first[..160]);
    for (number, frame) in directory.frames.iter().enumerate() {
        let bytes = &directory.files[&frame.file];
        let at = usize::try_from(frame.header.offset).expect("small files");
        let body = &bytes[at + FRAME_HEADER_BYTES..][..frame.header.body_bytes as usize];
        match frame.header.kind {
            penstock_storage::frame::FrameKind::Commit if number < 8 => {
                let part = PartView::read(body).expect("a part");
                name(&format!("part-{number}"), 0, part.bytes());
            }
            penstock_storage::frame::FrameKind::Summary => {
                name(&format!("summary-{number}"), 3, body);
            }
            _ => {}
        }
    }
    let header = FrameHeader {
        offset: BLOCK_BYTES as u64,
        ..directory.frames[0].header
    };
    let mut frame = vec![0; header.padded_bytes()];
    header.seal(HOME, &mut frame);
    name("frame", 2, &frame[..FRAME_HEADER_BYTES]);
    name("frame-sealed", 2 | SEALED, &frame[..FRAME_HEADER_BYTES]);

    // One token that may be passed over, one that must be understood.
    for (which, tag) in [("known", 1u16), ("demanded", 0x8001)] {
        let mut area = vec![32, 0, 1, 0, 0, 0, 0, 0];
        area.extend_from_slice(&tag.to_le_bytes());
        area.extend_from_slice(&[16, 0, 0, 0, 0, 0]);
        area.extend_from_slice(&[7; 16]);
        let part = PartSpec {
            kind: PartKind::Put,
            key: b"stock:42",
            value: &[9, 8, 7],
            expiry_ms: Some(5),
            value_kind: ValueKind::Plain,
            layout: 513,
            is_crowded: false,
        };
        let record = RecordSpec {
            slot: 2748,
            epoch: 513,
            sequence: 7,
            time_ms: 1_700_000_000_000,
            parts: &[part],
            extension: &[&area],
        };
        let mut bytes = vec![0; record.bytes()];
        record.encode_part(0, &mut bytes);
        name(&format!("part-extension-{which}"), SEALED, &bytes);
        // The second of two parts.
        bytes[10] = 0x21;
        name(&format!("part-extension-{which}-behind"), SEALED, &bytes);
    }
    // One entry stands for no part; one stands twice.
    let entry = |partition: u8, sequence: u8| {
        let mut entry = [0; 40];
        (entry[0], entry[16], entry[24]) = (partition, sequence, 9);
        entry
    };
    let body = |entries: &[[u8; 40]]| {
        let mut head = vec![0; 16];
        head[0] = entries.len().to_le_bytes()[0];
        [head, entries.concat()].concat()
    };
    name("summary-of-nothing", 3, &body(&[entry(1, 0)]));
    name("summary-twice", 3, &body(&[entry(1, 4), entry(1, 5)]));
    name("summary-unsorted", 3, &body(&[entry(2, 4), entry(1, 5)]));
    keep(FOLDER, "decoders", &inputs);
}
