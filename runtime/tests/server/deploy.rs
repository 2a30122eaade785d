//! The deploy folder against what the server needs. The files are read, not run.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use serde_json::Value;
use yaml_rust2::{Yaml, YamlLoader};

use crate::cluster::nodes::free_address;
use crate::command::command;
use crate::process::Server;
use crate::scratch;

const SECCOMP: &str = include_str!("../../../deploy/seccomp.json");
const UNIT: &str = include_str!("../../../deploy/penstock.service");
const TEMPLATE: &str = include_str!("../../../deploy/penstock@.service");
const CREDENTIALS: &str = include_str!("../../../deploy/penstock.service.d/credentials.conf");
const BACKUP: &str = include_str!("../../../deploy/penstock-backup.service");
const BACKUP_ENVIRONMENT: &str = include_str!("../../../deploy/backup.env");
const DOCKERFILE: &str = include_str!("../../../deploy/Dockerfile");
const SYSCTL: &str = include_str!("../../../deploy/sysctl.d/90-penstock.conf");

/// System calls of the server and its libraries, as traces of both interfaces show them, and the
/// calls that they fall back to.
const USED: &[&str] = &[
    "io_uring_setup",
    "io_uring_enter",
    "io_uring_register",
    "accept4",
    "access",
    "adjtimex",
    "arch_prctl",
    "bind",
    "brk",
    "clock_adjtime",
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
    "getpeername",
    "getpid",
    "getrandom",
    "getrusage",
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
    "renameat2",
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
fn units_let_a_start_ask_the_kernel_whether_a_time_service_keeps_the_clock() {
    for unit in [UNIT, TEMPLATE] {
        let options: Vec<_> = unit.lines().filter(|line| !line.starts_with('#')).collect();
        let protected = options.iter().find(|line| line.starts_with("ProtectClock"));
        assert_eq!(protected, None, "it takes adjtimex away");
        let filters: Vec<_> = options
            .iter()
            .filter_map(|line| line.strip_prefix("SystemCallFilter="))
            .collect();
        let taken = filters.iter().rposition(|names| names.starts_with('~'));
        let given = filters
            .iter()
            .rposition(|names| *names == "adjtimex clock_adjtime");
        assert!(
            given > taken,
            "what a line takes away is given after it: {filters:?}"
        );
        // By which the clock could be set.
        for line in ["CapabilityBoundingSet=", "PrivateDevices=yes"] {
            assert!(options.contains(&line), "missing: {line}");
        }
    }
}

#[test]
fn units_are_notified_of_ready_reload_and_a_loop_that_hangs() {
    for unit in [UNIT, TEMPLATE] {
        for line in [
            "Type=notify",
            "NotifyAccess=main",
            "WatchdogSec=30",
            "TimeoutStartSec=infinity",
            "ExecReload=/bin/kill -HUP $MAINPID",
            "RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX",
        ] {
            assert!(unit.lines().any(|found| found == line), "missing: {line}");
        }
    }
}

#[test]
fn backup_unit_takes_a_backup_of_a_real_server_by_the_words_of_its_files() {
    let scratch = scratch::folder("deploy-backup");
    let (data, to) = (scratch.join("data"), scratch.join("to"));
    let mut serve = command(&["serve", "--listen", "127.0.0.1:0", "--shard-ports", "0"]);
    serve.args([
        "--shards",
        "1",
        "--segment-bytes",
        "2MiB",
        "--value-bytes-max",
        "16KiB",
    ]);
    serve.args(["--admin-listen", "off", "--data"]).arg(&data);
    let server = Server::start(&mut serve);
    let names: BTreeSet<&str> = BACKUP_ENVIRONMENT
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| Some(line.split_once('=')?.0))
        .collect();
    assert_eq!(names, ["ADDR", "DATA", "KEEP", "TO"].into());
    let words = BACKUP
        .lines()
        .find_map(|line| line.strip_prefix("ExecStart=/usr/bin/penstock "))
        .unwrap()
        .replace("${DATA}", &data.display().to_string())
        .replace("${TO}", &to.display().to_string())
        .replace("${ADDR}", &server.address.to_string())
        .replace("${KEEP}", "1");
    let words: Vec<&str> = words.split(' ').collect();
    // The second one removes the first.
    for _ in 0..2 {
        let output = command(&words).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{words:?}: {text}");
    }
    let files = fs::read_dir(&to).unwrap();
    let names = files.map(|entry| entry.unwrap().path());
    let manifests = names.filter(|path| path.extension().is_some_and(|it| it == "manifest"));
    assert_eq!(manifests.count(), 1, "KEEP=1");
    let timer = include_str!("../../../deploy/penstock-backup.timer");
    assert!(timer.contains("OnCalendar=") && timer.contains("Persistent=true"));
}

