//! From a configuration to shards that are ready to run, in a server or an embedding process. The
//! options are compared with the machine and the directory, the disk is timed, the logs are
//! surveyed, and each shard is opened on its own thread.

mod banner;
pub mod calibration;
pub mod checks;
pub(crate) mod clock_check;
mod error;
mod files;
mod helpers;
mod limits;
mod membership;
pub(crate) mod node;
mod redo_found;
mod retiming;
pub(crate) mod room;
mod shard;
mod survey;
mod timing;

pub use clock_check::ClockAhead;
pub(crate) use clock_check::span;
pub use error::OpenError;
