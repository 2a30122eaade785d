//! APPLY: its items, the instructions in them, and its answers.

use penstock_net::apply::{
    Apply, ApplyInstruction, ApplyKey, Arithmetic, BitTest, Comparison, Operand, Rate, write_apply,
};
use penstock_net::instruction::FieldType;
use penstock_net::level::AckLevel;
use penstock_net::reply::{ITEM_FLAG_OVERFLOW, ReplyHead};
use penstock_net::request::{Ask, Version};
use penstock_net::status::Status;

use super::{Cases, changed};

const KIND: &str = "apply-item";
const VERSION: Version = Version {
    epoch: 256,
    sequence: 17,
};
/// Where the first instruction begins.
const FIRST: usize = 32;

fn encoded(apply: &Apply) -> Vec<u8> {
    Ask::Apply(apply).encode()
}

/// An item of one key with one instruction on it.
fn one(instruction: impl FnOnce(ApplyKey) -> ApplyInstruction) -> Vec<u8> {
    let mut apply = Apply::new();
    let key = apply.key(b"k");
    apply.then(instruction(key));
    encoded(&apply)
}

/// Two units of a stock are held for ten minutes, under a limit of holds.
fn sale() -> Apply {
    let mut apply = Apply::new();
    let stock = apply.key(b"stock:{tee}");
    let hold = apply.key(b"hold:{tee}:7");
    let limit = apply.key(b"limit:{tee}:ann");
    let ten_a_second = Rate {
        interval_us: 100_000,
        burst: 20,
        quantity: 1,
    };
    apply
        .then(stock.u32(0).at_least(2u64).or_else(1))
        .then(hold.is_absent().or_else(2))
        .start(limit, &[0; 8])
        .then(limit.u64(0).take(ten_a_second).or_else(3))
        .then(stock.u32(0).decrease(2u64))
        .put(hold, &[2, 0, 0, 0])
        .then(hold.expire_in(600_000))
        .then(stock.u32(0).returned());
    apply
}

pub fn applies(cases: &mut Cases) {
    accepted(cases);
    each_instruction(cases);
    wrong_heads(cases);
    wrong_bodies(cases);
    wrong_instructions(cases);
    wrong_effects(cases);
    absent_since(cases);
}

/// More keys than have their lengths in the head.
fn many_keys(cases: &mut Cases) {
    for (name, count) in [("nine keys, each put", 9), ("22 keys, each put", 22)] {
        let mut many = Apply::new();
        for number in 0..count {
            let key = many.key(format!("{{a}}{}", number * number).as_bytes());
            many.put(key, b"value");
        }
        let item = encoded(&many);
        cases.add(KIND, name, item.clone());
        // The last length, and what fills the lengths up.
        let lengths_end = item
            .windows(8)
            .rposition(|it| it == [b'{', b'a', b'}', b'6', b'4', 0, 0, 0]);
        let Some(lengths_end) = lengths_end.filter(|_| count == 9) else {
            continue;
        };
        for (what, at, byte) in [
            ("a ninth key of no byte", lengths_end - 8, 0),
            ("a fill of the lengths that is not zero", lengths_end - 1, 1),
            ("a ninth key that stands twice", lengths_end + 3, b'0'),
        ] {
            let mut wrong = item.clone();
            wrong[at] = byte;
            if what.ends_with("twice") {
                (wrong[lengths_end - 8], wrong[lengths_end + 4]) = (4, 0);
            }
            cases.add(KIND, what, wrong);
        }
    }
}

fn absent_since(cases: &mut Cases) {
    let item = one(|key| key.is_absent_since(VERSION));
    cases.add(KIND, "ABSENT_SINCE", item.clone());
    let with_type = changed(item, FIRST + 1, &[3]);
    cases.add(KIND, "ABSENT_SINCE with a type", with_type);
}

