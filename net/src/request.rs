//! Requests: the items of a batch as views, and the writer of batches.

use crate::batch::{BatchWriter, padded, push_padded, read_u16, read_u32, read_u64};
use crate::frame::{HEADER_BYTES, Header, Medium, Opcode, finish_frame};
use crate::instruction::{INSTRUCTION_BYTES, Instruction};
use crate::keyspace::{Action, At, SETTINGS_BYTES, Settings};
use crate::level::AckLevel;
use crate::limits::{
    EXPIRY_MS_MAX, HISTORY_VERSIONS_MAX, INSTRUCTIONS_MAX, KEY_BYTES_MAX, KEYSPACE_BYTES_MAX,
    RESERVED_KEY,
};
use crate::refusal::Refusal;
use crate::scan::ScanRequest;

/// Bytes of an item before its condition, instructions, extension and data.
pub const ITEM_HEADER_BYTES: usize = 16;
const VERSION_BYTES: usize = 16;
const EXPIRY_BYTES: usize = 8;
/// The extension that lets members answer, and the bytes of an area with it.
const MEMBER_TAG: u16 = 2;
const MEMBER_HEAD_BYTES: usize = 16;
const MEMBER_AREA_BYTES: usize = MEMBER_HEAD_BYTES + 24;

const FLAG_ABSENT: u8 = 0x01;
const FLAG_PRESENT: u8 = 0x02;
const FLAG_VERSION: u8 = 0x04;
/// Of SET and DEL with a condition.
const FLAG_SHOW: u8 = 0x08;
const FLAG_START: u8 = 0x10;
/// Of KEYSPACE; without any of these it sets, with [`FLAG_ABSENT`] it makes.
const KEYSPACE_DROP: u8 = 0x02;
const KEYSPACE_LIST: u8 = 0x04;
/// The two bits that say something of the expiry.
const EXPIRY_BITS: u8 = 0x60;
const EXPIRY_AT: u8 = 0x20;
const EXPIRY_IN: u8 = 0x40;
/// What the verb does not do by itself: SET keeps it, UPDATE_IF removes it.
const EXPIRY_OTHER: u8 = 0x60;
/// Of GET: the value and the expiry, or the expiry alone.
const WITH_EXPIRY: u8 = 0x20;
const EXPIRY_ALONE: u8 = 0x40;

/// What an item does with its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Verb {
    /// Read a value.
    Get = 1,
    /// Write a value.
    Set = 2,
    /// Delete a key.
    Del = 3,
    /// Run instructions on fields.
    UpdateIf = 4,
    /// Read a value as it was.
    GetAt = 6,
    /// Tell the versions that are kept.
    History = 7,
    /// Set, drop or tell keyspaces.
    Keyspace = 8,
}

/// What lets a member of a partition answer a GET too: how old what it has may be, and what it must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberRead {
    /// What is answered was so at the primary at most so many microseconds ago. `u64::MAX` is any time, and 0 lets
    /// only the primary answer.
    pub staleness_us_max: u64,
    /// A version of the key's partition that must be there; sequence 0 is none.
    pub version_min: Version,
}

/// What a verb asks besides keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extra {
    /// Nothing.
    None,
    /// GET: members may answer.
    Member(MemberRead),
    /// SET and DEL: the answer shows the value that keeps the condition from holding.
    Show,
    /// GET_AT: as it was then.
    At(At),
    /// HISTORY: the versions whose sequence is below `before`, 0 for all, at most so many.
    History {
        /// The sequence.
        before: u64,
        /// Versions.
        limit: u32,
    },
    /// KEYSPACE: what is done. The key is the prefix.
    Keyspace(Action),
}

/// The version of a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// Term and node ordinal.
    pub epoch: u32,
    /// Dense per partition; 0 is no version.
    pub sequence: u64,
}

/// When SET and DEL apply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Condition {
    /// Always.
    #[default]
    Always,
    /// Only if the key does not exist.
    Absent,
    /// Only if the key exists.
    Present,
    /// Only if the key has this version.
    Version(Version),
}

impl Condition {
    /// This condition, with the value that is there in the answer if it does not hold.
    #[must_use]
    pub fn showing(self) -> When {
        When {
            condition: self,
            shows: true,
        }
    }
}

/// When SET and DEL apply, and what their answer shows if they do not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct When {
    /// The condition.
    pub condition: Condition,
    /// If the condition does not hold, the answer shows the value that is there.
    pub shows: bool,
}

impl From<Condition> for When {
    fn from(condition: Condition) -> Self {
        When {
            condition,
            shows: false,
        }
    }
}

