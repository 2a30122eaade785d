//! The answers about holds, and what a lot shows.

use std::collections::BTreeMap;

use penstock_net::level::AckLevel;
use penstock_net::limits::TOKEN_AHEAD_MS_MAX;
use penstock_net::reply::{ITEM_FLAG_REPLAYED, ReplyItem};
use penstock_net::status::{Executed, Status};

use crate::sales::{Excuses, is_excused};

use super::form::{Act, BOUGHT, BUYERS, CELLS, HoldShown, LotShown, Until};
use super::order::{Done, Known, Stage};
use super::{Holds, Lot, Outcome};

/// Who saw a lot.
#[derive(Clone, Copy, Debug)]
struct Observation {
    /// What was known then must be seen. Nothing must be, with `None`.
    at: Option<usize>,
    /// What expired by then has been given back.
    late_ms: Option<u64>,
    /// What it has seen stays so, if that is as durable as this.
    level: AckLevel,
    /// Nothing may be held.
    is_last: bool,
}

impl Holds {
    /// An answer came.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn answer(
        &mut self,
        number: usize,
        item: &ReplyItem<'_>,
        now_us: u64,
        excuses: Excuses,
    ) -> Result<(), String> {
        if self.tries[number].outcome != Outcome::Pending {
            return Err(format!("try {number} of a hold was answered twice"));
        }
        let (status, at) = (item.head.status, self.next_moment());
        let deal = self.tries[number].deal;
        let act = self.deals[deal].act;
        let latest_ms = self.latest_since(self.tries[number].run);
        let it = &mut self.tries[number];
        (it.answered_at, it.answered_ms) = (at, latest_ms);
        it.outcome = match status.executed() {
            Executed::Yes => Outcome::Executed,
            Executed::Unknown if status != Status::TokenTooOld => Outcome::Unknown,
            Executed::No | Executed::Unknown => Outcome::NotExecuted,
        };
        let judged = match status {
            Status::Ok if item.head.level < self.tries[number].level => {
                Err("another level was asked for".into())
            }
            Status::Ok => self.done(number, item),
            Status::NotFound | Status::GuardFailed => self.denied(number, status, excuses),
            Status::TokenTooOld if self.deals[deal].token.is_some() => Ok(()),
            Status::Malformed => self.judge_ahead(number),
            _ => is_excused(status, excuses),
        };
        if !act.is_read() {
            let chance = match status {
                Status::Ok => 350_000,
                Status::GuardFailed | Status::NotFound | Status::TokenTooOld => 200_000,
                _ => 800_000,
            };
            self.plan_again(deal, now_us, chance);
        }
        judged.map_err(|wrong| {
            // A refusal is a text.
            let refusal = match status {
                Status::Ok => "",
                _ => str::from_utf8(item.value).unwrap_or_default(),
            };
            let (what, head) = (self.describe(number), item.head);
            format!("{what} was answered {head:?} ({refusal:?}): {wrong}")
        })
    }

    /// A token is ahead of the time of a shard that began anew in an earlier one, or a time is past
    /// by a shard that is ahead of the wall clock, and not by that clock.
    fn judge_ahead(&self, number: usize) -> Result<(), String> {
        let it = &self.tries[number];
        let token = self.deals[it.deal].token;
        let gives_a_time = matches!(self.deals[it.deal].act.until(), Some(Until::At(_)));
        let is_ahead = token.is_some_and(|token| token.time_ms() > it.sent_ms + TOKEN_AHEAD_MS_MAX);
        match is_ahead || gives_a_time {
            true => Ok(()),
            false => Err("it was not ahead of the time".into()),
        }
    }

    /// Whether what is answered at a level is not lost.
    fn is_kept(&self, number: usize, level: AckLevel) -> bool {
        let lot = self.deals[self.tries[number].deal].lot;
        let kept_from = self.desks[self.lots[lot].desk].kept_from;
        kept_from.is_some_and(|from| level >= from)
    }

    /// It was answered OK.
    fn done(&mut self, number: usize, item: &ReplyItem<'_>) -> Result<(), String> {
        let level = item.head.level;
        let is_kept = self.is_kept(number, level);
        let deal = self.tries[number].deal;
        let (act, lot) = (self.deals[deal].act, self.deals[deal].lot);
        let latest_ms = self.tries[number].answered_ms;
        match act {
            Act::Survey => {
                self.meet("lot shown");
                let shown = LotShown::read(item).ok_or("it tells no lot")?;
                let it = &self.tries[number];
                let observation = Observation {
                    at: is_kept.then_some(it.at),
                    late_ms: it.late_ms.filter(|_| is_kept),
                    level,
                    is_last: it.is_last,
                };
                self.lots[lot].is_cleared |= observation.is_last;
                return self.judge_lot(lot, &shown, observation);
            }
            Act::Read => {
                self.meet("hold shown");
                return self.shown(number, item, is_kept);
            }
            Act::Open => {
                let from = self.tries[number].at;
                self.lots[lot].opened_at = is_kept.then_some(from);
                return Ok(());
            }
            _ => {}
        }
        let is_replayed = item.head.flags & ITEM_FLAG_REPLAYED != 0;
        if is_replayed && self.deals[deal].token.is_none() {
            return Err("it has no token".into());
        }
        self.meet(match (is_replayed, act) {
            (true, _) => "hold replayed",
            (_, Act::Buy(_)) => "hold bought",
            (_, Act::Restock) => "stock added",
            (_, Act::Confirm) => "hold confirmed",
            (_, Act::Cancel) => "hold cancelled",
            (_, Act::Release { .. }) => "hold released",
            (_, Act::Persist(_)) => "hold persisted",
            (_, Act::Overwrite | Act::Clear) => "hold overwritten",
            _ => "hold extended",
        });
        if !is_replayed && is_kept {
            self.judge_use(number)?;
        }
        if is_kept {
            let at = self.tries[number].answered_at;
            let done = Done {
                level,
                at,
                latest_ms,
            };
            self.deals[deal].done.get_or_insert(done);
        }
        let stage = match act {
            Act::Buy(_) | Act::Restock => Stage::Held,
            Act::Confirm => Stage::Confirmed,
            Act::Cancel | Act::Release { .. } => Stage::Cancelled,
            _ => return Ok(()),
        };
        let order = self.deals[deal].order.expect("it is about one");
        match is_kept {
            true => self.know(order, stage, level),
            false => Ok(()),
        }
    }

    /// Nobody uses a hold that has ended, or that has expired.
    fn judge_use(&self, number: usize) -> Result<(), String> {
        let it = &self.tries[number];
        let deal = &self.deals[it.deal];
        let Some(order) = deal.order else {
            return Ok(());
        };
        let known = self.orders[order].is_known_at(it.at);
        if known.is_some_and(Stage::is_end) {
            return Err(format!("its order had ended before: {known:?}"));
        }
        let needs_hold = !matches!(deal.act, Act::Buy(_) | Act::Restock | Act::Release { .. });
        // It may have run before what was under way with it.
        let expires_ms = self.life_at(order, it.at).1;
        if needs_hold && it.sent_ms >= expires_ms && !self.may_be_disarmed(order) {
            return Err(format!("the hold had expired at {expires_ms}"));
        }
        Ok(())
    }

    /// It was answered that a key is not there, or that something does not hold.
    fn denied(&mut self, number: usize, status: Status, excuses: Excuses) -> Result<(), String> {
        let it = &self.tries[number];
        let (deal, at) = (&self.deals[it.deal], it.at);
        let (act, lot, seat) = (deal.act, deal.lot, deal.of.seat);
        let is_kept = self.is_kept(number, it.level);
        match act {
            Act::Open => Err("it cannot be denied".into()),
            Act::Read if status == Status::NotFound => {
                let orders = self.lots[lot].orders.iter().copied();
                let is_of_seat = |&order: &usize| {
                    let order = &self.orders[order];
                    !order.is_restock && order.of.seat == seat
                };
                let mut of_seat = orders.filter(is_of_seat);
                match of_seat.find(|&order| is_kept && self.must_be_there(order, at)) {
                    Some(order) => Err(self.still_there(order)),
                    None => Ok(()),
                }
            }
            Act::Clear if status == Status::NotFound => Ok(()),
            Act::Read | Act::Overwrite | Act::Clear => Err("it needs nothing".into()),
            Act::Survey | Act::Restock | Act::Buy(_) if status == Status::NotFound => {
                let is_open = self.lots[lot].opened_at.is_some_and(|from| from <= at);
                if is_open && is_kept && !excuses.is_cluster {
                    return Err("its keys were there".into());
                }
                self.lots[lot].opened_at = None;
                Ok(())
            }
            Act::Survey | Act::Restock => Err("it guards nothing".into()),
            Act::Buy(_) | Act::Release { .. } => Ok(()),
            Act::Confirm
            | Act::Cancel
            | Act::Extend(..)
            | Act::Rearm(_)
            | Act::Persist(_)
            | Act::Touch => {
                let order = deal.order.expect("it is about one");
                match is_kept && self.must_be_there(order, at) {
                    true => Err(self.still_there(order)),
                    false => Ok(()),
                }
            }
        }
    }

    fn still_there(&self, order: usize) -> String {
        format!(
            "the hold of order {order} was there: it may expire {:?}, and the time was {}",
            self.life(order),
            self.latest_of(order)
        )
    }

    /// The key of a hold was read.
    fn shown(&mut self, number: usize, item: &ReplyItem<'_>, is_kept: bool) -> Result<(), String> {
        let shown = HoldShown::read(item.value).ok_or("it is no hold")?;
        let expiry = item.expiry.ok_or("its expiry is not told")?;
        // A lifetime counts from the next whole millisecond, a number that is NOW is of the last.
        if !(shown.until_ms..=shown.until_ms + 1).contains(&expiry.expiry_ms) {
            return Err(format!("it is to expire at {}: {expiry:?}", shown.until_ms));
        }
        // The time beside an expiry is rounded up.
        if expiry.expiry_ms != 0 && expiry.expiry_ms < expiry.time_ms {
            return Err(format!("it has expired: {expiry:?}"));
        }
        let it = &self.tries[number];
        let (lot, seat) = (self.deals[it.deal].lot, self.deals[it.deal].of.seat);
        let Some(&order) = self.lots[lot].orders.get(shown.cell) else {
            let mut takers = self.lots[lot].takers.iter().copied();
            let is_it = |deal: usize| {
                let deal = &self.deals[deal];
                deal.act == Act::Overwrite && deal.of.seat == seat
            };
            return match takers.any(|deal| is_it(deal) && self.may_have_run(deal)) {
                true => Ok(()),
                false => Err("nobody wrote it".into()),
            };
        };
        let state = &self.orders[order];
        if state.is_restock || (state.of.seat, state.of.units) != (seat, shown.units) {
            return Err(format!("order {order} is another one: {:?}", state.of));
        }
        if !self.may_be(order, |act| matches!(act, Act::Buy(_))) {
            return Err(format!("order {order} was not made"));
        }
        if !is_kept {
            return Ok(());
        }
        let known = state.is_known_at(it.at);
        if known.is_some_and(Stage::is_end) {
            return Err(format!("order {order} had ended: {known:?}"));
        }
        let life = self.life_at(order, it.at);
        if it.sent_ms >= life.1 && !self.may_be_disarmed(order) {
            return Err(format!("the hold of order {order} had expired: {life:?}"));
        }
        self.know(order, Stage::Held, item.head.level)
    }

    /// So far an order has come, and will be seen from now on.
    fn know(&mut self, order: usize, stage: Stage, level: AckLevel) -> Result<(), String> {
        let from = self.next_moment();
        let state = &mut self.orders[order];
        let known = state.stage();
        if known.is_end() && stage.is_end() && known != stage {
            return Err(format!("order {order} was {known:?} and is {stage:?}"));
        }
        if known == Stage::Nothing || known == Stage::Held && stage.is_end() {
            state.known = Some(Known { stage, from, level });
        }
        Ok(())
    }

    /// Holds what a lot shows at one moment against what was asked and told.
    fn judge_lot(
        &mut self,
        lot: usize,
        shown: &LotShown,
        observation: Observation,
    ) -> Result<(), String> {
        let keys = &self.lots[lot].keys;
        let (mut all, mut held, mut sold) = (keys.units, 0, 0);
        let mut buyers = [0; BUYERS];
        let orders = self.lots[lot].orders.clone();
        for cell in 0..CELLS {
            let Some(&order) = orders.get(cell) else {
                match shown.cells[cell] {
                    0 => continue,
                    count => return Err(format!("nobody has cell {cell}: {count:#x}")),
                }
            };
            let of = self.orders[order].of;
            if self.orders[order].is_restock {
                let count = shown.cells[cell];
                if count > BOUGHT {
                    return Err(format!("units were added {count} times by order {order}"));
                }
                all += of.units * u64::from(count);
                let is_known = observation
                    .at
                    .and_then(|at| self.orders[order].is_known_at(at));
                if count == 0 && is_known == Some(Stage::Held) {
                    return Err(format!("units that order {order} has added are not there"));
                }
                continue;
            }
            let stage = Stage::of(shown.cells[cell]).ok_or_else(|| {
                let count = shown.cells[cell];
                format!("cell {cell} is {count:#x}: {}", self.describe_order(order))
            })?;
            self.judge_stage(order, stage, observation)
                .map_err(|wrong| format!("{wrong}: {stage:?}, {}", self.describe_order(order)))?;
            match stage {
                Stage::Held => held += of.units,
                Stage::Confirmed => sold += of.units,
                _ => {}
            }
            if matches!(stage, Stage::Held | Stage::Confirmed) {
                buyers[of.buyer] += of.units;
            }
        }
        let wanted = LotShown {
            available: all.wrapping_sub(held).wrapping_sub(sold),
            held,
            sold,
            all,
            buyers,
            cells: shown.cells,
        };
        if *shown != wanted {
            return Err(format!("its cells tell {wanted:?}, and it shows {shown:?}"));
        }
        if observation.is_last && held > 0 && !self.may_fail {
            let held = orders.iter().filter(|&&order| self.orders[order].is_held());
            let held: Vec<_> = held.map(|&order| self.describe_order(order)).collect();
            return Err(format!("units are held for ever: {}", held.join("; ")));
        }
        Ok(())
    }

    fn judge_stage(
        &mut self,
        order: usize,
        stage: Stage,
        observation: Observation,
    ) -> Result<(), String> {
        let is_asked = match stage {
            Stage::Nothing => true,
            Stage::Held | Stage::Expired => self.may_be(order, |act| matches!(act, Act::Buy(_))),
            Stage::Confirmed => self.may_be(order, |act| act == Act::Confirm),
            Stage::Cancelled => self.may_be(order, |act| {
                matches!(act, Act::Cancel | Act::Release { .. })
            }),
        };
        if !is_asked {
            return Err("nobody asked for it".into());
        }
        let known = observation
            .at
            .and_then(|at| self.orders[order].is_known_at(at));
        let is_behind = match known {
            None | Some(Stage::Nothing) => true,
            Some(Stage::Held) => stage != Stage::Nothing,
            Some(end) => stage == end,
        };
        if !is_behind {
            return Err(format!("it was {known:?} before"));
        }
        if stage == Stage::Expired {
            self.meet("hold expired");
            let (expires_ms, latest_ms) = (self.life(order).0, self.latest_of(order));
            if latest_ms < expires_ms {
                return Err(format!("it is {latest_ms}, and it expires at {expires_ms}"));
            }
            if self.must_be_disarmed(order) {
                return Err("it was disarmed".into());
            }
        }
        let expires_ms = self.life(order).1.max(self.made_late_until_ms(order));
        if stage == Stage::Held
            && observation
                .late_ms
                .is_some_and(|late_ms| expires_ms <= late_ms)
            && !self.may_be_disarmed(order)
        {
            return Err(format!("its effects of {expires_ms} have not run"));
        }
        match stage {
            Stage::Nothing => Ok(()),
            _ if observation.at.is_none() => Ok(()),
            _ => self.know(order, stage, observation.level),
        }
    }

    /// Whether a last look has seen all lots.
    ///
    /// # Errors
    /// Which one it has not seen.
    pub fn finish(&self) -> Result<(), String> {
        let is_unseen = |lot: &&Lot| lot.opened_at.is_some() && !lot.is_cleared && !self.may_fail;
        match self.lots.iter().find(is_unseen) {
            Some(lot) => Err(format!("{} was not seen in the end", lot.keys.tag)),
            None => Ok(()),
        }
    }

    /// Holds the last values of all keys against what was told, when all expiries have passed.
    ///
    /// # Errors
    /// What is wrong.
    pub fn judge(&mut self, last: &BTreeMap<Vec<u8>, Option<Vec<u8>>>) -> Result<(), String> {
        self.close();
        for lot in 0..self.lots.len() {
            let keys = &self.lots[lot].keys;
            let value = |key: &[u8]| last.get(key).cloned().flatten();
            let (stock, book) = (value(&keys.stock()), value(&keys.book()));
            let buyers: Vec<_> = (0..BUYERS)
                .filter_map(|it| value(&keys.buyer(it)))
                .collect();
            let tag = keys.tag.clone();
            let (Some(stock), Some(book)) = (&stock, &book) else {
                // They were never made, or were lost together.
                let is_lost = self.lots[lot].opened_at.is_none() && buyers.is_empty();
                match is_lost && stock.is_none() && book.is_none() {
                    true => continue,
                    false => return Err(format!("keys of {tag} are gone")),
                }
            };
            let shown = LotShown::of_values(stock, book, &buyers)
                .filter(|_| buyers.len() == BUYERS)
                .ok_or_else(|| format!("keys of {tag} hold something else"))?;
            let observation = Observation {
                at: Some(usize::MAX),
                late_ms: Some(u64::MAX),
                level: AckLevel::Disk,
                is_last: false,
            };
            let judged = self.judge_lot(lot, &shown, observation);
            judged.map_err(|wrong| format!("{tag} in the end: {wrong}"))?;
        }
        Ok(())
    }

    fn describe_order(&self, order: usize) -> String {
        let state = &self.orders[order];
        let deals = state.deals.iter().map(|&number| {
            let deal = &self.deals[number];
            let tries = deal.tries.iter().map(|&number| {
                let it = &self.tries[number];
                format!(
                    "{number} {:?} {:?} at {}-{} sent {}",
                    it.outcome, it.level, it.at, it.answered_at, it.sent_ms
                )
            });
            let tries: Vec<String> = tries.collect();
            let token = deal.token.is_some();
            format!("{:?} (token {token}): {}", deal.act, tries.join(", "))
        });
        let deals: Vec<String> = deals.collect();
        format!(
            "order {order} {:?}, known {:?}, life {:?}, latest {}; {}",
            state.of,
            state.known,
            self.life(order),
            self.latest_of(order),
            deals.join("; ")
        )
    }

    fn describe(&self, number: usize) -> String {
        let it = &self.tries[number];
        let deal = &self.deals[it.deal];
        let lot = &self.lots[deal.lot];
        let order = deal.order.map(|order| self.describe_order(order));
        let slot = self.desks[lot.desk].slot;
        format!(
            "try {number} {:?} of seat {} of {} (slot {slot}), {it:?}, {}",
            deal.act,
            deal.of.seat,
            lot.keys.tag,
            order.unwrap_or_default()
        )
    }
}
