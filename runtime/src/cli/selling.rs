//! `penstock demo` and `penstock bench`: loads that count along.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::{Args, Subcommand};
use penstock_benches::BenchError;
use penstock_benches::sale::{self, Venue};
use signal_hook::consts::{SIGINT, SIGTERM};

use super::login::LoginArgs;
use super::temporary_cluster::TemporaryCluster;
use super::temporary_server::TemporaryServer;
use super::{EXIT_CODES, Failure};

/// Examples of the demo.
pub const DEMO_EXAMPLES: &str = "\
Examples:
  penstock demo                        half a minute: a drop, a kill -9, a ledger, PASS or FAIL
  penstock demo --page                 the same, also as a page in a browser
  penstock demo --seconds 5 --buyers 10000 --units 1000

It starts a server of its own in a temporary directory, and removes both at the end. It prints where
the server is: change one record meanwhile, and the ledger fails.";

const SALE_EXAMPLES: &str = "\
Examples:
  penstock bench sale                                  a server of its own, 50,000 buyers
  penstock bench sale --kill 20                        the same, killed twenty times
  penstock bench sale --kill-primary                   three nodes and an etcd: one of them is lost
  penstock bench sale --drop                           seconds until 100,000 units are taken
  penstock bench sale --skus 1000 --zipf 1.1 --rate 5000 --html sale.html
  penstock bench sale --addr 127.0.0.1:7411 --json > a.json

At --addr it writes keys that begin with bench:sale: and leaves them.";

/// The loads of `penstock bench`, and the one that sells.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct BenchCommand {
    #[command(subcommand)]
    sale: Option<BenchSale>,
    #[command(flatten)]
    load: penstock_benches::BenchArgs,
    #[command(flatten)]
    login: LoginArgs,
}

#[derive(Subcommand)]
enum BenchSale {
    /// Sell articles to buyers who think, click twice, lose connections and leave carts; then
    /// compare the server's records with what the buyers were told
    #[command(after_help = format!("{SALE_EXAMPLES}\n\n{EXIT_CODES}"))]
    Sale(Box<SaleCommand>),
}

/// A sale, and who logs in for it.
#[derive(Args)]
struct SaleCommand {
    #[command(flatten)]
    sale: sale::SaleArgs,
    #[command(flatten)]
    login: LoginArgs,
}

impl BenchCommand {
    pub fn run(self) -> Result<(), Failure> {
        let done = match self.sale {
            None => {
                let mut load = self.load;
                load.identity = self.login.identity()?;
                penstock_benches::run(&load)
            }
            Some(BenchSale::Sale(command)) => {
                let SaleCommand {
                    sale: mut args,
                    login,
                } = *command;
                args.identity = login.identity()?;
                let kills_primary = args.kill_primary;
                let venue = || -> Result<Box<dyn Venue>, String> {
                    Ok(match kills_primary {
                        true => Box::new(TemporaryCluster::new("bench")?),
                        false => Box::new(TemporaryServer::new("bench")?),
                    })
                };
                let is_interrupted = interrupted()?;
                sale::bench_sale(&args, venue, &is_interrupted)
            }
        };
        done.map_err(failure)
    }
}

/// Runs the demo.
pub fn demo(args: &sale::DemoArgs) -> Result<(), Failure> {
    let is_interrupted = interrupted()?;
    let mut server = TemporaryServer::new("demo").map_err(Failure::server)?;
    sale::demo(args, &mut server, &is_interrupted).map_err(failure)
}

/// Is set by the first Ctrl-C or SIGTERM. A second one ends the process.
fn interrupted() -> Result<Arc<AtomicBool>, Failure> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register_conditional_default(signal, Arc::clone(&flag))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&flag)))
            .map_err(|error| Failure::usage(format_args!("cannot watch signals: {error}")))?;
    }
    Ok(flag)
}

fn failure(error: BenchError) -> Failure {
    match error {
        BenchError::Arguments(_) => Failure::usage(error),
        BenchError::NotBalanced(_) | BenchError::Interrupted => Failure::no(error),
        BenchError::Connection(_) | BenchError::WrongAnswer(_) => Failure::server(error),
    }
}
