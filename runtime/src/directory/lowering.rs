//! Lowers the time of a stopped directory, file by file: see `penstock_storage::repair::lowering`.
//!
//! Each segment is rewritten beside itself and renamed over what it was, so a crash leaves each
//! file as it was or as it shall be, and the same call again ends the work. Snapshots of the index
//! and key tables go first: they carry times, and a start makes them anew.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;

use penstock_storage::frame::FRAME_HEADER_BYTES;
use penstock_storage::io::BLOCK_BYTES;
use penstock_storage::place::FileId;
use penstock_storage::repair::lowering::{lower_frame, lower_header};

use crate::directory::{Directory, sync_directory};
use crate::system::named_error::named;

/// Where the frames of a directory stand and how long they are, by the files that hold them.
pub type FramePlaces = BTreeMap<FileId, Vec<(u64, usize)>>;

/// What was rewritten.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lowered {
    /// Segments.
    pub segments: u64,
    /// Parts whose time was later.
    pub parts: u64,
}

/// Lowers all times in the directory that are later than `to_ms`, in unix milliseconds.
/// [`Directory::repair`] must have opened the directory, and `frames` are all that stand in it:
/// what an inspection without damage has found.
///
/// # Errors
/// As the system says, or a frame is not what the inspection has found; the text names the file.
/// The same call again ends the work.
pub fn lower_time(directory: &Directory, frames: &FramePlaces, to_ms: u64) -> io::Result<Lowered> {
    directory.snapshots().remove_all()?;
    directory.key_tables().remove_all()?;
    let mut lowered = Lowered::default();
    for (file, _) in directory.segments().list()? {
        let none = Vec::new();
        let places = frames.get(&file).unwrap_or(&none);
        let path = directory.segments().path(file);
        let rewrite = || rewrite(directory, file, places, to_ms);
        if let Some(parts) = rewrite().map_err(|error| named(&path, &error))? {
            lowered.segments += 1;
            lowered.parts += parts;
        }
    }
    Ok(lowered)
}

/// Rewrites a file; how many parts had a later time. `None` if the file holds no segment.
fn rewrite(
    directory: &Directory,
    file: FileId,
    places: &[(u64, usize)],
    to_ms: u64,
) -> io::Result<Option<u64>> {
    let path = directory.segments().path(file);
    let mut block = [0; BLOCK_BYTES];
    File::open(&path)?.read_exact_at(&mut block, 0)?;
    let Some(home) = lower_header(&mut block, to_ms) else {
        return Ok(None);
    };
    let tmp = path.with_extension("tmp");
    fs::copy(&path, &tmp)?;
    let copy = File::options().read(true).write(true).open(&tmp)?;
    copy.write_all_at(&block, 0)?;
    let (mut parts, mut frame) = (0, Vec::new());
    for &(offset, bytes) in places {
        debug_assert!(bytes >= FRAME_HEADER_BYTES);
        frame.resize(bytes, 0);
        copy.read_exact_at(&mut frame, offset)?;
        parts += lower_frame(home, offset, &mut frame, to_ms).map_err(|_| {
            io::Error::other(format!(
                "the frame at offset {offset} does not check any more"
            ))
        })?;
        copy.write_all_at(&frame, offset)?;
    }
    copy.sync_all()?;
    fs::rename(&tmp, &path)?;
    sync_directory(directory.segments().folder())?;
    Ok(Some(parts))
}
