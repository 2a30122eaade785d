//! A program: the instructions and the data of an APPLY with blanks that arguments fill.

use std::sync::Arc;

use crate::apply::{APPLY, ApplyInstruction, ApplyRequest};
use crate::batch::{padded, read_u32, read_u64};
use crate::instruction::{FieldType, INSTRUCTION_BYTES};
use crate::limits::{PROGRAM_ARGUMENTS_MAX, VALUE_BYTES_HARD_MAX};
use crate::program::id::{Hash, ProgramId};
use crate::program::instance::{Run, RunArgument};
use crate::program::names::AnswerNames;
use crate::program::request::RunRequest;
use crate::refusal::{Refusal, ShownName};

/// Bytes of an item of APPLY before its instructions.
const APPLY_HEAD_BYTES: usize = 32;
/// Where the 64 bits of an operand begin in an instruction.
const OPERAND_AT: usize = 8;
/// Where the quantity of a rate stands in an instruction.
const QUANTITY_AT: usize = 15;

/// What an argument may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArgumentKind {
    /// A whole number between the two, both included. It is read as an i64 if the least one is
    /// negative, as a u64 otherwise.
    Number {
        /// The least.
        min: i128,
        /// The greatest.
        max: i128,
    },
    /// Bytes.
    Bytes {
        /// How many they are, at most.
        max: u32,
    },
}

/// An argument of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Argument {
    /// For people.
    pub name: String,
    /// What it may be.
    pub kind: ArgumentKind,
}

/// A place that an argument fills.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blank {
    /// The 64 bits of the operand of an instruction.
    Operand {
        /// The number of the instruction.
        instruction: u8,
        /// The number of the argument.
        argument: u8,
    },
    /// The quantity of a RATE.
    Quantity {
        /// The number of the instruction.
        instruction: u8,
        /// The number of the argument.
        argument: u8,
    },
    /// A number in the data.
    Number {
        /// Where it begins in the data.
        at: u32,
        /// How it is written.
        field_type: FieldType,
        /// The number of the argument.
        argument: u8,
    },
    /// Bytes in the data, with zeros behind them up to the longest.
    Bytes {
        /// Where they begin in the data.
        at: u32,
        /// The number of the argument.
        argument: u8,
    },
    /// The whole value that a PUT or START puts.
    Value {
        /// The number of the instruction.
        instruction: u8,
        /// The number of the argument.
        argument: u8,
    },
}

/// What a program is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramParts {
    /// Its name.
    pub name: String,
    /// The names of its keys, for people.
    pub keys: Vec<String>,
    /// Its arguments.
    pub arguments: Vec<Argument>,
    /// Its instructions, with zeros where arguments stand.
    pub instructions: Vec<ApplyInstruction>,
    /// What PUT and START put, with zeros where arguments stand.
    pub data: Vec<u8>,
    /// The places that arguments fill.
    pub blanks: Vec<Blank>,
}

/// A program that was checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    id: ProgramId,
    parts: ProgramParts,
    /// The instructions as they stand in an item.
    encoded: Vec<u8>,
    /// What people call them.
    names: Option<Arc<AnswerNames>>,
}

/// An argument that was read.
#[derive(Clone, Copy)]
enum Given<'a> {
    Number(i128),
    Bytes(&'a [u8]),
}

impl Program {
    /// Checks that any run of the program is an APPLY which a server takes, as far as keys, values
    /// and the limits of a server do not decide it.
    ///
    /// # Errors
    /// The [`Refusal`] with which a server would answer the least or the greatest arguments.
    ///
    /// # Panics
    /// If a blank names an instruction, a place or an argument that there is not.
    pub fn new(parts: ProgramParts) -> Result<Self, Refusal> {
        let encoded: Vec<u8> = parts
            .instructions
            .iter()
            .flat_map(|it| it.encode())
            .collect();
        let program = Program {
            id: id_of(&parts, &encoded),
            parts,
            encoded,
            names: None,
        };
        program.assert_blanks();
        for takes_greatest in [false, true] {
            let mut item = Vec::new();
            let run = program.sample(takes_greatest);
            program.expand(&RunRequest::read(&run)?, &mut item)?;
            let value_bytes_max = u32::try_from(VALUE_BYTES_HARD_MAX).expect("16 MiB");
            ApplyRequest::read(&item, value_bytes_max)?;
        }
        Ok(program)
    }

