//! What a file of the folder is by its blocks: a segment, a spare, or a spare that has rotted.
//!
//! A file without a header is a spare only if it proves nothing. Whatever an acknowledged record
//! needed of a lost segment, the first block of its frame was durable, and [`is_trace`] knows that
//! block again with any one of its bits flipped.

use crate::format::corruption::Corruption;
use crate::format::frame::{FRAME_MAGIC, FRAME_VERSION};
use crate::format::frame_body::is_zero;
use crate::format::record::read_u32;
use crate::format::row::Row;
use crate::format::segment::{
    FirstBlock, HEADER_CRC_BYTES, HEADER_FIELDS_BYTES, Owner, SEGMENT_MAGIC, SegmentHeader,
};
use crate::format::spare::{SPARE_MAGIC, SpareHeader, holds_frame_of};
use crate::recovery::refusal::RecoveryError;
use crate::recovery::segment::Segment;
use crate::recovery::window::read_at;
use crate::types::io::{BLOCK_BYTES, SegmentSource};
use crate::types::place::FileId;
use crate::types::place::Lsn;

/// What one file is.
pub(crate) enum FileKind {
    Spare,
    /// It served before, and nothing in it counts.
    ReusedSpare,
    /// A spare in which bytes have changed that prove nothing.
    RottenSpare(RottenSpare),
    TornActivation,
    Segment(Segment),
}

/// A spare with bytes that nobody wrote. No byte shows that the file was ever a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RottenSpare {
    /// The file.
    pub file: FileId,
    /// Its length, in bytes.
    pub file_bytes: u64,
    /// The first byte that is not zero.
    pub offset: u64,
    /// What stands there.
    pub found: u8,
    /// How many bytes of the file are not zero.
    pub wrong_bytes: u64,
}

/// What a file that was taken for a spare by its begin is as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// Nothing counts in it, and it may be written or removed.
    Spare,
    /// Nothing counts in it, and it is to be set aside and told.
    Rotten(RottenSpare),
}

/// How much of a file without a header is read before it is taken for a spare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadExtent {
    /// [`HEAD_BYTES`] of it.
    Head,
    /// All of it.
    Whole,
}

/// Bytes at the begin of a spare that are read before a log is judged.
pub const HEAD_BYTES: usize = 64 << 10;
/// Bytes that are looked at together: all of a file is, before it is taken for empty.
const READ_BYTES: usize = 1 << 20;
/// Blocks of a rotten spare that are not zero, at most: a file with more is no spare that a device
/// has changed here and there.
const ROTTEN_BLOCKS_MAX: u64 = 16;

/// Reads a file that [`survey_heads`](super::survey_heads) took for a spare whole.
///
/// # Errors
/// [`RecoveryError`] if it cannot be read, or is a segment that has lost its header.
pub fn prove_spare(
    source: &mut impl SegmentSource,
    file: FileId,
    file_bytes: u64,
) -> Result<Proof, RecoveryError> {
    match classify(source, file, file_bytes, None, ReadExtent::Whole)? {
        FileKind::Spare | FileKind::ReusedSpare => Ok(Proof::Spare),
        FileKind::RottenSpare(rotten) => Ok(Proof::Rotten(rotten)),
        FileKind::TornActivation | FileKind::Segment(_) => Err(header_gone(file)),
    }
}

fn header_gone(file: FileId) -> RecoveryError {
    damaged(
        Row::HeaderGone,
        file,
        "its header is gone and frames stand behind it",
    )
}

fn damaged(row: Row, file: FileId, cause: &'static str) -> RecoveryError {
    RecoveryError::Corrupt(Corruption {
        row,
        log_id: None,
        file,
        offset: 0,
        lsn_from: Lsn(0),
        lsn_to: None,
        cause,
    })
}

/// The salt that the last block of a file tells, if the file served before and its end was not
/// written since.
pub(crate) fn stored_salt(
    source: &mut impl SegmentSource,
    file: FileId,
    file_bytes: u64,
) -> Result<Option<u64>, RecoveryError> {
    let mut last = [0; BLOCK_BYTES];
    let at = file_bytes.saturating_sub(BLOCK_BYTES as u64);
    let read = read_at(source, file, at, &mut last)?;
    let header = SpareHeader::read(&last).filter(|_| read == BLOCK_BYTES);
    Ok(header.map(|header| header.salt))
}

