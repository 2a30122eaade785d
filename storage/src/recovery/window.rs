//! Reads of a segment file, a long stretch at a time.

use crate::recovery::refusal::RecoveryError;
use crate::types::io::SegmentSource;
use crate::types::place::FileId;

/// Bytes asked of the source at a time.
pub(super) const CHUNK_BYTES: usize = 1 << 20;

pub(super) fn read_at(
    source: &mut impl SegmentSource,
    file: FileId,
    offset: u64,
    into: &mut [u8],
) -> Result<usize, RecoveryError> {
    source
        .read_at(file, offset, into)
        .map_err(|error| RecoveryError::Read {
            file: Some(file),
            error,
        })
}

/// A stretch of a file in memory.
pub(super) struct Window {
    pub(super) file: FileId,
    pub(super) start: u64,
    pub(super) filled: usize,
}

impl Window {
    /// `len` bytes at `offset`, or `None` if the file ends before. `len` comes from a header that
    /// checks and is bounded by the segment.
    pub(super) fn bytes<'b>(
        &mut self,
        source: &mut impl SegmentSource,
        buffer: &'b mut Vec<u8>,
        offset: u64,
        len: usize,
    ) -> Result<Option<&'b [u8]>, RecoveryError> {
        let held = offset
            .checked_sub(self.start)
            .and_then(|skip| usize::try_from(skip).ok())
            .filter(|skip| skip + len <= self.filled);
        let skip = match held {
            Some(skip) => skip,
            None => {
                buffer.resize(buffer.len().max(len).max(CHUNK_BYTES), 0);
                self.filled = read_at(source, self.file, offset, buffer)?;
                self.start = offset;
                0
            }
        };
        Ok((skip + len <= self.filled).then(|| &buffer[skip..skip + len]))
    }
}
