//! `penstock inspect`: reads and checks every byte of a stopped data directory, and with `--repair`
//! makes one that is damaged fit to be served, if the operator agrees to what that gives up.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::{ArgGroup, Args};
use penstock::directory::read_at;
use penstock::directory::repair::{carry_out, lost_text, put_identity};
use penstock::directory::set_aside;
use penstock::directory::{Directory, DirectoryError};
use penstock::system::advice;
use penstock_shard::hash_check;
use penstock_shard::opening::OpeningError;
use penstock_shard::settings_to_wire;
use penstock_storage::inspect::{LogReport, Report, inspect_laid_out};
use penstock_storage::key_table::{KeyTable, TableError, TableHome};
use penstock_storage::place::FileId;
use penstock_storage::place::Lsn;
use penstock_storage::record::PartKind;
use penstock_storage::recovery::{Event, Segment, Survey, survey_laid_out};
use penstock_storage::repair::plan_laid_out;
use penstock_storage::snapshot::{
    Coverage, SnapshotError, SnapshotFooter, SnapshotItem, SnapshotName, SnapshotReader,
};

use super::keyspace::keyspace_text;
use super::lowering::{self, LOSS_OF_TIMES, LowerTo};
use super::output::{Output, count, hex};
use super::stopped::{cannot_open, layout_of};
use super::{EXIT_CODES, Failure};

const EXAMPLES: &str = "\
Examples:
  penstock inspect ./penstock-data
  penstock inspect ./penstock-data --dump | grep stock:42
  penstock inspect ./penstock-data --repair                        what a repair would give up
  penstock inspect ./penstock-data --repair --accept-loss 1:5-7    carry it out
  penstock inspect ./penstock-data --lower-time now                after a clock that was ahead";

/// The directory that is checked, and how much is printed.
#[derive(Args)]
#[command(
    after_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"),
    group = ArgGroup::new("mend").args(["repair", "lower_time"])
)]
pub struct InspectArgs {
    /// Data directory of a stopped server; nothing in it is changed unless a loss is accepted
    #[arg(value_name = "DIR", default_value = "./penstock-data")]
    directory: PathBuf,
    /// Also print every segment, frame and part, oldest first
    #[arg(long)]
    dump: bool,
    /// Print all damage, how a repair would mend it, and the records that the repair would give up
    #[arg(long, conflicts_with = "dump")]
    repair: bool,
    /// Carry the repair out, if what it gives up is among these: LOG:FROM-TO, file:N, identity or
    /// none, as --repair prints it. Give it once for each; files as they were go to lostfound/ in
    /// DIR
    #[arg(long, value_name = "LOSS", requires = "mend", value_parser = parse_loss)]
    accept_loss: Vec<String>,
    /// Print what it costs to lower the time of a directory that was served while the clock of its
    /// machine was ahead: to now, a time such as 2026-11-29T03:00:00Z, or unix milliseconds.
    /// --accept-loss times carries it out
    #[arg(long, value_name = "TIME", conflicts_with_all = ["dump", "repair"],
        value_parser = lowering::parse_time)]
    lower_time: Option<LowerTo>,
}

impl InspectArgs {
    /// Prints what the directory holds; fails if anything is damaged.
    pub fn run(self) -> Result<(), Failure> {
        if let Some(to) = self.lower_time {
            return lowering::lower(&self.directory, to, &self.accept_loss);
        }
        let opened = if self.accept_loss.is_empty() {
            Directory::inspect(&self.directory)
        } else {
            Directory::repair(&self.directory)
        };
        if let (true, Err(DirectoryError::Damaged { .. })) = (self.repair, &opened) {
            return self.repair_identity();
        }
        let directory = opened.map_err(cannot_open)?;
        if self.repair {
            return self.repair(&directory);
        }
        report(&directory, self.dump)
    }

