//! Tells the program which commit it is built from.

#[path = "build/commit.rs"]
mod commit;

use std::env;
use std::path::Path;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=build/commit.rs");
    println!("cargo::rerun-if-env-changed={}", commit::GIVEN);
    let folder = env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it");
    // Who develops would have everything compiled anew behind each commit.
    let is_debug = env::var("PROFILE").as_deref() == Ok("debug");
    let given = env::var(commit::GIVEN).ok();
    let built_from = match is_debug {
        true => "a debug build".to_string(),
        false => {
            for file in commit::files(Path::new(&folder)) {
                println!("cargo::rerun-if-changed={}", file.display());
            }
            commit::describe(given.as_deref(), Path::new(&folder))
        }
    };
    // `cargo run` hands the variable to the server, which refuses a PENSTOCK_ name of no option.
    println!("cargo::rustc-env=BUILT_FROM={built_from}");
}
