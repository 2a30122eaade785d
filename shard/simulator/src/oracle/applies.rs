//! APPLY: what each part of one does to its key, and how an answer to one is judged. The sums here
//! are the judge's own: nothing is asked of what the server runs.

use std::ops::Bound;

use penstock_net::apply::{Action, Apply, ApplyInstruction, ApplyKey, Comparison, Operand, Rate};
use penstock_net::reply::{ITEM_FLAG_OVERFLOW, ReplyItem};
use penstock_net::request::{Expiry, Version};
use penstock_net::status::Status;

use super::{COUNTER_BYTES, Entry, Oracle, Plan, Violation};
use crate::operation::Operation;
use crate::plan::Plan as RunPlan;

/// Where the units of a counter are, who wrote it last, and what APPLYs keep beside.
const UNITS: u32 = 0;
const WRITER: u32 = 8;
const THIRD: u32 = 16;
/// How often a limit has let somebody through: in the last four bytes.
const TIMES: u32 = 20;

/// The codes of guards that may fail.
const TOO_FEW: u8 = 1;
const TOO_OFTEN: u8 = 2;
const TOO_EARLY: u8 = 3;
const NEVER_HOLDS: u8 = 9;

/// One key of an APPLY, and what becomes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The key.
    pub key: usize,
    /// What becomes of its value.
    pub act: Act,
    /// What becomes of its expiry: what is put has none unless it is given one.
    pub expiry: Expiry,
}

/// What becomes of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// So many units are taken, if they are there.
    Take(u64),
    /// So many units come to it.
    Give(u64),
    /// As many units as there are, up to so many, go to the keys that receive.
    Drain(u64),
    /// What the first key has lost comes to it.
    Receive,
    /// It becomes a counter of so many units.
    Put(u64),
    /// The same if the key was not there.
    PutAbsent(u64),
    /// It becomes a counter if the key is not there, and so many units come to it.
    Start(u64),
    /// It is used once more, up to so many times in all.
    Limit(u64),
    /// A unit of a rate is taken.
    Rate(Rate),
    /// It is deleted.
    Delete,
    /// It is read.
    Read,
    /// It becomes so many bytes, which nobody ever sees.
    Fill(usize),
}

/// What an APPLY runs on only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// Whatever is there.
    Nothing,
    /// Nothing at all.
    Never,
    /// A version of the first key.
    Version,
    /// The time before this one, in milliseconds.
    Before(u64),
    /// This time and later.
    Since(u64),
}

/// What an operation needs to find at a key to change it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    Value,
    Absence,
    Nothing,
}

impl Act {
    /// Units that it takes from its key and gives it, at most.
    pub(super) fn moves(self) -> (u64, u64) {
        match self {
            Act::Take(units) | Act::Drain(units) => (units, 0),
            Act::Give(units) => (0, units),
            // Nobody drains more at once.
            Act::Receive => (0, DRAINED_MAX),
            _ => (0, 0),
        }
    }

    /// Whether the units behind it may have nothing to do with those before.
    pub(super) fn sets(self) -> bool {
        matches!(
            self,
            Act::Put(_) | Act::PutAbsent(_) | Act::Start(_) | Act::Delete | Act::Fill(_)
        )
    }
}

/// Units that are drained at once, at most.
pub const DRAINED_MAX: u64 = 64;

impl Plan {
    /// Whether no value that somebody sees at a key is its own.
    pub(super) fn leaves_no_value(&self, key: usize) -> bool {
        let act = self.part(key).map(|part| part.act);
        matches!(act, Some(Act::Read | Act::Delete | Act::Fill(_)))
    }

    /// Whether it may make a key that is not there.
    pub(super) fn may_make(&self, key: usize) -> bool {
        let act = self.part(key).map(|part| part.act);
        matches!(act, Some(Act::Put(_) | Act::PutAbsent(_) | Act::Start(_)))
    }

    /// What it needs to find at a key to change it.
    pub(super) fn needs(&self, key: usize) -> Need {
        match self.part(key).map(|part| part.act) {
            Some(Act::PutAbsent(_)) => return Need::Absence,
            Some(Act::Put(_) | Act::Start(_) | Act::Fill(_)) => return Need::Nothing,
            Some(_) => return Need::Value,
            None => {}
        }
        match self.operation {
            Operation::SetAbsent => Need::Absence,
            Operation::SetPresent
            | Operation::SetVersion
            | Operation::Del
            | Operation::DelVersion
            | Operation::Take
            | Operation::Expire
            | Operation::Persist
            | Operation::Move => Need::Value,
            _ => Need::Nothing,
        }
    }