fn accepted(cases: &mut Cases) {
    let mut apply = Apply::new();
    apply.key(b"k");
    cases.add(KIND, "one key and no instruction", encoded(&apply));
    cases.add(KIND, "a sale of three keys", encoded(&sale()));
    let mut hold = sale();
    let [stock, hold_key] = [hold.key(b"stock:{tee}"), hold.key(b"hold:{tee}:7")];
    hold.on_expire(hold_key, |effects| {
        effects.then(stock.u32(0).increase(hold_key.u32(0)));
    });
    cases.add(KIND, "a hold that returns when it expires", encoded(&hold));
    let mut eight = Apply::new();
    for number in 0..8u64 {
        let key = eight.key(format!("{{a}}{number}").as_bytes());
        eight.then(key.u64(8).increase(number));
    }
    cases.add(KIND, "eight keys", encoded(&eight));
    let mut apply = Apply::new();
    let key = apply.key(&[b'k'; 1024]);
    for _ in 0..64 {
        apply.then(key.exists());
    }
    let longest = "the longest key and 64 instructions";
    cases.add(KIND, longest, encoded(&apply));
    let mut apply = Apply::new();
    let (from, to) = (apply.key(b"{a}1"), apply.key(b"{a}2"));
    apply.put(from, &[1; 1024]).put(to, &[2; 1024]);
    cases.add(KIND, "two of the longest values", encoded(&apply));
    let mut item = Vec::new();
    write_apply(&mut item, &[b"k"], &[], b"of no use");
    cases.add(KIND, "data that no instruction names", item);
}

/// Each operation, with each source of operands.
fn each_instruction(cases: &mut Cases) {
    let before = ApplyInstruction::before(1_800_000_000_000u64);
    cases.add(KIND, "BEFORE", one(|_| before));
    let since = ApplyInstruction::since(1u64);
    cases.add(KIND, "SINCE", one(|_| since));
    cases.add(KIND, "VERSION", one(|key| key.has_version(VERSION)));
    cases.add(KIND, "ABSENT", one(ApplyKey::is_absent));
    cases.add(KIND, "DEL", one(ApplyKey::delete));
    cases.add(KIND, "EXPIRE, never", one(|key| key.expire_at(0u64)));
    let field = |key: ApplyKey| key.field(FieldType::I16.big_endian(), 6);
    for (name, comparison) in [
        ("=", Comparison::Eq),
        ("!=", Comparison::Ne),
        ("<", Comparison::Lt),
        ("<=", Comparison::Le),
        (">", Comparison::Gt),
        (">=", Comparison::Ge),
    ] {
        let minus_five = one(|key| field(key).compares(comparison, -5i64));
        cases.add(KIND, format!("{name} and a number"), minus_five);
    }
    let other = one(|key| field(key).at_most(key.decimal()));
    cases.add(KIND, "<= and another number", other);
    let soon = Operand::Now { plus_ms: 30_000 };
    let soon = one(|key| key.u64(0).at_least(soon));
    cases.add(KIND, ">= and a time", soon);
    for (name, test) in [
        ("ALL_BITS", BitTest::All),
        ("ANY_BIT", BitTest::Any),
        ("NO_BITS", BitTest::None),
    ] {
        cases.add(KIND, name, one(|key| key.u32(4).has_bits(test, 0x81u64)));
    }
    for (name, change) in [
        ("set", Arithmetic::Set),
        ("add", Arithmetic::Add),
        ("subtract", Arithmetic::Sub),
        ("add up to the border", Arithmetic::AddSaturating),
        ("subtract down to the border", Arithmetic::SubSaturating),
        ("min", Arithmetic::Min),
        ("max", Arithmetic::Max),
        ("and", Arithmetic::And),
        ("or", Arithmetic::Or),
        ("xor", Arithmetic::Xor),
    ] {
        let decimal = one(|key| key.decimal().changes(change, 7u64));
        cases.add(KIND, format!("{name} of a decimal"), decimal);
    }
    let past = Operand::Now { plus_ms: -1 };
    cases.add(KIND, "set to a time", one(|key| key.u64(0).set(past)));
    let beyond = one(|key| key.field(FieldType::U8, 0).increase(256u64));
    cases.add(KIND, "add of more than the type holds", beyond);
    let mut apply = Apply::new();
    let key = apply.key(b"k");
    cases.add(
        KIND,
        "ON_EXPIRE without effects",
        encoded(apply.on_expire(key, |_| {})),
    );
}

/// What came after the other vectors: those never change.
pub fn replaces(cases: &mut Cases) {
    let mut apply = Apply::new();
    let key = apply.key(b"k");
    apply.replace(key, b"another value");
    cases.add(KIND, "REPLACE", encoded(&apply));
    let exists = one(ApplyKey::exists);
    for (what, bytes) in [
        ("REPLACE with a type", &[33, 1][..]),
        ("REPLACE of bytes outside the data", &[33, 0, 0, 0, 1]),
    ] {
        cases.add(KIND, what, changed(exists.clone(), FIRST, bytes));
    }
    let mut apply = Apply::new();
    let key = apply.key(b"k");
    apply.on_expire(key, |effects| {
        effects.replace(key, b"v");
    });
    cases.add(KIND, "REPLACE behind ON_EXPIRE", encoded(&apply));
    many_keys(cases);
}

