//! The ring of a connection: the replies of its commands in their order, whatever order the answers
//! of their items have.
//!
//! An entry is small, because nearly all commands are answered in their order. What an entry is
//! about is shared with the commands behind it that repeat it; what has come too early stands in a
//! part of its own.

use std::collections::VecDeque;

use crate::batch::Batch;
use crate::reply::{ITEM_FLAG_REPLAYED, PlainReply};
use crate::status::Status;

use super::answer::{self, Fold, ItemAnswer};
use super::calls::Calls;
use super::early::EarlyParts;
use super::host::Host;
use super::reply::{Protocol, Replies, ValueLines};
use super::slow::{SLOW_US, Subject};
use super::wait::Written;

/// Commands of a connection that are not answered, at most.
pub(super) const ENTRIES_MAX: usize = 4096;
/// The same while there is no room for replies.
const ENTRIES_WITHOUT_ROOM_MAX: usize = 16;
/// An item that was answered.
const ANSWERED: u64 = u64::MAX;

/// What a command is about, and those behind it that repeat it.
#[derive(Debug)]
struct About {
    fold: Fold,
    protocol: Protocol,
    subject: Subject,
    /// When it came, by the clock of the host.
    came_us: u64,
    /// Entries of the ring that are about this.
    entries: usize,
}

/// A command whose reply has not left.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Items that are not answered.
    missing: u32,
    /// More items may come.
    is_open: bool,
    /// Its reply is a part of the one before it.
    goes_on: bool,
    /// Its place among the early parts, if it has one.
    early: Option<u16>,
    /// The number of what it is about, which begins anew behind the last number.
    about: u32,
}

impl Entry {
    /// Whether it has one item, which is not answered.
    #[inline]
    fn waits_for_one(&self) -> bool {
        self.missing == 1 && !self.is_open && self.early.is_none()
    }
}

/// What an answer was about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answered {
    /// A reply; it was written, or is kept.
    Reply,
    /// The command under way, to which it must be given.
    UnderWay,
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
    /// What the entries are about, in their order, and the number of the first.
    abouts: VecDeque<About>,
    first_about: u32,
    early: EarlyParts,
    /// The entry of each item that is not answered, and of answered ones between.
    items: VecDeque<u64>,
    /// The number of the first item.
    first_item: u64,
    /// What the next command is about, and when it came.
    subject: Subject,
    came_us: u64,
    /// When the answers came that are being taken.
    now_us: u64,
    slow: Vec<Slow>,
    written: Written,
    calls: Calls,
    /// Of the last command with a token whose reply was written: whether it was given before.
    was_replayed: Option<bool>,
    /// Nothing more comes before the entries in front of this number have left.
    held_until: u64,
    /// An entry in front of this number may bring the text of a script.
    texts_until: u64,
    /// Entries, at most.
    entries_max: usize,
}

impl Default for Ring {
    fn default() -> Self {
        Ring {
            entries: VecDeque::new(),
            first: 0,
            abouts: VecDeque::new(),
            first_about: 0,
            early: EarlyParts::default(),
            items: VecDeque::new(),
            first_item: 0,
            subject: Subject::new(),
            came_us: 0,
            now_us: 0,
            slow: Vec::new(),
            written: Written::default(),
            calls: Calls::default(),
            was_replayed: None,
            held_until: 0,
            texts_until: 0,
            entries_max: ENTRIES_MAX,
        }
    }
}

impl Ring {
    /// What the commands that are pushed from now on are about.
    pub(super) fn subject(&mut self) -> &mut Subject {
        &mut self.subject
    }

