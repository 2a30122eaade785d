//! What a decoder makes of the bytes of a vector, as the JSON that `vectors/README.md` describes.

use penstock_net::apply::ApplyRequest;
use penstock_net::batch::Batch;
use penstock_net::hello::{ClientHello, FEATURE_PLACEMENT, ServerHello};
use penstock_net::instruction::{INSTRUCTION_BYTES, Instruction, Operation};
use penstock_net::keyspace::{Action, At, Settings};
use penstock_net::level::AckLevel;
use penstock_net::limits::Limits;
use penstock_net::ping::PingItem;
use penstock_net::program::RunRequest;
use penstock_net::receive::{Received, Receiver};
use penstock_net::refusal::Refusal;
use penstock_net::reply::{
    ITEM_FLAG_OVERFLOW, ITEM_FLAG_REPLAYED, ITEM_FLAG_SHOWN, NO_INSTRUCTION, ReplyItem,
};
use penstock_net::request::{Condition, Expiry, Extra, Request, Verb, Version, Wanted};
use penstock_net::scan::{ScanPage, ScanRequest, ScanValue};
use serde_json::{Value, json};

use crate::hex;

mod instructions;

/// The limits under which frames and values are judged.
pub const LIMITS: Limits = Limits {
    frame_bytes_max: 4096,
    value_bytes_max: 1024,
};

/// What the codec reads from the bytes, or the status and the text of its refusal.
pub fn judge(kind: &str, bytes: &[u8]) -> Result<Value, (String, String)> {
    let decoded = match kind {
        "frame" => return frame(bytes),
        "batch" => Batch::read(bytes).map(|batch| {
            let items = (0..batch.len()).map(|number| hex(batch.item(number)));
            json!({"items": items.collect::<Vec<_>>()})
        }),
        "request-item" => Request::read(bytes, LIMITS.value_bytes_max).map(|it| request(&it)),
        "apply-item" => ApplyRequest::read(bytes, LIMITS.value_bytes_max).map(|it| apply(&it)),
        "run-item" => RunRequest::read(bytes).map(|run| {
            let keys: Vec<String> = run.keys().map(hex).collect();
            json!({
                "program": run.program().to_string(),
                "keys": keys,
                "argument_count": run.argument_count(),
                "arguments": hex(run.arguments()),
                "token": run.token().map(|token| token.to_string()),
            })
        }),
        "instruction" => {
            let bytes: &[u8; INSTRUCTION_BYTES] = bytes.try_into().expect("sixteen bytes");
            Instruction::read(bytes, 0, 2).map(instruction)
        }
        "reply-item" => ReplyItem::read(bytes).map(|it| reply(&it)),
        "scan-item" => ScanRequest::read(bytes).map(|scan| {
            json!({
                "cursor": scan.cursor.to_string(),
                "prefix": hex(scan.prefix),
                "keys_max": scan.entries_max,
                "bytes_max": scan.bytes_max,
                "wants_values": scan.wants_values,
            })
        }),
        "ping-item" => PingItem::read(bytes, LIMITS.value_bytes_max)
            .map(|ping| json!({"value": hex(ping.value)})),
        "scan-page" => ScanPage::read(bytes).map(|it| page(&it)),
        "client-hello" => ClientHello::read(bytes).map(|hello| {
            json!({
                "protocol_min": hello.protocol_min,
                "protocol_max": hello.protocol_max,
                "features": hello.features.to_string(),
                "name": hello.name,
            })
        }),
        "server-hello" => ServerHello::read(bytes).map(|hello| server_hello(&hello, bytes)),
        other => panic!("no decoder for {other}"),
    };
    decoded.map_err(refused)
}

fn refused(refusal: Refusal) -> (String, String) {
    (refusal.status().name().to_string(), refusal.to_string())
}

