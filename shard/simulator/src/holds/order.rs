//! Orders, what somebody wants of them, and how often he tries: what can be known of each.

use penstock_net::level::AckLevel;
use penstock_net::request::Token;

use super::form::{Act, BOUGHT, CANCELLED, CONFIRMED, EXPIRED, Subject, Until};
use super::{Holds, Outcome};

/// How far an order has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Nothing,
    Held,
    Confirmed,
    Cancelled,
    Expired,
}

impl Stage {
    /// That a cell tells, if it tells one.
    pub(super) fn of(cell: u8) -> Option<Self> {
        const BOUGHT_AND_CONFIRMED: u8 = BOUGHT | CONFIRMED;
        const BOUGHT_AND_CANCELLED: u8 = BOUGHT | CANCELLED;
        const BOUGHT_AND_EXPIRED: u8 = BOUGHT | EXPIRED;
        match cell {
            0 => Some(Stage::Nothing),
            BOUGHT => Some(Stage::Held),
            BOUGHT_AND_CONFIRMED => Some(Stage::Confirmed),
            BOUGHT_AND_CANCELLED => Some(Stage::Cancelled),
            BOUGHT_AND_EXPIRED => Some(Stage::Expired),
            _ => None,
        }
    }

    pub(super) fn is_end(self) -> bool {
        !matches!(self, Stage::Nothing | Stage::Held)
    }
}

/// What is known of an order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    pub(super) stage: Stage,
    /// What is sent from then on must see it.
    pub(super) from: usize,
    pub(super) level: AckLevel,
}

/// One purchase, or one addition to the stock.
#[derive(Debug)]
pub(super) struct Order {
    pub(super) of: Subject,
    pub(super) is_restock: bool,
    /// What somebody wanted of it.
    pub(super) deals: Vec<usize>,
    pub(super) known: Option<Known>,
}

impl Order {
    pub(super) fn new(of: Subject, is_restock: bool) -> Self {
        Order {
            of,
            is_restock,
            deals: Vec::new(),
            known: None,
        }
    }

    pub(super) fn stage(&self) -> Stage {
        self.known.map_or(Stage::Nothing, |known| known.stage)
    }

    pub(super) fn has_ended(&self) -> bool {
        self.is_restock || self.stage().is_end()
    }

    /// Whether it was held when it was seen last.
    pub(super) fn is_held(&self) -> bool {
        !self.is_restock && self.stage() == Stage::Held
    }

    /// What was known at lost levels is known no more.
    pub(super) fn forget(&mut self, is_lost: impl Fn(AckLevel) -> bool) {
        self.known.take_if(|known| is_lost(known.level));
    }

    /// Whether what is sent at this moment must see this stage or what follows it.
    pub(super) fn is_known_at(&self, at: usize) -> Option<Stage> {
        let known = self.known.filter(|known| known.from <= at);
        known.map(|known| known.stage)
    }
}

/// It was answered OK at a level that is not lost.
#[derive(Clone, Copy, Debug)]
pub(super) struct Done {
    pub(super) level: AckLevel,
    pub(super) at: usize,
    /// No shard was in a later time.
    pub(super) latest_ms: u64,
}

/// What somebody wants once.
#[derive(Debug)]
pub(super) struct Deal {
    pub(super) lot: usize,
    pub(super) act: Act,
    pub(super) of: Subject,
    pub(super) order: Option<usize>,
    pub(super) token: Option<Token>,
    pub(super) tries: Vec<usize>,
    pub(super) done: Option<Done>,
}

#[derive(Debug)]
pub(super) struct Try {
    pub(super) deal: usize,
    pub(super) level: AckLevel,
    pub(super) outcome: Outcome,
    /// When it was sent and answered, by count, and the latest time of a shard then.
    pub(super) at: usize,
    pub(super) answered_at: usize,
    pub(super) answered_ms: u64,
    /// The time of the shard when it was sent, or less.
    pub(super) sent_ms: u64,
    pub(super) run: usize,
    /// Effects of what expired before must be seen.
    pub(super) late_ms: Option<u64>,
    /// Nothing may be held.
    pub(super) is_last: bool,
}

impl Try {
    pub(super) fn may_have_run(&self) -> bool {
        self.outcome != Outcome::NotExecuted
    }
}

impl Holds {
    /// The latest time of a shard since a run.
    pub(super) fn latest_since(&self, run: usize) -> u64 {
        let times = self.latest_ms[run..].iter();
        times.copied().max().expect("there is a run")
    }

    /// The latest time of a shard since an order was made.
    pub(super) fn latest_of(&self, order: usize) -> u64 {
        let first = self.orders[order].deals[0];
        self.latest_since(self.tries[self.deals[first].tries[0]].run)
    }

    pub(super) fn may_have_run(&self, deal: usize) -> bool {
        let mut tries = self.deals[deal].tries.iter();
        tries.any(|&number| self.tries[number].may_have_run())
    }

    /// Whether somebody may have done this with an order.
    pub(super) fn may_be(&self, order: usize, is_it: impl Fn(Act) -> bool) -> bool {
        let mut deals = self.orders[order].deals.iter();
        deals.any(|&deal| is_it(self.deals[deal].act) && self.may_have_run(deal))
    }

