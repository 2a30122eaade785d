//! `penstock cluster`: the commands about the nodes of a cluster.

use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use penstock::cluster::plan::placement::{Accepted, Draft, Moved, Standing, Takeover};
use penstock_net::link::message::LINK_PARTITIONS;
use serde_json::Value;

use super::certificates::{CERTS_EXAMPLES, CertsArgs};
use super::failover::{FAILOVER_EXAMPLES, FailoverArgs, PAUSE_EXAMPLES, pause};
use super::lostfound::{LOSTFOUND_EXAMPLES, LostfoundArgs};
use super::membership::{
    ADD_EXAMPLES, ADDRESS_EXAMPLES, AddArgs, AddressArgs, DROP_EXAMPLES, DropArgs, IMPORT_EXAMPLES,
    INIT_EXAMPLES, ImportArgs, InitArgs, LEARNER_EXAMPLES, LearnerArgs, MemberArgs, RENEW_EXAMPLES,
    RenewArgs, SYNC_EXAMPLES,
};
use super::output::{Output, PLAN_CHANGED, count};
use super::partitions::{ANSWER, check_revision, first_last, states_of, writers};
use super::plan_home::{HomeArgs, SHOW_EXAMPLES};
use super::server::ServerAddress;
use super::status::{STATUS_EXAMPLES, StatusArgs, info_of};
use super::{EXIT_CODES, Failure};

/// Help about all commands of `penstock cluster`.
pub const CLUSTER_EXAMPLES: &str = "\
The nodes of a cluster have one plan in common, in a file or under a key of etcd. `init` writes the
first one. Later commands change it in place, and the nodes read it anew within a second. Each
command tells what it has changed. A command that is not safe is refused before it changes anything,
and so is one that meets the change of another one.

Examples:
  penstock cluster init --file /etc/penstock/cluster.toml \\
    --node 1,10.0.0.1:7414,10.0.0.1:7411 --node 2,10.0.0.2:7414,10.0.0.2:7411
  penstock cluster status
  penstock cluster switch --file /etc/penstock/cluster.toml --to 2
  penstock cluster promote --file /etc/penstock/cluster.toml --to 2 --force
  penstock cluster add --file /etc/penstock/cluster.toml --node 3,10.0.0.3:7414,10.0.0.3:7411
  penstock cluster sync --file /etc/penstock/cluster.toml --node 3
  penstock cluster certs --file /etc/penstock/cluster.toml
  penstock cluster lostfound /var/lib/penstock";

const SWITCH_EXAMPLES: &str = "\
The file is changed and the nodes read it anew. The node that writes stops answering, ships all that
the other one lacks, and hands over. Nothing is lost, and clients are told the new address. Where
nodes have copies of the file, give --no-wait and copy it: the order does not matter, and no node
writes until both have it.

Examples:
  penstock cluster switch --file /etc/penstock/cluster.toml --to 2
  penstock cluster switch --file /etc/penstock/cluster.toml --to 2 --partitions 0-127
  penstock cluster switch --file /etc/penstock/cluster.toml --from 1";

const PROMOTE_EXAMPLES: &str = "\
Replaces a lost node. The promoted node takes over the partitions of the lost one, which leaves the
sync set of all other partitions, too (with --partitions: of those that it names; for the rest give
`penstock cluster learner`). Partitions of a third node that answers stay as they are, unless
--partitions names them; with --no-wait no node is asked.

First make sure that the lost node is dead: it goes on acknowledging at level disk until it reads
the file or its successor reaches it. The promoted node begins with what it has received: all that
was acknowledged at level replica, and whatever else had come. What the lost node had not shipped
goes to its lostfound when it comes back. The lost node is a learner from now on: level replica does
not wait for it until `penstock cluster sync` makes it one of the sync set again. With --keep-sync
it stays in the sync set, and level replica waits for its return.

--accept-loss also lets a learner begin, and a node that has started since it last followed: records
that it had not received, or only received, are lost, whatever level they were acknowledged at.
--accept-incomplete also lets a node begin in the middle of a scan or a rewind: keys may be missing,
older than others, or there again although they were deleted. It is for the day when no other copy
is left.

Examples:
  penstock cluster promote --file /etc/penstock/cluster.toml --to 2 --force
  penstock cluster promote --file /etc/penstock/cluster.toml --to 2 --force --accept-loss";

