//! The tree of commands: what a shell may say, and which exit code answers it.

mod applying;
mod backup;
mod certificates;
mod cluster;
mod exporting;
mod failover;
mod inspect;
mod keyspace;
mod layout_value;
mod leading;
mod loading;
mod login;
mod lost_export;
mod lost_files;
mod lostfound;
mod lowering;
mod membership;
mod names;
mod options;
mod output;
mod partitions;
mod plan_home;
mod plan_keys;
mod probing;
mod reading;
mod reporting;
mod rows;
mod running;
mod schema;
mod selling;
mod server;
mod status;
mod stopped;
mod temporary_cluster;
mod temporary_server;
mod text_field;
mod token;
mod user;
mod values;
mod writing;

use std::fmt;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, CommandFactory, Parser, Subcommand};
use penstock::config::{Settings, Sources};
use penstock::server::logging::Logging;

use applying::ApplyArgs;
use backup::{BackupArgs, RestoreArgs, VerifyArgs};
use cluster::{CLUSTER_EXAMPLES, ClusterCommand};
use exporting::ExportArgs;
use inspect::InspectArgs;
use keyspace::{HistoryArgs, KEYSPACE_EXAMPLES, KeyspaceCommand};
use loading::LoadArgs;
use options::OptionFlags;
use output::Output;
use probing::{InfoArgs, PingArgs};
use reading::{GetArgs, ScanArgs, TtlArgs};
use reporting::ReportArgs;
use running::RunArgs;
use schema::{SCHEMA_EXAMPLES, SchemaCommand};
use selling::{BenchCommand, DEMO_EXAMPLES};
use user::{USER_EXAMPLES, UserCommand};
use writing::{DelArgs, ExpireArgs, PersistArgs, SetArgs, UpdateIfArgs};

/// What every command's help says about its end.
const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  the answer is no: not found, a guard failed, data damaged
  2  the command, its configuration or this machine is wrong; one line says what
  3  no server there, or it failed; whether a write happened is said
  4  done, and standard output took no answer: do not do it again";

const EXAMPLES: &str = "\
Examples:
  penstock serve
  penstock set stock:42 u32:100
  penstock update-if stock:42 'u32@0 >= 1' 'u32@0 -= 1'
  penstock get stock:42 --as u32@0";

/// Durable key-value server for stock under pressure: what it acknowledged, a power cut cannot take
/// back.
#[derive(Parser)]
#[command(
    name = "penstock",
    version = penstock::VERSION,
    after_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"),
    subcommand_required = true,
    arg_required_else_help = true
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve a data directory until SIGTERM or SIGINT
    #[command(after_help = format!("{SERVE_EXAMPLES}\n\n{EXIT_CODES}"))]
    Serve(ServerArgs),
    /// Print the value of a key
    Get(GetArgs),
    /// Write the value of a key
    Set(SetArgs),
    /// Delete a key
    Del(DelArgs),
    /// Print when a key expires
    Ttl(TtlArgs),
    /// Say when a key expires; its value stays
    Expire(ExpireArgs),
    /// Remove the expiry of a key
    Persist(PersistArgs),
    /// Change fields of a value if guards hold, in one atomic and durable step
    UpdateIf(UpdateIfArgs),
    /// Check and change up to 255 keys of one {tag}, all or nothing
    Apply(ApplyArgs),
    /// Run a program of the server's schema, by its name
    Run(RunArgs),
    /// Check the files of layouts and programs
    #[command(subcommand, after_help = format!("{SCHEMA_EXAMPLES}\n\n{EXIT_CODES}"))]
    Schema(SchemaCommand),
    /// Print the keys, or those with a prefix
    Scan(ScanArgs),
    /// Write the rows of a CSV file or of JSON lines as keys and values
    Load(LoadArgs),
    /// Print keys and values as rows that load reads again
    Export(ExportArgs),
    /// Count keys, and print sum, least and greatest number of their fields
    Report(ReportArgs),
    /// Print the versions of a key that its keyspace keeps, the newest first
    History(HistoryArgs),
    /// Set, drop or list keyspaces: prefixes of keys with settings of their own
    #[command(subcommand, after_help = format!("{KEYSPACE_EXAMPLES}\n\n{EXIT_CODES}"))]
    Keyspace(KeyspaceCommand),
    /// Say who may log in, and what they may do
    #[command(subcommand, after_help = format!("{USER_EXAMPLES}\n\n{EXIT_CODES}"))]
    User(UserCommand),
    /// Measure the way to the server and back
    Ping(PingArgs),
    /// Print what the server is doing, as JSON
    Info(InfoArgs),
    /// Make a cluster, look at its nodes, say which one writes
    #[command(subcommand, after_help = format!("{CLUSTER_EXAMPLES}\n\n{EXIT_CODES}"))]
    Cluster(ClusterCommand),
    /// Check a stopped data directory byte by byte and say what it holds
    Inspect(InspectArgs),
    /// Copy the data of a running or a stopped server to another directory
    Backup(BackupArgs),
    /// Make a data directory from a backup
    Restore(RestoreArgs),
    /// Check every byte of the backups in a directory, or of a stopped data directory
    Verify(VerifyArgs),
    /// Load a server and measure it: two numbers, or all of them with --full
    #[command(after_help = format!("{BENCH_EXAMPLES}\n\n{EXIT_CODES}"))]
    Bench(BenchCommand),
    /// Watch a drop survive kill -9: a server of its own, 100,000 buyers, and a ledger at the end
    #[command(after_help = format!("{DEMO_EXAMPLES}\n\n{EXIT_CODES}"))]
    Demo(penstock_benches::sale::DemoArgs),
    /// Show the configuration
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Print the completion script of a shell
    #[command(after_help = "Example: penstock completions bash > /etc/bash_completion.d/penstock")]
    Completions {
        /// The shell that reads the script
        shell: clap_complete::Shell,
    },
    /// Write the man pages, one of each command
    #[command(after_help = format!(
        "Example: penstock man --to /usr/local/share/man/man1\n\n{EXIT_CODES}"
    ))]
    Man {
        /// Directory of the pages; made if it does not exist
        #[arg(long, value_name = "DIR")]
        to: PathBuf,
    },
}

