//! Backups of a data directory: taking one while the server serves or is stopped, verifying and
//! restoring it.
//!
//! A backup holds, for each log of the node, every segment up to one point: all that was durable
//! when the backup began is before it. It is a state that a crash at that moment would have left,
//! so a start from it is an ordinary recovery.
//!
//! ```text
//! DIR/LOCK                                 held by a process that writes here
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

mod copy;
pub mod manifest;
mod restore;
mod vault;
mod verify;
mod view;

use std::fmt;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use penstock_storage::io::BLOCK_BYTES;
use penstock_storage::log::DurableEnd;
use penstock_storage::segment::{FirstBlock, SegmentHeader};
use penstock_storage::snapshot::ProvenEnds;

use crate::directory::identity::Identity;
use crate::directory::staging::Staging;
use crate::directory::{Directory, DirectoryError};
use copy::copy;
use manifest::Manifest;
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
                "{logs} logs of an earlier number of shards are not rewritten, and no server does \
                 it; nothing was backed up: start one on this directory until `penstock info` \
                 tells inherited_bytes 0"
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
            "{logs} logs of an earlier number of shards are being rewritten; nothing was backed \
             up: wait until `penstock info` tells inherited_bytes 0"
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
        // A file that was removed before it could be linked may have been part of the log when the
        // shards answered, so the round is repeated.
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
