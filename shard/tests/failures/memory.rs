//! What is held when memory is short.

use penstock_net::instruction::{FieldType, Instruction, Operation};
use penstock_net::pieces::Pieces;
use penstock_net::request::{Condition, Expiry};
use penstock_net::status::Status;
use penstock_storage::budget::Budget;
use penstock_storage::log::SyncMethod;

use crate::image::Image;
use crate::server::{OUTPUT_BYTES_MAX, PARKED_BYTES_MAX, Server, WRITE_STALL_US_MAX};

fn open(budget: Budget) -> Server {
    let sync = SyncMethod::DurableWrite;
    Server::open_within(budget, 1, sync, Image::default(), 1, None).expect("it opens")
}

fn add(key: u8) -> Instruction {
    Instruction {
        operation: Operation::Add,
        field_type: FieldType::U64,
        key,
        offset: 0,
        reason: 0,
        immediate: 1,
    }
}

/// Both must be in memory at the same time, which holds nothing between two turns otherwise.
#[test]
fn two_cold_keys_of_an_update_do_not_push_each_other_out() {
    const PAIRS: usize = 8;
    let mut server = open(Budget::of_cache(0));
    let key = |pair: usize, which: usize| format!("{{{pair}}}{which}").into_bytes();
    let mut id = 0;
    for which in 0..2 {
        for pair in 0..PAIRS {
            server.set(id, &key(pair, which), &[0; 8]);
            server.set(id + 1, b"between", &[0; 2_000]);
            server.set(id + 2, b"between", &[1; 2_000]);
            server.settle();
            id += 3;
        }
    }
    server.settle();
    assert_eq!(server.usage().cells, 0, "all are cold");
    for pair in 0..PAIRS {
        let keys = (key(pair, 0), key(pair, 1));
        server.send(id + pair, |batch, out| {
            batch.update_if(out, &keys.0, Some(&keys.1), &[add(0), add(1)], None);
        });
    }
    for _ in 0..20 * PAIRS {
        // A read takes longer than the hand needs for all that is held.
        for _ in 0..4 {
            server.turn();
            server.now.us += 100;
        }
        server.end(0);
    }
    for pair in 0..PAIRS {
        let reply = server.replies.get(&(id + pair));
        assert_eq!(reply.map(|reply| reply.status), Some(Status::Ok), "{pair}");
    }
}

/// What is read comes to stay until the turn ends, so what is under way counts.
#[test]
fn cold_reads_wait_for_memory_and_all_are_answered() {
    const KEYS: usize = 600;
    let budget = Budget {
        cache_bytes_max: 1 << 30,
        memory_bytes_max: 1 << 30,
        cells_bytes_min: 64 << 10,
    };
    let mut server = open(budget);
    let key = |number: usize| format!("key {number}").into_bytes();
    let value = |number: usize| vec![u8::try_from(number % 251).expect("small"); 1_900];
    for number in 0..KEYS {
        server.set(number, &key(number), &value(number));
        server.settle();
    }
    server.set_memory_bytes_max(0);
    server.settle();
    for round in 1..4 {
        for number in 0..KEYS {
            server.get(round * KEYS + number, &key(number * 7 % KEYS));
        }
        for _ in 0..KEYS * 4 {
            server.turn();
            // All that is under way ends within one turn.
            while !server.device.under_way().is_empty() {
                server.end(0);
            }
            let held = server.usage().cache_bytes;
            assert!(held <= budget.cells_bytes_min, "{held} bytes of values");
            server.now.us += 100;
        }
        for number in 0..KEYS {
            let reply = &server.replies[&(round * KEYS + number)];
            assert_eq!(reply.status, Status::Ok);
            assert!(reply.value == value(number * 7 % KEYS));
        }
    }
}

