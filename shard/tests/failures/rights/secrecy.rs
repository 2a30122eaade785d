//! No answer tells whether a key exists to who may not read it: two servers, one with the key and
//! one without, answer with the same bytes.

use penstock_net::frame::{Header, Opcode, write_frame};
use penstock_net::level::AckLevel;
use penstock_net::program::SCHEMA_ASKED;
use penstock_net::request::{BatchRequest, Condition, Token};
use penstock_net::rights::Right;
use penstock_storage::budget::Budget;

use super::items::{KEY, items};
use super::{obey, open};
use crate::server::Server;

/// Another key of the slot, as long as the first.
const ABSENT: &[u8] = b"x:{1}a";

/// A server with one key: the one that is asked for, or another.
pub fn with_one_key(budget: Budget, is_there: bool, value: &[u8]) -> Server {
    let mut server = open(budget);
    server.set(0, if is_there { KEY } else { ABSENT }, value);
    server.settle();
    server
}

/// Everything that the server sends for what is asked, by an answer of its own and in one batch.
fn answers(server: &mut Server, only: Option<&str>) -> Vec<u8> {
    let all = items().into_iter();
    let all: Vec<_> = all
        .filter(|it| only.is_none_or(|row| it.row == row))
        .collect();
    server.raw = Some(Vec::new());
    for (id, item) in (10u64..).zip(&all) {
        for level in [AckLevel::None, AckLevel::Disk] {
            let id = 2 * id + level as u64;
            let mut batch = BatchRequest::begin(&mut server.inbox, id, level, 0, 1);
            item.put(&mut batch, &mut server.inbox);
            batch.finish(&mut server.inbox);
        }
        server.hand_over();
        server.settle();
    }
    // All of them twice, with and without a token, between items that are allowed.
    let named = all.iter().filter(|it| it.row.starts_with("SET")).count();
    let count = 3 * all.len() + named;
    let mut batch = BatchRequest::begin(&mut server.inbox, 1, AckLevel::Disk, 0, count);
    for (number, item) in (1u8..).zip(&all) {
        batch.ping(&mut server.inbox, b"between");
        item.put(&mut batch, &mut server.inbox);
        item.put(&mut batch, &mut server.inbox);
        if item.row.starts_with("SET") {
            batch.token(Token::new(1, [number; 10]));
            batch.set(&mut server.inbox, KEY, b"named", Condition::Absent);
        }
    }
    batch.finish(&mut server.inbox);
    for body in [&[][..], &SCHEMA_ASKED] {
        let header = Header::request(Opcode::Info, 2, AckLevel::None, 0);
        write_frame(&mut server.inbox, header, body);
    }
    server.hand_over();
    server.settle();
    server.raw.take().expect("kept")
}

#[test]
fn answers_are_the_same_whether_a_key_exists_or_not_for_who_may_not_read_it() {
    let users: [&[(Right, &[u8])]; 5] = [
        &[],
        &[(Right::Write, b"k:")],
        &[(Right::Admin, b""), (Right::Write, b"k:")],
        &[(Right::Read, b"o:"), (Right::Write, b"")],
        // All but the keys that are asked for.
        &[
            (Right::Read, b"k:{2}"),
            (Right::Write, b"k:{2}"),
            (Right::Run, b"o:"),
        ],
    ];
    let mut compared = 0;
    for cache_bytes in [0, 1 << 20] {
        for value in [&b"00000000"[..], &[7; 1_500]] {
            for user in users {
                let shown = [true, false].map(|is_there| {
                    let budget = Budget::of_cache(cache_bytes);
                    let mut server = with_one_key(budget, is_there, value);
                    obey(&mut server, user);
                    answers(&mut server, None)
                });
                assert!(shown[0].len() > 5_000);
                assert_eq!(shown[0], shown[1], "{user:?}, {cache_bytes} bytes of cache");
                compared += shown[0].len();
            }
        }
    }
    assert!(compared > 100_000);
}

#[test]
fn who_may_read_is_answered_so_the_comparison_is_able_to_fail() {
    for row in [
        "GET, also of a member, the key",
        "DEL, the key",
        "SET with a condition, the key",
    ] {
        let shown = [true, false].map(|is_there| {
            let mut server = with_one_key(Budget::of_cache(1 << 20), is_there, b"00000000");
            obey(&mut server, &[(Right::Read, b"k:"), (Right::Write, b"k:")]);
            answers(&mut server, Some(row))
        });
        assert_ne!(shown[0], shown[1], "{row}");
    }
}
