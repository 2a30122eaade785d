//! The way back for a log that carries times of a clock that was ahead: every time above a border
//! is set to the border. Lengths, places, versions and salts stay, so each file can be rewritten by
//! itself, and a directory in which some files are rewritten and others are not is a sound one.
//!
//! What must hold behind it: a token that is not found is new only if its time is not before the
//! border. Under the clock that was ahead tokens were dropped which the lower time calls complete.
//! So every horizon tells from then on that tokens are complete from the border.

use crate::format::checksum::crc32;
use crate::format::frame::{FRAME_HEADER_BYTES, FrameError, FrameHeader, FrameHome, FrameKind};
use crate::format::record::{PART_HEADER_BYTES, PartView, read_u64};
use crate::format::segment::{FirstBlock, SegmentHeader};
use crate::format::system_key::{is_horizon, is_local, is_system};
use crate::types::io::BLOCK_BYTES;

/// Where a part has its CRC, its time, of 6 bytes, and how long it is.
const CRC_AT: usize = 4;
const TIME_AT: usize = 32;
const TIME_BYTES: usize = 6;
/// Where values of the store's own records have times.
const LOCAL_FLOOR_TIME_AT: usize = 48;
const KEYSPACE_TIME_AT: usize = 48;
const KEYSPACE_KEY: &[u8] = b"\0\0penstock/keyspace/{";
const HORIZON_FROM_AT: usize = 0;
const HORIZON_SINCE_AT: usize = 24;

/// Lowers the time in the first block of a file.
///
/// Returns what its frames are checked with; `None` if the file holds no segment, and nothing is to
/// be rewritten.
pub fn lower_header(block: &mut [u8; BLOCK_BYTES], to_ms: u64) -> Option<FrameHome> {
    let FirstBlock::Segment(header) = SegmentHeader::read(block) else {
        return None;
    };
    let lowered = SegmentHeader {
        created_ms: header.created_ms.min(to_ms),
        ..header
    };
    lowered.encode(block);
    Some(header.home())
}

/// Lowers the times in a frame that stands at `offset` of its file: `frame` has exactly its padded
/// bytes. Returns how many parts had a later time.
///
/// # Errors
/// [`FrameError`] if the frame is not what was written there; nothing has changed then.
pub fn lower_frame(
    home: FrameHome,
    offset: u64,
    frame: &mut [u8],
    to_ms: u64,
) -> Result<u64, FrameError> {
    let header = FrameHeader::read(home, offset, frame)?;
    if frame.len() != header.padded_bytes() || !FrameHeader::body_is_intact(home, frame) {
        return Err(FrameError::Absent);
    }
    let body = &mut frame[FRAME_HEADER_BYTES..][..header.body_bytes as usize];
    let lowered = match header.kind {
        FrameKind::Commit | FrameKind::Repair => lower_parts(body, to_ms),
        FrameKind::Mark | FrameKind::Summary | FrameKind::Contents => 0,
    };
    let header = FrameHeader {
        time_ms: header.time_ms.min(to_ms),
        ..header
    };
    header.seal(home, frame);
    Ok(lowered)
}

/// The parts at the begin of a body. Zeros follow them in a frame of a repair.
fn lower_parts(body: &mut [u8], to_ms: u64) -> u64 {
    let (mut at, mut lowered) = (0, 0);
    while let Ok(part) = PartView::read(&body[at..]) {
        let (len, is_later) = (part.bytes().len(), part.time_ms() > to_ms);
        let value_at = PART_HEADER_BYTES + part.key().len().next_multiple_of(8);
        let times = own_times(&part);
        let is_own = times.iter().any(Option::is_some);
        let bytes = &mut body[at..at + len];
        if is_later {
            bytes[TIME_AT..][..TIME_BYTES].copy_from_slice(&to_ms.to_le_bytes()[..TIME_BYTES]);
            lowered += 1;
        }
        for time in times.into_iter().flatten() {
            let place = &mut bytes[value_at + time.at()..][..8];
            let ms = match time {
                Time::From(_) => to_ms,
                Time::At(_) => read_u64(place).min(to_ms),
            };
            place.copy_from_slice(&ms.to_le_bytes());
        }
        if is_later || is_own {
            let crc = crc32(&bytes[8..]);
            bytes[CRC_AT..8].copy_from_slice(&crc.to_le_bytes());
        }
        at += len;
    }
    lowered
}

/// A time in the value of a record of the store's own, by its place there.
#[derive(Clone, Copy)]
enum Time {
    /// It is no later than the border.
    At(usize),
    /// It is the border: what was before may be gone.
    From(usize),
}

impl Time {
    fn at(self) -> usize {
        match self {
            Time::At(at) | Time::From(at) => at,
        }
    }
}

