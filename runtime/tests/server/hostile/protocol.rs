//! The statements of PROTOCOL.md, *Rare cases*, read from a real server.

use penstock_net::instruction::{FieldType, Instruction, Operation};
use penstock_net::keyspace::{Action, At, Settings};
use penstock_net::reply::{NO_INSTRUCTION, ReplyHead};
use penstock_net::request::Version;

use super::*;

/// A reply item: its fixed part and its value.
type Answer = (ReplyHead, Vec<u8>);

impl Raw {
    /// Sends a batch and waits for all of its items, in the order of the request.
    fn asks(&mut self, build: impl FnOnce(&mut BatchRequest, &mut Vec<u8>)) -> Vec<Answer> {
        self.say(&batch(build));
        let mut answers: Vec<Answer> = Vec::new();
        loop {
            let (header, body) = self.receive().expect("an answer");
            assert_eq!(header.level_or_status, Status::Ok.code(), "{header:?}");
            let reply = Batch::read(&body).expect("a batch");
            answers.extend((0..reply.len()).map(|number| {
                let item = ReplyItem::read(reply.item(number)).expect("an item");
                (item.head, item.value.to_vec())
            }));
            if header.flags & FLAG_MORE == 0 {
                answers.sort_by_key(|(head, _)| head.item);
                return answers;
            }
        }
    }

    /// The one item's answer.
    fn ask(&mut self, build: impl FnOnce(&mut BatchRequest, &mut Vec<u8>)) -> Answer {
        let mut answers = self.asks(build);
        assert_eq!(answers.len(), 1);
        answers.remove(0)
    }
}

fn batch(build: impl FnOnce(&mut BatchRequest, &mut Vec<u8>)) -> Vec<u8> {
    let mut frame = Vec::new();
    let mut batch = BatchRequest::begin(&mut frame, 9, AckLevel::Disk, 0, 8);
    build(&mut batch, &mut frame);
    batch.finish(&mut frame);
    frame
}

/// The bytes of one item.
fn item(build: impl FnOnce(&mut BatchRequest, &mut Vec<u8>)) -> Vec<u8> {
    let frame = batch(build);
    Batch::read(&frame[32..]).expect("a batch").item(0).to_vec()
}

fn started(name: &str) -> (Folder, Server, Raw) {
    let folder = Folder::new(name);
    let server = Server::start(&folder.0, &["--shards", "1"]);
    let raw = Raw::greeted(server.address);
    (folder, server, raw)
}

fn step(operation: Operation, key: u8, immediate: u64) -> Instruction {
    Instruction {
        operation,
        field_type: FieldType::U64,
        key,
        reason: 0,
        offset: 0,
        immediate,
    }
}

#[test]
fn a_refused_frame_has_a_text_with_its_length_in_four_bytes_before_it() {
    let (_folder, _server, mut raw) = started("refused-text");
    raw.say(&reheaded(ping(b""), |header| header[6] = 0x77));
    let (header, body) = raw.receive().expect("an answer");
    assert_eq!(
        (header.opcode, header.request_id, header.flags),
        (0x77, 7, 1)
    );
    assert_eq!(header.level_or_status, Status::Unsupported.code());
    let len = u32::from_le_bytes(body[..4].try_into().unwrap()) as usize;
    assert_eq!(body[4..8], [0; 4]);
    assert_eq!(&body[8..8 + len], b"opcode 0x77 is not known");
    assert_eq!(body.len(), (8 + len).next_multiple_of(8));
    assert!(body[8 + len..].iter().all(|&byte| byte == 0), "padding");
}

#[test]
fn hello_a_second_time_is_malformed_and_the_connection_lives() {
    let (_folder, _server, mut raw) = started("hello-twice");
    raw.say(&hello());
    raw.gets_refusal(Status::Malformed, &["HELLO was said already"]);
    raw.still_works();
}

