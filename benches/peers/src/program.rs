//! Programs that others wrote: where they are, and on which CPU they run.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Outcome;

/// The CPU of servers, and that of the load.
pub const SERVER_CPU: &str = "0";
pub const LOAD_CPU: &str = "1";

/// The exit code of `timeout` when it has ended a program.
pub const TOO_LONG: i32 = 124;

/// What the variable names, or the program of that name on the PATH, or why there is none.
pub fn find(name: &str, variable: &str) -> Result<PathBuf, String> {
    if let Some(path) = std::env::var_os(variable) {
        let path = PathBuf::from(path);
        return match path.is_file() {
            true => Ok(path),
            false => Err(format!("{variable} names no file")),
        };
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
        .ok_or_else(|| format!("no {name} on the PATH, and {variable} names none"))
}

/// A program that is bound to CPUs by `taskset`, which becomes that program.
pub fn pinned(cpus: &str, program: &Path) -> Command {
    let mut command = Command::new("taskset");
    command.args(["-c", cpus]).arg(program);
    command
}

/// The same for a tool that ends by itself, and is ended if it does not within `seconds`.
pub fn bounded(seconds: f64, program: &Path) -> Command {
    let mut command = Command::new("timeout");
    command
        .args(["--kill-after=1", &format!("{seconds:.0}")])
        .args(["taskset", "-c", LOAD_CPU])
        .arg(program);
    command
}

/// The first line that a program tells of itself. It must contain `name`: another program under
/// that name is no peer.
pub fn version(program: &Path, argument: &str, name: &str) -> Result<String, String> {
    let output = Command::new(program)
        .arg(argument)
        .output()
        .map_err(|error| format!("{name} cannot be run: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().next().unwrap_or_default().trim().to_string();
    match line.to_lowercase().contains(&name.to_lowercase()) {
        true => Ok(line),
        false => Err(format!(
            "what is given as {name} tells {line:?} as its version"
        )),
    }
}

/// Whether this machine can keep a server and its load on CPUs of their own.
pub fn check_pinning() -> Outcome<()> {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    if cpus < 2 {
        return Err("one CPU for the server and one for the load are needed, here is one".into());
    }
    let told = Command::new("taskset").arg("--version").output();
    told.map_err(|error| format!("taskset: {error} (Debian's package `util-linux` has it)"))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_not_there_is_told_with_the_variable_that_names_one() {
        let why = find("no-such-server", "NO_SUCH_SERVER").unwrap_err();
        assert!(
            why.contains("no-such-server") && why.contains("NO_SUCH_SERVER"),
            "{why}"
        );
    }

    #[test]
    fn another_program_under_the_name_of_a_peer_is_refused() {
        let shell = find("true", "NO_SUCH_SERVER").unwrap();
        let why = version(&shell, "--version", "valkey").unwrap_err();
        assert!(why.contains("valkey") && why.contains("version"), "{why}");
        let missing = version(Path::new("/no/such/file"), "--version", "valkey").unwrap_err();
        assert!(missing.contains("cannot be run"), "{missing}");
    }
}
