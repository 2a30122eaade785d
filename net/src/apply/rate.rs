//! A rate limit in a field of eight bytes: the generic cell rate algorithm (ITU-T I.371), which
//! keeps one time instead of a bucket and a clock.

/// How often something may be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Microseconds that one unit takes, 1 to [`Rate::INTERVAL_US_MAX`].
    pub interval_us: u64,
    /// Units that may be taken at once after a pause, 1 to 65,535.
    pub burst: u16,
    /// Units that are taken, 1 to `burst`.
    pub quantity: u8,
}

/// The units are not there yet; they are after so many microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooEarly {
    /// Microseconds from now on. `u64::MAX` stands for any longer time.
    pub wait_us: u64,
}

impl Rate {
    /// One unit in 12.7 days.
    pub const INTERVAL_US_MAX: u64 = (1 << 40) - 1;

    /// Whether the numbers are within their bounds.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        (1..=Self::INTERVAL_US_MAX).contains(&self.interval_us)
            && (1..=self.burst).contains(&u16::from(self.quantity))
    }

    /// In 64 bits, as an instruction has it: the interval, then the burst, then the quantity.
    #[must_use]
    pub fn bits(&self) -> u64 {
        self.interval_us | u64::from(self.burst) << 40 | u64::from(self.quantity) << 56
    }

    /// The rate of 64 bits, if its numbers are within their bounds.
    #[must_use]
    pub fn from_bits(bits: u64) -> Option<Self> {
        let [.., low, high, quantity] = bits.to_le_bytes();
        let rate = Rate {
            interval_us: bits & Self::INTERVAL_US_MAX,
            burst: u16::from_le_bytes([low, high]),
            quantity,
        };
        rate.is_valid().then_some(rate)
    }

    /// Takes the units at `now_us`. `until_us` is what the field holds: the time at which all that
    /// was taken is paid for, 0 at first. Returns what the field holds afterwards.
    ///
    /// # Errors
    /// [`TooEarly`]: more than the burst would be taken. The field stays.
    pub fn take(&self, until_us: u64, now_us: u64) -> Result<u64, TooEarly> {
        // All factors are below 2^64, so nothing overflows in 128 bits.
        let taken = u128::from(self.interval_us) * u128::from(self.quantity);
        let ahead = u128::from(self.interval_us) * u128::from(self.burst);
        let after = u128::from(until_us.max(now_us)) + taken;
        let earliest = after.saturating_sub(ahead);
        let wait = earliest.saturating_sub(u128::from(now_us));
        match u64::try_from(after) {
            Ok(after) if wait == 0 => Ok(after),
            _ => Err(TooEarly {
                wait_us: u64::try_from(wait.max(1)).unwrap_or(u64::MAX),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIVE_A_SECOND: Rate = Rate {
        interval_us: 200_000,
        burst: 3,
        quantity: 1,
    };

    #[test]
    fn a_burst_is_let_through_and_then_one_unit_an_interval() {
        let now_us = 1_000_000_000;
        let mut until_us = 0;
        for _ in 0..3 {
            until_us = FIVE_A_SECOND.take(until_us, now_us).expect("a burst");
        }
        assert_eq!(
            FIVE_A_SECOND.take(until_us, now_us),
            Err(TooEarly { wait_us: 200_000 })
        );
        let later_us = now_us + 199_999;
        assert_eq!(
            FIVE_A_SECOND.take(until_us, later_us),
            Err(TooEarly { wait_us: 1 })
        );
        until_us = FIVE_A_SECOND
            .take(until_us, now_us + 200_000)
            .expect("one is free again");
        assert_eq!(
            FIVE_A_SECOND.take(until_us, now_us + 200_000),
            Err(TooEarly { wait_us: 200_000 })
        );
    }

    #[test]
    fn no_second_ever_takes_more_than_its_rate_and_one_burst() {
        let mut until_us = 0;
        let mut taken = Vec::new();
        for step in 0..5_000u64 {
            let now_us = 1_000 + step * 1_777;
            if let Ok(after_us) = FIVE_A_SECOND.take(until_us, now_us) {
                until_us = after_us;
                taken.push(now_us);
            }
        }
        for (at, start_us) in taken.iter().enumerate() {
            let within = taken[at..].iter().filter(|us| **us < start_us + 1_000_000);
            assert!(within.count() <= 5 + 3);
        }
        assert!(taken.len() > 40, "{} were let through", taken.len());
    }

    #[test]
    fn quantities_are_taken_whole_or_not_at_all() {
        let pair = Rate {
            quantity: 2,
            ..FIVE_A_SECOND
        };
        let until_us = pair.take(0, 1_000_000).expect("two of three");
        assert_eq!(
            pair.take(until_us, 1_000_000),
            Err(TooEarly { wait_us: 200_000 })
        );
    }

    #[test]
    fn a_rate_comes_back_from_its_bits_and_bad_numbers_do_not() {
        let rate = Rate {
            interval_us: Rate::INTERVAL_US_MAX,
            burst: u16::MAX,
            quantity: 255,
        };
        assert_eq!(Rate::from_bits(rate.bits()), Some(rate));
        for bad in [
            Rate {
                interval_us: 0,
                ..rate
            },
            Rate {
                quantity: 0,
                ..rate
            },
            Rate { burst: 254, ..rate },
        ] {
            assert_eq!(Rate::from_bits(bad.bits()), None, "{bad:?}");
        }
    }

    #[test]
    fn a_field_of_any_bits_is_never_a_panic() {
        for until_us in [0, 1, u64::MAX / 2, u64::MAX] {
            for now_us in [0, 1, u64::MAX] {
                let _ = FIVE_A_SECOND.take(until_us, now_us);
            }
        }
        let far = FIVE_A_SECOND.take(u64::MAX - 1, 0);
        assert!(matches!(far, Err(TooEarly { wait_us }) if wait_us > 1 << 62));
    }
}