/// When the first key of SET or UPDATE_IF is gone by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// Never: the default of SET.
    Never,
    /// When it was before: the default of UPDATE_IF. What is made anew never is.
    Keep,
    /// At this time, in unix milliseconds, 1 to [`EXPIRY_MS_MAX`]. A time that is past is allowed.
    At(u64),
    /// So many milliseconds after the shard's time, 1 to [`EXPIRY_MS_MAX`].
    In(u64),
}

/// What GET answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// The value.
    Value,
    /// The value and the expiry.
    ValueAndExpiry,
    /// The expiry and an empty value.
    Expiry,
}

/// One operation, checked, as a view of its bytes.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// What to do.
    pub verb: Verb,
    /// When SET and DEL apply.
    pub condition: Condition,
    /// The key that GET, SET and DEL are about; the first of UPDATE_IF.
    pub key: &'a [u8],
    /// The second key of UPDATE_IF.
    pub second_key: Option<&'a [u8]>,
    /// The value of SET; what UPDATE_IF starts from if the first key is missing.
    pub value: &'a [u8],
    /// Whether UPDATE_IF makes a missing first key from `value`.
    pub has_start: bool,
    /// What SET and UPDATE_IF do with the expiry of the first key.
    pub expiry: Expiry,
    /// What GET answers.
    pub wanted: Wanted,
    /// What the verb asks besides.
    pub extra: Extra,
    instructions: &'a [u8],
}

impl<'a> Request<'a> {
    /// Reads one item, checking everything that needs no store.
    ///
    /// # Errors
    /// The first [`Refusal`] found.
    #[inline]
    pub fn read(item: &'a [u8], value_bytes_max: u32) -> Result<Self, Refusal> {
        match Self::read_plain(item, value_bytes_max) {
            Some(request) => Ok(request),
            None => Self::read_any(item, value_bytes_max),
        }
    }

    /// Reads an item of one key without flags and extensions, as nearly all are: most fields of its header
    /// are compared as one word. `None` if it is another one or is to be refused.
    #[inline(always)]
    fn read_plain(item: &'a [u8], value_bytes_max: u32) -> Option<Self> {
        /// All but the length of the block, the operation and the count of instructions.
        const FIELDS: u64 = 0xFFFF_00FF_FF00_0000;
        const ONE_KEY: u64 = 1 << 32;
        let head = item.first_chunk::<ITEM_HEADER_BYTES>()?;
        if read_u64(head, 0) & FIELDS != ONE_KEY || read_u16(head, 10) != 0 {
            return None;
        }
        let verb = match head[2] {
            1 => Verb::Get,
            2 => Verb::Set,
            3 => Verb::Del,
            4 => Verb::UpdateIf,
            _ => return None,
        };
        let instruction_count = usize::from(head[5]);
        let instructions_max = match verb {
            Verb::UpdateIf => INSTRUCTIONS_MAX,
            _ => 0,
        };
        let value_len_max = match verb {
            Verb::Set => value_bytes_max,
            _ => 0,
        };
        let key_len = usize::from(read_u16(head, 8));
        let value_len = read_u32(head, 12);
        let keys_start = ITEM_HEADER_BYTES + instruction_count * INSTRUCTION_BYTES;
        let value_start = keys_start + padded(key_len);
        let end = value_start as u64 + u64::from(value_len).next_multiple_of(8);
        if instruction_count > instructions_max
            || usize::from(read_u16(head, 0)) != keys_start
            || !(1..=KEY_BYTES_MAX).contains(&key_len)
            || value_len > value_len_max
            || item.len() as u64 != end
        {
            return None;
        }
        let key = field(item, keys_start, key_len, "key 0").ok()?;
        let value = field(item, value_start, value_len as usize, "the value").ok()?;
        let instructions = &item[ITEM_HEADER_BYTES..keys_start];
        let are_good = instructions
            .as_chunks::<INSTRUCTION_BYTES>()
            .0
            .iter()
            .all(|bytes| Instruction::decode(bytes, 1).is_some());
        if is_reserved(key) || !are_good {
            return None;
        }
        Some(Request {
            verb,
            condition: Condition::Always,
            key,
            second_key: None,
            value,
            has_start: false,
            expiry: match verb {
                Verb::UpdateIf => Expiry::Keep,
                _ => Expiry::Never,
            },
            wanted: Wanted::Value,
            extra: Extra::None,
            instructions,
        })
    }

