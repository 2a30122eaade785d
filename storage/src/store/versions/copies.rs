//! What copies of the versions of a file take.

use crate::store::versions::entry::KeptVersion;

/// What copies of kept parts of one file take more than values that the index points to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Copies {
    /// Parts that name their successor only when they are copied.
    pub(crate) unmarked: u64,
    /// Bytes of deletions, which are kept also where nothing older stands.
    pub(crate) deletion_bytes: u64,
}

impl Copies {
    pub(super) fn of(version: &KeptVersion) -> Copies {
        let is_owned = version.is_counted || version.is_deletion;
        Copies {
            unmarked: u64::from(is_owned && !version.is_marked),
            deletion_bytes: match version.is_deletion {
                true => u64::from(version.place.bytes),
                false => 0,
            },
        }
    }
}