#[test]
fn a_slot_hint_out_of_range_is_malformed_and_a_wrong_one_changes_nothing() {
    let (_folder, _server, mut raw) = started("hints");
    let hinted = |hint: u16| {
        let frame = batch(|b, o| b.set(o, b"foo", b"v", Condition::Always));
        reheaded(frame, |header| {
            header[18..20].copy_from_slice(&hint.to_le_bytes());
        })
    };
    for hint in [16_384, 0xFFFE] {
        raw.say(&hinted(hint));
        raw.gets_refusal(Status::Malformed, &["slot hint", &format!("{hint:#06x}")]);
    }
    assert_eq!(slot_of(b"foo"), 12_182);
    for hint in [12_182, 0, 16_383, 0xFFFF] {
        raw.say(&hinted(hint));
        let (header, body) = raw.receive().expect("an answer");
        assert_eq!(header.level_or_status, Status::Ok.code());
        let reply = Batch::read(&body).expect("a batch");
        let item = ReplyItem::read(reply.item(0)).expect("an item");
        assert_eq!(item.head.status, Status::Ok, "hint {hint}");
    }
}

#[test]
fn of_several_faults_of_a_frame_the_first_in_the_documents_order_is_answered() {
    let (_folder, server, mut raw) = started("faults");
    // From the last one on, each fault joins those before it and is told in their place.
    let mut frame = batch(|b, o| b.get(o, b"k"));
    reseal(&mut frame, |frame| frame[32] = 9);
    let mut faults: Vec<(Vec<u8>, Status, &str)> = Vec::new();
    faults.push((frame.clone(), Status::Malformed, "count and index"));
    let changes: [(usize, u8, Status, &str); 6] = [
        (16, 9, Status::Malformed, "ack level"),
        (19, 0x7F, Status::Malformed, "slot hint"),
        (20, 1, Status::Malformed, "topology"),
        (17, 1, Status::Malformed, "class"),
        (7, 0x40, Status::Malformed, "flags"),
        (6, 0x77, Status::Unsupported, "opcode"),
    ];
    for (at, byte, status, words) in changes {
        frame = reheaded(frame, |header| header[at] = byte);
        faults.push((frame.clone(), status, words));
    }
    frame[32] ^= 1;
    faults.push((frame.clone(), Status::Malformed, "body CRC"));
    for (frame, status, words) in &faults {
        raw.say(frame);
        raw.gets_refusal(*status, &[words]);
    }
    raw.still_works();
    // Before HELLO nothing of the header counts but that it is none.
    let mut early = Raw::new(server.address);
    early.say(&faults[6].0);
    early.gets_refusal(Status::HelloExpected, &["0x77"]);
    assert!(early.receive().is_none());
    // These end the connection.
    let fatal: [(&[usize], &str); 3] = [
        (&[0], "multiple of 8"),
        (&[5, 0], "protocol version"),
        (&[4, 5, 0], "byte 4"),
    ];
    for (wrong, words) in fatal {
        let mut raw = Raw::greeted(server.address);
        raw.say(&reheaded(frame.clone(), |header| {
            wrong.iter().for_each(|&at| header[at] = 0x21);
        }));
        raw.gets_refusal(Status::Malformed, &[words]);
        assert!(raw.receive().is_none(), "{words}");
    }
}

/// Changes the body too.
fn reseal(frame: &mut Vec<u8>, change: impl FnOnce(&mut [u8])) {
    change(frame);
    let crc = crc32fast::hash(&frame[32..]);
    let header = std::mem::take(frame);
    *frame = reheaded(header, |header| {
        header[24..28].copy_from_slice(&crc.to_le_bytes());
    });
}

