//! Records that were received and are durable at their source go into the log here.

use std::collections::BTreeMap;

use penstock_storage::index::CellId;
use penstock_storage::io::{Block, Blocks};
use penstock_storage::key_home::KeyHome;
use penstock_storage::log::{Purpose, Room};
use penstock_storage::place::Lsn;
use penstock_storage::record::{OfParts, PartKind, PartView};
use penstock_storage::store::{Found, PREFETCH_KEYS_MAX};

use crate::replication::partition::{Applicable, Partition, Role};
use crate::replication::receiver::Partitions;
use crate::replication::record::parts_of;
use crate::replication::{LinkId, PartitionId};

use super::effects::{Effects, LinkAction};
use super::prefetch::{Prefetch, Waiter};
use super::receiver_link::ReceiverLink;
use super::replicas::Replicas;
use super::store_turn::StoreTurn;
use super::sweep::Sweeps;

/// Bytes of records that are applied in one turn, about: a commit that shares the frame waits for
/// them.
const APPLY_BYTES: usize = 256 << 10;

type ReceiverLinks = BTreeMap<LinkId, ReceiverLink>;

/// The order in which received records go into the log.
#[derive(Debug)]
pub(super) struct Applier {
    /// The partition that goes first, so that none waits while others are filled again and again.
    first: PartitionId,
    /// A record found the log full, and none was applied since.
    is_full: bool,
    /// What scans have brought.
    pub(super) sweeps: Sweeps,
    /// Bytes of keys that are read together at the end of a scan.
    sweep_bytes_max: usize,
}

/// What one turn may still apply.
struct Budget {
    bytes: usize,
    /// How many of the next records have their keys in the processor's caches.
    ahead: usize,
}

/// Records of a partition that came in one frame and were applied one behind the other.
#[derive(Default)]
struct Run {
    frame: u64,
    /// The last of them here.
    lsn: Lsn,
    count: u32,
}

/// Why a partition is left for now.
enum Stop {
    /// It waits for a read, or has no more that may be applied.
    Partition,
    /// Nothing more is applied in this turn.
    Turn,
}

impl Applier {
    /// Nothing was applied so far.
    pub(super) fn new(sweep_bytes_max: usize) -> Self {
        Applier {
            first: 0,
            is_full: false,
            sweeps: Sweeps::default(),
            sweep_bytes_max,
        }
    }

    /// Appends what was received and is durable at its source, in the order of each partition.
    /// Diverged records of the partitions in `is_searched` are looked for.
    pub(super) fn apply<P: Blocks<Block = B>, B: Block, H: Fn(&[u8]) -> u32>(
        &mut self,
        turn: &mut StoreTurn<'_, P, H>,
        replicas: &mut Replicas<B>,
        receivers: &mut ReceiverLinks,
        is_searched: impl Fn(PartitionId) -> bool,
    ) {
        let mut budget = Budget {
            bytes: APPLY_BYTES,
            ahead: 0,
        };
        let holding = replicas.partitions.summary().holding();
        let mut numbers: Vec<PartitionId> = holding.iter().collect();
        let first = numbers.partition_point(|number| *number < self.first);
        numbers.rotate_left(first);
        for (at, &number) in numbers.iter().enumerate() {
            // Diverged records in an inherited log would not be rewritten once something supersedes
            // them, and would vanish with that log.
            if turn.store.cleaning().inheritance().is_there() && is_searched(number) {
                continue;
            }
            let next = &numbers[at..];
            let stop = self.apply_partition(next, &mut budget, turn, replicas, receivers);
            if matches!(stop, Stop::Turn) {
                return;
            }
        }
    }

