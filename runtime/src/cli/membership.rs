//! The commands that say which nodes a cluster has and what each holds.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use penstock::cluster::plan::new_cluster::{NewNode, import, make_cluster, make_in_etcd};
use penstock::cluster::plan::placement::{CorePortsReaders, Draft, Standing};
use penstock_net::level::AckLevel;
use penstock_net::link::message::LINK_PARTITIONS;
use penstock_net::request::Ask;
use penstock_net::slot::slot_of;
use penstock_net::status::Status;
use penstock_storage::version::partition_of;
use serde_json::Value;

use super::Failure;
use super::output::{Output, PLAN_CHANGED, count};
use super::partitions::{ANSWER, first_last, states_of, writers};
use super::plan_home::{EtcdArgs, HomeArgs, author};
use super::plan_keys::check_core_ports;
use super::server::ServerAddress;

pub const INIT_EXAMPLES: &str = "\
The first node is to write everything, and the others are its sync set. Nothing may be there yet:
neither the file nor the secret beside it. Copy both to each machine; only the nodes may read the
secret. Then start each node once with --cluster-new on an empty directory. With the plan in etcd
only the secret is a file, named by --secret-file, which each node needs as cluster_secret_file.

Examples:
  penstock cluster init --file /etc/penstock/cluster.toml \\
    --node 1,10.0.0.1:7414,10.0.0.1:7411 --node 2,10.0.0.2:7414,10.0.0.2:7411
  penstock serve --cluster /etc/penstock/cluster.toml --cluster-node 1 --cluster-new
  penstock cluster init --etcd-endpoints http://10.0.0.1:2379 --secret-file cluster.secret \\
    --node 1,10.0.0.1:7414,10.0.0.1:7411 --node 2,10.0.0.2:7414,10.0.0.2:7411";

pub const IMPORT_EXAMPLES: &str = "\
The plan is taken as it stands, without its secret_file, under a number above that of the file and
of etcd. A plan of another cluster, or one that has come further than the file, is not replaced.
Every node keeps the last plan that it took in DATA/PLAN. What `show` prints may be put back with
other bounds or addresses; who holds what and how nodes decide have commands of their own.

Examples:
  penstock cluster import /etc/penstock/cluster.toml --etcd-endpoints http://10.0.0.1:2379
  penstock cluster import /var/lib/penstock/PLAN --etcd-endpoints http://10.0.0.1:2379";

pub const ADD_EXAMPLES: &str = "\
Running nodes link to it as soon as it is there. It starts with an empty directory and without
--cluster-new, and gets everything. To have level replica wait for it, give `penstock cluster
sync` when it follows. The number of a node that was dropped may be used again. Where links have
TLS, give `penstock cluster certs --node` for its certificate first.

Examples:
  penstock cluster add --file /etc/penstock/cluster.toml --node 3,10.0.0.3:7414,10.0.0.3:7411
  penstock serve --cluster /etc/penstock/cluster.toml --cluster-node 3 --data /var/lib/penstock";

pub const ADDRESS_EXAMPLES: &str = "\
For a node that comes up at another address, as a container does. The others link to it there within
a second, and the node itself takes links there from its next start on.

Examples:
  penstock cluster address --node 2 --links 10.0.0.7:7414";

pub const RENEW_EXAMPLES: &str = "\
The nodes that write go on as they are. A node may start 1,023 times within one generation. With the
plan in etcd it asks for the next one by itself; in a file somebody gives this command before.

Examples:
  penstock cluster renew --file /etc/penstock/cluster.toml";

pub const SYNC_EXAMPLES: &str = "\
In two steps: the node is `joining`, so level replica waits for it, and when it has all that was
acknowledged before, it is in the sync set and may be promoted. If it does not come so far in
time, the first step stays and the command may be given again. Where nodes have copies of the
file, give --no-wait, copy it to all, give the command again without, and copy it again.

