//! The keys of an APPLY as people name them: in what an answer tells, and in why it is a no.

use std::time::Duration;

use penstock_client::Answer;
use penstock_net::apply::{Action, ApplyInstruction, NumberAt, NumberKind, Operand};
use penstock_net::request::Version;
use penstock_net::status::Status;

use super::values::version_text;
use penstock_net::expression::{FieldKind, NamedKey, ValueLayout, number_name};

/// The keys by their numbers, each with its name and perhaps the layout of its value.
pub(super) struct Names<'a> {
    keys: &'a [NamedKey],
    layouts: Vec<Option<&'a ValueLayout>>,
}

impl<'a> Names<'a> {
    /// Keys whose numbers are named by type and offset.
    pub(super) fn new(keys: &'a [NamedKey]) -> Self {
        Names {
            keys,
            layouts: Vec::new(),
        }
    }

    /// Keys with these layouts, in their order.
    pub(super) fn with_layouts(
        keys: &'a [NamedKey],
        layouts: Vec<Option<&'a ValueLayout>>,
    ) -> Self {
        Names { keys, layouts }
    }

    /// The key with this number.
    pub(super) fn key(&self, number: u8) -> &'a str {
        let named = self.keys.get(usize::from(number));
        named.map_or("", |named| named.key.as_str())
    }

    /// A number as instructions name it.
    pub(super) fn name(&self, key: u8, at: NumberAt) -> String {
        let number = usize::from(key);
        let name = self
            .keys
            .get(number)
            .map_or("", |named| named.name.as_str());
        let layout = self.layouts.get(number).copied().flatten();
        let field = layout.and_then(|layout| {
            let mut fields = layout.fields().iter();
            fields.find(|field| match field.kind {
                FieldKind::Number(_) | FieldKind::Bool => field.offset == at.offset() as usize,
                _ => false,
            })
        });
        let number = field.map_or_else(|| number_name(at), |field| field.name.clone());
        match name {
            // The only key of an update-if has none.
            "" => number,
            name => format!("{name}.{number}"),
        }
    }

    /// What an answer with OK tells: each number with its name.
    pub(super) fn lines_of(&self, instructions: &[ApplyInstruction], value: &[u8]) -> Vec<String> {
        let numbers = value.as_chunks::<8>().0.iter();
        let returned = returned(instructions).zip(numbers);
        returned
            .map(|((key, at), bits)| {
                let number = number_text(at.kind(), u64::from_le_bytes(*bits));
                format!("{} = {number}", self.name(key, at))
            })
            .collect()
    }

    /// What an instruction that failed saw.
    fn saw(&self, instruction: &ApplyInstruction, answer: &Answer) -> String {
        let key = self.key(instruction.key);
        let bits = answer.value.first_chunk().copied().map(u64::from_le_bytes);
        let bits = bits.unwrap_or_default();
        match (answer.status, instruction.action) {
            (Status::NotFound, _) => {
                let mut missing = vec![format!("{key:?}")];
                for (other, _) in numbers(instruction) {
                    let other = format!("{:?}", self.key(other));
                    if !missing.contains(&other) {
                        missing.push(other);
                    }
                }
                format!("{} does not exist", missing.join(" or "))
            }
            (Status::VersionMismatch, _) => {
                let version = answer.value.first_chunk().map(Version::read);
                let version = version.and_then(Result::ok).unwrap_or_default();
                format!("{key:?} has version {}", version_text(version))
            }
            (_, Action::Absent) => format!("{key:?} exists"),
            (_, Action::Before(_) | Action::Since(_)) => format!("the time is {bits}"),
            (_, Action::Rate(..)) => {
                format!("the units are there in {:?}", Duration::from_micros(bits))
            }
            (_, Action::Compare(_, at, _) | Action::Bits(_, at, _) | Action::Change(_, at, _)) => {
                let number = number_text(at.kind(), bits);
                let range = match answer.is_overflow {
                    true => format!(" and would leave the range of {}", at.kind().name()),
                    false => String::new(),
                };
                format!("{} is {number}{range}", self.name(instruction.key, at))
            }
            (status, _) => status.name().to_string(),
        }
    }

    /// The line that says why nothing was changed; `text` is that of the instruction.
    pub(super) fn failed(
        &self,
        instructions: &[ApplyInstruction],
        text: Option<&str>,
        answer: &Answer,
    ) -> String {
        let instruction = instructions.get(usize::from(answer.instruction));
        let (Some(text), Some(instruction)) = (text, instruction) else {
            return "a guard failed; nothing was changed".to_string();
        };
        let saw = self.saw(instruction, answer);
        let reason = match answer.reason {
            0 => String::new(),
            reason => format!(", reason {reason}"),
        };
        format!("{text:?} failed: {saw}{reason}; nothing was changed")
    }
}

/// Whether an answer is the no of an instruction.
pub(super) fn is_denied(answer: &Answer) -> bool {
    matches!(
        answer.status,
        Status::GuardFailed | Status::NotFound | Status::VersionMismatch
    )
}

/// The numbers that an answer with OK tells, with their keys.
fn returned(instructions: &[ApplyInstruction]) -> impl Iterator<Item = (u8, NumberAt)> {
    // What runs when a key expires tells nothing.
    let mut later = 0;
    let run_now = instructions.iter().filter(move |instruction| {
        let is_now = later == 0;
        later = match instruction.effects() {
            Some(effects) => effects,
            None => later.saturating_sub(1),
        };
        is_now
    });
    run_now.filter_map(|instruction| match instruction.action {
        Action::Change(_, at, _) | Action::Rate(at, _) | Action::Return(at) => {
            Some((instruction.key, at))
        }
        _ => None,
    })
}

/// The numbers that an instruction reads: its own and that of its operand.
pub(super) fn numbers(instruction: &ApplyInstruction) -> impl Iterator<Item = (u8, NumberAt)> {
    let (own, operand) = match instruction.action {
        Action::Compare(_, at, operand)
        | Action::Bits(_, at, operand)
        | Action::Change(_, at, operand) => (Some(at), Some(operand)),
        Action::Rate(at, _) | Action::Return(at) => (Some(at), None),
        Action::Before(time) | Action::Since(time) | Action::Expire(time) => (None, Some(time)),
        _ => (None, None),
    };
    let own = own.map(|at| (instruction.key, at));
    let other = operand.and_then(|operand| match operand {
        Operand::Field { key, at } => Some((key, at)),
        _ => None,
    });
    own.into_iter().chain(other)
}

fn number_text(kind: NumberKind, bits: u64) -> String {
    kind.number(bits).to_string()
}
