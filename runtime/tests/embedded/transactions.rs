//! Transactions of stores inside the process of the test.

use std::sync::Barrier;

use penstock::embedded::{
    Isolation, KeyState, Token, TransactionError, TransactionRefusal, new_token, transact,
};
use penstock::{Options, Penstock, Verbs};
use penstock_net::level::AckLevel;
use penstock_net::request::{Condition, Expiry};

use crate::scratch::Scratch;

/// Transactions at once.
const MANY: usize = 50;

/// Small, so that a test costs little disk.
fn options() -> Options {
    Options::default()
        .deadline(std::time::Duration::from_secs(60))
        .segment_bytes(4 << 20)
        .value_bytes_max(64 << 10)
        .cache_bytes(8 << 20)
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
}

fn read(store: &Penstock, key: &[u8]) -> u64 {
    number(&store.get(key).wait().unwrap().unwrap().bytes)
}

#[test]
fn of_fifty_that_read_one_counter_one_commits_and_run_again_all_count() {
    let scratch = Scratch::new("transactions-fifty");
    let store = Penstock::open(&scratch.0, options()).unwrap();
    store.set(b"{n}a", &0u64.to_le_bytes()).wait().unwrap();
    for round in 1..=4 {
        let barrier = Barrier::new(MANY);
        let add = || {
            let mut own = store.begin(Isolation::Snapshot);
            let seen = own.get(b"{n}a").wait().unwrap().unwrap();
            let more = number(&seen.bytes) + 1;
            own.set(b"{n}a", &more.to_le_bytes()).unwrap();
            barrier.wait();
            match own.commit().wait() {
                Ok(changed) => u64::from(changed.is_some()),
                Err(TransactionError::Conflict(it)) => {
                    assert_eq!(it.expected, KeyState::Version(seen.version.unwrap()));
                    0
                }
                Err(other) => panic!("{other}"),
            }
        };
        let committed: u64 = std::thread::scope(|scope| {
            let all: Vec<_> = (0..MANY).map(|_| scope.spawn(add)).collect();
            all.into_iter().map(|it| it.join().unwrap()).sum()
        });
        assert_eq!((committed, read(&store, b"{n}a")), (1, round));
    }
    std::thread::scope(|scope| {
        for which in 0..MANY {
            let store = &store;
            scope.spawn(move || {
                let run = store.transact(Isolation::Serializable, |own| {
                    let seen = own.get(b"{n}a").wait()?.expect("present");
                    own.set(b"{n}a", &(number(&seen.bytes) + 1).to_le_bytes())?;
                    own.set(format!("{{n}}:{}", which % 6).as_bytes(), b"x")
                });
                run.unwrap();
            });
        }
    });
    assert_eq!(read(&store, b"{n}a"), 4 + MANY as u64);
    store.close().unwrap();
}

#[test]
fn a_local_store_runs_transactions_and_keeps_their_tokens() {
    let scratch = Scratch::new("transactions-local");
    let token: Token = new_token().unwrap();
    let order = |local: &mut penstock::Local| {
        let mut own = local.begin(Isolation::Serializable).named(token);
        own.savepoint("empty").unwrap();
        own.set(b"{o}a", b"dropped").unwrap();
        own.rollback_to("empty").unwrap();
        own.set(b"{o}a", b"kept").unwrap();
        own.set_with(b"{o}b", b"hold", Expiry::In(1)).unwrap();
        assert!(matches!(
            own.rollback_to("full"),
            Err(TransactionError::Refused(
                TransactionRefusal::UnknownSavepoint { .. }
            ))
        ));
        own.commit().wait().unwrap().unwrap()
    };
    let mut local = Penstock::open_local(&scratch.0, options()).unwrap();
    local.set_level(AckLevel::Disk);
    assert!(!order(&mut local).is_replayed);
    assert_eq!(&local.get(b"{o}a").unwrap().unwrap().bytes[..], b"kept");
    // The same request with its token is answered as the first time, also behind a start.
    local.close().unwrap();
    let mut local = Penstock::open_local(&scratch.0, options()).unwrap();
    assert!(order(&mut local).is_replayed);
    // An expired hold is missing, and guarded as such.
    std::thread::sleep(std::time::Duration::from_millis(5));
    let (seen, changed) = transact(&mut local, Isolation::Serializable, |own| {
        let seen = own.get_all(&[b"{o}a", b"{o}b"]).wait()?;
        own.del(b"{o}a")?;
        Ok(seen.iter().map(Option::is_some).collect::<Vec<_>>())
    })
    .unwrap();
    assert_eq!(seen, [true, false]);
    assert!(changed.is_some());
    assert_eq!(local.get(b"{o}a").unwrap(), None);
    let missing = local.del_if(b"{o}a", Condition::Present);
    assert!(missing.is_err());
    local.close().unwrap();
}