Examples:
  penstock cluster sync --file /etc/penstock/cluster.toml --node 3
  penstock cluster sync --file /etc/penstock/cluster.toml --node 3 --partitions 0-127";

pub const LEARNER_EXAMPLES: &str = "\
A node of the sync set that is away lets level replica wait and be answered NOREPLICAS. As a
learner it may stay away, and may not be promoted without a loss. A node that holds nothing of
these partitions begins to.

Examples:
  penstock cluster learner --file /etc/penstock/cluster.toml --node 3";

pub const DROP_EXAMPLES: &str = "\
The others end their links to it at once. Its data directory stays as it is; if the node is still
running, stop it.

Examples:
  penstock cluster drop --file /etc/penstock/cluster.toml --node 3";

/// Arguments of `penstock cluster init`.
#[derive(Args)]
pub struct InitArgs {
    /// The plan that is to be written; beside a file the secret is written, as FILE.secret
    #[command(flatten)]
    home: HomeArgs,
    /// The file of the secret that is to be written, where the plan is to be in etcd
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
    /// A node: its number, where it takes links from the others, where clients find it, and
    /// perhaps where clients of Redis do, and the ports at which those find its cores
    #[arg(
        long,
        value_name = "NUMBER,LINKS,CLIENTS[,RESP[,FIRST-LAST]]",
        value_parser = NewNode::parse,
        required = true
    )]
    node: Vec<NewNode>,
}

/// Arguments of `penstock cluster import`.
#[derive(Args)]
pub struct ImportArgs {
    /// The file of the plan
    #[arg(value_name = "FILE")]
    from: PathBuf,
    #[command(flatten)]
    etcd: EtcdArgs,
}

/// Arguments of `penstock cluster add`.
#[derive(Args)]
pub struct AddArgs {
    #[command(flatten)]
    home: HomeArgs,
    /// Its number, where it takes links from the others, where clients find it, and perhaps where
    /// clients of Redis do, and the ports at which those find its cores
    #[arg(
        long,
        value_name = "NUMBER,LINKS,CLIENTS[,RESP[,FIRST-LAST]]",
        value_parser = NewNode::parse
    )]
    node: NewNode,
    /// With failover on: it stays a learner until `penstock cluster sync`
    #[arg(long)]
    learner: bool,
}

/// Arguments of `penstock cluster address`.
#[derive(Args)]
pub struct AddressArgs {
    #[command(flatten)]
    home: HomeArgs,
    /// The node, by its number
    #[arg(long, value_name = "NODE")]
    node: u8,
    /// Where it takes links from the others from its next start on, as IP:PORT
    #[arg(long, value_name = "IP:PORT")]
    links: Option<SocketAddr>,
    /// Where clients find it, as HOST:PORT
    #[arg(long, value_name = "HOST:PORT")]
    clients: Option<String>,
}

impl AddressArgs {
    /// Changes the plan.
    pub fn run(self) -> Result<(), Failure> {
        let node = self.node;
        let mut draft = self.home.draft()?;
        let clients = self.clients.as_deref();
        let before = draft.addresses_of(node).map_err(Failure::usage)?;
        let is_new = draft
            .set_address(node, self.links, clients)
            .map_err(Failure::usage)?;
        let (links, clients) = draft.addresses_of(node).map_err(Failure::usage)?;
        if is_new {
            draft.write().map_err(Failure::usage)?;
        }
        let mut out = Output::stdout();
        if is_new {
            out.done(PLAN_CHANGED);
        }
        let was = match is_new {
            true => format!("before: links {}, clients {}", before.0, before.1),
            false => "as before".into(),
        };
        out.line(format_args!(
            "node {node}: links {links}, clients {clients}; {was}"
        ));
        out.finish()
    }
}

/// Arguments of `penstock cluster renew`.
#[derive(Args)]
pub struct RenewArgs {
    #[command(flatten)]
    home: HomeArgs,
    /// The partitions
    #[arg(long, value_name = "FIRST-LAST", default_value = "0-255", value_parser = first_last)]
    partitions: (u16, u16),
    /// Only change the plan, and ask no node: for a node whose starts in a generation are used up
    #[arg(long)]
    no_wait: bool,
}

