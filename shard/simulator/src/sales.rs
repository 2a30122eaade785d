//! Sales: writes with tokens, most of them sent several times, and their judge.
//!
//! ```text
//! till: stock (u64)   books: a cell (u32) for each sale   slips: set once, deleted once
//!   Buy, Both: stock - units, cell + 1, in one record      Mark: cell + 1
//! ```
//!
//! What must hold, whatever goes wrong between two tries of one sale:
//!
//! - A cell is never above 1: no token is executed twice.
//! - The stock is what it was at first, less what the cells tell.
//! - All answers OK to a token are the same answer, and all but one are *replayed*.
//! - What was answered OK, as durably as that was, is replayed or TOKEN_TOO_OLD from then on.
//! - *Replayed*, TOKEN_REUSED and TOKEN_TOO_OLD need their reasons.
//!
//! Nothing is asked of what the server runs. Nodes and clusters have the same judge; they tell it
//! what they may have lost.

use std::collections::{BTreeMap, BTreeSet};

use penstock_net::level::AckLevel;
use penstock_net::limits::TOKEN_AHEAD_MS_MAX;
use penstock_net::reply::{ITEM_FLAG_REPLAYED, ReplyItem};
use penstock_net::request::{BatchRequest, Token, Version};
use penstock_net::slot::slot_of;
use penstock_net::status::{Executed, Status};
use penstock_storage::version::partition_of;

use crate::random::Random;

mod form;
mod judge;

use form::{CELLS, Form, OTHERS};

/// What the keys of sales begin with; no other key does.
pub const PREFIX: &[u8] = b"{till";

/// What every long run with sales meets.
pub const MUST_MEET: &[&str] = &[
    "sale denied",
    "sale executed",
    "sale of unknown outcome",
    "sale replayed",
    "token ahead",
    "token reused",
    "token too old",
];

/// Tries of one sale, at most, before all is quiet.
const TRIES_MAX: usize = 8;
/// Sales of a run, at most.
const SALES_MAX: usize = 400;

/// A stock with its books.
#[derive(Debug)]
struct Till {
    tag: String,
    partition: usize,
    slot: u16,
    /// Units at first.
    units: u64,
    /// Keys that are there for certain: the stock, then its books.
    opened: usize,
    /// Sales that have a cell.
    cells: usize,
    /// From which level on nothing is lost; `None` if all may be.
    kept_from: Option<AckLevel>,
}

/// A write that somebody wants once.
#[derive(Debug)]
struct Sale {
    till: usize,
    form: Form,
    units: u64,
    /// Which cell of the till is its own, or which slip.
    place: usize,
    token: Token,
    /// Its token is a text, which is given with a time of each try.
    is_text: bool,
    tries: Vec<usize>,
    first: Option<First>,
}

/// The answer OK to a token.
#[derive(Clone, Debug)]
struct First {
    is_other: bool,
    /// Somebody was told that it was executed for him.
    is_fresh: bool,
    level: AckLevel,
    version: Version,
    answer: Vec<u8>,
}

/// What is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    /// A key of a till is made.
    Open { till: usize, place: usize },
    /// A key of a till is read.
    Read { till: usize, place: usize },
    /// A sale, or another request with its token.
    Sale { sale: usize, is_other: bool },
}

/// What became of a try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Pending,
    Unknown,
    Executed,
    NotExecuted,
}

#[derive(Debug)]
struct Try {
    what: What,
    level: AckLevel,
    outcome: Outcome,
    /// The time of the shard when it was sent, or less.
    sent_ms: u64,
    /// The time of its token.
    token_ms: u64,
    /// It was sent after an answer OK had come.
    is_late: bool,
}

/// What the world may excuse.
#[derive(Clone, Copy, Debug, Default)]
pub struct Excuses {
    /// The disk was full.
    pub may_be_full: bool,
    /// Reads of the disk may fail.
    pub may_fail_to_read: bool,
    /// It is refused for many more reasons.
    pub is_cluster: bool,
    /// There are no more faults, so there is no excuse.
    pub must_execute: bool,
}

/// When a try is made.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// In virtual time.
    pub us: u64,
    /// The time of the shard that a token is made for.
    pub time_ms: u64,
    /// No shard that answers has an earlier time.
    pub least_ms: u64,
    /// The wall clock of the client.
    pub wall_ms: u64,
}

/// All sales of a run.
#[derive(Debug)]
pub struct Sales {
    random: Random,
    tills: Vec<Till>,
    sales: Vec<Sale>,
    tries: Vec<Try>,
    due: BTreeSet<(u64, usize)>,
    /// Some tokens are texts.
    has_texts: bool,
    /// The shortest horizon that was in force, and the latest time of a shard.
    horizon_ms_min: u64,
    time_ms_max: u64,
    /// Values that the last look has found, by key.
    found: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    /// What was met.
    pub met: BTreeMap<&'static str, u64>,
}