const BENCH_EXAMPLES: &str = "\
Examples:
  penstock bench decr                                 one hot counter, every decrement durable
  penstock bench get --depth 64 --full
  penstock bench decr --rate 200000 --full            open loop: latency from when each was due
  penstock bench decr --ledger                        what was acknowledged against what was sold
  penstock bench decr --ledger --level replica --addr 127.0.0.1:7411,127.0.0.1:7511
                                                      the same while nodes are switched and killed
  penstock bench sale --kill 20                       a sale that proves its ledger over kill -9
  penstock bench --compare a.json b.json              whether two results differ
  penstock bench echo                                 the limit: frames answered without a store
  penstock bench echo-items                           the limit of batches: items answered so

It writes keys that begin with bench:, of buy and sold-out with {buy}:, deletes them behind the run
(--keep leaves them), and ends by itself.";

const SERVE_EXAMPLES: &str = "\
Examples:
  penstock serve
  penstock serve --data /var/lib/penstock --shards 2 --cache-bytes 4GiB
  penstock serve --listen 127.0.0.1:0 --shard-ports 0     free ports, printed at the start

Every option may also stand in the environment (--spin-us as PENSTOCK_SPIN_US, or in a file that
PENSTOCK_SPIN_US_FILE names) or in a TOML file (spin_us). --help says more than -h.";

#[derive(Subcommand)]
enum ConfigCommand {
    /// Print each option's value, where it came from and what it means
    #[command(after_help = format!(
        "It takes the flags of serve, so that a command line can be tried before it \
         runs.\n\n{EXIT_CODES}"
    ))]
    Explain(ServerArgs),
}

/// The file and the flags from which the server's configuration is resolved.
#[derive(Args)]
struct ServerArgs {
    /// TOML file with options; also PENSTOCK_CONFIG
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    options: OptionFlags,
}

impl ServerArgs {
    fn resolve(self) -> Result<Settings, Failure> {
        Sources::of_process(self.options.given, self.config)
            .and_then(|sources| Settings::resolve(&sources))
            .map_err(Failure::usage)
    }
}

/// Why a command did not do what was asked, and its exit code.
#[derive(Debug)]
pub struct Failure {
    code: u8,
    /// The line for standard error; empty if it was told there.
    line: String,
}

impl Failure {
    /// It was done, and the answer is no.
    fn no(answer: impl fmt::Display) -> Failure {
        Failure {
            code: 1,
            line: answer.to_string(),
        }
    }

    /// The same behind what it is about.
    fn behind(self, place: &str) -> Failure {
        Failure {
            line: format!("{place}: {}", self.line),
            ..self
        }
    }

    /// The same with what else is to be said.
    fn followed_by(self, text: &str) -> Failure {
        Failure {
            line: format!("{}{text}", self.line),
            ..self
        }
    }

    /// There is no server, or it failed.
    fn server(cause: impl fmt::Display) -> Failure {
        Failure {
            code: 3,
            line: cause.to_string(),
        }
    }

    /// It was done, and nobody could be told.
    fn unanswered(cause: impl fmt::Display) -> Failure {
        Failure {
            code: 4,
            line: cause.to_string(),
        }
    }

