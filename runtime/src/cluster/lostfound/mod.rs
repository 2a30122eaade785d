//! What this node took and cannot keep: the records of diverged tails, in `DATA/lostfound/`.
//!
//! Each shard has a file for each start in which there was something, `INCARNATION-SHARD.records`:
//! the parts of the records as they stood in the log, side by side, each with its own CRC. A tail
//! that is looked for once more, because its link ended in between, stands there twice under the
//! same versions, behind a start in another file.

mod forks;
pub mod lost;
pub mod lost_writes;
pub(crate) mod note_forks;
pub mod tails;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use penstock_net::limits::RESERVED_KEY;
use penstock_net::link::Position;
use penstock_shard::replication::{LinkId, PartitionId, records};
use penstock_storage::record::{PartKind, PartView};

/// What is to be kept.
pub(crate) enum Found {
    /// The parts of records of one partition.
    Records(Vec<u8>),
    /// All before it is to be durable: [`penstock_shard::Event::DivergedKept`].
    Sync(PartitionId, Option<LinkId>),
}

/// Writes what one shard finds, in order, until the sender is dropped. `kept_all` is called when
/// the whole tails of some partitions are on the disk and hold keys of clients; then `synced` hears
/// what was asked for. `failed` hears why it never will be.
pub(crate) fn keep(
    data: &Path,
    (incarnation, shard): (u64, u16),
    found: &flume::Receiver<Found>,
    kept_all: impl Fn(&BTreeSet<PartitionId>),
    synced: impl Fn(PartitionId, Option<LinkId>),
    failed: impl FnOnce(io::Error),
) {
    let mut kept = Kept {
        directory: data.join(LOSTFOUND),
        name: format!("{incarnation}-{shard}.{EXTENSION}"),
        file: None,
        unsynced_bytes: 0,
        unnoted: BTreeMap::new(),
        noted: BTreeMap::new(),
    };
    let mut waiting = Vec::new();
    for next in found {
        let done = match next {
            Found::Records(bytes) => kept.write(&bytes),
            Found::Sync(partition, link) => {
                waiting.push((partition, link));
                Ok(())
            }
        };
        // What has come by now goes on together.
        let is_all = !waiting.is_empty() && found.is_empty();
        let done = match is_all {
            true => done.and_then(|()| kept.sync()),
            false => done,
        };
        if let Err(error) = done {
            // A sync that failed is never tried again: the tail stays in the log, and the partition
            // does not go on.
            failed(error);
            return;
        }
        if !is_all {
            continue;
        }
        let waits = waiting.iter().map(|&(partition, _)| partition);
        let partitions = kept.note(waits);
        // Who has no link writes these keys anew itself, and nobody is answered before.
        waiting.retain(|&(partition, link)| {
            if link.is_none() {
                synced(partition, link);
            }
            link.is_some()
        });
        if !partitions.is_empty() {
            if found.is_disconnected() {
                // The process ends. The next start looks for these tails once more.
                return;
            }
            kept_all(&partitions);
        }
        for (partition, link) in waiting.drain(..) {
            synced(partition, link);
        }
    }
}

/// One change that was kept: what a record said of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptChange {
    /// The partition.
    pub partition: u16,
    /// Epoch and sequence of the record.
    pub version: (u32, u64),
    /// When it was written, in unix milliseconds.
    pub time_ms: u64,
    /// The key.
    pub key: Vec<u8>,
    /// Its value; none is a deletion.
    pub value: Option<Vec<u8>>,
    /// When the value expires, in unix milliseconds.
    pub expiry_ms: Option<u64>,
}

/// What one file of a data directory's lostfound holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptFile {
    /// The file.
    pub path: PathBuf,
    /// What it holds and no later file holds again, by partition, version and key, each once.
    pub changes: Vec<KeptChange>,
    /// Changes that a later file holds again.
    pub repeated: usize,
    /// Bytes at its end that are no record: a crash cut them, and the tail was looked for once
    /// more.
    pub torn_bytes: usize,
}

