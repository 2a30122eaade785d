//! Where the plan of a cluster stands, and what every such place can be asked: `shard/PLAN.md`.

mod etcd_home;
mod file_home;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use self::etcd_home::EtcdHome;
use self::file_home::FileHome;
use crate::config::Config;
use crate::etcd::EtcdAccess;

/// The document of a plan is no longer than this.
pub const PLAN_BYTES_MAX: usize = 512 << 10;
/// What is told where etcd has no plan under the key.
pub(crate) const NO_PLAN: &str = "there is none: `penstock cluster import DATA/PLAN` puts back the \
     plan that a node has kept, and `init` makes a new cluster";

/// Where the plan stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlanPlace {
    /// The file that all nodes have.
    File(PathBuf),
    /// A key of etcd.
    Etcd {
        /// How it is reached.
        access: EtcdAccess,
        /// The file of the cluster's secret; a command needs none.
        secret_file: Option<PathBuf>,
    },
}

/// Which state of the plan a home has. Two are equal if nothing was changed between.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Revision {
    /// The digest of the text.
    Digest([u8; 32]),
    /// Which etcd, and the revision of the key's last change.
    Key {
        /// The id of the etcd cluster.
        etcd: u64,
        /// `mod_revision`.
        modified: u64,
    },
}

/// A plan as its home has it. Nothing is known of the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredPlan {
    /// The document. Longer than [`PLAN_BYTES_MAX`] if that is so; what follows may be missing.
    pub text: String,
    /// What a swap is to replace.
    pub revision: Revision,
}

/// What came of a swap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Swapped {
    /// The new text replaced the expected revision.
    Done(Revision),
    /// Another plan is there, or none, and the new text is not in force.
    Conflict(Option<StoredPlan>),
}

/// What a watch has seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Watched {
    /// The plan that was known.
    Same,
    /// Another one.
    Changed(StoredPlan),
    /// There is none any more.
    Gone,
}

/// Why a home did not do what it was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HomeError {
    /// Nobody answered: try again.
    Unavailable(String),
    /// A swap was not answered, and may be in force now or in a moment: read again.
    Unknown(String),
    /// Rights, certificates, a wrong address, a full disk: a person mends it. Nothing was changed.
    Refused(String),
}

impl fmt::Display for HomeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HomeError::Unavailable(text) | HomeError::Refused(text) => f.write_str(text),
            HomeError::Unknown(text) => write!(
                f,
                "nobody has said whether it was changed ({text}): it may be, now or in a moment"
            ),
        }
    }
}

/// The home of a plan. Every call blocks within a deadline, so none is made by a core.
pub trait PlanHome: Send {
    /// The plan as of a moment during the call; `None` if there is none.
    ///
    /// # Errors
    /// [`HomeError`], never `Unknown`.
    fn load(&mut self) -> Result<Option<StoredPlan>, HomeError>;

    /// Replaces the plan if it has that revision; `None`: if there is none.
    ///
    /// # Errors
    /// [`HomeError`].
    fn compare_and_swap(
        &mut self,
        expected: Option<&Revision>,
        text: &str,
    ) -> Result<Swapped, HomeError>;

    /// Waits for another plan than the known one, for so long at most.
    ///
    /// # Errors
    /// [`HomeError`], never `Unknown`.
    fn watch(&mut self, known: &Revision, longest: Duration) -> Result<Watched, HomeError>;
}

impl PlanPlace {
    /// The one that the configuration names; `None` for a node alone.
    #[must_use]
    pub fn of(config: &Config) -> Option<PlanPlace> {
        if let Some(path) = &config.cluster {
            return Some(PlanPlace::File(path.clone()));
        }
        Some(PlanPlace::Etcd {
            access: config.etcd_access()?,
            secret_file: config.cluster_secret_file.clone(),
        })
    }

    /// What is asked there. Nobody is asked yet.
    ///
    /// # Errors
    /// What is wrong with a file of certificates, in one line.
    pub fn open(&self) -> Result<Box<dyn PlanHome>, String> {
        Ok(match self {
            PlanPlace::File(path) => Box::new(FileHome::new(path)),
            PlanPlace::Etcd { access, .. } => Box::new(EtcdHome::open(access)?),
        })
    }

    /// The file, if it is one.
    #[must_use]
    pub fn file(&self) -> Option<&Path> {
        match self {
            PlanPlace::File(path) => Some(path),
            PlanPlace::Etcd { .. } => None,
        }
    }

    /// Whether plans have numbers here that only rise.
    #[must_use]
    pub fn is_ordered(&self) -> bool {
        self.file().is_none()
    }
}

/// For people.
impl fmt::Display for PlanPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PlanPlace::File(path) => write!(f, "{}", path.display()),
            PlanPlace::Etcd { access, .. } => {
                write!(f, "the plan {} in etcd", access.plan_key())
            }
        }
    }
}
