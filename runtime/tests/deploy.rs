//! The deploy folder against what the server needs. The files are read, not run.

use std::collections::BTreeSet;

use serde_json::Value;

const SECCOMP: &str = include_str!("../../deploy/seccomp.json");
const UNIT: &str = include_str!("../../deploy/penstock.service");
const DOCKERFILE: &str = include_str!("../../deploy/Dockerfile");
const SYSCTL: &str = include_str!("../../deploy/sysctl.d/90-penstock.conf");

/// What the server and its libraries call, as a trace of both interfaces shows it, and what they fall back to.
const USED: &[&str] = &[
    "io_uring_setup",
    "io_uring_enter",
    "io_uring_register",
    "accept4",
    "access",
    "arch_prctl",
    "bind",
    "brk",
    "clock_nanosleep",
    "close",
    "connect",
    "epoll_create1",
    "epoll_ctl",
    "epoll_wait",
    "eventfd2",
    "execve",
    "exit",
    "exit_group",
    "fallocate",
    "fchmod",
    "fcntl",
    "fdatasync",
    "flock",
    "fstat",
    "fstatfs",
    "fsync",
    "ftruncate",
    "futex",
    "getdents64",
    "getpid",
    "getrandom",
    "getsockname",
    "gettid",
    "ioctl",
    "listen",
    "lseek",
    "madvise",
    "mkdir",
    "mmap",
    "mprotect",
    "munmap",
    "newfstatat",
    "openat",
    "poll",
    "prctl",
    "pread64",
    "preadv2",
    "prlimit64",
    "pwrite64",
    "pwritev2",
    "read",
    "readlink",
    "recvfrom",
    "rename",
    "restart_syscall",
    "rseq",
    "rt_sigaction",
    "rt_sigprocmask",
    "rt_sigreturn",
    "sched_getaffinity",
    "sched_getattr",
    "sched_setaffinity",
    "sched_setattr",
    "sched_yield",
    "sendto",
    "set_robust_list",
    "set_tid_address",
    "setsockopt",
    "shutdown",
    "sigaltstack",
    "socket",
    "socketpair",
    "statfs",
    "statx",
    "uname",
    "unlink",
    "write",
    "writev",
];

/// What a server of keys has no business with.
const REFUSED: &[&str] = &[
    "acct",
    "add_key",
    "bpf",
    "chroot",
    "delete_module",
    "fanotify_init",
    "init_module",
    "kexec_load",
    "keyctl",
    "mount",
    "move_pages",
    "open_by_handle_at",
    "perf_event_open",
    "personality",
    "pivot_root",
    "process_vm_readv",
    "process_vm_writev",
    "ptrace",
    "reboot",
    "setns",
    "swapon",
    "umount2",
    "unshare",
    "userfaultfd",
];

fn rules() -> Vec<Value> {
    let profile: Value = serde_json::from_str(SECCOMP).unwrap();
    assert_eq!(profile["defaultAction"], "SCMP_ACT_ERRNO");
    profile["syscalls"].as_array().unwrap().clone()
}

fn names(rule: &Value) -> impl Iterator<Item = &str> {
    rule["names"]
        .as_array()
        .unwrap()
        .iter()
        .map(|name| name.as_str().unwrap())
}

/// Allowed whatever the arguments are.
fn allowed(rules: &[Value]) -> BTreeSet<&str> {
    rules
        .iter()
        .filter(|rule| rule["action"] == "SCMP_ACT_ALLOW" && rule["args"].is_null())
        .flat_map(names)
        .collect()
}

#[test]
fn seccomp_profile_allows_io_uring_and_every_call_that_the_server_makes() {
    let rules = rules();
    let allowed = allowed(&rules);
    let missing: Vec<_> = USED
        .iter()
        .filter(|name| !allowed.contains(*name))
        .collect();
    assert!(missing.is_empty(), "not allowed: {missing:?}");
}

#[test]
fn seccomp_profile_refuses_what_no_server_needs() {
    let rules = rules();
    let allowed = allowed(&rules);
    let open: Vec<_> = REFUSED
        .iter()
        .filter(|name| allowed.contains(*name))
        .collect();
    assert!(open.is_empty(), "allowed: {open:?}");
}

