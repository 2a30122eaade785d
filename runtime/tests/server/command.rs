//! Commands of the real binary, run by a test.

use std::process::Command;

/// A command of the binary. The PENSTOCK_ variables of the test run do not reach it.
pub fn command(words: &[&str]) -> Command {
    let mut command = program(env!("CARGO_BIN_EXE_penstock"));
    command.args(words);
    command
}

/// A program of the machine that may run the binary, without those variables either.
pub fn program(name: &str) -> Command {
    let mut command = Command::new(name);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("PENSTOCK_") {
            command.env_remove(name);
        }
    }
    command
}
