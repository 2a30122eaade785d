//! Three real members of etcd, each where one of the nodes lives.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::network::{NODES, Network};
use crate::process;

/// How long members may take to have a leader.
const START_MAX: Duration = Duration::from_secs(60);
const ASK_MAX: Duration = Duration::from_millis(500);
/// Where commands ask.
const COMMANDS: u16 = 2379;
const PEERS: u16 = 2380;
/// Where the first node asks; the others behind it. A port for each, so that one node alone can be
/// cut off: a member passes what its gateway is asked to itself, through the same port.
const NODES_FROM: u16 = 2371;

pub struct Etcd {
    folder: PathBuf,
    members: [Option<Child>; NODES],
}

/// The port at which a node asks each member.
pub fn port_of(node: usize) -> u16 {
    NODES_FROM + u16::try_from(node).expect("three")
}

fn url(member: usize, port: u16) -> String {
    format!("http://{}:{port}", Network::address(member))
}

/// The endpoints of a node: its own member first.
pub fn endpoints_of(node: usize) -> String {
    let of = |more| url((node + more) % NODES, port_of(node));
    (0..NODES).map(of).collect::<Vec<_>>().join(",")
}

/// The endpoints of commands.
pub fn endpoints() -> String {
    let of = |member| url(member, COMMANDS);
    (0..NODES).map(of).collect::<Vec<_>>().join(",")
}

impl Etcd {
    /// Starts all members and waits until they have a leader.
    ///
    /// # Errors
    /// They have none in time.
    pub fn start(folder: &Path, network: &Network) -> Result<Etcd, String> {
        let mut etcd = Etcd {
            folder: folder.to_path_buf(),
            members: [None, None, None],
        };
        for member in 0..NODES {
            etcd.run(member, network)?;
        }
        etcd.until_led()?;
        Ok(etcd)
    }

    /// Starts a member, with what it had.
    ///
    /// # Errors
    /// The system refuses.
    pub fn run(&mut self, member: usize, network: &Network) -> Result<(), String> {
        if self.members[member].is_some() {
            return Ok(());
        }
        let name = |member: usize| format!("member{}", member + 1);
        let log = self.folder.join(format!("etcd-{}.log", member + 1));
        let log = File::options()
            .create(true)
            .append(true)
            .open(log)
            .map_err(|error| error.to_string())?;
        let ports = [COMMANDS].into_iter().chain((0..NODES).map(port_of));
        let clients: Vec<String> = ports.map(|port| url(member, port)).collect();
        let all: Vec<String> = (0..NODES)
            .map(|other| format!("{}={}", name(other), url(other, PEERS)))
            .collect();
        let mut command = network.command(member, Path::new("etcd"));
        command
            .args(["--name", &name(member), "--logger", "zap", "--data-dir"])
            .arg(self.folder.join(format!("etcd-{}", member + 1)))
            .args(["--listen-client-urls", &clients.join(",")])
            .args(["--advertise-client-urls", &clients[0]])
            .args(["--listen-peer-urls", &url(member, PEERS)])
            .args(["--initial-advertise-peer-urls", &url(member, PEERS)])
            .args(["--initial-cluster", &all.join(",")])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        let child = command.spawn().map_err(|error| format!("etcd: {error}"))?;
        self.members[member] = Some(child);
        Ok(())
    }

    /// `kill -9`.
    pub fn kill(&mut self, member: usize) {
        if let Some(mut child) = self.members[member].take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Starts those that were killed, and waits for a leader.
    ///
    /// # Errors
    /// As for [`Etcd::start`].
    pub fn heal(&mut self, network: &Network) -> Result<(), String> {
        for member in 0..NODES {
            self.run(member, network)?;
        }
        self.until_led()
    }

    fn until_led(&self) -> Result<(), String> {
        let is_led = process::wait(START_MAX, || {
            std::thread::sleep(Duration::from_millis(50));
            self.leader().is_some()
        })?;
        match is_led {
            true => Ok(()),
            false => Err(format!("etcd has no leader within {START_MAX:?}")),
        }
    }

    /// The member that leads, if there is one.
    pub fn leader(&self) -> Option<usize> {
        (0..NODES)
            .filter(|&member| self.members[member].is_some())
            .find(|&member| {
                let state = status(member).unwrap_or_default();
                let leader = state["leader"].as_str();
                leader.is_some_and(|it| it != "0" && state["header"]["member_id"] == it)
            })
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        (0..NODES).for_each(|member| self.kill(member));
    }
}

/// What a member says of itself.
fn status(member: usize) -> Option<Value> {
    let address = SocketAddr::from((Network::address(member), COMMANDS));
    let mut stream = TcpStream::connect_timeout(&address, ASK_MAX).ok()?;
    stream.set_read_timeout(Some(ASK_MAX)).ok()?;
    let request = "POST /v3/maintenance/status HTTP/1.1\r\nHost: etcd\r\nConnection: close\r\n\
                   Content-Length: 2\r\n\r\n{}";
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).ok()?;
    let answer = String::from_utf8_lossy(&answer);
    let body = &answer[answer.find('{')?..=answer.rfind('}')?];
    serde_json::from_str(body).ok()
}
