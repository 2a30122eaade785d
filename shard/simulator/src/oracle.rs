//! The model that every answer is held against.
//!
//! Every write leaves the number of its operation in the value, so each value that is ever seen
//! names the one operation that made it. Versions order the operations of a key; the model checks
//! that this order agrees with real time, with the order of each connection, with what every
//! operation computed, and with what was durable before a crash. What a server said was not executed
//! must never be seen; what was never answered may be seen or not, but not first one and then the
//! other.

mod past;

use std::collections::{BTreeMap, BTreeSet};

use penstock_net::level::AckLevel;
use penstock_net::reply::{ITEM_FLAG_SHOWN, ReplyItem};
use penstock_net::request::{Expiry, Version};
use penstock_net::status::{Executed, Status};
use penstock_storage::version::partition_of;

use crate::coverage::Operation;
use crate::life::Life;
use crate::random::Random;

/// Bytes of a counter: units, the operation that wrote it last, the operation that made it.
pub const COUNTER_BYTES: usize = 24;

/// What an operation does, with all that the model needs to judge it.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What.
    pub operation: Operation,
    /// Its key.
    pub key: usize,
    /// The second key of a move.
    pub other: Option<usize>,
    /// Units taken or moved.
    pub units: u64,
    /// Units that a counter is set to, or made with.
    pub stock: u64,
    /// Bytes of a value that is set, if the key is no counter.
    pub value_bytes: usize,
    /// The version that is asked for.
    pub expected: Version,
    /// The level that is asked for.
    pub level: AckLevel,
    /// When its key is gone by itself.
    pub expiry: Expiry,
}

/// A key and what is known of it.
#[derive(Debug)]
pub struct Key {
    /// Its bytes.
    pub name: Vec<u8>,
    /// Its slot.
    pub slot: u16,
    /// It holds a counter.
    pub is_counter: bool,
    /// It is only ever used at level disk, by operations on one key.
    pub is_strict: bool,
    /// No answer may show less than this any more: it was durable when somebody was told.
    floor: Version,
    /// No answer of this run of the server may show less.
    shown: Version,
    /// What stood there when the server started, once it was seen.
    recovered: Option<Version>,
    /// Versions that are known.
    entries: BTreeMap<Version, Entry>,
    /// Operations whose outcome nobody knows.
    unknown: Vec<usize>,
    /// Versions that were asked for and found, with the version written on them.
    chained: Vec<(Version, Version)>,
    /// Operations on the key in the order of their answers, for the second judge.
    pub history: Vec<usize>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    operation: usize,
    /// Units, if they are known and it is a counter.
    stock: Option<u64>,
    is_deletion: bool,
    /// The expiry that a server told of it, 0 for none.
    told_ms: Option<u64>,
    /// A crash may have taken it.
    is_doubtful: bool,
}

/// What became of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Not answered yet.
    Pending,
    /// Answered: executed, or refused by a condition.
    Answered(Status),
    /// Answered: not executed, and never will be; but a change of a keyspace that met a full disk may be.
    Refused(Status),
    /// Never answered, or answered that nobody knows.
    Unknown,
}

/// One operation.
#[derive(Clone, Debug)]
pub struct Record {
    /// What it does.
    pub plan: Plan,
    /// What became of it.
    pub state: State,
    /// Its connection, and its place on it.
    connection: u64,
    /// When it was sent, in answers and sendings.
    pub issued: u64,
    /// When it was answered.
    pub answered: u64,
    /// When it was answered, in virtual time.
    answered_us: u64,
    /// The time of its shard when it was sent.
    issued_ms: u64,
    /// The time of its shard when it was answered.
    answered_ms: u64,
    /// The epoch of the run that it was sent to.
    epoch: u32,
    floors: [Version; 2],
    /// The version that it wrote or saw.
    pub version: Version,
    /// The value that it saw, by the operation that wrote it, and the units.
    pub seen: Option<(usize, u64)>,
    /// Units afterwards, of both keys.
    pub after: [u64; 2],
}

/// What was shown of every key at a moment.
#[derive(Clone, Debug)]
pub struct Glimpse {
    clock: u64,
    /// By key.
    shown: Vec<Version>,
    /// The time of each key's shard.
    pub times_ms: Vec<u64>,
}

/// All keys and operations of one run.
#[derive(Debug)]
pub struct Oracle {
    /// The keys.
    pub keys: Vec<Key>,
    /// The operations, by number.
    pub records: Vec<Record>,
    by_version: BTreeMap<(usize, Version), usize>,
    by_name: BTreeMap<Vec<u8>, usize>,
    /// Changes of the keyspaces that keep versions, in the order in which they were sent.
    keyspaces: Vec<usize>,
    clock: u64,
    epoch: u32,
    /// The time of the shard that the next operation or answer is about.
    pub time_ms: u64,
    /// Keys that were found gone although nobody may have deleted them.
    pub expired: u64,
    /// Reads of the disk may fail, so IO and CORRUPT are honest answers.
    pub may_fail_to_read: bool,
    /// The largest value that was accepted, and since when, ascending.
    value_limits: Vec<(u64, usize)>,
    /// The disk was full, so FULL is an honest answer.
    pub may_be_full: bool,
    /// There are no more faults, and no more than a few operations at a time: all are executed.
    pub must_execute: bool,
}

