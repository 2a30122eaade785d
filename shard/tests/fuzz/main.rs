//! Shards under clients that send arbitrary bytes, and under clients that use every operation.
//! `net/tests/fuzz/target.rs` says how a target runs and what it keeps.
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
