//! One shard and one client, run once for each request to the disk and each way in which that one
//! can fail, with power cuts behind it: no reply says what the disk does not hold. And the same
//! shard while time passes: keys that are gone by themselves.
#![forbid(unsafe_code)]

mod apply;
mod cluster;
mod cold;
mod config;
#[path = "../../../storage/tests/worlds/device.rs"]
mod device;
mod edits;
mod expiry;
mod flush;
mod handovers;
#[path = "../../../storage/tests/it/heap.rs"]
mod heap;
#[path = "../../../storage/tests/worlds/image.rs"]
mod image;
mod inherited;
mod interpreter;
mod joint;
mod key_tables;
mod keyspaces;
mod lease_seeds;
mod leases;
mod level_all;
mod login;
mod many_keys;
mod members;
mod memory;
mod on_expire;
mod overload;
mod past;
mod ping;
mod pipelines;
mod programs;
mod publications;
#[path = "../../../storage/tests/it/random.rs"]
mod random;
mod rights;
mod room;
mod runs;
mod scan;
mod scripts;
#[path = "../../../storage/tests/it/seed.rs"]
mod seed;
mod server;
mod shown;
mod spread;
mod tokens;
mod tracking;
mod watching;

use std::collections::{BTreeMap, HashSet};

use penstock_net::status::{Executed, Status};
use penstock_storage::io::IoFailure;
use penstock_storage::log::SyncMethod;

use image::Image;
use random::Random;
use server::{Asked, Failure, Reply, Server};

const KEYS: usize = 12;
const EIO: i32 = 5;
/// More than any write has.
const SECTORS_ALL: usize = 1 << 16;

/// What the client asks for, in order; its request id is its place.
#[derive(Clone, Copy, Debug)]
enum Operation {
    Get(usize),
    Set(usize),
    Delete(usize),
    /// Of the partition of all keys.
    Flush,
}

/// All keys are of one slot, so that they execute in the order in which they were sent.
fn key(number: usize) -> Vec<u8> {
    format!("{{shop}}{number}").into_bytes()
}

/// The value that the operation at `place` sets: its place, and what makes keys go cold.
fn value(place: usize) -> Vec<u8> {
    let mut value = vec![0xA5; 200 + place * 97 % 1_800];
    value[..8].copy_from_slice(&(place as u64).to_le_bytes());
    value
}

fn operations(rounds: usize) -> Vec<Operation> {
    let rounds = (0..rounds).flat_map(|round| {
        let change = match round % 7 {
            3 => Operation::Delete(round * 5 % KEYS),
            _ => Operation::Set(round * 5 % KEYS),
        };
        [change, Operation::Get(round * 7 % KEYS)]
    });
    rounds.collect()
}

/// The same with flushes, and with reads behind each that no write stands between.
fn operations_with_flushes(rounds: usize) -> Vec<Operation> {
    let with_flush = |(place, operation)| match place % 29 {
        17 => Operation::Flush,
        18..21 => Operation::Get(place * 5 % KEYS),
        _ => operation,
    };
    let all = operations(rounds).into_iter().enumerate();
    all.map(with_flush).collect()
}

/// Sends all operations, a few at a time, while requests to the disk end out of order.
fn trade(server: &mut Server, operations: &[Operation]) {
    for (place, operation) in operations.iter().enumerate() {
        match *operation {
            Operation::Get(number) => server.get(place, &key(number)),
            Operation::Set(number) => server.set(place, &key(number), &value(place)),
            Operation::Delete(number) => server.delete(place, &key(number)),
            Operation::Flush => server.send(place, |batch, out| batch.flush(out, &key(0))),
        }
        if place % 3 == 0 {
            server.turn();
        }
        if place % 4 == 1 {
            server.end(place % 2);
        }
        // At times the client waits, and what it wrote can go cold.
        if place % 20 == 19 {
            server.settle();
        }
    }
    server.settle();
}

