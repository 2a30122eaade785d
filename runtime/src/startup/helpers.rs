//! The threads that work for all shards of a node: they make segments, write snapshots and key
//! tables, and check the lock of the directory.

use std::collections::HashMap;
use std::sync::Arc;

use penstock_shard::opening::Inventory;
use penstock_storage::place::FileId;

use super::banner::Say;
use super::error::{OpenError, system};
use crate::directory::identity::Identity;
use crate::directory::key_table_makers::KeyTableMakers;
use crate::directory::lock_watch::LockWatch;
use crate::directory::room::DiskRoom;
use crate::directory::snapshots::SnapshotWriters;
use crate::directory::spares::{Spares, TakingOver};
use crate::directory::{Directory, write_identity};

/// The helper threads; they end when this is dropped.
pub(super) struct NodeHelpers {
    pub(super) spares: Spares,
    pub(super) snapshot_writers: SnapshotWriters,
    pub(super) key_table_makers: KeyTableMakers,
    pub(super) lock_watch: LockWatch,
    /// The segments for which an earlier run left key tables, with the length of each table in
    /// bytes.
    pub(super) key_tables_left: Arc<HashMap<FileId, u64>>,
}

impl NodeHelpers {
    /// Starts the threads, and takes the spares of the inventory. Spares of `kept_bytes` together
    /// are kept ready.
    pub(super) fn start(
        directory: &Directory,
        inventory: &mut Inventory,
        room: DiskRoom,
        kept_bytes: u64,
        say: Say,
    ) -> Result<NodeHelpers, OpenError> {
        // The limit may be a lower one than before. No start needs a table: one that cannot be
        // removed, or listed, is with a later one.
        let _ = room.clear_for_segment(0);
        let hash_seed = directory.identity().hash_seed;
        let key_table_makers = KeyTableMakers::start(room.clone(), hash_seed)
            .map_err(system("start the thread that makes key tables"))?;
        let key_tables_left = directory.key_tables().list().unwrap_or_default();
        let left = std::mem::take(&mut inventory.left);
        let spares = Spares::start(room, directory.owner(), kept_bytes, left)
            .map_err(system("start the thread that prepares segments"))?;
        if !inventory.layout.inherited.is_empty() {
            spares.expect(taking_over(directory, inventory, say));
        }
        let snapshot_writers = SnapshotWriters::start(directory.snapshots().clone())
            .map_err(system("start the thread that writes snapshots"))?;
        Ok(NodeHelpers {
            spares,
            snapshot_writers,
            key_table_makers,
            lock_watch: LockWatch::start(directory)
                .map_err(system("start the thread that checks the lock"))?,
            key_tables_left: Arc::new(key_tables_left.into_iter().collect()),
        })
    }
}

/// What the helper does when all shards have taken over what they inherited.
fn taking_over(directory: &Directory, inventory: &Inventory, say: Say) -> TakingOver {
    let (logs, layout) = (&inventory.survey.logs, &inventory.layout);
    let inherited = layout.inherited.iter();
    let segments: Vec<_> = inherited
        .filter_map(|log| logs.get(&log.log_id))
        .flatten()
        .collect();
    let bytes: u64 = segments.iter().map(|segment| segment.file_bytes).sum();
    say(format_args!(
        "inherited    {bytes} bytes in {} logs of an earlier number of shards: rewritten beside \
         the traffic",
        layout.inherited.len()
    ));
    let path = directory.path().to_path_buf();
    let identity = Identity {
        inherited: Vec::new(),
        ..directory.identity().clone()
    };
    TakingOver {
        shards: usize::from(layout.shards),
        finish: Box::new(move || write_identity(&path, &identity)),
        files: segments.iter().map(|segment| segment.file).collect(),
    }
}
