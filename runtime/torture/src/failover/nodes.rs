//! Three nodes whose plan is in etcd and which replace each other by themselves.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use penstock_client::tls::ClientTls;
use penstock_client::{Client, ClientError};
use penstock_net::level::AckLevel;
use serde_json::Value;

use super::etcd::{self, Etcd};
use super::plan::Plan;
use crate::ledger::{self, Lost, Shown};
use crate::network::{NODES, Network};
use crate::options::{Rules, Setting};
use crate::process;
use crate::server::{Refusal, Server};

/// How long nodes may take until each partition has a writer and two members again: entries wait
/// for a hold-down, which doubles.
const WHOLE_MAX: Duration = Duration::from_secs(400);
/// How long one question to a node may take.
const ASK_MAX: Duration = Duration::from_millis(1500);
/// How long the plan is asked for while etcd does not answer: this machine may be starved.
const HOME_MAX: Duration = Duration::from_secs(30);
/// How long a node is asked for its keys while its lease has lapsed: as above.
const SHOW_MAX: Duration = Duration::from_secs(10);
/// How often a start is tried that finds etcd silent.
const STARTS_MAX: u32 = 5;
/// Between two looks at plan and nodes.
const POLL_EVERY: Duration = Duration::from_millis(100);

pub struct Nodes<'a> {
    binary: &'a Path,
    folder: PathBuf,
    pub network: Network,
    settings: [Setting; NODES],
    /// Whom clients trust, where all ports speak TLS.
    pub tls: Option<ClientTls>,
    pub etcd: Etcd,
    servers: [Option<Server>; NODES],
}

/// What one look at a node has told.
struct NodeState {
    /// First and last partition, and the role.
    roles: Vec<(u64, u64, String)>,
    tails_incomplete: u64,
    rewritten: u64,
}

/// What it took until the cluster was whole.
#[derive(Clone, Copy, Default)]
pub struct Whole {
    /// Looks at which a partition was copied whole.
    pub scans: u64,
    /// Partitions of which cleaning had released records that were to be given up.
    pub tails_incomplete: u64,
    /// Keys that were written anew for a node that had diverged.
    pub rewritten: u64,
}