impl KeptFile {
    /// The changes of keys that clients may have, without settings of keyspaces and the server's
    /// own records.
    pub fn users(&self) -> impl Iterator<Item = &KeptChange> {
        let changes = self.changes.iter();
        changes.filter(|change| !change.key.starts_with(RESERVED_KEY))
    }

    /// How many records of how many keys it holds.
    #[must_use]
    pub fn counts(&self) -> (usize, usize) {
        let mut versions: Vec<_> = self
            .changes
            .iter()
            .map(|it| (it.partition, it.version))
            .collect();
        versions.dedup();
        let mut keys: Vec<&[u8]> = self.changes.iter().map(|it| it.key.as_slice()).collect();
        keys.sort_unstable();
        keys.dedup();
        (versions.len(), keys.len())
    }
}

/// Reads what nodes of a cluster have kept in a data directory, from the oldest file on. A change
/// that stands in several files is told of the newest of them alone.
///
/// # Errors
/// What the system said.
pub fn read_lostfound(data: &Path) -> io::Result<Vec<KeptFile>> {
    let directory = data.join(LOSTFOUND);
    let entries = match fs::read_dir(&directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut paths = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if let Some(written) = written_by(&path, EXTENSION) {
            paths.push((written, path));
        }
    }
    paths.sort_unstable();
    let mut files = Vec::new();
    let mut seen = BTreeSet::new();
    for (_, path) in paths.into_iter().rev() {
        let mut file = read_file(path)?;
        let all = file.changes.len();
        file.changes
            .retain(|it| seen.insert((it.partition, it.version, it.key.clone())));
        file.repeated = all - file.changes.len();
        files.push(file);
    }
    files.reverse();
    Ok(files)
}

/// The start and the shard that wrote a file with this extension. `None` if the name is not of such
/// a file.
pub(crate) fn written_by(path: &Path, extension: &str) -> Option<(u64, u16)> {
    let name = path.file_name()?.to_str()?;
    let (incarnation, shard) = name
        .strip_suffix(extension)?
        .strip_suffix('.')?
        .split_once('-')?;
    Some((incarnation.parse().ok()?, shard.parse().ok()?))
}

/// Bytes of what nodes of a cluster have kept in a data directory; 0 if that cannot be read.
pub(crate) fn lostfound_bytes(data: &Path) -> u64 {
    let entries = fs::read_dir(data.join(LOSTFOUND)).into_iter().flatten();
    let files = entries
        .map_while(Result::ok)
        .filter(|entry| written_by(&entry.path(), EXTENSION).is_some());
    files
        .map(|entry| entry.metadata().map_or(0, |it| it.len()))
        .sum()
}

pub(crate) fn read_file(path: PathBuf) -> io::Result<KeptFile> {
    let bytes = fs::read(&path)?;
    let mut changes = BTreeMap::new();
    let mut read_bytes = 0;
    for record in records(&bytes).map_while(Result::ok) {
        read_bytes += record.bytes.len();
        let version = (record.position.epoch, record.position.sequence);
        let mut rest = record.bytes;
        while let Ok(part) = PartView::read(rest) {
            rest = &rest[part.bytes().len()..];
            let change = KeptChange {
                partition: record.partition,
                version,
                time_ms: part.time_ms(),
                key: part.key().to_vec(),
                value: (part.kind() == PartKind::Put).then(|| part.value().to_vec()),
                expiry_ms: part.expiry_ms(),
            };
            changes.insert((record.partition, version, change.key.clone()), change);
        }
    }
    Ok(KeptFile {
        path,
        changes: changes.into_values().collect(),
        repeated: 0,
        torn_bytes: bytes.len() - read_bytes,
    })
}

pub(crate) const LOSTFOUND: &str = "lostfound";
const EXTENSION: &str = "records";

/// Whether any of these parts is of a key that clients may have.
fn has_users(mut parts: &[u8]) -> bool {
    while let Ok(part) = PartView::read(parts) {
        if !part.key().starts_with(RESERVED_KEY) {
            return true;
        }
        parts = &parts[part.bytes().len()..];
    }
    false
}

/// So much may be written and not be on the disk: a sync of gigabytes would hold up the log beside
/// it, and the end of the process.
const UNSYNCED_BYTES_MAX: usize = 8 << 20;