#[test]
fn a_node_serves_with_the_credentials_that_the_drop_in_names() {
    let scratch = scratch::folder("deploy-credentials");
    let copies = scratch.join("copies");
    fs::create_dir_all(&copies).unwrap();
    let run = |words: &[&str]| {
        let output = command(words).output().unwrap();
        assert!(output.status.success(), "{words:?}: {output:?}");
        output.stdout
    };
    let path = |name: &str| scratch.join(name).display().to_string();
    let (links, clients) = (free_address().to_string(), free_address().to_string());
    let node = format!("1,{links},{clients}");
    run(&[
        "cluster",
        "init",
        "--file",
        &path("cluster.toml"),
        "--node",
        &node,
    ]);
    run(&["cluster", "certs", "--file", &path("cluster.toml")]);
    let secret = run(&["user", "add", "ann", "--users", &path("users")]);
    fs::write(path("secret"), secret).unwrap();
    fs::write(path("admin-token"), "0123456789abcdef".repeat(4)).unwrap();
    let mode = |name: &str, mode| {
        let mode = fs::Permissions::from_mode(mode);
        fs::set_permissions(path(name), mode).unwrap();
    };
    mode("secret", 0o600);
    fs::copy(path("certs/node-1.pem"), path("node.pem")).unwrap();
    fs::copy(path("certs/node-1.key"), path("node.key")).unwrap();
    fs::copy(path("certs/ca.pem"), path("ca.pem")).unwrap();

    let mut serve = command(&["serve", "--cluster-node", "1", "--cluster-new"]);
    serve.args(["--listen", &clients, "--shard-ports", "0", "--shards", "1"]);
    serve.args(["--admin-listen", "127.0.0.1:0", "--segment-bytes", "4MiB"]);
    serve.args([
        "--value-bytes-max",
        "64KiB",
        "--cluster",
        &path("cluster.toml"),
    ]);
    serve.args(["--data", &path("data")]);
    let mut names = BTreeSet::new();
    for line in CREDENTIALS.lines() {
        if let Some(credential) = line.strip_prefix("LoadCredential=") {
            let (name, from) = credential.split_once(':').unwrap();
            let from = from.strip_prefix("/etc/penstock/").unwrap();
            let copy = format!("copies/{name}");
            fs::copy(path(from), path(&copy)).unwrap();
            // As systemd has them for a service, but for their owner, who is this user here.
            mode(&copy, 0o400);
            names.insert(name);
        }
        if let Some(variables) = line.strip_prefix("Environment=") {
            for variable in variables.split(' ') {
                let (variable, value) = variable.split_once('=').unwrap();
                let name = value.strip_prefix("%d/").unwrap();
                assert!(names.contains(name), "{variable} names no credential");
                serve.env(variable, copies.join(name));
            }
        }
    }
    assert_eq!(names.len(), 5, "{names:?}");
    let server = Server::start(&mut serve);
    let mut ping = command(&["ping", "--addr", &clients, "--tls-ca", &path("ca.pem")]);
    let login = ["--user", "ann", "--secret-file", &path("secret")];
    let output = ping.args(login).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    server.stop();
    fs::remove_dir_all(&scratch).unwrap();
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
    let workspace = include_str!("../../../Cargo.toml");
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

#[test]
fn template_differs_from_the_unit_by_where_a_node_has_its_data_and_its_configuration() {
    let directives = |unit: &'static str| -> BTreeSet<&str> {
        let lines = unit.lines();
        lines
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
            .collect()
    };
    let (unit, template) = (directives(UNIT), directives(TEMPLATE));
    let own: Vec<&str> = template.difference(&unit).copied().collect();
    let expected = [
        "Description=Penstock, a durable key-value server, node %i",
        "ExecStart=/usr/bin/penstock serve --config /etc/penstock/%i.toml",
        "LogsDirectory=penstock/%i",
        "StateDirectory=penstock/%i",
        "WorkingDirectory=/var/lib/penstock/%i",
    ];
    assert_eq!(own, expected);
    assert_eq!(unit.difference(&template).count(), expected.len());
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy")
}

