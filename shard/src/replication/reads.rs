//! Reads of the log that are under way for links.

use std::collections::BTreeMap;

use penstock_storage::io::{Asker, Blocks, Io, IoToken};
use penstock_storage::place::FileId;
use penstock_storage::place::Place;
use penstock_storage::store::Store;

/// Reads under way, also those that nobody waits for any more: a file stays while it is read.
#[derive(Debug)]
pub struct LinkReads {
    next_token: u64,
    files: BTreeMap<u64, FileId>,
}

impl Default for LinkReads {
    fn default() -> Self {
        LinkReads {
            next_token: 1,
            files: BTreeMap::new(),
        }
    }
}

impl LinkReads {
    /// Begins the aligned read of a place: its token and how many bytes it brings; `None` if no
    /// memory is free for it now.
    pub fn begin<P: Blocks>(
        &mut self,
        store: &mut Store<P>,
        place: Place,
        io: &mut Vec<Io<P::Block>>,
    ) -> Option<(u64, u32)> {
        let token = self.next_token;
        let request = store.read(IoToken::new(Asker::Link, token), place)?;
        let Io::Read { len, .. } = request else {
            unreachable!("a store reads");
        };
        io.push(request);
        self.files.insert(token, place.file);
        self.next_token += 1;
        Some((token, len))
    }

    /// A read has ended.
    pub fn ended(&mut self, token: u64) {
        self.files.remove(&token);
    }

    /// Whether a file is read.
    #[must_use]
    pub fn is_reading(&self, file: FileId) -> bool {
        self.files.values().any(|&read| read == file)
    }
}
