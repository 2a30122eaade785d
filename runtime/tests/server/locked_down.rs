//! Every command of deploy/LOCK_IT_DOWN.md, in its order, on four machines: namespaces of the
//! network with roots of their own. What it prints must be what the page shows.
//!
//! Scripts stand in for systemd and scp. Everything else is what a machine has.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use crate::process::the_machine;
use crate::scratch;
use crate::tutorial::are_alike;

/// Longer than any command takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// Names of the machines, with their addresses.
const MACHINES: [(&str, &str); 4] = [
    ("desk", "10.71.0.10"),
    ("kv1", "10.71.0.1"),
    ("kv2", "10.71.0.2"),
    ("kv3", "10.71.0.3"),
];

/// Where a transcript is written, if somebody wants one.
const TRANSCRIPT: &str = "LOCKED_DOWN_TRANSCRIPT";

/// One command, where it is given, and what the page shows below it.
struct Step {
    line: usize,
    machine: String,
    command: String,
    shown: Vec<String>,
}

/// The commands of all blocks of `console`. A line `name> ` goes on with a command, and what stands
/// in it between `<<END` and `END` is part of it.
fn steps(page: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let (mut is_console, mut is_text) = (false, false);
    for (number, line) in page.lines().enumerate() {
        if let Some(kind) = line.strip_prefix("```") {
            is_console = kind == "console";
            continue;
        }
        if !is_console {
            continue;
        }
        let names = MACHINES.iter().map(|it| it.0).chain(["all"]);
        let mut prompts = names.filter_map(|name| Some((name, line.strip_prefix(name)?)));
        let prompt = prompts.find(|(_, rest)| rest.starts_with("# ") || rest.starts_with("> "));
        match (prompt, steps.last_mut()) {
            (Some((_, rest)), Some(step)) if !is_text && rest.starts_with("> ") => {
                match step.command.strip_suffix('\\') {
                    Some(begin) => step.command = format!("{begin}{}", rest[2..].trim_start()),
                    None => step.command = format!("{}\n{}", step.command, &rest[2..]),
                }
            }
            (Some((name, rest)), _) if !is_text => {
                is_text = rest.contains("<<END");
                steps.push(Step {
                    line: number + 1,
                    machine: name.to_string(),
                    command: rest[2..].to_string(),
                    shown: Vec::new(),
                });
            }
            (_, Some(step)) if is_text => {
                step.command = format!("{}\n{line}", step.command);
                is_text = line != "END";
            }
            (_, step) => step
                .expect("a block begins with a command")
                .shown
                .push(line.to_string()),
        }
    }
    steps
}

/// The network namespaces, which go with this.
struct Network {
    names: Vec<String>,
}

fn run(program: &str, words: &str) -> Result<(), String> {
    let output = Command::new(program).args(words.split(' ')).output();
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!(
            "{program} {words}: {}",
            String::from_utf8_lossy(&output.stderr)
        )),
    }
}

impl Network {
    /// A bridge in a namespace of its own, and one namespace for each machine beside it.
    fn make() -> Result<Network, String> {
        let begin = format!("penstock-{}", std::process::id());
        let switch = format!("{begin}-switch");
        let mut network = Network { names: Vec::new() };
        let mut add = |name: &str| -> Result<(), String> {
            run("ip", &format!("netns add {name}"))?;
            network.names.push(name.to_string());
            run("ip", &format!("-n {name} link set lo up"))
        };
        add(&switch)?;
        run("ip", &format!("-n {switch} link add bridge type bridge"))?;
        run("ip", &format!("-n {switch} link set bridge up"))?;
        for (machine, address) in MACHINES {
            let name = format!("{begin}-{machine}");
            add(&name)?;
            for words in [
                format!("-n {switch} link add to-{machine} type veth peer name eth0 netns {name}"),
                format!("-n {switch} link set to-{machine} master bridge up"),
                format!("-n {name} addr add {address}/24 dev eth0"),
                format!("-n {name} link set eth0 up"),
            ] {
                run("ip", &words)?;
            }
        }
        Ok(network)
    }

    fn name(&self, machine: &str) -> &str {
        let end = format!("-{machine}");
        let mut names = self.names.iter();
        names
            .find(|name| name.ends_with(&end))
            .expect("it was made")
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = run("ip", &format!("netns del {name}"));
        }
    }
}

/// A shell on a machine.
struct Machine {
    shell: Child,
    input: ChildStdin,
    lines: mpsc::Receiver<String>,
    /// Where its server's process is noted.
    server: PathBuf,
}

