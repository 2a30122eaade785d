use crate::apply::ApplyKey;
use crate::instruction::FieldType;
use crate::request::Version;

use super::*;

fn keys() -> Vec<NamedKey> {
    ["s=stock:{tee}", "h=hold:{tee}:7", "long_1=k=v"]
        .map(|text| NamedKey::parse(text).expect("a named key"))
        .to_vec()
}

fn step(text: &str) -> Step {
    parse_step(text, &keys()).unwrap_or_else(|error| panic!("{error}"))
}

fn read(text: &str) -> ApplyInstruction {
    match step(text) {
        Step::Instruction(instruction) => instruction,
        other => panic!("{text}: {other:?}"),
    }
}

fn refusal(text: &str) -> String {
    parse_step(text, &keys()).expect_err(text).to_string()
}

/// Keys `s` and `h`.
fn handles() -> (ApplyKey, ApplyKey) {
    let mut apply = crate::apply::Apply::new();
    (apply.key(b"s"), apply.key(b"h"))
}

/// Each text is read as this instruction, and the wire takes it.
fn check_written(cases: &[(&str, ApplyInstruction)]) {
    for (text, expected) in cases {
        assert_eq!(read(text), *expected, "{text}");
        let read = ApplyInstruction::read(&expected.encode(), 0, 3, 0);
        assert_eq!(read.ok(), Some(*expected), "the wire takes {text}");
    }
}

fn now(plus_ms: i64) -> Operand {
    Operand::Now { plus_ms }
}

#[test]
fn every_guard_can_be_written() {
    let (s, h) = handles();
    let (stock, time) = (s.u32(0), s.u64(8));
    let version = Version {
        epoch: 256,
        sequence: 17,
    };
    let i16be = s.field(FieldType::I16.big_endian(), 4);
    check_written(&[
        ("s exists", s.exists()),
        ("h absent else 2", h.is_absent().or_else(2)),
        (
            "h absent since 3:17 else 2",
            h.is_absent_since(Version {
                epoch: 3,
                sequence: 17,
            })
            .or_else(2),
        ),
        ("h version 256:17", h.has_version(version)),
        (
            "before 1764763429531",
            ApplyInstruction::before(1_764_763_429_531u64),
        ),
        (
            "since s.u64@8 else 4",
            ApplyInstruction::since(time).or_else(4),
        ),
        ("s.u32@0 == 0xff", stock.equals(255u64)),
        ("s.u32@0 != 1_000", stock.compares(Comparison::Ne, 1_000u64)),
        ("s.u32@0 < 1", stock.compares(Comparison::Lt, 1u64)),
        ("s.u32@0 <= 1", stock.at_most(1u64)),
        (
            "s.u32@0>h.decimal",
            stock.compares(Comparison::Gt, h.decimal()),
        ),
        ("s.u32@0 >= 2 else 1", stock.at_least(2u64).or_else(1)),
        ("s.u64@8 >= now", time.at_least(now(0))),
        ("s.u64@8 >= now else 3", time.at_least(now(0)).or_else(3)),
        ("s.u64@8 >= now+30s", time.at_least(now(30_000))),
        (
            "s.u64@8 < now - 2h",
            time.compares(Comparison::Lt, now(-7_200_000)),
        ),
        ("s.i16be@4 == -5", i16be.equals(-5i64)),
        (
            "s.u32@0 has all bits 0x81",
            stock.has_bits(BitTest::All, 0x81u64),
        ),
        ("s.u32@0 has any bits 1", stock.has_bits(BitTest::Any, 1u64)),
        (
            "s.u32@0 has no bits h.u32@0",
            stock.has_bits(BitTest::None, h.u32(0)),
        ),
    ]);
}

