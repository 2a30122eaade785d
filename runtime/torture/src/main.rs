//! `cargo torture KIND --rounds N`: the real server on the real kernel, made to suffer under load.
//!
//! A round starts the real binary, lets fifty pipelined writers work, does something to the server
//! or to what it stands on, starts it again and compares with what was ever acknowledged; or the
//! same with three servers as nodes of a cluster. It runs on loopback or in a network of its own,
//! ends by itself and leaves no process, mount, loop device or namespace. `--help` lists the kinds.

mod account;
mod buyer;
mod cluster;
mod cutoff;
mod eio;
mod failover;
mod forwarder;
mod full;
mod kill;
mod ledger;
mod load;
mod network;
mod options;
mod process;
mod random;
mod sales;
mod server;
mod shutdown;
mod small_disk;
mod stop;
mod tokens;
mod volume;
mod wire;
mod world;

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use cutoff::{Terms, Way};
use failover::{Fault, Faults};
use options::{HELP, KindName, Options, Setting};
use random::Random;
use volume::{FileSystem, Volume};

/// One way to make a server suffer.
trait Kind {
    /// One round.
    ///
    /// # Errors
    /// The server failed, or the machine did; in words.
    fn round(&mut self, turn: Turn<'_>) -> Result<Done, String>;

    /// Acknowledged operations that are lost, where a kind lets rounds pass that lose some.
    fn lost(&self) -> u64 {
        0
    }

    /// What it counts beside what every kind does.
    fn totals(&self) -> String;

    /// What it has measured, as a table for people.
    fn table(&self) -> Option<String> {
        None
    }
}

/// Whose turn it is in a round.
struct Turn<'a> {
    round: u64,
    /// The number of the setting.
    which: usize,
    random: &'a mut Random,
    binary: &'a Path,
}

/// What came of a round.
struct Done {
    text: String,
    kills: u64,
    acked: u64,
    unknown: u64,
}

/// The only fault of failover, and the only way of cutoff.
type Chosen = (Option<Fault>, Option<Way>);

