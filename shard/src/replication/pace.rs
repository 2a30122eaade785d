//! How fast the log is read for members that catch up, so that what clients write and read
//! meanwhile finds the disk and the loop free. A generic cell rate algorithm (ITU-T I.371): one
//! time says it all.

/// What may be spent at once after a rest, in microseconds of the rate.
const BURST_US: u64 = 10_000;

/// Bytes for the time.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    bytes_per_s: u64,
    /// When more may be spent.
    ready_us: u64,
    /// Somebody had to wait in this turn.
    is_awaited: bool,
}

impl Pace {
    /// At most so many bytes in a second; 0 is without a bound.
    #[must_use]
    pub fn new(bytes_per_s: u64) -> Self {
        Pace {
            bytes_per_s,
            ready_us: 0,
            is_awaited: false,
        }
    }

    /// Another turn begins: nobody waits so far.
    pub fn begin_turn(&mut self) {
        self.is_awaited = false;
    }

    /// Whether nothing may be spent now. Somebody waits then.
    pub fn must_wait(&mut self, now_us: u64) -> bool {
        let must_wait = self.waits_until_us(now_us).is_some();
        self.is_awaited |= must_wait;
        must_wait
    }

    /// When another turn is due for who had to wait in the last one.
    #[must_use]
    pub fn due_us(&self) -> Option<u64> {
        self.is_awaited.then_some(self.ready_us)
    }

    /// Until when nothing may be spent, if that is so.
    #[must_use]
    pub fn waits_until_us(&self, now_us: u64) -> Option<u64> {
        (self.ready_us > now_us).then_some(self.ready_us)
    }

    /// So many bytes were spent, if they were more than what was left.
    pub fn spend(&mut self, now_us: u64, bytes: usize) {
        if self.bytes_per_s == 0 {
            return;
        }
        let cost_us = u128::from(bytes as u64) * 1_000_000 / u128::from(self.bytes_per_s);
        let cost_us = u64::try_from(cost_us).unwrap_or(u64::MAX);
        let from_us = self.ready_us.max(now_us.saturating_sub(BURST_US));
        self.ready_us = from_us.saturating_add(cost_us);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn over_any_time_no_more_is_spent_than_the_rate_and_one_burst() {
        let mut pace = Pace::new(1_000_000);
        let (mut now_us, mut spent, mut waited) = (1_000_000u64, 0u64, 0);
        let began_us = now_us;
        for step in 0..10_000u64 {
            match pace.waits_until_us(now_us) {
                Some(until_us) => {
                    assert!(until_us > now_us);
                    waited += 1;
                    now_us = until_us;
                }
                None => {
                    let bytes = 1 + step * 37 % 5_000;
                    pace.spend(now_us, usize::try_from(bytes).expect("small"));
                    spent += bytes;
                }
            }
            let may = (now_us - began_us) + BURST_US + 5_000;
            assert!(spent <= may, "{spent} bytes in {may} us");
        }
        assert!(waited > 1_000, "{waited}");
        // What was not spent in a rest is not owed.
        now_us += 1_000_000_000;
        let mut at_once = 0;
        while pace.waits_until_us(now_us).is_none() {
            pace.spend(now_us, 1_000);
            at_once += 1_000;
        }
        assert!(
            (BURST_US..=BURST_US + 1_000).contains(&at_once),
            "{at_once}"
        );
    }

    #[test]
    fn without_a_rate_nothing_waits() {
        let mut pace = Pace::new(0);
        pace.spend(5, usize::MAX);
        assert_eq!(pace.waits_until_us(5), None);
    }
}