fn wrong_effects(cases: &mut Cases) {
    let mut apply = Apply::new();
    let key = apply.key(b"k");
    apply.on_expire(key, |effects| {
        effects.then(key.exists());
    });
    cases.add(KIND, "a guard behind ON_EXPIRE", encoded(&apply));
    let mut apply = Apply::new();
    let key = apply.key(b"k");
    apply.on_expire(key, |_| {}).on_expire(key, |_| {});
    cases.add(KIND, "ON_EXPIRE of one key twice", encoded(&apply));
    let mut apply = Apply::new();
    let key = apply.key(b"k");
    apply.on_expire(key, |effects| {
        effects.put(key, &[7; 2_889]);
    });
    cases.add(KIND, "effects of too many bytes", encoded(&apply));
}

fn wrong_heads(cases: &mut Cases) {
    let good = encoded(&sale());
    for (what, at, bytes) in [
        ("another operation", 2, &[11][..]),
        ("a flag", 3, &[1]),
        ("no key", 4, &[0]),
        ("nine keys", 4, &[9]),
        ("two keys and the length of a third", 4, &[2]),
        ("65 instructions", 5, &[65]),
        ("seven instructions instead of eight", 5, &[7]),
        ("a length of an extension that is not there", 6, &[16]),
        ("a first key of no byte", 8, &[0, 0]),
        ("a second key of 1025 bytes", 10, &[1, 4]),
        ("the length of a fourth key", 18, &[1]),
        ("the length of an eighth key", 26, &[1]),
        ("the word behind the lengths", 28, &[1]),
        ("data of 2049 bytes", 12, &[1, 8, 0, 0]),
        ("data of 2^32 - 1 bytes", 12, &[255; 4]),
        ("a block length of 32", 0, &[32, 0]),
    ] {
        cases.add(KIND, what, changed(good.clone(), at, bytes));
    }
    for cut in [0, 8, 31, 32, good.len() - 8] {
        let what = format!("only {cut} bytes of {}", good.len());
        cases.add(KIND, what, good[..cut].to_vec());
    }
    let longer = [good, vec![0; 8]].concat();
    cases.add(KIND, "eight bytes too many", longer);
}

fn wrong_bodies(cases: &mut Cases) {
    let good = encoded(&sale());
    let mut extended = good.clone();
    let area = [[16, 0, 1, 0, 0, 0, 0, 0], [9, 0, 0, 0, 0, 0, 0, 0]];
    let instructions_end = FIRST + 8 * 16;
    extended.splice(instructions_end..instructions_end, area.concat());
    let block_len = u16::try_from(instructions_end + 16).expect("short");
    let extended = changed(extended, 0, &block_len.to_le_bytes());
    let extended = changed(extended, 6, &[16]);
    cases.add(KIND, "an extension", extended);
    // The first key has 11 bytes, and the data 12.
    let padding = changed(good.clone(), instructions_end + 11, &[1]);
    cases.add(KIND, "padding of a key that is not zero", padding);
    let last = good.len() - 1;
    let padding = changed(good, last, &[1]);
    cases.add(KIND, "padding of the data that is not zero", padding);
    let keys = |keys: &[&[u8]]| {
        let mut item = Vec::new();
        write_apply(&mut item, keys, &[], b"");
        item
    };
    cases.add(KIND, "a key that stands twice", keys(&[b"a", b"b", b"a"]));
    let own = keys(&[b"a", b"\0\0penstock/a"]);
    cases.add(KIND, "a key of the server's own", own);
    let mut apply = Apply::new();
    let key = apply.key(b"k");
    apply.put(key, &[7; 1025]);
    cases.add(KIND, "PUT of 1025 bytes", encoded(&apply));
}

