//! How far a shard has come with armed keys whose time has come, and what it counts of them.

use penstock_storage::index::CellId;
use penstock_storage::key_home::KeyHome;
use penstock_storage::timers::Timer;

use crate::execution::verbs::fire::Fired;

/// Keys that fire in a turn, at most; what operations fire beside that is not counted here.
pub(crate) const FIRES_A_TURN_MAX: usize = 256;
/// Timers that are looked at in a turn, at most.
pub(crate) const TIMERS_A_TURN_MAX: usize = 1024;
/// Reads that are begun for them in a turn, at most.
pub(crate) const READS_A_TURN_MAX: usize = 64;
/// The longest chain of armed keys in which each waits for the next one to fire.
pub(crate) const CHAIN_MAX: usize = 64;
/// Steps for one key and all that it waits for, at most: each of them takes two, one to meet it and
/// one to fire it.
pub(crate) const CHAIN_STEPS_MAX: usize = 256;
/// Keys whose effects failed that are told to people in a turn, at most.
const FAILURES_A_TURN_MAX: usize = 8;
/// Homes that are remembered because of a read, at most.
const UNREAD_MAX: usize = 256;
/// If no timer could go on, all are looked at again after so many microseconds.
const PAUSE_US: u64 = 10_000;
/// Keys that find no room in a turn, at most: the next ones are tried behind a pause, which doubles
/// from [`PAUSE_US`] up to this, in microseconds, while none finds any.
pub(crate) const FULL_A_TURN_MAX: usize = 64;
const FULL_PAUSE_US_MAX: u64 = 320_000;
/// Timers that are counted behind each of these pauses, at most.
pub(crate) const COUNTED_A_PAUSE_MAX: u64 = 16_384;

/// An armed key whose effects could not run. It is gone all the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedEffects {
    /// The key.
    pub key: Vec<u8>,
    /// Why, for people.
    pub why: String,
}

/// What a shard counts of armed keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FiringCounters {
    /// Keys that ended with their effects.
    pub fired: u64,
    /// Keys that ended without: their effects could not run.
    pub failed: u64,
    /// Keys that wait for room for their end now: at least so many, and so many when none has
    /// found any for a while.
    pub full: u64,
    /// Times that a key found no room for its end, and was left for later.
    pub full_tries: u64,
    /// Timers of keys that were gone, or not armed any more.
    pub stale: u64,
}

/// The state of this work.
#[derive(Debug, Default)]
pub(crate) struct Firing {
    /// The timer that was looked at last; the next turn goes on behind it.
    behind: Option<Timer>,
    /// The timer for whose effects keys are pinned.
    pinned: Option<Timer>,
    /// Nothing can go on before that, or before something ends.
    resume_us: u64,
    /// The pause behind the last keys that found no room; 0 if the last ones found some.
    full_pause_us: u64,
    /// The timer that was counted last, and how many were, of those that wait for room.
    counted: (Option<Timer>, u64),
    /// Slots and hashes of keys that this work has asked for, and of any that could not be read.
    asked: Vec<KeyHome>,
    unread: Vec<KeyHome>,
    /// Hashes and cells of keys that wait for each other, while one is fired.
    pub(crate) chain: Vec<(u32, CellId)>,
    /// The effects that run.
    pub(crate) effects: Vec<u8>,
    /// What they tell, for nobody.
    pub(crate) returned: Vec<u8>,
    failed: Vec<FailedEffects>,
    counters: FiringCounters,
}

impl Firing {
    pub(crate) fn counters(&self) -> FiringCounters {
        self.counters
    }

    /// How many keys have ended, with or without their effects.
    pub(crate) fn ended(&self) -> usize {
        usize::try_from(self.counters.fired + self.counters.failed).unwrap_or(usize::MAX)
    }

    /// Whether timers are to be looked at now. Something ended since the last turn if
    /// `has_progress`.
    pub(crate) fn begins(&mut self, now_us: u64, has_progress: bool) -> bool {
        // What ends elsewhere makes no room.
        if has_progress && self.full_pause_us == 0 {
            self.resume_us = 0;
        }
        now_us >= self.resume_us
    }

    /// Something made room: whoever waits for some is tried at once.
    pub(crate) fn room_came(&mut self) {
        if self.full_pause_us > 0 {
            (self.resume_us, self.full_pause_us) = (0, PAUSE_US);
        }
    }

