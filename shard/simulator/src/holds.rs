//! Holds: units that are taken for an order and come back by themselves, and their judge.
//!
//! ```text
//!                    +-- confirm --> sold             stock: available, held, sold, all
//!  available --buy--> held -- cancel --> available    buyer: what is held and sold for him
//!                    +-- expiry --> available         book:  a cell for each order
//! ```
//!
//! A *lot* is a stock with its book, its buyers and its seats. A *seat* is the key of a hold: one
//! order has it after the other. `buy` puts the hold with an expiry and with effects (ON_EXPIRE)
//! that give its units back. All keys of a lot are of one slot, and each event of an order is one
//! record that also counts in the cell of the order. What must hold, whatever goes wrong:
//!
//! - At each moment that somebody sees, available + held + sold is what there was at first and what
//!   was added. Held is what the open orders have, sold what the confirmed ones have.
//! - An order ends once: confirmed, cancelled or expired. What ended durably stays so.
//! - Nobody sees or uses a hold whose time has come, and none ends by itself before its time.
//! - Behind the expiry the units are back soon, unless somebody had disarmed the hold.
//! - In the end nothing is held.
//!
//! Nothing is asked of what the server runs. Nodes and clusters have the same judge; they tell it
//! what they may have lost.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use penstock_net::level::AckLevel;
use penstock_net::reply::{ITEM_FLAG_REPLAYED, ReplyItem};
use penstock_net::request::{BatchRequest, Token};
use penstock_net::slot::slot_of;
use penstock_storage::version::partition_of;

use crate::random::Random;
use crate::sales::{Moment, Outcome};

mod form;
mod judge;
mod order;
#[cfg(test)]
mod tests;

use form::{Act, CELLS, Keys, SEATS, Subject, Until};
use order::{Deal, Order, Try};

/// What the keys of lots of a node begin with; no other key does.
pub const PREFIX: &[u8] = b"{tdesk";

/// What every long run with holds meets.
pub const MUST_MEET: &[&str] = &[
    "hold bought",
    "hold cancelled",
    "hold confirmed",
    "hold expired",
    "hold extended",
    "hold of unknown outcome",
    "hold overwritten",
    "hold persisted",
    "hold released",
    "hold replayed",
    "hold shown",
    "lot shown",
    "stock added",
];

/// Tries of one deal, at most, before all is quiet.
const TRIES_MAX: usize = 6;
/// Lots of a run, at most.
const LOTS_MAX: usize = 12;
/// So long after an expiry its effects may be unseen, if nothing holds the node up.
pub const LATE_MS_MAX: u64 = 5_000;

/// A stock with its book, its buyers and its holds.
#[derive(Debug)]
struct Lot {
    desk: usize,
    keys: Keys,
    /// Its keys are there, for what was sent since.
    opened_at: Option<usize>,
    /// It was seen with nothing held, in the end.
    is_cleared: bool,
    /// The order of each cell.
    orders: Vec<usize>,
    /// What takes any hold of a seat away.
    takers: Vec<usize>,
}

/// Who sells, one lot after the other: keys of one slot.
#[derive(Debug)]
struct Desk {
    tag: String,
    partition: usize,
    slot: u16,
    lots: Vec<usize>,
    /// From which level on nothing is lost; `None` if all may be.
    kept_from: Option<AckLevel>,
}

/// All holds of a run.
#[derive(Debug)]
pub struct Holds {
    random: Random,
    desks: Vec<Desk>,
    lots: Vec<Lot>,
    orders: Vec<Order>,
    deals: Vec<Deal>,
    tries: Vec<Try>,
    due: BTreeSet<(u64, usize)>,
    /// Lifetimes of holds, in milliseconds.
    lifetimes_ms: &'static [u64],
    /// Counts what is sent and answered.
    moment: usize,
    /// The latest time of a shard in each run.
    latest_ms: Vec<u64>,
    /// Nothing holds the node up, and nothing did lately.
    is_prompt: bool,
    /// Reads of the disk may fail, and with them effects.
    may_fail: bool,
    /// How long a cluster was at rest, in all: each hold had a node that is to run its effects.
    rested_us: u64,
    /// When that was last looked at.
    rest_seen_us: Option<u64>,
    /// What the last look has still to send.
    last: VecDeque<(usize, Act, Subject)>,
    last_step: u8,
    /// What was met.
    pub met: BTreeMap<&'static str, u64>,
}

