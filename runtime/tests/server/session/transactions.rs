//! Transactions at a real server: what each level permits, fifty of them at once, savepoints,
//! expiring keys, and a commit whose answer is lost.

mod anomalies;
mod lost_answer;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Barrier;
use std::time::Duration;

use penstock_client::{
    Client, ClientOptions, Condition, Expiry, Isolation, KeyState, TransactionError,
    TransactionRefusal, Verbs,
};

use super::{Server, folder};

/// Transactions at once.
const MANY: usize = 50;

fn options() -> ClientOptions {
    ClientOptions {
        deadline: Duration::from_secs(60),
        ..ClientOptions::default()
    }
}

fn client(server: &Server) -> Client {
    let address = server.address.parse().expect("an address");
    Client::connect(address, options()).expect("it is ready")
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
}

fn read(client: &Client, key: &[u8]) -> u64 {
    let found = client.get(key).wait().expect("read").expect("present");
    number(&found.bytes)
}

fn write(client: &Client, key: &[u8], value: u64) {
    let set = client.set(key, &value.to_le_bytes());
    set.wait().expect("set");
}

fn account(number: usize) -> Vec<u8> {
    format!("account:{{bank}}:{number}").into_bytes()
}

/// What one of the many did.
struct Outcome {
    reads: BTreeSet<Vec<u8>>,
    writes: BTreeSet<Vec<u8>>,
    /// The sequence of the commit, or the key of the conflict and what was found.
    end: Result<u64, (Vec<u8>, KeyState)>,
}

/// All read the same state, and then all commit at once. Each reads two accounts and writes the
/// first of them.
fn all_at_once(client: &Client, accounts: usize, isolation: Isolation) -> Vec<Outcome> {
    let barrier = Barrier::new(MANY);
    let run = |which: usize| {
        let keys = [account(which % accounts), account((which + 1) % accounts)];
        let mut own = client.begin(isolation);
        let seen = own.get_all(&[&keys[0], &keys[1]]).wait().expect("read");
        let first = seen[0].as_ref().expect("present");
        let more = number(&first.bytes) + 1;
        own.set(&keys[0], &more.to_le_bytes()).expect("set");
        barrier.wait();
        let end = match own.commit().wait() {
            Ok(changed) => Ok(changed.expect("written").version.sequence),
            Err(TransactionError::Conflict(it)) => Err((it.key, it.found)),
            Err(other) => panic!("{other}"),
        };
        Outcome {
            writes: BTreeSet::from([keys[0].clone()]),
            reads: BTreeSet::from(keys),
            end,
        }
    };
    std::thread::scope(|scope| {
        let run = &run;
        let all: Vec<_> = (0..MANY).map(|it| scope.spawn(move || run(it))).collect();
        all.into_iter()
            .map(|it| it.join().expect("no panic"))
            .collect()
    })
}

/// Runs the commits one after the other, in the order of their versions: each must find what it
/// guards as it was, and every conflict must name a key that a commit has written, at its version.
fn judge(outcomes: &[Outcome], isolation: Isolation) -> usize {
    let guarded = |it: &Outcome| match isolation {
        Isolation::Serializable => it.reads.clone(),
        Isolation::Snapshot => it.writes.clone(),
    };
    let mut in_order: BTreeMap<u64, &Outcome> = BTreeMap::new();
    for outcome in outcomes {
        if let Ok(sequence) = outcome.end {
            assert!(in_order.insert(sequence, outcome).is_none());
        }
    }
    let mut written: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
    for (sequence, outcome) in &in_order {
        let guarded = guarded(outcome);
        assert!(guarded.iter().all(|key| !written.contains_key(key)));
        written.extend(outcome.writes.iter().map(|key| (key.clone(), *sequence)));
    }
    let mut conflicts = 0;
    for outcome in outcomes {
        if let Err((key, found)) = &outcome.end {
            conflicts += 1;
            assert!(guarded(outcome).contains(key));
            let KeyState::Version(version) = found else {
                panic!("{found:?}");
            };
            assert_eq!(written.get(key), Some(&version.sequence));
        }
    }
    assert_eq!(conflicts + in_order.len(), outcomes.len());
    conflicts
}

