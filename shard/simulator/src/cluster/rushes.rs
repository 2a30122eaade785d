//! Rushes: batches of equal changes of one key. A node logs such changes as one record that stands
//! for all of them, and ships that record.
//!
//! ```text
//! stock:   left (u64)  sold (u64)  cells (u32), one for each rush
//!          each item: left - 1, sold + 1, cell + 1
//! decimal: first value + or - the sum of 100^place for each item of the rush at that place
//! ```
//!
//! What must hold of each rush, with cells of two digits where the value is a decimal:
//!
//! - An item that is answered OK is told how many of its rush have been executed, itself included.
//! - Versions of one rush rise. Between two answers about a key are as many versions as changes.
//! - In the end the cell counts what was answered OK and may not be lost, and no more than what was
//!   sent and not refused. A lostfound counts what was lost.
//! - What is left of a stock and what is sold of it are what there was at first.

use std::collections::BTreeMap;

use penstock_net::apply::{Apply, Decimal};
use penstock_net::instruction::{FieldType, Instruction, Operation};
use penstock_net::level::AckLevel;
use penstock_net::reply::ReplyItem;
use penstock_net::request::{BatchRequest, Version};
use penstock_net::status::{Executed, Status};
use penstock_shard::replication::records;
use penstock_storage::record::{PartKind, PartView};

use crate::plan::sends_rushes;
use crate::random::Random;

use super::oracle::Kept;

/// Seeds below are from before changes ran in runs, and have no rushes.
const RUSHES_FROM: u64 = 860_000_000;
/// Parts of a million of what clients send.
const RUSHES: u32 = 300_000;

/// What every long run with rushes meets.
const MUST_MEET: &[&str] = &[
    "item of a rush denied",
    "rush at disk",
    "rush at replica",
    "rush lost and kept",
    "rush of additions",
    "several changes in one lost record",
];

/// Rushes of a key.
const CELLS: usize = 8;
/// Items of a rush, at most.
const ITEMS_MAX: u64 = 99;
/// Keys of a group that are in use.
const METERS: usize = 2;

/// What a key holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Stock {
        units: u64,
        /// The guard stands before all edits, or the last edit denies.
        is_guarded: bool,
    },
    Decimal {
        start: i64,
        falls: bool,
    },
}

/// A key that counts rushes.
#[derive(Debug)]
struct Meter {
    key: Vec<u8>,
    partition: u16,
    form: Form,
    /// Its rushes.
    rushes: Vec<usize>,
    /// Each change that was answered OK: its version, and how many changes there were with it.
    answered: Vec<(Version, u64)>,
}

/// Equal items of one batch.
#[derive(Debug)]
struct Rush {
    meter: usize,
    place: usize,
    level: AckLevel,
    items: u64,
    /// Items that were executed, that were not, and that may have been, as far as answers tell.
    done: u64,
    refused: u64,
    unknown: u64,
    newest: Option<Version>,
}

/// An item of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RushItem {
    Change { rush: usize },
    Read { meter: usize },
}

/// A batch: its items, until each is answered.
#[derive(Clone, Debug)]
pub(super) struct RushBatch {
    items: Vec<Option<RushItem>>,
}

/// What a value counts: all changes, and those of each rush.
#[derive(Clone, Debug, Default)]
struct Counted {
    all: u64,
    cells: [u64; CELLS],
}

/// All rushes of a run.
#[derive(Debug)]
pub(super) struct Rushes {
    random: Random,
    /// When there is one.
    turns: Random,
    groups: Vec<(u64, u16)>,
    /// The keys of each group that are in use.
    current: Vec<[Option<usize>; METERS]>,
    meters: Vec<Meter>,
    rushes: Vec<Rush>,
    /// From which level on nothing of a partition is lost; `None` if all may be. Where there is no
    /// entry, nothing durable is.
    kept_from: BTreeMap<u16, Option<AckLevel>>,
    pub(super) met: BTreeMap<&'static str, u64>,
}