#[test]
fn of_several_faults_of_an_item_the_first_in_the_documents_order_is_answered() {
    let (_folder, _server, mut raw) = started("item-faults");
    let start = [0; 8];
    let good = item(|b, o| {
        b.update_if(
            o,
            b"{a}1",
            Some(b"b"),
            &[step(Operation::Ge, 0, 1)],
            Some(&start),
        );
    });
    let mut bytes = good.clone();
    // Of another slot, and an unknown operation of an instruction.
    let mut changes: Vec<(usize, u8, Status, &str)> = vec![
        (16, 99, Status::Malformed, "instruction 0"),
        // Behind the block of 32 bytes stands key 0, and padding from its fifth byte on.
        (39, 1, Status::Malformed, "padding behind key 0"),
        (15, 0x7F, Status::TooLarge, "value of"),
        (9, 0x7F, Status::BadKey, "key 0 has"),
        (0, 40, Status::Malformed, "block length"),
        (5, 65, Status::Malformed, "65 instructions"),
        (4, 3, Status::Malformed, "3 keys"),
        (3, 0x80, Status::Malformed, "flags"),
        (2, 77, Status::Unsupported, "operation 77"),
    ];
    let (head, message) = raw.ask(|b, o| b.raw(o, &good));
    assert_eq!(
        head.status,
        Status::CrossSlot,
        "the last of them: {message:?}"
    );
    for (at, byte, status, words) in changes.drain(..) {
        bytes[at] = byte;
        let (head, message) = raw.ask(|b, o| b.raw(o, &bytes));
        let message = String::from_utf8(message).expect("a text");
        assert_eq!(head.status, status, "{message}");
        assert!(message.contains(words), "{message:?} has no {words:?}");
        assert_eq!(
            (head.version, head.instruction),
            (Version::default(), NO_INSTRUCTION)
        );
    }
}

#[test]
fn an_unknown_extension_tag_is_unsupported_and_an_area_of_another_form_is_malformed() {
    let (_folder, _server, mut raw) = started("extensions");
    let with = |tag: u16, operation: u8, items: u16| {
        let mut bytes = item(|b, o| b.get(o, b"k"));
        let mut area = vec![0; 24];
        area[0] = 24;
        area[2..4].copy_from_slice(&items.to_le_bytes());
        area[8..10].copy_from_slice(&tag.to_le_bytes());
        area[10] = 8;
        bytes[0] = 16 + 24;
        bytes[2] = operation;
        bytes[6] = 24;
        bytes.splice(16..16, area);
        bytes
    };
    for (bytes, status, words) in [
        (with(7, 1, 1), Status::Unsupported, "extension tag 7"),
        (with(7, 3, 1), Status::Unsupported, "extension tag 7"),
        (
            with(2, 3, 1),
            Status::Unsupported,
            "does not take extension tag 2",
        ),
        (with(2, 1, 1), Status::Malformed, "extension area"),
        (with(2, 1, 2), Status::Malformed, "extension area"),
    ] {
        let (head, message) = raw.ask(|b, o| b.raw(o, &bytes));
        let message = String::from_utf8(message).expect("a text");
        assert_eq!(head.status, status, "{message}");
        assert!(message.contains(words), "{message:?} has no {words:?}");
    }
}