#[test]
fn fifty_at_once_conflict_where_one_after_the_other_would_and_nowhere_else() {
    let directory = folder("session-transactions-fifty");
    let server = Server::start(&directory, &["--shards", "2"]);
    let client = client(&server);
    for isolation in [Isolation::Snapshot, Isolation::Serializable] {
        for accounts in [2, 5, 10] {
            for round in 0..4 {
                (0..accounts).for_each(|it| write(&client, &account(it), round));
                let outcomes = all_at_once(&client, accounts, isolation);
                let conflicts = judge(&outcomes, isolation);
                let sum: u64 = (0..accounts)
                    .map(|it| read(&client, &account(it)) - round)
                    .sum();
                assert_eq!(sum, (MANY - conflicts) as u64, "each commit added one");
                // Of those that write one account the first commits. Whether it commits where all
                // reads are guarded depends on the order.
                match isolation {
                    Isolation::Snapshot => assert_eq!(conflicts, MANY - accounts),
                    Isolation::Serializable => assert!(conflicts >= MANY - accounts),
                }
            }
        }
    }
    assert_eq!(server.stop(), Some(0));
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn transfers_run_again_lose_nothing_and_readers_always_see_the_sum() {
    const ACCOUNTS: usize = 8;
    const TRANSFERS: usize = 6;
    let directory = folder("session-transactions-transfers");
    let server = Server::start(&directory, &["--shards", "2"]);
    let client = client(&server);
    (0..ACCOUNTS).for_each(|it| write(&client, &account(it), 1_000));
    write(&client, b"count:{bank}", 0);
    std::thread::scope(|scope| {
        for which in 0..MANY {
            let client = &client;
            scope.spawn(move || {
                for round in 0..TRANSFERS {
                    let from = account((which + round) % ACCOUNTS);
                    let to = account((which + 3 * round + 1) % ACCOUNTS);
                    let outcome = client.transact(Isolation::Serializable, |own| {
                        let seen = own.get_all(&[&from, &to]).wait()?;
                        let [from_has, to_has] = [&seen[0], &seen[1]]
                            .map(|it| number(&it.as_ref().expect("present").bytes));
                        if from != to && from_has > 0 {
                            own.set(&from, &(from_has - 1).to_le_bytes())?;
                            own.set(&to, &(to_has + 1).to_le_bytes())?;
                        }
                        // Nobody reads the counter, so it conflicts with nobody.
                        let count = own.key(b"count:{bank}")?;
                        own.then(count.u64(0).increase(1u64))
                    });
                    outcome.expect("committed in the end");
                }
            });
        }
        for isolation in [Isolation::Snapshot, Isolation::Serializable] {
            let client = &client;
            scope.spawn(move || {
                let keys: Vec<Vec<u8>> = (0..ACCOUNTS).map(account).collect();
                let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
                for _ in 0..20 {
                    let mut own = client.begin(isolation);
                    let seen = match own.get_all(&keys).wait() {
                        Ok(seen) => seen,
                        Err(TransactionError::Conflict(_)) => continue,
                        Err(other) => panic!("{other}"),
                    };
                    match own.commit().wait() {
                        Ok(written) => assert_eq!(written, None),
                        Err(TransactionError::Conflict(_)) => continue,
                        Err(other) => panic!("{other}"),
                    }
                    let sum: u64 = seen.iter().flatten().map(|it| number(&it.bytes)).sum();
                    assert_eq!(sum, 8_000, "{isolation:?}");
                }
            });
        }
    });
    let sum: u64 = (0..ACCOUNTS).map(|it| read(&client, &account(it))).sum();
    assert_eq!(sum, 8_000);
    assert_eq!(read(&client, b"count:{bank}"), (MANY * TRANSFERS) as u64);
    assert_eq!(server.stop(), Some(0));
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn a_read_only_transaction_is_proved_without_a_byte_of_log() {
    let directory = folder("session-transactions-proof");
    let server = Server::start(&directory, &["--shards", "1"]);
    let client = client(&server);
    write(&client, b"{p}a", 1);
    write(&client, b"{p}b", 2);
    let records = || {
        // Told up to 100 ms late.
        std::thread::sleep(Duration::from_millis(300));
        let info = client.info().wait().expect("told");
        let info: serde_json::Value = serde_json::from_str(&info).expect("JSON");
        let records = &info["counters"]["records"];
        records.as_u64().unwrap_or_else(|| panic!("{info}"))
    };
    let before = records();
    for isolation in [Isolation::Snapshot, Isolation::Serializable] {
        let mut own = client.begin(isolation);
        let seen = own
            .get_all(&[b"{p}a", b"{p}b", b"{p}c"])
            .wait()
            .expect("read");
        assert_eq!(seen.iter().flatten().count(), 2);
        assert_eq!(own.commit().wait().expect("proved"), None);
    }
    assert_eq!(records(), before);
    let mut late = client.begin(Isolation::Serializable);
    late.get_all(&[b"{p}a", b"{p}c"]).wait().expect("read");
    write(&client, b"{p}c", 3);
    match late.commit().wait() {
        Err(TransactionError::Conflict(it)) => assert_eq!(
            (&it.key[..], it.expected, it.found),
            (&b"{p}c"[..], KeyState::Missing, KeyState::Present)
        ),
        other => panic!("{other:?}"),
    }
    assert_eq!(server.stop(), Some(0));
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn savepoints_and_limits_hold_at_a_real_server() {
    let directory = folder("session-transactions-savepoints");
    let server = Server::start(&directory, &["--shards", "1"]);
    let client = client(&server);
    let mut order = client.begin(Isolation::Serializable);
    order.set(b"{o}order", b"open").expect("set");
    order.savepoint("items").expect("marked");
    order.set(b"{o}item:1", b"tee").expect("set");
    order.del(b"{o}order").expect("deleted");
    order.rollback_to("items").expect("known");
    order.set(b"{o}item:2", b"cap").expect("set");
    // The server's own limit, as HELLO told it.
    let refused = order.set(b"{o}item:3", &[0; (64 << 10) + 1]);
    let Err(TransactionError::Refused(TransactionRefusal::ValueLength { len, max, .. })) = refused
    else {
        panic!("{refused:?}");
    };
    assert_eq!((len, max), ((64 << 10) + 1, 64 << 10));
    order.commit().wait().expect("committed").expect("written");
    let get = |key: &[u8]| client.get(key).wait().expect("read").map(|it| it.bytes);
    assert_eq!(get(b"{o}order").as_deref(), Some(&b"open"[..]));
    assert_eq!(get(b"{o}item:1"), None);
    assert_eq!(get(b"{o}item:2").as_deref(), Some(&b"cap"[..]));
    assert_eq!(server.stop(), Some(0));
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn a_hold_that_expires_meanwhile_conflicts_and_one_that_has_expired_is_missing() {
    let directory = folder("session-transactions-expiry");
    let server = Server::start(&directory, &["--shards", "1"]);
    let client = client(&server);
    let hold = b"hold:{tee}:7";
    // A machine that is busy with something else reads late: then the hold lives longer.
    let begun = [400, 4_000, 40_000].into_iter().find_map(|lives_ms| {
        let (always, lives) = (Condition::Always, Expiry::In(lives_ms));
        let set = client.set_with(hold, b"two", always, lives).wait();
        set.expect("set");
        let mut confirm = client.begin(Isolation::Serializable);
        let held = confirm.get(hold).wait().expect("read")?;
        Some((confirm, held))
    });
    let (mut confirm, held) = begun.expect("this machine has stopped");
    assert!(held.expiry_ms.expect("told") > 0);
    confirm.set(b"sold:{tee}:7", &held.bytes).expect("set");
    confirm.del(hold).expect("deleted");
    let is_there = || client.get(hold).wait().expect("read").is_some();
    for _ in 0..6_000 {
        if !is_there() {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    match confirm.commit().wait() {
        Err(TransactionError::Conflict(it)) => {
            assert_eq!((&it.key[..], it.found), (&hold[..], KeyState::Missing));
            assert_eq!(it.expected, KeyState::Version(held.version.expect("read")));
        }
        other => panic!("sold, though the hold was gone: {other:?}"),
    }
    assert_eq!(client.get(b"sold:{tee}:7").wait().expect("read"), None);
    // It is missing now, and must be missing still when the transaction commits.
    let again = |meddles: bool| {
        let mut own = client.begin(Isolation::Serializable);
        assert_eq!(own.get(hold).wait().expect("read"), None);
        own.set_with(hold, b"new", Expiry::In(600_000))
            .expect("set");
        if meddles {
            client.set(hold, b"other").wait().expect("set");
        }
        own.commit().wait()
    };
    assert!(matches!(again(true), Err(TransactionError::Conflict(_))));
    assert!(client.del(hold).wait().expect("deleted"));
    again(false).expect("committed").expect("written");
    // A value that is edited keeps its expiry.
    let expiry = || client.expiry(hold).wait().expect("read").expect("present");
    let before = expiry().expiry_ms;
    assert!(before > 0);
    let mut edit = client.begin(Isolation::Snapshot);
    edit.get(hold).wait().expect("read");
    edit.set_with(hold, b"two", Expiry::Keep).expect("set");
    edit.commit().wait().expect("committed");
    assert_eq!(expiry().expiry_ms, before);
    assert_eq!(server.stop(), Some(0));
    std::fs::remove_dir_all(&directory).unwrap();
}