    /// Appends the records of the first of these partitions.
    fn apply_partition<P: Blocks<Block = B>, B: Block, H: Fn(&[u8]) -> u32>(
        &mut self,
        numbers: &[PartitionId],
        budget: &mut Budget,
        turn: &mut StoreTurn<'_, P, H>,
        replicas: &mut Replicas<B>,
        receivers: &mut ReceiverLinks,
    ) -> Stop {
        let number = numbers[0];
        let (link, announced) = announced(&replicas.partitions[&number], receivers);
        let mut run = Run::default();
        let stop = loop {
            let Some(applicable) = replicas.partitions[&number].applicable(announced) else {
                break Stop::Partition;
            };
            if budget.bytes == 0 {
                self.first = number + 1;
                break Stop::Turn;
            }
            if budget.ahead == 0 {
                budget.ahead = prefetch(numbers, &replicas.partitions, receivers, turn);
            }
            let Replicas {
                prefetch, effects, ..
            } = replicas;
            let applied = match applicable {
                Applicable::Record {
                    bytes, is_dense, ..
                } => {
                    budget.ahead = budget.ahead.saturating_sub(1);
                    let (length, record) = (bytes.len(), (bytes, is_dense));
                    let appended = self.append(number, record, turn, prefetch, effects);
                    appended.map(|lsn| {
                        budget.bytes = budget.bytes.saturating_sub(length);
                        let state = replicas.partitions.get_mut(&number).expect("just seen");
                        (state.record_applied(), lsn)
                    })
                }
                Applicable::Join { time_ms } => self.join(number, time_ms, turn, replicas),
            };
            let (frame, lsn) = match applied {
                Ok(applied) => applied,
                Err(stop) => break stop,
            };
            turn.want_durable(lsn);
            replicas.effects.progressed();
            if frame != run.frame {
                std::mem::take(&mut run).note(link, number, receivers);
            }
            run = Run {
                frame,
                lsn,
                count: run.count + 1,
            };
        };
        run.note(link, number, receivers);
        stop
    }

    /// Appends a record to the log, if nothing of it is cold and the log has room for it.
    fn append<P: Blocks<Block = B>, B: Block, H: Fn(&[u8]) -> u32>(
        &mut self,
        number: PartitionId,
        (bytes, is_dense): (&[u8], bool),
        turn: &mut StoreTurn<'_, P, H>,
        prefetch: &mut Prefetch<B>,
        effects: &mut Effects,
    ) -> Result<Lsn, Stop> {
        // The parts were checked when they came.
        let first = PartView::again(bytes);
        let all;
        let parts = match first.count() {
            1 => std::slice::from_ref(&first),
            _ => {
                all = parts_of(bytes);
                &all
            }
        };
        let mut keys = OfParts::of(&[][..], parts.len());
        for (key, part) in keys.iter_mut().zip(parts) {
            *key = part.key();
        }
        let keys = (first.slot(), &keys[..]);
        if !prefetch.keys(Waiter::Apply(number), keys, turn, effects) {
            return Err(Stop::Partition);
        }
        // A key that a scan swept comes from another node, which has it: once the sweep is durable.
        let is_swept = |part| {
            turn.store
                .keys()
                .is_sweeping(part, (turn.hash_of)(part.key()))
        };
        if !is_dense && parts.iter().any(is_swept) {
            return Err(Stop::Partition);
        }
        let room = turn.store.room_for(Purpose::Grow, bytes.len());
        if room != Room::Yes {
            self.found_no_room(room, effects);
            return Err(Stop::Turn);
        }
        if std::mem::take(&mut self.is_full) {
            effects.ask(LinkAction::Room { is_there: true });
        }
        let now_us = turn.time.now_us;
        let swept = swept_value(parts, is_dense, turn);
        if let Some((home, id)) = swept {
            let lsn = turn.store.sweep(now_us, home, id).ok_or(Stop::Partition)?;
            effects.counters_mut().applied += 1;
            effects.counters_mut().swept += 1;
            self.sweeps.swept(lsn);
            return Ok(lsn);
        }
        effects.counters_mut().applied += 1;
        let lsn = turn.store.apply(now_us, parts, is_dense, turn.hash_of);
        Ok(lsn.unwrap_or(turn.store.log().appended()))
    }

    /// The first received record has no room in the log.
    #[cold]
    fn found_no_room(&mut self, room: Room, effects: &mut Effects) {
        if room == Room::Full {
            effects.counters_mut().found_full += 1;
            if !std::mem::replace(&mut self.is_full, true) {
                effects.ask(LinkAction::Room { is_there: false });
            }
        }
    }