#[test]
fn every_effect_can_be_written() {
    let (s, h) = handles();
    let (stock, time) = (s.u32(0), s.u64(8));
    let rate = |interval_us, burst, quantity| Rate {
        interval_us,
        burst,
        quantity,
    };
    check_written(&[
        ("s.u32@0 = 7", stock.set(7u64)),
        ("s.u64@8 = now+10m", time.set(now(600_000))),
        ("s.u32@0 += 2", stock.increase(2u64)),
        (
            "s.u32@0 -= h.u32@0 else 9",
            stock.decrease(h.u32(0)).or_else(9),
        ),
        (
            "s.u32@0 += 2 saturating",
            stock.changes(Arithmetic::AddSaturating, 2u64),
        ),
        (
            "s.decimal -= 2 saturating else 1",
            s.decimal()
                .changes(Arithmetic::SubSaturating, 2u64)
                .or_else(1),
        ),
        (
            "s.decimal min= -2",
            s.decimal().changes(Arithmetic::Min, -2i64),
        ),
        ("s.u32@0 max= 5", stock.changes(Arithmetic::Max, 5u64)),
        ("s.u32@0 &= 5", stock.changes(Arithmetic::And, 5u64)),
        ("s.u32@0 |= 5", stock.changes(Arithmetic::Or, 5u64)),
        ("s.u32@0 ^= 5", stock.changes(Arithmetic::Xor, 5u64)),
        ("h del", h.delete()),
        ("h expires in 10m", h.expire_in(600_000)),
        (
            "h expires at 1764763429531",
            h.expire_at(1_764_763_429_531u64),
        ),
        ("h expires at now+1s", h.expire_in(1_000)),
        ("h expires at s.u64@8 else 6", h.expire_at(time).or_else(6)),
        ("h expires never", h.expire_at(0u64)),
        (
            "s.u64@8 rate 10/s burst 20",
            time.take(rate(100_000, 20, 1)),
        ),
        (
            "s.u64@8 rate 3/s burst 3 take 2",
            time.take(rate(333_334, 3, 2)),
        ),
        (
            "s.u64@8 rate 5/10m burst 1 else 8",
            time.take(rate(120_000_000, 1, 1)).or_else(8),
        ),
        (
            "s.u64@8 rate 1/1ms burst 65535",
            time.take(rate(1_000, 65_535, 1)),
        ),
        ("return s.u32@0", stock.returned()),
        ("  return   s.decimal ", s.decimal().returned()),
    ]);
}

#[test]
fn a_value_is_all_that_follows_put_start_or_replace() {
    use PutWay::{Put, Replace, Start};
    for (text, key, way, bytes) in [
        ("h put u32:2", 1, Put, &[2, 0, 0, 0][..]),
        ("long_1 start text:a b else 3", 2, Start, b"a b else 3"),
        ("long_1 start a b, or else", 2, Start, b"a b, or else"),
        ("s put text:", 0, Put, b""),
        ("s put text: x", 0, Put, b" x"),
        ("s put 0xff00", 0, Put, &[255, 0]),
        ("h replace u16:7", 1, Replace, &[7, 0]),
    ] {
        let value = Literal::Bytes(bytes.to_vec());
        let expected = Step::Put { key, way, value };
        assert_eq!(step(text), expected, "{text}");
    }
    let file = Literal::File("a.bin".into());
    assert!(matches!(step("s put @a.bin"), Step::Put { value, .. } if value == file));
}

#[test]
fn a_key_may_hold_anything_and_a_name_may_not() {
    assert_eq!(keys()[2].key, "k=v");
    let empty = NamedKey::parse("k=").expect("the server refuses the key");
    assert_eq!(empty.key, "");
    for text in ["stock", "=k", "1a=k", "a-b=k", "a.b=k", " a=k"] {
        let error = NamedKey::parse(text).expect_err(text);
        assert!(error.starts_with("allowed is NAME=KEY"), "{text}: {error}");
    }
    for text in ["now=k", "before=k", "since=k", "return=k"] {
        let error = NamedKey::parse(text).expect_err(text);
        assert!(error.contains("is a word of the instructions"), "{error}");
    }
}

/// The error of each text has these words.
fn check_refusals(cases: &[(&str, &str)]) {
    for (text, part) in cases {
        let error = refusal(text);
        assert!(error.contains(part), "{error}\nlacks\n{part}");
    }
}

#[test]
fn what_cannot_be_read_about_a_key_is_reported_with_its_column_and_what_is_allowed_there() {
    check_refusals(&[
        (
            "",
            "column 1: it ends where before, since, return, when, or the name of a key: s, h, \
             long_1",
        ),
        (
            "x exists",
            "column 1: found \"x exists\", allowed is before, since, return, when, or the name",
        ),
        (
            "s",
            "column 2: it ends where exists, absent, version, put, start, replace, del, expires, \
             or .",
        ),
        ("s gone", "column 3: found \"gone\", allowed is exists"),
        (
            "s exists h exists",
            "column 10: found \"h exists\", allowed is the end, or else",
        ),
        (
            "s version 17",
            "column 11: found \"17\", allowed is EPOCH:SEQUENCE",
        ),
        (
            "before now",
            "column 8: found \"now\", allowed is a time in milliseconds since 1970",
        ),
        (
            "since 0",
            "column 7: found \"0\", allowed is 1 to 281474976710655, in milliseconds",
        ),
        (
            "s expires 10m",
            "column 11: found \"10m\", allowed is never, in LIFETIME or at TIME",
        ),
        (
            "s expires in 10",
            "column 14: found \"10\", allowed is a whole number and ms",
        ),
        (
            "s expires at 0",
            "column 14: found \"0\", allowed is 1 to 281474976710655",
        ),
        (
            "s put",
            "column 6: it ends where a value, or text: for an empty one is expected",
        ),
        (
            "s put u8:256",
            "column 10: found \"256\", allowed is a number, 0..255",
        ),
        (
            "return s exists",
            "column 8: found \"s exists\", allowed is NAME.TYPE@OFFSET",
        ),
    ]);
    let none = parse_step("s exists", &[]).expect_err("no key").to_string();
    assert!(none.contains("a NAME that --key NAME=KEY gives"), "{none}");
}