impl RushBatch {
    /// How many items there are.
    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    /// Takes the item with this number, once.
    pub(super) fn take(&mut self, number: u16) -> Option<RushItem> {
        self.items.get_mut(usize::from(number))?.take()
    }

    /// Whether each item was taken.
    pub(super) fn is_answered(&self) -> bool {
        self.items.iter().all(Option::is_none)
    }
}

impl Rushes {
    /// The rushes of a run, if it has some, on keys with these tags and partitions.
    pub(super) fn of_seed(seed: u64, tags: &[(u64, u16)]) -> Option<Self> {
        sends_rushes(seed, RUSHES_FROM).then(|| Rushes::new(seed, tags))
    }

    fn new(seed: u64, tags: &[(u64, u16)]) -> Self {
        Rushes {
            random: Random::new(seed, 114),
            turns: Random::new(seed, 115),
            groups: tags.to_vec(),
            current: vec![[None; METERS]; tags.len()],
            meters: Vec::new(),
            rushes: Vec::new(),
            kept_from: BTreeMap::new(),
            met: MUST_MEET.iter().map(|&what| (what, 0)).collect(),
        }
    }

    /// Whether it is time for one.
    pub(super) fn is_due(&mut self) -> bool {
        self.turns.chance(RUSHES)
    }

    fn meet(&mut self, what: &'static str) {
        *self.met.entry(what).or_default() += 1;
    }

    /// The partition of a group.
    pub(super) fn partition(&self, group: usize) -> u16 {
        self.groups[group].1
    }

    /// The next batch for a group: one or two rushes, now and then with a read in between.
    pub(super) fn next(&mut self, group: usize, level: AckLevel) -> RushBatch {
        let mut items = Vec::new();
        for _ in 0..self.random.within(1, 2) {
            let rush = self.begin(group, level);
            let state = &self.rushes[rush];
            let (meter, count) = (state.meter, usize::try_from(state.items).expect("few"));
            items.extend(vec![Some(RushItem::Change { rush }); count]);
            if self.random.chance(200_000) {
                let at = items.len() - self.random.index(count + 1);
                items.insert(at, Some(RushItem::Read { meter }));
            }
        }
        RushBatch { items }
    }

    fn begin(&mut self, group: usize, level: AckLevel) -> usize {
        let which = self.random.index(METERS);
        let meter = match self.current[group][which] {
            Some(meter) if self.meters[meter].rushes.len() < CELLS => meter,
            _ => self.make(group),
        };
        self.current[group][which] = Some(meter);
        let rush = self.rushes.len();
        let items = match self.random.below(4) {
            0 => ITEMS_MAX,
            1 => self.random.within(1, ITEMS_MAX),
            _ => self.random.within(2, 8),
        };
        let rushes = &mut self.meters[meter].rushes;
        rushes.push(rush);
        self.rushes.push(Rush {
            meter,
            place: rushes.len() - 1,
            level,
            items,
            done: 0,
            refused: 0,
            unknown: 0,
            newest: None,
        });
        rush
    }

    fn make(&mut self, group: usize) -> usize {
        let (tag, partition) = self.groups[group];
        let number = self.meters.len();
        let random = &mut self.random;
        let form = match random.chance(500_000) {
            true => Form::Stock {
                units: random.pick(&[5, 60, 1_000_000]),
                is_guarded: random.chance(500_000),
            },
            // Texts of one length, of lengths that change, and around 0.
            false => Form::Decimal {
                start: random.pick(&[3, 3, -3, 1, -1, 0]) * 1_000_000_000_000_000_000,
                falls: random.chance(500_000),
            },
        };
        self.meters.push(Meter {
            key: format!("{{{tag}}}meter {number}").into_bytes(),
            partition,
            form,
            rushes: Vec::new(),
            answered: Vec::new(),
        });
        number
    }

