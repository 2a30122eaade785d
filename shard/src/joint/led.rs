//! A change that a shard leads: which answers it waits for, and what comes next.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use penstock_net::script::Spent;
use penstock_net::status::Status;
use penstock_storage::if_planted;
use penstock_storage::key_home::KeyHome;
use penstock_storage::place::Lsn;
use penstock_storage::planted::{Bug, is_planted};
use penstock_storage::store::PartNeeds;
use penstock_storage::system_key::REDO_KEY_BYTES;

use crate::publisher::Messages;
use crate::requests::parking::Parked;

use super::message::{ClaimedKey, KeyCopy, LeftKey};

/// How far a change has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LedPhase {
    /// Others are before it.
    Waiting,
    /// There was no room: it begins anew at this time.
    Resting(u64),
    /// It has asked a shard for keys.
    Claiming,
    /// It has all keys, and runs.
    Running,
    /// Room for its redo record is looked for.
    Reserving,
    /// Shards look for room.
    Preparing,
    /// All have room: it may be decided.
    Ready,
    /// It is decided when this record is durable.
    Decided(Lsn),
    /// Shards make their parts.
    Applying,
    /// All parts are durable: its redo record may go.
    Closing,
    /// It is over when this record is durable.
    Closed(Lsn),
}

/// The redo record of a change.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RedoRecord {
    pub(crate) key: [u8; REDO_KEY_BYTES],
    pub(crate) home: KeyHome,
    /// `None` if an earlier run has logged it.
    pub(crate) letter: Option<usize>,
}

/// What the client gets when it is decided.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The reply of a script, or the whole reply item of a program.
    pub(crate) reply: Vec<u8>,
    pub(crate) messages: Messages,
    /// It is that of a program, with this status.
    pub(crate) of_program: Option<Status>,
    /// It leaves behind this record, if nothing is decided.
    pub(crate) gate: Lsn,
}

impl Answer {
    /// The reply of a script. What it shows was durable before it was copied.
    pub(crate) fn of_script(reply: Vec<u8>, messages: Messages) -> Self {
        Answer {
            reply,
            messages,
            of_program: None,
            gate: Lsn(0),
        }
    }

    /// The reply item of a program, behind this record.
    pub(crate) fn of_program(reply: Vec<u8>, status: Status, gate: Lsn) -> Self {
        Answer {
            of_program: Some(status),
            gate,
            ..Answer::of_script(reply, Vec::new())
        }
    }
}

/// A change that a shard leads.
#[derive(Debug)]
pub(crate) struct Led {
    pub(crate) change: u64,
    pub(crate) phase: LedPhase,
    /// The operation; `None` behind the answer, and of a change of an earlier run.
    pub(crate) parked: Option<Parked>,
    /// It is refused at this time, if it is not decided.
    pub(crate) deadline_us: u64,
    /// The keys that it uses, by shard.
    pub(crate) keys: BTreeMap<u16, Vec<ClaimedKey>>,
    /// Shards whose answer it waits for.
    awaited: BTreeSet<u16>,
    /// Shards that have a claim of it or a part.
    pub(crate) asked: BTreeSet<u16>,
    pub(crate) copies: HashMap<Box<[u8]>, KeyCopy>,
    copies_bytes: usize,
    pub(crate) runs: u8,
    /// How often it found no room.
    pub(crate) rests: u32,
    /// What its scripts have taken in all runs, also in those before it met another shard.
    pub(crate) spent: Spent,
    /// The time of its first run, in unix microseconds.
    pub(crate) time_us: Option<u64>,
    /// The store holds more after it.
    pub(crate) grows: bool,
    /// What it leaves, by shard.
    pub(crate) parts: BTreeMap<u16, Vec<LeftKey>>,
    pub(crate) answer: Option<Answer>,
    pub(crate) redo: Option<RedoRecord>,
    /// What is kept for its redo record.
    pub(crate) reserved: Option<PartNeeds>,
}