fn yaml(path: &str) -> Yaml {
    let text = fs::read_to_string(folder().join(path)).unwrap();
    let mut documents = YamlLoader::load_from_str(&text).unwrap();
    assert_eq!(documents.len(), 1, "{path}");
    documents.remove(0)
}

fn list(yaml: &Yaml) -> Vec<&str> {
    let items = yaml.as_vec().unwrap().iter();
    items.map(|item| item.as_str().unwrap()).collect()
}

/// The entries of a mapping, and those that it takes over from another one and has not itself.
fn entries(yaml: &Yaml) -> BTreeMap<String, Yaml> {
    let mut found = BTreeMap::new();
    let mapping = yaml.as_hash().unwrap();
    if let Some(other) = mapping.get(&Yaml::String("<<".into())) {
        found.extend(entries(other));
    }
    for (name, value) in mapping {
        found.insert(name.as_str().unwrap().to_string(), value.clone());
    }
    found.remove("<<");
    found
}

#[test]
fn alerts_have_an_expression_a_severity_and_a_summary_and_no_two_have_one_name() {
    let alerts = yaml("monitoring/alerts.yml");
    let groups = alerts["groups"].as_vec().unwrap();
    let mut names = BTreeSet::new();
    for rule in groups
        .iter()
        .flat_map(|group| group["rules"].as_vec().unwrap())
    {
        let name = rule["alert"].as_str().unwrap();
        assert!(names.insert(name), "{name} stands twice");
        let severity = rule["labels"]["severity"].as_str().unwrap();
        assert!(["page", "ticket"].contains(&severity), "{name}: {severity}");
        let summary = rule["annotations"]["summary"].as_str().unwrap();
        assert!(summary.contains("{{ $labels."), "{name}: {summary}");
        let expression = rule["expr"].as_str().unwrap();
        // The label by which it is told must be one that the expression leaves.
        for label in ["instance", "job"] {
            if summary.contains(&format!("$labels.{label} ")) && expression.contains("by (") {
                assert!(expression.contains(label), "{name} tells {label}");
            }
        }
    }
    assert!(names.len() > 20, "{names:?}");
}

