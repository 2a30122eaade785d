//! The commands about diverged records: what a node acknowledged and could not keep.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use penstock::cluster::lostfound::read_lostfound;
use penstock::cluster::replay::{Lost, Rule, Units, Verdict, Writer};
use penstock::cluster::tails::{node_of, read_lost, read_lost_beside};
use penstock_net::level::AckLevel;
use penstock_net::request::{Ask, Condition, Expiry};
use penstock_net::status::Status;

use super::connection::{Connection, ServerAddress};
use super::output::{Output, hex};
use super::values::Level;
use super::{EXIT_CODES, Failure};

pub const LOSTFOUND_EXAMPLES: &str = "\
A node that had written what nobody else received keeps that when it comes back behind another
one. Each change is a line with --all: partition, version, time, key, value in hexadecimal or a
dash for a deletion.

Examples:
  penstock cluster lostfound /var/lib/penstock
  penstock cluster lostfound /var/lib/penstock --units
  penstock cluster lostfound /var/lib/penstock --all
  penstock cluster lostfound replay /var/lib/penstock --addr 10.0.0.2:7411 --dry-run";

const REPLAY_EXAMPLES: &str = "\
Stop the node whose directory it is; --addr is the node that writes now. For each key of a tail,
what it was at the fork (the log tells) and behind the tail are held against what it is now:

  unchanged  what is now as it was at the fork becomes what the tail made of it; all else is left
  add        of numbers of 8 bytes, the difference that the tail made is added to what is there now;
             all else is left
  overwrite  all becomes what the tail made of it, whatever it is now

Each write is guarded by the version that was read, so nothing that changes meanwhile is
overwritten. A line tells of each key what was done, or why it was left. What was tried is noted
in lostfound/replayed before it is tried, and not tried again. Replay soon: a node that has joined
again cleans its log, and then nobody can tell what a key was at the fork.

One tail may stand in the lostfound of two nodes, if one had received it from the other. The
version of a record names the node that wrote it, and without --written-by only what the node of
DATA wrote itself is done: so each sale counts once. If the disk of a writer is lost, give its
number on one of the nodes that have its tail; on a second one give --tried with the first one's
lostfound/replayed, too.

Examples:
  penstock cluster lostfound replay /var/lib/penstock --addr 10.0.0.2:7411 --dry-run
  penstock cluster lostfound replay /var/lib/penstock --addr 10.0.0.2:7411 --written-by 1 --dry-run
  penstock cluster lostfound replay /var/lib/penstock --addr 10.0.0.2:7411 \\
    --rule add --level replica";

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
    /// Do again what a tail did, where the partition is written now
    #[command(after_help = format!("{REPLAY_EXAMPLES}\n\n{EXIT_CODES}"))]
    Replay(ReplayArgs),
}

/// Arguments of `penstock cluster lostfound replay`.
#[derive(Args)]
struct ReplayArgs {
    /// The data directory of the stopped node that had written the tail
    data: PathBuf,
    #[command(flatten)]
    server: ServerAddress,
    /// The changes that are done again, by what their keys have now
    #[arg(long, value_enum, default_value = "unchanged")]
    rule: RuleName,
    /// Only tell what would be done
    #[arg(long)]
    dry_run: bool,
    /// Only tails with a change in this file of lostfound, by its name
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    /// Only what this node wrote, by its number, instead of what the node of DATA wrote: for a node
    /// whose disk is lost
    #[arg(long, value_name = "NODE")]
    written_by: Option<u8>,
    /// The file lostfound/replayed of another node: what a replay there has tried is not tried
    /// again
    #[arg(long, value_name = "FILE")]
    tried: Vec<PathBuf>,
    /// How durable each write must be
    #[arg(long, default_value = "disk")]
    level: Level,
}

#[derive(Clone, Copy, ValueEnum)]
enum RuleName {
    Unchanged,
    Add,
    Overwrite,
}

impl RuleName {
    fn rule(self) -> Rule {
        match self {
            RuleName::Unchanged => Rule::Unchanged,
            RuleName::Add => Rule::Add,
            RuleName::Overwrite => Rule::Overwrite,
        }
    }
}

impl LostfoundArgs {
    /// Prints or replays it.
    pub fn run(self) -> Result<(), Failure> {
        match (self.command, self.data) {
            (Some(LostfoundCommand::Replay(args)), _) => args.run(),
            (None, Some(data)) => list(&data, self.all, self.units),
            (None, None) => unreachable!("it is required"),
        }
    }
}

