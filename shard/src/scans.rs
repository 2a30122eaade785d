//! The scans of a shard, the key tables that spare them reads, and the order that their cursors
//! follow.

pub(crate) mod page;

use penstock_net::limits::Limits;
use penstock_net::scan::ScanRequest;
use penstock_storage::io::Blocks;
use penstock_storage::place::FileId;
use penstock_storage::store::Store;

use crate::key_tables::{KeyTableOrder, KeyTables};
use crate::scanning::{Order, Scan, Scanning};

use page::PageMaker;

/// Everything that a shard has for scans.
pub(crate) struct Scans {
    pub(crate) steps: Scanning,
    pub(crate) tables: KeyTables,
    order: Order,
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

    /// The page that a step of a scan asks for, of slots up to `last_slot`.
    pub(crate) fn page<'a, P: Blocks>(
        &'a self,
        store: &'a Store<P>,
        scan: &'a Scan,
        limits: &Limits,
        last_slot: u16,
    ) -> PageMaker<'a, P> {
        let request = ScanRequest::read(&scan.parked.item).expect("checked when it came");
        PageMaker {
            store,
            tables: &self.tables,
            order: self.order,
            scan,
            // A page is a part of a frame.
            bytes_max: request.bytes_max.min(limits.frame_bytes_max / 2) as usize,
            last_slot,
            request,
        }
    }

    /// Gives up the key table of a segment: it is damaged, or there is no room for it.
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
