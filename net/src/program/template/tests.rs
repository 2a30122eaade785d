//! A program makes of a request what the builder of APPLY makes by hand.

use super::*;
use crate::apply::{Action, Apply, Operand};
use crate::program::table::Programs;
use crate::request::{Ask, BatchRequest, Token};

/// Takes units of a stock into a hold that returns by itself: `quantity` 1 to 10, `hold_ms`, a
/// `buyer` of at most 4 bytes, a `note` of at most 8, and a `shift` from -5 to 5.
fn parts() -> ProgramParts {
    let mut apply = Apply::new();
    let stock = apply.key(b"{a}0");
    let hold = apply.key(b"{a}1");
    apply
        .then(stock.u32(0).at_least(0u64).or_else(1))
        .then(stock.u32(0).decrease(0u64))
        .put(hold, &[0; 8])
        .then(hold.expire_in(0))
        .on_expire(hold, |effects| {
            effects.then(stock.u32(0).increase(hold.u32(0)));
        })
        .start(stock, &[])
        .then(stock.field(FieldType::I16, 4).increase(0i64));
    let number = |name: &str, min, max| Argument {
        name: name.into(),
        kind: ArgumentKind::Number { min, max },
    };
    let bytes = |name: &str, max| Argument {
        name: name.into(),
        kind: ArgumentKind::Bytes { max },
    };
    let operand = |instruction, argument| Blank::Operand {
        instruction,
        argument,
    };
    ProgramParts {
        name: "hold".into(),
        keys: vec!["stock".into(), "hold".into()],
        arguments: vec![
            number("quantity", 1, 10),
            number("hold_ms", 1, 1000),
            bytes("buyer", 4),
            bytes("note", 8),
            number("shift", -5, 5),
        ],
        instructions: apply.instructions().to_vec(),
        data: vec![0; 8],
        blanks: vec![
            operand(0, 0),
            operand(1, 0),
            Blank::Number {
                at: 0,
                field_type: FieldType::U32,
                argument: 0,
            },
            Blank::Bytes { at: 4, argument: 2 },
            operand(3, 1),
            Blank::Value {
                instruction: 6,
                argument: 3,
            },
            operand(7, 4),
        ],
    }
}

fn program() -> Program {
    Program::new(parts()).expect("sound")
}

fn programs() -> Programs {
    Programs::new(vec![program()])
}

fn run() -> Run {
    Run::new(program().id())
        .key(b"stock:{7}")
        .key(b"hold:{7}:1")
        .argument(2u32)
        .argument(600u64)
        .argument("ann")
        .argument(&b"a note"[..])
        .argument(-3i32)
}

fn item_of(run: &Run) -> Vec<u8> {
    Ask::Run(run).encode()
}

fn expanded(item: &[u8]) -> Result<Vec<u8>, Refusal> {
    let mut out = vec![0xAA; 7];
    programs().expand(&RunRequest::read(item)?, &mut out)?;
    Ok(out)
}

/// The same by hand.
fn by_hand() -> Vec<u8> {
    let mut apply = Apply::new();
    let stock = apply.key(b"stock:{7}");
    let hold = apply.key(b"hold:{7}:1");
    apply
        .then(stock.u32(0).at_least(2u64).or_else(1))
        .then(stock.u32(0).decrease(2u64))
        .put(hold, b"\x02\0\0\0ann\0")
        .then(hold.expire_in(600))
        .on_expire(hold, |effects| {
            effects.then(stock.u32(0).increase(hold.u32(0)));
        })
        .start(stock, b"a note")
        .then(stock.field(FieldType::I16, 4).increase(-3i64));
    Ask::Apply(&apply).encode()
}

#[test]
fn arguments_fill_operands_numbers_bytes_and_whole_values() {
    assert_eq!(expanded(&item_of(&run())), Ok(by_hand()));
    let request = by_hand();
    let request = ApplyRequest::read(&request, 1 << 20).expect("well formed");
    let shift = request.instructions().last().expect("eight").action;
    let operand = Operand::Immediate((-3i64).cast_unsigned());
    assert!(matches!(shift, Action::Change(_, _, it) if it == operand));
}

#[test]
fn a_token_goes_over_to_the_apply() {
    let token = Token::new(1_764_000_000_000, [7; 10]);
    let mut frame = Vec::new();
    let level = crate::level::AckLevel::Disk;
    let mut batch = BatchRequest::begin(&mut frame, 0, level, 0, 1);
    batch.token(token);
    batch.run(&mut frame, &run());
    batch.finish(&mut frame);
    let item = expanded(&frame[crate::frame::HEADER_BYTES + 16..]).expect("well formed");
    let request = ApplyRequest::read(&item, 1 << 20).expect("well formed");
    assert_eq!(request.token(), Some(token));
    let hash = crate::request::request_hash;
    assert_eq!(hash(&item), hash(&by_hand()));
}

