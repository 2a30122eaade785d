//! What a command costs the port for clients of Redis without sockets and without a shard:
//! pipelines of one kind go in, and a session that is played answers. Its instructions are exact,
//! whatever else the machine does: `benches/instructions.sh` counts them by stage.
//!
//! Arguments: the kind, pipelines (10,000), keys (100,000), commands of a pipeline (128), bytes of
//! a value (64).
//!
//! | kind | commands of a pipeline |
//! |---|---|
//! | `resp_decr` | DECR of one key, all the same |
//! | `resp_decr_keys` | DECR of keys by chance |
//! | `resp_get`, `resp_set` | of keys by chance |
//! | `resp_mixed` | nine GET and a SET, in turn; keys have 16 to 37 bytes, values up to 127 |

use std::time::Instant;

use penstock_net::batch::Batch;
use penstock_net::frame::{HEADER_BYTES, Header, Medium};
use penstock_net::level::AckLevel;
use penstock_net::limits::Limits;
use penstock_net::pieces::Pieces;
use penstock_net::reply::{BatchReply, ReplyHead};
use penstock_net::request::Verb;
use penstock_net::resp::{Client, Conversation, Host};
use penstock_net::status::Status;
use penstock_net::version::Version;

/// Pipelines that differ.
const DISTINCT: usize = 100;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let kind = arguments.next().unwrap_or_else(|| "resp_decr".into());
    let mut number = |otherwise: usize| {
        arguments.next().map_or(otherwise, |text| {
            text.parse()
                .unwrap_or_else(|_| panic!("{text} is no number"))
        })
    };
    let (pipelines, keys) = (number(10_000), number(100_000));
    let (depth, value_bytes) = (number(128), number(64));
    let value = "v".repeat(value_bytes);
    let answer: Vec<u8> = match kind.as_str() {
        "resp_decr" | "resp_decr_keys" => 9_999_999u64.to_le_bytes().to_vec(),
        "resp_get" => value.clone().into_bytes(),
        "resp_set" => Vec::new(),
        "resp_mixed" => value.clone().into_bytes(),
        _ => panic!("{kind} is no kind of command"),
    };
    let mut drawn = 1u64;
    let mut key = || {
        drawn = drawn.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
        format!("key:{:012}", (drawn >> 33) % keys as u64)
    };
    let mixed = |number: usize, key: String| {
        let key = ["", "c:", "cart:", "shop:7:cart:", "shop:7:customer:cart:"][number % 5]
            .to_string()
            + &key;
        match number % 10 {
            9 => command(&["SET", &key, &"v".repeat(number % 128)]),
            _ => command(&["GET", &key]),
        }
    };
    let distinct: Vec<Vec<u8>> = (0..DISTINCT)
        .map(|_| {
            let commands = (0..depth).map(|number| match kind.as_str() {
                "resp_decr" => command(&["DECR", "counter:__rand_int__"]),
                "resp_decr_keys" => command(&["DECR", &key()]),
                "resp_get" => command(&["GET", &key()]),
                "resp_mixed" => mixed(number, key()),
                _ => command(&["SET", &key(), &value]),
            });
            commands.flatten().collect()
        })
        .collect();
    let mut talk = Conversation::new(Client::default(), Limits::default(), false);
    let mut frame = Vec::new();
    let (mut frames, mut sent_bytes) = (0, 0);
    let began = Instant::now();
    for number in 0..pipelines {
        let mut bytes = &distinct[number % DISTINCT][..];
        while !bytes.is_empty() {
            frame.clear();
            let taken = counted_take(&mut talk, bytes, &mut frame);
            bytes = &bytes[taken..];
            frames += 1;
            let answers = answers(&frame, &answer);
            counted_answered(&mut talk, &answers);
            sent_bytes += talk.out().len();
            talk.out().clear();
        }
    }
    let commands = (pipelines * depth) as u128;
    println!(
        "{kind}: {commands} commands, {} ns each with the played session; {frames} frames, \
         {sent_bytes} bytes sent",
        began.elapsed().as_nanos() / commands
    );
}

/// What is counted: the connection, and nothing of the session that is played here.
#[inline(never)]
fn counted_take(talk: &mut Conversation, bytes: &[u8], frame: &mut Vec<u8>) -> usize {
    talk.take(bytes, frame, &Still)
}

#[inline(never)]
fn counted_answered(talk: &mut Conversation, frames: &[u8]) {
    talk.answered(frames, &Still);
}

fn command(words: &[&str]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend(format!("${}\r\n{word}\r\n", word.len()).bytes());
    }
    bytes
}

/// The reply of a session that answers each item of a frame with this value.
fn answers(frame: &[u8], value: &[u8]) -> Vec<u8> {
    let head = frame.first_chunk::<HEADER_BYTES>().expect("a whole frame");
    let request_id = Header::decode(head).request_id;
    let batch = Batch::read(&frame[HEADER_BYTES..]).expect("well formed");
    let mut out = Pieces::default();
    let mut reply = BatchReply::begin(&mut out, request_id, batch.len()).over(Medium::Memory);
    for item in 0..batch.len() {
        let version = Version {
            epoch: 1,
            sequence: item as u64,
        };
        let value = match batch.item(item)[2] == Verb::Set as u8 {
            true => &[],
            false => value,
        };
        let item = u16::try_from(item).expect("at most 1024");
        ReplyHead::new(Status::Ok, item, AckLevel::Disk, version).write(out.written(), value);
        reply.end_item(&mut out);
    }
    assert!(reply.finish(&mut out, 0, false, false));
    out.into_bytes()
}

/// A server in which no time passes.
struct Still;

impl Host for Still {
    fn unix_us(&self) -> u64 {
        1_700_000_000_000_000
    }

    fn elapsed_us(&self) -> u64 {
        0
    }
}