/// Why a run did not pass.
enum Failure {
    /// A round failed.
    Round(String),
    /// The machine cannot do it.
    Missing(String),
    /// Anything before the first round.
    Start(String),
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments
        .iter()
        .any(|word| word == "--help" || word == "-h")
    {
        println!("{HELP}");
        return ExitCode::SUCCESS;
    }
    let read = |options: Options| {
        let only = options.only.as_deref().map(Fault::named).transpose()?;
        let way = options.way.as_deref().map(Way::named).transpose()?;
        Ok((options, (only, way)))
    };
    let (options, chosen) = match Options::parse(arguments.into_iter()).and_then(read) {
        Ok(read) => read,
        Err(text) => {
            eprintln!("torture: {text}\n\n{HELP}");
            return ExitCode::from(2);
        }
    };
    let kind = options.kind.name();
    match run(&options, chosen) {
        Ok(()) => {
            let _ = fs::remove_dir_all(&options.folder);
            ExitCode::SUCCESS
        }
        Err(Failure::Missing(reason)) => {
            let _ = fs::remove_dir_all(&options.folder);
            println!("skipped: {kind}: {reason}");
            ExitCode::from(if options.allow_skip { 0 } else { 3 })
        }
        Err(_) if process::is_interrupted() => {
            let _ = fs::remove_dir_all(&options.folder);
            ExitCode::from(130)
        }
        Err(Failure::Round(text)) => {
            eprintln!("torture {kind}: FAILED: {text}");
            eprintln!("kept: {}", options.folder.display());
            ExitCode::FAILURE
        }
        Err(Failure::Start(text)) => {
            eprintln!("torture {kind}: {text}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options, chosen: Chosen) -> Result<(), Failure> {
    // Before there is a second thread.
    if options.kind.needs_mounts() {
        process::own_mounts().map_err(Failure::Missing)?;
    }
    process::watch_signals().map_err(Failure::Start)?;
    fs::create_dir_all(&options.folder)
        .map_err(|error| Failure::Start(format!("{}: {error}", options.folder.display())))?;
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let settings = options.settings(cpus);
    if settings.is_empty() {
        return Err(Failure::Missing("no setting is left".into()));
    }
    let binary = match &options.server {
        Some(binary) => binary.clone(),
        None => process::build_server().map_err(Failure::Start)?,
    };
    // Behind the build, which may want the machine's network.
    let mut kind = kind(options, chosen, &settings)?;
    let name = options.kind.name();
    println!(
        "torture {name}: {} rounds, {} writers, seed {}, folder {}",
        options.rounds,
        writers(options.kind),
        options.seed,
        options.folder.display()
    );
    let (mut kills, mut acked) = (0, 0);
    for round in 0..options.rounds {
        let which = usize::try_from(round % settings.len() as u64).expect("a few settings");
        let Setting { shards, io } = settings[which];
        let turn = Turn {
            round,
            which,
            random: &mut Random::of_round(options.seed, round),
            binary: &binary,
        };
        let done = kind.round(turn).map_err(|text| {
            let again = options.repetition(round);
            Failure::Round(format!(
                "round {round}, shards {shards}, io {io}: {text}\nagain: {again}"
            ))
        })?;
        kills += done.kills;
        acked += done.acked;
        println!(
            "round {round:4}  shards {shards} io {io:7}  {}  {:7} acked, {:5} unknown, all \
             accounted for",
            done.text, done.acked, done.unknown
        );
    }
    if let Some(table) = kind.table() {
        println!("{table}");
    }
    println!(
        "torture {name}: {} rounds passed, {kills} kills, {acked} acknowledged operations, \
         lost {}; {}; seed {}",
        options.rounds,
        kind.lost(),
        kind.totals(),
        options.seed
    );
    Ok(())
}

/// Writers of a kind's rounds.
fn writers(kind: KindName) -> usize {
    match kind {
        KindName::Cluster => cluster::WRITERS,
        KindName::Failover => failover::BUYERS,
        KindName::Cutoff => cutoff::CASHIERS,
        _ => world::WRITERS,
    }
}

/// The kind that is asked for, if the machine can.
fn kind(
    options: &Options,
    (only, way): Chosen,
    settings: &[Setting],
) -> Result<Box<dyn Kind>, Failure> {
    let folder = options.folder.clone();
    if options.kind.needs_mounts() {
        let file_system = match options.kind {
            KindName::Shutdown => options.file_system,
            _ => FileSystem::Ext4,
        };
        try_to_mount(file_system, &folder).map_err(Failure::Missing)?;
    }
    Ok(match options.kind {
        KindName::Kill => Box::new(kill::Kill::new(folder, settings)),
        KindName::Shutdown => Box::new(shutdown::Shutdown::new(
            folder,
            options.file_system,
            settings,
        )),
        KindName::Full => Box::new(full::Full::new(folder, settings)),
        KindName::Eio => {
            let can_refuse = eio::can_refuse();
            if let Err(reason) = &can_refuse {
                if !options.allow_skip {
                    return Err(Failure::Missing(reason.clone()));
                }
                println!("skipped: eio: disks that refuse writes: {reason}");
            }
            Box::new(eio::Eio::new(folder, can_refuse.is_ok(), settings))
        }
        KindName::Stop => Box::new(stop::Stop::new(folder, options.pause_max, settings)),
        KindName::Tokens => Box::new(tokens::Tokens::new(folder, options.requests, settings)),
        KindName::Cluster => Box::new(cluster::Cluster::new(
            folder,
            (options.is_loopback, options.has_tls),
            settings,
        )),
        KindName::Failover => {
            let failover = failover::Failover::new(
                folder,
                (options.rules, options.has_tls),
                Faults {
                    count: options.faults,
                    only,
                },
                (options.pause_max, options.home_max),
                settings,
            );
            Box::new(failover.map_err(Failure::Missing)?)
        }
        KindName::Cutoff => {
            let terms = Terms {
                level: options.level,
                rate: options.rate,
                way,
                is_exact: options.is_exact,
            };
            let how = (options.rules, options.has_tls);
            let cutoff = cutoff::Cutoff::new(folder, how, terms, settings);
            Box::new(cutoff.map_err(Failure::Missing)?)
        }
    })
}

/// Whether a file system can be made and mounted here; the reason why not.
fn try_to_mount(file_system: FileSystem, folder: &Path) -> Result<(), String> {
    let mut volume = Volume::new(file_system, folder.join("trial"), folder.join("mounted"));
    volume.make(512 << 20)?;
    volume.mount()?;
    volume.unmount()?;
    fs::remove_file(&volume.image).map_err(|error| error.to_string())
}
