//! How fast writes may go while cleaning makes room for them, and when they are refused.
//!
//! A log that gets no more segments lives on those that cleaning gives back. Until the next one
//! comes, two claims share what is left of the open segment and the spares: copies of what counts
//! in the segment that is cleaned, and writes. Copies come first, because only they bring more.
//! Writes get the rest, slower the less it is: a write waits a little each time rather than long at
//! the end ([`Pace`]). Where cleaning cannot keep up for good, because too much of the log counts,
//! writes that grow the store are refused until much less counts ([`Fullness`]).

use crate::store::cleaning::sizing::percent_of;

/// Writes take what copies leave within about so long, in microseconds.
const DRAIN_US: u64 = 20_000;
/// Writes are held back for so long at a time, at most, in microseconds.
pub const PACE_US_MAX: u64 = 100_000;
/// A full log that has had all its spares for so long is full no more, in microseconds.
const QUIET_US: u64 = 10_000_000;
/// A log that has no room at all and gets none for so long is full, in microseconds: what was given
/// back may be on its way for a while.
const STUCK_US: u64 = 100_000;
/// A judgement looks at each segment, so the time between two of them grows with their number: so
/// many microseconds for each.
const JUDGE_US_PER_SEGMENT: u64 = 4;
/// Segments that hold nothing that counts: the open one and the spares.
const SEGMENTS_WORKING: u64 = 4;
/// The least of that where there are few, in quarters of a segment: the one that cleaning takes,
/// and a part of the open one, which deletions and edits take until it is sealed and cleaned.
const QUARTERS_WORKING_MIN: u64 = 5;

/// How often writes waited for cleaning, and how long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PaceCounters {
    /// Times that writes began to wait.
    pub waits: u64,
    /// Microseconds in which writes waited.
    pub waited_us: u64,
}

/// What may be written now.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// Bytes that may be written; below zero after a write that took more. `None` without a bound.
    left_bytes: Option<i64>,
    /// Since when a write has waited.
    waits_since_us: Option<u64>,
    has_asked: bool,
    turned_us: u64,
    counters: PaceCounters,
}

/// What a log that gets no more segments has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Headroom {
    /// Bytes that can be appended before another segment comes, the last spare left out.
    pub(crate) bytes: u64,
    /// Bytes of those that cleaning may need until it gives a segment back.
    pub(crate) claimed_bytes: u64,
}

impl Pace {
    /// Whether writes must wait.
    #[inline]
    pub(crate) fn holds(&self) -> bool {
        self.left_bytes.is_some_and(|left| left <= 0)
    }

    /// A write waits.
    pub(crate) fn waits(&mut self) {
        self.has_asked = true;
    }

    /// Whether [`Pace::takes`] is to be told of writes.
    #[inline]
    pub(crate) fn is_bounded(&self) -> bool {
        self.left_bytes.is_some()
    }

    /// A write took so many bytes.
    pub(crate) fn takes(&mut self, bytes: u64) {
        if let Some(left) = &mut self.left_bytes {
            *left = left.saturating_sub_unsigned(bytes);
        }
    }

    /// Once in each turn: `headroom` is that of a log that gets no more segments and is being
    /// cleaned. Whether writes that waited may go on.
    pub(crate) fn turn(&mut self, now_us: u64, headroom: Option<Headroom>) -> bool {
        if std::mem::take(&mut self.has_asked) && self.waits_since_us.is_none() {
            self.waits_since_us = Some(now_us);
            self.counters.waits += 1;
        }
        let passed_us = now_us.saturating_sub(self.turned_us).min(DRAIN_US);
        self.turned_us = now_us;
        self.left_bytes = headroom.map(|headroom| {
            let free = headroom.bytes.saturating_sub(headroom.claimed_bytes);
            let more = percent_of(free, passed_us, DRAIN_US);
            // The first turn of its kind has no debt.
            let before = self.left_bytes.unwrap_or(0);
            let has_waited = self
                .waits_since_us
                .is_some_and(|since_us| now_us >= since_us + PACE_US_MAX);
            match has_waited {
                true => signed(headroom.bytes / 16).max(1),
                false => before.saturating_add(signed(more)).min(signed(free / 2)),
            }
        });
        let goes_on = self.left_bytes.is_none_or(|left| left > 0);
        match self.waits_since_us {
            Some(since_us) if goes_on => {
                self.counters.waited_us += now_us - since_us;
                self.waits_since_us = None;
                true
            }
            _ => false,
        }
    }

