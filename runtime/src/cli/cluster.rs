//! The commands about the nodes of a cluster.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use penstock_runtime::cluster::lostfound::read_lostfound;
use penstock_runtime::cluster::placement::{Moved, Takeover, clients_of, move_partitions};
use serde_json::Value;

use super::connection::ServerAddress;
use super::output::Output;
use super::status::{STATUS_EXAMPLES, StatusArgs, info_of};
use super::{EXIT_CODES, Failure};

/// Of the commands together.
pub const CLUSTER_EXAMPLES: &str = "\
Examples:
  penstock cluster status
  penstock cluster switch --file /etc/penstock/cluster.toml --to 2
  penstock cluster promote --file /etc/penstock/cluster.toml --to 2 --force
  penstock cluster lostfound /var/lib/penstock";

const SWITCH_EXAMPLES: &str = "\
The file is changed and the nodes read it anew: the one that writes stops answering, lets the other one have all, and hands over.
Nothing is lost; clients are told the new address. Where nodes have copies of the file, give --no-wait and copy it: the order does not matter,
and nobody writes until both have it.

Examples:
  penstock cluster switch --file /etc/penstock/cluster.toml --to 2
  penstock cluster switch --file /etc/penstock/cluster.toml --to 2 --partitions 0-127";

const PROMOTE_EXAMPLES: &str = "\
For a node that is lost. First make sure that it is dead: until it reads the file or is reached by its successor it goes on acknowledging at
level disk. The other one begins with what it has received: all that was acknowledged at level replica, and of the rest what had come.
What the lost one had not shipped goes to its lostfound when it comes back.

Examples:
  penstock cluster promote --file /etc/penstock/cluster.toml --to 2 --force
  penstock cluster promote --file /etc/penstock/cluster.toml --to 2 --force --accept-loss";

const LOSTFOUND_EXAMPLES: &str = "\
A node that had written what nobody else received keeps that when it comes back behind another one. Each change is a line with --all:
partition, version, time, key, value in hexadecimal or a dash for a deletion.

Examples:
  penstock cluster lostfound /var/lib/penstock
  penstock cluster lostfound /var/lib/penstock --all";

/// What `penstock cluster` does.
#[derive(Subcommand)]
pub enum ClusterCommand {
    /// Print how all nodes are: roles, links, what each one lacks
    #[command(after_help = format!("{STATUS_EXAMPLES}\n\n{EXIT_CODES}"))]
    Status(StatusArgs),
    /// Let another node write, with nothing lost: the one that writes hands over
    #[command(after_help = format!("{SWITCH_EXAMPLES}\n\n{EXIT_CODES}"))]
    Switch(SwitchArgs),
    /// Let another node write in the place of one that is lost
    #[command(after_help = format!("{PROMOTE_EXAMPLES}\n\n{EXIT_CODES}"))]
    Promote(PromoteArgs),
    /// Print what a node took and could not keep, from its data directory
    #[command(after_help = format!("{LOSTFOUND_EXAMPLES}\n\n{EXIT_CODES}"))]
    Lostfound(LostfoundArgs),
}

/// Who is to write what.
#[derive(Args)]
struct ToArgs {
    /// The cluster's file
    #[arg(long, value_name = "FILE")]
    file: PathBuf,
    /// The node that is to write, by its number
    #[arg(long, value_name = "NODE")]
    to: u8,
    /// Which partitions
    #[arg(long, value_name = "FIRST-LAST", default_value = "0-255", value_parser = first_last)]
    partitions: (u16, u16),
    /// Only change the file
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
    to: ToArgs,
}

/// Arguments of `penstock cluster promote`.
#[derive(Args)]
pub struct PromoteArgs {
    #[command(flatten)]
    to: ToArgs,
    /// It is known that what the lost node had not shipped is missing
    #[arg(long, required = true)]
    force: bool,
    /// Also if the node has started since it last followed: what it had only received may be gone as well
    #[arg(long)]
    accept_loss: bool,
}

/// Arguments of `penstock cluster lostfound`.
#[derive(Args)]
pub struct LostfoundArgs {
    /// The data directory, of a running or a stopped server
    data: PathBuf,
    /// Every change, not only how many there are
    #[arg(long)]
    all: bool,
}

impl ClusterCommand {
    /// Prints it.
    pub fn run(self) -> Result<(), Failure> {
        match self {
            ClusterCommand::Status(args) => args.run(),
            ClusterCommand::Switch(args) => args.run(),
            ClusterCommand::Promote(args) => args.run(),
            ClusterCommand::Lostfound(args) => args.run(),
        }
    }
}

fn first_last(text: &str) -> Result<(u16, u16), String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (first.parse(), last.parse()) {
        (Ok(first), Ok(last)) if first <= last && last <= 255 => Ok((first, last)),
        _ => Err("FIRST-LAST or one number is wanted, 0 to 255".into()),
    }
}

