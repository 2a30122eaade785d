//! The body of a request: every item that is accepted is exactly what the writer writes.
//!
//! An input is one byte (whether the rest is a batch or one item, and the limit of values) and the
//! bytes to read.

use penstock_net::apply::{ApplyRequest, write_apply};
use penstock_net::batch::Batch;
use penstock_net::frame::HEADER_BYTES;
use penstock_net::item::ItemForm;
use penstock_net::level::AckLevel;
use penstock_net::limits::{
    APPLY_KEYS_MAX, BATCH_ITEMS_MAX, EXPIRY_MS_MAX, FEW_KEYS_MAX, INSTRUCTIONS_MAX, KEY_BYTES_MAX,
    PROGRAM_ARGUMENTS_MAX, RESERVED_KEY, instructions_max,
};
use penstock_net::ping::PingItem;
use penstock_net::program::{Programs, RunRequest};
use penstock_net::request::{
    BatchRequest, Expiry, Extra, Request, Token, Verb, When, likely_key, request_hash,
};
use penstock_net::resp::{
    Eval, Evals, KeyRead, KeySource, MustWait, Protocol, Staged, Unread, run_queued,
};
use penstock_net::script::{ScriptName, ScriptRequest};
use penstock_net::slot::slot_of;
use penstock_net::version::Version;

use crate::target::Choices;
use crate::{check_refusal, without_memory};

const VALUE_LIMITS: [u32; 4] = [0, 100, 1 << 20, u32::MAX];
/// The rest of the input is one item, not a batch.
pub const ONE_ITEM: u8 = 0x80;

pub fn judge(input: &[u8]) {
    let mut choices = Choices::new(input);
    let manner = choices.byte();
    let limit = VALUE_LIMITS[usize::from(manner & !ONE_ITEM) % VALUE_LIMITS.len()];
    let bytes = choices.rest();
    if manner & ONE_ITEM != 0 {
        item(bytes, limit);
        return;
    }
    match without_memory(|| Batch::read(bytes)) {
        Ok(batch) => {
            assert!((1..=BATCH_ITEMS_MAX).contains(&batch.len()) && !batch.is_empty());
            let mut items = 0;
            for number in 0..batch.len() {
                items += batch.item(number).len();
                item(batch.item(number), limit);
            }
            assert_eq!(
                8 + 8 * batch.len() + items,
                bytes.len(),
                "the items are all there is"
            );
        }
        Err(refusal) => check_refusal(refusal),
    }
}

fn ping(bytes: &[u8], limit: u32) {
    let ping = match without_memory(|| PingItem::read(bytes, limit)) {
        Ok(ping) => ping,
        Err(refusal) => return check_refusal(refusal),
    };
    assert!(ping.value.len() <= limit as usize);
    let mut out = Vec::new();
    ping.write(&mut out);
    assert_eq!(out, bytes);
}

fn apply(bytes: &[u8], limit: u32) {
    let guess = without_memory(|| likely_key(bytes));
    let request = match without_memory(|| ApplyRequest::read(bytes, limit)) {
        Ok(request) => request,
        Err(refusal) => return check_refusal(refusal),
    };
    let keys: Vec<&[u8]> = request.keys().collect();
    assert_eq!((guess, request.key()), (Some(keys[0]), keys[0]));
    assert!((1..=APPLY_KEYS_MAX).contains(&keys.len()) && request.key_count() == keys.len());
    for (number, key) in keys.iter().enumerate() {
        assert!((1..=KEY_BYTES_MAX).contains(&key.len()));
        assert!(!key.starts_with(RESERVED_KEY) && !keys[..number].contains(key));
    }
    for (key, value) in request.values() {
        assert!(key < keys.len() && value.len() <= limit as usize);
    }
    let instructions: Vec<_> = request.instructions().collect();
    assert!(instructions.len() <= instructions_max(keys.len()));
    let mut plain = Vec::new();
    write_apply(&mut plain, &keys, &instructions, request.data());
    let again = one_item(|batch, out| {
        if let Some(token) = request.token() {
            batch.token(token);
        }
        batch.raw(out, &plain);
    });
    assert_eq!(again, bytes, "an item has one form");
    assert_eq!(request_hash(bytes), request_hash(&plain));
}

