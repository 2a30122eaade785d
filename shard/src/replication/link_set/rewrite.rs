//! Keys that are written anew: for a member that has diverged, or because the log has another
//! version of them than what is here.

use std::collections::{BTreeMap, VecDeque};

use penstock_net::link::Position;
use penstock_net::slot::slot_of;
use penstock_storage::io::{Block, Blocks};
use penstock_storage::key_home::KeyHome;
use penstock_storage::keyspace::{SETTINGS_BYTES, Settings, prefix_of};
use penstock_storage::log::{Purpose, Room};
use penstock_storage::place::Lsn;
use penstock_storage::record::{KindedValue, part_bytes};
use penstock_storage::store::{Found, Store};
use penstock_storage::token::TokenAnswer;
use penstock_storage::version::partition_of;

use crate::replication::partition::Partition;
use crate::replication::record::position_of;
use crate::replication::{LinkId, PartitionId};

use super::effects::Effects;
use super::prefetch::{Prefetch, Waiter};
use super::replicas::Replicas;
use super::sender_link::SenderLink;
use super::store_turn::StoreTurn;

/// Keys that are written anew in one turn.
const REWRITE_KEYS: usize = 64;

/// The partition of a rewrite, and the link by which a member has asked for it; without a link this
/// node writes the keys of its own diverged records.
type RewriteId = (PartitionId, Option<LinkId>);

/// Rewrites that are not finished.
#[derive(Debug, Default)]
pub(super) struct Rewrites {
    under_way: BTreeMap<RewriteId, Rewrite>,
}

/// The keys of one rewrite.
#[derive(Debug)]
struct Rewrite {
    keys: VecDeque<Vec<u8>>,
    /// The last record that was written for it.
    last: (Position, Lsn),
}

impl Rewrites {
    /// Writes these keys anew in the next turns. `applied` is the last record of the partition.
    pub(super) fn begin(
        &mut self,
        partition: PartitionId,
        link: Option<LinkId>,
        keys: VecDeque<Vec<u8>>,
        applied: Position,
    ) {
        let last = (applied, Lsn(0));
        self.under_way
            .insert((partition, link), Rewrite { keys, last });
    }

    /// The node writes a partition no more.
    pub(super) fn forget(&mut self, partition: PartitionId) {
        self.under_way.retain(|&(of, _), _| of != partition);
    }

    /// A link has ended that had asked for some.
    pub(super) fn link_ended(&mut self, link: LinkId) {
        self.under_way.retain(|&(_, of), _| of != Some(link));
    }

    /// Writes the next keys, each with its present value or as a deletion.
    pub(super) fn write<P: Blocks<Block = B>, B: Block, H: Fn(&[u8]) -> u32>(
        &mut self,
        turn: &mut StoreTurn<'_, P, H>,
        replicas: &mut Replicas<B>,
        senders: &mut BTreeMap<LinkId, SenderLink<B>>,
    ) {
        let under_way = &self.under_way;
        let is_there = |id| under_way.contains_key(&id);
        replicas.prefetch.retain_rewrites(is_there);
        let mut left = REWRITE_KEYS;
        let all: Vec<RewriteId> = self.under_way.keys().copied().collect();
        for id in all {
            let (number, link) = id;
            let durable = turn.store.log().durable();
            let state = &replicas.partitions[&number];
            let is_possible = match link {
                Some(_) => state.may_write(durable),
                None => state.own_diverged().is_some(),
            };
            let rewrite = self.under_way.get_mut(&id).expect("just seen");
            let is_over = !is_possible || {
                rewrite.write(id, &mut left, turn, replicas);
                rewrite.keys.is_empty() && rewrite.finish(id, turn, replicas, senders)
            };
            if is_over {
                self.under_way.remove(&id);
            }
        }
    }
}

impl Rewrite {
    /// Writes keys until `left` is used up, one of them is cold, or the log has no room.
    fn write<P: Blocks<Block = B>, B: Block, H: Fn(&[u8]) -> u32>(
        &mut self,
        id: RewriteId,
        left: &mut usize,
        turn: &mut StoreTurn<'_, P, H>,
        replicas: &mut Replicas<B>,
    ) {
        let (number, _) = id;
        let Replicas {
            partitions,
            prefetch,
            effects,
        } = replicas;
        let state = partitions.get_mut(&number).expect("just seen");
        while let Some(key) = self.keys.front().filter(|_| *left > 0) {
            if partition_of(slot_of(key)) != usize::from(number) {
                // Nobody of this partition has such a key.
                self.keys.pop_front();
                continue;
            }
            let written = match prefix_of(key) {
                Some(prefix) => write_settings(key, prefix, turn, state),
                None => write_key(id, key, turn, state, (prefetch, effects)).map(Some),
            };
            match written {
                Ok(Some(last)) => self.last = last,
                Ok(None) => {}
                Err(NotNow) => break,
            }
            self.keys.pop_front();
            effects.counters_mut().rewritten += 1;
            *left -= 1;
        }
    }

