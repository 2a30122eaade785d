//! FLUSH: all keys of a partition are gone with one record.

use penstock_net::level::AckLevel;
use penstock_net::refusal::KeyspaceName;
use penstock_net::reply::ReplyHead;
use penstock_net::request::Version;
use penstock_net::slot::tag_of;
use penstock_net::status::Status;
use penstock_storage::io::Blocks;
use penstock_storage::keyspace::Keyspaces;
use penstock_storage::store::NoRoom;
use penstock_storage::system_key::FLUSH_KEY;
use penstock_storage::version::{PARTITIONS, SLOTS, partition_of};

use crate::execution::Execution;
use crate::execution::operation::{Disposition, Own};
use crate::now::Now;

const FLUSH_KEY_BYTES: usize = FLUSH_KEY.len() + 3;

/// The key of the flush mark of a partition, which leads to its first slot.
pub(crate) fn flush_key(partition: usize) -> [u8; FLUSH_KEY_BYTES] {
    let slot = partition * (usize::from(SLOTS) / PARTITIONS);
    let mut key = [b'}'; FLUSH_KEY_BYTES];
    key[..FLUSH_KEY.len()].copy_from_slice(FLUSH_KEY);
    let tag = tag_of(u16::try_from(slot).expect("256 partitions"));
    key[FLUSH_KEY.len()..][..2].copy_from_slice(&tag);
    key
}

impl<P: Blocks> Execution<P> {
    /// Deletes all keys of the partition of an item. The answer waits until that is durable,
    /// whatever the level.
    #[cold]
    pub(crate) fn flush_item(&mut self, now: Now, own: &Own<'_>, out: &mut Vec<u8>) -> Disposition {
        let (operation, partition) = (own.operation, partition_of(own.slot));
        let level = operation.level.max(AckLevel::Disk);
        if let Some(reason) = refusal(self.linked.is_some(), self.store.keyspaces()) {
            return self.refuse_item(own.asked, operation, Status::Unsupported, &reason, out);
        }
        let hash = self.setup.hash();
        let mark = flush_key(partition);
        let flushed = self
            .store
            .flush(now.us, &mark, &|key: &[u8]| hash.home_of(key));
        let (status, lsn, version) = match flushed {
            Ok(Some(committed)) => (Status::Ok, committed.lsn, committed.version),
            // What emptied it may be on its way to the disk.
            Ok(None) => (Status::Ok, self.store.log().appended(), <_>::default()),
            Err(NoRoom::Log) => {
                let reason = "the disk is full: no segment can be made ready for the mark of a \
                              flush";
                return self.refuse_item(own.asked, operation, Status::Full, &reason, out);
            }
            Err(_) => return Disposition::Postponed,
        };
        self.stats.answer(own.asked, status);
        let version = Version {
            epoch: version.epoch,
            sequence: version.sequence,
        };
        ReplyHead::new(status, operation.address.item, level, version).write(out, &[]);
        Disposition::Answered(self.gate(level, lsn))
    }
}

/// Why no partition can be flushed here, if so.
fn refusal(is_linked: bool, keyspaces: &Keyspaces) -> Option<String> {
    if is_linked {
        return Some("a node of a cluster does not flush partitions".into());
    }
    if !keyspaces.keeps_versions() {
        return None;
    }
    let keeping = keyspaces.iter().find(|(_, it)| it.keeps_versions());
    let prefix = keeping.map_or(&[][..], |(prefix, _)| prefix);
    Some(format!(
        "keyspace {:?} keeps versions, which a flush would end: drop it, or let it keep none",
        KeyspaceName::new(prefix)
    ))
}