    #[inline(never)]
    fn read_any(item: &'a [u8], value_bytes_max: u32) -> Result<Self, Refusal> {
        let head = item
            .first_chunk::<ITEM_HEADER_BYTES>()
            .ok_or(Refusal::ItemLength {
                len: item.len(),
                needed: ITEM_HEADER_BYTES as u64,
            })?;
        let block_len = read_u16(head, 0);
        let [operation, flags, key_count, instruction_count] = [head[2], head[3], head[4], head[5]];
        let extension_len = read_u16(head, 6);
        let (key_len, second_len) = (read_u16(head, 8), read_u16(head, 10));
        let value_len = read_u32(head, 12);
        let (verb, flags_allowed) = match operation {
            1 => (Verb::Get, EXPIRY_BITS),
            2 => (
                Verb::Set,
                FLAG_ABSENT | FLAG_PRESENT | FLAG_VERSION | FLAG_SHOW | EXPIRY_BITS,
            ),
            3 => (Verb::Del, FLAG_PRESENT | FLAG_VERSION | FLAG_SHOW),
            4 => (Verb::UpdateIf, FLAG_START | EXPIRY_BITS),
            6 => (Verb::GetAt, FLAG_VERSION | EXPIRY_AT),
            7 => (Verb::History, 0),
            8 => (Verb::Keyspace, FLAG_ABSENT | KEYSPACE_DROP | KEYSPACE_LIST),
            _ => return Err(Refusal::Operation(operation)),
        };
        let condition_flags = flags & (FLAG_ABSENT | FLAG_PRESENT | FLAG_VERSION);
        let expiry_flags = flags & EXPIRY_BITS;
        if flags & !flags_allowed != 0
            || condition_flags.count_ones() > 1
            || (verb == Verb::Get && expiry_flags == EXPIRY_OTHER)
            || (flags & FLAG_SHOW != 0 && condition_flags == 0)
        {
            return Err(Refusal::OperationFlags { operation, flags });
        }
        let keys_expected = 1 + u8::from(verb == Verb::UpdateIf && key_count == 2);
        if key_count != keys_expected {
            return Err(Refusal::KeyCount {
                operation,
                count: key_count,
            });
        }
        if key_count == 1 && second_len != 0 {
            return Err(Refusal::Reserved {
                name: "the second key's length of an item with one key",
                found: u64::from(second_len),
            });
        }
        let instructions_max = if verb == Verb::UpdateIf {
            INSTRUCTIONS_MAX
        } else {
            0
        };
        if usize::from(instruction_count) > instructions_max {
            return Err(Refusal::InstructionCount {
                operation,
                count: instruction_count,
            });
        }
        let has_version =
            (condition_flags == FLAG_VERSION && verb != Verb::Keyspace) || verb == Verb::History;
        if verb == Verb::GetAt && has_version == (expiry_flags == EXPIRY_AT) {
            return Err(Refusal::AtUnsaid { flags });
        }
        let has_expiry = verb != Verb::Get && matches!(expiry_flags, EXPIRY_AT | EXPIRY_IN);
        let expiry_start = ITEM_HEADER_BYTES + if has_version { VERSION_BYTES } else { 0 };
        let instructions_start = expiry_start + if has_expiry { EXPIRY_BYTES } else { 0 };
        let instructions_end =
            instructions_start + usize::from(instruction_count) * INSTRUCTION_BYTES;
        let keys_start = instructions_end + usize::from(extension_len);
        if usize::from(block_len) != keys_start {
            return Err(Refusal::BlockLength {
                found: block_len,
                expected: keys_start,
            });
        }
        if verb == Verb::Keyspace && usize::from(key_len) > KEYSPACE_BYTES_MAX {
            return Err(Refusal::KeyspaceLength { len: key_len });
        }
        for (key, len) in [(0, key_len), (1, second_len)]
            .into_iter()
            .take(usize::from(key_count))
            .filter(|_| verb != Verb::Keyspace)
        {
            if !(1..=KEY_BYTES_MAX).contains(&usize::from(len)) {
                return Err(Refusal::KeyLength { key, len });
            }
        }
        // The settings of a keyspace are no value of a key; they have one length.
        if value_len > value_bytes_max && verb != Verb::Keyspace {
            return Err(Refusal::ValueLength {
                len: value_len,
                max: value_bytes_max,
            });
        }
        let has_start = flags & FLAG_START != 0;
        if value_len > 0 && !(matches!(verb, Verb::Set | Verb::Keyspace) || has_start) {
            return Err(Refusal::ValueUnexpected {
                operation,
                len: value_len,
            });
        }
        let second_start = keys_start + padded(usize::from(key_len));
        let value_start = second_start + padded(usize::from(second_len));
        // In 64 bits: what the limit allows may not fit a usize.
        let end = value_start as u64 + u64::from(value_len).next_multiple_of(8);
        if item.len() as u64 != end {
            return Err(Refusal::ItemLength {
                len: item.len(),
                needed: end,
            });
        }
        let member = match extension_len {
            0 => None,
            _ => Some(read_extension(
                operation,
                &item[instructions_end..keys_start],
            )?),
        };
        let key = field(item, keys_start, usize::from(key_len), "key 0")?;
        let second_key = if key_count == 2 {
            let second_len = usize::from(second_len);
            Some(field(item, second_start, second_len, "key 1")?)
        } else {
            None
        };
        let value = field(item, value_start, value_len as usize, "the value")?;
        if is_reserved(key) {
            return Err(Refusal::KeyReserved { key: 0 });
        }
        if second_key.is_some_and(is_reserved) {
            return Err(Refusal::KeyReserved { key: 1 });
        }
        let condition = match condition_flags {
            _ if verb == Verb::Keyspace => Condition::Always,
            FLAG_ABSENT => Condition::Absent,
            FLAG_PRESENT => Condition::Present,
            FLAG_VERSION => {
                if read_u32(item, 20) != 0 {
                    return Err(Refusal::Reserved {
                        name: "the word behind the epoch",
                        found: read_u32(item, 20).into(),
                    });
                }
                Condition::Version(Version {
                    epoch: read_u32(item, 16),
                    sequence: read_u64(item, 24),
                })
            }
            _ => Condition::Always,
        };
        let expiry = if has_expiry {
            let ms = read_u64(item, expiry_start);
            if !(1..=EXPIRY_MS_MAX).contains(&ms) {
                return Err(Refusal::Expiry(ms));
            }
            match expiry_flags {
                _ if verb == Verb::GetAt => Expiry::Never,
                EXPIRY_AT => Expiry::At(ms),
                _ => Expiry::In(ms),
            }
        } else if (verb == Verb::UpdateIf) == (expiry_flags == 0) {
            Expiry::Keep
        } else {
            Expiry::Never
        };
        let wanted = match expiry_flags {
            WITH_EXPIRY if verb == Verb::Get => Wanted::ValueAndExpiry,
            EXPIRY_ALONE if verb == Verb::Get => Wanted::Expiry,
            _ => Wanted::Value,
        };
        let extra = match verb {
            Verb::Set | Verb::Del if flags & FLAG_SHOW != 0 => Extra::Show,
            Verb::Get | Verb::Set | Verb::Del | Verb::UpdateIf => {
                member.map_or(Extra::None, Extra::Member)
            }
            Verb::GetAt | Verb::History | Verb::Keyspace => {
                read_extra(verb, item, flags, key, value, condition)?
            }
        };
        let request = Request {
            verb,
            // GET_AT says with it what it asks for.
            condition: match extra {
                Extra::At(_) => Condition::Always,
                _ => condition,
            },
            key,
            second_key,
            value,
            has_start,
            expiry,
            wanted,
            extra,
            instructions: &item[instructions_start..instructions_end],
        };
        // All of them before the first runs, so that a bad one has no effect before it.
        for (number, bytes) in request
            .instructions
            .as_chunks::<INSTRUCTION_BYTES>()
            .0
            .iter()
            .enumerate()
        {
            Instruction::read(bytes, number, key_count)?;
        }
        Ok(request)
    }

