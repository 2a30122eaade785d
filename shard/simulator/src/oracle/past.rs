//! Answers about the past. Each version in them was written like that, no version that was surely
//! written is passed over, and versions that must be kept are there.

use penstock_net::keyspace::{History, KeptVersion};
use penstock_net::reply::ReplyItem;
use penstock_net::request::Version;
use penstock_net::status::Status;
use penstock_storage::version::partition_of;

use super::{Entry, Oracle, Plan, Record, State, Violation};
use crate::operation::Operation;
use crate::plan::{KEYSPACE, LONGER};

impl Oracle {
    /// Judges an answer to one of [`Operation::is_past`].
    pub(super) fn judge_past(
        &mut self,
        number: usize,
        plan: &Plan,
        item: &ReplyItem<'_>,
    ) -> Result<(), Violation> {
        let status = item.head.status;
        let about = |wrong: String| {
            let Plan {
                operation,
                key,
                expected,
                stock,
                ..
            } = plan;
            format!(
                "operation {number} {operation:?} of key {key} at {expected:?} or {stock}: {wrong}"
            )
        };
        match (plan.operation, status) {
            (operation, Status::Ok) if operation.is_setting() => Ok(()),
            (Operation::DropLonger, Status::NotFound) => Ok(()),
            (Operation::History, Status::Ok) => History::read(item.value)
                .ok_or_else(|| "no history".to_string())
                .and_then(|history| self.judge_history(number, plan.key, &history))
                .map_err(about),
            (Operation::GetAtVersion | Operation::GetAtTime, Status::Ok) => {
                self.judge_value(number, plan, item).map_err(about)
            }
            (Operation::GetAtVersion | Operation::GetAtTime, Status::NotFound) => {
                self.judge_missing(number, plan).map_err(about)
            }
            (operation, Status::NotKept) if !operation.is_setting() => {
                self.judge_not_kept(number, plan).map_err(about)
            }
            _ => Err(about(format!("ended with {}", status.name()))),
        }
    }

    /// The value is that of the version told, and nothing newer should have been told.
    fn judge_value(
        &self,
        number: usize,
        plan: &Plan,
        item: &ReplyItem<'_>,
    ) -> Result<(), Violation> {
        let version = item.head.version;
        let (writer, _) = self.writer_of(plan.key, item.value)?;
        self.judge_writer(plan.key, version, writer)?;
        let expiry = item.expiry.ok_or("no time is told")?;
        let is_late = match plan.operation {
            Operation::GetAtVersion => version > plan.expected,
            _ => {
                expiry.time_ms > plan.stock
                    || (expiry.expiry_ms != 0 && expiry.expiry_ms <= plan.stock)
            }
        };
        if is_late {
            return Err(format!("{version:?} of {expiry:?} was not there then"));
        }
        let record = &self.records[writer];
        if !self.may_show(number, plan.key, record, expiry.time_ms) {
            return Err(format!(
                "operation {writer} was sent at {} and answered at {}, and wrote at {}",
                record.issued_ms, record.answered_ms, expiry.time_ms
            ));
        }
        if let Some((passed, entry)) = self.newest_sure(number, plan)
            && passed > version
        {
            return Err(format!(
                "{version:?} is told, and operation {} wrote {passed:?}",
                entry.operation
            ));
        }
        Ok(())
    }

    /// Whether this operation may have written at that time. 0 means not known; the time of a
    /// version that was written while versions were kept must be known.
    fn may_show(&self, number: usize, key: usize, writer: &Record, time_ms: u64) -> bool {
        let is_known = || {
            let rule = self.rule(number, key);
            rule.is_some_and(|(_, _, since)| writer.issued > since)
        };
        match time_ms {
            0 => !is_known(),
            ms => (writer.issued_ms..=writer.answered_ms).contains(&ms),
        }
    }

    fn judge_writer(&self, key: usize, version: Version, writer: usize) -> Result<(), Violation> {
        let place = (partition_of(self.keys[key].slot), version);
        match self.by_version.get(&place) {
            Some(&known) if known != writer => Err(format!(
                "version {version:?} is of operation {known} and not of {writer}"
            )),
            _ if ![Version::default(), version].contains(&self.records[writer].version) => {
                Err(format!(
                    "operation {writer} wrote {:?} and not {version:?}",
                    self.records[writer].version
                ))
            }
            _ => Ok(()),
        }
    }

