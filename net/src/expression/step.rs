//! What one argument of a command says: an instruction, a value, or what runs later.

use crate::apply::{Action, Apply, ApplyInstruction, ApplyKey};
use crate::instruction::Instruction;

use super::{Literal, RESERVED, is_of_name};

/// A key by the name that instructions use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedKey {
    /// Letters, digits and underscores.
    pub name: String,
    /// The key itself.
    pub key: String,
}

/// One argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// An instruction as it is.
    Instruction(ApplyInstruction),
    /// A key gets a value.
    Put {
        /// The number of the key.
        key: u8,
        /// What becomes of the value that is there.
        way: PutWay,
        /// The value.
        value: Literal,
    },
    /// Something runs when a key expires, or nothing.
    OnExpiry {
        /// The number of the key that expires.
        key: u8,
        /// An effect.
        effect: Option<Box<Step>>,
    },
}

impl Step {
    /// The instruction of an UPDATE_IF that does the same: the first instructions of APPLY are
    /// those of UPDATE_IF, byte by byte. `None`: only an APPLY does this.
    #[must_use]
    pub fn of_update_if(&self) -> Option<Instruction> {
        match self {
            Step::Instruction(instruction) => Instruction::read(&instruction.encode(), 0, 2).ok(),
            Step::Put { .. } | Step::OnExpiry { .. } => None,
        }
    }
}

/// What a value does to the one that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutWay {
    /// It takes its place, and nothing of the key stays.
    Put,
    /// It is for a key that has none.
    Start,
    /// It takes its place; the expiry stays, and what runs then.
    Replace,
}

impl PutWay {
    const ALL: [PutWay; 3] = [PutWay::Put, PutWay::Start, PutWay::Replace];

    /// The word for it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            PutWay::Put => "put",
            PutWay::Start => "start",
            PutWay::Replace => "replace",
        }
    }

    /// The way with this word.
    #[must_use]
    pub fn of_word(word: &str) -> Option<Self> {
        PutWay::ALL.into_iter().find(|way| way.word() == word)
    }

    /// The effect of bytes of the data.
    #[must_use]
    pub fn action(self, start: u32, len: u32) -> Action {
        match self {
            PutWay::Put => Action::Put { start, len },
            PutWay::Start => Action::Start { start, len },
            PutWay::Replace => Action::Replace { start, len },
        }
    }

    /// Adds the effect to an APPLY.
    pub fn add(self, apply: &mut Apply, key: ApplyKey, value: &[u8]) {
        match self {
            PutWay::Put => apply.put(key, value),
            PutWay::Start => apply.start(key, value),
            PutWay::Replace => apply.replace(key, value),
        };
    }
}

impl NamedKey {
    /// Reads `NAME=KEY`; the key has all that is behind the first `=`.
    ///
    /// # Errors
    /// What is allowed.
    pub fn parse(text: &str) -> Result<NamedKey, String> {
        let allowed = || {
            "allowed is NAME=KEY, with a NAME of letters, digits and _ that begins with a letter"
                .to_string()
        };
        let (name, key) = text.split_once('=').ok_or_else(allowed)?;
        let is_name = name.starts_with(|first: char| first.is_ascii_alphabetic())
            && name.chars().all(is_of_name);
        if !is_name {
            return Err(allowed());
        }
        if RESERVED.contains(&name) {
            return Err(format!(
                "{name} is a word of the instructions; allowed is any other NAME"
            ));
        }
        Ok(NamedKey {
            name: name.into(),
            key: key.into(),
        })
    }
}