impl Holds {
    /// No holds yet, at desks whose keys begin with these tags.
    #[must_use]
    pub fn new(
        random: Random,
        tags: &[String],
        lifetimes_ms: &'static [u64],
        may_fail: bool,
    ) -> Self {
        let desks = tags.iter().map(|tag| {
            let slot = slot_of(tag.as_bytes());
            Desk {
                tag: tag.clone(),
                partition: partition_of(slot),
                slot,
                lots: Vec::new(),
                kept_from: Some(AckLevel::Disk),
            }
        });
        Holds {
            desks: desks.collect(),
            random,
            lots: Vec::new(),
            orders: Vec::new(),
            deals: Vec::new(),
            tries: Vec::new(),
            due: BTreeSet::new(),
            lifetimes_ms,
            moment: 0,
            latest_ms: vec![0],
            is_prompt: false,
            may_fail,
            rested_us: 0,
            rest_seen_us: None,
            last: VecDeque::new(),
            last_step: 0,
            met: MUST_MEET.iter().map(|&what| (what, 0)).collect(),
        }
    }

    /// The names and partitions of all keys that may have been made.
    pub fn keys(&self) -> impl Iterator<Item = (Vec<u8>, usize)> + '_ {
        self.lots.iter().flat_map(|lot| {
            let partition = self.desks[lot.desk].partition;
            lot.keys.all().map(move |key| (key, partition))
        })
    }

    fn meet(&mut self, what: &'static str) {
        *self.met.entry(what).or_default() += 1;
    }

    fn next_moment(&mut self) -> usize {
        self.moment += 1;
        self.moment
    }

    /// A run of the node begins, whose shards may be in an earlier time.
    pub fn started(&mut self) {
        self.latest_ms.push(0);
    }

    /// A shard has this time.
    pub fn notice(&mut self, time_ms: u64) {
        let latest_ms = self.latest_ms.last_mut().expect("there is a run");
        *latest_ms = time_ms.max(*latest_ms);
    }

    /// Whether what is sent from now on meets a node that nothing holds up.
    pub fn set_prompt(&mut self, is_prompt: bool) {
        self.is_prompt = is_prompt;
    }

    /// A cluster is at rest now: each hold has a node that is to run its effects; or not. A node
    /// that writes by itself, as for tokens, makes the nodes differ for a moment again and again,
    /// so the times of rest are added up.
    pub fn note_rest(&mut self, now_us: u64, is_at_rest: bool) {
        let seen_us = self.rest_seen_us.replace(now_us).unwrap_or(now_us);
        if is_at_rest {
            self.rested_us += now_us - seen_us;
        }
    }

    /// Whether a cluster has been at rest for so long.
    #[must_use]
    pub fn has_rested(&self, for_us: u64) -> bool {
        self.rested_us >= for_us
    }

    /// Effects may fail from now on, because a read of the disk may.
    pub fn may_fail(&self) -> bool {
        self.may_fail
    }

    /// How many desks there are.
    #[must_use]
    pub fn desks(&self) -> usize {
        self.desks.len()
    }

    /// The slot of a desk.
    #[must_use]
    pub fn slot(&self, desk: usize) -> u16 {
        self.desks[desk].slot
    }

    /// The partition of a desk.
    #[must_use]
    pub fn partition(&self, desk: usize) -> usize {
        self.desks[desk].partition
    }

    /// The next try that is due, or one of something new at this desk.
    pub fn next(&mut self, desk: usize, level: AckLevel, now: Moment) -> usize {
        let is_due = |&&(due_us, deal): &&(u64, usize)| {
            due_us <= now.us && self.lots[self.deals[deal].lot].desk == desk
        };
        if let Some(&due) = self.due.iter().find(is_due) {
            self.due.remove(&due);
            return self.send(due.1, level, now);
        }
        let lot = self.lot_of(desk);
        let deal = self.choose(lot, now);
        let act = self.deals[deal].act;
        // Somebody does not wait for the answer.
        if !act.is_read() && self.random.chance(200_000) {
            self.due.insert((now.us, deal));
        }
        self.send(deal, level, now)
    }

    /// The lot of a desk that has cells left, or the last one.
    fn lot_of(&mut self, desk: usize) -> usize {
        let last = self.desks[desk].lots.last().copied();
        let is_full = last.is_none_or(|lot| self.lots[lot].orders.len() == CELLS);
        match last {
            Some(lot) if !is_full || self.lots.len() == LOTS_MAX => {
                // Now and then an older one.
                match self.random.chance(100_000) {
                    true => {
                        let lots = &self.desks[desk].lots;
                        lots[self.random.index(lots.len())]
                    }
                    false => lot,
                }
            }
            _ => {
                let series = self.desks[desk].lots.len();
                let keys = Keys {
                    tag: format!("{}{series} ", self.desks[desk].tag),
                    units: self.random.pick(&[4, 20, 1_000]),
                    units_max: self.random.pick(&[5, 12, 1_000]),
                };
                self.desks[desk].lots.push(self.lots.len());
                self.lots.push(Lot {
                    desk,
                    keys,
                    opened_at: None,
                    is_cleared: false,
                    orders: Vec::new(),
                    takers: Vec::new(),
                });
                self.lots.len() - 1
            }
        }
    }

    fn choose(&mut self, lot: usize, now: Moment) -> usize {
        let nobody = Subject {
            seat: self.random.index(SEATS),
            buyer: 0,
            units: 0,
            cell: 0,
            has_token: false,
        };
        let count = self.lots[lot].orders.len();
        if self.lots[lot].opened_at.is_none() && (count == 0 || self.random.chance(500_000)) {
            return self.deal(lot, Act::Open, nobody, now);
        }
        let is_full = count == CELLS;
        match self.random.below(100) {
            0..14 => return self.deal(lot, Act::Survey, nobody, now),
            14..26 => return self.deal(lot, Act::Read, nobody, now),
            26..60 if !is_full => return self.order(lot, now),
            _ if count == 0 => return self.order(lot, now),
            _ => {}
        }
        // One of the last orders, or any.
        let back = match self.random.chance(850_000) {
            true => 1 + self.random.index(count.min(6)),
            false => 1 + self.random.index(count),
        };
        let order = &self.orders[self.lots[lot].orders[count - back]];
        let (of, is_restock) = (order.of, order.is_restock);
        if is_restock {
            return self.deal(lot, Act::Survey, nobody, now);
        }
        let by_update = self.random.chance(500_000);
        let until = self.until(now);
        let act = match self.random.below(100) {
            0..28 => Act::Confirm,
            28..44 => Act::Cancel,
            44..60 => Act::Extend(until, by_update && matches!(until, Until::At(_))),
            60..66 => Act::Rearm(until),
            66..69 => Act::Persist(by_update),
            69..76 => Act::Touch,
            76..82 => Act::Overwrite,
            82..87 => Act::Clear,
            87..94 => Act::Release { is_absent: true },
            _ => Act::Release { is_absent: false },
        };
        self.deal(lot, act, of, now)
    }

    fn until(&mut self, now: Moment) -> Until {
        let lifetime_ms = self.random.pick(self.lifetimes_ms);
        match self.random.chance(300_000) {
            true => Until::In(lifetime_ms),
            false => Until::At(now.time_ms + lifetime_ms),
        }
    }

    /// A new order: a purchase, or units that are added.
    fn order(&mut self, lot: usize, now: Moment) -> usize {
        let is_restock = self.random.chance(60_000);
        let of = Subject {
            seat: self.random.index(SEATS),
            buyer: self.random.index(form::BUYERS),
            units: self.random.within(1, 3),
            cell: self.lots[lot].orders.len(),
            has_token: is_restock || self.random.chance(600_000),
        };
        let until = self.until(now);
        self.lots[lot].orders.push(self.orders.len());
        self.orders.push(Order::new(of, is_restock));
        let act = match is_restock {
            true => Act::Restock,
            false => Act::Buy(until),
        };
        self.deal(lot, act, of, now)
    }

    /// Something that somebody wants, about an order unless it is about a whole lot.
    fn deal(&mut self, lot: usize, act: Act, of: Subject, now: Moment) -> usize {
        let wants_token = match act {
            // In the end no horizon is to be in the way.
            _ if self.last_step > 0 => false,
            Act::Buy(_) | Act::Restock => of.has_token,
            Act::Open | Act::Survey | Act::Read => false,
            _ => self.random.chance(500_000),
        };
        let [low, high] = [self.random.bits(), self.random.bits()].map(u64::to_le_bytes);
        let mut bytes = [0; 10];
        bytes[..8].copy_from_slice(&low);
        bytes[8..].copy_from_slice(&high[..2]);
        let number = self.deals.len();
        let is_of_order = !matches!(act, Act::Open) && !act.is_read() && !act.is_of_any_order();
        let order = is_of_order.then(|| self.lots[lot].orders[of.cell]);
        if let Some(order) = order {
            self.orders[order].deals.push(number);
        }
        if act.is_of_any_order() {
            self.lots[lot].takers.push(number);
        }
        self.deals.push(Deal {
            lot,
            act,
            of,
            order,
            token: wants_token.then(|| Token::new(now.time_ms, bytes)),
            tries: Vec::new(),
            done: None,
        });
        number
    }

    fn send(&mut self, deal: usize, level: AckLevel, now: Moment) -> usize {
        let (number, at) = (self.tries.len(), self.next_moment());
        self.deals[deal].tries.push(number);
        let level = match self.deals[deal].act {
            Act::Open | Act::Survey | Act::Read => level.max(AckLevel::Disk),
            _ => level,
        };
        self.tries.push(Try {
            deal,
            level,
            outcome: Outcome::Pending,
            at,
            answered_at: usize::MAX,
            answered_ms: u64::MAX,
            sent_ms: now.least_ms,
            run: self.latest_ms.len() - 1,
            late_ms: self
                .is_prompt
                .then(|| now.least_ms.saturating_sub(LATE_MS_MAX)),
            is_last: self.last_step > 1,
        });
        number
    }

    /// The level that a try asks for.
    #[must_use]
    pub fn level(&self, number: usize) -> AckLevel {
        self.tries[number].level
    }

    /// Whether an answer OK to it tells a version that nobody else is told.
    #[must_use]
    pub fn is_change(&self, number: usize, item: &ReplyItem<'_>) -> bool {
        let act = self.deals[self.tries[number].deal].act;
        let is_replayed = item.head.flags & ITEM_FLAG_REPLAYED != 0;
        // An expiry that was there already is no change.
        let may_be_none = matches!(act, Act::Open | Act::Extend(..) | Act::Persist(_));
        !act.is_read() && !may_be_none && !is_replayed
    }

    /// Writes the item of a try.
    pub fn write(&self, number: usize, batch: &mut BatchRequest, out: &mut Vec<u8>) {
        let deal = &self.deals[self.tries[number].deal];
        if let Some(token) = deal.token {
            batch.token(token);
        }
        self.lots[deal.lot].keys.ask(deal.act, deal.of, batch, out);
    }

    /// No answer will come.
    pub fn lost(&mut self, number: usize, now_us: u64) {
        self.tries[number].outcome = Outcome::Unknown;
        let deal = self.tries[number].deal;
        if !self.deals[deal].act.is_read() {
            self.meet("hold of unknown outcome");
            self.plan_again(deal, now_us, 900_000);
        }
    }

    /// Perhaps there is another try of a deal.
    fn plan_again(&mut self, deal: usize, now_us: u64, chance: u32) {
        if self.deals[deal].tries.len() >= TRIES_MAX || !self.random.chance(chance) {
            return;
        }
        let pauses = [0, 0, 500, 5_000, 100_000, 1_000_000, 5_000_000];
        let due_us = now_us + self.random.pick(&pauses);
        self.due.insert((due_us, deal));
    }

    /// What was answered below this level may be gone from a partition, or all with `None`, and
    /// what is answered from now on likewise.
    pub fn keeps_from(&mut self, partition: usize, level: Option<AckLevel>) {
        for number in 0..self.desks.len() {
            let desk = &mut self.desks[number];
            if desk.partition != partition {
                continue;
            }
            desk.kept_from = level.filter(|level| desk.kept_from.is_some_and(|it| it <= *level));
            let kept_from = desk.kept_from;
            let is_lost = |of: AckLevel| kept_from.is_none_or(|level| of < level);
            for &lot in &desk.lots {
                self.lots[lot].opened_at = None;
                for &order in &self.lots[lot].orders {
                    let order = &mut self.orders[order];
                    order.forget(is_lost);
                }
                for deal in self.deals.iter_mut().filter(|deal| deal.lot == lot) {
                    deal.done.take_if(|done| is_lost(done.level));
                }
            }
        }
    }

    /// No try of before is under way any more: all faults are over, and all connections new.
    pub fn close(&mut self) {
        for number in 0..self.tries.len() {
            let latest_ms = self.latest_since(self.tries[number].run);
            let answered_ms = &mut self.tries[number].answered_ms;
            *answered_ms = latest_ms.min(*answered_ms);
        }
    }

    /// The last expiry of a hold that may be there; 0 if there is none.
    #[must_use]
    pub fn last_expiry_ms(&self) -> u64 {
        let open = (0..self.orders.len()).filter(|&order| !self.orders[order].has_ended());
        let last = open.map(|order| self.life(order).1);
        last.max().unwrap_or_default()
    }

    // ---- the last look of a node ----

    /// Begins a last look: at all lots and seats, then at what is left behind its end.
    pub fn begin_last(&mut self) {
        for lot in &mut self.lots {
            lot.is_cleared = false;
        }
        self.last_step = 0;
        self.last.clear();
    }

    /// Whether a last look has something left to send.
    #[must_use]
    pub fn has_last(&self) -> bool {
        !self.last.is_empty() || self.last_step < 2
    }

    /// The next try of a last look. None of before is under way if `is_idle`.
    pub fn next_last(&mut self, now: impl Fn(u16) -> Moment, is_idle: bool) -> Option<usize> {
        if self.last.is_empty() && is_idle && self.last_step < 2 {
            self.last_step += 1;
            self.fill_last();
        }
        let (lot, act, of) = self.last.pop_front()?;
        let now = now(self.desks[self.lots[lot].desk].slot);
        let deal = self.deal(lot, act, of, now);
        Some(self.send(deal, AckLevel::Disk, now))
    }

    fn fill_last(&mut self) {
        let nobody = |seat| Subject {
            seat,
            buyer: 0,
            units: 0,
            cell: 0,
            has_token: false,
        };
        for (number, lot) in self.lots.iter().enumerate() {
            // What was disarmed is held until somebody gives it back.
            let held = lot.orders.iter().map(|&order| &self.orders[order]);
            for order in held.filter(|order| self.last_step == 2 && order.is_held()) {
                let acts = [true, false].map(|is_absent| Act::Release { is_absent });
                for act in [Act::Cancel].into_iter().chain(acts) {
                    self.last.push_back((number, act, order.of));
                }
            }
            self.last.push_back((number, Act::Survey, nobody(0)));
            let seats = (0..SEATS).map(|seat| (number, Act::Read, nobody(seat)));
            self.last.extend(seats);
        }
    }
}