/// Replies share the block of the value; each holds what the value was when it was answered.
#[test]
fn a_reader_that_takes_nothing_holds_old_versions_of_a_large_value_within_its_bound() {
    const GETS: usize = 60;
    const VALUE_BYTES: usize = 2_048;
    let mut server = open(Budget::of_cache(1 << 20));
    server.set(0, b"large", &[0; VALUE_BYTES]);
    server.settle();
    let before = server.usage().cache_bytes;
    server.withheld = Some(Vec::new());
    let ends = [0, VALUE_BYTES - 8].map(|offset| Instruction {
        offset: u32::try_from(offset).expect("small"),
        ..add(0)
    });
    for get in 0..GETS {
        server.get(2 * get + 1, b"large");
        server.send(2 * get + 2, |batch, out| {
            batch.update_if(out, b"large", None, &ends, None);
        });
    }
    let (mut most, mut in_pieces) = (0, 0);
    for _ in 0..GETS {
        for _ in 0..4 {
            server.turn();
            server.end(0);
            server.now.us += 100;
        }
        assert_eq!(
            server.usage().cache_bytes,
            before,
            "the cell's own block counts"
        );
        let withheld = server.withheld.iter().flatten();
        let held: usize = withheld.clone().map(Pieces::len).sum();
        assert!(
            held <= OUTPUT_BYTES_MAX + 2 * VALUE_BYTES,
            "{held} bytes are held"
        );
        in_pieces += withheld.filter(|pieces| pieces.whole().is_none()).count();
        most = most.max(held);
        server.take_withheld();
    }
    assert!(
        most > OUTPUT_BYTES_MAX && in_pieces >= GETS / 8,
        "{most}, {in_pieces}"
    );
    for get in 0..GETS {
        let value = &server.replies[&(2 * get + 1)].value;
        let field = |at: usize| u64::from_le_bytes(*value[at..].first_chunk().expect("within"));
        let edits = get as u64;
        assert_eq!([0, VALUE_BYTES - 8].map(field), [edits; 2]);
    }
}

#[test]
fn operations_that_wait_for_reads_are_bounded_by_their_bytes_and_the_rest_is_refused_by_name() {
    let mut server = open(Budget::of_cache(0));
    server.set(0, b"cold", b"value");
    server.settle();
    server.settle();
    assert_eq!(server.usage().cells, 0);
    let large = vec![7; 2_000];
    let fit = PARKED_BYTES_MAX / 2_200;
    for id in 1..=2 * fit {
        server.set(id, b"cold", &large);
    }
    server.get(2 * fit + 1, b"another key that is not there");
    server.settle();
    let count = |status| {
        let replies = server.replies.values();
        replies.filter(|reply| reply.status == status).count()
    };
    let (taken, busy) = (count(Status::Ok) - 1, count(Status::Busy));
    // The refusals fill the output, so the last ones are looked at when there is room again.
    assert!(taken >= fit && busy >= 10, "{taken} and {busy}");
    assert_eq!(taken + busy, 2 * fit);
    let refusal = server
        .replies
        .values()
        .find(|reply| reply.status == Status::Busy);
    let message = String::from_utf8_lossy(&refusal.expect("counted").value).into_owned();
    assert!(message.contains("262144 bytes"), "{message}");
    assert_eq!(server.wait_ms_max, 1, "nothing has waited yet");
}

#[test]
fn busy_says_how_long_the_operations_before_have_waited() {
    let large = vec![7; 2_000];
    for (waited_us, wait_ms) in [(30_000, 30), (30_001, 31), (5_000_000, 1000)] {
        let mut server = open(Budget::of_cache(0));
        server.set(0, b"cold", b"");
        server.settle();
        server.settle();
        assert_eq!(server.usage().cells, 0);
        server.get(1, b"cold");
        server.set(2, b"cold", &large);
        for id in 3..50 {
            server.get(id, b"cold");
        }
        server.now.us += waited_us;
        server.settle();
        let last = &server.replies[&49];
        assert_eq!(last.status, Status::Busy);
        assert_eq!(server.wait_ms_max, wait_ms, "{waited_us} us");
    }
}

#[test]
fn a_loop_that_waits_for_memory_rests_until_the_disk_has_written() {
    let budget = Budget {
        cache_bytes_max: 1 << 30,
        memory_bytes_max: 1 << 30,
        cells_bytes_min: 6 << 10,
    };
    let mut server = open(budget);
    let key = |number: usize| format!("key {}", number % 12).into_bytes();
    for number in 0..12 {
        server.set(number, &key(number), &[6; 100]);
    }
    server.settle();
    server.set_memory_bytes_max(0);
    for number in 12..24 {
        server.set(number, &key(number), &[7; 1_000]);
    }
    for _ in 0..100 {
        server.turn();
    }
    assert_eq!(server.replies.len(), 12, "nothing more is durable");
    assert!(server.usage().cache_bytes > budget.cells_bytes_min);
    assert!(!server.device.under_way().is_empty(), "it is being written");
    assert!(!server.is_restless(), "there is nothing to do meanwhile");
    server.settle();
    assert_eq!(server.replies.len(), 24);
}