impl<'a> Nodes<'a> {
    /// Starts etcd and the nodes, and waits until all of them follow.
    ///
    /// # Errors
    /// Something does not come up.
    pub fn new(
        binary: &'a Path,
        folder: PathBuf,
        (setting, rules, has_tls): (Setting, Rules, bool),
        is_split: bool,
    ) -> Result<Nodes<'a>, String> {
        fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
        let network = Network::direct();
        let etcd = Etcd::start(&folder, &network)?;
        // Different numbers of shards, where there is more than one.
        let one = Setting {
            shards: 1,
            ..setting
        };
        let mut nodes = Nodes {
            binary,
            folder,
            network,
            settings: [setting, one, setting],
            tls: None,
            etcd,
            servers: [None, None, None],
        };
        nodes.import(rules, is_split, has_tls)?;
        // Each first writer begins its partitions.
        nodes.start(0, true)?;
        nodes.start(1, is_split)?;
        nodes.start(2, false)?;
        nodes.whole()?;
        Ok(nodes)
    }

    /// Writes the plan and the secret, makes certificates, and gives the plan to etcd.
    fn import(&mut self, rules: Rules, is_split: bool, has_tls: bool) -> Result<(), String> {
        let secret = self.folder.join("secret");
        fs::write(&secret, "torture ".repeat(5)).map_err(|error| error.to_string())?;
        fs::set_permissions(&secret, fs::Permissions::from_mode(0o600))
            .map_err(|error| error.to_string())?;
        let mut plan = format!(
            "version = 1\ncluster_id = \"c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2\"\n\
             secret_file = \"secret\"\n{}",
            rules.plan()
        );
        for node in 0..NODES {
            plan.push_str(&format!(
                "\n[[node]]\nnumber = {}\nlinks = \"{}\"\nclients = \"{}\"\n",
                node + 1,
                self.network.links(node),
                self.network.clients(node)
            ));
        }
        let placements = match is_split {
            true => vec![(0, 127, 1, "2, 3"), (128, 255, 2, "1, 3")],
            false => vec![(0, 255, 1, "2, 3")],
        };
        for (first, last, primary, sync) in placements {
            plan.push_str(&format!(
                "\n[[placement]]\npartitions = [{first}, {last}]\ngeneration = 1\n\
                 primary = {primary}\nsync = [{sync}]\n"
            ));
        }
        let file = self.folder.join("cluster.toml");
        fs::write(&file, plan).map_err(|error| error.to_string())?;
        let endpoints = etcd::endpoints();
        let words = [
            "import",
            process::text(&file),
            "--etcd-endpoints",
            &endpoints,
        ];
        self.cluster(&words)?;
        if has_tls {
            let out = self.folder.join("certs");
            let out = process::text(&out);
            self.cluster(&["certs", "--out", out, "--etcd-endpoints", &endpoints])?;
            let ca = fs::read(self.certificate("ca.pem")).map_err(|error| error.to_string())?;
            let tls = ClientTls::trusting(&ca).map_err(|error| error.to_string())?;
            self.tls = Some(tls);
        }
        Ok(())
    }

    /// A `penstock cluster` command: what it says.
    fn cluster(&self, words: &[&str]) -> Result<String, String> {
        let mut command = Command::new(self.binary);
        if self.tls.is_some() {
            command.env("PENSTOCK_TLS_CA", self.certificate("ca.pem"));
        }
        let output = command
            .arg("cluster")
            .args(words)
            .output()
            .map_err(|error| error.to_string())?;
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            false => Err(format!(
                "{words:?}: {}",
                String::from_utf8_lossy(&output.stderr).trim()
            )),
        }
    }

    fn certificate(&self, name: &str) -> PathBuf {
        self.folder.join("certs").join(name)
    }

    fn data(&self, node: usize) -> PathBuf {
        self.folder.join(format!("node-{}", node + 1))
    }

    fn command(&self, node: usize, is_new: bool) -> Command {
        let Setting { shards, io } = self.settings[node];
        let mut command = self.network.command(node, self.binary);
        command.arg("serve").arg("--data").arg(self.data(node));
        command.args(["--listen", &self.network.clients(node).to_string()]);
        command.args(["--shard-ports", "0", "--admin-listen", "off", "--io", io]);
        command.args(["--shards", &shards.to_string()]);
        command.arg("--insecure");
        command.args(["--segment-bytes", "4MiB", "--value-bytes-max", "64KiB"]);
        command.args(["--cache-bytes", "1MiB"]);
        command.args(["--cluster-node", &(node + 1).to_string()]);
        command.args(["--etcd-endpoints", &etcd::endpoints_of(node)]);
        command
            .arg("--cluster-secret-file")
            .arg(self.folder.join("secret"));
        if self.tls.is_some() {
            let [certificate, key] =
                ["pem", "key"].map(|end| self.certificate(&format!("node-{}.{end}", node + 1)));
            for (option, file) in [
                ("--tls-cert", &certificate),
                ("--tls-key", &key),
                ("--cluster-tls-cert", &certificate),
                ("--cluster-tls-key", &key),
                ("--cluster-tls-ca", &self.certificate("ca.pem")),
            ] {
                command.arg(option).arg(file);
            }
        }
        if is_new {
            command.arg("--cluster-new");
        }
        command
    }

    /// Starts a node, again if it ended because etcd was silent, as a supervisor does.
    ///
    /// # Errors
    /// It ends for another reason.
    pub fn start(&mut self, node: usize, is_new: bool) -> Result<(), String> {
        let mut tries = 0;
        loop {
            tries += 1;
            match Server::start_by(self.command(node, is_new)) {
                Ok(server) => {
                    self.servers[node] = Some(server);
                    return Ok(());
                }
                Err(Refusal { text, .. })
                    if text.contains("needs the plan of now") && tries < STARTS_MAX => {}
                Err(refusal) => {
                    return Err(format!("node {}: {}", node + 1, String::from(refusal)));
                }
            }
        }
    }

    pub fn server(&mut self, node: usize) -> &mut Server {
        self.servers[node].as_mut().expect("it runs")
    }

    /// `kill -9`.
    ///
    /// # Errors
    /// The system refuses.
    pub fn kill(&mut self, node: usize) -> Result<(), String> {
        self.server(node).kill()?;
        self.servers[node] = None;
        Ok(())
    }

    pub fn addresses(&self) -> Vec<SocketAddr> {
        (0..NODES).map(|node| self.network.clients(node)).collect()
    }

    /// The shards of a node.
    pub fn shards(&self, node: usize) -> u16 {
        self.settings[node].shards
    }

    /// The plan as etcd has it.
    ///
    /// # Errors
    /// etcd does not answer.
    pub fn plan(&self) -> Result<Plan, String> {
        let mut read = self.plan_now();
        process::wait(HOME_MAX, || {
            if read.is_err() {
                read = self.plan_now();
            }
            read.is_ok()
        })?;
        read
    }

    fn plan_now(&self) -> Result<Plan, String> {
        let text = self.cluster(&["show", "--etcd-endpoints", &etcd::endpoints()])?;
        Plan::read(&text)
    }

    /// One node alone, which speaks for itself.
    fn client(&self, node: usize) -> Result<Client, ClientError> {
        let options = penstock_client::ClientOptions {
            follows: false,
            ..crate::sales::options(AckLevel::Disk, ASK_MAX, self.tls.as_ref())
        };
        Client::connect(self.network.clients(node), options)
    }

    fn state_of(&self, node: usize) -> Option<NodeState> {
        let info = self.client(node).ok()?.info().wait().ok()?;
        let info: Value = serde_json::from_str(&info).ok()?;
        let role = |it: &Value| {
            let (first, last) = (it["first"].as_u64()?, it["last"].as_u64()?);
            Some((first, last, it["role"].as_str()?.to_string()))
        };
        let counter = |name| info["counters"][name].as_u64().unwrap_or(0);
        Some(NodeState {
            roles: info["partitions"]
                .as_array()?
                .iter()
                .map(role)
                .collect::<Option<_>>()?,
            tails_incomplete: counter("tails_lost"),
            rewritten: counter("rewritten"),
        })
    }

    /// Waits until each partition has a writer and two members that may be promoted, by the plan
    /// and by what the nodes say. Nobody helps them.
    ///
    /// # Errors
    /// It takes too long.
    pub fn whole(&mut self) -> Result<Whole, String> {
        let before: Vec<Option<NodeState>> = (0..NODES).map(|node| self.state_of(node)).collect();
        let since = |now: u64, before: Option<u64>| now.saturating_sub(before.unwrap_or(0));
        let mut done = Whole::default();
        let mut last = String::new();
        let until = Instant::now() + WHOLE_MAX;
        while Instant::now() < until {
            process::pass(POLL_EVERY)?;
            let states: Vec<Option<NodeState>> =
                (0..NODES).map(|node| self.state_of(node)).collect();
            let roles = states.iter().flatten().flat_map(|it| &it.roles);
            done.scans += u64::from(roles.clone().any(|(_, _, role)| role == "scanning"));
            (done.tails_incomplete, done.rewritten) = (0, 0);
            for (now, before) in states.iter().zip(&before) {
                let Some(now) = now else { continue };
                let before = before.as_ref();
                done.tails_incomplete +=
                    since(now.tails_incomplete, before.map(|it| it.tails_incomplete));
                done.rewritten += since(now.rewritten, before.map(|it| it.rewritten));
            }
            let plan = self.plan_now();
            last = format!(
                "{plan:?}; {:?}",
                states
                    .iter()
                    .map(|it| it.as_ref().map(|it| &it.roles))
                    .collect::<Vec<_>>()
            );
            let Ok(plan) = plan else { continue };
            let is_right = |(node, state): (usize, &Option<NodeState>)| {
                state
                    .as_ref()
                    .is_some_and(|state| plan.is_kept_by(node + 1, &state.roles))
            };
            if plan.is_whole() && states.iter().enumerate().all(is_right) {
                return Ok(done);
            }
        }
        Err(format!(
            "no writer with two members for each partition within {WHOLE_MAX:?}: {last}\n{}",
            self.said()
        ))
    }

    /// Lets one node write everything, with nothing lost: what it shows then.
    ///
    /// # Errors
    /// The switch or the reading fails.
    pub fn shown_by(&mut self, node: usize) -> Result<Shown, String> {
        let plan = self.plan()?;
        if !plan.writes_all(node + 1) {
            self.switch(node)?;
        }
        self.whole()?;
        self.shown_at(node)
    }

    /// What a node shows that writes everything now.
    ///
    /// # Errors
    /// The reading fails.
    pub fn shown_at(&self, node: usize) -> Result<Shown, String> {
        let client = self.client(node).map_err(|error| error.to_string())?;
        // On a machine that is taken a lease may lapse for a moment, and a node tells nothing then.
        let mut shown = ledger::shown(&client);
        process::wait(SHOW_MAX, || {
            if shown.is_err() {
                shown = ledger::shown(&client);
            }
            shown.is_ok()
        })?;
        shown.map_err(|text| format!("node {}: {text}", node + 1))
    }

    /// Has one node write everything, and waits until it does.
    ///
    /// # Errors
    /// It does not within a minute.
    pub fn switch(&mut self, node: usize) -> Result<(), String> {
        let to = (node + 1).to_string();
        let endpoints = etcd::endpoints();
        let words = ["switch", "--to", &to, "--wait-ms", "60000"];
        self.cluster(&[&words[..], &["--etcd-endpoints", &endpoints]].concat())
            .map(drop)
    }

    /// What the nodes could not keep.
    ///
    /// # Errors
    /// The command fails.
    pub fn lostfound(&self) -> Result<Lost, String> {
        let folders: Vec<PathBuf> = (0..NODES).map(|node| self.data(node)).collect();
        ledger::lostfound(self.binary, &folders)
    }

    /// Leaves all that each node has said in its log beside its data.
    pub fn keep_said(&mut self) {
        for (number, server) in (1..).zip(&mut self.servers) {
            if let Some(server) = server {
                let file = self.folder.join(format!("node-{number}.log"));
                if let Err(error) = fs::write(&file, server.said().join("\n")) {
                    eprintln!("{}: {error}", file.display());
                }
            }
        }
    }

    /// The last lines of each node.
    pub fn said(&mut self) -> String {
        let mut text = String::new();
        for node in 0..NODES {
            if let Some(server) = &mut self.servers[node] {
                let said = server.said();
                let last = &said[said.len().saturating_sub(30)..];
                text.push_str(&format!("node {}:\n  {}\n", node + 1, last.join("\n  ")));
            }
        }
        text
    }
}
