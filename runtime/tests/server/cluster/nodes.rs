//! Nodes of a cluster: real servers on loopback, the file that they have in common, and commands on
//! it.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use penstock_client::{Client, ClientOptions};
use penstock_net::hello::{ClientHello, ServerHello};
use penstock_net::level::AckLevel;
use penstock_net::receive::{Received, Receiver};

use crate::command::{command, program};
use crate::process::signal;
use crate::scrape::ask;
use crate::scratch;

/// What is waited for comes in well under a second on a machine with nothing else to do.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// The test that serves as an earlier build, in a process of its own.
const EARLIER_BUILD: &str = "cluster::upgrade::serves_as_an_earlier_build";
/// The variable that tells it the highest version of links to offer.
pub const LINKS_UP_TO: &str = "LINKS_UP_TO";

/// A server that a failing test takes down with it.
pub struct Server {
    process: Child,
    pub address: SocketAddr,
    admin: SocketAddr,
    /// What it has said of itself.
    said: Arc<Mutex<Vec<String>>>,
}

impl Drop for Server {
    /// As hard as a crash.
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Server {
    pub fn client(&self, level: AckLevel) -> Client {
        let options = ClientOptions {
            level,
            deadline: PATIENCE,
            // Each node is to speak for itself.
            follows: false,
            ..ClientOptions::default()
        };
        Client::connect(self.address, options).expect("it listens")
    }

    /// What it tells whoever connects.
    pub fn hello(&self) -> ServerHello {
        let mut stream = TcpStream::connect(self.address).expect("it listens");
        let mut frame = Vec::new();
        let hello = ClientHello {
            protocol_min: 1,
            protocol_max: 1,
            features: 0,
            name: "test",
        };
        hello.write(&mut frame, 1);
        stream.write_all(&frame).expect("sent");
        let mut receiver = Receiver::new(64 << 10);
        let (mut bytes, mut chunk) = (Vec::new(), [0; 4096]);
        loop {
            let read = stream.read(&mut chunk).expect("read");
            assert!(read > 0, "no answer");
            bytes.extend_from_slice(&chunk[..read]);
            if let Received::Frame { body, .. } = receiver.next(&bytes) {
                return ServerHello::read(body).expect("a good one");
            }
        }
    }

    /// A page of its admin port: status and body.
    pub fn page(&self, page: &str) -> (u16, String) {
        let request = format!("GET {page} HTTP/1.1\r\nHost: penstock\r\n\r\n");
        ask(self.admin, request.as_bytes())
    }

    pub fn partitions(&self) -> Vec<serde_json::Value> {
        let text = self.client(AckLevel::Disk).info().wait().expect("told");
        let info: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        info["partitions"].as_array().expect("a list").clone()
    }

    /// The role of all partitions, if it is one, and the sum of what is applied.
    pub fn stand(&self) -> (Option<String>, u64) {
        let partitions = self.partitions();
        let role = |it: &serde_json::Value| it["role"].as_str().expect("a role").to_string();
        let first = partitions.first().map(role);
        let is_one = partitions.iter().all(|it| Some(role(it)) == first);
        let applied = partitions
            .iter()
            .map(|it| it["applied"].as_u64().expect("a number"))
            .sum();
        (first.filter(|_| is_one), applied)
    }

    /// Waits until it is this to all partitions.
    pub fn until_role(&self, role: &str) {
        until(&format!("it is {role}"), || {
            self.stand().0.as_deref() == Some(role)
        });
    }

    pub fn has_said(&self, text: &str) -> bool {
        let said = self.said.lock().expect("no test fails with it");
        said.iter().any(|line| line.contains(text))
    }

    /// The lines it has said with this in them.
    pub fn said(&self, text: &str) -> Vec<String> {
        let said = self.said.lock().expect("no test fails with it");
        said.iter()
            .filter(|line| line.contains(text))
            .cloned()
            .collect()
    }

    /// How many threads of this name it has.
    pub fn threads(&self, name: &str) -> usize {
        let tasks = format!("/proc/{}/task", self.process.id());
        let tasks = std::fs::read_dir(tasks).expect("it runs").flatten();
        let names = tasks.filter_map(|task| fs::read_to_string(task.path().join("comm")).ok());
        names.filter(|it| it.trim_end() == name).count()
    }

    pub fn signal(&self, name: &str) {
        signal(self.process.id(), name);
    }

    /// Stands still, with all of its threads. A thread that waits for the processor runs on for a
    /// while after the signal was sent.
    pub fn freeze(&self) {
        self.signal("-STOP");
        let tasks = format!("/proc/{}/task", self.process.id());
        until("each of its threads stands still", || {
            let tasks = std::fs::read_dir(&tasks).expect("it runs");
            tasks.flatten().all(|task| {
                // The state follows the name of the thread, which ends with the last bracket.
                let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
                stat.rsplit_once(") ")
                    .is_none_or(|(_, state)| state.starts_with('T'))
            })
        });
    }

    pub fn stop(mut self) {
        self.signal("-TERM");
        assert!(self.process.wait().expect("it ends").success());
    }
}

pub fn until(what: &str, is_so: impl FnMut() -> bool) {
    assert!(is_within_patience(is_so), "not in time: {what}");
}

/// Whether it comes to be so.
pub fn is_within_patience(mut is_so: impl FnMut() -> bool) -> bool {
    let began = Instant::now();
    while !is_so() {
        if began.elapsed() >= PATIENCE {
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    true
}

/// A port that no other test of this run gets: clusters run beside each other, and a node that
/// starts again must find its own port free. The range ends below the ports that the kernel gives
/// out by itself.
pub fn free_port() -> u16 {
    free_ports(1)
}

/// An address of this machine with such a port.
pub fn free_address() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], free_port()))
}

