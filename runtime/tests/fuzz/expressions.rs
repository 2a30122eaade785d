//! Guards, effects, fields and values as they are typed: what is accepted can go to the server and
//! means the same when it is written plainly; what is refused is told with its column.
//!
//! An input is one byte (what the text is to be) and the text.

use crate::expression::{ExpressionError, Field, Literal, parse_instruction};
use penstock_net::instruction::{Instruction, Operation};

use crate::target::{Choices, keep};
use crate::{FOLDER, in_proportion};

pub fn judge(input: &[u8]) {
    let mut choices = Choices::new(input);
    let manner = choices.byte();
    let text = String::from_utf8_lossy(choices.rest());
    let bytes = text.len();
    match manner % 3 {
        0 => match in_proportion(bytes, || parse_instruction(&text)) {
            Ok(instruction) => {
                let read = Instruction::read(&instruction.encode(), 0, 2);
                assert_eq!(
                    read,
                    Ok(instruction),
                    "the server takes what the shell sends"
                );
                let plain = written(instruction);
                assert_eq!(parse_instruction(&plain), Ok(instruction), "{plain}");
            }
            Err(error) => check(&text, &error),
        },
        1 => match in_proportion(bytes, || Field::parse(&text)) {
            Ok(field) => {
                let plain = format!("{}@{}", field.field_type.name(), field.offset);
                assert_eq!(Field::parse(&plain), Ok(field));
                let value = [0xA5; 24];
                let (low, high) = field.field_type.range();
                let fits = field.offset as usize + field.field_type.width() <= value.len();
                let number = field.read(&value);
                assert_eq!(number.is_some(), fits, "{plain}");
                assert!(number.is_none_or(|number| (low..=high).contains(&number)));
            }
            Err(error) => check(&text, &error),
        },
        _ => match in_proportion(bytes, || Literal::parse(&text)) {
            Ok(Literal::Bytes(value)) => {
                let hex: String = value.iter().map(|byte| format!("{byte:02x}")).collect();
                let again = Literal::parse(&format!("0x{hex}"));
                assert_eq!(again, Ok(Literal::Bytes(value)));
            }
            Ok(Literal::File(path)) => assert_eq!(path.to_str(), text.strip_prefix('@')),
            Err(error) => check(&text, &error),
        },
    }
}

/// The instruction in its plainest words.
fn written(instruction: Instruction) -> String {
    let key = if instruction.key == 1 { "second." } else { "" };
    let sign = match instruction.operation {
        Operation::Exists => "exists",
        Operation::Absent => "absent",
        Operation::Eq => "==",
        Operation::Ne => "!=",
        Operation::Lt => "<",
        Operation::Le => "<=",
        Operation::Gt => ">",
        Operation::Ge => ">=",
        Operation::Set => "=",
        Operation::Add => "+=",
        Operation::Sub => "-=",
    };
    let field_type = instruction.field_type;
    let number = match field_type.is_signed() {
        true => instruction.immediate.cast_signed().to_string(),
        false => instruction.immediate.to_string(),
    };
    let what = match instruction.operation {
        Operation::Exists | Operation::Absent => sign.to_string(),
        _ => format!(
            "{}@{} {sign} {number}",
            field_type.name(),
            instruction.offset
        ),
    };
    match instruction.reason {
        0 => format!("{key}{what}"),
        reason => format!("{key}{what} else {reason}"),
    }
}

/// An error shows as one line that names a column of the text.
fn check(text: &str, error: &ExpressionError) {
    let shown = error.to_string();
    assert!(!shown.contains('\n'), "{shown:?}");
    let quoted = format!("{text:?}, column ");
    let column = shown.strip_prefix(&quoted).expect("the text comes first");
    let column = column.split(':').next().expect("a number");
    let column: usize = column.parse().expect("a number");
    assert!((1..=text.chars().count() + 1).contains(&column), "{shown}");
}

#[test]
fn sentences_of_the_shell_are_kept() {
    let sentences = [
        (0, "u32@0 >= 1"),
        (0, "second.i64be@8 -= 0x7fff_ffff else 255"),
        (0, "second.absent else 4"),
        (0, "exists"),
        (0, "i8@4294967295==-128"),
        (0, "u64@0 += 18446744073709551616"),
        (0, "u8@0 <= 1 else 0"),
        (0, " u16@1\u{a0}=\u{e9}"),
        (1, "u16be@3"),
        (1, "i32@-1"),
        (2, "u32:100,u64be:7"),
        (2, "i8:-129"),
        (2, "u8:1,\u{e9}"),
        (2, "u8:1,u16"),
        (2, "0x00ff"),
        (2, "0x0"),
        (2, "0x\u{e9}0"),
        (2, "@file"),
        (2, "@"),
        (2, "text:@plain"),
        (2, "plain"),
    ];
    let inputs: Vec<(String, Vec<u8>)> = (1..)
        .zip(sentences)
        .map(|(number, (manner, text))| {
            let input = [&[manner], text.as_bytes()].concat();
            (format!("sentence-{number:02}"), input)
        })
        .collect();
    keep(FOLDER, "expressions", &inputs);
}
