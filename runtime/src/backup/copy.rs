//! Copies what a backup is to hold, after every byte of it was checked.

use std::collections::BTreeMap;
use std::path::Path;

use penstock_storage::inspect::{Report, inspect_laid_out};
use penstock_storage::io::BLOCK_BYTES;
use penstock_storage::layout::Layout;
use penstock_storage::place::FileId;
use penstock_storage::recovery::Event;
use penstock_storage::segment::{Owner, SegmentHeader};
use penstock_storage::snapshot::ProvenEnds;

use super::manifest::{LogCopy, Manifest, SegmentCopy};
use super::vault::Vault;
use super::view::View;
use super::{BackupError, DurableEnd, Taken};
use crate::directory::identity::Identity;
use crate::system::advice;

/// A segment that is to be in the backup.
struct Chosen {
    file: FileId,
    header: SegmentHeader,
    end_offset: u64,
}

/// The segments that the backup takes. Each of their bytes was checked.
struct Checked {
    /// By log, in the order of the segments.
    chosen: BTreeMap<u64, Vec<Chosen>>,
    report: Report,
    layout: Layout,
}

impl Checked {
    /// Reads all of `view`.
    fn read(
        data: &Path,
        identity: &Identity,
        view: &mut View,
        proven: &ProvenEnds,
    ) -> Result<Checked, BackupError> {
        let owner = Owner {
            cluster_id: identity.cluster_id,
            node_id: identity.node_id,
        };
        let mut chosen: BTreeMap<u64, Vec<Chosen>> = BTreeMap::new();
        let layout = identity.layout().ok_or_else(|| {
            BackupError::Damaged(format!("IDENTITY tells of {} shards", identity.log_count))
        })?;
        let mut see = |event: &Event<'_>| match event {
            Event::Segment(segment) => {
                let of_log = chosen.entry(segment.header.log_id).or_default();
                of_log.push(Chosen {
                    file: segment.file,
                    header: segment.header,
                    end_offset: BLOCK_BYTES as u64,
                });
            }
            Event::Frame(file, frame) => {
                let end_offset = frame.offset + frame.padded_bytes() as u64;
                let segments = chosen.values_mut().flatten();
                for segment in segments.filter(|segment| segment.file == *file) {
                    segment.end_offset = end_offset;
                }
            }
            Event::Contents(_) | Event::Prefetch(_) | Event::Part(..) => {}
        };
        let report = inspect_laid_out(view, Some(owner), &layout, proven, &mut see);
        if let Some(damage) = report.damage.first() {
            return Err(BackupError::Damaged(format!(
                "{}; nothing was backed up; to see all, once the server is stopped: {}",
                damage.within(&data.to_string_lossy()),
                advice::inspect(data)
            )));
        }
        Ok(Checked {
            chosen,
            report,
            layout,
        })
    }

    /// The last record of a log that can be read.
    fn lsn_of(&self, log_id: u64) -> u64 {
        let log = self.report.logs.get(&log_id);
        log.map_or(0, |log| log.last_lsn.0)
    }

    /// Refuses logs that cannot be read as far as the server says that they are durable.
    fn refuse_shorter(&self, ends: &[DurableEnd]) -> Result<(), BackupError> {
        let is_short = |end: &&DurableEnd| self.lsn_of(end.log_id) < end.lsn.0;
        let Some(end) = ends.iter().find(is_short) else {
            return Ok(());
        };
        Err(BackupError::Damaged(format!(
            "log {} can be read to LSN {}, and the server says that LSN {} is durable; nothing was \
             backed up",
            end.log_id,
            self.lsn_of(end.log_id),
            end.lsn.0
        )))
    }

    /// The logs of the layout, then others that are there.
    fn logs(&self) -> impl Iterator<Item = u64> {
        let others = self.chosen.keys().copied();
        let others = others.filter(|log_id| !self.layout.own().contains(log_id));
        self.layout.own().chain(others)
    }
}

/// Checks every byte of `view`, copies what `to` does not hold yet, and writes the manifest.
pub(super) fn copy(
    data: &Path,
    identity: &Identity,
    (mut view, proven): (View, &ProvenEnds),
    to: &Path,
    keep: Option<usize>,
    now_ms: u64,
    ends: &[DurableEnd],
) -> Result<Taken, BackupError> {
    let mut vault = Vault::open(to)?;
    let known = vault.known(identity)?;
    let checked = Checked::read(data, identity, &mut view, proven)?;
    checked.refuse_shorter(ends)?;

    let (mut copied, mut copied_bytes) = (0, 0);
    let mut logs = Vec::new();
    for log_id in checked.logs() {
        let mut segments = Vec::new();
        for part in checked.chosen.get(&log_id).into_iter().flatten() {
            let header = &part.header;
            let is_known = known.contains(&(log_id, header.sequence, header.salt, part.end_offset));
            let source = view.path(part.file);
            let (hash, is_new) =
                vault.put(log_id, header.sequence, source, part.end_offset, is_known)?;
            if is_new {
                copied += 1;
                copied_bytes += part.end_offset;
            }
            segments.push(SegmentCopy {
                sequence: header.sequence,
                salt: header.salt,
                bytes: part.end_offset,
                hash,
            });
        }
        logs.push(LogCopy {
            log_id,
            lsn: checked.lsn_of(log_id),
            segments,
        });
    }
    let mut manifest = Manifest {
        time_ms: now_ms,
        cluster_id: identity.cluster_id,
        node_id: identity.node_id,
        incarnation: identity.incarnation,
        log_count: identity.log_count,
        segment_bytes: identity.segment_bytes,
        value_bytes_max: identity.value_bytes_max,
        logs,
    };
    let name = vault.publish(&mut manifest)?;
    let pruned = match keep {
        Some(keep) => vault.prune(keep)?,
        None => 0,
    };
    Ok(Taken {
        name,
        manifest,
        copied,
        copied_bytes,
        pruned,
    })
}
