//! A write under a condition that does not hold shows the value that is there, to a client that
//! asks for it.

use penstock_net::request::{Condition, Expiry, Version};
use penstock_net::status::Status;
use penstock_storage::budget::Budget;
use penstock_storage::log::SyncMethod;

use crate::image::Image;
use crate::server::{Reply, Server};

const KEY: &[u8] = b"key";
const STALE: Condition = Condition::Version(Version {
    epoch: 1,
    sequence: u64::MAX,
});

fn open(budget: Budget) -> Server {
    let sync = SyncMethod::DurableWrite;
    Server::open_within(budget, 1, sync, Image::default(), 1, None).expect("it opens")
}

fn lose(server: &mut Server, id: usize, condition: Condition) {
    server.send(id, |batch, out| {
        batch.set_with(out, KEY, b"lost", condition.showing(), Expiry::Never);
    });
}

fn shown(reply: &Reply) -> (Status, Version, Option<&[u8]>) {
    assert!(reply.is_shown || reply.value.is_empty());
    let value = reply.is_shown.then_some(&reply.value[..]);
    (reply.status, reply.version, value)
}

#[test]
fn a_write_that_lost_shows_value_and_version_of_the_one_that_won() {
    // One that is copied, and one that the answer shares with the cell.
    for value in [vec![], vec![1; 11], vec![2; 1_500]] {
        let mut server = open(Budget::of_cache(1 << 20));
        server.set(1, KEY, &value);
        lose(&mut server, 2, STALE);
        lose(&mut server, 3, Condition::Absent);
        server.send(4, |batch, out| batch.del(out, KEY, STALE.showing()));
        server.send(5, |batch, out| {
            batch.set_with(out, KEY, b"lost", STALE, Expiry::Never);
        });
        server.settle();
        let won = server.replies[&1].version;
        let expected = [
            (2, Status::VersionMismatch, Some(&value[..])),
            (3, Status::Exists, Some(&value[..])),
            (4, Status::VersionMismatch, Some(&value[..])),
            (5, Status::VersionMismatch, None),
        ];
        for (id, status, value) in expected {
            assert_eq!(shown(&server.replies[&id]), (status, won, value), "{id}");
        }
        lose(&mut server, 6, Condition::Version(won));
        server.settle();
        let (status, version, value) = shown(&server.replies[&6]);
        assert_eq!((status, value), (Status::Ok, None));
        assert!(version > won);
    }
}

#[test]
fn a_key_that_is_missing_deleted_or_expired_shows_nothing() {
    let mut server = open(Budget::of_cache(1 << 20));
    let nothing = (Status::NotFound, Version::default(), None);
    lose(&mut server, 1, STALE);
    lose(&mut server, 2, Condition::Present);
    server.settle();
    server.set(3, KEY, b"value");
    server.delete(4, KEY);
    lose(&mut server, 5, STALE);
    server.settle();
    server.send(6, |batch, out| {
        batch.set_with(out, KEY, b"value", Condition::Always, Expiry::In(1));
    });
    server.settle();
    server.now.us += 10_000;
    server.now.unix_ms += 10;
    lose(&mut server, 7, STALE);
    server.send(8, |batch, out| batch.del(out, KEY, STALE.showing()));
    server.settle();
    for id in [1, 2, 5, 7, 8] {
        assert_eq!(shown(&server.replies[&id]), nothing, "{id}");
    }
}

#[test]
fn what_a_lost_write_shows_is_durable_before_it_is_shown() {
    let mut server = open(Budget::of_cache(1 << 20));
    server.set(1, KEY, b"won");
    lose(&mut server, 2, STALE);
    for _ in 0..5 {
        server.turn();
        assert!(server.replies.is_empty(), "the write has not ended");
    }
    server.settle();
    let won = server.replies[&1].version;
    let found = shown(&server.replies[&2]);
    assert_eq!(found, (Status::VersionMismatch, won, Some(&b"won"[..])));
}

#[test]
fn a_lost_write_on_a_cold_key_costs_one_read_and_shows_what_it_brings() {
    let mut server = open(Budget::of_cache(0));
    server.set(1, KEY, b"on disk");
    server.settle();
    assert_eq!(server.usage().cells, 0);
    let before = server.counters().reads;
    lose(&mut server, 2, Condition::Absent);
    server.settle();
    let found = shown(&server.replies[&2]);
    let won = server.replies[&1].version;
    assert_eq!(found, (Status::Exists, won, Some(&b"on disk"[..])));
    assert_eq!(server.counters().reads - before, 1);
}

#[test]
fn values_that_lost_writes_show_are_bounded_as_those_of_reads() {
    const WRITES: usize = 100;
    let mut server = open(Budget::of_cache(0));
    server.set(0, KEY, b"");
    server.settle();
    server.settle();
    server.get(1, KEY);
    let large = vec![7; 2_000];
    server.set(2, KEY, &large);
    for id in 3..3 + WRITES {
        lose(&mut server, id, STALE);
    }
    server.settle();
    let mut found = 0;
    for id in 3..3 + WRITES {
        let reply = &server.replies[&id];
        match reply.status {
            Status::VersionMismatch => {
                assert!(reply.is_shown && reply.value == large);
                found += 1;
            }
            status => assert_eq!(status, Status::Busy),
        }
    }
    assert!((1..=5).contains(&found), "{found} values in 8 KiB");
    lose(&mut server, 3 + WRITES, STALE);
    server.settle();
    assert!(server.replies[&(3 + WRITES)].value == large);
}
