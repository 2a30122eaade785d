//! Changes of keyspaces on a disk that is full, also of the past alone.

use penstock_net::keyspace::{Action, read_keyspaces};
use penstock_net::request::{Condition, Expiry};
use penstock_net::status::Status;

use super::{Shop, kept, text};
use crate::server::SEGMENT_BYTES;

#[test]
fn a_change_of_a_keyspace_is_refused_on_a_full_disk_and_goes_on_when_there_is_room() {
    let mut shop = Shop::new();
    let made = shop.keyspace(b"made:", Action::Create(kept(2, 0)));
    assert_eq!(made.status, Status::Ok);
    let name = |number: usize| format!("key-{number}").into_bytes();
    // One key in sixteen of a segment may change before the segment is worth cleaning.
    let (keys, in_segment) = (500, 17);
    for number in 0..keys {
        let reply = shop.set(&name(number), &[7; 2_000], Expiry::Never);
        assert_eq!(reply.status, Status::Ok);
    }
    shop.server.is_full = true;
    let mut numbers = (0..in_segment).flat_map(|first| (first..keys).step_by(in_segment));
    let is_full = numbers.any(|number| {
        let reply = shop.set(&name(number), &[8; 2_000], Expiry::Never);
        reply.status == Status::Full
    });
    assert!(is_full);
    for _ in 0..3 {
        let refused = shop.keyspace(b"late:", Action::Create(kept(1, 0)));
        assert_eq!(refused.status, Status::Full, "{}", text(&refused));
        let list = read_keyspaces(&shop.keyspace(b"", Action::List).value).expect("a list");
        assert!(list.iter().any(|keyspace| keyspace.prefix == b"made:"));
    }
    shop.server.make_room();
    let made = shop.keyspace(b"late:", Action::Set(kept(1, 0)));
    assert_eq!(made.status, Status::Ok, "{}", text(&made));
}

/// A shop with versions of eight keys on a disk that has no room for more of them.
fn full_of_the_past() -> Shop {
    let mut shop = Shop::new();
    shop.server.segment_bytes = 4 * SEGMENT_BYTES;
    let made = shop.keyspace(b"past:", Action::Create(kept(255, 0)));
    assert_eq!(made.status, Status::Ok);
    for number in 0..SMALL {
        let reply = shop.set(&small(number), b"small", Expiry::Never);
        assert_eq!(reply.status, Status::Ok);
    }
    for round in 0..40 {
        for key in 0..8 {
            let reply = shop.set(&past_key(key), &[round; 1_000], Expiry::Never);
            assert_eq!(reply.status, Status::Ok);
        }
    }
    shop.server.is_used_up = true;
    fill_with(&mut shop, |round| past_key(round % 8));
    shop
}

/// Keys with one version.
const SMALL: usize = 5_000;

fn small(number: usize) -> Vec<u8> {
    format!("past:small-{number}").into_bytes()
}

fn past_key(number: usize) -> Vec<u8> {
    format!("past:{number}").into_bytes()
}

/// Writes values of 1,000 bytes until there is no room, also not after cleaning. How many.
fn fill_with(shop: &mut Shop, name: impl Fn(usize) -> Vec<u8>) -> usize {
    for written in 0..1_000 {
        let mut reply = shop.set(&name(written), &[9; 1_000], Expiry::Never);
        for _ in 0..20 {
            if reply.status != Status::Full {
                break;
            }
            shop.pass(20);
            reply = shop.set(&name(written), &[9; 1_000], Expiry::Never);
        }
        if reply.status == Status::Full {
            return written;
        }
        assert_eq!(reply.status, Status::Ok, "{}", text(&reply));
    }
    panic!("it is never full");
}

#[test]
fn on_a_disk_full_of_the_past_settings_that_keep_less_are_taken_and_give_room_back() {
    let drop = Action::Drop;
    let fewer = Action::Set(kept(2, 0));
    let shorter = Action::Set(kept(255, 10));
    for action in [drop, fewer, shorter] {
        let mut shop = full_of_the_past();
        // Deletions are versions too, and use up what is left for changes that take no room.
        let mut deletions = 0..SMALL;
        let refused = deletions.find(|&number| {
            let deleted = shop.ask(|b, o| b.del(o, &small(number), Condition::Always));
            deleted.status == Status::Full
        });
        assert!(refused.is_some(), "there is always room");
        let changed = shop.keyspace(b"past:", action);
        assert_eq!(changed.status, Status::Ok, "{}", text(&changed));
        let room = fill_with(&mut shop, |number| format!("new-{number}").into_bytes());
        assert!(room >= 100, "only {room}");
        shop.restart();
        let list = read_keyspaces(&shop.keyspace(b"", Action::List).value).expect("a list");
        let found = list.iter().find(|keyspace| keyspace.prefix == b"past:");
        let in_force = found.map(|keyspace| keyspace.settings);
        match action {
            Action::Set(settings) => assert_eq!(in_force, Some(settings)),
            _ => assert_eq!(in_force, None),
        }
    }
}
