//! The body of a frame: what each kind holds, as far as the frame alone tells.

use crate::format::contents::Contents;
use crate::format::extension::Group;
use crate::format::frame::FrameHeader;
use crate::format::frame::FrameKind;
use crate::format::record::PartError;
use crate::format::record::PartView;
use crate::format::summary::Summary;
use crate::types::io::BLOCK_BYTES;

/// The parts at the start of a repair's body; `None` if anything but zeros stands behind them. A
/// part never begins with zeros: its length does.
pub(crate) fn kept_parts(body: &[u8]) -> Option<&[u8]> {
    let mut end = 0;
    while let Ok(part) = PartView::read(&body[end..]) {
        end += part.bytes().len();
    }
    let (parts, rest) = body.split_at(end);
    rest.chunks(BLOCK_BYTES).all(is_zero).then_some(parts)
}

/// Whether the body of a frame is one of its kind, as far as the frame alone tells.
pub(crate) fn is_sound(frame: &FrameHeader, body: &[u8]) -> bool {
    let count = frame.record_count;
    match frame.kind {
        FrameKind::Commit => count > 0 && count_records(body) == Ok(count),
        FrameKind::Mark => count == 0 && body.is_empty(),
        FrameKind::Summary => count == 0 && Summary::read(body).is_some(),
        FrameKind::Contents => count == 0 && Contents::read(body).is_some(),
        FrameKind::Repair => kept_parts(body)
            .is_some_and(|parts| count_records(parts).is_ok_and(|records| records <= count)),
    }
}

/// Checks the parts of a frame and how they make up records and groups, and counts the records.
pub(crate) fn count_records(body: &[u8]) -> Result<u32, PartError> {
    read_records(body, |_| ())
}

/// What follows a record, as far as groups tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum GroupNext {
    /// A record of no group, or the first one of a group.
    #[default]
    Begin,
    /// This record of the same group.
    Record(Group),
}

impl GroupNext {
    /// Takes the next record, which has this place in a group; what follows then. `None`: the
    /// record does not follow.
    pub(crate) fn take(self, group: Option<Group>) -> Option<Self> {
        match (self, group) {
            (GroupNext::Begin, None) => Some(GroupNext::Begin),
            (GroupNext::Begin, Some(first)) if first.ordinal == 0 => Some(Self::behind(first)),
            (GroupNext::Record(next), Some(found)) if found == next => Some(Self::behind(found)),
            _ => None,
        }
    }

    fn behind(Group { ordinal, count }: Group) -> Self {
        let ordinal = ordinal + 1;
        match ordinal == count {
            true => GroupNext::Begin,
            false => GroupNext::Record(Group { ordinal, count }),
        }
    }
}

/// As [`count_records`]; each part is given to `take`, before all are checked.
pub(crate) fn read_records<'a>(
    body: &'a [u8],
    mut take: impl FnMut(PartView<'a>),
) -> Result<u32, PartError> {
    let mut records = 0;
    let mut next = GroupNext::Begin;
    let mut start = 0;
    // The state of an incomplete record: its next ordinal, and the fields that its parts share.
    let mut expected = 0;
    let mut shared = (0, 0, 0, 0, 0);
    while start < body.len() {
        let part = PartView::read(&body[start..])?;
        let shares = (
            part.count(),
            part.slot(),
            part.epoch(),
            part.sequence(),
            part.time_ms(),
        );
        if part.ordinal() == 0 {
            records += 1;
            shared = shares;
            next = next.take(part.group()).ok_or(PartError::Damaged)?;
        }
        if part.ordinal() != expected || shares != shared {
            return Err(PartError::Damaged);
        }
        expected = (expected + 1) % part.count();
        start += part.bytes().len();
        take(part);
    }
    if expected == 0 && next == GroupNext::Begin {
        Ok(records)
    } else {
        Err(PartError::Damaged)
    }
}

/// For at most one block. A comparison of memory is many times faster than a loop over bytes, and a
/// start looks through whole segments.
pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    *bytes == [0; BLOCK_BYTES][..bytes.len()]
}
