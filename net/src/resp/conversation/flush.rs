//! FLUSHALL and FLUSHDB: one item for each partition.

use crate::link::message::LINK_PARTITIONS;
use crate::slot::{PARTITION_SLOTS, tag_of};

use super::super::answer::Fold;
use super::super::host::Host;
use super::super::parser::Arguments;
use super::super::rights;
use super::super::sink::Sink;
use super::super::table::Name;
use super::{NOT_ONE_ITEM, Passed, Talk};

/// Bytes of the key of an item, filled up.
const KEY_BYTES_MAX: usize = 8;
const TURNED_OFF: &[u8] = b"ERR FLUSHALL and FLUSHDB are turned off at this server by its option \
    resp_flush";
const IN_CLUSTER: &[u8] = b"ERR FLUSHALL and FLUSHDB are not supported by a node of a cluster";

impl Talk {
    /// Sends an item for each partition, as far as there is room. An item waits for what its
    /// connection has asked of one slot, and takes the keys of 64: so nothing of the connection is
    /// under way when the first one is sent, and nothing is taken before the last one is answered.
    #[cold]
    pub(super) fn flush(
        &mut self,
        id: Name,
        args: Arguments<'_>,
        sink: &mut Sink<'_>,
        host: &dyn Host,
    ) -> Passed {
        if self.current_entry.is_none() {
            if let Some(rights) = &self.rights
                && let Some(text) = rights::refusal(id, args, rights)
            {
                return self.refuse_only(&text);
            }
            let is = |name: &str| args.get(1).eq_ignore_ascii_case(name.as_bytes());
            if args.len() > 2 || args.len() == 2 && !is("ASYNC") && !is("SYNC") {
                return self.refuse_only(b"ERR syntax error");
            }
            if host.facts().switches.refuses_flush {
                return self.refuse_only(TURNED_OFF);
            }
            if self.is_clustered {
                return self.refuse_only(IN_CLUSTER);
            }
            if self.options.token.take().is_some() {
                return self.refuse_only(NOT_ONE_ITEM);
            }
            if !self.ring.is_empty() || !sink.is_empty() {
                return Passed::Waits;
            }
            self.ring.subject().set(id, b"", args.len(), 0);
        }
        let (len, mut next) = self.current.expect("there is one");
        if sink.is_empty() {
            // The bytes of the command do not tell how many items there are.
            sink.items_max = sink.items_max.max(usize::from(LINK_PARTITIONS));
        }
        // The first one has number 1, as arguments have.
        for partition in (0..LINK_PARTITIONS).skip(next - 1) {
            if !self.ring.has_room() || !sink.has_room(1, 2 * KEY_BYTES_MAX) {
                self.current = Some((len, next));
                return Passed::Part;
            }
            let (batch, out) = sink.batch(self.ring.next_item());
            batch.flush(out, &key_of(partition));
            let entry = match self.current_entry {
                Some(entry) => entry,
                None => self.ring.push(Fold::Done, self.protocol),
            };
            self.current_entry = Some(entry);
            self.ring.add_item(entry);
            next += 1;
        }
        let entry = self.current_entry.expect("there are partitions");
        self.ring.holds_others_back(entry);
        self.ring.close(entry, &mut self.out);
        Passed::Whole
    }
}

/// A key of a partition: the tag of its first slot.
fn key_of(partition: u16) -> [u8; 2] {
    tag_of(partition * PARTITION_SLOTS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::partition_of;
    use crate::slot::slot_of;

    #[test]
    fn each_partition_has_a_key() {
        for partition in 0..LINK_PARTITIONS {
            assert_eq!(partition_of(slot_of(&key_of(partition))), partition);
        }
    }
}
