//! Shops: purchases and notes over keys of several slots of one shard, by EXEC, by EXEC behind
//! WATCH, by scripts, and by plain commands on the same keys.
//!
//! ```text
//! {a} book, {a} notes, {b} guests: lists of names    {c} stock, {d} sold: decimals
//!   a deed appends its name to some lists; a purchase also takes units from the stock and adds
//!   them to what is sold, and appends to the book always
//! ```
//!
//! What must hold, whatever goes wrong:
//!
//! - A deed is in all of its lists or in none, at each moment that a group of reads shows.
//! - What was answered is there, at the place that the answer tells; what was refused never is.
//! - Stock and sold add up to nothing, sold is what the purchases of the book have, and never more
//!   than there is for sale.
//! - Some order of all deeds and reads agrees with the lists, and with real time.

use std::fmt;

use penstock_net::slot::tag_of;

use super::graph;
use super::replies::{Reply, command};
use crate::random::Random;

/// The lists of a shop.
pub(super) const LISTS: usize = 3;
/// Lists and numbers.
pub(super) const PLACES: usize = 5;
const STOCK: usize = 3;
const SOLD: usize = 4;
const BOOK: usize = 0;
/// Bytes of a name in a list.
const NAME_BYTES: usize = 4;

/// A purchase, or a note without units, by a script: KEYS are stock, sold and the lists.
pub(super) const DEED: &str = "\
local sold = tonumber(redis.call('GET', KEYS[2]) or '0')
local units = tonumber(ARGV[2])
if sold + units > tonumber(ARGV[3]) then return {0, sold} end
if units > 0 then
  redis.call('DECRBY', KEYS[1], units)
  redis.call('INCRBY', KEYS[2], units)
end
local told = {1, sold + units}
for at = 3, #KEYS do told[#told + 1] = redis.call('APPEND', KEYS[at], ARGV[1]) end
if ARGV[4] == 'error' then error('on purpose') end
if ARGV[4] == 'call' then redis.call('INCRBY', KEYS[3], 'on purpose') end
return told";
/// The same keys, read.
pub(super) const READ_SCRIPT: &str = "\
local told = {}
for at = 1, #KEYS do told[at] = redis.call('GET', KEYS[at]) end
return told";

/// How a deed is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// MULTI, APPENDs, GETs of all, EXEC.
    Group,
    /// MULTI with a command that is none: EXEC refuses all.
    Void,
    /// WATCH and GETs, then a purchase by EXEC.
    Watch,
    /// A script.
    Script,
    /// A script that fails when it has changed all.
    Failing,
    /// One APPEND.
    Plain,
    /// All keys are read by EXEC.
    Read,
    /// All keys are read by a script.
    ReadByScript,
    /// One list is read by GET.
    Get,
}

/// What became of a deed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Pending,
    Unknown,
    Done,
    NotDone,
}

/// What a client has asked of a shop.
pub(super) struct Deed {
    pub(super) shop: usize,
    pub(super) form: Form,
    /// The lists that get its name, or that it reads.
    lists: Vec<usize>,
    units: i64,
    begin_us: u64,
    /// It was answered then.
    end_us: u64,
    outcome: Outcome,
    /// Bytes of each list behind its name, as its answer tells.
    behind: Vec<Option<usize>>,
    /// What it has read before it changed something, by place.
    seen: Vec<Option<Vec<u8>>>,
    /// The same behind its changes.
    seen_behind: Vec<Option<Vec<u8>>>,
    /// What was sold behind it, as its script tells.
    sold: Option<i64>,
}

impl fmt::Debug for Deed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |value: &Option<Vec<u8>>| match value {
            None => "?".to_string(),
            Some(value) => value.escape_ascii().to_string(),
        };
        let texts = |seen: &[Option<Vec<u8>>]| seen.iter().map(text).collect::<Vec<_>>().join(" ");
        write!(
            f,
            "{:?} of {} units on lists {:?} of shop {}, from {} to {} us: {:?}, behind {:?}, saw \
             [{}], then [{}], sold {:?}",
            self.form,
            self.units,
            self.lists,
            self.shop,
            self.begin_us,
            self.end_us,
            self.outcome,
            self.behind,
            texts(&self.seen),
            texts(&self.seen_behind),
            self.sold
        )
    }
}

impl Deed {
    fn changes(&self) -> bool {
        !matches!(self.form, Form::Read | Form::ReadByScript | Form::Get)
    }
}

