//! The histories of all keys, judged as a whole when a run has ended.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use penstock_net::request::Version;
use penstock_net::status::Status;

use super::applies::Need;
use super::{Act, Entry, Key, Oracle, State, Violation};
use crate::life::Life;
use crate::operation::Operation;

impl Oracle {
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
        self.judge_joint_reads()
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
            let is_of_first = status != Status::Ok || record.plan.operation == Operation::Sum;
            let is_of_other = (record.plan.key != number && is_of_first)
                || (record.plan.key == number && record.plan.operation == Operation::GiveOther);
            if record.version.sequence == 0 || is_of_other {
                continue;
            }
            let writes = status == Status::Ok
                && !matches!(
                    record.plan.operation,
                    Operation::Get
                        | Operation::GetExpiry
                        | Operation::Check
                        | Operation::CheckOrMake
                        | Operation::Sum
                );
            let (before, by) = *last
                .get(&record.connection)
                .unwrap_or(&(Version::default(), 0));
            if record.version < before || (writes && record.version == before) {
                return Err(format!(
                    "on one connection operation {operation} {:?} on key {number} has version \
                     {:?} after {before:?} of operation {by} {:?}",
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
                    "version {written:?} of key {number} was written on {expected:?}, but \
                     operation {} stands between at {version:?}",
                    entry.operation
                ));
            }
        }
        // What needs or forbids a value found what it needs.
        let unknown = || key.unknown.iter().map(|&it| &self.records[it].plan);
        let has_unknown =
            |kinds: &[Operation]| unknown().any(|plan| kinds.contains(&plan.operation));
        let may_delete = unknown().any(|plan| plan.deletes(number));
        let may_make = has_unknown(&[
            Operation::Set,
            Operation::SetAbsent,
            Operation::SetPresent,
            Operation::SetVersion,
            Operation::TakeOrMake,
            Operation::CheckOrMake,
        ]) || unknown().any(|plan| plan.may_make(number));
        let can_expire = key
            .history
            .iter()
            .any(|&it| self.records[it].plan.lets_expire(number));
        let mut before: Option<Entry> = None;
        for (version, entry) in &key.entries {
            let operation = self.records[entry.operation].plan.operation;
            let was_there = before.map(|before| !before.is_deletion);
            let is_sure = before.is_none_or(|before| !before.is_doubtful) && !entry.is_doubtful;
            let wrong = match self.records[entry.operation].plan.needs(number) {
                Need::Absence => was_there == Some(true) && !may_delete && !can_expire,
                Need::Value => was_there == Some(false) && !may_make,
                Need::Nothing => false,
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
                    Operation::GiveOther | Operation::CheckOrMake
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
            let need = record.plan.needs(number);
            if let Some((last_version, _, life)) = last
                && !entry.is_doubtful
            {
                let wrong = match need {
                    Need::Absence => !life.may_be_over(record.answered_ms),
                    Need::Value => life.is_over(record.issued_ms),
                    Need::Nothing => false,
                };
                if wrong {
                    return Err(format!(
                        "operation {} {operation:?} between {} and {} wrote version {version:?} \
                         of key {number} on {last_version:?}, which lived {life:?}",
                        entry.operation, record.issued_ms, record.answered_ms
                    ));
                }
            }
            let is_made = record.plan.is_made(entry.operation, number, entry.stock);
            let life = match (self.given(entry.operation, number), last) {
                (Some(life), _) => life,
                (None, _) if is_made || operation == Operation::CheckOrMake => Life::Endless,
                // Without a value before it there is nothing to keep.
                (None, Some((_, _, life)))
                    if need == Need::Value || !life.may_be_over(record.answered_ms) =>
                {
                    life
                }
                (None, _) => Life::Unknown,
            };
            if let Some(shown_expiry_ms) = entry.shown_expiry_ms
                && !life.allows(shown_expiry_ms)
            {
                return Err(format!(
                    "version {version:?} of key {number}, by operation {} {operation:?}, is gone \
                     at {shown_expiry_ms} and lives {life:?}",
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
            if let Some(part) = plan.part(number) {
                let (down, up) = part.act.moves();
                slack_down += down;
                slack_up += up;
                may_be_set |= part.act.sets();
                continue;
            }
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
            if let Some(before) = before
                && !may_be_set
            {
                self.found(number, entry, before, (slack_down, slack_up))?;
            }
            let (down, up) = match plan.operation {
                // What it made of what it found is judged with its answer.
                _ if entry.was.is_some() => {
                    before = entry.stock;
                    continue;
                }
                _ if let Some(part) = plan.part(number) => match part.act {
                    Act::Take(units) => (units, 0),
                    Act::Give(units) => (0, units),
                    act if act.sets() => {
                        before = entry.stock;
                        continue;
                    }
                    // As much as is drained counts among what is unknown.
                    _ => (0, 0),
                },
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
                        "operation {} {:?} at {version:?} left {after} units of key {number}, \
                         where {before} were: between {lowest} and {highest} can be",
                        entry.operation, plan.operation
                    ));
                }
            }
            before = Some(after);
        }
        Ok(())
    }

    /// What an APPLY says it found of a key is what the operation before it left, but for units
    /// that operations of unknown outcome may have taken or given.
    fn found(
        &self,
        number: usize,
        entry: &Entry,
        before: u64,
        (slack_down, slack_up): (u64, u64),
    ) -> Result<(), Violation> {
        let plan = &self.records[entry.operation].plan;
        let Some((was, part)) = entry.was.zip(plan.part(number)) else {
            return Ok(());
        };
        let possible = before.saturating_sub(slack_down)..=before + slack_up;
        match part.act.sets() || possible.contains(&was) {
            true => Ok(()),
            false => Err(format!(
                "operation {} {:?} found {was} units of key {number}, where {before} were: \
                 {possible:?} can be",
                entry.operation, plan.operation
            )),
        }
    }
}