    /// Prints what the segments prove of a damaged IDENTITY; writes it if that was accepted.
    fn repair_identity(&self) -> Result<(), Failure> {
        let directory = Directory::without_identity(&self.directory).map_err(cannot_open)?;
        let identity = directory.identity();
        let mut out = Output::stdout();
        out.line(format_args!(
            "IDENTITY is damaged; the segments prove: cluster {}, node {}, {} from log {} on; the \
             next incarnation is {}",
            hex(&identity.cluster_id),
            hex(&identity.node_id),
            count(identity.log_count.into(), "shard"),
            identity.first_log,
            identity.incarnation + 1
        ));
        if !self.accept_loss.iter().any(|loss| loss == LOSS_OF_IDENTITY) {
            out.line(format_args!(
                "gives up: {LOSS_OF_IDENTITY} (when it was made, the snapshots of the index)"
            ));
            out.line(format_args!("nothing was changed; to carry it out:"));
            out.line(format_args!(
                "  {} --accept-loss {LOSS_OF_IDENTITY}",
                advice::repair(&self.directory)
            ));
            out.finish()?;
            return Err(match self.accept_loss.is_empty() {
                true => Failure::no("a repair was planned and not carried out"),
                false => Failure::usage(format_args!(
                    "--accept-loss {LOSS_OF_IDENTITY} is not given; nothing was changed"
                )),
            });
        }
        let folder = put_identity(&directory)
            .map_err(|error| Failure::usage(format_args!("cannot repair: {error}")))?;
        out.done("IDENTITY was made anew");
        out.line(format_args!(
            "IDENTITY was made anew; the file as it was: {}",
            folder.display()
        ));
        out.finish()
    }

    /// Prints the plan; carries it out if all that it gives up was accepted.
    fn repair(&self, directory: &Directory) -> Result<(), Failure> {
        let failed = |error| Failure::usage(format_args!("cannot repair: {error}"));
        let layout = layout_of(directory)?;
        let planned = || {
            let mut source = directory.segments().reader();
            let proven = directory.snapshots().proven_ends(directory.owner())?;
            plan_laid_out(&mut source, directory.owner(), &layout, &proven)
        };
        let plan = planned().map_err(failed)?;
        let data = directory.path().to_string_lossy();
        let mut out = Output::stdout();
        if !plan.is_needed() {
            out.line(format_args!("nothing to repair: a start would be served"));
            return out.finish();
        }
        for damage in &plan.damages {
            out.line(format_args!("{}", damage.within(&data)));
            for part in damage.lost_parts.iter().take(PARTS_SHOWN_MAX) {
                out.line(format_args!("  {}", lost_text(part)));
            }
            let more = damage.lost_parts.len().saturating_sub(PARTS_SHOWN_MAX);
            if more > 0 {
                out.line(format_args!("  and {more} more"));
            }
        }
        for error in &plan.beyond {
            out.line(format_args!("BEYOND REPAIR: {}", error.within(&data)));
        }
        if !plan.beyond.is_empty() {
            out.line(format_args!("nothing was changed"));
            out.finish()?;
            return Err(Failure::no(
                "this cannot be repaired here: restore the directory from a backup",
            ));
        }
        let mut losses: Vec<String> = plan.losses().map(|loss| loss.to_string()).collect();
        if losses.is_empty() {
            losses.push("none".into());
        }
        // The same command finishes a repair that was interrupted: losses that were carried out
        // are no longer in the plan.
        for given in self.accept_loss.iter().filter(|it| !losses.contains(it)) {
            out.line(format_args!("not given up here: {given}"));
        }
        let missing = losses.iter().find(|loss| !self.accept_loss.contains(loss));
        if let Some(missing) = missing {
            out.line(format_args!("gives up: {}", losses.join(" ")));
            out.line(format_args!("nothing was changed; to carry it out:"));
            out.line(format_args!(
                "  {} --accept-loss {}",
                advice::repair(&self.directory),
                losses.join(" --accept-loss ")
            ));
            out.finish()?;
            return Err(if self.accept_loss.is_empty() {
                Failure::no("a repair was planned and not carried out")
            } else {
                Failure::usage(format_args!(
                    "--accept-loss {missing} is not given; nothing was changed"
                ))
            });
        }
        let folder = carry_out(directory, &plan).map_err(failed)?;
        out.done("the directory was repaired");
        out.line(format_args!(
            "repaired; the files as they were: {}",
            folder.display()
        ));
        out.finish()?;
        if planned().map_err(failed)?.is_needed() {
            return Err(Failure::no("there is damage left: repair again"));
        }
        Ok(())
    }
}

/// Prints what a stopped data directory holds; fails if anything in it is damaged.
pub fn check(path: &Path, dump: bool) -> Result<(), Failure> {
    report(&Directory::inspect(path).map_err(cannot_open)?, dump)
}

