//! KV.APPLY: an APPLY whose instructions are words, as `penstock apply` has them.
//!
//! ```text
//! KV.APPLY key [ "KEY" key ]... [ "TOKEN" uuid ] instruction [ value ]...
//! ```
//!
//! The keys are named k1, k2 and so on. The value of a `put`, `start` or `replace` that says none
//! is the next argument, any bytes.

use crate::apply::{Apply, ApplyKey};
use crate::expression::{Literal, NamedKey, PutWay, Step, parse_step};
use crate::limits::{APPLY_KEYS_MAX, instructions_max};
use crate::program::AnswerNames;
use crate::request::Token;

use super::named_keys::{NamedKeys, NamedKeysMay};
use super::parser::Arguments;
use super::words::SHOWN_BYTES_MAX;

/// A KV.APPLY that was read.
#[derive(Debug)]
pub(super) struct ReadApply {
    pub(super) apply: Apply,
    /// The token that it names.
    pub(super) token: Option<Token>,
    /// Of each instruction the argument that it comes from. Effects of an expiry have that of the
    /// first of them.
    arguments: Vec<usize>,
}

impl ReadApply {
    /// The words of its instructions, which are those of `args`.
    pub(super) fn names(&self, args: Arguments<'_>) -> AnswerNames {
        let text = |number: usize| {
            let argument = self.arguments.get(number)?;
            std::str::from_utf8(args.get(*argument)).ok()
        };
        AnswerNames::new(self.apply.instructions(), text)
    }

    /// The instructions that were added since come from this argument.
    fn come_from(&mut self, argument: usize) {
        let count = self.apply.instructions().len();
        self.arguments.resize(count, argument);
    }
}

/// Reads a KV.APPLY, whose keys may be of several slots or not, and the token that it names.
///
/// # Errors
/// The error of RESP.
pub(super) fn read_apply(args: Arguments<'_>, be_spread: bool) -> Result<ReadApply, Vec<u8>> {
    let count_max = APPLY_KEYS_MAX;
    let may = NamedKeysMay {
        count_max,
        be_spread,
    };
    let named = NamedKeys::read(args, 1, may)?;
    let (keys, mut next) = (named.all(), named.next);
    let names: Vec<NamedKey> = (1..=keys.len())
        .map(|number| NamedKey {
            name: format!("k{number}"),
            key: String::new(),
        })
        .collect();
    let mut read = ReadApply {
        apply: Apply::new(),
        token: named.token,
        arguments: Vec::new(),
    };
    let handles: Vec<ApplyKey> = keys.iter().map(|key| read.apply.key(key)).collect();
    let mut armed_by = 0;
    let mut armed: Option<u8> = None;
    let mut effects: Vec<Step> = Vec::new();
    let max = instructions_max(keys.len());
    while next < args.len() {
        // Whatever follows makes them more.
        check_count(read.apply.instructions().len().max(effects.len()), max)?;
        let argument = next;
        let text = std::str::from_utf8(args.get(next))
            .map_err(|_| b"ERR an instruction is text in UTF-8".to_vec())?;
        next += 1;
        let wants_value = says_no_value(text);
        let step = match wants_value {
            false => parse_step(text, &names),
            true => parse_step(&format!("{text} text:"), &names),
        };
        let mut step =
            step.map_err(|error| format!("ERR {}", error.brief(SHOWN_BYTES_MAX)).into_bytes())?;
        if wants_value {
            if next >= args.len() {
                let text = &text[..text.floor_char_boundary(SHOWN_BYTES_MAX)];
                let text = format!("ERR '{text}': the value is to be the next argument");
                return Err(text.into_bytes());
            }
            set_value(&mut step, args.get(next));
            next += 1;
        }
        match step {
            Step::OnExpiry { key, effect } => {
                if armed != Some(key) {
                    arm(&mut read.apply, &handles, armed.take(), &mut effects)?;
                    read.come_from(armed_by);
                    (armed, armed_by) = (Some(key), argument);
                }
                effects.extend(effect.map(|effect| *effect));
            }
            step => {
                arm(&mut read.apply, &handles, armed.take(), &mut effects)?;
                read.come_from(armed_by);
                add(&mut read.apply, &handles, step)?;
                read.come_from(argument);
            }
        }
    }
    arm(&mut read.apply, &handles, armed, &mut effects)?;
    read.come_from(armed_by);
    check_count(read.apply.instructions().len(), max)?;
    Ok(read)
}

fn check_count(instructions: usize, max: usize) -> Result<(), Vec<u8>> {
    match instructions > max {
        true => Err(format!("ERR {instructions} instructions: at most {max}").into_bytes()),
        false => Ok(()),
    }
}

/// Whether an instruction ends where its value would begin.
fn says_no_value(text: &str) -> bool {
    let mut words = text.split_whitespace();
    match words.clone().last().and_then(PutWay::of_word) {
        Some(PutWay::Put | PutWay::Start) => true,
        // A value may be this word: it was one before it was an instruction.
        Some(PutWay::Replace) => words.nth(1) == Some("replace") && words.next().is_none(),
        None => false,
    }
}

fn set_value(step: &mut Step, bytes: &[u8]) {
    match step {
        Step::Put { value, .. } => *value = Literal::Bytes(bytes.to_vec()),
        Step::OnExpiry {
            effect: Some(effect),
            ..
        } => set_value(effect, bytes),
        Step::OnExpiry { effect: None, .. } | Step::Instruction(_) => {}
    }
}

fn add(apply: &mut Apply, handles: &[ApplyKey], step: Step) -> Result<(), Vec<u8>> {
    match step {
        Step::Instruction(instruction) => drop(apply.then(instruction)),
        Step::Put { key, way, value } => {
            let Literal::Bytes(value) = value else {
                return Err(b"ERR @FILE is for the shell: give the value itself".to_vec());
            };
            way.add(apply, handles[usize::from(key)], &value);
        }
        Step::OnExpiry { .. } => return Err(b"ERR an effect arms no key".to_vec()),
    }
    Ok(())
}

/// Adds what runs when the armed key expires.
fn arm(
    apply: &mut Apply,
    handles: &[ApplyKey],
    armed: Option<u8>,
    effects: &mut Vec<Step>,
) -> Result<(), Vec<u8>> {
    let Some(key) = armed else {
        return Ok(());
    };
    let mut result = Ok(());
    apply.on_expire(handles[usize::from(key)], |apply| {
        for effect in effects.drain(..) {
            if result.is_ok() {
                result = add(apply, handles, effect);
            }
        }
    });
    result
}
