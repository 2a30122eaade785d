//! The files that tell what the keys of diverged tails were at the fork, beside the tails:
//! `DATA/lostfound/INCARNATION-SHARD.forks`.
//!
//! A file has a record for each key of each tail, under the version of its last change there: with
//! the value that it had before the first one, or a deletion if it was not there.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use penstock_storage::record::{PartSpec, RecordSpec};
use penstock_storage::version::Version;

use crate::cluster::lostfound::lost::{Lost, Writer};
use crate::cluster::lostfound::{LOSTFOUND, read_file, written_by};
use crate::system::named_error::named;

const EXTENSION: &str = "forks";

/// What is known: by key and tail, the value or that there was none.
pub(crate) type ForkValues = BTreeMap<(Vec<u8>, Writer), Option<Vec<u8>>>;

/// Writes the record of a key at the end of `bytes`: what it was `before` the tail.
pub(crate) fn encode(slot: u16, lost: &Lost, before: Option<&[u8]>, bytes: &mut Vec<u8>) {
    let parts = [match before {
        Some(value) => PartSpec::put(&lost.key, value),
        None => PartSpec::tombstone(&lost.key),
    }];
    let (epoch, sequence) = lost.version;
    let record = RecordSpec::new(slot, Version { epoch, sequence }, 0, &parts);
    let start = bytes.len();
    bytes.resize(start + record.bytes(), 0);
    record.encode_part(0, &mut bytes[start..]);
}

/// Writes records at the end of the file of a start and a shard, durably. What comes behind a torn
/// record is not read, so none is left.
///
/// # Errors
/// As the system says; the text names the file.
pub(crate) fn append(
    data: &Path,
    (incarnation, shard): (u64, u16),
    records: &[u8],
) -> io::Result<()> {
    let path = data
        .join(LOSTFOUND)
        .join(format!("{incarnation}-{shard}.{EXTENSION}"));
    let written = || {
        let mut file = File::options().append(true).create(true).open(&path)?;
        let whole_bytes = file.metadata()?.len();
        if let Err(error) = file.write_all(records) {
            file.set_len(whole_bytes)?;
            return Err(error);
        }
        file.sync_all()?;
        File::open(data.join(LOSTFOUND))?.sync_all()
    };
    written().map_err(|error| named(&path, &error))
}

/// What was noted in a data directory.
///
/// # Errors
/// What the system said.
pub(crate) fn read_forks(data: &Path) -> io::Result<ForkValues> {
    let mut values = ForkValues::new();
    let entries = match fs::read_dir(data.join(LOSTFOUND)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(values),
        entries => entries?,
    };
    let mut paths = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if let Some(start) = written_by(&path, EXTENSION) {
            paths.push((start, path));
        }
    }
    // A tail that was looked for again may have been longer than the first look found.
    paths.sort_unstable();
    for (_, path) in paths {
        for change in read_file(path)?.changes {
            let tail = Writer::of(change.version.0);
            values.insert((change.key, tail), change.value);
        }
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use penstock_net::slot::slot_of;

    use super::*;
    use crate::cluster::lostfound::lost::AtFork;

    #[test]
    fn what_was_noted_is_read_up_to_a_torn_end() {
        let data = std::env::temp_dir().join(format!("penstock-forks-{}", std::process::id()));
        assert!(read_forks(&data).expect("nothing there").is_empty());
        let folder = data.join(LOSTFOUND);
        fs::create_dir_all(&folder).expect("made");
        let lost = |key: &[u8]| Lost {
            key: key.to_vec(),
            version: (262_401, 17),
            records: 1,
            before: AtFork::Unknown,
            first: None,
            after: None,
            expiry_ms: None,
        };
        let mut bytes = Vec::new();
        let mut ends = Vec::new();
        for (key, before) in [
            (&b"stock"[..], Some(&b"\x64\0\0\0\0\0\0\0"[..])),
            (b"new", None),
            (b"empty", Some(b"")),
        ] {
            encode(slot_of(key), &lost(key), before, &mut bytes);
            ends.push(bytes.len());
        }
        for cut in 0..=bytes.len() {
            fs::write(folder.join("5-1.forks"), &bytes[..cut]).expect("written");
            let values = read_forks(&data).expect("read");
            let whole = ends.iter().filter(|&&end| end <= cut).count();
            assert_eq!(values.len(), whole, "cut at {cut}");
        }
        let values = read_forks(&data).expect("read");
        let of = |key: &[u8]| values[&(key.to_vec(), Writer::of(262_401))].as_deref();
        assert_eq!(of(b"stock"), Some(&b"\x64\0\0\0\0\0\0\0"[..]));
        assert_eq!((of(b"new"), of(b"empty")), (None, Some(&b""[..])));
        fs::remove_dir_all(&data).expect("removed");
    }
}