    /// Writes the items of a batch.
    pub(super) fn write(&self, items: &RushBatch, batch: &mut BatchRequest, out: &mut Vec<u8>) {
        for item in items.items.iter().flatten() {
            match *item {
                RushItem::Read { meter } => batch.get(out, &self.meters[meter].key),
                RushItem::Change { rush } => {
                    let rush = &self.rushes[rush];
                    self.meters[rush.meter].change(rush.place, batch, out);
                }
            }
        }
    }

    /// What was answered below this level may be gone from a partition, or all with `None`, and
    /// what is answered from now on likewise.
    pub(super) fn keeps_from(&mut self, partition: u16, level: Option<AckLevel>) {
        let entry = self.kept_from.entry(partition);
        let kept_from = entry.or_insert(Some(AckLevel::Disk));
        *kept_from = level.filter(|level| kept_from.is_some_and(|it| it <= *level));
    }

    /// Whether nothing durable may be lost.
    fn has_one_past(&self, partition: u16) -> bool {
        !self.kept_from.contains_key(&partition)
    }

    /// The keys that were made, with their partitions.
    pub(super) fn keys(&self) -> impl Iterator<Item = (Vec<u8>, u16)> + '_ {
        let meters = self.meters.iter();
        meters.map(|meter| (meter.key.clone(), meter.partition))
    }

    /// An answer came. `is_judged` if nothing excuses it.
    pub(super) fn answer(
        &mut self,
        asked: RushItem,
        item: &ReplyItem<'_>,
        is_judged: bool,
    ) -> Result<(), String> {
        let answered = match asked {
            RushItem::Read { meter } => self.read(meter, item),
            RushItem::Change { rush } => self.changed(rush, item),
        };
        answered.or_else(|wrong| match is_judged {
            true => Err(format!("{wrong}: {asked:?} is told {item:?}")),
            false => Ok(()),
        })
    }

    fn read(&self, meter: usize, item: &ReplyItem<'_>) -> Result<(), String> {
        let meter = &self.meters[meter];
        match item.head.status {
            Status::Ok => meter.counted(item.value).map(|_| ()),
            _ => Ok(()),
        }
    }

    fn changed(&mut self, number: usize, item: &ReplyItem<'_>) -> Result<(), String> {
        let (status, version) = (item.head.status, item.head.version);
        let rush = &mut self.rushes[number];
        match status.executed() {
            Executed::Yes => rush.done += 1,
            Executed::No => rush.refused += 1,
            Executed::Unknown => rush.unknown += 1,
        }
        match status {
            Status::Ok => {}
            Status::GuardFailed => {
                self.meet("item of a rush denied");
                return Ok(());
            }
            Status::Malformed | Status::BadKey | Status::BadField | Status::TooLarge => {
                return Err("it was refused".into());
            }
            _ => return Ok(()),
        }
        let before = rush.newest.replace(version);
        let (done, unknown, place) = (rush.done, rush.unknown, rush.place);
        let (at, level, is_first) = (rush.meter, rush.level, rush.done == 1);
        let meter = &mut self.meters[at];
        let (all, cell) = meter.counts_in(place, item)?;
        meter.answered.push((version, all));
        let is_decimal = matches!(meter.form, Form::Decimal { .. });
        let is_certain = self.has_one_past(self.meters[at].partition);
        if is_first {
            self.meet(match level {
                AckLevel::Replica => "rush at replica",
                AckLevel::All => "rush at all",
                _ => "rush at disk",
            });
            if is_decimal {
                self.meet("rush of additions");
            }
        }
        if before.is_some_and(|before| version <= before) {
            return Err(format!("its version is not behind {before:?}"));
        }
        if is_certain && !(done..=done + unknown).contains(&cell) {
            return Err(format!("{done} were executed, and {cell} are counted"));
        }
        Ok(())
    }

    /// Holds the last values against what was told. `found` are the diverged records that nodes
    /// keep. No disk is lost if `has_all_disks`.
    pub(super) fn judge(
        &mut self,
        last: &BTreeMap<Vec<u8>, Option<Vec<u8>>>,
        found: &[(u8, Vec<u8>)],
        keeps: Kept,
        has_all_disks: bool,
    ) -> Result<(), String> {
        let lost = self.lost_cells(found)?;
        let is_numbered = keeps != Kept::Some && has_all_disks;
        for (number, meter) in self.meters.iter().enumerate() {
            let name = String::from_utf8_lossy(&meter.key);
            let value = last.get(&meter.key).cloned().flatten();
            let counted = match &value {
                Some(value) => meter.counted(value)?,
                None => Counted::default(),
            };
            if counted.cells[meter.rushes.len()..]
                .iter()
                .any(|&cell| cell > 0)
            {
                return Err(format!("{name} counts what nobody sent: {counted:?}"));
            }
            let kept_from = match self.kept_from.get(&meter.partition) {
                None => Some(AckLevel::Disk),
                Some(level) => *level,
            };
            for (place, &at) in meter.rushes.iter().enumerate() {
                let (rush, cell) = (&self.rushes[at], counted.cells[place]);
                if cell > rush.items - rush.refused {
                    return Err(format!("{name} counts {cell} of rush {at}: {rush:?}"));
                }
                if cell >= rush.done {
                    continue;
                }
                if kept_from.is_some_and(|from| from <= rush.level) {
                    return Err(format!("{name} counts only {cell} of rush {at}: {rush:?}"));
                }
                let in_lostfound = lost.get(&(number, place)).copied().unwrap_or_default();
                if in_lostfound >= rush.done {
                    *self.met.entry("rush lost and kept").or_default() += 1;
                } else if is_numbered {
                    return Err(format!(
                        "{name} counts {cell} and a lostfound {in_lostfound} of rush {at}: {rush:?}"
                    ));
                }
            }
            if self.has_one_past(meter.partition) {
                meter.judge_versions()?;
            }
        }
        Ok(())
    }

    /// The highest cells that are in records kept by nodes, by meter and place.
    fn lost_cells(
        &mut self,
        found: &[(u8, Vec<u8>)],
    ) -> Result<BTreeMap<(usize, usize), u64>, String> {
        let by_key: BTreeMap<&[u8], usize> = self
            .meters
            .iter()
            .enumerate()
            .map(|(number, meter)| (&meter.key[..], number))
            .collect();
        let mut lost: BTreeMap<(usize, usize), u64> = BTreeMap::new();
        for (_, bytes) in found {
            for record in records(bytes) {
                let record = record.map_err(|fault| format!("a lostfound has {fault:?}"))?;
                let part = PartView::read(record.bytes);
                let part = part.map_err(|fault| format!("a lostfound has {fault:?}"))?;
                let Some(&number) = by_key.get(part.key()) else {
                    continue;
                };
                if part.kind() == PartKind::Tombstone {
                    continue;
                }
                if part.changes() > 1 {
                    *self
                        .met
                        .entry("several changes in one lost record")
                        .or_default() += 1;
                }
                let cells = self.meters[number].counted(part.value())?.cells;
                for (place, cell) in cells.into_iter().enumerate() {
                    let highest = lost.entry((number, place)).or_default();
                    *highest = cell.max(*highest);
                }
            }
        }
        Ok(lost)
    }
}