#[test]
fn what_cannot_be_read_about_a_number_is_reported_with_its_column_and_what_is_allowed_there() {
    check_refusals(&[
        (
            "s.u9@0 = 1",
            "column 3: found \"u9@0 = 1\", allowed is decimal or TYPE@OFFSET",
        ),
        ("s.u32 = 1", "column 6: found \" = 1\", allowed is @OFFSET"),
        (
            "s.decimal@0 = 1",
            "column 10: found \"@0 = 1\", allowed is ==, !=",
        ),
        (
            "s.u32@0 => 1",
            "column 10: found \"> 1\", allowed is a number, 0..4294967295, now, NAME",
        ),
        (
            "s.u8@0 >= 256",
            "column 11: found \"256\", allowed is a number, 0..255, now, NAME",
        ),
        (
            "s.u8@0 >= x.u8@0",
            "column 11: found \"x.u8@0\", allowed is NAME.TYPE@OFFSET",
        ),
        (
            "s.u8@0 has bits 1",
            "column 12: found \"bits 1\", allowed is all bits, any bits or no",
        ),
        (
            "s.u8@0 has all 1",
            "column 16: found \"1\", allowed is bits",
        ),
        (
            "s.u8@0 = now+30",
            "column 14: found \"30\", allowed is a whole number and ms, s",
        ),
        (
            "s.u8@0 += 1 else 0",
            "column 18: found \"0\", allowed is a reason, 1..255",
        ),
        (
            "s.u8@0 = 1 saturating",
            "column 12: found \"saturating\", allowed is the end, or else",
        ),
        (
            "s.u32@0 rate 1/s burst 1",
            "column 9: found \"rate 1/s burst 1\", allowed is another",
        ),
        (
            "s.u64@0 rate 0/s burst 1",
            "column 14: found \"0/s burst 1\", allowed is a number of",
        ),
        (
            "s.u64@0 rate 1 burst 1",
            "column 15: found \" burst 1\", allowed is / and a time",
        ),
        (
            "s.u64@0 rate 1/w burst 1",
            "column 16: found \"w burst 1\", allowed is ms, s, m, h or",
        ),
        (
            "s.u64@0 rate 2000/1ms burst 1",
            "allowed is a rate from 1 in 12 days to 1000000 in a",
        ),
        (
            "s.u64@0 rate 1/13d burst 1",
            "allowed is a rate from 1 in 12 days to 1000000 in a",
        ),
        (
            "s.u64@0 rate 600000/s burst 1",
            "column 14: found \"600000/s burst 1\", allowed is a rate whose unit takes whole \
             microseconds; near is 500000/s",
        ),
        (
            "s put hello else 2",
            "column 13: found \"else 2\", allowed is the end: put, start and replace take no \
             reason",
        ),
        (
            "s.u64@0 rate 1/s",
            "column 17: it ends where burst is expected",
        ),
        (
            "s.u64@0 rate 1/s burst 65536",
            "column 24: found \"65536\", allowed is a number of units",
        ),
        (
            "s.u64@0 rate 1/s burst 2 take 3",
            "allowed is a number of units, 1..2",
        ),
    ]);
}

#[test]
fn any_number_of_units_in_any_time_is_a_rate_or_refused() {
    // Their product is longer than 64 bits.
    read("s.u64@0 rate 1000000000/281474976710655ms burst 1");
    read("s.u64@0 rate 1000000/3257812d burst 1");
    for exponent in 0..63 {
        for units in ["1", "2", "999999", "1000000", "999999999", "1000000000"] {
            for time in [(1u64 << exponent) - 1, 1 << exponent, (1 << exponent) + 1] {
                for unit in ["ms", "s", "m", "h", "d"] {
                    let text = format!("s.u64@0 rate {units}/{time}{unit} burst 1");
                    let Ok(step) = parse_step(&text, &keys()) else {
                        continue;
                    };
                    let Step::Instruction(instruction) = step else {
                        panic!("{text}: {step:?}");
                    };
                    let Action::Rate(_, rate) = instruction.action else {
                        panic!("{text}: {instruction:?}");
                    };
                    assert!(
                        (1..=Rate::INTERVAL_US_MAX).contains(&rate.interval_us),
                        "{text}"
                    );
                }
            }
        }
    }
}

