//! Cleaning: live bytes of each segment, the choice of one, and the copies of what counts in it.

// ---- pages
#[expect(clippy::module_inception, reason = "split in the next step")]
pub(crate) mod cleaning;
pub(crate) mod expired;
pub mod expiring;
pub mod live;
pub mod pace;
pub mod sizing;

pub use cleaning::{Backlog, CLEAN_TOKEN_BIT, CleaningConfig, CleaningCounters, Damaged, Fate};
