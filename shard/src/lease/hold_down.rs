//! How long nothing is done again that was just done: 5 seconds, doubled while it flaps.

const FIRST_US: u64 = 5_000_000;
const MOST_US: u64 = 300_000_000;

/// For each of 256 partitions, or nodes.
#[derive(Debug)]
pub struct HoldDown {
    all: Box<[Held; 256]>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Held {
    /// The last change, and how long nothing is changed behind it.
    last: Option<(u64, u64)>,
}

impl Default for HoldDown {
    fn default() -> Self {
        HoldDown {
            all: Box::new([Held::default(); 256]),
        }
    }
}

impl HoldDown {
    /// It was changed. It flaps if the change before was less than four times its hold-down ago.
    pub fn changed(&mut self, now_us: u64, which: u8) {
        let held = &mut self.all[usize::from(which)];
        let hold_us = match held.last {
            Some((at_us, hold_us)) if now_us < at_us + 4 * hold_us => (2 * hold_us).min(MOST_US),
            _ => FIRST_US,
        };
        held.last = Some((now_us, hold_us));
    }

    /// From when on it may be changed again.
    #[must_use]
    pub fn until_us(&self, which: u8) -> u64 {
        let last = self.all[usize::from(which)].last;
        last.map_or(0, |(at_us, hold_us)| at_us + hold_us)
    }

    /// How long it is held at present.
    #[must_use]
    pub fn hold_us(&self, which: u8) -> u64 {
        let last = self.all[usize::from(which)].last;
        last.map_or(FIRST_US, |(_, hold_us)| hold_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_flaps_is_held_twice_as_long_up_to_five_minutes_and_calm_ends_that() {
        let mut hold = HoldDown::default();
        assert_eq!(hold.until_us(7), 0);
        let mut now_us = 1;
        for expected_s in [5, 10, 20, 40, 80, 160, 300, 300] {
            hold.changed(now_us, 7);
            assert_eq!(hold.until_us(7) - now_us, expected_s * 1_000_000);
            now_us = hold.until_us(7);
        }
        hold.changed(now_us + 1_200_000_000, 7);
        assert_eq!(hold.hold_us(7), FIRST_US);
        assert_eq!(hold.until_us(8), 0);
    }
}