    /// Whether operation `number`, which this is the plan of, made a key that now has these units.
    pub(super) fn is_made(&self, number: usize, key: usize, stock: Option<u64>) -> bool {
        match (self.operation, self.part(key).map(|part| part.act)) {
            (_, Some(Act::Start(units))) => stock == Some(RunPlan::made_stock(number) + units),
            (Operation::TakeOrMake, _) => stock == Some(self.stock - self.units),
            _ => false,
        }
    }
}

/// A number that an answer tells.
#[derive(Clone, Copy, Debug)]
struct ReturnedNumber {
    part: usize,
    offset: u32,
    number: u64,
}

impl Oracle {
    /// The APPLY of an operation. Each key that it changes gets the operation's name.
    #[must_use]
    pub fn apply_of(&self, number: usize) -> Apply {
        let record = &self.records[number];
        let (plan, name) = (&record.plan, record.name as u64);
        let mut apply = Apply::new();
        let names = plan.parts.iter().map(|part| &self.keys[part.key].name);
        let keys: Vec<ApplyKey> = names.map(|name| apply.key(name)).collect();
        match plan.guard {
            Guard::Nothing | Guard::Never => {}
            Guard::Version => {
                apply.then(keys[0].has_version(plan.expected));
            }
            Guard::Before(ms) => {
                apply.then(ApplyInstruction::before(ms));
            }
            Guard::Since(ms) => {
                apply.then(ApplyInstruction::since(ms));
            }
        }
        for (part, &key) in plan.parts.iter().zip(&keys) {
            self.add_part(&mut apply, plan, number, (part, key, keys[0]));
            let is_written = !matches!(
                part.act,
                Act::Read | Act::Delete | Act::Fill(_) | Act::Put(_) | Act::PutAbsent(_)
            );
            if is_written {
                apply.then(key.u64(WRITER).set(name));
            }
            match part.expiry {
                Expiry::At(ms) => apply.then(key.expire_at(ms)),
                Expiry::In(ms) => apply.then(key.expire_in(ms)),
                // What is put has no expiry.
                Expiry::Never if is_written => apply.then(key.expire_at(0_u64)),
                Expiry::Never | Expiry::Keep => &mut apply,
            };
        }
        if plan.guard == Guard::Never {
            let never = keys[0].u64(WRITER).equals(u64::MAX);
            apply.then(never.or_else(NEVER_HOLDS));
        }
        apply
    }

    /// Adds what changes one value.
    fn add_part(
        &self,
        apply: &mut Apply,
        plan: &Plan,
        number: usize,
        (part, key, first): (&Part, ApplyKey, ApplyKey),
    ) {
        let name = self.records[number].name;
        let units = key.u64(UNITS);
        match part.act {
            Act::Take(taken) => {
                apply.then(units.returned());
                // Without the guard the range of the field is one.
                if plan.guard != Guard::Never {
                    apply.then(units.at_least(taken).or_else(TOO_FEW));
                }
                apply.then(units.decrease(taken).or_else(TOO_FEW));
            }
            Act::Give(given) => {
                apply.then(units.returned());
                apply.then(match number % 2 {
                    0 => units.increase(given),
                    _ => units.changes(penstock_net::apply::Arithmetic::AddSaturating, given),
                });
            }
            Act::Drain(most) => {
                use penstock_net::apply::Arithmetic as A;
                let moved = key.u64(THIRD);
                apply.then(units.returned());
                apply.then(moved.set(units));
                apply.then(moved.changes(A::Min, most));
                apply.then(moved.changes(A::Max, 0_u64));
                apply.then(units.changes(A::SubSaturating, moved));
            }
            Act::Receive => {
                apply.then(units.returned());
                apply.then(units.increase(first.u64(THIRD)));
            }
            Act::Put(stock) => {
                apply.put(key, &counter(stock, name));
            }
            Act::PutAbsent(stock) => {
                apply.then(key.is_absent());
                apply.put(key, &counter(stock, name));
            }
            Act::Start(given) => {
                apply.start(key, &counter(RunPlan::made_stock(name), name));
                apply.then(units.returned());
                apply.then(units.increase(given));
            }
            Act::Limit(most) => {
                let times = key.u32(TIMES);
                apply.then(units.returned());
                apply.then(times.increase(1_u64));
                apply.then(times.at_most(most).or_else(TOO_OFTEN));
            }
            Act::Rate(rate) => {
                apply.then(units.returned());
                apply.then(key.u64(THIRD).returned());
                apply.then(key.u64(THIRD).take(rate).or_else(TOO_EARLY));
            }
            Act::Delete => {
                apply.then(units.returned());
                apply.then(key.delete());
            }
            Act::Read => {
                apply.then(units.returned());
                apply.then(key.u64(WRITER).returned());
            }
            Act::Fill(bytes) => {
                apply.put(key, &vec![1; bytes]);
            }
        }
    }

