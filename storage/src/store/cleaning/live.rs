//! What counts in each file of the log: the one account that cleaning decides by.
//!
//! Each part that [`liveness`](crate::store::Data::liveness) would keep is counted here: a
//! segment without any is released unread. An expired part is still pointed to, and leaves only
//! when its segment is read. [`Counts`] says how much of a file has expired.
//!
//! Two bounds tell it, and neither needs the expiry of what was superseded. A part counts if it is
//! pointed to, and if it has not expired. So what counts in a file is at most what is pointed to,
//! and at most what was ever pointed to there and has not expired: the lesser of the two. If U
//! bytes of W that were written count, that is at most (W + U) / 2: at least half of what cleaning
//! would give back is seen, and all of it if nothing in the file was superseded, or everything in
//! it expires.
//!
//! What must hold: every part that the index points to was added, with its expiry or as a lasting
//! part, and does not count as lost.

use crate::planted::{self, Bug};
use crate::store::cleaning::expiring::{Amount, Expires, Expiring};
use crate::store::keyspace::keyspaces::Replaced;
use crate::types::packed_place::{FILES_MAX, PackedPlace};
use crate::types::place::{FileId, Place};

/// Bytes in each file that count.
#[derive(Debug, Default)]
pub(crate) struct Live {
    files: Vec<FileBytes>,
    /// Files with a table of times.
    tables: usize,
    /// Since it was made, the times of files had to be forgotten.
    has_forgotten_times: bool,
    /// By then all tokens that a snapshot told may be dropped.
    restored_by_ms: u64,
}

#[derive(Clone, Debug, Default)]
struct FileBytes {
    /// Bytes of all parts that were pointed to at some time and do not expire, or not for certain,
    /// and how many they are.
    lasting: u64,
    lasting_count: u64,
    /// Bytes and number of the parts, expiring ones included, that the index no longer points to.
    lost: u64,
    lost_count: u64,
    /// Bytes of deletions that may still be needed.
    tombstones: u64,
    /// All parts that expire and were pointed to at some time.
    expiring: Option<Box<Expiring>>,
    /// The tokens among them, and when each may be dropped. Nothing supersedes a token but a text
    /// that is used anew behind its expiry. So nearly all of these are pointed to until their
    /// segment is cleaned.
    tokens: Option<Box<Expiring>>,
    /// Tokens that a snapshot told, whose times are not known.
    restored_tokens: u64,
}

/// What counts in a file at some time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Bytes of parts that are pointed to and have not expired, at most.
    pub(crate) parts: u64,
    /// Bytes of deletions that may still be needed.
    pub(crate) tombstones: u64,
    /// How many parts are pointed to.
    pub(crate) count: u64,
    /// Bytes of those that have expired, at least, and how many they are.
    pub(crate) expired: u64,
    pub(crate) expired_count: u64,
    /// Bytes of deletions in their place, at most.
    pub(crate) deletions: u64,
    /// When it may be less, if it may.
    pub(crate) next_ms: Option<u64>,
}

/// What a snapshot tells of the times of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileTimes {
    /// The file.
    pub file: FileId,
    /// Parts that do not expire and were pointed to at some time.
    pub lasting: Amount,
    /// Parts that expire and were pointed to at some time.
    pub expiring: Box<Expiring>,
}

impl FileBytes {
    /// All that was pointed to at some time.
    fn added(&self) -> Amount {
        let expiring = self.expiring.as_ref().map(|table| table.all());
        let expiring = expiring.unwrap_or_default();
        Amount {
            parts: self.lasting_count + expiring.parts,
            bytes: self.lasting + expiring.bytes,
            deletion_bytes: 0,
        }
    }

    /// What is pointed to.
    fn pointed(&self) -> Amount {
        let added = self.added();
        let (bytes, parts) = (
            added.bytes.checked_sub(self.lost),
            added.parts.checked_sub(self.lost_count),
        );
        Amount {
            parts: parts.expect("what the index points to was counted"),
            bytes: bytes.expect("what the index points to was counted"),
            deletion_bytes: 0,
        }
    }