/// Whether `is_counted` is true of any block of a file between `from` and `end`; `from` begins a
/// block.
fn has_block(
    source: &mut impl SegmentSource,
    file: FileId,
    (from, end): (u64, u64),
    mut is_counted: impl FnMut(u64, &[u8]) -> bool,
) -> Result<bool, RecoveryError> {
    let read_bytes = READ_BYTES as u64;
    let mut chunk = vec![0; READ_BYTES];
    let mut at = from;
    if end > HEAD_BYTES as u64 {
        source.will_read(file, at);
    }
    while at < end {
        let wanted = usize::try_from(read_bytes.min(end - at)).expect("a part of a chunk");
        let chunk = &mut chunk[..wanted];
        let read = read_at(source, file, at, chunk)?;
        let mut blocks = (at..)
            .step_by(BLOCK_BYTES)
            .zip(chunk[..read].chunks(BLOCK_BYTES));
        if blocks.any(|(offset, block)| is_counted(offset, block)) {
            return Ok(true);
        }
        if read < chunk.len() {
            break;
        }
        at += read as u64;
    }
    Ok(false)
}

/// Whether a block may once have been the first of a frame at its place: it has the magic, or what
/// else every frame has there. Of a frame no flipped bit hides both, and no two flipped bits make
/// either of zeros.
fn is_trace(offset: u64, block: &[u8]) -> bool {
    let Some(head) = block.first_chunk::<24>() else {
        return false;
    };
    let blocks = offset / BLOCK_BYTES as u64;
    let is_like_one = blocks > 0
        && head[4..6] == FRAME_VERSION.to_le_bytes()
        && (1..=5).contains(&head[6])
        && head[7] == 0
        && u64::from(read_u32(&head[20..24])) == blocks;
    read_u32(&head[0..4]) == FRAME_MAGIC || is_like_one
}

/// Whether a first block that does not check may once have been a header.
fn is_trace_of_header(block: &[u8; BLOCK_BYTES]) -> bool {
    block.starts_with(&SEGMENT_MAGIC) || block.starts_with(&SPARE_MAGIC)
}

/// Whether a first block that does not check is a segment's header that a crash tore while it was
/// written over zeros. Then it has no byte where a header has none, and its magic is whole unless
/// the write ended within the magic or only the last sector, with the CRC, got to the disk. The CRC
/// has more than one byte that is not zero.
fn is_torn_header(block: &[u8; BLOCK_BYTES]) -> bool {
    let (fields, rest) = block.split_at(HEADER_FIELDS_BYTES);
    let (gap, crc) = rest.split_at(rest.len() - HEADER_CRC_BYTES);
    if !is_zero(gap) {
        return false;
    }
    if fields.starts_with(&SEGMENT_MAGIC) {
        return true;
    }
    let has_only_crc = is_zero(fields) && crc.iter().filter(|byte| **byte != 0).count() > 1;
    let written = SEGMENT_MAGIC.iter().zip(fields);
    let written = written.take_while(|(expected, found)| expected == found);
    let written = written.count();
    has_only_crc || (written > 0 && is_zero(&block[written..]))
}

/// A file that is not zero where a spare is, and has no header: told rotten if nothing in it can
/// have been of a segment, and nearly all of it is as a spare should be.
fn judge_rest(
    source: &mut impl SegmentSource,
    (file, file_bytes): (FileId, u64),
) -> Result<Option<RottenSpare>, RecoveryError> {
    let mut rotten = RottenSpare {
        file,
        file_bytes,
        offset: 0,
        found: 0,
        wrong_bytes: 0,
    };
    let mut wrong_blocks = 0;
    let has_trace = has_block(source, file, (0, file_bytes), |offset, block| {
        if is_trace(offset, block) || wrong_blocks > ROTTEN_BLOCKS_MAX {
            return true;
        }
        if !is_zero(block) {
            wrong_blocks += 1;
            for (at, &byte) in (offset..).zip(block).filter(|(_, byte)| **byte != 0) {
                if rotten.wrong_bytes == 0 {
                    (rotten.offset, rotten.found) = (at, byte);
                }
                rotten.wrong_bytes += 1;
            }
        }
        false
    })?;
    let are_few =
        wrong_blocks <= ROTTEN_BLOCKS_MAX && 2 * wrong_blocks < file_bytes / BLOCK_BYTES as u64;
    Ok((!has_trace && are_few).then_some(rotten))
}