/// The times in the value of a part.
fn own_times(part: &PartView<'_>) -> [Option<Time>; 2] {
    let (key, value) = (part.key(), part.value());
    if !is_system(key) || value.is_empty() {
        return [None, None];
    }
    let fits = |at: usize| at + 8 <= value.len();
    if is_horizon(key) && fits(HORIZON_SINCE_AT) {
        return [
            Some(Time::From(HORIZON_FROM_AT)),
            Some(Time::At(HORIZON_SINCE_AT)),
        ];
    }
    if is_local(key) {
        return [
            fits(LOCAL_FLOOR_TIME_AT).then_some(Time::At(LOCAL_FLOOR_TIME_AT)),
            None,
        ];
    }
    let is_keyspace = key.starts_with(KEYSPACE_KEY) && fits(KEYSPACE_TIME_AT);
    [is_keyspace.then_some(Time::At(KEYSPACE_TIME_AT)), None]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::horizon::{HORIZON_BYTES, Horizon};
    use crate::format::record::{PartKind, PartSpec, RecordSpec, ValueKind};
    use crate::format::system_key::HORIZON_KEY;
    use crate::types::place::Lsn;

    const HOME: FrameHome = FrameHome {
        log_id: 1,
        segment_sequence: 3,
        salt: 0x1122_3344_5566_7788,
    };
    const TO_MS: u64 = 1_000_000;

    fn put<'a>(key: &'a [u8], value: &'a [u8], expiry_ms: Option<u64>) -> PartSpec<'a> {
        PartSpec {
            kind: PartKind::Put,
            key,
            value,
            expiry_ms,
            value_kind: ValueKind::Plain,
            layout: 0,
            is_crowded: false,
        }
    }

    /// A frame of these records, each with its time.
    fn frame(records: &[(u64, &[PartSpec<'_>])]) -> Vec<u8> {
        let mut bytes = vec![0; 1 << 20];
        let mut at = FRAME_HEADER_BYTES;
        for (number, (time_ms, parts)) in records.iter().enumerate() {
            let record = RecordSpec {
                slot: 7,
                epoch: 1,
                sequence: number as u64 + 1,
                time_ms: *time_ms,
                parts,
                extension: &[],
            };
            for ordinal in 0..parts.len() {
                at += record.encode_part(ordinal, &mut bytes[at..]);
            }
        }
        let newest = records.iter().map(|it| it.0).max().unwrap_or(0);
        let header = FrameHeader {
            kind: FrameKind::Commit,
            offset: 4096,
            first_lsn: Lsn(1),
            durable_lsn: Lsn(0),
            record_count: u32::try_from(records.len()).unwrap(),
            body_bytes: u32::try_from(at - FRAME_HEADER_BYTES).unwrap(),
            time_ms: newest,
        };
        bytes.truncate(header.padded_bytes());
        header.seal(HOME, &mut bytes);
        bytes
    }

    #[test]
    fn times_above_the_border_become_the_border_and_nothing_else_changes() {
        let early = [put(b"early", b"1", Some(TO_MS * 9))];
        let late = [put(b"late", b"2", None), put(b"later", b"33", Some(TO_MS))];
        let mut bytes = frame(&[(TO_MS - 1, &early), (TO_MS + 5, &late)]);
        let before = bytes.clone();
        assert_eq!(lower_frame(HOME, 4096, &mut bytes, TO_MS), Ok(2));
        let header = FrameHeader::read(HOME, 4096, &bytes).expect("it checks");
        assert!(FrameHeader::body_is_intact(HOME, &bytes));
        assert_eq!((header.time_ms, header.record_count), (TO_MS, 2));
        let expected = frame(&[(TO_MS - 1, &early), (TO_MS, &late)]);
        assert_eq!(bytes, expected);
        assert_eq!(lower_frame(HOME, 4096, &mut bytes, TO_MS), Ok(0), "again");
        assert_eq!(bytes, expected);
        assert_ne!(bytes, before);
    }

    #[test]
    fn a_horizon_says_from_then_on_that_tokens_are_complete_from_the_border() {
        for (complete_ms, since_ms) in [(0, 0), (TO_MS * 3, TO_MS * 4)] {
            let key = [HORIZON_KEY, b"ab}"].concat();
            let words = [complete_ms, 1_000, 2_000, since_ms];
            let value: Vec<u8> = words.iter().flat_map(|it: &u64| it.to_le_bytes()).collect();
            assert_eq!(value.len(), HORIZON_BYTES);
            // Also one that was logged before the clock was ahead.
            let mut bytes = frame(&[(TO_MS - 1, &[put(&key, &value, None)])]);
            assert_eq!(lower_frame(HOME, 4096, &mut bytes, TO_MS), Ok(0));
            let part = PartView::read(&bytes[FRAME_HEADER_BYTES..]).expect("it checks");
            let horizon = Horizon::decode(part.value()).expect("one");
            assert_eq!(horizon.from_ms(TO_MS), TO_MS);
            assert_eq!(horizon.from_ms(TO_MS + 500), TO_MS);
            assert_eq!(horizon.horizon_ms(), 2_000);
        }
    }

    #[test]
    fn a_frame_that_does_not_check_is_refused_and_left_as_it_is() {
        let good = frame(&[(TO_MS + 5, &[put(b"key", b"value", None)])]);
        for at in [10, 50, 70, good.len() - 1] {
            let mut bytes = good.clone();
            bytes[at] ^= 1;
            let before = bytes.clone();
            assert!(lower_frame(HOME, 4096, &mut bytes, TO_MS).is_err(), "{at}");
            assert_eq!(bytes, before);
        }
    }
}