    fn judge_missing(&self, number: usize, plan: &Plan) -> Result<(), Violation> {
        let Some((version, entry)) = self.newest_sure(number, plan) else {
            return Ok(());
        };
        // A crash may have taken a deletion, or not.
        let behind = self.keys[plan.key].entries.range(version..);
        // A write without an answer may have come after it.
        let may_be_superseded =
            plan.operation == Operation::GetAtTime && self.writers_after(plan.key, version) > 0;
        let was_deleted = behind
            .map(|(_, entry)| entry)
            .any(|entry| entry.is_deletion)
            || self.may_have_deleted(plan.key)
            || self.may_expire(plan.key)
            || may_be_superseded;
        match was_deleted {
            true => Ok(()),
            false => Err(format!(
                "nothing is told, and operation {} wrote {version:?}",
                entry.operation
            )),
        }
    }

    fn judge_not_kept(&self, number: usize, plan: &Plan) -> Result<(), Violation> {
        if plan.operation == Operation::History {
            return match self.rule(number, plan.key) {
                Some(_) => Err("its keyspace keeps versions".into()),
                None => Ok(()),
            };
        }
        let Some((version, entry)) = self.newest_sure(number, plan) else {
            return Ok(());
        };
        match self.must_keep(number, plan.key, version, entry) {
            true => Err(format!(
                "not kept, and operation {} wrote {version:?}",
                entry.operation
            )),
            false => Ok(()),
        }
    }

    /// Versions fall, each is what its operation wrote, and nothing that is sure is missing.
    fn judge_history(&self, number: usize, key: usize, history: &History) -> Result<(), Violation> {
        let versions = &history.versions;
        if !versions.is_sorted_by(|newer, older| newer.version > older.version) {
            return Err(format!("no order: {versions:?}"));
        }
        let state = &self.keys[key];
        for KeptVersion {
            version,
            is_deletion,
            time_ms,
            ..
        } in versions
        {
            let place = (partition_of(state.slot), *version);
            let Some(&writer) = self.by_version.get(&place) else {
                continue;
            };
            let record = &self.records[writer];
            let deletes = record.plan.deletes(key);
            let is_of_key = record.plan.names(key);
            let is_time = self.may_show(number, key, record, *time_ms);
            if !is_of_key || deletes != *is_deletion || !is_time {
                return Err(format!(
                    "{version:?} of operation {writer} {:?} is told as deletion {is_deletion} at \
                     {time_ms}",
                    record.plan.operation
                ));
            }
        }
        let oldest = versions.last().map(|kept| kept.version);
        for (&version, entry) in state.entries.iter().rev() {
            let is_shown = versions.iter().any(|kept| kept.version == version);
            if is_shown || !self.is_sure(number, entry) {
                continue;
            }
            let is_between = oldest.is_some_and(|oldest| version > oldest);
            // A deletion before which nothing is kept is not either.
            let may_go = versions.is_empty() && (entry.is_deletion || self.may_expire(key));
            let must = !history.has_more && self.must_keep(number, key, version, entry);
            if (is_between && !self.may_expire(key)) || (must && !may_go) {
                return Err(format!(
                    "operation {} wrote {version:?}, which is not among {versions:?}",
                    entry.operation
                ));
            }
        }
        Ok(())
    }

    /// Written for sure before this operation was sent.
    fn is_sure(&self, number: usize, entry: &Entry) -> bool {
        let record = &self.records[entry.operation];
        !entry.is_doubtful
            && record.state == State::Answered(Status::Ok)
            && record.answered < self.records[number].issued
    }

    /// The newest sure version at what the operation asks for.
    fn newest_sure(&self, number: usize, plan: &Plan) -> Option<(Version, &Entry)> {
        let is_then = |version: &Version, entry: &&Entry| match plan.operation {
            Operation::GetAtVersion => *version <= plan.expected,
            _ => self.records[entry.operation].answered_ms < plan.stock,
        };
        let entries = self.keys[plan.key].entries.iter().rev();
        entries
            .filter(|(version, entry)| is_then(version, entry) && self.is_sure(number, entry))
            .map(|(&version, entry)| (version, entry))
            .next()
    }

