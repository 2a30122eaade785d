//! Why bytes from another node were not accepted. The link ends with it.

use thiserror::Error;

use crate::link::limits::LINK_VERSION;

/// What is wrong with the bytes. Each variant is one cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[expect(missing_docs, reason = "each variant has a text")]
pub enum LinkFault {
    #[error(
        "the frame begins with {0:#04x}, which is none of a link: is the other side a \
         client?"
    )]
    Magic(u8),
    #[error("link version {0}; this node speaks {link_version}", link_version = LINK_VERSION)]
    Version(u8),
    #[error("header CRC {found:#010x}, computed {computed:#010x}")]
    HeaderCrc { found: u32, computed: u32 },
    #[error("body CRC {found:#010x}, computed {computed:#010x}")]
    BodyCrc { found: u32, computed: u32 },
    #[error("a frame of {len} bytes; lengths are 48 to {max} and multiples of 8")]
    FrameLength { len: u32, max: u32 },
    #[error("kind {0} is none")]
    Kind(u8),
    #[error("frame {found} came in the place of frame {expected}")]
    Number { found: u64, expected: u64 },
    #[error("{name} must be zero")]
    Reserved { name: &'static str },
    #[error("{kind} has {len} bytes; it needs {needed}")]
    BodyLength {
        kind: &'static str,
        len: usize,
        needed: usize,
    },
    #[error("{name} is {found}, which there is not; the highest is {max}")]
    Field {
        name: &'static str,
        found: u64,
        max: u64,
    },
    #[error("entry {entry} of a history is not behind the one before it")]
    HistoryOrder { entry: usize },
    #[error("claim {entry} of a heartbeat is not behind the one before it")]
    ClaimOrder { entry: usize },
    #[error("a heartbeat has number 0; the first one is 1")]
    NoNumber,
    #[error("the text of a refusal is no UTF-8")]
    Text,
}
