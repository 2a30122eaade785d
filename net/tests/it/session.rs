//! The worked session of SESSION.md, byte by byte.

use penstock_net::hello::{
    AUTH_NONE, ClientHello, FEATURE_EXPIRY, FEATURE_KEYSPACES, FEATURE_MEMBER_READS,
    FEATURE_PING_ITEMS, FEATURE_SCAN, FEATURE_SHOWN, ServerHello, SlotRange,
};
use penstock_net::instruction::{FieldType, Instruction, Operation};
use penstock_net::level::AckLevel;
use penstock_net::limits::Limits;
use penstock_net::pieces::Pieces;
use penstock_net::reply::{BatchReply, ReplyHead, Standing};
use penstock_net::request::{BatchRequest, Condition, MemberRead, Version, Wanted};
use penstock_net::slot::SLOTS;
use penstock_net::status::Status;

use crate::{hex, unhex};

/// What the server with one shard says of itself.
fn server_hello() -> Vec<u8> {
    let mut frame = Vec::new();
    ServerHello {
        protocol: 1,
        shard: 0,
        shard_count: 1,
        auth_methods: AUTH_NONE,
        cluster_id: [0xC1; 16],
        node_id: [0xA1; 16],
        incarnation: 1,
        features: FEATURE_EXPIRY
            | FEATURE_SCAN
            | FEATURE_KEYSPACES
            | FEATURE_MEMBER_READS
            | FEATURE_SHOWN
            | FEATURE_PING_ITEMS,
        nonce: [0; 32],
        limits: Limits {
            frame_bytes_max: 2 << 20,
            value_bytes_max: 1 << 20,
        },
        time_ms: 0,
        interval_ms: 100,
        slots: vec![SlotRange {
            first: 0,
            last: SLOTS - 1,
            shard: 0,
            port: 7420,
        }],
        placement: None,
    }
    .write(&mut frame, 1);
    frame
}

/// An UPDATE_IF that sells one item.
fn sale(request_id: u64) -> Vec<u8> {
    let step = |operation, reason| Instruction {
        operation,
        field_type: FieldType::U64,
        key: 0,
        reason,
        offset: 0,
        immediate: 1,
    };
    let mut frame = Vec::new();
    let mut batch = BatchRequest::begin(&mut frame, request_id, AckLevel::Disk, 0, 1);
    batch.update_if(
        &mut frame,
        b"stock:42",
        None,
        &[step(Operation::Ge, 7), step(Operation::Sub, 0)],
        None,
    );
    batch.finish(&mut frame);
    frame
}

fn head(status: Status, sequence: u64) -> ReplyHead {
    let version = Version {
        epoch: 256,
        sequence,
    };
    ReplyHead::new(status, 0, AckLevel::Disk, version)
}

fn reply(request_id: u64, head: ReplyHead, value: &[u8]) -> Vec<u8> {
    let mut frame = Pieces::default();
    let mut batch = BatchReply::begin(&mut frame, request_id, 1);
    head.write(frame.written(), value);
    batch.end_item(&mut frame);
    batch.finish(&mut frame, 0, false, false);
    frame.into_bytes()
}

/// The frames of the session, with the words that stand before each in the document.
fn frames() -> Vec<(&'static str, Vec<u8>)> {
    let mut hello = Vec::new();
    ClientHello {
        protocol_min: 1,
        protocol_max: 1,
        features: 0,
        name: "shop",
    }
    .write(&mut hello, 1);
    let mut set = Vec::new();
    let mut batch = BatchRequest::begin(&mut set, 2, AckLevel::Disk, 0, 1);
    batch.set(
        &mut set,
        b"stock:42",
        &1u64.to_le_bytes(),
        Condition::Always,
    );
    batch.finish(&mut set);
    let sold_out = ReplyHead {
        reason: 7,
        instruction: 0,
        ..head(Status::GuardFailed, 2)
    };
    let through = Version {
        epoch: 256,
        sequence: 2,
    };
    let mut get = Vec::new();
    let mut batch = BatchRequest::begin(&mut get, 5, AckLevel::Disk, 0, 1);
    let member = MemberRead {
        staleness_us_max: 50_000,
        version_min: through,
    };
    batch.get_of_member(&mut get, b"stock:42", Wanted::Value, member);
    batch.finish(&mut get);
    let mut shown = Pieces::default();
    let mut batch = BatchReply::begin(&mut shown, 5, 1);
    let standing = Standing { age_us: 0, through };
    let value = 0u64.to_le_bytes();
    head(Status::Ok, 2).write_extended(shown.written(), None, Some(standing), &value);
    batch.end_item(&mut shown);
    batch.finish(&mut shown, 0, false, false);
    vec![
        ("client, HELLO", hello),
        ("server, HELLO", server_hello()),
        ("client, SET", set),
        (
            "server, OK, version (256, 1)",
            reply(2, head(Status::Ok, 1), b""),
        ),
        ("client, UPDATE_IF", sale(3)),
        (
            "server, OK, the field is 0 now",
            reply(3, head(Status::Ok, 2), &0u64.to_le_bytes()),
        ),
        ("client, UPDATE_IF", sale(4)),
        (
            "server, GUARD_FAILED by instruction 0, reason 7, actual 0",
            reply(4, sold_out, &0u64.to_le_bytes()),
        ),
        (
            "client, GET that a member may answer: at most 50 ms old, and version (256, 2) must \
             be there",
            get,
        ),
        (
            "server, OK, and as new as can be: it writes the key itself",
            shown.into_bytes(),
        ),
    ]
}

#[test]
fn the_session_in_the_document_is_what_the_codec_writes() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/SESSION.md");
    let document = std::fs::read_to_string(path).expect("the document");
    let (before, stored) = document
        .split_once("which is sold out:\n")
        .expect("the session's heading");
    let mut built = String::from("\n```\n");
    for (title, frame) in frames() {
        built += &format!("{title}\n");
        for line in frame.chunks(16) {
            let words: Vec<String> = line.chunks(8).map(hex).collect();
            built += &format!("  {}\n", words.join(" "));
        }
    }
    built += "```\n";
    if std::env::var_os("PENSTOCK_WRITE_VECTORS").is_some() {
        std::fs::write(path, format!("{before}which is sold out:\n{built}"))
            .expect("the document can be written");
        return;
    }
    let bytes: Vec<u8> = stored
        .lines()
        .filter(|line| line.starts_with("  "))
        .flat_map(unhex)
        .collect();
    assert_eq!(
        hex(&bytes),
        frames()
            .iter()
            .map(|(_, frame)| hex(frame))
            .collect::<String>()
    );
    assert_eq!(stored, built);
}
