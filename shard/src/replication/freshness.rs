//! How old what a member has is, at most, by its own clock alone: nobody's clocks are compared.
//!
//! The member tells its clock now and then. The source tells it back, in a frame behind all that it
//! had when the clock came. What has applied all up to that frame is no older than the clock. The
//! rule is in `REPLICATION.md`.

use std::collections::VecDeque;

use penstock_storage::place::Lsn;

/// The least and the most between two questions, in microseconds: while somebody wants much, and
/// while nobody reads.
const ASK_US_MIN: u64 = 1_000;
const ASK_US_MAX: u64 = 250_000;
/// How long a bound is remembered that a reader has asked for, in microseconds.
const WISH_US: u64 = 1_000_000;
/// In a bound there is time for so many questions: one may just have been missed, and its answer
/// takes a round trip and a flush.
const ASKS_IN_BOUND: u64 = 4;
/// Questions without an answer, at most: a source that stands still is asked no more.
const ASKED_MAX: usize = 64;
/// Answers that are remembered, at most.
const ECHOES_MAX: usize = 256;

/// A clock that came back.
#[derive(Clone, Copy, Debug)]
struct Echo {
    frame: u64,
    clock_us: u64,
}

/// The destination's side of one link.
#[derive(Debug, Default)]
pub struct Freshness {
    /// Told and not heard again, ascending.
    asked: VecDeque<u64>,
    last_asked_us: Option<u64>,
    /// Ascend in both.
    echoes: VecDeque<Echo>,
    /// The least bound that readers have asked for lately, and until when it is remembered.
    wish: Option<(u64, u64)>,
}

/// An echo that was not asked for, or falls back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StrangeEcho;

impl Freshness {
    /// Somebody reads, and wants nothing that is older than this.
    pub fn want(&mut self, now_us: u64, staleness_us_max: u64) {
        let until_us = now_us + WISH_US;
        match self.wish {
            Some((least, until)) if until > now_us && least < staleness_us_max => {}
            _ => self.wish = Some((staleness_us_max, until_us)),
        }
    }

    /// When the next question is due; none while the source owes too many answers.
    #[must_use]
    pub fn due_us(&self, now_us: u64) -> Option<u64> {
        if self.asked.len() >= ASKED_MAX {
            return None;
        }
        let wish = self.wish.filter(|&(_, until_us)| until_us > now_us);
        let apart_us = wish.map_or(ASK_US_MAX, |(bound, _)| {
            (bound / ASKS_IN_BOUND).clamp(ASK_US_MIN, ASK_US_MAX)
        });
        Some(self.last_asked_us.map_or(now_us, |last| last + apart_us))
    }

    /// What the frame that is about to be sent tells: the clock if that is due, otherwise 0.
    pub fn ask(&mut self, now_us: u64) -> u64 {
        // 0 asks nothing.
        let clock_us = now_us.max(1);
        let is_due = self.due_us(now_us).is_some_and(|due| due <= now_us);
        if !is_due || self.asked.back().is_some_and(|&last| last >= clock_us) {
            return 0;
        }
        self.last_asked_us = Some(now_us);
        self.asked.push_back(clock_us);
        clock_us
    }

    /// A frame has come with this echo.
    ///
    /// # Errors
    /// [`StrangeEcho`]: the source does not keep to the rule.
    pub fn take_echo(&mut self, frame: u64, clock_us: u64) -> Result<(), StrangeEcho> {
        let newest = self.echoes.back().map_or(0, |echo| echo.clock_us);
        if clock_us == newest {
            return Ok(());
        }
        // An echo must be a clock that was sent. It also answers all earlier clocks.
        let count = self.asked.partition_point(|&asked| asked <= clock_us);
        if clock_us < newest || count == 0 || self.asked[count - 1] != clock_us {
            return Err(StrangeEcho);
        }
        self.asked.drain(..count);
        self.echoes.push_back(Echo { frame, clock_us });
        if self.echoes.len() > ECHOES_MAX {
            // Every second one, from the newest back: what is asked about may seem older than it
            // is, never newer.
            let mut keeps = self.echoes.len().is_multiple_of(2);
            self.echoes.retain(|_| {
                keeps = !keeps;
                keeps
            });
        }
        Ok(())
    }

    /// By the own clock: the applied frames are at least as new as this. `unapplied` is the first
    /// frame that is not applied whole.
    #[must_use]
    pub fn known_us(&self, unapplied: Option<u64>) -> Option<u64> {
        let count = match unapplied {
            None => self.echoes.len(),
            Some(frame) => self.echoes.partition_point(|echo| echo.frame < frame),
        };
        Some(self.echoes.get(count.checked_sub(1)?)?.clock_us)
    }
}

/// The source's side of one link: the clock of the destination that it may tell back.
#[derive(Debug, Default)]
pub struct Echoing {
    /// To be told back when all up to the record is shipped.
    waits: Option<(u64, Lsn)>,
    /// Came since, and comes next: were it to take the place of the one before, a busy log might
    /// never be ready for any.
    next: Option<(u64, Lsn)>,
    /// All that stood in the log when this came is in the frames before the next one.
    clock_us: u64,
    echoed_us: u64,
}

