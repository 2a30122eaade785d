//! Items of requests, and the instructions in them.

use penstock_net::instruction::{FieldType, Instruction, Operation};
use penstock_net::keyspace::{Action, At, Settings};
use penstock_net::level::AckLevel;
use penstock_net::reply::{ITEM_FLAG_SHOWN, ReplyHead};
use penstock_net::request::{Condition, Expiry, MemberRead, Version, Wanted};
use penstock_net::status::Status;

use super::{Cases, changed, item};

fn step(operation: Operation, immediate: u64) -> Instruction {
    Instruction {
        operation,
        field_type: FieldType::U32,
        key: 0,
        reason: 3,
        offset: 8,
        immediate,
    }
}

/// Items that are accepted, and from which the refused ones are made.
struct Samples {
    get: Vec<u8>,
    set: Vec<u8>,
    update: Vec<u8>,
    two: Vec<u8>,
}

impl Samples {
    fn new() -> Samples {
        let get = item(|b, o| b.get(o, b"stock:42"));
        let set = item(|b, o| b.set(o, b"stock:42", b"0123456789", Condition::Always));
        let update = item(|b, o| {
            b.update_if(
                o,
                b"stock:42",
                None,
                &[step(Operation::Ge, 1), step(Operation::Sub, 1)],
                None,
            )
        });
        let two = item(|b, o| {
            b.update_if(
                o,
                b"{a}1",
                Some(b"{a}2"),
                &[step(Operation::Ge, 1)],
                Some(b"12345678"),
            )
        });
        Samples {
            get,
            set,
            update,
            two,
        }
    }
}

pub fn items(cases: &mut Cases) {
    let samples = Samples::new();
    accepted(cases, &samples);
    wrong_heads(cases, &samples);
    wrong_bodies(cases, samples);
}

fn accepted(cases: &mut Cases, samples: &Samples) {
    let Samples {
        get,
        set,
        update,
        two,
    } = samples;
    cases.add("request-item", "GET", get.clone());
    cases.add(
        "request-item",
        "GET of the shortest key",
        item(|b, o| b.get(o, b"k")),
    );
    cases.add(
        "request-item",
        "GET of the longest key",
        item(|b, o| b.get(o, &[b'k'; 1024])),
    );
    cases.add("request-item", "SET", set.clone());
    cases.add(
        "request-item",
        "SET of an empty value",
        item(|b, o| b.set(o, b"k", b"", Condition::Always)),
    );
    cases.add(
        "request-item",
        "SET of the longest value",
        item(|b, o| b.set(o, b"k", &[1; 1024], Condition::Always)),
    );
    for condition in [
        Condition::Absent,
        Condition::Present,
        Condition::Version(Version {
            epoch: 0x0100,
            sequence: 77,
        }),
    ] {
        cases.add(
            "request-item",
            format!("SET {condition:?}"),
            item(|b, o| b.set(o, b"k", b"v", condition)),
        );
    }
    cases.add(
        "request-item",
        "DEL",
        item(|b, o| b.del(o, b"k", Condition::Always)),
    );
    cases.add(
        "request-item",
        "DEL of one version",
        item(|b, o| {
            b.del(
                o,
                b"k",
                Condition::Version(Version {
                    epoch: 1,
                    sequence: 2,
                }),
            )
        }),
    );
    cases.add(
        "request-item",
        "UPDATE_IF with a guard and an effect",
        update.clone(),
    );
    cases.add(
        "request-item",
        "UPDATE_IF with a start value and a second key",
        two.clone(),
    );
    cases.add(
        "request-item",
        "UPDATE_IF without instructions",
        item(|b, o| b.update_if(o, b"k", None, &[], Some(b""))),
    );
    cases.add(
        "request-item",
        "UPDATE_IF with 64 instructions",
        item(|b, o| b.update_if(o, b"k", None, &[step(Operation::Eq, 1); 64], None)),
    );
}

