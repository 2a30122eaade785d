//! What a transaction has read and is to write. Pure: nothing here asks a store.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use penstock_net::apply::{Action, Apply, ApplyInstruction, ApplyKey};
use penstock_net::limits::{APPLY_KEYS_MAX, EXPIRY_MS_MAX, KEY_BYTES_MAX};
use penstock_net::request::Expiry;
use penstock_net::slot::slot_of;

use super::error::TransactionRefusal;
use super::level::{Isolation, TransactionValue};
use super::plan::{Contents, Plan, Planner};
use super::step::{Base, Step, operand_key};
use super::view::{Held, Lifetime, View};

/// Savepoints of one transaction, at most.
pub(super) const SAVEPOINTS_MAX: usize = 64;
/// Names that a transaction gives numbers to, at most. Most of them were taken back.
const NAMES_MAX: usize = 255;

/// Reads, writes and savepoints of one transaction.
#[derive(Debug)]
pub(super) struct Draft {
    isolation: Isolation,
    /// Bytes of a value, at most, if that is known.
    value_bytes_max: Option<u32>,
    /// Gives the keys their numbers.
    names: Apply,
    reads: BTreeMap<u8, Base>,
    steps: Vec<Step>,
    /// Each with the number of steps before it, the oldest first.
    savepoints: Vec<(String, usize)>,
}

impl Draft {
    pub(super) fn new(isolation: Isolation, value_bytes_max: Option<u32>) -> Draft {
        Draft {
            isolation,
            value_bytes_max,
            names: Apply::new(),
            reads: BTreeMap::new(),
            steps: Vec::new(),
            savepoints: Vec::new(),
        }
    }

    pub(super) fn isolation(&self) -> Isolation {
        self.isolation
    }

    pub(super) fn name(&self, key: u8) -> &[u8] {
        &self.names.keys()[usize::from(key)]
    }

    /// The number of a key that is to be told. Adds to `needed` the keys that must be asked for.
    pub(super) fn begin_read(
        &mut self,
        name: &[u8],
        needed: &mut Vec<u8>,
    ) -> Result<u8, TransactionRefusal> {
        let key = self.number(name)?.number();
        let mut asked = BTreeSet::new();
        self.need(key, &mut BTreeSet::new(), &mut asked);
        needed.extend(
            asked
                .iter()
                .filter(|it| !needed.contains(it))
                .copied()
                .collect::<Vec<_>>(),
        );
        let mut live = self.live();
        live.extend(needed.iter());
        live.insert(key);
        self.check_keys(&live, &[key])?;
        Ok(key)
    }

    /// Takes in what the store told of a key.
    pub(super) fn learn(&mut self, key: u8, base: Base) {
        self.reads.insert(key, base);
    }

    /// Forgets a key that was told.
    pub(super) fn forget(&mut self, key: u8) {
        self.reads.remove(&key);
    }

    /// What the transaction sees of a key.
    pub(super) fn see(&self, key: u8) -> Result<Option<TransactionValue>, TransactionRefusal> {
        let mut view = self.view();
        // What is in the draft has been planned before.
        let _ = Planner::new(self.contents(), &self.guarded()).run(&mut view);
        let is_written = self.steps.iter().any(|step| step.writes() == Some(key));
        match view.held(key) {
            Held::Missing => Ok(None),
            Held::Present { bytes, lifetime } => Ok(Some(TransactionValue {
                bytes: bytes.clone(),
                version: match self.reads.get(&key) {
                    Some(Base::Present { version, .. }) if !is_written => Some(*version),
                    _ => None,
                },
                expiry_ms: match lifetime {
                    Lifetime::Stored(ms) | Lifetime::At(ms) => Some(*ms),
                    Lifetime::Fresh | Lifetime::In(_) | Lifetime::Said => None,
                },
            })),
            Held::Unread | Held::Undecided => Err(TransactionRefusal::Undecided {
                key: self.name(key).to_vec(),
            }),
        }
    }

