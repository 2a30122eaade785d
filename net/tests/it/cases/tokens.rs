//! Tokens of writes, and the replies that are told again. They stand behind all older cases.

use penstock_net::apply::Apply;
use penstock_net::instruction::{FieldType, Instruction, Operation};
use penstock_net::keyspace::Action;
use penstock_net::level::AckLevel;
use penstock_net::reply::{ITEM_FLAG_REPLAYED, ReplyHead};
use penstock_net::request::{BatchRequest, Condition, Expiry, Token, Version};
use penstock_net::scan::ScanRequest;
use penstock_net::status::Status;

use super::{Cases, changed, item};

const ITEM: &str = "request-item";
const APPLY: &str = "apply-item";
/// Where the area begins in an item without version, expiry and instructions.
const AREA: usize = 16;

/// The token of all accepted cases: the example of RFC 9562, A.6.
fn token() -> Token {
    let text = "017f22e2-79b0-7cc3-98c4-dc0c0c07398f";
    text.parse().expect("a UUID of version 7")
}

/// An item with that token.
fn named(build: impl FnOnce(&mut BatchRequest, &mut Vec<u8>)) -> Vec<u8> {
    item(|batch, out| {
        batch.token(token());
        build(batch, out);
    })
}

fn sale() -> Apply {
    let mut apply = Apply::new();
    let stock = apply.key(b"stock:{tee}");
    let hold = apply.key(b"hold:{tee}:7");
    apply
        .then(stock.u32(0).at_least(2u64).or_else(1))
        .then(stock.u32(0).decrease(2u64))
        .put(hold, &[2, 0, 0, 0]);
    apply
}

pub fn tokens(cases: &mut Cases) {
    accepted(cases);
    wrong_tokens(cases);
    wrong_operations(cases);
    replies(cases);
}

fn accepted(cases: &mut Cases) {
    let version = Version {
        epoch: 0x0100,
        sequence: 77,
    };
    let step = |operation| Instruction {
        operation,
        field_type: FieldType::U32,
        key: 0,
        reason: 3,
        offset: 8,
        immediate: 1,
    };
    let steps = [step(Operation::Ge), step(Operation::Sub)];
    let set = named(|b, o| b.set(o, b"stock:42", b"0123456789", Condition::Always));
    cases.add(ITEM, "SET with a token", set);
    let set = named(|b, o| {
        let when = Condition::Version(version).showing();
        b.set_with(o, b"k", b"v", when, Expiry::In(30_000));
    });
    let all = "SET with a token behind a version and a lifetime";
    cases.add(ITEM, all, set);
    let del = named(|b, o| b.del(o, b"k", Condition::Present));
    cases.add(ITEM, "DEL with a token", del);
    let update = named(|b, o| b.update_if(o, b"stock:42", None, &steps, None));
    cases.add(ITEM, "UPDATE_IF with a token", update);
    let update = named(|b, o| {
        let start = Some(&b"12345678"[..]);
        b.update_if_with(o, b"{a}1", Some(b"{a}2"), &steps, start, Expiry::At(1));
    });
    let all = "UPDATE_IF with a token, two keys, a start value and an expiry";
    cases.add(ITEM, all, update);
    cases.add(APPLY, "a token", named(|b, o| b.apply(o, &sale())));
    let mut one = Apply::new();
    one.key(b"k");
    let alone = named(|b, o| b.apply(o, &one));
    cases.add(APPLY, "a token, one key and no instruction", alone);
    let text = Token::of_text(b"order-17", 1_795_902_919_309).expect("a text");
    let set = item(|b, o| {
        b.token(text);
        b.set(o, b"stock:42", b"0123456789", Condition::Always);
    });
    cases.add(ITEM, "SET with a text token", set.clone());
    let late = changed(set.clone(), AREA + 16 + 6, &[1]);
    cases.add(ITEM, "SET with a text token of a time beyond 48 bits", late);
    let no_tag = changed(set, AREA + 8, &[1]);
    cases.add(ITEM, "SET with a text token of the tag of a UUID", no_tag);
    let apply = item(|b, o| {
        b.token(text);
        b.apply(o, &sale());
    });
    cases.add(APPLY, "a text token", apply);
}

