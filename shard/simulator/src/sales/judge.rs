//! The answers to a sale, and what its cell holds.

use super::{
    AckLevel, BTreeMap, CELLS, Excuses, Executed, First, ITEM_FLAG_REPLAYED, Moment, OTHERS,
    Outcome, ReplyItem, Sales, Status, TOKEN_AHEAD_MS_MAX, What, is_excused,
};

impl Sales {
    /// An answer to a sale came.
    pub(super) fn sold(
        &mut self,
        number: usize,
        (sale, is_other): (usize, bool),
        item: &ReplyItem<'_>,
        excuses: Excuses,
    ) -> Result<(), String> {
        let status = item.head.status;
        self.tries[number].outcome = match status.executed() {
            Executed::Yes => Outcome::Executed,
            Executed::Unknown if status != Status::TokenTooOld => Outcome::Unknown,
            Executed::No | Executed::Unknown => Outcome::NotExecuted,
        };
        let token_ms = self.tries[number].token_ms;
        match status {
            Status::Ok => {
                let is_replayed = item.head.flags & ITEM_FLAG_REPLAYED != 0;
                if is_replayed && !self.may_be_of(sale, number, is_other) {
                    return Err("nobody else can have been answered this".into());
                }
                self.took(number, (sale, is_other), item, is_replayed)
            }
            Status::TokenReused => {
                self.meet("token reused");
                match self.may_be_of(sale, number, !is_other) {
                    true => self.must_not_be_known(sale, is_other, "reused"),
                    false => Err("no other request can have had the token".into()),
                }
            }
            Status::TokenTooOld => {
                self.meet("token too old");
                self.judge_border(token_ms, item)
            }
            Status::Malformed => {
                self.meet("token ahead");
                match token_ms > self.tries[number].sent_ms + TOKEN_AHEAD_MS_MAX {
                    true => self.must_not_be_late(number, sale),
                    false => Err("it was not ahead of the time".into()),
                }
            }
            Status::GuardFailed | Status::NotFound | Status::Exists => {
                if status == Status::NotFound && self.sales[sale].form.has_cell() {
                    let till = self.sales[sale].till;
                    if !excuses.is_cluster {
                        return Err("its keys were there".into());
                    }
                    self.tills[till].opened = 0;
                }
                self.meet("sale denied");
                self.must_not_be_late(number, sale)
            }
            _ => is_excused(status, excuses),
        }
    }

    /// A try that was sent after the answer OK is not judged by what is there now.
    fn must_not_be_late(&self, number: usize, sale: usize) -> Result<(), String> {
        let it = &self.tries[number];
        let till = &self.tills[self.sales[sale].till];
        let is_kept = till
            .kept_from
            .is_some_and(|level| level <= it.level || !self.is_split(sale));
        match it.is_late && self.sales[sale].first.is_some() && is_kept {
            true => Err("the token was answered OK before".into()),
            false => Ok(()),
        }
    }

    /// Whether a partition may have two pasts. Tries of lower levels may then see the other one.
    fn is_split(&self, sale: usize) -> bool {
        let till = &self.tills[self.sales[sale].till];
        till.kept_from != Some(AckLevel::Disk)
    }

    /// The token of a request was reused, so that request itself was not answered OK.
    fn must_not_be_known(&self, sale: usize, is_other: bool, how: &str) -> Result<(), String> {
        match &self.sales[sale].first {
            Some(first) if first.is_other == is_other && !self.is_split(sale) => Err(format!(
                "this request itself was answered OK, and not {how}"
            )),
            _ => Ok(()),
        }
    }

    /// Takes an answer OK.
    fn took(
        &mut self,
        number: usize,
        (sale, is_other): (usize, bool),
        item: &ReplyItem<'_>,
        is_replayed: bool,
    ) -> Result<(), String> {
        self.meet(match is_replayed {
            true => "sale replayed",
            false => "sale executed",
        });
        let is_split = self.is_split(sale);
        let kept_from = self.tills[self.sales[sale].till].kept_from;
        let level = item.head.level;
        if is_split && kept_from.is_none_or(|from| level < from) {
            return Ok(());
        }
        let here = First {
            is_other,
            is_fresh: !is_replayed,
            level,
            version: item.head.version,
            answer: item.value.to_vec(),
        };
        let Some(first) = &mut self.sales[sale].first else {
            self.sales[sale].first = Some(here);
            return Ok(());
        };
        if first.is_other != is_other {
            return Err("another request with its token was answered OK".into());
        }
        if (first.version, &first.answer) != (here.version, &here.answer) {
            return Err("it was answered otherwise before".into());
        }
        let is_late = self.tries[number].is_late && !is_split;
        if here.is_fresh && (first.is_fresh || is_late) {
            return Err("it was executed before".into());
        }
        first.is_fresh |= here.is_fresh;
        first.level = first.level.max(level);
        Ok(())
    }

    /// TOKEN_TOO_OLD tells from when on tokens are complete.
    fn judge_border(&self, token_ms: u64, item: &ReplyItem<'_>) -> Result<(), String> {
        let text = str::from_utf8(item.value).map_err(|_| "it is told in no text")?;
        let digits = |word: &str| {
            word.trim_matches(|it: char| !it.is_ascii_digit())
                .parse()
                .ok()
        };
        let mut numbers = text.split(' ').filter_map(digits);
        let (Some(answered_ms), Some(from_ms)) = (numbers.next(), numbers.next()) else {
            return Err("it tells no times".into());
        };
        let (answered_ms, from_ms): (u64, u64) = (answered_ms, from_ms);
        let from_ms_max = self.time_ms_max.saturating_sub(self.horizon_ms_min - 1);
        match answered_ms == token_ms && token_ms < from_ms && from_ms <= from_ms_max {
            true => Ok(()),
            false => Err(format!(
                "the time was {} at the most, and tokens were kept for {} ms at the least",
                self.time_ms_max, self.horizon_ms_min
            )),
        }
    }

