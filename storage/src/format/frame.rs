//! The frame: one group commit, a header of 64 bytes and the parts of its records, padded to the
//! block size. A frame replays whole or not at all. Every byte is described in `FORMAT.md`.

use crc32fast::Hasher;

use crate::format::checksum::bytes_before;
use crate::format::record::{read_u32, read_u64};
use crate::planted::{Bug, is_planted};
use crate::types::io::BLOCK_BYTES;
use crate::types::place::Lsn;

/// Bytes of a frame before its body.
pub const FRAME_HEADER_BYTES: usize = 64;
/// `PKFR` in the order of the bytes.
pub const FRAME_MAGIC: u32 = u32::from_le_bytes(*b"PKFR");
/// The version of the frame format.
pub const FRAME_VERSION: u16 = 1;

/// What a frame holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// Records.
    Commit,
    /// Nothing: it records how far the log is durable.
    Mark,
    /// What the segment holds, written when it is sealed.
    Summary,
    /// A frame that a repair has put in the place of damaged frames. It counts all their records,
    /// and holds those that were still whole.
    Repair,
    /// The segments that the log consists of. Written after the first release of one.
    Contents,
}

/// The segment that a frame stands in, as far as its checks need it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHome {
    /// The log.
    pub log_id: u64,
    /// The segment's sequence in the log.
    pub segment_sequence: u64,
    /// The salt of this use of the file.
    pub salt: u64,
}

impl FrameHome {
    /// The home of a frame header if it is whole, with a salt under which the CRCs of all frames of
    /// that home agree as they do under the real one. It proves nothing: any 64 bytes have one.
    pub(crate) fn by_frame(bytes: &[u8; BLOCK_BYTES]) -> Self {
        FrameHome {
            log_id: read_u64(&bytes[8..16]),
            segment_sequence: u64::from(read_u32(&bytes[16..20])),
            salt: bytes_before(&bytes[..60], read_u32(&bytes[60..64])),
        }
    }

    /// The home that a frame header names, under a salt that is known from elsewhere.
    pub(crate) fn named_by(bytes: &[u8], salt: u64) -> Self {
        let head = bytes.first_chunk().unwrap_or(&[0; FRAME_HEADER_BYTES]);
        FrameHome {
            log_id: read_u64(&head[8..16]),
            segment_sequence: u64::from(read_u32(&head[16..20])),
            salt,
        }
    }
}

/// Why bytes are not a frame header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameError {
    /// Nothing that was written to this place of this segment for a header: zeros, remains of an
    /// earlier use of the file, a torn or a damaged header.
    Absent,
    /// A header that checks, of another format.
    Unsupported {
        /// The version.
        version: u16,
        /// The kind.
        kind: u8,
        /// The flags.
        flags: u8,
    },
}

/// A frame's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// What it holds.
    pub kind: FrameKind,
    /// Its own offset in the file, a multiple of [`BLOCK_BYTES`].
    pub offset: u64,
    /// The LSN of its first record; of the next record to come if it has none.
    pub first_lsn: Lsn,
    /// The highest LSN known durable when the frame went to the disk.
    pub durable_lsn: Lsn,
    /// Records in the body.
    pub record_count: u32,
    /// Bytes of the body without padding.
    pub body_bytes: u32,
    /// Unix milliseconds of the newest record by then.
    pub time_ms: u64,
}

impl FrameHeader {
    /// Bytes that the frame takes on the device.
    #[must_use]
    pub fn padded_bytes(&self) -> usize {
        padded_bytes(self.body_bytes as usize)
    }

    /// The LSN after the last record of the frame.
    #[must_use]
    pub fn end_lsn(&self) -> Lsn {
        Lsn(self.first_lsn.0 + u64::from(self.record_count))
    }

    /// Writes header, padding and both CRCs around the body that stands in `frame` already.
    /// `frame` is at least [`FrameHeader::padded_bytes`] long.
    pub fn seal(&self, home: FrameHome, frame: &mut [u8]) {
        let padded = self.padded_bytes();
        let frame = &mut frame[..padded];
        frame[FRAME_HEADER_BYTES + self.body_bytes as usize..].fill(0);
        let body_crc = body_crc(home, frame);
        let header: &mut [u8; FRAME_HEADER_BYTES] =
            frame.first_chunk_mut().expect("a frame has a header");
        header[0..4].copy_from_slice(&FRAME_MAGIC.to_le_bytes());
        header[4..6].copy_from_slice(&FRAME_VERSION.to_le_bytes());
        header[6] = match self.kind {
            FrameKind::Commit => 1,
            FrameKind::Mark => 2,
            FrameKind::Summary => 3,
            FrameKind::Repair => 4,
            FrameKind::Contents => 5,
        };
        header[7] = 0;
        header[8..16].copy_from_slice(&home.log_id.to_le_bytes());
        header[16..20].copy_from_slice(&home.segment_sequence.to_le_bytes()[..4]);
        let offset_blocks =
            u32::try_from(self.offset / BLOCK_BYTES as u64).expect("a segment has at most 1 GiB");
        header[20..24].copy_from_slice(&offset_blocks.to_le_bytes());
        header[24..32].copy_from_slice(&self.first_lsn.0.to_le_bytes());
        header[32..40].copy_from_slice(&self.durable_lsn.0.to_le_bytes());
        header[40..44].copy_from_slice(&self.record_count.to_le_bytes());
        header[44..48].copy_from_slice(&self.body_bytes.to_le_bytes());
        header[48..56].copy_from_slice(&self.time_ms.to_le_bytes());
        header[56..60].copy_from_slice(&body_crc.to_le_bytes());
        let crc = header_crc(home, header);
        header[60..64].copy_from_slice(&crc.to_le_bytes());
    }

