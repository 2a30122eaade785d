//! Reads what diverged tails did to each key, from lostfound and the log.
//!
//! A file of lostfound is no tail: one tail may stand in two files, and two tails in one file. One
//! node writes a partition in a generation, so the changes of one partition, generation and node
//! are one tail.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use penstock_storage::contents::Contents;
use penstock_storage::inspect::inspect_laid_out;
use penstock_storage::record::PartKind;
use penstock_storage::recovery::Event;
use penstock_storage::segment::Owner;
use penstock_storage::version::{PARTITIONS, Sequences, partition_of};

use crate::cluster::lostfound::forks::read_forks;
use crate::cluster::lostfound::lost::{AtFork, Lost, Writer};
use crate::cluster::lostfound::{KeptChange, KeptFile, read_lostfound};
use crate::directory::{Directory, DirectoryError};

/// Why what was lost cannot be told.
#[derive(Debug)]
pub enum LostError {
    /// The directory cannot be looked at.
    Directory(DirectoryError),
    /// What stands in it, or what the system said.
    Unreadable(String),
    /// A segment is damaged, or its node writes there now.
    Damaged(String),
}

impl std::fmt::Display for LostError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            LostError::Directory(error) => error.fmt(f),
            LostError::Unreadable(text) | LostError::Damaged(text) => f.write_str(text),
        }
    }
}

/// How often a log is read, at most. A reading meets frames that the node writes meanwhile, so the
/// last ones may stand there in part.
const READS_MAX: u32 = 9;

/// The pause after the first reading that failed. Each further pause is twice as long: 2.6 s in
/// all, in which a frame that was under way has long been written.
const PAUSE_FIRST: Duration = Duration::from_millis(10);

/// What the tails in a node's lostfound did, key by key, in the order in which they were written.
/// Reads the whole log, and once more after a pause where a record is not readable: the node may
/// be running, and its log changes meanwhile.
///
/// # Errors
/// [`LostError`] of the last of [`READS_MAX`] readings.
pub fn read_lost_beside(data: &Path) -> Result<Vec<Lost>, LostError> {
    let once = || {
        let directory = Directory::beside(data).map_err(LostError::Directory)?;
        read(data, &directory)
    };
    read_again(once, std::thread::sleep)
}

/// Calls `read` until it finds no damage, at most [`READS_MAX`] times, with `pause` in between.
fn read_again<T>(
    mut read: impl FnMut() -> Result<T, LostError>,
    mut pause: impl FnMut(Duration),
) -> Result<T, LostError> {
    let mut last = read();
    for again in 0..READS_MAX - 1 {
        if !matches!(last, Err(LostError::Damaged(_))) {
            break;
        }
        pause(PAUSE_FIRST * (1 << again));
        last = read();
    }
    last
}

fn read(data: &Path, directory: &Directory) -> Result<Vec<Lost>, LostError> {
    let unreadable = |error: &dyn std::fmt::Display| {
        LostError::Unreadable(format!("{}: {error}", data.display()))
    };
    let files = read_lostfound(data).map_err(|error| unreadable(&error))?;
    let mut tails = Tails::new(&files);
    if tails.keys.is_empty() {
        return Ok(Vec::new());
    }
    let identity = directory.identity();
    let layout = identity
        .layout()
        .ok_or_else(|| unreadable(&"IDENTITY tells of more shards than any node has"))?;
    let owner = Owner {
        cluster_id: identity.cluster_id,
        node_id: identity.node_id,
    };
    let mut segments = Segments::default();
    let mut source = directory.segments().reader();
    let report = inspect_laid_out(
        &mut source,
        Some(owner),
        &layout,
        &directory
            .proven_ends()
            .map_err(|error| unreadable(&error))?,
        &mut |event| match event {
            Event::Segment(segment) => {
                segments.next(segment.header.log_id, segment.header.sequence);
            }
            Event::Contents(contents) => segments.take_contents(contents),
            Event::Part(part, _) => {
                let version = (part.epoch(), part.sequence());
                let value = (part.kind() == PartKind::Put).then(|| part.value());
                tails.note(part.key(), version, value, &segments);
                if !part.is_copy() {
                    tails.began(part.slot(), version, &segments);
                }
            }
            Event::Frame(..) | Event::Prefetch(_) => {}
        },
    );
    if let Some(damage) = report.damage.first() {
        let text = format!("{}: {damage}", data.display());
        return Err(LostError::Damaged(text));
    }
    let mut forgotten = [0; PARTITIONS];
    for log in report.logs.values() {
        let is_whole = layout.inherited.is_empty() && log.given_up == 0;
        let of_log = log.forgotten.as_deref().filter(|_| is_whole);
        for (partition, all) in forgotten.iter_mut().enumerate() {
            *all = of_log.map_or(u64::MAX, |it| it[partition].max(*all));
        }
    }
    let mut lost = tails.end(&forgotten, &segments);
    // The notes of forks tell values that cleaning may have dropped since the records were kept.
    let forks = read_forks(data).map_err(|error| unreadable(&error))?;
    for lost in lost.iter_mut().filter(|it| it.before == AtFork::Unknown) {
        let tail = (lost.key.clone(), Writer::of(lost.version.0));
        if let Some(before) = forks.get(&tail) {
            lost.before = AtFork::Was(before.clone());
        }
    }
    Ok(lost)
}

