//! Spares that have rotted: each leaves `DATA/segments`. The first ones go to
//! `DATA/lostfound/spares`, where an operator can see what the device made of them.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

use penstock_storage::place::FileId;
use penstock_storage::recovery::RottenSpare;
use tracing::warn;

use crate::directory::files::sync_directory;
use crate::directory::segments::Segments;
use crate::system::named_error::named;

/// Files that are kept, at most: they take room that `disk_bytes_max` does not count. Others are
/// removed.
const KEPT_MAX: usize = 2;

/// Where a file that was set aside is kept, if it is.
fn kept_path(segments: &Segments, file: FileId) -> PathBuf {
    let folder = segments.data().join("lostfound").join("spares");
    folder.join(format!("{:08}.seg", file.0))
}

/// Takes a file out of the folder of segments, durably.
///
/// # Errors
/// As the system says; the text names the file.
pub(crate) fn set_aside(segments: &Segments, file: FileId) -> io::Result<()> {
    let (path, kept) = (segments.path(file), kept_path(segments, file));
    let folder = kept.parent().expect("it is in a folder");
    let keep = || {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
        made?;
        if kept.exists() || fs::read_dir(folder)?.count() >= KEPT_MAX {
            return segments.remove(file);
        }
        fs::rename(&path, &kept)?;
        let above = folder.parent().expect("lostfound");
        [folder, above, segments.data()]
            .into_iter()
            .try_for_each(sync_directory)?;
        segments.sync()
    };
    keep().map_err(|error| named(&path, &error))
}

/// Tells of a file that was set aside.
pub(crate) fn report(segments: &Segments, rotten: &RottenSpare) {
    let path = segments.path(rotten.file);
    let kept = kept_path(segments, rotten.file);
    let whereto = match kept.exists() {
        true => format!("it lies in {} now", kept.display()),
        false => "it was removed".into(),
    };
    warn!(
        file = %path.display(),
        offset = rotten.offset,
        wrong_bytes = rotten.wrong_bytes,
        "{}; {whereto}, and another one is made: no record is lost, but the device changes bytes \
         that nobody writes",
        text(segments, rotten)
    );
}

/// What was found in a spare that has rotted.
#[must_use]
pub fn text(segments: &Segments, rotten: &RottenSpare) -> String {
    let bytes = match rotten.wrong_bytes {
        1 => "one byte".into(),
        bytes => format!("{bytes} bytes"),
    };
    format!(
        "{} is an unused spare in which {bytes} should be zero, the first at offset {} \
         (0x{:02x}), and nothing shows that it was ever a segment",
        segments.path(rotten.file).display(),
        rotten.offset,
        rotten.found
    )
}