#[test]
fn panels_of_the_dashboard_do_not_overlap_and_each_asks_for_something() {
    let text = fs::read_to_string(folder().join("monitoring/grafana-dashboard.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let mut ids = BTreeSet::new();
    let mut taken = BTreeSet::new();
    for panel in panels {
        let title = panel["title"].as_str().unwrap();
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{title}");
        let at = |name: &str| panel["gridPos"][name].as_u64().unwrap();
        assert!(at("x") + at("w") <= 24, "{title}");
        for x in at("x")..at("x") + at("w") {
            for y in at("y")..at("y") + at("h") {
                assert!(taken.insert((x, y)), "{title} overlaps at {x}, {y}");
            }
        }
        if panel["type"] == "row" {
            continue;
        }
        let targets = panel["targets"].as_array().unwrap();
        assert!(!targets.is_empty(), "{title}");
        for target in targets {
            let expression = target["expr"].as_str().unwrap();
            assert!(expression.contains("$instance"), "{title}: {expression}");
            assert_eq!(target["datasource"]["uid"], "${datasource}", "{title}");
        }
    }
}

/// The nodes of the file of the composed cluster: number, host of links, host of clients.
fn composed_nodes() -> Vec<(u64, String, String)> {
    let text = fs::read_to_string(folder().join("compose/cluster/cluster.toml")).unwrap();
    let mut nodes = Vec::new();
    for block in text.split("[[node]]").skip(1) {
        let value = |name: &str| {
            let found = block.lines().find_map(|line| {
                let (key, value) = line.split_once(" = ")?;
                (key == name).then(|| value.trim_matches('"').to_string())
            });
            found.unwrap()
        };
        let host = |name: &str, port: &str| {
            let value = value(name);
            let (host, found) = value.split_once(':').unwrap();
            assert_eq!(found, port, "{value}");
            host.to_string()
        };
        let number = value("number").parse().unwrap();
        nodes.push((number, host("links", "7414"), host("clients", "7411")));
    }
    nodes
}

#[test]
fn composed_nodes_are_those_of_the_clusters_file_and_the_server_takes_their_options() {
    let compose = yaml("compose/compose.yaml");
    let nodes = composed_nodes();
    assert_eq!(nodes.len(), 3);
    let mut mounted = BTreeSet::new();
    for (number, links, clients) in &nodes {
        let name = format!("node{number}");
        let service = entries(&compose["services"][name.as_str()]);
        let address = &service["networks"]["penstock"]["ipv4_address"];
        assert_eq!(address.as_str(), Some(links.as_str()), "{name}");
        assert_eq!(links, clients, "{name}");
        let environment = entries(&service["environment"]);
        let given = environment["PENSTOCK_CLUSTER_NODE"].as_str().unwrap();
        assert_eq!(given, number.to_string());
        let mut explain = command(&["config", "explain"]);
        for (variable, value) in &environment {
            // As the shell has it without a variable of that name.
            let value = value.as_str().map(str::to_string);
            let value = value.map(|it| match it.split_once(":-") {
                Some((_, otherwise)) => otherwise.trim_end_matches('}').to_string(),
                None => it,
            });
            explain.env(variable, value.expect("a string"));
        }
        let output = explain.output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{name}: {text}");
        let volumes = list(&service["volumes"]);
        assert!(
            volumes.contains(&format!("{name}:/var/lib/penstock").as_str()),
            "{volumes:?}"
        );
        // Each member of etcd is named, and is there.
        let endpoints = environment["PENSTOCK_ETCD_ENDPOINTS"].as_str().unwrap();
        for (endpoint, member) in endpoints.split(',').zip(1..=3) {
            let etcd = &compose["services"][format!("etcd{member}").as_str()];
            let address = etcd["networks"]["penstock"]["ipv4_address"].as_str();
            assert_eq!(endpoint, format!("http://{}:2379", address.unwrap()));
        }
        assert!(mounted.insert(volumes[0].to_string()), "each has its own");
        assert_eq!(list(&service["cap_drop"]), ["ALL"]);
        assert_eq!(service["read_only"].as_bool(), Some(true));
        let profile = list(&service["security_opt"])[0];
        let profile = profile.strip_prefix("seccomp=").unwrap();
        assert!(folder().join("compose").join(profile).is_file());
    }

    // The real reader of the file, with the same nodes where nobody listens.
    let copy = scratch::folder("composed");
    fs::create_dir_all(&copy).unwrap();
    let text = fs::read_to_string(folder().join("compose/cluster/cluster.toml")).unwrap();
    let text = text
        .replace("172.31.74.", "127.31.74.")
        .replace(":7411", ":9")
        .replace("/etc/penstock/own/cluster-secret", "secret");
    fs::write(copy.join("cluster.toml"), text).unwrap();
    let secret = copy.join("secret");
    fs::write(&secret, [b's'; 48]).unwrap();
    fs::set_permissions(secret, fs::Permissions::from_mode(0o600)).unwrap();
    let output = command(&["cluster", "status", "--file"])
        .arg(copy.join("cluster.toml"))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3), "{text}");
    assert_eq!(text.matches("does not answer").count(), 3, "{text}");
}

/// Owner, mode and content of the files that a folder has.
fn handed(folder: &Path) -> BTreeMap<String, (u32, u32, Vec<u8>)> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let read = |entry: fs::DirEntry| {
        let data = entry.metadata().unwrap();
        let name = entry.file_name().into_string().unwrap();
        let content = fs::read(entry.path()).unwrap();
        (name, (data.uid(), data.mode() & 0o7777, content))
    };
    entries.map(read).collect()
}