/// Holds the replies against what a client may conclude from them. Returns the changes in order,
/// without those that a reply called not executed.
fn check_replies(
    operations: &[Operation],
    replies: &BTreeMap<usize, Reply>,
) -> Result<Vec<(usize, Operation)>, String> {
    let mut changes = Vec::new();
    for (place, &operation) in operations.iter().enumerate() {
        let reply = replies.get(&place);
        let status = reply.map(|reply| reply.status);
        let is_refused = status.is_some_and(is_refusal);
        match operation {
            _ if is_refused => {}
            Operation::Get(number) => {
                let Some(reply) = reply else { continue };
                let expected = state(&changes).get(&number).copied();
                let shown = match reply.status {
                    Status::Ok => Some(place_of(&reply.value)?),
                    Status::NotFound => None,
                    status => return Err(format!("GET {place} was answered with {status:?}")),
                };
                if shown != expected {
                    return Err(format!("GET {place} showed {shown:?}, not {expected:?}"));
                }
            }
            // What was not there was not deleted.
            Operation::Delete(_) if status == Some(Status::NotFound) => {}
            Operation::Set(_) | Operation::Delete(_) | Operation::Flush => {
                changes.push((place, operation));
            }
        }
    }
    Ok(changes)
}

/// Whether an operation with this answer changed nothing. One whose read failed did not begin.
fn is_refusal(status: Status) -> bool {
    matches!(status, Status::Io | Status::Corrupt)
        || status.executed() == Executed::No && status != Status::NotFound
}

/// By key the place of the operation that set it.
fn state(changes: &[(usize, Operation)]) -> BTreeMap<usize, usize> {
    let mut state = BTreeMap::new();
    for &(place, operation) in changes {
        match operation {
            Operation::Set(number) => state.insert(number, place),
            Operation::Delete(number) => state.remove(&number),
            Operation::Flush => {
                state.clear();
                None
            }
            Operation::Get(_) => None,
        };
    }
    state
}

/// The place of the last operation before `place` that deleted a key.
fn ended(changes: &[(usize, Operation)], key: usize, place: usize) -> Option<usize> {
    let before = changes.iter().rev().filter(|(at, _)| *at < place);
    let mut before = before.filter(|(_, change)| match change {
        Operation::Flush => true,
        Operation::Delete(number) | Operation::Set(number) => *number == key,
        Operation::Get(_) => false,
    });
    before.next().map(|(at, _)| *at)
}

/// The place of the operation that set a value, which must be whole.
fn place_of(bytes: &[u8]) -> Result<usize, String> {
    let place = bytes.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
    let place = place.and_then(|place| usize::try_from(place).ok());
    match place {
        Some(place) if place < 1 << 20 && bytes == value(place) => Ok(place),
        _ => Err(format!("a value of {} bytes that nobody set", bytes.len())),
    }
}

/// A start over `image` serves a prefix of the changes that holds all that was acknowledged or
/// shown, and then takes a change.
fn check_restart(
    image: Image,
    sync: SyncMethod,
    operations: &[Operation],
    replies: &BTreeMap<usize, Reply>,
) -> Result<(), String> {
    let changes = check_replies(operations, replies)?;
    let mut server = Server::open(sync, image, 2, None)?;
    for number in 0..KEYS {
        server.get(number, &key(number));
    }
    server.settle();
    let mut found = BTreeMap::new();
    for number in 0..KEYS {
        match server.replies.get(&number) {
            Some(reply) if reply.status == Status::Ok => {
                found.insert(number, place_of(&reply.value)?);
            }
            Some(reply) if reply.status == Status::NotFound => {}
            reply => return Err(format!("after the start key {number} is {reply:?}")),
        }
    }
    // Whatever a client saw: an acknowledged change, or all before what a GET showed, or did not
    // find any more.
    let seen = operations
        .iter()
        .enumerate()
        .filter_map(|(place, operation)| {
            let reply = replies.get(&place)?;
            match (operation, reply.status) {
                (Operation::Get(number), Status::NotFound) => ended(&changes, *number, place),
                (Operation::Get(_), Status::Ok) => place_of(&reply.value).ok(),
                (_, Status::Ok) => Some(place),
                _ => None,
            }
        });
    let seen = seen.max();
    let kept_min = changes.iter().take_while(|(place, _)| Some(*place) <= seen);
    let kept_min = kept_min.count();
    if !(kept_min..=changes.len()).any(|kept| state(&changes[..kept]) == found) {
        return Err(format!(
            "the client saw up to operation {seen:?}; a start finds {found:?}"
        ));
    }
    server.set(KEYS, &key(0), &value(KEYS));
    server.settle();
    match server.replies.get(&KEYS) {
        Some(reply) if reply.status == Status::Ok => Ok(()),
        reply => Err(format!("after the start a SET is answered by {reply:?}")),
    }
}