fn run(bytes: &[u8]) {
    let guess = without_memory(|| likely_key(bytes));
    let request = match without_memory(|| RunRequest::read(bytes)) {
        Ok(request) => request,
        Err(refusal) => return check_refusal(refusal),
    };
    assert_eq!(guess, Some(request.key()));
    let keys = usize::from(request.key_count());
    assert!((1..=FEW_KEYS_MAX).contains(&keys) && request.keys().count() == keys);
    assert!(
        request
            .keys()
            .all(|key| (1..=KEY_BYTES_MAX).contains(&key.len()))
    );
    assert!(usize::from(request.argument_count()) <= PROGRAM_ARGUMENTS_MAX);
    assert!(request.arguments().len() <= bytes.len());
    if let Some(token) = request.token() {
        assert!(has_one_form(token));
    }
    let unknown = Programs::default().expand(&request, &mut Vec::new());
    check_refusal(unknown.expect_err("no program is known"));
}

/// A store without a key, and an interpreter that fails.
struct Nothing;

impl KeySource for Nothing {
    fn read(&mut self, _: &[u8]) -> Result<Option<KeyRead<'_>>, Unread> {
        Ok(None)
    }

    fn may_have_changed(&mut self, _: &[u8], _: Version) -> bool {
        false
    }
}

impl Evals for Nothing {
    fn eval(
        &mut self,
        eval: &Eval<'_>,
        _: Protocol,
        _: &mut Staged,
        _: &mut dyn KeySource,
        _: usize,
        _: &mut Vec<u8>,
    ) -> Result<bool, MustWait> {
        let _ = (eval.keys().count(), eval.arguments().count());
        Ok(false)
    }
}

fn script(bytes: &[u8], limit: u32) {
    let request = match without_memory(|| ScriptRequest::read(bytes)) {
        Ok(request) => request,
        Err(refusal) => return check_refusal(refusal),
    };
    for key in request.keys() {
        assert!((1..=KEY_BYTES_MAX).contains(&key.len()) && !key.starts_with(RESERVED_KEY));
        assert_eq!(Some(slot_of(key)), request.slot());
    }
    let words = request.keys().chain(request.arguments());
    assert!(words.map(<[u8]>::len).sum::<usize>() <= bytes.len());
    if !matches!(request.script(), ScriptName::Commands | ScriptName::Command) {
        return;
    }
    let limit = limit.min(1 << 20) as usize;
    let mut staged = Staged::new(1, limit, request.access());
    let (mut reply, bytes_max) = (Vec::new(), request.reply_bytes_max(limit));
    let keys = (&mut staged, &mut Nothing as &mut dyn KeySource);
    let end = run_queued(&request, bytes_max, keys, &mut Nothing, &mut reply);
    assert!(end.is_ok(), "no key must be brought");
    let mut item = Vec::new();
    staged.write_apply(None, &mut item);
    assert!(item.len() >= 32);
}

