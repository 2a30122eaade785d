//! The frame of a link: header, body and checksums. Both directions use it.

use crate::batch::{read_u32, read_u64};
use crate::link::fault::LinkFault;
use crate::link::message::LinkMessage;

pub use crate::link::limits::{
    LINK_FRAME_BYTES_BEFORE_PROOF_MAX, LINK_VERSION, LINK_VERSION_LEVEL_ALL,
    LINK_VERSION_MANY_PARTS, LINK_VERSION_MAX, LINK_VERSION_MEMBERS, LINK_VERSION_PUBLISH,
};

/// Bytes of a frame before its body.
pub const LINK_HEADER_BYTES: usize = 48;
/// Byte 4 of every frame of a link. Frames of clients have another byte there.
pub const LINK_MAGIC: u8 = 0xD7;

/// How far the sender of a frame is. Both directions count frames of the source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// By the source: the records in its frames up to this number are durable on its own disk. By
    /// the destination: they are durable on the destination's disk.
    pub durable: u64,
    /// By the destination: it has received the frames up to this number. By the source this field
    /// is no mark but an *echo*, a clock that the destination has sent. When that clock arrived,
    /// the source had certain records of joined partitions. All of them are in the frames up to
    /// this one. The newest such clock counts; 0 if there is none.
    pub received: u64,
}

/// The header of a frame, without lengths and checksums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkHeader {
    /// Number of the frame. Each direction counts from 1.
    pub number: u64,
    /// How far the sender is. The reader judges the message first, then the marks.
    pub marks: Marks,
    /// By the source: the time of its store in unix milliseconds. By the destination: its own clock
    /// in microseconds if it asks for an echo, otherwise 0.
    pub time: u64,
}

/// A whole frame that was checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkFrame<'a> {
    /// Number, marks and time.
    pub header: LinkHeader,
    /// The decoded body.
    pub message: LinkMessage<'a>,
    /// Length of the frame. The caller drops so many bytes from the front of the buffer.
    pub bytes: usize,
}

/// What stands at the start of the received bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkReceived<'a> {
    /// Not a whole frame yet.
    Incomplete {
        /// Bytes that must stand in the buffer before it is worth asking again.
        frame_bytes: usize,
    },
    /// A whole frame.
    Frame(LinkFrame<'a>),
}

/// Reads the frame at the start of `bytes`. It must have at most `frame_bytes_max` bytes and the
/// number `number`.
///
/// # Errors
/// [`LinkFault`]. No further frame can be read from the link.
pub fn read_link_frame(
    bytes: &[u8],
    number: u64,
    frame_bytes_max: u32,
) -> Result<LinkReceived<'_>, LinkFault> {
    let Some(head) = bytes.first_chunk::<LINK_HEADER_BYTES>() else {
        // Another protocol may send fewer bytes than this header has. Byte 4 is enough to refuse
        // it.
        return match bytes.get(4) {
            Some(&magic) if magic != LINK_MAGIC => Err(LinkFault::Magic(magic)),
            _ => Ok(LinkReceived::Incomplete {
                frame_bytes: LINK_HEADER_BYTES,
            }),
        };
    };
    if head[4] != LINK_MAGIC {
        return Err(LinkFault::Magic(head[4]));
    }
    let (found, computed) = (read_u32(head, 44), crc32fast::hash(&head[..44]));
    if found != computed {
        return Err(LinkFault::HeaderCrc { found, computed });
    }
    if head[5] != LINK_VERSION {
        return Err(LinkFault::Version(head[5]));
    }
    let len = read_u32(head, 0);
    if len < 48 || len > frame_bytes_max || !len.is_multiple_of(8) {
        return Err(LinkFault::FrameLength {
            len,
            max: frame_bytes_max,
        });
    }
    if head[7] != 0 {
        return Err(LinkFault::Reserved {
            name: "the byte behind the kind of a frame",
        });
    }
    let header = LinkHeader {
        number: read_u64(head, 8),
        marks: Marks {
            durable: read_u64(head, 16),
            received: read_u64(head, 24),
        },
        time: read_u64(head, 32),
    };
    if header.number != number {
        return Err(LinkFault::Number {
            found: header.number,
            expected: number,
        });
    }
    let frame_bytes = len as usize;
    let Some(body) = bytes.get(LINK_HEADER_BYTES..frame_bytes) else {
        return Ok(LinkReceived::Incomplete { frame_bytes });
    };
    let (found, computed) = (read_u32(head, 40), crc32fast::hash(body));
    if found != computed {
        return Err(LinkFault::BodyCrc { found, computed });
    }
    Ok(LinkReceived::Frame(LinkFrame {
        header,
        message: LinkMessage::read(head[6], body)?,
        bytes: frame_bytes,
    }))
}

/// Appends a whole frame.
///
/// # Panics
/// If the message breaks a limit of its kind. Callers keep to the limits.
pub fn write_link_frame(out: &mut Vec<u8>, header: LinkHeader, message: &LinkMessage<'_>) {
    let start = begin_link_frame(out);
    message.write(out);
    finish_link_frame(out, start, header, message.kind());
}

/// Appends the place of a header and returns where it begins. The caller appends the body and gives
/// the returned number to [`finish_link_frame`].
pub fn begin_link_frame(out: &mut Vec<u8>) -> usize {
    let start = out.len();
    out.resize(start + LINK_HEADER_BYTES, 0);
    start
}

/// Writes the header of the frame that begins at `start`, whose body of `kind` is complete.
///
/// # Panics
/// If the body is not a multiple of 8 bytes, or over 4 GiB.
pub fn finish_link_frame(out: &mut [u8], start: usize, header: LinkHeader, kind: u8) {
    let frame = &mut out[start..];
    assert!(frame.len().is_multiple_of(8), "bodies are padded");
    let len = u32::try_from(frame.len()).expect("a frame is bounded by what its reader accepts");
    let (head, body) = frame
        .split_first_chunk_mut::<LINK_HEADER_BYTES>()
        .expect("the header's place was appended first");
    head[0..4].copy_from_slice(&len.to_le_bytes());
    head[4..8].copy_from_slice(&[LINK_MAGIC, LINK_VERSION, kind, 0]);
    head[8..16].copy_from_slice(&header.number.to_le_bytes());
    head[16..24].copy_from_slice(&header.marks.durable.to_le_bytes());
    head[24..32].copy_from_slice(&header.marks.received.to_le_bytes());
    head[32..40].copy_from_slice(&header.time.to_le_bytes());
    head[40..44].copy_from_slice(&crc32fast::hash(body).to_le_bytes());
    let crc = crc32fast::hash(&head[..44]);
    head[44..48].copy_from_slice(&crc.to_le_bytes());
}