/// The keys of one shop.
#[derive(Debug)]
struct Shop {
    slots: [u16; PLACES],
    number: usize,
    /// Units for sale.
    units: i64,
    /// Deeds with names.
    names: usize,
}

impl Shop {
    fn key(&self, place: usize) -> Vec<u8> {
        let name = ["book", "guests", "notes", "stock", "sold"][place];
        let tag = tag_of(self.slots[place]);
        [
            b"{",
            &tag[..],
            b"}",
            name.as_bytes(),
            self.number.to_string().as_bytes(),
        ]
        .concat()
    }
}

/// All shops of a run.
#[derive(Debug)]
pub(super) struct Shops {
    random: Random,
    /// The slots of the keys of all shops: those of one shard, whatever their number.
    slots: [u16; PLACES],
    names_max: usize,
    shops: Vec<Shop>,
    pub(super) deeds: Vec<Deed>,
    /// Values that the last look has found.
    found: Vec<[Option<Vec<u8>>; PLACES]>,
}

/// What a client does next.
pub(super) enum Then {
    /// These commands.
    Asks(Vec<Vec<u8>>),
    /// The deed is over.
    Ends,
}

impl Shops {
    pub(super) fn new(mut random: Random, slots: [u16; PLACES], names_max: usize) -> Self {
        let mut shops = Shops {
            slots,
            names_max,
            shops: Vec::new(),
            deeds: Vec::new(),
            found: Vec::new(),
            random: Random::new(random.bits(), 1),
        };
        shops.open();
        shops
    }

    fn open(&mut self) {
        self.shops.push(Shop {
            slots: self.slots,
            number: self.shops.len(),
            units: self.random.pick(&[6, 20, 1_000]),
            names: 0,
        });
    }

    /// A deed begins: its number and its first commands. Scripts are named by their digests if the
    /// client has sent them.
    pub(super) fn begin(&mut self, now_us: u64) -> usize {
        let last = self.shops.len() - 1;
        let form = self.random.pick(&[
            Form::Group,
            Form::Group,
            Form::Void,
            Form::Watch,
            Form::Watch,
            Form::Script,
            Form::Script,
            Form::Script,
            Form::Failing,
            Form::Plain,
            Form::Plain,
            Form::Read,
            Form::Read,
            Form::ReadByScript,
            Form::Get,
        ]);
        let is_read = matches!(form, Form::Read | Form::ReadByScript | Form::Get);
        let shop = match is_read && self.random.chance(300_000) {
            true => self.random.index(last + 1),
            false => last,
        };
        let mut lists: Vec<usize> = match self.random.below(4) {
            0 => vec![0, 1, 2],
            1 => vec![0, 1],
            2 => vec![0, 2],
            _ => vec![1, 2],
        };
        let mut units = 0;
        match form {
            Form::Plain | Form::Get => lists = vec![self.random.index(LISTS)],
            Form::Watch => units = self.random.pick(&[1, 1, 2]),
            Form::Script | Form::Failing => units = self.random.pick(&[0, 1, 1, 2]),
            _ => {}
        }
        if units > 0 && !lists.contains(&BOOK) {
            lists[0] = BOOK;
        }
        if !is_read {
            self.shops[last].names += 1;
            if self.shops[last].names > self.names_max {
                self.open();
            }
        }
        self.deeds.push(Deed {
            shop,
            form,
            behind: vec![None; LISTS],
            seen: Vec::new(),
            seen_behind: Vec::new(),
            lists,
            units,
            begin_us: now_us,
            end_us: u64::MAX,
            outcome: Outcome::Pending,
            sold: None,
        });
        self.deeds.len() - 1
    }

