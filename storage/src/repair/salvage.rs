//! The records that can still be read in a damaged stretch.

use crate::format::frame_body::{GroupNext, count_records};
use crate::format::record::{
    NUMBER_BYTES, PART_HEADER_BYTES, PartError, PartView, part_bytes, read_u32,
};
use crate::repair::damage::LostPart;
use crate::repair::damage::NAMED_PARTS_MAX;
use crate::types::io::BLOCK_BYTES;

/// No record is kept of a damaged stretch that is longer than this.
pub(super) const SALVAGE_BYTES_MAX: u64 = 64 << 20;

/// What is left of a damaged stretch.
#[derive(Default)]
pub(super) struct Salvage {
    /// The parts of the records that are whole.
    pub(super) kept: Vec<u8>,
    pub(super) kept_records: u64,
    /// Records that are not whole, at most, as far as they can be seen.
    pub(super) broken: u64,
    /// Parts of those.
    pub(super) lost: Vec<LostPart>,
}

impl Salvage {
    /// Takes the parts of the frame whose body begins at `at`, and returns where they end.
    pub(super) fn frame(&mut self, bytes: &[u8], mut at: usize) -> usize {
        let mut pending = Pending::default();
        while at < bytes.len() {
            match PartView::read(&bytes[at..]) {
                Ok(part) => {
                    at += part.bytes().len();
                    if !pending.is_followed_by(&part) {
                        self.lose(&mut pending);
                    }
                    pending.add(part);
                    if pending.is_whole() {
                        self.end(&mut pending);
                    }
                }
                Err(PartError::Unsupported { .. }) => {
                    self.broken += 1;
                    break;
                }
                Err(PartError::Damaged) => {
                    self.lose(&mut pending);
                    let is_end = at.is_multiple_of(BLOCK_BYTES)
                        || bytes[at..].iter().take(8).all(|&byte| byte == 0);
                    self.broken += u64::from(!is_end);
                    let Some((len, part)) = unchecked(&bytes[at..]) else {
                        break;
                    };
                    if self.lost.len() < NAMED_PARTS_MAX {
                        self.lost.push(part);
                    }
                    at += len;
                }
            }
        }
        self.lose(&mut pending);
        at
    }

    /// Keeps records that have all of their parts, unless these contradict each other.
    fn end(&mut self, pending: &mut Pending<'_>) {
        let parts = pending.parts.iter().flat_map(|part| part.bytes());
        let whole: Vec<u8> = parts.copied().collect();
        if count_records(&whole) != Ok(pending.records) {
            return self.lose(pending);
        }
        self.kept.extend(whole);
        self.kept_records += u64::from(pending.records);
        *pending = Pending::default();
    }

    fn lose(&mut self, pending: &mut Pending<'_>) {
        self.broken += u64::from(pending.records);
        for part in std::mem::take(pending).parts {
            if self.lost.len() < NAMED_PARTS_MAX {
                self.lost.push(LostPart {
                    key: part.key().to_vec(),
                    slot: part.slot(),
                    epoch: part.epoch(),
                    sequence: part.sequence(),
                    is_checked: true,
                });
            }
        }
    }
}

/// The parts so far of a record that may turn out whole, or of the records of a group.
#[derive(Default)]
struct Pending<'a> {
    parts: Vec<PartView<'a>>,
    /// Records that have begun.
    records: u32,
    /// Parts of the last one of them that are missing.
    missing: usize,
    /// What follows the last one of them.
    next: GroupNext,
}

impl<'a> Pending<'a> {
    fn is_followed_by(&self, part: &PartView<'_>) -> bool {
        match self.missing {
            0 => part.ordinal() == 0 && self.next.take(part.group()).is_some(),
            missing => part.ordinal() + missing == part.count(),
        }
    }

    /// Takes a part in, whether it follows or is the first of what is pending.
    fn add(&mut self, part: PartView<'a>) {
        if self.missing == 0 {
            self.records += 1;
            // A record in the middle of a group is never whole: the check of the end sees that.
            self.next = self.next.take(part.group()).unwrap_or_default();
            self.missing = part.count() - part.ordinal();
        }
        self.missing -= 1;
        self.parts.push(part);
    }

    fn is_whole(&self) -> bool {
        self.missing == 0 && self.next == GroupNext::Begin
    }
}

/// Length and name of a part that does not check. It is stepped over only if its lengths, which
/// stand there twice, agree: so the damage is elsewhere.
fn unchecked(bytes: &[u8]) -> Option<(usize, LostPart)> {
    const FLAG_EXPIRY: u8 = 1;
    const FLAG_EXTENSION: u8 = 2;
    const FLAG_NUMBERED: u8 = 32;
    let header = bytes.first_chunk::<PART_HEADER_BYTES>()?;
    let len = read_u32(&header[0..4]) as usize;
    let key_bytes = usize::from(u16::from_le_bytes([header[14], header[15]]));
    let value_bytes = read_u32(&header[16..20]) as usize;
    let flags = header[9];
    let number_bytes = match flags & FLAG_NUMBERED {
        0 => 0,
        _ => NUMBER_BYTES,
    };
    let expires = flags & FLAG_EXPIRY != 0;
    if flags & !(FLAG_EXPIRY | FLAG_EXTENSION | FLAG_NUMBERED) != 0 || len > bytes.len() {
        return None;
    }
    let fixed_bytes = part_bytes(key_bytes, value_bytes, expires, 0) + number_bytes;
    let area = bytes[..len].get(fixed_bytes..)?;
    let agrees = match flags & FLAG_EXTENSION {
        0 => area.is_empty(),
        _ => is_area(area),
    };
    if !agrees {
        return None;
    }
    let part = LostPart {
        key: bytes[PART_HEADER_BYTES..][..key_bytes].to_vec(),
        slot: u16::from_le_bytes([header[12], header[13]]),
        epoch: read_u32(&header[20..24]),
        sequence: crate::format::record::read_u64(&header[24..32]),
        is_checked: false,
    };
    Some((len, part))
}

/// Whether these bytes begin as an extension area that is as long as they are.
fn is_area(bytes: &[u8]) -> bool {
    let Some(head) = bytes.first_chunk::<8>() else {
        return false;
    };
    let len = usize::from(u16::from_le_bytes([head[0], head[1]]));
    len == bytes.len() && head[4..] == [0; 4]
}
