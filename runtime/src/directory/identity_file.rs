//! The file `IDENTITY`: read, made anew, replaced as a whole.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use penstock_storage::io::BLOCK_BYTES;

use crate::directory::DirectoryOptions;
use crate::directory::error::DirectoryError;
use crate::directory::files::sync_directory;
use crate::directory::identity::{IDENTITY_BYTES_MAX, Identity, IdentityError};
use crate::system;

pub(super) const IDENTITY: &str = "IDENTITY";
pub(super) const IDENTITY_TMP: &str = "IDENTITY.tmp";

pub(super) fn read_identity(path: &Path) -> Result<Option<Identity>, DirectoryError> {
    let path = path.join(IDENTITY);
    let block = match File::open(&path) {
        Ok(file) => {
            // One byte more than a whole one, so that a longer file is seen and not loaded.
            let mut block = Vec::with_capacity(BLOCK_BYTES + 1);
            io::Read::read_to_end(
                &mut io::Read::take(file, IDENTITY_BYTES_MAX as u64 + 1),
                &mut block,
            )
            .map_err(|error| DirectoryError::io(&path, "read", error))?;
            block
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(DirectoryError::io(&path, "open", error)),
    };
    match Identity::decode(&block) {
        Ok(identity) => Ok(Some(identity)),
        Err(IdentityError::Version(found)) => Err(DirectoryError::Version { path, found }),
        Err(cause) => Err(DirectoryError::Damaged { path, cause }),
    }
}

pub(super) fn new_identity(options: DirectoryOptions) -> io::Result<Identity> {
    let (mut cluster_id, mut node_id) = ([0; 16], [0; 16]);
    system::fill_random(&mut cluster_id)?;
    system::fill_random(&mut node_id)?;
    let since_epoch = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    Ok(Identity {
        cluster_id,
        node_id,
        incarnation: 1,
        log_count: options.shards_of_new,
        first_log: 1,
        inherited: Vec::new(),
        segment_bytes: options.segment_bytes,
        // None is accepted yet, see [`Directory::accept_values`].
        value_bytes_max: 1,
        created_ms: u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX),
        hash_seed: new_hash_seed()?,
    })
}

/// Zero would say that there is none yet.
pub(super) fn new_hash_seed() -> io::Result<u64> {
    Ok(system::random_u64()?.max(1))
}

/// Replaces the file as a whole: after a power cut it is the old one or the new one.
pub(crate) fn write_identity(path: &Path, identity: &Identity) -> io::Result<()> {
    let (tmp, path_of_it) = (path.join(IDENTITY_TMP), path.join(IDENTITY));
    let bytes = identity.encode();
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&tmp)?;
    file.write_all(&bytes)?;
    file.set_len(bytes.len() as u64)?;
    file.sync_all()?;
    // The old file stays beside the new one, so that the next one finds room also on a full disk.
    if system::exchange(&tmp, &path_of_it).is_err() {
        fs::rename(&tmp, &path_of_it)?;
    }
    sync_directory(path)
}