    /// Which of the two scripts a deed runs, if it runs one.
    pub(super) fn script(&self, number: usize) -> Option<&'static str> {
        match self.deeds[number].form {
            Form::Script | Form::Failing => Some(DEED),
            Form::ReadByScript => Some(READ_SCRIPT),
            _ => None,
        }
    }

    /// The first commands of a deed. A script is named so.
    pub(super) fn asks(&mut self, number: usize, script: (&[u8], &[u8])) -> Vec<Vec<u8>> {
        let deed = &self.deeds[number];
        let shop = &self.shops[deed.shop];
        let key = |place: usize| shop.key(place);
        let get = |place: usize| command(&[b"GET", &key(place)]);
        let name = name_of(number);
        let append = |&list: &usize| command(&[b"APPEND", &key(list), &name]);
        let multi = command(&[b"MULTI"]);
        let exec = command(&[b"EXEC"]);
        match deed.form {
            Form::Plain => vec![append(&deed.lists[0])],
            Form::Get => vec![get(deed.lists[0])],
            Form::Read => {
                let gets = (0..PLACES).map(get);
                [multi].into_iter().chain(gets).chain([exec]).collect()
            }
            Form::Group => {
                let appends = deed.lists.iter().map(append);
                let gets = (0..PLACES).map(get);
                let all = [multi].into_iter().chain(appends).chain(gets);
                all.chain([exec]).collect()
            }
            Form::Void => {
                let appends = deed.lists.iter().map(append);
                let all = [multi].into_iter().chain(appends);
                all.chain([command(&[b"NONE"]), exec]).collect()
            }
            Form::Watch => {
                let keys: Vec<Vec<u8>> = (0..PLACES).map(key).collect();
                let mut words: Vec<&[u8]> = vec![b"WATCH"];
                words.extend(keys.iter().map(Vec::as_slice));
                [command(&words)]
                    .into_iter()
                    .chain((0..PLACES).map(get))
                    .collect()
            }
            Form::Script | Form::Failing => {
                let (eval, text) = script;
                let places = [STOCK, SOLD].into_iter().chain(deed.lists.iter().copied());
                let keys: Vec<Vec<u8>> = places.map(key).collect();
                let count = keys.len().to_string();
                let units = [deed.units, shop.units].map(|it| it.to_string());
                let how: &[u8] = match deed.form {
                    Form::Script => b"",
                    _ if number.is_multiple_of(2) => b"error",
                    _ => b"call",
                };
                let mut words: Vec<&[u8]> = vec![eval, text, count.as_bytes()];
                words.extend(keys.iter().map(Vec::as_slice));
                words.extend([&name[..], units[0].as_bytes(), units[1].as_bytes(), how]);
                vec![command(&words)]
            }
            Form::ReadByScript => {
                let (eval, text) = script;
                let keys: Vec<Vec<u8>> = (0..PLACES).map(key).collect();
                let mut words: Vec<&[u8]> = vec![eval, text, b"5"];
                words.extend(keys.iter().map(Vec::as_slice));
                vec![command(&words)]
            }
        }
    }

    /// All commands of the last step are answered.
    pub(super) fn answered(
        &mut self,
        number: usize,
        replies: &[Reply],
        now_us: u64,
    ) -> Result<Then, String> {
        let then = self.take(number, replies, now_us);
        then.map_err(|wrong| {
            let deed = &self.deeds[number];
            format!("deed {number} {deed:?} was answered {replies:?}: {wrong}")
        })
    }

    fn take(&mut self, number: usize, replies: &[Reply], now_us: u64) -> Result<Then, String> {
        let last = replies.last().expect("a step has commands");
        let form = self.deeds[number].form;
        // What was read under WATCH, and the purchase that follows.
        if form == Form::Watch && self.deeds[number].seen.is_empty() {
            return self.watched(number, replies, now_us);
        }
        if let Reply::Error(text) = last {
            // All keys that it names are kept in memory until it ends.
            if text.starts_with("TRYAGAIN") {
                return Err("it is to end".into());
            }
            let is_void = form == Form::Void && text.starts_with("EXECABORT");
            let is_failed = form == Form::Failing && text.contains("on purpose");
            let is_known = is_void || is_failed || is_not_done(text);
            return self.end(
                number,
                now_us,
                match is_known {
                    true => Outcome::NotDone,
                    false => Outcome::Unknown,
                },
            );
        }
        let shop = self.deeds[number].shop;
        let deed = &mut self.deeds[number];
        let lists = deed.lists.clone();
        match (form, last) {
            (Form::Void | Form::Failing, _) if deed.units == 0 || form == Form::Void => {
                return Err("it was to fail".into());
            }
            (Form::Plain, Reply::Number(bytes)) => {
                deed.behind[lists[0]] = usize::try_from(*bytes).ok();
            }
            (Form::Get, value) => {
                let value = value.value().ok_or("it is no value")?;
                deed.seen = vec![None; PLACES];
                deed.seen[lists[0]] = Some(value.unwrap_or_default().to_vec());
            }
            (Form::Read | Form::ReadByScript, Reply::Array(values)) => {
                deed.seen = values_of(values)?;
            }
            (Form::Group, Reply::Array(members)) => {
                for (list, bytes) in lists.iter().zip(members) {
                    let bytes = bytes.number().ok_or("an APPEND failed")?;
                    deed.behind[*list] = usize::try_from(bytes).ok();
                }
                deed.seen_behind = values_of(&members[lists.len()..])?;
            }
            (Form::Watch, Reply::Null) => {
                let seen = self.deeds[number].seen.clone();
                self.judge_null(number, &seen)?;
                return self.end(number, now_us, Outcome::NotDone);
            }
            (Form::Watch, Reply::Array(members)) => {
                for (list, bytes) in lists.iter().zip(&members[2..]) {
                    let bytes = bytes.number().ok_or("an APPEND failed")?;
                    deed.behind[*list] = usize::try_from(bytes).ok();
                }
                deed.sold = members[1].number();
            }
            (Form::Script | Form::Failing, Reply::Array(returned)) => {
                let numbers: Vec<i64> = returned.iter().filter_map(Reply::number).collect();
                if numbers.len() != returned.len() || numbers.len() < 2 {
                    return Err("it tells other things".into());
                }
                if numbers[0] == 0 {
                    let units = self.shops[shop].units;
                    if numbers[1] + deed.units <= units || numbers[1] > units {
                        return Err(format!("{units} units are for sale"));
                    }
                    return self.end(number, now_us, Outcome::NotDone);
                }
                if form == Form::Failing {
                    return Err("it was to fail".into());
                }
                deed.sold = Some(numbers[1]);
                for (list, bytes) in lists.iter().zip(&numbers[2..]) {
                    deed.behind[*list] = usize::try_from(*bytes).ok();
                }
            }
            _ => return Err("that is no answer to it".into()),
        }
        self.end(number, now_us, Outcome::Done)
    }

    fn end(&mut self, number: usize, now_us: u64, outcome: Outcome) -> Result<Then, String> {
        self.deeds[number].outcome = outcome;
        if outcome != Outcome::Unknown {
            self.deeds[number].end_us = now_us;
        }
        if outcome == Outcome::Done {
            self.judge_sight(number)?;
        }
        Ok(Then::Ends)
    }

    /// The answers to WATCH and its reads.
    fn watched(&mut self, number: usize, replies: &[Reply], now_us: u64) -> Result<Then, String> {
        if replies.iter().any(|it| matches!(it, Reply::Error(_))) {
            self.end(number, now_us, Outcome::NotDone)?;
            return Ok(Then::Asks(vec![command(&[b"UNWATCH"])]));
        }
        let seen = values_of(&replies[1..])?;
        let deed = &mut self.deeds[number];
        deed.seen = seen;
        let shop = &self.shops[deed.shop];
        let sold = number_of(&deed.seen, SOLD)?;
        let name = name_of(number);
        let units = deed.units.to_string();
        if sold + deed.units > shop.units {
            if sold > shop.units {
                return Err(format!("{} units are for sale", shop.units));
            }
            deed.outcome = Outcome::NotDone;
            return Ok(Then::Asks(vec![command(&[b"UNWATCH"])]));
        }
        let key = |place: usize| shop.key(place);
        let mut commands = vec![
            command(&[b"MULTI"]),
            command(&[b"DECRBY", &key(STOCK), units.as_bytes()]),
            command(&[b"INCRBY", &key(SOLD), units.as_bytes()]),
        ];
        for &list in &deed.lists {
            commands.push(command(&[b"APPEND", &key(list), &name]));
        }
        commands.push(command(&[b"EXEC"]));
        Ok(Then::Asks(commands))
    }

    /// Whether the deed waits for nothing but the end of its WATCH.
    pub(super) fn is_over(&self, number: usize) -> bool {
        self.deeds[number].outcome == Outcome::NotDone
    }

    /// No answer will come.
    pub(super) fn lost(&mut self, number: usize) {
        let deed = &mut self.deeds[number];
        if deed.outcome == Outcome::Pending {
            deed.outcome = match deed.form == Form::Watch && deed.seen.is_empty() {
                true => Outcome::NotDone,
                false => Outcome::Unknown,
            };
        }
    }

    /// EXEC is null if somebody may have changed what it watches. A key that was not there may seem
    /// to have changed.
    fn judge_null(&self, number: usize, seen: &[Option<Vec<u8>>]) -> Result<(), String> {
        let deed = &self.deeds[number];
        let mut others = self.deeds.iter().enumerate();
        let may_have_changed = others.any(|(at, other)| {
            at != number
                && other.shop == deed.shop
                && other.changes()
                && other.outcome != Outcome::NotDone
                && other.end_us >= deed.begin_us
        });
        match may_have_changed || seen.iter().any(|it| it.as_ref().is_none_or(Vec::is_empty)) {
            true => Ok(()),
            false => Err("nobody has changed what it watches".into()),
        }
    }

    /// What a group of reads shows is of one moment.
    fn judge_sight(&self, number: usize) -> Result<(), String> {
        let deed = &self.deeds[number];
        let own = [(&deed.seen, false), (&deed.seen_behind, true)];
        // WATCH reads one key after the other; EXEC says that nothing has changed since.
        let whole = own
            .iter()
            .filter(|(seen, _)| seen.iter().all(Option::is_some));
        for (seen, is_behind) in whole.filter(|(seen, _)| !seen.is_empty()) {
            let lists = self.lists_of(deed.shop, seen)?;
            let sold = number_of(seen, SOLD)?;
            let sum = number_of(seen, STOCK)? + sold;
            if sum != 0 {
                return Err(format!("stock and sold are {sum} apart"));
            }
            self.judge_whole(deed.shop, &lists, sold)?;
            let has_own = lists.iter().any(|list| list.contains(&number));
            if deed.changes() && has_own != *is_behind {
                return Err("it sees itself before it is, or not behind".into());
            }
        }
        Ok(())
    }

    /// Whether each deed is in all of its lists or in none, and what is sold in the book.
    fn judge_whole(&self, shop: usize, lists: &[Vec<usize>], sold: i64) -> Result<(), String> {
        for &number in lists.iter().flatten() {
            let deed = &self.deeds[number];
            let is_in = |list: &usize| lists[*list].contains(&number);
            if !deed.lists.iter().all(is_in) {
                return Err(format!(
                    "deed {number} {:?} is in a part of its lists {:?}: {lists:?}",
                    deed.form, deed.lists
                ));
            }
        }
        let units: i64 = lists[BOOK].iter().map(|&it| self.deeds[it].units).sum();
        if units != sold || sold > self.shops[shop].units {
            return Err(format!(
                "{sold} units are sold, the book has {units}, and {} were for sale: {lists:?}",
                self.shops[shop].units
            ));
        }
        Ok(())
    }

    /// The deeds that each list names.
    fn lists_of(&self, shop: usize, seen: &[Option<Vec<u8>>]) -> Result<Vec<Vec<usize>>, String> {
        let lists = seen.iter().take(LISTS).enumerate();
        lists
            .map(|(list, value)| {
                let value = value.as_deref().unwrap_or_default();
                self.list_of(shop, list, value)
            })
            .collect()
    }

    fn list_of(&self, shop: usize, list: usize, value: &[u8]) -> Result<Vec<usize>, String> {
        let mut numbers = Vec::new();
        for name in value.chunks(NAME_BYTES) {
            let number = number_of_name(name).filter(|it| *it < self.deeds.len());
            let number = number.ok_or_else(|| format!("nobody is named {name:?}"))?;
            let deed = &self.deeds[number];
            let is_right = deed.shop == shop && deed.changes() && deed.lists.contains(&list);
            if !is_right || deed.outcome == Outcome::NotDone || numbers.contains(&number) {
                return Err(format!("list {list} has deed {number} {deed:?}"));
            }
            numbers.push(number);
        }
        Ok(numbers)
    }

    /// The keys of the last look, in order.
    pub(super) fn last_reads(&self) -> usize {
        self.shops.len() * PLACES
    }

    pub(super) fn read_last(&self, at: usize) -> Vec<u8> {
        self.shops[at / PLACES].key(at % PLACES)
    }

    /// The last look has found this.
    pub(super) fn found(&mut self, at: usize, value: Option<Vec<u8>>) {
        let (shop, place) = (at / PLACES, at % PLACES);
        if self.found.len() <= shop {
            self.found.resize(shop + 1, Default::default());
        }
        self.found[shop][place] = Some(value.unwrap_or_default());
    }

    /// Holds what is left against what was told.
    pub(super) fn finish(&self) -> Result<(), String> {
        for (shop, found) in self.found.iter().enumerate() {
            let wrong = |wrong| format!("shop {shop}: {wrong}");
            self.judge_shop(shop, found).map_err(wrong)?;
        }
        Ok(())
    }

    fn judge_shop(&self, shop: usize, found: &[Option<Vec<u8>>]) -> Result<(), String> {
        let lists = self.lists_of(shop, found)?;
        let sold = number_of(found, SOLD)?;
        if number_of(found, STOCK)? + sold != 0 {
            return Err("stock and sold do not add up".into());
        }
        self.judge_whole(shop, &lists, sold)?;
        let of_shop = || {
            let deeds = self.deeds.iter().enumerate();
            deeds.filter(move |(_, deed)| deed.shop == shop)
        };
        let mut order = graph::Order::default();
        for (number, deed) in of_shop() {
            let is_there = lists.iter().any(|list| list.contains(&number));
            if deed.outcome == Outcome::Done && deed.changes() && !is_there {
                return Err(format!("deed {number} {deed:?} was answered and is lost"));
            }
            for (list, names) in lists.iter().enumerate() {
                let place = names.iter().position(|it| *it == number);
                let behind = deed.behind[list].map(|bytes| bytes / NAME_BYTES);
                if deed.outcome == Outcome::Done && behind != place.map(|it| it + 1) {
                    return Err(format!(
                        "deed {number} {deed:?} has place {place:?} of list {list}"
                    ));
                }
            }
            let mut book = lists[BOOK].iter();
            if let (Some(sold), Some(place)) = (deed.sold, book.position(|it| *it == number))
                && deed.units > 0
            {
                let before = &lists[BOOK][..=place];
                let units: i64 = before.iter().map(|it| self.deeds[*it].units).sum();
                if units != sold {
                    return Err(format!("deed {number} {deed:?} is behind {units} units"));
                }
            }
            let is_read = deed.outcome == Outcome::Done && !deed.changes();
            if is_there || is_read {
                order.add(number, deed.begin_us, deed.end_us);
            }
        }
        for names in &lists {
            order.follow(names);
        }
        for (number, deed) in of_shop().filter(|(_, deed)| deed.outcome == Outcome::Done) {
            for seen in [&deed.seen, &deed.seen_behind] {
                for (list, value) in seen.iter().take(LISTS).enumerate() {
                    let Some(value) = value else { continue };
                    let count = value.len() / NAME_BYTES;
                    let is_begin = found[list]
                        .as_deref()
                        .is_some_and(|it| it.starts_with(value));
                    if !is_begin {
                        return Err(format!("deed {number} {deed:?} saw another list {list}"));
                    }
                    order.reads(number, &lists[list], count);
                }
            }
        }
        let judged = order.judge();
        judged.map_err(|deeds| format!("no order explains {}", self.describe(&deeds)))
    }

    fn describe(&self, numbers: &[usize]) -> String {
        let deeds = numbers
            .iter()
            .map(|it| format!("{it} {:?}", self.deeds[*it]));
        deeds.collect::<Vec<_>>().join("; ")
    }
}

