//! Why bytes from the wire were not accepted: the value that was wrong and the limit it broke.

use std::fmt;

use thiserror::Error;

use crate::apply::Rate;
use crate::auth::AuthFault;
use crate::limits::{
    APPLY_KEYS_MAX, BATCH_ITEMS_MAX, CLIENT_NAME_BYTES_MAX, EFFECTS_BYTES_MAX, EXPIRY_MS_MAX,
    FEW_KEYS_MAX, HISTORY_VERSIONS_MAX, INSTRUCTIONS_MAX, KEY_BYTES_MAX, KEYSPACE_BYTES_MAX,
    PROGRAM_ARGUMENTS_MAX, PROGRAM_NAME_BYTES_MAX, TOKEN_AHEAD_MS_MAX,
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

/// The name of a program or of an argument, to be told in a message.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ShownName {
    len: u8,
    bytes: [u8; PROGRAM_NAME_BYTES_MAX],
}

impl ShownName {
    /// The name; what is over the limit is left out.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let len = name.len().min(PROGRAM_NAME_BYTES_MAX);
        let mut bytes = [0; PROGRAM_NAME_BYTES_MAX];
        bytes[..len].copy_from_slice(&name.as_bytes()[..len]);
        let len = u8::try_from(len).expect("a short name");
        ShownName { len, bytes }
    }

    /// As it stands; empty if it was cut within a letter.
    #[must_use]
    pub fn as_str(&self) -> &str {
        str::from_utf8(&self.bytes[..usize::from(self.len)]).unwrap_or_default()
    }
}

impl fmt::Display for ShownName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.bytes[..usize::from(self.len)].escape_ascii())
    }
}