    /// Lets a sealed frame tell that the log is durable up to `lsn`, which is before its first
    /// record.
    pub fn announce_durable(home: FrameHome, frame: &mut [u8], lsn: Lsn) {
        let header: &mut [u8; FRAME_HEADER_BYTES] =
            frame.first_chunk_mut().expect("a frame has a header");
        let durable = lsn.0.to_le_bytes();
        if header[32..40] != durable {
            header[32..40].copy_from_slice(&durable);
            let crc = header_crc(home, header);
            header[60..64].copy_from_slice(&crc.to_le_bytes());
        }
    }

    /// Reads the header at the start of `bytes`, which stands at `offset` of the segment `home`.
    ///
    /// # Errors
    /// [`FrameError`] if it is not a frame header of this place, or one of another format.
    pub fn read(home: FrameHome, offset: u64, bytes: &[u8]) -> Result<Self, FrameError> {
        let header: &[u8; FRAME_HEADER_BYTES] = bytes.first_chunk().ok_or(FrameError::Absent)?;
        let is_ours = read_u32(&header[0..4]) == FRAME_MAGIC
            && read_u64(&header[8..16]) == home.log_id
            && header[16..20] == home.segment_sequence.to_le_bytes()[..4]
            && u64::from(read_u32(&header[20..24])) * BLOCK_BYTES as u64 == offset
            && read_u32(&header[60..64]) == header_crc(home, header);
        if !is_ours {
            return Err(FrameError::Absent);
        }
        let (version, kind, flags) = (
            u16::from_le_bytes([header[4], header[5]]),
            header[6],
            header[7],
        );
        let unsupported = FrameError::Unsupported {
            version,
            kind,
            flags,
        };
        if version != FRAME_VERSION || flags != 0 {
            return Err(unsupported);
        }
        let kind = match kind {
            1 => FrameKind::Commit,
            2 => FrameKind::Mark,
            3 => FrameKind::Summary,
            4 => FrameKind::Repair,
            5 => FrameKind::Contents,
            _ => return Err(unsupported),
        };
        Ok(FrameHeader {
            kind,
            offset,
            first_lsn: Lsn(read_u64(&header[24..32])),
            durable_lsn: Lsn(read_u64(&header[32..40])),
            record_count: read_u32(&header[40..44]),
            body_bytes: read_u32(&header[44..48]),
            time_ms: read_u64(&header[48..56]),
        })
    }

    /// The body CRC that the header of `frame` tells, and one that is begun: to be given the bytes
    /// behind the header up to the padded end, in pieces.
    pub(crate) fn body_crc_in_pieces(home: FrameHome, frame: &[u8]) -> (u32, Hasher) {
        (read_u32(&frame[56..60]), salted(home))
    }

    /// Whether `frame`, of exactly [`FrameHeader::padded_bytes`], holds the body that was sealed.
    #[must_use]
    pub fn body_is_intact(home: FrameHome, frame: &[u8]) -> bool {
        read_u32(&frame[56..60]) == body_crc(home, frame) || is_planted(Bug::ReplayHalfFrame)
    }
}

/// Bytes on the device of a frame whose body has `body_bytes`.
#[inline]
#[must_use]
pub const fn padded_bytes(body_bytes: usize) -> usize {
    (FRAME_HEADER_BYTES + body_bytes).next_multiple_of(BLOCK_BYTES)
}

fn body_crc(home: FrameHome, frame: &[u8]) -> u32 {
    salted_crc(home, &frame[FRAME_HEADER_BYTES..])
}

fn header_crc(home: FrameHome, header: &[u8; FRAME_HEADER_BYTES]) -> u32 {
    salted_crc(home, &header[..60])
}

/// CRC-32 over the eight bytes of the salt, then `bytes`: a frame of an earlier use of the file
/// has another salt and does not check.
fn salted_crc(home: FrameHome, bytes: &[u8]) -> u32 {
    let mut hasher = salted(home);
    hasher.update(bytes);
    hasher.finalize()
}

fn salted(home: FrameHome) -> Hasher {
    let mut hasher = Hasher::new();
    hasher.update(&home.salt.to_le_bytes());
    hasher
}
