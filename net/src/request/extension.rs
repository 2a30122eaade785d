//! The extension of an item: MEMBER, which lets members of a partition answer a GET, or TOKEN or
//! TEXT_TOKEN, which name a write.

use crate::batch::{read_u16, read_u64};
use crate::refusal::Refusal;
use crate::request::terms::MemberRead;
use crate::request::token::Token;
use crate::request::verb::Verb;
use crate::version::Version;

/// Bytes of an area before the data of its one item.
const HEAD_BYTES: usize = 16;
/// Bytes of an area with MEMBER.
pub(super) const MEMBER_AREA_BYTES: usize = HEAD_BYTES + 24;
/// Bytes of an area with TOKEN.
pub(super) const TOKEN_AREA_BYTES: usize = HEAD_BYTES + Token::BYTES;
/// Bytes of an area with TEXT_TOKEN.
const TEXT_TOKEN_AREA_BYTES: usize = HEAD_BYTES + Token::TEXT_BYTES;

const TOKEN_TAG: u16 = 1;
const MEMBER_TAG: u16 = 2;
const TEXT_TOKEN_TAG: u16 = 3;

/// What an area says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extension<'a> {
    /// There is no area.
    None,
    /// Members may answer.
    Member(MemberRead),
    /// The write has this name, the bytes of a checked [`Token`].
    Token(&'a [u8]),
}

impl<'a> Extension<'a> {
    /// Reads the area of an item with this operation. Another tag is refused by its number.
    ///
    /// # Errors
    /// The first [`Refusal`] found.
    #[inline]
    pub(crate) fn read(operation: u8, area: &'a [u8]) -> Result<Self, Refusal> {
        match area.is_empty() {
            true => Ok(Extension::None),
            false => read_area(operation, area),
        }
    }
}

fn read_area(operation: u8, area: &[u8]) -> Result<Extension<'_>, Refusal> {
    let len = u16::try_from(area.len()).unwrap_or(u16::MAX);
    if area.len() < HEAD_BYTES || !area.len().is_multiple_of(8) {
        return Err(Refusal::ExtensionLength(len));
    }
    let tag = read_u16(area, 8);
    let (area_bytes, is_taken) = match tag {
        TOKEN_TAG => (TOKEN_AREA_BYTES, is_write(operation)),
        TEXT_TOKEN_TAG => (TEXT_TOKEN_AREA_BYTES, is_write(operation)),
        MEMBER_TAG => (MEMBER_AREA_BYTES, operation == Verb::Get as u8),
        _ => return Err(Refusal::ExtensionTag(tag)),
    };
    if !is_taken {
        return Err(Refusal::ExtensionOperation { tag, operation });
    }
    if area.len() != area_bytes || area[..HEAD_BYTES] != head(tag, area_bytes) {
        return Err(Refusal::ExtensionLength(len));
    }
    if tag != MEMBER_TAG {
        let bytes = &area[HEAD_BYTES..];
        return Token::read_item(bytes).map(|_| Extension::Token(bytes));
    }
    let version = area.last_chunk().expect("the length was compared");
    Ok(Extension::Member(MemberRead {
        staleness_us_max: read_u64(area, HEAD_BYTES),
        version_min: Version::read(version)?,
    }))
}

/// Whether an operation may have a token.
fn is_write(operation: u8) -> bool {
    [Verb::Set, Verb::Del, Verb::UpdateIf, Verb::Apply]
        .iter()
        .any(|&verb| verb as u8 == operation)
}

/// Appends an area with MEMBER.
pub(super) fn put_member(out: &mut Vec<u8>, member: MemberRead) {
    out.extend_from_slice(&head(MEMBER_TAG, MEMBER_AREA_BYTES));
    out.extend_from_slice(&member.staleness_us_max.to_le_bytes());
    member.version_min.put(out);
}

/// Gives the item at the end of `out`, which begins at `from` and has no extension, this token.
pub(super) fn insert_token(out: &mut Vec<u8>, from: usize, token: Token) {
    let block = usize::from(read_u16(out, from));
    let (bytes, len) = token.item_bytes();
    let tag = if token.is_text() {
        TEXT_TOKEN_TAG
    } else {
        TOKEN_TAG
    };
    let area_bytes = HEAD_BYTES + len;
    let area = head(tag, area_bytes)
        .into_iter()
        .chain(bytes)
        .take(area_bytes);
    // An item beyond every limit has lengths that the server refuses.
    let at = (from + block).min(out.len());
    out.splice(at..at, area);
    let with_area = u16::try_from(block + area_bytes).unwrap_or(u16::MAX);
    out[from..from + 2].copy_from_slice(&with_area.to_le_bytes());
    out[from + 6..from + 8].copy_from_slice(&short(area_bytes));
}

/// The bytes of an area before the data of its one item.
fn head(tag: u16, area_bytes: usize) -> [u8; HEAD_BYTES] {
    let mut head = [0; HEAD_BYTES];
    head[0..2].copy_from_slice(&short(area_bytes));
    head[2] = 1;
    head[8..10].copy_from_slice(&tag.to_le_bytes());
    head[10..12].copy_from_slice(&short(area_bytes - HEAD_BYTES));
    head
}

fn short(len: usize) -> [u8; 2] {
    u16::try_from(len).expect("a small constant").to_le_bytes()
}