fn tail_of(change: &KeptChange) -> (u16, Writer) {
    (change.partition, Writer::of(change.version.0))
}

/// The segments that a log has at a place in it, and those of all logs that are there to be read.
#[derive(Default)]
struct Segments {
    log: u64,
    /// Its segments at this place, by their sequences.
    here: Rc<BTreeSet<u64>>,
    /// It was told that some had been released by then. A log begins dense.
    has_contents: bool,
    there: BTreeMap<u64, BTreeSet<u64>>,
}

impl Segments {
    fn next(&mut self, log: u64, sequence: u64) {
        if self.log != log {
            (self.log, self.has_contents) = (log, false);
        }
        self.there.entry(log).or_default().insert(sequence);
        match self.has_contents {
            true => drop(Rc::make_mut(&mut self.here).insert(sequence)),
            false => self.here = Rc::new((1..=sequence).collect()),
        }
    }

    fn take_contents(&mut self, contents: &Contents) {
        let last = self.here.last().copied();
        let listed = contents.segments.iter().map(|it| it.sequence);
        self.here = Rc::new(listed.chain(last).collect());
        self.has_contents = true;
    }

    /// Whether those that a log had once, from this one on, were not released since.
    fn has_all(&self, log: u64, here: &BTreeSet<u64>, from: u64) -> bool {
        let mut here = here.range(from..);
        here.all(|sequence| self.there[&log].contains(sequence))
    }
}

/// A log, and which of its segments.
type LogSegments = (u64, Rc<BTreeSet<u64>>);

/// What lostfound has of each key, and what the log tells of them.
struct Tails {
    /// The segments that its log had when each tail began.
    at_fork: BTreeMap<(u16, Writer), LogSegments>,
    /// The first version of each tail.
    from: BTreeMap<(u16, Writer), (u32, u64)>,
    keys: BTreeMap<Vec<u8>, BTreeMap<Writer, Changed>>,
}

/// What one tail has of one key.
struct Changed {
    partition: u16,
    versions: BTreeSet<(u32, u64)>,
    first: KeptChange,
    last: KeptChange,
    /// The newest that the log has before the tail.
    before: Option<Before>,
}

struct Before {
    version: (u32, u64),
    /// The log and the segment in which it or the last copy of it stands.
    at: (u64, u64),
    value: Option<Vec<u8>>,
}

impl Tails {
    fn new(files: &[KeptFile]) -> Tails {
        let mut tails = Tails {
            at_fork: BTreeMap::new(),
            from: BTreeMap::new(),
            keys: BTreeMap::new(),
        };
        for change in files.iter().flat_map(|file| &file.changes) {
            let from = tails.from.entry(tail_of(change)).or_insert(change.version);
            *from = change.version.min(*from);
        }
        for change in files.iter().flat_map(KeptFile::users) {
            let (_, writer) = tail_of(change);
            let of_key = tails.keys.entry(change.key.clone()).or_default();
            let changed = of_key.entry(writer).or_insert_with(|| Changed {
                partition: change.partition,
                versions: BTreeSet::new(),
                first: change.clone(),
                last: change.clone(),
                before: None,
            });
            changed.versions.insert(change.version);
            if changed.last.version < change.version {
                changed.last = change.clone();
            }
            if change.version < changed.first.version {
                changed.first = change.clone();
            }
        }
        tails
    }