/// What an answer is held to be wrong for.
pub type Violation = String;

/// Whether a change under a condition asks for the value that keeps the condition from holding.
#[must_use]
pub fn asks_for_what_won(number: usize, operation: Operation) -> bool {
    let has_condition = matches!(
        operation,
        Operation::SetAbsent | Operation::SetVersion | Operation::DelVersion
    );
    has_condition && number % 2 == 1
}

impl Oracle {
    /// No operations yet, on these keys: name, slot, counter, strict.
    #[must_use]
    pub fn new(keys: Vec<(Vec<u8>, u16, bool, bool)>) -> Self {
        let by_name = (0..)
            .zip(&keys)
            .map(|(number, (name, ..))| (name.clone(), number))
            .collect();
        let keys = keys
            .into_iter()
            .map(|(name, slot, is_counter, is_strict)| Key {
                name,
                slot,
                is_counter,
                is_strict,
                floor: Version::default(),
                shown: Version::default(),
                recovered: None,
                entries: BTreeMap::new(),
                unknown: Vec::new(),
                chained: Vec::new(),
                history: Vec::new(),
            })
            .collect();
        Oracle {
            keys,
            records: Vec::new(),
            by_version: BTreeMap::new(),
            by_name,
            keyspaces: Vec::new(),
            clock: 0,
            epoch: 0,
            time_ms: 0,
            expired: 0,
            may_fail_to_read: false,
            value_limits: Vec::new(),
            may_be_full: false,
            must_execute: false,
        }
    }

    /// An operation is sent on a connection; its number.
    pub fn issue(&mut self, plan: Plan, connection: u64) -> usize {
        self.clock += 1;
        let shown = |key: usize| self.keys[key].shown;
        let floors = [
            shown(plan.key),
            plan.other.map_or(Version::default(), shown),
        ];
        let number = self.records.len();
        if plan.operation.is_setting() {
            self.keyspaces.push(number);
        }
        for key in [Some(plan.key), plan.other].into_iter().flatten() {
            self.keys[key].history.push(number);
        }
        self.records.push(Record {
            plan,
            state: State::Pending,
            connection,
            issued: self.clock,
            answered: u64::MAX,
            answered_us: u64::MAX,
            issued_ms: self.time_ms,
            answered_ms: u64::MAX,
            epoch: self.epoch,
            floors,
            version: Version::default(),
            seen: None,
            after: [0; 2],
        });
        number
    }

    /// The key with this name.
    #[must_use]
    pub fn key_named(&self, name: &[u8]) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    /// What is known now; `time_ms` is the time of a key's shard.
    pub fn glimpse(&mut self, time_ms: impl Fn(usize) -> u64) -> Glimpse {
        self.clock += 1;
        Glimpse {
            clock: self.clock,
            shown: self.keys.iter().map(|key| key.shown).collect(),
            times_ms: (0..self.keys.len()).map(time_ms).collect(),
        }
    }

    /// Takes in the times of the shards, so that the latest since a glimpse are known; a start may set
    /// them back.
    pub fn pass(glimpse: &mut Glimpse, time_ms: impl Fn(usize) -> u64) {
        for (key, latest_ms) in glimpse.times_ms.iter_mut().enumerate() {
            *latest_ms = time_ms(key).max(*latest_ms);
        }
    }

    /// Takes out of a glimpse what a crash has taken since.
    pub fn lower(&self, glimpse: &mut Glimpse) {
        for (shown, key) in glimpse.shown.iter_mut().zip(&self.keys) {
            *shown = key.shown.min(*shown);
        }
    }