/// The operations find another value than the one that room was kept for when they came.
#[test]
fn reads_behind_a_cold_key_that_grew_meanwhile_are_bounded_by_what_they_find() {
    const GETS: usize = 100;
    let mut server = open(Budget::of_cache(0));
    server.set(0, b"cold", b"");
    server.settle();
    server.settle();
    assert_eq!(server.usage().cells, 0);
    server.get(1, b"cold");
    let large = vec![7; 2_000];
    server.set(2, b"cold", &large);
    for id in 3..3 + GETS {
        server.get(id, b"cold");
    }
    server.settle();
    let replies = server.replies.values();
    let found = replies.clone().filter(|reply| reply.value == large).count();
    let busy: Vec<_> = replies
        .filter(|reply| reply.status == Status::Busy)
        .collect();
    assert!((1..=5).contains(&found), "{found} values in 8 KiB");
    assert_eq!(found + busy.len(), GETS);
    let message = String::from_utf8_lossy(&busy[0].value).into_owned();
    assert!(message.contains("2000 bytes"), "{message}");
    server.get(3 + GETS, b"cold");
    server.settle();
    assert_eq!(server.replies[&(3 + GETS)].value, large);
}

#[test]
fn a_peer_that_takes_a_byte_now_and_then_is_ended_and_a_slow_one_is_not() {
    const STEP_US: u64 = WRITE_STALL_US_MAX / 4;
    for (each, is_ended) in [(1, true), (5 << 10, true), (20 << 10, false)] {
        let mut server = open(Budget::of_cache(1 << 20));
        server.set(0, b"key", &[7; 2_000]);
        server.settle();
        server.takes = Some(each);
        server.get(1, b"key");
        let mut close = None;
        for _ in 0..20 {
            server.turn();
            close = close.or(server.close);
            server.now.us += STEP_US;
        }
        assert_eq!(close.is_some(), is_ended, "{each} bytes each time");
    }
}

/// Expired keys filled the index for good, and every new key was answered FULL.
#[test]
fn an_index_full_of_expired_keys_takes_a_new_key_and_gives_its_bytes_back() {
    const LIFE_MS: u64 = 60_000;
    let mut server = open(Budget::of_cache(1 << 20));
    // The bytes of one key, and those of some thousands beside it.
    server.set(0, b"stays", b"for good");
    server.settle();
    let empty = server.usage().index_bytes;
    let reserve_bytes = 2 << 20;
    server.set_memory_bytes_max((empty + (256 << 10) + reserve_bytes) * 8 / 7);
    server.settle();
    let mut asked = 0;
    let mut set = |server: &mut Server| {
        asked += 1;
        let key = format!("key {asked}").into_bytes();
        server.send(asked, |batch, out| {
            batch.set_with(out, &key, b"value", Condition::Always, Expiry::In(LIFE_MS));
        });
        asked
    };
    loop {
        let ids: Vec<usize> = (0..100).map(|_| set(&mut server)).collect();
        server.settle();
        let is_full = |id: &usize| server.replies[id].status == Status::Full;
        if ids.iter().any(is_full) {
            break;
        }
    }
    let full = server.usage();
    assert!(full.keys > 1_000, "{} keys", full.keys);
    let id = set(&mut server);
    server.settle();
    assert_eq!(server.replies[&id].status, Status::Full, "none has expired");

    server.now.us += (LIFE_MS + 2_000) * 1_000;
    server.now.unix_ms += LIFE_MS + 2_000;
    server.turn();
    let before = server.usage().keys;
    assert_eq!(before, full.keys, "they are in the index yet");
    let id = set(&mut server);
    server.settle();
    assert_eq!(server.replies[&id].status, Status::Ok);
    for _ in 0..200 {
        server.now.us += 100_000;
        server.now.unix_ms += 100;
        server.turn();
        while !server.device.under_way().is_empty() {
            server.end(0);
        }
    }
    let after = server.usage();
    let grown = full.index_bytes - empty;
    assert!(
        after.keys <= full.keys / 4 && after.index_bytes - empty <= grown / 2,
        "{} of {} keys, {} bytes of {grown} are left",
        after.keys,
        full.keys,
        after.index_bytes - empty
    );
}
