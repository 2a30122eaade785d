//! Steps become the instructions, the data and the blanks of a program.

use penstock_net::apply::{Action, ApplyInstruction};
use penstock_net::limits::INSTRUCTIONS_MAX;
use penstock_net::program::{Argument, Blank};

use super::declaration::{ProgramDeclaration, Written};
use super::defect::Defect;
use penstock_net::expression::{Filled, Literal, Step};

/// What a program is put together of.
#[derive(Debug, Default)]
pub(super) struct Assembly {
    pub(super) instructions: Vec<ApplyInstruction>,
    pub(super) data: Vec<u8>,
    pub(super) blanks: Vec<Blank>,
    /// Of each instruction the number of its text.
    pub(super) texts: Vec<usize>,
    used: Vec<u8>,
}

impl Assembly {
    /// Adds the steps of these texts.
    ///
    /// # Errors
    /// The text with which they are too many, or a value that no file of a schema has.
    pub(super) fn add(
        &mut self,
        steps: Vec<(Step, Vec<Filled>)>,
        texts: &[&Written],
    ) -> Result<(), Defect> {
        let mut steps = steps.into_iter().enumerate().peekable();
        while let Some((text, (step, filled))) = steps.next() {
            let Step::OnExpiry { key, effect } = step else {
                self.push(step, &filled, text, texts)?;
                continue;
            };
            let at = self.instructions.len();
            let on_expire = |effects| ApplyInstruction {
                key,
                reason: 0,
                action: Action::OnExpire { effects },
            };
            self.instruction(on_expire(0), text, texts)?;
            if let Some(effect) = effect {
                self.push(*effect, &filled, text, texts)?;
            }
            let is_same = |(_, (next, _)): &(usize, (Step, _))| match next {
                Step::OnExpiry { key: other, .. } => *other == key,
                _ => false,
            };
            while let Some((text, (Step::OnExpiry { effect, .. }, filled))) = steps.next_if(is_same)
            {
                if let Some(effect) = effect {
                    self.push(*effect, &filled, text, texts)?;
                }
            }
            let effects = u8::try_from(self.instructions.len() - at - 1).expect("64 at most");
            self.instructions[at] = on_expire(effects);
        }
        Ok(())
    }

    /// Adds one guard or effect.
    fn push(
        &mut self,
        step: Step,
        filled: &[Filled],
        text: usize,
        texts: &[&Written],
    ) -> Result<(), Defect> {
        let data_at = u32::try_from(self.data.len()).expect("64 values of 16 MiB");
        let instruction = match step {
            Step::Instruction(instruction) => instruction,
            Step::Put { key, way, value } => {
                let Literal::Bytes(bytes) = value else {
                    let what = format!("{:?}: a program puts no file", texts[text].text());
                    return Err(texts[text].defect(what));
                };
                let (start, len) = (data_at, u32::try_from(bytes.len()).unwrap_or(u32::MAX));
                self.data.extend_from_slice(&bytes);
                ApplyInstruction {
                    key,
                    reason: 0,
                    action: way.action(start, len),
                }
            }
            Step::OnExpiry { .. } => unreachable!("the parser refuses it within another one"),
        };
        let number = self.instruction(instruction, text, texts)?;
        for filled in filled {
            self.fill(*filled, number, data_at);
        }
        Ok(())
    }

    /// Adds an instruction and returns its number.
    fn instruction(
        &mut self,
        instruction: ApplyInstruction,
        text: usize,
        texts: &[&Written],
    ) -> Result<u8, Defect> {
        if self.instructions.len() == INSTRUCTIONS_MAX {
            let what = format!("with this a program has more than {INSTRUCTIONS_MAX} instructions");
            return Err(texts[text].defect(what));
        }
        let number = u8::try_from(self.instructions.len()).expect("64 at most");
        self.instructions.push(instruction);
        self.texts.push(text);
        Ok(number)
    }

    fn fill(&mut self, filled: Filled, instruction: u8, data_at: u32) {
        let (blank, argument) = match filled {
            Filled::Operand(argument) => (
                Blank::Operand {
                    instruction,
                    argument,
                },
                argument,
            ),
            Filled::Quantity(argument) => (
                Blank::Quantity {
                    instruction,
                    argument,
                },
                argument,
            ),
            Filled::Number {
                at,
                field_type,
                argument,
            } => (
                Blank::Number {
                    at: data_at + at,
                    field_type,
                    argument,
                },
                argument,
            ),
            Filled::Bytes { at, argument } => (
                Blank::Bytes {
                    at: data_at + at,
                    argument,
                },
                argument,
            ),
            Filled::Value(argument) => (
                Blank::Value {
                    instruction,
                    argument,
                },
                argument,
            ),
        };
        self.blanks.push(blank);
        self.used.push(argument);
    }

    /// Refuses an argument that fills nothing, and guards that can never hold together.
    pub(super) fn check(
        &self,
        declared: &ProgramDeclaration,
        arguments: &[Argument],
    ) -> Result<(), Defect> {
        for (number, (argument, written)) in (0..).zip(arguments.iter().zip(&declared.arguments)) {
            if !self.used.contains(&number) {
                let what = format!("argument {} fills nothing", argument.name);
                return Err(written.defect(what));
            }
        }
        for (at, absent) in self.instructions.iter().enumerate() {
            let contradicts = |it: &ApplyInstruction| {
                it.key == absent.key && matches!(it.action, Action::Exists | Action::Version(_))
            };
            if absent.action == Action::Absent && self.instructions.iter().any(contradicts) {
                let texts = declared.instructions.iter().chain(&declared.returns);
                let written = texts.collect::<Vec<_>>()[self.texts[at]];
                let what = format!(
                    "{:?} contradicts another guard: the key exists there",
                    written.text()
                );
                return Err(written.defect(what));
            }
        }
        Ok(())
    }
}
