//! The ring of a connection: the replies of its commands in their order, whatever order the answers
//! of their items have.

use std::collections::VecDeque;

use crate::reply::ITEM_FLAG_REPLAYED;
use crate::status::Status;

use super::answer::{self, Fold, Told};
use super::reply::{Protocol, Replies};
use super::slow::{SLOW_US, Subject};
use super::wait::Written;

/// Commands of a connection that are not answered, at most.
pub(super) const ENTRIES_MAX: usize = 4096;
/// Buffers of early replies that are kept for the next ones, and how long these may be.
const SPARES_MAX: usize = 16;
const SPARE_BYTES_MAX: usize = 4 << 10;
/// An item that was answered.
const ANSWERED: u64 = u64::MAX;

/// A command whose reply has not left.
#[derive(Debug)]
struct Entry {
    fold: Fold,
    protocol: Protocol,
    /// Items that are not answered.
    missing: u32,
    /// More items may come.
    is_open: bool,
    is_failed: bool,
    /// Whether it has a token, and then whether its answer was given before.
    replayed: Option<bool>,
    sum: i64,
    subject: Subject,
    /// When it came, by the clock of the host.
    came_us: u64,
    /// Its reply, or the error of one of its items.
    early: Vec<u8>,
}

/// What an answer was about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answered {
    /// A reply; it was written, or is kept.
    Reply,
    /// The transaction, to which it must be given.
    Transaction,
}

/// A command whose answer took long, and how long.
pub(super) type Slow = (Subject, u64);

/// Commands that took long of one call, at most.
const SLOW_MAX: usize = 8;

#[derive(Debug)]
pub(super) struct Ring {
    entries: VecDeque<Entry>,
    /// The number of the first entry.
    first: u64,
    /// The entry of each item that is not answered, and of answered ones between.
    items: VecDeque<u64>,
    /// The number of the first item.
    first_item: u64,
    /// Bytes of early replies.
    held_bytes: usize,
    spares: Vec<Vec<u8>>,
    /// What the next command is about, and when it came.
    subject: Subject,
    came_us: u64,
    /// When the answers came that are being taken.
    now_us: u64,
    slow: Vec<Slow>,
    written: Written,
    /// Of the last command with a token whose reply was written: whether it was given before.
    was_replayed: Option<bool>,
}

impl Default for Ring {
    fn default() -> Self {
        Ring {
            entries: VecDeque::new(),
            first: 0,
            items: VecDeque::new(),
            first_item: 0,
            held_bytes: 0,
            spares: Vec::new(),
            subject: Subject::new(),
            came_us: 0,
            now_us: 0,
            slow: Vec::new(),
            written: Written::default(),
            was_replayed: None,
        }
    }
}

impl Ring {
    /// What the commands that are pushed from now on are about.
    pub(super) fn subject(&mut self) -> &mut Subject {
        &mut self.subject
    }

    /// The commands that are pushed from now on came at this time.
    pub(super) fn comes_at(&mut self, elapsed_us: u64) {
        self.came_us = elapsed_us;
    }

    /// The answers that are given from now on came at this time.
    pub(super) fn answers_at(&mut self, elapsed_us: u64) {
        self.now_us = elapsed_us;
    }

    /// The commands whose answers took long since this was asked before, some of them if they are
    /// many.
    pub(super) fn take_slow(&mut self) -> Vec<Slow> {
        std::mem::take(&mut self.slow)
    }

    /// The partitions that were written since the last WAIT.
    pub(super) fn written(&mut self) -> &mut Written {
        &mut self.written
    }

    /// Of the last command with a token whose reply was written: whether it was given before.
    pub(super) fn was_replayed(&self) -> Option<bool> {
        self.was_replayed
    }

    /// The command that was pushed last has a token.
    pub(super) fn has_token(&mut self) {
        if let Some(entry) = self.entries.back_mut() {
            entry.replayed = Some(false);
        }
    }

