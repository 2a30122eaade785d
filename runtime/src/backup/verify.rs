//! Verifying backups: every byte of every backup against its hash, and the newest one read as a
//! start would read it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use penstock_storage::inspect::inspect;
use penstock_storage::segment::Owner;

use super::manifest::{Manifest, SegmentCopy};
use super::{BackupError, vault, view_of};

/// What was found of one backup.
#[derive(Debug)]
pub struct Verdict {
    /// The name of its manifest.
    pub name: String,
    /// What stands in it; none if it cannot be read.
    pub manifest: Option<Manifest>,
    /// What is wrong, a line each. Without any the backup can be restored.
    pub damage: Vec<String>,
}

/// Whether a directory is one of backups, by its looks.
#[must_use]
pub fn is_vault(path: &Path) -> bool {
    !path.join("IDENTITY").exists() && vault::names(path).is_ok_and(|names| !names.is_empty())
}

/// Checks every backup in `path`, oldest first, and hands each verdict to `note`; how many files of
/// segments no backup names and their bytes. Nothing is changed.
///
/// # Errors
/// [`BackupError`] if the directory itself cannot be read. Damage is told.
pub fn verify(path: &Path, note: &mut dyn FnMut(Verdict)) -> Result<(u64, u64), BackupError> {
    let _lock = vault::hold_to_read(path)?;
    let found = vault::manifests(path)?;
    let last = found.len();
    let mut checked = BTreeMap::new();
    for (number, (name, manifest)) in (1..).zip(&found) {
        let mut damage = Vec::new();
        match manifest {
            Ok(manifest) => {
                for (_, log, segment) in manifest.numbered() {
                    let path = vault::segment_path(path, log.log_id, segment);
                    let wrong = checked
                        .entry((path.clone(), segment.bytes))
                        .or_insert_with(|| check(&path, segment));
                    damage.extend(wrong.clone());
                }
                if manifest.name() != *name {
                    let cause = format!("it was written as {}", manifest.name());
                    damage.push(vault::unusable(path, name, &cause));
                }
                if damage.is_empty() && number == last {
                    damage.extend(replay(path, manifest)?);
                }
            }
            Err(error) => damage.push(vault::unusable(path, name, error)),
        }
        note(Verdict {
            name: name.clone(),
            manifest: manifest.as_ref().ok().cloned(),
            damage,
        });
    }
    let whole: Vec<_> = found
        .iter()
        .filter_map(|(_, manifest)| manifest.as_ref().ok())
        .collect();
    Ok(vault::unnamed(path, &whole)?)
}

/// What is wrong with the file of a segment.
pub(crate) fn check(path: &PathBuf, segment: &SegmentCopy) -> Option<String> {
    let bytes = match fs::metadata(path) {
        Ok(found) => found.len(),
        Err(error) => return Some(format!("{}: {error}", path.display())),
    };
    if bytes != segment.bytes {
        return Some(format!(
            "{}: it has {bytes} bytes instead of {}",
            path.display(),
            segment.bytes
        ));
    }
    match vault::pour(path, bytes, &mut std::io::sink()) {
        Ok(hash) if hash == segment.hash => None,
        Ok(_) => Some(format!("{}: its hash disagrees", path.display())),
        Err(fault) => Some(fault.named(path, path).to_string()),
    }
}

/// Reads a backup as a start would read what a restore makes of it.
fn replay(path: &Path, manifest: &Manifest) -> Result<Vec<String>, BackupError> {
    let mut view = view_of(path, manifest)?;
    let owner = Owner {
        cluster_id: manifest.cluster_id,
        node_id: manifest.node_id,
    };
    let report = inspect(&mut view, Some(owner), &mut |_| {});
    let mut damage: Vec<String> = report
        .damage
        .iter()
        .map(|error| format!("{error}, as its hash wants it"))
        .collect();
    for log in &manifest.logs {
        let lsn = report
            .logs
            .get(&log.log_id)
            .map_or(0, |found| found.last_lsn.0);
        if lsn != log.lsn {
            damage.push(format!(
                "log {} ends at LSN {lsn}, and the manifest says {}",
                log.log_id, log.lsn
            ));
        }
    }
    Ok(damage)
}
