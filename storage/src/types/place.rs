//! Where things stand: files, records in the order of their log, parts in files.

/// One segment file of the data directory: the number in its name (`00000007.seg` is `FileId(7)`).
///
/// A file keeps its number as long as it exists. Only its header says what it holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub u32);

/// Numbers of segments are far lower.
const KEY_TABLE_BIT: u32 = 1 << 31;

impl FileId {
    /// The file of this segment's key table. It is only read, and never by the log.
    #[must_use]
    pub const fn key_table(self) -> FileId {
        FileId(self.0 | KEY_TABLE_BIT)
    }

    /// The segment whose key table this file is, if it is one.
    #[must_use]
    pub const fn segment_of_table(self) -> Option<FileId> {
        match self.0 & KEY_TABLE_BIT {
            0 => None,
            _ => Some(FileId(self.0 & !KEY_TABLE_BIT)),
        }
    }
}

/// The ordinal of a record in its log, dense from 1; 0 is before the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lsn(pub u64);

/// Where a part stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Place {
    /// The segment file.
    pub file: FileId,
    /// Offset of the part in the file, a multiple of 8.
    pub offset: u64,
    /// Bytes from there on that hold the part, a multiple of 8: its length as
    /// [`rounded_bytes`] tells it. The file may end before.
    pub bytes: u32,
}

impl Place {
    /// The place of a part of `part_bytes`.
    #[inline]
    #[must_use]
    pub fn new(file: FileId, offset: u64, part_bytes: usize) -> Self {
        let bytes = u32::try_from(part_bytes).expect("a part is bounded by the record limits");
        Place {
            file,
            offset,
            bytes: rounded_bytes(bytes),
        }
    }

    /// Bytes that the part has at least: `bytes` is rounded up.
    #[must_use]
    pub fn part_bytes_min(&self) -> usize {
        match code_of(self.bytes) {
            code @ ..32 => bytes_of(code) as usize,
            code => bytes_of(code - 1) as usize + 8,
        }
    }
}

/// Bits of a length as a place keeps it.
pub(super) const BYTES_BITS: u32 = 9;

/// Bytes of a part as an entry tells them: rounded up to five significant bits of units of eight
/// bytes, so at most a sixteenth too many. Rounding twice changes nothing more.
#[inline]
#[must_use]
pub fn rounded_bytes(bytes: u32) -> u32 {
    bytes_of(code_of(bytes))
}

/// The code of a part that fills the largest segment.
pub(super) const CODE_MAX: u32 = code_of(1 << 30);

#[inline]
pub(super) const fn code_of(bytes: u32) -> u32 {
    let units = bytes.div_ceil(8);
    if units < 32 {
        return units;
    }
    let shift = units.ilog2() - 4;
    // Rounding up may carry into the next power of two, whose code is the next one as well.
    let code = shift * 16 + units.div_ceil(1 << shift);
    assert!(code < 1 << BYTES_BITS, "a part is shorter than a segment");
    code
}

#[inline]
pub(super) fn bytes_of(code: u32) -> u32 {
    if code < 32 {
        return code * 8;
    }
    let shift = code / 16 - 1;
    ((16 + code % 16) << shift) * 8
}

/// Where an earlier run of the log ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogStart {
    /// Sequence of its last segment; 0 if there is none.
    pub last_sequence: u64,
    /// Where the frames of that segment end.
    pub end_offset: u64,
    /// Its last record.
    pub last_lsn: Lsn,
    /// Nothing on disk proves yet that it ended there: the header of the next segment must, or
    /// damage done later would look like the torn end of a crash.
    pub is_unproven: bool,
}

/// The end of a frame up to which a log is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogPosition {
    /// Sequence of its segment, which holds a record up to here.
    pub sequence: u64,
    /// The file of that segment.
    pub file: FileId,
    /// The salt of that segment.
    pub salt: u64,
    /// Where the frame ends.
    pub offset: u64,
    /// The last record up to here.
    pub lsn: Lsn,
    /// The frame does not tell that record durable.
    pub is_unproven: bool,
    /// The log told by then that it had released a segment.
    pub has_released: bool,
}
