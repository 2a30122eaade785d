//! The end of a scan: what is here and did not come is taken out.

use std::collections::BTreeMap;

use penstock_net::link::message::LINK_PARTITIONS;
use penstock_net::link::{LinkMessage, Mode};
use penstock_storage::index::Home;
use penstock_storage::io::{Block, Blocks, Io};
use penstock_storage::log::{Purpose, Room};
use penstock_storage::packed_place::Cursor;
use penstock_storage::record::{PartKind, PartView};
use penstock_storage::store::Store;
use penstock_storage::version::{SLOTS, Version};

use crate::replication::PartitionId;
use crate::replication::planted::{Bug, is_planted};
use crate::replication::record::records;

use super::prefetch::{Prefetcher, Waiter};
use super::{LinkSet, LinkTime, parts_of};

/// Keys that are held against what a scan has brought, at a time.
const SWEEP_KEYS: usize = 32;

/// What a scan has brought, to know what it has not.
#[derive(Debug, Default)]
pub(super) struct Sweep {
    /// Keys that have come since it began: the newest version of each, and whether that is a value. A deletion
    /// may have the version of a value: the source has swept that one itself.
    seen: BTreeMap<Vec<u8>, (Version, bool)>,
    /// How far the keys that are here were held against that; none at the end.
    at: Option<Cursor>,
    /// How many of them are looked at together from there on.
    batch_keys: Option<usize>,
    has_begun: bool,
    /// JOIN has come. What comes behind it the source may still lose, and it says nothing of what the scan has brought.
    has_ended: bool,
}

impl Sweep {
    fn note(&mut self, part: &PartView<'_>) {
        if self.has_ended {
            return;
        }
        let (version, is_put) = (part.version(), part.kind() == PartKind::Put);
        let known = self.seen.get(part.key());
        let is_news =
            known.is_none_or(|&(other, _)| version > other || version == other && !is_put);
        if is_news {
            self.seen.insert(part.key().to_vec(), (version, is_put));
        }
    }

    /// Whether the source has a value of this key.
    fn has_come(&self, key: &[u8]) -> bool {
        self.seen.get(key).is_some_and(|&(_, is_put)| is_put)
    }
}

/// Keeps account of what a scan brings. What comes of a partition that the link does not have any more was dropped, and must
/// neither end nor fill the account of the link that has it.
pub(super) fn note_scan(
    sweeps: &mut BTreeMap<PartitionId, Sweep>,
    message: &LinkMessage<'_>,
    is_of_link: impl Fn(PartitionId) -> bool,
    is_there: impl Fn(PartitionId) -> bool,
) {
    match message {
        LinkMessage::Begin(begin) if is_of_link(begin.partition) => {
            sweeps.remove(&begin.partition);
            if begin.mode == Mode::Scan && is_there(begin.partition) {
                sweeps.insert(begin.partition, Sweep::default());
            }
        }
        LinkMessage::Join(join) if is_of_link(join.partition) => {
            if let Some(sweep) = sweeps.get_mut(&join.partition) {
                sweep.has_ended = true;
            }
        }
        LinkMessage::Records(shipped) if !sweeps.is_empty() => {
            for record in records(shipped.bytes).map_while(Result::ok) {
                if is_of_link(record.partition)
                    && let Some(sweep) = sweeps.get_mut(&record.partition)
                {
                    for part in parts_of(record.bytes) {
                        sweep.note(&part);
                    }
                }
            }
        }
        _ => {}
    }
}