    /// All up to a JOIN is applied: the partition is whole once what a scan did not bring is out.
    fn join<P: Blocks<Block = B>, B: Block, H: Fn(&[u8]) -> u32>(
        &mut self,
        number: PartitionId,
        time_ms: u64,
        turn: &mut StoreTurn<'_, P, H>,
        replicas: &mut Replicas<B>,
    ) -> Result<(u64, Lsn), Stop> {
        let state = replicas.partitions.get_mut(&number).expect("just seen");
        if state.facts().scan_from.is_some() {
            let (prefetch, effects) = (&mut replicas.prefetch, &mut replicas.effects);
            let bytes_max = self.sweep_bytes_max;
            if !self.sweeps.step(number, bytes_max, turn, prefetch, effects) {
                return Err(Stop::Partition);
            }
            // A swept key stays in the index until that is durable. What is written to it then must
            // not seem to have superseded its value.
            let is_durable = self.sweeps.are_durable(turn.store.log().durable());
            if turn.store.keyspaces().keeps_versions() && !is_durable {
                return Err(Stop::Partition);
            }
            turn.store.settle_copies();
        }
        if !state.is_whole() {
            if !turn.store.data_mut().forget_past(usize::from(number)) {
                replicas.effects.progressed();
                return Err(Stop::Partition);
            }
            turn.store.data_mut().carry_time(time_ms);
        }
        let time_ms = turn.store.data().time_ms();
        let mut notes = turn.notes();
        if !notes.has_room() {
            return Err(Stop::Turn);
        }
        self.sweeps.end(number);
        let frame = state.join(time_ms, &mut notes);
        Ok((frame, turn.store.log().appended()))
    }
}

impl Run {
    /// Notes at the link of the partition that these are applied.
    fn note(self, link: Option<LinkId>, number: PartitionId, receivers: &mut ReceiverLinks) {
        let receiver = link.and_then(|link| receivers.get_mut(&link));
        if let Some(it) = receiver.filter(|_| self.count > 0) {
            it.receiver
                .applied(number, self.frame, self.count, self.lsn);
        }
    }
}

/// The value that a record of a scan takes out although it has the version of that value: its
/// source has swept the value, and the ring there held it before the deletion. A value that has
/// expired goes by itself.
fn swept_value<P: Blocks, H: Fn(&[u8]) -> u32>(
    parts: &[PartView<'_>],
    is_dense: bool,
    turn: &StoreTurn<'_, P, H>,
) -> Option<(KeyHome, CellId)> {
    let [part] = parts else {
        return None;
    };
    if is_dense || part.kind() != PartKind::Tombstone {
        return None;
    }
    let home = KeyHome::new(part.slot(), (turn.hash_of)(part.key()));
    let store = &*turn.store;
    match store.keys().find(home.slot, home.hash, part.key()) {
        Found::Cached(id) if store.keys().version(id) == part.version() => {
            store.data().exists(id).then_some((home, id))
        }
        _ => None,
    }
}

/// By which link a partition is shipped, and which frames of that link are durable at the source.
fn announced(state: &Partition, receivers: &ReceiverLinks) -> (Option<LinkId>, u64) {
    let link = match state.role() {
        Role::Member(member) => Some(member.link),
        _ => None,
    };
    let receiver = link.and_then(|link| receivers.get(&link));
    (link, receiver.map_or(0, |it| it.receiver.announced()))
}

/// Loads what the first records of these partitions need that may be applied. Each record alone
/// would wait for memory several times. Returns how many records that are.
fn prefetch<P: Blocks, H: Fn(&[u8]) -> u32>(
    numbers: &[PartitionId],
    partitions: &Partitions,
    receivers: &ReceiverLinks,
    turn: &StoreTurn<'_, P, H>,
) -> usize {
    let mut homes = [KeyHome::default(); PREFETCH_KEYS_MAX];
    let mut count = 0;
    let records = numbers.iter().flat_map(|number| {
        let state = &partitions[number];
        let (_, announced) = announced(state, receivers);
        state.upcoming(announced)
    });
    let guesses = records.filter_map(PartView::guess);
    for (home, (slot, key)) in homes.iter_mut().zip(guesses) {
        let hash = (turn.hash_of)(key);
        *home = KeyHome { slot, hash };
        count += 1;
    }
    turn.store.keys().prefetch(&homes[..count]);
    count
}
