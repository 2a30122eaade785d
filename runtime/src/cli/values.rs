//! Values, versions, times and levels as the commands take and print them.

use std::fs::File;
use std::io::Read;

use clap::ValueEnum;
use penstock_client::{Answer, Client, Execution, Verbs};
use penstock_net::keyspace::Action;
use penstock_net::level::AckLevel;
use penstock_net::limits::{EXPIRY_MS_MAX, VALUE_BYTES_HARD_MAX};
use penstock_net::request::Version;
use penstock_net::status::Status;

use super::Failure;
use super::output::Output;
use super::server::{failure_of, refused};
pub(super) use penstock_net::expression::times::{parse_lifetime, parse_version};
use penstock_net::expression::{Literal, ValueLayout};

/// How durable a write must be before its answer.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum Level {
    /// In the server's memory
    None,
    /// On the device within the server's interval
    Interval,
    /// On the device
    Disk,
    /// On the device, and received by every node that may write next; `disk` if there is none
    All,
    /// On the device, and received by every node of the sync set, at least one
    Replica,
}

impl Level {
    pub(super) fn ack(self) -> AckLevel {
        match self {
            Level::None => AckLevel::None,
            Level::Interval => AckLevel::Interval,
            Level::Disk => AckLevel::Disk,
            Level::All => AckLevel::All,
            Level::Replica => AckLevel::Replica,
        }
    }
}

/// The answer if its status is OK, otherwise the failure that the command ends with.
pub(super) fn done(answer: Answer, key: &str) -> Result<Answer, Failure> {
    Err(match answer.status {
        Status::Ok => return Ok(answer),
        Status::NotFound => Failure::no(format_args!("{key:?} does not exist")),
        Status::Exists => Failure::no(format_args!("{key:?} exists; nothing was changed")),
        Status::VersionMismatch => Failure::no(format_args!(
            "{key:?} has version {}; nothing was changed",
            version_text(answer.version)
        )),
        _ => refused(&answer),
    })
}

/// Prints the version of a write and the level that it reached.
pub(super) fn report(answer: &Answer, interval_ms: u32) -> Result<(), Failure> {
    let mut out = Output::of_write();
    let level = answer.level;
    let loss = match level {
        AckLevel::None => ", a crash may lose it".to_string(),
        AckLevel::Interval => format!(", a crash within {interval_ms} ms may lose it"),
        AckLevel::Disk | AckLevel::All | AckLevel::Replica => String::new(),
    };
    let replayed = match answer.execution {
        Execution::Now => "",
        Execution::Before => ", replayed: it was executed before",
        Execution::ByLaterWriter => {
            ", and the node began to write behind the time of the token: an earlier try at \
             another node may be lost, or in its lostfound"
        }
    };
    out.line(format_args!(
        "ok, version {}, level {}{loss}{replayed}",
        version_text(answer.version),
        level.name()
    ));
    out.finish()
}

/// Reads a layout as an argument.
pub(super) fn parse_layout(text: &str) -> Result<ValueLayout, String> {
    ValueLayout::parse(text).map_err(|error| error.to_string())
}

/// Refuses a layout whose mark is not that of the keyspace of keys with this prefix, if that has
/// one.
pub(super) fn check_mark(
    client: &Client,
    prefix: &[u8],
    layout: &ValueLayout,
) -> Result<(), Failure> {
    let keyspaces = client
        .keyspace(b"", Action::List)
        .wait()
        .map_err(|error| failure_of(&error))?;
    let around = keyspaces
        .iter()
        .filter(|it| prefix.starts_with(&it.prefix))
        .max_by_key(|it| it.prefix.len());
    let (found, mark) = (around.map_or(0, |it| it.settings.layout), layout.mark());
    match found == 0 || found == mark {
        true => Ok(()),
        false => Err(Failure::usage(format_args!(
            "the keyspace of {:?} has the layout {found}; that of --layout is {mark}: a field \
             differs in name, type or offset",
            String::from_utf8_lossy(prefix)
        ))),
    }
}

pub(super) fn read_literal(text: &str) -> Result<Vec<u8>, Failure> {
    value_of(Literal::parse(text).map_err(Failure::usage)?)
}

/// The bytes of a value, from its file if they stand in one.
pub(super) fn value_of(literal: Literal) -> Result<Vec<u8>, Failure> {
    match literal {
        Literal::Bytes(bytes) => Ok(bytes),
        Literal::File(path) => {
            // A device or a huge file must not fill the memory, so reading stops at the longest
            // value.
            let mut bytes = Vec::new();
            File::open(&path)
                .and_then(|file| {
                    file.take(VALUE_BYTES_HARD_MAX as u64 + 1)
                        .read_to_end(&mut bytes)
                })
                .map_err(|error| {
                    Failure::usage(format_args!("cannot read {}: {error}", path.display()))
                })?;
            if bytes.len() > VALUE_BYTES_HARD_MAX {
                return Err(Failure::usage(format_args!(
                    "{} has more than {VALUE_BYTES_HARD_MAX} bytes, the most of any value",
                    path.display()
                )));
            }
            Ok(bytes)
        }
    }
}

pub(super) fn parse_expiry(text: &str) -> Result<u64, String> {
    text.parse()
        .ok()
        .filter(|ms| (1..=EXPIRY_MS_MAX).contains(ms))
        .ok_or_else(|| format!("allowed is 1 to {EXPIRY_MS_MAX}, in milliseconds since 1970"))
}

pub(super) fn version_text(version: Version) -> String {
    format!("{}:{}", version.epoch, version.sequence)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expiry_is_a_time_that_the_server_takes() {
        for text in ["0", "-1", "281474976710656", "now"] {
            assert!(
                parse_expiry(text)
                    .unwrap_err()
                    .contains("1 to 281474976710655")
            );
        }
    }
}