fn frame(bytes: &[u8]) -> Result<Value, (String, String)> {
    match Receiver::new(LIMITS.frame_bytes_max).next(bytes) {
        Received::Frame {
            header,
            body,
            consumed,
        } => Ok(json!({
            "length": consumed,
            "opcode": header.opcode,
            "flags": header.flags,
            "request_id": header.request_id.to_string(),
            "level_or_status": header.level_or_status,
            "slot_or_shard": header.slot_or_shard,
            "topology": header.topology,
            "deadline_or_retry_ms": header.deadline_or_retry_ms,
            "body": hex(body),
        })),
        Received::Refused { refusal, .. } => Err(refused(refusal)),
        Received::Incomplete { frame_bytes } => Err((
            "INCOMPLETE".into(),
            format!("{frame_bytes} bytes are needed"),
        )),
        Received::Skipped { consumed } => Err(("SKIPPED".into(), consumed.to_string())),
    }
}

fn version(version: Version) -> Value {
    json!({"epoch": version.epoch, "sequence": version.sequence.to_string()})
}

fn request(request: &Request<'_>) -> Value {
    let condition = match request.condition {
        Condition::Always => Value::Null,
        Condition::Absent => json!("absent"),
        Condition::Present => json!("present"),
        Condition::Version(is) => version(is),
    };
    let expiry = match (request.verb, request.expiry) {
        (Verb::Set | Verb::UpdateIf, Expiry::Never) => json!("never"),
        (Verb::Set | Verb::UpdateIf, Expiry::Keep) => json!("keep"),
        (_, Expiry::At(ms)) => json!({"at_ms": ms.to_string()}),
        (_, Expiry::In(ms)) => json!({"in_ms": ms.to_string()}),
        _ => Value::Null,
    };
    let wanted = match (request.verb, request.wanted) {
        (Verb::Get, Wanted::Value) => json!("value"),
        (Verb::Get, Wanted::ValueAndExpiry) => json!("value and expiry"),
        (Verb::Get, Wanted::Expiry) => json!("expiry"),
        _ => Value::Null,
    };
    let has_value = request.verb == Verb::Set || request.has_start;
    let (mut member, mut at, mut history, mut keyspace) =
        (Value::Null, Value::Null, Value::Null, Value::Null);
    match request.extra {
        Extra::None | Extra::Show | Extra::Flush => {}
        Extra::Member(read) => {
            member = json!({
                "staleness_us": read.staleness_us_max.to_string(),
                "version": version(read.version_min),
            });
        }
        Extra::At(At::TimeMs(ms)) => at = json!({"time_ms": ms.to_string()}),
        Extra::At(At::Version(is)) => at = version(is),
        Extra::History { before, limit } => {
            history = json!({"versions_max": limit, "before": before.to_string()});
        }
        Extra::Keyspace(action) => {
            let (name, settings) = match action {
                Action::Set(settings) => ("set", Some(settings)),
                Action::Create(settings) => ("make", Some(settings)),
                Action::Drop => ("drop", None),
                Action::List => ("tell", None),
            };
            keyspace = json!({"action": name, "settings": settings.map(settings_json)});
        }
    }
    let instructions =
        (0..request.instruction_count()).map(|n| instruction(request.instruction(n)));
    json!({
        "operation": request.verb.name().to_ascii_uppercase(),
        "condition": condition,
        "shows": request.extra == Extra::Show,
        "key": hex(request.key),
        "second_key": request.second_key.map(hex),
        "value": has_value.then(|| hex(request.value)),
        "instructions": instructions.collect::<Vec<_>>(),
        "expiry": expiry,
        "wanted": wanted,
        "member": member,
        "at": at,
        "history": history,
        "keyspace": keyspace,
        "token": request.token().map(|token| token.to_string()),
    })
}

fn apply(request: &ApplyRequest<'_>) -> Value {
    let keys = request.keys().map(hex);
    let instructions = request.instructions().map(instructions::of_apply);
    json!({
        "keys": keys.collect::<Vec<_>>(),
        "instructions": instructions.collect::<Vec<_>>(),
        "data": hex(request.data()),
        "token": request.token().map(|token| token.to_string()),
    })
}

fn settings_json(settings: Settings) -> Value {
    json!({
        "level_min": level(settings.level_min),
        "level_default": settings.level_default.map(level),
        "versions": settings.versions,
        "layout": settings.layout,
        "value_bytes_max": settings.value_bytes_max,
        "retention_ms": settings.retention_ms.to_string(),
        "lifetime_ms": settings.ttl_ms.to_string(),
    })
}