    fn note(&mut self, key: &[u8], version: (u32, u64), value: Option<&[u8]>, segments: &Segments) {
        let at = (segments.log, segments.here.last().copied().unwrap_or(0));
        let Some(of_key) = self.keys.get_mut(key) else {
            return;
        };
        for (&writer, changed) in of_key {
            // Behind the tail there may be records of an older epoch, whose node was let write
            // again.
            let from = self.from[&(changed.partition, writer)];
            if version >= from || version.1 >= from.1 {
                continue;
            }
            match &mut changed.before {
                Some(before) if before.version > version => {}
                Some(before) if before.version == version => {
                    before.at = at;
                    // What is swept or has expired is deleted under its own version.
                    if value.is_none() {
                        before.value = None;
                    }
                }
                before => {
                    let value = value.map(<[u8]>::to_vec);
                    *before = Some(Before { version, at, value });
                }
            }
        }
    }

    /// A record, no copy, of this slot and version comes now.
    fn began(&mut self, slot: u16, version: (u32, u64), segments: &Segments) {
        let partition = u16::try_from(partition_of(slot)).expect("256");
        let tail = (partition, Writer::of(version.0));
        if self.from.get(&tail) == Some(&version) {
            let here = (segments.log, Rc::clone(&segments.here));
            self.at_fork.entry(tail).or_insert(here);
        }
    }

    /// All of the log was seen; of each partition all records with sequences above what is
    /// forgotten.
    fn end(self, forgotten: &Sequences, segments: &Segments) -> Vec<Lost> {
        // What is written or copied is the newest of its key then. Until the tail began cleaning
        // copied the newest of each, and so it stands in a segment that there was when the tail
        // began.
        let is_whole = |tail: &(u16, Writer), before: Option<&Before>| {
            let at_fork = self.at_fork.get(tail);
            forgotten[usize::from(tail.0)] < u64::MAX
                && at_fork.is_some_and(|(log, here)| match before.map(|it| it.at) {
                    Some((of, from)) => of == *log && segments.has_all(*log, here, from),
                    None => segments.has_all(*log, here, 0),
                })
        };
        let mut lost = Vec::new();
        for (key, of_key) in self.keys {
            let all = of_key.values().flat_map(|it| &it.versions);
            let all: BTreeSet<_> = all.copied().collect();
            for (writer, changed) in of_key {
                // What another tail had made of it was taken back before this one, to what cannot
                // be told from here.
                let of_tail = |before: &Before| all.contains(&before.version);
                let is_of_tail = changed.before.as_ref().is_some_and(of_tail);
                // Or whatever came between this and the tail has a sequence above this one's, and
                // was seen.
                let sequence = changed.before.as_ref().map_or(0, |it| it.version.1);
                let partition = changed.partition;
                let is_seen = sequence >= forgotten[usize::from(partition)]
                    || is_whole(&(partition, writer), changed.before.as_ref());
                let is_known = is_seen && !is_of_tail;
                lost.push(Lost {
                    key: key.clone(),
                    version: changed.last.version,
                    records: changed.versions.len(),
                    before: match is_known {
                        true => AtFork::Was(changed.before.and_then(|before| before.value)),
                        false => AtFork::Unknown,
                    },
                    first: changed.first.value,
                    after: changed.last.value,
                    expiry_ms: changed.last.expiry_ms,
                });
            }
        }
        lost
    }
}

#[cfg(test)]
mod tests {
    use penstock_net::limits::RESERVED_KEY;
    use penstock_shard::replication::Epoch;
    use penstock_storage::contents::SegmentEnd;
    use penstock_storage::place::Lsn;

    use super::*;

    fn was(value: Option<&[u8]>) -> AtFork {
        AtFork::Was(value.map(<[u8]>::to_vec))
    }