#[test]
fn a_deletion_shows_its_version_and_versions_rise_over_it_and_over_a_start() {
    let folder = Folder::new("versions");
    let server = Server::start(&folder.0, &["--shards", "1"]);
    let mut raw = Raw::greeted(server.address);
    let set = |raw: &mut Raw| raw.ask(|b, o| b.set(o, b"k", b"v", Condition::Always)).0;
    let mut versions = vec![set(&mut raw).version];
    let (deleted, value) = raw.ask(|b, o| b.del(o, b"k", Condition::Always));
    assert_eq!((deleted.status, value.len()), (Status::Ok, 0));
    versions.push(deleted.version);
    let (missing, value) = raw.ask(|b, o| b.get(o, b"k"));
    assert_eq!((missing.status, value.len()), (Status::NotFound, 0));
    assert_eq!(
        missing.version,
        Version::default(),
        "a missing key has none"
    );
    versions.push(set(&mut raw).version);
    drop(server);
    let server = Server::start(&folder.0, &["--shards", "1"]);
    let mut raw = Raw::greeted(server.address);
    let (kept, _) = raw.ask(|b, o| b.get(o, b"k"));
    assert_eq!(kept.version, versions[2]);
    versions.push(set(&mut raw).version);
    // Epoch first, then sequence.
    assert!(
        versions.is_sorted_by(|before, next| before < next),
        "{versions:?}"
    );
    let sequences = versions.iter().map(|version| version.sequence);
    assert!(
        sequences.is_sorted_by(|before, next| before < next),
        "{versions:?}"
    );
    assert!(versions[2].epoch < versions[3].epoch, "{versions:?}");
    // A condition holds for this version alone, not for a newer or an older one.
    for wrong in [
        versions[2],
        Version {
            epoch: 0,
            ..versions[3]
        },
        Version {
            sequence: 999,
            ..versions[3]
        },
    ] {
        let (head, _) = raw.ask(|b, o| b.set(o, b"k", b"w", Condition::Version(wrong)));
        assert_eq!(
            (head.status, head.version),
            (Status::VersionMismatch, versions[3])
        );
    }
    let (head, _) = raw.ask(|b, o| b.set(o, b"k", b"w", Condition::Version(versions[3])));
    assert_eq!(head.status, Status::Ok);
}

#[test]
fn a_conditional_write_on_a_missing_key_is_not_found_whatever_the_version() {
    let (_folder, _server, mut raw) = started("missing");
    let version = |epoch, sequence| Condition::Version(Version { epoch, sequence });
    for condition in [Condition::Present, version(256, 1), version(0, 0)] {
        let set = raw.ask(|b, o| b.set(o, b"k", b"v", condition));
        let del = raw.ask(|b, o| b.del(o, b"k", condition));
        for (head, value) in [set, del] {
            assert_eq!(head.status, Status::NotFound, "{condition:?}");
            assert_eq!((head.version, value.len()), (Version::default(), 0));
        }
    }
}

#[test]
fn the_same_key_twice_is_one_key_and_has_one_version_for_each_item() {
    let (_folder, _server, mut raw) = started("same-key");
    let both = |b: &mut BatchRequest, o: &mut Vec<u8>| {
        let steps = [
            step(Operation::Absent, 1, 0),
            step(Operation::Add, 0, 5),
            step(Operation::Eq, 1, 5),
            step(Operation::Add, 1, 2),
        ];
        let absent = Instruction {
            field_type: FieldType::U8,
            ..steps[0]
        };
        b.update_if(
            o,
            b"k",
            Some(b"k"),
            &[absent, steps[1], steps[2], steps[3]],
            Some(&[0; 8]),
        );
    };
    let (first, values) = raw.ask(both);
    assert_eq!(first.status, Status::Ok, "{first:?}");
    assert_eq!(values, [5u64.to_le_bytes(), 7u64.to_le_bytes()].concat());
    let answers = raw.asks(|b, o| {
        b.get(o, b"k");
        b.set(o, b"k", b"a", Condition::Always);
        b.set(o, b"k", b"b", Condition::Present);
        b.get(o, b"k");
    });
    assert_eq!(answers[0].1, 7u64.to_le_bytes());
    assert_eq!(answers[3].1, b"b");
    let sequences: Vec<u64> = answers.iter().map(|it| it.0.version.sequence).collect();
    let from = first.version.sequence;
    assert_eq!(sequences, [from, from + 1, from + 2, from + 2]);
}