    /// The same with the words of its instructions, which are none of its meaning.
    #[must_use]
    pub fn with_names(mut self, names: AnswerNames) -> Self {
        self.names = Some(Arc::new(names));
        self
    }

    /// The words of its instructions, if they are known.
    #[must_use]
    pub fn names(&self) -> Option<&Arc<AnswerNames>> {
        self.names.as_ref()
    }

    /// The id.
    #[must_use]
    pub fn id(&self) -> ProgramId {
        self.id
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.parts.name
    }

    /// The names of its keys.
    #[must_use]
    pub fn keys(&self) -> &[String] {
        &self.parts.keys
    }

    /// The arguments.
    #[must_use]
    pub fn arguments(&self) -> &[Argument] {
        &self.parts.arguments
    }

    /// The instructions, with zeros where arguments stand.
    #[must_use]
    pub fn instructions(&self) -> &[ApplyInstruction] {
        &self.parts.instructions
    }

    /// Whether a run may change something.
    #[must_use]
    pub fn has_effect(&self) -> bool {
        self.instructions().iter().any(ApplyInstruction::is_effect)
    }

    /// Makes the item of APPLY, in the place of what `out` holds.
    pub(super) fn expand(&self, run: &RunRequest<'_>, out: &mut Vec<u8>) -> Result<(), Refusal> {
        if usize::from(run.key_count()) != self.parts.keys.len() {
            return Err(Refusal::ProgramKeys {
                program: self.shown(),
                keys: self.parts.keys.len(),
                found: run.key_count(),
            });
        }
        let given = self.read_arguments(run)?;
        let short = |number: usize| u16::try_from(number).expect("64 instructions and a token");
        out.clear();
        out.extend_from_slice(&run.head[..APPLY_HEAD_BYTES]);
        let block = APPLY_HEAD_BYTES + self.encoded.len() + run.extension.len();
        out[0..2].copy_from_slice(&short(block).to_le_bytes());
        out[2] = APPLY;
        out[5] = u8::try_from(self.parts.instructions.len()).unwrap_or(u8::MAX);
        out.extend_from_slice(&self.encoded);
        out.extend_from_slice(run.extension);
        out.extend_from_slice(run.keys);
        let data_at = out.len();
        out.extend_from_slice(&self.parts.data);
        for blank in &self.parts.blanks {
            fill(*blank, &given, data_at, out);
        }
        let data_len = out.len() - data_at;
        out.resize(data_at + padded(data_len), 0);
        let data_len = u32::try_from(data_len).unwrap_or(u32::MAX);
        out[12..16].copy_from_slice(&data_len.to_le_bytes());
        Ok(())
    }

