//! Why bytes from the wire were not accepted: the value that was wrong and the limit it broke.

use std::fmt;

use crate::limits::{
    BATCH_ITEMS_MAX, CLIENT_NAME_BYTES_MAX, EXPIRY_MS_MAX, HISTORY_VERSIONS_MAX, INSTRUCTIONS_MAX,
    KEY_BYTES_MAX, KEYSPACE_BYTES_MAX,
};
use crate::slot::SLOTS;
use crate::status::Status;

/// The prefix of a keyspace, to be told in a message.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct KeyspaceName {
    len: usize,
    bytes: [u8; KEYSPACE_BYTES_MAX],
}

impl KeyspaceName {
    /// The name of a prefix; what is over the limit is left out.
    #[must_use]
    pub fn new(prefix: &[u8]) -> Self {
        let len = prefix.len().min(KEYSPACE_BYTES_MAX);
        let mut bytes = [0; KEYSPACE_BYTES_MAX];
        bytes[..len].copy_from_slice(&prefix[..len]);
        KeyspaceName { len, bytes }
    }
}

impl fmt::Debug for KeyspaceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.bytes[..self.len].escape_ascii())
    }
}

/// One cause per variant; the text of `Display` goes to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(
    missing_docs,
    reason = "each variant's text stands in Display, where clients read it"
)]
pub enum Refusal {
    Magic(u8),
    Version(u8),
    HeaderCrc {
        found: u32,
        computed: u32,
    },
    FrameLength(u32),
    FrameTooLarge {
        len: u32,
        max: u32,
    },
    InputBytes {
        held: usize,
        max: usize,
    },
    BodyCrc {
        found: u32,
        computed: u32,
    },
    Opcode(u8),
    HeaderFlags(u8),
    SlotHint(u16),
    Level(u8),
    Reserved {
        name: &'static str,
        found: u64,
    },
    Padding {
        behind: &'static str,
    },
    HelloExpected {
        opcode: u8,
    },
    HelloRepeated,
    RequestUnderWay(u64),
    HelloLength {
        len: usize,
        needed: usize,
    },
    InfoBody {
        len: usize,
    },
    ProtocolRange {
        min: u16,
        max: u16,
    },
    ClientName {
        len: u16,
    },
    Placement {
        what: &'static str,
    },
    BatchBody {
        len: usize,
        needed: usize,
    },
    BatchCount(u32),
    BatchIndex {
        item: usize,
        offset: u32,
        len: u32,
        expected: usize,
        left: usize,
    },
    ItemLength {
        len: usize,
        needed: u64,
    },
    Operation(u8),
    OperationFlags {
        operation: u8,
        flags: u8,
    },
    BlockLength {
        found: u16,
        expected: usize,
    },
    KeyCount {
        operation: u8,
        count: u8,
    },
    InstructionCount {
        operation: u8,
        count: u8,
    },
    ExtensionTag(u16),
    ExtensionOperation {
        tag: u16,
        operation: u8,
    },
    ExtensionLength(u16),
    KeyLength {
        key: u8,
        len: u16,
    },
    KeyReserved {
        key: u8,
    },
    KeyspaceLength {
        len: u16,
    },
    KeyspaceList {
        len: usize,
    },
    KeyspaceSettings {
        len: u32,
        needed: usize,
    },
    Retention {
        name: &'static str,
        ms: u64,
        max: u64,
    },
    HistoryLimit(u32),
    AtUnsaid {
        flags: u8,
    },
    KeyspaceValueLength {
        len: usize,
        max: u32,
        keyspace: KeyspaceName,
    },
    ValueLength {
        len: u32,
        max: u32,
    },
    ValueUnexpected {
        operation: u8,
        len: u32,
    },
    Expiry(u64),
    Lifetime {
        ms: u64,
        now_ms: u64,
    },
    InstructionOperation {
        instruction: usize,
        found: u8,
    },
    InstructionType {
        instruction: usize,
        found: u8,
    },
    InstructionKey {
        instruction: usize,
        key: u8,
    },
    InstructionField {
        instruction: usize,
    },
    Immediate {
        instruction: usize,
        field_type: &'static str,
        immediate: u64,
    },
    CrossSlot {
        first: u16,
        second: u16,
    },
    Field {
        instruction: usize,
        offset: u32,
        width: usize,
        value_len: usize,
    },
    ScanLimit {
        name: &'static str,
        found: u32,
        min: u32,
        max: u32,
    },
    ScanPage {
        entry: u32,
    },
    Replica,
    Status(u16),
}