impl RenewArgs {
    /// Changes the plan.
    pub fn run(self) -> Result<(), Failure> {
        let mut draft = self.home.draft()?;
        let (first, last) = self.partitions;
        let all: Vec<u16> = (first..=last).collect();
        if draft.is_one_handed_over(&all) && !self.no_wait {
            check_written(&draft, self.partitions, ANSWER)?;
        }
        draft.renew_all(first..=last).map_err(Failure::usage)?;
        draft.write().map_err(Failure::usage)?;
        let mut out = Output::stdout();
        out.done(PLAN_CHANGED);
        out.line(format_args!(
            "{} in the next generation, written by the same nodes",
            count(all.len() as u64, "partition")
        ));
        out.finish()
    }
}

/// A node and some of its partitions.
#[derive(Args)]
struct HeldArgs {
    #[command(flatten)]
    home: HomeArgs,
    /// The node, by its number
    #[arg(long, value_name = "NODE")]
    node: u8,
    /// The partitions
    #[arg(long, value_name = "FIRST-LAST", default_value = "0-255", value_parser = first_last)]
    partitions: (u16, u16),
}

/// Arguments of `penstock cluster sync`.
#[derive(Args)]
pub struct MemberArgs {
    #[command(flatten)]
    held: HeldArgs,
    /// Take one step in the plan, and ask no node that need not be asked
    #[arg(long)]
    no_wait: bool,
    /// Longest wait until the node has all, in milliseconds
    #[arg(long, value_name = "N", default_value_t = 60_000)]
    wait_ms: u32,
}

/// Arguments of `penstock cluster learner`.
#[derive(Args)]
pub struct LearnerArgs {
    #[command(flatten)]
    held: HeldArgs,
    /// Only change the plan, whether the others can be asked or not
    #[arg(long)]
    no_wait: bool,
    /// Longest wait for the answer of each node that writes some of them, in milliseconds
    #[arg(long, value_name = "N", default_value_t = 5_000)]
    wait_ms: u32,
}

/// Arguments of `penstock cluster drop`.
#[derive(Args)]
pub struct DropArgs {
    #[command(flatten)]
    home: HomeArgs,
    /// The node, by its number
    #[arg(long, value_name = "NODE")]
    node: u8,
    /// Only change the plan, whether the others can be asked or not
    #[arg(long)]
    no_wait: bool,
}

impl InitArgs {
    /// Writes the file and the secret.
    pub fn run(self) -> Result<(), Failure> {
        let nodes = self.node;
        let place = self.home.place()?;
        let written = match (place.file(), &self.secret_file) {
            (Some(path), None) => {
                make_cluster(path, &nodes).map_err(Failure::usage)?;
                format!("{0} and {0}.secret", path.display())
            }
            (None, Some(secret)) => {
                make_in_etcd(&place, secret, &nodes, &author()).map_err(Failure::usage)?;
                format!("{place} and {}", secret.display())
            }
            (Some(path), Some(_)) => {
                return Err(Failure::usage(format!(
                    "--secret-file is for a plan in etcd: the secret of a file is beside it, \
                     {}.secret",
                    path.display()
                )));
            }
            (None, None) => {
                return Err(Failure::usage(
                    "where is the secret to be? Give --secret-file FILE, which each node needs \
                     as cluster_secret_file",
                ));
            }
        };
        let mut out = Output::stdout();
        out.done("the cluster was made");
        out.line(format_args!(
            "{written} are written: {}, node {} is to write everything",
            count(nodes.len() as u64, "node"),
            nodes[0].number
        ));
        out.finish()
    }
}