    /// Reads the arguments of a request and checks each against its kind.
    fn read_arguments<'a>(
        &self,
        run: &RunRequest<'a>,
    ) -> Result<[Given<'a>; PROGRAM_ARGUMENTS_MAX], Refusal> {
        let arguments = &self.parts.arguments;
        if usize::from(run.argument_count()) != arguments.len() {
            return Err(Refusal::ProgramArguments {
                program: self.shown(),
                arguments: arguments.len(),
                found: run.argument_count(),
            });
        }
        let mut given = [Given::Number(0); PROGRAM_ARGUMENTS_MAX];
        let mut at = 0;
        let length = |needed: usize| Refusal::ProgramArgumentBytes {
            program: self.shown(),
            needed,
            found: run.arguments.len(),
        };
        for (given, Argument { name, kind }) in given.iter_mut().zip(arguments) {
            let Some(word) = run.arguments.get(at..at + 8) else {
                return Err(length(at + 8));
            };
            at += 8;
            match *kind {
                ArgumentKind::Number { min, max } => {
                    let bits = read_u64(word, 0);
                    let found = match min < 0 {
                        true => i128::from(bits.cast_signed()),
                        false => i128::from(bits),
                    };
                    if !(min..=max).contains(&found) {
                        return Err(Refusal::ArgumentNumber {
                            program: self.shown(),
                            argument: ShownName::new(name),
                            is_signed: min < 0,
                            found: bits,
                            min: bits_of(min),
                            max: bits_of(max),
                        });
                    }
                    *given = Given::Number(found);
                }
                ArgumentKind::Bytes { max } => {
                    let len = read_u32(word, 0);
                    if len > max {
                        return Err(Refusal::ArgumentBytes {
                            program: self.shown(),
                            argument: ShownName::new(name),
                            len,
                            max,
                        });
                    }
                    if read_u32(word, 4) != 0 {
                        return Err(Refusal::Reserved {
                            name: "the word behind the length of an argument",
                            found: read_u32(word, 4).into(),
                        });
                    }
                    let (start, len) = (at, len as usize);
                    at += padded(len);
                    let Some(whole) = run.arguments.get(start..at) else {
                        return Err(length(at));
                    };
                    if whole[len..].iter().any(|&byte| byte != 0) {
                        return Err(Refusal::Padding {
                            behind: "an argument",
                        });
                    }
                    *given = Given::Bytes(&whole[..len]);
                }
            }
        }
        match at == run.arguments.len() {
            true => Ok(given),
            false => Err(length(at)),
        }
    }

    fn shown(&self) -> ShownName {
        ShownName::new(&self.parts.name)
    }

    /// An item of RUN with the least or the greatest arguments.
    fn sample(&self, takes_greatest: bool) -> Vec<u8> {
        let mut run = Run::new(self.id);
        for number in 0..self.parts.keys.len() {
            run = run.key(format!("{{a}}{number}").as_bytes());
        }
        for argument in &self.parts.arguments {
            run = match argument.kind {
                ArgumentKind::Number { min, max } => {
                    let number = if takes_greatest { max } else { min };
                    run.argument(RunArgument::Number(bits_of(number)))
                }
                ArgumentKind::Bytes { max } => {
                    let len = if takes_greatest { max } else { 0 };
                    run.argument(&vec![0; len as usize][..])
                }
            };
        }
        let mut item = Vec::new();
        run.write(&mut item);
        item
    }

    /// The compiler names what there is.
    fn assert_blanks(&self) {
        let parts = &self.parts;
        let kind = |argument: u8| parts.arguments[usize::from(argument)].kind;
        let is_number = |argument| matches!(kind(argument), ArgumentKind::Number { .. });
        for blank in &parts.blanks {
            let is_good = match *blank {
                Blank::Operand {
                    instruction,
                    argument,
                }
                | Blank::Quantity {
                    instruction,
                    argument,
                } => usize::from(instruction) < parts.instructions.len() && is_number(argument),
                Blank::Number {
                    at,
                    field_type,
                    argument,
                } => match kind(argument) {
                    ArgumentKind::Number { min, max } => {
                        let (least, greatest) = field_type.range();
                        let end = at as usize + field_type.width();
                        least <= min && max <= greatest && end <= parts.data.len()
                    }
                    ArgumentKind::Bytes { .. } => false,
                },
                Blank::Bytes { at, argument } => match kind(argument) {
                    ArgumentKind::Bytes { max } => (at + max) as usize <= parts.data.len(),
                    ArgumentKind::Number { .. } => false,
                },
                Blank::Value {
                    instruction,
                    argument,
                } => usize::from(instruction) < parts.instructions.len() && !is_number(argument),
            };
            assert!(is_good, "{blank:?} of {}", parts.name);
        }
    }
}

