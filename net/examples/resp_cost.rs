//! What a GET of the RESP port costs its connection, for callgrind: commands of one read become
//! items, and the answers of a shard become replies. Sockets and the shard are left out.
//!
//! ```text
//! cargo build --profile profiling -p penstock-net --example resp_cost
//! valgrind --tool=callgrind --toggle-collect='*counted_take*' \
//!     --toggle-collect='*counted_answers*' target/profiling/examples/resp_cost READS DEPTH
//! ```

use std::sync::Arc;
use std::time::Instant;

use penstock_net::batch::Batch;
use penstock_net::frame::{HEADER_BYTES, Header, Medium};
use penstock_net::level::AckLevel;
use penstock_net::limits::Limits;
use penstock_net::pieces::Pieces;
use penstock_net::program::ServedSchema;
use penstock_net::reply::{BatchReply, ReplyHead};
use penstock_net::resp::{Client, ClusterView, Conversation, Facts, Host, SlowCommand};
use penstock_net::status::Status;
use penstock_net::version::Version;

/// A server whose clock is that of the machine, as the real one's.
struct Clocked(Instant);

impl Host for Clocked {
    fn unix_us(&self) -> u64 {
        1_700_000_000_000_000
    }

    fn elapsed_us(&self) -> u64 {
        u64::try_from(self.0.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    fn facts(&self) -> Facts {
        Facts::default()
    }

    fn clients(&self) -> Vec<Client> {
        Vec::new()
    }

    fn client_changed(&self, _: &Client) {}

    fn was_slow(&self, _: SlowCommand) {}

    fn slow_commands(&self) -> Vec<SlowCommand> {
        Vec::new()
    }

    fn forget_slow_commands(&self) {}

    fn cluster(&self) -> Option<ClusterView> {
        None
    }

    fn serves(&self, _: u16, _: bool) -> bool {
        true
    }

    fn schema(&self) -> Arc<ServedSchema> {
        Arc::default()
    }

    fn scan_order(&self) -> u64 {
        1
    }
}

#[inline(never)]
fn counted_take(talk: &mut Conversation, bytes: &[u8], frame: &mut Vec<u8>, host: &Clocked) {
    assert_eq!(talk.take(bytes, frame, host), bytes.len());
}

#[inline(never)]
fn counted_answers(talk: &mut Conversation, frames: &[u8], host: &Clocked) {
    talk.answered(frames, host);
}

/// The frame in which a shard answers these GETs with values of 64 bytes.
fn answers(frame: &[u8]) -> Vec<u8> {
    let header = Header::decode(frame.first_chunk().expect("a head"));
    let items = Batch::read(&frame[HEADER_BYTES..]).expect("good").len();
    let mut out = Pieces::default();
    let mut reply = BatchReply::begin(&mut out, header.request_id, items).over(Medium::Memory);
    for item in 0..u16::try_from(items).expect("few") {
        let version = Version {
            epoch: 1,
            sequence: 1,
        };
        ReplyHead::new(Status::Ok, item, AckLevel::Disk, version).write(out.written(), &[7; 64]);
        reply.end_item(&mut out);
    }
    assert!(reply.finish(&mut out, 0, false, false));
    out.into_bytes()
}

fn main() {
    let mut numbers = std::env::args().skip(1).map(|text| text.parse::<usize>());
    let mut number = |usual| numbers.next().map_or(usual, |it| it.expect("a number"));
    let (reads, depth) = (number(1000), number(64));
    let host = Clocked(Instant::now());
    let mut talk = Conversation::new(Client::default(), Limits::default(), false);
    let bytes: Vec<u8> = (0..depth)
        .flat_map(|number| format!("*2\r\n$3\r\nGET\r\n$12\r\nkey:{number:08}\r\n").into_bytes())
        .collect();
    let mut frame = Vec::new();
    for _ in 0..reads {
        frame.clear();
        counted_take(&mut talk, &bytes, &mut frame, &host);
        let frames = answers(&frame);
        counted_answers(&mut talk, &frames, &host);
        assert_eq!(talk.out().len(), depth * 71);
        talk.out().clear();
    }
    println!("{} commands", reads * depth);
}
