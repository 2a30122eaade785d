//! The cases that the vector files hold: what each decoder accepts and what it refuses.

mod keyless;

use penstock_net::batch::Batch;
use penstock_net::frame::{Header, Opcode, write_frame};
use penstock_net::hello::{AUTH_NONE, ClientHello, ServerHello, SlotRange};
use penstock_net::instruction::{FieldType, Instruction, Operation};
use penstock_net::keyspace::{Action, At, Settings};
use penstock_net::level::AckLevel;
use penstock_net::placement::{NodeAddress, Placement, WriterRange};
use penstock_net::reply::{ExpiryTold, ITEM_FLAG_SHOWN, ReplyHead, Standing};
use penstock_net::request::{BatchRequest, Condition, Expiry, MemberRead, Version, Wanted};
use penstock_net::status::Status;

use crate::decoded::LIMITS;

pub struct Case {
    pub id: String,
    pub kind: &'static str,
    pub description: String,
    pub bytes: Vec<u8>,
}

struct Cases(Vec<Case>);

impl Cases {
    fn add(&mut self, kind: &'static str, description: impl Into<String>, bytes: Vec<u8>) {
        let id = format!(
            "{kind}-{:03}",
            self.0.iter().filter(|case| case.kind == kind).count() + 1
        );
        self.0.push(Case {
            id,
            kind,
            description: description.into(),
            bytes,
        });
    }
}

pub fn all() -> Vec<Case> {
    let mut cases = Cases(Vec::new());
    frames(&mut cases);
    batches(&mut cases);
    items(&mut cases);
    expiries(&mut cases);
    pasts(&mut cases);
    keyspaces(&mut cases);
    instructions(&mut cases);
    replies(&mut cases);
    keyless::scans(&mut cases);
    keyless::pings(&mut cases);
    hellos(&mut cases);
    member_reads(&mut cases);
    shown(&mut cases);
    cases.0
}

fn frame(opcode: Opcode, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_frame(
        &mut bytes,
        Header::request(opcode, 0x0102_0304_0506_0708, AckLevel::Disk, 250),
        body,
    );
    bytes
}

/// Changes a header and gives it a right CRC again.
fn reheaded(mut bytes: Vec<u8>, change: impl FnOnce(&mut [u8])) -> Vec<u8> {
    change(&mut bytes[..28]);
    let crc = crc32fast::hash(&bytes[..28]);
    bytes[28..32].copy_from_slice(&crc.to_le_bytes());
    bytes
}

fn frames(cases: &mut Cases) {
    let ping = frame(Opcode::Ping, b"12345678");
    cases.add("frame", "a PING with a body of eight bytes", ping.clone());
    cases.add("frame", "a PING without a body", frame(Opcode::Ping, b""));
    cases.add("frame", "an INFO", frame(Opcode::Info, b""));
    cases.add(
        "frame",
        "a body that is padded with zeros",
        frame(Opcode::Ping, b"123"),
    );
    cases.add(
        "frame",
        "the longest frame that is accepted",
        frame(Opcode::Ping, &vec![7; 4096 - 32]),
    );
    cases.add(
        "frame",
        "an unknown opcode is the server's to refuse",
        reheaded(ping.clone(), |h| h[6] = 0x7E),
    );
    cases.add(
        "frame",
        "unknown flags are the server's to refuse",
        reheaded(ping.clone(), |h| h[7] = 0x80),
    );
    cases.add("frame", "no magic", reheaded(ping.clone(), |h| h[4] = 0x47));
    cases.add(
        "frame",
        "another protocol version",
        reheaded(ping.clone(), |h| h[5] = 2),
    );
    for len in [0u32, 8, 24, 31, 33, 36, u32::MAX] {
        cases.add(
            "frame",
            format!("length {len}"),
            reheaded(ping.clone(), |h| h[..4].copy_from_slice(&len.to_le_bytes())),
        );
    }
    cases.add(
        "frame",
        "a frame over the limit",
        frame(Opcode::Ping, &vec![7; 4096 - 24]),
    );
    for at in [0, 8, 16, 24, 28] {
        let mut bytes = ping.clone();
        bytes[at] ^= 1;
        cases.add("frame", format!("a flipped bit in header byte {at}"), bytes);
    }
    let mut bytes = ping.clone();
    bytes[35] ^= 0x10;
    cases.add("frame", "a flipped bit in the body", bytes);
    for cut in [0, 1, 31, 32, 39] {
        cases.add(
            "frame",
            format!("only {cut} bytes of forty"),
            ping[..cut].to_vec(),
        );
    }
    cases.add(
        "frame",
        "text instead of a frame",
        b"GET / HTTP/1.1\r\nHost: example\r\n\r\n\r\n".to_vec(),
    );
}

