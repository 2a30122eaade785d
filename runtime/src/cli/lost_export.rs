//! `penstock cluster lostfound export`: each write that a node could not keep, with what a person
//! needs to choose what is to be done about it.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use penstock::cluster::lostfound::lost::AtFork;
use penstock::cluster::lostfound::lost_writes::{LostChange, LostWrite, lost_writes};
use penstock_client::Answer;
use penstock_net::level::AckLevel;
use penstock_net::request::{Ask, Condition, Token, Version};
use penstock_net::status::Status;
use serde_json::{Value, json};

use super::Failure;
use super::lost_files::{files_of, lost_of};
use super::output::{Output, hex};
use super::server::{Connection, ServerAddress};

pub const EXPORT_EXAMPLES: &str = "\
Nothing is changed, and nothing is decided: a write in lostfound may have been acknowledged or not,
its client may have sent it again, and its keys may have been changed since. With --json each write
is a line:

  version, partition, written_by, time_ms   of the record, and the node that wrote it
  token      the token of its client, or null
  there      \"token\": the node that writes now knows the token, so the write was done there;
             \"version\": a key has just this version there; \"no\": neither;
             \"unknown\": nobody could say, and why_unknown says why
  changes    for each key: key and key_hex; value_hex, null for a deletion; expiry_ms; at_fork and
             before, what the key was at the fork and before this write: {\"value_hex\": ...}, null
             in it if the key was not there, or \"unknown\"; now, the same and the version of what
             the cluster has

Without a token nobody can say whether a client has sent a write again: \"no\" then means only that
no key has its version. The node may be running or not. Its log is read once, for at_fork; that is
\"unknown\" where cleaning had released the value before the tail was kept.

To do what was chosen again: deploy/examples/lostfound/lostfound.py.

Examples:
  penstock cluster lostfound export /var/lib/penstock --addr 10.0.0.2:7411
  penstock cluster lostfound export /var/lib/penstock --addr 10.0.0.2:7411 --json > lost.jsonl
  penstock cluster lostfound export /var/lib/penstock --offline --json";

/// No key ever has this version: a write that wants it changes nothing.
const NEVER: Version = Version {
    epoch: u32::MAX,
    sequence: u64::MAX,
};

/// Arguments of `penstock cluster lostfound export`.
#[derive(Args)]
pub struct ExportArgs {
    /// The data directory, of a running or a stopped server
    data: PathBuf,
    /// Print a JSON object for each write, and not only how many there are
    #[arg(long)]
    json: bool,
    /// Ask no server: what is there by now is unknown
    #[arg(long)]
    offline: bool,
    #[command(flatten)]
    server: ServerAddress,
}

/// What the cluster has of a write by now.
#[derive(Clone, Debug, PartialEq, Eq)]
enum There {
    /// Its token is known.
    Token,
    /// A key has its version.
    Version,
    /// Neither.
    No,
    /// For this reason.
    Unknown(String),
}

impl There {
    fn name(&self) -> &'static str {
        match self {
            There::Token => "token",
            There::Version => "version",
            There::No => "no",
            There::Unknown(_) => "unknown",
        }
    }
}

/// What a key is now.
enum Present {
    Is(Version, Vec<u8>),
    Missing,
    /// For this reason.
    Unknown(String),
}

/// How many writes are there, and how many are not.
#[derive(Default)]
struct Tally {
    writes: usize,
    by_token: usize,
    by_version: usize,
    no: usize,
    no_named: usize,
    unknown: usize,
}

impl ExportArgs {
    /// Prints what is in lostfound.
    pub fn run(self) -> Result<(), Failure> {
        let files = files_of(&self.data)?;
        let lost = lost_of(&self.data);
        let cause = lost.as_ref().err().cloned();
        let writes = lost_writes(&files, &lost.unwrap_or_default());
        let mut writer = match self.offline {
            true => Err("no server was asked (--offline)".to_string()),
            false => self.server.connect().map_err(|failure| failure.line),
        };
        let mut out = Output::stdout();
        let mut tally = Tally::default();
        for write in &writes {
            let present = write
                .changes
                .iter()
                .map(|change| present_of(&mut writer, &change.key));
            let present: Vec<Present> = present.collect();
            let there = there_of(&mut writer, write, &present);
            tally.add(write, &there);
            if self.json {
                out.line(format_args!("{}", line_of(write, &there, &present)));
            }
        }
        if !self.json {
            tally.print(&mut out, &self.data.display().to_string());
        }
        out.finish()?;
        if let Some(cause) = cause.filter(|_| !writes.is_empty()) {
            eprintln!("what keys were at the fork is unknown, unless the node is stopped: {cause}");
        }
        if let Err(cause) = writer.as_ref()
            && !self.offline
        {
            eprintln!("what is there by now is unknown: {cause}");
        }
        Ok(())
    }
}

