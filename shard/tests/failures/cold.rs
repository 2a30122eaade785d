//! Keys that are on disk only: how many reads they cost, and that neighbours share one.

use penstock_net::request::Verb;
use penstock_net::status::Status;
use penstock_storage::log::SyncMethod;

use crate::image::Image;
use crate::random::Random;
use crate::server::Server;

const KEYS: usize = 120;

/// Half of the keys are of one slot.
fn key(number: usize) -> Vec<u8> {
    match number % 2 {
        0 => format!("{{shop}}{number}").into_bytes(),
        _ => format!("key {number}").into_bytes(),
    }
}

fn value(number: usize) -> Vec<u8> {
    vec![u8::try_from(number).expect("few"); 150 + number * 37 % 400]
}

/// A server whose cache holds a few of its keys.
fn full() -> Server {
    let mut server = Server::open(SyncMethod::DurableWrite, Image::default(), 1, None).unwrap();
    for number in 0..KEYS {
        server.set(number, &key(number), &value(number));
        if number % 4 == 3 {
            server.settle();
        }
    }
    server.settle();
    server
}

fn check(server: &Server, id: usize, number: usize) {
    let reply = &server.replies[&id];
    assert_eq!(reply.status, Status::Ok);
    assert!(reply.value == value(number), "key {number}");
}

#[test]
fn a_cold_get_costs_one_read() {
    let mut server = full();
    let mut random = Random::new(5);
    let before = server.counters();
    for round in 0..1_000 {
        let number = random.below(KEYS);
        server.get(KEYS + round, &key(number));
        server.settle();
        check(&server, KEYS + round, number);
    }
    let reads = server.counters().reads - before.reads;
    assert!(reads > 500, "{reads} of 1000 were cold");
    let parked = server.counters().parked - before.parked;
    assert!(
        reads * 100 <= parked * 105,
        "{reads} reads for {parked} cold keys"
    );
}

#[test]
fn keys_that_are_asked_for_together_are_read_at_once_and_neighbours_in_one_read() {
    let mut server = full();
    let before = server.counters();
    for number in 0..60 {
        server.get(KEYS + number, &key(number));
    }
    server.turn();
    let reads = server.device.under_way().len();
    server.settle();
    for number in 0..60 {
        check(&server, KEYS + number, number);
    }
    let after = server.counters();
    let (parked, coalesced) = (
        after.parked - before.parked,
        after.reads_coalesced - before.reads_coalesced,
    );
    assert!(parked >= 50, "{parked} waited");
    assert!(coalesced >= 20, "{coalesced} shared a read");
    assert!(
        reads as u64 + coalesced >= 50,
        "{reads} reads were begun at once, and {coalesced} keys shared them"
    );
    let all = after.reads - before.reads;
    assert!(all * 2 <= parked, "{all} reads for {parked} cold keys");
}

#[test]
fn an_answer_counts_once_and_passes_each_stage_once_however_long_it_waited() {
    let mut server = full();
    let parked = server.counters().parked;
    for number in 0..KEYS {
        server.get(KEYS + number, &key(number));
        server.get(2 * KEYS + number, b"nobody");
        if number % 3 == 2 {
            server.settle();
        }
    }
    server.settle();
    let counters = server.counters();
    let waited = counters.parked - parked;
    assert!(waited > KEYS as u64 / 2, "{waited} waited for a read");
    let keys = KEYS as u64;
    let gets = counters.answers.of(Verb::Get);
    assert_eq!(gets.of(Status::Ok), keys);
    assert_eq!(gets.of(Status::NotFound), keys);
    assert_eq!(counters.answers.of(Verb::Set).of(Status::Ok), keys);
    assert_eq!(counters.answers.total(), 3 * keys);
    // What was read may have left again before its turn came, and then waited once more.
    let later = 3 * keys - counters.at_once;
    assert!((keys / 2..=counters.parked).contains(&later), "{later}");
    // Every SET waited for its record, and none of the others.
    assert_eq!(server.staged(), [3 * keys, 3 * keys, keys, 3 * keys]);
}
