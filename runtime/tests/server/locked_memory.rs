//! The real server under limits of locked memory: it always serves, and says what it does without.
#![expect(unsafe_code, reason = "limits and capabilities of a child process")]

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use penstock_client::{Client, ClientOptions, Verbs};
use serde_json::Value;

use crate::command::command;
use crate::process::Server;
use crate::scratch::folder;

const KIB: u64 = 1 << 10;
const CAP_IPC_LOCK: libc::c_ulong = 14;

fn may_lock_all() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let mask = u64::from_str_radix(mask.expect("on Linux").trim(), 16).unwrap();
    mask & (1 << CAP_IPC_LOCK) != 0
}

/// A server that may lock so many bytes and no more, whoever runs the test.
fn serve(data: &Path, limit: u64, shards: usize, io: &str) -> Command {
    let mut command = command(&["serve", "--listen", "127.0.0.1:0", "--shard-ports", "0"]);
    command
        .args(["--admin-listen", "off", "--cache-bytes", "16MiB"])
        .args(["--segment-bytes", "4MiB", "--value-bytes-max", "64KiB"])
        .args(["--io", io, "--shards", &shards.to_string(), "--data"])
        .arg(data);
    let lowered = libc::rlimit {
        rlim_cur: limit,
        rlim_max: limit,
    };
    // SAFETY: both are system calls on numbers and a live structure, and take nothing from the
    // heap: a child between fork and exec may make them.
    unsafe {
        command.pre_exec(move || {
            // Refused where the capability was never there.
            libc::prctl(libc::PR_CAPBSET_DROP, CAP_IPC_LOCK, 0, 0, 0);
            match libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const lowered) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        });
    }
    command
}

/// Whether the limits bind a server that a test starts here.
fn is_bound() -> bool {
    // SAFETY: the call takes numbers only.
    let may_drop = unsafe { libc::prctl(libc::PR_CAPBSET_READ, CAP_IPC_LOCK, 0, 0, 0) } == 1
        && fs::read_to_string("/proc/self/status").is_ok_and(|status| {
            let mask = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
            let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
            // CAP_SETPCAP
            mask.is_some_and(|mask| mask & (1 << 8) != 0)
        });
    !may_lock_all() || may_drop
}

/// What the server tells of itself once it serves, and that it does.
fn io_of(server: &Server) -> String {
    let client = Client::connect(server.address, ClientOptions::default()).unwrap();
    client.set(b"key", b"value").wait().unwrap();
    assert_eq!(
        client.get(b"key").wait().unwrap().unwrap().bytes[..],
        *b"value"
    );
    let info: Value = serde_json::from_str(&client.info().wait().unwrap()).unwrap();
    info["io"].as_str().unwrap().to_string()
}

/// The clean stop. What the kernel has of the rings goes behind it.
fn stop(mut server: Server) {
    server.signal("-TERM");
    for _ in 0..3000 {
        if let Some(status) = server.process.try_wait().unwrap() {
            assert_eq!(status.code(), Some(0));
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("SIGTERM did not end the server");
}

#[test]
fn a_server_serves_under_every_limit_of_locked_memory_and_says_what_it_does_without() {
    if !is_bound() {
        println!("SKIPPED: CAP_IPC_LOCK cannot be given up here, and the limit does not bind");
        return;
    }
    let data = folder("locked-memory");
    let errors = folder("locked-memory.errors");
    let cpus = std::thread::available_parallelism().unwrap().get();
    for shards in [1, 2, 8] {
        if shards > cpus {
            println!("SKIPPED: {shards} shards, because there are {cpus} CPUs");
            continue;
        }
        for kib in [0, 64, 256, 1024, 4096, 5120, 8192] {
            let _ = fs::remove_dir_all(&data);
            let mut command = serve(&data, kib * KIB, shards, "auto");
            command.stderr(fs::File::create(&errors).unwrap());
            let server = Server::start(&mut command);
            let io = io_of(&server);
            stop(server);
            let printed = fs::read_to_string(&errors).unwrap();
            println!("{shards} shards, {kib} KiB: {io}\n{printed}");
            let ready = printed.lines().find(|line| line.contains(" INFO ready "));
            assert!(
                ready.unwrap().contains(&format!("io=\"{io}\"")),
                "{printed}"
            );
            let is_less = printed.contains("the limit of locked memory (RLIMIT_MEMLOCK");
            match (shards, kib) {
                (_, 0) => assert_eq!(io, "threads"),
                (1, 8192) => assert!(io == "uring" && !is_less, "{printed}"),
                _ => {}
            }
            assert!(io == "uring" || is_less, "{printed}");
        }
    }
    fs::remove_dir_all(&data).unwrap();
    fs::remove_file(&errors).unwrap();
}

#[test]
fn demanded_rings_that_may_not_be_locked_are_refused_with_the_limit_and_the_mend() {
    if !is_bound() {
        println!("SKIPPED: CAP_IPC_LOCK cannot be given up here, and the limit does not bind");
        return;
    }
    let data = folder("locked-memory-refused");
    let refused = serve(&data, 0, 1, "uring").output().unwrap();
    let printed = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(2), "{printed}");
    for part in [
        "--io uring: the limit of locked memory (RLIMIT_MEMLOCK, 0 bytes) leaves 0 bytes",
        "ulimit -l",
        "LimitMEMLOCK=",
        "--io auto",
    ] {
        assert!(printed.contains(part), "{printed} has no {part}");
    }
    let _ = fs::remove_dir_all(&data);
}
