//! Every instruction comes back from its bytes, and each bad byte is refused by its name.

use super::*;
use crate::instruction::FieldType;

const KEYS: u8 = 8;
const DATA_BYTES: u32 = 100;

fn kinds() -> impl Iterator<Item = NumberKind> {
    (0..=u8::MAX).filter_map(NumberKind::from_code)
}

fn places() -> impl Iterator<Item = NumberAt> {
    kinds().flat_map(|kind| match kind {
        NumberKind::Decimal => vec![NumberAt::decimal()],
        NumberKind::Field(field_type) => [0, 1, u32::MAX]
            .map(|offset| NumberAt::field(field_type, offset))
            .to_vec(),
    })
}

/// Operands that each kind of number may be compared with.
fn operands() -> impl Iterator<Item = Operand> {
    let fields = places().map(|at| Operand::Field { key: 7, at });
    let times = [i64::MIN, -1, 0, 1, i64::MAX].map(|plus_ms| Operand::Now { plus_ms });
    fields.chain(times).chain([Operand::Immediate(1)])
}

/// Each action with each of its forms.
fn actions() -> Vec<Action> {
    let version = Version {
        epoch: u32::MAX,
        sequence: u64::MAX,
    };
    let (start, len) = (10, 90);
    let mut actions = vec![
        Action::Exists,
        Action::Absent,
        Action::Delete,
        Action::Version(version),
        Action::Version(Version::default()),
        Action::AbsentSince(version),
        Action::AbsentSince(Version::default()),
        Action::Put { start, len },
        Action::Start { start, len },
        Action::Replace { start, len },
        Action::PutHead { start, len },
        Action::ReplaceHead { start, len },
        Action::Put { start: 100, len: 0 },
        Action::Expire(Operand::Immediate(0)),
    ];
    for at in places() {
        actions.push(Action::Return(at));
        for operand in operands() {
            actions.extend(Comparison::ALL.map(|it| Action::Compare(it, at, operand)));
            actions.extend(BitTest::ALL.map(|it| Action::Bits(it, at, operand)));
            actions.extend(Arithmetic::ALL.map(|it| Action::Change(it, at, operand)));
        }
    }
    let rate = Rate {
        interval_us: Rate::INTERVAL_US_MAX,
        burst: u16::MAX,
        quantity: u8::MAX,
    };
    for field_type in [FieldType::U64, FieldType::U64.big_endian()] {
        actions.push(Action::Rate(NumberAt::field(field_type, 3), rate));
    }
    actions.extend([0, 63].map(|effects| Action::OnExpire { effects }));
    let times = [1, EXPIRY_MS_MAX].map(Operand::Immediate).into_iter();
    for time in times.chain(operands()) {
        actions.push(Action::Expire(time));
        if !matches!(time, Operand::Now { .. }) {
            actions.extend([Action::Before(time), Action::Since(time)]);
        }
    }
    actions
}

fn read(bytes: &[u8; INSTRUCTION_BYTES]) -> Result<ApplyInstruction, Refusal> {
    ApplyInstruction::read(bytes, 5, KEYS, DATA_BYTES)
}

/// An instruction with this operation, type, offset and operand.
fn bytes(operation: u8, kind: u8, offset: u32, bits: u64) -> [u8; INSTRUCTION_BYTES] {
    let mut bytes = [0; INSTRUCTION_BYTES];
    bytes[0] = operation;
    bytes[1] = kind;
    bytes[4..8].copy_from_slice(&offset.to_le_bytes());
    bytes[8..16].copy_from_slice(&bits.to_le_bytes());
    bytes
}

#[test]
fn every_instruction_comes_back_from_its_bytes() {
    let mut operations = std::collections::BTreeSet::new();
    for action in actions() {
        let instruction = ApplyInstruction {
            key: 7,
            reason: 9,
            action,
        };
        let bytes = instruction.encode();
        operations.insert(bytes[0]);
        assert_eq!(read(&bytes).ok(), Some(instruction), "{action:?}");
        assert_eq!(ApplyInstruction::checked(&bytes), instruction);
    }
    let all: Vec<u8> = (1..=14).chain(16..=33).chain(35..=37).collect();
    assert_eq!(Vec::from_iter(operations), all, "every operation is made");
}

#[test]
fn an_instruction_with_a_flipped_bit_is_refused_or_has_the_same_bytes_again() {
    for action in actions() {
        let bytes = ApplyInstruction {
            key: 3,
            reason: 0,
            action,
        }
        .encode();
        for bit in 0..INSTRUCTION_BYTES * 8 {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            match read(&flipped) {
                Ok(read) => assert_eq!(read.encode(), flipped, "{action:?}, bit {bit}"),
                Err(refusal) => assert!(refusal.to_string().starts_with("instruction 5")),
            }
        }
    }
}

#[test]
fn only_effects_and_none_of_the_guards_may_change_something() {
    for action in actions() {
        let instruction = ApplyInstruction {
            key: 0,
            reason: 0,
            action,
        };
        let operation = instruction.encode()[0];
        let may_run_later = (16..=30).contains(&operation);
        let is_effect = may_run_later || matches!(operation, 32 | 33 | 36 | 37);
        assert_eq!(instruction.is_effect(), is_effect, "{action:?}");
        assert_eq!(instruction.may_run_later(), may_run_later, "{action:?}");
    }
}

/// Each of these instructions is refused with its text.
fn check_refusals(wrong: &[([u8; INSTRUCTION_BYTES], &str)]) {
    for (bytes, text) in wrong {
        let refusal = read(bytes).expect_err(text);
        assert_eq!(refusal.to_string(), format!("instruction 5{text}"));
    }
}

