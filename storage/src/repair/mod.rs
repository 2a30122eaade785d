//! Tools for a directory that a server refuses: a report of its contents, and a repair.

// ---- pages
pub(crate) mod damage;
pub mod inspect;
pub mod lowering;
pub(crate) mod plan;
pub(crate) mod rebuild;
pub(crate) mod salvage;
pub(crate) mod sources;

pub use damage::{Damage, Loss, LostPart, NAMED_PARTS_MAX, Plan};
pub use plan::{plan, plan_laid_out};
pub use rebuild::Rebuild;
