//! Changes over several shards: DESIGN.md, *The life of a change over several shards*.
//!
//! A shard leads the changes whose first key it has, and holds its part of those that others lead,
//! or that it leads itself. Both halves exchange [`Message`]s, also within one shard.

pub(crate) mod claims;
pub(crate) mod held;
pub(crate) mod led;
pub(crate) mod message;
pub(crate) mod start;

use std::collections::VecDeque;
use std::ops::Range;

use penstock_storage::if_planted;
use penstock_storage::io::BLOCK_BYTES;
use penstock_storage::key_home::KeyHome;
use penstock_storage::place::{FileId, Place};
use penstock_storage::planted::{Bug, is_planted};
use penstock_storage::system_key::{REDO_KEY_BYTES, REDO_RECORDS_MAX};

use crate::execution::verbs::Cold;
use crate::mail::SessionId;

use claims::{ChangeName, Claims};
use held::Held;
use led::{Led, LedPhase};
use message::{JointMail, Message};
use start::Start;

/// Changes that a shard leads and has begun, at most: each has a redo record of its own.
pub(crate) const LED_MAX: usize = REDO_RECORDS_MAX;
/// Changes that wait for those, at most.
const WAITING_MAX: usize = 4096;
/// How long a change waits for its claims and for room, in microseconds, unless its request says
/// less.
pub(crate) const PATIENCE_US: u64 = 5_000_000;
/// How long nothing is decided behind a question of a backup, in microseconds.
const HOLD_US: u64 = 300_000;
/// How long nothing is decided because of backups, in microseconds: so long of each five times as
/// much.
const HELD_US_MAX: u64 = 1_000_000;
/// Questions of backups that are not answered, at most; others do not hold.
const QUESTIONS_MAX: usize = 64;
/// How long a stop waits for what is decided, in microseconds; the next start does the rest.
pub(crate) const STOP_US: u64 = 2_000_000;
/// A key of a decided part that cannot be read is read again after so many microseconds.
pub(crate) const READ_AGAIN_US: u64 = 100_000;
/// How long a change rests that found no room, in microseconds, about; doubled each time ...
pub(crate) const REST_US: u64 = 5_000;
/// ... so often.
pub(crate) const RESTS_MAX: u32 = 6;
/// How often changes that wait are looked at whose time may be over, in microseconds.
pub(crate) const CHECK_US: u64 = 10_000;
/// Keys that could not be read and are remembered, at most.
const UNREAD_MAX: usize = 256;
/// The file in which claims stand as if they were to be read from there.
const CLAIMS: FileId = FileId(u32::MAX);
/// The claim of a start, which has all slots.
pub(crate) const OF_START: u64 = 0;

/// What a shard counts of changes over several shards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JointCounters {
    /// Changes that it decided.
    pub decided: u64,
    /// Changes that it refused: their claims or their room did not come in time, or there was none.
    pub refused: u64,
    /// Decided changes that its start has found and finished.
    pub resumed: u64,
}

/// What a backup is told of changes over several shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangesReport {
    /// How many are decided and not closed.
    pub open: usize,
    /// How many were decided since the start.
    pub decided: u64,
    /// None is decided for a quarter of a second behind the question.
    pub is_held: bool,
}

/// A question, by its connection and its name there.
pub(crate) type Question = (SessionId, u64);

/// How long backups keep changes from being decided.
#[derive(Debug, Default)]
struct Hold {
    until_us: u64,
    /// When the first of the questions came that count against [`HELD_US_MAX`].
    from_us: u64,
    /// The questions that were not answered yet, and whether they hold.
    questions: Vec<(Question, bool)>,
}

/// Where a shard stands among those of its node.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct JointPlace {
    pub(crate) shard: u16,
    pub(crate) shards: u16,
    /// Changes of keys of several shards are taken.
    pub(crate) takes_several: bool,
}

