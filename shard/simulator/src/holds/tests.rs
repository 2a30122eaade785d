//! Each rule of the judge of holds refuses a history that breaks it, and takes a right one beside
//! it.

use std::collections::BTreeMap;

use penstock_net::level::AckLevel;
use penstock_net::reply::{ITEM_FLAG_REPLAYED, KeyExpiry, ReplyHead, ReplyItem};
use penstock_net::request::Version;
use penstock_net::status::Status;

use super::form::{Act, BOUGHT, BUYERS, CANCELLED, CELLS, CONFIRMED, EXPIRED, Keys, Subject};
use super::form::{LotShown, Until};
use super::order::Order;
use super::{Holds, LATE_MS_MAX, Lot};
use crate::random::Random;
use crate::sales::{Excuses, Moment};

const BEGIN_MS: u64 = 1_000_000;
const EXPIRY_MS: u64 = BEGIN_MS + 1_000;
const UNITS: u64 = 20;
const SEAT: usize = 3;

/// What a lot shows before anything is bought.
const FULL: LotShown = LotShown {
    available: UNITS,
    held: 0,
    sold: 0,
    all: UNITS,
    buyers: [0; BUYERS],
    cells: [0; CELLS],
};
/// Two units of order 0 are held for buyer 1.
const HELD: LotShown = with_cell(
    LotShown {
        available: UNITS - 2,
        held: 2,
        buyers: [0, 2],
        ..FULL
    },
    BOUGHT,
);
/// Two units of order 0 are sold to buyer 1.
const SOLD: LotShown = with_cell(
    LotShown {
        available: UNITS - 2,
        sold: 2,
        buyers: [0, 2],
        ..FULL
    },
    BOUGHT | CONFIRMED,
);

const fn with_cell(mut lot: LotShown, count: u8) -> LotShown {
    lot.cells[0] = count;
    lot
}

/// The units of order 0 are back.
const fn back(how: u8) -> LotShown {
    with_cell(FULL, BOUGHT | how)
}

/// A judge, and one lot whose keys are there.
struct History {
    holds: Holds,
    time_ms: u64,
}

impl History {
    fn new() -> Self {
        let tags = ["{tdesk1}".to_string()];
        let mut holds = Holds::new(Random::new(1, 1), &tags, &[1_000], false);
        holds.desks[0].lots.push(0);
        holds.lots.push(Lot {
            desk: 0,
            keys: Keys {
                tag: "{tdesk1}0 ".into(),
                units: UNITS,
                units_max: 12,
            },
            opened_at: None,
            is_cleared: false,
            orders: Vec::new(),
            takers: Vec::new(),
        });
        let mut history = History { holds, time_ms: 0 };
        history.at(BEGIN_MS);
        history.does(Act::Open).expect("it is the first");
        history
    }

    /// A history in which order 0 was answered OK.
    fn of_hold() -> Self {
        let mut history = History::new();
        history.orders(false);
        history.does(buy()).expect("there are units");
        history
    }

    /// The shard has this time now.
    fn at(&mut self, time_ms: u64) {
        self.time_ms = time_ms;
        self.holds.notice(time_ms);
    }

    /// The next order. Nothing was asked about it yet.
    fn orders(&mut self, is_restock: bool) {
        let number = self.holds.orders.len();
        self.holds.lots[0].orders.push(number);
        self.holds.orders.push(Order::new(subject(), is_restock));
    }

    fn send(&mut self, act: Act) -> usize {
        let now = Moment {
            us: 0,
            time_ms: self.time_ms,
            least_ms: self.time_ms,
            wall_ms: self.time_ms,
        };
        let deal = self.holds.deal(0, act, subject(), now);
        self.holds.deals[deal].token = None;
        self.holds.send(deal, AckLevel::Disk, now)
    }

    fn answered(&mut self, number: usize, status: Status) -> Result<(), String> {
        self.answered_with(number, status, &[], None)
    }

    fn answered_with(
        &mut self,
        number: usize,
        status: Status,
        value: &[u8],
        expiry: Option<KeyExpiry>,
    ) -> Result<(), String> {
        let head = ReplyHead::new(status, 0, AckLevel::Disk, Version::default());
        let item = ReplyItem {
            head,
            expiry,
            standing: None,
            value,
        };
        self.holds.answer(number, &item, 0, Excuses::default())
    }

