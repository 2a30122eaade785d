//! The table of TRANSACTIONS.md: each anomaly, what single operations make of it, and what each
//! level does.

use super::*;

/// Two transactions at two clients, whose steps come in the order of the test.
struct Stage {
    directory: std::path::PathBuf,
    server: Server,
    one: Client,
    other: Client,
}

impl Stage {
    /// `{x}a` and `{x}b` are 1.
    fn new(name: &str) -> Stage {
        let directory = folder(format!("session-anomaly-{name}"));
        let server = Server::start(&directory, &["--shards", "1"]);
        let (one, other) = (client(&server), client(&server));
        let stage = Stage {
            directory,
            server,
            one,
            other,
        };
        stage.reset();
        stage
    }

    fn reset(&self) {
        write(&self.one, b"{x}a", 1);
        write(&self.one, b"{x}b", 1);
    }

    fn both(&self) -> (u64, u64) {
        (read(&self.one, b"{x}a"), read(&self.one, b"{x}b"))
    }

    fn end(self) {
        assert_eq!(self.server.stop(), Some(0));
        std::fs::remove_dir_all(&self.directory).unwrap();
    }
}

fn is_conflict<T>(outcome: &Result<T, TransactionError>) -> bool {
    matches!(outcome, Err(TransactionError::Conflict(_)))
}

const LEVELS: [Isolation; 2] = [Isolation::Snapshot, Isolation::Serializable];

#[test]
fn an_update_is_lost_by_get_and_set_and_at_no_level() {
    let stage = Stage::new("lost-update");
    let (one, other) = (read(&stage.one, b"{x}a"), read(&stage.other, b"{x}a"));
    write(&stage.one, b"{x}a", one + 1);
    write(&stage.other, b"{x}a", other + 1);
    assert_eq!(stage.both().0, 2, "two sold, and one counted");
    for level in LEVELS {
        stage.reset();
        let mut one = stage.one.begin(level);
        let mut other = stage.other.begin(level);
        for own in [&mut one, &mut other] {
            let a = own.get(b"{x}a").wait().expect("read").expect("present");
            let more = number(&a.bytes) + 1;
            own.set(b"{x}a", &more.to_le_bytes()).expect("set");
        }
        one.commit().wait().expect("the first commits");
        assert!(is_conflict(&other.commit().wait()), "{level:?}");
        assert_eq!(stage.both().0, 2);
    }
    stage.end();
}

#[test]
fn reads_are_skewed_by_two_gets_and_at_no_level() {
    let stage = Stage::new("read-skew");
    let move_one = || {
        let moved = stage.other.transact(Isolation::Serializable, |own| {
            let (a, b) = (own.key(b"{x}a")?, own.key(b"{x}b")?);
            own.then(a.u64(0).decrease(1u64))?;
            own.then(b.u64(0).increase(1u64))
        });
        moved.expect("committed");
    };
    let a = read(&stage.one, b"{x}a");
    move_one();
    assert_eq!(a + read(&stage.one, b"{x}b"), 3, "one is there twice");
    for level in LEVELS {
        stage.reset();
        let mut own = stage.one.begin(level);
        own.get(b"{x}a").wait().expect("read");
        move_one();
        let second = own.get(b"{x}b").wait();
        match level {
            // The second read does not show it.
            Isolation::Snapshot => assert!(is_conflict(&second)),
            // The second read shows it, and the commit does not let it pass.
            Isolation::Serializable => {
                second.expect("read");
                assert!(is_conflict(&own.commit().wait()));
            }
        }
    }
    stage.end();
}

#[test]
fn writes_are_skewed_at_snapshot_and_not_at_serializable() {
    let stage = Stage::new("write-skew");
    for level in LEVELS {
        stage.reset();
        // One of the two must stay 1: each looks at both, and takes its own.
        let mut one = stage.one.begin(level);
        let mut other = stage.other.begin(level);
        for (own, key) in [(&mut one, b"{x}a"), (&mut other, b"{x}b")] {
            let both = own.get_all(&[b"{x}a", b"{x}b"]).wait().expect("read");
            assert!(both.iter().flatten().all(|it| number(&it.bytes) == 1));
            own.set(key, &0u64.to_le_bytes()).expect("set");
        }
        one.commit().wait().expect("the first commits");
        let second = other.commit().wait();
        match level {
            Isolation::Snapshot => {
                second.expect("it commits, too");
                assert_eq!(stage.both(), (0, 0));
            }
            Isolation::Serializable => {
                assert!(is_conflict(&second));
                assert_eq!(stage.both(), (0, 1));
            }
        }
    }
    stage.end();
}

#[test]
fn a_key_that_was_missing_is_a_phantom_at_no_level_once_it_is_written() {
    let stage = Stage::new("phantom");
    for level in LEVELS {
        let mut own = stage.one.begin(level);
        assert_eq!(own.get(b"{x}order").wait().expect("read"), None);
        stage.other.set(b"{x}order", b"theirs").wait().expect("set");
        own.set(b"{x}order", b"mine").expect("set");
        assert!(is_conflict(&own.commit().wait()), "{level:?}");
        assert!(stage.other.del(b"{x}order").wait().expect("deleted"));
    }
    stage.end();
}

#[test]
fn nobody_sees_what_is_not_committed_or_half_of_a_commit() {
    let stage = Stage::new("dirty");
    let mut own = stage.one.begin(Isolation::Snapshot);
    own.set(b"{x}a", &7u64.to_le_bytes()).expect("set");
    own.set(b"{x}b", &7u64.to_le_bytes()).expect("set");
    assert_eq!(stage.both(), (1, 1));
    drop(own);
    assert_eq!(stage.both(), (1, 1));
    // An instruction that does not hold takes all of the commit with it.
    let mut own = stage.one.begin(Isolation::Snapshot);
    own.set(b"{x}a", &7u64.to_le_bytes()).expect("set");
    let b = own.key(b"{x}b").expect("named");
    own.then(b.u64(0).at_least(2u64).or_else(5)).expect("added");
    match own.commit().wait() {
        Err(TransactionError::Store(penstock_client::ClientError::No(no))) => {
            assert_eq!((no.failed(), no.reason), (Some(0), 5));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(stage.both(), (1, 1));
    stage.end();
}
