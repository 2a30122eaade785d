//! What a data directory keeps of lost writes, read for a command.

use std::path::Path;

use penstock::cluster::lostfound::lost::Lost;
use penstock::cluster::lostfound::tails::read_lost_beside;
use penstock::cluster::lostfound::{KeptFile, read_lostfound};

use super::Failure;

/// What stands in the lostfound of a data directory.
pub fn files_of(data: &Path) -> Result<Vec<KeptFile>, Failure> {
    read_lostfound(data).map_err(|error| Failure::usage(format!("{}: {error}", data.display())))
}

/// What its tails did to each key. Reads all of the log.
///
/// # Errors
/// Why that cannot be told now.
pub fn lost_of(data: &Path) -> Result<Vec<Lost>, String> {
    read_lost_beside(data).map_err(|error| error.to_string())
}