/// Reads the head of a file. Frames are written only after the header of their segment is durable,
/// so behind a header that was never finished no frame checks under its salt, and in a file that
/// never served before there is nothing but zeros.
pub(crate) fn classify(
    source: &mut impl SegmentSource,
    file: FileId,
    file_bytes: u64,
    owner: Option<Owner>,
    extent: ReadExtent,
) -> Result<FileKind, RecoveryError> {
    let mut first = [0; BLOCK_BYTES];
    let read = read_at(source, file, 0, &mut first)?;
    if read < BLOCK_BYTES {
        return Err(damaged(
            Row::HeaderCutShort,
            file,
            "the file ends within its header",
        ));
    }
    let end = match extent {
        ReadExtent::Head => file_bytes.min(HEAD_BYTES as u64),
        ReadExtent::Whole => file_bytes,
    };
    let behind = |end| (BLOCK_BYTES as u64, end);
    if let Some(SpareHeader { owner: found, salt }) = SpareHeader::read(&first) {
        if owner.is_some_and(|owner| owner != found) {
            return Err(RecoveryError::Foreign { file, found });
        }
        let is_frame = |offset, block: &[u8]| holds_frame_of(salt, offset, block);
        return match has_block(source, file, behind(end), is_frame)? {
            true => Err(header_gone(file)),
            false => Ok(FileKind::ReusedSpare),
        };
    }
    let is_something = |_, block: &[u8]| !is_zero(block);
    match SegmentHeader::read(&first) {
        FirstBlock::Spare => {
            if !has_block(source, file, behind(end), is_something)? {
                return Ok(FileKind::Spare);
            }
            if let Some(salt) = stored_salt(source, file, file_bytes)? {
                let is_frame = |offset, block: &[u8]| holds_frame_of(salt, offset, block);
                return match has_block(source, file, behind(file_bytes), is_frame)? {
                    true => Err(header_gone(file)),
                    false => Ok(FileKind::ReusedSpare),
                };
            }
            match judge_rest(source, (file, file_bytes))? {
                Some(rotten) => Ok(FileKind::RottenSpare(rotten)),
                None => Err(header_gone(file)),
            }
        }
        FirstBlock::Damaged => {
            let salt = stored_salt(source, file, file_bytes)?;
            let is_used = |offset, block: &[u8]| match salt {
                None => !is_zero(block),
                Some(salt) => holds_frame_of(salt, offset, block),
            };
            if !has_block(source, file, behind(file_bytes), is_used)? {
                let rotten = match salt.is_some() || is_torn_header(&first) {
                    true => None,
                    false => judge_rest(source, (file, file_bytes))?,
                };
                return Ok(rotten.map_or(FileKind::TornActivation, FileKind::RottenSpare));
            }
            let rotten = match salt.is_some() || is_trace_of_header(&first) {
                true => None,
                false => judge_rest(source, (file, file_bytes))?,
            };
            rotten.map(FileKind::RottenSpare).ok_or_else(|| {
                damaged(
                    Row::HeaderDamaged,
                    file,
                    "its header does not check and frames stand behind it",
                )
            })
        }
        FirstBlock::OtherVersion(version) => Err(RecoveryError::Version {
            file,
            found: format!("segment format version {version} or fields unknown to it"),
        }),
        FirstBlock::Segment(header) if owner.is_some_and(|owner| owner != header.owner) => {
            Err(RecoveryError::Foreign {
                file,
                found: header.owner,
            })
        }
        FirstBlock::Segment(header) if header.chain != 0 => Err(RecoveryError::Version {
            file,
            found: format!("chain {}", header.chain),
        }),
        FirstBlock::Segment(header) => Ok(FileKind::Segment(Segment {
            file,
            file_bytes,
            header,
            stored_end: None,
        })),
    }
}