impl ToArgs {
    /// What the node is to these partitions, by its own account.
    fn roles(&self, server: &ServerAddress) -> Result<Vec<String>, Failure> {
        let (first, last) = self.partitions;
        let partitions = partitions_of(server)?;
        let is_asked = |it: &&Value| {
            let number = |name: &str| it[name].as_u64().unwrap_or(u64::MAX);
            number("first") <= u64::from(last) && number("last") >= u64::from(first)
        };
        let roles = partitions.iter().filter(is_asked);
        Ok(roles
            .map(|it| it["role"].as_str().unwrap_or("?").to_string())
            .collect())
    }

    /// Refuses if the node does not hold all of them as one of these.
    fn check(&self, allowed: &[&str], otherwise: &str) -> Result<(), Failure> {
        let clients = clients_of(&self.file, self.to).map_err(Failure::usage)?;
        let roles = self.roles(&ServerAddress::at(&clients))?;
        let other = roles.iter().find(|role| !allowed.contains(&role.as_str()));
        match other {
            None => Ok(()),
            Some(role) => Err(Failure::no(format!(
                "node {} at {clients} is {role}, not following: {otherwise}",
                self.to
            ))),
        }
    }

    fn change(&self, takeover: Takeover) -> Result<(), Failure> {
        let (first, last) = self.partitions;
        let began = Instant::now();
        let moved =
            move_partitions(&self.file, first..=last, self.to, takeover).map_err(Failure::usage)?;
        let mut out = Output::stdout();
        out.line(format_args!("{}", told(self.to, &moved)));
        if moved.partitions.is_empty() || self.no_wait {
            return out.finish();
        }
        let server = ServerAddress::at(&moved.clients);
        let longest = Duration::from_millis(self.wait_ms.into());
        while self.roles(&server)?.iter().any(|role| role != "primary") {
            if began.elapsed() > longest {
                out.finish()?;
                return Err(Failure::no(format!(
                    "node {} at {server} has not begun in {} ms; its log says why, and the file stays as it is now",
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

fn told(to: u8, moved: &Moved) -> String {
    let Moved {
        partitions,
        from,
        generation,
        ..
    } = moved;
    match partitions.len() {
        0 => format!("node {to} is to write them already: the file stays as it is"),
        count => {
            let from: Vec<String> = from.iter().map(|node| format!(" of node {node}")).collect();
            format!(
                "{count} partitions{} are to be written by node {to}, in generation {generation}",
                from.join(" and")
            )
        }
    }
}

impl SwitchArgs {
    fn run(self) -> Result<(), Failure> {
        if !self.to.no_wait {
            let otherwise = "it would not be handed over to; nothing was changed";
            self.to.check(&["following", "primary"], otherwise)?;
        }
        self.to.change(Takeover::HandedOver)
    }
}

impl PromoteArgs {
    fn run(self) -> Result<(), Failure> {
        assert!(self.force, "the command is not read without it");
        let is_loss_accepted = self.accept_loss;
        if !self.to.no_wait && !is_loss_accepted {
            let otherwise = "what it had only received may be gone. Look whether another node has more, or give --accept-loss; nothing was changed";
            self.to
                .check(&["following", "followed", "primary"], otherwise)?;
        }
        self.to.change(Takeover::Forced { is_loss_accepted })
    }
}

impl LostfoundArgs {
    fn run(self) -> Result<(), Failure> {
        let files = read_lostfound(&self.data)
            .map_err(|error| Failure::usage(format!("{}: {error}", self.data.display())))?;
        let mut out = Output::stdout();
        if files.is_empty() {
            out.line(format_args!(
                "nothing is in the lostfound of {}",
                self.data.display()
            ));
        }
        for file in &files {
            let (records, keys) = file.counts();
            let torn = match file.torn_bytes {
                0 => String::new(),
                bytes => format!(", {bytes} bytes at the end are no record"),
            };
            let path = file.path.display();
            out.line(format_args!(
                "{path}: {records} records of {keys} keys{torn}"
            ));
            for change in file.changes.iter().filter(|_| self.all) {
                let value = match &change.value {
                    Some(value) => value.iter().map(|byte| format!("{byte:02x}")).collect(),
                    None => "-".to_string(),
                };
                let (epoch, sequence) = change.version;
                out.line(format_args!(
                    "{} {epoch}:{sequence} {} {} {value}",
                    change.partition,
                    change.time_ms,
                    change.key.escape_ascii()
                ));
            }
        }
        out.finish()
    }
}

/// What a node is to its partitions.
fn partitions_of(server: &ServerAddress) -> Result<Vec<Value>, Failure> {
    let info = info_of(server)?;
    Ok(info["partitions"].as_array().cloned().unwrap_or_default())
}