fn level(level: AckLevel) -> &'static str {
    level.name()
}

fn instruction(instruction: Instruction) -> Value {
    let operation = match instruction.operation {
        Operation::Exists => "EXISTS",
        Operation::Absent => "ABSENT",
        Operation::Eq => "=",
        Operation::Ne => "!=",
        Operation::Lt => "<",
        Operation::Le => "<=",
        Operation::Gt => ">",
        Operation::Ge => ">=",
        Operation::Set => "set",
        Operation::Add => "add",
        Operation::Sub => "subtract",
    };
    json!({
        "operation": operation,
        "type": instruction.field_type.name(),
        "key": instruction.key,
        "reason": instruction.reason,
        "offset": instruction.offset,
        "immediate": instruction.immediate.to_string(),
    })
}

fn reply(item: &ReplyItem<'_>) -> Value {
    let head = &item.head;
    let expiry = item.expiry.map(
        |it| json!({"expiry_ms": it.expiry_ms.to_string(), "time_ms": it.time_ms.to_string()}),
    );
    let standing = item
        .standing
        .map(|it| json!({"age_us": it.age_us.to_string(), "through": version(it.through)}));
    json!({
        "status": head.status.name(),
        "reason": head.reason,
        "level": level(head.level),
        "item": head.item,
        "instruction": (head.instruction != NO_INSTRUCTION).then_some(head.instruction),
        "left_range": head.flags & ITEM_FLAG_OVERFLOW != 0,
        "is_shown": head.flags & ITEM_FLAG_SHOWN != 0,
        "is_replayed": head.flags & ITEM_FLAG_REPLAYED != 0,
        "version": version(head.version),
        "expiry": expiry,
        "standing": standing,
        "value": hex(item.value),
    })
}

fn page(page: &ScanPage<'_>) -> Value {
    let keys = page.entries().map(|entry| {
        let (value, is_too_long) = match entry.value {
            ScanValue::NotAsked => (None, false),
            ScanValue::Bytes(value) => (Some(hex(value)), false),
            ScanValue::LeftOut => (None, true),
            ScanValue::Type(_) => unreachable!("no vector asks for types"),
        };
        json!({
            "key": hex(entry.key),
            "version": version(entry.version),
            "value": value,
            "is_value_too_long": is_too_long,
        })
    });
    json!({"cursor": page.cursor.to_string(), "keys": keys.collect::<Vec<_>>()})
}

fn server_hello(hello: &ServerHello, bytes: &[u8]) -> Value {
    // These are the same for all servers of this version, so the codec keeps none of them.
    let u16_at = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
    let slots = hello.slots.iter().map(|range| {
        json!({"first": range.first, "last": range.last, "shard": range.shard, "port": range.port})
    });
    let placement = hello.placement.as_ref().map(|placement| {
        let nodes = placement.nodes.iter();
        let nodes = nodes.map(|node| json!({"number": node.node, "address": node.clients}));
        let ranges = placement.writers.iter().map(|range| {
            json!({
                "first": range.first,
                "last": range.last,
                "node": range.node,
                "generation": range.generation,
            })
        });
        json!({
            "version": placement.version,
            "nodes": nodes.collect::<Vec<_>>(),
            "ranges": ranges.collect::<Vec<_>>(),
        })
    });
    let features = match hello.placement {
        Some(_) => hello.features | FEATURE_PLACEMENT,
        None => hello.features,
    };
    json!({
        "protocol": hello.protocol,
        "shard": hello.shard,
        "shards": hello.shard_count,
        "auth_methods": hello.auth_methods,
        "cluster_id": hex(&hello.cluster_id),
        "node_id": hex(&hello.node_id),
        "incarnation": hello.incarnation.to_string(),
        "features": features.to_string(),
        "nonce": hex(&hello.nonce),
        "frame_bytes_max": hello.limits.frame_bytes_max,
        "value_bytes_max": hello.limits.value_bytes_max,
        "key_bytes_max": u16_at(96),
        "items_max": u16_at(98),
        "instructions_max": u16_at(100),
        "topology": u16_at(102),
        "interval_ms": hello.interval_ms,
        "slots": slots.collect::<Vec<_>>(),
        "placement": placement,
    })
}