/// What a shard leads and holds of changes over several shards.
#[derive(Debug, Default)]
pub struct Joint {
    /// This shard, how many there are, and whether changes of several are taken.
    place: JointPlace,
    /// Operations of some slots must wait.
    holds_any: bool,
    pub(crate) claims: Claims,
    pub(crate) held: Vec<Held>,
    pub(crate) led: VecDeque<Led>,
    /// What this start finishes before anything is served.
    pub(crate) start: Option<Start>,
    pub(crate) inbox: VecDeque<(u16, Message)>,
    outbox: Vec<(u16, Message)>,
    newest_change: u64,
    newest_claim: u64,
    /// Letters of redo records that are in use.
    letters: u32,
    /// Keys that could not be read.
    unread: Vec<KeyHome>,
    pub(crate) read_again_us: u64,
    hold: Hold,
    /// Bytes of copies that have not left.
    pub(crate) copied_bytes: usize,
    /// When changes that wait are looked at again.
    pub(crate) next_check_us: u64,
    /// Bytes of all of it, as of the last step.
    bytes: usize,
    /// A claim has come or gone since claims were granted last.
    has_claims_to_grant: bool,
    /// When a stop was seen.
    pub(crate) stops_us: u64,
    pub(crate) counters: JointCounters,
}

impl Joint {
    /// Nothing yet, for the shard that stands there.
    pub(crate) fn new(place: JointPlace) -> Self {
        Joint {
            place,
            ..Joint::default()
        }
    }

    /// What is counted.
    #[must_use]
    pub fn counters(&self) -> JointCounters {
        self.counters
    }

    /// The start has found these redo records. Nothing is served before they are finished.
    pub(crate) fn found(&mut self, records: Vec<[u8; REDO_KEY_BYTES]>) {
        if !records.is_empty() {
            let own = self.place.shard;
            self.start = Some(Start::new(records, own..own + 1));
            self.note_holds();
        }
    }

    /// Whether the log may hold a change that is decided and not made by all shards. All shards of
    /// the node are to be told then by [`Joint::resume`].
    #[must_use]
    pub fn may_have_redo(&self) -> bool {
        self.start.is_some()
    }

    /// A shard of the node may have redo records: this one serves when all have finished theirs.
    /// Told before the first event.
    pub fn resume(&mut self) {
        let records = self.start.take().map_or(Vec::new(), |start| start.records);
        self.start = Some(Start::new(records, 0..self.place.shards));
        self.note_holds();
    }

    /// What keeps the shard from serving, if anything does.
    #[must_use]
    pub fn resuming(&self) -> Option<String> {
        let start = self.start.as_ref()?;
        let shard = self.place.shard;
        Some(match (start.trouble, start.has_reported) {
            (Some(trouble), _) => format!("shard {shard}: {trouble}"),
            (None, true) => format!("shard {shard} waits for shards {:?}", start.awaited),
            (None, false) => {
                let parts: Vec<u16> = self.led.iter().flat_map(Led::awaited).collect();
                let changes = start.records.len() + self.led.len();
                format!(
                    "shard {shard} finishes {changes} changes of an earlier run; parts of shards \
                     {parts:?} are missing"
                )
            }
        })
    }

