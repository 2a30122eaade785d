//! The parts of a draft: keys as they were read, and writes.

use bytes::Bytes;
use penstock_net::apply::{Action, ApplyInstruction, Operand};
use penstock_net::request::{Expiry, Version};

/// A key as the store told it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Base {
    Missing,
    Present {
        bytes: Bytes,
        version: Version,
        expiry_ms: u64,
    },
}

/// One write.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Put {
        key: u8,
        value: Bytes,
        expiry: Expiry,
    },
    Delete {
        key: u8,
    },
    Then(ApplyInstruction),
}

impl Step {
    /// The keys that it is about.
    pub(super) fn keys(&self) -> impl Iterator<Item = u8> + use<> {
        let (key, operand) = match self {
            Step::Put { key, .. } | Step::Delete { key } => (Some(*key), None),
            Step::Then(instruction) => {
                let is_of_time = matches!(instruction.action, Action::Before(_) | Action::Since(_));
                let key = (!is_of_time).then_some(instruction.key);
                (key, operand_key(instruction))
            }
        };
        key.into_iter().chain(operand)
    }

    /// The key that it changes.
    pub(super) fn writes(&self) -> Option<u8> {
        match self {
            Step::Put { key, .. } | Step::Delete { key } => Some(*key),
            Step::Then(instruction) => instruction.is_effect().then_some(instruction.key),
        }
    }

    /// Whether nothing of what the key had before is left.
    pub(super) fn overwrites(&self, which: u8) -> bool {
        match self {
            Step::Put { key, expiry, .. } => *key == which && *expiry != Expiry::Keep,
            Step::Delete { key } => *key == which,
            Step::Then(_) => false,
        }
    }
}

/// The operand of an instruction.
pub(super) fn operand_mut(action: &mut Action) -> Option<&mut Operand> {
    match action {
        Action::Before(operand)
        | Action::Since(operand)
        | Action::Compare(_, _, operand)
        | Action::Bits(_, _, operand)
        | Action::Change(_, _, operand)
        | Action::Expire(operand) => Some(operand),
        _ => None,
    }
}

/// The key whose number is the operand.
pub(super) fn operand_key(instruction: &ApplyInstruction) -> Option<u8> {
    let mut action = instruction.action;
    match operand_mut(&mut action) {
        Some(Operand::Field { key, .. }) => Some(*key),
        _ => None,
    }
}