    #[test]
    fn a_log_is_read_again_after_ever_longer_pauses_and_given_up_with_the_last_error() {
        for fails in 0..=READS_MAX {
            let (mut reads, mut pauses) = (0, Vec::new());
            let read = || {
                reads += 1;
                if reads > fails {
                    Ok(reads)
                } else {
                    Err(LostError::Damaged(reads.to_string()))
                }
            };
            let done = read_again(read, |pause| pauses.push(pause));
            let done = done.map_err(|error| error.to_string());
            if fails < READS_MAX {
                assert_eq!(done, Ok(fails + 1));
            } else {
                assert_eq!(done, Err(READS_MAX.to_string()));
            }
            assert_eq!(pauses.len(), fails.min(READS_MAX - 1) as usize);
            assert!(pauses.is_sorted_by(|one, next| *one * 2 == *next));
        }
        let read = || Err::<(), _>(LostError::Unreadable("no directory".into()));
        let done = read_again(read, |_| panic!("no pause mends that"));
        assert!(done.is_err());
    }

    #[test]
    fn a_tail_in_two_files_is_one_and_two_tails_in_one_file_are_two() {
        let bytes = |number: u64| number.to_le_bytes();
        let epoch = |generation, start, node| Epoch::new(generation, start, node).0;
        let change = |version, number| KeptChange {
            partition: 5,
            version,
            time_ms: 0,
            key: b"stock".to_vec(),
            value: Some(bytes(number).to_vec()),
            expiry_ms: None,
        };
        let file = |changes: &[KeptChange]| KeptFile {
            path: "x.records".into(),
            changes: changes.to_vec(),
            repeated: 0,
            torn_bytes: 0,
        };
        // The first tail goes on behind a start; the second one is of a later generation of the
        // same node.
        let (first, again, second) = (epoch(1, 0, 1), epoch(1, 1, 1), epoch(3, 0, 1));
        let mut tails = Tails::new(&[
            file(&[change((first, 11), 99)]),
            file(&[change((again, 12), 90), change((second, 30), 93)]),
        ]);
        for (version, number) in [
            ((first, 10), 100),
            ((first, 11), 99),
            ((again, 12), 90),
            ((epoch(2, 0, 2), 29), 95),
            ((second, 30), 93),
        ] {
            let segments = Segments::default();
            tails.note(b"stock", version, Some(&bytes(number)), &segments);
            tails.note(b"other", version, None, &segments);
        }
        let found: Vec<_> = tails
            .end(&[0; PARTITIONS], &Segments::default())
            .iter()
            .map(|lost| (lost.version, lost.records, lost.units()))
            .collect();
        assert_eq!(
            found,
            [((again, 12), 2, Some(-10)), ((second, 30), 1, Some(-2))]
        );
    }

    /// A tail of one key, and what is told of it behind a log with these numbers.
    fn before_of(kept: &[KeptChange], log: &[((u32, u64), u64)]) -> AtFork {
        let file = KeptFile {
            path: "x.records".into(),
            changes: kept.to_vec(),
            repeated: 0,
            torn_bytes: 0,
        };
        let mut tails = Tails::new(&[file]);
        for &(version, number) in log {
            let value = number.to_le_bytes();
            tails.note(b"stock", version, Some(&value), &Segments::default());
        }
        let mut lost = tails.end(&[0; PARTITIONS], &Segments::default());
        lost.pop().expect("one").before
    }

    fn number_at(key: &[u8], version: (u32, u64), number: u64) -> KeptChange {
        KeptChange {
            partition: 5,
            version,
            time_ms: 0,
            key: key.to_vec(),
            value: Some(number.to_le_bytes().to_vec()),
            expiry_ms: None,
        }
    }

    #[test]
    fn what_an_older_epoch_wrote_behind_the_tail_is_not_what_was_at_the_fork() {
        let [old, new] = [1, 2].map(|node| Epoch::new(u32::from(node), 0, node).0);
        let kept = [number_at(b"stock", (new, 41), 70)];
        // The older primary was let write again.
        let log = [((old, 30), 100), ((new, 41), 70), ((old, 50), 95)];
        assert_eq!(before_of(&kept, &log), was(Some(&100u64.to_le_bytes())));
        // Its own record of settings was the first of the tail.
        let settings = number_at(&[RESERVED_KEY, b"settings"].concat(), (new, 31), 0);
        let log = [((old, 30), 100), ((new, 41), 70), ((old, 35), 95)];
        let found = before_of(&[settings, kept[0].clone()], &log);
        assert_eq!(found, was(Some(&100u64.to_le_bytes())));
    }