#[test]
fn composed_init_makes_secrets_once_and_hands_each_node_its_own_part() {
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        println!("skipped: only root may give files to others");
        return;
    }
    let scratch = scratch::folder("composed-init");
    let own = scratch.join("own");
    for name in ["1", "2", "3", "prometheus"] {
        fs::create_dir_all(own.join(name)).unwrap();
    }
    let text = fs::read_to_string(folder().join("compose/cluster/cluster.toml")).unwrap();
    let secret = own.join("1/cluster-secret").display().to_string();
    let text = text.replace("/etc/penstock/own/cluster-secret", &secret);
    fs::write(scratch.join("cluster.toml"), text).unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_penstock"));
    let path = std::env::var("PATH").unwrap();
    let init = || {
        let output = crate::command::program("sh")
            .arg(folder().join("compose/cluster/init.sh"))
            .env(
                "PATH",
                format!("{}:{path}", program.parent().unwrap().display()),
            )
            .env("DESK", scratch.join("desk"))
            .env("OWN", &own)
            .env("CLUSTER", scratch.join("cluster.toml"))
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        let parts = ["1", "2", "3", "prometheus"].map(|name| handed(&own.join(name)));
        (parts, output.stdout)
    };
    let (first, printed) = init();
    let expected = [
        "admin-token",
        "ca.pem",
        "cluster-secret",
        "node.key",
        "node.pem",
        "probe.secret",
        "users",
    ];
    for part in &first[..3] {
        assert_eq!(part.keys().collect::<Vec<_>>(), expected);
        assert!(part.values().all(|it| (it.0, it.1) == (65532, 0o400)));
    }
    assert_ne!(first[0]["node.key"], first[1]["node.key"]);
    assert_eq!(first[0]["users"], first[2]["users"]);
    assert_eq!(
        first[3].keys().collect::<Vec<_>>(),
        ["admin-token", "ca.pem"]
    );
    assert!(first[3].values().all(|it| (it.0, it.1) == (65534, 0o400)));
    let printed = String::from_utf8(printed).unwrap();
    let token = String::from_utf8(first[3]["admin-token"].2.clone()).unwrap();
    assert!(token.len() == 64 && !printed.contains(&token), "{printed}");
    let (second, _) = init();
    assert!(first == second, "nothing is made twice");
    fs::remove_dir_all(&scratch).unwrap();
}

#[test]
fn composed_prometheus_scrapes_every_node_and_grafana_finds_it_and_the_dashboard() {
    let compose = yaml("compose/compose.yaml");
    let services = entries(&compose["services"]);
    let volumes = entries(&compose["volumes"]);
    for (name, service) in &services {
        let service = entries(service);
        for volume in list(&service["volumes"]) {
            let (from, _) = volume.split_once(':').unwrap();
            match from.starts_with('.') {
                true => assert!(folder().join("compose").join(from).exists(), "{from}"),
                false => assert!(volumes.contains_key(from), "{name}: {from}"),
            }
        }
        let image = service["image"].as_str().unwrap();
        let is_pinned = image
            .split_once(':')
            .is_some_and(|(_, tag)| tag != "latest");
        assert!(is_pinned || image == "penstock", "{image}");
        // Nothing is open to more than this machine.
        let ports = service.get("ports").map_or(Vec::new(), list);
        assert!(
            ports.iter().all(|it| it.starts_with("127.0.0.1:")),
            "{ports:?}"
        );
    }
    let expected: Vec<String> = composed_nodes()
        .iter()
        .map(|(_, links, _)| format!("{links}:7412"))
        .collect();
    let prometheus = yaml("compose/prometheus.yml");
    let job = &prometheus["scrape_configs"][0];
    assert_eq!(list(&job["static_configs"][0]["targets"]), expected);
    assert_eq!(job["job_name"].as_str(), Some("penstock"));
    let mounts = |name: &str| -> Vec<String> {
        let service = entries(&services[name]);
        let volumes = list(&service["volumes"]).into_iter();
        volumes
            .map(|it| it.split(':').nth(1).unwrap().to_string())
            .collect()
    };
    for rules in list(&prometheus["rule_files"]) {
        assert!(mounts("prometheus").contains(&format!("/etc/prometheus/{rules}")));
    }
    let sources = yaml("compose/grafana/datasources.yml");
    let source = &sources["datasources"][0];
    assert_eq!(source["url"].as_str(), Some("http://prometheus:9090"));
    assert_eq!(source["type"].as_str(), Some("prometheus"));
    let providers = yaml("compose/grafana/dashboards.yml");
    let path = &providers["providers"][0]["options"]["path"];
    let dashboard = format!("{}/penstock.json", path.as_str().unwrap());
    assert!(mounts("grafana").contains(&dashboard));
    let environment = entries(&entries(&services["grafana"])["environment"]);
    let home = &environment["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"];
    assert_eq!(home.as_str(), Some(dashboard.as_str()));
}