impl Led {
    /// A change that waits for its turn.
    pub(crate) fn new(parked: Option<Parked>, deadline_us: u64) -> Self {
        Led {
            change: 0,
            phase: LedPhase::Waiting,
            parked,
            deadline_us,
            keys: BTreeMap::new(),
            awaited: BTreeSet::new(),
            asked: BTreeSet::new(),
            copies: HashMap::new(),
            copies_bytes: 0,
            runs: 0,
            rests: 0,
            spent: Spent::default(),
            time_us: None,
            grows: false,
            parts: BTreeMap::new(),
            answer: None,
            redo: None,
            reserved: None,
        }
    }

    /// A change that an earlier run has decided: the record is its redo record.
    pub(crate) fn resumed(
        change: u64,
        redo: RedoRecord,
        parts: BTreeMap<u16, Vec<LeftKey>>,
    ) -> Self {
        let shards: BTreeSet<u16> = parts.keys().copied().collect();
        Led {
            change,
            phase: LedPhase::Applying,
            awaited: shards.clone(),
            asked: shards,
            parts,
            redo: Some(redo),
            ..Led::new(None, u64::MAX)
        }
    }

    /// Gives up what it has, and begins anew at this time.
    pub(crate) fn rest(&mut self, until_us: u64) {
        self.phase = LedPhase::Resting(until_us);
        self.awaited.clear();
        self.asked.clear();
        self.copies.clear();
        self.copies_bytes = 0;
        self.parts.clear();
        self.grows = false;
        self.answer = None;
    }

    /// Uses these keys.
    pub(crate) fn set_keys(&mut self, keys: BTreeMap<u16, Vec<ClaimedKey>>) {
        self.keys = keys;
    }

    /// Adds a key of a shard. `false` if it is known.
    pub(crate) fn add_key(&mut self, shard: u16, key: ClaimedKey) -> bool {
        let keys = self.keys.entry(shard).or_default();
        let is_new = keys.iter().all(|known| known.key != key.key);
        if is_new {
            keys.push(key);
        }
        is_new
    }

    /// It leaves this of a key of a shard.
    pub(crate) fn leaves(&mut self, shard: u16, key: LeftKey) {
        let copy = self.copies.get(&key.key);
        let held = copy.and_then(|copy| copy.value.as_ref());
        let held_bytes = held.map_or(0, |held| held.bytes.len().next_multiple_of(8));
        self.grows |= key.value_bytes() > held_bytes || held.is_none() && key.left.is_some();
        self.parts.entry(shard).or_default().push(key);
    }

    /// Begins to claim all keys, under another name, and tells the first shard that is asked.
    pub(crate) fn begin(&mut self, change: u64) -> Option<u16> {
        self.change = change;
        self.copies.clear();
        self.copies_bytes = 0;
        self.asked.clear();
        self.ask_next()
    }

    /// The next shard that is asked for keys; `None`: all are there, and it runs.
    fn ask_next(&mut self) -> Option<u16> {
        let last = self.asked.last().copied();
        let next = self
            .keys
            .keys()
            .find(|shard| last.is_none_or(|last| **shard > last));
        let next = next.copied();
        self.awaited = next.into_iter().collect();
        self.asked.extend(next);
        self.phase = match next {
            Some(_) => LedPhase::Claiming,
            None => LedPhase::Running,
        };
        next
    }

    /// A shard has granted its keys. The next shard that is asked.
    pub(crate) fn granted(&mut self, from: u16, copies: Vec<KeyCopy>) -> Option<u16> {
        if self.phase != LedPhase::Claiming || !self.awaited.remove(&from) {
            return None;
        }
        for copy in copies {
            self.copies_bytes += copy.bytes();
            self.copies.insert(copy.key.clone(), copy);
        }
        self.ask_next()
    }

    /// Shards are asked to prepare their parts. Those that only lent copies, which may go.
    pub(crate) fn prepares(&mut self) -> Vec<u16> {
        self.phase = LedPhase::Preparing;
        self.awaited = self.parts.keys().copied().collect();
        let (with_part, without): (Vec<u16>, Vec<u16>) = self
            .asked
            .iter()
            .partition(|shard| self.awaited.contains(shard));
        self.asked = with_part.into_iter().collect();
        self.copies.clear();
        self.copies_bytes = 0;
        if_planted!(Bug::DecideBeforeReady, self.phase = LedPhase::Ready);
        without
    }