    /// How many instructions there are, at most [`INSTRUCTIONS_MAX`].
    #[inline]
    #[must_use]
    pub fn instruction_count(&self) -> usize {
        self.instructions.len() / INSTRUCTION_BYTES
    }

    /// Instruction `number`, which is below [`Request::instruction_count`].
    #[inline(always)]
    #[must_use]
    pub fn instruction(&self, number: usize) -> Instruction {
        let bytes = &self.instructions.as_chunks::<INSTRUCTION_BYTES>().0[number];
        let key_count = 1 + u8::from(self.second_key.is_some());
        Instruction::decode(bytes, key_count).expect("checked when the item was read")
    }
}

/// What GET_AT, HISTORY and KEYSPACE ask besides, of an item whose lengths were checked.
#[cold]
fn read_extra(
    verb: Verb,
    item: &[u8],
    flags: u8,
    prefix: &[u8],
    value: &[u8],
    condition: Condition,
) -> Result<Extra, Refusal> {
    match (verb, condition) {
        (Verb::GetAt, Condition::Version(version)) => return Ok(Extra::At(At::Version(version))),
        (Verb::GetAt, _) => return Ok(Extra::At(At::TimeMs(read_u64(item, ITEM_HEADER_BYTES)))),
        (Verb::History, _) => {
            let limit = read_u32(item, ITEM_HEADER_BYTES);
            let reserved = read_u32(item, ITEM_HEADER_BYTES + 4);
            if !(1..=HISTORY_VERSIONS_MAX).contains(&limit) {
                return Err(Refusal::HistoryLimit(limit));
            }
            if reserved != 0 {
                return Err(Refusal::Reserved {
                    name: "the word behind the limit of a history",
                    found: reserved.into(),
                });
            }
            let before = read_u64(item, ITEM_HEADER_BYTES + 8);
            return Ok(Extra::History { before, limit });
        }
        _ => {}
    }
    let needed = match flags {
        KEYSPACE_DROP | KEYSPACE_LIST => 0,
        _ => SETTINGS_BYTES,
    };
    if value.len() != needed {
        return Err(Refusal::KeyspaceSettings {
            len: u32::try_from(value.len()).unwrap_or(u32::MAX),
            needed,
        });
    }
    if flags == KEYSPACE_LIST && !prefix.is_empty() {
        return Err(Refusal::KeyspaceList { len: prefix.len() });
    }
    let settings = value.first_chunk().map(Settings::read).transpose()?;
    Ok(Extra::Keyspace(match (flags, settings) {
        (KEYSPACE_LIST, _) => Action::List,
        (FLAG_ABSENT, Some(settings)) => Action::Create(settings),
        (_, Some(settings)) => Action::Set(settings),
        (_, None) => Action::Drop,
    }))
}