impl Meter {
    /// Writes one item of the rush at this place.
    fn change(&self, place: usize, batch: &mut BatchRequest, out: &mut Vec<u8>) {
        let step = |operation, field_type, offset| Instruction {
            operation,
            field_type,
            key: 0,
            reason: 1,
            offset,
            immediate: 1,
        };
        match self.form {
            Form::Stock { units, is_guarded } => {
                let mut start = vec![0; 16 + 4 * CELLS];
                start[..8].copy_from_slice(&units.to_le_bytes());
                let offset = 16 + 4 * u32::try_from(place).expect("few cells");
                let sold = step(Operation::Add, FieldType::U64, 8);
                let cell = step(Operation::Add, FieldType::U32, offset);
                let taken = step(Operation::Sub, FieldType::U64, 0);
                let steps = match is_guarded {
                    true => vec![step(Operation::Ge, FieldType::U64, 0), sold, cell, taken],
                    false => vec![sold, cell, taken],
                };
                batch.update_if(out, &self.key, None, &steps, Some(&start));
            }
            Form::Decimal { start, falls } => {
                let mut apply = Apply::new();
                let key = apply.key(&self.key);
                apply.start(key, Decimal::new(start).bytes());
                let by = 100_i64.pow(u32::try_from(place).expect("few cells"));
                apply.then(key.decimal().increase(if falls { -by } else { by }));
                batch.apply(out, &apply);
            }
        }
    }

