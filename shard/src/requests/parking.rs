//! Operations that wait for a read: one queue per run of blocks in the log, so that a burst on one
//! cold key, or on keys that stand together, costs one read, and later operations of the same
//! connection on the same slot stay behind. Their keys are read meanwhile. An operation that may
//! use any slot stays behind all of its connection, and all of its connection stays behind it.
//!
//! A read that fails, or brings something else than what was written, is done once more block by
//! block: what a device cannot deliver in one piece, or delivered wrong once, it may deliver so.
//! One block at a time, so that a failing disk gets no more requests than a good one.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use penstock_net::level::AckLevel;
use penstock_net::limits::FEW_KEYS_MAX;
use penstock_net::rights::Rights;
use penstock_storage::if_planted;
use penstock_storage::io::{Asker, BLOCK_BYTES, IoFailure, IoToken};
use penstock_storage::place::FileId;
use penstock_storage::place::Place;
use penstock_storage::planted::{Bug, is_planted};
use penstock_storage::store::aligned_span;

use crate::execution::verbs::Cold;
use crate::mail::{ReplyAddress, SessionId};

/// An operation that was taken out of its frame or mail because it cannot run now.
#[derive(Debug)]
pub(crate) struct Parked {
    pub(crate) origin: Origin,
    pub(crate) address: ReplyAddress,
    pub(crate) level: AckLevel,
    pub(crate) deadline_us: u64,
    /// When its request arrived, in microseconds of the node's clock.
    pub(crate) came_us: u64,
    pub(crate) slot: u16,
    /// Where it stands among the operations of its connection.
    pub(crate) order: Order,
    /// Bytes that its answer is taken to have, which are kept free for it.
    pub(crate) reserved: usize,
    /// The encoded item.
    pub(crate) item: Box<[u8]>,
    /// The rights by which it was taken in, and the program if it was a RUN.
    pub(crate) rights: Option<Arc<Rights>>,
    pub(crate) program: Option<Box<str>>,
}

/// Who is to get the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Origin {
    /// A connection of this shard.
    Here,
    /// A connection of that shard.
    Shard(u16),
}

/// The slots on which an operation keeps the order of its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Order {
    /// All slots: it came behind all that its connection has parked, or what it uses is known when
    /// it has run. It stands before any single slot.
    OfAll,
    /// This slot: it came before all of its connection in the lane of all slots.
    Of(u16),
}

/// What keeps its order: one connection, by index and generation, on some slots.
type Lane = (Origin, u32, u32, Order);

#[derive(Debug)]
struct Read {
    /// The keys that are looked for in it; the parts of all begin in its first block.
    colds: Vec<Cold>,
    /// The place among them that ends last.
    widest: Place,
    is_issued: bool,
    /// In order.
    waiters: VecDeque<Waiter>,
    again: Option<Again>,
}

/// An operation that waits for a read.
#[derive(Debug)]
pub(crate) struct Waiter {
    /// The number of the key that the operation waits for. An operation that only queues behind
    /// another one has that one's key here.
    pub(crate) number: usize,
    /// The operation waits only to keep the order of its connection. It does not use the read.
    pub(crate) is_behind: bool,
    pub(crate) parked: Parked,
}

impl Waiter {
    fn lane(&self) -> Lane {
        lane_of(&self.parked)
    }
}

/// A read that has ended.
#[derive(Debug)]
pub(crate) struct Finished {
    /// The keys that were looked for in it.
    pub(crate) colds: Vec<Cold>,
    /// The operations that waited for it, in the order in which they run.
    pub(crate) waiters: VecDeque<Waiter>,
    /// The keys of the first one were pinned, and may leave from now on.
    pub(crate) ends_pin: bool,
}

/// What a second attempt has brought so far.
#[derive(Debug, Default)]
struct Again {
    bytes: Vec<u8>,
    /// Where blocks that could not be read begin, and why; their bytes are zeros.
    bad: Vec<(usize, IoFailure)>,
}