impl fmt::Debug for ShownName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// One cause per variant; the text of `Display` goes to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[expect(missing_docs, reason = "each variant has the text that clients read")]
pub enum Refusal {
    #[error("byte 4 of a frame is 0xe7, not {0:#04x}: this is not the Penstock protocol")]
    Magic(u8),
    #[error("protocol version is 1, not {0}")]
    Version(u8),
    #[error("header CRC is {computed:#010x}, not {found:#010x}")]
    HeaderCrc { found: u32, computed: u32 },
    #[error("frame length is a multiple of 8 and at least 32, not {0}")]
    FrameLength(u32),
    #[error("frame of {len} bytes; at most {max} are accepted")]
    FrameTooLarge { len: u32, max: u32 },
    #[error(
        "{held} bytes of frames wait to be whole or to be run, of {max} that may: send it \
         again later, or in smaller frames"
    )]
    InputBytes { held: usize, max: usize },
    #[error("body CRC is {computed:#010x}, not {found:#010x}")]
    BodyCrc { found: u32, computed: u32 },
    #[error("opcode {0:#04x} is not known")]
    Opcode(u8),
    #[error("request flags are 0, not {0:#04x}")]
    HeaderFlags(u8),
    #[error("slot hint is a slot below {slots} or 0xffff for none, not {0:#06x}", slots = SLOTS)]
    SlotHint(u16),
    #[error("ack level is 0 to 4, not {0}")]
    Level(u8),
    #[error("{name} is reserved and 0, not {found:#x}")]
    Reserved { name: &'static str, found: u64 },
    #[error("padding behind {behind} must be zero")]
    Padding { behind: &'static str },
    #[error("the first frame is HELLO (0x01), not {opcode:#04x}")]
    HelloExpected { opcode: u8 },
    #[error("HELLO was said already")]
    HelloRepeated,
    #[error("{0}")]
    Auth(AuthFault),
    #[error(
        "request id {0} is under way on this connection; it is free when all its items are \
         answered"
    )]
    RequestUnderWay(u64),
    #[error("HELLO body of {len} bytes; its fields need {needed}")]
    HelloLength { len: usize, needed: usize },
    #[error("INFO has no body, or 8 bytes that are 1 for the schema; {len} others were given")]
    InfoBody { len: usize },
    #[error("protocol versions {min} to {max} are offered; this server speaks 1")]
    ProtocolRange { min: u16, max: u16 },
    #[error(
        "client name of {len} bytes; at most {client_name_bytes_max} bytes of UTF-8 are \
         accepted",
        client_name_bytes_max = CLIENT_NAME_BYTES_MAX
    )]
    ClientName { len: u16 },
    #[error("the placement in HELLO: {what}")]
    Placement { what: &'static str },
    #[error("batch body of {len} bytes; its count and index need {needed}")]
    BatchBody { len: usize, needed: usize },
    #[error(
        "a batch has 1 to {batch_items_max} items, not {0}",
        batch_items_max = BATCH_ITEMS_MAX
    )]
    BatchCount(u32),
    #[error(
        "item {item} of the batch starts at {expected} and has a multiple of 8 from 8 to \
         {left} bytes, not {len} at {offset}"
    )]
    BatchIndex {
        item: usize,
        offset: u32,
        len: u32,
        expected: usize,
        left: usize,
    },
    #[error("item of {len} bytes; its fields need {needed}")]
    ItemLength { len: usize, needed: u64 },
    #[error("operation {0} is not known")]
    Operation(u8),
    #[error("flags {flags:#04x} are not allowed for operation {operation}")]
    OperationFlags { operation: u8, flags: u8 },
    #[error("block length is {expected} for these fields, not {found}")]
    BlockLength { found: u16, expected: usize },
    #[error("operation {operation} does not take {count} keys")]
    KeyCount { operation: u8, count: u8 },
    #[error(
        "operation {operation} does not take {count} instructions; at most \
         {instructions_max} are accepted by UPDATE_IF",
        instructions_max = INSTRUCTIONS_MAX
    )]
    InstructionCount { operation: u8, count: u8 },
    #[error("APPLY takes 1 to {apply_keys_max} keys, not {0}", apply_keys_max = APPLY_KEYS_MAX)]
    ApplyKeyCount(u8),
    #[error("APPLY takes 0 to {max} instructions, not {count}")]
    ApplyInstructionCount { count: u8, max: usize },
    #[error("RUN takes 1 to {few_keys_max} keys, not {0}", few_keys_max = FEW_KEYS_MAX)]
    RunKeyCount(u8),
    #[error(
        "RUN takes 0 to {arguments_max} arguments, not {0}",
        arguments_max = PROGRAM_ARGUMENTS_MAX
    )]
    RunArgumentCount(u8),
    #[error("the arguments of RUN have a multiple of 8 bytes, not {0}")]
    RunArguments(u32),
    #[error(
        "no program here has the id {id:#018x}: this node has {known} programs, of other schema \
         files; penstock schema check prints the ids of files"
    )]
    ProgramUnknown { id: u64, known: usize },
    #[error("program {program} takes {keys} keys, not {found}")]
    ProgramKeys {
        program: ShownName,
        keys: usize,
        found: u8,
    },
    #[error("program {program} takes {arguments} arguments, not {found}")]
    ProgramArguments {
        program: ShownName,
        arguments: usize,
        found: u8,
    },
    #[error("program {program}: its arguments take {needed} bytes, not {found}")]
    ProgramArgumentBytes {
        program: ShownName,
        needed: usize,
        found: usize,
    },
    #[error(
        "program {program}: argument {argument} is {least} to {greatest}, not {is}",
        least = number_of(is_signed, min),
        greatest = number_of(is_signed, max),
        is = number_of(is_signed, found)
    )]
    ArgumentNumber {
        program: ShownName,
        argument: ShownName,
        is_signed: bool,
        found: u64,
        min: u64,
        max: u64,
    },
    #[error("program {program}: argument {argument} has at most {max} bytes, not {len}")]
    ArgumentBytes {
        program: ShownName,
        argument: ShownName,
        len: u32,
        max: u32,
    },
    #[error("data of {len} bytes; APPLY takes at most {max}, two of the longest values")]
    ApplyData { len: u32, max: u32 },
    #[error("key {key} is key {first} once more; the keys of APPLY differ")]
    KeyRepeated { key: u8, first: u8 },
    #[error(
        "{what} takes {bytes} bytes of a record; the largest record has {max}: use fewer keys or \
         shorter values"
    )]
    ApplyBytes {
        what: &'static str,
        bytes: usize,
        max: usize,
    },
    #[error("extension tag {0} is not supported")]
    ExtensionTag(u16),
    #[error(
        "operation {operation} does not take extension tag {tag}; {takers}",
        takers = match tag {
            1 => "a token is for writes: 2 SET, 3 DEL, 4 UPDATE_IF, 10 APPLY, 11 RUN",
            _ => "GET does",
        }
    )]
    ExtensionOperation { tag: u16, operation: u8 },
    #[error(
        "a token is a UUID of version 7 and variant 2, not of version {version} and variant \
         {variant}"
    )]
    TokenForm { version: u8, variant: u8 },
    #[error("the token is of {sent_ms} unix milliseconds; below 2^48 is allowed")]
    TokenTime { sent_ms: u64 },
    #[error("a token that is a text is not taken by a node of a cluster; a UUID of version 7 is")]
    TokenTextInCluster,
    #[error(
        "the token is of {token_ms} unix milliseconds, more than {ahead_ms_max} ahead of the \
         shard's time {now_ms}",
        ahead_ms_max = TOKEN_AHEAD_MS_MAX
    )]
    TokenAhead { token_ms: u64, now_ms: u64 },
    #[error("another request had this token, and was executed; nothing of this one was")]
    TokenReused,
    #[error(
        "the token is of {token_ms} unix milliseconds, and tokens are complete from {from_ms} on: \
         whether it was executed is not known, and it is not executed now"
    )]
    TokenTooOld { token_ms: u64, from_ms: u64 },
    #[error(
        "extension area of {0} bytes is not of the documented form: its length, 1 item, and the \
         item's tag and length (a token has 16 bytes in an area of 32, \
         member 24 in one of 40, a text token 40 in one of 56)"
    )]
    ExtensionLength(u16),
    #[error(
        "key {key} has {len} bytes; 1 to {key_bytes_max} are accepted",
        key_bytes_max = KEY_BYTES_MAX
    )]
    KeyLength { key: u8, len: u16 },
    #[error("key {key} begins with \\0\\0penstock/, which is reserved for the server's own keys")]
    KeyReserved { key: u8 },
    #[error(
        "the prefix of a keyspace has {len} bytes; 0 to {keyspace_bytes_max} are accepted",
        keyspace_bytes_max = KEYSPACE_BYTES_MAX
    )]
    KeyspaceLength { len: u16 },
    #[error("all keyspaces are told, with an empty prefix; this one has {len} bytes")]
    KeyspaceList { len: usize },
    #[error("settings of {len} bytes; this action takes {needed}")]
    KeyspaceSettings { len: u32, needed: usize },
    #[error("{name} of a keyspace is 0 to {max} milliseconds, not {ms}")]
    Retention {
        name: &'static str,
        ms: u64,
        max: u64,
    },
    #[error(
        "a history tells 1 to {history_versions_max} versions at a time, not {0}",
        history_versions_max = HISTORY_VERSIONS_MAX
    )]
    HistoryLimit(u32),
    #[error(
        "a time (flag 0x20) or a version (flag 0x04) must be given, one of them; the flags \
         are {flags:#04x}"
    )]
    AtUnsaid { flags: u8 },
    #[error("value of {len} bytes; keyspace {keyspace:?} accepts at most {max}")]
    KeyspaceValueLength {
        len: usize,
        max: u32,
        keyspace: KeyspaceName,
    },
    #[error("value of {len} bytes; at most {max} are accepted")]
    ValueLength { len: u32, max: u32 },
    #[error("operation {operation} takes no value here, {len} bytes were given")]
    ValueUnexpected { operation: u8, len: u32 },
    #[error(
        "an expiry is 1 to {expiry_ms_max} milliseconds, not {0}",
        expiry_ms_max = EXPIRY_MS_MAX
    )]
    Expiry(u64),
    #[error(
        "the expiry {ms} is past by the store's time {now_ms}, which is ahead of the clock of its \
         machine, and not by that clock, {wall_ms}: the key would be gone at once; give a lifetime \
         (TTL, PX) in place of a time"
    )]
    ExpiryPast { ms: u64, now_ms: u64, wall_ms: u64 },
    #[error(
        "{ms} milliseconds after {now_ms} is too far: an expiry is at most {expiry_ms_max}",
        expiry_ms_max = EXPIRY_MS_MAX
    )]
    Lifetime { ms: u64, now_ms: u64 },
    #[error("instruction {instruction} has the unknown operation {found}")]
    InstructionOperation { instruction: usize, found: u8 },
    #[error("instruction {instruction} has the unknown field type {found:#04x}")]
    InstructionType { instruction: usize, found: u8 },
    #[error("instruction {instruction} names key {key}, which the operation does not have")]
    InstructionKey { instruction: usize, key: u8 },
    #[error("instruction {instruction} is about a whole key: its type, offset and number are 0")]
    InstructionField { instruction: usize },
    #[error("instruction {instruction}: {immediate:#x} is outside the range of {field_type}")]
    Immediate {
        instruction: usize,
        field_type: &'static str,
        immediate: u64,
    },
    #[error(
        "instruction {instruction}: bytes {start} to {end} lie outside the data of {data_len} bytes"
    )]
    InstructionData {
        instruction: usize,
        start: u64,
        end: u64,
        data_len: u32,
    },
    #[error(
        "instruction {instruction}: a decimal is a whole value, so its offset is 0, not {offset}"
    )]
    DecimalOffset { instruction: usize, offset: u32 },
    #[error(
        "instruction {instruction}: operation {operation} takes no operand from source \
         {found:#04x} (0x00 itself, 0x20 another number, 0x40 the time)"
    )]
    OperandSource {
        instruction: usize,
        operation: u8,
        found: u8,
    },
    #[error(
        "instruction {instruction}: the operand {found:#x} names no number: u32 offset (0 of a \
         decimal), u8 type, u8 key, u16 0"
    )]
    OperandNumber { instruction: usize, found: u64 },
    #[error("instruction {instruction}: {name} of operation {operation} is 0, not {found:#x}")]
    InstructionUnused {
        instruction: usize,
        operation: u8,
        name: &'static str,
        found: u64,
    },
    #[error(
        "instruction {instruction}: a time is 1 to {expiry_ms_max} unix milliseconds, 0 only for \
         EXPIRE, not {ms}",
        expiry_ms_max = EXPIRY_MS_MAX
    )]
    InstructionTime { instruction: usize, ms: u64 },
    #[error(
        "instruction {instruction}: a rate has an interval of 1 to {interval_us_max} microseconds, \
         a burst of 1 to 65535 and a quantity of 1 to the burst, not {interval_us}, {burst}, \
         {quantity}",
        interval_us_max = Rate::INTERVAL_US_MAX
    )]
    InstructionRate {
        instruction: usize,
        interval_us: u64,
        burst: u16,
        quantity: u8,
    },
    #[error(
        "instruction {instruction}: a rate is kept in a u64 or u64be, not in type {found:#04x}"
    )]
    RateType { instruction: usize, found: u8 },
    #[error(
        "instruction {instruction}: 0 to {max} instructions run when a key expires, not {count}",
        max = INSTRUCTIONS_MAX - 1
    )]
    Effects { instruction: usize, count: u32 },
    #[error(
        "instruction {instruction}: {count} effects are told, and {left} instructions stand \
         behind it"
    )]
    EffectCount {
        instruction: usize,
        count: usize,
        left: usize,
    },
    #[error(
        "instruction {instruction} runs when a key expires: it is of operation 16 to 30, not \
         {operation}"
    )]
    EffectOperation { instruction: usize, operation: u8 },
    #[error("instruction {instruction}: key {key} has its effects by instruction {first} already")]
    EffectsRepeated {
        instruction: usize,
        key: u8,
        first: usize,
    },
    #[error(
        "instruction {instruction}: its effects take {bytes} bytes with their keys and values; at \
         most {effects_bytes_max} are stored",
        effects_bytes_max = EFFECTS_BYTES_MAX
    )]
    EffectBytes { instruction: usize, bytes: usize },
    #[error(
        "instruction {instruction}: its effects and the key that expires are {keys} keys; at most \
         {few_keys_max} are stored",
        few_keys_max = FEW_KEYS_MAX
    )]
    EffectKeys { instruction: usize, keys: usize },
    #[error(
        "instruction {instruction}: key {key} does not expire at the end of the request, so its \
         effects would never run"
    )]
    EffectsInVain { instruction: usize, key: usize },
    #[error(
        "instruction {instruction}: an expiry is 0 for never, or 1 to {expiry_ms_max} unix \
         milliseconds, not {ms}",
        expiry_ms_max = EXPIRY_MS_MAX
    )]
    InstructionExpiry { instruction: usize, ms: i128 },
    #[error(
        "instruction {instruction}: the value of {value_len} bytes is no decimal, which is a \
         number from -2^63 to 2^63 - 1 without a sign +, zeros in front or anything around it"
    )]
    Decimal {
        instruction: usize,
        value_len: usize,
    },
    #[error(
        "the keyspace {keyspace:?} {rule}: a key of it has no members, such as the fields of a hash"
    )]
    KeyspaceMembers {
        keyspace: KeyspaceName,
        rule: &'static str,
    },
    #[error(
        "key {key} has members, such as the fields of a hash: it has no value that can be read or \
         edited here"
    )]
    WrongType { key: usize },
    #[error(
        "the keys route to slots {first} and {second}; one operation stays in one slot (use \
         a {{tag}})"
    )]
    CrossSlot { first: u16, second: u16 },
    #[error(
        "the keys route to slots {first} and {second}, which two shards of this node own; one \
         transaction stays in one shard (use a {{tag}}, or start the node with --shards 1)"
    )]
    CrossShard { first: u16, second: u16 },
    #[error(
        "instruction {instruction}: a field of {width} bytes at offset {offset} lies \
         outside the value of {value_len} bytes"
    )]
    Field {
        instruction: usize,
        offset: u32,
        width: usize,
        value_len: usize,
    },
    #[error("{name} of a scan are {min} to {max}, not {found}")]
    ScanLimit {
        name: &'static str,
        found: u32,
        min: u32,
        max: u32,
    },
    #[error("entry {entry} of a page does not fit the page")]
    ScanPage { entry: u32 },
    #[error(
        "ack level replica is for operations on the nodes of a cluster, neither on a node \
         alone nor for settings"
    )]
    Replica,
    #[error("status {0:#06x} is not known")]
    Status(u16),
}