    /// A shard is ready.
    pub(crate) fn is_ready(&mut self, from: u16) {
        if self.phase == LedPhase::Preparing && self.awaited.remove(&from) {
            let is_last = self.awaited.is_empty();
            self.phase = if is_last {
                LedPhase::Ready
            } else {
                LedPhase::Preparing
            };
        }
    }

    /// The redo record is durable: shards make their parts.
    pub(crate) fn applies(&mut self) {
        self.phase = LedPhase::Applying;
        self.awaited = self.asked.clone();
        if_planted!(Bug::CloseBeforeApplied, self.phase = LedPhase::Closing);
    }

    /// A shard has made its part.
    pub(crate) fn applied(&mut self, from: u16) {
        if self.phase == LedPhase::Applying && self.awaited.remove(&from) {
            let is_last = self.awaited.is_empty();
            self.phase = if is_last {
                LedPhase::Closing
            } else {
                LedPhase::Applying
            };
        }
    }

    /// Whether it cannot be taken back.
    pub(crate) fn is_decided(&self) -> bool {
        matches!(
            self.phase,
            LedPhase::Decided(_) | LedPhase::Applying | LedPhase::Closing | LedPhase::Closed(_)
        )
    }

    /// Whether it has begun.
    pub(crate) fn has_begun(&self) -> bool {
        self.phase != LedPhase::Waiting
    }

    /// Bytes of its copies.
    pub(crate) fn copies_bytes(&self) -> usize {
        self.copies_bytes
    }

    /// Shards whose answer it waits for.
    pub(crate) fn awaited(&self) -> impl Iterator<Item = u16> {
        self.awaited.iter().copied()
    }

    /// Bytes that it takes.
    pub(crate) fn bytes(&self) -> usize {
        let parked = self.parked.as_ref().map_or(0, |parked| parked.item.len());
        let keys = self.keys.values().flatten().map(ClaimedKey::bytes);
        let parts = self.parts.values().flatten().map(LeftKey::bytes);
        parked
            + self.copies_bytes
            + self.answer.as_ref().map_or(0, |answer| answer.reply.len())
            + keys.sum::<usize>()
            + parts.sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &[u8]) -> ClaimedKey {
        ClaimedKey {
            key: name.into(),
            since: None,
        }
    }

    #[test]
    fn shards_are_asked_one_behind_the_other_ascending_and_all_have_prepared_before_it_is_ready() {
        let mut led = Led::new(None, 0);
        for (shard, name) in [(2, b"a"), (0, b"b"), (1, b"c"), (2, b"d")] {
            assert!(led.add_key(shard, key(name)));
        }
        assert!(!led.add_key(2, key(b"a")));
        assert_eq!(led.begin(1), Some(0));
        assert_eq!(led.granted(1, Vec::new()), None, "it was not asked");
        assert_eq!(led.granted(0, Vec::new()), Some(1));
        assert_eq!(led.granted(1, Vec::new()), Some(2));
        assert_eq!(led.granted(2, Vec::new()), None);
        assert_eq!(led.phase, LedPhase::Running);
        let deleted = |name: &[u8]| LeftKey {
            key: name.into(),
            seen: None,
            left: None,
        };
        led.parts = [(0, vec![deleted(b"b")]), (2, vec![deleted(b"a")])].into();
        assert_eq!(led.prepares(), [1]);
        led.is_ready(2);
        led.is_ready(2);
        assert_eq!(led.phase, LedPhase::Preparing);
        assert!(!led.is_decided());
        led.is_ready(0);
        assert_eq!(led.phase, LedPhase::Ready);
        led.applies();
        led.applied(1);
        led.applied(0);
        assert_eq!(led.phase, LedPhase::Applying);
        led.applied(2);
        assert_eq!(led.phase, LedPhase::Closing);
    }

    #[test]
    fn a_change_that_begins_anew_asks_all_shards_again() {
        let mut led = Led::new(None, 0);
        led.add_key(1, key(b"a"));
        assert_eq!(led.begin(1), Some(1));
        led.granted(1, Vec::new());
        led.add_key(0, key(b"b"));
        assert_eq!(led.begin(2), Some(0));
        assert_eq!(led.granted(0, Vec::new()), Some(1));
    }
}
