//! What `penstock demo` and `penstock bench sale` can be asked.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use penstock_client::Identity;

use crate::entry::Access;
use crate::sale::plan::{Arrivals, Plan};
use crate::sale::screen::say;
use crate::{BenchError, TlsArgs};

/// Connections of a drop.
const DROP_CONNECTIONS: u32 = 1_000;
/// Units of a drop.
const DROP_UNITS: u32 = 100_000;

/// The arguments of `penstock demo`.
#[derive(Args, Clone, Debug)]
pub struct DemoArgs {
    /// Also serve the sale as a web page on a free port of 127.0.0.1
    #[arg(long)]
    pub page: bool,
    /// Seed of the buyers
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Units on sale
    #[arg(long, default_value_t = 10_000, value_parser = from_to(1, 10_000_000))]
    pub units: u32,
    /// Buyers
    #[arg(long, default_value_t = 100_000, value_parser = from_to(1, 5_000_000))]
    pub buyers: u32,
    /// Seconds in which all buyers come
    #[arg(long, default_value_t = 25.0)]
    pub seconds: f64,
    /// Connections
    #[arg(long, default_value_t = 200, value_parser = from_to(1, 10_000))]
    pub connections: u32,
    /// The result as JSON, and nothing while it runs
    #[arg(long)]
    pub json: bool,
}

impl DemoArgs {
    pub(crate) fn check(&self) -> Result<(), BenchError> {
        match self.seconds.is_finite() && (0.5..=3600.0).contains(&self.seconds) {
            true => Ok(()),
            false => Err(BenchError::Arguments(format!(
                "--seconds {} is from 0.5 to 3600",
                self.seconds
            ))),
        }
    }

    pub(crate) fn plan(&self) -> Plan {
        let seconds = self.seconds;
        Plan {
            seed: self.seed,
            skus: 1,
            units: self.units.into(),
            buyers: self.buyers,
            limit: 2,
            zipf: 0.0,
            abandoned_percent: 20,
            cancelled_percent: 3,
            open_percent: 2,
            doubled_percent: 10,
            cut_percent: 5,
            greedy_percent: 5,
            hold: Duration::from_secs_f64(seconds / 8.0),
            think_max: Duration::from_secs_f64(seconds / 50.0),
            pays_last: false,
            arrivals: Arrivals::Ramp(Duration::from_secs_f64(seconds)),
        }
    }

    /// Says what happens next.
    pub(crate) fn introduce(&self, plan: &Plan, address: SocketAddr) {
        say(format_args!(
            "A drop: {} units, {} buyers, at most {} units each. Of a hundred requests {} are sent \
             twice\nand {} lose their connection; of a hundred carts {} are abandoned. When half \
             of the units are\ntaken, the server is killed with -9. Every answer comes from the \
             disk.",
            plan.units,
            plan.buyers,
            plan.limit,
            plan.doubled_percent,
            plan.cut_percent,
            plan.abandoned_percent
        ));
        say(format_args!(
            "server  {address}, in a directory that is removed at the end"
        ));
    }
}

/// The arguments of `penstock bench sale`.
#[derive(Args, Clone, Debug)]
pub struct SaleArgs {
    /// The server; without it the command starts one of its own in a temporary directory
    #[arg(long, value_name = "HOST:PORT", value_parser = address)]
    pub addr: Option<SocketAddr>,
    /// Articles
    #[arg(long, default_value_t = 1, value_parser = from_to(1, 1_000_000))]
    pub skus: u32,
    /// Units of all articles together [default: 10000; with --drop 100000]
    #[arg(long, value_parser = from_to(1, 1_000_000_000))]
    pub units: Option<u32>,
    /// Buyers; each wants one article [default: 50000; with --drop as many as units]
    #[arg(long, value_parser = from_to(1, 20_000_000))]
    pub buyers: Option<u32>,
    /// Exponent of the law by which articles are wanted; 0 wants all alike
    #[arg(long, default_value_t = 0.99)]
    pub zipf: f64,
    /// Units that a buyer may have
    #[arg(long, default_value_t = 2, value_parser = from_to(1, 1_000_000))]
    pub limit: u32,
    /// Of a hundred carts, how many are abandoned: their holds expire [default: 20; with --drop 0]
    #[arg(long, value_name = "PERCENT", value_parser = from_to(0, 100))]
    pub abandoned: Option<u32>,
    /// Seconds until a hold expires [default: 2; with --drop 600]
    #[arg(long, value_name = "SECONDS")]
    pub hold: Option<f64>,
    /// Connections [default: 100; with --drop 1000]
    #[arg(long, short, value_parser = from_to(1, 10_000))]
    pub connections: Option<u32>,
    /// Open loop: buyers that come each second, whether or not the server keeps up
    #[arg(long)]
    pub rate: Option<f64>,
    /// Kill the server so many times with -9 during the sale, and start it again
    #[arg(long, value_name = "N", default_value_t = 0, conflicts_with = "addr",
        value_parser = from_to(0, 1_000))]
    pub kill: u32,
    /// Sell at level all from three nodes of this machine, with an etcd; kill the node that
    /// writes with -9 in the middle, and go on with the one that takes over
    #[arg(long, conflicts_with_all = ["addr", "kill", "drop"])]
    pub kill_primary: bool,
    /// Measure the seconds until all is taken: nobody clicks twice, is cut off or leaves a cart,
    /// and the carts are paid when all buyers have come
    #[arg(long)]
    pub drop: bool,
    /// With --addr: how it is reached.
    #[command(flatten)]
    pub tls: TlsArgs,
    /// With --addr: who logs in.
    #[arg(skip)]
    pub identity: Option<Identity>,
    /// Seed of the buyers
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// All figures as JSON, with the series of seconds
    #[arg(long)]
    pub json: bool,
    /// Write a report with charts to this file: one page that needs nothing else
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Allow a server on another machine
    #[arg(long)]
    pub allow_remote: bool,
}

