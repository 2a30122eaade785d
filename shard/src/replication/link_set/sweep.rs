//! The end of a scan: keys that are here and did not come are taken out.

use std::collections::BTreeMap;

use penstock_net::link::message::LINK_PARTITIONS;
use penstock_net::link::{LinkMessage, Mode};
use penstock_storage::index::Home;
use penstock_storage::io::{Block, Blocks};
use penstock_storage::key_home::KeyHome;
use penstock_storage::log::{Purpose, Room};
use penstock_storage::place::Lsn;
use penstock_storage::record::{PartKind, PartView};
use penstock_storage::store::Store;
use penstock_storage::version::{SLOTS, Version};

use crate::replication::PartitionId;
use crate::replication::planted::{Bug, is_planted};
use crate::replication::record::{parts_of, records};

use super::effects::Effects;
use super::prefetch::{Prefetch, Waiter};
use super::store_turn::StoreTurn;

/// Keys that are compared with what a scan has brought, at a time.
const SWEEP_KEYS: usize = 32;

/// Partitions that are scanned although something of them is here.
#[derive(Debug, Default)]
pub(super) struct Sweeps {
    of: BTreeMap<PartitionId, Sweep>,
    /// The last record that took a key out, of whatever partition.
    last: Lsn,
}

/// What the scan of one partition has brought.
#[derive(Debug, Default)]
struct Sweep {
    /// Keys that have come since the scan began: the newest version of each, and whether that is a
    /// value. A deletion may have the version of a value: the source has swept that one itself.
    seen: BTreeMap<Vec<u8>, (Version, bool)>,
    /// How far the keys that are here were compared with `seen`; none at the end.
    at: Option<KeyHome>,
    /// How many keys from there on are compared together.
    batch_keys: Option<usize>,
    has_begun: bool,
    /// JOIN has come. The source may still lose records behind JOIN, and they say nothing of what
    /// the scan has brought.
    has_ended: bool,
}

impl Sweep {
    /// Where it goes on; `first` is the first slot of the partition.
    fn position(&mut self, first: u16) -> Option<KeyHome> {
        if !std::mem::replace(&mut self.has_begun, true) && !is_planted(Bug::SweepForgotten) {
            self.at = Some(KeyHome::new(first, 0));
        }
        self.at
    }

    /// How many keys are compared together: all that is read of a batch is in memory at once, and
    /// other reads of the shard need memory, too.
    fn batch_keys<P: Blocks>(
        &mut self,
        at: KeyHome,
        last: u16,
        bytes_max: usize,
        store: &Store<P>,
    ) -> usize {
        *self.batch_keys.get_or_insert_with(|| {
            let (mut keys, mut bytes) = (0, 0);
            store
                .keys()
                .homes_from(at, last, SWEEP_KEYS, &mut |_, found| {
                    if let Home::Disk(packed) = found {
                        bytes += packed.place().map_or(0, |place| place.bytes as usize);
                    }
                    keys += usize::from(keys == 0 || bytes <= bytes_max);
                });
            keys.max(1)
        })
    }

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

impl Sweeps {
    /// A key was taken out beside the sweep, with this record.
    pub(super) fn swept(&mut self, lsn: Lsn) {
        self.last = lsn;
    }

    /// Whether all keys that were taken out are gone for good, if the log is durable up to here.
    pub(super) fn are_durable(&self, durable: Lsn) -> bool {
        self.last <= durable
    }