/// How long a command waits for a node to have the role that the command needs.
const PATIENCE: Duration = Duration::from_secs(2);

/// The commands of `penstock cluster`.
#[derive(Subcommand)]
pub enum ClusterCommand {
    /// Write the file and the secret of a new cluster
    #[command(after_help = format!("{INIT_EXAMPLES}\n\n{EXIT_CODES}"))]
    Init(InitArgs),
    /// Add a node, as a learner of everything
    #[command(after_help = format!("{ADD_EXAMPLES}\n\n{EXIT_CODES}"))]
    Add(AddArgs),
    /// Put a node into the sync set: level replica waits for it, and it may be promoted once it has
    /// all records
    #[command(after_help = format!("{SYNC_EXAMPLES}\n\n{EXIT_CODES}"))]
    Sync(MemberArgs),
    /// Make a node a learner: it gets all records, and no write waits for it
    #[command(after_help = format!("{LEARNER_EXAMPLES}\n\n{EXIT_CODES}"))]
    Learner(LearnerArgs),
    /// Take a node out of the cluster
    #[command(after_help = format!("{DROP_EXAMPLES}\n\n{EXIT_CODES}"))]
    Drop(DropArgs),
    /// Change where the others and clients find a node
    #[command(after_help = format!("{ADDRESS_EXAMPLES}\n\n{EXIT_CODES}"))]
    Address(AddressArgs),
    /// Let the nodes that write go on in the next generation
    #[command(after_help = format!("{RENEW_EXAMPLES}\n\n{EXIT_CODES}"))]
    Renew(RenewArgs),
    /// Print the plan as it stands in its home; in etcd it says who has changed it, and when
    #[command(after_help = format!("{SHOW_EXAMPLES}\n\n{EXIT_CODES}"))]
    Show(HomeArgs),
    /// Put the plan of a file into etcd: that of a cluster that had a file, or one that a node has
    /// kept for an etcd that has lost it
    #[command(after_help = format!("{IMPORT_EXAMPLES}\n\n{EXIT_CODES}"))]
    Import(ImportArgs),
    /// Write the certificates of the nodes, or of clients, and the CA that signs them
    #[command(after_help = format!("{CERTS_EXAMPLES}\n\n{EXIT_CODES}"))]
    Certs(CertsArgs),
    /// Print the state of all nodes: roles, links, how far each one is behind
    #[command(after_help = format!("{STATUS_EXAMPLES}\n\n{EXIT_CODES}"))]
    Status(StatusArgs),
    /// Let nodes replace a lost one by themselves, or leave that to a person
    #[command(after_help = format!("{FAILOVER_EXAMPLES}\n\n{EXIT_CODES}"))]
    Failover(FailoverArgs),
    /// Keep nodes from taking over and from entering a sync set, while somebody works on them
    #[command(after_help = format!("{PAUSE_EXAMPLES}\n\n{EXIT_CODES}"))]
    Pause(HomeArgs),
    /// End a pause
    #[command(after_help = format!("{PAUSE_EXAMPLES}\n\n{EXIT_CODES}"))]
    Resume(HomeArgs),
    /// Let another node write without any loss: the node that writes now hands over
    #[command(after_help = format!("{SWITCH_EXAMPLES}\n\n{EXIT_CODES}"))]
    Switch(SwitchArgs),
    /// Let a node write in the place of a lost one
    #[command(after_help = format!("{PROMOTE_EXAMPLES}\n\n{EXIT_CODES}"))]
    Promote(PromoteArgs),
    /// Print the records that a node acknowledged and had to give up, from its data directory, or
    /// send them to the node that writes now
    #[command(after_help = format!("{LOSTFOUND_EXAMPLES}\n\n{EXIT_CODES}"))]
    Lostfound(LostfoundArgs),
}

/// Which node is to write which partitions.
#[derive(Args)]
struct ToArgs {
    #[command(flatten)]
    home: HomeArgs,
    /// Number of the node that is to write
    #[arg(long, value_name = "NODE")]
    to: u8,
    /// Only these partitions; without it all, or with `promote` those that nobody writes
    #[arg(long, value_name = "FIRST-LAST", value_parser = first_last)]
    partitions: Option<(u16, u16)>,
    /// Only change the plan, and ask no node
    #[arg(long)]
    no_wait: bool,
    /// Longest wait until the node writes, in milliseconds
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    wait_ms: u32,
}

