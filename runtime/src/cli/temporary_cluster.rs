//! Three nodes of this same binary and an etcd, for the time of one command: in a directory of
//! their own, at free ports, gone at the end. A command may kill the node that writes, and the
//! others replace it.

use std::fs::{self, File};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use penstock::system::bound_child::bound_to_us;
use penstock_benches::sale::Venue;
use penstock_client::{Client, ClientOptions};
use serde_json::Value;

use super::temporary_server::{
    OPTIONS, TemporaryFolder, kill, own_program, said, serve, until_ready,
};

const NODES: usize = 3;
/// How long etcd may take to answer, and the nodes to follow or to replace one of them.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks at the nodes.
const POLL_EVERY: Duration = Duration::from_millis(10);
/// How long a node may take to say what it is.
const ANSWER: Duration = Duration::from_millis(500);

/// The nodes, the etcd, and their directory.
pub struct TemporaryCluster {
    folder: TemporaryFolder,
    etcd: Option<Child>,
    endpoint: String,
    nodes: [Option<Child>; NODES],
    /// Where nodes take links, and where they take clients.
    links: [SocketAddr; NODES],
    clients: [SocketAddr; NODES],
    /// The node that writes.
    writer: Option<usize>,
}

impl TemporaryCluster {
    /// Makes the directory and starts an etcd.
    pub fn new(command: &str) -> Result<TemporaryCluster, String> {
        // Taken together, so that no two of them are the same.
        let taken: Vec<TcpListener> = (0..2 * NODES + 2)
            .map(|_| TcpListener::bind("127.0.0.1:0"))
            .collect::<Result<_, _>>()
            .map_err(|error| format!("no free port: {error}"))?;
        let ports: Vec<SocketAddr> = taken
            .iter()
            .map(TcpListener::local_addr)
            .collect::<Result<_, _>>()
            .map_err(|error| error.to_string())?;
        drop(taken);
        let mut cluster = TemporaryCluster {
            folder: TemporaryFolder::new(command)?,
            etcd: None,
            endpoint: format!("http://{}", ports[2 * NODES]),
            nodes: [None, None, None],
            links: [ports[0], ports[1], ports[2]],
            clients: [ports[3], ports[4], ports[5]],
            writer: None,
        };
        let peers = format!("http://{}", ports[2 * NODES + 1]);
        cluster.start_etcd(&peers)?;
        Ok(cluster)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.0.join(name)
    }

