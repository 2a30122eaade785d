//! The APPLY of a transaction: guards on what was read, then what its writes come to.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use penstock_net::apply::{Action, Apply, ApplyInstruction, ApplyKey, Operand};
use penstock_net::instruction::FieldType;
use penstock_net::limits::instructions_max;
use penstock_net::reply::NO_INSTRUCTION;
use penstock_net::request::Expiry;
use penstock_net::status::Status;

use super::error::{Conflict, KeyState, TransactionRefusal};
use super::step::{Base, Step, operand_mut};
use super::view::{Held, Lifetime, View};
use crate::answers::Changed;
use crate::fields::Fields;
use crate::operation::{Answer, Execution};

/// What a plan is made of.
#[derive(Clone, Copy)]
pub(super) struct Contents<'d> {
    /// The keys by their numbers.
    pub(super) names: &'d Apply,
    pub(super) reads: &'d BTreeMap<u8, Base>,
    pub(super) steps: &'d [Step],
}

impl<'d> Contents<'d> {
    fn name(&self, key: u8) -> &'d [u8] {
        &self.names.keys()[usize::from(key)]
    }
}

/// An APPLY, and what its answer means.
#[derive(Debug, Default)]
pub(super) struct Plan {
    apply: Apply,
    /// The keys of the guards, which stand first, and how they were read.
    guards: Vec<(Vec<u8>, KeyState)>,
    /// Of each instruction behind the guards: its number among those of the caller, if it is one.
    origins: Vec<Option<u8>>,
    /// Of each number that the answer tells: the caller has asked for it.
    asked_for: Vec<bool>,
    /// The numbers of keys here, by those in the contents.
    keys: BTreeMap<u8, ApplyKey>,
    data_bytes: usize,
}

impl Plan {
    /// Guards of keys that were read, and nothing else.
    pub(super) fn of_guards(contents: Contents<'_>, keys: &BTreeSet<u8>) -> Plan {
        let mut plan = Plan::default();
        plan.guard(contents, keys);
        plan
    }

    pub(super) fn apply(&self) -> &Apply {
        &self.apply
    }

    /// Adds the guards of keys that were read.
    fn guard(&mut self, contents: Contents<'_>, keys: &BTreeSet<u8>) {
        for (&number, base) in contents.reads {
            if !keys.contains(&number) {
                continue;
            }
            let key = self.key(contents, number);
            let (guard, state) = match base {
                Base::Missing => (key.is_absent(), KeyState::Missing),
                Base::Present { version, .. } => {
                    (key.has_version(*version), KeyState::Version(*version))
                }
            };
            self.apply.then(guard);
            self.guards.push((contents.name(number).to_vec(), state));
        }
    }

    /// Refuses what is beyond a limit.
    pub(super) fn check(&self, value_bytes_max: Option<u32>) -> Result<(), TransactionRefusal> {
        let count = self.apply.instructions().len();
        let max = instructions_max(self.apply.keys().len());
        if count > max {
            return Err(TransactionRefusal::InstructionCount { count, max });
        }
        match value_bytes_max.map(|max| u64::from(max) * 2) {
            Some(max) if self.data_bytes as u64 > max => Err(TransactionRefusal::DataLength {
                len: self.data_bytes,
                max,
            }),
            _ => Ok(()),
        }
    }

    /// The key that is not as it was read, if that is why the answer is no.
    pub(super) fn conflict(&self, answer: &Answer) -> Option<Conflict> {
        let (key, expected) = self.guards.get(answer.failed()?)?;
        let found = match answer.status {
            Status::NotFound => KeyState::Missing,
            Status::VersionMismatch => answer
                .actual_version()
                .map_or(KeyState::Present, KeyState::Version),
            Status::GuardFailed => KeyState::Present,
            _ => return None,
        };
        Some(Conflict {
            key: key.clone(),
            expected: *expected,
            found,
        })
    }

