//! Operations that wait for a read: one queue per place in the log, so that a burst on one cold key
//! costs one read, and later operations of the same connection on the same slot stay behind.
//!
//! A read that fails, or brings something else than what was written, is done once more block by
//! block: what a device cannot deliver in one piece, or delivered wrong once, it may deliver so. One
//! block at a time, so that a failing disk gets no more requests than a good one.

use std::collections::{HashMap, VecDeque};

use penstock_net::level::AckLevel;
use penstock_storage::io::{BLOCK_BYTES, FileId, IoToken};
use penstock_storage::log::Place;
use penstock_storage::planted::{Bug, is_planted};
use penstock_storage::store::aligned_span;

use crate::execute::Cold;
use crate::mail::ReplyAddress;

/// An operation that was taken out of its frame or mail because it cannot run now.
#[derive(Debug)]
pub(crate) struct Parked {
    pub(crate) origin: Origin,
    pub(crate) address: ReplyAddress,
    pub(crate) level: AckLevel,
    pub(crate) deadline_us: u64,
    pub(crate) slot: u16,
    /// The encoded item.
    pub(crate) item: Box<[u8]>,
}

/// Who is to get the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Origin {
    /// A connection of this shard.
    Here,
    /// A connection of that shard.
    Shard(u16),
}

#[derive(Debug)]
struct Read {
    cold: Cold,
    waiters: VecDeque<Parked>,
    /// The blocks that a second attempt has brought so far.
    again: Option<Vec<u8>>,
}

/// All operations that wait for reads, and the order that they must keep.
#[derive(Debug, Default)]
pub(crate) struct Parking {
    reads: HashMap<Place, IoToken>,
    waiting: HashMap<IoToken, Read>,
    /// Reads that were not emitted yet for lack of a block.
    unissued: VecDeque<(IoToken, Place)>,
    /// The read behind which the operations of a connection on a slot queue, and how many do.
    order: HashMap<(Origin, u32, u32, u16), (IoToken, usize)>,
    next_token: u64,
    parked: usize,
}

/// Operations parked at a time, at most.
pub(crate) const PARKED_MAX: usize = 4096;

impl Parking {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.parked == 0
    }

    pub(crate) fn len(&self) -> usize {
        self.parked
    }

    /// Whether a read of this file is under way or waits.
    pub(crate) fn reads_file(&self, file: FileId) -> bool {
        self.reads.keys().any(|place| place.file == file)
    }

    pub(crate) fn is_full(&self) -> bool {
        self.parked >= PARKED_MAX
    }

    /// The read that an operation of this connection on this slot must queue behind.
    pub(crate) fn behind(&self, origin: Origin, address: &ReplyAddress, slot: u16) -> Option<Cold> {
        if self.parked == 0 || is_planted(Bug::PassParked) {
            return None;
        }
        let (token, _) = self.order.get(&order_key(origin, address, slot))?;
        Some(self.waiting[token].cold)
    }

    /// Queues an operation behind the read of `place`, which is started if it is not under way.
    pub(crate) fn park(&mut self, cold: Cold, parked: Parked) {
        let token = *self.reads.entry(cold.place).or_insert_with(|| {
            self.next_token += 1;
            let token = IoToken(self.next_token);
            self.unissued.push_back((token, cold.place));
            self.waiting.insert(
                token,
                Read {
                    cold,
                    waiters: VecDeque::new(),
                    again: None,
                },
            );
            token
        });
        let key = order_key(parked.origin, &parked.address, parked.slot);
        self.order.entry(key).or_insert((token, 0)).1 += 1;
        self.waiting
            .get_mut(&token)
            .expect("made above")
            .waiters
            .push_back(parked);
        self.parked += 1;
    }

    /// The next read to emit; given back with [`Parking::not_issued`] if it cannot be now.
    pub(crate) fn next_read(&mut self) -> Option<(IoToken, Place)> {
        self.unissued.pop_front()
    }

    /// Whether a read waits for a block.
    pub(crate) fn has_unissued(&self) -> bool {
        !self.unissued.is_empty()
    }

    pub(crate) fn not_issued(&mut self, read: (IoToken, Place)) {
        if !is_planted(Bug::DropUnissuedRead) {
            self.unissued.push_front(read);
        }
    }

    /// What a read is for.
    pub(crate) fn cold(&self, token: IoToken) -> Cold {
        self.waiting[&token].cold
    }

    /// The bytes that a second attempt has, or `None` in the first.
    pub(crate) fn again(&self, token: IoToken) -> Option<&[u8]> {
        self.waiting[&token].again.as_deref()
    }

    /// Begins the second attempt.
    pub(crate) fn read_again(&mut self, token: IoToken) {
        let read = self.waiting.get_mut(&token).expect("a read under way");
        assert!(read.again.is_none(), "there is no third attempt");
        read.again = Some(Vec::new());
        self.unissued.push_back((token, read.cold.place));
    }

    /// Takes in the next block of a second attempt, less at the end of the file, and tells whether it
    /// was the last: otherwise the next one is to be read.
    pub(crate) fn add_block(&mut self, token: IoToken, block: &[u8]) -> bool {
        let read = self.waiting.get_mut(&token).expect("a read under way");
        let again = read.again.as_mut().expect("the second attempt");
        again.extend_from_slice(&block[..BLOCK_BYTES.min(block.len())]);
        let (_, len) = aligned_span(read.cold.place);
        if again.len() == len as usize
            || block.len() < BLOCK_BYTES
            || is_planted(Bug::ReadOneBlockAgain)
        {
            return true;
        }
        self.unissued.push_back((token, read.cold.place));
        false
    }

    /// All that a whole second attempt brought.
    pub(crate) fn take_again(&mut self, token: IoToken) -> Vec<u8> {
        let read = self.waiting.get_mut(&token).expect("a read under way");
        std::mem::take(read.again.as_mut().expect("the second attempt"))
    }

    /// The operations that waited for a read, which are parked no more.
    pub(crate) fn finished(&mut self, token: IoToken) -> VecDeque<Parked> {
        let read = self.waiting.remove(&token).expect("a read completes once");
        self.reads.remove(&read.cold.place);
        self.parked -= read.waiters.len();
        for parked in &read.waiters {
            let key = order_key(parked.origin, &parked.address, parked.slot);
            let entry = self.order.get_mut(&key).expect("counted when parked");
            entry.1 -= 1;
            if entry.1 == 0 {
                self.order.remove(&key);
            }
        }
        read.waiters
    }
}

fn order_key(origin: Origin, address: &ReplyAddress, slot: u16) -> (Origin, u32, u32, u16) {
    (
        origin,
        address.session.index,
        address.session.generation,
        slot,
    )
}
