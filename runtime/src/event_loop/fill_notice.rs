//! The notice that a log becomes full, before it is.

use penstock_storage::cleaning::Fill;

/// A notice is due when so much of what makes the log full counts, in percent.
const NOTICE_PERCENT: [u64; 2] = [80, 90];
/// It is due once more when less counted in between, by so many points.
const AGAIN_POINTS: u64 = 5;

/// Which notices a log has had.
#[derive(Debug, Default)]
pub(super) struct FillNotice {
    /// How many of [`NOTICE_PERCENT`].
    given: usize,
}

impl FillNotice {
    /// The percentage of which a notice is due now.
    pub(super) fn due(&mut self, fill: Fill) -> Option<u64> {
        let percent = fill.counting_bytes.saturating_mul(100) / fill.counting_bytes_max.max(1);
        let reached = |percent| NOTICE_PERCENT.iter().filter(|&&it| it <= percent).count();
        let before = self
            .given
            .min(reached(percent.saturating_add(AGAIN_POINTS)));
        self.given = before.max(reached(percent));
        (self.given > before).then_some(percent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_share_is_reported_once_and_again_when_it_was_well_below() {
        let mut notice = FillNotice::default();
        let mut notices = |percents: &[u64]| -> Vec<u64> {
            let fills = percents.iter().map(|&counting_bytes| Fill {
                counting_bytes,
                counting_bytes_max: 100,
            });
            fills.filter_map(|fill| notice.due(fill)).collect()
        };
        assert_eq!(notices(&[0, 50, 79, 80, 81, 79, 80]), [80]);
        let little = notices(&[76, 89, 80]);
        assert_eq!(little, [0_u64; 0], "it went up and down a little");
        assert_eq!(notices(&[74, 80]), [80]);
        assert_eq!(notices(&[90, 86, 95, 84, 91]), [90, 91]);
        assert_eq!(notices(&[10, 99]), [99], "two at once are one");
    }
}
