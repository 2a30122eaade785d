//! This process: its mounts, its end, the programs that it calls.
#![expect(unsafe_code, reason = "system calls that std lacks")]

use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM};

static IS_INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// From now on SIGINT and SIGTERM end the round at its next wait, so that its guards clean up.
///
/// # Errors
/// The system refuses.
pub fn watch_signals() -> Result<(), String> {
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM])
        .map_err(|error| format!("cannot watch for signals: {error}"))?;
    std::thread::spawn(move || {
        for _ in signals.forever() {
            eprintln!("torture: interrupted, cleaning up");
            IS_INTERRUPTED.store(true, Ordering::Relaxed);
        }
    });
    Ok(())
}

/// Whether somebody wants this process to end.
pub fn is_interrupted() -> bool {
    IS_INTERRUPTED.load(Ordering::Relaxed)
}

/// Waits until something holds: `Ok(true)` when it does, `Ok(false)` when the time is over.
///
/// # Errors
/// Somebody wants this process to end.
pub fn wait(at_most: Duration, mut holds: impl FnMut() -> bool) -> Result<bool, String> {
    let until = Instant::now() + at_most;
    loop {
        if is_interrupted() {
            return Err("interrupted".into());
        }
        if holds() {
            return Ok(true);
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(false);
        }
        std::thread::sleep(left.min(Duration::from_millis(2)));
    }
}

/// Lets time pass.
///
/// # Errors
/// Somebody wants this process to end.
pub fn pass(time: Duration) -> Result<(), String> {
    wait(time, || false).map(drop)
}

/// Gives this process a mount namespace of its own, which ends with it and takes its mounts and
/// their loop devices along. To be called while there is one thread, because threads inherit it.
///
/// # Errors
/// The reason why this user cannot.
pub fn own_mounts() -> Result<(), String> {
    let check = |result: libc::c_int, action: &str| match result {
        0 => Ok(()),
        _ => Err(format!("cannot {action}: {}", io::Error::last_os_error())),
    };
    // SAFETY: no memory is involved; the namespace of this thread is changed and nothing else.
    let unshared = unsafe { libc::unshare(libc::CLONE_NEWNS) };
    check(unshared, "get a mount namespace (root can)")?;
    // SAFETY: the paths are literals that end with a zero, and the other pointers may be null for
    // a change of propagation.
    let detached = unsafe {
        libc::mount(
            c"none".as_ptr(),
            c"/".as_ptr(),
            std::ptr::null(),
            libc::MS_REC | libc::MS_SLAVE,
            std::ptr::null(),
        )
    };
    check(detached, "keep mounts in the namespace")
}

/// Gives this process a network of its own, which ends with it: threads that are started from now
/// on have it too.
///
/// # Errors
/// The reason why this user cannot.
pub fn own_network() -> Result<(), String> {
    // SAFETY: no memory is involved; the namespace of this thread is changed and nothing else.
    match unsafe { libc::unshare(libc::CLONE_NEWNET) } {
        0 => Ok(()),
        _ => Err(format!(
            "cannot get a network of its own (root can): {}",
            io::Error::last_os_error()
        )),
    }
}

/// A command whose process is killed when this one ends, however it ends, and which a Ctrl-C at
/// the terminal does not reach. To be spawned by the main thread: the kernel watches that one.
pub fn bound_to_us(program: impl AsRef<std::ffi::OsStr>) -> Command {
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

/// Waits for a child's end; none if it still runs when the time is over.
///
/// # Errors
/// As for [`wait`], or the system lost the child.
pub fn wait_for_end(child: &mut Child, at_most: Duration) -> Result<Option<ExitStatus>, String> {
    let mut ended = Ok(None);
    wait(at_most, || {
        ended = child.try_wait().map_err(|error| error.to_string());
        !matches!(ended, Ok(None))
    })?;
    ended
}

/// The thread of a process that has this name.
///
/// # Errors
/// It has none, or is gone.
pub fn thread_of(process: u32, name: &str) -> Result<libc::pid_t, String> {
    let folder = format!("/proc/{process}/task");
    let threads = std::fs::read_dir(&folder).map_err(|error| format!("{folder}: {error}"))?;
    for thread in threads.flatten() {
        let is_it = std::fs::read_to_string(thread.path().join("comm"))
            .is_ok_and(|comm| comm.trim_end() == name);
        let number = thread.file_name().to_str().and_then(|it| it.parse().ok());
        if let (true, Some(number)) = (is_it, number) {
            return Ok(number);
        }
    }
    Err(format!("process {process} has no thread {name}"))
}

/// Lets one thread of another process stand still for a while, as a debugger does. The other
/// threads go on. It goes on itself when this process ends.
///
/// # Errors
/// The system refuses, or somebody wants this process to end.
pub fn freeze_thread(thread: libc::pid_t, time: Duration) -> Result<(), String> {
    let ask = |request: libc::c_uint| {
        let none = std::ptr::null_mut::<libc::c_void>();
        // SAFETY: none of these requests reads or writes memory by its pointers.
        match unsafe { libc::ptrace(request, thread, none, none) } {
            -1 => Err(format!("ptrace: {}", io::Error::last_os_error())),
            _ => Ok(()),
        }
    };
    ask(libc::PTRACE_SEIZE)?;
    ask(libc::PTRACE_INTERRUPT)?;
    let stopped = wait(Duration::from_secs(5), || {
        let mut status = 0;
        // SAFETY: the status is a number of this function.
        unsafe { libc::waitpid(thread, &raw mut status, libc::__WALL | libc::WNOHANG) == thread }
    });
    let passed = match stopped {
        Ok(true) => pass(time),
        Ok(false) => Err(format!("thread {thread} did not stop")),
        Err(text) => Err(text),
    };
    let detached = ask(libc::PTRACE_DETACH);
    passed.and(detached)
}

/// Runs a program to its end.
///
/// # Errors
/// It cannot be run, or ends with another code than 0: what it said.
pub fn run(program: &str, arguments: &[&str]) -> Result<(), String> {
    let command_line = || format!("{program} {}", arguments.join(" "));
    let output = Command::new(program)
        .args(arguments)
        .output()
        .map_err(|error| format!("{}: {error}", command_line()))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!(
        "{} ended with {}: {}",
        command_line(),
        output.status,
        String::from_utf8_lossy(&output.stderr).trim()
    ))
}

/// Whether a program is there.
pub fn has_program(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(name).is_file())
}

/// A path as an argument.
pub fn text(path: &Path) -> &str {
    path.to_str().expect("the folder's name is text")
}

/// The server as it is shipped, built from the tree as it is.
///
/// # Errors
/// It cannot be built.
pub fn build_server() -> Result<PathBuf, String> {
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let target = own
        .parent()
        .and_then(Path::parent)
        .ok_or("no target directory")?;
    let binary = target.join("release/penstock");
    // Always built: an older binary beside a newer tree would prove nothing.
    let mut build = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    build.args(["build", "--quiet", "--release", "-p", "penstock"]);
    build
        .args(["--bin", "penstock", "--target-dir"])
        .arg(target);
    let built = build
        .status()
        .map_err(|error| format!("cargo build: {error}"))?;
    if built.success() && binary.exists() {
        Ok(binary)
    } else {
        Err("the server could not be built".into())
    }
}