/// Writes an argument into its place. The instructions begin behind the head, and the data at
/// `data_at`.
fn fill(blank: Blank, given: &[Given<'_>], data_at: usize, out: &mut Vec<u8>) {
    let number = |argument: u8| match given[usize::from(argument)] {
        Given::Number(number) => number,
        Given::Bytes(_) => unreachable!("asserted with the program"),
    };
    let bytes = |argument: u8| match given[usize::from(argument)] {
        Given::Bytes(bytes) => bytes,
        Given::Number(_) => unreachable!("asserted with the program"),
    };
    let place = |number: u8| APPLY_HEAD_BYTES + usize::from(number) * INSTRUCTION_BYTES;
    match blank {
        Blank::Operand {
            instruction,
            argument,
        } => {
            let at = place(instruction) + OPERAND_AT;
            out[at..at + 8].copy_from_slice(&bits_of(number(argument)).to_le_bytes());
        }
        Blank::Quantity {
            instruction,
            argument,
        } => {
            let quantity = u8::try_from(number(argument)).unwrap_or(u8::MAX);
            out[place(instruction) + QUANTITY_AT] = quantity;
        }
        Blank::Number {
            at,
            field_type,
            argument,
        } => {
            let place = &mut out[data_at + at as usize..][..field_type.width()];
            field_type.store(number(argument), place);
        }
        Blank::Bytes { at, argument } => {
            let bytes = bytes(argument);
            out[data_at + at as usize..][..bytes.len()].copy_from_slice(bytes);
        }
        Blank::Value {
            instruction,
            argument,
        } => {
            let bytes = bytes(argument);
            let start = u32::try_from(out.len() - data_at).unwrap_or(u32::MAX);
            out.extend_from_slice(bytes);
            let at = place(instruction);
            out[at + 4..at + 8].copy_from_slice(&start.to_le_bytes());
            out[at + 8..at + 16].copy_from_slice(&(bytes.len() as u64).to_le_bytes());
        }
    }
}

/// A number as 64 bits: two's complement if it is negative.
fn bits_of(number: i128) -> u64 {
    let [low @ .., _, _, _, _, _, _, _, _] = number.to_le_bytes();
    u64::from_le_bytes(low)
}

/// The id: RUN.md lists what is hashed.
fn id_of(parts: &ProgramParts, encoded: &[u8]) -> ProgramId {
    let mut hash = Hash::begin();
    hash.number(parts.name.len() as u64);
    hash.bytes(parts.name.as_bytes());
    hash.number(parts.keys.len() as u64);
    hash.number(parts.arguments.len() as u64);
    for argument in &parts.arguments {
        let (kind, min, max) = match argument.kind {
            ArgumentKind::Number { min, max } => (u64::from(min < 0), bits_of(min), bits_of(max)),
            ArgumentKind::Bytes { max } => (2, 0, max.into()),
        };
        for word in [kind, min, max] {
            hash.number(word);
        }
    }
    hash.number(parts.instructions.len() as u64);
    hash.bytes(encoded);
    hash.number(parts.data.len() as u64);
    hash.bytes(&parts.data);
    hash.number(parts.blanks.len() as u64);
    for blank in &parts.blanks {
        let (kind, at, field_type, argument) = match *blank {
            Blank::Operand {
                instruction,
                argument,
            } => (1, instruction.into(), 0, argument),
            Blank::Quantity {
                instruction,
                argument,
            } => (2, instruction.into(), 0, argument),
            Blank::Number {
                at,
                field_type,
                argument,
            } => (3, at, field_type.code(), argument),
            Blank::Bytes { at, argument } => (4, at, 0, argument),
            Blank::Value {
                instruction,
                argument,
            } => (5, instruction.into(), 0, argument),
        };
        for word in [kind, u64::from(at), field_type.into(), argument.into()] {
            hash.number(word);
        }
    }
    hash.id()
}

#[cfg(test)]
mod tests;
