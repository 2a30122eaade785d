//! Carrying out the repair of a data directory.
//!
//! Nothing is destroyed and nothing is half done. First each file is kept in a folder of
//! `lostfound/`: segments by a second name, with a manifest, and IDENTITY as a copy. Then the new
//! file is made beside the old one in full, and a rename puts it in place. Every file is the old
//! one or the new one at any moment, so a repair that was interrupted is begun again: the plan then
//! holds what is left to do.
//!
//! ```text
//! DATA/lostfound/0001/MANIFEST        what was wrong, what was given up
//! DATA/lostfound/0001/00000007.seg    the file as it was
//! ```

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use penstock_storage::repair::{LostPart, Plan, Rebuild};

use crate::directory::Directory;
use crate::directory::files::sync_directory;
use crate::directory::identity_file::{IDENTITY, write_identity};
use crate::directory::segments::Segments;
use crate::system::named_error::named;

const LOSTFOUND: &str = "lostfound";
const MANIFEST: &str = "MANIFEST";
/// Bytes written at a time.
const CHUNK_BYTES: usize = 1 << 20;

/// Keeps each file that the plan touches in a new folder of `lostfound/`, then makes the files as
/// the plan says. Returns the folder. [`Directory::repair`] must have opened the directory, and the
/// directory must be as it was planned.
///
/// # Errors
/// As the system says, with the name of the file; what was replaced until then stays replaced.
pub fn carry_out(directory: &Directory, plan: &Plan) -> io::Result<PathBuf> {
    assert!(plan.beyond.is_empty(), "a plan that leads nowhere");
    let segments = directory.segments();
    let folder = new_folder(&directory.path().join(LOSTFOUND))?;
    for file in plan.touched() {
        let path = segments.path(file);
        let kept = folder.join(path.file_name().expect("a segment has a name"));
        keep(&path, &kept).map_err(|error| named(&path, &error))?;
    }
    write_manifest(&folder, plan).map_err(|error| named(&folder, &error))?;
    // Snapshots tell where things stood before, so no start may use them. They still prove what is
    // lost until that is mended: if this is interrupted, the next repair finds the same.
    directory.snapshots().retire_all()?;
    directory.key_tables().remove_all()?;
    for rebuild in &plan.rebuilds {
        replace(segments, rebuild)?;
    }
    for &file in &plan.removals {
        segments.remove(file)?;
    }
    directory.snapshots().remove_all()?;
    Ok(folder)
}

/// Keeps a copy of the damaged IDENTITY in a new folder of `lostfound/`, and writes the identity of
/// `directory` in its place. [`Directory::without_identity`] must have opened `directory`. Returns
/// the folder.
///
/// # Errors
/// As the system says; IDENTITY is then the old file or the new one.
pub fn put_identity(directory: &Directory) -> io::Result<PathBuf> {
    let path = directory.path().join(IDENTITY);
    let folder = new_folder(&directory.path().join(LOSTFOUND))?;
    // A second name would not do: a later start writes the file of before in place.
    keep_copy(&path, &folder.join(IDENTITY)).map_err(|error| named(&path, &error))?;
    sync_directory(&folder)?;
    // The proven identity has no secret of the key hash, and the next start draws a new one. The
    // hashes in snapshots and the order of key tables do not fit it, so no start may use them. A
    // retired snapshot still proves how far its log went.
    directory.snapshots().retire_all()?;
    directory.key_tables().remove_all()?;
    write_identity(directory.path(), directory.identity()).map_err(|error| named(&path, &error))?;
    Ok(folder)
}

/// The next free number in `lostfound/`, durably there.
fn new_folder(lostfound: &Path) -> io::Result<PathBuf> {
    let make = || {
        let mut builder = DirBuilder::new();
        builder.mode(0o700);
        match builder.create(lostfound) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let mut number = 1;
        let folder = loop {
            let folder = lostfound.join(format!("{number:04}"));
            match builder.create(&folder) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
                made => break made.map(|()| folder)?,
            }
        };
        sync_directory(lostfound)?;
        sync_directory(lostfound.parent().expect("it is in the data directory"))?;
        Ok(folder)
    };
    make().map_err(|error| named(lostfound, &error))
}

/// Keeps a segment under a second name, or as a copy where the file system gives no second name.
/// Nobody writes into a segment that was kept: a repair replaces or removes the file.
fn keep(path: &Path, kept: &Path) -> io::Result<()> {
    fs::hard_link(path, kept).or_else(|_| keep_copy(path, kept))
}

/// Keeps a durable copy of a file.
fn keep_copy(path: &Path, kept: &Path) -> io::Result<()> {
    fs::copy(path, kept)?;
    File::open(kept)?.sync_all()
}

fn write_manifest(folder: &Path, plan: &Plan) -> io::Result<()> {
    let mut file = new_file(&folder.join(MANIFEST))?;
    let mut text = io::BufWriter::new(&mut file);
    for damage in &plan.damages {
        writeln!(text, "{damage}")?;
        for part in &damage.lost_parts {
            writeln!(text, "  {}", lost_text(part))?;
        }
        if let Some(loss) = damage.loss {
            writeln!(text, "  given up: {loss}")?;
        }
    }
    text.flush()?;
    drop(text);
    file.sync_all()?;
    sync_directory(folder)
}

/// One line about a part that is given up.
#[must_use]
pub fn lost_text(part: &LostPart) -> String {
    format!(
        "lost: {}, slot {}, version {}:{}{}",
        part.key.escape_ascii(),
        part.slot,
        part.epoch,
        part.sequence,
        if part.is_checked {
            ""
        } else {
            " (as far as it can be read: its checksum disagrees)"
        }
    )
}

/// Makes the new file in full before it gets the name.
fn replace(segments: &Segments, rebuild: &Rebuild) -> io::Result<()> {
    let path = segments.path(rebuild.file);
    // A start removes it if it is left behind.
    let made = path.with_extension("tmp");
    let make = || {
        let mut source = segments.reader();
        let mut file = new_file(&made)?;
        let mut chunk = vec![0; CHUNK_BYTES];
        let mut offset = 0;
        while offset < rebuild.bytes {
            let left = usize::try_from(rebuild.bytes - offset).unwrap_or(usize::MAX);
            let chunk = &mut chunk[..left.min(CHUNK_BYTES)];
            rebuild.read(&mut source, offset, chunk)?;
            file.write_all(chunk)?;
            offset += chunk.len() as u64;
        }
        file.sync_all()?;
        fs::rename(&made, &path)
    };
    make().map_err(|error| named(&path, &error))?;
    segments.sync()
}

fn new_file(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
}