/// The number that 64 bits are.
fn number_of(is_signed: &bool, bits: &u64) -> i128 {
    match is_signed {
        true => bits.cast_signed().into(),
        false => (*bits).into(),
    }
}

/// Results on the way of each request have room for one.
const _: () = assert!(size_of::<Refusal>() <= 96);

impl Refusal {
    /// The status that the reply carries.
    #[must_use]
    pub fn status(self) -> Status {
        match self {
            Refusal::FrameTooLarge { .. }
            | Refusal::ValueLength { .. }
            | Refusal::ApplyData { .. }
            | Refusal::ApplyBytes { .. }
            | Refusal::EffectBytes { .. }
            | Refusal::KeyspaceValueLength { .. } => Status::TooLarge,
            Refusal::InputBytes { .. } => Status::Busy,
            Refusal::ProgramUnknown { .. } => Status::UnknownProgram,
            Refusal::ArgumentBytes { .. } => Status::TooLarge,
            Refusal::TokenReused => Status::TokenReused,
            Refusal::TokenTooOld { .. } => Status::TokenTooOld,
            Refusal::HelloExpected { .. } => Status::HelloExpected,
            Refusal::Auth(_) => Status::Auth,
            Refusal::KeyLength { .. }
            | Refusal::KeyReserved { .. }
            | Refusal::KeyspaceLength { .. }
            | Refusal::KeyspaceList { .. } => Status::BadKey,
            Refusal::CrossSlot { .. } | Refusal::CrossShard { .. } => Status::CrossSlot,
            Refusal::WrongType { .. } => Status::WrongType,
            Refusal::Field { .. }
            | Refusal::Decimal { .. }
            | Refusal::InstructionExpiry { .. }
            | Refusal::EffectsInVain { .. } => Status::BadField,
            Refusal::KeyspaceMembers { .. }
            | Refusal::Opcode(_)
            | Refusal::Operation(_)
            | Refusal::ProtocolRange { .. }
            | Refusal::ExtensionTag(_)
            | Refusal::ExtensionOperation { .. }
            | Refusal::TokenTextInCluster
            | Refusal::Replica => Status::Unsupported,
            _ => Status::Malformed,
        }
    }
}
