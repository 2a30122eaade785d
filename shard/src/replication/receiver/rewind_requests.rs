//! Keys of diverged records that a source is to write anew.

use std::collections::{BTreeMap, VecDeque};

use penstock_net::link::message::REWIND_KEYS_MAX;

use crate::replication::PartitionId;
use crate::replication::planted::{Bug, is_planted};
use penstock_storage::if_planted;

/// Partitions of a link whose keys the source is to write anew.
#[derive(Debug, Default)]
pub(super) struct RewindRequests {
    of: BTreeMap<PartitionId, RewindRequest>,
}

#[derive(Debug, Default)]
struct RewindRequest {
    keys: VecDeque<Vec<u8>>,
    /// The diverged records are in lostfound, so all keys are known.
    is_saved: bool,
    /// REWOUND is awaited.
    waits: bool,
    is_last_sent: bool,
}

/// The keys of one REWIND.
pub(super) struct RewindKeys {
    pub(super) partition: PartitionId,
    pub(super) is_last: bool,
    pub(super) keys: Vec<Vec<u8>>,
}

impl RewindRequests {
    /// The source owes a rewind of a partition; its keys follow.
    pub(super) fn begin(&mut self, partition: PartitionId) {
        self.of.insert(partition, RewindRequest::default());
    }

    /// The link has lost a partition.
    pub(super) fn forget(&mut self, partition: PartitionId) {
        self.of.remove(&partition);
    }

    /// The diverged records of a partition are in lostfound; these were their keys.
    pub(super) fn saved(
        &mut self,
        partition: PartitionId,
        keys: impl IntoIterator<Item = Vec<u8>>,
    ) {
        if let Some(request) = self.of.get_mut(&partition) {
            request.is_saved = true;
            request.keys.extend(keys);
            if_planted!(Bug::RewindForgets, request.keys.clear());
        }
    }

    /// REWOUND has come.
    pub(super) fn answered(&mut self, partition: PartitionId) {
        if let Some(request) = self.of.get_mut(&partition) {
            request.waits = false;
            if request.is_last_sent {
                self.of.remove(&partition);
            }
        }
    }

    /// The next REWIND of a partition behind the one of this number, if the source owes no answer.
    pub(super) fn next(&mut self, behind: Option<PartitionId>) -> Option<RewindKeys> {
        let from = behind.map_or(0, |behind| behind + 1);
        let is_ready =
            |request: &RewindRequest| request.is_saved && !request.waits && !request.is_last_sent;
        let mut requests = self.of.range_mut(from..);
        let (&partition, request) = requests.find(|(_, request)| is_ready(request))?;
        let count = request.keys.len().min(REWIND_KEYS_MAX);
        let keys = request.keys.drain(..count).collect();
        request.is_last_sent = request.keys.is_empty();
        request.waits = true;
        Some(RewindKeys {
            partition,
            is_last: request.is_last_sent,
            keys,
        })
    }
}