#[test]
fn a_buffer_that_has_grown_once_is_enough() {
    let (programs, item) = (programs(), item_of(&run()));
    let mut out = Vec::new();
    let request = RunRequest::read(&item).expect("well formed");
    programs.expand(&request, &mut out).expect("well formed");
    let (place, capacity) = (out.as_ptr(), out.capacity());
    programs.expand(&request, &mut out).expect("well formed");
    assert_eq!((out.as_ptr(), out.capacity()), (place, capacity));
}

#[test]
fn what_does_not_fit_the_program_is_refused_with_value_and_limit() {
    let other = |run: Run| expanded(&item_of(&run)).expect_err("refused").to_string();
    let begun = || Run::new(program().id()).key(b"{7}a").key(b"{7}b");
    let all = |quantity: u64, buyer: &str, note: &str| {
        begun()
            .argument(quantity)
            .argument(1u8)
            .argument(buyer)
            .argument(note)
            .argument(0u8)
    };
    assert_eq!(
        other(Run::new(ProgramId(7)).key(b"k")),
        "no program here has the id 0x0000000000000007: this node has 1 programs, of other \
         schema files; penstock schema check prints the ids of files"
    );
    assert_eq!(other(begun().key(b"c")), "program hold takes 2 keys, not 3");
    assert_eq!(
        other(begun().argument(1u8)),
        "program hold takes 5 arguments, not 1"
    );
    for quantity in [0, 11, u64::MAX] {
        assert_eq!(
            other(all(quantity, "", "")),
            format!("program hold: argument quantity is 1 to 10, not {quantity}")
        );
    }
    assert_eq!(
        other(all(1, "annie", "")),
        "program hold: argument buyer has at most 4 bytes, not 5"
    );
    let shift = begun()
        .argument(1u8)
        .argument(1u8)
        .argument("")
        .argument("");
    assert_eq!(
        other(shift.clone().argument(-6i8)),
        "program hold: argument shift is -5 to 5, not -6"
    );
    assert_eq!(
        other(shift.argument("bytes")),
        "program hold: its arguments take 40 bytes, not 48"
    );
    assert_eq!(
        other((0..17).fold(begun(), |run, _| run.argument(1u8))),
        "RUN takes 0 to 16 arguments, not 17"
    );
    assert_eq!(
        other((0..9).fold(Run::new(program().id()), |run, _| run.key(b"k"))),
        "RUN takes 1 to 8 keys, not 9"
    );
}

#[test]
fn an_item_that_is_cut_is_refused_at_every_byte() {
    let item = item_of(&run());
    for len in 0..item.len() {
        assert!(expanded(&item[..len]).is_err(), "{len} bytes");
    }
    assert!(expanded(&[item, vec![0; 8]].concat()).is_err());
}

#[test]
fn an_item_with_a_flipped_bit_is_refused_or_becomes_an_apply() {
    let item = item_of(&run());
    let (mut accepted, mut refused) = (0, 0);
    for bit in 0..item.len() * 8 {
        let mut flipped = item.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        match expanded(&flipped) {
            Ok(apply) => {
                assert_ne!(apply, by_hand(), "bit {bit}");
                // What the arguments do not decide is judged as that of any APPLY.
                let _ = ApplyRequest::read(&apply, 1 << 20);
                accepted += 1;
            }
            Err(refusal) => {
                assert!(!refusal.to_string().is_empty());
                refused += 1;
            }
        }
    }
    assert!(accepted > 100 && refused > 300, "{accepted}, {refused}");
}

#[test]
fn an_id_follows_from_name_and_meaning_alone() {
    let id = |change: fn(&mut ProgramParts)| {
        let mut parts = parts();
        change(&mut parts);
        Program::new(parts).expect("sound").id()
    };
    let same = id(|parts| {
        parts.keys[0] = "another".into();
        parts.arguments[0].name = "units".into();
    });
    assert_eq!(same, program().id());
    for other in [
        id(|parts| parts.name = "other".into()),
        id(|parts| parts.keys.push("third".into())),
        id(|parts| parts.arguments[0].kind = ArgumentKind::Number { min: 1, max: 9 }),
        id(|parts| parts.instructions[0].reason = 2),
        id(|parts| parts.data.push(0)),
        id(|parts| {
            parts.blanks.pop();
        }),
    ] {
        assert_ne!(other, program().id());
    }
}

#[test]
fn a_program_that_no_server_would_run_is_refused_when_it_is_made() {
    let refused = |change: fn(&mut ProgramParts)| {
        let mut parts = parts();
        change(&mut parts);
        Program::new(parts).expect_err("refused").to_string()
    };
    let refusal = refused(|parts| {
        parts.instructions.truncate(5);
        parts.blanks.truncate(5);
    });
    assert!(refusal.contains("1 effects are told"), "{refusal}");
    let refusal = refused(|parts| {
        parts.blanks.remove(2);
        parts.arguments[0].kind = ArgumentKind::Number {
            min: 1,
            max: 1 << 40,
        };
    });
    assert!(refusal.contains("outside the range of u32"), "{refusal}");
    let refusal = refused(|parts| parts.keys.clear());
    assert_eq!(refusal, "RUN takes 1 to 8 keys, not 0");
}
