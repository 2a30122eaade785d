//! What people write, wrong and right: the configuration, the little language of the shell, the
//! plan of a cluster; and what an etcd answers, or whatever is there in its place.
//!
//! How a target runs and what it keeps: `net/tests/fuzz/target.rs`.

mod configuration;
mod expressions;
mod plans;
#[path = "../../../net/tests/fuzz/target.rs"]
mod target;

target!(configuration, "tests/fuzz", configuration::judge);
target!(expressions, "tests/fuzz", expressions::judge);
target!(plans, "tests/fuzz", plans::judge);

/// Where the kept inputs are.
const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fuzz");

/// Runs what may need memory for its texts, but not more than in proportion to them.
fn in_proportion<T>(bytes: usize, run: impl FnOnce() -> T) -> T {
    let mut result = None;
    let used = allocation_counter::measure(|| result = Some(run()));
    let bound = 1024 * bytes as u64 + (64 << 10);
    assert!(used.bytes_max <= bound, "{used:?} for {bytes} bytes");
    result.expect("it ran")
}
