//! Frames and the batches in them.

use penstock_net::frame::{Header, Opcode, write_frame};
use penstock_net::level::AckLevel;
use penstock_net::pieces::Pieces;
use penstock_net::reply::{BatchReply, ReplyHead, write_error};
use penstock_net::request::{Condition, Version};
use penstock_net::status::Status;

use super::{Cases, body, changed};

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

pub fn frames(cases: &mut Cases) {
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
    // What came later stands at the end.
    let mut refused = Vec::new();
    let request = Header::request(Opcode::Batch, 7, AckLevel::Disk, 250);
    write_error(
        &mut refused,
        Some(&request),
        Status::Busy,
        40,
        3,
        &"no room",
    );
    cases.add(
        "frame",
        "a frame that is BUSY: a new try is likely to find room after 40 ms",
        refused,
    );
    cases.add(
        "frame",
        "a reply of which one item is BUSY: likewise",
        one_is_busy(),
    );
}

/// A reply to two items: one is OK, the other BUSY.
fn one_is_busy() -> Vec<u8> {
    let mut pieces = Pieces::default();
    let mut reply = BatchReply::begin(&mut pieces, 7, 2).retry_after(40);
    for (number, status) in [(0, Status::Ok), (1, Status::Busy)] {
        let head = ReplyHead::new(status, number, AckLevel::Disk, Version::default());
        head.write(pieces.written(), b"");
        reply.end_item(&mut pieces);
    }
    reply.finish(&mut pieces, 3, false, false);
    pieces.into_bytes()
}

pub fn batches(cases: &mut Cases) {
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
