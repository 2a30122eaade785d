//! The model that every answer is held against.
//!
//! Every write leaves the number of its operation in the value, so each value that is ever seen
//! names the one operation that made it. Versions order the operations of a key; the model checks
//! that this order agrees with real time, with the order of each connection, with what every
//! operation computed, and with what was durable before a crash. What a server said was not
//! executed must never be seen; what was never answered may be seen or not, but not first one and
//! then the other.

mod answers;
mod applies;
mod histories;
mod past;

pub use applies::{Act, DRAINED_MAX, Guard, Part};

use std::collections::BTreeMap;

use penstock_net::level::AckLevel;
use penstock_net::reply::ReplyItem;
use penstock_net::request::{Expiry, Version};
use penstock_net::status::Status;
use penstock_storage::version::partition_of;

use crate::operation::Operation;
use crate::random::Random;

/// Bytes of a counter: units, the operation that wrote the counter last, the operation that made
/// it.
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
    /// The operation has the bytes of an earlier one, sent so many operations before. 0: it has
    /// bytes of its own.
    pub repeats: usize,
    /// What an APPLY does, key by key. The first one is `key`.
    pub parts: Vec<Part>,
    /// On what an APPLY runs only.
    pub guard: Guard,
}

impl Plan {
    /// An operation on one key without anything special.
    #[must_use]
    pub fn new(operation: Operation, key: usize, level: AckLevel) -> Self {
        Plan {
            operation,
            key,
            other: None,
            units: 0,
            stock: 0,
            value_bytes: 0,
            expected: Version::default(),
            level,
            expiry: Expiry::Keep,
            repeats: 0,
            parts: Vec::new(),
            guard: Guard::Nothing,
        }
    }

    /// Its keys, the first one first.
    pub fn keys(&self) -> impl Iterator<Item = usize> + '_ {
        let more = self.parts.iter().skip(1).map(|part| part.key);
        [Some(self.key), self.other]
            .into_iter()
            .flatten()
            .chain(more)
    }

    /// Whether it names a key.
    #[must_use]
    pub fn names(&self, key: usize) -> bool {
        self.keys().any(|named| named == key)
    }

    /// The part of an APPLY that is about a key.
    #[must_use]
    pub fn part(&self, key: usize) -> Option<&Part> {
        self.parts.iter().find(|part| part.key == key)
    }

    /// Whether it deletes a key.
    #[must_use]
    pub fn deletes(&self, key: usize) -> bool {
        match self.part(key) {
            Some(part) => part.act == Act::Delete,
            None => matches!(self.operation, Operation::Del | Operation::DelVersion),
        }
    }

    /// What it does with the expiry of a key.
    #[must_use]
    pub fn expiry_of(&self, key: usize) -> Expiry {
        self.part(key).map_or(self.expiry, |part| part.expiry)
    }

    /// Whether it says from which time on a key is gone.
    #[must_use]
    pub fn gives_a_time(&self) -> bool {
        let each = self.parts.iter().map(|part| part.expiry);
        std::iter::once(self.expiry)
            .chain(each)
            .any(|it| matches!(it, Expiry::At(_)))
    }

    /// Whether a key may be gone by itself behind it.
    #[must_use]
    pub fn lets_expire(&self, key: usize) -> bool {
        matches!(self.expiry_of(key), Expiry::At(_) | Expiry::In(_))
    }
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
    /// Units that the operation found there, if it was told.
    was: Option<u64>,
    /// The last eight bytes of a counter, if they are known.
    third: Option<u64>,
    is_deletion: bool,
    /// The expiry that a server told of it, 0 for none.
    shown_expiry_ms: Option<u64>,
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
    /// Answered as not executed, for good. Only a change of a keyspace that met a full disk may
    /// come later.
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
    /// The operation that its value names: the first of those with the same bytes.
    pub name: usize,
    /// There are others with the same bytes.
    is_repeated: bool,
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
    /// What was shown of each of its keys when it was sent.
    floors: Vec<Version>,
    /// The version that it wrote or saw.
    pub version: Version,
    /// The value that the operation saw: the operation that wrote the value, and its units.
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