/// Cuts the power: of what is not flushed nothing, all, or parts remain.
fn check_power_cuts(
    server: &Server,
    sync: SyncMethod,
    operations: &[Operation],
) -> Result<(), String> {
    let mut random = Random::new(server.asked.len() as u64);
    let mut met = HashSet::new();
    for subset in 0..8 {
        let mut image = server.device.image.clone();
        for mut sector in server.device.unflushed() {
            if subset == 1 || subset > 1 && random.once_in(2) {
                sector.toggle(&mut image);
            }
        }
        if met.insert(image.fingerprint()) {
            check_restart(image, sync, operations, &server.replies)?;
        }
    }
    Ok(())
}

fn failures(asked: Asked, number: usize) -> Vec<Failure> {
    let device = |sectors| Failure::Ends(IoFailure::Device(EIO), sectors);
    let short = |sectors: usize| {
        let moved = u32::try_from(sectors * image::SECTOR_BYTES).expect("few sectors");
        Failure::Ends(IoFailure::Short { moved }, sectors)
    };
    match asked {
        Asked::Write => vec![
            device(0),
            device(1),
            device(SECTORS_ALL),
            short(0),
            short(3),
        ],
        Asked::Sync => vec![device(0), device(SECTORS_ALL)],
        Asked::Read => {
            let mut random = Random::new(number as u64);
            let flips = (0..4).map(|_| Failure::Flipped(random.below(8 * 4096)));
            let mut failures: Vec<Failure> = flips.collect();
            failures.extend([device(0), Failure::Zeros, Failure::Unreadable]);
            failures
        }
        Asked::Spare => vec![Failure::NoSpare],
    }
}

/// Runs everything, with this request failing, and judges all that the client saw.
fn fail(
    sync: SyncMethod,
    operations: &[Operation],
    failing: Option<(usize, Failure)>,
) -> Result<Server, String> {
    let mut server = Server::open(sync, Image::default(), 1, failing)?;
    server.be_of_process();
    trade(&mut server, operations);
    let is_final = failing.is_some_and(|(number, _)| {
        matches!(server.asked.get(number), Some(Asked::Write | Asked::Sync))
    });
    if is_final != server.is_fatal {
        return Err(format!("fatal is {}", server.is_fatal));
    }
    if !is_final && server.replies.len() != operations.len() {
        return Err(format!("{} replies", server.replies.len()));
    }
    let is_read = |number: usize| server.asked.get(number) == Some(&Asked::Read);
    if failing.is_some_and(|(number, how)| is_read(number) && how != Failure::Unreadable)
        && let Some((place, reply)) = server
            .replies
            .iter()
            .find(|(_, reply)| matches!(reply.status, Status::Io | Status::Corrupt))
    {
        return Err(format!(
            "one read failed once, and operation {place} is answered with {:?}",
            reply.status
        ));
    }
    check_power_cuts(&server, sync, operations)?;
    Ok(server)
}

#[test]
fn no_failure_of_any_request_lets_a_reply_promise_what_is_lost() {
    check_all_failures(&operations(70));
}

#[test]
fn no_failure_of_any_request_tears_a_flush_or_lets_a_reply_promise_one_that_is_lost() {
    check_all_failures(&operations_with_flushes(70));
}

fn check_all_failures(operations: &[Operation]) {
    let mut refused = 0;
    for sync in [SyncMethod::DurableWrite, SyncMethod::WriteThenSync] {
        let calm = fail(sync, operations, None).expect("nothing fails");
        let count = |asked| calm.asked.iter().filter(|&&other| other == asked).count();
        assert!(count(Asked::Write) > 10 && count(Asked::Read) > 10 && count(Asked::Spare) > 2);
        assert!(calm.wide_reads > 0, "no part stands in two blocks");
        for (number, &asked) in calm.asked.iter().enumerate() {
            for failure in failures(asked, number) {
                match fail(sync, operations, Some((number, failure))) {
                    Ok(server) => {
                        let replies = server.replies.values();
                        refused += replies.filter(|reply| is_refusal(reply.status)).count();
                    }
                    Err(wrong) => panic!(
                        "{sync:?}, request {number} to the disk, {asked:?}, {failure:?}: {wrong}"
                    ),
                }
            }
        }
    }
    assert!(refused > 100, "{refused} replies told of a failure");
}