impl Refusal {
    /// The status that the reply carries.
    #[must_use]
    pub fn status(self) -> Status {
        match self {
            Refusal::FrameTooLarge { .. }
            | Refusal::ValueLength { .. }
            | Refusal::KeyspaceValueLength { .. } => Status::TooLarge,
            Refusal::InputBytes { .. } => Status::Busy,
            Refusal::HelloExpected { .. } => Status::HelloExpected,
            Refusal::KeyLength { .. }
            | Refusal::KeyReserved { .. }
            | Refusal::KeyspaceLength { .. }
            | Refusal::KeyspaceList { .. } => Status::BadKey,
            Refusal::CrossSlot { .. } => Status::CrossSlot,
            Refusal::Field { .. } => Status::BadField,
            Refusal::Opcode(_)
            | Refusal::Operation(_)
            | Refusal::ProtocolRange { .. }
            | Refusal::ExtensionTag(_)
            | Refusal::ExtensionOperation { .. }
            | Refusal::Replica => Status::Unsupported,
            _ => Status::Malformed,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Refusal::Magic(found) => write!(
                f,
                "byte 4 of a frame is 0xe7, not {found:#04x}: this is not the Penstock protocol"
            ),
            Refusal::Version(found) => write!(f, "protocol version is 1, not {found}"),
            Refusal::HeaderCrc { found, computed } => {
                write!(f, "header CRC is {computed:#010x}, not {found:#010x}")
            }
            Refusal::FrameLength(len) => write!(
                f,
                "frame length is a multiple of 8 and at least 32, not {len}"
            ),
            Refusal::FrameTooLarge { len, max } => {
                write!(f, "frame of {len} bytes; at most {max} are accepted")
            }
            Refusal::InputBytes { held, max } => write!(
                f,
                "{held} bytes of frames wait to be whole or to be run, of {max} that may: send it again later, or in smaller frames"
            ),
            Refusal::BodyCrc { found, computed } => {
                write!(f, "body CRC is {computed:#010x}, not {found:#010x}")
            }
            Refusal::Opcode(found) => write!(f, "opcode {found:#04x} is not known"),
            Refusal::HeaderFlags(found) => write!(f, "request flags are 0, not {found:#04x}"),
            Refusal::SlotHint(found) => write!(
                f,
                "slot hint is a slot below {SLOTS} or 0xffff for none, not {found:#06x}"
            ),
            Refusal::Level(found) => write!(f, "ack level is 0 to 3, not {found}"),
            Refusal::Reserved { name, found } => {
                write!(f, "{name} is reserved and 0, not {found:#x}")
            }
            Refusal::Padding { behind } => write!(f, "padding behind {behind} is zero"),
            Refusal::HelloExpected { opcode } => {
                write!(f, "the first frame is HELLO (0x01), not {opcode:#04x}")
            }
            Refusal::HelloRepeated => write!(f, "HELLO was said already"),
            Refusal::RequestUnderWay(id) => write!(
                f,
                "request id {id} is under way on this connection; it is free when all its items are answered"
            ),
            Refusal::HelloLength { len, needed } => {
                write!(f, "HELLO body of {len} bytes; its fields need {needed}")
            }
            Refusal::InfoBody { len } => {
                write!(f, "INFO has no body, {len} bytes were given")
            }
            Refusal::ProtocolRange { min, max } => write!(
                f,
                "protocol versions {min} to {max} are offered; this server speaks 1"
            ),
            Refusal::ClientName { len } => write!(
                f,
                "client name of {len} bytes; at most {CLIENT_NAME_BYTES_MAX} bytes of UTF-8 are accepted"
            ),
            Refusal::Placement { what } => write!(f, "the placement in HELLO: {what}"),
            Refusal::BatchBody { len, needed } => {
                write!(
                    f,
                    "batch body of {len} bytes; its count and index need {needed}"
                )
            }
            Refusal::BatchCount(found) => {
                write!(f, "a batch has 1 to {BATCH_ITEMS_MAX} items, not {found}")
            }
            Refusal::BatchIndex {
                item,
                offset,
                len,
                expected,
                left,
            } => write!(
                f,
                "item {item} of the batch starts at {expected} and has a multiple of 8 from 8 to {left} bytes, not {len} at {offset}"
            ),
            Refusal::ItemLength { len, needed } => {
                write!(f, "item of {len} bytes; its fields need {needed}")
            }
            Refusal::Operation(found) => write!(f, "operation {found} is not known"),
            Refusal::OperationFlags { operation, flags } => write!(
                f,
                "flags {flags:#04x} are not allowed for operation {operation}"
            ),
            Refusal::BlockLength { found, expected } => write!(
                f,
                "block length is {expected} for these fields, not {found}"
            ),
            Refusal::KeyCount { operation, count } => {
                write!(f, "operation {operation} does not take {count} keys")
            }
            Refusal::InstructionCount { operation, count } => write!(
                f,
                "operation {operation} does not take {count} instructions; at most {INSTRUCTIONS_MAX} are accepted by UPDATE_IF"
            ),
            Refusal::ExtensionTag(tag) => write!(f, "extension tag {tag} is not supported"),
            Refusal::ExtensionOperation { tag, operation } => write!(
                f,
                "operation {operation} does not take extension tag {tag}; GET does"
            ),
            Refusal::ExtensionLength(len) => write!(
                f,
                "extension area of {len} bytes is not of the documented form"
            ),
            Refusal::KeyLength { key, len } => write!(
                f,
                "key {key} has {len} bytes; 1 to {KEY_BYTES_MAX} are accepted"
            ),
            Refusal::KeyReserved { key } => write!(
                f,
                "key {key} begins with \\0\\0penstock/, which is reserved for the server's own keys"
            ),
            Refusal::KeyspaceLength { len } => write!(
                f,
                "the prefix of a keyspace has {len} bytes; 0 to {KEYSPACE_BYTES_MAX} are accepted"
            ),
            Refusal::KeyspaceList { len } => write!(
                f,
                "all keyspaces are told, with an empty prefix; this one has {len} bytes"
            ),
            Refusal::KeyspaceSettings { len, needed } => {
                write!(f, "settings of {len} bytes; this action takes {needed}")
            }
            Refusal::Retention { name, ms, max } => {
                write!(
                    f,
                    "{name} of a keyspace is 0 to {max} milliseconds, not {ms}"
                )
            }
            Refusal::HistoryLimit(found) => write!(
                f,
                "a history tells 1 to {HISTORY_VERSIONS_MAX} versions at a time, not {found}"
            ),
            Refusal::AtUnsaid { flags } => write!(
                f,
                "a time (flag 0x20) or a version (flag 0x04) must be given, one of them; the flags are {flags:#04x}"
            ),
            Refusal::KeyspaceValueLength { len, max, keyspace } => write!(
                f,
                "value of {len} bytes; keyspace {keyspace:?} accepts at most {max}"
            ),
            Refusal::ValueLength { len, max } => {
                write!(f, "value of {len} bytes; at most {max} are accepted")
            }
            Refusal::ValueUnexpected { operation, len } => write!(
                f,
                "operation {operation} takes no value here, {len} bytes were given"
            ),
            Refusal::Expiry(ms) => write!(
                f,
                "an expiry is 1 to {EXPIRY_MS_MAX} milliseconds, not {ms}"
            ),
            Refusal::Lifetime { ms, now_ms } => write!(
                f,
                "{ms} milliseconds after {now_ms} is too far: an expiry is at most {EXPIRY_MS_MAX}"
            ),
            Refusal::InstructionOperation { instruction, found } => write!(
                f,
                "instruction {instruction} has the unknown operation {found}"
            ),
            Refusal::InstructionType { instruction, found } => write!(
                f,
                "instruction {instruction} has the unknown field type {found:#04x}"
            ),
            Refusal::InstructionKey { instruction, key } => write!(
                f,
                "instruction {instruction} names key {key}, which the operation does not have"
            ),
            Refusal::InstructionField { instruction } => write!(
                f,
                "instruction {instruction} is about a whole key: its type, offset and number are 0"
            ),
            Refusal::Immediate {
                instruction,
                field_type,
                immediate,
            } => write!(
                f,
                "instruction {instruction}: {immediate:#x} is outside the range of {field_type}"
            ),
            Refusal::CrossSlot { first, second } => write!(
                f,
                "the keys route to slots {first} and {second}; one operation stays in one slot (use a {{tag}})"
            ),
            Refusal::Field {
                instruction,
                offset,
                width,
                value_len,
            } => write!(
                f,
                "instruction {instruction}: a field of {width} bytes at offset {offset} lies outside the value of {value_len} bytes"
            ),
            Refusal::ScanLimit {
                name,
                found,
                min,
                max,
            } => write!(f, "{name} of a scan are {min} to {max}, not {found}"),
            Refusal::ScanPage { entry } => {
                write!(f, "entry {entry} of a page does not fit the page")
            }
            Refusal::Replica => write!(
                f,
                "ack level replica is for operations on the nodes of a cluster, neither on a node alone nor for settings"
            ),
            Refusal::Status(found) => write!(f, "status {found:#06x} is not known"),
        }
    }
}

impl std::error::Error for Refusal {}
