//! The commands about diverged records: what a node acknowledged and could not keep.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use penstock::cluster::lostfound::lost::Units;

use super::lost_export::{EXPORT_EXAMPLES, ExportArgs};
use super::lost_files::{files_of, lost_of};
use super::output::{Output, hex};
use super::{EXIT_CODES, Failure};

pub const LOSTFOUND_EXAMPLES: &str = "\
A node that had written what nobody else received keeps that when it comes back behind another
one. Each change is a line with --all: partition, version, time, key, value in hexadecimal or a
dash for a deletion. Some of it may be in the cluster by now: who has sent a write again with its
token has done it there. export tells of each write whether it is.

Examples:
  penstock cluster lostfound /var/lib/penstock
  penstock cluster lostfound /var/lib/penstock --units
  penstock cluster lostfound /var/lib/penstock --all
  penstock cluster lostfound export /var/lib/penstock --json --addr 10.0.0.2:7411";

/// Arguments of `penstock cluster lostfound`.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct LostfoundArgs {
    /// The data directory, of a running or a stopped server
    #[arg(required = true)]
    data: Option<PathBuf>,
    /// Every change, not only how many there are
    #[arg(long)]
    all: bool,
    /// Print by how much numbers of 8 bytes were changed; reads all of the log
    #[arg(long)]
    units: bool,
    #[command(subcommand)]
    command: Option<LostfoundCommand>,
}

#[derive(Subcommand)]
enum LostfoundCommand {
    /// Tell of each write what it was, and whether the cluster has it by now
    #[command(after_help = format!("{EXPORT_EXAMPLES}\n\n{EXIT_CODES}"))]
    Export(ExportArgs),
}

impl LostfoundArgs {
    /// Prints or exports it.
    pub fn run(self) -> Result<(), Failure> {
        match (self.command, self.data) {
            (Some(LostfoundCommand::Export(args)), _) => args.run(),
            (None, Some(data)) => list(&data, self.all, self.units),
            (None, None) => unreachable!("it is required"),
        }
    }
}

fn list(data: &Path, all: bool, has_units: bool) -> Result<(), Failure> {
    let files = files_of(data)?;
    let mut out = Output::stdout();
    if files.is_empty() {
        out.line(format_args!(
            "nothing is in the lostfound of {}",
            data.display()
        ));
    }
    for file in &files {
        let (records, keys) = file.counts();
        let torn = match file.torn_bytes {
            0 => String::new(),
            bytes => format!(", {bytes} bytes at the end are no record"),
        };
        let path = file.path.display();
        let repeated = match file.repeated {
            0 => String::new(),
            changes => format!(", {changes} changes stand in a later file"),
        };
        out.line(format_args!(
            "{path}: {records} records of {keys} keys{repeated}{torn}"
        ));
        for change in file.changes.iter().filter(|_| all) {
            let value = match &change.value {
                Some(value) => hex(value),
                None => "-".to_string(),
            };
            let (epoch, sequence) = change.version;
            out.line(format_args!(
                "{} {epoch}:{sequence} {} {} {value}",
                change.partition,
                change.time_ms,
                change.key.escape_ascii()
            ));
        }
    }
    if has_units {
        let lost = lost_of(data).map_err(|error| {
            Failure::usage(format!("units are not known, stop the node: {error}"))
        })?;
        let units = Units::of(&lost);
        out.line(format_args!(
            "numbers of 8 bytes: {:+} units by {} keys",
            units.changed, units.keys
        ));
        if units.unknown_keys > 0 {
            out.line(format_args!(
                "unknown by {} more keys, of which the log does not tell any more what they were \
                 at the fork: {:+} units behind the first change of each",
                units.unknown_keys, units.unknown_changed
            ));
        }
    }
    out.finish()
}