    /// Something that was asked for when `asked` was known tells what a key has: a value, a version
    /// alone, or nothing at all.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn told(
        &mut self,
        now_us: u64,
        asked: &Glimpse,
        key: usize,
        level: AckLevel,
        has_value: bool,
        item: &ReplyItem<'_>,
    ) -> Result<(), Violation> {
        let is_there = item.head.status == Status::Ok;
        if is_there != (item.head.version.sequence > 0) {
            return Err(format!("key {key} is told with {:?}", item.head));
        }
        let plan = Plan {
            operation: match has_value {
                true => Operation::Get,
                false => Operation::Look,
            },
            key,
            other: None,
            units: 0,
            stock: 0,
            value_bytes: 0,
            expected: Version::default(),
            level,
            expiry: Expiry::Keep,
        };
        // It keeps no order with anything else of its connection.
        let number = self.issue(plan, u64::MAX - self.clock);
        let record = &mut self.records[number];
        record.issued = asked.clock;
        record.issued_ms = asked.times_ms[key];
        record.floors[0] = asked.shown[key];
        self.answer(now_us, number, item)
    }

    /// The value that a SET writes, or that a counter is made with.
    #[must_use]
    pub fn value(&self, number: usize) -> Vec<u8> {
        let plan = &self.records[number].plan;
        if self.keys[plan.key].is_counter {
            let mut bytes = Vec::with_capacity(COUNTER_BYTES);
            for word in [plan.stock, number as u64, number as u64] {
                bytes.extend_from_slice(&word.to_le_bytes());
            }
            return bytes;
        }
        blob(number, plan.value_bytes)
    }

    /// The version of a key that was seen last.
    #[must_use]
    pub fn seen_version(&self, key: usize) -> Version {
        self.keys[key].shown
    }

    /// A version of a key that is known, or its last one.
    #[must_use]
    pub fn some_version(&self, key: usize, random: &mut Random) -> Version {
        let state = &self.keys[key];
        let known = state.entries.len();
        if known == 0 {
            return state.shown;
        }
        // The newest ones more often.
        let most = random.pick(&[2, 8, 60, 500]);
        let back = random.index(known.min(most));
        let mut newest = state.entries.keys().rev();
        newest.nth(back).copied().unwrap_or(state.shown)
    }

    /// The server started with this epoch.
    pub fn started(&mut self, epoch: u32) {
        self.epoch = epoch;
        for key in &mut self.keys {
            key.recovered = None;
        }
    }

    /// The server ended without a clean stop: what was not durable may be gone.
    ///
    /// What was answered at level interval before `interval_from_us` must be there.
    pub fn crashed(&mut self, interval_from_us: u64) {
        let epoch = self.epoch;
        for key in &mut self.keys {
            // What an earlier run had promised was judged when that one ended.
            let is_promised = |version: Version, entry: &Entry| {
                let record = &self.records[entry.operation];
                version.epoch == epoch
                    && record.plan.level == AckLevel::Interval
                    && record.state == State::Answered(Status::Ok)
                    && record.answered_us < interval_from_us
            };
            let promised = key
                .entries
                .iter()
                .rev()
                .take_while(|&(&version, _)| version > key.floor)
                .find(|&(&version, entry)| is_promised(version, entry))
                .map(|(&version, _)| version);
            key.floor = promised.map_or(key.floor, |version| version.max(key.floor));
            key.shown = key.floor;
            for (_, entry) in key.entries.range_mut((
                std::ops::Bound::Excluded(key.floor),
                std::ops::Bound::Unbounded,
            )) {
                entry.is_doubtful = true;
            }
        }
    }

    /// No answer will come.
    pub fn lost(&mut self, number: usize) {
        let record = &mut self.records[number];
        if record.state != State::Pending {
            return;
        }
        record.state = State::Unknown;
        let operation = record.plan.operation;
        if operation.is_past()
            || matches!(
                operation,
                Operation::Get | Operation::Tell | Operation::Look
            )
        {
            return;
        }
        let plan = record.plan.clone();
        for key in [Some(plan.key), plan.other].into_iter().flatten() {
            self.keys[key].unknown.push(number);
        }
    }

    /// An answer came.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn answer(
        &mut self,
        now_us: u64,
        number: usize,
        item: &ReplyItem<'_>,
    ) -> Result<(), Violation> {
        self.clock += 1;
        let record = &self.records[number];
        if record.state != State::Pending {
            return Err(format!(
                "operation {number} {:?} was answered twice",
                record.plan.operation
            ));
        }
        let plan = record.plan.clone();
        let status = item.head.status;
        self.records[number].answered = self.clock;
        self.records[number].answered_us = now_us;
        self.records[number].answered_ms = self.time_ms;
        match status.executed() {
            // A disk turned out to be full: the change comes later, but before what was sent after this.
            Executed::Unknown
                if status == Status::Indeterminate
                    && plan.operation.is_setting()
                    && self.may_be_full =>
            {
                self.records[number].state = State::Refused(status);
                return Ok(());
            }
            Executed::Unknown => {
                if !self.may_fail_to_read {
                    return Err(format!(
                        "operation {number} {:?} was answered {} on a disk without faults: {}",
                        plan.operation,
                        status.name(),
                        String::from_utf8_lossy(item.value)
                    ));
                }
                self.lost(number);
                self.records[number].answered = u64::MAX;
                self.records[number].answered_ms = u64::MAX;
                return Ok(());
            }
            Executed::No
                if !matches!(
                    status,
                    Status::GuardFailed
                        | Status::NotFound
                        | Status::Exists
                        | Status::VersionMismatch
                        | Status::NotKept
                ) =>
            {
                self.records[number].state = State::Refused(status);
                let is_honest = !self.must_execute
                    && match status {
                        Status::Busy | Status::Deadline | Status::Draining => true,
                        Status::Full => self.may_be_full,
                        Status::Corrupt => self.may_fail_to_read,
                        Status::TooLarge => self.may_be_too_large(number),
                        _ => false,
                    };
                if !is_honest {
                    return Err(format!(
                        "operation {number} {:?} was refused as {}: {}",
                        plan.operation,
                        status.name(),
                        String::from_utf8_lossy(item.value)
                    ));
                }
                return Ok(());
            }
            Executed::No | Executed::Yes => {}
        }
        self.records[number].state = State::Answered(status);
        if item.head.level < plan.level {
            return Err(format!(
                "operation {number} asked for level {:?} and got {:?}",
                plan.level, item.head.level
            ));
        }
        if plan.operation.is_past() {
            return self.judge_past(number, &plan, item);
        }
        let version = item.head.version;
        // The version told is that of the key that is only looked at.
        if plan.operation != Operation::GiveOther {
            self.records[number].version = version;
        }
        self.judge_time(number, item)?;
        let is_durable = item.head.level >= AckLevel::Disk;
        self.judge_status(number, &plan, item)?;
        if version.sequence == 0 {
            if matches!(status, Status::Exists | Status::VersionMismatch) {
                return Err(format!(
                    "operation {number} {:?} was answered {} without a version",
                    plan.operation,
                    status.name()
                ));
            }
            return self.judge_absence(number, &plan, status);
        }
        let writes = status == Status::Ok
            && !matches!(
                plan.operation,
                Operation::Get
                    | Operation::Tell
                    | Operation::Look
                    | Operation::LookOrMake
                    | Operation::GiveOther
            );
        if writes {
            self.wrote(number, &plan, item, is_durable)
        } else {
            self.saw(number, &plan, item, is_durable)
        }
    }

    /// The server accepts values of so many bytes from now on.
    pub fn limit_values(&mut self, bytes: usize) {
        self.clock += 1;
        self.value_limits.push((self.clock, bytes));
    }

    /// Whether it was longer than some limit that held between sending and answer.
    fn may_be_too_large(&self, number: usize) -> bool {
        let record = &self.records[number];
        let plan = &record.plan;
        let has_value = plan.operation.is_set()
            || matches!(
                plan.operation,
                Operation::SetTooLarge
                    | Operation::TakeOrMake
                    | Operation::TakeAndFail
                    | Operation::LookOrMake
            );
        let since = self
            .value_limits
            .partition_point(|&(from, _)| from <= record.issued);
        let held = &self.value_limits[since.saturating_sub(1)..];
        has_value && held.iter().any(|&(_, bytes)| bytes < plan.value_bytes)
    }

    /// Whether the time that was told lies between sending and answer.
    fn judge_time(&self, number: usize, item: &ReplyItem<'_>) -> Result<(), Violation> {
        let record = &self.records[number];
        let asks = record.plan.operation == Operation::Tell;
        match item.expiry {
            Some(told) if !asks || item.head.status != Status::Ok => Err(format!(
                "operation {number} {:?} was told {told:?} and did not ask",
                record.plan.operation
            )),
            Some(told) if !(record.issued_ms..=self.time_ms).contains(&told.time_ms) => {
                Err(format!(
                    "operation {number} was told time {} between {} and {}",
                    told.time_ms, record.issued_ms, self.time_ms
                ))
            }
            None if asks && item.head.status == Status::Ok => {
                Err(format!("operation {number} was not told the expiry"))
            }
            _ => Ok(()),
        }
    }

    /// Whether the operation can end so at all.
    fn judge_status(
        &self,
        number: usize,
        plan: &Plan,
        item: &ReplyItem<'_>,
    ) -> Result<(), Violation> {
        let status = item.head.status;
        let may = match plan.operation {
            Operation::Get | Operation::Tell | Operation::Expire | Operation::Persist => {
                matches!(status, Status::Ok | Status::NotFound)
            }
            Operation::Set | Operation::Ping | Operation::Retry => status == Status::Ok,
            Operation::KeepExpiry
            | Operation::Expired
            | Operation::Scan
            | Operation::ScanOverStart
            | Operation::SetTooLarge
            | Operation::SetKeyspace
            | Operation::SetLonger
            | Operation::DropLonger
            | Operation::GetAtVersion
            | Operation::GetAtTime
            | Operation::History => false,
            Operation::SetAbsent => matches!(status, Status::Ok | Status::Exists),
            Operation::SetPresent | Operation::Del => {
                matches!(status, Status::Ok | Status::NotFound)
            }
            Operation::SetVersion | Operation::DelVersion => matches!(
                status,
                Status::Ok | Status::NotFound | Status::VersionMismatch
            ),
            Operation::Take | Operation::Move | Operation::Look => {
                matches!(status, Status::Ok | Status::NotFound | Status::GuardFailed)
            }
            Operation::TakeOrMake => matches!(status, Status::Ok | Status::GuardFailed),
            Operation::LookOrMake => status == Status::Ok,
            Operation::GiveOther => matches!(status, Status::Ok | Status::NotFound),
            Operation::TakeAndFail => {
                matches!(status, Status::NotFound | Status::GuardFailed)
            }
        };
        if !may {
            return Err(format!(
                "operation {number} {:?} ended with {}",
                plan.operation,
                status.name()
            ));
        }
        if status == Status::GuardFailed
            && matches!(
                plan.operation,
                Operation::Take | Operation::TakeOrMake | Operation::Move
            )
            && item.field(0).is_none_or(|actual| actual >= plan.units)
        {
            return Err(format!(
                "operation {number} {:?} of {} units was refused although {:?} were there",
                plan.operation,
                plan.units,
                item.field(0)
            ));
        }
        Ok(())
    }

    /// The answer says that the key is not there.
    fn judge_absence(
        &mut self,
        number: usize,
        plan: &Plan,
        status: Status,
    ) -> Result<(), Violation> {
        if status == Status::Ok && plan.operation != Operation::Look {
            return Err(format!(
                "operation {number} {:?} succeeded without a version",
                plan.operation
            ));
        }
        let floor = self.records[number].floors[0];
        // A move may miss its second key.
        let keys = [Some(plan.key), plan.other];
        let explained = keys.into_iter().flatten().any(|key| {
            let state = &self.keys[key];
            let floor = if key == plan.key {
                floor
            } else {
                self.records[number].floors[1]
            };
            floor == Version::default()
                || self.may_be_gone(key, floor)
                || state
                    .entries
                    .range(floor..)
                    .any(|(_, entry)| entry.is_deletion)
                || state
                    .history
                    .iter()
                    .rev()
                    .take(2000)
                    .map(|&other| &self.records[other])
                    .any(|other| {
                        matches!(other.plan.operation, Operation::Del | Operation::DelVersion)
                            && matches!(other.state, State::Pending | State::Unknown)
                    })
        });
        if !explained {
            return Err(format!(
                "operation {number} {:?} did not find key {}, which had version {floor:?}",
                plan.operation, plan.key
            ));
        }
        let first = &self.keys[plan.key];
        let is_deleted = first
            .entries
            .range(floor..)
            .any(|(_, entry)| entry.is_deletion);
        if floor > Version::default() && !is_deleted && self.may_be_gone(plan.key, floor) {
            self.expired += 1;
        }
        Ok(())
    }

    /// Whether a version of the key from `floor` on may be gone by now.
    fn may_be_gone(&self, key: usize, floor: Version) -> bool {
        let state = &self.keys[key];
        let given = |number: usize| self.given(number, key);
        let may_have_run = |number: &&usize| match self.records[**number].state {
            State::Pending | State::Unknown => true,
            State::Answered(status) => {
                status == Status::Ok && self.records[**number].version >= floor
            }
            State::Refused(_) => false,
        };
        // If it is known what the floor was given, nothing before it counts.
        let is_floor_known = state
            .entries
            .get(&floor)
            .is_some_and(|entry| given(entry.operation).is_some());
        state
            .history
            .iter()
            .filter(|number| !is_floor_known || may_have_run(number))
            .filter_map(|&number| given(number))
            .any(|life| life.may_be_over(self.time_ms))
    }

    /// What an operation gives a key; `None` if it leaves what was.
    fn given(&self, number: usize, key: usize) -> Option<Life> {
        let record = &self.records[number];
        match record.plan.key == key && record.plan.operation != Operation::TakeAndFail {
            true => Life::given(record.plan.expiry, record.issued_ms, record.answered_ms),
            false => None,
        }
    }

    fn wrote(
        &mut self,
        number: usize,
        plan: &Plan,
        item: &ReplyItem<'_>,
        is_durable: bool,
    ) -> Result<(), Violation> {
        let version = item.head.version;
        if version.epoch != self.epoch {
            return Err(format!(
                "operation {number} {:?} wrote version {version:?} in epoch {}",
                plan.operation, self.epoch
            ));
        }
        let units = |place| item.field(place);
        let mut after = [None, None];
        match plan.operation {
            Operation::Take | Operation::TakeOrMake => {
                after[0] = units(0);
                if units(1) != Some(number as u64) {
                    return Err(format!(
                        "operation {number} took and the answer tells of {:?}",
                        units(1)
                    ));
                }
            }
            Operation::Move => after = [units(0), units(1)],
            Operation::Expire | Operation::Persist => after[0] = units(0),
            _ if self.keys[plan.key].is_counter => after[0] = Some(plan.stock),
            _ => {}
        }
        self.records[number].after = after.map(|units| units.unwrap_or(0));
        if matches!(
            plan.operation,
            Operation::SetVersion | Operation::DelVersion
        ) {
            self.keys[plan.key].chained.push((plan.expected, version));
        }
        let operation = plan.operation;
        let is_deletion = matches!(operation, Operation::Del | Operation::DelVersion);
        for (place, key) in [Some(plan.key), plan.other].into_iter().enumerate() {
            let Some(key) = key else { continue };
            if version <= self.records[number].floors[place] {
                return Err(format!(
                    "operation {number} {operation:?} wrote version {version:?} of key {key} although {:?} was shown before it was sent",
                    self.records[number].floors[place]
                ));
            }
            let entry = Entry {
                operation: number,
                stock: after[place],
                is_deletion,
                told_ms: None,
                is_doubtful: false,
            };
            self.enter(key, version, entry, is_durable)?;
        }
        Ok(())
    }

    fn saw(
        &mut self,
        number: usize,
        plan: &Plan,
        item: &ReplyItem<'_>,
        is_durable: bool,
    ) -> Result<(), Violation> {
        let version = item.head.version;
        let floor = self.records[number].floors[0];
        if version < floor {
            return Err(format!(
                "operation {number} {:?} saw version {version:?} of key {} after {floor:?} was shown",
                plan.operation, plan.key
            ));
        }
        // Whether it made the key is told by nothing but a version that nobody else has.
        let place = (partition_of(self.keys[plan.key].slot), version);
        if plan.operation == Operation::LookOrMake && !self.by_version.contains_key(&place) {
            self.keys[plan.key].unknown.push(number);
        }
        if let Some(entry) = self.keys[plan.key].entries.get(&version)
            && let Some(life) = self.given(entry.operation, plan.key)
            && life.is_over(self.records[number].issued_ms)
        {
            return Err(format!(
                "operation {number} {:?} was sent at {} and saw version {version:?} of key {}, which lived {life:?}",
                plan.operation, self.records[number].issued_ms, plan.key
            ));
        }
        let is_shown = item.head.flags & ITEM_FLAG_SHOWN != 0;
        let has_lost = matches!(item.head.status, Status::Exists | Status::VersionMismatch);
        if is_shown != (asks_for_what_won(number, plan.operation) && has_lost) {
            return Err(format!(
                "operation {number} {:?} was answered {} and shown a value: {is_shown}",
                plan.operation,
                item.head.status.name()
            ));
        }
        let is_read = matches!(plan.operation, Operation::Get | Operation::Tell)
            && item.head.status == Status::Ok;
        if is_read || is_shown {
            let (writer, stock) = self
                .writer_of(plan.key, item.value)
                .map_err(|wrong| format!("operation {number} read key {}: {wrong}", plan.key))?;
            if is_read {
                self.records[number].seen = Some((writer, stock.unwrap_or(0)));
            }
            let entry = Entry {
                operation: writer,
                stock,
                is_deletion: false,
                told_ms: item.expiry.map(|told| told.expiry_ms),
                is_doubtful: false,
            };
            self.enter(plan.key, version, entry, is_durable)?;
        } else {
            self.raise(plan.key, version, is_durable)?;
            if item.head.status == Status::GuardFailed
                && matches!(plan.operation, Operation::Take | Operation::TakeOrMake)
                && let Some(entry) = self.keys[plan.key].entries.get(&version)
                && let Some(stock) = entry.stock
                && Some(stock) != item.field(0)
            {
                return Err(format!(
                    "operation {number} was refused for {:?} units at {version:?}, where {stock} were",
                    item.field(0)
                ));
            }
        }
        Ok(())
    }

    /// The operation that a value names, and the units in it.
    fn writer_of(&self, key: usize, value: &[u8]) -> Result<(usize, Option<u64>), Violation> {
        let word = |place: usize| {
            value
                .get(8 * place..8 * place + 8)
                .map(|bytes| u64::from_le_bytes(bytes.try_into().expect("eight bytes")))
        };
        let is_counter = self.keys[key].is_counter;
        let name = word(if is_counter { 1 } else { 0 }).ok_or("a value without a writer")?;
        let writer = usize::try_from(name)
            .ok()
            .filter(|&writer| writer < self.records.len())
            .ok_or_else(|| format!("a value of operation {name}, which does not exist"))?;
        let record = &self.records[writer];
        let is_looked_at = record.plan.operation == Operation::GiveOther && record.plan.key == key;
        if (record.plan.key != key && record.plan.other != Some(key)) || is_looked_at {
            return Err(format!("a value of operation {writer} on another key"));
        }
        if let State::Refused(status) = record.state {
            return Err(format!(
                "the effect of operation {writer}, which was answered {}",
                status.name()
            ));
        }
        if matches!(record.state, State::Answered(status) if status != Status::Ok)
            || record.plan.operation == Operation::TakeAndFail
        {
            return Err(format!(
                "the effect of operation {writer}, whose condition failed"
            ));
        }
        if is_counter {
            if value.len() != COUNTER_BYTES {
                return Err(format!("a counter of {} bytes", value.len()));
            }
            let stock = word(0).expect("checked");
            let is_set = matches!(
                record.plan.operation,
                Operation::Set
                    | Operation::SetAbsent
                    | Operation::SetPresent
                    | Operation::SetVersion
            );
            if is_set && stock != record.plan.stock {
                return Err(format!(
                    "{stock} units of operation {writer}, which set {}",
                    record.plan.stock
                ));
            }
            return Ok((writer, Some(stock)));
        }
        if value != blob(writer, record.plan.value_bytes).as_slice() {
            return Err(format!(
                "{} bytes that are not what operation {writer} wrote",
                value.len()
            ));
        }
        Ok((writer, None))
    }

    /// A version of a key is known now.
    fn enter(
        &mut self,
        key: usize,
        version: Version,
        entry: Entry,
        is_durable: bool,
    ) -> Result<(), Violation> {
        let place = (partition_of(self.keys[key].slot), version);
        let known = *self.by_version.entry(place).or_insert(entry.operation);
        if known != entry.operation {
            return Err(format!(
                "version {version:?} was given to operation {known} and to operation {}",
                entry.operation
            ));
        }
        let record = &mut self.records[entry.operation];
        if record.version == Version::default() {
            record.version = version;
        } else if record.version != version {
            return Err(format!(
                "operation {} has version {:?} and {version:?} of key {key}",
                entry.operation, record.version
            ));
        }
        let is_twofold = record.plan.operation != Operation::GiveOther;
        let other = record
            .plan
            .other
            .filter(|&other| is_twofold && other != key);
        let main = (is_twofold && record.plan.key != key).then_some(record.plan.key);
        let entries = &mut self.keys[key].entries;
        let known = entries.entry(version).or_insert(entry);
        known.is_doubtful = false;
        match (known.stock, entry.stock) {
            (Some(before), Some(now)) if before != now => {
                return Err(format!(
                    "key {key} at {version:?} has {now} units, and had {before}"
                ));
            }
            (None, Some(_)) => known.stock = entry.stock,
            _ => {}
        }
        match (known.told_ms, entry.told_ms) {
            (Some(before), Some(now)) if before != now => {
                return Err(format!(
                    "key {key} at {version:?} is gone at {now}, and was to be at {before}"
                ));
            }
            (None, told_ms) => known.told_ms = told_ms,
            _ => {}
        }
        self.raise(key, version, is_durable)?;
        // Both keys of a move, or none.
        for twin in [other, main].into_iter().flatten() {
            let state = &mut self.keys[twin];
            state.shown = state.shown.max(version);
            if is_durable {
                state.floor = state.floor.max(version);
            }
        }
        Ok(())
    }

    /// A version of a key was shown.
    fn raise(&mut self, key: usize, version: Version, is_durable: bool) -> Result<(), Violation> {
        let epoch = self.epoch;
        let state = &mut self.keys[key];
        if version.epoch > epoch {
            return Err(format!(
                "key {key} has version {version:?} in epoch {epoch}"
            ));
        }
        if version.epoch < epoch {
            let recovered = *state.recovered.get_or_insert(version);
            if recovered < version {
                return Err(format!(
                    "key {key} shows version {version:?} of an earlier run after {recovered:?}"
                ));
            }
        }
        state.shown = state.shown.max(version);
        if is_durable {
            state.floor = state.floor.max(version);
        }
        Ok(())
    }

    /// What the answers must be together.
    ///
    /// # Errors
    /// What does not fit.
    pub fn finish(&self) -> Result<(), Violation> {
        for (number, key) in self.keys.iter().enumerate() {
            self.connection_order(number, key)?;
            self.chains(number, key)?;
            self.lives(number, key)?;
            if key.is_counter {
                self.units(number, key)?;
            }
        }
        Ok(())
    }

    /// The versions of one connection's operations rise in the order in which they were sent.
    fn connection_order(&self, number: usize, key: &Key) -> Result<(), Violation> {
        let mut last: BTreeMap<u64, (Version, usize)> = BTreeMap::new();
        for &operation in &key.history {
            let record = &self.records[operation];
            let State::Answered(status) = record.state else {
                continue;
            };
            if record.plan.operation.is_past() {
                continue;
            }
            // A version that a refused move tells is that of its first key.
            let is_of_other = (record.plan.key != number && status != Status::Ok)
                || (record.plan.key == number && record.plan.operation == Operation::GiveOther);
            if record.version.sequence == 0 || is_of_other {
                continue;
            }
            let writes = status == Status::Ok
                && !matches!(
                    record.plan.operation,
                    Operation::Get | Operation::Tell | Operation::Look | Operation::LookOrMake
                );
            let (before, by) = *last
                .get(&record.connection)
                .unwrap_or(&(Version::default(), 0));
            if record.version < before || (writes && record.version == before) {
                return Err(format!(
                    "on one connection operation {operation} {:?} on key {number} has version {:?} after {before:?} of operation {by} {:?}",
                    record.plan.operation, record.version, self.records[by].plan.operation
                ));
            }
            last.insert(record.connection, (record.version, operation));
        }
        Ok(())
    }

    /// Nothing stands between the version that was asked for and the one that was written on it.
    fn chains(&self, number: usize, key: &Key) -> Result<(), Violation> {
        for &(expected, written) in &key.chained {
            let between = key
                .entries
                .range((
                    std::ops::Bound::Excluded(expected),
                    std::ops::Bound::Excluded(written),
                ))
                .find(|(_, entry)| !entry.is_doubtful);
            if let Some((version, entry)) = between {
                return Err(format!(
                    "version {written:?} of key {number} was written on {expected:?}, but operation {} stands between at {version:?}",
                    entry.operation
                ));
            }
        }
        // What needs or forbids a value found what it needs.
        let has_unknown = |kinds: &[Operation]| {
            key.unknown
                .iter()
                .any(|&unknown| kinds.contains(&self.records[unknown].plan.operation))
        };
        let may_delete = has_unknown(&[Operation::Del, Operation::DelVersion]);
        let may_make = has_unknown(&[
            Operation::Set,
            Operation::SetAbsent,
            Operation::SetPresent,
            Operation::SetVersion,
            Operation::TakeOrMake,
            Operation::LookOrMake,
        ]);
        let can_expire = key.history.iter().any(|&number| {
            let expiry = self.records[number].plan.expiry;
            matches!(expiry, Expiry::At(_) | Expiry::In(_))
        });
        let mut before: Option<Entry> = None;
        for (version, entry) in &key.entries {
            let operation = self.records[entry.operation].plan.operation;
            let was_there = before.map(|before| !before.is_deletion);
            let is_sure = before.is_none_or(|before| !before.is_doubtful) && !entry.is_doubtful;
            let wrong = match operation {
                Operation::SetAbsent => was_there == Some(true) && !may_delete && !can_expire,
                Operation::SetPresent
                | Operation::SetVersion
                | Operation::Del
                | Operation::DelVersion
                | Operation::Take
                | Operation::Expire
                | Operation::Persist
                | Operation::Move => was_there == Some(false) && !may_make,
                _ => false,
            };
            if wrong && is_sure {
                return Err(format!(
                    "operation {} {operation:?} wrote version {version:?} of key {number} on {}",
                    entry.operation,
                    if was_there == Some(true) {
                        "a value"
                    } else {
                        "a deletion"
                    }
                ));
            }
            before = Some(*entry);
        }
        Ok(())
    }

    /// What a key is given it has until something gives it another life, and no longer.
    fn lives(&self, number: usize, key: &Key) -> Result<(), Violation> {
        // Runs with an operation on the key whose version nobody knows.
        let blurred: BTreeSet<u32> = key
            .history
            .iter()
            .map(|&operation| &self.records[operation])
            .filter(|record| match record.state {
                State::Pending | State::Unknown => true,
                State::Answered(Status::Ok) => matches!(
                    record.plan.operation,
                    Operation::GiveOther | Operation::LookOrMake
                ),
                State::Answered(_) | State::Refused(_) => false,
            })
            .map(|record| record.epoch)
            .collect();
        let mut before: Option<(Version, Entry, Life)> = None;
        for (&version, &entry) in &key.entries {
            let record = &self.records[entry.operation];
            let operation = record.plan.operation;
            // What stood there just before, if it is sure.
            let last = before.filter(|&(last_version, last, _)| {
                !last.is_doubtful
                    && !last.is_deletion
                    && blurred
                        .range(last_version.epoch..=version.epoch)
                        .next()
                        .is_none()
            });
            let needs_value = matches!(
                operation,
                Operation::SetPresent
                    | Operation::SetVersion
                    | Operation::Del
                    | Operation::DelVersion
                    | Operation::Take
                    | Operation::Expire
                    | Operation::Persist
                    | Operation::Move
            );
            if let Some((last_version, _, life)) = last
                && !entry.is_doubtful
            {
                let wrong = match operation {
                    Operation::SetAbsent => !life.may_be_over(record.answered_ms),
                    _ => needs_value && life.is_over(record.issued_ms),
                };
                if wrong {
                    return Err(format!(
                        "operation {} {operation:?} between {} and {} wrote version {version:?} of key {number} on {last_version:?}, which lived {life:?}",
                        entry.operation, record.issued_ms, record.answered_ms
                    ));
                }
            }
            let is_made = operation == Operation::TakeOrMake
                && entry.stock == Some(record.plan.stock - record.plan.units);
            let life = match (self.given(entry.operation, number), last) {
                (Some(life), _) => life,
                (None, _) if is_made || operation == Operation::LookOrMake => Life::Endless,
                // Without a value before it there is nothing to keep.
                (None, Some((_, _, life)))
                    if needs_value || !life.may_be_over(record.answered_ms) =>
                {
                    life
                }
                (None, _) => Life::Unknown,
            };
            if let Some(told_ms) = entry.told_ms
                && !life.allows(told_ms)
            {
                return Err(format!(
                    "version {version:?} of key {number}, by operation {} {operation:?}, is gone at {told_ms} and lives {life:?}",
                    entry.operation
                ));
            }
            before = Some((version, entry, life));
        }
        Ok(())
    }

    /// Every unit is taken once.
    fn units(&self, number: usize, key: &Key) -> Result<(), Violation> {
        let mut slack_down = 0_u64;
        let mut slack_up = 0_u64;
        let mut may_be_set = false;
        for &unknown in &key.unknown {
            let plan = &self.records[unknown].plan;
            match plan.operation {
                Operation::Take => slack_down += plan.units,
                Operation::Move if plan.key == number => slack_down += plan.units,
                Operation::Move | Operation::GiveOther if plan.other == Some(number) => {
                    slack_up += plan.units;
                }
                Operation::GiveOther | Operation::Expire | Operation::Persist => {}
                _ => may_be_set = true,
            }
        }
        // What another key's operation gave is told by no version until somebody reads it.
        for &operation in &key.history {
            let record = &self.records[operation];
            let is_hidden = record.plan.operation == Operation::GiveOther
                && record.plan.other == Some(number)
                && record.version == Version::default()
                && record.state == State::Answered(Status::Ok);
            if is_hidden {
                slack_up += record.plan.units;
            }
        }
        let mut before: Option<u64> = None;
        for (version, entry) in &key.entries {
            let record = &self.records[entry.operation];
            let plan = &record.plan;
            if entry.is_doubtful {
                before = None;
                continue;
            }
            let (down, up) = match plan.operation {
                Operation::Take => (plan.units, 0),
                // Each makes with a number of its own.
                Operation::TakeOrMake if entry.stock == Some(plan.stock - plan.units) => {
                    before = entry.stock;
                    continue;
                }
                Operation::TakeOrMake => (plan.units, 0),
                Operation::Expire | Operation::Persist => (0, 0),
                Operation::Move if plan.key == number => (plan.units, 0),
                Operation::Move | Operation::GiveOther => (0, plan.units),
                _ => {
                    before = entry.stock;
                    continue;
                }
            };
            let Some(after) = entry.stock else {
                before = None;
                continue;
            };
            if let Some(before) = before
                && !may_be_set
            {
                let exact = i128::from(before) - i128::from(down) + i128::from(up);
                let lowest = exact - i128::from(slack_down);
                let highest = exact + i128::from(slack_up);
                if !(lowest..=highest).contains(&i128::from(after)) {
                    return Err(format!(
                        "operation {} {:?} at {version:?} left {after} units of key {number}, where {before} were: between {lowest} and {highest} can be",
                        entry.operation, plan.operation
                    ));
                }
            }
            before = Some(after);
        }
        Ok(())
    }
}

/// The value of an operation: its number, then bytes that follow from it.
fn blob(number: usize, len: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(len + 8);
    let mut word = number as u64;
    while bytes.len() < len {
        bytes.extend_from_slice(&word.to_le_bytes());
        word = word.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(17) ^ 0xA5A5;
    }
    bytes.truncate(len);
    bytes
}
