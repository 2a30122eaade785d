//! Three nodes under load, with faults of nodes and of the network between them.
//!
//! A round is a cluster of its own with one to three blows; then writers end, the nodes come to
//! rest, and what they show is held against what was acknowledged.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::Duration;

use penstock_client::tls::ClientTls;
use penstock_client::{Client, ClientError, Verbs};
use penstock_net::level::AckLevel;
use penstock_net::request::Version;
use serde_json::Value;

use crate::ledger::{self, Lost, Shown, check_keys};
use crate::network::{self, NODES, Network};
use crate::options::Setting;
use crate::random::Random;
use crate::sales::{Account, STOCK_INITIAL, Sale, options, stock};
use crate::server::Server;
use crate::{Done, Kind, Turn, process};

/// Of each level half as many.
pub const WRITERS: usize = 6;
/// How long nodes may take to come to rest.
const REST_MAX: Duration = Duration::from_secs(60);
/// How long one question to a node may take.
const ASK_MAX: Duration = Duration::from_secs(5);
const LEVELS: [AckLevel; 2] = [AckLevel::Disk, AckLevel::Replica];

pub struct Cluster {
    folder: PathBuf,
    settings: Vec<Setting>,
    /// All ports speak TLS.
    has_tls: bool,
    /// Whether nodes have namespaces; not known before the first round.
    has_namespaces: Option<bool>,
    lost: u64,
    promoted: u64,
    switched: u64,
}

/// What is done to a cluster.
#[derive(Clone, Copy, Debug)]
enum Blow {
    /// Two nodes do not reach each other.
    Cut,
    /// One node hears another one and is not heard.
    OneWay,
    /// What two nodes say to each other takes its time.
    Slow,
    /// A member is killed and starts again.
    KillMember,
    /// A member is stopped and goes on.
    StopMember,
    /// The primary is killed and starts again.
    KillPrimary,
    /// Another node is to write, with nothing lost.
    Switch,
    /// The primary is killed, another node promoted, and the old one comes back.
    KillAndPromote,
    /// The same while the primary is only stopped.
    StopAndPromote,
    /// The primary is cut off from the others and goes on acknowledging while another node is
    /// promoted.
    CutOffAndPromote,
}

const BLOWS: [Blow; 10] = [
    Blow::Cut,
    Blow::OneWay,
    Blow::Slow,
    Blow::KillMember,
    Blow::StopMember,
    Blow::KillPrimary,
    Blow::Switch,
    Blow::KillAndPromote,
    Blow::StopAndPromote,
    Blow::CutOffAndPromote,
];

impl Cluster {
    pub fn new(
        folder: PathBuf,
        (is_loopback, has_tls): (bool, bool),
        settings: &[Setting],
    ) -> Cluster {
        Cluster {
            folder,
            settings: settings.to_vec(),
            has_tls,
            has_namespaces: is_loopback.then_some(false),
            lost: 0,
            promoted: 0,
            switched: 0,
        }
    }
}