fn wrong_instructions(cases: &mut Cases) {
    let exists = one(ApplyKey::exists);
    for (what, at, bytes) in [
        ("operation 0", 0, &[0][..]),
        ("operation 15", 0, &[15]),
        ("operation 34", 0, &[34]),
        ("ON_EXPIRE with a type", 0, &[32, 3]),
        (
            "ON_EXPIRE with an operand",
            0,
            &[32, 0, 0, 0, 0, 0, 0, 0, 1],
        ),
        ("ON_EXPIRE with 64 effects", 0, &[32, 0, 0, 0, 64]),
        (
            "ON_EXPIRE with an effect that there is not",
            0,
            &[32, 0, 0, 0, 1],
        ),
        ("EXISTS of a second key in an item of one", 2, &[1]),
        ("EXISTS with a type", 1, &[3]),
        ("EXISTS with an offset", 4, &[1]),
        ("EXISTS with an operand", 15, &[1]),
        ("VERSION with a type", 0, &[9, 3]),
        ("BEFORE of the time itself", 0, &[10, 0x40]),
        ("SINCE of time 0", 0, &[11]),
        ("PUT with a type", 0, &[26, 1]),
        ("PUT of bytes outside the data", 0, &[26, 0, 0, 0, 1]),
        (
            "START of 2^32 bytes",
            0,
            &[27, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
        ),
        ("DEL with an operand", 0, &[28, 0, 0, 0, 0, 0, 0, 0, 1]),
        ("EXPIRE with an offset", 0, &[29, 0, 0, 0, 1]),
        (
            "EXPIRE at 2^48",
            0,
            &[29, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
        ),
        ("RATE of interval, burst and quantity 0", 0, &[30, 3]),
        ("RETURN with an operand", 0, &[31, 3, 0, 0, 0, 0, 0, 0, 1]),
        ("RETURN of an unknown type", 0, &[31, 9]),
        ("RETURN of a decimal at offset 1", 0, &[31, 8, 0, 0, 1]),
    ] {
        cases.add(KIND, what, changed(exists.clone(), FIRST + at, bytes));
    }
    let other = one(|key| key.u32(0).equals(key.decimal()));
    for (what, at, bytes) in [
        ("an operand of source 0x60", 1, &[0x62][..]),
        ("an operand of an unknown type", 12, &[9]),
        ("an operand that is a decimal at offset 1", 8, &[1]),
        ("an operand of a second key in an item of one", 13, &[1]),
        ("an operand with a byte behind its key", 14, &[1]),
    ] {
        cases.add(KIND, what, changed(other.clone(), FIRST + at, bytes));
    }
    let small = |key: ApplyKey| key.field(FieldType::U8, 0);
    let too_large = one(|key| small(key).equals(256u64));
    cases.add(KIND, "= and 256 of a u8", too_large);
    let too_large = one(|key| small(key).has_bits(BitTest::Any, 256u64));
    cases.add(KIND, "ANY_BIT and 256 of a u8", too_large);
    let too_large = one(|key| small(key).changes(Arithmetic::Or, 256u64));
    cases.add(KIND, "or and 256 of a u8", too_large);
    let rate = Rate {
        interval_us: 1_000,
        burst: 4,
        quantity: 5,
    };
    let too_much = one(|key| key.u64(0).take(rate));
    cases.add(KIND, "RATE of more than the burst", too_much);
    let rate = Rate { burst: 5, ..rate };
    let in_u32 = one(|key| key.u32(0).take(rate));
    cases.add(KIND, "RATE in a u32", in_u32);
}

/// What an APPLY is answered with.
pub fn replies(cases: &mut Cases) {
    let item = |status, instruction, flags, value: &[u8]| {
        let mut head = ReplyHead::new(status, 3, AckLevel::Disk, VERSION);
        (head.instruction, head.flags) = (instruction, flags);
        head.reason = 9;
        let mut bytes = Vec::new();
        head.write(&mut bytes, value);
        bytes
    };
    let kind = "reply-item";
    let failed = item(Status::GuardFailed, 2, 0, &7u64.to_le_bytes());
    cases.add(kind, "a guard of APPLY that does not hold", failed);
    let left = item(
        Status::GuardFailed,
        63,
        ITEM_FLAG_OVERFLOW,
        &u64::MAX.to_le_bytes(),
    );
    cases.add(kind, "an effect of APPLY that leaves the range", left);
    let missing = item(Status::NotFound, 1, 0, b"");
    cases.add(kind, "an instruction on a key without a value", missing);
    let mut version = Vec::new();
    for bytes in [[0, 1, 0, 0, 0, 0, 0, 0], 18u64.to_le_bytes()] {
        version.extend(bytes);
    }
    let other = item(Status::VersionMismatch, 0, 0, &version);
    cases.add(kind, "another version than VERSION says", other);
}