/// What an item says of itself does not hold.
fn wrong_heads(cases: &mut Cases, samples: &Samples) {
    let Samples {
        get,
        set,
        update,
        two,
    } = samples;
    for cut in [0, 8, 16] {
        cases.add(
            "request-item",
            format!("GET cut to {cut} bytes"),
            get[..cut].to_vec(),
        );
    }
    cases.add(
        "request-item",
        "eight bytes too many",
        [get.clone(), vec![0; 8]].concat(),
    );
    for operation in [0u8, 200, 255] {
        cases.add(
            "request-item",
            format!("operation {operation}"),
            changed(get.clone(), 2, &[operation]),
        );
    }
    cases.add(
        "request-item",
        "GET with a flag",
        changed(get.clone(), 3, &[1]),
    );
    for flags in [0x03u8, 0x05, 0x08, 0x10, 0x80] {
        cases.add(
            "request-item",
            format!("SET with flags {flags:#04x}"),
            changed(set.clone(), 3, &[flags]),
        );
    }
    for count in [0u8, 2, 3] {
        cases.add(
            "request-item",
            format!("GET with {count} keys"),
            changed(get.clone(), 4, &[count]),
        );
    }
    cases.add(
        "request-item",
        "UPDATE_IF with three keys",
        changed(two.clone(), 4, &[3]),
    );
    cases.add(
        "request-item",
        "GET with an instruction",
        changed(get.clone(), 5, &[1]),
    );
    cases.add(
        "request-item",
        "UPDATE_IF with 65 instructions",
        changed(update.clone(), 5, &[65]),
    );
    cases.add(
        "request-item",
        "a block length of 8",
        changed(get.clone(), 0, &[8, 0]),
    );
    cases.add(
        "request-item",
        "a block length of 65535",
        changed(get.clone(), 0, &[255, 255]),
    );
}

