//! The IDENTITY that the segments of a directory prove, when the file itself is damaged.
//!
//! Every segment tells cluster, node, log and incarnation, and every part tells its slot. What that
//! does not prove is refused. Above all, logs of an earlier number of shards may be inherited or
//! void, and nothing but IDENTITY says which: so all logs must be of one generation. They are if
//! each was still written in an incarnation in which the next one was already there, because a
//! change of the number of shards ends all logs before it begins the new ones.

use std::collections::BTreeMap;
use std::fmt;

use penstock_shard::Topology;
use penstock_shard::topology::SHARDS_MAX;
use penstock_storage::inspect::inspect;
use penstock_storage::io::SegmentSource;
use penstock_storage::recovery::{Event, RecoveryError};
use penstock_storage::segment::Owner;

use crate::directory::identity::{Identity, TERMS_SKIPPED};

/// Why no IDENTITY can be proved.
#[derive(Debug)]
pub enum RebuildError {
    /// The segments are damaged or cannot be read.
    Damaged(RecoveryError),
    /// There is no segment.
    NoSegment,
    /// Segments of two nodes are there; the log of one of each.
    Owners(u64, u64),
    /// Two logs may be of different numbers of shards.
    Generations {
        /// The log before.
        older: u64,
        /// The one behind it.
        newer: u64,
    },
    /// No number of shards gives each log the slots that it holds.
    Slots,
}

impl fmt::Display for RebuildError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RebuildError::Damaged(error) => write!(out, "its segments are damaged too: {error}"),
            RebuildError::NoSegment => write!(out, "there is no segment that tells whose it is"),
            RebuildError::Owners(one, other) => {
                write!(out, "logs {one} and {other} are of different nodes")
            }
            RebuildError::Generations { older, newer } => write!(
                out,
                "logs {older} and {newer} may be of different numbers of shards, and nothing else \
                 tells whether log {older} still counts"
            ),
            RebuildError::Slots => write!(
                out,
                "no number of shards gives each log the slots that it holds"
            ),
        }
    }
}

/// What the segments tell of one log.
struct Seen {
    first_incarnation: u64,
    last_incarnation: u64,
    /// The lowest and the highest slot of its parts.
    slots: Option<(u16, u16)>,
}

/// What IDENTITY must say for the segments of `source` to be served as before. Reads all of them
/// and changes nothing. The incarnation lies far behind all that the segments tell; what only
/// IDENTITY told is left unknown: the secret of the key hash, and with it snapshots, and when the
/// directory was made.
///
/// # Errors
/// [`RebuildError`].
pub fn rebuild(source: &mut impl SegmentSource) -> Result<Identity, RebuildError> {
    let mut logs: BTreeMap<u64, Seen> = BTreeMap::new();
    let mut owner: Option<(Owner, u64)> = None;
    let mut stranger = None;
    let (mut segment_bytes, mut value_bytes) = (0, 1);
    let mut log_id = 0;
    let mut report = inspect(source, None, &mut |event| match event {
        Event::Segment(segment) => {
            let header = &segment.header;
            log_id = header.log_id;
            let (first, first_log) = *owner.get_or_insert((header.owner, log_id));
            if first != header.owner {
                stranger = Some((first_log, log_id));
            }
            segment_bytes = segment_bytes.max(header.segment_bytes);
            let seen = logs.entry(log_id).or_insert(Seen {
                first_incarnation: header.incarnation,
                last_incarnation: header.incarnation,
                slots: None,
            });
            seen.first_incarnation = seen.first_incarnation.min(header.incarnation);
            seen.last_incarnation = seen.last_incarnation.max(header.incarnation);
        }
        Event::Frame(..) | Event::Contents(_) | Event::Prefetch(_) => {}
        Event::Part(part, _) => {
            value_bytes = value_bytes.max(part.value().len());
            let seen = logs.get_mut(&log_id).expect("its segment came first");
            let (low, high) = seen.slots.unwrap_or((part.slot(), part.slot()));
            seen.slots = Some((low.min(part.slot()), high.max(part.slot())));
        }
    });
    if !report.damage.is_empty() {
        return Err(RebuildError::Damaged(report.damage.swap_remove(0)));
    }
    if let Some((one, other)) = stranger {
        return Err(RebuildError::Owners(one, other));
    }
    let Some((owner, _)) = owner else {
        return Err(RebuildError::NoSegment);
    };
    for ((&older, before), (&newer, behind)) in logs.iter().zip(logs.iter().skip(1)) {
        if before.last_incarnation < behind.first_incarnation {
            return Err(RebuildError::Generations { older, newer });
        }
    }
    let (first_log, shards) = laid_out(&logs).ok_or(RebuildError::Slots)?;
    let incarnations = logs.values().map(|seen| seen.last_incarnation);
    Ok(Identity {
        cluster_id: owner.cluster_id,
        node_id: owner.node_id,
        incarnation: incarnations.fold(0, u64::max).saturating_add(TERMS_SKIPPED),
        log_count: u32::from(shards),
        first_log,
        inherited: Vec::new(),
        segment_bytes,
        // No larger one is there, whatever limit there was.
        value_bytes_max: u32::try_from(value_bytes).expect("values of the format are shorter"),
        created_ms: 0,
        hash_seed: 0,
    })
}

