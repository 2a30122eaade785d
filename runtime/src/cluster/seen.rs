//! The highest start of each other node that was seen, in a file of the data directory: an old copy of
//! a node's directory is refused, also behind a start of this one.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

const NAME: &str = "PEERS";

/// By node id.
pub(super) struct Seen {
    directory: PathBuf,
    of: Mutex<BTreeMap<[u8; 16], u64>>,
}

impl Seen {
    /// What was seen until now.
    pub(super) fn read(directory: &Path) -> io::Result<Seen> {
        let text = match fs::read_to_string(directory.join(NAME)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            read => read?,
        };
        let damaged = || io::Error::other(format!("{NAME} has a line that is none of its own"));
        let mut of = BTreeMap::new();
        for line in text.lines() {
            let (id, incarnation) = line.split_once(' ').ok_or_else(damaged)?;
            let id = u128::from_str_radix(id, 16).map_err(|_| damaged())?;
            let incarnation = incarnation.parse().map_err(|_| damaged())?;
            of.insert(id.to_be_bytes(), incarnation);
        }
        Ok(Seen {
            directory: directory.into(),
            of: Mutex::new(of),
        })
    }

    /// The highest start of a node that was seen; 0 if none was.
    pub(super) fn of(&self, node_id: [u8; 16]) -> u64 {
        let of = self.of.lock().unwrap_or_else(PoisonError::into_inner);
        of.get(&node_id).copied().unwrap_or_default()
    }

    /// A start of a node has proven itself: durable when this returns.
    pub(super) fn note(&self, node_id: [u8; 16], incarnation: u64) -> io::Result<()> {
        let mut of = self.of.lock().unwrap_or_else(PoisonError::into_inner);
        if of.get(&node_id).is_some_and(|&seen| seen >= incarnation) {
            return Ok(());
        }
        let mut next = of.clone();
        next.insert(node_id, incarnation);
        let text: String = next
            .iter()
            .map(|(id, incarnation)| format!("{:032x} {incarnation}\n", u128::from_be_bytes(*id)))
            .collect();
        let temporary = self.directory.join(format!("{NAME}.tmp"));
        let mut file = File::create(&temporary)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&temporary, self.directory.join(NAME))?;
        File::open(&self.directory)?.sync_all()?;
        *of = next;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_start_is_found_again() {
        let directory = std::env::temp_dir().join(format!("penstock-seen-{}", std::process::id()));
        fs::create_dir_all(&directory).expect("made");
        let seen = Seen::read(&directory).expect("nothing yet");
        assert_eq!(seen.of([1; 16]), 0);
        for incarnation in [3, 5, 4] {
            seen.note([1; 16], incarnation).expect("written");
        }
        seen.note([0xFF; 16], 1).expect("written");
        let again = Seen::read(&directory).expect("read");
        assert_eq!((again.of([1; 16]), again.of([0xFF; 16])), (5, 1));
        fs::write(directory.join(NAME), "nonsense").expect("written");
        assert!(Seen::read(&directory).is_err());
        fs::remove_dir_all(&directory).expect("removed");
    }
}
