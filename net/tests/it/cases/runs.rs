//! RUN: its items, and the answer of a node with other files.

use penstock_net::program::{ProgramId, Run};
use penstock_net::reply::ReplyHead;
use penstock_net::request::{Ask, Token, Version};
use penstock_net::status::Status;

use super::{Cases, changed, item};

const KIND: &str = "run-item";
const ID: ProgramId = ProgramId(0xd6f9_94ad_cc52_b7a7);

/// Two units are held for ten minutes.
fn buy() -> Run {
    Run::new(ID)
        .key(b"stock:{42}")
        .key(b"order:{42}:7")
        .key(b"buyer:{42}:ann")
        .argument(2u32)
        .argument(600_000u64)
}

pub fn runs(cases: &mut Cases) {
    let encoded = |run: &Run| Ask::Run(run).encode();
    let one = Run::new(ID).key(b"k");
    cases.add(KIND, "one key and no argument", encoded(&one));
    let good = encoded(&buy());
    cases.add(KIND, "a purchase of three keys", good.clone());
    let mixed = one.clone().argument("ann").argument(-1i64).argument("");
    cases.add(KIND, "bytes and a negative number", encoded(&mixed));
    let token = Token::new(1_764_000_000_000, [7; 10]);
    let named = item(|batch, out| {
        batch.token(token);
        batch.run(out, &buy());
    });
    cases.add(KIND, "a purchase with a token", named.clone());
    let eight = (0..8).fold(Run::new(ID), |run, number| {
        run.key(format!("{{a}}{number}").as_bytes())
    });
    let most = (0..16u32).fold(eight, |run, number| run.argument(number));
    cases.add(KIND, "eight keys and sixteen arguments", encoded(&most));
    let longest = Run::new(ID).key(&[b'k'; 1024]);
    cases.add(KIND, "the longest key", encoded(&longest));
    for (what, at, bytes) in [
        ("another operation", 2, &[12][..]),
        ("a flag", 3, &[1]),
        ("no key", 4, &[0]),
        ("nine keys", 4, &[9]),
        ("two keys instead of three", 4, &[2]),
        ("17 arguments", 5, &[17]),
        ("a block length of 48 instead of 40", 0, &[48, 0]),
        ("a length of an extension", 6, &[8]),
        ("a key of no bytes", 8, &[0, 0]),
        ("a key of 1025 bytes", 8, &[1, 4]),
        ("arguments of 17 bytes", 12, &[17, 0, 0, 0]),
        ("arguments of 2^32 - 8 bytes", 12, &[0xF8, 255, 255, 255]),
        ("a word that is not zero", 28, &[1]),
        ("padding of a key that is not zero", 55, &[1]),
    ] {
        cases.add(KIND, what, changed(good.clone(), at, bytes));
    }
    let tag = changed(named.clone(), 48, &[9]);
    cases.add(KIND, "an extension that nobody knows", tag);
    let uuid = changed(named, 62, &[0x40]);
    cases.add(KIND, "a token of another version", uuid);
    for cut in [0, 8, 39, 40, 48, 64, 96] {
        let what = format!("only {cut} bytes of {}", good.len());
        cases.add(KIND, what, good[..cut].to_vec());
    }
    for status in [Status::UnknownProgram, Status::Denied] {
        let mut bytes = Vec::new();
        let level = penstock_net::level::AckLevel::Disk;
        let head = ReplyHead::new(status, 3, level, Version::default());
        head.write(&mut bytes, b"twelve bytes");
        cases.add("reply-item", status.name(), bytes);
    }
}
