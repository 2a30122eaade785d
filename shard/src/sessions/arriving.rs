//! How fast a frame arrives that is not whole.

/// Bytes of a frame that is not whole, or all that is left of it, must come within the time of a
/// partial frame.
pub(crate) const ARRIVING_BYTES_MIN: usize = 32 << 10;

/// A frame that has begun to arrive and is not whole.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arriving {
    /// When it began, or when [`ARRIVING_BYTES_MIN`] more of it were there.
    since_us: u64,
    /// Bytes that are still to come until that is so again.
    missing_bytes: usize,
    /// Bytes of it that are held.
    held_bytes: usize,
}

impl Arriving {
    /// A frame of which `held_bytes` are there begins at `now_us`.
    pub(crate) fn begin(now_us: u64, held_bytes: usize) -> Self {
        Arriving {
            since_us: now_us,
            missing_bytes: ARRIVING_BYTES_MIN,
            held_bytes,
        }
    }

    /// `held_bytes` of it are held now.
    pub(crate) fn holds(&mut self, now_us: u64, held_bytes: usize) {
        let before = std::mem::replace(&mut self.held_bytes, held_bytes);
        self.moves(now_us, held_bytes.saturating_sub(before));
    }

    /// So many bytes of it came and were passed over; none is held.
    pub(crate) fn passes(&mut self, now_us: u64, bytes: usize) {
        self.held_bytes = 0;
        self.moves(now_us, bytes);
    }

    fn moves(&mut self, now_us: u64, bytes: usize) {
        match self.missing_bytes.checked_sub(bytes) {
            Some(missing @ 1..) => self.missing_bytes = missing,
            _ => {
                (self.since_us, self.missing_bytes) = (now_us, ARRIVING_BYTES_MIN);
            }
        }
    }

    /// For so long too little of it has come, in microseconds.
    pub(crate) fn slow_us(&self, now_us: u64) -> u64 {
        now_us.saturating_sub(self.since_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_that_moves_has_its_time_anew_and_one_that_drips_has_not() {
        for (bytes_of_one, is_slow) in [
            (1, true),
            (ARRIVING_BYTES_MIN / 10 - 1, true),
            (ARRIVING_BYTES_MIN / 9 + 1, false),
            (ARRIVING_BYTES_MIN, false),
        ] {
            for is_held in [true, false] {
                let mut arriving = Arriving::begin(0, bytes_of_one);
                let mut slowest_us = 0;
                for second in 1..=40_u64 {
                    let now_us = second * 1_000_000;
                    slowest_us = arriving.slow_us(now_us).max(slowest_us);
                    let held = (usize::try_from(second).expect("few") + 1) * bytes_of_one;
                    match is_held {
                        true => arriving.holds(now_us, held),
                        false => arriving.passes(now_us, bytes_of_one),
                    }
                }
                assert_eq!(slowest_us > 10_000_000, is_slow, "{bytes_of_one} a second");
            }
        }
    }
}