    /// What an item of the rush at this place is told: all changes of the key, and those of the
    /// rush.
    fn counts_in(&self, place: usize, item: &ReplyItem<'_>) -> Result<(u64, u64), String> {
        match self.form {
            Form::Stock { units, .. } => {
                let fields = [0, 1, 2].map(|number| item.field(number));
                let [Some(sold), Some(cell), Some(left)] = fields else {
                    return Err("it is told too little".into());
                };
                match sold.checked_add(left) == Some(units) {
                    true => Ok((sold, cell)),
                    false => Err(format!("{units} units became {sold} and {left}")),
                }
            }
            Form::Decimal { .. } => {
                let number = item.field(0).ok_or("it is told nothing")?;
                let counted = self.counted_by(number.cast_signed())?;
                Ok((counted.all, counted.cells[place]))
            }
        }
    }

    /// What a value counts, which must be one of this key.
    fn counted(&self, value: &[u8]) -> Result<Counted, String> {
        let Form::Stock { units, .. } = self.form else {
            let number = Decimal::read(value).ok_or("a decimal is none")?;
            return self.counted_by(number);
        };
        let name = String::from_utf8_lossy(&self.key);
        if value.len() != 16 + 4 * CELLS {
            return Err(format!("{name} has {} bytes", value.len()));
        }
        let number = |at: usize| u64::from_le_bytes(value[at..at + 8].try_into().expect("eight"));
        let (left, all) = (number(0), number(8));
        let mut cells = [0; CELLS];
        for (cell, bytes) in cells.iter_mut().zip(value[16..].as_chunks().0) {
            *cell = u64::from(u32::from_le_bytes(*bytes));
        }
        match left.checked_add(all) == Some(units) && cells.iter().sum::<u64>() == all {
            true => Ok(Counted { all, cells }),
            false => Err(format!(
                "{name} had {units} units, has {left}, has sold {all}, and counts {cells:?}"
            )),
        }
    }

    fn counted_by(&self, number: i64) -> Result<Counted, String> {
        let Form::Decimal { start, falls } = self.form else {
            return Err("it is no decimal".into());
        };
        let (from, to) = match falls {
            true => (number, start),
            false => (start, number),
        };
        let mut rest = u64::try_from(i128::from(to) - i128::from(from))
            .map_err(|_| format!("{start} became {number}"))?;
        let mut cells = [0; CELLS];
        for cell in &mut cells {
            (*cell, rest) = (rest % 100, rest / 100);
        }
        match rest {
            0 => Ok(Counted {
                all: cells.iter().sum(),
                cells,
            }),
            _ => Err(format!("{start} became {number}")),
        }
    }

