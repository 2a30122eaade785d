//! For whom a reply waits: the disk, or members of the sync set.

use penstock_net::level::AckLevel;
use penstock_net::pieces::Pieces;
use penstock_net::reply::{ITEM_FLAG_BEGAN, ITEM_FLAG_REPLAYED, ITEM_FLAGS_AT};
use penstock_net::status::Status;
use penstock_storage::io::Blocks;
use penstock_storage::place::Lsn;
use penstock_storage::planted::{self, Bug, is_planted};
use penstock_storage::version::partition_of;

use crate::execution::Execution;
use crate::execution::operation::{Leave, Operation, Own};
use crate::replica_waits::REPLICA_REPLIES_MAX;
use crate::replication::Needed;

impl<P: Blocks> Execution<P> {
    /// What the reply must wait for at this level, after asking the log for it.
    #[inline]
    pub(crate) fn gate(&mut self, level: AckLevel, lsn: Lsn) -> Lsn {
        self.gate_of(level, lsn, 1)
    }

    /// The same of the replies of so many operations, which wait for nothing behind this record.
    #[inline]
    pub(crate) fn gate_of(&mut self, level: AckLevel, lsn: Lsn, operations: u64) -> Lsn {
        // Who does not find a key may see what a flush has done.
        let flushed = self.store.data().flushes().lsn();
        let lsn = planted::or(Bug::FlushUngated, lsn, lsn.max(flushed));
        let log = self.store.log_mut();
        if level >= AckLevel::Disk && !is_planted(Bug::AckEarly) {
            if lsn <= log.durable() {
                return Lsn(0);
            }
            log.want_durable(lsn);
            self.stats.wait(lsn, operations);
            return lsn;
        }
        // The log makes what nobody waits for durable within its interval by itself.
        Lsn(0)
    }

    /// Whether each change at this level waits by itself until other nodes have it.
    #[inline]
    pub(crate) fn changes_wait_for_members(&self, level: AckLevel) -> bool {
        let linked = self.linked.as_ref();
        linked.is_some_and(|linked| linked.needed(level, false).is_some())
    }

    /// Whom the answer to an item waits for. One that has changed nothing waits at levels `all` and
    /// `replica` alone.
    #[inline]
    pub(crate) fn needed(&self, leave: &Leave, own: &Own<'_>, is_done: bool) -> Option<Needed> {
        let linked = self.linked.as_ref().filter(|_| !leave.is_of_member)?;
        let needed = linked.needed(leave.level, own.asked.is_read());
        needed.filter(|needed| is_done || !matches!(needed, Needed::Some(_)))
    }

    /// Whether a reply may begin to wait for members of a partition; otherwise why not.
    pub(crate) fn may_wait_for(
        &self,
        partition: usize,
        needed: Needed,
    ) -> Result<(), (Status, String)> {
        let linked = self.linked.as_ref();
        match linked.and_then(|it| it.lacks_members(partition, needed)) {
            Some(lacking) => Err((Status::NoReplicas, lacking)),
            None if !self.replica_waits.has_room() => Err((
                Status::Busy,
                format!("{REPLICA_REPLIES_MAX} replies wait for other nodes, which is the limit"),
            )),
            None => Ok(()),
        }
    }

    /// Says in the answer to a write with a token, which begins at `from`, that this node has begun
    /// to write its partition behind the time of the token: what became of an earlier try is not
    /// known here.
    #[cold]
    pub(crate) fn report_began(&self, own: &Own<'_>, from: usize, pieces: &mut Pieces) {
        let Some((token, linked)) = own.asks.token().zip(self.linked.as_ref()) else {
            return;
        };
        if token.time_ms() >= linked.began_ms(partition_of(own.slot)) {
            return;
        }
        // What a write answers is not shared, so it is the end of what was written.
        let answer_bytes = pieces.len() - from;
        let out = pieces.written();
        let at = out.len() - answer_bytes + ITEM_FLAGS_AT;
        if out[at] & ITEM_FLAG_REPLAYED == 0 {
            out[at] |= ITEM_FLAG_BEGAN;
        }
    }
}

impl Operation<'_> {
    /// Says in an answer of WRONG_TYPE, to a client that does not know it, that what it has asked
    /// for is not supported. The message stays.
    #[inline]
    pub(crate) fn report_wrong_type(&self, status: Status, from: usize, pieces: &mut Pieces) {
        if status == Status::WrongType && !self.address.knows_wrong_type {
            let answer_bytes = pieces.len() - from;
            let out = pieces.written();
            let at = out.len() - answer_bytes;
            out[at..at + 2].copy_from_slice(&Status::Unsupported.code().to_le_bytes());
        }
    }
}