/// Keys, values, padding, extensions and instructions that are refused.
fn wrong_bodies(cases: &mut Cases, samples: Samples) {
    let Samples {
        get,
        set,
        update,
        two,
    } = samples;
    cases.add("request-item", "an empty key", item(|b, o| b.get(o, b"")));
    cases.add(
        "request-item",
        "a key of 1025 bytes",
        item(|b, o| b.get(o, &[b'k'; 1025])),
    );
    cases.add(
        "request-item",
        "an empty second key",
        changed(two.clone(), 10, &[0, 0]),
    );
    cases.add(
        "request-item",
        "a second key's length without a second key",
        changed(get.clone(), 10, &[1, 0]),
    );
    cases.add(
        "request-item",
        "a value over the limit",
        item(|b, o| b.set(o, b"k", &[1; 1025], Condition::Always)),
    );
    cases.add(
        "request-item",
        "a value length of 4 GiB",
        changed(set.clone(), 12, &u32::MAX.to_le_bytes()),
    );
    cases.add(
        "request-item",
        "GET with a value",
        changed(get.clone(), 12, &[8, 0, 0, 0]),
    );
    cases.add(
        "request-item",
        "UPDATE_IF with a value and no start flag",
        changed(two.clone(), 3, &[0]),
    );
    let last = set.len() - 1;
    cases.add(
        "request-item",
        "padding that is not zero",
        changed(set, last, &[1]),
    );
    let mut extended = get.clone();
    extended.splice(16..16, [16, 0, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
    cases.add(
        "request-item",
        "an extension with an unknown tag",
        changed(changed(extended.clone(), 0, &[32, 0]), 6, &[16, 0]),
    );
    extended.drain(24..32);
    cases.add(
        "request-item",
        "an extension area of eight bytes",
        changed(changed(extended, 0, &[24, 0]), 6, &[8, 0]),
    );
    cases.add(
        "request-item",
        "a bad instruction",
        changed(update, 16, &[99]),
    );
}

/// The past of keys, and keys that belong to the server.
pub fn pasts(cases: &mut Cases) {
    let kind = "request-item";
    let version = Version {
        epoch: 0x0100,
        sequence: 77,
    };
    let by_time = item(|b, o| b.get_at(o, b"k", At::TimeMs(1_900_000_000_000)));
    let by_version = item(|b, o| b.get_at(o, b"k", At::Version(version)));
    cases.add(kind, "GET_AT a time", by_time.clone());
    cases.add(kind, "GET_AT a version", by_version.clone());
    for flags in [0x00u8, 0x24, 0x40, 0x60, 0x01] {
        let bytes = changed(by_time.clone(), 3, &[flags]);
        cases.add(kind, format!("GET_AT with flags {flags:#04x}"), bytes);
    }
    let zero = changed(by_time, 16, &[0; 8]);
    cases.add(kind, "GET_AT the time 0", zero);
    let reserved = changed(by_version, 20, &[1]);
    cases.add(kind, "GET_AT with a word behind the epoch", reserved);
    let history = item(|b, o| b.history(o, b"k", 0, 10));
    cases.add(kind, "HISTORY from the newest on", history.clone());
    cases.add(
        kind,
        "HISTORY from a sequence on",
        item(|b, o| b.history(o, b"k", 77, 1024)),
    );
    for limit in [0u32, 1025] {
        let bytes = changed(history.clone(), 16, &limit.to_le_bytes());
        cases.add(kind, format!("HISTORY of {limit} versions"), bytes);
    }
    let reserved = changed(history.clone(), 20, &[1]);
    cases.add(kind, "HISTORY with a word behind the limit", reserved);
    cases.add(kind, "HISTORY with a flag", changed(history, 3, &[0x20]));
    for key in [&b"\0\0penstock/"[..], b"\0\0penstock/keyspace/{0}a"] {
        cases.add(
            kind,
            "GET of a key of the server",
            item(|b, o| b.get(o, key)),
        );
    }
    cases.add(
        kind,
        "UPDATE_IF with a key of the server",
        item(|b, o| b.update_if(o, b"k", Some(b"\0\0penstock/k"), &[], None)),
    );
    cases.add(
        kind,
        "GET of a key that nearly is the server's",
        item(|b, o| b.get(o, b"\0\0penstock")),
    );
}

/// What members may answer.
pub fn member_reads(cases: &mut Cases) {
    let kind = "request-item";
    let read = MemberRead {
        staleness_us_max: 50_000,
        version_min: Version {
            epoch: 0x0004_0001,
            sequence: 77,
        },
    };
    let any = MemberRead {
        staleness_us_max: u64::MAX,
        version_min: Version::default(),
    };
    let good = item(|b, o| b.get_of_member(o, b"stock:42", Wanted::Value, read));
    cases.add(
        kind,
        "GET of a member, new enough and with a version",
        good.clone(),
    );
    cases.add(
        kind,
        "GET of a member, value and expiry, however old",
        item(|b, o| b.get_of_member(o, b"k", Wanted::ValueAndExpiry, any)),
    );
    for (what, at, bytes) in [
        ("a length of the area that is not its length", 16, &[32][..]),
        ("two extensions that are one", 18, &[2]),
        ("a word behind the number of extensions", 20, &[1]),
        ("extension tag 1", 24, &[1]),
        ("a length of the data that is not its length", 26, &[16]),
        ("a word behind the length of the data", 28, &[1]),
        ("a word behind the epoch", 44, &[1]),
    ] {
        let bytes = changed(good.clone(), at, bytes);
        cases.add(kind, format!("GET of a member with {what}"), bytes);
    }
    let del = changed(good.clone(), 2, &[3]);
    cases.add(kind, "DEL with the extension of GET", del);
    let mut cut = good;
    cut.drain(48..56);
    let cut = changed(changed(cut, 0, &[48, 0]), 6, &[32, 0]);
    cases.add(kind, "GET of a member without a sequence", cut);
}

/// Conditions that ask for the value if they fail. They stand behind all older cases.
pub fn shown(cases: &mut Cases) {
    let kind = "request-item";
    let version = Version {
        epoch: 0x0100,
        sequence: 77,
    };
    let set = |condition: Condition| {
        item(|b, o| b.set_with(o, b"k", b"v", condition.showing(), Expiry::Keep))
    };
    let one_version = set(Condition::Version(version));
    let del = item(|b, o| b.del(o, b"k", Condition::Version(version).showing()));
    cases.add(
        kind,
        "SET that shows which other version is there",
        one_version.clone(),
    );
    cases.add(
        kind,
        "SET that shows what is there already",
        set(Condition::Absent),
    );
    cases.add(
        kind,
        "SET that shows nothing, because only a missing key keeps it",
        set(Condition::Present),
    );
    cases.add(kind, "DEL that shows which other version is there", del);
    let set = item(|b, o| b.set(o, b"k", b"v", Condition::Always));
    let del = item(|b, o| b.del(o, b"k", Condition::Always));
    let get = item(|b, o| b.get(o, b"k"));
    let update = item(|b, o| b.update_if(o, b"k", None, &[], Some(b"1")));
    cases.add(
        kind,
        "SET that shows without a condition",
        changed(set, 3, &[0x08]),
    );
    cases.add(
        kind,
        "DEL that shows without a condition",
        changed(del, 3, &[0x08]),
    );
    cases.add(kind, "GET that shows", changed(get, 3, &[0x08]));
    cases.add(kind, "UPDATE_IF that shows", changed(update, 3, &[0x18]));
    let head = ReplyHead {
        flags: ITEM_FLAG_SHOWN,
        ..ReplyHead::new(Status::VersionMismatch, 3, AckLevel::Disk, version)
    };
    for (name, value) in [
        ("VERSION_MISMATCH that shows a value", &b"eleven byte"[..]),
        ("VERSION_MISMATCH that shows an empty value", b""),
    ] {
        let mut bytes = Vec::new();
        head.write(&mut bytes, value);
        cases.add("reply-item", name, bytes);
    }
}

/// Settings of prefixes.
pub fn keyspaces(cases: &mut Cases) {
    let kind = "request-item";
    let settings = Settings {
        level_min: AckLevel::Disk,
        level_default: None,
        versions: 3,
        layout: 513,
        value_bytes_max: 4096,
        retention_ms: 86_400_000,
        ttl_ms: 600_000,
    };
    let set = item(|b, o| b.keyspace(o, b"stock:", Action::Set(settings)));
    let start = set.len() - 32;
    cases.add(kind, "KEYSPACE that sets", set.clone());
    cases.add(
        kind,
        "KEYSPACE that makes the one of all keys",
        item(|b, o| b.keyspace(o, b"", Action::Create(Settings::default()))),
    );
    let drop = item(|b, o| b.keyspace(o, b"stock:", Action::Drop));
    cases.add(kind, "KEYSPACE that drops", drop.clone());
    let list = item(|b, o| b.keyspace(o, b"", Action::List));
    cases.add(kind, "KEYSPACE that tells all", list);
    let of_one = changed(drop.clone(), 3, &[0x04]);
    cases.add(kind, "KEYSPACE that tells all of a prefix", of_one);
    let settings_missing = changed(drop, 3, &[0x00]);
    cases.add(kind, "KEYSPACE that sets nothing", settings_missing);
    for flags in [0x02u8, 0x03, 0x04, 0x05, 0x08] {
        let bytes = changed(set.clone(), 3, &[flags]);
        let description = format!("KEYSPACE with settings and flags {flags:#04x}");
        cases.add(kind, description, bytes);
    }
    cases.add(
        kind,
        "KEYSPACE of 65 bytes",
        item(|b, o| b.keyspace(o, &[b'p'; 65], Action::Drop)),
    );
    cases.add(
        kind,
        "KEYSPACE of the server's keys",
        item(|b, o| b.keyspace(o, b"\0\0penstock/", Action::Drop)),
    );
    let others: [(&str, usize, &[u8]); 11] = [
        ("level 3", 0, &[3]),
        ("level 4", 0, &[4]),
        ("a value limit over 16 MiB", 4, &[1, 0, 0, 1]),
        ("a retention of 2^48", 8, &[0, 0, 0, 0, 0, 0, 1]),
        ("a lifetime of 2^48", 16, &[0, 0, 0, 0, 0, 0, 1]),
        ("a last word that is not 0", 31, &[1]),
        ("a lifetime of 2^47", 16, &[0, 0, 0, 0, 0, 0x80]),
        ("level 5", 0, &[5]),
        ("default level 4", 24, &[5]),
        ("default level 3", 24, &[4]),
        ("default level 5", 24, &[6]),
    ];
    for (what, at, bytes) in others {
        let bytes = changed(set.clone(), start + at, bytes);
        cases.add(kind, format!("KEYSPACE with {what}"), bytes);
    }
}

/// Keys that are gone by themselves; behind the items that were there first.
pub fn expiries(cases: &mut Cases) {
    let set = |expiry| item(|b, o| b.set_with(o, b"k", b"v", Condition::Always, expiry));
    let update = |expiry, start| item(|b, o| b.update_if_with(o, b"k", None, &[], start, expiry));
    let at = set(Expiry::At(1_900_000_000_000));
    let kind = "request-item";
    cases.add(kind, "SET at a time", at.clone());
    cases.add(kind, "SET for 30 s", set(Expiry::In(30_000)));
    cases.add(kind, "SET that keeps the expiry", set(Expiry::Keep));
    cases.add(
        kind,
        "SET of one version for the longest lifetime",
        item(|b, o| {
            let version = Condition::Version(Version {
                epoch: 0x0100,
                sequence: 77,
            });
            b.set_with(o, b"k", b"v", version, Expiry::In((1 << 48) - 1));
        }),
    );
    cases.add(kind, "an expiry alone", update(Expiry::At(1), None));
    cases.add(kind, "a lifetime alone", update(Expiry::In(1), None));
    cases.add(kind, "an expiry is removed", update(Expiry::Never, None));
    cases.add(
        kind,
        "UPDATE_IF with a start value and a lifetime",
        item(|b, o| {
            let steps = [step(Operation::Ge, 1), step(Operation::Sub, 1)];
            b.update_if_with(
                o,
                b"{a}1",
                Some(b"{a}2"),
                &steps,
                Some(b"12345678"),
                Expiry::In(600_000),
            );
        }),
    );
    for wanted in [Wanted::ValueAndExpiry, Wanted::Expiry] {
        cases.add(
            kind,
            format!("GET of {wanted:?}"),
            item(|b, o| b.get_with(o, b"k", wanted)),
        );
    }
    let get = item(|b, o| b.get(o, b"k"));
    cases.add(kind, "GET with flags 0x60", changed(get, 3, &[0x60]));
    let del = item(|b, o| b.del(o, b"k", Condition::Always));
    for flags in [0x20u8, 0x40, 0x60] {
        let bytes = changed(del.clone(), 3, &[flags]);
        cases.add(kind, format!("DEL with flags {flags:#04x}"), bytes);
    }
    for ms in [0, 1 << 48, u64::MAX] {
        let word = u64::to_le_bytes(ms);
        cases.add(kind, format!("SET at {ms}"), changed(at.clone(), 16, &word));
        cases.add(
            kind,
            format!("SET for {ms} ms"),
            changed(set(Expiry::In(1)), 16, &word),
        );
        cases.add(
            kind,
            format!("UPDATE_IF at {ms}"),
            changed(update(Expiry::At(1), None), 16, &word),
        );
    }
    cases.add(
        kind,
        "an expiry that its flag does not tell",
        changed(at.clone(), 3, &[0]),
    );
    cases.add(
        kind,
        "a flag without its expiry",
        changed(set(Expiry::Never), 3, &[0x20]),
    );
    cases.add(kind, "SET cut behind its expiry", at[..24].to_vec());
}

pub fn instructions(cases: &mut Cases) {
    let good = step(Operation::Ge, 1).encode().to_vec();
    for operation in [1u8, 2, 3, 4, 5, 6, 7, 8, 16, 17, 18] {
        cases.add(
            "instruction",
            format!("operation {operation}"),
            changed(good.clone(), 0, &[operation]),
        );
    }
    for field_type in (0u8..8).chain(0x10..0x18) {
        cases.add(
            "instruction",
            format!("type {field_type:#04x}"),
            changed(good.clone(), 1, &[field_type]),
        );
    }
    for operation in [0u8, 9, 15, 19, 31, 32, 255] {
        cases.add(
            "instruction",
            format!("unknown operation {operation}"),
            changed(good.clone(), 0, &[operation]),
        );
    }
    for field_type in [8u8, 0x18, 0x20, 255] {
        cases.add(
            "instruction",
            format!("unknown type {field_type:#04x}"),
            changed(good.clone(), 1, &[field_type]),
        );
    }
    cases.add("instruction", "a third key", changed(good, 2, &[2]));
    let with = |operation, field_type, immediate: i64| {
        Instruction {
            operation,
            field_type,
            key: 1,
            reason: 0,
            offset: 0,
            immediate: immediate.cast_unsigned(),
        }
        .encode()
        .to_vec()
    };
    for (field_type, inside, outside) in [
        (FieldType::U8, 255, 256),
        (FieldType::U16, 65_535, 65_536),
        (FieldType::I8, -128, -129),
        (FieldType::I16, 32_767, 32_768),
        (FieldType::I32, -2_147_483_648, -2_147_483_649),
        (FieldType::U32, 4_294_967_295, -1),
    ] {
        cases.add(
            "instruction",
            format!("{} = {inside}", field_type.name()),
            with(Operation::Eq, field_type, inside),
        );
        cases.add(
            "instruction",
            format!("{} = {outside}", field_type.name()),
            with(Operation::Eq, field_type, outside),
        );
        cases.add(
            "instruction",
            format!("{} set to {outside}", field_type.name()),
            with(Operation::Set, field_type, outside),
        );
    }
    cases.add(
        "instruction",
        "an addition out of range is an overflow when it runs",
        with(Operation::Add, FieldType::U8, 256),
    );
}
