//! The items of the extension area of a part: whether the part may have them.

use crate::format::extension::{self, EFFECTS_BYTES_MAX, Group};
use crate::planted::{Bug, is_planted};

use super::{FLAG_EXTENSION, PartKind, PartView};

/// Whether a part may have the items of its area, which was checked.
pub(super) fn are_sound(part: &PartView<'_>, area: &[u8]) -> bool {
    let is_put = part.kind() == PartKind::Put;
    let may_run =
        |effects: &[u8]| is_put && part.expiry_ms().is_some() && effects.len() <= EFFECTS_BYTES_MAX;
    let may_be_many =
        |changes| is_put && part.count() == 1 && (2..=part.sequence()).contains(&changes);
    // The first part of a record tells its place in a group. A copy is the only part of its record.
    let may_be_of_group = |group: Option<Group>| group.is_some() && part.ordinal() == 0;
    extension::effects(area).is_none_or(may_run)
        && extension::changes(area).is_none_or(may_be_many)
        && extension::group(area).is_none_or(may_be_of_group)
}

impl PartView<'_> {
    /// Whether it is the first part of the last record of a group.
    pub(crate) fn is_last_of_group(&self) -> bool {
        self.group().is_some_and(|it| it.ordinal + 1 == it.count)
    }

    /// The place of its record in a group, if the part tells: the first part of such a record does.
    /// A copy by cleaning is of no group.
    #[inline]
    #[must_use]
    pub fn group(&self) -> Option<Group> {
        match self.bytes[9] & FLAG_EXTENSION {
            0 => None,
            _ if self.is_copy() && !is_planted(Bug::CopyOfGroup) => None,
            _ => extension::group(self.extension()).flatten(),
        }
    }
}