    /// The answer with the number that the failed instruction has among those of the caller.
    pub(super) fn as_asked(&self, answer: Answer) -> Answer {
        let own = answer.failed().and_then(|failed| {
            let behind = failed.checked_sub(self.guards.len())?;
            *self.origins.get(behind)?
        });
        Answer {
            instruction: own.unwrap_or(NO_INSTRUCTION),
            ..answer
        }
    }

    /// What the commit did; `None` if the caller has asked for nothing but the guards.
    pub(super) fn changed(&self, answer: &Answer) -> Option<Changed> {
        if self.apply.instructions().len() == self.guards.len() {
            return None;
        }
        let numbers = answer.value.chunks_exact(8).zip(&self.asked_for);
        let own: Vec<u8> = numbers
            .filter(|(_, is_own)| **is_own)
            .flat_map(|(number, _)| number.to_vec())
            .collect();
        Some(Changed {
            version: answer.version,
            fields: Fields::of_bytes(&own),
            level: answer.level,
            is_replayed: answer.execution == Execution::Before,
            has_writer_begun_since: answer.execution == Execution::ByLaterWriter,
        })
    }

    fn key(&mut self, contents: Contents<'_>, number: u8) -> ApplyKey {
        let apply = &mut self.apply;
        let key = self.keys.entry(number);
        *key.or_insert_with(|| apply.key(contents.name(number)))
    }

    fn then(&mut self, instruction: ApplyInstruction, origin: Option<u8>) {
        if let Action::Change(..) | Action::Rate(..) | Action::Return(_) = instruction.action {
            self.asked_for.push(origin.is_some());
        }
        self.apply.then(instruction);
        self.origins.push(origin);
    }

    fn put(&mut self, key: ApplyKey, value: &[u8]) {
        self.apply.put(key, value);
        self.origins.push(None);
        self.data_bytes += value.len();
    }
}

/// Walks through the writes and makes the plan of their commit.
pub(super) struct Planner<'d> {
    contents: Contents<'d>,
    plan: Plan,
    /// Instructions of the caller so far.
    own: u8,
}

