//! One buyer with tokens: it asks each purchase once and again, loses connections, and knows which
//! answers agree.
//!
//! A purchase takes one piece of the shared stock, by UPDATE_IF, or by APPLY together with a count
//! of the buyer's own. Each has a token. Whatever is sent how often, over whichever connection, a
//! purchase is executed once, and each of its answers but one is marked as told again. So in the
//! end the stock lacks exactly one piece for each purchase.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use penstock_net::apply::Apply;
use penstock_net::instruction::{FieldType, Instruction, Operation};
use penstock_net::level::AckLevel;
use penstock_net::request::{BatchRequest, Condition, Token, Version};
use penstock_net::status::Status;

use crate::account::number;
use crate::load::Load;
use crate::random::Random;
use crate::wire::{ANSWER_MAX, Reply, Wire, WireError};

/// What all purchases take from, and what it holds at first.
pub const STOCK: &[u8] = b"{buyers}stock";
pub const STOCK_INITIAL: u64 = 1 << 60;

const FRAMES_AHEAD: usize = 4;
const ITEMS_PER_FRAME: usize = 8;
/// Answered purchases that are asked again now and then.
const ANSWERED_MAX: usize = 64;
/// A connection is left without its answers once in so many frames.
const LEAVES_ONCE_IN: u64 = 200;
/// How often a purchase is asked that finds no room, before the server is to blame.
const TRIES_MAX: usize = 10_000;

/// One purchase.
struct Purchase {
    /// Its request item, with the token.
    item: Vec<u8>,
    /// The version that was answered.
    version: Option<Version>,
}

/// What one buyer did and knows.
pub struct Buyer {
    number: usize,
    last: u64,
    /// Purchases that were asked and have no answer.
    open: BTreeMap<u64, Purchase>,
    /// The last purchases that were answered.
    answered: VecDeque<(u64, Purchase)>,
    /// Purchases that were executed, as an answer has told.
    pub bought: u64,
    /// Items that were sent, and how many of them were sent before.
    pub requests: u64,
    pub again: u64,
    /// Connections that were left without their answers.
    pub left: u64,
}

impl Buyer {
    pub fn new(number: usize) -> Buyer {
        Buyer {
            number,
            last: 0,
            open: BTreeMap::new(),
            answered: VecDeque::new(),
            bought: 0,
            requests: 0,
            again: 0,
            left: 0,
        }
    }

    /// Begins anew on an empty server; only the tallies of requests stay.
    pub fn forget(&mut self) {
        let Buyer {
            requests,
            again,
            left,
            ..
        } = *self;
        *self = Buyer {
            requests,
            again,
            left,
            ..Buyer::new(self.number)
        };
    }

    /// The buyer's own count; to be written as 0 before the first load.
    pub fn count_key(&self) -> Vec<u8> {
        format!("{{buyers}}count:{}", self.number).into_bytes()
    }

    /// Purchases without an answer.
    pub fn open(&self) -> u64 {
        self.open.len() as u64
    }

    /// Buys until the load is over or the server is gone.
    ///
    /// # Errors
    /// An answer contradicts another one, or the connection ends while nothing was done to the
    /// server.
    pub fn work(
        &mut self,
        address: SocketAddr,
        mut random: Random,
        load: &Load,
    ) -> Result<(), String> {
        let mut is_first = true;
        while is_first || !load.is_over() {
            let worked = Wire::connect(address, ANSWER_MAX)
                .inspect(|_| load.connected.add(u64::from(is_first)))
                .and_then(|wire| self.buy(wire, &mut random, load));
            is_first = false;
            match worked {
                Ok(()) => {}
                Err(WireError::Closed(_)) if load.is_struck() => return Ok(()),
                Err(error) => return Err(format!("buyer {}: {error}", self.number)),
            }
        }
        Ok(())
    }

    /// Buys over one connection, until the buyer leaves it or the load is over.
    fn buy(&mut self, mut wire: Wire, random: &mut Random, load: &Load) -> Result<(), WireError> {
        let mut ahead: VecDeque<(u64, Vec<u64>)> = VecDeque::new();
        let mut request_id = 10;
        loop {
            while ahead.len() < FRAMES_AHEAD && !load.is_over() {
                request_id += 1;
                let (frame, numbers) = self.frame(request_id, random);
                wire.send(&frame)?;
                ahead.push_back((request_id, numbers));
                if random.once_in(LEAVES_ONCE_IN) {
                    // What is in its buffers may be executed behind the next connection's.
                    self.left += 1;
                    return Ok(());
                }
            }
            let Some((id, numbers)) = ahead.pop_front() else {
                return Ok(());
            };
            for (number, reply) in numbers.iter().zip(wire.replies(id, numbers.len())?) {
                let is_done = self.note(*number, &reply).map_err(WireError::Wrong)?;
                load.writes.add(u64::from(is_done));
            }
        }
    }

