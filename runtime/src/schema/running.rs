//! The schema that a server runs, and how another one takes its place.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use penstock_net::program::ServedSchema;

use super::{Schema, SchemaError};

/// Bytes of a frame that stand around the text of INFO, and more.
const FRAME_ROOM_BYTES: usize = 1024;

/// The schema of a directory, as it is in force.
#[derive(Debug)]
pub(crate) struct RunningSchema {
    directory: PathBuf,
    frame_bytes_max: u32,
    in_force: Mutex<Arc<Schema>>,
}

impl RunningSchema {
    /// Reads the directory for the first time. Its text fits a frame.
    ///
    /// # Errors
    /// [`SchemaError`].
    pub(crate) fn begin(directory: &Path, frame_bytes_max: u32) -> Result<Self, SchemaError> {
        let schema = read(directory, frame_bytes_max)?;
        Ok(RunningSchema {
            directory: directory.to_path_buf(),
            frame_bytes_max,
            in_force: Mutex::new(Arc::new(schema)),
        })
    }

    /// Where its files are.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// The schema that is in force.
    pub(crate) fn in_force(&self) -> Arc<Schema> {
        let in_force = self.in_force.lock();
        Arc::clone(&in_force.unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads the directory anew. What is sound takes the place of what is in force and is returned,
    /// to be served.
    ///
    /// # Errors
    /// [`SchemaError`]; then what is in force stays.
    pub(crate) fn read_anew(&self) -> Result<Arc<ServedSchema>, SchemaError> {
        let schema = read(&self.directory, self.frame_bytes_max)?;
        schema.check_growth(&self.in_force())?;
        let served = Arc::new(schema.served());
        let mut in_force = self.in_force.lock().unwrap_or_else(PoisonError::into_inner);
        *in_force = Arc::new(schema);
        Ok(served)
    }
}

fn read(directory: &Path, frame_bytes_max: u32) -> Result<Schema, SchemaError> {
    let schema = Schema::read(directory)?;
    let (bytes, max) = (
        schema.json().len() + FRAME_ROOM_BYTES,
        frame_bytes_max as usize,
    );
    match bytes > max {
        true => Err(SchemaError::of_text(format!(
            "{}: the schema is told in a frame of {bytes} bytes, and frame_bytes_max is {max}",
            directory.display()
        ))),
        false => Ok(schema),
    }
}