/// The first log and the fewest shards with which each log holds only slots of its shard. Where a
/// part belongs is all that the number of shards decides, so any such number serves the same data.
fn laid_out(logs: &BTreeMap<u64, Seen>) -> Option<(u64, u16)> {
    let (&least, &last) = (logs.keys().next()?, logs.keys().next_back()?);
    (1..=SHARDS_MAX).find_map(|shards| {
        let topology = Topology::new(shards);
        let lowest_first = (last + 1).saturating_sub(u64::from(shards)).max(1);
        let fits = |first: &u64| {
            logs.iter().all(|(&log_id, seen)| {
                seen.slots.is_none_or(|(low, high)| {
                    let shard = log_id - first;
                    u64::from(topology.owner(low)) == shard
                        && u64::from(topology.owner(high)) == shard
                })
            })
        };
        let first = (lowest_first..=least).find(fits)?;
        Some((first, shards))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holding(logs: &[(u64, Option<(u16, u16)>)]) -> BTreeMap<u64, Seen> {
        let seen = |&(log_id, slots)| {
            let seen = Seen {
                first_incarnation: 1,
                last_incarnation: 1,
                slots,
            };
            (log_id, seen)
        };
        logs.iter().map(seen).collect()
    }

    #[test]
    fn shards_are_the_fewest_that_give_each_log_its_slots() {
        for shards in [1, 2, 3, 7, 255, 256] {
            let topology = Topology::new(shards);
            for first in [1, 9] {
                let logs: Vec<_> = topology
                    .ranges(|_| 0)
                    .iter()
                    .map(|range| {
                        let log_id = first + u64::from(range.shard);
                        (log_id, Some((range.first, range.last)))
                    })
                    .collect();
                assert_eq!(laid_out(&holding(&logs)), Some((first, shards)));
            }
        }
    }

    #[test]
    fn a_log_that_is_not_there_or_holds_nothing_leaves_a_number_that_fits() {
        let of_three = Topology::new(3).ranges(|_| 0);
        let slots = |shard: usize| Some((of_three[shard].first, of_three[shard].last));
        assert_eq!(laid_out(&holding(&[(3, slots(2))])), Some((3, 1)));
        let ends = holding(&[(1, slots(0)), (3, slots(2))]);
        assert_eq!(laid_out(&ends), Some((1, 3)));
        let last_two = holding(&[(2, slots(1)), (3, slots(2))]);
        assert_eq!(laid_out(&last_two), Some((1, 3)));
        assert_eq!(laid_out(&holding(&[(4, None)])), Some((4, 1)));
        assert_eq!(laid_out(&holding(&[(1, None), (2, None)])), Some((1, 2)));
    }

    #[test]
    fn slots_that_no_number_of_shards_explains_are_refused() {
        assert_eq!(
            laid_out(&holding(&[(1, Some((0, 9))), (2, Some((0, 9)))])),
            None
        );
        let all = Some((0, 16_383));
        assert_eq!(laid_out(&holding(&[(1, all), (2, None)])), None);
    }
}