    pub(super) fn set(
        &mut self,
        name: &[u8],
        value: &[u8],
        expiry: Expiry,
    ) -> Result<(), TransactionRefusal> {
        if let Expiry::At(ms) | Expiry::In(ms) = expiry
            && !(1..=EXPIRY_MS_MAX).contains(&ms)
        {
            return Err(TransactionRefusal::Expiry { ms });
        }
        if let Some(max) = self.value_bytes_max
            && value.len() > max as usize
        {
            return Err(TransactionRefusal::ValueLength {
                key: name.to_vec(),
                len: value.len(),
                max,
            });
        }
        let key = self.number(name)?.number();
        let value = Bytes::copy_from_slice(value);
        self.add(Step::Put { key, value, expiry })
    }

    pub(super) fn del(&mut self, name: &[u8]) -> Result<(), TransactionRefusal> {
        let key = self.number(name)?.number();
        self.add(Step::Delete { key })
    }

    pub(super) fn key(&mut self, name: &[u8]) -> Result<ApplyKey, TransactionRefusal> {
        let key = self.number(name)?;
        let mut live = self.live();
        live.insert(key.number());
        self.check_keys(&live, &[key.number()])?;
        Ok(key)
    }

    pub(super) fn then(&mut self, instruction: ApplyInstruction) -> Result<(), TransactionRefusal> {
        let action = instruction.action;
        // What names data of an item, or counts its instructions, means nothing in another one.
        if let Action::Put { .. }
        | Action::Start { .. }
        | Action::Replace { .. }
        | Action::PutHead { .. }
        | Action::ReplaceHead { .. }
        | Action::OnExpire { .. } = action
        {
            return Err(TransactionRefusal::Instruction { action });
        }
        let named = [Some(instruction.key), operand_key(&instruction)];
        let known = self.names.keys().len();
        let mut named = named.into_iter().flatten();
        if let Some(number) = named.find(|key| usize::from(*key) >= known) {
            return Err(TransactionRefusal::UnknownKey { number });
        }
        self.add(Step::Then(instruction))
    }

    pub(super) fn savepoint(&mut self, name: &str) -> Result<(), TransactionRefusal> {
        if self.savepoints.len() == SAVEPOINTS_MAX {
            return Err(TransactionRefusal::SavepointCount {
                max: SAVEPOINTS_MAX,
            });
        }
        self.savepoints.push((name.into(), self.steps.len()));
        Ok(())
    }

    pub(super) fn rollback_to(&mut self, name: &str) -> Result<(), TransactionRefusal> {
        let at = self.savepoints.iter().rposition(|(known, _)| known == name);
        let at = at.ok_or_else(|| TransactionRefusal::UnknownSavepoint { name: name.into() })?;
        self.savepoints.truncate(at + 1);
        self.steps.truncate(self.savepoints[at].1);
        Ok(())
    }

    /// The APPLY that asks whether all that was read is still there; `None` if one look at the
    /// store has told it all.
    pub(super) fn proof(&self) -> Option<Plan> {
        if self.reads.len() < 2 {
            return None;
        }
        let all = self.reads.keys().copied().collect();
        Some(Plan::of_guards(self.contents(), &all))
    }

    /// The APPLY of the commit; `None` if there is nothing to ask.
    pub(super) fn commit(&self) -> Result<Option<Plan>, TransactionRefusal> {
        match (self.steps.is_empty(), self.isolation) {
            (false, _) => self.plan().map(Some),
            (true, Isolation::Serializable) => Ok(self.proof()),
            // Each read has proved the instant of all before it.
            (true, Isolation::Snapshot) => Ok(None),
        }
    }

    /// Keys that the commit guards: they must be as they were read.
    fn guarded(&self) -> BTreeSet<u8> {
        let written = |key: &u8| self.steps.iter().any(|step| step.writes() == Some(*key));
        let reads = self.reads.keys().copied();
        match self.isolation {
            Isolation::Serializable => reads.collect(),
            Isolation::Snapshot => reads.filter(written).collect(),
        }
    }

