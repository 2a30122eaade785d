//! What a finished snapshot proves of its log, whether a start can use its entries or not.
//!
//! A snapshot is finished only when `to` is durable ([`Taking`](super::Taking)), and a durable
//! record never leaves its log: cleaning appends copies under new LSNs, a node that rewinds appends
//! new versions, and a repair counts what it gives up. So a log that ends before `to` has lost
//! records that were durable. Header and footer prove that; the entries between them may be
//! damaged, of another key hash, or gone.

use std::collections::BTreeMap;
use std::io;

use crate::format::segment::Owner;
use crate::recovery::recovered::Recovered;
use crate::recovery::refusal::RecoveryError;
use crate::recovery::snapshot::format::FOOTER_BYTES;
use crate::recovery::snapshot::format::{SnapshotError, SnapshotName};
use crate::recovery::snapshot::read::SnapshotReader;
use crate::recovery::snapshot::read::fill;
use crate::types::place::Lsn;

/// How far a log was durable, by the newest of its snapshots that is finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProvenEnd {
    /// All records up to this one were durable.
    pub lsn: Lsn,
    /// The snapshot that proves it.
    pub snapshot: SnapshotName,
    /// The start of the node that took it.
    pub incarnation: u64,
    /// The newest time that the log carried then, in unix milliseconds.
    pub time_ms: u64,
}

/// The proven ends of logs, by log.
pub type ProvenEnds = BTreeMap<u64, ProvenEnd>;

/// A finished snapshot of `file_bytes` without its entries: header and footer, which prove what
/// they proved, and which no start can use.
///
/// # Errors
/// As for [`SnapshotReader::open`].
pub fn stub(
    mut read_at: impl FnMut(u64, &mut [u8]) -> io::Result<usize>,
    file_bytes: u64,
) -> Result<Vec<u8>, SnapshotError> {
    let header_bytes = SnapshotReader::open(&mut read_at, file_bytes)?.header_bytes;
    let header_bytes = usize::try_from(header_bytes).expect("it was read");
    let mut bytes = vec![0; header_bytes + FOOTER_BYTES];
    let (header, footer) = bytes.split_at_mut(header_bytes);
    let is_whole = fill(&mut read_at, 0, header)?
        && fill(&mut read_at, file_bytes - FOOTER_BYTES as u64, footer)?;
    match is_whole {
        true => Ok(bytes),
        false => Err(SnapshotError::Damaged {
            offset: 0,
            cause: "it became shorter while it was read",
        }),
    }
}

impl ProvenEnd {
    /// What the snapshot `name` proves; nothing if it is of another node, or was given another
    /// name.
    pub fn of_snapshot<R: FnMut(u64, &mut [u8]) -> io::Result<usize>>(
        owner: Owner,
        name: SnapshotName,
        reader: &SnapshotReader<R>,
    ) -> Option<Self> {
        let header = reader.header();
        let is_ours = header.owner == owner && header.name == name;
        is_ours.then_some(ProvenEnd {
            lsn: reader.footer().to,
            snapshot: name,
            incarnation: header.incarnation,
            time_ms: reader.footer().time_ms,
        })
    }

    /// Holds the log, as it was recovered, against its proven end.
    ///
    /// # Errors
    /// [`RecoveryError::TailLost`] if the log ends before.
    pub fn check(&self, log: &Recovered) -> Result<(), RecoveryError> {
        let last_lsn = log.start.last_lsn;
        if last_lsn >= self.lsn {
            return Ok(());
        }
        let last = log.history.segments.last();
        Err(RecoveryError::TailLost {
            log_id: self.snapshot.log_id,
            end: last.map(|segment| (segment.file, log.start.end_offset)),
            lsn_from: Lsn(last_lsn.0 + 1),
            lsn_to: self.lsn,
            snapshot: self.snapshot,
        })
    }
}
