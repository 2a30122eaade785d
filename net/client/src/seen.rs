//! The newest version of each partition that a caller has written or read. Reads at members that
//! ask for it show nothing older.

use std::collections::BTreeMap;

use penstock_net::placement::partition_of;
use penstock_net::request::Version;
use penstock_net::slot::slot_of;

/// The newest version of each partition that the caller has seen in answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    partitions: BTreeMap<u16, Version>,
}

impl Seen {
    /// Notes the version of an answer about a key: of a change its version, of a read at a member
    /// [`MemberValue::through`].
    ///
    /// [`MemberValue::through`]: crate::MemberValue::through
    pub fn note(&mut self, key: &[u8], version: Version) {
        let partition = partition_of(slot_of(key));
        let known = self.partitions.entry(partition).or_default();
        *known = version.max(*known);
    }

    /// The newest version that was noted for the key's partition, for [`MemberGet::version_min`].
    ///
    /// [`MemberGet::version_min`]: crate::MemberGet::version_min
    #[must_use]
    pub fn of(&self, key: &[u8]) -> Option<Version> {
        self.partitions.get(&partition_of(slot_of(key))).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_version_of_a_partition_counts_for_all_of_its_keys() {
        let version = |epoch, sequence| Version { epoch, sequence };
        let mut seen = Seen::default();
        assert_eq!(seen.of(b"{a}1"), None);
        seen.note(b"{a}1", version(1, 9));
        seen.note(b"{a}2", version(1, 7));
        assert_eq!(seen.of(b"{a}3"), Some(version(1, 9)));
        seen.note(b"{a}2", version(2, 8));
        assert_eq!(seen.of(b"{a}1"), Some(version(2, 8)));
        assert_eq!(seen.of(b"{b}1"), None);
    }
}
