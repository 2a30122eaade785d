//! What one seed showed.

use crate::coverage::Coverage;

/// What one seed showed.
#[derive(Clone, Debug)]
pub struct Report {
    /// The fingerprint of everything that happened.
    pub hash: u128,
    /// Virtual time, in microseconds.
    pub simulated_us: u64,
    /// Operations sent.
    pub operations: u64,
    /// Operations answered.
    pub answered: u64,
    /// Starts that found a log.
    pub recoveries: u64,
    /// Keys whose history the second judge accepted.
    pub judged_keys: u64,
    /// What was met.
    pub coverage: Coverage,
    /// What was wrong, if something was.
    pub failure: Option<String>,
}