    /// No timer that is due waits for room.
    pub(crate) fn has_room(&mut self) {
        (self.full_pause_us, self.counted) = (0, (None, 0));
        self.counters.full = 0;
    }

    /// Keys found no room, and none of the others could go on.
    pub(crate) fn pauses_for_room(&mut self, now_us: u64) {
        self.full_pause_us = (2 * self.full_pause_us).clamp(PAUSE_US, FULL_PAUSE_US_MAX);
        self.resume_us = now_us + self.full_pause_us;
    }

    /// The timer that was counted last of those that wait for room.
    pub(crate) fn counted(&self) -> Option<Timer> {
        self.counted.0
    }

    /// So many `more` are due up to `behind`; `None`: up to the last one.
    pub(crate) fn count(&mut self, behind: Option<Timer>, more: u64) {
        self.counted = (behind, self.counted.1 + more);
        if behind.is_some() {
            self.counters.full = self.counters.full.max(self.counted.1);
        } else {
            self.counters.full = self.counted.1;
            self.counted.1 = 0;
        }
    }

    /// When timers are to be looked at again if one is due.
    pub(crate) fn resume_us(&self) -> u64 {
        self.resume_us
    }

    /// The timer behind which the look goes on; `None` is the begin.
    pub(crate) fn behind(&self) -> Option<Timer> {
        self.behind
    }

    /// The look goes on behind this timer.
    pub(crate) fn passed(&mut self, timer: Option<Timer>) {
        self.behind = timer;
    }

    /// No timer that is due could go on.
    pub(crate) fn pauses(&mut self, now_us: u64) {
        self.resume_us = now_us + PAUSE_US;
    }

    /// A timer points to no key.
    pub(crate) fn is_stale(&mut self) {
        self.counters.stale += 1;
    }

    /// What became of a key.
    pub(crate) fn note(&mut self, key: impl FnOnce() -> Vec<u8>, fired: Fired) {
        if matches!(fired, Fired::Ran | Fired::Failed(_)) {
            self.full_pause_us = 0;
            self.counters.full = self.counters.full.saturating_sub(1);
        }
        match fired {
            Fired::Ran => self.counters.fired += 1,
            Fired::Failed(why) => {
                self.counters.failed += 1;
                if self.failed.len() < FAILURES_A_TURN_MAX {
                    let why = why.to_string();
                    self.failed.push(FailedEffects { key: key(), why });
                }
            }
            Fired::Full(_) => self.counters.full_tries += 1,
            Fired::Cold | Fired::Behind(..) | Fired::Wait => {}
        }
    }

    /// An armed key cannot be read, so its effects are not known.
    pub(crate) fn cannot_read(&mut self) {
        self.counters.failed += 1;
    }

    /// What people are to be told.
    pub(crate) fn take_failed(&mut self) -> impl Iterator<Item = FailedEffects> {
        self.failed.drain(..)
    }

    /// The timer for which keys are pinned.
    pub(crate) fn pinned(&self) -> Option<Timer> {
        self.pinned
    }

    pub(crate) fn pins(&mut self, timer: Option<Timer>) {
        self.pinned = timer;
    }

    /// A key of this slot and hash is read for its effects, or as one that effects name.
    pub(crate) fn asks_for(&mut self, home: KeyHome) {
        if !self.asked.contains(&home) {
            // Somebody else may have failed to read it, long ago.
            self.unread.retain(|other| *other != home);
            remember(&mut self.asked, home);
        }
    }

    /// A key of this slot and hash could not be read.
    pub(crate) fn note_unread(&mut self, home: KeyHome) {
        if !self.unread.contains(&home) {
            remember(&mut self.unread, home);
        }
    }

    /// Whether a key of this slot and hash was asked for and could not be read. Told once: the next
    /// one who needs the key tries again.
    pub(crate) fn take_unread(&mut self, home: KeyHome) -> bool {
        let is_unread = self.asked.contains(&home) && self.unread.contains(&home);
        if is_unread {
            self.asked.retain(|other| *other != home);
            self.unread.retain(|other| *other != home);
        }
        is_unread
    }
}

fn remember(homes: &mut Vec<KeyHome>, home: KeyHome) {
    if homes.len() == UNREAD_MAX {
        homes.remove(0);
    }
    homes.push(home);
}