impl Kind for Cluster {
    fn round(&mut self, turn: Turn<'_>) -> Result<Done, String> {
        let Turn {
            round,
            which,
            random,
            binary,
        } = turn;
        let has_namespaces = match self.has_namespaces {
            Some(has) => has,
            // Behind the build of the server, which may want the machine's network.
            None => match network::make_namespaces() {
                Ok(()) => {
                    println!("network: a namespace for each node, cuts by nft");
                    true
                }
                Err(reason) => {
                    println!("skipped: cluster: network namespaces: {reason}");
                    println!("network: loopback, cuts by the forwarders");
                    false
                }
            },
        };
        self.has_namespaces = Some(has_namespaces);
        let folder = self.folder.join(format!("cluster-{round}"));
        let network = Network::new(has_namespaces)?;
        let setting = (self.settings[which], self.has_tls);
        let mut nodes = Nodes::new(binary, folder.clone(), network, setting)?;
        nodes.fill()?;
        let mut blows = Vec::new();
        let sale = Sale::new(nodes.tls.clone());
        let account = std::thread::scope(|scope| {
            let addresses: Vec<_> = (0..NODES).map(|node| nodes.network.clients(node)).collect();
            let mut writers = Vec::new();
            for writer in 0..WRITERS {
                let level = LEVELS[writer % LEVELS.len()];
                let mut random = random.fork();
                let (sale, addresses) = (&sale, addresses.clone());
                let work = move || (level, sale.write(&addresses, level, writer, &mut random));
                writers.push(scope.spawn(work));
            }
            let mut done = Ok(());
            for _ in 0..1 + random.below(3) {
                let blow = BLOWS[usize::try_from(random.below(BLOWS.len() as u64)).expect("few")];
                blows.push(format!("{blow:?}"));
                done = nodes.suffer(blow, &sale, random);
                if let Err(text) = &mut done {
                    text.insert_str(0, &format!("{}: ", blows.join(", ")));
                    break;
                }
            }
            sale.end();
            let mut account: BTreeMap<AckLevel, Account> = BTreeMap::new();
            let mut wrong = Ok(());
            for writer in writers {
                let (level, wrote) = writer.join().expect("a writer does not panic");
                match wrote {
                    Ok(wrote) => account.entry(level).or_default().add(wrote),
                    Err(text) => wrong = Err(format!("a writer at level {}: {text}", level.name())),
                }
            }
            wrong.and(done).map(|()| account)
        })?;
        let lost = nodes
            .check(&account, random)
            .map_err(|text| format!("{}: {text}", blows.join(", ")))?;
        self.lost += lost;
        self.promoted += nodes.promoted;
        self.switched += nodes.switched;
        let kills = nodes.kills;
        drop(nodes);
        fs::remove_dir_all(&folder).map_err(|error| error.to_string())?;
        Ok(Done {
            text: format!("{}, {lost} in lostfound", blows.join(", ")),
            kills,
            acked: account.values().map(Account::acked).sum(),
            unknown: account
                .values()
                .map(|it| it.unknown.len() as u64 + it.sold_unknown)
                .sum(),
        })
    }

    fn totals(&self) -> String {
        format!(
            "{} switches, {} promotions, {} acknowledged at level disk and kept in lostfound",
            self.switched, self.promoted, self.lost
        )
    }
}

/// The nodes of one cluster, with a file for each.
struct Nodes<'a> {
    binary: &'a Path,
    folder: PathBuf,
    network: Network,
    settings: [Setting; NODES],
    /// Whom clients trust, where all ports speak TLS.
    tls: Option<ClientTls>,
    /// Those that run.
    servers: [Option<Server>; NODES],
    /// Who writes, by the file.
    primary: usize,
    /// Whether level replica does not wait for the node that wrote before.
    is_learner: bool,
    kills: u64,
    promoted: u64,
    switched: u64,
}

impl<'a> Nodes<'a> {
    fn new(
        binary: &'a Path,
        folder: PathBuf,
        network: Network,
        (setting, has_tls): (Setting, bool),
    ) -> Result<Nodes<'a>, String> {
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
            servers: [None, None, None],
            primary: 0,
            is_learner: false,
            kills: 0,
            promoted: 0,
            switched: 0,
        };
        fs::create_dir_all(&nodes.folder).map_err(|error| error.to_string())?;
        nodes.write("secret", &"torture ".repeat(5))?;
        let secret = nodes.folder.join("secret");
        fs::set_permissions(secret, fs::Permissions::from_mode(0o600))
            .map_err(|error| error.to_string())?;
        let mut file = "version = 1