    /// When [`Pace::turn`] is due for the sake of writes that wait.
    pub(crate) fn deadline_us(&self) -> Option<u64> {
        let waits = self.has_asked || self.waits_since_us.is_some();
        waits.then_some(self.turned_us + 1_000)
    }

    pub(crate) fn counters(&self) -> PaceCounters {
        self.counters
    }
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// What counts takes so many 400ths of itself when half of what `space_percent_max` gives cleaning
/// to work with is used up.
fn full_percent(space_percent_max: u32) -> u64 {
    200 + 2 * u64::from(space_percent_max)
}

/// What decides whether a log has room to grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Occupancy {
    /// Bytes that count.
    pub(crate) counting_bytes: u64,
    /// Bytes of those that have expired within a tick of the account, or have already: expiry is
    /// rounded up to ticks.
    pub(crate) leaving_bytes: u64,
    /// Bytes of all segments that the log has, spares included. A spare counts as no longer than
    /// the largest segment in use: what is beyond that holds nothing yet.
    pub(crate) held_bytes: u64,
    /// Bytes of the segments that can still be made, if that is known.
    pub(crate) more_bytes: Option<u64>,
    /// Bytes of all records that were ever appended, copies left out.
    pub(crate) appended_bytes: u64,
    /// Bytes of the largest segment.
    pub(crate) segment_bytes: u64,
    /// As
    /// [`DiskShare::space_percent_max`](crate::store::cleaning::sizing::DiskShare::space_percent_max).
    pub(crate) space_percent_max: u32,
    /// Fewer spares are there than should be, and no more can be had.
    pub(crate) is_low: bool,
    /// Cleaning gives a segment back, or one is on its way.
    pub(crate) relief_comes: bool,
    /// What grows finds a worthwhile part of a segment as things are.
    pub(crate) has_headroom: bool,
    /// A write found no room at all, and nothing came.
    pub(crate) is_stuck: bool,
}

impl Occupancy {
    /// Whether what counts, times `percent` over 400, has room in so many bytes of segments beside
    /// those that hold none of it.
    fn fits(&self, held_bytes: u64, percent: u64) -> bool {
        let working = self.working_bytes(held_bytes);
        percent_of(self.staying_bytes(), percent, 400).saturating_add(working) <= held_bytes
    }

    /// Bytes that count and do not leave by themselves at once.
    fn staying_bytes(&self) -> u64 {
        self.counting_bytes.saturating_sub(self.leaving_bytes)
    }

    /// Whether room is under way: a segment comes back, or a worthwhile part of one expires.
    fn is_room_under_way(&self) -> bool {
        self.relief_comes || self.leaving_bytes > self.segment_bytes / 8
    }

    /// Bytes of so many that hold nothing that counts. Where these are more than half of all bytes,
    /// the limit is smaller than the sizing rule wants: half is for data then, and a log that gets
    /// stuck is full ([`Fullness::judge`]).
    fn working_bytes(&self, held_bytes: u64) -> u64 {
        let least_bytes = QUARTERS_WORKING_MIN * self.segment_bytes / 4;
        (SEGMENTS_WORKING * self.segment_bytes).min(least_bytes.max(held_bytes / 2))
    }

    /// The most bytes that may count in so many bytes of segments before the log is full
    /// ([`Fullness::judge`]).
    pub(crate) fn counting_bytes_max(&self, held_bytes: u64) -> u64 {
        let data_bytes = held_bytes.saturating_sub(self.working_bytes(held_bytes));
        percent_of(data_bytes, 400, full_percent(self.space_percent_max))
    }

    /// Whether what counts leaves cleaning three quarters of what `space_percent_max` gives it.
    fn is_roomy(&self, most_bytes: u64) -> bool {
        self.fits(most_bytes, 100 + 3 * u64::from(self.space_percent_max))
    }
}

