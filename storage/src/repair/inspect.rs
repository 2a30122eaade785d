//! Looking through a stopped data directory: every file, frame and part is read and checked, and
//! all damage is listed, not only the first that recovery would refuse for.

use std::collections::BTreeMap;

use crate::format::contents::SegmentEnd;
use crate::format::frame::FrameKind;
use crate::format::layout::Layout;
use crate::format::record::{PartKind, PartView};
use crate::format::segment::Owner;
use crate::format::system_key::is_system;
use crate::recovery::frames::Event;
use crate::recovery::recovered::{Recovered, TornTail};
use crate::recovery::refusal::RecoveryError;
use crate::recovery::replay;
use crate::recovery::replay::replay_ended;
use crate::recovery::segment::Segment;
use crate::recovery::snapshot::proof::{ProvenEnd, ProvenEnds};
use crate::recovery::spares::{FileKind, ReadExtent, RottenSpare, classify};
use crate::recovery::survey::settle_contents;
use crate::store::keyspace::settings::{Settings, is_understood, settings_in};
use crate::types::io::SegmentSource;
use crate::types::place::FileId;
use crate::types::place::Lsn;
use crate::types::version::Sequences;

/// What a data directory holds.
#[derive(Debug, Default)]
pub struct Report {
    /// Files that hold nothing yet, with their lengths.
    pub spares: Vec<(FileId, u64)>,
    /// Spares in which bytes have changed that prove nothing; a start sets them aside.
    pub rotten: Vec<RottenSpare>,
    /// Files that a crash tore when they were about to be taken into use.
    pub torn_activations: Vec<FileId>,
    /// Files of segments that their log has released, and of void logs; a start removes them.
    pub released: Vec<FileId>,
    /// The logs by number.
    pub logs: BTreeMap<u64, LogReport>,
    /// What prefixes are set to by the newest record of any log, those that were dropped included.
    pub keyspaces: BTreeMap<Vec<u8>, Settings>,
    /// The first key of the store's own under which is nothing that this version writes: a start is
    /// refused for it.
    pub strange_key: Option<Box<[u8]>>,
    /// What is wrong. A start would be refused if there is anything.
    pub damage: Vec<RecoveryError>,
}

/// What one log holds, up to its end or its first damage.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogReport {
    /// Segment files.
    pub segments: u64,
    /// Their lengths, in bytes.
    pub file_bytes: u64,
    /// Frames with records.
    pub commit_frames: u64,
    /// Frames that tell how far the log is durable.
    pub marks: u64,
    /// Frames that end a sealed segment.
    pub summaries: u64,
    /// Frames that a repair left in the place of damaged ones.
    pub repairs: u64,
    /// Frames that tell which segments the log consists of.
    pub contents: u64,
    /// Records.
    pub records: u64,
    /// Records that a repair gave up: they have an LSN and are not there.
    pub given_up: u64,
    /// Parts of those records.
    pub parts: u64,
    /// Tombstones among the parts.
    pub tombstones: u64,
    /// Versions among the parts that cleaning has copied because their keyspace keeps them.
    pub kept: u64,
    /// Bytes of the parts.
    pub part_bytes: u64,
    /// The last record.
    pub last_lsn: Lsn,
    /// The highest epoch of a part.
    pub epoch_max: u32,
    /// Records up to this one are told durable by a later frame.
    pub proven_durable: Lsn,
    /// What the last crash left half written; a start leaves it out.
    pub torn: Option<TornTail>,
    /// As [`crate::format::contents::History::forgotten`]; none if the log could not be read to its
    /// end.
    pub forgotten: Option<Box<Sequences>>,
}