/// What a key is where it is written now.
fn present_of(writer: &mut Result<Connection, String>, key: &[u8]) -> Present {
    let connection = match writer {
        Ok(connection) => connection,
        Err(cause) => return Present::Unknown(cause.clone()),
    };
    match connection.call(AckLevel::Disk, Ask::get(key)) {
        Ok(answer) => match answer.status {
            Status::Ok => Present::Is(answer.version, answer.value.to_vec()),
            Status::NotFound => Present::Missing,
            _ => Present::Unknown(refusal(&answer)),
        },
        Err(failure) => {
            *writer = Err(failure.line.clone());
            Present::Unknown(failure.line)
        }
    }
}

/// Whether the cluster has a write by now.
fn there_of(
    writer: &mut Result<Connection, String>,
    write: &LostWrite,
    present: &[Present],
) -> There {
    let (epoch, sequence) = write.version;
    let version = Version { epoch, sequence };
    let has_version = |it: &Present| matches!(it, Present::Is(now, _) if *now == version);
    if present.iter().any(has_version) {
        return There::Version;
    }
    let unknown = present.iter().find_map(|it| match it {
        Present::Unknown(cause) => Some(There::Unknown(cause.clone())),
        Present::Is(..) | Present::Missing => None,
    });
    let Some(first) = write.changes.first() else {
        return There::No;
    };
    match write.token {
        Some(token) => ask_for_token(writer, &first.key, token),
        None => unknown.unwrap_or(There::No),
    }
}

/// Whether a token is known where a key of its slot is written. The question is another write with
/// the same token, whose condition never holds: it changes nothing, and a server answers it by the
/// token if it knows that.
fn ask_for_token(writer: &mut Result<Connection, String>, key: &[u8], token: Token) -> There {
    let connection = match writer {
        Ok(connection) => connection,
        Err(cause) => return There::Unknown(cause.clone()),
    };
    let ask = Ask::Del {
        key,
        when: Condition::Version(NEVER).into(),
    };
    match connection.call_named(AckLevel::Disk, ask, token) {
        Ok(answer) => match answer.status {
            Status::TokenReused => There::Token,
            Status::NotFound | Status::VersionMismatch => There::No,
            _ => There::Unknown(refusal(&answer)),
        },
        Err(failure) => {
            *writer = Err(failure.line.clone());
            There::Unknown(failure.line)
        }
    }
}

fn refusal(answer: &Answer) -> String {
    let message = String::from_utf8_lossy(&answer.value);
    format!("{}: {message}", answer.status.name())
}

/// A write as an object.
fn line_of(write: &LostWrite, there: &There, present: &[Present]) -> Value {
    let (epoch, sequence) = write.version;
    let changes = write.changes.iter().zip(present);
    let changes: Vec<Value> = changes.map(|(it, now)| change_of(it, now)).collect();
    json!({
        "version": format!("{epoch}:{sequence}"),
        "partition": write.partition,
        "written_by": write.written_by(),
        "time_ms": write.time_ms,
        "token": write.token.map(|token| token.to_string()),
        "there": there.name(),
        "why_unknown": match there {
            There::Unknown(cause) => Some(cause),
            _ => None,
        },
        "changes": changes,
    })
}

fn change_of(change: &LostChange, now: &Present) -> Value {
    let value = |value: Option<&[u8]>| json!({"value_hex": value.map(hex)});
    let was = |before: &AtFork| match before {
        AtFork::Was(before) => value(before.as_deref()),
        AtFork::Unknown => json!("unknown"),
    };
    json!({
        "key": std::str::from_utf8(&change.key).ok(),
        "key_hex": hex(&change.key),
        "value_hex": change.value.as_deref().map(hex),
        "expiry_ms": change.expiry_ms,
        "at_fork": was(&change.at_fork),
        "before": was(&change.before),
        "now": match now {
            Present::Is(version, now) => {
                let Version { epoch, sequence } = version;
                json!({"value_hex": hex(now), "version": format!("{epoch}:{sequence}")})
            }
            Present::Missing => value(None),
            Present::Unknown(_) => json!("unknown"),
        },
    })
}

impl Tally {
    fn add(&mut self, write: &LostWrite, there: &There) {
        self.writes += 1;
        match there {
            There::Token => self.by_token += 1,
            There::Version => self.by_version += 1,
            There::No => {
                self.no += 1;
                self.no_named += usize::from(write.token.is_some());
            }
            There::Unknown(_) => self.unknown += 1,
        }
    }

    fn print(&self, out: &mut Output<impl Write>, data: &str) {
        let Tally {
            writes,
            by_token,
            by_version,
            no,
            no_named,
            unknown,
        } = self;
        if *writes == 0 {
            out.line(format_args!("nothing is in the lostfound of {data}"));
            return;
        }
        out.line(format_args!(
            "{writes} writes: {by_token} are there by their tokens, {by_version} by their \
             versions; {no} are not, {no_named} of them with a token; of {unknown} it is unknown"
        ));
    }
}