fn report(directory: &Directory, dump: bool) -> Result<(), Failure> {
    let identity = directory.identity();
    let mut out = Output::stdout();
    out.line(format_args!(
        "{}: cluster {}, node {}, incarnation {}, {}",
        directory.path().display(),
        hex(&identity.cluster_id),
        hex(&identity.node_id),
        identity.incarnation,
        count(identity.log_count.into(), "log"),
    ));
    let mut source = directory.segments().reader();
    let layout = layout_of(directory)?;
    for log in &layout.inherited {
        out.line(format_args!(
            "log {} is inherited from an earlier number of shards and ends with segment {} at \
             offset {}, LSN {}",
            log.log_id, log.end.sequence, log.end.end_offset, log.end.last_lsn.0
        ));
    }
    let (owner, proven) = (
        directory.owner(),
        directory.proven_ends().map_err(cannot_open)?,
    );
    let report = inspect_laid_out(&mut source, Some(owner), &layout, &proven, &mut |event| {
        if dump {
            show(&mut out, event);
        }
    });
    summarize(&mut out, &report, directory);
    let data = directory.path().to_string_lossy();
    if !report.damage.is_empty() {
        // A log is read up to its first damage; a plan to mend it also reads what stands behind.
        match plan_laid_out(&mut source, owner, &layout, &proven) {
            Ok(plan) => {
                out.line(format_args!("all that a repair would find:"));
                for damage in &plan.damages {
                    out.line(format_args!("  {}", damage.within(&data)));
                }
                for error in &plan.beyond {
                    out.line(format_args!("  beyond repair: {}", error.within(&data)));
                }
            }
            Err(error) => out.line(format_args!("what a repair would find is unknown: {error}")),
        }
    }
    match survey_laid_out(&mut source, owner, &layout) {
        Ok(survey) => {
            show_snapshots(&mut out, directory, &survey);
            show_key_tables(&mut out, directory, &survey);
        }
        Err(_) => show_unjudged(&mut out, directory),
    }
    out.finish()?;
    match report.damage.len() {
        0 => match report.strange_key {
            None => Ok(()),
            Some(key) => Err(Failure::no(format_args!(
                "a start would be refused: {}",
                OpeningError::StrangeKey { key }
            ))),
        },
        damages => Err(Failure::no(format_args!(
            "{damages} damaged in {}; a start that has to read it is refused; to see what a mend \
             would give up: {}",
            directory.path().display(),
            advice::repair(directory.path())
        ))),
    }
}

/// A loss as `--repair` prints it, so that a slip of the pen is not taken for one.
fn parse_loss(text: &str) -> Result<String, String> {
    let is_number = |text: &str| text.parse::<u64>().is_ok();
    let is_range = || {
        let (log, range) = text.split_once(':')?;
        let (from, to) = range.split_once('-')?;
        Some(is_number(log) && is_number(from) && (to.is_empty() || is_number(to)))
    };
    let is_file = text.strip_prefix("file:").is_some_and(is_number);
    let is_word = ["none", LOSS_OF_IDENTITY, LOSS_OF_TIMES].contains(&text);
    match is_word || is_file || is_range() == Some(true) {
        true => Ok(text.to_string()),
        false => {
            Err("allowed is LOG:FROM-TO, LOG:FROM-, file:N, identity, times or none".to_string())
        }
    }
}

/// What is given up when IDENTITY is made anew.
const LOSS_OF_IDENTITY: &str = "identity";

/// Lost parts that are printed for one damage, at most; the manifest names more.
const PARTS_SHOWN_MAX: usize = 20;