    /// In one past each change has a version of its own, so versions rise at least as fast as the
    /// number of changes.
    fn judge_versions(&self) -> Result<(), String> {
        let mut answered = self.answered.clone();
        answered.sort_unstable();
        for pair in answered.windows(2) {
            let [(version, all), (next, next_all)] = pair else {
                continue;
            };
            let is_dense =
                next_all > all && next.sequence.saturating_sub(version.sequence) >= next_all - all;
            if !is_dense {
                return Err(format!(
                    "{} had changed {all} times at {version:?} and {next_all} times at {next:?}",
                    String::from_utf8_lossy(&self.key)
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use penstock_net::reply::ReplyHead;

    use super::*;

    /// One decimal from 0 on, and a rush of three items at level disk.
    fn one_rush() -> Rushes {
        let mut rushes = Rushes::new(1, &[(7, 3)]);
        rushes.meters.push(Meter {
            key: b"{7}meter 0".to_vec(),
            partition: 3,
            form: Form::Decimal {
                start: 0,
                falls: false,
            },
            rushes: vec![0],
            answered: Vec::new(),
        });
        rushes.rushes.push(Rush {
            meter: 0,
            place: 0,
            level: AckLevel::Disk,
            items: 3,
            done: 0,
            refused: 0,
            unknown: 0,
            newest: None,
        });
        rushes
    }

    fn answer(
        rushes: &mut Rushes,
        status: Status,
        sequence: u64,
        shown: i64,
    ) -> Result<(), String> {
        let version = Version { epoch: 1, sequence };
        let item = ReplyItem {
            head: ReplyHead::new(status, 0, AckLevel::Disk, version),
            expiry: None,
            standing: None,
            value: &shown.to_le_bytes(),
        };
        rushes.answer(RushItem::Change { rush: 0 }, &item, true)
    }

    fn judge(rushes: &mut Rushes, value: &str) -> Result<(), String> {
        let last = [(b"{7}meter 0".to_vec(), Some(value.as_bytes().to_vec()))];
        rushes.judge(&BTreeMap::from(last), &[], Kept::All, true)
    }

    #[test]
    fn what_was_answered_of_a_rush_is_there_no_more_and_no_less() {
        let mut rushes = one_rush();
        answer(&mut rushes, Status::Ok, 5, 1).expect("the first");
        answer(&mut rushes, Status::Ok, 6, 2).expect("the second");
        answer(&mut rushes, Status::Full, 0, 0).expect("it was refused");
        judge(&mut rushes, "2").expect("both");
        assert!(judge(&mut rushes, "1").is_err(), "one is lost");
        assert!(judge(&mut rushes, "3").is_err(), "one is there twice");
        assert!(judge(&mut rushes, "102").is_err(), "nobody has sent that");
        assert!(judge(&mut rushes, "-2").is_err(), "nor that");
    }

    #[test]
    fn what_has_no_known_end_may_be_there_or_not() {
        let mut rushes = one_rush();
        answer(&mut rushes, Status::Ok, 5, 1).expect("the first");
        judge(&mut rushes, "1").expect("it alone");
        judge(&mut rushes, "3").expect("all three");
        assert!(judge(&mut rushes, "0").is_err(), "the first is lost");
        assert!(judge(&mut rushes, "4").is_err(), "three were sent");
    }

    #[test]
    fn a_change_that_is_numbered_or_counted_wrong_is_found() {
        let mut rushes = one_rush();
        answer(&mut rushes, Status::Ok, 5, 1).expect("the first");
        assert!(
            answer(&mut rushes, Status::Ok, 5, 2).is_err(),
            "its version"
        );
        let mut rushes = one_rush();
        assert!(answer(&mut rushes, Status::Ok, 5, 2).is_err(), "its number");
        let mut rushes = one_rush();
        answer(&mut rushes, Status::Ok, 5, 1).expect("the first");
        // Another change stands between them and has no version.
        rushes.meters[0].answered.push((
            Version {
                epoch: 1,
                sequence: 6,
            },
            3,
        ));
        assert!(judge(&mut rushes, "3").is_err());
    }

    #[test]
    fn what_may_be_lost_is_in_a_lostfound_unless_a_disk_is_gone() {
        let mut rushes = one_rush();
        answer(&mut rushes, Status::Ok, 5, 1).expect("the first");
        rushes.keeps_from(3, Some(AckLevel::Replica));
        let wrong = judge(&mut rushes, "0").expect_err("no lostfound has it");
        assert!(wrong.contains("lostfound 0"), "{wrong}");
        let last = BTreeMap::from([(b"{7}meter 0".to_vec(), None)]);
        let judged = rushes.judge(&last, &[], Kept::All, false);
        judged.expect("it is gone with a disk");
    }
}