#[test]
fn seccomp_profile_lets_threads_start_and_namespaces_not() {
    let rules = rules();
    let rule = |wanted: &str| {
        let mut found = rules
            .iter()
            .filter(|rule| names(rule).any(|name| name == wanted));
        let rule = found.next().unwrap();
        assert!(found.next().is_none(), "{wanted} stands in one rule");
        rule
    };
    let clone = rule("clone");
    assert_eq!(clone["action"], "SCMP_ACT_ALLOW");
    let condition = &clone["args"][0];
    assert_eq!(condition["op"], "SCMP_CMP_MASKED_EQ");
    let namespaces = libc::CLONE_NEWNS
        | libc::CLONE_NEWCGROUP
        | libc::CLONE_NEWUTS
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUSER
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWNET;
    assert_eq!(condition["value"], namespaces);
    assert_eq!(condition["valueTwo"], 0);
    let clone3 = rule("clone3");
    assert_eq!(clone3["action"], "SCMP_ACT_ERRNO");
    assert_eq!(clone3["errnoRet"], libc::ENOSYS);
}

#[test]
fn seccomp_profile_names_each_call_once() {
    let rules = rules();
    let mut seen = BTreeSet::new();
    for name in rules.iter().flat_map(names) {
        assert!(seen.insert(name), "{name} stands twice");
    }
}

#[test]
fn unit_runs_without_privileges_and_keeps_the_rings_and_the_pinning() {
    let has = |line: &str| UNIT.lines().any(|found| found == line);
    for line in [
        "User=penstock",
        "NoNewPrivileges=yes",
        "CapabilityBoundingSet=",
        "ProtectSystem=strict",
        "StateDirectoryMode=0700",
        "KillSignal=SIGTERM",
        "RestartPreventExitStatus=1 2",
        "SystemCallFilter=@system-service io_uring_setup io_uring_enter io_uring_register",
    ] {
        assert!(has(line), "missing: {line}");
    }
    assert!(
        !UNIT.contains("~@resources") && !UNIT.contains("~@privileged @resources"),
        "sched_setaffinity is in @resources, and cores are pinned by it"
    );
    for line in UNIT.lines().filter(|line| !line.starts_with(['#', '['])) {
        assert!(
            line.is_empty() || line.contains('='),
            "no directive: {line}"
        );
    }
}

#[test]
fn image_runs_as_nobody_in_particular_and_stops_cleanly() {
    let last = |instruction: &str| {
        DOCKERFILE
            .lines()
            .rev()
            .find_map(|line| line.strip_prefix(instruction))
            .unwrap()
            .trim()
    };
    let (user, _) = last("USER ").split_once(':').unwrap();
    assert_ne!(user.parse::<u32>().unwrap(), 0);
    assert_eq!(last("STOPSIGNAL "), "SIGTERM");
    assert_eq!(last("ENTRYPOINT "), r#"["penstock"]"#);
    let sources: BTreeSet<_> = DOCKERFILE
        .lines()
        .filter_map(|line| line.strip_prefix("COPY "))
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    let workspace = include_str!("../../Cargo.toml");
    let members = workspace
        .lines()
        .find_map(|line| line.strip_prefix("members = "))
        .unwrap();
    for member in members
        .split(['[', ']', '"', ',', ' '])
        .filter(|m| !m.is_empty())
    {
        // A crate that is nested under another comes with it.
        let is_copied = sources
            .iter()
            .any(|&source| std::path::Path::new(member).starts_with(source));
        assert!(is_copied, "the image is built without {member}");
    }
}

#[test]
fn sysctl_lines_are_keys_with_values() {
    let lines = SYSCTL
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    let mut count = 0;
    for line in lines {
        let (key, value) = line.split_once(" = ").unwrap();
        assert!(key.trim_start_matches('-').contains('.'), "{line}");
        value.parse::<u64>().unwrap();
        count += 1;
    }
    assert_ne!(count, 0);
}
