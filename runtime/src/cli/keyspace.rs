//! The commands about keyspaces and the versions that they keep.

use std::io::Stdout;

use clap::{Args, Subcommand, ValueEnum};
use penstock_net::keyspace::{Action, Keyspace, Settings};
use penstock_net::level::AckLevel;
use penstock_net::limits::KEYSPACE_BYTES_MAX;
use penstock_net::request::Ask;
use penstock_net::status::Status;

use super::output::Output;
use super::server::{Connection, ServerAddress, failure_of, refused};
use super::values::{done, parse_lifetime, version_text};
use super::{EXIT_CODES, Failure};

/// What the help of the commands about keyspaces ends with.
pub const KEYSPACE_EXAMPLES: &str = "\
A keyspace is all keys that begin with its PREFIX, but for those with a longer prefix that is one
too. The empty PREFIX is that of all keys. Dropping it leaves its keys. History begins when
versions are kept for the first time, and anew when more are to be kept than before.

Examples:
  penstock keyspace create price: --versions 10
  penstock keyspace set price: --retention 7d --versions 0
  penstock keyspace create hold: --ttl 10m --value-bytes-max 4096
  penstock keyspace set order: --level-min disk
  penstock keyspace list
  penstock keyspace drop hold:";

const HISTORY_EXAMPLES: &str = "\
Examples:
  penstock history price:42
  penstock history price:42 --limit 5 --before 1042
    older than sequence 1042, which the line before ended with";

/// What `penstock keyspace` does.
#[derive(Subcommand)]
pub enum KeyspaceCommand {
    /// Make a keyspace
    #[command(after_help = format!("{KEYSPACE_EXAMPLES}\n\n{EXIT_CODES}"))]
    Create(SetArgs),
    /// Change settings of a keyspace, which is made if it is missing; other settings stay
    #[command(after_help = format!("{KEYSPACE_EXAMPLES}\n\n{EXIT_CODES}"))]
    Set(SetArgs),
    /// Print all keyspaces
    #[command(after_help = format!("{KEYSPACE_EXAMPLES}\n\n{EXIT_CODES}"))]
    List(ListArgs),
    /// Drop a keyspace; its keys stay
    #[command(after_help = format!("{KEYSPACE_EXAMPLES}\n\n{EXIT_CODES}"))]
    Drop(DropArgs),
}

/// The levels that a keyspace may demand. Level replica can only be asked for by a request.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum KeyspaceLevel {
    /// In the server's memory
    None,
    /// On the device within the server's interval
    Interval,
    /// On the device
    Disk,
    /// On the device, and received by every node that may write next
    All,
}

impl KeyspaceLevel {
    fn ack(self) -> AckLevel {
        match self {
            KeyspaceLevel::None => AckLevel::None,
            KeyspaceLevel::Interval => AckLevel::Interval,
            KeyspaceLevel::Disk => AckLevel::Disk,
            KeyspaceLevel::All => AckLevel::All,
        }
    }
}

/// Arguments of `penstock keyspace create` and `set`.
#[derive(Args)]
pub struct SetArgs {
    /// What its keys begin with, 0 to 64 bytes
    prefix: String,
    /// The least ack level; a request for less is raised to it
    #[arg(long, alias = "level")]
    level_min: Option<KeyspaceLevel>,
    /// The ack level of requests that name none, as those of Redis clients; none is no such level
    #[arg(long)]
    level_default: Option<KeyspaceLevel>,
    /// Superseded versions kept of each key, 0 to 255; 0 is none, or any number with --retention
    #[arg(long, value_name = "N")]
    versions: Option<u8>,
    /// How long a superseded version is kept: 500ms, 30s, 10m, 2h, 7d; 0 is no limit
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    retention: Option<u64>,
    /// Lifetime of values written without an expiry: 500ms, 30s, 10m, 2h, 7d; 0 is none
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    ttl: Option<u64>,
    /// Bytes of a value, at most; 0 is the server's limit
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(..=16 << 20))]
    value_bytes_max: Option<u32>,
    /// The layout that values are marked with in the log
    #[arg(long, value_name = "N")]
    layout: Option<u16>,
    #[command(flatten)]
    server: ServerAddress,
}

/// Arguments of `penstock keyspace list`.
#[derive(Args)]
pub struct ListArgs {
    #[command(flatten)]
    server: ServerAddress,
}

/// Arguments of `penstock keyspace drop`.
#[derive(Args)]
pub struct DropArgs {
    /// What its keys begin with
    prefix: String,
    #[command(flatten)]
    server: ServerAddress,
}

/// Arguments of `penstock history`.
#[derive(Args)]
#[command(after_help = format!("{HISTORY_EXAMPLES}\n\n{EXIT_CODES}"))]
pub struct HistoryArgs {
    /// The key, 1 to 1024 bytes
    key: String,
    /// Versions, at most
    #[arg(
        long,
        value_name = "N",
        default_value_t = 100,
        value_parser = clap::value_parser!(u32).range(1..=1024)
    )]
    limit: u32,
    /// Only versions with a sequence below this
    #[arg(long, value_name = "SEQUENCE", default_value_t = 0)]
    before: u64,
    #[command(flatten)]
    server: ServerAddress,
}