/// Operations that repeat one another, at most, that one included.
pub const REPEATS_MAX: usize = 24;

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
    /// What APPLYs saw of several keys at once: the operation, and each key with the one that wrote
    /// its value.
    joint_reads: Vec<(usize, Vec<(usize, usize)>)>,
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
            joint_reads: Vec::new(),
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
        let floors = plan.keys().map(|key| self.keys[key].shown).collect();
        let number = self.records.len();
        let name = match plan.repeats {
            0 => number,
            before => self.records[number - before].name,
        };
        let is_repeated = name < number;
        if is_repeated {
            self.records[name].is_repeated = true;
        }
        if plan.operation.is_setting() {
            self.keyspaces.push(number);
        }
        for key in plan.keys() {
            self.keys[key].history.push(number);
        }
        self.records.push(Record {
            plan,
            state: State::Pending,
            name,
            is_repeated,
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

    /// Notes the times of the shards, which a start may set back, so that the latest time since a
    /// glimpse is known.
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
    pub fn note_shown(
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
        let operation = match has_value {
            true => Operation::Get,
            false => Operation::Check,
        };
        let plan = Plan::new(operation, key, level);
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
                Operation::Get | Operation::GetExpiry | Operation::Check | Operation::Sum
            )
        {
            return;
        }
        let plan = record.plan.clone();
        for key in plan.keys() {
            self.keys[key].unknown.push(number);
        }
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
        let is_only_read = record.plan.operation == Operation::GiveOther && record.plan.key == key;
        if !record.plan.names(key) || is_only_read || record.plan.leaves_no_value(key) {
            return Err(format!("a value of operation {writer} on another key"));
        }
        let may_have_run = |record: &Record| match record.state {
            State::Pending | State::Unknown | State::Answered(Status::Ok) => true,
            State::Answered(_) | State::Refused(_) => false,
        };
        let has_another_run = record.is_repeated && {
            // They were sent one behind the other.
            let sent = self.records[writer..].iter().take(REPEATS_MAX);
            sent.filter(|it| it.name == writer).any(may_have_run)
        };
        if let State::Refused(status) = record.state
            && !has_another_run
        {
            return Err(format!(
                "the effect of operation {writer}, which was answered {}",
                status.name()
            ));
        }
        if (!may_have_run(record) && !has_another_run)
            || matches!(
                record.plan.operation,
                Operation::TakeAndFail | Operation::BuyAndFail
            )
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
            let set = match record.plan.part(key).map(|part| part.act) {
                Some(Act::Put(stock) | Act::PutAbsent(stock)) => Some(stock),
                _ => is_set.then_some(record.plan.stock),
            };
            if let Some(set) = set
                && stock != set
            {
                return Err(format!(
                    "{stock} units of operation {writer}, which set {set}"
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
        if record.is_repeated {
            // Each of those with the same bytes has a version.
        } else if record.version == Version::default() {
            record.version = version;
        } else if record.version != version {
            return Err(format!(
                "operation {} has version {:?} and {version:?} of key {key}",
                entry.operation, record.version
            ));
        }
        // All keys of a change, or none.
        let twins: Vec<usize> = match record.plan.operation {
            Operation::GiveOther => Vec::new(),
            _ => record.plan.keys().filter(|&twin| twin != key).collect(),
        };
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
        match (known.shown_expiry_ms, entry.shown_expiry_ms) {
            (Some(before), Some(now)) if before != now => {
                return Err(format!(
                    "key {key} at {version:?} is gone at {now}, and was to be at {before}"
                ));
            }
            (None, shown_expiry_ms) => known.shown_expiry_ms = shown_expiry_ms,
            _ => {}
        }
        match (known.third, entry.third) {
            (Some(before), Some(now)) if before != now => {
                return Err(format!(
                    "key {key} at {version:?} ends with {now}, and ended with {before}"
                ));
            }
            (None, third) => known.third = third,
            _ => {}
        }
        known.was = known.was.or(entry.was);
        self.raise(key, version, is_durable)?;
        for twin in twins {
            let state = &mut self.keys[twin];
            // The start of this run found an older value there.
            if let Some(recovered) = state.recovered
                && recovered < version
                && version.epoch < self.epoch
            {
                return Err(format!(
                    "operation {} changed key {key} and key {twin} at {version:?}, and a start \
                     found {recovered:?} of the latter",
                    entry.operation
                ));
            }
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