/// The name of a deed in its lists.
fn name_of(number: usize) -> [u8; NAME_BYTES] {
    let text = format!("{number:04x}");
    text.as_bytes().try_into().expect("few deeds")
}

fn number_of_name(name: &[u8]) -> Option<usize> {
    usize::from_str_radix(str::from_utf8(name).ok()?, 16).ok()
}

fn values_of(replies: &[Reply]) -> Result<Vec<Option<Vec<u8>>>, String> {
    let values = replies.iter().map(|reply| {
        let value = reply.value().ok_or("it is no value")?;
        Ok(Some(value.unwrap_or_default().to_vec()))
    });
    values.collect()
}

fn number_of(seen: &[Option<Vec<u8>>], place: usize) -> Result<i64, String> {
    let text = seen.get(place).cloned().flatten().unwrap_or_default();
    if text.is_empty() {
        return Ok(0);
    }
    let text = String::from_utf8_lossy(&text).into_owned();
    text.parse().map_err(|_| format!("{text} is no number"))
}

/// Whether an error says that nothing was executed.
pub(super) fn is_not_done(text: &str) -> bool {
    let heads = ["BUSY", "OOM", "NOSCRIPT", "EXECABORT", "CROSSSLOT"];
    heads.iter().any(|head| text.starts_with(head))
}
