//! The scans of a shard, the key tables that spare them reads, and the order that their cursors
//! follow.

use penstock_storage::place::FileId;

use crate::key_tables::{KeyTableOrder, KeyTables};
use crate::scanning::{Order, Scanning};

/// Everything that a shard has for scans.
pub(crate) struct Scans {
    pub(crate) steps: Scanning,
    pub(crate) tables: KeyTables,
    pub(crate) order: Order,
}

impl Scans {
    /// No scan, for a shard with this secret of the key hash.
    pub(crate) fn new(hash_seed: u64, hash_check: u64) -> Self {
        Scans {
            steps: Scanning::default(),
            tables: KeyTables::new(hash_check),
            order: Order::new(hash_seed),
        }
    }

    /// The key table of a segment does not hold what it should, or there is no room for it.
    pub(crate) fn give_up_table(&mut self, file: FileId, orders: &mut Vec<KeyTableOrder>) {
        if self.tables.give_up(file, orders) {
            self.steps.forget_table(file);
        }
    }

    /// A segment is released, and its key table with it.
    pub(crate) fn forget_table(&mut self, file: FileId, orders: &mut Vec<KeyTableOrder>) {
        if self.tables.forget(file, orders) {
            self.steps.forget_table(file);
        }
    }

    /// There is no room for key tables: none is kept, and none that comes is taken.
    pub(crate) fn forget_all_tables(&mut self, orders: &mut Vec<KeyTableOrder>) {
        self.tables.refuse_coming();
        for file in self.tables.files() {
            self.forget_table(file, orders);
        }
    }
}