    /// Notes what a scan brings. Records of a partition that the link has lost were dropped: they
    /// neither end nor fill the account of the link that has the partition.
    pub(super) fn note(
        &mut self,
        message: &LinkMessage<'_>,
        is_of_link: impl Fn(PartitionId) -> bool,
        is_there: impl Fn(PartitionId) -> bool,
    ) {
        match message {
            LinkMessage::Begin(begin) if is_of_link(begin.partition) => {
                self.end(begin.partition);
                if begin.mode == Mode::Scan && is_there(begin.partition) {
                    self.of.insert(begin.partition, Sweep::default());
                }
            }
            LinkMessage::Join(join) if is_of_link(join.partition) => {
                if let Some(sweep) = self.of.get_mut(&join.partition) {
                    sweep.has_ended = true;
                }
            }
            LinkMessage::Records(shipped) if !self.of.is_empty() => {
                for record in records(shipped.bytes).map_while(Result::ok) {
                    if is_of_link(record.partition)
                        && let Some(sweep) = self.of.get_mut(&record.partition)
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

    /// The scan of a partition is over.
    pub(super) fn end(&mut self, partition: PartitionId) {
        self.of.remove(&partition);
    }

    /// At the end of a scan: takes out the next keys that are here and did not come. They were
    /// deleted so long ago that nobody has the deletion any more. Whether all such keys are out.
    /// `bytes_max` bounds what is read together.
    pub(super) fn step<P: Blocks<Block = B>, B: Block, H: Fn(&[u8]) -> u32>(
        &mut self,
        number: PartitionId,
        bytes_max: usize,
        turn: &mut StoreTurn<'_, P, H>,
        prefetch: &mut Prefetch<B>,
        effects: &mut Effects,
    ) -> bool {
        let Some(sweep) = self.of.get_mut(&number) else {
            return true;
        };
        let slots = SLOTS / LINK_PARTITIONS;
        let (first, last) = (number * slots, number * slots + (slots - 1));
        let Some(at) = sweep.position(first) else {
            return true;
        };
        let keys = sweep.batch_keys(at, last, bytes_max, turn.store);
        let cold_of = |store: &Store<P>| {
            let mut cold = Vec::new();
            store.keys().homes_from(at, last, keys, &mut |home, found| {
                if let Home::Disk(packed) = found {
                    cold.extend(packed.place().map(|place| (home, place)));
                }
            });
            cold
        };
        if !prefetch.places(Waiter::Apply(number), cold_of, turn, effects) {
            return false;
        }
        let mut gone = Vec::new();
        let store = &*turn.store;
        let next = store.keys().homes_from(at, last, keys, &mut |home, found| {
            if let Home::Memory(id) = found
                && !store.keys().cell(id).is_deleted()
                && !sweep.has_come(store.keys().cell(id).key())
            {
                gone.push((home, id));
            }
        });
        for (home, id) in gone {
            let key_bytes = turn.store.keys().cell(id).key().len();
            if turn.store.room(Purpose::Keep, key_bytes, 0, false) != Room::Yes {
                return false;
            }
            let Some(lsn) = turn.store.sweep(turn.time.now_us, home, id) else {
                return false;
            };
            effects.progressed();
            turn.want_durable(lsn);
            self.last = lsn;
            effects.counters_mut().swept += 1;
        }
        (sweep.at, sweep.batch_keys) = (next, None);
        effects.progressed();
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
        // One key has come and is deleted behind it; another one, which was deleted, is written
        // again.
        let came = encoded(at(5), &[(&keys[0], 1)]);
        let deleted = encoded_deletion(at(1_001), &keys[0]);
        let written = encoded(at(1_002), &[(&keys[1], 1)]);
        let shipped = |bytes| LinkMessage::Records(Records { count: 1, bytes });
        let mut sweeps = Sweeps::default();
        for message in [
            begin,
            shipped(&came),
            join,
            shipped(&deleted),
            shipped(&written),
        ] {
            sweeps.note(&message, |_| true, |_| true);
        }
        let has_come = |key: &Vec<u8>| sweeps.of[&7].has_come(key);
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
        let mut sweeps = Sweeps::default();
        let mut note = |message: &LinkMessage<'_>, is_of_link| {
            sweeps.note(message, |_| is_of_link, |_| true);
            let seen = |key: &Vec<u8>| sweeps.of.get(&7).is_some_and(|it| it.has_come(key));
            (seen(&keys[0]), seen(&keys[1]))
        };
        assert_eq!(note(&begin, true), (false, false));
        assert_eq!(note(&shipped(&bytes[0]), true), (true, false));
        assert_eq!(note(&shipped(&bytes[1]), false), (true, false));
        assert_eq!(note(&begin, false), (true, false));
        assert_eq!(note(&shipped(&bytes[1]), true), (true, true));
    }
}