/// An area that is no token, in a SET and in an APPLY.
fn wrong_tokens(cases: &mut Cases) {
    let set = named(|b, o| b.set(o, b"k", b"v", Condition::Always));
    let apply = named(|b, o| b.apply(o, &sale()));
    let in_apply = 32 + 16 * sale().instructions().len();
    for (what, at, bytes) in [
        ("a UUID of version 4", 22, &[0x4C][..]),
        ("a UUID of version 0", 22, &[0x0C]),
        ("a UUID of variant 0", 24, &[0x18]),
        ("a UUID of variant 3", 24, &[0xD8]),
        ("extension tag 0", 8, &[0]),
        ("the tag of a text token", 8, &[3]),
        ("extension tag 4", 8, &[4]),
        ("the tag of a member", 8, &[2]),
        ("two items in the area", 2, &[2]),
        ("no item in the area", 2, &[0]),
        ("a word behind the number of items", 4, &[1]),
        ("a length of the area that is not its length", 0, &[40]),
        ("a length of the data that is not its length", 10, &[8]),
        ("a word behind the length of the data", 12, &[1]),
    ] {
        let bytes_of = |item: &Vec<u8>, area: usize| changed(item.clone(), area + at, bytes);
        cases.add(ITEM, format!("SET with {what}"), bytes_of(&set, AREA));
        let of_apply = bytes_of(&apply, in_apply);
        cases.add(APPLY, format!("a token with {what}"), of_apply);
    }
    let bytes: [u8; Token::BYTES] = token().name().try_into().expect("a UUID");
    for (what, area) in [
        ("a token of eight bytes", area_of(&[&bytes[..8]])),
        ("a token of 24 bytes", area_of(&[&[0x77; 24]])),
        ("two tokens", area_of(&[&bytes, &bytes])),
        ("an empty area", area_of(&[])),
    ] {
        let mut other = set.clone();
        other.splice(AREA..AREA + 32, area.iter().copied());
        let len = u16::try_from(area.len()).expect("short");
        let other = changed(other, 0, &(16 + len).to_le_bytes());
        let other = changed(other, 6, &len.to_le_bytes());
        cases.add(ITEM, format!("SET with {what}"), other);
    }
}

/// An area with items of tag 1, as a writer would make it if there could be such items.
fn area_of(items: &[&[u8]]) -> Vec<u8> {
    let short = |len: usize| u8::try_from(len).expect("short");
    let len = 8 + items.iter().map(|data| 8 + data.len()).sum::<usize>();
    let mut area = vec![short(len), 0, short(items.len()), 0, 0, 0, 0, 0];
    for data in items {
        area.extend_from_slice(&[1, 0, short(data.len()), 0, 0, 0, 0, 0]);
        area.extend_from_slice(data);
    }
    area
}

/// Only writes of keys have a token.
fn wrong_operations(cases: &mut Cases) {
    let get = named(|b, o| b.get(o, b"k"));
    cases.add(ITEM, "GET with a token", get);
    let history = named(|b, o| b.history(o, b"k", 0, 10));
    cases.add(ITEM, "HISTORY with a token", history);
    let drop = named(|b, o| b.keyspace(o, b"stock:", Action::Drop));
    cases.add(ITEM, "KEYSPACE with a token", drop);
    let scan = named(|b, o| b.scan(o, &ScanRequest::begin(b"k")));
    cases.add("scan-item", "SCAN with a token", scan);
}

/// Answers that are told again.
fn replies(cases: &mut Cases) {
    for (what, flags, value) in [
        ("a change that is told again", 0, &7u64.to_le_bytes()[..]),
        ("a change without numbers that is told again", 0, b""),
    ] {
        let version = Version {
            epoch: 256,
            sequence: 17,
        };
        let head = ReplyHead {
            flags: flags | ITEM_FLAG_REPLAYED,
            ..ReplyHead::new(Status::Ok, 3, AckLevel::Disk, version)
        };
        let mut bytes = Vec::new();
        head.write(&mut bytes, value);
        cases.add("reply-item", what, bytes);
    }
}