    /// The moment since which no try of a deal that was sent before can run; `None` if one still
    /// may.
    fn over_at(&self, deal: usize) -> Option<usize> {
        let deal = &self.deals[deal];
        if deal.token.is_some()
            && let Some(done) = deal.done
        {
            return Some(done.at);
        }
        let tries = deal.tries.iter().map(|&number| &self.tries[number]);
        let mut of_all = tries.map(|it| match it.outcome {
            Outcome::Pending | Outcome::Unknown => None,
            Outcome::Executed | Outcome::NotExecuted => Some(it.answered_at),
        });
        of_all.try_fold(0, |over: usize, at| Some(over.max(at?)))
    }

    /// When a hold may expire at the earliest and at the latest, by what is known of everything
    /// that decides it.
    pub(super) fn life(&self, order: usize) -> (u64, u64) {
        self.life_at(order, usize::MAX)
    }

    /// The same for what was sent at this moment: it may have run before what was not done by then.
    pub(super) fn life_at(&self, order: usize, at: usize) -> (u64, u64) {
        let deciding = || {
            let deals = self.orders[order].deals.iter().copied();
            deals.filter(|&deal| self.deals[deal].act.until().is_some() && self.may_have_run(deal))
        };
        let is_superseded = |deal: usize| {
            let Some(over_at) = self.over_at(deal) else {
                return false;
            };
            deciding().any(|later| {
                let first = self.tries[self.deals[later].tries[0]].at;
                let is_done = self.deals[later].done.is_some_and(|done| done.at <= at);
                later != deal && is_done && over_at <= first
            })
        };
        let (mut low, mut high) = (u64::MAX, 0);
        for deal in deciding().filter(|&deal| !is_superseded(deal)) {
            let until = self.deals[deal].act.until().expect("it decides");
            for &number in &self.deals[deal].tries {
                let it = &self.tries[number];
                if !it.may_have_run() {
                    continue;
                }
                let (first, last) = match until {
                    Until::At(ms) => (ms, ms),
                    // It counts from a time that is rounded up.
                    Until::In(ms) => (it.sent_ms + ms, it.answered_ms.saturating_add(ms + 1)),
                };
                (low, high) = (low.min(first), high.max(last));
            }
        }
        (low, high)
    }

    /// Until when a hold may have been made whose time had passed already; 0 if none was. Its
    /// effects run in a later turn. What has a token and was done before is not done again.
    pub(super) fn made_late_until_ms(&self, order: usize) -> u64 {
        let deals = self.orders[order].deals.iter().map(|&it| &self.deals[it]);
        let late = deals.flat_map(|deal| {
            let done_at = deal.done.filter(|_| deal.token.is_some()).map(|it| it.at);
            let tries = deal.tries.iter().map(|&number| &self.tries[number]);
            tries.filter(move |it| match deal.act.until() {
                Some(Until::At(ms)) => {
                    let is_replayed = done_at.is_some_and(|done_at| done_at < it.at);
                    it.may_have_run() && it.sent_ms > ms && !is_replayed
                }
                _ => false,
            })
        });
        late.map(|it| it.answered_ms).max().unwrap_or_default()
    }

    /// Whether an order may have lost its effects before they ran, or may have no expiry any more.
    pub(super) fn may_be_disarmed(&self, order: usize) -> bool {
        self.may_fail
            || self.may_be(order, |act| matches!(act, Act::Persist(_)))
            || self.may_be_taken_away(order)
    }

    /// Whether somebody may have taken the key of a hold away before its time.
    pub(super) fn may_be_taken_away(&self, order: usize) -> bool {
        let seat = self.orders[order].of.seat;
        let first = self.orders[order].deals[0];
        let lot = self.deals[first].lot;
        let bought_at = self.tries[self.deals[first].tries[0]].at;
        let expires_ms = self.life(order).1;
        let mut takers = self.lots[lot].takers.iter();
        takers.any(|&deal| {
            let deal = &self.deals[deal];
            let is_there = deal.of.seat == seat;
            let mut tries = deal.tries.iter().map(|&number| &self.tries[number]);
            is_there
                && tries.any(|it| {
                    it.may_have_run() && it.answered_at > bought_at && it.sent_ms < expires_ms
                })
        })
    }

    /// Whether an order was disarmed for certain before its time, and never armed again.
    pub(super) fn must_be_disarmed(&self, order: usize) -> bool {
        if self.may_be(order, |act| matches!(act, Act::Rearm(_))) {
            return false;
        }
        let first = self.orders[order].deals[0];
        let (lot, seat) = (self.deals[first].lot, self.orders[order].of.seat);
        let Some(bought) = self.deals[first].done else {
            return false;
        };
        let expires_ms = self.life(order).0;
        let of_order = self.orders[order].deals.iter();
        let mut all = of_order.chain(&self.lots[lot].takers);
        all.any(|&deal| {
            let deal = &self.deals[deal];
            let is_persist = matches!(deal.act, Act::Persist(_));
            let is_gone = deal.act.is_of_any_order() && deal.of.seat == seat;
            let is_behind = |done: Done| {
                self.tries[deal.tries[0]].at >= bought.at && done.latest_ms < expires_ms
            };
            (is_persist || is_gone) && deal.done.is_some_and(is_behind)
        })
    }

    /// Whether what was sent at this moment must find the hold of an order.
    pub(super) fn must_be_there(&self, order: usize, at: usize) -> bool {
        let state = &self.orders[order];
        let ends = |act| matches!(act, Act::Confirm | Act::Cancel | Act::Release { .. });
        state.is_known_at(at) == Some(Stage::Held)
            && !self.may_be(order, ends)
            && !self.may_be_taken_away(order)
            && self.latest_of(order) < self.life(order).0
    }
}