/// Checks everything in `source`. `owner` is what the directory says of itself; `None` takes the
/// files as they are. Every segment, good frame and part is shown to `show` in log order.
pub fn inspect(
    source: &mut impl SegmentSource,
    owner: Option<Owner>,
    show: &mut dyn FnMut(&Event<'_>),
) -> Report {
    let layout = Layout::new(u16::MAX);
    inspect_laid_out(source, owner, &layout, &ProvenEnds::new(), show)
}

/// As [`inspect`]: inherited logs must end where `layout` tells, and of void ones nothing is read.
/// No other log may end before what is `proven` of it.
pub fn inspect_laid_out(
    source: &mut impl SegmentSource,
    owner: Option<Owner>,
    layout: &Layout,
    proven: &ProvenEnds,
    show: &mut dyn FnMut(&Event<'_>),
) -> Report {
    let mut report = Report::default();
    let files = match source.files() {
        Ok(files) => files,
        Err(error) => {
            let unread = RecoveryError::Read { file: None, error };
            report.damage.push(unread);
            return report;
        }
    };
    let mut logs = report.sort(source, files, owner, layout);
    let own_proven = proven.keys().filter(|&log| layout.own().contains(log));
    let inherited = layout.inherited.iter().map(|log| &log.log_id);
    for &log_id in inherited.chain(own_proven) {
        logs.entry(log_id).or_default();
    }
    for (log_id, segments) in logs {
        let ends = (layout.end_of(log_id), proven.get(&log_id));
        report.inspect_log(source, log_id, segments, ends, show);
    }
    report
}

impl Report {
    /// Notes what each file is. Returns the segments of each log.
    fn sort(
        &mut self,
        source: &mut impl SegmentSource,
        mut files: Vec<(FileId, u64)>,
        owner: Option<Owner>,
        layout: &Layout,
    ) -> BTreeMap<u64, Vec<Segment>> {
        files.sort_unstable();
        let mut logs: BTreeMap<u64, Vec<Segment>> = BTreeMap::new();
        for (file, file_bytes) in files {
            match classify(source, file, file_bytes, owner, ReadExtent::Whole) {
                Ok(FileKind::Spare | FileKind::ReusedSpare) => self.spares.push((file, file_bytes)),
                Ok(FileKind::RottenSpare(rotten)) => self.rotten.push(rotten),
                Ok(FileKind::TornActivation) => self.torn_activations.push(file),
                Ok(FileKind::Segment(segment)) if layout.is_void(segment.header.log_id) => {
                    self.released.push(file);
                }
                Ok(FileKind::Segment(segment)) => {
                    logs.entry(segment.header.log_id).or_default().push(segment);
                }
                Err(error) => self.damage.push(error),
            }
        }
        logs
    }

    /// Replays one log and notes what is wrong with it. `ends` are the end that the layout names
    /// and the end that a snapshot proves.
    fn inspect_log(
        &mut self,
        source: &mut impl SegmentSource,
        log_id: u64,
        mut segments: Vec<Segment>,
        ends: (Option<SegmentEnd>, Option<&ProvenEnd>),
        show: &mut dyn FnMut(&Event<'_>),
    ) {
        let mut log = LogReport {
            segments: segments.len() as u64,
            file_bytes: segments.iter().map(|segment| segment.file_bytes).sum(),
            ..LogReport::default()
        };
        let (layout_end, proven_end) = ends;
        let gap = self.settle(source, &mut segments);
        let mut see = |event: Event<'_>| {
            log.count(&event);
            if let Event::Part(part, _) = &event
                && is_system(part.key())
            {
                self.note_settings(part);
            }
            show(&event);
            Ok(())
        };
        let is_proven = |found: Recovered| match (proven_end, &gap) {
            (Some(end), Gap::None) => end.check(&found).map(|()| found),
            _ => Ok(found),
        };
        let found = match layout_end {
            Some(end) => replay_ended(source, &segments, log_id, end, &mut see),
            None => replay(source, &segments, &mut see).and_then(is_proven),
        };
        match found {
            Ok(found) => {
                log.torn = found.torn;
                log.forgotten = Some(found.history.forgotten);
            }
            Err(error) => self.damage.push(error),
        }
        if let (Some(end), Gap::Before(last)) = (proven_end, gap) {
            let found = replay(source, &[last], &mut |_| Ok(()));
            let checked = found.and_then(|found| end.check(&found));
            self.damage.extend(checked.err());
        }
        self.logs.insert(log_id, log);
    }

    /// Orders the segments of a log by its contents. Where one is missing, keeps those before the
    /// gap, which can still be read.
    fn settle(&mut self, source: &mut impl SegmentSource, segments: &mut Vec<Segment>) -> Gap {
        let error = match settle_contents(source, segments) {
            Ok(released) => {
                self.released.extend(released);
                return Gap::None;
            }
            Err(error) => error,
        };
        let gap = match (&error, segments.last()) {
            (RecoveryError::SegmentMissing { .. }, Some(&last)) => Gap::Before(last),
            _ => Gap::Somewhere,
        };
        self.damage.push(error);
        let dense = (1..).zip(&*segments);
        let good = dense.take_while(|(n, segment)| segment.header.sequence == *n);
        let good = good.count();
        segments.truncate(good);
        gap
    }

    /// Notes the settings of a keyspace, or a key of the server that this version does not know.
    fn note_settings(&mut self, part: &PartView<'_>) {
        match settings_in(part) {
            Some((prefix, settings)) => {
                let known = self.keyspaces.entry(prefix.to_vec()).or_insert(settings);
                if known.revision < settings.revision {
                    *known = settings;
                }
            }
            None if is_understood(part) => {}
            None => {
                self.strange_key.get_or_insert_with(|| part.key().into());
            }
        }
    }
}

/// Whether segments of a log are missing.
enum Gap {
    None,
    /// The last segment stands behind a gap. Its records are not shown, but it tells the end of the
    /// log.
    Before(Segment),
    Somewhere,
}

impl LogReport {
    fn count(&mut self, event: &Event<'_>) {
        match event {
            Event::Segment(_) | Event::Contents(_) | Event::Prefetch(_) => {}
            Event::Frame(_, frame) => {
                match frame.kind {
                    FrameKind::Commit => self.commit_frames += 1,
                    FrameKind::Mark => self.marks += 1,
                    FrameKind::Summary => self.summaries += 1,
                    FrameKind::Repair => self.repairs += 1,
                    FrameKind::Contents => self.contents += 1,
                }
                self.given_up += u64::from(frame.record_count);
                self.last_lsn = Lsn(frame.end_lsn().0 - 1);
                self.proven_durable = frame.durable_lsn;
            }
            Event::Part(part, _) => {
                if part.ordinal() == 0 {
                    self.records += 1;
                    self.given_up -= 1;
                }
                self.parts += 1;
                self.tombstones += u64::from(part.kind() == PartKind::Tombstone);
                self.kept += u64::from(part.successor().is_some());
                self.part_bytes += part.bytes().len() as u64;
                self.epoch_max = self.epoch_max.max(part.epoch());
            }
        }
    }
}
