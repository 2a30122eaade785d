//! What a start does: it reads a directory, judges each file by the rows of `FORMAT.md`, and
//! replays the logs into memory. The layer uses the store, which does not know it.

// ---- pages
pub(crate) mod frames;
pub(crate) mod recovered;
pub(crate) mod refusal;
pub(crate) mod replay;
pub(crate) mod replayed;
pub(crate) mod segment;
pub mod snapshot;
pub(crate) mod spares;
pub(crate) mod survey;
pub(crate) mod window;
pub use crate::format::corruption::{Corruption, Within};
pub use crate::format::row::{Row, Rows, Verdict};

pub use frames::Event;
pub use recovered::{Recovered, TornTail};
pub use refusal::RecoveryError;
pub use replay::{recover, recover_behind, replay, replay_ended};
pub use replayed::Replayed;
pub use segment::Segment;
pub use spares::{HEAD_BYTES, Proof, RottenSpare, prove_spare};
pub use survey::{Survey, survey, survey_heads, survey_laid_out};