/// How often a log is read, at most: it may change while its node runs.
const READS_MAX: usize = 3;

fn list(data: &Path, all: bool, has_units: bool) -> Result<(), Failure> {
    let files = read_lostfound(data)
        .map_err(|error| Failure::usage(format!("{}: {error}", data.display())))?;
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
        let mut read = read_lost_beside(data);
        for _ in 1..READS_MAX {
            if read.is_err() {
                read = read_lost_beside(data);
            }
        }
        let read = read.map_err(|error| {
            Failure::usage(format!("units are not known, stop the node: {error}"))
        })?;
        let units = Units::of(&read);
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

/// How a replay has ended for its keys.
#[derive(Default)]
struct Tally {
    done: usize,
    same: usize,
    left: usize,
    /// Another node wrote them.
    of_others: usize,
    units: i128,
}

impl ReplayArgs {
    fn run(self) -> Result<(), Failure> {
        let mut journal = Journal::open(&self.data)?;
        for path in &self.tried {
            journal.add(path)?;
        }
        let own = match self.written_by {
            Some(node) => node,
            None => node_of(&self.data).map_err(Failure::usage)?,
        };
        let lost = read_lost(&self.data, self.only.as_deref()).map_err(Failure::usage)?;
        let mut connection = self.server.connect()?;
        let mut out = Output::stdout();
        let mut tally = Tally::default();
        for lost in lost {
            let writer = Writer::of(lost.version.0).node();
            let replayed = match writer == own {
                true => self.replay(&mut connection, &lost, &mut journal)?,
                false => Replayed::OfOther(writer),
            };
            match replayed {
                Replayed::OfOther(_) => tally.of_others += 1,
                _ => tally.units += lost.units().unwrap_or_default(),
            }
            match replayed {
                Replayed::OfOther(_) => {}
                Replayed::Done | Replayed::Would => tally.done += 1,
                Replayed::Same => tally.same += 1,
                Replayed::Left(_) => tally.left += 1,
            }
            let (key, records) = (lost.key.escape_ascii(), lost.records);
            out.line(format_args!("{key}: {records} records, {replayed}"));
        }
        let Tally {
            done,
            same,
            left,
            of_others,
            units,
        } = tally;
        let verb = match self.dry_run {
            true => "would be written",
            false => "written",
        };
        out.line(format_args!(
            "{done} keys {verb}, {same} need nothing, {left} left; numbers of 8 bytes: {units:+} \
             by the tails"
        ));
        if of_others > 0 {
            out.line(format_args!(
                "{of_others} keys were left because another node wrote them: replay there, or \
                 give --written-by if its disk is lost"
            ));
        }
        out.finish()?;
        match left + of_others > 0 && done + same == 0 {
            true => Err(Failure::no(format_args!(
                "all {} keys were left",
                left + of_others
            ))),
            false => Ok(()),
        }
    }

    fn replay(
        &self,
        connection: &mut Connection,
        lost: &Lost,
        journal: &mut Journal,
    ) -> Result<Replayed, Failure> {
        if journal.has(lost) {
            return Ok(Replayed::Left(
                "it was tried before: look at it by hand".into(),
            ));
        }
        let key = &lost.key[..];
        let found = connection.call(AckLevel::Disk, Ask::get(key))?;
        let (present, condition) = match found.head.status {
            Status::Ok => (Some(&*found.value), Condition::Version(found.head.version)),
            Status::NotFound => (None, Condition::Absent),
            status => {
                let message = String::from_utf8_lossy(&found.value);
                return Ok(Replayed::Left(format!("{}: {message}", status.name())));
            }
        };
        let verdict = lost.judge(self.rule.rule(), present);
        match &verdict {
            Verdict::Same => return Ok(Replayed::Same),
            Verdict::Left(why) => return Ok(Replayed::Left((*why).into())),
            Verdict::Set(_) | Verdict::Delete if self.dry_run => return Ok(Replayed::Would),
            Verdict::Set(_) | Verdict::Delete => {}
        }
        journal.note(lost)?;
        let ask = match &verdict {
            Verdict::Set(value) => {
                // A number that is added to keeps its expiry.
                let expiry = match (self.rule, lost.expiry_ms) {
                    (RuleName::Add, _) => Expiry::Keep,
                    (_, Some(at)) => Expiry::At(at),
                    (_, None) => Expiry::Never,
                };
                Ask::Set {
                    key,
                    value,
                    when: condition.into(),
                    expiry,
                }
            }
            _ => Ask::Del {
                key,
                when: condition.into(),
            },
        };
        let answer = connection.call(self.level.ack(), ask)?;
        Ok(match answer.head.status {
            Status::Ok => Replayed::Done,
            Status::VersionMismatch | Status::Exists | Status::NotFound => {
                Replayed::Left("it was changed meanwhile".into())
            }
            status => {
                let message = String::from_utf8_lossy(&answer.value);
                Replayed::Left(format!("{}: {message}", status.name()))
            }
        })
    }
}

enum Replayed {
    Done,
    /// It would have been written, but for --dry-run.
    Would,
    Same,
    Left(String),
    /// The node with this number wrote it and has it in its own lostfound.
    OfOther(u8),
}

impl std::fmt::Display for Replayed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Replayed::Done => f.write_str("written"),
            Replayed::Would => f.write_str("would be written"),
            Replayed::Same => f.write_str("needs nothing"),
            Replayed::Left(why) => write!(f, "left: {why}"),
            Replayed::OfOther(node) => write!(
                f,
                "left: node {node} wrote it, and a replay of its lostfound does it: here it \
                 would count twice; if the disk of node {node} is lost, give --written-by {node}"
            ),
        }
    }
}

