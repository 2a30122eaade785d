//! What people call the numbers and the instructions of an answer: the words of the instructions.

use crate::apply::{Action, ApplyInstruction, NumberKind};

/// Bytes of an instruction that an answer shows.
const TEXT_BYTES_MAX: usize = 128;

/// The words of the instructions of a program, or of one APPLY.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnswerNames {
    /// Of each instruction, in its order.
    texts: Vec<Box<str>>,
    /// The number that an instruction makes, tells or sees.
    numbers: Vec<Option<NumberKind>>,
    /// The instructions whose numbers an OK tells, in their order.
    returned: Vec<u8>,
}

impl AnswerNames {
    /// The words of each instruction are those of `text`.
    #[must_use]
    pub fn new<'t>(
        instructions: &[ApplyInstruction],
        text: impl Fn(usize) -> Option<&'t str>,
    ) -> Self {
        let begin = |text: &str| text[..text.floor_char_boundary(TEXT_BYTES_MAX)].into();
        let texts = (0..instructions.len()).map(|number| begin(text(number).unwrap_or_default()));
        let kind = |it: &ApplyInstruction| match it.action {
            Action::Compare(_, at, _)
            | Action::Bits(_, at, _)
            | Action::Change(_, at, _)
            | Action::Return(at) => Some(at.kind()),
            _ => None,
        };
        let (mut returned, mut later) = (Vec::new(), 0);
        for (instruction, number) in instructions.iter().zip(0..=u8::MAX) {
            // What runs when a key expires tells nothing.
            let is_now = later == 0;
            later = match instruction.effects() {
                Some(effects) => effects,
                None => later.saturating_sub(1),
            };
            let returns = matches!(
                instruction.action,
                Action::Change(..) | Action::Rate(..) | Action::Return(..)
            );
            if is_now && returns {
                returned.push(number);
            }
        }
        AnswerNames {
            texts: texts.collect(),
            numbers: instructions.iter().map(kind).collect(),
            returned,
        }
    }

    /// The words of an instruction.
    #[must_use]
    pub fn text(&self, instruction: usize) -> Option<&str> {
        self.texts.get(instruction).map(|text| &**text)
    }

    /// The names of the numbers that an OK tells, in their order, with their kinds.
    pub fn returned(&self) -> impl Iterator<Item = (&str, Option<NumberKind>)> {
        let returned = self.returned.iter().map(|it| usize::from(*it));
        returned.map(|it| (name_in(&self.texts[it]), self.numbers[it]))
    }

    /// The name of the number that a guard has seen, if it saw a field.
    #[must_use]
    pub fn seen(&self, instruction: usize) -> Option<(&str, NumberKind)> {
        let kind = (*self.numbers.get(instruction)?)?;
        Some((name_in(&self.texts[instruction]), kind))
    }
}

/// The name that an instruction begins with, such as `stock.available`.
fn name_in(text: &str) -> &str {
    let text = text.trim_start();
    let text = text.strip_prefix("return ").unwrap_or(text).trim_start();
    let is_of_name = |it: char| it.is_ascii_alphanumeric() || "_.@[]".contains(it);
    let end = text.find(|it| !is_of_name(it)).unwrap_or(text.len());
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expression::{NamedKey, Step, parse_step};

    #[test]
    fn as_many_instructions_as_an_item_may_have_are_named() {
        let keys = [NamedKey {
            name: "k1".to_string(),
            key: String::new(),
        }];
        let Ok(Step::Instruction(instruction)) = parse_step("return k1.u32@0", &keys) else {
            panic!("it is one");
        };
        let all = vec![instruction; usize::from(u8::MAX)];
        let names = AnswerNames::new(&all, |_| Some("return k1.u32@0"));
        assert_eq!(names.returned().count(), all.len());
    }

    #[test]
    fn numbers_have_the_names_that_their_instructions_begin_with() {
        let texts = [
            "k1.u32@0 >= 1 else 1",
            "k1.u32@0 -= 1",
            "k1.decimal+=2",
            "return k1.i64@8",
            "k1 expires in 10m",
        ];
        let keys = [NamedKey {
            name: "k1".to_string(),
            key: String::new(),
        }];
        let instructions = texts.map(|text| match parse_step(text, &keys) {
            Ok(Step::Instruction(instruction)) => instruction,
            other => panic!("{other:?}"),
        });
        let names = AnswerNames::new(&instructions, |number| texts.get(number).copied());
        let returned: Vec<&str> = names.returned().map(|(name, _)| name).collect();
        assert_eq!(returned, ["k1.u32@0", "k1.decimal", "k1.i64@8"]);
        assert_eq!(names.seen(0).map(|(name, _)| name), Some("k1.u32@0"));
        assert_eq!(names.seen(4), None);
        assert_eq!(names.text(0), Some(texts[0]));
        assert_eq!(names.text(5), None);
    }
}