#[test]
fn each_bad_byte_about_a_whole_key_is_refused_by_its_name() {
    let (u64_, field, now) = (3, SOURCE_FIELD, SOURCE_NOW);
    check_refusals(&[
        (bytes(0, 0, 0, 0), " has the unknown operation 0"),
        (bytes(15, 0, 0, 0), " has the unknown operation 15"),
        (bytes(34, 0, 0, 0), " has the unknown operation 34"),
        (bytes(38, 0, 0, 0), " has the unknown operation 38"),
        (
            bytes(32, u64_, 0, 0),
            ": the type of operation 32 is 0, not 0x3",
        ),
        (
            bytes(32, 0, 0, 1),
            ": the operand of operation 32 is 0, not 0x1",
        ),
        (
            bytes(32, 0, 64, 0),
            ": 0 to 63 instructions run when a key expires, not 64",
        ),
        (
            bytes(1, u64_, 0, 0),
            ": the type of operation 1 is 0, not 0x3",
        ),
        (
            bytes(2, 0, 4, 0),
            ": the offset of operation 2 is 0, not 0x4",
        ),
        (
            bytes(28, 0, 0, 9),
            ": the operand of operation 28 is 0, not 0x9",
        ),
        (
            bytes(28, now, 0, 0),
            ": the source of the operand of operation 28 is 0, not 0x40",
        ),
        (
            bytes(9, u64_, 0, 0),
            ": the type of operation 9 is 0, not 0x3",
        ),
        (
            bytes(9, field, 0, 0),
            ": the type of operation 9 is 0, not 0x20",
        ),
        (
            bytes(10, now, 0, 1),
            ": operation 10 takes no operand from source 0x40 (0x00 itself, 0x20 another \
             number, 0x40 the time)",
        ),
        (
            bytes(10, 0, 0, 0),
            ": a time is 1 to 281474976710655 unix milliseconds, 0 only for EXPIRE, not 0",
        ),
        (
            bytes(29, 0, 0, 1 << 48),
            ": a time is 1 to 281474976710655 unix milliseconds, 0 only for EXPIRE, not \
             281474976710656",
        ),
        (
            bytes(11, u64_, 0, 1),
            ": the type of operation 11 is 0, not 0x3",
        ),
        (
            bytes(29, 0, 1, 1),
            ": the offset of operation 29 is 0, not 0x1",
        ),
        (
            bytes(26, 1, 0, 0),
            ": the type of operation 26 is 0, not 0x1",
        ),
        (
            bytes(26, 0, 40, 61),
            ": bytes 40 to 101 lie outside the data of 100 bytes",
        ),
        (
            bytes(27, 0, 0, 1 << 32),
            ": bytes 0 to 4294967296 lie outside the data of 100 bytes",
        ),
        (
            bytes(27, 0, 1, u64::MAX),
            ": bytes 1 to 18446744073709551615 lie outside the data of 100 bytes",
        ),
    ]);
    let mut key = bytes(1, 0, 0, 0);
    key[2] = 8;
    let text = " names key 8, which the operation does not have";
    check_refusals(&[(key, text)]);
}

#[test]
fn each_bad_byte_about_a_number_is_refused_by_its_name() {
    let (u8_, u64_, decimal, field) = (0, 3, 8, SOURCE_FIELD);
    check_refusals(&[
        (bytes(3, 9, 0, 0), " has the unknown field type 0x09"),
        (bytes(3, 0x80, 0, 0), " has the unknown field type 0x80"),
        (
            bytes(31, decimal, 1, 0),
            ": a decimal is a whole value, so its offset is 0, not 1",
        ),
        (
            bytes(31, 0, 0, 1),
            ": the operand of operation 31 is 0, not 0x1",
        ),
        (
            bytes(3, 0x60, 0, 0),
            ": operation 3 takes no operand from source 0x60 (0x00 itself, 0x20 another \
             number, 0x40 the time)",
        ),
        (
            bytes(16, field, 0, 0x0009_0000_0000),
            ": the operand 0x900000000 names no number: u32 offset (0 of a decimal), u8 \
             type, u8 key, u16 0",
        ),
        (
            bytes(16, field, 0, 0x0008_0000_0001),
            ": the operand 0x800000001 names no number: u32 offset (0 of a decimal), u8 \
             type, u8 key, u16 0",
        ),
        (
            bytes(16, field, 0, 1 << 48),
            ": the operand 0x1000000000000 names no number: u32 offset (0 of a decimal), u8 \
             type, u8 key, u16 0",
        ),
        (
            bytes(16, field, 0, 8 << 40),
            " names key 8, which the operation does not have",
        ),
        (bytes(8, u8_, 0, 256), ": 0x100 is outside the range of u8"),
        (bytes(12, u8_, 0, 256), ": 0x100 is outside the range of u8"),
        (bytes(24, u8_, 0, 256), ": 0x100 is outside the range of u8"),
        (
            bytes(30, 2, 0, 0),
            ": a rate is kept in a u64 or u64be, not in type 0x02",
        ),
        (
            bytes(30, u64_, 0, 5 << 56 | 4 << 40 | 1000),
            ": a rate has an interval of 1 to 1099511627775 microseconds, a burst of 1 to \
             65535 and a quantity of 1 to the burst, not 1000, 4, 5",
        ),
    ]);
}

#[test]
fn a_number_that_only_the_result_decides_on_is_taken() {
    for change in [17, 18, 19, 20, 21, 22] {
        assert!(read(&bytes(change, 0, 0, u64::MAX)).is_ok(), "{change}");
    }
}
