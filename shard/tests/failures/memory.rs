//! What is held when memory is short.

use penstock_net::instruction::{FieldType, Instruction, Operation};
use penstock_net::status::Status;
use penstock_storage::budget::Budget;
use penstock_storage::log::SyncMethod;

use crate::image::Image;
use crate::server::Server;

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