/// The keys of each tail that were tried. A note is durable before its try, because the answer may
/// never come, and to add a difference twice would be wrong.
struct Journal {
    path: PathBuf,
    tried: BTreeSet<(String, Writer)>,
    /// Bytes of whole lines. A crash may have cut the last line: its key was not tried.
    whole_bytes: u64,
    file: Option<File>,
}

impl Journal {
    fn open(data: &Path) -> Result<Journal, Failure> {
        let folder = data.join("lostfound");
        let path = folder.join("replayed");
        let failure =
            |error: &dyn std::fmt::Display| Failure::usage(format!("{}: {error}", path.display()));
        for entry in fs::read_dir(&folder).into_iter().flatten() {
            let other = entry.map_err(|error| failure(&error))?.path();
            if other.extension().is_some_and(|it| it == "replayed") {
                return Err(Failure::usage(format!(
                    "{} tells what an earlier build has tried, which this one cannot read: its \
                     keys would be tried again; compare those by hand, then move it away",
                    other.display()
                )));
            }
        }
        let text = match fs::read_to_string(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            read => read.map_err(|error| failure(&error))?,
        };
        let whole = text.rfind('\n').map_or("", |end| &text[..=end]);
        Ok(Journal {
            tried: entries(whole).map_err(|error| failure(&error))?,
            whole_bytes: whole.len() as u64,
            path,
            file: None,
        })
    }

    /// Takes the keys of another node's journal as tried, too.
    fn add(&mut self, path: &Path) -> Result<(), Failure> {
        let failure =
            |error: &dyn std::fmt::Display| Failure::usage(format!("{}: {error}", path.display()));
        let text = fs::read_to_string(path).map_err(|error| failure(&error))?;
        let tried = entries(&text).map_err(|error| failure(&error))?;
        self.tried.extend(tried);
        Ok(())
    }

    fn has(&self, lost: &Lost) -> bool {
        self.tried.contains(&entry_of(lost))
    }

    fn note(&mut self, lost: &Lost) -> Result<(), Failure> {
        let written = (|| {
            let file = match &mut self.file {
                Some(file) => file,
                none => {
                    let file = File::options().append(true).create(true).open(&self.path)?;
                    file.set_len(self.whole_bytes)?;
                    let folder = self.path.parent().unwrap_or(Path::new("."));
                    File::open(folder)?.sync_all()?;
                    none.insert(file)
                }
            };
            let (epoch, sequence) = lost.version;
            writeln!(file, "{} {epoch}:{sequence}", hex(&lost.key))?;
            file.sync_data()
        })();
        written.map_err(|error: std::io::Error| {
            Failure::usage(format!("{}: {error}", self.path.display()))
        })?;
        self.tried.insert(entry_of(lost));
        Ok(())
    }
}

/// The entries of a journal.
fn entries(text: &str) -> Result<BTreeSet<(String, Writer)>, String> {
    let entry = |line: &str| {
        let (key, version) = line.split_once(' ')?;
        let (epoch, _) = version.split_once(':')?;
        Some((key.to_string(), Writer::of(epoch.parse().ok()?)))
    };
    let entries = text.lines();
    entries
        .map(|line| entry(line).ok_or_else(|| format!("{line:?} is no line of its own")))
        .collect()
}

fn entry_of(lost: &Lost) -> (String, Writer) {
    (hex(&lost.key), Writer::of(lost.version.0))
}