impl<'d> Planner<'d> {
    /// Begins with the guards of these keys.
    pub(super) fn new(contents: Contents<'d>, guarded: &BTreeSet<u8>) -> Planner<'d> {
        Planner {
            contents,
            plan: Plan::of_guards(contents, guarded),
            own: 0,
        }
    }

    /// Runs all writes on what is known, and tells the plan.
    pub(super) fn run(mut self, view: &mut View) -> Result<Plan, TransactionRefusal> {
        let steps = self.contents.steps;
        for (at, step) in steps.iter().enumerate() {
            match step {
                // The next write of the key hides this one.
                Step::Put { key, .. } if is_hidden(&steps[at + 1..], *key) => {}
                Step::Put { key, value, expiry } => self.put(*key, value, *expiry, view)?,
                Step::Delete { key } => self.delete(*key, view),
                Step::Then(instruction) => {
                    self.then(*instruction);
                    view.run(instruction);
                }
            }
        }
        // Guards on the time are about no key, and an APPLY has one at least.
        if self.plan.keys.is_empty() && !steps.is_empty() {
            self.plan.key(self.contents, 0);
        }
        Ok(self.plan)
    }

    fn put(
        &mut self,
        number: u8,
        value: &Bytes,
        expiry: Expiry,
        view: &mut View,
    ) -> Result<(), TransactionRefusal> {
        let key = self.plan.key(self.contents, number);
        let lifetime = match expiry {
            Expiry::Never => Lifetime::Fresh,
            Expiry::At(ms) => Lifetime::At(ms),
            Expiry::In(ms) => Lifetime::In(ms),
            Expiry::Keep => self.kept(number, value, view)?,
        };
        let held = Held::Present {
            bytes: value.clone(),
            lifetime,
        };
        let old = std::mem::replace(&mut view.0[usize::from(number)], held);
        match lifetime {
            Lifetime::Fresh => self.plan.put(key, value),
            Lifetime::At(ms) | Lifetime::Stored(ms @ 0) => {
                self.plan.put(key, value);
                self.plan.then(key.expire_at(ms), None);
            }
            Lifetime::In(ms) => {
                self.plan.put(key, value);
                self.plan.then(key.expire_in(ms), None);
            }
            Lifetime::Stored(_) | Lifetime::Said => {
                let Held::Present { bytes, .. } = old else {
                    unreachable!("kept() has found a value");
                };
                self.edit(key, &bytes, value);
            }
        }
        Ok(())
    }

    /// The lifetime that a value keeps.
    fn kept(&self, number: u8, value: &[u8], view: &View) -> Result<Lifetime, TransactionRefusal> {
        let key = || self.contents.name(number).to_vec();
        match view.held(number) {
            Held::Missing => Ok(Lifetime::Fresh),
            Held::Unread => Err(TransactionRefusal::KeepsUnread { key: key() }),
            Held::Undecided => Err(TransactionRefusal::Undecided { key: key() }),
            // A PUT would drop the effects that may run with the expiry.
            Held::Present {
                bytes,
                lifetime: Lifetime::Stored(1..) | Lifetime::Said,
            } if bytes.len() != value.len() => Err(TransactionRefusal::KeepsOtherLength {
                key: key(),
                old: bytes.len(),
                new: value.len(),
            }),
            Held::Present { lifetime, .. } => Ok(*lifetime),
        }
    }

    /// Writes a value over one of the same length, word by word.
    fn edit(&mut self, key: ApplyKey, old: &[u8], new: &[u8]) {
        let mut set = |field_type, at: usize, number: u64| {
            let offset = u32::try_from(at).expect("a value has at most 16 MiB");
            self.plan
                .then(key.field(field_type, offset).set(number), None);
        };
        let (words, tail) = new.as_chunks::<8>();
        for (at, word) in words.iter().enumerate() {
            if old[8 * at..][..8] != *word {
                set(FieldType::U64, 8 * at, u64::from_le_bytes(*word));
            }
        }
        let tail_at = new.len() - tail.len();
        match new.last_chunk::<8>() {
            _ if old[tail_at..] == *tail => {}
            // The last word begins before the tail, with bytes that are the new ones already.
            Some(word) => set(FieldType::U64, new.len() - 8, u64::from_le_bytes(*word)),
            None => {
                for (at, byte) in new.iter().enumerate() {
                    set(FieldType::U8, at, u64::from(*byte));
                }
            }
        }
    }

    fn delete(&mut self, number: u8, view: &mut View) {
        let key = self.plan.key(self.contents, number);
        match view.held(number) {
            Held::Missing => {}
            Held::Present { .. } => self.plan.then(key.delete(), None),
            // A key that is made and deleted in one APPLY is no change, and DEL wants one.
            Held::Unread | Held::Undecided => {
                self.plan.apply.start(key, b"");
                self.plan.origins.push(None);
                self.plan.then(key.delete(), None);
            }
        }
        view.put(number, Held::Missing);
    }

    fn then(&mut self, mut instruction: ApplyInstruction) {
        let mut renumber = |number: &mut u8| {
            *number = self.plan.key(self.contents, *number).number();
        };
        match &mut instruction.action {
            Action::Before(_) | Action::Since(_) => instruction.key = 0,
            _ => renumber(&mut instruction.key),
        }
        if let Some(Operand::Field { key, .. }) = operand_mut(&mut instruction.action) {
            renumber(key);
        }
        self.plan.then(instruction, Some(self.own));
        self.own = self.own.saturating_add(1);
    }
}

/// Whether the first of these steps that is about a key overwrites it.
fn is_hidden(steps: &[Step], key: u8) -> bool {
    let next = steps.iter().find(|step| step.keys().any(|it| it == key));
    next.is_some_and(|step| step.overwrites(key))
}