    fn at(&self, now_ms: u64) -> Counts {
        let pointed = self.pointed();
        let Some(table) = &self.expiring else {
            return Counts {
                parts: pointed.bytes,
                tombstones: self.tombstones,
                count: pointed.parts,
                ..Counts::default()
            };
        };
        let now_ms = now_ms + planted::or(Bug::ExpireBytesEarly, 3_600_000, 0);
        let (left, gone) = (table.left(now_ms), table.gone(now_ms));
        let parts = pointed.bytes.min(self.lasting + left.bytes);
        let count = pointed.parts.min(self.lasting_count + left.parts);
        let expired = pointed.bytes - parts;
        Counts {
            parts,
            tombstones: self.tombstones,
            count: pointed.parts,
            expired,
            expired_count: pointed.parts - count,
            deletions: expired.min(gone.deletion_bytes),
            next_ms: table.next_ms(now_ms),
        }
    }
}

impl Live {
    #[inline]
    fn file(&mut self, file: FileId) -> &mut FileBytes {
        let at = file.0 as usize;
        if at >= self.files.len() {
            self.grow(file);
        }
        &mut self.files[at]
    }

    #[cold]
    fn grow(&mut self, file: FileId) {
        assert!(file.0 < FILES_MAX, "file number {} of {FILES_MAX}", file.0);
        self.files.resize(file.0 as usize + 1, FileBytes::default());
    }

    /// What stands there is pointed to from now on, and lasts.
    #[inline]
    pub(crate) fn gains(&mut self, place: Place) {
        let file = self.file(place.file);
        file.lasting += u64::from(place.bytes);
        file.lasting_count += 1;
    }

    /// The same of what expires, if it does.
    #[inline]
    pub(crate) fn gains_until(&mut self, place: Place, expires: Option<Expires>) {
        match expires {
            None => self.gains(place),
            Some(expires) => self.gains_expiring(place, expires),
        }
    }

    #[cold]
    fn gains_expiring(&mut self, place: Place, expires: Expires) {
        let bytes = u64::from(place.bytes);
        let file = self.file(place.file);
        let is_new = file.expiring.is_none();
        file.expiring.get_or_insert_default().add(bytes, expires);
        let mut added = usize::from(is_new);
        if expires.is_token {
            added += usize::from(file.tokens.is_none());
            file.tokens.get_or_insert_default().add(bytes, expires);
        }
        self.tables += added;
    }

    /// A snapshot tells a token that stands there.
    pub(crate) fn restores_token(&mut self, place: Place) {
        self.file(place.file).restored_tokens += 1;
    }

    /// By this time all tokens that a snapshot told may be dropped.
    pub(crate) fn restored_by(&mut self, ms: u64) {
        self.restored_by_ms = ms;
    }

    /// How many tokens of a file may be dropped by now, about, and when it may be more.
    pub(crate) fn gone_tokens(&self, file: FileId, now_ms: u64) -> (u64, Option<u64>) {
        let Some(file) = self.files.get(file.0 as usize) else {
            return (0, None);
        };
        let table = file.tokens.as_ref();
        let (gone, next_ms) = table.map_or((0, None), |table| {
            (table.gone(now_ms).parts, table.next_ms(now_ms))
        });
        match file.restored_tokens {
            0 => (gone, next_ms),
            restored if self.restored_by_ms <= now_ms => (gone + restored, next_ms),
            _ => {
                let next_ms = next_ms.unwrap_or(u64::MAX).min(self.restored_by_ms);
                (gone, Some(next_ms))
            }
        }
    }

    /// What stands there is not pointed to any more.
    #[inline]
    pub(crate) fn loses(&mut self, place: Place) {
        let file = self.file(place.file);
        file.lost += u64::from(place.bytes);
        file.lost_count += 1;
    }

    /// What stands at `before` is not pointed to any more. What stands at `place` is, and lasts.
    #[inline(always)]
    pub(crate) fn moves(&mut self, before: PackedPlace, place: Place) {
        match before.file_and_bytes() {
            Some((file, bytes)) if file == place.file => {
                let file = self.file(file);
                file.lost += u64::from(bytes);
                file.lost_count += 1;
                file.lasting += u64::from(place.bytes);
                file.lasting_count += 1;
            }
            _ => {
                if let Some(before) = before.place() {
                    self.loses(before);
                }
                self.gains(place);
            }
        }
    }

