//! The keys that have changed: noted while somebody keeps values of his own and wants to know.
//!
//! A key changes where the log has its record and its cell shows it: [`Store::note_change`], a
//! direct SET, a sweep. A flush changes all keys. An expiry is no record: it is noted when a value
//! with one is shown, and whoever wants to know minds the time.
//!
//! What must hold: a change that a reader can see is noted before the step of the shard ends that
//! made it. More than [`NOTED_BYTES_MAX`] are noted as a change of all keys.
//!
//! [`Store::note_change`]: crate::store::Store::note_change

use crate::format::system_key::is_flush;
use crate::planted::{Bug, is_planted};

/// Bytes of keys that are noted one by one in one step.
pub const NOTED_BYTES_MAX: usize = 1 << 20;
/// Bytes that a note takes beside its key.
const NOTE_BYTES: usize = size_of::<Note>();

/// A connection that changes keys: its shard, and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Writer {
    /// The shard of the connection.
    pub shard: u16,
    /// The connection at that shard.
    pub session: u64,
}

/// What a key has behind a change, and who asked for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyChange {
    /// Its expiry, in unix milliseconds.
    pub expiry_ms: Option<u64>,
    /// The number of the type of its value: 0 of a plain one. `None`: it has no value any more.
    pub type_number: Option<u8>,
    /// `None`: nobody has, as for an expiry or a record of another node.
    pub writer: Option<Writer>,
}

/// What was noted of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Noted {
    /// It has changed.
    Changed(KeyChange),
    /// It is about to change, and nobody reads it before it has: a change over several shards is
    /// noted before it is decided.
    Coming {
        /// Who has asked for it.
        writer: Option<Writer>,
    },
    /// It has changed as was noted.
    Made(KeyChange),
    /// A value was shown that expires then, in unix milliseconds.
    Shown {
        /// The expiry.
        expiry_ms: u64,
    },
}

#[derive(Clone, Copy, Debug)]
struct Note {
    /// Where its key ends.
    end: usize,
    noted: Noted,
}

/// The keys that have changed since they were taken last.
#[derive(Debug, Default)]
pub struct ChangedKeys {
    keys: Vec<u8>,
    notes: Vec<Note>,
    writer: Option<Writer>,
    /// What changes now was noted when it was coming.
    is_coming: bool,
    are_all: bool,
}

impl ChangedKeys {
    /// What changes from now on, this connection asks for.
    #[inline]
    pub fn asks(&mut self, writer: Option<Writer>) {
        (self.writer, self.is_coming) = (writer, false);
    }

    /// What changes from now on was noted before as [`Noted::Coming`].
    pub fn makes(&mut self) {
        (self.is_coming, self.writer) = (true, None);
    }

    /// Whether all keys are to be taken for changed.
    #[must_use]
    pub fn are_all(&self) -> bool {
        self.are_all
    }

    /// Each key that was noted, in the order of the notes.
    pub fn notes(&self) -> impl Iterator<Item = (&[u8], Noted)> {
        let mut begin = 0;
        self.notes.iter().map(move |note| {
            let key = &self.keys[begin..note.end];
            begin = note.end;
            (key, note.noted)
        })
    }

    /// Forgets what was noted.
    pub fn clear(&mut self) {
        self.keys.clear();
        self.notes.clear();
        self.are_all = false;
    }

    /// All keys have changed.
    pub fn note_all(&mut self) {
        self.clear();
        self.are_all = true;
    }

    /// Notes a key.
    pub fn note(&mut self, key: &[u8], noted: Noted) {
        if self.are_all {
            return;
        }
        let bytes = self.keys.len() + key.len() + (self.notes.len() + 1) * NOTE_BYTES;
        if bytes > NOTED_BYTES_MAX {
            return self.note_all();
        }
        self.keys.extend_from_slice(key);
        let end = self.keys.len();
        self.notes.push(Note { end, noted });
    }

    /// Notes that a key has changed. The store's own keys are none of anybody else, but the mark of
    /// a flush has changed all keys.
    #[cold]
    pub(super) fn note_change(
        &mut self,
        key: &[u8],
        expiry_ms: Option<u64>,
        type_number: Option<u8>,
    ) {
        if key.first() == Some(&0) {
            if is_flush(key) && !is_planted(Bug::FlushUnannounced) {
                self.note_all();
            }
            return;
        }
        let change = KeyChange {
            expiry_ms,
            type_number,
            writer: self.writer,
        };
        let noted = match self.is_coming {
            true => Noted::Made(change),
            false => Noted::Changed(change),
        };
        self.note(key, noted);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::system_key::FLUSH_KEY;

    #[test]
    fn keys_are_noted_in_their_order_and_too_many_are_all() {
        let mut changed = ChangedKeys::default();
        let writer = Writer {
            shard: 1,
            session: 7,
        };
        changed.note_change(b"a", None, None);
        changed.asks(Some(writer));
        changed.note_change(b"bb", Some(5), Some(3));
        changed.note(b"a", Noted::Shown { expiry_ms: 9 });
        let by = |expiry_ms, type_number, writer| {
            Noted::Changed(KeyChange {
                expiry_ms,
                type_number,
                writer,
            })
        };
        let expected: [(&[u8], Noted); 3] = [
            (b"a", by(None, None, None)),
            (b"bb", by(Some(5), Some(3), Some(writer))),
            (b"a", Noted::Shown { expiry_ms: 9 }),
        ];
        assert_eq!(changed.notes().collect::<Vec<_>>(), expected);
        changed.clear();
        changed.makes();
        changed.note_change(b"a", Some(5), Some(0));
        changed.asks(None);
        changed.note_change(b"a", None, None);
        let made = KeyChange {
            expiry_ms: Some(5),
            type_number: Some(0),
            writer: None,
        };
        let expected: [(&[u8], Noted); 2] =
            [(b"a", Noted::Made(made)), (b"a", by(None, None, None))];
        assert_eq!(changed.notes().collect::<Vec<_>>(), expected);
        changed.clear();
        assert_eq!(changed.notes().count(), 0);
        let mut noted = 0;
        while !changed.are_all() {
            changed.note_change(&[b'k'; 1000], None, Some(0));
            noted += 1;
        }
        assert_eq!(changed.notes().count(), 0, "nothing is kept of them");
        assert!(noted <= NOTED_BYTES_MAX / 1000);
        changed.note_change(b"a", None, Some(0));
        assert!(changed.are_all() && changed.notes().count() == 0);
        changed.clear();
        assert!(!changed.are_all());
    }

    #[test]
    fn of_the_own_keys_of_the_store_the_mark_of_a_flush_alone_is_noted_as_all() {
        let mut changed = ChangedKeys::default();
        changed.note_change(b"k", None, Some(0));
        changed.note_change(b"\0anything", None, Some(0));
        assert!(!changed.are_all() && changed.notes().count() == 1);
        changed.note_change(&[FLUSH_KEY, b"ab}"].concat(), None, Some(0));
        assert!(changed.are_all() && changed.notes().count() == 0);
    }
}