impl Sales {
    /// No sales yet, at tills whose keys begin with these tags.
    #[must_use]
    pub fn new(mut random: Random, tags: &[String]) -> Self {
        let tills = tags.iter().map(|tag| {
            let slot = slot_of(tag.as_bytes());
            Till {
                tag: tag.clone(),
                partition: partition_of(slot),
                slot,
                units: random.pick(&[5, 60, 1_000_000]),
                opened: 0,
                cells: 0,
                kept_from: Some(AckLevel::Disk),
            }
        });
        Sales {
            tills: tills.collect(),
            random,
            sales: Vec::new(),
            tries: Vec::new(),
            due: BTreeSet::new(),
            has_texts: false,
            horizon_ms_min: u64::MAX,
            time_ms_max: 0,
            found: BTreeMap::new(),
            met: MUST_MEET.iter().map(|&what| (what, 0)).collect(),
        }
    }

    /// Some tokens are texts.
    #[must_use]
    pub fn with_texts(self) -> Self {
        Sales {
            has_texts: true,
            ..self
        }
    }

    /// The names and partitions of all keys that were made.
    pub fn keys(&self) -> impl Iterator<Item = (Vec<u8>, usize)> + '_ {
        self.tills.iter().flat_map(|till| {
            let books = till.cells.div_ceil(CELLS);
            let of_till = (0..=books).map(|place| till.key(place));
            let slips = (0..form::SLIPS).map(|slip| till.slip(slip));
            of_till.chain(slips).map(|key| (key, till.partition))
        })
    }

    fn meet(&mut self, what: &'static str) {
        *self.met.entry(what).or_default() += 1;
    }

    /// A shard keeps tokens for so long, and has this time.
    pub fn notice(&mut self, horizon_ms: u64, time_ms: u64) {
        self.horizon_ms_min = self.horizon_ms_min.min(horizon_ms);
        self.time_ms_max = self.time_ms_max.max(time_ms);
    }

    /// The slot of the next try, which is not chosen yet: that of a till.
    #[must_use]
    pub fn slot(&self, till: usize) -> u16 {
        self.tills[till].slot
    }

    /// The partition of a till.
    #[must_use]
    pub fn partition(&self, till: usize) -> usize {
        self.tills[till].partition
    }

    /// How many tills there are.
    #[must_use]
    pub fn tills(&self) -> usize {
        self.tills.len()
    }

    /// The next try that is due, or one of a new sale at this till.
    pub fn next(&mut self, till: usize, level: AckLevel, now: Moment) -> usize {
        let is_due =
            |&&(due_us, sale): &&(u64, usize)| due_us <= now.us && self.sales[sale].till == till;
        if let Some(&due) = self.due.iter().find(is_due) {
            self.due.remove(&due);
            return self.again(due.1, level, now);
        }
        let state = &self.tills[till];
        let needed = 2 + state.cells / CELLS;
        if state.opened < needed {
            let place = state.opened;
            return self.send(What::Open { till, place }, AckLevel::Disk, now);
        }
        if self.random.chance(60_000) || self.sales.len() >= SALES_MAX {
            let place = self.random.index(needed);
            return self.send(What::Read { till, place }, AckLevel::Disk, now);
        }
        let sale = self.sell(till, now);
        // Somebody does not wait for the answer.
        if self.random.chance(300_000) {
            self.due.insert((now.us, sale));
        }
        let is_other = false;
        self.send(What::Sale { sale, is_other }, level, now)
    }

    /// Another try of a sale.
    fn again(&mut self, sale: usize, level: AckLevel, now: Moment) -> usize {
        let is_other = self.random.chance(70_000);
        self.send(What::Sale { sale, is_other }, level, now)
    }

    fn sell(&mut self, till: usize, now: Moment) -> usize {
        let random = &mut self.random;
        let form = random.pick(form::FORMS);
        let off_ms = random.pick(&[1, 20, 900, 5_000, 70_000]);
        let time_ms = match random.below(20) {
            0 => now.wall_ms,
            1 | 2 => now.time_ms.saturating_sub(off_ms),
            3 => now.time_ms + off_ms,
            4 => now.time_ms + random.pick(&[240_000, 299_000, 301_000, 400_000]),
            _ => now.time_ms,
        };
        let [low, high] = [random.bits(), random.bits()].map(u64::to_le_bytes);
        let mut bytes = [0; 10];
        bytes[..8].copy_from_slice(&low);
        bytes[8..].copy_from_slice(&high[..2]);
        let units = random.within(1, 3);
        let place = match form {
            Form::Note | Form::Discard | Form::Glance => random.index(form::SLIPS),
            _ => {
                self.tills[till].cells += 1;
                self.tills[till].cells - 1
            }
        };
        let is_text = self.has_texts && self.random.chance(500_000);
        self.sales.push(Sale {
            till,
            form,
            is_text,
            units,
            place,
            token: Token::new(time_ms, bytes),
            tries: Vec::new(),
            first: None,
        });
        self.sales.len() - 1
    }

    fn send(&mut self, what: What, level: AckLevel, now: Moment) -> usize {
        let number = self.tries.len();
        let mut is_late = false;
        let mut token_ms = 0;
        if let What::Sale { sale, .. } = what {
            token_ms = self.time_of_token(sale);
            self.sales[sale].tries.push(number);
            is_late = self.sales[sale].first.is_some();
        }
        self.tries.push(Try {
            what,
            level,
            outcome: Outcome::Pending,
            sent_ms: now.least_ms,
            token_ms,
            is_late,
        });
        number
    }

    /// The time of the token of the next try. That of a text may be any until the first try was
    /// sent: it has been kept for a horizon since then at the least.
    fn time_of_token(&mut self, sale: usize) -> u64 {
        let it = &self.sales[sale];
        let token_ms = it.token.time_ms();
        let first = it.tries.first().and_then(|first| self.tries.get(*first));
        match first {
            Some(first) if it.is_text && self.random.chance(500_000) => token_ms.max(first.sent_ms),
            _ => token_ms,
        }
    }

    /// The token of a sale, with this time if it is a text.
    fn token_of(&self, sale: usize, token_ms: u64) -> Token {
        let it = &self.sales[sale];
        let text = format!("sale {sale} of {}", self.tills[it.till].tag);
        match it.is_text {
            true => Token::of_text(text.as_bytes(), token_ms).expect("a short text"),
            false => it.token,
        }
    }

    /// The level that a try asks for.
    #[must_use]
    pub fn level(&self, number: usize) -> AckLevel {
        self.tries[number].level
    }

    /// The till that a try is about.
    #[must_use]
    pub fn till_of(&self, number: usize) -> usize {
        match self.tries[number].what {
            What::Open { till, .. } | What::Read { till, .. } => till,
            What::Sale { sale, .. } => self.sales[sale].till,
        }
    }

    /// Whether an answer OK to it tells a version that nobody else is told.
    #[must_use]
    pub fn is_change(&self, number: usize, item: &ReplyItem<'_>) -> bool {
        match self.tries[number].what {
            What::Open { .. } => true,
            What::Read { .. } => false,
            What::Sale { sale, .. } => {
                let is_replayed = item.head.flags & ITEM_FLAG_REPLAYED != 0;
                self.sales[sale].form != Form::Glance && !is_replayed
            }
        }
    }

    /// Writes the item of a try.
    pub fn write(&self, number: usize, batch: &mut BatchRequest, out: &mut Vec<u8>) {
        match self.tries[number].what {
            What::Open { till, place } => self.tills[till].open(place, batch, out),
            What::Read { till, place } => batch.get(out, &self.tills[till].key(place)),
            What::Sale { sale, is_other } => {
                batch.token(self.token_of(sale, self.tries[number].token_ms));
                let sale = &self.sales[sale];
                let till = &self.tills[sale.till];
                let request = form::Request {
                    form: sale.form,
                    units: sale.units,
                    place: sale.place,
                    is_other,
                };
                till.ask(request, batch, out);
            }
        }
    }

    /// No answer will come.
    pub fn lost(&mut self, number: usize, now_us: u64) {
        self.tries[number].outcome = Outcome::Unknown;
        if let What::Sale { sale, .. } = self.tries[number].what {
            self.meet("sale of unknown outcome");
            self.plan_again(sale, now_us, 900_000);
        }
    }

    /// Perhaps there is another try of a sale.
    fn plan_again(&mut self, sale: usize, now_us: u64, chance: u32) {
        let random = &mut self.random;
        if self.sales[sale].tries.len() >= TRIES_MAX || !random.chance(chance) {
            return;
        }
        let horizon_us = self.horizon_ms_min.min(60_000) * 1_000;
        let pauses = [
            0,
            0,
            500,
            5_000,
            100_000,
            1_000_000,
            horizon_us,
            2 * horizon_us,
        ];
        let due_us = now_us + random.pick(&pauses);
        self.due.insert((due_us, sale));
    }

    /// The node ended without a clean stop: what was not durable may be gone.
    pub fn crashed(&mut self) {
        for sale in &mut self.sales {
            sale.first.take_if(|first| first.level < AckLevel::Disk);
        }
    }

    /// The tokens that are there for certain, until the border of their partition has passed them,
    /// each with its slot.
    pub fn certain(&self) -> impl Iterator<Item = (u16, Token)> + '_ {
        let sales = self.sales.iter().enumerate();
        let certain = sales.filter(|(_, sale)| sale.first.is_some());
        certain.map(|(number, sale)| {
            // Another try may give a text the time of the first one.
            let first_ms = self.tries[sale.tries[0]].sent_ms;
            let token_ms = sale.token.time_ms().max(first_ms);
            (self.tills[sale.till].slot, self.token_of(number, token_ms))
        })
    }

    /// What was answered below this level may be gone from a partition, or all with `None`, and
    /// what is answered from now on likewise.
    pub fn keeps_from(&mut self, partition: usize, level: Option<AckLevel>) {
        for (number, till) in self.tills.iter_mut().enumerate() {
            if till.partition != partition {
                continue;
            }
            till.kept_from = level.filter(|level| till.kept_from.is_some_and(|it| it <= *level));
            let kept_from = till.kept_from;
            for sale in self.sales.iter_mut().filter(|sale| sale.till == number) {
                let first = &mut sale.first;
                first.take_if(|first| kept_from.is_none_or(|level| first.level < level));
            }
        }
    }

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
            return Err(format!("try {number} was answered twice"));
        }
        let status = item.head.status;
        if status == Status::Ok && item.head.level < self.tries[number].level {
            return Err(format!(
                "try {number} asked for another level: {:?}",
                item.head
            ));
        }
        let judged = match self.tries[number].what {
            What::Open { till, place } => self.opened(number, till, place, status, excuses),
            What::Read { till, place } => self.read(number, (till, place), item, excuses),
            What::Sale { sale, is_other } => {
                let judged = self.sold(number, (sale, is_other), item, excuses);
                let chance = match status {
                    Status::Ok => 500_000,
                    Status::TokenTooOld => 150_000,
                    _ => 800_000,
                };
                self.plan_again(sale, now_us, chance);
                judged
            }
        };
        judged.map_err(|wrong| {
            let what = self.describe(number);
            let text = String::from_utf8_lossy(item.value).into_owned();
            format!("{what} was answered {:?} ({text}): {wrong}", item.head)
        })
    }

    fn opened(
        &mut self,
        number: usize,
        till: usize,
        place: usize,
        status: Status,
        excuses: Excuses,
    ) -> Result<(), String> {
        self.tries[number].outcome = Outcome::NotExecuted;
        let state = &mut self.tills[till];
        match status {
            Status::Ok | Status::Exists => {
                state.opened = state.opened.max(place + 1);
                Ok(())
            }
            _ => is_excused(status, excuses),
        }
    }

    fn read(
        &mut self,
        number: usize,
        (till, place): (usize, usize),
        item: &ReplyItem<'_>,
        excuses: Excuses,
    ) -> Result<(), String> {
        self.tries[number].outcome = Outcome::NotExecuted;
        let status = item.head.status;
        let value = match status {
            Status::Ok => Some(item.value.to_vec()),
            Status::NotFound if self.tills[till].opened <= place || excuses.is_cluster => None,
            Status::NotFound => return Err("it was there".into()),
            _ => return is_excused(status, excuses),
        };
        if place > 0
            && let Some(value) = &value
        {
            self.judge_book(till, place - 1, value)?;
        }
        if excuses.must_execute {
            self.found.insert(self.tills[till].key(place), value);
        }
        Ok(())
    }

    fn describe(&self, number: usize) -> String {
        let it = &self.tries[number];
        let What::Sale { sale, .. } = it.what else {
            return format!("try {number} {it:?}");
        };
        let state = &self.sales[sale];
        let tries = state
            .tries
            .iter()
            .map(|&number| (number, &self.tries[number]));
        let described: Vec<String> = tries
            .map(|(number, it)| format!("{number} {:?} at {:?}", it.outcome, it.level))
            .collect();
        format!(
            "try {number} {it:?} of sale {sale}, {:?} of place {} with a token of {}, at {} (slot \
             {}, first {:?}; all its tries: {})",
            state.form,
            state.place,
            state.token.time_ms(),
            self.tills[state.till].tag,
            self.tills[state.till].slot,
            state.first,
            described.join(", ")
        )
    }
}

/// Whether there may be such a refusal.
pub(crate) fn is_excused(status: Status, excuses: Excuses) -> Result<(), String> {
    let is_excused = match status {
        Status::Io | Status::Corrupt => excuses.may_fail_to_read,
        _ if excuses.must_execute => false,
        Status::Busy | Status::Deadline | Status::Draining => true,
        Status::Full => excuses.may_be_full,
        Status::Moved
        | Status::NotPrimary
        | Status::NoReplicas
        | Status::NotFound
        | Status::Indeterminate
        | Status::ShardDown
        | Status::Stale => excuses.is_cluster,
        _ => false,
    };
    match is_excused {
        true => Ok(()),
        false => Err("there is no reason for it".into()),
    }
}