#[test]
fn what_runs_when_a_key_expires_is_no_other_key_that_expires_however_long_the_text_is() {
    let text = "when s expires:".repeat(60_000);
    let refusal = refusal(&text);
    assert!(refusal.contains("column 16"), "{refusal}");
    assert!(
        refusal.contains("allowed is an effect: nothing else runs"),
        "{refusal}"
    );
}

#[test]
fn what_runs_when_a_key_expires_is_an_effect_or_nothing() {
    let keys = ["s", "h"].map(|name| NamedKey {
        name: name.into(),
        key: name.into(),
    });
    let step = |text: &str| parse_step(text, &keys);
    let nothing = Step::OnExpiry {
        key: 1,
        effect: None,
    };
    assert_eq!(step("when h expires"), Ok(nothing));
    for effect in [
        "s.u32@0 += h.u32@0",
        "s del",
        "h put text:gone",
        "s start 0",
    ] {
        let expected = Step::OnExpiry {
            key: 1,
            effect: Some(Box::new(step(effect).expect("an effect"))),
        };
        assert_eq!(step(&format!("when h expires: {effect}")), Ok(expected));
    }
    for (text, column, allowed) in [
        ("when x expires", 6, "the name of the key that expires"),
        ("when h is gone", 8, "expires"),
        ("when h expires s del", 16, ": and an effect, or the end"),
        (
            "when h expires: s exists",
            17,
            "an effect: nothing else runs",
        ),
        (
            "when h expires: when s expires",
            17,
            "an effect: nothing else runs",
        ),
        (
            "when h expires: return s.u32@0",
            17,
            "an effect: nothing else runs",
        ),
        (
            "when h expires: s replace text:x",
            17,
            "an effect: nothing else runs",
        ),
    ] {
        let error = step(text).expect_err(text).to_string();
        assert!(error.contains(&format!("column {column}: ")), "{error}");
        assert!(error.contains(allowed), "{error}");
    }
}

/// The same text with the name of its key and without: `a.u32@0 >= 1` and `u32@0 >= 1`.
#[test]
fn what_is_said_of_the_only_key_is_what_is_said_of_a_named_one() {
    let keys = [NamedKey::parse("a=k").expect("a named key")];
    for (named, only) in [
        ("a exists", "exists"),
        ("a absent else 3", "absent else 3"),
        ("a absent since 1:2", "absent since 1:2"),
        ("a version 1:2", "version 1:2"),
        ("a del", "del"),
        ("a put u32:7", "put u32:7"),
        ("a start text:", "start text:"),
        ("a replace x else", "replace x else"),
        ("a expires in 10m", "expires in 10m"),
        ("a expires never", "expires never"),
        ("a expires at a.u64@8", "expires at u64@8"),
        ("before a.u64@8", "before u64@8"),
        ("return a.decimal", "return decimal"),
        ("a.u32@0 >= 1 else 7", "u32@0 >= 1 else 7"),
        ("a.u32@0 < a.i64be@4", "u32@0 < i64be@4"),
        ("a.u8@0 has any bits 0x0f", "u8@0 has any bits 0x0f"),
        ("a.u32@0 += 1 saturating", "u32@0 += 1 saturating"),
        ("a.decimal min= -5", "decimal min= -5"),
        ("a.u64@0 = now+30s", "u64@0 = now+30s"),
        (
            "a.u64@0 rate 10/s burst 20 take 2",
            "u64@0 rate 10/s burst 20 take 2",
        ),
        ("when a expires: a del", "when expires: del"),
        ("when a expires", "when expires"),
    ] {
        let step = parse_step(named, &keys).expect(named);
        assert_eq!(parse_step_of_only_key(only), Ok(step), "{only}");
    }
    let second = parse_step_of_only_key("second.u8@0 == u8@1").expect("a guard");
    let both = [
        keys[0].clone(),
        NamedKey::parse("second=l").expect("a named key"),
    ];
    assert_eq!(Ok(second), parse_step("second.u8@0 == a.u8@1", &both));
    assert_eq!(
        parse_step_of_only_key("second.exists"),
        parse_step_of_only_key("second exists"),
    );
}

#[test]
fn an_instruction_is_one_of_an_update_if_or_of_an_apply_alone() {
    let is_of_update_if = |text: &str| {
        let step = parse_step_of_only_key(text).expect(text);
        step.of_update_if().is_some()
    };
    for text in [
        "exists",
        "second.absent",
        "u32@0 >= 1 else 2",
        "i8@3 -= 5",
        "u8@0 += 300",
        "u64be@0 = 9",
    ] {
        assert!(is_of_update_if(text), "{text}");
    }
    for text in [
        "u32@0 min= 1",
        "u32@0 >= u32@4",
        "decimal += 1",
        "version 1:2",
        "put x",
        "return u8@0",
        "u8@0 += 1 saturating",
        "when expires: del",
    ] {
        assert!(!is_of_update_if(text), "{text}");
    }
}