    /// Sends something that is answered OK.
    fn does(&mut self, act: Act) -> Result<(), String> {
        let number = self.send(act);
        self.answered(number, Status::Ok)
    }

    /// Sends a look that is answered with this lot.
    fn surveys(&mut self, lot: &LotShown) -> Result<(), String> {
        let number = self.send(Act::Survey);
        let numbers = [lot.available, lot.held, lot.sold, lot.all];
        let cells = lot.cells.map(u64::from);
        let all = numbers.iter().chain(&lot.buyers).chain(&cells);
        let value: Vec<u8> = all.flat_map(|number| number.to_le_bytes()).collect();
        self.answered_with(number, Status::Ok, &value, None)
    }

    /// Reads the key of a hold, which shows the units and the cell of an order.
    fn reads(&mut self, (units, cell): (u64, u64), until_ms: u64) -> Result<(), String> {
        let number = self.send(Act::Read);
        let value = [units, cell, until_ms, 0].map(u64::to_le_bytes).concat();
        let expiry = KeyExpiry {
            expiry_ms: EXPIRY_MS,
            time_ms: self.time_ms,
        };
        self.answered_with(number, Status::Ok, &value, Some(expiry))
    }
}

fn subject() -> Subject {
    Subject {
        seat: SEAT,
        buyer: 1,
        units: 2,
        cell: 0,
        has_token: false,
    }
}

fn buy() -> Act {
    Act::Buy(Until::At(EXPIRY_MS))
}

/// A judgement is a refusal that says this.
#[track_caller]
fn refuses(judged: Result<(), String>, wrong: &str) {
    let refusal = judged.expect_err(wrong);
    assert!(refusal.contains(wrong), "{refusal}");
}

#[test]
fn a_life_of_each_kind_is_taken() {
    let mut history = History::new();
    history.surveys(&FULL).expect("nothing was asked");
    for (act, lot) in [
        (Act::Confirm, SOLD),
        (Act::Cancel, back(CANCELLED)),
        (Act::Touch, HELD),
    ] {
        let mut history = History::of_hold();
        history.surveys(&HELD).expect("it is held");
        history.reads((2, 0), EXPIRY_MS).expect("it is there");
        history.does(act).expect("it is held");
        history.surveys(&lot).expect("it is so now");
    }
    let mut history = History::of_hold();
    history.at(EXPIRY_MS);
    history.surveys(&back(EXPIRED)).expect("its time has come");
}

#[test]
fn a_sum_that_is_off_by_one_is_refused() {
    let wrong: [fn(&mut LotShown); 6] = [
        |lot| lot.available -= 1,
        |lot| lot.available += 1,
        |lot| lot.held += 1,
        |lot| lot.sold += 1,
        |lot| lot.all -= 1,
        |lot| lot.buyers[0] += 1,
    ];
    for change in wrong {
        let mut lot = HELD;
        change(&mut lot);
        refuses(History::of_hold().surveys(&lot), "its cells tell");
    }
    History::of_hold().surveys(&HELD).expect("it adds up");
}

#[test]
fn an_order_that_ends_twice_is_refused() {
    let mut history = History::of_hold();
    let both = with_cell(FULL, BOUGHT | CONFIRMED | CANCELLED);
    refuses(history.surveys(&both), "cell 0 is 0x15");
    let mut history = History::of_hold();
    history.at(EXPIRY_MS);
    let twice = with_cell(FULL, BOUGHT + 2 * EXPIRED);
    refuses(history.surveys(&twice), "cell 0 is 0x81");

    // One behind the other, and side by side.
    let mut history = History::of_hold();
    history.does(Act::Confirm).expect("it is held");
    refuses(history.does(Act::Cancel), "its order had ended before");
    let mut history = History::of_hold();
    let [confirm, cancel] = [Act::Confirm, Act::Cancel].map(|act| history.send(act));
    history.answered(confirm, Status::Ok).expect("it is held");
    let judged = history.answered(cancel, Status::Ok);
    refuses(judged, "was Confirmed and is Cancelled");
}

