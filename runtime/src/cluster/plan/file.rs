//! The plan of a cluster: its nodes, its secret, and for each partition the primary and the
//! members.
//!
//! All nodes have the same plan, in a file or in etcd. It is read at the start, and anew when it
//! changes; a plan that says something wrong changes nothing.

use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::Path;

use penstock_net::link::Membership;
use penstock_net::link::message::LINK_PARTITIONS;
use penstock_net::resp::CorePorts;
use penstock_shard::cluster::{Assignment, Plan};
use penstock_shard::lease::{FailoverPlan, Placing};
use penstock_shard::replication::PartitionId;
use toml::de::DeTable;
use zeroize::Zeroizing;

use crate::cluster::plan::failover_keys::FailoverKeys;
use crate::cluster::plan::home::{PLAN_BYTES_MAX, PlanPlace};
use crate::cluster::plan::seen::hex;
use crate::cluster::plan::toml_values::{
    Table, hex16, number, numbers, only, string, switch, tables,
};
use crate::config::toml_line::line_of_error;
use crate::system::private_file::read_private;

/// The secret has at least so many bytes.
const SECRET_BYTES_MIN: usize = 32;
/// Bytes of the file of a secret, at most.
const SECRET_FILE_BYTES_MAX: usize = 4096;
/// Bytes of the address of a node for clients, at most: the reply to HELLO has one byte for it.
const CLIENTS_BYTES_MAX: usize = 255;
/// The highest generation of a partition.
pub(crate) const GENERATION_MAX: u64 = (1 << 14) - 1;
/// The highest number of a plan: what TOML writes in every reader.
const REVISION_MAX: u64 = 1 << 53;
const BACKLOG_BYTES: u64 = 16 << 30;
const CATCH_UP_BYTES_PER_S: u64 = 256 << 20;
const REPLICA_TIMEOUT_MS: u64 = 1000;

/// Why nodes decide nothing by a file.
pub(crate) const UNORDERED: &str = "failover = true: it needs a plan in etcd. A file is copied to \
     each machine, so two nodes could decide by different files at the same time: `penstock \
     cluster import` puts the plan into etcd";

/// One node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClusterNode {
    /// 1 to 255.
    pub(crate) number: u8,
    /// Where it takes links.
    pub(crate) links: SocketAddr,
    /// Where clients find it, for them to be told.
    pub(crate) clients: String,
    /// Where clients of Redis find it, if they are to.
    pub(crate) resp: Option<String>,
    /// The ports of its cores at the host of `resp`, if they have any.
    pub(crate) resp_ports: Option<CorePorts>,
    /// It enters no sync set by itself.
    pub(crate) stays_learner: bool,
}

/// What the file says.
#[derive(Clone, Debug)]
pub(crate) struct ClusterFile {
    /// As it stands there.
    pub(crate) text: String,
    pub(crate) cluster_id: [u8; 16],
    /// `None` for a command on a plan in etcd, which needs none.
    pub(crate) secret: Option<Secret>,
    /// Which change of the plan this is; 0 if nobody counts them.
    pub(crate) revision: u64,
    /// When and by whom the last one was made, as it stands there.
    pub(crate) changed: Changed,
    pub(crate) nodes: Vec<ClusterNode>,
    /// The assignment of each partition.
    pub(crate) assignments: Vec<Assignment>,
    /// For each partition the members that level `replica` waits for and that may not be promoted
    /// yet. A member leaves this list when it has all that was acknowledged before it entered the
    /// sync set.
    pub(crate) joining: Vec<Vec<u8>>,
    pub(crate) replica_timeout_us: u64,
    pub(crate) backlog_bytes_max: u64,
    /// Bound for all shards of a node together. 0: no bound.
    pub(crate) catch_up_bytes_per_s: u64,
    /// Whether and how nodes decide by themselves.
    pub(crate) failover: FailoverKeys,
}

/// The last change of a plan, as it stands there; empty if nothing does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Changed {
    pub(crate) at: String,
    pub(crate) by: String,
}

/// What every node of the cluster knows and nobody else.
#[derive(Clone)]
pub(crate) struct Secret([u8; 32]);