struct Kept {
    directory: PathBuf,
    name: String,
    file: Option<File>,
    unsynced_bytes: usize,
    /// For each partition the newest record with a client's key that is not reported yet
    /// (`kept_all`).
    unnoted: BTreeMap<PartitionId, Position>,
    /// The same of what was.
    noted: BTreeMap<PartitionId, Position>,
}

impl Kept {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        for record in records(bytes).map_while(Result::ok) {
            let noted = self.noted.get(&record.partition);
            if has_users(record.bytes) && noted.is_none_or(|&noted| noted < record.position) {
                let newest = self.unnoted.entry(record.partition).or_default();
                *newest = record.position.max(*newest);
            }
        }
        let file = match &mut self.file {
            Some(file) => file,
            none => {
                fs::create_dir_all(&self.directory)?;
                let path = self.directory.join(&self.name);
                let file = File::options().append(true).create(true).open(path)?;
                File::open(&self.directory)?.sync_all()?;
                none.insert(file)
            }
        };
        file.write_all(bytes)?;
        self.unsynced_bytes += bytes.len();
        match self.unsynced_bytes > UNSYNCED_BYTES_MAX {
            true => self.sync(),
            false => Ok(()),
        }
    }

    /// The partitions among these that have more records than were reported. A link that ends has
    /// its diverged records searched again.
    fn note(&mut self, partitions: impl Iterator<Item = PartitionId>) -> BTreeSet<PartitionId> {
        let mut noted = BTreeSet::new();
        for partition in partitions {
            if let Some(newest) = self.unnoted.remove(&partition) {
                self.noted.insert(partition, newest);
                noted.insert(partition);
            }
        }
        noted
    }

    fn sync(&mut self) -> io::Result<()> {
        self.unsynced_bytes = 0;
        match &self.file {
            Some(file) => file.sync_all(),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_storage::record::{PartSpec, RecordSpec};
    use penstock_storage::version::Version;
    use std::cell::RefCell;

    fn encoded(sequence: u64, kind: PartKind, value: &[u8]) -> Vec<u8> {
        let parts = [PartSpec {
            kind,
            ..PartSpec::put(b"key", value)
        }];
        let version = Version { epoch: 7, sequence };
        let record = RecordSpec::new(64, version, 5, &parts);
        let mut bytes = vec![0; record.bytes()];
        record.encode_part(0, &mut bytes);
        bytes
    }

    #[test]
    fn what_is_reported_synced_stands_in_the_file() {
        let data = std::env::temp_dir().join(format!("penstock-lostfound-{}", std::process::id()));
        fs::create_dir_all(&data).expect("made");
        let (sender, found) = flume::unbounded();
        for next in [
            Found::Sync(7, Some(LinkId(1))),
            Found::Records(b"one".to_vec()),
            Found::Records(b"two".to_vec()),
            Found::Sync(8, None),
        ] {
            sender.send(next).expect("there");
        }
        drop(sender);
        let path = data.join("lostfound/5-3.records");
        let reported = RefCell::new(Vec::new());
        let read = || fs::read(&path).unwrap_or_default();
        keep(
            &data,
            (5, 3),
            &found,
            |_| panic!("no key of a client"),
            |partition, link| reported.borrow_mut().push((partition, link, read())),
            |error| panic!("{error}"),
        );
        let expected = [
            (8, None, b"onetwo".to_vec()),
            (7, Some(LinkId(1)), b"onetwo".to_vec()),
        ];
        assert_eq!(reported.into_inner(), expected);
        fs::remove_dir_all(&data).expect("removed");
    }

    #[test]
    fn tails_with_keys_of_clients_are_reported_whole_before_their_partitions_go_on() {
        let data = std::env::temp_dir().join(format!("penstock-whole-{}", std::process::id()));
        fs::create_dir_all(&data).expect("made");
        let (sender, found) = flume::unbounded();
        const LINK: Option<LinkId> = Some(LinkId(7));
        let put = encoded(3, PartKind::Put, b"value");
        let later = encoded(4, PartKind::Put, b"value");
        for next in [
            Found::Records(put.clone()),
            Found::Sync(1, LINK),
            Found::Sync(2, LINK),
            Found::Sync(3, None),
        ] {
            sender.send(next).expect("there");
        }
        let sender = RefCell::new(Some(sender));
        let reported = RefCell::new(Vec::new());
        keep(
            &data,
            (5, 3),
            &found,
            |partitions| {
                let file = fs::read(data.join("lostfound/5-3.records"));
                assert!(file.expect("written").starts_with(&put));
                reported.borrow_mut().push(format!("all of {partitions:?}"));
            },
            |partition, _| {
                reported.borrow_mut().push(format!("{partition}"));
                let mut sender = sender.borrow_mut();
                let count = reported.borrow().iter().filter(|it| *it == "2").count();
                match (partition, count) {
                    // The same is looked for once more.
                    (2, 1) => {
                        let sender = sender.as_ref().expect("there");
                        sender.send(Found::Records(put.clone())).expect("there");
                        sender.send(Found::Sync(1, LINK)).expect("there");
                        sender.send(Found::Sync(2, LINK)).expect("there");
                    }
                    // Nothing goes on behind the process's end.
                    (2, _) => {
                        let sender = sender.take().expect("once");
                        sender.send(Found::Records(later.clone())).expect("there");
                        sender.send(Found::Sync(1, LINK)).expect("there");
                    }
                    _ => {}
                }
            },
            |error| panic!("{error}"),
        );
        let expected = ["3", "all of {1}", "1", "2", "1", "2"];
        assert_eq!(reported.into_inner(), expected);
        fs::remove_dir_all(&data).expect("removed");
    }

    #[test]
    fn what_was_kept_is_read_once_and_a_torn_end_is_counted() {
        let data = std::env::temp_dir().join(format!("penstock-found-{}", std::process::id()));
        assert_eq!(read_lostfound(&data).expect("nothing there"), []);
        fs::create_dir_all(data.join(LOSTFOUND)).expect("made");
        let put = encoded(3, PartKind::Put, b"value");
        let deletion = encoded(4, PartKind::Tombstone, b"");
        let bytes = [&put[..], &deletion, &put, &deletion[..16]].concat();
        fs::write(data.join("lostfound/2-0.records"), bytes).expect("written");
        fs::create_dir(data.join("lostfound/0001")).expect("what a repair keeps");
        let files = read_lostfound(&data).expect("read");
        let [file] = files.as_slice() else {
            panic!("{files:?}");
        };
        let records: Vec<_> = file
            .changes
            .iter()
            .map(|it| (it.version, it.value.clone()))
            .collect();
        assert_eq!(
            lostfound_bytes(&data),
            fs::metadata(&file.path).expect("there").len()
        );
        assert_eq!(records, [((7, 3), Some(b"value".to_vec())), ((7, 4), None)]);
        assert_eq!((file.counts(), file.torn_bytes), ((2, 1), 16));
        fs::remove_dir_all(&data).expect("removed");
    }

    #[test]
    fn what_stands_in_two_files_is_reported_of_the_later_start_alone() {
        let data = std::env::temp_dir().join(format!("penstock-twice-{}", std::process::id()));
        fs::create_dir_all(data.join(LOSTFOUND)).expect("made");
        let [first, second, third] = [3, 4, 5].map(|it| encoded(it, PartKind::Put, b"value"));
        for (name, bytes) in [
            ("9-1.records", [&first[..], &second, &third[..16]].concat()),
            ("10-0.records", [&second[..], &third].concat()),
            ("10-x.records", first.clone()),
        ] {
            fs::write(data.join(LOSTFOUND).join(name), bytes).expect("written");
        }
        let files = read_lostfound(&data).expect("read");
        let records: Vec<_> = files
            .iter()
            .map(|file| {
                let name = file.path.file_name().and_then(|name| name.to_str());
                (name.expect("ours"), file.counts(), file.repeated)
            })
            .collect();
        assert_eq!(
            records,
            [("9-1.records", (1, 1), 1), ("10-0.records", (2, 1), 0)]
        );
        fs::remove_dir_all(&data).expect("removed");
    }
}
