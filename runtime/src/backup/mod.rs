//! Backups of a data directory: taking one while the server serves or is stopped, verifying and
//! restoring it.
//!
//! A backup holds, for each log of the node, every segment up to one point: all that was durable
//! when the backup began is before it. It is a state that a crash at that moment would have left,
//! so a start from it is an ordinary recovery.
//!
//! ```text
//! DIR/LOCK                                 held by whoever writes here
//! DIR/segments/1-17-<hash>.seg             segment 17 of log 1 up to the end of its frames
//! DIR/20261121T101739.123Z.manifest        one backup: which segments, see `manifest.rs`
//! ```
//!
//! Files of segments are named by what they hold, so all backups of one DIR share them and none is
//! ever changed. A manifest is written when everything that it names is durable: what an
//! interrupted backup leaves is not named by any.
//!
//! **Beside a server.** A sealed segment never changes, but cleaning may remove it. First every
//! file gets a second name in a staging folder, then each shard is asked how far its log is
//! durable, then files that came meanwhile get theirs. What was there when the shard answered is
//! held now; what the log had released by then it says itself, in what is copied.

pub mod manifest;
mod restore;
mod vault;
mod verify;
mod view;

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use penstock_storage::inspect::inspect_laid_out;
use penstock_storage::io::BLOCK_BYTES;
use penstock_storage::log::DurableEnd;
use penstock_storage::place::FileId;
use penstock_storage::recovery::Event;
use penstock_storage::segment::{FirstBlock, Owner, SegmentHeader};
use penstock_storage::snapshot::ProvenEnds;

use crate::directory::identity::Identity;
use crate::directory::staging::Staging;
use crate::directory::{Directory, DirectoryError};
use crate::system::advice;
use manifest::{LogCopy, Manifest, SegmentCopy};
use vault::Vault;
use view::{Slice, View};

pub use crate::directory::identity::TERMS_SKIPPED;
pub use restore::{Restored, restore};
pub use verify::{Verdict, is_vault, verify};

/// Rounds of linking, at most: each fails only if a segment was removed within it.
const ROUNDS_MAX: u32 = 16;

/// Why a backup was not taken, verified or restored.
#[derive(Debug)]
pub enum BackupError {
    /// The data directory cannot be used.
    Directory(DirectoryError),
    /// The directory of backups cannot be used; says why and what to do.
    Vault(String),
    /// What is to be copied is not what was written: nothing was made of it.
    Damaged(String),
    /// The server that uses the data directory did not tell what is needed.
    Server(String),
    /// Nobody serves the data directory, and so many logs of it are to be rewritten first.
    NotRewritten(usize),
    /// The system refused; names the file.
    Io(io::Error),
}