    /// Keys that were read or that a write is about.
    fn live(&self) -> BTreeSet<u8> {
        let touched = self.steps.iter().flat_map(Step::keys);
        self.reads.keys().copied().chain(touched).collect()
    }

    /// What the store has told.
    fn view(&self) -> View {
        let held = |key: usize| {
            let key = u8::try_from(key).expect("names are few");
            match self.reads.get(&key) {
                None => Held::Unread,
                Some(Base::Missing) => Held::Missing,
                Some(Base::Present {
                    bytes, expiry_ms, ..
                }) => Held::Present {
                    bytes: bytes.clone(),
                    lifetime: Lifetime::Stored(*expiry_ms),
                },
            }
        };
        View((0..self.names.keys().len()).map(held).collect())
    }

    fn contents(&self) -> Contents<'_> {
        Contents {
            names: &self.names,
            reads: &self.reads,
            steps: &self.steps,
        }
    }

    fn plan(&self) -> Result<Plan, TransactionRefusal> {
        let planner = Planner::new(self.contents(), &self.guarded());
        let plan = planner.run(&mut self.view())?;
        plan.check(self.value_bytes_max)?;
        Ok(plan)
    }

    /// Adds a write, if all limits allow it.
    fn add(&mut self, step: Step) -> Result<(), TransactionRefusal> {
        let keys: Vec<u8> = step.keys().collect();
        self.steps.push(step);
        let checked = self.check_keys(&self.live(), &keys);
        let checked = checked.and_then(|()| self.plan().map(|_| ()));
        if checked.is_err() {
            self.steps.pop();
        }
        checked
    }

    fn number(&mut self, name: &[u8]) -> Result<ApplyKey, TransactionRefusal> {
        if !(1..=KEY_BYTES_MAX).contains(&name.len()) {
            return Err(TransactionRefusal::KeyLength { len: name.len() });
        }
        let names = self.names.keys();
        if names.len() == NAMES_MAX && !names.iter().any(|known| known == name) {
            return Err(TransactionRefusal::KeyCount { key: name.to_vec() });
        }
        Ok(self.names.key(name))
    }

    /// Refuses `new` keys, which `live` has, too.
    fn check_keys(&self, live: &BTreeSet<u8>, new: &[u8]) -> Result<(), TransactionRefusal> {
        for &key in new {
            let name = self.name(key);
            let others = live.iter().filter(|other| !new.contains(other));
            let other = others.chain(new).find(|other| **other != key);
            if let Some(first) = other.map(|other| self.name(*other))
                && slot_of(first) != slot_of(name)
            {
                return Err(TransactionRefusal::TwoSlots {
                    first: first.to_vec(),
                    first_slot: slot_of(first),
                    second: name.to_vec(),
                    second_slot: slot_of(name),
                });
            }
            if live.len() > APPLY_KEYS_MAX {
                return Err(TransactionRefusal::KeyCount { key: name.to_vec() });
            }
        }
        Ok(())
    }

    /// Adds to `needed` what must be read, so that `key` is known behind all writes.
    fn need(&self, key: u8, seen: &mut BTreeSet<u8>, needed: &mut BTreeSet<u8>) {
        if !seen.insert(key) {
            return;
        }
        let last = self.steps.iter().rposition(|step| step.overwrites(key));
        if last.is_none() && !self.reads.contains_key(&key) {
            needed.insert(key);
        }
        for step in &self.steps[last.map_or(0, |last| last + 1)..] {
            if let Step::Then(instruction) = step
                && instruction.key == key
                && let Some(operand) = operand_key(instruction)
            {
                if !self.reads.contains_key(&operand) {
                    needed.insert(operand);
                }
                self.need(operand, seen, needed);
            }
        }
    }
}
