//! The index of all keys of a shard.

// ---- pages
pub(crate) mod entry;
mod fallen;
mod falling;
pub(crate) mod groups;
pub(crate) mod table;

pub use entry::{Candidate, CellId, Home, Position, is_token_hash};
pub use table::{Candidates, Index};
