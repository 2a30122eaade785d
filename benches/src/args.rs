//! What `penstock bench` can be asked.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use penstock_client::Identity;
use penstock_net::level::AckLevel;

use crate::entry::Access;
use crate::{BenchError, TlsArgs};

/// What the connections do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Workload {
    /// PING frames, answered by the server's loop without the store: the limit of everything else.
    Echo,
    /// Batches of PING items, each read and answered by the shard without the store: the limit of
    /// what works item by item. An item carries the value there and back.
    EchoItems,
    /// Reads of random keys.
    Get,
    /// Writes of random keys.
    Set,
    /// Decrements of one key under the guard that it is at least 1.
    Decr,
    /// Purchases by APPLY: one unit of one key under the guard that there is one, and a hold for
    /// fifteen minutes under a random key. All keys are of one slot. Each has a token.
    Buy,
    /// The same purchases when nothing is left: each is refused.
    SoldOut,
    /// Nine reads to one write, keys drawn by a zipf law (0.99).
    Mixed,
}

impl Workload {
    /// Whether it draws from `--keys`.
    pub(crate) fn has_keys(self) -> bool {
        matches!(self, Workload::Get | Workload::Set | Workload::Mixed)
    }

    /// Whether its operations have tokens.
    pub(crate) fn has_tokens(self) -> bool {
        matches!(self, Workload::Buy | Workload::SoldOut)
    }
}

/// The ack level of the requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Level {
    /// Nothing is promised.
    None,
    /// Durable within the server's interval.
    Interval,
    /// Durable before the reply.
    Disk,
    /// Durable, and received by every node that may write next; `disk` if there is none.
    All,
    /// Durable, and received by every node of the sync set, at least one.
    Replica,
}

impl Level {
    pub(crate) fn wire(self) -> AckLevel {
        match self {
            Level::None => AckLevel::None,
            Level::Interval => AckLevel::Interval,
            Level::Disk => AckLevel::Disk,
            Level::All => AckLevel::All,
            Level::Replica => AckLevel::Replica,
        }
    }
}

/// By which ports connections come, and what is spoken there.
#[derive(Args, Clone, Debug)]
pub struct PortArgs {
    /// Bytes in, bytes out, for a server that only echoes (examples/bare_echo)
    #[arg(long)]
    pub raw: bool,
    /// All connections by the port that the shards share; otherwise each comes by the port of a
    /// shard, if these can be reached, and asks for keys of that shard alone
    #[arg(long, conflicts_with = "raw")]
    pub shared_port: bool,
}

/// The arguments.
#[derive(Args, Clone, Debug)]
pub struct BenchArgs {
    /// What the connections do
    #[arg(required_unless_present = "compare")]
    pub workload: Option<Workload>,
    /// Compare two results of --json, second by second: whether they differ, or only by chance
    #[arg(long, num_args = 2, value_names = ["A", "B"], conflicts_with = "workload")]
    pub compare: Vec<PathBuf>,
    /// The server; with --ledger also the nodes of a cluster, with commas
    #[arg(
        long,
        value_name = "HOST:PORT",
        env = "PENSTOCK_ADDR",
        default_value = "127.0.0.1:7411",
        value_delimiter = ',',
        value_parser = address
    )]
    pub addr: Vec<SocketAddr>,
    /// How it is reached.
    #[command(flatten)]
    pub tls: TlsArgs,
    /// Who logs in.
    #[arg(skip)]
    pub identity: Option<Identity>,
    /// Connections
    #[arg(long, short, default_value_t = 50, value_parser = from_to(1, 10_000))]
    pub connections: u32,
    /// Operations that each connection has under way: one batch frame of so many
    #[arg(long, short, default_value_t = 16, value_parser = from_to(1, 1024))]
    pub depth: u32,
    /// A frame for each operation instead of one batch frame
    #[arg(long)]
    pub single: bool,
    /// Bytes of a value, and of an operation's share of an echo
    #[arg(long, default_value_t = 64, value_parser = from_to(0, 1 << 20))]
    pub value_bytes: u32,
    /// Keys that get, set and mixed draw from
    #[arg(long, default_value_t = 10_000, value_parser = from_to(1, 100_000_000))]
    pub keys: u32,
    /// Purchases without tokens: what the tokens of buy and sold-out cost
    #[arg(long)]
    pub no_tokens: bool,
    /// The keys exist already, by an earlier run: write none before get, set or mixed
    #[arg(long)]
    pub filled: bool,
    /// Leave the keys where they are, for further runs with --filled; otherwise they are deleted
    /// behind the run
    #[arg(long)]
    pub keep: bool,
    /// Seconds that are measured; --compare wants some more than eight of them
    #[arg(long, default_value_t = 10.0)]
    pub duration: f64,
    /// Seconds before that, not measured
    #[arg(long, default_value_t = 1.0)]
    pub warmup: f64,
    /// End after so many operations, if that comes before the duration
    #[arg(long)]
    pub requests: Option<u64>,
    /// Open loop: operations per second that are due, whether or not the server keeps up
    #[arg(long)]
    pub rate: Option<f64>,
    /// Ack level of the requests. A server raises it to its own minimum, and the report tells the
    /// level reached
    #[arg(long, value_enum, default_value_t = Level::Disk)]
    pub level: Level,
    /// The levels none, interval and disk in turn: the price of durability (needs serve
    /// --durability none)
    #[arg(long)]
    pub levels: bool,
    /// With --levels: each level runs so many times, in turn with the others, for its share of the
    /// duration
    #[arg(long, default_value_t = 3, requires = "levels", value_parser = from_to(1, 1000))]
    pub rounds: u32,
    /// Seconds of an interval of the time series
    #[arg(long, default_value_t = 1.0)]
    pub interval: f64,
    /// Keep accounts: what decr was acknowledged against what the counter lost. Connections that
    /// end are made anew, also to another node, and what they had not been answered is unknown
    #[arg(long)]
    pub ledger: bool,
    /// By which ports.
    #[command(flatten)]
    pub ports: PortArgs,
    /// Run on this CPU
    #[arg(long)]
    pub pin: Option<usize>,
    /// Seed of the keys
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// All figures as a table
    #[arg(long)]
    pub full: bool,
    /// All figures as JSON, with the time series and the whole histogram
    #[arg(long)]
    pub json: bool,
    /// The time series as CSV, one line for each interval
    #[arg(long, conflicts_with_all = ["json", "full"])]
    pub csv: bool,
    /// Allow a server on another machine
    #[arg(long)]
    pub allow_remote: bool,
}