    fn start_etcd(&mut self, peers: &str) -> Result<(), String> {
        let log = File::create(self.path("etcd.messages")).map_err(|error| error.to_string())?;
        let spawned = bound_to_us("etcd")
            .args(["--name", "one", "--data-dir"])
            .arg(self.path("etcd"))
            .args(["--listen-client-urls", &self.endpoint])
            .args(["--advertise-client-urls", &self.endpoint])
            .args(["--listen-peer-urls", peers])
            .args(["--initial-advertise-peer-urls", peers])
            .args(["--initial-cluster", &format!("one={peers}")])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn();
        match spawned {
            Ok(child) => self.etcd = Some(child),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(
                    "no program etcd is in PATH, and nodes replace each other only where \
                            an etcd has their plan: install etcd 3.4 or later (Debian: apt-get \
                            install etcd-server)"
                        .into(),
                );
            }
            Err(error) => return Err(format!("etcd: {error}")),
        }
        Ok(())
    }

    /// Gives the plan to etcd, as soon as that answers.
    fn import(&self) -> Result<(), String> {
        let failed = |error: std::io::Error| error.to_string();
        let secret = self.path("secret");
        fs::write(&secret, "a cluster of a sale that is gone at its end").map_err(failed)?;
        fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).map_err(failed)?;
        let mut plan = "version = 1\ncluster_id = \"5a1e5a1e5a1e5a1e5a1e5a1e5a1e5a1e\"\n\
                        secret_file = \"secret\"\nfailover = true\n"
            .to_string();
        for node in 0..NODES {
            plan.push_str(&format!(
                "\n[[node]]\nnumber = {}\nlinks = \"{}\"\nclients = \"{}\"\n",
                node + 1,
                self.links[node],
                self.clients[node]
            ));
        }
        plan.push_str(
            "\n[[placement]]\npartitions = [0, 255]\ngeneration = 1\nprimary = 1\nsync = [2, 3]\n",
        );
        let file = self.path("cluster.toml");
        fs::write(&file, plan).map_err(failed)?;
        let until = Instant::now() + PATIENCE;
        loop {
            let output = own_program()
                .map_err(failed)?
                .args(["cluster", "import"])
                .arg(&file)
                .args(["--etcd-endpoints", &self.endpoint])
                .output()
                .map_err(failed)?;
            if output.status.success() {
                return Ok(());
            }
            if Instant::now() > until {
                let message = String::from_utf8_lossy(&output.stderr);
                let etcd = said(&self.path("etcd.messages"));
                return Err(format!("the plan: {}; etcd: {etcd}", message.trim()));
            }
            std::thread::sleep(POLL_EVERY);
        }
    }

    fn messages(&self, node: usize) -> PathBuf {
        self.path(&format!("node-{}.messages", node + 1))
    }

    /// Starts a node, and waits until it serves if that is wanted.
    fn start_node(&mut self, node: usize, is_new: bool, waits: bool) -> Result<(), String> {
        let mut command = own_program().map_err(|error| error.to_string())?;
        let number = (node + 1).to_string();
        command
            .args(OPTIONS)
            .args(["--listen", &self.clients[node].to_string()])
            .arg("--data")
            .arg(self.path(&format!("node-{number}")))
            // They share the cores of one machine.
            .args(["--shards", "1", "--cluster-node", &number])
            .args(["--etcd-endpoints", &self.endpoint])
            .arg("--cluster-secret-file")
            .arg(self.path("secret"));
        if is_new {
            command.arg("--cluster-new");
        }
        let messages = self.messages(node);
        let (child, addresses) = serve(command, &messages)?;
        self.nodes[node] = Some(child);
        match waits {
            true => until_ready(&addresses, &messages).map(drop),
            false => Ok(()),
        }
    }

    /// Whether a node has this role in all partitions, by its own account.
    fn is(&self, node: usize, role: &str) -> bool {
        let options = ClientOptions {
            name: "penstock sale".into(),
            deadline: ANSWER,
            follows: false,
            ..ClientOptions::default()
        };
        let info = Client::connect(self.clients[node], options)
            .and_then(|client| client.info().wait())
            .ok()
            .and_then(|info| serde_json::from_str::<Value>(&info).ok());
        info.as_ref()
            .and_then(|info| info["partitions"].as_array())
            .is_some_and(|all| !all.is_empty() && all.iter().all(|it| it["role"] == role))
    }

    /// Looks until there is an answer.
    fn until<T>(&self, what: &str, find: impl Fn(&Self) -> Option<T>) -> Result<T, String> {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(seen) = find(self) {
                return Ok(seen);
            }
            if Instant::now() > until {
                let mut text = format!("{what} within {PATIENCE:?}");
                for node in 0..NODES {
                    let said = said(&self.messages(node));
                    text.push_str(&format!("\nnode {}: {said}", node + 1));
                }
                return Err(text);
            }
            std::thread::sleep(POLL_EVERY);
        }
    }
}

impl Venue for TemporaryCluster {
    /// Kills the node that writes.
    fn kill(&mut self) -> Result<(), String> {
        let writer = self.writer.ok_or("no node writes")?;
        kill(&mut self.nodes[writer])
    }

    /// Starts the nodes; or waits until another node writes, and then starts the killed one.
    fn start(&mut self) -> Result<SocketAddr, String> {
        let Some(lost) = self.writer else {
            self.import()?;
            for node in 0..NODES {
                self.start_node(node, node == 0, true)?;
            }
            self.until("not all nodes follow", |it| {
                let follow = it.is(1, "following") && it.is(2, "following");
                (it.is(0, "primary") && follow).then_some(())
            })?;
            self.writer = Some(0);
            return Ok(self.clients[0]);
        };
        let writer = self.until("no node took over", |it| {
            (0..NODES).find(|&node| node != lost && it.is(node, "primary"))
        })?;
        self.writer = Some(writer);
        // It is to be a member again, and the sale does not wait for it.
        self.start_node(lost, false, false)?;
        Ok(self.clients[writer])
    }
}

impl Drop for TemporaryCluster {
    fn drop(&mut self) {
        for node in &mut self.nodes {
            let _ = kill(node);
        }
        let _ = kill(&mut self.etcd);
    }
}
