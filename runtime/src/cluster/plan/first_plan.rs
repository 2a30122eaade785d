//! The plan that a node starts by.

use std::path::Path;
use std::time::{Duration, Instant};

use tracing::warn;

use crate::cluster::plan::file::{ClusterFile, ClusterFileError};
use crate::cluster::plan::home::{HomeError, NO_PLAN, PlanPlace};
use crate::cluster::plan::judge::judge;
use crate::cluster::plan::kept_plan;

/// How long a start waits for a home that does not answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two tries.
const RETRY: Duration = Duration::from_millis(200);

/// Reads the plan at its home. With home etcd it must not be older than the one that the directory
/// keeps. A node does not start by a kept plan: it is the one that was replaced meanwhile.
///
/// # Errors
/// What is wrong with the plan or its home.
pub(crate) fn first_plan(
    place: &PlanPlace,
    directory: &Path,
) -> Result<ClusterFile, ClusterFileError> {
    if let Some(path) = place.file() {
        return ClusterFile::read(path);
    }
    let fail = |cause: String| ClusterFileError::new(format!("{place}: {cause}"));
    let mut home = place.open().map_err(fail)?;
    let began = Instant::now();
    let stored = loop {
        match home.load() {
            Ok(stored) => break stored,
            Err(HomeError::Unavailable(_)) if began.elapsed() < PATIENCE => {
                std::thread::sleep(RETRY);
            }
            Err(error) => {
                return Err(fail(format!(
                    "{error}; a node that starts needs the plan of now, because it may have been \
                     replaced meanwhile"
                )));
            }
        }
    };
    let stored = stored.ok_or_else(|| fail(NO_PLAN.into()))?;
    let kept = kept_plan::read(directory).unwrap_or_else(|error| {
        warn!("{}: PLAN cannot be read: {error}", directory.display());
        None
    });
    let kept = kept.and_then(|text| ClusterFile::of(place, text).ok());
    let file = ClusterFile::of(place, stored.text)?;
    match kept.filter(|kept| kept.cluster_id == file.cluster_id) {
        None => Ok(file),
        Some(kept) => judge(place, &file.text, &kept).map_err(|refusal| {
            ClusterFileError::new(format!(
                "{refusal}; {} has the newer one, `penstock cluster import` puts it into etcd",
                directory.join(kept_plan::NAME).display()
            ))
        }),
    }
}