/// Arguments of `penstock cluster switch`.
#[derive(Args)]
pub struct SwitchArgs {
    #[command(flatten)]
    home: HomeArgs,
    /// Number of the node that is to write
    #[arg(long, value_name = "NODE", required_unless_present = "from")]
    to: Option<u8>,
    /// Number of a node that is to write nothing any more: members of the sync set that follow take
    /// what it writes
    #[arg(long, value_name = "NODE", conflicts_with_all = ["to", "partitions", "no_wait"])]
    from: Option<u8>,
    /// Only these partitions; without it all
    #[arg(long, value_name = "FIRST-LAST", value_parser = first_last)]
    partitions: Option<(u16, u16)>,
    /// Only change the plan, and ask no node
    #[arg(long)]
    no_wait: bool,
    /// Longest wait until the node writes, in milliseconds
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    wait_ms: u32,
}

/// Arguments of `penstock cluster promote`.
#[derive(Args)]
pub struct PromoteArgs {
    #[command(flatten)]
    to: ToArgs,
    /// Confirm that records are missing that the lost node had not shipped
    #[arg(long, required = true)]
    force: bool,
    /// Also promote a learner, or a node that has started since it last followed: records are lost
    /// that it had not received, or had only received
    #[arg(long)]
    accept_loss: bool,
    /// Also promote a node in the middle of a scan or a rewind, or one that has no data and runs:
    /// for the day when there is no other copy
    #[arg(long)]
    accept_incomplete: bool,
    /// Leave the lost node in the sync set: level replica waits until it is back
    #[arg(long)]
    keep_sync: bool,
}

impl ClusterCommand {
    /// Runs the command and prints what it did.
    pub fn run(self) -> Result<(), Failure> {
        match self {
            ClusterCommand::Init(args) => args.run(),
            ClusterCommand::Add(args) => args.run(),
            ClusterCommand::Sync(args) => args.sync(),
            ClusterCommand::Learner(args) => args.run(),
            ClusterCommand::Drop(args) => args.run(),
            ClusterCommand::Address(args) => args.run(),
            ClusterCommand::Renew(args) => args.run(),
            ClusterCommand::Show(args) => args.show(),
            ClusterCommand::Import(args) => args.run(),
            ClusterCommand::Certs(args) => args.run(),
            ClusterCommand::Status(args) => args.run(),
            ClusterCommand::Failover(args) => args.run(),
            ClusterCommand::Pause(home) => pause(&home, true),
            ClusterCommand::Resume(home) => pause(&home, false),
            ClusterCommand::Switch(args) => args.run(),
            ClusterCommand::Promote(args) => args.run(),
            ClusterCommand::Lostfound(args) => args.run(),
        }
    }
}

impl ToArgs {
    fn draft(&self) -> Result<Draft, Failure> {
        self.home.draft()
    }

    /// First and last of the partitions that are named, or of all.
    fn range(&self) -> (u16, u16) {
        self.partitions.unwrap_or((0, LINK_PARTITIONS - 1))
    }

    fn all(&self) -> Vec<u16> {
        let (first, last) = self.range();
        (first..=last).collect()
    }

    /// The address of a node. It must answer within the time of the whole command.
    fn server_at(&self, clients: &str) -> ServerAddress {
        ServerAddress::at(clients).within(ANSWER.min(Duration::from_millis(self.wait_ms.into())))
    }