impl Secret {
    /// Makes the secret from the bytes of its file, without the white space around them.
    ///
    /// # Errors
    /// How many bytes there are, if too few.
    pub(crate) fn new(bytes: &[u8]) -> Result<Secret, usize> {
        let trimmed = bytes.trim_ascii();
        match trimmed.len() < SECRET_BYTES_MIN {
            true => Err(trimmed.len()),
            false => Ok(Secret(blake3::derive_key(
                "penstock cluster secret, links",
                trimmed,
            ))),
        }
    }

    /// Whether it is the same one.
    pub(crate) fn is_same(&self, other: &Secret) -> bool {
        blake3::Hash::from(self.0) == blake3::Hash::from(other.0)
    }

    /// The keyed digest of this.
    pub(crate) fn digest(&self, input: &[u8]) -> blake3::Hash {
        blake3::keyed_hash(&self.0, input)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// Why a cluster's file is refused, in one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterFileError(String);

impl fmt::Display for ClusterFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl ClusterFileError {
    pub(crate) fn new(line: String) -> Self {
        ClusterFileError(line)
    }
}

impl ClusterFile {
    /// Reads a file and the secret that it names.
    ///
    /// # Errors
    /// [`ClusterFileError`].
    pub(crate) fn read(path: &Path) -> Result<ClusterFile, ClusterFileError> {
        let text = std::fs::read_to_string(path).map_err(|error| {
            ClusterFileError(format!("{}: cannot be read: {error}", path.display()))
        })?;
        ClusterFile::of(&PlanPlace::File(path.to_path_buf()), text)
    }

    /// Takes this for what stands there, and reads the secret that belongs to it.
    ///
    /// # Errors
    /// [`ClusterFileError`].
    pub(crate) fn of(place: &PlanPlace, text: String) -> Result<ClusterFile, ClusterFileError> {
        let fail = |cause: String| ClusterFileError(format!("{place}: {cause}"));
        let read = |what: &str, path: &Path| {
            let bytes = read_private(path, SECRET_FILE_BYTES_MAX).map(Zeroizing::new);
            bytes.map_err(|error| format!("the {what} {error}"))
        };
        let read_secret = |named: Option<&str>| match (place, named) {
            (PlanPlace::File(_), None) => Err("the file lacks secret_file".into()),
            (PlanPlace::File(path), Some(name)) => {
                let path = path.parent().unwrap_or(Path::new(".")).join(name);
                read("secret_file", &path).map(Some)
            }
            (PlanPlace::Etcd { .. }, Some(name)) => Err(format!(
                "secret_file = {name:?}: in etcd a plan names none, each node has its own \
                 cluster_secret_file"
            )),
            (PlanPlace::Etcd { secret_file, .. }, None) => {
                let path = secret_file.as_deref();
                path.map(|path| read("cluster_secret_file", path))
                    .transpose()
            }
        };
        let file = ClusterFile::parse(text, read_secret).map_err(fail)?;
        in_order(place, file).map_err(fail)
    }

    /// Takes this for a plan whose secret nobody needs.
    ///
    /// # Errors
    /// What is wrong with it, in one line.
    pub(crate) fn without_secret(text: String) -> Result<ClusterFile, String> {
        ClusterFile::parse(text, |_| Ok(None))
    }

    fn parse(
        text: String,
        read_secret: impl FnOnce(Option<&str>) -> Result<Option<Zeroizing<Vec<u8>>>, String>,
    ) -> Result<ClusterFile, String> {
        if text.len() > PLAN_BYTES_MAX {
            return Err(format!("it has more than {PLAN_BYTES_MAX} bytes"));
        }
        let table = DeTable::parse(&text).map_err(|error| {
            let line = line_of_error(&text, &error);
            format!(
                "line {line} is not TOML: {}",
                error.message().replace('\n', ", ")
            )
        })?;
        let table = table.get_ref();
        const KNOWN: [&str; 11] = [
            "version",
            "cluster_id",
            "secret_file",
            "revision",
            "changed_at",
            "changed_by",
            "replica_timeout_ms",
            "backlog_bytes_max",
            "catch_up_bytes_per_s",
            "node",
            "placement",
        ];
        let known = [&KNOWN[..], &FailoverKeys::NAMES[..]].concat();
        only(table, "the file", &known)?;
        let version = number(table, "the file", "version", 1, u64::MAX)?;
        if version != 1 {
            return Err(format!("version = {version}: this server reads version 1"));
        }
        let id = string(table, "the file", "cluster_id")?;
        let cluster_id = hex16(id)
            .ok_or_else(|| format!("cluster_id = {id:?}: 32 hexadecimal digits are wanted"))?;
        let text_of = |name| match table.contains_key(name) {
            true => string(table, "the file", name).map(Some),
            false => Ok(None),
        };
        let bytes = read_secret(text_of("secret_file")?)?;
        let secret = bytes.map(|bytes| Secret::new(&bytes)).transpose();
        let secret = secret.map_err(|has| {
            format!("the secret has {has} bytes, and at least {SECRET_BYTES_MIN} are wanted")
        })?;
        let changed = Changed {
            at: text_of("changed_at")?.unwrap_or_default().into(),
            by: text_of("changed_by")?.unwrap_or_default().into(),
        };
        let optional = |name, min, max, default| match table.contains_key(name) {
            true => number(table, "the file", name, min, max),
            false => Ok(default),
        };
        let timeout_ms = optional("replica_timeout_ms", 1, 3_600_000, REPLICA_TIMEOUT_MS)?;
        let backlog_bytes_max = optional("backlog_bytes_max", 0, 1 << 50, BACKLOG_BYTES)?;
        let catch_up_bytes_per_s =
            optional("catch_up_bytes_per_s", 0, 1 << 50, CATCH_UP_BYTES_PER_S)?;
        let revision = optional("revision", 1, REVISION_MAX, 0)?;
        let nodes = nodes(table)?;
        let failover = FailoverKeys::read(table, nodes.len())?;
        let (assignments, joining) = assignments(table, &nodes)?.into_iter().unzip();
        Ok(ClusterFile {
            text,
            cluster_id,
            secret,
            revision,
            changed,
            nodes,
            assignments,
            joining,
            replica_timeout_us: timeout_ms * 1000,
            backlog_bytes_max,
            catch_up_bytes_per_s,
            failover,
        })
    }

    /// Whether it is of the same cluster as another one.
    ///
    /// # Errors
    /// What is wrong, with both ids.
    pub(crate) fn is_of_cluster(&self, wanted: &ClusterFile) -> Result<(), String> {
        match self.cluster_id == wanted.cluster_id {
            true => Ok(()),
            false => Err(format!(
                "cluster_id is that of another cluster: {}, and {} is wanted",
                hex(self.cluster_id),
                hex(wanted.cluster_id)
            )),
        }
    }

    /// Whether it says the same of everything.
    pub(crate) fn is_same(&self, other: &ClusterFile) -> bool {
        (self.cluster_id, &self.nodes) == (other.cluster_id, &other.nodes)
            && (&self.assignments, &self.joining) == (&other.assignments, &other.joining)
            && self.replica_timeout_us == other.replica_timeout_us
            && self.backlog_bytes_max == other.backlog_bytes_max
            && self.catch_up_bytes_per_s == other.catch_up_bytes_per_s
            && self.failover == other.failover
            && match (&self.secret, &other.secret) {
                (Some(one), Some(other)) => one.is_same(other),
                (one, other) => one.is_some() == other.is_some(),
            }
    }

    /// The secret of a node's plan.
    pub(crate) fn node_secret(&self) -> &Secret {
        self.secret.as_ref().expect("a node has one")
    }

    /// The node of this number.
    pub(crate) fn node(&self, number: u8) -> Option<&ClusterNode> {
        self.nodes.iter().find(|node| node.number == number)
    }

    /// Whether one node writes a partition that another one holds, or may have to hand it over.
    pub(crate) fn ships(&self, from: u8, to: u8, partition: PartitionId) -> bool {
        let assignment = &self.assignments[usize::from(partition)];
        let holds = |node| assignment.members.iter().any(|&(member, _)| member == node);
        (assignment.primary == from && holds(to))
            || (assignment.is_handed_over && assignment.primary == to && holds(from))
    }

    /// What the shards need of it.
    pub(crate) fn plan(&self) -> Plan {
        Plan {
            partitions: self.assignments.clone(),
            clients: self
                .nodes
                .iter()
                .map(|node| (node.number, node.clients.clone()))
                .collect(),
            number: self.revision,
            is_leased: self.failover.is_on(),
            min_sync: match self.failover.is_on() {
                true => self.failover.min_sync,
                false => 0,
            },
        }
    }

    /// What nodes decide by; `None` if a person decides.
    #[cfg_attr(not(test), allow(dead_code, reason = "for the thread of failover"))]
    pub(crate) fn failover_plan(&self) -> Option<FailoverPlan> {
        let FailoverKeys {
            is_paused,
            rules,
            min_sync,
            ..
        } = self.failover;
        let stay = self.nodes.iter().filter(|node| node.stays_learner);
        self.failover.is_on().then(|| FailoverPlan {
            number: self.revision,
            placings: self.placings(),
            rules,
            min_sync,
            is_paused,
            stay_learners: stay.map(|node| node.number).collect(),
        })
    }

    /// Lets it say this of each partition, ascending.
    pub(crate) fn place_all(&mut self, placings: Vec<Placing>) {
        let both = placings.into_iter().map(|it| (it.assignment, it.joining));
        (self.assignments, self.joining) = both.unzip();
    }

    /// What it says of each partition, ascending.
    pub(crate) fn placings(&self) -> Vec<Placing> {
        let both = self.assignments.iter().zip(&self.joining);
        let placing = |(assignment, joining): (&Assignment, &Vec<u8>)| Placing {
            assignment: assignment.clone(),
            joining: joining.clone(),
        };
        both.map(placing).collect()
    }
}

/// Refuses what a plan there must not say, or lacks.
fn in_order(place: &PlanPlace, file: ClusterFile) -> Result<ClusterFile, String> {
    match place.is_ordered() {
        false if file.failover.is_on() => Err(UNORDERED.into()),
        true if file.revision == 0 => Err("the plan lacks revision".into()),
        _ => Ok(file),
    }
}

/// Whether a text is HOST:PORT as clients are told it: one word, with a port that is not 0.
pub(crate) fn is_host_and_port(text: &str) -> bool {
    let is_word = text.bytes().all(|byte| byte.is_ascii_graphic());
    text.rsplit_once(':').is_some_and(|(host, port)| {
        !host.is_empty() && is_word && port.parse::<u16>().is_ok_and(|port| port > 0)
    })
}

/// Whether clients can be told to find a node there: [`is_host_and_port`], and short enough for the
/// reply to HELLO. One that is not would keep clients from all nodes.
pub(crate) fn is_address_of_clients(text: &str) -> bool {
    is_host_and_port(text) && text.len() <= CLIENTS_BYTES_MAX
}

/// Their numbers, for people.
pub(crate) fn numbers_of(nodes: &[ClusterNode]) -> String {
    let numbers: Vec<String> = nodes.iter().map(|node| node.number.to_string()).collect();
    numbers.join(", ")
}

fn nodes(table: &Table<'_>) -> Result<Vec<ClusterNode>, String> {
    let mut nodes: Vec<ClusterNode> = Vec::new();
    for (at, table) in tables(table, "node")?.enumerate() {
        let whose = format!("[[node]] {}", at + 1);
        let table = table?;
        only(
            table,
            &whose,
            &[
                "number",
                "links",
                "clients",
                "resp",
                "resp_ports",
                "learner",
            ],
        )?;
        let number = number(table, &whose, "number", 1, 255)?;
        let number = u8::try_from(number).expect("at most 255");
        let links = string(table, &whose, "links")?;
        let links: SocketAddr = links.parse().map_err(|_| {
            format!("{whose}: links = {links:?}: IP:PORT is wanted, for example 127.0.0.1:7414")
        })?;
        if links.ip().is_unspecified() || links.port() == 0 {
            return Err(format!(
                "{whose}: links = {links}: an address of one interface and a port are wanted, so \
                 that nobody else is let in"
            ));
        }
        if nodes.iter().any(|node| node.number == number) {
            return Err(format!(
                "{whose}: number = {number}: another node has that number"
            ));
        }
        if nodes.iter().any(|node| node.links == links) {
            return Err(format!("{whose}: links = {links}: those of another node"));
        }
        let clients = string(table, &whose, "clients")?;
        if !is_address_of_clients(clients) {
            return Err(format!(
                "{whose}: clients = {clients:?}: HOST:PORT is wanted, for example 127.0.0.1:7411, \
                 of {CLIENTS_BYTES_MAX} bytes at most"
            ));
        }
        if nodes.iter().any(|node| node.clients == clients) {
            return Err(format!(
                "{whose}: clients = {clients:?}: those of another node"
            ));
        }
        let resp = match table.contains_key("resp") {
            true => Some(string(table, &whose, "resp")?),
            false => None,
        };
        if let Some(resp) = resp.filter(|resp| !is_host_and_port(resp)) {
            return Err(format!(
                "{whose}: resp = {resp:?}: HOST:PORT is wanted, for example 127.0.0.1:7413"
            ));
        }
        let resp_ports = match table.contains_key("resp_ports") {
            true => Some(resp_ports(
                &numbers(table, &whose, "resp_ports")?,
                resp,
                &whose,
            )?),
            false => None,
        };
        nodes.push(ClusterNode {
            number,
            links,
            clients: clients.into(),
            resp: resp.map(str::to_string),
            resp_ports,
            stays_learner: switch(table, &whose, "learner")?,
        });
    }
    check_core_ports(&nodes)?;
    match nodes.is_empty() {
        true => Err("there is no [[node]]".into()),
        false => Ok(nodes),
    }
}

/// Refuses a port of a core that another core, or another service of a node, has at the same host.
fn check_core_ports(nodes: &[ClusterNode]) -> Result<(), String> {
    let mut taken: HashMap<(&str, u16), (u8, &str)> = HashMap::new();
    for node in nodes {
        for (what, address) in [
            ("clients", Some(&node.clients)),
            ("resp", node.resp.as_ref()),
        ] {
            let address = address.and_then(|it| it.rsplit_once(':'));
            if let Some((host, port)) = address
                && let Ok(port) = port.parse()
            {
                taken.insert((host, port), (node.number, what));
            }
        }
    }
    for node in nodes {
        let host = node.resp.as_ref().and_then(|it| it.rsplit_once(':'));
        let (Some((host, _)), Some(ports)) = (host, node.resp_ports) else {
            continue;
        };
        for port in ports.all() {
            if let Some((other, what)) = taken.insert((host, port), (node.number, "resp_ports")) {
                return Err(format!(
                    "node {}: resp_ports: {host}:{port} is one of {what} of node {other}",
                    node.number
                ));
            }
        }
    }
    Ok(())
}

/// The ports of the cores of a node whose own one is at `resp`.
fn resp_ports(ports: &[u64], resp: Option<&str>, whose: &str) -> Result<CorePorts, String> {
    let whose = format!("{whose}: resp_ports = {ports:?}");
    let Some(resp) = resp else {
        return Err(format!("{whose}: the host is missing: give resp, too"));
    };
    let &[first, last] = ports else {
        return Err(format!(
            "{whose}: [FIRST, LAST] is wanted, a port for each shard"
        ));
    };
    let ports = core_ports(first, last).ok_or_else(|| {
        format!("{whose}: the first is 1, the last is 65535, and they are at most 256")
    })?;
    match resp
        .rsplit_once(':')
        .and_then(|(_, port)| port.parse().ok())
    {
        Some(port) if ports.all().contains(&port) => {
            Err(format!("{whose}: that of resp = {resp} is one of them"))
        }
        _ => Ok(ports),
    }
}

/// The ports from the first to the last one, if cores may have them.
pub(crate) fn core_ports(first: u64, last: u64) -> Option<CorePorts> {
    let first = u16::try_from(first).ok().filter(|first| *first > 0)?;
    let last = u16::try_from(last).ok()?;
    CorePorts::new(first, last.checked_sub(first)?.checked_add(1)?)
}

/// The assignment of a partition, and the numbers of its joining members.
type Placed = (Assignment, Vec<u8>);

fn assignments(table: &Table<'_>, nodes: &[ClusterNode]) -> Result<Vec<Placed>, String> {
    let mut assignments: Vec<Option<Placed>> = vec![None; usize::from(LINK_PARTITIONS)];
    let is_known = |whose: &str, number: u64| {
        let mut known = nodes.iter().map(|node| node.number);
        u8::try_from(number)
            .ok()
            .filter(|&number| known.any(|it| it == number))
            .ok_or_else(|| {
                format!(
                    "{whose} names node {number}, which no [[node]] has: there are {}",
                    numbers_of(nodes)
                )
            })
    };
    for (at, table) in tables(table, "placement")?.enumerate() {
        let whose = format!("[[placement]] {}", at + 1);
        let table = table?;
        only(
            table,
            &whose,
            &[
                "partitions",
                "generation",
                "primary",
                "sync",
                "joining",
                "learners",
                "handover",
                "accept_loss",
                "accept_incomplete",
            ],
        )?;
        let range = numbers(table, &whose, "partitions")?;
        let &[first, last] = range.as_slice() else {
            return Err(format!("{whose}: partitions = [FIRST, LAST] is wanted"));
        };
        if first > last || last >= u64::from(LINK_PARTITIONS) {
            return Err(format!(
                "{whose}: partitions = [{first}, {last}]: the first is 0, the last is {}",
                LINK_PARTITIONS - 1
            ));
        }
        let generation = number(table, &whose, "generation", 1, GENERATION_MAX)?;
        let primary = is_known(&whose, number(table, &whose, "primary", 1, 255)?)?;
        let mut members = Vec::new();
        let mut joining = Vec::new();
        for (name, membership) in [
            ("sync", Membership::Sync),
            ("joining", Membership::Sync),
            ("learners", Membership::Learner),
        ] {
            if !table.contains_key(name) {
                continue;
            }
            for number in numbers(table, &whose, name)? {
                let node = is_known(&whose, number)?;
                if node == primary || members.iter().any(|&(member, _)| member == node) {
                    return Err(format!("{whose}: node {node} stands there twice"));
                }
                members.push((node, membership));
                if name == "joining" {
                    joining.push(node);
                }
            }
        }
        let assignment = Assignment {
            generation: u32::try_from(generation).expect("14 bits"),
            primary,
            members,
            is_handed_over: switch(table, &whose, "handover")?,
            is_loss_accepted: switch(table, &whose, "accept_loss")?,
            is_incomplete_accepted: switch(table, &whose, "accept_incomplete")?,
        };
        let placing = (assignment, joining);
        for partition in first..=last {
            let at = usize::try_from(partition).expect("below 256");
            if assignments[at].replace(placing.clone()).is_some() {
                return Err(format!("{whose}: partition {partition} is placed twice"));
            }
        }
    }
    let missing = assignments.iter().position(Option::is_none);
    match missing {
        Some(partition) => Err(format!("partition {partition} is placed nowhere")),
        None => Ok(assignments.into_iter().flatten().collect()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use penstock_shard::lease::LeaseRules;

    use super::*;

    const GOOD: &str = r#"
version = 1
cluster_id = "000102030405060708090a0b0c0d0e0f"
secret_file = "secret"
replica_timeout_ms = 500

[[node]]
number = 1
links = "127.0.0.1:7414"
clients = "127.0.0.1:7411"

[[node]]
number = 2
links = "127.0.0.2:7414"
clients = "127.0.0.2:7411"

[[placement]]
partitions = [0, 99]
generation = 1
primary = 1
sync = [2]

[[placement]]
partitions = [100, 255]
generation = 7
primary = 2
learners = [1]
"#;

    fn parse(text: &str) -> Result<ClusterFile, String> {
        ClusterFile::parse(text.into(), |named| {
            named.ok_or("the file lacks secret_file")?;
            let secret = b"0123456789abcdef0123456789abcdef\n";
            Ok(Some(Zeroizing::new(secret.to_vec())))
        })
    }

    #[test]
    fn a_file_is_read() {
        let file = parse(GOOD).expect("good");
        assert_eq!(file.cluster_id[15], 15);
        assert_eq!(file.replica_timeout_us, 500_000);
        assert_eq!(file.node(2).expect("named").clients, "127.0.0.2:7411");
        assert!(file.ships(1, 2, 99) && !file.ships(1, 2, 100) && file.ships(2, 1, 100));
        assert_eq!(file.plan().partitions[255].generation, 7);
        assert!(!file.ships(1, 3, 0));
    }

    #[test]
    fn nodes_decide_by_a_plan_that_says_so_and_under_its_rules() {
        let off = parse(GOOD).expect("good");
        assert!(!off.plan().is_leased && off.failover_plan().is_none());
        assert_eq!(off.failover.rules, LeaseRules::STARVED);
        let text = GOOD.replace(
            "secret_file",
            "revision = 9\nfailover = true\nfailover_paused = true\nlease_ms = 400\n\
             grace_ms = 500\nmin_sync = 1\nsecret_file",
        );
        let text = text.replace("number = 2", "number = 2\nlearner = true");
        let text = text.replace("sync = [2]", "joining = [2]");
        let on = parse(&text).expect("good");
        assert!(on.plan().is_leased && !on.is_same(&off));
        let plan = on.failover_plan().expect("on");
        assert_eq!((plan.number, plan.rules), (9, LeaseRules::QUIET));
        assert_eq!((plan.min_sync, plan.is_paused), (1, true));
        assert_eq!((on.plan().min_sync, off.plan().min_sync), (1, 0));
        assert_eq!(plan.stay_learners, [2]);
        assert_eq!(plan.placings.len(), 256);
        assert_eq!(plan.placings[99].joining, [2]);
        assert!(!plan.placings[99].is_promotable(2) && plan.placings[100].is_learner(1));
    }

    #[test]
    fn a_file_in_which_nodes_decide_by_themselves_is_refused_with_the_reason() {
        let place = PlanPlace::File("/nowhere/cluster.toml".into());
        let text = GOOD.replace("secret_file = \"secret\"", "failover = true");
        let parsed = ClusterFile::without_secret(text).expect("a plan");
        let cause = in_order(&place, parsed).expect_err("a file");
        assert!(cause.contains("failover = true: it needs a plan in etcd"));
    }

    #[test]
    fn a_secret_that_others_may_read_is_refused_and_nothing_of_it_is_shown() {
        let name = format!("penstock-open-secret-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).expect("made");
        let (path, secret) = (folder.join("cluster.toml"), folder.join("secret"));
        std::fs::write(&path, GOOD).expect("written");
        std::fs::write(&secret, "0123456789abcdef0123456789abcdef").expect("written");
        let read = |mode| {
            let mode = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(&secret, mode).expect("set");
            ClusterFile::read(&path).map(|file| file.cluster_id[15])
        };
        let message = read(0o644).expect_err("others may read it").to_string();
        let expected = format!(
            "others may read it (mode 0644): chmod 600 {}",
            secret.display()
        );
        assert!(
            message.ends_with(&expected) && !message.contains("abcdef"),
            "{message}"
        );
        assert_eq!(read(0o600).expect("private"), 15);
        std::fs::remove_dir_all(folder).expect("removed");
    }

    #[test]
    fn an_address_that_would_keep_clients_from_all_nodes_is_no_plan() {
        let long = format!("{}:7411", "a".repeat(251));
        for (clients, named) in [
            ("", "clients = \"\": HOST:PORT is wanted"),
            ("here", "clients = \"here\": HOST:PORT is wanted"),
            ("127.0.0.1:99999", "HOST:PORT is wanted"),
            (&long, "of 255 bytes at most"),
            (
                "127.0.0.1:7411",
                "[[node]] 2: clients = \"127.0.0.1:7411\": those of another node",
            ),
        ] {
            let text = GOOD.replace("127.0.0.2:7411", clients);
            let cause = parse(&text).expect_err(named);
            assert!(cause.contains(named), "{cause}");
        }
        for clients in [&long[1..], "[::1]:7411", "shop-2.shop.svc:7411"] {
            let text = GOOD.replace("127.0.0.2:7411", clients);
            assert_eq!(parse(&text).map(|it| it.nodes.len()), Ok(2), "{clients}");
        }
    }

    #[test]
    fn ports_of_cores_stand_beside_the_address_for_clients_of_redis() {
        let with = |lines: &str| {
            let clients = "clients = \"127.0.0.2:7411\"";
            parse(&GOOD.replace(clients, &format!("{clients}\n{lines}")))
        };
        let resp = "resp = \"h:7413\"\n";
        let ports = |text: &str| with(&format!("{resp}resp_ports = {text}"));
        let file = ports("[7430, 7432]").expect("good");
        let read = file.node(2).expect("named").resp_ports;
        assert_eq!(read, CorePorts::new(7430, 3));
        assert!(!file.is_same(&with(resp).expect("good")));
        for (refused, named) in [
            (with("resp_ports = [7430, 7431]"), "give resp, too"),
            (ports("[7430]"), "[FIRST, LAST] is wanted"),
            (ports("[7431, 7430]"), "the last is 65535"),
            (ports("[0, 1]"), "the first is 1"),
            (ports("[65535, 65536]"), "the last is 65535"),
            (ports("[1000, 1256]"), "at most 256"),
            (
                ports("[7412, 7413]"),
                "that of resp = h:7413 is one of them",
            ),
            (
                with("resp = \"127.0.0.2:7413\"\nresp_ports = [7410, 7411]"),
                "node 2: resp_ports: 127.0.0.2:7411 is one of clients of node 2",
            ),
            (
                with("resp = \"127.0.0.1:7413\"\nresp_ports = [7410, 7412]"),
                "127.0.0.1:7411 is one of clients of node 1",
            ),
        ] {
            let cause = refused.expect_err(named);
            assert!(cause.contains(named), "{cause}");
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (from, to, named) in [
            ("version = 1", "version = 2", "version 1"),
            ("000102", "0001", "32 hexadecimal"),
            ("number = 2", "number = 1", "number = 1: another node"),
            ("127.0.0.2:7414", "127.0.0.1:7414", "those of another node"),
            ("sync = [2]", "sync = [2]\njoining = [2]", "twice"),
            ("sync = [2]", "sync = 2", "a list of numbers"),
            ("sync = [2]", "sync = [2]\nhandover = 1", "true or false"),
            ("number = 2", "number = 256", "1 to 255"),
            ("127.0.0.2:7414", "0.0.0.0:7414", "one interface"),
            ("127.0.0.2:7414", "here", "IP:PORT"),
            ("[0, 99]", "[0, 98]", "partition 99 is placed nowhere"),
            ("[0, 99]", "[0, 100]", "partition 100 is placed twice"),
            ("[100, 255]", "[100, 256]", "the last is 255"),
            (
                "primary = 1",
                "primary = 3",
                "names node 3, which no [[node]] has: there are 1, 2",
            ),
            ("sync = [2]", "sync = [1]", "twice"),
            ("sync = [2]", "sink = [2]", "has no \"sink\""),
            ("generation = 7", "generation = 16384", "1 to 16383"),
            ("secret_file = \"secret\"", "", "lacks secret_file"),
            ("version = 1", "version = 1\nfailover = 1", "true or false"),
            (
                "[[node]]",
                "lease_ms = 199\n[[node]]",
                "lease_ms = 199: it is 200 to 10000",
            ),
            (
                "[[node]]",
                "lease_ms = 10001\ngrace_ms = 20000\n[[node]]",
                "lease_ms = 10001: it is 200 to 10000",
            ),
            (
                "[[node]]",
                "lease_ms = 1700\n[[node]]",
                "grace_ms = 2000 with lease_ms = 1700: clocks may differ by a quarter, so it is \
                 at least 2125",
            ),
            (
                "[[node]]",
                "grace_ms = 60001\n[[node]]",
                "grace_ms = 60001: at most 60000",
            ),
            (
                "[[node]]",
                "grace_ms = \"2s\"\n[[node]]",
                "grace_ms is to be a whole number",
            ),
            (
                "[[node]]",
                "min_sync = 2\n[[node]]",
                "min_sync = 2: with 2 nodes a partition has 1 member at most",
            ),
            (
                "number = 2",
                "number = 2\nlearner = 2",
                "learner is to be true or false",
            ),
        ] {
            let text = GOOD.replacen(from, to, 1);
            let cause = parse(&text).expect_err(to);
            assert!(cause.contains(named), "{to}: {cause}");
        }
        let short = ClusterFile::parse(GOOD.into(), |_| Ok(Some(b"short".to_vec().into())));
        assert!(short.is_err_and(|cause| cause.contains("5 bytes")));
    }
}