/// The first of so many free ports in a row, of the same range.
pub fn free_ports(count: u16) -> u16 {
    const PORTS: u16 = 12_000;
    static TAKEN: AtomicU16 = AtomicU16::new(0);
    // Another run of these tests on the same machine begins elsewhere.
    let begin = u16::try_from(std::process::id() % 20).expect("small") * 600;
    let is_free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
    (0..PORTS)
        .map(|_| 20_000 + (begin + TAKEN.fetch_add(count, Ordering::Relaxed)) % PORTS)
        .find(|&first| (first..first + count).all(is_free))
        .expect("they are free")
}

/// Writes a secret that nobody else may read.
pub fn write_secret(path: &Path, secret: &str) {
    fs::write(path, secret).expect("written");
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).expect("set");
}

/// The files of a cluster of two, and the ports of a third node.
pub struct Cluster {
    pub folder: PathBuf,
    pub links: [u16; 3],
    pub clients: [u16; 3],
    replica_timeout_ms: u32,
}

impl Cluster {
    /// One in which nobody is tired of waiting for members.
    pub fn new(name: &str) -> Cluster {
        Cluster::with_timeout(name, 60_000)
    }

    /// One whose level replica waits for so long.
    pub fn with_timeout(name: &str, replica_timeout_ms: u32) -> Cluster {
        let folder = scratch::folder(name);
        fs::create_dir_all(&folder).expect("made");
        write_secret(&folder.join("secret"), "0123456789abcdef0123456789abcdef");
        let cluster = Cluster {
            folder,
            links: [(); 3].map(|()| free_port()),
            clients: [(); 3].map(|()| free_port()),
            replica_timeout_ms,
        };
        cluster.place(1, 1);
        cluster
    }

    /// Lets a node write everything, and the other one hold it.
    pub fn place(&self, primary: u8, generation: u32) {
        self.write("cluster.toml", "secret", primary, generation);
    }

    pub fn write(&self, name: &str, secret: &str, primary: u8, generation: u32) {
        let [one, two, _] = self.links;
        let [first, second, _] = self.clients;
        let text = format!(
            r#"version = 1
cluster_id = "c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1"
secret_file = "{secret}"
replica_timeout_ms = {}

[[node]]
number = 1
links = "127.0.0.1:{one}"
clients = "127.0.0.1:{first}"

[[node]]
number = 2
links = "127.0.0.1:{two}"
clients = "127.0.0.1:{second}"

[[placement]]
partitions = [0, 255]
generation = {generation}
primary = {primary}
sync = [{}]
"#,
            self.replica_timeout_ms,
            3 - primary
        );
        fs::write(self.folder.join(name), text).expect("written");
    }

