//! Cold keys that are read before records are applied or written anew.

use std::collections::{BTreeMap, VecDeque};

use penstock_net::slot::slot_of;
use penstock_storage::io::{Block, Blocks, Completion, Io};
use penstock_storage::place::Place;
use penstock_storage::store::{Found, Store};

use crate::replication::reads::LinkReads;
use crate::replication::{LinkId, PartitionId};

use super::{LinkAction, LinkSet};

/// Reads of a cold key that may fail before that is told.
const READS_MAX: u32 = 3;

/// Cold keys that are read.
#[derive(Debug)]
pub(super) struct Prefetch<B> {
    reads: Vec<WarmingRead<B>>,
    /// Reads that failed, or did not bring what the index says.
    failures: u32,
    is_told: bool,
}

impl<B> Default for Prefetch<B> {
    fn default() -> Self {
        Prefetch {
            reads: Vec::new(),
            failures: 0,
            is_told: false,
        }
    }
}

#[derive(Debug)]
struct WarmingRead<B> {
    home: (u16, u32),
    place: Place,
    token: Option<u64>,
    read: Option<B>,
}

/// What somebody waits for cold keys for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Waiter {
    Apply(PartitionId),
    Rewind(PartitionId, Option<LinkId>),
}

/// What reads cold keys, and what it has read.
pub(super) struct Prefetcher<'a, B> {
    pub(super) warming: &'a mut BTreeMap<Waiter, Prefetch<B>>,
    pub(super) reads: &'a mut LinkReads,
    pub(super) actions: &'a mut VecDeque<LinkAction>,
}

impl<B: Block> Prefetcher<'_, B> {
    /// Whether nothing of these keys is cold. Otherwise all of it is read, and comes into the cache at
    /// once: what comes first, or is there already, may leave before the last is there.
    pub(super) fn warm<P: Blocks<Block = B>>(
        self,
        waiter: Waiter,
        (slot, keys): (u16, &[&[u8]]),
        store: &mut Store<P>,
        hash_of: &impl Fn(&[u8]) -> u32,
        io: &mut Vec<Io<B>>,
    ) -> bool {
        let is_cold = |key: &[u8]| matches!(store.find(slot, hash_of(key), key), Found::Cold(_));
        if !keys.iter().any(|key| is_cold(key)) {
            if !self.warming.is_empty() {
                self.warming.remove(&waiter);
            }
            return true;
        }
        let cold_of = |store: &Store<P>| store.cold_of(slot, keys.iter().copied(), hash_of);
        self.warm_all(waiter, cold_of, store, hash_of, io)
    }

    /// The same of whatever is cold.
    pub(super) fn warm_all<P: Blocks<Block = B>>(
        self,
        waiter: Waiter,
        cold_of: impl Fn(&Store<P>) -> Vec<((u16, u32), Place)>,
        store: &mut Store<P>,
        hash_of: &impl Fn(&[u8]) -> u32,
        io: &mut Vec<Io<B>>,
    ) -> bool {
        let mut cold = cold_of(store);
        let of_waiter = self.warming.entry(waiter).or_default();
        // What is cold no more, or elsewhere now, is not asked for.
        of_waiter
            .reads
            .retain(|read| read.token.is_some() || cold.contains(&(read.home, read.place)));
        let is_there = |at: &((u16, u32), Place)| {
            let mut reads = of_waiter.reads.iter();
            reads.any(|read| (read.home, read.place) == *at && read.read.is_some())
        };
        if !cold.is_empty() && cold.iter().all(is_there) {
            for read in std::mem::take(&mut of_waiter.reads) {
                let Some(block) = read.read else { continue };
                let home_of = |key: &[u8]| (slot_of(key), hash_of(key));
                let admitted = store.admit(read.home, read.place, block.bytes(), home_of);
                of_waiter.failures += u32::from(admitted.is_err());
            }
            cold = cold_of(store);
        }
        if cold.is_empty() {
            self.warming.remove(&waiter);
            return true;
        }
        // It is read again and again: without it the partition does not go on.
        if of_waiter.failures >= READS_MAX && !std::mem::replace(&mut of_waiter.is_told, true) {
            let (_, place) = cold[0];
            self.actions.push_back(LinkAction::Damaged {
                file: place.file,
                offset: place.offset,
            });
        }
        for (home, place) in cold {
            let is_known = of_waiter
                .reads
                .iter()
                .any(|read| (read.home, read.place) == (home, place));
            if is_known {
                continue;
            }
            let Some((token, _)) = self.reads.begin(store, place, io) else {
                break;
            };
            of_waiter.reads.push(WarmingRead {
                home,
                place,
                token: Some(token),
                read: None,
            });
        }
        false
    }
}

impl<B: Block> LinkSet<B> {
    /// The end of a read of this part of the shard.
    pub fn read(&mut self, completion: Completion<B>) {
        self.reads.ended(completion.token.number);
        let cursors = self.outgoing.values_mut().map(|link| &mut link.cursor);
        let mut cursors = cursors.chain([&mut self.tail_cursor]);
        if let Some(cursor) = cursors.find(|cursor| cursor.awaits(completion.token.number)) {
            cursor.read(completion);
            return;
        }
        let token = Some(completion.token.number);
        for warming in self.warming.values_mut() {
            let Some(at) = warming.reads.iter().position(|read| read.token == token) else {
                continue;
            };
            match (completion.result, completion.block) {
                (Ok(()), Some(block)) => {
                    warming.reads[at].token = None;
                    warming.reads[at].read = Some(block);
                }
                _ => {
                    warming.reads.remove(at);
                    warming.failures += 1;
                }
            }
            return;
        }
    }
}
