//! Children that end with this process.

#![allow(unsafe_code)]

use std::ffi::OsStr;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// A command whose process is killed when this one ends, however it ends, and which a Ctrl-C at
/// the terminal does not reach. To be spawned by the main thread: the kernel watches that one.
pub fn bound_to_us(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.process_group(0);
    // SAFETY: between fork and exec only this one system call is made, without any memory.
    unsafe {
        command.pre_exec(|| {
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(())
        });
    }
    command
}