    /// Takes in the counts that a snapshot has of a file, to which so far only entries of the
    /// snapshot point. A part that they point to and the snapshot does not count lasts. A part that
    /// the snapshot counts and they do not point to is lost.
    pub(crate) fn take_in(&mut self, times: &FileTimes) {
        let file = self.file(times.file);
        let pointed = file.pointed();
        (file.lasting, file.lasting_count) = (times.lasting.bytes, times.lasting.parts);
        let has_table = !times.expiring.buckets().is_empty();
        file.expiring = has_table.then(|| times.expiring.clone());
        let added = file.added();
        file.lasting += pointed.bytes.saturating_sub(added.bytes);
        file.lasting_count += pointed.parts.saturating_sub(added.parts);
        file.lost = added.bytes.saturating_sub(pointed.bytes);
        file.lost_count = added.parts.saturating_sub(pointed.parts);
        self.tables += usize::from(has_table);
    }

    /// Visits what is known of the next `count` files from number `from` on. Where to go on, or
    /// `None` at the end.
    pub(crate) fn walk_times(
        &self,
        from: u32,
        count: usize,
        visit: &mut impl FnMut(FileTimes),
    ) -> Option<u32> {
        let files = (0..).zip(&self.files).skip(from as usize);
        for (number, file) in files.take(count) {
            if file.lasting_count == 0 && file.expiring.is_none() {
                continue;
            }
            let table = file.expiring.as_ref();
            visit(FileTimes {
                file: FileId(number),
                lasting: Amount {
                    parts: file.lasting_count,
                    bytes: file.lasting,
                    deletion_bytes: 0,
                },
                expiring: table.cloned().unwrap_or_default(),
            });
        }
        let next = from as usize + count;
        (next < self.files.len()).then(|| u32::try_from(next).expect("files are numbered"))
    }

    /// Forgets all expiries. From now on every part counts as one that lasts.
    pub(crate) fn forget_times(&mut self) {
        for file in &mut self.files {
            if let Some(table) = file.expiring.take() {
                let all = table.all();
                file.lasting += all.bytes;
                file.lasting_count += all.parts;
                self.tables -= 1;
            }
        }
        self.has_forgotten_times = true;
    }

    /// Whether what had expired was taken to count again.
    pub(crate) fn has_forgotten_times(&self) -> bool {
        self.has_forgotten_times
    }

    /// The settings of a keyspace stand elsewhere from now on.
    pub(crate) fn replaces(&mut self, replaced: Replaced) {
        if replaced.keeps_others {
            self.forget_times();
        }
        if let Some(place) = replaced.gained {
            self.gains(place);
        }
        if let Some(place) = replaced.lost {
            self.loses(place);
        }
    }

    /// A durable deletion stands there.
    pub(crate) fn gains_tombstone(&mut self, place: Place) {
        self.gains_tombstones(place.file, u64::from(place.bytes));
    }

    /// Durable deletions of so many bytes stand there.
    pub(crate) fn gains_tombstones(&mut self, file: FileId, bytes: u64) {
        self.file(file).tombstones += bytes;
    }

    /// Bytes of deletions in a file that may still be needed.
    pub(crate) fn tombstones(&self, file: FileId) -> u64 {
        self.files
            .get(file.0 as usize)
            .map_or(0, |file| file.tombstones)
    }

    /// Bytes of parts in a file that are pointed to, expired or not.
    pub(crate) fn parts(&self, file: FileId) -> u64 {
        self.files
            .get(file.0 as usize)
            .map_or(0, |file| file.pointed().bytes)
    }

    /// What counts in a file at this time.
    pub(crate) fn counts(&self, file: FileId, now_ms: u64) -> Counts {
        let file = self.files.get(file.0 as usize);
        file.map_or_else(Counts::default, |file| file.at(now_ms))
    }

    /// Parts in all files that are pointed to and have expired, at least.
    pub(crate) fn expired_count(&self, now_ms: u64) -> u64 {
        if self.tables == 0 {
            return 0;
        }
        let files = self.files.iter().filter(|file| file.expiring.is_some());
        files.map(|file| file.at(now_ms).expired_count).sum()
    }

    /// Bytes of memory of the tables of times.
    #[inline]
    pub(crate) fn memory_bytes(&self) -> usize {
        self.tables * size_of::<Expiring>()
    }

    pub(crate) fn forget(&mut self, file: FileId) {
        let file = std::mem::take(self.file(file));
        self.tables -= usize::from(file.expiring.is_some()) + usize::from(file.tokens.is_some());
    }
}