/// Whether a key is the server's own; nearly none begins with a zero.
#[inline]
fn is_reserved(key: &[u8]) -> bool {
    key.first() == Some(&RESERVED_KEY[0]) && key.starts_with(RESERVED_KEY)
}

/// Where the first key of an item seems to stand, before anything of the item was checked: for
/// hints only.
#[inline]
#[must_use]
pub fn likely_key(item: &[u8]) -> Option<&[u8]> {
    let head = item.first_chunk::<ITEM_HEADER_BYTES>()?;
    let start = usize::from(read_u16(head, 0));
    item.get(start..start + usize::from(read_u16(head, 8)))
}

/// A field whose padding is zero. The caller knows that it lies within `item`.
#[inline]
fn field<'a>(
    item: &'a [u8],
    start: usize,
    len: usize,
    name: &'static str,
) -> Result<&'a [u8], Refusal> {
    let whole = &item[start..start + padded(len)];
    // The padding is what stands above the field in its last eight bytes.
    let used = len % 8;
    if used != 0
        && let Some(last) = whole.last_chunk::<8>()
        && u64::from_le_bytes(*last) >> (8 * used) != 0
    {
        return Err(Refusal::Padding { behind: name });
    }
    Ok(&whole[..len])
}

/// The one extension that there is; another tag is named, or the form is wrong.
#[cold]
fn read_extension(operation: u8, area: &[u8]) -> Result<MemberRead, Refusal> {
    let len = u16::try_from(area.len()).unwrap_or(u16::MAX);
    if area.len() < 16 || !area.len().is_multiple_of(8) {
        return Err(Refusal::ExtensionLength(len));
    }
    let tag = read_u16(area, 8);
    if tag != MEMBER_TAG {
        return Err(Refusal::ExtensionTag(tag));
    }
    if operation != Verb::Get as u8 {
        return Err(Refusal::ExtensionOperation { tag, operation });
    }
    if area.len() != MEMBER_AREA_BYTES || area[..MEMBER_HEAD_BYTES] != member_head() {
        return Err(Refusal::ExtensionLength(len));
    }
    if read_u32(area, 28) != 0 {
        return Err(Refusal::Reserved {
            name: "the word behind the epoch",
            found: read_u32(area, 28).into(),
        });
    }
    Ok(MemberRead {
        staleness_us_max: read_u64(area, 16),
        version_min: Version {
            epoch: read_u32(area, 24),
            sequence: read_u64(area, 32),
        },
    })
}

/// What stands before the data of an extension area with this one item.
fn member_head() -> [u8; MEMBER_HEAD_BYTES] {
    let mut head = [0; MEMBER_HEAD_BYTES];
    let bytes = |len: usize| u16::try_from(len).expect("a small constant").to_le_bytes();
    head[0..2].copy_from_slice(&bytes(MEMBER_AREA_BYTES));
    head[2] = 1;
    head[8..10].copy_from_slice(&MEMBER_TAG.to_le_bytes());
    head[10..12].copy_from_slice(&bytes(MEMBER_AREA_BYTES - MEMBER_HEAD_BYTES));
    head
}