fn body(build: impl FnOnce(&mut BatchRequest, &mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut batch = BatchRequest::begin(&mut bytes, 1, AckLevel::Disk, 0, 4);
    build(&mut batch, &mut bytes);
    batch.finish(&mut bytes);
    bytes.split_off(32)
}

fn item(build: impl FnOnce(&mut BatchRequest, &mut Vec<u8>)) -> Vec<u8> {
    Batch::read(&body(build))
        .expect("one item")
        .item(0)
        .to_vec()
}

fn changed(mut bytes: Vec<u8>, at: usize, to: &[u8]) -> Vec<u8> {
    bytes[at..at + to.len()].copy_from_slice(to);
    bytes
}

fn batches(cases: &mut Cases) {
    let one = body(|b, o| b.get(o, b"key"));
    let two = body(|b, o| {
        b.get(o, b"key");
        b.set(o, b"other", b"value", Condition::Always);
    });
    cases.add("batch", "one item", one.clone());
    cases.add("batch", "two items", two.clone());
    for count in [0u32, 2, 1025, u32::MAX] {
        cases.add(
            "batch",
            format!("one item and a count of {count}"),
            changed(one.clone(), 0, &count.to_le_bytes()),
        );
    }
    cases.add(
        "batch",
        "reserved bytes behind the count",
        changed(one.clone(), 4, &[1]),
    );
    for offset in [0u32, 8, 15, 24, u32::MAX] {
        cases.add(
            "batch",
            format!("the first item at {offset} instead of 16"),
            changed(one.clone(), 8, &offset.to_le_bytes()),
        );
    }
    for len in [0u32, 4, 16, 32, u32::MAX] {
        cases.add(
            "batch",
            format!("an item of {len} bytes instead of 24"),
            changed(one.clone(), 12, &len.to_le_bytes()),
        );
    }
    cases.add(
        "batch",
        "two items on one place",
        changed(two.clone(), 16, &two[8..12]),
    );
    cases.add("batch", "nothing", Vec::new());
    cases.add(
        "batch",
        "a count without an index",
        3u64.to_le_bytes().to_vec(),
    );
    cases.add(
        "batch",
        "bytes behind the last item",
        [one, vec![0; 8]].concat(),
    );
}

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

fn items(cases: &mut Cases) {
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
fn pasts(cases: &mut Cases) {
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
fn member_reads(cases: &mut Cases) {
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

/// Settings of prefixes.
/// Conditions that ask for what keeps them from holding; behind all that were there first.
fn shown(cases: &mut Cases) {
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

fn keyspaces(cases: &mut Cases) {
    let kind = "request-item";
    let settings = Settings {
        level_min: AckLevel::Disk,
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
    let wrong: [(&str, usize, &[u8]); 7] = [
        ("level 3", 0, &[3]),
        ("level 4", 0, &[4]),
        ("a value limit over 16 MiB", 4, &[1, 0, 0, 1]),
        ("a retention of 2^48", 8, &[0, 0, 0, 0, 0, 0, 1]),
        ("a lifetime of 2^48", 16, &[0, 0, 0, 0, 0, 0, 1]),
        ("a last word that is not 0", 31, &[1]),
        ("a lifetime of 2^47", 16, &[0, 0, 0, 0, 0, 0x80]),
    ];
    for (what, at, bytes) in wrong {
        let bytes = changed(set.clone(), start + at, bytes);
        cases.add(kind, format!("KEYSPACE with {what}"), bytes);
    }
}

/// Keys that are gone by themselves; behind the items that were there first.
fn expiries(cases: &mut Cases) {
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

fn instructions(cases: &mut Cases) {
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

fn replies(cases: &mut Cases) {
    let head = |status| {
        ReplyHead::new(
            status,
            3,
            AckLevel::Disk,
            Version {
                epoch: 256,
                sequence: 9,
            },
        )
    };
    let item = |status, value: &[u8]| {
        let mut bytes = Vec::new();
        head(status).write(&mut bytes, value);
        bytes
    };
    // What came later stands at the end.
    let later = [Status::NotKept, Status::NoReplicas, Status::Stale];
    for status in Status::ALL
        .into_iter()
        .filter(|status| !later.contains(status))
    {
        cases.add("reply-item", status.name(), item(status, b"twelve bytes"));
    }
    let good = item(Status::Ok, b"12345678");
    cases.add("reply-item", "an empty value", item(Status::Ok, b""));
    cases.add(
        "reply-item",
        "an unknown status",
        changed(good.clone(), 0, &[0x99, 0x01]),
    );
    cases.add(
        "reply-item",
        "an unknown level",
        changed(good.clone(), 3, &[4]),
    );
    for len in [0u32, 9, 16, u32::MAX] {
        cases.add(
            "reply-item",
            format!("a value length of {len} instead of 8"),
            changed(good.clone(), 8, &len.to_le_bytes()),
        );
    }
    for cut in [0, 8, 16, 24] {
        cases.add(
            "reply-item",
            format!("only {cut} bytes of 32"),
            good[..cut].to_vec(),
        );
    }
    let told = |expiry_ms, value: &[u8]| {
        let mut bytes = Vec::new();
        let told = ExpiryTold {
            expiry_ms,
            time_ms: 1_800_000_000_000,
        };
        head(Status::Ok).write_telling(&mut bytes, Some(told), None, value);
        bytes
    };
    cases.add("reply-item", "a key that never expires", told(0, b""));
    let good = told(1_800_000_000_500, b"12345678");
    cases.add("reply-item", "a value and its expiry", good.clone());
    cases.add(
        "reply-item",
        "an expiry cut in half",
        told(7, b"")[..32].to_vec(),
    );
    cases.add(
        "reply-item",
        "an expiry that its flag does not tell",
        changed(good, 7, &[0]),
    );
    for status in later {
        cases.add("reply-item", status.name(), item(status, b"twelve bytes"));
    }
    let standing = |expiry, status, value: &[u8]| {
        let standing = Standing {
            age_us: 12_500,
            through: Version {
                epoch: 0x0004_0001,
                sequence: 77,
            },
        };
        let mut bytes = Vec::new();
        head(status).write_telling(&mut bytes, expiry, Some(standing), value);
        bytes
    };
    let good = standing(None, Status::Ok, b"12345678");
    cases.add("reply-item", "a value and how new it is", good.clone());
    cases.add(
        "reply-item",
        "nothing of a key and how new that is",
        standing(None, Status::NotFound, b""),
    );
    let expiry = ExpiryTold {
        expiry_ms: 7,
        time_ms: 5,
    };
    cases.add(
        "reply-item",
        "a value, its expiry and how new it is",
        standing(Some(expiry), Status::Ok, b"1"),
    );
    cases.add(
        "reply-item",
        "STALE that tells how old what is there is",
        standing(None, Status::Stale, b"twelve bytes"),
    );
    let reserved = changed(good.clone(), 36, &[1]);
    cases.add(
        "reply-item",
        "a word behind the epoch of the standing",
        reserved,
    );
    cases.add("reply-item", "a standing cut in half", good[..40].to_vec());
}

fn hellos(cases: &mut Cases) {
    let mut bytes = Vec::new();
    ClientHello {
        protocol_min: 1,
        protocol_max: 3,
        features: 0,
        name: "shop-7",
    }
    .write(&mut bytes, 1);
    let good = bytes.split_off(32);
    cases.add("client-hello", "versions 1 to 3, a name", good.clone());
    cases.add(
        "client-hello",
        "no name",
        good[..24]
            .iter()
            .copied()
            .enumerate()
            .map(|(at, byte)| if at == 16 { 0 } else { byte })
            .collect(),
    );
    for (min, max) in [(0u16, 0u16), (2, 3), (3, 1)] {
        let range = [min.to_le_bytes(), max.to_le_bytes()].concat();
        cases.add(
            "client-hello",
            format!("versions {min} to {max}"),
            changed(good.clone(), 0, &range),
        );
    }
    for at in [4, 18, 20, 31] {
        cases.add(
            "client-hello",
            format!("reserved byte {at}"),
            changed(good.clone(), at, &[1]),
        );
    }
    for len in [5u16, 9, 65, u16::MAX] {
        cases.add(
            "client-hello",
            format!("a name length of {len} instead of 6"),
            changed(good.clone(), 16, &len.to_le_bytes()),
        );
    }
    cases.add(
        "client-hello",
        "a name that is not UTF-8",
        changed(good.clone(), 24, &[0xFF]),
    );
    cases.add("client-hello", "nothing", Vec::new());
    cases.add("client-hello", "half", good[..16].to_vec());
    let hello = ServerHello {
        protocol: 1,
        shard: 1,
        shard_count: 2,
        auth_methods: AUTH_NONE,
        cluster_id: [1; 16],
        node_id: [2; 16],
        incarnation: 3,
        features: 0,
        nonce: [0; 32],
        limits: LIMITS,
        interval_ms: 100,
        slots: vec![
            SlotRange {
                first: 0,
                last: 8191,
                shard: 0,
                port: 7420,
            },
            SlotRange {
                first: 8192,
                last: 16_383,
                shard: 1,
                port: 7421,
            },
        ],
        placement: None,
    };
    let mut bytes = Vec::new();
    hello.write(&mut bytes, 1);
    let good = bytes.split_off(32);
    cases.add("server-hello", "two shards", good.clone());
    cases.add(
        "server-hello",
        "fields that a later version appended",
        [good.clone(), vec![9; 16]].concat(),
    );
    cases.add(
        "server-hello",
        "shorter than its fields",
        good[..119].to_vec(),
    );
    cases.add(
        "server-hello",
        "fewer ranges than it says",
        good[..128].to_vec(),
    );
    cases.add(
        "server-hello",
        "more ranges than there can be",
        changed(good, 112, &[255, 255]),
    );
    placement_cases(cases, hello);
}

fn placement_cases(cases: &mut Cases, hello: ServerHello) {
    let range = |first, last, node, generation| WriterRange {
        first,
        last,
        node,
        generation,
    };
    let address = |node, clients: &str| NodeAddress {
        node,
        clients: clients.into(),
    };
    let placed = ServerHello {
        placement: Some(Placement {
            version: 640,
            nodes: vec![address(1, "10.0.0.1:7411"), address(2, "two.example:7411")],
            writers: vec![range(0, 127, 1, 2), range(128, 255, 2, 3)],
        }),
        ..hello
    };
    let mut bytes = Vec::new();
    placed.write(&mut bytes, 1);
    let good = bytes.split_off(32);
    // Behind 120 bytes and two ranges of slots.
    let at = 136;
    cases.add("server-hello", "one of two nodes", good.clone());
    let changes: [(&str, usize, &[u8]); 7] = [
        ("an address that is empty", at + 9, &[0]),
        ("more nodes than there can be", at + 4, &[255, 255]),
        (
            "more ranges of partitions than there are",
            at + 6,
            &[255, 255],
        ),
        ("an address that goes on behind the end", at + 9, &[255]),
        ("an address that is not UTF-8", at + 16, &[0xFF]),
        ("a range that ends before it begins", at + 56, &[128]),
        ("a partition that is none", at + 59, &[1]),
    ];
    for (description, at, with) in changes {
        cases.add("server-hello", description, changed(good.clone(), at, with));
    }
    cases.add(
        "server-hello",
        "no placement, which its features tell",
        good[..at].to_vec(),
    );
    cases.add(
        "server-hello",
        "fields that a later version appended behind the placement",
        [good, vec![9; 16]].concat(),
    );
}