impl ImportArgs {
    /// Puts the plan into etcd.
    pub fn run(self) -> Result<(), Failure> {
        let place = self.etcd.place()?;
        let place =
            place.ok_or_else(|| Failure::usage("which etcd? Give --etcd-endpoints URLS"))?;
        let readers = CorePortsReaders::of_import(&place, &self.from).map_err(Failure::usage)?;
        check_core_ports(readers)?;
        let revision = import(&place, &self.from, &author()).map_err(Failure::usage)?;
        let mut out = Output::stdout();
        out.done("the plan was imported");
        out.line(format_args!(
            "{} is {place} now, as revision {revision}",
            self.from.display()
        ));
        out.finish()
    }
}

impl AddArgs {
    /// Adds the node.
    pub fn run(self) -> Result<(), Failure> {
        let mut draft = self.home.draft()?;
        let number = self.node.number;
        draft
            .add(&self.node)
            .and_then(|()| draft.place(0..=LINK_PARTITIONS - 1, number, Standing::Learner))
            .and_then(|_| draft.stay_learner(number, self.learner))
            .map_err(Failure::usage)?;
        check_core_ports(draft.core_ports_readers())?;
        draft.write().map_err(Failure::usage)?;
        let mut out = Output::stdout();
        out.done(PLAN_CHANGED);
        out.line(format_args!(
            "node {number} is a learner of everything: start it with --cluster-node {number} on \
             an empty directory, without --cluster-new"
        ));
        out.finish()
    }
}

impl DropArgs {
    /// Takes the node out.
    pub fn run(self) -> Result<(), Failure> {
        let mut draft = self.home.draft()?;
        draft.drop_node(self.node).map_err(Failure::usage)?;
        if !self.no_wait {
            check_written(&draft, (0, LINK_PARTITIONS - 1), ANSWER)?;
        }
        check_renewals(&draft, self.no_wait, ANSWER)?;
        let all: Vec<u16> = (0..LINK_PARTITIONS).collect();
        let (_, is_one_empty) = draft.waited_for(&all);
        let renewed = describe_renewals(&draft);
        draft.write().map_err(Failure::usage)?;
        let mut out = Output::stdout();
        out.done(PLAN_CHANGED);
        out.line(format_args!(
            "node {} is no part of the cluster any more: stop it if it runs",
            self.node
        ));
        renewed
            .iter()
            .for_each(|line| out.line(format_args!("{line}")));
        if is_one_empty {
            out.line(format_args!("{NOBODY_IN_SYNC}"));
        }
        out.finish()
    }
}

const NOBODY_IN_SYNC: &str = "level replica is answered NOREPLICAS where nobody is in the sync \
     set, and that is so for some partitions now";

impl HeldArgs {
    fn partitions(&self) -> Vec<u16> {
        (self.partitions.0..=self.partitions.1).collect()
    }
}

impl LearnerArgs {
    /// Makes it a learner.
    pub fn run(self) -> Result<(), Failure> {
        let mut draft = self.held.home.draft()?;
        let (first, last) = self.held.partitions;
        let changed = draft
            .place(first..=last, self.held.node, Standing::Learner)
            .map_err(Failure::usage)?;
        if changed > 0 && !self.no_wait {
            let longest = Duration::from_millis(self.wait_ms.into());
            check_written(&draft, self.held.partitions, longest)?;
        }
        check_renewals(&draft, self.no_wait, ANSWER)?;
        let (_, is_one_empty) = draft.waited_for(&self.held.partitions());
        let renewed = describe_renewals(&draft);
        let is_on = draft.failover().is_on;
        let stays = draft
            .stay_learner(self.held.node, is_on)
            .map_err(Failure::usage)?;
        let mut out = Output::stdout();
        if changed > 0 || stays {
            draft.write().map_err(Failure::usage)?;
            out.done(PLAN_CHANGED);
        }
        out.line(format_args!(
            "node {} is a learner of {} more",
            self.held.node,
            count(changed as u64, "partition")
        ));
        if is_on {
            out.line(format_args!(
                "it stays a learner until `penstock cluster sync --node {}`",
                self.held.node
            ));
        }
        renewed
            .iter()
            .for_each(|line| out.line(format_args!("{line}")));
        if is_one_empty {
            out.line(format_args!("{NOBODY_IN_SYNC}"));
        }
        out.finish()
    }
}