    /// Whether a stop has been seen.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.stops_us > 0
    }

    /// What a question is told of changes over several shards, if it is one of a backup; nothing
    /// where there are no such changes. The outer `None`: they may be decided at any time.
    #[must_use]
    pub fn report_to(&self, session: SessionId, request_id: u64) -> Option<Option<ChangesReport>> {
        let JointPlace {
            shards,
            takes_several,
            ..
        } = self.place;
        if !takes_several || shards == 1 {
            return Some(None);
        }
        self.report((session, request_id)).map(Some)
    }

    /// Whether operations of some slots must wait.
    #[inline]
    pub(crate) fn holds_any(&self) -> bool {
        self.holds_any
    }

    /// Notes whether any operation must wait, behind a change of claims.
    pub(crate) fn note_holds(&mut self) {
        self.holds_any = self.start.is_some() || !self.claims.is_free();
    }

    /// Whether nothing is to be done.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        self.led.is_empty()
            && self.held.is_empty()
            && self.inbox.is_empty()
            && self.start.is_none()
            && !self.claims.has_flush()
    }

    /// What an operation on a slot must wait for.
    pub(crate) fn claim_of(&self, slot: u16) -> Option<Cold> {
        if_planted!(Bug::ForgetClaim, return None);
        if self.start.is_some() {
            return Some(cold_of(slot, OF_START));
        }
        let number = self.claims.holder(slot)?;
        Some(cold_of(slot, number))
    }

    /// What a FLUSH of these slots, which are a partition, must wait for: it stands among the
    /// claims of changes, and what comes later waits behind it.
    pub(crate) fn claim_before_flush(&mut self, slots: Range<u16>) -> Option<Cold> {
        if_planted!(Bug::ForgetClaim, return None);
        let first = slots.start;
        if self.start.is_some() {
            return Some(cold_of(first, OF_START));
        }
        self.newest_claim += 1;
        let number = self.claims.before_flush(slots, self.newest_claim)?;
        self.has_claims_to_grant = true;
        Some(cold_of(first, number))
    }

    /// A FLUSH whose claim was granted has run.
    pub(crate) fn flushed(&mut self, number: u64) {
        self.claims.release_flush(number);
        self.has_claims_to_grant = true;
        self.note_holds();
    }

    /// The name of a change that this shard leads.
    pub(crate) fn next_change(&mut self) -> u64 {
        self.newest_change += 1;
        self.newest_change
    }

    /// Bytes of changes that wait, of copies and of parts.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Counts them anew.
    pub(crate) fn count_bytes(&mut self) {
        let led = self.led.iter().map(Led::bytes).sum::<usize>();
        self.bytes = led + self.held.iter().map(Held::bytes).sum::<usize>();
    }

    /// A change waits from now on.
    pub(crate) fn waits(&mut self, led: Led) {
        self.bytes += led.bytes();
        self.led.push_back(led);
    }

    /// Grants what can be granted, if a claim has come or gone.
    pub(crate) fn grant(&mut self) {
        if self.start.is_none() && std::mem::take(&mut self.has_claims_to_grant) {
            self.claims.grant();
            self.note_holds();
        }
    }

    /// A claim comes.
    pub(crate) fn claim(&mut self, name: ChangeName, slots: Vec<u16>) {
        self.newest_claim += 1;
        self.claims.add(name, self.newest_claim, slots);
        self.has_claims_to_grant = true;
    }

    /// A claim goes; its number.
    pub(crate) fn release(&mut self, name: ChangeName) -> Option<u64> {
        let number = self.claims.release(name);
        self.has_claims_to_grant |= number.is_some();
        self.note_holds();
        number
    }

    /// Whether another change may wait.
    pub(crate) fn may_wait(&self) -> bool {
        self.led.len() < WAITING_MAX
    }

    /// Sends a message; `own` is this shard.
    pub(crate) fn send(&mut self, own: u16, to: u16, message: Message) {
        match to == own {
            true => self.inbox.push_back((own, message)),
            false => self.outbox.push((to, message)),
        }
    }

    /// The mails to other shards.
    pub(crate) fn take_mail(&mut self, own: u16) -> Vec<(u16, JointMail)> {
        let mut mails: Vec<(u16, JointMail)> = Vec::new();
        for (to, message) in std::mem::take(&mut self.outbox) {
            match mails.iter_mut().find(|(other, _)| *other == to) {
                Some((_, mail)) => mail.messages.push(message),
                None => mails.push((to, JointMail::new(own, message))),
            }
        }
        mails
    }

    /// A letter for a redo record.
    pub(crate) fn take_letter(&mut self) -> Option<usize> {
        let letter = (!self.letters).trailing_zeros() as usize;
        (letter < LED_MAX).then(|| {
            self.letters |= 1 << letter;
            letter
        })
    }

    /// A redo record with this letter is gone.
    pub(crate) fn give_letter(&mut self, letter: usize) {
        self.letters &= !(1 << letter);
    }

    /// A key of this slot and hash could not be read.
    pub(crate) fn note_unread(&mut self, home: KeyHome) {
        if !self.held.is_empty() || !self.led.is_empty() || self.start.is_some() {
            if self.unread.len() == UNREAD_MAX {
                self.unread.remove(0);
            }
            self.unread.push(home);
        }
    }

    /// Whether a key could not be read. Told once.
    pub(crate) fn take_unread(&mut self, home: KeyHome) -> bool {
        let before = self.unread.len();
        self.unread.retain(|other| *other != home);
        self.unread.len() < before
    }

    /// A backup asks.
    pub(crate) fn hold(&mut self, now_us: u64, question: Question) {
        if now_us >= self.hold.from_us + 5 * HELD_US_MAX {
            self.hold.from_us = now_us;
        }
        let until_us = now_us + HOLD_US;
        let has_room = self.hold.questions.len() < QUESTIONS_MAX;
        let is_held = has_room && until_us <= self.hold.from_us + HELD_US_MAX;
        if is_held {
            self.hold.until_us = self.hold.until_us.max(until_us);
        }
        if has_room {
            self.hold.questions.push((question, is_held));
        }
    }

    /// Whether nothing may be decided now, because a backup is taken.
    pub(crate) fn is_on_hold(&self, now_us: u64) -> bool {
        now_us < self.hold.until_us && !is_planted(Bug::DecideBesideBackup)
    }

    /// What a question is told, if it is one of a backup.
    fn report(&self, question: Question) -> Option<ChangesReport> {
        let mut questions = self.hold.questions.iter();
        let (_, is_held) = questions.find(|(other, _)| *other == question)?;
        Some(ChangesReport {
            open: self.open(),
            decided: self.counters.decided,
            is_held: *is_held,
        })
    }

    /// A question is answered.
    pub(crate) fn answered(&mut self, question: Question) {
        self.hold.questions.retain(|(other, _)| *other != question);
    }

    /// Changes that are decided and not closed.
    #[must_use]
    pub fn open(&self) -> usize {
        self.led.iter().filter(|led| led.is_decided()).count()
    }

    /// Whether a stop has waited long enough for what is decided.
    pub(crate) fn is_given_up(&self, now_us: u64) -> bool {
        self.stops_us > 0 && now_us >= self.stops_us + STOP_US
    }

    /// Forgets everything. The claims that operations may wait for.
    pub(crate) fn give_up(&mut self) -> Vec<u64> {
        let place = self.place;
        let given_up = std::mem::replace(self, Joint::new(place));
        self.stops_us = given_up.stops_us;
        self.counters = given_up.counters;
        let of_start = given_up.start.map(|_| OF_START);
        of_start
            .into_iter()
            .chain(given_up.claims.numbers())
            .collect()
    }

    /// When something is to be done at the latest.
    pub(crate) fn deadline_us(&self, now_us: u64) -> Option<u64> {
        if self.is_idle() {
            return None;
        }
        // What waits is looked at once in a while.
        let waits = self.led.iter().filter(|led| !led.is_decided());
        let deadlines = waits.map(|led| match led.has_begun() {
            true => led.deadline_us + 1,
            false => led.deadline_us.max(self.next_check_us) + 1,
        });
        let thaws = Some(self.hold.until_us).filter(|us| *us > now_us);
        let reads = Some(self.read_again_us).filter(|us| *us > now_us);
        let stops = Some(self.stops_us + STOP_US).filter(|us| self.stops_us > 0 && *us > now_us);
        let rests = self.led.iter().filter_map(|led| match led.phase {
            LedPhase::Resting(until_us) => Some(until_us),
            _ => None,
        });
        let all = deadlines
            .chain(rests)
            .chain(thaws)
            .chain(reads)
            .chain(stops);
        all.min().map(|us| us.max(now_us + 1))
    }
}

/// What an operation on a slot waits for that a claim has.
fn cold_of(slot: u16, claim: u64) -> Cold {
    Cold {
        slot,
        hash: 0,
        place: place_of(claim),
        version: None,
    }
}

/// Where a claim stands.
pub(crate) fn place_of(claim: u64) -> Place {
    Place::new(CLAIMS, claim * BLOCK_BYTES as u64, 8)
}

impl Cold {
    /// Whether it is a claim, and no read.
    pub(crate) fn is_claim(&self) -> bool {
        self.place.file == CLAIMS
    }
}