/// All operations that wait for reads, and the order that they must keep.
///
/// What must hold: all operations of a lane wait for the same key, in their order. An operation in
/// the lane of all slots came behind those of its connection in other lanes; none came to those
/// behind it.
#[derive(Debug, Default)]
pub(crate) struct Parking {
    /// By the first block, the newest read that begins there and is not in its second attempt.
    reads: HashMap<(FileId, u64), IoToken>,
    waiting: HashMap<IoToken, Read>,
    /// Reads that were not emitted yet for lack of a block.
    unissued: VecDeque<IoToken>,
    /// The read behind which the operations of a lane queue, the number of the key in it, and how
    /// many do. While a connection has operations in the lane of all slots, what comes joins them.
    lanes: BTreeMap<Lane, (IoToken, usize, usize)>,
    /// The operation whose keys are pinned in memory: the read that it waits for, and its lane.
    pinned_for: Option<(IoToken, Lane)>,
    next_token: u64,
    parked: usize,
    /// Bytes of their items.
    parked_bytes: usize,
    /// Bytes of the reads that were begun and have not ended, second attempts included.
    bytes_under_way: usize,
    coalesced: u64,
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

    /// Keys that were looked for in a read that was there already.
    pub(crate) fn coalesced(&self) -> u64 {
        self.coalesced
    }

    /// Whether a read of this file is under way or waits.
    pub(crate) fn reads_file(&self, file: FileId) -> bool {
        self.waiting.values().any(|read| read.widest.file == file)
    }

    /// Whether nothing more is to be read.
    pub(crate) fn is_full(&self) -> bool {
        self.parked >= PARKED_MAX
    }

    /// Whether a key may be read that no item has met yet: as many reads wait as items of few keys
    /// could need, at most.
    pub(crate) fn may_read_ahead(&self) -> bool {
        !self.is_full() && self.waiting.len() < PARKED_MAX * FEW_KEYS_MAX
    }

    /// Whether an item of so many bytes finds room within `bytes_max`; the first one does.
    pub(crate) fn has_room(&self, bytes: usize, bytes_max: usize) -> bool {
        !self.is_full() && (self.is_empty() || self.parked_bytes + bytes <= bytes_max)
    }

    /// Bytes of the operations that are parked.
    pub(crate) fn parked_bytes(&self) -> usize {
        self.parked_bytes
    }

    /// Bytes that reads will bring.
    pub(crate) fn bytes_under_way(&self) -> usize {
        self.bytes_under_way
    }

    /// The key that an operation of this connection must queue behind. It may use the slots of
    /// `uses`, and `stands` is its [`Parked::order`], or [`Order::OfAll`] if it was never parked.
    pub(crate) fn behind(
        &self,
        origin: Origin,
        address: &ReplyAddress,
        uses: Order,
        stands: Order,
    ) -> Option<Cold> {
        if self.parked == 0 || is_planted(Bug::PassParked) {
            return None;
        }
        let (_, token, number) = self.before(lane(origin, address, uses), stands)?;
        Some(self.waiting[&token].colds[number])
    }

    /// The lane whose operations one must not pass that may use the slots of this lane, the read
    /// that they wait for, and the number of the key in it.
    fn before(&self, lane: Lane, stands: Order) -> Option<(Lane, IoToken, usize)> {
        let (origin, index, generation, uses) = lane;
        let of = |order| (origin, index, generation, order);
        let first = match stands {
            Order::OfAll => self.lanes.get_key_value(&of(Order::OfAll)),
            // It came before all that is there.
            Order::Of(_) => None,
        };
        let last = match uses {
            Order::OfAll => of(Order::Of(u16::MAX)),
            Order::Of(_) => lane,
        };
        let first = first.or_else(|| self.lanes.range(lane..=last).next());
        first.map(|(lane, &(token, number, _))| (*lane, token, number))
    }

    /// Whether to pin the keys of an operation that was just parked and needs more than one: only
    /// if those of no other operation are pinned.
    pub(crate) fn pins(&mut self, origin: Origin, address: &ReplyAddress, order: Order) -> bool {
        let lane = lane(origin, address, order);
        let pins = self.pinned_for.is_none();
        if pins {
            self.pinned_for = self.lanes.get(&lane).map(|&(token, ..)| (token, lane));
        }
        pins
    }

    /// Ends the pin of the operation that waited for this read, and tells its lane.
    fn ends_pin(&mut self, token: IoToken) -> Option<Lane> {
        let (_, lane) = self.pinned_for.take_if(|(of, _)| *of == token)?;
        Some(lane)
    }