    /// Runs a command on the cluster's file that waits for nodes and is to be done: what it said.
    pub fn does(&self, words: &[&str]) -> String {
        let (is_done, printed) = self.command(words);
        assert!(is_done, "{printed}");
        printed
    }

    /// The same of a command that waits as long as it does by itself.
    pub fn edits(&self, words: &[&str]) -> String {
        let (is_done, printed) = self.edit(words);
        assert!(is_done, "{printed}");
        printed
    }

    /// How the third node is named in a command.
    pub fn third(&self) -> String {
        let (links, clients) = (self.links[2], self.clients[2]);
        format!("3,127.0.0.1:{links},127.0.0.1:{clients}")
    }

    /// A third node, which has all that this one writes.
    pub fn add_third(&self, primary: &Server) -> Server {
        self.edits(&["add", "--node", &self.third()]);
        let third = self.start(3, &[]);
        wait_for_follower(primary, &third);
        third
    }

    /// No node keeps what the others lack.
    pub fn has_lost_nothing(&self) {
        for node in [1, 2] {
            let is_there = self.data(node).join("lostfound").exists();
            assert!(!is_there, "node {node}");
        }
    }

    /// Runs a command on the cluster's file that waits for nodes.
    pub fn command(&self, words: &[&str]) -> (bool, String) {
        self.edit(&[words, &["--wait-ms", "120000"]].concat())
    }

    /// Runs a command on the cluster's file. Returns whether it succeeded, and its output.
    pub fn edit(&self, words: &[&str]) -> (bool, String) {
        let (code, printed) = self.run(words);
        (code == 0, printed)
    }

    /// The same, with its exit code.
    pub fn run(&self, words: &[&str]) -> (i32, String) {
        let file = self.folder.join("cluster.toml").display().to_string();
        self.run_without_file(&[words, &["--file", &file]].concat())
    }

    /// The same of a command that names what it is about by itself.
    pub fn run_without_file(&self, words: &[&str]) -> (i32, String) {
        let output = command(&["cluster"]).args(words).output().expect("it runs");
        let printed = [output.stdout, output.stderr].concat();
        let printed = String::from_utf8_lossy(&printed).into_owned();
        println!("{words:?}: {printed}");
        (output.status.code().expect("it ended"), printed)
    }

    pub fn data(&self, node: u8) -> PathBuf {
        self.folder.join(format!("node-{node}"))
    }

    pub fn start(&self, node: u8, more: &[&str]) -> Server {
        self.start_by("cluster.toml", node, more)
    }

    /// A new cluster: the first writes, the second has all.
    pub fn start_two(&self) -> (Server, Server) {
        let first = self.start(1, &["--cluster-new"]);
        wait_for_primary(&first);
        let second = self.start(2, &[]);
        wait_for_follower(&first, &second);
        (first, second)
    }

    fn process(&self, plan: &[String], node: u8, more: &[&str]) -> Child {
        let mut serve = command(&["serve"]);
        serve.args(self.words(plan, node, more));
        spawned(&mut serve)
    }

    /// How a node is told what it serves.
    fn words(&self, plan: &[String], node: u8, more: &[&str]) -> Vec<String> {
        let usual = ["--shards", if node == 1 { "2" } else { "1" }];
        let shards = if more.contains(&"--shards") {
            &[][..]
        } else {
            &usual
        };
        let listen = format!("127.0.0.1:{}", self.clients[usize::from(node) - 1]);
        let (number, data) = (node.to_string(), self.data(node).display().to_string());
        let of_all = [
            ["--shard-ports", "0"],
            ["--admin-listen", "127.0.0.1:0"],
            ["--listen", &listen],
            ["--cache-bytes", "1MiB"],
            ["--value-bytes-max", "16KiB"],
            ["--segment-bytes", "2MiB"],
            ["--cluster-node", &number],
            ["--data", &data],
        ];
        let words = of_all.iter().flatten().chain(shards).chain(more);
        let words = words.map(|word| (*word).to_string());
        words.chain(plan.iter().cloned()).collect()
    }

    /// Starts a node as a build that offers no higher version of links than this one: a process of
    /// this binary, which is told by variables what it serves.
    pub fn start_earlier(&self, node: u8, links_up_to: u16) -> Server {
        self.start_earlier_with(node, links_up_to, &[])
    }