    /// A frame of new purchases and of some that were asked before.
    fn frame(&mut self, request_id: u64, random: &mut Random) -> (Vec<u8>, Vec<u64>) {
        let mut frame = Vec::new();
        let level = AckLevel::Disk;
        let mut batch = BatchRequest::begin(&mut frame, request_id, level, 0, ITEMS_PER_FRAME);
        let mut numbers: Vec<u64> = Vec::new();
        for _ in 0..ITEMS_PER_FRAME {
            let known = match random.below(8) {
                0 => self.some_answered(random),
                // One without an answer, perhaps of this very frame.
                1 => self.some_open(random),
                _ => None,
            };
            let (number, item) = match known {
                Some(known) => {
                    self.again += 1;
                    known
                }
                None => self.begin(random),
            };
            batch.raw(&mut frame, &item);
            numbers.push(number);
        }
        self.requests += ITEMS_PER_FRAME as u64;
        batch.finish(&mut frame);
        (frame, numbers)
    }

    fn some_answered(&self, random: &mut Random) -> Option<(u64, Vec<u8>)> {
        let count = self.answered.len().max(1) as u64;
        let at = usize::try_from(random.below(count)).expect("a few");
        let (number, purchase) = self.answered.get(at)?;
        Some((*number, purchase.item.clone()))
    }

    fn some_open(&self, random: &mut Random) -> Option<(u64, Vec<u8>)> {
        let count = self.open.len().max(1) as u64;
        let at = usize::try_from(random.below(count)).expect("a few");
        let (number, purchase) = self.open.iter().nth(at)?;
        Some((*number, purchase.item.clone()))
    }

    /// A new purchase.
    fn begin(&mut self, random: &mut Random) -> (u64, Vec<u8>) {
        self.last += 1;
        let token = new_token(random);
        let item = match random.once_in(2) {
            true => self.order(token),
            false => sale(token),
        };
        let purchase = Purchase {
            item: item.clone(),
            version: None,
        };
        self.open.insert(self.last, purchase);
        (self.last, item)
    }

    /// One piece of the stock, and one more in the buyer's count.
    fn order(&self, token: Token) -> Vec<u8> {
        let mut order = Apply::new();
        let stock = order.key(STOCK);
        let count = order.key(&self.count_key());
        order
            .then(stock.u64(0).at_least(1u64))
            .then(stock.u64(0).decrease(1u64))
            .then(count.u64(0).increase(1u64));
        item_of(|batch, out| {
            batch.token(token);
            batch.apply(out, &order);
        })
    }

    /// Takes in an answer; whether it told that the purchase is made.
    fn note(&mut self, number: u64, reply: &Reply) -> Result<bool, String> {
        match reply.status {
            Status::Ok => {}
            // Another try of the same purchase may have been executed.
            Status::Busy | Status::Draining | Status::Full => return Ok(false),
            status => {
                let text = String::from_utf8_lossy(&reply.value);
                return Err(format!("{status:?} ({text}) to purchase {number}"));
            }
        }
        if let Some(mut purchase) = self.open.remove(&number) {
            purchase.version = Some(reply.version);
            self.bought += 1;
            self.answered.push_back((number, purchase));
            if self.answered.len() > ANSWERED_MAX {
                self.answered.pop_front();
            }
            return Ok(true);
        }
        // The answers of one connection come in the order of execution.
        if !reply.is_replayed {
            return Err(format!("purchase {number} was executed twice"));
        }
        let mut answered = self.answered.iter();
        match answered.find(|(it, _)| *it == number) {
            Some((_, purchase)) if purchase.version != Some(reply.version) => Err(format!(
                "purchase {number} has version {:?} now and had {:?}",
                reply.version, purchase.version
            )),
            // It may be forgotten: it was answered long ago.
            _ => Ok(true),
        }
    }