    /// All keys are written: tells the member, or notes that the partition is whole. Whether that
    /// is done.
    fn finish<P: Blocks<Block = B>, B: Block, H: Fn(&[u8]) -> u32>(
        &self,
        (number, link): RewriteId,
        turn: &mut StoreTurn<'_, P, H>,
        replicas: &mut Replicas<B>,
        senders: &mut BTreeMap<LinkId, SenderLink<B>>,
    ) -> bool {
        let (at, lsn) = self.last;
        if let Some(link) = link {
            if let Some(SenderLink { sender, output, .. }) = senders.get_mut(&link) {
                sender.rewound(turn.time.time_ms, number, at, lsn, output);
            }
            return true;
        }
        if !turn.store.data_mut().forget_past(usize::from(number)) {
            replicas.effects.progressed();
            return false;
        }
        let time_ms = turn.store.data().time_ms();
        let mut notes = turn.notes();
        if !notes.has_room() {
            return false;
        }
        let state = replicas.partitions.get_mut(&number).expect("just seen");
        state.own_diverged_rewritten(time_ms, &mut notes);
        replicas.effects.progressed();
        true
    }
}

/// A key is cold, or the log has no room: another turn tries again.
struct NotNow;

/// Writes a key with its present value, or as a deletion.
fn write_key<P: Blocks<Block = B>, B: Block, H: Fn(&[u8]) -> u32>(
    (number, link): RewriteId,
    key: &[u8],
    turn: &mut StoreTurn<'_, P, H>,
    state: &mut Partition,
    (prefetch, effects): (&mut Prefetch<B>, &mut Effects),
) -> Result<(Position, Lsn), NotNow> {
    let (slot, hash) = (slot_of(key), (turn.hash_of)(key));
    let waiter = Waiter::Rewrite(number, link);
    if !prefetch.keys(waiter, (slot, &[key]), turn, effects) {
        return Err(NotNow);
    }
    let store = &mut *turn.store;
    let found = store.keys().find(slot, hash, key);
    let bytes = match found {
        Found::Cached(id) => store.keys().part_bytes_of(id) + TokenAnswer::VERSION_BYTES,
        Found::Absent | Found::Cold(_) => part_bytes(key.len(), 0, false, 0),
    };
    if store.room_for(Purpose::Keep, bytes) != Room::Yes {
        return Err(NotNow);
    }
    let cell = match found {
        Found::Cached(id) => store.keep_answer_version(KeyHome { slot, hash }, id),
        Found::Absent => {
            let id = store
                .keys_mut()
                .insert(KeyHome { slot, hash }, key, KindedValue::NONE, None);
            store.keys_mut().mark_deleted(KeyHome { slot, hash }, id);
            id
        }
        Found::Cold(_) => unreachable!("it was read"),
    };
    let (lsn, version) = store.commit(turn.time.now_us, slot, &[(hash, cell)]);
    turn.want_durable(lsn);
    let at = state.next_position();
    assert_eq!(at, position_of(version), "versions follow each other");
    effects.progressed();
    Ok((at, lsn))
}

/// Writes the settings of a prefix anew, or that nothing is in force; `None` if this node has no
/// place for another prefix: then none is in force here.
fn write_settings<P: Blocks, H: Fn(&[u8]) -> u32>(
    key: &[u8],
    prefix: &[u8],
    turn: &mut StoreTurn<'_, P, H>,
    state: &mut Partition,
) -> Result<Option<(Position, Lsn)>, NotNow> {
    let room = turn
        .store
        .room(Purpose::Keep, key.len(), SETTINGS_BYTES, false);
    if room != Room::Yes {
        return Err(NotNow);
    }
    let now_us = turn.time.now_us;
    Ok(
        rewrite_settings(now_us, key, prefix, turn.store).map(|lsn| {
            turn.want_durable(lsn);
            (state.next_position(), lsn)
        }),
    )
}

/// Logs the settings of a prefix under a revision that outranks those of earlier epochs.
fn rewrite_settings<P: Blocks>(
    now_us: u64,
    key: &[u8],
    prefix: &[u8],
    store: &mut Store<P>,
) -> Option<Lsn> {
    let slot = slot_of(key);
    let dropped = Settings {
        is_dropped: true,
        ..Settings::default()
    };
    let known = store.keyspaces().newest(prefix).copied().unwrap_or(dropped);
    let floor = u64::from(store.data().numbering().epoch(partition_of(slot))) << 32;
    let settings = Settings {
        revision: known.revision.max(floor) + 1,
        ..known
    };
    store.keyspaces_mut().learn(prefix, settings).ok()?;
    Some(store.commit_settings(now_us, slot, key, prefix))
}
