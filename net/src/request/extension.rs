//! The extension of an item: MEMBER, which lets members of a partition answer a GET.

use crate::batch::{read_u16, read_u64};
use crate::refusal::Refusal;
use crate::request::terms::MemberRead;
use crate::request::verb::Verb;
use crate::version::Version;

const MEMBER_TAG: u16 = 2;
const MEMBER_HEAD_BYTES: usize = 16;
/// Bytes of an area with MEMBER.
pub(super) const MEMBER_AREA_BYTES: usize = MEMBER_HEAD_BYTES + 24;

/// Reads the area of an item. MEMBER is the only extension: another tag is refused by its number.
#[cold]
pub(super) fn read(operation: u8, area: &[u8]) -> Result<MemberRead, Refusal> {
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
    if area.len() != MEMBER_AREA_BYTES || area[..MEMBER_HEAD_BYTES] != head() {
        return Err(Refusal::ExtensionLength(len));
    }
    let version = area.last_chunk().expect("the length was compared");
    Ok(MemberRead {
        staleness_us_max: read_u64(area, MEMBER_HEAD_BYTES),
        version_min: Version::read(version)?,
    })
}

/// Why the area of an operation is refused that takes no extension.
#[cold]
pub(crate) fn refusal(operation: u8, area: &[u8]) -> Refusal {
    let len = u16::try_from(area.len()).unwrap_or(u16::MAX);
    read(operation, area)
        .err()
        .unwrap_or(Refusal::ExtensionLength(len))
}

/// Appends an area with MEMBER.
pub(super) fn put(out: &mut Vec<u8>, member: MemberRead) {
    out.extend_from_slice(&head());
    out.extend_from_slice(&member.staleness_us_max.to_le_bytes());
    member.version_min.put(out);
}

/// The bytes of an area before the data of MEMBER.
fn head() -> [u8; MEMBER_HEAD_BYTES] {
    let mut head = [0; MEMBER_HEAD_BYTES];
    let bytes = |len: usize| u16::try_from(len).expect("a small constant").to_le_bytes();
    head[0..2].copy_from_slice(&bytes(MEMBER_AREA_BYTES));
    head[2] = 1;
    head[8..10].copy_from_slice(&MEMBER_TAG.to_le_bytes());
    head[10..12].copy_from_slice(&bytes(MEMBER_AREA_BYTES - MEMBER_HEAD_BYTES));
    head
}
