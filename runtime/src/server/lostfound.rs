//! The thread of a shard that keeps what has diverged.

use std::collections::BTreeSet;
use std::io;

use penstock_shard::replication::PartitionId;
use tracing::warn;

use super::messages::{CoreStart, Letter, Report};
use crate::cluster::lostfound::note_forks::note_forks;
use crate::cluster::lostfound::{self, Found};

/// Starts the thread that keeps what has diverged on this shard.
pub(super) fn keep_lostfound(start: &CoreStart) -> io::Result<flume::Sender<Found>> {
    let (sender, found) = flume::unbounded();
    let data = start.shard.config.data.clone();
    let shard = start.shard.shard;
    let which = (start.shard.shard_config.hello.incarnation, shard);
    let inbox = start.outboxes[usize::from(shard)].clone();
    let reports = start.reports.clone();
    std::thread::Builder::new()
        .name("penstock-found".into())
        .spawn(move || {
            let kept_all = |partitions: &BTreeSet<PartitionId>| {
                if let Err(error) = note_forks(&data, which, partitions) {
                    warn!(
                        shard,
                        %error,
                        "shard {shard}: what was lost may not be told in units any more: {error}"
                    );
                }
            };
            let synced = |partition, link| drop(inbox.send(Letter::TailKept(partition, link)));
            lostfound::keep(&data, which, &found, kept_all, synced, |error| {
                let text = format!("shard {shard}: lostfound cannot be written: {error}");
                drop(reports.send(Report::Fatal(text)));
            });
        })?;
    Ok(sender)
}