impl Machine {
    fn start(network: &Network, scratch: &Path, (name, address): (&str, &str)) -> Machine {
        let (own, shared) = (scratch.join(name), scratch.join("machines"));
        fs::create_dir_all(&own).expect("a folder");
        let script = fs::read_to_string(files().join("machine.sh")).expect("a script");
        let mut shell = Command::new("ip")
            .args(["netns", "exec", network.name(name)])
            .args(["unshare", "--mount", "bash", "-c", &script, "machine"])
            .args([&own, &shared, &scratch.join("repository")])
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/usr/sbin:/bin:/sbin")
            .env("HOME", "/root")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell");
        fs::write(shared.join(address), shell.id().to_string()).expect("noted");
        let output = BufReader::new(shell.stdout.take().expect("piped"));
        let (said, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if said.send(line).is_err() {
                    return;
                }
            }
        });
        Machine {
            input: shell.stdin.take().expect("piped"),
            shell,
            lines,
            server: shared.join(format!("server-{address}")),
        }
    }

    /// Gives a command, and returns what it prints.
    fn give(&mut self, command: &str) -> Vec<String> {
        let mut printed = Vec::new();
        // Output without an end of line gets one.
        let given = format!("{command}\nprintf '\\n@@over\\n'\n");
        if let Err(error) = self.input.write_all(given.as_bytes()) {
            printed.push(format!("the shell has ended: {error}"));
        }
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) if line == "@@over" => break,
                Ok(line) => printed.push(line),
                Err(error) => panic!("{command}: {error} behind {printed:#?}"),
            }
        }
        if printed.last().is_some_and(String::is_empty) {
            printed.pop();
        }
        printed
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if let Ok(process) = fs::read_to_string(&self.server) {
            let _ = run("kill", &format!("-9 {}", process.trim()));
        }
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

fn files() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/server/locked_down")
}

/// Whether this machine lets a test make others; if not, why.
fn may_make_machines() -> Result<(), String> {
    let probe = "mount --make-rprivate / && mount -t tmpfs tmpfs /mnt && mkdir /mnt/{u,w,r} && \
        mount -t overlay overlay -o lowerdir=/,upperdir=/mnt/u,workdir=/mnt/w /mnt/r && \
        chroot /mnt/r true && which ip systemd-sysusers setpriv nsenter openssl curl";
    let output = Command::new("unshare")
        .args(["--mount", "--net", "bash", "-c", probe])
        .output()
        .map_err(|error| error.to_string())?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!(
            "no namespaces, overlays or programs: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        )),
    }
}

#[test]
fn every_command_of_the_page_prints_what_the_page_shows_on_three_nodes_and_a_desk() {
    if let Err(why) = may_make_machines() {
        println!("skipped: {why}");
        return;
    }
    let _machine = the_machine();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let page = fs::read_to_string(root.join("deploy/LOCK_IT_DOWN.md")).expect("the page");
    let steps = steps(&page);
    assert!(steps.len() > 50, "the page has commands");

    let scratch = scratch::folder("locked-down");
    let repository = scratch.join("repository");
    fs::create_dir_all(repository.join("target/release")).expect("a folder");
    fs::create_dir_all(scratch.join("machines")).expect("a folder");
    let link = |from: &Path, to: &str| {
        std::os::unix::fs::symlink(from, repository.join(to)).expect("linked");
    };
    link(
        Path::new(env!("CARGO_BIN_EXE_penstock")),
        "target/release/penstock",
    );
    link(
        &root.canonicalize().expect("there").join("deploy"),
        "deploy",
    );
    for name in ["scp", "systemctl"] {
        fs::copy(files().join(name), repository.join(name)).expect("copied");
    }

    let network = Network::make().expect("a network");
    let mut machines = MACHINES.map(|it| (it.0, Machine::start(&network, &scratch, it)));
    let mut transcript = String::new();
    for step in &steps {
        let all = &mut machines;
        for (name, machine) in all.iter_mut() {
            let is_node = *name != "desk";
            if step.machine != *name && !(step.machine == "all" && is_node) {
                continue;
            }
            let output = machine.give(&step.command);
            let printed: Vec<&str> = output.iter().map(String::as_str).collect();
            let _ = writeln!(transcript, "{name}# {}", step.command);
            for line in &printed {
                let _ = writeln!(transcript, "{line}");
            }
            let shown: Vec<&str> = step.shown.iter().map(String::as_str).collect();
            assert!(
                are_alike(&shown, &printed),
                "LOCK_IT_DOWN.md, line {}: {name}# {}\nshown: {shown:#?}\nprinted: {printed:#?}\n\
                 before:\n{transcript}",
                step.line,
                step.command,
            );
        }
    }
    if let Some(path) = std::env::var_os(TRANSCRIPT) {
        fs::write(path, &transcript).expect("written");
    }
    drop(machines);
    drop(network);
    fs::remove_dir_all(&scratch).expect("removed");
}