    /// Begins the read that brings a key, unless one that does is waiting or under way: several
    /// keys that stand in the same blocks share one.
    pub(crate) fn fetch(&mut self, cold: Cold) -> (IoToken, usize) {
        let (start, len) = aligned_span(cold.place);
        if let Some(&token) = self.reads.get(&(cold.place.file, start)) {
            let read = self.waiting.get_mut(&token).expect("it is under way");
            if let Some(number) = read.colds.iter().position(|other| *other == cold) {
                return (token, number);
            }
            let is_covered = len <= aligned_span(read.widest).1;
            if is_covered || !read.is_issued {
                if !is_covered && !is_planted(Bug::ForgetWiderRead) {
                    read.widest = cold.place;
                }
                read.colds.push(cold);
                self.coalesced += 1;
                return (token, read.colds.len() - 1);
            }
        }
        self.next_token += 1;
        let token = IoToken::new(Asker::Operation, self.next_token);
        let is_claim = cold.is_claim();
        if !is_claim {
            self.unissued.push_back(token);
        }
        self.reads.insert((cold.place.file, start), token);
        self.waiting.insert(
            token,
            Read {
                colds: vec![cold],
                widest: cold.place,
                is_issued: is_claim,
                waiters: VecDeque::new(),
                again: None,
            },
        );
        (token, 0)
    }

    /// Queues an operation that may use these slots behind the read of a key, which is started if
    /// it is not under way.
    pub(crate) fn park(&mut self, cold: Cold, uses: Order, mut parked: Parked) {
        let lane = lane(parked.origin, &parked.address, uses);
        let behind = self.before(lane, parked.order);
        parked.order = match behind {
            Some(((.., Order::OfAll), ..)) => Order::OfAll,
            _ => uses,
        };
        // What queues behind another operation stays in its read, whatever reads were begun since.
        let (token, number) = match behind {
            Some((_, token, number)) if self.waiting[&token].colds[number] == cold => {
                (token, number)
            }
            _ => self.fetch(cold),
        };
        let lane = self.lanes.entry(lane_of(&parked));
        lane.or_insert((token, number, 0)).2 += 1;
        self.parked_bytes += parked.item.len();
        self.waiting
            .get_mut(&token)
            .expect("made above")
            .waiters
            .push_back(Waiter {
                number,
                is_behind: behind.is_some(),
                parked,
            });
        self.parked += 1;
    }

    /// What operations wait for that stands there: a claim.
    pub(crate) fn waits_for(&self, place: Place) -> Option<IoToken> {
        let first = (place.file, aligned_span(place).0);
        self.reads.get(&first).copied()
    }

    /// Whether a read looks for a key.
    pub(crate) fn has_read_for(&self, cold: &Cold) -> bool {
        self.waiting.values().any(|read| read.colds.contains(cold))
    }

    /// The next read to emit, which counts as under way, and from where on if it is a second
    /// attempt; given back with [`Parking::not_issued`] if it cannot be now.
    pub(crate) fn next_read(&mut self) -> Option<(IoToken, Place, Option<usize>)> {
        let token = self.unissued.pop_front()?;
        let read = self.waiting.get_mut(&token).expect("it waits");
        if !read.is_issued {
            read.is_issued = true;
            self.bytes_under_way += aligned_span(read.widest).1 as usize;
        }
        Some((token, read.widest, self.again(token)))
    }

    /// Whether reads wait for a block.
    pub(crate) fn has_unissued(&self) -> bool {
        !self.unissued.is_empty()
    }

    pub(crate) fn not_issued(&mut self, token: IoToken) {
        let read = self.waiting.get_mut(&token).expect("it waits");
        if read.again.is_none() {
            read.is_issued = false;
            self.bytes_under_way -= aligned_span(read.widest).1 as usize;
        }
        if_planted!(Bug::DropUnissuedRead, return);
        self.unissued.push_front(token);
    }

    /// The keys that are looked for in a read.
    pub(crate) fn colds(&self, token: IoToken) -> &[Cold] {
        &self.waiting[&token].colds
    }

    /// The bytes that a second attempt has, or `None` in the first.
    pub(crate) fn again(&self, token: IoToken) -> Option<usize> {
        let again = self.waiting[&token].again.as_ref()?;
        Some(again.bytes.len())
    }

    /// Begins the second attempt.
    pub(crate) fn read_again(&mut self, token: IoToken) {
        self.close(token);
        let read = self.waiting.get_mut(&token).expect("a read under way");
        assert!(read.again.is_none(), "there is no third attempt");
        read.again = Some(Again::default());
        self.unissued.push_back(token);
    }

