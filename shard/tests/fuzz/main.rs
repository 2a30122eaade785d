//! Shards under clients that send what they like, and under clients that ask for all that there is.
//! How a target runs and what it keeps: `net/tests/fuzz/target.rs`.
#![forbid(unsafe_code)]

#[path = "../../../storage/tests/it/disk.rs"]
mod disk;
#[path = "../../../storage/tests/it/heap.rs"]
mod heap;
mod node;
mod operations;
mod sessions;
#[path = "../../../net/tests/fuzz/target.rs"]
mod target;

target!(operations, "tests/fuzz", operations::judge);
target!(sessions, "tests/fuzz", sessions::judge);

/// Where the kept inputs are.
const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fuzz");
