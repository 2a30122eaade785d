//! The notice that a log becomes full, before it is.

/// People are told when so much of what makes the log full counts, in percent.
const TOLD_PERCENT: [u64; 2] = [80, 90];
/// They are told once more when it has been less by so many points in between.
const AGAIN_POINTS: u64 = 5;

/// How much of what the disk carries is told.
#[derive(Debug, Default)]
pub(super) struct FillNotice {
    /// How many of [`TOLD_PERCENT`] are told.
    told: usize,
}

impl FillNotice {
    /// The percentage to be told now: `counting_bytes` of records count, and with `most_bytes` the
    /// log is full.
    pub(super) fn due(&mut self, counting_bytes: u64, most_bytes: u64) -> Option<u64> {
        let percent = counting_bytes.saturating_mul(100) / most_bytes.max(1);
        let reached = |percent: u64| TOLD_PERCENT.iter().filter(|&&it| it <= percent).count();
        let before = self.told.min(reached(percent + AGAIN_POINTS));
        self.told = before.max(reached(percent));
        (self.told > before).then_some(percent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_share_is_told_once_and_again_when_it_was_well_below() {
        let mut notice = FillNotice::default();
        let mut told = |percents: &[u64]| -> Vec<u64> {
            let due = percents.iter().filter_map(|&it| notice.due(it, 100));
            due.collect()
        };
        assert_eq!(told(&[0, 50, 79, 80, 81, 79, 80]), [80]);
        assert_eq!(
            told(&[76, 89, 80]),
            [0_u64; 0],
            "it went up and down a little"
        );
        assert_eq!(told(&[74, 80]), [80]);
        assert_eq!(told(&[90, 86, 95, 84, 91]), [90, 91]);
        assert_eq!(told(&[10, 99]), [99], "two at once are one");
    }
}