fn show(out: &mut Output<impl Write>, event: &Event<'_>) {
    match event {
        Event::Segment(segment) => {
            let header = &segment.header;
            out.line(format_args!(
                "segment {:08}.seg: log {}, chain {}, sequence {}, incarnation {}, from LSN {}, \
                 {} bytes",
                segment.file.0,
                header.log_id,
                header.chain,
                header.sequence,
                header.incarnation,
                header.first_lsn.0,
                segment.file_bytes,
            ));
        }
        Event::Frame(file, frame) => out.line(format_args!(
            "  frame {:08}.seg+{}: {:?}, LSN {}..{}, durable {}, {} records, {} bytes",
            file.0,
            frame.offset,
            frame.kind,
            frame.first_lsn.0,
            frame.end_lsn().0,
            frame.durable_lsn.0,
            frame.record_count,
            frame.body_bytes,
        )),
        Event::Contents(_) | Event::Prefetch(_) => {}
        Event::Part(part, place) => {
            let kind = match part.kind() {
                PartKind::Put => "put",
                PartKind::Tombstone => "del",
            };
            let expiry = part
                .expiry_ms()
                .map_or(String::new(), |ms| format!(", gone at {ms} ms"));
            let successor = part.successor().map_or(String::new(), |newer| {
                format!(", superseded by {}:{}", newer.epoch, newer.sequence)
            });
            out.line(format_args!(
                "    {kind} {} at {:08}.seg+{}: part {} of {}, version {}:{}, slot {}, {} value \
                 bytes, time {} ms{expiry}{successor}",
                part.key().escape_ascii(),
                place.file.0,
                place.offset,
                part.ordinal() + 1,
                part.count(),
                part.epoch(),
                part.sequence(),
                part.slot(),
                part.value().len(),
                part.time_ms(),
            ));
        }
    }
}

/// Counts snapshots and key tables that cannot be checked: they are compared with segments, and
/// damage hides which log a segment is of.
fn show_unjudged(out: &mut Output<impl Write>, directory: &Directory) {
    let snapshots = directory.snapshots().list().map_or(0, |names| names.len());
    let tables = directory.key_tables().list().map_or(0, |files| files.len());
    if snapshots + tables > 0 {
        out.line(format_args!(
            "{} and {} were not looked at: they are judged by the segments, which are damaged",
            count(snapshots as u64, "snapshot"),
            count(tables as u64, "key table")
        ));
    }
}

/// Each snapshot of the index, and whether a start would use it.
fn show_snapshots(out: &mut Output<impl Write>, directory: &Directory, survey: &Survey) {
    let folder = directory.snapshots();
    let mut names = match folder.list() {
        Ok(names) => names,
        Err(error) => {
            out.line(format_args!("snapshots cannot be listed: {error}"));
            return;
        }
    };
    names.sort_unstable();
    for (name, bytes) in names {
        let segments = survey.logs.get(&name.log_id);
        let segments = segments.map_or(&[][..], Vec::as_slice);
        match read_snapshot(directory, name, bytes, segments) {
            Ok((from, footer)) => out.line(format_args!(
                "snapshot {name}: {} entries, {bytes} bytes; the log is replayed from LSN {}, it \
                 was taken up to {}",
                footer.entries,
                from.0 + 1,
                footer.to.0
            )),
            Err(error) => out.line(format_args!("snapshot {name}: not usable: it {error}")),
        }
    }
}

/// Prints each key table, and whether it matches its segment. No start needs a key table.
fn show_key_tables(out: &mut Output<impl Write>, directory: &Directory, survey: &Survey) {
    let folder = directory.key_tables();
    let mut files = match folder.list() {
        Ok(files) => files,
        Err(error) => {
            out.line(format_args!("key tables cannot be listed: {error}"));
            return;
        }
    };
    files.sort_unstable();
    let segments: Vec<&Segment> = survey.logs.values().flatten().collect();
    for (file, bytes) in files {
        let segment = segments.iter().find(|segment| segment.file == file);
        match read_key_table(directory, file, bytes, segment.copied()) {
            Ok(table) => out.line(format_args!(
                "key table of {:08}.seg: {} entries, {bytes} bytes",
                file.0,
                table.entries()
            )),
            Err(error) => out.line(format_args!(
                "key table of {:08}.seg: not usable: it {error}",
                file.0
            )),
        }
    }
}

/// Reads all of a key table and compares it with its segment.
fn read_key_table(
    directory: &Directory,
    file: FileId,
    bytes: u64,
    segment: Option<&Segment>,
) -> Result<KeyTable, TableError> {
    let opened = directory.key_tables().open(file)?;
    let read = &mut |offset: u64, into: &mut [u8]| read_at(&opened, offset, into);
    let header = segment.ok_or(TableError::OfAnother)?.header;
    let home = TableHome {
        owner: directory.owner(),
        file,
        log_id: header.log_id,
        sequence: header.sequence,
        salt: header.salt,
        // Its successor knows where it ends; the table was made by what the log knew.
        end_offset: KeyTable::stored_end(read)?,
        hash_check: hash_check(directory.identity().hash_seed),
    };
    KeyTable::verify(&home, bytes, read)
}