impl fmt::Display for BackupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BackupError::Directory(error) => error.fmt(f),
            BackupError::Vault(text) | BackupError::Damaged(text) | BackupError::Server(text) => {
                f.write_str(text)
            }
            BackupError::NotRewritten(logs) => write!(
                f,
                "{logs} logs of an earlier number of shards are not rewritten, and no server does it; nothing was backed up: start one on this directory until `penstock info` tells inherited_bytes 0"
            ),
            BackupError::Io(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for BackupError {}

impl From<DirectoryError> for BackupError {
    fn from(error: DirectoryError) -> Self {
        BackupError::Directory(error)
    }
}

impl From<io::Error> for BackupError {
    fn from(error: io::Error) -> Self {
        BackupError::Io(error)
    }
}

/// What a backup took.
#[derive(Debug)]
pub struct Taken {
    /// The name of its manifest.
    pub name: String,
    /// What stands in it.
    pub manifest: Manifest,
    /// Segments that were copied, because the directory did not hold them yet.
    pub copied: u64,
    /// Their bytes.
    pub copied_bytes: u64,
    /// Older backups that were removed.
    pub pruned: u64,
}

/// Takes a backup of `data` into `to`, which is made if it does not exist. If a server uses `data`,
/// `ask` must tell how far each of its logs is durable; it is called when what they then held can
/// no longer be removed. `keep` older and newer backups stay, at least 1; without it all do.
///
/// # Errors
/// [`BackupError`]. `to` then holds the backups that it held before.
pub fn take(
    data: &Path,
    to: &Path,
    keep: Option<usize>,
    now_ms: u64,
    ask: &mut dyn FnMut(&Identity) -> Result<Vec<DurableEnd>, BackupError>,
) -> Result<Taken, BackupError> {
    refuse_inside(data, to)?;
    match Directory::inspect(data) {
        Ok(directory) => {
            if let logs @ 1.. = directory.identity().inherited.len() {
                return Err(BackupError::NotRewritten(logs));
            }
            let files = directory.segments().list()?;
            let slices = files.into_iter().map(|(file, bytes)| {
                (
                    file,
                    Slice::new(directory.segments().path(file), bytes, bytes),
                )
            });
            let proven = directory.proven_ends()?;
            copy(
                data,
                directory.identity(),
                (View::new(slices), &proven),
                to,
                keep,
                now_ms,
                &[],
            )
        }
        Err(DirectoryError::Locked { .. }) => {
            let directory = Directory::beside(data)?;
            let mut staging = Staging::open(directory.segments())?.ok_or_else(|| {
                BackupError::Vault(format!(
                    "{}: another backup of this data directory is running; wait for it",
                    Staging::folder_of(directory.segments()).display()
                ))
            })?;
            refuse_inherited(directory.identity())?;
            let ends = hold(&mut staging, directory.identity(), ask)?;
            let view = view_up_to(&staging, &ends)?;
            // Read after the answer: it counts every start whose records can be among the durable.
            let identity = Directory::beside(data)?.identity().clone();
            if identity.first_log != directory.identity().first_log {
                return Err(BackupError::Server(
                    "the number of shards was changed meanwhile; nothing was backed up: try again"
                        .into(),
                ));
            }
            // A snapshot may be newer than these ends, and the server itself holds its log against
            // it.
            let proven = ProvenEnds::new();
            copy(data, &identity, (view, &proven), to, keep, now_ms, &ends)
        }
        Err(error) => Err(error.into()),
    }
}

/// Logs of an earlier number of shards would have to be copied with the ends that IDENTITY tells.
fn refuse_inherited(identity: &Identity) -> Result<(), BackupError> {
    match identity.inherited.len() {
        0 => Ok(()),
        logs => Err(BackupError::Server(format!(
            "{logs} logs of an earlier number of shards are being rewritten; nothing was backed up: wait until `penstock info` tells inherited_bytes 0"
        ))),
    }
}

/// A backup within the data would be backed up, and lost with it.
fn refuse_inside(data: &Path, to: &Path) -> Result<(), BackupError> {
    let mut existing = to;
    while !existing.exists() {
        existing = match existing.parent() {
            Some(above) if !above.as_os_str().is_empty() => above,
            _ => Path::new("."),
        };
    }
    if fs::canonicalize(existing)?.starts_with(fs::canonicalize(data).unwrap_or(data.into())) {
        return Err(BackupError::Vault(format!(
            "{}: it lies within the data directory {}; name another with --to",
            to.display(),
            data.display()
        )));
    }
    Ok(())
}

/// Links what is there until all that existed when the server answered is held.
fn hold(
    staging: &mut Staging,
    identity: &Identity,
    ask: &mut dyn FnMut(&Identity) -> Result<Vec<DurableEnd>, BackupError>,
) -> Result<Vec<DurableEnd>, BackupError> {
    for _ in 0..ROUNDS_MAX {
        staging.link()?;
        let ends = ask(identity)?;
        // A file that is gone before it could be linked may have been there when they answered.
        if staging.link()? == 0 {
            return Ok(ends);
        }
    }
    Err(BackupError::Server(format!(
        "segments were removed in each of {ROUNDS_MAX} rounds of linking them; try again"
    )))
}

/// The held segments up to the ends that the shards told.
fn view_up_to(staging: &Staging, ends: &[DurableEnd]) -> Result<View, BackupError> {
    let mut slices = Vec::new();
    for file in staging.files() {
        let path = staging.path(file);
        let bytes = fs::metadata(&path)?.len();
        // A spare, or one that is just taken into use: nothing of it was durable when they
        // answered.
        let Some(header) = header_of(&path)? else {
            continue;
        };
        let end = ends.iter().find(|end| end.log_id == header.log_id);
        let held_bytes = match end {
            Some(end) if header.sequence > end.segment_sequence => continue,
            Some(end) if header.sequence == end.segment_sequence => end.end_offset.min(bytes),
            _ => bytes,
        };
        slices.push((file, Slice::new(path, held_bytes, bytes)));
    }
    Ok(View::new(slices))
}

fn header_of(path: &Path) -> io::Result<Option<SegmentHeader>> {
    let mut block = [0; BLOCK_BYTES];
    match io::Read::read_exact(&mut File::open(path)?, &mut block) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    }
    Ok(match SegmentHeader::read(&block) {
        FirstBlock::Segment(header) => Some(header),
        _ => None,
    })
}

/// A segment that is to be in the backup.
struct Chosen {
    file: FileId,
    header: SegmentHeader,
    end_offset: u64,
}

/// Checks every byte of `view`, copies what `to` does not hold yet, and writes the manifest.
fn copy(
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
        Event::Contents(_) | Event::Ahead(_) | Event::Part(..) => {}
    };
    let report = inspect_laid_out(&mut view, Some(owner), &layout, proven, &mut see);
    if let Some(damage) = report.damage.first() {
        return Err(BackupError::Damaged(format!(
            "{}; nothing was backed up; to see all, once the server is stopped: {}",
            damage.within(&data.to_string_lossy()),
            advice::inspect(data)
        )));
    }
    let lsn_of = |log_id| report.logs.get(&log_id).map_or(0, |log| log.last_lsn.0);
    for end in ends {
        if lsn_of(end.log_id) < end.lsn.0 {
            return Err(BackupError::Damaged(format!(
                "log {} can be read to LSN {}, and the server says that LSN {} is durable; nothing was backed up",
                end.log_id,
                lsn_of(end.log_id),
                end.lsn.0
            )));
        }
    }

    let (mut copied, mut copied_bytes) = (0, 0);
    let mut logs = Vec::new();
    let others = chosen.keys().copied();
    let others = others.filter(|log_id| !layout.own().contains(log_id));
    for log_id in layout.own().chain(others) {
        let mut segments = Vec::new();
        for part in chosen.get(&log_id).into_iter().flatten() {
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
            lsn: lsn_of(log_id),
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

/// The segments of a backup as the data directory that a restore makes of them.
fn view_of(vault: &Path, manifest: &Manifest) -> io::Result<View> {
    let mut slices = Vec::new();
    for (file, log, segment) in manifest.numbered() {
        let path = vault::segment_path(vault, log.log_id, segment);
        let bytes = match log.is_last(segment) {
            true => header_of(&path)?.map_or(0, |header| header.segment_bytes),
            false => 0,
        };
        slices.push((
            file,
            Slice::new(path, segment.bytes, bytes.max(segment.bytes)),
        ));
    }
    Ok(View::new(slices))
}

fn path_text(path: &Path) -> String {
    PathBuf::from(path).display().to_string()
}