cluster_id = \"c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1\"
secret_file = \"secret\"
replica_timeout_ms = 400
"
        .to_string();
        for node in 0..NODES {
            file.push_str(&format!(
                "\n[[node]]\nnumber = {}\nlinks = \"{}\"\nclients = \"{}\"\n",
                node + 1,
                nodes.network.links(node),
                nodes.network.clients(node)
            ));
        }
        file.push_str(
            "\n[[placement]]\npartitions = [0, 255]\ngeneration = 1\nprimary = 1\nsync = [2, 3]\n",
        );
        nodes.write("cluster.toml", &file)?;
        if has_tls {
            nodes.edit(&["certs"])?;
            let ca = fs::read(nodes.certificate("ca.pem")).map_err(|error| error.to_string())?;
            let tls = ClientTls::trusting(&ca).map_err(|error| error.to_string())?;
            nodes.tls = Some(tls);
        }
        nodes.carry(0..NODES)?;
        nodes.start(0, true)?;
        nodes.start(1, false)?;
        nodes.start(2, false)?;
        nodes.rest()?;
        Ok(nodes)
    }

    fn write(&self, name: &str, text: &str) -> Result<(), String> {
        let path = self.folder.join(name);
        let temporary = self.folder.join(format!("{name}.new"));
        fs::write(&temporary, text)
            .and_then(|()| fs::rename(&temporary, &path))
            .map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Gives nodes the file as it is now: each reaches the others by forwarders of its own.
    fn carry(&self, nodes: impl IntoIterator<Item = usize>) -> Result<(), String> {
        let whole = fs::read_to_string(self.folder.join("cluster.toml"))
            .map_err(|error| error.to_string())?;
        for node in nodes {
            let mut text = whole.clone();
            for other in (0..NODES).filter(|&other| other != node) {
                let real = format!("links = \"{}\"", self.network.links(other));
                let seen = format!("links = \"{}\"", self.network.seen(node, other));
                if !text.contains(&real) {
                    return Err(format!("the file does not name {real}:\n{text}"));
                }
                text = text.replace(&real, &seen);
            }
            self.write(&format!("node-{}.toml", node + 1), &text)?;
        }
        Ok(())
    }

    fn certificate(&self, name: &str) -> PathBuf {
        self.folder.join("certs").join(name)
    }

    fn data(&self, node: usize) -> PathBuf {
        self.folder.join(format!("node-{}", node + 1))
    }

    fn start(&mut self, node: usize, is_new: bool) -> Result<(), String> {
        let Setting { shards, io } = self.settings[node];
        let mut command = self.network.command(node, self.binary);
        command.arg("serve").arg("--data").arg(self.data(node));
        command.args(["--listen", &self.network.clients(node).to_string()]);
        command.args(["--shard-ports", "0", "--admin-listen", "off", "--io", io]);
        command.args(["--shards", &shards.to_string()]);
        command.arg("--insecure");
        command.args(["--segment-bytes", "4MiB", "--value-bytes-max", "64KiB"]);
        command.args(["--cache-bytes", "1MiB"]);
        command.args(["--cluster-node", &(node + 1).to_string(), "--cluster"]);
        command.arg(self.folder.join(format!("node-{}.toml", node + 1)));
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
        self.servers[node] = Some(Server::start_by(command)?);
        Ok(())
    }

    fn server(&mut self, node: usize) -> &mut Server {
        self.servers[node].as_mut().expect("it runs")
    }

    fn kill(&mut self, node: usize) -> Result<(), String> {
        self.kills += 1;
        self.server(node).kill()?;
        self.servers[node] = None;
        Ok(())
    }

    /// One node alone, which speaks for itself.
    fn client(&self, node: usize) -> Result<Client, ClientError> {
        let options = penstock_client::ClientOptions {
            follows: false,
            ..options(AckLevel::Disk, ASK_MAX, self.tls.as_ref())
        };
        Client::connect(self.network.clients(node), options)
    }

    /// What a node says of its partitions, for people.
    fn partitions(&self, node: usize) -> String {
        let info = self.client(node).and_then(|client| client.info().wait());
        let read = info.map(|info| serde_json::from_str::<Value>(&info));
        match read {
            Ok(Ok(info)) => info["partitions"].to_string(),
            other => format!("{other:?}"),
        }
    }

    /// The role of a node in all partitions, if it is one, and the sum of what it has applied.
    fn stand(&self, node: usize) -> Option<(String, u64)> {
        let info = self.client(node).ok()?.info().wait().ok()?;
        let info: Value = serde_json::from_str(&info).ok()?;
        let partitions = info["partitions"].as_array()?;
        let role = partitions.first()?["role"].as_str()?;
        let is_one = partitions.iter().all(|it| it["role"] == role);
        let applied = partitions.iter().filter_map(|it| it["applied"].as_u64());
        is_one.then(|| (role.to_string(), applied.sum()))
    }

    /// Waits until the primary serves, and the others follow.
    fn rest(&mut self) -> Result<(), String> {
        let mut stands = Vec::new();
        let is_at_rest = process::wait(REST_MAX, || {
            stands = (0..NODES).map(|node| self.stand(node)).collect();
            let is_right = |(node, stand): (usize, &Option<(String, u64)>)| {
                let role = match node == self.primary {
                    true => "primary",
                    false => "following",
                };
                stand.as_ref().is_some_and(|(is, _)| is == role)
            };
            stands.iter().enumerate().all(is_right)
        })?;
        match is_at_rest {
            true => Ok(()),
            false => Err(format!(
                "the nodes did not come to rest in {REST_MAX:?}: node {} is to write, they are \
                 {stands:?}\n{}",
                self.primary + 1,
                self.said()
            )),
        }
    }

    /// The same, and nothing is on its way any more.
    fn quiet(&mut self) -> Result<(), String> {
        self.rest()?;
        let mut applied = Vec::new();
        let is_quiet = process::wait(REST_MAX, || {
            let all = (0..NODES).map(|node| self.stand(node).map(|(_, applied)| applied));
            applied = all.collect();
            applied.iter().all(|it| it.is_some() && *it == applied[0])
        })?;
        match is_quiet {
            true => Ok(()),
            false => Err(format!(
                "the members did not get all in {REST_MAX:?}: applied {applied:?}\n{}",
                self.said()
            )),
        }
    }

    /// The last lines of each node.
    fn said(&mut self) -> String {
        let mut text = String::new();
        for node in 0..NODES {
            if let Some(server) = &mut self.servers[node] {
                let said = server.said();
                let last = &said[said.len().saturating_sub(12)..];
                text.push_str(&format!("node {}:\n  {}\n", node + 1, last.join("\n  ")));
            }
        }
        text
    }

    /// Lets another node write, by the cluster's file, which the nodes do not have.
    fn place(&self, words: &[&str], to: usize) -> Result<(), String> {
        let to = (to + 1).to_string();
        self.edit(&[words, &["--to", &to, "--no-wait"]].concat())
    }

    /// Runs a command on the cluster's file.
    fn edit(&self, words: &[&str]) -> Result<(), String> {
        let mut command = Command::new(self.binary);
        if self.tls.is_some() {
            command.env("PENSTOCK_TLS_CA", self.certificate("ca.pem"));
        }
        let output = command
            .arg("cluster")
            .args(words)
            .arg("--file")
            .arg(self.folder.join("cluster.toml"))
            .output()
            .map_err(|error| error.to_string())?;
        match output.status.success() {
            true => Ok(()),
            false => Err(format!(
                "{words:?}: {}",
                String::from_utf8_lossy(&output.stderr).trim()
            )),
        }
    }

    /// Makes the counters.
    fn fill(&mut self) -> Result<(), String> {
        for level in LEVELS {
            let client = Client::connect(
                self.network.clients(self.primary),
                options(AckLevel::Replica, ASK_MAX, self.tls.as_ref()),
            );
            let initial = STOCK_INITIAL.to_le_bytes();
            client
                .and_then(|client| client.set(&stock(level), &initial).wait())
                .map_err(|error| format!("the stock: {error}"))?;
        }
        Ok(())
    }

    fn member(&self, random: &mut Random) -> usize {
        let more = usize::try_from(1 + random.below(NODES as u64 - 1)).expect("few");
        (self.primary + more) % NODES
    }

    /// Has something happen, and waits until all is well again.
    fn suffer(&mut self, blow: Blow, sale: &Sale, random: &mut Random) -> Result<(), String> {
        let before = sale.acked.load(Ordering::Relaxed);
        let is_sold = process::wait(REST_MAX, || {
            sale.acked.load(Ordering::Relaxed) >= before + 200
        })?;
        if !is_sold {
            return Err(format!(
                "200 operations took more than {REST_MAX:?}\n{}",
                self.said()
            ));
        }
        let lasts = Duration::from_millis(300 + random.below(900));
        let away = Duration::from_millis(random.below(600));
        let member = self.member(random);
        let old = self.primary;
        match blow {
            Blow::Cut => {
                self.network.cut(old, member)?;
                self.network.cut(member, old)?;
                process::pass(lasts)?;
            }
            Blow::OneWay => {
                let (from, to) = match random.once_in(2) {
                    true => (old, member),
                    false => (member, old),
                };
                self.network.cut(from, to)?;
                process::pass(lasts)?;
            }
            Blow::Slow => {
                let pause = Duration::from_millis(1 + random.below(40));
                self.network.slow(old, member, pause);
                self.network.slow(member, old, pause);
                process::pass(lasts)?;
            }
            Blow::KillMember => {
                self.kill(member)?;
                process::pass(away)?;
                self.start(member, false)?;
            }
            Blow::StopMember => {
                self.server(member).signal("-STOP")?;
                process::pass(lasts)?;
                self.server(member).signal("-CONT")?;
            }
            Blow::KillPrimary => {
                self.kill(old)?;
                process::pass(away)?;
                self.start(old, false)?;
            }
            Blow::Switch => {
                self.place(&["switch"], member)?;
                self.primary = member;
                self.switched += 1;
                self.carry(0..NODES)?;
            }
            Blow::KillAndPromote => {
                self.kill(old)?;
                self.promote(member, random)?;
                self.carry(0..NODES)?;
                self.until_begun()?;
                process::pass(away)?;
                self.start(old, false)?;
            }
            Blow::StopAndPromote => {
                self.server(old).signal("-STOP")?;
                self.promote(member, random)?;
                self.carry(0..NODES)?;
                self.until_begun()?;
                process::pass(away)?;
                self.server(old).signal("-CONT")?;
            }
            Blow::CutOffAndPromote => {
                for other in (0..NODES).filter(|&other| other != old) {
                    self.network.cut(old, other)?;
                    self.network.cut(other, old)?;
                }
                process::pass(Duration::from_millis(random.below(300)))?;
                self.promote(member, random)?;
                self.carry((0..NODES).filter(|&node| node != old))?;
                self.until_begun()?;
                process::pass(Duration::from_millis(200 + random.below(600)))?;
                // It may be told by the file or by the first link that reaches it.
                if random.once_in(2) {
                    self.network.heal()?;
                    process::pass(Duration::from_millis(random.below(1500)))?;
                }
                self.carry([old])?;
            }
        }
        self.network.heal()?;
        self.rest()?;
        self.wait_for(old)
    }

    /// Has level replica wait again for a node in whose place another one was promoted.
    fn wait_for(&mut self, old: usize) -> Result<(), String> {
        if !std::mem::take(&mut self.is_learner) {
            return Ok(());
        }
        let node = (old + 1).to_string();
        self.edit(&["sync", "--node", &node, "--no-wait"])?;
        self.carry(0..NODES)?;
        self.edit(&["sync", "--node", &node])?;
        self.carry(0..NODES)
    }

    fn promote(&mut self, to: usize, random: &mut Random) -> Result<(), String> {
        self.is_learner = random.once_in(2);
        match self.is_learner {
            true => self.place(&["promote", "--force"], to)?,
            false => self.place(&["promote", "--force", "--keep-sync"], to)?,
        }
        self.primary = to;
        self.promoted += 1;
        Ok(())
    }

    fn until_begun(&mut self) -> Result<(), String> {
        let primary = self.primary;
        let has_begun = process::wait(REST_MAX, || {
            self.stand(primary)
                .is_some_and(|(role, _)| role == "primary")
        })?;
        match has_begun {
            true => Ok(()),
            false => Err(format!(
                "node {} has not begun in {REST_MAX:?}: {}\n{}",
                primary + 1,
                self.partitions(primary),
                self.said()
            )),
        }
    }

    /// All keys, as a node shows them that writes them.
    fn shown(&self, node: usize) -> Result<Shown, String> {
        let client = self.client(node).map_err(|error| error.to_string())?;
        ledger::shown(&client).map_err(|text| format!("node {}: {text}", node + 1))
    }

    /// What the nodes could not keep.
    fn lostfound(&self) -> Result<Lost, String> {
        let folders: Vec<PathBuf> = (0..NODES).map(|node| self.data(node)).collect();
        ledger::lostfound(self.binary, &folders)
    }

    /// Lets the nodes come to rest and holds what they show against the accounts. Tells how much of
    /// what was acknowledged is in lostfound.
    fn check(
        &mut self,
        accounts: &BTreeMap<AckLevel, Account>,
        random: &mut Random,
    ) -> Result<u64, String> {
        self.quiet()?;
        let shown = self.shown(self.primary)?;
        let lost = self.lostfound()?;
        let mut acked_and_lost = 0;
        for (&level, account) in accounts {
            let of_level = format!("at level {}", level.name());
            acked_and_lost += check_keys(level, account, &shown, &lost)
                .and_then(|keys| Ok(keys + check_stock(level, account, &shown, &lost)?))
                .map_err(|text| format!("{of_level}: {text}"))?;
        }
        // The members are made to show what they hold, one after the other.
        let first = self.member(random);
        let others: Vec<usize> = (0..NODES).filter(|&node| node != self.primary).collect();
        let order = [first, others[0], others[1]];
        for node in order {
            self.place(&["switch"], node)?;
            self.primary = node;
            self.carry(0..NODES)?;
            self.quiet()?;
            let here = self.shown(node)?;
            if here != shown {
                let differs = shown
                    .iter()
                    .find(|(key, value)| here.get(*key) != Some(value));
                let more = here.keys().find(|key| !shown.contains_key(*key));
                return Err(format!(
                    "node {} shows something else: {differs:?}, or more: {more:?}",
                    node + 1
                ));
            }
        }
        Ok(acked_and_lost)
    }
}

/// The counter of one level: what it has lost was sold, and what was sold and is not there is in
/// lostfound.
fn check_stock(
    level: AckLevel,
    account: &Account,
    shown: &Shown,
    lost: &Lost,
) -> Result<u64, String> {
    let key = stock(level);
    let left = shown
        .get(&key)
        .and_then(|(_, value)| value[..].try_into().ok());
    let left = left.map(u64::from_le_bytes).ok_or("the stock is gone")?;
    let sold = STOCK_INITIAL - left;
    let versions = lost.keys().filter(|(of, _)| *of == key);
    let versions: BTreeSet<Version> = versions.map(|(_, version)| *version).collect();
    let acked_and_lost = account.sold.intersection(&versions).count() as u64;
    let acked = account.sold.len() as u64;
    if level >= AckLevel::Replica && acked_and_lost > 0 {
        return Err(format!("{acked_and_lost} sales are in lostfound"));
    }
    let least = acked - acked_and_lost;
    if (least..=least + account.sold_unknown).contains(&sold) {
        return Ok(acked_and_lost);
    }
    Err(format!(
        "{sold} sold, {acked} acknowledged, {} unknown, {acked_and_lost} of the acknowledged in \
         lostfound",
        account.sold_unknown
    ))
}
