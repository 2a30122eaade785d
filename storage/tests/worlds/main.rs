//! Small worlds, walked to their ends: a log cut at every byte, with every bit flipped, with every
//! request to the disk failing, and after every power cut that a short run can meet.
//!
//! The tests walk a share that is the same at every run, or all with `PENSTOCK_WORLDS=all`;
//! `cargo worlds` walks all and prints what it met. Nothing here depends on time or chance.
#![forbid(unsafe_code)]

mod crashes;
mod cuts;
mod device;
mod failures;
mod flips;
#[path = "../it/heap.rs"]
mod heap;
mod image;
mod life;
mod map;
mod named;
#[path = "../it/random.rs"]
mod random;
mod start;
mod tally;

/// How much the tests walk.
#[cfg(test)]
fn effort() -> tally::Effort {
    match std::env::var("PENSTOCK_WORLDS").as_deref() {
        Ok("all") => tally::Effort::All,
        _ => tally::Effort::Share,
    }
}