    /// Fails unless the node has a role in `allowed` for each of the partitions. For partitions
    /// that the node itself wrote last, a role in `of_last` is enough.
    fn check(
        &self,
        draft: &Draft,
        partitions: &[u16],
        allowed: &[&str],
        of_last: &[&str],
        otherwise: &str,
    ) -> Result<(), Failure> {
        let began = Instant::now();
        let clients = draft.clients_of(self.to).map_err(Failure::usage)?;
        let server = self.server_at(&clients);
        loop {
            let mut states = states_of(&server, self.range()).map_err(|failure| Failure {
                line: format!(
                    "node {}, which is to write, does not answer ({}); nothing was changed",
                    self.to, failure.line
                ),
                ..failure
            })?;
            states.retain(|it| concerns(it, partitions));
            // An idle node without a record has never had the partition: it has promised no epoch
            // and received nothing.
            let empty = states
                .iter()
                .find(|it| it["received"] == 0 && allowed.contains(&"idle"));
            if let Some(empty) = empty {
                return Err(Failure::no(format!(
                    "node {} at {clients} has nothing at all of partition {}: promote a node that \
                     has the data, or if there is none any more and all of it is to begin anew, \
                     give --accept-incomplete; nothing was changed",
                    self.to, empty["first"]
                )));
            }
            let refused = |it: &&Value| {
                let is_one = |roles: &[&str]| roles.iter().any(|role| it["role"] == **role);
                let may = is_one(allowed) || (it["was_last"] == true && is_one(of_last));
                !may
            };
            let Some(refused) = states.iter().find(refused) else {
                return Ok(());
            };
            let role = refused["role"].as_str().unwrap_or("?");
            if began.elapsed() > PATIENCE {
                return Err(Failure::no(format!(
                    "node {} at {clients} is {role}, not following: {otherwise}",
                    self.to
                )));
            }
            // Right after another change a node needs some moments until it follows.
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn change(&self, mut draft: Draft, taken: &Taken, takeover: Takeover) -> Result<(), Failure> {
        let began = Instant::now();
        let moved = draft
            .move_partitions(&taken.partitions, self.to, takeover)
            .map_err(Failure::usage)?;
        let clients = draft.clients_of(self.to).map_err(Failure::usage)?;
        let is_sync_kept = matches!(
            takeover,
            Takeover::Forced {
                is_sync_kept: true,
                ..
            }
        );
        if !moved.partitions.is_empty() && !is_sync_kept {
            for &lost in &taken.lost {
                draft.leave_sync(&self.all(), lost);
            }
        }
        let lines = describe(&draft, self.to, &moved, taken, takeover);
        let mut out = Output::stdout();
        if !moved.partitions.is_empty() {
            draft.write().map_err(Failure::usage)?;
            out.done(PLAN_CHANGED);
        }
        lines
            .iter()
            .for_each(|line| out.line(format_args!("{line}")));
        if moved.partitions.is_empty() || self.no_wait {
            return out.finish();
        }
        let server = self.server_at(&clients);
        let longest = Duration::from_millis(self.wait_ms.into());
        let is_written = |it: &Value| it["role"] == "primary" || !concerns(it, &moved.partitions);
        while !states_of(&server, self.range())?.iter().all(is_written) {
            if began.elapsed() > longest {
                out.finish()?;
                let advice = match takeover {
                    Takeover::HandedOver => {
                        "nobody writes them until both nodes are up and have the plan; \
                         RUNBOOK.md, Cluster, tells how to end that otherwise"
                    }
                    Takeover::Forced { .. } => "its log says why",
                };
                return Err(Failure::no(format!(
                    "node {} at {server} has not begun in {} ms: {advice}. The plan stays as it \
                     is now",
                    self.to, self.wait_ms
                )));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        out.line(format_args!(
            "node {} at {server} writes them, after {} ms",
            self.to,
            began.elapsed().as_millis()
        ));
        out.finish()
    }
}

fn describe(
    draft: &Draft,
    to: u8,
    moved: &Moved,
    taken: &Taken,
    takeover: Takeover,
) -> Vec<String> {
    let Moved {
        partitions,
        from,
        generation,
    } = moved;
    if partitions.is_empty() {
        return vec![format!(
            "node {to} is to write them already: the plan stays as it is"
        )];
    }
    let nodes = |of: &[u8]| {
        let nodes: Vec<String> = of.iter().map(|node| format!("node {node}")).collect();
        nodes.join(" and ")
    };
    let whose = match from.is_empty() {
        true => String::new(),
        false => format!(" of {}", nodes(from)),
    };
    let mut lines = vec![format!(
        "{}{whose} {} to be written by node {to}, in generation {generation}",
        count(partitions.len() as u64, "partition"),
        if partitions.len() == 1 { "is" } else { "are" },
    )];
    for (node, of_node) in &taken.left {
        lines.push(format!(
            "{} of node {node} {}: the node answers and writes there",
            count(*of_node as u64, "partition"),
            if *of_node == 1 {
                "stays as it is"
            } else {
                "stay as they are"
            },
        ));
    }
    if let Takeover::Forced {
        is_sync_kept: false,
        ..
    } = takeover
        && !from.is_empty()
    {
        lines.push(match from.as_slice() {
            [one] => format!(
                "node {one} left the sync set and is a learner: when it is back and follows, \
                 `penstock cluster sync` lets level replica wait for it again"
            ),
            _ => format!(
                "{} left the sync set and are learners: when they are back and follow, `penstock \
                 cluster sync` lets level replica wait for them again",
                nodes(from)
            ),
        });
    }
    if let Takeover::Forced {
        accepted: Accepted::Loss | Accepted::Incomplete,
        ..
    } = takeover
    {
        lines.push(format!(
            "a loss is accepted: node {to} may lack what was acknowledged at levels all and \
             replica, too, and its log says so"
        ));
    }
    let (waited_for, is_one_empty) = draft.waited_for(partitions);
    lines.push(match is_one_empty {
        true => {
            "level replica is answered NOREPLICAS from now on, and level all is disk: nobody is in \
             the sync set"
                .into()
        }
        false => format!("level replica waits for {}", nodes(&waited_for)),
    });
    lines
}

impl SwitchArgs {
    fn run(self) -> Result<(), Failure> {
        let Some(from) = self.from else {
            return ToArgs {
                home: self.home,
                to: self.to.expect("one of both is there"),
                partitions: self.partitions,
                no_wait: self.no_wait,
                wait_ms: self.wait_ms,
            }
            .switch();
        };
        let draft = self.home.draft()?;
        draft.clients_of(from).map_err(Failure::usage)?;
        // Who follows, asked once each.
        let mut follows: Vec<(u8, Vec<Value>)> = Vec::new();
        for node in draft.nodes().into_iter().filter(|&node| node != from) {
            let clients = draft.clients_of(node).map_err(Failure::usage)?;
            let server = ServerAddress::at(&clients).within(ANSWER);
            let mut states = states_of(&server, (0, LINK_PARTITIONS - 1)).unwrap_or_default();
            states.retain(|it| it["role"] == "following");
            follows.push((node, states));
        }
        let successor = |partition: u16| {
            let may = |it: &&(u8, Vec<Value>)| {
                draft.standing(partition, it.0) == Some(Standing::Sync)
                    && it.1.iter().any(|state| concerns(state, &[partition]))
            };
            follows.iter().find(may).map(|&(node, _)| node)
        };
        let all = 0..LINK_PARTITIONS;
        let written = all.filter(|&it| draft.primary_of(it).is_ok_and(|node| node == from));
        let written: Vec<(u16, Option<u8>)> = written.map(|it| (it, successor(it))).collect();
        if let Some((partition, _)) = written.iter().find(|(_, to)| to.is_none()) {
            return Err(Failure::no(format!(
                "no node of the sync set of partition {partition} follows, so none can take it \
                 from node {from}; nothing was changed"
            )));
        }
        let is_beside = |one: &(u16, Option<u8>), next: &(u16, Option<u8>)| {
            one.0 + 1 == next.0 && one.1 == next.1
        };
        for run in written.chunk_by(is_beside) {
            ToArgs {
                home: self.home.clone(),
                to: run[0].1.expect("it was looked at"),
                partitions: Some((run[0].0, run[run.len() - 1].0)),
                no_wait: false,
                wait_ms: self.wait_ms,
            }
            .switch()?;
        }
        if written.is_empty() {
            let mut out = Output::stdout();
            out.line(format_args!("node {from} writes nothing"));
            return out.finish();
        }
        Ok(())
    }
}

impl ToArgs {
    fn switch(self) -> Result<(), Failure> {
        let to = &self;
        let draft = to.draft()?;
        if !to.no_wait {
            for node in writers(&draft, to.range())? {
                let clients = draft.clients_of(node).map_err(Failure::usage)?;
                let server = to.server_at(&clients);
                let info = info_of(&server).map_err(|failure| {
                    Failure::no(format!(
                        "node {node}, which is to hand over, does not answer ({}); nothing was \
                         changed. If it is lost: penstock cluster promote {} --to {} --force",
                        failure.line,
                        to.home.describe(),
                        to.to
                    ))
                })?;
                check_revision(&draft, node, &info)?;
            }
            let otherwise = "it would not be handed over to; nothing was changed";
            to.check(&draft, &to.all(), &["following", "primary"], &[], otherwise)?;
        }
        let taken = Taken {
            partitions: to.all(),
            ..Taken::default()
        };
        to.change(draft, &taken, Takeover::HandedOver)
    }
}

impl PromoteArgs {
    fn run(self) -> Result<(), Failure> {
        assert!(self.force, "the command is not read without it");
        let accepted = match (self.accept_incomplete, self.accept_loss) {
            (true, _) => Accepted::Incomplete,
            (false, true) => Accepted::Loss,
            (false, false) => Accepted::Nothing,
        };
        let draft = self.to.draft()?;
        draft.clients_of(self.to.to).map_err(Failure::usage)?;
        let taken = self.taken(&draft)?;
        if taken.partitions.is_empty() {
            let nodes: Vec<String> = taken
                .left
                .iter()
                .map(|(node, _)| node.to_string())
                .collect();
            return Err(Failure::no(format!(
                "node {}, so nothing was changed: `penstock cluster switch` loses nothing. To \
                 take these partitions all the same name them, with --partitions",
                nodes.join(" answers and writes, node ") + " answers and writes"
            )));
        }
        if !self.to.no_wait {
            let loss = "what it had only received may be gone. Look whether another node has \
                more, or give --accept-loss; nothing was changed";
            let half = "not all of it is there. Promote a node that has all, or if there is none \
                any more, give --accept-incomplete; nothing was changed";
            let followed = ["following", "followed", "primary"];
            let whole = [
                &followed[..],
                &["idle", "catching up", "beginning", "draining"],
            ]
            .concat();
            // A node that wrote last has on its disk all that it acknowledged. A handover may have
            // stopped in any of its states.
            let of_last = ["draining", "idle"];
            match accepted {
                Accepted::Nothing => {
                    self.to
                        .check(&draft, &taken.partitions, &followed, &of_last, loss)?
                }
                Accepted::Loss => self
                    .to
                    .check(&draft, &taken.partitions, &whole, &[], half)?,
                Accepted::Incomplete => {}
            }
        }
        let is_sync_kept = self.keep_sync;
        let takeover = Takeover::Forced {
            accepted,
            is_sync_kept,
        };
        self.to.change(draft, &taken, takeover)
    }

    /// The partitions that the command moves. Without --partitions and --no-wait these are the
    /// partitions that no node writes. With either option they are all named partitions, also
    /// those that a node writes.
    fn taken(&self, draft: &Draft) -> Result<Taken, Failure> {
        let to = &self.to;
        let mut taken = Taken {
            partitions: to.all(),
            ..Taken::default()
        };
        if to.no_wait {
            return Ok(taken);
        }
        for node in writers(draft, to.range())? {
            if node == to.to {
                continue;
            }
            let clients = draft.clients_of(node).map_err(Failure::usage)?;
            let Ok(states) = states_of(&to.server_at(&clients), to.range()) else {
                taken.lost.push(node);
                continue;
            };
            if to.partitions.is_some() {
                continue;
            }
            let before = taken.partitions.len();
            let is_written = |partition: u16| {
                let mut states = states.iter().filter(|it| it["role"] == "primary");
                draft.primary_of(partition).is_ok_and(|it| it == node)
                    && states.any(|it| concerns(it, &[partition]))
            };
            taken.partitions.retain(|&partition| !is_written(partition));
            if taken.partitions.len() < before {
                taken.left.push((node, before - taken.partitions.len()));
            }
        }
        Ok(taken)
    }
}

/// The partitions that a node is to write in the place of others.
#[derive(Default)]
struct Taken {
    partitions: Vec<u16>,
    /// Nodes that should write some of the partitions and do not answer.
    lost: Vec<u8>,
    /// Nodes that answer and write, with the number of their partitions, which stay.
    left: Vec<(u8, usize)>,
}

/// Whether a state that a node has told is about one of these partitions.
fn concerns(state: &Value, partitions: &[u16]) -> bool {
    let number = |name: &str| state[name].as_u64().unwrap_or(u64::MAX);
    let is_its = |it: &u16| (number("first")..=number("last")).contains(&u64::from(*it));
    partitions.iter().any(is_its)
}
