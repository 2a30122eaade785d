//! The right to write, lent by replicas, and what a node decides by itself: `FAILOVER.md`.
//!
//! Pure. The owner reads CLOCK_BOOTTIME, sends heartbeats, reads the plan and makes the swaps that
//! are wished for. [`Failover`] is the whole of one node; [`Lease`] is its side as a primary,
//! [`Lender`] its side as a member. [`LeaseTable`] is what it and the shards tell each other.

mod decided;
mod failover;
mod hold_down;
#[expect(clippy::module_inception, reason = "the lease is the noun of its file")]
mod lease;
mod lender;
mod rules;
mod standing;
mod table;

pub use decided::{Placing, Wish};
pub use failover::{Failover, FailoverPlan};
pub use hold_down::HoldDown;
pub use lease::Lease;
pub use lender::{Lender, Named};
pub use rules::{BadRules, LeaseRules};
pub use standing::{MemberStanding, Standing};
pub use table::LeaseTable;