/// How near a log is to the answer FULL.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fill {
    /// Bytes of records that count.
    pub counting_bytes: u64,
    /// Bytes of records behind which what grows may be answered FULL.
    pub counting_bytes_max: u64,
}

/// Whether writes that grow the store are refused. The log must fall well below the level at which
/// it became full before it takes such writes again. Otherwise each released segment would switch
/// between the two.
#[derive(Debug, Default)]
pub(crate) struct Fullness {
    is_full: bool,
    /// The most bytes of segments that the log had: others are on their way back, or are made.
    held_bytes_max: u64,
    quiet_since_us: Option<u64>,
    stuck_since_us: Option<u64>,
    counting_bytes: u64,
    /// Bytes of records that may be appended before more could count than may. `None` while it is
    /// not known how many segments there can be.
    slack_bytes: Option<u64>,
    appended_bytes: u64,
    judged_us: u64,
}

impl Fullness {
    /// Whether a log of so many segments, to which so many bytes of records were ever appended, is
    /// to be judged again; `is_pressed` if it is low or full.
    pub(crate) fn is_due(
        &self,
        now_us: u64,
        segments: usize,
        appended_bytes: u64,
        is_pressed: bool,
    ) -> bool {
        let grown_bytes = appended_bytes - self.appended_bytes;
        let is_wanted = is_pressed || self.slack_bytes.is_some_and(|slack| grown_bytes > slack);
        let is_rested = now_us >= self.judged_us + JUDGE_US_PER_SEGMENT * segments as u64;
        let is_stuck_for_long = self.deadline_us().is_some_and(|due_us| now_us >= due_us);
        (is_wanted && is_rested) || is_stuck_for_long
    }

    /// Bytes that counted when it was judged last.
    pub(crate) fn counting_bytes(&self) -> u64 {
        self.counting_bytes
    }

    pub(crate) fn is_full(&self) -> bool {
        self.is_full
    }

    /// What the log may have of the disk has changed: the next turn judges.
    pub(crate) fn forget_slack(&mut self) {
        self.slack_bytes = Some(0);
        self.appended_bytes = 0;
    }

    /// When [`Fullness::judge`] is due for the sake of writes that wait.
    pub(crate) fn deadline_us(&self) -> Option<u64> {
        let since_us = self.stuck_since_us.filter(|_| !self.is_full);
        since_us.map(|since_us| since_us + STUCK_US)
    }

    /// Judges anew. Half of what `space_percent_max` gives cleaning to work with makes a log full
    /// when it is used up: a low one, and one that is known to get no more segments than that
    /// takes, before it is low, so that what is left is there for deletions and edits. A log with
    /// three quarters of that left, or with more segments than it ever had, is full no more.
    pub(crate) fn judge(&mut self, now_us: u64, it: &Occupancy) {
        let since = |since_us: Option<u64>, still: bool| still.then(|| since_us.unwrap_or(now_us));
        let lasts = |since_us: Option<u64>, least_us| {
            since_us.is_some_and(|since_us| now_us >= since_us + least_us)
        };
        self.quiet_since_us = since(self.quiet_since_us, !it.is_low);
        // Nothing but edits that expire again and again keeps this up, and these find room.
        let expires_soon = !it.relief_comes && it.is_room_under_way();
        let may_be_stuck = it.is_low && !it.is_room_under_way();
        let was_stuck = self.stuck_since_us.is_some();
        self.judged_us = now_us;
        self.appended_bytes = it.appended_bytes;
        self.counting_bytes = it.counting_bytes;
        let has_grown = it.held_bytes > self.held_bytes_max && !it.is_low;
        self.held_bytes_max = self.held_bytes_max.max(it.held_bytes);
        let most_bytes = self.most_bytes(it);
        let is_over = it.is_roomy(most_bytes) && it.has_headroom;
        // What expires tells nobody: the time begins anew, and its end is a time to judge.
        let before_us = self.stuck_since_us.filter(|_| !expires_soon);
        self.stuck_since_us = since(
            before_us,
            it.is_low && !it.relief_comes && (it.is_stuck || (was_stuck && !is_over)),
        );
        let is_bounded = it.is_low || it.more_bytes.is_some();
        let slack_bytes = it
            .counting_bytes_max(most_bytes)
            .saturating_sub(it.staying_bytes());
        self.slack_bytes = is_bounded.then_some(slack_bytes);
        if lasts(self.stuck_since_us, STUCK_US) {
            // Nothing is on its way: others took it.
            self.held_bytes_max = it.held_bytes;
            self.is_full = true;
        } else if self.is_full {
            let is_over = is_over || (it.is_roomy(most_bytes) && !may_be_stuck);
            // Without anybody who says what there can be, more segments are the sign of more room.
            let has_more =
                it.more_bytes.is_none() && (has_grown || lasts(self.quiet_since_us, QUIET_US));
            self.is_full = !is_over && !has_more;
        } else {
            self.is_full = is_bounded && !it.fits(most_bytes, full_percent(it.space_percent_max));
        }
    }

