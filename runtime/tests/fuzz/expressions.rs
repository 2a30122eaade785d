//! Guards, effects, fields and values as they are typed: what is accepted can go to the server and
//! means the same when it is written plainly; what is refused is told with its column.
//!
//! An input is one byte (what the text is to be) and the text.

use penstock_net::apply::{
    Action, ApplyInstruction, Arithmetic, BitTest, Comparison, NumberAt, Operand,
};
use penstock_net::expression::{
    ExpressionError, Field, FieldKind, LayoutField, Literal, NamedKey, Step, TEXT_BYTES,
    ValueLayout, number_name, parse_step, parse_step_of_only_key,
};
use penstock_net::instruction::{Instruction, Operation};

use crate::target::{Choices, keep};
use crate::{FOLDER, in_proportion};

pub fn judge(input: &[u8]) {
    let mut choices = Choices::new(input);
    let manner = choices.byte();
    let text = String::from_utf8_lossy(choices.rest());
    let bytes = text.len();
    match manner % 5 {
        0 => match in_proportion(bytes, || parse_step_of_only_key(&text)) {
            Ok(step) => {
                if let Some(instruction) = step.of_update_if() {
                    let read = Instruction::read(&instruction.encode(), 0, 2);
                    assert_eq!(
                        read,
                        Ok(instruction),
                        "the server takes what the shell sends"
                    );
                    let plain = written(instruction);
                    assert_eq!(parse_step_of_only_key(&plain), Ok(step), "{plain}");
                }
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
        2 => match in_proportion(bytes, || Literal::parse(&text)) {
            Ok(Literal::Bytes(value)) => {
                let hex: String = value.iter().map(|byte| format!("{byte:02x}")).collect();
                let again = Literal::parse(&format!("0x{hex}"));
                assert_eq!(again, Ok(Literal::Bytes(value)));
            }
            Ok(Literal::File(path)) => assert_eq!(path.to_str(), text.strip_prefix('@')),
            Err(error) => check(&text, &error),
        },
        3 => judge_step(&text),
        _ => judge_layout(&text),
    }
}

/// The layout of `penstock load`, `export` and `report`.
fn judge_layout(text: &str) {
    let layout = match ValueLayout::parse(text) {
        Ok(layout) => layout,
        Err(error) => return check(text, &error),
    };
    assert_ne!(layout.mark(), 0);
    let mut end = 0;
    for field in layout.fields() {
        end = end_of(field, end);
    }
    assert!(end <= layout.bytes() && !layout.fields().is_empty());
}

/// Where a field ends that begins behind the one before.
fn end_of(LayoutField { name, kind, offset }: &LayoutField, before: usize) -> usize {
    assert!(*offset >= before, "{name} begins behind the one before");
    let is_text = *kind == FieldKind::Text;
    assert!(!is_text || kind.bytes() == TEXT_BYTES, "{name}");
    offset + kind.bytes()
}

/// One argument of `penstock apply`, on the keys `s` and `h`.
fn judge_step(text: &str) {
    let keys = ["s=stock", "h=a=b"].map(|text| NamedKey::parse(text).expect("a named key"));
    assert_eq!(keys[1].key, "a=b");
    match in_proportion(text.len(), || parse_step(text, &keys)) {
        Ok(Step::Instruction(instruction)) => {
            let read = ApplyInstruction::read(&instruction.encode(), 0, 2, 0);
            assert_eq!(
                read,
                Ok(instruction),
                "the server takes what the shell sends"
            );
            let plain = step_written(instruction);
            let again = parse_step(&plain, &keys);
            assert_eq!(again, Ok(Step::Instruction(instruction)), "{plain}");
        }
        Ok(Step::Put { key, way, .. }) => {
            let name = ["s", "h"][usize::from(key)];
            let text = text.trim_start();
            let behind = text.strip_prefix(name).expect("the name comes first");
            assert!(behind.trim_start().starts_with(way.word()));
        }
        Ok(Step::OnExpiry { key, effect }) => {
            let name = ["s", "h"][usize::from(key)];
            let plain = match effect.as_deref() {
                None => format!("when {name} expires"),
                Some(Step::Instruction(effect)) => {
                    assert!(effect.may_run_later(), "{effect:?}");
                    format!("when {name} expires: {}", step_written(*effect))
                }
                Some(Step::Put { .. }) => return,
                Some(Step::OnExpiry { .. }) => panic!("what runs later arms nothing"),
            };
            let again = parse_step(&plain, &keys);
            assert_eq!(again, Ok(Step::OnExpiry { key, effect }), "{plain}");
        }
        Err(error) => check(text, &error),
    }
}

/// An instruction of APPLY in its plainest words.
fn step_written(instruction: ApplyInstruction) -> String {
    let name = |key: u8| ["s", "h"][usize::from(key)];
    let key = name(instruction.key);
    let number = |at: NumberAt| format!("{key}.{}", number_name(at));
    let operand = |operand: Operand, is_signed: bool| match operand {
        Operand::Field { key, at } => format!("{}.{}", name(key), number_name(at)),
        Operand::Now { plus_ms: 0 } => "now".into(),
        Operand::Now { plus_ms } if plus_ms < 0 => format!("now-{}ms", plus_ms.unsigned_abs()),
        Operand::Now { plus_ms } => format!("now+{plus_ms}ms"),
        Operand::Immediate(bits) if is_signed => bits.cast_signed().to_string(),
        Operand::Immediate(bits) => bits.to_string(),
    };
    let what = match instruction.action {
        Action::Exists => format!("{key} exists"),
        Action::Absent => format!("{key} absent"),
        Action::Delete => format!("{key} del"),
        Action::Version(version) => format!("{key} version {}:{}", version.epoch, version.sequence),
        Action::AbsentSince(version) => {
            format!("{key} absent since {}:{}", version.epoch, version.sequence)
        }
        Action::Before(time) => format!("before {}", operand(time, false)),
        Action::Since(time) => format!("since {}", operand(time, false)),
        Action::Expire(Operand::Immediate(0)) => format!("{key} expires never"),
        Action::Expire(time) => format!("{key} expires at {}", operand(time, false)),
        Action::Compare(comparison, at, other) => {
            let sign = match comparison {
                Comparison::Eq => "==",
                Comparison::Ne => "!=",
                Comparison::Lt => "<",
                Comparison::Le => "<=",
                Comparison::Gt => ">",
                Comparison::Ge => ">=",
            };
            format!(
                "{} {sign} {}",
                number(at),
                operand(other, at.kind().is_signed())
            )
        }
        Action::Bits(test, at, bits) => {
            let which = match test {
                BitTest::All => "all",
                BitTest::Any => "any",
                BitTest::None => "no",
            };
            let bits = operand(bits, at.kind().is_signed());
            format!("{} has {which} bits {bits}", number(at))
        }
        Action::Change(change, at, by) => {
            let (sign, behind) = match change {
                Arithmetic::Set => ("=", ""),
                Arithmetic::Add => ("+=", ""),
                Arithmetic::Sub => ("-=", ""),
                Arithmetic::AddSaturating => ("+=", " saturating"),
                Arithmetic::SubSaturating => ("-=", " saturating"),
                Arithmetic::Min => ("min=", ""),
                Arithmetic::Max => ("max=", ""),
                Arithmetic::And => ("&=", ""),
                Arithmetic::Or => ("|=", ""),
                Arithmetic::Xor => ("^=", ""),
            };
            let by = operand(by, at.kind().is_signed());
            format!("{} {sign} {by}{behind}", number(at))
        }
        Action::Rate(at, rate) => {
            // One unit in so many milliseconds, or so many units in one.
            let of = match rate.interval_us.is_multiple_of(1_000) {
                true => format!("1/{}ms", rate.interval_us / 1_000),
                false => format!("{}/{}ms", 1_000, rate.interval_us),
            };
            format!(
                "{} rate {of} burst {} take {}",
                number(at),
                rate.burst,
                rate.quantity
            )
        }
        Action::Return(at) => format!("return {}", number(at)),
        Action::Put { .. }
        | Action::Start { .. }
        | Action::Replace { .. }
        | Action::PutHead { .. }
        | Action::ReplaceHead { .. }
        | Action::OnExpire { .. } => {
            panic!("it is no instruction yet")
        }
    };
    match instruction.reason {
        0 => what,
        reason => format!("{what} else {reason}"),
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
        (3, "s.u32@0 >= 2 else 1"),
        (3, "h.decimal -= s.i64be@8 saturating"),
        (3, "s.u64@0 has any bits now-30s"),
        (3, "h.u64@0 rate 3/10m burst 20 take 4 else 9"),
        (3, "h expires at now+10m"),
        (3, "s version 256:17"),
        (3, "before s.u64@8"),
        (3, "h put u32:2,\u{e9}"),
        (3, "s start @"),
        (3, "return h.decimal"),
        (3, "now exists"),
        (3, "s.u8@0 &=\u{a0}256"),
        (4, "stock:u32@0;is_open:bool@4;name:text@5;=13"),
        (4, "a:{b:u16be@0;c:f64@2;=10}[2][1]@1;d:u8[5]@21;=26"),
        (4, "a:u32@0;b:u32@3;=8"),
        (4, "a:{b:u8@0;=1@0;=1"),
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