/// Writes one BATCH frame of requests at the end of a buffer.
#[derive(Debug)]
pub struct BatchRequest {
    start: usize,
    header: Header,
    medium: Medium,
    batch: BatchWriter,
}

impl BatchRequest {
    /// Starts a frame of at most `items_max` items.
    #[must_use]
    pub fn begin(
        out: &mut Vec<u8>,
        request_id: u64,
        level: AckLevel,
        deadline_ms: u16,
        items_max: usize,
    ) -> Self {
        let start = out.len();
        out.resize(start + HEADER_BYTES, 0);
        let header = Header::request(Opcode::Batch, request_id, level, deadline_ms);
        BatchRequest {
            start,
            header,
            medium: Medium::Wire,
            batch: BatchWriter::begin(out, items_max),
        }
    }

    /// The same for another medium than the wire.
    #[must_use]
    pub fn over(self, medium: Medium) -> Self {
        BatchRequest { medium, ..self }
    }

    /// Items so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.batch.len()
    }

    /// Whether there is no item yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds a GET.
    pub fn get(&mut self, out: &mut Vec<u8>, key: &[u8]) {
        self.get_with(out, key, Wanted::Value);
    }

    /// Adds a GET that asks for more or less than the value.
    pub fn get_with(&mut self, out: &mut Vec<u8>, key: &[u8], wanted: Wanted) {
        let flags = wanted_flags(wanted);
        self.item(out, Verb::Get, flags, None, None, &[], &[key], &[]);
    }

    /// Adds a GET that members may answer.
    pub fn get_of_member(
        &mut self,
        out: &mut Vec<u8>,
        key: &[u8],
        wanted: Wanted,
        member: MemberRead,
    ) {
        let from = out.len();
        let mut head = [0; ITEM_HEADER_BYTES];
        let area = u16::try_from(MEMBER_AREA_BYTES).expect("a small constant");
        let block = u16::try_from(ITEM_HEADER_BYTES).expect("a small constant") + area;
        head[0..2].copy_from_slice(&block.to_le_bytes());
        head[2..5].copy_from_slice(&[Verb::Get as u8, wanted_flags(wanted), 1]);
        head[6..8].copy_from_slice(&area.to_le_bytes());
        let key_len = u16::try_from(key.len()).unwrap_or(u16::MAX);
        head[8..10].copy_from_slice(&key_len.to_le_bytes());
        out.extend_from_slice(&head);
        out.extend_from_slice(&member_head());
        out.extend_from_slice(&member.staleness_us_max.to_le_bytes());
        out.extend_from_slice(&u64::from(member.version_min.epoch).to_le_bytes());
        out.extend_from_slice(&member.version_min.sequence.to_le_bytes());
        push_padded(out, key);
        self.batch.end_item(out, from);
    }

    /// Adds a GET_AT.
    pub fn get_at(&mut self, out: &mut Vec<u8>, key: &[u8], at: At) {
        let (flags, version, ms) = match at {
            At::Version(version) => (FLAG_VERSION, Some(version), None),
            At::TimeMs(ms) => (EXPIRY_AT, None, Some(ms)),
        };
        self.item(out, Verb::GetAt, flags, version, ms, &[], &[key], &[]);
    }

    /// Adds a HISTORY of the versions whose sequence is below `before`, 0 for all.
    pub fn history(&mut self, out: &mut Vec<u8>, key: &[u8], before: u64, limit: u32) {
        // Of the same form as a version.
        let block = Version {
            epoch: limit,
            sequence: before,
        };
        self.item(out, Verb::History, 0, Some(block), None, &[], &[key], &[]);
    }

    /// Adds a KEYSPACE.
    pub fn keyspace(&mut self, out: &mut Vec<u8>, prefix: &[u8], action: Action) {
        let (flags, settings) = match action {
            Action::Set(settings) => (0, Some(settings.encode())),
            Action::Create(settings) => (FLAG_ABSENT, Some(settings.encode())),
            Action::Drop => (KEYSPACE_DROP, None),
            Action::List => (KEYSPACE_LIST, None),
        };
        let value = settings.as_ref().map_or(&[][..], |bytes| bytes);
        self.item(
            out,
            Verb::Keyspace,
            flags,
            None,
            None,
            &[],
            &[prefix],
            value,
        );
    }

    /// Adds a SCAN.
    pub fn scan(&mut self, out: &mut Vec<u8>, request: &ScanRequest<'_>) {
        let from = out.len();
        request.write(out);
        self.batch.end_item(out, from);
    }

    /// Adds a SET of a key that never expires.
    pub fn set(&mut self, out: &mut Vec<u8>, key: &[u8], value: &[u8], when: impl Into<When>) {
        self.set_with(out, key, value, when, Expiry::Never);
    }

    /// Adds a SET.
    pub fn set_with(
        &mut self,
        out: &mut Vec<u8>,
        key: &[u8],
        value: &[u8],
        when: impl Into<When>,
        expiry: Expiry,
    ) {
        let (flags, version) = when_flags(when.into());
        let (expiry_flags, ms) = expiry_flags(expiry, Expiry::Never);
        let flags = flags | expiry_flags;
        self.item(out, Verb::Set, flags, version, ms, &[], &[key], value);
    }

    /// Adds a DEL.
    pub fn del(&mut self, out: &mut Vec<u8>, key: &[u8], when: impl Into<When>) {
        let (flags, version) = when_flags(when.into());
        self.item(out, Verb::Del, flags, version, None, &[], &[key], &[]);
    }

    /// Adds an UPDATE_IF that leaves the expiry; `start` is what a missing first key begins with.
    pub fn update_if(
        &mut self,
        out: &mut Vec<u8>,
        key: &[u8],
        second_key: Option<&[u8]>,
        instructions: &[Instruction],
        start: Option<&[u8]>,
    ) {
        self.update_if_with(out, key, second_key, instructions, start, Expiry::Keep);
    }

    /// Adds an UPDATE_IF.
    pub fn update_if_with(
        &mut self,
        out: &mut Vec<u8>,
        key: &[u8],
        second_key: Option<&[u8]>,
        instructions: &[Instruction],
        start: Option<&[u8]>,
        expiry: Expiry,
    ) {
        let (expiry_flags, ms) = expiry_flags(expiry, Expiry::Keep);
        let flags = expiry_flags | if start.is_some() { FLAG_START } else { 0 };
        let keys = [key, second_key.unwrap_or_default()];
        let keys = if second_key.is_some() {
            &keys[..]
        } else {
            &keys[..1]
        };
        self.item(
            out,
            Verb::UpdateIf,
            flags,
            None,
            ms,
            instructions,
            keys,
            start.unwrap_or_default(),
        );
    }

    /// Adds an item that is encoded already, such as one that is sent again.
    pub fn raw(&mut self, out: &mut Vec<u8>, item: &[u8]) {
        let from = out.len();
        out.extend_from_slice(item);
        self.batch.end_item(out, from);
    }

    /// Ends the frame; there must be an item.
    pub fn finish(self, out: &mut Vec<u8>) {
        assert!(self.batch.finish(out) > 0, "a batch has at least one item");
        finish_frame(out, self.start, self.header, self.medium);
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "the fields of an item, in their order"
    )]
    fn item(
        &mut self,
        out: &mut Vec<u8>,
        verb: Verb,
        flags: u8,
        version: Option<Version>,
        expiry_ms: Option<u64>,
        instructions: &[Instruction],
        keys: &[&[u8]],
        value: &[u8],
    ) {
        let from = out.len();
        let block_len = ITEM_HEADER_BYTES
            + version.map_or(0, |_| VERSION_BYTES)
            + expiry_ms.map_or(0, |_| EXPIRY_BYTES)
            + instructions.len() * INSTRUCTION_BYTES;
        let mut head = [0; ITEM_HEADER_BYTES];
        head[0..2].copy_from_slice(&u16::try_from(block_len).unwrap_or(u16::MAX).to_le_bytes());
        head[2] = verb as u8;
        head[3] = flags;
        head[4] = u8::try_from(keys.len()).expect("one or two keys");
        head[5] = u8::try_from(instructions.len()).unwrap_or(u8::MAX);
        for (at, key) in [8, 10].into_iter().zip(keys) {
            // A key over the limit is the server's to refuse, with the limit in its words.
            head[at..at + 2]
                .copy_from_slice(&u16::try_from(key.len()).unwrap_or(u16::MAX).to_le_bytes());
        }
        head[12..16].copy_from_slice(&u32::try_from(value.len()).unwrap_or(u32::MAX).to_le_bytes());
        out.extend_from_slice(&head);
        if let Some(version) = version {
            out.extend_from_slice(&u64::from(version.epoch).to_le_bytes());
            out.extend_from_slice(&version.sequence.to_le_bytes());
        }
        if let Some(ms) = expiry_ms {
            out.extend_from_slice(&ms.to_le_bytes());
        }
        for instruction in instructions {
            out.extend_from_slice(&instruction.encode());
        }
        for key in keys {
            push_padded(out, key);
        }
        push_padded(out, value);
        self.batch.end_item(out, from);
    }
}

