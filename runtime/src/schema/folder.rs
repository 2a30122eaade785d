//! The files of a schema are read: the edge between the directory and what is pure.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use super::defect::SchemaError;

/// Files of a schema, at most.
const FILES_MAX: usize = 256;
/// Bytes of all files of a schema, at most. A server tells them in one frame.
const BYTES_MAX: usize = 256 << 10;

/// The names and texts of the files in a directory whose names end in `.toml`, by their names.
///
/// # Errors
/// The directory or a file cannot be read, is no text, or they are too many or too large.
pub(super) fn read(directory: &Path) -> Result<Vec<(String, String)>, SchemaError> {
    let shown = directory.display();
    let unreadable =
        |error| SchemaError::of_text(format!("{shown}: the directory cannot be read: {error}"));
    let mut paths = Vec::new();
    for entry in fs::read_dir(directory).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if path.extension().is_some_and(|it| it == "toml") {
            paths.push(path);
        }
        if paths.len() > FILES_MAX {
            let text = format!("{shown}: more than {FILES_MAX} files end in .toml");
            return Err(SchemaError::of_text(text));
        }
    }
    paths.sort();
    let (mut files, mut left) = (Vec::new(), BYTES_MAX);
    for path in paths {
        let shown = path.display();
        let fail = |error| SchemaError::of_text(format!("{shown}: it cannot be read: {error}"));
        let mut bytes = Vec::new();
        let file = File::open(&path).map_err(fail)?;
        file.take(left as u64 + 1)
            .read_to_end(&mut bytes)
            .map_err(fail)?;
        if bytes.len() > left {
            let text =
                format!("{shown}: with this file the schema has more than {BYTES_MAX} bytes");
            return Err(SchemaError::of_text(text));
        }
        left -= bytes.len();
        let text = String::from_utf8(bytes)
            .map_err(|_| SchemaError::of_text(format!("{shown}: it is no text of UTF-8")))?;
        files.push((shown.to_string(), text));
    }
    Ok(files)
}