/// Reads all of a snapshot and compares it with its log.
fn read_snapshot(
    directory: &Directory,
    name: SnapshotName,
    bytes: u64,
    segments: &[Segment],
) -> Result<(Lsn, SnapshotFooter), SnapshotError> {
    let file = directory
        .snapshots()
        .open(name)
        .map_err(SnapshotError::Read)?;
    let reader = SnapshotReader::open(
        |offset, into: &mut [u8]| read_at(&file, offset, into),
        bytes,
    )?;
    let hash_check = hash_check(directory.identity().hash_seed);
    let header = reader.header();
    let coverage = Coverage::of(header, directory.owner(), name, hash_check, segments)?;
    let from = header.from;
    let footer = reader.entries(|item| match item {
        SnapshotItem::Newest(entry) => coverage.admits(entry.place()).map(|_| ()),
        SnapshotItem::Version(version) => coverage.admits(version.place).map(|_| ()),
        SnapshotItem::Times(times) => coverage.admits_file(times.file).map(|_| ()),
        SnapshotItem::Settings(_) | SnapshotItem::Partition(_) | SnapshotItem::Timer(_) => Ok(()),
    })?;
    Ok((from, footer))
}

fn summarize(out: &mut Output<impl Write>, report: &Report, directory: &Directory) {
    let folder = directory.segments();
    for (id, log) in &report.logs {
        let LogReport {
            segments,
            file_bytes,
            commit_frames,
            marks,
            summaries,
            repairs,
            contents,
            records,
            given_up,
            parts,
            tombstones,
            kept,
            part_bytes,
            last_lsn,
            epoch_max,
            proven_durable,
            torn,
            forgotten: _,
        } = log;
        out.line(format_args!(
            "log {id}: {} of {file_bytes} bytes; {} in {}, {}, {summaries} {}, {}",
            count(*segments, "segment"),
            count(*records, "record"),
            count(*commit_frames, "frame"),
            count(*marks, "mark"),
            if *summaries == 1 {
                "summary"
            } else {
                "summaries"
            },
            count(*contents, "contents frame")
        ));
        out.line(format_args!(
            "  {} of {part_bytes} bytes, {tombstones} of them deletes; highest epoch {epoch_max}; \
             last LSN {}, told durable to {}",
            count(*parts, "part"),
            last_lsn.0,
            proven_durable.0
        ));
        if *kept > 0 {
            out.line(format_args!(
                "  {} copied for a keyspace that keeps them",
                count(*kept, "superseded version")
            ));
        }
        if *repairs > 0 {
            out.line(format_args!(
                "  repaired, with {} in the place of damaged ones; given up: {}",
                count(*repairs, "frame"),
                count(*given_up, "record")
            ));
        }
        if let Some(torn) = torn {
            out.line(format_args!(
                "  torn by a crash: {} bytes at {}+{} from LSN {}, never acknowledged; the next \
                 start cuts them",
                torn.bytes,
                folder.path(torn.file).display(),
                torn.offset,
                torn.lsn.0
            ));
        }
    }
    for (prefix, settings) in &report.keyspaces {
        if !settings.is_dropped {
            out.line(format_args!(
                "keyspace {}",
                keyspace_text(prefix, &settings_to_wire(settings))
            ));
        }
    }
    let spare_bytes: u64 = report.spares.iter().map(|(_, bytes)| bytes).sum();
    out.line(format_args!(
        "{} of {spare_bytes} bytes, {} torn while taken into use",
        count(report.spares.len() as u64, "spare file"),
        count(report.torn_activations.len() as u64, "file")
    ));
    for rotten in &report.rotten {
        out.line(format_args!(
            "ROTTEN: {}; no record is lost, and the next start sets it aside",
            set_aside::text(folder, rotten)
        ));
    }
    let data = directory.path().to_string_lossy();
    for damage in &report.damage {
        out.line(format_args!("DAMAGED: {}", damage.within(&data)));
    }
    if report.damage.is_empty() {
        out.line(format_args!("no damage: every checksum agrees"));
    }
}
