//! The log on disk under bytes that nobody wrote, and the store under operations that nobody
//! planned. How a target runs and what it keeps: `net/tests/fuzz/target.rs`.
#![forbid(unsafe_code)]

mod decoders;
mod directory;
#[path = "../it/disk.rs"]
mod disk;
#[path = "../it/heap.rs"]
mod heap;
mod operations;
mod recovery;
mod tables;
#[path = "../../../net/tests/fuzz/target.rs"]
mod target;

target!(decoders, "tests/fuzz", decoders::judge);
target!(operations, "tests/fuzz", operations::judge);
target!(recovery, "tests/fuzz", recovery::judge);
target!(tables, "tests/fuzz", tables::judge);

/// Where the kept inputs are.
const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fuzz");