impl MemberArgs {
    /// Puts the node into the sync set. Level replica waits for it at once; it may be promoted when
    /// it has all that was acknowledged before.
    pub fn sync(self) -> Result<(), Failure> {
        let began = Instant::now();
        let node = self.held.node;
        let partitions = self.held.partitions();
        let mut draft = self.held.home.draft()?;
        let stands = |draft: &Draft, standing| {
            let is_so = |it: &u16| draft.standing(*it, node) == Some(standing);
            partitions.iter().copied().filter(is_so).collect()
        };
        let in_sync: Vec<u16> = stands(&draft, Standing::Sync);
        let mut out = Output::stdout();
        let is_freed = draft.stay_learner(node, false).map_err(Failure::usage)?;
        if in_sync.len() == partitions.len() {
            if is_freed {
                draft.write().map_err(Failure::usage)?;
                out.done(PLAN_CHANGED);
            }
            out.line(format_args!("node {node} is in the sync set already"));
            return out.finish();
        }
        let joining: Vec<u16> = stands(&draft, Standing::Joining);
        if in_sync.len() + joining.len() < partitions.len() {
            for &partition in &partitions {
                if !in_sync.contains(&partition) {
                    draft
                        .place(partition..=partition, node, Standing::Joining)
                        .map_err(Failure::usage)?;
                }
            }
            check_renewals(&draft, self.no_wait, ANSWER)?;
            let renewed = describe_renewals(&draft);
            draft.write().map_err(Failure::usage)?;
            out.done(PLAN_CHANGED);
            out.line(format_args!(
                "node {node} is joining: level replica waits for it, and it may not be promoted yet"
            ));
            renewed
                .iter()
                .for_each(|line| out.line(format_args!("{line}")));
            if self.no_wait {
                return out.finish();
            }
            draft = self.held.home.draft()?;
        }
        let until = began + Duration::from_millis(self.wait_ms.into());
        let joining: Vec<u16> = stands(&draft, Standing::Joining);
        for primary in writers(&draft, self.held.partitions)? {
            let clients = draft.clients_of(primary).map_err(Failure::usage)?;
            let server = ServerAddress::at(&clients);
            let is_its = |it: &&u16| draft.primary_of(**it).is_ok_and(|it| it == primary);
            let its: Vec<u16> = joining.iter().filter(is_its).copied().collect();
            if let Err(cause) = self.until_level(&server, &its, until) {
                out.finish()?;
                return Err(Failure::no(format!(
                    "node {node} has not all of what node {primary} at {server} wrote within {} \
                     ms: {cause}. It is still joining; give the command again",
                    self.wait_ms
                )));
            }
        }
        for partition in joining {
            draft
                .place(partition..=partition, node, Standing::Sync)
                .map_err(Failure::usage)?;
        }
        draft.write().map_err(Failure::usage)?;
        out.done(PLAN_CHANGED);
        out.line(format_args!(
            "node {node} has all and is in the sync set, after {} ms",
            began.elapsed().as_millis()
        ));
        out.finish()
    }