    /// Asks again what has no answer, until it has one, and then what was answered lately: all of
    /// it must be told again. Behind a start.
    ///
    /// # Errors
    /// A purchase is lost or was executed twice, in words.
    pub fn settle(&mut self, wire: &mut Wire) -> Result<(), String> {
        let mut refused = 0;
        while let Some((&number, purchase)) = self.open.first_key_value() {
            let item = purchase.item.clone();
            let reply = self.ask_again(wire, &item)?;
            if self.note(number, &reply)? {
                refused = 0;
                continue;
            }
            refused += 1;
            if refused == TRIES_MAX {
                return Err(format!(
                    "buyer {}: purchase {number} was refused {TRIES_MAX} times, in the end with \
                     {:?}",
                    self.number, reply.status
                ));
            }
        }
        let answered: Vec<(u64, Vec<u8>)> = self
            .answered
            .iter()
            .map(|(number, it)| (*number, it.item.clone()))
            .collect();
        for (number, item) in answered {
            let reply = self.ask_again(wire, &item)?;
            self.note(number, &reply)
                .map_err(|text| format!("buyer {} behind a start: {text}", self.number))?;
        }
        Ok(())
    }

    fn ask_again(&mut self, wire: &mut Wire, item: &[u8]) -> Result<Reply, String> {
        let mut frame = Vec::new();
        let mut batch = BatchRequest::begin(&mut frame, 1, AckLevel::Disk, 0, 1);
        batch.raw(&mut frame, item);
        batch.finish(&mut frame);
        self.requests += 1;
        self.again += 1;
        Ok(wire.ask(&frame, 1)?.remove(0))
    }
}

/// One piece of the stock.
fn sale(token: Token) -> Vec<u8> {
    let instruction = |operation| Instruction {
        operation,
        field_type: FieldType::U64,
        key: 0,
        reason: 0,
        offset: 0,
        immediate: 1,
    };
    let instructions = [instruction(Operation::Ge), instruction(Operation::Sub)];
    item_of(|batch, out| {
        batch.token(token);
        batch.update_if(out, STOCK, None, &instructions, None);
    })
}

/// The one item of a batch.
fn item_of(build: impl FnOnce(&mut BatchRequest, &mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    let mut batch = BatchRequest::begin(&mut out, 1, AckLevel::Disk, 0, 1);
    let from = out.len();
    build(&mut batch, &mut out);
    out.split_off(from)
}

/// Two runs of one seed have other tokens, by their time.
fn new_token(random: &mut Random) -> Token {
    let time = SystemTime::now().duration_since(UNIX_EPOCH);
    let time_ms = u64::try_from(time.unwrap_or_default().as_millis()).unwrap_or(u64::MAX);
    let mut bytes = [0; 10];
    bytes[..8].copy_from_slice(&random.next().to_le_bytes());
    bytes[8..].copy_from_slice(&random.next().to_le_bytes()[..2]);
    Token::new(time_ms, bytes)
}

/// Writes what the buyers begin with.
///
/// # Errors
/// The server refuses it.
pub fn prepare(wire: &mut Wire, buyers: &[Buyer]) -> Result<(), String> {
    let mut frame = Vec::new();
    let items = buyers.len() + 1;
    let mut batch = BatchRequest::begin(&mut frame, 1, AckLevel::Disk, 0, items);
    let stock = STOCK_INITIAL.to_le_bytes();
    batch.set(&mut frame, STOCK, &stock, Condition::Always);
    for buyer in buyers {
        let key = buyer.count_key();
        batch.set(&mut frame, &key, &0u64.to_le_bytes(), Condition::Always);
    }
    batch.finish(&mut frame);
    let replies = wire.ask(&frame, items)?;
    replies
        .iter()
        .all(|reply| reply.status == Status::Ok)
        .then_some(())
        .ok_or("the first writes were refused".into())
}

/// Compares the stock with what was bought. When nothing is open.
///
/// # Errors
/// One of them is more.
pub fn compare(wire: &mut Wire, buyers: &[Buyer]) -> Result<(), String> {
    let stock = wire.get(&[STOCK.to_vec()])?.remove(0);
    let stock = stock.ok_or("the stock is gone")?;
    let taken = STOCK_INITIAL.wrapping_sub(number(&stock));
    let bought: u64 = buyers.iter().map(|buyer| buyer.bought).sum();
    (taken == bought)
        .then_some(())
        .ok_or(format!("{taken} pieces were taken for {bought} purchases"))
}
