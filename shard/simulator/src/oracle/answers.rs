//! One answer, held against what the oracle knows when the answer comes.

use penstock_net::level::AckLevel;
use penstock_net::reply::ITEM_FLAG_SHOWN;
use penstock_net::reply::ReplyItem;
use penstock_net::request::Version;
use penstock_net::status::Executed;
use penstock_net::status::Status;
use penstock_storage::version::partition_of;

use super::{Entry, Oracle, Plan, State, Violation, asks_for_what_won};
use crate::life::Life;
use crate::operation::Operation;

impl Oracle {
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
            Executed::Unknown => return self.answered_unknown(number, &plan, item),
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
                return self.refused(number, &plan, item);
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
        let gives = plan.operation == Operation::GiveOther && status == Status::Ok;
        // Otherwise the version told is that of the key that is only looked at.
        if plan.operation != Operation::GiveOther || gives {
            self.records[number].version = version;
        }
        self.judge_time(number, item)?;
        let is_durable = item.head.level >= AckLevel::Disk;
        self.judge_status(number, &plan, item)?;
        if plan.operation.is_apply() {
            return self.judge_apply(number, &plan, item, is_durable);
        }
        if gives && let Some(other) = plan.other {
            return self.gave(number, other, item, is_durable);
        }
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
        let writes = status == Status::Ok && plan.operation.changes();
        if writes {
            self.wrote(number, &plan, item, is_durable)
        } else {
            self.saw(number, &plan, item, is_durable)
        }
    }

    /// Takes an answer that leaves open whether the operation was executed.
    fn answered_unknown(
        &mut self,
        number: usize,
        plan: &Plan,
        item: &ReplyItem<'_>,
    ) -> Result<(), Violation> {
        let status = item.head.status;
        // A disk turned out to be full. The change comes later, but before operations that are sent
        // after this answer.
        if status == Status::Indeterminate && plan.operation.is_setting() && self.may_be_full {
            self.records[number].state = State::Refused(status);
            return Ok(());
        }
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
        Ok(())
    }

    /// Takes a refusal, for which there must be a reason.
    fn refused(
        &mut self,
        number: usize,
        plan: &Plan,
        item: &ReplyItem<'_>,
    ) -> Result<(), Violation> {
        let status = item.head.status;
        self.records[number].state = State::Refused(status);
        // A wall clock that has stepped back calls future what the store calls past. No repair ends
        // that, so it may be so whenever an operation gives a time.
        let is_past_alone = status == Status::Malformed && plan.gives_a_time();
        let is_reasonable = !self.must_execute
            && match status {
                Status::Busy | Status::Deadline | Status::Draining => true,
                Status::Full => self.may_be_full,
                Status::Corrupt => self.may_fail_to_read,
                Status::TooLarge => self.may_be_too_large(number),
                _ => false,
            };
        if !is_reasonable && !is_past_alone {
            return Err(format!(
                "operation {number} {:?} was refused as {}: {}",
                plan.operation,
                status.name(),
                String::from_utf8_lossy(item.value)
            ));
        }
        Ok(())
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
        if plan.operation == Operation::ApplyTooMuch {
            return true;
        }
        let has_value = plan.operation.is_set()
            || matches!(
                plan.operation,
                Operation::SetTooLarge
                    | Operation::TakeOrMake
                    | Operation::TakeAndFail
                    | Operation::CheckOrMake
            );
        let since = self
            .value_limits
            .partition_point(|&(from, _)| from <= record.issued);
        let held = &self.value_limits[since.saturating_sub(1)..];
        has_value && held.iter().any(|&(_, bytes)| bytes < plan.value_bytes)
    }

    /// Whether the time that was told lies between sending and answer; it is rounded up.
    fn judge_time(&self, number: usize, item: &ReplyItem<'_>) -> Result<(), Violation> {
        let record = &self.records[number];
        let asks = record.plan.operation == Operation::GetExpiry;
        match item.expiry {
            Some(expiry) if !asks || item.head.status != Status::Ok => Err(format!(
                "operation {number} {:?} was told {expiry:?} and did not ask",
                record.plan.operation
            )),
            Some(expiry) if !(record.issued_ms..=self.time_ms + 1).contains(&expiry.time_ms) => {
                Err(format!(
                    "operation {number} was told time {} between {} and {}",
                    expiry.time_ms, record.issued_ms, self.time_ms
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
        if !plan.operation.may_end(status) {
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
        if status == Status::Ok && plan.operation != Operation::Check {
            return Err(format!(
                "operation {number} {:?} succeeded without a version",
                plan.operation
            ));
        }
        let floor = self.records[number].floors[0];
        // A move may miss its second key.
        let explained =
            (plan.keys().enumerate()).any(|(place, key)| self.may_miss(number, place, key));
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

    /// Whether the key at a place of an operation may have had no value for it.
    pub(super) fn may_miss(&self, number: usize, place: usize, key: usize) -> bool {
        let floor = self.records[number].floors[place];
        let state = &self.keys[key];
        let may_have_deleted = |other: &usize| {
            let other = &self.records[*other];
            other.plan.deletes(key) && matches!(other.state, State::Pending | State::Unknown)
        };
        floor == Version::default()
            || self.may_be_gone(key, floor)
            || state
                .entries
                .range(floor..)
                .any(|(_, entry)| entry.is_deletion)
            || state.history.iter().rev().take(2000).any(may_have_deleted)
    }

    /// Whether a version of the key from `floor` on may be gone by now.
    pub(super) fn may_be_gone(&self, key: usize, floor: Version) -> bool {
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
    pub(super) fn given(&self, number: usize, key: usize) -> Option<Life> {
        let record = &self.records[number];
        let fails = matches!(
            record.plan.operation,
            Operation::TakeAndFail | Operation::BuyAndFail
        );
        let gives = record.plan.key == key || record.plan.part(key).is_some();
        match gives && !fails {
            true => Life::given(
                record.plan.expiry_of(key),
                record.issued_ms,
                record.answered_ms,
            ),
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
                if units(1) != Some(self.records[number].name as u64) {
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
                    "operation {number} {operation:?} wrote version {version:?} of key {key} \
                     although {:?} was shown before it was sent",
                    self.records[number].floors[place]
                ));
            }
            let entry = Entry {
                operation: self.records[number].name,
                stock: after[place],
                was: None,
                third: None,
                is_deletion,
                shown_expiry_ms: None,
                is_doubtful: false,
            };
            self.enter(key, version, entry, is_durable)?;
        }
        Ok(())
    }

    /// Takes the answer to a change of the other key alone, whose version it tells.
    fn gave(
        &mut self,
        number: usize,
        other: usize,
        item: &ReplyItem<'_>,
        is_durable: bool,
    ) -> Result<(), Violation> {
        let (version, floor) = (item.head.version, self.records[number].floors[1]);
        if version.epoch != self.epoch || version <= floor {
            return Err(format!(
                "operation {number} gave to key {other} as version {version:?} in epoch {}, \
                 although {floor:?} was shown before it was sent",
                self.epoch
            ));
        }
        let entry = Entry {
            operation: self.records[number].name,
            stock: item.field(0),
            was: None,
            third: None,
            is_deletion: false,
            shown_expiry_ms: None,
            is_doubtful: false,
        };
        self.enter(other, version, entry, is_durable)
    }

    pub(super) fn saw(
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
                "operation {number} {:?} saw version {version:?} of key {} after {floor:?} was \
                 shown",
                plan.operation, plan.key
            ));
        }
        // Whether it made the key is told by nothing but a version that nobody else has.
        let place = (partition_of(self.keys[plan.key].slot), version);
        if plan.operation == Operation::CheckOrMake && !self.by_version.contains_key(&place) {
            self.keys[plan.key].unknown.push(number);
        }
        if let Some(entry) = self.keys[plan.key].entries.get(&version)
            && let Some(life) = self.given(entry.operation, plan.key)
            && life.is_over(self.records[number].issued_ms)
        {
            return Err(format!(
                "operation {number} {:?} was sent at {} and saw version {version:?} of key {}, \
                 which lived {life:?}",
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
        let is_read = matches!(plan.operation, Operation::Get | Operation::GetExpiry)
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
                was: None,
                third: self.keys[plan.key]
                    .is_counter
                    .then(|| item.field(2))
                    .flatten(),
                is_deletion: false,
                shown_expiry_ms: item.expiry.map(|expiry| expiry.expiry_ms),
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
                    "operation {number} was refused for {:?} units at {version:?}, where {stock} \
                     were",
                    item.field(0)
                ));
            }
        }
        Ok(())
    }
}