impl<B: Block> LinkSet<B> {
    /// At the end of a scan: takes out what is here and did not come, for it was deleted so long ago that
    /// nobody has the deletion any more. Whether that is done.
    pub(super) fn sweep<P: Blocks<Block = B>>(
        &mut self,
        time: LinkTime,
        number: PartitionId,
        store: &mut Store<P>,
        hash_of: &impl Fn(&[u8]) -> u32,
        io: &mut Vec<Io<B>>,
    ) -> bool {
        let Some(sweep) = self.sweeps.get_mut(&number) else {
            return true;
        };
        let slots = SLOTS / LINK_PARTITIONS;
        let (first, last) = (number * slots, number * slots + (slots - 1));
        if !std::mem::replace(&mut sweep.has_begun, true) && !is_planted(Bug::SweepForgotten) {
            sweep.at = Some(Cursor {
                slot: first,
                hash: 0,
            });
        }
        let Some(at) = sweep.at else {
            return true;
        };
        // All that is read of a batch is in memory at once, and other reads of the shard need some, too.
        let bytes_max = self.config.pending_bytes_max / 8;
        let keys = *sweep.batch_keys.get_or_insert_with(|| {
            let (mut keys, mut bytes) = (0, 0);
            store.homes_from(at, last, SWEEP_KEYS, &mut |_, found| {
                if let Home::Disk(packed) = found {
                    bytes += packed.place().map_or(0, |place| place.bytes as usize);
                }
                keys += usize::from(keys == 0 || bytes <= bytes_max);
            });
            keys.max(1)
        });
        let warmer = Prefetcher {
            warming: &mut self.warming,
            reads: &mut self.reads,
            actions: &mut self.actions,
        };
        let cold_of = |store: &Store<P>| {
            let mut cold = Vec::new();
            store.homes_from(at, last, keys, &mut |home, found| {
                if let Home::Disk(packed) = found {
                    cold.extend(packed.place().map(|place| (home, place)));
                }
            });
            cold
        };
        if !warmer.warm_all(Waiter::Apply(number), cold_of, store, hash_of, io) {
            return false;
        }
        let mut gone = Vec::new();
        let next = store.homes_from(at, last, keys, &mut |home, found| {
            if let Home::Memory(id) = found
                && !store.cell(id).is_deleted()
                && !sweep.has_come(store.cell(id).key())
            {
                gone.push((home, id));
            }
        });
        for (home, id) in gone {
            let key_bytes = store.cell(id).key().len();
            if store.room(Purpose::Keep, key_bytes, 0, false) != Room::Yes {
                return false;
            }
            let Some(lsn) = store.sweep(time.now_us, home, id) else {
                return false;
            };
            self.is_due = true;
            store.log_mut().want_durable(lsn);
            self.counters.swept += 1;
        }
        (sweep.at, sweep.batch_keys) = (next, None);
        self.is_due = true;
        next.is_none()
    }
}

#[cfg(test)]
mod tests {
    use penstock_net::link::message::{EpochEntry, Epochs};
    use penstock_net::link::{Begin, Join, Position, Records};

    use super::*;
    use crate::replication::tests::{encoded, encoded_deletion, keys_of_partition};

    #[test]
    fn what_comes_behind_the_join_of_a_scan_says_nothing_of_what_the_scan_has_brought() {
        let keys = keys_of_partition(7, 2);
        let at = |sequence| Position {
            epoch: 256,
            sequence,
        };
        let begin = LinkMessage::Begin(Begin {
            partition: 7,
            mode: Mode::Scan,
            epoch: 256,
            from: at(0),
            epochs: Epochs::default(),
        });
        let join = LinkMessage::Join(Join {
            partition: 7,
            at: at(1_000),
        });
        // One key has come and is deleted behind it; another one, which was deleted, is written again.
        let came = encoded(at(5), &[(&keys[0], 1)]);
        let deleted = encoded_deletion(at(1_001), &keys[0]);
        let written = encoded(at(1_002), &[(&keys[1], 1)]);
        let shipped = |bytes| LinkMessage::Records(Records { count: 1, bytes });
        let mut sweeps = BTreeMap::new();
        for message in [
            begin,
            shipped(&came),
            join,
            shipped(&deleted),
            shipped(&written),
        ] {
            note_scan(&mut sweeps, &message, |_| true, |_| true);
        }
        let has_come = |key: &Vec<u8>| sweeps[&7].has_come(key);
        assert_eq!((has_come(&keys[0]), has_come(&keys[1])), (true, false));
    }

    #[test]
    fn what_comes_by_a_link_that_has_lost_the_partition_is_no_part_of_the_scan_of_another() {
        let keys = keys_of_partition(7, 2);
        let at = |sequence| Position {
            epoch: 256,
            sequence,
        };
        let mut entries = Vec::new();
        let begin = LinkMessage::Begin(Begin {
            partition: 7,
            mode: Mode::Scan,
            epoch: 256,
            from: at(0),
            epochs: Epochs::write(
                &mut entries,
                [EpochEntry {
                    epoch: 256,
                    start_id: 1,
                    first: 1,
                }],
            ),
        });
        let bytes = [
            encoded(at(5), &[(&keys[0], 1)]),
            encoded(at(6), &[(&keys[1], 1)]),
        ];
        let shipped = |bytes| LinkMessage::Records(Records { count: 1, bytes });
        let mut sweeps = BTreeMap::new();
        let mut note = |message: &LinkMessage<'_>, is_of_link| {
            note_scan(&mut sweeps, message, |_| is_of_link, |_| true);
            let seen = |key: &Vec<u8>| sweeps.get(&7).is_some_and(|it| it.has_come(key));
            (seen(&keys[0]), seen(&keys[1]))
        };
        assert_eq!(note(&begin, true), (false, false));
        assert_eq!(note(&shipped(&bytes[0]), true), (true, false));
        assert_eq!(note(&shipped(&bytes[1]), false), (true, false));
        assert_eq!(note(&begin, false), (true, false));
        assert_eq!(note(&shipped(&bytes[1]), true), (true, true));
    }
}
