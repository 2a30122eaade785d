//! How much data a limit of the disk carries: the rule that operators size a disk by.
//!
//! [`SEGMENTS_BESIDE`] segments of a shard's share hold no data: the open one, the spares, one that
//! is on its way back, and the loss by rounding to whole segments. The rest holds what counts at
//! [`DiskShare::space_percent_max`], so that cleaning always finds a segment that pays.

use crate::types::io::BLOCK_BYTES;

/// Segments of each shard that a limit must have room for beside the data.
pub const SEGMENTS_BESIDE: u64 = 6;

/// Bytes of a segment where nothing asks for another length.
pub const SEGMENT_BYTES_USUAL: u64 = 64 << 20;

/// Bytes of a segment of a log of at most `log_bytes_max` bytes (0: without a limit) whose segments
/// have `least_bytes` at least: [`SEGMENT_BYTES_USUAL`], or as much less in powers of two that
/// [`SEGMENTS_BESIDE`] of them are at most a quarter of the limit.
#[must_use]
pub fn segment_bytes_within(log_bytes_max: u64, least_bytes: u64) -> u64 {
    let most = match log_bytes_max {
        0 => SEGMENT_BYTES_USUAL,
        limit => (limit / (4 * SEGMENTS_BESIDE)).clamp(1, SEGMENT_BYTES_USUAL),
    };
    (1 << most.ilog2()).max(least_bytes)
}

/// Bytes of a segment where `asked_bytes` were asked for: as much less that twice
/// [`SEGMENTS_BESIDE`] of them have room in `log_bytes` bytes, or `least_bytes` if that is more.
/// With fewer segments most of the room would hold no data, and the rest of it no segment.
#[must_use]
pub fn segment_bytes_fitting(asked_bytes: u64, log_bytes: u64, least_bytes: u64) -> u64 {
    let share = log_bytes / (2 * SEGMENTS_BESIDE);
    let whole_blocks = share - share % BLOCK_BYTES as u64;
    asked_bytes
        .min(whole_blocks)
        .max(least_bytes.min(asked_bytes))
}

/// What one shard may take of the disk, and in which pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskShare {
    /// Bytes of its segments, at most.
    pub log_bytes_max: u64,
    /// Bytes of a segment.
    pub segment_bytes: u64,
    /// Bytes of segments for a hundred bytes that count, more than 100.
    pub space_percent_max: u32,
}

impl DiskShare {
    /// Bytes of records that may count at a time without an answer of FULL, if all are overwritten
    /// alike: key, value and 56 bytes for each, rounded up to 8. 0 if there is room for none.
    #[must_use]
    pub fn live_bytes_max(&self) -> u64 {
        let beside = SEGMENTS_BESIDE * self.segment_bytes;
        percent_of(
            self.log_bytes_max.saturating_sub(beside),
            100,
            self.space_percent_max.into(),
        )
    }

    /// The least `log_bytes_max` that carries so many bytes of records.
    #[must_use]
    pub fn log_bytes_for(&self, live_bytes: u64) -> u64 {
        let beside = SEGMENTS_BESIDE * self.segment_bytes;
        let percent = u128::from(self.space_percent_max);
        let data = (u128::from(live_bytes) * percent).div_ceil(100);
        beside.saturating_add(u64::try_from(data).unwrap_or(u64::MAX))
    }
}

/// `bytes` times `of` over `over`.
pub(crate) fn percent_of(bytes: u64, of: u64, over: u64) -> u64 {
    let scaled = u128::from(bytes) * u128::from(of) / u128::from(over);
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn the_rule_and_its_inverse_agree() {
        for (segment_bytes, space_percent_max) in
            [(4 * MIB, 140), (64 * MIB, 140), (MIB, 101), (16 * MIB, 300)]
        {
            for live_bytes in [0, 1, 99, 100, 101, 7 * MIB, 1 << 40] {
                let share = DiskShare {
                    log_bytes_max: 0,
                    segment_bytes,
                    space_percent_max,
                };
                let log_bytes_max = share.log_bytes_for(live_bytes);
                let carries = |log_bytes_max| {
                    DiskShare {
                        log_bytes_max,
                        ..share
                    }
                    .live_bytes_max()
                };
                assert!(carries(log_bytes_max) >= live_bytes);
                assert!(live_bytes == 0 || carries(log_bytes_max - 1) < live_bytes);
            }
        }
    }

    #[test]
    fn segments_are_as_short_as_a_small_limit_wants_and_no_shorter_than_values_need() {
        let least_bytes = 1044 << 10;
        for (log_bytes_max, segment_bytes) in [
            (0, 64 * MIB),
            (1 << 50, 64 * MIB),
            (1536 * MIB, 64 * MIB),
            (1536 * MIB - 1, 32 * MIB),
            (256 * MIB, 8 * MIB),
            (24 * MIB, least_bytes),
            (1, least_bytes),
        ] {
            let found = segment_bytes_within(log_bytes_max, least_bytes);
            assert_eq!(found, segment_bytes, "{log_bytes_max}");
        }
        // Two shards within 512 MiB.
        let share = DiskShare {
            log_bytes_max: 256 * MIB,
            segment_bytes: segment_bytes_within(256 * MIB, least_bytes),
            space_percent_max: 140,
        };
        assert_eq!(share.live_bytes_max() / MIB, 148);
    }

    #[test]
    fn segments_that_were_asked_for_are_cut_where_few_of_them_have_room() {
        let least_bytes = 1044 << 10;
        for (asked_bytes, log_bytes, segment_bytes) in [
            (64 * MIB, 768 * MIB, 64 * MIB),
            (64 * MIB, 767 * MIB, 64 * MIB - 88 * 1024),
            (9 * MIB, 30 * MIB, 5 << 19),
            (9 * MIB, MIB, least_bytes),
            (MIB, MIB, MIB),
        ] {
            let found = segment_bytes_fitting(asked_bytes, log_bytes, least_bytes);
            assert_eq!(found, segment_bytes, "{asked_bytes} in {log_bytes}");
            assert_eq!(found % BLOCK_BYTES as u64, 0);
        }
    }

    #[test]
    fn a_limit_of_few_segments_carries_nothing() {
        let share = DiskShare {
            log_bytes_max: 6 * 64 * MIB,
            segment_bytes: 64 * MIB,
            space_percent_max: 140,
        };
        assert_eq!(share.live_bytes_max(), 0);
        let more = DiskShare {
            log_bytes_max: 1536 * MIB,
            segment_bytes: 16 * MIB,
            ..share
        };
        assert_eq!(more.live_bytes_max() / MIB, 1028);
    }
}
