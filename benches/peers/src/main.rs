//! Penstock beside other stores, in one run on one machine: `cargo peers
//! all|resp|sql|bulk|product|documents|memory|values|grow|cold|cleaning|restart|engines`.

mod bulk;
mod chart;
#[cfg(feature = "engines")]
mod child;
#[cfg(feature = "engines")]
mod cleaning;
#[cfg(feature = "engines")]
mod cold;
mod contender;
mod disk;
mod documents;
#[cfg(feature = "engines")]
mod engine;
#[cfg(feature = "engines")]
mod engines;
mod everything;
#[cfg(feature = "engines")]
mod fio;
mod goal;
mod grow;
mod loader;
mod machine;
mod memory;
mod pairs;
mod postgres;
mod product;
mod program;
mod redis_benchmark;
mod report;
mod resp;
#[cfg(feature = "engines")]
mod restart;
mod results;
mod scratch;
mod server;
mod sql;
mod table;
mod valkey;
mod values;
mod workload;

use std::path::PathBuf;

use clap::error::ErrorKind;
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
    /// Where the run's JSON, its page and the index are written; benches/results by default.
    #[arg(
        long,
        global = true,
        value_name = "FOLDER",
        conflicts_with = "no_results"
    )]
    results: Option<PathBuf>,
    /// Write no such files.
    #[arg(long, global = true)]
    no_results: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// The port for clients of Redis beside Valkey, Redis, kevy and memcached.
    Resp(resp::Options),
    /// One hot row: 64 clients beside PostgreSQL.
    Sql(sql::Options),
    /// Bytes a second in batches of 1,000 messages of 1,000 bytes.
    Bulk(bulk::Options),
    /// GrausDB's own program beside it: a product that is read and sold, a product as JSON.
    Product(product::Options),
    /// Documents as JSON text, binary JSON and layouts.
    Documents(documents::Options),
    /// All of it, in one run and on one page.
    All(everything::Options),
    /// RAM per key on disk, and of hot counters beside Valkey.
    Memory(memory::Options),
    /// Overhead of one cached value beside Arc<[u8]>, bytes and byteview.
    Values(values::Options),
    /// GET and SET at sizes from thousands of keys to millions, and memory a key, beside Valkey.
    Grow(grow::Options),
    /// Uniform reads of data that is several times the memory.
    #[cfg(feature = "engines")]
    Cold(cold::Options),
    /// Overwrites in a steady state: write and space amplification, latency.
    #[cfg(feature = "engines")]
    Cleaning(cleaning::Options),
    /// Time to the first answer after kill -9.
    #[cfg(feature = "engines")]
    Restart(restart::Options),
    /// Get, insert and update in process, in the same durability class.
    #[cfg(feature = "engines")]
    Engines(engines::Options),
    /// What this program runs as its own child.
    #[cfg(feature = "engines")]
    #[command(hide = true)]
    Child(child::Options),
}

fn main() -> Outcome<()> {
    let arguments = Arguments::parse();
    #[cfg(feature = "engines")]
    if let Command::Child(options) = &arguments.command {
        return child::run(options);
    }
    let name = name(&arguments.command);
    let report = run(&arguments.command)?;
    report.print(&name, arguments.json);
    if !arguments.no_results {
        let folder = arguments.results.unwrap_or_else(results::folder);
        let page = results::write(&folder, &results::today(), &name, &report)?;
        eprintln!("written: {}, its JSON, and the index", page.display());
    }
    Ok(())
}

/// What its files are called. A quick run does not replace a whole one.
fn name(command: &Command) -> String {
    let (name, quick) = match command {
        Command::Resp(options) => ("resp", options.quick),
        Command::Sql(options) => ("sql", options.quick),
        Command::Bulk(options) => ("bulk", options.quick),
        Command::Product(options) => ("product", options.quick),
        Command::Documents(options) => ("documents", options.quick),
        Command::All(options) => ("all", options.quick),
        Command::Memory(_) => ("memory", false),
        Command::Values(_) => ("values", false),
        Command::Grow(_) => ("grow", false),
        #[cfg(feature = "engines")]
        Command::Cold(_) => ("cold", false),
        #[cfg(feature = "engines")]
        Command::Cleaning(_) => ("cleaning", false),
        #[cfg(feature = "engines")]
        Command::Restart(_) => ("restart", false),
        #[cfg(feature = "engines")]
        Command::Engines(_) => ("engines", false),
        #[cfg(feature = "engines")]
        Command::Child(_) => ("child", false),
    };
    format!("{name}{}", if quick { "-quick" } else { "" })
}

fn run(command: &Command) -> Outcome<Report> {
    match command {
        Command::Resp(options) => resp::run(options),
        Command::Sql(options) => sql::run(options),
        Command::Bulk(options) => bulk::run(options),
        Command::Product(options) => product::run(options),
        Command::Documents(options) => documents::run(options),
        Command::All(options) => everything::run(options, line),
        Command::Memory(options) => memory::run(options),
        Command::Values(options) => values::run(options),
        Command::Grow(options) => grow::run(options),
        #[cfg(feature = "engines")]
        Command::Cold(options) => cold::run(options),
        #[cfg(feature = "engines")]
        Command::Cleaning(options) => cleaning::run(options),
        #[cfg(feature = "engines")]
        Command::Restart(options) => restart::run(options),
        #[cfg(feature = "engines")]
        Command::Engines(options) => engines::run(options),
        #[cfg(feature = "engines")]
        Command::Child(_) => Err("a child is nothing to compare".into()),
    }
}

/// Runs a command line of `all`.
fn line(words: &[&str]) -> Outcome<Report> {
    let words = ["peers"].iter().chain(words);
    match Arguments::try_parse_from(words) {
        Ok(arguments) => run(&arguments.command),
        Err(error) if error.kind() == ErrorKind::InvalidSubcommand => {
            Err("this harness was built without its feature `engines`".into())
        }
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_all_can_be_parsed_as_far_as_it_was_built() {
        for quick in [true, false] {
            let options = everything::Options { quick };
            let report = everything::run(&options, |words| {
                let words: Vec<&str> = ["peers"].iter().chain(words).copied().collect();
                match Arguments::try_parse_from(words) {
                    Ok(_) => Ok(Report::default()),
                    Err(error) if error.kind() == ErrorKind::InvalidSubcommand => {
                        Ok(Report::default())
                    }
                    Err(error) => Err(error.to_string().into()),
                }
            });
            let table = &report.unwrap().tables[0];
            assert!(
                table.rows.iter().all(|row| row[2].why().is_none()),
                "quick: {quick}"
            );
        }
        assert!(
            line(&["no-such"])
                .err()
                .unwrap()
                .to_string()
                .contains("engines")
        );
    }

    #[test]
    fn a_quick_run_has_a_name_of_its_own() {
        let of = |words: &[&str]| name(&Arguments::try_parse_from(words).unwrap().command);
        assert_eq!(of(&["peers", "all", "--quick"]), "all-quick");
        assert_eq!(of(&["peers", "all"]), "all");
    }
}