    /// The commands that are pushed from now on come now. The clock is asked for the first of them.
    #[inline]
    pub(super) fn comes(&mut self, clock: &mut Option<&dyn Host>) {
        if let Some(host) = clock.take() {
            self.came_us = host.elapsed_us();
        }
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

    /// How often each command came.
    #[inline]
    pub(super) fn calls(&mut self) -> &mut Calls {
        &mut self.calls
    }

    /// The command that the last one repeats came so many times more.
    #[inline]
    pub(super) fn counts_again(&mut self, times: usize) {
        self.calls.add(self.subject.name, times);
    }

    /// Of the last command with a token whose reply was written: whether it was given before.
    pub(super) fn was_replayed(&self) -> Option<bool> {
        self.was_replayed
    }

    /// The command that was pushed last has a token.
    pub(super) fn has_token(&mut self) {
        if let Some(place) = self.entries.len().checked_sub(1) {
            let part = self.early_of(place);
            self.early.at(part).replayed = Some(false);
        }
    }

    #[inline]
    pub(super) fn has_room(&self) -> bool {
        self.room() > 0
    }

    /// How many commands of one item may come.
    #[inline]
    pub(super) fn room(&self) -> usize {
        if self.first < self.held_until {
            return 0;
        }
        let items = (2 * ENTRIES_MAX).saturating_sub(self.items.len());
        items.min(self.entries_max.saturating_sub(self.entries.len()))
    }

    /// Takes few commands at a time while there is no room for replies: what is known of commands
    /// takes the room of replies.
    pub(super) fn has_room_for_replies(&mut self, has_room: bool) {
        self.entries_max = match has_room {
            true => ENTRIES_MAX,
            false => ENTRIES_WITHOUT_ROOM_MAX,
        };
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Bytes of the lists of commands that are not answered.
    pub(super) fn list_bytes(&self) -> usize {
        self.entries.len() * size_of::<Entry>()
            + self.abouts.len() * size_of::<About>()
            + self.items.len() * size_of::<u64>()
    }

    /// Bytes of memory that the lists have.
    pub(super) fn capacity(&self) -> usize {
        self.entries.capacity() * size_of::<Entry>()
            + self.abouts.capacity() * size_of::<About>()
            + self.items.capacity() * size_of::<u64>()
            + self.early.capacity()
    }

    /// Gives the memory of the lists back that is empty.
    pub(super) fn give_back(&mut self) {
        self.entries.shrink_to_fit();
        self.abouts.shrink_to_fit();
        self.items.shrink_to_fit();
        if self.entries.is_empty() {
            self.early = EarlyParts::default();
        }
    }

    /// Bytes of replies that wait for those before them.
    pub(super) fn held_bytes(&self) -> usize {
        self.early.held_bytes()
    }

    /// The number of the first command that is not answered.
    pub(super) fn first_entry(&self) -> u64 {
        self.first
    }

    /// The number that the next command gets.
    pub(super) fn next_entry(&self) -> u64 {
        self.first + self.entries.len() as u64
    }

    /// The reply of a command is a part of the one before it.
    pub(super) fn goes_on(&mut self, number: u64) {
        if let Some(entry) = self.entry(number) {
            entry.goes_on = true;
        }
    }

    /// Whether a part of a reply has left and another has not.
    pub(super) fn is_within_reply(&self) -> bool {
        self.entries.front().is_some_and(|entry| entry.goes_on)
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
        let entry = Entry {
            missing: 0,
            is_open: true,
            goes_on: false,
            early: None,
            about: 0,
        };
        self.push_entry(entry, fold, protocol)
    }

    /// Nothing comes behind this command before its reply has left.
    pub(super) fn holds_others_back(&mut self, entry: u64) {
        self.held_until = entry + 1;
    }

    /// This command may bring the text of a script, which another one then names by its digest.
    pub(super) fn brings_text(&mut self, entry: u64) {
        self.texts_until = entry + 1;
    }

    /// Whether a command that is not answered may bring the text of a script.
    pub(super) fn awaits_text(&self) -> bool {
        self.first < self.texts_until
    }

    /// A command whose one item follows.
    #[inline]
    pub(super) fn push_one(&mut self, fold: Fold, protocol: Protocol) {
        let entry = Entry {
            missing: 1,
            is_open: false,
            goes_on: false,
            early: None,
            about: 0,
        };
        let number = self.push_entry(entry, fold, protocol);
        self.items.push_back(number);
    }

    #[inline]
    fn push_entry(&mut self, entry: Entry, fold: Fold, protocol: Protocol) -> u64 {
        let next = u32::try_from(self.abouts.len()).expect("one for each entry at most");
        self.abouts.push_back(About {
            fold,
            protocol,
            subject: self.subject,
            came_us: self.came_us,
            entries: 1,
        });
        let number = self.next_entry();
        self.entries.push_back(Entry {
            about: self.first_about.wrapping_add(next),
            ..entry
        });
        number
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

    /// How the answer of the command that was pushed last becomes its reply, and what it is about.
    pub(super) fn last_one(&self) -> Option<(&Fold, &Subject)> {
        let about = self.abouts.back()?;
        Some((&about.fold, &about.subject))
    }

    /// The command that was pushed last, of one item that is not answered and without a token,
    /// comes so many times more.
    pub(super) fn repeat(&mut self, times: usize) {
        let (Some(entry), Some(about)) = (self.entries.back(), self.abouts.back_mut()) else {
            return;
        };
        debug_assert!(entry.waits_for_one());
        about.entries += times;
        let next = self.next_entry();
        self.items.extend(next..next + times as u64);
        self.entries.extend(std::iter::repeat_n(*entry, times));
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

    /// This command counts as one that came with its answer: what it waited for is no work.
    pub(super) fn comes_now(&mut self, number: u64) {
        let now_us = self.now_us;
        if let Some(place) = self.place_of(number) {
            self.about_of(place).came_us = now_us;
        }
    }

    /// Writes the reply of a command that was pushed without items.
    pub(super) fn settle(
        &mut self,
        number: u64,
        out: &mut Vec<u8>,
        write: impl FnOnce(&mut Replies<'_>),
    ) {
        let Some(place) = self.place_of(number) else {
            return;
        };
        let about = self.about_of(place);
        let protocol = about.protocol;
        about.fold = Fold::Written;
        self.entries[place].is_open = false;
        let part = self.early_of(place);
        self.early
            .write(part, |out, _| write(&mut Replies::new(out, protocol)));
        self.note_time(place);
        self.flush(out);
    }

    /// Notes a command that is answered now, if that took long.
    #[inline]
    fn note_time(&mut self, place: usize) {
        let now_us = self.now_us;
        let about = self.about_of(place);
        let took_us = now_us.saturating_sub(about.came_us);
        if took_us >= SLOW_US {
            let slow = (about.subject, took_us);
            note_slow(&mut self.slow, slow, 1);
        }
    }

    /// Takes the answers of a batch from item `from` on that are plain, as long as they answer the
    /// first commands in their order; returns how many. `first` is the number of the batch's first
    /// item.
    #[inline]
    pub(super) fn answer_plain(
        &mut self,
        first: u64,
        batch: Batch<'_>,
        from: usize,
        out: &mut Vec<u8>,
    ) -> usize {
        let (most, mut count, mut finished) = (batch.len() - from, 0, 0);
        let mut entries = self.entries.iter();
        let mut lines = ValueLines::default();
        // The number of the first item that is not answered, as its answer tells it.
        let begin = self.first_item.wrapping_sub(first);
        for about in &mut self.abouts {
            let (end, before) = (most.min(count + about.entries), count);
            let mut is_any_ok = false;
            while count < end
                && entries.next().is_some_and(Entry::waits_for_one)
                && let Some(plain) = PlainReply::read(batch.item(from + count))
                && u64::from(plain.item) == begin.wrapping_add(count as u64)
                && about
                    .fold
                    .write_plain(&plain, about.protocol, &mut lines, out)
            {
                count += 1;
                is_any_ok |= plain.is_ok;
            }
            if is_any_ok && about.subject.is_noted {
                self.written.note(about.subject.slot);
            }
            let took_us = self.now_us.saturating_sub(about.came_us);
            if took_us >= SLOW_US {
                note_slow(&mut self.slow, (about.subject, took_us), count - before);
            }
            about.entries -= count - before;
            if about.entries > 0 {
                break;
            }
            finished += 1;
        }
        if count > 0 {
            self.abouts.drain(..finished);
            let finished = u32::try_from(finished).expect("one for each entry at most");
            self.first_about = self.first_about.wrapping_add(finished);
            self.end_plain(count, out);
        }
        count
    }

    /// The first commands, so many of one item each, are answered.
    fn end_plain(&mut self, count: usize, out: &mut Vec<u8>) {
        self.entries.drain(..count);
        self.items.drain(..count);
        (self.first, self.first_item) = (self.first + count as u64, self.first_item + count as u64);
        self.pass_answered();
        self.flush(out);
    }

    /// An item was answered. Answers of items that nobody waits for are passed over.
    #[inline]
    pub(super) fn answer(
        &mut self,
        item: u64,
        answer: ItemAnswer<'_>,
        out: &mut Vec<u8>,
    ) -> Answered {
        let Some(number) = self.take_item(item) else {
            return Answered::Reply;
        };
        let place = self.place_of(number).expect("it was pushed");
        let entry = &mut self.entries[place];
        entry.missing -= 1;
        let (entry, about) = (*entry, self.about_of(place));
        if matches!(about.fold, Fold::UnderWay) {
            return Answered::UnderWay;
        }
        let (is_noted, slot) = (about.subject.is_noted, about.subject.slot);
        let is_last = entry.missing == 0 && !entry.is_open;
        if place == 0 && is_last && entry.early.is_none() {
            // Nearly all replies: straight to the connection.
            let replies = &mut Replies::new(out, about.protocol);
            answer::write(&about.fold, &mut 0, answer, slot, replies);
            self.note_time(0);
            self.pop(out);
            self.flush(out);
        } else {
            self.answer_part(place, is_last, answer);
            self.flush(out);
        }
        if is_noted && answer.item.head.status == Status::Ok {
            self.written.note(slot);
        }
        Answered::Reply
    }

    /// An item was answered whose command has others, or whose reply must wait.
    fn answer_part(&mut self, place: usize, is_last: bool, answer: ItemAnswer<'_>) {
        if is_last {
            self.note_time(place);
        }
        let status = answer.item.head.status;
        let is_good = answer::is_good(status);
        let number = self.early_of(place);
        let (entry, early) = (&self.entries[place], &mut self.early);
        let about =
            &self.abouts[usize::try_from(entry.about.wrapping_sub(self.first_about)).expect("few")];
        let part = early.at(number);
        if let Some(replayed) = &mut part.replayed {
            *replayed = answer.item.head.flags & ITEM_FLAG_REPLAYED != 0;
        }
        if matches!(about.fold, Fold::Nodes(_)) && !is_last {
            answer::note_nodes(&about.fold, &mut part.sum, answer);
            return;
        }
        let folds = matches!(about.fold, Fold::Sum | Fold::Done);
        if folds && is_good && !is_last {
            part.sum += i64::from(status == Status::Ok);
            return;
        }
        if part.is_failed {
            return;
        }
        part.is_failed = folds && !is_good;
        early.write(number, |out, sum| {
            let replies = &mut Replies::new(out, about.protocol);
            answer::write(&about.fold, sum, answer, about.subject.slot, replies);
        });
    }

    /// The entry of an item, which is answered by now.
    #[inline]
    fn take_item(&mut self, item: u64) -> Option<u64> {
        let place = usize::try_from(item.checked_sub(self.first_item)?).ok()?;
        let number = std::mem::replace(self.items.get_mut(place)?, ANSWERED);
        self.pass_answered();
        (number != ANSWERED).then_some(number)
    }

    /// Takes the first items away that are answered.
    #[inline]
    fn pass_answered(&mut self) {
        while self.items.front() == Some(&ANSWERED) {
            self.items.pop_front();
            self.first_item += 1;
        }
    }

    #[inline]
    fn place_of(&self, number: u64) -> Option<usize> {
        let place = usize::try_from(number.checked_sub(self.first)?).ok()?;
        (place < self.entries.len()).then_some(place)
    }

    #[inline]
    fn entry(&mut self, number: u64) -> Option<&mut Entry> {
        let place = self.place_of(number)?;
        self.entries.get_mut(place)
    }

    /// What the entry at this place is about.
    #[inline]
    fn about_of(&mut self, place: usize) -> &mut About {
        let number = self.entries[place].about.wrapping_sub(self.first_about);
        &mut self.abouts[usize::try_from(number).expect("few")]
    }

    /// The number of the early part of the entry at this place, which is made if there is none.
    fn early_of(&mut self, place: usize) -> u16 {
        let early = &mut self.early;
        *self.entries[place]
            .early
            .get_or_insert_with(|| early.take())
    }

    /// Takes the first entry away, whose reply leaves.
    #[inline]
    fn pop(&mut self, out: &mut Vec<u8>) {
        let Some(entry) = self.entries.pop_front() else {
            return;
        };
        self.first += 1;
        if let Some(place) = entry.early {
            let replayed = self.early.end(place, out);
            if replayed.is_some() {
                self.was_replayed = replayed;
            }
        }
        self.leave_about(1);
    }

    /// So many entries have left, all about the first thing.
    #[inline]
    fn leave_about(&mut self, entries: usize) {
        if let Some(about) = self.abouts.front_mut() {
            about.entries -= entries;
            if about.entries == 0 {
                self.abouts.pop_front();
                self.first_about = self.first_about.wrapping_add(1);
            }
        }
    }

    /// Writes all replies that nothing stands before.
    #[inline]
    fn flush(&mut self, out: &mut Vec<u8>) {
        while let Some(entry) = self.entries.front() {
            if entry.missing > 0 || entry.is_open {
                return;
            }
            if matches!(self.about_of(0).fold, Fold::UnderWay) {
                return;
            }
            self.pop(out);
        }
    }
}

/// Notes a command that was late, so many times.
#[cold]
fn note_slow(all: &mut Vec<Slow>, slow: Slow, times: usize) {
    let room = SLOW_MAX.saturating_sub(all.len());
    all.extend(std::iter::repeat_n(slow, times.min(room)));
}