impl SaleArgs {
    /// By what the server at `--addr` is reached. A server of its own has neither TLS nor users.
    pub(crate) fn access(&self) -> Result<Access, BenchError> {
        match self.addr {
            None => Ok(Access {
                is_of_cluster: self.kill_primary,
                ..Access::default()
            }),
            Some(_) => Access::new(&self.tls, self.identity.as_ref()),
        }
    }

    pub(crate) fn check(&self) -> Result<(), BenchError> {
        let wrong = |text: String| Err(BenchError::Arguments(text));
        if let Some(addr) = self.addr
            && !addr.ip().is_loopback()
            && !self.allow_remote
        {
            return wrong(format!(
                "{addr} is another machine: a load test there needs --allow-remote"
            ));
        }
        if !self.zipf.is_finite() || !(0.0..=10.0).contains(&self.zipf) {
            return wrong(format!("--zipf {} is from 0 to 10", self.zipf));
        }
        let hold = self.hold_seconds();
        if !hold.is_finite() || !(0.1..=3600.0).contains(&hold) {
            return wrong(format!("--hold {hold} is seconds, from 0.1 to 3600"));
        }
        let is_rate = |rate: f64| rate.is_finite() && (0.1..=10_000_000.0).contains(&rate);
        match self.rate {
            Some(rate) if !is_rate(rate) => wrong(format!(
                "--rate {rate} is buyers a second, from 0.1 to 10000000"
            )),
            _ => Ok(()),
        }
    }

    /// In a drop nobody pays before everybody has come, so a hold lasts longer.
    fn hold_seconds(&self) -> f64 {
        let default = if self.drop { 600.0 } else { 2.0 };
        self.hold.unwrap_or(default)
    }

    pub(crate) fn connections(&self) -> u32 {
        let default = if self.drop { DROP_CONNECTIONS } else { 100 };
        self.connections.unwrap_or(default)
    }

    pub(crate) fn plan(&self) -> Plan {
        let units = self
            .units
            .unwrap_or(if self.drop { DROP_UNITS } else { 10_000 });
        let buyers = if self.drop {
            units.min(20_000_000)
        } else {
            50_000
        };
        // A drop has nothing but purchases.
        let percent = |percent| if self.drop { 0 } else { percent };
        let abandoned = self.abandoned.unwrap_or(percent(20));
        Plan {
            seed: self.seed,
            skus: self.skus,
            units: units.into(),
            buyers: self.buyers.unwrap_or(buyers),
            limit: self.limit,
            zipf: self.zipf,
            abandoned_percent: abandoned,
            cancelled_percent: percent(3).min(100 - abandoned),
            open_percent: percent(2).min(97u32.saturating_sub(abandoned)),
            doubled_percent: percent(10),
            cut_percent: percent(5),
            greedy_percent: percent(5),
            hold: Duration::from_secs_f64(self.hold_seconds()),
            think_max: Duration::ZERO,
            pays_last: self.drop,
            arrivals: self.rate.map_or(Arrivals::Closed, Arrivals::Rate),
        }
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