#[test]
fn statuses_have_a_text_or_none_as_the_document_says() {
    let (_folder, _server, mut raw) = started("texts");
    raw.ask(|b, o| b.set(o, b"k", b"12345678", Condition::Always));
    let wrong = Condition::Version(Version {
        epoch: 1,
        sequence: 1,
    });
    let has_none = |(head, value): Answer, status: Status| {
        assert_eq!((head.status, value.len()), (status, 0));
    };
    has_none(raw.ask(|b, o| b.get(o, b"m")), Status::NotFound);
    has_none(
        raw.ask(|b, o| b.set(o, b"k", b"", Condition::Absent)),
        Status::Exists,
    );
    has_none(
        raw.ask(|b, o| b.set(o, b"k", b"", wrong)),
        Status::VersionMismatch,
    );
    has_none(
        raw.ask(|b, o| b.del(o, b"k", wrong)),
        Status::VersionMismatch,
    );
    has_none(
        raw.ask(|b, o| b.set(o, b"k", b"12345678", Condition::Always)),
        Status::Ok,
    );
    let missing = [step(Operation::Ge, 0, 1)];
    has_none(
        raw.ask(|b, o| b.update_if(o, b"m", None, &missing, None)),
        Status::NotFound,
    );
    let exists = [Instruction {
        field_type: FieldType::U8,
        ..step(Operation::Absent, 0, 0)
    }];
    let (head, value) = raw.ask(|b, o| b.update_if(o, b"k", None, &exists, None));
    assert_eq!(
        (head.status, value),
        (Status::GuardFailed, 1u64.to_le_bytes().to_vec())
    );
    let has_text = |(head, value): Answer, status: Status| {
        let text = String::from_utf8(value).expect("UTF-8");
        assert_eq!(head.status, status, "{text}");
        assert!(text.contains(' '), "{text:?}");
    };
    let outside = [Instruction {
        offset: 1,
        ..step(Operation::Ge, 0, 1)
    }];
    has_text(
        raw.ask(|b, o| b.update_if(o, b"k", None, &outside, None)),
        Status::BadField,
    );
    has_text(
        raw.ask(|b, o| b.get_at(o, b"m", At::TimeMs(1))),
        Status::NotKept,
    );
    has_text(raw.ask(|b, o| b.history(o, b"k", 0, 1)), Status::NotKept);
    let settings = Settings::default();
    has_text(
        raw.ask(|b, o| b.keyspace(o, b"p", Action::Drop)),
        Status::NotFound,
    );
    assert_eq!(
        raw.ask(|b, o| b.keyspace(o, b"p", Action::Create(settings)))
            .0
            .status,
        Status::Ok
    );
    has_text(
        raw.ask(|b, o| b.keyspace(o, b"p", Action::Create(settings))),
        Status::Exists,
    );
    has_text(raw.ask(|b, o| b.get(o, b"\0\0penstock/x")), Status::BadKey);
    let replica = reheaded(batch(|b, o| b.get(o, b"k")), |header| header[16] = 3);
    raw.say(&replica);
    raw.gets_refusal(Status::Unsupported, &["replica"]);
}

#[test]
fn a_condition_that_does_not_hold_is_answered_also_by_a_full_server() {
    let folder = Folder::new("full-condition");
    let flags = ["--shards", "1", "--disk-bytes-max", "32MiB"];
    let server = Server::start(&folder.0, &flags);
    let mut raw = Raw::greeted(server.address);
    let value = vec![7; 60_000];
    let mut keys = 0u32;
    loop {
        let key = keys.to_le_bytes();
        let (head, _) = raw.ask(|b, o| b.set(o, &key, &value, Condition::Always));
        match head.status {
            Status::Ok => keys += 1,
            Status::Full => break,
            other => panic!("{other:?}"),
        }
        assert!(keys < 10_000, "32 MiB take no 600 MB");
    }
    let first = 0u32.to_le_bytes();
    let (head, _) = raw.ask(|b, o| b.set(o, &first, &value, Condition::Absent));
    assert_eq!(head.status, Status::Exists);
    let (head, _) = raw.ask(|b, o| b.set(o, b"new", &value, Condition::Present));
    assert_eq!(head.status, Status::NotFound);
    let wrong = Condition::Version(Version {
        epoch: 1,
        sequence: 1,
    });
    let (head, _) = raw.ask(|b, o| b.set(o, &first, &value, wrong));
    assert_eq!(head.status, Status::VersionMismatch);
}
