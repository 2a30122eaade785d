//! Why bytes from another node were not accepted. The link ends with it.

use std::fmt;

use crate::link::limits::LINK_VERSION;

/// One cause per variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each variant's text stands in Display")]
pub enum LinkFault {
    Magic(u8),
    Version(u8),
    HeaderCrc {
        found: u32,
        computed: u32,
    },
    BodyCrc {
        found: u32,
        computed: u32,
    },
    FrameLength {
        len: u32,
        max: u32,
    },
    Kind(u8),
    Number {
        found: u64,
        expected: u64,
    },
    Reserved {
        name: &'static str,
    },
    BodyLength {
        kind: &'static str,
        len: usize,
        needed: usize,
    },
    Field {
        name: &'static str,
        found: u64,
        max: u64,
    },
    HistoryOrder {
        entry: usize,
    },
    Text,
}

impl fmt::Display for LinkFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            LinkFault::Magic(found) => write!(
                f,
                "the frame begins with {found:#04x}, which is none of a link: is the other side a client?"
            ),
            LinkFault::Version(found) => {
                write!(f, "link version {found}; this node speaks {LINK_VERSION}")
            }
            LinkFault::HeaderCrc { found, computed } => {
                write!(f, "header CRC {found:#010x}, computed {computed:#010x}")
            }
            LinkFault::BodyCrc { found, computed } => {
                write!(f, "body CRC {found:#010x}, computed {computed:#010x}")
            }
            LinkFault::FrameLength { len, max } => write!(
                f,
                "a frame of {len} bytes; lengths are 48 to {max} and multiples of 8"
            ),
            LinkFault::Kind(found) => write!(f, "kind {found} is none"),
            LinkFault::Number { found, expected } => {
                write!(f, "frame {found} came in the place of frame {expected}")
            }
            LinkFault::Reserved { name } => write!(f, "{name} must be zero"),
            LinkFault::BodyLength { kind, len, needed } => {
                write!(f, "{kind} has {len} bytes; it needs {needed}")
            }
            LinkFault::Field { name, found, max } => {
                write!(
                    f,
                    "{name} is {found}, which there is not; the highest is {max}"
                )
            }
            LinkFault::HistoryOrder { entry } => write!(
                f,
                "entry {entry} of a history is not behind the one before it"
            ),
            LinkFault::Text => write!(f, "the text of a refusal is no UTF-8"),
        }
    }
}

impl std::error::Error for LinkFault {}