    /// Bytes of all segments that there can be. A low log was refused one, so it gets no more than
    /// it had before, whatever the room was when that was measured.
    fn most_bytes(&self, it: &Occupancy) -> u64 {
        let known_bytes = it.more_bytes.map(|more| it.held_bytes.saturating_add(more));
        match known_bytes {
            Some(known_bytes) if it.is_low => known_bytes.min(self.held_bytes_max),
            Some(known_bytes) => known_bytes,
            None => self.held_bytes_max,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn occupancy(counting_bytes: u64) -> Occupancy {
        Occupancy {
            counting_bytes,
            leaving_bytes: 0,
            held_bytes: 104,
            more_bytes: None,
            appended_bytes: 0,
            segment_bytes: 1,
            space_percent_max: 140,
            is_low: true,
            relief_comes: true,
            has_headroom: false,
            is_stuck: false,
        }
    }

    #[test]
    fn a_log_is_full_above_one_share_and_roomy_again_below_another() {
        let mut fullness = Fullness::default();
        let mut now_us = 0;
        let mut judge = |it: Occupancy| {
            now_us += STUCK_US / 2;
            fullness.judge(now_us, &it);
            fullness.is_full()
        };
        assert!(!judge(occupancy(83)));
        assert!(judge(occupancy(85)));
        let with_spares = Occupancy {
            is_low: false,
            ..occupancy(85)
        };
        assert!(judge(with_spares), "one segment that came back is no room");
        assert!(judge(occupancy(78)));
        assert!(!judge(occupancy(76)));
        let without_relief = Occupancy {
            relief_comes: false,
            ..occupancy(10)
        };
        assert!(!judge(without_relief), "there is room yet");
        let stuck = Occupancy {
            is_stuck: true,
            ..without_relief
        };
        assert!(!judge(stuck) && !judge(without_relief) && judge(without_relief));
        assert!(judge(without_relief));
        assert!(!judge(occupancy(10)));
    }

    #[test]
    fn what_may_have_expired_makes_no_log_full_and_a_stuck_one_waits_for_it() {
        let of = |counting_bytes, leaving_bytes, is_low| Occupancy {
            leaving_bytes,
            is_low,
            more_bytes: Some(0),
            segment_bytes: 8,
            relief_comes: false,
            is_stuck: is_low,
            ..occupancy(counting_bytes)
        };
        let mut fullness = Fullness::default();
        fullness.judge(0, &of(95, 60, false));
        assert!(!fullness.is_full(), "35 stay");
        for now_us in [1, STUCK_US + 1, 9 * STUCK_US] {
            fullness.judge(now_us, &of(95, 60, true));
            assert!(!fullness.is_full(), "room is under way");
            assert_eq!(fullness.deadline_us(), Some(now_us + STUCK_US));
        }
        // A part of a segment that is worth nothing is no room.
        fullness.judge(10 * STUCK_US, &of(35, 1, true));
        assert!(fullness.is_full());
        fullness.judge(10 * STUCK_US + 1, &of(95, 10, false));
        assert!(fullness.is_full(), "85 stay");
    }

    #[test]
    fn a_log_of_few_segments_is_not_full_while_it_is_empty() {
        let of = |counting_bytes| Occupancy {
            held_bytes: 9,
            segment_bytes: 4,
            ..occupancy(counting_bytes)
        };
        let mut fullness = Fullness::default();
        for (now_us, counting_bytes, is_full) in
            [(0, 0, false), (1, 4, false), (2, 5, true), (3, 3, false)]
        {
            fullness.judge(now_us, &of(counting_bytes));
            assert_eq!(fullness.is_full(), is_full, "{counting_bytes} of 9 count");
        }
    }

    #[test]
    fn as_much_as_may_count_is_where_a_low_log_becomes_full() {
        for (held_bytes, segment_bytes) in [(104, 1), (9, 4), (100_000, 64)] {
            let of = |counting_bytes| Occupancy {
                held_bytes,
                segment_bytes,
                ..occupancy(counting_bytes)
            };
            let is_full = |counting_bytes| {
                let mut fullness = Fullness::default();
                fullness.judge(0, &of(counting_bytes));
                fullness.is_full()
            };
            let most = of(0).counting_bytes_max(held_bytes);
            assert!(!is_full(most), "{most} of {held_bytes}");
            // Both are whole bytes.
            assert!(is_full(most + 2), "{most} of {held_bytes}");
        }
    }

    #[test]
    fn a_log_that_gets_more_segments_or_has_its_spares_for_long_is_full_no_more() {
        let mut fullness = Fullness::default();
        fullness.judge(0, &occupancy(100));
        let more = Occupancy {
            held_bytes: 105,
            is_low: false,
            ..occupancy(100)
        };
        fullness.judge(1, &more);
        assert!(!fullness.is_full());
        fullness.judge(2, &occupancy(100));
        let quiet = Occupancy {
            is_low: false,
            ..occupancy(100)
        };
        fullness.judge(3, &quiet);
        fullness.judge(QUIET_US + 2, &quiet);
        assert!(fullness.is_full());
        fullness.judge(QUIET_US + 3, &quiet);
        assert!(!fullness.is_full());
    }

    #[test]
    fn a_log_of_many_segments_is_judged_seldom_and_a_stuck_one_in_time() {
        let mut fullness = Fullness::default();
        let mut judgements = 0;
        for now_us in (1_000_000..2_000_000).step_by(10) {
            if fullness.is_due(now_us, 10_000, 0, true) {
                fullness.judge(now_us, &occupancy(1));
                judgements += 1;
            }
        }
        assert_eq!(judgements, 25, "one in 40 ms");
        assert!(
            fullness.is_due(2_000_001, 3, 0, true),
            "few segments cost little"
        );
        let stuck = Occupancy {
            is_stuck: true,
            relief_comes: false,
            ..occupancy(1)
        };
        fullness.judge(2_000_000, &stuck);
        assert!(!fullness.is_due(2_000_000 + STUCK_US - 1, 1 << 20, 0, true));
        assert!(fullness.is_due(2_000_000 + STUCK_US, 1 << 20, 0, true));
    }

    #[test]
    fn writes_slow_down_with_what_copies_leave_and_wait_for_a_bounded_time() {
        let mut pace = Pace::default();
        let of = |bytes, claimed_bytes| {
            Some(Headroom {
                bytes,
                claimed_bytes,
            })
        };
        assert!(
            !pace.holds(),
            "nothing is bounded while segments can be had"
        );
        pace.turn(0, of(1000, 200));
        // In a turn of a millisecond a twentieth of what is free.
        pace.turn(1_000, of(1000, 200));
        assert_eq!(pace.left_bytes, Some(40));
        pace.takes(100);
        assert!(pace.holds());
        pace.waits();
        assert!(
            !pace.turn(2_000, of(900, 200)),
            "what was taken too much is paid back first"
        );
        assert!(pace.turn(3_000, of(900, 200)));
        pace.takes(1_000);
        assert!(pace.holds());
        pace.waits();
        let mut now_us = 3_000;
        let goes_on_us = loop {
            now_us += 1_000;
            if pace.turn(now_us, of(320, 400)) {
                break now_us;
            }
        };
        assert_eq!(goes_on_us, 3_000 + 1_000 + PACE_US_MAX);
        assert_eq!(pace.counters().waits, 2);
        assert_eq!(pace.counters().waited_us, 1_000 + PACE_US_MAX);
        assert!(!pace.turn(now_us + 1, None) && !pace.holds());
    }
}
