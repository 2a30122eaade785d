//! Scripts from their text to their reply.

#![allow(unreachable_pub, reason = "modules of one program")]

mod budgets;
mod patterns;
mod random_scripts;
mod sale_scripts;
mod sandbox;
mod semantics;
mod store;
mod texts;
