//! The store of a shard, as links use it in one turn.

use penstock_storage::io::{Blocks, Io};
use penstock_storage::place::Lsn;
use penstock_storage::store::Store;

use crate::replication::notes::{Notes, Tags};

/// The times of one turn.
#[derive(Clone, Copy, Debug)]
pub struct LinkTime {
    /// The monotonic clock, in microseconds.
    pub now_us: u64,
    /// The time of the store, in unix milliseconds.
    pub time_ms: u64,
}

/// What one turn of the links has to work with: time, store, hash of keys, requests for reads.
pub(super) struct StoreTurn<'a, P: Blocks, H> {
    pub(super) time: LinkTime,
    pub(super) store: &'a mut Store<P>,
    pub(super) tags: &'a Tags,
    pub(super) hash_of: &'a H,
    pub(super) io: &'a mut Vec<Io<P::Block>>,
}

impl<P: Blocks, H: Fn(&[u8]) -> u32> StoreTurn<'_, P, H> {
    /// Where local records are written to.
    pub(super) fn notes(&mut self) -> Notes<'_, P> {
        Notes {
            store: self.store,
            tags: self.tags,
            now_us: self.time.now_us,
        }
    }

    /// The log is to become durable up to this record.
    pub(super) fn want_durable(&mut self, lsn: Lsn) {
        self.store.log_mut().want_durable(lsn);
    }
}
