//! WAIT: at how many nodes the writes of a connection are.

use crate::limits::BATCH_ITEMS_MAX;
use crate::link::message::LINK_PARTITIONS;
use crate::placement::partition_of;
use crate::rights::{Need, Rights};
use crate::slot::slot_of;

use super::host::ClusterView;
use super::number::read_integer;
use super::parser::Arguments;

/// Keys that are tried: of all partitions each comes up within some thousands.
const KEYS_TRIED_MAX: usize = 1 << 16;
const WORDS: usize = LINK_PARTITIONS as usize / 64;
// One frame asks for all partitions.
const _: () = assert!(LINK_PARTITIONS as usize <= BATCH_ITEMS_MAX);

/// The partitions that a connection has written since the last WAIT.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Written([u64; WORDS]);

impl Written {
    /// A key of this slot may be changed.
    #[inline]
    pub(super) fn note(&mut self, slot: u16) {
        let partition = usize::from(partition_of(slot));
        self.0[partition / 64] |= 1 << (partition % 64);
    }

    /// A key of any slot may be changed: a script says its keys in the shard alone.
    pub(super) fn note_all(&mut self) {
        self.0 = [u64::MAX; WORDS];
    }

    fn has(&self, partition: u16) -> bool {
        let partition = usize::from(partition);
        self.0[partition / 64] & 1 << (partition % 64) != 0
    }

    /// How many other nodes level `replica` waits for, of the partition with the fewest.
    pub(super) fn nodes(&self, view: &ClusterView) -> usize {
        let slots = crate::slot::SLOTS / LINK_PARTITIONS;
        let written = (0..LINK_PARTITIONS).filter(|partition| self.has(*partition));
        let nodes = written.map(|partition| {
            let range = view.range_of(partition * slots);
            range.map_or(0, |range| range.sync.len())
        });
        nodes.min().unwrap_or(0)
    }

    /// A key of each partition that was written. Nothing need be there: a read of it at level
    /// `replica` waits for all that stands before it in the log of the partition's shard. `None` if
    /// there is a partition of which the user may read no key that was found.
    pub(super) fn keys(&self, rights: Option<&Rights>) -> Option<Vec<Vec<u8>>> {
        let begins = rights.map_or_else(|| vec![Vec::new()], Rights::readable);
        let mut missing = *self;
        let mut keys = Vec::new();
        for number in 0..KEYS_TRIED_MAX {
            if missing == Written::default() {
                return Some(keys);
            }
            let begin = begins.get(number % begins.len().max(1))?;
            let mut key = begin.clone();
            key.extend_from_slice(format!("wait:{}", number / begins.len()).as_bytes());
            let partition = partition_of(slot_of(&key));
            let may_read = rights.is_none_or(|rights| rights.allows(Need::READ, &key));
            if missing.has(partition) && may_read {
                missing.0[usize::from(partition) / 64] &= !(1 << (partition % 64));
                keys.push(key);
            }
        }
        None
    }
}

/// Reads how many nodes are wanted, which decides nothing, and for how many milliseconds, 0 for as
/// long as level `replica` waits.
pub(super) fn read_wait(args: Arguments<'_>) -> Result<u16, &'static [u8]> {
    read_integer(args.get(1)).ok_or(&b"ERR value is not an integer or out of range"[..])?;
    match read_integer(args.get(2)) {
        None => Err(b"ERR timeout is not an integer or out of range"),
        Some(..0) => Err(b"ERR timeout is negative"),
        Some(ms) => Ok(u16::try_from(ms).unwrap_or(u16::MAX)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rights::{Grants, Right};

    #[test]
    fn each_partition_that_was_written_gets_one_key_of_its_own() {
        let mut written = Written::default();
        for slot in (0..crate::slot::SLOTS).step_by(61) {
            written.note(slot);
        }
        let keys = written.keys(None).expect("each is found");
        let mut partitions: Vec<u16> = keys.iter().map(|key| partition_of(slot_of(key))).collect();
        partitions.sort_unstable();
        assert_eq!(partitions, (0..LINK_PARTITIONS).collect::<Vec<_>>());
        assert_eq!(Written::default().keys(None), Some(Vec::new()));
    }

    #[test]
    fn who_may_read_a_part_of_the_keys_waits_with_keys_of_that_part() {
        let mut written = Written::default();
        for slot in (0..crate::slot::SLOTS).step_by(61) {
            written.note(slot);
        }
        let mut grants = Grants::new();
        let rights = Rights::new("ann", &grants);
        assert_eq!(written.keys(Some(&rights)), None);
        grants.grant(Right::Write, b"").expect("granted");
        grants.grant(Right::Read, b"stock:{42}:").expect("granted");
        let rights = Rights::new("ann", &grants);
        assert_eq!(
            written.keys(Some(&rights)),
            None,
            "all of them are of one slot"
        );
        let mut one = Written::default();
        one.note(slot_of(b"{42}"));
        assert_eq!(one.keys(Some(&rights)).map(|keys| keys.len()), Some(1));
        grants.grant(Right::Read, b"stock:").expect("granted");
        let rights = Rights::new("ann", &grants);
        let keys = written.keys(Some(&rights)).expect("each is found");
        assert_eq!(keys.len(), usize::from(LINK_PARTITIONS));
        assert!(keys.iter().all(|key| key.starts_with(b"stock:")));
    }
}
