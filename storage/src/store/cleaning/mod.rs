//! Cleaning: live bytes of each segment, the choice of one, and the copies of what counts in it.

// ---- pages
pub(crate) mod clean;
pub(crate) mod cleaner;
#[expect(
    clippy::module_inception,
    reason = "the type gives its name to the module"
)]
pub(crate) mod cleaning;
pub(crate) mod credit;
pub(crate) mod expired;
pub(crate) mod expired_keys;
pub mod expiring;
pub(crate) mod judge;
pub(crate) mod lack;
pub mod live;
pub(crate) mod liveness;
pub(crate) mod moves;
pub mod pace;
pub(crate) mod pick;
pub mod sizing;

pub use cleaner::{Backlog, CleaningConfig, CleaningCounters, Damaged, RoomOnDisk};
pub use cleaning::Cleaning;
pub use liveness::Liveness;
pub use pace::Fill;