    /// The same with more options.
    pub fn start_earlier_with(&self, node: u8, links_up_to: u16, more: &[&str]) -> Server {
        let this = std::env::current_exe()
            .expect("known")
            .display()
            .to_string();
        let mut serve = program(&this);
        serve.args(["--exact", EARLIER_BUILD, "--ignored", "--nocapture"]);
        serve.env(LINKS_UP_TO, links_up_to.to_string());
        let words = self.words(&self.plan_in("cluster.toml"), node, more);
        for option in words.chunks(2) {
            let name = option[0].trim_start_matches('-').replace('-', "_");
            serve.env(format!("PENSTOCK_{}", name.to_uppercase()), &option[1]);
        }
        served(spawned(&mut serve), node)
    }

    /// Starts a server that ends by itself. Returns its exit code and its output.
    pub fn start_to_its_end(&self, node: u8) -> (Option<i32>, String) {
        self.start_with_to_its_end(&self.plan_in("cluster.toml"), node)
    }

    /// The same with its plan elsewhere.
    pub fn start_with_to_its_end(&self, plan: &[String], node: u8) -> (Option<i32>, String) {
        let mut process = self.process(plan, node, &[]);
        let (errors, listed) = (process.stderr.take(), process.stdout.take());
        let banner = std::thread::spawn(move || {
            let listed = BufReader::new(listed.expect("piped")).lines();
            listed.for_each(drop);
        });
        let mut said = String::new();
        let mut errors = BufReader::new(errors.expect("piped"));
        errors.read_to_string(&mut said).expect("text");
        println!("{said}");
        banner.join().expect("read");
        (process.wait().expect("it ends").code(), said)
    }

    /// How a node is told of a file of the folder.
    fn plan_in(&self, file: &str) -> Vec<String> {
        let path = self.folder.join(file).display().to_string();
        vec!["--cluster".into(), path]
    }

    /// Starts a server that is refused. Returns the one line that it says.
    pub fn start_refused(&self, node: u8, more: &[&str]) -> String {
        let process = self.process(&self.plan_in("cluster.toml"), node, more);
        let output = process.wait_with_output().expect("it ends");
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{printed}");
        assert_eq!(printed.lines().count(), 1, "{printed}");
        println!("{printed}");
        printed
    }

    pub fn start_by(&self, file: &str, node: u8, more: &[&str]) -> Server {
        self.start_with(&self.plan_in(file), node, more)
    }

    /// Starts a node that is told where the plan is by these words.
    pub fn start_with(&self, plan: &[String], node: u8, more: &[&str]) -> Server {
        served(self.process(plan, node, more), node)
    }
}

fn spawned(serve: &mut Command) -> Child {
    serve.stdout(Stdio::piped()).stderr(Stdio::piped());
    serve.spawn().expect("it starts")
}

/// A node that begins to serve.
fn served(mut process: Child, node: u8) -> Server {
    let said = Arc::new(Mutex::new(Vec::new()));
    let errors = BufReader::new(process.stderr.take().expect("piped"));
    let lines = Arc::clone(&said);
    std::thread::spawn(move || {
        for line in errors.lines().map_while(Result::ok) {
            println!("node {node}: {line}");
            lines.lock().expect("no test fails with it").push(line);
        }
    });
    let (mut admin, mut address) = (None, None);
    let mut banner = BufReader::new(process.stdout.take().expect("piped")).lines();
    for line in banner.by_ref().map_while(Result::ok) {
        let word = line.split_whitespace().nth(1).unwrap_or_default();
        if line.starts_with("admin") {
            admin = word.strip_prefix("http://").map(|it| it.parse());
        }
        if line.starts_with("listening") {
            address = Some(word.parse());
        }
        if line == "ready" {
            break;
        }
    }
    std::thread::spawn(move || banner.for_each(drop));
    Server {
        process,
        address: address.expect("it listens").expect("an address"),
        admin: admin.expect("it tells").expect("an address"),
        said,
    }
}

pub fn wait_for_primary(server: &Server) {
    server.until_role("primary");
}

pub fn wait_for_follower(primary: &Server, follower: &Server) {
    until("the other node has all", || {
        let (role, applied) = follower.stand();
        role.as_deref() == Some("following") && applied == primary.stand().1
    });
}
