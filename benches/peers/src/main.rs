//! Penstock beside other stores, in one run on one machine: `cargo peers
//! memory|values|grow|cold|cleaning|restart|engines`.

mod child;
mod cleaning;
mod cold;
mod engine;
mod engines;
mod fio;
mod grow;
mod machine;
mod memory;
mod report;
mod restart;
mod scratch;
mod server;
mod valkey;
mod values;
mod workload;

use clap::{Parser, Subcommand};

use report::Report;

/// Any failure, in one line.
pub type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Penstock beside other stores. Every figure of a table comes from one run on this machine.
#[derive(Parser)]
#[command(name = "cargo peers", disable_help_subcommand = true)]
struct Arguments {
    /// Print one JSON object instead of tables.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// RAM per key on disk, and of hot counters beside Valkey.
    Memory(memory::Options),
    /// Overhead of one cached value beside Arc<[u8]>, bytes and byteview.
    Values(values::Options),
    /// GET and SET at sizes from thousands of keys to millions, and memory a key, beside Valkey.
    Grow(grow::Options),
    /// Uniform reads of data that is several times the memory.
    Cold(cold::Options),
    /// Overwrites in a steady state: write and space amplification, latency.
    Cleaning(cleaning::Options),
    /// Time to the first answer after kill -9.
    Restart(restart::Options),
    /// Get, insert and update in process, in the same durability class.
    Engines(engines::Options),
    /// What this program runs as its own child.
    #[command(hide = true)]
    Child(child::Options),
}

fn main() -> Outcome<()> {
    let arguments = Arguments::parse();
    let (name, outcome) = match &arguments.command {
        Command::Memory(options) => ("memory", memory::run(options)),
        Command::Values(options) => ("values", values::run(options)),
        Command::Grow(options) => ("grow", grow::run(options)),
        Command::Cold(options) => ("cold", cold::run(options)),
        Command::Cleaning(options) => ("cleaning", cleaning::run(options)),
        Command::Restart(options) => ("restart", restart::run(options)),
        Command::Engines(options) => ("engines", engines::run(options)),
        Command::Child(options) => return child::run(options),
    };
    let report: Report = outcome?;
    report.print(name, arguments.json);
    Ok(())
}