impl BenchArgs {
    /// What the connections do.
    pub(crate) fn workload(&self) -> Workload {
        self.workload
            .expect("the command line asks for one unless results are compared")
    }

    /// By what the server is reached.
    pub(crate) fn access(&self) -> Result<Access, BenchError> {
        Access::new(&self.tls, self.identity.as_ref())
    }

    pub(crate) fn check(&self) -> Result<(), BenchError> {
        let wrong = |text: String| Err(BenchError::Arguments(text));
        let is_remote = |addr: &&SocketAddr| !addr.ip().is_loopback();
        if let Some(addr) = self.addr.iter().find(is_remote)
            && !self.allow_remote
        {
            return wrong(format!(
                "{addr} is another machine: a load test there needs --allow-remote"
            ));
        }
        if self.addr.len() != 1 && !self.ledger {
            return wrong(format!(
                "--addr names {} servers; one is measured, and only --ledger goes from one to \
                 another",
                self.addr.len()
            ));
        }
        if self.ports.raw && matches!(self.tls.client_tls(), Ok(Some(_))) {
            return wrong("--raw is of a server without TLS, and --tls-ca asks for TLS".into());
        }
        let is_time = |seconds: f64| seconds.is_finite() && (0.0..=86_400.0).contains(&seconds);
        if !is_time(self.duration) || self.duration == 0.0 || !is_time(self.warmup) {
            return wrong(format!(
                "--duration {} and --warmup {} are seconds, at most a day",
                self.duration, self.warmup
            ));
        }
        if !is_time(self.interval) || self.interval < 0.1 {
            return wrong(format!(
                "--interval {} is seconds, at least 0.1 and at most a day",
                self.interval
            ));
        }
        if self
            .rate
            .is_some_and(|rate| !rate.is_finite() || rate <= 0.0)
        {
            return wrong("--rate is a positive number of operations per second".into());
        }
        if self.ledger && self.workload() != Workload::Decr {
            return wrong("--ledger keeps accounts of decr only".into());
        }
        if self.ports.raw && self.workload() != Workload::Echo {
            return wrong(
                "--raw speaks to a server that only echoes: use the workload echo".into(),
            );
        }
        if self.filled && !self.workload().has_keys() {
            return wrong("--filled is for get, set and mixed, which draw from --keys".into());
        }
        if self.no_tokens && !self.workload().has_tokens() {
            return wrong("--no-tokens is for buy and sold-out, whose purchases have them".into());
        }
        if self.levels && self.ledger {
            return wrong(
                "--levels compares three runs; --ledger keeps the accounts of one".into(),
            );
        }
        if self.levels && matches!(self.workload(), Workload::Echo | Workload::EchoItems) {
            return wrong(
                "--levels compares what is durable; echo and echo-items store nothing".into(),
            );
        }
        Ok(())
    }
}

/// Reads a number within these bounds.
fn from_to(least: i64, most: i64) -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(least..=most)
}

fn address(text: &str) -> Result<SocketAddr, String> {
    let mut found = text.to_socket_addrs().map_err(|error| error.to_string())?;
    found.next().ok_or_else(|| "no address of that name".into())
}