    /// Judges an answer to an APPLY.
    pub(super) fn judge_apply(
        &mut self,
        number: usize,
        plan: &Plan,
        item: &ReplyItem<'_>,
        is_durable: bool,
    ) -> Result<(), Violation> {
        let about = |wrong: String| format!("operation {number} {:?}: {wrong}", plan.operation);
        match item.head.status {
            Status::Ok if plan.operation == Operation::Sum => self
                .read_jointly(number, plan, item, is_durable)
                .map_err(about),
            Status::Ok => self.applied(number, plan, item, is_durable).map_err(about),
            _ => {
                self.judge_no(number, plan, item).map_err(about)?;
                match item.head.version.sequence {
                    0 => Ok(()),
                    _ => self.saw(number, plan, item, is_durable),
                }
            }
        }
    }

    /// Something did not hold: that must be so.
    fn judge_no(
        &mut self,
        number: usize,
        plan: &Plan,
        item: &ReplyItem<'_>,
    ) -> Result<(), Violation> {
        let apply = self.apply_of(number);
        let at = usize::from(item.head.instruction);
        let failed = *(apply.instructions().get(at)).ok_or("there is no such instruction")?;
        if item.head.reason != failed.reason {
            return Err(format!("another reason than that of {failed:?}"));
        }
        let place = usize::from(failed.key);
        let is_first_gone = item.head.version.sequence == 0;
        if is_first_gone && !self.may_miss(number, 0, plan.key) {
            return Err(format!("key {} was there", plan.key));
        }
        let is_so = match item.head.status {
            Status::NotFound => {
                let key = plan.parts[place].key;
                let floor = self.records[number].floors[place];
                let may_miss = self.may_miss(number, place, key);
                let is_expired = floor > Version::default() && self.may_be_gone(key, floor);
                self.expired += u64::from(may_miss && is_expired);
                may_miss && (place > 0 || is_first_gone)
            }
            Status::VersionMismatch => {
                failed.action == Action::Version(plan.expected)
                    && item.head.version != plan.expected
                    && item.value == item.head.version.to_bytes()
            }
            _ => {
                let actual = item.field(0).ok_or("the number is not told")?;
                let overflows = item.head.flags & ITEM_FLAG_OVERFLOW != 0;
                self.fails(number, &failed, actual, overflows)
                    && self.is_known_of_first(plan, item, &failed, actual)
            }
        };
        match is_so {
            true => Ok(()),
            false => Err(format!(
                "{failed:?} holds, and was answered {:?}",
                item.head
            )),
        }
    }

    /// Whether an instruction does not hold for the number that is told.
    fn fails(
        &self,
        number: usize,
        failed: &ApplyInstruction,
        actual: u64,
        overflows: bool,
    ) -> bool {
        use penstock_net::apply::Arithmetic as A;
        let record = &self.records[number];
        let is_time = (record.issued_ms..=self.time_ms).contains(&actual);
        match failed.action {
            Action::Compare(Comparison::Ge, _, Operand::Immediate(least)) => actual < least,
            Action::Compare(Comparison::Le, _, Operand::Immediate(most)) => actual > most,
            // It was written just before.
            Action::Compare(Comparison::Eq, ..) => actual == record.name as u64,
            Action::Change(A::Sub, _, Operand::Immediate(taken)) => overflows && actual < taken,
            Action::Absent => actual == 1,
            Action::Before(Operand::Immediate(ms)) => is_time && actual >= ms,
            Action::Since(Operand::Immediate(ms)) => is_time && actual < ms,
            Action::Rate(..) => actual > 0,
            _ => false,
        }
    }

    /// Whether the number that is told is the one that the first key has at the version that is
    /// told, as far as that is known.
    fn is_known_of_first(
        &self,
        plan: &Plan,
        item: &ReplyItem<'_>,
        failed: &ApplyInstruction,
        actual: u64,
    ) -> bool {
        let is_of_units = match failed.action {
            Action::Compare(_, at, _) | Action::Change(_, at, _) => at.offset() == UNITS,
            _ => false,
        };
        let entry = self.keys[plan.key].entries.get(&item.head.version);
        let known = entry.and_then(|entry| entry.stock);
        failed.key > 0 || !is_of_units || known.is_none_or(|known| known == actual)
    }

