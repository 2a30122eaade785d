//! Cold keys that are read before records are applied or written anew.

use std::collections::BTreeMap;

use penstock_net::slot::slot_of;
use penstock_storage::io::{Block, Blocks, Completion};
use penstock_storage::key_home::KeyHome;
use penstock_storage::place::Place;
use penstock_storage::store::{Found, Store};

use crate::replication::reads::{LinkReads, Unread};
use crate::replication::{LinkId, PartitionId};

use super::effects::{Effects, LinkAction};
use super::store_turn::StoreTurn;

/// Who waits for cold keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Waiter {
    Apply(PartitionId),
    Rewrite(PartitionId, Option<LinkId>),
}

/// Reads of the log that are under way, and the cold keys that were read for each waiter.
#[derive(Debug)]
pub(super) struct Prefetch<B> {
    pub(super) reads: LinkReads,
    waiting: BTreeMap<Waiter, ColdKeys<B>>,
}

impl<B> Default for Prefetch<B> {
    fn default() -> Self {
        Prefetch {
            reads: LinkReads::default(),
            waiting: BTreeMap::new(),
        }
    }
}

/// Cold keys of one waiter.
#[derive(Debug)]
struct ColdKeys<B> {
    reads: Vec<ColdRead<B>>,
    /// The last place whose read failed, or did not bring what the index says.
    failed: Option<Place>,
}

impl<B> Default for ColdKeys<B> {
    fn default() -> Self {
        ColdKeys {
            reads: Vec::new(),
            failed: None,
        }
    }
}

#[derive(Debug)]
struct ColdRead<B> {
    home: KeyHome,
    place: Place,
    token: Option<u64>,
    /// What was read, and how many bytes of it: the file may end before the place does.
    read: Option<(B, usize)>,
}

impl<B: Block> ColdKeys<B> {
    /// Drops reads of what is not cold any more, or stands elsewhere now.
    fn drop_stale(&mut self, cold: &[(KeyHome, Place)]) {
        self.reads
            .retain(|read| read.token.is_some() || cold.contains(&(read.home, read.place)));
    }

    fn has_read(&self, at: &(KeyHome, Place)) -> bool {
        let mut reads = self.reads.iter();
        reads.any(|read| (read.home, read.place) == *at && read.read.is_some())
    }

    fn knows(&self, at: KeyHome, place: Place) -> bool {
        let mut reads = self.reads.iter();
        reads.any(|read| (read.home, read.place) == (at, place))
    }

    /// Brings all that was read into the cache. Each place, and whether the key stands there.
    fn admit<P: Blocks<Block = B>>(
        &mut self,
        store: &mut Store<P>,
        hash_of: &impl Fn(&[u8]) -> u32,
    ) -> Vec<(Place, bool)> {
        let mut admitted = Vec::new();
        for read in std::mem::take(&mut self.reads) {
            let Some((block, moved)) = read.read else {
                continue;
            };
            let home_of = |key: &[u8]| KeyHome::new(slot_of(key), hash_of(key));
            let bytes = &block.bytes()[..moved];
            let is_there = store
                .data_mut()
                .admit(read.home, read.place, bytes, home_of)
                .is_ok();
            admitted.push((read.place, is_there));
        }
        admitted
    }
}

impl<B: Block> Prefetch<B> {
    /// Whether none of these keys is cold. Otherwise all of them are read, and enter the cache
    /// together: a key that is read first, or is cached already, may leave the cache before the
    /// last one is there.
    pub(super) fn keys<P: Blocks<Block = B>, H: Fn(&[u8]) -> u32>(
        &mut self,
        waiter: Waiter,
        (slot, keys): (u16, &[&[u8]]),
        turn: &mut StoreTurn<'_, P, H>,
        effects: &mut Effects,
    ) -> bool {
        let hash_of = turn.hash_of;
        let store = &*turn.store;
        let is_cold =
            |key: &[u8]| matches!(store.keys().find(slot, hash_of(key), key), Found::Cold(_));
        if !keys.iter().any(|key| is_cold(key)) {
            if !self.waiting.is_empty() {
                self.waiting.remove(&waiter);
            }
            return true;
        }
        let cold_of = |store: &Store<P>| store.keys().cold_of(slot, keys.iter().copied(), hash_of);
        self.places(waiter, cold_of, turn, effects)
    }