    pub(super) fn has_room(&self) -> bool {
        self.entries.len() < ENTRIES_MAX && self.items.len() < 2 * ENTRIES_MAX
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Bytes of replies that wait for those before them.
    pub(super) fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// The number that the next item gets.
    pub(super) fn next_item(&self) -> u64 {
        self.first_item + self.items.len() as u64
    }

    /// The number of the first item that is not answered.
    pub(super) fn first_item(&self) -> u64 {
        self.first_item
    }

    /// A command whose items follow; its number.
    #[inline]
    pub(super) fn push(&mut self, fold: Fold, protocol: Protocol) -> u64 {
        self.entries.push_back(Entry {
            fold,
            protocol,
            missing: 0,
            is_open: true,
            is_failed: false,
            replayed: None,
            sum: 0,
            subject: self.subject,
            came_us: self.came_us,
            early: Vec::new(),
        });
        self.first + self.entries.len() as u64 - 1
    }

    /// Another item of a command; its number is [`Ring::next_item`] before.
    #[inline]
    pub(super) fn add_item(&mut self, entry: u64) {
        self.items.push_back(entry);
        if let Some(entry) = self.entry(entry) {
            entry.missing += 1;
        }
    }

    /// All items of a command were added.
    #[inline]
    pub(super) fn close(&mut self, number: u64, out: &mut Vec<u8>) {
        if let Some(entry) = self.entry(number) {
            entry.is_open = false;
        }
        self.flush(out);
    }

    /// A reply without items, which `write` writes.
    #[inline]
    pub(super) fn reply(
        &mut self,
        protocol: Protocol,
        out: &mut Vec<u8>,
        write: impl FnOnce(&mut Replies<'_>),
    ) {
        if self.entries.is_empty() {
            return write(&mut Replies::new(out, protocol));
        }
        let number = self.push(Fold::Written, protocol);
        self.settle(number, out, write);
    }

    /// Writes the reply of a command that was pushed without items.
    pub(super) fn settle(
        &mut self,
        number: u64,
        out: &mut Vec<u8>,
        write: impl FnOnce(&mut Replies<'_>),
    ) {
        let spare = self.spares.pop().unwrap_or_default();
        let Some(entry) = self.entry(number) else {
            return;
        };
        entry.early = spare;
        write(&mut Replies::new(&mut entry.early, entry.protocol));
        let is_noted = matches!(entry.fold, Fold::Transaction)
            && entry.subject.is_noted
            && !entry.early.starts_with(b"-");
        entry.fold = Fold::Written;
        entry.is_open = false;
        let (subject, came_us) = (entry.subject, entry.came_us);
        let held = entry.early.len();
        self.held_bytes += held;
        if is_noted {
            self.written.note(subject.slot);
        }
        self.note_time(subject, came_us);
        self.flush(out);
    }

    /// Notes a command that is answered now, if that took long.
    #[inline]
    fn note_time(&mut self, subject: Subject, came_us: u64) {
        let took_us = self.now_us.saturating_sub(came_us);
        if took_us >= SLOW_US && self.slow.len() < SLOW_MAX {
            self.slow.push((subject, took_us));
        }
    }

    /// An item was answered. Answers of items that nobody waits for are passed over.
    #[inline]
    pub(super) fn answer(&mut self, item: u64, told: Told<'_>, out: &mut Vec<u8>) -> Answered {
        let Some(number) = self.take_item(item) else {
            return Answered::Reply;
        };
        let is_first = number == self.first;
        let place = usize::try_from(number - self.first).expect("it was pushed");
        let entry = &mut self.entries[place];
        entry.missing -= 1;
        if matches!(entry.fold, Fold::Transaction) {
            return Answered::Transaction;
        }
        let is_last = entry.missing == 0 && !entry.is_open;
        if let Some(replayed) = &mut entry.replayed {
            *replayed = told.item.head.flags & ITEM_FLAG_REPLAYED != 0;
        }
        let (subject, came_us) = (entry.subject, entry.came_us);
        if subject.is_noted && told.item.head.status == Status::Ok {
            self.written.note(subject.slot);
        }
        if is_first && is_last && !entry.is_failed {
            // Nearly all replies: straight to the connection.
            let replies = &mut Replies::new(out, entry.protocol);
            answer::write(&entry.fold, &mut entry.sum, told, subject.slot, replies);
            self.pop();
            self.note_time(subject, came_us);
            self.flush(out);
            return Answered::Reply;
        }
        let status = told.item.head.status;
        let is_good = answer::is_good(status);
        if matches!(entry.fold, Fold::Nodes(_)) && !is_last {
            answer::note_nodes(&entry.fold, &mut entry.sum, told);
            return Answered::Reply;
        }
        let folds = matches!(entry.fold, Fold::Sum | Fold::Done);
        if folds && is_good && !is_last {
            entry.sum += i64::from(status == Status::Ok);
            return Answered::Reply;
        }
        let before = entry.early.len();
        if !entry.is_failed {
            if entry.early.capacity() == 0 {
                entry.early = self.spares.pop().unwrap_or_default();
            }
            let replies = &mut Replies::new(&mut entry.early, entry.protocol);
            answer::write(&entry.fold, &mut entry.sum, told, subject.slot, replies);
            entry.is_failed = folds && !is_good;
        }
        let grown = entry.early.len() - before;
        self.held_bytes += grown;
        if is_last {
            self.note_time(subject, came_us);
        }
        self.flush(out);
        Answered::Reply
    }

    /// The entry of an item, which is answered by now.
    #[inline]
    fn take_item(&mut self, item: u64) -> Option<u64> {
        let place = usize::try_from(item.checked_sub(self.first_item)?).ok()?;
        let number = std::mem::replace(self.items.get_mut(place)?, ANSWERED);
        while self.items.front() == Some(&ANSWERED) {
            self.items.pop_front();
            self.first_item += 1;
        }
        (number != ANSWERED).then_some(number)
    }

    #[inline]
    fn entry(&mut self, number: u64) -> Option<&mut Entry> {
        let place = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.entries.get_mut(place)
    }

    #[inline]
    fn pop(&mut self) -> Option<Entry> {
        self.first += 1;
        let entry = self.entries.pop_front()?;
        if entry.replayed.is_some() {
            self.was_replayed = entry.replayed;
        }
        Some(entry)
    }

    /// Writes all replies that nothing stands before.
    #[inline]
    fn flush(&mut self, out: &mut Vec<u8>) {
        while let Some(entry) = self.entries.front() {
            let is_whole = entry.missing == 0 && !entry.is_open;
            if !is_whole || matches!(entry.fold, Fold::Transaction) {
                return;
            }
            let mut entry = self.pop().expect("looked at");
            out.extend_from_slice(&entry.early);
            self.held_bytes -= entry.early.len();
            let capacity = entry.early.capacity();
            if (1..=SPARE_BYTES_MAX).contains(&capacity) && self.spares.len() < SPARES_MAX {
                entry.early.clear();
                self.spares.push(entry.early);
            }
        }
    }
}