    /// The numbers that an answer tells, in the order of the instructions.
    fn returned_by(
        &self,
        number: usize,
        item: &ReplyItem<'_>,
    ) -> Result<Vec<ReturnedNumber>, Violation> {
        let apply = self.apply_of(number);
        let places =
            apply
                .instructions()
                .iter()
                .filter_map(|instruction| match instruction.action {
                    Action::Change(_, at, _) | Action::Rate(at, _) | Action::Return(at) => {
                        Some((usize::from(instruction.key), at.offset()))
                    }
                    _ => None,
                });
        let places: Vec<_> = places.collect();
        if item.value.len() != 8 * places.len() {
            return Err(format!(
                "{} numbers are to be told, and {} bytes are",
                places.len(),
                item.value.len()
            ));
        }
        let numbers = places
            .into_iter()
            .enumerate()
            .map(|(at, (part, offset))| ReturnedNumber {
                part,
                offset,
                number: item.field(at).expect("they are as many"),
            });
        Ok(numbers.collect())
    }

    /// All of it took effect.
    fn applied(
        &mut self,
        number: usize,
        plan: &Plan,
        item: &ReplyItem<'_>,
        is_durable: bool,
    ) -> Result<(), Violation> {
        let version = item.head.version;
        if version.epoch != self.epoch {
            return Err(format!("wrote {version:?} in epoch {}", self.epoch));
        }
        let record = &self.records[number];
        let in_time = match plan.guard {
            Guard::Before(ms) => record.issued_ms < ms,
            Guard::Since(ms) => record.answered_ms >= ms,
            _ => true,
        };
        if !in_time {
            return Err(format!(
                "ran {:?} between {} and {}",
                plan.guard, record.issued_ms, record.answered_ms
            ));
        }
        if plan.guard == Guard::Version {
            let chained = (plan.expected, version);
            self.keys[plan.key].chained.push(chained);
        }
        let numbers = self.returned_by(number, item)?;
        let entries = self.entries_of(number, plan, &numbers)?;
        for (place, (part, entry)) in plan.parts.iter().zip(entries).enumerate() {
            let floor = self.records[number].floors[place];
            if version <= floor {
                return Err(format!(
                    "wrote version {version:?} of key {}, and {floor:?} was shown before",
                    part.key
                ));
            }
            self.enter(part.key, version, entry, is_durable)?;
        }
        Ok(())
    }

    /// What each key has afterwards, by what the answer tells and the judge's own sums.
    fn entries_of(
        &self,
        number: usize,
        plan: &Plan,
        numbers: &[ReturnedNumber],
    ) -> Result<Vec<Entry>, Violation> {
        let record = &self.records[number];
        let name = record.name;
        let (mut drained, mut sums) = (0, (0_u128, 0_u128));
        let mut entries = Vec::new();
        for (place, part) in plan.parts.iter().enumerate() {
            let of = |offset| {
                let numbers = numbers
                    .iter()
                    .filter(move |it| it.part == place && it.offset == offset);
                numbers.map(|it| it.number)
            };
            let was = of(UNITS).next();
            let (had, mut third) = (was.unwrap_or(0), None);
            let after = match part.act {
                Act::Take(units) => had.checked_sub(units),
                Act::Give(units) | Act::Start(units) => Some(had + units),
                Act::Drain(most) => {
                    drained = had.min(most);
                    third = Some(drained);
                    if !of(THIRD).eq([had, drained, drained]) {
                        return Err(format!("key {} drained wrongly: {numbers:?}", part.key));
                    }
                    Some(had - drained)
                }
                Act::Receive => Some(had + drained),
                Act::Put(stock) | Act::PutAbsent(stock) => {
                    third = Some(name as u64);
                    Some(stock)
                }
                Act::Limit(most) => {
                    let times = of(TIMES).next();
                    if times.is_none_or(|times| times > most || times == 0) {
                        return Err(format!("{times:?} times passed a limit of {most}"));
                    }
                    Some(had)
                }
                Act::Rate(rate) => {
                    let [until_us, after_us] = [0, 1].map(|at| of(THIRD).nth(at).unwrap_or(0));
                    let times_ms = (record.issued_ms, record.answered_ms);
                    judge_rate(rate, until_us, after_us, times_ms)?;
                    third = Some(after_us);
                    Some(had)
                }
                Act::Delete | Act::Read | Act::Fill(_) => None,
            };
            let is_written = of(WRITER).next().is_none_or(|writer| writer == name as u64);
            // Of what stays as it is the answer tells once, of all else before and after.
            let last = of(UNITS).next_back().or(after);
            let is_right = last == after || part.act == Act::Delete;
            if !is_written || !is_right {
                return Err(format!(
                    "key {} should have {after:?} units: {numbers:?}",
                    part.key
                ));
            }
            sums.0 += u128::from(had);
            sums.1 += u128::from(after.unwrap_or(0));
            entries.push(Entry {
                operation: name,
                stock: after,
                was,
                third,
                is_deletion: part.act == Act::Delete,
                shown_expiry_ms: None,
                is_doubtful: false,
            });
        }
        if matches!(plan.operation, Operation::Pour | Operation::Drain) && sums.0 != sums.1 {
            return Err(format!("{} units became {}", sums.0, sums.1));
        }
        Ok(entries)
    }