#[test]
fn units_that_come_back_before_their_time_are_refused() {
    let mut history = History::of_hold();
    history.at(EXPIRY_MS - 1);
    refuses(history.surveys(&back(EXPIRED)), "it expires at 1001000");
    history.at(EXPIRY_MS);
    history.surveys(&back(EXPIRED)).expect("its time has come");
}

#[test]
fn units_that_do_not_come_back_in_time_are_refused() {
    for (is_prompt, late_ms, is_refused) in [
        (true, LATE_MS_MAX, true),
        (true, LATE_MS_MAX - 1, false),
        (false, LATE_MS_MAX, false),
    ] {
        let mut history = History::of_hold();
        history.holds.set_prompt(is_prompt);
        history.at(EXPIRY_MS + late_ms);
        let judged = history.surveys(&HELD);
        match is_refused {
            true => refuses(judged, "its effects of 1001000 have not run"),
            false => judged.expect("nobody is that late"),
        }
    }
}

#[test]
fn a_hold_that_is_made_behind_its_time_is_late_from_then_on() {
    for (late_ms, is_refused) in [(0, false), (LATE_MS_MAX - 1, false), (LATE_MS_MAX, true)] {
        let mut history = History::new();
        history.orders(false);
        let made_ms = EXPIRY_MS + 2 * LATE_MS_MAX;
        history.at(made_ms);
        history.does(buy()).expect("there are units");
        history.holds.set_prompt(true);
        history.at(made_ms + late_ms);
        let judged = history.surveys(&HELD);
        match is_refused {
            true => refuses(judged, "its effects of"),
            false => judged.expect("they run in the next turn"),
        }
    }
}

#[test]
fn a_hold_that_was_disarmed_does_not_expire_and_is_not_late() {
    let mut history = History::of_hold();
    history.does(Act::Persist(false)).expect("it is held");
    history.holds.set_prompt(true);
    history.at(EXPIRY_MS + LATE_MS_MAX);
    history.surveys(&HELD).expect("it is held for ever");
    refuses(history.surveys(&back(EXPIRED)), "it was disarmed");
}

#[test]
fn an_order_that_is_lost_is_refused() {
    refuses(
        History::of_hold().surveys(&FULL),
        "it was Some(Held) before",
    );
    let mut history = History::of_hold();
    history.does(Act::Confirm).expect("it is held");
    refuses(history.surveys(&HELD), "it was Some(Confirmed) before");

    // What was answered below what is kept may be gone.
    let mut history = History::of_hold();
    let partition = history.holds.partition(0);
    history.holds.keeps_from(partition, Some(AckLevel::Replica));
    history.surveys(&FULL).expect("it may be lost");
}

#[test]
fn an_order_that_nobody_made_is_refused() {
    let mut history = History::new();
    refuses(history.surveys(&HELD), "nobody has cell 0");
    history.orders(false);
    let number = history.send(buy());
    let denied = history.answered(number, Status::GuardFailed);
    denied.expect("there may be no units");
    refuses(history.surveys(&HELD), "nobody asked for it");

    // Without an answer it may have been made.
    let number = history.send(buy());
    history.holds.lost(number, 0);
    history.surveys(&HELD).expect("it may have been made");
}

#[test]
fn units_that_are_added_twice_or_lost_are_refused() {
    let added = |count: u8| {
        let units = 2 * u64::from(count);
        let lot = LotShown {
            available: UNITS + units,
            all: UNITS + units,
            ..FULL
        };
        with_cell(lot, count)
    };
    let mut history = History::new();
    history.orders(true);
    history.does(Act::Restock).expect("it needs nothing");
    history.surveys(&added(1)).expect("it adds up");
    refuses(history.surveys(&added(2)), "units were added 2 times");
    refuses(history.surveys(&added(0)), "are not there");
}

#[test]
fn a_hold_that_has_expired_is_neither_used_nor_shown() {
    let mut history = History::of_hold();
    history.at(EXPIRY_MS + 1);
    refuses(history.does(Act::Confirm), "had expired at 1001000");
    refuses(history.reads((2, 0), EXPIRY_MS), "it has expired");

    let mut history = History::of_hold();
    history.at(EXPIRY_MS - 1);
    refuses(history.reads((2, 0), EXPIRY_MS + 1), "it is to expire at");
    refuses(history.reads((3, 0), EXPIRY_MS), "is another one");
    refuses(history.reads((2, 7), EXPIRY_MS), "nobody wrote it");
    history.does(Act::Confirm).expect("its time has not come");
    refuses(history.reads((2, 0), EXPIRY_MS), "order 0 had ended");
}

