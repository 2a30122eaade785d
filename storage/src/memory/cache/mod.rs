//! The value cache: cells with the values of keys, within a budget.

// ---- pages
mod armed;
pub(crate) mod cell;
pub(crate) mod cells;
mod direct;
pub(crate) mod hand;
pub(crate) mod large;
pub(crate) mod page;
pub(crate) mod thin;

#[cfg(test)]
mod tests;

pub use cell::{Cell, HEAD_BYTES, SMALL_BYTES_MAX};
pub use cells::{BUDGET_BYTES_MAX, Cache, cell_bytes};
pub use page::PAGE_BYTES;
