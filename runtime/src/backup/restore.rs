//! Restoring a backup: a new data directory that a server can be started on.
//!
//! The restored node is **another node**: it keeps the cluster id and gets a node id of its own,
//! because the original may still run, or run again, and other nodes must not take the two for one.
//! It also skips terms: the original may have begun some after the backup, and a
//! version that it gave out then must not be given out here for another value.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::Path;
use std::{fmt, io};

use penstock_storage::io::BLOCK_BYTES;
use penstock_storage::segment::{FirstBlock, SegmentHeader};

use super::BackupError;
use super::manifest::{Manifest, SegmentCopy};
use super::vault::{self, PourFault};
use crate::directory::identity::Identity;
use crate::directory::identity::TERMS_SKIPPED;
use crate::directory::{SEGMENTS, claim_empty, sync_directory, write_identity};
use crate::system;
use crate::system::named_error::named;

/// No term is as high.
const TERMS_END: u64 = 1 << 24;

/// What was restored.
#[derive(Debug)]
pub struct Restored {
    /// The name of the backup.
    pub name: String,
    /// What stands in it.
    pub manifest: Manifest,
    /// Whose the new data directory is.
    pub identity: Identity,
}

/// Makes the data directory `to`, which must not exist or be empty, from the newest backup in
/// `from` or the one with this name. Every byte is checked against its hash on the way.
///
/// # Errors
/// [`BackupError`]. What was made is removed again, if the system allows it; without its IDENTITY,
/// which is written last, no server takes it.
pub fn restore(
    from: &Path,
    to: &Path,
    name: Option<&str>,
    now_ms: u64,
) -> Result<Restored, BackupError> {
    let _vault_lock = vault::hold_to_read(from)?;
    let (name, manifest) = choose(from, name)?;
    let incarnation = manifest.incarnation + TERMS_SKIPPED;
    if incarnation >= TERMS_END {
        return Err(BackupError::Vault(format!(
            "{name}: incarnation {} leaves no terms for another restore: they end at {TERMS_END}",
            manifest.incarnation
        )));
    }
    let mut node_id = [0; 16];
    system::fill_random(&mut node_id)?;
    let identity = Identity {
        cluster_id: manifest.cluster_id,
        node_id,
        incarnation,
        log_count: manifest.log_count,
        first_log: manifest.logs.first().map_or(1, |log| log.log_id.max(1)),
        inherited: Vec::new(),
        segment_bytes: manifest.segment_bytes,
        value_bytes_max: manifest.value_bytes_max,
        created_ms: now_ms,
        // The first start chooses it: no snapshot comes along.
        hash_seed: 0,
    };
    let made_now = !to.exists();
    let _lock = claim_empty(to)?;
    let filled = fill(from, to, &manifest, &identity);
    if filled.is_err() {
        let _ = fs::remove_dir_all(to.join(SEGMENTS));
        let _ = match made_now {
            true => fs::remove_dir_all(to),
            false => fs::remove_file(to.join("LOCK")),
        };
    }
    filled?;
    Ok(Restored {
        name,
        manifest,
        identity,
    })
}

fn choose(from: &Path, name: Option<&str>) -> Result<(String, Manifest), BackupError> {
    let mut found = vault::manifests(from)?;
    let chosen = match name {
        Some(name) => found.into_iter().find(|(found, _)| found == name),
        None => found.pop(),
    };
    match chosen {
        Some((name, Ok(manifest))) => Ok((name, manifest)),
        Some((name, Err(error))) => Err(BackupError::Damaged(format!(
            "{}; name another with --backup",
            vault::unusable(from, &name, &error)
        ))),
        None => Err(BackupError::Vault(match name {
            Some(name) => format!("{}: no backup is named {name}", from.display()),
            None => format!("{}: no backup is there", from.display()),
        })),
    }
}

fn fill(
    from: &Path,
    to: &Path,
    manifest: &Manifest,
    identity: &Identity,
) -> Result<(), BackupError> {
    let folder = to.join(SEGMENTS);
    let made = DirBuilder::new().mode(0o700).create(&folder);
    made.map_err(|error| named(&folder, &error))?;
    for (file, log, segment) in manifest.numbered() {
        let source = vault::segment_path(from, log.log_id, segment);
        let path = folder.join(format!("{:08}.seg", file.0));
        copy(&source, &path, segment, log.is_last(segment), identity)?;
    }
    sync_directory(&folder).map_err(|error| named(&folder, &error))?;
    write_identity(to, identity).map_err(|error| named(to, &error))?;
    Ok(())
}

/// The backup is not what was written.
fn damaged(what: &dyn fmt::Display) -> BackupError {
    BackupError::Damaged(format!(
        "{what}; nothing was restored: `penstock verify` shows which backups are whole"
    ))
}

/// Copies a segment and gives it the new owner. The last segment of a log gets its full length.
fn copy(
    source: &Path,
    path: &Path,
    segment: &SegmentCopy,
    is_last: bool,
    identity: &Identity,
) -> Result<(), BackupError> {
    let at = |error: io::Error| named(path, &error);
    let mut file = vault::new_file(path).map_err(at)?;
    let hash = vault::pour(source, segment.bytes, &mut file).map_err(|fault| {
        let failure = fault.named(source, path);
        match fault {
            // Other backups may be whole.
            PourFault::Short { .. } => damaged(&failure),
            PourFault::Source(error) if error.kind() == io::ErrorKind::NotFound => {
                damaged(&failure)
            }
            PourFault::Source(_) | PourFault::Target(_) => failure.into(),
        }
    })?;
    if hash != segment.hash {
        return Err(damaged(&format_args!(
            "{}: its hash disagrees",
            source.display()
        )));
    }
    let mut block = [0; BLOCK_BYTES];
    fs::File::open(source)
        .and_then(|file| file.read_exact_at(&mut block, 0))
        .map_err(|error| named(source, &error))?;
    let FirstBlock::Segment(mut header) = SegmentHeader::read(&block) else {
        return Err(BackupError::Damaged(format!(
            "{}: it is no segment, as its hash wants it; nothing was restored",
            source.display()
        )));
    };
    header.owner.node_id = identity.node_id;
    header.encode(&mut block);
    file.write_all_at(&block, 0).map_err(at)?;
    if is_last && header.segment_bytes > segment.bytes {
        file.set_len(header.segment_bytes).map_err(at)?;
    }
    file.sync_all().map_err(at)?;
    Ok(())
}
