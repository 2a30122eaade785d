//! What a log tells of itself.

use crate::format::frame::FrameHome;
use crate::format::record::PartKind;
use crate::types::io::IoFailure;
use crate::types::place::FileId;
use crate::types::place::Lsn;
use crate::types::version::Version;

/// What a copy that cleaning makes is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moved {
    /// The newest part of its key, as this.
    As(PartKind),
    /// A deletion that is kept and the newest version of its key.
    Deletion,
    /// A version that this one superseded and that is kept.
    Superseded(Version),
}

/// Where the durable part of a log ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DurableEnd {
    /// The log.
    pub log_id: u64,
    /// Its last durable record.
    pub lsn: Lsn,
    /// Sequence of the segment with the last durable frame of any kind; 0 if there is none.
    pub segment_sequence: u64,
    /// Where that frame ends.
    pub end_offset: u64,
}

/// A segment that can be read, as far as it is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DurableSegment {
    /// The file.
    pub file: FileId,
    /// What its frames are checked by.
    pub home: FrameHome,
    /// Where the durable ones end.
    pub end_offset: u64,
    /// Nothing more comes behind that.
    pub is_whole: bool,
}

/// A frame of records that was sealed: it goes to the disk now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealedFrame {
    /// Its first record.
    pub first: Lsn,
    /// The parts of its records.
    pub bytes: Vec<u8>,
}

/// The log accepts and acknowledges nothing more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Poisoned {
    /// What failed.
    pub failure: IoFailure,
    /// The file.
    pub file: FileId,
    /// The offset of the write, or of the first write that the sync was to cover.
    pub offset: u64,
}

/// What the log has done since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogCounters {
    /// Records appended.
    pub records: u64,
    /// Bytes of those records.
    pub record_bytes: u64,
    /// Commit frames sealed.
    pub frames: u64,
    /// Durable writes and syncs asked of the device.
    pub flushes: u64,
    /// Bytes written to the device.
    pub device_bytes: u64,
    /// Bytes of those that fill frames up to the block size.
    pub padding_bytes: u64,
    /// Mark frames.
    pub marks: u64,
    /// Segments taken into use.
    pub segments: u64,
    /// Records of those that cleaning moved.
    pub moved_records: u64,
    /// Bytes of those.
    pub moved_bytes: u64,
    /// Segments released.
    pub released: u64,
    /// Bytes of the frames that hold a commit, as the device sees them.
    pub commit_bytes: u64,
}

impl LogCounters {
    /// Bytes of all records but those that cleaning moved.
    pub(crate) fn appended_bytes(&self) -> u64 {
        self.record_bytes - self.moved_bytes
    }
}