/// A change without a condition has nothing to show.
fn when_flags(when: When) -> (u8, Option<Version>) {
    let (flags, version) = condition_flags(when.condition);
    match when.shows && when.condition != Condition::Always {
        true => (flags | FLAG_SHOW, version),
        false => (flags, version),
    }
}

/// Has an encoded item not ask for the value that keeps its condition from holding, for a server that refuses
/// the flag.
pub(crate) fn ask_without_show(item: &mut [u8]) {
    if item[2] == Verb::Set as u8 || item[2] == Verb::Del as u8 {
        item[3] &= !FLAG_SHOW;
    }
}

fn wanted_flags(wanted: Wanted) -> u8 {
    match wanted {
        Wanted::Value => 0,
        Wanted::ValueAndExpiry => WITH_EXPIRY,
        Wanted::Expiry => EXPIRY_ALONE,
    }
}

fn condition_flags(condition: Condition) -> (u8, Option<Version>) {
    match condition {
        Condition::Always => (0, None),
        Condition::Absent => (FLAG_ABSENT, None),
        Condition::Present => (FLAG_PRESENT, None),
        Condition::Version(version) => (FLAG_VERSION, Some(version)),
    }
}

/// The bits and the field of an expiry, for a verb with this default.
fn expiry_flags(expiry: Expiry, default: Expiry) -> (u8, Option<u64>) {
    match expiry {
        Expiry::At(ms) => (EXPIRY_AT, Some(ms)),
        Expiry::In(ms) => (EXPIRY_IN, Some(ms)),
        _ if expiry == default => (0, None),
        Expiry::Never | Expiry::Keep => (EXPIRY_OTHER, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instruction::{FieldType, Operation};

    /// Items as clients send them, and those with each bit of their head another.
    fn items() -> Vec<Vec<u8>> {
        let step = |operation| Instruction {
            operation,
            field_type: FieldType::U64,
            key: 0,
            reason: 1,
            offset: 0,
            immediate: 1,
        };
        let program = [step(Operation::Ge), step(Operation::Sub)];
        let mut items = Vec::new();
        for key in [
            &b"k"[..],
            b"a key of more",
            b"{tag}sixteen-key",
            &[0; 9],
            RESERVED_KEY,
        ] {
            for which in 0..6 {
                let mut frame = Vec::new();
                let mut batch = BatchRequest::begin(&mut frame, 1, AckLevel::None, 0, 1);
                match which {
                    0 => batch.get(&mut frame, key),
                    1 => batch.set(&mut frame, key, b"some value", Condition::Always),
                    2 => batch.del(&mut frame, key, Condition::Always),
                    3 => batch.update_if(&mut frame, key, None, &program, None),
                    4 => batch.update_if(&mut frame, key, Some(b"other"), &program, Some(b"9")),
                    _ => batch.set(&mut frame, key, b"", Condition::Present),
                }
                batch.finish(&mut frame);
                let body = &frame[HEADER_BYTES..];
                let item = crate::batch::Batch::read(body)
                    .expect("well formed")
                    .item(0);
                items.push(item.to_vec());
            }
        }
        let bits = items.iter().flat_map(|item| {
            let bits = 8 * item.len().min(ITEM_HEADER_BYTES + 2 * INSTRUCTION_BYTES);
            (0..bits).map(|bit| {
                let mut item = item.clone();
                item[bit / 8] ^= 1 << (bit % 8);
                item
            })
        });
        let bits: Vec<Vec<u8>> = bits.collect();
        items.extend(bits);
        items
    }

    #[test]
    fn what_is_read_as_a_plain_item_is_what_all_checks_together_read() {
        let mut plain = 0;
        for item in items() {
            for value_bytes_max in [4, 10, 1 << 20] {
                let Some(request) = Request::read_plain(&item, value_bytes_max) else {
                    continue;
                };
                plain += 1;
                let all = Request::read_any(&item, value_bytes_max);
                assert_eq!(
                    format!("{request:?}"),
                    format!("{:?}", all.expect("it is good"))
                );
            }
        }
        assert!(plain > 60, "{plain} of {} are plain", 3 * items().len());
    }

    #[test]
    fn nearly_all_items_are_plain() {
        let items = items();
        let is_plain = |item: &Vec<u8>| Request::read_plain(item, 1 << 20).is_some();
        // GET, SET, DEL and UPDATE_IF of one key; then one of two keys, and a condition.
        assert!(items[..4].iter().all(is_plain));
        assert!(!items[4..6].iter().any(is_plain));
    }
}