    #[test]
    fn what_another_tail_had_made_of_a_key_is_not_what_was_at_the_fork() {
        let [old, first, second] = [1, 2, 4].map(|it| Epoch::new(it, 0, 1).0);
        let kept = [
            number_at(b"stock", (first, 11), 99),
            number_at(b"stock", (second, 30), 93),
        ];
        let log = [((old, 10), 100), ((first, 11), 99), ((second, 30), 93)];
        assert_eq!(before_of(&kept, &log), AtFork::Unknown);
    }

    #[test]
    fn what_a_key_was_is_known_if_nothing_between_that_and_the_tail_was_released() {
        let change = |key: &[u8]| KeptChange {
            partition: 5,
            version: (9, 41),
            time_ms: 0,
            key: key.to_vec(),
            value: Some(b"alone".to_vec()),
            expiry_ms: None,
        };
        let file = KeptFile {
            path: "x.records".into(),
            changes: vec![change(b"cold"), change(b"hot"), change(b"new")],
            repeated: 0,
            torn_bytes: 0,
        };
        let found_with = |forgotten: u64| {
            let mut tails = Tails::new(std::slice::from_ref(&file));
            let segments = Segments::default();
            tails.note(b"cold", (7, 12), Some(b"then"), &segments);
            tails.note(b"hot", (7, 40), Some(b"then"), &segments);
            let mut all = [u64::MAX; PARTITIONS];
            all[5] = forgotten;
            let lost = tails.end(&all, &segments);
            lost.into_iter().map(|it| it.before).collect::<Vec<_>>()
        };
        let then = || was(Some(b"then"));
        assert_eq!(found_with(0), [then(), then(), was(None)]);
        assert_eq!(found_with(12), [then(), then(), AtFork::Unknown]);
        let unknown = || AtFork::Unknown;
        assert_eq!(found_with(13), [unknown(), then(), unknown()]);
        assert_eq!(found_with(41), [unknown(), unknown(), unknown()]);
    }

    #[test]
    fn what_a_key_was_is_known_if_nothing_behind_it_was_released_since_the_tail_began() {
        let contents = |before: &[u64]| {
            let end = |&sequence| SegmentEnd {
                sequence,
                end_offset: 4096,
                last_lsn: Lsn(sequence),
            };
            Contents {
                segments: before.iter().map(end).collect(),
                sequences: Box::new([0; PARTITIONS]),
                epochs: Box::new([0; PARTITIONS]),
                forgotten: Box::new([0; PARTITIONS]),
                is_linked: true,
                epoch_max: 0,
            }
        };
        let file = KeptFile {
            path: "x.records".into(),
            changes: vec![KeptChange {
                partition: 5,
                version: (9, 41),
                time_ms: 0,
                key: b"cold".to_vec(),
                value: Some(b"alone".to_vec()),
                expiry_ms: None,
            }],
            repeated: 0,
            torn_bytes: 0,
        };
        // The log has segments 1 to 6. The second is gone before the tail begins in the fourth.
        // `gone` are further segments that are gone.
        let found_without = |gone: &[u64]| {
            let mut tails = Tails::new(std::slice::from_ref(&file));
            let mut segments = Segments::default();
            for sequence in (1..=6).filter(|it| *it != 2 && !gone.contains(it)) {
                segments.next(3, sequence);
                // What it was is copied once.
                if [1, 3].contains(&sequence) {
                    tails.note(b"cold", (7, 12), Some(b"then"), &segments);
                }
                if sequence >= 4 {
                    let listed = [1, 3, 4, 5].into_iter().filter(|it| *it < sequence);
                    let listed: Vec<u64> = match sequence {
                        4 => listed.collect(),
                        _ => listed.filter(|it| !gone.contains(it)).collect(),
                    };
                    segments.take_contents(&contents(&listed));
                }
                if sequence == 4 {
                    tails.note(b"cold", (9, 41), Some(b"alone"), &segments);
                    tails.began(5 * 64, (9, 41), &segments);
                }
            }
            let mut lost = tails.end(&[20; PARTITIONS], &segments);
            lost.pop().expect("one").before
        };
        assert_eq!(found_without(&[]), was(Some(b"then")));
        assert_eq!(found_without(&[5]), was(Some(b"then")));
        assert_eq!(found_without(&[1]), was(Some(b"then")));
        assert_eq!(found_without(&[3]), AtFork::Unknown);
        assert_eq!(found_without(&[4]), AtFork::Unknown);
    }
}
