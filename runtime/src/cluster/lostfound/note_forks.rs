//! Notes what the keys of diverged tails were at the fork, while the log still tells it.
//!
//! Cleaning may release that part of the log when the node has joined. So it is read when a tail is
//! kept, before its partition goes on: one reading of the log, at the disk's pace, for all tails
//! that are complete by then.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use penstock_net::slot::slot_of;
use penstock_shard::replication::PartitionId;
use penstock_storage::version::partition_of;

use crate::cluster::lostfound::forks::{append, encode};
use crate::cluster::lostfound::lost::AtFork;
use crate::cluster::lostfound::lostfound_bytes;
use crate::cluster::lostfound::tails::{LostError, read_lost_beside};

/// Nothing is noted about larger tails: their records are in memory several times while they are
/// read.
const KEPT_BYTES_MAX: u64 = 64 << 20;

/// For the shards of a process.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Notes what the log tells of the tails of these partitions, durably; what it does not tell any
/// more is left out.
///
/// # Errors
/// Why nothing was noted.
pub(crate) fn note_forks(
    data: &Path,
    (incarnation, shard): (u64, u16),
    partitions: &BTreeSet<PartitionId>,
) -> Result<(), LostError> {
    // What is read is in memory meanwhile.
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let kept_bytes = lostfound_bytes(data);
    if kept_bytes > KEPT_BYTES_MAX {
        return Err(LostError::Unreadable(format!(
            "lostfound holds {kept_bytes} bytes, more than the {KEPT_BYTES_MAX} that are looked \
             at beside the traffic"
        )));
    }
    let lost = read_lost_beside(data)?;
    let mut bytes = Vec::new();
    for lost in &lost {
        let slot = slot_of(&lost.key);
        let partition = PartitionId::try_from(partition_of(slot)).expect("256");
        if partitions.contains(&partition)
            && let AtFork::Was(before) = &lost.before
        {
            encode(slot, lost, before.as_deref(), &mut bytes);
        }
    }
    append(data, (incarnation, shard), &bytes)
        .map_err(|error| LostError::Unreadable(error.to_string()))
}