    /// Takes in the next block of a second attempt, less at the end of the file, or why it could
    /// not be read, and tells whether it was the last: otherwise the next one is to be read.
    pub(crate) fn add_block(&mut self, token: IoToken, block: Result<&[u8], IoFailure>) -> bool {
        let read = self.waiting.get_mut(&token).expect("a read under way");
        let (_, len) = aligned_span(read.widest);
        let again = read.again.as_mut().expect("the second attempt");
        let mut is_end = false;
        match block {
            Ok(block) => {
                is_end = block.len() < BLOCK_BYTES;
                let bytes = &block[..BLOCK_BYTES.min(block.len())];
                again.bytes.extend_from_slice(bytes);
            }
            Err(failure) => {
                again.bad.push((again.bytes.len(), failure));
                again.bytes.resize(again.bytes.len() + BLOCK_BYTES, 0);
            }
        }
        if is_end || again.bytes.len() >= len as usize || is_planted(Bug::ReadOneBlockAgain) {
            return true;
        }
        self.unissued.push_back(token);
        false
    }

    /// All that a whole second attempt brought, and which blocks it did not.
    pub(crate) fn take_again(&mut self, token: IoToken) -> (Vec<u8>, Vec<(usize, IoFailure)>) {
        let read = self.waiting.get_mut(&token).expect("a read under way");
        let again = std::mem::take(read.again.as_mut().expect("the second attempt"));
        (again.bytes, again.bad)
    }

    /// The read ended: its keys, and the operations that waited for it, which are parked no more.
    ///
    /// An operation whose keys were pinned comes first. It must run before another one pins its own
    /// keys, or eight cold keys might come and go for ever. It is the first of its lane, so the
    /// order of its connection stays.
    pub(crate) fn finished(&mut self, token: IoToken) -> Finished {
        self.close(token);
        let read = self.waiting.remove(&token).expect("a read completes once");
        if !read.colds[0].is_claim() {
            self.bytes_under_way -= aligned_span(read.widest).1 as usize;
        }
        for Waiter { parked, .. } in &read.waiters {
            self.left(parked);
        }
        let (colds, mut waiters) = (read.colds, read.waiters);
        let pinned = self.ends_pin(token);
        let first = pinned.and_then(|lane| waiters.iter().position(|it| it.lane() == lane));
        if let Some(waiter) = first.and_then(|at| waiters.remove(at)) {
            waiters.push_front(waiter);
        }
        Finished {
            colds,
            waiters,
            ends_pin: pinned.is_some(),
        }
    }

    /// Takes out the operations that `is_it` says, which are parked no more; their reads go on. In
    /// the order in which their reads were begun.
    pub(crate) fn take_out(&mut self, is_it: impl Fn(&Parked) -> bool) -> Vec<Parked> {
        let has_any = |read: &Read| read.waiters.iter().any(|waiter| is_it(&waiter.parked));
        let with_any = self.waiting.iter().filter(|(_, read)| has_any(read));
        let mut tokens: Vec<IoToken> = with_any.map(|(token, _)| *token).collect();
        tokens.sort_unstable();
        let mut taken = Vec::new();
        for token in tokens {
            let read = self.waiting.get_mut(&token).expect("it waits");
            let waiters = std::mem::take(&mut read.waiters);
            let (out, left): (Vec<_>, Vec<_>) = waiters
                .into_iter()
                .partition(|waiter| is_it(&waiter.parked));
            read.waiters = left.into();
            taken.extend(out.into_iter().map(|waiter| waiter.parked));
        }
        taken.iter().for_each(|parked| self.left(parked));
        taken
    }

    /// An operation is parked no more.
    fn left(&mut self, parked: &Parked) {
        self.parked -= 1;
        self.parked_bytes -= parked.item.len();
        let key = lane_of(parked);
        let lane = self.lanes.get_mut(&key).expect("counted when parked");
        lane.2 -= 1;
        if lane.2 == 0 {
            self.lanes.remove(&key);
        }
    }

    /// Lets no more keys into a read.
    fn close(&mut self, token: IoToken) {
        let widest = self.waiting[&token].widest;
        let first = (widest.file, aligned_span(widest).0);
        if self.reads.get(&first) == Some(&token) {
            self.reads.remove(&first);
        }
    }
}

fn lane_of(parked: &Parked) -> Lane {
    lane(parked.origin, &parked.address, parked.order)
}

fn lane(origin: Origin, address: &ReplyAddress, order: Order) -> Lane {
    let SessionId { index, generation } = address.session;
    (origin, index, generation, order)
}