    /// Several keys were read at once.
    fn read_jointly(
        &mut self,
        number: usize,
        plan: &Plan,
        item: &ReplyItem<'_>,
        is_durable: bool,
    ) -> Result<(), Violation> {
        self.saw(number, plan, item, is_durable)?;
        let numbers = self.returned_by(number, item)?;
        let mut joint_read = Vec::new();
        for (place, (part, pair)) in plan.parts.iter().zip(numbers.chunks(2)).enumerate() {
            let mut value = [0; COUNTER_BYTES];
            value[..8].copy_from_slice(&pair[0].number.to_le_bytes());
            value[8..16].copy_from_slice(&pair[1].number.to_le_bytes());
            let (writer, stock) = self.writer_of(part.key, &value)?;
            joint_read.push((part.key, writer));
            let by = &self.records[writer];
            let version = match place {
                0 => item.head.version,
                // What repeats another one has a version of its own.
                _ if by.is_repeated || by.version == Version::default() => continue,
                _ => by.version,
            };
            let floor = self.records[number].floors[place];
            if version < floor {
                return Err(format!(
                    "saw {version:?} of key {} after {floor:?} was shown",
                    part.key
                ));
            }
            let entry = Entry {
                operation: writer,
                stock,
                was: None,
                third: None,
                is_deletion: false,
                shown_expiry_ms: None,
                is_doubtful: false,
            };
            self.enter(part.key, version, entry, is_durable)?;
        }
        self.joint_reads.push((number, joint_read));
        Ok(())
    }

    /// What was seen of several keys at once was there at once.
    pub(super) fn judge_joint_reads(&self) -> Result<(), Violation> {
        for (number, joint_read) in &self.joint_reads {
            let versions: Vec<(usize, Version)> = joint_read
                .iter()
                .map(|&(key, writer)| (key, &self.records[writer]))
                .filter(|(_, by)| !by.is_repeated && by.version > Version::default())
                .map(|(key, by)| (key, by.version))
                .collect();
            let Some(newest) = versions.iter().map(|&(_, version)| version).max() else {
                continue;
            };
            for &(key, version) in &versions {
                let between = (Bound::Excluded(version), Bound::Included(newest));
                let mut between = self.keys[key].entries.range(between);
                if let Some((passed, entry)) = between.find(|(_, entry)| !entry.is_doubtful) {
                    return Err(format!(
                        "operation {number} saw key {key} at {version:?} beside another one at \
                         {newest:?}, and operation {} wrote it at {passed:?}",
                        entry.operation
                    ));
                }
            }
        }
        Ok(())
    }
}

/// Whether a rate went on as it may at a time between these two, in milliseconds.
fn judge_rate(
    rate: Rate,
    until_us: u64,
    after_us: u64,
    (from_ms, to_ms): (u64, u64),
) -> Result<(), Violation> {
    let taken_us = u64::from(rate.quantity) * rate.interval_us;
    let earliest_us = until_us.max(from_ms * 1_000) + taken_us;
    let latest_us = until_us
        .max(to_ms.saturating_mul(1_000))
        .saturating_add(taken_us);
    let ahead_us = u64::from(rate.burst) * rate.interval_us;
    let is_there = after_us.saturating_sub(ahead_us) <= to_ms.saturating_mul(1_000);
    match (earliest_us..=latest_us).contains(&after_us) && is_there {
        true => Ok(()),
        false => Err(format!(
            "{rate:?} went from {until_us} to {after_us} between {from_ms} and {to_ms} ms"
        )),
    }
}

/// A counter of so many units.
fn counter(units: u64, name: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(COUNTER_BYTES);
    for word in [units, name as u64, name as u64] {
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    bytes
}
