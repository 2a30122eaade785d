//! `penstock inspect`: reads and checks every byte of a stopped data directory.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use penstock_runtime::directory::{Directory, DirectoryError};
use penstock_storage::inspect::{LogReport, Report, inspect};
use penstock_storage::record::PartKind;
use penstock_storage::recovery::Event;
use penstock_storage::segment::Owner;

use super::output::{Output, hex};
use super::{EXIT_CODES, Failure};

const EXAMPLES: &str = "\
Examples:
  penstock inspect ./penstock-data
  penstock inspect ./penstock-data --dump | grep stock:42";

/// What is looked at, and how closely.
#[derive(Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"))]
pub struct InspectArgs {
    /// Data directory of a stopped server; nothing in it is changed
    #[arg(value_name = "DIR", default_value = "./penstock-data")]
    directory: PathBuf,
    /// Also print every segment, frame and part, oldest first
    #[arg(long)]
    dump: bool,
}

impl InspectArgs {
    /// Prints what is there; fails if anything is damaged.
    pub fn run(self) -> Result<(), Failure> {
        let directory = Directory::inspect(&self.directory).map_err(|error| match error {
            DirectoryError::Damaged { .. } => Failure::no(error),
            _ => Failure::usage(error),
        })?;
        let identity = directory.identity();
        let owner = Owner {
            cluster_id: identity.cluster_id,
            node_id: identity.node_id,
        };
        let mut out = Output::stdout();
        out.line(format_args!(
            "{}: cluster {}, node {}, started {} times, {} logs",
            self.directory.display(),
            hex(&identity.cluster_id),
            hex(&identity.node_id),
            identity.incarnation,
            identity.log_count,
        ));
        let mut source = directory.segments().reader();
        let report = inspect(&mut source, Some(owner), &mut |event| {
            if self.dump {
                show(&mut out, event);
            }
        });
        summarize(&mut out, &report);
        out.finish()?;
        match report.damage.len() {
            0 => Ok(()),
            count => Err(Failure::no(format_args!(
                "{count} damaged in {}; a start would be refused",
                self.directory.display()
            ))),
        }
    }
}

fn show(out: &mut Output<impl Write>, event: &Event<'_>) {
    match event {
        Event::Segment(segment) => {
            let header = &segment.header;
            out.line(format_args!(
                "segment {:08}.seg: log {}, stream {}, sequence {}, incarnation {}, from LSN {}, {} bytes",
                segment.file.0,
                header.log_id,
                header.stream,
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
        Event::Part(part, place) => {
            let kind = match part.kind() {
                PartKind::Put => "put",
                PartKind::Tombstone => "del",
            };
            out.line(format_args!(
                "    {kind} {} at {:08}.seg+{}: part {} of {}, version {}:{}, slot {}, {} value bytes, time {} ms",
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

fn summarize(out: &mut Output<impl Write>, report: &Report) {
    for (id, log) in &report.logs {
        let LogReport {
            segments,
            file_bytes,
            commit_frames,
            marks,
            summaries,
            repairs,
            records,
            given_up,
            parts,
            tombstones,
            part_bytes,
            last_lsn,
            epoch_max,
            proven_durable,
            torn,
        } = log;
        out.line(format_args!(
            "log {id}: {segments} segments of {file_bytes} bytes; {records} records in {commit_frames} frames, {marks} \
             marks, {summaries} summaries"
        ));
        out.line(format_args!(
            "  {parts} parts of {part_bytes} bytes, {tombstones} of them deletes; highest epoch {epoch_max}; last LSN {}, \
             told durable to {}",
            last_lsn.0, proven_durable.0
        ));
        if *repairs > 0 {
            out.line(format_args!(
                "  repaired: {repairs} frames stand where damaged ones stood; {given_up} records were given up"
            ));
        }
        if let Some(torn) = torn {
            out.line(format_args!(
                "  torn by a crash: {} bytes at {:08}.seg+{} from LSN {}, never acknowledged; the next start cuts them",
                torn.bytes, torn.file.0, torn.offset, torn.lsn.0
            ));
        }
    }
    let spare_bytes: u64 = report.spares.iter().map(|(_, bytes)| bytes).sum();
    out.line(format_args!(
        "{} spare files of {spare_bytes} bytes, {} files torn while they were taken into use",
        report.spares.len(),
        report.torn_activations.len()
    ));
    for damage in &report.damage {
        out.line(format_args!("DAMAGED: {damage}"));
    }
    if report.damage.is_empty() {
        out.line(format_args!("no damage: every checksum agrees"));
    }
}
