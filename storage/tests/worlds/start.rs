//! Compares the result of a start from an image with the records that were appended, and checks
//! what the start changes.

use std::io;

use penstock_storage::io::SegmentSource;
use penstock_storage::layout::Layout;
use penstock_storage::place::FileId;
use penstock_storage::place::LogStart;
use penstock_storage::record::{PartKind, PartView};
use penstock_storage::recovery::{RecoveryError, TornTail, prove_spare, recover, survey_heads};

use crate::image::Image;
use crate::life::{LOG_ID, OWNER, PARTITION, Record};

/// The verdict of a start that serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    /// The first so many records of what was appended are there, and no other.
    pub records: usize,
    /// What was left out, as told.
    pub torn: Option<TornTail>,
    /// Where the log goes on.
    pub end: LogStart,
    /// The start that wrote the newest segment.
    pub incarnation: u64,
    pub spares: Vec<(FileId, u64)>,
    /// What the start does before it serves.
    pub actions: Vec<Action>,
}

/// A change of the directory that a start makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Delete(FileId),
    Cut(FileId, u64),
}

impl Action {
    pub fn apply(self, image: &mut Image) {
        match self {
            Action::Delete(file) => {
                image.files.remove(&file).expect("it was read");
            }
            Action::Cut(file, bytes) => image
                .file(file)
                .truncate(usize::try_from(bytes).expect("small files")),
        }
    }
}

/// Why there is no [`Start`].
#[derive(Debug)]
pub enum NoStart {
    /// The directory is not served, and the reason names what is wrong.
    Refused(RecoveryError),
    /// It would be served with something that was never appended: a bug.
    Wrong(String),
}

/// Runs the production recovery over `source`.
pub fn start(source: &mut impl SegmentSource, appended: &[Record]) -> Result<Start, NoStart> {
    let survey = survey_heads(source, OWNER, &Layout::new(u16::MAX)).map_err(NoStart::Refused)?;
    let mut actions: Vec<Action> = survey
        .torn_activations
        .iter()
        .map(|&file| Action::Delete(file))
        .collect();
    if let Some(log_id) = survey.logs.keys().find(|&&log_id| log_id != LOG_ID) {
        return Err(NoStart::Wrong(format!("log {log_id} was never written")));
    }
    let segments = survey.logs.get(&LOG_ID).map_or(&[][..], Vec::as_slice);
    let mut replay = Replay {
        appended,
        records: 0,
        parts_left: 0,
        wrong: None,
    };
    let found = recover(source, segments, &mut |part, _| replay.part(part));
    if let Some(wrong) = replay.wrong {
        return Err(NoStart::Wrong(wrong));
    }
    let found = found.map_err(NoStart::Refused)?;
    for &(file, bytes) in survey.spares.iter().chain(&survey.reused) {
        prove_spare(source, file, bytes).map_err(NoStart::Refused)?;
    }
    actions.extend(survey.reused.iter().map(|&(file, _)| Action::Delete(file)));
    let records = replay.records;
    let counts = (
        found.records,
        found.start.last_lsn.0,
        found.history.sequences[PARTITION],
    );
    if replay.parts_left != 0 || counts != (records as u64, records as u64, records as u64) {
        return Err(NoStart::Wrong(format!(
            "{records} records were replayed and {counts:?} told"
        )));
    }
    actions.extend(found.release.map(Action::Delete));
    let cuts = found.truncate.iter();
    actions.extend(cuts.map(|&(file, bytes)| Action::Cut(file, bytes)));
    Ok(Start {
        records,
        torn: found.torn,
        end: found.start,
        incarnation: segments.last().map_or(0, |last| last.header.incarnation),
        spares: survey.spares,
        actions,
    })
}

/// Holds part after part against what was appended.
struct Replay<'a> {
    appended: &'a [Record],
    records: usize,
    parts_left: usize,
    wrong: Option<String>,
}

impl Replay<'_> {
    fn part(&mut self, part: &PartView<'_>) -> io::Result<()> {
        if part.ordinal() == 0 {
            self.records += 1;
            self.parts_left = part.count();
        }
        let expected = self.records.checked_sub(1).and_then(|number| {
            let record = self.appended.get(number)?;
            let (key, value) = record.parts.get(part.ordinal())?;
            Some((record.epoch, record.parts.len(), &key[..], value.as_deref()))
        });
        let value = (part.kind() == PartKind::Put).then(|| part.value());
        let found = Some((part.epoch(), part.count(), part.key(), value));
        if found != expected || part.sequence() != self.records as u64 || self.parts_left == 0 {
            self.wrong = Some(format!(
                "record {} is not what was appended: {:?}",
                self.records,
                String::from_utf8_lossy(part.key())
            ));
            return Err(io::ErrorKind::InvalidData.into());
        }
        self.parts_left -= 1;
        Ok(())
    }
}
