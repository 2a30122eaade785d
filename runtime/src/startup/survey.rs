//! What the logs of a directory hold, and the change of their number.

use penstock_shard::opening::{Inventory, change_shards, take_inventory};

use super::error::{OpenError, opening, system};
use super::files::NodeFiles;
use super::limits::check_change;
use crate::config::Config;
use crate::directory::room::DiskRoom;
use crate::directory::{Directory, set_aside};

/// Surveys the logs, and makes them those of `shards` shards if they are of another number.
pub(super) fn survey(
    directory: &mut Directory,
    config: &Config,
    room: &DiskRoom,
    shards: u16,
    is_of_cluster: bool,
) -> Result<Inventory, OpenError> {
    let layout = directory.identity().layout();
    let layout = layout.expect("it was read when the number of shards was chosen");
    let (owner, incarnation) = (directory.owner(), directory.identity().incarnation);
    let (segments, snapshots) = (directory.segments().clone(), directory.snapshots().clone());
    let mut files = NodeFiles::new(&segments, &snapshots);
    let inventory = take_inventory(&mut files, owner, &layout, config.segment_bytes)
        .map_err(opening(&config.data))?;
    for rotten in &inventory.rotten {
        set_aside::report(&segments, rotten);
    }
    if shards == layout.shards {
        return Ok(inventory);
    }
    let changed = change_shards(
        &mut files,
        &inventory,
        owner,
        shards,
        incarnation,
        is_of_cluster,
    )
    .map_err(opening(&config.data))?;
    check_change(config, room, &inventory, shards, changed.counted_bytes)?;
    // Snapshots tell of the logs that are inherited from now on, so they are of no more use.
    snapshots.remove_all().map_err(system("remove snapshots"))?;
    directory
        .change_layout(&changed.layout)
        .map_err(OpenError::Directory)?;
    take_inventory(&mut files, owner, &changed.layout, config.segment_bytes)
        .map_err(opening(&config.data))
}