    fn may_have_deleted(&self, key: usize) -> bool {
        let of_key = self.keys[key].history.iter().map(|&it| &self.records[it]);
        of_key
            .filter(|record| record.plan.deletes(key))
            .any(|record| matches!(record.state, State::Pending | State::Unknown))
    }

    fn may_expire(&self, key: usize) -> bool {
        let mut of_key = self.keys[key].history.iter().map(|&it| &self.records[it]);
        of_key.any(|record| record.plan.lets_expire(key))
    }

    /// How many operations may have written a version of the key behind this one.
    fn writers_after(&self, key: usize, version: Version) -> usize {
        let of_key = self.keys[key].history.iter().map(|&it| &self.records[it]);
        of_key
            .filter(|record| !record.plan.operation.is_past())
            .filter(|record| match record.state {
                State::Pending | State::Unknown => true,
                State::Refused(_) => false,
                State::Answered(_) => {
                    record.version > version
                        || record.plan.operation == Operation::GiveOther
                        || record.plan.operation == Operation::CheckOrMake
                }
            })
            .count()
    }

    /// The limits that are in force for sure while this operation runs, and since which operation.
    fn rule(&self, number: usize, key: usize) -> Option<(u64, u64, u64)> {
        let name = &self.keys[key].name;
        let mut since = 0;
        if name.starts_with(LONGER) {
            let is_of_longer = |operation| operation != Operation::SetKeyspace;
            if let Some(last) = self.last_change(number, is_of_longer)? {
                let plan = &last.plan;
                if plan.operation == Operation::SetLonger {
                    return Some((plan.units, plan.stock, last.answered));
                }
                // Its keys came back under the shorter prefix.
                since = last.answered;
            }
        }
        if !name.starts_with(KEYSPACE) {
            return None;
        }
        let last = self.last_change(number, |operation| operation == Operation::SetKeyspace)??;
        Some((last.plan.units, last.plan.stock, last.answered.max(since)))
    }

    /// The last change of a keyspace that was executed before this operation, or that there was
    /// none; `None` if it is open which change is in force.
    fn last_change(
        &self,
        number: usize,
        is_of_it: impl Fn(Operation) -> bool,
    ) -> Option<Option<&Record>> {
        let issued = self.records[number].issued;
        let sent = self.keyspaces.iter().map(|&it| &self.records[it]);
        // What is refused changes nothing, but may come later if a disk was full.
        let mut sent = sent
            .filter(|it| is_of_it(it.plan.operation))
            .filter(|it| match it.state {
                State::Refused(status) => status == Status::Indeterminate,
                State::Answered(status) => status == Status::Ok,
                State::Pending | State::Unknown => true,
            });
        if sent.clone().next().is_none() {
            return Some(None);
        }
        let last = sent
            .clone()
            .filter(|it| it.state == State::Answered(Status::Ok) && it.answered < issued)
            .max_by_key(|it| it.issued)?;
        // Its revision is the highest if all others had theirs before it was sent.
        let is_clear = sent.all(|it| match it.state {
            State::Answered(_) | State::Refused(_) => {
                it.answered <= last.issued || it.issued == last.issued
            }
            State::Pending | State::Unknown => it.epoch < last.epoch,
        });
        is_clear.then_some(Some(last))
    }

    /// Whether a sure version must be kept when this operation runs.
    fn must_keep(&self, number: usize, key: usize, version: Version, entry: &Entry) -> bool {
        let Some((versions, retention_ms, since)) = self.rule(number, key) else {
            return false;
        };
        let writers = self.writers_after(key, version) as u64;
        let is_young = |record: &Record| record.issued_ms + retention_ms > self.time_ms;
        // What took its place was written after it was answered.
        let is_in_time = retention_ms == 0 || is_young(&self.records[entry.operation]);
        self.records[entry.operation].issued > since
            && (versions == 0 || writers <= versions)
            && is_in_time
            && !(retention_ms > 0 && (entry.is_deletion || self.may_expire(key)))
    }
}
