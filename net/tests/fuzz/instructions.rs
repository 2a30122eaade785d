//! A program on one value, compared step by step with the same program on numbers without bounds.
//!
//! An input is the length of the value, the value, and instructions of 16 bytes.

use penstock_net::instruction::{INSTRUCTION_BYTES, Instruction, Operation, Outcome};

use crate::target::Choices;
use crate::{check_refusal, without_memory};

pub fn judge(input: &[u8]) {
    let mut choices = Choices::new(input);
    let len = choices.byte();
    let mut value = choices.bytes(usize::from(len % 32)).to_vec();
    let mut number = 0;
    while !choices.is_empty() {
        let mut bytes = [0; INSTRUCTION_BYTES];
        let given = choices.bytes(INSTRUCTION_BYTES);
        bytes[..given.len()].copy_from_slice(given);
        match without_memory(|| Instruction::read(&bytes, number, 2)) {
            Ok(instruction) => {
                assert_eq!(instruction.encode(), bytes, "an instruction has one form");
                run(instruction, &mut value);
            }
            Err(refusal) => check_refusal(refusal),
        }
        number += 1;
    }
}

fn run(instruction: Instruction, value: &mut [u8]) {
    if matches!(instruction.operation, Operation::Exists | Operation::Absent) {
        return;
    }
    let before = value.to_vec();
    let expected = by_the_book(instruction, &before);
    let outcome = without_memory(|| instruction.run(value));
    assert_eq!((outcome, value.to_vec()), expected, "{instruction:?}");
    if let Outcome::Changed { before: field, .. } = outcome {
        let after = value.to_vec();
        without_memory(|| instruction.undo(field, value));
        assert_eq!(value, before, "an edit can be taken back: {instruction:?}");
        value.copy_from_slice(&after);
    }
}

/// What the document says of the instruction, in numbers of 128 bits.
fn by_the_book(instruction: Instruction, value: &[u8]) -> (Outcome, Vec<u8>) {
    let mut value = value.to_vec();
    let code = instruction.field_type.code();
    let (width, is_signed, is_big) = (1usize << (code & 3), code & 4 != 0, code & 0x10 != 0);
    let bits = u32::try_from(8 * width).expect("at most 64");
    let start = instruction.offset as usize;
    let Some(field) = value.get(start..start + width) else {
        return (Outcome::OutsideValue, value);
    };
    let mut bytes = field.to_vec();
    if is_big {
        bytes.reverse();
    }
    let unsigned = bytes
        .iter()
        .rev()
        .fold(0i128, |number, &byte| number << 8 | i128::from(byte));
    let (low, high) = if is_signed {
        (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1)
    } else {
        (0, (1i128 << bits) - 1)
    };
    let number = if unsigned > high {
        unsigned - (1i128 << bits)
    } else {
        unsigned
    };
    let immediate = if is_signed {
        i128::from(instruction.immediate.cast_signed())
    } else {
        i128::from(instruction.immediate)
    };
    let shown = |number: i128| {
        let bytes = number.to_le_bytes();
        u64::from_le_bytes(*bytes.first_chunk().expect("sixteen bytes"))
    };
    let actual = shown(number);
    let holds = match instruction.operation {
        Operation::Eq => number == immediate,
        Operation::Ne => number != immediate,
        Operation::Lt => number < immediate,
        Operation::Le => number <= immediate,
        Operation::Gt => number > immediate,
        Operation::Ge => number >= immediate,
        effect => {
            let after = match effect {
                Operation::Set => immediate,
                Operation::Add => number + immediate,
                _ => number - immediate,
            };
            if !(low..=high).contains(&after) {
                let overflow = true;
                return (Outcome::Failed { actual, overflow }, value);
            }
            let mut bytes = after.to_le_bytes()[..width].to_vec();
            if is_big {
                bytes.reverse();
            }
            value[start..start + width].copy_from_slice(&bytes);
            let outcome = Outcome::Changed {
                before: actual,
                after: shown(after),
            };
            return (outcome, value);
        }
    };
    let overflow = false;
    let outcome = if holds {
        Outcome::Holds
    } else {
        Outcome::Failed { actual, overflow }
    };
    (outcome, value)
}