#[test]
fn a_hold_that_is_gone_before_its_time_is_refused() {
    for act in [Act::Read, Act::Touch] {
        let mut history = History::of_hold();
        history.surveys(&HELD).expect("it is held");
        history.at(EXPIRY_MS - 1);
        let number = history.send(act);
        let judged = history.answered(number, Status::NotFound);
        refuses(judged, "the hold of order 0 was there");
        history.at(EXPIRY_MS);
        let number = history.send(act);
        let judged = history.answered(number, Status::NotFound);
        judged.expect("its time has come");
    }
}

#[test]
fn an_answer_that_comes_twice_or_is_replayed_without_a_token_is_refused() {
    let mut history = History::of_hold();
    let number = history.send(Act::Touch);
    history.answered(number, Status::Ok).expect("it is held");
    let again = history.answered(number, Status::Ok);
    refuses(again, "was answered twice");

    let number = history.send(Act::Touch);
    let mut head = ReplyHead::new(Status::Ok, 0, AckLevel::Disk, Version::default());
    head.flags = ITEM_FLAG_REPLAYED;
    let item = ReplyItem {
        head,
        expiry: None,
        standing: None,
        value: &[],
    };
    let judged = history.holds.answer(number, &item, 0, Excuses::default());
    refuses(judged, "it has no token");

    let number = history.send(Act::Touch);
    let head = ReplyHead::new(Status::Ok, 0, AckLevel::Interval, Version::default());
    let item = ReplyItem { head, ..item };
    let judged = history.holds.answer(number, &item, 0, Excuses::default());
    refuses(judged, "another level was asked for");
}

#[test]
fn in_the_end_nothing_is_held_and_every_lot_was_seen() {
    let mut history = History::of_hold();
    history.holds.last_step = 2;
    refuses(history.holds.finish(), "was not seen in the end");
    refuses(history.surveys(&HELD), "units are held for ever");

    let mut history = History::of_hold();
    history.at(EXPIRY_MS);
    history.holds.last_step = 2;
    history.surveys(&back(EXPIRED)).expect("nothing is held");
    history.holds.finish().expect("it was seen");
}

#[test]
fn the_last_values_of_a_cluster_are_judged_as_a_lot() {
    let values = |holds: &Holds, lot: &LotShown| {
        let keys = &holds.lots[0].keys;
        let numbers = [lot.available, lot.held, lot.sold, lot.all];
        let stock = numbers.map(u64::to_le_bytes).concat();
        let mut values = BTreeMap::from([
            (keys.stock(), Some(stock)),
            (keys.book(), Some(lot.cells.to_vec())),
        ]);
        for (buyer, units) in lot.buyers.iter().enumerate() {
            values.insert(keys.buyer(buyer), Some(units.to_le_bytes().to_vec()));
        }
        values
    };
    let mut history = History::of_hold();
    history.at(EXPIRY_MS);
    let held = values(&history.holds, &HELD);
    refuses(history.holds.judge(&held), "have not run");
    let lost = values(&history.holds, &FULL);
    refuses(history.holds.judge(&lost), "it was Some(Held) before");
    refuses(history.holds.judge(&BTreeMap::new()), "are gone");
    let back = values(&history.holds, &back(EXPIRED));
    history.holds.judge(&back).expect("the units are back");
}

#[test]
fn a_cluster_has_rested_when_its_times_of_rest_are_long_enough() {
    let mut holds = History::of_hold().holds;
    assert!(!holds.has_rested(1), "nobody has looked");
    holds.note_rest(1_000, true);
    holds.note_rest(1_300, true);
    assert!(holds.has_rested(300) && !holds.has_rested(301));
    holds.note_rest(2_300, false);
    assert!(!holds.has_rested(301), "no rest");
    holds.note_rest(2_600, true);
    assert!(holds.has_rested(600) && !holds.has_rested(601));
}