impl KeyspaceCommand {
    /// Changes or prints keyspaces.
    pub fn run(self) -> Result<(), Failure> {
        match self {
            KeyspaceCommand::Create(args) => {
                let connection = args.server.connect()?;
                let settings = args.over(Settings::default());
                let prefix = args.prefix.as_bytes();
                report(
                    Output::of_write(),
                    &ask(&connection, prefix, Action::Create(settings))?,
                )
            }
            KeyspaceCommand::Set(args) => {
                let connection = args.server.connect()?;
                let prefix = args.prefix.as_bytes();
                let there = ask(&connection, b"", Action::List)?;
                let before = there.iter().find(|keyspace| keyspace.prefix == prefix);
                let settings = args.over(before.map_or_else(Settings::default, |it| it.settings));
                report(
                    Output::of_write(),
                    &ask(&connection, prefix, Action::Set(settings))?,
                )
            }
            KeyspaceCommand::List(args) => {
                let there = ask(&args.server.connect()?, b"", Action::List)?;
                report(Output::stdout(), &there)
            }
            KeyspaceCommand::Drop(args) => {
                let connection = args.server.connect()?;
                ask(&connection, args.prefix.as_bytes(), Action::Drop)?;
                let mut out = Output::of_write();
                out.line(format_args!("ok, keyspace {:?} is dropped", args.prefix));
                out.finish()
            }
        }
    }
}

impl SetArgs {
    fn over(&self, before: Settings) -> Settings {
        Settings {
            level_min: self.level_min.map_or(before.level_min, KeyspaceLevel::ack),
            level_default: match self.level_default {
                None => before.level_default,
                Some(KeyspaceLevel::None) => None,
                Some(level) => Some(level.ack()),
            },
            versions: self.versions.unwrap_or(before.versions),
            layout: self.layout.unwrap_or(before.layout),
            value_bytes_max: self.value_bytes_max.unwrap_or(before.value_bytes_max),
            retention_ms: self.retention.unwrap_or(before.retention_ms),
            ttl_ms: self.ttl.unwrap_or(before.ttl_ms),
        }
    }
}

impl HistoryArgs {
    /// Prints a line for each version.
    pub fn run(self) -> Result<(), Failure> {
        let answer = self.server.connect()?.call(
            AckLevel::Disk,
            Ask::History {
                key: self.key.as_bytes(),
                before: self.before,
                limit: self.limit,
            },
        )?;
        let history = done(answer, &self.key)?.history();
        let history = history.map_err(|error| failure_of(&error))?;
        let mut out = Output::stdout();
        for kept in &history.versions {
            let what = if kept.is_deletion {
                "deleted"
            } else {
                "written"
            };
            let when = match kept.time_ms {
                0 => "before versions were kept".to_string(),
                ms => format!("at {ms}"),
            };
            let until = match kept.expiry_ms {
                0 => String::new(),
                ms => format!(", expires at {ms}"),
            };
            out.line(format_args!(
                "{} {what} {when}{until}",
                version_text(kept.version)
            ));
        }
        if let Some(last) = history.versions.last().filter(|_| history.has_more) {
            out.line(format_args!("more: --before {}", last.version.sequence));
        }
        out.finish()
    }
}

fn ask(connection: &Connection, prefix: &[u8], action: Action) -> Result<Vec<Keyspace>, Failure> {
    if prefix.len() > KEYSPACE_BYTES_MAX {
        return Err(Failure::usage(format_args!(
            "PREFIX has {} bytes; 0 to {KEYSPACE_BYTES_MAX} are allowed",
            prefix.len()
        )));
    }
    let answer = connection.call(AckLevel::Disk, Ask::Keyspace { prefix, action })?;
    match answer.status {
        Status::Ok => answer.keyspaces().map_err(|error| failure_of(&error)),
        _ => Err(refused(&answer)),
    }
}

fn report(mut out: Output<Stdout>, keyspaces: &[Keyspace]) -> Result<(), Failure> {
    for keyspace in keyspaces {
        let text = keyspace_text(&keyspace.prefix, &keyspace.settings);
        out.line(format_args!("{text}"));
    }
    out.finish()
}

/// A keyspace in one line.
pub fn keyspace_text(prefix: &[u8], settings: &Settings) -> String {
    let Settings {
        level_min,
        level_default,
        versions,
        layout,
        value_bytes_max,
        retention_ms,
        ttl_ms,
    } = settings;
    format!(
        "\"{}\" level-min {}{} versions {versions} retention {retention_ms}ms ttl {ttl_ms}ms \
         value-bytes-max {value_bytes_max} layout {layout}",
        prefix.escape_ascii(),
        level_min.name(),
        level_default.map_or_else(String::new, |level| {
            format!(" level-default {}", level.name())
        }),
    )
}

fn parse_time(text: &str) -> Result<u64, String> {
    match text {
        "0" => Ok(0),
        text => parse_lifetime(text).map_err(|error| format!("{error}, or 0")),
    }
}