    /// Whether nothing is cold of what `cold_of` finds. Otherwise all of it is read.
    pub(super) fn places<P: Blocks<Block = B>, H: Fn(&[u8]) -> u32>(
        &mut self,
        waiter: Waiter,
        cold_of: impl Fn(&Store<P>) -> Vec<(KeyHome, Place)>,
        turn: &mut StoreTurn<'_, P, H>,
        effects: &mut Effects,
    ) -> bool {
        let mut cold = cold_of(turn.store);
        let keys = self.waiting.entry(waiter).or_default();
        keys.drop_stale(&cold);
        if !cold.is_empty() && cold.iter().all(|at| keys.has_read(at)) {
            for (place, is_there) in keys.admit(turn.store, turn.hash_of) {
                match is_there {
                    true => self.reads.succeeded(place.file, place.offset),
                    false => failed(keys, waiter, place, &mut self.reads, effects),
                }
            }
            cold = cold_of(turn.store);
        }
        if cold.is_empty() {
            self.waiting.remove(&waiter);
            return true;
        }
        // Each failed read is tried again behind its pause: without the key the partition does not
        // go on. What waits for a pause holds no memory.
        if cold.iter().any(|&(_, place)| self.reads.is_paused(place)) {
            keys.reads.retain(|read| read.token.is_some());
            return false;
        }
        for (home, place) in cold {
            if keys.knows(home, place) {
                continue;
            }
            let Some((token, _)) = self.reads.begin(turn.store, place, turn.io) else {
                break;
            };
            keys.reads.push(ColdRead {
                home,
                place,
                token: Some(token),
                read: None,
            });
        }
        false
    }

    /// What a partition cannot go on without, although it was read again and again.
    pub(super) fn hangs_on(&self, partition: PartitionId) -> Option<Unread> {
        let waiting = self.waiting.iter().filter(|(waiter, _)| match waiter {
            Waiter::Apply(of) | Waiter::Rewrite(of, _) => *of == partition,
        });
        let mut failed = waiting.filter_map(|(_, keys)| keys.failed);
        failed.find_map(|place| self.reads.unread(place.file, place.offset))
    }

    /// Drops prefetched keys of rewrites that are over, because other reads need their memory.
    pub(super) fn retain_rewrites(
        &mut self,
        is_there: impl Fn((PartitionId, Option<LinkId>)) -> bool,
    ) {
        self.waiting.retain(|waiter, _| match *waiter {
            Waiter::Apply(_) => true,
            Waiter::Rewrite(number, link) => is_there((number, link)),
        });
    }

    /// Releases all that was read.
    pub(super) fn release(&mut self) {
        self.waiting.clear();
    }

    /// The end of a read of a cold key.
    pub(super) fn read(&mut self, completion: Completion<B>, effects: &mut Effects) {
        let token = Some(completion.token.number);
        for (&waiter, keys) in &mut self.waiting {
            let Some(at) = keys.reads.iter().position(|read| read.token == token) else {
                continue;
            };
            let moved = completion.brought(1).map(<[u8]>::len);
            match (moved, completion.block) {
                (Ok(moved), Some(block)) => {
                    keys.reads[at].token = None;
                    keys.reads[at].read = Some((block, moved));
                }
                _ => {
                    let place = keys.reads.remove(at).place;
                    failed(keys, waiter, place, &mut self.reads, effects);
                    effects.progressed();
                }
            }
            return;
        }
    }
}

/// Notes that a read for a waiter failed.
fn failed<B>(
    keys: &mut ColdKeys<B>,
    waiter: Waiter,
    place: Place,
    reads: &mut LinkReads,
    effects: &mut Effects,
) {
    keys.failed = Some(place);
    if let Some(unread) = reads.failed(place.file, place.offset) {
        let (Waiter::Apply(partition) | Waiter::Rewrite(partition, _)) = waiter;
        let partition = Some(partition);
        effects.ask(LinkAction::Unread { partition, unread });
    }
}