    /// The command, its configuration or this machine is wrong.
    fn usage(cause: impl fmt::Display) -> Failure {
        Failure {
            code: 2,
            line: cause.to_string(),
        }
    }
}

/// Runs the command that this process was started with.
pub fn run() -> ExitCode {
    penstock::system::ignore_file_size_signal();
    let words = leading::moved_behind(&Cli::command(), std::env::args_os().collect());
    match Cli::parse_from(words).command.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !failure.line.is_empty() {
                eprintln!("penstock: {}", failure.line);
            }
            ExitCode::from(failure.code)
        }
    }
}

impl Command {
    fn run(self) -> Result<(), Failure> {
        match self {
            Command::Serve(args) => {
                let settings = args.resolve()?;
                let logging = Logging::install(&settings.config).map_err(Failure::usage)?;
                if let Some(text) = settings.passed_over() {
                    tracing::info!("{text}");
                }
                penstock::server::serve(settings.config, &logging).map_err(|error| {
                    let code = error.exit_code();
                    logging.report_failure(&error, code);
                    let line = String::new();
                    Failure { code, line }
                })
            }
            Command::Get(args) => args.run(),
            Command::Set(args) => args.run(),
            Command::Del(args) => args.run(),
            Command::Ttl(args) => args.run(),
            Command::Expire(args) => args.run(),
            Command::Persist(args) => args.run(),
            Command::UpdateIf(args) => args.run(),
            Command::Apply(args) => args.run(),
            Command::Run(args) => args.run(),
            Command::Schema(command) => command.run(),
            Command::Scan(args) => args.run(),
            Command::Load(args) => args.run(),
            Command::Export(args) => args.run(),
            Command::Report(args) => args.run(),
            Command::History(args) => args.run(),
            Command::Keyspace(command) => command.run(),
            Command::User(command) => command.run(),
            Command::Ping(args) => args.run(),
            Command::Info(args) => args.run(),
            Command::Cluster(command) => command.run(),
            Command::Inspect(args) => args.run(),
            Command::Backup(args) => args.run(),
            Command::Restore(args) => args.run(),
            Command::Verify(args) => args.run(),
            Command::Bench(command) => command.run(),
            Command::Demo(args) => selling::demo(&args),
            Command::Config(ConfigCommand::Explain(args)) => {
                let mut out = Output::stdout();
                out.bytes(args.resolve()?.explain().as_bytes());
                out.finish()
            }
            Command::Completions { shell } => {
                let mut script = Vec::new();
                clap_complete::generate(shell, &mut Cli::command(), "penstock", &mut script);
                let mut out = Output::stdout();
                out.bytes(&script);
                out.finish()
            }
            Command::Man { to } => std::fs::create_dir_all(&to)
                .and_then(|()| clap_mangen::generate_to(Cli::command(), &to))
                .map_err(|error| Failure::usage(format_args!("{}: {error}", to.display()))),
        }
    }
}

#[cfg(test)]
#[path = "../../build/commit.rs"]
mod commit;

#[cfg(test)]
mod tests {
    use std::path::Path;

    use penstock_net::request::Verb;

    use super::*;

    #[test]
    fn a_version_names_its_commit_or_says_that_none_is_known() {
        assert!(
            !commit::GIVEN.starts_with("PENSTOCK_"),
            "a server would refuse it"
        );
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let given = commit::describe(Some("0123456789abcdef0123456789abcdef01234567\n"), here);
        assert_eq!(given, "commit 0123456789ab");
        let described = commit::describe(None, here);
        let files = commit::files(here);
        match described.strip_prefix("commit ") {
            Some(id) if id.len() == 12 => assert!(!files.is_empty(), "{described}"),
            // The tests of a tarball run, too.
            _ => assert!(
                described.contains("without a git history") && files.is_empty(),
                "{described}"
            ),
        }
        // Files that only lie in the tree of somebody else.
        let folder = here.join("src");
        let unknown = commit::describe(Some("HEAD; rm"), &folder);
        assert_eq!(
            unknown,
            "commit unknown: built from files without a git history"
        );
        let text = Cli::command().render_version();
        assert!(text.starts_with(concat!("penstock ", env!("CARGO_PKG_VERSION"), " (")));
    }

    #[test]
    fn the_tree_of_commands_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_verb_has_a_command() {
        let tree = Cli::command();
        for verb in Verb::ALL {
            let name = match verb {
                // The port for clients of Redis alone sends it.
                Verb::Flush => continue,
                // `get` with the time or the version.
                Verb::GetAt => "get".to_string(),
                _ => verb.name().replace('_', "-"),
            };
            assert!(tree.find_subcommand(&name).is_some(), "no command {name}");
        }
    }
}