    /// Waits until a primary waits for the node in all of these partitions, and the node has what
    /// was acknowledged before that.
    fn until_level(
        &self,
        server: &ServerAddress,
        partitions: &[u16],
        until: Instant,
    ) -> Result<(), String> {
        let retry = |cause: String| match Instant::now() < until {
            true => {
                std::thread::sleep(Duration::from_millis(50));
                Ok(())
            }
            false => Err(cause),
        };
        let number = |it: &Value, name: &str| it[name].as_u64().unwrap_or(u64::MAX);
        let is_waited_for = |states: &[Value], partition: u16| {
            let covers = |it: &&Value| {
                number(it, "first") <= partition.into() && number(it, "last") >= partition.into()
            };
            let waits_for = |it: &Value| it["waits_for"].as_array().cloned();
            let nodes = states.iter().find(covers).and_then(waits_for);
            nodes.is_some_and(|nodes| nodes.contains(&self.held.node.into()))
        };
        loop {
            let states = states_of(server, self.held.partitions).map_err(|failure| failure.line)?;
            let mut lacking = partitions.iter().filter(|it| !is_waited_for(&states, **it));
            match lacking.next() {
                None => break,
                Some(partition) => retry(format!(
                    "it does not write partition {partition}, or has not read the plan"
                ))?,
            }
        }
        // A read at level replica waits for all that was appended before it. So each of these reads
        // proves for one partition that the node has all.
        let mut keys = vec![None; usize::from(LINK_PARTITIONS)];
        let mut number = 0_u64;
        while keys.iter().any(Option::is_none) {
            let key = format!("penstock-sync-{number}");
            let partition = partition_of(slot_of(key.as_bytes()));
            keys[partition].get_or_insert(key);
            number += 1;
        }
        // A reply at level replica may take as long as the cluster's file lets it.
        let patient = server
            .clone()
            .within(until.saturating_duration_since(Instant::now()));
        let connection = patient.connect().map_err(|failure| failure.line)?;
        for &partition in partitions {
            let key = keys[usize::from(partition)].as_ref().expect("found");
            loop {
                let answer = connection
                    .call(AckLevel::Replica, Ask::get(key.as_bytes()))
                    .map_err(|failure| failure.line)?;
                let is_reached = matches!(answer.status, Status::Ok | Status::NotFound)
                    && answer.level == AckLevel::Replica;
                if is_reached {
                    break;
                }
                retry(format!("partition {partition}: {}", answer.status.name()))?;
            }
        }
        Ok(())
    }
}

/// Refuses to let primaries go on in a new generation while one of them may still wait until its
/// partition is handed over to it: it would begin without that.
fn check_renewals(draft: &Draft, no_wait: bool, longest: Duration) -> Result<(), Failure> {
    let renewed = draft.renewals();
    if !draft.is_one_handed_over(&renewed) {
        return Ok(());
    }
    if no_wait {
        return Err(Failure::no(
            "partitions go on in a new generation, and some of them may not be handed over yet: \
             give the command without --no-wait; nothing was changed",
        ));
    }
    let first_last = (renewed[0], renewed[renewed.len() - 1]);
    check_written(draft, first_last, longest)
}

/// What people are told of the partitions that go on in a new generation.
fn describe_renewals(draft: &Draft) -> Option<String> {
    let renewed = draft.renewals().len() as u64;
    (renewed > 0).then(|| {
        format!(
            "{} in a new generation: level replica waits for other nodes than before, and for \
             none that may be promoted",
            count(renewed, "partition")
        )
    })
}

/// Refuses while no node writes one of these partitions: its next primary may need the node that
/// would be changed.
pub fn check_written(
    draft: &Draft,
    partitions: (u16, u16),
    longest: Duration,
) -> Result<(), Failure> {
    for primary in writers(draft, partitions)? {
        let clients = draft.clients_of(primary).map_err(Failure::usage)?;
        let server = ServerAddress::at(&clients).within(longest);
        for state in states_of(&server, partitions)? {
            let (first, last) = (&state["first"], &state["last"]);
            let number = |it: &Value| it.as_u64().and_then(|it| u16::try_from(it).ok());
            let mut all = number(first).unwrap_or(0)..=number(last).unwrap_or(0);
            let is_its = all.any(|it| {
                (partitions.0..=partitions.1).contains(&it)
                    && draft.primary_of(it).is_ok_and(|node| node == primary)
            });
            if is_its && state["role"] != "primary" {
                return Err(Failure::no(format!(
                    "node {primary} at {clients} is to write partitions {first} to {last} and is \
                     {} there: let it begin first; nothing was changed",
                    state["role"].as_str().unwrap_or("?")
                )));
            }
        }
    }
    Ok(())
}