    /// Each cell of a book that somebody may see.
    pub(super) fn judge_book(&self, till: usize, book: usize, value: &[u8]) -> Result<(), String> {
        let cells = value.as_chunks::<4>().0;
        if cells.len() != CELLS {
            return Err(format!("book {book} has {} bytes", value.len()));
        }
        let sales = self.sales.iter().enumerate();
        let of_book = sales.filter(|(_, sale)| {
            sale.till == till && sale.form.has_cell() && sale.place / CELLS == book
        });
        for (number, sale) in of_book {
            let count = u32::from_le_bytes(cells[sale.place % CELLS]);
            let mut tries = sale.tries.iter();
            let is_other = count == OTHERS;
            let is_one =
                matches!(count, 1 | OTHERS) && tries.any(|&it| self.may_have_run(it, is_other));
            if count != 0 && !is_one {
                return Err(format!(
                    "sale {number} {:?} is counted {count:#x}: {}",
                    sale.form,
                    sale.tries
                        .last()
                        .map_or(String::new(), |&it| self.describe(it))
                ));
            }
        }
        Ok(())
    }

    /// How many tries a last look has: each sale once more, then each key.
    #[must_use]
    pub fn last_reads(&self) -> usize {
        let keys = self.tills.iter().map(|till| 1 + till.cells.div_ceil(CELLS));
        self.sales.len() + keys.sum::<usize>()
    }

    /// Such a try, at a moment of the slot that it is about.
    pub fn read_last(&mut self, at: usize, now: impl Fn(u16) -> Moment) -> usize {
        if let Some(sale) = self.sales.get(at) {
            let now = now(self.tills[sale.till].slot);
            let is_other = false;
            return self.send(What::Sale { sale: at, is_other }, AckLevel::Disk, now);
        }
        let mut place = at - self.sales.len();
        let mut till = 0;
        while place > self.tills[till].cells.div_ceil(CELLS) {
            place -= 1 + self.tills[till].cells.div_ceil(CELLS);
            till += 1;
        }
        let now = now(self.tills[till].slot);
        self.send(What::Read { till, place }, AckLevel::Disk, now)
    }

    /// Holds what the last look has found against what was told.
    ///
    /// # Errors
    /// What is wrong.
    pub fn finish(&self) -> Result<(), String> {
        self.judge(&self.found)
    }

    /// Holds the last values against what was told. A key that is not there holds what it has at
    /// first.
    ///
    /// # Errors
    /// What is wrong.
    pub fn judge(&self, last: &BTreeMap<Vec<u8>, Option<Vec<u8>>>) -> Result<(), String> {
        for (number, till) in self.tills.iter().enumerate() {
            let value = |place: usize| last.get(&till.key(place)).cloned().flatten();
            let mut left = till.units;
            let books = till.cells.div_ceil(CELLS);
            let books: Vec<_> = (1..=books).map(value).collect();
            for (book, value) in books.iter().enumerate() {
                if let Some(value) = value {
                    self.judge_book(number, book, value)?;
                }
            }
            for (at, sale) in self.sales.iter().enumerate() {
                if sale.till != number || !sale.form.has_cell() {
                    continue;
                }
                let book = books[sale.place / CELLS]
                    .as_deref()
                    .unwrap_or(&[0; 4 * CELLS]);
                let count = u32::from_le_bytes(book.as_chunks().0[sale.place % CELLS]);
                let wanted = sale.first.as_ref().map(|first| match first.is_other {
                    true => OTHERS,
                    false => 1,
                });
                if wanted.is_some_and(|wanted| wanted != count) {
                    let last = *sale.tries.last().expect("it was sent");
                    return Err(format!(
                        "sale {at} is counted {count:#x}: {}",
                        self.describe(last)
                    ));
                }
                let units = match count {
                    0 => 0,
                    OTHERS => sale.units + 1,
                    _ => sale.units,
                };
                left = match sale.form.takes() {
                    true => left
                        .checked_sub(units)
                        .ok_or("more was sold than there was")?,
                    false => left,
                };
            }
            let stock = value(0).map(|value| value.try_into().map(u64::from_le_bytes));
            let is_right = match stock {
                None => left == till.units,
                Some(Ok(stock)) => stock == left,
                Some(Err(_)) => false,
            };
            if !is_right {
                return Err(format!(
                    "{} began with {} units, its books leave {left}, and there are {stock:?}",
                    till.tag, till.units
                ));
            }
        }
        Ok(())
    }

    /// Whether a try of this kind, but for this one, may have been executed.
    fn may_be_of(&self, sale: usize, number: usize, is_other: bool) -> bool {
        let mut tries = self.sales[sale].tries.iter().filter(|&&it| it != number);
        tries.any(|&it| self.may_have_run(it, is_other))
    }

    /// Whether a try is of this kind and may have been executed.
    fn may_have_run(&self, number: usize, is_it: bool) -> bool {
        let it = &self.tries[number];
        let is_same = matches!(it.what, What::Sale { is_other, .. } if is_other == is_it);
        is_same && it.outcome != Outcome::NotExecuted
    }
}
