//! What people start on a directory that a server refuses: a report of what stands there, and a repair.

// ---- pages
pub mod inspect;
pub(crate) mod plan;

pub use plan::{Damage, Loss, LostPart, NAMED_PARTS_MAX, Plan, Rebuild, plan, plan_laid_out};