impl Echoing {
    /// The destination has told its clock, 0 for none; the log has `appended` by now.
    pub fn came(&mut self, clock_us: u64, appended: Lsn) {
        if clock_us > 0 {
            self.next = Some((clock_us, appended));
            self.waits = self.waits.or_else(|| self.next.take());
        }
    }

    /// Whether a clock can be told back once all up to this record is in frames.
    #[must_use]
    pub fn is_due(&self, lsn: Lsn) -> bool {
        self.waits.is_some_and(|(_, until)| until <= lsn)
    }

    /// All up to this record is in frames before the next one.
    pub fn shipped(&mut self, lsn: Lsn) {
        let is_shipped = |&(_, until): &(u64, Lsn)| until <= lsn;
        while let Some((clock_us, _)) = self.waits.filter(is_shipped) {
            self.clock_us = self.clock_us.max(clock_us);
            self.waits = self.next.take();
        }
    }

    /// What the next frame tells.
    pub fn echo(&mut self) -> u64 {
        self.echoed_us = self.clock_us;
        self.echoed_us
    }

    /// Whether the destination waits to hear it.
    #[must_use]
    pub fn is_news(&self) -> bool {
        self.clock_us > self.echoed_us
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_applied_is_as_new_as_the_last_clock_that_came_back_before_what_is_not() {
        let mut freshness = Freshness::default();
        assert_eq!(freshness.known_us(None), None);
        assert_eq!(freshness.ask(100), 100);
        assert_eq!(freshness.ask(101), 0, "not so soon");
        freshness.want(200, 40_000);
        assert_eq!(freshness.due_us(200), Some(10_100));
        assert_eq!(freshness.ask(10_100), 10_100);
        freshness.take_echo(7, 0).expect("nothing yet");
        freshness.take_echo(8, 100).expect("asked");
        freshness.take_echo(9, 100).expect("told again");
        freshness.take_echo(12, 10_100).expect("asked");
        assert_eq!(freshness.known_us(None), Some(10_100));
        assert_eq!(freshness.known_us(Some(13)), Some(10_100));
        assert_eq!(freshness.known_us(Some(12)), Some(100));
        assert_eq!(freshness.known_us(Some(8)), None);
    }

    #[test]
    fn an_echo_that_was_not_asked_for_or_falls_back_is_refused() {
        let mut freshness = Freshness::default();
        assert_eq!(freshness.take_echo(1, 5), Err(StrangeEcho));
        assert_eq!(freshness.ask(10), 10);
        assert_eq!(freshness.ask(300_000), 300_000);
        assert_eq!(freshness.take_echo(2, 11), Err(StrangeEcho));
        assert_eq!(freshness.take_echo(2, 300_001), Err(StrangeEcho));
        freshness
            .take_echo(2, 300_000)
            .expect("it may pass over one");
        assert_eq!(freshness.take_echo(3, 10), Err(StrangeEcho));
        assert_eq!(freshness.take_echo(3, 0), Err(StrangeEcho));
    }

    #[test]
    fn the_least_bound_counts_for_a_while_and_a_silent_source_is_asked_no_more() {
        let mut freshness = Freshness::default();
        freshness.ask(0);
        assert_eq!(freshness.due_us(0), Some(250_000));
        freshness.want(0, 0);
        freshness.want(500_000, 80_000);
        assert_eq!(freshness.due_us(500_000), Some(1_000));
        assert_eq!(freshness.due_us(1_000_000), Some(250_000));
        freshness.want(1_000_000, 80_000);
        assert_eq!(freshness.due_us(1_000_000), Some(20_000));
        let asked = (1..10_000u64).filter(|at| freshness.ask(at * 1_000_000) > 0);
        assert_eq!(asked.count(), ASKED_MAX - 1);
        assert_eq!(freshness.due_us(u64::MAX / 2), None);
    }

    #[test]
    fn however_many_echoes_come_none_seems_newer_and_the_newest_are_known() {
        let mut freshness = Freshness::default();
        for at in 1..10_000u64 {
            let clock_us = at * 250_000;
            assert_eq!(freshness.ask(clock_us), clock_us);
            freshness.take_echo(2 * at, clock_us).expect("asked");
            assert!(freshness.echoes.len() <= ECHOES_MAX);
            assert_eq!(freshness.known_us(None), Some(clock_us));
            for applied in 1..=at {
                let known = freshness.known_us(Some(2 * applied + 1));
                assert!(known.is_none_or(|known| known <= applied * 250_000));
            }
        }
        let recent = freshness.known_us(Some(2 * 9_900 + 1));
        assert!(recent.is_some_and(|known| known > 9_890 * 250_000));
    }

    #[test]
    fn a_clock_is_sent_back_when_all_that_was_there_is_shipped_however_busy_the_log() {
        let mut echoing = Echoing::default();
        echoing.came(0, Lsn(1));
        assert_eq!((echoing.is_news(), echoing.echo()), (false, 0));
        let mut echoed = 0;
        for at in 1..100u64 {
            // The log is always one record ahead.
            echoing.came(at, Lsn(at + 1));
            echoing.shipped(Lsn(at));
            if echoing.is_news() {
                echoed = echoing.echo();
                assert!(echoed < at, "its record is not shipped");
            }
        }
        assert!(echoed >= 97, "{echoed}");
        echoing.shipped(Lsn(1_000));
        assert_eq!((echoing.is_news(), echoing.echo()), (true, 99));
        assert!(!echoing.is_news());
    }
}