fn item(bytes: &[u8], limit: u32) {
    match ItemForm::of(bytes) {
        ItemForm::Common => {}
        ItemForm::Apply => return apply(bytes, limit),
        ItemForm::Run => return run(bytes),
        ItemForm::Scan => {}
        ItemForm::Ping => return ping(bytes, limit),
        ItemForm::Script => return script(bytes, limit),
    }
    let guess = without_memory(|| likely_key(bytes));
    let request = match without_memory(|| Request::read(bytes, limit)) {
        Ok(request) => request,
        Err(refusal) => return check_refusal(refusal),
    };
    assert_eq!(guess, Some(request.key));
    for key in [Some(request.key), request.second_key]
        .into_iter()
        .flatten()
    {
        let least = usize::from(request.verb != Verb::Keyspace);
        assert!((least..=KEY_BYTES_MAX).contains(&key.len()));
        assert!(!key.starts_with(RESERVED_KEY));
        assert_eq!(without_memory(|| slot_of(key)), slot_by_the_book(key));
    }
    // Settings of a keyspace are no value of a key.
    assert!(request.verb == Verb::Keyspace || request.value.len() <= limit as usize);
    assert!(request.instruction_count() <= INSTRUCTIONS_MAX);
    if let Expiry::At(ms) | Expiry::In(ms) = request.expiry {
        assert!((1..=EXPIRY_MS_MAX).contains(&ms));
    }
    let again = one_item(|batch, out| {
        if let Some(token) = request.token() {
            batch.token(token);
        }
        write(batch, out, &request);
    });
    assert_eq!(again, *bytes, "an item has one form");
    if let Some(token) = request.token() {
        let is_write = matches!(request.verb, Verb::Set | Verb::Del | Verb::UpdateIf);
        assert!(is_write && has_one_form(token));
        let plain = one_item(|batch, out| write(batch, out, &request));
        let hash = without_memory(|| request_hash(bytes));
        assert_eq!(hash, request_hash(&plain), "a retry is known by its hash");
    }
}

/// The one item of a batch.
fn one_item(build: impl FnOnce(&mut BatchRequest, &mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    let mut batch = BatchRequest::begin(&mut out, 1, AckLevel::Disk, 0, 1);
    build(&mut batch, &mut out);
    batch.finish(&mut out);
    out.split_off(HEADER_BYTES + 16)
}

/// Adds this request to a batch, without its token.
fn write(batch: &mut BatchRequest, out: &mut Vec<u8>, request: &Request<'_>) {
    let when = When {
        condition: request.condition,
        shows: request.extra == Extra::Show,
    };
    match request.verb {
        Verb::Get => match request.extra {
            Extra::Member(member) => {
                batch.get_of_member(out, request.key, request.wanted, member);
            }
            _ => batch.get_with(out, request.key, request.wanted),
        },
        Verb::Set => batch.set_with(out, request.key, request.value, when, request.expiry),
        Verb::Del => batch.del(out, request.key, when),
        Verb::UpdateIf => {
            let instructions: Vec<_> = (0..request.instruction_count())
                .map(|number| request.instruction(number))
                .collect();
            let start = request.has_start.then_some(request.value);
            batch.update_if_with(
                out,
                request.key,
                request.second_key,
                &instructions,
                start,
                request.expiry,
            );
        }
        Verb::GetAt
        | Verb::History
        | Verb::Keyspace
        | Verb::Flush
        | Verb::Scan
        | Verb::Ping
        | Verb::Apply => match request.extra {
            Extra::At(at) => batch.get_at(out, request.key, at),
            Extra::History { before, limit } => {
                batch.history(out, request.key, before, limit);
            }
            Extra::Keyspace(action) => batch.keyspace(out, request.key, action),
            Extra::Flush => batch.flush(out, request.key),
            Extra::None | Extra::Member(_) | Extra::Show => {
                panic!("{:?} asks for something", request.verb)
            }
        },
    }
}

/// The slot as the cluster specification words it, bit by bit.
fn slot_by_the_book(key: &[u8]) -> u16 {
    let open = key.iter().position(|&byte| byte == b'{');
    let tag = open.and_then(|open| {
        let close = key[open + 1..].iter().position(|&byte| byte == b'}')?;
        (close > 0).then(|| &key[open + 1..open + 1 + close])
    });
    let crc = tag.unwrap_or(key).iter().fold(0u16, |crc, &byte| {
        (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| {
            if crc & 0x8000 == 0 {
                crc << 1
            } else {
                (crc << 1) ^ 0x1021
            }
        })
    });
    crc % 16_384
}

fn has_one_form(token: Token) -> bool {
    match token.name().first_chunk() {
        Some(uuid) if !token.is_text() => Token::read(*uuid) == Ok(token),
        _ => token.is_text() && token.time_ms() < 1 << 48,
    }
}
